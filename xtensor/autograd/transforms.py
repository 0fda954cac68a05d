"""Gradients: transforms of functions.

    >>> xt.grad(lambda x: xt.sum(x**2))(xt.asarray([1.0, 2.0]))
    Tensor([2., 4.], dtype=float64)

Transforms take functions of tensors, or of nested dicts, lists, tuples and dataclasses of them, and can be nested to
any order. For a complex argument z = a + bi of a real loss L, the gradient is dL/da + i dL/db (PyTorch's convention:
the direction of steepest ascent). An argument of integers by which a function has no derivative gets no gradient; going
back through a function without a rule that returned floating-point numbers raises NotImplementedError.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce, update_wrapper, wraps
from typing import Any, Concatenate, cast
from weakref import ref

import numpy as np

from ..base.errors import expected
from ..base.layout import Shape
from ..base.naming import pickled_name
from ..graph.node import Node
from ..storage.blob import TBlob
from ..storage.storage import histories
from ..tensor.face import Tensor, face
from ..tensor.operands import as_tensor
from ..tensor.scalars import is_value, marked
from ..tensor.trees import Rebuild, flatten, paths, rebuilt
from .back import Way, go_back, leads_elsewhere, walk_back, way_back, whole
from .rules import Rule, conjugate, first_cotangent, pull_of, xt
from .tape import (
    BARE,
    FULL,
    OFF,
    Deferred,
    Kept,
    Leaf,
    Output,
    Step,
    active,
    carry,
    is_recording,
    now,
    recording,
    step_of,
    steps_of,
    under,
)

Function = Callable[..., Any]

# A function with a parameter to differentiate by. The cases are spelled out for type checkers, which infer from the
# first that fits that the parameters of a lambda may be anything.
Differentiable = (
    Callable[Concatenate[Any, Any, Any, ...], Any]
    | Callable[Concatenate[Any, Any, ...], Any]
    | Callable[Concatenate[Any, ...], Any]
)


def no_grad() -> recording:
    """Return a context manager and decorator under which nothing is recorded for gradients. Source: PyTorch."""
    return recording(OFF)


def stop_gradient(x: Tensor, /) -> Tensor:
    """Return the values of x as constants, through which no gradient passes. Source: jax.lax.stop_gradient."""
    with recording(OFF):
        return cast(Tensor, xt.positive(as_tensor(x, "stop_gradient")))


# ---- arguments become leaves, which get gradients


class _Entry:
    """The leaves of a transform: fresh tensors over the arguments' values, where its tape begins.

    steps: of the leaves; one whose argument has a step of its own (another transform is at work) leads on to it.
    """

    def __init__(self, function: str, trees: Sequence[Any], names: Sequence[str]) -> None:
        active[0] = True
        self.function = function
        self.rebuilds: list[tuple[int, Rebuild]] = []
        self.steps: list[Step] = []
        self.trees: list[Any] = []
        self.entered: list[Tensor] = []
        for tree, name in zip(trees, names, strict=True):
            leaves, rebuild = flatten(tree)
            entered: list[Tensor] = []
            for leaf in leaves:
                x = leaf if type(leaf) is Tensor else as_tensor(leaf, function, paths(tree, name)[len(entered)])
                if x.dtype.kind not in "fc":
                    path, must = paths(tree, name)[len(entered)], "be floating-point, to have a gradient"
                    raise TypeError(expected(function, path, must, x.dtype))
                if isinstance(leaf, (float, complex, np.generic)):
                    x = marked(x, True)
                entered.append(self._enter(x))
            self.rebuilds.append((len(leaves), rebuild))
            self.trees.append(rebuilt(rebuild, entered))

    def _enter(self, x: Tensor) -> Tensor:
        outer = step_of(x) if is_recording() else None
        entered = _alias(x)
        if outer is not None and type(entered._content) is TBlob:
            _ = entered.owner  # made, so that writes are recorded for this memory, as for a leaf
        step = Leaf(x, asked=False) if outer is None else Step(_SAME, (outer,), x)
        step.slots = (("x", None),) * len(step.parents)
        carry(entered, step)
        self.steps.append(step)
        self.entered.append(entered)
        return entered

    def leave(self, out: Any) -> None:
        """Take results, and the memory of arguments that were written, off a tape that is over."""
        first = min([step.serial for step in self.steps], default=0)
        for leaf in flatten(out)[0]:
            if isinstance(leaf, Tensor) and leaf._step is not None and leaf._step.serial >= first:
                leaf._step = None
        for x in self.entered if histories[0] else ():
            owner = _owner_of(x)
            if owner is not None and owner.guard is not None:
                owner.guard.history = None

    def way(self, outputs: Sequence[Step]) -> Way:
        """Return the way from outputs back to the leaves."""
        return way_back(outputs, set(self.steps))

    def is_inside(self, way: Way) -> bool:
        """Return whether outputs depend on no leaves but these: then the way back itself need not be recorded."""
        if any(step.parents for step in self.steps):
            return False
        return not (way.others and leads_elsewhere(way.others, self.steps))

    def close(self) -> None:
        """Mark the leaves as ones whose gradients nobody but this entry will ask for."""
        for step in self.steps:
            if type(step) is Leaf:
                step.over = True

    def gradients(self, step: Step | None, one: Tensor, returned: Any) -> tuple[Any, ...]:
        """Return the gradients of a scalar, for each argument; takes returned tensors off a tape that is over."""
        self.close()
        way = self.way([] if step is None else [step])
        record = not self.is_inside(way)
        grads = tuple(self.back([] if step is None else [(step, one)], record=record, free=not record, way=way))
        if not record:
            self.leave(returned)
        return grads

    def back(
        self, seeds: Sequence[tuple[Step, Tensor]], *, record: bool, free: bool = False, way: Way | None = None
    ) -> list[Any]:
        """Return the gradients of the leaves, in trees like the arguments.

        free: whether the tape is used up. way: that of the seeds, if it is known.
        """
        given = iter(under(FULL if record else OFF, self._back, seeds, free, way))
        return [rebuilt(rebuild, [next(given) for _ in range(count)]) for count, rebuild in self.rebuilds]

    def _back(self, seeds: Sequence[tuple[Step, Tensor]], free: bool, way: Way | None) -> list[Tensor]:
        found = go_back(seeds, set(self.steps), free=free, way=way)
        seen = {id(g) for _, g in seeds}
        return [self._gradient(step, found.get(step), seen) for step in self.steps]

    def _gradient(self, step: Step, g: Tensor | None, seen: set[int]) -> Tensor:
        if g is None:
            return cast(Tensor, xt.zeros(step.shape, dtype=step.dtype, device=step.device))
        return whole(g, step, seen)


_SAME = Rule("identity", {"x": pull_of(1)})


def _alias(x: Tensor) -> Tensor:
    """Return another tensor over the same value; a pending node keeps the first one as its face.

    For memory that was written while gradients were recorded, a copy, as that has another tape.
    """
    value = x.value
    owner = _owner_of(x) if histories[0] else None
    if owner is not None and owner.history is not None:
        with recording(OFF):
            return x.copy("K")
    alias = marked(face(value), is_value(x))
    if type(value) is Node:
        value.face = ref(x)
    return alias


def _owner_of(x: Tensor) -> Any:
    """Return the owner of a tensor's memory, None if it is pending, or the owner was not made yet."""
    value: Any = x.value
    blob = value if type(value) is TBlob else value.blob
    return None if blob is None else blob._owner


def _results(function: str, out: Any) -> list[Tensor]:
    """Return the tensors in the result of a differentiated function."""
    leaves, _ = flatten(out)
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise TypeError(expected(function, "the function", "return tensors", type(leaf).__name__))
    return leaves


def _check_shapes(function: str, argument: str, given: Sequence[Tensor], shapes: list[Shape]) -> None:
    """Raise ValueError for cotangents, or tangents, whose shapes differ from those that they belong to."""
    found = [one.shape for one in given]
    if found != shapes:
        raise ValueError(expected(function, argument, f"have shapes {shapes}", found))


def _scalar(function: str, out: Any) -> Tensor:
    if not isinstance(out, Tensor):
        raise TypeError(expected(function, "the function", "return a tensor", type(out).__name__))
    if out.shape != () or out.dtype.kind != "f":
        must = "return a real scalar (jacobian and vjp take others)"
        raise ValueError(expected(function, "the function", must, f"shape {out.shape} of {out.dtype}"))
    return out


def _numbers(function: str, argnums: int | Sequence[int], count: int) -> list[int]:
    """Return argument numbers, counted from 0; raises for those that do not exist."""
    given: list[Any] = list(argnums) if isinstance(argnums, (tuple, list)) else [argnums]
    for number in given:
        if not isinstance(number, int) or isinstance(number, bool):
            raise TypeError(expected(function, "argnums", "be an integer or several", repr(argnums)))
        if not -count <= number < count:
            raise ValueError(expected(function, "argnums", f"name some of {count} positional arguments", number))
    numbers = [number % count for number in given]
    if len(set(numbers)) < len(numbers):
        raise ValueError(expected(function, "argnums", "not name an argument twice", argnums))
    return numbers


# ---- reverse mode


def value_and_grad(f: Differentiable, argnums: int | Sequence[int] = 0, *, has_aux: bool = False) -> Function:
    """Return a function that computes f's value and its gradient with respect to some positional arguments.

    f: returns a real scalar tensor, or with has_aux=True a pair of such a tensor and anything else.
    The gradient has the structure of the argument that argnums names; for several there is a tuple of gradients. Raises
    TypeError for arguments that are not floating-point tensors and results that are not tensors, ValueError for a
    result that is not a real scalar and for argnums out of range. Source: jax.value_and_grad.
    """

    _check_callable("value_and_grad", f)

    @wraps(f)
    def call(*args: Any, **kwargs: Any) -> Any:
        entry, out, aux = _called(f, argnums, has_aux, args, kwargs)
        grads = entry.gradients(step_of(out), first_cotangent(out), (out, aux))
        result = grads if isinstance(argnums, (tuple, list)) else grads[0]
        return ((out, aux), result) if has_aux else (out, result)

    return call


def _check_callable(function: str, f: Any) -> None:
    if not callable(f):
        raise TypeError(expected(function, "f", "be callable", type(f).__name__))


def _called(
    f: Function, argnums: int | Sequence[int], has_aux: bool, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[_Entry, Tensor, Any]:
    """Call a function with leaves in place of some arguments; return these, its value, and the rest of its result."""
    numbers = _numbers("grad", argnums, len(args))
    entry = _Entry("grad", [args[n] for n in numbers], [f"argument {n}" for n in numbers])
    given = list(args)
    for number, tree in zip(numbers, entry.trees, strict=True):
        given[number] = tree
    with recording(FULL):
        found = f(*given, **kwargs)
    if has_aux and not (isinstance(found, tuple) and len(found) == 2):
        raise TypeError(expected("grad", "the function", "return a pair with has_aux=True", type(found).__name__))
    out, aux = found if has_aux else (found, None)
    return entry, _scalar("grad", out), aux


def grad(f: Differentiable, argnums: int | Sequence[int] = 0, *, has_aux: bool = False) -> Function:
    """Return a function that computes f's gradient, as value_and_grad does.

    With has_aux=True it returns a pair of the gradient and what else f returns. Source: jax.grad.
    """

    _check_callable("grad", f)

    @wraps(f)
    def call(*args: Any, **kwargs: Any) -> Any:
        entry, out, aux = _called(f, argnums, has_aux, args, kwargs)
        step, one = step_of(out), first_cotangent(out)
        del out  # the value is not returned: its pending steps need not be kept
        grads = entry.gradients(step, one, aux)
        result = grads if isinstance(argnums, (tuple, list)) else grads[0]
        return (result, aux) if has_aux else result

    return call


def vjp(f: Differentiable, *primals: Any) -> tuple[Any, Function]:
    """Return f(*primals), and a function from a cotangent with its structure to a tuple of cotangents of the primals.

    The function may be called more than once. Raises TypeError for primals that are not floating-point tensors,
    ValueError for a cotangent of another shape. Source: jax.vjp.
    """
    return _pulled_back("vjp", f, primals)[:2]


def _pulled_back(function: str, f: Differentiable, primals: Sequence[Any]) -> tuple[Any, Function, Way]:
    """Return vjp's results, and the way from f's results to the primals. function: the caller's name."""
    _check_callable(function, f)
    entry = _Entry(function, primals, [f"argument {n}" for n in range(len(primals))])
    with recording(FULL):
        out = f(*entry.trees)
    results = _results(function, out)
    steps = [step_of(result) for result in results]
    shapes, dtypes = [result.shape for result in results], [result.dtype for result in results]
    device = results[0].device if results else None
    entry.close()
    way = entry.way([step for step in steps if step is not None])
    outside = not entry.is_inside(way)

    def pull(cotangent: Any) -> tuple[Any, ...]:
        leaves = [as_tensor(one, function, "the cotangent", device) for one in flatten(cotangent)[0]]
        _check_shapes(function, "the cotangent", leaves, shapes)
        seeds = [
            (step, xt.astype(g, dtype, copy=False))
            for step, g, dtype in zip(steps, leaves, dtypes, strict=True)
            if step is not None
        ]
        record = outside or any(step_of(one) is not None for one in leaves)
        return tuple(entry.back(seeds, record=record))

    if not outside:
        entry.leave(out)
    return out, pull, way


# ---- forward mode, by reverse mode twice: the pullback is linear in its cotangent


def jvp(f: Differentiable, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """Return f(*primals) and its derivative along the tangents, which have the structure of the primals.

    It is computed as the transpose of the pullback, so that no rule is written twice. Source: jax.jvp.
    """
    tangent_leaves = _tangents("jvp", primals, tangents)
    out, pull, _ = _pulled_back("jvp", f, primals)
    pushed = _pushing(out, pull)(tangent_leaves)
    return out, rebuilt(flatten(out)[1], pushed)


def _tangents(function: str, primals: Sequence[Any], tangents: Sequence[Any]) -> list[Tensor]:
    """Return the tangents' tensors, of the shapes of the primals. Raises TypeError where either is neither tuple nor
    list, such as a single array, ValueError where shapes differ.
    """
    for name, given in (("primals", primals), ("tangents", tangents)):
        if not isinstance(given, (tuple, list)):
            must = "be a tuple or a list, of one for each argument"
            raise TypeError(expected(function, name, must, type(given).__name__))
    found = [as_tensor(one, function, "the tangents") for one in flatten(list(tangents))[0]]
    shapes = [as_tensor(one, function, "the primals").shape for one in flatten(list(primals))[0]]
    _check_shapes(function, "the tangents", found, shapes)
    counts = [[len(flatten(one)[0]) for one in given] for given in (primals, tangents)]
    if counts[0] != counts[1]:
        raise ValueError(expected(function, "the tangents", f"have {counts[0]} arrays for each argument", counts[1]))
    return found


def _pushing(out: Any, pull: Function) -> Function:
    """Return the transpose of a pullback: from a list of tangents to a tuple of tangents of the leaves of out."""
    leaves, rebuild = flatten(out)

    def transposed(*cotangents: Tensor) -> list[Any]:
        return flatten(list(pull(rebuilt(rebuild, cotangents))))[0]

    zeros = [xt.zeros(one.shape, dtype=one.dtype, device=one.device) for one in leaves]
    return vjp(transposed, *zeros)[1]


def jacobian(f: Differentiable, argnums: int | Sequence[int] = 0) -> Function:
    """Return a function that computes the derivatives of every element of f's result with respect to arguments.

    For a result of shape s and an argument of shape t the derivative has shape s + t. It is computed row by row in
    reverse mode, or column by column in forward mode where the arguments have fewer elements than the result. Raises
    TypeError for complex results. Source: jax.jacrev, jax.jacfwd.
    """
    _check_callable("jacobian", f)

    @wraps(f)
    def call(*args: Any, **kwargs: Any) -> Any:
        numbers = _numbers("jacobian", argnums, len(args))

        def chosen(*some: Any) -> Any:
            given = list(args)
            for number, one in zip(numbers, some, strict=True):
                given[number] = one
            return f(*given, **kwargs)

        primals = [args[n] for n in numbers]
        out, pull, way = _pulled_back("jacobian", chosen, primals)
        if not isinstance(out, Tensor) or out.dtype.kind != "f":
            raise TypeError(expected("jacobian", "the function", "return a real tensor", getattr(out, "dtype", out)))
        leaves, rebuild = flatten(primals)
        leaves = [as_tensor(leaf, "jacobian") for leaf in leaves]
        by_columns = sum([leaf.size for leaf in leaves]) < out.size and _is_linear(way, leaves)
        found = rebuilt(rebuild, (_columns if by_columns else _rows)(out, pull, leaves))
        return tuple(found) if isinstance(argnums, (tuple, list)) else found[0]

    return call


def _is_linear(way: Way, leaves: Sequence[Tensor]) -> bool:
    """Return whether a way back may be transposed: user-defined rules may not be linear in the cotangent, or look at
    its values, and deferred calls may contain such rules.
    """
    own = any(is_users_own(step.rule) for step in way.order if step.rule is not None)
    again = any(type(step) is not Step and type(step) is not Leaf for step in way.order)
    return not own and not again and all(leaf.dtype.kind == "f" for leaf in leaves)


def _rows(out: Tensor, pull: Function, leaves: Sequence[Tensor]) -> list[Tensor]:
    """Return the derivatives of a result with respect to leaves, a pull for each element of the result."""
    if not out.size:
        return [xt.zeros((*out.shape, *one.shape), dtype=one.dtype, device=one.device) for one in leaves]
    rows = zip(*[flatten(list(pull(_unit(out, place))))[0] for place in range(out.size)], strict=True)
    pairs = zip(rows, leaves, strict=True)
    return [xt.reshape(xt.stack(row), (*out.shape, *leaf.shape)) for row, leaf in pairs]


def _columns(out: Tensor, pull: Function, leaves: Sequence[Tensor]) -> list[Tensor]:
    """Return the derivatives of a result with respect to leaves, a push for each element of the leaves."""
    push, found = _pushing(out, pull), []
    zeros = [xt.zeros(one.shape, dtype=one.dtype, device=one.device) for one in leaves]
    for number, leaf in enumerate(leaves):
        units = [[*zeros[:number], _unit(leaf, place), *zeros[number + 1 :]] for place in range(leaf.size)]
        columns = [push(one)[0] for one in units]
        shape = (*out.shape, *leaf.shape)
        whole = xt.stack(columns, axis=-1) if columns else xt.zeros(shape, dtype=leaf.dtype, device=leaf.device)
        found.append(xt.astype(xt.reshape(whole, shape), leaf.dtype, copy=False))
    return found


def _unit(like: Tensor, place: int) -> Tensor:
    """Return a tensor of zeros with a one at an index in C order."""
    with recording(OFF):
        flat = xt.zeros(like.size, dtype=like.dtype, device=like.device)
        flat[place] = 1
        return cast(Tensor, xt.reshape(flat, like.shape))


def hessian(f: Differentiable, argnums: int = 0) -> Function:
    """Return a function that computes the second derivatives of a real scalar f with respect to one tensor.

    For an argument of shape t the result has shape t + t. Source: jax.hessian.
    """
    _check_callable("hessian", f)
    return jacobian(grad(f, argnums), argnums)


def hvp(f: Differentiable, primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    """Return the product of the Hessian of a real scalar f and the tangents, with the structure of the primals.

    For a single primal it is not in a tuple. It is computed as the gradient of the gradient's inner product with the
    tangents. Source: jax.jvp of jax.grad.
    """
    vectors = _tangents("hvp", primals, tangents)

    def slope(*args: Any) -> Tensor:
        grads = flatten(list(grad(f, tuple(range(len(args))))(*args)))[0]
        terms = [xt.sum(xt.real(g * conjugate(v))) for g, v in zip(grads, vectors, strict=True)]
        return cast(Tensor, reduce(xt.add, terms))

    found = grad(slope, tuple(range(len(primals))))(*primals)
    return found if len(primals) > 1 else found[0]


# ---- functions with rules of their own


class _KeptTree:
    """A tree whose tensors are kept as they are now, whatever is written into them later."""

    def __init__(self, tree: Any) -> None:
        leaves, self.rebuild = flatten(tree)
        self.leaves = [Kept(x, step_of(x)) if isinstance(x, Tensor) else x for x in leaves]

    def tree(self) -> Any:
        leaves = [x.tensor(x.step) if isinstance(x, Kept) else x for x in self.leaves]
        return rebuilt(self.rebuild, leaves)


def checkpoint(f: Differentiable) -> Function:
    """Return a function that computes f without keeping values for its gradient, and computes f again to get them.

    This saves memory at the cost of time: only the arguments are kept. f must give the same results when it is called
    again. Tensors that f reads besides its arguments get gradients too. Source: jax.checkpoint, torch.utils.checkpoint.
    """
    _check_callable("checkpoint", f)

    @wraps(f)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not active[0] or not is_recording():
            return f(*args, **kwargs)
        first = now()
        with recording(BARE):
            out = f(*args, **kwargs)
        results = _results("checkpoint", out)
        steps = [step_of(result) for result in results]
        outside = _outside([step for step in steps if step is not None], first)
        if not outside:
            return out
        again = Deferred(_Again(f, args, kwargs), tuple(outside), results[0])
        for place, (result, step) in enumerate(zip(results, steps, strict=True)):
            if step is not None:
                carry(result, Output(again, place, result))
        return out

    return call


def _outside(steps: Sequence[Step], first: int) -> list[Step]:
    """Return the steps made before `first` on which the given steps, or later ones behind them, depend."""
    return [step for step in walk_back(steps, lambda step: step.serial < first) if step.serial < first]


class _Again:
    """Calls a function again for a Deferred step, this time recording and keeping everything."""

    def __init__(self, f: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.f = f
        self.arguments = _KeptTree((args, kwargs))

    def __call__(self, cotangents: dict[int, Tensor]) -> list[tuple[Step, Tensor]]:
        with recording(FULL):
            args, kwargs = self.arguments.tree()
            results = _results("checkpoint", self.f(*args, **kwargs))
        steps = [step_of(result) for result in results]
        return [(step, cotangents[n]) for n, step in enumerate(steps) if step is not None and n in cotangents]


class custom_vjp:  # noqa: N801 - a decorator
    """A function whose gradient the user defines.

    >>> @xt.custom_vjp
    ... def f(x): ...
    >>> f.defvjp(forward, backward)

    forward(*args) returns a pair: f's result, and anything that backward will need. backward(that, g) returns a tuple
    of cotangents, one for each positional argument (None for zero). Arguments and the result are tensors. Raises
    TypeError and ValueError if backward returns other shapes or kinds. Source: jax.custom_vjp.
    """

    def __init__(self, f: Function) -> None:
        _check_callable("custom_vjp", f)
        self.f = f
        self.forward: Function | None = None
        self.backward: Function | None = None
        self.__name__ = "custom_vjp"  # of callables without a name
        update_wrapper(self, f)

    def __reduce__(self) -> Any:
        by_value = custom_vjp, (self.f,), {"forward": self.forward, "backward": self.backward}
        return pickled_name(self) or by_value

    def defvjp(self, forward: Function, backward: Function) -> None:
        """Set the two functions that define the gradient."""
        self.forward, self.backward = forward, backward

    def __call__(self, *args: Any) -> Any:
        steps = steps_of(args) if active[0] else None
        if steps is None:
            return self.f(*args)
        if self.forward is None or self.backward is None:
            raise RuntimeError(expected(self.__name__, "custom_vjp", "have its rule (call defvjp first)", "none"))
        with recording(OFF):
            out, kept = self.forward(*args)
        if not isinstance(out, Tensor):
            raise TypeError(expected(self.__name__, "forward", "return a tensor first", type(out).__name__))
        tracked = [n for n, step in enumerate(steps) if step is not None]
        rule = Rule(self.__name__, {"args": pull_of(_Written(self, kept, args))})
        if any(out is x for x in args):
            out = _alias(out)
        step = Step(rule, tuple([one for one in steps if one is not None]), out)
        step.slots = tuple([("args", n) for n in tracked])
        step.given = {"like args": None}
        carry(out, step)
        return out


def _like_of(x: Any) -> tuple[Any, Any] | None:
    return (x.shape, x.dtype) if isinstance(x, Tensor) else None


def is_users_own(rule: Rule) -> bool:
    """Return whether a rule is that of a custom_vjp."""
    return any(type(pull.function) is _Written for pull in rule.pulls.values())


class _Written:
    """The rule of a custom_vjp: the user's backward, and a check of what it returns."""

    def __init__(self, owner: custom_vjp, kept: Any, args: tuple[Any, ...]) -> None:
        self.owner, self.kept, self.args = owner, _KeptTree(kept), _KeptTree(args)
        self.likes = [_like_of(x) for x in args]

    def _needed(self) -> Any:
        """Return the values for backward; recomputed where its own derivative is recorded, which depends on them."""
        if not is_recording():
            return self.kept.tree()
        assert self.owner.forward is not None
        return self.owner.forward(*self.args.tree())[1]

    def __call__(self, g: Tensor) -> list[Any]:
        assert self.owner.backward is not None
        name = self.owner.__name__
        found = self.owner.backward(self._needed(), g)
        if not isinstance(found, (tuple, list)) or len(found) != len(self.likes):
            got = f"{len(found)} of them" if isinstance(found, (tuple, list)) else type(found).__name__
            raise TypeError(expected(name, "backward", f"return a tuple of {len(self.likes)} cotangents", got))
        return [self._checked(n, one, like) for n, (one, like) in enumerate(zip(found, self.likes, strict=True))]

    def _checked(self, number: int, g: Any, like: Any) -> Tensor | None:
        if g is None or like is None:
            return None
        shape, dtype = like
        if not isinstance(g, Tensor) or g.dtype.kind not in ("f" if dtype.kind == "f" else "fc"):
            got = g.dtype if isinstance(g, Tensor) else type(g).__name__
            must = f"return a {'real ' if dtype.kind == 'f' else ''}floating-point tensor for argument {number}"
            raise TypeError(expected(self.owner.__name__, "backward", must, got))
        if g.shape != shape:
            must = f"return shape {shape} for argument {number}"
            raise ValueError(expected(self.owner.__name__, "backward", must, f"shape {g.shape}"))
        return g

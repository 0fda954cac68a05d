"""The doors: decorators that make public functions of declarations, with fast paths for small operands.

A public function is written once, as a real `def` under a decorator that states its mathematical properties; the
decorator replaces the empty body by the door.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np

from ..autograd.rules import RULES, Pull, Rule, pull_of, xt
from ..autograd.tape import active
from ..base.dtypes import ANY, Category, is_held
from ..base.errors import REFUSED, StrangerError, UnheldError, expected, one_of
from ..base.options import thin_closed
from ..devices.cpu import CPU, NUMBERS, floats_beside, quickly, spreads
from ..graph.node import Node
from ..graph.number import asked
from ..plan.costs import ELIDED
from ..run.executor import count_thin_write
from ..storage.blob import TBlob
from ..storage.storage import Native
from ..tensor.face import CPU_DEVICE, Scalar, Tensor, small, wrap
from ..tensor.methods import Methods
from ..tensor.operands import SCALARS, answer_of, chosen_device, is_derived, one_correction, without_operators
from ..tensor.operators import COMPARED, MIRRORED, SPELLED, Operators
from ..tensor.scalars import is_value, valued
from .elsewhere import call_known, update_known
from .library import reduce_small
from .op import Op, apply, reduce, reduce_on_tape
from .record import pays_to_wait
from .sequences import row_of
from .temporaries import Held, memory_of_operand, note_made, operators_frame, references
from .thin import Door, add_door
from .writes import changed_value, update

_asarray = np.asarray
F = TypeVar("F", bound=Callable[..., Any])


def _finish(op: Op, call: Callable[..., Any]) -> None:
    """Give a function its Op, and its docstring the properties in that."""
    call.op = op  # type: ignore[attr-defined]
    rest = "" if op.accepts is ANY else ", and others that NumPy's function takes; raises TypeError for the rest"
    shapes = " Raises ValueError where shapes do not broadcast." if len(op.parameters) > 1 else ""
    call.__doc__ = f"""{(op.stub.__doc__ or "").rstrip()}

    Takes {op.accepts.word} dtypes{rest}.{shapes}
    Chapter of the standard: {op.chapter.capitalize()} Functions.
    """


def elementwise(
    accepts: Category,
    *,
    element: Callable[..., Any] | None = None,
    domain: tuple[float, float] = (-2.0, 2.0),
    fails_on_values: Callable[..., bool] | None = None,
    derivative: Any = None,
) -> Callable[[F], F]:
    """Declare an elementwise function: a stub with one to three positional parameters.

    derivative: how a gradient goes back (rules.Pull), for several operands a tuple of one each, None for one that
        has no gradient. A function without any gives no gradient.
    """

    def decorate(stub: F) -> F:
        op = Op(stub, "elementwise", accepts, element=element, domain=domain, fails_on_values=fails_on_values)
        op.rule = _rule(op, derivative)
        door = (_unary, _binary, _ternary)[len(op.parameters) - 1]
        call = _past(op, door(op)) if op.slow else door(op)
        _spell(op)
        call = wraps(stub)(call)
        _finish(op, call)
        return cast(F, call)

    return decorate


# The fast path: the op's kernel on arrays that are computed and small, and a new face. No settings,
# shapes or dtypes are looked at. Whatever the library refuses goes the long way, which reports what is wrong.
_NUMBERS = frozenset((*SCALARS, *NUMBERS))
_ARRAY = np.ndarray


# For values without axes NumPy's scalars compute the same bits in a quarter of the time of its arrays.
_ITEMS: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "remainder": operator.mod,
    "negative": operator.neg,
    "abs": operator.abs,
    "bitwise_and": operator.and_,
    "bitwise_or": operator.or_,
    "bitwise_xor": operator.xor,
    "bitwise_left_shift": operator.lshift,
    "bitwise_right_shift": operator.rshift,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
    "equal": operator.eq,
    "not_equal": operator.ne,
}


# Types that do not act as a NumPy scalar beside one: arrays, and numbers that divide as in Python.
_NOT_AS_ITEMS = (complex, _ARRAY)


# A tensor that is no thin face but has its bytes, such as the result of a kernel, becomes one. Doors repeat the test
# for that inline, as each call on another device would pay for a function.


def _unary(op: Op) -> Callable[..., Tensor]:
    kernel: Any = op.kernel(CPU)
    below = op.below

    def call(x: Any, /) -> Tensor:
        if type(x) is Tensor:
            a = x._content
            if type(a) is _ARRAY and a.nbytes <= below[0] and not thin_closed[0]:
                try:
                    return wrap(quickly(kernel, a), CPU_DEVICE)
                except REFUSED:
                    pass
            elif not thin_closed[0] and (type(a) is TBlob or (type(a) is Node and a.blob is not None)):
                if a.device is CPU_DEVICE and x.thin() is not None:  # as results of kernels become
                    return call(x)
                found = call_known(op, (x,)) if op.ready and not active[0] else None
                if found is not None:
                    return found
        elif type(x) in _NUMBERS or (type(x) is _ARRAY and _passes(x, below[0])):
            native = _alone(x)
            try:
                if native is not None:
                    return wrap(quickly(kernel, native), CPU_DEVICE)
            except REFUSED:
                pass
        return apply(op, (x,))

    return call


def _binary(op: Op, long_way: Callable[[Op, tuple[Any, ...]], Any] = apply) -> Callable[..., Tensor]:
    if op.name == "pow":
        long_way = _squares_first(long_way)
    kernel: Any = op.kernel(CPU)
    takes_arrays = type(kernel) is np.ufunc  # and does not look at types of Python numbers
    of_items = _ITEMS.get(op.name) if takes_arrays else None
    below = op.below

    def call(x1: Any, x2: Any, /) -> Any:
        if type(x1) is Tensor:
            a = x1._content
            if type(a) is _ARRAY and a.nbytes <= below[0] and not thin_closed[0]:
                kind = type(x2)
                b: Any = x2._content if kind is Tensor else None
                if kind is Tensor:
                    b = b if type(b) is _ARRAY else _made_thin(x2)
                    is_far = type(b) is not _ARRAY or b.nbytes > below[0]
                    if is_far or (a.ndim + b.ndim > 2 and spreads(a, b, below[0])):
                        return long_way(op, (x1, x2))
                elif kind is float and takes_arrays:
                    b = floats_beside(a.dtype, x2)
                else:
                    b = x2 if kind in _NUMBERS else _beside(a, x2, below[0])
                    if b is None:
                        return long_way(op, (x1, x2))
                try:
                    if of_items is None or a.ndim or (kind is Tensor and b.ndim):
                        native = quickly(kernel, a, b) if a.nbytes < ELIDED else _elided(kernel, x1, x2, a, b)
                    else:
                        native = quickly(of_items, a[()], b[()] if kind is Tensor else x2)
                except REFUSED:
                    return long_way(op, (x1, x2))
                tensor = Tensor()  # as wrap makes it, without a call in the commonest case of all
                if type(native) is not _ARRAY:
                    native, tensor._is_value = _asarray(native), True
                tensor._content = native
                tensor._owner = tensor._blob = tensor._step = None
                return tensor
            if not thin_closed[0] and (type(a) is TBlob or (type(a) is Node and a.blob is not None)):
                if a.device is CPU_DEVICE and x1.thin() is not None:
                    return call(x1, x2)
                found = call_known(op, (x1, x2)) if op.ready and not active[0] else None
                if found is not None:
                    return found
        elif type(x2) is Tensor and not thin_closed[0]:
            found = _beside_first(kernel, of_items, x1, x2, below[0])
            if found is not None:
                return found
        elif type(x1) in SCALARS and type(x2) in SCALARS:
            alone = _alone(x1)
            if alone is not None:
                return call(wrap(alone, CPU_DEVICE), x2)
        elif type(x1) is _ARRAY or type(x2) is _ARRAY:
            found = _without_tensors(kernel, x1, x2, below[0])
            if found is not None:
                return found
        return long_way(op, (x1, x2))

    return call


def _made_thin(x: Any) -> Any:
    """Return the array of a tensor that is a thin face, or becomes one as it has its bytes; None for any other."""
    data = x._content
    if type(data) is TBlob or (type(data) is Node and data.blob is not None):
        return x.thin() if data.device is CPU_DEVICE else None
    return data if type(data) is _ARRAY else None


def _beside_first(kernel: Any, of_items: Any, x: Any, other: Tensor, most: int) -> Tensor | None:
    """Return the result for a number, or a NumPy array, and a small tensor if it can be computed at once, else None."""
    b = _made_thin(other)
    if type(b) is not _ARRAY or b.nbytes > most:
        return None
    a = x if type(x) in _NUMBERS else _beside(b, x, most)
    try:
        if a is not None and of_items is not None and not b.ndim and type(a) not in _NOT_AS_ITEMS:
            return wrap(quickly(of_items, a, b[()]), CPU_DEVICE)
        if a is not None:
            a = floats_beside(b.dtype, a) if type(a) is float and type(kernel) is np.ufunc else a
            native = quickly(kernel, a, b) if b.nbytes < ELIDED else _elided(kernel, x, other, a, b)
            return wrap(native, CPU_DEVICE)
    except REFUSED:
        pass
    return None


def _elided(kernel: Any, x1: Any, x2: Any, a: Any, b: Any) -> Native:
    """Return the result for large arrays, or one and a number, in the memory of an operand that is not used again."""
    frame = operators_frame()
    if kernel is _POWER and type(a) is _ARRAY and _makes_square(a.dtype, b):
        into = memory_of_operand(np.square, (x1, x2), (a,), _HELD, frame)
        result = quickly(np.square, a, into)
    elif type(kernel) is np.ufunc:
        into = memory_of_operand(kernel, (x1, x2), (a, b), _HELD, frame)
        result = quickly(kernel, a, b) if into is None else quickly(kernel, a, b, into)
    else:
        result = quickly(kernel, a, b)
    note_made(result, frame)
    return result if result.ndim else result[()]


_HELD = Held(references(5, 4, 4), references(7, 4, 4), references(5, 4, 4), references(5, 4, 4))
_POWER: Any = CPU.kernel("pow")


def _makes_square(dtype: Any, exponent: Any) -> bool:
    """Return whether powers with an exponent are squares, as of NumPy's operator; these cost as little as a product."""
    kind = type(exponent)
    return kind in (int, float) and exponent == 2 and dtype.kind in ("iufc" if kind is int else "fc")


def _without_tensors(kernel: Any, x1: Any, x2: Any, most: int) -> Tensor | None:
    """Return the result for two NumPy arrays, or one and a number, if it can be computed at once, else None."""
    a, b = [(_alone(x) if _passes(x, most) else None) if type(x) is _ARRAY else x for x in (x1, x2)]
    is_first, is_second = type(a) is _ARRAY, type(b) is _ARRAY
    if not ((is_first or type(a) in _NUMBERS) and (is_second or type(b) in _NUMBERS)):
        return None
    if is_first and is_second and spreads(a, b, most):
        return None
    try:
        return wrap(quickly(kernel, a, b), CPU_DEVICE)
    except REFUSED:
        return None


def _beside(a: np.ndarray[Any, Any], x: Any, most: int) -> Any:
    """Return an operand that can be used beside an array as it is, as it is read at once: a small NumPy array, also one
    made of a short list of numbers; None for anything else.
    """
    if type(x) in (list, tuple) and a.ndim:
        return row_of(x)
    return x if type(x) is _ARRAY and _passes(x, most) and not spreads(a, x, most) else None


def _passes(x: np.ndarray[Any, Any], most: int) -> bool:
    return x.nbytes <= most and is_held(x.dtype)


def _alone(x: Any) -> Native | None:
    """Return a number or a small array of NumPy's, for a call on that alone; None where it would be no thin face."""
    native = _asarray(x)
    if thin_closed[0] or native.dtype.kind == "O" or chosen_device(None, "asarray") is not CPU_DEVICE:
        return None
    return native


def _past(op: Op, call: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return the door of a function for which the library is slow: operands that are not quite small bypass it."""

    def choose(*operands: Any) -> Tensor:
        for x in operands:
            if type(x) is Tensor and small(x) is not None and pays_to_wait(op, x.dtype, x._content.nbytes, CPU_DEVICE):
                return apply(op, operands)
        return call(*operands)

    return choose


def _squares_first(long_way: Callable[[Op, tuple[Any, ...]], Any]) -> Callable[[Op, tuple[Any, ...]], Any]:
    """Return the long way of powers, some of which are squares."""

    def choose(op: Op, operands: tuple[Any, ...]) -> Any:
        base, exponent = operands = tuple(map(asked, operands))
        is_square = type(base) is Tensor and _makes_square(base.dtype, exponent)
        return xt.square(base) if is_square else long_way(op, operands)

    return choose


def _or_not_implemented(op: Op, operands: tuple[Any, ...]) -> Any:
    """Return NotImplemented for foreign operands, so that their reflected operators are tried, or what sparse arrays
    answer; as in NumPy, a sequence times an integer is repeated, and no number equals None or a string.
    """
    if op.name == "multiply":
        repeated = _repeated(*operands)
        if repeated is not None:
            return repeated
    if not _USUAL.issuperset(map(type, operands)):  # without names for the operands, whose references are counted
        if is_derived(type(operands[0])):  # a matrix's operators take no tensors
            return getattr(operands[0], f"__{SPELLED[op.name]}__")(np.asarray(operands[1]))
        if is_derived(type(operands[1])):
            return NotImplemented
    try:
        return apply(op, operands)
    except UnheldError:
        return NotImplemented
    except StrangerError:
        plain = tuple(map(without_operators, operands))
        if any(one is not other for one, other in zip(plain, operands, strict=True)):
            return apply(op, plain)
        x, other = operands
        if op.name not in ("equal", "not_equal") or not (other is None or isinstance(other, (str, bytes))):
            return _foreign(SPELLED[op.name], x, other)
        found = xt.full(x.shape, op.name == "not_equal", dtype=xt.bool, device=x.device)
        return valued(found) if is_value(x) else found


# The types of operands of most calls.
_USUAL = frozenset((Tensor, _ARRAY, bool, int, float, complex))


def _repeated(x1: Any, x2: Any) -> Any:
    """Return a sequence that is repeated an integer's times, None for other operands."""
    x, other = (x1, x2) if isinstance(x1, Tensor) else (x2, x1)
    is_repeated = type(other) in (list, tuple) and is_value(x) and x.dtype.kind in "iu"
    return other * int(x) if is_repeated else None


def _foreign(name: str, x: Any, other: Any) -> Any:
    """Return what the foreign operand of an operator answers, NotImplemented if it is to be asked by Python."""
    if isinstance(other, Tensor):
        return answer_of(x, f"__{name}__", other)
    return answer_of(other, f"__{MIRRORED.get(name, f'r{name}')}__", x)


def _spell(op: Op) -> None:
    """Give tensors the operators that spell a function: doors of their own, which do not call the function."""
    name = SPELLED.get(op.name)
    if name is None:
        return
    if len(op.parameters) == 1:
        _install(op, name, _unary(op), "unary")
        return
    call = _binary(op, _or_not_implemented)
    _install(op, name, call, "binary")
    if op.name not in COMPARED:
        _install(op, f"r{name}", _reflected(call), "reflected")
        _install(op, f"i{name}", _in_place(op), "update")


def _in_place(op: Op) -> Callable[..., Any]:
    """Return an operator that writes into its first operand."""
    kernel: Any = op.kernel(CPU)
    takes_arrays = type(kernel) is np.ufunc
    of_items = _ITEMS.get(op.name) if takes_arrays else None
    below = op.below

    def change(self: Tensor, other: Any, /) -> Any:
        a = self._content
        if not thin_closed[0] and (type(a) is TBlob or (type(a) is Node and a.blob is not None)):
            a = self._content if a.device is CPU_DEVICE and self.thin() is not None else a
        owner = self._owner
        free = self._blob is None if owner is None else owner.guard is None
        if free and type(a) is _ARRAY and takes_arrays and not thin_closed[0]:
            kind = type(other)
            b = other._content if kind is Tensor else floats_beside(a.dtype, other) if kind is float else other
            if (type(b) is _ARRAY or kind in _NUMBERS) and a.nbytes <= below[0]:
                if owner is not None:
                    owner.changes += 1  # at the start too: an interrupt may come before the write is counted
                try:
                    if not a.ndim and is_value(self):
                        return wrap(_change(kernel, of_items, a.copy(), b)[()], CPU_DEVICE)
                    _change(kernel, of_items, a, b)
                except REFUSED:  # before anything was written
                    pass
                except BaseException:  # an interrupt, perhaps after the write
                    count_thin_write(self)
                    raise
                else:
                    if self._owner is not None or self._blob is not None:
                        count_thin_write(self)
                    return self
        if is_value(self):
            return changed_value(self, op, other)
        if type(a) is TBlob and not (active[0] or thin_closed[0]) and update_known(op, self, other):
            return self
        return update(self, op, other)

    return change


def _reflected(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return an operator with its operands in the other order."""

    def reflected(self: Tensor, other: Any, /) -> Any:
        return call(other, self)

    return reflected


def _install(op: Op, name: str, call: Callable[..., Any], kind: str) -> None:
    """Install a function as an operator with the name and signature of the standard; where NumPy's function takes
    arrays as they are, as the door behind one in machine code.
    """
    call.__name__ = f"__{name}__"
    call.__qualname__ = f"Operators.__{name}__"
    only = inspect.Parameter.POSITIONAL_ONLY
    given = ("self",) if kind == "unary" else ("self", "other")
    call.__signature__ = inspect.Signature([inspect.Parameter(one, only) for one in given])  # type: ignore[attr-defined]
    kernel = op.kernel(CPU)
    if type(kernel) is np.ufunc:
        add_door(Door(Operators, call.__name__, call, kind, kernel, _ITEMS.get(op.name), op.below))
    elif kind in ("binary", "reflected"):
        written = "power" if (op.name, kind) == ("pow", "binary") else f"{kind} formula"
        add_door(Door(Operators, call.__name__, call, written, kernel, below=op.below))
    else:
        setattr(Operators, call.__name__, call)


def _change(kernel: Any, of_items: Callable[[Any, Any], Any] | None, a: Native, b: Any) -> Native:
    """Compute `a = op(a, b)` into a's own memory, without a warning, and return it."""
    if of_items is not None and not a.ndim and (type(b) is not _ARRAY or not b.ndim):
        result = quickly(of_items, a[()], b[()] if type(b) is _ARRAY else b)
        if result.dtype is a.dtype:
            a[()] = result
            return a
    return quickly(kernel, a, b, a, casting="same_kind")


def _ternary(op: Op) -> Callable[..., Tensor]:
    kernel: Any = op.kernel(CPU)
    below = op.below

    def taken(x: Any) -> Any:
        if type(x) is Tensor:
            return small(x)
        return x if type(x) in _NUMBERS or (type(x) is _ARRAY and _passes(x, below[0])) else None

    def call(condition: Any, x1: Any, x2: Any, /) -> Tensor:
        if type(condition) is Tensor and not thin_closed[0]:
            natives = taken(condition), taken(x1), taken(x2)
            if natives[0] is not None and natives[1] is not None and natives[2] is not None:
                try:
                    return wrap(quickly(kernel, *natives), CPU_DEVICE)
                except REFUSED:
                    pass
        return apply(op, (condition, x1, x2))

    return call


def _rule(op: Op, derivative: Any) -> Rule:
    """Return the rule of an op; an empty one where it has none."""
    if derivative is None:
        return op.rule
    written = derivative if type(derivative) is tuple else (derivative,)
    pulls: dict[str, Pull] = {
        name: pull_of(one) for name, one in zip(op.parameters, written, strict=True) if one is not None
    }
    maps, folds = op.kind == "elementwise", op.kind == "reduction"
    rule = RULES[op.name] = Rule(op.name, pulls, elementwise=maps, reduction=folds, parameters=op.parameters)
    return rule


def reduction(
    accepts: Category,
    *,
    of_nothing: Scalar | None = None,
    one_axis: bool = False,
    composed: Callable[..., Tensor | None] | None = None,
    derivative: Any = None,
) -> Callable[[F], F]:
    """Declare a reduction: a stub taking x and keyword-only axis, keepdims and perhaps dtype or correction.

    derivative: how a gradient goes back (rules.Pull); its parameters may be named like the stub's.
    """

    def decorate(stub: F) -> F:
        op = Op(stub, "reduction", accepts, of_nothing=of_nothing, one_axis=one_axis, composed=composed)
        op.rule = _rule(op, derivative)
        defaults, below = op.defaults, op.below

        kernel = CPU.kernel(op.name)
        if op.name in vars(Methods):
            add_door(Door(Methods, op.name, vars(Methods)[op.name], "reduced", kernel, below=op.below))

        @wraps(stub)
        def call(x: Any, /, **given: Any) -> Tensor:
            native = x._content if type(x) is Tensor and not thin_closed[0] else None
            if type(native) is TBlob or (type(native) is Node and native.blob is not None):
                native = x.thin() if native.device is CPU_DEVICE else None
            if type(native) is _ARRAY and native.nbytes <= below[0] and native.size:
                reduced = reduce_small(kernel, native, given)
                if reduced is not None:
                    return wrap(reduced, CPU_DEVICE)
            if active[0]:
                reduced = reduce_on_tape(op, kernel, x, given)
                if reduced is not None:
                    return reduced
            params = defaults | given
            if len(params) != len(defaults):
                unknown = given.keys() - defaults.keys()
                if unknown != {"out"} or params.pop("out") is not None:  # NumPy passes an empty one on to others
                    raise TypeError(expected(op.name, "a keyword", one_of(defaults), repr(min(unknown))))
            if "ddof" in params:
                params["correction"] = one_correction(op.name, params.pop("ddof"), params["correction"] or None)
            return reduce(op, x, params)

        _finish(op, call)
        return cast(F, call)

    return decorate

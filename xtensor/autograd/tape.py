"""The tape: how tensors were computed from those that require a gradient.

A tensor that depends on a leaf carries a Step: the function's rule, the steps of its operands, and the values that the
rule will ask for. Only these are kept, as values and not as tensors: pending ones stay pending, so that going back
recomputes them inside its own kernels, and computed ones are copied before they are overwritten.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import ContextDecorator
from contextvars import ContextVar, Token
from functools import cache, partial, wraps
from itertools import compress, count
from typing import Any, TypeVar, cast
from weakref import ref

import numpy as np

from ..base.errors import expected
from ..base.layout import Layout
from ..base.options import active as active
from ..base.options import settings, thin_closed
from ..graph.node import Node, View
from ..plan.costs import DIRECT_BELOW
from ..storage.blob import TBlob
from ..storage.storage import histories, watchers, watching
from ..tensor.face import CPU_DEVICE, Tensor, face, wrap
from ..tensor.scalars import is_value, marked
from .rules import RULES, Like, Pull, Rule, fit, pull_of, times, xt

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

# The places of tensors in a call: the argument's name, and the index in it if it is a sequence, else None.
Slots = tuple[tuple[str, int | None], ...]

# What is recorded on the tape: nothing, only dependencies, or also the values that rules ask for.
OFF, BARE, FULL = 0, 1, 2
_mode: ContextVar[int] = ContextVar("xtensor_tape", default=FULL)

_serial = count(1)


def now() -> int:
    """Return a number that is larger than those of all existing steps, and smaller than those of all later ones."""
    return next(_serial)


class recording(ContextDecorator):  # noqa: N801 - reads as a state: `with recording(OFF):`
    """The kind of recording for gradients inside a `with` block or a decorated function, in this thread."""

    __slots__ = ("_mode", "_tokens")

    def __init__(self, mode: int) -> None:
        self._mode = mode
        self._tokens: list[Token[int]] = []

    def __enter__(self) -> None:
        before = _mode.get()
        try:
            self._tokens.append(_mode.set(self._mode))
        except BaseException:  # an interrupt, after which nobody leaves the block
            _mode.set(before)
            raise

    def __exit__(self, *failure: object) -> None:
        _mode.reset(self._tokens.pop())

    def __call__(self, function: F) -> F:
        """Decorate a function; for a generator the mode holds inside it, but not for its caller between its values."""
        if not inspect.isgeneratorfunction(function):
            return super().__call__(function)
        generate: Callable[..., Any] = function

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            return self._recreate_cm()._driven(generate(*args, **kwargs))

        return cast(F, call)

    def _driven(self, generator: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        step: Callable[[Any], Any] = generator.send
        given: Any = None
        while True:
            try:
                with self:
                    value = step(given)
            except StopIteration as end:
                return end.value
            try:
                step, given = generator.send, (yield value)
            except GeneratorExit:
                with self:
                    generator.close()
                raise
            except BaseException as error:
                step, given = generator.throw, error

    def _recreate_cm(self) -> recording:
        return recording(self._mode)


def under(mode: int, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
    """Call a function in a mode and return its result. The mode is restored even after an interrupt, whereas one at the
    very end of a `with` block could prevent that.
    """
    before = _mode.get()
    try:
        _mode.set(mode)
        return function(*args, **kwargs)
    finally:
        _mode.set(before)


def mode() -> int:
    """Return the mode of recording for gradients that is in force here."""
    return _mode.get()


def is_recording() -> bool:
    """Return whether calls are recorded for gradients here."""
    return _mode.get() != OFF


def is_keeping() -> bool:
    """Return whether the values that rules will ask for are kept as well."""
    return _mode.get() == FULL


# ---- kept values


class Saved:
    """A value that rules will ask for: a pending Node, or a blob, which is copied before it is overwritten."""

    __slots__ = ("__weakref__", "small", "value")

    blob = None  # an owner's Reader without a blob always waits

    def __init__(self, value: Node | TBlob) -> None:
        self.value = value
        self.small: Tensor | None = None  # a constant tensor over small bytes, for all rules that ask for it
        value.saver = ref(self)
        if type(value) is TBlob and value._owner is not None:  # else the owner will be made with a guard
            self._keep(value)

    def hold(self, blob: TBlob) -> None:
        """Replace a pending node, or a blob, by a blob."""
        self.value, self.small = blob, None
        blob.saver = ref(self)
        if blob._owner is not None:
            self._keep(blob)

    def _keep(self, blob: TBlob) -> None:
        """Ensure that a blob is copied before it is overwritten: now, if others could write to it unnoticed."""
        owner = blob.owner
        if owner.is_exposed():
            self.protect()
        else:
            owner.saved_by(blob.saver)  # type: ignore[arg-type]
            if owner.is_exposed():  # meanwhile
                self.protect()

    def constant(self) -> Tensor:
        """Return a small blob as a constant tensor that takes the shortcuts of small operands, and cache that."""
        blob: Any = self.value
        native = blob._native
        x = self.small = Tensor()
        x._content, x._blob, x._owner, x._step = native, blob, None, None
        return x

    def protect(self) -> None:
        """Move to a copy: the memory is about to be written."""
        blob = self.value
        assert type(blob) is TBlob
        blob.saver = None
        self.hold(_copied(blob))


def _copied(blob: TBlob) -> TBlob:
    """Return a copy of a blob, made as a step if a function is being captured."""
    if watchers and watching() is not None:
        with recording(OFF):
            copied: Tensor = xt.astype(face(blob), blob.dtype)
        return copied.blob
    return TBlob.adopt(blob.device.backend.call(blob.native().copy), blob.device)


class Kept:
    """A saved value and the step of its tensor."""

    __slots__ = ("saved", "step")

    def __init__(self, x: Tensor, step: Step | None) -> None:
        self.step = step
        value: Any = x._content
        if type(value) is not TBlob and (type(value) is not Node or value.blob is not None):
            value = x.blob
        saved = None if value.saver is None else value.saver()
        self.saved = Saved(value) if saved is None else saved

    @property
    def like(self) -> Like:
        value = self.saved.value
        return Like(value.shape, value.dtype, value.device)

    def tensor(self, step: Step | None) -> Tensor:
        """Return the value as a tensor, with a step if the way back is itself recorded."""
        saved = self.saved
        value = saved.value
        if step is None or not _mode.get():
            if saved.small is not None:
                return saved.small
            step = None
            if type(value) is TBlob and _is_small(value):
                return saved.constant()
        if type(value) is Node:
            if value.blob is None:
                holder = value.face() if value.face is not None else None
                if holder is not None and holder._content is value and (step is None or holder._step is step):
                    return cast(Tensor, holder)
            else:
                value = value.blob
        x = face(value)
        x._step = step
        return x


def _is_small(blob: TBlob) -> bool:
    """Return whether calling the library on a blob at once is cheaper than recording."""
    native = blob._native
    return type(native) is np.ndarray and native.nbytes <= DIRECT_BELOW


# ---- steps

# The condition for a way back along a tape, in the words of errors.
UNUSED = "still have its graph (backward(retain_graph=True) keeps it for a second time)"


class Several(tuple[Any, ...]):
    """The kept values of a sequence."""

    __slots__ = ()


class Step:
    """One call on the tape.

    serial: its number in the order of creation; operands' steps have lower ones.
    parents: the steps of the operands, those without one left out; `slots` says which argument each stands for,
        and its place in that argument where it is a sequence.
    given: by name, the values that the rule will ask for; None once the tape was used up.
    shape, dtype, device: of the result.
    within: for a view, the layout of its base, or a function that computes that from the view's.
    seen: if it was made because its memory was written: the History's key, and the number of writes that it includes.
    """

    __slots__ = ("device", "dtype", "given", "parents", "rule", "seen", "serial", "shape", "slots", "within")

    def __init__(self, rule: Rule | None, parents: tuple[Step, ...], result: Tensor | Like, slots: Slots = ()) -> None:
        self.serial = next(_serial)
        self.rule = rule
        self.parents = parents
        self.slots = slots
        self.given: dict[str, Any] | None = {}
        if type(result) is Tensor:  # without calling its properties
            data: Any = result._content
            self.shape, self.dtype = data.shape, data.dtype
            self.device = data.device if type(data) is TBlob else result.device
        else:
            self.shape, self.dtype, self.device = result.shape, result.dtype, result.device
        self.within: Layout | Callable[[Layout], Layout | None] | None = None
        self.seen: tuple[int, int] | None = None

    def __repr__(self) -> str:
        name = "leaf" if self.rule is None else self.rule.name
        return f"Step({name}, shape={self.shape}, dtype={self.dtype})"

    @property
    def like(self) -> Like:
        return Like(self.shape, self.dtype, self.device)

    def pulled(self, g: Any, useful: Collection[Step]) -> Iterator[tuple[Step, Tensor]]:
        """Yield useful parents with their contributions from the result's cotangent, each as it is computed."""
        rule, given = self.rule, self.given
        if given is None:
            raise RuntimeError(expected("backward", "the result", UNUSED, f"one of {rule and rule.name} already used"))
        assert rule is not None
        full = self.shape if rule.elementwise else None
        if type(g) is dict:  # one cotangent for each of several results that has one
            g = tuple([g.get(place) for place in range(given["results"])])
        elif full is None and g.shape != self.shape and (g.shape or not rule.reduction):
            g = xt.broadcast_to(g, self.shape)
        values: dict[str, Any] = {"g": g}
        done: dict[str, Any] = {}
        pulls = rule.pulls
        for (name, place), parent in zip(self.slots, self.parents, strict=True):
            if parent not in useful:
                continue
            pull = pulls.get(name)
            if pull is None:
                raise NotImplementedError(f"{rule.name}: no derivative with respect to {name} is known")
            if place is None:
                found = self._pull(pull, values, parent)
            else:
                if name not in done:
                    done[name] = self._pull(pull, values, given[f"like {name}"])
                found = done[name][place]
            if found is not None:
                if found.dtype is not parent.dtype or (full is not None and full != parent.shape):
                    found = fit(found, parent.dtype, parent.shape, full)
                yield parent, found

    def _pull(self, pull: Pull, values: dict[str, Any], like: Any) -> Any:
        """Apply a rule; `like` is the parent step, or the Likes of all members of a sequence."""
        function, takes, asks, slope, likes = pull
        if not takes:
            return times(values["g"], function)
        for name in asks:
            if name not in values:
                values[name] = self._restored(name)
        if likes:
            values["like"] = like.like if isinstance(like, Step) else like
        found = function(*map(values.__getitem__, takes))
        return times(values["g"], found) if slope else found

    def _restored(self, name: str) -> Any:
        assert self.given is not None
        kept = self.given[name]
        if type(kept) is Kept:
            return kept.tensor(self if name == "y" else kept.step)
        if name == "y" and type(kept) is Several:  # a step must not hold its results, whose steps hold it
            return tuple([one.tensor(Output(self, place, one.like)) for place, one in enumerate(kept)])
        if type(kept) is Several:
            return tuple([one.tensor(one.step) if type(one) is Kept else one for one in kept])
        return kept


class Leaf(Step):
    """The beginning of a tape, where a gradient is wanted.

    asked: whether the user asked for it, so that the tensor must not be written while recording.
    over: whether it belongs to a transform that is done with it: nobody will ask for its gradient again.
    """

    __slots__ = ("asked", "grad", "over")

    def __init__(self, x: Tensor, *, asked: bool = True) -> None:
        super().__init__(None, (), x)
        self.grad: Tensor | None = None
        self.asked = asked
        self.over = False


class Output(Step):
    """One of several results of a call, whose own step is the only parent."""

    __slots__ = ("place",)

    def __init__(self, call: Step, place: int, result: Tensor | Like) -> None:
        super().__init__(None, (call,), result)
        self.place = place


class Deferred(Step):
    """A call that was not recorded in full: its steps are made when the way back comes to it.

    again: takes cotangents of results by their places, records the call, and returns its last steps with cotangents.
    """

    __slots__ = ("again",)

    def __init__(self, again: Callable[[dict[int, Tensor]], Any], parents: tuple[Step, ...], result: Tensor) -> None:
        super().__init__(None, parents, result)
        self.again: Callable[[dict[int, Tensor]], Any] | None = again

    def ends(self, cotangents: dict[int, Tensor], *, free: bool) -> list[tuple[Step, Tensor]]:
        """Return the last steps of the call with their cotangents; raises RuntimeError on a tape that was used up."""
        again = self.again
        if again is None:
            raise RuntimeError(expected("backward", "the result", UNUSED, "one of a checkpoint already used"))
        if free:
            self.again = None
        return list(again(cotangents))


# ---- recording


def begin(x: Tensor, *, asked: bool = True) -> Leaf:
    """Make a tensor a leaf and return its step."""
    active[0] = True
    leaf = Leaf(x, asked=asked)
    carry(x, leaf)
    return leaf


def carry(x: Tensor, step: Step) -> None:
    """Give a tensor its step; one that carries a step takes no shortcut of small operands."""
    if type(x._content) not in (TBlob, Node):
        x.settle()
    x._step = step


def step_of(x: Tensor) -> Step | None:
    """Return a tensor's step, as of the last write to its memory; None for a constant."""
    data = x._content
    if type(data) is np.ndarray:
        owner = x._owner or (None if x._blob is None else x._blob._owner)
    else:
        blob = data if type(data) is TBlob else data.blob
        owner = None if blob is None or blob.constant else blob._owner
    history = None if owner is None else owner.history
    if history is not None:
        found: Step | None = history.step_of(x)
        return found
    return x._step  # type: ignore[no-any-return]


def steps_of(operands: Sequence[Any]) -> list[Step | None] | None:
    """Return the steps of operands; None if none has one, or nothing is recorded here."""
    found: list[Step | None] = []
    tracked = False
    for x in operands:
        step = None if type(x) is not Tensor else step_of(x) if histories[0] else x._step
        if step is not None:
            tracked = True
        found.append(step)
    if thin_closed[0] and settings().gradients == "always" and _mode.get():
        found = [_begun(x) if step is None else step for x, step in zip(operands, found, strict=True)]
        tracked = any(step is not None for step in found)
    return found if tracked and _mode.get() else None


def stacked_operand(x: Any) -> Any:
    """Return an operand; nested sequences with tensors that have a gradient as a stack, so that it has one, too."""
    if active[0] and isinstance(x, (list, tuple)):
        stack = xt.calls.sequences.stacked(x)
        return x if stack is None else stack
    return x


def _begun(x: Any) -> Step | None:
    """Return a new leaf for an operand whose gradient nobody asked for, where every call is to be recorded."""
    return begin(x, asked=False) if type(x) is Tensor and x.dtype.kind in "fc" else None


def remember(rule: Rule | None, slots: Slots, steps: Sequence[Step | None], result: Tensor) -> Step | None:
    """Record one call on the tape; return its step, None for a result that cannot have a gradient.

    `keep` adds the values that the rule asks for.
    """
    if result.dtype.kind not in "fc":
        return None
    if None in steps:
        slots, steps = _without_constants(slots, steps)
    step = Step(rule, tuple(steps), result, slots)  # type: ignore[arg-type]
    if type(result._content) is TBlob:
        result._step = step
    else:
        carry(result, step)
    return step


def _without_constants(slots: Sequence[Any], steps: Sequence[Step | None]) -> tuple[tuple[Any, ...], list[Step | None]]:
    """Return the slots that have a step, and those steps."""
    return tuple(compress(slots, steps)), list(filter(None, steps))


def remember_elementwise(
    rule: Rule, slots: Slots, operands: Sequence[Any], steps: Sequence[Any], result: Tensor
) -> None:
    """Record an elementwise call on the tape."""
    step = remember(rule, slots, steps, result)
    if step is None or _mode.get() == BARE:
        return
    given = step.given
    assert given is not None
    for wanted, place in rule.asked(step.slots):
        if place is None:
            given[wanted] = Kept(result, None)
        else:
            x = operands[place]
            given[wanted] = Kept(x, steps[place]) if type(x) is Tensor else _kept(x)


_NUMBERS = frozenset((int, float, bool, complex))


def _has_no_steps(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether a quick look shows that no argument has a gradient: the commonest case."""
    if histories[0] or thin_closed[0]:
        return False
    for x in (*args, *kwargs.values()) if kwargs else args:
        if type(x) is Tensor:
            if x._step is not None:
                return False
        elif isinstance(x, (list, tuple)):
            for one in x:
                if one._step is not None if type(one) is Tensor else type(one) not in _NUMBERS:
                    return False
    return True


def differentiable(
    *, view: bool = False, of_value: str = "value", elementwise: bool = False, **pulls: Any
) -> Callable[[F], F]:
    """Declare the derivative of a function that is declared neither as elementwise nor as a reduction (calls/rows.py).

    Each keyword names an argument (a tensor, or a sequence of them) and says how its cotangent is computed; see Pull.
    view: whether the result may share the argument's memory. of_value: what a view of a value without axes is: another
    value, an array, or, if it is read-only, one that shares its memory. elementwise: whether arguments broadcast.
    """

    def decorate(function: F) -> F:
        taken = {name: pull_of(pull) for name, pull in pulls.items()}
        has_own_views = view and of_value != "shared"
        rule = Rule(function.__name__, taken, elementwise=elementwise, view=view)
        RULES[rule.name] = rule

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if has_own_views and args:
                x = args[0]
                if type(x) is Tensor and (type(x._content) is not np.ndarray or not x._content.ndim) and is_value(x):
                    return _seen_apart(call, of_value == "value", *args, **kwargs)
            if not active[0] or not _mode.get() or _has_no_steps(args, kwargs):
                return function(*args, **kwargs)
            names, first, several, defaults, sequences = _signature(function)
            if not SEQUENCES.isdisjoint(map(type, (*args, *kwargs.values()))):
                every = [*names[:first], *[several] * (len(args) - (len(names) if first is None else first))]
                ours = {name: name in sequences for name in rule.pulls}
                args = tuple([_stacked(x, ours.get(name)) for name, x in zip(every, args, strict=False)])
                kwargs = {name: _stacked(x, ours.get(name)) for name, x in kwargs.items()}
            arguments = {**defaults, **dict(zip(names[:first], args, strict=False)), **kwargs}
            if first is not None:
                arguments[several] = args[first:]
            slots = list(_slots(rule, arguments))
            steps = steps_of([x for _, x in slots])
            if steps is None:
                return function(*args, **kwargs)
            result = under(OFF, function, *args, **kwargs)
            _remember_call(rule, arguments, slots, steps, result)
            return result

        call.rule = rule  # type: ignore[attr-defined]
        return cast(F, call)

    return decorate


def _seen_apart(view: Callable[..., Any], stays_value: bool, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Return a view of a value's copy, as nobody sees a value change. stays_value: whether, without axes, it is one."""
    native = None if thin_closed[0] or x._step is not None else x.thin()
    whole = marked(xt.standard.methods.copied(x, "C"), False) if native is None else wrap(native.copy(), CPU_DEVICE)
    found = view(whole, *args, **kwargs)
    return marked(found, True) if stays_value else found


@cache  # and not computed by the decorator, which would take a tenth of the import
def _signature(function: Callable[..., Any]) -> tuple[list[str], int | None, str, dict[str, Any], frozenset[str]]:
    """Return a function's parameters, the index and name of the variadic one, the defaults, and the parameters that are
    sequences of operands, whose annotations begin with Sequence or tuple, as in `concat` and `stack`.
    """
    parameters = list(inspect.signature(function).parameters.values())
    first, several = next(((n, p.name) for n, p in enumerate(parameters) if p.kind is p.VAR_POSITIONAL), (None, ""))
    return (
        [p.name for p in parameters],
        first,
        several,
        {p.name: p.default for p in parameters if p.default is not p.empty},
        frozenset([p.name for p in parameters if str(p.annotation).startswith(("Sequence", "tuple"))]),
    )


SEQUENCES = frozenset((list, tuple))


def _stacked(x: Any, several: bool | None) -> Any:
    """Return an argument with nested sequences that have a gradient turned into stacks. several: whether it is a
    sequence of operands, None where no gradient goes to it.
    """
    if several is None or type(x) not in SEQUENCES:
        return x
    return type(x)(map(stacked_operand, x)) if several else stacked_operand(x)


def _slots(rule: Rule, arguments: dict[str, Any]) -> Iterator[tuple[tuple[str, int | None], Any]]:
    """Yield the slots of a call in which a tensor may be, with the values there."""
    for name in rule.pulls:
        value = arguments.get(name)
        if isinstance(value, (list, tuple)):
            for place, one in enumerate(value):
                yield (name, place), one
        else:
            yield (name, None), value


def _remember_call(rule: Rule, arguments: dict[str, Any], slots: Any, steps: Any, result: Any) -> None:
    """Record a call on the tape, with the values that its rule asks for."""
    if any(result is x for _, x in slots):
        return  # the function gave back its argument
    places = tuple([slot for slot, _ in slots])
    if type(result) is Tensor:
        step = remember(rule, places, steps, result)
        if step is None:
            return
        if rule.view:
            _note_view(step, slots[0][1], result)
    else:
        if not any(one.dtype.kind in "fc" for one in result):
            return
        places, steps = _without_constants(places, steps)
        step = Step(rule, tuple(steps), result[0], places)
        for place, one in enumerate(result):
            if one.dtype.kind in "fc":
                carry(one, Output(step, place, one))
                if rule.view:
                    _note_view(step, slots[0][1], one)
                    _note_view(one._step, slots[0][1], one)
    if _mode.get() == FULL:
        keep(step, rule, arguments, result)


def keep(step: Step, rule: Rule, arguments: dict[str, Any], result: Any) -> None:
    """Keep the values that a rule will ask for."""
    given = step.given
    assert given is not None
    if type(result) is not Tensor:
        given["results"] = len(result)
    tracked = {name for name, _ in step.slots}
    for name in {wanted for one in tracked for wanted in rule.pulls[one].takes} - {"g", "like"}:
        given[name] = _kept(result if name == "y" else arguments[name], constant=name == "y")
    for name in tracked:
        if isinstance(arguments[name], (list, tuple)):
            given[f"like {name}"] = tuple(_like(one) for one in arguments[name])


def _note_view(step: Step, x: Tensor, result: Tensor) -> None:
    """Note where a result lies in the memory of its base, if it is a view."""
    value: Any = result._content
    if type(value) is Node and value.blob is None and type(value.op) is View and value.op.can_go_back:
        step.within = partial(value.op.back, **value.params, shape=x.shape, itemsize=x.itemsize)
    elif (type(value) is not Node or type(value.op) is View or value.blob is not None) and result.owner is x.owner:
        step.within = x.blob.layout


def _kept(value: Any, *, constant: bool = False) -> Any:
    if type(value) is Tensor:
        return Kept(value, None if constant else step_of(value))
    if isinstance(value, (list, tuple)):
        if any(type(one) is Tensor for one in value):
            return Several(_kept(one, constant=constant) for one in value)
        return type(value)(value) if type(value) is list else value
    return Kept(xt.asarray(value, copy=True), None) if isinstance(value, (np.ndarray, np.generic)) else value


def _like(x: Any) -> Like:
    x = xt.asarray(x)
    return Like(x.shape, x.dtype, x.device)

"""fuse: a function of tensors that is captured, so that later calls only run the steps that it took.

The first call with arguments of a kind runs the function and is watched: every step that it computes is recorded in
order (run/capture.py). Later calls whose arguments have the same layouts and overlaps run these steps as one schedule
(run/captured.py). A call that cannot be captured is a plain call of the function, and `why` gives the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial, update_wrapper
from time import perf_counter
from types import MethodType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast

from ..autograd.tape import now
from ..base.errors import expected
from ..base.locks import fork_safe_lock
from ..base.naming import pickled_name
from ..base.options import Settings, settings
from ..graph.node import Part
from ..graph.number import KINDS, MOST_VALUES, Number, value_of
from ..plan.costs import CAPTURING, COMPARED, EXCHANGED_AFTER, FIRST_STEPS
from ..run import executor as run
from ..storage.blob import TBlob
from ..storage.storage import watchers, watching
from ..tensor.face import Tensor, evaluate, small
from ..tensor.scalars import is_value
from ..tensor.trees import flatten, rebuilt
from .dispatch import DISPATCHED_AFTER, REMEMBERED, Call, Kinds, made_thin
from .given import Shared, holds_arrays
from .known import OTHERWISE, Known, asks_for_plain_calls
from .leaves import Spent, spent_of, ways_of
from .numbers import (
    MOST_MASKS,
    MOST_WAYS,
    TELLING,
    Numbers,
    Traced,
    differing,
    masked,
    others_placed,
    placed,
    settle_keys,
)
from .reach import Reach, constant_of
from .rebound import Contents, counts
from .record import record_part
from .returned import Returned, ReturnedNumbers
from .signature import signature_of
from .thin import Dispatched, exchange
from .watch import Watch

if TYPE_CHECKING:
    from ..run.capture import Capture
    from ..run.captured import Captured
    from ..run.sketch import Sketch

# Held while the kinds that machine code knows, of any function, are changed.
_telling = fork_safe_lock()

P = ParamSpec("P")
R = TypeVar("R")

# How many first calls are not watched after a kind that was forgotten had been captured in vain, or after IN_A_ROW new
# kinds in a row. They double with each further kind in vain, and with each IN_A_ROW more new kinds, up to the third
# number. A kind was captured in vain if it was used fewer times than the last number: capturing it took a millisecond
# or two, and each use saves some 20 us.
UNWATCHED, IN_A_ROW, MOST_UNWATCHED, USES_THAT_PAY = 15, 8, 15 << 10, 64

# How many calls with small arguments are made plainly, without a look-up, after library calls cost less for a kind that
# came twice in a row, or it cannot be captured, or is not watched; and calls with any arguments after two refusals in a
# row for the same reason.
NOT_LOOKED_UP = 15

# Why a call is a plain one; run/capture.py has the reasons that follow from what the function does.
NEW = "[new] no call with such arguments has been captured, or it was forgotten"
MANY_WAYS = "[values] it branches on values, and calls have taken more ways than are remembered"
RETURNS = (
    "[returns] it returns, or puts somewhere, something else than tensors and constants, in tuples, lists, dicts or "
    "dataclasses"
)
KEEPS = "[keeps] it keeps a tensor that it computed where no later call can put one, and does not return it"
NUMBER = "[changing] a number whose value it asks for, or that is not told to it, makes a kind of its own"
COUNTS = "[changing] it changes a number or text that it reads: each call is one of another kind"
LATE = (
    "[late] a step may fail, or a boolean differ, after so much is written that it cannot be put back, which what is "
    "bound anew, or another branch, would need"
)
REQUIRES = (
    "[gradient] a result has a gradient (fuse the function that computes that, by backward(), xt.value_and_grad or "
    "xt.grad, or return a constant, by detach())"
)
TRACKED = "[gradient] a tensor that it was given, or finds, has a gradient afterwards, or has none any more"
INSIDE = "[inside] another function is being captured, which calls this one"
NOTHING = "[nothing] it computes nothing"


def fuse(function: Callable[P, R], /, *, strict: bool = False) -> Fused[P, R]:
    """Return a function that does what `function` does, and whose later calls do not run the function's Python.

    function: takes tensors, Python scalars, strings, other constants, and lists, tuples and dicts of these. It may
    write to its arguments and to other tensors, and return tensors and constants in tuples, lists, dicts or
    dataclasses, nested in any way. The first call with arguments of certain dtypes, shapes, strides, overlaps and
    constants runs it and records every step; the second prepares a schedule of these steps; later calls run the
    schedule. A call that branches otherwise, on a value that it computes, is recorded in the same way. Where the
    schedule could differ from a plain call, and for small arrays, where library calls cost less, the function is simply
    called. The method `why` of the returned function gives the reason.
    strict: whether a call that cannot be captured raises an error with that reason instead.

    NumPy arrays among the arguments, and in lists, tuples and dicts of these, are passed to the function as tensors
    that share their memory, so that it can be captured; while it runs, lists and dicts hold these tensors. Tensors and
    constants that the function finds by name - globals, closures, attributes of these - are looked up again at each
    call; NumPy arrays among them are constants as long as their contents do not change. Other effects, such as
    printing, happen only in calls that run the function itself.
    Memory that an argument shares with a NumPy array is read when the call ends: the function itself must not write to
    it through that array.

    Raises TypeError if `function` is not callable. Calls raise what the function raises, and RuntimeError if `strict`.

    >>> @xt.fuse
    ... def gelu(x):
    ...     return 0.5 * x * (1.0 + xt.tanh(0.7978845608 * (x + 0.044715 * x**3)))

    Source: cupy.fuse, jax.jit.
    """
    if not callable(function):
        raise TypeError(expected("fuse", "function", "be callable", type(function).__name__))
    return Fused(function, strict=strict)


class Fused(Dispatched, Generic[P, R]):
    """A function made by `fuse`. It is called like the original, and works as a method; `why` explains a call.

    steps: the most steps of a first call that are recorded.
    """

    def __init__(self, function: Callable[P, R], *, strict: bool = False, steps: int = FIRST_STEPS) -> None:
        update_wrapper(self, function)
        self._function: Callable[..., R] = function
        self._strict = strict
        self._reach: Reach | None = None
        self._known: dict[tuple[Any, ...], Known] = {}
        self._uses = self._unwatched = self._not_looked_up = self._new_in_a_row = self._answered = self._of_values = 0
        self._in_vain = 0
        self._steps, self._seconds = steps, 0.0
        self._last: Known | None = None
        self._plain: Settings | None = None
        self._new, self._refused = NEW, ""
        self._masks: list[tuple[int, ...]] = []
        self._shares = self._indexes = False
        self._fixed: set[int] = set()
        self.dispatched, self._dispatched_kinds = None, Kinds()

    def __repr__(self) -> str:
        return f"fuse({getattr(self._function, '__qualname__', repr(self._function))})"

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __reduce__(self) -> Any:
        return pickled_name(self) or (partial(fuse, strict=self._strict), (self._function,))

    def __deepcopy__(self, memo: dict[int, Any]) -> Fused[P, R]:
        from copy import deepcopy  # which is the caller

        function = deepcopy(self._function, memo)  # a method is bound to the copied object
        return self if function is self._function else Fused(function, strict=self._strict, steps=self._steps)

    if TYPE_CHECKING:

        def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    def _answer(self, /, *args: Any, **kwargs: Any) -> Any:
        if self.dispatched is not None and made_thin(args):
            return cast(Any, self)(*args, **kwargs)
        if self._not_looked_up and not kwargs and self._plain is settings():
            for x in args:
                if type(x) is Tensor:
                    if not self._refused and small(x) is None:
                        break
                elif holds_arrays(x):
                    break
            else:
                self._not_looked_up -= 1
                self._unwatched -= 1
                return self._function(*args)
        if self._shares or (watchers and watching() is not None):
            shared = Shared.of(args, kwargs)
            if shared is not None:
                with shared:
                    return self._call(shared.args, shared.kwargs)
        return self._call(args, kwargs)

    def _call(self, args: Any, kwargs: Any) -> R:
        """Call with arguments that contain no NumPy arrays, as far as these can be found."""
        if watchers and watching() is not None:
            return self._function(*args, **kwargs)
        found = signature_of(args, kwargs, self._reach or self._reached())
        if type(found) is str:
            if not self._shares and Shared.of(args, kwargs) is not None:
                self._shares = True
                return cast(R, self._answer(*args, **kwargs))
            self._not_looked_up = NOT_LOOKED_UP * (found == self._refused and not self._strict)
            self._plain, self._refused = settings(), found
            return self._call_plainly(found, args, kwargs)
        self._refused = ""
        signature, tensors, blobs, arrays, holders, numbers = found
        if self.dispatched is not None and self._reach is not None:
            self._set_dispatched(self._reach)
        for known, cells, mask in self._ways(signature, numbers):
            known.used = self._uses = self._uses + 1
            known.uses += 1
            results = known.results(blobs, cells)
            if results is OTHERWISE:
                continue
            self._new_in_a_row = 0
            if results is None:
                return self._call_itself(known, args, kwargs)
            if known.is_to_be_told() and not arrays:  # before anything is bound anew
                self._dispatch(known, blobs, Call(signature, tuple(args), kwargs, tensors, holders, numbers, mask))
            return cast(R, known.rebuild(results, tensors, holders, cells))
        return self._first_call(found, args, kwargs)

    def _call_itself(self, known: Known, args: Any, kwargs: Any) -> R:
        """Call the function itself, as a known kind does not run its schedule."""
        if known.is_long:
            return self._call_long(known, args, kwargs)
        raises = self._strict and known.reason
        self._not_looked_up = NOT_LOOKED_UP * (known is self._last and not raises)
        self._plain, self._last = known.plain, known
        return self._call_plainly(known.reason, args, kwargs)

    def _dispatch(self, known: Known, blobs: list[TBlob], call: Call) -> None:
        """Register a kind that has come often with machine code, if that code can recognise and run it."""
        if self._reach is None or settings().takes_no_shortcut:
            return
        if known.calls >= EXCHANGED_AFTER or (known.captured is not None and known.captured.is_small):
            exchange()
        made_thin(call.tensors)
        before, kind = tuple(known.kinds), known.told(blobs, call, self._reach)
        if kind is not None:
            first = self._known.get(masked(call.signature, call.mask))
            ways = [] if first is None else [way for way in first.ways() if way is not known]
            ahead = [one for way in ways for one in way.kinds]
            with _telling:
                self._dispatched_kinds.add(kind, before, ahead, self._reach)
                self._set_dispatched(self._reach)
                known.let_go(self._dispatched_kinds)  # last: other threads may still be reading the dropped kinds
        elif known.captured is not None and known.uses > 2 * DISPATCHED_AFTER:
            known.captured.pays_dispatched, known.runs = False, None

    def _ways(
        self, signature: tuple[Any, ...], numbers: Numbers
    ) -> Iterator[tuple[Known, Sequence[Any], tuple[int, ...]]]:
        """Yield the known kinds that a call may be of, in the order in which they are to be tried: each with the cells
        computed from the numbers that are its inputs, and with their places in the signature.
        """
        known = self._known.get(signature)
        if known is not None:
            for way in known.ways():
                yield way, way.again.cells, ()
        for mask in self._masks if known is None or known.branches else ():
            known = self._known.get(masked(signature, mask)) if mask[-1] < len(signature) else None
            values = [] if known is None else [one[1] for one in numbers if one[0] in mask]
            for way in () if known is None else known.ways():
                cells = way.again.of(values)
                if cells is not None:
                    yield way, cells, mask

    def _reached(self) -> Reach:
        """Return the reach of the function, made at its first call, when everything that it mentions exists."""
        self._reach = reach = Reach(self._function)
        return reach

    def why(self, /, *args: P.args, **kwargs: P.kwargs) -> str:
        """Return why the next call with such arguments will run the function itself; "" if it will run a schedule."""
        if watching() is not None:
            return INSIDE
        shared = Shared.of(args, kwargs)
        if shared is None:
            return self._why(args, kwargs)
        with shared:
            return self._why(shared.args, shared.kwargs)

    def _why(self, args: Any, kwargs: Any) -> str:
        found = signature_of(args, kwargs, self._reach or self._reached())
        if type(found) is str:
            return found
        signature, numbers = found[0], found[5]
        known = next((known for known, _, _ in self._ways(signature, numbers)), None)
        if known is None and self._known and not args and not kwargs:
            return f"{NEW}; why(...) takes the arguments of the call that is asked about"
        return self._why_new(signature, numbers) if known is None else known.why()

    def _why_new(self, signature: tuple[Any, ...], numbers: Numbers) -> str:
        """Return why a kind is new; it may differ from a known kind only in Python numbers."""
        told = {one[0] for order, one in enumerate(numbers) if order not in self._fixed}
        for other in reversed(list(self._known)) if self._new is NEW else ():
            pairs = [] if len(other) != len(signature) else list(zip(other, signature, strict=True))
            places = [place for place, (old, new) in enumerate(pairs) if old is not new and old != new]
            if places and not told.issuperset(places) and all(signature[place - 1] in KINDS for place in places):
                old, new = pairs[places[0]]
                return f"{NUMBER}, as {new!r} now and {old!r} before; one in a tensor without axes does not"
        return self._new

    def explained(self) -> str:
        """Return a text about each known kind of arguments: why its calls are plain, or the schedule that they run."""
        lines = [f"{self!r}: {len(self._known)} kind{'s' * (len(self._known) != 1)} of arguments"]
        for title, captured in self._kinds():
            lines += [title, *(() if captured is None else captured.lines())]
        return "\n".join(lines)

    def sketches(self) -> list[Sketch]:
        """Return the schedule of each known kind of arguments, drawn as a column of its instructions."""
        from ..run.sketch import column_of  # loaded only when it is wanted

        return [column_of([repr(self), title], () if one is None else one.words()) for title, one in self._kinds()]

    def _kinds(self) -> list[tuple[str, Captured | None]]:
        """Return a title for each known kind of arguments, with what was captured of it."""
        known = enumerate([way for one in list(self._known.values()) for way in one.ways()], 1)
        return [(f"kind {n}, used {one.calls} times: {one.why() or 'captured'}", one.captured) for n, one in known]

    def _call_plainly(self, reason: str, args: Any, kwargs: Any) -> R:
        """Call the function itself for the given reason; raises RuntimeError with that reason if `strict`."""
        if self._strict and reason:
            name = getattr(self._function, "__qualname__", repr(self._function))
            raise RuntimeError(expected("fuse", f"{name}, which is strict,", "be captured", reason))
        return self._function(*args, **kwargs)

    def _call_long(self, known: Known, args: Any, kwargs: Any) -> R:
        """Call the function itself, which has more steps than were recorded. Once such calls have taken as long as
        capturing so many steps did, forget that it was too long, and record four times as many.
        """
        begin = perf_counter()
        result = self._function(*args, **kwargs)
        self._seconds += perf_counter() - begin
        if self._seconds > self._steps * CAPTURING:
            self._steps = max(4 * self._steps, int(self._seconds / CAPTURING))
            for key in [key for key, one in list(self._known.items()) if one is known]:
                self._known.pop(key, None)
        return result

    def _first_call(self, found: tuple[Any, ...], args: Any, kwargs: Any) -> R:
        """Call the function while watching it, and remember what it does, or why that cannot be captured.

        found: what signature_of has returned.
        """
        self._unwatched -= 1
        if (self._unwatched >= 0 and not self._strict) or asks_for_plain_calls(settings()):
            self._plain, self._not_looked_up = settings(), max(min(self._unwatched, NOT_LOOKED_UP), 0)
            return self._function(*args, **kwargs)
        for other, known in reversed(list(self._known.items())) if found[5] else ():
            if known.is_long and differing(found[0], other, found[5]):
                return self._call_long(known, args, kwargs)
        from ..run.capture import DISTURBED  # loaded late, as it imports the engines

        traced = self._traced(found, args, kwargs)
        given = (args, kwargs) if traced is None else (traced.args, traced.kwargs)
        with nullcontext() if traced is None else traced:
            before = placed[0]
            if others_placed(traced):
                return self._function(*args, **kwargs)
            watched = self._watched(found, given[0], given[1], traced)
            disturbed = placed[0] != before  # another thread's Number may have been read
        made_thin(found[1])
        is_lost = traced is not None and watched is not None and self._keeps_constant(traced, watched[2])
        if traced is None or watched is None or is_lost:
            signature = found[0]
        else:
            signature = self._told_by(traced, found, watched[2])
        if watched is None:  # it fails when traced, perhaps in any case
            return self._function(*args, **kwargs)
        result, done, known = watched
        if traced is not None:
            result = done.settled(result, found[4])
        is_refused = self._strict and known.is_one_way  # an error now, but no reason to refuse calls that go other ways
        if known.reason != DISTURBED and not (disturbed or is_lost or is_refused):
            self._remember(signature, known)
        if counts(done.left, {one[2:] for order, one in enumerate(found[5]) if order not in self._fixed}):
            self._note_counter(() if traced is None else traced.chosen)
        if self._strict and known.reason:
            raise RuntimeError(expected("fuse", f"{self!r}, which is strict,", "be captured", known.reason))
        return cast(R, result)

    def _watched(
        self, found: tuple[Any, ...], args: Any, kwargs: Any, traced: Traced | None
    ) -> tuple[Any, _Done, Known] | None:
        """Call the function, and return its result, what it did, and the kind to remember; None where it was traced and
        failed, and can be called again.
        """
        from ..run.capture import MOST_STEPS, WRITES, Capture

        _, tensors, _, arrays, holders, _ = found
        run.serve([x.owner for x in tensors])  # pending readers are no steps of this function
        most = MOST_STEPS if self._strict else self._steps
        reach = self._reach or self._reached()
        blobs = [_settled_anew(x) for x in tensors]
        alike = [one.array for one in arrays]
        capture = Capture(blobs, alike, most, deterministic=reach.is_deterministic, handles=reach.handles)
        capture.arithmetic = None if traced is None else traced.arithmetic
        capture.leaves, capture.since = {x._step for x in holders if type(x) is Tensor}, now()
        returned = ReturnedNumbers(capture, self._function, self._watched.__code__)
        capture.hands_out = returned.hand_out
        with Watch(capture) as watch:
            contents = Contents(holders, reach, tensors)
            try:
                result: Any = self._function(*args, **kwargs)
            except Exception:
                if traced is None:
                    raise
                self._fixed.update(traced.chosen)
                if not (traced.undone(capture) and contents.put_back()):
                    raise
                return None
            if not all(one.is_so_still for one in arrays):  # written by NumPy, unobserved
                capture.refuse(WRITES)
            numbered = {id(x): number for number, x in enumerate(holders)}
            if traced is not None:
                settle_keys(result, numbered)
            done = _Done(result, contents, numbered, returned)
            watch.close()
            with run.turn():
                return result, done, _known(done, capture, tensors, alike)

    def _traced(self, found: tuple[Any, ...], args: Any, kwargs: Any) -> Traced | None:
        """Return a trace for a call, if it differs from a captured one only in numbers that may be inputs."""
        signature, tensors, numbers = found[0], found[1], found[5]
        if self._reach is None or not self._reach.names.isdisjoint(TELLING):
            return None
        is_counted = False
        for other, known in reversed(list(self._known.items())) if numbers else ():
            chosen = differing(signature, other, numbers)
            if chosen and known.captured is not None and not (is_counted or self._fixed.isdisjoint(chosen)):
                self._tell_indices(chosen)
                is_counted = True
            if chosen and known.captured is not None and self._fixed.isdisjoint(chosen):
                places = [numbers[order][0] for order in chosen]
                told = [mask for mask in self._masks if not {*mask}.isdisjoint(places)]
                full = [mask for mask in told if self._forget_full(signature, mask)]
                if full:
                    self._fixed.update(chosen)  # constants from now on: each value is a kind of its own
                    return None
                traced = Traced(found, chosen, args, kwargs, indexes=self._indexes)
                return traced if traced.keep([tensors[number] for number in known.captured.written]) else None
        return None

    def _tell_indices(self, chosen: Sequence[int], values: int = 1) -> None:
        """Count kinds that stand for single values of numbers; once there are many, let indices be inputs, too."""
        before, self._of_values = self._of_values, self._of_values + values
        if before < MOST_VALUES <= self._of_values:
            self._indexes = True
            self._fixed.difference_update(chosen)

    def _note_counter(self, chosen: Sequence[int]) -> None:
        """Note that a function changes a number that it reads, so that its calls will see many values."""
        if chosen and self._of_values < MOST_VALUES:
            self._tell_indices(chosen, MOST_VALUES)
        else:
            self._new, self._unwatched = COUNTS, max(self._unwatched, UNWATCHED * self._new_in_a_row)

    def _keeps_constant(self, traced: Traced, known: Known) -> bool:
        """Return whether a call could not be captured because indices are inputs, as it returns a constant selected by
        one: these numbers are constants from now on.
        """
        if not traced.arithmetic.indexes or known.captured is not None:
            return False
        self._indexes = False
        self._fixed.update(traced.chosen)
        return True

    def _forget_values(self, signature: tuple[Any, ...], places: Sequence[int]) -> None:
        """Forget kinds for single values of numbers that are inputs now. signature: without these numbers."""
        every = list(self._known)
        alike = [one for one in every if len(one) == len(signature) and masked(one, places) == signature]
        gone = [self._known.pop(one, None) for one in alike if one != signature]
        self._drop([kind for one in gone if one is not None for kind in one.kinds])

    def _drop(self, kinds: Sequence[Any]) -> None:
        """Remove kinds from those that machine code knows."""
        with _telling:
            self._dispatched_kinds.drop(kinds)
            if self.dispatched is not None:  # its words may be those of a removed kind
                self._set_dispatched(self._reach or self._reached())

    def _set_dispatched(self, reach: Reach) -> None:
        """Set the kind that machine code compares calls with first."""
        with _telling:  # another thread might drop the kind meanwhile, whose words would dangle
            self.dispatched = self._dispatched_kinds.words(reach)

    def _forget_full(self, signature: tuple[Any, ...], mask: tuple[int, ...]) -> bool:
        """Forget the kinds that comparisons of numbers lead to, if there are as many as may be tried; return whether
        they were.
        """
        key = masked(signature, mask) if mask[-1] < len(signature) else ()
        ways = [*self._known[key].ways()] if key in self._known else []
        if len(ways) < MOST_WAYS:
            return False
        self._known.pop(key, None)
        self._drop([kind for one in ways for kind in one.kinds])
        return True

    def _told_by(self, traced: Traced, found: tuple[Any, ...], known: Known) -> tuple[Any, ...]:
        """Return the signature under which a traced call is remembered."""
        known.again = traced.arithmetic.again()
        if known.is_long:  # so it was not fully traced
            return cast(tuple[Any, ...], found[0])
        self._fixed |= traced.asked()
        chosen = [traced.chosen[place] for place in known.again.traced]  # as other threads may change _fixed
        mask = tuple([found[5][order][0] for order in chosen])
        if not mask:
            return cast(tuple[Any, ...], found[0])
        if mask not in self._masks:
            self._masks = [*self._masks, mask][-MOST_MASKS:]
        signature = masked(found[0], mask)
        known.otherwise = self._known.get(signature)
        if self._indexes and known.otherwise is None:
            self._forget_values(signature, mask)
        return signature

    def _is_dispatched(self, known: Known) -> bool:
        """Return whether machine code knows a kind, or one that branches differently."""
        return not all(self._dispatched_kinds.isdisjoint(way.kinds) for way in known.ways())

    def _among_ways(self, signature: tuple[Any, ...], known: Known) -> Known:
        """Return the first kind of a signature, behind which one that branches differently is entered: as the last one
        to be tried, except that one which cannot be captured does not know how it branches. Where there are too many,
        the signature cannot be captured.
        """
        first = self._known.get(signature)
        ways = [] if first is None else [*first.ways()]
        if first is None or not any(way.branches for way in ways):
            return known
        if len(ways) >= MOST_WAYS:
            self._drop([kind for way in ways for kind in way.kinds])
            return Known(None, (), known.build, MANY_WAYS)
        last = ways[-1] if known.captured is None else [way for way in ways if way.captured is not None][-1]
        known.otherwise = last.otherwise
        last.otherwise = known
        return first

    def _remember(self, signature: tuple[Any, ...], known: Known) -> None:
        """Remember a kind of arguments, and forget the one used longest ago if they are too many."""
        known = self._among_ways(signature, known)
        wasted = 0
        if signature not in self._known and len(self._known) >= REMEMBERED:
            others = [item for item in list(self._known.items()) if not self._is_dispatched(item[1])]
            oldest, forgotten = min(others, key=lambda item: item[1].used)
            self._known.pop(oldest, None)
            self._in_vain = self._in_vain + 1 if forgotten.uses < USES_THAT_PAY else 0
            wasted = min(2 ** min(self._in_vain, 16) // 2, MOST_UNWATCHED // UNWATCHED)
        known.used = self._uses = self._uses + 1
        self._known[signature] = known
        answered = self._dispatched_kinds.uses
        self._new_in_a_row = self._new_in_a_row + 1 if answered == self._answered else 1
        self._answered = answered
        doubled = min(2 ** (self._new_in_a_row // IN_A_ROW) // 2, MOST_UNWATCHED // UNWATCHED)
        self._unwatched = UNWATCHED * max(wasted, doubled)


def _settled_anew(x: Tensor) -> TBlob:
    """Give a tensor a new blob for its bytes, with nothing cached in it, and return that: so no value of the tensor can
    be seen without the capture noticing.
    """
    own = x.blob
    blob = TBlob(own.owner, own.dtype, own.layout, own.device, writeable=own.writeable)
    blob.detached, blob.constant, blob._packed = own.detached, own.constant, own._packed
    x._content, x._blob, x._owner = blob, None, None
    return blob


# ---- the effects of a call


class _Done:
    """The effects of a call: the result, and the values that it left elsewhere.

    left: the places of the latter, each with its value. complete: whether these are all changes; is_tracked: whether
    other tensors ask for gradients than before. numbers: of lists, dicts and objects that were given or found, by their
    ids. leaves, build: of the result, followed by the values that were left, if any.
    """

    def __init__(self, result: Any, contents: Contents, numbers: dict[int, int], returned: ReturnedNumbers) -> None:
        self.left, self.complete = contents.changes()
        self.is_tracked = not contents.asks_as_before
        self.numbers = numbers
        tree = (result, [value for _, value in self.left]) if self.left else result
        leaves, self.build = flatten(tree, numbers)
        self.leaves = returned.among(leaves)
        for leaf in self.leaves:
            if type(leaf) is Tensor and type(leaf._content) is Part:
                record_part(leaf)
        evaluate(*self.tensors())

    def tensors(self) -> list[Tensor]:
        """Return the leaves that are tensors."""
        leaves = [leaf.of if type(leaf) is Returned else leaf for leaf in self.leaves]
        return [leaf for leaf in leaves if type(leaf) is Tensor]

    def fault(self, made: Sequence[Tensor], spent: Sequence[Spent]) -> str:
        """Return why later calls cannot repeat these effects, "" if they can. made: result tensors that were not given;
        spent: those of them whose gradients were computed.
        """
        if not self.complete:
            return KEEPS
        if self.is_tracked:
            return TRACKED
        if sum([leaf.requires_grad for leaf in made]) > len(spent):
            return REQUIRES
        kinds = (Tensor, Number, Returned)
        known = [type(x) in kinds or id(x) in self.numbers or constant_of(x) is not None for x in self.leaves]
        return "" if all(known) else RETURNS

    def settled(self, result: Any, holders: list[Any]) -> Any:
        """Return the result of a traced call with plain numbers for Numbers, which are replaced elsewhere, too."""
        if Number not in (*map(type, self.leaves), *[type(left.key) for left, _ in self.left]):
            return result
        tree = rebuilt(self.build, [leaf.value if type(leaf) is Returned else value_of(leaf) for leaf in self.leaves])
        if not self.left:
            return tree
        for left, _ in reversed(self.left):
            if left.is_of_log:
                left._replace(is_there=False).put(holders, None)
        for (left, before), value in zip(self.left, tree[1], strict=True):
            if left.is_of_log or Number in (type(left.key), *map(type, flatten(before)[0])):
                left.put(holders, value)
        return tree[0]


def _known(done: _Done, capture: Capture, tensors: list[Tensor], arrays: list[Any]) -> Known:
    """Return the kind to remember for a captured call. arrays: NumPy arrays whose contents each call compares."""
    from ..run.capture import LONG, WRITES
    from ..run.captured import Captured

    same = {id(x): place for place, x in enumerate(tensors)}
    made = list({id(leaf): leaf for leaf in done.tensors() if id(leaf) not in same}.values())
    spent = spent_of(made, tensors)
    fault = done.fault(made, spent)
    if fault:
        return Known(None, (), done.build, fault)
    blobs = [leaf.blob for leaf in made]
    places = {id(leaf): place for place, leaf in enumerate(made)}
    faults = ((WRITES, capture.wrote_otherwise), (KEEPS, partial(capture.kept_besides, blobs)))
    reason = capture.reason or next((reason for reason, is_so in faults if is_so()), "" if capture.steps else NOTHING)
    looked = len(done.numbers) + len(done.left) + (capture.arithmetic is not None)
    looked += sum([array.nbytes for array in arrays]) // COMPARED
    captured = None if reason else Captured(capture, blobs, looked, is_dispatched=not arrays)
    reason = reason or capture.reason  # a result may lie in unknown memory
    if captured is None or reason or (capture.checked and not captured.may_be_repeated):
        plain = Known(None, (), done.build, reason or capture.checked)
        plain.is_long, plain.is_one_way = reason.startswith(LONG), capture.branches
        return plain
    if (done.left or captured.branches) and captured.fails_late and not captured.can_be_undone(capture.arguments):
        return Known(None, (), done.build, LATE)
    numbered = {id(leaf): leaf.cell for leaf in done.leaves if type(leaf) is Number}
    returned = {id(leaf): places[id(leaf.of)] for leaf in done.leaves if type(leaf) is Returned}
    ways = ways_of(done.leaves, same, places, done.numbers, numbered, returned)
    values = [place for place, leaf in enumerate(made) if is_value(leaf)]
    return Known(captured, ways, done.build, values=values, spent=spent, left=[left for left, _ in done.left])

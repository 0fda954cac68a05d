"""Compositions of small arrays: after some calls of a kind their steps run as one schedule of machine code.

Step by step, each of a dozen functions calls NumPy by itself; a schedule is prepared once for a kind of arguments, and
then takes as long as one or two of these calls. As with the engines (run/engines.py), the choice, and with it the bits
of results, depends on how often a kind has come.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..autograd.tape import active, steps_of
from ..base.caches import make_room
from ..base.options import Settings, options, settings, thin_closed
from ..graph.node import Node, pending_below
from ..graph.number import value_of
from ..plan.costs import DIRECT_BELOW, PREPARED_AFTER
from ..run import executor
from ..storage.blob import TBlob
from ..storage.storage import Native, address_of
from ..tensor.face import CPU_DEVICE, Tensor, face, is_value, valued, wrap
from .record import native_up_to

# The most kinds of arguments that one function remembers.
REMEMBERED = 256

# Types of constants that are indistinguishable where they are equal.
_PLAIN = frozenset((int, bool, str, type(None)))

Kind = tuple[tuple[Any, ...], list[Native]]


class _Given:
    """An array as a schedule of machine code takes it."""

    __slots__ = ("_address",)

    def __init__(self, native: Native, after: int) -> None:
        self._address = address_of(native) + after


class _Ready:
    """A prepared schedule that computes a composition for arrays of one kind.

    order: for each input of the schedule the argument in which it lies, and how many bytes after its first element.
    """

    __slots__ = ("_is_value", "_order", "_scalars", "_schedule")

    def __init__(
        self, schedule: Any, order: Sequence[tuple[int, int]], scalars: Sequence[Any], *, is_value: bool
    ) -> None:
        self._schedule, self._order, self._scalars, self._is_value = schedule, order, scalars, is_value

    def run(self, natives: Sequence[Native]) -> Tensor:
        given: Any = [_Given(natives[place], after) for place, after in self._order]
        with executor.turn():
            (result,) = self._schedule.run(given, self._scalars)
        found = wrap(result.native(), CPU_DEVICE)  # a thin face, as the steps make
        return valued(found) if self._is_value else found


class Small:
    """The calls of a composition with small arrays.

    For each kind it stores how often that has come, then its schedule, None where there is none.
    """

    def __init__(self, plain: Callable[..., Tensor]) -> None:
        self._plain = plain
        self._known: dict[Any, int | _Ready | None] = {}

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
        """Return the result of a call; None where it is to be computed in another way."""
        found = None if thin_closed[0] or not _asks_for_nothing(settings()) else _kind_of(args, kwargs)
        if found is None or (active[0] and steps_of((*args, *kwargs.values())) is not None):
            return None
        kind, natives = found
        known = self._known.get(kind, 0)
        if type(known) is _Ready:
            return known.run(natives)
        if type(known) is not int:
            return None
        if not known:
            make_room(self._known, REMEMBERED)
        self._known[kind] = known + 1
        if known + 1 < PREPARED_AFTER:
            return None
        self._known[kind] = None  # calls that it makes itself do not count
        try:
            result = self._plain(*args, **kwargs)
            self._known[kind] = self._prepared(args, kwargs, natives, is_value=is_value(result))
        except BaseException:
            self._known.pop(kind, None)
            raise
        return result

    def _prepared(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], natives: list[Native], *, is_value: bool
    ) -> _Ready | None:
        """Return the schedule for a kind; None where machine code cannot compute it, or reads memory of no argument."""
        from ..codegen.cpu.compile import host
        from ..plan.fusion import plan_of
        from ..plan.layouts import work_of
        from ..plan.trace import Trace
        from ..run.capture import with_kernels
        from ..run.prepare import prepared
        from ..run.schedule import Kernels

        if host() is None:
            return None
        blobs = [TBlob.of(None, native, CPU_DEVICE) for native in natives]
        faces = iter([face(blob) for blob in blobs])
        given = [next(faces) if type(x) is Tensor else x for x in args]
        named = {name: next(faces) if type(x) is Tensor else x for name, x in kwargs.items()}
        with options(lazy="always"):
            node: Any = self._plain(*given, **named)._data
        if type(node) is not Node or node.blob is not None:
            return None
        trace = Trace(pending_below([node]), [node])
        read = [value for value in trace.values if type(value) is TBlob]
        order = [one for one in [_place_of(value, blobs) for value in read] if one is not None]
        if len(order) < len(read):
            return None
        plan = plan_of(trace)
        work = work_of(trace, plan, None, with_kernels(settings(), CPU_DEVICE))
        schedule = prepared(work, sorted(plan.kept), is_again=True)
        if len(plan.kept) != 1 or not all(isinstance(one, Kernels) for one in schedule.instructions):
            return None
        scalars = [value_of(value) for value in trace.values if type(value) not in (Node, TBlob)]
        return _Ready(schedule, order, scalars, is_value=is_value)


def _asks_for_nothing(limits: Settings) -> bool:
    """Return whether settings leave the way of computing small arrays to us: they are no part of a kind."""
    return limits.engine == limits.lazy == "auto" and not limits.fast_math


def _place_of(value: TBlob, blobs: Sequence[TBlob]) -> tuple[int, int] | None:
    """Return the argument in which a value lies, and how many bytes after its first element; None where it lies in
    none, or in several: a value that the composition has computed itself may differ in another call.
    """
    same = [place for place, blob in enumerate(blobs) if value is blob]
    found = same or [place for place, blob in enumerate(blobs) if value.overlaps(blob)]
    arrays = {id(blobs[place].native()) for place in found}  # one given twice is so in each call of the kind
    return (found[0], value.address - blobs[found[0]].address) if len(arrays) == 1 else None


def _kind_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Kind | None:
    """Return the kind of a call, and its arrays; None where one is not computed, or large, or another argument is no
    constant.
    """
    kind: list[Any] = [*kwargs]
    natives: list[Native] = []
    for x in (*args, *kwargs.values()) if kwargs else args:
        of = type(x)
        if of is Tensor:
            native = native_up_to(x, DIRECT_BELOW)
            if native is None or not native.size or not native.flags.aligned:
                return None
            kind += (native.dtype.num, native.shape, native.strides)
            for place, other in enumerate(natives):
                if other is native:  # a view of one is a view of both
                    kind.append(place)
            natives.append(native)
            continue
        constant = told_apart(x)
        if constant is None:
            return None
        kind += constant
    return (tuple(kind), natives) if natives else None


def told_apart(x: Any) -> tuple[Any, ...] | None:
    """Return a key that distinguishes a Python constant from others; None for any other value."""
    kind = type(x)
    if kind is float:
        return (x.hex(),)  # -0.0 is not 0.0
    if kind in _PLAIN or (kind is tuple and all(type(one) is int for one in x)):
        return kind, x
    return None

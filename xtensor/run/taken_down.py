"""The record that a capture makes of a function: steps, and the memory that they name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

from ..devices import Backend
from ..graph.node import Node, View
from ..plan.layouts import Meta
from ..plan.program import Plan
from ..plan.trace import Trace
from ..storage.blob import TBlob
from ..storage.storage import Native
from .places import ANY, AtIndices, PutBack, Selected, renewed

# Functions that do not raise for any values, by their public names.
SAFE = frozenset(
    (
        *("argsort", "concat", "convolve", "correlate", "cumulative_prod", "cumulative_sum", "det", "digitize", "flip"),
        *("fft", "fftn", "hfft", "ifft", "ifftn", "ihfft", "irfft", "irfftn", "rfft", "rfftn"),
        *("interp", "matmul", "roll", "searchsorted", "slogdet", "sort", "stack", "tensordot", "tile", "vecdot"),
        "vector_norm",
    )
)


class Spot(NamedTuple):
    """A view of some memory: the number of its root, the offset from that one's beginning in bytes, and its meta.

    shifts: by how many places along each axis it is rolled when it is read (rolls.py), empty if it is not.
    """

    root: int
    after: int
    meta: Meta
    shifts: tuple[int, ...] = ()


class Place(NamedTuple):
    """Where in its owner's memory a root begins, and the bytes that it takes, from `low` up to `high`."""

    root: int
    begin: int
    low: int
    high: int


class Root(NamedTuple):
    """Memory: of an argument, given its number, or of a constant; else a step makes it. nbytes: of made memory. array:
    bytes of the NumPy array of which a constant is a copy; they must not change any more.
    """

    argument: int | None
    constant: TBlob | None
    nbytes: int
    array: Native | None = None


class Evaluated(NamedTuple):
    """Nodes that were computed by kernels. spots: of inputs and results; into: results written to existing memory."""

    trace: Trace
    plan: Plan
    metas: dict[int, Meta]
    spots: dict[int, Spot]
    into: tuple[int, ...]

    def whole(self, number: int) -> int:
        """Return the value whose memory a result lies in."""
        while True:
            node = self.trace.values[number]
            if type(node.op) is not View:
                return number
            (whole,) = self.trace.arguments[number]
            layout = self.metas[whole].layout
            if node.op.layout(layout, node.dtype.itemsize, **node.params) is None or whole not in self.trace.arguments:
                return number
            number = whole


class Alike(NamedTuple):
    """The record that evaluations of one plan over operands of the same layouts share. trace: of one of them, without
    memory; calls: the number of calls of the library's functions by Python.
    """

    trace: Trace
    metas: dict[int, Meta]
    into: tuple[int, ...]
    calls: int

    def trace_with(self, values: Iterable[Any]) -> Trace:
        """Return the trace with the scalars from these values."""
        both = zip(self.trace.values, values, strict=True)
        return self.trace.of([own if own is None or type(own) is Node else value for own, value in both])


class Outcome:
    """A check that a boolean, read as a byte, is what it was when the call was captured. bounds: as of a check of
    classes, of which there is one, or none beside the number 1.
    """

    __name__ = "check of a branch"

    def __init__(self, is_true: bool) -> None:
        self.is_true = is_true
        self.bounds = (0, 1) if is_true else (1, None)

    def __call__(self, native: Native) -> None:
        if bool(native) is not self.is_true:
            raise ValueError(f"bool: the value is not {self.is_true}, as when the call was captured")


class Called(NamedTuple):
    """A call of a function of native arrays. takes: its arguments; gives: its results; writes: the roots that it wrote.
    name: of the public function.
    """

    function: Callable[..., Any]
    takes: list[Spot]
    gives: list[Spot]
    writes: tuple[int, ...]
    name: str = ""

    @property
    def shifts(self) -> tuple[int, ...] | None:
        """By how many places it rolls each axis of its argument, None if it does something else (rolls.py)."""
        found: tuple[int, ...] | None = getattr(getattr(self.function, "func", None), "shifts", None)
        return found

    @property
    def packs(self) -> bool:
        """Whether it copies its argument in C order, perhaps to another shape."""
        return getattr(getattr(self.function, "func", None), "packs", False)

    @property
    def runs_along(self) -> int | None:
        """The axis, from the end, along which it makes cumulative sums or products; None if it does something else."""
        found: int | None = getattr(getattr(self.function, "func", None), "runs_along", None)
        return found

    @property
    def indexing(self) -> AtIndices | None:
        """The operation on an array at indices that it is, None if it is something else."""
        function = getattr(self.function, "func", self.function)
        return function if isinstance(function, AtIndices) else None

    @property
    def bounds(self) -> tuple[int, int | None] | None:
        """For a check of classes how many there are, and the number that is ignored or None; None for other calls."""
        if isinstance(self.function, Outcome):
            return self.function.bounds
        if not getattr(getattr(self.function, "func", None), "checks", False):
            return None
        given: dict[str, Any] = self.function.keywords  # type: ignore[attr-defined]
        return given["count"], given["ignored"]

    @property
    def can_fail(self) -> bool:
        """Whether it may raise because of values, as far as is known."""
        is_draw = not self.takes
        moves = self.shifts is not None or self.packs or self.runs_along is not None
        return not (is_draw or moves or self.name in SAFE)

    @property
    def is_copy_of_view(self) -> bool:
        """Whether it copies a view at computed places, or copies such a copy back."""
        return isinstance(self.function, (Selected, PutBack)) or getattr(self.function, "func", None) is renewed


class Shown(NamedTuple):
    """A view of memory at computed places. own: the memory that later calls copy it to; base: the array of which it is
    a view; places: the computed places; key: the key that selects it, with ANY for each of them.
    """

    own: Spot
    base: Spot
    places: tuple[Spot, ...]
    key: tuple[Any, ...]

    def copied(self, backend: Backend) -> Called:
        """Return the call that makes the copy."""
        return Called(Selected(backend, *self._selection), [self.base, *self.places], [self.own], ())

    def put_back(self, backend: Backend) -> Called:
        """Return the call that copies it back."""
        function = PutBack(backend, *self._selection)
        return Called(function, [self.base, self.own, *self.places], [], (self.base.root,))

    def renewed(self, backend: Backend) -> Called:
        """Return the call that copies it anew."""
        function = partial(renewed, Selected(backend, *self._selection))
        return Called(function, [self.own, self.base, *self.places], [], (self.own.root,))

    @property
    def _selection(self) -> tuple[tuple[Any, ...], list[int], int]:
        """The key, the positions of computed places in it, and the number of the base's axes."""
        return self.key, [at for at, item in enumerate(self.key) if item is ANY], len(self.base.meta.shape)

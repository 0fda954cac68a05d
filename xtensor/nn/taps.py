"""Weighted sums of elements along axes: on the CPU in machine code, plane by plane, elsewhere by taking elements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache, partial
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ..autograd.rules import xt
from ..autograd.tape import differentiable
from ..base.caches import make_room
from ..base.dtypes import DType
from ..base.layout import Shape
from ..base.options import settings
from ..codegen.cpu.compile import the_host
from ..codegen.cpu.resampling import resampling
from ..run.contractions import is_compiled
from ..run.launches import Array, Begun, Launches, Sheet, behind, dealt
from ..run.native import Launch, Place, Word
from ..storage.storage import watchers
from ..tensor.face import CPU_DEVICE, Tensor
from ..tensor.operands import asarray_host
from .contraction import empty, natively

# Taps of one thread in a second, and how much longer taking elements takes than a product. Bytes between two passes.
SPEED, SLOWER, NEAR = 1e9, 200, 1 << 18

# The fewest elements of a plane for which its loops pay; how many taps there are at least for each in a table, and how
# many of these there are at most, as tables are kept; from how many taps on tables are made for a first array.
PLANE, TABLES, LONGEST, AT_ONCE = 128, 8, 1 << 15, 1 << 21

# How many kinds of sums are remembered.
KINDS = 1024


class Taps:
    """The input elements that make up the elements along one axis: their places, their weights, None for weights of 1,
    and which of them there are, None for all of them; each of shape (taps, length). given: the length of the input.
    What is made of taps is remembered by object, so those of one axis are to be one object.
    """

    def __init__(self, given: int, places: Any, weights: Any = None, there: Any = None) -> None:
        self.given, self.places, self.weights, self.there = given, places, weights, there

    @property
    def made(self) -> int:
        """The length of the output."""
        return int(self.places.shape[1])

    @cached_property
    def changes(self) -> bool:
        """Return whether outputs differ from inputs."""
        return self.weights is not None or not np.array_equal(self.places, np.arange(self.given)[None])

    def tables(self, char: str, inner: int, length: int) -> tuple[Array, Array]:
        """Return numbers of 32 bits, -1 for none, and weights, each for `inner` neighbouring elements per place, filled
        up to a length.
        """
        numbers = self.places if self.there is None else np.where(self.there, self.places, -1)
        weights = np.ones(numbers.shape) if self.weights is None else self.weights
        if self.there is not None:
            weights = np.where(self.there, weights, 0)
        spread = np.where(numbers[..., None] < 0, -1, numbers[..., None] * inner + np.arange(inner))
        found, shares = np.full((len(numbers), length), -1, np.int32), np.zeros((len(numbers), length), char)
        found[:, : self.made * inner] = spread.reshape(len(numbers), -1)
        shares[:, : self.made * inner] = np.repeat(weights, inner, axis=1)
        return found, shares


@lru_cache(256)
def turned(taps: Taps) -> Taps:
    """Return the taps of the adjoint: for each element of the input, the elements that it is a part of."""
    there = np.ones(taps.places.shape, bool) if taps.there is None else taps.there
    into, numbers = taps.places[there], np.broadcast_to(np.arange(taps.made), taps.places.shape)[there]
    order = np.argsort(into, kind="stable")
    counts = np.bincount(into, minlength=taps.given)
    own = np.arange(counts.max(initial=0))[:, None] < counts
    places = np.zeros(own.shape, np.int64)
    places.T[own.T] = numbers[order]
    weights = None
    if taps.weights is not None:
        weights = np.zeros(own.shape)
        weights.T[own.T] = taps.weights[there][order]
    return Taps(taps.made, places, weights, None if own.all() else own)


# Axes, in order, and the taps along each.
Along = tuple[tuple[int, Taps], ...]


def summed(x: Tensor, along: Along, function: str) -> Tensor:
    """Return the weighted sums along some axes; x where these change nothing. function: who asks."""
    along = changing(along)
    lengths = tuple([(axis, taps.made) for axis, taps in along])
    if pay(x, lengths, max([len(taps.places) for _, taps in along], default=0)):
        return by_planes(x, along, function)
    for axis, taps in along:
        x = _taken(x, axis, taps, function)
    return x


def changing(along: Along) -> Along:
    """Return the axes along which outputs differ from inputs."""
    return tuple([(axis, taps) for axis, taps in along if taps.changes])


def pay(x: Tensor, lengths: tuple[tuple[int, int], ...], most: int) -> bool:
    """Return whether machine code makes such sums in less time than whole arrays do, with the tables that it needs:
    from the second array of a shape on, if that is not large. lengths: axes, and their lengths afterwards; most: taps.
    """
    if x.device is not CPU_DEVICE or not lengths:
        return False
    shape = list(x.shape)
    for axis, length in lengths:
        shape[axis] = length
    count, table = most * max(x.size, prod(shape)), most * sum([length for _, length in lengths])
    plane = max([prod(one[lengths[0][0] :]) for one in (shape, x.shape)])
    is_large = plane >= PLANE and table <= LONGEST and max(TABLES * table, 1) <= count < 1 << 31
    if not is_large or not is_compiled(x.dtype, SLOWER * count):
        return False
    is_asked = watchers or settings().engine == "llvm"
    return bool(is_asked or count >= AT_ONCE or _came_before((x.shape, lengths, x.dtype)))


def _came_before(kind: Any) -> bool:
    """Return whether sums of a kind were asked for before, and note that they are now."""
    if kind in _kinds:
        return True
    make_room(_kinds, KINDS)
    _kinds[kind] = None
    return False


_kinds: dict[Any, None] = {}


def _back(g: Tensor, along: Along, function: str) -> Tensor:
    return by_planes(g, tuple([(axis, turned(taps)) for axis, taps in along]), function)


@differentiable(x=_back)
def by_planes(x: Tensor, along: Along, function: str) -> Tensor:
    """Return the weighted sums along some axes, made by machine code, of float32 or float64 on the CPU."""
    return natively(function, (x,), _Summed(_summed_in, along))


def _taken_back(g: Tensor, axis: int, taps: Taps, function: str) -> Tensor:
    return _taken(g, axis, turned(taps), function)


@differentiable(x=_taken_back)
def _taken(x: Tensor, axis: int, taps: Taps, function: str) -> Tensor:
    """Return the weighted sums along one axis, by taking elements."""
    total: Any = None
    for number, places in enumerate(taps.places):
        part = xt.take(x, asarray_host(places, function, "places", device=x.device), axis=axis)
        if taps.weights is not None:
            shares = taps.weights[number].reshape(-1, *[1] * (x.ndim - 1 - axis))
            part = part * asarray_host(shares, function, "weights", x.dtype, x.device)
        if taps.there is not None:
            there = taps.there[number].reshape(-1, *[1] * (x.ndim - 1 - axis))
            part = xt.where(asarray_host(there, function, "there", None, x.device), part, 0)
        total = part if total is None else total + part
    found: Tensor = total
    return found


# ---- machine code


def _summed_in(along: Along, a: Array) -> Array:
    """Return the same of a NumPy array; the result lies as it does where its channels, axis 1, are last in memory."""
    lies_last = along[0][0] > 1 and a.transpose(0, *range(2, a.ndim), 1).flags.c_contiguous
    if a.flags.c_contiguous or not lies_last:
        packed, own = np.ascontiguousarray(a), along
    else:
        packed, own = a.transpose(0, *range(2, a.ndim), 1), tuple([(axis - 1, taps) for axis, taps in along])
    found = empty(_shape(packed.shape, own), a.dtype, a)
    _launches(packed.shape, own, a.dtype).run(packed, found)
    return found if own is along else np.moveaxis(found, -1, 1)


class _Summed(partial[Any]):
    """The function of native arrays alone, as `Computed` in algorithms."""

    def ready(self, natives: Sequence[Any], result: Any) -> Begun | None:
        """Return what makes such a result of such arrays where they begin; None where nothing does."""
        if not natives[0].flags.c_contiguous or not result.flags.c_contiguous:
            return None
        found = _launches(natives[0].shape, *self.args, result.dtype)
        return Begun(found, (1, 0))


def _shape(shape: Shape, along: Along) -> Shape:
    """Return the shape of the result for one of x."""
    lengths = list(shape)
    for axis, taps in along:
        lengths[axis] = taps.made
    return tuple(lengths)


class Stage(NamedTuple):
    """One pass, or two along neighbouring axes, over planes (outputs along the first axis, ..., inner)."""

    planes: int
    taps: tuple[Taps, ...]
    inner: int


@lru_cache(256)
def _launches(shape: Shape, along: Along, dtype: DType) -> Launches:
    """Return launches for contiguous arrays of a shape: the sums along axes that get shorter come first."""
    parts: list[Along] = [along[-2:]] if len(along) > 1 and along[-1][0] == along[-2][0] + 1 else [along[-1:]]
    parts += [(one,) for one in along[: -len(parts[0])]]
    parts.sort(key=lambda part: prod([taps.made / taps.given for _, taps in part]))
    stages, count = list[Stage](), 0
    for part in parts:
        first, last = part[0][0], part[-1][0]
        stages.append(Stage(prod(shape[:first]), tuple([taps for _, taps in part]), prod(shape[last + 1 :])))
        shape = _shape(shape, part)
        count += prod(shape) * sum([len(taps.places) for _, taps in part])

    def make(sheet: Sheet) -> list[Launch]:
        places: list[Word] = [Place(0, 0)]
        for stage in stages[:-1]:
            places.append(sheet.take(stage.planes * stage.inner * prod([taps.made for taps in stage.taps]), dtype))
        places.append(Place(1, 0))
        return [_launch(stage, dtype, sheet, *ends) for stage, ends in zip(stages, pairwise(places), strict=True)]

    return Launches([make], 2, count / SPEED)


def _launch(stage: Stage, dtype: DType, sheet: Sheet, x: Word, y: Word) -> Launch:
    """Return the launch of a stage: threads share planes, or blocks of rows where there are few planes."""
    size, lanes = dtype.itemsize, the_host().vector_bytes // dtype.itemsize
    given, made = [stage.inner * prod([getattr(taps, name) for taps in stage.taps]) for name in ("given", "made")]
    threads = min(sheet.threads, stage.planes * stage.taps[0].made)
    by_planes = stage.planes % threads == 0 or stage.planes >= 8 * threads
    cut = _Cut(stage, dtype, lanes, sheet, threads if not by_planes else 1)
    blocks = list(cut.blocks())
    between = [sheet.take(cut.between, dtype) for _ in range(threads)]
    groups: list[list[tuple[Word, ...]]] = [[] for _ in range(threads)]
    share = -(-stage.planes // threads)
    for n, (from_row, to_row, words) in enumerate(blocks):
        for t in range(threads) if by_planes else [n % threads]:
            first, count = (t * share, min(share, stage.planes - t * share)) if by_planes else (0, stage.planes)
            if count > 0:
                begin, end = behind(x, (first * given + from_row) * size), behind(y, (first * made + to_row) * size)
                groups[t].append((begin, between[t], end, *words[0], count, given, made, *words[1]))
    return dealt(resampling(dtype.char, lanes, cut.ways), [group for group in groups if group])


class _Cut:
    """The passes of a stage, cut into blocks of outputs along the first axis. ways: as `resampling` has them; between:
    the most elements between two passes.
    """

    def __init__(self, stage: Stage, dtype: DType, lanes: int, sheet: Sheet, least: int) -> None:
        self.dtype, self.sheet, self.inner = dtype, sheet, stage.inner
        self.first, self.last = stage.taps[0], stage.taps[-1]
        self.is_single, self.lanes = len(stage.taps) == 1, lanes
        self.along = stage.inner < lanes
        self.down_first = self.first.made <= self.first.given
        self.ways = (self.along,) if self.is_single else (False, self.along) if self.down_first else (self.along, False)
        wide = 0 if self.is_single else self.inner * (self.last.given if self.down_first else self.last.made)
        self.rows = self.first.made
        if not (self.is_single and self.along):
            self.rows = max(1, min(-(-self.rows // least), NEAR // max(wide * dtype.itemsize, 1)))
        self.between = 0

    def blocks(self) -> Iterator[tuple[int, int, tuple[list[Word], list[Word]]]]:
        """Yield blocks: how far their inputs and outputs begin behind those of the plane, and words of the passes,
        tables and counts.
        """
        wide, made = [self.inner * getattr(self.last, name) for name in ("given", "made")]
        if self.is_single:
            wide = made = self.inner
        columns = None if self.is_single else self._columns(self.along)
        for first in range(0, self.first.made, self.rows):
            count = min(self.rows, self.first.made - first)
            if columns is None:
                low, passes = 0, [self._only(first, count)]
            elif self.down_first:
                low, _, down = self._down(first, count, wide, 0)
                passes = [down, columns(count)]
                self.between = max(self.between, count * wide)
            else:
                low, high, down = self._down(first, count, made, None)
                passes = [columns(high - low), down]
                self.between = max(self.between, (high - low) * made)
            words = [word for one in passes for word in one[:2]], [word for one in passes for word in one[2:]]
            yield low * wide, first * made, words

    def _only(self, first: int, count: int) -> list[Word]:
        """Return the words of a pass that is the only one."""
        if not self.along:
            return self._down(first, count, self.inner, 0)[2]
        return self._columns(True)(1)

    def _columns(self, along: bool) -> Any:
        """Return a function from numbers of rows to the words of the pass along the last axis."""
        taps, inner = self.last, self.inner
        length = -(-taps.made * inner // self.lanes) * self.lanes if along else taps.made
        numbers, weights = taps.tables(self.dtype.char, inner if along else 1, length)
        tables, steps = [self.sheet.keep(numbers), self.sheet.keep(weights)], (taps.given * inner, taps.made * inner)
        wide = taps.made * inner if along else inner
        return lambda rows: [*tables, len(numbers), length, rows, taps.made, wide, *steps, inner, inner]

    def _down(self, first: int, count: int, wide: int, low: int | None) -> tuple[int, int, list[Word]]:
        """Return the words of the pass along the first axis for some outputs, and the rows that they are made of.
        low: the row that comes first in memory, None for the first of them.
        """
        tables = self.first.tables(self.dtype.char, 1, self.first.made)
        numbers, weights = [part[:, first : first + count] for part in tables]
        there = numbers[numbers >= 0]
        start, stop = (int(there.min()), int(there.max()) + 1) if there.size else (0, 1)
        start = start if low is None else low
        numbers = np.where(numbers < 0, -1, numbers - start).astype(np.int32)
        kept = [self.sheet.keep(numbers), self.sheet.keep(np.ascontiguousarray(weights))]
        return start, stop, [*kept, len(numbers), count, 1, count, wide, 0, 0, wide, wide]

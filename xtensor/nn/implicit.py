"""Convolution as one matrix product whose panels are packed straight from the windows: nothing is laid out as columns.

Where channels come first, rows of the product are outputs and its columns are positions. A tile of the input is copied
once, with zeros around it: windows begin at places of it, and each element of the window lies at an offset from there.
With a stride, positions of one residue lie together. Where channels come last, rows are positions and columns are
outputs: a window is some runs of memory, and the weights are packed once. What needs no zeros is read where it lies.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from math import ceil, prod
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ..base import threads
from ..base.layout import Shape
from ..codegen.cpu.compile import Code
from ..codegen.cpu.finish import COLUMNS, ROWS
from ..codegen.cpu.gemm import Form
from ..run.contractions import (
    Columns,
    Product,
    Rows,
    address,
    columns_among,
    columns_of,
    rows_of,
    steps,
    worth_compiling,
)
from ..run.joined import Ending
from .contraction import Array, Scratch, Sizes, Tile, Tiles, channels_last, readable, rounded
from .planes import SLOWER
from .windows import Axes, Axis, kernels, volume

# A tile of so many bytes leaves room in the cache of a core for the weights; fewer positions waste parts of registers.
TILE_BYTES, TILE_POSITIONS = 1 << 22, 800

# Threads have two tiles each where one would take so many multiplications: one of them may be kept from working.
LONG = 1 << 26

# Where there are few tiles, threads share their outputs, so many at least for each.
SHARED_OUTPUTS = 24

# Of so few outputs the windows are not packed: they would be used too seldom.
DIRECT_OUTPUTS = 8

# Of groups of one channel and so many outputs other ways are faster.
THIN_OUTPUTS = 4


class Copy(NamedTuple):
    """What of the input goes where: from which number of a plane, to which of its places."""

    begin: int
    places: tuple[slice, ...]
    source: tuple[slice, ...]


class Plane(NamedTuple):
    """How one channel of a tile lies: its lengths and strides, how long it is, and the offsets of a window's elements.

    padded: whether there are zeros in it.
    """

    lengths: Shape
    strides: Shape
    size: int
    offsets: Array
    copies: list[Copy]
    padded: bool


class Given(NamedTuple):
    """The input of a tile: (groups, channels, any), from one channel to the next, and from one output to the next."""

    groups: Array
    channel: int
    strides: Shape


def _phases(axis: Axis, part: slice) -> tuple[dict[int, tuple[slice, slice]], int, int]:
    """Return where each residue goes and comes from, how far windows reach, and how many zeros rows can share."""
    longest = (axis.kernel - 1) * axis.dilation // axis.stride
    length = part.stop - part.start + longest
    found, shared = {}, longest
    for residue in sorted({k * axis.dilation % axis.stride for k in range(axis.kernel)}):
        first = part.start * axis.stride - axis.low + residue
        head = min(max(-(first // axis.stride), 0), length)
        last = max(min((axis.size - 1 - first) // axis.stride + 1, length), head)
        start = first + head * axis.stride
        stop = max(start + (last - head - 1) * axis.stride + 1, start)
        found[residue] = slice(head, last), slice(start, stop, axis.stride)
        shared = min(shared, head, length - last)
    return found, longest, shared


@lru_cache(256)
def plane_of(axes: Axes, parts: tuple[tuple[int, int], ...]) -> Plane:
    """Return how the windows of a box lie; axes: the batch's and the spatial ones."""
    phases = [_phases(axis, slice(*part)) for axis, part in zip(axes, parts, strict=True)]
    counts = [stop - start for start, stop in parts]
    shared = [0, *(least for _, _, least in phases[1:])]
    lengths = [n + more - own for n, (_, more, _), own in zip(counts, phases, shared, strict=True)]
    strides = [prod(lengths[place + 1 :]) for place in range(len(axes))]
    slack = sum(own * step for own, step in zip(shared, strides, strict=True))
    one = prod(lengths) + slack
    begins = {residues: n * one for n, residues in enumerate(product(*(found for found, _, _ in phases)))}
    copies, offsets = [], []
    for residues, begin in begins.items():
        places, source = zip(*(found[r] for r, (found, _, _) in zip(residues, phases, strict=True)), strict=True)
        copies.append(Copy(begin, places, source))
    for element in product(*(range(axis.kernel) for axis in axes)):
        ways = [divmod(k * axis.dilation, axis.stride) for k, axis in zip(element, axes, strict=True)]
        along = sum(q * step for (q, _), step in zip(ways, strides, strict=True))
        offsets.append(begins[tuple(r for _, r in ways)] + along)
    padded = slack > 0 or any(p != slice(0, n) for c in copies for p, n in zip(c.places, lengths, strict=True))
    return Plane(tuple(lengths), tuple(strides), one * len(begins), np.array(offsets), copies, padded)


class Implicit(Tiles):
    """Tiles that the contraction kernel reads."""

    codes: dict[Form, Code]
    ending: Ending | None = None  # what follows

    def _shares(self, positions: int) -> int:
        """A tile for each thread, or two where these take longer than another tile costs."""
        long = positions * self.inner * self.y.shape[2] > LONG * threads.count()
        return threads.count() * (1 + long)

    @property
    def _tile_bytes(self) -> int:
        """Bytes of a tile that is large enough: windows of one element are not copied."""
        return TILE_BYTES if volume(self.axes) > 1 else 4 * TILE_BYTES

    def _padded_size(self, sizes: Sizes) -> int:
        """Return the numbers in the padded input of a group."""
        raise NotImplementedError

    def prepare(self, products: list[Product]) -> None:
        """Have the code of products at hand before threads call it."""
        self.codes = {one.form: one.code for one in products}

    def _ending(self, key: tuple[slice, ...]) -> Ending | None:
        """Return what follows a tile."""
        return None if self.ending is None else self.ending.seen(itemgetter(key))


class ChannelsFirst(Implicit):
    """One contraction, cut into tiles of the input: outputs are rows of the product, positions its columns."""

    @property
    def _each_position(self) -> tuple[int, int]:
        phases = prod(min(axis.stride, axis.kernel) for axis in self.axes)
        return (self.x.shape[2] * phases + self.y.shape[2]) * self.dtype.itemsize, self._tile_bytes

    @property
    def _fewest(self) -> int:
        return TILE_POSITIONS

    def _bytes(self, sizes: Sizes) -> int:
        """Return the most scratch that a tile takes: padded input, and what the kernel packs."""
        padded = sizes.groups * self._padded_size(sizes) * self.dtype.itemsize
        aside = sizes.groups * self.y.shape[2] * sizes.positions * self.dtype.itemsize * self._aside
        return (
            rounded(padded) + rounded(aside) + rounded(self._product(self.y.shape[2], sizes.positions).scratch(False))
        )

    @property
    def _aside(self) -> bool:
        """Whether outputs are made beside y, as its columns lie apart: of the other channels, or of other phases; never
        where something follows, which is told where they go.
        """
        return self.y.strides[-1] != self.y.itemsize and self.ending is None

    def _padded_size(self, sizes: Sizes) -> int:
        plane = plane_of(self._axes, tuple((0, n) for n in (sizes.batch, *sizes.box)))
        return int(self.x.shape[2] * plane.size)

    def _product(self, outputs: int, positions: int, registers: int = 0) -> Product:
        direct = self.y.shape[2] <= DIRECT_OUTPUTS
        finish = None if self.ending is None else self.ending.along(ROWS)
        return Product(self.dtype, outputs, positions, self.inner, registers, finish, direct)

    def _own(self, tile: Tile, outputs: slice) -> Product:
        """Return the product of a tile, whose panels are as wide as those of the largest."""
        registers = self._product(self.y.shape[2], self.sizes.positions).form.registers
        return self._product(outputs.stop - outputs.start, tile.positions, registers)

    @property
    def _axes(self) -> Axes:
        images = self.x.shape[0]
        return (Axis(images, images, 1, 1, 1, 0), *self.axes)

    def write(self, weights: Array, bias: Array | None) -> None:
        """Write the sums; weights: (groups, outputs, inner), the channels slowest."""
        tiles = list(self)
        pairs = product(tiles, _parts(self.y.shape[2], len(tiles), self.workers))
        items = [(tile, outputs, self._own(tile, outputs)) for tile, outputs in pairs]
        self.prepare([one for _, _, one in items])

        def work(scratch: Scratch, left: Iterator[tuple[Tile, slice, Product]]) -> None:
            before = None
            for tile, outputs, one in left:
                scratch.clear()
                parts = tuple((part.start, part.stop) for part in (tile.batch, *tile.box))
                plane = plane_of(self._axes, parts)
                given, before = self._given(tile, plane, scratch, before)
                ks = _inner(self._axes, parts, self.x.shape[2], given.channel)
                own = None if bias is None else bias[tile.groups, outputs]
                key = (tile.batch, tile.groups, outputs, *tile.box)
                target, ending = self.y[key], self._ending(key)
                y = scratch.array(target.shape, self.dtype) if self._aside else target
                self._multiply(one, weights[tile.groups, outputs], given, ks, y, own, scratch, ending)
                if y is not target:
                    np.copyto(target, y)

        self.run(work, items, self.workers)

    def _multiply(
        self,
        one: Product,
        w: Array,
        x: Given,
        ks: Array,
        y: Array,
        bias: Array | None,
        scratch: Scratch,
        ending: Ending | None,
    ) -> None:
        """Multiply the weights (groups, outputs, inner) with the windows of a tile into y."""
        counts = (y.shape[0], *y.shape[3:])
        outputs, item = w.shape[1], self.dtype.itemsize
        room = scratch.array((one.scratch(False),), np.dtype(np.uint8))
        by_row, by_position = y.strides[2] // item, (y.strides[0] // item, *(step // item for step in y.strides[3:]))
        columns = _columns(counts, x.strides, by_position, one.form)
        rows = _rows((outputs,), (w.strides[1] // item,), (self.inner,), (1,))
        targets = steps(outputs, by_row)
        for g in range(w.shape[0]):
            slots = None if ending is None else ending.slots(g)
            told = one.told(
                *(address(w[g]), rows, address(x.groups[g]), ks, columns, address(y[:, g]), targets),
                *(address(room), 0 if bias is None else address(bias[g])),
                slots=0 if slots is None else address(slots),
            )
            self.codes[one.form].call(told)

    def _given(self, tile: Tile, plane: Plane, scratch: Scratch, before: Any) -> tuple[Given, Any]:
        """Return the input of a tile, and how the scratch lies now.

        before: how it lay; zeros stay where they are from one tile to the next.
        """
        x = np.moveaxis(self.x[:, tile.groups], 0, 2)
        item, size = self.dtype.itemsize, plane.size
        steps = _times(plane.strides, item)
        if not plane.padded and len(plane.copies) == 1 and readable(x, self.dtype):
            (copy,) = plane.copies
            seen = x[(..., *copy.source)]
            alone = volume(self.axes) == 1 and self.y.shape[2] > DIRECT_OUTPUTS and seen.strides[-1] == item
            if alone or _lies_in(seen, steps):
                own = tuple(step // item for step in seen.strides)
                return Given(seen, own[1], own[2:] if alone else plane.strides), before
        padded = scratch.array((*x.shape[:2], size), self.dtype)
        now = (padded.shape, plane.lengths, [copy.places for copy in plane.copies])
        if before != now:
            padded.fill(0)
        shape, strides = (*x.shape[:2], *plane.lengths), (*padded.strides[:2], *steps)
        for copy in plane.copies:
            target: Any = as_strided(padded[..., copy.begin :], shape, strides)
            np.copyto(target[(..., *copy.places)], x[(..., *copy.source)], casting="unsafe")
        return Given(padded, size, plane.strides), now


class ChannelsLast(Implicit):
    """One contraction, cut into tiles of the input: positions are rows of the product, outputs its columns."""

    def __init__(self, function: str, x: Array, w: Array, y: Array, axes: Axes, budget: int) -> None:
        self.product = Product(y.dtype, TILE_POSITIONS, w.shape[1], x.shape[2] * volume(axes))
        panels = self.product.panels * self.product.form.width * self.product.depth
        super().__init__(function, x, y, axes, y.dtype, budget, rounded(w.shape[0] * panels * y.itemsize))
        self.channels_last = True
        self.in_place = readable(x, y.dtype) and x.strides[2] == x.itemsize

    @property
    def _each_position(self) -> tuple[int, int]:
        strides = prod(axis.stride for axis in self.axes)
        return (self.x.shape[2] * strides + self.y.shape[2]) * self.dtype.itemsize, self._tile_bytes

    def _bytes(self, sizes: Sizes) -> int:
        """Return the most scratch that a tile takes: padded input, and what the kernel packs."""
        padded = sizes.batch * sizes.groups * self.x.shape[2] * prod(self._reach(sizes.box)) * self.dtype.itemsize
        return rounded(padded) + rounded(self.product.scratch(True))

    def write(self, w: Array, bias: Array | None) -> None:
        """Write the sums; w: (groups, outputs, channels, *window)."""
        panels = Scratch(self.fixed).array((w.shape[0], *self.product.packed_shape), self.dtype)
        order = np.arange(self.inner).reshape(-1, w.shape[2]).T.ravel()
        self.product.pack(np.ascontiguousarray(w.reshape(*w.shape[:2], -1), self.dtype), order, panels)
        beside = None if bias is None else self.product.beside(bias)
        items = [(tile, self._own(tile)) for tile in self]
        self.prepare([one for _, one in items])

        def work(scratch: Scratch, left: Iterator[tuple[Tile, Product]]) -> None:
            for tile, one in left:
                scratch.clear()
                windows = self._windows(tile, scratch)
                key = (tile.batch, tile.groups, slice(None), *tile.box)
                own = None if beside is None else beside[tile.groups]
                self._multiply(one, windows, panels[tile.groups], self.y[key], own, scratch, self._ending(key))

        self.run(work, items, self.workers)

    def _own(self, tile: Tile) -> Product:
        registers = self.product.form.registers
        finish = None if self.ending is None else self.ending.along(COLUMNS)
        return Product(self.dtype, tile.positions, self.y.shape[2], self.inner, registers, finish)

    def _multiply(
        self,
        one: Product,
        x: Array,
        w: Array,
        y: Array,
        bias: Array | None,
        scratch: Scratch,
        ending: Ending | None,
    ) -> None:
        """Multiply windows (batch, groups, channels, *box, *window) with panels of weights into y."""
        rank, item, (groups, outputs) = len(self.axes), self.dtype.itemsize, y.shape[1:3]
        counts = (y.shape[0], *y.shape[3:])
        room = scratch.array((one.scratch(True),), np.dtype(np.uint8))
        of_x, of_y = ([step // item for step in a.strides] for a in (x, y))
        box, window = of_x[3 : 3 + rank], of_x[3 + rank :]
        rows = _rows(counts, (of_x[0], *box), (*kernels(self.axes), x.shape[2]), (*window, of_x[2]))
        targets = _offsets(counts, (of_y[0], *of_y[3:]))
        columns = _columns((outputs,), (1,), (of_y[2],), one.form)
        for g in range(groups):
            slots = None if ending is None else ending.slots(g)
            told = one.told(
                *(address(x[:, g]), rows, address(w[g]), None, columns, address(y[:, g]), targets, address(room)),
                bias_columns=0 if bias is None else address(bias[g]),
                slots=0 if slots is None else address(slots),
            )
            self.codes[one.form].call(told)


def can_end(groups: int, channels: int, outputs: int, last: bool) -> bool:
    """Return whether `convolve` goes on with what follows, where groups have so many channels and outputs.

    last: whether the channels of y come last.
    """
    thin = channels == 1 and outputs <= THIN_OUTPUTS
    aside = last and groups > 1 and outputs <= DIRECT_OUTPUTS  # tiles are turned on their way to y
    return not thin and not aside


def convolve(
    function: str,
    x: Array,
    w: Array,
    y: Array,
    bias: Array | None,
    axes: Axes,
    budget: int,
    ending: Ending | None = None,
) -> bool:
    """Write what `contract` writes, if that is worth compiling, and go on with what follows; return whether."""
    if ending is not None and not can_end(x.shape[1], x.shape[2], w.shape[1], channels_last(y)):
        return False
    if not y.size or not w.size or y.dtype.kind != "f":
        return False
    if not worth_compiling(y, y.dtype, y.size * w[0, 0].size * (SLOWER if x.shape[2] == 1 else 1)):
        return False
    bias = None if bias is None else np.ascontiguousarray(bias, y.dtype)
    if channels_last(y) and (w.shape[0] == 1 or w.shape[1] > DIRECT_OUTPUTS):
        last = ChannelsLast(function, x, w, y, axes, budget)
        last.ending = ending
        last.write(w, bias)
        return True
    weights = np.ascontiguousarray(w.reshape(*w.shape[:2], -1), y.dtype)
    fixed = 0 if np.may_share_memory(weights, w) else weights.nbytes
    first = ChannelsFirst(function, x, y, axes, y.dtype, budget, fixed)
    first.ending = ending
    first.write(weights, bias)
    return True


def _parts(outputs: int, tiles: int, workers: int) -> list[slice]:
    """Return the parts of the outputs that are made at a time, so that all threads have about as much to do."""
    wanted = 1 if tiles >= 2 * workers or workers == 1 else ceil(2 * workers / tiles)
    step = ceil(outputs / max(min(wanted, outputs // SHARED_OUTPUTS), 1))
    return [slice(start, min(start + step, outputs)) for start in range(0, outputs, step)]


@lru_cache(256)
def _offsets(counts: Shape, by: Shape) -> Array:
    """Return the offsets of all elements of some axes, which lie so far apart, in C order."""
    found: Array = np.zeros(1, np.int64)
    for count, step in zip(counts, by, strict=True):
        found = np.add.outer(found, np.arange(count) * step).ravel()
    return found


@lru_cache(256)
def _columns(counts: Shape, sources: Shape, targets: Shape, form: Form) -> Columns:
    table = columns_among if form.direct else columns_of
    return table(_offsets(counts, sources), _offsets(counts, targets), form)


@lru_cache(256)
def _rows(counts: Shape, by: Shape, inner: Shape, by_inner: Shape) -> Rows:
    return rows_of(_offsets(counts, by), _offsets(inner, by_inner))


@lru_cache(256)
def _inner(axes: Axes, parts: tuple[tuple[int, int], ...], channels: int, step: int) -> Array:
    """Return the offsets of the elements of the windows of a box, the channels slowest."""
    return np.add.outer(np.arange(channels) * step, plane_of(axes, parts).offsets).ravel()


def _lies_in(array: Array, steps: Shape) -> bool:
    """Return whether the axes of an array after its first two go in these steps, as far as they are longer than 1."""
    return all(n == 1 or own == step for n, own, step in zip(array.shape[2:], array.strides[2:], steps, strict=True))


def _times(steps: Shape, item: int) -> Shape:
    return tuple(step * item for step in steps)

"""Convolution as matrix products on tiles: windows of a part of the input are laid out as columns, and multiplied.

All arrays are NumPy's, views of any strides, with axes in this order:

    x  (batch, groups, channels in a group, *input lengths)
    w  (groups, outputs of a group, channels in a group, *window lengths)
    y  (batch, groups, outputs of a group, *output lengths)

Tiles depend only on shapes, strides and the workspace, and one thread computes each element of y by one product, so
that results do not depend on the number of threads. Columns have the layout of y: if its channels are last, a window is
a row. Within a window the channels come first or last as in x, so that copies go along memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from math import ceil, prod
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ..autograd.rules import xt
from ..base import threads
from ..base.dtypes import DType
from ..base.errors import expected
from ..base.layout import Shape, overlap
from ..base.profiling import noting, observers
from ..calls.library import captured_call, native_of
from ..codegen.cpu.holding import one_thread
from ..devices import library_of
from ..devices.blas import can_be_held
from ..devices.cpu import CPU
from ..graph.node import Node, View
from ..plan.costs import CONTRACTION_COMPILED
from ..run.contractions import worth_compiling
from ..storage.pool import POOLED
from ..storage.storage import watchers, watching
from ..tensor.face import Tensor, wrap
from ..tensor.operands import common_device
from . import elsewhere
from .windows import Axes, batched, follows, kernels, outs, sizes, volume

Array = Any  # NumPy's, in whose types views of unknown rank cannot be written

# Bytes of a tile: smaller tiles would stay in the cache of a core, but each costs a tenth of a millisecond of Python;
# and positions of a tile: products of fewer are slow.
TILE_BYTES, TILE_POSITIONS = 1 << 22, 192

# More than WORTH_SHARING multiplications are cut into TILES tiles, whatever the number of threads, if these have
# FEWEST_POSITIONS.
TILES, FEWEST_POSITIONS, WORTH_SHARING = 4, 64, 1 << 20

# The most lanes in which a weight gradient is summed, whatever the number of threads.
LANES = 8

# Weight gradients of float32 with so few multiplications are summed in float64, which takes no longer then.
FEW = 1 << 23

_ALIGNED = 64


class Tile(NamedTuple):
    """A part of y: ranges of the batch, the groups, and each output axis."""

    batch: slice
    groups: slice
    box: tuple[slice, ...]

    @property
    def positions(self) -> int:
        return prod(part.stop - part.start for part in (self.batch, *self.box))


class Sizes(NamedTuple):
    """The lengths of the largest tile."""

    batch: int
    groups: int
    box: Shape

    @property
    def positions(self) -> int:
        return self.batch * prod(self.box)


class Tiles:
    """One contraction, cut into tiles.

    dtype: of the products. rows: whether a window is a row of its matrix. channels_last: whether the channels come last
    in a window. fixed: bytes of scratch memory besides those of the tiles. each: bytes of scratch memory of one tile.
    """

    def __init__(self, function: str, x: Array, y: Array, axes: Axes, dtype: Any, budget: int, fixed: int = 0) -> None:
        self.x, self.y, self.axes = x, y, axes
        self.dtype = np.dtype(dtype)
        self.rows = channels_last(y)
        self.channels_last = channels_last(x)
        self.inner = x.shape[2] * volume(axes)
        self.fixed = fixed
        self.budget = budget
        self.sizes = self._fitting(function)
        self.each = self._bytes(self.sizes)

    def __iter__(self) -> Iterator[Tile]:
        sizes = self.sizes
        batch = _cuts(self.x.shape[0], sizes.batch)
        groups = _cuts(self.x.shape[1], sizes.groups)
        boxes = [_cuts(axis.out, n) for axis, n in zip(self.axes, sizes.box, strict=True)]
        for n, g, *box in product(batch, groups, *boxes):
            yield Tile(n, g, tuple(box))

    @property
    def workers(self) -> int:
        """How many threads may work on tiles at the same time."""
        if not can_be_held():
            return 1
        return max(1, min(threads.count(), (self.budget - self.fixed) // max(self.each, 1)))

    # -- how large

    def _fitting(self, function: str) -> Sizes:
        """Return the lengths of tiles that fit a quarter of the workspace, or else, for single positions, all of it."""
        images, groups = self.x.shape[0], self.x.shape[1]
        everything = images * groups * prod(outs(self.axes))
        spread = everything
        if everything * self.inner * self.y.shape[2] > WORTH_SHARING:
            spread = ceil(everything / TILES)
        fitting = TILE_BYTES // (self.inner * self.dtype.itemsize)
        wanted = max(min(max(fitting, TILE_POSITIONS), spread), FEWEST_POSITIONS)
        room = self.budget - self.fixed
        while True:
            sizes = self._lengths(wanted)
            needed = self._bytes(sizes)
            if needed <= room // 4 or (wanted == 1 and needed <= room):
                return sizes
            if wanted == 1:
                least = ceil((needed + self.fixed) / 1e3) / 1e3
                got = f"{self.budget / 1e6:g} for x {self.x.shape} and windows of {kernels(self.axes)}"
                raise ValueError(expected(function, "workspace_mb", f"be at least {least:g}", got))
            wanted = wanted // 2

    def _lengths(self, wanted: int) -> Sizes:
        """Return lengths of about so many positions: whole inner axes first, then images, then groups."""
        box, left = [], wanted
        for axis in reversed(self.axes):
            box.append(even(axis.out, left))
            left = left // axis.out
        batch = even(self.x.shape[0], left) if left else 1
        groups = even(self.x.shape[1], left // self.x.shape[0]) if left else 1
        return Sizes(batch, groups, tuple(reversed(box)))

    def _bytes(self, sizes: Sizes) -> int:
        """Return the most scratch memory that a tile takes: columns, padded input and product."""
        channels, columns = self.x.shape[2], sizes.positions * self.inner
        padded = sizes.batch * channels * prod(self._reach(sizes.box))
        counts = (columns, padded, sizes.positions * self.y.shape[2])
        aligning = 0 if self.rows else self.inner * (_ALIGNED - self.dtype.itemsize)
        return sum(rounded(sizes.groups * (count * self.dtype.itemsize + aligning)) for count in counts)

    def _reach(self, box: Shape) -> Shape:
        """Return how many input positions the windows of a box cover, along each axis."""
        return tuple((n - 1) * axis.stride + axis.span for n, axis in zip(box, self.axes, strict=True))

    # -- matrices

    def weights(self, w: Array) -> Array:
        """Return weights as matrices (groups, outputs, inner) of the products' dtype, or transposed for rows."""
        if self.channels_last:
            w = np.moveaxis(w, 2, -1)
        matrices = w.reshape(*w.shape[:2], self.inner).astype(self.dtype, copy=False)
        return matrices.transpose(0, 2, 1) if self.rows else matrices

    def columns(self, tile: Tile, scratch: Scratch) -> Array:
        """Return the windows of a tile as matrices (groups, inner, positions), or transposed for rows."""
        windows = self._windows(tile, scratch)
        rank = len(self.axes)
        box, window = tuple(range(3, 3 + rank)), tuple(range(3 + rank, 3 + 2 * rank))
        inner = (*window, 2) if self.channels_last else (2, *window)
        windows = windows.transpose(1, *((0, *box, *inner) if self.rows else (*inner, 0, *box)))
        positions = windows.size // (windows.shape[0] * self.inner)
        shape = (windows.shape[0], *((positions, self.inner) if self.rows else (self.inner, positions)))
        seen = _seen_as(windows, shape) if volume(self.axes) == 1 and windows.dtype == self.dtype else None
        if seen is not None:
            return seen
        width = shape[2] if self.rows else rounded(shape[2] * self.dtype.itemsize) // self.dtype.itemsize
        found = scratch.array((*shape[:2], width), self.dtype)[:, :, : shape[2]]
        np.copyto(found.reshape(windows.shape, copy=False), windows, casting="unsafe")
        return found

    def _windows(self, tile: Tile, scratch: Scratch) -> Array:
        """Return the windows of a tile as a view (batch, groups, channels, *box, *window)."""
        x = self.x[tile.batch, tile.groups]
        starts, stops = [], []
        for axis, part in zip(self.axes, tile.box, strict=True):
            starts.append(part.start * axis.stride - axis.low)
            stops.append((part.stop - 1) * axis.stride - axis.low + axis.span)
        if min(starts) < 0 or any(stop > axis.size for stop, axis in zip(stops, self.axes, strict=True)):
            x = self._padded(x, starts, stops, scratch)
        else:
            x = x[(..., *map(slice, starts, stops))]
        box = tuple(part.stop - part.start for part in tile.box)
        spatial = x.strides[3:]
        steps = tuple(step * axis.stride for step, axis in zip(spatial, self.axes, strict=True))
        within = tuple(step * axis.dilation for step, axis in zip(spatial, self.axes, strict=True))
        shape = (*x.shape[:3], *box, *kernels(self.axes))
        return as_strided(x, shape, (*x.strides[:3], *steps, *within), writeable=False)

    def _padded(self, x: Array, starts: list[int], stops: list[int], scratch: Scratch) -> Array:
        """Return a part of the input with zeros outside it, with its axes in the same order in memory as those of x."""
        lengths = tuple(stop - start for start, stop in zip(starts, stops, strict=True))
        if self.channels_last:
            order = (0, *range(3, x.ndim), 1, 2)
            back = tuple(np.argsort(order))
            padded = scratch.array((x.shape[0], *lengths, *x.shape[1:3]), self.dtype).transpose(back)
        else:
            padded = scratch.array((*x.shape[:3], *lengths), self.dtype)
        padded.fill(0)
        target, source = overlap(sizes(self.axes), list(zip(starts, stops, strict=True)))
        np.copyto(padded[(..., *target)], x[(..., *source)], casting="unsafe")
        return padded

    def outputs(self, tile: Tile) -> Array:
        """Return a tile of y as a view (groups, outputs, batch, *box), or (groups, batch, *box, outputs) for rows."""
        part = self.y[(tile.batch, tile.groups, slice(None), *tile.box)]
        box = tuple(range(3, part.ndim))
        return part.transpose(1, *((0, *box, 2) if self.rows else (2, 0, *box)))

    def matrix(self, part: Array) -> Array | None:
        """Return a tile of y as matrices (groups, outputs, positions), transposed for rows; None if that is
        impossible.
        """
        if part.dtype != self.dtype:
            return None
        groups, outputs = part.shape[0], self.y.shape[2]
        positions = part.size // (groups * outputs)
        return _seen_as(part, (groups, *((positions, outputs) if self.rows else (outputs, positions))))

    # -- running

    def run(self, work: Callable[[Scratch, Iterator[Any]], None], items: list[Any], workers: int) -> None:
        """Share items among threads, each with its own scratch memory."""
        left = iter(items)

        def one() -> None:
            CPU.call(work, Scratch(self.each), left)

        with one_thread:
            threads.run([one] * max(1, min(workers, len(items))))


def empty(shape: Shape, dtype: DType, like: Array) -> Array:
    """Return an unset array in memory that was used before, as fresh pages cost as much as a small product."""
    nbytes = prod(shape) * dtype.itemsize
    if nbytes < POOLED or library_of(like) is not np:
        return library_of(like).empty(shape, dtype)
    return np.ndarray(shape, dtype, CPU.allocate(nbytes))


def batch_as(x: Array, channels: int, lengths: Shape, dtype: DType, last: bool, result_last: bool) -> Array:
    """Return an unset batch for a result computed from a batch x, with the memory layout of `result_strides`.

    last, result_last: whether channels are the last axis of x, and of the result.
    """
    if not follows(x.shape, x.strides, last, result_last):
        return empty(batched(x.shape[0], channels, lengths, result_last), dtype, x)
    found = empty(batched(x.shape[0], channels, lengths, True), dtype, x)
    return found.transpose(0, found.ndim - 1, *range(1, found.ndim - 1))


class Scratch:
    """Scratch memory of one thread, handed out from its beginning for each tile."""

    def __init__(self, nbytes: int) -> None:
        self._memory = CPU.allocate(nbytes)
        self._used = 0

    def clear(self) -> None:
        """Take back all memory, for the next tile."""
        self._used = 0

    def array(self, shape: Shape, dtype: Any) -> Array:
        """Return an unset array."""
        start = self._used
        self._used = start + rounded(prod(shape) * dtype.itemsize)
        return np.ndarray(shape, dtype, self._memory, start)


def channels_last(x: Array) -> bool:
    """Return whether the channels are adjacent in memory."""
    return bool(abs(x.strides[2]) < abs(x.strides[-1]))


def readable(x: Array, dtype: Any) -> bool:
    """Return whether generated code can read an array in place."""
    return bool(x.dtype == dtype and x.flags.aligned) and not any(step % x.itemsize for step in x.strides)


def pays(native: Array, multiplications: int, often: bool) -> bool:
    """Return whether so many multiplications are worth generated code; those that come often always are."""
    return worth_compiling(native, native.dtype, max(multiplications, often * CONTRACTION_COMPILED))


def packed(g: Tensor) -> Tensor:
    """Return a cotangent of which elements are repeated, as that of a sum, in memory of its own: code for tiles and
    strips reads no others.
    """
    value: Any = g._content
    is_pending = type(value) is Node and value.blob is None and type(value.op) is not View
    return g if is_pending or 0 not in g.strides else cast(Tensor, xt.asarray(g, copy=True))


def natively(function: str, tensors: tuple[Tensor, ...], run: Callable[..., Array]) -> Tensor:
    """Return the result of a function of NumPy arrays as a tensor, under the settings in force here.

    The function holds no arrays, so that it can be a step of a captured function.
    """
    device = common_device(function, tensors)
    capture = watching() if watchers else None
    if capture is not None:
        return cast(Tensor, captured_call(capture, tensors, function, run, device))
    backend, natives = device.backend, [native_of(x) for x in tensors]
    run = noting(run, backend, function) if observers else run
    if backend is not CPU:
        return wrap(backend.compute(run, *natives), device)
    with np.errstate(all="ignore"):
        return wrap(run(*natives), device)


def rounded(nbytes: int) -> int:
    return -(-nbytes // _ALIGNED) * _ALIGNED


def even(length: int, most: int, block: int = 1) -> int:
    """Return the length of roughly equal parts of at most `most`, a multiple of `block` if there are several parts."""
    if length <= most:
        return max(length, 1)
    parts = -(-length // max(most // block * block, block))
    return -(-length // (parts * block)) * block


def _cuts(length: int, step: int) -> list[slice]:
    return [slice(start, min(start + step, length)) for start in range(0, length, step)]


def _seen_as(array: Array, shape: Shape) -> Array | None:
    """Return an array as a stack of matrices that BLAS reads in place, None where they would have to be copied."""
    try:
        seen = np.reshape(array, shape, copy=False)
    except ValueError:
        return None
    item, (row, column) = seen.itemsize, seen.strides[-2:]
    rows, columns = shape[-2:]
    fits = (column == item and row >= columns * item) or (row == item and column >= rows * item)
    return seen if fits else None


# ---- what is computed


def working_dtype(x: Array, w: Array, result: DType, inner: int) -> DType:
    """Return the dtype of products: exact for integers, as float64 while every sum stays below 2^53."""
    if result == np.float16:
        return np.dtype(np.float32)
    if result.kind not in "iu":
        return result
    largest = inner
    for one in (x, w):
        bounds = np.iinfo(one.dtype) if one.dtype.itemsize <= 2 else None
        low, high = (bounds.min, bounds.max) if bounds else (int(one.min(initial=0)), int(one.max(initial=0)))
        largest *= max(-low, high)
    return np.dtype(np.float64 if largest < 1 << 53 else result)


def store(target: Array, found: Array) -> None:
    """Write a product; exact floats become integers through int64, so that they wrap as sums of integers do."""
    if target.dtype.kind in "iu" and found.dtype.kind == "f":
        found = found.astype(np.int64)
    np.copyto(target, found.reshape(target.shape), casting="unsafe")


def contract(function: str, x: Array, w: Array, y: Array, bias: Array | None, axes: Axes, budget: int) -> None:
    """Write the sums over windows times weights, plus a bias (groups, outputs), into y.

    Raises ValueError if a single output takes more scratch memory than `budget` bytes.
    """
    if not y.size:
        return
    if not x.shape[2]:
        y[...] = 0 if bias is None else bias.reshape(*bias.shape, *[1] * len(axes))
        return
    if library_of(x) is not np:
        elsewhere.contract(x, w, y, bias, axes, budget)
        return
    dtype = working_dtype(x, w, y.dtype, x.shape[2] * volume(axes))
    tiles = Tiles(function, x, y, axes, dtype, budget, _weight_scratch(x, w, dtype))
    weights = tiles.weights(w)
    shift = None if bias is None else _beside(bias, len(axes), tiles.rows)

    def work(scratch: Scratch, left: Iterator[Tile]) -> None:
        for tile in left:
            scratch.clear()
            columns = tiles.columns(tile, scratch)
            part = tiles.outputs(tile)
            found = target = tiles.matrix(part)
            if found is None:
                shape = (columns.shape[0], columns.shape[1], y.shape[2])
                found = scratch.array(shape if tiles.rows else (shape[0], shape[2], columns.shape[2]), tiles.dtype)
            own = weights[tile.groups]
            np.matmul(*((columns, own) if tiles.rows else (own, columns)), out=found)
            if target is None:
                store(part, found)
            if shift is not None:
                part += shift[tile.groups]

    tiles.run(work, list(tiles), tiles.workers)


def _beside(bias: Array, rank: int, rows: bool) -> Array:
    """Return a bias (groups, outputs) with the axes that Tiles.outputs has between or after these."""
    between = (1,) * (1 + rank)
    return bias.reshape(bias.shape[0], *((*between, -1) if rows else (-1, *between)))


def _weight_scratch(x: Array, w: Array, dtype: Any) -> int:
    """Return the bytes of a copy of the weights, 0 where their matrices are views of w."""
    matrices = np.moveaxis(w, 2, -1) if channels_last(x) else w
    seen = w.dtype == dtype and _seen_as(matrices, (*w.shape[:2], prod(w.shape[2:]))) is not None
    return 0 if seen else rounded(w.size * dtype.itemsize)


def summing_dtype(dtype: DType, multiplications: int) -> DType:
    """Return the dtype in which this many products of a weight gradient are added up."""
    return np.dtype(np.float64) if dtype == np.float32 and multiplications <= FEW else dtype


def contract_weights(function: str, x: Array, y: Array, w: Array, axes: Axes, budget: int) -> None:
    """Write the sums over positions of y times the windows there into w: the gradient of `contract` by its weights.

    Tiles are distributed over lanes, each lane adds up its own tiles in order, and the lanes are added in order.
    """
    if not w.size or not y.size:
        w[...] = 0
        return
    if library_of(x) is not np:
        elsewhere.contract_weights(x, y, w, axes, budget)
        return
    groups, outputs, inner = w.shape[0], w.shape[1], prod(w.shape[2:])
    dtype = summing_dtype(working_dtype(x, y, w.dtype, y.shape[0] * prod(outs(axes))), y.size * inner)
    one = rounded(w.size * dtype.itemsize)
    lanes = max(1, min(LANES, budget // (4 * one)))
    tiles = Tiles(function, x, y, axes, dtype, budget, 2 * lanes * one)
    items = list(tiles)
    lanes = min(lanes, len(items))
    sums = Scratch(2 * lanes * one)
    shape = (groups, *((outputs, inner) if tiles.rows else (inner, outputs)))
    totals = [sums.array(shape, dtype) for _ in range(lanes)]
    products = [sums.array(shape, dtype) for _ in range(lanes)]

    def work(scratch: Scratch, left: Iterator[int]) -> None:
        for lane in left:
            totals[lane].fill(0)
            for tile in items[lane::lanes]:
                scratch.clear()
                columns = tiles.columns(tile, scratch)
                given = _given(tiles, tile, scratch)
                found = products[lane][tile.groups]
                np.matmul(*((given, columns) if tiles.rows else (columns, given)), out=found)
                totals[lane][tile.groups] += found

    tiles.run(work, list(range(lanes)), tiles.workers)
    for other in totals[1:]:
        totals[0] += other
    total = totals[0] if tiles.rows else totals[0].mT
    if tiles.channels_last:
        total = np.moveaxis(total.reshape(*w.shape[:2], *w.shape[3:], w.shape[2]), -1, 2)
    store(w, total.reshape(w.shape))


def _given(tiles: Tiles, tile: Tile, scratch: Scratch) -> Array:
    """Return a tile of y as transposed matrices."""
    part = tiles.outputs(tile)
    found = tiles.matrix(part)
    if found is not None:
        return found.mT
    part = np.moveaxis(part, -1, 1) if tiles.rows else np.moveaxis(part, 1, -1)
    copied = scratch.array(part.shape, tiles.dtype)
    np.copyto(copied, part, casting="unsafe")
    places = part.size // max(part.shape[0] * tiles.y.shape[2], 1)
    return copied.reshape(part.shape[0], *((-1, places) if tiles.rows else (places, tiles.y.shape[2])))

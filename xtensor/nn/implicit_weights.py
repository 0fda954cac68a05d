"""Gradients of weights of convolutions by the contraction kernel, and those of single channels by sums in registers."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import product
from math import prod
from typing import Any

import numpy as np

from ..codegen.cpu.channels import channels_weights_kernel
from ..codegen.cpu.compile import Code, host
from ..codegen.cpu.turning import turning_of
from ..run.contractions import (
    Product,
    Rows,
    address,
    columns_of,
    rows_of,
    steps,
    worth_compiling,
)
from .contraction import LANES, TILES, Array, Scratch, Sizes, Tile, channels_last, rounded, summing_dtype
from .implicit import (
    ChannelsFirst,
    Channelwise,
    Implicit,
    _columns,
    _inner,
    _offsets,
    _parts,
    _readable,
    plane_of,
)
from .planes import SLOWER
from .windows import Axes, kernels, volume

# Windows of so many elements are added up in registers, where channels come last so many channels at a time.
LARGEST_SUMS, CHANNELS = 25, 64


class ChannelwiseWeights(Channelwise):
    """The gradient of weights of a depthwise convolution where channels come last."""

    def _shares(self, positions: int) -> int:
        return TILES  # sums are cut where tiles are: never by the number of threads

    def add_up(self) -> Array:
        """Return the sums (window, channels)."""
        rank, item, tiles = len(self.axes), self.dtype.itemsize, list(self)
        totals: Array = np.zeros((volume(self.axes), self.x.shape[1]), self.dtype)
        code = _summing(self.dtype, self.axes)

        def work(scratch: Scratch, left: Iterator[slice]) -> None:
            for groups, tile in product(left, tiles):
                scratch.clear()
                x = self._windows(tile._replace(groups=groups), scratch)
                y, own = self.y[(tile.batch, groups, 0, *tile.box)], totals[:, groups]
                of_x, of_y = ([step // item for step in a.strides] for a in (x, y))
                counts = (y.shape[0], *y.shape[2:-1])
                taps = _offsets(x.shape[3 + rank :], tuple(of_x[3 + rank :]))
                rows = [
                    _offsets(counts, (of[0], *of[first : first + rank - 1])) for of, first in ((of_x, 3), (of_y, 2))
                ]
                numbers = (x.shape[1], prod(counts), y.shape[-1], of_x[2 + rank], of_y[-1], totals.shape[1])
                code.call(struct.pack("=12q", *map(address, (x, y, own, taps, *rows)), *numbers))

        channels = self.x.shape[1]
        self.run(work, [slice(n, min(n + CHANNELS, channels)) for n in range(0, channels, CHANNELS)], self.workers)
        return totals


class PlanewiseWeights(ChannelsFirst):
    """The same where channels come first: sums of columns, which are then added."""

    def _shares(self, positions: int) -> int:
        return TILES

    def add_up(self) -> Array:
        """Return the sums (groups, window)."""
        item, width = self.dtype.itemsize, self.sizes.box[-1]
        totals: Array = np.zeros((self.x.shape[1], volume(self.axes), width), self.dtype)
        code, tiles = _summing(self.dtype, self.axes), list(self)
        own = {
            (tile.groups.start, tile.groups.stop): [one for one in tiles if one.groups == tile.groups] for tile in tiles
        }

        def work(scratch: Scratch, left: Iterator[list[Tile]]) -> None:
            for tile in (tile for group in left for tile in group):
                scratch.clear()
                parts = tuple((part.start, part.stop) for part in (tile.batch, *tile.box))
                plane = plane_of(self._axes, parts)
                given, _ = self._given(tile, plane, scratch, None)
                y = self.y[(tile.batch, tile.groups, 0, *tile.box)]
                counts = (y.shape[0], *y.shape[2:-1])
                of_y = tuple(step // item for step in (y.strides[0], *y.strides[2:-1]))
                tables = (
                    address(plane.offsets),
                    address(_offsets(counts, given.strides[:-1])),
                    address(_offsets(counts, of_y)),
                )
                for x, g, sums in zip(given.groups, y.swapaxes(0, 1), totals[tile.groups], strict=True):
                    told = address(x), address(g), address(sums), *tables, y.shape[-1], prod(counts), 1, 0, 0, width
                    code.call(struct.pack("=12q", *told))

        self.run(work, list(own.values()), self.workers)
        return totals.sum(axis=2)


def _summing(dtype: Any, axes: Axes) -> Code:
    machine = host()
    assert machine is not None
    return channels_weights_kernel(dtype.char, machine.vector_bytes // dtype.itemsize, volume(axes))


class Weights(Implicit):
    """The gradient of weights, added up over tiles: a sum over positions of elements of windows times outputs.

    Matrices of it have `lines` rows, of which each thread makes some.
    """

    @property
    def lines(self) -> int:
        raise NotImplementedError

    def _part(self, lines: int, positions: int) -> Product:
        """Return the product of some lines and positions."""
        raise NotImplementedError

    def _add(self, tile: Tile, lines: slice, total: Array, scratch: Scratch) -> None:
        """Add what some lines are given by a tile to their matrices."""
        raise NotImplementedError

    def _shares(self, positions: int) -> int:
        return TILES  # sums are cut where tiles are: never by the number of threads

    def _bytes(self, sizes: Sizes) -> int:
        """Return the most scratch that a tile takes: padded input, and outputs copied and turned."""
        one = self._part(self.lines, sizes.positions)
        outputs = (self.y.shape[2] + one.form.width) * (sizes.positions + one.form.lanes) * self.dtype.itemsize
        padded = sizes.groups * self._padded_size(sizes) * self.dtype.itemsize
        return rounded(padded) + rounded(one.scratch(False)) + (1 + sizes.groups) * rounded(outputs)

    def _sum(self, lines: int, columns: int, positions: int, turned: bool = False) -> Product:
        """Return the product of so many lines, whose tiles are as wide as those of all of them."""
        registers = Product(self.dtype, self.lines, columns, positions).form.registers
        return Product(self.dtype, lines, columns, positions, registers, turned=turned)

    def add_up(self, lanes: int) -> Array:
        """Return the sums as matrices (groups, lines, any): tiles are dealt out to lanes, which are added in order."""
        tiles, groups, one = list(self), self.x.shape[1], self._part(self.lines, 1)
        lanes = min(lanes, len(tiles))
        totals = Scratch(self.fixed).array((lanes, groups, self.lines, one.columns), self.dtype)
        totals.fill(0)
        parts = _parts(self.lines, lanes, self.workers)
        self.prepare([self._part(part.stop - part.start, 1) for part in parts])
        self.turning = turning_of(one.form)

        def work(scratch: Scratch, left: Iterator[tuple[int, slice]]) -> None:
            for lane, lines in left:
                for tile in tiles[lane::lanes]:
                    scratch.clear()
                    self._add(tile, lines, totals[lane, tile.groups, lines], scratch)

        self.run(work, list(product(range(lanes), parts)), self.workers)
        for other in totals[1:]:
            totals[0] += other
        return totals[0]

    def _outputs(self, tile: Tile, scratch: Scratch) -> Array:
        """Return a tile of y as matrices whose rows are contiguous."""
        part = self.outputs(tile)
        found = self.matrix(part)
        if found is not None and found.strides[2] == found.itemsize and found.flags.aligned:
            return found
        copied = scratch.array(part.shape, self.dtype)
        np.copyto(copied, part, casting="unsafe")
        return copied.reshape(part.shape[0], *((-1, part.shape[-1]) if self.rows else (part.shape[1], -1)))


class WeightsFirst(Weights, ChannelsFirst):
    """The sums where channels come first: their rows are elements of the window."""

    @property
    def lines(self) -> int:
        return self.inner

    def _part(self, lines: int, positions: int) -> Product:
        return self._sum(lines, self.y.shape[2], positions)

    def _add(self, tile: Tile, lines: slice, total: Array, scratch: Scratch) -> None:
        parts = tuple((part.start, part.stop) for part in (tile.batch, *tile.box))
        plane = plane_of(self._axes, parts)
        given, _ = self._given(tile, plane, scratch, None)
        outputs = self._outputs(tile, scratch)
        one = self._part(lines.stop - lines.start, tile.positions)
        panels = scratch.array(one.packed_shape, self.dtype)
        room = scratch.array((one.scratch(True),), np.dtype(np.uint8))
        counts = tuple(stop - start for start, stop in parts)
        of_x = rows_of(
            _inner(self._axes, parts, self.x.shape[2], given.channel)[lines], _offsets(counts, given.strides)
        )
        columns, tos = _columns((one.columns,), (1,), (1,), one.form), steps(tile.positions, one.form.width)
        targets = steps(one.rows, total.strides[1] // total.itemsize)
        for x, y, sums in zip(given.groups, outputs, total, strict=True):
            for call in one.packing(y, tos, panels):
                self.turning.call(call)
            told = one.told(
                *(address(x), of_x, address(panels), None, columns, address(sums), targets, address(room)), fresh=False
            )
            self.codes[one.form].call(told)


class WeightsLast(Weights):
    """The sums where channels come last: their rows are outputs."""

    def __init__(self, function: str, x: Array, y: Array, axes: Axes, dtype: Any, budget: int, fixed: int) -> None:
        super().__init__(function, x, y, axes, dtype, budget, fixed)
        self.channels_last = True
        self.in_place = _readable(x, dtype) and x.strides[2] == x.itemsize

    @property
    def lines(self) -> int:
        return int(self.y.shape[2])

    def _part(self, lines: int, positions: int) -> Product:
        return self._sum(lines, self.inner, positions, turned=True)

    def _padded_size(self, sizes: Sizes) -> int:
        return int(sizes.batch * self.x.shape[2] * prod(self._reach(sizes.box)))

    def _add(self, tile: Tile, lines: slice, total: Array, scratch: Scratch) -> None:
        rank, item = len(self.axes), self.dtype.itemsize
        windows, y = self._windows(tile, scratch), self.y[(tile.batch, tile.groups, lines, *tile.box)]
        if not _readable(y, self.dtype) or y.strides[2] != item:
            copied = scratch.array((y.shape[0], *y.shape[3:], *y.shape[1:3]), self.dtype)
            target = np.moveaxis(copied, (-2, -1), (1, 2))
            np.copyto(target, y, casting="unsafe")
            y = target
        one = self._part(y.shape[2], tile.positions)
        room = scratch.array((one.scratch(False),), np.dtype(np.uint8))
        of_x, of_y = ([step // item for step in a.strides] for a in (windows, y))
        counts = (windows.shape[0], *windows.shape[3 : 3 + rank])
        terms = _offsets(counts, (of_x[0], *of_x[3 : 3 + rank]))
        window = (*kernels(self.axes), windows.shape[2]), (*of_x[3 + rank :], of_x[2])
        columns = columns_of(_offsets(*window), steps(self.inner, 1), one.form)
        rows = Rows(steps(one.rows, 1), _offsets(counts, (of_y[0], *of_y[3:])), terms)  # runs do not count
        targets = steps(one.rows, total.strides[1] // item)
        for g, sums in enumerate(total):
            places = address(y[:, g]), rows, address(windows[:, g]), terms, columns, address(sums), targets
            self.codes[one.form].call(one.told(*places, address(room), fresh=False))


def convolve_weights(function: str, x: Array, y: Array, w: Array, axes: Axes, budget: int) -> bool:
    """Write what `contract_weights` writes, if that is worth compiling; return whether."""
    if w.dtype.kind != "f" or not w.size or not y.size:
        return False
    work = y.size * w[0, 0].size
    if _convolve_weights_of_channels(function, x, y, w, axes, budget):
        return True
    if not worth_compiling(y, w.dtype, work):
        return False
    dtype = summing_dtype(w.dtype, y.size * w[0, 0].size)
    one = rounded(w.size * dtype.itemsize)
    lanes = max(1, min(LANES, budget // (4 * one)))
    if channels_last(y):
        total = WeightsLast(function, x, y, axes, dtype, budget, lanes * one).add_up(lanes)
        w[...] = np.moveaxis(total.reshape(*w.shape[:2], *w.shape[3:], w.shape[2]), -1, 2)
    else:
        w[...] = WeightsFirst(function, x, y, axes, dtype, budget, lanes * one).add_up(lanes).mT.reshape(w.shape)
    return True


def _convolve_weights_of_channels(function: str, x: Array, y: Array, w: Array, axes: Axes, budget: int) -> bool:
    """Write the gradient of weights of a depthwise convolution, if that is worth compiling; return whether."""
    fits = w.shape[0] > 1 == w.shape[1] == w.shape[2] and volume(axes) <= LARGEST_SUMS
    if not fits or not worth_compiling(y, w.dtype, SLOWER * y.size * volume(axes)) or not _readable(y, w.dtype):
        return False
    if y.strides[1] == y.itemsize:
        w[...] = ChannelwiseWeights(function, x, y, axes, budget, w.nbytes).add_up().T.reshape(w.shape)
    elif y.strides[-1] == y.itemsize:
        width = axes[-1].out * w.nbytes
        w[...] = PlanewiseWeights(function, x, y, axes, w.dtype, budget, width).add_up().reshape(w.shape)
    else:
        return False
    return True

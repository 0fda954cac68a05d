"""Gradients of many weights of convolutions by the contraction kernel."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import ceil, prod
from typing import Any

import numpy as np

from ..codegen.cpu.turning import turning_of
from ..run.contractions import (
    Product,
    Rows,
    address,
    columns_of,
    rows_of,
    steps,
    turning,
    worth_compiling,
)
from .contraction import LANES, TILES, Array, Scratch, Sizes, Tile, channels_last, readable, rounded, summing_dtype
from .implicit import (
    ChannelsFirst,
    Implicit,
    _columns,
    _inner,
    plane_of,
)
from .panels import offsets
from .windows import Axes, Axis, kernels, volume

# The least terms of the sums in a lane: to add up lanes takes as long as some terms do.
LANE_TERMS = 1 << 10

# Where there are few tiles, threads share lines of the sums, so many at least for each.
SHARED_LINES = 24


class Weights(Implicit):
    """The gradient of weights, added up over tiles: a sum over positions of elements of windows times outputs.

    Matrices of it have `lines` rows, of which each thread makes some, or some columns, whichever there are more of:
    what is packed of the others is packed for each part again. turned: whether rows of A follow each other.
    """

    turned = False

    @property
    def lines(self) -> int:
        raise NotImplementedError

    @property
    def columns_of_all(self) -> int:
        """The columns of the matrices."""
        raise NotImplementedError

    @property
    def together(self) -> int:
        """Lines that are made together."""
        raise NotImplementedError

    def _part(self, lines: int, columns: int, positions: int) -> Product:
        """Return the product of some lines, columns and positions, whose tiles are as wide as those of all of them."""
        registers = Product(self.dtype, self.lines, self.columns_of_all, positions).form.registers
        return Product(self.dtype, lines, columns, positions, registers, turned=self.turned)

    def _add(self, tile: Tile, lines: slice, columns: slice, total: Array, scratch: Scratch) -> None:
        """Add what some lines and columns are given by a tile to their matrices."""
        raise NotImplementedError

    def _shares(self, positions: int) -> int:
        terms = positions // max(self.x.shape[1], 1)
        return max(1, min(TILES, terms // LANE_TERMS))  # sums are cut where tiles are: never by the number of threads

    def _bytes(self, sizes: Sizes) -> int:
        """Return the most scratch that a tile takes: padded input, and outputs copied and turned."""
        one = self._part(self.lines, self.columns_of_all, sizes.positions)
        outputs = (self.y.shape[2] + one.form.width) * (sizes.positions + one.form.lanes) * self.dtype.itemsize
        padded = sizes.groups * self._padded_size(sizes) * self.dtype.itemsize
        return rounded(padded) + rounded(one.scratch(False)) + (1 + sizes.groups) * rounded(outputs)

    def add_up(self, lanes: int) -> Array:
        """Return the sums as matrices (groups, lines, any): tiles are dealt out to lanes, which are added in order."""
        tiles, groups, counts = list(self), self.x.shape[1], (self.lines, self.columns_of_all)
        lanes = min(lanes, len(tiles))
        totals = Scratch(self.fixed).array((lanes, groups, *counts), self.dtype)
        form = self._part(self.lines, self.columns_of_all, 1).form
        parts = [[slice(0, count)] for count in counts]
        longer = counts[1] > counts[0]
        parts[longer] = _parts(counts[longer], lanes, self.workers, form.width if longer else self.together)
        self.prepare([self._part(a.stop - a.start, b.stop - b.start, 1) for a, b in product(*parts)])
        self.turning, self.lanes = turning_of(form), form.lanes

        def work(scratch: Scratch, left: Iterator[tuple[int, slice, slice]]) -> None:
            for lane, lines, columns in left:
                total = totals[lane, :, lines, columns]
                total.fill(0)
                for tile in tiles[lane::lanes]:
                    scratch.clear()
                    self._add(tile, lines, columns, total[tile.groups], scratch)

        self.run(work, list(product(range(lanes), *parts)), self.workers)
        for other in totals[1:]:
            totals[0] += other
        return totals[0]


class WeightsFirst(Weights, ChannelsFirst):
    """The sums where channels come first: their rows are elements of the window."""

    @property
    def lines(self) -> int:
        return self.inner

    @property
    def columns_of_all(self) -> int:
        return int(self.y.shape[2])

    @property
    def together(self) -> int:
        return volume(self.axes)  # a channel's

    def write(self, w: Array, lanes: int) -> None:
        """Write the sums, whose rows are the columns of w, by code where registers are whole."""
        totals = self.add_up(lanes)
        if self.inner % self.lanes or not w.flags.c_contiguous or w.dtype != self.dtype:
            w[...] = totals.mT.reshape(w.shape)
            return
        tos = steps(w.shape[1], self.inner)
        for total, target in zip(totals, w, strict=True):
            self.turning.call(turning(total, tos, target, self.inner, 0))

    def _outputs(self, tile: Tile, image: int, scratch: Scratch) -> Array:
        """Return an image of a tile of y as matrices whose rows are contiguous."""
        part = self.outputs(tile._replace(batch=slice(image, image + 1)))
        found = self.matrix(part)
        if found is not None and found.strides[2] == found.itemsize and found.flags.aligned:
            return found
        copied = scratch.array(part.shape, self.dtype)
        np.copyto(copied, part, casting="unsafe")
        return copied.reshape(*part.shape[:2], -1)

    def _add(self, tile: Tile, lines: slice, columns: slice, total: Array, scratch: Scratch) -> None:
        parts = tuple((part.start, part.stop) for part in (tile.batch, *tile.box))
        plane = plane_of(self._axes, parts)
        channels = slice(lines.start // self.together, lines.stop // self.together)
        given = self._given(tile, plane, scratch, channels)
        images = [self._outputs(tile, image, scratch)[:, columns] for image in range(*parts[0])]
        one = self._part(lines.stop - lines.start, columns.stop - columns.start, tile.positions)
        panels, each = scratch.array(one.packed_shape, self.dtype), tile.positions // len(images)
        room = scratch.array((one.scratch(True),), np.dtype(np.uint8))
        counts = tuple(stop - start for start, stop in parts)
        elements = _inner(self._axes, parts, channels.stop - channels.start, given.channel)
        of_x = rows_of(elements, offsets(counts, given.strides))
        table, tos = _columns((one.columns,), (1,), (1,), one.form), steps(tile.positions, one.form.width)
        targets = steps(one.rows, total.strides[1] // total.itemsize)
        for group, (x, sums) in enumerate(zip(given.groups, total, strict=True)):
            for n, image in enumerate(images):
                self.turning.call(one.packing(image[group], tos[n * each :], panels))
            told = one.told(
                *(address(x), of_x, address(panels), None, table, address(sums), targets, address(room)), fresh=False
            )
            self.codes[one.form].call(told)


class WeightsLast(Weights):
    """The sums where channels come last: their rows are outputs."""

    turned = True

    def __init__(self, function: str, x: Array, y: Array, axes: Axes, dtype: Any, budget: int, fixed: int) -> None:
        super().__init__(function, x, y, axes, dtype, budget, fixed)
        self.channels_last = True
        self.in_place = readable(x, dtype) and x.strides[2] == x.itemsize

    @property
    def lines(self) -> int:
        return int(self.y.shape[2])

    @property
    def columns_of_all(self) -> int:
        return self.inner

    @property
    def together(self) -> int:
        return 1

    def _padded_size(self, sizes: Sizes) -> int:
        return int(sizes.batch * self.x.shape[2] * prod(self._reach(sizes.box)))

    def _add(self, tile: Tile, lines: slice, columns: slice, total: Array, scratch: Scratch) -> None:
        rank, item = len(self.axes), self.dtype.itemsize
        windows, y = self._windows(tile, scratch), self.y[(tile.batch, tile.groups, lines, *tile.box)]
        if not readable(y, self.dtype) or y.strides[2] != item:
            copied = scratch.array((y.shape[0], *y.shape[3:], *y.shape[1:3]), self.dtype)
            target = np.moveaxis(copied, (-2, -1), (1, 2))
            np.copyto(target, y, casting="unsafe")
            y = target
        one = self._part(y.shape[2], columns.stop - columns.start, tile.positions)
        room = scratch.array((one.scratch(False),), np.dtype(np.uint8))
        of_x, of_y = ([step // item for step in a.strides] for a in (windows, y))
        counts = (windows.shape[0], *windows.shape[3 : 3 + rank])
        terms = offsets(counts, (of_x[0], *of_x[3 : 3 + rank]))
        window = (*kernels(self.axes), windows.shape[2]), (*of_x[3 + rank :], of_x[2])
        table = columns_of(offsets(*window)[columns], steps(one.columns, 1), one.form)
        rows = Rows(steps(one.rows, 1), offsets(counts, (of_y[0], *of_y[3:])), terms)  # runs do not count
        targets = steps(one.rows, total.strides[1] // item)
        for g, sums in enumerate(total):
            places = address(y[:, g]), rows, address(windows[:, g]), terms, table, address(sums), targets
            self.codes[one.form].call(one.told(*places, address(room), fresh=False))


def convolve_weights(function: str, x: Array, y: Array, w: Array, axes: Axes, budget: int) -> bool:
    """Write what `contract_weights` writes, if that is worth compiling; return whether."""
    if w.dtype.kind != "f" or not w.size or not y.size:
        return False
    work = y.size * w[0, 0].size
    if not worth_compiling(y, w.dtype, work):
        return False
    dtype = summing_dtype(w.dtype, y.size * w[0, 0].size)
    one = rounded(w.size * dtype.itemsize)
    terms = y.size // (w.shape[0] * w.shape[1])
    lanes = max(1, min(LANES, budget // (4 * one), terms // LANE_TERMS))
    if channels_last(y):
        total = WeightsLast(function, x, y, axes, dtype, budget, lanes * one).add_up(lanes)
        w[...] = np.moveaxis(total.reshape(*w.shape[:2], *w.shape[3:], w.shape[2]), -1, 2)
    elif not channels_last(x) and all(axis == Axis(axis.out, axis.out, 1, 1, axis.dilation, 0) for axis in axes):
        w[...] = WeightsFirst(function, y, x, axes, dtype, budget, lanes * one).add_up(lanes).reshape(w.shape)
    else:
        WeightsFirst(function, x, y, axes, dtype, budget, lanes * one).write(w, lanes)
    return True


def _parts(length: int, tiles: int, workers: int, together: int) -> list[slice]:
    """Return the parts of lines or columns that are made at a time, so many together at least, so that all threads have
    about as much to do.
    """
    wanted = 1 if tiles >= 2 * workers or workers == 1 else ceil(2 * workers / tiles)
    step = ceil(length / max(min(wanted, length // SHARED_LINES), 1) / together) * together
    return [slice(start, min(start + step, length)) for start in range(0, length, step)]

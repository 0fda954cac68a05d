"""Convolutions of single elements whose channels come first, as products: what codegen/cpu/strip_products.py is told.

x, w and y are as in `contraction`. Where there are few strips, threads share the rows of each. (With AVX-512 layers of
64 to 1024 channels take .75 to .95 of the time of strips.py, which turns squares of rows and columns on their way.)
"""

from __future__ import annotations

from itertools import product
from math import ceil, prod
from typing import NamedTuple

import numpy as np

from ..base.layout import Shape
from ..codegen.cpu.compile import Code, host
from ..codegen.cpu.finish import ROWS
from ..codegen.cpu.strip_products import products_kernel
from ..codegen.cpu.strip_rows import Strip
from ..plan.costs import POSITIONS
from ..run.contractions import Columns, Product, address, columns_of, rows_of, steps
from ..run.joined import Ending
from ..run.launches import BIAS, Sheet, View, W, X, Y
from ..run.native import Launch, Word
from .contraction import Array, even, rounded
from .panels import matrix, offsets
from .strips import Bases, Made, Room, Strips, Weights, _lie, _Sweep, rows_in_place
from .windows import Axes, Axis


def products_of(
    x: Array, w: Array, y: Array, axes: Axes, bases: Bases, budget: int, ending: Ending | None
) -> Made | None:
    """Return a convolution of views of the bases x, w, y and bias, None where it is not for these."""
    machine, lies = host(), _lie(x, w, y, axes)
    if machine is None or lies is None or lies.first or not all(lies.turned):
        return None
    there = None if rows_in_place(x, y, w.shape[1], axes, lies) else _in_place(x, y, axes)
    if there is None:
        return None
    x, y = there
    of_x, of_y = View(x, X, bases[0]), View(y, Y, bases[2])
    channels, apart = x.shape[2], (of_x.steps[3], of_y.steps[3])
    room = Room(0, 0, 1, 1, np.arange(channels) * of_x.steps[2], 0, 0, 0, channels, 0, 0)
    strips, shapes = _segments(x.shape[3:], *apart)
    finish, of_w = None if ending is None else ending.along(ROWS), View(w, W, bases[1])
    turned = of_w.steps[1] == 1 < channels and (len(w) == 1 or of_w.steps[0] == w.shape[1] * channels)
    one = Product(y.dtype, w.shape[1], max(map(prod, shapes)), channels, finish=finish, turned=turned)
    sweep = _Sweep(room, of_x, of_y, axes, channels, w.shape[1], True, strips, -(-w.shape[1] // one.form.height))
    bias = None if bases[3] is None else View(bases[3], BIAS, bases[3])
    code = products_kernel(Strip(y.dtype.char, one.form.lanes, 1, 1, 1), one.form, finish)
    slots = 0 if ending is None else len(ending.slots(0))
    found = _Products(code, sweep, one, shapes, apart, of_w, bias, slots)
    most = (budget - found.fixed) // found.each
    return Made(found.launches, most) if most > 0 else None


def _in_place(x: Array, y: Array, axes: Axes) -> tuple[Array, Array] | None:
    """Return views (1, groups, channels, images, places) of x and y where windows are read where they lie."""
    if any(axis != Axis(axis.out, axis.out, 1, 1, axis.dilation, 0) for axis in axes):
        return None
    turned = [a.transpose(1, 2, 0, *range(3, a.ndim)) for a in (x, y)]
    try:
        x, y = (a.reshape(1, *a.shape[:3], -1, copy=False) for a in turned)
    except ValueError:
        return None
    return (x, y) if x.strides[-1] == y.strides[-1] == y.itemsize else None


def _segments(counts: Shape, of_x: int, of_y: int) -> tuple[Strips, list[Shape]]:
    """Return strips of images, and of parts of them where these are large, and how many images and places they have."""
    images, places = counts
    most = max(min(ceil(images * places / 8), POSITIONS), POSITIONS // 4)
    rows, columns = (even(images, most // places, 1), places) if places <= most else (1, even(places, most, 64))
    begins = list(product(range(0, images, rows), range(0, places, columns)))
    xs, ys = (np.array([n * step + first for n, first in begins], np.int64) for step in (of_x, of_y))
    shapes: list[Shape] = [(min(rows, images - n), min(columns, places - first)) for n, first in begins]
    return Strips(xs, ys, np.arange(len(begins) + 1), len(begins), 1, 0), shapes


class _Products(NamedTuple):
    """A convolution: its code, and what that is told.

    shapes: rows and columns of the positions of each strip; apart: elements from one of these rows to the next, of what
    is packed and of y. slots: of what follows a group.
    """

    code: Code
    sweep: _Sweep
    product: Product
    shapes: list[Shape]
    apart: tuple[int, int]
    w: View
    bias: View | None
    slots: int

    @property
    def is_laid_out(self) -> bool:
        """Whether weights are matrices where they lie."""
        return self.product.form.turned or self.w.is_contiguous

    @property
    def fixed(self) -> int:
        """Bytes of scratch of all threads together."""
        return 0 if self.is_laid_out else rounded(prod(self.w.shape) * self.w.dtype.itemsize)

    @property
    def each(self) -> int:
        """Bytes of scratch of a thread."""
        return rounded(self.product.scratch(False))

    def launches(self, sheet: Sheet) -> list[Launch]:
        """Return what lays out biases, and the convolution; what lays out weights is part of the sheet's packing."""
        sweep, (groups, outputs, channels), dtype = self.sweep, self.w.shape[:3], self.w.dtype
        found, weights, lie = list[Launch](), self.w.at, self.w.steps
        if not self.is_laid_out:
            weights = sheet.pack(prod(self.w.shape), dtype)
            rows = offsets((groups, outputs), lie[:2])
            sheet.packing.append(matrix(self.w, rows, np.arange(channels) * lie[2], sweep.depth, sheet, weights))
        if self.bias is None:
            shift: Word = sheet.keep(np.zeros((groups, outputs), dtype))
        else:
            shift, own = sheet.take(groups * outputs, dtype), self.bias.steps
            lies = np.arange(groups) * own[0], np.arange(outputs) * own[1]
            found.append(matrix(self.bias, *lies, outputs, sheet, shift))
        parts, room = sweep.parts(sheet.threads), rounded(self.product.scratch(False))
        sums = sheet.take(min(sheet.threads, len(parts)) * room, np.dtype(np.uint8))
        given = Weights(weights, shift, sums, 0, room, self._told(sheet), self._columns(sheet))
        return [*found, sweep.launch(self.code, parts, sheet, given, self.slots)]

    def _told(self, sheet: Sheet) -> int:
        """Return where the words of the product lie."""
        one, sweep = self.product, self.sweep
        lie = (1, self.w.steps[2]) if one.form.turned else (one.depth, 1)
        rows = rows_of(steps(one.rows, lie[0]), steps(one.depth, lie[1]))
        targets = steps(one.rows, sweep.y.steps[2])
        for table in (*rows, sweep.room.ks, targets):
            sheet.keep(table)
        told = one.told(0, rows, 0, sweep.room.ks, self._table(self.shapes[0], sheet), 0, targets, 0)
        return sheet.keep(np.frombuffer(told, np.int64))

    def _table(self, shape: Shape, sheet: Sheet) -> Columns:
        """Return the table of columns of a strip."""
        sources, targets = [offsets(shape, (step, 1)) for step in self.apart]
        found = columns_of(sources, targets, self.product.form)
        for table in found:
            sheet.keep(table)
        return found

    def _columns(self, sheet: Sheet) -> int:
        """Return where the columns of all strips lie."""
        tables = {shape: self._table(shape, sheet) for shape in set(self.shapes)}
        words = [(*map(address, tables[shape]), len(tables[shape].panels)) for shape in self.shapes]
        return sheet.keep(np.array(words, np.int64))

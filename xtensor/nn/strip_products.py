"""Convolutions by single elements, channels first, as products: the arguments of codegen/cpu/strip_products.py.

x, w and y are as in `contraction`. Where there are few strips, threads share the rows of each product. (With AVX-512,
layers of 64 to 1024 channels take .75 to .95 of the time of strips.py, which transposes the input and the outputs.)
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
from ..run.launches import BIAS, Sheet, View, W
from ..run.native import Launch, Word
from .contraction import Array, even, rounded
from .panels import matrix, offsets
from .strips import Bases, Made, Room, Strips, Sweep, Weights, lie_of, rows_in_place
from .windows import Axes, Axis


def products_of(
    x: Array, w: Array, y: Array, axes: Axes, bases: Bases, budget: int, ending: Ending | None
) -> Made | None:
    """Return a convolution of views of the bases x, w, y and bias, None where this kernel does not apply."""
    machine, lies = host(), lie_of(x, w, y, axes)
    if machine is None or lies is None or lies.first or not all(lies.turned):
        return None
    there = None if rows_in_place(x, y, w.shape[1], axes, lies) else _in_place(x, y, axes)
    if there is None:
        return None
    x, y = there
    of_x, of_y = bases.views(x, y)
    channels, apart = x.shape[2], (of_x.steps[3], of_y.steps[3])
    room = Room(0, 0, 1, 1, np.arange(channels) * of_x.steps[2], 0, 0, 0, channels, 0, 0)
    strips, shapes = _segments(x.shape[3:], *apart)
    finish, of_w = None if ending is None else ending.along(ROWS), View(w, W, bases.w)
    turned = of_w.steps[1] == 1 < channels and (len(w) == 1 or of_w.steps[0] == w.shape[1] * channels)
    one = Product(y.dtype, w.shape[1], max(map(prod, shapes)), channels, finish=finish, turned=turned)
    sweep = Sweep(room, of_x, of_y, axes, channels, w.shape[1], True, strips, -(-w.shape[1] // one.form.height))
    bias = None if bases.bias is None else View(bases.bias, BIAS, bases.bias)
    code = products_kernel(Strip(y.dtype.char, one.form.lanes, 1, 1, 1), one.form, finish)
    slots = 0 if ending is None else len(ending.slots(0))
    found = _Products(code, sweep, one, shapes, apart, of_w, bias, slots)
    most = (budget - found.fixed) // found.each
    return Made(found.launches, most) if most > 0 else None


def _in_place(x: Array, y: Array, axes: Axes) -> tuple[Array, Array] | None:
    """Return views (1, groups, channels, images, places) of x and y, None unless windows can be read in place."""
    if any(axis != Axis(axis.out, axis.out, 1, 1, axis.dilation, 0) for axis in axes):
        return None
    turned = [a.transpose(1, 2, 0, *range(3, a.ndim)) for a in (x, y)]
    try:
        x, y = (a.reshape(1, *a.shape[:3], -1, copy=False) for a in turned)
    except ValueError:
        return None
    return (x, y) if x.strides[-1] == y.strides[-1] == y.itemsize else None


def _segments(counts: Shape, of_x: int, of_y: int) -> tuple[Strips, list[Shape]]:
    """Return strips of several images, or of parts of one if images are large, and the images and places of each."""
    images, places = counts
    most = max(min(ceil(images * places / 8), POSITIONS), POSITIONS // 4)
    rows, columns = (even(images, most // places, 1), places) if places <= most else (1, even(places, most, 64))
    begins = list(product(range(0, images, rows), range(0, places, columns)))
    xs, ys = (np.array([n * step + first for n, first in begins], np.int64) for step in (of_x, of_y))
    shapes: list[Shape] = [(min(rows, images - n), min(columns, places - first)) for n, first in begins]
    return Strips(xs, ys, np.arange(len(begins) + 1), len(begins), 1, 0), shapes


class _Products(NamedTuple):
    """A convolution: its code, and the arguments of that.

    shapes: images and places of each strip; apart: elements from one image to the next, of x, which is packed, and of
    y. slots: words of a group's slots for the steps that follow, or 0.
    """

    code: Code
    sweep: Sweep
    product: Product
    shapes: list[Shape]
    apart: tuple[int, int]
    w: View
    bias: View | None
    slots: int

    @property
    def is_laid_out(self) -> bool:
        """Whether the weights are matrices where they lie, and need no copy."""
        return self.product.form.turned or self.w.is_contiguous

    @property
    def fixed(self) -> int:
        """Bytes of scratch memory that all threads share."""
        return 0 if self.is_laid_out else rounded(prod(self.w.shape) * self.w.dtype.itemsize)

    @property
    def each(self) -> int:
        """Bytes of scratch memory of each thread."""
        return rounded(self.product.scratch(False))

    def launches(self, sheet: Sheet) -> list[Launch]:
        """Return the launches that lay out biases and convolve; weights are laid out by the sheet's packing."""
        sweep, (groups, outputs, channels), dtype = self.sweep, self.w.shape[:3], self.w.dtype
        found, weights, lie = list[Launch](), self.w.at, self.w.steps
        if not self.is_laid_out:
            weights = sheet.pack(prod(self.w.shape), dtype)
            rows = offsets((groups, outputs), lie[:2])
            sheet.packing.append(matrix(self.w, rows, np.arange(channels) * lie[2], sweep.depth, sheet, weights))
        if self.bias is None:
            shift: Word = sheet.keep(np.zeros((groups, outputs), dtype))
        else:
            shift, bias = sheet.take(groups * outputs, dtype), self.bias
            lies = np.arange(groups) * bias.steps[0], offsets(bias.shape[1:], bias.steps[1:])
            found.append(matrix(bias, *lies, outputs, sheet, shift))
        parts, room = sweep.parts(sheet.threads), rounded(self.product.scratch(False))
        sums = sheet.take(min(sheet.threads, len(parts)) * room, np.dtype(np.uint8))
        given = Weights(weights, shift, sums, 0, room, self._told(sheet), self._columns(sheet))
        return [*found, sweep.launch(self.code, parts, sheet, given, self.slots)]

    def _told(self, sheet: Sheet) -> int:
        """Return the address of the words of the product, but for what differs from strip to strip."""
        one, sweep = self.product, self.sweep
        lie = (1, self.w.steps[2]) if one.form.turned else (one.depth, 1)
        rows = rows_of(steps(one.rows, lie[0]), steps(one.depth, lie[1]))
        targets = steps(one.rows, sweep.y.steps[2])
        for table in (*rows, sweep.room.ks, targets):
            sheet.keep(table)
        told = one.told(0, rows, 0, sweep.room.ks, self._table(self.shapes[0], sheet), 0, targets, 0)
        return sheet.keep(np.frombuffer(told, np.int64))

    def _table(self, shape: Shape, sheet: Sheet) -> Columns:
        """Return the table of the columns of a strip."""
        sources, targets = [offsets(shape, (step, 1)) for step in self.apart]
        found = columns_of(sources, targets, self.product.form)
        for table in found:
            sheet.keep(table)
        return found

    def _columns(self, sheet: Sheet) -> int:
        """Return the address of the addresses of all strips' tables of columns, with the number of panels of each."""
        tables = {shape: self._table(shape, sheet) for shape in set(self.shapes)}
        words = [(*map(address, tables[shape]), len(tables[shape].panels)) for shape in self.shapes]
        return sheet.keep(np.array(words, np.int64))

"""Convolutions whose channels come first, by strips: what codegen/cpu/strip_products.py is told.

x, w and y are as in `contraction`. It is for registers of fewer than 64 bytes: of those strips.py turns squares of rows
and columns on their way, which takes no longer.
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
from ..codegen.cpu.strips import Strip
from ..plan.costs import PRODUCT_SECONDS
from ..run.contractions import Columns, Product, address, columns_of, rows_of, steps
from ..run.joined import Ending
from ..run.launches import BIAS, Launches, Sheet, View, W, Word, X, Y
from ..run.native import Launch
from .contraction import Array, pays, readable, rounded
from .panels import matrix, offsets
from .strips import Room, Strips, Weights, _even, _lie, _room_first, _strips, _Sweep
from .windows import Axes, Axis, phases_back

# Bytes of the rows under a strip, which are read once; positions of a strip that are worth packing the weights for.
ROOM_BYTES, POSITIONS = 1 << 20, 1 << 11

# Outputs that windows of several elements are worth packing for.
FEWEST = 64


def products_of(
    x: Array,
    w: Array,
    y: Array,
    bias: Array | None,
    axes: Axes,
    budget: int,
    *,
    back: bool = False,
    often: bool = False,
    ending: Ending | None = None,
) -> Launches | None:
    """Return what `strips_of` returns for the same arrays, None where it is not for such."""
    work, bases = (x if back else y).size * prod(w.shape[2:]), (x, w, y, bias)
    if not x.size or not pays(y, work, often) or not all(readable(one, y.dtype) for one in bases if one is not None):
        return None
    given = phases_back(w, y, axes) if back else [(w, y, axes)]
    if not all(_fits(x, *one) for one in given):
        return None
    made = [_products_of(x, *one, bases, ending) for one in given]
    found = [one for one in made if one is not None]
    if len(found) < len(made):
        return None
    most = min([(budget - one.fixed) // one.each for one in found])
    makes, operands = [one.launches for one in found], 4 + (ending is not None)
    return Launches(makes, operands, work * PRODUCT_SECONDS[y.dtype.char], most) if most > 0 else None


def _fits(x: Array, w: Array, y: Array, axes: Axes) -> bool:
    """Return whether arrays lie as the kernel needs them."""
    machine = host()
    if machine is None or machine.vector_bytes >= 64 or axes[-1].stride > 2:
        return False
    lies = _lie(x, w, y, axes)
    if lies is None or lies.first or not all(lies.turned):
        return False
    return x.strides[-1] == y.itemsize


def _products_of(
    x: Array,
    w: Array,
    y: Array,
    axes: Axes,
    bases: tuple[Array, Array, Array, Array | None],
    ending: Ending | None,
) -> _Products | None:
    """Return a convolution of views of the bases x, w, y and bias, None where packing its windows would not pay."""
    channels, depth = x.shape[2], prod(w.shape[2:])
    own = Strip(y.dtype.char, _lanes(y), 1, 1, 1, axes[-1].stride)
    there = _in_place(x, y, axes)
    if there is None and w.shape[1] < FEWEST:
        return None
    if there is None:
        room = _room_first(own, axes, channels, nbytes=ROOM_BYTES)
        of_x, of_y = View(x, X, bases[0]), View(y, Y, bases[2])
        strips = _strips(axes[:-1], of_x.steps[3:-1], of_y.steps[3:-1], room.strip)
        shapes: list[Shape] = [(int(rows), axes[-1].out) for rows in np.diff(strips.begins)]
        apart = strips.step * room.row, of_y.steps[-2] if len(axes) > 1 else 0
    else:
        x, y = there
        of_x, of_y = View(x, X, bases[0]), View(y, Y, bases[2])
        room = Room(0, 0, 1, 1, np.arange(channels) * of_x.steps[2], 0, 0, 0, channels, 0, 0)
        strips, shapes = _segments(x.shape[3:], of_x.steps[3], of_y.steps[3])
        apart = of_x.steps[3], of_y.steps[3]
    sweep = _Sweep(room, of_x, of_y, axes, depth, w.shape[1], True, strips)
    finish = None if ending is None else ending.along(ROWS)
    one = Product(y.dtype, w.shape[1], max(map(prod, shapes)), depth, finish=finish, apart=of_y.steps[-1])
    bias = None if bases[3] is None else View(bases[3], BIAS, bases[3])
    code = products_kernel(own, one.form, there is None, finish)
    slots = 0 if ending is None else len(ending.slots(0))
    return _Products(code, sweep, one, shapes, apart, View(w, W, bases[1]), bias, slots)


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
    rows, columns = (_even(images, most // places, 1), places) if places <= most else (1, _even(places, most, 64))
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
        return self.w.is_contiguous and self.w.shape[2] == self.sweep.depth

    @property
    def fixed(self) -> int:
        """Bytes of scratch of all threads together."""
        return 0 if self.is_laid_out else rounded(prod(self.w.shape) * self.w.dtype.itemsize)

    @property
    def each(self) -> int:
        """Bytes of scratch of a thread."""
        return self.sweep.room_bytes + rounded(self.product.scratch(False))

    def launches(self, sheet: Sheet) -> list[Launch]:
        """Return what lays out weights and biases, and the convolution."""
        sweep, (groups, outputs, channels), dtype = self.sweep, self.w.shape[:3], self.w.dtype
        found, weights, lie = list[Launch](), self.w.at, self.w.steps
        if not self.is_laid_out:
            weights = sheet.take(prod(self.w.shape), dtype)
            terms = np.add.outer(offsets(self.w.shape[3:], lie[3:]), np.arange(channels) * lie[2]).ravel()
            rows = offsets((groups, outputs), lie[:2])
            found.append(matrix(self.w, rows, terms, sweep.depth, sheet, weights))
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
        rows = rows_of(steps(one.rows, one.depth), steps(one.depth, 1))
        targets = steps(one.rows, sweep.y.steps[2])
        for table in (*rows, sweep.room.ks, targets):
            sheet.keep(table)
        told = one.told(0, rows, 0, sweep.room.ks, self._table(self.shapes[0], sheet), 0, targets, 0)
        return sheet.keep(np.frombuffer(told, np.int64))

    def _table(self, shape: Shape, sheet: Sheet) -> Columns:
        """Return the table of columns of a strip."""
        form = self.product.form
        sources, targets = [offsets(shape, lies) for lies in zip(self.apart, (1, form.apart), strict=True)]
        found = columns_of(sources, targets, form)
        for table in found:
            sheet.keep(table)
        return found

    def _columns(self, sheet: Sheet) -> int:
        """Return where the columns of all strips lie."""
        tables = {shape: self._table(shape, sheet) for shape in set(self.shapes)}
        words = [(*map(address, tables[shape]), len(tables[shape].panels)) for shape in self.shapes]
        return sheet.keep(np.array(words, np.int64))


def _lanes(y: Array) -> int:
    machine = host()
    assert machine is not None
    return int(machine.vector_bytes // y.itemsize)

"""Gradients of many weights, as products of matrices: the tables and words of the kernel in codegen/cpu/gemm.py.

x, w and y are as in `contraction`. The sums run over positions. Where channels come last, outputs are the rows of the
product, and elements of the window its columns. Where they come first, it is the other way round, as outputs are packed
faster than windows; if the window is a single element, the smaller of both is packed. The input is read in place, or
copied with zeros around it; with a stride, where channels come first, positions with the same residue modulo the stride
lie together in the copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np

from ..base.layout import Shape, c_strides
from ..codegen.cpu.compile import host
from ..codegen.cpu.sweeping import OUTSIDE
from ..codegen.cpu.turning import turning_of
from ..plan.costs import FEW_POSITIONS, FEW_WEIGHT_BYTES, PRODUCT_SECONDS, WEIGHT_BYTES
from ..run.contractions import Product, columns_of, rows_of, steps
from ..run.launches import Launches, Sheet, View, W, X, Y, behind, dealt, shared
from ..run.native import Launch, Place, Word
from .contraction import Array, even, pays, readable, rounded, summing_dtype
from .panels import gathered, offsets
from .windows import Axes, Axis, outs, volume

# Terms of a product: it sums over as many whole images, or rows of one image, as have about so many positions.
TERMS = 1 << 11


class WindowPlaces(NamedTuple):
    """Where windows lie along an axis of the array that is read. sources: the input position at each place of that
    axis. elements: the place of each element of the first window. step: places from one window to the next.
    """

    sources: Array
    elements: Array
    step: int


def _window_places(axis: Axis, last: bool) -> WindowPlaces:
    """Return where windows lie. last: whether channels come last, so that windows may be any step apart."""
    if last:
        length = (axis.out - 1) * axis.stride + axis.span
        return WindowPlaces(np.arange(length) - axis.low, np.arange(axis.kernel) * axis.dilation, axis.stride)
    further, residue = np.divmod(np.arange(axis.kernel) * axis.dilation, axis.stride)
    residues, number = np.unique(residue, return_inverse=True)
    length = axis.out + int(further[-1])
    sources = np.add.outer(residues, np.arange(length) * axis.stride).ravel() - axis.low
    return WindowPlaces(sources, number * length + further, 1)


# A group, and a range of panels of rows or columns; a function that returns the words of a product.
Part = tuple[int, range]
Words = Callable[..., tuple[Word, ...]]


class Block(NamedTuple):
    """The positions that one product sums over: so many images from a first one on, and so many rows of each."""

    first: int
    images: int
    row: int
    rows: int


class Input(NamedTuple):
    """The input, as windows are read from it: its address; strides, in elements, of images, groups, channels, and
    windows along each axis; offsets of a window's elements.
    """

    at: Place
    image: int
    group: int
    channel: int
    windows: Shape
    elements: Array


class Room(NamedTuple):
    """The operands of products: the input, panels packed beforehand, sums, and scratch memory of each thread."""

    given: Input
    packed: Word
    total: Word
    threads: list[Place]


def product_sums_of(x: Array, w: Array, y: Array, axes: Axes, budget: int, *, often: bool = False) -> Launches | None:
    """Return launches that write the gradient of weights, sums over positions of y times the windows there, into w, and
    run on arrays x, w and y that lie like these. None where products do not apply.

    Each sum is computed by one thread, in order. budget: bytes of scratch memory.
    """
    work = y.size * prod(w.shape[2:])
    if not x.size or not work or not pays(y, work, often) or host() is None:
        return None
    if not (readable(x, w.dtype) and readable(y, w.dtype) and w.flags.c_contiguous):
        return None
    last = y.strides[2] == y.itemsize
    if not (last or _in_rows(y)) or not (often or summing_dtype(w.dtype, work) == w.dtype):
        return None
    sums = _Sums(View(x, X, x), View(y, Y, y), w.shape, axes, last)
    return sums.laid_out(budget, work * PRODUCT_SECONDS[y.dtype.char])


def are_many(w: Array, y: Array) -> bool:
    """Return whether there are so many weights that products compute their gradient faster than strips do, which add to
    all of them strip by strip; fewer are many where windows are single elements at few positions.
    """
    machine, single, positions = host(), prod(w.shape[3:]) == 1, len(y) * prod(y.shape[3:])
    if machine is None:
        return False
    most = WEIGHT_BYTES[machine.vector_bytes == 64][y.strides[2] == y.itemsize]
    return bool(w[0].nbytes > (min(most, FEW_WEIGHT_BYTES) if single and positions < FEW_POSITIONS else most))


def _in_rows(a: Array) -> bool:
    """Return whether the positions of each channel are contiguous."""
    return a.strides[3:] == c_strides(a.shape[3:], a.itemsize)


class _Sums:
    """A gradient of weights.

    turned: whether outputs are the columns of the product. copied: elements in the copy of one group of an image, 0
    where the input is read in place. packed: elements of the panels of columns for one position of a group, 0 where
    each product packs its own. count, rows: images, and rows of outputs of each, that one product sums over.
    """

    def __init__(self, x: View, y: View, shape: Shape, axes: Axes, last: bool) -> None:
        self.x, self.y, self.shape, self.dtype, self.last = x, y, shape, y.dtype, last
        self.axes, self.outs = axes, outs(axes)
        self.places = places = [_window_places(axis, last) for axis in axes]
        self.groups, self.outputs, self.channels = shape[:3]
        self.inner, self.positions = prod(shape[2:]), prod(self.outs)
        near = x.steps[2 if last else -1] == 1 and (last or all(axis.stride == 1 for axis in axes))
        inside = all(
            one.sources[0] >= 0 and one.sources[-1] < axis.size for one, axis in zip(places, axes, strict=True)
        )
        self.copied = 0 if near and inside else prod(len(one.sources) for one in places) * self.channels
        whole = not self.copied and x.shape[3:] == self.outs and x.steps[3:] == c_strides(self.outs, 1)
        self.turned = not last and not (whole and volume(axes) == 1 and self.channels <= self.outputs)
        rows, columns = (self.inner, self.outputs) if self.turned else (self.outputs, self.inner)
        self.row = prod(self.outs[1:])
        self.count = even(x.shape[0], TERMS // self.positions or 1)
        self.rows = even(self.outs[0], TERMS // self.row or 1) if self.count == 1 else self.outs[0]
        self.product = Product(self.dtype, rows, columns, self.count * self.rows * self.row, turned=last)
        self.packed = 0 if last else self.product.panels * self.product.form.width

    @property
    def in_place(self) -> bool:
        """Whether sums are added up in w itself."""
        return not self.turned and (volume(self.axes) == 1 or not self.last)

    def laid_out(self, budget: int, seconds: float) -> Launches | None:
        """Return launches for as many threads as scratch memory suffices for, None where it does for none."""
        item, images = self.dtype.itemsize, self.x.shape[0]
        each = (self.copied + self.packed * self.positions) * self.groups * item
        thread = rounded(self.product.scratch(not self.last))
        left = budget - (0 if self.in_place else prod(self.shape) * item) - 4 * rounded(1)
        if left < thread:
            return None
        room = min(max(left // 4 * 3, each), left - thread)
        together = images if each * images <= room else room // each
        most = (left - together * each) // thread
        rounds = [range(first, min(first + together, images)) for first in range(0, images, max(together, 1))]
        return Launches([lambda sheet: self._launches(sheet, rounds)], 4, seconds, most) if together else None

    def _launches(self, sheet: Sheet, rounds: list[range]) -> list[Launch]:
        many, bytes_of_room = len(rounds[0]) * self.groups, self.product.scratch(not self.last)
        copy = sheet.take(many * self.copied, self.dtype)
        packed = sheet.take(many * self.packed * self.positions, self.dtype)
        total: Word = Place(W) if self.in_place else sheet.take(prod(self.shape), self.dtype)
        parts = self._parts(sheet.threads)
        rooms = [sheet.take(bytes_of_room, np.dtype(np.uint8)) for _ in range(min(len(parts), sheet.threads))]
        found = list[Launch]()
        for images in rounds:
            given = self._input(copy, images)
            if self.copied:
                found.append(self._copies(images, given, sheet))
            if not self.last:
                found.append(self._packs(images, packed, sheet))
            found.append(self._products(images, Room(given, packed, total, rooms), parts, sheet))
        return found if self.in_place else [*found, *self._writes(total, sheet)]

    # -- the input

    def _input(self, copy: Place, images: range) -> Input:
        """Return where the windows of some images are read."""
        x, places = self.x, self.places
        if self.copied:
            lengths = tuple(len(one.sources) for one in places)
            inner = self.channels if self.last else 1
            along = tuple(step * inner for step in c_strides(lengths, 1))
            at, image, group = copy, self.groups * self.copied, self.copied
            channel = 1 if self.last else prod(lengths)
        else:
            along, (image, group, channel) = x.steps[3:], x.steps[:3]
            at = x.place(images.start, 0, 0, *(int(one.sources[0]) for one in places))
        windows = tuple(one.step * step for one, step in zip(places, along, strict=True))
        elements = _inside([(one.elements, 1 << 62, step) for one, step in zip(places, along, strict=True)])
        of_channels = np.arange(self.channels) * channel
        both = np.add.outer(elements, of_channels) if self.last else np.add.outer(of_channels, elements)
        return Input(at, image, group, channel, windows, both.ravel())

    def _copies(self, images: range, given: Input, sheet: Sheet) -> Launch:
        """Return the launch that copies some images, with zeros outside the input."""
        x = self.x
        channels = np.arange(self.channels), self.channels, x.steps[2]
        axes = [
            (one.sources, axis.size, step) for one, axis, step in zip(self.places, self.axes, x.steps[3:], strict=True)
        ]
        rows, own = (axes[:-1], [axes[-1], channels]) if self.last else ([channels, *axes[:-1]], [axes[-1]])
        item = self.dtype.itemsize
        both = [
            (x.place(n, g), behind(given.at, (at * given.image + g * given.group) * item))
            for at, n in enumerate(images)
            for g in range(self.groups)
        ]
        columns = _inside(own)
        return gathered(both, self.dtype, _inside(rows), columns, len(columns), sheet)

    # -- packing

    def _blocks(self, images: int) -> list[Block]:
        return [
            Block(first, min(self.count, images - first), row, min(self.rows, self.outs[0] - row))
            for first in range(0, images, self.count)
            for row in range(0, self.outs[0], self.rows)
        ]

    def _panels(self, block: Block, group: int, packed: Word) -> Word:
        """Return where the packed panels of a block and a group lie; those of all blocks follow each other."""
        before = (block.first * self.groups + group * block.images) * self.positions + block.row * self.row
        return behind(packed, before * self.packed * self.dtype.itemsize)

    def _packs(self, images: range, to: Word, sheet: Sheet) -> Launch:
        """Return the launch that packs the panels of all columns of some images."""
        form, calls = self.product.form, list[tuple[Word, ...]]()
        of, columns = (self.y, self.outputs) if self.turned else (self.x, self.channels)
        tos = sheet.keep(steps(self.rows * self.row, form.width))
        for block, g in product(self._blocks(len(images)), range(self.groups)):
            terms, panels = block.rows * self.row, self._panels(block, g, to)
            apart = block.images * terms * form.width
            for n in range(block.images):
                at = of.place(images.start + block.first + n, g, 0, block.row)
                into = behind(panels, n * terms * form.width * self.dtype.itemsize)
                calls.append((at, tos, into, columns, terms, of.steps[2], form.width, apart))
        return shared(turning_of(form), calls, sheet.threads)

    # -- products

    def _parts(self, threads: int) -> list[Part]:
        """Return groups with ranges of panels of rows, or of columns where each product packs these itself."""
        one = self.product
        number = one.panels if self.last else -(-one.rows // one.form.height)
        step = -(-number // -(-threads // self.groups))
        firsts = product(range(self.groups), range(0, number, step))
        return [(g, range(first, min(first + step, number))) for g, first in firsts]

    def _products(self, images: range, room: Room, parts: list[Part], sheet: Sheet) -> Launch:
        """Return the launch of the products of some images, which add to the sums of the images before."""
        calls, blocks = [list[tuple[Word, ...]]() for _ in room.threads], self._blocks(len(images))
        sizes = {(block.images, block.rows) for block in blocks}
        tables = {size: self._tables(room.given, *size, sheet) for size in sizes}
        for block, (number, part) in product(blocks, enumerate(parts)):
            thread = number % len(calls)
            own = tables[block.images, block.rows]
            calls[thread].append(self._told(part, block, images.start, room, own, room.threads[thread]))
        return dealt(self.product.code, calls)

    def _tables(self, given: Input, images: int, rows: int, sheet: Sheet) -> Words:
        """Return a function that returns the words of a product over so many images and rows."""
        one, form, counts = self.product, self.product.form, (images, rows, *self.outs[1:])
        if prod(counts) != one.depth:
            one = Product(self.dtype, one.rows, one.columns, prod(counts), form.registers, turned=self.last)
        of_x = offsets(counts, (given.image, *given.windows))
        of_y = offsets(counts, (self.y.steps[0], *self.y.steps[3:]))
        lines = rows_of(given.elements, of_x) if self.turned else rows_of(steps(one.rows, self.y.steps[2]), of_y)
        columns = columns_of(given.elements if self.last else steps(one.columns, 1), steps(one.columns, 1), form)
        targets = steps(one.rows, one.columns)
        for table in (*lines, of_x, *columns, targets):
            sheet.keep(table)
        return partial(one.words, of_a=lines, of_b=of_x if self.last else None, columns=columns, of_c=targets)

    def _told(self, part: Part, block: Block, start: int, room: Room, words: Words, scratch: Word) -> tuple[Word, ...]:
        """Return the words of the product of a group and some panels, for a block of the images from `start` on."""
        (g, panels), (given, packed, total, _), item = part, room, self.dtype.itemsize
        far = block.first * given.image + g * given.group + block.row * given.windows[0]
        of_x, of_y = behind(given.at, far * item), self.y.place(start + block.first, g, 0, block.row)
        return words(
            a=of_x if self.turned else of_y,
            b=of_x if self.last else self._panels(block, g, packed),
            c=behind(total, g * self.outputs * self.inner * item),
            scratch=scratch,
            fresh=start + block.first + block.row == 0,
            rows_of_it=None if self.last else panels,
            columns_of_it=panels if self.last else None,
        )

    # -- the weights

    def _writes(self, total: Word, sheet: Sheet) -> list[Launch]:
        """Return the launch that writes the sums to w in the order of the weights."""
        one, lanes, item = self.outputs * self.inner, self.product.form.lanes, self.dtype.itemsize
        places = [(behind(total, g * one * item), Place(W, g * one * item)) for g in range(self.groups)]
        if self.last or self.inner % lanes:
            rows, own = np.arange(self.outputs), np.arange(self.inner)
            at = (rows * self.inner, own.reshape(-1, self.channels).T.ravel()) if self.last else (rows, own * len(rows))
            return [gathered(places, self.dtype, *at, self.inner, sheet)]
        tos, calls = sheet.keep(steps(self.outputs, self.inner)), list[tuple[Word, ...]]()
        step = -(-self.inner // (sheet.threads * lanes)) * lanes
        for (given, to), first in product(places, range(0, self.inner, step)):
            wide = min(step, self.inner - first)
            source, target = behind(given, first * self.outputs * item), behind(to, first * item)
            calls.append((source, tos, target, wide, self.outputs, self.outputs, wide, 0))
        return [shared(turning_of(self.product.form), calls, sheet.threads)]


def _inside(axes: Sequence[tuple[Array, int, int]]) -> Array:
    """Return the offsets of all combinations of positions along axes, each with its length and step; OUTSIDE where one
    of the positions does not exist.
    """
    found, there = np.zeros(1, np.int64), np.ones(1, bool)
    for own, size, step in axes:
        found = np.add.outer(found, own * step).ravel()
        there = np.logical_and.outer(there, (own >= 0) & (own < size)).ravel()
    return np.where(there, found, OUTSIDE)

"""Convolutions by strips of the input: the tables and arguments of the kernels in codegen/cpu/strips.py.

x, w and y are as in `contraction`. Channels that come last are read as they lie. Where they come first, groups of few
channels or outputs have kernels of their own; other rows are read in place, or transposed on their way.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache, partial
from itertools import product
from math import lcm, prod
from typing import NamedTuple

import numpy as np

from ..base.dtypes import DType
from ..base.layout import Shape
from ..codegen.cpu.compile import Code, host, the_host
from ..codegen.cpu.finish import COLUMNS, ROWS
from ..codegen.cpu.strip_rows import STRIP_WORDS, Strip
from ..codegen.cpu.strips import outputs_first_kernel, outputs_kernel
from ..codegen.cpu.sweeping import OUTSIDE
from ..plan.costs import (
    COPIED_OUTPUTS,
    FARTHEST,
    FEW,
    FILLED,
    GROUPED,
    IN_PLACE_REGISTERS,
    IN_PLACE_WASTE,
    OUTPUT_REGISTERS,
    REGISTERS_THERE,
    ROOM_BYTES,
    SUMS,
    TERMS,
    WAITING,
    WAY_BYTES,
    WAYS,
)
from ..run.joined import Ending
from ..run.launches import BIAS, SLOTS, Make, Sheet, View, W, X, Y, behind, shared
from ..run.native import Launch, Place, Word
from .contraction import Array, even, readable, rounded
from .panels import matrix, offsets, panels
from .windows import Axes, Axis, Places, Region, outs, regions, volume

# The run of all elements of a window.
WHOLE = np.zeros(1, np.int64)


class Bases(NamedTuple):
    """The whole arrays x, w, y and bias, of which views are computed with; of_x, of_y: which operands x and y are."""

    x: Array
    w: Array
    y: Array
    bias: Array | None
    of_x: int = X
    of_y: int = Y

    def views(self, x: Array, y: Array) -> tuple[View, View]:
        """Return how views of x and y lie."""
        return View(x, self.of_x, self.x), View(y, self.of_y, self.y)


class Part(NamedTuple):
    """What one call of a kernel computes: ranges of images, of groups, of strips, of columns, of outputs, and of the
    elements that are summed. element: the first of these among the elements that weights have.
    """

    images: range
    groups: range
    strips: range
    columns: range
    outputs: range
    terms: range
    element: int = 0


class Lies(NamedTuple):
    """How channels lie. first: whether they come first, and a group has few channels or outputs. turned: whether those
    of x, and of y, come first otherwise, and are transposed. gathered: channels of a group to be gathered, else 0.
    """

    first: bool = False
    turned: tuple[bool, bool] = (False, False)
    gathered: int = 0


class Room(NamedTuple):
    """How the input rows under a strip lie in scratch memory: the length of each (or of one channel in it), elements
    from one row to the next, rows and columns of outputs of a strip, offsets of a window's elements, the element of an
    input row where the first window begins (negative: before it), elements from one window to the next, elements of an
    input row, channels copied one by one, positions that are gathered, elements read or written behind the last row,
    and columns of outputs computed together.
    """

    length: int
    row: int
    strip: int
    wide: int
    ks: Array
    start: int
    along: int
    size: int
    channels: int
    pixels: int
    behind: int
    block: int = 1


class Strips(NamedTuple):
    """Strips of rows of outputs: the kernels' tables x.rows, y.rows and begins (see strip_rows.py), how many there are,
    rows of the input under one, and rows of the input from those under one row of outputs to those under the next.
    """

    xs: Array
    ys: Array
    begins: Array
    number: int
    span: int
    step: int


class Made(NamedTuple):
    """The function that makes a convolution's launches, and the most threads that scratch memory suffices for."""

    make: Make
    most: int


class Swept(NamedTuple):
    """A region of a convolution: its code, and the arguments of that. panel: outputs whose weights lie side by side;
    slots: words of a group's slots for the steps that follow, or 0.
    """

    code: Code
    sweep: Sweep
    panel: int
    slots: int


def strips_of(
    x: Array, w: Array, y: Array, axes: Axes, bases: Bases, budget: int, ending: Ending | None
) -> Made | None:
    """Return a convolution of views of the bases x, w, y and bias, None where these kernels do not apply."""
    machine = host()
    if machine is None or not y.size:
        return None
    each, is_last = y.size // prod(outs(axes)) * w.shape[2], y.strides[2] == y.itemsize
    lanes = 1 if is_last else machine.vector_bytes // y.itemsize
    swept = [_swept(x, w, y, one, bases, ending) for one in regions(axes, each, lanes)]
    parts = [one for one in swept if one is not None]
    if not parts or len(parts) < len(swept):
        return None
    columns = sum({one.panel: one.sweep.pitch for one in parts}.values())
    laid = w.shape[0] * prod(w.shape[2:]) * columns * y.itemsize
    most = (budget - laid) // sum([one.sweep.room_bytes for one in parts])
    bias = None if bases.bias is None else View(bases.bias, BIAS, bases.bias)
    return Made(_Outputs(parts, View(w, W, bases.w), bias).launches, most) if most > 0 else None


def _swept(x: Array, w: Array, y: Array, region: Region, bases: Bases, ending: Ending | None) -> Swept | None:
    """Return how the outputs of a region are computed, None where these kernels do not apply."""
    x, y, axes = x[(..., *region.sources)], y[(..., *region.outputs)], region.axes
    lies, apart = lie_of(x, w, y, axes), y.strides[-1] // y.itemsize
    if lies is None or (ending is not None and (lies.first or lies.turned[1]) and apart > 1):
        return None
    outputs, channels = w.shape[1:3]
    runs = runs_of(w.shape[3:], region.elements, channels)
    there = rows_in_place(x, y, outputs, axes, lies, ending)
    if there is not None:
        own, x, y, axes, ending = there
        lies, room = Lies(True), in_place(room_first(own, axes, channels), own, axes, channels, steps_of(x))
    elif lies.first:
        own = _first_form(y.dtype, outputs, apart, axes[-1])
        room = room_first(own, axes, channels)
    else:
        x, y, axes, ending = flat(x, y, axes, lies, ending)
        own = _outputs_form(y.dtype, outputs, channels, axes[-1], lies, apart if lies.turned[1] else 1)
        if not any(lies.turned) and are_inside(axes) and axes[-1].out >= own.block:
            own = own._replace(in_place=True, apart=axes[-1].stride * steps_of(x)[-1], gathered=0)
        room = room_last(own, axes, channels)
        room = in_place(room, own, axes, channels, steps_of(x)) if own.in_place else room
    panel = own.block if lies.first else own.registers * own.lanes
    finish = None if ending is None else ending.along(ROWS if lies.first or lies.turned[1] else COLUMNS)
    code = (outputs_first_kernel if lies.first else outputs_kernel)(own, finish)
    views, pitch = bases.views(x, y), -(-outputs // panel) * panel
    sweep = Sweep(room, *views, axes, prod(w.shape[2:]), pitch, lies.turned[1], runs=runs)
    return Swept(code, sweep, panel, 0 if finish is None else finish.slots)


def runs_of(window: Shape, elements: Places, channels: int) -> Array:
    """Return where the runs of the elements of a part of the window begin, in elements of the window and channels,
    which come last. All runs have the same length.
    """
    numbers = np.arange(prod(window)).reshape(window)[elements].ravel()
    firsts = np.diff(numbers, prepend=-2) != 1
    found: Array = numbers[firsts] * channels
    return found


class _Outputs(NamedTuple):
    """A convolution: its regions, its weights and its bias."""

    parts: list[Swept]
    w: View
    bias: View | None

    def launches(self, sheet: Sheet) -> list[Launch]:
        """Return the launches that lay out biases and convolve; weights are laid out by the sheet's packing."""
        found, laid = list[Launch](), dict[int, Weights]()
        for one in self.parts:
            if one.panel not in laid:
                laid[one.panel] = self._laid(one, sheet, found)
            parts = one.sweep.parts(sheet.threads, one.panel)
            found.append(one.sweep.launch(one.code, parts, sheet, laid[one.panel], one.slots))
        return found

    def _laid(self, one: Swept, sheet: Sheet, found: list[Launch]) -> Weights:
        """Return where weights and biases lie in panels; the launch that lays out the latter is added to `found`."""
        groups, dtype, pitch = self.w.shape[0], self.w.dtype, one.sweep.pitch
        weights = sheet.pack(groups * one.sweep.depth * pitch, dtype)
        sheet.packing.append(panels(self.w, one.panel, sheet, weights))
        if self.bias is None:
            return Weights(weights, sheet.keep(np.zeros((groups, pitch), dtype)))
        shift, bias = sheet.take(groups * pitch, dtype), self.bias
        own = np.arange(groups) * bias.steps[0], offsets(bias.shape[1:], bias.steps[1:])
        found.append(matrix(bias, *own, pitch, sheet, shift))
        return Weights(weights, shift)


def lie_of(x: Array, w: Array, y: Array, axes: Axes) -> Lies | None:
    """Return how channels lie, None where the arrays do not lie as the kernels need them."""
    (groups, outputs, channels), item = w.shape[:3], y.itemsize
    if not y.size or not w.size or y.dtype.char not in "fd" or host() is None:
        return None
    if not readable(x, y.dtype) or not readable(y, y.dtype):
        return None
    few = max(channels, outputs) <= GROUPED
    if groups == 1:
        few = channels <= FEW < outputs or outputs <= FEW or _fills_rows(y, axes)
    fits = axes[-1].stride <= 2 and x.strides[-1] == item and y.strides[-1] in (item, 2 * item)
    if few and fits and (x.strides[2], y.strides[2]) != (item, item):
        return Lies(True)
    last = x.strides[2] == item, y.strides[2] == item
    if not (last[0] or x.strides[-1] == item) or not (last[1] or 0 < y.strides[-1] <= FARTHEST * item):
        return None
    alone = not last[0] or (groups == 1 and x.strides[-1] == channels * item)
    return Lies(False, (not last[0], not last[1]), 0 if alone else channels)


def _fills_rows(y: Array, axes: Axes) -> bool:
    """Return whether adjacent positions of a row fill registers much better than outputs would. (With AVX-512, windows
    of 5 x 5 and 8 outputs take .75 of the time on rows of 12 positions, .6 on rows of 28, but 1.7 on rows of 8.)
    """
    if y.strides[-1] != y.itemsize:
        return False
    lanes, outputs, out = the_host().vector_bytes // y.itemsize, y.shape[2], axes[-1].out
    of_rows, of_outputs = out / (-(-out // lanes)), outputs / (-(-outputs // lanes))
    return volume(axes) > 1 and 2 * outputs <= lanes and of_rows > FILLED * of_outputs


def flat(
    x: Array, y: Array, axes: Axes, lies: Lies, ending: Ending | None, *, apart: bool = False
) -> tuple[Array, Array, Axes, Ending | None]:
    """Return the arrays with one row of positions where windows are single elements and rows (and images, unless
    `apart`) follow each other, else as they are; the step between columns stays the same where the code relies on it.
    """
    if any(axis != Axis(axis.out, axis.out, 1, 1, axis.dilation, 0) for axis in axes):
        return x, y, axes, ending
    for images in [True] if apart else [False, True]:
        view = partial(_one_row, apart=images)
        with suppress(ValueError):
            given, found = view(x), view(y)
            near = given.strides[-1] == x.strides[-1], found.strides[-1] == y.strides[-1]
            if (near[0] or lies.gathered) and (near[1] or not lies.turned[1]):
                count = found.shape[-1]
                return given, found, (Axis(count, count, 1, 1, 1, 0),), None if ending is None else ending.seen(view)
    return x, y, axes, ending


def rows_in_place(
    x: Array, y: Array, outputs: int, axes: Axes, lies: Lies, ending: Ending | None = None
) -> tuple[Strip, Array, Array, Axes, Ending | None] | None:
    """Return the form of a convolution that reads registers of positions in place, where channels come first, with
    views of its arrays; None where that is impossible, or rows are so short that much would be computed in vain. Many
    channels take registers of 64 bytes: with 32, the same cache lines would be read again for every few outputs.
    """
    near = x.strides[-1] == y.strides[-1] == y.itemsize and axes[-1].stride == 1
    suits = lies.first or (all(lies.turned) and the_host().vector_bytes == 64)
    if not (near and suits and are_inside(axes)):
        return None
    x, y, axes, ending = flat(x, y, axes, Lies(turned=(True, True)), ending, apart=True)
    own, out = _first_form(y.dtype, outputs, 1, axes[-1], in_place=True), axes[-1].out
    if out < own.registers * own.lanes or -(-out // own.lanes) * own.lanes > IN_PLACE_WASTE * out:
        return None
    return own, x, y, axes, ending


def in_place(room: Room, own: Strip, axes: Axes, channels: int, steps: Shape) -> Room:
    """Return a layout of rows changed to that of rows which are read in place."""
    lengths = (*[axis.kernel for axis in axes], channels)
    ks = offsets(lengths, (*[axis.dilation * step for axis, step in zip(axes, steps[1:], strict=True)], steps[0]))
    return room._replace(row=1, ks=ks, start=0, along=own.apart, behind=0)


def are_inside(axes: Axes) -> bool:
    """Return whether all windows lie inside the input."""
    return all(axis.low == 0 and (axis.out - 1) * axis.stride + axis.span <= axis.size for axis in axes)


def steps_of(a: Array) -> Shape:
    """Return the strides, in elements, of the channels and of the spatial axes."""
    return tuple([step // a.itemsize for step in a.strides[2:]])


def _one_row(a: Array, apart: bool) -> Array:
    """Return a view (images, groups, channels, positions) with a single image, or with all images if `apart` is set;
    raises ValueError where no view can do that.
    """
    order = (0, 1, 2, *range(3, a.ndim)) if apart else (1, 2, 0, *range(3, a.ndim))
    return a.transpose(order).reshape(len(a) if apart else 1, *a.shape[1:3], -1, copy=False)


def cut(length: int, step: int) -> list[range]:
    return [range(first, min(first + step, length)) for first in range(0, length, step)]


# ---- forms


def registers_of(dtype: DType, outputs: int) -> tuple[int, int, int]:
    """Return the lanes of a register, how many registers of outputs to compute at a time, and how many sums for each of
    these, so that few lanes are wasted and each sum takes few loads.
    """
    machine = the_host()
    lanes, wide = machine.vector_bytes // dtype.itemsize, machine.vector_bytes == 64
    needed = -(-outputs // lanes)

    def cost(number: int) -> float:
        block = min(SUMS[wide] // number, TERMS[wide])
        return -(-needed // number) * number * max(1, (number + block) / (number * block))

    number = min(range(OUTPUT_REGISTERS[wide], 0, -1), key=cost)
    return lanes, number, SUMS[wide] // number


@lru_cache(256)
def _outputs_form(dtype: DType, outputs: int, channels: int, axis: Axis, lies: Lies, scattered: int) -> Strip:
    """Return the form of a convolution; the overhead of a block of windows counts as one more window."""
    lanes, number, most = registers_of(dtype, outputs)
    apart = axis.stride * channels
    if apart * dtype.itemsize % WAY_BYTES == 0:
        most = min(most, WAYS[lanes * dtype.itemsize == 64])
    block = min(range(1, most + 1), key=lambda n: (-(-axis.out // n) * (n + 1), -n))
    return Strip(dtype.char, lanes, block, number, apart, 1, 1, lies.gathered, lies.turned, scattered)


@lru_cache(256)
def _first_form(dtype: DType, outputs: int, apart: int, axis: Axis, *, in_place: bool = False) -> Strip:
    """Return the form where channels come first: few wasted sums, few loads for each, and enough sums to hide latency.
    The rest of a row has a block of its own. Rows in place are not in the nearest cache: registers of them cost more.
    """
    lanes, _, most = registers_of(dtype, 1)
    needed = -(-axis.out // lanes)

    def taken(number: int, block: int) -> float:
        return max(number * block, number + block, WAITING) + 0.1 * (number + block) + in_place * number

    def cost(size: tuple[int, int]) -> float:
        number, block = size
        whole, left = divmod(needed, number)
        return (whole * taken(number, block) + (left > 0) * taken(left, block)) * -(-outputs // block)

    wide = IN_PLACE_REGISTERS if in_place else 7
    sizes = [(number, block) for number in range(1, wide + 1) for block in range(1, most // number + 1)]
    there = REGISTERS_THERE[lanes * dtype.itemsize == 64] - 1  # one holds a factor
    number, block = min((size for size in sizes if prod(size) + min(size) <= there), key=cost)
    tail = needed % number if needed > number else 0
    return Strip(dtype.char, lanes, block, number, 1, axis.stride, scattered=apart, tail=tail, in_place=in_place)


# ---- where rows lie


@lru_cache(256)
def room_last(own: Strip, axes: Axes, channels: int, most: int = 1 << 62) -> Room:
    """Return the layout of rows whose channels come last. most: the most positions of a strip."""
    axis = axes[-1]
    rows = prod(one.kernel for one in axes[:-1]) * channels * np.dtype(own.char).itemsize
    fitting = (ROOM_BYTES // rows - axis.span) // axis.stride + 1
    wide = even(axis.out, min(fitting, most), own.block)
    windows = -(-wide // own.block) * own.block
    pixels = (windows - 1) * axis.stride + axis.span
    length = -(-channels * pixels // own.lanes) * own.lanes
    along = np.add.outer(np.arange(axis.kernel) * axis.dilation * channels, np.arange(channels)).ravel()
    strip, under = _strip(own, axes[:-1], length, max(most // wide, 1))
    turned = own.turned[0]
    ks, one = np.add.outer(under * length, along).ravel(), 1 if own.gathered or turned else channels
    block = lcm(own.block, own.lanes) if own.turned[1] else own.block
    lies = -axis.low * one, axis.stride * one, axis.size * one
    behind = own.lanes * (channels if turned else 1)
    return Room(length, length, strip, wide, ks, *lies, channels if turned else 1, pixels, behind, block)


@lru_cache(256)
def room_first(own: Strip, axes: Axes, channels: int, most: int = 1 << 62) -> Room:
    """Return the layout of rows whose channels come first. most: the most positions of a strip."""
    axis, width = axes[-1], own.registers * own.lanes
    further, phase = np.divmod(np.arange(axis.kernel) * axis.dilation, own.phases)
    furthest = int(further[-1])
    rows = prod(one.kernel for one in axes[:-1]) * channels * own.phases * np.dtype(own.char).itemsize
    wide = even(axis.out, min(ROOM_BYTES // rows - furthest, most), width)
    length = -(-(wide + furthest) // own.lanes) * own.lanes
    row = channels * own.phases * length
    strip, under = _strip(own, axes[:-1], row, max(most // wide, 1))
    along = np.add.outer(under * row, phase * length + further)
    ks = np.add.outer(along, np.arange(channels) * own.phases * length).ravel()
    return Room(length, row, strip, wide, ks, -axis.low, axis.stride, axis.size, channels, 0, width + furthest, width)


def _strip(own: Strip, axes: Axes, row: int, most: int) -> tuple[int, Array]:
    """Return how many rows of outputs a strip has, and which of its input rows lie under its first row of outputs.

    row: elements from one input row to the next. most: the most rows of a strip.
    """
    if not axes:
        return 1, np.zeros(1, np.int64)
    planes, axis = prod(one.kernel for one in axes[:-1]), axes[-1]
    room = ROOM_BYTES // (row * np.dtype(own.char).itemsize * planes)
    packed = min(room // max(axis.kernel, 1), axis.dilation)
    fitting = max((room - axis.span) // axis.stride + 1, (packed - 1) // axis.stride + 1, 1)
    strip = even(axis.out, min(fitting, most), 1)
    apart, rows = _under(axis, strip)
    return strip, np.add.outer(np.arange(planes) * len(rows), np.arange(axis.kernel) * apart).ravel()


def _under(axis: Axis, strip: int) -> tuple[int, list[int]]:
    """Return how many rows lie between two rows of the window in scratch memory, and the rows of the input, from the
    first on, that lie there under `strip` rows of outputs of one plane. Rows that dilation skips are left out.
    """
    reach = (strip - 1) * axis.stride + 1
    if axis.dilation <= reach:
        return axis.dilation, [*range(reach - 1 + axis.span)]
    return reach, [k * axis.dilation + n for k in range(axis.kernel) for n in range(reach)]


@lru_cache(256)
def _strips(axes: Axes, of_x: Shape, of_y: Shape, strip: int) -> Strips:
    """Return where the rows of strips of `strip` rows of outputs lie. axes: all but the last."""
    if not axes:
        return Strips(np.zeros(1, np.int64), np.zeros(1, np.int64), np.arange(2), 1, 1, 0)
    *outer, axis = axes
    (_, under), begins, xs, ys = _under(axis, strip), [0], list[int](), list[int]()
    windows = list(product(*(range(one.kernel) for one in outer)))
    for *place, first in product(*(range(one.out) for one in outer), range(0, axis.out, strip)):
        rows = range(first, min(first + strip, axis.out))
        ys += [_far((*place, row), of_y) for row in rows]
        begins.append(begins[-1] + len(rows))
        top = first * axis.stride - axis.low
        for window in windows:
            ahead = [
                n * one.stride + k * one.dilation - one.low for n, k, one in zip(place, window, outer, strict=True)
            ]
            xs += [_inside((*ahead, top + row), axes, of_x) for row in under]
    rows_x, rows_y, firsts = (np.array(table, np.int64) for table in (xs, ys, begins))
    return Strips(rows_x, rows_y, firsts, len(begins) - 1, len(windows) * len(under), axis.stride)


def _inside(place: Sequence[int], axes: Axes, steps: Shape) -> int:
    """Return the offset of a row of the input, OUTSIDE for a row that does not exist."""
    there = all(0 <= n < axis.size for n, axis in zip(place, axes, strict=True))
    return _far(place, steps) if there else OUTSIDE


def _far(place: Sequence[int], steps: Shape) -> int:
    return sum(n * step for n, step in zip(place, steps, strict=True))


class Weights(NamedTuple):
    """Where weights (or sums of their gradient), biases, and scratch memory for sums lie; bytes from one range of
    images, and from one thread, to the next. product, columns: see strip_rows.py.
    """

    w: Word
    bias: Word
    sums: Word = 0
    lane: int = 0
    thread: int = 0
    product: int = 0
    columns: int = 0


class Sweep:
    """The arguments of kernels that go over arrays.

    depth, pitch: elements of a window, and outputs that the weights have room for. turned: whether y is transposed.
    strips: given where they are not made of rows; columns: of one of these, else 0.
    """

    def __init__(
        self,
        room: Room,
        x: View,
        y: View,
        axes: Axes,
        depth: int,
        pitch: int,
        turned: bool,
        strips: Strips | None = None,
        columns: int = 0,
        runs: Array = WHOLE,
    ) -> None:
        self.x, self.y, self.room, self.depth, self.pitch = x, y, room, depth, pitch
        self.strips = strips or _strips(axes[:-1], x.steps[3:-1], y.steps[3:-1], room.strip)
        self.columns, self.runs = columns or axes[-1].out, runs
        self.y_step = y.steps[-1 if room.pixels and not turned else 2]  # a single channel may have any stride

    @property
    def room_bytes(self) -> int:
        return rounded((self.strips.span * self.room.row + self.room.behind) * self.y.dtype.itemsize)

    def parts(self, threads: int, panel: int = 0) -> list[Part]:
        """Return parts that keep all threads about equally busy. panel: outputs may be cut at multiples of this number,
        0 for never.
        """
        ranges, left = list[list[range]](), 2 * threads if threads > 1 else 1
        for length in self.y.shape[:2]:
            number = min(left, length)
            ranges.append(cut(length, -(-length // number)))
            left = -(-left // number)
        images, groups = ranges
        ways = [self._cuts(left, strips, panel) for strips in range(min(left, self.strips.number), 0, -1)]
        whole = range(self.depth)
        found = [[Part(*part, whole) for part in product(images, groups, *cuts)] for way in ways for cuts in way]
        return min(found, key=lambda parts: self._busiest(parts, threads, panel))

    def _cuts(self, left: int, strips: int, panel: int) -> list[tuple[list[range], list[range], list[range]]]:
        """Return ways to cut all strips, columns and outputs into about so many parts that are left; strips: into how
        many the strips are cut.
        """
        others, outputs, block = -(-left // strips), self.y.shape[2], self.room.block
        rows, whole = cut(self.strips.number, -(-self.strips.number // strips)), [range(outputs)]
        columns = cut(self.columns, -(-self.columns // (others * block)) * block)
        found = [(rows, columns, whole)]
        if panel and outputs > panel:
            some = -(-outputs // (panel * others)) * panel
            found.append((rows, [range(self.columns)], cut(outputs, some)))
        return found

    def _busiest(self, parts: list[Part], threads: int, panel: int) -> float:
        """Return the work of the busiest thread, in elements of outputs; each part copies its input."""
        begins, block, work = self.strips.begins, self.room.block, [0.0] * threads
        for n, (images, groups, strips, columns, outputs, *_) in enumerate(parts):
            rows, wide = begins[strips.stop] - begins[strips.start], -(-len(columns) // block) * block
            many = -(-len(outputs) // panel) * panel if panel else len(outputs)
            work[n % threads] += len(images) * len(groups) * rows * wide * (many + COPIED_OUTPUTS)
        return max(work)

    def launch(self, code: Code, parts: Sequence[Part], sheet: Sheet, given: Weights, slots: int = 0) -> Launch:
        """Return the launch of a kernel on all parts. slots: words of each group's slots for the steps that follow."""
        threads = min(sheet.threads, len(parts))
        rooms = [sheet.take(self.room_bytes, np.dtype(np.uint8)) for _ in range(threads)]
        tables = [sheet.keep(table) for table in (*self.strips[:3], self.room.ks, self.runs)]
        firsts = sorted({images.start for images, *_ in parts})
        calls = []
        for n, part in enumerate(parts):
            w = behind(given.w, firsts.index(part[0].start) * given.lane)
            weights = given._replace(w=w, sums=behind(given.sums, n % threads * given.thread))
            calls.append(self._told(part, weights, rooms[n % threads], tables, slots))
        return shared(code, calls, threads)

    def _told(self, part: Part, given: Weights, room: Word, tables: Sequence[int], slots: int) -> tuple[Word, ...]:
        """Return the kernel's words for a part."""
        x, y, lies, strips, item = self.x, self.y, self.room, self.strips, self.y.dtype.itemsize
        images, groups, own, columns, outputs, terms, element = part
        of_x, of_y = x.place(images.start, groups.start), y.place(images.start, groups.start, outputs.start)
        first = groups.start * self.pitch + outputs.start
        of_w = behind(given.w, (first * self.depth + element * self.pitch) * item)
        places = of_x, of_w, of_y, behind(given.bias, first * item), room, given.sums
        xs, ys, begins, ks, runs = tables
        finish = Place(SLOTS, 8 * slots * groups.start) if slots else 0
        rows = xs + 8 * strips.span * own.start, ys, begins + 8 * own.start, ks + 8 * terms.start, runs, finish
        products = given.product, given.columns + 8 * STRIP_WORDS * own.start
        counts = len(outputs), self.pitch, len(own), columns.start, columns.stop, lies.wide, len(terms)
        lengths = lies.size, lies.start, lies.along, lies.length, lies.pixels
        steps = self.y_step, strips.span, strips.step * lies.row, len(images), x.steps[0], y.steps[0]
        others = lies.channels, x.steps[2], x.steps[-1]
        begin = y.at.after // item + images.start * y.steps[0] + outputs.start * y.steps[2]
        last = len(groups), x.steps[1], y.steps[1], self.depth * self.pitch, slots, begin, outputs.start
        runs_of_it = len(self.room.ks) // len(self.runs), len(self.runs)
        return (*places, *rows, *products, *counts, *lengths, *steps, *others, *last, *runs_of_it)

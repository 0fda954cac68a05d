"""Convolutions of few channels in a group: what codegen/cpu/few.py is told.

x, w and y are as in `contraction`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from math import prod
from struct import Struct
from typing import NamedTuple

import numpy as np

from ..base.dtypes import DType
from ..base.layout import Shape
from ..base.threads import worth
from ..codegen.cpu.compile import Code, host
from ..codegen.cpu.few import (
    NUMBERS,
    POINTERS,
    Few,
    few_first_kernel,
    few_first_weights_kernel,
    few_kernel,
    few_weights_kernel,
)
from ..codegen.cpu.sweeping import OUTSIDE
from ..plan.costs import PRODUCT_SECONDS
from ..run.contractions import address, worth_compiling
from ..run.native import run_calls
from .channelwise import steps_of
from .contraction import LANES, Array, Scratch, readable, rounded, summing_dtype
from .windows import Axes, Axis, phases

# So many channels are few, or outputs where channels come first; of more, windows are packed. In one of several groups
# there may be so many of both. Sums in registers and registers of outputs, by whether these are of 64 bytes. The most
# elements of a window whose sums the gradient has at a time.
FEW, GROUPED, SUMS, REGISTERS, TERMS = 4, 16, (12, 24), (2, 4), 12

# Bytes of the rows under a strip: they stay in the nearest cache. Those under a single row stay in the next one.
ROOM_BYTES, MOST_BYTES = 1 << 18, 1 << 19

WORDS = Struct(f"={len(POINTERS) + len(NUMBERS)}q")


# Ranges of images, of groups and of strips.
Part = tuple[range, range, range]


class Room(NamedTuple):
    """How the rows under a strip are laid out: how long each is, elements from a row of the input to the next, rows of
    outputs of a strip, where the elements of a window lie, elements of the input before it begins, negative, and of a
    row, channels that are copied one by one, whether they come last, and elements that are read behind the last row.
    """

    length: int
    row: int
    strip: int
    ks: Array
    start: int
    size: int
    channels: int
    last: bool
    behind: int


class Strips(NamedTuple):
    """Strips of rows of outputs: tables as the kernels are told them, how many strips there are, rows of the input
    under one, and how many of them lie between those under a row of outputs and those under the next one.
    """

    xs: Array
    ys: Array
    begins: Array
    number: int
    span: int
    step: int


def sweep_few(x: Array, w: Array, y: Array, bias: Array | None, axes: Axes, *, back: bool = False) -> bool:
    """Write the sums over windows times weights, plus a bias (groups, outputs), into y; return whether.

    back: whether to go back instead, from outputs x to inputs y, with w (groups, channels, outputs, *window). Sums are
    in the order of those of `implicit.convolve`. It does where channels of a group are few, x and y lie alike, and the
    work is worth compiling.
    """
    if not worth_compiling(y, y.dtype, (x if back else y).size * prod(w.shape[2:])):
        return False
    if not back:
        last = _channels_last(x, w, y, axes)
        if last is not None:
            _sweep_few(x, w, y, bias, axes, last)
        return last is not None
    parts = []
    for phase in product(*map(phases, axes)):
        places, elements, own = zip(*phase, strict=True)
        parts.append((x, w[(..., *elements)], y[(..., *places)], bias, own))
    if any(_channels_last(x, taps, part, own) is not False for _, taps, part, _, own in parts):
        return False
    for part in parts:
        _sweep_few(*part, False)
    return True


def _sweep_few(x: Array, w: Array, y: Array, bias: Array | None, axes: Axes, last: bool) -> None:
    groups, outputs, channels = w.shape[:3]
    if last:
        few = _outputs_form(y.dtype, outputs, axes[-1].stride * channels, axes[-1].out)
    else:
        few = _first_form(y.dtype, outputs, y.strides[-1] // y.itemsize, axes[-1])
    room = _room_last(few, axes, channels) if last else _room_first(few, axes, channels)
    panel = few.registers * few.lanes if last else few.block
    padded = -(-outputs // panel) * panel
    given: Array = (np.moveaxis(w, 2, -1) if last else w).reshape(groups, outputs, -1)
    weights: Array = np.zeros((groups, padded // panel, len(room.ks), panel), y.dtype)
    for first in range(0, outputs, panel):
        some = given[:, first : first + panel]
        weights[:, first // panel, :, : some.shape[1]] = some.swapaxes(1, 2)
    shift: Array = np.zeros((groups, padded), y.dtype)
    if bias is not None:
        shift[:, :outputs] = bias
    sweep, threads = _Sweep(room, x, y, axes, len(room.ks), padded), _threads(y, w)
    sweep.run(few_kernel(few) if last else few_first_kernel(few), sweep.parts(threads), threads, weights, shift, 0)


def sum_few(x: Array, y: Array, w: Array, axes: Axes) -> bool:
    """Write the gradient of weights, sums over positions of y times the windows there, into w; return whether.

    Images fall into lanes, whatever the number of threads, which are added in order; where there are many groups, these
    are shared by threads instead.
    """
    work, last = y.size * prod(w.shape[2:]), _channels_last(x, w, y, axes)
    if last is None or w.dtype != y.dtype or y.strides[-1 if not last else 2] != y.itemsize:
        return False
    if not worth_compiling(y, y.dtype, work) or summing_dtype(w.dtype, work) != w.dtype:
        return False
    groups, outputs, channels = w.shape[:3]
    depth, step = prod(w.shape[2:]), axes[-1].stride
    few = _last_weights(y.dtype, outputs, channels, axes[-1]) if last else _first_weights(y.dtype, outputs, depth, step)
    room = _room_last(few._replace(block=1), axes, channels) if last else _room_first(few, axes, channels)
    images = len(y) if groups >= LANES else -(-len(y) // LANES)
    totals: Array = np.zeros((-(-len(y) // images), groups, depth, outputs), w.dtype)
    sweep, threads = _Sweep(room, x, y, axes, depth, outputs), _threads(y, w)
    some = -(-groups // threads) if groups >= LANES else groups
    parts = list(product(_cut(len(y), images), _cut(groups, some), [range(sweep.strips.number)]))
    code = few_weights_kernel(few) if last else few_first_weights_kernel(few)
    sweep.run(code, parts, threads, totals, None, 0 if last else few.lanes)
    for other in totals[1:]:
        totals[0] += other
    if last:
        w[0] = np.moveaxis(totals[0, 0].reshape(*w.shape[3:], channels, outputs), (-1, -2), (0, 1))
    else:
        w[...] = totals[0].swapaxes(1, 2).reshape(w.shape)
    return True


def _channels_last(x: Array, w: Array, y: Array, axes: Axes) -> bool | None:
    """Return whether channels come last, None where arrays do not lie as the kernels need them, or there are many."""
    (groups, outputs, channels), item = w.shape[:3], y.itemsize
    if not y.size or not w.size or y.dtype.char not in "fd" or host() is None:
        return None
    if not readable(x, y.dtype) or not readable(y, y.dtype):
        return None
    if groups == 1 and x.strides[2] == y.strides[2] == item and x.strides[-1] == channels * item:
        return True if channels <= FEW and (outputs > channels or FEW > 99) else None
    few = channels <= FEW < outputs or outputs <= FEW if groups == 1 else max(channels, outputs) <= GROUPED
    if not few or axes[-1].stride > 2 or x.strides[-1] != item or y.strides[-1] not in (item, 2 * item):
        return None
    row = 4 * item * channels * prod(axis.span for axis in axes[:-1]) * axes[-1].size
    return False if row <= MOST_BYTES else None


def _threads(y: Array, w: Array) -> int:
    return worth(y.size * prod(w.shape[2:]) * PRODUCT_SECONDS[y.dtype.char])


def _cut(length: int, step: int) -> list[range]:
    return [range(first, min(first + step, length)) for first in range(0, length, step)]


# ---- forms


def _registers(dtype: DType, outputs: int) -> tuple[int, int, int]:
    """Return the lanes of a register, how many there are of outputs at a time, and of sums for each of these."""
    machine = host()
    assert machine is not None
    lanes, wide = machine.vector_bytes // dtype.itemsize, machine.vector_bytes == 64
    number = min(-(-outputs // lanes), REGISTERS[wide])
    return lanes, number, SUMS[wide] // number


@lru_cache(256)
def _outputs_form(dtype: DType, outputs: int, apart: int, positions: int) -> Few:
    """Return the form of a convolution; each block of windows costs as much as another one."""
    lanes, number, most = _registers(dtype, outputs)
    block = min(range(1, most + 1), key=lambda n: (-(-positions // n) * (n + 1), -n))
    return Few(dtype.char, lanes, block, number, apart)


@lru_cache(256)
def _first_form(dtype: DType, outputs: int, apart: int, axis: Axis) -> Few:
    """Return the form where channels come first: few sums in vain, and few loads for each."""
    lanes, _, most = _registers(dtype, 1)

    def cost(size: tuple[int, int]) -> float:
        number, block = size
        sums = -(-axis.out // (lanes * number)) * number * -(-outputs // block) * block
        return sums * (1 + 0.1 / number + 0.8 / block)

    sizes = [(number, block) for number in range(1, 8) for block in range(1, most // number + 1)]
    number, block = min(sizes, key=cost)
    return Few(dtype.char, lanes, block, number, apart, axis.stride)


@lru_cache(256)
def _last_weights(dtype: DType, outputs: int, channels: int, axis: Axis) -> Few:
    """Return the form of the gradient: as many elements of a window as follow each other and divide those that do."""
    lanes, number, most = _registers(dtype, outputs)
    run = channels * (axis.kernel if axis.dilation == 1 else 1)
    block = max(n for n in range(1, min(most, TERMS) + 1) if run % n == 0)
    return Few(dtype.char, lanes, block, number, axis.stride * channels)


@lru_cache(256)
def _first_weights(dtype: DType, outputs: int, depth: int, phases: int) -> Few:
    """Return the form of the gradient where channels come first: blocks that fit, and few loads for each sum."""
    lanes, _, most = _registers(dtype, 1)

    def cost(size: tuple[int, int]) -> float:
        return (sum(size) + most / 2) / prod(size)

    sizes = [(b, t) for b in range(1, most + 1) for t in range(1, most // b + 1) if outputs % b == 0 == depth % t]
    block, terms = min(sizes, key=cost)
    return Few(dtype.char, lanes, block, 1, 1, phases, terms)


# ---- where rows lie


@lru_cache(256)
def _room_last(few: Few, axes: Axes, channels: int) -> Room:
    axis = axes[-1]
    windows = -(-axis.out // few.block) * few.block
    length = -(-channels * ((windows - 1) * axis.stride + axis.span) // few.lanes) * few.lanes
    along = np.add.outer(np.arange(axis.kernel) * axis.dilation * channels, np.arange(channels)).ravel()
    strip, rows = _strip(few, axes[:-1], length)
    ks = np.add.outer(rows * length, along).ravel()
    return Room(length, length, strip, ks, -axis.low * channels, axis.size * channels, 1, True, 0)


@lru_cache(256)
def _room_first(few: Few, axes: Axes, channels: int) -> Room:
    axis, width = axes[-1], few.registers * few.lanes
    further, phase = np.divmod(np.arange(axis.kernel) * axis.dilation, few.phases)
    furthest = int(further[-1])
    length = -(-(axis.out + furthest) // few.lanes) * few.lanes
    row = channels * few.phases * length
    strip, rows = _strip(few, axes[:-1], row)
    along = np.add.outer(rows * row, phase * length + further)
    ks = np.add.outer(np.arange(channels) * few.phases * length, along).ravel()
    return Room(length, row, strip, ks, -axis.low, axis.size, channels, False, width + furthest)


def _strip(few: Few, axes: Axes, row: int) -> tuple[int, Array]:
    """Return how many rows of outputs a strip has, and which of the rows under it those under its first one are.

    row: elements from a row under it to the next.
    """
    if not axes:
        return 1, np.zeros(1, np.int64)
    planes, axis = prod(one.kernel for one in axes[:-1]), axes[-1]
    fitting = ROOM_BYTES // (row * np.dtype(few.char).itemsize * planes) - axis.span
    most = max(fitting // axis.stride + 1, 1)
    strip = -(-axis.out // -(-axis.out // most))
    return strip, np.add.outer(np.arange(planes) * _tall(axis, strip), np.arange(axis.kernel) * axis.dilation).ravel()


def _tall(axis: Axis, strip: int) -> int:
    """Return how many rows of the input lie under so many rows of outputs of a plane."""
    return (strip - 1) * axis.stride + axis.span


@lru_cache(256)
def _strips(axes: Axes, of_x: Shape, of_y: Shape, strip: int) -> Strips:
    """Return where the rows of strips lie; axes: all but the last."""
    if not axes:
        return Strips(*(np.array(table, np.int64) for table in ([0], [0], [0, 1])), 1, 1, 0)
    *outer, axis = axes
    tall, begins, xs, ys = _tall(axis, strip), [0], list[int](), list[int]()
    windows = list(product(*(range(one.kernel) for one in outer)))
    for *place, first in product(*(range(one.out) for one in outer), range(0, axis.out, strip)):
        rows = range(first, min(first + strip, axis.out))
        ys += [_far((*place, row), of_y) for row in rows]
        begins.append(begins[-1] + len(rows))
        for window in windows:
            ahead = [n * one.stride + k * one.dilation - one.low for n, k, one in zip(place, window, outer, strict=True)]
            top = first * axis.stride - axis.low
            xs += [_inside((*ahead, row), axes, of_x) for row in range(top, top + tall)]
    tables = (np.array(table, np.int64) for table in (xs, ys, begins))
    return Strips(*tables, len(begins) - 1, len(windows) * tall, axis.stride)


def _inside(place: Sequence[int], axes: Axes, steps: Shape) -> int:
    """Return the offset of a row of the input, OUTSIDE where there is none."""
    there = all(0 <= n < axis.size for n, axis in zip(place, axes, strict=True))
    return _far(place, steps) if there else OUTSIDE


def _far(place: Sequence[int], steps: Shape) -> int:
    return sum(n * step for n, step in zip(place, steps, strict=True))


class _Sweep:
    """What kernels are told of arrays; parts of a sweep are ranges of images, of groups and of strips.

    depth, pitch: elements of a window, and outputs that weights have room for.
    """

    def __init__(self, room: Room, x: Array, y: Array, axes: Axes, depth: int, pitch: int) -> None:
        self.x, self.y, self.room, self.depth, self.pitch = x, y, room, depth, pitch
        of_x, of_y = (steps_of(a)[1:-1] for a in (x, y))
        self.strips, self.positions = _strips(axes[:-1], of_x, of_y, room.strip), axes[-1].out

    def parts(self, threads: int) -> list[Part]:
        """Return parts that give all threads about as much to do."""
        ranges, left = [], 2 * threads if threads > 1 else 1
        for length in (len(self.y), self.y.shape[1], self.strips.number):
            number = min(left, length)
            ranges.append(_cut(length, -(-length // number)))
            left = -(-left // number)
        return list(product(*ranges))

    def run(self, code: Code, parts: Sequence[Part], threads: int, w: Array, bias: Array | None, sums: int) -> None:
        """Run a kernel on all parts. w: weights (groups, depth, pitch), or of the gradient one of these for each range
        of images. sums: lanes of the gradient's sums, 0 where there are none.
        """
        threads = min(threads, len(parts))
        count, item = -(-self.depth * self.pitch // sums) * sums**2 if sums else 0, self.y.itemsize
        each = rounded((self.strips.span * self.room.row + self.room.behind) * item) // item, count
        room, beside = (Scratch(threads * n * item).array((threads, n), self.y.dtype) for n in each)
        beside.fill(0)
        firsts = sorted({images.start for images, _, _ in parts})
        calls = []
        for n, part in enumerate(parts):
            own = w if bias is not None else w[firsts.index(part[0].start)]
            calls.append(self._told(part, own, bias, room[n % threads], beside[n % threads]))
        run_calls(code, [calls[n::threads] for n in range(threads)])

    def _told(self, part: Part, w: Array, bias: Array | None, room: Array, sums: Array) -> bytes:
        """Return the words for a part."""
        x, y, lies, strips, item = self.x, self.y, self.room, self.strips, self.y.itemsize
        images, groups, own = part
        to_y, channel = (y.strides[-1], 0) if lies.last else (y.strides[2], x.strides[2])
        begins = (a[images.start :, groups.start :] for a in (x, y))
        of_x, of_y = (address(begin) for begin in begins)
        places = of_x, address(w[groups.start :]), of_y, 0 if bias is None else address(bias[groups.start :])
        tables = address(strips.xs) + 8 * strips.span * own.start, address(strips.ys)
        counts = y.shape[2], self.pitch, len(own), self.positions, self.depth, lies.size, lies.start, lies.length
        steps = to_y // item, strips.span, strips.step * lies.row, len(images), x.strides[0] // item, y.strides[0] // item
        more = lies.channels, channel // item, len(groups), x.strides[1] // item, y.strides[1] // item
        last = address(strips.begins) + 8 * own.start, address(lies.ks)
        return WORDS.pack(
            *places, address(room), address(sums), *tables, *last, *counts, *steps, *more, self.depth * self.pitch
        )

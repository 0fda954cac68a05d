"""Convolutions of few channels in one group: what codegen/cpu/few.py is told.

x, w and y are as in `contraction`.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from math import prod
from struct import Struct
from typing import Any, NamedTuple

import numpy as np

from ..base.dtypes import DType
from ..base.threads import worth
from ..codegen.cpu.compile import host
from ..codegen.cpu.few import NUMBERS, POINTERS, Few, few_first_kernel, few_kernel, few_weights_kernel
from ..plan.costs import PRODUCT_SECONDS
from ..run.contractions import address, worth_compiling
from ..run.native import run_calls
from .channelwise import rows_under, steps_of
from .contraction import LANES, Array, readable, summing_dtype
from .windows import Axes, Axis

# So many channels are few; of more, windows are packed. Sums in registers and registers of outputs, by whether these
# are of 64 bytes. The most elements of a window whose sums the gradient has at a time.
FEW, SUMS, REGISTERS, TERMS = 4, (12, 24), (2, 4), 12

WORDS = Struct(f"={len(POINTERS) + len(NUMBERS)}q")


class Room(NamedTuple):
    """How the rows under a row of outputs are laid out: how long each is, how many, where the elements of a window lie,
    elements of the input before it begins, negative, and of a row, channels that are copied one by one, and whether
    they come last.
    """

    length: int
    number: int
    ks: Array
    start: int
    size: int
    channels: int
    last: bool


def sweep_few(x: Array, w: Array, y: Array, bias: Array | None, axes: Axes) -> bool:
    """Write the sums over windows times weights, plus a bias (1, outputs), into y; return whether.

    Sums are in the order of those of `implicit.convolve`. It does where channels are few, x and y lie alike, and the
    work is worth compiling.
    """
    last = _channels_last(x, w, y, axes)
    if last is None or not worth_compiling(y, y.dtype, y.size * prod(w.shape[2:])):
        return False
    form, room_of = (_outputs_form, _room_last) if last else (_first_form, _room_first)
    few = form(y.dtype, w.shape[1], x.shape[2], axes[-1])
    room, outputs = room_of(few, axes, x.shape[2]), w.shape[1] if last else -(-w.shape[1] // few.block) * few.block
    weights: Array = np.zeros((len(room.ks), outputs), y.dtype)
    weights[:, : w.shape[1]] = (np.moveaxis(w[0], 1, -1) if last else w[0]).reshape(w.shape[1], -1).T
    shift: Array = np.zeros(outputs, y.dtype)
    if bias is not None:
        shift[: w.shape[1]] += bias.ravel()
    threads, positions = _threads(y, w), prod(y.shape[3:-1])
    images = len(y) if threads == 1 else -(-len(y) // (2 * threads))
    rows = positions if threads <= len(y) else -(-positions * len(y) // (2 * threads))
    calls, _held = _calls(room, x, [weights] * len(y), y, shift, axes, images, rows)
    code = few_kernel(few) if last else few_first_kernel(few)
    run_calls(code, [calls[n::threads] for n in range(min(threads, len(calls)))])
    return True


def sum_few(x: Array, y: Array, w: Array, axes: Axes) -> bool:
    """Write the gradient of weights, sums over positions of y times the windows there, into w; return whether.

    It does where channels come last. Images fall into lanes, whatever the number of threads, which are added in order.
    """
    work = y.size * prod(w.shape[2:])
    if not _channels_last(x, w, y, axes) or w.dtype != y.dtype or not worth_compiling(y, y.dtype, work):
        return False
    if summing_dtype(w.dtype, work) != w.dtype:
        return False
    few = _weights_form(y.dtype, w.shape[1], x.shape[2], axes[-1])
    images = -(-len(y) // LANES)
    totals: Array = np.zeros((-(-len(y) // images), *w.shape[3:], x.shape[2], w.shape[1]), w.dtype)
    threads, room = _threads(y, w), _room_last(few._replace(block=1), axes, x.shape[2])
    calls, _held = _calls(room, x, list(totals), y, totals[:0], axes, images, prod(y.shape[3:-1]))
    run_calls(few_weights_kernel(few), [calls[n::threads] for n in range(min(threads, len(calls)))])
    for other in totals[1:]:
        totals[0] += other
    w[0] = np.moveaxis(totals[0], (-1, -2), (0, 1))
    return True


def _channels_last(x: Array, w: Array, y: Array, axes: Axes) -> bool | None:
    """Return whether channels come last, None where arrays do not lie as the kernels need them, or there are many."""
    channels, item = x.shape[2], y.itemsize
    if w.shape[0] > 1 or not 0 < channels <= FEW or not y.size or not w.size or y.dtype.char not in "fd":
        return None
    if w.shape[1] <= channels or not readable(x, y.dtype) or not readable(y, y.dtype):
        return None
    if x.strides[2] == y.strides[2] == item and x.strides[-1] == channels * item:
        return True
    return False if x.strides[-1] == y.strides[-1] == item and axes[-1].stride <= 2 else None


def _threads(y: Array, w: Array) -> int:
    return worth(y.size * prod(w.shape[2:]) * PRODUCT_SECONDS[y.dtype.char])


def _registers(dtype: DType, outputs: int) -> tuple[int, int, int]:
    """Return the lanes of a register, how many there are of outputs at a time, and of sums for each of these."""
    machine = host()
    assert machine is not None
    lanes, wide = machine.vector_bytes // dtype.itemsize, machine.vector_bytes == 64
    number = min(-(-outputs // lanes), REGISTERS[wide])
    return lanes, number, SUMS[wide] // number


@lru_cache(256)
def _outputs_form(dtype: DType, outputs: int, channels: int, axis: Axis) -> Few:
    """Return the form of a convolution; each block of windows costs as much as another one."""
    lanes, number, most = _registers(dtype, outputs)
    block = min(range(1, most + 1), key=lambda n: (-(-axis.out // n) * (n + 1), -n))
    return Few(dtype.char, lanes, block, number, axis.stride * channels)


@lru_cache(256)
def _first_form(dtype: DType, outputs: int, channels: int, axis: Axis) -> Few:
    """Return the form where channels come first: few sums in vain, and few loads for each."""
    lanes, _, most = _registers(dtype, 1)

    def cost(size: tuple[int, int]) -> float:
        number, block = size
        sums = -(-axis.out // (lanes * number)) * number * -(-outputs // block) * block
        return sums * (1 + 0.1 / number + 0.8 / block)

    sizes = [(number, block) for number in range(1, 8) for block in range(1, most // number + 1)]
    number, block = min(sizes, key=cost)
    return Few(dtype.char, lanes, block, number, 0, axis.stride)


@lru_cache(256)
def _weights_form(dtype: DType, outputs: int, channels: int, axis: Axis) -> Few:
    """Return the form of the gradient: as many elements of a window as follow each other and divide those that do."""
    lanes, number, most = _registers(dtype, outputs)
    run = channels * (axis.kernel if axis.dilation == 1 else 1)
    block = max(n for n in range(1, min(most, TERMS) + 1) if run % n == 0)
    return Few(dtype.char, lanes, block, number, axis.stride * channels)


@lru_cache(256)
def _room_last(few: Few, axes: Axes, channels: int) -> Room:
    axis, count = axes[-1], prod(one.kernel for one in axes[:-1])
    windows = -(-axis.out // few.block) * few.block
    length = -(-channels * ((windows - 1) * axis.stride + axis.span) // few.lanes) * few.lanes
    along = np.add.outer(np.arange(axis.kernel) * axis.dilation * channels, np.arange(channels)).ravel()
    ks = np.add.outer(np.arange(count) * length, along).ravel()
    return Room(length, count, ks, -axis.low * channels, axis.size * channels, 1, True)


@lru_cache(256)
def _room_first(few: Few, axes: Axes, channels: int) -> Room:
    axis, count = axes[-1], prod(one.kernel for one in axes[:-1])
    width = few.registers * few.lanes
    further, phase = np.divmod(np.arange(axis.kernel) * axis.dilation, few.phases)
    length = -(-axis.out // width) * width + -(-(int(further[-1]) + 1) // few.lanes) * few.lanes
    rows = np.add.outer(np.arange(count) * channels * few.phases * length, phase * length + further)
    ks = np.add.outer(np.arange(channels) * few.phases * length, rows).ravel()
    return Room(length, count * channels * few.phases, ks, -axis.low, axis.size, channels, False)


def _calls(
    room: Room, x: Array, ws: list[Array], y: Array, bias: Array, axes: Axes, images: int, rows: int
) -> tuple[list[bytes], Any]:
    """Return what the kernel is told, some images, and rows of one, at a time; and what has to live as long."""
    (image_x, *of_x), (image_y, *of_y) = steps_of(x), steps_of(y)
    item, step = y.itemsize, of_y[-1] if room.last else y.strides[2] // y.itemsize
    under = rows_under(axes[:-1], tuple(of_x[:-1]), tuple(of_y[:-1]), 0, False)
    parts = list(product(range(0, len(y), images), range(0, under.number, rows)))
    space: Array = np.empty((len(parts), room.number * room.length), y.dtype)
    begins, tables, calls = list(map(address, (x, y, bias, space, room.ks))), under.tables, []
    for number, (n, first) in enumerate(parts):
        w = ws[n // images]
        places = begins[0] + n * image_x * item, address(w), begins[1] + n * image_y * item, begins[2]
        of_rows = begins[3] + number * space.strides[0], tables[0], tables[2] + 8 * first, tables[3] + 8 * first
        some, left = min(rows, under.number - first), min(images, len(y) - n)
        numbers = y.shape[2], w.shape[-1], some, axes[-1].out, len(room.ks), room.size, room.start, room.length
        more = step, left, image_x, image_y, room.channels, x.strides[2] // item
        calls.append(WORDS.pack(*places, *of_rows, begins[4], *numbers, *more))
    return calls, (space, under, room)

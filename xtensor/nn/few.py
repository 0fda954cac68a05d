"""Convolutions of few channels, which come last, in one group: what codegen/cpu/few.py is told.

x, w and y are as in `contraction`.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from math import prod
from struct import Struct
from typing import Any

import numpy as np

from ..base.dtypes import DType
from ..base.threads import worth
from ..codegen.cpu.compile import host
from ..codegen.cpu.few import NUMBERS, POINTERS, Few, few_kernel, few_weights_kernel
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


def sweep_few(x: Array, w: Array, y: Array, bias: Array | None, axes: Axes) -> bool:
    """Write the sums over windows times weights, plus a bias (1, outputs), into y; return whether.

    It does where channels are few, and lie nearest to each other, and the work is worth compiling.
    """
    if not _fits(x, w, y) or not worth_compiling(y, y.dtype, y.size * w[0, 0].size):
        return False
    few = _outputs_form(y.dtype, w.shape[1], x.shape[2], axes[-1])
    weights: Array = np.ascontiguousarray(w[0].transpose(*range(2, w.ndim - 1), 1, 0), y.dtype)
    # Sums of products begin at +0 too.
    shift: Array = np.zeros(w.shape[1], y.dtype) if bias is None else bias.ravel() + y.dtype.type(0)
    threads = _threads(y, w)
    images = len(y) if threads == 1 else -(-len(y) // (2 * threads))
    rows = prod(y.shape[3:-1]) if threads <= len(y) else -(-prod(y.shape[3:-1]) * len(y) // (2 * threads))
    calls, _held = _calls(few, x, [weights] * len(y), y, shift, axes, images, rows)
    run_calls(few_kernel(few), [calls[n::threads] for n in range(min(threads, len(calls)))])
    return True


def sum_few(x: Array, y: Array, w: Array, axes: Axes) -> bool:
    """Write the gradient of weights, sums over positions of y times the windows there, into w; return whether.

    Images fall into lanes, whatever the number of threads, which are added up in order.
    """
    work = y.size * w[0, 0].size
    if not _fits(x, w, y) or w.dtype != y.dtype or not worth_compiling(y, y.dtype, work):
        return False
    if summing_dtype(w.dtype, work) != w.dtype:
        return False
    few = _weights_form(y.dtype, w.shape[1], x.shape[2], axes[-1])
    images = -(-len(y) // LANES)
    totals: Array = np.zeros((-(-len(y) // images), *w.shape[3:], x.shape[2], w.shape[1]), w.dtype)
    threads, nothing = _threads(y, w), totals[:0]
    calls, _held = _calls(few, x, list(totals), y, nothing, axes, images, prod(y.shape[3:-1]))
    run_calls(few_weights_kernel(few), [calls[n::threads] for n in range(min(threads, len(calls)))])
    for other in totals[1:]:
        totals[0] += other
    w[0] = np.moveaxis(totals[0], (-1, -2), (0, 1))
    return True


def _fits(x: Array, w: Array, y: Array) -> bool:
    """Return whether x and y lie as the kernels need them, and channels are few."""
    channels, item = x.shape[2], y.itemsize
    if w.shape[0] > 1 or not 0 < channels <= FEW or not y.size or not w.size or y.dtype.char not in "fd":
        return False
    lies = x.strides[2] == y.strides[2] == item and x.strides[-1] == channels * item
    return lies and w.shape[1] > channels and readable(x, y.dtype) and readable(y, y.dtype)


def _threads(y: Array, w: Array) -> int:
    return worth(y.size * w[0, 0].size * PRODUCT_SECONDS[y.dtype.char])


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
def _weights_form(dtype: DType, outputs: int, channels: int, axis: Axis) -> Few:
    """Return the form of the gradient: as many elements of a window as follow each other and divide those that do."""
    lanes, number, most = _registers(dtype, outputs)
    run = channels * (axis.kernel if axis.dilation == 1 else 1)
    block = max(n for n in range(1, min(most, TERMS) + 1) if run % n == 0)
    return Few(dtype.char, lanes, block, number, axis.stride * channels)


@lru_cache(256)
def _places(few: Few, axes: Axes, channels: int) -> tuple[int, int, Array]:
    """Return how long a row of the room is, how many there are, and where the elements of a window lie in them."""
    axis, count = axes[-1], prod(one.kernel for one in axes[:-1])
    windows = -(-axis.out // few.block) * few.block
    reach = channels * ((windows - 1) * axis.stride + axis.span)
    length = -(-reach // few.lanes) * few.lanes
    along = np.add.outer(np.arange(axis.kernel) * axis.dilation * channels, np.arange(channels)).ravel()
    return length, count, np.add.outer(np.arange(count) * length, along).ravel()


def _calls(
    few: Few, x: Array, ws: list[Array], y: Array, bias: Array, axes: Axes, images: int, rows: int
) -> tuple[list[bytes], Any]:
    """Return what the kernel is told, some images, and rows of one, at a time; and what has to live as long."""
    (image_x, *of_x), (image_y, *of_y) = steps_of(x), steps_of(y)
    channels, item = x.shape[2], y.itemsize
    under = rows_under(axes[:-1], tuple(of_x[:-1]), tuple(of_y[:-1]), 0, False)
    length, count, ks = _places(few, axes, channels)
    parts = list(product(range(0, len(y), images), range(0, under.count, rows)))
    room: Array = np.empty((len(parts), count * length), y.dtype)
    begins, tables = list(map(address, (x, y, bias, room, ks))), under.tables
    axis, calls = axes[-1], []
    for number, (n, first) in enumerate(parts):
        of_rows = begins[3] + number * count * length * item, tables[0], tables[2] + 8 * first, tables[3] + 8 * first
        places = begins[0] + n * image_x * item, address(ws[n // images]), begins[1] + n * image_y * item, begins[2]
        some, left = min(rows, under.count - first), min(images, len(y) - n)
        numbers = y.shape[2], some, axis.out, len(ks), axis.size * channels, -axis.low * channels, length, of_y[-1]
        calls.append(WORDS.pack(*places, *of_rows, begins[4], *numbers, left, image_x, image_y))
    return calls, (room, under, ks)

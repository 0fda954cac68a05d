"""Convolutions of thin groups where channels come last, of arrays where they lie: what codegen/cpu/channels.py is told.

x, w and y are as in `contraction`. Parts of images are calls; of the gradient of weights, whose sums go over all
images, registers of channels are.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np

from ..base.layout import Shape
from ..base.threads import worth
from ..codegen.cpu.channels import OUTSIDE, Term, Thin, channels_kernel, channels_weights_kernel
from ..codegen.cpu.compile import host
from ..plan.costs import moving_seconds
from ..run.contractions import address, worth_compiling
from ..run.native import run_calls
from .contraction import Array, readable
from .planes import SLOWER, SPEED
from .windows import Axes, Axis, volume

# The most channels of a group, elements of a row of the window times these, and outputs of a block.
WIDEST, LONGEST, BLOCK = 8, 64, 8

# How many rows ahead the input is fetched; outputs of a row whose products are added up before the next channels are.
ROWS_AHEAD, SEGMENT = 2, 32


class Rows(NamedTuple):
    """Where rows lie, as the kernels are told it, and how many rows of the window are fetched for later."""

    firsts: Array
    x: Array
    w: Array
    y: Array
    whole: Array
    fetched: int


def sweep_channels(x: Array, w: Array, y: Array, bias: Array | None, axes: Axes, *, back: bool = False) -> bool:
    """Write the sums over windows times weights, plus a bias (groups, outputs), into y; return whether.

    back: whether to go back instead, from outputs x to inputs y, with w (groups, channels, outputs, *window). It does
    where groups are thin, channels of x and y the nearest to each other, and the work is worth compiling.
    """
    thin = _thin(x, w, y, axes, back)
    if thin is None or not worth_compiling(y, y.dtype, SLOWER * y.size * volume(axes)):
        return False
    weights: Array = np.ascontiguousarray(np.moveaxis(w, (2, 0, 1), (-3, -2, -1)), y.dtype)
    shift: Array = np.zeros(w.shape[:2], y.dtype) if bias is None else np.ascontiguousarray(bias, y.dtype)
    threads = worth(max(y.size * w.shape[1] * volume(axes) / SPEED, moving_seconds(x.nbytes + y.nbytes)))
    own = _told(x, y, axes, back)
    rows, columns, ahead = own
    count, channels = len(rows.whole), prod(w.shape[:2])
    step = -(-count // -(-2 * threads // len(y))) if threads > 1 else count
    calls = []
    for image, first in product(range(len(y)), range(0, count, step)):
        begins = address(x[image]), address(weights), address(y[image]), address(shift)
        some = min(step, count - first)
        calls.append(_call(begins, rows, first, (channels, channels, some, *columns, 1, rows.fetched, *ahead)))
    run_calls(channels_kernel(thin), [calls[n::threads] for n in range(min(threads, len(calls)))])
    return True


def sum_channels(x: Array, y: Array, w: Array, axes: Axes) -> bool:
    """Write the gradient of weights, sums over positions of y times the windows there, into w; return whether."""
    thin = _thin(x, w, y, axes, False)
    machine = host()
    if thin is None or machine is None or len(thin.factors) > (24 if machine.vector_bytes == 64 else 12):
        return False
    if x.dtype != w.dtype or not worth_compiling(y, w.dtype, SLOWER * y.size * volume(axes)):
        return False
    groups, group = w.shape[:2]
    channels = groups * group
    totals: Array = np.zeros((*w.shape[3:], group, groups, group), w.dtype)
    threads = worth(max(y.size * group * volume(axes) / SPEED, moving_seconds(x.nbytes + y.nbytes)))
    rows, columns, ahead = _told(x, y, axes, False)
    step = -(-channels // (threads * thin.lanes)) * thin.lanes
    blocks = max(SEGMENT // thin.outputs, 1)
    calls = []
    for first in range(0, channels, step):
        numbers = (min(step, channels - first), channels, len(rows.whole), *columns, blocks, rows.fetched, *ahead)
        here = first * w.itemsize
        for image in range(len(y)):
            begins = address(x[image]) + here, address(totals) + here, address(y[image]) + here, 0
            calls.append((first, _call(begins, rows, 0, numbers)))
    parts = [[call for own, call in calls if own == first] for first in range(0, channels, step)]
    run_calls(channels_weights_kernel(thin), parts)
    w[...] = np.moveaxis(totals, (-3, -2, -1), (2, 0, 1))
    return True


def _call(begins: tuple[int, ...], rows: Rows, first: int, numbers: tuple[int, ...]) -> bytes:
    tables = rows.x, rows.w, rows.firsts[first:], rows.y[first:], rows.whole[first:]
    return struct.pack("=21q", *begins, *map(address, tables), *numbers)


def _thin(x: Array, w: Array, y: Array, axes: Axes, back: bool) -> Thin | None:
    """Return the form of a kernel for these arrays, None where there is none."""
    group, item, machine = w.shape[1], y.itemsize, host()
    if machine is None or not y.size or w.shape[0] == 1 or group != w.shape[2] or group > WIDEST or group & (group - 1):
        return None
    if y.dtype.char not in "fd" or axes[-1].kernel * group > LONGEST or not volume(axes):
        return None
    near = all(a.strides[1] == group * item and (group == 1 or a.strides[2] == item) for a in (x, y))
    if not near or not readable(x, y.dtype) or not readable(y, y.dtype):
        return None
    lanes = machine.vector_bytes // item
    return _form(y.dtype.char, lanes, group, axes[-1], back) if group <= lanes else None


@lru_cache(256)
def _form(char: str, lanes: int, group: int, axis: Axis, back: bool) -> Thin | None:
    """Return the form for windows along a row, whose blocks fit it best; None where outputs are in no window.

    Each block costs as much as another output.
    """
    step = axis.stride if back else 1
    length = axis.size if back else axis.out
    sizes = range(step, max(min(BLOCK, length), step) + 1, step)
    count = min(sizes, key=lambda n: (-(-length // n) * (n + 1), -n))
    if back:
        reaches = [(p, j, p + axis.low - j * axis.dilation) for p in range(count) for j in range(axis.kernel)]
        terms = [Term(p, j, far // axis.stride) for p, j, far in reaches if far % axis.stride == 0]
        if len({term.output for term in terms}) < count or count > BLOCK:
            return None
        return Thin(char, lanes, group, tuple(terms), count // step)
    terms = [Term(p, j, p * axis.stride + j * axis.dilation) for p in range(count) for j in range(axis.kernel)]
    return Thin(char, lanes, group, tuple(terms), count * axis.stride)


def _told(x: Array, y: Array, axes: Axes, back: bool) -> tuple[Rows, tuple[int, ...], tuple[int, int]]:
    """Return what kernels are told of rows, of their columns, and how far ahead they fetch."""
    item, axis = y.itemsize, axes[-1]
    of_x, of_y = (tuple(step // item for step in a.strides[3:]) for a in (x, y))
    group = y.shape[2]
    rows = _rows(axes[:-1], of_x[:-1], of_y[:-1], axis.kernel * group * group * y.shape[1], back)
    lengths = (axis.size, axis.out, 0) if back else (axis.out, axis.size, -axis.low)
    far = [ROWS_AHEAD * of[-2] if len(of) > 1 else 0 for of in (of_x, of_y)]
    return rows, (*lengths, of_x[-1], of_y[-1]), (far[0], far[1])


@lru_cache(256)
def _rows(axes: Axes, of_x: Shape, of_y: Shape, row: int, back: bool) -> Rows:
    """Return where rows lie; axes: all but the last; row: weights from one row of the window to the next."""
    firsts, xs, ws, whole = [0], [], [], []
    windows = list(product(*(range(axis.kernel) for axis in axes)))
    places = product(*(range(axis.size if back else axis.out) for axis in axes))
    ys = [sum(n * step for n, step in zip(place, of_y, strict=True)) for place in places]
    for place in product(*(range(axis.size if back else axis.out) for axis in axes)):
        found = list(_reached(axes, place, windows, of_x, back)) or [(0, OUTSIDE)]
        xs += [far for _, far in found]
        ws += [number * row for number, _ in found]
        whole.append(all(far != OUTSIDE for _, far in found))
        firsts.append(len(xs))
    tables = (np.array(table, np.int64) for table in (firsts, xs, ws, ys, whole))
    fetched = 1 if back or not axes else min(axes[-1].stride, len(windows))
    return Rows(*tables, fetched)


def _reached(axes: Axes, place: Shape, windows: list[Shape], of_x: Shape, back: bool) -> Iterator[tuple[int, int]]:
    """Yield the rows of a window that count for a row of y: their numbers, and where those of x are that they meet."""
    for number, element in enumerate(windows):
        far = 0
        for axis, n, k, step in zip(axes, place, element, of_x, strict=True):
            if back:
                at, rest = divmod(n + axis.low - k * axis.dilation, axis.stride)
                length = axis.out
            else:
                at, rest, length = n * axis.stride + k * axis.dilation - axis.low, 0, axis.size
            if rest:
                break
            far = far + at * step if 0 <= at < length and far != OUTSIDE else OUTSIDE
        else:
            yield number, far

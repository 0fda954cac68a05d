"""Convolutions of thin groups, channels last, on arrays where they lie: the arguments of codegen/cpu/channels.py.

x, w and y are as in `contraction`. Each call takes a part of the images and of their rows; for the gradient of weights
each part has sums of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np

from ..base.layout import Shape
from ..codegen.cpu.channels import Term, Thin, channels_kernel, channels_weights_kernel
from ..codegen.cpu.compile import host
from ..codegen.cpu.sweeping import OUTSIDE
from ..plan.costs import CHANNELS_BAND, CHANNELS_FETCHED, CHANNELS_NEAR, moving_seconds
from ..run.launches import BIAS, Launches, Sheet, View, W, X, Y, behind, shared
from ..run.native import Launch, Place, Word
from .contraction import LANES, Array, even, pays, readable, summing_dtype
from .panels import lane_sums, matrix, offsets, zeroed
from .planes import SLOWER, SPEED
from .windows import Axes, Axis, volume

# The most channels of a group, elements of a window's row times these channels, and outputs of a block.
WIDEST, LONGEST, BLOCK = 8, 64, 8

# The most sums of a gradient in registers: of 32 bytes, of 64 bytes.
MOST_SUMS = 12, 24

# How many bytes ahead arrays are prefetched, for outputs and for the gradient of weights, few enough to stay in the
# nearest cache until they are read; outputs of a row that the gradient sums up before it goes on to the next channels.
# (96 channels of 56 x 56: 8192 bytes take 1.1 of the time of 4096 for outputs, .75 for the gradient.)
FETCHED_AHEAD, FETCHED_FOR_SUMS, SEGMENT = 4096, 8192, 64


class Rows(NamedTuple):
    """Where rows lie: the kernels' tables x.rows, w.rows, firsts and y.rows, how many rows of outputs there are, the
    most rows of the window that count for one of them, and how many rows of the window are prefetched.
    """

    tables: list[Array]
    number: int
    most: int
    fetched: int


def channels_of(
    x: Array, w: Array, y: Array, bias: Array | None, axes: Axes, *, back: bool = False, often: bool = False
) -> Launches | None:
    """Return launches that write the sums over windows times weights, plus a bias (groups, outputs), into y. They run
    on arrays x, w, y and bias that lie like these, and hold none of them. None where these kernels do not apply.

    back: whether to go back instead, from outputs x to inputs y, with w (groups, channels, outputs, *window). The
    kernels apply where groups are thin, the channels of x and y are adjacent, and the work is worth compiling, or comes
    often.
    """
    thin, given = _thin(x, w, y, axes, back), [one for one in (w, bias) if one is not None]
    if thin is None or not pays(y, SLOWER * y.size * volume(axes), often):
        return None
    if not all(readable(one, y.dtype) for one in given):
        return None
    of_bias = None if bias is None else View(bias, BIAS, bias)
    made = _Channels(thin, _sweep(thin, x, y, axes, back), View(w, W, w), of_bias, len(y))
    return Launches([made.launches], 4, _seconds(x, y, axes))


class _Channels(NamedTuple):
    """A convolution of so many images."""

    thin: Thin
    sweep: Sweep
    w: View
    bias: View | None
    images: int

    def launches(self, sheet: Sheet) -> list[Launch]:
        """Return the launches that lay out weights and biases, and convolve."""
        w, sweep, dtype = self.w, self.sweep, self.w.dtype
        wide = prod(w.shape[:2])
        terms = np.add.outer(offsets(w.shape[3:], w.steps[3:]), np.arange(w.shape[2]) * w.steps[2]).ravel()
        weights = sheet.take(len(terms) * wide, dtype)
        table = offsets(w.shape[:2], w.steps[:2])
        found = [matrix(w, terms, table, wide, sheet, weights)]
        if self.bias is None:
            shift: Word = sheet.keep(np.zeros(wide, dtype))
        else:
            shift, one = sheet.take(wide, dtype), np.zeros(1, np.int64)
            table = offsets(self.bias.shape, self.bias.steps)
            found.append(matrix(self.bias, one, table, wide, sheet, shift))
        parts = _parts(self.images, sweep.rows.number, 2 * sheet.threads if sheet.threads > 1 else 1)
        calls = sweep.told(sheet, weights, shift, wide, parts)
        return [*found, shared(channels_kernel(self.thin), calls, sheet.threads)]


def channel_sums_of(x: Array, w: Array, y: Array, axes: Axes, *, often: bool = False) -> Launches | None:
    """Return launches that write the gradient of weights, sums over positions of y times the windows there, into w, and
    run on arrays x, w and y that lie like these. None where these kernels do not apply.
    """
    group, machine = w.shape[2], host()
    if machine is None or axes[-1].kernel * group > MOST_SUMS[machine.vector_bytes == 64] or x.dtype != w.dtype:
        return None
    if not _is_thin(w) or w.dtype != y.dtype or not pays(y, SLOWER * y.size * volume(axes), often):
        return None
    if group > 1 and not often and summing_dtype(w.dtype, y.size * prod(w.shape[2:])) != w.dtype:
        return None
    thin = _thin(x, w, y, axes, False)
    if thin is None:
        return None
    most = MOST_SUMS[machine.vector_bytes == 64] // (axes[-1].kernel * group)
    thin = thin._replace(tall=min(volume(axes[:-1]), most))
    sums = _ChannelSums(thin, _sweep(thin, x, y, axes, False, FETCHED_FOR_SUMS), len(y), View(w, W, w))
    return Launches([sums.launches], 4, _seconds(x, y, axes))


class _ChannelSums(NamedTuple):
    """A gradient of weights over so many images.

    Parts of images and rows have sums of their own (*window, channels, groups, outputs), whatever the number of
    threads; they are added in order. (Threads that shared channels instead used only a part of each line they read: two
    took 1.0 to 3.1 times as long as one.)
    """

    thin: Thin
    sweep: Sweep
    images: int
    w: View

    def launches(self, sheet: Sheet) -> list[Launch]:
        """Return the launches that sum up all parts, and add these up."""
        w, parts, size = self.w, _parts(self.images, self.sweep.rows.number, LANES), prod(self.w.shape)
        totals = sheet.take(len(parts) * size, w.dtype)
        found = [zeroed(totals, len(parts), size, w.dtype, sheet)]
        calls = self.sweep.told(sheet, totals, 0, prod(w.shape[:2]), parts, size * w.dtype.itemsize)
        found.append(shared(channels_weights_kernel(self.thin), calls, sheet.threads))
        order = (*range(3, len(w.shape)), 2)
        rows = offsets(tuple([w.shape[n] for n in order]), tuple([w.steps[n] for n in order]))
        return [*found, lane_sums(totals, len(parts), w, rows, offsets(w.shape[:2], w.steps[:2]), sheet)]


def _seconds(x: Array, y: Array, axes: Axes) -> float:
    return max(y.size * y.shape[2] * volume(axes) / SPEED, moving_seconds(x.nbytes + y.nbytes))


def _parts(images: int, rows: int, number: int) -> list[tuple[range, range]]:
    """Return about so many parts of the images, or of their rows too if there are fewer images."""
    step = -(-rows * images // number)
    return [*product(_cut(range(images), -(-step // rows)), _cut(range(rows), min(step, rows)))]


def _cut(whole: range, step: int) -> Iterator[range]:
    return (whole[first : first + step] for first in range(0, len(whole), step))


class Sweep(NamedTuple):
    """The arguments of a kernel except for addresses and the part of the arrays that it goes over.

    item: bytes of a number. near: band and chunk. columns: positions, size, start, x.step, y.step. blocks: that,
    fetched, x.ahead and y.ahead. images: elements of one image in x and y.
    """

    item: int
    rows: Rows
    near: tuple[int, int]
    columns: Shape
    blocks: Shape
    images: tuple[int, int]

    def told(
        self, sheet: Sheet, w: Word, bias: Word, wide: int, parts: Iterable[tuple[range, range]], apart: int = 0
    ) -> list[tuple[Word, ...]]:
        """Return the words of calls for parts of images and rows. apart: bytes between the weights of parts."""
        calls = []
        of_x, of_w, *by_row = (sheet.keep(table) for table in self.rows.tables)
        for n, (images, rows) in enumerate(parts):
            of_image = [Place(of, self.item * images.start * one) for of, one in zip((X, Y), self.images, strict=True)]
            tables = of_x, of_w, *(table + 8 * rows.start for table in by_row)
            counts = wide, len(rows), *self.near
            last = *self.columns, *self.blocks, len(images), *self.images
            calls.append((of_image[0], behind(w, n * apart), of_image[1], bias, *tables, *counts, *last))
        return calls


def _is_thin(w: Array) -> bool:
    """Return whether there are several groups of few channels and few outputs, powers of two."""
    groups, outputs, channels = w.shape[:3]
    return bool(groups > 1 and all(0 < one <= WIDEST and not one & (one - 1) for one in (outputs, channels)))


def _thin(x: Array, w: Array, y: Array, axes: Axes, back: bool) -> Thin | None:
    """Return the form of a kernel for these arrays, None where there is none."""
    (outputs, channels), item, machine = w.shape[1:3], y.itemsize, host()
    if machine is None or not y.size or not _is_thin(w):
        return None
    if y.dtype.char not in "fd" or axes[-1].kernel * channels > LONGEST or not volume(axes):
        return None
    both = (x, channels), (y, outputs)
    near = all(a.strides[1] == count * item and (count == 1 or a.strides[2] == item) for a, count in both)
    if not near or not readable(x, y.dtype) or not readable(y, y.dtype):
        return None
    lanes = machine.vector_bytes // item
    if max(outputs, channels) > lanes:
        return None
    found = _form(y.dtype.char, lanes, (channels, outputs), axes[-1], back)
    fetches = x.nbytes + y.nbytes > CHANNELS_FETCHED
    return found and found._replace(whole=prod(y.shape[1:3]) % lanes == 0, fetches=fetches)


@lru_cache(256)
def _form(char: str, lanes: int, members: tuple[int, int], axis: Axis, back: bool) -> Thin | None:
    """Return the form for windows along a row, with the best size of block; None where outputs are in no window.

    members: channels and outputs of a group. The overhead of a block counts as one more output.
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
        return Thin(char, lanes, *members, tuple(terms), count // step)
    terms = [Term(p, j, p * axis.stride + j * axis.dilation) for p in range(count) for j in range(axis.kernel)]
    return Thin(char, lanes, *members, tuple(terms), count * axis.stride)


def _sweep(thin: Thin, x: Array, y: Array, axes: Axes, back: bool, ahead: int = FETCHED_AHEAD) -> Sweep:
    return _sweep_of(thin, axes, prod(y.shape[1:3]), steps_of(x), steps_of(y), back, ahead)


def steps_of(a: Array) -> Shape:
    """Return the distances, in elements, from one image and from one position to the next."""
    return tuple(step // a.itemsize for step in (a.strides[0], *a.strides[3:]))


@lru_cache(256)
def _sweep_of(thin: Thin, axes: Axes, channels: int, of_x: Shape, of_y: Shape, back: bool, far: int) -> Sweep:
    axis, of_row = axes[-1], axes[-1].kernel * thin.group * channels
    item = 4 if thin.char == "f" else 8
    rows = rows_under(axes[:-1], of_x[1:-1], of_y[1:-1], of_row, back)
    lengths = (axis.size, axis.out, 0) if back else (axis.out, axis.size, -axis.low)
    near = rows.number, channels  # in memory order, where much is read
    if not thin.fetches:
        near = _near(channels, rows.most, lengths[1], item, thin.lanes * item)
    ahead = [max(far // max(abs(step) * item, 1), 1) * step for step in (of_x[-1], of_y[-1])]
    blocks = max(SEGMENT // thin.outputs, 1), rows.fetched, *ahead
    return Sweep(item, rows, near, (*lengths, of_x[-1], of_y[-1]), blocks, (of_x[0], of_y[0]))


def _near(channels: int, tall: int, length: int, item: int, register: int) -> tuple[int, int]:
    """Return how many rows of outputs, and channels of these, are computed at a time: whole cache lines."""
    unit = 64 // item
    most = max(CHANNELS_NEAR[register == 64] // (tall * length * 64), 1) * unit
    return max(CHANNELS_BAND // (length * channels * item), 1), even(channels, most, unit)


@lru_cache(256)
def rows_under(axes: Axes, of_x: Shape, of_y: Shape, row: int, back: bool) -> Rows:
    """Return where rows lie. axes: all but the last; row: weights from one row of the window to the next."""
    firsts, xs, ws = [0], list[int](), list[int]()
    windows = list(enumerate(product(*(range(axis.kernel) for axis in axes))))
    windows = windows[::-1] if back else windows  # the input row not read before comes last
    places = product(*(range(axis.size if back else axis.out) for axis in axes))
    ys = [sum(n * step for n, step in zip(place, of_y, strict=True)) for place in places]
    for place in product(*(range(axis.size if back else axis.out) for axis in axes)):
        found = list(_reached(axes, place, windows, of_x, back)) or [(0, OUTSIDE)]
        xs += [far for _, far in found]
        ws += [number * row for number, _ in found]
        firsts.append(len(xs))
    arrays = [np.array(table, np.int64) for table in (xs, ws, firsts, ys)]
    fetched = 1 if back or not axes else min(axes[-1].stride, len(windows))
    return Rows(arrays, len(ys), int(max(np.diff(firsts))), fetched)


def _reached(
    axes: Axes, place: Shape, windows: list[tuple[int, Shape]], of_x: Shape, back: bool
) -> Iterator[tuple[int, int]]:
    """Yield the number of each row of a window that counts for a row of y, and the offset of its row of x."""
    for number, element in windows:
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

"""Gradients of the weights of convolutions by strips of the input: the arguments of codegen/cpu/strip_weights.py.

x, w and y are as in `contraction`.
"""

from __future__ import annotations

from functools import lru_cache, partial
from itertools import pairwise, product
from math import prod
from typing import NamedTuple

import numpy as np

from ..base.dtypes import DType
from ..codegen.cpu.compile import Code, the_host
from ..codegen.cpu.strip_rows import Strip
from ..codegen.cpu.strip_weights import weights_first_kernel, weights_kernel
from ..plan.costs import (
    COPIED_AGAIN,
    LANE_POSITIONS,
    NEAR_BYTES,
    OUTPUT_REGISTERS,
    PRODUCT_SECONDS,
    REGISTERS_THERE,
    TERMS,
    TRANSPOSED_ELEMENTS,
    WAITING,
)
from ..run.launches import Launches, Sheet, View, W, X
from ..run.native import SCRATCH, Launch, Place
from .contraction import LANES, Array, pays, rounded, summing_dtype
from .disjoint import Disjoint, are_single, disjoint
from .panels import lane_sums, offsets, zeroed
from .strips import (
    Bases,
    Lies,
    Part,
    Sweep,
    Weights,
    are_inside,
    cut,
    flat,
    in_place,
    lie_of,
    registers_of,
    room_first,
    room_last,
    runs_of,
    steps_of,
)
from .windows import Axes, Region, outs, regions, volume

# Bytes between the sums of two threads: a core that goes over its own sums in long steps prefetches the cache lines
# behind them, and would take these from the other core. (Weights of 3x3 from 3 channels to 32: .82 to .87 of the time.)
APART = 1 << 16


def strip_sums_of(x: Array, w: Array, y: Array, axes: Axes, budget: int, *, often: bool = False) -> Launches | None:
    """Return launches that write the gradient of weights, sums over positions of y times the windows there, into w, and
    run on arrays x, w and y that lie like these. None where these kernels do not apply.

    Images are divided into lanes, whatever the number of threads, and these are added in order; where there are many
    groups, threads share the groups instead. Threads that are left share the elements of the window.
    """
    work = y.size * prod(w.shape[2:])
    if not pays(y, work, often) or w.dtype != y.dtype or not x.size:
        return None
    apart, room = disjoint(x, axes, X) if are_single(axes) else None, budget
    if apart is not None and apart.packed.nbytes <= budget // 2:
        x, axes, room = apart.packed, apart.axes, budget - apart.packed.nbytes
    else:
        apart = None
    lies = _lie_of(x, w, y, axes)
    if lies is None or not (often or summing_dtype(w.dtype, work) == w.dtype):
        return None
    if (lies.first or lies.turned[1]) and y.strides[-1] != y.itemsize:
        return None
    positions, each = len(y) * prod(outs(axes)), y.size // prod(outs(axes)) * w.shape[2]
    lanes = min(len(y), LANES, max(positions // LANE_POSITIONS, 1)) if len(w) < LANES else 1
    bases = Bases(x, w, y, None, X if apart is None else SCRATCH)
    parts = [_summed(bases, one, lies) for one in regions(axes, each, by_elements=True)]
    scratch = max([one.sweep.room_bytes + rounded(one.beside * y.itemsize) + APART for one in parts])
    most = (room - lanes * w.nbytes) // scratch
    seconds = work * PRODUCT_SECONDS[y.dtype.char]
    if most <= 0:
        return None
    images = -(-len(y) // lanes)
    sums = _StripSums(apart, View(w, W, w), -(-len(y) // images), images)
    return Launches([sums.begun, *[partial(sums.added, one) for one in parts], sums.ended], 4, seconds, most)


def _lie_of(x: Array, w: Array, y: Array, axes: Axes) -> Lies | None:
    """Return how channels lie. Where they come first, and one group has few channels, they are nevertheless transposed
    if outputs fill a register and windows have many elements, for all of which that is done once.
    """
    lies, (groups, outputs, channels) = lie_of(x, w, y, axes), w.shape[:3]
    fills = groups == 1 and outputs * y.itemsize >= the_host().vector_bytes
    if lies is None or not (lies.first and fills and channels * volume(axes) >= TRANSPOSED_ELEMENTS):
        return lies
    return Lies(False, (True, True)) if x.strides[-1] == y.strides[-1] == y.itemsize else lies


class Summed(NamedTuple):
    """The gradient of some elements of the window: its code, and the arguments of that. runs: where the runs of these
    elements begin; block: elements that are computed at a time; beside: elements of scratch memory for each thread.
    """

    code: Code
    sweep: Sweep
    runs: Array
    block: int
    beside: int

    def terms(self, parts: int, threads: int) -> list[tuple[range, int]]:
        """Return ranges of elements, and the first of each among those of the weights, into which each of so many parts
        is divided: as few as keep all threads about equally busy, as each of them copies the input again.
        """
        run, block = len(self.sweep.room.ks) // len(self.runs), self.block
        blocks = run // block

        def cost(number: int) -> float:
            return -(-parts * len(self.runs) * number // threads) / number * (1 + COPIED_AGAIN * (number - 1))

        number = min(range(1, max(min(threads, blocks), 1) + 1), key=cost)
        ends = [*[blocks * n // number * block for n in range(number)], run]
        return [
            (range(before + first, before + last), element + first)
            for before, element in zip(range(0, run * len(self.runs), run), map(int, self.runs), strict=True)
            for first, last in pairwise(ends)
        ]


def _summed(bases: Bases, region: Region, lies: Lies) -> Summed:
    """Return how the gradient of the elements of a region is computed."""
    w, axes, (outputs, channels) = bases.w, region.axes, bases.w.shape[1:3]
    x, y = bases.x[(..., *region.sources)], bases.y[(..., *region.outputs)]
    runs = runs_of(w.shape[3:], region.elements, channels)
    if lies.first:
        own = _first_weights(y.dtype, outputs, channels * volume(axes) // len(runs), axes[-1].stride)
        room = room_first(own, axes, channels, NEAR_BYTES // (own.block * y.itemsize))
        code, block = weights_first_kernel(own), own.terms
        beside = -(-len(room.ks) // len(runs) * outputs // own.lanes) * own.lanes**2
    else:
        x, y, axes, _ = flat(x, y, axes, lies, None, apart=True)
        own = _last_weights(y.dtype, outputs, channels, axes, lies)
        room = room_last(own._replace(block=1), axes, channels, NEAR_BYTES // (own.registers * own.lanes * y.itemsize))
        if volume(axes) == 1 and are_inside(axes) and not lies.turned[0]:
            own = own._replace(in_place=True, apart=axes[-1].stride * steps_of(x)[-1], gathered=0)
            room = in_place(room, own, axes, channels, steps_of(x))
        code, block = weights_kernel(own), own.block
        beside = own.registers * own.lanes * (room.strip * room.wide + own.lanes)
    sweep = Sweep(room, *bases.views(x, y), axes, prod(w.shape[2:]), outputs, lies.turned[1])
    return Summed(code, sweep, runs, block, beside)


class _StripSums(NamedTuple):
    """A gradient of weights, in lanes of `images` images. apart: how the positions that parts read are copied first,
    None where they read the input.
    """

    apart: Disjoint | None
    w: View
    lanes: int
    images: int

    def begun(self, sheet: Sheet) -> list[Launch]:
        """Return the launches before all parts: they write zeros to the totals, and copy positions."""
        copy, totals = self._places(sheet)
        copied = [] if self.apart is None else [self.apart.copied(copy, sheet)]
        return [*copied, zeroed(totals, self.lanes, prod(self.w.shape), self.w.dtype, sheet)]

    def ended(self, sheet: Sheet) -> list[Launch]:
        """Return the launch that adds up all lanes, in order, as weights."""
        w, (_, totals) = self.w, self._places(sheet)
        order = (0, *range(3, len(w.shape)), 2)
        rows = offsets(tuple([w.shape[n] for n in order]), tuple([w.steps[n] for n in order]))
        return [lane_sums(totals, self.lanes, w, rows, np.arange(w.shape[1]) * w.steps[1], sheet)]

    def _places(self, sheet: Sheet) -> tuple[Place, Place]:
        """Return where all launches find copied positions, first of all, and totals (lanes, *elements, outputs)."""
        copied = 0 if self.apart is None else self.apart.packed.size
        return sheet.take(copied, self.w.dtype), sheet.take(self.lanes * prod(self.w.shape), self.w.dtype)

    def added(self, one: Summed, sheet: Sheet) -> list[Launch]:
        """Return the launch that adds a part's products to the totals of all lanes."""
        sweep, groups, (_, totals) = one.sweep, one.sweep.y.shape[1], self._places(sheet)
        some = -(-groups // sheet.threads) if groups >= LANES else groups
        own = [*product(cut(sweep.y.shape[0], self.images), cut(groups, some))]
        whole = range(sweep.strips.number), range(sweep.columns), range(sweep.y.shape[2])
        parts = [Part(*part, *whole, *terms) for part in own for terms in one.terms(len(own), sheet.threads)]
        dtype, lane = sweep.y.dtype, prod(self.w.shape) * sweep.y.dtype.itemsize
        beside = rounded(one.beside * dtype.itemsize) + APART
        given = Weights(totals, 0, sheet.take(sheet.threads * beside, np.dtype(np.uint8)), lane, beside)
        return [sweep.launch(one.code, parts, sheet, given)]


# ---- forms


@lru_cache(256)
def _last_weights(dtype: DType, outputs: int, channels: int, axes: Axes, lies: Lies) -> Strip:
    """Return the form of the gradient of weights: few wasted elements of a window and outputs, few loads for each sum,
    and enough sums to hide latency. A block's elements follow each other in memory: their number divides that of all
    that do, unless these are the whole window.
    """
    machine = the_host()
    lanes, wide = machine.vector_bytes // dtype.itemsize, machine.vector_bytes == 64
    depth, axis = channels * prod(one.kernel for one in axes), axes[-1]
    run = channels * (axis.kernel if axis.dilation == 1 else 1)

    def cost(size: tuple[int, int]) -> float:
        number, block = size
        in_vain = -(-outputs // (number * lanes)) * number * -(-depth // block) * block
        return in_vain * (max(1, sum(size) / prod(size), WAITING / prod(size)) + 0.1 * sum(size) / prod(size))

    blocks = [n for n in range(1, min(TERMS[wide], depth) + 1) if run in (depth, run // n * n)]
    numbers = range(1, OUTPUT_REGISTERS[wide] + 1)
    sizes = [size for size in product(numbers, blocks) if prod(size) + min(size) < REGISTERS_THERE[wide]]
    number, block = min(sizes, key=cost)
    return Strip(dtype.char, lanes, block, number, axis.stride * channels, 1, 1, lies.gathered, lies.turned)


@lru_cache(256)
def _first_weights(dtype: DType, outputs: int, depth: int, phases: int) -> Strip:
    """Return the form of the gradient where channels come first: blocks that fit, and few loads for each sum."""
    lanes, _, most = registers_of(dtype, 1)
    # Besides the sums, registers hold one value of each term, one of outputs, and a mask.
    room = REGISTERS_THERE[lanes * dtype.itemsize == 64]

    def cost(size: tuple[int, int]) -> float:
        return (sum(size) + most / 2) / prod(size)

    sizes = [(b, t) for b in range(1, most + 1) for t in range(1, most // b + 1) if outputs % b == 0 == depth % t]
    sizes = [(b, t) for b, t in sizes if b * t + t + 2 <= room]
    block, terms = min(sizes, key=cost)
    return Strip(dtype.char, lanes, block, 1, 1, phases, terms)

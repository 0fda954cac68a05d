"""Windows over planes of one channel, as LLVM code: weighted sums (depthwise convolution, sums of pools) and maxima.

Registers of neighbouring outputs take the elements of their windows one by one, straight from the input: elements
outside it are masked out of the loads, and nothing is copied. The elements of an input row must be adjacent in memory,
and the stride along rows 1 or 2 (back to inputs also 4, 8 or 16); other arrays are left to the other kernels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import product
from math import gcd, prod
from typing import NamedTuple

import numpy as np

from ..base.dtypes import DType
from ..codegen.cpu.compile import Code, handmade, the_host
from ..codegen.cpu.forms import TYPES, loads, splat
from ..plan.costs import moving_seconds
from ..run.launches import BIAS, Array, Launches, Sheet, View, W, X, Y, behind, shared
from ..run.native import Launch, Word
from .contraction import pays, readable
from .panels import lane_sums, matrix, offsets
from .windows import Axes, Axis, phases, volume

# The most elements of a window whose code is unrolled, and of one whose sums stay in registers; multiplications of one
# thread per second, with stride 2 (with stride 1 there are up to three times as many; too high a number keeps work of
# 0.2 ms on one thread); how many times as long all other ways take.
LARGEST, LARGEST_SUMS, SPEED, SLOWER = 64, 25, 1.5e10, 32

# The strides along rows, from inputs to outputs and back: those by which registers are joined, and taken apart again.
STRIDES, STRIDES_BACK = (1, 2), (1, 2, 4, 8, 16)

# The most rows that outputs and a window may have together, for each row of outputs: a row of the input is multiplied
# for as many rows of sums as a window has, also for those of outputs that do not exist. (With windows of 64 rows for
# one row of outputs strips take .013 of the time; with 7 rows for 7, 3.4 times as long.)
TALLEST = 2.5

# Rows from the one that is read to the one that is prefetched: masked loads wait for what is not in the cache.
ROWS_AHEAD = 8

LOWEST = "0xFFF0000000000000"


def planes_of(
    x: Array,
    w: Array | None,
    y: Array,
    bias: Array | None,
    axes: Axes,
    *,
    largest: bool = False,
    back: bool = False,
    often: bool = False,
) -> Launches | None:
    """Return launches that write the sums over windows times weights (None: 1), plus a bias, or the maxima, into y.
    They run on arrays x, w, y and bias that lie like these, and hold none. None where these kernels do not apply.

    x: (batch, channels, 1, *lengths). w: (channels, outputs of a channel, 1, *window). y: (batch, channels, outputs,
    *lengths). bias: (channels, outputs). back: whether to go back instead, from outputs x to inputs y. The kernels
    apply where x and y lie as they need, and the work is worth compiling, or comes often.
    """
    bases, given = (x, w, y, bias), [one for one in (w, bias) if one is not None]
    if not _fits(x, y, axes, back, often) or not all(readable(one, y.dtype) for one in given):
        return None
    seconds = max(y.size * volume(axes) / SPEED, moving_seconds(x.nbytes + y.nbytes))
    x, y, axes = _plain(x, y, axes)
    whole = slice(None)
    high, wide = (phases(axis) if back else [(whole, whole, axis)] for axis in axes)
    tall = max(axis.kernel for _, _, axis in high)
    if not all(axis.kernel for _, _, axis in (*high, *wide)) or tall * axes[1].kernel > LARGEST:
        return None
    if w is not None and any(axis.out + axis.kernel > TALLEST * axis.out for _, _, axis in high):
        return None
    ways, window = tuple(way_of(elements, axis) for _, elements, axis in wide), (axes[0].kernel, axes[1].kernel)
    lengths, stride = (y.shape[-1], x.shape[-1]), 1 if back else axes[1].stride
    makes = []
    for places, elements, axis in high:
        combs = [
            (View(x[:, :, 0, of_x], X, bases[0]), View(y[..., places, :][..., of_y, :], Y, bases[2]), own)
            for of_x, of_y, own in _combs(axis)
        ]
        code = _code(_Text, form_of(y.dtype, combs[0][2], ways, window[1], stride, lengths, largest))
        weights = None if w is None else View(w.reshape(*y.shape[1:3], *window)[:, :, elements], W, bases[1])
        shift = None if bias is None else View(bias, BIAS, bias)
        taps = axis.kernel * window[1]
        makes.append(_Rows(code, combs, weights, shift, taps, -np.inf if largest else 0).launches)
    return Launches(makes, 4, seconds)


class _Rows(NamedTuple):
    """Rows of outputs whose windows have the same elements, in combs: sets of rows that share rows of the input.

    taps: elements of a window. nothing: the value that stands for no bias.
    """

    code: Code
    combs: list[tuple[View, View, Axis]]
    w: View | None
    bias: View | None
    taps: int
    nothing: float

    def launches(self, sheet: Sheet) -> list[Launch]:
        """Return the launches that lay out weights and biases, and go over the planes."""
        found = list[Launch]()
        weights = self._beside(self.w, self.taps, 1.0, sheet, found)
        shift = self._beside(self.bias, 1, self.nothing, sheet, found)
        calls = list[tuple[Word, ...]]()
        for x, y, axis in self.combs:
            to = Operand(y.at, y.steps[0], y.steps[2], y.steps[1])
            calls += _calls((_planes(x), weights, to, shift), x, y, axis, sheet.threads)
        return [*found, shared(self.code, calls, sheet.threads)]

    def _beside(self, own: View | None, wide: int, nothing: float, sheet: Sheet, found: list[Launch]) -> Operand:
        """Return an operand (channels, outputs, elements) that is contiguous, and append the launch that lays it out to
        `found`; where there is none, return one that holds `nothing`.
        """
        y = self.combs[0][1]
        channels, outputs = y.shape[1:3]
        if own is None:
            return Operand(sheet.keep(np.full(channels * outputs * wide, nothing, y.dtype)), 0, wide, outputs * wide)
        place = sheet.take(channels * outputs * wide, y.dtype)
        rows, table = offsets(own.shape[:2], own.steps[:2]), offsets(own.shape[2:], own.steps[2:])
        found.append(matrix(own, rows, table, wide, sheet, place))
        return Operand(place, 0, wide, outputs * wide)


def plane_sums_of(x: Array, w: Array, y: Array, axes: Axes, *, often: bool = False) -> Launches | None:
    """Return launches that write the gradient of weights, sums over positions of y, the outputs, times the windows
    there, into w, and run on arrays x, w and y that lie like these. None where these kernels do not apply.

    x and y as in `planes_of`, with one output for each channel. Sums of images are added up in float64.
    """
    depthwise = w.shape[0] > 1 and w.shape[1:3] == (1, 1)
    if not depthwise or w.dtype != y.dtype or volume(axes) > LARGEST_SUMS or not _fits(x, y, axes, False, often):
        return None
    seconds = max(y.size * volume(axes) / SPEED, moving_seconds(x.nbytes + y.nbytes))
    x, y, (high, wide) = _plain(x, y, axes)
    combs = [(View(x[:, :, 0, of_x], X, x), View(y[:, :, :, of_y], Y, y), own) for of_x, of_y, own in _combs(high)]
    ways, lengths = (way_of(slice(None), wide),), (y.shape[-1], x.shape[-1])
    form = form_of(y.dtype, combs[0][2], ways, wide.kernel, wide.stride, lengths, False)
    return Launches([_PlaneSums(_code(_Sums, form), combs, View(w, W, w)).launches], 4, seconds)


class _PlaneSums(NamedTuple):
    """A gradient of weights."""

    code: Code
    combs: list[tuple[View, View, Axis]]
    w: View

    def launches(self, sheet: Sheet) -> list[Launch]:
        """Return the launches that sum up each plane, and add up those of all images."""
        (images, channels), taps, w = self.combs[0][0].shape[:2], prod(self.w.shape[1:]), self.w
        one, totals = images * channels * taps, sheet.take(len(self.combs) * images * channels * taps, w.dtype)
        calls = list[tuple[Word, ...]]()
        for n, (x, y, own) in enumerate(self.combs):
            at = behind(totals, n * one * w.dtype.itemsize)
            sums = Operand(at, channels * taps, 0, taps)
            calls += _calls((_planes(x), _planes(y), sums, Operand(at, 0, 0, 0)), x, y, own, sheet.threads)
        rows, own = np.arange(channels) * w.steps[0], offsets(w.shape[3:], w.steps[3:])
        added = lane_sums(totals, len(self.combs) * images, w, rows, own, sheet)
        return [shared(self.code, calls, sheet.threads), added]


def _plain(x: Array, y: Array, axes: Axes) -> tuple[Array, Array, tuple[Axis, Axis]]:
    """Return arrays and axes with two spatial axes; an array that has only one gets a single row."""
    if len(axes) == 1:
        return x[..., None, :], y[..., None, :], (Axis(1, 1, 1, 1, 1, 0), axes[0])
    return x, y, (axes[0], axes[1])


def _fits(x: Array, y: Array, axes: Axes, back: bool, often: bool) -> bool:
    """Return whether x and y lie as the code needs them, and the work is worth compiling, or comes often."""
    item, stride = y.itemsize, axes[-1].stride
    fits = x.ndim <= 5 and x.dtype == y.dtype and y.size and max(axis.size for axis in axes) < 1 << 30
    fits = fits and stride in (STRIDES_BACK if back and stride <= axes[-1].size else STRIDES)
    if not fits or (x.strides[-1], y.strides[-1]) != (item, item):
        return False
    return pays(y, SLOWER * y.size * volume(axes), often)


def _combs(axis: Axis) -> Iterator[tuple[slice, slice, Axis]]:
    """Yield rows of the input, the rows of outputs whose windows they are in, and the axis between the two, undilated.

    Without dilation a single comb has all rows; with dilation, only rows a fixed distance apart share windows.
    """
    common = gcd(axis.stride, axis.dilation)
    step = axis.dilation // common
    for first in range(min(step, axis.out)):
        start, row = divmod(first * axis.stride - axis.low, axis.dilation)
        size, out = len(range(row, axis.size, axis.dilation)), len(range(first, axis.out, step))
        own = Axis(size, out, axis.kernel, axis.stride // common, 1, -start)
        yield slice(row, None, axis.dilation), slice(first, None, step), own


class Operand(NamedTuple):
    """Planes: where they begin, and elements from one image, output of a channel and channel to the next."""

    at: Word
    image: int
    output: int
    channel: int


def _planes(a: View) -> Operand:
    """Return planes (batch, channels, ...) as an operand."""
    return Operand(a.at, a.steps[0], 0, a.steps[1])


def _calls(operands: tuple[Operand, ...], x: View, y: View, high: Axis, threads: int) -> Iterator[tuple[Word, ...]]:
    """Yield the words of each call: for all images and channels, or as many as leave all threads enough to do.

    x: (batch, channels, rows, columns). y: (batch, channels, outputs, rows, columns).
    """
    item, (batch, channels, outputs) = y.dtype.itemsize, y.shape[:3]
    images = batch if threads == 1 else -(-batch * outputs // (2 * threads))
    step = channels if threads <= batch * outputs else -(-channels * batch * outputs // (2 * threads))
    numbers = [*(one.channel for one in operands), high.out, high.size, y.shape[-1], x.shape[-1], high.low]
    numbers += [x.steps[2], y.steps[3], *(one.image for one in operands)]
    for n, m, first in product(range(0, batch, images), range(outputs), range(0, channels, step)):
        far = [n * one.image + m * one.output + first * one.channel for one in operands]
        places = [behind(one.at, item * elements) for one, elements in zip(operands, far, strict=True)]
        yield (*places, min(step, channels - first), *numbers, min(images, batch - n))


_POINTERS = ("x", "w", "y", "b")
_NUMBERS = (
    *("planes", "x.step", "w.step", "y.step", "b.step", "out.h", "size.h", "out.w", "size.w"),
    *("low.h", "x.row", "y.row", "x.image", "w.image", "y.image", "b.image", "images"),
)


# Elements of a window along a row: the offset of each from its output's position times the stride, and its number.
Way = tuple[tuple[int, int], ...]


def way_of(elements: slice, axis: Axis) -> Way:
    """Return the way of some elements of a window, along an axis whose window consists of just these."""
    first, step = elements.start or 0, elements.step or 1
    return tuple((j * axis.dilation - axis.low, first + j * step) for j in range(axis.kernel))


class Form(NamedTuple):
    """What code is made for: windows and where they lie.

    window: its rows, and the elements of one. stride: of rows, and along them. ways: of neighbouring outputs in a row,
    whose windows have different elements. registers: of each of those outputs at a time. alone: lengths of rows of
    outputs and of inputs if the registers hold a whole row, else None.
    """

    char: str
    lanes: int
    window: tuple[int, int]
    stride: tuple[int, int]
    ways: tuple[Way, ...]
    largest: bool
    alone: tuple[int, int] | None
    registers: int

    @property
    def waiting(self) -> int:
        """How many rows of outputs are being computed at a time."""
        return -(-self.window[0] // self.stride[0])

    @property
    def together(self) -> int:
        """The registers of outputs at a time, of all ways."""
        return self.registers * len(self.ways)


@lru_cache(256)
def form_of(
    dtype: DType, high: Axis, ways: tuple[Way, ...], kernel: int, stride: int, lengths: tuple[int, int], largest: bool
) -> Form:
    """Return the form: as many sums at a time as there are registers. lengths: of rows of outputs and inputs."""
    machine = the_host()
    lanes, out = machine.vector_bytes // dtype.itemsize, -(-lengths[0] // len(ways))
    # Where rows take several blocks, registers at their borders are read twice, and all are masked; where there are few
    # registers, that takes longer than keeping sums in the nearest cache.
    sums, most = (16, 4) if machine.vector_bytes == 64 else (24, 8)
    most = min(most, max(sums // (-(-high.kernel // high.stride) * len(ways)), 1))
    needed = -(-out // lanes)
    registers = -(-needed // -(-needed // most))
    alone = lengths if max(out, -(-lengths[1] // stride)) <= registers * lanes else None
    return Form(dtype.char, lanes, (high.kernel, kernel), (high.stride, stride), ways, largest, alone, registers)


@lru_cache(256)
def _code(text: type[_Text], form: Form) -> Code:
    return handmade(text(form).module())


class _Text:
    """The text of the code of a form.

    Each row of the input is read once and added to all rows of outputs whose windows contain it; their sums stay in
    registers. Loads begin at the place of a register of outputs; an element further on is joined from two registers:
    most loads at an offset of a few elements would cross cache lines, which takes twice the time.
    """

    def __init__(self, form: Form) -> None:
        self.form = form
        self.kind, lanes = TYPES[form.char], form.lanes
        self.vector, self.ints, self.truth = f"<{lanes} x {self.kind}>", f"<{lanes} x i32>", f"<{lanes} x i1>"
        self.suffix = f"v{lanes}f{32 if form.char == 'f' else 64}"
        self.nothing = f"splat ({self.kind} {LOWEST})" if form.largest else "zeroinitializer"
        self.block = "row"
        self.lines: list[str] = []
        self.made: set[str] = set()  # values defined so far for this row of the input
        self.loaded: set[int] = set()  # the registers of a row that are loaded
        registers = range(form.together)
        # By the number of rows of outputs that have begun since, and by register.
        self.sums = {(m, v): f"%sum{m}.{v}" if m else "%bias.all" for m in range(form.waiting) for v in registers}

    def module(self) -> str:
        form, oldest = self.form, self.form.waiting - 1
        for u in range(form.stride[0]):
            self._over(u)
        lines = [
            *self._begin(),
            f"  %bias = load {self.kind}, ptr %b",
            *splat("bias", self.kind, self.vector, form.lanes),
            *self._taps(),
            "  br label %block\nblock:\n  %v = phi i64 [0, %plane], [%v.n, %block.next]",
            *self._block(
                f"  %sum{m + 1}.{v} = phi {self.vector} [%bias.all, %block], [{self.sums[m, v]}, %row.next]"
                for m in range(oldest)
                for v in range(form.together)
            ),
            *self.lines,
            f"  %h = sub i64 %turn, {oldest}\n  %there = icmp sge i64 %h, 0",
            "  br i1 %there, label %store, label %row.next\nstore:",
            *self._store(oldest),
            *self._next_block(),
            *self._next_plane(),
        ]
        return "\n".join(lines)

    def _begin(self) -> list[str]:
        """Return the text before the loop over the blocks of columns of a plane."""
        return [
            f"declare {self.vector} @llvm.fma.{self.suffix}({self.vector}, {self.vector}, {self.vector})",
            f"declare {self.vector} @llvm.masked.load.{self.suffix}.p0(ptr, i32, {self.truth}, {self.vector})",
            f"declare void @llvm.masked.store.{self.suffix}.p0({self.vector}, ptr, i32, {self.truth})",
            "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)",
            "define void @kernel(ptr %table) {\nentry:",
            *loads([f"{name}.0" for name in _POINTERS], _NUMBERS),
            *self._spread("size", "size.w"),
            f"  %ahead = mul i64 %x.row, {ROWS_AHEAD}\n  %turns = add i64 %out.h, {self.form.waiting - 1}",
            "  br label %image\nimage:\n  %i = phi i64 [0, %entry], [%i.n, %image.next]",
            *(f"  %{name}.1 = phi ptr [%{name}.0, %entry], [%{name}.2, %image.next]" for name in _POINTERS),
            "  br label %plane\nplane:\n  %n = phi i64 [0, %image], [%n.n, %plane.next]",
            *(f"  %{name} = phi ptr [%{name}.1, %image], [%{name}.n, %plane.next]" for name in _POINTERS),
        ]

    def _block(self, kept: Iterable[str]) -> list[str]:
        """Return the beginning of a block of columns and its loop over rows. kept: values carried from row to row."""
        form = self.form
        return [
            *("  %left = sub i64 %out.w, %v", *self._spread("left", "left")),
            f"  %place = udiv i64 %v, {len(form.ways)}\n  %column = mul i64 %place, {form.stride[1]}",
            *self._spread("column", "column"),
            *([] if form.alone else self._masks()),
            "  br label %row\nrow:\n  %turn = phi i64 [0, %block], [%turn.n, %row.next]",
            *kept,
            f"  %first = mul i64 %turn, {form.stride[0]}\n  %r = sub i64 %first, %low.h",
        ]

    def _next_block(self) -> list[str]:
        return [
            "  br label %row.next\nrow.next:\n  %turn.n = add i64 %turn, 1\n  %again = icmp slt i64 %turn.n, %turns",
            "  br i1 %again, label %row, label %block.next\nblock.next:",
            f"  %v.n = add i64 %v, {self.form.together * self.form.lanes}\n  %v.more = icmp slt i64 %v.n, %out.w",
            "  br i1 %v.more, label %block, label %plane.next\nplane.next:",
        ]

    def _next_plane(self) -> list[str]:
        return [
            *(f"  %{name}.n = getelementptr {self.kind}, ptr %{name}, i64 %{name}.step" for name in _POINTERS),
            "  %n.n = add i64 %n, 1\n  %n.more = icmp slt i64 %n.n, %planes",
            "  br i1 %n.more, label %plane, label %image.next\nimage.next:",
            *(f"  %{name}.2 = getelementptr {self.kind}, ptr %{name}.1, i64 %{name}.image" for name in _POINTERS),
            "  %i.n = add i64 %i, 1\n  %i.more = icmp slt i64 %i.n, %images",
            "  br i1 %i.more, label %image, label %done\ndone:\n  ret void\n}",
        ]

    def _counting(self, first: int, step: int = 1) -> str:
        return "<" + ", ".join(f"i32 {first + step * lane}" for lane in range(self.form.lanes)) + ">"

    def _spread(self, name: str, of: str) -> list[str]:
        """Return the lines that spread a number of 64 bits, as 32 bits, over a vector %name.all."""
        return [
            f"  %{name}.small = trunc i64 %{of} to i32",
            *splat(name, "i32", self.ints, self.form.lanes, f"{name}.small"),
        ]

    def _taps(self) -> Iterator[str]:
        """Yield the loads of the weights of a plane."""
        for tap in range(0 if self.form.largest else prod(self.form.window)):
            yield f"  %w{tap} = getelementptr {self.kind}, ptr %w, i64 {tap}"
            yield f"  %tap{tap} = load {self.kind}, ptr %w{tap}"
            yield from splat(f"tap{tap}", self.kind, self.vector, self.form.lanes)

    def _lanes_of(self, register: int, of: int) -> str:
        """Return the mask of the lanes of a register of outputs (0) or inputs (1) that exist: a name or a constant."""
        if self.form.alone is None:
            return f"%{('mask', 'mine')[of]}{register}"
        count = self.form.alone[of] - register * self.form.lanes
        return "<" + ", ".join(f"i1 {str(lane < count).lower()}" for lane in range(self.form.lanes)) + ">"

    def _masks(self) -> Iterator[str]:
        """Yield the lines that make the masks of a block's registers."""
        for v in range(self.form.together):
            yield f"  %mask{v} = icmp slt {self.ints} {self._counting(v * self.form.lanes)}, %left.all"
        for part in sorted(self.loaded):
            yield f"  %at{part} = add {self.ints} %column.all, {self._counting(part * self.form.lanes)}"
            yield f"  %mine{part} = icmp ult {self.ints} %at{part}, %size.all"

    def _over(self, u: int) -> None:
        """Write what adds a row of the input to the sums of all rows of outputs being computed."""
        old = dict(self.sums)
        self.lines += [
            f"  %r{u} = add i64 %r, {u}\n  %inside{u} = icmp ult i64 %r{u}, %size.h",
            f"  br i1 %inside{u}, label %in{u}, label %past{u}\nin{u}:\n  %r.row{u} = mul i64 %r{u}, %x.row",
            f"  %r.at{u} = add i64 %r.row{u}, %column\n  %x{u} = getelementptr {self.kind}, ptr %x, i64 %r.at{u}",
            f"  %later{u} = getelementptr {self.kind}, ptr %x{u}, i64 %ahead",
        ]
        self.made.clear()
        self._fetch(f"%later{u}", self.form.registers * self.form.stride[1])
        end = self._take_row(u)
        self.lines.append(f"  br label %past{u}\npast{u}:")
        for own, name in self.sums.items():
            if name != old[own]:
                ways = f"[{old[own]}, %{self.block}], [{name}, %{end}]"
                self.sums[own] = f"%past{u}." + ".".join(map(str, own))
                self.lines.append(f"  {self.sums[own]} = phi {self.vector} {ways}")
        self.block = f"past{u}"

    def _fetch(self, name: str, count: int) -> None:
        """Write the prefetches of so many registers of a row."""
        for part in range(count):
            self.lines.append(f"  {name}.{part} = getelementptr {self.kind}, ptr {name}, i64 {part * self.form.lanes}")
            self.lines.append(f"  call void @llvm.prefetch.p0(ptr {name}.{part}, i32 0, i32 3, i32 1)")

    def _take_row(self, u: int) -> str:
        """Write what adds a row to the sums; return the block in which that ends."""
        form = self.form
        for number in range(form.together):
            v, way = divmod(number, len(form.ways))
            for column, j in form.ways[way]:
                given = self._beside(u, v, column)
                for m, i in ((m, m * form.stride[0] + u) for m in range(form.waiting)):
                    if i < form.window[0]:
                        self._take(given, i * form.window[1] + j, m, number, f"{u}.{number}.{j}.{m}")
        return f"in{u}"

    def _beside(self, u: int, v: int, column: int) -> str:
        """Return the elements of a row at the offset `column` from those of a register of outputs."""
        apart, phase = divmod(column, self.form.stride[1])
        further, first = divmod(apart, self.form.lanes)
        low = self._register(u, v + further, phase)
        if not first:
            return low
        high = self._register(u, v + further + 1, phase)
        return self._joined(f"%x{u}.{v}.{column}", low, high, first, 1)

    def _register(self, u: int, number: int, phase: int) -> str:
        """Return a register of a row: of every second element where the stride is 2."""
        if self.form.stride[1] == 1:
            return self._loaded(u, number)
        low, high = self._loaded(u, 2 * number), self._loaded(u, 2 * number + 1)
        return self._joined(f"%x{u}.{number}.of{phase}", low, high, phase, 2)

    def _joined(self, name: str, low: str, high: str, first: int, step: int) -> str:
        """Return elements of two registers joined, from the element `first` on."""
        if low == high == self.nothing:
            return low
        if name not in self.made:
            self.made.add(name)
            pair = f"{self.vector} {low}, {self.vector} {high}"
            self.lines.append(f"  {name} = shufflevector {pair}, {self.ints} {self._counting(first, step)}")
        return name

    def _loaded(self, u: int, part: int) -> str:
        """Return a register of a row as it lies in memory."""
        form = self.form
        if form.alone and not 0 <= part * form.lanes < form.alone[1]:
            return self.nothing
        name = f"%x{u}.at{part}"
        if name not in self.made:
            self.made.add(name)
            self.loaded.add(part)
            given = f"ptr {name}.p, i32 4, {self.truth} {self._lanes_of(part, 1)}, {self.vector} {self.nothing}"
            self.lines.append(f"  {name}.p = getelementptr {self.kind}, ptr %x{u}, i64 {part * form.lanes}")
            self.lines.append(f"  {name} = call {self.vector} @llvm.masked.load.{self.suffix}.p0({given})")
        return name

    def _take(self, given: str, tap: int, m: int, v: int, name: str) -> None:
        """Combine an element of the windows with the sums of a register of outputs."""
        vector, old = self.vector, self.sums[m, v]
        if self.form.largest:
            self.lines += [
                f"  %more{name} = fcmp ogt {vector} {given}, {old}",
                f"  %nan{name} = fcmp uno {vector} {given}, {given}",
                f"  %most{name} = select {self.truth} %more{name}, {vector} {given}, {vector} {old}",
                f"  %new{name} = select {self.truth} %nan{name}, {vector} {given}, {vector} %most{name}",
            ]
        else:
            terms = f"{vector} %tap{tap}.all, {vector} {given}, {vector} {old}"
            self.lines.append(f"  %new{name} = call {vector} @llvm.fma.{self.suffix}({terms})")
        self.sums[m, v] = f"%new{name}"

    def _store(self, oldest: int) -> Iterator[str]:
        """Yield the stores of a row of outputs."""
        yield "  %y.row.at = mul i64 %h, %y.row\n  %y.place = add i64 %y.row.at, %v"
        yield f"  %y.at = getelementptr {self.kind}, ptr %y, i64 %y.place"
        values = [self.sums[oldest, v] for v in range(self.form.together)]
        yield from self._take_turns(values)
        for v, value in enumerate(values):
            yield f"  %to{v} = getelementptr {self.kind}, ptr %y.at, i64 {v * self.form.lanes}"
            if self.form.alone is None:
                given = f"{self.vector} {value}, ptr %to{v}, i32 4, {self.truth} %mask{v}"
                yield f"  call void @llvm.masked.store.{self.suffix}.p0({given})"
            else:
                yield from self._store_first(self.form.alone[0] - v * self.form.lanes, value, f"%to{v}")

    def _store_first(self, count: int, value: str, to: str) -> Iterator[str]:
        """Yield plain stores of the first lanes of a register: a masked store takes longer than several of these."""
        begin, kind, count = 0, self.kind, min(count, self.form.lanes)
        while begin < count:
            wide = 1 << (count - begin).bit_length() - 1
            order = ", ".join(f"i32 {lane}" for lane in range(begin, begin + wide))
            own = f"{to}.part{begin}"
            yield f"  {own} = shufflevector {self.vector} {value}, {self.vector} poison, <{wide} x i32> <{order}>"
            yield f"  {own}.at = getelementptr {kind}, ptr {to}, i64 {begin}"
            yield f"  store <{wide} x {kind}> {own}, ptr {own}.at, align 4"
            begin += wide

    def _take_turns(self, values: list[str]) -> Iterator[str]:
        """Yield the lines that interleave registers of neighbouring outputs, so that these lie next to each other: at
        each turn those of one half of the ways with those of the other.
        """
        lanes, ways = self.form.lanes, len(self.form.ways)
        turns = ways.bit_length() - 1
        for turn, v in product(range(turns), range(len(values))):
            first = v // ways * ways + v % ways // 2  # of one half, whose neighbour lies in the other
            pair = f"{self.vector} {values[first]}, {self.vector} {values[first + ways // 2]}"
            half = range(v % 2 * lanes // 2, (v % 2 + 1) * lanes // 2)
            order = ", ".join(f"i32 {lane + other}" for lane in half for other in (0, lanes))
            yield f"  %turn{turn}.{v} = shufflevector {pair}, {self.ints} <{order}>"
            if v == len(values) - 1:
                values[:] = [f"%turn{turn}.{n}" for n in range(len(values))]


class _Sums(_Text):
    """The text of the gradient of weights: rows of outputs are given, and sums are of the elements of the window.

    Lanes and rows of outputs that do not exist are left out of the sums: their factors in the input may be infinite.
    The lanes of each sum are added up at the end of a plane.
    """

    def __init__(self, form: Form) -> None:
        super().__init__(form)
        self.sums = {(tap, 0): f"%sum{tap}" for tap in range(prod(form.window))}
        self.taps = list(self.sums)

    def module(self) -> str:
        form, vector = self.form, self.vector
        cells = [(m, v) for m in range(1, form.waiting) for v in range(form.registers)]
        self._given_row()
        for u in range(form.stride[0]):
            self._over(u)
        lines = [
            *self._begin(),
            "  br label %block\nblock:\n  %v = phi i64 [0, %plane], [%v.n, %block.next]",
            *(
                f"  %all{t} = phi {vector} [zeroinitializer, %plane], [{self.sums[t, 0]}, %block.next]"
                for t, _ in self.taps
            ),
            *self._block(
                [f"  %g{m}.{v} = phi {vector} [zeroinitializer, %block], [%g{m - 1}.{v}, %row.next]" for m, v in cells]
                + [f"  %sum{t} = phi {vector} [%all{t}, %block], [{self.sums[t, 0]}, %row.next]" for t, _ in self.taps]
            ),
            *self.lines,
            *self._next_block(),
            *(line for tap, _ in self.taps for line in self._add_across(tap)),
            *self._next_plane(),
        ]
        return "\n".join(lines)

    def _given_row(self) -> None:
        """Write the loads of a row of outputs, and which of the rows being computed exist."""
        self.lines += [
            "  %h.last = sub i64 %out.h, 1\n  %h = call i64 @llvm.smin.i64(i64 %turn, i64 %h.last)",
            "  %g.row = mul i64 %h, %y.row\n  %g.far = add i64 %g.row, %v",
            f"  %g.at = getelementptr {self.kind}, ptr %w, i64 %g.far",
            f"  %g.ahead = mul i64 %y.row, {ROWS_AHEAD}",
            f"  %g.later = getelementptr {self.kind}, ptr %g.at, i64 %g.ahead",
        ]
        self._fetch("%g.later", self.form.registers)
        for v in range(self.form.registers):
            given = f"ptr %g.at{v}, i32 4, {self.truth} {self._lanes_of(v, 0)}, {self.vector} zeroinitializer"
            self.lines.append(f"  %g.at{v} = getelementptr {self.kind}, ptr %g.at, i64 {v * self.form.lanes}")
            self.lines.append(f"  %g0.{v} = call {self.vector} @llvm.masked.load.{self.suffix}.p0({given})")
        for m in range(self.form.waiting):
            self.lines.append(f"  %h{m} = sub i64 %turn, {m}\n  %is{m} = icmp ult i64 %h{m}, %out.h")

    def _take_row(self, u: int) -> str:
        form, block = self.form, f"in{u}"
        (way,) = form.ways
        given = {(v, j): self._beside(u, v, column) for v in range(form.registers) for column, j in way}
        for m, i in ((m, m * form.stride[0] + u) for m in range(form.waiting)):
            if i >= form.window[0]:
                continue
            old, name = dict(self.sums), f"{u}.{m}"
            self.lines.append(f"  br i1 %is{m}, label %do{name}, label %did{name}\ndo{name}:")
            for (v, j), x in given.items():
                self._take(x, i * form.window[1] + j, m, v, f"{name}.{v}.{j}")
            self.lines.append(f"  br label %did{name}\ndid{name}:")
            for own in self.sums:
                if self.sums[own] != old[own]:
                    ways = f"[{old[own]}, %{block}], [{self.sums[own]}, %do{name}]"
                    self.sums[own] = f"%did{name}.{own[0]}"
                    self.lines.append(f"  {self.sums[own]} = phi {self.vector} {ways}")
            block = f"did{name}"
        return block

    def _take(self, given: str, tap: int, m: int, v: int, name: str) -> None:
        vector, old = self.vector, self.sums[tap, 0]
        terms = f"{vector} {given}, {vector} %g{m}.{v}, {vector} {old}"
        self.lines.append(f"  %fma{name} = call {vector} @llvm.fma.{self.suffix}({terms})")
        self.lines.append(
            f"  %new{name} = select {self.truth} {self._lanes_of(v, 0)}, {vector} %fma{name}, {vector} {old}"
        )
        self.sums[tap, 0] = f"%new{name}"

    def _add_across(self, tap: int) -> Iterator[str]:
        """Yield what adds up the lanes of a sum, and stores the result."""
        reduce = f"@llvm.vector.reduce.fadd.{self.suffix}({self.kind} 0.0, {self.vector} {self.sums[tap, 0]})"
        yield f"  %whole{tap} = call reassoc {self.kind} {reduce}"
        yield f"  %y{tap} = getelementptr {self.kind}, ptr %y, i64 {tap}"
        yield f"  store {self.kind} %whole{tap}, ptr %y{tap}"

    def _begin(self) -> list[str]:
        return [
            f"declare {self.kind} @llvm.vector.reduce.fadd.{self.suffix}({self.kind}, {self.vector})",
            "declare i64 @llvm.smin.i64(i64, i64)",
            *super()._begin(),
        ]

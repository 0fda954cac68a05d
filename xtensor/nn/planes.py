"""Windows over planes of one channel, as LLVM code: weighted sums (depthwise convolution, sums of pools) and maxima.

Registers of neighbouring outputs take the elements of their windows one by one, straight from the input: what lies
outside is masked out of the loads. Nothing is copied. Rows of the input lie side by side, and windows are 1 or 2 apart
along them; where that is not so, the others do it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from math import gcd
from typing import Any, NamedTuple

import numpy as np

from ..base.dtypes import DType
from ..base.threads import worth
from ..codegen.cpu.compile import Code, handmade, host
from ..codegen.cpu.gemm import TYPES, loads, splat
from ..plan.costs import moving_seconds
from ..run.contractions import worth_compiling
from ..run.native import run_calls
from .windows import Axes, Axis, volume

Array = Any  # NumPy's, in whose types views of unknown rank cannot be written

# Windows of so many elements are written out; what one thread multiplies per second; how much longer all else takes.
LARGEST, SPEED, SLOWER = 64, 1e11, 32

# Rows between what is read and what is fetched for later: masked loads of what is not in the cache are waited for.
ROWS_AHEAD = 8

LOWEST = "0xFFF0000000000000"


def sweep(x: Array, w: Array | None, y: Array, bias: Array | None, axes: Axes, *, largest: bool = False) -> bool:
    """Write into y the sums over windows times weights (None: 1), plus a bias, or the maxima; return whether.

    x: (batch, channels, 1, *lengths). w: (channels, outputs of a channel, 1, *window). y: (batch, channels, outputs,
    *lengths). bias: (channels, outputs). It does where x and y lie as it needs them and the work is worth compiling.
    """
    item = y.itemsize
    fits = x.ndim <= 5 and x.dtype == y.dtype and y.size and max(axis.size for axis in axes) < 1 << 30
    if not fits or axes[-1].stride > 2 or volume(axes) > LARGEST or (x.strides[-1], y.strides[-1]) != (item, item):
        return False
    if not worth_compiling(y, y.dtype, SLOWER * y.size * volume(axes)):
        return False
    if x.ndim == 4:
        x, y, axes = x[..., None, :], y[..., None, :], (Axis(1, 1, 1, 1, 1, 0), axes[-1])
    channels, outputs = y.shape[1:3]
    taps: Array = np.ones((channels, outputs, volume(axes)), y.dtype) if w is None else np.ascontiguousarray(w, y.dtype)
    shift: Array = np.full((channels, outputs), -np.inf if largest else 0, y.dtype)
    shift = shift if bias is None else np.ascontiguousarray(bias, y.dtype)
    threads = worth(max(y.size * volume(axes) / SPEED, moving_seconds(x.nbytes + y.nbytes)))
    calls: list[bytes] = []
    combs = list(_combs(axes[0]))
    for of_x, of_y, high in combs:
        calls += _calls(x[:, :, 0, of_x], taps, y[..., of_y, :], shift, (high, axes[-1]), threads)
    code = _code(y.dtype, (combs[0][2], axes[-1]), largest)
    run_calls(code, [calls[n::threads] for n in range(min(threads, len(calls)))])
    return True


def _code(dtype: DType, axes: tuple[Axis, Axis], largest: bool) -> Code:
    machine = host()
    assert machine is not None
    return handmade(source(form_of(dtype, machine.vector_bytes, axes, largest)))


def _combs(axis: Axis) -> Iterator[tuple[slice, slice, Axis]]:
    """Yield rows of the input, the outputs' rows whose windows they are in, and how these lie over them, undilated.

    Without dilation they are all rows; with it, rows so far apart have nothing to do with the others.
    """
    common = gcd(axis.stride, axis.dilation)
    step = axis.dilation // common
    for first in range(min(step, axis.out)):
        start, row = divmod(first * axis.stride - axis.low, axis.dilation)
        size, out = len(range(row, axis.size, axis.dilation)), len(range(first, axis.out, step))
        own = Axis(size, out, axis.kernel, axis.stride // common, 1, -start)
        yield slice(row, None, axis.dilation), slice(first, None, step), own


def _calls(x: Array, taps: Array, y: Array, shift: Array, axes: tuple[Axis, Axis], threads: int) -> Iterator[bytes]:
    """Yield what the code is told: of an image all channels, or fewer where threads would have no work.

    x: (batch, channels, rows, columns). y: (batch, channels, outputs, rows, columns).
    """
    (high, wide), item = axes, y.itemsize
    batch, channels, outputs = y.shape[:3]
    parts = -(-2 * threads // (batch * outputs)) if threads > 1 else 1
    step = -(-channels // parts)
    begins = [a.__array_interface__["data"][0] for a in (x, taps, y, shift)]
    by_image, by_output = (x.strides[0], 0, y.strides[0], 0), (0, taps.strides[1], y.strides[2], shift.strides[1])
    by_channel = [a.strides[axis] for a, axis in ((x, 1), (taps, 0), (y, 1), (shift, 0))]
    numbers = [*(by // item for by in by_channel), high.out, high.size, wide.out, wide.size, high.low]
    numbers += [x.strides[2] // item, y.strides[3] // item]
    for n, m, first in product(range(batch), range(outputs), range(0, channels, step)):
        moves = zip(begins, by_image, by_output, by_channel, strict=True)
        places = [begin + n * image + m * output + first * channel for begin, image, output, channel in moves]
        yield struct.pack("=16q", *places, min(step, channels - first), *numbers)


_POINTERS = ("x", "w", "y", "b")
_NUMBERS = (
    *("planes", "x.step", "w.step", "y.step", "b.step", "out.h", "size.h", "out.w", "size.w"),
    *("low.h", "x.row", "y.row"),
)


class Form(NamedTuple):
    """What code is made for: windows and where they lie.

    window: its rows. columns: how far each of its elements lies, along a row, from its output's place times the stride.
    alone: whether the registers hold a whole row. registers: of outputs at a time.
    """

    char: str
    lanes: int
    window: int
    stride: tuple[int, int]
    columns: tuple[int, ...]
    largest: bool
    alone: bool
    registers: int

    @property
    def waiting(self) -> int:
        """How many rows of outputs are under way at a time."""
        return -(-self.window // self.stride[0])


def form_of(dtype: DType, vector_bytes: int, axes: tuple[Axis, Axis], largest: bool) -> Form:
    """Return the form for two axes: as many sums at a time as there are registers for."""
    high, wide = axes
    lanes = vector_bytes // dtype.itemsize
    sums, most = (16, 4) if vector_bytes == 64 else (8, 2)
    most, needed = min(most, max(sums // -(-high.kernel // high.stride), 1)), -(-wide.out // lanes)
    registers = -(-needed // -(-needed // most))
    columns = tuple([j * wide.dilation - wide.low for j in range(wide.kernel)])
    alone = max(wide.out, -(-wide.size // wide.stride)) <= registers * lanes
    return Form(dtype.char, lanes, high.kernel, (high.stride, wide.stride), columns, largest, alone, registers)


@lru_cache(256)
def source(form: Form) -> str:
    """Return the IR for a form."""
    return _Text(form).module()


class _Text:
    """The text of the code of a form.

    The rows of the input come once each and are added to all rows of outputs whose windows they are in, the sums of
    which wait in registers. A row is loaded where outputs lie in theirs; what lies beside that is put together from two
    registers: of loads a few elements apart most would cross the lines of the cache, which takes twice the time.
    """

    def __init__(self, form: Form) -> None:
        self.form = form
        self.kind, lanes = TYPES[form.char], form.lanes
        self.vector, self.ints, self.truth = f"<{lanes} x {self.kind}>", f"<{lanes} x i32>", f"<{lanes} x i1>"
        self.suffix = f"v{lanes}f{32 if form.char == 'f' else 64}"
        self.nothing = f"splat ({self.kind} {LOWEST})" if form.largest else "zeroinitializer"
        self.block = "row"
        self.lines: list[str] = []
        self.made: set[str] = set()  # values written so far in this row of the input
        self.masks: set[int] = set()  # the registers of a row that are loaded
        registers = range(form.registers)
        # By how many rows of outputs have begun since, and by register.
        self.sums = {(m, v): f"%sum{m}.{v}" if m else "%bias.all" for m in range(form.waiting) for v in registers}

    def module(self) -> str:
        form, kind = self.form, self.kind
        for u in range(form.stride[0]):
            self._over(u)
        oldest = form.waiting - 1
        lines = [
            f"declare {self.vector} @llvm.fma.{self.suffix}({self.vector}, {self.vector}, {self.vector})",
            f"declare {self.vector} @llvm.masked.load.{self.suffix}.p0(ptr, i32, {self.truth}, {self.vector})",
            f"declare void @llvm.masked.store.{self.suffix}.p0({self.vector}, ptr, i32, {self.truth})",
            "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)",
            "define void @kernel(ptr %table) {\nentry:",
            *loads([f"{name}.0" for name in _POINTERS], _NUMBERS),
            *self._spread("size", "size.w"),
            f"  %ahead = mul i64 %x.row, {ROWS_AHEAD}",
            "  br label %plane\nplane:\n  %n = phi i64 [0, %entry], [%n.n, %plane.next]",
            *(f"  %{name} = phi ptr [%{name}.0, %entry], [%{name}.n, %plane.next]" for name in _POINTERS),
            *(f"  %bias = load {kind}, ptr %b", *splat("bias", kind, self.vector, form.lanes)),
            *self._taps(),
            f"  %turns = add i64 %out.h, {oldest}",
            "  br label %block\nblock:\n  %v = phi i64 [0, %plane], [%v.n, %block.next]",
            *("  %left = sub i64 %out.w, %v", *self._spread("left", "left")),
            f"  %column = mul i64 %v, {form.stride[1]}",
            *self._spread("column", "column"),
            *(
                f"  %mask{v} = icmp slt {self.ints} {self._counting(v * form.lanes)}, %left.all"
                for v in range(form.registers)
            ),
            *(line for part in sorted(self.masks) for line in self._mask(part)),
            "  br label %row\nrow:\n  %turn = phi i64 [0, %block], [%turn.n, %row.next]",
            *(
                f"  %sum{m + 1}.{v} = phi {self.vector} [%bias.all, %block], [{self.sums[m, v]}, %row.next]"
                for m in range(oldest)
                for v in range(form.registers)
            ),
            f"  %first = mul i64 %turn, {form.stride[0]}\n  %r = sub i64 %first, %low.h",
            *self.lines,
            f"  %h = sub i64 %turn, {oldest}\n  %there = icmp sge i64 %h, 0",
            "  br i1 %there, label %store, label %row.next\nstore:",
            *self._store(oldest),
            "  br label %row.next\nrow.next:\n  %turn.n = add i64 %turn, 1\n  %again = icmp slt i64 %turn.n, %turns",
            "  br i1 %again, label %row, label %block.next\nblock.next:",
            f"  %v.n = add i64 %v, {form.registers * form.lanes}\n  %v.more = icmp slt i64 %v.n, %out.w",
            "  br i1 %v.more, label %block, label %plane.next\nplane.next:",
            *(f"  %{name}.n = getelementptr {kind}, ptr %{name}, i64 %{name}.step" for name in _POINTERS),
            "  %n.n = add i64 %n, 1\n  %n.more = icmp slt i64 %n.n, %planes",
            "  br i1 %n.more, label %plane, label %done\ndone:\n  ret void\n}",
        ]
        return "\n".join(lines)

    def _counting(self, first: int, step: int = 1) -> str:
        return "<" + ", ".join(f"i32 {first + step * lane}" for lane in range(self.form.lanes)) + ">"

    def _spread(self, name: str, of: str) -> list[str]:
        """Make %name.all of a number of 64 bits."""
        return [
            f"  %{name}.small = trunc i64 %{of} to i32",
            *splat(name, "i32", self.ints, self.form.lanes, f"{name}.small"),
        ]

    def _taps(self) -> Iterator[str]:
        """Yield the loads of the weights of a plane."""
        for tap in range(0 if self.form.largest else self.form.window * len(self.form.columns)):
            yield f"  %w{tap} = getelementptr {self.kind}, ptr %w, i64 {tap}"
            yield f"  %tap{tap} = load {self.kind}, ptr %w{tap}"
            yield from splat(f"tap{tap}", self.kind, self.vector, self.form.lanes)

    def _mask(self, part: int) -> list[str]:
        """Return which elements of a register of a row are inside."""
        return [
            f"  %at{part} = add {self.ints} %column.all, {self._counting(part * self.form.lanes)}",
            f"  %mine{part} = icmp ult {self.ints} %at{part}, %size.all",
        ]

    def _over(self, u: int) -> None:
        """Write what a row of the input does for the rows of outputs that are under way."""
        form, old = self.form, dict(self.sums)
        rows = [(m, m * form.stride[0] + u) for m in range(form.waiting)]
        self.lines += [
            f"  %r{u} = add i64 %r, {u}\n  %inside{u} = icmp ult i64 %r{u}, %size.h",
            f"  br i1 %inside{u}, label %in{u}, label %past{u}\nin{u}:\n  %r.row{u} = mul i64 %r{u}, %x.row",
            f"  %r.at{u} = add i64 %r.row{u}, %column\n  %x{u} = getelementptr {self.kind}, ptr %x, i64 %r.at{u}",
        ]
        self.made.clear()
        self.lines.append(f"  %later{u} = getelementptr {self.kind}, ptr %x{u}, i64 %ahead")
        for part in range(form.registers * form.stride[1]):
            self.lines.append(f"  %later{u}.{part} = getelementptr {self.kind}, ptr %later{u}, i64 {part * form.lanes}")
            self.lines.append(f"  call void @llvm.prefetch.p0(ptr %later{u}.{part}, i32 0, i32 3, i32 1)")
        for v in range(form.registers):
            for j, column in enumerate(form.columns):
                given = self._beside(u, v, column)
                for m, i in rows:
                    if i < form.window:
                        self._take(given, i * len(form.columns) + j, m, v, f"{u}.{v}.{j}.{m}")
        self.lines.append(f"  br label %past{u}\npast{u}:")
        for m, v in self.sums:
            if self.sums[m, v] != old[m, v]:
                ways = f"[{old[m, v]}, %{self.block}], [{self.sums[m, v]}, %in{u}]"
                self.sums[m, v] = f"%past{u}.{m}.{v}"
                self.lines.append(f"  {self.sums[m, v]} = phi {self.vector} {ways}")
        self.block = f"past{u}"

    def _beside(self, u: int, v: int, column: int) -> str:
        """Return the elements of a row that lie so far from a register of outputs."""
        apart, phase = divmod(column, self.form.stride[1])
        further, first = divmod(apart, self.form.lanes)
        low = self._register(u, v + further, phase)
        if not first:
            return low
        high = self._register(u, v + further + 1, phase)
        return self._joined(f"%x{u}.{v}.{column}", low, high, first, 1)

    def _register(self, u: int, number: int, phase: int) -> str:
        """Return a register of a row; of every second element where windows are two apart."""
        if self.form.stride[1] == 1:
            return self._loaded(u, number)
        low, high = self._loaded(u, 2 * number), self._loaded(u, 2 * number + 1)
        return self._joined(f"%x{u}.{number}.of{phase}", low, high, phase, 2)

    def _joined(self, name: str, low: str, high: str, first: int, step: int) -> str:
        """Return elements of two registers, from a first one on."""
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
        if form.alone and not 0 <= part < form.registers * form.stride[1]:
            return self.nothing
        name = f"%x{u}.at{part}"
        if name not in self.made:
            self.made.add(name)
            self.masks.add(part)
            given = f"ptr {name}.p, i32 4, {self.truth} %mine{part}, {self.vector} {self.nothing}"
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
        for v in range(self.form.registers):
            given = f"{self.vector} {self.sums[oldest, v]}, ptr %to{v}, i32 4, {self.truth} %mask{v}"
            yield f"  %to{v} = getelementptr {self.kind}, ptr %y.at, i64 {v * self.form.lanes}"
            yield f"  call void @llvm.masked.store.{self.suffix}.p0({given})"

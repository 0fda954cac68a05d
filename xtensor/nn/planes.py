"""Windows over planes of one channel, as LLVM code: weighted sums (depthwise convolution, sums of pools) and maxima.

Registers of neighbouring outputs take the elements of their windows one by one, straight from the input: what lies
outside is masked out of the loads. Nothing is copied. Rows of the input lie side by side, and windows are 1 or 2 apart
along them; where that is not so, the others do it.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ..dtypes import DType
from ..lazy.compile import handmade, host
from ..lazy.launch import share_out
from ..threads import worth
from .product import TYPES, splat, worth_compiling
from .windows import Axes, Axis, volume

Array = Any  # NumPy's, in whose types views of unknown rank cannot be written

# Windows of so many elements are written out; what one thread multiplies per second; how much longer all else takes.
LARGEST, SPEED, SLOWER = 64, 2e10, 8

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
    if not worth_compiling(y.dtype, SLOWER * y.size * volume(axes)):
        return False
    high, wide = axes[0] if x.ndim == 5 else Axis(1, 1, 1, 1, 1, 0), axes[-1]
    if x.ndim == 4:
        x, y = x[..., None, :], y[..., None, :]
    channels, outputs = y.shape[1:3]
    taps = (
        np.ones((channels, outputs, high.kernel, wide.kernel), y.dtype)
        if w is None
        else np.ascontiguousarray(w, y.dtype)
    )
    shift = np.full((channels, outputs), -np.inf if largest else 0, y.dtype)
    shift = shift if bias is None else np.ascontiguousarray(bias, y.dtype)
    machine = host()
    assert machine is not None
    code = handmade(source(form_of(y.dtype, machine.vector_bytes, (high, wide), largest)))
    threads = worth(y.size * volume(axes) / SPEED)
    parts = -(-2 * threads // (x.shape[0] * outputs)) if threads > 1 else 1
    step = -(-channels // parts)
    numbers = [high.out, high.size, wide.out, wide.size, high.low, wide.dilation, wide.low]
    calls = []
    for n, m, first in np.ndindex(x.shape[0], outputs, -(-channels // step)):
        own = slice(first * step, (first + 1) * step)
        arrays = x[n, own, 0], taps[own, m], y[n, own, m], shift[own, m]
        addresses = [a.__array_interface__["data"][0] for a in arrays]
        steps = [a.strides[0] // item for a in arrays]
        rows = [arrays[0].strides[1] // item, arrays[2].strides[1] // item]
        calls.append(struct.pack("=18q", *addresses, len(arrays[0]), *steps, *numbers, *rows))
    if threads == 1 or len(calls) == 1:
        for call in calls:
            code.call(call)
    else:
        share_out(code, [calls[n::threads] for n in range(min(threads, len(calls)))])
    return True


_POINTERS = ("x", "w", "y", "b")
_NUMBERS = (
    *("planes", "x.step", "w.step", "y.step", "b.step", "out.h", "size.h", "out.w", "size.w"),
    *("low.h", "dilate.w", "low.w", "x.row", "y.row"),
)


class Form(NamedTuple):
    """What code is made for: windows, how far apart rows of windows and of a window are, and windows along a row.

    rows, registers: of outputs at a time.
    """

    char: str
    lanes: int
    window: tuple[int, int]
    stride: tuple[int, int]
    dilation: int
    largest: bool
    rows: int
    registers: int


def form_of(dtype: DType, vector_bytes: int, axes: tuple[Axis, Axis], largest: bool) -> Form:
    """Return the form for two axes: as many sums at a time as there are registers for."""
    high, wide = axes
    lanes = vector_bytes // dtype.itemsize
    registers = min(4 if vector_bytes == 64 else 2, -(-wide.out // lanes))
    rows = max(
        1, min(16 // registers if vector_bytes == 64 else 4, 4, high.out, LARGEST // (high.kernel * wide.kernel))
    )
    window, stride = (high.kernel, wide.kernel), (high.stride, wide.stride)
    return Form(dtype.char, lanes, window, stride, high.dilation, largest, rows, registers)


@cache
def source(form: Form) -> str:
    """Return the IR for a form."""
    return _Text(form).module()


class _Text:
    """The text of the code of a form.

    A block of rows of outputs takes the rows of the input that its windows touch, one after the other.
    """

    def __init__(self, form: Form) -> None:
        self.form = form
        self.kind, lanes = TYPES[form.char], form.lanes
        self.vector, self.ints, self.truth = f"<{lanes} x {self.kind}>", f"<{lanes} x i32>", f"<{lanes} x i1>"
        self.suffix = f"v{lanes}f{32 if form.char == 'f' else 64}"
        self.fill = f"{self.vector} " + (f"splat ({self.kind} {LOWEST})" if form.largest else "zeroinitializer")
        self.parts = range(form.registers * form.stride[1])
        self.block = "row"
        self.sums = {(q, v): "%bias.all" for q in range(form.rows) for v in range(form.registers)}

    def module(self) -> str:
        form, kind = self.form, self.kind
        names = [*((f"{name}.0", "ptr") for name in _POINTERS), *((name, "i64") for name in _NUMBERS)]
        reach = (form.rows - 1) * form.stride[0] + (form.window[0] - 1) * form.dilation + 1
        lines = [
            f"declare {self.vector} @llvm.fma.{self.suffix}({self.vector}, {self.vector}, {self.vector})",
            f"declare {self.vector} @llvm.masked.load.{self.suffix}.p0(ptr, i32, {self.truth}, {self.vector})",
            f"declare void @llvm.masked.store.{self.suffix}.p0({self.vector}, ptr, i32, {self.truth})",
            "define void @kernel(ptr %table) {\nentry:",
            *(f"  %at.{name} = getelementptr i64, ptr %table, i64 {n}" for n, (name, _) in enumerate(names)),
            *(f"  %{name} = load {of}, ptr %at.{name}" for name, of in names),
            *self._spread("size", "size.w"),
            "  br label %plane\nplane:\n  %n = phi i64 [0, %entry], [%n.n, %plane.next]",
            *(f"  %{name} = phi ptr [%{name}.0, %entry], [%{name}.n, %plane.next]" for name in _POINTERS),
            *(f"  %bias = load {kind}, ptr %b", *splat("bias", kind, self.vector, form.lanes)),
            "  br label %block\nblock:\n  %v = phi i64 [0, %plane], [%v.n, %block.next]",
            *("  %left = sub i64 %out.w, %v", *self._spread("left", "left")),
            f"  %v.stride = mul i64 %v, {form.stride[1]}\n  %column = sub i64 %v.stride, %low.w",
            *(
                f"  %mask{v} = icmp slt {self.ints} {self._counting(v * form.lanes)}, %left.all"
                for v in range(form.registers)
            ),
            *(line for j in range(form.window[1]) for line in self._column(j)),
            "  br label %row\nrow:\n  %h = phi i64 [0, %block], [%h.n, %row.next]",
            f"  %h.stride = mul i64 %h, {form.stride[0]}\n  %r = sub i64 %h.stride, %low.h",
            *(line for t in range(reach) for line in self._over(t)),
            *(line for q in range(form.rows) for line in self._store(q)),
            f"  br label %row.next\nrow.next:\n  %h.n = add i64 %h, {form.rows}\n  %h.more = icmp slt i64 %h.n, %out.h",
            "  br i1 %h.more, label %row, label %block.next\nblock.next:",
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

    def _column(self, j: int) -> list[str]:
        """Write where the elements of a column of the windows are, and which of them are inside."""
        lines = [f"  %far{j} = mul i64 %dilate.w, {j}\n  %column{j} = add i64 %column, %far{j}"]
        lines += self._spread(f"column{j}", f"column{j}")
        for part in self.parts:
            lines.append(f"  %at{j}.{part} = add {self.ints} %column{j}.all, {self._counting(part * self.form.lanes)}")
            lines.append(f"  %in{j}.{part} = icmp ult {self.ints} %at{j}.{part}, %size.all")
        return lines

    def _over(self, t: int) -> list[str]:
        """Write what a row of the input does for each row of outputs whose windows touch it."""
        form, old = self.form, dict(self.sums)
        ways = [divmod(t - q * form.stride[0], form.dilation) for q in range(form.rows)]
        touched = [(q, i) for q, (i, rest) in enumerate(ways) if not rest and 0 <= i < form.window[0]]
        if not touched:
            return []
        lines = [f"  %r{t} = add i64 %r, {t}\n  %inside{t} = icmp ult i64 %r{t}, %size.h"]
        lines.append(f"  br i1 %inside{t}, label %in{t}, label %t{t}\nin{t}:\n  %r.at{t} = mul i64 %r{t}, %x.row")
        lines.append(f"  %x{t} = getelementptr {self.kind}, ptr %x, i64 %r.at{t}")
        for j in range(form.window[1]):
            lines += self._load(t, j)
            lines += [line for q, i in touched for line in self._take(t, j, q, i)]
        lines.append(f"  br label %t{t}\nt{t}:")
        for q, v in self.sums:
            if self.sums[q, v] != old[q, v]:
                ways_in = f"[{old[q, v]}, %{self.block}], [{self.sums[q, v]}, %in{t}]"
                self.sums[q, v] = f"%sum{t}.{q}.{v}"
                lines.append(f"  {self.sums[q, v]} = phi {self.vector} {ways_in}")
        self.block = f"t{t}"
        return lines

    def _load(self, t: int, j: int) -> list[str]:
        """Load a column of the windows in a row of the input."""
        lines = [f"  %x{t}.{j} = getelementptr {self.kind}, ptr %x{t}, i64 %column{j}"]
        for part in self.parts:
            name = f"{t}.{j}.{part}"
            given = f"ptr %p{name}, i32 4, {self.truth} %in{j}.{part}, {self.fill}"
            lines.append(f"  %p{name} = getelementptr {self.kind}, ptr %x{t}.{j}, i64 {part * self.form.lanes}")
            lines.append(f"  %x{name} = call {self.vector} @llvm.masked.load.{self.suffix}.p0({given})")
        if self.form.stride[1] == 2:
            for v in range(self.form.registers):
                pair = ", ".join(f"{self.vector} %x{t}.{j}.{part}" for part in (2 * v, 2 * v + 1))
                lines.append(f"  %even{t}.{j}.{v} = shufflevector {pair}, {self.ints} {self._counting(0, 2)}")
        return lines

    def _take(self, t: int, j: int, q: int, i: int) -> list[str]:
        """Combine an element of the windows with the sums of a row of outputs."""
        vector, name, lines = self.vector, f"{t}.{j}.{q}", []
        if not self.form.largest:
            lines = [f"  %w{name} = getelementptr {self.kind}, ptr %w, i64 {i * self.form.window[1] + j}"]
            lines += [f"  %tap{name} = load {self.kind}, ptr %w{name}"]
            lines += splat(f"tap{name}", self.kind, vector, self.form.lanes)
        for v in range(self.form.registers):
            given, new, old = (
                f"%{'even' if self.form.stride[1] == 2 else 'x'}{t}.{j}.{v}",
                f"{name}.{v}",
                self.sums[q, v],
            )
            if self.form.largest:
                lines.append(f"  %more{new} = fcmp ogt {vector} {given}, {old}")
                lines.append(f"  %nan{new} = fcmp uno {vector} {given}, {given}")
                lines.append(f"  %most{new} = select {self.truth} %more{new}, {vector} {given}, {vector} {old}")
                lines.append(f"  %new{new} = select {self.truth} %nan{new}, {vector} {given}, {vector} %most{new}")
            else:
                terms = f"{vector} %tap{name}.all, {vector} {given}, {vector} {old}"
                lines.append(f"  %new{new} = call {vector} @llvm.fma.{self.suffix}({terms})")
            self.sums[q, v] = f"%new{new}"
        return lines

    def _store(self, q: int) -> list[str]:
        """Store a row of outputs, if there is one."""
        lines = [
            f"  %h{q} = add i64 %h, {q}\n  %there{q} = icmp slt i64 %h{q}, %out.h",
            f"  br i1 %there{q}, label %store{q}, label %row.next\nstore{q}:",
            f"  %y.row{q} = mul i64 %h{q}, %y.row\n  %y.place{q} = add i64 %y.row{q}, %v",
            f"  %y.at{q} = getelementptr {self.kind}, ptr %y, i64 %y.place{q}",
        ]
        for v in range(self.form.registers):
            given = f"{self.vector} {self.sums[q, v]}, ptr %to{q}.{v}, i32 4, {self.truth} %mask{v}"
            lines.append(f"  %to{q}.{v} = getelementptr {self.kind}, ptr %y.at{q}, i64 {v * self.form.lanes}")
            lines.append(f"  call void @llvm.masked.store.{self.suffix}.p0({given})")
        return lines

"""Convolutions of few channels in one group: the first layers of networks.

The rows of the input under a row of outputs are copied aside, with zeros around them; there all windows lie alike, and
nothing is packed. Where channels come last, every element of some windows is multiplied with registers of outputs;
where they come first, registers of positions are with a weight of some outputs. The gradient of weights goes the first
way, and has its sums over outputs in registers.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from .channels import OUTSIDE
from .compile import Code, handmade
from .gemm import Form, _masked_load, _masked_store, declared, first_lanes, loads, splat

# What a kernel is told. Offsets and steps count elements.
#
#   w         weights (elements of a window, outputs), `pitch` apart; of the gradient the sums, which are added to
#   firsts    of each row of outputs, and behind the last: the first of its rows of the input
#   x.rows    of those: where it lies, or OUTSIDE; y.rows: where a row of outputs does
#   rows      room for the rows under a row of outputs, of each channel and each phase of its columns modulo the stride,
#             `length` apart, which is a number of registers; channels that come last are part of the rows
#   ks        of each element of a window: where it lies in that room
#   size      elements of a row of the input; start: which one stands first in the room
POINTERS = ("x", "w", "y", "bias", "rows", "x.rows", "firsts", "y.rows", "ks")
NUMBERS = (
    *("outputs", "pitch", "row.count", "positions", "depth", "size", "start", "length", "y.step"),
    *("images", "x.image", "y.image", "channels", "x.channel"),
)


class Few(NamedTuple):
    """What code is made for: blocks of so many windows, `apart` elements from each to the next, and registers of
    outputs. The gradient has as many elements of a window at a time instead, which follow each other; where channels
    come first, there are so many outputs at a time, and registers of windows. phases: of columns, 1 or 2.
    """

    char: str
    lanes: int
    block: int
    registers: int
    apart: int
    phases: int = 1


@lru_cache(256)
def few_kernel(few: Few) -> Code:
    """Return the code of a convolution."""
    return handmade("\n".join(_Outputs(few).text()))


@lru_cache(256)
def few_first_kernel(few: Few) -> Code:
    """Return the code of a convolution where channels come first. Biases and weights are whole blocks of outputs."""
    return handmade("\n".join(_OutputsFirst(few).text()))


@lru_cache(256)
def few_weights_kernel(few: Few) -> Code:
    """Return the code of the gradient of its weights: y is given, and w is added to."""
    return handmade("\n".join(_Weights(few).text()))


class _Text:
    """What kernels have in common: rows of outputs, the rows of the input under them, and registers of outputs.

    along: whether registers are of outputs.
    """

    along = True

    def __init__(self, few: Few) -> None:
        self.few, self.form = few, Form(few.char, few.lanes, 1, 1)
        self.kind, self.vector = self.form.kind, f"<{few.lanes} x {self.form.kind}>"
        self.cells = [(b, v) for b in range(few.block) for v in range(few.registers)]

    def _begin(self) -> Iterator[str]:
        """Yield what comes before a row of outputs is computed: its rows of the input lie in the room."""
        yield from sorted(declared(self.form))
        yield "define void @kernel(ptr %table) {\nentry:"
        yield from loads(POINTERS, NUMBERS)
        yield "  br label %image\nimage:\n  %n = phi i64 [0, %entry], [%n.n, %image.next]"
        for name in "xy":
            yield f"  %{name}.far = mul i64 %n, %{name}.image"
            yield f"  %{name}.n = getelementptr {self.kind}, ptr %{name}, i64 %{name}.far"
        yield "  br label %row\nrow:\n  %r = phi i64 [0, %image], [%r.n, %row.next]"
        for name in ("firsts", "y.rows"):
            yield f"  %{name}.at = getelementptr i64, ptr %{name}, i64 %r\n  %{name}.r = load i64, ptr %{name}.at"
        yield "  %last.at = getelementptr i64, ptr %firsts.at, i64 1\n  %last = load i64, ptr %last.at"
        yield f"  %y.r = getelementptr {self.kind}, ptr %y.n, i64 %y.rows.r"
        yield from self._copy()

    def _some(self) -> Iterator[str]:
        """Yield the head of the loop over registers of outputs."""
        yield "  br label %some\nsome:\n  %o = phi i64 [0, %copied], [%o.n, %some.next]"
        for v in range(self.few.registers):
            yield f"  %o{v} = add i64 %o, {v * self.few.lanes}\n  %left{v} = sub i64 %outputs, %o{v}"
            yield from first_lanes(self.form, f"mask{v}", f"%left{v}")
        yield f"  %w.o = getelementptr {self.kind}, ptr %w, i64 %o"
        yield f"  %y.o = getelementptr {self.kind}, ptr %y.r, i64 %o"

    def _copy(self) -> Iterator[str]:
        """Yield the loops that copy rows; what lies outside is masked out, and becomes zeros."""
        lanes, phases = self.few.lanes, self.few.phases
        yield "  br label %copy\ncopy:\n  %e = phi i64 [%firsts.r, %row], [%e.n, %copy.next]"
        yield "  %to.e = phi ptr [%rows, %row], [%to.n, %copy.next]"
        yield "  %x.rows.at = getelementptr i64, ptr %x.rows, i64 %e\n  %x.row = load i64, ptr %x.rows.at"
        yield f"  %outside = icmp eq i64 %x.row, {OUTSIDE}\n  %there = select i1 %outside, i64 0, i64 %size"
        yield "  %x.some = select i1 %outside, i64 0, i64 %x.row"  # no address at all would be a fault, masked or not
        yield f"  %x.r = getelementptr {self.kind}, ptr %x.n, i64 %x.some"
        yield from splat("there", "i64", f"<{lanes} x i64>", lanes)
        yield "  br label %channel\nchannel:\n  %c = phi i64 [0, %copy], [%c.n, %channel.next]"
        yield "  %to = phi ptr [%to.e, %copy], [%to.n, %channel.next]"
        yield f"  %x.c.far = mul i64 %c, %x.channel\n  %x.c = getelementptr {self.kind}, ptr %x.r, i64 %x.c.far"
        yield "  br label %copy.some\ncopy.some:\n  %t = phi i64 [0, %channel], [%t.n, %copy.some]"
        yield f"  %t.far = mul i64 %t, {phases}\n  %from = add i64 %start, %t.far"
        yield from splat("from", "i64", f"<{lanes} x i64>", lanes)
        for part in range(phases):
            yield from self._inside(part)
        yield from self._phases()
        yield f"  %t.n = add i64 %t, {lanes}\n  %t.more = icmp slt i64 %t.n, %length"
        yield "  br i1 %t.more, label %copy.some, label %channel.next\nchannel.next:\n  %c.n = add i64 %c, 1"
        yield f"  %to.far = mul i64 %length, {phases}\n  %to.n = getelementptr {self.kind}, ptr %to, i64 %to.far"
        yield "  %c.more = icmp slt i64 %c.n, %channels\n  br i1 %c.more, label %channel, label %copy.next\ncopy.next:"
        yield "  %e.n = add i64 %e, 1\n  %e.more = icmp slt i64 %e.n, %last"
        yield "  br i1 %e.more, label %copy, label %copied\ncopied:"

    def _inside(self, part: int) -> Iterator[str]:
        """Yield the load of a register of a row: %in.x and the part's number."""
        lanes, wide = self.few.lanes, f"<{self.few.lanes} x i64>"
        counting = ", ".join(f"i64 {part * lanes + lane}" for lane in range(lanes))
        yield f"  %at{part} = add {wide} %from.all, <{counting}>\n  %in{part} = icmp ult {wide} %at{part}, %there.all"
        yield f"  %from{part} = add i64 %from, {part * lanes}"
        yield f"  %x.t{part} = getelementptr {self.kind}, ptr %x.c, i64 %from{part}"
        yield _masked_load(self.form, f"%in.x{part}", f"%x.t{part}", f"%in{part}")

    def _phases(self) -> Iterator[str]:
        """Yield the stores of what was loaded, columns of each phase together."""
        lanes, phases = self.few.lanes, self.few.phases
        for phase in range(phases):
            value = "%in.x0"
            if phases == 2:
                value, order = f"%phase{phase}", ", ".join(f"i32 {phase + 2 * lane}" for lane in range(lanes))
                pair = f"{self.vector} %in.x0, {self.vector} %in.x1"
                yield f"  {value} = shufflevector {pair}, <{lanes} x i32> <{order}>"
            yield f"  %to.phase{phase} = mul i64 %length, {phase}\n  %to.t{phase} = add i64 %to.phase{phase}, %t"
            yield f"  %to.at{phase} = getelementptr {self.kind}, ptr %to, i64 %to.t{phase}"
            yield f"  store {self.vector} {value}, ptr %to.at{phase}, align {self.form.itemsize}"

    def _end(self) -> Iterator[str]:
        step = self.few.registers * self.few.lanes
        yield f"  br label %some.next\nsome.next:\n  %o.n = add i64 %o, {step if self.along else self.few.block}"
        yield from self._again("o", "some", "%outputs")
        yield "  br label %row.next\nrow.next:\n  %r.n = add i64 %r, 1"
        yield from self._again("r", "row", "%row.count")
        yield "  br label %image.next\nimage.next:\n  %n.n = add i64 %n, 1"
        yield from self._again("n", "image", "%images")
        yield "  ret void\n}"

    def _again(self, counter: str, name: str, end: str) -> Iterator[str]:
        yield f"  %{counter}.more = icmp slt i64 %{counter}.n, {end}"
        yield f"  br i1 %{counter}.more, label %{name}, label %{name}.done\n{name}.done:"

    def _spread(self, name: str, pointer: str, far: int) -> Iterator[str]:
        """Yield what makes a register %name.all of one number."""
        yield f"  %{name}.at = getelementptr {self.kind}, ptr {pointer}, i64 {far}"
        yield f"  %{name} = load {self.kind}, ptr %{name}.at"
        yield from splat(name, self.kind, self.vector, self.few.lanes)

    def _multiply_add(self, name: str, x: str, y: str, z: str) -> str:
        suffix, vector = f"v{self.few.lanes}f{8 * self.form.itemsize}", self.vector
        return f"  {name} = call {vector} @llvm.fma.{suffix}({vector} {x}, {vector} {y}, {vector} {z})"

    def _registers(self, name: str, pointer: str) -> Iterator[str]:
        """Yield the loads of the registers of outputs from somewhere on."""
        for v in range(self.few.registers):
            yield f"  %{name}{v}.at = getelementptr {self.kind}, ptr {pointer}, i64 {v * self.few.lanes}"
            yield _masked_load(self.form, f"%{name}{v}", f"%{name}{v}.at", f"%mask{v}")


class _Outputs(_Text):
    """The text of a convolution."""

    def text(self) -> Iterator[str]:
        yield from self._begin()
        yield from self._some()
        yield f"  %bias.o = getelementptr {self.kind}, ptr %bias, i64 %o"
        yield from self._registers("b", "%bias.o")
        yield "  br label %block\nblock:\n  %p = phi i64 [0, %some], [%p.n, %block.next]"
        yield f"  %x.far.p = mul i64 %p, {self.few.apart}\n  %x.p = getelementptr {self.kind}, ptr %rows, i64 %x.far.p"
        yield from self._sums()
        yield from self._store()
        yield f"  br label %block.next\nblock.next:\n  %p.n = add i64 %p, {self.few.block}"
        yield from self._again("p", "block", "%positions")
        yield from self._end()

    def _sums(self) -> Iterator[str]:
        """Yield the loop over elements of the windows."""
        yield "  br label %term\nterm:\n  %k = phi i64 [0, %block], [%k.n, %term]"
        yield "  %w.k = phi ptr [%w.o, %block], [%w.k.n, %term]"
        for p, v in self.cells:
            yield f"  %old{p}.{v} = phi {self.vector} [%b{v}, %block], [%sum{p}.{v}, %term]"
        yield "  %ks.at = getelementptr i64, ptr %ks, i64 %k\n  %far.k = load i64, ptr %ks.at"
        yield f"  %x.k = getelementptr {self.kind}, ptr %x.p, i64 %far.k"
        yield from self._registers("w", "%w.k")
        for p in range(self.few.block):
            yield from self._spread(f"x{p}", "%x.k", p * self.few.apart)
            for v in range(self.few.registers):
                yield self._multiply_add(f"%sum{p}.{v}", f"%x{p}.all", f"%w{v}", f"%old{p}.{v}")
        yield f"  %w.k.n = getelementptr {self.kind}, ptr %w.k, i64 %pitch\n  %k.n = add i64 %k, 1"
        yield from self._again("k", "term", "%depth")

    def _store(self) -> Iterator[str]:
        truth = f"<{self.few.lanes} x i1>"
        yield f"  %y.far.p = mul i64 %p, %y.step\n  %to0 = getelementptr {self.kind}, ptr %y.o, i64 %y.far.p"
        yield "  %left.p = sub i64 %positions, %p"
        for p, v in self.cells:
            if p and not v:
                yield f"  %to{p} = getelementptr {self.kind}, ptr %to{p - 1}, i64 %y.step"
            if not v:
                yield f"  %is{p} = icmp sgt i64 %left.p, {p}"
            yield f"  %mask{p}.{v} = select i1 %is{p}, {truth} %mask{v}, {truth} zeroinitializer"
            yield f"  %to{p}.{v} = getelementptr {self.kind}, ptr %to{p}, i64 {v * self.few.lanes}"
            yield _masked_store(self.form, f"%sum{p}.{v}", f"%to{p}.{v}", f"%mask{p}.{v}")


class _OutputsFirst(_Text):
    """The text of a convolution where channels come first."""

    along = False

    def text(self) -> Iterator[str]:
        few = self.few
        yield from self._begin()
        yield "  br label %some\nsome:\n  %o = phi i64 [0, %copied], [%o.n, %some.next]"
        yield f"  %w.o = getelementptr {self.kind}, ptr %w, i64 %o\n  %y.far.o = mul i64 %o, %y.step"
        yield f"  %y.o = getelementptr {self.kind}, ptr %y.r, i64 %y.far.o"
        yield f"  %bias.o = getelementptr {self.kind}, ptr %bias, i64 %o"
        for b in range(few.block):
            yield from self._spread(f"b{b}", "%bias.o", b)
        yield "  br label %block\nblock:\n  %p = phi i64 [0, %some], [%p.n, %block.next]"
        yield f"  %x.p = getelementptr {self.kind}, ptr %rows, i64 %p"
        yield from self._sums()
        yield from self._store()
        yield f"  br label %block.next\nblock.next:\n  %p.n = add i64 %p, {few.registers * few.lanes}"
        yield from self._again("p", "block", "%positions")
        yield from self._end()

    def _sums(self) -> Iterator[str]:
        """Yield the loop over elements of the windows."""
        yield "  br label %term\nterm:\n  %k = phi i64 [0, %block], [%k.n, %term]"
        yield "  %w.k = phi ptr [%w.o, %block], [%w.k.n, %term]"
        for b, v in self.cells:
            yield f"  %old{b}.{v} = phi {self.vector} [%b{b}.all, %block], [%sum{b}.{v}, %term]"
        yield "  %ks.at = getelementptr i64, ptr %ks, i64 %k\n  %far.k = load i64, ptr %ks.at"
        yield f"  %x.k = getelementptr {self.kind}, ptr %x.p, i64 %far.k"
        for v in range(self.few.registers):
            yield f"  %x{v}.at = getelementptr {self.kind}, ptr %x.k, i64 {v * self.few.lanes}"
            yield f"  %x{v} = load {self.vector}, ptr %x{v}.at, align {self.form.itemsize}"
        for b in range(self.few.block):
            yield from self._spread(f"w{b}", "%w.k", b)
            for v in range(self.few.registers):
                yield self._multiply_add(f"%sum{b}.{v}", f"%x{v}", f"%w{b}.all", f"%old{b}.{v}")
        yield f"  %w.k.n = getelementptr {self.kind}, ptr %w.k, i64 %pitch\n  %k.n = add i64 %k, 1"
        yield from self._again("k", "term", "%depth")

    def _store(self) -> Iterator[str]:
        truth = f"<{self.few.lanes} x i1>"
        yield f"  %to0 = getelementptr {self.kind}, ptr %y.o, i64 %p\n  %left.o = sub i64 %outputs, %o"
        for v in range(self.few.registers):
            yield f"  %p{v} = add i64 %p, {v * self.few.lanes}\n  %left{v} = sub i64 %positions, %p{v}"
            yield from first_lanes(self.form, f"mask{v}", f"%left{v}")
        for b, v in self.cells:
            if b and not v:
                yield f"  %to{b} = getelementptr {self.kind}, ptr %to{b - 1}, i64 %y.step"
            if not v:
                yield f"  %is{b} = icmp sgt i64 %left.o, {b}"
            yield f"  %mask{b}.{v} = select i1 %is{b}, {truth} %mask{v}, {truth} zeroinitializer"
            yield f"  %to{b}.{v} = getelementptr {self.kind}, ptr %to{b}, i64 {v * self.few.lanes}"
            yield _masked_store(self.form, f"%sum{b}.{v}", f"%to{b}.{v}", f"%mask{b}.{v}")


class _Weights(_Text):
    """The text of the gradient of weights: the sums of a row of outputs, added to those in memory."""

    def text(self) -> Iterator[str]:
        few = self.few
        yield from self._begin()
        yield from self._some()
        yield "  br label %terms\nterms:\n  %k = phi i64 [0, %some], [%k.n, %terms.next]"
        yield "  %ks.at = getelementptr i64, ptr %ks, i64 %k\n  %far.k = load i64, ptr %ks.at"
        yield f"  %x.k = getelementptr {self.kind}, ptr %rows, i64 %far.k"
        yield "  br label %one\none:\n  %p = phi i64 [0, %terms], [%p.n, %one]"
        for name, start in (("x", "%x.k"), ("g", "%y.o")):
            yield f"  %{name}.p = phi ptr [{start}, %terms], [%{name}.p.n, %one]"
        for t, v in self.cells:
            yield f"  %old{t}.{v} = phi {self.vector} [zeroinitializer, %terms], [%sum{t}.{v}, %one]"
        yield from self._registers("g", "%g.p")
        for t in range(few.block):
            yield from self._spread(f"x{t}", "%x.p", t)
            for v in range(few.registers):
                yield self._multiply_add(f"%sum{t}.{v}", f"%x{t}.all", f"%g{v}", f"%old{t}.{v}")
        yield f"  %x.p.n = getelementptr {self.kind}, ptr %x.p, i64 {few.apart}\n  %p.n = add i64 %p, 1"
        yield f"  %g.p.n = getelementptr {self.kind}, ptr %g.p, i64 %y.step"
        yield from self._again("p", "one", "%positions")
        yield from self._add_up()
        yield f"  br label %terms.next\nterms.next:\n  %k.n = add i64 %k, {few.block}"
        yield from self._again("k", "terms", "%depth")
        yield from self._end()

    def _add_up(self) -> Iterator[str]:
        """Yield what adds the sums to those in memory."""
        for t, v in self.cells:
            name = f"%total{t}.{v}"
            yield f"  {name}.k = add i64 %k, {t}\n  {name}.row = mul i64 {name}.k, %pitch"
            yield f"  {name}.far = add i64 {name}.row, {v * self.few.lanes}"
            yield f"  {name}.at = getelementptr {self.kind}, ptr %w.o, i64 {name}.far"
            yield _masked_load(self.form, f"{name}.old", f"{name}.at", f"%mask{v}")
            yield f"  {name} = fadd {self.vector} {name}.old, %sum{t}.{v}"
            yield _masked_store(self.form, name, f"{name}.at", f"%mask{v}")

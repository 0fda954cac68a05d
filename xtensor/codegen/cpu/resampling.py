"""Weighted sums of elements along axes, as LLVM code: for each output, the numbers and weights of those it is made of.

A pass goes along one axis of (outer, axis, inner): across, where registers hold neighbouring inner elements, or along,
where they hold neighbouring outputs, whose elements are gathered. Two passes go by planes, through scratch memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from .compile import Code, handmade
from .forms import first_lanes, masked_load, masked_store, splat
from .sweeping import Sweeping

# The words of a call: the first plane, the scratch memory between passes, and the first plane written; how many planes,
# and steps from one to the next; then those of each pass. table, weights: of (taps, outputs), numbers of 32 bits, below
# 0 for none, in elements where a pass goes along, whose outputs fill whole registers; outputs: from one tap to the
# next; wide: outputs, or inner elements, of a row; steps in elements, by outer and by number along the axis.
POINTERS, NUMBERS = ("x", "between", "y"), ("planes", "x.plane", "y.plane")
TABLES = ("table", "weights")
COUNTS = ("taps", "outputs", "outer", "count", "wide", "from.outer", "to.outer", "from.step", "to.step")


@cache
def resampling(char: str, lanes: int, passes: tuple[bool, ...]) -> Code:
    """Return the code of one pass or two. passes: whether each goes along."""
    return handmade("\n".join(_Resampling(char, lanes).text(passes)))


class _Resampling(Sweeping):
    """The text of the kernel."""

    def __init__(self, char: str, lanes: int) -> None:
        super().__init__(char, lanes)
        self.truth, self.ints, self.pointers = f"<{lanes} x i1>", f"<{lanes} x i32>", f"<{lanes} x ptr>"
        self.gather = f"{self.vector} @llvm.masked.gather.v{lanes}f{8 * self.form.itemsize}.v{lanes}p0"

    def text(self, passes: tuple[bool, ...]) -> Iterator[str]:
        """Yield the kernel."""
        own = range(len(passes))
        pointers = (*POINTERS, *[f"{name}{n}" for n in own for name in TABLES])
        numbers = (*NUMBERS, *[f"{name}{n}" for n in own for name in COUNTS])
        yield f"declare {self.gather}({self.pointers}, i32, {self.truth}, {self.vector})"
        yield from self.kernel(pointers, numbers, self.loop("each.plane", "p", "%planes", self._plane(passes)))

    def _plane(self, passes: tuple[bool, ...]) -> Iterator[str]:
        yield from self.far("x.p", "%x", "%p", "%x.plane")
        yield from self.far("y.p", "%y", "%p", "%y.plane")
        for n, along in enumerate(passes):
            given = "%between" if n else "%x.p"
            made = "%y.p" if n + 1 == len(passes) else "%between"
            yield from self.loop(f"rows{n}", f"o{n}", f"%outer{n}", self._row(n, along, given, made))

    def _row(self, n: int, along: bool, given: str, made: str) -> Iterator[str]:
        yield from self.far(f"from{n}", given, f"%o{n}", f"%from.outer{n}")
        yield from self.far(f"to{n}", made, f"%o{n}", f"%to.outer{n}")
        if along:
            yield from self._registers(n, f"%to{n}", "0", self._gathered(n))
            return
        yield from self.loop(f"each{n}", f"c{n}", f"%count{n}", self._across(n))

    def _across(self, n: int) -> Iterator[str]:
        yield from self.far(f"to.c{n}", f"%to{n}", f"%c{n}", f"%to.step{n}")
        yield from self._registers(n, f"%to.c{n}", f"%c{n}", self._loaded(n))

    def _registers(self, n: int, made: str, first: str, part: Iterator[str]) -> Iterator[str]:
        """Yield the loop over registers of a row, each the sum of its taps. first: the output, where that is one."""
        yield from self.loop(f"some{n}", f"j{n}", f"%wide{n}", self._sums(n, made, first, part), step=self.lanes)

    def _sums(self, n: int, made: str, first: str, part: Iterator[str]) -> Iterator[str]:
        yield f"  %left{n} = sub i64 %wide{n}, %j{n}"
        yield from first_lanes(self.form, f"own{n}", f"%left{n}")
        negative = f"<{', '.join([f'{self.kind} -0.0'] * self.lanes)}>"  # which added to -0.0 gives that
        carried = [(f"sum{n}", self.vector, negative, f"%sum.n{n}")]
        yield from self.loop(f"tap{n}", f"k{n}", f"%taps{n}", self._tap(n, first, part), carried=carried)
        yield f"  %to.j{n} = getelementptr {self.kind}, ptr {made}, i64 %j{n}"
        yield masked_store(self.form, f"%sum.n{n}", f"%to.j{n}", f"%own{n}")

    def _tap(self, n: int, first: str, part: Iterator[str]) -> Iterator[str]:
        yield f"  %behind{n} = mul i64 %k{n}, %outputs{n}\n  %at{n} = add i64 %behind{n}, {first}"
        yield from part
        yield self.multiply_add(f"%sum.n{n}", f"%value{n}", f"%weight{n}.all", f"%sum{n}")

    def _loaded(self, n: int) -> Iterator[str]:
        """Yield the lines that load neighbouring elements of one number, and its weight."""
        yield f"  %number.at{n} = getelementptr i32, ptr %table{n}, i64 %at{n}"
        yield f"  %number{n} = load i32, ptr %number.at{n}\n  %there{n} = icmp sge i32 %number{n}, 0"
        yield f"  %some.number{n} = select i1 %there{n}, i32 %number{n}, i32 0"
        yield f"  %long{n} = sext i32 %some.number{n} to i64"
        yield from self.far(f"from.c{n}", f"%from{n}", f"%long{n}", f"%from.step{n}")
        yield f"  %from.j{n} = getelementptr {self.kind}, ptr %from.c{n}, i64 %j{n}"
        yield from self.masked(f"has{n}", f"%own{n}", f"%there{n}")
        yield masked_load(self.form, f"%value{n}", f"%from.j{n}", f"%has{n}")
        yield f"  %weight.at{n} = getelementptr {self.kind}, ptr %weights{n}, i64 %at{n}"
        yield f"  %weight{n} = load {self.kind}, ptr %weight.at{n}"
        yield from splat(f"weight{n}", self.kind, self.vector, self.lanes)

    def _gathered(self, n: int) -> Iterator[str]:
        """Yield the lines that gather the elements of neighbouring outputs, and load their weights."""
        itemsize = self.form.itemsize
        yield f"  %at.j{n} = add i64 %at{n}, %j{n}"
        yield f"  %number.at{n} = getelementptr i32, ptr %table{n}, i64 %at.j{n}"
        yield f"  %number{n} = load {self.ints}, ptr %number.at{n}, align 4"
        yield f"  %has{n} = icmp sge {self.ints} %number{n}, zeroinitializer"
        yield f"  %each{n} = getelementptr {self.kind}, ptr %from{n}, {self.ints} %number{n}"
        given = f"{self.pointers} %each{n}, i32 {itemsize}, {self.truth} %has{n}, {self.vector} zeroinitializer"
        yield f"  %value{n} = call {self.gather}({given})"
        yield f"  %weight.at{n} = getelementptr {self.kind}, ptr %weights{n}, i64 %at.j{n}"
        yield f"  %weight{n}.all = load {self.vector}, ptr %weight.at{n}, align {itemsize}"

"""The gathering of a matrix from elements at computed offsets, as LLVM code."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from .compile import Code, handmade
from .gemm import _masked_load, _masked_store, first_lanes, splat
from .sweeping import OUTSIDE, Sweeping

# The words of the kernel: to[i, j] becomes the element of x at rows[i] + columns[j], or zero if one of these is
# OUTSIDE. The table of columns fills whole registers; the matrix has `wide` columns. If columns are contiguous, there
# is no such table, and all but the first `there` are zeros.
POINTERS = ("x", "rows", "columns", "to")
NUMBERS = ("row.count", "wide", "there")


@cache
def gathering(char: str, lanes: int, near: bool) -> Code:
    """Return the machine code that gathers a matrix of a dtype. near: whether columns are contiguous."""
    return handmade("\n".join(_Gathering(char, lanes, near).text()))


class _Gathering(Sweeping):
    """The text of the kernel."""

    def __init__(self, char: str, lanes: int, near: bool) -> None:
        super().__init__(char, lanes)
        self.near, self.truth, self.pointers = near, f"<{lanes} x i1>", f"<{lanes} x ptr>"
        self.gather = f"{self.vector} @llvm.masked.gather.v{lanes}f{8 * self.form.itemsize}.v{lanes}p0"

    def text(self) -> Iterator[str]:
        """Yield the kernel."""
        yield f"declare {self.gather}({self.pointers}, i32, {self.truth}, {self.vector})"
        yield from self.kernel(POINTERS, NUMBERS, self.loop("row", "i", "%row.count", self._row()))

    def _row(self) -> Iterator[str]:
        yield from self.words("%i", "rows")
        yield f"  %x.i = getelementptr {self.kind}, ptr %x, i64 %rows.this"
        yield f"  %row.in = icmp ne i64 %rows.this, {OUTSIDE}"
        yield from self.far("to.i", "%to", "%i", "%wide")
        yield from self.loop("some", "j", "%wide", self._some(), step=self.lanes)

    def _some(self) -> Iterator[str]:
        """Yield the gathering of a register."""
        yield from self._beside() if self.near else self._apart()
        yield f"  %to.j = getelementptr {self.kind}, ptr %to.i, i64 %j\n  %left = sub i64 %wide, %j"
        yield from first_lanes(self.form, "inside", "%left")
        yield _masked_store(self.form, "%value", "%to.j", "%inside")

    def _beside(self) -> Iterator[str]:
        yield f"  %from = getelementptr {self.kind}, ptr %x.i, i64 %j\n  %there.j = sub i64 %there, %j"
        yield from first_lanes(self.form, "own", "%there.j")
        yield f"  %has = select i1 %row.in, {self.truth} %own, {self.truth} zeroinitializer"
        yield _masked_load(self.form, "%value", "%from", "%has")

    def _apart(self) -> Iterator[str]:
        longs = f"<{self.lanes} x i64>"
        yield f"  %outside = add i64 {OUTSIDE}, 0"
        yield from splat("outside", "i64", longs, self.lanes)
        yield "  %columns.at = getelementptr i64, ptr %columns, i64 %j"
        yield f"  %far = load {longs}, ptr %columns.at, align 8"
        yield f"  %own = icmp ne {longs} %far, %outside.all"
        yield f"  %has = select i1 %row.in, {self.truth} %own, {self.truth} zeroinitializer"
        yield f"  %from = getelementptr {self.kind}, ptr %x.i, {longs} %far"
        given = f"{self.pointers} %from, i32 {self.form.itemsize}, {self.truth} %has, {self.vector} zeroinitializer"
        yield f"  %value = call {self.gather}({given})"

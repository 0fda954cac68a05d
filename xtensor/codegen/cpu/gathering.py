"""The gathering of a matrix from elements at computed offsets, as LLVM code."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from .compile import Code, handmade
from .forms import first_lanes, masked_load, masked_store, splat
from .sweeping import OUTSIDE, Sweeping

# The words of the kernel: to[i, j] becomes the element of x at rows[i] + columns[j], or zero if one of these is
# OUTSIDE. The table of columns fills whole registers; the matrix has `wide` columns. If columns are contiguous, there
# is no such table, and all but the first `there` are zeros.
POINTERS = ("x", "rows", "columns", "to")
NUMBERS = ("row.count", "wide", "there")

# How many rows ahead gathered elements are prefetched. (Every second element of rows of 56 takes .25 of the time.)
LATER = 8


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
        if not self.near:
            yield f"  %row.last = sub i64 %row.count, 1\n  %row.far = add i64 %i, {LATER}"
            yield "  %row.later = call i64 @llvm.smin.i64(i64 %row.far, i64 %row.last)"
            yield from self.words("%row.later", "rows", way="later.")
            yield f"  %is.later = icmp ne i64 %later.rows.this, {OUTSIDE}"
        yield from self.loop("some", "j", "%wide", self._some(), step=self.lanes)

    def _some(self) -> Iterator[str]:
        """Yield the gathering of a register."""
        yield from self._beside() if self.near else self._apart()
        yield f"  %to.j = getelementptr {self.kind}, ptr %to.i, i64 %j\n  %left = sub i64 %wide, %j"
        yield from first_lanes(self.form, "inside", "%left")
        yield masked_store(self.form, "%value", "%to.j", "%inside")

    def _beside(self) -> Iterator[str]:
        yield f"  %from = getelementptr {self.kind}, ptr %x.i, i64 %j\n  %there.j = sub i64 %there, %j"
        yield from first_lanes(self.form, "own", "%there.j")
        yield f"  %has = select i1 %row.in, {self.truth} %own, {self.truth} zeroinitializer"
        yield masked_load(self.form, "%value", "%from", "%has")

    def _apart(self) -> Iterator[str]:
        longs = f"<{self.lanes} x i64>"
        yield f"  %outside = add i64 {OUTSIDE}, 0"
        yield from splat("outside", "i64", longs, self.lanes)
        yield "  %columns.at = getelementptr i64, ptr %columns, i64 %j"
        yield f"  %far = load {longs}, ptr %columns.at, align 8"
        yield f"  %own = icmp ne {longs} %far, %outside.all"
        yield f"  %has = select i1 %row.in, {self.truth} %own, {self.truth} zeroinitializer"
        yield f"  %from = getelementptr {self.kind}, ptr %x.i, {longs} %far"
        yield from self._fetched(longs)
        given = f"{self.pointers} %from, i32 {self.form.itemsize}, {self.truth} %has, {self.vector} zeroinitializer"
        yield f"  %value = call {self.gather}({given})"

    def _fetched(self, longs: str) -> Iterator[str]:
        """Yield prefetches of two lines of a later row, where its first element and it exist."""
        yield f"  %far.first = extractelement {longs} %far, i32 0\n  %own.first = icmp ne i64 %far.first, {OUTSIDE}"
        yield "  %is.fetched = and i1 %own.first, %is.later\n  %later.far = add i64 %far.first, %later.rows.this"
        yield "  %later.some = select i1 %is.fetched, i64 %later.far, i64 0"
        yield f"  %later.at = getelementptr {self.kind}, ptr %x, i64 %later.some"
        yield self.prefetch("%later.at")
        yield "  %later.next = getelementptr i8, ptr %later.at, i64 64"
        yield self.prefetch("%later.next")

"""The gathering of a matrix from where tables say that its elements lie, as LLVM code."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from .compile import Code, handmade
from .gemm import _masked_store, first_lanes, splat
from .sweeping import OUTSIDE, Sweeping

# What it is told: to[i, j] becomes the element of x at rows[i] + columns[j], and zero where the latter is OUTSIDE. The
# table of columns is a number of registers; those of a row follow each other.
POINTERS = ("x", "rows", "columns", "to")
NUMBERS = ("row.count", "wide")


@cache
def gathering(char: str, lanes: int) -> Code:
    """Return the machine code that gathers a matrix of a dtype."""
    return handmade("\n".join(_Gathering(char, lanes).kernel(POINTERS, NUMBERS, _Gathering(char, lanes).text())))


class _Gathering(Sweeping):
    """The text of the kernel."""

    def kernel(self, *given: object) -> Iterator[str]:
        suffix = f"v{self.lanes}f{8 * self.form.itemsize}.v{self.lanes}p0"
        yield f"declare {self.vector} @llvm.masked.gather.{suffix}({self._pointers}, i32, {self._truth}, {self.vector})"
        yield from super().kernel(*given)  # type: ignore[arg-type]

    @property
    def _pointers(self) -> str:
        return f"<{self.lanes} x ptr>"

    @property
    def _truth(self) -> str:
        return f"<{self.lanes} x i1>"

    def text(self) -> Iterator[str]:
        yield from self.loop("row", "i", "%row.count", self._row())

    def _row(self) -> Iterator[str]:
        yield from self.words("%i", "rows")
        yield f"  %x.i = getelementptr {self.kind}, ptr %x, i64 %rows.this"
        yield from self.far("to.i", "%to", "%i", "%wide")
        yield from self.loop("some", "j", "%wide", self._some(), step=self.lanes)

    def _some(self) -> Iterator[str]:
        """Yield the gathering of a register."""
        longs, suffix = f"<{self.lanes} x i64>", f"v{self.lanes}f{8 * self.form.itemsize}.v{self.lanes}p0"
        yield f"  %outside = add i64 {OUTSIDE}, 0"
        yield from splat("outside", "i64", longs, self.lanes)
        yield "  %columns.at = getelementptr i64, ptr %columns, i64 %j"
        yield f"  %far = load {longs}, ptr %columns.at, align 8"
        yield f"  %there = icmp ne {longs} %far, %outside.all"
        yield f"  %from = getelementptr {self.kind}, ptr %x.i, {longs} %far"
        given = f"{self._pointers} %from, i32 {self.form.itemsize}, {self._truth} %there, {self.vector} zeroinitializer"
        yield f"  %value = call {self.vector} @llvm.masked.gather.{suffix}({given})"
        yield f"  %to.j = getelementptr {self.kind}, ptr %to.i, i64 %j\n  %left = sub i64 %wide, %j"
        yield from first_lanes(self.form, "inside", "%left")
        yield _masked_store(self.form, "%value", "%to.j", "%inside")

"""Sums of matrices that lanes of a gradient added up apart, written to where the weights lie, as LLVM code."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from .compile import Code, handmade
from .forms import first_lanes, masked_load, masked_store
from .sweeping import Sweeping

# The words of the kernel: the element of `to` at rows[i] + columns[j] becomes the sum of the elements [i, j] of
# `matrices` matrices, `apart` elements from one to the next, with `wide` columns, and `step` elements from row to row.
# The table of columns fills whole registers; if columns are contiguous, there is none.
POINTERS = ("x", "rows", "columns", "to")
NUMBERS = ("row.count", "wide", "step", "matrices", "apart")


@cache
def lane_sums_kernel(char: str, lanes: int, near: bool) -> Code:
    """Return the machine code for matrices of a dtype. near: whether the columns of the result are contiguous."""
    return handmade("\n".join(_LaneSums(char, lanes, near).text()))


class _LaneSums(Sweeping):
    """The text of the kernel. Sums are float64 whatever the dtype, and in the order of the matrices."""

    def __init__(self, char: str, lanes: int, near: bool) -> None:
        super().__init__(char, lanes)
        self.near, self.pointers, self.sums = near, f"<{lanes} x ptr>", f"<{lanes} x double>"
        self.truth, self.is_wide = f"<{lanes} x i1>", char == "d"
        suffix = f"v{lanes}f{8 * self.form.itemsize}.v{lanes}p0"
        self.scatter = f"@llvm.masked.scatter.{suffix}"

    def text(self) -> Iterator[str]:
        """Yield the kernel."""
        yield f"declare void {self.scatter}({self.vector}, {self.pointers}, {self.truth})"
        yield from self.kernel(POINTERS, NUMBERS, self.loop("row", "i", "%row.count", self._row()))

    def _row(self) -> Iterator[str]:
        yield from self.words("%i", "rows")
        yield f"  %to.i = getelementptr {self.kind}, ptr %to, i64 %rows.this"
        yield from self.far("x.i", "%x", "%i", "%step")
        yield from self.loop("some", "j", "%wide", self._some(), step=self.lanes)

    def _some(self) -> Iterator[str]:
        """Yield the sum of a register, and its store."""
        yield f"  %x.j = getelementptr {self.kind}, ptr %x.i, i64 %j\n  %left = sub i64 %wide, %j"
        yield from first_lanes(self.form, "inside", "%left")
        carried = [("old", self.sums, "zeroinitializer", "%sum")]
        yield from self.loop("matrix", "n", "%matrices", self._add(), carried=carried)
        if not self.is_wide:
            yield f"  %total = fptrunc {self.sums} %sum to {self.vector}"
        total = "%sum" if self.is_wide else "%total"
        if self.near:
            yield f"  %to.j = getelementptr {self.kind}, ptr %to.i, i64 %j"
            yield masked_store(self.form, total, "%to.j", "%inside")
            return
        yield "  %columns.at = getelementptr i64, ptr %columns, i64 %j"
        yield f"  %far = load <{self.lanes} x i64>, ptr %columns.at, align 8"
        yield f"  %to.j = getelementptr {self.kind}, ptr %to.i, <{self.lanes} x i64> %far"
        yield f"  call void {self.scatter}({self.vector} {total}, {self.pointers} align 1 %to.j, {self.truth} %inside)"

    def _add(self) -> Iterator[str]:
        yield from self.far("x.n", "%x.j", "%n", "%apart")
        yield masked_load(self.form, "%one", "%x.n", "%inside")
        if not self.is_wide:
            yield f"  %one.wide = fpext {self.vector} %one to {self.sums}"
        yield f"  %sum = fadd {self.sums} %old, {'%one' if self.is_wide else '%one.wide'}"

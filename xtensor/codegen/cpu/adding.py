"""Rows added to rows of a matrix at given places, as LLVM code."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from .compile import Code, handmade
from .forms import first_lanes, masked_load, masked_store
from .sweeping import Sweeping

# The words of the kernel: row n of x is added to row places[n] of y, in columns from the first one to which the
# pointers lead; steps from row to row, in elements. later: how many rows ahead rows of y are prefetched.
POINTERS = ("x", "places", "y")
NUMBERS = ("count", "wide", "x.step", "y.step")
LATER = 8


@cache
def adding(char: str, lanes: int) -> Code:
    """Return the machine code for elements of a dtype."""
    return handmade("\n".join(_Adding(char, lanes).text()))


class _Adding(Sweeping):
    """The text of the kernel."""

    def text(self) -> Iterator[str]:
        """Yield the kernel."""
        yield from self.kernel(POINTERS, NUMBERS, self.loop("row", "n", "%count", self._row()))

    def _row(self) -> Iterator[str]:
        yield f"  %last = sub i64 %count, 1\n  %far = add i64 %n, {LATER}"
        yield "  %later = call i64 @llvm.smin.i64(i64 %far, i64 %last)"
        yield from self.words("%later", "places", way="later.")
        yield from self.far("y.later", "%y", "%later.places.this", "%y.step")
        yield from self.words("%n", "places")
        yield from self.far("x.n", "%x", "%n", "%x.step")
        yield from self.far("y.n", "%y", "%places.this", "%y.step")
        yield from self.loop("some", "j", "%wide", self._some(), step=self.lanes)

    def _some(self) -> Iterator[str]:
        """Yield the addition of a register."""
        for name in ("x.n", "y.n", "y.later"):
            yield f"  %{name}.j = getelementptr {self.kind}, ptr %{name}, i64 %j"
        yield self.prefetch("%y.later.j")
        yield "  %left = sub i64 %wide, %j"
        yield from first_lanes(self.form, "inside", "%left")
        yield masked_load(self.form, "%one", "%x.n.j", "%inside")
        yield masked_load(self.form, "%other", "%y.n.j", "%inside")
        yield f"  %sum = fadd {self.vector} %other, %one"
        yield masked_store(self.form, "%sum", "%y.n.j", "%inside")

"""Convolutions by single elements whose channels come first: the contraction kernel multiplies one strip after another.

Rows of its products are outputs; columns are positions, which are packed from where they lie.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from .compile import Code, handmade
from .finish import Finish
from .forms import Form, declared
from .gemm import NUMBERS, POINTERS, WORDS, source
from .strip_rows import STRIP_WORDS, Strip, StripText


@lru_cache(256)
def products_kernel(own: Strip, form: Form, finish: Finish | None = None) -> Code:
    """Return the code of a convolution. finish: the steps that follow on its sums.

    Raises LacksError where generated code lacks one of these.
    """
    known = declared(form)
    lines = [line for line in _Products(own, form.height).text() if line not in known]
    return handmade("\n".join([source(form, finish, "product"), *lines]))


class _Products(StripText):
    """The text of a kernel around the product. %product: the product's words, except those that differ from strip to
    strip; %sums: its scratch memory. Columns of a part stand for panels of rows, which have `height` rows or one less.
    """

    def __init__(self, own: Strip, height: int) -> None:
        super().__init__(own)
        self._height = height

    def text(self) -> Iterator[str]:
        yield "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"
        yield from super().text()

    def _groups(self) -> Iterator[str]:
        yield f"  %words = alloca [{WORDS} x i64], align 8"
        yield f"  call void @llvm.memcpy.p0.p0.i64(ptr %words, ptr %product, i64 {8 * WORDS}, i1 false)"
        yield from self._told("tall")
        own: dict[str, str] = {}
        for name, panel in (("first", "%first"), ("count", "%end")):
            yield f"  %tall.{name} = call i64 @llvm.smin.i64(i64 {panel}, i64 %all.tall)"
            yield f"  %short.{name} = mul i64 {panel}, {self._height - 1}"
            yield f"  %rows.{name} = add i64 %short.{name}, %tall.{name}"
            own[f"row.{name}"] = f"%rows.{name}"
        yield "  %own.tall = sub i64 %tall.count, %tall.first"
        yield from self._tell({"scratch": "%sums", **own, "tall": "%own.tall"})
        yield from super()._groups()

    def _group(self) -> Iterator[str]:
        yield "  %slots.far = mul i64 %g, %slot.count\n  %slots = getelementptr i64, ptr %finish, i64 %slots.far"
        yield from super()._group()

    def _strip(self) -> Iterator[str]:
        yield from self.words("%s", "begins")
        yield from self.words("%s", "x.rows")
        yield f"  %x.s = getelementptr {self.kind}, ptr %x.n, i64 %x.rows.this"
        yield from self.words("%begins.this", "y.rows")
        yield f"  %y.s = getelementptr {self.kind}, ptr %y.n, i64 %y.rows.this"
        yield "  %y.own = add i64 %y.begin, %y.n.far\n  %y.far = add i64 %y.own, %y.rows.this"
        yield f"  %own.at = mul i64 %s, {STRIP_WORDS}\n  %own = getelementptr i64, ptr %columns, i64 %own.at"
        for place, (name, kind) in enumerate((("pieces", "ptr"), ("panels", "ptr"), ("panel.count", "i64"))):
            yield f"  %own.{name}.at = getelementptr i64, ptr %own, i64 {place}"
            yield f"  %own.{name} = load {kind}, ptr %own.{name}.at"
        told = {"a.0": "%w.g", "b.0": "%x.s", "c.0": "%y.s", "bias.rows": "%bias.g", "finish": "%slots"}
        of_strip = {name: f"%own.{name}" for name in ("pieces", "panels", "panel.count")}
        yield from self._tell({**told, **of_strip, "begin": "%y.far"})
        yield "  call void @product(ptr %words)"

    def _told(self, name: str) -> Iterator[str]:
        """Yield the lines that load a number from the product's table as %all..."""
        yield f"  %at.all.{name} = getelementptr i64, ptr %words, i64 {(*POINTERS, *NUMBERS).index(name)}"
        yield f"  %all.{name} = load i64, ptr %at.all.{name}"

    def _tell(self, words: dict[str, str]) -> Iterator[str]:
        """Yield the lines that write words of the product's table."""
        for name, value in words.items():
            place, kind = (*POINTERS, *NUMBERS).index(name), "ptr" if name in POINTERS else "i64"
            yield f"  %tell.{name} = getelementptr i64, ptr %words, i64 {place}"
            yield f"  store {kind} {value}, ptr %tell.{name}"

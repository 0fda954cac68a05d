"""Products of many small matrices of one shape: tiles are added up from both operands where they lie.

Lengths are constants of the code, which has no tables and packs nothing: that takes as long as so small a product.
Rows of complex numbers are rows of their parts: those of B are multiplied with the real parts of A, and, times the
imaginary unit, with the imaginary ones.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from functools import lru_cache
from math import ceil
from typing import NamedTuple, TypeAlias

from .compile import Code, handmade, host
from .gemm import Form, declared, form_of, loads, splat

# Kernels that are remembered.
REMEMBERED = 256

# What the kernel is told; next: parts of numbers from matrix to matrix.
POINTERS = ("a.0", "b.0", "c.0")
NUMBERS = ("count", "a.next", "b.next", "c.next")

# The names of sums, by row and register.
Cells: TypeAlias = dict[tuple[int, int], str]


class Product(NamedTuple):
    """What a kernel is made for: products of matrices (rows, depth) and (depth, columns), whose numbers have so many
    parts. form: of tiles of parts.
    """

    form: Form
    rows: int
    depth: int
    columns: int
    parts: int

    @property
    def vector(self) -> str:
        return f"<{self.form.lanes} x {self.form.kind}>"

    @property
    def suffix(self) -> str:
        return f"v{self.form.lanes}f{8 * self.form.itemsize}"

    @property
    def width(self) -> int:
        """The parts in a row of the result."""
        return self.columns * self.parts


@lru_cache(REMEMBERED)
def stack_kernel(char: str, rows: int, depth: int, columns: int) -> Code:
    """Return the machine code that writes products (rows, columns) of matrices in C order."""
    parts = 1 + (char in "FD")
    form = _form(char.lower(), rows, parts * columns, parts)
    return handmade("\n".join(_source(Product(form, rows, depth, columns, parts))))


def _form(char: str, rows: int, width: int, parts: int) -> Form:
    """Return the form of tiles: wide ones, as each panel reads rows again, and rows may share a bank of the cache."""
    one = form_of(char, rows, width, 1, direct=True)
    machine = host()
    assert machine is not None
    registers, most = ceil(width / one.lanes), (2 if machine.vector_bytes == 32 else 4) // parts
    return form_of(char, rows, width, ceil(registers / ceil(registers / most)), direct=True)


def _source(one: Product) -> Iterator[str]:
    form = one.form
    widths = {j: min(form.width, one.width - j) for j in range(0, one.width, form.width)}
    groups = ceil(one.rows / form.height)
    starts = [one.rows * n // groups for n in range(groups + 1)]
    tiles = [(i, after - i, j) for i, after in zip(starts, starts[1:], strict=False) for j in widths]
    yield from sorted(declared(form))
    for height, width in sorted({(height, widths[j]) for _, height, j in tiles}):
        yield from _tile(one, height, width)
    yield "define void @kernel(ptr %table) {\nentry:"
    yield from loads(POINTERS, NUMBERS)
    yield "  br label %matrix\nmatrix:\n  %n = phi i64 [1, %entry], [%n.n, %matrix]"
    for x in "abc":
        yield f"  %{x} = phi ptr [%{x}.0, %entry], [%{x}.n, %matrix]"
    for i, height, j in tiles:
        places = {"a": i * one.depth * one.parts, "b": j, "c": i * one.width + j}
        for x, place in places.items():
            yield f"  %{x}.{i}.{j} = getelementptr {form.kind}, ptr %{x}, i64 {place}"
        yield f"  call void @tile{height}.{widths[j]}(ptr %a.{i}.{j}, ptr %b.{i}.{j}, ptr %c.{i}.{j})"
    for x in "abc":
        yield f"  %{x}.n = getelementptr {form.kind}, ptr %{x}, i64 %{x}.next"
    yield "  %n.n = add i64 %n, 1\n  %more = icmp slt i64 %n, %count\n  br i1 %more, label %matrix, label %done"
    yield "done:\n  ret void\n}"


def _tile(one: Product, height: int, width: int) -> Iterator[str]:
    """Yield the function of a tile of so many rows and parts of columns."""
    form = one.form
    cells = [(r, v) for r in range(height) for v in range(ceil(width / form.lanes))]
    yield f"define internal void @tile{height}.{width}(ptr %a, ptr %b, ptr %c) {{\nentry:"
    yield "  br label %term\nterm:\n  %k = phi i64 [0, %entry], [%k.n, %term]"
    yield from (f"  %{x}.k = phi ptr [%{x}, %entry], [%{x}.n, %term]" for x in "ab")
    for r, v in cells:
        yield f"  %sum{r}.{v} = phi {one.vector} [zeroinitializer, %entry], [%sum{one.parts - 1}.{r}.{v}, %term]"
    sums = yield from _term(one, width, {(r, v): f"%sum{r}.{v}" for r, v in cells})
    yield f"  %a.n = getelementptr {form.kind}, ptr %a.k, i64 {one.parts}"
    yield f"  %b.n = getelementptr {form.kind}, ptr %b.k, i64 {one.width}"
    yield f"  %k.n = add i64 %k, 1\n  %more = icmp slt i64 %k.n, {one.depth}"
    yield "  br i1 %more, label %term, label %done\ndone:"
    for r, v in cells:
        yield f"  %c{r}.{v} = getelementptr {form.kind}, ptr %c, i64 {r * one.width + v * form.lanes}"
        yield _moved(one, width - v * form.lanes, f"%c{r}.{v}", sums[r, v])
    yield "  ret void\n}"


def _term(one: Product, width: int, sums: Cells) -> Generator[str, None, Cells]:
    """Yield the lines that add the products of a term, which begins at %a.k and %b.k; return the sums."""
    form, vector = one.form, one.vector
    for v in sorted({v for _, v in sums}):
        yield f"  %b.{v} = getelementptr {form.kind}, ptr %b.k, i64 {v * form.lanes}"
        yield f"  %y0.{v} = {_moved(one, width - v * form.lanes, f'%b.{v}')}"
        if one.parts == 2:
            yield from _exchanged(one, f"%y0.{v}", f"%y1.{v}")
    for part in range(one.parts):
        for r in sorted({r for r, _ in sums}):
            yield f"  %a{part}.{r} = getelementptr {form.kind}, ptr %a.k, i64 {r * one.depth * one.parts + part}"
            yield f"  %x{part}.{r} = load {form.kind}, ptr %a{part}.{r}"
            yield from splat(f"x{part}.{r}", form.kind, vector, form.lanes)
        for r, v in sums:
            given = f"{vector} %x{part}.{r}.all, {vector} %y{part}.{v}, {vector} {sums[r, v]}"
            yield f"  %sum{part}.{r}.{v} = call {vector} @llvm.fma.{one.suffix}({given})"
        sums = {(r, v): f"%sum{part}.{r}.{v}" for r, v in sums}
    return sums


def _exchanged(one: Product, name: str, made: str) -> Iterator[str]:
    """Yield the lines that make numbers times the imaginary unit."""
    lanes = range(one.form.lanes)
    signs = ", ".join(f"{one.form.kind} {-1.0 if lane % 2 == 0 else 1.0}" for lane in lanes)
    order = ", ".join(f"i32 {lane ^ 1}" for lane in lanes)
    pair = f"{one.vector} {name}, {one.vector} poison"
    yield f"  {made}.turned = shufflevector {pair}, <{one.form.lanes} x i32> <{order}>"
    yield f"  {made} = fmul {one.vector} {made}.turned, <{signs}>"


def _moved(one: Product, count: int, pointer: str, value: str = "") -> str:
    """Return the instruction that loads, or stores a value, at a pointer: all lanes, or the first."""
    lanes, align = one.form.lanes, one.form.itemsize
    if count >= lanes:
        if value:
            return f"  store {one.vector} {value}, ptr {pointer}, align {align}"
        return f"load {one.vector}, ptr {pointer}, align {align}"
    mask = f"<{lanes} x i1> <{', '.join(f'i1 {int(lane < count)}' for lane in range(lanes))}>"
    place = f"ptr align {align} {pointer}, {mask}"
    if value:
        return f"  call void @llvm.masked.store.{one.suffix}.p0({one.vector} {value}, {place})"
    return f"call {one.vector} @llvm.masked.load.{one.suffix}.p0({place}, {one.vector} zeroinitializer)"

"""Products of many small matrices of one shape: tiles are added up from both operands where they lie.

Lengths are constants of the code, which has no tables and packs nothing: that takes as long as so small a product.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import ceil

from .compile import Code, handmade, host
from .gemm import Form, declared, form_of, loads, splat

# Kernels that are remembered.
REMEMBERED = 256

# What the kernel is told; next: elements from matrix to matrix.
POINTERS = ("a.0", "b.0", "c.0")
NUMBERS = ("count", "a.next", "b.next", "c.next")

# A sum of so few terms is written out.
FEW = 16


@lru_cache(REMEMBERED)
def stack_kernel(char: str, rows: int, depth: int, columns: int) -> Code:
    """Return the machine code that writes products (rows, columns) of matrices in C order."""
    return handmade("\n".join(_source(_form(char, rows, columns), rows, depth, columns)))


def _form(char: str, rows: int, columns: int) -> Form:
    """Return the form of tiles: wide ones, as each panel reads rows again, and rows may share a bank of the cache."""
    one = form_of(char, rows, columns, 1, direct=True)
    machine = host()
    assert machine is not None
    registers, most = ceil(columns / one.lanes), 2 if machine.vector_bytes == 32 else 4
    return form_of(char, rows, columns, ceil(registers / ceil(registers / most)), direct=True)


def _source(form: Form, rows: int, depth: int, columns: int) -> Iterator[str]:
    panels = range(0, columns, form.width)
    widths = {j: min(form.width, columns - j) for j in panels}
    groups = ceil(rows / form.height)
    starts = [rows * n // groups for n in range(groups + 1)]
    tiles = [(i, after - i, j) for i, after in zip(starts, starts[1:], strict=False) for j in panels]
    yield declared(form)
    for height, width in sorted({(height, widths[j]) for _, height, j in tiles}):
        yield from _tile(form, height, width, depth, columns)
    yield "define void @kernel(ptr %table) {\nentry:"
    yield from loads(POINTERS, NUMBERS)
    yield "  br label %matrix\nmatrix:\n  %n = phi i64 [1, %entry], [%n.n, %matrix]"
    for x in "abc":
        yield f"  %{x} = phi ptr [%{x}.0, %entry], [%{x}.n, %matrix]"
    for i, height, j in tiles:
        places = {"a": i * depth, "b": j, "c": i * columns + j}
        for x, place in places.items():
            yield f"  %{x}.{i}.{j} = getelementptr {form.kind}, ptr %{x}, i64 {place}"
        yield f"  call void @tile{height}.{widths[j]}(ptr %a.{i}.{j}, ptr %b.{i}.{j}, ptr %c.{i}.{j})"
    for x in "abc":
        yield f"  %{x}.n = getelementptr {form.kind}, ptr %{x}, i64 %{x}.next"
    yield "  %n.n = add i64 %n, 1\n  %more = icmp slt i64 %n, %count\n  br i1 %more, label %matrix, label %done"
    yield "done:\n  ret void\n}"


def _tile(form: Form, height: int, width: int, depth: int, columns: int) -> Iterator[str]:
    """Yield the function of a tile of so many rows and columns."""
    registers = ceil(width / form.lanes)
    vector = f"<{form.lanes} x {form.kind}>"
    cells = [(r, v) for r in range(height) for v in range(registers)]
    yield f"define internal void @tile{height}.{width}(ptr %a, ptr %b, ptr %c) {{\nentry:"
    if depth <= FEW:
        sums = dict.fromkeys(cells, "zeroinitializer")
        for k in range(depth):
            yield f"  %a{k} = getelementptr {form.kind}, ptr %a, i64 {k}"
            yield f"  %b{k} = getelementptr {form.kind}, ptr %b, i64 {k * columns}"
            yield from _term(form, height, width, depth, f"{k}", sums)
            sums = {(r, v): f"%sum{k}.{r}.{v}" for r, v in cells}
    else:
        yield "  br label %term\nterm:\n  %k = phi i64 [0, %entry], [%k.n, %term]"
        yield from (f"  %{x}.k = phi ptr [%{x}, %entry], [%{x}.n, %term]" for x in "ab")
        yield from (
            f"  %acc{r}.{v} = phi {vector} [zeroinitializer, %entry], [%sum.k.{r}.{v}, %term]" for r, v in cells
        )
        yield from _term(form, height, width, depth, ".k", {(r, v): f"%acc{r}.{v}" for r, v in cells})
        sums = {(r, v): f"%sum.k.{r}.{v}" for r, v in cells}
        yield f"  %a.n = getelementptr {form.kind}, ptr %a.k, i64 1"
        yield f"  %b.n = getelementptr {form.kind}, ptr %b.k, i64 {columns}"
        yield f"  %k.n = add i64 %k, 1\n  %more = icmp slt i64 %k.n, {depth}"
        yield "  br i1 %more, label %term, label %done\ndone:"
    for r, v in cells:
        yield f"  %c{r}.{v} = getelementptr {form.kind}, ptr %c, i64 {r * columns + v * form.lanes}"
        yield _moved(form, width - v * form.lanes, f"%c{r}.{v}", sums[r, v])
    yield "  ret void\n}"


def _term(form: Form, height: int, width: int, depth: int, k: str, sums: dict[tuple[int, int], str]) -> Iterator[str]:
    """Yield the lines that add the products of one term: %a{k} and %b{k} are where it lies."""
    vector = f"<{form.lanes} x {form.kind}>"
    for v in range(ceil(width / form.lanes)):
        yield f"  %b{k}.{v} = getelementptr {form.kind}, ptr %b{k}, i64 {v * form.lanes}"
        yield f"  %y{k}.{v} = {_moved(form, width - v * form.lanes, f'%b{k}.{v}')}"
    for r in range(height):
        yield f"  %a{k}.{r} = getelementptr {form.kind}, ptr %a{k}, i64 {r * depth}"
        yield f"  %x{k}.{r} = load {form.kind}, ptr %a{k}.{r}"
        yield from splat(f"x{k}.{r}", form.kind, vector, form.lanes)
    for r, v in sums:
        given = f"{vector} %x{k}.{r}.all, {vector} %y{k}.{v}, {vector} {sums[r, v]}"
        yield f"  %sum{k}.{r}.{v} = call {vector} @llvm.fma.v{form.lanes}f{8 * form.itemsize}({given})"


def _moved(form: Form, count: int, pointer: str, value: str = "") -> str:
    """Return the instruction that loads, or stores a value, at a pointer: all lanes, or the first."""
    vector, suffix = f"<{form.lanes} x {form.kind}>", f"v{form.lanes}f{8 * form.itemsize}"
    if count >= form.lanes:
        if value:
            return f"  store {vector} {value}, ptr {pointer}, align {form.itemsize}"
        return f"load {vector}, ptr {pointer}, align {form.itemsize}"
    mask = f"<{form.lanes} x i1> <{', '.join(f'i1 {int(lane < count)}' for lane in range(form.lanes))}>"
    place = f"ptr {pointer}, i32 {form.itemsize}, {mask}"
    if value:
        return f"  call void @llvm.masked.store.{suffix}.p0({vector} {value}, {place})"
    return f"call {vector} @llvm.masked.load.{suffix}.p0({place}, {vector} zeroinitializer)"

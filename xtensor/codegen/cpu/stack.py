"""Products of many small matrices of one shape: tiles are computed from both operands where they lie.

Lengths are constants of the code, which has no tables, and only packs B, if its columns are not contiguous or many
tiles read it. Rows of complex numbers are rows of their parts: those of B are multiplied by the real parts of A and by
the imaginary parts; the sums of the latter are added times the imaginary unit.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from functools import lru_cache
from math import ceil
from typing import NamedTuple, TypeAlias

from .compile import Code, handmade, the_host
from .forms import Form, declared, itemsize, loads, splat

# Kernels that are remembered.
REMEMBERED = 256

# The words of the kernel; next: strides from matrix to matrix, in parts of numbers.
POINTERS = ("a.0", "b.0", "c.0")
NUMBERS = ("count", "a.next", "b.next", "c.next")

# The names of sums, by part of A, row and register.
Cells: TypeAlias = dict[tuple[int, int, int], str]

# The overhead of a tile, in multiplications of a term; the most multiplications of a tile that is unrolled; the fewest
# tiles reading a panel of B for which it is packed.
TILE, WRITTEN_OUT, PACKED_TILES = 1, 128, 4


class Product(NamedTuple):
    """What a kernel is made for: products of matrices (rows, depth) and (depth, columns), whose numbers have so many
    parts. form: of tiles of parts. lies: the strides of A from row to row and from term to term, in numbers, and of B
    from term to term and from column to column.
    """

    form: Form
    rows: int
    depth: int
    columns: int
    parts: int
    lies: tuple[int, int, int, int]

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

    @property
    def packs(self) -> bool:
        """Whether panels of B are packed: if columns are not contiguous, and if many tiles read a panel, whose rows
        might compete for the same sets of the nearest cache.
        """
        return self.lies[3] != 1 or ceil(self.rows / self.form.height) >= PACKED_TILES

    @property
    def b_step(self) -> int:
        """The stride from term to term, in parts, of the B that tiles read."""
        return self.form.width if self.packs else self.lies[2] * self.parts


@lru_cache(REMEMBERED)
def stack_kernel(char: str, rows: int, depth: int, columns: int, lies: tuple[int, int, int, int]) -> Code:
    """Return the machine code that writes products (rows, columns) in C order; lies: of the matrices, as in Product."""
    parts = 1 + (char in "FD")
    form = _form(char.lower(), rows, parts * columns, parts)
    return handmade("\n".join(_source(Product(form, rows, depth, columns, parts, lies))))


def _form(char: str, rows: int, width: int, parts: int) -> Form:
    """Return the form of tiles, with few wasted sums, and few loads for each sum. Each part of A has its own sums."""
    machine = the_host()
    few = machine.triple.startswith("x86") and machine.vector_bytes < 64  # 16 registers instead of 32
    whole = machine.vector_bytes // itemsize(char)
    lanes = min(whole, max(1 << (width - 1).bit_length(), 16 // itemsize(char)))  # half registers for short rows

    def cost(form: Form) -> float:
        sums, loads = parts * form.height * form.registers, parts * form.height + form.registers
        tiles = ceil(rows / form.height) * ceil(width / form.width)
        return tiles * (max(sums, loads) + TILE)

    forms = []
    for registers in range(1, 5):
        left = (15 if few else 31) - registers - (few and width % lanes > 0)  # a mask is a register too
        most = min(left // (parts * registers), rows)
        forms += [Form(char, lanes, height, registers) for height in range(1, most + 1)]
    return min(forms, key=cost)


def _source(one: Product) -> Iterator[str]:
    form = one.form
    widths = {j: min(form.width, one.width - j) for j in range(0, one.width, form.width)}
    groups = ceil(one.rows / form.height)
    starts = [one.rows * n // groups for n in range(groups + 1)]
    rows = [(i, after - i) for i, after in zip(starts, starts[1:], strict=False)]
    yield from sorted(declared(form))
    for height, width in sorted({(height, width) for _, height in rows for width in widths.values()}):
        yield from _tile(one, height, width)
    if one.packs:
        for width in sorted(set(widths.values())):
            yield from _pack(one, width)
    yield "define void @kernel(ptr %table) {\nentry:"
    yield from loads(POINTERS, NUMBERS)
    if one.packs:
        yield f"  %panel = alloca [{one.depth * form.width} x {form.kind}], align 64"
    yield "  br label %matrix\nmatrix:\n  %n = phi i64 [1, %entry], [%n.n, %matrix]"
    for x in "abc":
        yield f"  %{x} = phi ptr [%{x}.0, %entry], [%{x}.n, %matrix]"
    for j, width in widths.items():
        yield f"  %b.at{j} = getelementptr {form.kind}, ptr %b, i64 {j // one.parts * one.parts * one.lies[3]}"
        if one.packs:
            yield f"  call void @pack{width}(ptr %b.at{j}, ptr %panel)"
        for i, height in rows:
            for x, place in {"a": i * one.parts * one.lies[0], "c": i * one.width + j}.items():
                yield f"  %{x}.{i}.{j} = getelementptr {form.kind}, ptr %{x}, i64 {place}"
            b = "%panel" if one.packs else f"%b.at{j}"
            yield f"  call void @tile{height}.{width}(ptr %a.{i}.{j}, ptr {b}, ptr %c.{i}.{j})"
    for x in "abc":
        yield f"  %{x}.n = getelementptr {form.kind}, ptr %{x}, i64 %{x}.next"
    yield "  %n.n = add i64 %n, 1\n  %more = icmp slt i64 %n, %count\n  br i1 %more, label %matrix, label %done"
    yield "done:\n  ret void\n}"


def _pack(one: Product, width: int) -> Iterator[str]:
    """Yield the function that copies so many parts of columns of B, of all terms, into a panel."""
    form, term = one.form, one.lies[2]
    yield f"define internal void @pack{width}(ptr %b, ptr %to) {{\nentry:\n  br label %term\nterm:"
    yield "  %k = phi i64 [0, %entry], [%k.n, %term]"
    yield from (f"  %{x}.k = phi ptr [%{x}, %entry], [%{x}.n, %term]" for x in ("b", "to"))
    for v in range(ceil(width / form.lanes)):
        first, count = v * form.lanes, min(width - v * form.lanes, form.lanes)
        value = yield from _taken(one, v, first, count)
        yield f"  %to{v} = getelementptr {form.kind}, ptr %to.k, i64 {first}"
        yield f"  store {one.vector} {value}, ptr %to{v}, align {form.itemsize}"
    yield f"  %b.n = getelementptr {form.kind}, ptr %b.k, i64 {term * one.parts}"
    yield f"  %to.n = getelementptr {form.kind}, ptr %to.k, i64 {form.width}"
    yield f"  %k.n = add i64 %k, 1\n  %more = icmp slt i64 %k.n, {one.depth}"
    yield "  br i1 %more, label %term, label %done\ndone:\n  ret void\n}"


def _taken(one: Product, v: int, first: int, count: int) -> Generator[str, None, str]:
    """Yield the lines that load a register with `count` parts of columns of B at %b.k, and zeros; return its name."""
    kind, column, value = one.form.kind, one.lies[3], "zeroinitializer"
    if column == 1:
        yield f"  %from{v} = getelementptr {kind}, ptr %b.k, i64 {first}"
        yield f"  %x{v} = {_moved(one, count, f'%from{v}')}"
        return f"%x{v}"
    for lane in range(count):
        number, part = divmod(first + lane, one.parts)
        own = f"{v}.{lane}"
        yield f"  %from{own} = getelementptr {kind}, ptr %b.k, i64 {number * column * one.parts + part}"
        yield f"  %one{own} = load {kind}, ptr %from{own}"
        yield f"  %some{own} = insertelement {one.vector} {value}, {kind} %one{own}, i32 {lane}"
        value = f"%some{own}"
    return value


def _tile(one: Product, height: int, width: int) -> Iterator[str]:
    """Yield the function of a tile of so many rows and parts of columns."""
    form = one.form
    yield f"define internal void @tile{height}.{width}(ptr %a, ptr %b, ptr %c) {{\nentry:"
    sums = yield from _added_up(one, height, width)
    for r, v in sorted({cell[1:] for cell in sums}):
        value = sums[0, r, v]
        if one.parts == 2:
            yield from _exchanged(one, sums[1, r, v], f"%i{r}.{v}")
            value = f"%all{r}.{v}"
            yield f"  {value} = fadd {one.vector} {sums[0, r, v]}, %i{r}.{v}"
        yield f"  %c{r}.{v} = getelementptr {form.kind}, ptr %c, i64 {r * one.width + v * form.lanes}"
        yield from _stored(one, width - v * form.lanes, f"%c{r}.{v}", value)
    yield "  ret void\n}"


def _added_up(one: Product, height: int, width: int) -> Generator[str, None, Cells]:
    """Yield the lines that add up a tile, in a loop or unrolled; return the sums."""
    form = one.form
    cells = [(p, r, v) for p in range(one.parts) for r in range(height) for v in range(ceil(width / form.lanes))]
    if one.depth * len(cells) <= WRITTEN_OUT:
        sums = dict.fromkeys(cells, "zeroinitializer")
        for k in range(one.depth):
            yield f"  %a.k{k} = getelementptr {form.kind}, ptr %a, i64 {k * one.lies[1] * one.parts}"
            yield f"  %b.k{k} = getelementptr {form.kind}, ptr %b, i64 {k * one.b_step}"
            sums = yield from _term(one, width, sums, f"k{k}")
        return sums
    yield "  br label %term\nterm:\n  %k = phi i64 [0, %entry], [%k.n, %term]"
    yield from (f"  %{x}.k = phi ptr [%{x}, %entry], [%{x}.n, %term]" for x in "ab")
    sums = {(p, r, v): f"%sum{p}.{r}.{v}" for p, r, v in cells}
    for cell, name in sums.items():
        yield f"  {name} = phi {one.vector} [zeroinitializer, %entry], [%k.{'.'.join(map(str, cell))}, %term]"
    sums = yield from _term(one, width, sums, "k")
    yield f"  %a.n = getelementptr {form.kind}, ptr %a.k, i64 {one.lies[1] * one.parts}"
    yield f"  %b.n = getelementptr {form.kind}, ptr %b.k, i64 {one.b_step}"
    yield f"  %k.n = add i64 %k, 1\n  %more = icmp slt i64 %k.n, {one.depth}"
    yield "  br i1 %more, label %term, label %done\ndone:"
    return sums


def _term(one: Product, width: int, sums: Cells, own: str) -> Generator[str, None, Cells]:
    """Yield the lines that add the products of a term, which begins at %a. and %b. `own`; return the sums."""
    form, vector = one.form, one.vector
    for v in sorted({v for *_, v in sums}):
        yield f"  %b.{own}.{v} = getelementptr {form.kind}, ptr %b.{own}, i64 {v * form.lanes}"
        count = form.lanes if one.packs else width - v * form.lanes
        yield f"  %y.{own}.{v} = {_moved(one, count, f'%b.{own}.{v}')}"
    for p, r in sorted({cell[:2] for cell in sums}):
        name = f"x.{own}.{p}.{r}"
        yield f"  %{name}.at = getelementptr {form.kind}, ptr %a.{own}, i64 {r * one.lies[0] * one.parts + p}"
        yield f"  %{name} = load {form.kind}, ptr %{name}.at"
        yield from splat(name, form.kind, vector, form.lanes)
    for p, r, v in sums:
        given = f"{vector} %x.{own}.{p}.{r}.all, {vector} %y.{own}.{v}, {vector} {sums[p, r, v]}"
        yield f"  %{own}.{p}.{r}.{v} = call {vector} @llvm.fma.{one.suffix}({given})"
    return {(p, r, v): f"%{own}.{p}.{r}.{v}" for p, r, v in sums}


def _exchanged(one: Product, name: str, made: str) -> Iterator[str]:
    """Yield the lines that multiply complex numbers by the imaginary unit."""
    lanes = range(one.form.lanes)
    signs = ", ".join(f"{one.form.kind} {-1.0 if lane % 2 == 0 else 1.0}" for lane in lanes)
    order = ", ".join(f"i32 {lane ^ 1}" for lane in lanes)
    pair = f"{one.vector} {name}, {one.vector} poison"
    yield f"  {made}.turned = shufflevector {pair}, <{one.form.lanes} x i32> <{order}>"
    yield f"  {made} = fmul {one.vector} {made}.turned, <{signs}>"


def _moved(one: Product, count: int, pointer: str) -> str:
    """Return the instruction that loads at a pointer: all lanes, or the first."""
    lanes, align = one.form.lanes, one.form.itemsize
    if count >= lanes:
        return f"load {one.vector}, ptr {pointer}, align {align}"
    mask = f"<{lanes} x i1> <{', '.join(f'i1 {int(lane < count)}' for lane in range(lanes))}>"
    place = f"ptr align {align} {pointer}, {mask}"
    return f"call {one.vector} @llvm.masked.load.{one.suffix}.p0({place}, {one.vector} zeroinitializer)"


def _stored(one: Product, count: int, pointer: str, value: str) -> Iterator[str]:
    """Yield the store of all lanes, or of the first ones as a shorter vector, which is fast on all processors."""
    lanes, align, vector = one.form.lanes, one.form.itemsize, one.vector
    if count < lanes:
        order = ", ".join(f"i32 {lane}" for lane in range(count))
        yield f"  {pointer}.some = shufflevector {vector} {value}, {vector} poison, <{count} x i32> <{order}>"
        vector, value = f"<{count} x {one.form.kind}>", f"{pointer}.some"
    yield f"  store {vector} {value}, ptr {pointer}, align {align}"

"""Attention in tiles: softmax(scale * Q K^T + mask) V, and its gradients, without whole rows of scores in memory.

A kernel goes over some rows of the matrix of scores, against tiles of columns. For a few rows at a time it computes a
tile, by the micro-kernel of gemm.py, transforms each row of it, and multiplies that by another matrix, into sums that
are kept. There are two kernels. In VALUES, rows are queries: a row becomes powers of e, relative to its largest score
so far, and when a tile has a larger one, the sums until then are scaled down. In COTANGENTS, rows are keys, and columns
queries: by the logarithms of sums of powers, which are known, scores become weights again, and cotangents of weights
those of scores. These are also multiplied by keys, into sums by query, to which the parts of rows add one by one.

The order of all additions depends on shapes alone, and so do the bits. Source: FlashAttention-2 (Dao, 2023),
arXiv:2307.08691; Rabe and Staats (2021), arXiv:2112.05682.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from functools import cache, lru_cache
from math import inf, lcm
from typing import NamedTuple

import numpy as np

from ...base.dtypes import DType
from .compile import Code, handmade
from .explog import exp, log
from .forms import Form, declared, first_lanes, loads, masked_load, splat
from .gemm import micro, pack_rows
from .sweeping import Sweeping
from .vector import F32, F64, SCALARS, Vector, Writer, constant, from_bits, mangled, select

VALUES, COTANGENTS = "values", "cotangents"

# The kinds of masks, with an element for each score or each row: flags whether scores count, or numbers added to them.
NO_MASK, FLAGS, ROW_FLAGS, ADDED, ROW_ADDED = "", "flags", "row flags", "added", "row added"

DTYPES: dict[str, DType] = {"f": F32, "d": F64}
INT32, UINT32, BYTES = np.dtype(np.int32), np.dtype(np.uint32), np.dtype(np.int8)

# The words of a kernel, of 8 bytes each. Incoming products make tiles, outgoing ones multiply these; both are numbered.
#
#   a, a.rows..  rows of an incoming product, and tables of their offsets, as in gemm.py
#   p, depth     panels of its columns, and the terms of a sum
#   b, b.ks      the matrix by which a row is multiplied, and offsets of its rows
#   c, width     the result, and its columns; the last result, by query, has whole registers, and is added to
#   logs         by query, the logarithm of the sum of its powers: VALUES writes it, infinity if it looks at no key
#   means        by query, the sum of weights times their cotangents
#   first, rows  the first of some rows, and their number; columns: of all scores
#   mask.step    elements of the mask from row to row
#   causal       whether query i only looks at keys 0 to i
#   skips        a word: whether columns at which no row may look are left out, as `finite_kernel` finds out (else 0
#                times a number that is not finite counts)
#   scale        a number of the dtype
POINTERS = (
    *("a0", "a0.rows", "a0.ks", "a0.runs", "p0", "a1", "a1.rows", "a1.ks", "a1.runs", "p1"),
    *("b0", "b0.ks", "b1", "b1.ks", "b2", "b2.ks", "c0", "c1", "c2", "mask", "logs", "means", "scratch", "skips"),
)
NUMBERS = (
    *("first", "rows", "columns", "depth0", "depth1", "width0", "width1", "width2"),
    *("mask.step", "causal", "scale"),
)
WORDS = len(POINTERS) + len(NUMBERS)


class Pass(NamedTuple):
    """What a kernel computes. form: of the incoming products. mask: its kind."""

    of: str
    form: Form
    mask: str

    @property
    def is_values(self) -> bool:
        return self.of == VALUES

    @property
    def products(self) -> range:
        """The numbers of incoming products: scores, and cotangents of weights. There are as many outgoing ones by row:
        attention, or the cotangents of values and of keys.
        """
        return range(1 if self.is_values else 2)

    @property
    def columns(self) -> int:
        """The columns of a tile, whose rows are packed rows of the outgoing product.

        Tiles of cotangents have fewer columns, as more rows are kept, and as many as fill whole tiles of query rows.
        """
        if self.is_values:
            return self.form.deepest
        least = lcm(self.form.width, self.form.height)
        return least * max(self.form.deepest // 3 // least, 1)

    def scratch(self, rows: int, widths: Sequence[int]) -> int:
        """Return the elements of scratch memory for so many rows. widths: the columns of results by row."""
        form, tall = self.form, -(-rows // self.form.height) * self.form.height
        sums = sum(-(-width // form.width) * form.width for width in widths)
        return 3 * form.height * form.leading + tall * (sums + max(form.lanes + 2, form.leading)) + form.lanes


@lru_cache(256)
def attention_kernel(one: Pass) -> Code:
    """Return the machine code of a pass."""
    return handmade("\n".join(_source(one)))


def _source(one: Pass) -> Iterator[str]:
    form, writer = one.form, Writer(one.form.lanes)
    functions = [*_powers(one, writer), *_logarithms(one, writer)] if one.is_values else _cotangents(one, writer)
    yield from sorted(declared(form) | writer.declarations)
    yield "declare i64 @llvm.smax.i64(i64, i64)"
    yield f"@zeros = private constant [{max(form.width, form.height)} x {form.kind}] zeroinitializer, align 64"
    steps = ", ".join(f"i64 {row * form.leading}" for row in range(form.height))
    yield f"@in.tile = private constant [{form.height} x i64] [{steps}]"
    yield micro(form, form.height, form.registers, name="packed")
    aside = form._replace(direct=True, lies=(form.leading, 1, form.width))
    yield micro(aside, form.height, form.registers, name="direct")
    if not one.is_values:
        turned = aside._replace(lies=(1, form.leading, form.width))
        yield micro(turned, form.height, form.registers, name="turned")
    yield pack_rows(form)
    yield from functions
    yield from _driver(one)


def _loop(
    name: str, stop: str, step: int, body: Sequence[str], start: str = "0", carried: Sequence[tuple[str, ...]] = ()
) -> list[str]:
    """Return the lines of a loop with the counter %name, which ends before `stop`.

    carried: for each loop-carried value, its name, its type, its initial value, and its value in the next iteration.
    """
    lines = [f"  br label %{name}.enter\n{name}.enter:\n  br label %{name}.turn\n{name}.turn:"]
    for value, kind, first, after in ((f"%{name}", "i64", start, f"%{name}.n"), *carried):
        lines += [f"  {value} = phi {kind} [{first}, %{name}.enter], [{after}, %{name}.again]"]
    return [
        *lines,
        f"  %{name}.more = icmp slt i64 %{name}, {stop}\n  br i1 %{name}.more, label %{name}.body, label %{name}.done",
        f"{name}.body:",
        *body,
        f"  br label %{name}.again\n{name}.again:\n  %{name}.n = add i64 %{name}, {step}",
        f"  br label %{name}.turn\n{name}.done:",
    ]


# ---- rows of a tile


class Row:
    """Writes a function of a row of a tile, a register at a time: the columns `lo` to `hi`, as in the driver.

    Only scores in `low` to `high` of these may count.
    """

    def __init__(self, one: Pass, writer: Writer) -> None:
        self.one, self.writer, self.dtype = one, writer, DTYPES[one.form.char]

    def written(self) -> list[str]:
        """Return the lines written so far, and start over."""
        lines, self.writer.lines = self.writer.lines, []
        return lines

    def scalar(self, text: str) -> str:
        """Write an instruction with a scalar value, and return the value's name."""
        name = self.writer.fresh()
        self.writer.lines.append(f"{name} = {text}")
        return name

    def all(self, name: str, dtype: DType) -> Vector:
        """Return a number in all lanes."""
        writer, kind = self.writer, self.writer.type(dtype)
        first = writer.emit(f"insertelement {kind} poison, {SCALARS[dtype]} {name}, i32 0", dtype)
        zeros = f"<{writer.lanes} x i32> zeroinitializer"
        return writer.emit(f"shufflevector {kind} {first.name}, {kind} poison, {zeros}", dtype)

    def load(self, base: str, dtype: DType, index: str = "%j", there: Vector | None = None) -> Vector:
        """Return a register loaded from an index on; where `there` is false, it has zeros."""
        writer, kind = self.writer, self.writer.type(dtype)
        place = self.scalar(f"getelementptr {SCALARS[dtype]}, ptr {base}, i64 {index}")
        if there is None:
            return writer.emit(f"load {kind}, ptr {place}, align {dtype.itemsize}", dtype)
        symbol = f"@llvm.masked.load.v{writer.lanes}{mangled(SCALARS[dtype])}.p0"
        writer.declarations.add(f"declare {kind} {symbol}(ptr, {there.type}, {kind})")
        given = f"ptr align {dtype.itemsize} {place}, {there.type} {there.name}, {kind} zeroinitializer"
        return writer.emit(f"call {kind} {symbol}({given})", dtype)

    def store(self, x: Vector, base: str, index: str = "%j", there: Vector | None = None) -> None:
        """Store a register from an index on, or only the lanes where `there` is true."""
        place = self.scalar(f"getelementptr {SCALARS[x.dtype]}, ptr {base}, i64 {index}")
        if there is None:
            self.writer.lines.append(f"store {x.type} {x.name}, ptr {place}, align {x.dtype.itemsize}")
            return
        symbol = f"@llvm.masked.store.v{self.writer.lanes}{mangled(SCALARS[x.dtype])}.p0"
        self.writer.declarations.add(f"declare void {symbol}({x.type}, ptr, {there.type})")
        given = f"{x.type} {x.name}, ptr align {x.dtype.itemsize} {place}, {there.type} {there.name}"
        self.writer.lines.append(f"call void {symbol}({given})")

    def largest(self, x: Vector) -> str:
        """Return the name of the largest element of a register without NaN."""
        return self._reduced("nnan nsz", "fmax", x)

    def summed(self, x: Vector) -> str:
        """Return the name of the sum of a register, in an order that is quick: in halves."""
        return self._reduced("reassoc", "fadd", x, constant(0.0, x.dtype))

    def _reduced(self, flags: str, operation: str, x: Vector, *start: str) -> str:
        """Return the name of what a register's elements come to. start: of a sum, with its type."""
        scalar = SCALARS[x.dtype]
        symbol = f"@llvm.vector.reduce.{operation}.v{self.writer.lanes}{mangled(scalar)}"
        self.writer.declarations.add(f"declare {scalar} {symbol}({', '.join([*[scalar for _ in start], x.type])})")
        return self.scalar(f"call {flags} {scalar} {symbol}({', '.join([*start, f'{x.type} {x.name}'])})")

    def prepare(self) -> None:
        """Write the lines that all scores of the row share."""
        span = self.scalar("sub i64 %high, %low")
        if self.one.mask == ROW_FLAGS:
            seen = self.scalar(f"icmp ne i8 {self.scalar('load i8, ptr %mask')}, 0")
            span = self.scalar(f"select i1 {seen}, i64 {span}, i64 0")
        low, span = (self.scalar(f"trunc i64 {x} to i32") for x in ("%low", span))
        counting = ", ".join(f"i32 {lane}" for lane in range(self.writer.lanes))
        self.after = Vector(self.writer, f"<{counting}>", INT32) - self.all(low, INT32)
        self.span = from_bits(self.all(span, INT32), UINT32)
        self.scale = self.all("%scale", self.dtype)
        if self.one.mask == ROW_ADDED:
            self.added = self.all(self.scalar(f"load {self.one.form.kind}, ptr %mask"), self.dtype)

    def scores(self) -> tuple[Vector, Vector]:
        """Write lines that turn products from column %j on into scores; return these, and which of them count."""
        number = self.all(self.scalar("trunc i64 %j to i32"), INT32)
        there = self.inside = from_bits(self.after + number, UINT32) < self.span
        x = self.load("%s", self.dtype) * self.scale
        if self.one.mask == FLAGS:
            return x, there & (self.load("%mask", BYTES, there=there) != 0)
        if self.one.mask == ADDED:
            x = x + self.load("%mask", self.dtype, there=there)
        return x + self.added if self.one.mask == ROW_ADDED else x, there


def _powers(one: Pass, writer: Writer) -> Iterator[str]:
    """Yield the function that turns a row of products into powers of e, relative to its largest score so far.

    It scales down the sums of earlier tiles, and adds to the sums of powers, one for each lane.
    """
    row, kind = Row(one, writer), one.form.kind
    largest, total = (Vector(writer, name, row.dtype) for name in ("%largest", "%total"))
    yield (
        "define internal void @row(ptr %s, ptr %mask, i64 %lo, i64 %hi, i64 %low, i64 %high, "
        f"{kind} %scale, ptr %most, ptr %totals, ptr %sums, i64 %width) {{\nentry:"
    )
    row.prepare()
    yield from row.written()
    x, there = row.scores()
    x = select(there, x, -inf)
    row.store(x, "%s")
    found = select(x > largest, x, largest)
    carried = (largest.name, largest.type, writer.splat(-inf, row.dtype).name, found.name)
    yield from _loop("j", "%hi", writer.lanes, row.written(), "%lo", [carried])
    base, shrunk = yield from _shrink(row, largest)
    power = exp(row.load("%s", row.dtype, "%k") - base)
    row.store(power, "%s", "%k")
    carried = (total.name, total.type, shrunk.name, (total + power).name)
    yield from _loop("k", "%hi", writer.lanes, row.written(), "%lo", [carried])
    row.store(total, "%totals", "0")
    yield from row.written()
    yield "  ret void\n}"


def _shrink(row: Row, largest: Vector) -> Generator[str, None, tuple[Vector, Vector]]:
    """Yield lines that scale down the sums of a row, zeros before its first tile; return the number subtracted from its
    scores, and its total.
    """
    kind = row.one.form.kind
    old = row.scalar(f"load {kind}, ptr %most")
    most = row.largest(largest)
    same = row.scalar(f"fcmp oge {kind} {old}, {most}")
    most = row.scalar(f"select i1 {same}, {kind} {old}, {kind} {most}")
    row.writer.lines.append(f"store {kind} {most}, ptr %most")
    base = row.all(most, row.dtype)
    base = select(base == -inf, 0.0, base)
    # Before a row has seen a finite score, its sums are zeros, or NaN, which stay as they are.
    is_first = row.scalar(f"fcmp oeq {kind} {old}, {constant(-inf, row.dtype).split()[1]}")
    keeps = row.scalar(f"or i1 {same}, {is_first}")
    yield from row.written()
    yield f"  br i1 {keeps}, label %powers, label %shrink\nshrink:"
    factor = exp(row.all(old, row.dtype) - base)
    row.store(row.load("%totals", row.dtype, "0") * factor, "%totals", "0")
    yield from row.written()
    row.store(row.load("%sums", row.dtype, "%v") * factor, "%sums", "%v")
    yield from _loop("v", "%width", row.writer.lanes, row.written())
    yield "  br label %powers\npowers:"
    total = row.load("%totals", row.dtype, "0")
    yield from row.written()
    return base, total


def _logarithms(one: Pass, writer: Writer) -> Iterator[str]:
    """Yield the function that computes from totals the divisors of sums, and the logarithms of sums of powers."""
    row, kind = Row(one, writer), one.form.kind
    yield "define internal void @logarithms(ptr %totals, ptr %most, ptr %wholes, ptr %logs, i64 %rows) {\nentry:"
    place = row.scalar(f"mul i64 %i, {writer.lanes}")
    whole = row.summed(row.load("%totals", row.dtype, place))
    row.writer.lines += [
        f"%whole.at = getelementptr {kind}, ptr %wholes, i64 %i",
        f"store {kind} {whole}, ptr %whole.at",
    ]
    yield from _loop("i", "%rows", 1, row.written())
    left = row.scalar("sub i64 %rows, %j")
    counting = ", ".join(f"i32 {lane}" for lane in range(writer.lanes))
    there = Vector(writer, f"<{counting}>", INT32) < row.all(row.scalar(f"trunc i64 {left} to i32"), INT32)
    total = row.load("%wholes", row.dtype)
    none = total == 0
    row.store(select(none, 1.0, total), "%wholes")
    row.store(select(none, inf, log(total) + row.load("%most", row.dtype)), "%logs", there=there)
    yield from _loop("j", "%rows", writer.lanes, row.written())
    yield "  ret void\n}"


def _cotangents(one: Pass, writer: Writer) -> Iterator[str]:
    """Yield the function that turns a row of products (`s`) into weights, and the products of values with cotangents
    (`d`) into the cotangents of scores, times the scale.
    """
    row, kind = Row(one, writer), one.form.kind
    yield (
        "define internal void @row(ptr %s, ptr %mask, i64 %lo, i64 %hi, i64 %low, i64 %high, "
        f"{kind} %scale, ptr %d, ptr %logs, ptr %means) {{\nentry:"
    )
    row.prepare()
    yield from row.written()
    x, there = row.scores()
    logarithm, mean = (row.load(name, row.dtype, there=row.inside) for name in ("%logs", "%means"))
    weight = select(there, exp(x - logarithm), 0.0)
    row.store(weight, "%s")
    row.store(select(there, weight * (row.load("%d", row.dtype) - mean) * row.scale, 0.0), "%d")
    yield from _loop("j", "%hi", writer.lanes, row.written(), "%lo")
    yield "  ret void\n}"


# ---- tiles


def _driver(one: Pass) -> Iterator[str]:
    """Yield the function that goes over tiles of columns, and in each of them over a few rows at a time."""
    form = one.form
    yield "define void @kernel(ptr %table) {\nentry:"
    yield from loads(POINTERS, NUMBERS)
    yield f"  %scale.x = load {form.kind}, ptr %at.scale\n  %is.causal = icmp ne i64 %causal, 0"
    yield "  %skips.now = load i64, ptr %skips\n  %is.skipping = icmp ne i64 %skips.now, 0"
    yield "  %cuts = and i1 %is.causal, %is.skipping"
    yield from _rooms(one)
    rows = [
        "  %i = add i64 %first, %g\n  %g.left = sub i64 %rows, %g",
        f"  %count = call i64 @llvm.smin.i64(i64 %g.left, i64 {form.height})",
        f"  %g.at = mul i64 %g, {form.leading}\n  %d.g = getelementptr {form.kind}, ptr %d, i64 %g.at",
        *_range(one),
        "  %any = icmp slt i64 %lo, %hi\n  br i1 %any, label %come, label %g.again\ncome:",
        *(line for x in one.products for line in _coming(one, x)),
        *_loop("r", "%count", 1, _row(one)),
        *(line for y in one.products for line in _going(one, y)),
    ]
    tile = [
        f"  %t.left = sub i64 %columns, %t\n  %n = call i64 @llvm.smin.i64(i64 %t.left, i64 {one.columns})",
        *_loop("g", "%rows", form.height, rows),
        *([] if one.is_values else _by_query(one)),
    ]
    yield from _loop("t", "%columns", one.columns, tile)
    if one.is_values:
        yield f"  %logs.first = getelementptr {form.kind}, ptr %logs, i64 %first"
        yield "  call void @logarithms(ptr %sums1, ptr %most, ptr %wholes, ptr %logs.first, i64 %rows)"
    for y in one.products:
        yield from _result(one, y)
    yield "  ret void\n}"


def _rooms(one: Pass) -> Iterator[str]:
    """Yield the lines that lay out the scratch memory, and set its sums to zero."""
    form = one.form
    kind, height, tile = form.kind, form.height, form.height * form.leading
    for place, name in enumerate(("s", "a0.packed", "a1.packed", "sums0")):
        yield f"  %{name} = getelementptr {kind}, ptr %scratch, i64 {place * tile}"
    yield f"  %tall.up = add i64 %rows, {height - 1}\n  %tall.count = udiv i64 %tall.up, {height}"
    yield f"  %tall = mul i64 %tall.count, {height}\n  %from0 = add i64 0, 0"
    last = len(one.products)
    for y in range(last if one.is_values else last + 1):
        yield f"  %step{y}.up = add i64 %width{y}, {form.width - 1}\n  %step{y} = and i64 %step{y}.up, -{form.width}"
        yield f"  %size{y} = mul i64 %tall, %step{y}\n  %from{y + 1} = add i64 %from{y}, %size{y}"
        yield f"  %sums{y + 1} = getelementptr {kind}, ptr %sums0, i64 %from{y + 1}"
        yield f"  %steps{y} = alloca i64, i64 {height}"
        step = [
            f"  %h{y}.step = mul i64 %h{y}, %step{y}\n  %h{y}.at = getelementptr i64, ptr %steps{y}, i64 %h{y}",
            f"  store i64 %h{y}.step, ptr %h{y}.at",
        ]
        yield from _loop(f"h{y}", str(height), 1, step)
    yield f"  %d = getelementptr {kind}, ptr %sums{last}, i64 0"
    yield f"  %totals.size = mul i64 %tall, {form.lanes if one.is_values else 0}"
    yield f"  %zeros.size = add i64 %from{last}, %totals.size"
    zero = [
        f"  %z.at = getelementptr {kind}, ptr %sums0, i64 %z",
        f"  store <{form.lanes} x {kind}> zeroinitializer, ptr %z.at, align {form.itemsize}",
    ]
    yield from _loop("z", "%zeros.size", form.lanes, zero)
    if one.is_values:
        least = constant(-inf, DTYPES[form.char])
        yield f"  %most = getelementptr {kind}, ptr %sums0, i64 %zeros.size"
        yield f"  %wholes = getelementptr {kind}, ptr %most, i64 %tall"
        some = [f"  %m.at = getelementptr {kind}, ptr %most, i64 %m\n  store {least}, ptr %m.at"]
        yield from _loop("m", "%tall", 1, some)


def _range(one: Pass) -> list[str]:
    """Return the lines that compute the columns `lo` to `hi` of a tile that some rows need, by whole panels from `lo`.

    If rows are keys, columns before `lo` are queries in whose micro-kernel tile none looks at one of these keys.
    """
    height = one.form.height
    if one.is_values:
        return [
            f"  %past = add i64 %i, {height}\n  %past.t = sub i64 %past, %t",
            "  %hi.own = call i64 @llvm.smin.i64(i64 %n, i64 %past.t)",
            "  %lo = add i64 0, 0\n  %hi = select i1 %cuts, i64 %hi.own, i64 %n",
        ]
    return [
        f"  %before = sub i64 %i, %t\n  %before.tile = sub i64 %before, {height - 1}",
        "  %ahead = call i64 @llvm.smax.i64(i64 %before.tile, i64 0)",
        f"  %lo.own = and i64 %ahead, -{one.form.width}",
        "  %lo = select i1 %cuts, i64 %lo.own, i64 0\n  %hi = add i64 %n, 0",
    ]


def _coming(one: Pass, x: int) -> list[str]:
    """Return the lines that multiply some rows by panels of a tile, into `s` or `d`; a long sum block by block."""
    form = one.form
    kind = form.kind
    panel = [
        f"  %p{x}.at = add i64 %t, %p{x}.j\n  %p{x}.panel = mul i64 %p{x}.at, %depth{x}",
        f"  %p{x}.row = mul i64 %k{x}, {form.width}\n  %p{x}.all = add i64 %p{x}.panel, %p{x}.row",
        f"  %p{x}.b = getelementptr {kind}, ptr %p{x}, i64 %p{x}.all",
        f"  %p{x}.c = getelementptr {kind}, ptr %{('s', 'd.g')[x]}, i64 %p{x}.j",
        f"  call void @packed{form.height}.{form.registers}(ptr %a{x}.packed, ptr %p{x}.b, ptr %p{x}.c, ptr @in.tile, "
        f"ptr @zeros, ptr @zeros, i64 %k{x}.terms, i1 %k{x}.first, ptr null, i64 0, i1 false, i64 0, i64 0, i64 0, "
        "ptr null)",
    ]
    block = [
        f"  %k{x}.left = sub i64 %depth{x}, %k{x}\n  %k{x}.first = icmp eq i64 %k{x}, 0",
        f"  %k{x}.terms = call i64 @llvm.smin.i64(i64 %k{x}.left, i64 {form.deepest})",
        f"  %a{x}.rows.i = getelementptr i64, ptr %a{x}.rows, i64 %i",
        *(f"  %a{x}.{one}.k = getelementptr i64, ptr %a{x}.{one}, i64 %k{x}" for one in ("ks", "runs")),
        f"  call void @pack.rows(ptr %a{x}, ptr %a{x}.rows.i, ptr %a{x}.ks.k, ptr %a{x}.runs.k, ptr %a{x}.packed, "
        f"i64 {form.height}, i64 %k{x}.terms)",
        *_loop(f"p{x}.j", "%hi", form.width, panel, "%lo"),
    ]
    return _loop(f"k{x}", f"%depth{x}", form.deepest, block)


def _row(one: Pass) -> list[str]:
    """Return the lines that call the function of a row, with the columns that may count, and the row's addresses."""
    kind = one.form.kind
    lines = [
        f"  %r.i = add i64 %i, %r\n  %r.g = add i64 %g, %r\n  %r.t = mul i64 %r, {one.form.leading}",
        *(f"  %{x[0]}.r = getelementptr {kind}, ptr %{x}, i64 %r.t" for x in ("s", "d.g")),
        "  %r.behind = sub i64 %r.i, %t",
    ]
    if one.is_values:
        lines += [
            "  %r.past = add i64 %r.behind, 1\n  %r.high = call i64 @llvm.smax.i64(i64 %r.past, i64 0)",
            "  %r.less = call i64 @llvm.smin.i64(i64 %r.high, i64 %n)",
            "  %low = add i64 0, 0\n  %high = select i1 %is.causal, i64 %r.less, i64 %n",
        ]
    else:
        lines += [
            "  %r.low = call i64 @llvm.smax.i64(i64 %r.behind, i64 0)",
            "  %r.less = call i64 @llvm.smin.i64(i64 %r.low, i64 %n)",
            "  %low = select i1 %is.causal, i64 %r.less, i64 0\n  %high = add i64 %n, 0",
        ]
    element = "i8" if one.mask in (FLAGS, ROW_FLAGS) else kind
    column = "%t" if one.mask in (FLAGS, ADDED) else "0"
    lines += [
        f"  %r.mask = mul i64 %r.i, %mask.step\n  %r.mask.t = add i64 %r.mask, {column}",
        f"  %mask.r = getelementptr {element}, ptr %mask, i64 %r.mask.t",
    ]
    given = f"ptr %s.r, ptr %mask.r, i64 %lo, i64 %hi, i64 %low, i64 %high, {kind} %scale.x"
    if one.is_values:
        lines += [
            f"  %most.r = getelementptr {kind}, ptr %most, i64 %r.g\n  %r.lanes = mul i64 %r.g, {one.form.lanes}",
            f"  %totals.r = getelementptr {kind}, ptr %sums1, i64 %r.lanes\n  %r.sums = mul i64 %r.g, %step0",
            f"  %sums.r = getelementptr {kind}, ptr %sums0, i64 %r.sums",
            f"  call void @row({given}, ptr %most.r, ptr %totals.r, ptr %sums.r, i64 %step0)",
        ]
    else:
        lines += [f"  %{x}.r = getelementptr {kind}, ptr %{x}, i64 %t" for x in ("logs", "means")]
        lines += [f"  call void @row({given}, ptr %d.r, ptr %logs.r, ptr %means.r)"]
    return lines


def _going(one: Pass, y: int) -> list[str]:
    """Return the lines that multiply the transformed rows of `s` or `d` by a matrix, and add that to the sums."""
    form = one.form
    kind = form.kind
    panel = [
        f"  %b{y}.q = getelementptr {kind}, ptr %b{y}, i64 %q{y}\n  %q{y}.left = sub i64 %width{y}, %q{y}",
        f"  %q{y}.at = add i64 %g{y}.sums, %q{y}\n  %q{y}.c = getelementptr {kind}, ptr %sums{y}, i64 %q{y}.at",
        f"  call void @direct{form.height}.{form.registers}(ptr %g{y}.x, ptr %b{y}.q, ptr %q{y}.c, ptr %steps{y}, "
        f"ptr @zeros, ptr @zeros, i64 %g{y}.terms, i1 false, ptr %g{y}.ks, i64 %q{y}.left, "
        "i1 false, i64 0, i64 0, i64 0, ptr null)",
    ]
    return [
        f"  %g{y}.x = getelementptr {kind}, ptr %{('s', 'd.g')[y]}, i64 %lo\n  %g{y}.terms = sub i64 %hi, %lo",
        f"  %g{y}.row = add i64 %t, %lo\n  %g{y}.ks = getelementptr i64, ptr %b{y}.ks, i64 %g{y}.row",
        f"  %g{y}.sums = mul i64 %g, %step{y}",
        *_loop(f"q{y}", f"%width{y}", form.width, panel),
    ]


def _by_query(one: Pass) -> list[str]:
    """Return the lines that multiply the cotangents of a tile by keys, by query, and add that to sums over all rows.

    Cotangents that were skipped are not in memory, so keys after the last query are left out.
    """
    form = one.form
    kind = form.kind
    panel = [
        "  %b2.q = getelementptr {kind}, ptr %b2, i64 %q2\n  %q2.left = sub i64 %width2, %q2".replace("{kind}", kind),
        f"  %q2.at = add i64 %u.sums, %q2\n  %q2.c = getelementptr {kind}, ptr %c2, i64 %q2.at",
        f"  call void @turned{form.height}.{form.registers}(ptr %u.x, ptr %b2.q, ptr %q2.c, ptr %steps2, "
        "ptr @zeros, ptr @zeros, i64 %u.terms, i1 false, ptr %u.ks, i64 %q2.left, "
        "i1 false, i64 0, i64 0, i64 0, ptr null)",
    ]
    some = [
        f"  %u.t = add i64 %t, %u\n  %u.past = add i64 %u.t, {form.height}\n  %u.seen = sub i64 %u.past, %first",
        "  %u.less = call i64 @llvm.smin.i64(i64 %u.seen, i64 %rows)",
        "  %u.terms = select i1 %cuts, i64 %u.less, i64 %rows",
        "  %u.any = icmp sgt i64 %u.terms, 0\n  br i1 %u.any, label %u.some, label %u.again\nu.some:",
        f"  %u.x = getelementptr {kind}, ptr %d, i64 %u\n  %u.ks = getelementptr i64, ptr %b2.ks, i64 %first",
        "  %u.sums = mul i64 %u.t, %step2",
        *_loop("q2", "%width2", form.width, panel),
    ]
    return _loop("u", "%n", form.height, some)


def _result(one: Pass, y: int) -> list[str]:
    """Return the lines that write the sums; in VALUES they are divided by the sums of powers."""
    form = one.form
    kind, vector, suffix = form.kind, f"<{form.lanes} x {form.kind}>", f"v{form.lanes}f{8 * form.itemsize}"
    name = f"e{y}"
    some = [
        f"  %{name}.from = getelementptr {kind}, ptr %{name}.sums, i64 %{name}.v",
        f"  %{name}.to = getelementptr {kind}, ptr %{name}.c, i64 %{name}.v",
        f"  %{name}.sum = load {vector}, ptr %{name}.from, align {form.itemsize}",
        f"  %{name}.left = sub i64 %width{y}, %{name}.v",
        *first_lanes(form, f"{name}.there", f"%{name}.left"),
    ]
    value = f"%{name}.sum"
    if one.is_values:
        some += [f"  %{name}.part = fdiv {vector} %{name}.sum, %{name}.whole.all"]
        value = f"%{name}.part"
    some += [
        f"  call void @llvm.masked.store.{suffix}.p0({vector} {value}, ptr align {form.itemsize} %{name}.to, "
        f"<{form.lanes} x i1> %{name}.there)"
    ]
    row = [
        f"  %{name}.at = mul i64 %{name}, %step{y}",
        f"  %{name}.sums = getelementptr {kind}, ptr %sums{y}, i64 %{name}.at",
        f"  %{name}.i = add i64 %first, %{name}\n  %{name}.begin = mul i64 %{name}.i, %width{y}",
        f"  %{name}.c = getelementptr {kind}, ptr %c{y}, i64 %{name}.begin",
    ]
    if one.is_values:
        row += [
            f"  %{name}.whole.at = getelementptr {kind}, ptr %wholes, i64 %{name}",
            f"  %{name}.whole = load {kind}, ptr %{name}.whole.at",
            *splat(f"{name}.whole", kind, vector, form.lanes),
        ]
    return _loop(name, "%rows", 1, [*row, *_loop(f"{name}.v", f"%width{y}", form.lanes, some)])


# ---- whether numbers are finite

# The words of the kernel that finds out: a matrix, the word that becomes 0 where a number is not finite, the matrix's
# lengths, elements from row to row, and whether the word is to become 1 first.
CHECKED = ("x", "flag"), ("rows", "columns", "step", "is.first")


@cache
def finite_kernel(char: str, lanes: int) -> Code:
    """Return the machine code that says of matrices of a dtype whether they are finite."""
    return handmade("\n".join(_Finite(char, lanes).text()))


class _Finite(Sweeping):
    """The text of that kernel: a sum of all numbers times 0 is not a number unless they are finite."""

    def text(self) -> Iterator[str]:
        """Yield the kernel."""
        yield from self.kernel(*CHECKED, self._checked())

    def _checked(self) -> Iterator[str]:
        yield "  %begins = icmp ne i64 %is.first, 0\n  br i1 %begins, label %begin, label %begun"
        yield "begin:\n  store i64 1, ptr %flag\n  br label %begun\nbegun:"
        self.block = "begun"
        carried = [("before", self.vector, "zeroinitializer", "%sum")]
        yield from self.loop("row", "i", "%rows", self._row(), carried=carried)
        yield f"  %odd = fcmp uno {self.vector} %sum, %sum\n  %bits = bitcast <{self.lanes} x i1> %odd to i{self.lanes}"
        yield f"  %is.odd = icmp ne i{self.lanes} %bits, 0\n  br i1 %is.odd, label %say, label %said"
        yield "say:\n  store i64 0, ptr %flag\n  br label %said\nsaid:"

    def _row(self) -> Iterator[str]:
        yield from self.far("x.i", "%x", "%i", "%step")
        carried = [("old", self.vector, "%before", "%sum")]
        yield from self.loop("some", "j", "%columns", self._some(), step=self.lanes, carried=carried)

    def _some(self) -> Iterator[str]:
        yield f"  %x.j = getelementptr {self.kind}, ptr %x.i, i64 %j\n  %left = sub i64 %columns, %j"
        yield from first_lanes(self.form, "inside", "%left")
        yield masked_load(self.form, "%one", "%x.j", "%inside")
        yield self.multiply_add("%sum", "%one", "zeroinitializer", "%old")

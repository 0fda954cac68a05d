"""The contraction kernel: C[i, j] = bias + sum over k of A[i, k] * B[k, j], for operands with any layout.

Tables of offsets say where elements lie, A[i, k] at rows[i] + ks[k] and B[k, j] at ks[k] + columns[j], so that a matrix
may be strided, transposed or gathered: the windows of a convolution are read in place. As in GotoBLAS and BLIS, both
are packed into panels in blocks that fit the caches: `height` rows of A stay in the nearest cache while the panels of
B, some registers wide, come from the next one. A tile of C is added up in registers. Every element is the sum in order,
block after block, so it has the same bits however the work is cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import product
from typing import NamedTuple

from ...plan.costs import PANELS_AHEAD, ROWS_AHEAD
from .compile import Code, handmade
from .finish import Finish, Steps
from .forms import (
    TALLEST,
    Form,
    declared,
    first_lanes,
    loads,
    masked_load,
    masked_store,
    multiply_add,
    splat,
    vector_of,
    words_at,
)

# Terms of panels of B that are packed at a time.
TERMS = 16

# The words of the kernel, of 8 bytes: addresses, then numbers. Offsets count elements.
#
#   a.runs       of each element of a row of A: how many from it on are contiguous in memory
#   pieces       of each: its offset in B, its lane in the panel, the number of columns, and its offset in C
#   panels       of each: its first piece, the number of pieces, and whether it is WHOLE in C, or THIN, as one register
#                holds it, or neither
#   row.first    the first row that is computed; row.count: the one behind the last
#   tall         how many of these panels of A have all rows; the others have one less
#   most         the most terms of a block
#   together     panels of B that are packed at a time
#   b.step       elements from panel to panel of B
#   packed       whether B is packed already: it lies in panels, of all terms
#   fresh        whether C is written; else it is added to
#   a.next       elements from one of several matrices A to the next
#   finish       the slots of the steps that follow on sums (see finish.py), where there is a single matrix
#   begin        elements from the beginning of the arrays of these to C
POINTERS = (
    *("a.0", "a.rows", "a.ks", "a.runs", "b.0", "b.ks", "pieces", "panels"),
    *("c.0", "c.rows", "bias.rows", "bias.columns", "scratch", "finish"),
)
NUMBERS = (
    *("row.count", "tall", "depth", "most", "panel.count", "together", "b.step", "packed", "fresh"),
    *("matrices", "a.next", "b.next", "c.next", "begin", "row.first"),
)
WORDS = len(POINTERS) + len(NUMBERS)
PIECE, PANEL = 4, 3
WHOLE, THIN = 1, 2


@lru_cache(256)
def kernel_of(form: Form, finish: Finish | None = None) -> Code:
    """Return the machine code of a form. finish: the steps that follow on its sums.

    Raises LacksError where generated code lacks one of these.
    """
    return handmade(source(form, finish))


def source(form: Form, finish: Finish | None = None, name: str = "kernel") -> str:
    """Return the IR of a function of this name. Raises LacksError where generated code lacks a step of `finish`."""
    heights = [height for height in (form.height, form.height - 1) if height]
    tiles = product(heights, sorted({1, form.registers}))
    packing = _pack_terms(form) if form.turned else pack_rows(form)
    parts = [packing, _pack_columns(form), _scatter(form), _gather(form), _driver(form, finish, name)]
    known, constants = declared(form), dict[str, str]()
    for height, registers in tiles:
        ends = finish is not None and finish.in_registers and registers == form.registers
        steps = Steps(finish, form.lanes) if finish is not None and ends else None
        parts.append(micro(form, height, registers, steps))
        known |= set() if steps is None else steps.writer.declarations
    if finish is not None:
        steps = Steps(finish, form.lanes)
        parts.append(_finish_pieces(form, steps))
        known |= steps.writer.declarations
        constants |= steps.writer.globals
    rows = ", ".join(f"i64 {row * form.width}" for row in range(form.height))
    tile = f"@tile.rows = private constant [{form.height} x i64] [{rows}]"
    return "\n".join([*sorted(known), tile, *constants.values(), *parts])


def pack_rows(form: Form) -> str:
    """Return the function that packs rows of a block of A, copying as many elements at a time as are contiguous."""
    lines = [
        "define internal void @pack.rows(ptr %a, ptr %rows, ptr %ks, ptr %runs, ptr %to, i64 %height, i64 %depth) {",
        "entry:\n  br label %row\nrow:\n  %r = phi i64 [0, %entry], [%r.n, %row.next]",
        *words_at(["offset"], "%row.at"),
        f"  %from = getelementptr {form.kind}, ptr %a, i64 %offset\n  %out.at = mul i64 %r, {form.leading}",
        f"  %out = getelementptr {form.kind}, ptr %to, i64 %out.at\n  br label %some",
        "some:\n  %k = phi i64 [0, %row], [%k.n, %some.next]",
        "  %run.at = getelementptr i64, ptr %runs, i64 %k\n  %run = load i64, ptr %run.at",
        "  %ks.at = getelementptr i64, ptr %ks, i64 %k\n  %ks.k = load i64, ptr %ks.at",
        "  %left = sub i64 %depth, %k\n  %count = call i64 @llvm.smin.i64(i64 %left, i64 %run)",
        f"  %some.at = getelementptr {form.kind}, ptr %from, i64 %ks.k",
        f"  %some.to = getelementptr {form.kind}, ptr %out, i64 %k",
        f"  %is.long = icmp sge i64 %count, {form.lanes}\n  br i1 %is.long, label %long, label %short",
        f"long:\n  %j = phi i64 [0, %some], [%j.n, %long]\n  %j.n = add i64 %j, {form.lanes}",
        f"  %long.at = getelementptr {form.kind}, ptr %some.at, i64 %j",
        f"  %long.to = getelementptr {form.kind}, ptr %some.to, i64 %j",
        f"  %long.x = load {vector_of(form)}, ptr %long.at, align {form.itemsize}",
        f"  store {vector_of(form)} %long.x, ptr %long.to, align {form.itemsize}\n  %j.left = sub i64 %count, %j.n",
        f"  %j.more = icmp sge i64 %j.left, {form.lanes}\n  br i1 %j.more, label %long, label %some.next\nshort:",
        *first_lanes(form, "mask", "%count"),
        masked_load(form, "%some.x", "%some.at", "%mask"),
        f"  store {vector_of(form)} %some.x, ptr %some.to, align {form.itemsize}\n  br label %some.next\nsome.next:",
        "  %went = phi i64 [%j.n, %long], [%count, %short]",
        "  %k.n = add i64 %k, %went\n  %more = icmp slt i64 %k.n, %depth\n  br i1 %more, label %some, label %row.next",
        "row.next:\n  %r.n = add i64 %r, 1\n  %again = icmp slt i64 %r.n, %height",
        "  br i1 %again, label %row, label %done\ndone:\n  ret void\n}",
    ]
    at_row = "  %row.at = getelementptr i64, ptr %rows, i64 %r"
    return "\n".join([*lines[:2], at_row, *lines[2:]])


def _pack_terms(form: Form) -> str:
    """Return the function that packs a block of a transposed A term by term."""
    lines = [
        "define internal void @pack.rows(ptr %a, ptr %rows, ptr %ks, ptr %runs, ptr %to, i64 %height, i64 %depth) {",
        "entry:\n  %offset = load i64, ptr %rows",
        f"  %from = getelementptr {form.kind}, ptr %a, i64 %offset",
    ]
    parts = range(0, form.together, form.lanes)
    for v in parts:
        lines += [f"  %left{v} = sub i64 %height, {v}", *first_lanes(form, f"mask{v}", f"%left{v}")]
    lines += [
        "  br label %some\nsome:\n  %k = phi i64 [0, %entry], [%k.n, %some]",
        "  %ks.at = getelementptr i64, ptr %ks, i64 %k\n  %ks.k = load i64, ptr %ks.at",
        f"  %term = getelementptr {form.kind}, ptr %from, i64 %ks.k\n  %out.at = mul i64 %k, {form.together}",
        f"  %out = getelementptr {form.kind}, ptr %to, i64 %out.at",
    ]
    for v in parts:
        lines += [
            f"  %at{v} = getelementptr {form.kind}, ptr %term, i64 {v}",
            masked_load(form, f"%x{v}", f"%at{v}", f"%mask{v}"),
            f"  %to{v} = getelementptr {form.kind}, ptr %out, i64 {v}",
            f"  store {vector_of(form)} %x{v}, ptr %to{v}, align {form.itemsize}",
        ]
    lines += ["  %k.n = add i64 %k, 1\n  %more = icmp slt i64 %k.n, %depth"]
    return "\n".join([*lines, "  br i1 %more, label %some, label %done\ndone:\n  ret void\n}"])


def _pack_columns(form: Form) -> str:
    """Return the function that packs some terms of a panel of B, piece by piece."""
    lines = [
        "define internal void @pack.columns(ptr %b, ptr %ks, ptr %pieces, i64 %count, ptr %to, i64 %depth) {",
        "entry:\n  br label %piece",
        f"piece:\n  %n = phi i64 [0, %entry], [%n.n, %piece.next]\n  %at = mul i64 %n, {PIECE}",
        "  %this = getelementptr i64, ptr %pieces, i64 %at",
        *words_at(["source", "lane", "columns"], "%this"),
        *first_lanes(form, "mask", "%columns"),
        f"  %from = getelementptr {form.kind}, ptr %b, i64 %source",
        f"  %out = getelementptr {form.kind}, ptr %to, i64 %lane",
        f"  %is.full = icmp eq i64 %columns, {form.lanes}\n  br i1 %is.full, label %full, label %part",
    ]
    for name in ("full", "part"):
        x, to = f"%{name}.x", f"%{name}.to"
        lines += [
            f"{name}:\n  %{name}.k = phi i64 [0, %piece], [%{name}.n, %{name}]",
            f"  %{name}.ks = getelementptr i64, ptr %ks, i64 %{name}.k\n  %{name}.o = load i64, ptr %{name}.ks",
            f"  {x}.at = getelementptr {form.kind}, ptr %from, i64 %{name}.o",
            f"  {to}.k = mul i64 %{name}.k, {form.width}",
            f"  {to} = getelementptr {form.kind}, ptr %out, i64 {to}.k",
        ]
        if name == "full":
            lines += [
                f"  {x} = load {vector_of(form)}, ptr {x}.at, align {form.itemsize}",
                f"  {x}.ahead = getelementptr i8, ptr {x}.at, i64 {ROWS_AHEAD}",
                f"  call void @llvm.prefetch.p0(ptr {x}.ahead, i32 0, i32 3, i32 1)",
                f"  store {vector_of(form)} {x}, ptr {to}, align {form.itemsize}",
            ]
        else:  # store old values behind it: masked stores take many times as long on some processors
            vector, mask = vector_of(form), f"<{form.lanes} x i1> %mask"
            lines += [
                masked_load(form, f"{x}.own", f"{x}.at", "%mask"),
                f"  {x}.old = load {vector}, ptr {to}, align {form.itemsize}",
                f"  {x} = select {mask}, {vector} {x}.own, {vector} {x}.old",
                f"  store {vector} {x}, ptr {to}, align {form.itemsize}",
            ]
        lines += [
            f"  %{name}.n = add i64 %{name}.k, 1\n  %{name}.more = icmp slt i64 %{name}.n, %depth",
            f"  br i1 %{name}.more, label %{name}, label %piece.next",
        ]
    lines += [
        "piece.next:\n  %n.n = add i64 %n, 1\n  %more = icmp slt i64 %n.n, %count",
        "  br i1 %more, label %piece, label %done\ndone:\n  ret void\n}",
    ]
    return "\n".join(lines)


class Around(NamedTuple):
    """Additions to a function over pieces of a tile: parameters, and lines at its and each row's beginning."""

    given: str = ""
    begin: Sequence[str] = ()
    row: Sequence[str] = ()


def _pieces(form: Form, name: str, move: Sequence[str], around: Around | None = None) -> str:
    """Return a function that goes over the pieces of each row of a tile, at %in.tile and %in.c, under %mask."""
    given, begin, row = around or Around()
    lines = [
        f"define internal void @{name}(ptr %tile, ptr %c, ptr %c.rows, ptr %pieces, i64 %count, i64 %height{given}) {{",
        "entry:",
        *begin,
        "  br label %start\nstart:\n  br label %row\nrow:\n  %r = phi i64 [0, %start], [%r.n, %row.next]",
        "  %row.at = getelementptr i64, ptr %c.rows, i64 %r\n  %row.offset = load i64, ptr %row.at",
        f"  %c.row = getelementptr {form.kind}, ptr %c, i64 %row.offset\n  %tile.at = mul i64 %r, {form.width}",
        f"  %tile.row = getelementptr {form.kind}, ptr %tile, i64 %tile.at",
        *row,
        "  br label %piece",
        f"piece:\n  %n = phi i64 [0, %row], [%n.n, %piece.next]\n  %at = mul i64 %n, {PIECE}",
        "  %this = getelementptr i64, ptr %pieces, i64 %at",
        *words_at(["source", "lane", "columns", "target"], "%this"),
        *first_lanes(form, "mask", "%columns"),
        f"  %in.tile = getelementptr {form.kind}, ptr %tile.row, i64 %lane",
        f"  %in.c = getelementptr {form.kind}, ptr %c.row, i64 %target",
        *move,
        "  br label %piece.next\npiece.next:",
        "  %n.n = add i64 %n, 1\n  %more = icmp slt i64 %n.n, %count\n  br i1 %more, label %piece, label %row.next",
        "row.next:\n  %r.n = add i64 %r, 1\n  %again = icmp slt i64 %r.n, %height",
        "  br i1 %again, label %row, label %done\ndone:\n  ret void\n}",
    ]
    return "\n".join(lines)


def _scatter(form: Form) -> str:
    """Return the function that writes a tile to C."""
    move = [masked_load(form, "%x", "%in.tile", "%mask"), masked_store(form, "%x", "%in.c", "%mask")]
    return _pieces(form, "scatter", move)


def _gather(form: Form) -> str:
    """Return the function that reads a tile of C."""
    move = [masked_load(form, "%x", "%in.c", "%mask"), masked_store(form, "%x", "%in.tile", "%mask")]
    return _pieces(form, "gather", move)


def _finish_pieces(form: Form, steps: Steps) -> str:
    """Return the function that applies steps to a tile in scratch memory, piece by piece, on its way to C."""
    lines = steps.lines
    steps.begin("entry")
    begin, lines[:] = [*lines], []
    steps.row("%i.row")
    row, lines[:] = [*lines], []
    steps.writer.block = "piece"
    lines += [
        masked_load(form, "%x", "%in.tile", "%mask"),
        "  %in.row = add i64 %row.offset, %target\n  %place = add i64 %in.row, %begin\n  %j.piece = add i64 %j, %lane",
    ]
    steps.write("%x", "%place", "%j.piece", "", "%mask")
    row.insert(0, "  %i.row = add i64 %i, %r")
    return _pieces(form, "finish.pieces", lines, Around(", i64 %i, i64 %j, i64 %begin, ptr %slots", begin, row))


def micro(form: Form, height: int, registers: int, steps: Steps | None = None, name: str = "micro") -> str:
    """Return the microkernel that adds up a tile, or its first registers, and applies the steps that follow where it
    `ends`. i, j, place: row and column of its first element, and its offset in C.
    """
    vector, align = vector_of(form), form.itemsize
    cells = [(r, v) for r in range(height) for v in range(registers)]
    lines = [
        f"define internal void @{name}{height}.{registers}(ptr %a, ptr %b, ptr %c, ptr %c.rows, ptr %bias.rows, "
        "ptr %bias.columns, i64 %depth, i1 %first, ptr %ks, i64 %left, i1 %ends, i64 %i, i64 %j, i64 %place, "
        "ptr %slots) {\nentry:"
    ]
    if form.direct:
        for v in range(registers):
            lines += [f"  %left{v} = sub i64 %left, {v * form.lanes}", *first_lanes(form, f"mask{v}", f"%left{v}")]
    if steps is not None:
        lines += ["  br i1 %ends, label %fetch, label %begin\nfetch:", *_fetched(form, cells, steps)]
        lines += ["  br label %begin\nbegin:"]
    lines += [*_first_sums(form, height, registers), *_sum(form, cells)]
    if steps is not None:
        lines += ["  br i1 %ends, label %finish, label %store\nfinish:", *_finished(form, cells, steps)]
        lines += ["  ret void\nstore:"]
    lines += _places(form, cells, "to")
    lines += [f"  store {vector} %sum{r}.{v}, ptr %to{r}.{v}, align {align}" for r, v in cells]
    return "\n".join([*lines, "  ret void\n}"])


def _places(form: Form, cells: Sequence[tuple[int, int]], name: str) -> Iterator[str]:
    """Yield the lines that make pointers to the vectors of a tile, under some name.

    They are made wherever they are needed, as there are too few registers to keep them while the tile is added up.
    """
    for r, v in cells:
        if v == 0:
            yield f"  %{name}.row{r}.at = getelementptr i64, ptr %c.rows, i64 {r}"
            yield f"  %{name}.row{r} = load i64, ptr %{name}.row{r}.at"
            yield f"  %{name}{r} = getelementptr {form.kind}, ptr %c, i64 %{name}.row{r}"
        yield f"  %{name}{r}.{v} = getelementptr {form.kind}, ptr %{name}{r}, i64 {v * form.lanes}"


def _fetched(form: Form, cells: Sequence[tuple[int, int]], steps: Steps) -> list[str]:
    """Return the lines that prefetch, before a tile is added up, what is read at its end."""
    steps.lines += _places(form, cells, "ahead.to")
    for r, v in cells:
        steps.lines += [f"  %ahead{r}.{v} = add i64 %ahead.to.row{r}, {v * form.lanes}"]
        steps.lines += [f"  %place.ahead{r}.{v} = add i64 %ahead{r}.{v}, %place"]
    steps.fetch([f"%place.ahead{r}.{v}" for r, v in cells])
    return steps.taken()


def _finished(form: Form, cells: Sequence[tuple[int, int]], steps: Steps) -> list[str]:
    """Return the lines that store the results of the steps on the sums of a tile."""
    steps.begin("finish")
    steps.lines += _places(form, cells, "final")
    for r, v in cells:
        if v == 0:
            steps.lines += [f"  %i{r} = add i64 %i, {r}\n  %place{r} = add i64 %place, %final.row{r}"]
            steps.row(f"%i{r}", f".{r}")
        if r == 0:
            steps.lines += [f"  %j{v} = add i64 %j, {v * form.lanes}"]
        steps.lines += [f"  %place{r}.{v} = add i64 %place{r}, {v * form.lanes}"]
        steps.write(f"%sum{r}.{v}", f"%place{r}.{v}", f"%j{v}", f".{r}.{v}")
    return steps.lines


def _first_sums(form: Form, height: int, registers: int) -> list[str]:
    """Return the lines that begin a tile: with biases, or with the sums of the blocks before."""
    kind, vector, align = form.kind, vector_of(form), form.itemsize
    cells = [(r, v) for r in range(height) for v in range(registers)]
    lines = ["  br i1 %first, label %new, label %old\nnew:"]
    for v in range(registers):
        lines += [
            f"  %beside{v}.at = getelementptr {kind}, ptr %bias.columns, i64 {v * form.lanes}",
            f"  %beside{v} = load {vector}, ptr %beside{v}.at, align {align}",
        ]
    for r in range(height):
        lines += [
            f"  %bias{r}.at = getelementptr {kind}, ptr %bias.rows, i64 {r}\n  %bias{r} = load {kind}, ptr %bias{r}.at",
            *splat(f"bias{r}", kind, vector, form.lanes),
        ]
    add = "add" if form.integers else "fadd"
    lines += [f"  %new{r}.{v} = {add} {vector} %bias{r}.all, %beside{v}" for r, v in cells]
    lines += ["  br label %sum\nold:", *_places(form, cells, "from")]
    lines += [f"  %old{r}.{v} = load {vector}, ptr %from{r}.{v}, align {align}" for r, v in cells]
    lines += ["  br label %sum\nsum:"]
    return lines


def _sum(form: Form, cells: Sequence[tuple[int, int]]) -> list[str]:
    """Return the loop that adds up the terms of a tile: one term per turn, as with several LLVM would move the loads to
    the front and spill registers to the stack.
    """
    kind, vector, align = form.kind, vector_of(form), form.itemsize
    height, registers = (1 + last for last in cells[-1])
    down, along, on = form.steps
    phi = "phi {} [{}, %new], [{}, %old], [{}, %sum]".format
    lines = [f"  %k = {phi('i64', 0, 0, '%k.n')}"]
    lines += [f"  %{x}.k = {phi('ptr', f'%{x}', f'%{x}', f'%{x}.n')}" for x in "ab"]
    lines += [f"  %acc{r}.{v} = {phi(vector, f'%new{r}.{v}', f'%old{r}.{v}', f'%sum{r}.{v}')}" for r, v in cells]
    if form.direct:
        lines += ["  %ks.k = getelementptr i64, ptr %ks, i64 %k\n  %offset = load i64, ptr %ks.k"]
        lines += [f"  %b.row = getelementptr {kind}, ptr %b, i64 %offset"]
    for v in range(registers):
        lines += [f"  %b{v}.at = getelementptr {kind}, ptr %b.{'row' if form.direct else 'k'}, i64 {v * form.lanes}"]
        loaded = f"  %b{v} = load {vector}, ptr %b{v}.at, align {align}"
        if form.direct:
            lines += [masked_load(form, f"%b{v}", f"%b{v}.at", f"%mask{v}")]
            continue
        lines += [loaded, f"  %b{v}.ahead = getelementptr i8, ptr %b{v}.at, i64 {PANELS_AHEAD}"]
        lines += [f"  call void @llvm.prefetch.p0(ptr %b{v}.ahead, i32 0, i32 3, i32 1)"]
    for r in range(height):
        lines += [
            f"  %x{r}.at = getelementptr {kind}, ptr %a.k, i64 {r * down}\n  %x{r} = load {kind}, ptr %x{r}.at",
            *splat(f"x{r}", kind, vector, form.lanes),
        ]
        for v in range(registers):
            lines += multiply_add(form, f"%sum{r}.{v}", f"%x{r}.all", f"%b{v}", f"%acc{r}.{v}")
    lines += [
        f"  %a.n = getelementptr {kind}, ptr %a.k, i64 {along}\n  %b.n = getelementptr {kind}, ptr %b.k, i64 {on}",
        "  %k.n = add i64 %k, 1\n  %on = icmp slt i64 %k.n, %depth\n  br i1 %on, label %sum, label %end\nend:",
    ]
    return lines


def _driver(form: Form, finish: Finish | None, name: str) -> str:
    """Return the function that loops over blocks of the sum, panels of rows, and panels of columns."""
    kind = form.kind
    lines = [
        f"define void @{name}(ptr %table) {{\nentry:",
        *loads(POINTERS, NUMBERS),
        f"  %tile = getelementptr {kind}, ptr %scratch, i64 {form.room - TALLEST * form.width - form.lanes}",
        f"  %blocks = getelementptr {kind}, ptr %scratch, i64 {form.room}",
        "  %is.packed = icmp ne i64 %packed, 0\n  %is.fresh = icmp ne i64 %fresh, 0\n  br label %matrix\nmatrix:",
        "  %number = phi i64 [1, %entry], [%number.n, %matrix.next]",
        *(f"  %{x} = phi ptr [%{x}.0, %entry], [%{x}.n, %matrix.next]" for x in "abc"),
        "  br label %chunk\nchunk:",
        "  %p0 = phi i64 [0, %matrix], [%p1, %chunk.next]\n  %p.left = sub i64 %panel.count, %p0",
        "  %some = call i64 @llvm.smin.i64(i64 %p.left, i64 %together)\n  %p1 = add i64 %p0, %some",
        "  %skipped = mul i64 %p0, %b.step\n  %b.skip = select i1 %is.packed, i64 %skipped, i64 0",
        f"  %b.chunk = getelementptr {kind}, ptr %b, i64 %b.skip\n  br label %block\nblock:",
        "  %k0 = phi i64 [0, %chunk], [%k1, %block.next]",
        "  %k1 = add i64 %k0, %most\n  %left = sub i64 %depth, %k0",
        "  %terms = call i64 @llvm.smin.i64(i64 %left, i64 %most)",
        "  %begins = icmp eq i64 %k0, 0\n  %first = and i1 %begins, %is.fresh\n  %last = icmp sle i64 %left, %most",
        *(f"  %{x}.at = getelementptr i64, ptr %{x}, i64 %k0" for x in ("a.ks", "a.runs", "b.ks")),
        f"  %in.panel = mul i64 %k0, {form.width}\n  %b.at = getelementptr {kind}, ptr %b.chunk, i64 %in.panel",
        "  %b.from = select i1 %is.packed, ptr %b.at, ptr %blocks",
        "  br i1 %is.packed, label %tiles, label %pack\npack:",
        *_packing(form),
        *_over_tiles(form, finish),
        "  br i1 %last, label %chunk.next, label %block\nchunk.next:",
        "  %p.more.left = icmp slt i64 %p1, %panel.count\n  br i1 %p.more.left, label %chunk, label %matrix.next",
        "matrix.next:",
        *(f"  %{x}.n = getelementptr {kind}, ptr %{x}, i64 %{x}.next" for x in "abc"),
        "  %number.n = add i64 %number, 1\n  %n.more = icmp slt i64 %number, %matrices",
        "  br i1 %n.more, label %matrix, label %done",
        "done:\n  ret void\n}",
    ]
    return "\n".join(lines)


def _panel_of_rows(form: Form) -> list[str]:
    """Return the lines that find a panel of A, after packing it unless it is read in place."""
    short = max(form.height - 1, 1)
    lines = [
        f"  %is.tall = icmp slt i64 %n, %tall\n  %height = select i1 %is.tall, i64 {form.height}, i64 {short}",
        *(f"  %{x}.i = getelementptr i64, ptr %{x}, i64 %i" for x in ("a.rows", "c.rows")),
        f"  %bias.i = getelementptr {form.kind}, ptr %bias.rows, i64 %i",
    ]
    row, term, _ = form.steps
    lies = [
        f"  %a.down = mul i64 %i, {row}\n  %a.along = mul i64 %k0, {term}\n  %a.far = add i64 %a.down, %a.along",
        f"  %a.panel = getelementptr {form.kind}, ptr %a, i64 %a.far",
    ]
    packed = [
        "  call void @pack.rows(ptr %a, ptr %a.rows.i, ptr %a.ks.at, ptr %a.runs.at, ptr %scratch, i64 %height, "
        "i64 %terms)",
        "  %a.panel = getelementptr i8, ptr %scratch, i64 0",
    ]
    return [*lines, *(lies if form.lies else packed)]


def _packing(form: Form) -> list[str]:
    """Return the lines that pack some panels of B: a few terms of all at a time, each on a page of its own."""
    kind = form.kind
    return [
        f"  %t = phi i64 [0, %block], [%t.n, %pack.next]\n  %t.far = add i64 %t, {TERMS}",
        "  %t.n = call i64 @llvm.smin.i64(i64 %t.far, i64 %terms)\n  %t.terms = sub i64 %t.n, %t",
        f"  %t.at = getelementptr i64, ptr %b.ks.at, i64 %t\n  %t.step = mul i64 %t, {form.width}",
        f"  %t.blocks = getelementptr {kind}, ptr %blocks, i64 %t.step\n  br label %pack.panel\npack.panel:",
        "  %q = phi i64 [0, %pack], [%q.n, %pack.panel]\n  %q.own = add i64 %p0, %q",
        f"  %q.at = mul i64 %q.own, {PANEL}\n  %q.panel = getelementptr i64, ptr %panels, i64 %q.at",
        *words_at(["q.first", "q.count"], "%q.panel"),
        f"  %q.first.at = mul i64 %q.first, {PIECE}\n  %q.pieces = getelementptr i64, ptr %pieces, i64 %q.first.at",
        f"  %q.step = mul i64 %q, %b.step\n  %q.to = getelementptr {kind}, ptr %t.blocks, i64 %q.step",
        "  call void @pack.columns(ptr %b, ptr %t.at, ptr %q.pieces, i64 %q.count, ptr %q.to, i64 %t.terms)",
        "  %q.n = add i64 %q, 1\n  %q.more = icmp slt i64 %q.n, %some",
        "  br i1 %q.more, label %pack.panel, label %pack.next\npack.next:",
        "  %t.more = icmp slt i64 %t.n, %terms\n  br i1 %t.more, label %pack, label %tiles\ntiles:",
    ]


def _call_micro(form: Form, label: str, height: int, given: str) -> list[str]:
    """Return the lines that call the microkernel, that of one register where the panel is thin."""
    return [
        f"  br i1 %is.thin, label %{label}.thin, label %{label}.wide",
        f"{label}.thin:\n  call void @micro{height}.1(ptr %a.panel, {given})\n  br label %went",
        f"{label}.wide:\n  call void @micro{height}.{form.registers}(ptr %a.panel, {given})\n  br label %went",
    ]


def _over_tiles(form: Form, finish: Finish | None) -> Iterator[str]:
    """Yield the loops over panels of rows and of columns, from %tiles to %block.next."""
    rows, panels = ("row", _panel_of_rows(form)), ("panel", _panel_of_columns(form))
    (outer, of_outer), (inner, of_inner) = (panels, rows) if form.keeps_columns else (rows, panels)
    yield f"  br label %{outer}\n{outer}:"
    yield from _counted(outer, "tiles")
    yield from of_outer
    yield f"  br label %{inner}\n{inner}:"
    yield from _counted(inner, outer)
    yield from of_inner
    yield from _tile(form, finish, f"{inner}.next")
    for name, then in ((inner, f"{outer}.next"), (outer, "block.next")):
        yield f"{name}.next:"
        yield from _COUNTED[name][1]
        yield f"  br i1 %{name}.more, label %{name}, label %{then}"
    yield "block.next:"


# The counters of panels of rows and of columns: what they are at first, then, and whether there are more.
_COUNTED = {
    "row": (
        {"n": ("0", "%n.n"), "i": ("%row.first", "%i.n")},
        ["  %n.n = add i64 %n, 1\n  %i.n = add i64 %i, %height\n  %row.more = icmp slt i64 %i.n, %row.count"],
    ),
    "panel": ({"p": ("0", "%p.n")}, ["  %p.n = add i64 %p, 1\n  %panel.more = icmp slt i64 %p.n, %some"]),
}


def _counted(name: str, before: str) -> Iterator[str]:
    """Yield the counters of a loop."""
    for counter, (first, then) in _COUNTED[name][0].items():
        yield f"  %{counter} = phi i64 [{first}, %{before}], [{then}, %{name}.next]"


def _panel_of_columns(form: Form) -> list[str]:
    """Return the lines that find a panel of B, and where its columns are in C."""
    kind = form.kind
    return [
        f"  %p.own = add i64 %p0, %p\n  %p.words = mul i64 %p.own, {PANEL}",
        "  %panel.at = getelementptr i64, ptr %panels, i64 %p.words",
        *words_at(["first.piece", "count", "whole"], "%panel.at"),
        f"  %pieces.at = mul i64 %first.piece, {PIECE}\n  %own = getelementptr i64, ptr %pieces, i64 %pieces.at",
        f"  %p.step = mul i64 %p, %b.step\n  %b.panel = getelementptr {kind}, ptr %b.from, i64 %p.step",
        f"  %j = mul i64 %p.own, {form.width}\n  %bias.j = getelementptr {kind}, ptr %bias.columns, i64 %j",
        "  %target.at = getelementptr i64, ptr %own, i64 3\n  %target = load i64, ptr %target.at",
        f"  %c.p = getelementptr {kind}, ptr %c, i64 %target\n  %place = add i64 %target, %begin",
    ]


def _tile(form: Form, finish: Finish | None, after: str) -> list[str]:
    """Return the lines that compute a tile, a part of one aside, and go on."""
    short, goes_on = max(form.height - 1, 1), str(finish is None or finish.in_registers).lower()
    given = (
        "ptr %b.panel, ptr %c.to, ptr %c.steps, ptr %bias.i, ptr %bias.j, i64 %terms, i1 %first, ptr %b.ks.at, i64 0, "
        "i1 %ends, i64 %i, i64 %j, i64 %place, ptr %finish"
    )
    return [
        f"  %in.c = icmp eq i64 %whole, {WHOLE}\n  %to.c = select i1 {goes_on}, i1 %in.c, i1 false",
        "  %is.whole = select i1 %last, i1 %to.c, i1 %in.c\n  br i1 %is.whole, label %go, label %part\npart:",
        "  br i1 %first, label %go, label %read\nread:",
        "  call void @gather(ptr %tile, ptr %c, ptr %c.rows.i, ptr %own, i64 %count, i64 %height)\n  br label %go\ngo:",
        "  %c.to = select i1 %is.whole, ptr %c.p, ptr %tile",
        "  %c.steps = select i1 %is.whole, ptr %c.rows.i, ptr @tile.rows",
        f"  %ends = and i1 %last, %is.whole\n  %is.thin = icmp eq i64 %whole, {THIN}",
        "  br i1 %is.tall, label %high, label %low\nhigh:",
        *_call_micro(form, "high", form.height, given),
        "low:",
        *_call_micro(form, "low", short, given),
        "went:",
        *_ending(after, finish is not None),
    ]


def _ending(after: str, finishes: bool) -> list[str]:
    """Return the lines that end a tile in scratch memory, and go on. finishes: whether steps follow on the sums."""
    pieces = "ptr %tile, ptr %c, ptr %c.rows.i, ptr %own, i64 %count, i64 %height"
    lines = [f"  call void @scatter({pieces})\n  br label %{after}"]
    if finishes:
        lines = [
            "  br i1 %last, label %finished, label %stored\nstored:",
            *lines,
            f"finished:\n  call void @finish.pieces({pieces}, i64 %i, i64 %j, i64 %begin, ptr %finish)",
            f"  br label %{after}",
        ]
    return [f"  br i1 %is.whole, label %{after}, label %write\nwrite:", *lines]

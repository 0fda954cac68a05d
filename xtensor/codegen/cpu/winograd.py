"""Winograd's convolution F(m x m, 3 x 3): tiles of m x m outputs from (m + 2) x (m + 2) inputs by as many products.

With the matrices B, G and A of `matrices`, a tile of outputs is A' [(G g G') * (B' d B)] A, where g are the weights, d
the inputs and * goes element by element (S. Winograd, Arithmetic Complexity of Computations, 1980; A. Lavin and S. Gray,
Fast Algorithms for Convolutional Neural Networks, arXiv:1509.09308). Summed over channels, each of the (m + 2)^2
elements is a product of matrices, tiles times channels by channels times outputs, for the contraction kernel of gemm.py.

The transforms are made in registers of neighbouring channels. Where channels come first, squares of registers are turned
on the way in and out. What a chunk of tiles needs lies in scratch that stays in the cache of a core:

    transformed inputs    (tiles, (m + 2)^2, channels)    read by the product where they lie
    products              (tiles, (m + 2)^2, outputs)
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

from .compile import Code, handmade
from .gemm import NUMBERS as PRODUCT_NUMBERS
from .gemm import POINTERS as PRODUCT_POINTERS
from .gemm import (
    WORDS,
    Form,
    _mask,
    _masked_load,
    _masked_store,
    _multiply_add,
    _suffix,
    _transposed,
    _vector,
    loads,
    source,
    splat,
)

Matrix = Sequence[Sequence[float]]
Grid = list[list[str]]


class Matrices(NamedTuple):
    """What transforms a row of weights, of inputs, and of products."""

    weights: Matrix
    inputs: Matrix
    products: Matrix


# By the number of outputs of a row. Points: 0, 1, -1 and infinity; for four outputs also 2 and -2.
matrices = {
    2: Matrices(
        ((1, 0, 0), (1 / 2, 1 / 2, 1 / 2), (1 / 2, -1 / 2, 1 / 2), (0, 0, 1)),
        ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1)),
        ((1, 1, 1, 0), (0, 1, -1, -1)),
    ),
    4: Matrices(
        (
            *((1 / 4, 0, 0), (-1 / 6, -1 / 6, -1 / 6), (-1 / 6, 1 / 6, -1 / 6)),
            *((1 / 24, 1 / 12, 1 / 6), (1 / 24, -1 / 12, 1 / 6), (0, 0, 1)),
        ),
        (
            *((4, 0, -5, 0, 1, 0), (0, -4, -4, 1, 1, 0), (0, 4, -4, -1, 1, 0)),
            *((0, -2, -1, 2, 1, 0), (0, 2, -1, -2, 1, 0), (0, 4, 0, -5, 0, 1)),
        ),
        ((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1)),
    ),
}

# What the kernel is told; offsets count elements. step: from column to column where channels come last, else from
# channel to channel. together: whether rows of the input follow each other. *.at: where things lie in scratch. flag:
# becomes 1 where an output is not finite.
POINTERS = ("x", "y", "u", "bias", "zeros", "scratch", "chunks", "c.rows", "pieces", "panels", "flag")
NUMBERS = (
    *("first", "last", "x.image", "x.row", "x.step", "y.image", "y.row", "y.step", "height", "width"),
    *("out.height", "out.width", "low.y", "low.x", "columns", "u.next", "together", "m.at", "in.at", "out.at"),
)
KERNEL_WORDS = len(POINTERS) + len(NUMBERS)

# A chunk of tiles: where its first image begins in x and y, and its weights and bias, the number of images, and its
# first row of tiles and their number.
CHUNK = ("x.begin", "y.begin", "u.begin", "bias.begin", "images", "row", "rows")

# What the transform of weights is told: it makes registers of outputs. taps: offsets of the elements of a window.
WEIGHTS = (
    ("w", "u", "taps"),
    ("first", "last", "outputs", "channels", "by.output", "by.channel", "u.next", "registers"),
)


class Tiled(NamedTuple):
    """What a kernel is made for: so many outputs of a row of a tile, channels and outputs, and layouts.

    form: of the product, which reads the inputs where `step_x` says.
    """

    form: Form
    m: int
    channels: int
    outputs: int
    x_last: bool
    y_last: bool

    @property
    def side(self) -> int:
        """The inputs of a row of a tile."""
        return self.m + 2

    @property
    def pitch_x(self) -> int:
        """The numbers that one element of a tile's transformed inputs takes."""
        return -(-self.channels // self.form.lanes) * self.form.lanes

    @property
    def pitch_y(self) -> int:
        """The same of its products, whose panels are whole."""
        return -(-self.outputs // self.form.width) * self.form.width

    @property
    def step_x(self) -> int:
        """The numbers from tile to tile: a register more than there are, as lines one power of two apart meet."""
        return self.side**2 * self.pitch_x + self.form.lanes

    @property
    def step_y(self) -> int:
        return self.side**2 * self.pitch_y + self.form.lanes


@cache
def winograd_kernel(tiled: Tiled) -> Code:
    """Return the code that convolves chunks of tiles with transformed weights."""
    form = tiled.form._replace(lies=(tiled.step_x, 1))
    parts = [source(form, name="product"), *_turn(form), *_read(tiled), *_write(tiled), *_kernel(tiled)]
    return handmade("\n".join(parts))


@cache
def weights_kernel(form: Form, m: int) -> Code:
    """Return the code that transforms weights into panels of the product: (elements, panels, channels, width)."""
    return handmade("\n".join(_weights(form, m)))


# ---- loops and linear maps


def _loop(name: str, count: str | int, body: Iterable[str], step: int = 1) -> Iterator[str]:
    """Yield the lines of a loop with the counter %name, which runs once at least."""
    yield f"  br label %{name}.before\n{name}.before:\n  br label %{name}.loop\n{name}.loop:"
    yield f"  %{name} = phi i64 [0, %{name}.before], [%{name}.n, %{name}.next]"
    yield from body
    yield f"  br label %{name}.next\n{name}.next:\n  %{name}.n = add i64 %{name}, {step}"
    yield f"  %{name}.more = icmp slt i64 %{name}.n, {count}"
    yield f"  br i1 %{name}.more, label %{name}.loop, label %{name}.done\n{name}.done:"


def _constant(form: Form, value: float) -> str:
    (rounded,) = struct.unpack("f", struct.pack("f", value)) if form.char == "f" else (value,)
    one = f"{form.kind} 0x{struct.pack('>d', rounded).hex().upper()}"
    return f"<{', '.join([one] * form.lanes)}>"


def _combined(form: Form, row: Sequence[float], given: Sequence[str], tag: str) -> tuple[list[str], str]:
    """Return the lines that add up a row of a matrix times vectors, and the name of the sum."""
    vector, lines = _vector(form), list[str]()
    terms = sorted(((c, x) for c, x in zip(row, given, strict=True) if c), key=lambda term: term[0] != 1)
    coefficient, total = terms[0]
    if coefficient != 1:
        lines.append(f"  %{tag}.0 = fmul {vector} {total}, {_constant(form, coefficient)}")
        total = f"%{tag}.0"
    for number, (c, x) in enumerate(terms[1:], 1):
        name = f"%{tag}.{number}"
        if abs(c) == 1:
            lines.append(f"  {name} = {'fadd' if c > 0 else 'fsub'} {vector} {total}, {x}")
        else:
            lines += _multiply_add(form, name, x, _constant(form, c), total)
        total = name
    return lines, total


def _mapped(form: Form, matrix: Matrix, grid: Grid, tag: str) -> tuple[list[str], Grid]:
    """Return the lines that make matrix * grid * matrix' of a grid of vectors, and their names."""
    lines = list[str]()
    for turn in "ab":
        made: Grid = []
        for i, column in enumerate(zip(*grid, strict=True)):
            sums = [_combined(form, row, column, f"{tag}.{turn}{i}.{r}") for r, row in enumerate(matrix)]
            lines += [line for some, _ in sums for line in some]
            made.append([name for _, name in sums])
        grid = made
    return lines, grid


def _at(form: Form, name: str, base: str, offset: str | int) -> str:
    return f"  {name} = getelementptr {form.kind}, ptr {base}, i64 {offset}"


# ---- turning


def _turn(form: Form) -> Iterator[str]:
    """Yield the function that writes rows of `from` as columns of `to`: a square of registers at a time."""
    lanes, mask = form.lanes, f"<{form.lanes} x i1>"
    names, shuffles = _transposed(form, [f"%x{t}" for t in range(lanes)])
    body = ["  %left.j = sub i64 %columns, %j", *_mask(form, "wide", "%left.j"), "  %j.to = mul i64 %j, %to.step"]
    for t in range(lanes):
        body += [
            f"  %i{t} = add i64 %i, {t}\n  %is{t} = icmp slt i64 %i{t}, %rows\n  %at{t} = mul i64 %i{t}, %from.step",
            f"  %some{t} = select i1 %is{t}, {mask} %wide, {mask} zeroinitializer",
            f"  %all{t} = add i64 %at{t}, %j",
            _at(form, f"%from{t}", "%from", f"%all{t}"),
            _masked_load(form, f"%x{t}", f"%from{t}", f"%some{t}"),
        ]
    body += [*shuffles, "  %first = add i64 %j.to, %i", _at(form, "%out", "%to", "%first")]
    for t, name in enumerate(names):
        body += [
            f"  %j{t} = add i64 %j, {t}\n  %js{t} = icmp slt i64 %j{t}, %columns\n  %off{t} = mul i64 %to.step, {t}",
            f"  %tall{t} = select i1 %js{t}, {mask} %tall, {mask} zeroinitializer",
            _at(form, f"%to{t}", "%out", f"%off{t}"),
            _masked_store(form, name, f"%to{t}", f"%tall{t}"),
        ]
    yield "define internal void @turn(ptr %from, i64 %from.step, ptr %to, i64 %to.step, i64 %rows, i64 %columns) {"
    yield "entry:"
    outer = ["  %left.i = sub i64 %rows, %i", *_mask(form, "tall", "%left.i"), *_loop("j", "%columns", body, lanes)]
    yield from _loop("i", "%rows", outer, lanes)
    yield "  ret void\n}"


# ---- the transforms of a chunk


def _tile_loops(tiled: Tiled, per_row: Iterable[str], per_tile: Iterable[str]) -> Iterator[str]:
    """Yield the loops over images, rows and columns of tiles of a chunk; %t is the number of the tile."""
    tile = [
        "  %n.rows = mul i64 %n, %rows\n  %t.row = add i64 %n.rows, %r\n  %t.first = mul i64 %t.row, %columns",
        "  %t = add i64 %t.first, %c",
        f"  %x0 = mul i64 %c, {tiled.m}",
        *per_tile,
    ]
    row = [f"  %row.r = add i64 %row, %r\n  %y0 = mul i64 %row.r, {tiled.m}", *per_row, *_loop("c", "%columns", tile)]
    yield from _loop("n", "%images", ["  %n.at = mul i64 %n, %image", *_loop("r", "%rows", row)])


def _inside(axis: str, number: int, low: str, length: str, step: str) -> Iterator[str]:
    """Yield the lines that say for some positions of an axis whether they lie inside, and where."""
    for i in range(number):
        yield f"  %{axis}{i}.plus = add i64 %{axis}0, {i}\n  %{axis}{i}.own = sub i64 %{axis}{i}.plus, {low}"
        yield f"  %{axis}{i}.is = icmp ult i64 %{axis}{i}.own, {length}\n  %{axis}{i}.at = mul i64 %{axis}{i}.own, {step}"


def _read(tiled: Tiled) -> Iterator[str]:
    """Yield the function that transforms the inputs of a chunk."""
    form, side = tiled.form, tiled.side
    cells = [(i, j) for i in range(side) for j in range(side)]
    tile = [*_inside("x", side, "%low.x", "%width", "%step")]
    for i, j in cells:
        tile += [
            f"  %is{i}.{j} = and i1 %y{i}.is, %x{j}.is\n  %off{i}.{j} = add i64 %y{i}.image, %x{j}.at",
            _at(form, f"%in{i}.{j}", "%x", f"%off{i}.{j}"),
            f"  %from{i}.{j} = select i1 %is{i}.{j}, ptr %in{i}.{j}, ptr %zeros",
        ]
    tile += [f"  %t.at = mul i64 %t, {tiled.step_x}", _at(form, "%v.t", "%v", "%t.at")]
    body = [f"  %left = sub i64 {tiled.channels}, %k", *_mask(form, "mask", "%left"), _at(form, "%v.k", "%v.t", "%k")]
    for i, j in cells:
        body += [_at(form, f"%from{i}.{j}.k", f"%from{i}.{j}", "%k")]
        body += [_masked_load(form, f"%d{i}.{j}", f"%from{i}.{j}.k", "%mask")]
    grid = [[f"%d{i}.{j}" for j in range(side)] for i in range(side)]
    lines, found = _mapped(form, matrices[tiled.m].inputs, grid, "b")
    body += lines
    for i, j in cells:
        body += [
            _at(form, f"%v{i}.{j}", "%v.k", (i * side + j) * tiled.pitch_x),
            f"  store {_vector(form)} {found[i][j]}, ptr %v{i}.{j}, align {form.itemsize}",
        ]
    tile += _loop("k", tiled.channels, body, form.lanes)
    row = [*_inside("y", side, "%low.y", "%height", "%by.row")]
    row += [f"  %y{i}.image = add i64 %y{i}.at, %n.at" for i in range(side)]
    yield "define internal void @read(ptr %x, i64 %image, i64 %by.row, i64 %step, i64 %images, i64 %row, i64 %rows, "
    yield "i64 %columns, i64 %height, i64 %width, i64 %low.y, i64 %low.x, ptr %zeros, ptr %v) {\nentry:"
    yield from _tile_loops(tiled, row, tile)
    yield "  ret void\n}"


def _write(tiled: Tiled) -> Iterator[str]:
    """Yield the function that makes the outputs of a chunk of its products, and looks whether they are finite."""
    form, m, side = tiled.form, tiled.m, tiled.side
    vector, mask = _vector(form), f"<{form.lanes} x i1>"
    cells = [(i, j) for i in range(m) for j in range(m)]
    tile = [*_inside("x", m, "0", "%width", "%step")]
    for i, j in cells:
        tile += [
            f"  %is{i}.{j} = and i1 %y{i}.is, %x{j}.is\n  %off{i}.{j} = add i64 %y{i}.image, %x{j}.at",
            _at(form, f"%out{i}.{j}", "%y", f"%off{i}.{j}"),
        ]
    tile += [f"  %t.at = mul i64 %t, {tiled.step_y}", _at(form, "%m.t", "%m", "%t.at")]
    body = [f"  %left = sub i64 {tiled.outputs}, %k", *_mask(form, "mask", "%left"), _at(form, "%m.k", "%m.t", "%k")]
    for i in range(side):
        for j in range(side):
            body += [
                _at(form, f"%m{i}.{j}", "%m.k", (i * side + j) * tiled.pitch_y),
                f"  %d{i}.{j} = load {vector}, ptr %m{i}.{j}, align {form.itemsize}",
            ]
    grid = [[f"%d{i}.{j}" for j in range(side)] for i in range(side)]
    lines, found = _mapped(form, matrices[m].products, grid, "a")
    body += [*lines, _at(form, "%bias.k", "%bias", "%k"), _masked_load(form, "%b", "%bias.k", "%mask")]
    body += [f"  %seen = load {vector}, ptr %finite"]
    seen = "%seen"
    for i, j in cells:
        name = found[i][j]
        body += _multiply_add(form, f"%seen{i}.{j}", name, "zeroinitializer", seen)
        seen = f"%seen{i}.{j}"
        body += [
            f"  %sum{i}.{j} = fadd {vector} {name}, %b",
            f"  %mask{i}.{j} = select i1 %is{i}.{j}, {mask} %mask, {mask} zeroinitializer",
            _at(form, f"%to{i}.{j}", f"%out{i}.{j}", "%k"),
            _masked_store(form, f"%sum{i}.{j}", f"%to{i}.{j}", f"%mask{i}.{j}"),
        ]
    body += [f"  store {vector} {seen}, ptr %finite"]
    tile += _loop("k", tiled.outputs, body, form.lanes)
    row = [*_inside("y", m, "0", "%height", "%by.row")]
    row += [f"  %y{i}.image = add i64 %y{i}.at, %n.at" for i in range(m)]
    yield "define internal void @write(ptr %y, i64 %image, i64 %by.row, i64 %step, i64 %images, i64 %row, i64 %rows, "
    yield "i64 %columns, i64 %height, i64 %width, ptr %bias, ptr %m, ptr %finite) {\nentry:"
    yield from _tile_loops(tiled, row, tile)
    yield "  ret void\n}"


# ---- the kernel


def _kernel(tiled: Tiled) -> Iterator[str]:
    """Yield the function that goes over chunks: inputs, products, outputs."""
    form, vector = tiled.form, _vector(tiled.form)
    yield "declare i64 @llvm.smax.i64(i64, i64)"
    yield "define void @kernel(ptr %table) {\nentry:"
    yield from loads(POINTERS, NUMBERS)
    yield f"  %finite = alloca {vector}, align 64\n  store {vector} zeroinitializer, ptr %finite"
    yield f"  %words = alloca [{WORDS} x i64], align 8"
    yield "  %chunk.count = sub i64 %last, %first"
    yield from (_at(form, f"%{name}", "%scratch", f"%{name}.at") for name in ("m", "in", "out"))
    yield from _told(tiled, {"a.0": "%scratch", "c.0": "%m", "b.next": "%u.next"})
    body = ["  %q.own = add i64 %first, %q", f"  %q.at = mul i64 %q.own, {len(CHUNK)}"]
    body += ["  %chunk = getelementptr i64, ptr %chunks, i64 %q.at"]
    for place, name in enumerate(CHUNK):
        body += [f"  %{name}.p = getelementptr i64, ptr %chunk, i64 {place}\n  %{name} = load i64, ptr %{name}.p"]
    body += _at(form, "%x.own", "%x", "%x.begin"), _at(form, "%y.own", "%y", "%y.begin")
    body += _at(form, "%u.own", "%u", "%u.begin"), _at(form, "%bias.own", "%bias", "%bias.begin")
    body += [*_inputs(tiled), *_multiplied(tiled), *_outputs(tiled)]
    yield from _loop("q", "%chunk.count", body)
    yield f"  %seen = load {vector}, ptr %finite\n  %odd = fcmp uno {vector} %seen, %seen"
    yield f"  %odd.bits = bitcast <{form.lanes} x i1> %odd to i{form.lanes}"
    yield f"  %is.odd = icmp ne i{form.lanes} %odd.bits, 0\n  br i1 %is.odd, label %say, label %end"
    yield "say:\n  store i64 1, ptr %flag\n  br label %end\nend:\n  ret void\n}"


def _told(tiled: Tiled, given: dict[str, str]) -> Iterator[str]:
    """Yield the lines that tell the product what is the same for all chunks."""
    form, panels = tiled.form, tiled.pitch_y // tiled.form.width
    known: dict[str, str | int] = {
        **{"b.ks": "null", "scratch": "%scratch", "bias.rows": "%zeros", "bias.columns": "%zeros"},
        **{"a.rows": "%c.rows", "a.ks": "%c.rows", "a.runs": "%c.rows", "c.rows": "%c.rows"},
        **{"pieces": "%pieces", "panels": "%panels", "depth": tiled.channels, "most": tiled.channels},
        **{"panel.count": panels, "together": panels, "b.step": form.width * tiled.channels, "packed": 1, "fresh": 1},
        **{"matrices": tiled.side**2, "a.next": tiled.pitch_x, "c.next": tiled.pitch_y, "end": 0},
        **given,
    }
    for name, value in known.items():
        yield from _tell(name, value)


def _tell(name: str, value: str | int) -> Iterator[str]:
    place = (*PRODUCT_POINTERS, *PRODUCT_NUMBERS).index(name)
    kind = "ptr" if name in PRODUCT_POINTERS else "i64"
    yield f"  %tell.{name} = getelementptr i64, ptr %words, i64 {place}\n  store {kind} {value}, ptr %tell.{name}"


def _inputs(tiled: Tiled) -> Iterator[str]:
    """Yield the lines that transform the inputs of a chunk; those whose channels come first are turned before."""
    form, m, pitch = tiled.form, tiled.m, tiled.pitch_x
    given = "i64 %images, i64 %row, i64 %rows, i64 %columns, i64 %height, i64 %width, i64 %low.y, i64 %low.x"
    call = f"{given}, ptr %zeros, ptr %scratch)"
    if tiled.x_last:
        yield f"  call void @read(ptr %x.own, i64 %x.image, i64 %x.row, i64 %x.step, {call}"
        return
    yield f"  %top = mul i64 %row, {m}\n  %top.own = sub i64 %top, %low.y"
    yield f"  %tall = mul i64 %rows, {m}\n  %reach = add i64 %tall, 2\n  %bottom.own = add i64 %top.own, %reach"
    yield "  %top.in = call i64 @llvm.smax.i64(i64 %top.own, i64 0)"
    yield "  %bottom = call i64 @llvm.smin.i64(i64 %bottom.own, i64 %height)"
    yield "  %some.lines = sub i64 %bottom, %top.in\n  %lines = call i64 @llvm.smax.i64(i64 %some.lines, i64 0)"
    yield f"  %in.row = mul i64 %width, {pitch}\n  %in.image = mul i64 %in.row, %lines"
    yield "  %skip = mul i64 %top.in, %x.row\n  %is.together = icmp ne i64 %together, 0"
    yield "  %run.whole = mul i64 %lines, %width\n  %run = select i1 %is.together, i64 %run.whole, i64 %width"
    yield "  %run.count = select i1 %is.together, i64 1, i64 %lines\n  %is.some = icmp sgt i64 %lines, 0"
    yield _at(form, "%x.top", "%x.own", "%skip")
    yield "  br i1 %is.some, label %turning, label %turned\nturning:"
    line = [
        f"  %o.x = mul i64 %o, %x.row\n  %o.in.rows = mul i64 %o, %run\n  %o.in = mul i64 %o.in.rows, {pitch}",
        *(_at(form, "%x.o", "%x.n", "%o.x"), _at(form, "%in.o", "%in.n", "%o.in")),
        f"  call void @turn(ptr %x.o, i64 %x.step, ptr %in.o, i64 {pitch}, i64 {tiled.channels}, i64 %run)",
    ]
    image = ["  %n.x = mul i64 %n, %x.image\n  %n.in = mul i64 %n, %in.image"]
    image += _at(form, "%x.n", "%x.top", "%n.x"), _at(form, "%in.n", "%in", "%n.in")
    yield from _loop("n", "%images", [*image, *_loop("o", "%run.count", line)])
    yield "  br label %turned\nturned:\n  %in.less = mul i64 %top.in, %in.row\n  %in.skip = sub i64 0, %in.less"
    yield _at(form, "%in.zero", "%in", "%in.skip")
    yield f"  call void @read(ptr %in.zero, i64 %in.image, i64 %in.row, i64 {pitch}, {call}"


def _multiplied(tiled: Tiled) -> Iterator[str]:
    """Yield the lines that multiply transformed inputs with transformed weights."""
    height = tiled.form.height
    yield "  %tile.rows = mul i64 %images, %rows\n  %tiles = mul i64 %tile.rows, %columns"
    yield f"  %more.tiles = add i64 %tiles, {height - 1}\n  %row.panels = sdiv i64 %more.tiles, {height}"
    yield f"  %short = mul i64 %row.panels, {height - 1}\n  %tall.panels = sub i64 %tiles, %short"
    for name, value in {"b.0": "%u.own", "row.count": "%tiles", "tall": "%tall.panels"}.items():
        yield from _tell(name, value)
    yield "  call void @product(ptr %words)"


def _outputs(tiled: Tiled) -> Iterator[str]:
    """Yield the lines that make the outputs of a chunk; where channels come first they are turned."""
    form, m, pitch = tiled.form, tiled.m, tiled.pitch_y
    given = "i64 %images, i64 %row, i64 %rows, i64 %columns, i64 %out.height, i64 %out.width, ptr %bias.own, ptr %m"
    if tiled.y_last:
        yield f"  call void @write(ptr %y.own, i64 %y.image, i64 %y.row, i64 %y.step, {given}, ptr %finite)"
        return
    yield f"  %out.top = mul i64 %row, {m}\n  %out.tall = mul i64 %rows, {m}"
    yield "  %out.left = sub i64 %out.height, %out.top"
    yield "  %out.lines = call i64 @llvm.smin.i64(i64 %out.tall, i64 %out.left)"
    yield f"  %out.run = mul i64 %out.lines, %out.width\n  %out.row = mul i64 %out.width, {pitch}"
    yield "  %out.image = mul i64 %out.row, %out.lines\n  %out.less = mul i64 %out.top, %out.row"
    yield "  %out.skip = sub i64 0, %out.less\n  %y.skip = mul i64 %out.top, %y.row"
    yield _at(form, "%out.zero", "%out", "%out.skip")
    yield f"  call void @write(ptr %out.zero, i64 %out.image, i64 %out.row, i64 {pitch}, {given}, ptr %finite)"
    image = [
        *("  %z.y = mul i64 %z, %y.image\n  %z.out = mul i64 %z, %out.image\n  %z.top = add i64 %z.y, %y.skip",),
        *(_at(form, "%y.z", "%y.own", "%z.top"), _at(form, "%out.z", "%out", "%z.out")),
        f"  call void @turn(ptr %out.z, i64 {pitch}, ptr %y.z, i64 %y.step, i64 %out.run, i64 {tiled.outputs})",
    ]
    yield from _loop("z", "%images", image)


# ---- weights


def _weights(form: Form, m: int) -> Iterator[str]:
    """Yield the transform of weights: registers of outputs, gathered from wherever they lie."""
    lanes, kind, vector = form.lanes, form.kind, _vector(form)
    ints, pointers, mask = f"<{lanes} x i64>", f"<{lanes} x ptr>", f"<{lanes} x i1>"
    suffix = f"{_suffix(form)}.v{lanes}p0"
    counting = ", ".join(f"i64 {lane}" for lane in range(lanes))
    yield f"declare {vector} @llvm.masked.gather.{suffix}({pointers}, i32, {mask}, {vector})"
    yield f"declare {vector} @llvm.fma.{_suffix(form)}({vector}, {vector}, {vector})"
    yield "define void @kernel(ptr %table) {\nentry:"
    yield from loads(*WEIGHTS)
    for t in range(9):
        yield f"  %tap{t}.at = getelementptr i64, ptr %taps, i64 {t}\n  %tap{t} = load i64, ptr %tap{t}.at"
    yield "  %count = sub i64 %last, %first"
    yield from splat("by.output", "i64", ints, lanes)
    yield f"  %apart = mul {ints} %by.output.all, <{counting}>"
    channel = [
        "  %c.at = mul i64 %c, %by.channel\n  %c.to = mul i64 %c, %panel.width",
        *(_at(form, "%w.c", "%w.o", "%c.at"), _at(form, "%u.c", "%u.o", "%c.to")),
    ]
    for t in range(9):
        channel += [
            _at(form, f"%w{t}", "%w.c", f"%tap{t}"),
            f"  %w{t}.all = getelementptr {kind}, ptr %w{t}, {ints} %apart",
            f"  %g{t} = call {vector} @llvm.masked.gather.{suffix}({pointers} %w{t}.all, i32 {form.itemsize}, "
            f"{mask} %inside, {vector} zeroinitializer)",
        ]
    grid = [[f"%g{3 * i + j}" for j in range(3)] for i in range(3)]
    lines, found = _mapped(form, matrices[m].weights, grid, "u")
    channel += lines
    for number, name in enumerate(name for row in found for name in row):
        channel += [
            f"  %u{number}.at = mul i64 %u.next, {number}",
            _at(form, f"%u{number}", "%u.c", f"%u{number}.at"),
            f"  store {vector} {name}, ptr %u{number}, align {form.itemsize}",
        ]
    register = [
        f"  %v = add i64 %first, %f\n  %o = mul i64 %v, {lanes}\n  %o.at = mul i64 %o, %by.output",
        "  %panel = sdiv i64 %v, %registers\n  %within = srem i64 %v, %registers",
        f"  %panel.width = mul i64 %registers, {lanes}\n  %panel.size = mul i64 %panel.width, %channels",
        f"  %panel.at = mul i64 %panel, %panel.size\n  %within.at = mul i64 %within, {lanes}",
        "  %o.to = add i64 %panel.at, %within.at\n  %left = sub i64 %outputs, %o",
        *splat("left", "i64", ints, lanes),
        f"  %inside = icmp slt {ints} <{counting}>, %left.all",
        *(_at(form, "%w.o", "%w", "%o.at"), _at(form, "%u.o", "%u", "%o.to")),
        *_loop("c", "%channels", channel),
    ]
    yield from _loop("f", "%count", register)
    yield "  ret void\n}"

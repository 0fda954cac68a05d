"""Winograd's convolution of 3 x 3 windows: tiles of outputs from overlapping tiles of inputs, by fewer products.

With the matrices B, G and A of `matrices`, a tile of outputs is A' [(G g G') * (B' d B)] A, where g are the weights, d
the inputs and * multiplies element by element (S. Winograd, Arithmetic Complexity of Computations, 1980; A. Lavin and
S. Gray, Fast Algorithms for Convolutional Neural Networks, arXiv:1509.09308). Summed over channels, each element of a
transformed tile is a product of matrices, tiles times channels by channels times outputs, which the contraction kernel
of gemm.py computes. F(2 x 2, 3 x 3) has 4 x 4 elements for 2 x 2 outputs, which directly take 36 products.

Windows with stride 2 are sums of two short convolutions by stride 1 along an axis: of the even inputs with the two
outer weights, three products for two outputs, and of the odd ones with the weight between, two products. So tiles of 2
x 2 outputs have 5 x 5 elements instead of 36. Back, from outputs to inputs, the even and the odd inputs are those two
convolutions: tiles of 4 x 4 from 3 x 3, by 5 x 5 elements again.

The transforms work on registers of neighbouring channels. Where channels come first, squares of registers are
transposed on the way in and out. What a chunk of tiles needs lies in scratch memory that stays in the cache of a core:

    transformed inputs    (elements, tiles, channels)    read in place by the product
    products              (elements, tiles, outputs)

The gradient of weights is the adjoint, G' [sum over tiles of (B' d B) * (A y A')] G, where y are the tiles of the
outputs' gradient: products as well, channels times tiles by tiles times outputs.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, product
from typing import NamedTuple

from .compile import Code, handmade
from .finish import Finish, Steps
from .forms import Form, first_lanes, loads, masked_load, masked_store, multiply_add, vector_of
from .gemm import NUMBERS as PRODUCT_NUMBERS
from .gemm import POINTERS as PRODUCT_POINTERS
from .gemm import WORDS as PRODUCT_WORDS
from .gemm import source
from .turning import transposed

Matrix = Sequence[Sequence[float]]
Grid = list[list[str]]


class Matrices(NamedTuple):
    """The matrices that transform a row of weights, of inputs, and of products."""

    weights: Matrix
    inputs: Matrix
    products: Matrix


class Scheme(NamedTuple):
    """What tiles are made of: outputs of windows by a stride; back: of the inputs of those, made from outputs."""

    outputs: int
    stride: int = 1
    back: bool = False

    @property
    def gives(self) -> int:
        """The positions written by a row of a tile; tiles lie side by side."""
        return self.outputs * self.stride if self.back else self.outputs

    @property
    def takes(self) -> int:
        """The positions read from one tile to the next."""
        return self.outputs if self.back else self.outputs * self.stride

    @property
    def length(self) -> int:
        """The positions read for a row of a tile."""
        return len(matrices[self].inputs[0])

    @property
    def side(self) -> int:
        """The elements of a row of a transformed tile."""
        return len(matrices[self].inputs)


# Interpolation points: 0, 1, -1 and infinity; for four outputs also 2 and -2; for the convolutions by two weights that
# windows with a stride fall into, 0, 1 and infinity.
matrices = {
    Scheme(2): Matrices(
        ((1, 0, 0), (1 / 2, 1 / 2, 1 / 2), (1 / 2, -1 / 2, 1 / 2), (0, 0, 1)),
        ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1)),
        ((1, 1, 1, 0), (0, 1, -1, -1)),
    ),
    Scheme(4): Matrices(
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
    Scheme(2, stride=2): Matrices(
        ((1, 0, 0), (1, 0, 1), (0, 0, 1), (0, 1, 0), (0, 1, 0)),
        ((1, 0, -1, 0, 0), (0, 0, 1, 0, 0), (0, 0, -1, 0, 1), (0, 1, 0, 0, 0), (0, 0, 0, 1, 0)),
        ((1, 1, 0, 1, 0), (0, 1, 1, 0, 1)),
    ),
    Scheme(2, stride=2, back=True): Matrices(
        ((0, 0, 1), (1, 0, 1), (1, 0, 0), (0, 1, 0), (0, 1, 0)),
        ((1, -1, 0), (0, 1, 0), (0, -1, 1), (0, 1, 0), (0, 0, 1)),
        ((1, 1, 0, 0, 0), (0, 0, 0, 1, 0), (0, 1, 1, 0, 0), (0, 0, 0, 0, 1)),
    ),
}

# The words of a kernel; offsets count elements. step: from column to column where channels come last, else from channel
# to channel. together: whether rows follow each other without gaps. u: transformed weights, or sums for their gradient.
# next: from one element of a tile to the next, of u, of transformed inputs (v), and of products (m). low: the positions
# before an array where its tiles begin. at: offsets in scratch memory. flag: becomes 1 where an output is not finite.
# finish: the slots of the steps that follow (see finish.py), of one group after the other.
POINTERS = ("x", "y", "u", "bias", "zeros", "scratch", "chunks", "c.rows", "pieces", "panels", "flag", "finish")
NUMBERS = (
    *("first", "last", "x.image", "x.row", "x.step", "x.together", "y.image", "y.row", "y.step", "y.together"),
    *("height", "width", "out.height", "out.width", "low.y", "low.x", "out.low.y", "out.low.x"),
    *("columns", "u.next", "v.next", "m.next", "m.at", "in.at", "out.at"),
)
WORDS = len(POINTERS) + len(NUMBERS)

# A chunk of tiles: where its first image begins in x and y, and its weights and bias; the number of images, its first
# row of tiles and their number; its group, where it begins in the outputs of that, and its first output of that.
CHUNK = ("x.begin", "y.begin", "u.begin", "bias.begin", "images", "row", "rows", "group", "place", "output")


class Tiled(NamedTuple):
    """What a kernel is made for: what tiles are made of, the numbers of channels and outputs, and layouts.

    form: of the product. gradient: whether it is that of weights.
    """

    form: Form
    scheme: Scheme
    channels: int
    outputs: int
    x_last: bool
    y_last: bool
    gradient: bool = False

    @property
    def elements(self) -> int:
        """The elements of a transformed tile."""
        return self.scheme.side**2

    @property
    def pitch_x(self) -> int:
        """The numbers from tile to tile of transformed inputs: a register more than needed, as lines a power of two
        apart compete for the same places of the cache.
        """
        return (-(-self.channels // self.form.lanes) + 1) * self.form.lanes

    @property
    def panels(self) -> int:
        """The panels of outputs."""
        return -(-self.outputs // self.form.width)

    @property
    def pitch_y(self) -> int:
        """The numbers from tile to tile of products."""
        return self.panels * self.form.width + self.form.lanes


class Given(NamedTuple):
    """An array whose tiles are transformed: its name, the positions of a tile, those from one tile to the next, the
    matrix, and its layout.
    """

    name: str
    length: int
    step: int
    matrix: Matrix
    channels: int
    pitch: int
    last: bool


def _inputs(tiled: Tiled) -> Given:
    scheme = tiled.scheme
    lies = tiled.channels, tiled.pitch_x, tiled.x_last
    return Given("x", scheme.length, scheme.takes, matrices[scheme].inputs, *lies)


def _results(tiled: Tiled) -> Given:
    """Return the gradient of outputs as an array that is transformed, by the transposed matrix of products."""
    gives, spread = tiled.scheme.gives, tuple(zip(*matrices[tiled.scheme].products, strict=True))
    return Given("y", gives, gives, spread, tiled.outputs, tiled.pitch_y, tiled.y_last)


@lru_cache(256)
def winograd_kernel(tiled: Tiled, finish: Finish | None = None) -> Code:
    """Return the code that convolves chunks of tiles with transformed weights, or adds up the gradient of these.

    finish: steps that follow on outputs, in registers. Raises LacksError where generated code lacks one of these.
    """
    lies = (1, tiled.pitch_x, tiled.pitch_y) if tiled.gradient else (tiled.pitch_x, 1, tiled.form.width)
    parts = [source(tiled.form._replace(lies=lies), name="product"), *_turn(tiled.form), *_taken(tiled, _inputs(tiled))]
    steps = None if finish is None else Steps(finish, tiled.form.lanes)
    parts += _taken(tiled, _results(tiled)) if tiled.gradient else _write(tiled, steps)
    parts += _kernel(tiled, 0 if finish is None else finish.slots)
    if steps is not None:
        there = {line for part in parts for line in part.splitlines()}
        parts += sorted(steps.writer.declarations - there)
        parts += steps.writer.globals.values()
    return handmade("\n".join(parts))


# ---- loops and linear maps


def _loop(name: str, count: str | int, body: Iterable[str], step: int = 1) -> Iterator[str]:
    """Yield the lines of a loop with the counter %name, whose body runs at least once."""
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
    """Return the lines that multiply vectors by a row of a matrix and add them up, and the name of the sum."""
    vector, lines = vector_of(form), list[str]()
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
            lines += multiply_add(form, name, x, _constant(form, c), total)
        total = name
    return lines, total


def _mapped(form: Form, matrix: Matrix, grid: Grid, tag: str) -> tuple[list[str], Grid]:
    """Return the lines that compute matrix * grid * matrix' for a grid of vectors, and the names of the results."""
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


# ---- transposing

# How many rows and columns of `from` there are, by their counters.
_COUNTS = {"i": "%rows", "j": "%columns"}


def _turn(form: Form, *, outward: bool = False, steps: Steps | None = None) -> Iterator[str]:
    """Yield the function @turn that writes rows of `from` as columns of `to`, a square of registers at a time.

    Squares follow each other along the rows of the array that is not scratch memory, so that its lines are used one
    after the other: of `from`, or, in a function @turn.out, of `to`. steps: that follow, where the columns are outputs;
    `to` then begins at `place` in the arrays of these steps, and its first row is the output `output`.
    """
    outer, inner = "ji" if outward else "ij"
    lanes, mask = form.lanes, f"<{form.lanes} x i1>"
    begun = [] if steps is None else [*steps.begun(), "  %last.column = sub i64 %columns, 1"]
    names, shuffles = transposed(form, [f"%x{t}" for t in range(lanes)])
    body = list[str]()
    for t in range(lanes):
        body += [
            f"  %i{t} = add i64 %i, {t}\n  %is{t} = icmp slt i64 %i{t}, %rows\n  %at{t} = mul i64 %i{t}, %from.step",
            f"  %some{t} = select i1 %is{t}, {mask} %wide, {mask} zeroinitializer",
            f"  %all{t} = add i64 %at{t}, %j",
            _at(form, f"%from{t}", "%from", f"%all{t}"),
            _at(form, f"%next{t}", f"%from{t}", "%next.rows"),
            f"  call void @llvm.prefetch.p0(ptr %next{t}, i32 0, i32 3, i32 1)",
            masked_load(form, f"%x{t}", f"%from{t}", f"%some{t}"),
        ]
    body += [*shuffles, "  %first = add i64 %j.to, %i", _at(form, "%out", "%to", "%first")]
    for t, name in enumerate(names):
        body += [
            f"  %j{t} = add i64 %j, {t}\n  %js{t} = icmp slt i64 %j{t}, %columns\n  %off{t} = mul i64 %to.step, {t}",
            f"  %tall{t} = select i1 %js{t}, {mask} %tall, {mask} zeroinitializer",
        ]
        if steps is None:
            body += [_at(form, f"%to{t}", "%out", f"%off{t}"), masked_store(form, name, f"%to{t}", f"%tall{t}")]
            continue
        body += [f"  %there{t} = call i64 @llvm.smin.i64(i64 %j{t}, i64 %last.column)"]
        body += [f"  %output{t} = add i64 %output, %there{t}\n  %of{t} = add i64 %first, %off{t}"]
        body += [f"  %place{t} = add i64 %place, %of{t}"]
        body += [f"  %ahead{t} = add i64 %place{t}, {lanes}"]
        steps.fetch([f"%ahead{t}"], f".{t}")
        steps.writer.block = f"{inner}.loop"
        steps.row(f"%output{t}", f".{t}")
        steps.write(name, f"%place{t}", "", f".{t}", f"%tall{t}")
        body += steps.taken()
    yield f"define internal void @turn{'.out' * outward}(ptr %from, i64 %from.step, ptr %to, i64 %to.step, i64 %rows, "
    yield f"i64 %columns{'' if steps is None else _ENDING}) {{\nentry:\n  %next.rows = mul i64 %from.step, {lanes}"
    yield from begun
    begin = {"i": first_lanes(form, "tall", "%left.i"), "j": first_lanes(form, "wide", "%left.j")}
    begin["i"].insert(0, "  %left.i = sub i64 %rows, %i")
    begin["j"].insert(0, "  %left.j = sub i64 %columns, %j\n  %j.to = mul i64 %j, %to.step")
    squares = [*begin[outer], *_loop(inner, _COUNTS[inner], [*begin[inner], *body], lanes)]
    yield from _loop(outer, _COUNTS[outer], squares, lanes)
    yield "  ret void\n}"


# ---- the transforms of a chunk

# How many tiles ahead inputs of the steps that follow are prefetched.
TILES_AHEAD = 2

# Parameters of functions: for the steps that follow on outputs, of a chunk, and of its array.
_ENDING = ", ptr %slots, i64 %place, i64 %output"
_CHUNK = "i64 %images, i64 %row, i64 %rows, i64 %columns"
_ARRAY = "i64 %image, i64 %by.row, i64 %step"


def _tile_loops(step: int, per_row: Iterable[str], per_tile: Iterable[str]) -> Iterator[str]:
    """Yield the loops over images, rows and columns of tiles of a chunk; %t is the number of the tile, step the
    positions from one to the next.
    """
    tile = [
        "  %n.rows = mul i64 %n, %rows\n  %t.row = add i64 %n.rows, %r\n  %t.first = mul i64 %t.row, %columns",
        f"  %t = add i64 %t.first, %c\n  %x0 = mul i64 %c, {step}",
        *per_tile,
    ]
    row = [f"  %row.r = add i64 %row, %r\n  %y0 = mul i64 %row.r, {step}", *per_row, *_loop("c", "%columns", tile)]
    yield from _loop("n", "%images", ["  %n.at = mul i64 %n, %image", *_loop("r", "%rows", row)])


def _inside(axis: str, number: int, low: str, length: str, step: str) -> Iterator[str]:
    """Yield the lines that find, for so many positions of an axis, whether they are inside, and their offsets."""
    for i in range(number):
        yield f"  %{axis}{i}.plus = add i64 %{axis}0, {i}\n  %{axis}{i}.own = sub i64 %{axis}{i}.plus, {low}"
        yield f"  %{axis}{i}.is = icmp ult i64 %{axis}{i}.own, {length}"
        yield f"  %{axis}{i}.at = mul i64 %{axis}{i}.own, {step}"


def _places(form: Form, length: int, base: str, low: tuple[str, str]) -> tuple[list[str], list[str]]:
    """Return the lines for each row of tiles, and for each tile, that make %is and %place of each element.

    low: the positions left out before the array.
    """
    row = [*_inside("y", length, low[0], "%height", "%by.row")]
    row += [f"  %y{i}.image = add i64 %y{i}.at, %n.at" for i in range(length)]
    tile = [*_inside("x", length, low[1], "%width", "%step")]
    for i, j in _cells(length):
        tile += [
            f"  %is{i}.{j} = and i1 %y{i}.is, %x{j}.is\n  %off{i}.{j} = add i64 %y{i}.image, %x{j}.at",
            _at(form, f"%place{i}.{j}", base, f"%off{i}.{j}"),
        ]
    return row, tile


def _cells(length: int) -> Iterator[tuple[int, int]]:
    return product(range(length), range(length))


def _grid(name: str, length: int) -> Grid:
    return [[f"%{name}{i}.{j}" for j in range(length)] for i in range(length)]


def _lines(step: int, length: int, low: str) -> Iterator[str]:
    """Yield the lines that find which rows of an array the tiles of a chunk take: %lines of them from %first on."""
    yield f"  %top = mul i64 %row, {step}\n  %top.own = sub i64 %top, {low}\n  %tall = mul i64 %rows, {step}"
    yield f"  %reach = add i64 %tall, {length - step}\n  %bottom.own = add i64 %top.own, %reach"
    yield "  %first = call i64 @llvm.smax.i64(i64 %top.own, i64 0)"
    yield "  %bottom = call i64 @llvm.smin.i64(i64 %bottom.own, i64 %height)"
    yield "  %some = sub i64 %bottom, %first\n  %lines = call i64 @llvm.smax.i64(i64 %some, i64 0)"


def _taken(tiled: Tiled, given: Given) -> Iterator[str]:
    """Yield the function that transforms the tiles of a chunk, transposed first where channels come first."""
    yield from _transform(tiled, given)
    form, name = tiled.form, given.name
    area = "i64 %height, i64 %width, i64 %low.y, i64 %low.x, ptr %zeros"
    yield f"define internal void @take.{name}(ptr %x, {_ARRAY}, i64 %together, {_CHUNK}, {area}, ptr %in, ptr %v, "
    yield "i64 %v.next) {\nentry:"
    rest = f"{_CHUNK}, {area}, ptr %v, i64 %v.next)"
    if given.last:
        yield f"  call void @transform.{name}(ptr %x, {_ARRAY}, {rest}\n  ret void\n}}"
        return
    yield from _lines(given.step, given.length, "%low.y")
    yield f"  %in.row = mul i64 %width, {given.pitch}\n  %in.image = mul i64 %in.row, %lines"
    yield "  %skip = mul i64 %first, %by.row\n  %is.together = icmp ne i64 %together, 0"
    yield "  %whole = mul i64 %lines, %width\n  %run = select i1 %is.together, i64 %whole, i64 %width"
    yield "  %runs = select i1 %is.together, i64 1, i64 %lines\n  %is.some = icmp sgt i64 %lines, 0"
    yield _at(form, "%x.top", "%x", "%skip")
    yield "  br i1 %is.some, label %turning, label %turned\nturning:"
    line = [
        f"  %o.x = mul i64 %o, %by.row\n  %o.rows = mul i64 %o, %run\n  %o.in = mul i64 %o.rows, {given.pitch}",
        *(_at(form, "%x.o", "%x.n", "%o.x"), _at(form, "%in.o", "%in.n", "%o.in")),
        f"  call void @turn(ptr %x.o, i64 %step, ptr %in.o, i64 {given.pitch}, i64 {given.channels}, i64 %run)",
    ]
    image = ["  %n.x = mul i64 %n, %image\n  %n.in = mul i64 %n, %in.image"]
    image += _at(form, "%x.n", "%x.top", "%n.x"), _at(form, "%in.n", "%in", "%n.in")
    yield from _loop("n", "%images", [*image, *_loop("o", "%runs", line)])
    yield "  br label %turned\nturned:\n  %less = mul i64 %first, %in.row\n  %in.skip = sub i64 0, %less"
    yield _at(form, "%in.zero", "%in", "%in.skip")
    yield f"  call void @transform.{name}(ptr %in.zero, i64 %in.image, i64 %in.row, i64 {given.pitch}, {rest}"
    yield "  ret void\n}"


def _transform(tiled: Tiled, given: Given) -> Iterator[str]:
    """Yield the function that transforms the tiles of a chunk of an array whose channels come last."""
    form, name, length = tiled.form, given.name, given.length
    row, tile = _places(form, length, "%x", ("%low.y", "%low.x"))
    for i, j in _cells(length):
        tile += [f"  %from{i}.{j} = select i1 %is{i}.{j}, ptr %place{i}.{j}, ptr %zeros"]
    tile += [f"  %t.at = mul i64 %t, {given.pitch}", _at(form, "%v.t", "%v", "%t.at")]
    body = [
        f"  %left = sub i64 {given.channels}, %k",
        *first_lanes(form, "mask", "%left"),
        _at(form, "%v0", "%v.t", "%k"),
    ]
    for i, j in _cells(length):
        body += [_at(form, f"%from{i}.{j}.k", f"%from{i}.{j}", "%k")]
        body += [masked_load(form, f"%d{i}.{j}", f"%from{i}.{j}.k", "%mask")]
    lines, found = _mapped(form, given.matrix, _grid("d", length), "b")
    body += lines
    for number, value in enumerate(chain.from_iterable(found)):
        body += [
            f"  store {vector_of(form)} {value}, ptr %v{number}, align {form.itemsize}",
            _at(form, f"%v{number + 1}", f"%v{number}", "%v.next"),
        ]
    tile += _loop("k", given.channels, body, form.lanes)
    yield f"define internal void @transform.{name}(ptr %x, {_ARRAY}, {_CHUNK}, i64 %height, i64 %width, i64 %low.y, "
    yield "i64 %low.x, ptr %zeros, ptr %v, i64 %v.next) {\nentry:"
    yield from _tile_loops(given.step, row, tile)
    yield "  ret void\n}"


def _write(tiled: Tiled, steps: Steps | None) -> Iterator[str]:
    """Yield the function that makes outputs from the products of a chunk, transposed where channels come first, or the
    results of the steps that follow.
    """
    yield from _untransform(tiled, steps if tiled.y_last else None)
    form, pitch, more = tiled.form, tiled.pitch_y, "" if steps is None else _ENDING
    if not tiled.y_last:
        yield from _turn(form, outward=True, steps=steps)
    area = "i64 %height, i64 %width, i64 %low.y, i64 %low.x, ptr %bias"
    rest = f"{_CHUNK}, {area}, ptr %m, i64 %m.next, ptr %finite{more if tiled.y_last else ''})"
    yield f"define internal void @write(ptr %y, {_ARRAY}, {_CHUNK}, {area}, ptr %out, ptr %m, i64 %m.next, "
    yield f"ptr %finite{more}) {{\nentry:"
    if tiled.y_last:
        yield f"  call void @untransform(ptr %y, {_ARRAY}, {rest}\n  ret void\n}}"
        return
    yield from _lines(tiled.scheme.gives, tiled.scheme.gives, "%low.y")
    yield f"  %run = mul i64 %lines, %width\n  %out.row = mul i64 %width, {pitch}"
    yield "  %out.image = mul i64 %out.row, %lines\n  %less = mul i64 %first, %out.row"
    yield "  %out.skip = sub i64 0, %less\n  %y.skip = mul i64 %first, %by.row"
    yield _at(form, "%out.zero", "%out", "%out.skip")
    yield f"  call void @untransform(ptr %out.zero, i64 %out.image, i64 %out.row, i64 {pitch}, {rest}"
    image = [
        "  %n.y = mul i64 %n, %image\n  %n.out = mul i64 %n, %out.image\n  %n.top = add i64 %n.y, %y.skip",
        *(_at(form, "%y.n", "%y", "%n.top"), _at(form, "%out.n", "%out", "%n.out")),
    ]
    told = ""
    if steps is not None:
        image += ["  %n.place = add i64 %place, %n.top"]
        told = ", ptr %slots, i64 %n.place, i64 %output"
    image += [
        f"  call void @turn.out(ptr %out.n, i64 {pitch}, ptr %y.n, i64 %step, i64 %run, i64 {tiled.outputs}{told})"
    ]
    yield from _loop("n", "%images", image)
    yield "  ret void\n}"


def _untransform(tiled: Tiled, steps: Steps | None) -> Iterator[str]:
    """Yield the function that makes outputs whose channels come last, or the results of the steps that follow, and
    checks whether the outputs are finite.
    """
    form, gives, side = tiled.form, tiled.scheme.gives, tiled.scheme.side
    vector, mask = vector_of(form), f"<{form.lanes} x i1>"
    begun = [] if steps is None else steps.begun()
    begun += [] if steps is None else [f"  %ahead = mul i64 %step, {gives * TILES_AHEAD}"]
    row, tile = _places(form, gives, "%y", ("%low.y", "%low.x"))
    tile += [f"  %t.at = mul i64 %t, {tiled.pitch_y}", _at(form, "%m.t", "%m", "%t.at")]
    body = [
        f"  %left = sub i64 {tiled.outputs}, %k",
        *first_lanes(form, "mask", "%left"),
        _at(form, "%m0", "%m.t", "%k"),
    ]
    for number, (i, j) in enumerate(_cells(side)):
        body += [
            f"  %d{i}.{j} = load {vector}, ptr %m{number}, align {form.itemsize}",
            _at(form, f"%m{number + 1}", f"%m{number}", "%m.next"),
        ]
    lines, found = _mapped(form, matrices[tiled.scheme].products, _grid("d", side), "a")
    body += [*lines, _at(form, "%bias.k", "%bias", "%k"), masked_load(form, "%b", "%bias.k", "%mask")]
    body += _seen(form, chain.from_iterable(found))
    if steps is not None:
        body += ["  %output.k = add i64 %output, %k\n  %place.k = add i64 %place, %k"]
        steps.writer.block = "k.loop"
        steps.column("%output.k", "%mask")
    for i, j in _cells(gives):
        body += [
            f"  %sum{i}.{j} = fadd {vector} {found[i][j]}, %b",
            f"  %mask{i}.{j} = select i1 %is{i}.{j}, {mask} %mask, {mask} zeroinitializer",
        ]
        if steps is None:
            body += [_at(form, f"%to{i}.{j}", f"%place{i}.{j}", "%k")]
            body += [masked_store(form, f"%sum{i}.{j}", f"%to{i}.{j}", f"%mask{i}.{j}")]
        else:
            body += [f"  %own{i}.{j} = add i64 %place.k, %off{i}.{j}"]
            body += [f"  %ahead{i}.{j} = add i64 %own{i}.{j}, %ahead"]
            steps.fetch([f"%ahead{i}.{j}"], f".{i}.{j}")
            steps.write(f"%sum{i}.{j}", f"%own{i}.{j}", "%output.k", f".{i}.{j}", f"%mask{i}.{j}")
            body += steps.taken()
    tile += _loop("k", tiled.outputs, body, form.lanes)
    yield f"define internal void @untransform(ptr %y, {_ARRAY}, {_CHUNK}, i64 %height, i64 %width, i64 %low.y, "
    yield f"i64 %low.x, ptr %bias, ptr %m, i64 %m.next, ptr %finite{'' if steps is None else _ENDING}) {{\nentry:"
    yield from begun
    yield from _tile_loops(gives, row, tile)
    yield "  ret void\n}"


# ---- the kernel


def _kernel(tiled: Tiled, slots: int) -> Iterator[str]:
    """Yield the function that goes over chunks: transforms, products, and outputs if these are wanted.

    slots: of the steps that follow for a group, 0 where none follow.
    """
    form, vector = tiled.form, vector_of(tiled.form)
    yield "declare i64 @llvm.smax.i64(i64, i64)\ndefine void @kernel(ptr %table) {\nentry:"
    yield from loads(POINTERS, NUMBERS)
    yield f"  %finite = alloca {vector}, align 64\n  store {vector} zeroinitializer, ptr %finite"
    yield f"  %words = alloca [{PRODUCT_WORDS} x i64], align 8\n  %count = sub i64 %last, %first"
    yield from (_at(form, f"%{name}", "%scratch", f"%{name}.at") for name in ("m", "in", "out"))
    yield from _tell(_always(tiled))
    body = ["  %q.own = add i64 %first, %q", f"  %q.at = mul i64 %q.own, {len(CHUNK)}"]
    body += ["  %chunk = getelementptr i64, ptr %chunks, i64 %q.at"]
    for place, name in enumerate(CHUNK):
        body += [f"  %{name}.p = getelementptr i64, ptr %chunk, i64 {place}\n  %{name} = load i64, ptr %{name}.p"]
    body += [_at(form, f"%{name}.own", f"%{name}", f"%{name}.begin") for name in ("x", "y", "u", "bias")]
    body += [f"  call void @take.x({_of('x')}, i64 %x.together, {_CHUNK}, i64 %height, i64 %width, i64 %low.y, "]
    body += ["i64 %low.x, ptr %zeros, ptr %in, ptr %scratch, i64 %v.next)"]
    body += ["  %tile.rows = mul i64 %images, %rows\n  %tiles = mul i64 %tile.rows, %columns"]
    if slots:
        body += [f"  %slots.at = mul i64 %group, {slots}\n  %slots = getelementptr i64, ptr %finish, i64 %slots.at"]
    body += [*(_added_up(tiled) if tiled.gradient else _multiplied(tiled, _ENDING if slots else ""))]
    yield from _loop("q", "%count", body)
    yield from _said(form)


def _said(form: Form) -> Iterator[str]:
    """Yield the end of a kernel, which raises the flag if %finite contains NaN."""
    vector = vector_of(form)
    yield f"  %seen = load {vector}, ptr %finite\n  %odd = fcmp uno {vector} %seen, %seen"
    yield f"  %odd.bits = bitcast <{form.lanes} x i1> %odd to i{form.lanes}"
    yield f"  %is.odd = icmp ne i{form.lanes} %odd.bits, 0\n  br i1 %is.odd, label %say, label %end"
    yield "say:\n  store i64 1, ptr %flag\n  br label %end\nend:\n  ret void\n}"


def _seen(form: Form, values: Iterable[str]) -> list[str]:
    """Return the lines that make %finite NaN where a value is not finite."""
    lines, seen = [f"  %seen.0 = load {vector_of(form)}, ptr %finite"], "%seen.0"
    for number, value in enumerate(values, 1):
        lines += multiply_add(form, f"%seen.{number}", value, "zeroinitializer", seen)
        seen = f"%seen.{number}"
    return [*lines, f"  store {vector_of(form)} {seen}, ptr %finite"]


def _of(name: str) -> str:
    return f"ptr %{name}.own, i64 %{name}.image, i64 %{name}.row, i64 %{name}.step"


def _always(tiled: Tiled) -> dict[str, str | int]:
    """Return the words of products that are the same for all chunks."""
    unused = dict.fromkeys(("a.rows", "a.ks", "a.runs", "b.ks"), "%c.rows")
    biases = {"bias.rows": "%zeros", "bias.columns": "%zeros"}
    places = {"a.0": "%scratch", "c.rows": "%c.rows", "pieces": "%pieces", "panels": "%panels", "scratch": "%scratch"}
    numbers = {"panel.count": tiled.panels, "together": tiled.panels, "packed": 1, "matrices": tiled.elements}
    numbers["row.first"] = 0
    return {**unused, **biases, **places, **numbers, "a.next": "%v.next"}


def _tell(words: dict[str, str | int]) -> Iterator[str]:
    """Yield the lines that write words of the product's table."""
    for name, value in words.items():
        place = (*PRODUCT_POINTERS, *PRODUCT_NUMBERS).index(name)
        kind = "ptr" if name in PRODUCT_POINTERS else "i64"
        yield f"  %tell.{name} = getelementptr i64, ptr %words, i64 {place}\n  store {kind} {value}, ptr %tell.{name}"


def _multiplied(tiled: Tiled, more: str) -> Iterator[str]:
    """Yield the lines that multiply transformed inputs with transformed weights, and write outputs; more: further
    arguments for that.

    Panels of rows may reach behind the last tile: what lies there is multiplied in vain.
    """
    height, width = tiled.form.height, tiled.form.width
    yield f"  %more.tiles = add i64 %tiles, {height - 1}\n  %row.panels = sdiv i64 %more.tiles, {height}"
    yield f"  %short = mul i64 %row.panels, {height - 1}\n  %tall = sub i64 %tiles, %short"
    yield from _tell({"b.0": "%u.own", "row.count": "%tiles", "tall": "%tall", "depth": tiled.channels})
    yield from _tell({"most": tiled.channels, "b.step": width * tiled.channels, "fresh": 1, "c.0": "%m"})
    yield from _tell({"b.next": "%u.next", "c.next": "%m.next"})
    yield "  call void @product(ptr %words)"
    yield f"  call void @write({_of('y')}, {_CHUNK}, i64 %out.height, i64 %out.width, i64 %out.low.y, "
    yield f"i64 %out.low.x, ptr %bias.own, ptr %out, ptr %m, i64 %m.next, ptr %finite{more})"


def _added_up(tiled: Tiled) -> Iterator[str]:
    """Yield the lines that add up products of transformed inputs and transformed gradients of outputs."""
    height, width, rows = tiled.form.height, tiled.form.width, tiled.channels
    yield f"  call void @take.y({_of('y')}, i64 %y.together, {_CHUNK}, i64 %out.height, i64 %out.width, "
    yield "i64 %out.low.y, i64 %out.low.x, ptr %zeros, ptr %out, ptr %m, i64 %m.next)"
    yield "  %is.first = icmp eq i64 %q, 0\n  %fresh = zext i1 %is.first to i64"
    yield from _tell({"b.0": "%m", "row.count": rows, "tall": rows - -(-rows // height) * (height - 1)})
    yield from _tell({"depth": "%tiles", "most": "%tiles", "b.step": width, "fresh": "%fresh", "c.0": "%u.own"})
    yield from _tell({"b.next": "%m.next", "c.next": "%u.next"})
    yield "  call void @product(ptr %words)"

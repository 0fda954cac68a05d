"""Convolutions by strips: rows of the input are copied aside, with zeros around them, and multiplied from there; or
they are read where they lie, if no zeros are to be put around them.

In the room of a strip all windows lie alike, and nothing is packed. Where channels come last, every element of some
windows is multiplied with registers of outputs; where they come first, registers of positions are with a weight of some
outputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import lcm
from typing import NamedTuple

from ...plan.costs import AHEAD, ROWS_AHEAD
from .compile import Code, handmade
from .finish import Finish, Steps
from .gemm import Form, _masked_load, _masked_store, _suffix, declared, first_lanes, splat
from .sweeping import OUTSIDE, Sweeping, renamed
from .turning import transposed

# What a kernel is told. Offsets and steps count elements.
#
#   w         weights: panels (elements of a window, outputs of a block); of the gradient the sums, which are added to
#             where channels come last, `pitch` apart, else written, one after the other
#   room      for the rows under a strip, of each channel and each phase of its columns modulo the stride, `length`
#             apart, which is a number of registers; channels that come last are part of the rows
#   sums      room for the gradient. Where channels come first: registers of each element and each output. Where they
#             come last: registers of the outputs of a strip, side by side
#   x.rows    of the rows under each strip, `span` of them: where one lies, or OUTSIDE
#   y.rows    of each row of outputs: where it lies
#   begins    of each strip, and behind the last: its first row of outputs
#   ks        of each element of a window: where it lies in the room, or in place in the input
#   finish    the slots of what becomes of sums (see finish.py), `slot.count` for each group; y.begin: elements from
#             where the arrays of those begin to y; o.begin: the number of the first output among those of a group
#   product   and `columns`, of each strip: what strip_products.py is told besides
#   first     and `end`: columns of outputs, of which so many are made at a time: wide
#   size      elements of a row of the input; start: which one stands first in the room, for the first column of all;
#             along: how many further that is for the next column
#   room.step from the rows under a row of outputs to those under the next one; in place it counts rows
#   x.pixel   between neighbours of a row of the input that is gathered, of which there are so many in the room: pixels
POINTERS = ("x", "w", "y", "bias", "room", "sums", "x.rows", "y.rows", "begins", "ks", "finish", "product", "columns")
NUMBERS = (
    *("outputs", "pitch", "strip.count", "first", "end", "wide", "depth", "size", "start", "along", "length", "pixels"),
    *("y.step", "span", "room.step", "images", "x.image", "y.image", "channels", "x.channel", "x.pixel"),
    *("groups", "x.group", "y.group", "w.group", "slot.count", "y.begin", "o.begin"),
)

# Words of each strip in `columns`: its pieces and panels (see gemm.py), and how many of the latter there are.
STRIP_WORDS = 3


def scatter_of(form: Form) -> str:
    """Return the name of the intrinsic that stores a register to places that lie in any way."""
    return f"llvm.masked.scatter.{_suffix(form)}.v{form.lanes}p0"


class Strip(NamedTuple):
    """What code is made for: blocks of so many windows, `apart` elements from each to the next, and registers of
    outputs. The gradient has as many elements of a window at a time instead, which follow each other. gathered: the
    channels of a group where they are not all there are, else 0. turned: whether x and y have channels first; then
    they are turned on their way.

    In kernels for channels that come first, which turn nothing, blocks are of so many outputs, and registers of
    windows; the gradient has so many `terms`, elements of a window, at a time. phases: of columns, 1 or 2.

    scattered: elements from one column of y to the next where channels come first, 1 or 2. tail: registers of windows
    that the last block of a row has where these are fewer, else 0. in_place: whether windows are read where they lie,
    which takes rows of a block at least with nothing around them.
    """

    char: str
    lanes: int
    block: int
    registers: int
    apart: int
    phases: int = 1
    terms: int = 1
    gathered: int = 0
    turned: tuple[bool, bool] = (False, False)
    scattered: int = 1
    tail: int = 0
    in_place: bool = False


@lru_cache(256)
def outputs_kernel(own: Strip, finish: Finish | None = None) -> Code:
    """Return the code of a convolution where channels come last. finish: what becomes of sums in the end.

    Raises LacksError where generated code lacks a step of that.
    """
    return handmade("\n".join(_Outputs(own, finish).text()))


@lru_cache(256)
def outputs_first_kernel(own: Strip, finish: Finish | None = None) -> Code:
    """Return the code of a convolution where channels come first. Biases are whole blocks of outputs."""
    return handmade("\n".join(_OutputsFirst(own, finish).text()))


class _Text(Sweeping):
    """What kernels have in common: groups, strips of rows of outputs, and the rows of the input under them."""

    def __init__(self, own: Strip) -> None:
        super().__init__(own.char, own.lanes)
        self.own = own
        self.cells = [(b, v) for b in range(own.block) for v in range(own.registers)]

    def text(self) -> Iterator[str]:
        return self.kernel(POINTERS, NUMBERS, self._groups())

    def _groups(self) -> Iterator[str]:
        count = "1" if self.own.turned[0] else "%channels"  # turned channels are part of the rows
        yield f"  %channel.step = mul i64 %length, {self.own.phases}\n  %row.step = mul i64 %channel.step, {count}"
        yield from self.loop("group", "g", "%groups", self._group())

    def _group(self) -> Iterator[str]:
        for name, step in (("x", "%x.group"), ("y", "%y.group"), ("w", "%w.group"), ("bias", "%pitch")):
            yield from self.far(f"{name}.g", f"%{name}", "%g", step)
        strips = self.loop("strip", "s", "%strip.count", self._strip())
        yield from self.images("%x.g", "%y.g", strips)

    def _strip(self) -> Iterator[str]:
        yield "  %s.rows = mul i64 %s, %span"
        yield from self.words("%s", "begins")
        yield "  %last.at = getelementptr i64, ptr %begins.at, i64 1\n  %last = load i64, ptr %last.at"
        yield "  %row.count = sub i64 %last, %begins.this"
        yield from self.loop("piece", "col", "%end", self._piece(), start="%first", step="%wide")

    def _piece(self) -> Iterator[str]:
        """Yield what is done for some columns of a strip."""
        yield "  %col.left = sub i64 %end, %col\n  %positions = call i64 @llvm.smin.i64(i64 %col.left, i64 %wide)"
        yield "  %start.far = mul i64 %col, %along\n  %start.col = add i64 %start, %start.far"
        if self.own.turned[0]:
            yield from self.loop("copy", "e", "%span", self._copied_row("%x.n", "%room"))
        elif not self.own.in_place:
            yield from self.loop("channel", "c", "%channels", self._copied_channel())
        yield from self._computed()

    def _computed(self) -> Iterator[str]:
        """Yield what is computed of a strip, whose rows of the input lie in the room."""
        raise NotImplementedError

    def _at_row(self) -> Iterator[str]:
        """Yield where a row of outputs is: %y.r and %room.r."""
        yield "  %row.number = add i64 %begins.this, %r"
        yield from self.words("%row.number", "y.rows")
        yield f"  %y.col = mul i64 %col, {self.y_step}\n  %y.r.at = add i64 %y.rows.this, %y.col"
        yield f"  %y.r = getelementptr {self.kind}, ptr %y.n, i64 %y.r.at"
        if self.own.in_place:
            yield "  %row.under = mul i64 %r, %room.step\n  %e.row = add i64 %s.rows, %row.under"
            yield from self.words("%e.row", "x.rows")
            yield f"  %x.r = getelementptr {self.kind}, ptr %x.n, i64 %x.rows.this"
            yield f"  %room.r = getelementptr {self.kind}, ptr %x.r, i64 %start.col"
        else:
            yield from self.far("room.r", "%room", "%r", "%room.step")

    def _begun(self) -> Iterator[str]:
        """Yield where a block begins: the last one in place does so earlier, as it may read no windows that there are
        not. What it makes once more is the same.
        """
        if self.own.in_place:
            yield f"  %last.p = sub i64 %positions, {self.windows}"
            yield "  %p = call i64 @llvm.smin.i64(i64 %next.p, i64 %last.p)"

    @property
    def counter(self) -> str:
        """What counts the windows of blocks."""
        return "next.p" if self.own.in_place else "p"

    @property
    def windows(self) -> int:
        """The windows of a block."""
        return self.own.block

    @property
    def y_step(self) -> str:
        """The elements from one column of outputs to the next."""
        return "%y.step"

    @property
    def panel(self) -> int:
        """The outputs whose weights lie side by side."""
        raise NotImplementedError

    # -- copying, in the order that memory has; what lies outside becomes zeros

    def _copied_channel(self) -> Iterator[str]:
        yield from self.far("x.c", "%x.n", "%c", "%x.channel")
        yield from self.far("to.c", "%room", "%c", "%channel.step")
        yield from self.loop("copy", "e", "%span", self._copied_row("%x.c", "%to.c"))

    def _copied_row(self, x: str, to: str) -> Iterator[str]:
        yield "  %e.row = add i64 %s.rows, %e"
        yield from self.words("%e.row", "x.rows")
        yield f"  %outside = icmp eq i64 %x.rows.this, {OUTSIDE}\n  %there = select i1 %outside, i64 0, i64 %size"
        yield "  %x.some = select i1 %outside, i64 0, i64 %x.rows.this"  # no address at all would be a fault
        yield f"  %x.r = getelementptr {self.kind}, ptr {x}, i64 %x.some\n  %there.n = trunc i64 %there to i32"
        yield from self.far("to", to, "%e", "%row.step")
        yield from splat("there", "i32", f"<{self.lanes} x i32>", self.lanes, "there.n")
        if self.own.gathered:
            yield from self.loop("pixel", "t", "%pixels", self._gathered())
        elif self.own.turned[0]:
            pixels = self.loop("copy.some", "t", "%pixels", self._turned(), step=self.lanes)
            yield from self.loop("channel", "c", "%channels", pixels, step=self.lanes)
        else:
            yield from self.loop("copy.some", "t", "%length", self._copied_registers(), step=self.lanes)

    def _copied_registers(self) -> Iterator[str]:
        """Yield the copy of registers of a row, columns of each phase together."""
        phases, ints = self.own.phases, f"<{self.lanes} x i32>"
        yield f"  %t.far = mul i64 %t, {phases}\n  %from = add i64 %start.col, %t.far"
        yield "  %from.n = trunc i64 %from to i32"
        yield from splat("from", "i32", ints, self.lanes, "from.n")
        yield f"  %x.ahead = getelementptr i8, ptr %x.r, i64 {AHEAD}"
        for part in range(phases):
            counting = ", ".join(f"i32 {part * self.lanes + lane}" for lane in range(self.lanes))
            yield f"  %from{part} = add i64 %from, {part * self.lanes}"
            yield f"  %x.ahead{part} = getelementptr {self.kind}, ptr %x.ahead, i64 %from{part}"
            yield self.prefetch(f"%x.ahead{part}")
            yield f"  %at{part} = add {ints} %from.all, <{counting}>"
            yield f"  %in{part} = icmp ult {ints} %at{part}, %there.all"
            yield f"  %x.t{part} = getelementptr {self.kind}, ptr %x.r, i64 %from{part}"
            yield _masked_load(self.form, f"%in.x{part}", f"%x.t{part}", f"%in{part}")
        for phase in range(phases):
            value = "%in.x0"
            if phases == 2:
                value, order = f"%phase{phase}", ", ".join(f"i32 {phase + 2 * lane}" for lane in range(self.lanes))
                pair = f"{self.vector} %in.x0, {self.vector} %in.x1"
                yield f"  {value} = shufflevector {pair}, {ints} <{order}>"
            yield f"  %to.phase{phase} = mul i64 %length, {phase}\n  %to.t{phase} = add i64 %to.phase{phase}, %t"
            yield f"  %to.at{phase} = getelementptr {self.kind}, ptr %to, i64 %to.t{phase}"
            yield f"  store {self.vector} {value}, ptr %to.at{phase}, align {self.form.itemsize}"

    def _turned(self) -> Iterator[str]:
        """Yield the copy of a square of places and channels."""
        yield "  %from = add i64 %start.col, %t\n  %from.n = trunc i64 %from to i32\n  %left.c = sub i64 %channels, %c"
        yield from splat("from", "i32", f"<{self.lanes} x i32>", self.lanes, "from.n")
        counting = ", ".join(f"i32 {lane}" for lane in range(self.lanes))
        yield f"  %places = add <{self.lanes} x i32> %from.all, <{counting}>"
        yield f"  %in.row = icmp ult <{self.lanes} x i32> %places, %there.all"
        yield f"  %x.t = getelementptr {self.kind}, ptr %x.r, i64 %from"
        yield from self.far("x.square", "%x.t", "%c", "%x.channel")
        yield f"  %to.channel = getelementptr {self.kind}, ptr %to, i64 %c"
        yield from self.far("to.square", "%to.channel", "%t", "%channels")
        yield from self._square(("%x.square", "%x.channel"), "%in.row", "%left.c", ("%to.square", "%channels"))

    def _square(
        self, given: tuple[str, str], inside: str, left: str, to: tuple[str, str], own: str = "x"
    ) -> Iterator[str]:
        """Yield the copy of a square, turned: of the lanes inside of as many registers as there are left.

        given, to: where the first one is and goes, and the elements to the next. Whole squares need no masks.
        """
        truth, bits = f"<{self.lanes} x i1>", f"i{self.lanes}"
        yield f"  %{own}.bits = bitcast {truth} {inside} to {bits}\n  %{own}.full = icmp eq {bits} %{own}.bits, -1"
        yield f"  %{own}.many = icmp sge i64 {left}, {self.lanes}\n  %{own}.whole = and i1 %{own}.full, %{own}.many"
        yield f"  br i1 %{own}.whole, label %{own}.unmasked, label %{own}.part\n{own}.unmasked:"
        yield from self._turned_square(f"{own}.all", given, to)
        yield f"  br label %{own}.turned\n{own}.part:"
        yield from self._turned_square(f"{own}.some", given, to, (inside, left))
        yield f"  br label %{own}.turned\n{own}.turned:"

    def _turned_square(
        self, own: str, given: tuple[str, str], to: tuple[str, str], masks: tuple[str, str] | None = None
    ) -> Iterator[str]:
        """Yield the copy of a whole square, or of a part: masks as inside and left of `_square`."""
        (x, x_step), (y, y_step) = given, to
        for n in range(self.lanes):
            load = f"  %{own}.line{n} = load {self.vector}, ptr {x}, align {self.form.itemsize}"
            if masks is not None:
                yield f"  %{own}.is{n} = icmp sgt i64 {masks[1]}, {n}"
                yield from self.masked(f"{own}.in{n}", masks[0], f"%{own}.is{n}")
                load = _masked_load(self.form, f"%{own}.line{n}", x, f"%{own}.in{n}")
            yield load
            yield f"  %{own}.ahead{n} = getelementptr i8, ptr {x}, i64 {ROWS_AHEAD}"
            yield self.prefetch(f"%{own}.ahead{n}")
            yield f"  %{own}.from{n} = getelementptr {self.kind}, ptr {x}, i64 {x_step}"
            x = f"%{own}.from{n}"
        names, lines = transposed(self.form, [f"%{own}.line{n}" for n in range(self.lanes)], f"{own}.turn")
        yield from lines
        if masks is not None:
            yield from first_lanes(self.form, f"{own}.mask", masks[1])
        for n, name in enumerate(names):
            whole = f"  store {self.vector} {name}, ptr {y}, align {self.form.itemsize}"
            yield whole if masks is None else _masked_store(self.form, name, y, f"%{own}.mask")
            yield f"  %{own}.to{n} = getelementptr {self.kind}, ptr {y}, i64 {y_step}"
            y = f"%{own}.to{n}"

    def _gathered(self) -> Iterator[str]:
        """Yield the copy of the channels of a group at one place; what is stored too far is stored again."""
        channels, truth = self.own.gathered, f"<{self.lanes} x i1>"
        yield "  %from = add i64 %start.col, %t\n  %is.in = icmp ult i64 %from, %there"
        yield "  %from.some = select i1 %is.in, i64 %from, i64 0"
        yield from self.far("x.t", "%x.r", "%from.some", "%x.pixel")
        yield from self.far("to.t", "%to", "%t", channels)
        for first in range(0, channels, self.lanes):
            inside = ", ".join(f"i1 {str(first + lane < channels).lower()}" for lane in range(self.lanes))
            yield f"  %in{first} = select i1 %is.in, {truth} <{inside}>, {truth} zeroinitializer"
            for name in ("x.t", "to.t"):
                yield f"  %{name}{first} = getelementptr {self.kind}, ptr %{name}, i64 {first}"
            yield _masked_load(self.form, f"%in.x{first}", f"%x.t{first}", f"%in{first}")
            yield f"  store {self.vector} %in.x{first}, ptr %to.t{first}, align {self.form.itemsize}"

    # -- registers

    def _masks(self, number: str, end: str) -> Iterator[str]:
        """Yield the masks of registers that begin at a number: %mask0 and so on."""
        for v in range(self.own.registers):
            yield f"  %number{v} = add i64 {number}, {v * self.lanes}\n  %left{v} = sub i64 {end}, %number{v}"
            yield from first_lanes(self.form, f"mask{v}", f"%left{v}")

    def _registers(self, name: str, pointer: str) -> Iterator[str]:
        """Yield the loads of registers from somewhere on, under masks."""
        for v in range(self.own.registers):
            yield f"  %{name}{v}.at = getelementptr {self.kind}, ptr {pointer}, i64 {v * self.lanes}"
            yield _masked_load(self.form, f"%{name}{v}", f"%{name}{v}.at", f"%mask{v}")

    def _either(self, outputs: int, windows: int) -> Iterator[str]:
        """Yield the stores of a block: plain ones of a whole one, of so many outputs and windows, else under masks."""
        yield f"  %all.o = icmp sge i64 %left.o, {outputs}\n  %all.p = icmp sge i64 %left.p, {windows}"
        yield "  %all.there = and i1 %all.o, %all.p"
        yield "  br i1 %all.there, label %store.all, label %store.some\nstore.all:"
        yield from renamed(self._stores(False), "all.")
        yield "  br label %stored\nstore.some:"
        yield from self._stores(True)
        yield "  br label %stored\nstored:"

    def _stores(self, masked: bool) -> Iterator[str]:
        raise NotImplementedError

    def _scattered(self, own: str, value: str, to: str, far: int, masked: bool) -> Iterator[str]:
        """Yield the store of a register, under the mask of its name or not; its elements may lie apart."""
        lanes, apart, mask = self.lanes, self.own.scattered, f"<{self.lanes} x i1> %mask{own}"
        yield f"  %to{own}.0 = getelementptr {self.kind}, ptr {to}, i64 {far}"
        if apart == 1:
            whole = f"  store {self.vector} {value}, ptr %to{own}.0, align {self.form.itemsize}"
            yield _masked_store(self.form, value, f"%to{own}.0", f"%mask{own}") if masked else whole
        elif masked:
            places = ", ".join(f"i64 {n * apart}" for n in range(lanes))
            yield f"  %each{own} = getelementptr {self.kind}, ptr %to{own}.0, <{lanes} x i64> <{places}>"
            given = f"{self.vector} {value}, <{lanes} x ptr> align {self.form.itemsize} %each{own}, {mask}"
            yield f"  call void @{scatter_of(self.form)}({given})"
        else:
            for n in range(lanes):
                yield f"  %lane{own}.{n} = extractelement {self.vector} {value}, i32 {n}"
                yield f"  %at{own}.{n} = getelementptr {self.kind}, ptr %to{own}.0, i64 {n * apart}"
                yield f"  store {self.kind} %lane{own}.{n}, ptr %at{own}.{n}"

    def _added_up(self, terms: Iterator[str], starts: Sequence[str]) -> Iterator[str]:
        """Yield the loop over elements of windows, each at %x.k; starts: what the sums, %sum..., are at first."""
        carried = [("w.k", "ptr", "%w.o", "%w.k.n")]
        for (b, v), start in zip(self.cells, starts, strict=True):
            carried.append((f"old{b}.{v}", self.vector, start, f"%sum{b}.{v}"))
        yield from self.loop("term", "k", "%depth", self._term(terms), carried=carried)

    def _crossed(self, many: str, pointer: str, one: str, numbers: Sequence[Iterator[str]]) -> Iterator[str]:
        """Yield the multiply-adds of a block: registers %many... from a pointer on, each with all numbers %one... of a
        block, whose lines are given.

        What there is less of, registers or numbers, is loaded first and stays in registers, so that all sums can.
        """
        registers = [self._register(many, pointer, v) for v in range(self.own.registers)]
        is_wide = len(registers) > len(numbers)
        for lines in numbers if is_wide else registers:
            yield from lines
        for b, v in sorted(self.cells, key=lambda cell: cell[1]) if is_wide else self.cells:
            if (b if is_wide else v) == 0:
                yield from registers[v] if is_wide else numbers[b]
            yield self.multiply_add(f"%sum{b}.{v}", f"%{many}{v}", f"%{one}{b}.all", f"%old{b}.{v}")

    def _register(self, name: str, pointer: str, v: int) -> Iterator[str]:
        yield f"  %{name}{v}.at = getelementptr {self.kind}, ptr {pointer}, i64 {v * self.lanes}"
        yield f"  %{name}{v} = load {self.vector}, ptr %{name}{v}.at, align {self.form.itemsize}"

    def _term(self, terms: Iterator[str]) -> Iterator[str]:
        yield from self.words("%k", "ks")
        yield f"  %x.k = getelementptr {self.kind}, ptr %x.p, i64 %ks.this"
        yield from terms
        yield f"  %w.k.n = getelementptr {self.kind}, ptr %w.k, i64 {self.panel}"


class _Ending(_Text):
    """The text of a kernel that may go on from its sums.

    lines: the registers that are stored, by line and number in it: the windows of a block, or its outputs.
    """

    lines: list[tuple[int, int]]
    of_outputs = True

    def __init__(self, own: Strip, finish: Finish | None) -> None:
        super().__init__(own)
        self.steps = None if finish is None else Steps(finish, own.lanes)

    def text(self) -> Iterator[str]:
        if self.own.scattered > 1:
            truth = f"<{self.lanes} x ptr>, <{self.lanes} x i1>"
            yield f"declare void @{scatter_of(self.form)}({self.vector}, {truth})"
        yield from super().text()
        writers = [one.writer for one in self._all_steps()]
        yield from sorted({line for one in writers for line in one.declarations} - declared(self.form))
        yield from {name: line for one in writers for name, line in one.globals.items()}.values()

    def _groups(self) -> Iterator[str]:
        yield f"  %tile = alloca [{len(self.lines) * self.lanes} x {self.kind}], align 64"
        yield from super()._groups()

    def _group(self) -> Iterator[str]:
        if self.steps is not None:
            yield "  %slots.far = mul i64 %g, %slot.count\n  %slots = getelementptr i64, ptr %finish, i64 %slots.far"
        for number, one in enumerate(self._all_steps()):
            one.begin("group")  # all have the same names
            lines, one.lines[:] = [*one.lines], []
            yield from lines if number == 0 else []
        yield from super()._group()

    def _all_steps(self) -> list[Steps]:
        """Return the steps of all blocks that there are."""
        return [] if self.steps is None else [self.steps]

    def _taken(self) -> Iterator[str]:
        """Yield the lines that steps have come to."""
        assert self.steps is not None
        lines, self.steps.lines[:] = [*self.steps.lines], []
        yield from lines

    def _value(self, line: int, v: int) -> str:
        """Return the name of what is stored."""
        return f"%sum{line}.{v}"

    def _mask(self, v: int) -> str:
        """Return the name of the mask of a register of a line."""
        return f"%mask{v}"

    def _stored(self) -> Iterator[str]:
        return self._either(self.panel, self.windows)

    def _stores(self, masked: bool) -> Iterator[str]:
        left = "%left.o" if self.of_outputs else "%left.p"
        for line, v in self.lines:
            if line and not v:
                yield f"  %to{line} = getelementptr {self.kind}, ptr %to{line - 1}, i64 %y.step"
            if masked:
                yield f"  %is{line}.{v} = icmp sgt i64 {left}, {line}"
                yield from self.masked(f"mask{line}.{v}", self._mask(v), f"%is{line}.{v}")
            far = v * self.own.scattered * self.lanes
            yield from self._scattered(f"{line}.{v}", self._value(line, v), f"%to{line}", far, masked)

    def _ended(self) -> Iterator[str]:
        """Yield what writes what becomes of sums, line by line."""
        for n, (line, v) in enumerate(self.lines):
            yield f"  %tile{n} = getelementptr {self.kind}, ptr %tile, i64 {n * self.lanes}"
            yield f"  store {self.vector} {self._value(line, v)}, ptr %tile{n}, align {self.form.itemsize}"
        left, most = "%left.o" if self.of_outputs else "%left.p", 1 + self.lines[-1][0]
        yield from self._place("place")
        yield f"  %lines = call i64 @llvm.smin.i64(i64 {left}, i64 {most})"
        yield from self.loop("ending", "q", "%lines", self._ending())

    def _place(self, name: str) -> Iterator[str]:
        """Yield where the first element of what is stored lies in arrays of what follows: %name.p."""
        yield f"  %{name}.y = add i64 %y.begin, %y.n.far\n  %{name}.n = add i64 %{name}.y, %y.r.at"
        yield f"  %{name}.o = add i64 %{name}.n, %y.o.far\n  %{name}.p = add i64 %{name}.o, %to0.far"

    def _fetched(self) -> Iterator[str]:
        """Yield what has lines fetched that are read at the end of the next block: one takes less than memory does."""
        if self.steps is None:
            return
        yield from self._place("ahead")
        yield f"  %ahead.block = mul i64 {self.y_step}, {self.windows}\n  %ahead.b = add i64 %ahead.p, %ahead.block"
        places = []
        for line, v in self.lines:
            places.append(f"%ahead{line}.{v}")
            yield f"  %ahead.far{line}.{v} = mul i64 %y.step, {line}"
            yield f"  %ahead.at{line}.{v} = add i64 %ahead.far{line}.{v}, {v * self.lanes}"
            yield f"  {places[-1]} = add i64 %ahead.b, %ahead.at{line}.{v}"
        self.steps.fetch(places)
        yield from self._taken()

    def _ending(self) -> Iterator[str]:
        assert self.steps is not None
        registers = 1 + self.lines[-1][1]
        yield "  %place.far = mul i64 %q, %y.step\n  %place = add i64 %place.p, %place.far"
        yield "  %line.o = add i64 %o, %q\n  %line = add i64 %line.o, %o.begin"
        yield from self.far("tile.q", "%tile", "%q", registers * self.lanes)
        self.steps.writer.block = self.block
        self.steps.row("%line")
        for v in range(registers):
            yield f"  %tile.q{v} = getelementptr {self.kind}, ptr %tile.q, i64 {v * self.lanes}"
            yield f"  %ended{v} = load {self.vector}, ptr %tile.q{v}, align {self.form.itemsize}"
            yield f"  %place{v} = add i64 %place, {v * self.lanes}\n  %column{v} = add i64 %number{v}, %o.begin"
            self.steps.write(f"%ended{v}", f"%place{v}", f"%column{v}", f".{v}", self._mask(v))
            yield from self._taken()
        self.block = self.steps.writer.block


class _Outputs(_Ending):
    """The text of a convolution where channels come last."""

    def __init__(self, own: Strip, finish: Finish | None) -> None:
        super().__init__(own, finish)
        self.of_outputs = own.turned[1]
        self.lines = [(o, 0) for o in range(self.panel)] if self.of_outputs else self.cells

    @property
    def panel(self) -> int:
        return self.own.registers * self.lanes

    def _computed(self) -> Iterator[str]:
        yield from self.loop("some", "o", "%outputs", self._some(), step=self.panel)

    def _some(self) -> Iterator[str]:
        """Yield what is done for some registers of outputs, whose weights stay in the caches for all rows."""
        yield from self._masks("%o", "%outputs")
        yield f"  %bias.o = getelementptr {self.kind}, ptr %bias.g, i64 %o\n  %left.o = sub i64 %outputs, %o"
        yield from self.far("w.o", "%w.g", "%o", "%depth")
        yield from self._registers("b", "%bias.o")
        yield from self.loop("row", "r", "%row.count", self._row())

    def _row(self) -> Iterator[str]:
        yield from self._at_row()
        yield from self.far("y.o", "%y.r", "%o", "%y.step" if self.own.turned[1] else 1)
        if self.own.turned[1]:
            yield from self.loop("segment", "seg", "%positions", self._segment(), step=self.segment)
        else:
            yield from self.loop("block", self.counter, "%positions", self._block(), step=self.own.block)

    def _block(self) -> Iterator[str]:
        yield from self._begun()
        yield from self.far("x.p", "%room.r", "%p", self.own.apart)
        yield from self.far("to0", "%y.o", "%p", self.y_step)
        yield from self._fetched()
        yield from self._sums()
        yield "  %left.p = sub i64 %positions, %p"
        yield from self._stored() if self.steps is None else self._ended()

    def _sums(self) -> Iterator[str]:
        return self._added_up(self._multiplied(), [f"%b{v}" for _, v in self.cells])

    # -- outputs that are turned: whole blocks and whole squares of them lie aside

    @property
    def segment(self) -> int:
        """The windows whose outputs lie aside at a time."""
        return lcm(self.own.block, self.lanes)

    @property
    def windows(self) -> int:
        return self.lanes if self.of_outputs else self.own.block

    def _groups(self) -> Iterator[str]:
        if self.of_outputs:
            yield f"  %aside = alloca [{self.segment * self.panel} x {self.kind}], align 64"
        yield from super()._groups()

    def _segment(self) -> Iterator[str]:
        yield "  %left.seg = sub i64 %positions, %seg"
        yield f"  %seg.count = call i64 @llvm.smin.i64(i64 %left.seg, i64 {self.segment})"
        yield from self.far("x.seg", "%room.r", "%seg", self.own.apart)
        yield from self.loop("block", "own.p", "%seg.count", self._block_aside(), step=self.own.block)
        yield from self.loop("back", "back.p", "%seg.count", self._turned_back(), step=self.lanes)

    def _block_aside(self) -> Iterator[str]:
        yield from self.far("x.p", "%x.seg", "%own.p", self.own.apart)
        yield from self._sums()
        yield from self.far("aside.p", "%aside", "%own.p", self.panel)
        for p, v in self.cells:
            at = f"%aside{p}.{v}"
            yield f"  {at} = getelementptr {self.kind}, ptr %aside.p, i64 {p * self.panel + v * self.lanes}"
            yield f"  store {self.vector} %sum{p}.{v}, ptr {at}, align {self.form.itemsize}"

    def _turned_back(self) -> Iterator[str]:
        """Yield what writes registers of windows that are made of those of outputs."""
        yield "  %p = add i64 %seg, %back.p\n  %left.p = sub i64 %positions, %p"
        yield from self.far("to0", "%y.o", "%p", self.y_step)
        yield from self._fetched()
        yield from self.far("squared", "%aside", "%back.p", self.panel)
        yield from first_lanes(self.form, "mask.p", "%left.p")
        for v in range(self.own.registers):
            for n in range(self.lanes):
                at = f"%back{v}.at{n}"
                yield f"  {at} = getelementptr {self.kind}, ptr %squared, i64 {n * self.panel + v * self.lanes}"
                yield f"  %back{v}.in{n} = load {self.vector}, ptr {at}, align {self.form.itemsize}"
            yield from transposed(self.form, [f"%back{v}.in{n}" for n in range(self.lanes)], f"back{v}.")[1]
        yield from self._stored() if self.steps is None else self._ended()

    @property
    def y_step(self) -> str:
        return str(self.own.scattered) if self.own.turned[1] else "%y.step"

    def _value(self, line: int, v: int) -> str:
        return f"%back{line // self.lanes}.1.{line % self.lanes}" if self.own.turned[1] else super()._value(line, v)

    def _mask(self, v: int) -> str:
        return "%mask.p" if self.own.turned[1] else super()._mask(v)

    def _multiplied(self) -> Iterator[str]:
        windows = [self.spread(f"x{p}", "%x.k", p * self.own.apart) for p in range(self.own.block)]
        if self.own.in_place:  # the next block, of which a part is fetched with each term
            yield from self.far("k.ahead", "%x.p", "%k", self.own.block)
            yield f"  %x.ahead = getelementptr {self.kind}, ptr %k.ahead, i64 {self.own.block * self.own.apart}"
            yield self.prefetch("%x.ahead")
        yield from self._crossed("w", "%w.k", "x", windows)


class _OutputsFirst(_Ending):
    """The text of a convolution where channels come first."""

    def __init__(self, own: Strip, finish: Finish | None) -> None:
        super().__init__(own, finish)
        self.lines = self.cells
        self.tail = _OutputsFirst(own._replace(registers=own.tail, tail=0), finish) if own.tail else None

    def _all_steps(self) -> list[Steps]:
        return super()._all_steps() + ([] if self.tail is None else self.tail._all_steps())

    @property
    def windows(self) -> int:
        return self.own.registers * self.lanes

    @property
    def y_step(self) -> str:
        return str(self.own.scattered)

    @property
    def panel(self) -> int:
        return self.own.block

    def _computed(self) -> Iterator[str]:
        yield from self.loop("some", "o", "%outputs", self._some(), step=self.own.block)

    def _some(self) -> Iterator[str]:
        """Yield what is done for some outputs: their rows follow each other in memory, so writes run on.

        (Row by row with all outputs inside, a first layer of 32 outputs takes 1.3 times as long.)
        """
        yield "  %left.o = sub i64 %outputs, %o"
        yield from self.far("w.o", "%w.g", "%o", "%depth")
        yield f"  %bias.o = getelementptr {self.kind}, ptr %bias.g, i64 %o"
        for b in range(self.own.block):
            yield from self.spread(f"b{b}", "%bias.o", b)
        yield from self.loop("row", "r", "%row.count", self._row())

    def _row(self) -> Iterator[str]:
        yield from self._at_row()
        yield from self.far("y.o", "%y.r", "%o", "%y.step")
        yield from self.loop("blocks", self.counter, "%positions", self._blocks(), step=self.windows)

    def _blocks(self) -> Iterator[str]:
        """Yield a block of windows, or the last one of a row, which has fewer registers."""
        if self.tail is None:
            yield from self._block()
            return
        yield f"  %left.row = sub i64 %positions, %{self.counter}"
        yield f"  %is.tail = icmp sle i64 %left.row, {self.own.tail * self.lanes}"
        yield "  br i1 %is.tail, label %tail.block, label %block\nblock:"
        self.block = "block"
        yield from self._block()
        yield "  br label %block.done\ntail.block:"
        self.tail.block = "tail.block"
        yield from renamed(self.tail._block(), "tail.")
        yield "  br label %block.done\nblock.done:"
        self.block = "block.done"

    def _block(self) -> Iterator[str]:
        yield from self._begun()
        yield f"  %x.p = getelementptr {self.kind}, ptr %room.r, i64 %p"
        yield from self.far("to0", "%y.o", "%p", self.own.scattered)
        yield from self._fetched()
        yield from self._added_up(self._multiplied(), [f"%b{b}.all" for b, _ in self.cells])
        yield from self._masks("%p", "%positions")
        yield "  %left.p = sub i64 %positions, %p"
        yield from self._stored() if self.steps is None else self._ended()

    def _multiplied(self) -> Iterator[str]:
        outputs = [self.spread(f"w{b}", "%w.k", b) for b in range(self.own.block)]
        for v in range(self.own.registers if self.own.in_place else 0):
            yield f"  %x.ahead{v} = getelementptr i8, ptr %x.k, i64 {ROWS_AHEAD + v * self.lanes * self.form.itemsize}"
            yield self.prefetch(f"%x.ahead{v}")
        yield from self._crossed("x", "%x.k", "w", outputs)

"""Strips of rows of outputs, and the rows of the input under each: what all kernels that go over them share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...plan.costs import AHEAD, ROWS_AHEAD
from .forms import first_lanes, masked_load, masked_store, splat
from .sweeping import OUTSIDE, Sweeping
from .turning import transposed

# The words of a kernel. Offsets and steps count elements.
#
#   w         weights: panels (elements of a window, outputs of a block); for the gradient its sums, which are added to
#             where channels come last, `pitch` apart, else written, one after the other
#   room      scratch memory for the rows under a strip: those of each channel and of each phase of its columns modulo
#             the stride lie `length` apart, whole registers; channels that come last are part of the rows
#   sums      scratch memory for the gradient. Where channels come first: a register of each element and each output.
#             Where they come last: registers of the outputs of a strip, side by side
#   x.rows    of each of the `span` input rows under each strip: its offset, or OUTSIDE
#   y.rows    of each row of outputs: its offset
#   begins    of each strip, and behind the last one: its first row of outputs
#   ks        of each element of a window that is summed: its offset in the room, or in the input where that is read in
#             place; these elements are `run.count` runs of so many (`run`), which follow each other in the weights
#   runs      of each run: its first element, among those of the weights
#   finish    the slots of the steps that follow (see finish.py), `slot.count` for each group; y.begin: elements from
#             the beginning of the arrays of these to y; o.begin: the number of the first output within a group
#   product   the words of the product in strip_products.py; columns: for each strip, words of the table of its columns
#   first     and `end`: columns of outputs; wide: how many are computed at a time
#   size      elements of a row of the input; start: the one that comes first in the room, for the first column of all;
#             along: how many elements further it is for the next column
#   room.step from the rows under a row of outputs to those under the next one; in place it counts rows
#   x.pixel   between neighbouring positions of an input row that is gathered; pixels: how many the room has
POINTERS = (
    *("x", "w", "y", "bias", "room", "sums", "x.rows", "y.rows", "begins", "ks", "runs", "finish"),
    *("product", "columns"),
)
NUMBERS = (
    *("outputs", "pitch", "strip.count", "first", "end", "wide", "depth", "size", "start", "along", "length", "pixels"),
    *("y.step", "span", "room.step", "images", "x.image", "y.image", "channels", "x.channel", "x.pixel"),
    *("groups", "x.group", "y.group", "w.group", "slot.count", "y.begin", "o.begin", "run", "run.count"),
)

# Words of each strip in `columns`: addresses of its pieces and panels (see gemm.py), and the number of panels.
STRIP_WORDS = 3


class Strip(NamedTuple):
    """What code is made for: blocks of so many windows, `apart` elements from one to the next, and registers of
    outputs. The gradient instead takes blocks of so many elements of a window, which follow each other. gathered: the
    channels of a group if they are not all there are, else 0. turned: whether channels come first in x, and in y, so
    that these are transposed on their way.

    In kernels for channels that come first, which transpose nothing, a block has so many outputs, and registers are of
    windows; the gradient takes so many `terms`, elements of a window, at a time. phases: of columns, 1 or 2.

    scattered: elements from one column of y to the next where channels come first, 1 or 2. tail: registers of windows
    in the last block of a row if these are fewer, else 0. in_place: whether windows are read in place, which need no
    zeros around a row; for outputs, this must have at least a block.
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


class StripText(Sweeping):
    """What kernels share: groups, strips of rows of outputs, and the rows of the input under them."""

    def __init__(self, own: Strip) -> None:
        super().__init__(own.char, own.lanes)
        self.own = own
        self.cells = [(b, v) for b in range(own.block) for v in range(own.registers)]

    def text(self) -> Iterator[str]:
        return self.kernel(POINTERS, NUMBERS, self._groups())

    def _groups(self) -> Iterator[str]:
        count = "1" if self.own.turned[0] else "%channels"  # transposed channels are part of the rows
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
        """Yield the work on some columns of a strip."""
        yield "  %col.left = sub i64 %end, %col\n  %positions = call i64 @llvm.smin.i64(i64 %col.left, i64 %wide)"
        yield "  %start.far = mul i64 %col, %along\n  %start.col = add i64 %start, %start.far"
        if self.own.turned[0]:
            yield from self.loop("copy", "e", "%span", self._copied_row("%x.n", "%room"))
        elif not self.own.in_place:
            yield from self.loop("channel", "c", "%channels", self._copied_channel())
        yield from self._computed()

    def _computed(self) -> Iterator[str]:
        """Yield the computation of a strip, after its rows of the input are copied."""
        raise NotImplementedError

    def _at_row(self) -> Iterator[str]:
        """Yield pointers to a row of outputs, and to the input under it: %y.r and %room.r."""
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
        """Yield the first window of a block. In place, the last block of a row begins earlier, as it must not read
        windows that do not exist; it computes some outputs again, with the same results.
        """
        if self.own.in_place:
            yield f"  %last.p = sub i64 %positions, {self.windows}"
            yield "  %p = call i64 @llvm.smin.i64(i64 %next.p, i64 %last.p)"

    @property
    def counter(self) -> str:
        """The name of the counter of windows."""
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
        """The number of outputs whose weights lie side by side."""
        raise NotImplementedError

    # -- copying, in memory order; elements outside become zeros

    def _copied_channel(self) -> Iterator[str]:
        yield from self.far("x.c", "%x.n", "%c", "%x.channel")
        yield from self.far("to.c", "%room", "%c", "%channel.step")
        yield from self.loop("copy", "e", "%span", self._copied_row("%x.c", "%to.c"))

    def _copied_row(self, x: str, to: str) -> Iterator[str]:
        yield "  %e.row = add i64 %s.rows, %e"
        yield from self.words("%e.row", "x.rows")
        yield f"  %outside = icmp eq i64 %x.rows.this, {OUTSIDE}\n  %there = select i1 %outside, i64 0, i64 %size"
        yield "  %x.some = select i1 %outside, i64 0, i64 %x.rows.this"  # the address must be valid
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
        """Yield the copy of registers of a row, with the columns of each phase together."""
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
            yield masked_load(self.form, f"%in.x{part}", f"%x.t{part}", f"%in{part}")
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
        """Yield the transposed copy of a square of positions and channels."""
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
        """Yield the transposed copy of a square: of the lanes inside, in as many registers as are left.

        given, to: pointers to its first line, and the elements to the next one. Whole squares need no masks.
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
        """Yield the transposed copy of a whole square, or of a part: masks as inside and left of `_square`.

        Lines that are not there are read, under empty masks, where the first one lies: what lies behind the last may be
        no memory, where even such a load takes hundreds of cycles.
        """
        (x, x_step), (y, y_step), begin = given, to, given[0]
        for n in range(self.lanes):
            load = f"  %{own}.line{n} = load {self.vector}, ptr {x}, align {self.form.itemsize}"
            if masks is not None:
                yield f"  %{own}.is{n} = icmp sgt i64 {masks[1]}, {n}"
                yield f"  %{own}.some{n} = select i1 %{own}.is{n}, ptr {x}, ptr {begin}"
                yield from self.masked(f"{own}.in{n}", masks[0], f"%{own}.is{n}")
                x = f"%{own}.some{n}"
                load = masked_load(self.form, f"%{own}.line{n}", x, f"%{own}.in{n}")
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
            yield whole if masks is None else masked_store(self.form, name, y, f"%{own}.mask")
            yield f"  %{own}.to{n} = getelementptr {self.kind}, ptr {y}, i64 {y_step}"
            y = f"%{own}.to{n}"

    def _gathered(self) -> Iterator[str]:
        """Yield the copy of a group's channels at one position; stores that reach too far are overwritten later."""
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
            yield masked_load(self.form, f"%in.x{first}", f"%x.t{first}", f"%in{first}")
            yield f"  store {self.vector} %in.x{first}, ptr %to.t{first}, align {self.form.itemsize}"

    # -- registers

    def _masks(self, number: str, end: str) -> Iterator[str]:
        """Yield the masks of registers from a number on: %mask0 and so on."""
        for v in range(self.own.registers):
            yield f"  %number{v} = add i64 {number}, {v * self.lanes}\n  %left{v} = sub i64 {end}, %number{v}"
            yield from first_lanes(self.form, f"mask{v}", f"%left{v}")

    def _registers(self, name: str, pointer: str) -> Iterator[str]:
        """Yield masked loads of registers from a pointer on."""
        for v in range(self.own.registers):
            yield f"  %{name}{v}.at = getelementptr {self.kind}, ptr {pointer}, i64 {v * self.lanes}"
            yield masked_load(self.form, f"%{name}{v}", f"%{name}{v}.at", f"%mask{v}")

    def _crossed(self, many: str, pointer: str, one: str, numbers: Sequence[Iterator[str]]) -> Iterator[str]:
        """Yield the multiply-adds of a block: registers %many... from a pointer on, each with all numbers %one... of a
        block, whose lines are given.

        The fewer of both, registers or numbers, are loaded first and stay in registers, so that all sums fit there too.
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

"""Convolutions by strips: rows of the input are copied to scratch memory, with zeros around them, and multiplied from
there; or they are read in place, if they need no zeros around them.

In scratch memory all windows of a strip lie alike, and nothing is packed. Where channels come last, each element of
some windows is multiplied with registers of outputs; where they come first, registers of positions are multiplied with
a weight of each of some outputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from math import lcm

from ...plan.costs import ROWS_AHEAD
from .compile import Code, handmade
from .finish import Finish, Steps
from .forms import Form, declared, first_lanes, masked_store, suffix_of
from .strip_rows import Strip, StripText
from .sweeping import renamed
from .turning import transposed


def scatter_of(form: Form) -> str:
    """Return the name of the intrinsic that scatters a register to any addresses."""
    return f"llvm.masked.scatter.{suffix_of(form)}.v{form.lanes}p0"


@lru_cache(256)
def outputs_kernel(own: Strip, finish: Finish | None = None) -> Code:
    """Return the code of a convolution where channels come last. finish: the steps that follow on its sums.

    Raises LacksError where generated code lacks one of these.
    """
    return handmade("\n".join(_Outputs(own, finish).text()))


@lru_cache(256)
def outputs_first_kernel(own: Strip, finish: Finish | None = None) -> Code:
    """Return the code of a convolution where channels come first. Biases are padded to whole blocks of outputs."""
    return handmade("\n".join(_OutputsFirst(own, finish).text()))


class _Ending(StripText):
    """The text of a kernel that may go on from its sums.

    lines: the registers that are stored, by line and number in it; lines are the windows of a block, or its outputs.
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
            lines = one.begun("group")  # all have the same names
            yield from lines if number == 0 else []
        yield from super()._group()

    def _all_steps(self) -> list[Steps]:
        """Return the steps of all kinds of blocks."""
        return [] if self.steps is None else [self.steps]

    def _taken(self) -> Iterator[str]:
        """Yield the lines that the steps have written so far."""
        assert self.steps is not None
        yield from self.steps.taken()

    def _value(self, line: int, v: int) -> str:
        """Return the name of a register that is stored."""
        return f"%sum{line}.{v}"

    def _mask(self, v: int) -> str:
        """Return the name of the mask of a register of a line."""
        return f"%mask{v}"

    def _stored(self) -> Iterator[str]:
        """Yield what writes a block: its sums, under masks unless it is whole, or what the steps make of them."""
        if self.steps is None:
            return self._either(renamed(self._stores(False), "all."), self._stores(True))
        aside = self._ended_aside()
        ends = self._either(self._ended_whole(), aside) if self.steps.finish.in_registers else aside
        return chain(self._place("place"), ends)

    def _either(self, whole: Iterable[str], part: Iterable[str]) -> Iterator[str]:
        """Yield what is done with a whole block, or else with a part of one; both go on in the block `ended`."""
        yield f"  %all.o = icmp sge i64 %left.o, {self.panel}\n  %all.p = icmp sge i64 %left.p, {self.windows}"
        yield "  %all.there = and i1 %all.o, %all.p"
        yield "  br i1 %all.there, label %whole.block, label %part.block\nwhole.block:"
        yield from whole
        yield "  br label %ended\npart.block:"
        self.block = "part.block"
        yield from part
        yield "  br label %ended\nended:"
        self.block = "ended"

    def _stores(self, masked: bool) -> Iterator[str]:
        left = "%left.o" if self.of_outputs else "%left.p"
        for line, v in self.lines:
            if line and not v:
                yield f"  %to{line} = getelementptr {self.kind}, ptr %to{line - 1}, i64 %y.step"
            to = f"%to{line}"
            if masked:  # a store under an empty mask takes long where there is no memory
                yield f"  %is{line}.{v} = icmp sgt i64 {left}, {line}"
                yield from self.masked(f"mask{line}.{v}", self._mask(v), f"%is{line}.{v}")
                yield f"  %some{line}.{v} = select i1 %is{line}.{v}, ptr {to}, ptr %to0"
                to = f"%some{line}.{v}"
            far = v * self.own.scattered * self.lanes
            yield from self._scattered(f"{line}.{v}", self._value(line, v), to, far, masked)

    def _scattered(self, own: str, value: str, to: str, far: int, masked: bool) -> Iterator[str]:
        """Yield the store of a register, under the mask of its name or none; its elements may lie apart."""
        lanes, apart, mask = self.lanes, self.own.scattered, f"<{self.lanes} x i1> %mask{own}"
        yield f"  %to{own}.0 = getelementptr {self.kind}, ptr {to}, i64 {far}"
        if apart == 1:
            whole = f"  store {self.vector} {value}, ptr %to{own}.0, align {self.form.itemsize}"
            yield masked_store(self.form, value, f"%to{own}.0", f"%mask{own}") if masked else whole
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

    def _ended_whole(self) -> Iterator[str]:
        """Yield what writes the results of a whole block's sums, computed in the registers that hold these.

        An input has a number for each row only where lines are outputs, and for each column only where they are
        windows.
        """
        assert self.steps is not None
        for line, v in self.lines:
            own = f".{line}.{v}"
            yield f"  %place.far{own} = mul i64 %y.step, {line}\n  %place.to{own} = add i64 %place.p, %place.far{own}"
            yield f"  %place{own} = add i64 %place.to{own}, {v * self.lanes}"
            if not v:
                yield f"  %row.o{line} = add i64 %o, {line}\n  %row{line} = add i64 %row.o{line}, %o.begin"
                self.steps.row(f"%row{line}", own)
            if not line:
                yield f"  %whole.column{v} = add i64 %number{v}, %o.begin"
            self.steps.write(self._value(line, v), f"%place{own}", f"%whole.column{v}", own)
            yield from self._taken()

    def _ended_aside(self) -> Iterator[str]:
        """Yield what writes the results of sums that are stored aside, line by line."""
        for n, (line, v) in enumerate(self.lines):
            yield f"  %tile{n} = getelementptr {self.kind}, ptr %tile, i64 {n * self.lanes}"
            yield f"  store {self.vector} {self._value(line, v)}, ptr %tile{n}, align {self.form.itemsize}"
        left, most = "%left.o" if self.of_outputs else "%left.p", 1 + self.lines[-1][0]
        yield f"  %lines = call i64 @llvm.smin.i64(i64 {left}, i64 {most})"
        yield from self.loop("ending", "q", "%lines", self._ending())

    def _added_up(self, terms: Iterator[str], starts: Sequence[str]) -> Iterator[str]:
        """Yield the loops over elements of windows, each at %x.k; starts: the initial values of the sums, %sum..."""
        both = zip(self.cells, starts, strict=True)
        carried = [(f"run{b}.{v}", self.vector, start, f"%sum{b}.{v}") for (b, v), start in both]
        yield from self.loop("run.terms", "j", "%run.count", self._run(terms), carried=carried)

    def _run(self, terms: Iterator[str]) -> Iterator[str]:
        """Yield the loop over the elements of a run."""
        yield "  %k.first = mul i64 %j, %run\n  %k.end = add i64 %k.first, %run"
        yield from self.words("%j", "runs")
        yield from self.far("w.j", "%w.o", "%runs.this", self.panel)
        carried = [("w.k", "ptr", "%w.j", "%w.k.n")]
        carried += [(f"old{b}.{v}", self.vector, f"%run{b}.{v}", f"%sum{b}.{v}") for b, v in self.cells]
        yield from self.loop("term", "k", "%k.end", self._term(terms), start="%k.first", carried=carried)

    def _place(self, name: str) -> Iterator[str]:
        """Yield the offset, in the arrays of the steps that follow, of the first element that is stored: %name.p."""
        yield f"  %{name}.y = add i64 %y.begin, %y.n.far\n  %{name}.n = add i64 %{name}.y, %y.r.at"
        yield f"  %{name}.o = add i64 %{name}.n, %y.o.far\n  %{name}.p = add i64 %{name}.o, %to0.far"

    def _ahead(self) -> Iterator[str]:
        """Yield the offset of the next block in the arrays of the steps that follow: %ahead.b."""
        if self.steps is None:
            return
        yield from self._place("ahead")
        yield f"  %ahead.block = mul i64 {self.y_step}, {self.windows}\n  %ahead.b = add i64 %ahead.p, %ahead.block"

    def _fetched(self, line: str, own: str = "") -> Iterator[str]:
        """Yield prefetches of a line that is read at the end of the next block: a block takes less time than memory."""
        if self.steps is None:
            return
        yield f"  %ahead.far{own} = mul i64 {line}, %y.step\n  %ahead.line{own} = add i64 %ahead.b, %ahead.far{own}"
        places = [f"%ahead{v}{own}" for v in range(1 + self.lines[-1][1])]
        yield from (f"  {place} = add i64 %ahead.line{own}, {v * self.lanes}" for v, place in enumerate(places))
        self.steps.fetch(places, own)
        yield from self._taken()

    def _term(self, terms: Iterator[str]) -> Iterator[str]:
        if self.steps is not None and not self.own.turned[1]:
            yield f"  %ahead.k = call i64 @llvm.smin.i64(i64 %k, i64 {self.lines[-1][0]})"
            yield from self._fetched("%ahead.k")
        yield from self.words("%k", "ks")
        yield f"  %x.k = getelementptr {self.kind}, ptr %x.p, i64 %ks.this"
        yield from terms
        yield f"  %w.k.n = getelementptr {self.kind}, ptr %w.k, i64 {self.panel}"

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
        """Yield the work on some registers of outputs, whose weights stay in the caches for all rows."""
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
        yield from self._ahead()
        yield from self._sums()
        yield "  %left.p = sub i64 %positions, %p"
        yield from self._stored()

    def _sums(self) -> Iterator[str]:
        return self._added_up(self._multiplied(), [f"%b{v}" for _, v in self.cells])

    # -- outputs that are transposed: whole blocks and whole squares of them are stored aside

    @property
    def segment(self) -> int:
        """The windows whose outputs are stored aside at a time."""
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
        """Yield what writes registers of windows, transposed from those of outputs."""
        yield "  %p = add i64 %seg, %back.p\n  %left.p = sub i64 %positions, %p"
        yield from self.far("to0", "%y.o", "%p", self.y_step)
        yield from self._ahead()
        for line, _ in self.lines:
            yield from self._fetched(str(line), f".{line}")
        yield from self.far("squared", "%aside", "%back.p", self.panel)
        yield from first_lanes(self.form, "mask.p", "%left.p")
        for v in range(self.own.registers):
            for n in range(self.lanes):
                at = f"%back{v}.at{n}"
                yield f"  {at} = getelementptr {self.kind}, ptr %squared, i64 {n * self.panel + v * self.lanes}"
                yield f"  %back{v}.in{n} = load {self.vector}, ptr {at}, align {self.form.itemsize}"
            yield from transposed(self.form, [f"%back{v}.in{n}" for n in range(self.lanes)], f"back{v}.")[1]
        yield from self._stored()

    @property
    def y_step(self) -> str:
        return str(self.own.scattered) if self.own.turned[1] else "%y.step"

    def _value(self, line: int, v: int) -> str:
        return f"%back{line // self.lanes}.1.{line % self.lanes}" if self.own.turned[1] else super()._value(line, v)

    def _mask(self, v: int) -> str:
        return "%mask.p" if self.own.turned[1] else super()._mask(v)

    def _multiplied(self) -> Iterator[str]:
        windows = [self.spread(f"x{p}", "%x.k", p * self.own.apart) for p in range(self.own.block)]
        if self.own.in_place:  # each term prefetches a part of the next block
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
        """Yield the work on some outputs: their rows follow each other in memory, so writes are consecutive.

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
        yield from self._ahead()
        yield from self._added_up(self._multiplied(), [f"%b{b}.all" for b, _ in self.cells])
        yield from self._masks("%p", "%positions")
        yield "  %left.p = sub i64 %positions, %p"
        yield from self._stored()

    def _multiplied(self) -> Iterator[str]:
        outputs = [self.spread(f"w{b}", "%w.k", b) for b in range(self.own.block)]
        for v in range(self.own.registers if self.own.in_place else 0):
            yield f"  %x.ahead{v} = getelementptr i8, ptr %x.k, i64 {ROWS_AHEAD + v * self.lanes * self.form.itemsize}"
            yield self.prefetch(f"%x.ahead{v}")
        yield from self._crossed("x", "%x.k", "w", outputs)

"""Convolutions of thin groups where channels come last: registers of neighbouring channels, blocks of a row of outputs.

A depthwise convolution multiplies registers of the input as they are. With more channels or outputs in a group, each
channel of a group in turn is broadcast to the lanes of all outputs of the group. The sums of a block stay in registers
while the rows of the window are read one after the other, straight from the input: where a window reaches beyond it,
zeros are read instead. The gradient of weights goes the same way, and keeps its sums over outputs in registers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import product
from typing import NamedTuple

from .compile import Code, handmade
from .forms import Form, declared, first_lanes, masked_load, masked_store
from .sweeping import OUTSIDE, Sweeping, renamed

# The words of a kernel. Offsets and steps count elements.
#
#   w               weights (rows of the window, elements of a row, channels of a group, outputs); of the gradient the
#                   sums, which are added to
#   channels        of y: the outputs of all groups
#   firsts          of each row of outputs, and behind the last: the first of its rows of the window
#   x.rows, w.rows  of each of those: the offset of the row of the input, or OUTSIDE, and of that of the weights
#   y.rows          of each row of outputs: its offset
#   positions       outputs of a row; size: positions of an input row; start: the one where a row of outputs begins
#   band, chunk     how many rows of outputs, and how many channels of these, are computed before the next ones
#   fetched         how many rows of the window, the last ones, are prefetched: x.ahead, y.ahead elements ahead
#   blocks          how many blocks of a row the gradient adds up before it goes on to the next channels
POINTERS = ("x", "w", "y", "bias", "x.rows", "w.rows", "firsts", "y.rows")
NUMBERS = (
    *("channels", "row.count", "band", "chunk", "positions", "size", "start", "x.step", "y.step"),
    *("blocks", "fetched", "x.ahead", "y.ahead", "images", "x.image", "y.image"),
)

# The fewest sums of a gradient that take turns, so that none waits for the addition before.
TURNS = 9


class Term(NamedTuple):
    """One multiplication of a block for a row of the window: its output, window element, and input column."""

    output: int
    element: int
    column: int


class Thin(NamedTuple):
    """What code is made for. group, made: channels and outputs of each group, powers of two, at most a register full.

    terms: of a block. advance: columns of the input from one block to the next. whole: whether channels fill registers.
    fetches: whether lines are prefetched for later rows, which pays if arrays do not stay in the caches. tall: for how
    many rows of the window at once the gradient of weights has sums in registers.
    """

    char: str
    lanes: int
    group: int
    made: int
    terms: tuple[Term, ...]
    advance: int
    whole: bool = False
    fetches: bool = False
    tall: int = 1

    @property
    def outputs(self) -> int:
        """The outputs of a block."""
        return 1 + max(term.output for term in self.terms)

    @property
    def columns(self) -> list[int]:
        """The input columns under a block, counted from the one where it begins."""
        return sorted({term.column for term in self.terms})

    @property
    def factors(self) -> list[tuple[int, int]]:
        """The weights of one output and one row of the window: the element and the channel of each."""
        elements = sorted({term.element for term in self.terms})
        return [(element, channel) for element in elements for channel in range(self.group)]


@lru_cache(256)
def channels_kernel(thin: Thin) -> Code:
    """Return the code of a convolution."""
    return handmade("\n".join(_Outputs(thin).text()))


@lru_cache(256)
def channels_weights_kernel(thin: Thin) -> Code:
    """Return the code of the gradient of weights: y is given, and w is added to."""
    return handmade("\n".join(_Weights(thin).text()))


class _Text(Sweeping):
    """What both kernels share: rows of outputs, blocks of a row, registers of channels."""

    def __init__(self, thin: Thin) -> None:
        super().__init__(thin.char, thin.lanes)
        self.thin = thin
        self.mask = "splat (i1 true)" if thin.whole else "%mask"  # of the lanes that exist
        self.is_even = thin.group == thin.made
        # The channels under a register of outputs: also more, or fewer, than a register has.
        self.x_form = Form(thin.char, thin.lanes * thin.group // thin.made, 1, 1)
        self.x_mask = self.mask if thin.whole or self.is_even else "%x.mask"

    def text(self) -> Iterator[str]:
        wide = max(self.lanes, self.x_form.lanes)
        yield f"@zeros = private constant <{wide} x {self.kind}> zeroinitializer, align 64"
        yield from sorted(declared(self.x_form) - declared(self.form))
        bands = self.loop("rows", "band.first", "%row.count", self._band(), step="%band")
        aside = f"  %aside = alloca {self.vector}, align 64"
        yield from self.kernel(POINTERS, NUMBERS, [aside, *self.images("%x", "%y", bands)])

    def _band(self) -> Iterator[str]:
        """Yield the work on some rows of outputs, some channels after others: these are so few that the input under one
        row is still in the nearest cache for the next row.
        """
        yield "  %band.far = add i64 %band.first, %band"
        yield "  %band.end = call i64 @llvm.smin.i64(i64 %band.far, i64 %row.count)"
        yield from self.loop("chunks", "chunk.first", "%channels", self._chunk(), step="%chunk")

    def _chunk(self) -> Iterator[str]:
        yield "  %chunk.far = add i64 %chunk.first, %chunk"
        yield "  %chunk.end = call i64 @llvm.smin.i64(i64 %chunk.far, i64 %channels)"
        yield from self.loop("row", "r", "%band.end", self._row(), start="%band.first")

    def _row(self) -> Iterator[str]:
        """Yield the work on a row of outputs."""
        yield from self.words("%r", "firsts", "y.rows")
        yield "  %last.at = getelementptr i64, ptr %firsts.at, i64 1\n  %last = load i64, ptr %last.at"
        yield "  %fetches = sub i64 %last, %fetched"
        yield f"  %y.r = getelementptr {self.kind}, ptr %y.n, i64 %y.rows.this"
        yield from self._columns_of_row()

    def _columns_of_row(self) -> Iterator[str]:
        raise NotImplementedError

    def _blocks(
        self,
        name: str,
        starts: tuple[str, str, str],
        end: str,
        body: Iterator[str],
        blocks: str = "1",
        carried: Sequence[tuple[str, str, str, str]] = (),
    ) -> Iterator[str]:
        """Yield a loop over parts of a row: their first outputs, input columns, and pointers into y.

        blocks: how many blocks a part has.
        """
        first, *others = starts
        own = [
            (f"{name}.{of}", kind, start, f"%{name}.{of}.n")
            for of, kind, start in zip(("col", "y"), ("i64", "ptr"), others, strict=True)
        ]
        body = self._block_of(name, body, blocks)
        step = f"%{name}.p.on"
        return self.loop(name, f"{name}.p", end, body, step=step, start=first, carried=[*own, *carried])

    def _block_of(self, name: str, body: Iterator[str], blocks: str) -> Iterator[str]:
        thin = self.thin
        yield f"  %{name}.p.on = mul i64 {blocks}, {thin.outputs}\n  %{name}.col.on = mul i64 {blocks}, {thin.advance}"
        yield f"  %{name}.col.n = add i64 %{name}.col, %{name}.col.on\n  %{name}.y.on = mul i64 %y.step, %{name}.p.on"
        yield f"  %{name}.y.n = getelementptr {self.kind}, ptr %{name}.y, i64 %{name}.y.on"
        yield from body

    def _channels(self, body: Iterator[str]) -> Iterator[str]:
        """Yield the loop over registers of channels; %c is the first channel of each."""
        return self.loop("some", "c", "%chunk.end", self._some(body), start="%chunk.first", step=self.lanes)

    def _some(self, body: Iterator[str]) -> Iterator[str]:
        if not self.thin.whole:
            yield "  %left = sub i64 %channels, %c"
            yield from first_lanes(self.form, "mask", "%left")
            yield from [] if self.is_even else self._under("left.x", "%left")
            yield from [] if self.is_even else first_lanes(self.x_form, "x.mask", "%left.x")
        yield from [] if self.is_even else self._under("c.x", "%c")
        yield f"  %w.c = getelementptr {self.kind}, ptr %w, i64 %c"
        yield from body

    def _under(self, name: str, outputs: str) -> Iterator[str]:
        """Yield the lines that make %name: the channels of as many groups as make so many outputs."""
        yield f"  %{name}.groups = udiv i64 {outputs}, {self.thin.made}"
        yield f"  %{name} = mul i64 %{name}.groups, {self.thin.group}"

    def _fitting(self, end: str) -> Iterator[str]:
        """Yield what decides whether a block is whole, and all columns under its windows exist."""
        first, *_, last = *self.thin.columns, self.thin.columns[-1]
        yield f"  %first.col = add i64 %block.col, {first}\n  %last.col = add i64 %block.col, {last}"
        yield f"  %there = sub i64 {end}, %block.p\n  %in.all = icmp sge i64 %there, {self.thin.outputs}"
        yield "  %in.first = icmp sge i64 %first.col, 0\n  %in.last = icmp slt i64 %last.col, %size"
        yield "  %in.row = and i1 %in.first, %in.last\n  %fits = and i1 %in.row, %in.all"
        under = "%c" if self.is_even else "%c.x"
        yield f"  %x.along = mul i64 %first.col, %x.step\n  %x.on = add i64 %x.along, {under}"
        yield f"  %x.block = getelementptr {self.kind}, ptr %x.n, i64 %x.on"

    def _columns(
        self, way: str, begin: str, col: str, rows: str, columns: list[int], *, is_whole: bool = False
    ) -> Iterator[str]:
        """Yield pointers to columns of a row of the input: to zeros if the row is outside, and, except for whole
        blocks, if a column is.

        begin: where the first column under a block lies, were it in row 0; that column is col. rows: the offset of the
        row, or OUTSIDE.
        """
        before, at = self.thin.columns[0], f"%{way}.row.at"
        yield f"  %{way}.row.there = getelementptr {self.kind}, ptr {begin}, i64 {rows}"
        yield f"  %{way}.row.in = icmp ne i64 {rows}, {OUTSIDE}"
        yield f"  {at} = select i1 %{way}.row.in, ptr %{way}.row.there, ptr @zeros"
        yield f"  %{way}.step = select i1 %{way}.row.in, i64 %x.step, i64 0"
        for column in columns:
            yield f"  %{way}.on{column} = mul i64 %{way}.step, {column - before}"
            yield f"  %{way}.any{column} = getelementptr {self.kind}, ptr {at}, i64 %{way}.on{column}"
            before, at = column, f"%{way}.any{column}"
            is_in, found = "true", f"ptr {at}, ptr @zeros"
            if not is_whole:
                is_in = f"%{way}.in{column}"
                yield f"  %{way}.at{column} = add i64 {col}, {column}"
                yield f"  {is_in} = icmp ult i64 %{way}.at{column}, %size"
            yield f"  %{way}.col{column} = select i1 {is_in}, {found}"

    def _given(self, way: str, name: str, column: int, channel: int) -> Iterator[str]:
        """Yield the lines that load a register of a column as %name, one channel of each group in all its lanes."""
        at, thin, given = f"%{way}.col{column}", self.thin, f"<{self.x_form.lanes} x {self.kind}>"
        if thin.group == thin.made == 1:
            yield masked_load(self.form, name, at, self.mask)
            return
        yield masked_load(self.x_form, f"{name}.all", at, self.x_mask)
        order = ", ".join(f"i32 {lane // thin.made * thin.group + channel}" for lane in range(self.lanes))
        yield f"  {name} = shufflevector {given} {name}.all, {given} poison, <{self.lanes} x i32> <{order}>"

    def _outputs_at(self) -> Iterator[str]:
        """Yield pointers to the outputs of a block: %to0 and so on."""
        yield f"  %to0 = getelementptr {self.kind}, ptr %block.y, i64 %c"
        for p in range(1, self.thin.outputs):
            yield f"  %to{p} = getelementptr {self.kind}, ptr %to{p - 1}, i64 %y.step"

    def _fetch(self, first: str, before: str, *others: str) -> Iterator[str]:
        """Yield the loop that prefetches the input under a later block, in rows of the window from a first one on.

        others: pointers from which on as many columns as a block has are prefetched too. Ends in the block %fetch.done.
        """
        yield f"  br label %fetch\nfetch:\n  %fetch.e = phi i64 [{first}, %{before}], [%fetch.e.n, %fetch.row]"
        yield "  %fetch.more = icmp slt i64 %fetch.e, %last\n  br i1 %fetch.more, label %fetch.row, label %fetch.done"
        yield "fetch.row:\n  %fetch.e.n = add i64 %fetch.e, 1"
        yield from self.words("%fetch.e", "x.rows", way="fetch.")
        yield f"  %fetch.row.at = getelementptr {self.kind}, ptr %x.block, i64 %fetch.x.rows.this"
        yield from self._fetch_from("x", "%fetch.row.at", self.thin.advance)
        for start in others:
            yield from self._fetch_from("y", start, self.thin.outputs)
        yield "  br label %fetch\nfetch.done:"

    def _fetch_from(self, name: str, start: str, count: int, *, writes: bool = False) -> Iterator[str]:
        """Yield prefetches of columns of x or y, some distance ahead; writes: as they will be written."""
        yield f"  %fetch.{name}0 = getelementptr {self.kind}, ptr {start}, i64 %{name}.ahead"
        for n in range(count):
            yield f"  call void @llvm.prefetch.p0(ptr %fetch.{name}{n}, i32 {int(writes)}, i32 3, i32 1)"
            yield f"  %fetch.{name}{n + 1} = getelementptr {self.kind}, ptr %fetch.{name}{n}, i64 %{name}.step"

    def _weight_at(self, name: str, row: str, element: int, channel: int) -> Iterator[str]:
        """Yield the lines that make a pointer to weights: %name."""
        yield f"  {name}.far = mul i64 %channels, {element * self.thin.group + channel}"
        yield f"  {name}.on = add i64 {name}.far, {row}"
        yield f"  {name} = getelementptr {self.kind}, ptr %w.c, i64 {name}.on"


class _Outputs(_Text):
    """The text of a convolution."""

    def _columns_of_row(self) -> Iterator[str]:
        return self._blocks("block", ("0", "%start", "%y.r"), "%positions", self._channels(self._block()))

    def _block(self) -> Iterator[str]:
        yield f"  %bias.at = getelementptr {self.kind}, ptr %bias, i64 %c"
        yield masked_load(self.form, "%bias.c", "%bias.at", self.mask)
        yield from self._fitting("%positions")
        yield from self._outputs_at()
        if self.thin.fetches:
            yield from self._fetch_from("y", "%to0", self.thin.outputs, writes=True)
            yield from self._fetch("%fetches", "some")
        yield "  br i1 %fits, label %whole.block, label %part"
        for way, label in (("all", "whole.block"), ("part", "part")):
            yield f"{label}:\n  br label %{way}.row\n{way}.row:"
            yield from self._sums(way, label)
            yield from self._store(way)
        yield "stored:"

    def _sums(self, way: str, before: str) -> Iterator[str]:
        """Yield the loop over rows of the window, whose sums are %way.sum0 and so on."""
        thin, end = self.thin, f"{way}.row"
        yield f"  %{way}.e = phi i64 [%firsts.this, %{before}], [%{way}.e.n, %{end}]"
        now = {p: f"%{way}.old{p}" for p in range(thin.outputs)}
        for p, was in now.items():
            yield f"  {was} = phi {self.vector} [%bias.c, %{before}], [%{way}.sum{p}, %{end}]"
        yield from self.words(f"%{way}.e", "x.rows", "w.rows", way=f"{way}.")
        whole = way == "all"
        yield from self._columns(way, "%x.block", "%block.col", f"%{way}.x.rows.this", thin.columns, is_whole=whole)
        last_of = {p: max(term.column for term in thin.terms if term.output == p) for p in now}
        for channel in range(thin.group):
            for element in sorted({element for element, _ in thin.factors}):
                name = f"%{way}.w{element}.{channel}"
                yield from self._weight_at(f"{name}.at", f"%{way}.w.rows.this", element, channel)
                yield masked_load(self.form, name, f"{name}.at", self.mask)
            for column in thin.columns:
                given = f"%{way}.x{column}.{channel}"
                yield from self._given(way, given, column, channel)
                for p, element, _ in (term for term in thin.terms if term.column == column):
                    last = channel == thin.group - 1 and last_of[p] == column
                    name = f"%{way}.sum{p}" if last else f"%{way}.new{p}.{element}.{channel}"
                    yield self.multiply_add(name, given, f"%{way}.w{element}.{channel}", now[p])
                    now[p] = name
        yield f"  %{way}.e.n = add i64 %{way}.e, 1"
        yield f"  %{way}.more = icmp slt i64 %{way}.e.n, %last"
        yield f"  br i1 %{way}.more, label %{way}.row, label %{way}.store"

    def _store(self, way: str) -> Iterator[str]:
        """Yield the stores of a block, which go on at %stored; values behind the last output are stored aside."""
        yield f"{way}.store:"
        for p in range(self.thin.outputs):
            to = f"%to{p}"
            if way == "part":
                to = f"%part.to{p}"
                yield f"  %is{p} = icmp sgt i64 %there, {p}\n  {to} = select i1 %is{p}, ptr %to{p}, ptr %aside"
            yield masked_store(self.form, f"%{way}.sum{p}", to, self.mask)
        yield "  br label %stored"


class _Weights(_Text):
    """The text of the gradient of weights: sums of a segment for some rows of the window, added to those in memory."""

    def _columns_of_row(self) -> Iterator[str]:
        return self._blocks("segment", ("0", "%start", "%y.r"), "%positions", self._segment(), "%blocks")

    def _segment(self) -> Iterator[str]:
        yield "  %far.end = add i64 %segment.p, %segment.p.on"
        yield "  %end = call i64 @llvm.smin.i64(i64 %far.end, i64 %positions)"
        step: int | str = 1 if self.thin.tall == 1 else "%e.on"
        window = self.loop("of.window", "e", "%last", self._of_window(), start="%firsts.this", step=step)
        yield from self._channels(window)

    def _of_window(self) -> Iterator[str]:
        """Yield the work on rows of the window from %e on: `tall` of them at once while so many are left."""
        tall = self.thin.tall
        if tall == 1:
            yield from _Rows(self.thin, 1, "of.window").lines()
            return
        yield f"  %rows.left = sub i64 %last, %e\n  %is.tall = icmp sge i64 %rows.left, {tall}"
        yield "  br i1 %is.tall, label %tall, label %single"
        for name, count in (("tall", tall), ("single", 1)):
            yield f"{name}:"
            yield from renamed(_Rows(self.thin, count, name).lines(), f"{name}.")
            yield f"  br label %{name}.end\n{name}.end:\n  br label %added"
        yield f"added:\n  %e.on = phi i64 [{tall}, %tall.end], [1, %single.end]"


Sum = tuple[int, int, int, int]  # its row of the window, element of that, channel, and turn


class _Rows(_Text):
    """The text that adds up a segment for so many rows of the window. block: the one that its first line is in."""

    def __init__(self, thin: Thin, count: int, block: str) -> None:
        super().__init__(thin)
        self.count, self.block = count, block
        self.factors = [(row, *factor) for row in range(count) for factor in self.thin.factors]
        self.turns = -(-TURNS // len(self.factors))
        self.sums: list[Sum] = [(*factor, turn) for factor in self.factors for turn in range(self.turns)]

    def lines(self) -> Iterator[str]:
        for row in range(self.count):
            yield f"  %e{row} = add i64 %e, {row}"
            yield from self.words(f"%e{row}", "x.rows", "w.rows", way=f"row{row}.")
        yield f"  %e.next = add i64 %e, {self.count}\n  %is.last = icmp eq i64 %e.next, %last"
        yield "  %fetches.now = select i1 %is.last, i64 %fetches, i64 %last"
        names = [self._named(of) for of in self.sums]
        carried = [(name, self.vector, "zeroinitializer", f"%{name}.n") for name in names]
        starts = "%segment.p", "%segment.col", "%segment.y"
        yield from self._blocks("block", starts, "%end", self._block(), carried=carried)
        yield from self._add_up()

    def _block(self) -> Iterator[str]:
        yield from self._fitting("%end")
        yield from self._outputs_at()
        if self.thin.fetches:
            yield from self._fetch("%fetches.now", "block", "%to0")
        yield "  br i1 %fits, label %all, label %border\nborder:\n  br i1 %in.all, label %part, label %few"
        whole = {way: self._whole(way) for way in ("all", "part")}
        for lines, _ in whole.values():
            yield from lines
        yield from self._few()
        yield "both:"
        for of in self.sums:
            ways = [f"[{sums[of]}, %{way}]" for way, (_, sums) in whole.items()]
            few = f"%{'' if of[-1] else 'one.'}{self._named(of)}"
            yield f"  %{self._named(of)}.n = phi {self.vector} {', '.join(ways)}, [{few}, %one]"

    @staticmethod
    def _named(of: Sum) -> str:
        return "sum{}.{}.{}.{}".format(*of)

    def _whole(self, way: str) -> tuple[list[str], dict[Sum, str]]:
        """Return the lines that add a whole block to the sums, and the names of these afterwards."""
        thin, now, lines = self.thin, {of: f"%{self._named(of)}" for of in self.sums}, [f"{way}:"]
        for row in range(self.count):
            rows = f"%row{row}.x.rows.this"
            lines += self._columns(f"{way}{row}", "%x.block", "%block.col", rows, thin.columns, is_whole=way == "all")
        lines += [masked_load(self.form, f"%{way}.g{p}", f"%to{p}", self.mask) for p in range(thin.outputs)]
        for column, row, channel in product(thin.columns, range(self.count), range(thin.group)):
            given = f"%{way}{row}.x{column}.{channel}"
            lines += self._given(f"{way}{row}", given, column, channel)
            for p, element, _ in (term for term in thin.terms if term.column == column):
                of = row, element, channel, p % self.turns
                name = f"%{way}{row}.new{p}.{element}.{channel}"
                lines.append(self.multiply_add(name, given, f"%{way}.g{p}", now[of]))
                now[of] = name
        return [*lines, "  br label %both"], now

    def _few(self) -> Iterator[str]:
        """Yield the loop that adds the outputs of an incomplete block one by one."""
        thin, alone = self.thin, [of for of in self.sums if of[-1] == 0]
        yield f"few:\n  %x.output = mul i64 %x.step, {thin.advance // thin.outputs}\n  br label %one\none:"
        yield "  %p = phi i64 [0, %few], [%p.n, %one]\n  %one.begin = phi i64 [%block.col, %few], [%one.begin.n, %one]"
        for name, start in (("x", "%x.block"), ("to", "%to0")):
            yield f"  %one.{name} = phi ptr [{start}, %few], [%one.{name}.n, %one]"
        for of in alone:
            name = self._named(of)
            yield f"  %few.{name} = phi {self.vector} [%{name}, %few], [%one.{name}, %one]"
        columns = {term.element: term.column for term in thin.terms if term.output == 0}
        for row in range(self.count):
            rows = f"%row{row}.x.rows.this"
            yield from self._columns(f"one{row}", "%one.x", "%one.begin", rows, sorted(columns.values()))
        yield masked_load(self.form, "%one.g", "%one.to", self.mask)
        for row, element, channel, turn in alone:
            given, name = f"%one{row}.x{element}.{channel}", self._named((row, element, channel, turn))
            yield from self._given(f"one{row}", given, columns[element], channel)
            yield self.multiply_add(f"%one.{name}", given, "%one.g", f"%few.{name}")
        yield f"  %p.n = add i64 %p, 1\n  %one.begin.n = add i64 %one.begin, {thin.advance // thin.outputs}"
        for name, step in (("x", "%x.output"), ("to", "%y.step")):
            yield f"  %one.{name}.n = getelementptr {self.kind}, ptr %one.{name}, i64 {step}"
        yield "  %p.more = icmp slt i64 %p.n, %there\n  br i1 %p.more, label %one, label %both"

    def _add_up(self) -> Iterator[str]:
        """Yield the lines that add the sums to those in memory."""
        for row, element, channel in self.factors:
            name = f"total{row}.{element}.{channel}"
            yield from self._weight_at(f"%{name}.at", f"%row{row}.w.rows.this", element, channel)
            yield masked_load(self.form, f"%{name}.0", f"%{name}.at", self.mask)
            for turn in range(self.turns):
                both = f"{self.vector} %{name}.{turn}, %{self._named((row, element, channel, turn))}.n"
                yield f"  %{name}.{turn + 1} = fadd {both}"
            yield masked_store(self.form, f"%{name}.{self.turns}", f"%{name}.at", self.mask)

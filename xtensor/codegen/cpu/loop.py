"""The innermost loop as LLVM IR: a program over the elements of a row, written as text that needs no optimiser.

It takes a whole vector per round; its last, partial round loads and stores under a mask. What stands around it, and
where the names come from that it uses, is said by who writes a kernel (llvm.py) or a row program (llvm_rows.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from ...base.dtypes import DType, is_generated
from ...plan.costs import ALIVE_TWICE, FUNCTIONS
from ...plan.program import Program, Reduction, Step
from ...storage.pool import ALIGNMENT
from .. import element
from .accumulators import ACCUMULATED, TURNS, combine, join, start, term_of, turns_of
from .primitives import BOOL, PRIMITIVES, LacksError, cast, divisor, small_power
from .vector import Vector, Writer

# How an operand lies along the innermost axis: side by side, the same element throughout, any other stride, or such a
# stride and side by side along the axis before it.
PACKED, SAME, STRIDED, CROSSWISE = "packed", "same", "strided", "crosswise"

# Programs of so many cheap steps have a loop of their own for whole rounds.
LIGHT = 16


class Form(NamedTuple):
    """What code depends on besides the program.

    lanes: elements per vector. depth: nested loops. lie: how each operand (inputs, outputs) lies along the innermost
    axis. streams: whether outputs bypass the caches, in whole vectors that begin where memory allows it.
    fetches: the packed inputs of which memory further on is fetched with each load; one more slot says how far on.
    strip: whether rows are parts of a strip of columns: what is further on is fetched row by row, and who calls the
    code waits for what goes past the caches. roomy: the operands that have room for a whole vector at their end: what
    is stored under a mask is not at hand when it is loaded again at once. brief: whether there is to be one loop for
    whole and partial rounds, however few the steps are.
    """

    lanes: int
    depth: int
    lie: tuple[str, ...]
    streams: bool = False
    fetches: tuple[int, ...] = ()
    strip: bool = False
    roomy: tuple[int, ...] = ()
    brief: bool = False


def memory_type(dtype: DType) -> str:
    """Return the LLVM type of one element in memory; booleans are bytes there."""
    if dtype.kind == "f":
        return {4: "float", 8: "double"}[dtype.itemsize]
    return f"i{8 * dtype.itemsize}"


def check(program: Program) -> None:
    """Raise LacksError for a program with a dtype that generated code does not have."""
    for dtype in (*program.dtypes, *(r.dtype for r in program.reductions), *(d for s in program.steps for d in s.loop)):
        if not is_generated(dtype):
            raise LacksError(f"{dtype} in generated code")


def lanes_of(program: Program, vector_bytes: int) -> int:
    """Return how many elements a vector holds: the widest dtype fills a register, or two where functions are computed.

    A function is a long chain of steps that wait for each other: two chains side by side fill the time (measured:
    5 to 30 % of it, where most a processor finds by itself; four run out of registers). So do two where many values
    are needed at once, and such code takes twice as long to compile.
    """
    waits = any([step.op.name in FUNCTIONS for step in program.steps])
    registers = 2 if waits and program.alive <= ALIVE_TWICE else 1
    if program.reductions and not waits:
        vector_bytes = max(vector_bytes, ACCUMULATED // TURNS)
    return max(registers * vector_bytes // program.widest, 1)


def brief(program: Program, form: Form, vector_bytes: int) -> Form:
    """Return a form whose code computes the same bits, takes the same arguments, and is compiled in less time.

    Vectors are of one register, but where reductions combine lanes, tiles have as many rows, or stores past the caches
    need whole vectors.
    """
    if program.reductions or form.streams or CROSSWISE in form.lie:
        return form._replace(brief=True)
    return form._replace(brief=True, lanes=max(vector_bytes // program.widest, 1))


def is_light(program: Program) -> bool:
    """Return whether a program has few steps, none of which is a function."""
    return len(program.steps) <= LIGHT and not any(step.op.name in FUNCTIONS for step in program.steps)


class Loop:
    """The text of one innermost loop while it is written, block by block.

    length: the name of the row's length. lines: where the text goes. pointers: of each input and output, the name of
    where its row begins. registers: of inputs that are the same along the row, by place, the names of those that need
    not be loaded. goes_on: where outputs bypass the caches, the names of whether the row goes on before its start and
    after its end, -1 or 0. further: memory that is fetched while the loop runs: the names of where it begins, and the
    bytes of an element.
    """

    def __init__(self, program: Program, form: Form, contract: bool, length: str, lines: list[str]) -> None:
        self.program = program
        self.form = form
        self.length = length
        self.lines = lines
        self.pointers: list[str] = []
        self.registers: dict[int, str] = {}
        self.goes_on: tuple[str, str] = ("0", "0")
        self.further: dict[str, int] = {}
        self.writer = Writer(form.lanes)
        self.writer.flags = "contract " if contract else ""
        self.index = "%i"  # the element that a round begins with
        self.operands = [*program.inputs, *(program.dtypes[number] for number in program.outputs)]
        self.operands += [reduction.dtype for reduction in program.reductions]
        self.scalars: list[Vector] = []
        self.mask = f"<{form.lanes} x i1>"
        self.steps = f"<{form.lanes} x i64>"

    def block(self, label: str) -> None:
        """Begin a block."""
        self.lines.append(f"{label}:")
        self.writer.block = label

    def written(self) -> None:
        """Take over what the writer has emitted."""
        self.lines += self.writer.lines
        self.writer.lines.clear()

    # ---- scalars

    def take_scalars(self) -> None:
        """Make vectors of the scalars, whose names are %c0, %c1 and so on, ahead of the loops."""
        for place, dtype in enumerate(self.program.scalars):
            self.scalars.append(self.spread_value(f"%c{place}", f"scalar{place}", dtype))
        self._divisors()

    def _divisors(self) -> None:
        """Write, ahead of the loops, what division by scalars needs of them."""
        first = len(self.program.inputs)
        for step in self.program.steps:
            if step.op.name in ("floor_divide", "remainder") and 0 <= step.args[1] - first < len(self.scalars):
                scalar = self.scalars[step.args[1] - first]
                if scalar.dtype.kind in "iu":
                    self.writer.divisors[scalar.name] = divisor(scalar)
        self.written()

    def lie(self, place: int) -> str | None:
        """Return how an operand lies; None for the result of a reduction, which is written once per row."""
        return self.form.lie[place] if place < len(self.form.lie) else None

    def counting(self) -> str:
        return "<" + ", ".join(f"i64 {lane}" for lane in range(self.form.lanes)) + ">"

    def spread(self, scalar: str, name: str, kind: str) -> None:
        """Make a vector of one number in every lane."""
        lanes = self.form.lanes
        vector = f"<{lanes} x {kind}>"
        self.lines.append(f"%{name}.one = insertelement {vector} poison, {kind} {scalar}, i32 0")
        self.lines.append(
            f"%{name} = shufflevector {vector} %{name}.one, {vector} poison, <{lanes} x i32> zeroinitializer"
        )

    def spread_value(self, scalar: str, name: str, dtype: DType) -> Vector:
        """Return a vector of one number, given as memory has it."""
        self.spread(scalar, name, memory_type(dtype))
        return self.value(f"%{name}", dtype)

    def value(self, name: str, dtype: DType) -> Vector:
        """Return a vector that lies in a register as memory has it, as its dtype; bytes become truth values."""
        if dtype != BOOL:
            return Vector(self.writer, name, dtype)
        self.written()
        truth = f"{name}.truth"
        self.lines.append(f"{truth} = icmp ne <{self.form.lanes} x i8> {name}, zeroinitializer")
        return Vector(self.writer, truth, BOOL)

    # ---- one row

    def write(self, before: str) -> list[str]:
        """Write the loop: head, whole or partial loads, the steps, whole or partial stores.

        before: the block that it comes after; it ends in the block %done. Returns the names of what the reductions
        give, as memory has it.
        """
        same = self.load_same()
        begin, first, end = self._aligned_bounds() if self.form.streams else ("0", "0", self.length)
        if self.form.strip:
            before = self._fetch_rows(before, begin)
        starts = [
            [self.writer.splat(start(one), one.dtype).name] * turns_of(one, self.form.lanes)
            for one in self.program.reductions
        ]
        back, entries = "next", ""
        if self._is_light() and self.program.reductions:
            before, begin, starts = self._quick_rounds(before, same, starts)
            self.lines.append("br label %head")
        elif self._is_light():
            self._quick_run(before, same, begin, first, end)
            back, entries = "next.rest", ", [%q.next, %quick.done]"
        else:
            self.lines.append("br label %head")
        self.block("head")
        self.lines.append(f"%i = phi i64 [{begin}, %{before}], [%i.next, %{back}]{entries}")
        self._open_reductions("acc", starts, before, "next")
        self.lines += [
            f"%i.next = add i64 %i, {self.form.lanes}",
            f"%fits = icmp ule i64 %i.next, {end}",
            f"%begun = icmp sge i64 %i, {first}",
            "%whole = and i1 %fits, %begun",
            "br i1 %whole, label %load.whole, label %load.part",
        ]
        vectors = self._loads(same, first, end)
        values = self.compute(vectors)
        terms = self._reduced(values)
        self.lines.append("br i1 %whole, label %store.whole, label %store.part")
        self._stores(values)
        self._close_reductions(terms)
        if entries:
            self.lines += [
                "%next.fits = icmp sle i64 %i.next, %last.whole",
                "br i1 %next.fits, label %quick, label %next.rest",
            ]
            self.block("next.rest")
        self.lines += [f"%more = icmp ult i64 %i.next, {end}", "br i1 %more, label %head, label %done"]
        self.block("done")
        return self._finish_reductions()

    def _is_light(self) -> bool:
        """Return whether a loop of its own for whole rounds pays: where masks cost as much as the few steps."""
        return not self.form.brief and is_light(self.program)

    def _quick_run(self, before: str, same: dict[int, Vector], begin: str, first: str, end: str) -> None:
        """Write a loop over whole rounds, between %head for a first and a last one that are not."""
        lanes = self.form.lanes
        self.lines += [
            f"%last.whole = sub i64 {end}, {lanes}",
            f"%start.begun = icmp sge i64 {begin}, {first}",
            f"%start.fits = icmp sle i64 {begin}, %last.whole",
            "%start.whole = and i1 %start.begun, %start.fits",
            "br i1 %start.whole, label %quick, label %head",
        ]
        self.block("quick")
        self.lines.append(f"%q = phi i64 [{begin}, %{before}], [%q.next, %quick.end], [%i.next, %next]")
        self.lines.append(f"%q.next = add i64 %q, {lanes}")
        self._quick_body(same)
        self.lines += ["br label %quick.end"]
        self.block("quick.end")
        self.lines += ["%q.fits = icmp sle i64 %q.next, %last.whole", "br i1 %q.fits, label %quick, label %quick.done"]
        self.block("quick.done")
        self.lines += [f"%q.more = icmp slt i64 %q.next, {end}", "br i1 %q.more, label %head, label %done"]

    def _quick_body(self, same: dict[int, Vector]) -> list[Vector]:
        """Write a whole round at %q; return its values."""
        self.index = "%q"
        self._fetch_further(".q")
        inputs = enumerate(self.program.inputs)
        values = self.compute(
            [same[at] if at in same else self.value(self.load(at, ".q", None), dtype) for at, dtype in inputs]
        )
        for place, number in enumerate(self.program.outputs, len(self.program.inputs)):
            self.store(place, values[number], ".sq", None)
        self.index = "%i"
        return values

    def _quick_rounds(
        self, before: str, same: dict[int, Vector], starts: list[list[str]]
    ) -> tuple[str, str, list[list[str]]]:
        """Write a loop over all rounds but the last, which are whole.

        Returns the block that it ends in, and what the last round begins with: its place and the accumulators.
        """
        self.lines.append("br label %quick")
        self.block("quick")
        self.lines.append(f"%q = phi i64 [0, %{before}], [%q.next, %quick.end]")
        accumulators = self._open_reductions("quick", starts, before, "quick.end")
        self.lines += [
            f"%q.next = add i64 %q, {self.form.lanes}",
            f"%q.more = icmp ult i64 %q.next, {self.length}",
            "br i1 %q.more, label %quick.body, label %quick.done",
        ]
        self.block("quick.body")
        values = self._quick_body(same)
        for place, term in enumerate(self._reduced(values, "quick")):
            kind = self._register_type(self.program.reductions[place])
            self.lines.append(f"%quick{place}.new = bitcast {kind} {term.name} to {kind}")
        self.lines.append("br label %quick.end")
        self.block("quick.end")
        self.lines.append("br label %quick")
        self.block("quick.done")
        return "quick.done", "%q", accumulators

    def _is_run(self, place: int) -> bool:
        """Return whether the elements of a row lie side by side, in memory or in a tile."""
        return self.lie(place) in (PACKED, CROSSWISE)

    def _aligned_bounds(self) -> tuple[str, str, str]:
        """Return where a row's first round begins, at or before its first element, that element, and the row's end.

        Rounds begin where memory is aligned. A row that goes on beyond an end is shifted there to where memory is
        aligned before that end: no line is written twice, in parts.
        """
        first, (before, after) = len(self.program.inputs), self.goes_on
        places = self.operands[first].itemsize.bit_length() - 1
        self.lines += [
            f"%first.address = ptrtoint ptr {self.pointers[first]} to i64",
            f"%first.element = lshr i64 %first.address, {places}",
            f"%before.row = and i64 %first.element, {self.form.lanes - 1}",
            "%begin = sub i64 0, %before.row",
            f"%row.first = and i64 %begin, {before}",
            f"%beyond = and i64 %before.row, {after}",
            f"%row.end = sub i64 {self.length}, %beyond",
        ]
        return "%begin", "%row.first", "%row.end"

    def load_same(self) -> dict[int, Vector]:
        """Load, once per row, what stays the same along it."""
        values = {}
        for place, dtype in enumerate(self.program.inputs):
            if self.lie(place) == SAME:
                kind, name = memory_type(dtype), self.registers.get(place)
                if name is None:
                    name = f"%same{place}.value"
                    self.lines.append(f"{name} = load {kind}, ptr {self.pointers[place]}, align 1")
                values[place] = self.spread_value(name, f"same{place}", dtype)
        return values

    def _vector_type(self, dtype: DType) -> str:
        return f"<{self.form.lanes} x {memory_type(dtype)}>"

    def _addresses(self, place: int, suffix: str) -> str:
        """Write where a round's elements are: the first where they are packed, else each; return the name."""
        base, name = self.pointers[place], f"%at{place}{suffix}"
        if self._is_run(place):
            self.lines.append(
                f"{name} = getelementptr {memory_type(self.operands[place])}, ptr {base}, i64 {self.index}"
            )
            return name
        self.lines.append(f"{name}.offset = mul i64 {self.index}, %s{place}")
        self.lines.append(f"{name}.first = getelementptr i8, ptr {base}, i64 {name}.offset")
        self.lines.append(f"{name} = getelementptr i8, ptr {name}.first, {self.steps} %lanes{place}")
        return name

    def _loads(self, same: dict[int, Vector], first: str, end: str) -> list[Vector]:
        """Write both kinds of loads, for rounds between two bounds, and return the loaded inputs."""
        moving = [place for place in range(len(self.program.inputs)) if place not in same]
        self.block("load.whole")
        self._fetch_further(".w")
        whole = [self.load(place, ".w", None) for place in moving]
        self.lines.append("br label %body")
        self.block("load.part")
        lanes = self.form.lanes
        self.lines += [f"%run = sub i64 {end}, {first}", f"%from.first = sub i64 %i, {first}"]
        self.spread("%run", "ends", "i64")
        self.spread("%from.first", "firsts", "i64")
        self.lines.append(f"%each = add {self.steps} %firsts, {self.counting()}")
        self.lines.append(f"%mask.part = icmp ult {self.steps} %each, %ends")  # what lies before the first is huge
        part = [self.load(place, ".p", "%mask.part") for place in moving]
        self.lines.append("br label %body")
        self.block("body")
        ones = f"<{', '.join(['i1 true'] * lanes)}>"
        self.lines.append(f"%mask = phi {self.mask} [{ones}, %load.whole], [%mask.part, %load.part]")
        for place, one, other in zip(moving, whole, part, strict=True):
            kind = self._vector_type(self.program.inputs[place])
            self.lines.append(f"%in{place} = phi {kind} [{one}, %load.whole], [{other}, %load.part]")
        inputs = enumerate(self.program.inputs)
        return [same[place] if place in same else self.value(f"%in{place}", dtype) for place, dtype in inputs]

    def load(self, place: int, suffix: str, mask: str | None) -> str:
        """Write one load, whole or under a mask; return the name of what was loaded."""
        dtype = self.program.inputs[place]
        kind, short = self._vector_type(dtype), self._short(dtype)
        address, name = self._addresses(place, suffix), f"%load{place}{suffix}"
        if self._is_run(place):
            if mask is None or place in self.form.roomy:
                if place in self.form.fetches and not self.form.strip:
                    self._fetch_ahead(place, address)
                self.lines.append(f"{name} = load {kind}, ptr {address}, align 1")
            else:
                self._declare(f"{kind} @llvm.masked.load.{short}.p0(ptr, {self.mask}, {kind})")
                self.lines.append(
                    f"{name} = call {kind} @llvm.masked.load.{short}.p0"
                    f"(ptr align 1 {address}, {self.mask} {mask}, {kind} zeroinitializer)"
                )
            return name
        # align 1 throughout: memory that is shared with others begins anywhere.
        if mask is None and not self.form.brief:
            return self._load_each(place, address, name)
        pointers = f"<{self.form.lanes} x ptr>"
        self._declare(f"{kind} @llvm.masked.gather.{short}.v{self.form.lanes}p0({pointers}, {self.mask}, {kind})")
        given = mask or f"<{', '.join(['i1 true'] * self.form.lanes)}>"
        self.lines.append(
            f"{name} = call {kind} @llvm.masked.gather.{short}.v{self.form.lanes}p0"
            f"({pointers} align 1 {address}, {self.mask} {given}, {kind} zeroinitializer)"
        )
        return name

    def _load_each(self, place: int, address: str, name: str) -> str:
        """Write the loads of a whole round, element by element: gathers take two to three times as long (Zen 5)."""
        dtype = self.program.inputs[place]
        kind, vector = memory_type(dtype), "poison"
        for lane, at in enumerate(self._each_address(place, address)):
            self.lines.append(f"{at}.value = load {kind}, ptr {at}, align 1")
            self.lines.append(
                f"{name}.{lane} = insertelement {self._vector_type(dtype)} {vector}, {kind} {at}.value, i32 {lane}"
            )
            vector = f"{name}.{lane}"
        return vector

    def _store_each(self, place: int, address: str, vector: str) -> None:
        """Write the stores of a whole round, element by element, as loads are."""
        dtype = self.operands[place]
        for lane, at in enumerate(self._each_address(place, address)):
            self.lines.append(f"{at}.value = extractelement {vector}, i32 {lane}")
            self.lines.append(f"store {memory_type(dtype)} {at}.value, ptr {at}, align 1")

    def _each_address(self, place: int, address: str) -> list[str]:
        """Write where each element of a round is, one stride after the other; return the names."""
        names = [f"{address}.first", *(f"{address}.{lane}" for lane in range(1, self.form.lanes))]
        for before, name in pairwise(names):
            self.lines.append(f"{name} = getelementptr i8, ptr {before}, i64 %s{place}")
        return names

    def _fetch_ahead(self, place: int, address: str) -> None:
        """Have memory fetched that is read later: processors look less far ahead."""
        self.lines.append(f"{address}.ahead = getelementptr i8, ptr {address}, i64 %ahead{place}")
        self.fetch(f"{address}.ahead")

    def _fetch_further(self, suffix: str) -> None:
        """Have memory fetched that others read later."""
        for base, size in self.further.items():
            self.lines.append(f"{base}{suffix}.bytes = mul i64 {self.index}, {size}")
            self.lines.append(f"{base}{suffix} = getelementptr i8, ptr {base}, i64 {base}{suffix}.bytes")
            self.fetch(f"{base}{suffix}")

    def fetch(self, address: str) -> None:
        """Have memory fetched that is read later."""
        self._declare("void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        self.lines.append(f"call void @llvm.prefetch.p0(ptr {address}, i32 0, i32 3, i32 1)")

    def _fetch_rows(self, before: str, begin: str) -> str:
        """Have rows fetched that are read later, one after the other; return the block that ends in.

        Line by line of several rows in turn, memory gives a quarter less.
        """
        for place in self.form.fetches:
            name, size = f"%fetch{place}", self.operands[place].itemsize
            self.lines += [
                f"{name}.bytes = mul i64 {self.length}, {size}",
                f"{name}.from = mul i64 {begin}, {size}",
                f"{name}.first = getelementptr i8, ptr {self.pointers[place]}, i64 {name}.from",
                f"{name}.end = sub i64 {name}.bytes, 1",
                f"br label {name}",
            ]
            self.block(name[1:])
            self.lines.append(f"{name}.at = phi i64 [0, %{before}], [{name}.next, {name}]")
            self.lines.append(f"{name}.line = getelementptr i8, ptr {name}.first, i64 {name}.at")
            self._fetch_ahead(place, f"{name}.line")
            self.lines += [
                f"{name}.next = add i64 {name}.at, {ALIGNMENT}",
                f"{name}.more = icmp ult i64 {name}.next, {name}.bytes",
                f"br i1 {name}.more, label {name}, label {name}.done",
            ]
            before = f"fetch{place}.done"
            self.block(before)
            if not self.form.streams:  # otherwise lines begin where rounds do
                self.lines.append(f"{name}.last = getelementptr i8, ptr {name}.first, i64 {name}.end")
                self._fetch_ahead(place, f"{name}.last")
        return before

    def _short(self, dtype: DType) -> str:
        """Return a vector type as intrinsics' names spell it."""
        return f"v{self.form.lanes}{'f' if dtype.kind == 'f' else 'i'}{8 * dtype.itemsize}"

    def _declare(self, text: str) -> None:
        self.writer.declarations.add(f"declare {text}")

    # ---- the steps

    def compute(self, inputs: Sequence[Vector]) -> list[Vector]:
        """Write the program's steps and return the vector of every value."""
        values = [*inputs, *self.scalars]
        known = dict(self.program.known)
        for step in self.program.steps:
            operands = [cast(values[arg], dtype) for arg, dtype in zip(step.args, step.loop, strict=True)]
            exponent = known.get(step.args[-1])
            if exponent is not None and operands[0].dtype.kind == "f":
                result = small_power(operands[0], int(exponent))
            else:
                result = _compute(step, operands)
            values.append(cast(result, step.dtype))
        self.written()
        return values

    # ---- stores

    def _stores(self, values: Sequence[Vector]) -> None:
        first = len(self.program.inputs)
        stored = []
        for number in self.program.outputs:
            stored.append(values[number])
        self.block("store.whole")
        for place, value in enumerate(stored, first):
            self.store(place, value, ".sw", None)
        self.lines.append("br label %next")
        self.block("store.part")
        for place, value in enumerate(stored, first):
            self.store(place, value, ".sp", "%mask")
        self.lines.append("br label %next")
        self.block("next")

    def store(self, place: int, value: Vector, suffix: str, mask: str | None) -> None:
        """Write one store, whole or under a mask."""
        kind, short = self._vector_type(value.dtype), self._short(value.dtype)
        name = value.name
        if value.dtype == BOOL:
            name = f"%bytes{place}{suffix}"
            self.lines.append(f"{name} = zext {self.mask} {value.name} to {kind}")
        address = self._addresses(place, suffix)
        if self._is_run(place):
            if mask is None or place in self.form.roomy:
                how = (
                    f"align {min(self.form.lanes * value.dtype.itemsize, ALIGNMENT)}, !nontemporal !0"
                    if self.form.streams
                    else "align 1"
                )
                self.lines.append(f"store {kind} {name}, ptr {address}, {how}")
            else:
                self._declare(f"void @llvm.masked.store.{short}.p0({kind}, ptr, {self.mask})")
                self.lines.append(
                    f"call void @llvm.masked.store.{short}.p0({kind} {name}, ptr align 1 {address}, {self.mask} {mask})"
                )
            return
        if mask is None and not self.form.brief:
            self._store_each(place, address, f"{kind} {name}")
            return
        pointers = f"<{self.form.lanes} x ptr>"
        self._declare(f"void @llvm.masked.scatter.{short}.v{self.form.lanes}p0({kind}, {pointers}, {self.mask})")
        given = mask or f"<{', '.join(['i1 true'] * self.form.lanes)}>"
        self.lines.append(
            f"call void @llvm.masked.scatter.{short}.v{self.form.lanes}p0"
            f"({kind} {name}, {pointers} align 1 {address}, {self.mask} {given})"
        )

    # ---- reductions of a row

    def _open_reductions(self, name: str, starts: list[list[str]], before: str, back: str) -> list[list[str]]:
        """Write the accumulators of a loop, which begin with others from the block before; return their names."""
        found = []
        for place, reduction in enumerate(self.program.reductions):
            kind = self._register_type(reduction)
            turns = [f"%{name}{place}.{turn}" for turn in range(len(starts[place]))]
            for one, source, first in zip(turns, [*turns[1:], f"%{name}{place}.new"], starts[place], strict=True):
                self.lines.append(f"{one} = phi {kind} [{first}, %{before}], [{source}, %{back}]")
            found.append(turns)
        return found

    def _register_type(self, reduction: Reduction) -> str:
        return self.mask if reduction.dtype == BOOL else self._vector_type(reduction.dtype)

    def _reduced(self, values: Sequence[Vector], name: str = "acc") -> list[Vector]:
        """Write what each accumulator becomes in a whole round."""
        terms = []
        for place, reduction in enumerate(self.program.reductions):
            accumulator = Vector(self.writer, f"%{name}{place}.0", reduction.dtype)
            terms.append(combine(reduction, accumulator, term_of(reduction, values[reduction.arg])))
        self.written()
        return terms

    def _close_reductions(self, terms: Sequence[Vector]) -> None:
        """In a partial round, lanes beyond the end keep their accumulator."""
        for place, (reduction, term) in enumerate(zip(self.program.reductions, terms, strict=True)):
            kind = self._register_type(reduction)
            self.lines.append(f"%acc{place}.new = select {self.mask} %mask, {kind} {term.name}, {kind} %acc{place}.0")

    def _finish_reductions(self) -> list[str]:
        """Combine halves of all accumulators, turns and then lanes; return the names of the row's results.

        However many lanes and rounds there are, the same elements meet, the tree being the same turned round.
        """
        results = []
        for place, reduction in enumerate(self.program.reductions):
            last = turns_of(reduction, self.form.lanes) - 1
            turns = [f"%acc{place}.{turn + 1}" for turn in range(last)] + [f"%acc{place}.new"]
            vectors = [Vector(self.writer, name, reduction.dtype) for name in turns]
            while (half := len(vectors) // 2) > 0:
                vectors = [join(reduction, a, b) for a, b in zip(vectors[:half], vectors[half:], strict=True)]
            across = self._across_lanes(reduction, vectors[0])
            results.append(self.first_lane(~across if reduction.op.name == "all" else across, f"result{place}"))
        return results

    def _across_lanes(self, reduction: Reduction, vector: Vector) -> Vector:
        width = self.form.lanes
        while width > 1:
            width //= 2
            order = ", ".join(f"i32 {(lane + width) % self.form.lanes}" for lane in range(self.form.lanes))
            text = (
                f"shufflevector {vector.type} {vector.name}, {vector.type} poison, <{self.form.lanes} x i32> <{order}>"
            )
            vector = join(reduction, vector, self.writer.emit(text, vector.dtype))
        return vector

    def first_lane(self, vector: Vector, name: str) -> str:
        """Write what the first lane of a vector has, as memory has it; return its name."""
        self.written()
        bit = f"%{name}.bit" if vector.dtype == BOOL else f"%{name}"
        self.lines.append(f"{bit} = extractelement {vector.type} {vector.name}, i32 0")
        if vector.dtype == BOOL:
            self.lines.append(f"%{name} = zext i1 {bit} to i8")
        return f"%{name}"


# ---- steps by name


def _compute(step: Step, operands: list[Vector]) -> Vector:
    """Write one step: a primitive, a conversion, or a row's formula."""
    if step.op.name == "astype":
        return cast(operands[0], step.dtype)
    primitive = PRIMITIVES.get(step.op.name)
    if primitive is not None:
        return primitive(*operands)
    if step.op.element is None:
        raise LacksError(f"{step.op.name} in generated code")
    if any(operand.dtype.kind != "f" for operand in operands):
        raise LacksError(f"the formula of {step.op.name} in {operands[0].dtype}")
    result: Vector = element.evaluate(step.op.element, _machine, *operands)
    return result


def _machine(name: str) -> Any:
    """Return a primitive for formulas, where a Python number takes the dtype of the vectors beside it."""
    primitive = PRIMITIVES.get(name)
    if primitive is None:
        raise LacksError(f"{name} in generated code")

    def compute(*operands: Any) -> Vector:
        vector = next(o for o in operands if isinstance(o, Vector) and o.dtype.kind == "f")
        given = [o if isinstance(o, Vector) else vector.writer.splat(o, vector.dtype) for o in operands]
        return primitive(*given)

    return compute

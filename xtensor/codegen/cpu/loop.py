"""The innermost loop as LLVM IR: a program over the elements of a row, written as text that needs no optimiser.

It takes a whole vector per iteration; its last, partial iteration loads and stores under a mask. The code around it,
which defines the names that it uses, is in kernel.py, rows.py and columns.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...base.dtypes import DType, is_generated
from ...plan.costs import ALIVE_TWICE, FUNCTIONS
from ...plan.program import Program, Reduction, Step
from ...storage.pool import ALIGNMENT
from .. import element
from . import complex as pairs
from .accumulators import ACCUMULATED, TURNS, combine, held, join, result_of, start, term_of, turns_of
from .complex import Complex, Value, cast, named, parts_of, splat
from .division import divisor
from .moves import CROSSWISE, SAME, Form, Moves, memory_type
from .primitives import PRIMITIVES, known_power
from .vector import LacksError, Vector

# Programs of at most so many cheap steps have a loop of their own for whole iterations.
LIGHT = 16


def check(program: Program) -> None:
    """Raise LacksError for a program with a dtype that generated code does not have."""
    for dtype in (*program.dtypes, *(r.dtype for r in program.reductions), *(d for s in program.steps for d in s.loop)):
        if not is_generated(dtype):
            raise LacksError(f"{dtype} in generated code")


def lanes_of(program: Program, vector_bytes: int) -> int:
    """Return how many elements a vector holds: the widest dtype fills a register, or two if functions are computed.

    A function is a long chain of instructions that wait for each other: two chains side by side take 5 to 30 % less
    time (measured; processors overlap most by themselves). Four chains run out of registers, and so do two if many
    values are alive at once, which takes twice as long to compile: then a vector is one register.
    """
    waits = any([step.op.name in FUNCTIONS for step in program.steps])
    registers = 2 if waits and program.alive <= ALIVE_TWICE else 1
    if program.reductions and not waits:
        vector_bytes = max(vector_bytes, ACCUMULATED // TURNS)
    return max(registers * vector_bytes // program.widest_part, 1)


def brief(program: Program, form: Form, vector_bytes: int) -> Form:
    """Return a form whose code computes the same bits, takes the same arguments, and is compiled in less time.

    Vectors are of one register, unless reductions combine lanes, tiles have as many rows as lanes, or stores that
    bypass the caches need whole vectors.
    """
    if program.reductions or form.streams or CROSSWISE in form.lie:
        return form._replace(brief=True)
    return form._replace(brief=True, lanes=max(vector_bytes // program.widest_part, 1))


def is_light(program: Program) -> bool:
    """Return whether a program has few steps, none of which is a function."""
    return len(program.steps) <= LIGHT and not any(step.op.name in FUNCTIONS for step in program.steps)


class Loop(Moves):
    """The text of one innermost loop while it is written, block by block.

    length: the name of the row's length. registers: by place, the names of those inputs that are the same along the row
    and need not be loaded. goes_on: if outputs bypass the caches, the names of two numbers, -1 or 0: whether the row
    goes on before its start and after its end. further: memory that is prefetched while the loop runs: the names of
    pointers to its beginning, and the bytes of an element.
    """

    def __init__(self, program: Program, form: Form, contract: bool, length: str, lines: list[str]) -> None:
        super().__init__(program, form, contract, lines)
        self.length = length
        self.registers: dict[int, str] = {}
        self.goes_on: tuple[str, str] = ("0", "0")
        self.further: dict[str, int] = {}
        self.scalars: list[Value] = []

    # ---- scalars

    def take_scalars(self) -> None:
        """Broadcast the scalars, whose names are %c0, %c1 and so on, to vectors, ahead of the loops."""
        for place, dtype in enumerate(self.program.scalars):
            self.scalars.append(self.spread_value(f"%c{place}", f"scalar{place}", dtype))
        self._divisors()

    def _divisors(self) -> None:
        """Write, ahead of the loops, the values for divisions by scalars that depend on these alone."""
        first = len(self.program.inputs)
        for step in self.program.steps:
            if step.op.name in ("floor_divide", "remainder") and 0 <= step.args[1] - first < len(self.scalars):
                scalar = self.scalars[step.args[1] - first]
                if isinstance(scalar, Vector) and scalar.dtype.kind in "iu":
                    self.writer.divisors[scalar.name] = divisor(scalar)
        self.written()

    # ---- one row

    def write(self, before: str) -> list[str]:
        """Write the loop: head, whole or partial loads, the steps, whole or partial stores.

        before: the block before it; it ends in the block %done. Returns the names of the reductions' results, in the
        types that they have in memory.
        """
        same = self.load_same()
        begin, first, end = self._aligned_bounds() if self.form.streams else ("0", "0", self.length)
        if self.form.strip:
            before = self._fetch_rows(before, begin)
        starts = [
            [splat(self.writer, start(one), self._held(one))] * turns_of(one, self.form.lanes)
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
        """Return whether a loop of its own for whole iterations pays: if masks cost as much as the few steps."""
        return not self.form.brief and is_light(self.program)

    def _quick_run(self, before: str, same: dict[int, Value], begin: str, first: str, end: str) -> None:
        """Write a loop over whole iterations; %head does the first and the last one if they are partial."""
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

    def _quick_body(self, same: dict[int, Value]) -> list[Value]:
        """Write a whole iteration at %q; return its values."""
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
        self, before: str, same: dict[int, Value], starts: list[list[Value]]
    ) -> tuple[str, str, list[list[Value]]]:
        """Write a loop over all iterations but the last; these are whole.

        Returns the block that it ends in, and the index and the accumulators with which the last iteration begins.
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
            for new, part in self._parts(f"%quick{place}.new", term):
                self.lines.append(f"{new} = bitcast {part.type} {part.name} to {part.type}")
        self.lines.append("br label %quick.end")
        self.block("quick.end")
        self.lines.append("br label %quick")
        self.block("quick.done")
        return "quick.done", "%q", accumulators

    def _parts(self, name: str, value: Value) -> list[tuple[str, Vector]]:
        """Return the vectors that make up a value, each with the name that it has if the value is called `name`."""
        names = [one.name for one in parts_of(named(self.writer, name, value.dtype))]
        return list(zip(names, parts_of(value), strict=True))

    def _aligned_bounds(self) -> tuple[str, str, str]:
        """Return the index where a row's first iteration begins, that of the row's first element, and the row's end.

        Iterations begin where memory is aligned. A row that goes on beyond an end is cut, or begins, where memory is
        aligned before that end, so that no cache line is written twice, in parts.
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

    def load_same(self) -> dict[int, Value]:
        """Load, once per row, the inputs that are the same along it."""
        values = {}
        for place, dtype in enumerate(self.program.inputs):
            if self.lie(place) == SAME:
                kind, name = memory_type(dtype), self.registers.get(place)
                if name is None:
                    name = f"%same{place}.value"
                    self.lines.append(f"{name} = load {kind}, ptr {self.pointers[place]}, align 1")
                values[place] = self.spread_value(name, f"same{place}", dtype)
        return values

    def _loads(self, same: dict[int, Value], first: str, end: str) -> list[Value]:
        """Write whole and partial loads, for iterations between two bounds, and return the loaded inputs."""
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
        self.lines.append(f"%mask.part = icmp ult {self.steps} %each, %ends")  # unsigned: those before it are huge
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

    def _fetch_further(self, suffix: str) -> None:
        """Write prefetches of memory that other stages read later."""
        for base, size in self.further.items():
            self.lines.append(f"{base}{suffix}.bytes = mul i64 {self.index}, {size}")
            self.lines.append(f"{base}{suffix} = getelementptr i8, ptr {base}, i64 {base}{suffix}.bytes")
            self.fetch(f"{base}{suffix}")

    def _fetch_rows(self, before: str, begin: str) -> str:
        """Write prefetches of rows that are read later, one row after the other; return the last block.

        Memory would give a quarter less if the cache lines of several rows were prefetched in turn.
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
            if not self.form.streams:  # otherwise cache lines begin where iterations do
                self.lines.append(f"{name}.last = getelementptr i8, ptr {name}.first, i64 {name}.end")
                self._fetch_ahead(place, f"{name}.last")
        return before

    # ---- the steps

    def compute(self, inputs: Sequence[Value]) -> list[Value]:
        """Write the program's steps and return the vector of every value."""
        values = [*inputs, *self.scalars]
        known = dict(self.program.known)
        for step in self.program.steps:
            operands: list[Any] = [cast(values[arg], dtype) for arg, dtype in zip(step.args, step.loop, strict=True)]
            exponent = known.get(step.args[-1])
            if any([isinstance(operand, Complex) for operand in operands]) and step.op.name != "astype":
                result = pairs.compute(step.op.name, operands, exponent)
            elif exponent is not None and operands[0].dtype.kind == "f":
                result = known_power(operands[0], exponent)
            else:
                result = _compute(step, operands)
            values.append(cast(result, step.dtype))
        self.written()
        return values

    # ---- stores

    def _stores(self, values: Sequence[Value]) -> None:
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

    # ---- reductions of a row

    def _held(self, reduction: Reduction) -> DType:
        return held(reduction, self.program.widest_part)

    def _open_reductions(self, name: str, starts: list[list[Value]], before: str, back: str) -> list[list[Value]]:
        """Write the accumulators of a loop, whose initial values come from the block before; return them."""
        found = []
        for place, reduction in enumerate(self.program.reductions):
            names = [*(f"%{name}{place}.{turn}" for turn in range(len(starts[place]))), f"%{name}{place}.new"]
            turns = [named(self.writer, one, self._held(reduction)) for one in names]
            for turn, begin in enumerate(starts[place]):
                for one, source, first in zip(*map(parts_of, (*turns[turn : turn + 2], begin)), strict=True):
                    self.lines.append(
                        f"{one.name} = phi {one.type} [{first.name}, %{before}], [{source.name}, %{back}]"
                    )
            found.append(turns[:-1])
        return found

    def _reduced(self, values: Sequence[Value], name: str = "acc") -> list[Value]:
        """Write the new value of each accumulator after a whole iteration; return these."""
        terms = []
        for place, reduction in enumerate(self.program.reductions):
            accumulator = named(self.writer, f"%{name}{place}.0", self._held(reduction))
            terms.append(combine(reduction, accumulator, term_of(reduction, values[reduction.arg], accumulator.dtype)))
        self.written()
        return terms

    def _close_reductions(self, terms: Sequence[Value]) -> None:
        """Write selects by which lanes beyond the end keep their accumulator in a partial iteration."""
        for place, term in enumerate(terms):
            before = parts_of(named(self.writer, f"%acc{place}.0", term.dtype))
            for (name, part), old in zip(self._parts(f"%acc{place}.new", term), before, strict=True):
                kind = part.type
                self.lines.append(f"{name} = select {self.mask} %mask, {kind} {part.name}, {kind} {old.name}")

    def _finish_reductions(self) -> list[str]:
        """Combine halves of all accumulators, first turns and then lanes; return the names of the row's results.

        However many lanes and iterations there are, the same elements meet, in the same tree.
        """
        results = []
        for place, reduction in enumerate(self.program.reductions):
            last = turns_of(reduction, self.form.lanes) - 1
            turns = [f"%acc{place}.{turn + 1}" for turn in range(last)] + [f"%acc{place}.new"]
            vectors = [named(self.writer, name, self._held(reduction)) for name in turns]
            while (half := len(vectors) // 2) > 0:
                vectors = [join(reduction, a, b) for a, b in zip(vectors[:half], vectors[half:], strict=True)]
            across = result_of(reduction, self._across_lanes(reduction, vectors[0]))
            results.append(self.first_lane(across, f"result{place}"))
        return results

    def _across_lanes(self, reduction: Reduction, vector: Value) -> Value:
        width = self.form.lanes
        while width > 1:
            width //= 2
            order = ", ".join(f"i32 {(lane + width) % self.form.lanes}" for lane in range(self.form.lanes))
            turned = [
                self.writer.emit(
                    f"shufflevector {part.type} {part.name}, {part.type} poison, <{self.form.lanes} x i32> <{order}>",
                    part.dtype,
                )
                for part in parts_of(vector)
            ]
            vector = join(reduction, vector, vector.of(*turned) if isinstance(vector, Complex) else turned[0])
        return vector


# ---- steps by name


def _compute(step: Step, operands: list[Any]) -> Any:
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

"""The steps that follow a contraction, before its sums leave the processor: a program computed for each vector of them.

The functions that finish a tile (see gemm.py) find in slots of 8 bytes the address of each input and each output of the
program, and then its scalars. Inputs of the shape of C, and all outputs, lie as C does.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ...plan.program import Program
from .complex import Value
from .loop import Loop, check, is_light
from .moves import PACKED, SAME, Form, memory_type, slots_of
from .vector import Vector, Writer

# How an input lies beside C: as C does, with one number for each row or for each column, or with a single number.
ALIKE, ROWS, COLUMNS, SINGLE = "alike", "rows", "columns", "single"


class Finish(NamedTuple):
    """A program on sums: which of its inputs is the sum, how the others lie, whether multiply-adds are contracted."""

    program: Program
    sum: int
    lies: tuple[str, ...]
    contract: bool = False

    @property
    def in_registers(self) -> bool:
        """Whether whole tiles are finished in the registers of their sums, repeating the text for each vector."""
        return is_light(self.program)

    @property
    def slots(self) -> int:
        """The number of slots: for the addresses of a group's arrays, and the scalars."""
        program = self.program
        words = [slots_of(memory_type(dtype)) for dtype in program.scalars]
        return len(program.inputs) + len(program.outputs) + sum(words)


class Steps:
    """The text of a program in a function that finishes sums, while it is written; %slots points to its slots.

    Raises LacksError where generated code lacks a step or a dtype of it.
    """

    def __init__(self, finish: Finish, lanes: int) -> None:
        program = finish.program
        check(program)
        self.finish, self.program = finish, program
        self.lines: list[str] = []
        lie = [PACKED if one in (ALIKE, COLUMNS) else SAME for one in finish.lies]
        lie[finish.sum] = PACKED
        form = Form(lanes, 1, (*lie, *[PACKED] * len(program.outputs)))
        self._loop = Loop(program, form, finish.contract, "", self.lines)
        self._same: dict[int, Value] = {}
        self._columns: dict[tuple[int, str], Value] = {}

    @property
    def writer(self) -> Writer:
        return self._loop.writer

    def begin(self, block: str) -> None:
        """Load all slots, and inputs that are a single number; block: the one that these lines are in."""
        loop = self._loop
        loop.writer.block = block
        names = [f"%p{place}" for place in range(len(loop.operands))]
        kinds = [*["ptr"] * len(names), *map(memory_type, self.program.scalars)]
        slot = 0
        for at, kind in enumerate(kinds):
            name = names[at] if at < len(names) else f"%c{at - len(names)}"
            self.lines.append(f"{name}.slot = getelementptr i64, ptr %slots, i64 {slot}")
            self.lines.append(f"{name} = load {kind}, ptr {name}.slot, align 8")
            slot += slots_of(kind)
        loop.pointers = names
        loop.take_scalars()
        self._load_same(SINGLE, "0", "")

    def fetch(self, places: Iterable[str], suffix: str = "") -> None:
        """Prefetch inputs that lie as C does at some of its places, each of one vector."""
        for number, (dtype, lie) in enumerate(zip(self.program.inputs, self.finish.lies, strict=True)):
            if lie != ALIKE or number == self.finish.sum:
                continue
            name = f"%fetch{number}{suffix}"
            self.lines.append(f"{name}.slot = getelementptr i64, ptr %slots, i64 {number}")
            self.lines.append(f"{name} = load ptr, ptr {name}.slot")
            for n, place in enumerate(places):
                self.lines.append(f"{name}.{n} = getelementptr {memory_type(dtype)}, ptr {name}, i64 {place}")
                self._loop.fetch(f"{name}.{n}")

    def row(self, number: str, suffix: str = "") -> None:
        """Load the inputs' numbers for a row of C."""
        self._load_same(ROWS, number, suffix)

    def column(self, number: str, mask: str) -> None:
        """Load the inputs' numbers for a vector of columns of C, from a column on."""
        for place, lie in enumerate(self.finish.lies):
            if lie == COLUMNS and place != self.finish.sum:
                self._along(place, number, "", mask)

    def begun(self, block: str = "entry") -> list[str]:
        """Return the lines of `begin`."""
        self.begin(block)
        return self.taken()

    def taken(self) -> list[str]:
        """Return the lines written so far, and remove them."""
        lines, self.lines[:] = [*self.lines], []
        return lines

    def _load_same(self, lie: str, number: str, suffix: str) -> None:
        """Broadcast to vectors the numbers of the inputs that lie in one way."""
        for place, dtype in enumerate(self.program.inputs):
            if self.finish.lies[place] == lie and place != self.finish.sum:
                name, kind = f"%in.same{place}{suffix}", memory_type(dtype)
                self.lines.append(f"{name}.at = getelementptr {kind}, ptr %p{place}, i64 {number}")
                self.lines.append(f"{name} = load {kind}, ptr {name}.at, align 1")
                self._same[place] = self._loop.spread_value(name, f"same{place}{suffix}", dtype)

    def write(self, x: str, place: str, column: str, suffix: str, mask: str | None = None) -> None:
        """Write the outputs for a vector of sums. place: its first element's offset in C; column: that one's column."""
        loop = self._loop
        loop.index = place
        vectors: list[Value] = []
        for number, (dtype, lie) in enumerate(zip(self.program.inputs, self.finish.lies, strict=True)):
            if number == self.finish.sum:
                vectors.append(Vector(loop.writer, x, dtype))
            elif number in self._same:
                vectors.append(self._same[number])
            elif lie == COLUMNS:
                vectors.append(self._along(number, column, suffix, mask))
            else:
                vectors.append(loop.value(loop.load(number, suffix, mask), dtype))
        values = loop.compute(vectors)
        for output, number in enumerate(self.program.outputs, len(self.program.inputs)):
            loop.store(output, values[number], suffix, mask)

    def _along(self, number: int, column: str, suffix: str, mask: str | None) -> Value:
        """Return a vector of an input that has one number for each column, loaded unless it was before."""
        found = self._columns.get((number, column))
        if found is None:
            loop, place = self._loop, self._loop.index
            loop.index = column
            found = loop.value(loop.load(number, suffix, mask), self.program.inputs[number])
            self._columns[number, column] = found
            loop.index = place
        return found

"""Row programs as LLVM IR: a function for each stage, and one that takes every row through all of them.

The slots are those of a kernel (see kernel.py): the operands are the items in memory outside the program, the scratch
memory is a row of each wide item inside it, the scalars are those of the stages in turn. Items with one number per row
go from function to function in registers.
"""

from __future__ import annotations

from typing import NamedTuple

from ...plan.rows import GIVEN, INSIDE, KEPT, RowProgram
from .kernel import Frame, module
from .loop import Loop, check, lanes_of
from .moves import PACKED, SAME, Form, memory_type


class RowForm(NamedTuple):
    """The facts besides the row program on which code depends.

    depth: nested loops, with the one over cells. vector_bytes: of a register. streams: by stage, whether its outputs
    bypass the caches. fetches: the items whose next rows are prefetched: each stage over cells prefetches one row
    further ahead than the stage before.
    """

    depth: int
    vector_bytes: int
    streams: tuple[bool, ...]
    fetches: tuple[int, ...]


def source(rows: RowProgram, form: RowForm, *, contract: bool = False) -> str:
    """Return the LLVM IR of a module; raises LacksError for a step or dtype that generated code lacks."""
    for stage in rows.stages:
        check(stage.program)
    frame = Frame(form.depth)
    _entry(rows, form, frame)
    frame.open()
    for number in outside(rows):
        item = rows.items[number]
        if item.role == GIVEN and not item.wide:
            kind, base = memory_type(item.dtype), frame.pointer(f"item{number}")
            frame.lines.append(f"%item{number}.value = load {kind}, ptr {base}, align 1")
    _fetch_rows(rows, form, frame)
    functions = [_Function(rows, place, form, frame, contract) for place in range(len(rows.stages))]
    for one in functions:
        one.call()
    frame.close()
    texts = [one.text() for one in functions]
    writers = [one.loop.writer for one in functions]
    return module(writers, [*texts, frame.function(writers[-1], streams=any(form.streams))])


def _entry(rows: RowProgram, form: RowForm, frame: Frame) -> None:
    """Load every slot."""
    for number in outside(rows):
        frame.operand(f"item{number}")
        if number in form.fetches:
            frame.load(f"item{number}.ahead", "i64")
    for number in own_rows(rows):
        frame.load(f"item{number}.own", "ptr")
    for place, stage in enumerate(rows.stages):
        for at, dtype in enumerate(stage.program.scalars):
            frame.load(f"stage{place}.c{at}", memory_type(dtype))


def _fetch_rows(rows: RowProgram, form: RowForm, frame: Frame) -> None:
    """Write the addresses of the rows that each stage over cells prefetches."""
    for number in form.fetches:
        before = frame.pointer(f"item{number}")
        for place, stage in enumerate(rows.stages):
            if stage.wide:
                name = f"%item{number}.further{place}"
                frame.lines.append(f"{name} = getelementptr i8, ptr {before}, i64 %item{number}.ahead")
                before = name


def outside(rows: RowProgram) -> list[int]:
    """Return the items in memory outside the program, which are its operands."""
    return [number for number, item in enumerate(rows.items) if item.role != INSIDE]


def own_rows(rows: RowProgram) -> list[int]:
    """Return the items that have a row of scratch memory: wide ones that only exist inside the program."""
    return [number for number, item in enumerate(rows.items) if item.wide and item.role == INSIDE]


class _Function:
    """The function of one stage over one row, and its call.

    It takes the length of a row, the addresses of the rows of wide items, the numbers of narrow inputs, the addresses
    of rows to prefetch, and the scalars. It returns its results that have one number per row.
    """

    def __init__(self, rows: RowProgram, place: int, form: RowForm, frame: Frame, contract: bool) -> None:
        stage = self.stage = rows.stages[place]
        self.rows, self.place, self.frame = rows, place, frame
        plain = stage.results[: len(stage.program.outputs)]
        self.moved = (*stage.inputs, *plain)
        lie = tuple([PACKED if rows.items[number].wide else SAME for number in self.moved])
        own = Form(lanes_of(stage.program, form.vector_bytes), 1, lie, form.streams[place])
        self.loop = Loop(stage.program, own, contract, "%n", [])
        self.loop.pointers = [f"%p{at}" for at in range(len(self.moved))]
        self.loop.registers = {at: f"%in{at}.one" for at, n in enumerate(stage.inputs) if not rows.items[n].wide}
        self.fetches = form.fetches if stage.wide else ()
        self.loop.further = {f"%further{number}": rows.items[number].dtype.itemsize for number in self.fetches}
        self.returned = stage.results[len(plain) :] if stage.wide else stage.results
        self.parameters = self._parameters()

    def _parameters(self) -> list[tuple[str, str, str]]:
        """Return for each parameter its type, its name, and the argument of the call."""
        found = [("i64", "%n", f"%n{self.frame.depth - 1}")] if self.stage.wide else []
        for at, number in enumerate(self.moved):
            item = self.rows.items[number]
            if item.wide:
                inside = item.role == INSIDE
                base = f"%item{number}.own" if inside else self.frame.pointer(f"item{number}")
                found.append(("ptr", f"%p{at}", base))
            elif at in self.loop.registers:
                found.append((memory_type(item.dtype), self.loop.registers[at], f"%item{number}.value"))
        for number in self.fetches:
            found.append(("ptr", f"%further{number}", f"%item{number}.further{self.place}"))
        for at, dtype in enumerate(self.stage.program.scalars):
            found.append((memory_type(dtype), f"%c{at}", f"%stage{self.place}.c{at}"))
        return found

    @property
    def kind(self) -> str:
        """The type of the function's result."""
        kinds = [memory_type(self.rows.items[number].dtype) for number in self.returned]
        return f"{{{', '.join(kinds)}}}" if kinds else "void"

    def text(self) -> str:
        """Return the function."""
        loop, lines = self.loop, self.loop.lines
        loop.block("entry")
        loop.take_scalars()
        results = loop.write("entry") if self.stage.wide else self._once()
        value = "poison"
        for at, (number, name) in enumerate(zip(self.returned, results, strict=True)):
            kind = memory_type(self.rows.items[number].dtype)
            lines.append(f"%together{at} = insertvalue {self.kind} {value}, {kind} {name}, {at}")
            value = f"%together{at}"
        lines.append(f"ret {self.kind} {value}" if self.returned else "ret void")
        given = ", ".join([f"{kind} {name}" for kind, name, _ in self.parameters])
        return "\n".join([f"define internal {self.kind} @stage{self.place}({given}) {{", *lines, "}"])

    def _once(self) -> list[str]:
        """Write a stage that is computed once per row; return the names of its results."""
        loop = self.loop
        values = loop.compute(list(loop.load_same().values()))
        return [loop.first_lane(values[n], f"out{at}") for at, n in enumerate(self.stage.program.outputs)]

    def call(self) -> None:
        """Write the call in the loop over rows, and store the results that are kept."""
        lines = self.frame.lines
        given = ", ".join([f"{kind} {value}" for kind, _, value in self.parameters])
        result = f"%called{self.place} = " if self.returned else ""
        lines.append(f"{result}call {self.kind} @stage{self.place}({given})")
        for at, number in enumerate(self.returned):
            item = self.rows.items[number]
            lines.append(f"%item{number}.value = extractvalue {self.kind} %called{self.place}, {at}")
            if item.role == KEPT:
                target = self.frame.pointer(f"item{number}")
                lines.append(f"store {memory_type(item.dtype)} %item{number}.value, ptr {target}, align 1")

"""Column programs as LLVM IR: a function for each step, and one that takes strips of columns through all of them.

A step goes over some rows of a strip. The slots: the number of strips, the columns of a strip and of the last one, the
rows, the rows of a block and of a piece; for each memory the address of the first strip's first row, and the bytes
from row to row; then the scalars of the steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...plan.program import Program
from .kernel import module
from .loop import Loop, check, lanes_of
from .moves import PACKED, SAME, Form, memory_type, slots_of

# When a step runs: before the rows of a strip, over each block of rows, after each piece of rows but the last, after
# all rows.
BEFORE, BLOCK, PIECE, AFTER = range(4)

# The rows a step goes over: one; those of the block, in groups; those left over by groups, one by one.
ONE, GROUPS, REST = "one", "groups", "rest"

# How many rows ahead inputs are prefetched if arrays come from main memory.
AHEAD_ROWS = 32

# The slots before those of memories.
COUNTS = ("strips", "width", "width.last", "rows", "block", "piece")


class Cells(NamedTuple):
    """The cells of a row that a step reads or writes: the number of their memory (-1: none), how many rows further on
    they are, and whether the address depends on the row and on the column.
    """

    memory: int
    after: int
    by_row: bool
    by_column: bool


class ColumnStep(NamedTuple):
    """A program over rows of a strip.

    cells: of its inputs and outputs. when, rows: see above; group: how many rows are taken at once. lag: how many
    strips it is behind the first step. streams: whether outputs bypass the caches. roomy: as in a Form. starts: whether
    its one input is a number, given as its scalar.
    """

    program: Program
    cells: tuple[Cells, ...]
    when: int
    lag: int
    rows: str = ONE
    group: int = 1
    streams: bool = False
    roomy: tuple[int, ...] = ()
    starts: bool = False

    @property
    def scalars(self) -> tuple[str, ...]:
        """The types of its scalars."""
        given = self.program.inputs if self.starts else self.program.scalars
        return tuple([memory_type(dtype) for dtype in given])

    @property
    def stride(self) -> int:
        """The rows from one of its iterations to the next."""
        return self.group if self.rows == GROUPS else 1


class ColumnForm(NamedTuple):
    """The facts that code depends on. memories: their number. far: whether arrays are prefetched from main memory."""

    steps: tuple[ColumnStep, ...]
    memories: int
    vector_bytes: int
    far: bool


def source(form: ColumnForm, *, contract: bool = False) -> str:
    """Return the LLVM IR of a module; raises LacksError for a step or dtype that generated code lacks."""
    for step in form.steps:
        check(step.program)
    functions = [_Function(place, step, form, contract) for place, step in enumerate(form.steps)]
    texts = [one.text() for one in functions]
    return module([one.loop.writer for one in functions], [*texts, _driver(form, functions)])


# ---- one step


class _Function:
    """The function of one step. It takes the number of columns of the strip and of rows (or groups of them), whether
    there are strips before and after, for each operand its address and the bytes from row to row, and the scalars.
    """

    def __init__(self, place: int, step: ColumnStep, form: ColumnForm, contract: bool) -> None:
        self.place, self.step = place, step
        program = step.program
        inputs = len(program.inputs)
        lie = [PACKED if one.by_column or at >= inputs else SAME for at, one in enumerate(step.cells)]
        self.moving = [at for at, one in enumerate(step.cells) if one.by_row]
        far = form.far and step.when == BLOCK
        fetches = tuple([at for at in self.moving if at < inputs and lie[at] == PACKED and far])
        lanes = lanes_of(program, form.vector_bytes)
        own = Form(lanes, 1, tuple(lie), step.streams, fetches, True, step.roomy)
        self.loop = Loop(program, own, contract, "%n", [])
        self.loop.pointers = [f"%p{at}.row" if at in self.moving else f"%p{at}" for at in range(len(step.cells))]
        if step.starts:
            self.loop.registers = {0: "%c0"}
        if step.streams:
            self.loop.goes_on = ("%before", "%after")

    def parameters(self) -> list[str]:
        """Return the types and names of its parameters."""
        found = ["i64 %n", "i64 %rows", "i64 %before", "i64 %after"]
        for at in range(len(self.step.cells)):
            found += [f"ptr %p{at}", *([f"i64 %p{at}.by"] if at in self.moving else [])]
        return found + [f"{kind} %c{at}" for at, kind in enumerate(self.step.scalars)]

    def text(self) -> str:
        """Return the function."""
        loop, lines = self.loop, self.loop.lines
        loop.block("entry")
        for at in loop.form.fetches:
            lines.append(f"%ahead{at} = mul i64 %p{at}.by, {AHEAD_ROWS // self.step.stride}")
        if not self.step.starts:
            loop.take_scalars()
        lines += ["br label %row", "row:", "%r = phi i64 [0, %entry], [%r.next, %done]"]
        lines += [f"%p{at}.row = phi ptr [%p{at}, %entry], [%p{at}.next, %done]" for at in self.moving]
        loop.write("row")
        lines += [f"%p{at}.next = getelementptr i8, ptr %p{at}.row, i64 %p{at}.by" for at in self.moving]
        lines += ["%r.next = add i64 %r, 1", "%r.more = icmp ult i64 %r.next, %rows"]
        lines += ["br i1 %r.more, label %row, label %end", "end:", "ret void"]
        given = ", ".join(self.parameters())
        return "\n".join([f"define internal void @step{self.place}({given}) {{", *lines, "}"])

    # ---- its call

    def call(self, name: str) -> list[str]:
        """Return the lines that call it if its strip and some rows exist, in blocks called `name` and `name`.on."""
        step, lag = self.step, self.step.lag
        given = [f"i64 %width.{lag}", f"i64 %{name}.rows", f"i64 %before.{lag}", f"i64 %after.{lag}"]
        lines = [*self._count(name), f"br i1 %{name}.runs, label %{name}, label %{name}.on", f"{name}:"]
        for at, cells in enumerate(step.cells):
            lines += self._address(f"%{name}.p{at}", at, cells)
            given.append(f"ptr %{name}.p{at}" if cells.memory >= 0 else "ptr null")
            if cells.by_row:
                lines.append(f"%{name}.by{at} = mul i64 %by{cells.memory}, {step.stride}")
                given.append(f"i64 %{name}.by{at}")
        given += [f"{kind} %step{self.place}.c{at}" for at, kind in enumerate(step.scalars)]
        return [*lines, f"call void @step{self.place}({', '.join(given)})", f"br label %{name}.on", f"{name}.on:"]

    def _count(self, name: str) -> list[str]:
        """Return the lines that compute its first row, its number of rows, and whether it runs."""
        rows = f"%{name}.rows"
        lines = {
            ONE: [f"{rows} = add i64 1, 0", f"%{name}.first = add i64 0, 0"],
            GROUPS: [f"{rows} = udiv i64 %rows.here, {self.step.group}", f"%{name}.first = add i64 %row.first, 0"],
            REST: [f"{rows} = urem i64 %rows, {self.step.group}", f"%{name}.first = sub i64 %rows, {rows}"],
        }[self.step.rows]
        lines.append(f"%{name}.any = icmp ne i64 {rows}, 0")
        return [*lines, f"%{name}.runs = and i1 %{name}.any, %inside.{self.step.lag}"]

    def _address(self, one: str, at: int, cells: Cells) -> list[str]:
        """Return the lines that compute the address of an operand."""
        if cells.memory < 0:
            return []
        name, lines = one.replace(".p", ".at"), []
        across = f"%first.{self.step.lag}" if cells.by_column else "0"
        lines.append(f"{name}.column = mul i64 {across}, {self.loop.operands[at].itemsize}")
        if cells.by_row:
            lines += [
                f"{name}.row = add i64 {one.split('.p')[0]}.first, {cells.after}",
                f"{name}.down = mul i64 {name}.row, %by{cells.memory}",
                f"{name}.bytes = add i64 {name}.column, {name}.down",
            ]
        where = f"{name}.bytes" if cells.by_row else f"{name}.column"
        return [*lines, f"{one} = getelementptr i8, ptr %m{cells.memory}, i64 {where}"]


# ---- all steps


def _driver(form: ColumnForm, functions: Sequence[_Function]) -> str:
    """Return the function that takes strips through all steps: step by step of strips, block by block of rows."""
    lags = sorted({step.lag for step in form.steps})

    def calls(when: int) -> list[str]:
        return [line for one in functions if one.step.when == when for line in one.call(f"call{one.place}")]

    lines = [
        *_entry(form),
        f"%steps = add i64 %strips, {lags[-1]}",
        "br label %step",
        "step:",
        "%t = phi i64 [0, %entry], [%t.next, %step.end]",
        *[line for lag in lags for line in _strip(lag)],
        *calls(BEFORE),
        "br label %blocks",
        "blocks:",
        "br label %down",
        "down:",
        "%row.first = phi i64 [0, %blocks], [%row.next, %block.end]",
        "%piece.rows = phi i64 [%piece, %blocks], [%piece.next, %block.end]",
        "%rows.left = sub i64 %rows, %row.first",
        "%rows.few = icmp ult i64 %rows.left, %block",
        "%rows.here = select i1 %rows.few, i64 %rows.left, i64 %block",
        *calls(BLOCK),
        "%row.next = add i64 %row.first, %block",
        "%piece.less = sub i64 %piece.rows, %block",
        "%more = icmp ult i64 %row.next, %rows",
        "br i1 %more, label %within, label %after",
        "within:",
        "%piece.over = icmp sle i64 %piece.less, 0",
        "br i1 %piece.over, label %piece.end, label %block.end",
        "piece.end:",
        *calls(PIECE),
        "br label %piece.done",
        "piece.done:",
        "br label %block.end",
        "block.end:",
        "%piece.next = phi i64 [%piece.less, %within], [%piece, %piece.done]",
        "br label %down",
        "after:",
        *calls(AFTER),
        "br label %step.end",
        "step.end:",
        "%t.next = add i64 %t, 1",
        "%t.more = icmp ult i64 %t.next, %steps",
        "br i1 %t.more, label %step, label %end",
        "end:",
        "fence seq_cst",  # stores that bypassed the caches are visible now
    ]
    return "\n".join(["define void @kernel(ptr %slots) {", *lines, "ret void", "}"])


def _entry(form: ColumnForm) -> list[str]:
    """Return the lines that load every slot."""
    slots = [(name, "i64") for name in COUNTS]
    for number in range(form.memories):
        slots += [(f"m{number}", "ptr"), (f"by{number}", "i64")]
    for place, step in enumerate(form.steps):
        slots += [(f"step{place}.c{at}", kind) for at, kind in enumerate(step.scalars)]
    lines = ["entry:"]
    slot = 0
    for name, kind in slots:
        lines.append(f"%{name}.slot = getelementptr i64, ptr %slots, i64 {slot}")
        lines.append(f"%{name} = load {kind}, ptr %{name}.slot, align 8")
        slot += slots_of(kind)
    return lines


def _strip(lag: int) -> list[str]:
    """Return the lines that compute the strip of steps with some lag, whether it exists, and its columns."""
    return [
        f"%strip.{lag} = sub i64 %t, {lag}",
        f"%inside.{lag} = icmp ult i64 %strip.{lag}, %strips",
        f"%next.{lag} = add i64 %strip.{lag}, 1",
        f"%goes.{lag} = icmp ult i64 %next.{lag}, %strips",
        f"%width.{lag} = select i1 %goes.{lag}, i64 %width, i64 %width.last",
        f"%after.{lag} = sext i1 %goes.{lag} to i64",
        f"%began.{lag} = icmp ne i64 %strip.{lag}, 0",
        f"%before.{lag} = sext i1 %began.{lag} to i64",
        f"%first.{lag} = mul i64 %strip.{lag}, %width",
    ]

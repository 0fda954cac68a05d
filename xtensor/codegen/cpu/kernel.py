"""Programs as LLVM IR: the loop nest around a program's innermost loop (see loop.py).

A kernel is one function of one pointer, to a block of 8-byte slots: the lengths of its loops from the outermost; if
outputs bypass the caches, whether rows go on before their start and after their end, -1 or 0; for each operand its
address and its strides in bytes; addresses of scratch memory; the scalars. So code depends on a program and on how its
operands lie along the innermost axis, never on sizes, strides or scalars.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...plan.program import Program
from . import tiles
from .loop import Loop, check
from .moves import CROSSWISE, STRIDED, Form, memory_type, slots_of
from .vector import Writer


def source(program: Program, form: Form, *, contract: bool = False) -> str:
    """Return the LLVM IR of a module with one function, `kernel`.

    Raises LacksError if the program has a step or dtype that generated code lacks.
    """
    check(program)
    return _Kernel(program, form, contract).module()


def module(writers: Iterable[Writer], functions: Sequence[str]) -> str:
    """Return a module of some functions, with the declarations and constants that their writers need."""
    declarations, constants = set[str](), dict[str, str]()
    for writer in writers:
        declarations |= writer.declarations
        constants |= writer.globals
    return "\n".join([*sorted(declarations), *constants.values(), *functions, "!0 = !{i32 1}", ""])


class Frame:
    """The slots of a function and the loops around its rows, while their text is written.

    depth: the number of loops; the innermost is written elsewhere. pointers: the operands that the loops advance.
    """

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.lines = ["entry:"]
        self.pointers: list[str] = []
        self._slot = 0
        for level in range(depth):
            self.load(f"n{level}", "i64")

    def load(self, name: str, kind: str) -> str:
        """Load the next slot, or two."""
        self.lines.append(f"%{name}.slot = getelementptr i64, ptr %slots, i64 {self._slot}")
        self.lines.append(f"%{name} = load {kind}, ptr %{name}.slot, align 8")
        self._slot += slots_of(kind)
        return f"%{name}"

    def operand(self, name: str) -> None:
        """Load the slots of an operand: its address, and its strides along the outer loops."""
        self.pointers.append(name)
        self.load(name, "ptr")
        for level in range(self.depth - 1):
            self.load(f"{name}.s{level}", "i64")

    @property
    def row(self) -> str:
        """The block that rows begin in."""
        return f"loop{self.depth - 2}" if self.depth > 1 else "entry"

    def pointer(self, name: str, level: int | None = None) -> str:
        """Return the name of the pointer to an operand's row, or of its pointer inside the loop of a level."""
        level = self.depth - 2 if level is None else level
        return f"%{name}" if level < 0 else f"%{name}.{level}"

    def open(self) -> None:
        """Begin the outer loops."""
        for level in range(self.depth - 1):
            before = f"loop{level - 1}" if level else "entry"
            self.lines += [f"br label %loop{level}", f"loop{level}:"]
            self.lines.append(f"%i{level} = phi i64 [0, %{before}], [%i{level}.next, %latch{level}]")
            for name in self.pointers:
                outer, inner = self.pointer(name, level - 1), self.pointer(name, level)
                self.lines.append(f"{inner} = phi ptr [{outer}, %{before}], [{inner}.next, %latch{level}]")

    def close(self) -> None:
        """End the outer loops, and the function."""
        for level in reversed(range(self.depth - 1)):
            self.lines += [f"br label %latch{level}", f"latch{level}:", f"%i{level}.next = add i64 %i{level}, 1"]
            for name in self.pointers:
                inner = self.pointer(name, level)
                self.lines.append(f"{inner}.next = getelementptr i8, ptr {inner}, i64 %{name}.s{level}")
            self.lines.append(f"%again{level} = icmp ult i64 %i{level}.next, %n{level}")
            self.lines.append(f"br i1 %again{level}, label %loop{level}, label %end{level}")
            self.lines.append(f"end{level}:")

    def function(self, writer: Writer, *, streams: bool) -> str:
        """Return the function; at its end it waits for stores that bypassed the caches."""
        if streams:
            writer.declarations.add("declare void @llvm.x86.sse.sfence()")
            self.lines.append("call void @llvm.x86.sse.sfence()")
        return "\n".join(["define void @kernel(ptr %slots) {", *self.lines, "ret void", "}"])


class _Kernel:
    """The text of one kernel while it is written."""

    def __init__(self, program: Program, form: Form, contract: bool) -> None:
        self.program, self.form = program, form
        self.frame = Frame(form.depth)
        self.loop = Loop(program, form, contract, f"%n{form.depth - 1}", self.frame.lines)
        self.crosswise = [place for place, lie in enumerate(form.lie) if lie == CROSSWISE]

    def module(self) -> str:
        frame, loop = self.frame, self.loop
        self._entry()
        frame.open()
        loop.pointers = [frame.pointer(f"p{place}") for place in range(len(loop.operands))]
        before = self._turn_tiles() if self.crosswise else frame.row
        first = len(self.program.moved)
        for place, result in enumerate(loop.write(before), first):
            frame.lines.append(
                f"store {memory_type(loop.operands[place])} {result}, ptr {loop.pointers[place]}, align 1"
            )
        frame.close()
        return module([loop.writer], [frame.function(loop.writer, streams=self.form.streams and not self.form.strip)])

    def _entry(self) -> None:
        """Load every slot; scalars and the offsets of strided lanes are broadcast to vectors once."""
        frame, loop = self.frame, self.loop
        if self.form.streams:
            loop.goes_on = frame.load("before", "i64"), frame.load("after", "i64")
        for place in range(len(loop.operands)):
            frame.operand(f"p{place}")
            if loop.lie(place) in (STRIDED, CROSSWISE):
                frame.load(f"s{place}", "i64")
            if loop.lie(place) == STRIDED:
                loop.spread(f"%s{place}", f"spread{place}", "i64")
                frame.lines.append(f"%lanes{place} = mul {loop.steps} %spread{place}, {loop.counting()}")
            if place in self.form.fetches:
                frame.load(f"ahead{place}", "i64")
        for place in self.crosswise:
            frame.load(f"tile{place}", "ptr")
        for place, dtype in enumerate(self.program.scalars):
            frame.load(f"c{place}", memory_type(dtype))
        loop.take_scalars()

    def _turn_tiles(self) -> str:
        """Transpose the tiles of crosswise operands in each row where a tile begins; return the last block."""
        frame, loop, lanes = self.frame, self.loop, self.form.lanes
        level = self.form.depth - 2
        frame.lines += tiles.begin(f"%i{level}", f"%n{level}", lanes)
        frame.lines.append(f"%tiles.start = and i64 {loop.goes_on[0]}, -{lanes}")
        block = "turn"
        for place in self.crosswise:
            dtype = loop.operands[place]
            tile = tiles.Tile(place, memory_type(dtype), dtype.itemsize, lanes, loop.pointers[place], loop.length)
            loop.writer.declarations.update(tiles.declarations(tile))
            frame.lines += tiles.turn(tile, block, f"turn{place}.done")
            block = f"turn{place}.done"
        frame.lines += ["br label %turned", "turned:"]
        for place in self.crosswise:
            loop.pointers[place] = f"%row{place}"
            kind = memory_type(loop.operands[place])
            frame.lines.append(f"%offset{place} = mul i64 %in.tile, {tiles.width(lanes)}")
            frame.lines.append(f"%column{place} = add i64 %offset{place}, {lanes}")
            frame.lines.append(f"%row{place} = getelementptr {kind}, ptr %tile{place}, i64 %column{place}")
        return "turned"

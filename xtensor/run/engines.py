"""The choice of engine, kernel by kernel, and which kernels run together.

On the CPU, generated code if it exists or is worth compiling; the interpreter if there is no compiler, if generated
code lacks a step, or if there was too little work so far. On other devices, generated code, or the library's functions
one after the other where that is impossible.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ..base.caches import make_room
from ..base.layout import Shape
from ..base.machine import size_text
from ..base.options import Settings, irreproducible
from ..codegen.cpu.compile import CompileError, host
from ..codegen.cpu.vector import LacksError
from ..codegen.cuda.nvrtc import BuildError
from ..devices.cpu import CPU
from ..graph.node import Node
from ..plan import costs
from ..plan.costs import COMPILE_SECONDS, COMPILED_AGAIN, library_seconds
from ..plan.fusion import last_uses
from ..plan.layouts import Work
from ..plan.parts import Parts, parts_of, shown
from ..plan.program import Kernel, Program
from . import cuda as cuda_run
from .columns import ByColumns
from .cuda_products import ByCublas
from .cuda_rows import ByRowsThere
from .joined import Joint, joint_of
from .launched import ByLaunches
from .loops import ByLoops
from .native import Way
from .products import ByBlas
from .rows import ByRows

# How all kernels of a plan run as one.
Together = ByRows | ByColumns | ByRowsThere

# Engines: machine code, the interpreter, CUDA kernels, the library's functions step by step, machine code that goes on
# from a contraction, and nothing for views and for such a contraction.
LLVM, INTERPRET, CUDA, DIRECT, JOINED, NOTHING = "llvm", "interpret", "cuda", "direct", "joined", "none"

# Keys of a program's `notes`: that it has run as generated code; what generated code lacks for it, on the CPU and on
# other devices.
COMPILED, LACKING, LACKING_THERE = "compiled", "lacking", "lacking there"

# Seconds of library calls estimated so far for programs not compiled yet, and how many programs are remembered.
_spent: dict[Program, float] = {}
REMEMBERED = 4096


class Choice(NamedTuple):
    """An engine, and why."""

    engine: str
    why: str


class Outline(NamedTuple):
    """Which engine runs which kernel. together: how the kernels of `span` run as one over rows or columns, or None.

    last: for each kernel the temporary values that nobody needs after it.
    waiting: the programs that are to be compiled after they have come more often, each with the elements of the largest
    loop: a small loop counts as much as a large one beside it.
    joined: for the place of each kernel that goes on from a contraction, the contraction's kernel, and both as one.
    """

    kernels: tuple[Kernel, ...]
    choices: tuple[Choice, ...]
    together: Together | None
    waiting: Sequence[tuple[Program, int]]
    joined: Mapping[int, tuple[Kernel, Joint]]
    span: range
    last: Sequence[Sequence[int]]

    def ways(self, work: Work) -> Iterator[tuple[int, Way]]:
        """Yield the ways of machine code in order, each with the place of its first kernel."""
        for place, (kernel, choice) in enumerate(zip(self.kernels, self.choices, strict=True)):
            if isinstance(self.together, (ByRows, ByColumns)) and place in self.span:
                if place == self.span.start:
                    yield place, self.together
            elif choice.engine == LLVM:
                yield place, way_of(kernel, work)


def way_of(kernel: Kernel, work: Work) -> Way:
    """Return the way in which machine code computes a kernel that has this engine."""
    if kernel.direct is None:
        return ByLoops(kernel, work)
    way = ByBlas.of(kernel, work) or ByLaunches.of_kernel(kernel, work)
    assert way is not None
    return way


def launcher_of(kernel: Kernel, work: Work) -> cuda_run.Launcher:
    """Return the launcher of a kernel on another device that has this engine."""
    launcher = cuda_run.ByKernel(kernel, work) if kernel.direct is None else ByCublas.of(kernel, work)
    assert launcher is not None
    return launcher


def outlined(work: Work, *, apart: bool = False) -> Outline:
    """Return the choices for some work. apart: whether kernels are to run one after the other in any case.

    A program that has not been tried may turn out to lack generated code.
    """
    found = None if apart else _in_parts(work)
    if found is not None:
        return found
    plan, values = work.plan, work.trace.values
    kernels = tuple([cuda_run.generated(kernel, values) or kernel for kernel in plan.kernels])
    largest = plan.largest(work.metas)
    choices = [_choice(kernel, work, largest) for kernel in kernels]
    joined = _join(work, kernels, choices, plan.endings)
    together = None if apart else _together(work, kernels, {one.engine for one in choices})
    if isinstance(together, ByColumns):  # its kernels recompute values instead of passing them on
        kernels, choices = together.kernels, choices[:1] * len(together.kernels)
    waiting, span = _waiting(kernels, choices, work, largest), range(len(kernels) if together is not None else 0)
    last = plan.last if together is None else [()] * len(kernels)  # values between them have no memory of their own
    return Outline(kernels, tuple(choices), together, waiting, joined, span, last)


def _in_parts(work: Work) -> Outline | None:
    """Return the choices for work of which a part runs together; None if no part does, if that does not move fewer
    bytes, and for work that writes to given memory, which other kernels may have to read first.
    """
    plan = work.plan
    if plan.rows or plan.columns is not None or work.into or work.device.backend is not CPU:
        return None
    parts = parts_of(shown(work.trace, work.metas))
    if parts is None:
        return None
    largest, first = plan.largest(work.metas), parts.together.kernels
    inside = [_choice(kernel, work, largest) for kernel in first]
    together = _together(work._replace(plan=parts.together), first, {one.engine for one in inside})
    if together is None or not _moves_less(work, parts, together):
        return None
    parts = parts.made_of(together.kernels)
    kernels, span = parts.kernels, parts.span
    choices = [inside[0] if place in span else _choice(one, work, largest) for place, one in enumerate(kernels)]
    joined = _join(work, kernels, choices, parts.endings)
    waiting = _waiting(kernels, choices, work, largest)
    return Outline(kernels, tuple(choices), together, waiting, joined, span, last_uses(kernels, work.trace, plan.kept))


def _moves_less(work: Work, parts: Parts, together: Together) -> bool:
    """Return whether parts of work move fewer bytes to and from memory than its kernels one after the other."""
    others = [kernel for plan in parts.plans if plan is not parts.together for kernel in plan.kernels]
    moved = together.task.moved + work.moved_by(others, together=False)
    return moved < work.moved_by(work.plan.kernels, together=False)


def _together(work: Work, kernels: Sequence[Kernel], chosen: set[str]) -> Together | None:
    """Return how all kernels run as one, None where they do not: row by row, else strip by strip over columns."""
    reducing = [kernel for kernel in kernels if kernel.program.reductions]
    if not reducing or len(chosen) > 1:
        return None
    shape = work.metas[reducing[0].domain].shape
    if chosen == {LLVM}:
        return ByRows.of(work, shape) or ByColumns.of(work)
    return ByRowsThere.of(work, shape) if chosen == {CUDA} else None


def _join(
    work: Work, kernels: Sequence[Kernel], choices: list[Choice], endings: Mapping[int, int]
) -> dict[int, tuple[Kernel, Joint]]:
    """Choose which kernels go on from contractions in their registers; return their places, with these contractions.

    endings: as of a plan.
    """
    found = {}
    for place, before in endings.items():
        joint = joint_of(kernels[place], kernels[before], work)
        if choices[place].engine != LLVM and isinstance(joint, Joint):
            joint = f"what follows has the engine {choices[place].engine}"
        moved = work.metas[kernels[before].results[0]].nbytes
        if choices[before].engine == LLVM and isinstance(joint, Joint) and moved <= costs.ENDED_APART:
            joint = f"machine code goes on with a loop at once, over {size_text(moved)}"
        if isinstance(joint, str):
            is_blas = choices[before].engine == LLVM and ByBlas.of(kernels[before], work) is not None
            first = f"{choices[before].why}, and " if is_blas else ""
            choices[before] = choices[before]._replace(why=f"{first}computed by itself: {joint}")
            continue
        found[place] = kernels[before], joint
        choices[before] = Choice(NOTHING, f"computed with kernel {place + 1}, which is all that follows")
        saved = size_text(2 * moved)
        choices[place] = Choice(JOINED, f"goes on from a contraction in its registers, which saves moving {saved}")
    return found


def _choice(kernel: Kernel, work: Work, largest: int) -> Choice:
    """Return a kernel's engine and why it is that."""
    if kernel.direct is not None:
        if work.trace.values[kernel.direct].op.kind == "view":
            return Choice(NOTHING, "a view computes nothing")
        if work.limits.reproducible:
            check_reproducible(work.trace.values[kernel.direct])
        if LACKING not in kernel.program.notes and ByBlas.of(kernel, work) is not None:
            return Choice(LLVM, "the BLAS is called at its address")
        if ByLaunches.of_kernel(kernel, work) is not None:
            return Choice(LLVM, "it has launches of its own")
        if work.device.backend is not CPU and ByCublas.of(kernel, work) is not None:
            return Choice(CUDA, "cuBLAS is called at its address")
        if work.trace.values[kernel.direct].op.kind == "contraction":
            return Choice(DIRECT, "nothing follows that could be computed with it")
        return Choice(DIRECT, "no loop of the engine computes this step")
    shape = work.metas[kernel.domain].shape
    if work.device.backend is not CPU:
        return choose_there(kernel.program, shape, work.limits)
    if 0 in shape:
        return Choice(INTERPRET, "there are no elements")
    chosen = choose(kernel.program, largest, work.limits)
    if work.limits.reproducible and chosen.engine != LLVM and any([one.kind in "fc" for one in kernel.program.dtypes]):
        raise irreproducible(chosen.why)
    return chosen


def check_reproducible(node: Node) -> None:
    """Raise NotImplementedError if a step of the library's is a reduction whose bits depend on the library."""
    if node.op.kind == "reduction" and node.op.name not in ("argmax", "argmin") and node.dtype.kind in "fc":
        raise irreproducible(f"there is no {node.op.name} of {node.dtype} in generated code")


# ---- the CPU


def choose(program: Program, largest: int, limits: Settings) -> Choice:
    """Return the engine for a program on the CPU, and why.

    largest: the elements of the largest loop of the evaluation: a small loop counts as much as a large one beside it.
    """
    engine = limits.engine
    if COMPILED in program.notes and engine != INTERPRET:
        return Choice(LLVM, "asked for" if engine == LLVM else "it is compiled")
    if engine == INTERPRET:
        return Choice(INTERPRET, "asked for")
    if host() is None:
        return Choice(INTERPRET, "there is no llvmlite, or this processor has no fused multiply-add")
    if LACKING in program.notes:
        return Choice(INTERPRET, f"there is no {program.notes[LACKING]}")
    if engine == LLVM:
        return Choice(LLVM, "asked for")
    before = _spent.get(program, 0.0)
    if before and largest >= COMPILED_AGAIN:
        return Choice(LLVM, "it comes again, over many elements")
    spent = before + largest * library_seconds(program)
    if spent > COMPILE_SECONDS:
        return Choice(LLVM, f"library calls would have taken {spent * 1e3:.1f} ms by now")
    return Choice(INTERPRET, f"library calls take {spent * 1e3:.2f} ms so far, less than compiling")


def spend(program: Program, largest: int) -> None:
    """Count library calls for a program over so many elements."""
    before = _spent.get(program, 0.0)
    if not before:
        make_room(_spent, REMEMBERED)
    _spent[program] = before + largest * library_seconds(program)


def compiled(programs: Sequence[Program]) -> None:
    """Note that programs have generated code."""
    for program in programs:
        program.notes[COMPILED] = True


def lacks(program: Program, lack: LacksError) -> None:
    """Note that generated code lacks something for a program on the CPU; warn where that is not known beforehand."""
    program.notes[LACKING] = str(lack)
    if isinstance(lack, CompileError):
        warnings.warn(f"xtensor: no {lack}; the interpreter runs it instead", RuntimeWarning, stacklevel=2)


def _waiting(
    kernels: Sequence[Kernel], choices: Sequence[Choice], work: Work, largest: int
) -> list[tuple[Program, int]]:
    """Return the programs that are to be compiled after they have come more often, each with the largest loop."""
    if work.limits.engine != "auto" or not largest:
        return []
    chosen = zip(kernels, choices, strict=True)
    programs = [kernel.program for kernel, one in chosen if one.engine == INTERPRET and kernel.direct is None]
    found = [(program, largest) for program in programs if LACKING not in program.notes]
    return found if found and host() is not None else []  # host() loads the compiler, which nothing may need


# ---- other devices


def choose_there(program: Program, shape: Shape, limits: Settings) -> Choice:
    """Return the engine for a program on another device than the CPU, and why."""
    if limits.engine in (INTERPRET, DIRECT):
        return Choice(DIRECT, "asked for")
    if 0 in shape:
        return Choice(DIRECT, "there are no elements")
    if LACKING_THERE in program.notes:
        return Choice(DIRECT, f"there is no {program.notes[LACKING_THERE]}")
    return Choice(CUDA, "the device has no other engine")


def lacks_there(program: Program, lack: LacksError) -> None:
    """Note that generated code lacks something for a program on another device; warn where it should be there."""
    program.notes[LACKING_THERE] = str(lack)
    if isinstance(lack, BuildError):
        text = f"xtensor: no {lack}; the library's functions do the work, one after the other"
        warnings.warn(text, RuntimeWarning, stacklevel=2)

"""Preparing schedules: from kernels and where their operands lie to instructions, and places for every value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import prod
from operator import setitem
from typing import Any

from ..base.dtypes import DType
from ..base.layout import Shape
from ..codegen.cpu.primitives import LacksError
from ..devices.cpu import CPU, packed_copy
from ..graph.node import View
from ..plan import costs
from ..plan.arena import Arena
from ..plan.layouts import Meta, strides_over, strides_reduced
from ..plan.program import Kernel
from ..storage.storage import Native, Storage
from . import cuda as cuda_run
from . import cuda_rows, engines, interpret
from .columns import columns_launch
from .engines import CUDA, INTERPRET, LLVM, ROWS, Outline, outlined
from .maps import Operand, map_launch, traffic_of
from .native import Launch, Makes, Making, Place, Segment, scalar_format
from .reduce import reduction_launches
from .rows import rows_launch
from .schedule import Blobwise, Compiled, Facts, Instruction, Library, Made, Run, Schedule, Shown
from .work import Leaf, Work

# Bytes of results for which it is asked at once whether there is room: their loops have many parts.
LARGE = 1 << 30

# Bytes between values of which nothing is known but that they lie apart.
APART = 1 << 48


def prepared(work: Work, results: Sequence[int]) -> Schedule:
    """Return work as a schedule that returns the values of these numbers.

    What generated code turns out to lack is done by others.
    """
    for number in work.plan.kept:
        if work.metas[number].nbytes >= LARGE and number != work.into:
            Storage(work.device, work.metas[number].nbytes).lend()  # raises MemoryError; the pool has it for the run
    apart = False
    while True:
        outline = outlined(work, apart=apart)
        try:
            return _Maker(work, outline).schedule(results)
        except _CannotError as error:  # found out before anything runs
            apart = True
            if not outline.together:
                engines.lacks(error.kernel.program, error.lack)


class _CannotError(Exception):
    """Generated code lacks something for a kernel, or for several together of which this is one."""

    def __init__(self, kernel: Kernel, lack: LacksError) -> None:
        super().__init__(str(lack))
        self.kernel, self.lack = kernel, lack


class _Maker:
    """The instructions of some work, while they are found.

    words, formats: of a run, first those of what is given. where: of each value and scalar, the word that tells of it
    and what is to be added. needed: the values that must be found as blobs.
    """

    def __init__(self, work: Work, outline: Outline) -> None:
        self.work, self.outline = work, outline
        self.chosen = list(zip(outline.kernels, outline.choices, strict=True))
        self.instructions: list[Instruction] = []
        self.words: list[Any] = []
        self.formats: list[str] = []
        given = max([leaf.given for leaf in work.leaves], default=-1) + 1
        for _ in range(given):
            self._word()
        self.where = {leaf.number: (leaf.given, leaf.after) for leaf in work.leaves}
        if work.into is not None:
            self.where[work.into] = self._word(), 0
        self.places = {n: p for p, n in enumerate([n for n in range(len(work.trace.values)) if n not in work.metas])}
        self.packed = self._scalars()
        self.arena, self.arena_word = Arena(), self._word()
        self.needed = self._find_needed()
        self._open: list[tuple[Kernel, Makes, list[Made], Sequence[int]]] = []

    def schedule(self, results: Sequence[int]) -> Schedule:
        """Return the schedule; raises _CannotError where it cannot be as outlined."""
        if self.outline.together:
            self._enter_together()
        else:
            self._enter_kernels()
        for instruction in self.instructions:
            if isinstance(instruction, Compiled):
                instruction.segment.close()  # all words of a run are known now
        work = self.work
        given = {leaf.number: (leaf, work.metas[leaf.number]) for leaf in work.leaves}
        if work.into is not None:
            word, _ = self.where[work.into]
            given[work.into] = Leaf(work.into, word), work.metas[work.into]
        waiting = engines.worth_waiting(self.outline, work.limits)
        arena = (self.arena_word, self.arena.nbytes)
        facts = Facts(work.device, self.words, given, self.places, self.packed, arena, results, waiting)
        return Schedule(facts, self.instructions, work.limits)

    def _word(self, form: str = "q") -> int:
        """Take another word of a run."""
        self.words.append(0)
        self.formats.append(form)
        return len(self.words) - 1

    def _scalars(self) -> list[tuple[int, int, DType]]:
        """Give every scalar that machine code takes a word; return the word, the place and the dtype of each."""
        found = []
        for kernel, choice in self.chosen:
            for number, dtype in zip(kernel.scalars, kernel.program.scalars, strict=True):
                if choice.engine == LLVM and number not in self.where:
                    self.where[number] = self._word(scalar_format(dtype)), 0
                    found.append((self.where[number][0], self.places[number], dtype))
        return found

    def _find_needed(self) -> set[int]:
        """Return the values that must be found as blobs: results, what all but machine code takes and gives, and what
        such values are views of.
        """
        needed = set(self.work.plan.kept)
        for kernel, choice in reversed(self.chosen):
            if choice.engine == LLVM or (self._is_view(kernel) and kernel.direct not in needed):
                continue
            needed.update((*kernel.inputs, *kernel.results))
        return needed

    def _is_view(self, kernel: Kernel) -> bool:
        """Return whether a kernel is a view that takes no copy."""
        node = None if kernel.direct is None else self.work.trace.values[kernel.direct]
        if node is None or type(node.op) is not View:
            return False
        whole = self.work.metas[kernel.inputs[0]].layout
        return node.op.layout(whole, node.dtype.itemsize, **node.params) is not None

    def _made(self, numbers: Iterable[int]) -> list[Made]:
        """Give results memory: of their own where they must be found as blobs, else in the arena."""
        found = []
        for number in numbers:
            meta = self.work.metas[number]
            if number in self.where:
                continue
            if number in self.needed:
                self.where[number] = self._word(), 0
                packed = True if meta.packed else None
                found.append(Made(number, self.where[number][0], meta.nbytes, meta.dtype, meta.layout, packed))
            else:
                self.where[number] = self.arena_word, self.arena.place(number, meta.nbytes)
        return found

    # ---- one kernel after the other

    def _enter_kernels(self) -> None:
        """Enter all kernels in order; what nobody needs any more gives its place to others."""
        for (kernel, choice), last in zip(self.chosen, self.work.plan.last, strict=True):
            if choice.engine == LLVM:
                self._open.append((kernel, self._makes(kernel), self._made(kernel.results), last))
            else:
                self._close()
                self._enter(kernel, choice.engine, [number for number in last if number in self.needed])
            for number in last:
                self.arena.release(number)
        self._close()

    def _close(self) -> None:
        """Make the kernels of machine code that stand open one instruction."""
        if not self._open:
            return
        segment = Segment(self.work.limits.fast_math, self.where.__getitem__, self.formats)
        for kernel, makes, _, _ in self._open:
            try:
                segment.add(makes)
            except LacksError as lack:
                raise _CannotError(kernel, lack) from None
        made = [one for _, _, every, _ in self._open for one in every]
        drops = [number for *_, last in self._open for number in last if number in self.needed]
        self.instructions.append(Compiled(made, segment, drops))
        engines.compiled([kernel.program for kernel, *_ in self._open])
        self._open = []

    def _enter(self, kernel: Kernel, engine: str, drops: list[int]) -> None:
        """Enter what is not machine code."""
        if kernel.direct is not None:
            self._enter_direct(kernel, drops)
            return
        shape = self.work.metas[kernel.domain].shape
        made = self._made(kernel.results)
        if engine == INTERPRET:
            self.instructions.append(Blobwise(made, partial(_interpreted, kernel, shape), drops))
        else:
            launcher = cuda_run.Launcher(kernel, shape, self.work.limits.fast_math)
            work = partial(_on_device, kernel, launcher if engine == CUDA else None)
            self.instructions.append(Blobwise(made, work, drops))

    def _enter_direct(self, kernel: Kernel, drops: list[int]) -> None:
        """Enter a step that no loop computes."""
        number, work = kernel.results[0], self.work
        node, arguments = work.trace.values[number], work.trace.arguments[number]
        if self._is_view(kernel):
            whole, own = arguments[0], work.metas[number]
            after = own.layout.offset - work.metas[whole].layout.offset
            if whole in self.where:
                word, more = self.where[whole]
                self.where[number] = word, more + after
            if number in self.needed:
                self.instructions.append(Shown(number, whole, after, own, node.op.may_be_written, drops))
            return
        if type(node.op) is View:
            function: Any = partial(_reshaped, shape=node.shape)
        else:
            function = partial(node.op.kernel(node.device.backend), **node.params)
        self.where[number] = self._word(), 0
        self.instructions.append(Library(number, self.where[number][0], arguments, function, drops))

    # ---- machine code

    def _makes(self, kernel: Kernel) -> Makes:
        """Return what makes the launches of a kernel."""
        work, program = self.work, kernel.program
        seconds = costs.seconds_of(program, prod(work.metas[kernel.domain].shape), _traffic(kernel, work))
        aligned = work.aligned or work.into not in kernel.results or len(kernel.results) == 1
        return Makes(launches_of(kernel, work), seconds, aligned)

    def _enter_together(self) -> None:
        """Enter all kernels as one, over rows or columns."""
        work, plan, (kernels, _, way, shape, _) = self.work, self.work.plan, self.outline
        made = self._made([n for kernel in kernels for n in kernel.results if n in plan.kept])
        if work.device.backend is not CPU:
            self._enter_rows_there(made)
            return
        metas = work.metas

        def make(making: Making) -> list[Launch]:
            if way == ROWS:
                return [rows_launch(plan, shape, metas, making)]
            assert plan.columns is not None
            return [columns_launch(plan.columns, plan.kept, metas, making)]

        makes = Makes(make, _seconds_together(kernels, plan.kept, metas), work.aligned)
        self._open = [(kernels[0], makes, made, ())]
        self._close()
        engines.compiled([kernel.program for kernel in plan.kernels])

    def _enter_rows_there(self, made: list[Made]) -> None:
        """Enter rows on another device, and what is done where memory turns out to begin where rows cannot."""
        launcher = cuda_rows.Launcher(self.work.plan, self.outline.shape, self.work.metas, self.work.limits.fast_math)
        self._enter_kernels()
        apart, self.instructions = self.instructions, []
        self.instructions.append(Blobwise(made, partial(_rows_on_device, launcher, apart), []))


def launches_of(kernel: Kernel, work: Work) -> Callable[[Making], list[Launch]]:
    """Return what makes the launches of a kernel; that raises LacksError where generated code lacks something."""
    program, shape, axes = kernel.program, work.metas[kernel.domain].shape, kernel.axes
    strides = _strides(kernel, work)
    places = [Place(number) for number in (*kernel.inputs, *kernel.results)]

    def make(making: Making) -> list[Launch]:
        if program.reductions:
            return reduction_launches(program, shape, axes, strides, places, kernel.scalars, making)
        return [map_launch(program, shape, strides, places, kernel.scalars, making)]

    return make


def _strides(kernel: Kernel, work: Work) -> list[Shape]:
    """Return the strides of a kernel's inputs and results over the shape it goes over."""
    metas, shape, plain = work.metas, work.metas[kernel.domain].shape, len(kernel.program.moved)
    numbers = (*kernel.inputs, *kernel.results)
    strides = [strides_over(metas[number].layout, shape) for number in numbers[:plain]]
    return strides + [strides_reduced(metas[number].layout, shape, kernel.axes) for number in numbers[plain:]]


def _traffic(kernel: Kernel, work: Work) -> int:
    """Return the bytes that one element moves."""
    numbers = (*kernel.inputs, *kernel.results)
    begins = [work.begins.get(number, -APART * place) for place, number in enumerate(numbers, 1)]
    sizes = [work.metas[number].dtype.itemsize for number in numbers]
    every = zip(begins, _strides(kernel, work), sizes, strict=True)
    return traffic_of(work.metas[kernel.domain].shape, [Operand(*one) for one in every])


def _seconds_together(kernels: Sequence[Kernel], kept: frozenset[int], metas: Mapping[int, Meta]) -> float:
    """Estimate how long one thread takes for kernels that run together: what comes from outside and what is kept moves,
    and all is computed.
    """
    outside = {n for one in kernels for n in one.inputs} - {n for one in kernels for n in one.results} | kept
    moved = sum(metas[n].nbytes for n in outside)
    computing: float = sum(prod(metas[one.domain].shape) * one.program.seconds for one in kernels)
    return costs.moving_seconds(moved) + computing


# ---- kernels that take blobs


def _reshaped(native: Native, shape: Shape) -> Native:
    return packed_copy(native).reshape(shape)


def _interpreted(kernel: Kernel, shape: Shape, run: Run) -> None:
    """Run a kernel's steps by blocks, and its reductions over the finished arrays."""
    program = kernel.program
    results = [run.blob(number).native() for number in kernel.results]
    arrays, scalars = [run.operand(number) for number in kernel.inputs], [run.operand(n) for n in kernel.scalars]
    found = interpret.evaluate_all(program, shape, arrays, scalars, results[: len(program.outputs)])
    for reduction, result in zip(program.reductions, results[len(program.outputs) :], strict=True):
        function = reduction.op.kernel(CPU)
        result[...] = CPU.call(function, found[reduction.arg], **dict(reduction.params))


def _on_device(kernel: Kernel, launcher: cuda_run.Launcher | None, run: Run) -> None:
    """Run a kernel on another device than the CPU, without waiting for it."""
    blobs = [run.blob(number) for number in (*kernel.inputs, *kernel.results)]
    scalars, notes = [run.operand(number) for number in kernel.scalars], kernel.program.notes
    if launcher is not None and engines.LACKING_THERE not in notes:
        try:
            launcher.run(blobs, scalars)
            return
        except LacksError as lack:  # found out before anything is launched
            engines.lacks_there(kernel.program, lack)
    _step_by_step(kernel, scalars, run)


def _step_by_step(kernel: Kernel, scalars: Sequence[Any], run: Run) -> None:
    """Run a kernel's steps and reductions as calls of the device's library."""
    program, backend = kernel.program, run.facts.device.backend
    values = [*[run.operand(number) for number in kernel.inputs], *scalars]
    for step in program.steps:
        operands = [values[arg] for arg in step.args]
        value = backend.call(step.op.kernel(backend), *operands, **dict(step.params))
        values.append(backend.asarray(value, step.dtype))
    found = [values[number] for number in program.outputs]
    for reduction in program.reductions:
        function = reduction.op.kernel(backend)
        found.append(backend.call(function, values[reduction.arg], **dict(reduction.params)))
    for number, value in zip(kernel.results, found, strict=True):
        backend.call(setitem, run.operand(number), ..., value)


def _rows_on_device(launcher: cuda_rows.Launcher, apart: Sequence[Instruction], run: Run) -> None:
    """Run all kernels as one launch, or one after the other where memory begins where that cannot be."""
    blobs = {number: run.blob(number) for number in launcher.numbers}
    if not launcher.run(blobs, [run.operand(number) for number in launcher.scalars]):
        for instruction in apart:
            instruction.run(run)

"""Preparing schedules: from kernels and the layouts of their operands to instructions, and places for every value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from operator import setitem
from typing import Any

from ..base.caches import make_room
from ..base.dtypes import DType
from ..base.layout import Shape
from ..base.options import Settings
from ..base.profiling import PREPARE, noted, observers
from ..codegen.cpu.vector import LacksError
from ..devices import Device
from ..devices.cpu import CPU, packed_copy
from ..graph.node import View, spell_out
from ..graph.number import value_of, varies
from ..plan.arena import Arena
from ..plan.layouts import Leaf, Meta, Task, Work, work_of
from ..plan.program import Kernel, Plan, Program
from ..plan.trace import Trace
from ..storage.blob import TBlob
from ..storage.pool import ALIGNMENT
from ..storage.storage import Native, Storage
from . import cuda as cuda_run
from . import cuda_segment, engines, interpret
from .columns import ByColumns
from .cuda_rows import ByRowsThere
from .engines import CUDA, INTERPRET, JOINED, LLVM, Outline, outlined
from .joined import Joint, Relaunch
from .native import WORD, Makes, Segment, packable, scalar_format, scalar_numbers
from .rows import ByRows
from .schedule import Blank, Blobwise, Facts, Instruction, Kernels, Library, Made, Ready, Run, Schedule, Shown

# The most schedules of one plan, for operands with different layouts.
WAYS = 64

# The largest arena, in bytes, that each schedule of small arrays keeps for itself.
FEW_BYTES = 1 << 14

# Bytes of a result for which memory is requested in advance: loops that write so much have many parts.
LARGE = 1 << 30


def schedule_of(
    trace: Trace, plan: Plan, key: tuple[Any, ...], into: tuple[int, TBlob] | None, limits: Settings
) -> Schedule:
    """Return the schedule of a plan, prepared if there is none yet. key: of the layouts of operands; into: as for
    `work_of`.
    """
    schedule: Schedule | None = plan.schedules.get(key)
    if schedule is None or not schedule.fits(limits):
        spell_out(trace.values)
        work = work_of(trace, plan, into, limits)
        schedule = prepared(work, sorted(plan.kept))
        if schedule.lasts:
            make_room(plan.schedules, WAYS)
            plan.schedules[key] = schedule
    return schedule


def prepared(work: Work, results: Sequence[int], *, is_again: bool = False) -> Schedule:
    """Return work as a schedule that returns the values of these numbers. is_again: whether it will run again and again
    with the same scalars.
    """
    with noted(PREPARE, "planner", (work.task(work.plan.kernels).words,)) if observers else nullcontext():
        for number in work.plan.kept:
            if work.metas[number].nbytes >= LARGE and number not in work.into:
                Storage(
                    work.device, work.metas[number].nbytes
                ).lend()  # raises MemoryError; the pool has it for the run
        given = max([leaf.given for leaf in work.leaves], default=-1) + 1
        leaves = [*work.leaves, *[Leaf(number, place) for place, number in enumerate(work.into, given)]]
        builder = Builder(work.device, work.limits, given + len(work.into))
        where = {leaf.number: (leaf.given, leaf.after) for leaf in leaves}
        builder.enter(work, where, leaves, work.plan.kept, keeps_scalars=is_again)
        few = builder.arena.nbytes + builder.temporaries.nbytes <= FEW_BYTES
        return builder.schedule(results, keeps_arena=is_again and few)


class Builder:
    """A schedule under construction, of one work or of several that run one after the other.

    Values are numbered consecutively: those of each work begin at a base. given: values that no instruction makes.
    constants: the scalars of all works, in order. arena: what one work leaves to others; temporaries: what each needs
    while it runs, at the same places whenever it comes again; lying: the places of those temporaries that may be asked
    for as blobs.
    """

    def __init__(self, device: Device, limits: Settings, given: int) -> None:
        self.device, self.limits = device, limits
        self.words: list[Any] = [0] * given
        self.formats: list[str] = ["q"] * given
        self.instructions: list[Instruction] = []
        self.given: dict[int, tuple[Leaf, Meta]] = {}
        self.scalars: dict[int, int] = {}
        self.packed: list[tuple[int, int, DType, bool]] = []
        self.constants: list[Any] = []
        self.waiting: list[tuple[Program, int]] = []
        self.arena, self.arena_word = Arena(), self.word()
        self.temporaries, self.temporaries_word = Arena(), self.word()
        self.placed: dict[int, tuple[int, Meta]] = {}
        self.numbers = 0
        self._before: dict[Any, tuple[Outline, dict[int, Makes]]] = {}
        self.lying: dict[int, tuple[int, Meta]] = {}
        self._segment: Segment | None = None
        self._launches: cuda_segment.Segment | None = None
        self._makes: list[Made] = []
        self._drops: list[int] = []
        self._stop: tuple[int, int] | None = None

    def stop(self) -> tuple[int, int]:
        """Return where a kernel may note that it cannot go on, as a word of a run and bytes behind it."""
        self._stop = self._stop or (self.arena_word, self.arena.apart(WORD))
        return self._stop

    def word(self, form: str = "q", value: Any = 0) -> int:
        """Take another word of a run."""
        self.words.append(value)
        self.formats.append(form)
        return len(self.words) - 1

    def number(self, meta: Meta, leaf: Leaf) -> int:
        """Take a number for a value that lies in one that is given or made."""
        self.numbers += 1
        self.given[self.numbers - 1] = leaf, meta
        return self.numbers - 1

    def enter(
        self,
        work: Work,
        where: dict[int, tuple[int, int]],
        leaves: Sequence[Leaf],
        own: Iterable[int],
        *,
        keeps_scalars: bool,
        apart: bool = False,
        lasting: Iterable[int] = (),
    ) -> _Maker:
        """Enter work; kernels for which generated code turns out to lack something are computed otherwise.

        where: of values that have memory already, the word of their address and what is added to it. own: the results
        that get memory of their own. lasting: values that other work takes, of which perhaps only views are kept:
        whoever enters that work drops them. keeps_scalars: whether scalars are the same at every run. apart: whether
        kernels run one after the other in any case.
        """
        base, self.numbers = self.numbers, self.numbers + len(work.trace.values)
        for leaf in leaves:
            self.given[base + leaf.number] = leaf, work.metas[leaf.number]
        scalars = [n for n in range(len(work.trace.values)) if n not in work.metas]
        self.scalars |= {base + number: len(self.constants) + place for place, number in enumerate(scalars)}
        self.constants += [work.trace.values[number] for number in scalars]
        # A loop that is unrolled has the same work many times.
        aligned = tuple([work.begins.get(number, 0) % ALIGNMENT for number in work.into])
        first: dict[int, int] = {}
        same = tuple([first.setdefault(begin, number) for number, begin in work.begins.items()])
        key = (work.plan, tuple(work.metas.items()), work.into, aligned, same, tuple(work.shifts.items()))
        if key not in self._before:
            self._before[key] = _compiled(work, apart)
        outline, makes = self._before[key]
        maker = _Maker(self, work, outline, base, where, set(own), frozenset(lasting).union(own), keeps_scalars)
        maker.enter({place: one._replace(where=maker.where) for place, one in makes.items()})
        self.waiting += outline.waiting
        return maker

    def launch(self, kernel: Makes | cuda_segment.Step, made: Iterable[Made], drops: Iterable[int]) -> None:
        """Enter a kernel of machine code, or of another device than the CPU."""
        if isinstance(kernel, Makes):
            segment = self._segment = self._segment or Segment(self.limits.fast_math, self.formats)
            segment.add(kernel)
            segment.stop = self._stop
        else:
            launches = self._launches = self._launches or cuda_segment.Segment(self.device)
            launches.add(kernel)
        self._makes += made
        self._drops += drops

    def leave_unset(self, made: Made) -> None:
        """Enter memory that begins unset: it is allocated along with that of the kernels around it."""
        self._makes.append(made)

    def instruct(self, instruction: Instruction) -> None:
        """Enter an instruction that is neither machine code nor launched."""
        self.close()
        self.instructions.append(instruction)

    def drop(self, numbers: Iterable[int]) -> None:
        """Drop values after all that has been entered: those that are blobs, as results of libraries are."""
        if self._segment or self._launches:
            self._drops += numbers
        elif self.instructions:
            self.instructions[-1].drops.extend(numbers)

    def close(self) -> None:
        """Make one instruction of the kernels since the last other instruction."""
        segment = self._segment or self._launches
        if segment is not None:
            self.instructions.append(Kernels(self._makes, segment, self._drops))
        else:
            self.instructions += [Blank(made, []) for made in self._makes]
        self._segment, self._launches, self._makes, self._drops = None, None, [], []

    def schedule(self, results: Sequence[int], *, keeps_arena: bool = False) -> Schedule:
        """Return the schedule, which returns the values of these numbers. keeps_arena: see `Schedule`."""
        self.close()
        for instruction in self.instructions:
            if isinstance(instruction, Kernels) and isinstance(instruction.segment, Segment):
                instruction.segment.close()  # all words of a run are known now
        lying = {number: (self.arena.nbytes + place, meta) for number, (place, meta) in self.lying.items()}
        facts = Facts(
            self.device,
            self.words,
            self.given,
            self.scalars,
            self.packed,
            (self.arena_word, self.arena.nbytes + self.temporaries.nbytes),
            (self.temporaries_word, self.arena.nbytes),
            self.placed | lying,
            results,
            tuple(self.waiting),
            self._stop,
        )
        return Schedule(facts, self.instructions, self.limits, keeps_arena=keeps_arena)


def _compiled(work: Work, apart: bool) -> tuple[Outline, dict[int, Makes]]:
    """Return the outline of some work, and the makers of its kernels' launches, by the places of the kernels.

    Kernels for which generated code turns out to lack something are computed otherwise.
    """
    outline = outlined(work, apart=apart)
    while True:
        place, found = 0, dict[int, Makes]()
        try:
            for place, way in outline.ways(work):
                found[place] = Makes.of(way, work.limits.fast_math)
            return outline, found
        except LacksError as lack:  # raised before anything is entered
            if outline.together is None:
                engines.lacks(outline.kernels[place].program, lack)
        outline = outlined(work, apart=True)


class _Maker:
    """The instructions of some work, while they are being found.

    where: of each value and scalar, the word of a run that tells of it and what is added. needed: the values that must
    be available as blobs. again: all that is to be entered if the same work comes another time, None if that is not
    just kernels. is_there: whether the work is on another device than the CPU.
    """

    def __init__(
        self,
        builder: Builder,
        work: Work,
        outline: Outline,
        base: int,
        where: dict[int, tuple[int, int]],
        own: set[int],
        lasting: frozenset[int],
        keeps_scalars: bool,
    ) -> None:
        self.builder, self.work, self.outline, self.base = builder, work, outline, base
        self.chosen = list(zip(outline.kernels, outline.choices, strict=True))
        self.where, self.keeps_scalars = where, keeps_scalars
        self.lasting = lasting
        self.is_there = work.device.backend is not CPU
        self.needed = self._find_needed(own)
        self.again: Sequence[Makes | cuda_segment.Step] | None = None
        self._steps: list[cuda_segment.Step] = []

    @property
    def is_by_loops(self) -> bool:
        """Whether each kernel is a loop in machine code."""
        loops = [kernel.direct is None and choice.engine == LLVM for kernel, choice in self.chosen]
        return all(loops) and self.outline.together is None

    def enter(self, makes: Mapping[int, Makes]) -> None:
        """Enter all instructions."""
        self._enter_scalars()
        together = self.outline.together
        if isinstance(together, ByRowsThere):
            self._enter_rows_there(together)
        else:
            self._enter_kernels(makes)

    def _enter_scalars(self) -> None:
        """Give every scalar that machine code takes a word."""
        builder = self.builder
        for kernel, choice in self.chosen:
            for number, dtype in zip(kernel.scalars, kernel.program.scalars, strict=True):
                if choice.engine != LLVM or number in self.where:
                    continue
                place = builder.scalars[self.base + number]
                scalar = builder.constants[place]
                keeps = self.keeps_scalars and not varies(scalar)
                for second, own in enumerate(scalar_numbers([number], [dtype])):
                    value = packable(value_of(scalar), dtype, bool(second)) if keeps else 0
                    self.where[own] = builder.word(scalar_format(dtype), value), 0
                    if not keeps:
                        builder.packed.append((self.where[own][0], place, dtype, bool(second)))

    def _find_needed(self, own: set[int]) -> set[int]:
        """Return the values that must be available as blobs: those with memory of their own, operands and results of
        everything except machine code and launches, and what such values are views of.
        """
        needed = own
        for kernel, choice in reversed(self.chosen):
            if choice.engine in (LLVM, CUDA) or (self._is_view(kernel) and kernel.direct not in needed):
                continue
            needed.update((*kernel.inputs, *kernel.results))
        return needed

    def _is_view(self, kernel: Kernel) -> bool:
        """Return whether a kernel is a view that needs no copy."""
        node = None if kernel.direct is None else self.work.trace.values[kernel.direct]
        if node is None or type(node.op) is not View:
            return False
        whole = self.work.metas[kernel.inputs[0]].layout
        return node.op.layout(whole, node.dtype.itemsize, **node.params) is not None

    def _made(self, numbers: Iterable[int]) -> list[Made]:
        """Give results memory: of their own if they must be available as blobs, else in the arena."""
        found, builder = [], self.builder
        for number in numbers:
            meta = self.work.metas[number]
            if number in self.where:
                continue
            if number in self.needed:
                self.where[number] = builder.word(), 0
                packed = True if meta.packed else None
                word, nbytes = self.where[number][0], meta.nbytes
                found.append(Made(self.base + number, word, nbytes, meta.dtype, meta.layout, packed))
            else:
                place = builder.temporaries.place(self.base + number, meta.nbytes)
                self.where[number] = builder.temporaries_word, place
                if self.is_there:
                    builder.lying[self.base + number] = place, meta
        return found

    # ---- one kernel after the other

    def _enter_kernels(self, makes: Mapping[int, Makes]) -> None:
        """Enter all kernels in order; values that are no longer needed give their places to others."""
        before = len(self.builder.instructions)
        alone = True
        begun = [before for before, _ in self.outline.joined.values()]
        for place, ((kernel, choice), last) in enumerate(zip(self.chosen, self._last_uses(), strict=True)):
            if kernel in begun:  # computed with the kernel that goes on from it
                continue
            drops = self._dropped(last)
            if place in self.outline.span:
                if place == self.outline.span.start:
                    self._enter_together(makes[place])
                alone = False
            elif choice.engine == LLVM:
                made = self._made(kernel.results)
                self.builder.launch(makes[place], made, drops)
                alone = alone and not made and not drops
                engines.compiled([kernel.program] if kernel.direct is None else [])
            elif choice.engine == JOINED:
                self._enter_joined(place, kernel, drops)
            elif choice.engine == CUDA:
                made, launcher = self._made(kernel.results), engines.launcher_of(kernel, self.work)
                instead = self._instead(kernel)
                self._enter_launched(launcher, made, drops, instead, self.work.task([kernel]))
                alone = alone and not made and not drops
            elif kernel.direct is not None:
                self._enter_direct(kernel, drops)
            else:
                self._enter_blobwise(kernel, choice.engine, drops)
            for number in last:
                self.builder.temporaries.release(self.base + number)
        if alone and len(self.builder.instructions) == before:
            self.again = [*[makes[place] for place in sorted(makes)], *self._steps]  # only one of the two has any

    def _enter_together(self, makes: Makes) -> None:
        """Enter the kernels that run together as one."""
        span, kernels, together = self.outline.span, self.outline.kernels, self.outline.together
        assert isinstance(together, (ByRows, ByColumns))
        inside = kernels[span.start : span.stop]
        drops = [number for last in self._last_uses()[span.start : span.stop] for number in self._dropped(last)]
        made = self._made([number for one in inside for number in one.results if number in together.kept])
        self.builder.launch(makes, made, drops)
        whole = len(inside) == len(kernels)  # then the plan's own programs count, from which these were made
        engines.compiled([kernel.program for kernel in (self.work.plan.kernels if whole else inside)])

    def _dropped(self, last: Iterable[int]) -> list[int]:
        """Return the numbers of the blobs to drop, of values that are no longer needed."""
        return [self.base + number for number in last if number in self.needed and number not in self.lasting]

    def _last_uses(self) -> list[list[int]]:
        """Return, for each kernel, the values that nobody needs after it: what a contraction reads, or what that is a
        view of, is read when the kernel that goes on from it runs.
        """
        until = {}
        for place in sorted(self.outline.joined):
            for number in self.outline.joined[place][0].inputs:
                until[number] = place
                while type(getattr(self.work.trace.values[number], "op", None)) is View:
                    (number,) = self.work.trace.arguments[number]
                    until[number] = place
        found: list[list[int]] = [[] for _ in self.chosen]
        for place, last in enumerate(self.outline.last):
            for number in last:
                found[max(place, until.get(number, place))].append(number)
        return found

    def _enter_blobwise(self, kernel: Kernel, engine: str, drops: list[int]) -> None:
        """Enter a kernel that takes blobs."""
        shape, base = self.work.metas[kernel.domain].shape, self.base
        made, task = self._made(kernel.results), self.work.task([kernel])
        run: Callable[[Run], None] = partial(_step_by_step, kernel, base)
        if engine == INTERPRET:
            run = partial(_interpreted, kernel, shape, base)
        self.builder.instruct(Blobwise(made, run, drops, engine, task))

    def _enter_joined(self, place: int, kernel: Kernel, drops: list[int]) -> None:
        """Enter a contraction and the kernel that goes on from it as one."""
        (before, joint), work = self.outline.joined[place], self.work
        operands, others, _, results = joint.numbers
        apart = all([number not in self.where for number in results])
        made = self._made(results)
        run = partial(_joined, joint, self.base, [self.where[n] for n in (*operands, *others, *results)], apart, [])
        task = Task(f"{work.task([before]).words}, {work.task([kernel]).words}", joint.moved_by(work))
        self.builder.instruct(Blobwise(made, run, drops, LLVM, task))

    def _enter_direct(self, kernel: Kernel, drops: list[int]) -> None:
        """Enter a step that no loop computes."""
        number, work, base = kernel.results[0], self.work, self.base
        node, arguments = work.trace.values[number], work.trace.arguments[number]
        if self._is_view(kernel):
            whole, own = arguments[0], work.metas[number]
            after = own.layout.offset - work.metas[whole].layout.offset
            word, more = self.where[whole]
            self.where[number] = word, more + after
            if self.is_there:
                self.builder.given.setdefault(base + number, (Leaf(number, -1 - base - whole, after), own))
            if number in self.needed:
                writeable = node.op.may_be_written
                self.builder.instruct(Shown(base + number, base + whole, after, own, writeable, drops))
            return
        if type(node.op) is View:
            function: Any = partial(_reshaped, shape=node.shape)
        elif hasattr(node.op, "bound"):
            function = node.op.bound(**node.params)
        else:
            function = partial(node.op.kernel(node.device.backend), **node.params)
        self.where[number] = self.builder.word(), 0
        operands = tuple([base + argument for argument in arguments])
        task = work.task([kernel])
        self.builder.instruct(
            Library(base + number, work.metas[number], self.where[number][0], operands, function, drops, task, Ready())
        )

    # ---- other devices

    def _instead(self, kernel: Kernel) -> Callable[[Run, LacksError], None]:
        """Return what computes a kernel that turns out not to be launched."""
        if kernel.direct is None:
            return partial(_instead, kernel, self.base)
        (number,) = kernel.results
        node, arguments = self.work.trace.values[number], self.work.trace.arguments[number]
        function = partial(node.op.kernel(node.device.backend), **node.params)
        return partial(by_library, function, [self.base + one for one in arguments], self.base + number)

    def _enter_launched(
        self,
        launcher: cuda_run.Launcher,
        made: Iterable[Made],
        drops: list[int],
        instead: Callable[[Run, LacksError], None],
        task: Task,
    ) -> None:
        """Enter a kernel that is launched."""
        places = [self.where[number] for number in launcher.numbers]
        scalars = [self.builder.scalars[self.base + number] for number in launcher.scalars]
        changing = not self.keeps_scalars or any([varies(self.builder.constants[place]) for place in scalars])
        self._steps.append(cuda_segment.Step(launcher, places, scalars, changing, instead, task))
        self.builder.launch(self._steps[-1], made, drops)

    def _enter_rows_there(self, launcher: ByRowsThere) -> None:
        """Enter rows on another device."""
        work = self.work
        made = self._made([n for kernel in self.outline.kernels for n in kernel.results if n in work.plan.kept])
        self._enter_launched(launcher, made, [], _Apart(work, launcher.numbers, self.base), launcher.task)


# ---- kernels that take blobs


def _reshaped(native: Native, shape: Shape) -> Native:
    return packed_copy(native).reshape(shape)


def _joined(
    joint: Joint, base: int, where: Sequence[tuple[int, int]], apart: bool, ready: list[Relaunch], run: Run
) -> None:
    """Run a contraction and what goes on from it. where: the address of each array, as a word of the run and bytes
    behind that; apart: whether results share no memory with others; ready: what repeats it, once that is known.
    """
    scalars = [run.operand(base + number) for number in joint.numbers[2]]
    if ready:  # once filled it stays so, whatever other threads do
        words, number = run.words, base + joint.numbers[0][1]
        keeper = ready[0].kept(run.blob(number)) if run.lasts(number) else None
        if ready[0]([words[word] + after for word, after in where], joint.words(scalars), keeper):
            return
    operands, others, _, results = joint.numbers
    arrays = [[run.operand(base + number) for number in numbers] for numbers in (operands, others, results)]
    found = joint.run(arrays, scalars, apart=apart)
    if found is not None:
        ready[:] = [found]


def _interpreted(kernel: Kernel, shape: Shape, base: int, run: Run) -> None:
    """Run a kernel's steps by blocks, and its reductions over the finished arrays."""
    program = kernel.program
    results = [run.operand(base + number) for number in kernel.results]
    arrays = [run.operand(base + number) for number in kernel.inputs]
    scalars = [run.operand(base + number) for number in kernel.scalars]
    found = interpret.evaluate_all(program, shape, arrays, scalars, results[: len(program.outputs)])
    for reduction, result in zip(program.reductions, results[len(program.outputs) :], strict=True):
        function = reduction.op.kernel(CPU)
        result[...] = CPU.call(function, found[reduction.arg], **dict(reduction.params))


def _instead(kernel: Kernel, base: int, run: Run, lack: LacksError) -> None:
    """Run a kernel of another device that cannot be launched there."""
    if engines.LACKING_THERE not in kernel.program.notes:
        engines.lacks_there(kernel.program, lack)
    _step_by_step(kernel, base, run)


def by_library(function: Any, operands: Sequence[int], result: int, run: Run, lack: LacksError) -> None:
    """Run a step by the library's function, and copy its result into memory that exists."""
    backend = run.facts.device.backend
    found = backend.call(function, *[run.operand(number) for number in operands])
    backend.call(setitem, run.operand(result), ..., found)


def _step_by_step(kernel: Kernel, base: int, run: Run) -> None:
    """Run a kernel's steps and reductions as calls of the device's library."""
    program, backend = kernel.program, run.facts.device.backend
    values = [run.operand(base + number) for number in (*kernel.inputs, *kernel.scalars)]
    for step in program.steps:
        operands = [values[arg] for arg in step.args]
        value = backend.call(step.op.kernel(backend), *operands, **dict(step.params))
        values.append(backend.asarray(value, step.dtype))
    found = [values[number] for number in program.outputs]
    for reduction in program.reductions:
        function = reduction.op.kernel(backend)
        found.append(backend.call(function, values[reduction.arg], **dict(reduction.params)))
    for number, value in zip(kernel.results, found, strict=True):
        backend.call(setitem, run.operand(base + number), ..., value)


class _Apart:
    """Kernels that cannot run as one over rows, because of the addresses where memory begins: one after the other.

    numbers: of the values that are given, including those that are kept.
    """

    def __init__(self, work: Work, numbers: Sequence[int], base: int) -> None:
        self._work, self._numbers, self._base = work._replace(trace=work.trace.structure()), numbers, base
        self._schedule: Schedule | None = None

    def __call__(self, run: Run, lack: LacksError) -> None:
        work, base = self._work, self._base
        if self._schedule is None:
            leaves = [Leaf(number, place) for place, number in enumerate(self._numbers)]
            builder = Builder(work.device, work.limits, len(leaves))
            where = {leaf.number: (leaf.given, 0) for leaf in leaves}
            builder.enter(work, where, leaves, (), keeps_scalars=False, apart=True)
            self._schedule = builder.schedule(())
        scalars = [run.operand(base + number) for number in range(len(work.trace.values)) if number not in work.metas]
        self._schedule.run([run.blob(base + number) for number in self._numbers], scalars)

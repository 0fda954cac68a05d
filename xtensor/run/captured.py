"""Captured functions: the steps of a call as one schedule, which is run again for other arguments."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from math import inf
from typing import Any, NamedTuple

import numpy as np

from ..base.caches import make_room
from ..base.garbage import uncollected
from ..base.layout import Layout
from ..base.options import Settings
from ..base.profiling import PREPARE, noted
from ..devices.cpu import CPU
from ..graph.node import View
from ..graph.number import value_of, varies
from ..plan import costs
from ..plan.layouts import APART, Leaf, Meta, Task, Work
from ..storage.blob import TBlob
from .at_indices import ByCheck, ByIndex, can_be_checked, can_be_indexed, indexed
from .callbacks import can_call_back
from .capture import Capture, with_kernels
from .cuda_segment import Step
from .cuda_transforms import ByCufft
from .executor import before_write, opened
from .factors import FAILED, RESULT, ByLapack, Checked, can_be_called
from .launched import launched
from .native import WORD, Makes, Way
from .prepare import Builder, by_library
from .rolls import ByCopy, RolledError, can_be_copied, can_be_packed, can_be_rolled, folded
from .running import ByRunning, can_run
from .schedule import Call, Copied, Library, Made, Ready, Schedule
from .simplified import meet, simplified, uses
from .standing import Standing, standing
from .taken_down import Called, Evaluated, Spot

# The most bytes of arguments that are copied before a call that may fail after it has written some of them.
UNDONE = 1 << 24

# How many schedules a kind of call keeps for settings other than those of its last call.
MOST_SETTINGS = 4

# The numbers under which a step has places in the arena that are free again once it is done.
_SCRATCH = -(1 << 40), -(1 << 40) - 1


class Before(NamedTuple):
    """The state that a call changes, from before it: tensors with copies of their values, generators with states."""

    copies: list[tuple[TBlob, Any]]
    states: list[tuple[Any, Any]]

    def put_back(self) -> None:
        """Restore this state."""
        for blob, copy in self.copies:
            blob.device.backend.assign(opened(blob), ..., copy)
        for generator, state in self.states:
            generator.state = state


class Output(NamedTuple):
    """A tensor that is returned: a view of an argument, given its number, or of a result of the schedule, which begins
    `after` bytes behind that one's first element.
    """

    argument: int | None
    result: int
    after: int
    meta: Meta
    writeable: bool

    @property
    def is_whole(self) -> bool:
        """Whether it begins where a result of the schedule does, and can be written."""
        return self.argument is None and self.writeable and not self.after

    def of(self, arguments: Sequence[TBlob], results: Sequence[TBlob]) -> TBlob:
        """Return the tensor's blob, given the arguments and the results of the schedule."""
        if self.argument is None:
            whole = results[self.result]
            same = whole.layout == self.meta.layout and whole.dtype == self.meta.dtype
            if same and self.is_whole:
                return whole
        else:
            whole = arguments[self.argument]
        layout = Layout(self.meta.shape, self.meta.layout.strides, whole.layout.offset + self.after)
        return whole.view(layout, writeable=self.writeable, dtype=self.meta.dtype)


class Progress:
    """The effects of the steps before one of a captured call, as it goes from the first step to the last.

    A step of machine code that finds an index out of bounds cannot say what is wrong: the function is called for that,
    which is possible as long as no step has had an effect that others can see.
    """

    def __init__(self, captured: Captured) -> None:
        self._captured = captured
        self._written = [spot for step in {id(one): one for one in captured.steps}.values() for spot in _written(step)]
        self.is_seen = False
        self._inside: set[tuple[Spot, int]] = set()

    def along(self, steps: Iterable[Evaluated | Called]) -> Iterator[Any]:
        """Yield steps, and note the effects of each when the next one is asked for."""
        roots, begin = self._captured.roots, self._captured.begin
        for step in steps:
            yield step
            checked = indexed(step) if isinstance(step, Called) else []
            self._inside |= {one for one in checked if not meet([one[0]], self._written, begin)}
            draws = isinstance(step, Called) and not step.takes
            writes = any([roots[spot.root].argument is not None for spot in _written(step)])
            self.is_seen = self.is_seen or draws or writes

    def is_inside(self, step: Called) -> bool:
        """Return whether a step takes elements at indices that are known to be within bounds."""
        found = indexed(step)
        return bool(found) and self._inside.issuperset(found)

    def is_native(self, step: Called) -> bool:
        """Return whether machine code can do a library call, if it is the next step."""
        if can_be_rolled(step) or can_be_packed(step) or can_run(step):
            return True
        if step.bounds is not None:
            return not self.is_seen and can_be_checked(step)
        if step.indexing is None:
            metas = [spot.meta for spot in step.takes], [spot.meta for spot in step.gives]
            return can_be_called(step.function, *metas) or launched(step.function, *metas) is not None
        if not can_be_indexed(step) or (self.is_seen and not self.is_inside(step)):
            return False
        # Its indices and values must not lie in the memory that it writes.
        return not step.writes or not meet(step.takes[1:], step.takes[:1], self._captured.begin)


def _fails(captured: Captured) -> tuple[bool, bool]:
    """Return whether a step may raise because of values, and whether it may do so other than by stopping machine code
    before any effect can be seen.
    """
    progress, fails = Progress(captured), False
    for step in progress.along({id(step): step for step in captured.steps}.values()):
        if isinstance(step, Called) and step.can_fail and not progress.is_inside(step):
            fails = True
            if progress.is_seen or not (can_be_indexed(step) or can_be_checked(step)):
                return True, True
    return fails, False


def _written(step: Evaluated | Called) -> list[Spot]:
    """Return the spots that a step writes in memory that existed before it."""
    if isinstance(step, Called):
        return [spot for spot in step.takes if spot.root in step.writes]
    return [step.spots[number] for number in step.into]


class Captured:
    """A captured call, which can be done again.

    steps, roots, written_roots, blank: as of its Capture. begins: addresses of arguments. results: the returned spots,
    and whether each can be written. pays_dispatched: whether kernels dispatched by machine code (calls/dispatch.py)
    cost less than library calls. written: the numbers of the arguments that it writes. fails, fails_late: as of _fails,
    for a call that writes or draws. branches: whether it depends on booleans that it computes. looked: the number of
    values that a call looks into, is given, and leaves elsewhere. is_dispatched: whether machine code may dispatch it.
    """

    def __init__(self, capture: Capture, outputs: Sequence[TBlob], looked: int, *, is_dispatched: bool = True) -> None:
        self.steps, self.roots, self.blank = capture.steps, capture.roots, capture.blank
        self.results = [(capture.spot_of(blob), blob.writeable) for blob in outputs]
        self.device = capture.device
        self.begins = [blob.address for blob in capture.arguments]
        self._nbytes = [
            one.nbytes if one.argument is None else capture.arguments[one.argument].nbytes for one in self.roots
        ]
        self.written_roots = capture.written_roots
        numbers = [self.roots[root].argument for root in sorted(self.written_roots)]
        self.written = [number for number in numbers if number is not None]
        self._schedule: Schedule | None = None
        self._others: dict[Settings, Schedule] = {}  # under other settings: calls may alternate between them
        self.may_be_repeated = not (self.written or capture.draws)  # with the same outcome, after any part of it
        self.fails, self.fails_late = (False, False) if self.may_be_repeated else _fails(self)
        self.branches = capture.branches
        self._saved, self.pays_dispatched = self._costs(looked, costs.TAPED * capture.taped)
        self.pays_dispatched &= is_dispatched

    @property
    def is_small(self) -> bool:
        """Whether library calls are expected to cost less than its kernels."""
        return self._saved < 0

    @property
    def is_prepared(self) -> bool:
        """Whether there is a schedule, so that it is known which of its steps are library calls."""
        return self._schedule is not None

    def _costs(self, looked: int, by_tape: float) -> tuple[float, bool]:
        """Return how many seconds a call saves by kernels, and whether it pays if it is dispatched by machine code.
        by_tape: the additional seconds that gradients cost with library calls.
        """
        if self.device.backend is not CPU:
            return inf, False
        by_calls, by_kernels, runs, largest = by_tape, costs.RUN, 0.0, 0
        times = Counter(map(id, self.steps))  # a loop has the same ones again
        is_dispatched, between, called, progress = True, 0.0, 0, Progress(self)
        for step in progress.along({id(step): step for step in self.steps}.values()):
            count = times[id(step)]
            if isinstance(step, Called):
                if progress.is_native(step):
                    is_cheap = any([one is not None for one in (step.indexing, step.runs_along, step.bounds)])
                    by_calls += count * (costs.INDEXED if is_cheap else costs.FACTORED)
                    continue
                is_dispatched &= can_call_back(step.function, [spot.meta for spot in step.gives])
                called += count
                between += count * (costs.BETWEEN + costs.SHOWN * step.is_copy_of_view)
                by_calls += count * costs.PREPARED * hasattr(step.function, "ready")
                continue
            elements = step.plan.largest(step.metas)
            largest = max([largest, *[meta.nbytes for meta in step.metas.values()]])
            views = sum([not self._is_whole(spot) for spot in step.spots.values()])
            by_calls += count * costs.calls_seconds(step.plan, elements, len(step.trace.arguments), views)
            by_calls += count * costs.PREPARED * _prepared(step)
            by_kernels += count * costs.kernels_seconds(step.plan, elements, step.metas)
            runs += count * costs.RUN
        beside = costs.REPLAY + len(self.results) * costs.RESULT + looked * costs.LOOKED
        beside += len(self.begins) * costs.ARGUMENT
        saved = by_calls - by_kernels - between - beside if largest <= costs.DIRECT_BELOW else inf
        dispatched = costs.DISPATCH + (len(self.results) + len(self.begins)) * costs.DISPATCHED
        dispatched += called * (costs.CALLBACK - costs.LIBRARY)
        return saved, is_dispatched and by_calls + costs.CALL > by_kernels - costs.RUN - runs + dispatched

    def begin(self, spot: Spot) -> int:
        """Return the address of a spot at the time of capture; if it is in no argument, one apart from all others."""
        argument = self.roots[spot.root].argument
        begin = APART * -(spot.root + 1) if argument is None else self.begins[argument]
        return begin + spot.after

    def _is_whole(self, spot: Spot) -> bool:
        """Return whether a spot is all of its memory, rather than a view of a part."""
        return not spot.after and spot.meta.nbytes == self._nbytes[spot.root]

    def run(self, arguments: Sequence[TBlob], limits: Settings, cells: Sequence[Any] = ()) -> list[TBlob]:
        """Return the results for these arguments, which are written as the captured call wrote its own. cells: the
        values of the cells of arithmetic on numbers.
        """
        schedule = self._schedule
        if schedule is None or not schedule.fits(limits):
            schedule = self._schedule = self._changed(limits)
        for number in self.written:
            before_write(arguments[number].owner)
        scalars = self._scalars
        if self._varying:
            scalars = scalars.copy()  # a new list tells kernels that scalars have changed
            for place, cell in self._varying:
                scalars[place] = cells[cell]
        written = [arguments[number].owner for number in self.written]
        try:
            for owner in written:
                owner.is_written = True
            results = schedule.run([*arguments, *self._constants] if self._constants else arguments, scalars)
        finally:
            for owner in written:
                owner.is_written, owner.changes = False, owner.changes + 1
        return [output.of(arguments, results) for output in self.outputs]

    def can_be_undone(self, arguments: Sequence[TBlob]) -> bool:
        """Return whether a call changes little enough memory to copy it, and only generators that are known."""
        known = all(hasattr(draw, "generator") for draw in self._draws)
        return known and sum([arguments[number].nbytes for number in self.written]) <= UNDONE

    @property
    def _draws(self) -> list[Any]:
        return [step.function for step in self.steps if isinstance(step, Called) and not step.takes]

    def before(self, arguments: Sequence[TBlob]) -> Before:
        """Return copies of all that a call changes, to be taken before it."""
        blobs = [arguments[number] for number in self.written]
        generators = {id(draw.generator): draw.generator for draw in self._draws if draw.generator is not None}
        copies = [(blob, self.device.backend.call(blob.native().copy)) for blob in blobs]
        return Before(copies, [(one.bit_generator, one.bit_generator.state) for one in generators.values()])

    def standing(self, arguments: Sequence[TBlob]) -> Standing | None:
        """Return a run that stands ready and whose results are exactly the outputs; None where there is none."""
        whole = [one for one in self.outputs if one.is_whole and one.meta.layout.order(one.meta.dtype.itemsize)]
        if self._schedule is None or len(whole) < len(self.outputs):
            return None
        given, cells = [*arguments, *self._constants], dict(self._varying)
        found = standing(self._schedule, given, self._scalars, cells, again=self.may_be_repeated)
        if found is None or sorted([one.result for one in whole]) != list(range(len(found.makes))):
            return None
        pairs = [(found.makes[one.result], one.meta) for one in whole]
        makes = [own._replace(layout=meta.layout) for own, meta in pairs]  # perhaps of another shape, as a column
        alike = all([(own.nbytes, own.dtype) == (meta.nbytes, meta.dtype) for own, meta in pairs])
        return found._replace(makes=makes, kept=(found.kept, self._constants)) if alike else None

    def lines(self) -> list[str]:
        """Return a description in lines: of the schedule if there is one, else of the recorded steps."""
        schedule = self._schedule
        if schedule is None:
            return [f"  {len(self.steps)} steps, of which a schedule is prepared with the next call"]
        arena, count = schedule.facts.arena[1], len(schedule.instructions)
        size = f"{count} instruction{'s' * (count != 1)}, {arena} bytes of arena"
        head = f"  schedule of {size}, {len(self.results)} results"
        return [head, *[f"    {words}" for words in self.words()]]

    def words(self) -> list[str]:
        """Return a description of each instruction of the schedule; none before it is prepared."""
        return [one.words() for one in self._schedule.instructions] if self._schedule else []

    # ---- preparing

    def _changed(self, limits: Settings) -> Schedule:
        """Return a schedule for settings that differ from those of the last call; that call's schedule is kept."""
        if self._schedule is not None:
            make_room(self._others, MOST_SETTINGS)
            self._others[self._schedule.limits] = self._schedule
        known = self._others.pop(limits, None)
        return known if known is not None and known.fits(limits) else self._prepared(limits)

    def _prepared(self, limits: Settings) -> Schedule:
        """Return the steps as one schedule."""
        with uncollected(), noted(PREPARE, "planner", (f"a captured function of {len(self.steps)} steps",)):
            return self._joined(limits)

    def _joined(self, asked: Settings) -> Schedule:
        limits = with_kernels(asked, self.device)
        folds = limits.engine == "llvm" and self.device.backend is CPU
        try:
            made = _Joined(self, limits, folds=folds)
        except RolledError:
            made = _Joined(self, limits, folds=False)
        self._constants, self.outputs, scalars = made.constants, made.outputs, made.builder.constants
        self._varying = [(place, one.cell) for place, one in enumerate(scalars) if varies(one)]
        self._scalars = [value_of(one) for one in scalars]
        schedule = made.schedule
        schedule.limits = asked
        if self._schedule is None:
            apart = [one for one in schedule.instructions if isinstance(one, Library)]
            self._saved -= len(apart) * costs.BETWEEN
            self.pays_dispatched &= all([can_call_back(one.function, [one.meta]) for one in apart])
        return schedule


def _prepared(step: Evaluated) -> int:
    """Return how many of an evaluation's kernels are direct calls other than products: convolutions and their kin."""
    made = [step.trace.values[kernel.results[0]] for kernel in step.plan.kernels if kernel.direct is not None]
    return sum([node.op.name != "matmul" and type(node.op) is not View for node in made])


class _Joined:
    """The schedule of several steps, while it is put together.

    constants: blobs that are given besides the arguments. outputs: the tensors that are returned. own: the roots of
    results, which have memory of their own. copied: constants that are written or returned, and their places among the
    given blobs; given: all other roots that are given. places: for each root, the word of a run that has its address,
    and the offset from there; numbers: for roots that are made, the numbers of their values. noted: the offset in the
    arena of the word for failures of factorisations.
    """

    def __init__(self, captured: Captured, limits: Settings, *, folds: bool) -> None:
        self.captured, self.limits, self.roots = captured, limits, captured.roots
        self.own = {spot.root for spot, _ in captured.results}
        steps = folded(captured.steps, self.own, captured.begin) if folds else captured.steps
        self.steps = simplified(steps, self.own, captured.begin)
        fixed = {n: one.constant for n, one in enumerate(self.roots) if one.constant is not None}
        self.constants = list(fixed.values())
        places = dict(zip(fixed, range(len(captured.begins), len(captured.begins) + len(fixed)), strict=True))
        self.copied = {n: place for n, place in places.items() if n in captured.written_roots or n in self.own}
        arguments = {n: one.argument for n, one in enumerate(self.roots) if one.argument is not None}
        self.given = arguments | {n: place for n, place in places.items() if n not in self.copied}
        self.places = {number: (place, 0) for number, place in self.given.items()}
        self.numbers: dict[int, int] = {}
        self._again: dict[int, Sequence[Makes | Step]] = {}
        self.builder = Builder(captured.device, limits, len(captured.begins) + len(fixed))
        self.noted: int | None = None
        self._progress = Progress(captured)
        self._join()
        made = sorted([number for number in self.own if number not in self.given])
        self.outputs = [self._output(*one, made) for one in captured.results]
        self.schedule = self.builder.schedule([self.numbers[number] for number in made], keeps_arena=True)

    def _join(self) -> None:
        """Enter all steps in order; memory that is not needed any more gives its place to others."""
        first: dict[int, int] = {}
        final: dict[int, int] = {}
        for at, root in uses(self.steps):
            first.setdefault(root, at)
            final[root] = at
        begun, last = defaultdict[int, list[int]](list), defaultdict[int, list[int]](list)
        for root, at in final.items():
            last[at].append(root)
        for root in (*self.copied, *self.captured.blank):
            if root in first or root in self.own:
                begun[first.get(root, 0)].append(root)
        for at, step in enumerate(self._progress.along(self.steps)):
            for root in begun.get(at, ()):
                self._begin_with(root)
            if isinstance(step, Called):
                self._call(step)
            else:
                self._evaluate(step)
            for root in last.get(at, ()):
                self.builder.arena.release(-1 - root)
                if root in self.numbers and root not in self.own:
                    self.builder.drop([self.numbers[root]])

    def _begin_with(self, root: int) -> None:
        """Enter memory that exists before a step writes it: with the contents of a constant, or unset."""
        if root in self.copied:
            self._copy_in(root, self.copied[root])
        else:
            self._leave_unset(root)

    def _where(self, spot: Spot) -> tuple[int, int]:
        """Return the word of a run that has the address of a spot's memory, and the offset from there."""
        word, more = self.places[spot.root]
        return word, more + spot.after

    def _leaf(self, spot: Spot, number: int = 0) -> Leaf:
        """Return a spot as the memory of a value."""
        given = self.given.get(spot.root)
        return Leaf(number, -1 - self.numbers[spot.root] if given is None else given, spot.after)

    def _output(self, spot: Spot, writeable: bool, made: list[int]) -> Output:
        argument = self.roots[spot.root].argument
        return Output(argument, -1 if argument is not None else made.index(spot.root), spot.after, spot.meta, writeable)

    # ---- steps

    def _evaluate(self, step: Evaluated) -> None:
        """Enter an evaluation: results that only later steps read lie in the arena."""
        builder, again = self.builder, self._again.get(id(step))
        if again is not None:
            for one in again:
                builder.launch(one, (), ())
            return
        own, where, leaves, fresh = set[int](), dict[int, tuple[int, int]](), list[Leaf](), dict[int, int]()
        for number, spot in step.spots.items():
            if spot.root in self.places:
                if number not in step.trace.arguments or number in step.into:
                    where[number] = self._where(spot)
                    leaves.append(self._leaf(spot, number))
            else:
                fresh[spot.root] = step.whole(number)
        base = builder.numbers
        for root, number in fresh.items():
            if root in self.own:
                own.add(number)
            else:
                place = builder.arena.place(-1 - root, self.roots[root].nbytes)
                where[number] = builder.arena_word, place
                builder.placed[base + number] = place, step.metas[number]
            self.numbers[root] = base + number
        begins = {number: self.captured.begin(spot) for number, spot in step.spots.items()}
        shifts = {number: spot.shifts for number, spot in step.spots.items() if spot.shifts}
        work = Work(step.trace, step.plan, step.metas, leaves, step.into, begins, self.limits, shifts, is_certain=True)
        maker = builder.enter(work, where, leaves, own, keeps_scalars=True, lasting=fresh.values())
        if shifts and not maker.is_by_loops:
            raise RolledError
        if not fresh and maker.again is not None:
            self._again[id(step)] = maker.again
        for root, number in fresh.items():
            self.places[root] = maker.where[number]

    def _call(self, step: Called) -> None:
        """Enter a call of a function of native arrays."""
        builder = self.builder
        is_generated = self.limits.engine == "llvm" and builder.device.backend is CPU
        if is_generated and self._progress.is_native(step):
            self._launch(step)
            return
        transform = ByCufft.of(step, builder.device, self.limits)
        if transform is not None:
            self._transform(step, transform)
            return
        takes = tuple([builder.number(spot.meta, self._leaf(spot)) for spot in step.takes])
        gives = []
        for spot in step.gives:
            builder.numbers += 1
            number, word = builder.numbers - 1, builder.word()
            gives.append((number, word, spot.meta))
            self.numbers[spot.root], self.places[spot.root] = number, (word, 0)
        builder.instruct(Call(step.function, takes, tuple(gives), Ready(), []))

    def _launch(self, step: Called) -> None:
        """Enter a call by machine code. A factorisation that fails stops the run if the captured call can be repeated;
        otherwise its failure is noted and checked by an instruction, which raises at once.
        """
        builder, again = self.builder, self.captured.may_be_repeated
        way = self._way(step, first=not again and self.noted is None)
        where, made = {place: self._where(spot) for place, spot in enumerate(step.takes)}, list[Made]()
        for at, spot in enumerate(step.gives, RESULT):
            made += self._make(spot.root, spot.meta)
            where[at] = self.places[spot.root]
        can_fail = isinstance(way, ByLapack) and way.can_fail
        if isinstance(way, (ByIndex, ByCheck)) or (can_fail and again):
            where[FAILED] = builder.stop()
        elif can_fail:
            if self.noted is None:
                self.noted = builder.arena.place(len(self.roots), WORD)
            where[FAILED] = builder.arena_word, self.noted
        builder.launch(Makes.of(way, self.limits.fast_math)._replace(where=where), made, ())
        if can_fail and not again:
            builder.instruct(Checked(builder.arena_word, where[FAILED][1], step.name, []))

    def _transform(self, step: Called, transform: ByCufft) -> None:
        """Enter a Fourier transform on another device: with scratch memory for its copy, and for its work area."""
        builder, root, meta = self.builder, step.gives[0].root, step.gives[0].meta
        source = builder.number(step.takes[0].meta, self._leaf(step.takes[0]))
        made, where = self._make(root, meta), [self._where(step.takes[0]), self.places[root]]
        for number, nbytes in zip(_SCRATCH, (transform.copied, transform.work), strict=True):
            where.append((builder.arena_word, builder.arena.place(number, nbytes)))
        instead = partial(by_library, step.function, [source], self.numbers[root])
        task = Task(step.name, step.takes[0].meta.nbytes + meta.nbytes)
        builder.launch(Step(transform, where, (), False, instead, task), made, ())
        for number in _SCRATCH:  # later work on the stream may use them
            builder.arena.release(number)

    def _way(self, step: Called, *, first: bool) -> Way:
        """Return how machine code does a library call. first: whether it is the first one that notes failures."""
        if can_be_rolled(step) or can_be_packed(step):
            return ByCopy.of(step)
        if step.indexing is not None:
            return ByIndex(step)
        if step.bounds is not None:
            return ByCheck(step)
        if step.runs_along is not None:
            return ByRunning(step)
        takes, gives = [spot.meta for spot in step.takes], [spot.meta for spot in step.gives]
        return launched(step.function, takes, gives) or ByLapack(step.function, takes, gives, first=first)

    def _make(self, root: int, meta: Meta) -> list[Made]:
        """Give a root memory in the arena, or of its own if it is a result; return the memory that is to be made."""
        builder = self.builder
        builder.numbers += 1
        number = self.numbers[root] = builder.numbers - 1
        if root in self.own:
            self.places[root] = builder.word(), 0
            return [Made(number, self.places[root][0], meta.nbytes, meta.dtype, meta.layout, None)]
        nbytes = max(self.roots[root].nbytes, meta.nbytes)  # a view's copy has its gaps
        self.places[root] = builder.arena_word, builder.arena.place(-1 - root, nbytes)
        builder.placed[number] = self.places[root][1], meta
        return []

    def _leave_unset(self, root: int) -> None:
        """Enter memory that begins unset: with the meta of the result that is all of it, if one is, else as bytes."""
        nbytes = self.roots[root].nbytes
        metas = [spot.meta for spot, _ in self.captured.results if spot.root == root and not spot.after]
        whole = [meta for meta in metas if meta.nbytes == nbytes and meta.layout.is_contiguous(meta.dtype.itemsize)]
        meta = whole[0] if whole else Meta((nbytes,), np.dtype(np.uint8), Layout((nbytes,), (1,)), True)
        for made in self._make(root, meta):
            self.builder.leave_unset(made)

    def _copy_in(self, root: int, given: int) -> None:
        """Enter memory that begins with the contents of a constant."""
        constant, builder = self.roots[root].constant, self.builder
        assert constant is not None
        meta = Meta(constant.shape, constant.dtype, Layout(constant.shape, constant.layout.strides), constant.is_packed)
        if self.limits.engine == "llvm" and builder.device.backend is CPU and meta.packed and can_be_copied([meta]):
            made = self._make(root, meta)
            where = {0: (given, 0), RESULT: self.places[root]}
            builder.launch(Makes.of(ByCopy(meta, meta), self.limits.fast_math)._replace(where=where), made, ())
            return
        source = builder.number(meta, Leaf(0, given))
        builder.numbers += 1
        number = self.numbers[root] = builder.numbers - 1
        word = builder.word()
        self.places[root] = word, 0
        builder.instruct(Copied(number, word, source, meta, []))

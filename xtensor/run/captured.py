"""Captured functions: the steps of a call as one schedule, which runs again over other arguments."""

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
from .at_indices import ByIndex, can_be_indexed, indexed
from .callbacks import can_call_back
from .capture import Capture, with_kernels
from .cuda_segment import Step
from .cuda_transforms import ByCufft
from .executor import before_write, opened
from .factors import FAILED, RESULT, ByLapack, Checked, can_be_called
from .native import WORD, Makes
from .prepare import Builder, by_library
from .rolls import ByCopy, RolledError, can_be_copied, can_be_packed, can_be_rolled, folded
from .running import ByRunning, can_run
from .schedule import Call, Copied, Library, Made, Ready, Schedule
from .simplified import meet, simplified, uses
from .standing import Standing, standing
from .taken_down import Called, Evaluated, Spot

# Bytes of arguments up to which they are copied before a call that may fail when it has written some.
UNDONE = 1 << 24

# How many schedules a kind of call keeps for settings other than those of its last call.
MOST_SETTINGS = 4

# The numbers under which a step has places in the arena that are nobody's once it is done.
_SCRATCH = -(1 << 40), -(1 << 40) - 1


class Before(NamedTuple):
    """What a call changes, as it was: tensors with copies of what they held, and generators with their states."""

    copies: list[tuple[TBlob, Any]]
    states: list[tuple[Any, Any]]

    def put_back(self) -> None:
        """Put it back."""
        for blob, copy in self.copies:
            blob.device.backend.assign(opened(blob), ..., copy)
        for generator, state in self.states:
            generator.state = state


class Output(NamedTuple):
    """A tensor that is returned: a view of an argument by its number, or of a result of the schedule, so many bytes
    after its first element.
    """

    argument: int | None
    result: int
    after: int
    meta: Meta
    writeable: bool

    @property
    def is_whole(self) -> bool:
        """Whether it is a result as it begins, which can be written."""
        return self.argument is None and self.writeable and not self.after

    def of(self, arguments: Sequence[TBlob], results: Sequence[TBlob]) -> TBlob:
        """Return its bytes."""
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
    """What has been done before a step of a captured call, from the first one to the last.

    A step of machine code that finds an index outside cannot say what is wrong: the function is called for that, which
    is possible as long as nothing has been done that is seen.
    """

    def __init__(self, captured: Captured) -> None:
        self._captured = captured
        self._written = [spot for step in {id(one): one for one in captured.steps}.values() for spot in _written(step)]
        self.is_seen = False
        self._inside: set[tuple[Spot, int]] = set()

    def along(self, steps: Iterable[Evaluated | Called]) -> Iterator[Any]:
        """Yield steps, and take down what each does when the next one is asked for."""
        roots, begin = self._captured.roots, self._captured.begin
        for step in steps:
            yield step
            checked = indexed(step) if isinstance(step, Called) else []
            self._inside |= {one for one in checked if not meet([one[0]], self._written, begin)}
            draws = isinstance(step, Called) and not step.takes
            writes = any([roots[spot.root].argument is not None for spot in _written(step)])
            self.is_seen = self.is_seen or draws or writes

    def is_inside(self, step: Called) -> bool:
        """Return whether a step takes elements at indices that are known to be inside."""
        found = indexed(step)
        return bool(found) and self._inside.issuperset(found)

    def is_native(self, step: Called) -> bool:
        """Return whether machine code can make a library call, which is the next step."""
        if can_be_rolled(step) or can_be_packed(step) or can_run(step):
            return True
        if step.indexing is None:
            return can_be_called(step.function, [spot.meta for spot in step.takes], [spot.meta for spot in step.gives])
        if not can_be_indexed(step) or (self.is_seen and not self.is_inside(step)):
            return False
        # What it reads must not change as it writes.
        return not step.writes or not meet(step.takes[1:], step.takes[:1], self._captured.begin)


def _fails(captured: Captured) -> tuple[bool, bool]:
    """Return whether a step may raise for what values are, and whether it may do so other than by stopping machine code
    before anything has been done that is seen.
    """
    progress, fails = Progress(captured), False
    for step in progress.along({id(step): step for step in captured.steps}.values()):
        if isinstance(step, Called) and step.can_fail and not progress.is_inside(step):
            fails = True
            if progress.is_seen or not can_be_indexed(step):
                return True, True
    return fails, False


def _written(step: Evaluated | Called) -> list[Spot]:
    """Return what a step writes of what is there before."""
    if isinstance(step, Called):
        return [spot for spot in step.takes if spot.root in step.writes]
    return [step.spots[number] for number in step.into]


class Captured:
    """What a captured call did, to be done again.

    steps, roots, written_roots, blank: as of its Capture. begins: where arguments began. results: what is returned, and
    whether that can be written. pays_dispatched: whether library calls cost more once machine code finds out what runs
    (calls/dispatch.py). written: the numbers of the arguments that it writes. fails, fails_late: as of _fails, of one
    that writes or draws. looked: what a call looks into, is told and leaves elsewhere. is_dispatched: whether
    machine code may find it.
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
        self._others: dict[Settings, Schedule] = {}  # under other settings, which calls may change to and fro
        self.may_be_repeated = not (self.written or capture.draws)  # with the same outcome, whatever of it was done
        self.fails, self.fails_late = (False, False) if self.may_be_repeated else _fails(self)
        self._saved, self.pays_dispatched = self._costs(looked, costs.TAPED * capture.taped)
        self.pays_dispatched &= is_dispatched

    @property
    def is_small(self) -> bool:
        """Whether library calls are expected to cost less than its kernels."""
        return self._saved < 0

    @property
    def is_prepared(self) -> bool:
        """Whether there is a schedule, so that it is known what of its steps are library calls."""
        return self._schedule is not None

    def _costs(self, looked: int, by_tape: float) -> tuple[float, bool]:
        """Return how many seconds a call of its kernels saves, and whether it pays dispatched. by_tape: what a gradient
        costs with library calls besides.
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
                    is_cheap = step.indexing is not None or step.runs_along is not None
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
        """Return where memory began when the call was captured, or some other place apart from all other memory."""
        argument = self.roots[spot.root].argument
        begin = APART * -(spot.root + 1) if argument is None else self.begins[argument]
        return begin + spot.after

    def _is_whole(self, spot: Spot) -> bool:
        """Return whether a spot is all of its memory, and no view of some."""
        return not spot.after and spot.meta.nbytes == self._nbytes[spot.root]

    def run(self, arguments: Sequence[TBlob], limits: Settings, cells: Sequence[Any] = ()) -> list[TBlob]:
        """Return the results for these arguments, which are written as the call wrote its own. cells: of what is
        computed of numbers.
        """
        schedule = self._schedule
        if schedule is None or not schedule.fits(limits):
            schedule = self._schedule = self._changed(limits)
        for number in self.written:
            before_write(arguments[number].owner)
        scalars = self._scalars
        if self._varying:
            scalars = scalars.copy()  # in a list of its own, which tells kernels that it is another one
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
        """Return whether what a call changes is little, and its generators are known."""
        known = all(hasattr(draw, "generator") for draw in self._draws)
        return known and sum([arguments[number].nbytes for number in self.written]) <= UNDONE

    @property
    def _draws(self) -> list[Any]:
        return [step.function for step in self.steps if isinstance(step, Called) and not step.takes]

    def before(self, arguments: Sequence[TBlob]) -> Before:
        """Return what a call changes, as it is before."""
        blobs = [arguments[number] for number in self.written]
        generators = {id(draw.generator): draw.generator for draw in self._draws if draw.generator is not None}
        copies = [(blob, self.device.backend.call(blob.native().copy)) for blob in blobs]
        return Before(copies, [(one.bit_generator, one.bit_generator.state) for one in generators.values()])

    def standing(self, arguments: Sequence[TBlob]) -> Standing | None:
        """Return a run that stands ready, whose results are all that is returned; None where there is none."""
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
        """Return what it does, in words: the schedule if there is one, else the steps that were taken down."""
        schedule = self._schedule
        if schedule is None:
            return [f"  {len(self.steps)} steps, of which a schedule is prepared with the next call"]
        arena, count = schedule.facts.arena[1], len(schedule.instructions)
        size = f"{count} instruction{'s' * (count != 1)}, {arena} bytes of arena"
        head = f"  schedule of {size}, {len(self.results)} results"
        return [head, *[f"    {words}" for words in self.words()]]

    def words(self) -> list[str]:
        """Return what each instruction of the schedule does, in words; none before it is prepared."""
        return [one.words() for one in self._schedule.instructions] if self._schedule else []

    # ---- preparing

    def _changed(self, limits: Settings) -> Schedule:
        """Return a schedule for settings that differ from those of the last call, whose schedule is kept."""
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
    """Return how many of an evaluation's steps are convolutions and their kin: by functions other than products."""
    made = [step.trace.values[kernel.results[0]] for kernel in step.plan.kernels if kernel.direct is not None]
    return sum([node.op.name != "matmul" and type(node.op) is not View for node in made])


class _Joined:
    """The schedule of several steps, while it is put together.

    constants: memory that is given besides the arguments. outputs: what is returned. own: the roots of results, which
    have memory of their own. copied: constants that are written, or returned, and where among what is given they are;
    given: all other memory that is given. places: of roots, the word of a run that tells of it and what is to be added;
    numbers: of roots that are made, the values that they are. noted: where in the arena failures of factorisations are.
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
        """Enter all steps in order; what nobody needs any more gives its place to others."""
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
        """Enter memory that is there before a step writes it: with the contents of a constant, or unset."""
        if root in self.copied:
            self._copy_in(root, self.copied[root])
        else:
            self._leave_unset(root)

    def _where(self, spot: Spot) -> tuple[int, int]:
        """Return the word of a run that tells of memory, and what is to be added."""
        word, more = self.places[spot.root]
        return word, more + spot.after

    def _leaf(self, spot: Spot, number: int = 0) -> Leaf:
        """Return memory as what a value lies in."""
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
        """Enter a call by machine code. A factorisation that fails stops the run where the captured call can be made
        again; elsewhere it is found, and raised, at once.
        """
        builder, again = self.builder, self.captured.may_be_repeated
        way = self._way(step, first=not again and self.noted is None)
        where, made = {place: self._where(spot) for place, spot in enumerate(step.takes)}, list[Made]()
        for at, spot in enumerate(step.gives, RESULT):
            made += self._make(spot.root, spot.meta)
            where[at] = self.places[spot.root]
        can_fail = isinstance(way, ByLapack) and way.can_fail
        if isinstance(way, ByIndex) or (can_fail and again):
            where[FAILED] = builder.stop()
        elif can_fail:
            if self.noted is None:
                self.noted = builder.arena.place(len(self.roots), WORD)
            where[FAILED] = builder.arena_word, self.noted
        builder.launch(Makes.of(way, self.limits.fast_math)._replace(where=where), made, ())
        if can_fail and not again:
            builder.instruct(Checked(builder.arena_word, where[FAILED][1], step.name, []))

    def _transform(self, step: Called, transform: ByCufft) -> None:
        """Enter a Fourier transform on another device: with a place for what it copies, and one for its work area."""
        builder, root, meta = self.builder, step.gives[0].root, step.gives[0].meta
        source = builder.number(step.takes[0].meta, self._leaf(step.takes[0]))
        made, where = self._make(root, meta), [self._where(step.takes[0]), self.places[root]]
        for number, nbytes in zip(_SCRATCH, (transform.copied, transform.work), strict=True):
            where.append((builder.arena_word, builder.arena.place(number, nbytes)))
        instead = partial(by_library, step.function, [source], self.numbers[root])
        task = Task(step.name, step.takes[0].meta.nbytes + meta.nbytes)
        builder.launch(Step(transform, where, (), False, instead, task), made, ())
        for number in _SCRATCH:  # what comes after it on the stream may have them
            builder.arena.release(number)

    def _way(self, step: Called, *, first: bool) -> ByCopy | ByIndex | ByRunning | ByLapack:
        """Return how machine code makes a library call. first: whether it is the first one that notes failures."""
        if can_be_rolled(step) or can_be_packed(step):
            return ByCopy.of(step)
        if step.indexing is not None:
            return ByIndex(step)
        if step.runs_along is not None:
            return ByRunning(step)
        takes, gives = [spot.meta for spot in step.takes], [spot.meta for spot in step.gives]
        return ByLapack(step.function, takes, gives, first=first)

    def _make(self, root: int, meta: Meta) -> list[Made]:
        """Give a root memory in the arena, or of its own where it is returned: that is what is to be made."""
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
        """Enter memory that begins with unset values: as what is returned of it, where that is all of it."""
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

"""Runs that stand ready: the words of a schedule's run in memory of their own. Machine code enters addresses there and
calls the driver itself (codegen/cpu/dispatch.py), while it holds Python's lock: one run serves all threads, one at a
time if library functions are called inside (callbacks.py).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..base.dtypes import DType
from ..codegen.cpu.driver import driver
from ..plan.layouts import Meta
from ..storage.blob import TBlob
from ..storage.storage import Native
from .callbacks import Callback, can_call_back
from .native import WORD, Makes, Segment, packable, scalar_format, whole
from .schedule import Call, Facts, Instruction, Kernels, Library, Made, Run, Schedule, Shown

# The most seconds that the kernels of a run may be expected to take, and its most launches, as other threads wait so
# long (except for library functions, which let them run); and the most bytes of the memory that it keeps.
LONGEST, MOST_LAUNCHES, MOST_BYTES = 2e-4, 512, 1 << 20


class Numbers(NamedTuple):
    """The words of a run that hold numbers: their places, a function that packs them, and for each the cell that it
    comes from, and the function that converts that, None if it is the cell's value itself.
    """

    places: list[int]
    pack: Callable[..., bytes]
    ways: list[tuple[int, Callable[[Any], Any] | None]]


class Standing(NamedTuple):
    """A run. begin: the address of its words; driver: that of the driver's code; places: where the words of a
    schedule's run are in this one; makes: the results, in the order in which they are returned; noted: the address of
    the word that says that a step failed, 0 if none can; calls: whether Python runs inside; told: the words of this run
    that hold numbers, and how these are computed from cells; kept: objects that must stay alive.
    """

    begin: int
    driver: int
    places: Mapping[int, int]
    makes: list[Made]
    noted: int
    calls: bool
    told: Numbers
    kept: Any


def standing(
    schedule: Schedule, blobs: Sequence[TBlob], scalars: Sequence[Any], cells: Mapping[int, int], *, again: bool
) -> Standing | None:
    """Return a run of a schedule that stands ready, for these blobs and scalars; None if it is more than a list of
    launches in one thread, takes long, or waits for better code.

    cells: the cells of scalars that depend on numbers, by their places. again: whether all can be repeated if a step
    fails.
    """
    facts = schedule.facts
    if facts.waiting or facts.arena[1] > MOST_BYTES:
        return None
    joined = _joined(schedule, again)
    if joined is None or sorted([one.number for one in joined.makes]) != sorted(facts.results):
        return None
    run = Run(facts, blobs, scalars, None)
    words = joined.words(run.words)
    found = joined.segment.standing(words, LONGEST, MOST_LAUNCHES, MOST_BYTES)
    if found is None:
        return None
    own, places, scratch = found
    if not all(one.word in places for one in joined.makes):
        return None
    stop = joined.segment.stop
    noted = 0 if stop is None else words[stop[0]] + stop[1]
    kept = (schedule, joined, own, scratch, getattr(run, "arena", None))
    made = {one.number: one for one in joined.makes}
    makes = [made[number] for number in facts.results]
    packed = [one for one in facts.packed if one[0] in places]
    form = struct.Struct("=" + "".join([scalar_format(dtype) for _, _, dtype, _ in packed]))
    ways = [(cells[place], _way(dtype, second)) for _, place, dtype, second in packed]
    told = Numbers([places[word] for word, *_ in packed], form.pack, ways)
    begin = own.__array_interface__["data"][0]
    return Standing(begin, driver().address, places, makes, noted, joined.calls, told, kept)


class Joined(NamedTuple):
    """The instructions of a schedule as one segment. makes: its results; memory: its arrays besides the arena, by the
    word for the address of each; calls: whether Python runs inside.
    """

    segment: Segment
    makes: list[Made]
    memory: dict[int, Native]
    calls: bool

    def words(self, words: Sequence[Any]) -> list[Any]:
        """Return the words of a run, with those of the memory."""
        found = [*words, *[0] * self.calls]
        for word, memory in self.memory.items():
            found[word] = memory.__array_interface__["data"][0]
        return found


def _joined(schedule: Schedule, again: bool) -> Joined | None:
    """Return instructions as one segment, in which machine code calls Python for library functions; None if there is
    any other kind of instruction.
    """
    facts, makes = schedule.facts, list[Made]()
    steps: list[Segment | Call | Shown] = []
    for one in schedule.instructions:
        if isinstance(one, Kernels) and isinstance(one.segment, Segment):
            makes += one.makes
            steps.append(one.segment)
            continue
        call = one if isinstance(one, Shown) else _as_call(one, facts)
        if isinstance(call, Call):
            if not can_call_back(call.function, [meta for _, _, meta in call.gives]):
                return None
            makes += [_made(*give) for give in call.gives if give[0] in facts.results]
        elif call is None:
            return None
        steps.append(call)
    if len(steps) == 1 and isinstance(steps[0], Segment):
        return Joined(steps[0], makes, {}, calls=False)
    formats = next((one.formats for one in steps if isinstance(one, Segment)), ["q"] * len(facts.words))
    segment = Segment(schedule.limits.fast_math, [*formats, "q"])
    segment.stop = facts.stop or (len(facts.words), 0)
    memory = {len(facts.words): np.zeros(1, np.int64)}
    found = {
        one.number: Lies(one.word, 0, Meta(one.layout.shape, one.dtype, one.layout, bool(one.packed))) for one in makes
    }
    for step in steps:
        if isinstance(step, Segment):
            for kernel in step.makes:
                segment.add(kernel)
            continue
        if isinstance(step, Shown):
            word, after, _ = _lies(facts, step.whole, found)
            found[step.number] = Lies(word, after + step.after, step.meta)
            continue
        for number, word, meta in step.gives:
            if number not in found:
                found[number] = Lies(word, 0, meta)
                memory[word] = np.empty(-(-meta.nbytes // WORD) + 1, np.int64)
        segment.add(_called(facts, step, found, segment.stop, again))
    segment.close()
    return Joined(segment, makes, memory, calls=True)


def _as_call(one: Instruction, facts: Facts) -> Call | None:
    """Return an instruction as a call of a library's function on arrays; None if it is something else."""
    if isinstance(one, Library) and facts.scalars.keys().isdisjoint(one.operands):
        return Call(one.function, one.operands, ((one.number, one.word, one.meta),), one.ready, one.drops)
    return one if isinstance(one, Call) else None


def _made(number: int, word: int, meta: Meta) -> Made:
    """Return a library function's result that is returned, in the form of a result that machine code makes."""
    return Made(number, word, meta.nbytes, meta.dtype, meta.layout, None)


class Lies(NamedTuple):
    """Where a value is: the word of the run with the address of its memory, the offset there in bytes, and its meta."""

    word: int
    after: int
    meta: Meta


def _called(facts: Facts, call: Call, found: Mapping[int, Lies], stop: tuple[int, int], again: bool) -> Makes:
    """Return a library call as a launch. found: values in memory of their own; stop: where failures are noted."""
    given = [_lies(facts, number, found) for number in call.takes]
    callback = Callback(call.function, [meta for _, _, meta in call.gives], [one.meta for one in given], again=again)
    values = [*[found[number] for number, _, _ in call.gives], *given]
    where = {place: (one.word, one.after) for place, one in enumerate(values)}
    return Makes.of(callback, contract=False)._replace(where={**where, len(values): stop})


def _lies(facts: Facts, number: int, found: Mapping[int, Lies]) -> Lies:
    """Return where a value is: in memory of its own, in the arena, or in memory that was given or made before."""
    if number in found:
        return found[number]
    if number in facts.placed:
        begin, meta = facts.placed[number]
        return Lies(facts.arena[0], begin, meta)
    leaf, meta = facts.given[number]
    word, before = (leaf.given, 0) if leaf.given >= 0 else _lies(facts, -1 - leaf.given, found)[:2]
    return Lies(word, before + leaf.after, meta)


def _way(dtype: DType, second: bool) -> Callable[[Any], Any] | None:
    """Return the function that converts a cell to the first or second word of a scalar; None if they are the same."""
    if dtype.char == "d":
        return None
    return whole if dtype == np.int64 else partial(packable, dtype=dtype, second=second)

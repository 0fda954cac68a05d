"""Runs that stand ready: the words of a schedule's run in memory of their own, where machine code enters addresses and
calls the driver itself (codegen/cpu/dispatch.py), as long as Python's lock is held: one run serves all threads.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from ..base.dtypes import DType
from ..codegen.cpu.driver import driver
from ..storage.blob import TBlob
from .factors import Checked
from .native import Segment, packable, scalar_format
from .schedule import Kernels, Made, Run, Schedule

# Seconds that the kernels of a run are expected to take at most, and its launches: other threads wait as long; and the
# bytes that it works in, which it keeps.
LONGEST, MOST_LAUNCHES, MOST_BYTES = 2e-4, 512, 1 << 20


class Standing(NamedTuple):
    """A run. begin: the address of its words; driver: that of the driver's code; places: of words of a run that
    instructions are told, where they are in this one; makes: the results, in the order in which they are returned;
    noted: the address of the word that says that a step failed, 0 where none can; told: the words of this run
    that tell numbers, and what makes them, as bytes, of what is computed of numbers; kept: what must live.
    """

    begin: int
    driver: int
    places: Mapping[int, int]
    makes: list[Made]
    noted: int
    told: tuple[list[int], Callable[[Sequence[Any]], bytes]]
    kept: Any


def standing(
    schedule: Schedule, blobs: Sequence[TBlob], scalars: Sequence[Any], cells: Mapping[int, int]
) -> Standing | None:
    """Return a schedule's run for what is given now; None where it is more than a list of launches in one thread, or
    takes long, or its code is still to be made better. cells: of scalars that numbers tell, by their places.
    """
    kernels, *rest = schedule.instructions or (None,)
    if not isinstance(kernels, Kernels) or not isinstance(kernels.segment, Segment) or len(rest) > 1:
        return None
    facts = schedule.facts
    made = {one.number: one for one in kernels.makes}
    if sorted(made) != sorted(facts.results) or facts.waiting or facts.arena[1] > MOST_BYTES:
        return None
    run = Run(facts, blobs, scalars, None)
    noted = 0
    if rest:
        (check,) = rest
        if not isinstance(check, Checked) or check.kind:
            return None
        noted = run.words[check.word] + check.place
    elif facts.stop is not None:
        noted = run.words[facts.stop[0]] + facts.stop[1]
    found = kernels.segment.standing(run.words, LONGEST, MOST_LAUNCHES, MOST_BYTES)
    if found is None:
        return None
    words, places, scratch = found
    if not all(one.word in places for one in made.values()):
        return None
    kept = (schedule, words, scratch, getattr(run, "arena", None))
    makes = [made[number] for number in facts.results]
    packed = [one for one in facts.packed if one[0] in places]
    form = struct.Struct("=" + "".join([scalar_format(dtype) for _, _, dtype, _ in packed]))
    scalars_told = [(cells[place], dtype, second) for _, place, dtype, second in packed]
    told = [places[word] for word, *_ in packed], partial(_packed, form, scalars_told)
    return Standing(words.__array_interface__["data"][0], driver().address, places, makes, noted, told, kept)


def _packed(form: struct.Struct, scalars: Sequence[tuple[int, DType, bool]], cells: Sequence[Any]) -> bytes:
    """Return the words of scalars, of which each is that of a cell, of a dtype, the first or the second."""
    return form.pack(*[packable(cells[cell], dtype, second) for cell, dtype, second in scalars])

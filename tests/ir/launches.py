"""The machine code that programs are made into, and each of its launches run on regions of memory.

A launch is told of an operand by its first element's address, and may touch that operand's elements and nothing that
lies between or around them; of memory to work in, it may touch the block that was taken for it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from xtensor.run.engines import Outline
from xtensor.run.native import SCRATCH, Launch, Making, Scratch, Way

from .machine import Machine, TooLongError, UnknownError
from .memory import BoundsError, Region
from .text import Module
from .values import Pointer, Value

# Instructions of one launch.
MOST = 200_000


class Found(NamedTuple):
    """What makes launches, the values they are told of, by number, and which of them they write."""

    way: Way
    metas: dict[int, Any]
    results: frozenset[int]


class Checked(NamedTuple):
    """How many launches were run, and how many not: those that call what is not in their text, and those too long."""

    run: int = 0
    foreign: int = 0
    long: int = 0

    def __add__(self, other: Any) -> Checked:
        return Checked(*[x + y for x, y in zip(self, other, strict=True)])


@contextmanager
def collected() -> Iterator[list[Found]]:
    """Collect what makes launches while programs run."""
    found: list[Found] = []

    def ways(outline: Outline, work: Any) -> Iterator[tuple[int, Way]]:
        for place, way in plain(outline, work):
            yield place, way  # and comes back unless generated code lacks a step
            results = frozenset(outline.kernels[place].results) if outline.together is None else work.plan.kept
            found.append(Found(way, work.metas, results))

    plain = Outline.ways
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Outline, "ways", ways)
        yield found


class _Room(Scratch):
    """Memory to work in, of which it is known what was taken together."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[tuple[int, Region]] = []

    def take(self, nbytes: int) -> int:
        begin = super().take(nbytes)
        self.taken.append((begin, Region.of_bytes("memory to work in", nbytes)))
        return begin

    def place(self, at: int) -> Pointer:
        """Return a place in what was taken."""
        begin, region = self.taken[bisect_right([begin for begin, _ in self.taken], at) - 1]
        return Pointer(region, at - begin)


def check_launches(found: Found, threads: int, modules: dict[str, Module]) -> Checked:
    """Run the launches of so many threads; raises BoundsError, also where a result is not written everywhere."""
    room, total = _Room(), Checked()
    launches = found.way.launches(Making(threads, False, found.way.aligned, room))
    regions = {
        number: Region.of_elements(
            f"operand {number}: {meta.shape}, {meta.dtype}, strides {meta.layout.strides}",
            meta.shape,
            meta.layout.strides,
            meta.dtype.itemsize,
            writeable=number in found.results,
        )
        for number, meta in found.metas.items()
        if any(number == told for launch in launches for _, told, _ in launch.fillings)
    }
    for launch in launches:
        total += _run(launch, regions, room, modules)
    if total.run == len(launches):
        for number in found.results & regions.keys():
            if regions[number].unwritten:
                raise BoundsError(f"{regions[number].unwritten} bytes are not written of {regions[number].name}")
    return total


def _run(launch: Launch, regions: dict[int, Region], room: _Room, modules: dict[str, Module]) -> Checked:
    """Run the calls of a launch, both ways that conditions on elements may go."""
    text = launch.code.text
    module = modules.get(text) or modules.setdefault(text, Module(text))
    try:
        for way in (True, False):
            machine = Machine(module, way=way, most=MOST)
            for slots in _calls(launch, regions, room):
                machine.call("kernel", [Pointer(slots, 0)])
            if not machine.asked:
                break
    except TooLongError:
        return Checked(long=1)
    except UnknownError as error:
        if "call " not in str(error):
            raise
        return Checked(foreign=1)
    return Checked(run=1)


def _calls(launch: Launch, regions: dict[int, Region], room: _Room) -> Iterator[Region]:
    """Yield the words of each call, of which those of a run's scalars may be anything."""
    words: list[Value] = list(launch.words)
    for word, number, after in launch.fillings:
        if number == SCRATCH:
            words[word] = room.place(after)
        else:
            words[word] = Pointer(regions[number], after) if number in regions else None
    for begin in range(0, len(words), launch.size):
        slots = Region.of_bytes("the words it is told", 8 * launch.size)
        slots.words = {8 * at: word for at, word in enumerate(words[begin : begin + launch.size]) if word is not None}
        slots.writeable = False
        yield slots

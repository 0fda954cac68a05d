"""Rolled arrays: steps read their elements from the arrays that they were rolled from.

A result of `roll` is memory of its own. If only kernels read it, and all of it, it is not made: a kernel's loops are
cut where the rolled array wraps around, and each part reads the elements from the original (maps.py). So stencils with
periodic boundaries, as NumPy's users write them, read and write memory once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from math import prod

import numpy as np

from ..base.dtypes import is_generated
from ..base.layout import contiguous
from ..codegen.cpu.compile import host
from ..plan import costs
from ..plan.layouts import Meta, Task
from ..plan.program import program
from .factors import RESULT
from .maps import map_launch
from .native import Launch, Making, Place
from .simplified import meet
from .taken_down import Called, Evaluated, Spot

Steps = Sequence[Evaluated | Called]


class RolledError(Exception):
    """Raised if a step that was to read a rolled array is not computed by loops of machine code after all."""


class ByCopy:
    """A copy of an array, rolled by so many places along each axis. takes, gives: the metas of both."""

    aligned = can_fail = False

    def __init__(self, takes: Meta, gives: Meta, shifts: Sequence[int] = ()) -> None:
        self._takes, self._gives, self._shifts = takes, gives, shifts
        self.task = Task(f"{'roll' if shifts else 'copy'} {gives.shape}", 2 * gives.nbytes)
        self.seconds = costs.moving_seconds(2 * gives.nbytes)

    @classmethod
    def of(cls, step: Called) -> ByCopy:
        """Return the copy for a step that rolls or packs an array, which may be a rolled one already.

        A packed array is in C order, perhaps of another shape; a rolled one has the layout that the library gave it.
        """
        (spot,), (made,) = step.takes, step.gives
        shape, gives = spot.meta.shape, made.meta
        if step.packs:
            gives = gives._replace(shape=shape, layout=contiguous(shape, gives.dtype.itemsize))
        return cls(spot.meta, gives, _added(spot.shifts, step.shifts or ()))

    def launches(self, making: Making) -> list[Launch]:
        """Return the launch."""
        dtype = self._gives.dtype
        moved = dtype if is_generated(dtype) else np.dtype(f"u{dtype.itemsize}")  # float16: its bits
        copying = program((moved,), (), (), (), (0,), ())
        strides, places = [meta.layout.strides for meta in (self._takes, self._gives)], [Place(0), Place(RESULT)]
        return [map_launch(copying, self._gives.shape, strides, places, (), making, shifts=(self._shifts, ()))]


def can_be_copied(metas: Sequence[Meta]) -> bool:
    """Return whether machine code can copy arrays of these metas, of an array and of its copy."""
    dtype = metas[0].dtype
    steps = [one % dtype.itemsize for meta in metas for one in meta.layout.strides]
    return host() is not None and not any(steps) and dtype.isnative and dtype.kind in "fiu" and prod(metas[0].shape) > 0


def can_be_packed(step: Called) -> bool:
    """Return whether machine code can copy an array in C order as a step does."""
    return step.packs and can_be_copied([step.takes[0].meta])


def can_be_rolled(step: Called) -> bool:
    """Return whether machine code can roll an array as a step does."""
    return step.shifts is not None and can_be_copied([spot.meta for spot in (*step.takes, *step.gives)])


def folded(steps: Steps, own: Collection[int], begin: Callable[[Spot], int]) -> Steps:
    """Return steps that read the arrays that others were rolled from, without the rolls that are not needed any more.

    own: the roots of results. begin: returns the address of a spot.
    """
    if not any([isinstance(step, Called) and step.shifts is not None for step in steps]):
        return steps
    return _Folding(steps, own, begin).steps()


class _Folding:
    """Steps, while it is decided which rolled arrays need not be made. sources: by their roots, the spots to read."""

    def __init__(self, steps: Steps, own: Collection[int], begin: Callable[[Spot], int]) -> None:
        self._steps, self._own, self._begin = steps, own, begin
        self._readers: dict[int, list[int]] = {}
        self._writers: dict[int, list[int]] = {}
        for at, step in enumerate(steps):
            takes, gives = _taken(step), _written(step)
            for spot in takes:
                self._readers.setdefault(spot.root, []).append(at)
            for spot in gives:
                self._writers.setdefault(spot.root, []).append(at)
        self._sources: dict[int, Spot] = {}

    def steps(self) -> Steps:
        """Return the steps that are left."""
        for at, step in enumerate(self._steps):
            if isinstance(step, Called) and can_be_rolled(step):
                source = self._from(step)
                if self._is_only_read(step.gives[0], at) and self._stays(source, at, self._last(step.gives[0].root)):
                    self._sources[step.gives[0].root] = source
        again: dict[int, Evaluated | Called] = {}  # a loop has the same ones again
        for step in self._steps:
            if id(step) not in again:
                again[id(step)] = self._reading(step)
        return [again[id(step)] for step in self._steps if not self._is_needless(step)]

    def _from(self, step: Called) -> Spot:
        """Return the spot that a step rolls, with its shifts in total."""
        before = self._sources.get(step.takes[0].root, step.takes[0])
        return before._replace(shifts=_added(before.shifts, step.shifts or ()))

    def _is_needless(self, step: Evaluated | Called) -> bool:
        return isinstance(step, Called) and len(step.gives) == 1 and step.gives[0].root in self._sources

    def _is_only_read(self, made: Spot, at: int) -> bool:
        """Return whether a rolled array is only read, as a whole, by kernels and by steps that roll it further."""
        root = made.root
        if root in self._own or self._writers[root] != [at] or root not in self._readers:
            return False
        return all([self._can_read(self._steps[reader], made) for reader in self._readers[root]])

    def _can_read(self, step: Evaluated | Called, made: Spot) -> bool:
        if isinstance(step, Called):
            return can_be_rolled(step) and step.takes[0] == made
        if any([kernel.direct is not None or kernel.program.reductions for kernel in step.plan.kernels]):
            return False
        return all([spot == made for spot in step.spots.values() if spot.root == made.root])

    def _last(self, root: int) -> int:
        """Return the last step that reads a rolled array, or an array that was rolled from it."""
        readers = self._readers.get(root, [-1])
        rolls = [one for at in readers if at >= 0 and isinstance(one := self._steps[at], Called)]
        return max([*readers, *[self._last(one.gives[0].root) for one in rolls]])

    def _stays(self, source: Spot, first: int, last: int) -> bool:
        """Return whether no step writes the memory of a source, from the first of some steps to the last, inclusive."""
        written = [spot for step in self._steps[first : last + 1] for spot in _written(step)]
        return not meet([source], written, self._begin)

    def _reading(self, step: Evaluated | Called) -> Evaluated | Called:
        """Return a step that reads sources in place of rolled arrays."""
        if isinstance(step, Called):
            takes = [self._sources.get(spot.root, spot) for spot in step.takes]
            return step if takes == step.takes else step._replace(takes=takes)
        rolled = {number: self._sources[spot.root] for number, spot in step.spots.items() if spot.root in self._sources}
        if not rolled:
            return step
        metas = step.metas | {number: spot.meta for number, spot in rolled.items()}
        return step._replace(spots=step.spots | rolled, metas=metas)


def _added(shifts: Sequence[int], more: Sequence[int]) -> tuple[int, ...]:
    """Return the total shifts of an array that is rolled twice; `shifts` is empty if it was not rolled before."""
    return tuple([sum(both) for both in zip(shifts or (0,) * len(more), more, strict=True)])


def _taken(step: Evaluated | Called) -> list[Spot]:
    """Return the spots that a step reads."""
    if isinstance(step, Called):
        return step.takes
    return [spot for number, spot in step.spots.items() if number not in step.trace.arguments or number in step.into]


def _written(step: Evaluated | Called) -> list[Spot]:
    """Return the spots that a step writes."""
    if isinstance(step, Called):
        return [*step.gives, *[spot for spot in step.takes if spot.root in step.writes]]
    return [spot for number, spot in step.spots.items() if number in step.trace.arguments]

"""Simplification of a captured function: it leaves out values that nobody reads, and repeated reads and writes.

A statement that writes in place is a kernel. A statement that goes on element by element from what the last one wrote
is computed in the same kernel: values between them stay in registers, and those that are overwritten are not stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from ..base.layout import Layout, Shape
from ..plan.costs import MERGED_STEPS, REGISTERS
from ..plan.fusion import plan_of
from ..plan.parts import shown
from .taken_down import Called, Evaluated, Spot

Steps = Sequence[Evaluated | Called]


def uses(steps: Steps) -> Iterable[tuple[int, int]]:
    """Yield the index of each step with each root that it uses."""
    for at, step in enumerate(steps):
        spots = [*step.takes, *step.gives] if isinstance(step, Called) else step.spots.values()
        for spot in spots:
            yield at, spot.root


def simplified(steps: Steps, own: Collection[int], begin: Callable[[Spot], int]) -> Steps:
    """Return steps that read each spot once, and compute no results that are neither returned nor read by other steps:
    those were computed as somebody held them, as a statement does its operands.

    own: the roots of results. begin: returns the address of a spot.
    """
    users = Counter([root for _, root in {*uses(steps)}])
    found: dict[int, Evaluated | Called] = {}  # a loop has the same ones again
    for step in steps:
        if id(step) not in found:
            found[id(step)] = step if isinstance(step, Called) else _simpler(step, users, own)
    return _Merging(users, own, begin).merged([found[id(step)] for step in steps])


def _simpler(step: Evaluated, users: Mapping[int, int], own: Collection[int]) -> Evaluated:
    kept = [
        number
        for number in step.plan.kept
        if number in step.into or step.spots[number].root in own or users[step.spots[number].root] > 1
    ]
    first: dict[Spot, int] = {}
    given = [number for number in step.spots if number not in step.trace.arguments]
    same = {number: one for number in given if (one := first.setdefault(step.spots[number], number)) != number}
    if not kept or (not same and len(kept) == len(step.plan.kept)):
        return step
    return _planned(step, kept, same)


def _planned(step: Evaluated, kept: Sequence[int], same: Mapping[int, int]) -> Evaluated:
    """Return a step of which only some results are kept. same: for inputs the inputs, or results, to use instead."""
    trace = step.trace.simplified(kept, same)
    needed = {*kept, *[one for taken in trace.arguments.values() for one in taken]}
    needed -= step.trace.kept.difference(kept)
    spots = {number: spot for number, spot in step.spots.items() if number in needed}
    into = tuple([number for number in step.into if number in kept])
    return step._replace(trace=trace, plan=plan_of(shown(trace, step.metas)), spots=spots, into=into)


# ---- statements that go on from others


class _Merging:
    """The merging of statements into one kernel. users: how many steps use a root; own, begin: as of `simplified`."""

    def __init__(self, users: Counter[int], own: Collection[int], begin: Callable[[Spot], int]) -> None:
        self._users, self._own, self._begin = users, own, begin
        self._known: dict[tuple[int, int], tuple[Any, Any, Evaluated | None]] = {}

    def merged(self, steps: Steps) -> Steps:
        """Return steps after merging each with the one before it where possible."""
        found: list[Evaluated | Called] = []
        for step in steps:
            both = self._both(found[-1], step) if found else None
            if both is None:
                found.append(step)
            else:
                found[-1] = both
        return found

    def _both(self, first: Evaluated | Called, second: Evaluated | Called) -> Evaluated | None:
        """Return two steps as one, None where they stay apart; it is remembered, as a loop has the same steps again."""
        if isinstance(first, Called) or isinstance(second, Called):
            return None
        key = id(first), id(second)
        if key not in self._known:
            self._known[key] = first, second, self._joined(first, second)  # held, so that their ids stay unique
        both = self._known[key][2]
        if both is not None:
            self._users.subtract(_roots(first) & _roots(second))
        return both

    def _joined(self, first: Evaluated, second: Evaluated) -> Evaluated | None:
        """Return two updates over the same elements as one; None if the second has to wait for the first, if they share
        no operand, or if the two are too large for one kernel.
        """
        shape = _domain(first)
        same = self._goes_on(first, second) if shape is not None and shape == _domain(second) else None
        if not same:
            return None
        base = len(first.trace.values)
        spots = first.spots | {base + number: spot for number, spot in second.spots.items()}
        metas = first.metas | {base + number: meta for number, meta in second.metas.items()}
        into = (*first.into, *[base + number for number in second.into])
        both = Evaluated(first.trace.followed_by(second.trace), first.plan, metas, spots, into)
        again, shared = _results(second).values(), _roots(first) & _roots(second)
        kept = [
            number
            for number in sorted(both.trace.kept)
            if (number >= base or spots[number] not in again)
            and (number in into or self._outlives(spots[number].root, shared))
        ]
        both = _planned(both, kept, {base + number: one for number, one in same.items()})
        program = both.plan.kernels[0].program
        fits = len(program.steps) <= MERGED_STEPS and program.alive <= REGISTERS
        return both if fits and len(both.plan.kernels) == 1 else None

    def _outlives(self, root: int, shared: Collection[int]) -> bool:
        """Return whether a result of one of two steps is returned, or used by steps besides the two."""
        return root in self._own or self._users[root] - (root in shared) > 1

    def _goes_on(self, first: Evaluated, second: Evaluated) -> dict[int, int] | None:
        """Return which inputs of the second step are inputs or results of the first; None if it must wait for that.

        Of the memory that the first writes, the second may read only whole results; of the memory that the first reads,
        it may write only inputs whose uses are all in results that it reads. So each element has been used before it is
        overwritten, in whatever order elements are computed.
        """
        made, writes = _results(first), _results(second).values()
        taken = {number: spot for number, spot in first.spots.items() if number not in made}
        given = {number: spot for number, spot in second.spots.items() if number not in second.trace.kept}
        place = {spot: number for number, spot in (*taken.items(), *made.items())}
        same = {number: place[spot] for number, spot in given.items() if spot in place}
        again = {spot for spot in writes if spot in made.values()}
        if not again.issubset(given.values()):
            return None  # it would be overwritten before it was used
        others = [spot for spot in given.values() if spot not in made.values()]
        if meet(others, made.values(), self._begin):
            return None
        needed = [number for number in same.values() if number in made]
        used = {spot for number, spot in taken.items() if spot in writes and _is_used_up(first, number, needed)}
        for write in [spot for spot in writes if spot not in again]:
            rest = [spot for spot in first.spots.values() if spot != write or spot not in used]
            if meet([write], rest, self._begin):
                return None
        return same


def meet(spots: Iterable[Spot], others: Iterable[Spot], begin: Callable[[Spot], int]) -> bool:
    """Return whether any of some spots may share bytes with any of the others. begin: as of `simplified`."""
    theirs = [_bytes(one, begin) for one in others]
    for low, high, lie, size in [_bytes(one, begin) for one in spots]:
        for other_low, other_high, other, other_size in theirs:
            if low < other_high and other_low < high and lie.overlaps(other, size, other_size):
                return True
    return False


def _bytes(spot: Spot, begin: Callable[[Spot], int]) -> tuple[int, int, Layout, int]:
    """Return the range of addresses of a spot's bytes, its layout, and the size of its elements."""
    lie, size = Layout(spot.meta.shape, spot.meta.layout.strides, begin(spot)), spot.meta.dtype.itemsize
    return (*lie.extent(size), lie, size)


def _domain(step: Evaluated) -> Shape | None:
    """Return the domain of an update in place, if it is one elementwise kernel, else None."""
    kernel = step.plan.kernels[0]
    alone = len(step.plan.kernels) == 1 and kernel.direct is None and not kernel.program.reductions
    return step.metas[kernel.domain].shape if alone and step.into else None


def _is_used_up(step: Evaluated, number: int, results: Collection[int]) -> bool:
    """Return whether an input is used only for some results: all values computed from it are needed for these."""
    needed, made = set(results), {number}
    for one, taken in reversed(step.trace.arguments.items()):
        if one in needed:
            needed.update(taken)
    for one, taken in step.trace.arguments.items():
        if not made.isdisjoint(taken):
            made.add(one)
    return made <= needed


def _results(step: Evaluated) -> dict[int, Spot]:
    return {number: step.spots[number] for number in step.trace.kept}


def _roots(step: Evaluated) -> set[int]:
    return {spot.root for spot in step.spots.values()}

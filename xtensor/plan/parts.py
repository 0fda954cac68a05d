"""Parts of a graph: steps that can run row by row, or strip by strip over columns, are separated from the others.

An example is a normalised layer with its gradient: means and sums along rows, and the steps that use them, are one row
program; sums over all rows, for weights and the loss, come after it, and read memory: cheap values are recomputed there
instead of being written and read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from ..base.layout import Shape
from ..graph.node import COMBINING, Node
from ..storage.blob import TBlob
from .costs import FUNCTIONS, MADE_AGAIN, STEPS_AGAIN
from .fusion import plan_of
from .program import Kernel, Plan
from .trace import Trace

# A shape, and the axes of it that are reduced.
Domain = tuple[Shape, tuple[int, ...]]


class Parts(NamedTuple):
    """The plans of parts in the order they run. place: the index of the one whose kernels can run together."""

    plans: tuple[Plan, ...]
    place: int

    @property
    def together(self) -> Plan:
        """The plan whose kernels can run together."""
        return self.plans[self.place]

    def made_of(self, kernels: tuple[Kernel, ...]) -> Parts:
        """Return the parts with these kernels as those that run together."""
        plans = [plan.replaced(kernels=kernels) if plan is self.together else plan for plan in self.plans]
        return Parts(tuple(plans), self.place)

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """All kernels."""
        return tuple([kernel for plan in self.plans for kernel in plan.kernels])

    @property
    def span(self) -> range:
        """The places of the kernels that can run together."""
        return [range(first, stop) for first, stop in pairwise(self._begins)][self.place]

    @property
    def endings(self) -> Mapping[int, int]:
        """The kernels that contain all users of a contraction, with the contraction's kernel, by their places."""
        parts = zip(self._begins, self.plans, strict=False)
        return {at + begin: before + begin for begin, plan in parts for at, before in plan.endings.items()}

    @property
    def _begins(self) -> list[int]:
        return list(accumulate([len(plan.kernels) for plan in self.plans], initial=0))


def parts_of(trace: Trace) -> Parts | None:
    """Return a graph in parts, one of which can run together, None where there is no such part or nothing else."""
    for domain in _domains(trace):
        found = _Division(trace, domain).parts()
        if found is not None:
            return found
    return None


def _domains(trace: Trace) -> Iterator[Domain]:
    """Yield the domains of several reductions along leading or last axes, those with most reductions first."""
    counts: Counter[Domain] = Counter()
    for number, node in trace.nodes():
        if node.op.kind == "reduction" and node.op.name in COMBINING:
            shape, axes = trace.values[trace.arguments[number][0]].shape, tuple(sorted(node.params["axis"]))
            ends = tuple(range(len(axes))), tuple(range(len(shape) - len(axes), len(shape)))
            counts[shape, axes] += 0 < len(axes) < len(shape) and axes in ends
    for domain, count in counts.most_common():
        if count > 1:
            yield domain


class _Division:
    """The steps before those that run together over a domain, those that do, and those after them, by their numbers."""

    def __init__(self, trace: Trace, domain: Domain) -> None:
        self.trace, self.values = trace, trace.values
        self.shape, self.axes = domain
        self.narrow: set[Shape] = set()
        self.before: set[int] = set()
        self.inside: set[int] = set()
        self.after: set[int] = set()
        for number, node in trace.nodes():
            self._side(number, node).add(number)
        needed = self._needed(self.before, (one for number in self.inside for one in trace.arguments[number]))
        self.after |= self.before - needed  # their inputs are shared with other later steps
        self.before &= needed

    def _side(self, number: int, node: Node) -> set[int]:
        """Return the set that a step belongs to."""
        taken = [one for one in self.trace.arguments[number] if one in self.trace.arguments]
        reduces = self._reduces(number, node)
        follows = not (self.inside.isdisjoint(taken) and self.after.isdisjoint(taken))
        if not follows and not reduces and node.shape != self.shape:
            return self.before
        if not self.after.isdisjoint(taken):
            return self.after
        if reduces:
            self.narrow.add(node.shape)
        fits = reduces or (node.op.kind == "elementwise" and node.shape in (self.shape, *self.narrow))
        return self.inside if fits else self.after

    def _reduces(self, number: int, node: Node) -> bool:
        """Return whether a step reduces the domain as the steps that run together do."""
        if node.op.kind != "reduction" or node.op.name not in COMBINING:
            return False
        leads = self.axes[0] == 0
        own = self.values[self.trace.arguments[number][0]].shape, tuple(sorted(node.params["axis"]))
        return own == (self.shape, self.axes) and (leads or bool(node.params["keepdims"]))

    def parts(self) -> Parts | None:
        """Return the plans, None where there is nothing to divide, or the middle one cannot run together."""
        if not self.inside or not (self.before or self.after):
            return None
        later, read = self._later()
        kept = self.trace.kept
        inside = self._needed(self.inside, (kept | read) & self.inside)
        taken = {one for number in (*inside, *later) for one in self.trace.arguments[number]}
        sides = [(self.before, (kept | taken) & self.before), (inside, (kept | read) & inside), (later, kept & later)]
        plans = [plan_of(self._trace(*side)) for side in sides if side[0]]
        found = Parts(tuple(plans), int(bool(self.before)))
        return found if found.together.rows or found.together.columns is not None else None

    def _later(self) -> tuple[set[int], set[int]]:
        """Return the steps that are computed afterwards, and the inside steps whose results these read from memory."""
        later, read, again = set(self.after), set[int](), set[int]()
        for step in self.after:
            (again if self._is_looped(step) else read).update(self.inside.intersection(self.trace.arguments[step]))
        for number in again:
            made, given = self._again(number)
            later |= made
            read |= given & self.inside
        return later, read

    def _is_looped(self, number: int) -> bool:
        """Return whether a step is computed by a loop, and not by a function that reads its operands from memory."""
        op = self.values[number].op
        return bool(op.kind == "elementwise" or op.name in COMBINING)

    def _again(self, number: int) -> tuple[set[int], set[int]]:
        """Return the steps that recompute a value, and the values that they read; no steps where it is better read
        itself.
        """
        made, given, todo = set[int](), set[int](), [number]
        while todo:
            one = todo.pop()
            is_made = one in self.inside and self.values[one].shape == self.shape and one not in self.trace.kept
            if not is_made:
                given.add(one)
            elif one not in made:
                made.add(one)
                todo += self.trace.arguments[one]
        wide = [one for one in given if getattr(self.values[one], "shape", None) == self.shape]
        costly = any([self.values[one].op.name in FUNCTIONS for one in made])
        takes_long = costly or len(wide) > MADE_AGAIN or len(made) > STEPS_AGAIN
        return (set(), {number}) if takes_long else (made, given)

    def _needed(self, steps: set[int], wanted: Iterable[int]) -> set[int]:
        """Return those of some steps that the wanted values need."""
        found = set(wanted)
        for number, taken in reversed(self.trace.arguments.items()):
            if number in found:
                found.update([one for one in taken if one in steps])
        return found

    def _trace(self, steps: set[int], kept: set[int]) -> Trace:
        """Return the trace of some steps only, with the same numbers."""
        trace = self.trace.of(self.values)
        trace.arguments = {number: taken for number, taken in self.trace.arguments.items() if number in steps}
        trace.kept, trace.costly = kept, self.trace.costly & steps
        trace.key = (self.trace.key, tuple(trace.arguments), tuple(sorted(kept)))
        return trace


def shown(trace: Trace, metas: Mapping[int, Any]) -> Trace:
    """Return a trace with blobs without memory in place of inputs that it no longer holds."""
    device = next(value.device for value in trace.values if isinstance(value, Node))
    values = [
        TBlob(None, metas[number].dtype, metas[number].layout, device) if value is None else value
        for number, value in enumerate(trace.values)
    ]
    return trace.of(values)

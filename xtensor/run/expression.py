"""Expressions of arguments: a graph that was recorded once and runs again over other memory laid out alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ..base.dtypes import DType
from ..base.layout import Layout, Shape
from ..base.options import Settings
from ..codegen.cpu.compile import host
from ..graph.node import Node, pending_below
from ..plan import costs
from ..plan.program import Trace, bare, plan_of
from ..storage.blob import TBlob
from . import engines
from .prepare import prepared
from .schedule import Schedule
from .work import Leaf, work_over

# Why an expression is not one of arguments alone, or why it is not run by kernels.
OUTSIDE = "it reads a tensor that is not an argument, or one that was computed at once"
KEEPS = "it keeps a value that it does not return"
EMPTY = "there are no elements"
SMALL = "library calls cost less for arrays as small as these"
NOT_YET = "its library calls have not taken as long yet as compiling would"

# Whose memory a blob shows: the number of an argument, the bytes from its first element, and whether it is a view.
Root = tuple[int, int, bool]


class Seen(NamedTuple):
    """What an expression sees of memory that is given."""

    dtype: DType
    shape: Shape
    strides: Shape
    is_part: bool

    def of(self, blob: TBlob, after: int) -> TBlob:
        """Return it as a view of a blob, so many bytes after that one's first element."""
        return blob.view(Layout(self.shape, self.strides, blob.layout.offset + after), dtype=self.dtype)


def record(nodes: Sequence[Node], roots: Mapping[TBlob, Root]) -> Expression | str:
    """Return pending nodes as an expression of arguments, or why they are none.

    roots: whose memory blobs show, as far as that belongs to arguments.
    """
    trace = Trace(pending_below(nodes), nodes)
    if trace.kept != {trace.numbers[node] for node in nodes}:
        return KEEPS
    if not all([type(value) is not TBlob or value.fixed or value in roots for value in trace.values]):
        return OUTSIDE
    expression = Expression(trace, roots, [trace.numbers[node] for node in nodes])
    return expression if expression.elements else EMPTY


class Expression:
    """A graph of arguments, with what is constant in it: scalars, and memory that never changes.

    returned: the numbers of the results; results: each of them once. elements: of the largest loop. is_small: whether
    library calls are expected to cost less than launching kernels.
    """

    def __init__(self, trace: Trace, roots: Mapping[TBlob, Root], returned: Sequence[int]) -> None:
        self.returned = returned
        self.results = list(dict.fromkeys(returned))
        self._plan = plan_of(trace)
        self._values = [bare(value) for value in trace.values]
        self._trace = trace.without_values()
        arguments = 1 + max([argument for argument, _, _ in roots.values()])
        fixed = [n for n, value in enumerate(self._values) if type(value) is TBlob]
        self._fixed: list[TBlob] = [self._values[number] for number in fixed]
        self._scalars = [v for v in self._values if v is not None and not isinstance(v, (Node, TBlob))]
        self._leaves = [Leaf(number, arguments + place) for place, number in enumerate(fixed)]
        self._seen: dict[int, Seen] = {}
        for number, value in enumerate(trace.values):
            if type(value) is TBlob and not value.fixed:
                argument, after, is_part = roots[value]
                self._leaves.append(Leaf(number, argument, after))
                self._seen[number] = Seen(value.dtype, value.layout.shape, value.layout.strides, is_part)
        self._schedule: Schedule | None = None
        self._estimate(trace.values)

    def _estimate(self, values: Sequence[Any]) -> None:
        """Find out what it costs, by library calls and by kernels."""
        plan = self._plan
        self.elements = plan.largest(values)
        self._programs = [kernel.program for kernel in plan.kernels if kernel.direct is None]
        nbytes = self.elements * max([program.widest for program in self._programs], default=1)
        views = sum([seen.is_part for seen in self._seen.values()])
        by_calls = costs.calls_seconds(plan, self.elements, len(self._trace.arguments), views)
        self.is_small = nbytes <= costs.DIRECT_BELOW and by_calls < costs.kernels_seconds(plan, self.elements, values)
        self._waits = nbytes <= costs.DIRECT_BELOW and host() is not None
        self._library = self._spent = self.elements * sum(map(costs.library_seconds, self._programs))

    def why_not(self, limits: Settings) -> str:
        """Return why library calls are to be made instead, "" where kernels are due."""
        if limits.engine != "auto":
            return ""
        if self.is_small:
            return SMALL
        return NOT_YET if self._waits and not self._pays() and not self._is_compiled() else ""

    def due(self, limits: Settings) -> Settings | None:
        """Return the settings to run it under now; None where library calls are to be made instead.

        Its kernels are compiled together, when all its library calls would have taken long enough.
        """
        if limits.engine == "auto" and not self.is_small and not self._is_compiled():
            self._spent += self._library
            if self._pays():
                return replace(limits, engine="llvm")
        return None if self.why_not(limits) else limits

    def _pays(self) -> bool:
        """Return whether compiling is worth it."""
        return host() is not None and self._spent > costs.COMPILE_SECONDS * len(self._programs)

    def _is_compiled(self) -> bool:
        return all([engines.is_compiled(program) for program in self._programs])

    def run(self, blobs: Sequence[TBlob], limits: Settings) -> list[TBlob] | None:
        """Return the results for these arguments, None where library calls are to be made instead."""
        given = [*blobs, *self._fixed] if self._fixed else blobs
        schedule = self._schedule
        if schedule is None or not schedule.fits(limits):
            due = self.due(limits)
            if due is None:
                return None
            schedule = self._schedule = self._prepared(given, due)
        return schedule.run(given, self._scalars)

    def _prepared(self, given: Sequence[TBlob], limits: Settings) -> Schedule:
        values = self._values.copy()
        found = {}
        for number, place, after in self._leaves:
            seen = self._seen.get(number)
            found[number] = values[number] = given[place] if seen is None else seen.of(given[place], after)
        work = work_over(self._trace.of(values), self._plan, found, self._leaves, None, limits)
        return prepared(work, self.results)

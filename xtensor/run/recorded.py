"""Expressions of arguments: a graph that was recorded once and runs again over other memory laid out alike.

Shapes, layouts and scalars are those of the first graph, so everything is known but where the arguments lie: once the
kernels are compiled, a run is nothing but their launches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any, NamedTuple

from ..base.layout import Layout, Shape
from ..base.options import Settings
from ..codegen.cpu.compile import host
from ..graph.node import Node, pending_below
from ..plan.costs import (
    BYTE,
    CALL,
    COMPILE_SECONDS,
    FOLD,
    FUNCTION,
    FUNCTIONS,
    LAUNCH,
    MOVED,
    PART,
    REDUCTION,
    RUN,
    VIEW,
    library_seconds,
)
from ..plan.program import Trace, bare, plan_of
from ..storage.blob import TBlob
from . import engines
from .planned import Evaluation
from .ready import Ready

# Why an expression is not one of arguments alone, or why it is not run by kernels.
OUTSIDE = "it reads a tensor that is not an argument, or one that was computed at once"
KEEPS = "it keeps a value that it does not return"
EMPTY = "there are no elements"
SMALL = "library calls cost less for arrays as small as these"
NOT_YET = "its library calls have not taken as long yet as compiling would"


# Whose memory a blob shows: the number of an argument, the bytes from its first element, and whether it is a view.
Root = tuple[int, int, bool]


class Leaf(NamedTuple):
    """Memory that an expression reads: a root, and what is seen there."""

    argument: int
    after: int
    is_part: bool
    dtype: Any
    shape: Shape
    strides: Shape

    def of(self, blobs: Sequence[TBlob]) -> TBlob:
        """Return it as a view of these arguments."""
        blob = blobs[self.argument]
        return blob.view(Layout(self.shape, self.strides, blob.layout.offset + self.after), dtype=self.dtype)


def record(nodes: Sequence[Node], roots: Mapping[TBlob, Root], direct_below: int) -> Recorded | str:
    """Return pending nodes as an expression of arguments, or why they are none.

    roots: whose memory blobs show, as far as that belongs to arguments.
    direct_below: the bytes up to which a plain call makes library calls at once.
    """
    trace = Trace(pending_below(nodes), nodes)
    if trace.kept != {trace.numbers[node] for node in nodes}:
        return KEEPS
    leaves = {}
    for number, value in enumerate(trace.values):
        if isinstance(value, TBlob):
            if value.fixed:
                continue
            if value not in roots:
                return OUTSIDE
            leaves[number] = Leaf(*roots[value], value.dtype, value.layout.shape, value.layout.strides)
    recorded = Recorded(trace, leaves, nodes, direct_below)
    return recorded if recorded.elements else EMPTY


class Recorded:
    """An expression of arguments.

    values: those of the trace: Python scalars, nodes without inputs, and None in the place of memory.
    leaves: what is memory, by number. returned: the numbers of the results; results: each of them once.
    small: whether library calls are expected to cost less than launching kernels.
    """

    def __init__(self, trace: Trace, leaves: Mapping[int, Leaf], results: Iterable[Node], direct_below: int) -> None:
        self.returned = [trace.numbers[node] for node in results]
        self.results = list(dict.fromkeys(self.returned))
        self.leaves = leaves
        self.plan = plan_of(trace)
        self.trace = trace.without_values()
        self.values = [bare(value) for value in trace.values]
        self.elements = self.plan.largest(trace.values)
        self.has_empty_loops = self.plan.has_empty_loops(trace.values)
        self.direct_below = direct_below
        programs = [kernel.program for kernel in self.plan.kernels if kernel.direct is None]
        self.nbytes = self.elements * max([program.widest for program in programs], default=1)
        self.small = self.nbytes <= direct_below and self._library_seconds() < self._kernel_seconds(trace.values)
        can_compile = host() is not None
        self._worth = COMPILE_SECONDS * len(programs) if can_compile else inf
        self._library, self._spent = self.elements * sum(map(library_seconds, programs)), 0.0

    def compute(self, blobs: Sequence[TBlob], limits: Settings) -> list[TBlob]:
        """Return the results for these arguments, by whatever engine is due."""
        found = self._evaluation(blobs, limits).compute()
        return [found[number] for number in self.results]

    def why_not(self, limits: Settings) -> str:
        """Return why library calls are to be made instead, "" where kernels are due."""
        if limits.engine != "auto":
            return ""
        if self.small:
            return SMALL
        waits = self.nbytes <= self.direct_below and self._spent <= self._worth
        return NOT_YET if waits and not self._is_compiled() else ""

    def due(self, limits: Settings) -> Settings | None:
        """Return the settings to run it under now; None where library calls are to be made instead.

        Its kernels are compiled together, when all its library calls would have taken long enough.
        """
        if limits.engine == "auto" and not self.small and not self._is_compiled():
            self._spent += self._library
            if self._spent > self._worth:
                return replace(limits, engine="llvm")
        return None if self.why_not(limits) else limits

    def _library_seconds(self) -> float:
        """Estimate what library calls on small arrays take."""
        views = sum([leaf.is_part for leaf in self.leaves.values()])
        seconds = len(self.trace.arguments) * CALL + views * VIEW
        for kernel in self.plan.kernels:
            for step in kernel.program.steps:
                seconds += CALL * (step.op.name in ("astype", "where"))
                size = step.dtype.itemsize
                each = 3 * size * BYTE + (step.op.name in FUNCTIONS) * FUNCTION * (size / 4) ** 2
                seconds += self.elements * each
            seconds += len(kernel.program.reductions) * REDUCTION
        return seconds

    def _kernel_seconds(self, values: Sequence[Any]) -> float:
        """Estimate what ready kernels on small arrays take."""
        seconds = RUN
        for kernel in self.plan.kernels:
            last = len(values[kernel.domain].shape) - 1
            folds = bool(kernel.axes) and last not in kernel.axes
            each = kernel.program.traffic * MOVED + kernel.program.seconds * PART
            seconds += LAUNCH + folds * FOLD + self.elements * each
        return seconds

    def _is_compiled(self) -> bool:
        return all([kernel.direct is not None or engines.is_compiled(kernel.program) for kernel in self.plan.kernels])

    def ready(self, blobs: Sequence[TBlob], limits: Settings) -> Ready | None:
        """Return the expression as launches, None where not all of it is compiled."""
        if limits.engine == "interpret" or self.has_empty_loops or not self._is_compiled():
            return None
        leaves = [(number, leaf.argument, leaf.after) for number, leaf in self.leaves.items()]
        return Ready(self._evaluation(blobs, limits), leaves, self.results, limits)

    def _evaluation(self, blobs: Sequence[TBlob], limits: Settings) -> Evaluation:
        values = self.values.copy()
        for number, leaf in self.leaves.items():
            values[number] = leaf.of(blobs)
        return Evaluation(self.trace.of(values), self.plan, None, limits)

"""Graphs that were evaluated before, recognised by their last node.

Every node has a signature, a number that stands for its structure. When a graph has been planned, the numbers of its
values are remembered: another graph of the same signature is unpacked into numbered values, in the order of the first
one's trace, so a loop that computes the same expression again and again pays neither for numbering nor for planning it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..graph.node import Node
from ..plan.program import Plan, Program, Trace, bare
from ..storage.blob import TBlob
from .launch import scalar_slots

# Expressions remembered at most, and the evaluations after which one that is not remembered yet need not be waited for.
REMEMBERED, LEARNT = 4096, 4

# A graph's numbered values, what launches depend on beside the plan, and the values that are blobs.
Found = tuple[list[Any], tuple[Any, ...], list[TBlob]]


class Loop(NamedTuple):
    """A plan that is one loop with one result: its program, and the numbers of its operands.

    last: the inputs that only the last step reads.
    """

    program: Program
    inputs: tuple[int, ...]
    scalars: tuple[int, ...]
    last: frozenset[int]

    def pack(self, scalars: Sequence[Any]) -> bytes:
        """Return the slots of the scalars."""
        return scalar_slots(scalars, self.program.scalars)


class Unpacked(NamedTuple):
    """One node of a graph as it was recorded: its number, the numbers of its inputs, how many nodes of the graph use
    it, and the macro that it was, if it was one.
    """

    number: int
    inputs: tuple[int, ...]
    uses: int
    macro: Any


class Known(NamedTuple):
    """An expression that was planned: its nodes from the last to the first, the trace it was planned from, without
    values, the plan, and what stands for values that no node reads.

    loop: the plan once more where it is a single loop.
    """

    nodes: list[Unpacked]
    trace: Trace
    plan: Plan
    values: list[Any]
    loop: Loop | None

    def find(self, root: Node) -> Found | None:
        """Return the values of a graph of this structure.

        None for a graph whose inner nodes are evaluated meanwhile, shown, or used from outside, or that does not share
        its values as the first one did.
        """
        values = self.values.copy()
        values[self.nodes[0].number] = root
        for number, inputs, uses, macro in self.nodes:
            node = values[number]
            if node is not root and (_is_wanted(node) or len(node.readers) != uses):
                return None
            if macro is not None and node.op is not macro:
                return None
            for argument, value in zip(inputs, node.inputs, strict=True):
                known = values[argument]
                if known is None:
                    values[argument] = value
                elif known is not value:
                    return None
        return values, *lying(values)


def _is_wanted(node: Node) -> bool:
    """Return whether a node was evaluated meanwhile, or somebody holds it."""
    return node.blob is not None or node.parts is not None or (node.face is not None and node.face() is not None)


_known: dict[int, Known] = {}
_met: dict[int, int] = {}


def known(node: Node) -> Known | None:
    """Return what is remembered of a node's expression."""
    return _known.get(node.signature)


def remember(root: Node, trace: Trace, plan: Plan) -> None:
    """Remember the plan of the expression that ends in a node, if nothing else of it is kept.

    That is worth it for an expression that is met a second time, and has generated code.
    """
    if root.signature in _known or any([value.dtype.kind == "c" for value in trace.values if hasattr(value, "dtype")]):
        return
    before = _met.get(root.signature, 0)
    if not before and len(_met) >= REMEMBERED:
        _met.clear()
    _met[root.signature] = before + 1
    if not before or trace.kept != {trace.numbers[root]}:
        return
    nodes = _unpacked(root, trace)
    if nodes:
        if len(_known) >= REMEMBERED:
            _known.clear()
        named = {trace.numbers[root], *(n for node in nodes for n in node.inputs)}
        values = [None if n in named else bare(value) for n, value in enumerate(trace.values)]
        _known[root.signature] = Known(nodes, trace.without_values(), plan, values, _loop_of(plan, trace))


def is_new(node: Node) -> bool:
    """Return whether an expression was planned so seldom that it may be remembered yet."""
    return node.signature not in _known and _met.get(node.signature, 0) < LEARNT


def _loop_of(plan: Plan, trace: Trace) -> Loop | None:
    kernel = plan.kernels[0]
    if len(plan.kernels) > 1 or kernel.direct is not None or kernel.program.reductions or not kernel.inputs:
        return None
    *others, _ = trace.arguments.values()
    last = frozenset(kernel.inputs).difference(*others)
    return Loop(kernel.program, kernel.inputs, kernel.scalars, last)


def _unpacked(root: Node, trace: Trace) -> list[Unpacked]:
    """Return the nodes of a graph from the last to the first; none where an input was evaluated after it was used."""
    recorded = _recorded(trace)
    if recorded is None or trace.values[next(reversed(trace.arguments))] is not root:
        return []
    uses = Counter([argument for arguments in recorded.values() for argument in arguments])
    found = []
    for number in reversed(recorded):
        spelled = trace.values[number].spelled
        found.append(Unpacked(number, recorded[number], uses[number], spelled and spelled.macro))
    return found


def _recorded(trace: Trace) -> dict[int, tuple[int, ...]] | None:
    """Return the nodes of a trace as they were recorded, macros as one node each, with the numbers of their inputs.

    None where an input has been evaluated after it was used, or a macro does not need one of its inputs.
    """
    inner = {trace.numbers[one] for _, node in trace.nodes() if node.spelled for one in node.spelled.inner}
    found = {}
    for number, node in trace.nodes():
        given = node.inputs if node.spelled is None else node.spelled.inputs
        if any([isinstance(value, Node) and value.blob is not None for value in given]):
            return None
        if node.spelled is not None:
            if not all([value in trace.numbers for value in given]):
                return None
            found[number] = tuple([trace.numbers[value] for value in given])
        elif number not in inner:
            found[number] = trace.arguments[number]
    return found


def lying(values: Sequence[Any]) -> tuple[tuple[Any, ...], list[TBlob]]:
    """Return what launches depend on beside the plan, where operands lie and the scalars, and the operands."""
    key: list[Any] = []
    blobs: list[TBlob] = []
    for value in values:
        kind = type(value)
        if kind is TBlob:
            layout = value.layout
            key += (layout.shape, layout.strides)
            blobs.append(value)
        elif kind is float:
            key.append(value or value.hex())  # -0.0 is not 0.0
        elif kind is complex:
            key += (value.real.hex(), value.imag.hex())
        elif kind is not Node:
            key.append(value)
    return tuple(key), blobs

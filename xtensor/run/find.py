"""Graphs that were evaluated before, recognised by their last node.

Every node has a signature, a number that stands for its structure. When a graph has been planned, a small function is
written that unpacks another graph of the same signature into numbered values, in the order of the first one's trace:
a loop that computes the same expression again and again pays neither for walking nor for planning it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..graph.node import Node
from ..plan.program import Plan, Program, Trace, bare
from ..storage.blob import TBlob
from .launch import scalar_slots

# Expressions remembered at most, and the evaluations after which one that is not remembered yet need not be waited for.
REMEMBERED, LEARNT = 4096, 4

# Steps for each of which an expression is to be met once more before the function is worth writing.
EACH = 64

# A graph's numbered values, what launches depend on beside the plan, and the values that are blobs.
Found = tuple[list[Any], tuple[Any, ...], list[TBlob]]
Find = Callable[[Node], Found | None]


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


class Known(NamedTuple):
    """An expression that was planned: how to unpack it, the trace it was planned from, without values, and the plan.

    loop: the plan once more where it is a single loop.
    """

    find: Find
    trace: Trace
    plan: Plan
    loop: Loop | None


_known: dict[int, Known] = {}
_met: dict[int, int] = {}


def known(node: Node) -> Known | None:
    """Return what is remembered of a node's expression."""
    return _known.get(node.signature)


def remember(root: Node, trace: Trace, plan: Plan) -> None:
    """Remember the plan of the expression that ends in a node, if nothing else of it is kept.

    The function is worth writing for an expression that is met a second time, one of many steps later: that takes 30
    times as long as to walk the graph and look up its plan.
    """
    if root.signature in _known or any([value.dtype.kind == "c" for value in trace.values if hasattr(value, "dtype")]):
        return
    before = _met.get(root.signature, 0)
    if not before and len(_met) >= REMEMBERED:
        _met.clear()
    _met[root.signature] = before + 1
    if before <= len(trace.arguments) // EACH or trace.kept != {trace.numbers[root]}:
        return
    find = _finder(root, trace)
    if find is not None:
        if len(_known) >= REMEMBERED:
            _known.clear()
        _known[root.signature] = Known(find, trace.without_values(), plan, _loop_of(plan, trace))


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


def _finder(root: Node, trace: Trace) -> Find | None:
    """Return the function that unpacks a graph of this structure into the trace's values.

    It returns None for a graph whose inner nodes are evaluated meanwhile, shown, or used from outside, or that does
    not share its values as the first one did. There is no function where an input was evaluated after it was used.
    """
    recorded = _recorded(trace)
    if recorded is None or trace.values[next(reversed(trace.arguments))] is not root:
        return None
    uses = Counter([argument for arguments in recorded.values() for argument in arguments])
    last = trace.numbers[root]
    bound = {last}
    names_here: dict[str, Any] = {}
    lines = [f"def find(v{last}):"]
    for number in reversed(recorded):
        node = trace.values[number]
        if node is not root:
            shown = f"v{number}.face is not None and v{number}.face() is not None"
            lines.append(f"    if v{number}.blob is not None or v{number}.parts is not None or ({shown}): return None")
            lines.append(f"    if len(v{number}.readers) != {uses[number]}: return None")
        if node.spelled is not None:
            names_here[f"macro{number}"] = node.spelled.macro
            lines.append(f"    if v{number}.op is not macro{number}: return None")
        names = []
        for place, argument in enumerate(recorded[number]):
            names.append(f"again{place}" if argument in bound else f"v{argument}")
            bound.add(argument)
        lines.append(f"    {', '.join(names)}, = v{number}.inputs")
        for name, argument in zip(names, recorded[number], strict=True):
            if name != f"v{argument}":
                lines.append(f"    if {name} is not v{argument}: return None")
    names_here |= {f"v{n}": bare(value) for n, value in enumerate(trace.values) if n not in bound}
    lines.append(f"    return [{', '.join(f'v{number}' for number in range(len(trace.values)))}], {_lying(trace)}")
    exec("\n".join(lines), names_here)
    find: Find = names_here["find"]
    return find


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


def _lying(trace: Trace) -> str:
    """Return the code for where operands lie and the scalars, and for the operands; `lying` says the same of values."""
    key, blobs = "", ""
    for number, value in enumerate(trace.values):
        name = f"v{number}"
        if type(value) is TBlob:
            key += f"{name}.layout.shape, {name}.layout.strides, "
            blobs += f"{name}, "
        elif type(value) is float:
            key += f"{name} or {name}.hex(), "
        elif type(value) is complex:
            key += f"{name}.real.hex(), {name}.imag.hex(), "
        elif type(value) is not Node:
            key += f"{name}, "
    return f"({key}), [{blobs}]"


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

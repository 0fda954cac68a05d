"""Evaluations: a graph is numbered and planned once, and its plan is found by the last node when it comes again.

Every node has a signature, a number that stands for its structure. When a graph has been planned, the numbers of its
values are remembered: another graph of the same signature is unpacked into numbered values, in the order of the first
one's trace, so a loop that computes the same expression again and again pays neither for numbering nor for planning it.
Then only the layouts of operands have to be looked at, which decide on the schedule.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from math import prod
from typing import Any, NamedTuple

from ..base.caches import make_room
from ..base.options import Settings, settings
from ..devices import Device
from ..devices.cpu import CPU
from ..graph.node import Node, pending_below
from ..graph.number import value_of
from ..plan.costs import CALLED_SECONDS, COMPILE_SECONDS, PREPARE_SECONDS, calls_seconds, library_seconds
from ..plan.fusion import plan_of
from ..plan.layouts import behind, work_of
from ..plan.program import Plan
from ..plan.trace import Trace, bare
from ..storage.blob import TBlob
from ..storage.storage import watchers, watching
from .describe import described
from .prepare import WAYS, schedule_of
from .steps import step

# The most expressions that are remembered; after so many evaluations, one that is not remembered never will be.
REMEMBERED, LEARNT = 4096, 4

# If a plan has so many schedules, one more is prepared only if that pays at once, or the layouts come again.
SEVERAL = 8


class Planned(NamedTuple):
    """An evaluation with its plan, and the values that it works on.

    key: the device and the layouts of blobs, on which the schedule depends besides the plan. into: the number of a
    result, and the memory to write it to, which is the last of the blobs.
    """

    trace: Trace
    plan: Plan
    key: tuple[Any, ...]
    blobs: list[TBlob]
    scalars: list[Any]
    into: tuple[int, TBlob] | None
    limits: Settings


def planned(order: list[Node], wanted: list[Node], into: tuple[Node, TBlob] | None = None) -> Planned:
    """Return the evaluation of nodes in order, which keeps those that are wanted, shown, or used from outside.

    into: one of the nodes, and memory for it.
    """
    limits = settings()
    trace = Trace(order, wanted)
    plan = plan_of(trace)
    placed = None if into is None else (trace.numbers[into[0]], into[1])
    if limits.show:
        print(described(work_of(trace, plan, placed, limits), limits.show), file=sys.stderr)
    _remember(wanted, trace, plan)
    return _over(trace, plan, order[0].device, placed, limits)


def _over(trace: Trace, plan: Plan, device: Device, into: tuple[int, TBlob] | None, limits: Settings) -> Planned:
    """Return the evaluation of a plan over the blobs and scalars among a trace's values, in order."""
    key: list[Any] = [device]
    blobs: list[TBlob] = []
    scalars: list[Any] = []
    for value in trace.values:
        kind = type(value)
        if kind is TBlob:
            layout = value.layout
            key += (layout.shape, layout.strides)
            blobs.append(value)
        elif kind is not Node:
            scalars.append(value_of(value))
    if into is not None:
        layout = into[1].layout
        key += (layout.shape, layout.strides, behind(into[1]))
        blobs.append(into[1])
    return Planned(trace, plan, tuple(key), blobs, scalars, into, limits)


def found_again(nodes: Sequence[Node], small: int, into: TBlob | None = None) -> Planned | None:
    """Return the evaluation of nodes by a plan of before; None if their expression is unknown or differs after all.

    small: the bytes up to which library calls are made instead, unless an engine is asked for. into: memory for the
    only node, which must not be read at other places than it is written.
    """
    expression = _known.get(_signature(nodes))
    limits = settings()
    if expression is None or limits.engine == "direct" or limits.show:
        return None
    values = expression.find(nodes)
    if values is None or (into is not None and not expression.writes_in_place(values, into)):
        return None
    plan, device = expression.plan, nodes[0].device
    direct = into is None and limits.engine == "auto" and device.backend is CPU
    ends_are_small = direct and all([prod(node.shape) * node.dtype.itemsize <= small for node in nodes])
    if ends_are_small and plan.largest(values) * nodes[0].dtype.itemsize <= small:
        return None
    placed = None if into is None else (expression.roots[0], into)
    return _over(expression.trace.of(values), plan, device, placed, limits)


def _signature(nodes: Sequence[Node]) -> Any:
    """Return a key for the structure of an expression that ends in some nodes. For several nodes it has their shapes,
    as those of the same shape may share a kernel.
    """
    return nodes[0].signature if len(nodes) == 1 else tuple([(node.signature, node.shape) for node in nodes])


def run(planned: Planned) -> None:
    """Run the schedule of an evaluation, and give the nodes that are kept their results."""
    trace, plan, key, blobs, scalars, into, limits = planned
    for watcher in tuple(watchers):
        watcher.served(blobs)
    capture = watching() if watchers else None
    again = None if capture is None else capture.key_of(trace, plan, key, into)
    times = 0 if capture is None else capture.times(plan, key)
    if _calls_pay(planned, times) and (capture is None or again is not None):
        with nullcontext() if capture is None else capture.inside():
            results = _by_steps(trace, plan, into)
    elif capture is None:
        results = schedule_of(trace, plan, key, into, limits).run(blobs, scalars)
    else:
        limits = capture.settings(plan, limits)
        results = capture.run(schedule_of(trace, plan, key, into, limits), blobs, scalars)
    found = list(zip(sorted(plan.kept), results, strict=True))
    if capture is not None and not capture.repeated(again):
        capture.evaluated(planned, found, again)
    for number, blob in found:
        node = trace.values[number]
        if node.blob is None:  # not finished meanwhile, by a signal handler say
            node.finish(blob)


def _by_steps(trace: Trace, plan: Plan, into: tuple[int, TBlob] | None) -> list[TBlob]:
    """Return the results that a plan keeps, each node computed by the library. into: memory for the only result."""
    kept = [trace.values[number] for number in sorted(plan.kept)]
    for node in pending_below(kept):
        blob = step(node)
        if into is not None and node is kept[0]:
            CPU.assign(into[1].native(), ..., blob.native())
            blob = into[1]
        node.finish(blob)
    return [node.blob for node in kept]


def _calls_pay(planned: Planned, times: int) -> bool:
    """Return whether to call the library because preparing a schedule would take longer: for small work in a function
    that is being captured, which is prepared as a whole later, and for operands whose layouts differ each time, such as
    arrays selected by masks. Layouts that come a second time are worth a schedule.

    times: how often this came in a captured function, 0 outside one: a long loop in it is worth a schedule.
    """
    trace, plan, key, _, _, into, limits = planned
    chosen = limits.engine != "auto" or limits.reproducible or key[0].backend is not CPU
    if chosen or (into is not None and len(plan.kept) > 1):
        return False
    if times:
        largest = plan.largest(trace.values)
        seconds = calls_seconds(plan, largest, len(trace.arguments), 0)
        return seconds <= CALLED_SECONDS and times * seconds <= COMPILE_SECONDS
    if len(plan.schedules) < SEVERAL or key in plan.schedules:
        return False
    seconds = plan.largest(trace.values) * sum([library_seconds(kernel.program) for kernel in plan.kernels])
    if seconds > PREPARE_SECONDS:
        return False
    if len(plan.schedules) < WAYS:
        plan.schedules[key] = None
    return True


# ---- expressions found again


class Unpacked(NamedTuple):
    """One node of a graph as it was recorded: its number, the numbers of its inputs, how many nodes of the graph use
    it, and its macro, if it is one.
    """

    number: int
    inputs: tuple[int, ...]
    uses: int
    macro: Any


class Known(NamedTuple):
    """An expression that was planned: the numbers of the nodes that it ends in, its nodes from the last to the first,
    the trace it was planned from, without values, the plan, and placeholders for values that no node reads.

    mapped: the inputs that are only read element by element, by steps of the only end's shape and dtype. held: the
    inner nodes whose values somebody holds.
    """

    roots: tuple[int, ...]
    nodes: list[Unpacked]
    trace: Trace
    plan: Plan
    values: list[Any]
    mapped: frozenset[int]
    held: frozenset[int]

    def find(self, ends: Sequence[Node]) -> list[Any] | None:
        """Return the values of a graph of this structure that ends in some pending nodes.

        None for a graph whose inner nodes have been evaluated, are held by others, or are used from outside, or that
        does not share its values as the first one did.
        """
        values = self.values.copy()
        for number, end in zip(self.roots, ends, strict=True):
            if end.blob is not None:
                return None
            values[number] = end
        for number, inputs, uses, macro in self.nodes:
            node = values[number]
            if number not in self.roots:
                if not (_is_inner(node, number in self.held) and len(node.readers) == uses):
                    return None
                if node.saver is not None and number in self.trace.costly:
                    return None
            if macro is not None and node.op is not macro:
                return None
            for argument, value in zip(inputs, node.inputs, strict=True):
                known = values[argument]
                if known is None:
                    values[argument] = value
                elif known is not value:
                    return None
        return values

    def writes_in_place(self, values: Sequence[Any], target: TBlob) -> bool:
        """Return whether the target's memory is only read element by element, each where it is written."""
        if not target.is_packed and target.layout.may_repeat():
            return False
        for number, value in enumerate(values):
            if type(value) is not TBlob:
                continue
            if value.owner is not target.owner and not (value.owner.shared and target.owner.shared):
                continue
            same = value.owner is target.owner and value.layout == target.layout
            if not (same and number in self.mapped) and value.overlaps(target):
                return False
        return True


def _is_inner(node: Node, held: bool) -> bool:
    """Return whether a node is pending, and whether somebody holds it agrees with `held`."""
    if node.blob is not None or node.parts is not None:
        return False
    return (node.face is not None and node.face() is not None) is held


_known: dict[Any, Known] = {}
_met: dict[Any, int] = {}


def is_new(node: Node) -> bool:
    """Return whether an expression was planned so rarely that it may still come to be remembered, or be remembered by a
    plan that keeps nothing but its end.
    """
    known = _known.get(node.signature)
    return (known is None or bool(known.held)) and _met.get(node.signature, 0) < LEARNT


def _remember(ends: Sequence[Node], trace: Trace, plan: Plan) -> None:
    """Remember the plan of the expression that ends in some nodes, if all its other kept nodes are held by somebody.

    That is worth it when an expression is met a second time. A plan without such other nodes replaces one with them.
    """
    roots, signature = tuple([trace.numbers[end] for end in ends]), _signature(ends)
    held, known = frozenset(trace.kept.difference(roots)), _known.get(signature)
    if (known is not None and (held or not known.held)) or len(set(roots)) < len(roots):
        return
    before = _met.get(signature, 0)
    if not before:
        make_room(_met, REMEMBERED)
    _met[signature] = before + 1
    if not before or not all([_is_inner(trace.values[number], True) for number in held]):
        return
    nodes = _unpacked(roots, trace)
    if nodes:
        make_room(_known, REMEMBERED)
        named = {*roots, *(n for node in nodes for n in node.inputs)}
        values = [None if n in named else bare(value) for n, value in enumerate(trace.values)]
        mapped = _mapped(trace, ends[0]) if len(ends) == 1 else frozenset[int]()
        _known[signature] = Known(roots, nodes, trace.without_values(), plan, values, mapped, held)


def _mapped(trace: Trace, root: Node) -> frozenset[int]:
    """Return the inputs of a root's dtype that are only read element by element, by steps of its shape."""
    read = set[int]()
    for number, node in trace.nodes():
        if node.op.kind != "elementwise" or node.shape != root.shape:
            read.update(trace.arguments[number])
    return frozenset(
        [n for n, value in enumerate(trace.values) if n not in read and getattr(value, "dtype", None) == root.dtype]
    )


def _unpacked(roots: Sequence[int], trace: Trace) -> list[Unpacked]:
    """Return the nodes of a graph from the last to the first; none if an input was evaluated after it was used."""
    recorded = _recorded(trace)
    if recorded is None or next(reversed(trace.arguments)) not in roots:
        return []
    uses = Counter([argument for arguments in recorded.values() for argument in arguments])
    found = []
    for number in reversed(recorded):
        spelled = trace.values[number].spelled
        found.append(Unpacked(number, recorded[number], uses[number], spelled and spelled.macro))
    return found


def _recorded(trace: Trace) -> dict[int, tuple[int, ...]] | None:
    """Return the nodes of a trace as they were recorded, macros as one node each, with the numbers of their inputs.

    None if an input has been evaluated after it was used, or a macro does not need one of its inputs.
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

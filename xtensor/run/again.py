"""Evaluations, most of which happened before in all but the addresses: those are launched, the others planned.

What an expression's last node tells is looked up first (see `find`), then what its trace tells; where operands lie and
which scalars there are decides whether launches are ready (see `ready`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

from ..base.options import Settings, settings
from ..devices.cpu import CPU
from ..graph.node import Macro, Node
from ..plan.program import Plan, Trace, plan_of
from ..storage.blob import TBlob
from . import cuda as cuda_run
from . import engines
from .describe import described
from .find import Loop, is_new, known, lying, remember
from .launch import operand, run_map, run_packed
from .planned import Evaluation
from .ready import Ready


def evaluate(order: list[Node], wanted: list[Node], into: tuple[Node, TBlob] | None = None) -> None:
    """Compute nodes that stand in order by kernels; run.py's `_evaluate` says what is kept."""
    limits = settings()
    trace = Trace(order, wanted)
    plan = plan_of(trace)
    if limits.show:
        result = Evaluation(trace, plan, into, limits).result
        print(described(trace, plan, limits.show, limits, result), file=sys.stderr)
    if len(wanted) == 1:
        remember(wanted[0], trace, plan)
    if into is None and _launch(trace, plan, limits, *lying(trace.values)):
        return
    Evaluation(trace, plan, into, limits).run()


def evaluate_again(node: Node, small: int) -> bool:
    """Compute a node whose expression was planned before; return False where it is unknown or differs after all.

    small: the bytes up to which library calls are made instead, unless an engine is asked for.
    """
    expression = known(node)
    limits = settings()
    if expression is None or node.blob is not None or limits.engine == "direct" or limits.show:
        return False
    found = expression.find(node)
    if found is None:
        return False
    values, key, blobs = found
    plan = expression.plan
    ready = plan.launches.get(key)
    if ready is not None and (ready.limits is limits or ready.limits == limits):
        blob = ready.run(blobs)[0]
        if node.blob is None:  # not finished meanwhile, by a signal handler say
            node.finish(blob)
        return True
    for value in values:  # what is planned and described is steps
        if type(value) is Node and type(value.op) is Macro:
            value.op.spell_out(value)
    trace = expression.trace.of(values)
    here = node.device.backend is CPU
    if here and limits.engine == "auto" and plan.largest(values) * node.dtype.itemsize <= small:
        return False
    if here and _launch(trace, plan, limits, key, blobs):
        return True
    if expression.loop is None or not _run_loop(node, expression.loop, values, limits):
        Evaluation(trace, plan, None, limits).run()
    return True


def write_again(node: Node, blob: TBlob) -> Callable[[], bool] | None:
    """Return what computes a node into memory by one compiled loop, and says whether it did; None where there is none.

    There is one for an expression that was planned before, where nothing below the node reads the memory but the node
    itself, element by element.
    """
    expression = known(node)
    limits = settings()
    if expression is None or expression.loop is None or limits.engine == "direct" or limits.show:
        return None
    found = expression.find(node)
    if found is None or (not blob.is_packed and blob.layout.may_repeat()):
        return None
    values, loop = found[0], expression.loop
    for number in loop.inputs:
        read = values[number]
        if read.owner is blob.owner and (number not in loop.last or read.layout != blob.layout):
            return None
    return partial(_run_loop, node, loop, values, limits, blob)


def is_learnt(node: Node) -> bool:
    """Return whether `write_again` will never do for an expression what it did not do now."""
    expression = known(node)
    if expression is None:
        return not is_new(node)
    return expression.loop is None or not engines.may_be_compiled(expression.loop.program)


def _run_loop(node: Node, loop: Loop, values: Sequence[Any], limits: Settings, into: TBlob | None = None) -> bool:
    """Compute a node that is one compiled loop, over packed arrays of one size or into given memory; return False where
    it is not that.
    """
    shape = node.shape
    size = prod(shape)
    blobs = [values[number] for number in loop.inputs]
    here = node.device.backend is CPU
    if limits.engine == "interpret" or 0 in shape or (here and not engines.is_compiled(loop.program)):
        return False
    packed = all([blob.layout.shape == shape and blob.is_packed for blob in blobs])
    packed = packed and (into is None or into.is_packed)
    if not packed and (into is None or not here):
        return False
    blob = into or TBlob.empty(shape, node.dtype, node.device)
    scalars = loop.pack([values[number] for number in loop.scalars])
    if not packed:
        run_map(loop.program, shape, [operand(one, shape) for one in (*blobs, blob)], scalars, limits.fast_math)
        node.finish(blob)
        return True
    addresses = [one._address or one.address for one in blobs]
    addresses.append(blob.address)
    if here:
        run_packed(loop.program, size, addresses, scalars, limits.fast_math)
    elif not cuda_run.run_packed(loop.program, size, addresses, scalars, node.device.backend, limits.fast_math):
        return False
    node.finish(blob)
    return True


# Launches that one plan has ready, for operands that lie in so many ways or go with so many scalars.
WAYS = 16


def _finish(ready: Ready, trace: Trace, blobs: Sequence[TBlob]) -> None:
    """Run launches, and give the nodes their results."""
    for number, blob in zip(ready.results, ready.run(blobs), strict=True):
        node = trace.values[number]
        if node.blob is None:  # not finished meanwhile, by a signal handler say
            node.finish(blob)


def _launch(trace: Trace, plan: Plan, limits: Settings, key: tuple[Any, ...], blobs: list[TBlob]) -> bool:
    """Compute what a plan keeps by launches; return False where there can be none, or none are ready yet.

    They are made ready when an evaluation like this comes a second time.
    """
    launches = plan.launches
    if key not in launches:
        if len(launches) >= WAYS:
            launches.clear()
        launches[key] = None
        return False
    ready = launches[key]
    if ready is None or (ready.limits is not limits and ready.limits != limits):
        ready = launches[key] = _made_ready(trace, plan, limits)
    if ready is not None:
        _finish(ready, trace, blobs)
    return ready is not None


def _made_ready(trace: Trace, plan: Plan, limits: Settings) -> Ready | None:
    """Return launches for an evaluation, None where they are not possible, or not yet."""
    if limits.engine == "interpret" or plan.has_empty_loops(trace.values):
        return None
    if not all([kernel.direct is not None or engines.is_compiled(kernel.program) for kernel in plan.kernels]):
        return None
    results = sorted(plan.kept)
    if any([trace.values[number].device.backend is not CPU for number in results]):
        return None
    blobs = [number for number, value in enumerate(trace.values) if type(value) is TBlob]
    leaves = [(number, given, 0) for given, number in enumerate(blobs)]
    return Ready(Evaluation(trace, plan, None, limits), leaves, results, limits)

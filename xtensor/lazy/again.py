"""Evaluations, most of which happened before in all but the addresses: those are launched, the others planned.

What an expression's last node tells is looked up first (see `find`), then what its trace tells; where operands lie and
which scalars there are decides whether launches are ready (see `ready`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import prod
from typing import Any

from ..blob import Buffer, TBlob
from ..devices.cpu import CPU
from ..layout import contiguous
from ..options import Settings, settings
from . import engines
from .describe import described
from .find import Loop, known, remember
from .graph import Node
from .launch import run_packed
from .plan import REMEMBERED, Kernel, Plan, Trace, plan_of
from .planned import Evaluation
from .ready import Ready


def evaluate(
    order: list[Node], wanted: list[Node], into: tuple[Node, TBlob] | None = None, *, is_piece: bool = False
) -> None:
    """Compute nodes that stand in order by kernels; run.py's `_evaluate` says what is kept."""
    limits = settings()
    trace = Trace(order, wanted, is_piece=is_piece)
    plan = plan_of(trace)
    if limits.show:
        result = Evaluation(trace, plan, into, limits).result
        print(described(trace, plan, limits.show, limits, result), file=sys.stderr)
    if into is None and not is_piece:
        if len(wanted) == 1:
            remember(wanted[0], trace, plan)
        if _launch(trace, plan, limits):
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
    values = expression.find(node)
    if values is None:
        return False
    plan = expression.plan
    if expression.loop is not None and _run_loop(node, expression.loop, values, limits, small):
        return True
    if limits.engine == "auto" and plan.largest(values) * node.dtype.itemsize <= small:
        return False
    trace = expression.trace.of(values)
    if not _launch(trace, plan, limits):
        Evaluation(trace, plan, None, limits).run()
    return True


def _run_loop(node: Node, loop: Loop, values: Sequence[Any], limits: Settings, small: int) -> bool:
    """Compute a node that is one compiled loop over packed arrays of one size; return False where it is not that."""
    shape = node.shape
    size = prod(shape)
    blobs = [values[number] for number in loop.inputs]
    if limits.engine == "interpret" or 0 in shape or not engines.is_compiled(loop.program):
        return False
    if not all([blob._layout.shape == shape and blob.is_packed for blob in blobs]):
        return False
    itemsize = node.dtype.itemsize
    if limits.engine == "auto" and size * itemsize <= small:
        return False
    blob = TBlob(Buffer(node.device, size * itemsize), node.dtype, contiguous(shape, itemsize), node.device)
    blob._packed = True
    addresses = [one._address or one.address for one in blobs]
    addresses.append(blob.address)
    scalars = loop.pack([values[number] for number in loop.scalars])
    run_packed(loop.program, size, addresses, scalars, limits.fast_math)
    node.finish(blob)
    return True


# Launches by plan, layouts of the operands and scalars; None where they were met once, and not made ready.
_launches: dict[tuple[Any, ...], Ready | None] = {}


def _launch(trace: Trace, plan: Plan, limits: Settings) -> bool:
    """Compute what a plan keeps by launches that are ready for such memory and scalars; return False without them.

    They are made ready when such an evaluation comes a second time.
    """
    key: list[Any] = [plan]
    blobs: list[TBlob] = []
    for value in trace.values:
        kind = type(value)
        if kind is TBlob:
            layout = value._layout
            key += (layout.shape, layout.strides)
            blobs.append(value)
        elif kind is float:
            key.append(value.hex())  # -0.0 is not 0.0
        elif kind is complex:
            key += (value.real.hex(), value.imag.hex())
        elif kind is not Node:
            key.append(value)
    found = tuple(key)
    ready = _launches.get(found)
    if ready is None or (ready.limits is not limits and ready.limits != limits):
        ready = _made_ready(found, trace, plan, limits)
        if ready is None:
            return False
    for number, blob in zip(ready.results, ready.run(blobs), strict=True):
        node = trace.values[number]
        if node.blob is None:  # not finished meanwhile, by a signal handler say
            node.finish(blob)
    return True


def _is_ready(kernel: Kernel, trace: Trace) -> bool:
    """Return whether a kernel is compiled, or computed whole by the library."""
    if kernel.direct is not None:
        return bool(trace.values[kernel.direct].op.kind == "library")
    return engines.is_compiled(kernel.program)


def _made_ready(key: tuple[Any, ...], trace: Trace, plan: Plan, limits: Settings) -> Ready | None:
    """Return launches for such an evaluation, None where it comes for the first time or they are not possible."""
    if key not in _launches:
        if len(_launches) >= REMEMBERED:
            _launches.clear()
        _launches[key] = None
        return None
    if limits.engine == "interpret" or plan.largest(trace.values) == 0:
        return None
    if not all([_is_ready(kernel, trace) for kernel in plan.kernels]):
        return None
    blobs = [number for number, value in enumerate(trace.values) if type(value) is TBlob]
    results = sorted(plan.kept)
    if any([trace.values[number].device.backend is not CPU for number in results]):
        return None
    leaves = [(number, given, 0) for given, number in enumerate(blobs)]
    ready = _launches[key] = Ready(Evaluation(trace, plan, None, limits), leaves, results, limits)
    return ready

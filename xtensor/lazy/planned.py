"""Planned evaluation: the nodes of a graph computed by kernels, into results laid out as NumPy's would be."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import prod
from typing import Any

from ..blob import Buffer, TBlob
from ..devices.cpu import CPU
from ..layout import Layout, Shape, contiguous, dense_like, keep_order
from ..options import Settings, settings
from . import cuda_run, engines
from .describe import described
from .find import Loop, known, remember
from .graph import Node
from .launch import run_packed
from .plan import REMEMBERED, Kernel, Plan, Trace, plan_of


def evaluate(
    order: list[Node], wanted: list[Node], into: tuple[Node, TBlob] | None = None, *, is_piece: bool = False
) -> None:
    """Compute nodes that stand in order by kernels; run.py's `_evaluate` says what is kept."""
    limits = settings()
    trace = Trace(order, wanted, is_piece=is_piece)
    plan = plan_of(trace)
    evaluation = Evaluation(trace, plan, into, limits)
    if limits.show:
        print(described(trace, plan, limits.show, limits, evaluation.result), file=sys.stderr)
    if len(wanted) == 1 and into is None and not is_piece:
        remember(wanted[0], trace, plan)
    evaluation.run()


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
    Evaluation(expression.trace.of(values), plan, None, limits).run()
    return True


def _run_loop(node: Node, loop: Loop, values: Sequence[Any], limits: Settings, small: int) -> bool:
    """Compute a node that is one compiled loop over packed arrays of one size; return False where it is not that."""
    shape = node.shape
    size = prod(shape)
    blobs = [values[number] for number in loop.inputs]
    here = node.device.backend is CPU
    if limits.engine == "interpret" or 0 in shape or (here and not engines.is_compiled(loop.program)):
        return False
    if not all([blob._layout.shape == shape and blob.is_packed for blob in blobs]):
        return False
    itemsize = node.dtype.itemsize
    if here and limits.engine == "auto" and size * itemsize <= small:
        return False
    blob = TBlob(Buffer(node.device, size * itemsize), node.dtype, contiguous(shape, itemsize), node.device)
    blob._packed = True
    addresses = [one._address or one.address for one in blobs]
    addresses.append(blob.address)
    scalars = loop.pack([values[number] for number in loop.scalars])
    if here:
        run_packed(loop.program, size, addresses, scalars, limits.fast_math)
    elif not cuda_run.run_packed(loop.program, size, addresses, scalars, node.device.backend, limits.fast_math):
        return False
    node.finish(blob)
    return True


# The strides of results, by plan and layouts of the operands.
_strides: dict[Any, dict[int, Shape]] = {}


class Evaluation:
    """One run of a plan over the values of a trace."""

    def __init__(self, trace: Trace, plan: Plan, into: tuple[Node, TBlob] | None, limits: Settings) -> None:
        self.trace = trace
        self.limits = limits
        self.plan = plan
        self.values = trace.values
        self.blobs: dict[int, TBlob] = {n: v for n, v in enumerate(trace.values) if type(v) is TBlob}
        self.packed = all([blob.is_packed for blob in self.blobs.values()])
        self.strides: dict[int, Shape] = {}
        self.destination: dict[int, TBlob] = {}
        if into is not None:
            node, blob = into
            self.destination[trace.numbers[node]] = blob
            self.packed = self.packed and blob.is_packed
        if not self.packed:
            self._look_up_strides()

    def run(self) -> None:
        """Compute the nodes that are kept, and finish them."""
        blobs = self.compute()
        for number in self.plan.kept:
            if self.values[number].blob is None:  # not finished meanwhile, by a signal handler say
                self.values[number].finish(blobs[number])

    def compute(self) -> dict[int, TBlob]:
        """Return the bytes of the values that are kept, and of the inputs, by number."""
        if not self._run_rows():
            self.largest = self.plan.largest(self.values)
            for kernel, finished in zip(self.plan.kernels, self.plan.last, strict=True):
                self._run(kernel)
                for number in finished:
                    del self.blobs[number]
        return self.blobs

    def _run_rows(self) -> bool:
        """Run all kernels block by block where the plan and the memory allow it."""
        if not self.plan.rows or not self.packed:
            return False
        results = [n for kernel in self.plan.kernels for n in kernel.results if n in self.plan.kept]
        made = {number: self.result(number) for number in results}
        done = engines.run_rows(self.plan, self.values, {**self.blobs, **made}, self.limits)
        if done:
            self.blobs.update(made)
        return done

    def _run(self, kernel: Kernel) -> None:
        kernel = cuda_run.generated(kernel, self.values) or kernel
        if kernel.direct is not None:
            self.blobs[kernel.direct] = self._direct(kernel.direct)
            return
        inputs = [self.blobs[number] for number in kernel.inputs]
        results = [self.result(number) for number in kernel.results]
        scalars = [self.values[number] for number in kernel.scalars]
        engines.run(kernel, self.values[kernel.domain].shape, inputs, scalars, results, self.limits, self.largest)
        self.blobs.update(zip(kernel.results, results, strict=True))

    def _direct(self, number: int) -> TBlob:
        """Compute a node that no loop can: by the backend's own function on finished inputs."""
        node = self.values[number]
        backend = node.device.backend
        natives = [
            self.blobs[argument].native() if argument in self.blobs else self.values[argument]
            for argument in self.trace.arguments[number]
        ]
        result = backend.call(node.op.kernel(backend), *natives, **node.params)
        return TBlob.adopt(backend.asarray(result), node.device)

    def result(self, number: int) -> TBlob:
        """Return the memory of a result: given, or new with the layout that NumPy's result would have."""
        if number in self.destination:
            return self.destination[number]
        node = self.values[number]
        itemsize = node.dtype.itemsize
        layout = contiguous(node.shape, itemsize) if self.packed else Layout(node.shape, self.strides[number])
        blob = TBlob(Buffer(node.device, prod(node.shape) * itemsize), node.dtype, layout, node.device)
        blob._packed = self.packed or None
        return blob

    # ---- layouts of results

    def _look_up_strides(self) -> None:
        """Find the strides of results, remembered for the layouts that operands had before."""
        layouts = [blob.layout for blob in self.blobs.values()]
        key = (self.plan, tuple([(layout.shape, layout.strides) for layout in layouts]))
        found = _strides.get(key)
        if found is None:
            self._find_strides()
            if len(_strides) >= REMEMBERED:
                _strides.clear()
            found = _strides[key] = self.strides
        self.strides = found

    def _find_strides(self) -> None:
        """Find the strides each node's result has: those NumPy would give it, step by step."""
        for number, blob in self.blobs.items():
            self.strides[number] = blob.layout.strides
        for number, node in self.trace.nodes():
            self.strides[number] = self._strides_of(number, node)

    def _strides_of(self, number: int, node: Node) -> Shape:
        """Return the strides of one node's result."""
        itemsize, name = node.dtype.itemsize, node.op.name
        arguments = [a for a in self.trace.arguments[number] if a in self.strides]
        domain = self.values[arguments[0]].shape if node.op.kind == "reduction" else node.shape
        operands = [_over(domain, self.values[a].shape, self._read_strides(a, number)) for a in arguments]
        if name == "astype":
            return dense_like(Layout(domain, operands[0]), itemsize).strides
        if node.op.kind == "elementwise":
            return keep_order(domain, itemsize, operands)
        if name == "count_nonzero" and self.values[arguments[0]].dtype != bool:  # NumPy counts in a copy as booleans
            operands = [dense_like(Layout(domain, operands[0]), 1).strides]
        axes = node.params["axis"]
        axes = tuple(range(len(domain))) if axes is None else axes if isinstance(axes, tuple) else (axes,)
        strides = keep_order(domain, itemsize, operands, axes)
        return tuple([s for a, s in enumerate(strides) if node.params["keepdims"] or a not in axes])

    def _read_strides(self, argument: int, number: int) -> Shape:
        """Return the strides of an operand as its node reads it: `where` first makes converted copies."""
        value, node, strides = self.values[argument], self.values[number], self.strides[argument]
        chosen = node.op.name == "where" and argument != self.trace.arguments[number][0]
        if chosen and value.dtype != node.dtype:
            return dense_like(Layout(value.shape, strides), node.dtype.itemsize).strides
        return strides


def _over(domain: Shape, shape: Shape, strides: Shape) -> Shape:
    """Return an operand's strides over a domain it broadcasts to; 0 along axes of length 1."""
    missing = len(domain) - len(shape)
    return (0,) * missing + tuple([0 if n == 1 else s for n, s in zip(shape, strides, strict=True)])

"""Planned evaluation: the nodes of a graph computed by kernels, into results laid out as NumPy's would be."""

from __future__ import annotations

from math import prod
from typing import Any

from ..base.layout import Layout, Shape, contiguous, dense_like, keep_order
from ..base.options import Settings
from ..graph.node import Node, View
from ..plan.program import REMEMBERED, Kernel, Plan, Trace
from ..storage.blob import TBlob
from ..storage.storage import Storage
from . import cuda as cuda_run
from . import engines

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
        # What is empty is packed whatever its strides are, but results have their order.
        self.packed = all([blob.is_packed and 0 not in blob.shape for blob in self.blobs.values()])
        self.strides: dict[int, Shape] = {}
        self.destination: dict[int, TBlob] = {}
        if into is not None:
            node, blob = into
            self.destination[trace.numbers[node]] = blob
            self.packed = self.packed and blob.is_packed
        self.packed = self.packed and not plan.strided
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
        if not self._run_together():
            self.largest = self.plan.largest(self.values)
            for kernel, finished in zip(self.plan.kernels, self.plan.last, strict=True):
                self._run(kernel)
                for number in finished:
                    del self.blobs[number]
        return self.blobs

    def _run_together(self) -> bool:
        """Run all kernels row by row, or strip by strip over columns, where the plan and the memory allow it."""
        run = engines.run_rows if self.plan.rows else engines.run_columns if self.goes_by_columns() else None
        if run is None:
            return False
        results = [n for kernel in self.plan.kernels for n in kernel.results if n in self.plan.kept]
        made = {number: self.result(number) for number in results}
        done = run(self.plan, self.values, {**self.blobs, **made}, self.limits)
        if done:
            self.blobs.update(made)
        return done

    def goes_by_columns(self) -> bool:
        """Return whether all kernels may run over columns; they write to given memory before all of it is read."""
        return self.plan.columns is not None and self.packed and not self.destination

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
        """Compute a node that no loop can: by the backend's own function on finished inputs, or as a view."""
        node = self.values[number]
        if type(node.op) is View:
            return node.op.of(self.blobs[self.trace.arguments[number][0]], **node.params)
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
        blob = TBlob(Storage(node.device, prod(node.shape) * itemsize), node.dtype, layout, node.device)
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
        if node.op.kind == "library" or name in ("argmax", "argmin"):
            return contiguous(node.shape, itemsize).strides
        if type(node.op) is View:
            (whole,) = self.trace.arguments[number]
            layout = Layout(self.values[whole].shape, self.strides[whole])
            return (node.op.layout(layout, itemsize, **node.params) or contiguous(node.shape, itemsize)).strides
        arguments = [a for a in self.trace.arguments[number] if a in self.strides]
        domain = self.values[arguments[0]].shape if node.op.kind == "reduction" else node.shape
        operands = [_over(domain, self.values[a].shape, self.strides[a]) for a in arguments]
        nothing = (0,) * len(domain) if 0 in domain else ()  # the strides of what NumPy computes element by element
        if nothing and node.op.kind == "elementwise":
            return nothing
        if name == "astype":
            return dense_like(Layout(domain, operands[0]), itemsize).strides
        if node.op.kind == "elementwise":
            return keep_order(domain, itemsize, operands)
        if name == "count_nonzero" and self.values[arguments[0]].dtype != bool:  # NumPy counts in a copy as booleans
            operands = [nothing or dense_like(Layout(domain, operands[0]), 1).strides]
        axes = node.params["axis"]
        axes = tuple(range(len(domain))) if axes is None else axes if isinstance(axes, tuple) else (axes,)
        strides = keep_order(domain, itemsize, operands, axes)
        return tuple([s for a, s in enumerate(strides) if node.params["keepdims"] or a not in axes])


def _over(domain: Shape, shape: Shape, strides: Shape) -> Shape:
    """Return an operand's strides over a domain it broadcasts to; 0 along axes of length 1."""
    missing = len(domain) - len(shape)
    return (0,) * missing + tuple([0 if n == 1 else s for n, s in zip(shape, strides, strict=True)])

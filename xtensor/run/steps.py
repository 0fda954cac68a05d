"""One step of a graph by the library's own function."""

from __future__ import annotations

from typing import Any

from ..base.profiling import noting, observers
from ..graph.node import Node, View
from ..graph.number import value_of
from ..storage.blob import TBlob
from ..storage.storage import Native


def step(node: Node) -> TBlob:
    """Compute one node, whose inputs are computed, by the backend's own function."""
    if type(node.op) is View:
        whole: Any = node.inputs[0]
        shown: Any = whole.blob if isinstance(whole, Node) else whole
        return node.op.of(shown, **node.params)
    backend = node.device.backend
    natives = [_operand(value) for value in node.inputs]
    compute = noting(backend.compute, backend, node.op.name) if observers else backend.compute
    result = compute(node.op.kernel(backend), *natives, **node.params)
    return TBlob.adopt(backend.asarray(result, node.dtype), node.device)


def _operand(value: Any) -> Native:
    """Return what a kernel takes for an input: a native array, or a Python scalar as it is."""
    if isinstance(value, Node):
        assert value.blob is not None
        return value.blob.native()
    return value.native() if isinstance(value, TBlob) else value_of(value)

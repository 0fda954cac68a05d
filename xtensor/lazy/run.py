"""Running pending nodes, and the barrier that lets pending readers finish before their bytes change."""

from __future__ import annotations

import threading
from typing import Any

from ..blob import Buffer, Native, TBlob
from .graph import Node, pending_below

# One evaluation at a time: two threads that force the same node must get the same bytes.
_evaluating = threading.RLock()


def force(value: Node | TBlob) -> TBlob:
    """Return a value's bytes, computing them if they are pending."""
    if isinstance(value, TBlob):
        return value
    if value.blob is None:
        evaluate([value])
    assert value.blob is not None
    return value.blob


def evaluate(nodes: list[Node]) -> None:
    """Compute pending nodes and everything they need, step by step."""
    with _evaluating:
        for node in pending_below(nodes):
            node.finish(_step(node))


def before_write(buffer: Buffer) -> None:
    """Evaluate every pending reader of a buffer, so that a write cannot change what they saw; count the write."""
    with _evaluating:
        evaluate(buffer.take_readers())
        buffer.version += 1


def _step(node: Node) -> TBlob:
    backend = node.device.backend
    natives = [_operand(value) for value in node.inputs]
    result = backend.call(node.op.kernel(backend), *natives, **node.params)
    return TBlob.adopt(backend.asarray(result), node.device)


def _operand(value: Any) -> Native:
    """Return what a kernel takes: a native array, or a Python scalar as it stands."""
    if isinstance(value, Node):
        assert value.blob is not None
        return value.blob.native()
    return value.native() if isinstance(value, TBlob) else value

"""Running pending nodes, and the barrier that lets pending readers finish before their bytes change."""

from __future__ import annotations

import weakref
from typing import Any

from ..blob import Buffer, Native, TBlob
from ..locks import fork_safe_lock
from ..options import settings
from .graph import Node, pending_below

# One evaluation at a time: two threads that force the same node must get the same bytes.
_evaluating = fork_safe_lock()


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
        todo = pending_below(nodes)[::-1]
        while todo:  # a step is let go as soon as it is done, so that its bytes can be
            node = todo.pop()
            node.finish(_step(node))


def before_write(buffer: Buffer) -> None:
    """Evaluate every pending reader of a buffer, so that a write cannot change what they saw; count the write."""
    with _evaluating:
        evaluate(buffer.readers.waiting())
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


# ---- bounds


class Ledger:
    """All pending nodes, held weakly, and the bytes of the buffers that they keep alive together."""

    def __init__(self) -> None:
        self._nodes: list[weakref.ref[Node]] = []
        self._bytes = 0
        self._room = 4096

    def enter(self, node: Node) -> None:
        """Take in a new node; evaluate it where its graph, and all where their buffers, outgrow the bounds."""
        limits = settings()
        with _evaluating:
            self._nodes.append(weakref.ref(node))
            self._bytes += sum(value.buffer.nbytes for value in node.inputs if isinstance(value, TBlob))
            if node.steps > limits.fuse_limit:
                evaluate([node])
            if self._bytes > limits.pinned_limit or len(self._nodes) > self._room:
                self._settle(limits.pinned_limit)

    def _settle(self, limit: int) -> None:
        """Count anew what is still pending, each buffer once, and evaluate everything if that is too much."""
        nodes = [node for reference in self._nodes if (node := reference()) is not None and node.blob is None]
        buffers = {id(v.buffer): v.buffer.nbytes for n in nodes for v in n.inputs if isinstance(v, TBlob)}
        self._bytes = sum(buffers.values())
        if self._bytes > limit:
            evaluate(nodes)
            nodes, self._bytes = [], 0
        self._nodes = [weakref.ref(node) for node in nodes]
        self._room = max(4096, 2 * len(nodes))


ledger = Ledger()

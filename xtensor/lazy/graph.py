"""Node: an operation that has been asked for and not yet computed.

A value is a Node or a TBlob. A node's inputs are values or Python scalars; once its bytes exist it drops them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Protocol

from ..blob import TBlob, pending
from ..devices import Backend, Device
from ..dtypes import DType
from ..layout import Shape


class Operation(Protocol):
    """What the lazy layer knows of an op: its name and the function that computes it on a backend."""

    @property
    def name(self) -> str: ...

    def kernel(self, backend: Backend) -> Callable[..., Any]: ...


class Node:
    """A pending operation.

    inputs: Nodes, TBlobs and Python scalars; () once evaluated.
    params: keyword arguments of the kernel (axis, keepdims, dtype ...).
    blob: the result, None while pending.
    steps, pinned: size of the pending graph below (shared parts counted once per use), and the bytes of the
        blobs it keeps alive.
    """

    __slots__ = (
        "__weakref__",
        "_readers",
        "blob",
        "device",
        "dtype",
        "inputs",
        "op",
        "params",
        "pinned",
        "shape",
        "steps",
    )

    def __init__(
        self,
        op: Operation,
        inputs: tuple[Any, ...],
        params: dict[str, Any],
        shape: Shape,
        dtype: DType,
        device: Device,
    ) -> None:
        self.op = op
        self.inputs = inputs
        self.params = params
        self.shape = shape
        self.dtype = dtype
        self.device = device
        self.blob: TBlob | None = None
        self._readers: list[weakref.ref[Node]] = []
        self.steps = 1
        self.pinned = 0
        for value in inputs:
            self._read(value)

    def __repr__(self) -> str:
        state = "pending" if self.blob is None else "evaluated"
        return f"Node({self.op.name}, shape={self.shape}, dtype={self.dtype}, {state})"

    def _read(self, value: Any) -> None:
        if isinstance(value, Node):
            value.add_reader(self)
            self.steps += value.steps
            self.pinned += value.pinned
        elif isinstance(value, TBlob):
            value.buffer.add_reader(self)
            self.pinned += value.nbytes

    def add_reader(self, node: Node) -> None:
        """Remember (weakly) a pending node that uses this one's result."""
        self._readers.append(weakref.ref(node))
        if self.blob is not None:  # another thread has just finished it
            self.blob.buffer.add_reader(node)

    def finish(self, blob: TBlob) -> None:
        """Take the result; who waited for this node now waits for the result's buffer, and the inputs are free."""
        self.blob = blob
        for reader in self._readers:
            if node := pending(reader):
                blob.buffer.add_reader(node)
        self._readers.clear()
        self.inputs = ()
        self.steps = self.pinned = 0


def pending_below(nodes: list[Node]) -> list[Node]:
    """Return the pending nodes these need, each after its inputs; walks without recursion."""
    order: list[Node] = []
    seen: set[Node] = set()
    stack: list[tuple[Node, bool]] = [(node, False) for node in reversed(nodes)]
    while stack:
        node, inputs_done = stack.pop()
        if inputs_done:
            order.append(node)
        elif node.blob is None and node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack.extend((value, False) for value in node.inputs if isinstance(value, Node))
    return order

"""Node: an operation that has been asked for and not yet computed.

A value is a Node or a TBlob. A node's inputs are values or Python scalars; once its bytes exist it drops them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ..blob import Readers, TBlob
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
    readers: the pending nodes that use this one.
    steps, pinned: size of the pending graph below, and the bytes of the buffers it keeps alive; shared parts are
        counted once per use.
    """

    __slots__ = (
        "__weakref__",
        "blob",
        "device",
        "dtype",
        "inputs",
        "op",
        "params",
        "pinned",
        "readers",
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
        self.readers = Readers()
        self.steps = 1
        self.pinned = 0
        for value in inputs:
            self._read(value)

    def __repr__(self) -> str:
        state = "pending" if self.blob is None else "evaluated"
        return f"Node({self.op.name}, shape={self.shape}, dtype={self.dtype}, {state})"

    def _read(self, value: Any) -> None:
        if isinstance(value, Node):
            value.readers.add(self)
            if value.blob is not None:  # another thread has just finished it
                value.blob.buffer.readers.add(self)
            self.steps += value.steps
            self.pinned += value.pinned
        elif isinstance(value, TBlob):
            value.buffer.readers.add(self)
            self.pinned += value.buffer.nbytes

    def finish(self, blob: TBlob) -> None:
        """Take the result; who waited for this node now waits for the result's buffer, and the inputs are free."""
        self.blob = blob
        for node in self.readers.waiting():
            blob.buffer.readers.add(node)
        self.readers = Readers()
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

"""Recording: the nodes of calls that are computed later.

Most calls have the structure of one that was recorded before, of which nothing needs to be checked again.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any
from weakref import ref

from .blob import TBlob
from .layout import Shape, broadcast_shapes
from .lazy.graph import NO_PARAMS, Node, count_up, node_of, signatures
from .lazy.run import ledger
from .options import Settings, settings
from .tensor import DIRECT_BELOW, Tensor

if TYPE_CHECKING:
    from .op import Op


def pair_recorded_before(op: Op, x1: Any, x2: Any) -> Tensor | None:
    """Record what `recorded_before` records of two operands of one shape, or one beside a float: nearly every call."""
    steps, held, widest, pending = 1, 0, 0, False
    value1: Any = x1
    value2: Any = x2
    mark1: Any = float
    mark2: Any = float
    like: Any = x1
    if type(x1) is Tensor:
        value1 = x1._value
        if type(value1) is Node and value1.blob is None:
            mark1, steps, pending = value1.signature, 1 + value1.steps, True
        else:
            value1 = read_later(x1)
            if value1 is None:
                return None
            mark1, held = x1._dtype.num, (value1._buffer or value1.buffer).nbytes
        widest = x1._dtype.itemsize
    elif type(x1) is not float:
        return None
    if type(x2) is Tensor:
        value2 = x2._value
        if type(value2) is Node and value2.blob is None:
            mark2, pending = value2.signature, True
            steps += value2.steps
        else:
            value2 = read_later(x2)
            if value2 is None:
                return None
            mark2 = x2._dtype.num
            held += (value2._buffer or value2.buffer).nbytes
        if widest and (like._shape != x2._shape or like._device is not x2._device):
            return None
        if x2._dtype.itemsize > widest:
            widest = x2._dtype.itemsize
        like = x2
    elif type(x2) is not float:
        return None
    signature = signatures.get((op, mark1, mark2), 0)
    dtype = op.recorded.get(signature)
    if dtype is None:
        return None
    limits, shape = settings(), like._shape
    if not worth_recording(limits, prod(shape) * widest, pending):
        return None
    return enter(node_of(op, (value1, value2), NO_PARAMS, shape, dtype, like._device, signature, steps, held), limits)


def recorded_before(op: Op, operands: tuple[Any, ...]) -> Tensor | None:
    """Record the commonest calls without further questions: large or pending tensors, and Python numbers, in a
    structure that the op has recorded before. None for any other call.
    """
    shape: Any = None
    device: Any = None
    pending, widest = False, 0
    inputs: list[Any] = []
    for x in operands:
        kind = type(x)
        if kind is Tensor:
            value = read_later(x)
            if value is None and x._small is not None and (pending or prod(shape or ()) * widest > DIRECT_BELOW):
                _ = x.blob.buffer  # of a small tensor beside a large one, made at its first use
                value = read_later(x)
            if value is None:
                return None
            pending = pending or type(value) is Node
            if shape is None:
                shape, device = x._shape, x._device
            elif x._device is not device:
                return None
            elif x._shape != shape:
                shape = _together(shape, x._shape)
                if shape is None:
                    return None
            widest = max(widest, x._dtype.itemsize)
            inputs.append(value)
        elif kind is float or (kind is int and 0 <= x <= 127):  # an integer that fits every dtype
            inputs.append(x)
        else:
            return None
    if shape is None:
        return None
    counted = count_up(op, inputs, {}, shape)
    dtype = op.recorded.get(counted[0])
    if dtype is None:
        return None
    limits = settings()
    if not worth_recording(limits, prod(shape) * widest, pending):
        return None
    return enter(node_of(op, tuple(inputs), NO_PARAMS, shape, dtype, device, *counted), limits)


def read_later(x: Tensor) -> Node | TBlob | None:
    """Return what a node can read of a tensor, the pending node behind it or its bytes; None where its memory may be
    written by others.
    """
    value: Any = x._value
    if type(value) is Node:
        if value.blob is None:
            return value
        value = x._value = value.blob
    elif value is None:  # known by its native array alone
        value = x.value
    if type(value) is TBlob:
        buffer = value._buffer  # memory whose buffer nobody asked for yet is our own
        if buffer is None or not buffer.shared:
            return value
    return None


def worth_recording(limits: Settings, nbytes: int, pending: bool) -> bool:
    """Return whether a call is to be recorded: asked for or worth it, and not too large for memory, which says so now.

    nbytes: the elements it goes over, in the widest of its operands' dtypes. pending: whether it waits for others.
    """
    if nbytes > limits.pinned_limit or limits.lazy == "never":
        return False
    return pending or nbytes > DIRECT_BELOW or limits.lazy == "always"


def enter(node: Node, limits: Settings) -> Tensor:
    """Return a tensor over a new node, evaluated at once where the graph has grown to its bounds."""
    tensor = Tensor()
    node.face = ref(tensor)
    tensor._value = node
    tensor._small = tensor._step = None
    tensor._shape = node.shape
    tensor._dtype = node.dtype
    tensor._device = node.device
    if node.held or node.steps > limits.fuse_limit:
        ledger.enter(node, limits)
    return tensor


@lru_cache(maxsize=1024)
def _together(shape: Shape, other: Shape) -> Shape | None:
    """Return the shape two shapes broadcast to, None where they do not."""
    try:
        return broadcast_shapes(shape, other)
    except ValueError:
        return None

"""Recording: the nodes of calls that are computed later.

Most calls have the structure of one that was recorded before, so that nothing needs to be checked again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from functools import cache, lru_cache
from math import prod
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np

from ..base.dtypes import DType, is_generated
from ..base.layout import Shape, broadcast_shapes
from ..base.options import Settings, irreproducible, settings
from ..graph.node import COMBINING, NO_PARAMS, NOTHING_PENDING, Node, Part, count_up, node_of, result_dtypes, signatures
from ..plan.costs import DIRECT_BELOW, DIRECT_BYTES
from ..run.executor import evaluate, ledger, seen_later
from ..storage.blob import TBlob
from ..storage.storage import Native, Storage
from ..tensor.face import CPU_DEVICE, Tensor, face

if TYPE_CHECKING:
    from ..devices import Device
    from .op import Op


def _mark_of(op: Op, number: Any) -> Any:
    """Return the entry of a Python number in a structure; None where a dtype might not hold it, and for others."""
    kind = type(number)
    if kind is not float and (kind is not int or not 0 <= number <= 127):
        return None
    return (kind, number) if op.name == "pow" else kind


def recorded_before(op: Op, operands: tuple[Any, ...]) -> Tensor | None:
    """Record the commonest calls without further checks: of large or pending tensors, and Python numbers, in a
    structure that the op has recorded before. None for any other call.
    """
    shape: Any = None
    device: Any = None
    same, pending, exposed = True, False, False
    first, held, widest = NOTHING_PENDING, 0, 0
    structure: list[Any] = [op]
    inputs: list[Any] = []
    for x in operands:
        value: Any = x
        if type(x) is Tensor:
            value = x._content
            if type(value) is Node and value.blob is None:
                pending = True
                if value.first < first:
                    first = value.first
                structure.append(value.signature)
            else:
                value = _read(x)
                if value is None:
                    return None
                owner = value._owner or value.owner
                if owner.shared and owner.is_exposed():
                    exposed = True
                held += owner.nbytes
                structure.append(value.dtype.num)
            if shape is None:
                shape, device = value.shape, value.device
            elif value.device is not device:
                return None
            elif value.shape != shape:
                same, shape = False, _together(shape, value.shape)
                if shape is None:
                    return None
            if value.dtype.itemsize > widest:
                widest = value.dtype.itemsize
        else:
            mark = _mark_of(op, x)
            if mark is None:
                return None
            structure.append(mark)
        inputs.append(value)
    if shape is None:
        return None
    if same:
        signature = signatures.get(tuple(structure), 0)
    else:
        signature, first, held = count_up(op, inputs, NO_PARAMS, shape)
    dtype = result_dtypes.get(signature)
    if dtype is None:
        return None
    limits = settings()
    nbytes = prod(shape) * widest
    pending = pending or (op.slow != "" and pays_to_wait(op, dtype, nbytes, device))
    if not worth_recording(limits, nbytes, pending, op.most(device)) or (limits.reproducible and op.name in EXACT):
        return None
    if exposed and not pays_at_once(limits, nbytes, op.launched, pending):
        return None
    return enter(node_of(op, tuple(inputs), NO_PARAMS, shape, dtype, device, signature, first, held), limits)


def read_later(x: Tensor) -> Node | TBlob | None:
    """Return what a node can read for a tensor, the pending node behind it or its blob; None where others may write to
    its memory.
    """
    value = _read(x)
    if type(value) is TBlob:
        owner = value._owner  # memory whose owner nobody has asked for yet is not shared
        if owner is not None and owner.is_exposed():
            return None
    return value


def _read(x: Tensor) -> Node | TBlob | None:
    """Return the pending node behind a tensor, or its blob; None where it is a part of something pending."""
    value: Any = x.value
    if type(value) is Node:
        if value.blob is None:
            return value
        value = x._content = value.blob
    return value if type(value) is TBlob else None


def native_up_to(x: Tensor, most: int) -> Native | None:
    """Return the NumPy array of a tensor that is computed, on the CPU and of at most so many bytes; None for others."""
    data = x._content
    if type(data) is np.ndarray:
        return data if data.nbytes <= most else None
    if prod(data.shape) * data.dtype.itemsize > most:  # before an array is made for a blob
        return None
    blob = data if type(data) is TBlob else data.blob
    if blob is None or blob.device is not CPU_DEVICE:
        return None
    native = x.thin() if x._step is None else None
    return blob.native() if native is None else native


def is_node(x: Tensor) -> bool:
    """Return whether a tensor is a pending node, which need not be computed now if its reader is recorded."""
    data = x._content
    return type(data) is Node and data.blob is None


def others_write(operands: Iterable[Any]) -> bool:
    """Return whether one of the operands is computed, in memory that others can write to."""
    for x in operands:
        if type(x) is Tensor:
            data: Any = x._content
            owner = data._owner if type(data) is TBlob else x._owner if type(data) is np.ndarray else None
            if owner is not None and owner.shared and owner.is_exposed():
                return True
    return False


# The latest arrays that were computed at once because others can write to operands: what is computed from
# these is computed at once, too, as it will probably be combined with such operands again, in the memory of this one.
latest_at_once: deque[ref[Native]] = deque(maxlen=4)


def follows_at_once(operands: Iterable[Any]) -> bool:
    """Return whether an operand is one of these arrays."""
    arrays = [array() for array in tuple(latest_at_once)]  # other threads may append
    for x in operands:
        if type(x) is Tensor and type(x._content) is np.ndarray:
            for array in arrays:
                if array is x._content:
                    return True
    return False


def exposed_memory(operands: Iterable[Any]) -> list[Storage]:
    """Return the memory of operands that others can write to: its readers are computed before the call returns.

    Parts of pending tensors become nodes of views, where everything is recorded.
    """
    found = []
    for x in operands:
        if type(x) is Tensor:
            if type(x._content) is Part:
                record_part(x)
            if not is_node(x):
                owner = x.owner
                if owner.shared and owner.is_exposed():
                    found.append(owner)
    return found


def record_part(x: Tensor) -> None:
    """Make a part of a pending tensor a node of a view, for others to read later, where everything is recorded."""
    part: Any = x._content
    later = seen_later(part.whole, "index", part.key)
    if later is not None:
        x._content, later.face = later, ref(x)


# Functions that generated code lacks for floats, and every library computes to the same bits. Where results are to be
# reproducible they are not fused with other steps, which the library would compute as well then.
EXACT = frozenset(("nextafter",))

# Reductions whose results do not depend on rounding.
_SEARCHES = ("argmax", "argmin")


def check_reproducible(name: str, operands: Collection[Any]) -> None:
    """Raise NotImplementedError for an elementwise function or reduction that generated code lacks.

    operands: Nodes, TBlobs or tensors, the result among them.
    """
    if name in _SEARCHES or any(0 in one.shape for one in operands):
        return
    for one in operands:
        if one.dtype.kind in "fc" and (not is_generated(one.dtype) or (one.dtype.kind == "c" and _is_librarys(name))):
            raise irreproducible(f"there is no {name} of {one.dtype} in generated code")


def _is_librarys(name: str) -> bool:
    """Return whether generated code computes a function for real numbers only."""
    from ..codegen.cpu.complex import PRIMITIVES  # loaded late, as all generated code is

    return name not in PRIMITIVES and name not in ("astype", "mean", "pow", *COMBINING.keys() - {"max", "min"})


def worth_recording(limits: Settings, nbytes: int, pending: bool, below: int = DIRECT_BELOW) -> bool:
    """Return whether a call is to be recorded: asked for or worth it, and no larger than the options allow.

    nbytes: of all its elements, in the widest of its operands' dtypes. pending: whether an operand is pending. below:
    the bytes up to which the library is cheaper.
    """
    if limits.reproducible:
        return True
    if limits.lazy == "never" or (limits.pinned_limit is not None and nbytes > limits.pinned_limit):
        return False
    return pending or nbytes > below or limits.lazy == "always"


def pays_at_once(limits: Settings, nbytes: int, most: int, pending: bool) -> bool:
    """Return whether a reader of memory that others can write to is worth a launch before the call returns.

    most: the bytes up to which it is not, unless an operand is pending.
    """
    return limits.lazy == "always" or (limits.lazy == "auto" and (pending or nbytes > most))


def pays_to_wait(op: Op, dtype: DType, nbytes: int, device: Device) -> bool:
    """Return whether the CPU's library is so slow for this dtype that generated code pays even for small results."""
    return dtype.char in op.slow and nbytes > DIRECT_BYTES and device is CPU_DEVICE and can_generate()


@cache
def can_generate() -> bool:
    """Return whether the compiler is installed."""
    from importlib.util import find_spec  # not at import, where it is not needed

    return find_spec("llvmlite") is not None


def enter(node: Node, limits: Settings) -> Tensor:
    """Return a tensor over a new node, evaluated at once where it reads memory that others can write to, or the graph
    has reached its size limit. Raises NotImplementedError where results must be reproducible and cannot be.

    Whoever shares memory marks it first and then evaluates its readers, so this check comes after the node exists.
    """
    if limits.reproducible and node.op.kind in ("elementwise", "reduction") and node.device is CPU_DEVICE:
        check_reproducible(node.op.name, [x for x in (node, *node.inputs) if isinstance(x, (Node, TBlob))])
    tensor = face(node)
    if node.held:
        for value in node.inputs:
            if type(value) is TBlob:
                owner = value._owner or value.owner
                if owner.shared and owner.is_exposed():
                    evaluate([node])
                    return tensor
    if node.held or node.serial - node.first >= limits.fuse_limit:
        ledger.enter(node, limits)
    return tensor


@lru_cache(maxsize=1024)
def _together(shape: Shape, other: Shape) -> Shape | None:
    """Return the shape that two shapes broadcast to, None where they do not."""
    try:
        return broadcast_shapes(shape, other)
    except ValueError:
        return None

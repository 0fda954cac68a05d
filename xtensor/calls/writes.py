"""Writing into existing memory: `x += y`, `x[...] = y`, in one pass with the pending steps of the operand.

As with mshadow's savers the destination is known, and results go straight into it. Pending readers of that memory are
evaluated first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from sys import getrefcount
from typing import Any, cast
from weakref import ref

import numpy as np

from ..autograd.history import refuse_leaf, written
from ..autograd.rules import xt
from ..autograd.tape import OFF, Leaf, active, recording, stacked_operand, step_of, steps_of
from ..base.dtypes import DType
from ..base.errors import StrangerError, expected, prefixed
from ..base.layout import Shape
from ..base.options import settings, thin_closed
from ..base.profiling import noting, observers
from ..devices.cpu import CPU
from ..graph.node import NO_PARAMS, Node, node_of, result_dtypes
from ..graph.number import type_of
from ..plan.costs import CHEAP, FAST_LAUNCH_PAYS, LARGE_UPDATE
from ..run.executor import before_write, is_new, opened, write, write_again, write_apart
from ..storage.blob import TBlob
from ..storage.storage import Native, watchers, watching
from ..tensor.face import CPU_DEVICE, Tensor
from ..tensor.operands import SCALARS, Operand, broadcast, common_device, without_operators
from ..tensor.scalars import valued
from .elsewhere import update_known
from .library import native_of
from .masked import apply_selected, is_selection, selection
from .op import CAST, Op, apply, fits, operand_of, value_of
from .record import check_reproducible, enter, exposed_memory, is_node, others_write, recorded_before
from .temporaries import is_temporary, references


def update(target: Tensor, op: Op, other: Any) -> Any:
    """Compute `target = op(target, other)` into the target's own memory, as `+=` and its kin do.

    Every pending reader of that memory is evaluated first. Raises ValueError for a read-only target or an
    operand that broadcasts beyond its shape, TypeError for one whose dtype does not fit.
    """
    name, other = op.name, stacked_operand(other)
    if not watchers and _update_quickly(target, op, other):
        return target
    if watchers and is_selection(target) and _update_selected(target, op, other):
        return target
    operand = _fitting(target, op, other)
    if operand is NotImplemented:
        return NotImplemented
    device, kind = target.device, _kind(operand)
    if settings().reproducible and device is CPU_DEVICE:
        check_reproducible(name, [x for x in (target, operand) if isinstance(x, Tensor)])
    if active[0] and steps_of((target, operand)) is not None:
        _update_on_tape(op, target, operand)
        return target
    if watchers and watching() is not None:
        _update_captured(op, target, operand)
        return target
    if _update_fused(op, target, operand, kind):
        return target
    if isinstance(operand, Tensor):
        operand.evaluate()
    backend = device.backend
    kernel = op.kernel(backend)
    call = noting(backend.call, backend, name) if observers else backend.call
    try:
        if backend is not CPU and not (isinstance(operand, Tensor) or fits(operand, (target.dtype,))):
            CPU.call(op.kernel(CPU), np.ones(1, target.dtype), operand)  # which raises the error
        if settings().reproducible and name == "pow":  # the one operator whose bits are the library's own
            backend.assign(writable(target, name), ..., native_of(apply(op, (target, operand))))
        elif hasattr(kernel, "types") and not op.fails_on_values(target.dtype, kind):  # a ufunc, NumPy's or CuPy's
            native = writable(target, name)
            call(kernel, native, native_of(operand), out=native, casting="same_kind")
        else:  # into new memory first, as a value may be refused half way
            result = call(kernel, target.native(), native_of(operand))
            backend.assign(writable(target, name), ..., result)
    except (TypeError, ValueError, OverflowError) as error:
        raise prefixed(name, error) from None
    return target


def _update_selected(target: Tensor, op: Op, other: Any) -> bool:
    """Update elements that a mask selects, which nobody else holds yet; return whether that was possible."""
    result = apply_selected(op, (target, other), apply)
    if result is None or not np.can_cast(result.dtype, target.dtype, casting="same_kind"):
        return False
    value = result._content.value
    if value.dtype != target.dtype:
        if result._content.step is not None:
            return False
        value = cast_now(value, target.dtype)
    updated = selection(value, result._content.mask)
    target._content, target._step = updated._content, updated._step
    return True


def _update_quickly(target: Tensor, op: Op, other: Any) -> bool:
    """Update a target in a way that needs few checks; return whether that was possible, else nothing is done."""
    if active[0] and steps_of((target, other)) is not None:
        return False
    near = target.device is CPU_DEVICE
    pending = type(other) is Tensor and is_node(other)
    if target.nbytes >= _large(op, pending) or (pending and not (near and _is_cheap_aside(target))):
        return _update_again(target, op, other)
    if thin_closed[0]:
        return False
    return _update_at_once(target, op, other) if near else update_known(op, target, other)


def _large(op: Op, pending: bool) -> int:
    """Return the bytes from which on a target is updated by the engine. pending: whether the operand is pending."""
    return FAST_LAUNCH_PAYS if not pending and op.name in CHEAP else LARGE_UPDATE


def _update_at_once(target: Tensor, op: Op, other: Any) -> bool:
    """Update a target by the library's own function, where both operands are computed; return whether that was done."""
    if type(other) is Tensor and other.device is not target.device:
        return False
    native, kernel, own = _at_hand(other), op.cpu_kernel, _at_hand(target)
    if native is None or own is None or not isinstance(kernel, np.ufunc) or not own.flags.writeable:
        return False
    if op.fails_on_values(target.dtype, other.dtype if type(other) is Tensor else type(other)):
        return False
    memory = writable(target, op.name)
    try:
        CPU.call(kernel, memory, native, out=memory, casting="same_kind")
    except (TypeError, ValueError, OverflowError):  # refused before anything is written
        return False
    return True


def _at_hand(x: Any) -> Any:
    """Return a number, or the NumPy array of a tensor that is computed; None for anything else."""
    if type(x) is not Tensor:
        return x if type(x) in SCALARS else None
    native = x.thin() if type(x._content) is not Node else computed_aside(x)
    if native is not None or is_node(x):
        return native
    value: Any = x._content
    return value.native() if type(value) is TBlob and value.device.backend is CPU else None


def _is_cheap_aside(target: Tensor) -> bool:
    """Return whether it costs less to compute a pending operand into its own memory than into the target: small views
    are not worth being described for kernels, as they are new each time.
    """
    return target._blob is None and type(target._content) is np.ndarray and not thin_closed[0]


def computed_aside(x: Tensor) -> Native | None:
    """Return the array of a pending tensor, computed now if it is small and on the CPU; None for others."""
    if x.nbytes < LARGE_UPDATE and x.device is CPU_DEVICE:
        x.evaluate()
    return x.thin()


def _update_again(target: Tensor, op: Op, other: Any) -> bool:
    """Update a target in one pass as before; return whether that was possible, else nothing is done."""
    blob: Any = target.value
    if type(blob) is not TBlob or not blob.writeable or blob.owner.is_exposed():
        return False
    result = None if others_write((other,)) else recorded_before(op, (target, other))
    if result is None or result.dtype != target.dtype or result.shape != target.shape:
        return False
    passing: Any = other._content if type(other) is Tensor and is_temporary(getrefcount(other), _HELD_AGAIN) else None
    return write_again(cast(Node, result._content), blob, passing if type(passing) is Node else None)


def _update_on_tape(op: Op, target: Tensor, operand: Operand) -> None:
    """Compute the new values of a target, with their step on the tape, and write them into its memory.

    Where nobody else can see that memory the target takes over the result's memory instead.
    """
    refuse_leaf(target, op.name)
    result = apply(op, (target, operand))
    if result.dtype != target.dtype:
        result = xt.astype(result, target.dtype)
    if _is_alone(target):
        _move(target, result)
        target._step = result._step
        return
    with recording(OFF):
        if watchers and watching() is not None:
            assign_captured(target, result, op.name)
        elif not (result.is_pending and store(target, result, op.name)):
            target.device.backend.assign(writable(target, op.name), ..., result.native())
    written(target, step_of(result))


def changed_value(x: Tensor, op: Op, other: Any) -> Any:
    """Return the result of `x = op(x, other)` in place for a value: a new one of its dtype.

    Where that does not fit into x's shape or dtype, it is NotImplemented: Python then calls the operator itself, as it
    does for NumPy's scalars, which have none in place.
    """
    operand = _taken(x, op, other)
    if operand is NotImplemented or broadcast(op.name, (x, operand)):
        return NotImplemented
    if not can_cast(op.dtype(x.dtype, _kind(operand)), x.dtype):
        return NotImplemented
    result = apply(op, (x, operand))
    return valued(result if result.dtype == x.dtype else xt.astype(result, x.dtype))


def _fitting(target: Tensor, op: Op, other: Any) -> Any:
    """Return the operand of an update, NotImplemented for a stranger; raises where dtype or shape do not fit."""
    name, operand = op.name, _taken(target, op, other)
    if operand is NotImplemented:
        return NotImplemented
    check_cast(op.dtype(target.dtype, _kind(operand)), target.dtype, name)
    if broadcast(name, (target, operand)) != target.shape:
        raise ValueError(expected(name, "x2", f"broadcast to x1's shape {target.shape}", f"shape {shape_of(operand)}"))
    return operand


def _taken(target: Tensor, op: Op, other: Any) -> Any:
    """Return the operand of an update, on the target's device; NotImplemented for a stranger."""
    try:
        operand = operand_of(op, other, "x2")
    except StrangerError:
        plain = without_operators(other)
        if plain is not other:
            return _taken(target, op, plain)
        if isinstance(other, np.ndarray):  # `x = x + other` would not be in place
            raise
        return NotImplemented
    common_device(op.name, (target, operand))
    return operand


def _kind(operand: Operand) -> Any:
    """Return the dtype of a tensor, the type of a Python number."""
    return operand.dtype if isinstance(operand, Tensor) else type_of(operand)


def _update_captured(op: Op, target: Tensor, operand: Operand) -> None:
    """Record the new values of a target as steps that can be captured. A target that nobody has seen, as `x[i, j]` in
    `x[i, j] += y`, takes over the result.
    """
    result = apply(op, (target, operand))
    if is_node(target) and _is_alone(target) and is_node(result) and result.dtype == target.dtype:
        _move(target, result)
    else:
        assign_captured(target, result, op.name)


def _move(target: Tensor, result: Tensor) -> None:
    """Let a target take over a result's value; its own is dropped."""
    if type(target._content) is Node:
        target._content.face = None
    value = target._content = result.value
    if type(value) is Node:
        value.face = ref(target)
    target._owner = target._blob = None


def _is_alone(target: Tensor) -> bool:
    """Return whether nobody else can see a target's memory: it is pending, or new and never asked for."""
    value: Any = target._content
    if type(value) is Node and value.blob is None:
        return not value.is_seen() and value.face is not None and value.face() is target
    computed = target._step is not None and type(target._step) is not Leaf
    return type(value) is TBlob and value._owner is None and value.writeable and computed


def _in_one_pass(target: Tensor, node: Node) -> bool:
    """Return whether to compute a node that waits for others straight into a target."""
    if target.nbytes >= LARGE_UPDATE or settings().lazy == "always" or target.device.backend is not CPU:
        return True
    return is_new(node)


def _update_fused(op: Op, target: Tensor, operand: Operand, kind: Any) -> bool:
    """Update a target in one pass with the pending steps of its operand; return whether that was possible."""
    pending = isinstance(operand, Tensor) and is_node(operand)
    if settings().lazy == "never" or op.fails_on_values(target.dtype, kind) or target.blob.writeable is False:
        return False
    if not pending and target.nbytes < _large(op, pending):
        return False
    if exposed_memory((operand,)):  # which may be the target's memory, through another buffer
        return False
    value = value_of(operand) if isinstance(operand, Tensor) else operand
    if not isinstance(operand, Tensor) and not fits(operand, (target.dtype, kind)):
        return False
    node = node_of(op, (target.blob, value), NO_PARAMS, target.shape, op.dtype(target.dtype, kind), target.device)
    result_dtypes[node.signature] = node.dtype
    return _write(node, target, operand, _HELD_BY_UPDATE)


# The references to an operand that nothing but the statement `x += operand`, or `x[...] = operand`, holds; of the
# latter also in a captured function.
_HELD_AGAIN, _HELD_BY_UPDATE = references(6, 3, 3), references(7, 4, 4)
_HELD_BY_ASSIGNMENT, _HELD_WHEN_CAPTURED = references(8, 4, 3), references(11, 4, 3)


def store(target: Tensor, operand: Tensor, function: str, held: int = _HELD_BY_ASSIGNMENT) -> bool:
    """Compute a pending value straight into a target of its shape; return whether that was possible.

    held: references to the operand that the statement itself holds. Raises ValueError for a read-only target.
    """
    writable_blob(target, function)
    value = operand.value
    if not isinstance(value, Node) or value.blob is not None or value.shape != target.shape:
        return False
    node = node_of(CAST, (value,), {"dtype": target.dtype}, value.shape, target.dtype, value.device)
    return _write(node, target, operand, held)


def assign_captured(target: Tensor, value: Tensor, function: str) -> None:
    """Assign a value of its shape to a target, as steps that can be captured.

    Raises ValueError for a read-only target.
    """
    writable_blob(target, function)
    if not is_node(value) or cast(Node, value._content).op.kind == "view":  # of memory that may be about to be written
        value = cast_now(value)
    if store(target, value, function, _HELD_WHEN_CAPTURED):
        return
    read = value.evaluate().blob
    write_apart(node_of(CAST, (read,), {"dtype": target.dtype}, read.shape, target.dtype, read.device), target.blob)


def write_captured(capture: Any, function: Callable[..., Any], tensors: Sequence[Tensor], name: str) -> None:
    """Have a function of native arrays write into the first tensor, as a step of the function that is being captured,
    if it still is.

    Raises ValueError for a read-only target, and what the function raises.
    """
    target, backend = tensors[0], tensors[0].device.backend
    blobs = [x.blob for x in tensors]
    writable_blob(target, name)
    before_write(target.owner)
    call = noting(backend.call, backend, name) if observers else backend.call
    with capture.inside():
        try:
            call(function, *[blob.shallow_copy().native() for blob in blobs])
        except (IndexError, ValueError, TypeError, OverflowError) as error:
            capture.refuse_call(name)  # the function may catch it, and go on by values
            raise prefixed("index" if isinstance(error, IndexError) else name, error) from None
        finally:
            target.owner.changes += 1
    capture.called(function, blobs, (), blobs[:1])


def cast_now(x: Tensor, dtype: DType | None = None) -> Tensor:
    """Return a copy of a tensor, of another dtype if one is given, recorded whatever its size."""
    dtype = dtype or x.dtype
    return enter(node_of(CAST, (value_of(x),), {"dtype": dtype}, x.shape, dtype, x.device), settings())


def _write(node: Node, target: Tensor, operand: Operand, held: int) -> bool:
    """Compute a node into a target, converted to its dtype.

    An operand that nothing but the statement holds need not be kept.
    """
    if node.dtype != target.dtype:
        node = node_of(CAST, (node,), {"dtype": target.dtype}, node.shape, target.dtype, node.device)
    is_dropped = isinstance(operand, Tensor) and is_temporary(getrefcount(operand), held)
    passing: Any = cast(Tensor, operand).value if is_dropped else None
    passing = passing if isinstance(passing, Node) else None
    if write_again(node, target.blob, passing):
        return True
    return _in_one_pass(target, node) and write(node, target.blob, passing)


def writable(target: Tensor, function: str) -> Native:
    """Return the native array to write a tensor's elements into, after its pending readers were evaluated; callers drop
    it as soon as they have written.

    Raises ValueError for a read-only tensor.
    """
    if not target.is_writeable:
        raise ValueError(expected(function, "the target", "be writable", "a read-only view"))
    return opened(target.blob)


def writable_blob(target: Tensor, function: str) -> TBlob:
    """Return the blob of a tensor; raises ValueError where it must not be written."""
    blob = target.blob
    if not blob.writeable:
        raise ValueError(expected(function, "the target", "be writable", "a read-only view"))
    return blob


def check_cast(source: DType, target: DType, function: str) -> None:
    """Raise TypeError where an in-place result would lose its kind (float into int, complex into float)."""
    if not can_cast(source, target):
        raise TypeError(expected(function, "the result's dtype", f"fit into x1's {target}", source))


def can_cast(source: DType, target: DType) -> bool:
    """Return whether an in-place result keeps its kind."""
    return np.can_cast(source, target, casting="same_kind")


def shape_of(operand: Operand) -> Shape:
    return operand.shape if isinstance(operand, Tensor) else ()

"""Small calls on other devices than the CPU: the library's function on arrays that are there, and nothing asked twice.

What a call like it came to is remembered by its operands' dtypes: which function computes it, and what dtype the CPU
says comes out. All that was not asked before, or that the library refuses, goes the long way, which says what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ..base.dtypes import DType
from ..base.errors import REFUSED
from ..base.profiling import observers
from ..graph.node import Node
from ..plan.costs import DIRECT_BELOW, DIRECT_BYTES
from ..plan.program import COMBINING
from ..run.executor import before_write
from ..storage.blob import TBlob
from ..storage.storage import Native
from ..tensor.face import CPU_DEVICE, Tensor, face, valued

if TYPE_CHECKING:
    from ..devices import Device
    from ..run.cuda_call import Call
    from .op import Op

# Calls of an op that are remembered at most.
MOST = 1024

_PLAIN = (int, bool, float, tuple, type(None))


class Known(NamedTuple):
    """What computes a call, on native arrays and numbers, and what comes out. launch: as a kernel of one step, where
    there is generated code.
    """

    kernel: Callable[..., Native]
    dtype: DType
    launch: Call | None = None


def blob_there(x: Tensor) -> TBlob | None:
    """Return what is behind a tensor that is computed and on another device than the CPU; None for others."""
    blob: Any = x._data
    if type(blob) is Node and blob.blob is not None:
        blob = x._data = blob.blob
    return None if type(blob) is not TBlob or blob.device is CPU_DEVICE or observers else blob


def small_blob(x: Tensor) -> TBlob | None:
    """The same of a tensor that is small."""
    blob = blob_there(x)
    return blob if blob is not None and blob.nbytes <= DIRECT_BELOW else None


def call_known(op: Op, operands: tuple[Any, ...]) -> Tensor | None:
    """Compute an elementwise call of small tensors on another device than the CPU; None for any other."""
    device: Any = None
    key, natives = list[Any](), list[Any]()
    for x in operands:
        kind = type(x)
        if kind is Tensor:
            blob: Any = x._data
            if device is None or type(blob) is not TBlob:
                blob = blob_there(x)
                if blob is None:
                    return None
                device = device or blob.device
            if blob.device is not device:
                return None
            native = blob._native
            if native is None:
                native = blob.native()
            nbytes = native.nbytes
            if nbytes > DIRECT_BELOW or (nbytes > DIRECT_BYTES and op.slow):  # which may pay to be recorded
                return None
            key.append(blob.dtype.num)
            natives.append(native)
        elif _is_plain(x):
            key.append(kind)
            natives.append(x)
        else:
            return None
    if device is None:
        return None
    known = op.known_there.get((device.backend, *key))
    return None if known is None else _called(known, natives, device)


def update_known(op: Op, target: Tensor, other: Any) -> bool:
    """Compute `target = op(target, other)` into the memory of a small tensor on another device than the CPU; return
    whether there was a kernel for it, else nothing is done.
    """
    blob, value = small_blob(target), other
    if blob is None or not blob.writeable or blob.owner.shared:
        return False
    native = blob.native()
    if type(other) is Tensor:
        source = small_blob(other)
        if source is None or source.device is not blob.device or source.owner.shared:
            return False
        value = source.native()
        if source.owner is blob.owner and (value.data.ptr, value.shape, value.strides) != (
            native.data.ptr,
            native.shape,
            native.strides,
        ):
            return False
    known = _known_of(op, (target, other), blob.device)
    if known is None or known.launch is None or known.dtype != blob.dtype:
        return False
    before_write(blob.owner)
    return blob.device.backend.call(known.launch, (native, value), native) is not None


def _known_of(op: Op, operands: tuple[Any, ...], device: Device) -> Known | None:
    """Return what computes a call of tensors and plain numbers, remembered or found out; None where nothing does."""
    if not all([_is_plain(x) for x in operands]):
        return None
    key = (device.backend, *[x.dtype.num if type(x) is Tensor else type(x) for x in operands])
    if key not in op.known_there:
        try:
            dtype = op.dtype(*[x.dtype if type(x) is Tensor else type(x) for x in operands])
        except TypeError:
            return None
        remember_call(op, operands, dtype, device)
    return op.known_there[key]


def _is_plain(x: Any) -> bool:
    """Return whether an operand is a tensor, or a number that any dtype holds."""
    return type(x) is Tensor or type(x) is float or (type(x) is int and 0 <= x <= 127)


def reduce_known(op: Op, x: Any, params: dict[str, Any]) -> Tensor | None:
    """Compute a reduction of a small tensor on another device than the CPU; None for any other."""
    blob = small_blob(x) if type(x) is Tensor else None
    if blob is None:
        return None
    try:
        known = op.known_there.get((blob.device.backend, blob.shape, blob.dtype.num, *map(_told, params.values())))
    except TypeError:  # a parameter that does not hash
        return None
    return None if known is None else _called(known, [blob.native()], blob.device)


def _called(known: Known, natives: list[Any], device: Device) -> Tensor | None:
    backend = device.backend
    try:
        native = None if known.launch is None else backend.call(known.launch, natives)
        if native is None:
            native = backend.compute(known.kernel, *natives)
    except REFUSED:
        return None
    if native.dtype != known.dtype:
        native = backend.astype(native, known.dtype)
    return valued(face(TBlob.of(None, native, device, writeable=True)))


def view_there(x: Tensor, key: Any) -> Tensor | None:
    """Return the view that a basic key selects of a tensor on another device than the CPU, as its library makes it;
    None for any other tensor, and for a key that the library refuses.
    """
    blob = blob_there(x)
    if blob is None or x._step is not None or blob.constant or blob.fixed:
        return None
    try:
        native = blob.native()[key]
    except REFUSED:
        return None
    return face(TBlob.of(blob.owner, native, blob.device, writeable=blob.writeable))


def assign_there(x: Tensor, key: Any, value: Any) -> bool:
    """Assign a number, or what lies in other memory, to a basic key of a tensor on another device than the CPU, by one
    call of its library; return whether it took the call. What it refuses the long way says.
    """
    blob = blob_there(x)
    if blob is None or not blob.writeable or blob.owner.shared:
        return False
    given, kind = value, type(value)
    if kind is Tensor:
        source = blob_there(value)
        if source is None or source.device is not blob.device or source.dtype != blob.dtype:
            return False
        given = source.native()
        if source is blob or source.owner.shared or (source.owner is blob.owner and not _apart(given, blob, key)):
            return False
    elif not (kind is float and blob.dtype.kind == "f" and value) and not (
        kind is int and 0 <= value <= 127 and blob.dtype.kind in "iuf"
    ):  # -0.0 and what may not fit are for the long way
        return False
    native = blob.native()
    before_write(blob.owner)
    try:
        blob.device.backend.call(native.__setitem__, key, given)
    except REFUSED:
        return False
    return True


def _apart(given: Native, blob: TBlob, key: Any) -> bool:
    """Return whether an array in C order lies before or behind all that a basic key selects of a blob, in C order too."""
    try:
        target = blob.native()[key]
    except REFUSED:
        return False
    if not (given._c_contiguous and target._c_contiguous):
        return False
    begin, other = given.data.ptr, target.data.ptr
    return begin + given.nbytes <= other or other + target.nbytes <= begin


def _told(value: Any) -> Any:
    """Return a parameter with its type: 1 is equal to True, which not every parameter may be."""
    return type(value), value


def remember_call(op: Op, operands: tuple[Any, ...], dtype: DType, device: Device) -> None:
    """Remember what computes an elementwise call on another device."""
    from ..run.cuda_call import mapping  # the code generator comes with it

    key = [x.dtype.num if type(x) is Tensor else type(x) for x in operands]
    kinds = [x.dtype if type(x) is Tensor else type(x) for x in operands]
    launch = None
    if op.name != "pow" or type(operands[1]) is Tensor:  # a small power is code of its own
        with suppress(TypeError):  # NumPy's function takes no such operands in its loop
            launch = mapping(op, kinds, dtype, device.backend)
    _remember(op, (device.backend, *key), Known(op.kernel(device.backend), dtype, launch))


def remember_reduction(op: Op, x: Tensor, given: tuple[Any, ...], params: dict[str, Any], dtype: DType) -> None:
    """Remember what a reduction on another device came to. given: its parameters as they were asked for."""
    if all(type(value) in _PLAIN for value in given):
        from ..run.cuda_call import reducing  # likewise

        backend = x.device.backend
        key = (backend, x.shape, x.dtype.num, *map(_told, given))
        launch = reducing(op, x.dtype, x.ndim, params, dtype, backend) if op.name in COMBINING else None
        _remember(op, key, Known(partial(op.kernel(backend), **params), dtype, launch))


def _remember(op: Op, key: tuple[Any, ...], known: Known) -> None:
    if len(op.known_there) >= MOST:
        op.known_there.clear()
    op.known_there[key] = known

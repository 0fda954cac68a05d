"""Small calls on other devices than the CPU: one kernel, or one library function, and no question asked twice.

For the dtypes of operands, the function that computes a call and the result's dtype, as the CPU has it, are cached; and
for their placements the kernel to launch. A call that is not cached, or that the library refuses, goes the long way,
which also reports what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import numpy as np

from ..base.caches import make_room
from ..base.dtypes import DType
from ..base.errors import REFUSED
from ..base.options import settings, thin_closed
from ..base.profiling import observers
from ..devices.cuda_memory import VECTOR
from ..graph.node import COMBINING, Node
from ..plan.costs import LAUNCHED_BELOW
from ..run.executor import before_write
from ..storage.blob import TBlob
from ..storage.storage import Native
from ..tensor.face import CPU_DEVICE, Tensor, face

if TYPE_CHECKING:
    from ..devices import Device
    from ..run.cuda_call import Call
    from .op import Op

T = TypeVar("T")

# The most calls of an op in each cache.
MOST = 1024

# Stands for a small integer below 0 in keys of a cache.
NEGATIVE = "negative"

_PLAIN = (int, bool, float, tuple, type(None))


class Known(NamedTuple):
    """The function that computes a call of some dtypes, on native arrays and numbers in order, and the result's dtype.
    call: the same as a kernel of one step, where there is generated code.
    """

    kernel: Callable[..., Native]
    dtype: DType
    call: Call | None = None


class Placement(tuple[Any, ...]):
    """How an array lies, as far as kernels depend on it: a backend, the number of a dtype, a shape, strides (None in C
    order), and how far it begins behind a multiple of a vector. Equal placements are one object, hashed by identity, so
    that keys of several ones hash quickly.
    """

    __slots__ = ()
    __hash__, __eq__ = object.__hash__, object.__eq__


_placements: dict[tuple[Any, ...], Placement] = {}


def _lying(*lies: Any) -> Placement:
    """Return the placement with these parts."""
    return _placements.get(lies) or _noted(_placements, lies, Placement(lies))


class Ready(NamedTuple):
    """A call of operands of certain placements: its function of native arrays and numbers, and the device.

    placement: of vector-aligned results, None where it is not known, or they are not small.
    """

    run: Callable[[Sequence[Native], Sequence[Any]], Native | None]
    device: Device
    placement: Placement | None = None

    def __call__(self, natives: Sequence[Native], numbers: Sequence[Any]) -> Tensor | None:
        """Return the result; None where the library refuses the operands: the long way reports what is wrong."""
        native = self.device.backend.compute(self.run, natives, numbers)
        if native is None:
            return None
        tensor = Tensor()  # as `face` makes it, without the call
        blob = tensor._content = TBlob(None, native.dtype, None, self.device, native=native)
        if self.placement is not None and not native.data.ptr % VECTOR:
            blob._placement = self.placement
        tensor._owner = tensor._blob = tensor._step = None
        if not native.ndim:
            tensor._is_value = True
        return tensor


def blob_there(x: Tensor) -> TBlob | None:
    """Return the blob of a tensor that is computed and on another device than the CPU; None for others."""
    blob: Any = x._content
    if type(blob) is Node and blob.blob is not None:
        blob = x._content = blob.blob
    return None if type(blob) is not TBlob or blob.device is CPU_DEVICE or observers else blob


def small_blob(x: Tensor) -> TBlob | None:
    """Return the same for a small tensor."""
    blob = blob_there(x)
    return blob if blob is not None and blob.nbytes <= LAUNCHED_BELOW else None


def placed_there(x: Tensor) -> TBlob | None:
    """Return the blob of a small tensor on another device, with its `_placement` set; None for any other tensor."""
    found: Any = x._content
    if type(found) is TBlob and found._placement is not None and not observers:
        return found
    blob = small_blob(x)
    if blob is not None and blob._placement is None:
        native = blob.native()
        strides = None if native._c_contiguous else native.strides
        begin = native.data.ptr % VECTOR
        blob._placement = _lying(blob.device.backend, blob.dtype.num, native.shape, strides, begin)
    return blob


def call_known(op: Op, operands: tuple[Any, ...]) -> Tensor | None:
    """Compute an elementwise call of small tensors on another device than the CPU; None for any other."""
    if observers:
        return None
    key: list[Any] = []  # not list[Any](): that takes five times as long
    natives: list[Native] = []
    numbers: list[Any] = []
    for x in operands:
        if type(x) is Tensor:
            blob: Any = x._content
            if type(blob) is not TBlob or blob._placement is None:
                if blob.device is CPU_DEVICE:
                    return None
                blob = placed_there(x)
                if blob is None:
                    return None
            key.append(blob._placement)
            natives.append(blob._native)
        elif is_plain(x):
            key.append(type(x))
            numbers.append(x)
        elif type(x) is int and -128 <= x < 0:  # any signed dtype holds it
            key.append(NEGATIVE)
            numbers.append(x)
        else:
            return None
    limits = settings()
    whole = (limits.fast_math, limits.engine, *key)
    ready = op.ready.get(whole)
    if ready is None:
        ready = _readied(op, operands, whole, natives)
    return None if ready is None else ready(natives, numbers)


def _readied(op: Op, operands: tuple[Any, ...], key: tuple[Any, ...], natives: Sequence[Native]) -> Ready | None:
    """Return how to compute a call of operands with these placements; None where the long way has to find out."""
    tensors = [x for x in operands if type(x) is Tensor]
    devices = {x._content.device for x in tensors}
    if len(devices) != 1:
        return None
    (device,) = devices
    known = op.known_there.get((device.backend, *_kinds(operands)))
    if known is None or (NEGATIVE in key and any(native.dtype.kind in "bu" for native in natives)):
        return None
    run = _generated(known, natives)
    if run is None:
        run = partial(_by_library, known, device.backend, [type(x) is Tensor for x in operands])
    return _noted(op.ready, key, Ready(run, device, _placement(run, device)))


def _placement(run: Any, device: Device) -> Placement | None:
    """Return the placement of a kernel's result, as `placed_there` sets it; None where it is unknown, or large."""
    if isinstance(run, partial) or prod(run.shape) * run.call.dtype.itemsize > LAUNCHED_BELOW:
        return None
    return _lying(device.backend, run.call.dtype.num, run.shape, run.strides, 0)


def _noted(table: dict[Any, Any], key: Any, found: T) -> T:
    """Put something into a cache of at most MOST entries, and return it."""
    make_room(table, MOST)
    table[key] = found
    return found


def _by_library(
    known: Known, backend: Any, which: Sequence[bool], natives: Sequence[Native], numbers: Sequence[Any]
) -> Native | None:
    """Return the result of the library function for arrays and numbers, None where it refuses them.

    which: of each operand, whether it is an array.
    """
    arrays, others = iter(natives), iter(numbers)
    try:
        native = backend.call(known.kernel, *[next(arrays) if array else next(others) for array in which])
    except REFUSED:
        return None
    return native if native.dtype == known.dtype else backend.astype(native, known.dtype)


def update_known(op: Op, target: Tensor, other: Any) -> bool:
    """Compute `target = op(target, other)` into the memory of a small tensor on another device than the CPU; return
    whether there was a kernel for it, else nothing is done.
    """
    blob = placed_there(target)
    if blob is None or not blob.writeable or not is_plain(other):
        return False
    owner = blob._owner or blob.owner
    if owner.shared:
        return False
    beside: Any = type(other)
    natives, numbers = [blob._native], [other]
    if type(other) is Tensor:
        source = placed_there(other)
        if source is None:
            return False
        lender = source._owner or source.owner
        if lender.shared or (lender is owner and not _is_same(source, blob)):
            return False
        beside, natives, numbers = source._placement, [blob._native, source._native], []
    limits = settings()
    key = (limits.fast_math, limits.engine, "into", blob._placement, beside)
    run = op.ready[key] if key in op.ready else _noted(op.ready, key, _updating(op, (target, other), natives))
    if run is None:
        return False
    before_write(owner)
    blob.device.backend.call(run, natives, numbers, blob._native)
    return True


def _is_same(one: TBlob, other: TBlob) -> bool:
    """Return whether two blobs of one memory show the same elements in the same order."""
    return one._native.data.ptr == other._native.data.ptr and one._placement is other._placement


def _is_kept(op: Op, operands: tuple[Any, ...]) -> bool:
    """Return whether the result of a target and another operand has the target's dtype; caches the call."""
    blob = operands[0]._content
    key = (blob.device.backend, *_kinds(operands))
    if key not in op.known_there:
        try:
            dtype = op.dtype(*[x.dtype if type(x) is Tensor else type(x) for x in operands])
        except TypeError:
            return False
        remember_call(op, operands, dtype, blob.device)
    return bool(op.known_there[key].dtype == blob.dtype)


def _updating(op: Op, operands: tuple[Any, ...], natives: Sequence[Native]) -> Callable[..., Native] | None:
    """Return the kernel that computes into the first of some arrays, None where there is none, the arrays lie on
    several devices, or the result has another dtype.
    """
    if len({x._content.device for x in operands if type(x) is Tensor}) > 1 or not _is_kept(op, operands):
        return None  # the long way reports it
    known = op.known_there[operands[0]._content.device.backend, *_kinds(operands)]
    return _generated(known, natives, natives[0])


def _generated(known: Known, natives: Sequence[Native], target: Native = None) -> Callable[..., Native] | None:
    """Return the kernel for arrays that lie like these, None where there is none, or options ask for the library."""
    limits = settings()
    if known.call is None or limits.engine in ("direct", "interpret"):
        return None
    return cast("Callable[..., Native] | None", known.call.ready(natives, limits, target))


def _kinds(operands: tuple[Any, ...]) -> list[Any]:
    return [x.dtype.num if type(x) is Tensor else type(x) for x in operands]


def is_plain(x: Any) -> bool:
    """Return whether an operand is a tensor, or a number that any dtype holds."""
    return type(x) is Tensor or type(x) is float or (type(x) is int and 0 <= x <= 127)


def reduce_known(op: Op, x: Any, params: dict[str, Any]) -> Tensor | None:
    """Compute a reduction of a small tensor on another device than the CPU; None for any other."""
    blob = placed_there(x) if type(x) is Tensor else None
    if blob is None:
        return None
    limits = settings()
    try:
        given = tuple([(type(value), value) for value in params.values()])  # see `_told`
        ready = op.ready.get((limits.fast_math, limits.engine, blob._placement, given))
    except TypeError:  # a parameter that does not hash
        return None
    if ready is None:
        known = op.known_there.get((blob.device.backend, blob.shape, blob.dtype.num, *given))
        if known is None:
            return None
        run = _generated(known, [blob._native])
        if run is None:
            run = partial(_by_library, known, blob.device.backend, (True,))
        ready = Ready(run, blob.device, _placement(run, blob.device))
        _noted(op.ready, (limits.fast_math, limits.engine, blob._placement, given), ready)
    return ready([blob._native], ())


def view_there(x: Tensor, key: Any) -> Tensor | None:
    """Return the view that a basic key selects of a tensor on another device than the CPU, or the value of one element;
    None for any other tensor, and for a key that the library refuses.
    """
    blob = x._content if type(x._content) is TBlob else blob_there(x)
    if blob is None or blob.device is CPU_DEVICE or x._step is not None:
        return None
    try:
        native = blob._native[key] if blob._native is not None else blob.native()[key]
    except REFUSED:
        return None
    if native.ndim or key is Ellipsis or (type(key) is tuple and any(one is Ellipsis for one in key)):
        return x.window(native)
    if observers:
        return None
    backend: Any = blob.device.backend
    tensor = face(TBlob.of(None, backend.element(native), blob.device, writeable=True))
    tensor._is_value = True
    return tensor


def assign_there(x: Tensor, key: Any, value: Any) -> bool:
    """Assign a number, or a tensor in other memory, to a basic key of a tensor on another device than the CPU, by one
    library call, where nothing has a gradient; return whether that was done. The long way does the rest, and reports
    errors.
    """
    blob = x._content if type(x._content) is TBlob else blob_there(x)
    if blob is None or blob.device is CPU_DEVICE or x._step is not None or observers:
        return False
    owner = blob._owner or blob.owner
    if not blob.writeable or owner.shared:
        return False
    given, kind = value, type(value)
    if kind is Tensor:
        source = blob_there(value)
        if source is None or source.device is not blob.device or source.dtype != blob.dtype or value._step is not None:
            return False
        given, lender = source.native(), source.owner
        if source is blob or lender.shared:
            return False
        if lender is owner:
            apart = _apart(given, blob, key)
            if not apart:
                return apart is None
    elif not (kind is float and blob.dtype.kind == "f" and value) and not (
        kind is int and 0 <= value <= 127 and blob.dtype.kind in "iuf"
    ):  # -0.0 and numbers that may not fit go the long way
        return False
    native, backend = blob.native() if blob._native is None else blob._native, cast("Any", blob.device.backend)
    before_write(owner)
    try:
        if kind is Tensor and not given.ndim:
            backend.call(backend.put_element, native, key, given)
        else:
            backend.call(native.__setitem__, key, given)
    except REFUSED:
        return False
    return True


def _apart(given: Native, blob: TBlob, key: Any) -> bool | None:
    """Return whether an array lies before or behind all elements that a basic key selects of a blob, both in C order;
    None where it is these elements, as in the last step of `x[key] += y`.
    """
    try:
        target = blob.native()[key]
    except REFUSED:
        return False
    begin, other = given.data.ptr, target.data.ptr
    if begin == other and given.shape == target.shape and given.strides == target.strides:
        return None
    apart = begin + given.nbytes <= other or other + target.nbytes <= begin
    return bool(apart and given._c_contiguous and target._c_contiguous)


def _told(value: Any) -> Any:
    """Return a parameter with its type, as 1 equals True, but not every parameter may be a boolean."""
    return type(value), value


def remember_call(op: Op, operands: tuple[Any, ...], dtype: DType, device: Device) -> None:
    """Cache the function that computes an elementwise call of these dtypes on another device."""
    from ..run.cuda_call import mapping  # loaded late, as it imports the code generator

    key = (device.backend, *_kinds(operands))
    if key in op.known_there:
        return
    kinds = [x.dtype if type(x) is Tensor else type(x) for x in operands]
    call = None
    # small powers have code of their own; CuPy's powers of complex numbers are corrected like its other functions
    powers = op.name == "pow" and (dtype.kind == "c" or type(operands[1]) is not Tensor)
    if not powers and dtype != np.float16:  # which is no dtype of the standard, and has few bits for any difference
        with suppress(TypeError):  # NumPy's function takes no such operands in its loop
            call = mapping(op, kinds, dtype, device.backend)
    _noted(op.known_there, key, Known(op.kernel(device.backend), dtype, call))


def call_first(op: Op, operands: tuple[Any, ...], dtype: DType, device: Device) -> Tensor | None:
    """Cache the function of an elementwise call, and return its result if it is small, else None."""
    remember_call(op, operands, dtype, device)
    return None if thin_closed[0] else call_known(op, operands)


def reduce_first(op: Op, x: Tensor, given: tuple[Any, ...], params: dict[str, Any], dtype: DType) -> Tensor | None:
    """Do the same for a reduction. given: its parameters as the caller gave them."""
    remember_reduction(op, x, given, params, dtype)
    return None if thin_closed[0] else reduce_known(op, x, dict(zip(params, given, strict=True)))


def remember_reduction(op: Op, x: Tensor, given: tuple[Any, ...], params: dict[str, Any], dtype: DType) -> None:
    """Cache the function that computes a reduction on another device. given: its parameters as the caller gave them."""
    if not all(type(value) in _PLAIN for value in given):
        return
    from ..run.cuda_call import reducing  # likewise

    backend = x.device.backend
    call = reducing(op, x.dtype, x.ndim, params, dtype, backend) if op.name in COMBINING else None
    key = (backend, x.shape, x.dtype.num, *map(_told, given))
    _noted(op.known_there, key, Known(partial(op.kernel(backend), **params), dtype, call))

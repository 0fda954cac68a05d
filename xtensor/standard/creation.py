"""Creation functions (standard section of that name).

If `dtype` is None, it is the standard's default (float64, int64, complex128, bool) or the dtype of the given array; if
`device` is None, it is the `device` option (cpu) or the device of the given array.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import isfinite, prod
from typing import Any, Literal, cast

import numpy as np

from ..autograd.rules import Like, sum_to, xt
from ..autograd.tape import OFF, begin, differentiable, recording
from ..base.dtypes import DEFAULTS, DType, canonical, check_real, is_held, real_of
from ..base.errors import REFUSED, UnheldError, check_choice, expected
from ..base.layout import Shape, as_index, as_shape, contiguous
from ..base.options import thin_closed
from ..base.profiling import noting, observers
from ..calls.library import on, thin_call
from ..calls.sequences import stacked
from ..devices import Device, as_device
from ..devices.cpu import CPU, quickly
from ..graph.number import is_traced
from ..plan.costs import DIRECT_BELOW
from ..storage.blob import TBlob
from ..storage.storage import histories, watchers, watching
from ..tensor.face import CPU_DEVICE, Scalar, Tensor, created, face, from_native, made_of, thin_arrays, wrap
from ..tensor.operands import DeviceLike, as_tensor, asarray_host, chosen_device, common_device, converted, with_arrays
from .casting import astype
from .indexing import setitem
from .methods import moved

__all__ = [
    "arange",
    "asarray",
    "empty",
    "empty_like",
    "eye",
    "from_dlpack",
    "full",
    "full_like",
    "linspace",
    "meshgrid",
    "ones",
    "ones_like",
    "tril",
    "triu",
    "zeros",
    "zeros_like",
]


CUDA = (2, 13)  # DLPack's numbers of memory on CUDA devices, and of memory that they share with the host


def _dtype(dtype: Any, default: DType, function: str) -> DType:
    return default if dtype is None else canonical(dtype, function)


def asarray(
    obj: Any,
    /,
    *,
    dtype: DType | None = None,
    device: DeviceLike = None,
    copy: bool | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return `obj`, a tensor, NumPy array, scalar, nested sequence, buffer, DLPack or `__array__` object, as a tensor.

    copy: True always copies, False never (ValueError if a copy is needed), None only if needed. The memory of a NumPy
    array is shared with whoever holds the array or a view of it, but not with code that keeps only its address. Tensors
    keep their gradient, also within sequences. requires_grad: whether the result is a tensor whose gradient is wanted;
    `obj` itself remains a constant if it is one. Raises TypeError for dtypes outside the standard, and for
    requires_grad with a dtype that has no gradient, OverflowError for integers that do not fit. Standard: Creation
    Functions, asarray.
    """
    x = _asarray(obj, dtype, device, copy)
    if not requires_grad or x.requires_grad:
        return x
    if x.dtype.kind not in "fc":
        raise TypeError(expected("asarray", "dtype", "be floating-point, to require a gradient", x.dtype))
    x = x.viewed(x.blob.layout) if x is obj else x
    begin(x)
    return x


def _asarray(obj: Any, dtype: DType | None, device: DeviceLike, copy: bool | None) -> Tensor:
    wanted = None if dtype is None else canonical(dtype, "asarray")
    if isinstance(obj, Tensor):
        return _from_tensor(obj, wanted, device, copy)
    target = chosen_device(device, "asarray")
    if type(obj) is np.ndarray and wanted is None and copy is None and target.backend is CPU:
        return from_native(obj, target, shared=True)
    if copy is not False and target is CPU_DEVICE:
        found = _of_numbers(obj, wanted)
        if found is not None:
            return found
    may_be_told = wanted is None or wanted.kind in "fc"  # else its value has to fit
    if is_traced(obj) and copy is not False and may_be_told:
        return _from_tensor(as_tensor(obj, "asarray", like=target), wanted, device, None)
    if isinstance(obj, (bool, int, float, complex, list, tuple, range)):
        if copy is False:
            raise ValueError(expected("asarray", "copy", "be None or True for Python scalars and sequences", copy))
        stack = stacked(obj, may_be_told)
        if stack is not None:
            return _from_tensor(stack, wanted, device, None)
        return asarray_host(with_arrays(obj), "asarray", "obj", wanted, target)
    if not isinstance(obj, (np.ndarray, np.generic)) and _comes_by_dlpack(obj):
        return _from_tensor(from_dlpack(obj, copy=copy), wanted, device, copy if wanted is None else None)
    return _from_host(obj, wanted, target, copy)


# The types of Python's numbers.
_NUMBERS = frozenset((bool, int, float, complex))
_ROWS = frozenset((list, tuple))


def _of_numbers(obj: Any, dtype: DType | None) -> Tensor | None:
    """Return a Python number, a list or tuple of numbers and thin faces, or one of such rows of numbers, as NumPy makes
    an array of it; None for other objects, and if NumPy refuses: the long way says what is wrong.
    """
    kind = type(obj)
    if issubclass(kind, (list, tuple)):
        kinds = set(map(type, obj))
        if Tensor in kinds and not (histories[0] or thin_closed[0]):
            obj = [one._content if type(one) is Tensor else one for one in obj]
            kinds = set(map(type, obj)) - {np.ndarray}
        are_rows = bool(kinds) and kinds <= _ROWS
        if not (all(_NUMBERS.issuperset(map(type, row)) for row in obj) if are_rows else kinds <= _NUMBERS):
            return None
    elif kind not in _NUMBERS:
        return None
    try:
        native = quickly(np.array, obj, dtype)
    except REFUSED:
        return None
    return created(native, CPU_DEVICE) if is_held(native.dtype) else None


def _from_tensor(x: Tensor, dtype: DType | None, device: DeviceLike, copy: bool | None) -> Tensor:
    if dtype is None and device is None and not copy:
        return x
    target = x.device if device is None else as_device(device, "asarray")
    changes = dtype is not None and dtype != x.dtype  # NumPy takes None for float64
    if copy is False and (changes or target != x.device):
        raise ValueError(expected("asarray", "copy", "be None or True when dtype or device change", copy))
    x = moved(x, target)
    if changes:
        return astype(x, cast(DType, dtype))
    return x.copy("K") if copy else x


def _from_host(obj: Any, dtype: DType | None, device: Device, copy: bool | None) -> Tensor:
    """Return a tensor over a NumPy array, or over an object that NumPy can convert (buffers, `__array__`)."""
    native = converted(obj, False if copy is False else None)
    if isinstance(native, Tensor):
        return _from_tensor(native, dtype, device, copy)
    if native.dtype.kind == "O" and not isinstance(obj, (np.ndarray, np.generic)):
        raise UnheldError(expected("asarray", "obj", "be an array, a scalar or nested sequences", type(obj).__name__))
    wanted = canonical(native.dtype if dtype is None else dtype, "asarray")
    if copy is False and wanted != native.dtype:
        raise ValueError(expected("asarray", "copy", f"be None or True to make {wanted} of {native.dtype}", copy))
    if copy is False and device.backend is not CPU:
        raise ValueError(expected("asarray", "copy", f"be None or True to move an array to {device}", copy))
    check_real(native.dtype, wanted, "asarray", "obj")
    if copy or wanted != native.dtype or device.backend is not CPU:
        call = noting(CPU.call, CPU, "asarray") if observers else CPU.call
        if type(obj) is np.ndarray and watchers and watching() is not None:
            return made_of(obj, call(np.array, native, dtype=wanted), device)
        if device.backend is not CPU:
            native = device.backend.asarray(native)
            return wrap(native if native.dtype == wanted else device.backend.astype(native, wanted), device)
        if native.flags.c_contiguous and native.size * wanted.itemsize > DIRECT_BELOW:
            blob = TBlob.empty(native.shape, wanted, device)  # aligned memory, which kernels read faster
            call(np.copyto, blob.native(), native, casting="unsafe")
            return face(blob)
        return wrap(call(np.array, native, dtype=wanted), device)
    return from_native(native, device, shared=True)


def _comes_by_dlpack(obj: Any) -> bool:
    """Return whether to import an object of another library by DLPack, as NumPy cannot read memory of other devices."""
    if not hasattr(obj, "__dlpack__"):
        return False
    return not hasattr(obj, "__array__") or (hasattr(obj, "__dlpack_device__") and obj.__dlpack_device__()[0] in CUDA)


def from_dlpack(x: Any, /, *, device: DeviceLike = None, copy: bool | None = None) -> Tensor:
    """Return a tensor over the memory of any object with `__dlpack__`; memory is shared unless `copy`.

    The result is a constant. Raises TypeError for an object without `__dlpack__`, BufferError if the memory cannot be
    imported, or would need a copy and copy=False. Standard: Creation Functions, from_dlpack.
    """
    if not hasattr(x, "__dlpack__") or not hasattr(x, "__dlpack_device__"):
        raise TypeError(expected("from_dlpack", "x", "have __dlpack__ and __dlpack_device__", type(x).__name__))
    target = None if device is None else as_device(device, "from_dlpack")
    if isinstance(x, Tensor):
        with recording(OFF):
            x = moved(x, x.device if target is None else target)
            return x.copy("K") if copy else x.detach()
    try:
        kind, number = x.__dlpack_device__()
        own = as_device(f"cuda:{number}" if kind in CUDA else "cpu", "from_dlpack")
        if kind in CUDA:
            native: Any = cast(Any, own.backend).from_dlpack(x)
        else:
            native = np.from_dlpack(x, device=None if target is None else "cpu", copy=copy)
    except (BufferError, MemoryError):
        raise
    except Exception as error:  # whatever a foreign producer raises: our callers expect a BufferError
        must = "give a DLPack capsule of memory of a device that can be used"
        raise BufferError(expected("from_dlpack", "x", must, f"{type(error).__name__}: {error}")) from error
    if copy is False and target not in (None, own):
        raise BufferError(expected("from_dlpack", "copy", f"be None or True to move an array to {target}", copy))
    if kind in CUDA:
        taken = from_native(native, own, shared=True)
        return moved(taken.copy("K") if copy and target in (None, own) else taken, target or own)
    if copy:  # NumPy makes arrays from an unversioned producer read-only, even copies
        native = native if native.flags.writeable else native.copy(order="K")
    return from_native(native, target or own, shared=not copy)


def empty(shape: int | Sequence[int], *, dtype: DType | None = None, device: DeviceLike = None) -> Tensor:
    """Return a tensor of unset values; its memory is allocated when first needed.

    Standard: Creation Functions, empty.
    """
    lengths = as_shape(shape, "empty")
    kind, place = _dtype(dtype, DEFAULTS["real floating"], "empty"), chosen_device(device, "empty")
    if place.backend is CPU and prod(lengths) <= FEW and not thin_closed[0]:
        return created(np.empty(lengths, kind), place)
    capture = watching() if watchers else None
    return face(TBlob.empty(lengths, kind, place) if capture is None else capture.emptied(lengths, kind, place))


def empty_like(x: Tensor, /, *, dtype: DType | None = None, device: DeviceLike = None) -> Tensor:
    """Return a tensor of unset values with x's shape, and x's dtype and device unless these are given.

    Standard: Creation Functions, empty_like.
    """
    x = as_tensor(x, "empty_like")
    return empty(x.shape, dtype=x.dtype if dtype is None else dtype, device=device or x.device)


@differentiable(fill_value=lambda g, like: sum_to(g, g.shape, like.shape))
def full(
    shape: int | Sequence[int], fill_value: Scalar | Tensor, *, dtype: DType | None = None, device: DeviceLike = None
) -> Tensor:
    """Return a tensor filled with one value; a Python scalar gives its kind's default dtype.

    fill_value may be an array that broadcasts to the shape. Raises OverflowError for an integer that does not fit the
    dtype. Standard: Creation Functions, full.
    """
    return _filled("full", as_shape(shape, "full"), fill_value, dtype, device)


@differentiable(fill_value=lambda g, like: sum_to(g, g.shape, like.shape))
def full_like(
    x: Tensor, /, fill_value: Scalar | Tensor, *, dtype: DType | None = None, device: DeviceLike = None
) -> Tensor:
    """Return a tensor filled with one value, with x's shape, and x's dtype and device unless these are given.

    Standard: Creation Functions, full_like.
    """
    x = as_tensor(x, "full_like")
    return _filled("full_like", x.shape, fill_value, x.dtype if dtype is None else dtype, device or x.device)


# Up to so many elements are allocated by NumPy, more from the pool.
FEW = 8192


def _filled_at_once(shape: Shape, value: Any, kind: DType) -> np.ndarray[Any, Any]:
    """Return an array filled with a value; raises NumPy's errors, and MemoryError."""
    size = prod(shape)
    native = np.empty(shape, kind) if size <= FEW else np.ndarray(shape, kind, CPU.allocate(size * kind.itemsize))
    quickly(native.fill, value)
    return native


def _filled(function: str, shape: Shape, value: Any, dtype: Any, device: DeviceLike) -> Tensor:
    place = chosen_device(device, function)
    if place.backend is CPU and type(value) in (bool, int, float) and not thin_closed[0]:
        kind = _dtype(dtype, _default_of(value, function), function)
        if kind.kind in "fc" or (type(value) is not float and (kind.kind != "b" or value in (0, 1))):
            try:
                return created(_filled_at_once(shape, value, kind), place)
            except (MemoryError, *REFUSED):
                pass  # the code below says what is wrong
    if isinstance(value, (Tensor, np.ndarray, np.generic)):
        value = moved(as_tensor(value, function, "fill_value"), place)
    kind = _dtype(dtype, value.dtype if isinstance(value, Tensor) else _default_of(value, function), function)
    result = empty(shape, dtype=kind, device=place)
    if type(value) is float and kind.kind in "iu" and not isfinite(value):
        value = int(np.asarray(value).astype(kind))  # with NumPy's warning; numbers that do not fit raise
    try:
        setitem(result, ..., value, function)
    except MemoryError:
        raise MemoryError(expected(function, "shape", "fit into memory", shape)) from None
    result.thin()
    return result


def _default_of(scalar: Any, function: str) -> DType:
    for kind, dtype in ((bool, np.dtype("bool")), (int, DEFAULTS["integral"]), (float, DEFAULTS["real floating"])):
        if isinstance(scalar, kind):
            return dtype
    if isinstance(scalar, complex):
        return DEFAULTS["complex floating"]
    raise TypeError(expected(function, "fill_value", "be a scalar or an array", type(scalar).__name__))


def zeros(shape: int | Sequence[int], *, dtype: DType | None = None, device: DeviceLike = None) -> Tensor:
    """Return a tensor of zeros. Standard: Creation Functions, zeros."""
    lengths = as_shape(shape, "zeros")
    kind, target = _dtype(dtype, DEFAULTS["real floating"], "zeros"), chosen_device(device, "zeros")
    return created(target.backend.zeros(lengths, kind), target)


def zeros_like(x: Tensor, /, *, dtype: DType | None = None, device: DeviceLike = None) -> Tensor:
    """Return a tensor of zeros with x's shape, and x's dtype and device unless these are given.

    Standard: Creation Functions, zeros_like.
    """
    x = as_tensor(x, "zeros_like")
    return zeros(x.shape, dtype=x.dtype if dtype is None else dtype, device=device or x.device)


def ones(shape: int | Sequence[int], *, dtype: DType | None = None, device: DeviceLike = None) -> Tensor:
    """Return a tensor of ones. Standard: Creation Functions, ones."""
    return _filled("ones", as_shape(shape, "ones"), 1, _dtype(dtype, DEFAULTS["real floating"], "ones"), device)


def ones_like(x: Tensor, /, *, dtype: DType | None = None, device: DeviceLike = None) -> Tensor:
    """Return a tensor of ones with x's shape, and x's dtype and device unless these are given.

    Standard: Creation Functions, ones_like.
    """
    x = as_tensor(x, "ones_like")
    return _filled("ones_like", x.shape, 1, x.dtype if dtype is None else dtype, device or x.device)


@differentiable(
    start=lambda g, stop: None if stop is None else xt.sum(g),
    stop=0,
    step=lambda g: xt.sum(g * xt.arange(g.size, dtype=g.dtype, device=g.device)),
)
def arange(
    start: float,
    /,
    stop: float | None = None,
    step: float = 1,
    *,
    dtype: DType | None = None,
    device: DeviceLike = None,
) -> Tensor:
    """Return evenly spaced values from start (0 if only one bound is given) up to, but not including, stop.

    dtype: int64 if all bounds are integers, else float64. A gradient reaches start and step if they are tensors; stop
    only determines the number of values. Raises ValueError for a step of 0. Standard: Creation Functions, arange.
    """
    target = None if dtype is None else canonical(dtype, "arange")
    if step == 0:
        raise ValueError(expected("arange", "step", "not be 0", step))
    if start is None:
        raise TypeError(expected("arange", "start", "be a number", start))
    bounds = (0, start) if stop is None else (start, stop)
    given: list[Any] = [x.item() if isinstance(x, Tensor) else x for x in (*bounds, step)]
    low, high, by = given
    place = chosen_device(device, "arange")
    try:
        native = np.arange(low, high, by, dtype=target)
    except (ValueError, MemoryError) as error:
        kind = MemoryError if isinstance(error, MemoryError) else ValueError  # NumPy's own takes no message
        raise kind(expected("arange", "bounds", "give a length that fits memory", (low, high, by))) from None
    except TypeError:
        raise TypeError(expected("arange", "bounds", "be real numbers", (low, high, by))) from None
    return created(native, place)


def _weighted(g: Tensor, like: Like, num: int, endpoint: bool, *, rising: bool) -> Tensor:
    """The sum of cotangents, each times the share of a bound in that value."""
    steps = num - 1 if endpoint else num
    share = xt.arange(num, dtype=real_of(g.dtype), device=g.device) / float(steps or 1)
    share = xt.reshape(share if rising else 1 - share, (num,) + (1,) * (g.ndim - 1))
    return sum_to(xt.sum(g * share, axis=0), g.shape[1:], like.shape)


@differentiable(
    start=lambda g, like, num, endpoint: _weighted(g, like, num, endpoint, rising=False),
    stop=lambda g, like, num, endpoint: _weighted(g, like, num, endpoint, rising=True),
)
def linspace(
    start: complex,
    stop: complex,
    /,
    num: int,
    *,
    dtype: DType | None = None,
    device: DeviceLike = None,
    endpoint: bool = True,
) -> Tensor:
    """Return `num` evenly spaced values from start to stop; stop is left out unless `endpoint`.

    Raises ValueError for a negative num. Standard: Creation Functions, linspace.
    """
    length = as_index(num, "linspace", "num")
    if length < 0:
        raise ValueError(expected("linspace", "num", "not be negative", length))
    low, high = (bound.host() if isinstance(bound, Tensor) else bound for bound in (start, stop))
    place = chosen_device(device, "linspace")
    target = None if dtype is None else canonical(dtype, "linspace")
    if target is not None:
        check_real(np.result_type(low, high), target, "linspace", "start and stop")
    try:
        native = CPU.call(np.linspace, low, high, length, dtype=target, endpoint=endpoint)
    except TypeError:
        raise TypeError(expected("linspace", "start and stop", "be numbers", (start, stop))) from None
    return created(native, place)


def eye(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: DType | None = None, device: DeviceLike = None
) -> Tensor:
    """Return a matrix with ones on the k-th diagonal (k > 0 above the main one) and zeros elsewhere.

    Standard: Creation Functions, eye.
    """
    shape = as_shape((n_rows, n_rows if n_cols is None else n_cols), "eye", "n_rows, n_cols")
    kind, target = _dtype(dtype, DEFAULTS["real floating"], "eye"), chosen_device(device, "eye")
    native, ones = target.backend.zeros(shape, kind), contiguous(shape, 1).diagonal(as_index(k, "eye", "k"))
    native.reshape(-1)[ones.offset : ones.offset + ones.size * ones.strides[0] : ones.strides[0]] = 1
    return created(native, target)


def meshgrid(*arrays: Tensor, indexing: Literal["xy", "ij"] = "xy") -> tuple[Tensor, ...]:
    """Return coordinate arrays for 1-d coordinates: of shape (n2, n1, ...) for "xy", (n1, n2, ...) for "ij".

    Raises ValueError for another indexing or arrays of more than 1 axis. Standard: Creation Functions, meshgrid.
    """
    check_choice("meshgrid", "indexing", indexing, ("xy", "ij"))
    natives = thin_arrays(*arrays)
    if natives and sum([x.itemsize for x in natives]) * prod([x.size for x in natives]) <= DIRECT_BELOW:
        found: tuple[Tensor, ...] | None = thin_call(partial(_meshgrid, indexing), natives, *natives)
        if found is not None:
            return found
    tensors = tuple(as_tensor(x, "meshgrid", "arrays") for x in arrays)
    for x in tensors:
        if x.ndim > 1:
            raise ValueError(expected("meshgrid", "arrays", "have at most 1 axis", f"shape {x.shape}"))
    if not tensors:
        return ()
    common_device("meshgrid", tensors)
    places = list(range(len(tensors)))
    if indexing == "xy" and len(places) > 1:
        places[:2] = [1, 0]
    grid = [xt.reshape(x, _along(x.size, place, len(places))) for x, place in zip(tensors, places, strict=True)]
    return tuple(x.copy() for x in xt.broadcast_arrays(*grid))


def _meshgrid(indexing: Any, *natives: Any) -> tuple[Any, ...]:
    """Return NumPy's meshgrid of arrays; raises ValueError for arrays of more than one axis, which that flattens."""
    if max([native.ndim for native in natives]) > 1:
        raise ValueError
    return np.meshgrid(*natives, indexing=indexing)


def _along(length: int, axis: int, ndim: int) -> Shape:
    """Return the shape that has a length along one axis."""
    return (1,) * axis + (length,) + (1,) * (ndim - axis - 1)


@differentiable(x=lambda g, k: xt.tril(g, k=k))
def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """Return a copy of stacked matrices with zeros above the k-th diagonal. Standard: Creation Functions, tril."""
    return _triangle("tril", x, k)


@differentiable(x=lambda g, k: xt.triu(g, k=k))
def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """Return a copy of stacked matrices with zeros below the k-th diagonal. Standard: Creation Functions, triu."""
    return _triangle("triu", x, k)


def _triangle(name: str, x: Any, k: int) -> Tensor:
    x, k = as_tensor(x, name), as_index(k, name, "k")
    if x.ndim < 2:
        raise ValueError(expected(name, "x", "have at least 2 axes", f"shape {x.shape}"))
    if watchers:  # as steps of a captured function
        rows, columns = xt.arange(x.shape[-2], device=x.device), xt.arange(x.shape[-1], device=x.device)
        is_lower = columns - (k if name == "tril" else k - 1) <= xt.expand_dims(rows, axis=1)
        zero = xt.zeros((), dtype=x.dtype, device=x.device)
        return cast(Tensor, xt.where(is_lower, x, zero) if name == "tril" else xt.where(is_lower, zero, x))
    return on(x, name, lambda xp, a: getattr(xp, name)(a, k=k))

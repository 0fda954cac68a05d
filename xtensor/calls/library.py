"""Calls of functions of a device's library, NumPy or CuPy: run at once, or as a step of a captured function."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

from ..autograd.rules import Rule, xt
from ..autograd.tape import active, is_recording, remember, steps_of
from ..base.dtypes import is_held
from ..base.errors import REFUSED, prefixed
from ..base.options import thin_closed
from ..base.profiling import noting, observers
from ..base.threads import dismiss
from ..devices import Device
from ..devices.cpu import CPU, quickly
from ..devices.cpu_keys import WAYS
from ..graph.node import Node
from ..plan.costs import DIRECT_BELOW
from ..run.executor import seen_later
from ..storage.blob import TBlob
from ..storage.storage import Native, histories, watchers, watching
from ..tensor.face import CPU_DEVICE, Tensor, face, thin_arrays, wrap
from ..tensor.operands import Operand, common_device
from ..tensor.scalars import is_value, marked, valued


def native_of(x: Operand) -> Native:
    """Return an operand as a kernel takes it; a tensor that can be a thin face becomes one, for the next call."""
    if not isinstance(x, Tensor):
        return x
    native = x.thin()
    return x.native() if native is None else native


def on(x: Tensor | tuple[Tensor, ...], name: str, function: Callable[..., Any]) -> Any:
    """Run a library function now: `on(x, "sort", lambda xp, a: xp.sort(a))` with the device's library as `xp`.

    x: one tensor or several; the function gets their native arrays. name: the function's name in errors. Returns a
    Tensor, or a tuple of them.
    """
    tensors = x if isinstance(x, tuple) else (x,)
    device, natives = CPU_DEVICE, thin_arrays(*tensors)
    if natives is not None:
        found = thin_call(function, natives, CPU.xp, *natives)
        if found is not None:
            return found
    else:
        device = common_device(name, tensors)
        capture = watching() if watchers else None
        if capture is not None:
            return captured_call(capture, tensors, name, partial(function, device.backend.xp), device)
        natives = [native_of(tensor) for tensor in tensors]
        _make_way(natives)
    backend = device.backend
    compute = noting(backend.compute, backend, name) if observers else backend.compute
    try:
        result = compute(function, backend.xp, *natives)
    except (TypeError, ValueError, IndexError, OverflowError) as error:
        raise prefixed(name, error) from None
    return _without_rule(_owned_all(result, natives, device), name, tensors)


def thin_call(function: Callable[..., Any], natives: list[Native], *given: Any) -> Any:
    """Return the result of a NumPy function for arrays of thin faces as a tensor or a tuple of them.

    None where it refuses them, as the long way reports what is wrong, and where memory may have a gradient: thin faces
    have none themselves.
    """
    if observers or (histories[0] and is_recording()):
        return None
    try:
        result = (CPU.call if _make_way(natives) else quickly)(function, *given)
        if type(result) is np.ndarray and not is_shown(result, natives):  # the commonest, without more calls
            return wrap(result, CPU_DEVICE)
        return _owned_all(result, natives, CPU_DEVICE)
    except REFUSED:
        return None


_INT = frozenset((int,))


def reduce_small(kernel: Any, native: Native, given: dict[str, Any]) -> Native | None:
    """Reduce a small array at once; None for unusual or refused parameters: the long way reports what is wrong."""
    axis, keepdims = None, False
    for name, value in given.items():
        kind = type(value)
        if name == "axis" and (value is None or kind is int or (kind is tuple and _INT.issuperset(map(type, value)))):
            if kind is int and not native.ndim:  # which NumPy takes
                return None
            axis = value
        elif name == "keepdims" and kind is bool:
            keepdims = value
        elif name != "dtype" or value is not None:
            return None
    try:
        return quickly(kernel, native, axis, keepdims=True) if keepdims else quickly(kernel, native, axis)
    except REFUSED:
        return None


def _make_way(natives: Iterable[Native]) -> bool:
    """Dismiss our own threads in favour of the library's where arrays are large; return whether any is."""
    for native in natives:
        if native.nbytes > DIRECT_BELOW:
            dismiss()
            return True
    return False


def shown(x: Tensor) -> Native | None:
    """Return the native array of a tensor whose views can be made from it: of a thin face, or of a computed tensor on
    another device without a gradient; None for any other.
    """
    data: Any = x._content
    if type(data) is TBlob and data.device is not CPU_DEVICE:
        if x._step is not None or watchers:  # a view of the native array would not be captured
            return None
        return data.native() if data._native is None else data._native
    return x.thin()


def thin_view(x: Any, method: str, *given: Any) -> Tensor | None:
    """Return the view of such a tensor by a method of its native array; None for any other, and where the library
    refuses: the long way reports what is wrong.
    """
    native = shown(x) if type(x) is Tensor and not thin_closed[0] else None
    try:
        return None if native is None else x.window(getattr(native, method)(*given))
    except REFUSED:
        return None


def rearranged(x: Tensor, way: str, given: Any) -> Tensor:
    """Return the view by a method of Layout, or where `shown` has an array by the library's own, which is cheaper.

    way: "permute", "flip", "insert" or "drop". given: its axes.
    """
    native = shown(x)
    if native is not None:
        return x.window(WAYS[way](native, given))
    later = seen_later(x._content, way, given)
    return x.viewed(getattr(x.blob.layout, way)(given)) if later is None else face(later)


# Library functions whose results have shapes that depend on values.
_DEPENDS_ON_VALUES = frozenset(("nonzero", "repeat", "unique_all", "unique_counts", "unique_inverse", "unique_values"))


def captured_call(
    capture: Any, tensors: tuple[Tensor, ...], name: str, function: Callable[..., Any], device: Device
) -> Any:
    """Run a library function now, as a step of the function that is being captured."""
    blobs = [x.blob for x in tensors]
    with capture.inside():
        natives = [blob.shallow_copy().native() for blob in blobs]  # with nothing cached
        call = noting(device.backend.call, device.backend, name) if observers else device.backend.call
        try:
            result = call(function, *natives)
        except (TypeError, ValueError, IndexError, OverflowError) as error:
            capture.refuse_call(name)  # the function may catch it, and go on by values
            raise prefixed(name, error) from None
        parts = result if isinstance(result, (tuple, list)) else (result,)
        owned = [_owned(part, natives, device) for part in parts]
        made = [one.settle() for one in owned]
        if name in _DEPENDS_ON_VALUES or _holds_memory(function):
            capture.refuse_call(name)
        found = [TBlob(blob.owner, blob.dtype, blob.layout, device) for blob in made]
        capture.called(function, blobs, found, name=name)
    faces = [marked(face(blob), is_value(one)) for blob, one in zip(found, owned, strict=True)]
    return tuple(faces) if isinstance(result, (tuple, list)) else _without_rule(faces[0], name, tensors)


def _without_rule(found: Any, name: str, tensors: tuple[Tensor, ...]) -> Any:
    """Return a library function's result; a gradient through it will raise an error, as no rule is known."""
    steps = steps_of(tensors) if active[0] and type(found) is Tensor else None
    if steps is not None:
        remember(Rule(name, {}), (("x", None),) * len(steps), steps, found)
    return found


def _holds_memory(function: Callable[..., Any]) -> bool:
    """Return whether a function holds arrays of its own, whose contents may differ in another call."""
    inner = function.func if isinstance(function, partial) else function
    cells = [cell.cell_contents for cell in getattr(inner, "__closure__", None) or ()]
    return any(isinstance(value, (np.ndarray, Tensor, TBlob)) for value in cells)


def _owned_all(result: Any, natives: list[Native], device: Device) -> Any:
    """Return a library function's result, perhaps several arrays, as a tensor or a tuple of tensors."""
    if isinstance(result, (tuple, list)):
        return tuple([_owned(one, natives, device) for one in result])
    return _owned(result, natives, device)


def _owned(result: Any, natives: list[Native], device: Device) -> Tensor:
    """Return a library function's result as a tensor that shares no memory with its inputs."""
    native = result if type(result) is np.ndarray else device.backend.asarray(result)
    if is_shown(native, natives):
        native = native.copy()
    found = wrap(native, device)
    return valued(found) if isinstance(result, np.generic) else found


class LongWayError(RuntimeError):
    """Raised if a call is not of the kind that is made at once."""


# The errors that send a call the long way, LongWayError among them: NumPy's errors, too, as the long way says better
# what is wrong.
LONG_WAY = (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError)


def finished(result: Any, held: list[Any]) -> Any:
    """Return a result of NumPy's function with tensors in place of its arrays and scalars. held: the arguments, among
    them all arrays. Raises LongWayError for what no tensor holds, and for arrays that lie in an argument's memory.
    """
    return tensors_of(result, [one for one in held if type(one) is np.ndarray])


def tensors_of(result: Any, natives: list[Native]) -> Any:
    """Return a result with tensors in place of its arrays and NumPy scalars; natives: the arrays it was computed from.
    Raises LongWayError.
    """
    kind = type(result)
    if kind is np.ndarray:
        if not is_held(result.dtype) or is_shown(result, natives):
            raise LongWayError
        return wrap(result, CPU_DEVICE)
    if isinstance(result, np.generic):
        if not is_held(result.dtype):
            raise LongWayError
        return wrap(result, CPU_DEVICE)
    if kind is list or isinstance(result, tuple):
        parts = [tensors_of(one, natives) for one in result]
        return kind(*parts) if hasattr(result, "_fields") else kind(parts)
    return result


def is_shown(native: Native, others: Iterable[Native]) -> bool:
    """Return whether an array shares its root with one of others."""
    root = native if native.base is None else root_of(native)
    for one in others:  # noqa: SIM110 - any() over a generator takes three times as long
        if one is root or (one.base is not None and root_of(one) is root):
            return True
    return False


def root_of(native: Native) -> Any:
    """Return the object whose memory an array shows: the last one of its chain of bases."""
    while (behind := getattr(native, "base", None)) is not None:
        native = behind
    return native


def in_a_row(x: Tensor) -> Tensor:
    """Return the elements in C order as one contiguous row, like NumPy's `ravel`: a copy unless they lie so already,
    whereas `reshape` also returns views with other strides.
    """
    natives = thin_arrays(x, most=DIRECT_BELOW)
    if natives is not None and not natives[0].flags.c_contiguous:
        copied: Tensor | None = thin_call(np.ndarray.flatten, natives, natives[0])
        if copied is not None:
            return copied
    row: Tensor = xt.reshape(x, (-1,))
    return row if row.size < 2 or _is_made_packed(row) or row.strides[0] == row.dtype.itemsize else row.copy()


def _is_made_packed(row: Tensor) -> bool:
    """Return whether a row is all of a pending result, which will be contiguous."""
    value: Any = row._content
    while type(value) is Node and value.blob is None and value.op.name == "reshape":
        value = value.inputs[0]
    return type(value) is Node and value.blob is None and value.op.kind != "view"

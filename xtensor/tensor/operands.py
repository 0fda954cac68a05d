"""Operands: the arguments of a function, as tensors of one device."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, cast, get_args

import numpy as np

from ..base.dtypes import DType
from ..base.errors import StrangerError, UnheldError, expected, mismatch, prefixed
from ..base.layout import Shape, broadcast_shapes
from ..base.options import settings, thin_closed
from ..devices import Device, as_device, known_devices
from ..devices.cpu import CPU
from ..graph.number import is_traced, type_of
from ..storage.storage import Native, histories, watchers, watching
from .face import Scalar, Tensor, created, from_native

# The namespace itself, still being filled while this file is read; functions are looked up when called.
xt: Any = sys.modules[__name__.partition(".")[0]]

Operand = Tensor | Scalar
DeviceLike = Device | str | None
SCALARS = get_args(Scalar)
_TENSOR = frozenset((Tensor,))
_NUMBERS = frozenset(SCALARS)


def is_derived(kind: type) -> bool:
    """Return whether a class inherits from NumPy's arrays and changes what they do: matrices, masked arrays, and those
    of programs. A memmap is a mere array.
    """
    return issubclass(kind, np.ndarray) and kind is not np.ndarray and kind is not np.memmap


def refuse_stranger(x: Any, function: str) -> None:
    """Raise an error for arrays whose class changes their meaning: StrangerError for masked arrays, whose reflected
    operators know the mask, another TypeError for matrices.
    """
    if isinstance(x, np.ndarray) and type(x) is not np.ndarray and (hasattr(x, "mask") or hasattr(x, "A1")):
        error = StrangerError if hasattr(x, "mask") else TypeError
        raise error(expected(function, "an operand", "be an array (numpy.asarray(x) makes one)", type(x).__name__))


def converted(x: Any, copy: bool | None = None) -> Any:
    """Return the array that NumPy makes of an object, or the tensor that its `__array__` returns: classes that are
    written with NumPy's names over tensors have such methods, whose results NumPy refuses.
    """
    try:
        return np.asarray(x, copy=copy)
    except ValueError:
        found = x.__array__() if hasattr(x, "__array__") else None
        if not isinstance(found, Tensor):
            raise
        return found


def foreign_array(x: Any) -> Any:
    """Return the array or tensor that is made of another library's object, such as a pandas Series; None where it has
    no `__array__`, or that fails.
    """
    if not hasattr(x, "__array__"):
        return None
    try:
        return converted(x)
    except (TypeError, ValueError, RuntimeError):
        return None


def without_operators(x: Any) -> Any:
    """Return the array of an object that can be converted but has no arithmetic, such as an h5py.Dataset; anything else
    as it is.
    """
    found = None if hasattr(type(x), "__radd__") else foreign_array(x)
    return x if found is None or found.dtype.kind not in "biufc" else found


def answer_of(other: Any, method: str, x: Tensor) -> Any:
    """Return what the operator of an object says of a tensor, or of its NumPy array: SciPy's sparse arrays know only
    the latter. NotImplemented unless the object asks NumPy to be asked first by `__array_priority__` alone; those with
    `__array_ufunc__` know more than arrays.
    """
    kind = type(other)
    answer = getattr(kind, method, None)
    if answer is None or not hasattr(kind, "__array_priority__") or hasattr(kind, "__array_ufunc__"):
        return NotImplemented
    found = answer(other, x)
    return answer(other, np.asarray(x)) if found is NotImplemented else found


def numpy_of(x: Any) -> Any:
    """Return the array of another library's object, an operand or a value that is assigned; anything else as it is."""
    found = None if isinstance(x, (Tensor, np.ndarray, np.generic)) or type(x) in SCALARS else foreign_array(x)
    return x if found is None else found


def as_operand(value: Any, function: str, argument: str, device: Device | None = None) -> Operand:
    """Return a value as a Tensor or a Python scalar.

    NumPy arrays and scalars and nested sequences become tensors, with NumPy's dtypes; scalars and sequences on
    `device`, or where it is None on the default device, as arrays always are. Raises StrangerError (a TypeError) for
    anything else.
    """
    if isinstance(value, Tensor) or type(value) in SCALARS:
        return cast(Operand, value)
    if isinstance(value, (np.ndarray, np.generic)):
        if not isinstance(value, np.ndarray):
            return _constant(np.asarray(value), device)
        refuse_stranger(value, function)
        if type(value).__array_ufunc__ is not np.ndarray.__array_ufunc__:  # such as an astropy.Quantity
            must = "be an array or a scalar (numpy.asarray(x) makes one)"
            raise StrangerError(expected(function, argument, must, type(value).__name__))
        return from_native(value, shared=True)
    if isinstance(value, (list, tuple, range)):
        return of_sequence(value, function, argument, device=device)
    if isinstance(value, SCALARS):  # a subclass, such as an IntEnum
        plain: Scalar = np.asarray(value).item()
        return plain
    raise StrangerError(expected(function, argument, "be an array or a scalar", type(value).__name__))


def as_tensor(value: Any, function: str, argument: str = "x", like: Any = None) -> Tensor:
    """Return a value as a Tensor, Python scalars as 0-d ones; raises StrangerError (a TypeError).

    like: a tensor or a device, to which scalars and sequences go.
    """
    if isinstance(value, Tensor):
        return value
    if is_traced(value):
        return as_tensor(type_of(value)(1), function, argument, like) * value
    device = like.device if isinstance(like, Tensor) else like if isinstance(like, Device) else None
    operand = as_operand(value, function, argument, device)
    return operand if isinstance(operand, Tensor) else _constant(np.asarray(operand), device)


def as_tensors(function: str, **operands: Any) -> tuple[Tensor, ...]:
    """Return operands, by parameters' names, as tensors; scalars and sequences go to the first tensor's device."""
    if _TENSOR.issuperset(map(type, operands.values())):
        return tuple(operands.values())
    like = next((x for x in operands.values() if isinstance(x, Tensor)), None)
    return tuple([as_tensor(x, function, name, like) for name, x in operands.items()])


def of_sequence(
    value: Any, function: str, argument: str, dtype: DType | None = None, device: Device | None = None
) -> Tensor:
    """Return nested sequences as a tensor, as `asarray_host` does; while a function is captured, those with tensors in
    them as a stack of their items.
    """
    stack: Tensor | None = xt.calls.sequences.stacked_constants(value, device)
    return asarray_host(with_arrays(value), function, argument, dtype, device) if stack is None else stack


def with_arrays(obj: Any) -> Any:
    """Return nested sequences with the tensors in them as NumPy arrays, which NumPy stacks quickly."""
    if type(obj) is Tensor:
        is_thin = type(obj._content) is np.ndarray and not (histories[0] or thin_closed[0])
        return obj._content if is_thin else obj.host()
    if isinstance(obj, (list, tuple)) and not _NUMBERS.issuperset(map(type, obj)):
        return [with_arrays(item) for item in obj]
    found = numpy_of(obj)
    return found.host() if isinstance(found, Tensor) else found


def asarray_host(
    value: Any, function: str, argument: str, dtype: DType | None = None, device: Device | None = None
) -> Tensor:
    """Return Python scalars or nested sequences as a tensor of the standard's default dtypes.

    Raises TypeError for elements that are no numbers, ValueError for ragged nesting, OverflowError for integers
    that fit no dtype.
    """
    try:
        native = CPU.call(np.array, value, dtype=dtype)
    except ValueError as error:
        if "inhomogeneous" in str(error):
            raise ValueError(expected(function, argument, "be nested evenly", "a ragged sequence")) from None
        raise prefixed(function, error) from None
    except OverflowError:
        raise OverflowError(expected(function, argument, f"fit into {dtype}", "a larger integer")) from None
    except TypeError:
        must = "hold numbers" if dtype is None else f"hold numbers that fit into {dtype}"
        raise TypeError(expected(function, argument, must, type(value).__name__)) from None
    if native.dtype.kind == "O" and all(isinstance(item, int) for item in native.flat):
        raise OverflowError(expected(function, argument, "hold integers of at most 64 bits", "a larger one"))
    if native.dtype.kind not in "biufc":
        raise UnheldError(expected(function, argument, "hold numbers or booleans", f"{native.dtype} elements"))
    return _constant(native, device)


def _constant(native: Native, device: Device | None) -> Tensor:
    """Return an array made from Python constants as a tensor."""
    x = from_native(native, device)
    if not watchers or watching() is None:
        return x
    own = x._content if isinstance(x._content, np.ndarray) else x.native()
    return created(own, x.device)


def chosen_device(device: DeviceLike, function: str) -> Device:
    """Return a device by its name; None is the one that the option `device` names."""
    if device is None:
        device = settings().device
        found = known_devices.get(device)
        if found is not None:  # the commonest case of all
            return found
    return as_device(device, function)


def one_correction(function: str, ddof: float | None, correction: float | None) -> float:
    """Return the number to subtract from the count of elements, which NumPy also calls ddof; 0 where neither is given.
    Raises ValueError for both.
    """
    if ddof and correction is not None:
        raise ValueError(expected(function, "correction", "not be given beside ddof, its other name", correction))
    return ddof or correction or 0.0


def common_device(function: str, operands: Iterable[Any]) -> Device:
    """Return the one device of all tensors among the operands; raises ValueError naming two that differ."""
    found: Device | None = None
    for operand in operands:
        if isinstance(operand, Tensor):
            if found is None:
                found = operand.device
            elif operand.device is not found and operand.device != found:
                raise ValueError(mismatch(function, f"on {found}", f"on {operand.device}", "devices differ"))
    return found or chosen_device(None, function)


def broadcast(function: str, operands: Iterable[Any]) -> Shape:
    """Return the shape operands broadcast to; raises ValueError naming the function and the shapes."""
    try:
        return broadcast_shapes(*(x.shape for x in operands if isinstance(x, Tensor)))
    except ValueError as error:
        raise ValueError(f"{function}: {error}") from None

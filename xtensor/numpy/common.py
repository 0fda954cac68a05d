"""Helpers of all of NumPy's functions: operands as tensors, results under `out=`, and elements left out by `where=`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy

from ..autograd.rules import xt
from ..autograd.tape import active, differentiable, steps_of
from ..base.dtypes import can_hold
from ..base.errors import UnheldError, check_choice, expected
from ..base.layout import as_axis
from ..graph.number import Number
from ..storage.storage import refuse_capture
from ..tensor.face import Tensor, created
from ..tensor.operands import chosen_device, is_derived
from ..tensor.scalars import is_value, marked

# The names in xtensor of functions that have other names in NumPy.
SPELLED = {
    "absolute": "abs",
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctan2": "atan2",
    "arctanh": "atanh",
    "conjugate": "conj",
    "invert": "bitwise_invert",
    "bitwise_not": "bitwise_invert",
    "left_shift": "bitwise_left_shift",
    "right_shift": "bitwise_right_shift",
    "mod": "remainder",
    "power": "pow",
    "true_divide": "divide",
    "amax": "max",
    "amin": "min",
    "around": "round",
    "array": "asarray",
    "concatenate": "concat",
    "cumsum": "cumulative_sum",
    "cumprod": "cumulative_prod",
    "transpose": "permute_dims",
    "fix": "trunc",
}


def answers_itself(x: Any) -> bool:
    """Return whether an operand belongs to another library that makes NumPy's functions call its own, or is an array
    that no tensor holds.
    """
    kind = type(x)
    if kind is numpy.ndarray:
        return not can_hold(x.dtype)
    if isinstance(x, (Tensor, numpy.generic)) or kind is Number:
        return False
    own = getattr(kind, "__array_ufunc__", None)
    if own is None:
        return _has_methods_alone(kind)
    return own is not numpy.ndarray.__array_ufunc__ or is_derived(kind)


def _has_methods_alone(kind: type) -> bool:
    """Return whether objects of this type neither are arrays nor become ones, but have methods that NumPy's functions
    call: SciPy's sparse arrays, which ask to be asked first by `__array_priority__`.
    """
    return hasattr(kind, "__array_priority__") and not hasattr(kind, "__array__")


def as_natives(x: Any) -> Any:
    """Return an argument with arrays in place of its tensors."""
    if isinstance(x, Tensor):
        return numpy.asarray(x)[()] if is_value(x) else numpy.asarray(x)
    return type(x)(map(as_natives, x)) if type(x) in (list, tuple) else x


def own_answer(native: Callable[..., Any], *args: Any, **given: Any) -> Any:
    """Return the result of NumPy's function for an operand that answers itself: a Series, for instance, or arrays,
    which become tensors. It may depend on anything, so a function that does this is not captured.
    """
    native = getattr(native, "library", native)
    refuse_capture(native.__name__)
    given_all = [*args, *given.values()]
    taken = [as_natives(x) for x in given_all]
    found = native(*taken[: len(args)], **dict(zip(given, taken[len(args) :], strict=True)))
    for x, one in zip(given_all, taken, strict=True):
        if found is one and type(x) is Tensor:  # `out`, which was written
            return x
    return as_tensors(found)


def as_tensors(found: Any) -> Any:
    """Return a result of NumPy's with tensors in place of its arrays, but for those that no tensor holds."""
    if isinstance(found, (list, tuple)):
        parts = [as_tensors(one) for one in found]
        return type(found)(*parts) if hasattr(found, "_fields") else type(found)(parts)
    is_scalar = isinstance(found, numpy.generic)
    if not (is_scalar or type(found) is numpy.ndarray) or not can_hold(found.dtype):
        return found  # a matrix stays one
    return marked(xt.asarray(found), is_scalar)


def as_array(x: Any, function: str = "asarray", device: Any = None) -> Tensor:
    """Return a value as a tensor, as NumPy's functions accept it: a tensor, array, number or nested sequence.

    device: the target, None for the default one; a tensor stays where it is.
    """
    if type(x) is Tensor:
        return x
    refuse_derived(x, function)
    return xt.asarray(x, device=device)


def refuse_derived(x: Any, function: str) -> None:
    """Raise UnheldError for an array whose class changes what it does: NumPy's function is to be called with it."""
    if is_derived(type(x)):
        raise UnheldError(expected(function, "an operand", "be a mere array", type(x).__name__))


def array_of_any(x: Any) -> Any:
    """Return an array of any object, to ask for its shape and dtype; None, text and the like have no axes. What is no
    array and has a shape, such as SciPy's sparse arrays, is asked itself.
    """
    if _has_methods_alone(type(x)) and hasattr(x, "shape"):
        return x
    try:
        return as_array(x)
    except TypeError:
        return numpy.asarray(x)


def as_arrays(function: str, *values: Any) -> tuple[Tensor, ...]:
    """Return values as tensors, with each Python number in its own default dtype."""
    return tuple([as_array(x, function) for x in values])


def beside(function: str, *values: Any) -> tuple[Tensor, ...]:
    """Return values as tensors, with Python numbers in the dtype that they have in combination with the others."""
    arrays = [x for x in values if not isinstance(x, (bool, int, float, complex))]
    if not arrays or len(arrays) == len(values):
        return tuple([as_array(x, function) for x in values])
    kinds = [as_array(x, function) for x in arrays]
    return tuple(
        [
            xt.asarray(x, dtype=xt.result_type(*kinds, x), device=kinds[0].device)
            if isinstance(x, (bool, int, float, complex))
            else as_array(x, function)
            for x in values
        ]
    )


def numbers(x: Any, function: str) -> Tensor:
    """Return a value as a floating tensor: booleans and integers as float64."""
    found = as_array(x, function)
    return found if found.dtype.kind in "fc" else xt.astype(found, xt.float64)


def flattened(x: Any, axis: Any, function: str, *, lone: bool = True) -> tuple[Tensor, Any]:
    """Return an array and an axis of it: the flattened array where NumPy's axis is None. lone: whether NumPy also
    treats a 0-d array as a row.
    """
    found = as_array(x, function)
    axis = lone_axis(found, axis) if lone else axis
    return (found.ravel(), 0) if axis is None else (found, as_axis(axis, found.ndim, function))


def memory_order(order: Any, function: str, others: str = "") -> str:
    """Return a memory order as NumPy's letter: C (also for None), F, or one of the others."""
    letter = "C" if order is None else order.upper() if isinstance(order, str) else order
    check_choice(function, "order", letter, ("C", "F", *others))
    return cast(str, letter)


def axes_of(axis: Any) -> Any:
    """Return axes, or other integers by axis, as the standard has them: any iterable of integers as a tuple."""
    if axis is None or isinstance(axis, (int, numpy.integer, tuple)):
        return axis
    try:
        return tuple([one.__index__() for one in axis])
    except (AttributeError, TypeError):
        return axis  # a single integer, or what the standard's function refuses


def lone_axis(x: Tensor, axis: Any) -> Any:
    """Return the axis, or None for axis 0 or -1 of a 0-d array, which NumPy accepts."""
    return None if not x.ndim and isinstance(axis, (int, numpy.integer)) and axis in (0, -1) else axis


@differentiable(same=lambda g, like: xt.astype(g, like.dtype, copy=False))
def with_slope(value: Tensor, same: Tensor) -> Tensor:
    """Return a value with the gradient of another value that is equal except for rounding."""
    return cast(Tensor, xt.positive(value))


def has_gradient(*tensors: Tensor) -> bool:
    """Return whether gradients are recorded for any of the tensors."""
    return active[0] and steps_of(tensors) is not None


def constant(native: Any) -> Tensor:
    """Return a tensor on the default device over a fresh array whose elements depend on Python constants alone."""
    return created(native, chosen_device(None, "asarray"))


def give(function: str, result: Tensor, out: Any, where: Any = True, casting: str = "same_kind") -> Tensor:
    """Return a result, written into `out` if there is one; elements that `where` leaves out keep their values."""
    if isinstance(out, tuple) and len(out) == 1:
        (out,) = out
    if out is None:
        return result
    if isinstance(out, numpy.ndarray) and result.device == "cpu" and not has_gradient(result):
        give(function, result, xt.asarray(out, copy=False), where, casting)
        return cast(Tensor, out)
    if not isinstance(out, Tensor):
        raise TypeError(expected(function, "out", "be a tensor", type(out).__name__))
    if out.shape != result.shape:
        raise ValueError(expected(function, "out", f"have the result's shape {result.shape}", f"shape {out.shape}"))
    if result.dtype is not out.dtype and not numpy.can_cast(result.dtype, out.dtype, casting=casting):  # type: ignore[arg-type]
        raise TypeError(expected(function, "out", f"hold {result.dtype} (casting={casting!r})", out.dtype))
    out[...] = result if where is True else xt.where(as_mask(where, function), result, out)
    return out


def as_condition(where: Any) -> Tensor:
    """Return a condition as a boolean tensor."""
    found = as_array(where, "where")
    return found if found.dtype.kind == "b" else found != 0


def as_mask(where: Any, function: str) -> Tensor:
    """Return the argument `where` of a function as a boolean tensor; raises TypeError for an array of numbers."""
    if isinstance(where, (int, float, list, tuple)):
        return xt.asarray(where, dtype=xt.bool)
    found = as_array(where, function)
    if found.dtype.kind != "b":
        raise TypeError(expected(function, "where", "be boolean", found.dtype))
    return found

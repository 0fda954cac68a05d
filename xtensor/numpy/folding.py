"""Reductions and running folds under NumPy's signatures, those that skip NaNs included."""

from __future__ import annotations

from typing import Any, cast

import numpy

from ..autograd.rules import xt
from ..autograd.tape import differentiable
from ..base.dtypes import real_of
from ..base.errors import UnheldError, expected
from ..base.layout import as_axes
from ..storage.storage import watchers, watching
from ..tensor.face import Tensor
from .common import answers_itself, as_array, as_condition, as_mask, flattened, give, lone_axis
from .door import through
from .ufuncs import folded


def sum(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = True,
) -> Tensor:
    if _is_of_kind(dtype, "b"):
        given = {"initial": initial} if initial is not None else {}
        return _by_library("sum", a, axis, dtype, out, keepdims, where, given)
    return folded("sum", a, axis, out, keepdims, initial, where, dtype=dtype)


def prod(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = True,
) -> Tensor:
    if _is_of_kind(dtype, "b"):
        given = {"initial": initial} if initial is not None else {}
        return _by_library("prod", a, axis, dtype, out, keepdims, where, given)
    return folded("prod", a, axis, out, keepdims, initial, where, dtype=dtype)


def _is_of_kind(dtype: Any, kinds: str) -> bool:
    """Return whether a dtype is given and of one of some kinds."""
    return dtype is not None and numpy.dtype(dtype).kind in kinds


def _by_library(
    name: str, a: Any, axis: Any, dtype: Any, out: Any, keepdims: bool, where: Any, given: dict[str, Any]
) -> Tensor:
    """Return a reduction that is computed in a dtype in which only the library does."""
    given |= {"dtype": dtype, "out": out, "keepdims": keepdims, "where": where}
    return cast(Tensor, through(name, None, (a, axis), given))


def max(
    a: Any, axis: Any = None, out: Any = None, keepdims: bool = False, initial: Any = None, where: Any = True
) -> Tensor:
    return folded("max", a, axis, out, keepdims, initial, where)


def min(
    a: Any, axis: Any = None, out: Any = None, keepdims: bool = False, initial: Any = None, where: Any = True
) -> Tensor:
    return folded("min", a, axis, out, keepdims, initial, where)


def _condition(a: Any) -> Any:
    """Return an argument as a boolean tensor, but for one that answers itself, or that no tensor holds."""
    if type(a) is not Tensor and answers_itself(a):
        return a
    try:
        return as_condition(a)
    except UnheldError:
        return a


def all(a: Any, axis: Any = None, out: Any = None, keepdims: bool = False, *, where: Any = True) -> Tensor:
    return folded("all", _condition(a), axis, out, keepdims, None, where)


def any(a: Any, axis: Any = None, out: Any = None, keepdims: bool = False, *, where: Any = True) -> Tensor:
    return folded("any", _condition(a), axis, out, keepdims, None, where)


def argmax(a: Any, axis: int | None = None, out: Any = None, *, keepdims: bool = False) -> Tensor:
    x = as_array(a, "argmax")
    return give("argmax", xt.argmax(x, axis=lone_axis(x, axis), keepdims=keepdims), out)


def argmin(a: Any, axis: int | None = None, out: Any = None, *, keepdims: bool = False) -> Tensor:
    x = as_array(a, "argmin")
    return give("argmin", xt.argmin(x, axis=lone_axis(x, axis), keepdims=keepdims), out)


def count_nonzero(a: Any, axis: Any = None, *, keepdims: bool = False) -> Tensor:
    x = as_array(a, "count_nonzero")
    return xt.count_nonzero(x, axis=lone_axis(x, axis), keepdims=keepdims)


def ptp(a: Any, axis: Any = None, out: Any = None, keepdims: bool = False) -> Tensor:
    return give("ptp", max(a, axis, keepdims=keepdims) - min(a, axis, keepdims=keepdims), out)


# ---- means and deviations


def mean(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False, *, where: Any = True
) -> Tensor:
    if _is_of_kind(dtype, "biu"):
        return _by_library("mean", a, axis, dtype, out, keepdims, where, {})
    if where is True:
        return folded("mean", a, axis, out, keepdims, dtype=dtype)
    x, where = _computed_as(as_array(a, "mean"), dtype), as_mask(where, "mean")
    return give("mean", sum(x, axis, keepdims=keepdims, where=where) / _count(x, where, axis, keepdims), out)


def _computed_as(x: Tensor, dtype: Any) -> Tensor:
    """Return an array in the dtype in which NumPy takes its mean."""
    return xt.astype(x, numpy.dtype(dtype or (x.dtype if x.dtype.kind in "fc" else xt.float64)), copy=False)


def _count(x: Tensor, where: Any, axis: Any, keepdims: bool) -> Tensor:
    """Return how many elements `where` leaves along axes, in the real dtype of x."""
    counted = xt.broadcast_to(as_condition(where), x.shape)
    return xt.astype(xt.count_nonzero(counted, axis=axis, keepdims=keepdims), real_of(x.dtype))


def _correction(function: str, ddof: Any, correction: Any) -> float:
    """Return what is given of a correction and ddof, its other name."""
    is_given = correction is not numpy._NoValue
    if is_given and ddof != 0:
        raise ValueError(expected(function, "correction", "not be given beside ddof, its other name", correction))
    found = correction if is_given else ddof
    if found is None:
        raise TypeError(expected(function, "correction" if is_given else "ddof", "be a real number", found))
    return cast(float, found)


def var(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    where: Any = True,
    mean: Any = None,
    correction: Any = numpy._NoValue,
) -> Tensor:
    correction = _correction("var", ddof, correction)
    if _is_of_kind(dtype, "biu"):
        return _by_library("var", a, axis, dtype, out, keepdims, where, _spread(correction, mean))
    return give("var", _variance(a, axis, dtype, correction, keepdims, where, mean), out, casting="unsafe")


def std(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    where: Any = True,
    mean: Any = None,
    correction: Any = numpy._NoValue,
) -> Tensor:
    correction = _correction("std", ddof, correction)
    if _is_of_kind(dtype, "biu"):
        return _by_library("std", a, axis, dtype, out, keepdims, where, _spread(correction, mean))
    x = _computed_as(as_array(a, "std"), dtype)
    if where is True and mean is None and x.dtype.kind != "c" and _freedom(x, axis, correction):
        return give("std", xt.std(x, axis=axis, correction=correction, keepdims=bool(keepdims)), out)
    return give("std", _deviation(_variance(x, axis, dtype, correction, keepdims, where, mean)), out)


@differentiable(variance=lambda g, y: xt.where(y == 0, 0, g / xt.where(y == 0, 1, 2 * y)))
def _deviation(variance: Tensor) -> Tensor:
    """Return the root of a variance; its slope is 0 where all elements are equal, as that of `xt.std`."""
    return xt.sqrt(variance)


def _spread(correction: float, mean: Any) -> dict[str, Any]:
    """Return the arguments that only deviations have."""
    return {"ddof": correction} | ({} if mean is None else {"mean": mean})


def _variance(a: Any, axis: Any, dtype: Any, correction: float, keepdims: bool, where: Any, centre: Any) -> Tensor:
    """Return a variance, which is real except where a complex dtype is asked for, as in NumPy."""
    x = as_array(a, "var")
    freedom = _freedom(x, axis, correction) if where is True else None
    if freedom and centre is None and x.dtype.kind != "c":
        found = xt.var(_computed_as(x, dtype), axis=axis, correction=correction, keepdims=bool(keepdims))
        return xt.astype(found, dtype) if _is_of_kind(dtype, "c") else found
    x, where = _computed_as(x, dtype), where if where is True else as_mask(where, "var")
    if centre is None:
        centre = mean(x, axis, keepdims=True, where=where)
    distance = x - centre
    square = xt.real(distance * xt.conj(distance)) if x.dtype.kind == "c" else distance * distance
    square = xt.astype(square, dtype) if _is_of_kind(dtype, "c") else square
    divisor = xt.maximum(_count(x, where, axis, keepdims) - correction, 0) if freedom is None else freedom
    return sum(square, axis, keepdims=keepdims, where=where) / divisor


def _freedom(x: Tensor, axis: Any, correction: float) -> float:
    """Return the divisor of a variance, which NumPy makes 0 where it is negative."""
    size: int = xt.standard.statistical.size_along(x, as_axes(axis, x.ndim, "var"))
    return size - correction if size > correction else 0.0


def average(a: Any, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: bool = False) -> Any:
    x = as_array(a, "average")
    if weights is None:
        result = mean(x, axis, keepdims=keepdims)
        axes = as_axes(axis, x.ndim, "average")
        total: Any = xt.full(result.shape, float(numpy.prod([x.shape[one] for one in axes])), dtype=result.dtype)
        return (result, total) if returned else result
    weights = _spread_weights(x, as_array(weights, "average"), axis)
    dtype = xt.result_type(x.dtype, weights.dtype, *(() if x.dtype.kind in "fc" else (xt.float64,)))
    weights = xt.astype(weights, dtype, copy=False)
    total = sum(weights, axis, keepdims=keepdims)
    capture = watching() if watchers else None
    known = capture is not None and capture.holds(_check_no_zero, total.blob, "average")
    if not known and bool(xt.any(total == 0)):
        raise ZeroDivisionError("Weights sum to zero, can't be normalized")
    result = sum(xt.astype(x, dtype, copy=False) * weights, axis, keepdims=keepdims) / total
    return (result, xt.broadcast_to(total, result.shape).copy()) if returned else result


def _check_no_zero(total: Any) -> None:
    """Raise ValueError if a sum of weights is zero: the call is a plain one then, which raises NumPy's error."""
    if not total.all():
        raise ValueError("Weights sum to zero, can't be normalized")


def _spread_weights(x: Tensor, weights: Tensor, axis: Any) -> Tensor:
    """Return weights in an array's shape; they may be given for some of its axes only."""
    if weights.shape == x.shape:
        return weights
    if axis is None:
        raise TypeError("Axis must be specified when shapes of a and weights differ.")
    axes = as_axes(axis, x.ndim, "average")
    if weights.shape != tuple(x.shape[one] for one in axes):
        raise ValueError("Shape of weights must be consistent with shape of a along specified axis.")
    order = sorted(range(len(axes)), key=lambda place: axes[place])
    weights = xt.permute_dims(weights, tuple(order))
    shape = tuple(n if a in axes else 1 for a, n in enumerate(x.shape))
    return xt.broadcast_to(xt.reshape(weights, shape), x.shape)


# ---- running folds


def cumsum(a: Any, axis: int | None = None, dtype: Any = None, out: Any = None) -> Tensor:
    x, axis = flattened(a, axis, "cumsum")
    return give("cumsum", xt.cumulative_sum(x, axis=axis, dtype=dtype), out, casting="unsafe")


def cumprod(a: Any, axis: int | None = None, dtype: Any = None, out: Any = None) -> Tensor:
    x, axis = flattened(a, axis, "cumprod")
    return give("cumprod", xt.cumulative_prod(x, axis=axis, dtype=dtype), out, casting="unsafe")


def cumulative_sum(
    x: Any, /, *, axis: int | None = None, dtype: Any = None, out: Any = None, include_initial: bool = False
) -> Tensor:
    x = as_array(x, "cumulative_sum")
    x, axis = flattened(x, axis, "cumulative_sum") if axis is not None or not x.ndim else (x, None)
    return give("cumulative_sum", xt.cumulative_sum(x, axis=axis, dtype=dtype, include_initial=include_initial), out)


def cumulative_prod(
    x: Any, /, *, axis: int | None = None, dtype: Any = None, out: Any = None, include_initial: bool = False
) -> Tensor:
    x = as_array(x, "cumulative_prod")
    x, axis = flattened(x, axis, "cumulative_prod") if axis is not None or not x.ndim else (x, None)
    return give("cumulative_prod", xt.cumulative_prod(x, axis=axis, dtype=dtype, include_initial=include_initial), out)


# ---- folds that skip NaNs


def _without_nans(a: Any, value: float, dtype: Any = None) -> tuple[Tensor, Any]:
    """Return an array with a number in place of NaNs, and a mask of the others; True if the dtype has no NaNs.

    dtype: that of a mean or a deviation, which must be inexact then.
    """
    x = as_array(a)
    if x.dtype.kind not in "fc":
        return x, True
    if _is_of_kind(dtype, "biu"):
        raise TypeError("If a is inexact, then dtype must be inexact")
    there = xt.logical_not(xt.isnan(x))
    return xt.where(there, x, xt.asarray(value, dtype=x.dtype, device=x.device)), there


def _both(name: str, there: Any, where: Any) -> Any:
    if where is True:
        return there
    return as_mask(where, name) if there is True else xt.logical_and(there, as_mask(where, name))


def nansum(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = True,
) -> Tensor:
    return sum(_without_nans(a, 0)[0], axis, dtype, out, keepdims, initial, where)


def nanprod(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = True,
) -> Tensor:
    return prod(_without_nans(a, 1)[0], axis, dtype, out, keepdims, initial, where)


def nancumsum(a: Any, axis: int | None = None, dtype: Any = None, out: Any = None) -> Tensor:
    return cumsum(_without_nans(a, 0)[0], axis, dtype, out)


def nancumprod(a: Any, axis: int | None = None, dtype: Any = None, out: Any = None) -> Tensor:
    return cumprod(_without_nans(a, 1)[0], axis, dtype, out)


def _extreme(name: str, a: Any, axis: Any, out: Any, keepdims: bool, initial: Any, where: Any) -> Tensor:
    """Return the largest or smallest number that is not NaN; NaN if there is none."""
    worst = -numpy.inf if name == "max" else numpy.inf
    x, there = _without_nans(a, worst)
    result = folded(name, x, axis, None, keepdims, initial, where)
    if there is not True:
        none = xt.logical_not(xt.any(there, axis=lone_axis(there, axis), keepdims=keepdims))
        result = result if initial is not None else xt.where(none, xt.asarray(numpy.nan, dtype=x.dtype), result)
    return give(f"nan{name}", result, out, casting="unsafe")


def nanmax(
    a: Any, axis: Any = None, out: Any = None, keepdims: bool = False, initial: Any = None, where: Any = True
) -> Tensor:
    return _extreme("max", a, axis, out, keepdims, initial, where)


def nanmin(
    a: Any, axis: Any = None, out: Any = None, keepdims: bool = False, initial: Any = None, where: Any = True
) -> Tensor:
    return _extreme("min", a, axis, out, keepdims, initial, where)


def _place(name: str, a: Any, axis: Any, out: Any, keepdims: bool, worst: float) -> Tensor:
    x, there = _without_nans(a, worst)
    axis = lone_axis(x, axis)
    if there is not True and not bool(xt.all(xt.any(there, axis=axis))):
        raise ValueError("All-NaN slice encountered")
    return give(f"nan{name}", getattr(xt, name)(x, axis=axis, keepdims=keepdims), out, casting="unsafe")


def nanargmax(a: Any, axis: int | None = None, out: Any = None, *, keepdims: bool = False) -> Tensor:
    return _place("argmax", a, axis, out, keepdims, -numpy.inf)


def nanargmin(a: Any, axis: int | None = None, out: Any = None, *, keepdims: bool = False) -> Tensor:
    return _place("argmin", a, axis, out, keepdims, numpy.inf)


def nanmean(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False, *, where: Any = True
) -> Tensor:
    x, there = _without_nans(a, 0, dtype)
    axis = axis if there is True else lone_axis(x, axis)
    return mean(x, axis, dtype, out, keepdims, where=_both("nanmean", there, where))


def nanvar(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    where: Any = True,
    mean: Any = None,
    correction: Any = numpy._NoValue,
) -> Tensor:
    x, there = _without_nans(a, 0, dtype)
    where, ddof = _both("nanvar", there, where), _correction("nanvar", ddof, correction)
    axis = axis if there is True else lone_axis(x, axis)
    result = _variance(x, axis, dtype, ddof, keepdims, where, mean)
    enough = True if where is True else _count(_computed_as(x, dtype), where, axis, keepdims) > ddof
    return give("nanvar", result if enough is True else xt.where(enough, result, numpy.nan), out)


def nanstd(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    where: Any = True,
    mean: Any = None,
    correction: Any = numpy._NoValue,
) -> Tensor:
    variance = nanvar(a, axis, dtype, None, ddof, keepdims, where=where, mean=mean, correction=correction)
    return give("nanstd", _deviation(variance), out)

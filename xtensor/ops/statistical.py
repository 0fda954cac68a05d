"""Statistical functions (standard section of that name): reductions, one row each, and cumulative ones.

Every reduction takes `axis` (None: all axes, an integer or a tuple) and `keepdims` (reduced axes stay, with
length 1), and returns a new array without the reduced axes.
"""

from __future__ import annotations

from collections.abc import Callable
from math import nan
from math import prod as prod_of
from typing import Any

import numpy as np

from ..doors import reduction
from ..dtypes import FLOATING, NUMERIC, REAL, DType, canonical, float64
from ..errors import expected
from ..layout import as_axis
from ..op import as_tensor, on
from ..tensor import Tensor
from .casting import astype
from .elementwise import divide, multiply, sqrt, subtract

__all__ = [
    "cumulative_prod",
    "cumulative_sum",
    "max",
    "mean",
    "min",
    "prod",
    "std",
    "sum",
    "var",
]

Axis = int | tuple[int, ...] | None


def _mean_of(x: Tensor, params: dict[str, Any]) -> Tensor:
    """The mean as a sum and a quotient, so that it fuses with what surrounds it."""
    return _quotient(sum(x, axis=params["axis"], keepdims=params["keepdims"]), _count(x, params["axis"]))


def _var_of(x: Tensor, params: dict[str, Any]) -> Tensor | None:
    """The variance as the mean squared distance from the mean; None where the divisor is not positive."""
    divisor = _count(x, params["axis"]) - params["correction"]
    if not divisor > 0:
        return None
    distance = subtract(x, _mean_of(x, {"axis": params["axis"], "keepdims": True}))
    return _quotient(sum(multiply(distance, distance), axis=params["axis"], keepdims=params["keepdims"]), divisor)


def _std_of(x: Tensor, params: dict[str, Any]) -> Tensor | None:
    variance = _var_of(x, params)
    return None if variance is None else sqrt(variance)


def _quotient(total: Tensor, divisor: float) -> Tensor:
    """Divide as NumPy does: in float64, whose quotient is then rounded to the dtype.

    Where float32 holds the divisor exactly, its own quotient is the same.
    """
    if total.dtype == float64 or float(np.float32(divisor)) == divisor:
        return divide(total, float(divisor))
    return astype(divide(astype(total, float64), float(divisor)), total.dtype)


def _count(x: Tensor, axes: tuple[int, ...]) -> int:
    return prod_of(x.shape[axis] for axis in axes)


@reduction(REAL)
def max(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return the largest element; NaN if there is one. Raises ValueError where there are no elements."""
    ...


@reduction(FLOATING, of_nothing=nan, composed=_mean_of)
def mean(x: Tensor, /, *, axis: Axis = None, dtype: DType | None = None, keepdims: bool = False) -> Tensor:
    """Return the arithmetic mean, computed as `dtype`; of integers as float64; NaN over no elements."""
    ...


@reduction(REAL)
def min(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return the smallest element; NaN if there is one. Raises ValueError where there are no elements."""
    ...


@reduction(NUMERIC, of_nothing=1)
def prod(x: Tensor, /, *, axis: Axis = None, dtype: DType | None = None, keepdims: bool = False) -> Tensor:
    """Return the product; small integers are multiplied as int64 or uint64 unless `dtype` says otherwise."""
    ...


@reduction(FLOATING, of_nothing=nan, composed=_std_of)
def std(
    x: Tensor, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False, ddof: float | None = None
) -> Tensor:
    """Return the standard deviation with divisor N - correction; NaN where that is not positive.

    ddof: NumPy's name for correction.
    """
    ...


@reduction(NUMERIC, of_nothing=0)
def sum(x: Tensor, /, *, axis: Axis = None, dtype: DType | None = None, keepdims: bool = False) -> Tensor:
    """Return the sum; small integers are added as int64 or uint64 unless `dtype` says otherwise."""
    ...


@reduction(FLOATING, of_nothing=nan, composed=_var_of)
def var(
    x: Tensor, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False, ddof: float | None = None
) -> Tensor:
    """Return the variance with divisor N - correction; NaN where that is not positive.

    ddof: NumPy's name for correction.
    """
    ...


def cumulative_sum(
    x: Tensor, /, *, axis: int | None = None, dtype: DType | None = None, include_initial: bool = False
) -> Tensor:
    """Return the running sums along an axis, beginning with 0 if `include_initial`.

    axis may be None only for one axis. Small integers are added as int64 or uint64 unless `dtype` says
    otherwise. Raises ValueError or AxisError. Standard: Statistical Functions, cumulative_sum.
    """
    return _cumulative("cumulative_sum", x, axis, dtype, include_initial)


def cumulative_prod(
    x: Tensor, /, *, axis: int | None = None, dtype: DType | None = None, include_initial: bool = False
) -> Tensor:
    """Return the running products along an axis, beginning with 1 if `include_initial`.

    axis may be None only for one axis. Small integers are multiplied as int64 or uint64 unless `dtype` says
    otherwise. Raises ValueError or AxisError. Standard: Statistical Functions, cumulative_prod.
    """
    return _cumulative("cumulative_prod", x, axis, dtype, include_initial)


def _cumulative(name: str, x: Any, axis: int | None, dtype: Any, include_initial: bool) -> Tensor:
    x = as_tensor(x, name)
    if axis is None and x.ndim != 1:
        raise ValueError(expected(name, "axis", "be given unless x has 1 axis", f"shape {x.shape}"))
    along = as_axis(0 if axis is None else axis, x.ndim, name)
    target = None if dtype is None else canonical(dtype, name)

    def run(xp: Any, a: Any) -> Any:
        function: Callable[..., Any] = getattr(xp, name)
        return function(a, axis=along, dtype=target, include_initial=include_initial)

    return on(x, name, run)

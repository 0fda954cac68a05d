"""Statistical functions (standard section of that name): reductions, one row each, and cumulative ones.

Every reduction takes `axis` (None: all axes, an integer or a tuple) and `keepdims` (reduced axes stay, with
length 1), and returns a new array without the reduced axes.
"""

from __future__ import annotations

from collections.abc import Callable
from math import nan
from typing import Any

from ..dtypes import FLOATING, NUMERIC, REAL, DType, canonical
from ..errors import expected
from ..layout import as_axis
from ..op import as_tensor, on, reduction
from ..tensor import Tensor

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


@reduction(REAL)
def max(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return the largest element; NaN if there is one. Raises ValueError where there are no elements."""
    ...


@reduction(FLOATING, of_nothing=nan)
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


@reduction(FLOATING, of_nothing=nan)
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


@reduction(FLOATING, of_nothing=nan)
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

"""Statistical functions (standard section of that name): reductions, one row each, and cumulative ones.

Every reduction takes `axis` (None: all axes; an integer or a tuple) and `keepdims` (reduced axes stay, with length 1),
and returns a new array without the reduced axes.
"""

from __future__ import annotations

from math import nan
from math import prod as prod_of
from operator import attrgetter
from typing import Any

import numpy as np

from ..autograd.rules import Like, xt
from ..autograd.tape import differentiable
from ..base.dtypes import FLOATING, NUMERIC, REAL, DType, canonical, float16, float64, promote
from ..base.errors import expected
from ..base.layout import as_axes, as_axis
from ..calls.library import on, thin_call
from ..calls.rows import reduction
from ..plan.costs import DIRECT_BELOW
from ..tensor.face import Tensor, thin_arrays
from ..tensor.operands import as_tensor
from .casting import astype
from .elementwise import divide, multiply, sqrt, subtract

__all__ = ["cumulative_prod", "cumulative_sum", "max", "mean", "min", "prod", "std", "sum", "var"]

Axis = int | tuple[int, ...] | None


def _mean_of(x: Tensor, params: dict[str, Any]) -> Tensor:
    """The mean as a sum and a quotient, so that it can be fused with other steps."""
    return _quotient(sum(x, axis=params["axis"], keepdims=params["keepdims"]), size_along(x, params["axis"]))


def _var_of(x: Tensor, params: dict[str, Any]) -> Tensor | None:
    """The variance as the mean squared distance from the mean; None for complex numbers, and if the divisor is not
    positive.
    """
    divisor = size_along(x, params["axis"]) - params["correction"]
    if x.dtype.kind == "c" or not divisor > 0:
        return None
    distance = subtract(x, _mean_of(x, {"axis": params["axis"], "keepdims": True}))
    return _quotient(sum(multiply(distance, distance), axis=params["axis"], keepdims=params["keepdims"]), divisor)


def _std_of(x: Tensor, params: dict[str, Any]) -> Tensor | None:
    variance = _var_of(x, params)
    return None if variance is None else sqrt(variance)


def _quotient(total: Tensor, divisor: float) -> Tensor:
    """Divide as NumPy does: in double precision, and round the quotient to the dtype.

    If float32 holds the divisor exactly, a quotient in float32 is the same, except for complex numbers.
    """
    exact = (type(divisor) is int and divisor <= 1 << 24) or float(np.float32(divisor)) == divisor
    exact = exact and total.dtype != float16
    wide = promote(total.dtype, float64)
    if total.dtype == wide or (exact and total.dtype.kind == "f"):
        return divide(total, float(divisor))
    return astype(divide(astype(total, wide), float(divisor)), total.dtype)


def size_along(x: Tensor | Like, axes: tuple[int, ...]) -> int:
    """Return the number of elements along some axes."""
    return prod_of(x.shape[axis] for axis in axes)


# ---- derivatives


def spread(g: Tensor, like: Like | Tensor, axis: Axis, keepdims: bool) -> Tensor:
    """Return a value for each element of a reduction's result in a shape that broadcasts against its operand."""
    if keepdims or not g.shape:  # it broadcasts already
        return g
    axes = as_axes(axis, like.ndim, "grad")
    return g if len(axes) == like.ndim else xt.expand_dims(g, axis=axes)


def _share_of_mean(g: Tensor, like: Like, axis: Axis, keepdims: bool) -> Tensor:
    g, count = spread(g, like, axis, keepdims), size_along(like, as_axes(axis, like.ndim, "mean"))
    return _quotient(g, count) if g.dtype == float16 else g / float(count)


def _chosen(g: Tensor, x: Tensor, y: Tensor, axis: Axis, keepdims: bool) -> Tensor:
    """The cotangent at the elements that were chosen, shared among ties; if there is a NaN, that was chosen."""
    chosen = xt.logical_or(x == spread(y, x, axis, keepdims), x != x)
    ties = xt.sum(astype(chosen, g.dtype), axis=axis, keepdims=True)
    return xt.where(chosen, spread(g, x, axis, keepdims) / ties, 0)


def _of_variance(g: Tensor, x: Tensor, axis: Axis, correction: float, keepdims: bool) -> Tensor:
    divisor = size_along(x, as_axes(axis, x.ndim, "var")) - correction
    distance = x - mean(x, axis=axis, keepdims=True)
    return spread(g, x, axis, keepdims) * distance * (2.0 / divisor if divisor > 0 else nan)


def _of_deviation(g: Tensor, x: Tensor, y: Tensor, axis: Axis, correction: float, keepdims: bool) -> Tensor:
    """The rule of the variance over twice the deviation; 0 where all elements are equal."""
    zero = y == 0
    return _of_variance(xt.where(zero, 0, g / (2 * xt.where(zero, 1, y))), x, axis, correction, keepdims)


def _product_of_others(x: Tensor, axis: Axis, dtype: DType | None) -> Tensor:
    """The product of all other elements along the axes, also if some are zero."""
    axes = as_axes(axis, x.ndim, "prod")
    others = tuple(a for a in range(x.ndim) if a not in axes)
    order = (*others, *axes)
    moved = xt.permute_dims(x if dtype is None else astype(x, dtype), order)
    rows = xt.reshape(moved, (*moved.shape[: len(others)], size_along(x, axes)))
    before = xt.cumulative_prod(rows, axis=-1, include_initial=True)[..., :-1]
    after = xt.flip(xt.cumulative_prod(xt.flip(rows, axis=-1), axis=-1, include_initial=True)[..., :-1], axis=-1)
    back = tuple(order.index(a) for a in range(x.ndim))
    return xt.permute_dims(xt.reshape(before * after, moved.shape), back)


def _of_product(g: Tensor, x: Tensor, axis: Axis, dtype: DType | None, keepdims: bool) -> Tensor:
    others = _product_of_others(x, axis, dtype)
    return spread(g, x, axis, keepdims) * (xt.conj(others) if others.dtype.kind == "c" else others)


@reduction(REAL, derivative=_chosen)
def max(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return the largest element; NaN if any element is NaN. Raises ValueError if there are no elements."""
    ...


@reduction(FLOATING, of_nothing=nan, composed=_mean_of, derivative=_share_of_mean)
def mean(x: Tensor, /, *, axis: Axis = None, dtype: DType | None = None, keepdims: bool = False) -> Tensor:
    """Return the arithmetic mean, computed in `dtype`; for integers in float64; NaN if there are no elements."""
    ...


@reduction(REAL, derivative=_chosen)
def min(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return the smallest element; NaN if any element is NaN. Raises ValueError if there are no elements."""
    ...


@reduction(NUMERIC, of_nothing=1, derivative=_of_product)
def prod(x: Tensor, /, *, axis: Axis = None, dtype: DType | None = None, keepdims: bool = False) -> Tensor:
    """Return the product; small integers are multiplied as int64 or uint64 unless `dtype` is given."""
    ...


@reduction(FLOATING, of_nothing=nan, composed=_std_of, derivative=_of_deviation)
def std(
    x: Tensor, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False, ddof: float | None = None
) -> Tensor:
    """Return the standard deviation with divisor N - correction; NaN if the divisor is not positive.

    ddof: NumPy's name for correction.
    """
    ...


@reduction(NUMERIC, of_nothing=0, derivative=spread)
def sum(x: Tensor, /, *, axis: Axis = None, dtype: DType | None = None, keepdims: bool = False) -> Tensor:
    """Return the sum; small integers are added as int64 or uint64 unless `dtype` is given."""
    ...


@reduction(FLOATING, of_nothing=nan, composed=_var_of, derivative=_of_variance)
def var(
    x: Tensor, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False, ddof: float | None = None
) -> Tensor:
    """Return the variance with divisor N - correction; NaN if the divisor is not positive.

    ddof: NumPy's name for correction.
    """
    ...


def _summed_after(g: Tensor, like: Like, axis: int | None, include_initial: bool) -> Tensor:
    """The sum of the cotangents at an element and after it."""
    along = -1 if axis is None else axis
    g = _without_initial(g, along) if include_initial else g
    return xt.flip(cumulative_sum(xt.flip(g, axis=along), axis=along), axis=along)


def _without_initial(g: Tensor, axis: int) -> Tensor:
    key = [slice(None)] * g.ndim
    key[axis] = slice(1, None)
    return g[tuple(key)]


def _of_running_product(g: Tensor, x: Tensor, axis: int | None, dtype: DType | None, include_initial: bool) -> Tensor:
    """The product of all before an element times s, where s = g + (the next element) * (the next s).

    The recurrence runs backwards in doubling steps, and divides by nothing, so zeros do no harm.
    """
    along = as_axis(-1 if axis is None else axis, x.ndim, "cumulative_prod")
    g = xt.moveaxis(_without_initial(g, along) if include_initial else g, along, 0)
    x = xt.moveaxis(x if dtype is None else astype(x, dtype), along, 0)
    factors = xt.conj(x) if x.dtype.kind == "c" else x
    before = cumulative_prod(factors, axis=0, include_initial=True)[:-1, ...]
    total, factor = g, xt.concat((factors[1:, ...], xt.zeros_like(factors[:1, ...])))
    step = 1
    while step < x.shape[0]:
        none = xt.zeros_like(total[:step, ...])
        total = total + factor * xt.concat((total[step:, ...], none))
        factor = factor * xt.concat((factor[step:, ...], none))
        step *= 2
    return xt.moveaxis(before * total, 0, along)


@differentiable(x=_summed_after)
def cumulative_sum(
    x: Tensor, /, *, axis: int | None = None, dtype: DType | None = None, include_initial: bool = False
) -> Tensor:
    """Return the running sums along an axis, beginning with 0 if `include_initial`.

    axis may be None only if x has one axis. Small integers are added as int64 or uint64 unless `dtype` is given. Raises
    ValueError or AxisError. Standard: Statistical Functions, cumulative_sum.
    """
    return _cumulative("cumulative_sum", x, axis, dtype, include_initial)


@differentiable(x=_of_running_product)
def cumulative_prod(
    x: Tensor, /, *, axis: int | None = None, dtype: DType | None = None, include_initial: bool = False
) -> Tensor:
    """Return the running products along an axis, beginning with 1 if `include_initial`.

    axis may be None only if x has one axis. Small integers are multiplied as int64 or uint64 unless `dtype` is given.
    Raises ValueError or AxisError. Standard: Statistical Functions, cumulative_prod.
    """
    return _cumulative("cumulative_prod", x, axis, dtype, include_initial)


def _cumulative(name: str, x: Any, axis: int | None, dtype: Any, include_initial: bool) -> Tensor:
    natives = thin_arrays(x, most=DIRECT_BELOW) if dtype is None and not include_initial else None
    if natives is not None and natives[0].dtype.kind == "f" and (type(axis) is int or (axis is None and x.ndim == 1)):
        ufunc = np.add if name == "cumulative_sum" else np.multiply
        found: Tensor | None = thin_call(ufunc.accumulate, natives, natives[0], axis or 0)
        if found is not None:
            return found
    x = as_tensor(x, name)
    if axis is None and x.ndim != 1:
        raise ValueError(expected(name, "axis", "be given unless x has 1 axis", f"shape {x.shape}"))
    along = as_axis(0 if axis is None else axis, x.ndim, name) - x.ndim  # from the end (calls/batching.py)
    target = None if dtype is None else canonical(dtype, name)
    return on(x, name, _Running(name, along, dtype=target, include_initial=include_initial))


def running_extremes(name: str, x: Tensor, axis: int) -> Tensor:
    """Return the largest or smallest element so far at each position along an axis. name: "maximum" or "minimum"."""
    name = f"{name}.accumulate"
    return on(x, name, _Running(name, as_axis(axis, x.ndim, name) - x.ndim))


class _Running:
    """The device library's running sum or product, or a method of its universal function.

    runs_along: the axis if machine code may do it (run/running.py), for results of the array's dtype and shape.
    """

    __slots__ = ("_options", "_name", "runs_along")

    def __init__(self, name: str, along: int, **options: Any) -> None:
        self._name, self._options = name, {"axis": along, **options}
        self.runs_along = None if options.get("include_initial") else along

    def __call__(self, xp: Any, a: Any) -> Any:
        return attrgetter(self._name)(xp)(a, **self._options)

"""What several functions of this extension check alike, with messages that hold names and shapes."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

from ..autograd.rules import xt
from ..base.dtypes import INTEGER, REAL_FLOATING, DType, float16
from ..base.errors import check_choice, expected
from ..base.layout import as_axis
from ..tensor.face import Tensor
from ..tensor.operands import as_tensor

REDUCTIONS = ("mean", "sum", "none")


def floating(x: Any, function: str, argument: str = "x") -> Tensor:
    """Return x as a tensor; raises TypeError unless it is real floating-point."""
    x = as_tensor(x, function, argument)
    REAL_FLOATING.check(x.dtype, function, argument)
    return x


def wide(x: Tensor) -> Tensor:
    """Return x in a dtype with room for sums of its elements and of their squares: float32 for float16."""
    return xt.astype(x, xt.float32) if x.dtype == float16 else x


def rounded(x: Tensor, dtype: DType) -> Tensor:
    """Return a result computed from `wide` in the dtype that was given."""
    return x if x.dtype == dtype else xt.astype(x, dtype)


def whole(x: Any, function: str, argument: str) -> Tensor:
    """Return x as a tensor; raises TypeError unless it holds integers."""
    x = as_tensor(x, function, argument)
    INTEGER.check(x.dtype, function, argument)
    return x


def within(value: Any, function: str, argument: str, low: float, high: float) -> float:
    """Return a number; raises TypeError for what is not a number, ValueError outside [low, high]."""
    if not isinstance(value, Real) or isinstance(value, bool):
        raise TypeError(expected(function, argument, "be a number", repr(value)))
    number = float(value)
    if not low <= number <= high:
        raise ValueError(expected(function, argument, f"be between {low} and {high}", value))
    return number


def count_of(value: Any, function: str, argument: str) -> int:
    """Return a positive integer; raises TypeError for what is not an integer, ValueError below 1."""
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise TypeError(expected(function, argument, "be an integer", repr(value)))
    if value < 1:
        raise ValueError(expected(function, argument, "be positive", value))
    return int(value)


def per_channel(x: Any, shape: tuple[int, ...], function: str, argument: str) -> Tensor:
    """Return a parameter as a floating tensor; raises ValueError unless it has the given shape."""
    x = floating(x, function, argument)
    if x.shape != shape:
        raise ValueError(expected(function, argument, f"have shape {shape}", x.shape))
    return x


def channel_axis(x: Tensor, axis: int, function: str) -> int:
    """Return the axis of the channels; raises ValueError if x has fewer than two axes."""
    if x.ndim < 2:
        raise ValueError(expected(function, "x", "have at least 2 axes, batch and channels", f"shape {x.shape}"))
    return as_axis(axis, x.ndim, function)


def alike(x: Any, target: Any, function: str) -> tuple[Tensor, Tensor]:
    """Return two floating tensors of one shape; raises ValueError naming both shapes if they differ."""
    x, target = floating(x, function), floating(target, function, "target")
    if x.shape != target.shape:
        raise ValueError(expected(function, "target", f"have the shape of x, {x.shape}", target.shape))
    return x, target


def check_reduction(reduction: Any, function: str, *more: str) -> None:
    """Raise ValueError for an unknown way to reduce a loss."""
    check_choice(function, "reduction", reduction, (*REDUCTIONS, *more))


def reduced(loss: Tensor, reduction: Any, function: str) -> Tensor:
    """Return a loss per element, or its sum or mean."""
    check_reduction(reduction, function)
    if reduction == "none":
        return loss
    return xt.sum(loss) if reduction == "sum" else xt.mean(loss)


def along(x: Tensor, axis: int, ndim: int) -> Tensor:
    """Return a vector with `ndim` axes, lying along one of them."""
    return x if axis == ndim - 1 else xt.reshape(x, (1,) * axis + (x.size,) + (1,) * (ndim - axis - 1))

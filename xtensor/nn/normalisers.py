"""Sums of exponentials and what is divided by them: softmax, log_softmax, logsumexp.

The largest element is subtracted first, so nothing overflows. `axis` is an integer or a tuple of them.
"""

from __future__ import annotations

from ..autograd.rules import xt
from ..autograd.tape import OFF, differentiable, recording
from ..base.layout import as_axes
from ..calls.compositions import macro
from ..standard.statistical import Axis, size_along, spread
from ..tensor.face import Tensor
from .checks import floating, rounded, wide

__all__ = ["log_softmax", "logsumexp", "softmax"]


def largest(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Return the largest element along axes, which stay, as a constant; 0 if there are no elements."""
    with recording(OFF):
        if size_along(x, axes):
            return xt.max(x, axis=axes, keepdims=True)
        shape = [1 if axis in axes else n for axis, n in enumerate(x.shape)]
        return xt.zeros(shape, dtype=x.dtype, device=x.device)


@macro
def _softmax_back(g: Tensor, y: Tensor, axis: Axis) -> Tensor:
    weighted = wide(g) * y
    return rounded(weighted - y * xt.sum(weighted, axis=axis, keepdims=True), y.dtype)


@macro
def _log_softmax_back(g: Tensor, y: Tensor, axis: Axis) -> Tensor:
    g = wide(g)
    return rounded(g - xt.exp(y) * xt.sum(g, axis=axis, keepdims=True), y.dtype)


def _logsumexp_back(g: Tensor, x: Tensor, axis: Axis, keepdims: bool) -> Tensor:
    """softmax(x); in a row whose largest element is infinite, those equal to it share evenly."""
    dtype, x = x.dtype, wide(x)
    most = largest(x, as_axes(axis, x.ndim, "logsumexp"))
    infinite = xt.isinf(most)
    powers = xt.exp(xt.where(infinite, 0, x - most))
    powers = xt.where(infinite, xt.astype(x == most, x.dtype), powers)
    shares = powers / xt.sum(powers, axis=axis, keepdims=True)
    return rounded(spread(g, x, axis, keepdims) * shares, dtype)


@differentiable(x=lambda g, y, axis: _softmax_back(g, y, axis))  # whose names `macro` hides
@macro
def softmax(x: Tensor, /, axis: Axis = -1) -> Tensor:
    """Return exp(x) divided by its sum along the axis or axes.

    A row that is all -inf, or that contains inf, gives NaN, as in PyTorch. Raises TypeError unless x is real floating,
    AxisError. Source: torch.nn.functional.softmax.
    """
    x = floating(x, "softmax")
    axes, dtype, x = as_axes(axis, x.ndim, "softmax"), x.dtype, wide(x)
    powers = xt.exp(x - largest(x, axes))
    return rounded(powers / xt.sum(powers, axis=axes, keepdims=True), dtype)


@differentiable(x=lambda g, y, axis: _log_softmax_back(g, y, axis))  # as above
@macro
def log_softmax(x: Tensor, /, axis: Axis = -1) -> Tensor:
    """Return log(softmax(x)), without rounding small probabilities to 0.

    Raises TypeError unless x is real floating, AxisError. Source: torch.nn.functional.log_softmax.
    """
    x = floating(x, "log_softmax")
    axes, dtype, x = as_axes(axis, x.ndim, "log_softmax"), x.dtype, wide(x)
    centred = x - largest(x, axes)
    found = centred - xt.log(xt.sum(xt.exp(centred), axis=axes, keepdims=True))
    return rounded(found, dtype)


@differentiable(x=_logsumexp_back)
def logsumexp(x: Tensor, /, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return log(sum(exp(x))) over the axis or axes (None: all).

    It is -inf if there are no elements or all are -inf. The derivative is softmax(x); where the result is infinite, the
    elements equal to it share the derivative evenly. Raises TypeError unless x is real floating, AxisError. Source:
    torch.logsumexp.
    """
    x = floating(x, "logsumexp")
    axes, dtype, x = as_axes(axis, x.ndim, "logsumexp"), x.dtype, wide(x)
    most = largest(x, axes)
    most = xt.where(xt.isfinite(most), most, 0)
    total = rounded(xt.log(xt.sum(xt.exp(x - most), axis=axes, keepdims=True)) + most, dtype)
    return total if keepdims else xt.squeeze(total, axis=axes)

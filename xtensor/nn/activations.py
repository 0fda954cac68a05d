"""Activations: functions of one element, with the names, formulas and conventions of torch.nn.functional.

Each takes a real floating-point array of any shape and returns one of the same shape and dtype; other dtypes raise
TypeError. Most are compositions of the namespace's functions and fuse with what surrounds them. A function has its own
derivative rule if the composition's gradient would differ at a kink, or would overflow.
"""

from __future__ import annotations

from math import inf, pi, sqrt
from typing import Any

from ..autograd.rules import xt
from ..autograd.tape import differentiable
from ..base.dtypes import REAL_FLOATING
from ..base.errors import check_choice, expected
from ..base.layout import as_axis
from ..calls.composed import composed
from ..calls.compositions import macro
from ..calls.rows import elementwise
from ..codegen.cpu.math import ERF_FAR, ERF_NEAR
from ..codegen.cpu.vector import F64
from ..codegen.element import Element, absolute, minimum, primitive, where
from ..codegen.element import exp as e_exp
from ..tensor.face import Tensor
from ..tensor.operands import Operand
from .checks import along, channel_axis, floating, per_channel, rounded, wide, within

__all__ = [
    "celu",
    "elu",
    "erf",
    "gelu",
    "glu",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "leaky_relu",
    "log_sigmoid",
    "mish",
    "prelu",
    "relu",
    "relu6",
    "selu",
    "sigmoid",
    "silu",
    "softplus",
    "softsign",
]

# ---- the error function


def series(x: Any, coefficients: tuple[float, ...]) -> Any:
    """c0 + x (c1 + x (c2 + ...))."""
    total = x * coefficients[-1]
    for coefficient in coefficients[-2:0:-1]:
        total = (total + coefficient) * x
    return total + coefficients[0]


def _erf(x: Element) -> Element:
    """The same two polynomials as generated code has (codegen/cpu/math.py), in plain arithmetic: within 2 ulp."""
    a, (first, more, *others) = absolute(1.0 * x), ERF_FAR[F64]  # of floats: the least integer has no absolute value
    far = 1.0 - e_exp(series(minimum(a, 5.94) - 2.0, (first + more, *others)))
    near = a + a * series(a * a, ERF_NEAR[F64])
    return primitive("copysign", where(a < 1.0, near, far), x)


@macro  # as small arrays take dozens of steps
@elementwise(REAL_FLOATING, element=_erf, derivative=lambda x: 2 / sqrt(pi) * xt.exp(-x * x))
def erf(x: Operand, /) -> Tensor:
    """Return the error function of each element, the integral of 2 / sqrt(pi) exp(-t**2) from 0 to x."""
    ...


# ---- of the family of the rectifier


@differentiable(x=lambda g, y: xt.where(y <= 0, 0, g))
def relu(x: Tensor, /) -> Tensor:
    """Return max(x, 0); the derivative at 0 is 0. Source: torch.nn.functional.relu."""
    return xt.maximum(floating(x, "relu"), 0)


@macro
def relu6(x: Tensor, /) -> Tensor:
    """Return min(max(x, 0), 6). Source: torch.nn.functional.relu6."""
    return hardtanh(floating(x, "relu6"), 0.0, 6.0)


@macro
def leaky_relu(x: Tensor, /, negative_slope: float = 0.01) -> Tensor:
    """Return x where x > 0, else negative_slope * x. Source: torch.nn.functional.leaky_relu."""
    x = floating(x, "leaky_relu")
    return xt.where(x > 0, x, x * within(negative_slope, "leaky_relu", "negative_slope", -inf, inf))


@composed
def prelu(x: Tensor, weight: Tensor, /, *, axis: int = 1) -> Tensor:
    """Return x where x > 0, else weight * x; weight has shape () or (1,), or one element per channel along `axis`.

    Raises TypeError unless both are real floating, ValueError for another shape. Source: torch.nn.functional.prelu.
    """
    x, weight = floating(x, "prelu"), floating(weight, "prelu", "weight")
    if weight.size == 1 and weight.ndim <= 1:
        weight = xt.reshape(weight, ())
    else:
        axis = channel_axis(x, axis, "prelu")
        weight = along(per_channel(weight, (x.shape[axis],), "prelu", "weight"), axis, x.ndim)
    low = xt.where(x > 0, 0, x)  # what is infinite there would make the gradient of the weight NaN
    return xt.where(x > 0, x, weight * low)


@macro
def elu(x: Tensor, /, alpha: float = 1.0) -> Tensor:
    """Return x where x > 0, else alpha * (exp(x) - 1). Source: torch.nn.functional.elu."""
    x = floating(x, "elu")
    low = xt.where(x > 0, 0, x)  # what is large would overflow, and its gradient be 0 * inf
    return xt.where(x > 0, x, within(alpha, "elu", "alpha", -inf, inf) * xt.expm1(low))


@macro
def celu(x: Tensor, /, alpha: float = 1.0) -> Tensor:
    """Return x where x > 0, else alpha * (exp(x / alpha) - 1), whose derivative is continuous.

    Raises ValueError unless alpha is positive. Source: torch.nn.functional.celu.
    """
    x, alpha = floating(x, "celu"), within(alpha, "celu", "alpha", 0, inf)
    if alpha == 0:
        raise ValueError(expected("celu", "alpha", "not be 0", alpha))
    low = xt.where(x > 0, 0, x)
    return xt.where(x > 0, x, alpha * xt.expm1(low / alpha))


@macro
def selu(x: Tensor, /) -> Tensor:
    """Return 1.0507... * elu(x, 1.6732...), which keeps mean 0 and variance 1. Source: torch.nn.functional.selu."""
    return 1.0507009873554804934193349852946 * elu(floating(x, "selu"), 1.6732632423543772848170429916717)


# ---- smooth ones

# What the approximate gelu has the cube of its argument times.
CUBE = 0.044715


@differentiable(x=lambda y: y * (1 - y))
@macro
def sigmoid(x: Tensor, /) -> Tensor:
    """Return 1 / (1 + exp(-x)), without overflow at either end. Source: torch.nn.functional.sigmoid."""
    x = floating(x, "sigmoid")
    small = xt.exp(-xt.abs(x))
    return xt.where(x >= 0, 1, small) / (1 + small)


@differentiable(x=lambda x: sigmoid(x))
@macro
def _softplus(x: Tensor) -> Tensor:
    return xt.maximum(x, 0) + xt.log1p(xt.exp(-xt.abs(x)))


@macro
def softplus(x: Tensor, /, beta: float = 1.0, threshold: float = inf) -> Tensor:
    """Return log(1 + exp(beta * x)) / beta, and x itself where beta * x > threshold.

    The formula is accurate everywhere, so the default has no threshold; PyTorch's is 20, which costs float64 half of
    its digits. Source: torch.nn.functional.softplus.
    """
    x = floating(x, "softplus")
    beta = within(beta, "softplus", "beta", -inf, inf)
    if beta == 0:
        raise ValueError(expected("softplus", "beta", "not be 0", beta))
    scaled = x if beta == 1 else beta * x
    smooth = _softplus(scaled) if beta == 1 else _softplus(scaled) / beta
    return smooth if threshold == inf else xt.where(scaled > threshold, x, smooth)


@macro
def softsign(x: Tensor, /) -> Tensor:
    """Return x / (1 + |x|). Source: torch.nn.functional.softsign."""
    x = floating(x, "softsign")
    return x / (1 + xt.abs(x))


@composed
def glu(x: Tensor, /, axis: int = -1) -> Tensor:
    """Return a * sigmoid(b), where a and b are the halves of x along an axis.

    Raises TypeError unless x is real floating, ValueError if the axis cannot be halved, AxisError. Source: Dauphin et
    al., 2016; torch.nn.functional.glu.
    """
    x = floating(x, "glu")
    axis = as_axis(axis, x.ndim, "glu")
    half, odd = divmod(x.shape[axis], 2)
    if odd:
        raise ValueError(expected("glu", "x", f"have an even length along axis {axis}", f"shape {x.shape}"))
    before = (slice(None),) * axis
    return x[(*before, slice(half))] * sigmoid(x[(*before, slice(half, None))])


@macro
def log_sigmoid(x: Tensor, /) -> Tensor:
    """Return log(1 / (1 + exp(-x))), finite wherever x is. Source: torch.nn.functional.logsigmoid."""
    return -_softplus(-floating(x, "log_sigmoid"))


@macro
def silu(x: Tensor, /) -> Tensor:
    """Return x * sigmoid(x); NaN at -inf, as in PyTorch. Source: torch.nn.functional.silu."""
    x = floating(x, "silu")
    return x * sigmoid(x)


@macro
def mish(x: Tensor, /) -> Tensor:
    """Return x * tanh(log(1 + exp(x))); NaN at -inf, as in PyTorch. Source: torch.nn.functional.mish."""
    x = floating(x, "mish")
    return x * xt.tanh(_softplus(x))


@macro
def _gelu_slope(x: Tensor, approximate: str) -> Tensor:
    """Return the derivative of gelu: P(X <= x) + x * p(x)."""
    if approximate == "none":
        return 0.5 * (1 + erf(x * sqrt(0.5))) + x * (xt.exp(x * x * -0.5) * sqrt(0.5 / pi))
    inner, tangent = _gelu_inner(x)
    within = inner * inner * (3 * CUBE * sqrt(2 / pi)) + sqrt(2 / pi)
    return 0.5 * (1 + tangent) + (0.5 * x) * ((1 - tangent * tangent) * within)


def _gelu_inner(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return x, and the tangent that P(X <= x) is made of where it is approximate."""
    inner = xt.clip(x, -10.0, 10.0)  # the tangent is 1 long before, and the cube of what is huge would overflow
    return inner, xt.tanh(inner * (inner * inner * (sqrt(2 / pi) * CUBE) + sqrt(2 / pi)))


@differentiable(x=lambda x, approximate: _gelu_slope(x, approximate))
@macro
def gelu(x: Tensor, /, approximate: str = "none") -> Tensor:
    """Return x * P(X <= x) for a standard normal X: x / 2 * (1 + erf(x / sqrt(2))); NaN at -inf, as in PyTorch.

    approximate: "none", or "tanh" for x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))). Raises ValueError for
    other words. Source: torch.nn.functional.gelu.
    """
    given = floating(x, "gelu")
    x = wide(given)
    check_choice("gelu", "approximate", approximate, ("none", "tanh"))
    return rounded((0.5 * x) * (1 + (erf(x * sqrt(0.5)) if approximate == "none" else _gelu_inner(x)[1])), given.dtype)


# ---- piecewise linear ones


@differentiable(x=lambda g, y, min_val, max_val: xt.where((y <= min_val) | (y >= max_val), 0, g))
@macro
def hardtanh(x: Tensor, /, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """Return x limited to [min_val, max_val]; the derivative at the bounds is 0.

    Raises ValueError if min_val is larger than max_val. Source: torch.nn.functional.hardtanh.
    """
    x = floating(x, "hardtanh")
    if not min_val <= max_val:
        raise ValueError(expected("hardtanh", "max_val", f"not be below min_val, {min_val}", max_val))
    return xt.minimum(xt.maximum(x, min_val), max_val)


@macro
def hardsigmoid(x: Tensor, /) -> Tensor:
    """Return x / 6 + 1 / 2 limited to [0, 1]. Source: torch.nn.functional.hardsigmoid."""
    return relu6(floating(x, "hardsigmoid") + 3) / 6


@macro
def hardswish(x: Tensor, /) -> Tensor:
    """Return x * hardsigmoid(x); NaN at -inf, as in PyTorch. Source: torch.nn.functional.hardswish."""
    x = floating(x, "hardswish")
    return x * hardsigmoid(x)

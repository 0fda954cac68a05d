"""Formulas of the namespace's functions: recorded, fused with the steps around them, with gradients of every order.

Their accuracy is within the bounds that tests/test_special.py checks against mpmath. Conventions at singular points are
those of SciPy for values and those of PyTorch for derivatives.
"""

from __future__ import annotations

from math import factorial, inf, nan, pi
from typing import Any

from ..autograd.rules import xt
from ..base.dtypes import FLOATING, REAL_FLOATING
from ..base.layout import as_axes
from ..nn.activations import erf as real_erf
from ..nn.activations import log_sigmoid, series, sigmoid
from ..nn.activations import softplus as _softplus
from ..nn.normalisers import largest
from ..nn.normalisers import log_softmax as _log_softmax
from ..nn.normalisers import logsumexp as _logsumexp
from ..nn.normalisers import softmax as _softmax
from ..standard.elementwise import expm1 as expm1
from ..standard.elementwise import log1p as log1p
from ..standard.statistical import Axis
from ..tensor.face import Tensor
from ..tensor.operands import Operand
from .declare import composed, floats, with_complex

__all__ = [
    "cosm1",
    "entr",
    "erf",
    "exp2",
    "exp10",
    "expit",
    "expm1",
    "exprel",
    "huber",
    "kl_div",
    "log1p",
    "log_expit",
    "log_softmax",
    "logit",
    "logsumexp",
    "pseudo_huber",
    "radian",
    "rel_entr",
    "sinc",
    "softmax",
    "softplus",
    "xlog1py",
    "xlogy",
]


erf = with_complex(real_erf)


def _one_at(x: Tensor, point: float) -> Tensor:
    """Return x with 1 in place of a point at which a formula divides by zero."""
    return xt.where(x == point, 1, x)


# ---- sigmoids


@composed()
def expit(x: Any, /) -> Tensor:
    """Return 1 / (1 + exp(-x)) of each element, without overflow at either end."""
    return sigmoid(x)


@composed()
def log_expit(x: Any, /) -> Tensor:
    """Return log(1 / (1 + exp(-x))) of each element, finite wherever x is."""
    return log_sigmoid(x)


@composed()
def softplus(x: Any, /) -> Tensor:
    """Return log(1 + exp(x)) of each element, without overflow."""
    return _softplus(x)


@composed(x=lambda x: 1 / (x * (1 - x)))
def logit(x: Any, /) -> Tensor:
    """Return log(x / (1 - x)) of each element: infinite at 0 and 1, NaN outside [0, 1]."""
    near = (x >= 0.25) & (x <= 0.75)  # where the logarithm of x / (1 - x), which is about 1, loses digits
    return xt.where(near, 2 * xt.atanh(xt.where(near, 2 * x - 1, 0)), xt.log(x / (1 - x)))


# ---- powers and their kin


@composed()
def exp2(x: Operand, /) -> Tensor:
    """Return 2**x of each element."""
    return xt.pow(2.0, x)


@composed()
def exp10(x: Operand, /) -> Tensor:
    """Return 10**x of each element."""
    return xt.pow(10.0, x)


@composed(x=lambda x: -xt.sin(x))
def cosm1(x: Operand, /) -> Tensor:
    """Return cos(x) - 1 of each element, accurate near 0."""
    return -2 * xt.square(xt.sin(0.5 * x))


# The derivatives of exprel and sinc near 0: their coefficients of x**k, and of x**(2k + 1).
_OF_EXPREL = tuple((k + 1) / factorial(k + 2) for k in range(18))
_OF_SINC = tuple((-1) ** k * pi ** (2 * k) * 2 * k / factorial(2 * k + 1) for k in range(1, 10))


def exprel_slope(x: Tensor) -> Tensor:
    """Return the derivative of exprel."""
    far = xt.abs(x) > 1
    below, above = xt.where(x < -1, x, -1), xt.where(x > 1, x, 1)  # nothing overflows, no digits are lost
    falling, rising = (xt.exp(below) - exprel(below)) / below, exprel(above) * (1 - 1 / above) + 1 / above
    return xt.where(far, xt.where(x > 0, rising, falling), series(xt.where(far, 0, x), _OF_EXPREL))


@composed(x=exprel_slope)
def exprel(x: Any, /) -> Tensor:
    """Return (exp(x) - 1) / x of each element, 1 at 0."""
    large = x > 8  # by two factors, as their product overflows later
    half = xt.expm1(xt.where(large, 0.5 * x, x))
    rise = half / _one_at(x, 0) * xt.where(large, half + 2, 1)
    return xt.where(x == 0, 1, xt.where(x == inf, inf, rise))


def _sinc_slope(x: Tensor) -> Tensor:
    far = xt.abs(x) > 0.25
    apart, near = xt.where(far, x, 1), xt.where(far, 0, x)
    return xt.where(far, (cos_pi(apart) - sinc(apart)) / apart, near * series(near * near, _OF_SINC))


def _turn(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the difference of x and the integer nearest to its real part, and (-1) to the power of that integer."""
    whole = xt.round(xt.real(x) if x.dtype.kind == "c" else x)
    return x - whole, 1 - 2 * xt.abs(xt.remainder(whole, 2))


def cos_pi(x: Tensor) -> Tensor:
    """Return cos(pi x)."""
    part, sign = _turn(x)
    return sign * xt.cos(pi * part)


@composed(FLOATING, x=_sinc_slope)
def sinc(x: Any, /) -> Tensor:
    """Return sin(pi x) / (pi x) of each element, 1 at 0; exactly 0 at the other integers."""
    part, sign = _turn(x)
    value = sign * xt.sin(pi * part) / (pi * _one_at(x, 0))
    return xt.where(x == 0, 1, xt.where(xt.isinf(x), 0, value))


# ---- products with logarithms, and entropies; no argument is called `y`, which is the result in rules


@composed(
    FLOATING,
    x1=lambda x1, x2: xt.where((x1 == 0) & ~(xt.real(x2) > 0), 0, xt.log(x2)),
    x2=lambda x1, x2: x1 / x2,
)
def xlogy(x1: Any, x2: Any, /) -> Tensor:
    """Return x1 log(x2) of each pair of elements; 0 where x1 is 0 and x2 is not NaN."""
    return xt.where((x1 == 0) & ~xt.isnan(x2), 0, x1 * xt.log(x2))


@composed(
    FLOATING,
    x1=lambda x1, x2: xt.where((x1 == 0) & ~(xt.real(x2) > -1), 0, xt.log1p(x2)),
    x2=lambda x1, x2: x1 / (1 + x2),
)
def xlog1py(x1: Any, x2: Any, /) -> Tensor:
    """Return x1 log(1 + x2) of each pair of elements, accurate for small x2; 0 where x1 is 0 and x2 is not NaN."""
    return xt.where((x1 == 0) & ~xt.isnan(x2), 0, x1 * xt.log1p(x2))


@composed(x=lambda x: -1 - xt.log(x))
def entr(x: Any, /) -> Tensor:
    """Return -x log(x) of each element: 0 at 0, and -inf for negative elements."""
    return xt.where(x == 0, 0, xt.where(x < 0, -inf, -x * xt.log(x)))


def _log_quotient(x: Tensor, y: Tensor) -> Tensor:
    """Return log(x / y), accurate also where x is about y, and without overflow of the quotient."""
    quotient = x / y
    limits = xt.finfo(x.dtype)
    near = (quotient > 0.5) & (quotient < 2)
    apart = (quotient < limits.smallest_normal) | (quotient > limits.max)
    far = xt.where(apart, xt.log(x) - xt.log(y), xt.log(quotient))
    return xt.where(near, xt.log1p(xt.where(near, (x - y) / y, 0)), far)


def _relative(x: Tensor, y: Tensor, inside: Tensor, at_zero: Tensor) -> Tensor:
    """Return `inside` where both are positive, `at_zero` where x is 0 and y is not negative, NaN at NaNs, else inf."""
    found = xt.where((x > 0) & (y > 0), inside, xt.where((x == 0) & (y >= 0), at_zero, inf))
    return xt.where(xt.isnan(x) | xt.isnan(y), nan, found)


@composed(x1=lambda x1, x2: xt.log(x1) - xt.log(x2) + 1, x2=lambda x1, x2: -x1 / x2)
def rel_entr(x1: Any, x2: Any, /) -> Tensor:
    """Return x1 log(x1 / x2) of each pair of positive elements, 0 where x1 is 0 and x2 is not negative, else inf."""
    return _relative(x1, x2, x1 * _log_quotient(x1, x2), xt.zeros_like(x2))


@composed(x1=lambda x1, x2: xt.log(x1) - xt.log(x2), x2=lambda x1, x2: 1 - x1 / x2)
def kl_div(x1: Any, x2: Any, /) -> Tensor:
    """Return x1 log(x1 / x2) - x1 + x2 of each pair of positive elements.

    Where x1 is 0 and x2 is not negative this is x2, for other pairs inf. Where x1 is about x2 the terms nearly cancel:
    the error is one unit in the last place of x1 and x2, not of the result.
    """
    return _relative(x1, x2, x1 * _log_quotient(x1, x2) - x1 + x2, x2)


# ---- losses


@composed(
    delta=lambda delta, r: xt.where(xt.abs(r) > delta, xt.abs(r) - delta, 0),
    r=lambda delta, r: xt.clip(r, -delta, delta),
)
def huber(delta: Any, r: Any, /) -> Tensor:
    """Return r**2 / 2 where \\|r\\| <= delta, else delta (\\|r\\| - delta / 2); inf where delta is negative."""
    size = xt.abs(r)
    found = xt.where(size <= delta, 0.5 * r * r, delta * (size - 0.5 * delta))
    return xt.where(delta < 0, inf, found)


def _of_delta(delta: Tensor, r: Tensor) -> Tensor:
    size = _one_at(xt.hypot(delta, r), 0)
    rest = r * (r / (size + xt.abs(delta)))  # size - abs(delta), without cancellation
    return xt.where(delta == 0, xt.abs(r), rest * (rest / size))


@composed(delta=_of_delta, r=lambda delta, r: xt.where(delta == 0, 0, delta * (r / _one_at(xt.hypot(delta, r), 0))))
def pseudo_huber(delta: Any, r: Any, /) -> Tensor:
    """Return delta**2 (sqrt(1 + (r / delta)**2) - 1); 0 where delta is 0, and inf where it is negative."""
    near, size = xt.abs(r) < delta, _one_at(xt.hypot(delta, r), 0) + xt.abs(delta)
    found = xt.where(near, delta, r) / size * xt.where(near, r, delta) * r  # the quotient first, as it is moderate
    found = xt.where(xt.isinf(r) & xt.isfinite(delta), inf, found)
    return xt.where(delta < 0, inf, xt.where((delta == 0) | (r == 0), 0, found))


@composed()
def radian(d: Any, m: Any, s: Any, /) -> Tensor:
    """Return angles of d degrees, m minutes and s seconds in radians."""
    return (d + (m + s / 60) / 60) * (pi / 180)


# ---- sums of exponentials


def softmax(x: Any, axis: Axis = None) -> Tensor:
    """Return exp(x) divided by its sum along the axis or axes (None: all), without overflow, as xt.nn.softmax.

    Takes real floating dtypes, and integers and booleans as float64; raises TypeError for others, AxisError. Source:
    scipy.special.softmax.
    """
    (x,) = floats("softmax", REAL_FLOATING, ("x",), (x,))
    return _softmax(x, axis)


def log_softmax(x: Any, axis: Axis = None) -> Tensor:
    """Return log(softmax(x)) along the axis or axes (None: all), without rounding small probabilities to 0.

    Takes real floating dtypes, and integers and booleans as float64; raises TypeError for others, AxisError. Source:
    scipy.special.log_softmax.
    """
    (x,) = floats("log_softmax", REAL_FLOATING, ("x",), (x,))
    return _log_softmax(x, axis)


def logsumexp(
    a: Any, axis: Axis = None, b: Any = None, keepdims: bool = False, return_sign: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    """Return log(sum(b exp(a))) over the axis or axes (None: all), without overflow.

    b: factors that broadcast with a; None for 1. return_sign: whether to return a pair: the logarithm of the absolute
    value of the sum, and the sum's sign. Without it, a negative sum gives NaN. Takes real floating dtypes, and integers
    and booleans as float64; raises TypeError for others, AxisError. Source: scipy.special.logsumexp.
    """
    if b is None:
        (a,) = floats("logsumexp", REAL_FLOATING, ("a",), (a,))
        found = _logsumexp(a, axis, keepdims)
        return (found, xt.where(found == -inf, 0, xt.ones_like(found))) if return_sign else found
    a, b = xt.broadcast_arrays(*floats("logsumexp", REAL_FLOATING, ("a", "b"), (a, b)))
    used = xt.where(b == 0, -inf, a)  # elements with factor 0 must not affect the largest, even if infinite
    axes = as_axes(axis, a.ndim, "logsumexp")
    most = largest(used, axes)
    most = xt.where(xt.isfinite(most), most, 0)
    total = xt.sum(b * xt.exp(used - most), axis=axes, keepdims=True)
    found = xt.log(xt.abs(total) if return_sign else total) + most
    parts = [found, xt.sign(total)]
    shown = [one if keepdims else xt.squeeze(one, axis=axes) for one in parts]
    return (shown[0], shown[1]) if return_sign else shown[0]

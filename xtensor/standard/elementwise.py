"""Elementwise functions (standard section of that name): one row each.

Every function takes arrays of any shapes that broadcast together and returns a new array of the broadcast
shape; one of two operands may be a Python scalar, which takes on the other's dtype (NEP 50).
"""

from __future__ import annotations

from typing import Any, cast

from ..autograd.rules import times, xt
from ..autograd.tape import differentiable
from ..base.dtypes import (
    ANY,
    FLOATING,
    INTEGER,
    INTEGER_OR_BOOLEAN,
    NUMERIC,
    REAL,
    REAL_FLOATING,
    DType,
    iinfo,
    promote,
)
from ..base.errors import REFUSED, expected
from ..base.options import thin_closed
from ..calls.rows import elementwise
from ..codegen.element import absolute
from ..codegen.element import exp as e_exp
from ..codegen.element import log1p as e_log1p
from ..codegen.element import maximum as e_maximum
from ..codegen.element import where as e_where
from ..devices.cpu import quickly
from ..graph.number import is_traced, type_of
from ..plan.costs import cheap_below
from ..tensor.face import CPU_DEVICE, Tensor, small, wrap
from ..tensor.operands import Operand, as_operand, as_tensor, broadcast

__all__ = [
    "abs",
    "acos",
    "acosh",
    "add",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "bitwise_and",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "ceil",
    "clip",
    "conj",
    "copysign",
    "cos",
    "cosh",
    "divide",
    "equal",
    "exp",
    "expm1",
    "floor",
    "floor_divide",
    "greater",
    "greater_equal",
    "hypot",
    "imag",
    "isfinite",
    "isinf",
    "isnan",
    "less",
    "less_equal",
    "log",
    "log10",
    "log1p",
    "log2",
    "logaddexp",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "multiply",
    "negative",
    "nextafter",
    "not_equal",
    "positive",
    "pow",
    "real",
    "reciprocal",
    "remainder",
    "round",
    "sign",
    "signbit",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "subtract",
    "tan",
    "tanh",
    "trunc",
]

_LOG2 = 0.6931471805599453
_LOG10 = 2.302585092994046


def _may_refuse(base: DType | type, exponent: DType | type) -> bool:
    """Return whether a power may raise because of values: of integers, for which a negative exponent is an error."""
    return promote(base, exponent).kind in "iub"


# ---- derivatives of more than one expression


def _conjugate(x: Operand) -> Operand:
    """Return the complex conjugate; a real operand is returned as it is."""
    if not isinstance(x, Tensor):
        return x.conjugate()
    return conj(x) if x.dtype.kind == "c" else x


def _not_zero(x: Tensor) -> Tensor:
    """Return x with 1 in place of 0, for use as a divisor."""
    return xt.where(x == 0, 1, x)


def _over(x: Any, y: Tensor) -> Tensor:
    """Return x / y; where y is 0 it is 0, and so is its derivative."""
    return xt.where(y == 0, 0, x / _not_zero(y))


def _wide(x: Operand, dtype: DType) -> Operand:
    """Return an operand in the dtype of the computation, so that values computed from it are not rounded further."""
    return xt.astype(x, dtype, copy=False) if isinstance(x, Tensor) else x


def _square_sum(x1: Any, x2: Any, dtype: DType) -> Any:
    x1, x2 = _wide(x1, dtype), _wide(x2, dtype)
    return x1 * x1 + x2 * x2


def share(x: Tensor, other: Operand, rate: float = 1.0) -> Tensor:
    """The share of exp(rate x) in exp(rate x) + exp(rate other), half where both are the same infinity.

    It is computed from their difference: the logarithm of the sum has lost it where both are large.
    """
    by = xt.where(logical_and(isinf(x), x == other), 0.0, other - x)
    less = exp(rate * xt.where(by > 0, -by, by))
    return xt.where(by > 0, less, 1.0) / (less + 1.0)


def _chosen(g: Tensor, x: Tensor, wins: Tensor, other: Operand) -> Tensor:
    """The cotangent where x was chosen, or is NaN; half of it where both are equal."""
    return xt.where(logical_or(wins, x != x), g, xt.where(x == other, 0.5 * g, 0.0))


def _pow_by_base(g: Tensor, x1: Tensor, x2: Any) -> Tensor:
    slope = _power_slope(x1, x2, g.dtype)
    return cast(Tensor, times(g, slope)) if isinstance(slope, Tensor) else g * slope


def _power_slope(x1: Tensor, x2: Any, dtype: DType) -> Operand:
    """The derivative of a power by its base; 0 for an exponent of 0, also at 0."""
    if isinstance(x2, Tensor):
        zero, x2 = x2 == 0, xt.astype(x2, dtype, copy=False)
        return xt.where(zero, 0, x2 * x1 ** xt.where(zero, 1, x2 - 1))
    if x2 in (0, 1, 2):
        return 2 * x1 if x2 == 2 else float(x2)
    return x2 * x1 ** (x2 - 1)


def _pow_by_exponent(x1: Operand, x2: Tensor, y: Tensor) -> Tensor:
    """y log(x1); 0 where a power of 0 is 0 or 1."""
    base = xt.asarray(x1, dtype=y.dtype, device=y.device)
    safe = logical_and(base == 0, real(x2) >= 0)
    return xt.where(safe, 0, y * log(xt.where(safe, 1, base)))


def _sign_derivative(g: Tensor, y: Tensor, x: Tensor) -> Tensor | None:
    """Zero for real numbers; for complex ones the part that rotates the direction, and 0 at 0."""
    if y.dtype.kind != "c":
        return None
    size = abs(x)
    return xt.where(size == 0, 0, (g - y * y * conj(g)) / (2 * _not_zero(size)))


@elementwise(NUMERIC, derivative=lambda g, x: g * xt.sign(x))
def abs(x: Operand, /) -> Tensor:
    """Return the absolute value of each element; for complex elements the magnitude, in a real dtype."""
    ...


@elementwise(FLOATING, domain=(-0.9, 0.9), derivative=lambda x: -1 / xt.sqrt(1 - x * x))
def acos(x: Operand, /) -> Tensor:
    """Return the inverse cosine of each element, in radians in [0, pi]."""
    ...


@elementwise(FLOATING, domain=(1.1, 3.0), derivative=lambda x: 1 / (xt.sqrt(x - 1) * xt.sqrt(x + 1)))
def acosh(x: Operand, /) -> Tensor:
    """Return the inverse hyperbolic cosine of each element, in [0, inf]."""
    ...


@elementwise(NUMERIC, derivative=(1, 1))
def add(x1: Operand, x2: Operand, /) -> Tensor:
    """Return the sum of each pair of elements."""
    ...


@elementwise(FLOATING, domain=(-0.9, 0.9), derivative=lambda x: 1 / xt.sqrt(1 - x * x))
def asin(x: Operand, /) -> Tensor:
    """Return the inverse sine of each element, in radians in [-pi/2, pi/2]."""
    ...


@elementwise(FLOATING, derivative=lambda x: 1 / xt.sqrt(x * x + 1))
def asinh(x: Operand, /) -> Tensor:
    """Return the inverse hyperbolic sine of each element."""
    ...


@elementwise(FLOATING, derivative=lambda g, x: g / _conjugate(x * x + 1))
def atan(x: Operand, /) -> Tensor:
    """Return the inverse tangent of each element, in radians in [-pi/2, pi/2]."""
    ...


@elementwise(
    REAL_FLOATING,
    derivative=(
        lambda g, x1, x2: g * _over(x2, _square_sum(x1, x2, g.dtype)),
        lambda g, x1, x2: g * _over(-x1, _square_sum(x1, x2, g.dtype)),
    ),
)
def atan2(x1: Operand, x2: Operand, /) -> Tensor:
    """Return the angle of each point (x2, x1) from the positive x-axis, in radians in [-pi, pi]."""
    ...


@elementwise(FLOATING, domain=(-0.9, 0.9), derivative=lambda g, x: g / _conjugate(1 - x * x))
def atanh(x: Operand, /) -> Tensor:
    """Return the inverse hyperbolic tangent of each element."""
    ...


@elementwise(INTEGER_OR_BOOLEAN)
def bitwise_and(x1: Operand, x2: Operand, /) -> Tensor:
    """Return the bits set in both elements of each pair."""
    ...


@elementwise(INTEGER, domain=(0.0, 5.0))
def bitwise_left_shift(x1: Operand, x2: Operand, /) -> Tensor:
    """Return each x1 with its bits shifted x2 places to the left; 0 if x2 is the dtype's width or more."""
    ...


@elementwise(INTEGER_OR_BOOLEAN)
def bitwise_invert(x: Operand, /) -> Tensor:
    """Return each element with every bit flipped."""
    ...


@elementwise(INTEGER_OR_BOOLEAN)
def bitwise_or(x1: Operand, x2: Operand, /) -> Tensor:
    """Return the bits set in either element of each pair."""
    ...


@elementwise(INTEGER, domain=(0.0, 5.0))
def bitwise_right_shift(x1: Operand, x2: Operand, /) -> Tensor:
    """Return each x1 with its bits shifted x2 places to the right, keeping the sign."""
    ...


@elementwise(INTEGER_OR_BOOLEAN)
def bitwise_xor(x1: Operand, x2: Operand, /) -> Tensor:
    """Return the bits set in exactly one element of each pair."""
    ...


@elementwise(REAL, derivative=0)
def ceil(x: Operand, /) -> Tensor:
    """Return the smallest integer-valued number not below each element; integers are returned unchanged."""
    ...


@differentiable(
    elementwise=True,
    x=lambda g, x, min, max: xt.where(_is_within(x, min, max), g, 0),
    min=lambda g, x, min, max: xt.where(xt.logical_and(x < min, _is_above(max, min)), g, 0),
    max=lambda g, x, min, max: xt.where(xt.maximum(x, x if min is None else min) > max, g, 0),
)
def clip(x: Tensor, /, min: Operand | None = None, max: Operand | None = None) -> Tensor:
    """Return each element limited to [min, max]; a bound that is None does not limit.

    The bounds broadcast against x. A Python integer that x's dtype cannot hold has no effect as a lower bound below the
    dtype's range or an upper bound above it; otherwise it raises OverflowError. Raises TypeError for complex dtypes.
    Standard: Elementwise Functions, clip.
    """
    if type(x) is not Tensor or x.dtype.kind != "f" or not {type(min), type(max)} <= _PLAIN_BOUNDS:
        x = _checked_for_clip(x, min, max)
    elif small(x, cheap_below[0]) is not None and not (thin_closed[0] or min is None or max is None):
        try:
            return wrap(quickly(x._content.clip, min, max), CPU_DEVICE)
        except REFUSED:
            pass  # the code below says what is wrong
    result = x
    if min is not None and not _beyond(min, x, below=True):
        result = maximum(result, min)
    if max is not None and not _beyond(max, x, below=False):
        result = minimum(result, max)
    return positive(x) if result is x else result


# The types of bounds that need no check if x is floating.
_PLAIN_BOUNDS = frozenset((float, int, type(None)))


def _checked_for_clip(x: Any, min: Any, max: Any) -> Tensor:
    """Return clip's x as a tensor, after checking it and its bounds."""
    x = as_tensor(x, "clip")
    given = [(bound, name) for bound, name in ((min, "min"), (max, "max")) if bound is not None]
    bounds = [bound if is_traced(bound) else as_operand(bound, "clip", name, x.device) for bound, name in given]
    for operand, name in zip((x, *bounds), ("x", "min" if min is not None else "max", "max"), strict=False):
        if isinstance(operand, complex) or (isinstance(operand, Tensor) and operand.dtype.kind == "c"):
            raise TypeError(expected("clip", name, "be real", getattr(operand, "dtype", "complex")))
    broadcast("clip", (x, *bounds))
    return x


def _is_within(x: Tensor, low: Any, high: Any) -> Any:
    """Return a mask of the elements of x within the bounds, including those equal to a bound."""
    above = True if low is None else x >= low
    below = True if high is None else x <= high
    return above if below is True else below if above is True else logical_and(above, below)


def _is_above(high: Any, low: Any) -> Any:
    """Return a mask of the places where a lower bound is not overruled by an upper one."""
    return True if high is None else low <= high


def _beyond(bound: Any, x: Tensor, *, below: bool) -> bool:
    """Return whether a Python integer bound is outside x's integer dtype on the side where it has no effect."""
    if type_of(bound) is not int or x.dtype.kind not in "iu":
        return False
    limits = iinfo(x.dtype)
    return bound < limits.min if below else bound > limits.max


@elementwise(NUMERIC, derivative=lambda g: xt.conj(g))
def conj(x: Operand, /) -> Tensor:
    """Return the complex conjugate of each element; real elements are returned unchanged."""
    ...


@elementwise(REAL_FLOATING, derivative=(lambda x1, x2: xt.sign(x1) * xt.copysign(xt.sign(x1), x2), 0))
def copysign(x1: Operand, x2: Operand, /) -> Tensor:
    """Return each x1 with the sign of x2, where zeros and NaNs have signs too."""
    ...


@elementwise(FLOATING, derivative=lambda x: -xt.sin(x))
def cos(x: Operand, /) -> Tensor:
    """Return the cosine of each element, given in radians."""
    ...


@elementwise(FLOATING, derivative=lambda x: xt.sinh(x))
def cosh(x: Operand, /) -> Tensor:
    """Return the hyperbolic cosine of each element."""
    ...


@elementwise(FLOATING, domain=(0.5, 2.0), derivative=(lambda g, x2: g / _conjugate(x2), lambda y, x2: -y / x2))
def divide(x1: Operand, x2: Operand, /) -> Tensor:
    """Return the quotient of each pair of elements; the quotient of integers is a floating-point number."""
    ...


@elementwise(ANY)
def equal(x1: Operand, x2: Operand, /) -> Tensor:
    """Return whether the elements of each pair are equal, as booleans."""
    ...


@elementwise(FLOATING, derivative=lambda y: y)
def exp(x: Operand, /) -> Tensor:
    """Return e to the power of each element."""
    ...


@elementwise(FLOATING, derivative=lambda y: y + 1)
def expm1(x: Operand, /) -> Tensor:
    """Return exp(x) - 1 for each element, accurate near 0."""
    ...


@elementwise(REAL, derivative=0)
def floor(x: Operand, /) -> Tensor:
    """Return the largest integer-valued number not above each element; integers are returned unchanged."""
    ...


@elementwise(REAL, domain=(0.5, 2.0), derivative=(0, 0))
def floor_divide(x1: Operand, x2: Operand, /) -> Tensor:
    """Return floor(x1 / x2) for each pair of elements; x // 0 is 0 for integers."""
    ...


@elementwise(REAL)
def greater(x1: Operand, x2: Operand, /) -> Tensor:
    """Return whether x1 > x2 for each pair, as booleans."""
    ...


@elementwise(REAL)
def greater_equal(x1: Operand, x2: Operand, /) -> Tensor:
    """Return whether x1 >= x2 for each pair, as booleans."""
    ...


@elementwise(REAL_FLOATING, derivative=(lambda x1, y: _over(x1, y), lambda x2, y: _over(x2, y)))
def hypot(x1: Operand, x2: Operand, /) -> Tensor:
    """Return sqrt(x1**2 + x2**2) for each pair, without intermediate overflow."""
    ...


@elementwise(NUMERIC, derivative=lambda g, like: g * 1j if like.dtype.kind == "c" else None)
def imag(x: Operand, /) -> Tensor:
    """Return the imaginary part of each element; zeros for real dtypes."""
    ...


@elementwise(NUMERIC)
def isfinite(x: Operand, /) -> Tensor:
    """Return whether each element is neither infinite nor NaN, as booleans."""
    ...


@elementwise(NUMERIC)
def isinf(x: Operand, /) -> Tensor:
    """Return whether each element is infinite, as booleans."""
    ...


@elementwise(NUMERIC)
def isnan(x: Operand, /) -> Tensor:
    """Return whether each element is NaN, as booleans."""
    ...


@elementwise(REAL)
def less(x1: Operand, x2: Operand, /) -> Tensor:
    """Return whether x1 < x2 for each pair, as booleans."""
    ...


@elementwise(REAL)
def less_equal(x1: Operand, x2: Operand, /) -> Tensor:
    """Return whether x1 <= x2 for each pair, as booleans."""
    ...


@elementwise(FLOATING, domain=(0.1, 3.0), derivative=lambda g, x: g / _conjugate(x))
def log(x: Operand, /) -> Tensor:
    """Return the natural logarithm of each element; NaN for negative real ones."""
    ...


@elementwise(FLOATING, domain=(-0.9, 3.0), derivative=lambda g, x: g / _conjugate(x + 1))
def log1p(x: Operand, /) -> Tensor:
    """Return log(1 + x) for each element, accurate near 0."""
    ...


@elementwise(FLOATING, domain=(0.1, 3.0), derivative=lambda g, x: g / _conjugate(x * _LOG2))
def log2(x: Operand, /) -> Tensor:
    """Return the base-2 logarithm of each element."""
    ...


@elementwise(FLOATING, domain=(0.1, 3.0), derivative=lambda g, x: g / _conjugate(x * _LOG10))
def log10(x: Operand, /) -> Tensor:
    """Return the base-10 logarithm of each element."""
    ...


@elementwise(
    REAL_FLOATING,
    element=lambda a, b: e_where(a == b, a + _LOG2, e_maximum(a, b) + e_log1p(e_exp(-absolute(a - b)))),
    derivative=(lambda x1, x2: share(x1, x2), lambda x1, x2: share(x2, x1)),
)
def logaddexp(x1: Operand, x2: Operand, /) -> Tensor:
    """Return log(exp(x1) + exp(x2)) for each pair, without intermediate overflow."""
    ...


@elementwise(ANY)
def logical_and(x1: Operand, x2: Operand, /) -> Tensor:
    """Return whether both elements of each pair are true (nonzero), as booleans."""
    ...


@elementwise(ANY)
def logical_not(x: Operand, /) -> Tensor:
    """Return whether each element is false (zero), as booleans."""
    ...


@elementwise(ANY)
def logical_or(x1: Operand, x2: Operand, /) -> Tensor:
    """Return whether either element of each pair is true (nonzero), as booleans."""
    ...


@elementwise(ANY)
def logical_xor(x1: Operand, x2: Operand, /) -> Tensor:
    """Return whether exactly one element of each pair is true (nonzero), as booleans."""
    ...


@elementwise(
    REAL, derivative=(lambda g, x1, x2: _chosen(g, x1, x1 > x2, x2), lambda g, x1, x2: _chosen(g, x2, x2 > x1, x1))
)
def maximum(x1: Operand, x2: Operand, /) -> Tensor:
    """Return the larger element of each pair; NaN if either is NaN."""
    ...


@elementwise(
    REAL, derivative=(lambda g, x1, x2: _chosen(g, x1, x1 < x2, x2), lambda g, x1, x2: _chosen(g, x2, x2 < x1, x1))
)
def minimum(x1: Operand, x2: Operand, /) -> Tensor:
    """Return the smaller element of each pair; NaN if either is NaN."""
    ...


@elementwise(NUMERIC, derivative=(lambda x2: x2, lambda x1: x1))
def multiply(x1: Operand, x2: Operand, /) -> Tensor:
    """Return the product of each pair of elements."""
    ...


@elementwise(NUMERIC, derivative=-1)
def negative(x: Operand, /) -> Tensor:
    """Return the negative of each element; unsigned integers wrap around."""
    ...


@elementwise(REAL_FLOATING, derivative=(1, 0))
def nextafter(x1: Operand, x2: Operand, /) -> Tensor:
    """Return the next representable number after x1 in the direction of x2."""
    ...


@elementwise(ANY)
def not_equal(x1: Operand, x2: Operand, /) -> Tensor:
    """Return whether the elements of each pair differ, as booleans."""
    ...


@elementwise(NUMERIC, derivative=1)
def positive(x: Operand, /) -> Tensor:
    """Return a copy of each element."""
    ...


@elementwise(NUMERIC, fails_on_values=_may_refuse, domain=(0.5, 2.0), derivative=(_pow_by_base, _pow_by_exponent))
def pow(x1: Operand, x2: Operand, /) -> Tensor:
    """Return x1 to the power of x2 for each pair.

    Raises ValueError for a negative integer exponent of an integer base, as NumPy does.
    """
    ...


@elementwise(NUMERIC, derivative=lambda g: g)
def real(x: Operand, /) -> Tensor:
    """Return the real part of each element; real elements are returned unchanged."""
    ...


@elementwise(FLOATING, element=lambda a: 1 / a, domain=(0.5, 2.0), derivative=lambda y: -y * y)
def reciprocal(x: Operand, /) -> Tensor:
    """Return 1 / x for each element; for integers by integer division, as in NumPy."""
    ...


@elementwise(REAL, domain=(0.5, 2.0), derivative=(1, lambda x1, x2: -xt.floor_divide(x1, x2)))
def remainder(x1: Operand, x2: Operand, /) -> Tensor:
    """Return x1 - x2 * floor(x1 / x2) for each pair, with the sign of x2; x % 0 is 0 for integers."""
    ...


@elementwise(NUMERIC, derivative=0)
def round(x: Operand, /) -> Tensor:
    """Return the nearest integer-valued number to each element, ties to even; complex numbers by parts."""
    ...


@elementwise(NUMERIC, derivative=_sign_derivative)
def sign(x: Operand, /) -> Tensor:
    """Return -1, 0 or 1 by the sign of each element, NaN for NaN; x / abs(x) for complex elements."""
    ...


@elementwise(REAL_FLOATING)
def signbit(x: Operand, /) -> Tensor:
    """Return whether the sign bit of each element is set (-0.0 and negative NaNs too), as booleans."""
    ...


@elementwise(FLOATING, derivative=lambda x: xt.cos(x))
def sin(x: Operand, /) -> Tensor:
    """Return the sine of each element, given in radians."""
    ...


@elementwise(FLOATING, derivative=lambda x: xt.cosh(x))
def sinh(x: Operand, /) -> Tensor:
    """Return the hyperbolic sine of each element."""
    ...


@elementwise(NUMERIC, element=lambda a: a * a, derivative=lambda x: 2 * x)
def square(x: Operand, /) -> Tensor:
    """Return the square of each element."""
    ...


@elementwise(FLOATING, domain=(0.1, 3.0), derivative=lambda g, y: 0.5 * g / _conjugate(y))
def sqrt(x: Operand, /) -> Tensor:
    """Return the principal square root of each element; NaN for negative real ones."""
    ...


@elementwise(NUMERIC, derivative=(1, -1))
def subtract(x1: Operand, x2: Operand, /) -> Tensor:
    """Return the difference of each pair of elements."""
    ...


@elementwise(FLOATING, domain=(-1.2, 1.2), derivative=lambda y: y * y + 1)
def tan(x: Operand, /) -> Tensor:
    """Return the tangent of each element, given in radians."""
    ...


@elementwise(FLOATING, derivative=lambda y: 1 - y * y)
def tanh(x: Operand, /) -> Tensor:
    """Return the hyperbolic tangent of each element."""
    ...


@elementwise(REAL, derivative=0)
def trunc(x: Operand, /) -> Tensor:
    """Return each element rounded towards zero; integers are returned unchanged."""
    ...

"""The gamma function and its kin: SciPy's functions with their derivatives."""

from __future__ import annotations

from math import log, nan, pi
from typing import Any, cast

from ..autograd.rules import xt
from ..autograd.tape import differentiable
from ..base.dtypes import FLOATING, REAL_FLOATING
from ..base.errors import expected
from ..calls.library import on
from ..tensor.face import Tensor
from ..tensor.operands import Operand, as_tensor
from .declare import by_library, composed, floats, is_complex, library, native_of, unknown
from .formulas import cos_pi, sinc

__all__ = [
    "beta",
    "betaln",
    "binom",
    "digamma",
    "gamma",
    "gammaln",
    "gammasgn",
    "loggamma",
    "multigammaln",
    "poch",
    "polygamma",
    "psi",
    "rgamma",
    "zeta",
]


@library(FLOATING, x=lambda x, y: y * xt.special.psi(x))
def gamma(x: Operand, /) -> Tensor:
    """Return the gamma function of each element, (x - 1)! for positive integers; NaN at negative integers, inf at 0."""
    ...


@library(x=lambda x: xt.special.psi(x))
def gammaln(x: Operand, /) -> Tensor:
    """Return the logarithm of the absolute value of the gamma function of each element."""
    ...


@library(FLOATING, x=lambda x: xt.special.psi(x))
def loggamma(x: Operand, /) -> Tensor:
    """Return the principal branch of the logarithm of the gamma function; NaN for negative real elements."""
    ...


@library(x=0)
def gammasgn(x: Operand, /) -> Tensor:
    """Return the sign of the gamma function of each element."""
    ...


def _of_rgamma(x: Tensor, y: Tensor) -> Tensor:
    """Return the derivative of 1 / gamma: for real numbers below 1/2, where gamma has poles, by reflection."""
    if x.dtype.kind == "c":
        return -y * xt.special.psi(x)
    low = x < 0.5
    turned, above = xt.where(low, 1 - x, 1), xt.where(low, 1, x)
    slope = cos_pi(x) - xt.special.psi(turned) * x * sinc(x)
    return xt.where(low, xt.special.gamma(turned) * slope, -y * xt.special.psi(above))


@library(FLOATING, x=_of_rgamma)
def rgamma(x: Operand, /) -> Tensor:
    """Return 1 / gamma(x) of each element."""
    ...


@library(FLOATING, x=lambda x: xt.special.polygamma(1, x))
def psi(x: Operand, /) -> Tensor:
    """Return the digamma function of each element, the derivative of gammaln."""
    ...


digamma = psi


@library(q=lambda x, q: -x * xt.special.zeta(x + 1, q))
def _zeta(x: Operand, q: Operand, /) -> Tensor:
    """Return Hurwitz' zeta function."""
    ...


@differentiable(x=unknown("zeta", "x"))
def _riemann(x: Tensor) -> Tensor:
    return by_library("zeta", (x,))


@differentiable(x=unknown("zeta", "x"))
def _complex_zeta(x: Tensor) -> Any:
    """Return Riemann's zeta function of complex numbers, which SciPy has by a function of Python."""
    function = native_of(x.device.backend.special("zeta").zeta)
    return on(x, "zeta", lambda xp, a: function(a))


def zeta(x: Operand, q: Any = None) -> Tensor:
    """Return Hurwitz' zeta function, the sum of (k + q)**-x over k = 0, 1, ...; Riemann's if q is None.

    Takes real floating dtypes, and integers and booleans as float64, complex ones without q; raises TypeError for
    others. x has no derivative. Source: scipy.special.zeta.
    """
    if q is not None:
        return _zeta(x, q)
    if is_complex(x):
        x = as_tensor(x, "zeta")
        return cast(Tensor, _complex_zeta(x))
    (x,) = floats("zeta", REAL_FLOATING, ("x",), (x,))
    return _riemann(x) if x.device == "cpu" else _zeta(x, 1.0)  # CuPy has Hurwitz' alone, the same where x > 1


zeta.rule = _zeta.rule  # type: ignore[attr-defined]  # for the table in the docs


@composed(n=unknown("polygamma", "n"), x=lambda n, x: xt.special.polygamma(n + 1, x))
def polygamma(n: Any, x: Any, /) -> Tensor:
    """Return the n-th derivative of psi at each x, for non-negative integers n; NaN for other orders."""
    order = xt.where(n == 0, 1, n)
    sign = xt.where(xt.floor(n) == n, 1 - 2 * xt.remainder(order + 1, 2), nan)
    return xt.where(n == 0, psi(x), sign * gamma(order + 1) * _zeta(order + 1, x))


@library(
    a=lambda y, a, b: y * (xt.special.psi(a) - xt.special.psi(a + b)),
    b=lambda y, a, b: y * (xt.special.psi(b) - xt.special.psi(a + b)),
)
def beta(a: Operand, b: Operand, /) -> Tensor:
    """Return the beta function, gamma(a) gamma(b) / gamma(a + b)."""
    ...


@library(
    a=lambda a, b: xt.special.psi(a) - xt.special.psi(a + b), b=lambda a, b: xt.special.psi(b) - xt.special.psi(a + b)
)
def betaln(a: Operand, b: Operand, /) -> Tensor:
    """Return the logarithm of the absolute value of the beta function."""
    ...


@library(
    n=lambda y, n, k: y * (xt.special.psi(n + 1) - xt.special.psi(n - k + 1)),
    k=lambda y, n, k: y * (xt.special.psi(n - k + 1) - xt.special.psi(k + 1)),
)
def binom(n: Operand, k: Operand, /) -> Tensor:
    """Return the binomial coefficient of real arguments, 1 / ((n + 1) beta(n - k + 1, k + 1))."""
    ...


@library(z=lambda y, z, m: y * (xt.special.psi(z + m) - xt.special.psi(z)), m=lambda y, z, m: y * xt.special.psi(z + m))
def poch(z: Operand, m: Operand, /) -> Tensor:
    """Return Pochhammer's symbol, gamma(z + m) / gamma(z)."""
    ...


def multigammaln(a: Any, d: int) -> Tensor:
    """Return the logarithm of the multivariate gamma function of dimension d of each element.

    Takes real floating dtypes, and integers and booleans as float64; raises TypeError for others, ValueError unless d
    is a positive integer. Where 2 a <= d - 1, for which SciPy raises ValueError, the result is that of gammaln. Source:
    scipy.special.multigammaln.
    """
    (a,) = floats("multigammaln", REAL_FLOATING, ("a",), (a,))
    number = as_tensor(d, "multigammaln", "d")
    if number.ndim or float(number) < 1 or float(number) % 1:
        raise ValueError(expected("multigammaln", "d", "be a positive integer", d))
    total = gammaln(a)
    for step in range(1, int(d)):
        total = total + gammaln(a - 0.5 * step)
    return total + 0.25 * int(d) * (int(d) - 1) * log(pi)

"""The error function's kin, and distributions: SciPy's functions with their derivatives."""

from __future__ import annotations

from math import inf, pi, prod

from ..autograd.rules import xt
from ..nn.activations import series
from ..tensor.face import Tensor
from ..tensor.operands import Operand
from .declare import ROOT_2_PI, ROOT_PI, library
from .formulas import erf, exprel_slope, xlog1py, xlogy
from .gamma_functions import betaln, gammaln

__all__ = [
    "betainc",
    "betaincc",
    "betaincinv",
    "boxcox",
    "boxcox1p",
    "chdtr",
    "chdtrc",
    "dawsn",
    "erfc",
    "erfcinv",
    "erfcx",
    "erfi",
    "erfinv",
    "gammainc",
    "gammaincc",
    "gammainccinv",
    "gammaincinv",
    "inv_boxcox",
    "inv_boxcox1p",
    "log_ndtr",
    "ndtr",
    "ndtri",
    "owens_t",
    "pdtr",
    "stdtr",
    "stdtrit",
]

# ---- the error function's kin


@library(x=lambda x: -2 / ROOT_PI * xt.exp(-x * x))
def erfc(x: Operand, /) -> Tensor:
    """Return 1 - erf(x) of each element, with full accuracy where that is small."""
    ...


# The derivatives of erfcx and dawsn far from 0, where two terms cancel: their coefficients of x**-2, x**-4 and so on.
_OF_DAWSN = tuple(-prod(range(1, 2 * k, 2)) / 2**k for k in range(1, 24))
_OF_ERFCX = tuple((-1) ** k * 2 / ROOT_PI * one for k, one in enumerate(_OF_DAWSN))


def _or_series(near: Tensor, x: Tensor, far: Tensor, coefficients: tuple[float, ...]) -> Tensor:
    """Return a derivative; where `far` is true, it is computed by a series in 1 / x**2 without its first term."""
    inverse = 1 / xt.square(xt.where(far, x, 8))
    return xt.where(far, inverse * series(inverse, coefficients), near)


@library(x=lambda x, y: _or_series(2 * x * y - 2 / ROOT_PI, x, x > 8, _OF_ERFCX))
def erfcx(x: Operand, /) -> Tensor:
    """Return exp(x**2) erfc(x) of each element."""
    ...


@library(x=lambda x: 2 / ROOT_PI * xt.exp(x * x))
def erfi(x: Operand, /) -> Tensor:
    """Return the imaginary error function -i erf(i x) of each element."""
    ...


@library(x=lambda y: ROOT_PI / 2 * xt.exp(y * y))
def erfinv(x: Operand, /) -> Tensor:
    """Return the number whose erf is each element; NaN outside [-1, 1]."""
    ...


@library(x=lambda y: -ROOT_PI / 2 * xt.exp(y * y))
def erfcinv(x: Operand, /) -> Tensor:
    """Return the number whose erfc is each element; NaN outside [0, 2]."""
    ...


@library(x=lambda x, y: _or_series(1 - 2 * x * y, x, xt.abs(x) > 8, _OF_DAWSN))
def dawsn(x: Operand, /) -> Tensor:
    """Return Dawson's integral of each element, exp(-x**2) times the integral of exp(t**2) from 0 to x."""
    ...


# ---- the normal distribution


@library(x=lambda x: xt.exp(-0.5 * x * x) / ROOT_2_PI)
def ndtr(x: Operand, /) -> Tensor:
    """Return the standard normal distribution function of each element."""
    ...


# The derivative is the density over the distribution function; far below 0 both underflow, but erfcx does not.
@library(x=lambda x: (2 / pi) ** 0.5 / erfcx(-(0.5**0.5) * x))
def log_ndtr(x: Operand, /) -> Tensor:
    """Return the logarithm of the standard normal distribution function of each element."""
    ...


@library(x=lambda y: ROOT_2_PI * xt.exp(0.5 * y * y))
def ndtri(x: Operand, /) -> Tensor:
    """Return the number whose ndtr is each element: the quantile of the standard normal distribution."""
    ...


def _owens_slope(h: Tensor, a: Tensor) -> Tensor:
    return xt.exp(-0.5 * h * h * (1 + a * a)) / (2 * pi * (1 + a * a))


@library(
    h=lambda h, a: erf(a * h * 0.5**0.5) * xt.exp(-0.5 * h * h) / (-2 * ROOT_2_PI),
    a=_owens_slope,
)
def owens_t(h: Operand, a: Operand, /) -> Tensor:
    """Return Owen's T function: the probability of X > h and 0 < Y < a X for independent standard normal X and Y."""
    ...


# ---- the incomplete gamma function


def _gamma_density(a: Tensor, x: Tensor) -> Tensor:
    """Return x**(a - 1) exp(-x) / gamma(a)."""
    return xt.exp(xlogy(a - 1, x) - x - gammaln(a))


@library(x=lambda a, x: _gamma_density(a, x))
def gammainc(a: Operand, x: Operand, /) -> Tensor:
    """Return the regularized lower incomplete gamma function: t**(a-1) exp(-t) / gamma(a) integrated from 0 to x."""
    ...


@library(x=lambda a, x: -_gamma_density(a, x))
def gammaincc(a: Operand, x: Operand, /) -> Tensor:
    """Return 1 - gammainc(a, x), with full accuracy where that is small."""
    ...


@library(p=lambda a, y: 1 / _gamma_density(a, y))
def gammaincinv(a: Operand, p: Operand, /) -> Tensor:
    """Return the x for which gammainc(a, x) = p."""
    ...


@library(p=lambda a, y: -1 / _gamma_density(a, y))
def gammainccinv(a: Operand, p: Operand, /) -> Tensor:
    """Return the x for which gammaincc(a, x) = p."""
    ...


@library(x=lambda v, x: 0.5 * _gamma_density(0.5 * v, 0.5 * x))
def chdtr(v: Operand, x: Operand, /) -> Tensor:
    """Return the chi-squared distribution function with v degrees of freedom."""
    ...


@library(x=lambda v, x: -0.5 * _gamma_density(0.5 * v, 0.5 * x))
def chdtrc(v: Operand, x: Operand, /) -> Tensor:
    """Return 1 - chdtr(v, x), with full accuracy where that is small."""
    ...


@library(m=lambda k, m: -_gamma_density(xt.floor(k) + 1, m))
def pdtr(k: Operand, m: Operand, /) -> Tensor:
    """Return the Poisson distribution function with mean m at k."""
    ...


# ---- the incomplete beta function


def _beta_density(a: Tensor, b: Tensor, x: Tensor) -> Tensor:
    """Return x**(a - 1) (1 - x)**(b - 1) / beta(a, b)."""
    return xt.exp(xlogy(a - 1, x) + xlog1py(b - 1, -x) - betaln(a, b))


@library(x=lambda a, b, x: _beta_density(a, b, x))
def betainc(a: Operand, b: Operand, x: Operand, /) -> Tensor:
    """Return the regularized incomplete beta function: t**(a-1) (1-t)**(b-1) / beta(a, b) integrated from 0 to x."""
    ...


@library(x=lambda a, b, x: -_beta_density(a, b, x))
def betaincc(a: Operand, b: Operand, x: Operand, /) -> Tensor:
    """Return 1 - betainc(a, b, x), with full accuracy where that is small."""
    ...


@library(p=lambda a, b, y: 1 / _beta_density(a, b, y))
def betaincinv(a: Operand, b: Operand, p: Operand, /) -> Tensor:
    """Return the x for which betainc(a, b, x) = p."""
    ...


def _student_density(df: Tensor, t: Tensor) -> Tensor:
    return xt.exp(-0.5 * (df + 1) * xt.log1p(t * t / df) - betaln(0.5 * df, 0.5)) / xt.sqrt(df)


@library(t=lambda df, t: _student_density(df, t))
def stdtr(df: Operand, t: Operand, /) -> Tensor:
    """Return Student's t distribution function with df degrees of freedom."""
    ...


@library(p=lambda df, y: 1 / _student_density(df, y))
def stdtrit(df: Operand, p: Operand, /) -> Tensor:
    """Return the t for which stdtr(df, t) = p."""
    ...


# ---- Box and Cox's transformation


def _by_power(log: Tensor, lmbda: Tensor) -> Tensor:
    """The derivative of (exp(lmbda log) - 1) / lmbda by lmbda; log: a logarithm."""
    lost = log == -inf
    log = xt.where(lost, 0, log)
    return xt.where(lost, 1 / xt.square(lmbda), xt.square(log) * exprel_slope(lmbda * log))


# (u / (1 + u) - log(1 + u)) / u**2 near 0: its coefficients of u**k.
_OF_INVERSE = tuple((-1) ** (k + 1) * (k + 1) / (k + 2) for k in range(18))


def _by_root(x: Tensor, lmbda: Tensor) -> Tensor:
    """The derivative of log(1 + lmbda x) / lmbda by lmbda."""
    u = lmbda * x
    far = xt.abs(u) > 0.1
    apart, near = xt.where(far, u, 1), xt.where(far, 0, u)
    rest = (apart / (1 + apart) - xt.log1p(apart)) / xt.square(apart)
    return xt.square(x) * xt.where(far, rest, series(near, _OF_INVERSE))


@library(x=lambda x, lmbda: xt.pow(x, lmbda - 1), lmbda=lambda x, lmbda: _by_power(xt.log(x), lmbda))
def boxcox(x: Operand, lmbda: Operand, /) -> Tensor:
    """Return (x**lmbda - 1) / lmbda, and log(x) where lmbda is 0."""
    ...


@library(x=lambda x, lmbda: xt.pow(1 + x, lmbda - 1), lmbda=lambda x, lmbda: _by_power(xt.log1p(x), lmbda))
def boxcox1p(x: Operand, lmbda: Operand, /) -> Tensor:
    """Return ((1 + x)**lmbda - 1) / lmbda, and log(1 + x) where lmbda is 0."""
    ...


@library(x=lambda y, lmbda: xt.pow(y, 1 - lmbda), lmbda=lambda x, lmbda, y: y * _by_root(x, lmbda))
def inv_boxcox(x: Operand, lmbda: Operand, /) -> Tensor:
    """Return the number whose boxcox is x."""
    ...


@library(x=lambda y, lmbda: xt.pow(1 + y, 1 - lmbda), lmbda=lambda x, lmbda, y: (1 + y) * _by_root(x, lmbda))
def inv_boxcox1p(x: Operand, lmbda: Operand, /) -> Tensor:
    """Return the number whose boxcox1p is x."""
    ...

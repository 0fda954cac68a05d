"""Bessel functions, integrals, and functions of degrees: SciPy's functions with their derivatives."""

from __future__ import annotations

from math import comb, factorial, pi

from ..autograd.rules import xt
from ..base.dtypes import FLOATING
from ..nn.activations import series
from ..tensor.face import Tensor
from ..tensor.operands import Operand
from .declare import library

__all__ = [
    "cbrt",
    "cosdg",
    "cotdg",
    "ellipe",
    "ellipk",
    "exp1",
    "expi",
    "expn",
    "i0",
    "i0e",
    "i1",
    "i1e",
    "iv",
    "j0",
    "j1",
    "jv",
    "k0",
    "k0e",
    "k1",
    "k1e",
    "kv",
    "sindg",
    "spence",
    "tandg",
    "wrightomega",
    "y0",
    "y1",
    "yv",
]


# Coefficients of power series: of the derivatives of K(m), E(m) and spence; of i1(x) / x and j1(x) / x, in x**2.
_SQUARES = tuple((comb(2 * k, k) / 4**k) ** 2 for k in range(32))
_OF_K = tuple(pi / 2 * k * _SQUARES[k] for k in range(1, 32))
_OF_E = tuple(-pi / 2 * k / (2 * k - 1) * _SQUARES[k] for k in range(1, 32))
_OF_I1 = tuple(0.5 / (4**k * factorial(k) * factorial(k + 1)) for k in range(16))
_OF_J1 = tuple((-1) ** k * one for k, one in enumerate(_OF_I1))
_OF_SPENCE = tuple(-1 / k for k in range(1, 32))


def _apart(x: Tensor, far: Tensor) -> tuple[Tensor, Tensor]:
    """Return x where `far` is true and else 1, and x where it is false and else 0."""
    return xt.where(far, x, 1), xt.where(far, 0, x)


def _over(y: Tensor, x: Tensor, coefficients: tuple[float, ...]) -> Tensor:
    """Return j1(x) / x or i1(x) / x, near 0 by a series, whose derivatives are accurate, too. y: the function of x."""
    far = xt.abs(x) > 2
    apart, near = _apart(x, far)
    return xt.where(far, y / apart, series(near * near, coefficients))


# ---- Bessel functions of the first and second kind


@library(x=lambda x: -xt.special.j1(x))
def j0(x: Operand, /) -> Tensor:
    """Return the Bessel function of the first kind of order 0."""
    ...


@library(x=lambda x, y: xt.special.j0(x) - _over(y, x, _OF_J1))
def j1(x: Operand, /) -> Tensor:
    """Return the Bessel function of the first kind of order 1."""
    ...


@library(x=lambda x: -xt.special.y1(x))
def y0(x: Operand, /) -> Tensor:
    """Return the Bessel function of the second kind of order 0."""
    ...


@library(x=lambda x, y: xt.special.y0(x) - y / x)
def y1(x: Operand, /) -> Tensor:
    """Return the Bessel function of the second kind of order 1."""
    ...


@library(FLOATING, z=lambda v, z: 0.5 * (xt.special.jv(v - 1, z) - xt.special.jv(v + 1, z)))
def jv(v: Operand, z: Operand, /) -> Tensor:
    """Return the Bessel function of the first kind of real order v."""
    ...


@library(FLOATING, z=lambda v, z: 0.5 * (xt.special.yv(v - 1, z) - xt.special.yv(v + 1, z)))
def yv(v: Operand, z: Operand, /) -> Tensor:
    """Return the Bessel function of the second kind of real order v."""
    ...


# ---- modified Bessel functions


@library(x=lambda x: xt.special.i1(x))
def i0(x: Operand, /) -> Tensor:
    """Return the modified Bessel function of the first kind of order 0."""
    ...


@library(x=lambda x, y: xt.special.i1e(x) - xt.sign(x) * y)
def i0e(x: Operand, /) -> Tensor:
    """Return exp(-abs(x)) i0(x) of each element."""
    ...


@library(x=lambda x, y: xt.special.i0(x) - _over(y, x, _OF_I1))
def i1(x: Operand, /) -> Tensor:
    """Return the modified Bessel function of the first kind of order 1."""
    ...


def _of_i1e(x: Tensor, y: Tensor) -> Tensor:
    far = xt.abs(x) > 2
    apart, near = _apart(x, far)
    over = xt.where(far, y / apart, xt.exp(-xt.abs(near)) * series(near * near, _OF_I1))
    return xt.special.i0e(x) - xt.sign(x) * y - over


@library(x=_of_i1e)
def i1e(x: Operand, /) -> Tensor:
    """Return exp(-abs(x)) i1(x) of each element."""
    ...


@library(x=lambda x: -xt.special.k1(x))
def k0(x: Operand, /) -> Tensor:
    """Return the modified Bessel function of the second kind of order 0."""
    ...


@library(x=lambda x, y: y - xt.special.k1e(x))
def k0e(x: Operand, /) -> Tensor:
    """Return exp(x) k0(x) of each element."""
    ...


@library(x=lambda x, y: -xt.special.k0(x) - y / x)
def k1(x: Operand, /) -> Tensor:
    """Return the modified Bessel function of the second kind of order 1."""
    ...


@library(x=lambda x, y: y - xt.special.k0e(x) - y / x)
def k1e(x: Operand, /) -> Tensor:
    """Return exp(x) k1(x) of each element."""
    ...


@library(FLOATING, z=lambda v, z: 0.5 * (xt.special.iv(v - 1, z) + xt.special.iv(v + 1, z)))
def iv(v: Operand, z: Operand, /) -> Tensor:
    """Return the modified Bessel function of the first kind of real order v."""
    ...


@library(FLOATING, z=lambda v, z: -0.5 * (xt.special.kv(v - 1, z) + xt.special.kv(v + 1, z)))
def kv(v: Operand, z: Operand, /) -> Tensor:
    """Return the modified Bessel function of the second kind of real order v."""
    ...


# ---- integrals


@library(FLOATING, x=lambda x: xt.exp(x) / x)
def expi(x: Operand, /) -> Tensor:
    """Return the exponential integral: the integral of exp(t) / t from -inf to x."""
    ...


@library(FLOATING, x=lambda x: -xt.exp(-x) / x)
def exp1(x: Operand, /) -> Tensor:
    """Return the exponential integral: the integral of exp(-x t) / t from 1 to inf."""
    ...


def _of_expn(n: Tensor, x: Tensor) -> Tensor:
    return xt.where(n >= 1, xt.special.expn(xt.maximum(n - 1, 0), x), (x + 1) * xt.exp(-x) / (x * x))


@library(x=lambda n, x: -_of_expn(n, x))
def expn(n: Operand, x: Operand, /) -> Tensor:
    """Return the integral of exp(-x t) / t**n from 1 to inf, for non-negative integers n."""
    ...


def _of_ellipk(m: Tensor, y: Tensor) -> Tensor:
    far = xt.abs(m) > 0.25
    apart, near = _apart(m, far)
    return xt.where(far, 0.5 * (xt.special.ellipe(m) / (1 - m) - y) / apart, series(near, _OF_K))


def _of_ellipe(m: Tensor, y: Tensor) -> Tensor:
    far = xt.abs(m) > 0.25
    apart, near = _apart(m, far)
    return xt.where(far, 0.5 * (y - xt.special.ellipk(m)) / apart, series(near, _OF_E))


@library(m=_of_ellipk)
def ellipk(m: Operand, /) -> Tensor:
    """Return the complete elliptic integral of the first kind with parameter m."""
    ...


@library(m=_of_ellipe)
def ellipe(m: Operand, /) -> Tensor:
    """Return the complete elliptic integral of the second kind with parameter m."""
    ...


def _of_spence(z: Tensor) -> Tensor:
    far = xt.abs(1 - z) > 0.25
    apart, near = _apart(1 - z, far)
    return xt.where(far, xt.log(xt.where(far, z, 1)) / apart, series(near, _OF_SPENCE))


@library(FLOATING, z=_of_spence)
def spence(z: Operand, /) -> Tensor:
    """Return the dilogarithm, the integral of log(t) / (1 - t) from 1 to z."""
    ...


# ---- others


@library(x=lambda y: 1 / (3 * xt.square(y)))
def cbrt(x: Operand, /) -> Tensor:
    """Return the cube root of each element."""
    ...


@library(FLOATING, z=lambda y: y / (1 + y))
def wrightomega(z: Operand, /) -> Tensor:
    """Return the number y for which y + log(y) = z."""
    ...


@library(x=lambda x: -pi / 180 * xt.special.sindg(x))
def cosdg(x: Operand, /) -> Tensor:
    """Return the cosine of each angle in degrees."""
    ...


@library(x=lambda x: pi / 180 * xt.special.cosdg(x))
def sindg(x: Operand, /) -> Tensor:
    """Return the sine of each angle in degrees."""
    ...


@library(x=lambda y: pi / 180 * (1 + y * y))
def tandg(x: Operand, /) -> Tensor:
    """Return the tangent of each angle in degrees."""
    ...


@library(x=lambda y: -pi / 180 * (1 + y * y))
def cotdg(x: Operand, /) -> Tensor:
    """Return the cotangent of each angle in degrees."""
    ...

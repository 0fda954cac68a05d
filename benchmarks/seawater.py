"""An expression of hundreds of steps: how the dynamic enthalpy of sea water changes with its temperature.

The 48 terms for the density of sea water of IOC, SCOR and IAPSO (2010), "The international thermodynamic equation of
seawater": the specific volume is a quotient of two polynomials in the pressure p,

    v = (a0 + a1 p + a2 p^2 + a3 p^3) / (b0 + 2 b1 p + b2 p^2),

whose coefficients are polynomials in salinity and temperature. Its integral over p is the dynamic enthalpy; here is the
derivative of that, every quantity with its slope beside it, as ocean models compute it in every cell.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Pair = tuple[Any, Any]

# The coefficients of b0, b1, b2, a0, a1, a2 and a3, in the order of the publication.
B0 = (9.998420897506056e2, 2.839940833161907e0, -3.147759265588511e-2, 1.181805545074306e-3)
B0_SALT = (-6.698001071123802e0, -2.986498947203215e-2, 2.327859407479162e-4)
B0_ROOT = (-3.988822378968490e-2, 5.095422573880500e-4, -1.426984671633621e-5, 1.645039373682922e-7)
B1 = (-2.233269627352527e-2, -3.436090079851880e-4, 3.726050720345733e-6)
B1_SALT = (-1.806789763745328e-4, 6.876837219536232e-7)
B2 = (-3.087032500374211e-7, -1.988366587925593e-8, -1.061519070296458e-11)
B2_SALT = 1.550932729220080e-10
A0 = (1.0, 2.775927747785646e-3, -2.349607444135925e-5, 1.119513357486743e-6, 6.743689325042773e-10)
A0_SALT = (
    *(-7.521448093615448e-3, -2.764306979894411e-5, 1.262937315098546e-7, 9.527875081696435e-10),
    -1.811147201949891e-11,
)
A0_ROOT = (
    *(-3.303308871386421e-5, 3.801564588876298e-7, -7.672876869259043e-9, -4.634182341116144e-11),
    2.681097235569143e-12,
)
A0_SQUARE = 5.419326551148740e-6
A1 = (-2.742185394906099e-5, -3.212746477974189e-7, 3.191413910561627e-9, -1.931012931541776e-12)
A1_SALT = (-1.105097577149576e-7, 6.211426728363857e-10)
A2 = (-1.119011592875110e-10, -1.941660213148725e-11, -1.864826425365600e-14)
A2_SALT = 1.119522344879478e-14
A3 = (-1.200507748551599e-15, 6.057902487546866e-17)


def waters(rng: np.random.Generator, n: int, dtype: str) -> list[np.ndarray[Any, Any]]:
    """Make absolute salinities in g/kg, conservative temperatures in degrees, and pressures in dbar."""
    return [rng.uniform(low, high, n).astype(dtype) for low, high in ((0.01, 10.0), (-12.0, 20.0), (0.0, 1000.0))]


def polynomial(x: Any, coefficients: tuple[float, ...]) -> Pair:
    """Return a polynomial and its slope, by Horner's rule."""
    value = coefficients[-2] + coefficients[-1] * x
    slope: Any = coefficients[-1]
    for coefficient in coefficients[-3::-1]:
        value, slope = coefficient + value * x, value + slope * x
    return value, slope


def with_salt(pure: Pair, factor: Any, salty: Pair) -> Pair:
    """Return a polynomial in the temperature with another one added, times what does not depend on it."""
    return pure[0] + factor * salty[0], pure[1] + factor * salty[1]


def enthalpy_slope(xp: Any, salinity: Any, temperature: Any, pressure: Any) -> Any:
    """Return the derivative of the dynamic enthalpy by the temperature, in J / (kg K)."""
    s, t, p = salinity, temperature, pressure
    root = xp.sqrt(s)
    b0, b0_ = with_salt(polynomial(t, B0), s, with_salt(polynomial(t, B0_SALT), root, polynomial(t, B0_ROOT)))
    b1, b1_ = with_salt(polynomial(t, B1), s, polynomial(t, B1_SALT))
    b1, b1_ = 0.5 * b1, 0.5 * b1_
    b2, b2_ = polynomial(t, B2)
    b2 = b2 + B2_SALT * s
    a0, a0_ = with_salt(polynomial(t, A0), s, with_salt(polynomial(t, A0_SALT), root, polynomial(t, A0_ROOT)))
    a0 = a0 + A0_SQUARE * s * s
    a1, a1_ = with_salt(polynomial(t, A1), s, polynomial(t, A1_SALT))
    a2, a2_ = polynomial(t, A2)
    a2, a2_ = a2 + A2_SALT * t * s, a2_ + A2_SALT * s
    a3, a3_ = polynomial(t, A3)

    # The quotient is a3 p / b2 + e / b2 and a rest, c0 + c1 p over the divisor.
    e = a2 - 2.0 * a3 * b1 / b2
    e_ = a2_ - 2.0 * (a3_ * b1 / b2 + a3 * b1_ / b2 - a3 * b1 * b2_ / b2**2)
    c0 = a0 - b0 * e / b2
    c0_ = a0_ - (b0_ * e / b2 + b0 * e_ / b2 - b0 * e * b2_ / b2**2)
    c1 = a1 - (a3 * b0 + 2.0 * b1 * e) / b2
    c1_ = a1_ - (a3_ * b0 + a3 * b0_ + 2.0 * (b1_ * e + b1 * e_)) / b2 + (a3 * b0 + 2.0 * b1 * e) * b2_ / b2**2

    # Its integral: a polynomial, the logarithm of the divisor, and that of a quotient of its factors.
    whole_ = p * (e_ + 0.5 * a3_ * p) / b2 - p * (e + 0.5 * a3 * p) * b2_ / b2**2
    grown = 1.0 + p * (2.0 * b1 + b2 * p) / b0
    grown_ = p * (2.0 * b1_ + b2_ * p) / b0 - p * (2.0 * b1 + b2 * p) * b0_ / b0**2
    first_ = (c1_ / b2 - c1 * b2_ / b2**2) * xp.log(grown) + c1 / b2 * grown_ / grown

    d = xp.sqrt(b1**2 - b0 * b2)
    d_ = (2.0 * b1 * b1_ - b0_ * b2 - b0 * b2_) / (2.0 * d)
    part = (c0 * b2 - c1 * b1) / (b2 * d)
    part_ = (c0_ * b2 + c0 * b2_ - c1_ * b1 - c1 * b1_) / (b2 * d) - part * (b2_ / b2 + d_ / d)
    low, low_ = b1 - d, b1_ - d_
    high, high_ = b1 + b2 * p + d, b1_ + b2_ * p + d_
    between = 2.0 * b2 * p * d / (low * high)
    between_ = 2.0 * p * (b2_ * d + b2 * d_) / (low * high) - between * (low_ / low + high_ / high)
    second_ = part_ * xp.log(1.0 + between) + part * between_ / (1.0 + between)
    return 1e4 * (whole_ + 0.5 * first_ + 0.5 * second_)

"""Exponentials and logarithms as straight vector code, for float32 and float64, and their parts for other functions.

math.py explains the comments and names.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from math import inf, nan
from typing import Any

from .vector import (
    BIAS,
    DIGITS,
    F32,
    F64,
    Pair,
    Vector,
    absolute,
    bits,
    clamp,
    fast_two_sum,
    fma,
    from_bits,
    nearest,
    polynomial,
    power_of_two,
    select,
    split,
    two_product,
    two_sum,
)

# exp ------------------------------------------------------------------------------------------------------------
LOG2_E = 1 / math.log(2)
# ln 2 = hi + lo: hi has so few bits that n * hi is exact, lo is the rest rounded.
LN2 = {F32: (0.693145751953125, 1.428606765330187e-06), F64: (0.6931471803691238, 1.9082149292705877e-10)}
# exp(r) = 1 + r + r^2 P(r), |r| < 0.3467: 2^-28 and 2^-60
EXP = {
    F32: (0.49999994, 0.16666517, 0.041668102, 0.008369201, 0.0013839063),
    F64: (
        *(0.5, 0.16666666666666688, 0.041666666666666824, 0.00833333333331392, 0.0013888888888778253),
        *(0.0001984126990318895, 2.4801587556130047e-05, 2.7557229068082677e-06, 2.7557075989824967e-07),
        *(2.511367561959072e-08, 2.0971498370900477e-09),
    ),
}
# The same for e^x - 1, where half of the digits may cancel: 2^-33 and 2^-60
EXPM1 = {F32: (0.5, 0.16666667, 0.041666463, 0.008333209, 0.0013935136, 0.00019943497), F64: EXP[F64]}
# Beyond these exp is 0 or infinite.
EXP_RANGE = {F32: (-104.0, 89.0), F64: (-746.0, 710.0)}
# 2^r = 1 + r P(r), |r| < 0.5: 2^-27.5 and 2^-59.6
EXP2 = {
    F32: (0.69314724, 0.24022655, 0.055502724, 0.009617064, 0.0013417833, 0.00015826306),
    F64: (
        *(0.6931471805599453, 0.2402265069591007, 0.05550410866482338, 0.00961812910763023, 0.0013333558146032853),
        *(0.00015403530388886363, 1.5252734167534547e-05, 1.3215491331379832e-06, 1.0177932030648942e-07),
        *(7.052950408564401e-09, 4.4733505063515394e-10, 2.8725507265753752e-11),
    ),
}


def exp(x: Vector) -> Vector:
    """e^x = 2^n e^r with |r| <= ln(2) / 2."""
    x = clamp(x, *EXP_RANGE[x.dtype])
    n, integer = nearest(x, LOG2_E, 2 * BIAS[x.dtype])
    high, low = LN2[x.dtype]
    r = fma(n, -low, fma(n, -high, x))
    return power_of_two(polynomial(r, (1.0, 1.0, *EXP[x.dtype])), integer)


def exp2(x: Vector) -> Vector:
    """2^x: exact for integers."""
    x = clamp(x, *((-151.0, 129.0) if x.dtype == F32 else (-1076.0, 1025.0)))
    n, integer = nearest(x, 1.0, 2 * BIAS[x.dtype])
    return power_of_two(polynomial(x - n, (1.0, *EXP2[x.dtype])), integer)


def exp_parts(
    x: Vector, offset: int, more: Vector | None = None, coefficients: Mapping[Any, Sequence[float]] = EXP
) -> tuple[Vector, Vector, Vector, Vector]:
    """Return (r, t, n, integer) with e^(x + more) = 2^n (1 + r + t) and |t| < |r| / 4; more is tiny, x within range."""
    r, t, n, integer = exp_reduced(x, offset, more)
    return r, fma(r * r, polynomial(r, coefficients[x.dtype]), t), n, integer


def exp_reduced(x: Vector, offset: int, more: Vector | None = None) -> tuple[Vector, Vector, Vector, Vector]:
    """Return (r, t, n, integer) with e^(x + more) = 2^n e^(r + t), where integer is for power_of_two()."""
    n, integer = nearest(x, LOG2_E, offset)
    high, low = LN2[x.dtype]
    rest = n * -low if more is None else fma(n, -low, more)
    r, t = fast_two_sum(fma(n, -high, x), rest)
    return r, t, n, integer


def expm1(x: Vector) -> Vector:
    """e^x - 1 = 2 ((2^(n - 1) - 1/2) + 2^(n - 1) (r + t)): the half keeps the largest results finite."""
    r, t, _, integer = exp_parts(clamp(x, -40.0, EXP_RANGE[x.dtype][1]), BIAS[x.dtype] - 1, None, EXPM1)
    power = from_bits(integer << DIGITS[x.dtype], x.dtype)
    h, rest = fast_two_sum(power, -0.5)
    h, low = two_sum(h, power * r)
    value = (h + (fma(power, t, low) + rest)) * 2.0
    return select(absolute(x) < 2.0 ** -(DIGITS[x.dtype] + 2), x, value)


# log ------------------------------------------------------------------------------------------------------------
# log(1 + f) = f - f^2/2 + f^3 P(f), sqrt(1/2) <= 1 + f <= sqrt(2): 2^-27
LOG_F32 = (0.3333333, -0.25000823, 0.20001261, -0.16623326, 0.14200923, -0.13159622, 0.12767418, -0.07643516)
# log((1 + s) / (1 - s)) = 2 s + s z P(z), z = s^2, the same range: 2^-60
LOG_F64 = (
    *(0.6666666666666735, 0.3999999999940873, 0.28571428743916294, 0.2222219839819239, 0.18183574265975105),
    *(0.15313776326041809, 0.1479888013966504),
)


# As sums of two: 1 / ln 2, 1 / ln 10 and, with an exact n * hi again, log10 2.
LOG2_E_PARTS = {F32: (1.4426950216293335, 1.925963033500011e-08), F64: (1.4426950408889634, 2.0355273740931033e-17)}
LOG10_E_PARTS = {F32: (0.4342944920063019, -1.0103049952192578e-08), F64: (0.4342944819032518, 1.098319650216765e-17)}
LOG10_2 = {F32: (0.301025390625, 4.605039066518657e-06), F64: (0.301029995663157, 8.241712586023572e-13)}


def log_ends(x: Vector, value: Vector) -> Vector:
    """The value of a logarithm where 0 < x < infinity, elsewhere the limit or NaN."""
    value = select(x > 0, value, select(x == 0, x.like(-inf), nan))
    return select(x == inf, x, value)


def log(x: Vector) -> Vector:
    """The natural logarithm."""
    m, n = split(x)
    f = m - 1.0
    square = f * f
    high, low = LN2[x.dtype]
    return log_ends(x, fma(n, high, f + fma(square, -0.5, fma(n, low, series(f, square)))))


def series(f: Vector, square: Vector) -> Vector:
    """log(1 + f) - f + f^2 / 2, given f^2."""
    if f.dtype == F32:
        return (square * f) * polynomial(f, LOG_F32)
    s = f / (f + 2.0)
    z = s * s
    return s * fma(z, polynomial(z, LOG_F64), square * 0.5)


def log_pair(f: Vector, low: Vector | None = None) -> Pair:
    """log(1 + f + low) for sqrt(1/2) <= 1 + f <= sqrt(2): relative error 2^-(digits + 3)."""
    square, square_low = two_product(f, f)
    h, t = fast_two_sum(f, square * -0.5)
    t = t + fma(square_low, -0.5, series(f, square))
    if low is not None:
        t = t + fma(fma(f, f, -f), low, low)
    return h, t


def log1p_pair(f: Vector, low: Vector | None = None) -> tuple[Vector, Vector, Vector]:
    """Return (h, t, u): u = 1 + f and log(1 + f + low) = h + t where u is positive and finite."""
    u, rest = two_sum(f.like(1.0), f)
    if low is not None:
        rest = rest + low
    m, n = split(u, subnormal=False)
    shrink = from_bits(bits(m) - bits(u) + (BIAS[f.dtype] << DIGITS[f.dtype]), f.dtype)  # 2^-n
    rest = select(u < 2.0 ** (DIGITS[f.dtype] + 4), rest * shrink, 0.0)
    same = n == 0.0
    h, t = log_pair(select(same, f, m - 1.0), select(same, 0.0 if low is None else low, rest))
    high, less = LN2[f.dtype]
    h, e = fast_two_sum(n * high, h)
    return h, e + fma(n, less, t), u


def log1p(x: Vector) -> Vector:
    """log(1 + x)."""
    h, t, u = log1p_pair(x)
    return select(x == 0, x, log_ends(u, h + t))


def log_to_base(x: Vector, unit: float, unit_low: float, two: tuple[float, float]) -> Vector:
    """n log 2 + unit log m, with the logarithm of 2 and the unit as sums of two."""
    m, n = split(x)
    h, t = log_pair(m - 1.0)
    p, rest = two_product(h, x.like(unit))
    rest = fma(t, unit, fma(h, unit_low, rest))
    s, e = fast_two_sum(n * two[0], p)
    return log_ends(x, s + (e + fma(n, two[1], rest)))


def log2(x: Vector) -> Vector:
    """The logarithm to base 2: exact for powers of 2."""
    return log_to_base(x, *LOG2_E_PARTS[x.dtype], (1.0, 0.0))


def log10(x: Vector) -> Vector:
    """The logarithm to base 10."""
    return log_to_base(x, *LOG10_E_PARTS[x.dtype], LOG10_2[x.dtype])

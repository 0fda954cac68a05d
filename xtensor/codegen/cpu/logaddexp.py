"""log(e^x + e^y) as straight vector code, with sums of up to three numbers where its terms cancel.

Near the curve e^x + e^y = 1 the terms may cancel in all their digits, and in many more. The result is right to the last
digit as long as it is not below 2^-97 of the terms. It is computed with numbers that are lists of parts, each below the
digits of the one before; most vectors have no such element, and branch around that code.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from math import inf
from typing import Any

from .explog import LN2, LOG2_E, exp, exp_parts, log_pair, series
from .vector import (
    BIAS,
    F32,
    F64,
    Pair,
    Vector,
    absolute,
    choose,
    clamp,
    condensed,
    convert,
    fast_two_sum,
    fma,
    gather,
    nearest,
    power_of_two,
    select,
    two_product,
    two_sum,
    unless_nan,
)

# e^x = 2^n e^(j/32) e^r with |r| <= 2^-6: j for e^a from -30, as a > -0.93.
STEPS, FIRST, LAST = 32, -30, 12
# Results below are computed at 2^200 times their size, where their last parts are no subnormal numbers.
SMALL = 2.0**-700


def product(a: Sequence[Vector], b: Sequence[Vector], parts: int) -> list[Vector]:
    """a * b in so many parts."""
    orders: list[list[Vector]] = [[] for _ in range(parts)]
    for i, x in enumerate(a[:parts]):
        for j, y in enumerate(b[: parts - i]):
            if i + j == parts - 1:
                orders[-1].append(x * y)
            else:
                h, t = two_product(x, y)
                orders[i + j].append(h)
                orders[i + j + 1].append(t)
    return collected(orders)


def total(parts: int, *numbers: Sequence[Vector]) -> list[Vector]:
    """The sum of numbers in so many parts; each is larger than the one after it, or 0."""
    return collected([[number[k] for number in numbers if k < len(number)] for k in range(parts)])


def collected(orders: list[list[Vector]]) -> list[Vector]:
    """The sum of numbers of several orders of magnitude, as one part for each."""
    found = []
    for k, order in enumerate(orders):
        whole = order[0]
        for other in order[1:]:
            if k == len(orders) - 1:
                whole = whole + other
            else:
                whole, rest = two_sum(whole, other) if k else fast_two_sum(whole, other)
                orders[k + 1].append(rest)
        found.append(whole)
    places = [*range(len(found) - 1, 0, -1), *range(2, len(found))]
    for k in places:
        found[k - 1], found[k] = fast_two_sum(found[k - 1], found[k])
    return found


def divided(value: Fraction, parts: int, digits: int = 53) -> list[float]:
    """A number as a sum of floats, each with so many digits."""
    found = []
    for _ in range(parts):
        exponent = math.frexp(float(value))[1] - digits
        found.append(float(round(value * Fraction(2) ** -exponent) * Fraction(2) ** exponent))
        value -= Fraction(found[-1])
    return found


@cache
def exponentials() -> list[float]:
    """e^(j/32) - 1 for every j, in three parts each."""
    found = []
    for j in range(FIRST, LAST + 1):
        term, whole = 1 << 240, 0
        for k in range(1, 60):
            term = term * j // (STEPS * k)
            whole += term
        found += divided(Fraction(whole, 1 << 240), 3)
    return found


@cache
def ln2() -> list[float]:
    """ln 2 in four parts, each so short that its products with exponents are exact."""
    return divided(Fraction(sum((1 << 260 - k) // k for k in range(1, 260)), 1 << 260), 4, 42)


def small_expm1(r: Vector, parts: int) -> list[Vector]:
    """e^r - 1 = r + r^2/2 + r^3/6 + ... for |r| <= 2^-6; terms have as many parts as reach the result's digits."""
    digits = [53 * parts - 5 - 6 * (k - 1) - math.log2(math.factorial(k)) for k in range(1, 20)]
    needed = [math.ceil(one / 53) for one in digits if one > 0]
    found: list[Vector] = []
    for k in range(len(needed), 0, -1):
        coefficient = [r.like(part) for part in divided(Fraction(1, math.factorial(k)), needed[k - 1])]
        found = total(needed[k - 1], coefficient, product(found, [r], needed[k - 1])) if found else coefficient
    return product(found, [r], parts)


def near_expm1(x: Vector, parts: int) -> list[Vector]:
    """e^x - 1 for -0.93 < x < 0.39."""
    table = x.writer.table("exponentials", exponentials(), F64)
    j, integer = nearest(x, STEPS, -FIRST)
    place = (integer & 0xFFFF) * 3
    known = [gather(table, place + k) for k in range(parts)]
    rest = small_expm1(fma(j, -1 / STEPS, x), parts)
    return total(parts, known, rest, product(known, rest, parts))


def exponentials_less_one(a: Vector, b: Vector, parts: int) -> tuple[Pair, Vector]:
    """Return e^a + e^b - 1 times a scale, and that scale, for -0.93 < a < 0 and |log(e^a + e^b)| < |a| / 4.

    parts: 2 for an error of 2^-100 of the terms, 3 for 2^-150.
    """
    one, zero = a.like(1.0), a.like(0.0)
    small = a > -SMALL
    n, integer = nearest(b, LOG2_E, 2 * BIAS[F64])
    pieces = [fma(n, -ln2()[0], b), *(n * -piece for piece in ln2()[1 : parts + 1])]
    x, *less = collected([[piece] for piece in pieces])
    # e^(x + less) = (1 + u) (1 + less + less^2 / 2)
    u = near_expm1(x, parts)
    more = total(parts - 1, less, [zero, less[0] * less[0] * 0.5])
    power = total(parts, [one], u, [zero, *product(total(parts - 1, [one], u), more, parts - 1)])
    integer = integer + select(small, integer.like(200), 0)
    scale = select(small, one.like(2.0**200), 1.0)
    left = [part * scale for part in near_expm1(a, parts)]
    right = [power_of_two(part, integer) for part in power]
    return condensed([part for pair in zip(right, left, strict=True) for part in pair], parts + 1), scale


# Below these fractions of the larger argument too many digits of logaddexp have cancelled, for pairs and with 2 parts.
CANCELLED, CANCELLED_ALL = {F32: 2.0**-20, F64: 0.25}, 2.0**-44


def logaddexp(x: Vector, y: Vector) -> Vector:
    """log(e^x + e^y) = the larger one + log(1 + e^(the smaller one - the larger one))."""
    u, v = convert(x, F64), convert(y, F64)
    larger = u > v
    high, low = select(larger, u, v), select(larger, v, u)
    value = sum_of_logarithms(high, low, x.dtype)
    value = logaddexp_again(value, high, low, CANCELLED[x.dtype], 2)
    return convert(unless_nan(select(absolute(high) == inf, high, value), low), x.dtype)


def logaddexp_again(value: Vector, high: Vector, low: Vector, bound: float, parts: int) -> Vector:
    """logaddexp() with so many parts where |value| is below a fraction of the larger argument; elsewhere the value."""
    near = absolute(value) < absolute(high) * bound

    def again() -> tuple[Vector, ...]:
        less, scale = exponentials_less_one(select(near, high, -0.5), select(near, low, -0.5), parts)
        h, t = log_pair(*less)
        found = select(near, (h + t) / scale, value)
        return (logaddexp_again(found, high, low, CANCELLED_ALL, 3) if bound == CANCELLED[F64] else found,)

    (value,) = value.writer.branch_any(near, again, lambda: (value,))
    return value


def sum_of_logarithms(high: Vector, low: Vector, dtype: Any) -> Vector:
    """log(e^high + e^low), accurate for a dtype where it is not near 0 beside them."""
    d, d_low = two_sum(low, -high)
    d = select(high == low, 0.0, d)
    if dtype == F32:
        e = exp(d)
        large = e > math.sqrt(2) - 1
        f = select(large, (e - 1.0) * 0.5, e)
        square = f * f
        return high + (select(large, f.like(math.log(2)), 0.0) + (f + fma(square, -0.5, series(f, square))))
    one = high.like(1.0)
    r, t, _, integer = exp_parts(clamp(d, -746.0, 0.0), 2 * BIAS[F64], select(d > -1000.0, d_low, 0.0))
    h, e = fast_two_sum(one, r)
    h, e = fast_two_sum(h, e + t)
    h, e = power_of_two(h, integer), power_of_two(e, integer)
    large = h > math.sqrt(2) - 1
    f, f_low = fast_two_sum(-one, h)
    f, f_low = choose(large, (f * 0.5, (f_low + e) * 0.5), (h, e))
    h, t = log_pair(f, f_low)
    base, base_low = (select(large, one.like(part), 0.0) for part in LN2[F64])
    h, e = fast_two_sum(base, h)
    s, rest = two_sum(high, h)
    return s + (rest + (e + (t + base_low)))

"""Floor division as vector code: floored quotients, and remainders, of integers and of floating-point numbers.

Integers are divided in floating point, in ways that make the results exact; floating-point numbers by a multiply-add
without rounding, in several steps if a quotient has too many digits for one.

Source: npy_divmod of NumPy; results agree to the last bit, except for infinities, which follow the standard.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from .vector import (
    TINY,
    LacksError,
    Vector,
    absolute,
    bits,
    convert,
    copysign,
    floor,
    fma,
    from_bits,
    magic,
    magnitude,
    select,
    splat,
    trunc,
)

BOOL, INT32, INT64, UINT64 = (np.dtype(kind) for kind in (bool, np.int32, np.int64, np.uint64))
FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)


# ---- integers


class Divisor(NamedTuple):
    """The values for a division by integers that depend on the divisor alone.

    size: the divisor, 1 where it is 0; if it has 64 bits, its magnitude as uint64. floating: size in floating point.
    inverse: 1 / floating, slightly too large for up to 32 bits, slightly too small for 64.
    """

    size: Vector
    floating: Vector
    inverse: Vector


def divisor(b: Vector) -> Divisor:
    """Write the values for a division by b that depend on b alone."""
    if b.dtype.kind not in "iu":
        raise LacksError(f"whole division in {b.dtype}")
    if b.dtype.itemsize == 8:
        b = convert(magnitude(b), UINT64)
    size = select(b == 0, splat(b, 1), b)
    wide, factor = _DIVISION[b.dtype.itemsize]
    floating = convert(size, wide)
    return Divisor(size, floating, (1.0 / floating) * factor)


# By bytes of the integers: the floating dtype that divides them, and the factor by which the inverse is off.
_DIVISION = {1: (FLOAT32, 1 + 2.0**-21), 2: (FLOAT32, 1 + 2.0**-21), 4: (FLOAT64, 1 + 2.0**-50)}
_DIVISION[8] = (FLOAT64, 1 - 2.0**-50)


def _divided(a: Vector, b: Vector) -> tuple[Vector, Vector, Vector]:
    """Return quotient and rest of integers of up to 32 bits, truncated, and whether the floor is one below.

    This is exact: with an inverse that is too large by a factor 1 + e, a whole quotient does not fall below itself, and
    any other does not reach the next integer, 1 / |b| or more away, as long as |a| e < 1. A divisor of 0 counts as 1.
    """
    known = b.writer.divisors.get(b.name) or divisor(b)
    wide = known.inverse.dtype
    exact = convert(a, wide) * known.inverse
    quotient = convert(convert(exact, INT32) if wide == FLOAT32 else whole(trunc(exact)), a.dtype)
    rest = a - quotient * known.size
    if a.dtype.kind == "u":
        return quotient, rest, splat(a, False, BOOL)
    return quotient, rest, (rest != 0) & ((rest ^ b) < 0)


def whole(x: Vector) -> Vector:
    """Return float64 numbers that are integers below 2^51 as int64; AVX2 has no instruction for that."""
    return bits(x + magic(x)) - bits(splat(x, magic(x)))


# Dividends of 64-bit integers with at most so many bits are divided in float64; quotients are too small by 1 at most.
NARROW = 48


def _divided_wide(a: Vector, b: Vector) -> tuple[Vector, Vector, Vector]:
    """Return quotient and rest of the magnitudes of 64-bit integers, and the divisor's magnitude, as uint64."""
    known = b.writer.divisors.get(b.name) or divisor(b)
    a = convert(magnitude(a), UINT64)
    far, narrow = partial(_divided_far, a, known), partial(_divided_narrow, a, known)
    quotient, rest = a.writer.branch_any((a >> NARROW) != 0, far, narrow)
    return quotient, rest, known.size


def _divided_far(a: Vector, known: Divisor) -> tuple[Vector, Vector]:
    """Return quotient and rest for dividends of any size.

    The inverse is too small by a factor 1 - e with 2^-51 < e < 2^-49, so both steps stay at or below the quotient: the
    first leaves a rest below |b| + 2^15, the second one below 2 |b|.
    """
    size = known.size
    first = convert(convert(a, FLOAT64) * known.inverse, UINT64)
    rest = a - first * size
    second = convert(convert(rest, FLOAT64) * known.inverse, UINT64)
    rest = rest - second * size
    over = rest >= size
    quotient = first + second
    return select(over, quotient + 1, quotient), select(over, rest - size, rest)


def _divided_narrow(a: Vector, known: Divisor) -> tuple[Vector, Vector]:
    """Return quotient and rest for dividends of up to NARROW bits: all rests of them in float64 are exact.

    A divisor with more bits may be rounded, but is still larger than the dividend.
    """
    zero = splat(a, 2.0**52, FLOAT64)
    exact = from_bits(a | bits(zero), FLOAT64) - zero
    quotient = trunc(exact * known.inverse)
    rest = fma(-quotient, known.floating, exact)
    over = rest >= known.floating
    quotient = select(over, quotient + 1.0, quotient)
    rest = select(over, rest - known.floating, rest)
    return convert(whole(quotient), UINT64), convert(whole(rest), UINT64)


# ---- floating-point numbers


# Truncated quotients below this are exact operands of a multiply-add.
FAR = 2.0**52


def _is_far(a: Vector, b: Vector) -> Vector:
    """Return whether a quotient of magnitudes is at least FAR, for operands that have a rest."""
    return ~(a / b < FAR) & (a < np.inf) & (b > 0)


def _nearer(a: Vector, b: Vector) -> Vector:
    """Return the rest of float64 magnitudes a by b times a power of two if their quotient is far, else a."""
    tiny = b < TINY[FLOAT64]
    exponent = bits(select(tiny, b * 2.0**54, b)) >> 52
    exponent = select(tiny, exponent - 54, exponent)
    more = (bits(a) >> 52) - exponent - 51
    half = more >> 1
    size = b * from_bits((half + 1023) << 52, FLOAT64) * from_bits((more - half + 1023) << 52, FLOAT64)
    rest = fma(-trunc(a / size), size, a)
    return select(_is_far(a, b), select(rest < 0, rest + size, rest), a)


def _rest(a: Vector, b: Vector) -> Vector:
    """Return the result of C's fmod, which is exact, as it is a number of the dtype.

    The quotient may be rounded up to the next whole number: then the rest is negative, and above -b.
    """
    dtype = a.dtype
    x, y = (convert(absolute(one), FLOAT64) for one in (a, b))
    x = a.writer.repeat_any(x, partial(_is_far, b=y), partial(_nearer, b=y))
    rest = fma(-trunc(x / y), y, x)
    rest = select(x < y, x, select(rest < 0, rest + y, rest))
    return copysign(convert(rest, dtype), a)


def _real(b: Vector) -> Vector:
    """Return a divisor, which must be of a dtype that this module knows."""
    if b.dtype not in (FLOAT32, FLOAT64):
        raise LacksError(f"whole division in {b.dtype}")
    return b


def _real_remainder(a: Vector, b: Vector) -> Vector:
    rest = _rest(a, _real(b))
    other = ((rest < 0) ^ (b < 0)) & (rest != 0)
    return select(rest == 0, copysign(splat(b, 0.0), b), select(other, rest + b, rest))


def _real_floor_divide(a: Vector, b: Vector) -> Vector:
    """Return the floor of the quotient of a without the rest; where an operand is infinite, that of a / b."""
    rest, exact = _rest(a, _real(b)), a / b
    cut = (a - rest) / b
    cut = select(((rest < 0) ^ (b < 0)) & (rest != 0), cut - 1.0, cut)
    below = floor(cut)
    whole_number = select(cut - below > 0.5, below + 1.0, below)
    found = select(cut == 0, copysign(splat(b, 0.0), exact), whole_number)
    infinite = (absolute(a) == np.inf) | (absolute(b) == np.inf)
    return select(infinite, floor(exact), select(b == 0, exact, found))


# ---- integers or floating-point numbers


def floor_divide(a: Vector, b: Vector) -> Vector:
    if b.dtype.kind == "f":
        return _real_floor_divide(a, b)
    if b.dtype.itemsize < 8:
        quotient, _, above = _divided(a, b)
        quotient = select(above, quotient - 1, quotient) if a.dtype.kind == "i" else quotient
    else:
        quotient, rest, _ = _divided_wide(a, b)
        quotient = convert(quotient, a.dtype)
        if a.dtype.kind == "i":
            quotient = select((a ^ b) < 0, select(rest == 0, -quotient, ~quotient), quotient)
    return select(b == 0, splat(a, 0), quotient)


def remainder(a: Vector, b: Vector) -> Vector:
    if b.dtype.kind == "f":
        return _real_remainder(a, b)
    if b.dtype.itemsize < 8:
        _, rest, above = _divided(a, b)
        return select(above, rest + b, rest) if a.dtype.kind == "i" else rest
    _, rest, size = _divided_wide(a, b)
    if a.dtype.kind == "u":
        return rest
    rest = convert(select(((a ^ b) < 0) & (rest != 0), size - rest, rest), a.dtype)
    return select(b < 0, -rest, rest)

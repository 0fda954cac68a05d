"""The scalar primitives as vector code, with NumPy's meaning for every dtype.

Each takes vectors of its loop's dtypes. The care that machines need is taken here, once: no division traps, no shift
or conversion is undefined, NaN and signed zeros come out as NumPy's do.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ...base.dtypes import DType
from . import math as vecmath
from .vector import (
    Vector,
    absolute,
    bits,
    ceil,
    convert,
    copysign,
    floor,
    fma,
    from_bits,
    magic,
    rint,
    select,
    sqrt,
    trunc,
)

BOOL = np.dtype(bool)
INT32, INT64 = np.dtype(np.int32), np.dtype(np.int64)
UINT64 = np.dtype(np.uint64)
FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)


class LacksError(NotImplementedError):
    """Generated code has no such step; the interpreter has."""


def splat(like: Vector, value: Any, dtype: DType | None = None) -> Vector:
    """Return a constant in every lane."""
    return like.writer.splat(value, dtype or like.dtype)


# ---- arithmetic


def add(a: Vector, b: Vector) -> Vector:
    return a | b if a.dtype == BOOL else a + b


def multiply(a: Vector, b: Vector) -> Vector:
    return a & b if a.dtype == BOOL else a * b


def subtract(a: Vector, b: Vector) -> Vector:
    return a - b


def divide(a: Vector, b: Vector) -> Vector:
    return a / _floating(b)


def negative(a: Vector) -> Vector:
    return -a


def positive(a: Vector) -> Vector:
    return a


def imag(a: Vector) -> Vector:
    return splat(a, 0)


def magnitude(a: Vector) -> Vector:
    if a.dtype.kind == "f":
        return absolute(a)
    return select(a < 0, -a, a) if a.dtype.kind == "i" else a


def sign(a: Vector) -> Vector:
    positive_part = select(a > 0, splat(a, 1), splat(a, 0))
    if a.dtype.kind == "u":
        return positive_part
    result = select(a < 0, splat(a, -1), positive_part)
    return select(a != a, a, result) if a.dtype.kind == "f" else result


def square(a: Vector) -> Vector:
    return multiply(a, a)


def reciprocal(a: Vector) -> Vector:
    return splat(a, 1) / _floating(a)


def _floating(a: Vector) -> Vector:
    if a.dtype.kind != "f":
        raise LacksError(f"division in {a.dtype}")
    return a


class Divisor(NamedTuple):
    """What division by integers needs of the divisor alone.

    size: the divisor, 1 where it is 0; of 64 bits, its magnitude as uint64. floating: that in floating point. inverse:
    1 / floating, a little too large for up to 32 bits, a little too small for 64.
    """

    size: Vector
    floating: Vector
    inverse: Vector


def divisor(b: Vector) -> Divisor:
    """Write what division by b needs of it."""
    if b.dtype.kind not in "iu":
        raise LacksError(f"whole division in {b.dtype}")
    if b.dtype.itemsize == 8:
        b = convert(magnitude(b), UINT64)
    size = select(b == 0, splat(b, 1), b)
    wide, factor = _DIVISION[b.dtype.itemsize]
    floating = convert(size, wide)
    return Divisor(size, floating, (1.0 / floating) * factor)


# By bytes of the integers: the floating dtype that divides them, and by how much the inverse is too large or small.
_DIVISION = {1: (FLOAT32, 1 + 2.0**-21), 2: (FLOAT32, 1 + 2.0**-21), 4: (FLOAT64, 1 + 2.0**-50)}
_DIVISION[8] = (FLOAT64, 1 - 2.0**-50)


def _divided(a: Vector, b: Vector) -> tuple[Vector, Vector, Vector]:
    """Return quotient and rest of integers of up to 32 bits, cut towards zero, and whether the floor is one below.

    Exact: with an inverse too large by a factor 1 + e the quotient of a whole one does not fall below it, and of any
    other one does not reach the next, 1 / |b| or more away, as long as |a| e < 1. A zero divisor counts as 1.
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
    """Return float64 that are integers of less than 2^51 as int64, which AVX2 has no instruction for."""
    return bits(x + magic(x)) - bits(splat(x, magic(x)))


# Dividends of so many bits, of 64, are divided in float64, where quotients are too small by 1 at most.
NARROW = 48


def _divided_wide(a: Vector, b: Vector) -> tuple[Vector, Vector, Vector]:
    """Return quotient and rest of the magnitudes of 64-bit integers, and the divisor's magnitude, as uint64."""
    known = b.writer.divisors.get(b.name) or divisor(b)
    a = convert(magnitude(a), UINT64)
    far, narrow = partial(_divided_far, a, known), partial(_divided_narrow, a, known)
    quotient, rest = a.writer.branch_any((a >> NARROW) != 0, far, narrow)
    return quotient, rest, known.size


def _divided_far(a: Vector, known: Divisor) -> tuple[Vector, Vector]:
    """Return quotient and rest of any numbers.

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
    """Return quotient and rest of dividends of up to NARROW bits: all that is computed of them in float64 is exact.

    A divisor of more bits may be rounded, and is still more than they are.
    """
    zero = splat(a, 2.0**52, FLOAT64)
    exact = from_bits(a | bits(zero), FLOAT64) - zero
    quotient = trunc(exact * known.inverse)
    rest = fma(-quotient, known.floating, exact)
    over = rest >= known.floating
    quotient = select(over, quotient + 1.0, quotient)
    rest = select(over, rest - known.floating, rest)
    return convert(whole(quotient), UINT64), convert(whole(rest), UINT64)


def floor_divide(a: Vector, b: Vector) -> Vector:
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
    if b.dtype.itemsize < 8:
        _, rest, above = _divided(a, b)
        return select(above, rest + b, rest) if a.dtype.kind == "i" else rest
    _, rest, size = _divided_wide(a, b)
    if a.dtype.kind == "u":
        return rest
    rest = convert(select(((a ^ b) < 0) & (rest != 0), size - rest, rest), a.dtype)
    return select(b < 0, -rest, rest)


# ---- order


def maximum(a: Vector, b: Vector) -> Vector:
    """The larger; a NaN wins; of equal ones (two zeros) the second, as NumPy's vector code has it."""
    if a.dtype == BOOL:
        return a | b
    larger = select(a > b, a, b)
    return select(a != a, a, larger) if a.dtype.kind == "f" else larger


def minimum(a: Vector, b: Vector) -> Vector:
    """The smaller; a NaN wins; of equal ones the second."""
    if a.dtype == BOOL:
        return a & b
    smaller = select(a < b, a, b)
    return select(a != a, a, smaller) if a.dtype.kind == "f" else smaller


def _signs_differ(a: Vector, b: Vector) -> bool:
    return {a.dtype.kind, b.dtype.kind} == {"i", "u"}


def equal(a: Vector, b: Vector) -> Vector:
    if not _signs_differ(a, b):
        return a == b
    signed, unsigned = (a, b) if a.dtype.kind == "i" else (b, a)
    return (signed >= 0) & (convert(signed, unsigned.dtype) == unsigned)


def not_equal(a: Vector, b: Vector) -> Vector:
    return ~equal(a, b) if _signs_differ(a, b) else a != b


def less(a: Vector, b: Vector) -> Vector:
    if not _signs_differ(a, b):
        return a < b if a.dtype != BOOL else ~a & b
    if a.dtype.kind == "i":
        return (a < 0) | (convert(a, b.dtype) < b)
    return (b >= 0) & (a < convert(b, a.dtype))


def greater(a: Vector, b: Vector) -> Vector:
    return less(b, a)


def less_equal(a: Vector, b: Vector) -> Vector:
    return a <= b if a.dtype.kind == "f" else ~less(b, a)


def greater_equal(a: Vector, b: Vector) -> Vector:
    return less_equal(b, a)


# ---- truth and bits


def truth(a: Vector) -> Vector:
    """Whether an element counts as true: it is not zero; NaN is true."""
    return a if a.dtype == BOOL else a != 0


def logical_and(a: Vector, b: Vector) -> Vector:
    return truth(a) & truth(b)


def logical_or(a: Vector, b: Vector) -> Vector:
    return truth(a) | truth(b)


def logical_xor(a: Vector, b: Vector) -> Vector:
    return truth(a) ^ truth(b)


def logical_not(a: Vector) -> Vector:
    return ~truth(a)


def where(condition: Vector, a: Vector, b: Vector) -> Vector:
    return select(truth(condition), a, b)


def isnan(a: Vector) -> Vector:
    return a != a if a.dtype.kind == "f" else splat(a, False, BOOL)


def isinf(a: Vector) -> Vector:
    return absolute(a) == np.inf if a.dtype.kind == "f" else splat(a, False, BOOL)


def isfinite(a: Vector) -> Vector:
    return absolute(a) < np.inf if a.dtype.kind == "f" else splat(a, True, BOOL)


def signbit(a: Vector) -> Vector:
    return bits(a) < 0


def bitwise_left_shift(a: Vector, b: Vector) -> Vector:
    fits = _shift_fits(b)
    return select(fits, a << select(fits, b, splat(b, 0)), splat(a, 0))


def bitwise_right_shift(a: Vector, b: Vector) -> Vector:
    fits = _shift_fits(b)
    beyond = select(a < 0, splat(a, -1), splat(a, 0)) if a.dtype.kind == "i" else splat(a, 0)
    return select(fits, a >> select(fits, b, splat(b, 0)), beyond)


def _shift_fits(places: Vector) -> Vector:
    width = 8 * places.dtype.itemsize
    return (places >= 0) & (places < width) if places.dtype.kind == "i" else places < width


# ---- rounding: integers are whole as they are


def _rounding(function: Callable[[Vector], Vector]) -> Callable[[Vector], Vector]:
    return lambda a: function(a) if a.dtype.kind == "f" else a


# ---- conversion


def cast(a: Vector, dtype: DType) -> Vector:
    """Convert as NumPy does on this machine; floats beyond an integer dtype's range follow C on x86-64."""
    if a.dtype == dtype:
        return a
    if dtype == BOOL:
        return truth(a)
    if a.dtype.kind == "f" and dtype.kind in "iu":
        return _float_to_integer(a, dtype)
    return convert(a, dtype)


def _float_to_integer(a: Vector, dtype: DType) -> Vector:
    """Truncate through a wider integer, as C compilers do; what does not fit there becomes its lowest value."""
    if dtype.itemsize == 8 and dtype.kind == "u":
        half = 2.0**63
        large = a >= half
        low = _saturating(select(large, a - half, a), INT64)
        flipped = low ^ splat(low, np.iinfo(np.int64).min)
        return convert(select(large, flipped, low), dtype)
    wide = INT64 if dtype.itemsize == 8 or dtype == np.uint32 else INT32
    return convert(_saturating(a, wide), dtype)


def _saturating(a: Vector, wide: DType) -> Vector:
    limit = 2.0 ** (8 * wide.itemsize - 1)
    fits = (a >= -limit) & (a < limit)
    whole = convert(select(fits, a, splat(a, 0.0)), wide)
    return select(fits, whole, splat(whole, np.iinfo(wide).min))


def small_power(a: Vector, exponent: int) -> Vector:
    """A small whole power as multiplications."""
    squared = a * a
    if exponent == 2:
        return squared
    return squared * (a if exponent == 3 else squared)


PRIMITIVES: dict[str, Callable[..., Vector]] = {
    "abs": magnitude,
    "add": add,
    "bitwise_and": lambda a, b: a & b,
    "bitwise_invert": lambda a: ~a,
    "bitwise_left_shift": bitwise_left_shift,
    "bitwise_or": lambda a, b: a | b,
    "bitwise_right_shift": bitwise_right_shift,
    "bitwise_xor": lambda a, b: a ^ b,
    "ceil": _rounding(ceil),
    "conj": positive,
    "copysign": copysign,
    "divide": divide,
    "equal": equal,
    "floor": _rounding(floor),
    "floor_divide": floor_divide,
    "greater": greater,
    "greater_equal": greater_equal,
    "imag": imag,
    "isfinite": isfinite,
    "isinf": isinf,
    "isnan": isnan,
    "less": less,
    "less_equal": less_equal,
    "logical_and": logical_and,
    "logical_not": logical_not,
    "logical_or": logical_or,
    "logical_xor": logical_xor,
    "maximum": maximum,
    "minimum": minimum,
    "multiply": multiply,
    "negative": negative,
    "not_equal": not_equal,
    "positive": positive,
    "real": positive,
    "reciprocal": reciprocal,
    "remainder": remainder,
    "round": _rounding(rint),
    "sign": sign,
    "signbit": signbit,
    "sqrt": sqrt,
    "square": square,
    "subtract": subtract,
    "trunc": _rounding(trunc),
    "where": where,
    **vecmath.FUNCTIONS,
}

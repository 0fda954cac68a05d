"""The scalar primitives as vector code, with NumPy's meaning for every dtype.

Each takes vectors of its loop's dtypes. The edge cases of machine instructions are handled here, once: no division
traps, no shift or conversion is undefined, NaN and signed zeros come out as in NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import numpy as np

from ...base.dtypes import DType
from . import math as vecmath
from .division import BOOL, INT32, INT64, floor_divide, remainder
from .vector import (
    LacksError,
    Vector,
    absolute,
    bits,
    ceil,
    convert,
    copysign,
    floor,
    magnitude,
    rint,
    select,
    splat,
    sqrt,
    trunc,
)

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


# ---- order


def maximum(a: Vector, b: Vector) -> Vector:
    """The larger; a NaN wins; of equal ones (two zeros) the second, as in NumPy's vector code."""
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


# ---- rounding: integers stay as they are


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
    """Truncate through a wider integer, as C compilers do; numbers that do not fit it become its lowest value."""
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


def known_power(a: Vector, exponent: float) -> Vector:
    """A small whole power by multiplications, 1 / a, or the root of a, where -0.0 gives 0.0 and -inf gives inf."""
    if exponent == -1:
        return reciprocal(a)
    if exponent == 0.5:
        return select(a == -inf, inf, sqrt(a) + 0.0)
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

"""Floating-point arithmetic rounded once, in every direction, with NumPy's double precision.

float32: the exact sum of two doubles is rounded to odd in double precision, which no second rounding to float32 can
spoil (double has more than twice the digits and two). A product of two float32 is exact in double precision.

float64 fma: Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums: proved algorithms using rounding to
odd" (2008), with Dekker's product, where no part can overflow or underflow; elsewhere rational numbers, lane by lane.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

F32, F64 = np.dtype("f4"), np.dtype("f8")

# The bits of a double that a float32 has no room for, those that say that they are half of its last place, and where
# its normal numbers begin, with some room.
_BEHIND_F32, _HALF_F32, _NORMAL_F32 = (1 << 29) - 1, 1 << 28, 2.0**-120


def two_sum(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the rounded sum and what rounding took away."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def two_product(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the rounded product and what rounding took away (Dekker)."""
    product = a * b
    (a1, a2), (b1, b2) = _halves(a), _halves(b)
    return product, ((a1 * b1 - product) + a1 * b2 + a2 * b1) + a2 * b2


def _halves(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    scaled = a * 134217729.0  # 2**27 + 1
    high = scaled - (scaled - a)
    return high, a - high


def odd_sum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return a + b rounded to odd: what is not exact ends with the bit 1."""
    total, rest = two_sum(a, b)
    bits = np.ascontiguousarray(total).view(np.int64)
    change = (rest != 0) & np.isfinite(total) & np.isfinite(rest) & (bits & 1 == 0)
    outward = (rest > 0) == (total > 0)
    return np.where(change, bits + np.where(outward, 1, -1), bits).view(F64)


def rounded32(x: np.ndarray, mode: str) -> np.ndarray:
    """Round doubles to float32 in one of the directions rn, rz, rm, rp."""
    near = x.astype(F32)
    if mode == "rn":
        return near
    down, up = np.nextafter(near, F32.type(-np.inf)), np.nextafter(near, F32.type(np.inf))
    low = np.where(near.astype(F64) > x, down, near)
    high = np.where(near.astype(F64) < x, up, near)
    chosen = {"rm": low, "rp": high, "rz": np.where(x > 0, low, high)}[mode]
    return np.where(np.isnan(x) | np.isinf(x) | (x == 0), near, chosen)


def _zero_of_sum(found: np.ndarray, a: np.ndarray, b: np.ndarray, mode: str) -> np.ndarray:
    """Rounding down, a sum of opposite numbers is -0."""
    if mode != "rm":
        return found
    both = ~np.signbit(a) & ~np.signbit(b)
    return np.where((found == 0) & (a == -b) & ~both, -np.abs(found), found)


def add32(a: np.ndarray, b: np.ndarray, mode: str) -> np.ndarray:
    """a + b in float32."""
    if mode == "rn":
        return a + b
    wide = a.astype(F64), b.astype(F64)
    return _zero_of_sum(rounded32(odd_sum(*wide), mode), *wide, mode).astype(F32)


def mul32(a: np.ndarray, b: np.ndarray, mode: str) -> np.ndarray:
    """a * b in float32."""
    return a * b if mode == "rn" else rounded32(a.astype(F64) * b.astype(F64), mode)


def fma32(a: np.ndarray, b: np.ndarray, c: np.ndarray, mode: str) -> np.ndarray:
    """a * b + c in float32, rounded once.

    To the nearest number, the sum in double precision may be rounded again, unless it lies half way between two
    float32, where what was taken from it decides, or is so small that these lie otherwise.
    """
    product, wide = a.astype(F64) * b.astype(F64), c.astype(F64)
    if mode == "rn":
        total = product + wide
        size = np.abs(total)
        if not np.count_nonzero((total.view(np.int64) & _BEHIND_F32) == _HALF_F32) and (
            np.minimum.reduce(size) >= _NORMAL_F32 or not np.count_nonzero((size < _NORMAL_F32) & (size != 0))
        ):
            return total.astype(F32)
    product, wide = np.broadcast_arrays(product, wide)
    return _zero_of_sum(rounded32(odd_sum(product, wide), mode), product, wide, mode).astype(F32)


def add64(a: np.ndarray, b: np.ndarray, mode: str) -> np.ndarray:
    """a + b in float64."""
    total, rest = two_sum(a, b)
    if mode == "rn":
        return total
    found = _step(total, rest, mode)
    risky = ~(np.abs(total) < 1e300) & np.isfinite(a) & np.isfinite(b)
    found = _by_fractions(found, risky, (np.ones_like(a), a, b), mode)
    return _zero_of_sum(found, a, b, mode)


def _step(near: np.ndarray, rest: np.ndarray, mode: str) -> np.ndarray:
    """Move a rounded result by one where it lies on the wrong side of the exact one."""
    low = np.where(rest < 0, np.nextafter(near, -np.inf), near)
    high = np.where(rest > 0, np.nextafter(near, np.inf), near)
    return {"rm": low, "rp": high, "rz": np.where(near > 0, low, high)}[mode]


def mul64(a: np.ndarray, b: np.ndarray, mode: str) -> np.ndarray:
    """a * b in float64."""
    return a * b if mode == "rn" else fma64(a, b, np.copysign(0.0, a * b), mode)


def fma64(a: np.ndarray, b: np.ndarray, c: np.ndarray, mode: str) -> np.ndarray:
    """a * b + c in float64, rounded once."""
    a, b, c = np.broadcast_arrays(a, b, c)
    finite = np.isfinite(a) & np.isfinite(b)
    plain = np.where(finite & ~np.isfinite(c), c, a * b + c)  # where a * b may overflow and c is infinite
    easy = ~finite | ~np.isfinite(c) | (a == 0) | (b == 0)
    tame = np.abs(c) < 2.0**1000
    for factor in (a, b):
        tame &= (np.abs(factor) > 2.0**-480) & (np.abs(factor) < 2.0**480)
    fast = tame & ~easy if mode == "rn" else np.zeros(a.shape, bool)
    found = np.where(fast, _fma_by_odd(a, b, c), plain) if fast.any() else plain
    if mode == "rm":  # a sum of zeros of both signs
        zeros = (found == 0) & ((a == 0) | (b == 0))
        found = np.where(zeros & (np.signbit(a * b) | np.signbit(c)), -0.0, found)
    return _by_fractions(found, ~fast & ~easy, (a, b, c), mode)


def _fma_by_odd(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    high, low = two_product(a, b)
    middle, least = two_sum(c, low)
    top, rest = two_sum(high, middle)
    return top + odd_sum(rest, least)


def _by_fractions(found: np.ndarray, which: np.ndarray, operands: tuple[np.ndarray, ...], mode: str) -> np.ndarray:
    """Compute a * b + c by rational numbers in the lanes of `which`."""
    if not which.any():
        return found
    found = found.copy()
    lists = [np.broadcast_to(operand, found.shape)[which] for operand in operands]
    found[which] = [rounded_fraction(a, b, c, mode) for a, b, c in zip(*lists, strict=True)]
    return found


def rounded_fraction(a: float, b: float, c: float, mode: str) -> float:
    """Return a * b + c of finite numbers, rounded once."""
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    if exact == 0:
        return float(a) * float(b) + float(c) if c == 0 or mode != "rm" else -0.0
    sign = 1 if exact > 0 else -1
    try:
        near = math.copysign(float(exact), sign)
    except OverflowError:
        near = math.copysign(math.inf, sign)
    if mode == "rn":
        return near
    beyond = math.inf if near == math.inf else -math.inf if near == -math.inf else Fraction(near)
    down, up = math.nextafter(near, -math.inf), math.nextafter(near, math.inf)
    low, high = (down if beyond > exact else near), (up if beyond < exact else near)
    return {"rm": low, "rp": high, "rz": low if exact > 0 else high}[mode]

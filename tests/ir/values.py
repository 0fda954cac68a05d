"""Integers that are known exactly or by their bounds, pointers, and arithmetic of them.

An integer is the signed one of its bits, but for one bit, which is 0 or 1. A vector is the list of its lanes, or one
value that bounds all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from .memory import Region


class Range(NamedTuple):
    """An integer of which only bounds are known."""

    low: int
    high: int


class Pointer(NamedTuple):
    """A place in a region, in bytes after its first."""

    region: Region | None
    offset: int | Range


# A number in floating point, of which nothing is known.
DATA = None
ANY_BIT = Range(0, 1)

Value = Any  # int | Range | Pointer | None | list of these


def any_of_width(bits: int) -> Range:
    """Return an integer of a width of which nothing is known."""
    return Range(-(1 << bits - 1), (1 << bits - 1) - 1)


def bounds(x: int | Range) -> tuple[int, int]:
    """Return the least and the greatest that an integer may be."""
    return (x, x) if type(x) is int else (x[0], x[1])


def ranged(low: int, high: int) -> int | Range:
    """Return an integer between bounds."""
    return low if low == high else Range(low, high)


def hull(x: Value, y: Value) -> Value:
    """Return what may be one or the other."""
    if x is DATA or y is DATA:
        return DATA
    if isinstance(x, list) or isinstance(y, list):
        return lanewise(hull, x, y)
    if isinstance(x, Pointer):
        if not isinstance(y, Pointer) or x.region is not y.region:
            raise TypeError(f"a pointer into {x} or {y}")
        return Pointer(x.region, hull(x.offset, y.offset))
    (a, b), (c, d) = bounds(x), bounds(y)
    return ranged(min(a, c), max(b, d))


def lanewise(function: Callable[..., Value], *values: Value) -> Value:
    """Return a function of values, of each lane where all are lists or the same for all lanes; beside one that bounds
    all lanes the others need not be told apart.
    """
    lanes = max(len(one) if type(one) is list else 0 for one in values)
    if not lanes:
        return function(*values)
    if any(type(one) is Range or one is DATA for one in values):
        return function(*[reduce(hull, one) if type(one) is list else one for one in values])
    spread = [one if type(one) is list else [one] * lanes for one in values]
    return [function(*one) for one in zip(*spread, strict=True)]


def wrapped(low: int, high: int, bits: int) -> int | Range:
    """Return an integer between bounds as one of a width: nothing is known of what may go beyond it."""
    if low == high:
        return signed(low, bits)
    whole = any_of_width(bits)
    return Range(low, high) if whole.low <= low and high <= whole.high else whole


def signed(x: int, bits: int) -> int:
    """Return the signed integer of the lowest bits of another."""
    if bits == 1:
        return x & 1
    x &= (1 << bits) - 1
    return x - (1 << bits) if x >> bits - 1 else x


def unsigned(x: int | Range, bits: int) -> tuple[int, int]:
    """Return the bounds of an integer that is read as one without a sign."""
    low, high = bounds(x)
    if low >= 0 or high < 0:
        return (low, high) if low >= 0 else (low + (1 << bits), high + (1 << bits))
    return 0, (1 << bits) - 1


# ---- arithmetic


def add(x: Any, y: Any, bits: int) -> int | Range:
    (a, b), (c, d) = bounds(x), bounds(y)
    return wrapped(a + c, b + d, bits)


def sub(x: Any, y: Any, bits: int) -> int | Range:
    (a, b), (c, d) = bounds(x), bounds(y)
    return wrapped(a - d, b - c, bits)


def mul(x: Any, y: Any, bits: int) -> int | Range:
    (a, b), (c, d) = bounds(x), bounds(y)
    ends = a * c, a * d, b * c, b * d
    return wrapped(min(ends), max(ends), bits)


def bit_and(x: Any, y: Any, bits: int) -> int | Range:
    if type(x) is int and type(y) is int:
        return x & y
    positive = [bounds(one)[1] for one in (x, y) if bounds(one)[0] >= 0]
    return Range(0, min(positive)) if positive else _unknown(bits)


def bit_or(x: Any, y: Any, bits: int) -> int | Range:
    if type(x) is int and type(y) is int:
        return x | y
    (a, b), (c, d) = bounds(x), bounds(y)
    return Range(max(a, c), (1 << max(b, d).bit_length()) - 1) if a >= 0 and c >= 0 else _unknown(bits)


def bit_xor(x: Any, y: Any, bits: int) -> int | Range:
    if type(x) is int and type(y) is int:
        return signed(x ^ y, bits)
    (a, b), (c, d) = bounds(x), bounds(y)
    return Range(0, (1 << max(b, d).bit_length()) - 1) if a >= 0 and c >= 0 else _unknown(bits)


def _unknown(bits: int) -> Range:
    return ANY_BIT if bits == 1 else any_of_width(bits)


def _steps(y: Any, bits: int) -> tuple[int, int]:
    low, high = unsigned(y, bits)
    return (0, bits - 1) if high >= bits else (low, high)  # more is poison, which nobody uses


def shl(x: Any, y: Any, bits: int) -> int | Range:
    (a, b), (c, d) = bounds(x), _steps(y, bits)
    ends = a << c, a << d, b << c, b << d
    return wrapped(min(ends), max(ends), bits)


def lshr(x: Any, y: Any, bits: int) -> int | Range:
    (a, b), (c, d) = unsigned(x, bits), _steps(y, bits)
    return wrapped(a >> d, b >> c, bits) if b >> c < 1 << bits - 1 else _unknown(bits)


def ashr(x: Any, y: Any, bits: int) -> int | Range:
    (a, b), (c, d) = bounds(x), _steps(y, bits)
    ends = a >> c, a >> d, b >> c, b >> d
    return ranged(min(ends), max(ends))


def quotient(x: Any, y: Any, bits: int) -> int | Range:
    (a, b), (c, d) = bounds(x), bounds(y)
    return ranged(a // d, b // c) if a >= 0 and c > 0 else _unknown(bits)


def remainder(x: Any, y: Any, bits: int) -> int | Range:
    if type(x) is int and type(y) is int and x >= 0 and y > 0:
        return x % y
    (a, _), (c, d) = bounds(x), bounds(y)
    return ranged(0, d - 1) if a >= 0 and c > 0 else _unknown(bits)


ARITHMETIC: dict[str, Callable[[Any, Any, int], int | Range]] = {
    "add": add,
    "sub": sub,
    "mul": mul,
    "and": bit_and,
    "or": bit_or,
    "xor": bit_xor,
    "shl": shl,
    "lshr": lshr,
    "ashr": ashr,
    "udiv": quotient,
    "sdiv": quotient,
    "urem": remainder,
    "srem": remainder,
}


def least(x: Any, y: Any, bits: int) -> int | Range:
    (a, b), (c, d) = bounds(x), bounds(y)
    return ranged(min(a, c), min(b, d))


def greatest(x: Any, y: Any, bits: int) -> int | Range:
    (a, b), (c, d) = bounds(x), bounds(y)
    return ranged(max(a, c), max(b, d))


def compared(word: str, x: Any, y: Any, bits: int) -> int | Range:
    """Return whether a comparison holds: 0, 1, or either."""
    if type(x) is Pointer or type(y) is Pointer:
        return _compared_places(word, x, y)
    if x is DATA or y is DATA:
        return ANY_BIT
    (a, b), (c, d) = (unsigned(x, bits), unsigned(y, bits)) if word[0] == "u" else (bounds(x), bounds(y))
    if word in ("eq", "ne"):
        equal = 0 if b < c or d < a else 1 if a == b == c == d else None
        return ANY_BIT if equal is None else equal ^ (word == "ne")
    if word[1] == "g":
        a, b, c, d, word = c, d, a, b, word.replace("g", "l")
    if word.endswith("lt"):
        return 1 if b < c else 0 if a >= d else ANY_BIT
    return 1 if b <= c else 0 if a > d else ANY_BIT


def within(word: str, x: Any, y: Any) -> int | Range:
    """Return an integer of which a comparison with another is known to hold."""
    if type(x) is not Range:
        return x
    (low, high), (c, d) = x, bounds(y)
    if word in ("sgt", "sge"):
        low = max(low, c + (word == "sgt"))
    elif word in ("slt", "sle"):
        high = min(high, d - (word == "slt"))
    return ranged(low, high) if low <= high else x


NEGATED = {"sgt": "sle", "sle": "sgt", "slt": "sge", "sge": "slt"}


def _compared_places(word: str, x: Pointer, y: Pointer) -> int | Range:
    if type(x) is not Pointer or type(y) is not Pointer:
        return ANY_BIT
    if x.region is y.region:
        return compared(word, x.offset, y.offset, 64)
    return int(word == "ne") if word in ("eq", "ne") else ANY_BIT

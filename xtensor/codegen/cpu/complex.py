"""Complex numbers as vector code: a vector of real parts and one of imaginary parts.

In memory the two parts of a number lie side by side. Products are rounded as NumPy's vector code rounds them, with one
fused multiply-add for each part; quotients are Smith's, as NumPy's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from ...base.dtypes import DType, real_of
from . import primitives
from .primitives import BOOL, LacksError
from .vector import SCALARS, Number, Vector, Writer, absolute, copysign, fma, select, sqrt


class Complex:
    """A complex number in every lane; a Python number beside it has no imaginary part."""

    __slots__ = ("dtype", "imag", "real")

    def __init__(self, real: Vector, imag: Vector, dtype: DType) -> None:
        self.real, self.imag, self.dtype = real, imag, dtype

    def of(self, real: Vector, imag: Vector) -> Complex:
        """Return other parts of this dtype."""
        return Complex(real, imag, self.dtype)

    def __add__(self, other: Complex) -> Complex:
        return self.of(self.real + other.real, self.imag + other.imag)

    def __sub__(self, other: Complex) -> Complex:
        return self.of(self.real - other.real, self.imag - other.imag)

    def __mul__(self, other: Complex) -> Complex:
        real = fma(self.real, other.real, -(self.imag * other.imag))
        return self.of(real, fma(self.real, other.imag, self.imag * other.real))

    def __neg__(self) -> Complex:
        return self.of(-self.real, -self.imag)


Value: TypeAlias = Vector | Complex


def parts_of(value: Value) -> tuple[Vector, ...]:
    """Return the vectors that a value is made of."""
    return (value.real, value.imag) if isinstance(value, Complex) else (value,)


def count_of(dtype: DType) -> int:
    """Return how many numbers an element is."""
    return 2 if dtype.kind == "c" else 1


def named(writer: Writer, name: str, dtype: DType) -> Value:
    """Return the value whose vectors have a name, with .re and .im behind it where there are two."""
    if dtype.kind != "c":
        return Vector(writer, name, dtype)
    part = real_of(dtype)
    return Complex(Vector(writer, f"{name}.re", part), Vector(writer, f"{name}.im", part), dtype)


def splat(writer: Writer, value: Number, dtype: DType) -> Value:
    """Return a real number in every lane."""
    if dtype.kind != "c":
        return writer.splat(value, dtype)
    part = real_of(dtype)
    return Complex(writer.splat(value, part), writer.splat(0, part), dtype)


def cast(value: Value, dtype: DType) -> Value:
    """Convert as NumPy does; complex numbers become real ones only as truth values."""
    if dtype.kind == "c":
        part = real_of(dtype)
        if isinstance(value, Complex):
            return Complex(primitives.cast(value.real, part), primitives.cast(value.imag, part), dtype)
        return Complex(primitives.cast(value, part), value.writer.splat(0, part), dtype)
    if not isinstance(value, Complex):
        return primitives.cast(value, dtype)
    if dtype != BOOL:
        raise LacksError(f"conversion of {value.dtype} to {dtype}")
    return truth(value)


# ---- memory


def taken_apart(writer: Writer, name: str, dtype: DType) -> Complex:
    """Return the complex numbers in a vector as memory has it, part after part."""
    part, lanes = real_of(dtype), writer.lanes
    kind = f"<{2 * lanes} x {SCALARS[part]}>"

    def every_second(first: int) -> Vector:
        order = ", ".join(f"i32 {2 * lane + first}" for lane in range(lanes))
        return writer.emit(f"shufflevector {kind} {name}, {kind} poison, <{lanes} x i32> <{order}>", part)

    return Complex(every_second(0), every_second(1), dtype)


def put_together(value: Complex) -> str:
    """Write a vector as memory has it, part after part, and return its name."""
    real, imag = value.real, value.imag
    lanes = real.writer.lanes
    order = ", ".join(f"i32 {lane + part}" for lane in range(lanes) for part in (0, lanes))
    text = f"shufflevector {real.type} {real.name}, {imag.type} {imag.name}, <{2 * lanes} x i32> <{order}>"
    return real.writer.emit(text, real.dtype).name


def twice(name: str, vector: str, kind: str, lanes: int) -> str:
    """Return the line that makes a vector in which every lane of another is there twice, side by side."""
    order = ", ".join(f"i32 {lane}, i32 {lane}" for lane in range(lanes))
    return f"{name} = shufflevector {kind} {vector}, {kind} poison, <{2 * lanes} x i32> <{order}>"


# ---- the primitives


def magnitude(a: Complex) -> Vector:
    """The square root of the sum of squares, within an ulp: of numbers moved to where no square leaves the range."""
    x, y = absolute(a.real), absolute(a.imag)
    swap = x < y
    large, small = select(swap, y, x), select(swap, x, y)
    below, above, up, down = _MOVES[x.dtype]
    far, near = large > above, large < below
    factor = select(far, down, select(near, x.like(up), 1.0))
    large, small = large * factor, small * factor
    root = sqrt(fma(large, large, small * small))
    root = root * select(far, 1 / down, select(near, x.like(1 / up), 1.0))
    return select((x == np.inf) | (y == np.inf), np.inf, root)


# Of numbers below the first or above the second, the squares may leave the range; the powers of two that these are
# multiplied by.
_MOVES = {
    primitives.FLOAT32: (2.0**-40, 2.0**60, 2.0**100, 2.0**-80),
    primitives.FLOAT64: (2.0**-450, 2.0**500, 2.0**600, 2.0**-600),
}


def sign(a: Complex) -> Complex:
    """A number over its magnitude; of an infinite one the infinite part is 1 or -1, the other 0; NaN where both are."""
    size = magnitude(a)
    both = (absolute(a.real) == np.inf) & (absolute(a.imag) == np.inf)

    def over(part: Vector) -> Vector:
        infinite = select(absolute(part) == np.inf, copysign(part.like(1.0), part), 0.0)
        shown = select(size == np.inf, infinite, part / select(size == 0, 1.0, size))
        return select(both, np.nan, select(size == 0, 0.0, shown))

    return a.of(over(a.real), over(a.imag))


def divide(a: Complex, b: Complex) -> Complex:
    """Smith's method (Communications of the ACM 5, 1962, algorithm 116), in NumPy's order of operations."""
    x, y = absolute(b.real), absolute(b.imag)
    wide = x >= y
    ratio, size = _smith(b, wide)
    scale = 1.0 / size
    u, v = select(wide, a.real, a.imag), select(wide, a.imag, a.real)
    over = u * ratio
    real, imag = (u + v * ratio) * scale, select(wide, v - over, over - v) * scale
    zero = (x == 0) & (y == 0)
    return a.of(select(zero, a.real / x, real), select(zero, a.imag / x, imag))


def _smith(b: Complex, wide: Vector) -> tuple[Vector, Vector]:
    """Return the smaller part of a number over the larger, and the larger with the product of that and the smaller."""
    large, small = select(wide, b.real, b.imag), select(wide, b.imag, b.real)
    ratio = small / large
    return ratio, large + small * ratio


def reciprocal(a: Complex) -> Complex:
    """Smith's method, in NumPy's order of operations."""
    wide = absolute(a.imag) <= absolute(a.real)
    ratio, size = _smith(a, wide)
    return a.of(select(wide, 1.0, ratio) / size, select(wide, -ratio, -1.0) / size)


def equal(a: Complex, b: Complex) -> Vector:
    return (a.real == b.real) & (a.imag == b.imag)


def truth(a: Complex) -> Vector:
    """Whether a number counts as true: a part is not zero."""
    return (a.real != 0) | (a.imag != 0)


def where(condition: Value, a: Complex, b: Complex) -> Complex:
    chosen = cast(condition, BOOL)
    assert isinstance(chosen, Vector)
    return a.of(select(chosen, a.real, b.real), select(chosen, a.imag, b.imag))


def _of_parts(function: Callable[[Vector], Vector], join: Callable[[Vector, Vector], Vector]) -> Callable[..., Vector]:
    return lambda a: join(function(a.real), function(a.imag))


def _of_truths(function: Callable[..., Vector]) -> Callable[..., Vector]:
    return lambda *operands: function(*[cast(one, BOOL) for one in operands])


PRIMITIVES: dict[str, Callable[..., Value]] = {
    "abs": magnitude,
    "add": lambda a, b: a + b,
    "conj": lambda a: a.of(a.real, -a.imag),
    "divide": divide,
    "equal": equal,
    "imag": lambda a: a.imag,
    "isfinite": _of_parts(primitives.isfinite, lambda a, b: a & b),
    "isinf": _of_parts(primitives.isinf, lambda a, b: a | b),
    "isnan": _of_parts(primitives.isnan, lambda a, b: a | b),
    "logical_and": _of_truths(primitives.logical_and),
    "logical_not": _of_truths(primitives.logical_not),
    "logical_or": _of_truths(primitives.logical_or),
    "logical_xor": _of_truths(primitives.logical_xor),
    "multiply": lambda a, b: a * b,
    "negative": lambda a: -a,
    "not_equal": lambda a, b: ~equal(a, b),
    "positive": lambda a: a,
    "real": lambda a: a.real,
    "reciprocal": reciprocal,
    "sign": sign,
    "square": lambda a: a * a,
    "subtract": lambda a, b: a - b,
    "where": where,
}


def compute(name: str, operands: Sequence[Value], exponent: Any) -> Value:
    """Write one step on complex operands. exponent: of a power, where code is made for it."""
    if name == "pow" and exponent == 2:
        return PRIMITIVES["square"](operands[0])
    primitive = PRIMITIVES.get(name)
    if primitive is None:
        raise LacksError(f"{name} of {operands[-1].dtype} in generated code")
    return primitive(*operands)

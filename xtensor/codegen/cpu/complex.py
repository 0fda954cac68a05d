"""Complex numbers as vector code: a vector of real parts and one of imaginary parts.

In memory the two parts of a number lie side by side. Products are rounded as NumPy's vector code rounds them, with one
fused multiply-add for each part; quotients are Smith's, as NumPy's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from ...base.dtypes import DType, real_of
from . import math as vecmath
from . import primitives
from .division import BOOL, FLOAT32, FLOAT64
from .vector import SCALARS, LacksError, Number, Vector, Writer, absolute, copysign, fma, select, sqrt


class Complex:
    """A complex number in every lane; a Python number as other operand has no imaginary part."""

    __slots__ = ("dtype", "imag", "real")

    def __init__(self, real: Vector, imag: Vector, dtype: DType) -> None:
        self.real, self.imag, self.dtype = real, imag, dtype

    def of(self, real: Vector, imag: Vector) -> Complex:
        """Return a complex number of the same dtype with other parts."""
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
    """Return the vectors that make up a value."""
    return (value.real, value.imag) if isinstance(value, Complex) else (value,)


def count_of(dtype: DType) -> int:
    """Return of how many real numbers an element consists."""
    return 2 if dtype.kind == "c" else 1


def named(writer: Writer, name: str, dtype: DType) -> Value:
    """Return the value whose vector has a name; if it has two vectors, .re and .im are appended to their names."""
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
    """Return the complex numbers in a vector in which real and imaginary parts alternate, as in memory."""
    part, lanes = real_of(dtype), writer.lanes
    kind = f"<{2 * lanes} x {SCALARS[part]}>"

    def every_second(first: int) -> Vector:
        order = ", ".join(f"i32 {2 * lane + first}" for lane in range(lanes))
        return writer.emit(f"shufflevector {kind} {name}, {kind} poison, <{lanes} x i32> <{order}>", part)

    return Complex(every_second(0), every_second(1), dtype)


def put_together(value: Complex) -> str:
    """Write a vector in which real and imaginary parts alternate, as in memory, and return its name."""
    real, imag = value.real, value.imag
    lanes = real.writer.lanes
    order = ", ".join(f"i32 {lane + part}" for lane in range(lanes) for part in (0, lanes))
    text = f"shufflevector {real.type} {real.name}, {imag.type} {imag.name}, <{2 * lanes} x i32> <{order}>"
    return real.writer.emit(text, real.dtype).name


def twice(name: str, vector: str, kind: str, lanes: int) -> str:
    """Return the line that makes a vector in which every lane of another is repeated, side by side."""
    order = ", ".join(f"i32 {lane}, i32 {lane}" for lane in range(lanes))
    return f"{name} = shufflevector {kind} {vector}, {kind} poison, <{2 * lanes} x i32> <{order}>"


# ---- the primitives


def magnitude(a: Complex) -> Vector:
    """The square root of the sum of squares, within an ulp: numbers are scaled so that no square leaves the range."""
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


# The squares of numbers below the first or above the second may leave the range; the third and the fourth are the
# powers of two by which these are multiplied.
_MOVES = {
    FLOAT32: (2.0**-40, 2.0**60, 2.0**100, 2.0**-80),
    FLOAT64: (2.0**-450, 2.0**500, 2.0**600, 2.0**-600),
}


def sign(a: Complex) -> Complex:
    """A number over its magnitude; if one part is infinite, it becomes 1 or -1, and the other 0; NaN if both are."""
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
    """Return the ratio of the smaller part of a number to the larger, and the larger part plus smaller times ratio."""
    large, small = select(wide, b.real, b.imag), select(wide, b.imag, b.real)
    ratio = small / large
    return ratio, large + small * ratio


def reciprocal(a: Complex) -> Complex:
    """Smith's method, in NumPy's order of operations."""
    wide = absolute(a.imag) <= absolute(a.real)
    ratio, size = _smith(a, wide)
    return a.of(select(wide, 1.0, ratio) / size, select(wide, -ratio, -1.0) / size)


# ---- functions: each part is made of real functions; infinite and zero results are those of ISO C, annex G

_exp, _log, _log1p, _atan2 = (vecmath.FUNCTIONS[name] for name in ("exp", "log", "log1p", "atan2"))
_sin, _cos, _sinh, _cosh = (vecmath.FUNCTIONS[name] for name in ("sin", "cos", "sinh", "cosh"))

# For larger real parts, e to their power is computed as two factors: their product may overflow, but not times a sine.
_SPLIT = {FLOAT32: 80.0, FLOAT64: 700.0}


def exp(a: Complex) -> Complex:
    """e to the power of a number: that of its real part, rotated by its imaginary one; within 4 eps of its size."""
    x, y, split = a.real, a.imag, _SPLIT[a.real.dtype]
    is_large = x > split
    factor = select(is_large, x.like(math.exp(split)), 1.0)
    size = _exp(select(is_large, x - split, x))
    turns = absolute(y) < np.inf
    real, imag = size * _cos(y) * factor, size * _sin(y) * factor
    real = select(turns, real, select(x == np.inf, x, select(x == -np.inf, 0.0, real)))
    return a.of(real, select((y == 0) | ((x == -np.inf) & ~turns), copysign(x.like(0.0), y), imag))


def log(a: Complex) -> Complex:
    """The logarithm of a number's magnitude, and its angle; within 4 eps of the result's magnitude, also near 1."""
    x, y = absolute(a.real), absolute(a.imag)
    swap = x < y
    large, small = select(swap, y, x), select(swap, x, y)
    ratio = select((small == 0) | (large == np.inf), 0.0, small / large)
    size = _log(large) + _log1p(ratio * ratio) * 0.5
    infinite = (x == np.inf) | (y == np.inf)
    return a.of(select(infinite, np.inf, select(_is_nan(x, y), np.nan, size)), _atan2(a.imag, a.real))


def _log_to(base: float) -> Callable[[Complex], Complex]:
    """Return the logarithm to a base."""

    def scaled(a: Complex) -> Complex:
        natural = log(a)
        return a.of(natural.real * (1 / math.log(base)), natural.imag * (1 / math.log(base)))

    return scaled


def sinh(a: Complex) -> Complex:
    """sinh x cos y + i cosh x sin y."""
    x, y = a.real, a.imag
    sine, cosine, factor = _hyperbolic(x)
    real, imag = sine * _cos(y) * factor, cosine * _sin(y) * factor
    lost, size = ~(absolute(y) < np.inf), absolute(x)
    real = select(lost & (size == np.inf), size, select(lost & (x == 0), x, real))
    return a.of(real, select(y == 0, y, imag))


def cosh(a: Complex) -> Complex:
    """cosh x cos y + i sinh x sin y."""
    x, y = a.real, a.imag
    sine, cosine, factor = _hyperbolic(x)
    real, imag = cosine * _cos(y) * factor, sine * _sin(y) * factor
    lost = ~(absolute(y) < np.inf)
    real = select(lost & (absolute(x) == np.inf), absolute(x), real)
    return a.of(real, select((y == 0) | ((x == 0) & lost), _signed_zero(x, y), imag))


def _signed_zero(x: Vector, y: Vector) -> Vector:
    """Return a zero with the sign of a product."""
    zero = x.like(0.0)
    return copysign(zero, x) * copysign(x.like(1.0), y)


def _hyperbolic(x: Vector) -> tuple[Vector, Vector, Vector]:
    """Return the hyperbolic sine and cosine divided by a factor, and that: it is not 1 where they might overflow."""
    split = _SPLIT[x.dtype]
    far = absolute(x) > split
    size = _exp(select(far, absolute(x) - split, 0.0)) * 0.5
    factor = select(far, x.like(math.exp(split)), 1.0)
    return select(far, copysign(size, x), _sinh(x)), select(far, size, _cosh(x)), factor


def sin(a: Complex) -> Complex:
    """The hyperbolic sine of the number with its parts exchanged, with its parts exchanged again."""
    turned = sinh(a.of(a.imag, a.real))
    return a.of(turned.imag, turned.real)


def cos(a: Complex) -> Complex:
    """The hyperbolic cosine of i times a number."""
    return cosh(a.of(-a.imag, a.real))


def sqrt_of(a: Complex) -> Complex:
    """The square root with a real part that is not negative; numbers are scaled so that no step leaves the range."""
    x, y = a.real, a.imag
    size, (below, above, up, down) = magnitude(a), _ROOTS[x.dtype]
    far, near = size > above, size < below
    factor = select(far, down, select(near, x.like(up), 1.0))
    moved = a.of(x * factor, y * factor)
    t = sqrt((absolute(moved.real) + magnitude(moved)) * 0.5)
    back = select(far, down**-0.5, select(near, x.like(up**-0.5), 1.0))
    other = select(t == 0, 0.0, absolute(moved.imag) / (t + t)) * back
    t = t * back
    left = x < 0
    real, imag = select(left, other, t), copysign(select(left, t, other), y)
    tall = absolute(y) == np.inf
    real = select(tall, np.inf, select(x == -np.inf, select(y == y, 0.0, y), select(x == np.inf, x, real)))
    flat = select(x == np.inf, select(y == y, copysign(y.like(0.0), y), y), select(x == -np.inf, copysign(x, y), imag))
    return a.of(real, select(tall, y, flat))


def _is_nan(x: Vector, y: Vector) -> Vector:
    return (x != x) | (y != y)


# For numbers below the first or above the second, intermediate results may leave the range or lose bits; the third and
# the fourth are the powers of four by which these are multiplied.
_ROOTS = {
    FLOAT32: (2.0**-60, 2.0**120, 2.0**60, 2.0**-60),
    FLOAT64: (2.0**-900, 2.0**1000, 2.0**200, 2.0**-200),
}


def equal(a: Complex, b: Complex) -> Vector:
    return (a.real == b.real) & (a.imag == b.imag)


def truth(a: Complex) -> Vector:
    """Whether a number counts as true: one of its parts is not zero."""
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
    "cos": cos,
    "cosh": cosh,
    "divide": divide,
    "equal": equal,
    "exp": exp,
    "imag": lambda a: a.imag,
    "isfinite": _of_parts(primitives.isfinite, lambda a, b: a & b),
    "isinf": _of_parts(primitives.isinf, lambda a, b: a | b),
    "isnan": _of_parts(primitives.isnan, lambda a, b: a | b),
    "log": log,
    "log10": _log_to(10.0),
    "log2": _log_to(2.0),
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
    "sin": sin,
    "sinh": sinh,
    "sqrt": sqrt_of,
    "square": lambda a: a * a,
    "subtract": lambda a, b: a - b,
    "where": where,
}


def compute(name: str, operands: Sequence[Value], exponent: Any) -> Value:
    """Write one step on complex operands. exponent: of a power, if it is known when code is made."""
    if name == "pow" and exponent == 2:
        return PRIMITIVES["square"](operands[0])
    primitive = PRIMITIVES.get(name)
    if primitive is None:
        raise LacksError(f"{name} of {operands[-1].dtype} in generated code")
    return primitive(*operands)

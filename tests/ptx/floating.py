"""Floating-point instructions.

`+ - * /`, sqrt and fma are rounded as IEEE 754 says, in all directions where the compiler asks for one. The `.approx`
instructions are computed exactly and rounded, which is better than a GPU does (1 or 2 units in the last place);
only `rcp.approx.ftz.f64` and `rsqrt.approx.ftz.f64` give 20 digits, as they do on a GPU, for they start iterations.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .decode import Context, Run, simple
from .decode import opcode as opcode
from .exact import add32, add64, mul32, mul64
from .text import DTYPES, bits_of

F32, F64, PRED = DTYPES["f32"], DTYPES["f64"], DTYPES["pred"]
MODES = ("rn", "rz", "rm", "rp")
ARITHMETIC = {("add", 4): add32, ("add", 8): add64, ("mul", 4): mul32, ("mul", 8): mul64}


def flushed(x: np.ndarray, flush: bool) -> np.ndarray:
    """Make subnormal float32 zeros of the same sign."""
    if not flush or x.dtype != F32:
        return x
    return np.where(np.abs(x) < np.finfo(F32).tiny, np.copysign(F32.type(0), x), x)


def saturated(x: np.ndarray, saturate: bool) -> np.ndarray:
    """Clamp to [0, 1]; NaN becomes 0."""
    return np.where(x > 0, np.minimum(x, x.dtype.type(1)), x.dtype.type(0)) if saturate else x


def modes(context: Context, *others: str) -> tuple[str, bool, bool]:
    """Return rounding direction, whether subnormals are flushed, and whether the result is clamped."""
    found = context.allow([*MODES, "ftz", "sat", *others])
    return next((mode for mode in MODES if mode in found), "rn"), "ftz" in found, "sat" in found


def float_arithmetic(context: Context) -> Run:
    """add, sub, mul, div, min and max of floats."""
    name, dtype = context.parts[0], context.dtype
    if name in ("min", "max"):
        return extremum(context)
    mode, flush, saturate = modes(context, *(("approx", "full") if name == "div" else ()))
    if name == "div":
        compute = np.divide if mode == "rn" else _refuse(context)
    else:
        inner = ARITHMETIC["add" if name == "sub" else name, dtype.itemsize]
        sign = -1 if name == "sub" else 1
        compute = lambda a, b: inner(a, b if sign == 1 else -b, mode)  # noqa: E731

    if not (flush or saturate):
        return simple(context, compute, [dtype, dtype], dtype)

    def run(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return saturated(flushed(compute(flushed(a, flush), flushed(b, flush)), flush), saturate)

    return simple(context, run, [dtype, dtype], dtype)


def _refuse(context: Context) -> Callable[..., np.ndarray]:
    raise context.unknown("rounding")


def extremum(context: Context) -> Run:
    """The smaller or larger one: a number beats NaN (not with `.NaN`), and -0 is less than 0."""
    found, dtype, least = context.allow(["ftz", "NaN"]), context.dtype, context.parts[0] == "min"
    bits = bits_of(dtype)
    pick, zero = (np.fmin, np.bitwise_or) if least else (np.fmax, np.bitwise_and)

    def compute(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        a, b = (flushed(x, "ftz" in found) for x in np.broadcast_arrays(a, b))
        a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
        value = np.where((a == 0) & (b == 0), zero(a.view(bits), b.view(bits)).view(dtype), pick(a, b))
        either = np.isnan(a) | np.isnan(b)
        return np.where(either, dtype.type(np.nan), value) if "NaN" in found else value

    return simple(context, compute, [dtype, dtype], dtype)


# One operand


def high_word(x: np.ndarray) -> np.ndarray:
    """Return doubles without their lower 32 bits."""
    return (np.ascontiguousarray(x).view(np.uint64) & np.uint64(0xFFFFFFFF00000000)).view(F64)


def rough(function: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
    """Return the 20-digit version of a function of doubles, which flushes subnormals."""

    def compute(x: np.ndarray) -> np.ndarray:
        normal = np.where(np.abs(x) < np.finfo(F64).tiny, np.copysign(0.0, x), x)
        found = high_word(function(high_word(normal)))
        return np.where(np.abs(found) < np.finfo(F64).tiny, np.copysign(0.0, found), found)

    return compute


def in_double(function: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
    """Return the function of float32 that is computed in double precision and rounded."""
    return lambda x: function(x.astype(F64)).astype(F32)


FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "rcp": lambda x: 1.0 / x,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "ex2": np.exp2,
    "lg2": np.log2,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
}


@opcode(*FUNCTIONS)
def function(context: Context) -> Run:
    """Reciprocals and the approximate functions."""
    name, dtype = context.parts[0], context.dtype
    found = context.allow(["approx", "ftz", "rn"])
    if dtype == F64:
        if name not in ("rcp", "rsqrt"):
            raise context.unknown()
        exact = FUNCTIONS[name]
        return simple(context, rough(exact) if {"approx", "ftz"} <= found else exact, [dtype], dtype)
    flush, compute = "ftz" in found, in_double(FUNCTIONS[name])
    return simple(context, lambda x: flushed(compute(flushed(x, flush)), flush), [dtype], dtype)


@opcode("sqrt")
def root(context: Context) -> Run:
    """The square root."""
    found, dtype = context.allow(["approx", "ftz", "rn"]), context.dtype
    flush = "ftz" in found
    return simple(context, lambda x: flushed(np.sqrt(flushed(x, flush)), flush), [dtype], dtype)


def least_magnitude(x: np.ndarray) -> np.ndarray:
    """|x| of integers; that of the least one is itself."""
    return np.where(x < 0, -x, x)


@opcode("abs", "neg")
def sign(context: Context) -> Run:
    """The absolute value or the negative."""
    found, dtype, negates = context.allow(["ftz"]), context.dtype, context.parts[0] == "neg"
    compute = np.negative if negates else np.abs if dtype.kind == "f" else least_magnitude
    return simple(context, lambda x: compute(flushed(x, "ftz" in found)), [dtype], dtype)


@opcode("copysign")
def copy_sign(context: Context) -> Run:
    """The second operand with the first one's sign."""
    return simple(context, lambda a, b: np.copysign(b, a), [context.dtype] * 2, context.dtype)


TESTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "finite": np.isfinite,
    "infinite": np.isinf,
    "number": lambda x: ~np.isnan(x),
    "notanumber": np.isnan,
    "normal": lambda x: np.isfinite(x) & (np.abs(x) >= np.finfo(x.dtype).tiny),
    "subnormal": lambda x: (x != 0) & (np.abs(x) < np.finfo(x.dtype).tiny),
}


@opcode("testp")
def kind_of_number(context: Context) -> Run:
    """Whether a number is of some kind."""
    return simple(context, TESTS[context.parts[1]], [context.dtype], PRED)

"""Conversions: between integers, between floats, and from one to the other."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np

from .decode import Context, Run, opcode, simple
from .exact import rounded32, rounded_fraction
from .floating import F32, F64, flushed, saturated
from .text import DTYPES

TO_INTEGER: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "rni": np.rint,
    "rzi": np.trunc,
    "rmi": np.floor,
    "rpi": np.ceil,
}
TO_FLOAT = ("rn", "rz", "rm", "rp")


@opcode("cvt")
def convert(context: Context) -> Run:
    """cvt: result type, then operand type."""
    found = context.allow([*TO_INTEGER, *TO_FLOAT, "sat", "ftz"], last=2)
    output, source = DTYPES[context.parts[-2]], context.dtype
    saturate, flush = "sat" in found, "ftz" in found
    rounding = next((mode for mode in (*TO_INTEGER, *TO_FLOAT) if mode in found), "rn")
    if output.kind == "f":
        inner = float_to_float if source.kind == "f" else integer_to_float
        compute = lambda x: saturated(flushed(inner(flushed(x, flush), output, rounding), flush), saturate)  # noqa: E731
    elif source.kind == "f":
        compute = lambda x: float_to_integer(flushed(x, flush), output, rounding)  # noqa: E731
    else:
        compute = lambda x: clamped(x, output) if saturate else x.astype(output)  # noqa: E731
    return simple(context, compute, [source], output)


def clamped(x: np.ndarray, output: np.dtype) -> np.ndarray:
    """Convert integers, to the nearest one where they do not fit."""
    limits, own = np.iinfo(output), np.iinfo(x.dtype)
    return np.clip(x, max(limits.min, own.min), min(limits.max, own.max)).astype(output)


def float_to_integer(x: np.ndarray, output: np.dtype, rounding: str) -> np.ndarray:
    """Round, to the nearest integer that fits; NaN becomes 0, or its highest bit alone where 64 bits take part."""
    limits = np.iinfo(output)
    whole = TO_INTEGER[rounding](x.astype(F64))
    high, low = whole >= float(limits.max), whole <= float(limits.min)  # 2**63 itself does not fit
    found = np.where(high | low | np.isnan(x), 0.0, whole).astype(output)
    found = np.where(high, limits.max, np.where(low, limits.min, found)).astype(output)
    invalid = 1 << 8 * output.itemsize - 1 if x.dtype == F64 or output.itemsize == 8 else 0
    return np.where(np.isnan(x), np.array(invalid, np.uint64).astype(output), found)


def float_to_float(x: np.ndarray, output: np.dtype, rounding: str) -> np.ndarray:
    """Round to an integer, or to a narrower type; widening is exact."""
    if rounding in TO_INTEGER:
        return TO_INTEGER[rounding](x).astype(output)
    if output.itemsize >= x.dtype.itemsize or rounding == "rn":
        return x.astype(output)
    if (x.dtype, output) == (F64, F32):
        return rounded32(x, rounding)
    raise KeyError(f"{rounding} from {x.dtype} to {output}")


def integer_to_float(x: np.ndarray, output: np.dtype, rounding: str) -> np.ndarray:
    """Convert integers, rounded in the given direction."""
    if rounding == "rn":
        return x.astype(output)
    if output == F32 and x.dtype.itemsize <= 4:
        return rounded32(x.astype(F64), rounding)
    if output == F64:
        return np.array([_directed(int(value), rounding) for value in x.ravel()], F64).reshape(x.shape)
    exact = [_to_odd(int(value)) for value in x.ravel()]
    return rounded32(np.array(exact, F64).reshape(x.shape), rounding)


def _directed(value: int, rounding: str) -> float:
    """Return an integer as a double; it is the sum of two doubles."""
    high = value >> 32 << 32
    return rounded_fraction(1.0, float(high), float(value - high), rounding)


def _to_odd(value: int) -> float:
    """Return an integer as a double that, where it is not exact, ends with the bit 1."""
    near = float(value)
    if Fraction(near) == value:
        return near
    toward = np.inf if value > near else -np.inf
    even = int(np.array(near).view(np.uint64)) & 1 == 0
    return float(np.nextafter(near, toward)) if even else near

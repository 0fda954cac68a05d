"""The accumulators of reductions along a row: their initial values, and how elements and accumulators are combined."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...base.dtypes import DType, real_of
from ...plan.program import Reduction
from .complex import Value, cast
from .primitives import maximum, minimum
from .vector import BOOL, LacksError, Vector, bits, from_bits, select

# Accumulators of a reduction take turns, so that one addition need not wait for the one before it. Those of floating
# dtypes have so many bytes together, whatever the length of vectors: sums are the same for every processor, and
# whatever else is computed in the same loop.
TURNS, ACCUMULATED = 4, 256

# Reductions to truth values.
_TRUTHS = ("any", "all")


def turns_of(reduction: Reduction, lanes: int) -> int:
    """Return how many accumulators, each a vector of so many lanes, take turns."""
    part = real_of(reduction.dtype)
    return max(ACCUMULATED // (lanes * part.itemsize), 1) if part.kind == "f" else TURNS


def identity(reduction: Reduction) -> Any:
    """Return the initial value of a reduction's accumulator; raises LacksError for extremes of complex numbers."""
    name, dtype = reduction.op.name, reduction.dtype
    if name in ("max", "min"):
        if dtype.kind == "c":
            raise LacksError(f"{name} of {dtype} in generated code")
        if dtype.kind == "f":
            return -np.inf if name == "max" else np.inf
        if dtype == BOOL:
            return name == "min"
        return np.iinfo(dtype).min if name == "max" else np.iinfo(dtype).max
    if name == "sum" and dtype.kind == "f":
        return -0.0  # so that a sum of negative zeros is one
    return {"sum": 0, "count_nonzero": 0, "prod": 1, "any": False, "all": True}[name]


def held(reduction: Reduction, widest: int) -> DType:
    """Return the dtype of a reduction's accumulators in registers. widest: the bytes of the widest elements of the
    program; truth values accumulate in integers as wide, as comparisons of such elements give. (On AVX2, LLVM splits
    vectors of 64 single bits bit by bit: `any` of a million booleans took 950 us that way, and takes 63.)
    """
    return np.dtype(f"u{widest}") if reduction.op.name in _TRUTHS else reduction.dtype


def start(reduction: Reduction) -> Any:
    """Return the initial value of a reduction's accumulator in registers; for `all` that tells if any element is false.

    (Otherwise LLVM would mask each comparison by those that were true so far. If the comparison reads memory itself,
    beyond the caches, that takes Zen 5 three times as long.)
    """
    return 0 if reduction.op.name in _TRUTHS else identity(reduction)


def term_of(reduction: Reduction, value: Value, dtype: DType) -> Value:
    """Return the contribution of one element to an accumulator in registers. dtype: the accumulator's."""
    if reduction.op.name in (*_TRUTHS, "count_nonzero"):
        value = cast(value, BOOL)
    return cast(~value if reduction.op.name == "all" else value, dtype)  # type: ignore[operator]


def result_of(reduction: Reduction, value: Any) -> Value:
    """Return the result of a reduction from its accumulator in registers."""
    if reduction.op.name not in _TRUTHS:
        return value  # type: ignore[no-any-return]
    found: Vector = value == 0 if reduction.op.name == "all" else value != 0
    return found


def combine(reduction: Reduction, a: Any, b: Any) -> Any:
    """Return the combination of two accumulators in registers."""
    name = reduction.op.name
    if name in ("sum", "count_nonzero"):
        return a + b
    if name == "prod":
        return a * b
    if name in _TRUTHS:
        return a | b
    return maximum(a, b) if name == "max" else minimum(a, b)


def join(reduction: Reduction, a: Any, b: Any) -> Any:
    """Return the combination of two accumulators at the end of a row, the same in both orders: +0 is larger than -0."""
    together = combine(reduction, a, b)
    if reduction.dtype.kind == "f" and reduction.op.name in ("max", "min"):
        zeros = bits(a) & bits(b) if reduction.op.name == "max" else bits(a) | bits(b)
        together = select(a == b, from_bits(zeros, a.dtype), together)
    return together

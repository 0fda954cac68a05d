"""Products of stacks of small matrices by the kernel of codegen/cpu/stack.py: when, and what it is told."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ..base.layout import Shape
from ..base.options import settings
from ..base.threads import worth
from ..codegen.cpu.compile import host
from ..codegen.cpu.stack import stack_kernel
from ..devices import library_of
from ..plan.costs import NATIVE_PRODUCTS, PRODUCT_SECONDS, STACK_COMPILED, STACK_LARGEST, moving_seconds
from .contractions import address
from .native import run_calls

Array = Any  # NumPy's, in whose types views of unknown rank cannot be written


def is_stack(a: Array, b: Array) -> bool:
    """Return whether a product is one of many small ones, of floats or complex numbers, which code of ours computes.

    For each of them NumPy calls the BLAS, which packs both matrices, on one thread.
    """
    if max(a.ndim, b.ndim) < 3 or min(a.ndim, b.ndim) < 2 or a.dtype != b.dtype or a.dtype.char not in "fdFD":
        return False
    (rows, depth), columns = a.shape[-2:], b.shape[-1]
    if not 1 <= min(rows, depth, columns) <= max(rows, depth, columns) <= STACK_LARGEST or _is_narrow(a, columns):
        return False
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    if prod(lead) <= NATIVE_PRODUCTS or prod(lead) * rows * depth * columns < STACK_COMPILED:
        return False
    if settings().engine not in ("auto", "llvm") or library_of(a) is not np or host() is None:
        return False
    return _step(a, lead) is not None and _step(b, lead) is not None


def _is_narrow(a: Array, columns: int) -> bool:
    """Return whether most of a register would be computed in vain, for sums that take the BLAS longer than a call."""
    return bool(columns * a.itemsize < 32 and a.shape[-2] * a.shape[-1] > 256)


def _step(x: Array, lead: Shape) -> int | None:
    """Return the elements from matrix to matrix of a stack that lies as the kernel needs it, else None."""
    rows, columns = x.shape[-2:]
    if not x.flags.aligned or x.strides[-2:] != (columns * x.itemsize, x.itemsize):
        return None
    if prod(x.shape[:-2]) == 1:
        return 0
    return rows * columns if x.shape[:-2] == lead and x.flags.c_contiguous else None


def stacked_product(a: Array, b: Array, out: Array | None = None) -> Array:
    """Return the products of stacks of which `is_stack` is true; out: where they go, in C order."""
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    shape = (*lead, a.shape[-2], b.shape[-1])
    c: Array = np.empty(shape, a.dtype) if out is None else out
    (rows, depth), columns, count = a.shape[-2:], b.shape[-1], prod(lead)
    steps = [_step(a, lead) or 0, _step(b, lead) or 0, rows * columns]
    seconds = count * rows * depth * columns * PRODUCT_SECONDS["f"] * a.itemsize / 4  # of parts twice as often
    threads = min(worth(max(seconds, moving_seconds(a.nbytes + b.nbytes + c.nbytes))), count)
    firsts = np.arange(threads + 1) * count // threads
    words = np.empty((threads, 7), np.int64)
    for place, (x, step) in enumerate(zip((a, b, c), steps, strict=True)):
        words[:, place] = address(x) + firsts[:-1] * step * x.itemsize
    words[:, 3] = np.diff(firsts)
    words[:, 4:] = np.multiply(steps, 2 if a.dtype.kind == "c" else 1)
    run_calls(stack_kernel(a.dtype.char, rows, depth, columns), [[told.tobytes()] for told in words])
    return c

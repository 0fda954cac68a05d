"""Matrix products of native arrays in other ways than the library's own, where one of them is faster: a stack of rows
with one matrix, stacks of small matrices (codegen/cpu/stack.py), and a long matrix with few columns
(codegen/cpu/thin.py).
"""

from __future__ import annotations

import struct
from itertools import pairwise
from math import ceil, prod
from typing import Any

import numpy as np

from ..base.layout import Shape, broadcast_shapes
from ..base.options import settings
from ..base.threads import worth
from ..codegen.cpu.compile import host
from ..codegen.cpu.stack import stack_kernel
from ..codegen.cpu.thin import thin_form, thin_kernel
from ..devices import library_of
from ..plan.costs import (
    NATIVE_PRODUCTS,
    PRODUCT_SECONDS,
    STACK_CALL,
    STACK_COMPILED,
    STACK_LARGEST,
    THIN_COLUMNS,
    THIN_DEPTH,
    THIN_LEAST,
    THIN_ROWS,
    moving_seconds,
)
from .contractions import address, integer_product
from .native import run_calls

Array = Any  # NumPy's, in whose types views of unknown rank cannot be written


def product_of(a: Array, b: Array, out: Array | None) -> Array | None:
    """Return the product of stacks of matrices, None if the library is to compute it, or to say what is wrong. out: the
    array for a floating-point result, in C order.
    """
    if a.shape[-1] != b.shape[-2]:
        return None
    if a.dtype.kind in "iu":
        return integer_product(a, b)
    if _is_rows(a, b):
        return _product_of_rows(a, b, out)
    if is_stack(a, b):
        return stacked_product(a, b, out)
    return thin_product(a, b, out) if is_thin(a, b) else None


def _has_code(a: Array) -> bool:
    """Return whether code of ours may compute a product, under the settings in force here."""
    return settings().engine in ("auto", "llvm") and library_of(a) is np and host() is not None


# ---- a stack of rows with one matrix


def _is_rows(a: Array, b: Array) -> bool:
    """Return whether a product is of a stack with one matrix, which NumPy would compute matrix by matrix."""
    if a.ndim < 3 or b.ndim != 2 or a.dtype != b.dtype or a.dtype.char not in "fdFD":
        return False
    return bool(a.flags.c_contiguous) and library_of(a) is np


def _product_of_rows(a: Array, b: Array, out: Array | None) -> Array:
    """Return the product of all rows with a matrix at once; out: the array for it, in C order."""
    shape = (*a.shape[:-1], b.shape[-1])
    c: Array = np.empty(shape, a.dtype) if out is None else out
    count = prod(shape[:-1])
    rows, found = a.reshape(count, a.shape[-1]), c.reshape(count, b.shape[-1])
    if is_thin(rows, b):
        thin_product(rows, b, found)
    else:
        np.matmul(rows, b, out=found)
    return c


# ---- stacks of small matrices


def is_stack(a: Array, b: Array) -> bool:
    """Return whether a product is a stack of many small ones, of floats or complex numbers, which our code computes.

    For each of them NumPy calls the BLAS, which packs both matrices, on one thread.
    """
    if max(a.ndim, b.ndim) < 3 or min(a.ndim, b.ndim) < 2 or a.dtype != b.dtype or a.dtype.char not in "fdFD":
        return False
    (rows, depth), columns = a.shape[-2:], b.shape[-1]
    if not 1 <= min(rows, depth, columns) <= max(rows, depth, columns) <= STACK_LARGEST or _is_narrow(a, columns):
        return False
    lead = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    count = prod(lead)
    if count <= NATIVE_PRODUCTS or count * (STACK_CALL + rows * depth * columns) < STACK_COMPILED:
        return False
    return _has_code(a) and _step(a, lead) is not None and _step(b, lead) is not None


def _is_narrow(a: Array, columns: int) -> bool:
    """Return whether most lanes of a register would be wasted, on sums so long that a call of the BLAS is cheap."""
    return bool(columns * a.itemsize < 32 and a.shape[-2] * a.shape[-1] > 256)


def _step(x: Array, lead: Shape) -> int | None:
    """Return the stride, in elements, between the matrices of a stack that lies as the kernel needs it: however each
    matrix lies, this stride must be constant. None for other stacks.
    """
    flags = x.flags
    if not flags.aligned:
        return None
    if flags.c_contiguous and x.shape[:-2] == lead:
        return int(x.shape[-2] * x.shape[-1])
    if any(step % x.itemsize for step in x.strides):
        return None
    if prod(x.shape[:-2]) == 1:
        return 0
    if x.shape[:-2] != lead:
        return None
    steps = [(n, step) for n, step in zip(lead, x.strides[:-2], strict=True) if n > 1]
    if any(outer != n * inner for (_, outer), (n, inner) in pairwise(steps)) or steps[-1][1] < 0:
        return None
    found: int = steps[-1][1] // x.itemsize
    return found


def stacked_product(a: Array, b: Array, out: Array | None = None) -> Array:
    """Return the products of stacks for which `is_stack` is true; out: the array for them, in C order."""
    lead = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    shape = (*lead, a.shape[-2], b.shape[-1])
    c: Array = np.empty(shape, a.dtype) if out is None else out
    (rows, depth), columns, count = a.shape[-2:], b.shape[-1], prod(lead)
    steps = [_step(a, lead) or 0, _step(b, lead) or 0, rows * columns]
    seconds = count * rows * depth * columns * PRODUCT_SECONDS["f"] * a.itemsize / 4  # of parts twice as often
    threads = min(worth(max(seconds, moving_seconds(a.nbytes + b.nbytes + c.nbytes))), count)
    nexts = [(2 if a.dtype.kind == "c" else 1) * step for step in steps]
    begins = [(address(x), step * x.itemsize) for x, step in zip((a, b, c), steps, strict=True)]
    told = []
    for n in range(threads):
        first, after = n * count // threads, (n + 1) * count // threads
        told.append([struct.pack("=7q", *[at + first * far for at, far in begins], after - first, *nexts)])
    a_row, a_term, b_term, b_column = [step // a.itemsize for step in (*a.strides[-2:], *b.strides[-2:])]
    code = stack_kernel(a.dtype.char, rows, depth, columns, (a_row, a_term, b_term, b_column))
    run_calls(code, told)
    return c


# ---- few columns


def is_thin(a: Array, b: Array) -> bool:
    """Return whether a product is of a long matrix with one of few columns, which our code computes.

    The BLAS packs the long matrix, which takes longer than to read it.
    """
    if a.ndim != 2 or b.ndim != 2 or not 2 <= b.shape[1] <= THIN_COLUMNS or a.dtype != b.dtype:
        return False
    if a.size * b.shape[1] <= THIN_LEAST or a.dtype.char not in "fd" or a.shape[1] < THIN_DEPTH:
        return False
    if not _has_code(a):
        return False
    whole = a.flags.aligned and a.strides[1] == a.itemsize and a.strides[0] % a.itemsize == 0
    return bool(whole and a.shape[0] >= THIN_ROWS)


def thin_product(a: Array, b: Array, out: Array | None = None) -> Array:
    """Return the product of matrices for which `is_thin` is true; out: the array for it, in C order."""
    (rows, depth), columns = a.shape, b.shape[1]
    c: Array = np.empty((rows, columns), a.dtype) if out is None else out
    form = thin_form(a.dtype.char, columns)
    registers = ceil(depth / form.lanes)
    terms: Array = np.zeros((registers * form.lanes, columns), a.dtype)
    terms[:depth] = b
    terms = np.ascontiguousarray(terms.reshape(registers, form.lanes, columns).swapaxes(1, 2))
    seconds = max(rows * depth * columns * PRODUCT_SECONDS[a.dtype.char], moving_seconds(a.nbytes))
    threads = min(worth(seconds), rows // form.height)
    firsts = np.arange(threads + 1) * rows // threads
    words = np.empty((threads, 6), np.int64)
    words[:, 0] = address(a) + firsts[:-1] * a.strides[0]
    words[:, 1] = address(terms)
    words[:, 2] = address(c) + firsts[:-1] * (columns * c.itemsize)
    words[:, 3] = np.diff(firsts)
    words[:, 4:] = depth, a.strides[0] // a.itemsize
    run_calls(thin_kernel(form), [[told.tobytes()] for told in words])
    return c

"""Products with a matrix of few columns by the kernel of codegen/cpu/thin.py: when, and what it is told."""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np

from ..base.options import settings
from ..base.threads import worth
from ..codegen.cpu.compile import host
from ..codegen.cpu.thin import thin_form, thin_kernel
from ..devices import library_of
from ..plan.costs import NATIVE_PRODUCT, PRODUCT_SECONDS, THIN_COLUMNS, THIN_DEPTH, THIN_ROWS, moving_seconds
from .contractions import address
from .native import run_calls

Array = Any  # NumPy's, in whose types views of unknown rank cannot be written


def is_thin(a: Array, b: Array) -> bool:
    """Return whether a product is one of a long matrix with few columns, which code of ours computes.

    The BLAS packs the long one, which takes longer than to read it.
    """
    if a.ndim != 2 or b.ndim != 2 or not 2 <= b.shape[1] <= THIN_COLUMNS or a.dtype != b.dtype:
        return False
    if a.size * b.shape[1] <= NATIVE_PRODUCT or a.dtype.char not in "fd" or a.shape[1] < THIN_DEPTH:
        return False
    if settings().engine not in ("auto", "llvm") or library_of(a) is not np or host() is None:
        return False
    whole = a.flags.aligned and a.strides[1] == a.itemsize and a.strides[0] % a.itemsize == 0
    return bool(whole and a.shape[0] >= THIN_ROWS)


def thin_product(a: Array, b: Array, out: Array | None = None) -> Array:
    """Return the product of matrices of which `is_thin` is true; out: where it goes, in C order."""
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

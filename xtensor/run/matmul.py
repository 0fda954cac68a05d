"""Matrix products of native arrays in other ways than the library's own, where one of them is faster."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..devices import library_of
from ..plan.costs import NATIVE_PRODUCTS
from .contractions import integer_product
from .stacks import is_stack, stacked_product
from .thin import is_thin, thin_product

Array = Any  # NumPy's, in whose types views of unknown rank cannot be written


def product_of(a: Array, b: Array, out: Array | None) -> Array | None:
    """Return the product of stacks of matrices, None where the library is to compute it, or to say what is wrong; out:
    where it goes, if it is of floating-point numbers, in C order.
    """
    if a.shape[-1] != b.shape[-2]:
        return None
    if a.dtype.kind in "iu":
        return integer_product(a, b)
    if is_stack(a, b):
        return stacked_product(a, b, out)
    if _is_rows(a, b):
        return _product_of_rows(a, b, out)
    return thin_product(a, b, out) if is_thin(a, b) else None


def _is_rows(a: Array, b: Array) -> bool:
    """Return whether a product is one of many rows with the same matrix, each of which NumPy would go through alone."""
    if a.ndim < 3 or b.ndim != 2 or a.shape[-2] != 1 or a.dtype != b.dtype or a.dtype.char not in "fdFD":
        return False
    return a.size > NATIVE_PRODUCTS * a.shape[-1] and a.flags.c_contiguous and library_of(a) is np


def _product_of_rows(a: Array, b: Array, out: Array | None) -> Array:
    """Return the product of rows with a matrix; out: where it goes, in C order."""
    shape = (*a.shape[:-1], b.shape[-1])
    c: Array = np.empty(shape, a.dtype) if out is None else out
    rows, found = a.reshape(-1, a.shape[-1]), c.reshape(-1, b.shape[-1])
    if is_thin(rows, b):
        thin_product(rows, b, found)
    else:
        np.matmul(rows, b, out=found)
    return c

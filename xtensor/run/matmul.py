"""Matrix products of native arrays by generated code, where one of its kernels is faster than the library."""

from __future__ import annotations

from typing import Any

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
    return thin_product(a, b, out) if is_thin(a, b) else None

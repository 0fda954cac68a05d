"""Functions beyond the standard that existing array code uses, with NumPy's meaning."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any, cast

import numpy

from ..autograd.rules import Like, xt
from ..autograd.tape import differentiable
from ..base.errors import expected
from ..base.layout import as_index
from ..calls.library import on, thin_call
from ..plan.costs import EINSUM_MULTIPLIED
from ..tensor.face import Tensor, thin_arrays
from ..tensor.operands import as_tensor
from .linear import on_diagonal
from .subscripts import Product, product_of

__all__ = ["diag", "einsum"]


def _of_diag(g: Tensor, like: Like, k: int) -> Tensor:
    if like.ndim == 2:
        return on_diagonal(g, as_index(k, "diag", "k"), like.shape)
    return cast(Tensor, xt.linalg.diagonal(g, offset=k))


@differentiable(x=_of_diag, view=True)
def diag(x: Tensor, /, k: int = 0) -> Tensor:
    """Return a matrix with the 1-d x on its k-th diagonal, or the k-th diagonal of the 2-d x, as a view.

    Raises ValueError for another number of axes. Source: numpy.diag.
    """
    x, k = as_tensor(x, "diag"), as_index(k, "diag", "k")
    if x.ndim == 2:
        return x.viewed(x.blob.layout.diagonal(k))
    if x.ndim != 1:
        raise ValueError(expected("diag", "x", "have 1 or 2 axes", f"shape {x.shape}"))
    side = x.shape[0] + abs(k)
    return on_diagonal(x, k, (side, side))


def einsum(subscripts: str, /, *operands: Tensor, optimize: Any = False) -> Tensor:
    """Return the sum of products given by Einstein subscripts such as "ij,jk->ik".

    optimize: accepted as in numpy.einsum; whatever it is, more than two operands are multiplied in an efficient order.
    If there is one operand and nothing is summed, the result is a view of it. Raises ValueError if subscripts and
    shapes do not match. Source: numpy.einsum.
    """
    natives = thin_arrays(*operands) if len(operands) > 1 else None
    if natives is not None and prod([one.size for one in natives]) < EINSUM_MULTIPLIED:  # before subscripts are read
        found = thin_call(partial(numpy.einsum, optimize=optimize), natives, subscripts, *natives)
        if found is not None:
            return cast(Tensor, found)
    like = next((x for x in operands if isinstance(x, Tensor)), None)
    tensors = tuple([as_tensor(x, "einsum", "operands", like) for x in operands])
    if not isinstance(subscripts, str):
        raise TypeError(expected("einsum", "subscripts", "be a string", type(subscripts).__name__))
    product = product_of(subscripts, optimize, [x.shape for x in tensors])
    if product is not None and (product.is_view or product.multiplied >= EINSUM_MULTIPLIED):
        return _multiplied_out(product, tensors)
    natives = thin_arrays(*tensors)
    small = partial(numpy.einsum, optimize=optimize)
    found = None if natives is None else thin_call(small, natives, subscripts, *natives)
    if found is not None:
        return cast(Tensor, found)
    if product is not None:
        return _multiplied_out(product, tensors)
    return cast(Tensor, on(tensors, "einsum", lambda xp, *each: xp.einsum(subscripts, *each, optimize=optimize)))


def _multiplied_out(product: Product, tensors: Sequence[Tensor]) -> Tensor:
    """Return a sum of products, in the common dtype of all operands; float16 is computed in single precision."""
    dtype = xt.result_type(*tensors)
    if product.is_view:
        return product.of(tensors)
    computed = xt.float32 if dtype == numpy.float16 else dtype
    found = product.of([xt.astype(x, computed, copy=False) for x in tensors])
    return cast(Tensor, xt.astype(found, dtype, copy=False))

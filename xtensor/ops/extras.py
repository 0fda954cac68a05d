"""Names beyond the standard that existing array code leans on, with NumPy's meaning."""

from __future__ import annotations

from typing import Any

from ..errors import expected
from ..layout import as_index
from ..op import as_tensor, on
from ..tensor import Tensor
from .creation import zeros

__all__ = ["diag", "einsum"]


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
    result = zeros((side, side), dtype=x.dtype, device=x.device)
    diagonal = result.viewed(result.blob.layout.diagonal(k))
    diagonal[...] = x
    return result


def einsum(subscripts: str, /, *operands: Tensor, optimize: Any = False) -> Tensor:
    """Return the sum of products that an Einstein subscript such as "ij,jk->ik" names.

    optimize: as numpy.einsum takes it. Raises ValueError where subscripts and shapes do not fit. Source:
    numpy.einsum.
    """
    tensors = tuple(as_tensor(x, "einsum", "operands") for x in operands)
    if not isinstance(subscripts, str):
        raise TypeError(expected("einsum", "subscripts", "be a string", type(subscripts).__name__))
    return on(tensors, "einsum", lambda xp, *natives: xp.einsum(subscripts, *natives, optimize=optimize))

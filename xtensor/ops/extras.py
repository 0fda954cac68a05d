"""Names beyond the standard that existing array code leans on, with NumPy's meaning."""

from __future__ import annotations

from ..errors import expected
from ..op import as_tensor
from ..tensor import Tensor
from .creation import zeros

__all__ = ["diag"]


def diag(x: Tensor, /, k: int = 0) -> Tensor:
    """Return a matrix with the 1-d x on its k-th diagonal, or the k-th diagonal of the 2-d x, as a view.

    Raises ValueError for another number of axes. Source: numpy.diag.
    """
    x = as_tensor(x, "diag")
    if x.ndim == 2:
        return x.viewed(x.blob.layout.diagonal(k))
    if x.ndim != 1:
        raise ValueError(expected("diag", "x", "have 1 or 2 axes", f"shape {x.shape}"))
    side = x.shape[0] + abs(k)
    result = zeros((side, side), dtype=x.dtype, device=x.device)
    diagonal = result.viewed(result.blob.layout.diagonal(k))
    diagonal[...] = x
    return result

"""Sorting functions (standard section of that name). NaNs come last in ascending order."""

from __future__ import annotations

from ..layout import as_axis
from ..op import on
from ..operands import as_tensor
from ..rules import xt
from ..tape import differentiable
from ..tensor import Tensor

__all__ = [
    "argsort",
    "sort",
]


def argsort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """Return the indices (int64) that sort x along an axis; equal elements keep their order if `stable`.

    Raises AxisError. Standard: Sorting Functions, argsort.
    """
    x = as_tensor(x, "argsort")
    axis = as_axis(axis, x.ndim, "argsort")
    return on(x, "argsort", lambda xp, a: xp.argsort(a, axis=axis, descending=descending, stable=stable))


def _put_back(g: Tensor, x: Tensor, axis: int, descending: bool) -> Tensor:
    """The cotangent in the order of x, by the inverse of the permutation that sorts it, equal elements in order."""
    order = xt.argsort(x, axis=axis, descending=descending)
    return xt.take_along_axis(g, xt.argsort(order, axis=axis), axis=axis)


@differentiable(x=lambda g, x, axis, descending: _put_back(g, x, axis, descending))
def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """Return a sorted copy of x along an axis.

    Raises AxisError. Standard: Sorting Functions, sort.
    """
    x = as_tensor(x, "sort")
    axis = as_axis(axis, x.ndim, "sort")
    return on(x, "sort", lambda xp, a: xp.sort(a, axis=axis, descending=descending, stable=stable))

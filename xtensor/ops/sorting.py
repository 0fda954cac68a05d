"""Sorting functions (standard section of that name). NaNs come last in ascending order."""

from __future__ import annotations

from ..layout import as_axis
from ..op import as_tensor, on
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


def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """Return a sorted copy of x along an axis.

    Raises AxisError. Standard: Sorting Functions, sort.
    """
    x = as_tensor(x, "sort")
    axis = as_axis(axis, x.ndim, "sort")
    return on(x, "sort", lambda xp, a: xp.sort(a, axis=axis, descending=descending, stable=stable))

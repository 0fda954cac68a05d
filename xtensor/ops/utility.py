"""Utility functions (standard section of that name): any, all, and finite differences."""

from __future__ import annotations

from ..doors import reduction
from ..dtypes import ANY
from ..errors import expected
from ..layout import as_axis, as_index
from ..op import as_tensor, on
from ..tensor import Tensor
from .statistical import Axis

__all__ = [
    "all",
    "any",
    "diff",
]


@reduction(ANY, of_nothing=True)
def all(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return whether all elements are true (nonzero; NaN counts as true), as booleans; True over none."""
    ...


@reduction(ANY, of_nothing=False)
def any(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return whether any element is true (nonzero; NaN counts as true), as booleans; False over none."""
    ...


def diff(
    x: Tensor,
    /,
    *,
    axis: int = -1,
    n: int = 1,
    prepend: Tensor | None = None,
    append: Tensor | None = None,
) -> Tensor:
    """Return the n-th differences of neighbours along an axis, which becomes n shorter.

    prepend, append: arrays put before and after x along the axis first. Raises AxisError, or ValueError for a
    negative n. Standard: Utility Functions, diff.
    """
    x = as_tensor(x, "diff")
    axis = as_axis(axis, x.ndim, "diff")
    if as_index(n, "diff", "n") < 0:
        raise ValueError(expected("diff", "n", "not be negative", n))
    ends = [as_tensor(end, "diff", name) for end, name in ((prepend, "prepend"), (append, "append")) if end is not None]
    names = [name for end, name in ((prepend, "prepend"), (append, "append")) if end is not None]
    return on(
        (x, *ends), "diff", lambda xp, a, *rest: xp.diff(a, n=n, axis=axis, **dict(zip(names, rest, strict=True)))
    )

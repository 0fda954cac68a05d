"""Utility functions (standard section of that name): any, all, and finite differences."""

from __future__ import annotations

from ..autograd.rules import Like, xt
from ..autograd.tape import differentiable
from ..base.dtypes import ANY
from ..base.errors import expected
from ..base.layout import as_axis, as_index
from ..calls.library import on
from ..calls.rows import reduction
from ..storage.storage import watchers
from ..tensor.face import Tensor
from ..tensor.operands import as_tensor
from .statistical import Axis

__all__ = ["all", "any", "diff"]


@reduction(ANY, of_nothing=True)
def all(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return whether all elements are true (nonzero; NaN counts as true), as booleans; True if there are none."""
    ...


@reduction(ANY, of_nothing=False)
def any(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return whether any element is true (nonzero; NaN counts as true), as booleans; False if there are none."""
    ...


def _summed_back(g: Tensor, n: int, axis: int, like: Like) -> Tensor:
    """The cotangent of the operand of n-th differences: again differences, of the cotangent with zeros around it."""
    if n == 0:
        return g
    if like.shape[axis] <= n:
        return xt.zeros(like.shape, dtype=g.dtype, device=g.device)
    around = xt.zeros((*g.shape[:axis], n, *g.shape[axis + 1 :]), dtype=g.dtype, device=g.device)
    back: Tensor = xt.diff(g, axis=axis, n=n, prepend=around, append=around)
    return -back if n % 2 else back


@differentiable(x=lambda g, like, n, axis: _summed_back(g, n, axis, like))
def _differences(x: Tensor, n: int, axis: int) -> Tensor:
    if watchers and n and x.dtype.kind != "b":  # as steps of a captured function
        lead = (slice(None),) * axis
        for _ in range(n):
            x = x[(*lead, slice(1, None))] - x[(*lead, slice(None, -1))]
        return x
    return on(x, "diff", lambda xp, a: xp.diff(a, n=n, axis=axis))


def diff(
    x: Tensor, /, *, axis: int = -1, n: int = 1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Tensor:
    """Return the n-th differences of neighbours along an axis, which becomes n shorter.

    prepend, append: arrays that are first joined to x before and after it along the axis. Raises AxisError, or
    ValueError for a negative n. Standard: Utility Functions, diff.
    """
    x = as_tensor(x, "diff")
    axis = as_axis(axis, x.ndim, "diff")
    if as_index(n, "diff", "n") < 0:
        raise ValueError(expected("diff", "n", "not be negative", n))
    before = None if prepend is None else _end(as_tensor(prepend, "diff", "prepend", x), x, axis, "prepend")
    after = None if append is None else _end(as_tensor(append, "diff", "append", x), x, axis, "append")
    joined = [part for part in (before, x, after) if part is not None]
    return _differences(xt.concat(joined, axis=axis) if len(joined) > 1 and n else x, n, axis)


def _end(end: Tensor, x: Tensor, axis: int, argument: str) -> Tensor:
    """Return the array to put before or after x; a single number is broadcast to a slice."""
    lengths = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    if end.ndim == 0:
        return xt.broadcast_to(end, lengths)
    if (end.shape[:axis], end.shape[axis + 1 :]) != (x.shape[:axis], x.shape[axis + 1 :]):
        raise ValueError(expected("diff", argument, f"have x's lengths {x.shape} but along the axis", end.shape))
    return end

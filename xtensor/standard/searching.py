"""Searching functions (standard section of that name)."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, cast

from ..autograd.rules import xt
from ..base.dtypes import ANY, REAL
from ..base.errors import check_choice, expected
from ..calls.library import on
from ..calls.rows import elementwise, reduction
from ..plan.costs import DIRECT_BELOW, SEARCHED_BELOW
from ..storage.storage import watchers
from ..tensor.face import CPU_DEVICE, Tensor
from ..tensor.operands import Operand, as_tensor, as_tensors
from .statistical import Axis

__all__ = ["argmax", "argmin", "count_nonzero", "nonzero", "searchsorted", "where"]


def _place_of(extreme: str, x: Tensor, params: dict[str, Any]) -> Tensor | None:
    """Return the index along an axis of the first extreme, or NaN; None if the library's function is faster, or decides
    on the layout of results with several axes.
    """
    axis, ones = params["axis"], (1,) * x.ndim
    is_captured = watchers and x.nbytes <= DIRECT_BELOW
    if axis is None and is_captured and x.size:
        place = _place_of(extreme, xt.reshape(x, (-1,)), {"axis": 0, "keepdims": False})
        return xt.reshape(place, ones) if params["keepdims"] else place
    if axis is None or x.ndim > 2 or x.device is not CPU_DEVICE:
        return None
    length, after = x.shape[axis], x.ndim - 1 - axis % x.ndim
    if not after and length > SEARCHED_BELOW and not is_captured:
        return None
    places = xt.reshape(xt.arange(length, device=x.device), (length, *[1] * after))
    if x.dtype.kind == "b":
        here = x if extreme == "max" else xt.logical_not(x)
    else:
        best = getattr(xt, extreme)(x, axis=axis, keepdims=True)
        here = xt.logical_or(x == best, x != x) if x.dtype.kind in "fc" else x == best
    found = xt.min(xt.where(here, places, length), axis=axis, keepdims=params["keepdims"])
    return cast(Tensor, xt.where(found == length, 0, found) if x.dtype.kind == "b" else found)


@reduction(REAL, one_axis=True, composed=partial(_place_of, "max"))
def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Return the index (int64) of the first largest element, counted in C order if axis is None."""
    ...


@reduction(REAL, one_axis=True, composed=partial(_place_of, "min"))
def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Return the index (int64) of the first smallest element, counted in C order if axis is None."""
    ...


@reduction(ANY, of_nothing=0)
def count_nonzero(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return how many elements are nonzero (including True and NaN), as int64."""
    ...


def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """Return the indices (int64) of the nonzero elements, one 1-d array per axis, in C order.

    Raises ValueError for an array without axes. Standard: Searching Functions, nonzero.
    """
    x = as_tensor(x, "nonzero")
    if x.ndim == 0:
        raise ValueError(expected("nonzero", "x", "have at least 1 axis", "shape ()"))
    return on(x, "nonzero", lambda xp, a: xp.nonzero(a))


def searchsorted(
    x1: Tensor, x2: Operand, /, *, side: Literal["left", "right"] = "left", sorter: Tensor | None = None
) -> Tensor:
    """Return the indices (int64) at which x2's elements would be inserted into the sorted 1-d x1.

    side: "left" inserts before equal elements, "right" after them; sorter: the indices that sort x1. Raises ValueError
    for another side or an x1 that is not 1-d. Standard: Searching Functions, searchsorted.
    """
    x1, x2 = as_tensors("searchsorted", x1=x1, x2=x2)
    check_choice("searchsorted", "side", side, ("left", "right"))
    if x1.ndim != 1:
        raise ValueError(expected("searchsorted", "x1", "have 1 axis", f"shape {x1.shape}"))
    given = () if sorter is None else (as_tensor(sorter, "searchsorted", "sorter", x1),)

    def run(xp: Any, a: Any, v: Any, *order: Any) -> Any:
        return xp.searchsorted(a, v, side=side, sorter=order[0] if order else None)

    return on((x1, x2, *given), "searchsorted", run)


@elementwise(
    ANY,
    derivative=(0, lambda g, condition: xt.where(condition, g, 0), lambda g, condition: xt.where(condition, 0, g)),
)
def where(condition: Operand, x1: Operand, x2: Operand, /) -> Tensor:
    """Return x1's element where the condition is true (nonzero), and x2's elsewhere."""
    ...

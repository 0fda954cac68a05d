"""Sorting functions (standard section of that name). NaNs come last in ascending order."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, cast

import numpy as np

from ..autograd.rules import xt
from ..autograd.tape import differentiable
from ..base.layout import as_axis
from ..calls.library import on, thin_call
from ..plan.costs import STABLE_BELOW
from ..storage.storage import Native
from ..tensor.face import Tensor, thin_arrays
from ..tensor.operands import as_tensor

__all__ = ["argsort", "sort"]

# Up to so many elements NumPy's stable sort takes no longer than the rest of a call.
FEW = 1000

# By the bytes of an integer, the length of rows from which radix sorts are the fastest.
RADIX = {1: 24, 2: 1000}


def argsort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """Return the indices (int64) that sort x along an axis; equal elements keep their order if `stable`.

    Raises AxisError. Standard: Sorting Functions, argsort.
    """
    found = _sorted_at_once(np.argsort, x, axis, descending)
    if found is not None:
        return found
    x = as_tensor(x, "argsort")
    axis = as_axis(axis, x.ndim, "argsort") - x.ndim  # from the end, as for stacks (calls/batching.py)
    return on(x, "argsort", lambda xp, a: _order(xp, a, axis, descending, stable))


def _put_back(g: Tensor, x: Tensor, axis: int, descending: bool) -> Tensor:
    """The cotangent in the order of x, by the inverse of the permutation that sorts it, equal elements in order."""
    order = xt.argsort(x, axis=axis, descending=descending)
    return xt.take_along_axis(g, xt.argsort(order, axis=axis), axis=axis)


@differentiable(x=lambda g, x, axis, descending: _put_back(g, x, axis, descending))
def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """Return a sorted copy of x along an axis.

    Raises AxisError. Standard: Sorting Functions, sort.
    """
    found = _sorted_at_once(np.sort, x, axis, descending)
    if found is not None:
        return found
    x = as_tensor(x, "sort")
    axis = as_axis(axis, x.ndim, "sort") - x.ndim
    return on(x, "sort", lambda xp, a: _values(xp, a, axis, descending, stable))


def _sorted_at_once(function: Callable[..., Any], x: Any, axis: Any, descending: bool) -> Tensor | None:
    """Return what NumPy's stable sort gives for a small array; None for others, descending order, and bad arguments."""
    natives = thin_arrays(x, most=STABLE_BELOW) if type(axis) is int and not descending else None
    if natives is None or not natives[0].ndim or natives[0].dtype.kind not in "biuf":
        return None
    return cast(Tensor | None, thin_call(function, natives, natives[0], axis, "stable"))


def _values(xp: Any, a: Native, axis: int, descending: bool, stable: bool) -> Native:
    """Return a sorted copy of an array; equal elements also keep their order if it is descending."""
    stable = _wants_stable(a, stable, a.shape[axis])
    given = xp.flip(a, axis=axis) if descending and stable else a
    return xp.sort(given, axis=axis, descending=descending, stable=stable)


def _wants_stable(a: Native, stable: bool, length: int) -> bool:
    """Return whether to sort values by a stable sort: small integers, and equal values that differ, as -0.0 and 0.0.

    NumPy's stable sorts take 5 to 30 times as long as its others, which are vector code, except for long rows of small
    integers, for which they are radix sorts and take a tenth. So they are used for these, or if the result depends on
    it. length: of the rows.
    """
    if type(a) is not np.ndarray or a.dtype.kind not in "biuf" or a.dtype == np.float16:
        return stable
    if a.dtype.kind != "f":
        return length >= RADIX.get(a.itemsize, inf)
    if not stable or a.size - np.count_nonzero(a) < 2:
        return False
    signs = np.signbit(a[a == 0])
    return bool(signs.any()) and not signs.all()


def _order(xp: Any, a: Native, axis: int, descending: bool, stable: bool) -> Native:
    """Return the indices that sort an array. NumPy's stable sort takes 6 times as long as its others, so it is only
    used for few elements, and for those of one or two bytes. Elements of four bytes are sorted together with their
    indices; equal elements of eight bytes are put in order in the end.
    """
    if type(a) is not np.ndarray or a.dtype.char not in "fdiIlLqQ" or a.size <= FEW or a.shape[axis] >= 1 << 31:
        return xp.argsort(a, axis=axis, descending=descending, stable=stable)
    if a.itemsize == 4:
        return _sorted_with(a, axis, descending)
    order = xp.argsort(a, axis=axis, descending=descending, stable=False)
    return _in_order(a, order, axis) if stable else order


def _sorted_with(a: Native, axis: int, descending: bool) -> Native:
    """Return the indices that sort an array of four-byte elements: they are the lower halves of the sorted integers."""
    if a.dtype.kind == "f":
        a = np.where(a == a, a + np.float32(0), np.float32(np.nan)).view(np.int32)  # one zero, one NaN: the last
        a = a ^ ((a >> 31) & np.int32(0x7FFFFFFF))  # negative ones in the order of their values
    keys = a.astype(np.int64)
    if a.dtype.kind == "u":
        keys -= 1 << 31
    keys = np.invert(keys, out=keys) if descending else keys
    keys <<= 32
    keys += np.arange(a.shape[axis]).reshape(-1, *[1] * (-axis - 1))
    keys.sort(axis=axis)
    keys &= (1 << 32) - 1
    return keys


def _in_order(a: Native, order: Native, axis: int) -> Native:
    """Return the indices that sort an array, with those of equal elements in ascending order."""
    found = np.moveaxis(np.take_along_axis(a, order, axis=axis), axis, 0)
    one, other = found[:-1], found[1:]
    differ = (one != other) & ((one == one) | (other == other))  # NaNs count as equal
    if differ.all():
        return order
    alike = np.zeros(found.shape, np.int64)  # the group of each, times the length: indices fit between
    np.cumsum(differ, axis=0, out=alike[1:])
    alike *= len(found)
    keys = np.moveaxis(order, axis, 0) + alike
    keys.sort(axis=0)
    keys -= alike
    return np.moveaxis(keys, 0, axis)

"""Set functions (standard section of that name). NaNs are distinct from each other; results are 1-d and sorted."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..autograd.rules import xt
from ..autograd.tape import differentiable
from ..calls.library import on
from ..tensor.face import Tensor
from ..tensor.operands import Operand, as_tensor, as_tensors
from .indexing import added

__all__ = ["isin", "unique_all", "unique_counts", "unique_inverse", "unique_values"]


class UniqueAll(NamedTuple):
    """The values, the index of the first occurrence of each, the inverse (in x's shape), and how often each occurs."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """The values and how often each occurs."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """The values and, in x's shape, the position of each element among them."""

    values: Tensor
    inverse_indices: Tensor


def isin(x1: Operand, x2: Operand, /, *, invert: bool = False) -> Tensor:
    """Return whether each element of x1 occurs in x2 (or does not, if `invert`), as booleans of x1's shape.

    Standard: Set Functions, isin.
    """
    x1, x2 = as_tensors("isin", x1=x1, x2=x2)
    return on((x1, x2), "isin", lambda xp, a, b: xp.isin(a, b, invert=invert))


# More integers than this, if their values lie close together, are counted: in a tenth of the time of the library.
_MANY = 1000


def _unique(name: str, x: Any) -> Any:
    """Return the result of the function of this name."""
    parts = on(as_tensor(x, name), name, lambda xp, a: _counted(name, a) or _found(xp, name, a))
    return parts if type(parts) is Tensor or name != "unique_values" else parts[0]


def _found(xp: Any, name: str, a: Any) -> Any:
    """Return the same from the library: NumPy's one function for all four, array-api-compat's for other devices."""
    if type(a) is not np.ndarray:
        return getattr(xp, name)(a)
    unique: Any = np.unique
    return unique(a, **_ASKED[name], equal_nan=False)


# The results besides the values for which NumPy is asked.
_ASKED = {
    "unique_all": {"return_index": True, "return_inverse": True, "return_counts": True},
    "unique_counts": {"return_counts": True},
    "unique_inverse": {"return_inverse": True},
    "unique_values": {},
}


def _counted(name: str, a: Any) -> list[Any] | None:
    """Return the parts of a function's result for integers whose range is smaller than their number; None for other
    arrays.
    """
    if type(a) is not np.ndarray or a.dtype.kind not in "iu" or a.size < _MANY:
        return None
    least, most = int(a.min()), int(a.max())
    if most - least >= a.size or most > np.iinfo(np.intp).max:
        return None
    above = np.subtract(a, least, dtype=np.intp, casting="unsafe").reshape(-1)
    counts = np.bincount(above)
    there = np.flatnonzero(counts)
    parts: list[Any] = [(there + least).astype(a.dtype)]
    if name == "unique_all":
        first = np.empty_like(counts)
        first[above[::-1]] = np.arange(a.size)[::-1]  # of several assignments to one place the last counts
        parts.append(first[there])
    if name in ("unique_all", "unique_inverse"):
        parts.append((np.cumsum(counts > 0) - 1)[above].reshape(a.shape))
    return parts if name in ("unique_inverse", "unique_values") else [*parts, counts[there]]


def _at_first(g: Tensor, x: Tensor) -> Tensor:
    """The cotangent of the distinct values, each at the first element that has it."""
    flat = added(g, unique_all(x).indices, 0, x.size)
    return xt.reshape(flat, x.shape)


@differentiable(x=lambda g, x: _at_first(g[0], x))
def unique_all(x: Tensor, /) -> UniqueAll:
    """Return the distinct elements of x with first indices, inverse indices and counts (int64).

    Standard: Set Functions, unique_all.
    """
    return UniqueAll(*_unique("unique_all", x))


@differentiable(x=lambda g, x: _at_first(g[0], x))
def unique_counts(x: Tensor, /) -> UniqueCounts:
    """Return the distinct elements of x with their counts (int64).

    Standard: Set Functions, unique_counts.
    """
    return UniqueCounts(*_unique("unique_counts", x))


@differentiable(x=lambda g, x: _at_first(g[0], x))
def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """Return the distinct elements of x with the inverse indices (int64) that rebuild x.

    Standard: Set Functions, unique_inverse.
    """
    return UniqueInverse(*_unique("unique_inverse", x))


@differentiable(x=lambda g, x: _at_first(g, x))
def unique_values(x: Tensor, /) -> Tensor:
    """Return the distinct elements of x.

    Standard: Set Functions, unique_values.
    """
    return _unique("unique_values", x)

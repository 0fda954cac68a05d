"""Set functions (standard section of that name). NaNs are distinct from each other; results are 1-d and sorted."""

from __future__ import annotations

from typing import NamedTuple

from ..autograd.rules import xt
from ..autograd.tape import differentiable
from ..calls.op import on
from ..tensor.face import Tensor
from ..tensor.operands import Operand, as_tensor, as_tensors
from .indexing import added

__all__ = ["isin", "unique_all", "unique_counts", "unique_inverse", "unique_values"]


class UniqueAll(NamedTuple):
    """values, the index of each one's first occurrence, the inverse (x's shape), and how often each occurs."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """values and how often each occurs."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """values and, in x's shape, the position of each element among them."""

    values: Tensor
    inverse_indices: Tensor


def isin(x1: Operand, x2: Operand, /, *, invert: bool = False) -> Tensor:
    """Return whether each element of x1 occurs in x2 (not, if `invert`), as booleans of x1's shape.

    Standard: Set Functions, isin.
    """
    x1, x2 = as_tensors("isin", x1=x1, x2=x2)
    return on((x1, x2), "isin", lambda xp, a, b: xp.isin(a, b, invert=invert))


def _at_first(g: Tensor, x: Tensor) -> Tensor:
    """The cotangent of the distinct values, each at the first element that has it."""
    flat = added(g, unique_all(x).indices, 0, x.size)
    return xt.reshape(flat, x.shape)


@differentiable(x=lambda g, x: _at_first(g[0], x))
def unique_all(x: Tensor, /) -> UniqueAll:
    """Return the distinct elements of x with first indices, inverse indices and counts (int64).

    Standard: Set Functions, unique_all.
    """
    return UniqueAll(*on(as_tensor(x, "unique_all"), "unique_all", lambda xp, a: xp.unique_all(a)))


@differentiable(x=lambda g, x: _at_first(g[0], x))
def unique_counts(x: Tensor, /) -> UniqueCounts:
    """Return the distinct elements of x with their counts (int64).

    Standard: Set Functions, unique_counts.
    """
    return UniqueCounts(*on(as_tensor(x, "unique_counts"), "unique_counts", lambda xp, a: xp.unique_counts(a)))


@differentiable(x=lambda g, x: _at_first(g[0], x))
def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """Return the distinct elements of x with the inverse indices (int64) that rebuild x.

    Standard: Set Functions, unique_inverse.
    """
    return UniqueInverse(*on(as_tensor(x, "unique_inverse"), "unique_inverse", lambda xp, a: xp.unique_inverse(a)))


@differentiable(x=lambda g, x: _at_first(g, x))
def unique_values(x: Tensor, /) -> Tensor:
    """Return the distinct elements of x.

    Standard: Set Functions, unique_values.
    """
    return on(as_tensor(x, "unique_values"), "unique_values", lambda xp, a: xp.unique_values(a))

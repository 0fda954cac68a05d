"""Cotangents of parts of an array that basic keys select: each is written where it lies in one array, once all are
known, instead of being added up in arrays of zeros as large as the whole.
"""

from __future__ import annotations

from math import prod
from typing import Any, cast

import numpy as np

from ..base.options import thin_closed
from ..plan.costs import DIRECT_BELOW
from ..tensor.face import CPU_DEVICE, Tensor, small, wrap
from .rules import Like, xt
from .tape import Step

# Types of the items of a key whose places are known.
_PLAIN = frozenset((int, slice, type(None), type(Ellipsis)))


def adds_axes(key: Any) -> bool:
    """Return whether a key selects all elements in their order: `x[:, None]`, not `x[::-1]`."""
    return all(
        item is None or item is Ellipsis or (type(item) is slice and item == slice(None))
        for item in (key if type(key) is tuple else (key,))
    )


def key_of(step: Step) -> tuple[Any, ...] | None:
    """Return the key of a step of `getitem` that selects fewer elements of its parent by plain items, else None."""
    if not step.given:
        return None
    key = step.given["key"]
    key = key if type(key) is tuple else (key,)
    if not all(type(item) in _PLAIN for item in key):
        return None
    slices = [item for item in key if type(item) is slice]
    are_known = all(type(end) in (int, type(None)) for one in slices for end in (one.start, one.stop, one.step))
    return key if are_known and prod(step.shape) < prod(step.parents[0].shape) else None


class Pieces:
    """Cotangents of parts of an array. As long as they lie apart along one axis they are held; others, and those of
    small arrays, are added to the array at once.
    """

    __slots__ = ("_axis", "_held", "_like", "_small", "_taken", "_total")

    def __init__(self, like: Like, total: Tensor | None = None) -> None:
        self._like, self._total = like, total
        self._small: Any = None
        self._held: list[tuple[tuple[Any, ...], Tensor]] = []
        self._axis: int | None = None
        self._taken: Any = None

    def add(self, key: tuple[Any, ...], g: Tensor) -> None:
        """Add the cotangent of the elements that a key selects."""
        total = None if self._total is not None or self._held else self._small_total(g)
        if total is not None:
            with np.errstate(all="ignore"):
                total[key] += small(g)
            return
        if self._total is None and self._small is None and self._is_apart(key):
            self._held.append((key, g))
            return
        whole = self.total()
        whole[key] += g

    def total(self) -> Tensor:
        """Return the sum, in memory that nobody else sees."""
        if self._small is not None:
            self._total, self._small = wrap(self._small, CPU_DEVICE), None
        if self._total is None:
            like, is_whole = self._like, self._taken is not None and bool(self._taken.all())
            make = xt.empty if is_whole else xt.zeros
            self._total = cast(Tensor, make(like.shape, dtype=like.dtype, device=like.device))
            for key, g in self._held:
                self._total[key] = g
            self._held.clear()
        return self._total

    def _small_total(self, g: Tensor) -> Any:
        """Return the sum as NumPy's array, None where a cotangent or the array is too large for that."""
        if thin_closed[0] or small(g) is None:
            return None
        like = self._like
        if self._small is None and prod(like.shape) * like.dtype.itemsize <= DIRECT_BELOW:
            self._small = np.zeros(like.shape, like.dtype)
        return self._small

    def _is_apart(self, key: tuple[Any, ...]) -> bool:
        """Return whether a key restricts the axis that the others do, or none does yet, to places not yet taken."""
        axis, item = _restricted(key, self._like.shape)
        if axis is None or self._axis not in (None, axis):
            return False
        if self._axis is None:
            self._axis, self._taken = axis, np.zeros(self._like.shape[axis], bool)
        if self._taken[item].any():
            return False
        self._taken[item] = True
        return True


def _restricted(key: tuple[Any, ...], shape: tuple[int, ...]) -> tuple[int | None, Any]:
    """Return the only axis of which a key takes some elements, and its item for that; None where there are several."""
    items = [item for item in key if item is not None]
    if Ellipsis in items:
        place = items.index(Ellipsis)
        items[place : place + 1] = [slice(None)] * (len(shape) - len(items) + 1)
    found = [
        (axis, item)
        for axis, (item, length) in enumerate(zip(items, shape, strict=False))
        if type(item) is int or len(range(*item.indices(length))) < length
    ]
    return found[0] if len(found) == 1 else (None, None)

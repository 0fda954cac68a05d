"""Elements and views at places that are computed: the functions that a captured function calls for them. Of views,
later calls have copies; elements at indices machine code can move, too (at_indices.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..base.layout import Layout
from ..devices import Backend
from ..storage.storage import Native

# Stands for a computed place in a key; for a new axis in one where None stands for an array of indices.
ANY, NEW = object(), object()


class AtIndices:
    """What is done with an array at indices. fixed: the items of the key, None for arrays of indices."""

    __slots__ = ("_backend", "fixed")

    def __init__(self, backend: Backend, key: Sequence[Any], arrays: Sequence[int], ndim: int) -> None:
        """key: what it selects by, with anything in the places of `arrays`; ndim: of the array."""
        items: list[Any] = [None if at in arrays else NEW if item is None else item for at, item in enumerate(key)]
        if Ellipsis in items:
            at, others = items.index(Ellipsis), sum([item is not NEW for item in items]) - 1
            whole: list[Any] = [slice(None)] * (ndim - others)
            items[at : at + 1] = whole or [Ellipsis]  # which parts arrays even so
        self._backend, self.fixed = backend, items

    def _key(self, indices: Sequence[Native]) -> tuple[Any, ...]:
        given = iter(indices)
        return tuple([next(given) if item is None else None if item is NEW else item for item in self.fixed])


class Gather(AtIndices):
    """The elements there."""

    __slots__ = ()

    def __call__(self, xp: Any, native: Native, *indices: Native) -> Native:
        return self._backend.index(native, self._key(indices))


class Scatter(AtIndices):
    """Assigns a value to the elements there."""

    __slots__ = ()

    def __call__(self, target: Native, value: Native, *indices: Native) -> None:
        own = self._backend.xp.may_share_memory(target, value)
        self._backend.assign(target, self._key(indices), value.copy() if own else value)


def _computed(key: tuple[Any, ...], places: tuple[Native, ...]) -> tuple[Any, ...]:
    given = iter(places)
    return tuple([int(next(given)) if one is ANY else one for one in key])


def selected(key: tuple[Any, ...], base: Native, *places: Native) -> Native:
    """Return a copy of a view at computed places that lies as it does."""
    view = base[_computed(key, places)]
    layout = Layout(view.shape, view.strides)
    low, high = layout.extent(view.itemsize)
    copy = np.ndarray(view.shape, view.dtype, np.empty(high - low, np.uint8), -low, view.strides)
    copy[...] = view
    return copy


def put_back(key: tuple[Any, ...], base: Native, own: Native, *places: Native) -> None:
    """Assign the copy of a view at computed places to that."""
    base[_computed(key, places)] = own


def renewed(key: tuple[Any, ...], own: Native, base: Native, *places: Native) -> None:
    """Copy a view at computed places anew."""
    own[...] = base[_computed(key, places)]

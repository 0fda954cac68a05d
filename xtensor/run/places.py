"""Elements and views at places that are computed: the functions that a captured function calls for them. Of views,
later calls have copies; elements at indices machine code can move, too (at_indices.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..base.layout import Layout
from ..devices import Backend
from ..storage.blob import TBlob
from ..storage.storage import Native

# Stands for a computed place in a key; for a new axis in one where None stands for an array of indices.
ANY, NEW = object(), object()


class Window:
    """A slice of constant length in a key, from a computed place on: an array, or ANY."""

    __slots__ = ("count", "start")

    def __init__(self, start: Any, count: int) -> None:
        self.start, self.count = start, count

    def __eq__(self, other: object) -> bool:
        return type(other) is Window and (self.start, self.count) == (other.start, other.count)

    def __hash__(self) -> int:
        return hash((self.start, self.count))


class AtIndices:
    """What is done with an array at indices. fixed: the items of the key, None for arrays of indices, windows for those
    that windows begin at.
    """

    __slots__ = ("_backend", "fixed")

    def __init__(self, backend: Backend, key: Sequence[Any], arrays: Sequence[int], ndim: int) -> None:
        """key: what it selects by, with anything in the places of `arrays`; ndim: of the array."""
        items: list[Any] = [
            None if at in arrays else NEW if item is None else without_place(item) for at, item in enumerate(key)
        ]
        if Ellipsis in items:
            at, others = items.index(Ellipsis), sum([item is not NEW for item in items]) - 1
            whole: list[Any] = [slice(None)] * (ndim - others)
            items[at : at + 1] = whole or [Ellipsis]  # which parts arrays even so
        self._backend, self.fixed = backend, items

    def _key(self, indices: Sequence[Native]) -> tuple[Any, ...]:
        given = iter(indices)
        return tuple([None if item is NEW else _placed(item, given) for item in self.fixed])

    def at(self, places: Sequence[Native]) -> tuple[Any, ...]:
        """Return the key of a view, for arrays without axes."""
        return self._key(list(map(int, places)))


def without_place(item: Any) -> Any:
    """Return an item of a key with ANY for the place that is computed."""
    if type(item) is Window:
        return Window(ANY, item.count)
    return ANY if type(item) is TBlob else item


def _placed(item: Any, given: Iterator[Any]) -> Any:
    """Return an item of a key, for None or a window one at the next place that is given."""
    if type(item) is Window:
        start = int(next(given))
        return slice(start, start + item.count)
    return next(given) if item is None else item


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


class Selected(Gather):
    """A copy of a view at computed places that lies as it does."""

    __slots__ = ()

    def __call__(self, base: Native, *places: Native) -> Native:
        view = base[self.at(places)]
        layout = Layout(view.shape, view.strides)
        low, high = layout.extent(view.itemsize)
        copy = np.ndarray(view.shape, view.dtype, np.empty(high - low, np.uint8), -low, view.strides)
        copy[...] = view
        return copy


class PutBack(Scatter):
    """Assigns the copy of a view at computed places to that."""

    __slots__ = ()

    def __call__(self, base: Native, own: Native, *places: Native) -> None:
        base[self.at(places)] = own


def renewed(selected: Selected, own: Native, base: Native, *places: Native) -> None:
    """Copy a view at computed places anew."""
    own[...] = base[selected.at(places)]

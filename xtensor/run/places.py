"""Elements and views at computed places: the functions that a captured function calls for them. Later calls use copies
of such views; elements at indices can also be moved by machine code (at_indices.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..base.layout import Layout
from ..devices import Backend
from ..storage.blob import TBlob
from ..storage.storage import Native

# ANY stands for a computed place in a key; NEW for a new axis, in keys where None stands for an array of indices.
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
    """An operation on an array at indices. fixed: the items of the key, with None for arrays of indices, and a window
    for an array that says where it begins.
    """

    __slots__ = ("_backend", "fixed")

    def __init__(self, backend: Backend, key: Sequence[Any], arrays: Sequence[int], ndim: int) -> None:
        """key: with anything in the places of `arrays`, the arrays of indices; ndim: of the array."""
        items: list[Any] = [
            None if at in arrays else NEW if item is None else without_place(item) for at, item in enumerate(key)
        ]
        if Ellipsis in items:
            at, others = items.index(Ellipsis), sum([item is not NEW for item in items]) - 1
            whole: list[Any] = [slice(None)] * (ndim - others)
            items[at : at + 1] = whole or [Ellipsis]  # even if empty, it separates arrays of indices
        self._backend, self.fixed = backend, items

    def _key(self, indices: Sequence[Native]) -> tuple[Any, ...]:
        given = iter(indices)
        return tuple([None if item is NEW else _placed(item, given) for item in self.fixed])

    def at(self, places: Sequence[Native]) -> tuple[Any, ...]:
        """Return the key of a view, for arrays without axes."""
        return self._key(list(map(int, places)))


def without_place(item: Any) -> Any:
    """Return an item of a key, with ANY in place of a computed place."""
    if type(item) is Window:
        return Window(ANY, item.count)
    return ANY if type(item) is TBlob else item


def _placed(item: Any, given: Iterator[Any]) -> Any:
    """Return an item of a key, with the next of the given places in place of None, or as the start of a window."""
    if type(item) is Window:
        start = int(next(given))
        return slice(start, start + item.count)
    return next(given) if item is None else item


class Gather(AtIndices):
    """Returns the elements at the indices."""

    __slots__ = ()

    def __call__(self, xp: Any, native: Native, *indices: Native) -> Native:
        return self._backend.index(native, self._key(indices))


class Along(Gather):
    """Returns, for each 1-d slice along an axis, the elements at the indices of the matching slice. axis: from the end,
    as operands may be stacks.
    """

    __slots__ = ("axis",)

    def __init__(self, backend: Backend, axis: int) -> None:
        self._backend, self.axis = backend, axis

    def __call__(self, xp: Any, native: Native, *indices: Native) -> Native:
        (places,) = indices
        found: Native = xp.take_along_axis(native, places, axis=self.axis)
        return found


class Scatter(AtIndices):
    """Assigns a value to the elements at the indices."""

    __slots__ = ()

    def __call__(self, target: Native, value: Native, *indices: Native) -> None:
        own = self._backend.xp.may_share_memory(target, value)
        self._backend.assign(target, self._key(indices), value.copy() if own else value)


class Selected(Gather):
    """Returns a copy of a view at computed places, with the view's strides."""

    __slots__ = ()

    def __call__(self, base: Native, *places: Native) -> Native:
        view = base[self.at(places)]
        layout = Layout(view.shape, view.strides)
        low, high = layout.extent(view.itemsize)
        copy = np.ndarray(view.shape, view.dtype, np.empty(high - low, np.uint8), -low, view.strides)
        copy[...] = view
        return copy


class PutBack(Scatter):
    """Assigns the copy of a view at computed places to the view."""

    __slots__ = ()

    def __call__(self, base: Native, own: Native, *places: Native) -> None:
        base[self.at(places)] = own


def renewed(selected: Selected, own: Native, base: Native, *places: Native) -> None:
    """Copy a view at computed places anew."""
    own[...] = base[selected.at(places)]

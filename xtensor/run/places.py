"""Views at computed places, of which later calls of a captured function have copies: the functions that are called for
them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..base.layout import Layout
from ..storage.storage import Native

# Stands for a computed place in a key.
ANY = object()


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

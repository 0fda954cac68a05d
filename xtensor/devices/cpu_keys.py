"""Views of NumPy's arrays, and sums at the elements that a key selects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

# ---- views


def _insert(native: Any, axes: tuple[int, ...]) -> Any:
    key = [None if a in axes else slice(None) for a in range(native.ndim + len(axes))]
    return native[(*key, ...)]  # without the Ellipsis NumPy copies arrays without axes


def _flip(native: Any, axes: tuple[int, ...]) -> Any:
    key = [slice(None, None, -1 if a in axes else None) for a in range(native.ndim)]
    return native[(*key, ...)]  # without the Ellipsis NumPy copies arrays without axes


def diagonal(native: Any, offset: int) -> Any:
    """Return the diagonals of the last two axes as a view that is as writeable as its base."""
    view = native.diagonal(offset, -2, -1)
    view.flags.writeable = native.flags.writeable  # NumPy's is read-only
    return view


# The views that methods of Layout describe, made from arrays of NumPy or any other library.
WAYS: dict[str, Callable[[Any, Any], Any]] = {
    "permute": lambda native, axes: native.transpose(axes),
    "drop": lambda native, axes: native.squeeze(axes),
    "insert": _insert,
    "flip": _flip,
}


# ---- sums


def add_at(native: Any, key: Any, values: Any) -> None:
    """Add values to the elements that a key selects, one after the other where it selects an element several times.

    NumPy adds at places in one axis eight times as fast as at any others.
    """
    shape = native.shape
    flat = type(key) is tuple and len(key) == len(shape) > 1 and native.flags.c_contiguous and native.size
    if not flat or not all(type(one) is np.ndarray and one.dtype.kind in "iu" for one in key):
        np.add.at(native, key, values)
        return
    places = np.zeros((), np.int64)
    for one, length in zip(key, shape, strict=True):
        places = places * length + _from_begin(one, length)
    values = np.broadcast_to(values, places.shape)
    np.add.at(native.reshape(-1), places.reshape(-1), values.reshape(-1))


def _from_begin(places: Any, length: int) -> Any:
    """Return places along an axis, of int64, counted from its begin; raises IndexError for one that is outside."""
    places = places.astype(np.int64, copy=False)
    if places.size:
        low, high = places.min(), places.max()
        if low < -length or high >= length:
            raise IndexError(f"index {high if high >= length else low} is out of bounds for an axis of length {length}")
        if low < 0:
            return np.where(places < 0, places + length, places)
    return places

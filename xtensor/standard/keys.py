"""Keys of `x[key]`: whether they select views, and as NumPy takes them, with native arrays in place of tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..base.errors import expected
from ..devices.cpu import PLAIN
from ..storage.storage import Native
from ..tensor.face import Tensor, from_native
from ..tensor.operands import common_device, foreign_array

_BASIC = (int, slice, type(None), type(Ellipsis), np.integer)
_ITEMS = (*_BASIC, bool, np.bool_)


def is_basic(key: Any) -> bool:
    """Return whether a key selects a view; booleans are masks, not integers."""
    if type(key) in PLAIN:
        return True
    if type(key) is Tensor:
        return False
    if type(key) is tuple:
        for item in key:  # noqa: SIM110 - all() over a generator takes three times as long
            if type(item) not in PLAIN and (type(item) is tuple or not is_basic(item)):
                return False
        return True
    if isinstance(key, _BASIC):
        return not isinstance(key, bool)
    return hasattr(key, "__index__") and not isinstance(key, (Tensor, np.ndarray, np.bool_))


_INTEGERS = frozenset((int,))


def thin_key(key: Any) -> tuple[Any, ...] | None:
    """Return a key of thin faces, arrays, lists of integers and basic items as a key for NumPy; None for others."""
    found = []
    for item in key if type(key) is tuple else (key,):
        kind, native = type(item), item._content if type(item) is Tensor else item
        if type(native) is np.ndarray:
            if native.dtype.kind not in "iub":
                return None
        elif kind not in PLAIN and not (kind is list and item and _INTEGERS.issuperset(map(type, item))):
            return None
        found.append(native)
    return tuple(found)


def native_key_of(x: Tensor, key: Any) -> Any:
    """Return an advanced key with its tensors as native arrays; raises IndexError for items that are no indices."""
    if type(key) is tuple:
        return tuple(native_key_of(x, item) for item in key)
    if isinstance(key, Tensor):
        common_device("index", (x, key))
    elif isinstance(key, _ITEMS):
        return key
    elif (found := key if isinstance(key, (list, tuple, range, np.ndarray)) else foreign_array(key)) is not None:
        array = array_key(found)
        key = from_native(array, x.device, shared=array is key)
    else:
        must = "be an integer, slice, Ellipsis, None, or an array or list of integers or booleans"
        raise IndexError(expected("index", "key", must, type(key).__name__))
    return checked_key(key).native()


def array_key(key: Any) -> Native:
    """Return a nested sequence or an array as an index; an empty sequence has no elements that could be integers."""
    array = np.asarray(key)
    return checked_key(array.astype(np.int64) if array.size == 0 and array.dtype.kind == "f" else array)


def checked_key(key: Any) -> Any:
    """Return an array or tensor if it can be an index; raises IndexError for other dtypes."""
    if key.dtype.kind not in "iub":
        raise IndexError(expected("index", "key", "be an array of integers or booleans", key.dtype))
    return key

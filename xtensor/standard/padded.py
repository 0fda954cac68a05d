"""Padding: the elements around an array, by widths and a mode, and how gradients are folded back."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..autograd.rules import Like, xt
from ..autograd.tape import differentiable
from ..base.layout import Pairs, Shape, overlap
from ..calls.library import on
from ..devices import library_of
from ..storage.storage import watchers
from ..tensor.face import Scalar, Tensor


def _back(g: Tensor, width: Pairs, mode: str, like: Like) -> Tensor:
    return unpadded(g, width, mode, like.shape)


@differentiable(x=_back)
def padded(x: Tensor, width: Pairs, mode: str, value: Scalar) -> Tensor:
    """Return x with elements added before and after it along each axis, by the modes of nn.pad.

    mode: also "symmetric", which mirrors x including its edge. All modes but "zeros" continue for any width.
    """
    is_plain = mode == "zeros" and (not value or x.dtype.kind in "fc")
    if watchers and is_plain and min([0, *[one for pair in width for one in pair]]) == 0:  # as steps that can be fused
        lengths = [low + n + high for n, (low, high) in zip(x.shape, width, strict=True)]
        result: Tensor = xt.full(lengths, value, dtype=x.dtype, device=x.device)
        result[tuple([slice(low, low + n) for n, (low, _) in zip(x.shape, width, strict=True)])] = x
        return result
    return on(x, "pad", lambda xp, a: _pad_native(a, width, mode, value))


@differentiable(g=lambda g, width, mode: padded(g, width, mode, 0))
def unpadded(g: Tensor, width: Pairs, mode: str, shape: Shape) -> Tensor:
    """Return for each element the sum of the cotangents of its copies: the adjoint of padded."""
    return on(g, "pad", lambda xp, a: _unpad_native(a, width, mode, shape))


# NumPy's names of the modes that repeat elements.
_NUMPYS = {"circular": "wrap", "replicate": "edge", "reflect": "reflect", "symmetric": "symmetric"}


def _pad_native(a: Any, width: Pairs, mode: str, value: Any) -> Any:
    if type(a) is np.ndarray and mode != "zeros" and a.size and min(map(min, width), default=-1) >= 0:
        return np.pad(a, width, _NUMPYS[mode])  # type: ignore[call-overload]
    added = tuple((max(low, 0), max(high, 0)) for low, high in width) if mode != "zeros" else width
    shape = tuple(n + low + high for n, (low, high) in zip(a.shape, added, strict=True))
    library = library_of(a)
    blank = not value and not np.signbit(np.real(value))
    result = library.zeros(shape, a.dtype) if blank else library.full(shape, value, a.dtype)
    target, source = _overlap(a.shape, added)
    result[target] = a[source]
    if mode == "zeros":
        return result
    for axis, (low, high) in enumerate(added):
        before, length = (slice(None),) * axis, a.shape[axis]
        for start, stop in ((-low, 0), (length, length + high)):
            repeated = library.asarray(low + sources(length, np.arange(start, stop), mode))
            result[(*before, slice(low + start, low + stop))] = result[(*before, repeated)]
    cut = tuple(slice(max(-low, 0), n - max(-high, 0)) for n, (low, high) in zip(shape, width, strict=True))
    return library.ascontiguousarray(result[cut])


def _overlap(shape: Shape, width: Pairs) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Return the key of the original elements in a padded array, and their key in the original."""
    return overlap(shape, [(-low, n + high) for n, (low, high) in zip(shape, width, strict=True)])


def sources(length: int, places: Any, mode: str) -> Any:
    """Return the positions of the elements that are repeated at some places; both count from the original beginning."""
    if mode == "circular":
        return places % max(length, 1)
    if mode == "replicate":
        return np.clip(places, 0, max(length - 1, 0))
    if mode == "symmetric":
        places = places % max(2 * length, 1)
        return np.minimum(places, 2 * length - 1 - places)
    around = max(2 * (length - 1), 1)
    return length - 1 - np.abs(places % around - (length - 1)) if length > 1 else places * 0


def _unpad_native(a: Any, width: Pairs, mode: str, shape: Shape) -> Any:
    if mode == "zeros":
        result = library_of(a).zeros(shape, a.dtype)
        target, source = _overlap(shape, width)
        result[source] = a[target]
        return result
    for axis in reversed(range(a.ndim)):
        low, high = width[axis]
        if (low, high) != (0, 0):
            places = np.arange(-low, shape[axis] + high)
            a = _folded(a, axis, low, shape[axis], sources(shape[axis], places, mode))
    return a


def _folded(a: Any, axis: int, low: int, length: int, repeated: Any) -> Any:
    """Return an array whose padding along an axis is added back to the elements it repeats, in order of positions."""
    before = (slice(None),) * axis
    result = library_of(a).zeros((*a.shape[:axis], length, *a.shape[axis + 1 :]), a.dtype)
    first, last = max(low, 0), min(low + length, a.shape[axis])
    result[(*before, slice(first - low, last - low))] = a[(*before, slice(first, last))]
    for place in (*range(first), *range(last, a.shape[axis])):
        result[(*before, repeated[place])] += a[(*before, place)]
    return result

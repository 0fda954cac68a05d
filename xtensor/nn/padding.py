"""Padding: what stands around an array, by widths and mode."""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np

from ..autograd.rules import Like
from ..autograd.tape import differentiable
from ..base.dtypes import check_real
from ..base.errors import check_choice, expected
from ..base.layout import Shape, as_axes
from ..calls.library import on
from ..devices import library_of
from ..tensor.face import Scalar, Tensor
from ..tensor.operands import as_tensor
from .windows import Pairs, as_pairs, overlap

__all__ = ["pad"]

Mode = Literal["zeros", "reflect", "replicate", "circular"]
MODES: tuple[Mode, ...] = get_args(Mode)


def pad(
    x: Tensor, /, width: Any, *, mode: Mode = "zeros", value: Scalar = 0, axes: int | tuple[int, ...] | None = None
) -> Tensor:
    """Return x with elements added around it, and with elements taken away where a width is negative.

    width: how many before and after: a number, one per axis, or a pair per axis. axes: which they are for; None: the
    last ones where there are several widths, all for a single number. mode: "zeros" adds `value`; "reflect" mirrors x
    without repeating its edge, "replicate" repeats the edge, "circular" goes on at the other end.

    Raises ValueError for a mode or width that does not fit: "reflect" takes at most length - 1, "circular" at most
    length, "replicate" needs an element, nothing may be left shorter than nothing.
    """
    x = as_tensor(x, "pad")
    check_choice("pad", "mode", mode, MODES)
    several = isinstance(width, (tuple, list))
    if axes is None and several:
        if len(width) > x.ndim:
            raise ValueError(expected("pad", "width", f"name at most {x.ndim} axes", f"{len(width)} widths"))
        named = tuple(range(x.ndim - len(width), x.ndim))
    else:
        named = as_axes(axes, x.ndim, "pad", "axes")
    widths = [(0, 0)] * x.ndim
    for axis, pair in zip(named, as_pairs(width, len(named), "pad", "width"), strict=True):
        widths[axis] = pair
        check_width(x.shape, axis, pair, mode)
    check_real(np.asarray(value).dtype, x.dtype, "pad", "value")
    return _padded(x, tuple(widths), mode, value)


_LEAST = {"zeros": 0, "reflect": 1, "replicate": 1, "circular": 0}


def check_width(shape: Shape, axis: int, pair: tuple[int, int], mode: Mode, function: str = "pad") -> None:
    """Raise ValueError for a width before and after an axis that a mode cannot fill."""
    length, argument = shape[axis], "width" if function == "pad" else "padding"
    most = {"reflect": length - 1, "circular": length}.get(mode)
    if min(pair) < 0 and length + min(pair[0], 0) + min(pair[1], 0) < 0:
        raise ValueError(expected(function, argument, f"leave something of axis {axis} of shape {shape}", pair))
    wrong = most is not None and max(pair) > max(most, 0)
    if wrong or (max(pair) > 0 and length < _LEAST[mode]):
        limit = f"at most {max(most or 0, 0)}"
        raise ValueError(expected(function, argument, f"be {limit} for mode {mode!r} and axis {axis} of {shape}", pair))


def _back(g: Tensor, width: Pairs, mode: Mode, like: Like) -> Tensor:
    return unpadded(g, width, mode, like.shape)


@differentiable(x=_back)
def _padded(x: Tensor, width: Pairs, mode: Mode, value: Scalar) -> Tensor:
    """Pad all axes."""
    return on(x, "pad", lambda xp, a: _pad_native(a, width, mode, value))


@differentiable(g=lambda g, width, mode: _padded(g, width, mode, 0))
def unpadded(g: Tensor, width: Pairs, mode: Mode, shape: Shape) -> Tensor:
    """Return the sums of what came from each element: the adjoint of _padded."""
    return on(g, "pad", lambda xp, a: _unpad_native(a, width, mode, shape))


def _pad_native(a: Any, width: Pairs, mode: Mode, value: Any) -> Any:
    added = tuple((max(low, 0), max(high, 0)) for low, high in width) if mode != "zeros" else width
    shape = tuple(n + low + high for n, (low, high) in zip(a.shape, added, strict=True))
    library = library_of(a)
    result = library.full(shape, value, a.dtype) if value else library.zeros(shape, a.dtype)
    target, source = _overlap(a.shape, added)
    result[target] = a[source]
    if mode == "zeros":
        return result
    for axis, (low, high) in enumerate(added):
        before = (slice(None),) * axis
        sources = library.asarray(low + _sources(a.shape[axis], low, high, mode))
        for edge in (slice(0, low), slice(low + a.shape[axis], None)):
            result[(*before, edge)] = result[(*before, sources[edge])]
    cut = tuple(slice(max(-low, 0), n - max(-high, 0)) for n, (low, high) in zip(shape, width, strict=True))
    return library.ascontiguousarray(result[cut])


def _overlap(shape: Shape, width: Pairs) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Return where a padded array holds what was there before, and what of it that is."""
    return overlap(shape, [(-low, n + high) for n, (low, high) in zip(shape, width, strict=True)])


def _sources(length: int, low: int, high: int, mode: Mode) -> Any:
    """Return the position that each element of a padded axis comes from."""
    places: Any = np.arange(-low, length + high)
    if mode == "circular":
        return places % max(length, 1)
    if mode == "replicate":
        return np.clip(places, 0, max(length - 1, 0))
    around = max(2 * (length - 1), 1)
    return length - 1 - np.abs(places % around - (length - 1)) if length > 1 else places * 0


def _unpad_native(a: Any, width: Pairs, mode: Mode, shape: Shape) -> Any:
    if mode == "zeros":
        result = library_of(a).zeros(shape, a.dtype)
        target, source = _overlap(shape, width)
        result[source] = a[target]
        return result
    for axis in reversed(range(a.ndim)):
        low, high = width[axis]
        if (low, high) != (0, 0):
            a = _folded(a, axis, low, shape[axis], _sources(shape[axis], low, high, mode))
    return a


def _folded(a: Any, axis: int, low: int, length: int, sources: Any) -> Any:
    """Return an axis with what was added around it folded back in, in the order of the positions."""
    before = (slice(None),) * axis
    result = library_of(a).zeros((*a.shape[:axis], length, *a.shape[axis + 1 :]), a.dtype)
    first, last = max(low, 0), min(low + length, a.shape[axis])
    result[(*before, slice(first - low, last - low))] = a[(*before, slice(first, last))]
    for place in (*range(first), *range(last, a.shape[axis])):
        result[(*before, sources[place])] += a[(*before, place)]
    return result

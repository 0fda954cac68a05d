"""Windows on a CUDA device: the kernels of library.cuh that lay them out, convolve, add them up and find the largest.

Each function returns whether it did its work: it does not for NumPy arrays, or if there is no kernel for a dtype.
Arrays may have any layout; those of convolutions have the axes of contraction.py, those of pooling (batch, channels,
*lengths).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from ..base.dtypes import DType
from ..codegen.cuda.library import MOVED, Length, blocks_of, launch
from ..codegen.cuda.math import memory_type
from ..devices import library_of
from .windows import Axes, Axis, kernels, outs, sizes, volume

Array = Any  # NumPy's or CuPy's

# Depthwise weight gradients keep the sums of a window in registers: of at most so many elements.
LARGEST_WINDOW = 49

# Blocks that fill a device, and products of a window that a thread adds up at least.
BLOCKS, PIECE = 1024, 8

_NONE = Axis(1, 1, 1, 1, 1, 0)


def outside(x: Array, count: int, ignored: int | None) -> bool | None:
    """Return whether an integer is outside [0, count) and is not the ignored one, which waits for the device; None if
    there is no kernel for that.
    """
    if library_of(x) is np:
        return None
    cp = library_of(x)
    wrong, x = cp.zeros(1, np.int32), cp.ascontiguousarray(x)
    given = {"T": memory_type(x.dtype), "IGNORED": int(ignored is not None)}
    numbers = [wrong, x, x.size, count, ignored or 0]
    found = launch("classes", x, given, numbers, blocks_of(x.size), reach=x.size)
    return bool(wrong.get()[0]) if found else None


def columns(x: Array, y: Array, axes: Axes, rows: bool) -> bool:
    """Write the windows of x into y: (batch, groups, channels, *window, *positions), or if `rows`
    (batch, groups, *positions, *window, channels).
    """
    if library_of(x) is np:
        return False
    if not y.size:
        return True
    threads = y.size // volume(axes)
    numbers = [x, y, threads, Length(x.shape[1]), Length(x.shape[2]), *_steps(x, 3, axes), *_axes(axes)]
    given = {"T": MOVED[x.itemsize], "LAST": int(rows), **_window(axes)}
    return launch("columns", y, given, numbers, blocks_of(threads), reach=max(_reach(x, y), y.size))


def direct(x: Array, w: Array, y: Array, bias: Array | None, axes: Axes) -> bool:
    """Write a convolution of few channels into y, with one thread per output."""
    if not _are_computed(x, w, y) or not x.size:
        return False
    if not y.size:
        return True
    cp, dtype = library_of(y), y.dtype
    x, w = x.astype(dtype, copy=False), cp.ascontiguousarray(w.astype(dtype, copy=False))
    shift = w if bias is None else cp.ascontiguousarray(bias.astype(dtype, copy=False))
    numbers = [x, w, shift, y, y.size, Length(y.shape[1]), Length(y.shape[2]), x.shape[2]]
    numbers += [*_steps(x, 3, axes), *_steps(y, 3, axes), *_axes(axes)]
    given = {"T": memory_type(dtype), "LAST": int(_are_last(y, 2)), "BIAS": int(bias is not None), **_window(axes)}
    return launch("direct", y, given, numbers, blocks_of(y.size), reach=_reach(x, y), contract=True)


def weights(x: Array, y: Array, w: Array, axes: Axes) -> bool:
    """Write the gradient of a convolution of few channels by its weights into w."""
    if not _are_computed(x, y, w) or volume(axes) > LARGEST_WINDOW:
        return False
    cp, dtype = library_of(y), w.dtype
    x, y = x.astype(dtype, copy=False), y.astype(dtype, copy=False)
    count, filters = y.shape[0] * prod(outs(axes)), prod(w.shape[:3])
    parts = max(min(-(-BLOCKS // filters), -(-count // (256 * PIECE))), 1)
    piece = -(-count // parts)
    found = cp.empty((-(-count // piece), *w.shape), dtype)
    numbers = [x, y, found, count, piece, *map(Length, w.shape[:3])]
    numbers += [*_steps(x, 3, axes), *_steps(y, 3, axes), *_axes(axes)]
    given = {"T": memory_type(dtype), **_window(axes)}
    blocks = found.shape[0] * filters
    if not launch("weights", w, given, numbers, blocks, reach=max(_reach(x, y), count), contract=True):
        return False
    w[...] = found.sum(axis=0, dtype=dtype)
    return True


SUM, LARGEST, PLACE = range(3)


def pool(x: Array, y: Array, axes: Axes, wanted: int) -> bool:
    """Write into y the SUM of each window of x, its LARGEST element, or the PLACE over the spatial axes of the first of
    these, -1 for a window that contains only padding.
    """
    if not _are_computed(x, y):
        return False
    if not y.size:
        return True
    kind, least = memory_type(x.dtype), _least(x.dtype)
    numbers = [x, y, y.size, Length(y.shape[1]), *_steps(x, 2, axes), *_steps(y, 2, axes), *_axes(axes)]
    given = {"T": kind, "S": memory_type(y.dtype), "LAST": int(_are_last(y, 1)), "WANTED": wanted, **_window(axes)}
    words = {"SUM": SUM, "PLACE": PLACE, "xt_least": f"({kind}){least}"}
    return launch("pool", y, {**given, **words}, numbers, blocks_of(y.size), reach=_reach(x, y))


def spread(y: Array, places: Array | None, x: Array, axes: Axes) -> bool:
    """Write into x the sums that its elements get from the windows that contain them, or whose `places` name them."""
    if not _are_computed(y, x):
        return False
    if not x.size:
        return True
    named = y if places is None else places
    numbers = [y, named, x, x.size, Length(x.shape[1]), *map(Length, _three(sizes(axes)))]
    numbers += [*_steps(x, 2, axes), *_steps(y, 2, axes), *_steps(named, 2, axes), *_axes(axes)]
    given = {"T": memory_type(x.dtype), "S": memory_type(named.dtype), "LAST": int(_are_last(x, 1)), **_window(axes)}
    reach = max(_reach(x, y), _reach(named))
    return launch("spread", x, {**given, "PLACED": int(places is not None)}, numbers, blocks_of(x.size), reach=reach)


# ---- what kernels are told


def _are_computed(*arrays: Array) -> bool:
    """Return whether kernels compute with these arrays: real numbers, of one or more bytes, on a device."""
    return library_of(arrays[0]) is not np and all(a.dtype.kind in "fiu" and a.dtype != np.float16 for a in arrays)


def _three(lengths: Sequence[int], one: int = 1) -> list[int]:
    return [one] * (3 - len(lengths)) + list(lengths)


def _axes(axes: Axes) -> list[int]:
    """Return the numbers of three axes as the struct Axis has them."""
    three = [*[_NONE] * (3 - len(axes)), *axes]
    return [n for a in three for n in (a.size, Length(a.stride), a.dilation, a.low, Length(max(a.out, 1)))]


def _window(axes: Axes) -> dict[str, int]:
    return dict(zip(("K0", "K1", "K2"), _three(kernels(axes)), strict=True))


def _steps(x: Array, before: int, axes: Axes) -> list[int]:
    """Return strides in elements: of the axes before the spatial ones, then of three of those."""
    steps = [stride // x.itemsize for stride in x.strides]
    return [*steps[:before], *_three(steps[before:], 0)]


def _are_last(y: Array, channels: int) -> bool:
    """Return whether the channels, the axis of that number, lie nearest to each other."""
    return bool(abs(y.strides[channels]) < abs(y.strides[-1]))


def _reach(*arrays: Array) -> int:
    """Return the largest distance in elements within arrays."""
    far = [sum(abs(s) * n for s, n in zip(a.strides, a.shape, strict=True)) // a.itemsize for a in arrays]
    return max(far)


def _least(dtype: DType) -> str:
    """Return the least number of a dtype as C++ has it."""
    if dtype.kind == "f":
        return "__longlong_as_double(0xfff0000000000000LL)"
    return f"({np.iinfo(dtype).min + 1}LL - 1)" if dtype.kind == "i" else "0"

"""Convolution where arrays are not NumPy's: windows laid out as columns, tile by tile, for the library's products.

On a CUDA device these are cuBLAS's. Axes are those of contraction.py; sums run in one order, whatever the workspace.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from ..base.dtypes import DType
from ..devices import library_of
from .windows import Axes, kernels, outs, overlap, sizes, taps, volume

Array = Any  # a cupy.ndarray


def contract(x: Array, w: Array, y: Array, bias: Array | None, axes: Axes, budget: int) -> None:
    """Write the sums over windows, times weights, and a bias (groups, outputs) into y."""
    library = library_of(x)
    dtype = np.dtype(np.float32) if y.dtype == np.float16 else y.dtype
    weights = w.reshape(*w.shape[:2], prod(w.shape[2:])).astype(dtype, copy=False)
    beside = (1,) * len(axes)
    for images, rows, own in _tiles(x, axes, dtype, budget):
        columns = _columns(x[images], own, dtype)
        found = library.matmul(weights[None], columns).reshape(*columns.shape[:2], w.shape[1], *outs(own))
        if bias is not None:
            found += bias.reshape(*bias.shape, *beside)
        y[images, :, :, rows] = found


def contract_weights(x: Array, y: Array, w: Array, axes: Axes, budget: int) -> None:
    """Write the sums over positions of y times the windows there into w."""
    library = library_of(x)
    dtype = np.dtype(np.float32) if w.dtype == np.float16 else w.dtype
    total = library.zeros((*w.shape[:2], prod(w.shape[2:])), dtype)
    for images, rows, own in _tiles(x, axes, dtype, budget):
        given = y[images, :, :, rows].astype(dtype, copy=False)
        given = given.reshape(*given.shape[:3], prod(outs(own)))
        total += library.matmul(given, _columns(x[images], own, dtype).swapaxes(-1, -2)).sum(axis=0)
    w[...] = total.reshape(w.shape)


def _tiles(x: Array, axes: Axes, dtype: DType, budget: int) -> Iterator[tuple[slice, slice, Axes]]:
    """Yield ranges of images, or of positions along the first axis where one image is too much, and their windows."""
    row = prod(x.shape[1:3]) * volume(axes) * prod(outs(axes[1:])) * dtype.itemsize
    count = max(budget // max(row, 1), 1)
    first = axes[0]
    rows = min(count, first.out)
    images = max(count // first.out, 1)
    for image in range(0, x.shape[0], images):
        for start in range(0, first.out, rows):
            out = min(rows, first.out - start)
            own = (first._replace(out=out, low=first.low - start * first.stride), *axes[1:])
            yield slice(image, image + images), slice(start, start + out), own


def _columns(x: Array, axes: Axes, dtype: DType) -> Array:
    """Return windows as matrices (batch, groups, inner, positions)."""
    found = library_of(x).zeros((*x.shape[:3], *kernels(axes), *outs(axes)), dtype)
    for element, places, sources in taps(axes):
        found[(slice(None),) * 3 + (*element, *places)] = x[(..., *sources)]
    return found.reshape(*x.shape[:2], x.shape[2] * volume(axes), prod(outs(axes)))


def padded(x: Array, axes: Axes, reach: list[tuple[int, int]], fill: Any) -> Array:
    """Return what windows reach of x, with `fill` where they go beyond it."""
    found = library_of(x).full((*x.shape[:3], *(stop - start for start, stop in reach)), fill, x.dtype)
    target, source = overlap(sizes(axes), reach)
    found[(..., *target)] = x[(..., *source)]
    return found

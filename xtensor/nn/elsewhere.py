"""Convolution on other devices than the CPU: windows laid out as columns, in steps that the workspace allows, for one
product of the library's each.

On a CUDA device these are cuBLAS's, and the columns a kernel's; few channels are convolved by kernels alone. Axes are
those of contraction.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from ..base.dtypes import DType
from ..base.layout import overlap
from ..devices import library_of
from . import kernels as own_kernels
from .windows import Axes, kernels, outs, sizes, taps, volume

Array = Any  # a cupy.ndarray


def contract(x: Array, w: Array, y: Array, bias: Array | None, axes: Axes, budget: int) -> None:
    """Write the sums over windows times weights, plus a bias (groups, outputs), into y."""
    library = library_of(x)
    dtype = np.dtype(np.float32) if y.dtype == np.float16 else y.dtype
    rows = _in_rows(y)
    weights = _as_matrices(w.astype(dtype, copy=False), rows)
    beside = (1,) * len(axes)
    for images, part, own in _tiles(x, axes, y.shape[2], dtype, budget):
        target = y[images, :, :, part]
        columns = _columns(x[images].astype(dtype, copy=False), own, rows)
        operands = (columns, weights) if rows else (weights, columns)
        into = _seen_as_matrices(target, rows) if target.dtype == dtype else None
        if into is None:
            shape = (*target.shape[:2], *outs(own), target.shape[2]) if rows else target.shape
            found = _product(*operands).reshape(shape)
            target[...] = library.moveaxis(found, -1, 2) if rows else found
        else:
            _product(*operands, into)
        if bias is not None:
            target += bias.reshape(*bias.shape, *beside)


def contract_weights(x: Array, y: Array, w: Array, axes: Axes, budget: int) -> None:
    """Write the sums over positions of y times the windows there into w."""
    if x.shape[2] == 1 and own_kernels.weights(x, y, w, axes):
        return
    library = library_of(x)
    dtype = np.dtype(np.float32) if w.dtype == np.float16 else w.dtype
    rows = _in_rows(y)
    total = library.zeros(
        (w.shape[0], *((w.shape[1], prod(w.shape[2:])) if rows else (prod(w.shape[2:]), w.shape[1]))), dtype
    )
    for images, part, own in _tiles(x, axes, y.shape[2], dtype, budget):
        given = y[images, :, :, part].astype(dtype, copy=False)
        columns = _columns(x[images].astype(dtype, copy=False), own, rows)
        if rows:
            given = library.moveaxis(given, 2, -1).reshape(*columns.shape[:3], w.shape[1])
            found = _product(given.swapaxes(-1, -2), columns)
        else:
            given = given.reshape(*given.shape[:3], prod(outs(own)))
            found = _product(columns, given.swapaxes(-1, -2))
        total += found.sum(axis=0)
    if rows:
        w[...] = library.moveaxis(total.reshape(*w.shape[:2], *w.shape[3:], w.shape[2]), -1, 2)
    else:
        w[...] = total.swapaxes(1, 2).reshape(w.shape)


def _product(a: Array, b: Array, out: Array | None = None) -> Array:
    """Return products of matrices (batch, groups, rows, columns), weights without a batch; or write them to `out`.

    One group is no axis: CuPy copies what is repeated along the first of two.
    """
    library = library_of(a)
    a, b = (x[None] if x.ndim == 3 else x for x in (a, b))
    if a.shape[1] > 1 or b.shape[1] > 1:
        return library.matmul(a, b, out=out)
    return library.matmul(a[:, 0], b[:, 0], out=None if out is None else out[:, 0])[:, None]


def pointwise(x: Array, w: Array, y: Array, axes: Axes, wanted: int) -> bool:
    """Write one of inputs (batch, channels, *lengths), weights (outputs, channels, *window) and outputs from the two
    others, as products of matrices: where windows are one element each and all lies in C order. Return whether it did.

    wanted: its place among them.
    """
    if any(axis != (axis.size, axis.size, 1, 1, axis.dilation, 0) for axis in axes) or x.shape[1] != w.shape[1]:
        return False
    packed = all(a.flags.c_contiguous for a in (x, w, y))
    if not packed or x.dtype != w.dtype or x.dtype != y.dtype or x.dtype.kind != "f" or x.dtype.itemsize < 4:
        return False
    library, weights = library_of(x), w.reshape(w.shape[:2])
    inputs, outputs = (a.reshape(*a.shape[:2], -1) for a in (x, y))
    if wanted == 0:
        library.matmul(weights.T[None], outputs, out=inputs)
    elif wanted == 1:
        weights[...] = library.matmul(outputs, inputs.swapaxes(1, 2)).sum(axis=0)
    else:
        library.matmul(weights[None], inputs, out=outputs)
    return True


def direct(x: Array, w: Array, y: Array, bias: Array | None, axes: Axes) -> bool:
    """Write what `contract` does by a kernel that needs no scratch; return whether there is such a kernel."""
    return own_kernels.direct(x, w, y, bias, axes)


def wait(y: Array) -> None:
    """Wait for pending work on an array's device, unless that is the CPU."""
    library = library_of(y)
    if library is not np:
        library.cuda.get_current_stream().synchronize()


def _in_rows(y: Array) -> bool:
    """Return whether a window is a row of its matrix: where all channels of y lie together and next to each other."""
    return bool(y.shape[1] == 1 and abs(y.strides[2]) < abs(y.strides[-1]))


def _as_matrices(w: Array, rows: bool) -> Array:
    """Return weights as matrices (groups, outputs, inner), or (groups, inner, outputs) with channels fastest."""
    if not rows:
        return w.reshape(*w.shape[:2], prod(w.shape[2:]))
    library = library_of(w)
    return library.moveaxis(w, (1, 2), (-1, -2)).reshape(w.shape[0], prod(w.shape[2:]), w.shape[1])


def _seen_as_matrices(y: Array, rows: bool) -> Array | None:
    """Return a part of y as matrices where it lies, None where a product cannot be written there."""
    y = library_of(y).moveaxis(y, 2, -1) if rows else y
    if not y.flags.c_contiguous:
        return None
    return y.reshape(1, 1, -1, y.shape[-1]) if rows else y.reshape(*y.shape[:3], -1)


def _tiles(x: Array, axes: Axes, outputs: int, dtype: DType, budget: int) -> Iterator[tuple[slice, slice, Axes]]:
    """Yield ranges of images, or of positions along the first axis where one image is too much, and their windows.

    Beside columns there may be a copy of the outputs.
    """
    row = x.shape[1] * (x.shape[2] * volume(axes) + outputs) * prod(outs(axes[1:])) * dtype.itemsize
    count = max(budget // max(row, 1), 1)
    first = axes[0]
    rows = min(count, first.out)
    images = max(count // first.out, 1)
    for image in range(0, x.shape[0], images):
        for start in range(0, first.out, rows):
            out = min(rows, first.out - start)
            own = (first._replace(out=out, low=first.low - start * first.stride), *axes[1:])
            yield slice(image, image + images), slice(start, start + out), own


def _columns(x: Array, axes: Axes, rows: bool) -> Array:
    """Return windows as matrices (batch, groups, inner, positions), or as rows (1, 1, positions of all images, inner)
    with channels fastest: x itself where windows are its elements and it lies so.
    """
    library = library_of(x)
    positions, inner = prod(outs(axes)), x.shape[2] * volume(axes)
    shape = (1, 1, x.shape[0] * positions, inner) if rows else (*x.shape[:2], inner, positions)
    if all(axis == (axis.size, axis.size, 1, 1, axis.dilation, 0) for axis in axes):
        seen = library.moveaxis(x, 2, -1) if rows else x
        if seen.flags.c_contiguous:
            return seen.reshape(shape)
    laid = (*outs(axes), *kernels(axes), x.shape[2]) if rows else (x.shape[2], *kernels(axes), *outs(axes))
    found = library.empty((*x.shape[:2], *laid), x.dtype)
    if not own_kernels.columns(x, found, axes, rows):
        found[...] = 0
        target = library.moveaxis(found, -1, 2) if rows else found
        for element, places, sources in taps(axes):
            at = (*places, *element) if rows else (*element, *places)
            target[(slice(None),) * 3 + at] = x[(..., *sources)]
    return found.reshape(shape)


def padded(x: Array, axes: Axes, reach: list[tuple[int, int]], fill: Any) -> Array:
    """Return the part of x that windows reach, with `fill` where they extend beyond it."""
    found = library_of(x).full((*x.shape[:3], *(stop - start for start, stop in reach)), fill, x.dtype)
    target, source = overlap(sizes(axes), reach)
    found[(..., *target)] = x[(..., *source)]
    return found

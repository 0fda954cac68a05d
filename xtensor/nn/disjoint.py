"""Windows that share no position, where channels come first: elements of windows are channels of a copy of the array,
which machine code makes, or writes the array from. Convolutions of the copy have windows of single elements.
"""

from __future__ import annotations

from contextlib import suppress
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ..base.layout import c_strides
from ..codegen.cpu.sweeping import OUTSIDE
from ..run.launches import Sheet, View, behind
from ..run.native import Launch, Place, Word
from .contraction import Array
from .panels import gathered
from .windows import Axes, Axis, outs, volume


class Disjoint(NamedTuple):
    """An array (images, groups, channels, *lengths) under windows. packed: stands for the copy (images, groups,
    elements of the window of each channel, *outputs), and lies as it does; it is never read or written.
    """

    whole: View
    windows: Axes
    packed: Array

    @property
    def axes(self) -> Axes:
        """The axes of the convolution of the copy."""
        return tuple([Axis(n, n, 1, 1, 1, 0) for n in self.packed.shape[3:]])

    @property
    def is_covered(self) -> bool:
        """Whether each position is in a window."""
        return all((_places(axis, 1, 1) != OUTSIDE).all() for axis in self.windows)

    def copied(self, to: Place, sheet: Sheet) -> Launch:
        """Return the launch that makes the copy, for windows of single elements inside the array."""
        steps = self.whole.steps[1:]
        along = [np.arange(n) * step for n, step in zip(self.whole.shape[1:3], steps[:2], strict=True)]
        for axis, step in zip(self.windows, steps[2:], strict=True):
            along.append((np.arange(axis.out) * axis.stride - axis.low) * step)
        return gathered(self._images(to), self.packed.dtype, _all(along[:-1]), along[-1], len(along[-1]), sheet)

    def spread(self, given: Place, sheet: Sheet) -> Launch:
        """Return the launch that writes the array, whose images are contiguous, from the copy: zeros where no window
        is.
        """
        lengths, window = outs(self.windows), [axis.kernel for axis in self.windows]
        one, each = prod(lengths), prod(lengths) * volume(self.windows)
        channels = self.whole.shape[2]
        along = [np.arange(self.whole.shape[1]) * channels * each, np.arange(channels) * each]
        for n, axis in enumerate(self.windows, 1):
            along.append(_places(axis, one * prod(window[n:]), prod(lengths[n:])))
        places = [(place, whole) for whole, place in self._images(given)]
        return gathered(places, self.packed.dtype, _all(along[:-1]), along[-1], len(along[-1]), sheet)

    def _images(self, packed: Place) -> list[tuple[Word, Word]]:
        """Return where each image begins, in the array and in the copy."""
        one = self.packed[0].nbytes
        return [(self.whole.place(n), behind(packed, n * one)) for n in range(len(self.packed))]


def disjoint(a: Array, axes: Axes, operand: int) -> Disjoint | None:
    """Return an array whose channels come first, as windows see it that share no position; None for others.

    operand: the one that the array is of launches.
    """
    apart = all(axis.dilation == 1 and axis.kernel <= axis.stride for axis in axes if axis.out > 1 or axis.kernel > 1)
    if not apart or not a.size or not prod(outs(axes)) or a.strides[-1] != a.itemsize or a.strides[2] == a.itemsize:
        return None
    shape = (*a.shape[:2], a.shape[2] * volume(axes), *outs(axes))
    packed = as_strided(np.zeros(1, a.dtype), shape, c_strides(shape, a.itemsize))  # without memory of that size
    return Disjoint(View(a, operand, a), axes, packed)


def patch_rows(w: Array) -> Array | None:
    """Return weights (groups, channels, outputs, *window), as for inputs, as a view of those of the product that makes
    the copy: elements of the window are channels. None where they do not lie so.
    """
    elements, rank = w.transpose(0, 1, *range(3, w.ndim), 2), w.ndim - 3
    with suppress(ValueError):
        return elements.reshape(len(w), prod(elements.shape[1:-1]), w.shape[2], *[1] * rank, copy=False)
    return None


def are_single(axes: Axes) -> bool:
    """Return whether windows are single elements by strides, all inside."""
    inside = all(axis.inside(0)[0] == slice(0, axis.out) for axis in axes)
    return inside and volume(axes) == 1 and any(axis.stride > 1 for axis in axes)


def _places(axis: Axis, element: int, output: int) -> Array:
    """Return, for each position, the offset of the element of the window that it is, OUTSIDE where it is in no window.

    element, output: steps from one element, and from one window, to the next.
    """
    found, inside = np.divmod(np.arange(axis.size) + axis.low, axis.stride)
    is_there = (inside < axis.kernel) & (found >= 0) & (found < axis.out)
    return np.where(is_there, inside * element + found * output, OUTSIDE)


def _all(along: list[Array]) -> Array:
    """Return the offsets of all combinations of positions along axes, OUTSIDE where one of these is."""
    found = np.zeros(1, np.int64)
    for own in along:
        is_there = np.logical_and.outer(found != OUTSIDE, own != OUTSIDE)
        found = np.where(is_there, np.add.outer(found, own), OUTSIDE).ravel()
    return found

"""Windows of single elements by strides, where channels come first: the positions that windows have lie side by side in
a copy, which machine code makes, and over which kernels go in long rows.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import numpy as np

from ..codegen.cpu.sweeping import OUTSIDE
from ..run.launches import Sheet, View, behind
from ..run.native import Launch, Place, Word
from .contraction import Array
from .panels import gathered
from .windows import Axes, Axis, Places, outs


class Thinned(NamedTuple):
    """An array (images, groups, channels, *lengths), and which of its positions windows have. packed: an unset array
    that lies as the copy of these does.
    """

    whole: View
    sources: Places
    packed: Array

    @property
    def axes(self) -> Axes:
        """The axes of the convolution of the copy."""
        return tuple([Axis(n, n, 1, 1, 1, 0) for n in self.packed.shape[3:]])

    def copied(self, to: Place, sheet: Sheet) -> Launch:
        """Return the launch that makes the copy."""
        lengths, steps = self.whole.shape[1:], self.whole.steps[1:]
        along = [np.arange(n) * step for n, step in zip(lengths, steps, strict=True)]
        along[2:] = [one[own] for one, own in zip(along[2:], self.sources, strict=True)]
        return gathered(self._images(to), self.packed.dtype, _all(along[:-1]), along[-1], len(along[-1]), sheet)

    def spread(self, given: Place, sheet: Sheet) -> Launch:
        """Return the launch that writes the array, which is contiguous, from the copy, with zeros elsewhere."""
        lengths = self.packed.shape[1:]
        along = [np.arange(n) * prod(lengths[axis + 1 :]) for axis, n in enumerate(lengths)]
        for axis, own in enumerate(self.sources, 2):
            whole = np.full(self.whole.shape[1 + axis], OUTSIDE)
            whole[own] = along[axis]
            along[axis] = whole
        places = [(place, whole) for whole, place in self._images(given)]
        return gathered(places, self.packed.dtype, _all(along[:-1]), along[-1], len(along[-1]), sheet)

    def _images(self, packed: Place) -> list[tuple[Word, Word]]:
        """Return where each image begins, in the array and in the copy."""
        one = self.packed[0].nbytes
        return [(self.whole.place(n), behind(packed, n * one)) for n in range(len(self.packed))]


def _all(along: list[Array]) -> Array:
    """Return the offsets of all combinations of positions along axes, OUTSIDE where one of these is."""
    found = np.zeros(1, np.int64)
    for own in along:
        is_there = np.logical_and.outer(found != OUTSIDE, own != OUTSIDE)
        found = np.where(is_there, np.add.outer(found, own), OUTSIDE).ravel()
    return found


def thinned(a: Array, axes: Axes, operand: int) -> Thinned | None:
    """Return an array as windows see it, None where these are not single elements by strides, or channels not first.

    operand: the one that the array is of launches.
    """
    single = all(axis.kernel == 1 for axis in axes) and any(axis.stride > 1 for axis in axes)
    if not single or not a.size or a.strides[-1] != a.itemsize or a.strides[2] == a.itemsize:
        return None
    inside = [axis.inside(0) for axis in axes]
    if any(one != slice(0, axis.out) for (one, _), axis in zip(inside, axes, strict=True)):
        return None
    packed = np.empty((*a.shape[:3], *outs(axes)), a.dtype)
    return Thinned(View(a, operand, a), tuple([sources for _, sources in inside]), packed)

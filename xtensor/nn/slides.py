"""Convolution as products with windows that are nowhere laid out: each element of all windows is the input, shifted.

A tile of the input is copied once, with zeros around it, so that its rows follow each other; then the j-th output reads
`offset[k] + j` for the k-th element of its window, and outputs at the ends of rows are left out afterwards. With a
stride, positions of one residue lie together. What needs no zeros is read where it lies.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ..base.layout import Shape
from .contraction import Array, Scratch, Sizes, Tile, Tiles, rounded, store
from .product import multiply, product_for, worth_compiling
from .windows import Axes, Axis

# A tile of so many bytes leaves room in the cache of a core for the weights.
SLIDE_BYTES = 1 << 20

# Of groups of one channel and so many outputs all else is slower; other work is laid out if less of it is wanted.
THIN_OUTPUTS, LEAST_SHARE = 4, 0.7


class Copy(NamedTuple):
    """What of the input goes where: from which number of a plane, to which of its places."""

    begin: int
    places: tuple[slice, ...]
    source: tuple[slice, ...]


class Plane(NamedTuple):
    """How one channel of a tile lies: its lengths and strides, how long it is, and the offsets of a window's elements.

    padded: whether there are zeros in it. span: from the first output to behind the last.
    """

    lengths: Shape
    strides: Shape
    size: int
    offsets: Array
    copies: list[Copy]
    padded: bool
    span: int


def _phases(axis: Axis, part: slice) -> tuple[dict[int, tuple[slice, slice]], int, int]:
    """Return where each residue goes and comes from, how far windows reach, and how many zeros rows can share."""
    longest = (axis.kernel - 1) * axis.dilation // axis.stride
    length = part.stop - part.start + longest
    found, shared = {}, longest
    for residue in sorted({k * axis.dilation % axis.stride for k in range(axis.kernel)}):
        first = part.start * axis.stride - axis.low + residue
        head = min(max(-(first // axis.stride), 0), length)
        last = max(min((axis.size - 1 - first) // axis.stride + 1, length), head)
        start = first + head * axis.stride
        stop = max(start + (last - head - 1) * axis.stride + 1, start)
        found[residue] = slice(head, last), slice(start, stop, axis.stride)
        shared = min(shared, head, length - last)
    return found, longest, shared


@lru_cache(256)
def plane_of(axes: Axes, parts: tuple[tuple[int, int], ...]) -> Plane:
    """Return how the windows of a box lie; axes: the batch's and the spatial ones."""
    phases = [_phases(axis, slice(*part)) for axis, part in zip(axes, parts, strict=True)]
    counts = [stop - start for start, stop in parts]
    shared = [0, *(least for _, _, least in phases[1:])]
    lengths = [n + more - own for n, (_, more, _), own in zip(counts, phases, shared, strict=True)]
    strides = [prod(lengths[place + 1 :]) for place in range(len(axes))]
    slack = sum(own * step for own, step in zip(shared, strides, strict=True))
    one = prod(lengths) + slack
    begins = {residues: n * one for n, residues in enumerate(product(*(found for found, _, _ in phases)))}
    copies, offsets = [], []
    for residues, begin in begins.items():
        places, source = zip(*(found[r] for r, (found, _, _) in zip(residues, phases, strict=True)), strict=True)
        copies.append(Copy(begin, places, source))
    for element in product(*(range(axis.kernel) for axis in axes)):
        ways = [divmod(k * axis.dilation, axis.stride) for k, axis in zip(element, axes, strict=True)]
        along = sum(q * step for (q, _), step in zip(ways, strides, strict=True))
        offsets.append(begins[tuple(r for _, r in ways)] + along)
    padded = slack > 0 or any(p != slice(0, n) for c in copies for p, n in zip(c.places, lengths, strict=True))
    span = sum((n - 1) * step for n, step in zip(counts, strides, strict=True)) + 1
    return Plane(tuple(lengths), tuple(strides), one * len(begins), np.array(offsets), copies, padded, span)


class Slides(Tiles):
    """One contraction, cut into tiles of the input; rows of y need not lie in any way."""

    @property
    def _each_position(self) -> tuple[int, int]:
        phases = prod(min(axis.stride, axis.kernel) for axis in self.axes)
        return (self.x.shape[2] * phases + self.y.shape[2]) * self.dtype.itemsize, SLIDE_BYTES

    def _bytes(self, sizes: Sizes) -> int:
        """Return the most scratch that a tile takes: padded input, sums and offsets."""
        plane = plane_of(self._axes, tuple((0, n) for n in (sizes.batch, *sizes.box)))
        counts = sizes.groups * self.x.shape[2] * plane.size, sizes.groups * self.y.shape[2] * plane.span
        return sum(rounded(count * self.dtype.itemsize) for count in counts) + 8 * self.inner

    @property
    def _axes(self) -> Axes:
        images = self.x.shape[0]
        return (Axis(images, images, 1, 1, 1, 0), *self.axes)

    @property
    def share(self) -> float:
        """The share of what is computed that is wanted."""
        plane = plane_of(self._axes, tuple((0, n) for n in (self.sizes.batch, *self.sizes.box)))
        return self.sizes.positions / (-(-plane.span // 32) * 32)

    def write(self, weights: Array, bias: Array | None) -> None:
        """Write the sums; weights: (groups, outputs, inner), the channels slowest."""
        code = product_for(self.dtype, self.y.shape[2])

        def work(scratch: Scratch, left: Iterator[Tile]) -> None:
            before = None
            for tile in left:
                scratch.clear()
                parts = tuple((part.start, part.stop) for part in (tile.batch, *tile.box))
                plane = plane_of(self._axes, parts)
                given, channel, before = self._given(tile, plane, scratch, before)
                offsets = np.add.outer(np.arange(self.x.shape[2]) * channel, plane.offsets).ravel()
                part = np.moveaxis(self.y[(tile.batch, tile.groups, slice(None), *tile.box)], 0, 2)
                steps = _times(plane.strides, self.dtype.itemsize)
                there = part.dtype == self.dtype and _lies_in(part, steps)
                sums = part if there else scratch.array((*part.shape[:2], plane.span), self.dtype)
                own = None if bias is None else bias[tile.groups]
                multiply(code, weights[tile.groups], given, sums, plane.span, offsets=offsets, bias=own)
                if not there:
                    store(part, as_strided(sums, part.shape, (*sums.strides[:2], *steps)))

        self.run(work, list(self), self.workers)

    def _given(self, tile: Tile, plane: Plane, scratch: Scratch, before: Any) -> tuple[Array, int, Any]:
        """Return the input of a tile, the numbers from one channel to the next, and how the scratch lies now.

        before: how it lay; zeros stay where they are from one tile to the next.
        """
        x = np.moveaxis(self.x[:, tile.groups], 0, 2)
        item, size = self.dtype.itemsize, plane.size
        steps = _times(plane.strides, item)
        if not plane.padded and len(plane.copies) == 1 and x.dtype == self.dtype:
            (copy,) = plane.copies
            seen = x[(..., *copy.source)]
            if _lies_in(seen, steps):
                return seen, seen.strides[1] // item, before
        padded = scratch.array((*x.shape[:2], size), self.dtype)
        now = (padded.shape, plane.lengths, [copy.places for copy in plane.copies])
        if before != now:
            padded.fill(0)
        shape, strides = (*x.shape[:2], *plane.lengths), (*padded.strides[:2], *steps)
        for copy in plane.copies:
            target: Any = as_strided(padded[..., copy.begin :], shape, strides)
            np.copyto(target[(..., *copy.places)], x[(..., *copy.source)], casting="unsafe")
        return padded, size, now


def slide(function: str, x: Array, w: Array, y: Array, bias: Array | None, axes: Axes, budget: int) -> bool:
    """Write what `contract` writes, if that is worth compiling and little is computed in vain; return whether."""
    if not y.size or not w.size or y.dtype.kind != "f" or not worth_compiling(y, y.dtype, y.size * w[0, 0].size):
        return False
    thin = x.shape[2] == 1 and w.shape[1] <= THIN_OUTPUTS
    if not thin and abs(y.strides[2]) < abs(y.strides[-1]):
        return False
    weights = np.ascontiguousarray(w.reshape(*w.shape[:2], -1), y.dtype)
    fixed = 0 if np.may_share_memory(weights, w) else weights.nbytes
    slides = Slides(function, x, y, axes, y.dtype, budget, fixed)
    if not thin and slides.share < LEAST_SHARE:
        return False
    slides.write(weights, bias)
    return True


def _lies_in(array: Array, steps: Shape) -> bool:
    """Return whether the axes of an array after its first two go in these steps, as far as they are longer than 1."""
    return all(n == 1 or own == step for n, own, step in zip(array.shape[2:], array.strides[2:], steps, strict=True))


def _times(steps: Shape, item: int) -> Shape:
    return tuple(step * item for step in steps)

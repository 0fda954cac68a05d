"""Where windows lie in tiles of the input, whose elements the contraction kernel packs from there.

Where channels come first, a tile of the input is copied once, with zeros around it: windows begin at places of it, and
each element of the window lies at an offset from there. With a stride, positions of one residue lie together. What
needs no zeros is read where it lies.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ..base.layout import Shape
from ..codegen.cpu.compile import Code
from ..codegen.cpu.gemm import Form
from ..run.contractions import Columns, Product, columns_of
from .contraction import Array, Scratch, Sizes, Tile, Tiles, readable
from .panels import offsets
from .windows import Axes, Axis, volume

# A tile of so many bytes leaves room in the cache of a core for the weights; fewer positions waste parts of registers.
TILE_BYTES, TILE_POSITIONS = 1 << 22, 800


class Copy(NamedTuple):
    """What of the input goes where: from which number of a plane, to which of its places."""

    begin: int
    places: tuple[slice, ...]
    source: tuple[slice, ...]


class Plane(NamedTuple):
    """How one channel of a tile lies: its lengths and strides, how long it is, and the offsets of a window's elements.

    padded: whether there are zeros in it.
    """

    lengths: Shape
    strides: Shape
    size: int
    offsets: Array
    copies: list[Copy]
    padded: bool


class Given(NamedTuple):
    """The input of a tile: (groups, channels, any), from one channel to the next, and from one output to the next."""

    groups: Array
    channel: int
    strides: Shape


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
    return Plane(tuple(lengths), tuple(strides), one * len(begins), np.array(offsets), copies, padded)


class Implicit(Tiles):
    """Tiles that the contraction kernel reads."""

    codes: dict[Form, Code]

    @property
    def _tile_bytes(self) -> int:
        """Bytes of a tile that is large enough: windows of one element are not copied."""
        return TILE_BYTES if volume(self.axes) > 1 else 4 * TILE_BYTES

    def _padded_size(self, sizes: Sizes) -> int:
        """Return the numbers in the padded input of a group."""
        raise NotImplementedError

    def prepare(self, products: list[Product]) -> None:
        """Have the code of products at hand before threads call it."""
        self.codes = {one.form: one.code for one in products}


class ChannelsFirst(Implicit):
    """Tiles of an input whose channels come first."""

    @property
    def _each_position(self) -> tuple[int, int]:
        phases = prod(min(axis.stride, axis.kernel) for axis in self.axes)
        return (self.x.shape[2] * phases + self.y.shape[2]) * self.dtype.itemsize, self._tile_bytes

    @property
    def _fewest(self) -> int:
        return TILE_POSITIONS

    def _padded_size(self, sizes: Sizes) -> int:
        plane = plane_of(self._axes, tuple((0, n) for n in (sizes.batch, *sizes.box)))
        return int(self.x.shape[2] * plane.size)

    @property
    def _axes(self) -> Axes:
        images = self.x.shape[0]
        return (Axis(images, images, 1, 1, 1, 0), *self.axes)

    def _given(self, tile: Tile, plane: Plane, scratch: Scratch, channels: slice) -> Given:
        """Return some channels of the input of a tile."""
        x = np.moveaxis(self.x[:, tile.groups, channels], 0, 2)
        item, size = self.dtype.itemsize, plane.size
        steps = _times(plane.strides, item)
        if not plane.padded and len(plane.copies) == 1 and readable(x, self.dtype):
            (copy,) = plane.copies
            seen = x[(..., *copy.source)]
            alone = volume(self.axes) == 1 and seen.strides[-1] == item
            if alone or _lies_in(seen, steps):
                own = tuple(step // item for step in seen.strides)
                return Given(seen, own[1], own[2:] if alone else plane.strides)
        padded = scratch.array((*x.shape[:2], size), self.dtype)
        padded.fill(0)
        shape, strides = (*x.shape[:2], *plane.lengths), (*padded.strides[:2], *steps)
        for copy in plane.copies:
            target: Any = as_strided(padded[..., copy.begin :], shape, strides)
            np.copyto(target[(..., *copy.places)], x[(..., *copy.source)], casting="unsafe")
        return Given(padded, size, plane.strides)


@lru_cache(256)
def _columns(counts: Shape, sources: Shape, targets: Shape, form: Form) -> Columns:
    return columns_of(offsets(counts, sources), offsets(counts, targets), form)


@lru_cache(256)
def _inner(axes: Axes, parts: tuple[tuple[int, int], ...], channels: int, step: int) -> Array:
    """Return the offsets of the elements of the windows of a box, the channels slowest."""
    return np.add.outer(np.arange(channels) * step, plane_of(axes, parts).offsets).ravel()


def _lies_in(array: Array, steps: Shape) -> bool:
    """Return whether the axes of an array after its first two go in these steps, as far as they are longer than 1."""
    return all(n == 1 or own == step for n, own, step in zip(array.shape[2:], array.strides[2:], steps, strict=True))


def _times(steps: Shape, item: int) -> Shape:
    return tuple(step * item for step in steps)

"""Winograd's convolution of 3x3 windows with stride 1: tiles of outputs by fewer multiplications.

codegen/cpu/winograd.py has the algorithm; here is how work is cut into chunks of tiles that stay in the cache of a core,
and when it is taken. Every output is the same sums in the same order, wherever chunks are cut.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from itertools import product
from math import ceil
from typing import Any, NamedTuple

import numpy as np

from ..base import threads
from ..base.dtypes import DType
from ..codegen.cpu.gemm import Form, form_of
from ..codegen.cpu.winograd import CHUNK, KERNEL_WORDS, Tiled, weights_kernel, winograd_kernel
from ..run.contractions import address, steps, straight
from ..run.native import run_calls
from .contraction import Array, Scratch, rounded
from .windows import Axes, kernels

# Bytes of transformed inputs and products of a chunk.
CHUNK_BYTES = 1 << 20


class Sizes(NamedTuple):
    """What a convolution is cut into: so many images and rows of tiles a chunk, at most."""

    images: int
    rows: int


class Lengths(NamedTuple):
    """What chunks depend on: the numbers of images and groups, the lengths of input and output, and what is left out
    before the input."""

    images: int
    groups: int
    height: int
    width: int
    out_height: int
    out_width: int


class Winograd:
    """One convolution: x (batch, groups, channels, height, width), y alike, w (groups, outputs, channels, 3, 3)."""

    def __init__(self, x: Array, w: Array, y: Array, axes: Axes, m: int, budget: int) -> None:
        self.x, self.w, self.y, self.axes, self.m = x, w, y, axes, m
        self.dtype: DType = y.dtype
        self.columns, self.tile_rows = ceil(axes[1].out / m), ceil(axes[0].out / m)
        channels, outputs = x.shape[2], w.shape[1]
        per_tile = (m + 2) ** 2 * (channels + outputs) * self.dtype.itemsize
        wanted = max(CHUNK_BYTES // per_tile, 12)
        self.sizes = self._cut(wanted)
        form = form_of(self.dtype.char, self.tiles, outputs)
        self.tiled = Tiled(form, m, channels, outputs, _last(x), _last(y))

    def _cut(self, wanted: int) -> Sizes:
        image = self.columns * self.tile_rows
        if image <= wanted:
            return Sizes(max(min(wanted // image, ceil(self.x.shape[0] * self.x.shape[1] / threads.count())), 1), self.tile_rows)
        return Sizes(1, max(wanted // self.columns, 1))

    @property
    def tiles(self) -> int:
        """The tiles of the largest chunk."""
        return self.sizes.images * self.sizes.rows * self.columns

    @property
    def places(self) -> tuple[int, int, int, int]:
        """Where products, turned inputs and turned outputs begin in scratch, after transformed inputs, and its end."""
        tiled, rows = self.tiled, self.tiles + self.tiled.form.height
        lines = self.sizes.rows * self.m
        begin, found = 0, []
        for size in (
            rows * tiled.step_x,
            rows * tiled.step_y,
            (not tiled.x_last) * self.sizes.images * (lines + 2) * self.axes[1].size * tiled.pitch_x,
            (not tiled.y_last) * self.sizes.images * lines * self.axes[1].out * tiled.pitch_y,
        ):
            begin += rounded(size * self.dtype.itemsize) // self.dtype.itemsize
            found.append(begin)
        return tuple(found)

    def write(self, bias: Array | None) -> bool:
        """Write the outputs and return whether all of them are finite."""
        tiled, item = self.tiled, self.dtype.itemsize
        u, plane = transformed(self.w, tiled.form, self.m)
        zeros: Array = np.zeros(max(tiled.pitch_x, tiled.pitch_y, self.tiles + 12, self.w.shape[0] * tiled.outputs), self.dtype)
        chunks = self.chunks(plane)
        workers = min(threads.count(), len(chunks))
        flags: Array = np.zeros(workers, np.int64)
        places = self.places
        scratch = Scratch(workers * rounded(places[-1] * item))
        columns = straight(tiled.pitch_y, 1, tiled.form)
        of_x, of_y = ([step // item for step in a.strides] for a in (self.x, self.y))
        rows = steps(self.tiles + 12, tiled.step_y)
        (down, along), code = self.axes, winograd_kernel(tiled)
        groups = []
        for n in range(workers):
            room = scratch.array((places[-1],), self.dtype)
            pointers = (self.x, self.y, u, zeros if bias is None else bias, zeros, room, chunks, rows, columns.pieces, columns.panels, flags[n:])
            numbers = [
                *(len(chunks) * n // workers, len(chunks) * (n + 1) // workers),
                *(of_x[0], of_x[3], of_x[4] if tiled.x_last else of_x[2]),
                *(of_y[0], of_y[3], of_y[4] if tiled.y_last else of_y[2]),
                *(down.size, along.size, down.out, along.out, down.low, along.low, self.columns),
                *(plane, of_x[3] == along.size, *places[:3]),
            ]
            groups.append([struct.pack(f"={KERNEL_WORDS}q", *map(address, pointers), *numbers)])
        run_calls(code, groups)
        return not flags.any()

    def chunks(self, plane: int) -> Array:
        item = self.dtype.itemsize
        x, y = ([step // item for step in a.strides] for a in (self.x, self.y))
        images, rows = self.sizes
        found = []
        for g, n, r in product(range(self.x.shape[1]), range(0, self.x.shape[0], images), range(0, self.tile_rows, rows)):
            found.append(
                (
                    *(g * x[1] + n * x[0], g * y[1] + n * y[0], g * (self.m + 2) ** 2 * plane, g * self.tiled.outputs),
                    *(min(images, self.x.shape[0] - n), r, min(rows, self.tile_rows - r)),
                )
            )
        return np.array(found)


def transformed(w: Array, form: Form, m: int) -> tuple[Array, int]:
    groups, outputs, channels = w.shape[:3]
    panels = ceil(outputs / form.width)
    plane = panels * channels * form.width
    u: Array = np.empty((groups, (m + 2) ** 2, plane), w.dtype)
    of_w = [step // w.itemsize for step in w.strides]
    taps = np.add.outer(np.arange(3) * of_w[3], np.arange(3) * of_w[4]).ravel()
    registers = panels * form.registers
    code, workers = weights_kernel(form._replace(height=1), m), min(threads.count(), registers)
    calls = []
    for n in range(workers):
        calls.append([])
        for g in range(groups):
            numbers = (registers * n // workers, registers * (n + 1) // workers, outputs, channels, of_w[1], of_w[2], plane, form.registers)
            calls[-1].append(struct.pack("=11q", address(w[g]), address(u[g]), address(taps), *numbers))
    run_calls(code, calls)
    return u, plane


def _last(x: Array) -> bool:
    return x.strides[2] == x.itemsize

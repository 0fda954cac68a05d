"""Weights and biases laid out by machine code in the order in which the kernels of convolutions read them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod

import numpy as np

from ..base.dtypes import DType
from ..base.layout import Shape
from ..codegen.cpu.compile import Code, the_host
from ..codegen.cpu.forms import form_of
from ..codegen.cpu.gathering import gathering
from ..codegen.cpu.lane_sums import lane_sums_kernel
from ..codegen.cpu.sweeping import OUTSIDE
from ..codegen.cpu.turning import turning_of
from ..run.launches import Array, Sheet, View, behind, shared
from ..run.native import Launch, Word

# Bytes of panels from which on threads share the work of laying them out; the most lanes of a register.
SHARED, LANES = 1 << 19, 16


def panels(w: View, panel: int, sheet: Sheet, to: Word) -> Launch:
    """Return the launch that packs weights (groups, outputs, channels, *window) as (groups, panels, elements of a
    window, outputs of a panel), zeros for missing outputs. The channels of an element of the window lie side by side.
    """
    groups, outputs, channels = w.shape[:3]
    depth, number, form = prod(w.shape[2:]), -(-outputs // panel), form_of(w.dtype.char, outputs, outputs)
    one = depth * panel * w.dtype.itemsize
    places = [(w.place(g, n * panel), behind(to, (g * number + n) * one)) for g in range(groups) for n in range(number)]
    counts = [min(panel, outputs - n * panel) for n in range(number)] * groups
    calls: list[tuple[Word, ...]]
    if panel % form.lanes == 0 and w.is_contiguous:
        code, turned = turning_of(form), np.arange(depth).reshape(-1, channels).T.ravel() * panel
        table = sheet.keep(turned)  # the offset of each term in a panel
        calls = [(x, table, y, n, depth, depth, panel, 0) for (x, y), n in zip(places, counts, strict=True)]
    else:
        near = w.steps[1] == 1
        code = _gathering(w.dtype, near)
        terms = np.add.outer(offsets(w.shape[3:], w.steps[3:]), np.arange(channels) * w.steps[2])
        rows = sheet.keep(terms.ravel())
        tables = {n: 0 if near else sheet.keep(columns(np.arange(n) * w.steps[1], panel)) for n in set(counts)}
        calls = [(x, rows, tables[n], y, depth, panel, n) for (x, y), n in zip(places, counts, strict=True)]
    return shared(code, calls, sheet.threads if one * len(calls) > SHARED else 1)


def matrix(x: View, rows: Array, own: Array, wide: int, sheet: Sheet, to: Word) -> Launch:
    """Return the launch that writes elements of x to a matrix of `wide` columns, zeros in those that x lacks.

    rows, own: offsets of the rows, and of the columns that x has, in elements.
    """
    return gathered([(x.at, to)], x.dtype, rows, own, wide, sheet)


def gathered(
    places: Sequence[tuple[Word, Word]], dtype: DType, rows: Array, own: Array, wide: int, sheet: Sheet
) -> Launch:
    """Return the launch that does that for pairs (source, target). Offsets may be OUTSIDE, which gives zeros."""
    near, one = bool((own == np.arange(len(own))).all()), wide * dtype.itemsize
    table, at_rows = 0 if near else sheet.keep(columns(own, wide)), sheet.keep(np.ascontiguousarray(rows))
    threads = sheet.threads if len(places) * len(rows) * one > SHARED else 1
    step = -(-len(rows) // -(-threads // len(places)))
    calls = [
        (x, at_rows + 8 * first, table, behind(to, first * one), min(step, len(rows) - first), wide, len(own))
        for x, to in places
        for first in range(0, len(rows), step)
    ]
    return shared(_gathering(dtype, near), calls, threads)


def zeroed(to: Word, rows: int, wide: int, dtype: DType, sheet: Sheet) -> Launch:
    """Return the launch that writes zeros, in rows that threads share."""
    none = np.zeros(0, np.int64)
    return gathered([(to, to)], dtype, np.zeros(rows, np.int64), none, wide, sheet)


def lane_sums(x: Word, matrices: int, w: View, rows: Array, own: Array, sheet: Sheet) -> Launch:
    """Return the launch that adds up so many matrices, one behind the other, and writes the sum to w.

    rows, own: offsets in w of the rows and of the columns, in elements.
    """
    near, dtype, wide = bool((own == np.arange(len(own))).all()), w.dtype, len(own)
    table = 0 if near else sheet.keep(columns(own, wide))
    at_rows, one = sheet.keep(np.ascontiguousarray(rows)), wide * dtype.itemsize
    step = -(-len(rows) // (sheet.threads if matrices * len(rows) * one > SHARED else 1))
    calls = [
        (behind(x, first * one), at_rows + 8 * first, table, w.at, min(step, len(rows) - first), wide)
        for first in range(0, len(rows), step)
    ]
    code = lane_sums_kernel(dtype.char, the_host().vector_bytes // dtype.itemsize, near)
    return shared(code, [(*call, wide, matrices, len(rows) * wide) for call in calls], sheet.threads)


def columns(own: Array, wide: int) -> Array:
    """Return the offsets of `wide` columns of a matrix: its own ones first, then OUTSIDE for columns of zeros."""
    found: Array = np.full(wide + LANES, OUTSIDE, np.int64)
    found[: len(own)] = own
    return found


@lru_cache(256)
def offsets(counts: Shape, by: Shape) -> Array:
    """Return the offsets of all elements of an array with these lengths and steps, in C order."""
    found: Array = np.zeros(1, np.int64)
    for count, step in zip(counts, by, strict=True):
        found = np.add.outer(found, np.arange(count) * step).ravel()
    return found


def _gathering(dtype: DType, near: bool) -> Code:
    machine = the_host()
    return gathering(dtype.char, machine.vector_bytes // dtype.itemsize, near)

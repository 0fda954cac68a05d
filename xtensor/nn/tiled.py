"""Attention on NumPy's arrays by the kernels of codegen/cpu/attention.py: what these are told, and who computes what.

Arrays are stacks of matrices (..., rows, columns), whose leading axes broadcast. Besides the results there are
transposed copies of some operands, in panels, and sums in a few lanes, so that memory grows only as the operands do.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod
from typing import Any, NamedTuple

import numpy as np

from ..base.dtypes import DType
from ..base.layout import Shape, broadcast_shapes
from ..base.threads import worth
from ..codegen.cpu.attention import (
    ADDED,
    COTANGENTS,
    FLAGS,
    NO_MASK,
    NUMBERS,
    POINTERS,
    ROW_ADDED,
    ROW_FLAGS,
    VALUES,
    WORDS,
    Pass,
    attention_kernel,
)
from ..codegen.cpu.forms import Form, form_of
from ..codegen.cpu.turning import TURNING, turning_of
from ..plan.costs import PRODUCT_SECONDS, moving_seconds
from ..run.contractions import address, rows_of, steps
from ..run.native import run_calls
from .contraction import Array, empty

# Rows that are computed at a time, which share tiles of columns in the second cache; the least number of such parts.
ROWS, PARTS = 256, 16

# Sums by query that parts of keys add to, of few matrices: whatever the number of threads.
LANES = 8

# Registers of a row of what is multiplied at a time.
REGISTERS = 2

# Columns that are packed in one call: whole panels.
PACKED = 2048

_PLACES = {name: place for place, name in enumerate((*POINTERS, *NUMBERS))}


class Scores(NamedTuple):
    """The parameters that turn products into scores. mask: booleans or numbers that broadcast to (..., queries,
    keys).
    """

    scale: float
    is_causal: bool
    mask: Array | None


def attend(query: Array, key: Array, value: Array, scores: Scores) -> tuple[Array, Array]:
    """Return attention (..., L, V), and per query the logarithm of its sum of powers; inf if it attends to no key."""
    query, key, value = map(_readable, (query, key, value))
    lead = broadcast_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2])
    y = empty((*lead, query.shape[-2], value.shape[-1]), query.dtype, query)
    logs = empty(y.shape[:-1], query.dtype, query)
    _run(VALUES, scores, [(query, key)], [(value, y)], logs=logs)
    return y, logs


def attend_back(
    query: Array, key: Array, value: Array, g: Array, logs: Array, means: Array, scores: Scores
) -> tuple[Array, Array, Array]:
    """Return the cotangents of query, key and value for each matrix of the result, whose cotangent is g.

    logs: as returned by `attend`. means: for each query, the sum of the result times g.
    """
    query, key, value, g = map(_readable, (query, key, value, g))
    lead, (rows, depth) = g.shape[:-2], query.shape[-2:]
    by_key, by_value = (empty((*lead, *x.shape[-2:]), x.dtype, x) for x in (key, value))
    known = {"logs": np.ascontiguousarray(logs), "means": np.ascontiguousarray(means)}
    comes, goes = [(key, query), (value, g)], [(g, by_value), (query, by_key)]
    lanes = _run(COTANGENTS, scores, comes, goes, **known)
    return lanes[..., :rows, :depth].sum(axis=-3), by_key, by_value


def _run(
    of: str, scores: Scores, comes: Sequence[tuple[Array, Array]], goes: Sequence[tuple[Array, Array]], **known: Array
) -> Array:
    """Run a pass. comes: pairs of matrices of rows and of columns. goes: pairs of matrices and results in C order.

    known: numbers by query. Returns the sums by query: a stack for each matrix.
    """
    rows, columns = (x.shape[-2] for x in comes[0])
    dtype: DType = comes[0][0].dtype
    form = form_of(dtype.char, rows, columns, REGISTERS, direct=True)._replace(direct=False)
    table = Table(goes[0][1].shape[:-2], rows, form)
    kind, mask, step = _mask(scores.mask, dtype, across=of == COTANGENTS)
    if mask is not None:
        table.point("mask", mask, 2)
    for x, (own, other) in enumerate(comes):
        table.come(x, own, other)
    for y, (matrix, result) in enumerate(goes):
        table.go(y, matrix)
        table.point(f"c{y}", result, 2)
    for name, x in known.items():
        table.point(name, x, 1)
    matrices = [matrix for matrix, _ in goes] + ([comes[0][0]] if of == COTANGENTS else [])
    lanes = table.add_by_query(comes[0][0], columns) if of == COTANGENTS else None
    skips = scores.is_causal and all(np.isfinite(matrix).all() for matrix in matrices)
    number = int.from_bytes(np.asarray(scores.scale, dtype).tobytes(), "little", signed=True)
    table.put(columns=columns, causal=int(scores.is_causal), skips=int(skips), scale=number, **{"mask.step": step})
    sums = sum(own.shape[-1] for own, _ in comes) + sum(matrix.shape[-1] for matrix in matrices)
    _compute(Pass(of, form, kind), table, skips, sums * PRODUCT_SECONDS[dtype.char])
    return lanes


def _compute(one: Pass, table: Table, skips: bool, seconds: float) -> None:
    """Run what a table tells, on several threads. seconds: what a score takes."""
    first, rows, columns = (table.words[..., _PLACES[name]] for name in ("first", "rows", "columns"))
    seen = np.minimum(first + rows, columns) if one.is_values else np.maximum(columns - first, rows)
    parts = table.shared(rows * (seen if skips else columns), seconds)
    widths = [int(table.words[..., _PLACES[f"width{y}"]].flat[0]) for y in one.products]
    room = one.scratch(int(rows.max()), widths)
    scratch: Array = empty((len(parts), room), np.dtype(one.form.char), table.words)
    for part, own in zip(parts, scratch, strict=True):
        part[:, _PLACES["scratch"]] = address(own)
    run_calls(attention_kernel(one), [[told.tobytes() for told in part] for part in parts])


class Table:
    """What a pass is told: words of each part of the rows of each matrix, and what they point to.

    unit: numbers of what one thread computes, part by part.
    """

    def __init__(self, lead: Shape, rows: int, form: Form) -> None:
        self.lead, self.form = lead, form
        least = min(ceil(PARTS / max(prod(lead), 1)), ceil(rows / (4 * form.height)))
        step = ceil(rows / max(ceil(rows / ROWS), least) / form.height) * form.height
        firsts = np.arange(0, rows, step)
        self.tall = ceil(rows / form.height) * form.height
        self.words: Array = np.zeros((*lead, len(firsts), WORDS), np.int64)
        self.alive: list[Array] = []
        self.unit: Array = np.arange(self.words.size // WORDS)
        self.put(first=firsts, rows=np.minimum(rows - firsts, step))

    def put(self, **words: Any) -> None:
        """Set words: numbers, or arrays with one number for each part of the rows."""
        for name, value in words.items():
            self.words[..., _PLACES[name]] = value

    def point(self, name: str, x: Array, rank: int) -> None:
        """Set a word to where each of a stack of arrays begins; rank: of one of them."""
        self.alive.append(x)
        self.words[..., _PLACES[name]] = np.broadcast_to(_addresses(x, rank), self.lead)[..., None]

    def offsets(self, name: str, table: Array) -> None:
        """Set a word to the address of a table of offsets."""
        self.alive.append(table)
        self.words[..., _PLACES[name]] = address(table)

    def come(self, number: int, own: Array, other: Array) -> None:
        """Tell of a product that comes in: of rows with columns."""
        lines = np.minimum(np.arange(self.tall), own.shape[-2] - 1) * (own.strides[-2] // own.itemsize)
        of_rows = rows_of(lines, steps(own.shape[-1], 1))
        self.point(f"a{number}", own, 2)
        self.point(f"p{number}", _panels(other, self.form), 3)
        for name, offsets in zip(("rows", "ks", "runs"), of_rows, strict=True):
            self.offsets(f"a{number}.{name}", offsets)
        self.put(**{f"depth{number}": own.shape[-1]})

    def go(self, number: int, matrix: Array) -> None:
        """Tell of a product that goes out: of rows of the tiles with a matrix."""
        self.point(f"b{number}", matrix, 2)
        self.offsets(f"b{number}.ks", steps(matrix.shape[-2], matrix.strides[-2] // matrix.itemsize))
        self.put(**{f"width{number}": matrix.shape[-1]})

    def add_by_query(self, key: Array, queries: int) -> Array:
        """Tell of sums by query, products with keys, and return them: zeros yet, by lane. Parts of one lane follow each
        other.
        """
        form, parts = self.form, self.words.shape[-2]
        lanes = min(parts, ceil(LANES / max(prod(self.lead), 1)))
        width = ceil(key.shape[-1] / form.width) * form.width
        sums = empty((*self.lead, lanes, queries + form.height, width), key.dtype, key)
        sums.fill(0)
        self.go(2, key)
        order = np.argsort(np.arange(parts) % lanes, kind="stable")
        self.words = np.ascontiguousarray(self.words[..., order, :])
        self.words[..., _PLACES["c2"]] = _addresses(sums, 2)[..., order % lanes]
        self.unit = np.arange(prod(self.lead))[:, None] * lanes + order % lanes
        self.alive.append(sums)
        return sums

    def shared(self, scores: Array, seconds: float) -> list[Array]:
        """Return the words dealt out to as many threads as are worth it, whole units. seconds: what a score takes."""
        words, work = self.words.reshape(-1, WORDS), np.bincount(self.unit.ravel(), scores.ravel())
        done = np.cumsum(work)
        threads = min(worth(float(done[-1]) * seconds), len(work))
        owner = ((done - 0.5 * work) * threads // done[-1])[self.unit.ravel()]
        return [words[owner == n] for n in range(threads) if (owner == n).any()]


def _readable(x: Array) -> Array:
    """Return an array whose rows are contiguous and lie whole elements apart."""
    whole = x.flags.aligned and not any(step % x.itemsize for step in x.strides)
    return x if whole and (x.strides[-1] == x.itemsize or x.shape[-1] == 1) else np.ascontiguousarray(x)


def _addresses(x: Array, rank: int) -> Array:
    """Return where each of a stack of arrays begins; rank: of one of them."""
    found: Array = np.array(address(x))
    for count, step in zip(x.shape[: x.ndim - rank], x.strides, strict=False):
        found = np.add.outer(found, np.arange(count) * step)
    return found


def _mask(mask: Array | None, dtype: DType, across: bool) -> tuple[str, Array | None, int]:
    """Return what there is of a mask, with rows of it contiguous, and elements from row to row."""
    if mask is None:
        return NO_MASK, None, 0
    flags = mask.dtype.kind == "b"
    given = mask.reshape((1,) * (2 - mask.ndim) + mask.shape)
    given = _readable((given.swapaxes(-1, -2) if across else given).astype(bool if flags else dtype, copy=False))
    step = 0 if given.shape[-2] == 1 else given.strides[-2] // given.itemsize
    if given.shape[-1] == 1:
        return ROW_FLAGS if flags else ROW_ADDED, given, step
    return FLAGS if flags else ADDED, given, step


def _panels(x: Array, form: Form) -> Array:
    """Return matrices (..., columns, depth) across, as panels (..., panels, depth, width) of zeros behind the last."""
    (columns, depth), width = x.shape[-2:], form.width
    found = empty((*x.shape[:-2], ceil(columns / width), depth, width), x.dtype, x)
    tos, firsts = steps(depth, width), np.arange(0, columns, PACKED)
    words: Array = np.empty((*x.shape[:-2], len(firsts), sum(map(len, TURNING))), np.int64)
    words[..., 0] = _addresses(x, 2)[..., None] + firsts * x.strides[-2]
    words[..., 1] = address(tos)
    words[..., 2] = _addresses(found, 3)[..., None] + firsts * (depth * x.itemsize)
    words[..., 3] = np.minimum(columns - firsts, PACKED)
    words[..., 4:] = depth, x.strides[-2] // x.itemsize, width, depth * width
    words = words.reshape(-1, words.shape[-1])
    threads = min(worth(moving_seconds(2 * found.nbytes)), len(words))
    run_calls(turning_of(form), [[told.tobytes() for told in part] for part in np.array_split(words, threads)])
    return found

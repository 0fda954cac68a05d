"""Attention on a CUDA device by the kernels of attention.cuh, or by the library where there are none.

Arrays are stacks of matrices (..., rows, columns), whose leading axes broadcast; scores are those of tiled.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod
from typing import Any

import numpy as np

from ..base.dtypes import DType
from ..base.layout import Shape, broadcast_shapes
from ..base.options import settings
from ..codegen.cuda.library import Length, launch, most_shared
from ..devices import library_of
from .tiled import Scores

Array = Any  # a cupy.ndarray

# Rows of a tile, threads of a block, and how many floats of a key or value there are at most.
TILE, WORKERS, WIDEST = 64, 128, 128


def fits(dtype: DType, widths: tuple[int, int]) -> bool:
    """Return whether there is a kernel for a dtype and these widths of a query and a value."""
    return dtype == np.float32 and max(widths) <= WIDEST and settings().engine not in ("direct", "interpret")


def attend(query: Array, key: Array, value: Array, scores: Scores) -> tuple[Array, Array]:
    """Return attention (..., L, V), and per query the logarithm of its sum of powers; inf if it attends to no key."""
    cp, lead = library_of(query), broadcast_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2])
    y = cp.empty((*lead, query.shape[-2], value.shape[-1]), query.dtype)
    logs = cp.empty(y.shape[:-1], query.dtype)
    room = TILE * (_pitch(query) + max(_pitch(query), TILE + 4) + _pitch(value))
    if not _run("attention", lead, (query, key, value), scores, (y, logs), room):
        return _attend_plainly(query, key, value, scores)
    return y, logs


def attend_back(
    query: Array, key: Array, value: Array, g: Array, logs: Array, means: Array, scores: Scores
) -> tuple[Array, Array, Array]:
    """Return the cotangents of query, key and value for each matrix of the result, whose cotangent is g.

    logs: as returned by `attend`. means: for each query, the sum of the result times g.
    """
    cp, lead = library_of(query), g.shape[:-2]
    found = [cp.empty((*lead, *x.shape[-2:]), x.dtype) for x in (query, key, value)]
    known = [cp.ascontiguousarray(logs), cp.ascontiguousarray(means)]
    room = TILE * (2 * _pitch(query) + 2 * _pitch(value) + TILE + 4)
    for by_key, operands, results in (
        (0, (query, g, key, value), (found[0], found[0])),
        (1, (key, value, query, g), (found[1], found[2])),
    ):
        if not _run("attention back", lead, operands, scores, (*known, *results), room, BY_KEY=by_key):
            return _attend_back_plainly(query, key, value, g, logs, means, scores)
    return found[0], found[1], found[2]


def _pitch(x: Array) -> int:
    """Return how many floats lie from row to row of a tile."""
    return max(16, 1 << (x.shape[-1] - 1).bit_length()) + 4


def _run(
    name: str, lead: Shape, operands: Sequence[Array], scores: Scores, others: Sequence[Array], room: int, **given: int
) -> bool:
    """Start a kernel with a block for each tile of rows of the first of the operands; return whether there is one.

    operands: the first two or three have rows and columns that meet, the second or third is as wide as values are.
    room: floats of shared memory.
    """
    rows, value = operands[0].shape[-2], operands[1 if given else 2]
    columns = operands[2 if given else 1].shape[-2]
    widths = operands[0].shape[-1], value.shape[-1]
    if max(widths) > WIDEST or 4 * room > most_shared(operands[0]):
        return False
    seen = [_seen(x, lead) for x in operands]
    mask, by_query, by_key, mask_steps = _mask(scores.mask, lead, seen[0])
    kind = 0 if scores.mask is None else 1 if scores.mask.dtype.kind == "b" else 2
    vector = all(not n % 4 for x in seen for n in (x.shape[-1], x.data.ptr // 4, *(s // 4 for s in x.strides[:-1])))
    constants = {"DEPTH": widths[0], "OUT": widths[1], "VECTOR": int(vector), "MASK": kind}
    constants |= {"CAUSAL": int(scores.is_causal), "LOOPS": max(len(lead), 1), **given}
    numbers = [*seen, mask, *others, rows, columns, *(x.strides[-2] // 4 for x in seen)]
    numbers += [int(np.float32(scores.scale).view(np.int32)), by_query, by_key]
    tiles = ceil(rows / TILE)
    numbers += [Length(tiles), *map(Length, lead or (1,))]
    for x in seen:
        numbers += [step // 4 for step in x.strides[:-2]] if lead else [0]
    numbers += mask_steps
    blocks = tiles * prod(lead)
    return launch(
        name, operands[0], constants, numbers, blocks, threads=WORKERS, shared=4 * room, reach=blocks, contract=True
    )


def _seen(x: Array, lead: Shape) -> Array:
    """Return matrices with all leading axes, rows contiguous."""
    cp = library_of(x)
    x = x if x.strides[-1] == x.itemsize else cp.ascontiguousarray(x)
    return cp.broadcast_to(x, (*lead, *x.shape[-2:]))


def _mask(mask: Array | None, lead: Shape, other: Array) -> tuple[Array, int, int, list[int]]:
    """Return a mask with its steps in bytes: by query, by key, along the leading axes; `other` where there is none."""
    if mask is None:
        return other, 0, 0, [0] * max(len(lead), 1)
    seen: Array = mask if mask.dtype.kind == "b" else mask.astype(np.float32, copy=False)
    strides = [0 if n == 1 else step for n, step in zip(seen.shape, seen.strides, strict=True)]
    strides = [0] * (len(lead) + 2 - len(strides)) + strides
    return seen, strides[-2], strides[-1], strides[:-2] or [0]


# ---- without a kernel


def _scores(query: Array, key: Array, scores: Scores) -> tuple[Array, Array | None]:
    """Return all scores, -inf where a query may not look, and where it may."""
    cp = library_of(query)
    found, may = cp.matmul(query * query.dtype.type(scores.scale), key.swapaxes(-1, -2)), None
    if scores.is_causal:
        may = cp.arange(query.shape[-2])[:, None] >= cp.arange(key.shape[-2])
    if scores.mask is not None and scores.mask.dtype.kind == "b":
        may = scores.mask if may is None else may & scores.mask
    elif scores.mask is not None:
        found = found + scores.mask.astype(found.dtype, copy=False)
    return (found if may is None else cp.where(may, found, found.dtype.type(-np.inf))), may


def _attend_plainly(query: Array, key: Array, value: Array, scores: Scores) -> tuple[Array, Array]:
    cp, (found, _) = library_of(query), _scores(query, key, scores)
    most = found.max(axis=-1, keepdims=True)
    powers = cp.exp(found - cp.where(most == -np.inf, found.dtype.type(0), most))
    total = powers.sum(axis=-1, keepdims=True)
    logs = cp.where(total == 0, found.dtype.type(np.inf), most + cp.log(total))
    return cp.matmul(powers / cp.where(total == 0, total.dtype.type(1), total), value), logs[..., 0]


def _attend_back_plainly(
    query: Array, key: Array, value: Array, g: Array, logs: Array, means: Array, scores: Scores
) -> tuple[Array, Array, Array]:
    cp, (found, may) = library_of(query), _scores(query, key, scores)
    weights = cp.exp(found - logs[..., None])
    by_scores = weights * (cp.matmul(g, value.swapaxes(-1, -2)) - means[..., None]) * weights.dtype.type(scores.scale)
    if may is not None:
        by_scores = cp.where(may, by_scores, weights.dtype.type(0))
    by_key, by_value = (cp.matmul(a.swapaxes(-1, -2), b) for a, b in ((by_scores, query), (weights, g)))
    return cp.matmul(by_scores, key), by_key, by_value

"""Attention: a weighted mean of values, with weights from the products of queries and keys.

Attention over long sequences of NumPy memory (tiled.py), and of float32 on a CUDA device (tiled_elsewhere.py), is
computed in tiles, so that the weights are never all in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, prod, sqrt
from typing import Any, NamedTuple

import numpy as np

from ..autograd.rules import sum_to, xt
from ..autograd.tape import differentiable, is_recording, steps_of
from ..base.dtypes import promote
from ..base.errors import expected
from ..base.layout import Shape, broadcast_shapes, contiguous
from ..calls.compositions import macro
from ..calls.library import on
from ..codegen.cpu.attention import COTANGENTS, VALUES
from ..devices import library_of
from ..devices.cpu import CPU
from ..plan.costs import ATTENTION_TILED, CONTRACTION_COMPILED
from ..run.contractions import is_compiled
from ..run.launches import Begun
from ..tensor.face import Tensor
from ..tensor.operands import as_tensor, common_device
from . import tiled, tiled_elsewhere
from .checks import floating, within
from .layers import dropout
from .normalisers import _softmax_back, largest
from .tiled import Scores

__all__ = ["scaled_dot_product_attention"]


@differentiable(x=lambda g, y, axis: _softmax_back(g, y, axis))  # whose names `macro` hides
@macro
def _weights(x: Tensor, axis: int = -1) -> Tensor:
    """Return softmax(x), but 0 in a row of nothing but -inf: a query that may look nowhere."""
    most = largest(x, (axis,))
    powers = xt.exp(x - xt.where(most == -inf, 0, most))
    total = xt.sum(powers, axis=axis, keepdims=True)
    return powers / xt.where(total == 0, 1, total)


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    /,
    mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    generator: Any = None,
) -> Tensor:
    """Return softmax(scale * query @ key.T + mask) @ value.

    query (..., L, E), key (..., S, E) and value (..., S, V) give (..., L, V); leading axes broadcast.
    mask: broadcasts to (..., L, S); booleans say which keys a query may attend to, numbers are added. A query that may
    attend to no key gives 0. is_causal: query i attends to keys 0 to i; together with a mask, both apply. scale: None
    for 1 / sqrt(E). dropout_p: the share of weights that is dropped, which requires a generator. For long float32 and
    float64 operands of one dtype on the CPU, and float32 operands of up to 128 floats each on a CUDA device, the extra
    memory is about that of the operands; not with dropout, nor if the mask has a gradient.
    Raises TypeError for dtypes, ValueError if shapes do not match. Source:
    torch.nn.functional.scaled_dot_product_attention.
    """
    name = "scaled_dot_product_attention"
    query, key, value = (floating(x, name, n) for x, n in ((query, "query"), (key, "key"), (value, "value")))
    shape = _checked_shape(query, key, value)
    dtype = promote(query.dtype, key.dtype, value.dtype)
    if dtype == np.float16 and query.device == "cpu":  # scores that were rounded to it would spoil the weights
        query, key, value = (xt.astype(x, xt.float32) for x in (query, key, value))
    scale = 1 / sqrt(max(query.shape[-1], 1)) if scale is None else within(scale, name, "scale", -inf, inf)
    mask = None if mask is None else _checked_mask(mask, query, shape)
    looks = Looks(float(scale), bool(is_causal))
    if dropout_p:
        if generator is None:
            raise TypeError(expected(name, "generator", "be given where dropout_p is not 0", None))
        weights = dropout(_weights(_scores(query, key, mask, looks)), dropout_p, generator=generator)
        return xt.astype(xt.matmul(weights, value), dtype, copy=False)
    if _is_tiled(query, key, value, mask, shape):
        return xt.astype(_tiled((query, key, value), mask, looks)[0], dtype, copy=False)
    return xt.astype(xt.matmul(_weights(_scores(query, key, mask, looks)), value), dtype, copy=False)


class Looks(NamedTuple):
    """The parameters that turn products into scores, except for a mask."""

    scale: float
    is_causal: bool


def _scores(query: Tensor, key: Tensor, mask: Tensor | None, looks: Looks) -> Tensor:
    """Return scale * query @ key.T + mask, -inf where a query may not look."""
    scores = xt.matmul(query * looks.scale, xt.matrix_transpose(key))
    if mask is not None:
        added = mask.dtype.kind != "b"
        scores = scores + xt.astype(mask, scores.dtype, copy=False) if added else xt.where(mask, scores, -inf)
    if looks.is_causal:
        rows, columns = (xt.arange(n, device=query.device) for n in scores.shape[-2:])
        may = (xt.expand_dims(rows, axis=1) >= columns).evaluate()  # or no kernel could go over rows of all heads
        scores = xt.where(may, scores, -inf)
    return scores


# ---- in tiles

# Of fewer queries keys are used too seldom to be packed.
FEWEST_QUERIES = 16


def _is_tiled(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, shape: Shape) -> bool:
    """Return whether attention with such scores is computed in tiles; not where a mask has a gradient."""
    if not query.dtype == key.dtype == value.dtype or (mask is not None and steps_of((mask,))):
        return False
    widths = query.shape[-1], value.shape[-1]
    if shape[-2] < FEWEST_QUERIES or 0 in (*shape, *widths):
        return False
    device, work = common_device("scaled_dot_product_attention", (query, key, value)), prod(shape) * sum(widths)
    if device.backend is not CPU:
        return tiled_elsewhere.fits(query.dtype, widths)
    return work >= ATTENTION_TILED and is_compiled(query.dtype, max(work, CONTRACTION_COMPILED))


def _back(
    g: tuple[Tensor, None], operands: tuple[Tensor, ...], y: tuple[Tensor, Tensor], mask: Tensor | None, looks: Looks
) -> tuple[Tensor, ...]:
    """The cotangents of query, key and value; where their own are asked for, by functions that have one."""
    found = (_formula if is_recording() else _in_tiles)(g[0], operands, y, mask, looks)
    return tuple(sum_to(one, one.shape, x.shape) for one, x in zip(found, operands, strict=True))


def _in_tiles(
    g: Tensor, operands: tuple[Tensor, ...], y: tuple[Tensor, Tensor], mask: Tensor | None, looks: Looks
) -> tuple[Tensor, ...]:
    value, logs = y
    given = (*operands, g, logs, xt.sum(g * value, axis=-1), *(() if mask is None else (mask,)))
    found: tuple[Tensor, ...] = on(given, "scaled_dot_product_attention", InTiles(COTANGENTS, looks))
    return found


def _formula(
    g: Tensor, operands: tuple[Tensor, ...], y: tuple[Tensor, Tensor], mask: Tensor | None, looks: Looks
) -> tuple[Tensor, ...]:
    query, key, value = operands
    weights = _weights(_scores(query, key, mask, looks))
    by_scores = _softmax_back(xt.matmul(g, xt.matrix_transpose(value)), weights, -1) * looks.scale
    by_key = xt.matmul(xt.matrix_transpose(by_scores), query)
    return xt.matmul(by_scores, key), by_key, xt.matmul(xt.matrix_transpose(weights), g)


@differentiable(operands=_back)
def _tiled(operands: tuple[Tensor, ...], mask: Tensor | None, looks: Looks) -> tuple[Tensor, Tensor]:
    """Return attention, and by query the logarithm of its sum of powers."""
    given = operands if mask is None else (*operands, mask)
    y, logs = on(given, "scaled_dot_product_attention", InTiles(VALUES, looks))
    return y, logs


@dataclass(frozen=True)
class InTiles:
    """A pass over native arrays in tiles: attention with the logarithms of its sums of powers, or cotangents of query,
    key and value. Called with query, key and value, for cotangents also with that of attention, those logarithms, and
    for each query the sum of attention times its cotangent; and with a mask if there is one.
    """

    of: str
    looks: Looks

    def __call__(self, xp: Any, *given: Any) -> tuple[Any, ...]:
        count = 3 if self.of == VALUES else 6
        natives, mask = given[:count], given[count] if len(given) > count else None
        there: Any = tiled_elsewhere.attend if self.of == VALUES else tiled_elsewhere.attend_back
        run = self.func if library_of(natives[0]) is np else there
        found: tuple[Any, ...] = run(*natives, Scores(*self.looks, mask))
        return found

    @property
    def func(self) -> Any:
        """The function of NumPy's arrays."""
        return tiled.attend if self.of == VALUES else tiled.attend_back

    def ready(self, natives: Sequence[Any], *results: Any) -> Begun | None:
        """Return what computes it of arrays that lie like these."""
        return tiled.begun(self.of, *self.looks, natives, results)


# ---- arguments


def _checked_shape(query: Tensor, key: Tensor, value: Tensor) -> Shape:
    """Return the shape of the scores, with the leading axes of all; raises ValueError, naming all shapes, where the
    three do not fit together.
    """
    name = "scaled_dot_product_attention"
    shapes = (query.shape, key.shape, value.shape)
    for x, argument in ((query, "query"), (key, "key"), (value, "value")):
        if x.ndim < 2:
            raise ValueError(expected(name, argument, "have at least 2 axes", f"shape {x.shape}"))
    if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        must = "fit together as (..., L, E), (..., S, E) and (..., S, V)"
        raise ValueError(expected(name, "query, key and value", must, ", ".join(map(str, shapes))))
    try:
        return (*broadcast_shapes(*(shape[:-2] for shape in shapes)), query.shape[-2], key.shape[-2])
    except ValueError:
        must = "have leading axes that broadcast"
        raise ValueError(expected(name, "query, key and value", must, ", ".join(map(str, shapes)))) from None


def _checked_mask(mask: Any, query: Tensor, shape: Shape) -> Tensor:
    """Return a mask as a tensor of booleans or of real floating-point numbers, which broadcasts to the scores."""
    name = "scaled_dot_product_attention"
    mask = as_tensor(mask, name, "mask", query)
    if contiguous(mask.shape, 1).broadcast_to(shape) is None:
        raise ValueError(expected(name, "mask", f"broadcast to (..., L, S), {shape}", mask.shape))
    return mask if mask.dtype.kind == "b" else floating(mask, name, "mask")

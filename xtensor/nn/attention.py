"""Attention: a weighted mean of values, with weights from the products of queries and keys."""

from __future__ import annotations

from math import inf, sqrt
from typing import Any

from ..autograd.rules import xt
from ..autograd.tape import differentiable
from ..base.errors import expected
from ..base.layout import broadcast_shapes, contiguous
from ..calls.compositions import macro
from ..tensor.face import Tensor
from ..tensor.operands import as_tensor
from .checks import floating, within
from .layers import dropout
from .normalisers import _softmax_back, largest

__all__ = ["scaled_dot_product_attention"]


@differentiable(x=_softmax_back)
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
    mask: broadcasts to (..., L, S); booleans say where a query may look, numbers are added. A query that may look
    nowhere gives 0. is_causal: query i looks at keys 0 to i; with a mask both hold. scale: None for 1 / sqrt(E).
    dropout_p: the share of weights that is dropped, which takes a generator. Raises TypeError for dtypes, ValueError
    where shapes do not match. Source: torch.nn.functional.scaled_dot_product_attention.
    """
    name = "scaled_dot_product_attention"
    query, key, value = (floating(x, name, n) for x, n in ((query, "query"), (key, "key"), (value, "value")))
    _check_shapes(query, key, value)
    scale = 1 / sqrt(max(query.shape[-1], 1)) if scale is None else within(scale, name, "scale", -inf, inf)
    scores = xt.matmul(query * scale, xt.matrix_transpose(key))
    if mask is not None:
        scores = _masked(scores, as_tensor(mask, name, "mask", scores))
    if is_causal:
        rows, columns = (xt.arange(n, device=query.device) for n in scores.shape[-2:])
        scores = xt.where(xt.expand_dims(rows, axis=1) >= columns, scores, -inf)
    weights = _weights(scores)
    if dropout_p:
        weights = dropout(weights, dropout_p, generator=generator)
    return xt.matmul(weights, value)


def _check_shapes(query: Tensor, key: Tensor, value: Tensor) -> None:
    """Raise ValueError, naming all shapes, where the three do not fit together."""
    name = "scaled_dot_product_attention"
    shapes = (query.shape, key.shape, value.shape)
    for x, argument in ((query, "query"), (key, "key"), (value, "value")):
        if x.ndim < 2:
            raise ValueError(expected(name, argument, "have at least 2 axes", f"shape {x.shape}"))
    if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        must = "fit together as (..., L, E), (..., S, E) and (..., S, V)"
        raise ValueError(expected(name, "query, key and value", must, ", ".join(map(str, shapes))))
    try:
        broadcast_shapes(*(shape[:-2] for shape in shapes))
    except ValueError:
        must = "have leading axes that broadcast"
        raise ValueError(expected(name, "query, key and value", must, ", ".join(map(str, shapes)))) from None


def _masked(scores: Tensor, mask: Tensor) -> Tensor:
    """Return scores as far as a mask lets them be seen, or with a mask added."""
    name = "scaled_dot_product_attention"
    if contiguous(mask.shape, 1).broadcast_to(scores.shape) is None:
        raise ValueError(expected(name, "mask", f"broadcast to (..., L, S), {scores.shape}", mask.shape))
    if mask.dtype.kind == "b":
        return xt.where(mask, scores, -inf)
    return scores + xt.astype(floating(mask, name, "mask"), scores.dtype, copy=False)

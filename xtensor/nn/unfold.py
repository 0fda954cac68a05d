"""Windows as columns: unfold (im2col) and its adjoint, fold (col2im)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ..autograd.tape import differentiable
from ..base.dtypes import NUMERIC
from ..base.errors import expected
from ..base.layout import as_shape
from ..calls.library import on
from ..devices import library_of
from ..tensor.face import Tensor
from ..tensor.operands import as_tensor
from .windows import Axes, axes_of, batched, channels_last, each, kernels, outs, sizes, spatial, taps, volume

__all__ = ["fold", "unfold"]


def unfold(
    x: Tensor,
    kernel: int | Sequence[int],
    /,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    layout: str | None = None,
) -> Tensor:
    """Return the windows over 1, 2 or 3 spatial axes as columns, as a convolution multiplies them with its weights.

    x: (batch, channels, *lengths). Returns (batch, channels * window, places): a column holds one window, with its
    channels slowest, and columns are in C order of the output lengths, which are those of `conv`. With a layout whose
    channels are last, both have their second axis last. The parameters are those of `conv`. Raises ValueError if they
    do not fit, TypeError for booleans. Sources: torch.nn.functional.unfold, MATLAB im2col.
    """
    x = _numeric("unfold", x)
    rank = x.ndim - 2
    if not 1 <= rank <= 3:
        raise ValueError(expected("unfold", "x", "have 3, 4 or 5 axes", f"shape {x.shape}"))
    last, _ = channels_last(layout, rank, "unfold")
    window = each(kernel, rank, "unfold", "kernel", least=1)
    axes, _ = axes_of("unfold", x.shape, spatial(x.shape, last), window, stride, padding, dilation)
    return _unfolded(x, axes, last)


def fold(
    columns: Tensor,
    lengths: Sequence[int],
    kernel: int | Sequence[int],
    /,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    layout: str | None = None,
) -> Tensor:
    """Return windows added up at their places in the image: the adjoint of unfold, with the same parameters.

    columns: (batch, channels * window, places). lengths: the spatial lengths of the result (batch, channels, *lengths).
    Raises ValueError if shapes do not fit, TypeError for booleans. Sources: torch.nn.functional.fold, MATLAB col2im.
    """
    columns = _numeric("fold", columns)
    inner = as_shape(lengths, "fold", "lengths")
    if not 1 <= len(inner) <= 3 or columns.ndim != 3:
        shapes = f"columns {columns.shape}, lengths {inner}"
        raise ValueError(expected("fold", "columns", "have 3 axes, and lengths 1, 2 or 3 numbers", shapes))
    last, _ = channels_last(layout, len(inner), "fold")
    window = each(kernel, len(inner), "fold", "kernel", least=1)
    axes, _ = axes_of("fold", columns.shape, inner, window, stride, padding, dilation)
    rows, places = columns.shape[2 if last else 1], columns.shape[1 if last else 2]
    if rows % volume(axes) or places != prod(outs(axes)):
        must = f"hold windows of {volume(axes)} elements at {prod(outs(axes))} places"
        raise ValueError(expected("fold", "columns", must, f"shape {columns.shape}"))
    return _folded(columns, axes, last)


def _numeric(function: str, x: Any) -> Tensor:
    tensor = as_tensor(x, function)
    NUMERIC.check(tensor.dtype, function, "x")
    return tensor


@differentiable(x=lambda g, axes, last: _added(g, axes, last))
def _unfolded(x: Tensor, axes: Axes, last: bool) -> Tensor:
    def run(_: Any, a: Any) -> Any:
        a = library_of(a).moveaxis(a, -1, 1) if last else a
        found: Any = library_of(a).zeros((*a.shape[:2], *kernels(axes), *outs(axes)), a.dtype)
        for element, places, sources in taps(axes):
            found[(slice(None), slice(None), *element, *places)] = a[(..., *sources)]
        columns = found.reshape(*a.shape[:1], a.shape[1] * volume(axes), prod(outs(axes)))
        return library_of(a).ascontiguousarray(library_of(a).swapaxes(columns, 1, 2)) if last else columns

    return on(x, "unfold", run)


def _added(g: Tensor, axes: Axes, last: bool) -> Tensor:
    return _folded(g, axes, last)


@differentiable(columns=lambda g, axes, last: _unfolded(g, axes, last))
def _folded(columns: Tensor, axes: Axes, last: bool) -> Tensor:
    def run(_: Any, a: Any) -> Any:
        a = library_of(a).swapaxes(a, 1, 2) if last else a
        channels = a.shape[1] // volume(axes)
        windows = a.reshape(a.shape[0], channels, *kernels(axes), *outs(axes))
        found: Any = library_of(a).zeros(batched(a.shape[0], channels, sizes(axes), last), a.dtype)
        target: Any = library_of(a).moveaxis(found, -1, 1) if last else found
        for element, places, targets in taps(axes):
            target[(..., *targets)] += windows[(slice(None), slice(None), *element, *places)]
        return found

    return on(columns, "fold", run)

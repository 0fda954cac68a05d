"""Images of other sizes: interpolation, samples at any places, and channels that become places.

Along each axis, element i of n covers the interval from i to i + 1. With align_corners, elements are points instead,
and those at both ends stay where they are. Sources: the functions of the same names in torch.nn.functional.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from math import floor, prod
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from ..autograd.rules import xt
from ..base.errors import check_choice, expected
from ..calls.composed import composed
from ..tensor.face import Tensor
from ..tensor.operands import as_tensor, asarray_host
from .activations import hardtanh
from .checks import along, count_of, floating
from .pool import adaptive_avg_pool, all_spatial
from .taps import Taps, summed
from .windows import each

__all__ = ["affine_grid", "grid_sample", "interpolate", "pixel_shuffle", "pixel_unshuffle"]

LINEAR = ("", "linear", "bilinear", "trilinear")  # by the number of spatial axes
MODES = ("nearest", "nearest-exact", *LINEAR[1:], "bicubic", "area")
PADDINGS = ("zeros", "border", "reflection")

# The parameter of the cubic kernel (Keys, 1981) that PyTorch and OpenCV take.
KEYS = -0.75


# ---- interpolation


def interpolate(
    x: Tensor,
    /,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    *,
    align_corners: bool = False,
    layout: str | None = None,
) -> Tensor:
    """Return x with other lengths along 1, 2 or 3 spatial axes, computed from neighbouring elements.

    x: (batch, channels, *lengths). size: the new lengths, or scale_factor: factors of the lengths, rounded down; a
    number or one per axis. mode: "nearest" takes the element in which a new element begins, "nearest-exact" the one
    that contains its middle; "linear", "bilinear", "trilinear" (for 1, 2, 3 axes) use two neighbours along each axis,
    "bicubic" four; "area" averages, as `adaptive_avg_pool`. layout: as in `conv`.

    Raises ValueError unless exactly one of size and scale_factor is given, if the mode does not support the number of
    axes, or for align_corners with a mode without neighbours; TypeError if neighbours are not floating-point numbers.
    Source: torch.nn.functional.interpolate, which computes places in float32; here they are exact.
    """
    check_choice("interpolate", "mode", mode, MODES)
    x, axes, _ = all_spatial("interpolate", x, layout)
    _check_mode(mode, len(axes), align_corners)
    lengths, scales = _lengths(tuple([x.shape[axis] for axis in axes]), size, scale_factor)
    if mode == "area":
        return adaptive_avg_pool(x, lengths, layout=layout)
    if not mode.startswith("nearest"):
        x = floating(x, "interpolate")
    taps = [
        _taps(mode, x.shape[axis], length, scale, bool(align_corners))
        for axis, length, scale in zip(axes, lengths, scales, strict=True)
    ]
    return summed(x, tuple(zip(axes, taps, strict=True)), "interpolate")


def _check_mode(mode: str, rank: int, align_corners: bool) -> None:
    """Raise ValueError where a mode is not for so many spatial axes, or knows no corners."""
    if mode in LINEAR and mode != LINEAR[rank]:
        raise ValueError(
            expected("interpolate", "mode", f"be {LINEAR[rank]!r} where x has {rank + 2} axes", repr(mode))
        )
    if mode == "bicubic" and rank != 2:
        raise ValueError(expected("interpolate", "mode", f"be another where x has {rank + 2} axes", repr(mode)))
    if align_corners and (mode == "area" or mode.startswith("nearest")):
        raise ValueError(expected("interpolate", "align_corners", f"be False for mode {mode!r}", align_corners))


def _lengths(lengths: tuple[int, ...], size: Any, scale_factor: Any) -> tuple[tuple[int, ...], list[float | None]]:
    """Return the spatial lengths of the result, and by what they were multiplied, None where that is not given."""
    if (size is None) == (scale_factor is None):
        got = "neither" if size is None else "both"
        raise ValueError(expected("interpolate", "size", "be given, or scale_factor", got))
    if size is not None:
        return each(size, len(lengths), "interpolate", "size", least=1), [None] * len(lengths)
    factors = tuple(scale_factor) if isinstance(scale_factor, (tuple, list)) else (scale_factor,) * len(lengths)
    if len(factors) != len(lengths):
        must = f"be a number or {len(lengths)} of them"
        raise ValueError(expected("interpolate", "scale_factor", must, repr(scale_factor)))
    if not all(isinstance(one, Real) and not isinstance(one, bool) for one in factors):
        raise TypeError(expected("interpolate", "scale_factor", "hold numbers", repr(scale_factor)))
    if not all(0 < one < float("inf") and floor(n * one) for n, one in zip(lengths, factors, strict=True)):
        raise ValueError(
            expected("interpolate", "scale_factor", "leave an element along each axis", repr(scale_factor))
        )
    return tuple([floor(n * one) for n, one in zip(lengths, factors, strict=True)]), [float(one) for one in factors]


@lru_cache(256)
def _taps(mode: str, length: int, wanted: int, scale: float | None, align_corners: bool) -> Taps:
    """Return what elements along an axis of some length are made of. scale: by what it was multiplied, if given."""
    number = np.arange(wanted)
    if mode.startswith("nearest"):
        half = 0.5 if mode == "nearest-exact" else 0.0
        if scale is None:
            places = (2 * number + int(2 * half)) * length // (2 * wanted)
        else:
            places = np.floor((number + half) / scale).astype(np.int64)
        return Taps(length, np.minimum(places, length - 1)[None])
    if align_corners:
        at = number * ((length - 1) / (wanted - 1)) if wanted > 1 else np.zeros(1)
    else:
        at = (number + 0.5) * (length / wanted if scale is None else 1 / scale) - 0.5
    if mode in LINEAR:
        at = np.clip(at, 0, length - 1)
    first = np.floor(at).astype(np.int64)
    share = at - first
    steps = np.array((0, 1) if mode in LINEAR else (-1, 0, 1, 2))
    far = np.abs(np.subtract.outer(steps, share))
    weights = 1 - far if mode in LINEAR else _cubic(far)
    places = np.clip(np.add.outer(steps, first), 0, length - 1)
    used = weights.any(axis=1)
    return Taps(length, places[used], None if (weights[used] == 1).all() else weights[used])


def _cubic(far: Any) -> Any:
    """Return the cubic kernel at distances up to 2."""
    near = ((KEYS + 2) * far - (KEYS + 3)) * far * far + 1
    return np.where(far <= 1, near, ((KEYS * far - 5 * KEYS) * far + 8 * KEYS) * far - 4 * KEYS)


# ---- channels that become places


def pixel_shuffle(x: Tensor, upscale_factor: int, /) -> Tensor:
    """Return x (..., channels * r**2, height, width) as (..., channels, height * r, width * r); r is upscale_factor.

    Channel c * r**2 + i * r + j becomes row i and column j of each r x r block of channel c. Raises ValueError if r**2
    does not divide the channels. Source: torch.nn.functional.pixel_shuffle.
    """
    x, r = as_tensor(x, "pixel_shuffle"), count_of(upscale_factor, "pixel_shuffle", "upscale_factor")
    if x.ndim < 3 or x.shape[-3] % r**2:
        must = f"have channels, rows and columns as last axes, and channels divisible by {r**2}"
        raise ValueError(expected("pixel_shuffle", "x", must, f"shape {x.shape}"))
    *outer, channels, height, width = x.shape
    split = xt.reshape(x, (*outer, channels // r**2, r, r, height, width))
    return xt.reshape(_last_five(split, (0, 3, 1, 4, 2)), (*outer, channels // r**2, height * r, width * r))


def pixel_unshuffle(x: Tensor, downscale_factor: int, /) -> Tensor:
    """Return x (..., channels, height * r, width * r) as (..., channels * r**2, height, width); r is downscale_factor.

    The inverse of `pixel_shuffle`. Raises ValueError if r does not divide height and width. Source:
    torch.nn.functional.pixel_unshuffle.
    """
    x, r = as_tensor(x, "pixel_unshuffle"), count_of(downscale_factor, "pixel_unshuffle", "downscale_factor")
    if x.ndim < 3 or x.shape[-2] % r or x.shape[-1] % r:
        must = f"have channels, rows and columns as last axes, and lengths of the last two divisible by {r}"
        raise ValueError(expected("pixel_unshuffle", "x", must, f"shape {x.shape}"))
    *outer, channels, height, width = x.shape
    split = xt.reshape(x, (*outer, channels, height // r, r, width // r, r))
    return xt.reshape(_last_five(split, (0, 2, 4, 1, 3)), (*outer, channels * r**2, height // r, width // r))


def _last_five(x: Tensor, order: tuple[int, ...]) -> Tensor:
    """Return x with its last five axes in an order."""
    outer = x.ndim - 5
    found: Tensor = xt.permute_dims(x, (*range(outer), *[outer + one for one in order]))
    return found


# ---- samples at any places


def affine_grid(theta: Tensor, size: Sequence[int], /, *, align_corners: bool = False) -> Tensor:
    """Return the grid of an affine map for `grid_sample`.

    theta (batch, 2, 3) gives (batch, height, width, 2), and (batch, 3, 4) gives (batch, depth, height, width, 3). size:
    (batch, channels, *lengths), the shape of the result of `grid_sample`. Raises ValueError for other shapes. Source:
    torch.nn.functional.affine_grid.
    """
    theta, rank = floating(theta, "affine_grid", "theta"), len(size) - 2
    batch, _, *lengths = each(tuple(size), len(size), "affine_grid", "size", least=1) if rank > 0 else (0, 0)
    if rank not in (2, 3) or theta.shape != (batch, rank, rank + 1):
        must = "have shape (batch, 2, 3) for a size of 4 lengths, (batch, 3, 4) for one of 5"
        raise ValueError(expected("affine_grid", "theta", must, f"shape {theta.shape} and size {tuple(size)}"))
    places = np.ones((*lengths, rank + 1))
    for axis, n in enumerate(lengths):
        ends = np.linspace(-1, 1, n) if align_corners else (2 * np.arange(n) + 1) / n - 1
        places[..., rank - 1 - axis] = (ends if n > 1 else np.zeros(1)).reshape(-1, *[1] * (rank - 1 - axis))
    base = asarray_host(places.reshape(-1, rank + 1), "affine_grid", "places", theta.dtype, theta.device)
    found: Tensor = xt.reshape(xt.matmul(base, xt.matrix_transpose(theta)), (batch, *lengths, rank))
    return found


@composed
def grid_sample(
    x: Tensor,
    grid: Tensor,
    /,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    *,
    align_corners: bool = False,
) -> Tensor:
    """Return x sampled at the places of a grid.

    x (batch, channels, height, width) with a grid (batch, *places, 2) gives (batch, channels, *places); x with three
    spatial axes takes a grid (batch, *places, 3). grid: from -1 to 1 along each axis, with the last axis of x first;
    NaN counts as -1. mode: "bilinear" interpolates between the 4 or 8 elements around a place, "nearest" takes the
    nearest one. padding_mode: the values outside: "zeros", the "border", or a "reflection" at it. Raises ValueError if
    shapes do not fit or for other words, TypeError unless both are real floating. Source:
    torch.nn.functional.grid_sample.
    """
    x, grid = floating(x, "grid_sample"), floating(grid, "grid_sample", "grid")
    check_choice("grid_sample", "mode", mode, ("bilinear", "nearest"))
    check_choice("grid_sample", "padding_mode", padding_mode, PADDINGS)
    rank = x.ndim - 2
    if rank not in (2, 3) or grid.ndim != x.ndim or grid.shape[0] != x.shape[0] or grid.shape[-1] != rank:
        must = f"have {x.ndim} axes, (batch, *places, {rank}), for x of 4 or 5 axes, of shape {x.shape}"
        raise ValueError(expected("grid_sample", "grid", must, f"shape {grid.shape}"))
    batch, channels, *lengths = x.shape
    if not all(lengths):
        raise ValueError(expected("grid_sample", "x", "have elements along the spatial axes", f"shape {x.shape}"))
    at = [_place(grid[..., rank - 1 - axis], n, padding_mode, bool(align_corners)) for axis, n in enumerate(lengths)]
    flat, total = xt.reshape(xt.moveaxis(x, 1, -1), (batch * prod(lengths), channels)), None
    for corner in product(*[_corners(place, n, mode) for place, n in zip(at, lengths, strict=True)]):
        part = _picked(flat, lengths, corner)
        total = part if total is None else total + part
    found: Tensor = xt.moveaxis(xt.reshape(total, (*grid.shape[:-1], channels)), -1, 1)
    return found


def _place(ends: Tensor, length: int, padding_mode: str, align_corners: bool) -> Tensor:
    """Return places along an axis, which are counted in elements, of those from -1 to 1."""
    ends = xt.where(xt.isnan(ends), -1, ends)
    at = (ends + 1) * ((length - 1) / 2) if align_corners else ((ends + 1) * length - 1) / 2
    if padding_mode == "reflection":
        low, span = (0.0, length - 1.0) if align_corners else (-0.5, float(length))
        if span == 0:
            return xt.zeros_like(at)
        far = xt.abs(xt.where(xt.isfinite(at), at, low) - low)
        turns = xt.floor(far / span)
        inside = far - turns * span
        at = xt.where(xt.remainder(turns, 2) == 0, inside, span - inside) + low
    if padding_mode == "zeros":
        return xt.clip(at, -2, length + 1)  # what is farther is outside all the same, and may be infinite
    return hardtanh(at, 0.0, length - 1.0)  # whose derivative at the bounds is PyTorch's


class Corner(NamedTuple):
    """Elements next to places along an axis: their numbers, whether they exist, and their weights."""

    number: Tensor
    there: Tensor
    weight: Tensor | int


def _corners(at: Tensor, length: int, mode: str) -> list[Corner]:
    """Return the elements around places along an axis."""
    first = xt.stop_gradient(xt.round(at) if mode == "nearest" else xt.floor(at))
    share = at - first
    weighted = [(first, 1)] if mode == "nearest" else [(first, 1 - share), (first + 1, share)]
    found = []
    for place, weight in weighted:
        number = xt.astype(xt.clip(place, 0, length - 1), xt.int64)
        found.append(Corner(number, (place >= 0) & (place <= length - 1), weight))
    return found


def _picked(flat: Tensor, lengths: Sequence[int], corner: Sequence[Corner]) -> Tensor:
    """Return elements of x, rows of channels (batch * positions, channels), times their weights: (places, channels)."""
    number, there, weight = corner[0]
    for n, one in zip(lengths[1:], corner[1:], strict=True):
        number, there, weight = number * n + one.number, there & one.there, weight * one.weight
    images = xt.arange(number.shape[0], device=flat.device) * prod(lengths)
    rows = xt.take(flat, xt.reshape(number + along(images, 0, number.ndim), (-1,)), axis=0)
    found: Tensor = xt.where(xt.reshape(there, (-1, 1)), rows, 0)
    return found if isinstance(weight, int) else found * xt.reshape(weight, (-1, 1))

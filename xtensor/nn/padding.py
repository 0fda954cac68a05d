"""Padding: what stands around an array, by widths and mode."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal, get_args

import numpy as np

from ..base.dtypes import check_real
from ..base.errors import check_choice, expected
from ..base.layout import Shape, as_axes
from ..standard.padded import padded, sources
from ..tensor.face import Scalar, Tensor
from ..tensor.operands import as_tensor
from .taps import Taps, by_planes, pay
from .windows import as_pairs

__all__ = ["pad"]

Mode = Literal["zeros", "reflect", "replicate", "circular"]
MODES: tuple[Mode, ...] = get_args(Mode)

# The longest rows that are gathered: of longer ones, copies of the middle and of the edges take less time.
SHORT = 64


def pad(
    x: Tensor, /, width: Any, *, mode: Mode = "zeros", value: Scalar = 0, axes: int | tuple[int, ...] | None = None
) -> Tensor:
    """Return x with elements added around it, or taken away where a width is negative.

    width: how many before and after: a number, one per axis, or a pair per axis. axes: the axes that the widths are
    for; None: the last ones if there are several widths, all for a single number. mode: "zeros" adds `value`; "reflect"
    mirrors x without repeating its edge, "replicate" repeats the edge, "circular" continues at the other end of the
    whole of x, also where elements are taken away at one end.

    Raises ValueError for an invalid mode or width: "reflect" takes at most length - 1, "circular" at most length,
    "replicate" needs an element, and no length may become negative.
    """
    x = as_tensor(x, "pad")
    check_choice("pad", "mode", mode, MODES)
    several = isinstance(width, (tuple, list))
    if axes is None and several:
        if len(width) > x.ndim:
            raise ValueError(expected("pad", "width", f"name at most {x.ndim} axes", f"{len(width)} widths"))
        named = tuple(range(x.ndim - len(width), x.ndim))
    else:
        named = as_axes(axes, x.ndim, "pad", "axes")
    widths = [(0, 0)] * x.ndim
    for axis, pair in zip(named, as_pairs(width, len(named), "pad", "width"), strict=True):
        widths[axis] = pair
        check_width(x.shape, axis, pair, mode)
    check_real(np.asarray(value).dtype, x.dtype, "pad", "value")
    if mode != "zeros" and min(map(min, widths), default=0) >= 0 and x.shape[-1] <= SHORT:
        wide = [(axis, x.shape[axis], *pair) for axis, pair in enumerate(widths) if pair != (0, 0)]
        if pay(x, tuple([(axis, length + low + high) for axis, length, low, high in wide]), 1):
            return by_planes(x, tuple([(axis, _repeated(*one, mode)) for axis, *one in wide]), "pad")
    return padded(x, tuple(widths), mode, value)


@lru_cache(256)
def _repeated(length: int, low: int, high: int, mode: Mode) -> Taps:
    """Return the elements along an axis and those that are repeated before and after them."""
    return Taps(length, sources(length, np.arange(-low, length + high), mode)[None])


_LEAST = {"zeros": 0, "reflect": 1, "replicate": 1, "circular": 0}


def check_width(shape: Shape, axis: int, pair: tuple[int, int], mode: Mode, function: str = "pad") -> None:
    """Raise ValueError for widths before and after an axis that a mode cannot fill."""
    length, argument = shape[axis], "width" if function == "pad" else "padding"
    most = {"reflect": length - 1, "circular": length}.get(mode)
    if min(pair) < 0 and length + min(pair[0], 0) + min(pair[1], 0) < 0:
        raise ValueError(expected(function, argument, f"leave something of axis {axis} of shape {shape}", pair))
    wrong = most is not None and max(pair) > max(most, 0)
    if wrong or (max(pair) > 0 and length < _LEAST[mode]):
        limit = f"at most {max(most or 0, 0)}"
        raise ValueError(expected(function, argument, f"be {limit} for mode {mode!r} and axis {axis} of {shape}", pair))

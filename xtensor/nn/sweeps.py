"""Convolutions of thin groups and of few channels by kernels that go over arrays where they lie, in either layout.

x, w and y are as in `contraction`; those of other libraries than NumPy are not for these.
"""

from __future__ import annotations

import numpy as np

from ..devices import library_of
from . import planes
from .channelwise import sum_channels, sweep_channels
from .contraction import Array
from .few import sum_few, sweep_few
from .implicit import THIN_OUTPUTS
from .windows import Axes


def is_thin(x: Array, w: Array) -> bool:
    """Return whether groups have one channel and few outputs."""
    return bool(x.shape[2] == 1 and w.shape[1] <= THIN_OUTPUTS)


def sweep(x: Array, w: Array, y: Array, bias: Array | None, axes: Axes, *, back: bool = False) -> bool:
    """Write outputs, or, going back, inputs y from outputs x, plus a bias (groups, outputs); return whether."""
    if library_of(x) is not np:
        return False
    if is_thin(x, w) and planes.sweep(x, w, y, bias, axes, back=back):
        return True
    return sweep_channels(x, w, y, bias, axes, back=back) or sweep_few(x, w, y, bias, axes, back=back)


def sum_up(x: Array, y: Array, w: Array, axes: Axes, budget: int) -> bool:
    """Write the gradient of weights, sums over positions of y times the windows there, into w; return whether.

    budget: bytes of scratch.
    """
    if library_of(x) is not np:
        return False
    if planes.sum_planes(x, y, w, axes) or sum_few(x, y, w, axes):
        return True
    return sum_channels(x, y, w, axes, budget)

"""Convolutions of thin groups and of few channels by kernels that go over arrays where they lie, in either layout.

x, w and y are as in `contraction`; those of other libraries than NumPy are not for these.
"""

from __future__ import annotations

import numpy as np

from ..devices import library_of
from ..run.joined import Ending
from . import planes
from .channelwise import WIDEST, sum_channels, sweep_channels
from .contraction import Array
from .strips import sweep_strips
from .windows import Axes

# Of groups of one channel so many outputs are few.
THIN_OUTPUTS = 4


def is_thin(x: Array, w: Array) -> bool:
    """Return whether groups have one channel and few outputs."""
    return bool(x.shape[2] == 1 and w.shape[1] <= THIN_OUTPUTS)


def can_end(groups: int, channels: int, outputs: int, last: bool) -> bool:
    """Return whether convolutions go on with what follows, of groups of so many channels and outputs.

    last: whether the channels of y come last.
    """
    thin = channels == 1 and outputs <= THIN_OUTPUTS
    return not thin and not (last and groups > 1 and outputs <= WIDEST)


def sweep(
    x: Array,
    w: Array,
    y: Array,
    bias: Array | None,
    axes: Axes,
    budget: int,
    *,
    back: bool = False,
    ending: Ending | None = None,
) -> bool:
    """Write outputs, or, going back, inputs y from outputs x, plus a bias (groups, outputs), and what follows; return
    whether. budget: bytes of scratch.
    """
    if library_of(x) is not np:
        return False
    if ending is None:
        if is_thin(x, w) and planes.sweep(x, w, y, bias, axes, back=back):
            return True
        if sweep_channels(x, w, y, bias, axes, back=back):
            return True
    if back and all(axis.stride == 1 for axis in axes):  # one convolution, of which there are faster ones
        return False
    return sweep_strips(x, w, y, bias, axes, budget, back=back, ending=ending)


def sum_thin(x: Array, y: Array, w: Array, axes: Axes) -> bool:
    """Write the gradient of weights of thin groups, sums over positions of y times the windows there, into w; return
    whether.
    """
    return library_of(x) is np and (planes.sum_planes(x, y, w, axes) or sum_channels(x, y, w, axes))

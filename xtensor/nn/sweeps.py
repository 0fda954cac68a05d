"""Convolutions of thin groups and of few channels by kernels that go over arrays where they lie, in either layout.

x, w and y are as in `contraction`; those of other libraries than NumPy are not for these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from ..base.caches import make_room
from ..base.options import settings
from ..devices import library_of
from ..plan.costs import CALLS_COMPILED
from ..run.joined import Ending
from ..run.launches import Launches
from .channelwise import WIDEST, channel_sums_of, channels_of
from .contraction import Array, readable
from .planes import plane_sums_of, planes_of
from .strip_products import products_of
from .strips import strips_of
from .windows import Axes

# Of groups of one channel so many outputs are few.
THIN_OUTPUTS = 4


class Runs(Protocol):
    """What runs on arrays that lie as those do that it was made for."""

    def run(self, x: Array, w: Array, y: Array, bias: Any = None, /) -> bool | None:
        """Write outputs, or weights, or, going back, what outputs stand for; return False where that has to be done
        another way.
        """
        ...


# What runs on arrays, by all that its code depends on, or how often such arrays came before; of so many kinds at most.
KINDS = 512
_runs: dict[Any, Runs | int] = {}


def remembered(kind: Any, make: Callable[[bool], Runs | None]) -> Runs | None:
    """Return what runs on arrays of a kind, None where they go another way, under the settings in force here.

    make: returns it, told whether even little work is to be compiled: such arrays come often, or code is asked for.
    """
    engine = settings().engine
    kind = kind, engine
    found = _runs.get(kind, 0)
    if not isinstance(found, int):
        return found
    made = None if 0 < found != CALLS_COMPILED else make(found > 0 or engine == "llvm")
    if not found:
        make_room(_runs, KINDS)
    _runs[kind] = found + 1 if made is None else made
    return made


def known(kind: Any) -> Runs | None:
    """Return what is remembered for arrays of a kind, None where nothing is yet."""
    found = _runs.get((kind, settings().engine), 0)
    return None if isinstance(found, int) else found


def lying(a: Array) -> tuple[Any, ...]:
    """Return all that code depends on of an array."""
    return a.shape, a.strides, a.dtype.num, a.flags.aligned


def is_thin(x: Array, w: Array) -> bool:
    """Return whether groups have one channel and few outputs."""
    return bool(x.shape[2] == 1 and w.shape[1] <= THIN_OUTPUTS)


def can_end(groups: int, channels: int, outputs: int, last: bool) -> bool:
    """Return whether convolutions go on with what follows, of groups of so many channels and outputs.

    last: whether the channels of y come last.
    """
    thin = channels == 1 and outputs <= THIN_OUTPUTS
    return not thin and not (last and groups > 1 and outputs <= WIDEST)


def sweep_of(
    x: Array,
    w: Array,
    y: Array,
    bias: Array | None,
    axes: Axes,
    budget: int,
    *,
    back: bool = False,
    thin: bool = False,
    often: bool = False,
    ending: Ending | None = None,
) -> Launches | None:
    """Return what writes outputs, or, going back, inputs y from outputs x, plus a bias (groups, outputs), and what
    follows: it runs on arrays x, w, y and bias that lie like these. None where there is nothing for such.

    budget: bytes of scratch. thin: whether only groups of few channels are asked for. often: whether it comes so often
    that it is worth compiling however little work it is.
    """
    if library_of(x) is not np:
        return None
    found = None
    if ending is None:
        if is_thin(x, w):
            found = planes_of(x, w, y, bias, axes, back=back, often=often)
        found = found or channels_of(x, w, y, bias, axes, back=back, often=often)
    if found is None and not thin:
        for made_of in (products_of, strips_of):
            found = found or made_of(x, w, y, bias, axes, budget, back=back, often=often, ending=ending)
    return found


def sweep(
    x: Array, w: Array, y: Array, bias: Array | None, axes: Axes, budget: int, *, ending: Any = None, **how: bool
) -> bool:
    """Run what `sweep_of` returns, on copies of what code does not read where it lies; return whether there is any.

    ending: of class Ending, None where nothing follows. how: `back` and `thin`, as there.
    """
    dtype = y.dtype
    if library_of(x) is not np or dtype.char not in "fd":
        return False
    w, bias = (one if one is None or readable(one, dtype) else one.astype(dtype) for one in (w, bias))
    if not readable(x, dtype) or dtype.itemsize not in (x.strides[2], x.strides[-1]):
        x, budget = x.astype(dtype, "C"), budget - x.size * dtype.itemsize
    found = None
    if budget > 0:
        found = sweep_of(x, w, y, bias, axes, budget, ending=ending, **how)
    if found is not None:
        found.run(x, w, y, bias, *([] if ending is None else [ending.slots_of(y.shape[1])]))
    return found is not None


def thin_sums_of(x: Array, w: Array, y: Array, axes: Axes, *, often: bool = False) -> Runs | None:
    """Return what writes the gradient of weights of thin groups, sums over positions of y times the windows there, into
    w; None where there is nothing for such arrays.
    """
    return plane_sums_of(x, w, y, axes, often=often) or channel_sums_of(x, w, y, axes, often=often)

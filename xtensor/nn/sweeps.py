"""Convolutions of thin groups and of few channels by kernels that go over arrays where they lie, in either layout.

x, w and y are as in `contraction`; these kernels take NumPy's arrays only.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any, Protocol

import numpy as np
from numpy.lib.array_utils import byte_bounds

from ..base.caches import make_room
from ..base.options import settings
from ..devices import library_of
from ..plan.costs import CALLS_COMPILED, PRODUCT_SECONDS
from ..run.joined import Ending
from ..run.launches import Launches, Sheet, X, Y
from ..run.native import SCRATCH, Launch, Place
from .channelwise import WIDEST, channel_sums_of, channels_of
from .contraction import Array, pays, readable
from .disjoint import are_single, disjoint, patch_rows
from .panels import zeroed
from .planes import plane_sums_of, planes_of
from .strip_products import products_of
from .strips import Bases, Made, strips_of
from .windows import Axes, phases_back, volume

# The most outputs of a group of one channel that count as few.
THIN_OUTPUTS = 4


class Runs(Protocol):
    """An object that runs on arrays which lie like those that it was made for."""

    def run(self, x: Array, w: Array, y: Array, bias: Any = None, /) -> bool | None:
        """Write outputs, or the gradient of weights, or, going back, inputs; return False if that has to be done
        another way.
        """
        ...


# Objects that run on arrays, by all that their code depends on, or how often such arrays came before; the most of them.
KINDS = 512
_runs: dict[Any, Runs | int] = {}


def remembered(kind: Any, make: Callable[[bool], Runs | None]) -> Runs | None:
    """Return what runs on arrays of a kind, under the settings in force here; None if they are computed another way.

    make: returns it; its argument says whether to compile however little work it is, as it comes often or is asked for.
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


def known(kind: Any, make: Callable[[bool], Runs | None] | None = None) -> Runs | None:
    """Return the object remembered for arrays of a kind, None if there is none yet. make: makes it then, for arrays
    that will come often.
    """
    kind = kind, settings().engine
    found = _runs.get(kind, 0)
    if not isinstance(found, int):
        return found
    made = None if make is None else make(True)
    if made is not None:
        if kind not in _runs:
            make_room(_runs, KINDS)
        _runs[kind] = made
    return made


def lying(a: Array) -> tuple[Any, ...]:
    """Return everything about an array that code depends on."""
    return a.shape, a.strides, a.dtype.num, a.flags.aligned


def is_thin(x: Array, w: Array) -> bool:
    """Return whether groups have one channel and few outputs."""
    return bool(x.shape[2] == 1 and w.shape[1] <= THIN_OUTPUTS)


def can_end(groups: int, channels: int, outputs: int, last: bool) -> bool:
    """Return whether convolutions of groups of so many channels and outputs compute the steps that follow as well.

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
    """Return launches that write outputs, or, going back, inputs y from outputs x, plus a bias (groups, outputs), and
    the steps that follow. They run on arrays x, w, y and bias that lie like these. None where no kernel applies.

    Whatever the kernel, each sum is in the order of the window, with the channels innermost; going back, w is (groups,
    channels, outputs, *window). budget: bytes of scratch memory. thin: whether only groups of few channels are to be
    computed. often: whether such arrays come so often that compiling pays however little work they are.
    """
    if library_of(x) is not np:
        return None
    found = None
    if ending is None:
        if is_thin(x, w):
            found = planes_of(x, w, y, bias, axes, back=back, often=often)
        found = found or channels_of(x, w, y, bias, axes, back=back, often=often)
    work = (x if back else y).size * prod(w.shape[2:])
    if found is not None or thin or not x.size or not pays(y, work, often):
        return found
    if not all(readable(one, y.dtype) for one in (x, w, y, bias) if one is not None):
        return None
    seconds, operands = work * PRODUCT_SECONDS[y.dtype.char], 4 + (ending is not None)
    copied = _by_copies(x, w, y, bias, axes, budget, back, ending)
    if copied is not None:
        return Launches([copied.make], operands, seconds, copied.most)
    bases, given = Bases(x, w, y, bias), phases_back(w, y, axes) if back else [(w, y, axes)]
    reached = [one for one in given if volume(one[2])]
    if len(reached) < len(given) and (bias is not None or not _is_whole(y)):
        return None
    parts = [products_of(x, *reached[0], bases, budget, ending)] if len(reached) == 1 else [None]
    if parts == [None]:
        parts = [strips_of(x, *one, bases, budget, ending) for one in reached]
    made = [one for one in parts if one is not None]
    if not made or len(made) < len(reached):
        return None
    makes = [one.make for one in made]
    if len(reached) < len(given):  # positions that no window reaches are zeros
        rows = len(y) * y.shape[3]
        zeros = partial(zeroed, Place(Y), rows, y.size // rows, y.dtype)
        makes.insert(0, lambda sheet: [zeros(sheet)])
    return Launches(makes, operands, seconds, min([one.most for one in made]))


def _is_whole(y: Array) -> bool:
    """Return whether an array fills a part of memory from its first element on, with its axes in any order."""
    low, high = byte_bounds(y)
    return high - low == y.nbytes and min(y.strides) > 0


def _by_copies(
    x: Array, w: Array, y: Array, bias: Array | None, axes: Axes, budget: int, back: bool, ending: Ending | None
) -> Made | None:
    """Return that for windows that share no position: a product with a copy of their elements, which for outputs is
    worth it for single elements by strides. None for others.
    """
    if not (back or are_single(axes)) or all(axis.stride == 1 for axis in axes):
        return None
    apart = disjoint(y if back else x, axes, Y if back else X)
    if apart is None or apart.packed.nbytes > budget // 2:
        return None
    if back:
        rows = patch_rows(w)
        if rows is None or not y.flags.c_contiguous or (bias is not None and not apart.is_covered):
            return None
        spread = None if bias is None else np.broadcast_to(bias[..., None], (*bias.shape, volume(axes)))
        given, bases = (x, rows, apart.packed), Bases(x, w, apart.packed, spread, of_y=SCRATCH)
    else:
        given, bases = (apart.packed, w, y), Bases(apart.packed, w, y, bias, of_x=SCRATCH)
    rest = budget - apart.packed.nbytes
    found = products_of(*given, apart.axes, bases, rest, ending) or strips_of(*given, apart.axes, bases, rest, ending)
    if found is None:
        return None

    def make(sheet: Sheet) -> list[Launch]:
        packed = sheet.take(apart.packed.size, apart.packed.dtype)  # at the beginning of the scratch memory
        inner = found.make(sheet)
        return [*inner, apart.spread(packed, sheet)] if back else [apart.copied(packed, sheet), *inner]

    return Made(make, found.most)


def sweep(
    x: Array, w: Array, y: Array, bias: Array | None, axes: Axes, budget: int, *, ending: Any = None, **how: bool
) -> bool:
    """Run what `sweep_of` returns, copying arrays that code cannot read in place; return whether there is any.

    ending: of class Ending, None where nothing follows. how: `back` and `thin`, as there.
    """
    dtype = y.dtype
    if library_of(x) is not np or dtype.char not in "fd":
        return False
    w, bias = (one if one is None or readable(one, dtype) else one.astype(dtype) for one in (w, bias))
    if not readable(x, dtype) or dtype.itemsize not in (x.strides[2], x.strides[-1]):
        x, budget = x.astype(dtype, "C"), budget - x.size * dtype.itemsize
    found = sweep_of(x, w, y, bias, axes, budget, ending=ending, **how) if budget > 0 else None
    if found is not None:
        found.run(x, w, y, bias, *([] if ending is None else [ending.slots_of(y.shape[1])]))
    return found is not None


def thin_sums_of(x: Array, w: Array, y: Array, axes: Axes, *, often: bool = False) -> Runs | None:
    """Return an object that writes the gradient of weights of thin groups, sums over positions of y times the windows
    there, into w; None where no kernel applies to such arrays.
    """
    return plane_sums_of(x, w, y, axes, often=often) or channel_sums_of(x, w, y, axes, often=often)

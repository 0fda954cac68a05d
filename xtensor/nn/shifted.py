"""Sums and extremes over windows as shifted views of the input, combined by the engine in one pass over each chunk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial, reduce
from itertools import product
from math import ceil, prod
from typing import Any

import numpy as np

from ..autograd.rules import xt
from ..autograd.tape import OFF, recording
from ..base import threads
from ..base.errors import expected
from ..base.layout import overlap
from ..devices import device_of, library_of
from ..devices.cpu import CPU
from ..tensor.face import Tensor, wrap
from .elsewhere import padded as padded_elsewhere
from .windows import Axes, Places, sizes

Array = Any  # NumPy's, in whose types views of unknown rank cannot be written

# Chunks of about so many bytes are padded, and read again for each element of the window. Smaller ones would stay in
# the cache, but each takes half a millisecond to record.
CHUNK_BYTES = 1 << 24

# A chunk takes so many times its own size of scratch memory, to be padded and for what the engine makes of it.
SHARES = 4

# Copies of more bytes than this are worth waking another thread.
WORTH_SHARING = 1 << 20

Term = Callable[[Tensor, tuple[int, ...]], Tensor]


def combine(
    x: Array,
    y: Array,
    axes: Axes,
    term: Callable[[slice], Term],
    both: Callable[..., Tensor],
    fill: Any,
    budget: int,
    finish: Callable[[Tensor, slice], Tensor] = lambda found, _: found,
) -> None:
    """Write into y, for each output, the terms of its window's elements, combined in the order of the window.

    x, y: (batch, groups, any, *lengths). term: given groups, returns the function that makes a term of a shifted view
    and the index of the window's element. both: combines two terms. fill: the value outside x. budget: bytes of scratch
    memory for padded chunks. finish: makes what is written of the combined terms and a range of groups.
    """
    if not y.size:
        return
    with recording(OFF):
        for images, groups in _chunks(x, budget):
            part = _padded(x[images, groups], axes, fill)
            terms = term(groups)
            elements = product(*(range(axis.kernel) for axis in axes))
            found = reduce(both, (terms(tensor(part[(..., *_where(axes, element))]), element) for element in elements))
            tensor(y[images, groups])[...] = finish(found, groups)


def weighted_sums(function: str, x: Array, w: Array, y: Array, bias: Array | None, axes: Axes, budget: int) -> None:
    """Write into y what `contraction.contract` does, for arrays with the same axes; raises as that does."""
    needed = SHARES * prod(x.shape[2:]) * x.itemsize
    if needed > budget:
        least = ceil(needed / 1e3) / 1e3
        got = f"{budget / 1e6:g} for x {x.shape}, of which one group is added up at a time"
        raise ValueError(expected(function, "workspace_mb", f"be at least {least:g}", got))
    dtype = np.float32 if y.dtype == np.float16 else y.dtype
    w = w.astype(dtype, copy=False)
    beside = (1,) * len(axes)

    def term(groups: slice) -> Term:
        def product_of(part: Tensor, element: tuple[int, ...]) -> Tensor:
            own = w[(groups, ..., *element)]
            terms = [
                part[:, :, channel : channel + 1] * tensor(own[None, :, :, channel].reshape(1, *own.shape[:2], *beside))
                for channel in range(x.shape[2])
            ]
            return reduce(xt.add, terms)

        return product_of

    def finish(found: Tensor, groups: slice) -> Tensor:
        return found if bias is None else found + tensor(bias[groups].reshape(1, -1, bias.shape[1], *beside))

    combine(x, y, axes, term, xt.add, 0, budget, finish)


def tensor(native: Array) -> Tensor:
    """Return a tensor over a native array, without a copy."""
    return wrap(native, device_of(native))


def _chunks(x: Array, budget: int) -> Iterator[tuple[slice, slice]]:
    """Yield ranges of images and of groups that make chunks of about CHUNK_BYTES; none takes a part of a group."""
    one = max(prod(x.shape[2:]) * x.itemsize, 1)
    count = max(min(CHUNK_BYTES, budget // SHARES) // one, 1)
    groups = min(count, x.shape[1])
    images = max(count // x.shape[1], 1) if groups else 1
    for start in range(0, x.shape[0], images):
        for first in range(0, x.shape[1], groups):
            yield slice(start, start + images), slice(first, first + groups)


def _reach(axes: Axes) -> list[tuple[int, int]]:
    """Return, for each axis, the first position that windows touch, and the one behind the last."""
    return [(-axis.low, (axis.out - 1) * axis.stride - axis.low + axis.span) for axis in axes]


def _where(axes: Axes, element: tuple[int, ...]) -> Places:
    """Return where an element of all windows lies, counted from the first position that windows touch."""
    return tuple(
        slice(k * axis.dilation, k * axis.dilation + (axis.out - 1) * axis.stride + 1, axis.stride)
        for k, axis in zip(element, axes, strict=True)
    )


def _padded(x: Array, axes: Axes, fill: Any) -> Array:
    """Return the part of a chunk that windows touch, copied with `fill` around it where they reach beyond the chunk."""
    reach = _reach(axes)
    if all(start >= 0 and stop <= axis.size for (start, stop), axis in zip(reach, axes, strict=True)):
        return x[(..., *(slice(start, stop) for start, stop in reach))]
    lengths = [stop - start for start, stop in reach]
    if library_of(x) is not np:
        return padded_elsewhere(x, axes, reach, fill)
    order = sorted(range(x.ndim), key=lambda axis: -abs(x.strides[axis]))
    shape = (*x.shape[:3], *lengths)
    memory = CPU.allocate(prod(shape) * x.itemsize).view(x.dtype)
    padded: Array = memory.reshape([shape[axis] for axis in order]).transpose(np.argsort(order))
    target, source = overlap(sizes(axes), reach)
    edges: list[Places] = []
    for place, inside in enumerate(target):
        before = (..., *[slice(None)] * place)
        after = [slice(None)] * (len(axes) - place - 1)
        edges += [(*before, slice(0, inside.start), *after), (*before, slice(inside.stop, None), *after)]

    def copy(own: Array, given: Array) -> None:
        for edge in edges:
            own[edge] = fill
        own[(..., *target)] = given[(..., *source)]

    along = 0 if x.shape[0] > 1 else 1
    step = -(-x.shape[along] // threads.count()) if x.nbytes > WORTH_SHARING else x.shape[along]
    cuts = [(slice(None),) * along + (slice(n, n + step),) for n in range(0, x.shape[along], step)]
    threads.run([partial(copy, padded[cut], x[cut]) for cut in cuts])
    return padded

"""Writes while a gradient is recorded: what one piece of memory holds, as a function of what was written into it.

A Buffer that was written has a History: the step of its whole contents, as one flat array. A write puts new values
into some places of it, and every tensor over the memory, view or base, takes its step from there by its layout. So a
program that writes in place has the gradient of what it computes; nothing is refused, and nothing is silently lost.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .blob import Buffer, TBlob, histories
from .dtypes import DType
from .errors import expected
from .layout import Layout
from .options import count_always
from .tape import Leaf, Like, Rule, Step, carry, differentiable, pull_of
from .tensor import Tensor, face


class History:
    """What a buffer holds: the step of its contents as a flat array, after so many writes.

    While one is alive, small operands take no shortcuts: any of them may stand over its memory.
    """

    __slots__ = ("contents", "flat", "writes")

    def __init__(self, buffer: Buffer, dtype: DType) -> None:
        self.contents: Step | None = None
        self.flat = Like((buffer.nbytes // dtype.itemsize,), dtype, buffer.device)
        self.writes = 0
        count_always(1)
        count_always(1, histories)

    def __del__(self) -> None:
        count_always(-1)
        count_always(-1, histories)

    def step_of(self, x: Tensor) -> Step | None:
        """Return the step of a tensor over this memory."""
        step = x._step
        if (type(step) is Leaf and step.asked) or (step is not None and step.seen == self.writes):
            return step
        self._check_dtype(x)
        step = Step(gathered.rule, (self.contents,), x)  # type: ignore[attr-defined, arg-type]
        step.slots = [("flat", None)]
        step.given = {"layout": x.blob.layout}
        step.seen = self.writes
        carry(x, step)
        return step

    def put(self, target: Tensor, step: Step | None) -> None:
        """Take down a write into the places of a target: what was written has a step, or none if it is constant."""
        self._check_dtype(target)
        parents = [(name, one) for name, one in (("flat", self.contents), ("new", step)) if one is not None]
        contents = Step(_PUT, tuple([one for _, one in parents]), self.flat)
        contents.slots = [(name, None) for name, _ in parents]
        contents.given = {"layout": target.blob.layout}
        self.contents = contents
        self.writes += 1

    def _check_dtype(self, x: Tensor) -> None:
        if x.dtype != self.flat.dtype:
            must = f"be of {self.flat.dtype}, as what was written into their memory, to have a gradient"
            raise NotImplementedError(expected("grad", "views", must, x.dtype))


def written(target: Tensor, step: Step | None) -> None:
    """Take down that a target's memory was written; `step` is that of the values, None for constants."""
    buffer = target.blob.buffer
    if buffer.history is None:
        history = History(buffer, target.dtype)
        origin, layout = _origin(target)
        if origin is not None:
            whole = face(target.blob.view(layout))
            history.put(whole, origin)
        buffer.history = history
    buffer.history.put(target, step)
    target._small = None


def refuse_leaf(target: Tensor, function: str) -> None:
    """Raise RuntimeError for a target that is a leaf, or a view of one: its gradient would lose its meaning."""
    step, _ = _origin(target)
    if type(step) is Leaf and step.asked:
        must = "not be a tensor that requires a gradient, or a view of one (write inside `with no_grad():`)"
        raise RuntimeError(expected(function, "the target", must, f"one of shape {target.shape}"))


def _origin(target: Tensor) -> tuple[Step | None, Layout]:
    """Return the step of what a tensor is a view of, views of views followed back, and its layout."""
    step, layout = target._step, target.blob.layout
    while step is not None and step.within is not None:
        layout, step = step.within, step.parents[0]
    return step, layout


# ---- the flat array and its places; each is the adjoint of another, so that they can be differentiated again


def _places(flat: Tensor, layout: Layout) -> Any:
    """Return the native array of the places of a layout in a packed flat array."""
    blob = flat.blob
    return TBlob(blob.buffer, blob.dtype, layout, blob.device).native()


def _back_to(g: Tensor, layout: Layout, like: Like) -> Tensor:
    return scattered(g, layout, like)


def _without(g: Tensor, layout: Layout) -> Tensor:
    return erased(g, layout)


def _packed_copy(flat: Tensor) -> Tensor:
    return flat.copy()


@differentiable(flat=lambda g, like, layout: _back_to(g, layout, like))
def gathered(flat: Tensor, layout: Layout) -> Tensor:
    """Return the elements of a flat array at the places of a layout."""
    return face(TBlob.adopt(np.array(_places(_packed_copy(flat), layout), order="C"), flat.device))


@differentiable(values=lambda g, layout: gathered(g, layout))
def scattered(values: Tensor, layout: Layout, like: Like) -> Tensor:
    """Return a flat array of zeros with values added at the places of a layout, which may repeat."""
    buffer = Buffer(like.device, like.size * like.dtype.itemsize)
    flat = TBlob(buffer, like.dtype, Layout(like.shape, (like.dtype.itemsize,), 0), like.device)
    flat.native()[...] = 0
    if layout.may_repeat():
        numbers = np.arange(like.size)
        itemsize = like.dtype.itemsize
        at = np.lib.stride_tricks.as_strided(
            numbers[layout.offset // itemsize :],
            layout.shape,
            tuple(stride // itemsize * numbers.itemsize for stride in layout.strides),
        )
        np.add.at(flat.native(), at, values.native())
    else:
        TBlob(buffer, like.dtype, layout, like.device).native()[...] = values.native()
    return face(flat)


@differentiable(flat=lambda g, layout: _without(g, layout))
def erased(flat: Tensor, layout: Layout) -> Tensor:
    """Return a flat array with zeros at the places of a layout."""
    copy = _packed_copy(flat)
    _places(copy, layout)[...] = 0
    return copy


_PUT = Rule(
    "setitem",
    {
        "flat": pull_of(lambda g, layout: erased(g, layout)),
        "new": pull_of(lambda g, layout: gathered(g, layout)),
    },
)

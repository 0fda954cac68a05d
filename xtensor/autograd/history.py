"""Writes while a gradient is recorded: the contents of memory, as a function of the values written into it.

A Storage that was written has a History: the step of its whole contents, as one flat array. A write puts new values
into some places of that, and every tensor over the memory, view or base, derives its step from it by its layout. So a
program that writes in place has the right gradient, and nothing is silently lost. Only writes to leaves are refused.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any, NamedTuple, cast

import numpy as np

from ..base.dtypes import DType, real_of
from ..base.errors import expected
from ..base.layout import Layout, Shape
from ..base.options import Closing, counting
from ..devices import Device
from ..storage.blob import TBlob
from ..storage.storage import Native, Storage, histories, watchers, watching
from ..tensor.face import Tensor, face
from .rules import Like, Rule, pull_of, xt
from .tape import Leaf, Step, carry, differentiable, now


class Write(NamedTuple):
    """One write: when it happened, its dtype and target, and the step of the values written, None for constants."""

    serial: int
    dtype: DType
    layout: Layout
    step: Step | None


class History:
    """The writes into some memory, and its contents after them, as steps of flat arrays.

    contents: for every beginning from which tensors show the memory, the step of the whole after some writes, and
        their number. A beginning is the step that a tensor, or its base, had before these writes; its key is the serial
        of that step, 0 for constants.
    The flat array has the real dtype of the first write, so that it holds complex numbers as their parts. While a
    history is alive, small operands take no shortcuts: any of them may be over its memory.
    """

    __slots__ = ("closing", "contents", "counted", "flat", "writes")

    def __init__(self, owner: Storage, dtype: DType) -> None:
        self.counted = False
        self.contents: dict[int, tuple[Step | None, int]] = {}
        real = real_of(dtype)
        self.flat = Like((owner.nbytes // real.itemsize,), real, owner.device)
        self.writes: list[Write] = []
        self.closing = Closing()
        self._count(1)

    def __del__(self) -> None:
        if self.counted:  # an interrupt may have come before
            self._count(-1)

    def _count(self, change: int) -> None:
        """Count this history in or out. Nothing is called in between, where an interrupt could come."""
        with counting:
            histories[0] += change
            self.counted = change > 0

    def step_of(self, x: Tensor) -> Step | None:
        """Return the step of a tensor over this memory, None for constants and integers."""
        step: Step | None = x._step
        count = len(self.writes)
        if (type(step) is Leaf and step.asked) or (
            step is not None and step.seen is not None and step.seen[1] == count
        ):
            return step
        if x.dtype.kind not in "fc":
            return None
        origin, layout = _origin(x)
        key, done = (origin.seen if origin is not None else None) or self._beginning(origin)
        if done == count and origin is not None and origin.seen is None:
            return step  # it begins after the last write
        contents, done = self.contents.get(key) or (self._begun(origin, layout), done)
        for write in self.writes[done:]:
            contents = self._put(contents, write)
        self.contents[key] = contents, count
        return None if contents is None else self._seen(x, contents, (key, count))

    def _begun(self, origin: Step | None, layout: Layout) -> Step | None:
        """Return the step of contents that begin with those of one tensor."""
        return None if origin is None else self._put(None, Write(0, origin.dtype, layout, origin))

    def _beginning(self, origin: Step | None) -> tuple[int, int]:
        """Return the key of a tensor's beginning, and the number of writes before it."""
        serial = 0 if origin is None else origin.serial
        return serial, bisect_left(self.writes, serial, key=lambda write: write.serial)

    def _seen(self, x: Tensor, contents: Step, seen: tuple[int, int]) -> Step:
        """Give a tensor that shows some places of the contents its step, and return that."""
        rule: Rule = gathered.rule if self._holds(x.dtype) else _REREAD  # type: ignore[attr-defined]
        step = Step(rule, (contents,), x)
        step.slots = (("flat", None),)
        step.given = {"layout": x.blob.layout, "dtype": x.dtype}
        step.seen = seen
        carry(x, step)
        return step

    def _put(self, contents: Step | None, write: Write) -> Step | None:
        """Return the step of contents after a write, None where all is constant."""
        parents = [(name, one) for name, one in (("flat", contents), ("new", write.step)) if one is not None]
        if not parents:
            return None
        step = Step(_PUT if self._holds(write.dtype) else _REREAD, tuple([one for _, one in parents]), self.flat)
        step.slots = tuple([(name, None) for name, _ in parents])
        step.given = {"layout": write.layout, "dtype": write.dtype}
        return step

    def _holds(self, dtype: DType) -> bool:
        """Return whether the flat array holds numbers of a dtype as they are."""
        return real_of(dtype) == self.flat.dtype


def written(target: Tensor, step: Step | None) -> None:
    """Record that a target's memory was written; `step` is that of the values, None for constants."""
    blob = target.blob
    if blob.constant:
        return
    owner = blob.owner
    history = owner.history
    if history is None:
        history = owner.guarded().history = History(owner, target.dtype)
    history.writes.append(Write(now(), target.dtype, blob.layout, step))


def refuse_leaf(target: Tensor, function: str) -> None:
    """Raise RuntimeError for a target that is a leaf, or a view of one: its gradient would lose its meaning."""
    step, _ = _origin(target)
    if type(step) is Leaf and step.asked:
        must = "not be a tensor that requires a gradient, or a view of one (write inside `with no_grad():`)"
        raise RuntimeError(expected(function, "the target", must, f"one of shape {target.shape}"))


def _origin(target: Tensor) -> tuple[Step | None, Layout]:
    """Return the step of a tensor's base, followed back through views of views, and the tensor's layout in that.

    A reshape that had to copy is no view: the search ends there.
    """
    step, layout = target._step, target.blob.layout
    while step is not None and step.within is not None:
        within = step.within
        whole = within if isinstance(within, Layout) else within(layout)
        if whole is None:
            break
        layout, step = whole, step.parents[0]
    return step, layout


# ---- functions of the flat array and its places; the adjoint of each is among them, to be differentiated again


def _places(native: Native, layout: Layout, dtype: DType, device: Device) -> Native:
    """Return the view of a packed flat array at the places of a layout."""
    whole = TBlob.adopt(native, device)
    there = Layout(layout.shape, layout.strides, layout.offset + whole.layout.offset)
    return TBlob(whole.owner, dtype, there, device).native()


def _is_captured(x: Tensor, layout: Layout, dtype: DType) -> bool:
    """Return whether the functions below are to be fusible steps of a function that is captured."""
    return bool(watchers) and watching() is not None and x.dtype == dtype and not layout.may_repeat()


def _zeros(shape: Shape, like: Tensor | Like) -> Tensor:
    capture: Any = watching()
    zero = face(capture.constant(np.zeros((), like.dtype), like.device))
    return cast(Tensor, xt.broadcast_to(zero, shape))


def _copied(x: Tensor) -> Tensor:
    return cast(Tensor, xt.calls.writes.cast_now(x))


def _shown(flat: Tensor, layout: Layout) -> Tensor:
    """Return a view of a packed flat array at the places of a layout."""
    return flat.viewed(Layout(layout.shape, layout.strides, layout.offset + flat.blob.layout.offset))


def _assigned(flat: Tensor, layout: Layout, values: Tensor) -> Tensor:
    xt.calls.writes.assign_captured(_shown(flat, layout), values, "setitem")
    return flat


@differentiable(flat=lambda g, like, layout: _back_to(g, layout, like))
def gathered(flat: Tensor, layout: Layout, dtype: DType) -> Tensor:
    """Return the elements of a flat array at the places of a layout."""
    device = flat.device
    if _is_captured(flat, layout, dtype):
        return _copied(_shown(flat if flat.blob.is_packed else _copied(flat), layout))
    contiguous = device.backend.library.ascontiguousarray
    found: Tensor = xt.calls.library.on(
        flat, "getitem", lambda xp, native: _places(contiguous(native), layout, dtype, device).copy()
    )
    return found


def _back_to(g: Tensor, layout: Layout, like: Like) -> Tensor:
    return scattered(g, layout, like)


@differentiable(values=lambda g, layout, like: gathered(g, layout, like.dtype))
def scattered(values: Tensor, layout: Layout, flat: Like) -> Tensor:
    """Return a flat array of zeros to which values were added at the places of a layout; places may repeat."""
    shape, dtype, device = flat.shape, flat.dtype, flat.device
    if _is_captured(values, layout, dtype):
        return _assigned(_copied(_zeros(shape, flat)), layout, values)
    found: Tensor = xt.calls.library.on(
        values, "setitem", lambda xp, native: _scattered(native, layout, device.backend.zeros(shape, dtype), device)
    )
    return found


def _scattered(values: Native, layout: Layout, result: Native, device: Device) -> Native:
    """Return zeros with values added at the places of a layout."""
    backend, there = device.backend, _places(result, layout, values.dtype, device)
    if not layout.may_repeat():
        backend.assign(there, ..., values)
        return result
    # a zero stride repeats the same places: the values for each are summed
    axes = enumerate(zip(layout.shape, layout.strides, strict=True))
    stretched = tuple(axis for axis, (length, stride) in axes if length > 1 and not stride)
    once = there[tuple(slice(0, 1) if a in stretched else slice(None) for a in range(there.ndim))]
    backend.assign(once, ..., values.sum(axis=stretched, keepdims=True))
    return result


@differentiable(flat=lambda g, layout, dtype: _without(g, layout, dtype))
def erased(flat: Tensor, layout: Layout, dtype: DType) -> Tensor:
    """Return a flat array with zeros at the places of a layout."""
    device = flat.device
    if _is_captured(flat, layout, dtype):
        return _assigned(_copied(flat), layout, _zeros(layout.shape, flat))

    def erase(xp: Any, native: Native) -> Native:
        copy = native.copy()
        device.backend.assign(_places(copy, layout, dtype, device), ..., 0)
        return copy

    found: Tensor = xt.calls.library.on(flat, "setitem", erase)
    return found


def _without(g: Tensor, layout: Layout, dtype: DType) -> Tensor:
    return erased(g, layout, dtype)


_PUT = Rule(
    "setitem",
    {
        "flat": pull_of(lambda g, layout, dtype: erased(g, layout, dtype)),
        "new": pull_of(lambda g, layout, dtype: gathered(g, layout, dtype)),
    },
)

# For memory written as numbers of one size and read or written as another: going back raises an error that says so.
_REREAD = Rule("view of another dtype", {})

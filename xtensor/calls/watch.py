"""Watching a function run once, to learn whether its result is an expression of its arguments alone."""

from __future__ import annotations

import os
from contextlib import suppress
from threading import get_ident
from typing import Any

from ..base.options import count_always
from ..storage.blob import TBlob
from ..storage.storage import Storage, watchers
from ..tensor.face import Tensor, face

LOOKED = "it asks for values of an argument, or a step of it cannot be recorded"
WRITES = "it writes to a tensor"
DISTURBED = "another thread used an argument meanwhile, or the process was forked"


class Watch:
    """What happens while a function runs: used as `with watch:`, it is told of all that happens to buffers.

    The function is given stand-ins: tensors over its arguments' own memory of which nothing is remembered yet, so that
    nobody sees a value without asking for it.

    reason: why the result is no expression of the arguments, "" as long as it may be one; DISTURBED where that did
        not come out.
    buffers: the arguments' memory.
    roots: the blobs that show arguments' memory, as `run.expression.record` takes them.
    """

    def __init__(self) -> None:
        self.reason = ""
        self.roots: dict[TBlob, tuple[int, int, bool]] = {}
        self.thread = get_ident()
        self.buffers: set[Storage] = set()
        self._stand_ins: list[tuple[Tensor, Tensor, TBlob]] = []

    def stand_in(self, x: Any) -> Any:
        """Return what the function is given in the place of an argument."""
        if type(x) is not Tensor:
            return x
        own = x.blob
        blob = TBlob(own.owner, own.dtype, own.layout, own.device, writeable=own.writeable)
        blob.detached = own.detached
        self.roots[blob] = (len(self._stand_ins), 0, False)
        self.buffers.add(blob.owner)
        shown = face(blob)
        self._stand_ins.append((x, shown, blob))
        return shown

    def own(self, x: Any) -> Any:
        """Return the argument that something stands in for, or just that."""
        return next((tensor for tensor, shown, _ in self._stand_ins if shown is x), x)

    def __enter__(self) -> None:
        count_always(1)
        watchers.append(self)

    def __exit__(self, *failure: object) -> None:
        with suppress(ValueError):  # a fork has stopped it
            watchers.remove(self)
            count_always(-1)
        for tensor, shown, blob in self._stand_ins:
            if shown._data is not blob:  # it was resized
                tensor._data, tensor._blob = shown._data, None

    # ---- what it is told

    def looked(self, owner: Storage) -> None:
        if owner in self.buffers:
            self._refuse(LOOKED)

    def written(self, owner: Storage) -> None:
        if owner in self.buffers or get_ident() == self.thread:
            self._refuse(WRITES)

    def _refuse(self, reason: str) -> None:
        """Take a reason: a write is the best one, what another thread does is none that stays."""
        if get_ident() != self.thread:
            reason = DISTURBED
        if not self.reason or reason == WRITES:
            self.reason = reason

    def viewed(self, blob: TBlob, view: TBlob) -> None:
        if blob in self.roots:
            argument, after, _ = self.roots[blob]
            self.roots[view] = (argument, after + view.layout.offset - blob.layout.offset, True)


def is_watched() -> bool:
    """Return whether this thread runs a function that is being watched."""
    here = get_ident()
    return any(isinstance(watch, Watch) and watch.thread == here for watch in tuple(watchers))


def _stop() -> None:
    """Give up in the child of a fork, where the threads that are watched are not."""
    for watch in tuple(watchers):
        if isinstance(watch, Watch):
            watch.reason = DISTURBED
            count_always(-1)
    watchers.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_stop)

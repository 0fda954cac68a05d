"""The block in which a function is watched while it is captured."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from ..base.garbage import uncollected
from ..base.options import Closing, Settings, in_force, settings
from ..plan.costs import CAPTURED_STEPS
from ..run.executor import at_once
from ..storage.storage import watchers

if TYPE_CHECKING:
    from ..run.capture import Capture


class Watch:
    """A block in which a call is watched and every step is recorded. Watching stops at the end of the block, or as soon
    as the call cannot be captured, so that the rest of the call costs no more than a plain call.
    """

    def __init__(self, capture: Capture) -> None:
        self._capture = capture
        self._trusted, self._until_end = ExitStack(), ExitStack()
        self._before = in_force.get()
        self._settings: Settings | None = None

    def __enter__(self) -> Watch:
        try:
            self._begin()
        except BaseException:  # an interrupt
            self.close()
            raise
        return self

    def _begin(self) -> None:
        self._trusted.enter_context(at_once([blob.owner for blob in self._capture.arguments]))
        steps = max(settings().fuse_limit, CAPTURED_STEPS)  # a gradient has many steps, and is planned once
        for context in (uncollected(), self._capture):
            self._until_end.enter_context(context)
        self._settings = settings()._replace(lazy="always", fuse_limit=steps)
        self._closing = Closing()
        self._until_end.callback(self._restore)
        in_force.set(self._settings)  # last: an interrupt before it leaves nothing to restore
        self._capture.given_up = self._give_up

    def _restore(self) -> None:
        in_force.set(self._before)
        self._closing.end()

    def _give_up(self) -> None:
        """Stop early, unless a block with other settings is open, which would restore its settings when it ends."""
        if in_force.get() is self._settings:
            self.close()

    def close(self) -> None:
        """Stop watching; from then on calls are recorded only where it pays."""
        with self._trusted:  # it ends even if an interrupt hits the other stack
            self._until_end.close()
        is_left = self._settings is not None and in_force.get() is self._settings
        if is_left or self._capture in watchers:  # after an interrupt
            in_force.set(self._before)
            self._capture.__exit__()

    def __exit__(self, *failure: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_settings"):  # else it was interrupted in __init__
            self.close()

"""Locks that a forked child finds open, whatever another thread of its parent was doing."""

from __future__ import annotations

import os
import threading
from contextlib import AbstractContextManager


def fork_safe_lock() -> AbstractContextManager[bool]:
    """Return a re-entrant lock, made anew in the child of a fork: the thread that held it is not there."""
    lock = threading.RLock()
    if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
        os.register_at_fork(after_in_child=lock._at_fork_reinit)  # type: ignore[attr-defined]
    return lock

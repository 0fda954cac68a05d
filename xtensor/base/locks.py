"""Locks that are open in a forked child, whatever another thread of its parent was doing."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")

# Locks that a fork waits for, the outer ones first: a thread that holds one may take those after it.
_waited_for: list[Any] = []

# Those of them that the thread which is forking has taken for that.
_taken: list[Any] = []


def fork_safe_lock() -> Any:
    """Return a re-entrant lock, made anew in the child of a fork if another thread held it, which the child lacks."""
    lock = threading.RLock()
    if hasattr(os, "register_at_fork"):  # Windows has no fork
        os.register_at_fork(after_in_child=partial(_open, lock))
    return lock


def _open(lock: Any) -> None:
    """Make a lock anew in a child, unless the thread that forked holds it: a finalizer or a signal handler inside a
    guarded block may fork, and the block goes on in the child.
    """
    if not lock._is_owned():
        lock._at_fork_reinit()


def holding(lock: Any, task: Callable[[], T]) -> T | None:
    """Run a task under a re-entrant lock and return its result; None, with nothing done, if any thread, including this
    one, holds the lock.

    It is released even if an interrupt comes right after it was taken, before `acquire` has returned.
    """
    if lock._is_owned():
        return None
    try:
        return task() if lock.acquire(False) else None
    finally:
        try:  # noqa: SIM105 - `suppress` would give another interrupt time to come
            lock.release()
        except RuntimeError:
            pass  # another thread has it


def fork_waiting_lock() -> Any:
    """Return a fork-safe lock that a fork waits for, so that no thread is inside a block that it guards.

    For work that would leave more than our own memory in an odd state, such as a half imported module. A lock made
    later may be taken by a thread that holds an earlier one, never the other way round.
    """
    lock = fork_safe_lock()
    _waited_for.append(lock)
    return lock


def _acquire_all() -> None:
    for lock in _waited_for:
        lock.acquire()
        _taken.append(lock)


def _release_all() -> None:
    taken = _taken[::-1]
    _taken.clear()  # before the first is released: another thread may wait to fork
    for lock in taken:
        lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_acquire_all, after_in_parent=_release_all, after_in_child=_release_all)

"""Notes of work for profilers: what was computed, by what, how long it took and how many bytes it moved.

Instructions of schedules, library functions, the preparation of schedules, and waits are noted by `noted` or `noting`,
but only while there are `observers`, which is rare.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable
from time import perf_counter
from typing import Any, NamedTuple

# The kinds of entries.
KERNEL, LIBRARY, PREPARE, WAIT = "kernel", "library", "prepare", "wait"

# The folder of the package, to tell its own functions from those of users.
PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Entry(NamedTuple):
    """One piece of work, or one wait.

    kind: "kernel", "library", "prepare" or "wait". by: the engine or the library. names: what was computed; all kernels
    of machine code that runs several in one call. nbytes: read and written. began: seconds, of `time.perf_counter`.
    thread: its identifier. line: the user's line that asked for it. failure: the name of the exception that it ended
    in, "" if it went well.
    """

    kind: str
    by: str
    names: tuple[str, ...]
    nbytes: int
    began: float
    seconds: float
    thread: int
    line: str
    failure: str

    @property
    def words(self) -> str:
        """What was computed; several kernels are counted first."""
        count = len(self.names)
        return self.names[0] if count == 1 else f"{count} kernels in one call: {'; '.join(self.names)}"


# Functions that are called with every entry.
observers: list[Callable[[Entry], None]] = []


class _Here(threading.local):
    """Whether this thread is inside a noted block."""

    inside = False


_here = _Here()


class noted:  # noqa: N801 - reads as an adverb at the call
    """A block that is one entry, including everything computed inside it.

    moved: the bytes, or a function that returns them after the block has ended.
    """

    def __init__(self, kind: str, by: str, names: tuple[str, ...], moved: int | Callable[[], int] = 0) -> None:
        self._kind, self._by, self._names, self._moved = kind, by, names, moved

    def __enter__(self) -> None:
        self._is_outermost = not _here.inside
        _here.inside = True
        self._began = perf_counter()

    def __exit__(self, failure: type[BaseException] | None, *more: object) -> None:
        seconds = perf_counter() - self._began
        if not self._is_outermost:
            return
        _here.inside = False
        moved, why = self._moved, "" if failure is None else failure.__name__
        nbytes = moved if isinstance(moved, int) else 0 if failure else moved()
        where = (threading.get_ident(), users_line())
        entry = Entry(self._kind, self._by, self._names, nbytes, self._began, seconds, *where, why)
        for observer in tuple(observers):
            observer(entry)


def noting(call: Callable[..., Any], backend: Any, name: str) -> Callable[..., Any]:
    """Return a function that calls a backend's library and notes that, with the bytes of its arguments and results."""

    def noting_call(*args: Any, **params: Any) -> Any:
        found: list[Any] = []

        def moved() -> int:
            parts = found[0] if isinstance(found[0], (tuple, list)) else found
            return sum([getattr(one, "nbytes", 0) for one in (*args, *parts)])

        with noted(LIBRARY, backend.library.__name__, (name,), moved):
            found.append(call(*args, **params))
        return found[0]

    return noting_call


def users_line() -> str:
    """Return the user's line that is being run: its file, its number, and its function."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith((PACKAGE, contextlib.__file__)):
        frame = frame.f_back  # type: ignore[assignment]
    return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"

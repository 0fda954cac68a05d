"""`xt.profile`: the work of a block and the time that it takes, as a table and as a timeline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from time import perf_counter
from typing import NamedTuple

from .base.machine import size_text
from .base.options import Closing
from .base.profiling import KERNEL, LIBRARY, PREPARE, WAIT, Entry, observers

__all__ = ["Entry", "profile"]

# The most letters of a table's last columns, and the most lines.
LETTERS, LINES = 60, 40


class profile:  # noqa: N801 - reads as a verb at the call: `with xt.profile() as found:`
    """Record what is computed inside a `with` block, by all threads: kernels, library calls, preparation and waits.

    `print(found)` prints a table, the longest entries first; notebooks show a timeline above it, with one row per
    thread. `found.entries` has all entries in order as named tuples: kind ("kernel", "library", "prepare", "wait"), by,
    names, nbytes, began, seconds, thread, line and failure.

    Machine code that runs several kernels in one call is one entry with all their names. Work that was recorded before
    the block counts if it is computed inside; work that is still pending at its end does not. The bytes of a kernel are
    those that `explain` counts; the bytes of a library call are those of all arrays that it reads and returns. The
    results of `zeros`, `arange` and `linspace` are not recorded. Profiles can be nested. While one is open, in any
    thread, small calls take the slow path to the library, which costs some microseconds each, between the entries.

    On a CUDA device the time of a kernel or a library call is the host's, which launches it and continues; the rest of
    the device's time shows up as a wait, where values are copied to the host.

    Raises RuntimeError if it is entered twice.

    >>> with xt.profile() as found:
    ...     total = float(xt.sum(xt.exp(x) * y))
    >>> print(found)
    """

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._began = self._ended = 0.0

    def __enter__(self) -> profile:
        if self._began:
            raise RuntimeError("profile: a profile must be entered once, got a second time")
        self._closing = Closing()  # so that small calls also take the way on which work is noted
        observers.append(self._take)
        self._began = perf_counter()
        return self

    def __exit__(self, *failure: object) -> None:
        self._ended = perf_counter()
        observers.remove(self._take)
        self._closing.end()

    def _take(self, entry: Entry) -> None:
        self.entries.append(entry)

    @property
    def seconds(self) -> float:
        """How many seconds the block took, or has taken so far."""
        return (self._ended or perf_counter()) - self._began if self._began else 0.0

    @property
    def began(self) -> float:
        """When the block was entered, on the clock of `time.perf_counter`."""
        return self._began

    def __str__(self) -> str:
        return "\n".join([self.title(), *table_of(self.entries)])

    def __repr__(self) -> str:
        return str(self)

    def title(self) -> str:
        """Return how long the block took, and how much of that each kind of work took."""
        parts = [_spent(self.entries, *one) for one in _KINDS if any(entry.kind == one[0] for entry in self.entries)]
        what = ", ".join(parts) or "nothing was computed; what is pending is computed when somebody asks for it"
        threads, moved = len({entry.thread for entry in self.entries}), sum([entry.nbytes for entry in self.entries])
        by = f" by {threads} threads" * (threads > 1)
        there = any(entry.by in ("cuda", "cupy") for entry in self.entries)
        ends = [f"{size_text(moved)} moved"] * bool(moved) + [_HOST_TIMES] * there
        return "; ".join([f"profile: {_time(self.seconds)}: {what}{by}", *ends])

    def _repr_svg_(self) -> str:
        from .timeline import svg_of

        return svg_of(self.title(), self.entries, self._began, self.seconds)

    def _repr_html_(self) -> str:
        from .drawing import page_of

        return page_of(self._repr_svg_(), str(self))


# The note on times where a GPU computes.
_HOST_TIMES = "times of cuda and cupy are the host's, which launches work and goes on; waits have the rest"

# For each kind, the words for one entry and for several.
_KINDS = (
    (KERNEL, "a kernel", "runs of kernels"),
    (LIBRARY, "a library call", "library calls"),
    (PREPARE, "preparing a schedule", "preparings of schedules"),
    (WAIT, "a wait", "waits"),
)


def _spent(entries: Iterable[Entry], kind: str, one: str, several: str) -> str:
    times = [entry.seconds for entry in entries if entry.kind == kind]
    return f"{_time(sum(times))} in {one if len(times) == 1 else f'{len(times)} {several}'}"


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.2f} s"


# ---- the table


class Line(NamedTuple):
    """Entries that differ only in their times."""

    entries: Sequence[Entry]

    def cells(self) -> tuple[str, ...]:
        """Return the cells of the table's line."""
        first, count = self.entries[0], len(self.entries)
        seconds, nbytes = sum([one.seconds for one in self.entries]), sum([one.nbytes for one in self.entries])
        speed = f"{nbytes / seconds / 1e9:.1f}" if nbytes and seconds else ""
        moved = size_text(nbytes) if nbytes else ""
        what = first.words + f", ended in {first.failure}" * bool(first.failure)
        who = f"{first.kind} ({first.by})"
        return (f"{seconds * 1e3:.3f}", str(count), moved, speed, who, _cut(what), _cut(first.line.rpartition("/")[2]))


HEAD = ("ms", "times", "moved", "GB/s", "kind", "what", "asked for at")
_TO_THE_RIGHT = 4


def table_of(entries: Iterable[Entry]) -> list[str]:
    """Return the lines of a table of entries: equal ones on one line, the longest first."""
    alike: dict[tuple[object, ...], list[Entry]] = {}
    for entry in entries:
        alike.setdefault((entry.kind, entry.by, entry.names, entry.line, entry.failure), []).append(entry)
    lines = sorted(
        [Line(same) for same in alike.values()], key=lambda line: -sum([one.seconds for one in line.entries])
    )
    if not lines:
        return []
    rows = [HEAD, *[line.cells() for line in lines[:LINES]]]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    texts = ["  ".join(_padded(row, widths)).rstrip() for row in rows]
    left = len(lines) - LINES
    return [*texts, *([f"and {left} lines more"] if left > 0 else [])]


def _padded(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    sides = [str.rjust] * _TO_THE_RIGHT + [str.ljust] * (len(row) - _TO_THE_RIGHT)
    return [side(cell, width) for side, cell, width in zip(sides, row, widths, strict=True)]


def _cut(text: str) -> str:
    return text if len(text) <= LETTERS else f"{text[: LETTERS - 1]}…"


def __dir__() -> list[str]:
    return __all__

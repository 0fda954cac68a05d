"""Timing contestants in turns, and setting out what came out as a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from time import perf_counter, sleep
from timeit import Timer
from typing import Any, NamedTuple


class Times(NamedTuple):
    """The seconds of one contestant: least, for what it costs, and median, for what one meets."""

    least: float
    median: float

    def over(self, other: Times) -> str:
        """Return how many times as long this takes, by the least times and (by the medians)."""
        return f"{self.least / other.least:.2f} ({self.median / other.median:.2f})"


def take_turns(contestants: Mapping[str, Callable[[], float]], repeats: int) -> dict[str, Times]:
    """Let every contestant measure itself once per round, so that a slow moment of the machine hits all.

    contestants: functions that return the seconds of one measurement. A first round is not counted.
    """
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(repeats + 1):
        for name, measure in contestants.items():
            elapsed = measure()
            if turn:
                seconds[name].append(elapsed)
    return {name: Times(min(found), median(found)) for name, found in seconds.items()}


def seconds_of(call: Callable[[], Any]) -> float:
    """Return the seconds that one call takes."""
    start = perf_counter()
    call()
    return perf_counter() - start


def warmed(call: Callable[[], Any], seconds: float) -> float:
    """Call for at least some seconds, and 20 times where thrice the time allows it; return the least time seen.

    An engine may compile in the background what has been called often: by then it has.
    """
    least, calls, start = float("inf"), 0, perf_counter()
    while (spent := perf_counter() - start) < seconds or (calls < 20 and spent < 3 * seconds):
        least = min(least, seconds_of(call))
        calls += 1
    return least


def repeated(call: Callable[[], Any], least: float, pause: float = 0.0) -> Callable[[], float]:
    """Return a function that times a call and returns its seconds, measured over 6 ms at least.

    least: about what one call takes. pause: seconds to wait first, for another library's spinning threads to sleep.
    """
    timed = Timer(call)
    calls = max(1, round(6e-3 / least))

    def measure() -> float:
        sleep(pause)
        call()  # wakes this contestant's own threads, and brings its data back into the cache in part
        return timed.timeit(calls) / calls

    return measure


def table(title: str, heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return rows under a heading, the first column to the left and the others to the right."""
    lines = [heading, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heading))]
    rule = ["-" * width for width in widths]
    text = [f"\n{title}"]
    for first, *rest in [heading, rule, *rows]:
        numbers = [text.rjust(width) for text, width in zip(rest, widths[1:], strict=True)]
        text.append("  ".join([first.ljust(widths[0]), *numbers]).rstrip())
    return "\n".join(text)


def print_table(title: str, heading: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table."""
    print(table(title, heading, rows))

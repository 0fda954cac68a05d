"""Timing contestants in turns, and printing what came out as a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import NamedTuple


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


def print_table(title: str, heading: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows under a heading, the first column to the left and the others to the right."""
    lines = [heading, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heading))]
    rule = ["-" * width for width in widths]
    print(f"\n{title}")
    for first, *rest in [heading, rule, *rows]:
        numbers = [text.rjust(width) for text, width in zip(rest, widths[1:], strict=True)]
        print("  ".join([first.ljust(widths[0]), *numbers]))

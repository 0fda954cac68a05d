"""A pytest plugin that counts outcomes and shows them as they arrive, with or without pytest-xdist."""

from __future__ import annotations

import re
import shutil
import time
from dataclasses import dataclass
from typing import Any, TextIO

import pytest

OUTCOMES = ("passed", "failed", "xfailed", "skipped")
BAR_WIDTH = 30
ERROR = re.compile(r"^[E|\s]*([\w.]*(?:Error|Exception|Warning): .*)$", re.MULTILINE)


@dataclass
class Result:
    """What became of one test: its outcome, its time and, if it failed, the error in one line."""

    outcome: str = "passed"
    seconds: float = 0.0
    error: str = ""


class Progress:
    """Collects a Result per test id and redraws one line; plain lines where there is no terminal."""

    def __init__(self, stream: TextIO) -> None:
        self.results: dict[str, Result] = {}
        self.total = 0
        self.stream = stream
        self.live = stream.isatty()
        self.started = time.monotonic()
        self.drawn = self.started
        self.tenth = 0

    @pytest.hookimpl
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Learn how many tests there are when they run in this process."""
        self.total = max(self.total, len(session.items))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: list[str]) -> None:
        """Learn how many tests there are when they run in worker processes."""
        self.total = max(self.total, len(ids))

    @pytest.hookimpl
    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Count a file that cannot be imported as a failure."""
        if report.failed:
            self.results[report.nodeid] = Result("failed", 0.0, error_line(report))

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take in one phase (setup, call or teardown) of one test."""
        result = self.results.setdefault(report.nodeid, Result())
        result.seconds += report.duration
        if report.failed:
            result.outcome, result.error = "failed", error_line(report)
        elif report.skipped:
            result.outcome = "xfailed" if hasattr(report, "wasxfail") else "skipped"
        if report.when != "setup":
            self.draw()

    @property
    def elapsed(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self.started

    def draw(self) -> None:
        """Show the state: ten times a second on a terminal, else every tenth of the way and every half minute.

        Consumers' tests take very different times: those of Cubed that start processes are a seventh of all, one
        after the other, and take half of the time.
        """
        tenth = 10 * len(self.results) // max(self.total, 1)
        since = time.monotonic() - self.drawn
        if self.live and since > 0.1:
            self.drawn = time.monotonic()
            self.stream.write("\r" + self.line()[: shutil.get_terminal_size().columns - 1] + "\x1b[K")
            self.stream.flush()
        elif not self.live and (tenth > self.tenth or since > 30):
            self.tenth, self.drawn = tenth, time.monotonic()
            print(self.line(), file=self.stream, flush=True)

    def line(self) -> str:
        """The state in one line: bar, done/total, failures, elapsed time."""
        done, failed = len(self.results), sum(r.outcome == "failed" for r in self.results.values())
        bar = "#" * (BAR_WIDTH * done // max(self.total, 1))
        return f"[{bar:.<{BAR_WIDTH}}] {done}/{self.total}  {failed} failed  {clock(self.elapsed)}"

    def close(self) -> None:
        """Remove the live line."""
        if self.live:
            self.stream.write("\r\x1b[K")


def error_line(report: pytest.CollectReport | pytest.TestReport) -> str:
    """Return the last error named in a traceback; Hypothesis may put several there, and its example below."""
    crash = getattr(report.longrepr, "reprcrash", None)
    named = ERROR.findall(report.longreprtext)
    lines = named or (crash.message if crash else report.longreprtext).strip().splitlines()[:1]
    return lines[-1].strip() if lines else "no message"


def clock(seconds: float) -> str:
    """Return a duration as minutes and seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"

"""What a conformance run found: a table for people, a JSON file for machines."""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib import import_module, metadata
from itertools import chain
from pathlib import Path
from typing import Any

from progress import OUTCOMES, Progress, Result, clock
from suite import Suite

ROW = "{:<34}{:>8}{:>8}{:>9}{:>9}{:>9}"
ERROR_WIDTH = 160
EXACT = "exact_signatures"  # our own chapter: every signature beside the standard's


def print_report(results: dict[str, Result], elapsed: float) -> None:
    """Print a line per chapter, a total, and every failing test with its error."""
    heading = ROW.format("chapter", *OUTCOMES, "seconds")
    print(heading, "-" * len(heading), sep="\n")
    chapters = by_chapter(results)
    ours = chapters.pop(EXACT, [])
    for name, members in chapters.items():
        print(row(name, members))
    print("-" * len(heading), row("total of the suite", chain(*chapters.values())), sep="\n")
    if ours:
        print(row(EXACT, ours))
    counts = ", ".join(f"{number} {outcome}" for outcome, number in count(results.values()).items())
    print(f"{len(results)} tests in {clock(elapsed)}: {counts}")
    for test, result in results.items():
        if result.outcome == "failed":
            print(f"\nFAILED {test}\n       {result.error[:ERROR_WIDTH]}")


def by_chapter(results: dict[str, Result]) -> dict[str, list[Result]]:
    """Group results by test file, in alphabetical order."""
    chapters: dict[str, list[Result]] = {}
    for test, result in results.items():
        chapters.setdefault(chapter_of(test), []).append(result)
    return dict(sorted(chapters.items()))


def chapter_of(test: str) -> str:
    """Return the chapter that a test id belongs to; what is no file of the suite is our own."""
    file = Path(test.partition("::")[0])
    return file.stem.removeprefix("test_") if file.parts[:1] == ("array_api_tests",) else EXACT


def row(name: str, results: Iterable[Result]) -> str:
    """Return one line of the table."""
    results = list(results)
    seconds = sum(result.seconds for result in results)
    return ROW.format(name, *count(results).values(), f"{seconds:.1f}")


def count(results: Iterable[Result]) -> dict[str, int]:
    """Return how many results there are of each outcome."""
    outcomes = [result.outcome for result in results]
    return {outcome: outcomes.count(outcome) for outcome in OUTCOMES}


def write_json(path: Path, options: argparse.Namespace, suite: Suite, progress: Progress) -> None:
    """Write what ran, on what, and the outcome of every test."""
    results = progress.results
    chapters = {name: count(members) for name, members in by_chapter(results).items()}
    report = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(progress.elapsed, 1),
        "versions": versions(options.module),
        "commits": suite.commits(),
        "options": {name: plain(value) for name, value in vars(options).items()},
        "environment": {name: value for name, value in os.environ.items() if name.startswith("XTENSOR_")},
        "counts": count(result for test, result in results.items() if chapter_of(test) != EXACT),
        "chapters": chapters,
        "tests": {test: plain(result) for test, result in sorted(results.items())},
    }
    path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def versions(module: str) -> dict[str, str]:
    """Return the versions that a result depends on."""
    packages = ["numpy", "array-api-compat", "pytest", "hypothesis", "ndindex"]
    found = {package: metadata.version(package) for package in packages}
    tested = getattr(import_module(module), "__version__", "unknown")
    return {"python": platform.python_version(), module: tested, **found}


def plain(value: Any) -> Any:
    """Return an option or a result as JSON can hold it."""
    if isinstance(value, Result):
        return {"outcome": value.outcome, "seconds": round(value.seconds, 3), "error": value.error}
    return str(value) if isinstance(value, Path) else value

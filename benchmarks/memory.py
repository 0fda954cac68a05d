"""The peak memory of a long chain of steps on large arrays, beside what must be there: its inputs and its result."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from .measure import print_table
from .overhead import ROOT

STEPS, INPUTS, MEGABYTE = 20, 2, 1_000_000
STATUS, FORGET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
LIBRARIES = ("xtensor", "numpy")
CHILD = "import sys; from benchmarks.memory import growth; print(growth(sys.argv[1], int(sys.argv[2])))"


def main(quick: bool = False) -> None:
    """Print the table."""
    if not FORGET.exists():
        print("The peak is read from /proc, which this system does not have.")
        return
    size = (40 if quick else 400) * MEGABYTE
    rows = []
    for library in LIBRARIES:
        grown = in_process(library, size)
        peak = INPUTS * size + grown
        rows.append([library, *(f"{count / MEGABYTE:.0f}" for count in (peak, grown, grown - size))])
    title = f"A chain of {STEPS} steps on {INPUTS} inputs of {size // MEGABYTE} MB, float32, in MB"
    print_table(title, ["library", "peak", "beyond the inputs", "beyond inputs and result"], rows)


def in_process(library: str, size: int) -> int:
    """Return the growth that a process of its own finds."""
    command = [sys.executable, "-c", CHILD, library, str(size)]
    return int(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)


def growth(library: str, size: int) -> int:
    """Return by how many bytes the peak grows over what is resident once the inputs are there.

    A small chain runs first: the engine is loaded and its kernel compiled, which a process pays once.
    """
    xp: Any = import_module(library)
    evaluated(chain(*inputs(xp, MEGABYTE)))
    x, y = inputs(xp, size)
    FORGET.write_text("5", encoding="ascii")  # the peak begins again at what is resident
    before = status("VmRSS")
    result = evaluated(chain(x, y))
    after = status("VmHWM")
    del result  # not earlier: it belongs to the peak
    return after - before


def inputs(xp: Any, size: int) -> list[Any]:
    """Return arrays of so many bytes, filled in place."""
    return [xp.full(size // 4, value, dtype=xp.float32) for value in (1.5, 0.5)]


def chain(x: Any, y: Any) -> Any:
    """Return the result of twenty steps."""
    for _ in range(STEPS // 2):
        x = x * 0.99 + y
    return x


def evaluated(x: Any) -> Any:
    """Return an array, computed."""
    return x.evaluate() if hasattr(x, "evaluate") else x


def status(name: str) -> int:
    """Return a line of this process's status, in bytes."""
    (line,) = [line for line in STATUS.read_text(encoding="ascii").splitlines() if line.startswith(f"{name}:")]
    return int(line.split()[1]) * 1024

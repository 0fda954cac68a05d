"""NPBench's NumPy programs over xtensor, beside NumPy's time and NPBench's own versions for other libraries.

Each runs in a process of its own with a time limit, so that one that hangs or crashes does not end the others.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from statistics import geometric_mean
from tempfile import TemporaryDirectory

from .measure import print_table
from .npbench import (
    CALLS,
    COMMIT,
    OUTCOME,
    VERSIONS,
    Program,
    SuiteMissingError,
    Version,
    Xtensor,
    XtensorFuse,
    find,
    names,
)
from .overhead import ROOT, surroundings
from .progress import progress

PRESETS = ("S", "M", "L", "paper")
BESIDE = ("jax", "numba")
CHILD = "import sys; from benchmarks.npbench import run; run(*sys.argv[1:])"
LIMIT, OVER = 120.0, "over"  # seconds, of which half may go by until all is captured

# Programs whose steps each handle one element, or a dot product for one: what they cost is what small calls cost. All
# others work on whole arrays, or on rows, columns or masks of them, at each step.
SCALAR_LOOPS = {
    "cholesky",  # A[i, j] -= a dot product, A[i, j] /= A[j, j]
    "crc16",  # bits of one byte at a time
    "durbin",  # y[k] after a dot product
    "go_fast",  # tanh(a[i, i])
    "gramschmidt",  # R[k, j] = a dot product
    "lu",  # as cholesky
    "ludcmp",  # as cholesky
    "nussinov",  # max of two elements
    "scattering_self_energies",  # D[q, w, a, b, i, j] times a tiny matrix
    "seidel_2d",  # A[i, j] += A[i, j - 1]
    "spmv",  # y[i] = a dot product of a few elements
    "symm",  # temp2[j] = a dot product
    "syr2k",  # times A[i, k] and B[i, k]
    "syrk",  # times A[i, k]
    "trisolv",  # x[i] after a dot product
    "trmm",  # B[i, j] += a dot product
}

# The seconds of each version of a program, or the reason why there are none.
Row = dict[str, float | str]


def main(
    quick: bool = False,
    suite: Path | None = None,
    preset: str = "S",
    programs: Sequence[str] | None = None,
    beside: Sequence[str] | None = None,
    fused: bool = False,
    limit: float = LIMIT,
) -> None:
    """Print the table, the reasons of those that stop, and the means."""
    try:
        folder = find(suite)
    except SuiteMissingError as error:
        sys.exit(str(error))
    chosen = list(programs or names(folder))
    if unknown := sorted(set(chosen) - set(names(folder))):
        sys.exit(f"no program {', '.join(unknown)} in {folder}: there is {', '.join(names(folder))}")
    versions = [Xtensor.name, *([XtensorFuse.name] if fused else []), *others(beside)]
    calls = 1 if quick else CALLS
    rows = {
        name: row_of(Program(folder, name), versions, preset, calls, limit) for name in progress(chosen, len(chosen))
    }
    title = f"NPBench {COMMIT[:7]}, preset {preset}: the median of {calls}, and times over NumPy's"
    heading = ["", "numpy ms", "xtensor ms", *(f"{version} / numpy" for version in versions)]
    print_table(title, heading, [line_of(name, row, versions) for name, row in rows.items()])
    print("\n".join(["", *reasons(rows), *summary(rows, versions)]))


def others(beside: Sequence[str] | None) -> list[str]:
    """Return the libraries whose own versions take part: those asked for, else those that are installed."""
    return [name for name in BESIDE if (find_spec(name) if beside is None else name in beside)]


def row_of(program: Program, versions: Sequence[str], preset: str, calls: int, limit: float) -> Row:
    """Run NumPy's version of a program, then the others as far as there are sources for them."""
    with TemporaryDirectory(prefix="benchmarks-", ignore_cleanup_errors=True) as folder:
        row: Row = {Version.name: in_process(program, Version.name, preset, calls, folder, limit)}
        for version in versions:
            if not isinstance(row[Version.name], float):
                row[version] = "skipped: NumPy's version has no result"
            elif program.source(VERSIONS[version].suffix).exists():
                row[version] = in_process(program, version, preset, calls, folder, limit)
    return row


def in_process(program: Program, version: str, preset: str, calls: int, folder: str, limit: float) -> float | str:
    """Return the seconds of a version in a fresh process, or why there are none."""
    arguments = [str(program.suite), program.name, version, preset, str(calls), folder]
    outcome = Path(folder, OUTCOME)
    outcome.unlink(missing_ok=True)
    try:
        command = [sys.executable, "-c", CHILD, *arguments]
        done = subprocess.run(command, cwd=ROOT, env=surroundings(), capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return f"{OVER} {limit:g} s"
    if not outcome.exists():
        last = done.stderr.strip().splitlines()[-1:]
        return ": ".join([f"ended with status {done.returncode}", *last])
    found = json.loads(outcome.read_text(encoding="utf-8"))
    return float(found["seconds"]) if "seconds" in found else str(found["reason"])


def line_of(name: str, row: Row, versions: Sequence[str]) -> list[str]:
    """Return a line of the table; where there is no ratio, the first word of the reason stands for it."""
    times = [row[version] for version in (Version.name, Xtensor.name)]
    milliseconds = [f"{seconds * 1e3:.3f}" if isinstance(seconds, float) else "" for seconds in times]
    return [name, *milliseconds, *(ratio_or_word(row, version) for version in versions)]


def ratio_or_word(row: Row, version: str) -> str:
    """Return a cell: a ratio to NumPy's time, a reason's first word, the limit, or nothing where there is no source."""
    ratio, reason = over_numpy(row, version), str(row.get(version, ""))
    if ratio is not None:
        return f"{ratio:.2f}"
    return reason if reason.startswith(OVER) else reason.partition(" ")[0].removesuffix(":")


def over_numpy(row: Row, version: str) -> float | None:
    """Return how many times as long as NumPy's a version takes, if it was timed."""
    ours, numpys = row.get(version), row[Version.name]
    return ours / numpys if isinstance(ours, float) and isinstance(numpys, float) else None


def reasons(rows: Mapping[str, Row]) -> list[str]:
    """Return a line for each version of a program that was not timed."""
    return [
        f"{name}, {version}: {reason}"
        for name, row in rows.items()
        for version, reason in row.items()
        if isinstance(reason, str)
    ]


def summary(rows: Mapping[str, Row], versions: Sequence[str]) -> list[str]:
    """Return for either kind of program and each version how many were timed, the mean ratio and the largest."""
    kinds = {
        "whole-array programs": [name for name in rows if name not in SCALAR_LOOPS],
        "scalar loops": [name for name in rows if name in SCALAR_LOOPS],
    }
    return [
        f"{kind}, {version}: {mean({name: over_numpy(rows[name], version) for name in members})}"
        for kind, members in kinds.items()
        for version in versions
        if members
    ]


def mean(ratios: Mapping[str, float | None]) -> str:
    """Return how many programs have a ratio, the geometric mean, and the largest with its program."""
    found = {name: ratio for name, ratio in ratios.items() if ratio is not None}
    if not found:
        return f"0 of {len(ratios)} run"
    worst = max(found, key=lambda name: found[name])
    geometric = geometric_mean(found.values())
    return f"{len(found)} of {len(ratios)} run, geometric mean {geometric:.2f}, worst {found[worst]:.2f} ({worst})"

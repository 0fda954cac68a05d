"""Whole expressions beside NumPy, numexpr, PyTorch and JAX, on the same data in one run.

Each contestant's result is compared with NumPy's in float64 before it is timed: a wrong one is not timed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from . import machine, report
from .bandwidth import bandwidth, fastest
from .chart import draw
from .measure import Times, repeated, seconds_of, take_turns, warmed
from .peers import Function, Peer, TorchCompile, UnsupportedError, cold_caches, contestants, installed
from .progress import progress
from .workloads import WORKLOADS, Array, Workload

SIZES = (100, 10_000, 200_000, 10_000_000)
QUICK_SIZES = (100, 10_000)
TOLERANCE = {"float32": 1e-4, "float64": 1e-10, "mixed": 1e-6}  # integers, booleans and counts are compared exactly


@dataclass(frozen=True)
class Effort:
    """How long to measure.

    repeats: rounds, as far as they fit into `seconds` a row, but five at least. warm: seconds a contestant is called
    before. pause: seconds between contestants.
    """

    repeats: int = 25
    seconds: float = 10.0
    warm: float = 0.3
    pause: float = 0.01

    def rounds(self, least: Mapping[str, float]) -> int:
        """Return how many rounds to take where contestants take such times."""
        one_round = sum(self.pause + 2 * max(seconds, 2e-3) for seconds in least.values())
        return min(self.repeats, max(5, int(self.seconds / one_round)))


QUICK = Effort(repeats=2, warm=0.0, pause=0.0)


@dataclass(frozen=True)
class Row:
    """What was measured of one workload in one dtype and size.

    moved: bytes in + bytes out. first: seconds of each contestant's first call, compilation included. times: what it
    takes when warm. absent: why a contestant has no times. triad: GB/s of a triad that took turns with them, 0 for
    none.
    """

    workload: str
    dtype: str
    size: int
    memory_bound: bool
    moved: int = 0
    first: dict[str, float] = field(default_factory=dict)
    times: dict[str, Times] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    triad: float = 0.0


def main(
    quick: bool = False,
    sizes: Sequence[int] | None = None,
    workloads: Sequence[str] | None = None,
    dtypes: Sequence[str] | None = None,
    peers: Sequence[str] | None = None,
    repeats: int | None = None,
    out: Path = Path("build/benchmarks"),
) -> None:
    """Run the comparison; print its tables and write them, the chart and the numbers into a folder."""
    effort = QUICK if quick else Effort()
    if repeats is not None:
        effort = replace(effort, repeats=repeats)
    chosen = [one for one in WORKLOADS if workloads is None or one.name in workloads]
    cases = [(one, dtype) for one in chosen for dtype in one.dtypes if dtypes is None or dtype in dtypes]
    about = machine.description()  # first: the run itself is a load
    with cold_caches():
        entered = contestants(chosen_peers(peers, quick))
        before = bandwidth(quick)
        rows = run(cases, sizes or (QUICK_SIZES if quick else SIZES), entered, effort)
        after = bandwidth(quick)
    result = report.Result(
        machine=about,
        threads={peer.name: peer.threads() for peer in entered},
        bandwidth={way: max(before[way], after[way]) for way in before},
        quick=quick,
        rows=rows,
    )
    print(report.write(result, out))
    draw(result, out)
    print(f"\nThe chart, the numbers and these tables are in {out}.")


def chosen_peers(asked: Sequence[str] | None, quick: bool) -> list[str]:
    """Return the names of the peers to run: those asked for, or all but what compiles for long in a quick run.

    Ends the program for one that is not installed.
    """
    there = installed()
    if asked is None:
        return [name for name in there if not (quick and name == TorchCompile.name)]
    if unknown := [name for name in asked if name not in there]:
        sys.exit(f"{unknown[0]} is not installed: there is {', '.join(there)}")
    return list(asked)


def run(cases: Sequence[tuple[Workload, str]], sizes: Sequence[int], peers: list[Peer], effort: Effort) -> list[Row]:
    """Return the rows of all workloads, by size."""
    rows = list(progress(each(cases, sizes, peers, effort), len(cases) * len(sizes)))
    return sorted(rows, key=lambda row: row.size)


def each(
    cases: Sequence[tuple[Workload, str]], sizes: Sequence[int], peers: list[Peer], effort: Effort
) -> Iterator[Row]:
    """Yield the rows; the largest size comes first, for torch.compile to be at its best there."""
    for workload, dtype in cases:
        functions = {peer: made(peer, workload, dtype) for peer in peers}
        for size in sorted(sizes, reverse=True):
            yield measured(workload, dtype, size, functions, effort)


def made(peer: Peer, workload: Workload, dtype: str) -> Function | str:
    """Return a contestant's function for a workload, or the reason why it has none."""
    try:
        return peer.function(workload, dtype)
    except UnsupportedError as reason:
        return str(reason)


def measured(
    workload: Workload, dtype: str, size: int, functions: Mapping[Peer, Function | str], effort: Effort
) -> Row:
    """Return the row of one workload, dtype and size."""
    given = workload.inputs(np.random.default_rng(size), size, dtype)
    moved = workload.moved(given, np.asarray(workload.formula(np, *given)))
    row = Row(workload.name, dtype, size, workload.memory_bound, moved)
    expected = reference(workload, given)
    calls: dict[str, Callable[[], Any]] = {}
    for peer, function in functions.items():
        call = function if isinstance(function, str) else checked(peer, function, given, expected, dtype, row)
        if isinstance(call, str):
            row.absent[peer.name] = call
        else:
            calls[peer.name] = call
    least = {name: warmed(call, effort.warm) for name, call in calls.items()}
    timers = {name: repeated(call, least[name], effort.pause) for name, call in calls.items()}
    if not workload.memory_bound or moved <= machine.last_level_cache():
        row.times.update(take_turns(timers, effort.rounds(least)))
        return row
    with fastest(moved) as (triad, nbytes):
        beside = {"triad": repeated(triad, seconds_of(triad), effort.pause)}
        times = take_turns({**timers, **beside}, effort.rounds(least))
    speed = nbytes / times.pop("triad").least / 1e9
    row.times.update(times)
    return replace(row, triad=speed)


def reference(workload: Workload, given: list[Array]) -> Array:
    """Return what a workload gives in float64, by NumPy."""
    wide = [one.astype(np.float64) if one.dtype.kind == "f" else one for one in given]
    return np.asarray(workload.formula(np, *wide))


def checked(
    peer: Peer, function: Function, given: list[Array], expected: Array, dtype: str, row: Row
) -> Callable[[], Any] | str:
    """Return the call to be timed after one that is compared, or what is wrong with it."""
    try:
        call = partial(function, *[peer.operand(one) for one in given])
        start = perf_counter()
        result = call()
        row.first[peer.name] = perf_counter() - start
    except Exception as error:  # a library that fails here is reported, and the others go on
        return f"failed: {type(error).__name__}: {error}".partition("\n")[0]
    off = relative_error(peer.numpy(result), expected)
    allowed = TOLERANCE[dtype] if expected.dtype.kind == "f" else 0.0
    return call if off <= allowed else f"wrong: relative error {off:.1e}"


def relative_error(result: Array, expected: Array) -> float:
    """Return the largest difference over the largest magnitude."""
    if result.shape != expected.shape:
        return float("inf")
    difference = float(np.max(np.abs(result.astype(np.float64) - expected)))
    return difference / max(float(np.max(np.abs(expected))), 1e-300) if difference else 0.0

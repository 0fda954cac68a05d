"""The result of the engine's run as tables and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from .bandwidth import READING
from .measure import table

if TYPE_CHECKING:
    from .engine import Row

OURS, FUSED, NUMPY = "xtensor", "xtensor.fuse", "numpy"
LEVEL = 1.05  # a peer within 5 % is level
BUSY = 0.5  # load average: another process that runs at times makes spinning threads wait for whole time slices
GOOD = 0.8  # of the bandwidth: as much as is asked of a memory-bound workload


@dataclass(frozen=True)
class Result:
    """A whole run. bandwidth: GB/s of the triad by way of computing it, and of reading alone."""

    machine: dict[str, Any]
    threads: dict[str, int]
    bandwidth: dict[str, float]
    quick: bool
    rows: list[Row]

    @property
    def peers(self) -> list[str]:
        """Return the contestants beside xtensor."""
        return [name for name in self.threads if name not in (OURS, FUSED)]

    @property
    def columns(self) -> list[str]:
        """Return all contestants but plain xtensor, whose times are the measure."""
        return [name for name in self.threads if name != OURS]

    @property
    def sizes(self) -> list[int]:
        """Return the sizes, from the smallest."""
        return sorted({row.size for row in self.rows})

    def of_size(self, size: int) -> list[Row]:
        """Return the rows of one size."""
        return [row for row in self.rows if row.size == size]

    @property
    def triad(self) -> float:
        """Return GB/s of the fastest way of computing the triad."""
        return max(speed for way, speed in self.bandwidth.items() if not way.startswith(READING))

    def fraction(self, row: Row, ours: str = OURS) -> float | None:
        """Return how much of a triad a memory-bound row reaches; None for others, and for data in the cache."""
        if not row.memory_bound or row.moved <= self.machine["last_level_cache"] or ours not in row.times:
            return None
        return row.moved / row.times[ours].least / 1e9 / (row.triad or self.triad)


def ratio(row: Row, peer: str, ours: str = OURS) -> float | None:
    """Return how many times as long as xtensor a peer takes, by the least times; None where one was not timed."""
    both = row.times.get(peer), row.times.get(ours)
    return both[0].least / both[1].least if both[0] and both[1] else None


def write(result: Result, folder: Path) -> str:
    """Write tables and JSON into a folder and return the tables."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = [header(result), *(size_table(result, size) for size in result.sizes)]
    parts += [summary(result, ours) for ours in (OURS, FUSED) if ours in result.threads]
    parts += [first_calls(result), reasons(result)]
    text = "\n".join(part for part in parts if part)
    (folder / "benchmarks.txt").write_text(text.lstrip("\n") + "\n", encoding="utf-8")
    numbers = asdict(result)
    for written, row in zip(numbers["rows"], result.rows, strict=True):
        written["times"] = {name: times._asdict() for name, times in row.times.items()}
    (folder / "benchmarks.json").write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")
    return text


def header(result: Result) -> str:
    """Return machine, versions, threads and bandwidth."""
    about = result.machine
    versions = ", ".join(f"{name} {number}" for name, number in about["versions"].items())
    threads = ", ".join(f"{name} {count}" for name, count in result.threads.items())
    lines = [f"{about['cpu']}, {about['cores']} cores, last-level cache {about['last_level_cache'] >> 20} MiB"]
    lines += [versions, f"threads: {threads}"]
    if about["load"] > BUSY:
        lines.append(f"The machine was busy (load average {about['load']:.1f} before the run): expect noise.")
    if result.quick:
        lines.append("A quick run: it shows that everything works, not how fast it is.")
    ways = sorted(result.bandwidth.items(), key=lambda way: -way[1])
    rows = [[way, f"{speed:.1f}"] for way, speed in ways]
    return "\n".join(
        [*lines, table("Bandwidth: a triad a = b + s*c, bytes in + bytes out, and reading alone", ["by", "GB/s"], rows)]
    )


def size_table(result: Result, size: int) -> str:
    """Return the table of one size."""
    title = f"{size:,} elements: times as long as xtensor by least times (by medians), so above 1 xtensor is faster"
    heading = ["workload", "xtensor ms", "GB/s", "of triad", *result.columns]
    return table(title, heading, [size_line(result, row) for row in result.of_size(size)])


def size_line(result: Result, row: Row) -> list[str]:
    """Return one line of that table; an empty cell's reason stands under the tables."""
    ours = row.times.get(OURS)
    if ours is None:
        return [f"{row.workload} {row.dtype}", row.absent[OURS].partition(":")[0], *[""] * (2 + len(result.columns))]
    fraction = result.fraction(row)
    cells = [row.times[peer].over(ours) if peer in row.times else word(row, peer) for peer in result.columns]
    speed = f"{row.moved / ours.least / 1e9:.1f}"
    share = "" if fraction is None else f"{fraction:.2f}"
    return [f"{row.workload} {row.dtype}", f"{ours.least * 1e3:.4g}", speed, share, *cells]


def word(row: Row, peer: str) -> str:
    """Return what stands in the place of a time: "wrong", "failed", or nothing where a library cannot do it."""
    first, colon, _ = row.absent[peer].partition(":")
    return first if colon else ""


def summary(result: Result, ours: str = OURS) -> str:
    """Return in how many workloads xtensor, plain or fused, is ahead of every peer, size by size."""
    heading = ["elements", "workloads", "ahead of all", "level", "behind", "slower than NumPy", "bandwidth >= 0.8"]
    lines = [summary_line(result, size, ours) for size in result.sizes]
    rows = result.rows
    behind = [f"  {name(row)}: {peer} takes {best:.2f}" for row, peer, best in lost(rows, result.peers, ours)]
    slower = [f"  {name(row)}: {1 / x:.2f}" for row in rows if (x := ratio(row, NUMPY, ours)) and x < 1]
    slow = [f"  {name(row)}: {x:.2f}" for row in rows if (x := result.fraction(row, ours)) is not None and x < GOOD]
    return "\n".join(
        [
            table(f"Summary of {ours}, by least times (level: within 5 % of the best peer)", heading, lines),
            *listed(f"Behind, and what the best peer takes of {ours}'s time", behind),
            *listed("Slower than NumPy, and how many times as long", slower),
            *listed(f"Memory-bound, but below {GOOD} of the bandwidth", slow),
        ]
    )


def summary_line(result: Result, size: int, ours: str = OURS) -> list[str]:
    """Return the summary of one size."""
    rows = result.of_size(size)
    best = [min(found) for row in rows if (found := ratios(row, result.peers, ours))]
    numpy = [x for row in rows for x in ratios(row, [NUMPY], ours)]
    shares = [share for row in rows if (share := result.fraction(row, ours)) is not None]
    slower = [x for x in numpy if x < 1]
    return [
        f"{size:,}",
        str(len(rows)),
        str(sum(x > LEVEL for x in best)),
        str(sum(1 / LEVEL <= x <= LEVEL for x in best)),
        str(sum(x < 1 / LEVEL for x in best)),
        f"{len(slower)}, at most {1 / min(slower):.2f} times" if slower else "0",
        f"{sum(share >= GOOD for share in shares)} of {len(shares)}" if shares else "",
    ]


def ratios(row: Row, peers: Iterable[str], ours: str = OURS) -> list[float]:
    """Return how long each peer takes beside xtensor, those left out that were not timed."""
    return [found for peer in peers if (found := ratio(row, peer, ours)) is not None]


def lost(rows: Iterable[Row], names: Iterable[str], ours: str = OURS) -> list[tuple[Row, str, float]]:
    """Return the rows in which a peer is ahead, which one, and the part of xtensor's time that it takes."""
    found = []
    for row in rows:
        peers = {peer: x for peer in names if (x := ratio(row, peer, ours)) is not None}
        peer = min(peers, key=lambda name: peers[name], default="")
        if peer and peers[peer] < 1 / LEVEL:
            found.append((row, peer, peers[peer]))
    return found


def first_calls(result: Result) -> str:
    """Return the table of first calls, in which some compile."""
    heading = ["contestant", *(f"{size:,}" for size in result.sizes)]
    lines = []
    for peer in result.threads:
        cells = []
        for size in result.sizes:
            found = [row.first[peer] * 1e3 for row in result.of_size(size) if peer in row.first]
            cells.append(f"{median(found):.3g} ({max(found):.3g})" if found else "")
        lines.append([peer, *cells])
    return table("First calls in ms by elements, median (most); the largest size came first", heading, lines)


def reasons(result: Result) -> str:
    """Return why contestants are missing from rows."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in result.rows:
        for peer, reason in row.absent.items():
            found.setdefault((peer, reason), []).append(name(row))
    return "\n".join(listed("Not timed", [f"  {peer}, {why}: {'; '.join(at)}" for (peer, why), at in found.items()]))


def listed(title: str, lines: list[str]) -> list[str]:
    """Return lines under a title, and nothing for none."""
    return [f"\n{title}", *lines] if lines else []


def name(row: Row) -> str:
    """Return what a row is called."""
    return f"{row.workload} {row.dtype} {row.size:,}"

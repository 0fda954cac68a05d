"""Nanoseconds an element of a few expressions from a thousand to hundreds of millions of elements, beside NumPy's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

import xtensor as xt

from .machine import available_memory
from .measure import Times, print_table, repeated, seconds_of, take_turns, warmed
from .peers import OWN, Peer
from .progress import progress
from .workloads import Array, Workload, axpy, softmax

SIZES = (1000, 10_000, 100_000, 1_000_000, 20_000_000, 200_000_000, 400_000_000)
COMPARED = (20_000_000, 200_000_000)
QUICKEST = 1_000_000

# From here on a library has the memory to itself: its operands are made, timed and dropped before the next one's.
LARGE = 20_000_000

# What is held at once at most: two operands, the result, and two temporaries or what is kept for the next results.
HELD, BYTES, MOST = 5, 8, 16_000_000_000

DTYPE, ROW = "float64", 1000

# The times of each contestant, by the size.
Found = dict[int, dict[str, Times]]


def vectors(rng: np.random.Generator, n: int, dtype: str) -> list[Array]:
    """Make two vectors."""
    return [rng.random(n), rng.random(n)]


def long_rows(rng: np.random.Generator, n: int, dtype: str) -> list[Array]:
    """Make a matrix of rows of one length, whatever the size."""
    return [rng.random((n // ROW, ROW))]


def workload(name: str, formula: Callable[..., Any], inputs: Any = vectors) -> Workload:
    """Return an expression that only takes part here."""
    return Workload(name, formula, "not asked", inputs)


EXPRESSIONS = (
    workload("x + y", lambda xp, x, y: x + y),
    workload("a*x + y", axpy),
    workload("exp(-x*x)*y", lambda xp, x, y: xp.exp(-x * x) * y),
    workload("sum(x*y)", lambda xp, x, y: xp.sum(x * y)),
    workload(f"softmax over rows of {ROW}", softmax, long_rows),
)


def main(quick: bool = False) -> None:
    """Print a table for each expression, and how the cost of an element grows."""
    found: dict[str, Found] = {expression.name: {} for expression in EXPRESSIONS}
    usable, skipped = affordable([size for size in SIZES if size <= QUICKEST] if quick else list(SIZES))
    cases = [(size, expression) for size in usable for expression in EXPRESSIONS]
    for size, expression in progress(cases, len(cases)):
        found[expression.name][size] = compared(expression, size, 1 if quick else 5)
    for name, by_size in found.items():
        print_expression(name, by_size)
    print("\n" + "\n".join([*skipped, growth(found)]))


def affordable(sizes: list[int]) -> tuple[list[int], list[str]]:
    """Return the sizes that the free memory allows, and a line for each other."""
    room = min(available_memory(), MOST)
    usable = [size for size in sizes if needed(size) <= room]
    reasons = [
        f"{size:,} elements: skipped, {needed(size) / 1e9:.1f} GB would be held and {room / 1e9:.1f} GB may be"
        for size in sizes
        if size not in usable
    ]
    return usable, reasons


def needed(size: int) -> int:
    """Return the bytes that are held at once at most."""
    return HELD * BYTES * size


def compared(expression: Workload, size: int, repeats: int) -> dict[str, Times]:
    """Return everybody's times: in turns, or one library after the other where the arrays are large."""
    numpy, ours = [Peer()], [peer() for peer in OWN]
    times: dict[str, Times] = {}
    for group in [numpy, ours] if size >= LARGE else [[*numpy, *ours]]:
        times |= times_of(group, expression, size, min(repeats, 3) if size >= LARGE else repeats)
        xt.memory.trim()  # or what is kept for the next results would add to the next library's arrays
    return times


def times_of(group: list[Peer], expression: Workload, size: int, repeats: int) -> dict[str, Times]:
    """Return the times of contestants in turns."""
    contestants = {}
    for peer, operands in zip(group, operands_of(group, expression, size), strict=True):
        call = partial(peer.function(expression, DTYPE), *operands)
        contestants[peer.name] = measurement(call, size, 0.0 if repeats == 1 else 0.06)
    return take_turns(contestants, repeats)


def operands_of(group: list[Peer], expression: Workload, size: int) -> list[list[Any]]:
    """Return everybody's operands: NumPy's arrays themselves, and one copy for all of xtensor's contestants."""
    arrays = expression.inputs(np.random.default_rng(0), size, DTYPE)
    kinds = {peer.needs: peer for peer in group}
    own = {needs: [peer.operand(array) for array in arrays] for needs, peer in kinds.items()}
    return [own[peer.needs] for peer in group]


def measurement(call: Callable[[], Any], size: int, warm: float) -> Callable[[], float]:
    """Warm a call up, for at least some seconds and ten times, or twice on large arrays; return what times it."""
    if size >= LARGE:
        call(), call()
        return partial(seconds_of, call)
    least = min(warmed(call, warm), *(seconds_of(call) for _ in range(10 if warm else 1)))
    return repeated(call, least, 0.01)


def print_expression(name: str, found: Found) -> None:
    """Print the nanoseconds an element and the ratios to NumPy's, a line for each size."""
    names = [peer.name for peer in OWN]
    heading = ["elements", "numpy ns", *(f"{one} ns" for one in names), *(f"{one} / numpy" for one in names)]
    rows = [
        [
            f"{size:,}",
            *(f"{nanoseconds(times[one], size):.3f}" for one in ("numpy", *names)),
            *(times[one].over(times["numpy"]) for one in names),
        ]
        for size, times in found.items()
    ]
    print_table(f"{name}, {DTYPE}: nanoseconds an element", heading, rows)


def nanoseconds(times: Times, size: int) -> float:
    """Return the nanoseconds an element, by the least time."""
    return times.least / size * 1e9


def growth(found: Mapping[str, Found]) -> str:
    """Return how many times as long an element takes in the larger of two sizes: each expression, plain and fused."""
    small, large = COMPARED
    if not all({small, large} <= set(by_size) for by_size in found.values()):
        return f"Not measured here: an element at {large:,} over one at {small:,}."
    plain, fused = (peer.name for peer in OWN)
    ratios = {
        name: [nanoseconds(times[large][one], large) / nanoseconds(times[small][one], small) for one in (plain, fused)]
        for name, times in found.items()
    }
    listed = "; ".join(f"{name} {one:.2f} ({other:.2f})" for name, (one, other) in ratios.items())
    return f"An element at {large:,} over one at {small:,}, plain (fused): {listed}."

"""Expressions over memory that is shared with NumPy's arrays, beside NumPy's own time: what sharing costs.

Such memory can be written by others, so what reads it is computed before a call returns: at once by kernels, or in one
pass by a fused function. Memory whose array is gone is read later, like memory of xtensor's own.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple

import numpy as np

import xtensor as xt

from .measure import print_table, repeated, take_turns, warmed
from .peers import Peer, Torch, Xtensor, XtensorFuse, installed
from .progress import progress
from .workloads import WORKLOADS, Array, Workload

SIZES = (10_000, 200_000, 4_000_000)
NAMES = ("axpy", "gelu", "sigmoid", "leaky-relu", "trigonometric", "squared-distance", "softmax", "centring", "heat")
DTYPE = "float64"


class Way(NamedTuple):
    """Whose function is called, and what makes its operands of NumPy's arrays."""

    peer: type[Peer]
    operand: Callable[[Array], Any] | None = None


WAYS = {
    "own": Way(Xtensor),
    "shared": Way(Xtensor, xt.asarray),
    "array gone": Way(Xtensor, lambda array: xt.asarray(array.copy())),
    "shared, fused": Way(XtensorFuse, xt.asarray),
}


def main(quick: bool = False) -> None:
    """Print a table for each size: times over NumPy's."""
    workloads = [workload for workload in WORKLOADS if workload.name in NAMES[:: 4 if quick else 1]]
    sizes = SIZES[:1] if quick else SIZES
    ways = WAYS | ({"torch": Way(Torch)} if "torch" in installed() else {})
    rows: dict[int, list[list[str]]] = {size: [] for size in sizes}
    for size, workload in progress(list(product(sizes, workloads)), len(sizes) * len(workloads)):
        rows[size].append(compared(workload, size, ways, 1 if quick else 5))
    for size, lines in rows.items():
        print_table(f"{size:,} elements, {DTYPE}: times over NumPy's", ["", "numpy us", *ways], lines)


def compared(workload: Workload, size: int, ways: dict[str, Way], repeats: int) -> list[str]:
    """Return a line: NumPy's microseconds, and the others' times over it."""
    arrays = workload.inputs(np.random.default_rng(0), size, DTYPE)
    calls = {name: call_of(way, workload, arrays) for name, way in ({"numpy": Way(Peer)} | ways).items()}
    warm, pause = (0.0, 0.0) if repeats == 1 else (0.05, 0.01)
    timed = {name: repeated(call, warmed(call, warm), pause) for name, call in calls.items()}
    times = take_turns(timed, repeats)
    least = times["numpy"].least
    return [workload.name, f"{least * 1e6:.1f}", *(f"{times[name].least / least:.2f}" for name in ways)]


def call_of(way: Way, workload: Workload, arrays: list[Array]) -> Callable[[], Any]:
    """Return a way of computing a workload."""
    peer = way.peer()
    function = peer.function(workload, DTYPE)
    operands = [(way.operand or peer.operand)(array) for array in arrays]
    return lambda: function(*operands)

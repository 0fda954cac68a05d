"""What the engine costs where the arithmetic does not matter: first evaluations, kernels compiled, small arrays."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from random import Random
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from .measure import Times, print_table, repeated, seconds_of, take_turns, warmed
from .overhead import surroundings
from .peers import cold_caches
from .workloads import WORKLOADS, ten_cheap

xt: Any = import_module("xtensor")

SIZE, SMALL, STEPS = 200_000, 100, 10
ENGINES = ("auto", "interpret", "llvm")
STEP_KINDS: tuple[Callable[[Any, Any, Any], Any], ...] = (
    lambda xp, x, y: x + y,
    lambda xp, x, y: x - y,
    lambda xp, x, y: x * y,
    lambda xp, x, y: x * 0.75,
    lambda xp, x, y: x + 1.25,
    lambda xp, x, y: xp.abs(x),
    lambda xp, x, y: xp.tanh(x),
    lambda xp, x, y: xp.maximum(x, y),
    lambda xp, x, y: xp.where(x > 0.5, x, y),
)
CHILD = "import sys; from benchmarks.latency import first_evaluation; print(first_evaluation(sys.argv[1], ''))"


def main(quick: bool = False) -> None:
    """Print the tables."""
    with cold_caches():
        engines = [engine for engine in ENGINES if has_engine(engine)]
        if not engines:
            print("This version has no option 'engine': its first evaluations are as its later ones.")
        print_first_evaluations(engines, count=3 if quick else 20)
        if "llvm" in engines:
            print_first_ever("llvm", repeats=1 if quick else 5)
        print_compiled(changes=3 if quick else 20)
        print_small(repeats=2 if quick else 40, seconds=0.0 if quick else 0.3)


def has_engine(name: str) -> bool:
    """Return whether this version can be told to use an engine, and has what that needs."""
    if name == "llvm" and not find_spec("llvmlite"):
        return False
    try:
        xt.options(engine=name)
    except (TypeError, ValueError):
        return False
    return True


def expression(seed: str) -> Callable[..., Any]:
    """Return an expression of ten random steps on two operands: no engine has compiled it before."""
    chosen = Random(seed).choices(STEP_KINDS, k=STEPS)

    def formula(xp: Any, x: Any, y: Any) -> Any:
        for step in chosen:
            x = step(xp, x, y)
        return x

    return formula


def operands(size: int) -> list[Any]:
    """Return two vectors that xtensor owns."""
    return [xt.asarray(np.linspace(start, 2.0, size), copy=True) for start in (-1.0, 0.5)]


def first_evaluation(engine: str, seed: str) -> float:
    """Return the seconds of an expression's first evaluation by an engine."""
    with xt.options(engine=engine):
        formula, given = expression(seed), operands(SIZE)
        return seconds_of(lambda: formula(xt, *given).evaluate())


def print_first_evaluations(engines: list[str], count: int) -> None:
    """Print first and second evaluations of new expressions in this process, which has compiled before."""
    rows = []
    for engine in engines:
        first_evaluation(engine, engine)
        seeds = [f"{engine} {number}" for number in range(count)]  # no engine meets the kernels of another
        first = [first_evaluation(engine, seed) for seed in seeds]
        second = [first_evaluation(engine, seed) for seed in seeds]
        rows.append([engine, *(f"{value * 1e3:.2f}" for value in (median(first), max(first), median(second)))])
    if rows:
        title = f"First evaluation of {count} new {STEPS}-step expressions, {SIZE:,} float64, warm process"
        print_table(title, ["engine", "ms, median", "ms, most", "again: ms, median"], rows)


def print_first_ever(engine: str, repeats: int) -> None:
    """Print the first evaluation of fresh processes, without and with compiled code on disk."""
    cold, warm = [], []
    for _ in range(repeats):
        with TemporaryDirectory() as folder:
            cold.append(in_fresh_process(engine, folder))
            warm.append(in_fresh_process(engine, folder))
    rows = [
        [name, f"{min(found) * 1e3:.0f}", f"{median(found) * 1e3:.0f}"]
        for name, found in (("nothing on disk", cold), ("the kernel on disk", warm))
    ]
    title = f"First ever evaluation by {engine} in a fresh process, import of llvmlite included"
    print_table(title, ["cache", "ms, least", "ms, median"], rows)


def in_fresh_process(engine: str, folder: str) -> float:
    """Return the seconds of a new process's first evaluation, its compiled code kept in a folder."""
    command, environment = [sys.executable, "-c", CHILD, engine], surroundings(XTENSOR_CACHE_DIR=folder)
    return float(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)


def print_compiled(changes: int) -> None:
    """Print how the engine's counters move when only sizes and scalars change."""
    if not hasattr(xt, "cache_info"):
        print("This version has no xt.cache_info(): it compiles nothing.")
        return
    evaluate_scaled(SIZE, 0.5)
    before = counters()
    for change in range(1, changes + 1):
        evaluate_scaled(SIZE + 1009 * change, 0.5 + change)
    after = counters()
    rows = [[name, str(before[name]), f"{after[name] - before[name]:+}"] for name in after]
    title = f"xt.cache_info() over {changes} evaluations of one expression with other sizes and scalars"
    print_table(title, ["counter", "before", "change"], rows)


def evaluate_scaled(size: int, scalar: float) -> None:
    """Evaluate one expression of a size and a scalar."""
    x, y = operands(size)
    (xt.tanh(x * scalar + y) * (1.0 + scalar)).evaluate()


def counters() -> dict[str, int]:
    """Return the numbers in xt.cache_info(), be it a dict, a named tuple or a dataclass."""
    info: Any = xt.cache_info()
    named = info if isinstance(info, dict) else info._asdict() if hasattr(info, "_asdict") else asdict(info)
    return {name: value for name, value in named.items() if isinstance(value, int)}


def print_small(repeats: int, seconds: float) -> None:
    """Print expressions on small arrays beside NumPy's time."""
    costly = next(workload.formula for workload in WORKLOADS if workload.name == "ten-costly")
    formulas = {"x + y": lambda xp, x, y: x + y, "ten cheap steps": ten_cheap, "ten costly steps": costly}
    rows = []
    for name, formula in formulas.items():
        found = beside_numpy(formula, repeats, seconds)
        rows.append([name, f"{found['numpy'].least * 1e6:.3f}", found["xtensor"].over(found["numpy"])])
    title = f"{SMALL} float64: times as long as NumPy by least times (by medians of {repeats})"
    print_table(title, ["expression", "numpy us", "xtensor / numpy"], rows)


def beside_numpy(formula: Callable[..., Any], repeats: int, seconds: float) -> dict[str, Times]:
    """Return the times of NumPy and xtensor for a formula on small operands."""
    ours = operands(SMALL)
    calls: dict[str, Callable[[], Any]] = {
        "numpy": partial(formula, np, *(np.array(one) for one in ours)),
        "xtensor": partial(formula, xt, *ours),
    }
    if calls["xtensor"]().is_pending:
        calls["xtensor"] = lambda: formula(xt, *ours).evaluate()
    return take_turns({name: repeated(call, warmed(call, seconds)) for name, call in calls.items()}, repeats)

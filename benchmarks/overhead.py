"""What a call costs beside bare NumPy, where the arithmetic is too small to matter, and what the import costs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from timeit import Timer
from typing import Any

import numpy as np

from .measure import print_table, take_turns

ROOT = Path(__file__).resolve().parent.parent

SIZE = 100
EXPRESSIONS = ("xp.add(x, y)", "x + y", "x * 2.0", "xp.exp(x)", "xp.sum(x)", "x[1:]", "bool(xp.any(x))")
LIBRARIES = ("numpy", "xtensor", "array_api_strict", "torch")


def main(quick: bool = False) -> None:
    """Print both tables."""
    print_calls(repeats=2 if quick else 40, calls=50 if quick else 2000)
    print_imports(repeats=1 if quick else 15)


def print_calls(repeats: int, calls: int) -> None:
    """Print the time of small calls as multiples of NumPy's."""
    libraries = [name for name in LIBRARIES if find_spec(name)]
    rows = [row_of(expression, libraries, repeats, calls) for expression in EXPRESSIONS]
    others = [f"{name} / numpy" for name in libraries if name != "numpy"]
    title = f"Calls on {SIZE} float32: times as long as NumPy by least times (by medians of {repeats})"
    print_table(title, ["expression", "numpy us", *others], rows)


def row_of(expression: str, libraries: list[str], repeats: int, calls: int) -> list[str]:
    """Return one row of the table of calls."""
    found = take_turns({name: timer(name, expression, calls) for name in libraries}, repeats)
    ratios = [found[name].over(found["numpy"]) for name in libraries if name != "numpy"]
    return [expression, f"{found['numpy'].least * 1e6:.3f}", *ratios]


def timer(library: str, expression: str, calls: int) -> Callable[[], float]:
    """Return a function that times an expression in a library and returns the seconds of one evaluation.

    The expression is compiled as it stands: no function call is measured along with it.
    """
    xp: Any = import_module(library)
    x, y = (xp.asarray(np.linspace(start, 2.0, SIZE, dtype=np.float32).copy()) for start in (0.5, 1.0))
    measured = Timer(expression, globals={"xp": xp, "x": own(x), "y": own(y)})
    return lambda: measured.timeit(calls) / calls


def own(x: Any) -> Any:
    """Return an array the library has made itself, as nearly all arrays of a computation are."""
    return x * 1.0


def print_imports(repeats: int) -> None:
    """Print the time of whole processes that only import."""
    codes = {"pass": "pass", "import numpy": "import numpy", "import xtensor": "import xtensor"}
    found = take_turns({name: process(code) for name, code in codes.items()}, repeats)
    rows = [
        [f'python -c "{name}"', f"{times.least * 1e3:.0f}", times.over(found["import numpy"])]
        for name, times in found.items()
    ]
    title = f"Whole processes: times as long as NumPy's by least times (by medians of {repeats})"
    print_table(title, ["command", "ms", "/ numpy"], rows)


def process(code: str) -> Callable[[], float]:
    """Return a function that runs code in a fresh interpreter and returns the seconds that took."""

    def measure() -> float:
        start = perf_counter()
        subprocess.run([sys.executable, "-c", code], env=surroundings(), check=True)
        return perf_counter() - start

    return measure


def surroundings(**more: str) -> dict[str, str]:
    """Return the environment variables of a fresh process that imports this xtensor, and more of them."""
    found = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]), **more}
    found.pop("PYTHONDONTWRITEBYTECODE", None)  # or every process would compile what was edited last
    return found

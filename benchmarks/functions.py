"""Functions of the namespace one by one, and statements that write in place, beside NumPy's: where one is slow."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from itertools import product
from math import isqrt
from statistics import median
from typing import Any

import numpy as np

import xtensor as xt

from .measure import print_table, repeated, take_turns, warmed
from .progress import progress

SIZES = (100, 10_000, 200_000, 4_000_000)

# How many are listed, the slowest first.
LISTED = 20

# fmt: off
UNARY = [
    "abs", "ceil", "floor", "round", "sign", "sqrt", "square", "exp", "expm1", "log", "log1p", "sin", "cos", "tan",
    "asin", "atan", "sinh", "cosh", "tanh", "isnan", "isfinite", "negative", "signbit",
]
BINARY = [
    "add", "subtract", "multiply", "divide", "maximum", "minimum", "pow", "hypot", "atan2", "logaddexp", "less",
    "equal", "remainder", "copysign",
]
REDUCTIONS = [
    "sum", "prod", "mean", "std", "max", "min", "any", "all", "argmax", "argmin", "count_nonzero",
]
# fmt: on

# Operands are vectors f, g (float64), s (float32), i (int64), b (bool), c (complex128), k (indices), and square
# matrices m, n (float64) of as many elements.
EXPRESSIONS = (
    *(f"xp.{name}({x})" for name in UNARY for x in "fs"),
    *(f"xp.{name}(f, g)" for name in BINARY),
    *(f"xp.{name}(m, axis={axis})" for name in REDUCTIONS for axis in (None, 0, 1)),
    *("xp.sum(i)", "xp.sum(b)", "i + i", "i // (i + 1)", "i & i", "b & b", "~b", "f * 2.0", "f**2", "f**0.5"),
    *("xp.where(b, f, g)", "xp.where(b, f, 0.0)", "xp.clip(f, 0.2, 0.8)", "xp.astype(f, xp.float32)"),
    *("m + m[0]", "m + m[:, :1]", "m + n.T", "f[::2] + 1", "f[1:] - f[:-1]", "xp.diff(f)", "xp.cumulative_sum(f)"),
    *("m @ n", "m @ m[0]", "xp.vecdot(f, g)", "xp.concat([f, g])", "xp.stack([f, g])", "xp.flip(f)", "xp.roll(f, 3)"),
    *("xp.repeat(f, 2)", "xp.tile(f, (2,))", "xp.sort(f)", "xp.argsort(f)", "xp.sort(i)", "xp.unique_values(i)"),
    *("xp.searchsorted(xp.sort(f), g)", "xp.nonzero(b)", "xp.take(f, k)", "f[b]", "f[3]", "xp.reshape(m, (-1,))"),
    *(
        "xp.zeros(f.shape)",
        "xp.ones(f.shape)",
        "xp.full(f.shape, 2.5)",
        "xp.arange(f.size)",
        "xp.linspace(0, 1, f.size)",
    ),
    *(
        "xp.tril(m)",
        "c * c",
        "xp.abs(c)",
        "xp.real(c) + 1",
        "(f > 0.3) & (g < 1.2) | b",
        "xp.all(xp.abs(f - g) < 1e-3)",
    ),
)
STATEMENTS = (
    *("g += f", "g *= 1.0", "g -= 1e-9 * f", "g[...] = 2.0 * f + 0.5", "g[...] = 0.7", "g[:] = f", "g[b] = 0.7"),
    *("g[::2] *= 1.0", "g[k] = f", "n -= m[0]", "n[1:, 1:] += m[1:, 1:] * 1e-9"),
)


# The ratio of times, the text, and both libraries' seconds.
Row = tuple[float, str, float, float]


def main(quick: bool = False) -> None:
    """Print a table for each size."""
    texts = EXPRESSIONS[::20] + STATEMENTS[::5] if quick else EXPRESSIONS + STATEMENTS
    sizes = SIZES[:2] if quick else SIZES
    found: dict[int, list[Row]] = {size: [] for size in sizes}
    for size, text in progress(list(product(sizes, texts)), len(sizes) * len(texts)):
        found[size].append(compared(text, *operands(size), 1 if quick else 5))
    for size, rows in found.items():
        ratios = [ratio for ratio, *_ in rows]
        ahead = sum(ratio < 1 for ratio in ratios)
        title = f"{size:,} elements: {ahead} of {len(rows)} ahead of NumPy, median {median(ratios):.2f}; the slowest"
        listed = sorted(rows, reverse=True)[:LISTED]
        lines = [
            [text, f"{ours * 1e6:.1f}", f"{numpys * 1e6:.1f}", f"{ratio:.2f}"] for ratio, text, ours, numpys in listed
        ]
        print_table(title, ["", "xtensor us", "numpy us", "/ numpy"], lines)


def compared(text: str, ours: dict[str, Any], numpys: dict[str, Any], repeats: int) -> Row:
    """Return the ratio of a text's times, itself, and both libraries' least seconds."""
    call = function(text)
    calls = {"xtensor": partial(evaluated, call, xt, ours), "numpy": partial(call, np, numpys)}
    timed = {name: repeated(one, warmed(one, 0.0 if repeats == 1 else 0.02)) for name, one in calls.items()}
    times = take_turns(timed, repeats)
    least = times["xtensor"].least, times["numpy"].least
    return least[0] / least[1], text, *least


@cache
def operands(size: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return both libraries' operands, by their names in the texts."""
    rng, side = np.random.default_rng(0), isqrt(size)
    f, g, m, n = rng.random(size), rng.random(size) + 0.5, rng.random((side, side)), rng.random((side, side))
    i, k = rng.integers(0, 100, size), rng.integers(0, size, size)
    found = {"f": f, "g": g, "s": f.astype(np.float32), "i": i, "b": f > 0.5, "c": f + 1j * g, "k": k, "m": m, "n": n}
    return {name: xt.asarray(array, copy=True) for name, array in found.items()}, found


def function(text: str) -> Callable[[Any, dict[str, Any]], Any]:
    """Return a text as a function of the namespace and the operands."""
    names = ", ".join("fgsibckmn")
    body = text if text in STATEMENTS else f"return {text}"
    scope: dict[str, Any] = {}
    exec(f"def call({names}, xp):\n    {body}", scope)
    return lambda xp, given: scope["call"](**given, xp=xp)


def evaluated(call: Callable[[Any, dict[str, Any]], Any], xp: Any, given: dict[str, Any]) -> None:
    """Make a call of ours, and compute what it returns."""
    result = call(xp, given)
    for one in result if isinstance(result, (tuple, list)) else [result]:
        if one is not None:
            one.evaluate()

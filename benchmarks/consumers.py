"""Calls of scikit-learn and SciPy that dispatch on their arrays' namespace, beside the same calls on NumPy's arrays.

All of them dispatch in scikit-learn 1.9 and SciPy 1.17; scipy.special.erf does so by taking NumPy's array of a tensor,
as of whatever SciPy does not know.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from statistics import median
from typing import Any

import numpy as np

import xtensor as xt

from .measure import print_table, repeated, take_turns, warmed
from .progress import progress

ROWS, COLUMNS, CLASSES = 100_000, 128, 10
QUICK_ROWS = 1000

# Rows that distances are taken between: so many, from so many.
PAIRED = (2000, 500)

# Results agree within this part of their largest magnitude: both sides compute in float32.
AGREES = 2e-3

# Seconds from which on a call is timed but once, after it was checked.
LONG = 1.0

Operands = Mapping[str, Any]


def fitted(path: str, *given: str, **options: Any) -> Callable[[Operands], dict[str, Any]]:
    """Return a call that fits an estimator of scikit-learn to some operands, and what it has learnt, by name."""

    def call(operands: Operands) -> dict[str, Any]:
        estimator = imported(f"sklearn.{path}")(**options).fit(*(operands[name] for name in given))
        return {name: value for name, value in vars(estimator).items() if name.endswith("_") and is_array(value)}

    return call


def transformed(path: str) -> Callable[[Operands], dict[str, Any]]:
    """Return a call of an estimator's `fit_transform` on the rows."""
    return lambda operands: {"": imported(f"sklearn.{path}")().fit_transform(operands["x"])}


def called(path: str, *given: str, **options: Any) -> Callable[[Operands], dict[str, Any]]:
    """Return a call of a function on some operands; of results with several parts, those that are arrays or numbers."""

    def call(operands: Operands) -> dict[str, Any]:
        result = imported(path)(*(operands[name] for name in given), **options)
        return vars(result) if hasattr(result, "pvalue") else {"": result}

    return call


def imported(path: str) -> Any:
    """Return what a dotted path names."""
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)


# fmt: off
CALLS: dict[str, Callable[[Operands], dict[str, Any]]] = {
    "PCA.fit": fitted("decomposition.PCA", "x", n_components=10, svd_solver="full"),
    "PCA.fit, covariance": fitted("decomposition.PCA", "x", n_components=10, svd_solver="covariance_eigh"),
    "LinearDiscriminantAnalysis.fit": fitted("discriminant_analysis.LinearDiscriminantAnalysis", "x", "labels"),
    "Ridge.fit": fitted("linear_model.Ridge", "x", "y", solver="svd"),
    "StandardScaler.fit_transform": transformed("preprocessing.StandardScaler"),
    "MinMaxScaler.fit_transform": transformed("preprocessing.MinMaxScaler"),
    "MaxAbsScaler.fit_transform": transformed("preprocessing.MaxAbsScaler"),
    "GaussianNB.fit": fitted("naive_bayes.GaussianNB", "x", "labels"),
    "GaussianMixture.fit": fitted(
        "mixture.GaussianMixture", "x", n_components=4, init_params="random", max_iter=2, tol=0.0, random_state=0
    ),
    "rbf_kernel": called("sklearn.metrics.pairwise.rbf_kernel", "many", "few"),
    "euclidean_distances": called("sklearn.metrics.pairwise.euclidean_distances", "many", "few"),
    "r2_score": called("sklearn.metrics.r2_score", "y", "z"),
    "accuracy_score": called("sklearn.metrics.accuracy_score", "labels", "guesses"),
    "zscore": called("scipy.stats.zscore", "x"),
    "skew": called("scipy.stats.skew", "x"),
    "pearsonr": called("scipy.stats.pearsonr", "y", "z"),
    "logsumexp": called("scipy.special.logsumexp", "x", axis=1),
    "erf": called("scipy.special.erf", "x"),
    "rfft": called("scipy.fft.rfft", "x"),
}
# fmt: on

# The ratio of times, the call, and both libraries' seconds.
Row = tuple[float, str, float, float]


def main(quick: bool = False) -> None:
    """Print a table, the slowest first beside NumPy, then the median and the worst."""
    if not (find_spec("sklearn") and find_spec("scipy")):
        print('scikit-learn and SciPy are needed: pip install "xtensor[demo]"')
        return
    os.environ["SCIPY_ARRAY_API"] = "1"  # before SciPy is first imported, also by scikit-learn
    dispatching = imported("sklearn.config_context")
    numpys = made(QUICK_ROWS if quick else ROWS)
    ours = {name: xt.asarray(array, copy=True) for name, array in numpys.items()}
    rows: list[Row] = []
    with dispatching(array_api_dispatch=True):
        for name, call in progress(CALLS.items(), len(CALLS)):
            rows.append(compared(name, call, ours, numpys, 1 if quick else 5))
    lines = [
        [name, f"{mine * 1e3:.2f}", f"{theirs * 1e3:.2f}", f"{ratio:.2f}"]
        for ratio, name, mine, theirs in sorted(rows, reverse=True)
    ]
    size = f"{len(numpys['x']):,} x {COLUMNS} float32"
    print_table(f"{size}: times over NumPy's, the slowest first", ["", "xtensor ms", "numpy ms", "/ numpy"], lines)
    print(summary(rows))


def made(rows: int) -> dict[str, Any]:
    """Return the operands: matrices x, many and few, vectors y and z, and classes of the rows, right and guessed."""
    rng = np.random.default_rng(0)
    labels, others = (rng.integers(0, CLASSES, rows) for _ in range(2))
    # directions that no estimator confounds: of different lengths, and classes that lie apart
    x = rng.standard_normal((rows, COLUMNS), dtype=np.float32) * np.linspace(1.0, 3.0, COLUMNS, dtype=np.float32)
    x += (3.0 * rng.standard_normal((CLASSES, COLUMNS))).astype(np.float32)[labels]
    y, noise = x @ rng.standard_normal(COLUMNS, dtype=np.float32), rng.standard_normal(rows, dtype=np.float32)
    guesses = np.where(rng.random(rows) < 0.7, labels, others)
    many, few = x[: PAIRED[0]].copy(), x[-PAIRED[1] :].copy()
    return {"x": x, "y": y, "z": y + noise, "labels": labels, "guesses": guesses, "many": many, "few": few}


def compared(name: str, call: Callable[[Operands], Any], ours: Operands, numpys: Operands, repeats: int) -> Row:
    """Return the ratio of a call's times, its name, and both libraries' least seconds; the results agree."""
    check(name, evaluated(call, ours), call(numpys))
    calls = {"xtensor": partial(evaluated, call, ours), "numpy": partial(call, numpys)}
    lasting = {side: warmed(one, 0.0 if repeats == 1 else 0.02) for side, one in calls.items()}
    timed = {side: repeated(one, lasting[side]) for side, one in calls.items()}
    times = take_turns(timed, repeats) if max(lasting.values()) < LONG else {}
    least = [times[side].least if times else lasting[side] for side in ("xtensor", "numpy")]
    return least[0] / least[1], name, least[0], least[1]


def evaluated(call: Callable[[Operands], dict[str, Any]], operands: Operands) -> dict[str, Any]:
    """Make a call of ours, and compute what it returns."""
    found = call(operands)
    xt.evaluate(*(value for value in found.values() if isinstance(value, xt.Tensor)))
    return found


def check(name: str, ours: Mapping[str, Any], numpys: Mapping[str, Any]) -> None:
    """Raise ArithmeticError where results differ by more than rounding."""
    for part, expected in numpys.items():
        if is_array(expected) or isinstance(expected, float):
            a, b = np.asarray(ours[part]), np.asarray(expected)
            if part == "scalings_":  # of which either sign will do
                a, b = np.abs(a), np.abs(b)
            scale = np.max(np.abs(b), initial=0.0)
            if a.shape != b.shape or not np.max(np.abs(a - b), initial=0.0) <= AGREES * scale:
                raise ArithmeticError(f"{name}: {part or 'the result'} differs from NumPy's")


def is_array(value: Any) -> bool:
    """Return whether a value is an array of either library."""
    return isinstance(value, (np.ndarray, xt.Tensor))


def summary(rows: list[Row]) -> str:
    """Return the median and the worst of the ratios."""
    worst, name, *_ = max(rows)
    return f"\nmedian {median(row[0] for row in rows):.2f}, worst {worst:.2f} ({name})"

"""Samples of the statistical functions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.samples import Array, Sample, complexes, normal

A, CUBE, Z = normal(3, 4), normal(2, 3, 4), complexes(3, 4)
ZEROS = np.asarray([[2.0, 0.0, 3.0, 4.0], [0.0, 1.5, 0.0, 2.0], [1.0, 2.0, 3.0, 0.0]])
COMPLEX_ZEROS = Z * (ZEROS != 0)


def _reduced(name: str, x: Array, note: str, **params: Any) -> Sample:
    return Sample(name, lambda xp, x: getattr(xp, name)(x, **params), (x,), note)


def _as_complex(name: str, **params: Any) -> Sample:
    return Sample(name, lambda xp, x: getattr(xp, name)(x, dtype=xp.complex128, **params), (A,), "dtype")


def _reductions() -> Iterator[Sample]:
    """Yield every reduction with every way to name its axes."""
    for name in ("sum", "mean", "prod", "max", "min", "var", "std"):
        yield _reduced(name, A, "")
        yield _reduced(name, CUBE, "axis", axis=1)
        yield _reduced(name, CUBE, "axes kept", axis=(0, -1), keepdims=True)
        yield _reduced(name, CUBE, "axes", axis=(-1, 0))
        yield _reduced(name, CUBE, "all kept", keepdims=True)
        yield _reduced(name, A.T[::-1], "turned", axis=0)
        yield _reduced(name, np.zeros((0, 3)), "empty", axis=1)
    for name in ("sum", "mean", "prod", "max", "min"):
        yield _reduced(name, normal(), "scalar")
        yield _reduced(name, A, "no axes", axis=())
    for name in ("sum", "mean", "prod"):
        yield _reduced(name, Z, "complex", axis=0)
        yield _as_complex(name, axis=1)
    for name in ("sum", "prod"):
        yield _reduced(name, np.zeros((0, 3)), "of nothing", axis=0)
    for name in ("var", "std"):
        yield _reduced(name, A, "correction", correction=1.0, axis=1)
        yield _reduced(name, CUBE, "large correction", correction=2.5, axis=(0, 1), keepdims=True)
        yield _reduced(name, A, "ddof", ddof=1)


SAMPLES = [
    *_reductions(),
    _reduced("prod", ZEROS, "zeros", axis=1),
    _reduced("prod", ZEROS, "all zeros"),
    _reduced("prod", COMPLEX_ZEROS, "complex zeros", axis=-1),
    _reduced("cumulative_sum", normal(4), ""),
    _reduced("cumulative_sum", A, "axis", axis=0),
    _reduced("cumulative_sum", Z, "complex initial", axis=1, include_initial=True),
    _as_complex("cumulative_sum", axis=1),
    _reduced("cumulative_sum", np.zeros((2, 0)), "empty", axis=1),
    _reduced("cumulative_sum", np.zeros((2, 0)), "empty initial", axis=1, include_initial=True),
    _reduced("cumulative_sum", normal(2, 1), "length one", axis=1),
    _reduced("cumulative_prod", normal(4), ""),
    _reduced("cumulative_prod", A, "axis", axis=0),
    _reduced("cumulative_prod", Z, "complex initial", axis=1, include_initial=True),
    _as_complex("cumulative_prod", axis=-1),
    _reduced("cumulative_prod", np.zeros((2, 0)), "empty", axis=1),
    _reduced("cumulative_prod", np.zeros((2, 0)), "empty initial", axis=1, include_initial=True),
    _reduced("cumulative_prod", normal(2, 1), "length one", axis=1),
    _reduced("cumulative_prod", ZEROS, "zeros", axis=1),
    _reduced("cumulative_prod", COMPLEX_ZEROS, "complex zeros", axis=0),
]

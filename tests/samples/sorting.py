"""Samples of the sorting functions."""

from __future__ import annotations

import numpy as np

from tests.samples import Sample, complexes, normal

SAMPLES = [
    Sample("sort", lambda xp, x: xp.sort(x), (normal(3, 4),)),
    Sample("sort", lambda xp, x: xp.sort(x, axis=0), (normal(4, 3),), "axis"),
    Sample("sort", lambda xp, x: xp.sort(x, descending=True), (normal(7),), "descending"),
    Sample("sort", lambda xp, x: xp.sort(x, axis=1, stable=False), (normal(2, 5, 2),), "not stable"),
    Sample("sort", lambda xp, x: xp.sort(x), (np.zeros((2, 0)),), "empty"),
    Sample("sort", lambda xp, x: xp.sort(x), (complexes(5),), "complex"),
]

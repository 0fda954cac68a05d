"""Samples of the set functions: the values take part in the gradient, each as its first occurrence."""

from __future__ import annotations

import numpy as np

from tests.samples import Sample, complexes, normal

SAMPLES = [
    Sample("unique_values", lambda xp, x: xp.unique_values(x), (normal(3, 4),)),
    Sample("unique_values", lambda xp, x: xp.unique_values(x), (complexes(4),), "complex"),
    Sample("unique_values", lambda xp, x: xp.unique_values(x), (np.zeros((0, 2)),), "empty"),
    Sample("unique_values", lambda xp, x: xp.unique_values(x), (normal(),), "scalar"),
    Sample("unique_all", lambda xp, x: xp.unique_all(x).values, (normal(2, 3),)),
    Sample("unique_all", lambda xp, x: xp.unique_all(x), (normal(5),), "all results"),
    Sample("unique_counts", lambda xp, x: xp.unique_counts(x).values, (normal(5),)),
    Sample("unique_inverse", lambda xp, x: xp.unique_inverse(x).values, (normal(2, 2),)),
]

"""Samples of the utility functions."""

from __future__ import annotations

import numpy as np

from tests.samples import Sample, complexes, normal

A = normal(3, 5)

SAMPLES = [
    Sample("diff", lambda xp, x: xp.diff(x), (A,)),
    Sample("diff", lambda xp, x: xp.diff(x, axis=0, n=2), (A,), "axis twice"),
    Sample("diff", lambda xp, x: xp.diff(x, n=3), (complexes(2, 6),), "complex three times"),
    Sample("diff", lambda xp, x: xp.diff(x, n=0), (A,), "no times"),
    Sample("diff", lambda xp, x: xp.diff(x, n=5), (A,), "all used up"),
    Sample("diff", lambda xp, x: xp.diff(x, n=7), (A,), "more than there are"),
    Sample("diff", lambda xp, x: xp.diff(x), (np.zeros((2, 0)),), "empty"),
    Sample(
        "diff",
        lambda xp, x, a, b: xp.diff(x, prepend=a, append=b),
        (A, normal(3, 1), normal(3, 2)),
        "prepend and append",
    ),
    Sample("diff", lambda xp, x, a: xp.diff(x, axis=0, prepend=a), (A, normal()), "prepend a number"),
    Sample("diff", lambda xp, x, b: xp.diff(x, n=2, append=b), (A, complexes(3, 1)), "complex append"),
]

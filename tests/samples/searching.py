"""Samples of the searching functions."""

from __future__ import annotations

from tests.samples import Sample, complexes, normal

SAMPLES = [
    Sample("where", lambda xp, x, y: xp.where(x > 0, x, y), (normal(3, 4), normal(3, 4, seed=1))),
    Sample("where", lambda xp, x, y: xp.where(xp.real(y) > 0, x, y), (normal(4), complexes(3, 4)), "broadcast complex"),
]

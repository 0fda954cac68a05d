"""Samples of the creation functions whose arguments may have a gradient."""

from __future__ import annotations

import numpy as np

from tests.samples import Sample, complexes, normal

A, Z = normal(3, 4), complexes(3, 3)
ONE, TWO = normal(), normal(seed=1)

SAMPLES = [
    Sample("asarray", lambda xp, x: xp.asarray(x), (A,)),
    Sample("asarray", lambda xp, x: xp.asarray(x, copy=True) * x, (A,), "copy"),
    Sample("asarray", lambda xp, x: xp.asarray(x, copy=False) * x, (A,), "no copy"),
    Sample("asarray", lambda xp, x: xp.asarray(x, dtype=xp.complex128) * x, (A,), "complex"),
    Sample("asarray", lambda xp, x: xp.asarray([[x[0, 0], 2.0], [x[1, 1], x[0, 0]]]), (A,), "nested"),
    Sample("asarray", lambda xp, x, y: xp.asarray((x, y)), (A, complexes(3, 4)), "of tensors"),
    Sample("full", lambda xp, x: xp.full((2, 3), x), (ONE,)),
    Sample("full", lambda xp, x: xp.full((2, 3), x), (normal(3),), "broadcast"),
    Sample("full", lambda xp, x: xp.full((), x, dtype=xp.complex128) * x, (ONE,), "dtype"),
    Sample("full", lambda xp, x: xp.full((0, 2), x), (complexes(),), "empty"),
    Sample("full_like", lambda xp, x, y: xp.full_like(x, y), (A, ONE)),
    Sample("full_like", lambda xp, x, y: xp.full_like(x, y), (Z, complexes(3)), "broadcast"),
    Sample("linspace", lambda xp, x, y: xp.linspace(x, y, 5), (ONE, TWO)),
    Sample("linspace", lambda xp, x, y: xp.linspace(x, y, 4, endpoint=False), (ONE, TWO), "open"),
    Sample("linspace", lambda xp, x, y: xp.linspace(x, y, 3), (complexes(), TWO), "complex"),
    Sample("linspace", lambda xp, x, y: xp.linspace(x, y, 1), (ONE, TWO), "one value"),
    Sample("linspace", lambda xp, x, y: xp.linspace(x, y, 0), (ONE, TWO), "none"),
    Sample("linspace", lambda xp, x: xp.linspace(0.0, x, 4), (ONE,), "one tensor"),
    Sample("linspace", lambda xp, x, y: xp.linspace(x, y, 4), (normal(2, 1), normal(3)), "arrays"),
    Sample("arange", lambda xp, x, y: xp.arange(x, x + 4.2, y), (ONE, np.asarray(0.5))),
    Sample("arange", lambda xp, x: xp.arange(x), (np.asarray(3.5),), "stop alone"),
    Sample("arange", lambda xp, x, y: xp.arange(0, x, y), (np.asarray(-3.3), np.asarray(-0.5)), "down"),
    Sample("meshgrid", lambda xp, x, y: xp.meshgrid(x, y), (normal(3), normal(2))),
    Sample("meshgrid", lambda xp, x, y: xp.meshgrid(x, y, indexing="ij"), (normal(3), complexes(2)), "ij complex"),
    Sample(
        "meshgrid",
        lambda xp, x, y, z: xp.meshgrid(x, y, z, indexing="xy"),
        (normal(3), normal(), normal(2)),
        "three and a number",
    ),
    Sample("meshgrid", lambda xp, x: xp.meshgrid(x), (normal(3),), "one"),
    Sample("meshgrid", lambda xp, x: xp.meshgrid(x, x), (normal(0),), "empty"),
    Sample("tril", lambda xp, x: xp.tril(x), (Z,)),
    Sample("tril", lambda xp, x: xp.tril(x, k=-1), (normal(2, 3, 4),), "stack below"),
    Sample("triu", lambda xp, x: xp.triu(x), (Z,)),
    Sample("triu", lambda xp, x: xp.triu(x, k=1), (normal(2, 3, 4),), "stack above"),
    Sample("triu", lambda xp, x: xp.triu(x), (np.zeros((0, 2)),), "empty"),
]

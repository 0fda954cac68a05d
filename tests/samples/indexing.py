"""Samples of indexing: the functions, and what `x[key]` does."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.samples import Sample, complexes, normal

A, Z, CUBE = normal(4, 5), complexes(3, 4), normal(2, 3, 4)
MASK = np.asarray([True, False, True, True])
ROWS, COLUMNS = np.asarray([2, 0, 2, -1]), np.asarray([1, 1, 1, 0])
ALONG = np.asarray([[0, 2, 2], [1, 1, -1], [0, 0, 0]])


def _key(note: str, x: Any, key: Any, oracles: tuple[str, ...] = ("torch", "jax")) -> Sample:
    """Return the sample of `x[key]`; arrays in a key become those of the namespace."""

    def call(xp: Any, x: Any) -> Any:
        if isinstance(key, tuple):
            return x[tuple(xp.asarray(one) if isinstance(one, np.ndarray) else one for one in key)]
        return x[xp.asarray(key) if isinstance(key, np.ndarray) else key]

    steps = [one.step for one in (key if isinstance(key, tuple) else (key,)) if isinstance(one, slice)]
    backwards = any(step is not None and step < 0 for step in steps)
    return Sample("getitem", call, (x,), note, oracles=("jax",) if backwards else oracles)


SAMPLES = [
    Sample("take", lambda xp, x: xp.take(x, xp.asarray(ROWS)), (normal(4),), oracles=("jax",)),
    Sample("take", lambda xp, x: xp.take(x, xp.asarray(ROWS), axis=1), (A,), "axis", oracles=("jax",)),
    Sample("take", lambda xp, x: xp.take(x, xp.asarray(ROWS), axis=-2), (Z,), "complex", oracles=("jax",)),
    Sample("take", lambda xp, x: xp.take(x, xp.asarray(ALONG), axis=1), (CUBE,), "of two axes", oracles=("jax",)),
    Sample("take", lambda xp, x: xp.take(x, xp.asarray(2), axis=0), (A,), "of no axes", oracles=("jax",)),
    Sample("take", lambda xp, x: xp.take(x, xp.asarray(ROWS[:0]), axis=0), (A,), "none", oracles=("jax",)),
    Sample("take", lambda xp, x: xp.take(x, [0, 0, 1], axis=0), (A,), "a list", oracles=()),
    Sample(
        "take_along_axis",
        lambda xp, x: xp.take_along_axis(x, xp.asarray(ALONG), axis=1),
        (normal(3, 4),),
        oracles=("jax",),
    ),
    Sample(
        "take_along_axis",
        lambda xp, x: xp.take_along_axis(x, xp.asarray(ALONG), axis=0),
        (complexes(3, 3),),
        "complex",
        oracles=("jax",),
    ),
    Sample(
        "take_along_axis",
        lambda xp, x: xp.take_along_axis(x, xp.asarray(ALONG), axis=1),
        (normal(1, 3),),
        "x stretched",
        oracles=("jax",),
    ),
    Sample(
        "take_along_axis",
        lambda xp, x: xp.take_along_axis(x, xp.asarray(ALONG[:1]), axis=-1),
        (normal(4, 3),),
        "indices stretched",
        oracles=("jax",),
    ),
    Sample(
        "take_along_axis",
        lambda xp, x: xp.take_along_axis(x, xp.asarray(ALONG[:, :0]), axis=-1),
        (normal(3, 3),),
        "none",
        oracles=("jax",),
    ),
    _key("integer", A, 1),
    _key("element", A, (1, -2)),
    _key("of no axes", normal(), ()),
    _key("Ellipsis", CUBE, (..., 1)),
    _key("None", A, (None, slice(1, 3), None, 2)),
    _key("negative step", Z, (slice(None, None, -1), slice(3, None, -2))),
    _key("empty slice", A, slice(2, 2)),
    _key("mask", normal(4, 2), MASK),
    _key("mask of one axis", Z, (slice(None), MASK)),
    _key("full mask", A, np.asarray(A > 0)),
    _key("empty mask", A, np.zeros((4, 5), bool)),
    _key("repeated integers", A, ROWS),
    _key("pairs", A, (ROWS, COLUMNS)),
    _key("outer", complexes(4, 5), (ROWS[:, None], COLUMNS[None, :3])),
    _key("arrays apart", CUBE, (np.asarray([1, 0, 1]), slice(None), np.asarray([3, 3, 3]))),
    _key("array, None, Ellipsis", CUBE, (..., None, np.asarray([[1, 1], [0, 3]]))),
    _key("array and integer", CUBE, (1, slice(None), np.asarray([3, 3])), oracles=("jax",)),  # PyTorch: turned
    Sample("getitem", lambda xp, x: x[[2, 0, 2]], (A,), "a list", oracles=()),
    Sample("getitem", lambda xp, x: x.T[1:][:, ::2][0], (A,), "views of views"),
    Sample("getitem", lambda xp, x: [row * row for row in x], (normal(2, 3),), "iteration", oracles=()),
]

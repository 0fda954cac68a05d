"""Samples of indexing: the functions, and what `x[key]` does."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.samples import Sample, complexes, normal

A, Z, CUBE = normal(4, 5), complexes(3, 4), normal(2, 3, 4)
MASK = np.asarray([True, False, True, True])
ROWS, COLUMNS = np.asarray([2, 0, 2, -1]), np.asarray([1, 1, 1, 0])
ALONG = np.asarray([[0, 2, 2], [1, 1, -1], [0, 0, 0]])


def _key(note: str, x: Any, key: Any) -> Sample:
    """Return the sample of `x[key]`; arrays in a key become those of the namespace."""

    def call(xp: Any, x: Any) -> Any:
        if isinstance(key, tuple):
            return x[tuple(xp.asarray(one) if isinstance(one, np.ndarray) else one for one in key)]
        return x[xp.asarray(key) if isinstance(key, np.ndarray) else key]

    return Sample("getitem", call, (x,), note)


SAMPLES = [
    Sample("take", lambda xp, x: xp.take(x, xp.asarray(ROWS)), (normal(4),)),
    Sample("take", lambda xp, x: xp.take(x, xp.asarray(ROWS), axis=1), (A,), "axis"),
    Sample("take", lambda xp, x: xp.take(x, xp.asarray(ROWS), axis=-2), (Z,), "complex"),
    Sample("take", lambda xp, x: xp.take(x, xp.asarray(ALONG), axis=1), (CUBE,), "of two axes"),
    Sample("take", lambda xp, x: xp.take(x, xp.asarray(2), axis=0), (A,), "of no axes"),
    Sample("take", lambda xp, x: xp.take(x, xp.asarray(ROWS[:0]), axis=0), (A,), "none"),
    Sample("take", lambda xp, x: xp.take(x, [0, 0, 1], axis=0), (A,), "a list"),
    Sample("take_along_axis", lambda xp, x: xp.take_along_axis(x, xp.asarray(ALONG), axis=1), (normal(3, 4),)),
    Sample(
        "take_along_axis", lambda xp, x: xp.take_along_axis(x, xp.asarray(ALONG), axis=0), (complexes(3, 3),), "complex"
    ),
    Sample(
        "take_along_axis",
        lambda xp, x: xp.take_along_axis(x, xp.asarray(ALONG), axis=1),
        (normal(1, 3),),
        "x stretched",
    ),
    Sample(
        "take_along_axis",
        lambda xp, x: xp.take_along_axis(x, xp.asarray(ALONG[:1]), axis=-1),
        (normal(4, 3),),
        "indices stretched",
    ),
    Sample(
        "take_along_axis",
        lambda xp, x: xp.take_along_axis(x, xp.asarray(ALONG[:, :0]), axis=-1),
        (normal(3, 3),),
        "none",
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
    _key("array and integer", CUBE, (1, slice(None), np.asarray([3, 3]))),
    Sample("getitem", lambda xp, x: x[[2, 0, 2]], (A,), "a list"),
    Sample("getitem", lambda xp, x: x.T[1:][:, ::2][0], (A,), "views of views"),
    Sample("getitem", lambda xp, x: [row * row for row in x], (normal(2, 3),), "iteration"),
]

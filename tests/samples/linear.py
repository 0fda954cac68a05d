"""Samples of the linear algebra functions of the main namespace."""

from __future__ import annotations

from typing import Any

from tests.samples import Array, Sample, complexes, normal


def product(name: str, *args: Array, note: str, **options: Any) -> Sample:
    """Return a sample of a function of the same two arguments everywhere."""
    return Sample(name, lambda xp, x, y: getattr(xp, name)(x, y, **options), args, note)


SAMPLES = [
    product("matmul", normal(3, 4), normal(4, 2), note=""),
    product("matmul", normal(4), normal(4), note="vectors"),
    product("matmul", normal(4), normal(4, 2), note="vector matrix"),
    product("matmul", normal(3, 4), normal(4), note="matrix vector"),
    product("matmul", normal(4), normal(2, 4, 3), note="vector stack"),
    product("matmul", normal(2, 3, 4), normal(4), note="stack vector"),
    product("matmul", normal(2, 1, 3, 4), normal(5, 4, 2), note="stacks"),
    product("matmul", complexes(2, 3, 4), complexes(4, 2), note="complex"),
    product("matmul", normal(3, 4), complexes(4, 2), note="real complex"),
    product("matmul", normal(0, 3), normal(3, 2), note="no rows"),
    product("matmul", normal(2, 0), normal(0, 3), note="no terms"),
    Sample("matmul", lambda xp, x: xp.matmul(xp.flip(x), x[:, ::2]), (normal(4, 4),), "views"),
    Sample("matrix_transpose", lambda xp, x: xp.matrix_transpose(x), (normal(2, 3, 4),)),
    Sample("matrix_transpose", lambda xp, x: xp.matrix_transpose(x) * x, (complexes(3, 3),), "complex"),
    product("tensordot", normal(2, 3, 4), normal(3, 4, 5), note=""),
    product("tensordot", normal(2, 3), normal(4), note="outer", axes=0),
    product("tensordot", normal(2, 3, 4), normal(4, 5), note="one axis", axes=1),
    product("tensordot", normal(2, 3, 4, 5), normal(5, 6, 2, 3), note="crossed", axes=((3, 0, 1), (0, 2, 3))),
    product("tensordot", complexes(2, 3, 4), complexes(5, 4, 3), note="complex", axes=((-2, -1), (-1, -2))),
    product("tensordot", complexes(2, 3), normal(3), note="complex real", axes=1),
    product("tensordot", normal(0, 3), normal(3, 2), note="empty", axes=1),
    product("vecdot", normal(3, 4), normal(3, 4), note=""),
    product("vecdot", normal(2, 1, 4), normal(3, 4), note="broadcast"),
    product("vecdot", complexes(3, 4), complexes(3, 4), note="complex"),
    product("vecdot", normal(4), complexes(2, 4), note="real complex"),
    product("vecdot", complexes(4, 3), complexes(2, 4, 1), note="axis", axis=-2),
    product("vecdot", normal(3, 0), normal(0), note="empty"),
]

"""Samples of the linalg extension.

Vectors of decompositions are determined up to signs, phases or rotations, so their samples return what is not.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import numpy as np

from tests.samples import Array, Sample, complexes, normal


def plain(name: str, *args: Array, note: str = "", **options: Any) -> Sample:
    """Return a sample of a linalg function with its options."""
    return Sample(f"linalg.{name}", lambda xp, *x: getattr(xp.linalg, name)(*x, **options), args, note)


def adjoint(xp: Any, x: Any) -> Any:
    """Return matrices transposed and conjugated."""
    return xp.conj(xp.matrix_transpose(x))


def hermitian(xp: Any, x: Any) -> Any:
    """Return Hermitian matrices that depend on both triangles."""
    return x + adjoint(xp, x)


def positive_definite(xp: Any, x: Any) -> Any:
    """Return Hermitian matrices with positive eigenvalues."""
    return xp.matmul(x, adjoint(xp, x)) + xp.eye(x.shape[-1])


def projector(xp: Any, v: Any) -> Any:
    """Return the orthogonal projectors on what orthonormal columns span."""
    return xp.matmul(v, adjoint(xp, v))


def apart(*shape: int, make: Callable[..., Array] = normal) -> Array:
    """Return matrices with eigenvalues and singular values far apart."""
    return make(*shape) * 0.3 + np.diag(np.arange(1.0, max(shape) + 1))[: shape[-2], : shape[-1]]


def of_eigh(xp: Any, x: Any) -> Any:
    """Return eigenvalues, sizes of eigenvectors' elements, and a projector."""
    w, v = xp.linalg.eigh(hermitian(xp, x))
    return w, xp.abs(v), projector(xp, v[..., :2])


def of_eig(xp: Any, x: Any) -> Any:
    """Return eigenvalues, sizes of eigenvectors' elements, and the projector on one."""
    w, v = xp.linalg.eig(x)
    return w, xp.abs(v), projector(xp, v[..., :1])


def of_svd(xp: Any, x: Any, *, full_matrices: bool = False) -> Any:
    """Return singular values, sizes of the vectors' elements, what both make, and projectors on the remaining ones."""
    u, s, vh = xp.linalg.svd(x, full_matrices=full_matrices)
    k = s.shape[-1]
    both = xp.matmul(u[..., :k], vh[..., :k, :])
    found = (xp.abs(u[..., :k]), s, xp.abs(vh[..., :k, :]), both)
    if not full_matrices:
        return found
    return *found, projector(xp, u[..., k:]), projector(xp, adjoint(xp, vh[..., k:, :]))


def of_complete_qr(xp: Any, x: Any) -> Any:
    """Return R, the columns of Q that x determines, and the projector on the others."""
    q, r = xp.linalg.qr(x, mode="complete")
    k = min(x.shape[-2:])
    return r, q[..., :k], projector(xp, q[..., k:])


def of_rank(rank: int, *shape: int, make: Callable[..., Array] = normal) -> Array:
    """Return matrices of a rank."""
    return make(*shape[:-1], rank) @ make(*shape[:-2], rank, shape[-1], seed=1)


SQUARE, STACK, COMPLEX = normal(3, 3), normal(2, 3, 3), complexes(2, 3, 3)
EVERY = {"": SQUARE, "stack": STACK, "complex": COMPLEX}

FACTORS = [
    *[
        Sample(
            "linalg.cholesky",
            lambda xp, x, upper=upper: xp.linalg.cholesky(positive_definite(xp, x), upper=upper),
            (x,),
            f"{note} upper {upper}",
        )
        for note, x in EVERY.items()
        for upper in (False, True)
    ],
    Sample("linalg.eig", of_eig, (apart(3, 3),), "real eigenvalues"),
    Sample("linalg.eig", of_eig, (normal(2, 4, 4, seed=3),), "stack"),
    Sample("linalg.eig", of_eig, (complexes(3, 3),), "complex"),
    *[
        Sample("linalg.eigvals", lambda xp, x: xp.linalg.eigvals(x), (x,), note)
        for note, x in {"real eigenvalues": apart(3, 3), "stack": normal(2, 4, 4, seed=3), "complex": COMPLEX}.items()
    ],
    *[Sample("linalg.eigh", of_eigh, (x,), note) for note, x in EVERY.items()],
    *[
        Sample("linalg.eigvalsh", lambda xp, x: xp.linalg.eigvalsh(hermitian(xp, x)), (x,), note)
        for note, x in EVERY.items()
    ],
    *[
        Sample("linalg.qr", lambda xp, x: tuple(xp.linalg.qr(x)), (x,), note)
        for note, x in {**EVERY, "tall": normal(4, 3), "tall complex": complexes(2, 4, 3)}.items()
    ],
    Sample("linalg.qr", lambda xp, x: tuple(xp.linalg.qr(x)), (normal(3, 5),), "wide"),
    Sample("linalg.qr", lambda xp, x: tuple(xp.linalg.qr(x)), (complexes(2, 2, 3),), "wide complex"),
    Sample("linalg.qr", of_complete_qr, (normal(3, 3),), "complete square"),
    Sample("linalg.qr", of_complete_qr, (normal(5, 3),), "complete tall"),
    Sample("linalg.qr", of_complete_qr, (complexes(2, 4, 2),), "complete tall complex"),
    Sample("linalg.qr", of_complete_qr, (complexes(2, 3),), "complete wide"),
    *[
        Sample("linalg.svd", of_svd, (apart(*shape, make=make),), f"{note} {' by '.join(map(str, shape))}")
        for shape in ((3, 3), (4, 2), (2, 4), (2, 3, 3))
        for make, note in ((normal, "real"), (complexes, "complex"))
    ],
    *[
        Sample(
            "linalg.svd",
            lambda xp, x: of_svd(xp, x, full_matrices=True),
            (apart(*shape, make=make),),
            f"full {note} {shape}",
        )
        for shape in ((3, 3), (4, 2), (2, 4))
        for make, note in ((normal, "real"), (complexes, "complex"))
    ],
    *[plain("svdvals", x, note=note) for note, x in {**EVERY, "wide": normal(2, 4), "tall": complexes(4, 2)}.items()],
]

PRODUCTS = [
    plain("cross", normal(2, 3), normal(2, 3)),
    plain("cross", complexes(3), normal(2, 3), note="broadcast"),
    plain("cross", normal(3, 1), complexes(2, 3, 4), note="axis", axis=-2),
    *[
        plain("diagonal", x, note=f"{note} {offset}", offset=offset)
        for note, x in {"wide": normal(3, 4), "complex": complexes(2, 4, 3)}.items()
        for offset in (0, 1, -2)
    ],
    plain("matmul", normal(3, 4), complexes(4, 2)),
    *[
        Sample("linalg.matrix_power", lambda xp, x, n=n: xp.linalg.matrix_power(x, n), (x,), f"{note} {n}")
        for note, x in {"": apart(3, 3), "complex": apart(2, 3, 3, make=complexes)}.items()
        for n in (0, 1, 2, 5, -1, -3)
    ],
    plain("matrix_transpose", complexes(2, 3, 4)),
    plain("outer", normal(3), normal(4)),
    plain("outer", complexes(3), complexes(2), note="complex"),
    plain("outer", normal(3), complexes(0), note="empty"),
    plain("tensordot", normal(2, 3, 4), complexes(3, 4, 2)),
    *[
        plain("trace", x, note=f"{note} {offset}", offset=offset)
        for note, x in {"": normal(3, 4), "complex": complexes(2, 3, 3)}.items()
        for offset in (0, 1)
    ],
    plain("vecdot", complexes(3, 4), complexes(3, 4)),
]

INVERSES = [
    *[plain(name, x, note=note) for name in ("det", "inv", "slogdet") for note, x in EVERY.items()],
    # Elimination computes these numbers exactly, so this determinant is 0 on every machine; of others rounding decides.
    plain("det", np.asarray([[4, 2, 1], [2, 5, 2.5], [1, 2.5, 1.25]]), note="of rank n - 1"),
    plain("det", np.stack([complexes(4, 4), of_rank(2, 4, 4, make=complexes)]), note="of rank n - 2"),
    plain("det", np.eye(3), note="identity"),
    plain("det", normal(1, 1), note="one element"),
    plain("det", normal(2, 0, 0), note="no elements"),
    plain("inv", normal(0, 3, 3), note="no matrices"),
    *[plain("pinv", x, note=note) for note, x in {**EVERY, "wide": normal(2, 4), "tall": complexes(2, 4, 2)}.items()],
    Sample(
        "linalg.pinv",
        lambda xp, x, y: xp.linalg.pinv(xp.matmul(x, y), rtol=1e-6),
        (complexes(4, 2), complexes(2, 3, seed=1)),
        "of rank 2",
    ),
    *[
        plain("solve", a, b, note=note)
        for note, a, b in (
            ("", SQUARE, normal(3, 2)),
            ("vector", SQUARE, normal(3)),
            ("stack", STACK, normal(2, 3, 4)),
            ("one matrix", complexes(3, 3), complexes(2, 3, 2)),
            ("one right side", COMPLEX, normal(3, 2)),
        )
    ],
    plain("solve", STACK, normal(3), note="stack vector"),
]

NORMS = [
    *[
        plain("matrix_norm", x, note=f"{note} {order} {keepdims}", ord=order, keepdims=keepdims)
        for note, x in {"": normal(3, 4), "complex": complexes(2, 4, 3)}.items()
        for order in ("fro", "nuc", 1, -1, 2, -2, inf, -inf)
        for keepdims in (False, True)
    ],
    *[
        plain("vector_norm", x, note=f"{note} {order}", ord=order)
        for note, x in {"": normal(4), "complex": complexes(2, 3)}.items()
        for order in (0, 1, 2, 3, 2.5, 0.5, -1, -2.5, inf, -inf)
    ],
    *[
        plain("vector_norm", x, note=f"axis {axis} {order} {keepdims}", ord=order, axis=axis, keepdims=keepdims)
        for x, axis in ((normal(2, 3), 0), (complexes(2, 3, 2), (0, -1)))
        for order in (1, 2, 3, inf)
        for keepdims in (False, True)
    ],
    plain("vector_norm", normal(), note="one number"),
    plain("vector_norm", normal(0, 3), note="of nothing", axis=0),
]

SAMPLES = FACTORS + PRODUCTS + INVERSES + NORMS

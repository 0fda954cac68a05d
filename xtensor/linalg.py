"""The standard's linalg extension: matrices are the last two axes, any leading axes are stacks.

Integers are computed as float64 where a result is floating, as NumPy does. A matrix that cannot be factorised or
inverted raises `numpy.linalg.LinAlgError` (a ValueError).
"""

from __future__ import annotations

from math import inf
from typing import Any, Literal, NamedTuple

from .dtypes import DType, canonical
from .errors import expected, mismatch, one_of
from .layout import as_axes, as_axis, as_index
from .op import as_tensor, on
from .ops.linear import matmul, matrix_transpose, tensordot, vecdot
from .ops.statistical import Axis
from .ops.statistical import sum as _sum
from .tensor import Tensor

__all__ = [
    "cholesky",
    "cross",
    "det",
    "diagonal",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "inv",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "svd",
    "svdvals",
    "tensordot",
    "trace",
    "vecdot",
    "vector_norm",
]


class EigResult(NamedTuple):
    """Eigenvalues (..., n) and eigenvectors as columns (..., n, n)."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class EighResult(NamedTuple):
    """Eigenvalues (..., n), ascending, and orthonormal eigenvectors as columns (..., n, n)."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class QRResult(NamedTuple):
    """Q with orthonormal columns and the upper triangular R."""

    Q: Tensor
    R: Tensor


class SlogdetResult(NamedTuple):
    """The determinant's sign (or phase) and the logarithm of its magnitude."""

    sign: Tensor
    logabsdet: Tensor


class SVDResult(NamedTuple):
    """U, the singular values S in descending order, and Vh."""

    U: Tensor
    S: Tensor
    Vh: Tensor


def _matrices(x: Any, function: str, argument: str = "x", *, square: bool = False) -> Tensor:
    x = as_tensor(x, function, argument)
    if x.ndim < 2:
        raise ValueError(expected(function, argument, "have at least 2 axes", f"shape {x.shape}"))
    if square and x.shape[-1] != x.shape[-2]:
        raise ValueError(expected(function, argument, "be square matrices", f"shape {x.shape}"))
    return x


def cholesky(x: Tensor, /, *, upper: bool = False) -> Tensor:
    """Return the Cholesky factor of Hermitian positive-definite matrices (..., n, n), lower unless `upper`.

    Standard: Linear Algebra Extension, cholesky.
    """
    return on(_matrices(x, "cholesky", square=True), "cholesky", lambda xp, a: xp.linalg.cholesky(a, upper=upper))


def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """Return the cross products of 3-vectors along an axis; the other axes broadcast.

    Raises ValueError unless both have length 3 there. Standard: Linear Algebra Extension, cross.
    """
    x1, x2 = as_tensor(x1, "cross", "x1"), as_tensor(x2, "cross", "x2")
    for x, name in ((x1, "x1"), (x2, "x2")):
        if x.shape[as_axis(axis, x.ndim, "cross")] != 3:
            raise ValueError(expected("cross", name, f"have length 3 along axis {axis}", f"shape {x.shape}"))
    return on((x1, x2), "cross", lambda xp, a, b: xp.linalg.cross(a, b, axis=axis))


def det(x: Tensor, /) -> Tensor:
    """Return the determinants (...) of square matrices (..., n, n). Standard: Linear Algebra Extension, det."""
    return on(_matrices(x, "det", square=True), "det", lambda xp, a: xp.linalg.det(a))


def diagonal(x: Tensor, /, *, offset: int = 0) -> Tensor:
    """Return the diagonals of (..., n, m) as views (..., k); offset > 0 lies above the main one.

    Standard: Linear Algebra Extension, diagonal.
    """
    x = _matrices(x, "diagonal")
    return x.viewed(x.blob.layout.diagonal(as_index(offset, "diagonal", "offset")))


def eig(x: Tensor, /) -> EigResult:
    """Return the (complex) eigenvalues and eigenvectors of square matrices (..., n, n).

    Standard: Linear Algebra Extension, eig (2025.12).
    """
    x = _matrices(x, "eig", square=True)
    return EigResult(*on(x, "eig", lambda xp, a: tuple(_complex(part, a) for part in xp.linalg.eig(a))))


def eigvals(x: Tensor, /) -> Tensor:
    """Return the (complex) eigenvalues (..., n) of square matrices (..., n, n).

    Standard: Linear Algebra Extension, eigvals (2025.12).
    """
    x = _matrices(x, "eigvals", square=True)
    return on(x, "eigvals", lambda xp, a: _complex(xp.linalg.eigvals(a), a))


def _complex(part: Any, matrix: Any) -> Any:
    """Return NumPy's eigen-result as complex: it gives real ones where no imaginary part is left."""
    single = matrix.dtype.name in ("float32", "complex64")
    return part.astype("complex64" if single else "complex128", copy=False)


def eigh(x: Tensor, /) -> EighResult:
    """Return the eigenvalues and eigenvectors of Hermitian matrices (..., n, n), read from the lower triangle.

    Standard: Linear Algebra Extension, eigh.
    """
    return EighResult(*on(_matrices(x, "eigh", square=True), "eigh", lambda xp, a: tuple(xp.linalg.eigh(a))))


def eigvalsh(x: Tensor, /) -> Tensor:
    """Return the eigenvalues (..., n), ascending, of Hermitian matrices (..., n, n).

    Standard: Linear Algebra Extension, eigvalsh.
    """
    return on(_matrices(x, "eigvalsh", square=True), "eigvalsh", lambda xp, a: xp.linalg.eigvalsh(a))


def inv(x: Tensor, /) -> Tensor:
    """Return the inverses of square matrices (..., n, n). Standard: Linear Algebra Extension, inv."""
    return on(_matrices(x, "inv", square=True), "inv", lambda xp, a: xp.linalg.inv(a))


def matrix_norm(
    x: Tensor,
    /,
    *,
    keepdims: bool = False,
    ord: float | Literal["fro", "nuc"] | None = "fro",
) -> Tensor:
    """Return the norms (...) of matrices (..., n, m).

    ord: "fro" (Frobenius), "nuc" (nuclear), 1, -1, 2, -2, inf, -inf. Standard: Linear Algebra Extension,
    matrix_norm.
    """
    if ord not in ("fro", "nuc", 1, -1, 2, -2, inf, -inf, None):
        raise ValueError(expected("matrix_norm", "ord", one_of(("fro", "nuc", 1, -1, 2, -2, inf, -inf)), repr(ord)))
    x = _matrices(x, "matrix_norm")
    return on(
        x, "matrix_norm", lambda xp, a: xp.linalg.matrix_norm(a, keepdims=keepdims, ord="fro" if ord is None else ord)
    )


def matrix_power(x: Tensor, n: int, /) -> Tensor:
    """Return square matrices (..., n, n) multiplied with themselves; negative powers invert.

    Standard: Linear Algebra Extension, matrix_power.
    """
    return on(_matrices(x, "matrix_power", square=True), "matrix_power", lambda xp, a: xp.linalg.matrix_power(a, n))


def matrix_rank(x: Tensor, /, *, rtol: float | Tensor | None = None) -> Tensor:
    """Return how many singular values (...) of (..., n, m) exceed rtol times the largest, as int64.

    Standard: Linear Algebra Extension, matrix_rank.
    """
    return _with_rtol("matrix_rank", x, rtol)


def pinv(x: Tensor, /, *, rtol: float | Tensor | None = None) -> Tensor:
    """Return the Moore-Penrose pseudo-inverses (..., m, n) of (..., n, m).

    Singular values below rtol times the largest count as zero (default max(n, m) * eps). Standard: Linear
    Algebra Extension, pinv.
    """
    return _with_rtol("pinv", x, rtol)


def _with_rtol(name: str, x: Any, rtol: Any) -> Tensor:
    given = () if rtol is None else (as_tensor(rtol, name, "rtol"),)

    def run(xp: Any, a: Any, *tolerance: Any) -> Any:
        return getattr(xp.linalg, name)(a, rtol=tolerance[0] if tolerance else None)

    return on((_matrices(x, name), *given), name, run)


def outer(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Return the outer product (n, m) of vectors of n and m elements.

    Raises ValueError unless both have 1 axis. Standard: Linear Algebra Extension, outer.
    """
    x1, x2 = as_tensor(x1, "outer", "x1"), as_tensor(x2, "outer", "x2")
    for x, name in ((x1, "x1"), (x2, "x2")):
        if x.ndim != 1:
            raise ValueError(expected("outer", name, "have 1 axis", f"shape {x.shape}"))
    return on((x1, x2), "outer", lambda xp, a, b: xp.linalg.outer(a, b))


def qr(x: Tensor, /, *, mode: Literal["reduced", "complete"] = "reduced") -> QRResult:
    """Return Q (..., n, k) and R (..., k, m) of matrices (..., n, m), k = min(n, m), or n if "complete".

    Standard: Linear Algebra Extension, qr.
    """
    if mode not in ("reduced", "complete"):
        raise ValueError(expected("qr", "mode", one_of(("reduced", "complete")), repr(mode)))
    return QRResult(*on(_matrices(x, "qr"), "qr", lambda xp, a: tuple(xp.linalg.qr(a, mode=mode))))


def slogdet(x: Tensor, /) -> SlogdetResult:
    """Return sign and log-magnitude of the determinants of square matrices (..., n, n).

    Standard: Linear Algebra Extension, slogdet.
    """
    return SlogdetResult(
        *on(_matrices(x, "slogdet", square=True), "slogdet", lambda xp, a: tuple(xp.linalg.slogdet(a)))
    )


def solve(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Return the solutions of x1 @ x = x2 for square x1 (..., n, n); x2 is (n,) or (..., n, k).

    Standard: Linear Algebra Extension, solve.
    """
    x1, x2 = _matrices(x1, "solve", "x1", square=True), as_tensor(x2, "solve", "x2")
    rows = x2.shape[-1:] if x2.ndim == 1 else x2.shape[-2:-1]
    if rows != x1.shape[-1:]:
        raise ValueError(mismatch("solve", x1.shape, x2.shape, f"{x1.shape[-1]} equations, {rows} right sides"))
    return on((x1, x2), "solve", lambda xp, a, b: xp.linalg.solve(a, b))


def svd(x: Tensor, /, *, full_matrices: bool = True) -> SVDResult:
    """Return U (..., n, n), S (..., k) and Vh (..., m, m) of matrices (..., n, m), k = min(n, m).

    full_matrices=False: U is (..., n, k) and Vh (..., k, m). Standard: Linear Algebra Extension, svd.
    """
    x = _matrices(x, "svd")
    return SVDResult(*on(x, "svd", lambda xp, a: tuple(xp.linalg.svd(a, full_matrices=full_matrices))))


def svdvals(x: Tensor, /) -> Tensor:
    """Return the singular values (..., k), descending, of matrices (..., n, m), k = min(n, m).

    Standard: Linear Algebra Extension, svdvals.
    """
    return on(_matrices(x, "svdvals"), "svdvals", lambda xp, a: xp.linalg.svdvals(a))


def trace(x: Tensor, /, *, offset: int = 0, dtype: DType | None = None) -> Tensor:
    """Return the sums (...) of the diagonals of (..., n, m); dtype as for sum().

    Standard: Linear Algebra Extension, trace.
    """
    target = None if dtype is None else canonical(dtype, "trace")
    return _sum(diagonal(_matrices(x, "trace"), offset=as_index(offset, "trace", "offset")), axis=-1, dtype=target)


def vector_norm(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False, ord: float = 2) -> Tensor:
    """Return the norm over `axis` (None: all elements) for any real `ord`, inf and -inf included.

    Standard: Linear Algebra Extension, vector_norm.
    """
    x = as_tensor(x, "vector_norm")
    axes = None if axis is None else as_axes(axis, x.ndim, "vector_norm")
    return on(x, "vector_norm", lambda xp, a: xp.linalg.vector_norm(a, axis=axes, keepdims=keepdims, ord=ord))

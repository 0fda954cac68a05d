"""The standard's linalg extension: matrices are the last two axes, any leading axes are stacks.

Integers are computed as float64 if the result is floating, as in NumPy. A matrix that cannot be factorised or inverted
raises `numpy.linalg.LinAlgError` (a ValueError).
"""

from __future__ import annotations

from math import inf
from typing import Any, Literal, NamedTuple, cast

import numpy as np
from numpy.linalg import LinAlgError

from ..autograd.rules import Like, conjugate, sum_to, xt
from ..autograd.tape import differentiable, steps_of
from ..base.dtypes import DType, canonical, float16, float32
from ..base.errors import check_choice, expected, mismatch
from ..base.layout import as_axes, as_axis, as_index
from ..calls.library import on
from ..devices.cpu import CPU
from ..devices.cpu_keys import diagonal as native_diagonal
from ..storage.storage import watchers
from ..tensor.face import Tensor, thin_arrays
from ..tensor.operands import as_tensor, as_tensors
from . import factors
from .linear import adjoint, along, matmul, matrix_transpose, tensordot, vecdot
from .statistical import Axis, spread
from .statistical import sum as _sum

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
    """Q, with orthonormal columns, and R, upper triangular."""

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


class _Factorisation:
    """A function of the device library's `linalg` that machine code can do by calling LAPACK (run/factors.py).

    turned: whether the factor is the upper one, which is the lower one transposed and conjugated.
    """

    __slots__ = ("lapack", "turned")

    def __init__(self, lapack: str, *, turned: bool = False) -> None:
        self.lapack, self.turned = lapack, turned

    def __str__(self) -> str:
        return self.lapack

    def __call__(self, xp: Any, *natives: Any) -> Any:
        if xp is CPU.xp and self.lapack == "solve":
            return np.linalg.solve(*natives)  # the standard's since NumPy 2, and takes two thirds of the time
        options = {"upper": True} if self.turned else {}
        return getattr(xp.linalg, self.lapack)(*natives, **options)


_SOLVE, _INV, _DET, _SLOGDET = map(_Factorisation, ("solve", "inv", "det", "slogdet"))
_CHOLESKY = _Factorisation("cholesky"), _Factorisation("cholesky", turned=True)


def _matrices(x: Any, function: str, argument: str = "x", *, square: bool = False) -> Tensor:
    x = as_tensor(x, function, argument)
    if x.ndim < 2:
        raise LinAlgError(expected(function, argument, "have at least 2 axes", f"shape {x.shape}"))
    if square and x.shape[-1] != x.shape[-2]:
        raise LinAlgError(expected(function, argument, "be square matrices", f"shape {x.shape}"))
    return x


@differentiable(x=factors.of_cholesky)
def cholesky(x: Tensor, /, *, upper: bool = False) -> Tensor:
    """Return the Cholesky factor of Hermitian positive-definite matrices (..., n, n), lower unless `upper`.

    Standard: Linear Algebra Extension, cholesky.
    """
    return on(_matrices(x, "cholesky", square=True), "cholesky", _CHOLESKY[bool(upper)])


def _cross_by_x1(g: Tensor, x2: Any, like: Like, axis: int) -> Tensor:
    x2 = xt.moveaxis(as_tensor(x2, "cross", "x2", g), axis, -1)
    return along(xt.linalg.cross(conjugate(x2), xt.moveaxis(g, axis, -1)), like, axis)


def _cross_by_x2(g: Tensor, x1: Any, like: Like, axis: int) -> Tensor:
    x1 = xt.moveaxis(as_tensor(x1, "cross", "x1", g), axis, -1)
    return along(xt.linalg.cross(xt.moveaxis(g, axis, -1), conjugate(x1)), like, axis)


@differentiable(x1=_cross_by_x1, x2=_cross_by_x2)
def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """Return the cross products of 3-vectors along an axis; the other axes broadcast.

    Raises ValueError unless both have length 3 along the axis. Standard: Linear Algebra Extension, cross.
    """
    x1, x2 = as_tensors("cross", x1=x1, x2=x2)
    for x, name in ((x1, "x1"), (x2, "x2")):
        if x.shape[as_axis(axis, x.ndim, "cross")] != 3:
            raise ValueError(expected("cross", name, f"have length 3 along axis {axis}", f"shape {x.shape}"))
    return on((x1, x2), "cross", lambda xp, a, b: xp.linalg.cross(a, b, axis=axis))


@differentiable(x=factors.of_det)
def det(x: Tensor, /) -> Tensor:
    """Return the determinants (...) of square matrices (..., n, n). Standard: Linear Algebra Extension, det."""
    return on(_matrices(x, "det", square=True), "det", _DET)


@differentiable(x=factors.of_diagonal, view=True)
def diagonal(x: Tensor, /, *, offset: int = 0) -> Tensor:
    """Return the diagonals of (..., n, m) as views (..., k); offset > 0 is above the main diagonal.

    Standard: Linear Algebra Extension, diagonal.
    """
    x = _matrices(x, "diagonal")
    offset, native = as_index(offset, "diagonal", "offset"), x.thin()
    return x.viewed(x.blob.layout.diagonal(offset)) if native is None else x.window(native_diagonal(native, offset))


@differentiable(x=factors.of_eig)
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
    if steps_of((x,)) is not None:  # the gradient needs the eigenvectors, in the order of the eigenvalues
        return eig(x).eigenvalues
    return on(x, "eigvals", lambda xp, a: _complex(xp.linalg.eigvals(a), a))


def _complex(part: Any, matrix: Any) -> Any:
    """Return a part of NumPy's eigen-result as complex; NumPy returns real numbers if all imaginary parts are 0."""
    single = matrix.dtype.name in ("float32", "complex64")
    return part.astype("complex64" if single else "complex128", copy=False)


@differentiable(x=factors.of_eigh)
def eigh(x: Tensor, /) -> EighResult:
    """Return the eigenvalues and eigenvectors of Hermitian matrices (..., n, n), read from the lower triangle.

    Standard: Linear Algebra Extension, eigh.
    """
    return EighResult(*on(_matrices(x, "eigh", square=True), "eigh", lambda xp, a: xp.linalg.eigh(a)))


@differentiable(x=lambda g, x: factors.of_eigenvalues(g, xt.linalg.eigh(x).eigenvectors))
def eigvalsh(x: Tensor, /) -> Tensor:
    """Return the eigenvalues (..., n), ascending, of Hermitian matrices (..., n, n).

    Standard: Linear Algebra Extension, eigvalsh.
    """
    return on(_matrices(x, "eigvalsh", square=True), "eigvalsh", lambda xp, a: xp.linalg.eigvalsh(a))


@differentiable(x=factors.of_inv)
def inv(x: Tensor, /) -> Tensor:
    """Return the inverses of square matrices (..., n, n). Standard: Linear Algebra Extension, inv."""
    return on(_matrices(x, "inv", square=True), "inv", _INV)


def _of_matrix_norm(g: Tensor, x: Tensor, keepdims: bool, ord: Any) -> Tensor:
    return factors.through(lambda a: _norm_of(a, ord), x, xt.squeeze(g, axis=(-2, -1)) if keepdims else g)


def _norm_of(x: Tensor, ord: Any) -> Tensor:
    """Return matrix_norm written in differentiable functions."""
    if ord in ("fro", None):
        return vector_norm(x, axis=(-2, -1))
    if ord == "nuc":
        return _sum(svdvals(x), axis=-1)
    sizes = svdvals(x) if abs(ord) == 2 else _sum(xt.abs(x), axis=-2 if abs(ord) == 1 else -1)
    return cast(Tensor, xt.max(sizes, axis=-1) if ord > 0 else xt.min(sizes, axis=-1))


@differentiable(x=_of_matrix_norm)
def matrix_norm(x: Tensor, /, *, keepdims: bool = False, ord: float | Literal["fro", "nuc"] | None = "fro") -> Tensor:
    """Return the norms (...) of matrices (..., n, m).

    ord: "fro" (Frobenius), "nuc" (nuclear), 1, -1, 2, -2, inf, -inf. Standard: Linear Algebra Extension,
    matrix_norm.
    """
    ord = "fro" if ord is None else ord
    check_choice("matrix_norm", "ord", ord, ("fro", "nuc", 1, -1, 2, -2, inf, -inf))
    x = _matrices(x, "matrix_norm")
    if x.device != "cpu":  # CuPy's function does not take stacks for all orders
        return xt.expand_dims(_norm_of(x, ord), axis=(-2, -1)) if keepdims else _norm_of(x, ord)
    return on(x, "matrix_norm", lambda xp, a: xp.linalg.matrix_norm(a, keepdims=keepdims, ord=ord))


def _of_matrix_power(g: Tensor, x: Tensor, n: int) -> Tensor | None:
    return factors.through(lambda a: _power(a, as_index(n, "matrix_power", "n")), x, g) if n else None


def _power(x: Tensor, n: int) -> Tensor:
    """Return matrix_power for n other than 0, written in products."""
    base, n = (inv(x), -n) if n < 0 else (x, n)
    result = None
    while n:
        if n % 2:
            result = base if result is None else matmul(result, base)
        n //= 2
        base = matmul(base, base) if n else base
    return cast(Tensor, result)


@differentiable(x=_of_matrix_power)
def matrix_power(x: Tensor, n: int, /) -> Tensor:
    """Return the n-th powers of square matrices (..., n, n); negative powers invert.

    Standard: Linear Algebra Extension, matrix_power.
    """
    x = _matrices(x, "matrix_power", square=True)
    if watchers and type(n) is int and n > 1:
        return _power_later(x, n)
    return on(x, "matrix_power", lambda xp, a: xp.linalg.matrix_power(a, n))


def _power_later(x: Tensor, n: int) -> Tensor:
    """Return a power as steps of a captured function: products in the order in which NumPy computes them."""
    if n == 3:
        return cast(Tensor, xt.matmul(xt.matmul(x, x), x))
    base, result = x, None
    while True:
        n, is_odd = divmod(n, 2)
        if is_odd:
            result = base if result is None else xt.matmul(result, base)
        if not n:
            return cast(Tensor, result)
        base = xt.matmul(base, base)


def matrix_rank(x: Tensor, /, *, rtol: float | Tensor | None = None) -> Tensor:
    """Return how many singular values (...) of (..., n, m) exceed rtol times the largest, as int64.

    Standard: Linear Algebra Extension, matrix_rank.
    """
    return _with_rtol("matrix_rank", x, rtol)


@differentiable(x=factors.of_pinv)
def pinv(x: Tensor, /, *, rtol: float | Tensor | None = None) -> Tensor:
    """Return the Moore-Penrose pseudo-inverses (..., m, n) of (..., n, m).

    Singular values below rtol times the largest count as zero (default max(n, m) * eps). Standard: Linear
    Algebra Extension, pinv.
    """
    return _with_rtol("pinv", x, rtol)


def _with_rtol(name: str, x: Any, rtol: Any) -> Tensor:
    given, x = () if rtol is None else (as_tensor(rtol, name, "rtol", x),), _matrices(x, name)
    x = xt.astype(x, xt.float64) if x.dtype.kind in "biu" else x

    def run(xp: Any, a: Any, *tolerance: Any) -> Any:
        if name == "matrix_rank" and not a.size:
            return xp.zeros(a.shape[:-2], dtype=xp.int64)
        return getattr(xp.linalg, name)(a, rtol=tolerance[0] if tolerance else None)

    return on((x, *given), name, run)


@differentiable(
    x1=lambda g, x2: matmul(g, conjugate(as_tensor(x2, "outer", "x2", g))),
    x2=lambda g, x1: matmul(conjugate(as_tensor(x1, "outer", "x1", g)), g),
)
def outer(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Return the outer product (n, m) of vectors of n and m elements.

    Raises ValueError unless both have 1 axis. Standard: Linear Algebra Extension, outer.
    """
    x1, x2 = as_tensors("outer", x1=x1, x2=x2)
    for x, name in ((x1, "x1"), (x2, "x2")):
        if x.ndim != 1:
            raise ValueError(expected("outer", name, "have 1 axis", f"shape {x.shape}"))
    return on((x1, x2), "outer", lambda xp, a, b: xp.linalg.outer(a, b))


@differentiable(x=factors.of_qr)
def qr(x: Tensor, /, *, mode: Literal["reduced", "complete"] = "reduced") -> QRResult:
    """Return Q (..., n, k) and R (..., k, m) of matrices (..., n, m), k = min(n, m), or n if "complete".

    Standard: Linear Algebra Extension, qr.
    """
    check_choice("qr", "mode", mode, ("reduced", "complete"))
    return QRResult(*on(_matrices(x, "qr"), "qr", lambda xp, a: xp.linalg.qr(a, mode=mode)))


@differentiable(x=factors.of_slogdet)
def slogdet(x: Tensor, /) -> SlogdetResult:
    """Return the signs and log-magnitudes of the determinants of square matrices (..., n, n).

    Standard: Linear Algebra Extension, slogdet.
    """
    return SlogdetResult(*on(_matrices(x, "slogdet", square=True), "slogdet", _SLOGDET))


def _solve_by_x1(g: Tensor, x1: Tensor, x2: Any, y: Tensor, like: Like) -> Tensor:
    """-(x1^-H g) y^H."""
    if as_tensor(x2, "solve", "x2", g).ndim == 1:
        g, y = xt.expand_dims(g, axis=-1), xt.expand_dims(y, axis=-1)
    product = -matmul(solve(adjoint(x1), g), adjoint(y))
    return sum_to(product, product.shape, like.shape)


def _solve_by_x2(g: Tensor, x1: Any, like: Like) -> Tensor:
    """x1^-H g."""
    turned = adjoint(as_tensor(x1, "solve", "x1", g))
    if like.ndim == 1:
        back = xt.squeeze(solve(turned, xt.expand_dims(g, axis=-1)), axis=-1)
    else:
        back = solve(turned, g)
    return sum_to(back, back.shape, like.shape)


@differentiable(x1=_solve_by_x1, x2=_solve_by_x2)
def solve(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Return the solutions of x1 @ x = x2 for square x1 (..., n, n); x2 is (n,) or (..., n, k).

    Standard: Linear Algebra Extension, solve.
    """
    x1, x2 = as_tensors("solve", x1=x1, x2=x2)
    x1 = _matrices(x1, "solve", "x1", square=True)
    rows = x2.shape[-1:] if x2.ndim == 1 else x2.shape[-2:-1]
    if rows != x1.shape[-1:]:
        raise ValueError(mismatch("solve", x1.shape, x2.shape, f"{x1.shape[-1]} equations, {rows} right sides"))
    if watchers and x2.ndim == 1:  # a stack of vectors would be taken for a matrix
        column = on((x1, xt.expand_dims(x2, axis=-1)), "solve", _SOLVE)
        return cast(Tensor, xt.squeeze(column, axis=-1))
    return on((x1, x2), "solve", _SOLVE)


@differentiable(x=factors.of_svd)
def svd(x: Tensor, /, *, full_matrices: bool = True) -> SVDResult:
    """Return U (..., n, n), S (..., k) and Vh (..., m, m) of matrices (..., n, m), k = min(n, m).

    full_matrices=False: U is (..., n, k) and Vh (..., k, m). Standard: Linear Algebra Extension, svd.
    """
    x = _matrices(x, "svd")
    return SVDResult(*on(x, "svd", lambda xp, a: xp.linalg.svd(a, full_matrices=full_matrices)))


def _of_svdvals(g: Tensor, x: Tensor) -> Tensor:
    u, _, vh = svd(x, full_matrices=False)
    return factors.of_singular_values(g, u, vh)


@differentiable(x=_of_svdvals)
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


def _of_vector_norm(g: Tensor, x: Tensor, y: Tensor, axis: Axis, keepdims: bool, ord: float) -> Tensor | None:
    """The cotangent times sign(x) * (abs(x)/y)**(ord-1), and 0 where the element or the norm is 0."""
    if ord == 0:
        return None
    if abs(ord) == inf:
        extreme = xt.max if ord > 0 else xt.min
        return factors.through(lambda a: extreme(xt.abs(a), axis=axis, keepdims=keepdims), x, g)
    g, y = spread(g, x, axis, keepdims), spread(y, x, axis, keepdims)
    if ord == 1:
        return cast(Tensor, g * xt.sign(x))
    g, y = xt.where(y == 0, 0, g), xt.where(y == 0, 1, y)
    if ord == 2:
        return g * (x / y)
    return cast(Tensor, g * xt.sign(x) * xt.where(x == 0, 1, xt.abs(x) / y) ** (ord - 1))


# The most elements in single precision for which the BLAS's product of vectors has an error of only a few units in the
# last place: for a million elements it is 3000.
MOST_SINGLE = 4096


def _is_blas_accurate(x: Tensor, count: int) -> bool:
    """Return whether the BLAS's product of a vector of this length with itself is as accurate as a sum of squares."""
    return count <= MOST_SINGLE or x.dtype.char in "dD"


def _sum_of_squares(x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    """Return the sum of squares over axes; if these are the last axis of a computed, packed array, as dot products."""
    packed = thin_arrays(x) is not None and axes == (x.ndim - 1,) and x.strides[-1] == x.itemsize
    if packed and _is_blas_accurate(x, x.shape[-1]):
        squares = vecdot(x, x)
        return cast(Tensor, xt.expand_dims(squares, axis=-1)) if keepdims else squares
    return _sum(xt.square(x), axis=axes, keepdims=keepdims)


@differentiable(x=_of_vector_norm)
def vector_norm(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False, ord: float = 2) -> Tensor:
    """Return the norm over `axis` (None: all elements) for any real `ord`, inf and -inf included.

    Standard: Linear Algebra Extension, vector_norm.
    """
    x = as_tensor(x, "vector_norm")
    if x.dtype == float16:  # squares would overflow
        return xt.astype(vector_norm(xt.astype(x, float32), axis=axis, keepdims=keepdims, ord=ord), float16)
    if axis is None and ord == 2 and _is_blas_accurate(x, x.size):  # a product with itself, which reads x once
        if watchers and x.dtype.kind == "f" and x.blob.layout.is_contiguous(x.itemsize):
            flat = xt.reshape(x, (-1,))
            return cast(Tensor, xt.reshape(xt.sqrt(xt.matmul(flat, flat)), (1,) * x.ndim * keepdims))
        return on(x, "vector_norm", lambda xp, a: xp.linalg.norm(a, keepdims=keepdims))
    axes = None if axis is None else as_axes(axis, x.ndim, "vector_norm")
    if ord == 2 and x.dtype.kind == "f":
        every = tuple(range(x.ndim)) if axes is None else axes
        return cast(Tensor, xt.sqrt(_sum_of_squares(x, every, keepdims)))
    return on(x, "vector_norm", lambda xp, a: xp.linalg.vector_norm(a, axis=axes, keepdims=keepdims, ord=ord))

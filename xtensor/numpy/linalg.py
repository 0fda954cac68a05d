"""numpy.linalg over tensors: the standard's functions as far as they go, and the library's for the rest."""

from __future__ import annotations

from contextlib import suppress
from functools import reduce
from math import prod
from typing import Any

import numpy

from ..autograd.rules import conjugate, xt
from ..base.dtypes import real_of
from ..base.errors import expected
from ..base.layout import as_axes, as_index
from ..tensor.face import Tensor
from . import algebra, ufuncs
from .common import as_array, as_arrays, give, has_gradient, numbers, with_slope
from .door import through
from .names import attributes

__getattr__ = attributes("linalg")


def _floats(x: Any) -> Tensor:
    return numbers(x, "linalg")


def cholesky(a: Any, /, *, upper: bool = False) -> Tensor:
    return xt.linalg.cholesky(_floats(a), upper=upper)


def cond(x: Any, p: Any = None) -> Tensor:
    x = _floats(x)
    if p in (None, 2, -2) and x.size:
        values = xt.linalg.svdvals(x)
        found = values[..., -1] / values[..., 0] if p == -2 else values[..., 0] / values[..., -1]
        known = xt.logical_not(xt.any(xt.isnan(x), axis=(-2, -1)))  # then a NaN comes of zeros alone
        return xt.where(xt.logical_and(xt.isnan(found), known), numpy.inf, found)
    if has_gradient(x):
        with suppress(numpy.linalg.LinAlgError):  # a singular matrix has no gradient
            return with_slope(
                through("linalg.cond", None, (x.detach(), p), {}),
                norm(x, p, (-2, -1)) * norm(xt.linalg.inv(x), p, (-2, -1)),
            )
    return through("linalg.cond", None, (x, p), {})


def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Tensor:
    return xt.linalg.cross(*as_arrays("cross", x1, x2), axis=axis)


def det(a: Any) -> Tensor:
    return xt.linalg.det(_floats(a))


def diagonal(x: Any, /, *, offset: int = 0) -> Tensor:
    return xt.linalg.diagonal(as_array(x), offset=offset)


def eig(a: Any) -> Any:
    x = _floats(a)
    if not has_gradient(x):
        return through("linalg.eig", None, (a,), {})
    found = xt.linalg.eig(x)
    return found._make(map(xt.real, found)) if _are_real(x, found.eigenvalues) else found


def eigvals(a: Any) -> Tensor:
    x = _floats(a)
    if not has_gradient(x):
        return through("linalg.eigvals", None, (a,), {})
    found = xt.linalg.eigvals(x)
    return xt.real(found) if _are_real(x, found) else found


# Whether NumPy returns eigenvalues as real numbers if all are.
_MAKES_REAL = numpy.lib.NumpyVersion(numpy.__version__) < "2.5.0"


def _are_real(x: Tensor, eigenvalues: Tensor) -> bool:
    """Return whether NumPy returns eigenvalues as real numbers: real matrices have none that is not real."""
    return _MAKES_REAL and x.dtype.kind == "f" and not bool(xt.any(xt.imag(eigenvalues.detach())))


def _from_lower(x: Tensor) -> Tensor:
    """Return Hermitian matrices made of their lower triangles, which NumPy reads alone."""
    return xt.tril(x) + _turned(xt.tril(x, k=-1))


def eigh(a: Any, UPLO: str = "L") -> Any:  # noqa: N803 - NumPy's name
    x = _floats(a)
    if UPLO == "U" and has_gradient(x):
        return xt.linalg.eigh(_turned(x))
    return xt.linalg.eigh(x) if UPLO == "L" else through("linalg.eigh", None, (x, UPLO), {})


def eigvalsh(a: Any, UPLO: str = "L") -> Any:  # noqa: N803
    x = _floats(a)
    if UPLO == "U" and has_gradient(x):
        return xt.linalg.eigvalsh(_turned(x))
    return xt.linalg.eigvalsh(x) if UPLO == "L" else through("linalg.eigvalsh", None, (x, UPLO), {})


def _turned(x: Tensor) -> Tensor:
    """Return matrices whose lower triangles make the same Hermitian matrices as the upper ones of x."""
    return conjugate(xt.matrix_transpose(x))


def inv(a: Any) -> Tensor:
    return xt.linalg.inv(_floats(a))


def lstsq(a: Any, b: Any, rcond: Any = None) -> Any:
    x, y = as_arrays("lstsq", a, b)
    if not has_gradient(x, y):
        return through("linalg.lstsq", None, (a, b, rcond), {})
    found, residuals, rank, values = through("linalg.lstsq", None, (x.detach(), y.detach(), rcond), {})
    least = float(numpy.finfo(x.dtype).eps)
    solution = xt.linalg.pinv(x, rtol=least * max(x.shape) if rcond is None else max(rcond, least)) @ y
    if residuals.size:
        left = xt.sum(xt.abs(y - x @ solution) ** 2, axis=0)
        residuals = with_slope(residuals, xt.reshape(left, residuals.shape))
    return with_slope(found, solution), residuals, rank, with_slope(values, xt.linalg.svdvals(x))


def matmul(x1: Any, x2: Any, /) -> Tensor:
    return xt.matmul(*as_arrays("matmul", x1, x2))


def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Tensor:
    return xt.linalg.matrix_norm(_floats(x), keepdims=keepdims, ord=ord)


def matrix_power(a: Any, n: int) -> Tensor:
    return xt.linalg.matrix_power(as_array(a), n)


def matrix_transpose(x: Any, /) -> Tensor:
    return xt.matrix_transpose(as_array(x))


def multi_dot(arrays: Any, *, out: Any = None) -> Tensor:
    found = [as_array(x) for x in arrays]
    if len(found) < 2:
        raise ValueError("Expecting at least two arrays.")
    return give("multi_dot", reduce(xt.matmul, found), out)


def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Tensor:
    x = numbers(x, "norm")
    if axis is None and (ord is None or (x.ndim == 1 and ord == 2) or (x.ndim == 2 and ord in ("f", "fro"))):
        return xt.linalg.vector_norm(x, keepdims=keepdims)
    axes = as_axes(axis, x.ndim, "norm")
    if len(axes) == 1:
        if isinstance(ord, str):
            raise ValueError(f"Invalid norm order '{ord}' for vectors")
        if ord == 0:
            return xt.sum(xt.astype(x != 0, real_of(x.dtype)), axis=axes[0], keepdims=keepdims)
        return xt.linalg.vector_norm(x, axis=axes[0], ord=2 if ord is None else ord, keepdims=keepdims)
    if len(axes) != 2:
        raise ValueError("Improper number of dimensions to norm.")
    matrices = xt.moveaxis(x, axes, (-2, -1))
    found = xt.linalg.matrix_norm(matrices, ord="fro" if ord in (None, "f") else ord)
    return xt.expand_dims(found, axis=tuple(sorted(axes))) if keepdims else found


def outer(x1: Any, x2: Any, /) -> Tensor:
    return xt.linalg.outer(*as_arrays("outer", x1, x2))


def pinv(a: Any, rcond: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Tensor:
    if rcond is not None and rtol is not None:
        raise ValueError(expected("pinv", "rtol", "not be given beside rcond, its other name", rtol))
    rtol = rcond if rtol is None else rtol
    x = _floats(a)
    if hermitian and not has_gradient(x):
        return through("linalg.pinv", None, (a, rtol, hermitian), {})
    return xt.linalg.pinv(_from_lower(x) if hermitian else x, rtol=1e-15 if rtol is None else rtol)


def qr(a: Any, mode: str = "reduced") -> Any:
    x = _floats(a)
    if mode == "r":
        return xt.linalg.qr(x)[1]
    return xt.linalg.qr(x, mode=mode) if mode in ("reduced", "complete") else through("linalg.qr", None, (x, mode), {})


def slogdet(a: Any) -> Any:
    return xt.linalg.slogdet(_floats(a))


def solve(a: Any, b: Any) -> Tensor:
    return xt.linalg.solve(_floats(a), _floats(b))


def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> Any:
    x = _floats(a)
    if hermitian and not has_gradient(x):
        return through("linalg.svd", None, (x, full_matrices, compute_uv, hermitian), {})
    x = _from_lower(x) if hermitian else x
    return xt.linalg.svd(x, full_matrices=full_matrices) if compute_uv else xt.linalg.svdvals(x)


def svdvals(x: Any, /) -> Tensor:
    return xt.linalg.svdvals(_floats(x))


def tensordot(x1: Any, x2: Any, /, *, axes: Any = 2) -> Tensor:
    return algebra.tensordot(x1, x2, axes)


def tensorinv(a: Any, ind: int = 2) -> Tensor:
    x, count = _floats(a), as_index(ind, "tensorinv", "ind")
    if count <= 0:
        raise ValueError(expected("tensorinv", "ind", "be positive", ind))
    rows, columns = x.shape[count:], x.shape[:count]
    inverse = xt.linalg.inv(xt.reshape(x, (prod(rows), -1)))
    return xt.reshape(inverse, (*rows, *columns))


def tensorsolve(a: Any, b: Any, axes: Any = None) -> Tensor:
    x, y = _floats(a), _floats(b)
    if axes is not None:
        last = as_axes(tuple(axes), x.ndim, "tensorsolve")
        x = xt.permute_dims(x, (*[one for one in range(x.ndim) if one not in last], *last))
    shape = x.shape[y.ndim :]
    size = prod(shape)
    if x.size != size**2:
        what = f"have as many elements in its first {y.ndim} axes as in the others"
        raise numpy.linalg.LinAlgError(expected("tensorsolve", "a", what, f"shape {x.shape}"))
    return xt.reshape(xt.linalg.solve(xt.reshape(x, (size, size)), y.ravel()), shape)


def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Tensor:
    return xt.linalg.trace(as_array(x), offset=offset, dtype=dtype)


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Tensor:
    return ufuncs.vecdot(x1, x2, axis)


def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Tensor:
    return xt.linalg.vector_norm(_floats(x), axis=axis, keepdims=keepdims, ord=ord)

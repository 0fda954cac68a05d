"""numpy.linalg over tensors: the standard's functions where they do what is asked, the library's for the rest."""

from __future__ import annotations

from functools import reduce
from typing import Any

from ..autograd.rules import xt
from ..tensor.face import Tensor
from .algebra import norm as norm
from .common import as_array, as_arrays, give, numbers
from .door import through


def _floats(x: Any) -> Tensor:
    return numbers(x, "linalg")


def cholesky(a: Any, /, *, upper: bool = False) -> Tensor:
    found: Tensor = xt.linalg.cholesky(_floats(a), upper=upper)
    return found


def cond(x: Any, p: Any = None) -> Tensor:
    x = _floats(x)
    if p in (None, 2, -2) and x.size:
        values = xt.linalg.svdvals(x)
        return values[..., -1] / values[..., 0] if p == -2 else values[..., 0] / values[..., -1]
    found: Tensor = through("linalg.cond", None, (x, p), {})
    return found


def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Tensor:
    found: Tensor = xt.linalg.cross(*as_arrays("cross", x1, x2), axis=axis)
    return found


def det(a: Any) -> Tensor:
    found: Tensor = xt.linalg.det(_floats(a))
    return found


def diagonal(x: Any, /, *, offset: int = 0) -> Tensor:
    found: Tensor = xt.linalg.diagonal(as_array(x), offset=offset)
    return found


def eigh(a: Any, UPLO: str = "L") -> Any:  # noqa: N803 - NumPy's name
    x = _floats(a)
    return xt.linalg.eigh(x) if UPLO == "L" else through("linalg.eigh", None, (x, UPLO), {})


def eigvalsh(a: Any, UPLO: str = "L") -> Any:  # noqa: N803
    x = _floats(a)
    return xt.linalg.eigvalsh(x) if UPLO == "L" else through("linalg.eigvalsh", None, (x, UPLO), {})


def inv(a: Any) -> Tensor:
    found: Tensor = xt.linalg.inv(_floats(a))
    return found


def matmul(x1: Any, x2: Any, /) -> Tensor:
    found: Tensor = xt.matmul(*as_arrays("matmul", x1, x2))
    return found


def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Tensor:
    found: Tensor = xt.linalg.matrix_norm(_floats(x), keepdims=keepdims, ord=ord)
    return found


def matrix_power(a: Any, n: int) -> Tensor:
    found: Tensor = xt.linalg.matrix_power(as_array(a), n)
    return found


def matrix_transpose(x: Any, /) -> Tensor:
    found: Tensor = xt.matrix_transpose(as_array(x))
    return found


def multi_dot(arrays: Any, *, out: Any = None) -> Tensor:
    found = [as_array(x) for x in arrays]
    if len(found) < 2:
        raise ValueError("Expecting at least two arrays.")
    return give("multi_dot", reduce(xt.matmul, found), out)


def outer(x1: Any, x2: Any, /) -> Tensor:
    found: Tensor = xt.linalg.outer(*as_arrays("outer", x1, x2))
    return found


def pinv(a: Any, rcond: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Tensor:
    if hermitian:
        found: Tensor = through("linalg.pinv", None, (a, rcond, hermitian), {})
        return found
    x = _floats(a)
    rtol = rcond if rtol is None else rtol
    found = xt.linalg.pinv(x, rtol=1e-15 if rtol is None else rtol)
    return found


def qr(a: Any, mode: str = "reduced") -> Any:
    x = _floats(a)
    if mode == "r":
        return xt.linalg.qr(x)[1]
    return xt.linalg.qr(x, mode=mode) if mode in ("reduced", "complete") else through("linalg.qr", None, (x, mode), {})


def slogdet(a: Any) -> Any:
    return xt.linalg.slogdet(_floats(a))


def solve(a: Any, b: Any) -> Tensor:
    a, b = _floats(a), _floats(b)
    found: Tensor = xt.linalg.solve(a, b)
    return found


def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> Any:
    x = _floats(a)
    if hermitian:
        return through("linalg.svd", None, (x, full_matrices, compute_uv, hermitian), {})
    return xt.linalg.svd(x, full_matrices=full_matrices) if compute_uv else xt.linalg.svdvals(x)


def svdvals(x: Any, /) -> Tensor:
    found: Tensor = xt.linalg.svdvals(_floats(x))
    return found


def tensordot(x1: Any, x2: Any, /, *, axes: Any = 2) -> Tensor:
    found: Tensor = xt.tensordot(*as_arrays("tensordot", x1, x2), axes=axes)
    return found


def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Tensor:
    found: Tensor = xt.linalg.trace(as_array(x), offset=offset, dtype=dtype)
    return found


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Tensor:
    found: Tensor = xt.vecdot(*as_arrays("vecdot", x1, x2), axis=axis)
    return found


def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Tensor:
    found: Tensor = xt.linalg.vector_norm(_floats(x), axis=axis, keepdims=keepdims, ord=ord)
    return found

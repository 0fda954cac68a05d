"""Derivatives of decompositions: the cotangents of matrices from those of their factors.

A factor that was not used has no cotangent (None). Eigenvectors and singular vectors are determined only up to signs,
phases or a rotation within equal values; gradients exist for results that do not depend on that choice. Gradients
through vectors divide by differences of values, so equal values give inf or nan; gradients through values alone do not.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any, cast

from ..autograd.rules import Like, conjugate, xt
from ..autograd.tape import differentiable
from ..base.dtypes import finfo
from ..base.errors import expected
from ..storage.storage import Native, watchers, watching
from ..tensor.face import Tensor
from .linear import adjoint, on_diagonal

Pair = tuple[Tensor | None, Tensor | None]
Triple = tuple[Tensor | None, Tensor | None, Tensor | None]


def through(f: Callable[[Tensor], Tensor], x: Tensor, g: Tensor) -> Tensor:
    """Return the cotangent of x for that of f(x), where f is written in differentiable functions."""
    return cast(Tensor, xt.vjp(f, x)[1](g)[0])


# ---- parts of matrices


def of_diagonal(g: Tensor, like: Like, offset: int) -> Tensor:
    """Return zeros with the cotangent on the selected diagonal."""
    return on_diagonal(g, offset, like.shape)


def _rows(x: Tensor) -> Tensor:
    """Return vectors as columns, so that they multiply rows of matrices."""
    return cast(Tensor, xt.expand_dims(x, axis=-1))


def _columns(x: Tensor) -> Tensor:
    """Return vectors as rows, so that they multiply columns of matrices."""
    return cast(Tensor, xt.expand_dims(x, axis=-2))


def _scalars(x: Tensor) -> Tensor:
    """Return numbers as matrices of one element."""
    return cast(Tensor, xt.expand_dims(x, axis=(-2, -1)))


def _is_diagonal(x: Tensor) -> Tensor:
    """Return a mask of the diagonal of matrices."""
    return cast(Tensor, xt.eye(x.shape[-2], x.shape[-1], dtype=xt.bool, device=x.device))


def _is_lower(x: Tensor) -> Tensor:
    """Return a mask of the elements below the diagonal of matrices."""
    ones = xt.ones(x.shape[-2:], dtype=xt.bool, device=x.device)
    return cast(Tensor, xt.tril(ones, k=-1))


def _skew(x: Tensor) -> Tensor:
    return x - adjoint(x)


def _differences(values: Tensor) -> Tensor:
    """Return how much value j exceeds value i at [i, j], and 1 on the diagonal."""
    found = _columns(values) - _rows(values)
    return cast(Tensor, xt.where(_is_diagonal(found), 1, found))


def _check_free(function: str, part: Tensor, choice: str, *cotangents: Tensor | None) -> None:
    """Raise NotImplementedError unless a part of cotangents, along a free choice, is 0 except for rounding."""
    if not part.size:
        return
    largest = max(float(xt.max(xt.abs(g))) for g in cotangents if g is not None)
    if float(xt.max(xt.abs(part))) > finfo(part.dtype).eps ** 0.5 * largest:
        must = f"not depend on {choice}, which the matrix does not determine, to have a gradient"
        raise NotImplementedError(expected(function, "what is computed from the result", must, "one that does"))


# ---- Cholesky, QR


def of_cholesky(g: Tensor, y: Tensor, upper: bool) -> Tensor:
    """L^-H S L^-1, with 2 S the Hermitian matrix that has the lower triangle of L^H g."""
    lower, g = (adjoint(y), adjoint(g)) if upper else (y, g)
    inner = adjoint(lower) @ g
    half = xt.where(_is_lower(inner), inner, xt.where(_is_diagonal(inner), inner / 2, 0))
    back = xt.linalg.solve(adjoint(lower), (half + adjoint(half)) / 2)
    return adjoint(cast(Tensor, xt.linalg.solve(adjoint(lower), adjoint(back))))


def of_qr(g: Pair, y: tuple[Tensor, Tensor], x: Tensor) -> Tensor:
    """The rule for square or wide R; if Q has more columns than x, these rotate with the others."""
    q, r = y
    n, m = x.shape[-2:]
    k = min(n, m)
    gq = xt.zeros_like(q) if g[0] is None else g[0]
    gr = xt.zeros_like(r) if g[1] is None else g[1]
    first, inverse = q[..., :k], xt.linalg.inv(adjoint(r[..., :k, :k]))
    if n >= m:
        found: Tensor = _of_tall_qr(gq[..., :k], gr[..., :k, :], first, r[..., :k, :]) @ inverse
        if q.shape[-1] > k:
            found = found - _turned("qr", q[..., k:], gq[..., k:], first) @ inverse
        return found
    rest = gr[..., k:]
    square = _of_tall_qr(gq + x[..., k:] @ adjoint(rest), gr[..., :k], q, r[..., :k]) @ inverse
    return cast(Tensor, xt.concat((square, q @ rest), axis=-1))


def _of_tall_qr(gq: Tensor, gr: Tensor, q: Tensor, r: Tensor) -> Tensor:
    """The cotangent of x times R^H. The diagonal of R is real, so imaginary parts belong to the diagonal of Q^H dQ."""
    projected, scaled = adjoint(q) @ gq, gr @ adjoint(r)
    difference = projected - scaled
    inner: Tensor = scaled - projected + xt.where(_is_lower(difference), _skew(difference), 0)
    if difference.dtype.kind == "c":
        inner = inner + xt.where(_is_diagonal(difference), 1j * xt.imag(difference), 0)
    return gq + q @ inner


def _turned(function: str, free: Tensor, g: Tensor, others: Tensor) -> Tensor:
    """The cotangent of orthonormal columns of which the matrix only determines the space, along rotations of that."""
    _check_free(function, _skew(adjoint(free) @ g), "the choice of a basis of the remaining columns", g)
    return free @ (adjoint(g) @ others)


# ---- eigenvalues and singular values


def of_eigh(g: Pair, y: tuple[Tensor, Tensor]) -> Tensor:
    """V (diag(gw) + skew(V^H gV) / (w_j - w_i)) V^H, which is Hermitian."""
    (gw, gv), (w, v) = g, y
    if gv is None:
        assert gw is not None
        return of_eigenvalues(gw, v)
    projected = adjoint(v) @ gv
    _check_phases("eigh", projected, gv)
    inner = xt.where(_is_diagonal(projected), 0, _skew(projected) / (2 * _differences(w)))
    inner = inner if gw is None else inner + on_diagonal(gw, 0, projected.shape)
    return cast(Tensor, v @ inner @ adjoint(v))


def of_eigenvalues(g: Tensor, v: Tensor) -> Tensor:
    """V diag(g) V^H."""
    return (v * _columns(g)) @ adjoint(v)


def of_eig(g: Pair, y: tuple[Tensor, Tensor]) -> Tensor:
    """V^-H (diag(gw) + inner) V^H; inner has the rotations of eigenvectors towards each other; their lengths stay 1."""
    (gw, gv), (w, v) = g, y
    inner = xt.zeros_like(v) if gw is None else on_diagonal(gw, 0, v.shape)
    if gv is not None:
        projected = adjoint(v) @ gv
        _check_phases("eig", projected, gv)
        along = projected - (adjoint(v) @ v) * _columns(xt.real(xt.linalg.diagonal(projected)))
        inner = inner + xt.where(_is_diagonal(along), 0, along / conjugate(_differences(w)))
    return cast(Tensor, xt.linalg.solve(adjoint(v), inner @ adjoint(v)))


def _check_phases(function: str, projected: Tensor, g: Tensor) -> None:
    if projected.dtype.kind == "c":
        _check_free(function, xt.imag(xt.linalg.diagonal(projected)), "the phases of eigenvectors", g)


def of_svd(g: Triple, y: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """U (diag(gs) + inner) V^H, plus the parts orthogonal to the columns of U and the rows of V^H."""
    (gu, gs, gvh), (u, s, vh) = g, y
    k = s.shape[-1]
    left, right = u[..., :k], vh[..., :k, :]
    if gu is None and gvh is None:
        assert gs is not None
        return of_singular_values(gs, left, right)
    found = left @ _within(gu, gs, gvh, left, s, right) @ right
    if gu is not None:
        rest = gu[..., :k] / _columns(s)
        found = found + (rest - left @ (adjoint(left) @ rest)) @ right
        if u.shape[-1] > k:
            found = found - _turned("svd", u[..., k:], gu[..., k:], left / _columns(s)) @ right
    if gvh is not None:
        rest = gvh[..., :k, :] / _rows(s)
        found = found + left @ (rest - (rest @ adjoint(right)) @ right)
        if vh.shape[-2] > k:
            columns = _turned("svd", adjoint(vh[..., k:, :]), adjoint(gvh[..., k:, :]), adjoint(right) / _columns(s))
            found = found - left @ adjoint(columns)
    return found


def _within(gu: Any, gs: Any, gvh: Any, u: Tensor, s: Tensor, vh: Tensor) -> Tensor:
    """The cotangent of U^H dA V: from rotations of singular vectors into each other, and from singular values."""
    k = s.shape[-1]
    none = xt.zeros((k, k), dtype=u.dtype, device=u.device)
    left = none if gu is None else _skew(adjoint(u) @ gu[..., :k])
    right = none if gvh is None else _skew(vh @ adjoint(gvh[..., :k, :]))
    turning = (left * _columns(s) + _rows(s) * right) / (_differences(s) * (_columns(s) + _rows(s)))
    phases: Any = 0
    if u.dtype.kind == "c":
        both = xt.imag(xt.linalg.diagonal(left + right))
        _check_free("svd", both, "the phases of singular vectors", gu, gvh)
        phases = (left - right) / (4 * _rows(s))
    inner = xt.where(_is_diagonal(turning), phases, turning)
    return cast(Tensor, inner if gs is None else inner + on_diagonal(gs, 0, turning.shape))


def of_singular_values(g: Tensor, u: Tensor, vh: Tensor) -> Tensor:
    """U diag(g) V^H."""
    return (u * _columns(g)) @ vh


# ---- determinants and inverses


def of_det(g: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """The cotangent times the cofactors; those of well-conditioned matrices are det(x) x^-H."""
    inverse = _sound_inverse(x)
    if inverse is None:
        return _scalars(g) * _cofactors(x)
    return _scalars(g * conjugate(y)) * adjoint(inverse)


def _sound_inverse(x: Tensor) -> Tensor | None:
    """Return the inverses if half of the digits are right in all of them, else None."""
    try:
        inverse: Tensor = xt.linalg.inv(x)
    except ValueError:
        return None
    condition, most = xt.linalg.matrix_norm(x) * xt.linalg.matrix_norm(inverse), finfo(x.dtype).eps ** -0.5
    capture = watching() if watchers else None
    if capture is None:
        return None if xt.any(condition > most) else inverse
    return inverse if capture.holds(partial(_check_sound, most), condition.blob, "det") else None


def _check_sound(most: float, condition: Native) -> None:
    """Raise ValueError if less than half of the digits of an inverse are right."""
    if (condition > most).any():
        raise ValueError(f"a matrix whose condition is at most {most}")


def _of_cofactors(g: Tensor, x: Tensor) -> Tensor:
    """The rule of the cofactors: in the bases of singular vectors, the derivative of products of singular values."""
    u, phase, without, vh = _products_without(x)
    inner = _scalars(conjugate(phase)) * (vh @ adjoint(g) @ u)
    diagonal = _is_diagonal(inner)
    pairs = xt.where(diagonal, 0, without)
    traces = pairs @ _rows(xt.linalg.diagonal(inner))
    return cast(Tensor, u @ xt.where(diagonal, traces, -pairs * inner) @ vh)


@differentiable(x=_of_cofactors)
def _cofactors(x: Tensor) -> Tensor:
    """Return the conjugates of the cofactors of square matrices, singular or not: the adjoints of the adjugates."""
    u, phase, without, vh = _products_without(x)
    return of_singular_values(xt.linalg.diagonal(without), u, vh) * _scalars(conjugate(phase))


def _products_without(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return U, det(U) det(V^H), the products of all singular values except i and j at [i, j], and V^H."""
    u, s, vh = xt.linalg.svd(x)
    others = xt.where(xt.eye(s.shape[-1], dtype=xt.bool, device=s.device), 1, _columns(s))
    without = through(lambda t: xt.prod(t, axis=-1), others, xt.ones_like(s))
    return u, xt.linalg.det(u) * xt.linalg.det(vh), without, vh


def of_slogdet(g: Pair, x: Tensor, y: tuple[Tensor, Tensor]) -> Tensor | None:
    """x^-H times the cotangent of the logarithm, whose imaginary part is from the phase; inf where x is singular.

    The sign of a real determinant has no derivative.
    """
    (gsign, glog), (sign, log) = g, y
    if sign.dtype.kind == "c" and gsign is not None:
        turning = 1j * xt.imag(gsign * conjugate(sign))
        glog = turning if glog is None else glog + turning
    if glog is None:
        return None
    singular = _scalars(log == -inf)
    inverse = xt.linalg.inv(xt.where(singular, _is_diagonal(x), x))
    return cast(Tensor, _scalars(glog) * xt.where(singular, inf, adjoint(inverse)))


def of_inv(g: Tensor, y: Tensor) -> Tensor:
    """-Y^H g Y^H."""
    turned = adjoint(y)
    return -(turned @ g @ turned)


def of_pinv(g: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """The rule of Golub and Pereyra, for x whose rank stays the same."""
    turned, back = adjoint(y), adjoint(g)
    left = back - x @ (y @ back)
    right = back - (back @ y) @ x
    return -(turned @ g @ turned) + (left @ y) @ turned + turned @ (y @ right)

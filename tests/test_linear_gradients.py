"""Gradients of linear algebra where conventions, degenerate matrices and writes in place make them special.

That rules are right at all is tested on the samples.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan
from typing import Any

import numpy as np
import pytest

import xtensor as xt
from tests.samples import Array, complexes, normal


def gradient(f: Callable[[Any], Any], x: Any) -> Array:
    """Return the gradient of the sum of f's results at an array."""
    found: Array = xt.grad(lambda one: xt.sum(f(one)))(xt.asarray(np.asarray(x))).numpy()
    return found


def gradients(f: Callable[..., Any], *args: Array) -> list[Array]:
    """Return the gradients of the real part of an inner product with f's result, for all arguments."""
    tensors = [xt.asarray(a) for a in args]

    def loss(*given: Any) -> Any:
        y = f(*given)
        return xt.sum(xt.real(xt.asarray(complexes(*y.shape, seed=9)) * y))

    return [g.numpy() for g in xt.grad(loss, tuple(range(len(args))))(*tensors)]


def assert_same(f: Callable[..., Any], g: Callable[..., Any], *args: Array) -> None:
    """Check that two ways to compute the same have the same gradients."""
    for one, other in zip(gradients(f, *args), gradients(g, *args), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


# ---- norms


@pytest.mark.parametrize(
    ("order", "x", "wanted"),
    [
        (2, [0.0, 0.0], [0, 0]),
        (1, [0.0, -3.0], [0, -1]),
        (0, [1.0, 2.0], [0, 0]),
        (inf, [1.0, 1.0, -1.0], [1 / 3, 1 / 3, -1 / 3]),
        (-inf, [1.0, 2.0, -1.0], [0.5, 0, -0.5]),
        (inf, [0.0, 0.0], [0, 0]),
        (3, [0.0, 1.0], [0, 1]),
        (3, [0.0, 0.0], [0, 0]),
        (0.5, [0.0, 1.0], [0, 1]),
        (1.5, [0.0, 0.0], [0, 0]),
        (-1, [0.0, 1.0], [0, 0]),
        (2, [0j, 0j], [0, 0]),
        (2, [3 + 4j, 0j], [0.6 + 0.8j, 0]),
        (inf, [nan, 1.0], [nan, 0]),
    ],
)
def test_vector_norm_at_kinks(order: float, x: list[Any], wanted: list[Any]) -> None:
    """0 where a norm or an element is 0, and ties share."""
    np.testing.assert_allclose(gradient(lambda one: xt.linalg.vector_norm(one, ord=order), x), wanted)


@pytest.mark.parametrize("order", [2, 3, 4.5])
def test_second_derivative_of_vector_norm_with_a_zero(order: float) -> None:
    """It is finite, and the one of the formula, where an element is 0."""
    found = xt.hessian(lambda x: xt.linalg.vector_norm(x, ord=order))(xt.asarray([0.0, 2.0])).numpy()
    np.testing.assert_allclose(found, [[0.5 if order == 2 else 0, 0], [0, 0]], atol=1e-15)


@pytest.mark.parametrize(
    ("order", "x", "wanted"),
    [
        ("fro", np.zeros((2, 3)), np.zeros((2, 3))),
        (1, np.eye(2), np.eye(2) / 2),
        (-1, np.eye(2), np.eye(2) / 2),
        (inf, np.ones((2, 2)), np.ones((2, 2)) / 2),
        (2, np.eye(3), np.eye(3) / 3),
        (-2, np.eye(3), np.eye(3) / 3),
        ("nuc", np.eye(3), np.eye(3)),
    ],
)
def test_matrix_norm_at_kinks(order: Any, x: Array, wanted: Array) -> None:
    """0 where the Frobenius norm is 0, and ties share."""
    np.testing.assert_allclose(gradient(lambda one: xt.linalg.matrix_norm(one, ord=order), x), wanted, atol=1e-15)


# ---- decompositions


@pytest.mark.parametrize(
    "values",
    [
        xt.linalg.eigvalsh,
        lambda x: xt.linalg.eigh(x).eigenvalues,
        xt.linalg.svdvals,
        lambda x: xt.linalg.svd(x).S,
        lambda x: xt.linalg.svd(x, full_matrices=False).S,
    ],
)
def test_values_that_are_equal(values: Callable[[Any], Any]) -> None:
    """Equal eigenvalues and singular values have gradients where vectors are not used."""
    np.testing.assert_allclose(gradient(lambda x: values(x) ** 3, 2 * np.eye(3)), 12 * np.eye(3), atol=1e-14)


def test_vectors_of_equal_values() -> None:
    """Their vectors have none, which shows: it is not a number."""
    assert not np.all(np.isfinite(gradient(lambda x: xt.linalg.eigh(x).eigenvectors[0] ** 2, np.eye(2))))


@pytest.mark.parametrize(
    "f",
    [
        lambda x: xt.linalg.eigvalsh(x) ** 3,
        lambda x: abs(xt.linalg.eigh(x).eigenvectors) ** 3,
        lambda x: abs(xt.linalg.cholesky(x)) ** 3,
    ],
)
@pytest.mark.parametrize("make", [normal, complexes])
def test_symmetric_gradient(f: Callable[[Any], Any], make: Callable[..., Array]) -> None:
    """A matrix taken for Hermitian has a Hermitian gradient, whichever triangle is read."""
    a = make(3, 3)
    x = a @ a.conj().T + np.eye(3)
    found = gradient(f, x)
    np.testing.assert_allclose(found, found.conj().T, rtol=1e-12)
    np.testing.assert_allclose(found, gradient(lambda one: f((one + xt.conj(one.mT)) / 2), x), rtol=1e-12)


@pytest.mark.parametrize(
    ("f", "text"),
    [
        (lambda x: xt.real(xt.linalg.eig(x).eigenvectors), "eig: .* the phases of eigenvectors"),
        (lambda x: xt.real(xt.linalg.eigh(x).eigenvectors), "eigh: .* the phases of eigenvectors"),
        (lambda x: xt.real(xt.linalg.svd(x).U), "svd: .* the phases of singular vectors"),
        (lambda x: xt.real(xt.linalg.svd(x).Vh), "svd: .* the phases of singular vectors"),
        (lambda x: xt.real(xt.linalg.svd(x[:, :1]).U)[:, 1:], "svd: .* the choice of a basis of the remaining columns"),
        (lambda x: xt.real(xt.linalg.svd(x[:1]).Vh)[1:], "svd: .* the choice of a basis of the remaining columns"),
        (
            lambda x: xt.real(xt.linalg.qr(x[:, :1], mode="complete").Q)[:, 1:],
            "qr: .* the choice of a basis of the remaining columns",
        ),
    ],
)
def test_what_a_matrix_does_not_determine(f: Callable[[Any], Any], text: str) -> None:
    """What depends on phases or bases that a library chose has no gradient, and no wrong one."""
    with pytest.raises(NotImplementedError, match=text):
        gradient(f, complexes(3, 3))


# ---- determinants


def test_det_of_singular_matrices() -> None:
    """The gradient is that of cofactors, at any rank."""
    singular = np.array([[1.0, 2, 3], [4, 5, 6], [5, 7, 9]])
    cofactors = [[3, -6, 3], [3, -6, 3], [-3, 6, -3]]
    np.testing.assert_allclose(gradient(xt.linalg.det, singular), cofactors, atol=1e-12)
    np.testing.assert_allclose(gradient(xt.linalg.det, np.zeros((3, 3))), np.zeros((3, 3)))
    np.testing.assert_allclose(gradient(xt.linalg.det, np.zeros((1, 1))), [[1]])
    second = xt.hessian(xt.linalg.det)(xt.zeros((2, 2))).numpy()
    wanted = np.zeros((2, 2, 2, 2))
    wanted[0, 0, 1, 1] = wanted[1, 1, 0, 0] = 1
    wanted[0, 1, 1, 0] = wanted[1, 0, 0, 1] = -1
    np.testing.assert_allclose(second, wanted, atol=1e-15)


def test_det_of_a_matrix_that_is_nearly_singular() -> None:
    """Rounding errors of an inverse do not show in the cofactors."""
    nearly = np.array([[1.0, 2, 3], [4, 5, 6], [7, 8, 9 + 1e-14]])
    wanted = [[-3, 6, -3], [6, -12, 6], [-3, 6, -3]]
    np.testing.assert_allclose(gradient(xt.linalg.det, nearly), wanted, rtol=1e-10)


def test_slogdet_of_a_singular_matrix() -> None:
    """The logarithm is infinitely steep there; other matrices of the stack have their gradient."""
    stack = np.stack([np.ones((2, 2)), np.diag([2.0, 4.0])])
    found = gradient(lambda x: xt.linalg.slogdet(x).logabsdet, stack)
    assert not np.any(np.isfinite(found[0]))
    np.testing.assert_allclose(found[1], np.diag([0.5, 0.25]))


def test_sign_of_a_real_determinant() -> None:
    """It has the gradient 0."""
    np.testing.assert_array_equal(gradient(lambda x: xt.linalg.slogdet(x).sign, normal(3, 3)), np.zeros((3, 3)))


# ---- functions that are no part of the namespace, writes, and constants among arguments


@pytest.mark.parametrize(
    ("same", "x", "y"),
    [
        (xt.matmul, normal(3, 4), complexes(4, 2)),
        (xt.matmul, normal(4), normal(4)),
        (xt.matmul, complexes(2, 3, 4), normal(4)),
        (lambda x, y: xt.tensordot(x, y, axes=((-1,), (-2,))), complexes(2, 4), normal(3, 4, 5)),
        (xt.multiply, complexes(), normal(2, 3)),
        (xt.multiply, normal(2, 3), complexes()),
    ],
)
def test_dot(same: Callable[..., Any], x: Array, y: Array) -> None:
    """NumPy's dot has the gradients of the product that it is."""
    assert_same(lambda a, b: a.dot(b), same, x, y)


def test_matmul_in_place() -> None:
    """`x @= y` has the gradients of `x @ y`, and through a view those of what was there before."""

    def whole(x: Any, y: Any) -> Any:
        z = x * 2
        z @= y
        return z

    def part(x: Any, y: Any) -> Any:
        z = x * 2
        z[0] @= y
        return z

    assert_same(whole, lambda x, y: (x * 2) @ y, normal(2, 3, 3), normal(3, 3, seed=1))
    assert_same(part, lambda x, y: xt.where(_FIRST, (x * 2) @ y, x * 2), normal(2, 3, 3), normal(3, 3, seed=1))


_FIRST = xt.reshape(xt.asarray([True, False]), (2, 1, 1))


@pytest.mark.parametrize(
    "diagonal", [lambda x: xt.linalg.diagonal(x, offset=1), lambda x: xt.diag(x, 1)], ids=["diagonal", "diag"]
)
def test_writing_on_a_diagonal(diagonal: Callable[[Any], Any]) -> None:
    """The diagonal is a view: what is written there is part of the matrix."""

    def written(x: Any) -> Any:
        z = x * x
        diagonal(z)[...] = x[0, :2]
        return z

    above = xt.eye(3, k=1, dtype=xt.bool)
    assert_same(written, lambda x: xt.where(above, x[0, :, None], x * x), normal(3, 3))


@pytest.mark.parametrize("optimize", [False, True, "greedy", ["einsum_path", (0, 1), (0, 1)]])
def test_einsum_with_constants_and_paths(optimize: Any) -> None:
    """Operands may be constants, and the order of products does not matter."""
    constant = xt.asarray(normal(4, 5))
    assert_same(
        lambda x, y: xt.einsum("ij,jk,kl->il", x, constant, y, optimize=optimize),
        lambda x, y: x @ constant @ y,
        normal(3, 4),
        complexes(5, 2),
    )


def test_rtol_has_no_gradient() -> None:
    """A tensor that says how small singular values count as zero moves nothing."""
    x = xt.asarray(normal(3, 2))
    grads = xt.grad(lambda a, rtol: xt.sum(xt.linalg.pinv(a, rtol=rtol)), (0, 1))(x, xt.asarray(1e-9))
    assert grads[1].item() == 0
    np.testing.assert_allclose(grads[0].numpy(), gradient(xt.linalg.pinv, x.numpy()), rtol=1e-12)

"""Factorisations in captured functions: machine code calls LAPACK, with the bits and the errors of plain calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.linalg import LinAlgError

import xtensor as xt
from xtensor.codegen.cpu.compile import host
from xtensor.devices import blas
from xtensor.plan.costs import NATIVE_FACTOR, NATIVE_FACTORS

needs_code = pytest.mark.skipif(host() is None, reason="needs llvmlite")
needs_lapack = pytest.mark.skipif(
    not blas.lapack_address("dgesv", wide=True), reason="NumPy's LAPACK is not OpenBLAS with integers of 64 bits"
)
pytestmark = [needs_code, needs_lapack]

WAYS: dict[str, Callable[..., Any]] = {
    "solve": xt.linalg.solve,
    "solve with a transposed matrix": lambda a, b: xt.linalg.solve(xt.matrix_transpose(a), b),
    "solve with a vector": lambda a, b: xt.linalg.solve(a, xt.reshape(b, (-1, 3))[: a.shape[-1], 0]),
    "solve with one matrix for a stack": lambda a, b: xt.linalg.solve(a, b[0] if b.ndim > 2 else xt.stack([b, -b])),
    "inv": lambda a, b: xt.linalg.inv(a),
    "inv of a view": lambda a, b: xt.linalg.inv(a[..., ::-1, ::-1]),
    "cholesky": lambda a, b: xt.linalg.cholesky(a),
    "upper cholesky": lambda a, b: xt.linalg.cholesky(a, upper=True),
    "det": lambda a, b: xt.linalg.det(a - 3),
    "slogdet": lambda a, b: xt.linalg.slogdet(a - 3),
}
ENDINGS: dict[str, Callable[..., Any]] = {
    "returned": lambda found: found,
    "used": lambda found: found * 2 + 1,
    "looked at": lambda found: found.T if found.ndim == 2 else found[..., 0:1] if found.ndim else found[None],
}


def matrices(dtype: str, n: int, stack: tuple[int, ...] = ()) -> tuple[xt.Tensor, xt.Tensor]:
    """Return positive-definite matrices, and right sides."""
    rng = np.random.default_rng(n)
    made = rng.standard_normal((*stack, n, n))
    positive = made @ np.swapaxes(made, -1, -2) + n * np.eye(n)
    return xt.asarray(positive.astype(dtype)), xt.asarray(rng.standard_normal((*stack, n, 3)).astype(dtype))


def leaves(found: Any) -> list[np.ndarray]:
    return [np.asarray(one) for one in (found if isinstance(found, tuple) else (found,))]


def is_native(fused: Any) -> bool:
    return "library:" not in xt.explain(fused)


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("n", "stack"), [(1, ()), (2, ()), (5, ()), (33, ()), (3, (4,)), (2, (2, 3))])
def test_the_bits_are_those_of_plain_calls(way: str, ending: str, dtype: str, n: int, stack: tuple[int, ...]) -> None:
    def function(a: xt.Tensor, b: xt.Tensor) -> Any:
        found = WAYS[way](a, b)
        return tuple(map(ENDINGS[ending], found)) if isinstance(found, tuple) else ENDINGS[ending](found)

    fused = xt.fuse(function)
    with xt.options(engine="llvm"):
        for call in range(3):
            a, b = matrices(dtype, n, stack)
            a, b = a * (call + 1), b + call
            ours, plain = leaves(fused(a, b)), leaves(function(a, b))
            assert not fused.why(a, b)
            for one, other in zip(ours, plain, strict=True):
                assert (one.dtype, one.shape, one.strides) == (other.dtype, other.shape, other.strides)
                assert one.tobytes() == other.tobytes()
    assert is_native(fused)


@pytest.mark.parametrize("dtype", ["int64", "complex128"])
def test_other_dtypes_are_left_to_the_library(dtype: str) -> None:
    fused = xt.fuse(xt.linalg.inv)
    a = xt.asarray(np.array([[2, 1], [0, 1]], dtype))
    with xt.options(engine="llvm"):
        for _ in range(3):
            assert (np.asarray(fused(a)) == np.linalg.inv(np.asarray(a))).all()
    assert not is_native(fused)


@pytest.mark.parametrize("shape", [(NATIVE_FACTOR + 1,) * 2, (NATIVE_FACTORS + 1, 2, 2), (0, 0), (0, 3, 3)])
def test_large_and_empty_ones_are_left_to_the_library(shape: tuple[int, ...]) -> None:
    fused = xt.fuse(lambda a: xt.linalg.inv(a) * 2)
    a = xt.zeros(shape) + xt.eye(shape[-1])
    with xt.options(engine="llvm"):
        for _ in range(3):
            assert (np.asarray(fused(a)) == 2 * np.linalg.inv(np.asarray(a))).all()
    assert not is_native(fused)


@pytest.mark.parametrize("way", ["det", "slogdet"])
def test_determinants_of_singular_matrices_and_of_nan(way: str) -> None:
    function = getattr(xt.linalg, way)
    fused = xt.fuse(lambda a: function(a))
    a = xt.asarray(np.stack([np.eye(3), np.ones((3, 3)), np.full((3, 3), np.nan), -np.eye(3)[[1, 0, 2]]]))
    with xt.options(engine="llvm"):
        for _ in range(3):
            for one, other in zip(leaves(fused(a)), leaves(function(a)), strict=True):
                assert one.tobytes() == other.tobytes()


SINGULAR, REGULAR = xt.ones((3, 3)), xt.eye(3) * 2


@pytest.mark.parametrize(
    ("function", "bad", "text"),
    [
        (lambda a: xt.linalg.solve(a + 0.0, a), SINGULAR, "solve: Singular matrix"),
        (lambda a: xt.linalg.inv(xt.stack([REGULAR, a, REGULAR])), SINGULAR, "inv: Singular matrix"),
        (lambda a: xt.linalg.inv(a) @ xt.linalg.inv(REGULAR + a), SINGULAR, "inv: Singular matrix"),
        (lambda a: xt.linalg.cholesky(a) + 1, -REGULAR, "cholesky: Matrix is not positive definite"),
    ],
)
def test_errors_are_those_of_plain_calls(function: Callable[..., Any], bad: xt.Tensor, text: str) -> None:
    fused = xt.fuse(function)
    with xt.options(engine="llvm"):
        for _ in range(3):
            fused(REGULAR)
        for call in (function, fused):
            with pytest.raises(LinAlgError, match=text):
                call(bad)
        assert (np.asarray(fused(REGULAR)) == np.asarray(function(REGULAR))).all()
        assert not fused.why(REGULAR)


@pytest.mark.parametrize(("name", "bad"), [("inv", SINGULAR), ("cholesky", -REGULAR)])
def test_nothing_is_written_after_a_failure(name: str, bad: xt.Tensor) -> None:
    def function(a: xt.Tensor, out: xt.Tensor) -> None:
        out += 1
        out[:] = getattr(xt.linalg, name)(a)
        out *= 2

    fused, out = xt.fuse(function), xt.zeros((3, 3))
    with xt.options(engine="llvm"):
        for _ in range(3):
            fused(REGULAR, out)
        assert not fused.why(REGULAR, out)
        out[...] = 5
        with pytest.raises(LinAlgError, match=f"^{name}: "):
            fused(bad, out)
    assert (np.asarray(out) == 6).all()
    assert is_native(fused)


def test_a_failure_that_the_function_expects() -> None:
    def function(a: xt.Tensor) -> xt.Tensor:
        try:
            return xt.linalg.cholesky(a)
        except LinAlgError:
            return xt.zeros_like(a)

    fused = xt.fuse(function)
    with xt.options(engine="llvm"):
        for a in (REGULAR, REGULAR, REGULAR, -REGULAR, REGULAR):
            assert (np.asarray(fused(a)) == np.asarray(function(a))).all()


def test_gradients_and_rows_go_the_same_way() -> None:
    def loss(a: xt.Tensor, b: xt.Tensor) -> xt.Tensor:
        return b @ xt.linalg.solve(a, b) + xt.linalg.slogdet(a)[1]

    a, b = matrices("float64", 4)
    gradient, rows = xt.grad(loss, (0, 1)), xt.vmap(loss)
    fused, mapped = xt.fuse(gradient), xt.fuse(rows)
    stacks = matrices("float64", 4, (5,))
    with xt.options(engine="llvm"):
        for _ in range(3):
            found = fused(a, b[:, 0])
            many = mapped(stacks[0], stacks[1][..., 0])
    for one, other in zip(found, gradient(a, b[:, 0]), strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-12)
    np.testing.assert_allclose(np.asarray(many), np.asarray(rows(stacks[0], stacks[1][..., 0])), rtol=1e-12)
    each = [np.asarray(loss(one, other[:, 0])) for one, other in zip(stacks[0], stacks[1], strict=True)]
    np.testing.assert_allclose(np.asarray(many), each, rtol=1e-12)
    assert is_native(mapped)


@pytest.mark.parametrize("in_axes", [(0, None), (None, 0), (0, 0)])
@pytest.mark.parametrize("columns", [0, 1, 4])
def test_equations_of_many_rows(in_axes: tuple[int | None, int | None], columns: int) -> None:
    """Vectors are no matrices whose rows are as many; what is the same for all rows broadcasts."""
    a, b = matrices("float64", 4, (4,))
    b = b[..., 0] if not columns else xt.concat([b, b], axis=-1)[..., :columns]
    given = [x if axis == 0 else x[1] for x, axis in zip((a, b), in_axes, strict=True)]
    rows = xt.vmap(xt.linalg.solve, in_axes=in_axes)
    fused = xt.fuse(rows)
    each = [
        np.linalg.solve(*[np.asarray(x if axis is None else x[n]) for x, axis in zip(given, in_axes, strict=True)])
        for n in range(4)
    ]
    np.testing.assert_array_equal(np.asarray(rows(*given)), each)
    with xt.options(engine="llvm"):
        for _ in range(3):
            np.testing.assert_array_equal(np.asarray(fused(*given)), each)
    assert is_native(fused)


def test_a_filter_of_small_matrices_is_one_call_of_machine_code() -> None:
    def step(x: Any, p: Any, z: Any) -> tuple[Any, Any]:
        predicted = p * 1.01 + xt.eye(3) * 0.1
        gain = xt.linalg.solve(predicted + xt.eye(3), predicted)
        return x + gain @ (z - x), predicted - gain @ predicted

    def whole(x: Any, p: Any, zs: Any) -> Any:
        for n in range(zs.shape[0]):
            x, p = step(x, p, zs[n])
        return x

    fused, given = xt.fuse(whole), (xt.zeros(3), xt.eye(3), xt.asarray(np.random.default_rng(0).random((8, 3))))
    for _ in range(3):
        found = fused(*given)
    np.testing.assert_allclose(np.asarray(found), np.asarray(whole(*given)), rtol=1e-12)
    assert is_native(fused)
    assert xt.explain(fused).count("machine code") == 1


def test_the_gradient_of_a_determinant_is_captured() -> None:
    """Of sound matrices; of singular ones the function itself finds it by singular values."""
    plain = xt.grad(lambda a: xt.sum(xt.linalg.det(a)))
    fused = xt.fuse(plain)
    for call in range(6):
        a = np.random.default_rng(call).normal(size=(3, 4, 4)) + 3 * np.eye(4)
        if call == 4:
            a[1] = np.diag([1.0, 2.0, 0.0, 3.0])
        found = fused(xt.asarray(a)).numpy()
        np.testing.assert_allclose(found, plain(xt.asarray(a)).numpy(), rtol=1e-10, atol=1e-12)
        if call != 4:
            np.testing.assert_allclose(found, np.linalg.det(a)[:, None, None] * np.linalg.inv(a).swapaxes(1, 2))
        else:
            np.testing.assert_allclose(found[1], np.diag([0.0, 0.0, 6.0, 0.0]), atol=1e-12)
    assert "[values]" not in fused.why(xt.asarray(a))

"""Functions that are made of steps that fuse where a function is captured: the same bits as NumPy's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from test_dispatch import at_once, by_machine_code, known  # noqa: F401 - at_once is a fixture

import xtensor as xt
import xtensor.numpy as xnp
from xtensor.calls.dispatch import REMEMBERED
from xtensor.codegen.cpu.compile import host
from xtensor.devices import blas

pytestmark = pytest.mark.skipif(host() is None, reason="needs llvmlite")

# By name: what is computed with a namespace, and the shapes of the arrays.
FUNCTIONS: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "dot of a method": (lambda np, a, b: a.dot(b), [(4, 5), (5,)]),
    "dot of matrices": (lambda np, a, b: a.dot(b), [(4, 5), (5, 3)]),
    "inner": (lambda np, a, b: np.inner(a, b), [(4, 5), (3, 5)]),
    "tensordot": (lambda np, a, b: np.tensordot(a, b, 2), [(2, 4, 5), (4, 5, 3)]),
    "norm": (lambda np, a: np.linalg.norm(a), [(17,)]),
    "norm of a matrix": (lambda np, a: np.linalg.norm(a, keepdims=True), [(4, 5)]),
    "power": (lambda np, a: np.linalg.matrix_power(a, 5), [(4, 4)]),
    "cube": (lambda np, a: np.linalg.matrix_power(a, 3), [(4, 4)]),
    "running sum": (lambda np, a: np.cumsum(a), [(9,)]),
    "running sums of columns": (lambda np, a: np.cumsum(a, axis=0), [(4, 5)]),
    "running products": (lambda np, a: np.cumprod(a, axis=1), [(3, 4, 5)]),
    "running maximum": (lambda np, a: np.maximum.accumulate(a), [(9,)]),
    "running minima of rows": (lambda np, a: np.minimum.accumulate(a, axis=1), [(3, 4, 5)]),
    "differences": (lambda np, a: np.diff(a), [(3, 7)]),
    "second differences": (lambda np, a: np.diff(a, n=2, axis=0), [(5, 3)]),
    "lower triangle": (lambda np, a: np.tril(a, -1), [(2, 4, 5)]),
    "upper triangle": (lambda np, a: np.triu(a, 2), [(4, 5)]),
    "tile": (lambda np, a: np.tile(a, (2, 1, 3)), [(4, 5)]),
    "repeat": (lambda np, a: np.repeat(a, 3, axis=0), [(4, 5)]),
    "repeat all": (lambda np, a: np.repeat(a, 2), [(4, 5)]),
    "pad": (lambda np, a: np.pad(a, ((1, 2), (0, 3)), constant_values=-1.5), [(4, 5)]),
    "turned and copied": (lambda np, a: a.T.copy().ravel(), [(4, 5)]),
    "flattened": (lambda np, a: -a.T.reshape(-1), [(4, 5)]),
    "argmax": (lambda np, a: np.argmax(a), [(4, 5)]),
    "argmin": (lambda np, a: np.argmin(a, keepdims=True), [(40,)]),
    "first true": (lambda np, a: np.argmax(a > 0.5), [(40,)]),
    "first true of none": (lambda np, a: np.argmax(a > 50.0, axis=-1), [(4, 9)]),
    "first false": (lambda np, a: np.argmin(a < 0.5, axis=0), [(4, 9)]),
    "argmax of integers": (lambda np, a: np.argmax((a * 3.0).astype(np.int32), axis=0), [(5, 4)]),
    "argmin of bytes": (lambda np, a: np.argmin((a * a * 9.0).astype(np.uint8)), [(30,)]),
}
LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "C": np.ascontiguousarray,
    "F": np.asfortranarray,
    "backwards": lambda x: np.ascontiguousarray(x[..., ::-1])[..., ::-1],
    "with gaps": lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
}


@pytest.fixture
def compiled() -> Iterator[None]:
    with xt.options(engine="llvm"):
        yield


def arrays(name: str, dtype: str, layout: str) -> list[Any]:
    rng = np.random.default_rng(len(name))
    return [LAYOUTS[layout](rng.standard_normal(shape).astype(dtype)) for shape in FUNCTIONS[name][1]]


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_same_as_numpy(name: str, dtype: str, layout: str) -> None:
    function, given = FUNCTIONS[name][0], arrays(name, dtype, layout)
    fused = xt.fuse(lambda *given: function(xnp, *given), strict=True)
    for _ in range(3):
        found = np.asarray(fused(*map(xt.asarray, given)))
    right = np.asarray(function(np, *given))
    assert (found.dtype, found.shape) == (right.dtype, right.shape)
    np.testing.assert_array_equal(found, right)
    assert layout != "C" or not blas.address("dgemm") or "library:" not in fused.explained()


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize(
    "name",
    [
        *("differences", "lower triangle", "upper triangle", "tile", "pad", "flattened"),
        *("running maximum", "running minima of rows"),
    ],
)
def test_odd_values_go_through(name: str) -> None:
    """NaN, infinities and the sign of zero, as well as integers and complex numbers."""
    function, (shape, *_) = FUNCTIONS[name]
    x = np.resize([0.0, -0.0, np.nan, np.inf, -np.inf, 1e308], shape)
    for a in (x, np.where(np.isfinite(x), x, 1).astype("complex128"), np.arange(x.size).reshape(shape)):
        if name == "pad" and a.dtype.kind == "i":
            continue  # NumPy takes the fraction away
        fused = xt.fuse(lambda a: function(xnp, a))
        with np.errstate(all="ignore"):
            for _ in range(3):
                found = np.asarray(fused(xt.asarray(a)))
            right = function(np, a)
        assert found.dtype == right.dtype
        np.testing.assert_array_equal(found, right)
        np.testing.assert_array_equal(np.signbit(found.real), np.signbit(right.real))


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_machine_code_answers(name: str) -> None:
    function, given = FUNCTIONS[name][0], arrays(name, "float64", "C")
    fused = known(lambda *given: function(xnp, *given), *map(xt.asarray, given))
    found = by_machine_code(fused, *map(xt.asarray, given))
    np.testing.assert_array_equal(np.asarray(found), function(np, *given))


@pytest.mark.skipif(not blas.lapack_address("dgesv", wide=True), reason="NumPy's LAPACK is not OpenBLAS")
@pytest.mark.usefixtures("at_once")
def test_solutions_are_answered() -> None:
    """Of a vector, whose solution is a column seen as one, and of normal equations."""
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((30, 4)), rng.standard_normal(30)
    for function in (
        lambda np, x, y: np.linalg.solve(x[:4], y[:4]),
        lambda np, x, y: np.linalg.solve(x.T @ x + 0.1 * np.eye(4), x.T @ y),
        lambda np, x, y: np.linalg.cholesky(x.T @ x),
    ):
        fused = known(lambda x, y, f=function: f(xnp, x, y), *map(xt.asarray, (x, y)))
        found = by_machine_code(fused, *map(xt.asarray, (x, y)))
        np.testing.assert_array_equal(np.asarray(found), function(np, x, y))


@pytest.mark.usefixtures("at_once")
def test_many_kinds_are_answered() -> None:
    """A number that is asked for makes a kind of its own; machine code knows many of a function. Of more than can be
    remembered, others are forgotten.
    """
    x = np.random.default_rng(2).random((80, 8))
    fused = xt.fuse(lambda i, x: x[int(i)].sum() + i)
    for rows in (40, 80):
        for call in range(12 * rows):
            found = fused(call % rows, xt.asarray(x))
            np.testing.assert_allclose(float(found), x[call % rows].sum() + call % rows, rtol=1e-14)
        assert sum(one.dispatched for one in fused._known.values()) > 200
        assert len(fused._known) == min(rows, REMEMBERED)


def test_arguments_stay_thin() -> None:
    """A call that was captured leaves its arguments as they were: others are as fast with them as before."""
    x, y = xt.asarray(np.arange(64.0)), xt.asarray(np.arange(64) % 3)
    fused = xt.fuse(lambda x, y: x[y] * 2.0)
    for _ in range(3):
        fused(x, y)
        assert type(x._content) is type(y._content) is np.ndarray


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_the_first_nan_is_an_extreme(name: str, dtype: str) -> None:
    """Also one whose other part is a number, and one after a larger number."""
    x = np.array([1.0, 5.0, np.nan, 9.0, np.nan, -3.0]).astype(dtype)
    places = [x]
    if x.dtype.kind == "c":
        places.append(np.array([1, complex(0, np.nan), 7, complex(np.nan, 1)]).astype(dtype))
    for a in places:
        fused = xt.fuse(lambda a: getattr(xnp, name)(a))
        for _ in range(3):
            found = int(fused(xt.asarray(a)))
        assert found == getattr(np, name)(a)

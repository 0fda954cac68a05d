"""Products with a matrix of few columns, by code of ours: numbers of columns, rows and terms, and what it touches."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
from test_contraction import fenced as fenced  # fixture
from test_stacks import check, normal

import xtensor as xt
from xtensor.codegen.cpu import compile as compile_
from xtensor.codegen.cpu import thin as code
from xtensor.plan.costs import PRODUCT_LEAST
from xtensor.run.matmul import is_thin, product_of, thin_product

Array = np.ndarray[Any, Any]

pytestmark = pytest.mark.skipif(compile_.host() is None, reason="there is no compiler")


@pytest.fixture(params=[64, 32, 16])
def width(request: Any, monkeypatch: Any) -> None:
    """Registers of so many bytes, as far as this machine has them."""
    machine = compile_.host()
    assert machine is not None
    if request.param > machine.vector_bytes:
        pytest.skip("the machine's registers are shorter")
    monkeypatch.setattr(code, "the_host", lambda: machine._replace(vector_bytes=request.param))


@pytest.mark.parametrize("columns", [2, 3, 4, 5, 6, 7, 8])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_products(columns: int, dtype: str, width: None) -> None:
    """Rows around what is made at a time, terms around whole registers; rows with gaps, and B in any order."""
    for rows, depth in ((16, 1), (17, 15), (23, 16), (16, 17), (31, 64), (40, 100)):
        a, b = normal(rows, depth + 3, dtype=dtype)[:, :depth], normal(columns, depth, dtype=dtype).T
        check(thin_product(a, b), a, b)


@pytest.mark.parametrize("at_end", [True, False])
@pytest.mark.parametrize("shape", [(16, 1, 2), (17, 33, 3), (40, 16, 8)])
def test_nothing_beyond_the_operands_is_touched(fenced: Any, shape: tuple[int, int, int], at_end: bool) -> None:
    """Operands and results right before and behind memory that must not be read or written."""
    rows, depth, columns = shape
    for dtype in ("float32", "float64"):
        a, b = fenced(normal(rows, depth, dtype=dtype), at_end), fenced(normal(depth, columns, dtype=dtype), at_end)
        found = fenced(np.zeros((rows, columns), dtype), at_end)
        thin_product(a, b, found)
        check(found, a, b)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_neither_threads_nor_laziness_change_a_bit(dtype: str) -> None:
    """The same code runs however a product is asked for; parts of the rows have the bits of the whole."""
    a, b = normal(5003, 37, dtype=dtype), normal(37, 5, dtype=dtype)
    assert is_thin(a, b)
    x, y = xt.asarray(a), xt.asarray(b)
    wanted = xt.matmul(x, y).numpy()
    check(wanted, a, b)
    for threads in (1, 2, 3, 7):
        with xt.options(threads=threads):
            np.testing.assert_array_equal(xt.matmul(x, y).numpy(), wanted)
    with xt.options(lazy="always"):
        np.testing.assert_array_equal((xt.matmul(x, y) + 0).numpy(), wanted)
    np.testing.assert_array_equal(thin_product(a[100:200], b), wanted[100:200])


def test_what_is_left_to_the_library() -> None:
    """Many columns, one, few rows or terms, little work, other dtypes, rows that are not contiguous."""
    a, b = np.ones((3000, 64)), np.ones((64, 8))
    assert is_thin(a, b)
    for other, one in ((a, np.ones((64, 9))), (a, b[:, :1]), (a[:, :31], b[:31]), (a[:63], b), (a[:100], b)):
        assert not is_thin(other, one)
    for other in (np.ones((64, 3000)).T, np.ones((3000, 128))[:, ::2], a.astype(np.int64), a.astype(np.float32)):
        assert not is_thin(other, b.astype(other.dtype) if other.dtype.kind == "i" else b)
    with xt.options(engine="interpret"):
        assert not is_thin(a, b)


def test_what_is_not_finite() -> None:
    """NaN and infinity go where the sums take them, and not behind the last term."""
    a, b = normal(70, 33, dtype="float64"), normal(33, 3, dtype="float64")
    a[1, 32], b[2, 1], a[3, 0] = np.nan, np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        wanted = a @ b
    found = thin_product(a, b)
    for special in (np.isnan, np.isposinf, np.isneginf):
        np.testing.assert_array_equal(special(found), special(wanted))


# ---- rows of a stack, and the matrix that all of them are multiplied with


@pytest.mark.parametrize("columns", [1, 5, 9, 70])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("lead", [(30, 50, 1), (2, 3, 14), (2, 1)])
def test_rows_of_a_stack_are_one_matrix(
    lead: tuple[int, ...], columns: int, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library is asked once, for matrices of two axes, however the product is asked for."""
    a, b = normal(*lead, 70, dtype=dtype), normal(70, columns, dtype=dtype)
    asked: list[tuple[int, ...]] = []
    multiply = np.matmul

    def counted(one: Array, other: Array, **given: Any) -> Array:
        asked.append(one.shape)
        return multiply(one, other, **given)

    monkeypatch.setattr(np, "matmul", counted)
    x, y = xt.asarray(a), xt.asarray(b)
    found = xt.matmul(x, y).numpy()
    assert found.shape == (*lead, columns)
    is_counted = max(a.size, b.size) >= PRODUCT_LEAST  # less is left to the library as it stands
    assert all(shape == ((prod(lead), 70) if is_counted else a.shape) for shape in asked)
    check(found, a, b)
    fused = xt.fuse(lambda x, y: (x @ y) * 1)
    for _ in range(3):
        np.testing.assert_array_equal(fused(x, y).numpy(), found)
    with xt.options(lazy="always"):
        np.testing.assert_array_equal((x @ y * 1).numpy(), found)
    by_y = xt.grad(lambda y: xt.sum(xt.abs(x @ y) ** 2))(y).numpy()
    rows = np.reshape(a, (-1, 70))
    tolerance = 1e-3 if dtype in ("float32", "complex64") else 1e-10
    np.testing.assert_allclose(by_y, 2 * np.conj(rows.T) @ (rows @ b), rtol=tolerance)


def test_stacks_that_are_no_rows_of_one_matrix() -> None:
    """A matrix for each, rows that lie apart, other dtypes."""
    row, b = np.ones((1500, 1, 70)), np.ones((70, 300))
    assert product_of(row, b, None) is not None
    others = (np.ones((3000, 1, 70))[::2], np.ones((1500, 1, 140))[..., ::2])
    for other in (*others, row.astype(np.float32)):
        assert product_of(other, b, None) is None
    assert product_of(row[:100], np.ones((100, 70, 300)), None) is None

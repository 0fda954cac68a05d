"""Products of many small matrices by code made for their lengths: every kind of tile, and what it may touch."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from test_contraction import fenced as fenced  # fixtures
from test_contraction import width as width

import xtensor as xt
from xtensor.codegen.cpu import compile as compile_
from xtensor.codegen.cpu import stack
from xtensor.plan import costs
from xtensor.run import matmul
from xtensor.run.matmul import is_stack, stacked_product

Array = np.ndarray[Any, Any]

pytestmark = pytest.mark.skipif(compile_.host() is None, reason="there is no compiler")

TOLERANCES = {"float32": 2e-6, "float64": 2e-15, "complex64": 2e-6, "complex128": 2e-15}
DTYPES = [*TOLERANCES]


@pytest.fixture(autouse=True)
def small_stacks(monkeypatch: Any) -> None:
    """Small stacks are computed by code of ours as well."""
    monkeypatch.setattr(matmul, "STACK_COMPILED", 0)
    monkeypatch.setattr(matmul, "NATIVE_PRODUCTS", 0)
    stack.stack_kernel.cache_clear()


def normal(*shape: int, dtype: str) -> Array:
    """Return normal numbers."""
    rng = np.random.default_rng(shape)
    found: Array = rng.normal(size=shape).astype(dtype)
    return found + (1j * rng.normal(size=shape)).astype(dtype) if dtype.startswith("complex") else found


def check(found: Array, a: Array, b: Array) -> None:
    """Compare with float64's product, relative to the sum of absolute products."""
    wide = np.complex128 if found.dtype.kind == "c" else np.float64
    wanted = a.astype(wide) @ b.astype(wide)
    bound = abs(a.astype(wide)) @ abs(b.astype(wide))
    assert (abs(found - wanted) <= TOLERANCES[found.dtype.name] * bound).all()


SHAPES = [
    (1, 1, 1),
    (2, 3, 4),
    (8, 8, 8),
    (7, 16, 15),
    (13, 17, 31),
    (25, 5, 33),
    (12, 40, 64),
    (64, 64, 48),
    (1, 64, 9),
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_products(shape: tuple[int, int, int], dtype: str, width: int) -> None:
    """Lengths around whole registers and tiles, sums that are written out and such that are not."""
    rows, depth, columns = shape
    a, b = normal(5, rows, depth, dtype=dtype), normal(5, depth, columns, dtype=dtype)
    check(stacked_product(a, b), a, b)


@pytest.mark.parametrize("leads", [((2, 3), (2, 3)), ((), (2, 3)), ((1, 1), (2, 3)), ((6,), (6,)), ((6,), ())])
def test_one_matrix_with_many(leads: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    """An operand may be one matrix for all."""
    a, b = normal(*leads[0], 4, 5, dtype="float64"), normal(*leads[1], 5, 6, dtype="float64")
    assert is_stack(a, b)
    found = xt.matmul(xt.asarray(a), xt.asarray(b)).numpy()
    assert found.shape == (a @ b).shape
    check(found, a, b)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((4, 4), (4, 4)),
        ((4,), (9, 4, 4)),
        ((9, 65, 4), (9, 4, 4)),
        ((9, 4, 65), (9, 65, 4)),
        ((9, 0, 4), (9, 4, 4)),
        ((9, 64, 64), (9, 64, 1)),
        ((2, 3, 4, 4), (3, 4, 4)),
    ],
)
def test_what_is_left_to_the_library(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    """Two matrices, large ones, narrow ones, none, and stacks of which one is repeated."""
    assert not is_stack(np.ones(a), np.ones(b))


def layouts(count: int, rows: int, columns: int, dtype: str) -> dict[str, Array]:
    """Return stacks of one shape whose matrices lie in different ways."""
    wide = normal(2 * count, 2 * rows + 1, 2 * columns + 1, dtype=dtype)
    one = np.ascontiguousarray(wide[:count, :rows, :columns])
    return {
        "C": one,
        "turned": np.ascontiguousarray(one.mT).mT,
        "with gaps": wide[::2, 1 : rows + 1, 1 : columns + 1],
        "strided": wide[:count, : 2 * rows : 2, : 2 * columns : 2],
        "backwards": one[:, ::-1, ::-1],
        "one row": np.broadcast_to(one[:, :1], one.shape),
        "stack last": np.ascontiguousarray(np.moveaxis(one, 0, -1)).transpose(2, 0, 1),
    }


@pytest.mark.parametrize("shape", [(1, 3, 2), (3, 3, 3), (6, 6, 6), (7, 5, 9), (13, 17, 20), (40, 33, 20)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_however_matrices_lie(shape: tuple[int, int, int], dtype: str, width: int) -> None:
    """Rows or columns side by side, gaps, and steps backwards: the result lies as NumPy's does."""
    rows, depth, columns = shape
    ways = itertools.product(layouts(5, rows, depth, dtype).values(), layouts(5, depth, columns, dtype).values())
    for a, b in ways:
        assert is_stack(a, b)
        found = stacked_product(a, b)
        check(found, a, b)
        assert found.strides == np.matmul(a, b).strides


def test_strides_that_are_left_to_the_library() -> None:
    """Stacks that go backwards, whose axes are exchanged, or whose numbers lie between others; other dtypes."""
    x, memory = np.ones((4, 5, 4, 4)), np.zeros(4 * 5 * 16 * 8 + 1, np.uint8)
    odd = memory[1:].view(np.float64).reshape(x.shape)
    exchanged = np.ones((5, 4, 4, 4)).swapaxes(0, 1)
    assert is_stack(x, x)
    for other in (x[:, ::-1], exchanged, odd, x.astype(np.float32)):
        assert other.shape == x.shape
        assert not is_stack(other, x)
        assert not is_stack(x, other)


def test_few_are_left_to_the_library(monkeypatch: Any) -> None:
    """As many as a schedule calls one by one, and so little work that compiling does not pay."""
    monkeypatch.undo()
    few, many, short = (np.ones((count, n, n)) for count, n in ((costs.NATIVE_PRODUCTS, 64), (1000, 16), (100, 4)))
    assert [is_stack(x, x) for x in (few, many, short)] == [False, True, False]


@pytest.mark.parametrize("at_end", [True, False])
@pytest.mark.parametrize("shape", [(1, 1, 1), (13, 17, 31), (7, 16, 40)])
def test_nothing_beyond_the_operands_is_touched(fenced: Any, shape: tuple[int, int, int], at_end: bool) -> None:
    """Operands and results right before and behind memory that must not be read or written."""
    rows, depth, columns = shape
    for dtype in DTYPES:
        a, b = (fenced(normal(3, *one, dtype=dtype), at_end) for one in ((rows, depth), (depth, columns)))
        found = fenced(np.zeros((3, rows, columns), dtype), at_end)
        stacked_product(a, b, found)
        check(found, a, b)


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_neither_threads_nor_laziness_change_a_bit(dtype: str) -> None:
    """The same code runs however a product is asked for."""
    a, b = xt.asarray(normal(5000, 9, 9, dtype=dtype)), xt.asarray(normal(5000, 9, 9, dtype=dtype))
    wanted = xt.matmul(a, b).numpy()
    for threads in (1, 2, 3, 7):
        with xt.options(threads=threads):
            np.testing.assert_array_equal(xt.matmul(a, b).numpy(), wanted)
    with xt.options(lazy="always"):
        np.testing.assert_array_equal((xt.matmul(a, b) + 0).numpy(), wanted)
    fused = xt.fuse(lambda a, b: xt.matmul(a, b))
    for _ in range(3):
        np.testing.assert_array_equal(fused(a, b).numpy(), wanted)
    np.testing.assert_array_equal(xt.matmul(a[:70, ...], b[:70, ...]).numpy(), wanted[:70])


def test_what_is_not_finite() -> None:
    """NaN and infinity go where the sums take them."""
    a, b = normal(4, 6, 6, dtype="float64"), normal(4, 6, 6, dtype="float64")
    a[1, 2, 3], b[2, 3, 4], a[3, 0, 0] = np.nan, np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        wanted = a @ b
    found = stacked_product(a, b)
    for special in (np.isnan, np.isposinf, np.isneginf):
        np.testing.assert_array_equal(special(found), special(wanted))


@pytest.mark.parametrize("engine", ["direct", "interpret"])
@pytest.mark.parametrize("shape", [(80, 4, 4), (3000, 8, 8)])
def test_other_engines_have_the_librarys_products(engine: Any, shape: tuple[int, ...], monkeypatch: Any) -> None:
    """Small operands and large ones, at once and recorded: options hold wherever the product is computed."""
    monkeypatch.setattr(matmul, "STACK_COMPILED", 1)
    a = np.random.default_rng(0).standard_normal(shape)
    for lazy in ("auto", "always", "never"):
        with xt.options(engine=engine, lazy=lazy):
            found = xt.matmul(xt.asarray(a), xt.asarray(a)).numpy()
        np.testing.assert_array_equal(found, np.matmul(a, a))

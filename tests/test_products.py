"""Products inside captured functions, which machine code calls at the BLAS's own address: the same bits as NumPy's."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

import xtensor as xt
from xtensor.codegen.cpu.compile import host
from xtensor.devices import blas

Array = Any

needs_code = pytest.mark.skipif(host() is None, reason="needs llvmlite")
needs_blas = pytest.mark.skipif(not blas.address("dgemm"), reason="NumPy's BLAS is not OpenBLAS")
pytestmark = [needs_code, needs_blas]

LENGTHS = [(1, 1, 1), (1, 7, 1), (1, 7, 5), (33, 7, 1), (2, 1, 16), (2, 5, 3), (33, 40, 16), (70, 80, 90)]


@pytest.fixture(autouse=True)
def compiled() -> Iterator[None]:
    with xt.options(engine="llvm"):
        yield


def layouts(rows: int, columns: int, dtype: str) -> dict[str, Array]:
    """Return matrices of one shape that lie in different ways."""
    rng = np.random.default_rng(rows * columns)
    wide = rng.standard_normal((2 * rows + 1, 2 * columns + 1)).astype(dtype)
    if dtype[0] == "c":
        wide += 1j * rng.standard_normal(wide.shape).astype(dtype)
    return {
        "rows": np.ascontiguousarray(wide[:rows, :columns]),
        "columns": np.asfortranarray(wide[:rows, :columns]),
        "window": wide[1 : rows + 1, 1 : columns + 1],
        "strided": wide[: 2 * rows : 2, : 2 * columns : 2],
        "backwards": wide[:rows, :columns][::-1, ::-1],
        "one row": np.broadcast_to(wide[:1, :columns], (rows, columns)),
    }


def third_call(function: Any, *arrays: Array) -> tuple[Array, str]:
    """Return the result of a fused function's third call, and what its schedule does."""
    fused = xt.fuse(function, strict=True)
    for _ in range(3):
        found = fused(*[xt.asarray(one) for one in arrays])
    return np.asarray(found), fused.explained()


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize(("m", "k", "n"), LENGTHS)
def test_the_same_bits_as_numpy_however_operands_lie(dtype: str, m: int, k: int, n: int) -> None:
    for (own, a), (other, b) in product(layouts(m, k, dtype).items(), layouts(k, n, dtype).items()):
        found, _ = third_call(lambda x, y: xt.matmul(x, y) + 1, a, b)
        if k == 1 and dtype[0] == "c":  # products of elements, which machine code does not round as NumPy does
            np.testing.assert_allclose(found, np.matmul(a, b) + 1, rtol=4 * np.finfo(dtype).eps, atol=1e-30)
            continue
        np.testing.assert_array_equal(found, np.matmul(a, b) + 1, err_msg=f"{own}, {other}")


@pytest.mark.parametrize(("m", "k", "n"), [one for one in LENGTHS if one[1] > 1 and one[0] * one[1] * one[2] < 1 << 18])
@pytest.mark.parametrize("dtype", ["float64", "complex64"])
def test_products_are_part_of_the_machine_code(dtype: str, m: int, k: int, n: int) -> None:
    for own, other in product(("rows", "columns", "window"), repeat=2):
        a, b = layouts(m, k, dtype)[own], layouts(k, n, dtype)[other]
        _, explained = third_call(lambda x, y: xt.matmul(x, y) + 1, a, b)
        assert "machine code: 2 kernels in one call" in explained and "library" not in explained, (own, other)


@pytest.mark.parametrize("dtype", ["int64", "float16"])
def test_other_dtypes_are_left_to_numpy(dtype: str) -> None:
    a = np.arange(12).reshape(3, 4).astype(dtype)
    found, explained = third_call(lambda x: xt.matmul(x, xt.matrix_transpose(x)) if x.ndim else x, a)
    np.testing.assert_array_equal(found, a @ a.T)
    assert "library" in explained


def test_vectors_and_stacks() -> None:
    rng = np.random.default_rng(1)
    v, m, stack = rng.random(9), rng.random((9, 4)), rng.random((3, 2, 4, 9))
    other = rng.random((1, 2, 9, 4))
    for a, b in ((v, v), (v, m), (stack, v), (stack, m), (stack, other), (m.T, stack[0].swapaxes(-1, -2))):
        found, explained = third_call(lambda x, y: xt.matmul(x, y) * 2, a, b)
        np.testing.assert_array_equal(found, np.matmul(a, b) * 2)
        assert "library" not in explained
    for dtype in ("float32", "float64"):
        v = rng.standard_normal(1000).astype(dtype)
        for a, b in ((v, v[::-1].copy()), (v, v[::-1]), (v[::-2], v[:500]), (v[:9], np.broadcast_to(v[:1], 9))):
            found, explained = third_call(lambda x, y: xt.vecdot(x, y) * 2, a, b)
            assert found == np.vecdot(a, b) * 2
            assert "library" not in explained


def test_a_matrix_times_its_own_transpose_is_symmetric_as_numpys() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.random((40, 30)), rng.random((40, 30))
    for function in (lambda x, y: x @ x.T + 0, lambda x, y: x @ y.T + 0):
        fused = xt.fuse(function, strict=True)
        for one, other in ((a, a), (a, b), (b, a)):
            x, y = xt.asarray(one), xt.asarray(other)
            for _ in range(3):
                np.testing.assert_array_equal(np.asarray(fused(x, y)), function(one, other))
            y = x if one is other else y  # one object for both arguments is another kind of call
            np.testing.assert_array_equal(np.asarray(fused(x, y)), function(one, other))


def test_many_products_are_left_to_one_call() -> None:
    stack = np.random.default_rng(3).random((200, 3, 3))
    found, explained = third_call(lambda x: xt.matmul(x, x) + 1, stack)
    np.testing.assert_array_equal(found, np.matmul(stack, stack) + 1)
    assert "library" in explained


def factor(a: Any) -> None:
    """Factor a matrix into triangles, in place, as textbooks write it."""
    for i in range(a.shape[0]):
        for j in range(i):
            a[i, j] -= a[i, :j] @ a[:j, j]
            a[i, j] /= a[j, j]
        for j in range(i, a.shape[0]):
            a[i, j] -= a[i, :i] @ a[:i, j]


def sweep(a: Any, x: Any, b: Any) -> None:
    """Improve a solution of a system of equations several times over, a row at a time."""
    for _ in range(12):
        for i in range(a.shape[0]):
            x[i : i + 1] += (b[i : i + 1] - a[i : i + 1] @ x) / a[i, i]


@pytest.mark.parametrize("n", [1, 2, 7, 12])
def test_loops_of_products_over_parts_that_grow(n: int) -> None:
    a = np.random.default_rng(n).random((n, n)) + n * np.eye(n)
    right = a.copy()
    factor(right)
    fused = xt.fuse(factor, strict=True)
    for _ in range(4):
        x = xt.asarray(a, copy=True)
        fused(x)
        np.testing.assert_array_equal(np.asarray(x), right)
    assert "library" not in fused.explained()


def test_a_loop_that_comes_again_over_the_same_memory_uses_its_temporaries_again() -> None:
    rng = np.random.default_rng(5)
    fused = xt.fuse(sweep, strict=True)
    for _ in range(4):
        a, b = rng.random((6, 6)) + 6 * np.eye(6), rng.random(6)
        right, x = np.zeros(6), xt.zeros(6)
        sweep(a, right, b)
        fused(xt.asarray(a), x, xt.asarray(b))
        np.testing.assert_array_equal(np.asarray(x), right)
    lines = fused.explained()
    assert "machine code" in lines and "library" not in lines


def test_what_is_written_between_two_products_is_seen_by_the_second() -> None:
    a = np.arange(9.0).reshape(3, 3)

    def function(x: Any) -> Any:
        before = x @ x
        x[0] = 7.0
        return before + x @ x

    fused = xt.fuse(function, strict=True)
    for _ in range(4):
        x, right = xt.asarray(a, copy=True), a.copy()
        np.testing.assert_array_equal(np.asarray(fused(x)), function(right))
        np.testing.assert_array_equal(np.asarray(x), right)


def test_gradients_of_captured_products() -> None:
    rng = np.random.default_rng(6)
    w, x = rng.random((5, 3)), rng.random((4, 5))
    step = xt.fuse(xt.grad(lambda w, x: xt.sum(xt.tanh(x @ w))), strict=True)
    for _ in range(4):
        found = step(xt.asarray(w), xt.asarray(x))
    np.testing.assert_allclose(np.asarray(found), x.T @ (1 - np.tanh(x @ w) ** 2), rtol=1e-14)


def test_a_statement_of_a_loop_is_one_evaluation_also_in_memory_shared_with_numpy() -> None:
    """The value `a[i, j]` of `a[i, j] -= ...` is no step of its own: kernels and memory are those of the expression."""
    for copy in (True, False):
        fused, a = xt.fuse(factor, strict=True), np.random.default_rng(7).random((5, 5)) + 5 * np.eye(5)
        for _ in range(3):
            x = xt.asarray(a.copy(), copy=copy)
            fused(x)
        (known,) = fused._known.values()
        assert known.captured is not None
        assert len(known.captured.steps) == 25 + 10  # a product for each element, a quotient below the diagonal
        assert {root.argument for root in known.captured.roots} == {0}


def test_views_of_one_buffer_that_come_as_two_arrays_are_written_in_order() -> None:
    """Two tensors over one NumPy array have two owners: what one writes, the other reads afterwards."""

    def function(x: Any, y: Any) -> None:
        for i in range(3):
            x[i + 1] += y[i] * 2
            y[i] -= x[i + 2]
            x[1:3] = y[0:2] + x[2:4]

    fused = xt.fuse(function)
    for shift in (0, 0, 0, 1, 1, 1, 2, 2, 2):
        memory, right = np.arange(8.0), np.arange(8.0)
        fused(xt.asarray(memory[:5], copy=False), xt.asarray(memory[shift : shift + 5], copy=False))
        function(right[:5], right[shift : shift + 5])
        np.testing.assert_array_equal(memory, right, err_msg=str(shift))


def test_explain_shows_the_code_of_a_product() -> None:
    """What it reads and writes, and the call. (Operands are two, as a plan of two that was made before takes one array
    given twice, too, and calls the library for it.)
    """
    x, y = (xt.named(xt.asarray(np.ones((30, 30)), copy=True), name) for name in "xy")
    with xt.options(lazy="always", engine="llvm"):
        text = xt.explain(x @ y, ir=True)
    assert "kernel 1 over (30, 30), llvm: the BLAS is called at its address" in text
    for line in ("reads %x float64 (30, 30)", "reads %y float64 (30, 30)", "writes %2 float64 (30, 30)"):
        assert f"    {line}" in text
    assert "call void %function(" in text


@pytest.mark.parametrize("lazy", ["auto", "always"])
@pytest.mark.parametrize("size", [5, 40])
@pytest.mark.parametrize("dtype", ["float32", "complex128", "int64", "uint8"])
def test_stacks_lie_as_their_operands_do(dtype: str, size: int, lazy: Any) -> None:
    """Products of stacks, and of such products, have NumPy's values and strides, whoever computes them."""
    a = (np.arange(6 * size * size) % 5).reshape(3, 2, size, size).astype(dtype)
    for axes in ((0, 1, 2, 3), (1, 0, 2, 3), (1, 0, 3, 2), (2, 1, 0, 3)):
        across, b = a.transpose(axes), a[0, 0]
        n = across.shape[-1]
        one = np.matmul(across, np.ones((n, n), dtype))
        expected = [one, np.matmul(one, one.swapaxes(-1, -2)), np.matmul(b[:n, :n], one.swapaxes(-1, -2))]
        with xt.options(engine="llvm", lazy=lazy):
            first = xt.matmul(
                xt.permute_dims(xt.asarray(a, copy=True), axes), xt.ones((n, n), dtype=getattr(xt, dtype))
            )
            turned = xt.matrix_transpose(first)
            found = [first, xt.matmul(first, turned), xt.matmul(xt.asarray(b[:n, :n], copy=True), turned)]
            for ours, theirs in zip(map(np.asarray, found), expected, strict=True):
                assert np.array_equal(ours, theirs)
                assert ours.strides == theirs.strides


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize(
    "shapes", [((300, 1), (1, 400)), ((5, 300, 1), (5, 1, 40)), ((300, 1), (3, 1, 400)), ((1, 1), (1, 400))]
)
def test_columns_with_rows(shapes: Any, dtype: str) -> None:
    """Sums of one term: NumPy's bits, zeros' signs and NaN."""
    rng = np.random.default_rng(3)
    a, b = [rng.normal(size=shape).astype(dtype) for shape in shapes]
    a.flat[0] = -0.0
    a.flat[-1] = np.nan if a.size > 1 else 2.0
    found, expected = (xt.asarray(a) @ xt.asarray(b)).numpy(), a @ b
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)
    there = ~np.isnan(expected)
    for part in (np.real, np.imag):
        np.testing.assert_array_equal(np.signbit(part(found))[there], np.signbit(part(expected))[there])


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("shape", [(20_000, 8), (8, 20_000), (300, 400), (20_000, 1), (1, 20_000)])
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_places_of_extremes(name: str, shape: tuple[int, ...], axis: int) -> None:
    """The first of several, or the first NaN; computed with what is pending, in captured functions, too."""
    x = np.round(np.random.default_rng(5).normal(size=shape), 1)
    fused = xt.fuse(lambda x: getattr(xt, name)(x * 2.0, axis=axis, keepdims=True))
    for with_nan in (False, True):
        x.flat[:: 700 if with_nan else x.size] = np.nan if with_nan else 0.0
        expected = getattr(np, name)(x, axis=axis)
        mine = xt.asarray(x)
        for found in (getattr(xt, name)(mine, axis=axis), getattr(xt, name)(mine * 2.0, axis=axis)):
            assert found.dtype == xt.int64
            np.testing.assert_array_equal(found.numpy(), expected)
        for _ in range(3):
            np.testing.assert_array_equal(fused(mine).numpy(), np.expand_dims(expected, axis))


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize(("m", "k"), [(2, 2), (5, 3), (3, 17), (40, 30)])
def test_a_product_with_itself_transposed(dtype: str, m: int, k: int) -> None:
    """Machine code calls the BLAS's function for such products, as NumPy does."""
    for own, a in layouts(m, k, dtype).items():
        for function in (lambda x: xt.matmul(x.T, x) + 1, lambda x: xt.matmul(x, x.T) + 1):
            found, explained = third_call(function, a)
            np.testing.assert_array_equal(found, np.asarray(function(xt.asarray(a))), err_msg=own)
            assert own in ("strided", "backwards", "one row") or "library:" not in explained


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_of_one_term(dtype: str) -> None:
    """Products with a scalar matrix or a column of one element are elementwise, with NumPy's zeros and infinities."""
    odd = np.asarray([0.0, -0.0, 1.5, -2.0, np.inf, -np.inf, np.nan, 5e-324], dtype)
    one = odd[3:4]
    pairs = [(odd[:, None], one[None]), (odd[:, None], one), (one[None], odd[None]), (one, odd[None])]
    for a, b in pairs:
        found, explained = third_call(xt.matmul, a, b)
        with np.errstate(all="ignore"):
            right = np.matmul(a, b)
        np.testing.assert_array_equal(found, right)
        np.testing.assert_array_equal(np.signbit(found), np.signbit(right))
        assert "library:" not in explained


@pytest.mark.parametrize("other", ["float32", "float64"])
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "int64", "float32"])
def test_operands_of_different_dtypes(dtype: str, other: str) -> None:
    """They are cast in kernels, as NumPy casts them: in C order, so that last bits are the same."""
    rng = np.random.default_rng(5)
    for m, k, n in ((3, 2, 1), (1, 5, 4), (5, 3, 3), (17, 9, 33)):
        a, b = (3 * rng.standard_normal((m, k))).astype(dtype), rng.standard_normal((k, n)).astype(other)
        for one, two in ((a, b), (np.asfortranarray(a), b), (a, b[:, 0]), (b.T, a.T), (a[0], b)):
            found, explained = third_call(lambda x, y: xt.matmul(x, y) + 1, one, two)
            right = np.matmul(one, two) + 1
            assert found.dtype == right.dtype
            np.testing.assert_array_equal(found, right)
            assert "library: _multiplied" not in explained

"""The contraction kernel by itself: every shape of its tiles, operands that lie in any way, and what it may touch."""

from __future__ import annotations

import ctypes
import mmap
import struct
import sys
from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np
import pytest

import xtensor as xt
from xtensor.codegen.cpu import compile as compile_
from xtensor.codegen.cpu import forms
from xtensor.codegen.cpu.finish import ALIKE, COLUMNS, ROWS, SINGLE, Finish
from xtensor.codegen.cpu.turning import turning_of
from xtensor.graph.node import pending_below
from xtensor.plan.fusion import plan_of
from xtensor.plan.program import Program
from xtensor.plan.trace import Trace
from xtensor.run import contractions
from xtensor.run.contractions import Product, address, columns_of, rows_of
from xtensor.standard import linear

Array = np.ndarray[Any, Any]

pytestmark = pytest.mark.skipif(compile_.host() is None, reason="there is no compiler")

TOLERANCES = {"float32": 2e-5, "float64": 1e-13}


@pytest.fixture(params=[64, 32, 16])
def width(request: Any, monkeypatch: Any) -> int:
    """Registers of so many bytes, as far as this machine has them."""
    machine = compile_.host()
    assert machine is not None
    if request.param > machine.vector_bytes:
        pytest.skip("the machine's registers are shorter")
    monkeypatch.setattr(forms, "the_host", lambda: machine._replace(vector_bytes=request.param))
    return int(request.param)


def normal(*shape: int, dtype: str) -> Array:
    """Return normal numbers."""
    return np.random.default_rng(shape).normal(size=shape).astype(dtype)


def offsets(array: Array, axis: int) -> Array:
    """Return the offsets of an axis's elements."""
    return np.arange(array.shape[axis]) * (array.strides[axis] // array.itemsize)


def panels_of(one: Product) -> tuple[int, ...]:
    """Return the shape of the panels of all of B."""
    return one.panels, one.depth, one.form.width


def pack(one: Product, turned: Array, order: Array, panels: Array) -> None:
    """Write B (columns, depth), whose terms go in an order, into panels."""
    places = np.ascontiguousarray(order * one.form.width)
    near, apart = turned.strides[0] // turned.itemsize, one.form.width * one.depth
    told = *map(address, (turned, places, panels)), *turned.shape, near, one.form.width, apart
    turning_of(one.form).call(struct.pack("=8q", *told))


def multiply(a: Array, b: Array, c: Array, *, packed: bool = False, **more: Any) -> Product:
    """Write a @ b into c by the kernel; its scratch must stay within what it asked for."""
    one = Product(a.dtype, a.shape[0], b.shape[1], a.shape[1], finish=more.pop("finish", None))
    bias = more.pop("bias_columns", None)
    beside = np.zeros(one.panels * one.form.width, a.dtype)
    beside[: b.shape[1]] = 0 if bias is None else bias
    rows = more.pop("bias_rows", np.zeros(a.shape[0], a.dtype))
    scratch: Array = np.full(one.scratch(packed) + 128, 77, np.uint8)
    of_a, of_c = rows_of(offsets(a, 0), offsets(a, 1)), offsets(c, 0)
    columns = columns_of(offsets(b, 1), offsets(c, 1), one.form)
    of_b = offsets(b, 0)
    if packed:
        panels: Array = np.full(panels_of(one), np.nan, a.dtype)
        order = np.random.default_rng(0).permutation(one.depth)  # the places of terms that lie in another order
        pack(one, np.ascontiguousarray(b[order].T), order, panels)
        given, ks = address(panels), None
    else:
        given, ks = address(b), of_b
    told = one.told(
        *(address(a), of_a, given, ks, columns, address(c), of_c, address(scratch)),
        *(address(rows), address(beside)),
        **more,
    )
    one.code.call(told)
    assert (scratch[-128:] == 77).all()
    return one


def surrounded(shape: tuple[int, int], dtype: str, across: bool = False) -> tuple[Array, Array]:
    """Return a matrix, across in memory if asked for, and the larger one of NaN that it is the middle of."""
    whole = np.full([n + 4 for n in (shape[::-1] if across else shape)], np.nan, dtype)
    return (whole.T if across else whole)[2:-2, 2:-2], whole


def check(found: Array, expected: Array) -> None:
    """Compare with float64's product, relative to its largest element."""
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCES[found.dtype.name] * abs(expected).max())


@pytest.mark.parametrize("how", [{}, {"packed": True}], ids=["", "packed"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("columns", [1, 15, 16, 17, 33, 70])
def test_every_height_of_a_tile(columns: int, dtype: str, how: dict[str, bool], width: int) -> None:
    """All numbers of rows up to two panels and more, and columns around whole registers; nothing else is written."""
    for rows in [*range(1, 14), 24, 25, 37]:
        a, b = normal(rows, 29, dtype=dtype), normal(29, columns, dtype=dtype)
        c, whole = surrounded((rows, columns), dtype)
        multiply(a, b, c, **how)
        check(c, a.astype("float64") @ b.astype("float64"))
        assert np.isnan(whole).sum() == whole.size - c.size


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("depth", [1, 2, 15, 383, 384, 385, 1000])
def test_sums_of_any_length(depth: int, dtype: str, width: int) -> None:
    """Around whole blocks of the sum, of whatever dtype, with a bias of rows and one of columns."""
    a, b = normal(14, depth, dtype=dtype), normal(depth, 40, dtype=dtype)
    rows, columns = normal(14, dtype=dtype), normal(40, dtype=dtype)
    expected = a.astype("float64") @ b.astype("float64") + rows[:, None] + columns
    for packed in (False, True):
        c = np.full((14, 40), np.nan, dtype)
        multiply(a, b, c, packed=packed, bias_rows=rows, bias_columns=columns)
        check(c, expected)
        multiply(a, b, c, packed=packed, fresh=False)
        check(c, expected + a.astype("float64") @ b.astype("float64"))


VIEWS = {
    "straight": lambda x: x,
    "turned": lambda x: np.ascontiguousarray(x.T).T,
    "reversed": lambda x: np.ascontiguousarray(x[::-1, ::-1])[::-1, ::-1],
    "strided": lambda x: np.repeat(np.repeat(x, 2, 0), 3, 1)[::2, ::3],
}


@pytest.mark.parametrize("of_a", VIEWS)
@pytest.mark.parametrize("of_b", VIEWS)
@pytest.mark.parametrize("across", [False, True])
def test_operands_lie_in_any_way(of_a: str, of_b: str, across: bool, width: int) -> None:
    """Turned, reversed and strided operands, and results across, have the bits of those that lie straight."""
    a, b = normal(21, 50, dtype="float32"), normal(50, 45, dtype="float32")
    straight, (c, whole) = np.empty((21, 45), "float32"), surrounded((21, 45), "float32", across)
    multiply(a, b, straight)
    multiply(VIEWS[of_a](a), VIEWS[of_b](b), c)
    np.testing.assert_array_equal(c, straight)
    assert np.isnan(whole).sum() == whole.size - c.size


def test_windows_overlap(width: int) -> None:
    """A gathered operand: columns of B are windows of one row, and A is one matrix seen twice."""
    line = normal(60, dtype="float64")
    windows = np.lib.stride_tricks.sliding_window_view(line, 9)
    c = np.empty((windows.shape[0], windows.shape[0]))
    multiply(windows, windows.T, c)
    check(c, windows @ windows.T)


def test_the_bits_do_not_depend_on_the_cut(width: int) -> None:
    """Any part of the rows and columns has the bits that it has in the whole."""
    a, b = normal(40, 900, dtype="float32"), normal(900, 100, dtype="float32")
    whole = np.empty((40, 100), "float32")
    multiply(a, b, whole)
    for rows, columns in [(slice(0, 7), slice(0, 100)), (slice(7, 40), slice(13, 14)), (slice(3, 39), slice(50, 99))]:
        part = np.empty((rows.stop - rows.start, columns.stop - columns.start), "float32")
        for packed in (False, True):
            multiply(a[rows], b[:, columns], part, packed=packed)
            np.testing.assert_array_equal(part, whole[rows, columns])


def program_of(function: Any, *shapes: tuple[int, ...]) -> Program:
    """Return the program of a function of float64 arrays, which come in the order in which it first uses them."""
    with xt.options(lazy="always"):
        y = function(*[xt.zeros(shape, dtype=xt.float64) for shape in shapes])
        (kernel,) = plan_of(Trace(pending_below([y.value]), [y.value])).kernels
    return kernel.program


FINISHES = {
    "light": lambda x, rows, columns, one, like: xt.maximum(x * rows + columns, 0) * one + like,
    "function": lambda x, rows, columns, one, like: xt.exp(xt.maximum(x * rows + columns, 0) * -0.1) * one + like,
}


@pytest.mark.parametrize("name", FINISHES)
def test_results_are_finished(name: str, width: int) -> None:
    """Sums go through a program once, after all terms: with one block and with several, whole tiles and parts; beside
    numbers of rows, of columns, of all elements, and one.
    """
    shapes = [(25, 37), (25, 1), (37,), (), (25, 37)]
    finish = Finish(program_of(FINISHES[name], *shapes), 0, (ALIKE, ROWS, COLUMNS, SINGLE, ALIKE))
    others = [normal(*shape, 1, dtype="float64").reshape(shape) for shape in shapes[1:]]
    scalars = [np.float64(0), np.float64(-0.1)] if name == "function" else [np.float64(0)]
    for depth in (20, 1000):
        a, b, bias = normal(25, depth, dtype="float64"), normal(depth, 37, dtype="float64"), normal(37, dtype="float64")
        a[3, 0] = np.nan
        plain, c = np.empty((25, 37)), np.empty((25, 37))
        multiply(a, b, plain, bias_columns=bias)
        places = [0, *map(address, (*others, c))]
        slots = np.array([*places, *[int(one.view(np.int64)) for one in scalars]], np.int64)
        multiply(a, b, c, bias_columns=bias, finish=finish, slots=address(slots))
        with xt.options(lazy="never"):
            wanted = FINISHES[name](*[xt.asarray(x) for x in (plain, *others)]).numpy()
        np.testing.assert_allclose(c, wanted, rtol=1e-14, atol=1e-14)
        assert np.isnan(c[3]).all()


def test_sums_that_are_not_finite(width: int) -> None:
    """Infinities and NaN stay in the rows and columns that they are in."""
    a, b = normal(13, 30, dtype="float32"), normal(30, 35, dtype="float32")
    a[2, 5], b[7, 34] = np.inf, np.nan
    c = np.empty((13, 35), "float32")
    multiply(a, b, c)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(np.isfinite(c), np.isfinite(a @ b))


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_integers_wrap(dtype: str, width: int) -> None:
    """Stacks of matrices of integers, exact as far as their dtype goes, as NumPy's are."""
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    rng = np.random.default_rng(0)
    for rows, columns, depth in [(1, 1, 1), (7, 33, 19), (25, 16, 400)]:
        a, b = rng.integers(low, high, (3, rows, depth), dtype), rng.integers(low, high, (3, depth, columns), dtype)
        c = np.empty((3, rows, columns), dtype)
        contractions._multiply(a, b, c)
        np.testing.assert_array_equal(c, a @ b)


DTYPES = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("engine", ["auto", "direct"])
def test_products_of_integers_are_numpys(dtype: str, engine: str, monkeypatch: Any) -> None:
    """matmul and tensordot of integers: stacks that broadcast, views, no elements, two dtypes, several threads."""
    monkeypatch.setattr(contractions, "INTEGERS_COMPILED", 1)
    monkeypatch.setattr(linear, "PRODUCT_LEAST", 0)
    rng, bounds = np.random.default_rng(0), np.iinfo(dtype)
    shapes = [((5, 7), (7, 3)), ((2, 1, 9, 4), (3, 4, 17)), ((0, 3), (3, 2)), ((2, 0), (0, 2)), ((60, 50), (50, 80))]
    for one, two in shapes:
        a, b = (rng.integers(bounds.min, bounds.max, shape, dtype, endpoint=True) for shape in (one, two))
        for x in (a, a[..., ::-1, :], np.ascontiguousarray(a.mT).mT):
            for threads in (1, 2, 3):
                with xt.options(engine=engine, threads=threads):
                    found = xt.matmul(xt.asarray(x), xt.asarray(b)).numpy()
                np.testing.assert_array_equal(found, x @ b, strict=True)
    a, b = (rng.integers(bounds.min, bounds.max, shape, dtype) for shape in ((4, 5, 6), (6, 3, 4)))
    found = xt.tensordot(xt.asarray(a), xt.asarray(b), axes=((2, 0), (0, 2))).numpy()
    np.testing.assert_array_equal(found, np.tensordot(a, b, axes=((2, 0), (0, 2))), strict=True)
    for one, two, axes in [
        ((0,), (0,), 1),
        ((2, 0), (0, 3), 1),
        ((0, 0), (0, 0), 2),
        ((0, 2), (2, 0, 3), 1),
        ((), (0,), 0),
    ]:
        found = xt.tensordot(xt.zeros(one, dtype=dtype), xt.zeros(two, dtype=dtype), axes=axes).numpy()
        np.testing.assert_array_equal(
            found, np.tensordot(np.zeros(one, dtype), np.zeros(two, dtype), axes), strict=True
        )
    small, large = rng.integers(0, 99, (6, 9), "int8"), rng.integers(0, 99, (9, 2), "int64")
    np.testing.assert_array_equal(xt.matmul(xt.asarray(small), xt.asarray(large)).numpy(), small @ large, strict=True)


# ---- what is touched


@pytest.fixture
def fenced() -> Iterator[Any]:
    """A function that copies an array to the end, or the beginning, of memory behind which nothing may be touched."""
    if sys.platform != "linux":
        pytest.skip("memory is fenced off by Linux's mprotect")
    library, kept = ctypes.CDLL(None), []

    def copy(array: Array, at_end: bool) -> Array:
        page = mmap.PAGESIZE
        inner = -(-array.nbytes // page) * page
        memory = mmap.mmap(-1, inner + 2 * page)
        start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        for fence in (start, start + page + inner):
            assert library.mprotect(ctypes.c_void_p(fence), ctypes.c_size_t(page), 0) == 0
        kept.append((memory, start, page, inner))
        begin = page + (inner - array.nbytes if at_end else 0)
        found: Array = np.ndarray(array.shape, array.dtype, memory, begin)
        found[...] = array
        return found

    yield copy
    for _, start, page, inner in kept:
        for fence in (start, start + page + inner):
            library.mprotect(ctypes.c_void_p(fence), ctypes.c_size_t(page), 3)


@pytest.mark.parametrize("at_end", [True, False])
@pytest.mark.parametrize("shape", [(1, 1, 1), (13, 17, 5), (12, 32, 384), (7, 99, 400)])
def test_nothing_beyond_the_operands_is_touched(
    fenced: Any, shape: tuple[int, int, int], at_end: bool, width: int
) -> None:
    """Operands and results right before and behind memory that must not be read or written."""
    rows, columns, depth = shape
    for dtype in ("float32", "float64"):
        a, b = normal(rows, depth, dtype=dtype), normal(depth, columns, dtype=dtype)
        c = np.zeros((rows, columns), dtype)
        for turn in (False, True):
            given = fenced(b.T, at_end).T if turn else fenced(b, at_end)
            found = fenced(c, at_end)
            multiply(fenced(a, at_end), given, found)
            check(found, a.astype("float64") @ b.astype("float64"))


@pytest.mark.parametrize("at_end", [True, False])
@pytest.mark.parametrize("shape", [(1, 1), (16, 16), (33, 5), (40, 37)])
def test_packing_touches_nothing_else(fenced: Any, shape: tuple[int, int], at_end: bool, width: int) -> None:
    """A turned matrix is read to its last element and no further; columns that there are not become zeros."""
    columns, depth = shape
    one = Product(np.dtype("float32"), 12, columns, depth)
    turned = fenced(normal(columns, depth, dtype="float32"), at_end)
    panels = fenced(np.full(panels_of(one), np.nan, "float32"), at_end)
    pack(one, turned, np.arange(depth), panels)
    flat = panels.transpose(1, 0, 2).reshape(depth, -1)
    np.testing.assert_array_equal(flat[:, :columns], turned.T)
    assert not flat[:, columns:].any()
    assert flat.size == prod(panels_of(one))

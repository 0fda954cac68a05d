"""Views at computed places in captured functions - `m[np.argmax(x)]` - beside the same function on NumPy's arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import numpy as np
import pytest

import xtensor as xt
from xtensor.codegen.cpu.compile import host
from xtensor.run.capture import LOOKED

needs_llvm = pytest.mark.skipif(host() is None, reason="generated code needs llvmlite and a fused multiply-add")
ROWS, COLUMNS = 7, 6


@pytest.fixture(params=["interpret", pytest.param("llvm", marks=needs_llvm)], autouse=True)
def engine(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run a test on each engine that has kernels."""
    with xt.options(engine=request.param, cache_dir=""):
        yield


def matrix(seed: int, shape: tuple[int, ...] = (ROWS, COLUMNS)) -> np.ndarray:
    return np.random.default_rng(seed).integers(-8, 8, shape).astype(np.float64)


def place(x: Any, axis: int, turn: int = 0) -> Any:
    """Return an integer that is computed, below the length of an axis."""
    line = x[:, turn] if axis == 0 else x[turn]
    return line.argmax() if isinstance(line, np.ndarray) else xt.argmax(line)


def agree(function: Callable[..., Any], make: Callable[[int], tuple[np.ndarray, ...]], calls: int = 5) -> Any:
    """Check a fused function beside NumPy, with other places at each call; return it."""
    fused = xt.fuse(function)
    for call in range(calls):
        arrays = make(call)
        tensors = [xt.asarray(array.copy()) for array in arrays]
        mine, right = fused(*tensors), function(*arrays)
        for one, other in zip((*tensors, mine), (*arrays, right), strict=True):
            if other is not None:
                np.testing.assert_array_equal(np.asarray(one), other)
    return fused, tensors


def reads(m: Any) -> Any:
    i, j = place(m, 0), place(m, 1)
    return m[i] * 2.0 + m[:, j].sum() + m[i, 1:].sum() + m[None, ..., j].sum()


def updates(m: Any) -> None:
    i = place(m, 0)
    m[i] += 1.0
    m[i] *= m[0]
    m[i, 1:] -= 3.0
    m[1:, place(m, 1)] += 2.0


def row_that_is_kept(m: Any) -> Any:
    """A row is a view: what is written to it is seen in the matrix, and the other way round."""
    row = m[place(m, 0)]
    row += 1.0
    total = m.sum()
    m *= 0.5
    row[1:] = row[:-1] * 2.0
    inner = row[2:]
    inner -= 1.0
    return row + m[0] + total


def swaps(m: Any) -> None:
    p = place(m, 0)
    before = m[0] * 1.0
    m[0] = m[p]
    m[p] = before


def rows_that_may_be_one(m: Any) -> Any:
    first, second = m[place(m, 0)], m[place(m, 0, 1)]
    first += 1.0
    second *= 2.0
    first -= second
    return second * 1.0


def rows_of_rows(x: Any) -> Any:
    page = x[x[0, 0].argmax()] if isinstance(x, np.ndarray) else x[xt.argmax(x[0, 0])]
    row = page[page[:, 0].argmax()] if isinstance(x, np.ndarray) else page[xt.argmax(page[:, 0])]
    row += 1.0
    page[0] *= 2.0
    x -= 1.0
    row[:2] = page[1, :2]
    return row.sum() + page.sum()


def own_memory(m: Any) -> Any:
    """Rows of what the function has made."""
    own = m * 2.0
    row = own[place(m, 0)]
    row -= 1.0
    own[place(own, 0)] += row
    return own + row.sum()


def eliminates(a: Any) -> None:
    """Gauss' elimination with pivots."""
    for k in range(a.shape[0] - 1):
        below = a[k:, k] ** 2
        p = k + (below.argmax() if isinstance(a, np.ndarray) else xt.argmax(below))
        row = a[k] + 0.0
        a[k] = a[p]
        a[p] = row
        a[k + 1 :, k:] -= (a[k + 1 :, k] * 0.5)[:, None] * a[k, k:]


def a_row_over_all(m: Any) -> None:
    """What is written overlaps with what is read, as the row is one of these."""
    row = m[place(m, 0)]
    m -= row
    m[:, 1:] += row[:-1]


CASES: list[Callable[..., Any]] = [
    *(reads, updates, row_that_is_kept, swaps, rows_that_may_be_one, own_memory, eliminates, a_row_over_all),
]


@pytest.mark.parametrize("function", CASES)
def test_views_at_computed_places(function: Callable[..., Any]) -> None:
    fused, arguments = agree(function, lambda seed: (matrix(seed),))
    assert fused.why(*arguments) == ""


@pytest.mark.parametrize("function", CASES)
def test_in_memory_that_lies_otherwise(function: Callable[..., Any]) -> None:
    fused = xt.fuse(function)
    for call in range(4):
        wide, other = matrix(call, (2 * ROWS, 2 * COLUMNS)), matrix(call, (2 * ROWS, 2 * COLUMNS))
        view, right = xt.asarray(wide)[::-2, 1::2], other[::-2, 1::2]
        mine, plain = fused(view), function(right)
        np.testing.assert_array_equal(wide, other)
        if plain is not None:
            np.testing.assert_array_equal(np.asarray(mine), plain)
    assert fused.why(view) == ""


def test_rows_of_rows() -> None:
    fused, arguments = agree(rows_of_rows, lambda seed: (matrix(seed, (4, 5, 6)),))
    assert fused.why(*arguments) == ""


def test_arguments_that_overlap() -> None:
    """A row of one argument, and writes to another that may have it."""

    def function(m: Any, part: Any) -> Any:
        row = m[place(m, 0)]
        part *= 2.0
        row += 1.0
        return part + row

    for shared in (False, True):
        fused = xt.fuse(function)
        for call in range(4):
            a, b = matrix(call), matrix(call)
            x = xt.asarray(a)
            mine = fused(x, x[2:] if shared else xt.asarray(a[2:] + 1.0))
            right = function(b, b[2:] if shared else b[2:] + 1.0)
            np.testing.assert_array_equal(np.asarray(mine), right)
            np.testing.assert_array_equal(a, b)
        assert fused.why(x, x[2:] if shared else xt.asarray(a[2:] + 1.0)) == ""


def test_what_goes_on_after_a_question() -> None:
    """From where the call cannot be captured it is a plain one: views that were made before stay views."""

    def function(m: Any) -> Any:
        row = m[place(m, 0)]
        row += 1.0
        later = row * 2.0 + m
        if float(m[0, 0]) > 100.0:
            return row
        row *= 3.0
        m[0] += row
        row -= m[1]
        return later + m + row

    fused, arguments = agree(function, lambda seed: (matrix(seed),))
    assert fused.why(*arguments).startswith(LOOKED)


def test_a_view_that_is_returned_is_one() -> None:
    fused = xt.fuse(lambda m: m[place(m, 0)])
    for call in range(4):
        x = xt.asarray(matrix(call))
        row = fused(x)
        row += 1.0
        right = matrix(call)
        right[place(right, 0)] += 1.0
        np.testing.assert_array_equal(np.asarray(x), right)


def test_an_index_out_of_bounds() -> None:
    def function(m: Any, i: Any) -> Any:
        return m[i[0]] * 2.0

    fused = xt.fuse(function)
    for index in (1, 2, -3, ROWS, 1, -ROWS - 1, 0):
        x, i = matrix(index % 10), np.array([index])
        if -ROWS <= index < ROWS:
            np.testing.assert_array_equal(np.asarray(fused(xt.asarray(x), xt.asarray(i))), function(x, i))
        else:
            with pytest.raises(IndexError):
                fused(xt.asarray(x), xt.asarray(i))
    assert fused.why(xt.asarray(x), xt.asarray(i)) == ""


def test_a_gradient_through_a_row() -> None:
    def loss(m: Any, v: Any) -> Any:
        row = m[xt.argmax(v)]
        return xt.sum(row * row * 2.0)

    fused = xt.fuse(xt.grad(loss))
    for call in range(3):
        m, v = matrix(call), matrix(call + 9, (ROWS,))
        right = np.zeros_like(m)
        right[v.argmax()] = 4.0 * m[v.argmax()]
        np.testing.assert_array_equal(np.asarray(fused(xt.asarray(m), xt.asarray(v))), right)


STATEMENTS = [
    "r = m[i]",
    "c = m[:, j]",
    "q = m[k, 1:]",
    "r = r[::-1]",
    "q = c[2:]",
    "r += 1.0",
    "r *= c[:6]",
    "c[::2] = 2.0",
    "c -= m[:, 0]",
    "q -= 1.0",
    "m[i] += r",
    "m[k] = m[i]",
    "m[0] = r",
    "m[j, :4] = q[:4] + 0.0",
    "m[1:] = m[:-1] * 0.5",
    "m -= r",
    "m[:, 1:] += c[:, None]",
    "m[:, j] = m[:, 0] + c",
    "p[0] = r * 2.0",
    "p *= 0.5",
    "s = s + r.sum() + m[0].sum()",
    "t = r + m[3]",
    "s = s + t.sum() - c.sum()",
    "r, c = m.T[j][:6], m[k, 0] + c",
    "m[i, j] += 2.0",
    "i = place(m, 0, 2)",
    "k = place(p, 0, 1)",
    "m[[1, 2]] = r",
]


def written(seed: int) -> str:
    """Return the text of a random function of a matrix and another one, which may be part of it."""
    random = Random(seed)
    lines = ["i, j, k = place(m, 0), place(m, 1), place(p, 0)", "r, c, q, t, s = m[i], m[:, j], m[k], m[0], m.sum()"]
    lines += random.choices(STATEMENTS, k=random.randint(4, 12))
    return "\n    ".join(["def f(m, p):", *lines, "return r + s + t, c * 1.0, q + 0.0\n"])


@pytest.mark.parametrize("seed", range(150))
def test_random_statements(seed: int) -> None:
    scope: dict[str, Any] = {"place": place}
    text = written(seed)
    exec(text, scope)
    function = scope["f"]
    fused, shared = xt.fuse(function), seed % 3 == 0
    for call in range(4):
        a, b = matrix(seed + call), matrix(seed + call)
        x, p = xt.asarray(a), matrix(call + 7)
        other = xt.asarray(p.copy())
        mine = fused(x, x[2:] if shared else other)
        right = function(b, b[2:] if shared else p)
        np.testing.assert_array_equal(a, b, text)
        np.testing.assert_array_equal(np.asarray(other), p, text)
        for one, array in zip(mine, right, strict=True):
            np.testing.assert_array_equal(np.asarray(one), array, text)
    reason = fused.why(x, x[2:] if shared else other)
    assert reason == "" or reason.startswith(LOOKED), text

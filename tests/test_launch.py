"""Loop nests for large arrays, on small ones: what is chosen by size is chosen always here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import xtensor as xt
from xtensor.codegen.cpu.compile import host
from xtensor.plan import costs
from xtensor.plan import fusion as plan
from xtensor.run import reduce, replay

pytestmark = pytest.mark.skipif(host() is None, reason="there is no compiler here")


def forget() -> None:
    """Drop the schedules that plans remember: they were prepared for other bounds."""
    for one in [*plan._plans.values(), *[known.plan for known in replay._known.values()]]:
        one.schedules.clear()


@pytest.fixture
def everything_streams(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(costs, "STREAM_BYTES", 0)
    monkeypatch.setattr(costs, "STREAM_ROW", 0)
    monkeypatch.setattr(costs, "ROW_FAR", 0)
    forget()
    with xt.options(engine="llvm", lazy="always"):
        yield
    forget()


def own(a: np.ndarray) -> xt.Tensor:
    """Return a copy that is recorded lazily."""
    return xt.asarray(a, copy=True)


def assert_equal(mine: Any, right: np.ndarray) -> None:
    np.testing.assert_array_equal(np.asarray(mine), right, strict=True)


def numbers(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-50, 50, shape).astype(dtype)


# ---- past the caches


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "int8"])
@pytest.mark.parametrize("columns", [1, 5, 15, 16, 17, 63, 64, 65, 200])
def test_rows_that_begin_anywhere(columns: int, dtype: str, everything_streams: None) -> None:
    """The border stays as it is: nothing is written before or behind a row."""
    a = numbers((9, columns + 2), dtype)
    x = own(a)
    assert_equal(x[:-1, 1:-1] + x[1:, 2:], a[:-1, 1:-1] + a[1:, 2:])
    for start in range(0, min(columns, 20), 3):
        mine, right = own(np.zeros_like(a)), np.zeros_like(a)
        mine[1:-1, start:-1] = x[1:-1, start:-1] * 2
        right[1:-1, start:-1] = a[1:-1, start:-1] * 2
        assert_equal(mine, right)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "int8"])
def test_rows_in_parts(dtype: str, threads: int, everything_streams: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts meet where memory is aligned, which is elsewhere in every row; what lies around them stays as it is."""
    monkeypatch.setattr(costs, "ROW_PART", 64)
    monkeypatch.setattr(costs, "MANY_ROWS", 1)
    for columns in (64, 65, 127, 128, 130, 197, 300):
        a = numbers((9, columns + 2), dtype)
        x, mine, right = own(a), own(np.ones_like(a)), np.ones_like(a)
        with xt.options(threads=threads):
            mine[1:-1, 1:-1] = x[:-2, 1:-1] + x[2:, 2:] * x[1:-1, :1]
        right[1:-1, 1:-1] = a[:-2, 1:-1] + a[2:, 2:] * a[1:-1, :1]
        assert_equal(mine, right)


@pytest.mark.parametrize("columns", [2, 15, 16, 17, 100, 131])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_through_all_stages(columns: int, dtype: str, everything_streams: None) -> None:
    """What is written past the caches and what is fetched ahead, of rows with and without gaps."""
    a, b = numbers((9, columns + 3), dtype), numbers((columns,), dtype)
    for x, n in ((own(a[:, 3:].copy()), a[:, 3:]), (own(a)[:, 3:], a[:, 3:])):
        top = n.max(axis=1, keepdims=True)
        z = x - xt.max(x, axis=1, keepdims=True)
        assert "together" in xt.explain(z * own(b) / xt.max(x, axis=1, keepdims=True))
        assert_equal(z * own(b), (n - top) * b)
        assert_equal(z / xt.max(z * z, axis=1, keepdims=True), (n - top) / ((n - top) ** 2).max(axis=1, keepdims=True))


@pytest.mark.parametrize("start", range(0, 70, 9))
def test_runs_that_begin_anywhere(start: int, everything_streams: None) -> None:
    a = numbers((1000,), "float32")
    mine, right, x = own(np.zeros_like(a)), np.zeros_like(a), own(a)
    mine[start:-5] = x[start:-5] - 1
    right[start:-5] = a[start:-5] - 1
    assert_equal(mine, right)


def test_several_results_of_other_widths(everything_streams: None) -> None:
    a, b = numbers((37, 41), "float32"), numbers((37, 41), "float64", 1)
    x, y = own(a), own(b)
    held = x + x
    wide = held * y
    truth = wide > 3
    assert_equal(truth, (a + a) * b > 3)
    assert_equal(wide, (a + a) * b)
    assert_equal(held, a + a)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(400, 123), (70, 1000), (5000, 8)])
def test_row_programs_past_the_caches(shape: tuple[int, int], dtype: str, everything_streams: None) -> None:
    """The same bits as one kernel after the other, whether or not somebody holds what lies between."""
    x = own(numbers(shape, dtype))

    def normed() -> tuple[xt.Tensor, xt.Tensor]:
        c = x - xt.mean(x, axis=1, keepdims=True)
        return c / xt.sqrt(xt.mean(c * c, axis=1, keepdims=True)), c

    held, c = normed()
    alone = normed()[0]
    c = x - xt.mean(x, axis=1, keepdims=True).evaluate()
    step = xt.sqrt(xt.mean((c * c).evaluate(), axis=1, keepdims=True)).evaluate()
    right = np.asarray((c.evaluate() / step).evaluate())
    assert_equal(held, right)
    assert_equal(alone, right)


# ---- crosswise


def under_llvm() -> Any:
    return xt.options(engine="llvm", lazy="always")


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "uint16", "bool"])
@pytest.mark.parametrize("shape", [(8, 8), (16, 64), (17, 70), (64, 64), (65, 513), (300, 129), (1000, 66)])
def test_transposed_operands(shape: tuple[int, int], dtype: str) -> None:
    a, b = numbers(shape, dtype), numbers(shape[::-1], dtype, 1)
    x, y = own(a), own(b)
    with under_llvm():
        assert_equal(xt.equal(x, y.T), a == b.T)
        assert_equal(xt.where(x == y.T, x, y.T), np.where(a == b.T, a, b.T))
        assert_equal(xt.astype(x[1:, 2:] == y.T[:-1, :-2], xt.float64), (a[1:, 2:] == b.T[:-1, :-2]).astype("f8"))


def test_transposed_operands_of_several_dtypes_and_axes() -> None:
    a, b, c = numbers((40, 50, 60), "float32"), numbers((60, 50, 40), "float64", 1), numbers((50, 60, 40), "int16", 2)
    x, y, z = own(a), own(b), own(c)
    right = a + b.T + c.transpose(2, 0, 1) + a[:, :, ::-1] + b[:, 0].T[:, None, :]
    with under_llvm():
        total = (
            x + xt.permute_dims(y, (2, 1, 0)) + xt.permute_dims(z, (2, 0, 1)) + x[:, :, ::-1] + y[:, 0].T[:, None, :]
        )
        np.testing.assert_array_equal(np.asarray(total), right)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_large_transposed_operands(threads: int, everything_streams: None) -> None:
    a = numbers((700, 701), "float32")
    b = numbers((702, 700), "float32", 1)
    x, y = own(a), own(b)
    with xt.options(threads=threads):
        assert_equal(x + y.T[:, 1:] * y.T[:, :-1], a + b.T[:, 1:] * b.T[:, :-1])
        mine, right = own(np.zeros((701, 703), "float32")), np.zeros((701, 703), "float32")
        mine[1:, 1:-1] = x + y.T[:, 1:]
        right[1:, 1:-1] = a + b.T[:, 1:]
        assert_equal(mine, right)


# ---- fetched ahead


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_columns_reduced_past_the_caches(dtype: str, everything_streams: None) -> None:
    a = numbers((1300, 77), dtype)
    x = own(a)
    assert_equal(xt.sum(x * 2, axis=0), np.sum(a * 2, axis=0))
    assert_equal(xt.max(x[1:, :-1] - x[:-1, 1:], axis=0), np.max(a[1:, :-1] - a[:-1, 1:], axis=0))


# ---- rows combined with what lies in memory


@pytest.mark.parametrize("cut", [True, False])
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 7, 8, 41, 67])
def test_columns_reduced(rows: int, cut: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole groups of rows and what is left of them, in one piece and in several."""
    monkeypatch.setattr(reduce, "PIECE_ROWS", 8)
    monkeypatch.setattr(reduce, "UNCUT_ROWS", 0 if cut else 100)
    monkeypatch.setattr(costs, "FOLD_STRIP", 64)
    forget()
    a = numbers((rows, 3, 130), "float64")
    with xt.options(engine="llvm", lazy="always"):
        for axis in (0, 1, (0, 1)):
            x = own(a)
            assert_equal(xt.sum(x * 2.0, axis=axis), (a * 2.0).sum(axis=axis))
            assert_equal(xt.max(x, axis=axis), a.max(axis=axis))
            assert_equal(xt.any(x > 48.0, axis=axis), (a > 48.0).any(axis=axis))
            assert_equal(xt.count_nonzero(x, axis=axis), np.count_nonzero(a, axis=axis))
            y = x + 1.0
            total = xt.sum(y, axis=axis)
            assert_equal(total, (a + 1.0).sum(axis=axis))
            assert_equal(y, a + 1.0)
        assert_equal(xt.sum(own(a[:, ::-1, ::3]), axis=0), a[:, ::-1, ::3].sum(axis=0))
    forget()


def test_columns_are_the_same_on_any_number_of_threads() -> None:
    a = np.random.default_rng(1).standard_normal((700, 3000)).astype("float32")
    found = []
    for threads in (1, 2, 3):
        with xt.options(engine="llvm", lazy="always", threads=threads):
            found.append([np.asarray(xt.sum(own(part) * 1.5, axis=0)).tobytes() for part in (a, a[:, :50])])
    assert found[0] == found[1] == found[2]


def test_columns_reduced_into_what_is_read() -> None:
    a = numbers((7, 50), "float64")
    with xt.options(engine="llvm", lazy="always"):
        x = own(a[:1])
        x[...] = xt.sum(x * 2.0, axis=0, keepdims=True)
        assert_equal(x, a[:1] * 2.0)
        x = own(a)
        x[0] = xt.sum(x * 2.0, axis=0)
        assert_equal(x[0], (a * 2.0).sum(axis=0))
        x = own(a[0])
        x[...] = xt.sum(x * 2.0 + own(a), axis=0)
        assert_equal(x, (a[0] * 2.0 + a).sum(axis=0))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("columns", [2, 3, 5, 7, 15])
def test_short_rows(columns: int, threads: int) -> None:
    """Loops go along columns: results and what lies beside them are right however operands lie, in any dtype."""
    rng = np.random.default_rng(columns)
    for rows in (17, 40, 5000):
        for dtype in ("float64", "float32", "int64", "uint8", "complex64"):
            given = rng.integers(0, 90, (rows, columns + 2)).astype(dtype)
            row = given[0, :columns].copy()
            with xt.options(engine="llvm", lazy="always", threads=threads, cache_dir=""):
                x, y = xt.asarray(given, copy=True), xt.asarray(row)
                window = x[:, 1 : columns + 1]
                pairs = [
                    (window + y, given[:, 1 : columns + 1] + row),
                    (window[:, ::-1] * 2 - window[::-1], given[:, columns:0:-1] * 2 - given[::-1, 1 : columns + 1]),
                    (window * y, given[:, 1 : columns + 1] * row),
                    (xt.matrix_transpose(window) + 1, given[:, 1 : columns + 1].T + np.ones((), dtype)),
                ]
                window += y
                expected = given.copy()
                expected[:, 1 : columns + 1] += row
                for found, right in (*pairs, (x, expected)):
                    np.testing.assert_array_equal(np.asarray(found), right, strict=True)

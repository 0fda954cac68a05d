"""Functions of NumPy's that captured functions call: those that write, windows, bins, gradients of index arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

import xtensor as xt
import xtensor.numpy as names
from xtensor.codegen.cpu.compile import host

needs_llvm = pytest.mark.skipif(host() is None, reason="generated code needs llvmlite and a fused multiply-add")


@pytest.fixture(params=["interpret", pytest.param("llvm", marks=needs_llvm)], autouse=True)
def engine(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run a test on each engine that has kernels."""
    with xt.options(engine=request.param, cache_dir=""):
        yield


def line(seed: int, n: int = 40) -> np.ndarray:
    return np.random.default_rng(seed).integers(-9, 9, n).astype(np.float64)


def indices(seed: int, n: int = 40, high: int = 12) -> np.ndarray:
    return np.random.default_rng(seed + 100).integers(0, high, n)


def made(x: Any, i: Any) -> Any:
    total = np.zeros_like(x)
    np.add.at(total, i, x * 2.0)
    np.maximum.at(total, i[:3], 1.5)
    np.negative.at(total, i[0])
    return total + x


def argument(x: Any, i: Any) -> Any:
    x *= 2.0
    np.add.at(x, i, 1.0)
    np.subtract.at(x[::-1], (i[:5],), x[:5] * 1.0)
    x += 1.0


def masked(x: Any, i: Any) -> Any:
    np.putmask(x, x > 3.0, i * 0.5)
    np.place(x, x < -3.0, [1.0, 2.0])
    np.copyto(x[:4], 7.0)
    return x * 2.0


def put(x: Any, i: Any) -> Any:
    np.put(x, i[:4], x[:4] * 2.0)
    rows = x.reshape(4, 10)
    np.put_along_axis(rows, i[:4].reshape(4, 1) % 10, 5.0, axis=1)
    np.fill_diagonal(rows, 3.0, wrap=True)
    return rows.sum(axis=0)


def windows(x: Any, i: Any) -> Any:
    two = sliding_window_view(x.reshape(4, 10), (2, 3))
    x[0] += 1.0
    three = sliding_window_view(x[::-1], 5)[::2]
    return two.sum(axis=(-1, -2)), three.mean(axis=-1), sliding_window_view(x.reshape(4, 10), 3, axis=1).max(axis=2)


EDGES = np.linspace(-1.0, 1.0, 5)


def bins(x: Any, i: Any) -> Any:
    counts, edges = np.histogram(x, bins=7)
    weighted, _ = np.histogram(x, bins=5, range=(-9.0, 9.0), weights=x)
    of_edges, same = np.histogram(x, bins=np.linspace(-9.0, 9.0, 7), density=True)
    constant, _ = np.histogram(x, bins=EDGES)
    found = counts * 2, edges * 1.0, weighted, of_edges, same * 1.0, constant
    return *found, np.digitize(x, edges), np.digitize(x, edges[::-1], right=True)


def product(x: Any, i: Any) -> Any:
    rows, out = x.reshape(4, 10), np.zeros_like(x[:16]).reshape(4, 4)
    np.matmul(rows, rows.T, out=out)
    return out + 1.0


def lists(x: Any, i: Any) -> Any:
    rows, p = x.reshape(4, 10), np.argmax(x[:4])
    taken = rows[[0, p]] * 1.0
    rows[[p, 3]] = rows[[3, p]]
    rows[[p, 1], [2, p]] += 2.0
    return taken, rows[:, [p, 0]]


def counts(x: Any, i: Any) -> Any:
    return np.bincount(i, minlength=12) * 2, np.bincount(i, weights=x, minlength=12)


def subscripts(x: Any, i: Any) -> Any:
    square = x[:36].reshape(6, 6)
    np.einsum("ii->i", square)[...] = 1.0
    line = np.einsum("iji->ji", x[:36].reshape(3, 4, 3))
    line += np.einsum("ij->ji", line[:3].copy()).sum()
    return np.einsum("ij->i", square)


def parts(x: Any, i: Any) -> Any:
    z = x + 1j * x[::-1]
    z.imag *= 2.0
    z[::2].real = i[::2]
    x.real += 1.0
    return z, z.real


NAMES = [made, argument, masked, put, windows, bins, product, lists, counts, subscripts, parts]


@pytest.mark.parametrize("function", NAMES)
def test_beside_numpy(function: Callable[..., Any]) -> None:
    fused = xt.fuse(function, strict=True)
    for call in range(4):
        a, i = line(call), indices(call)
        x = xt.asarray(a.copy())
        mine, right = fused(x, xt.asarray(i)), function(a, i)
        np.testing.assert_array_equal(np.asarray(x), a)
        for one, other in zip(mine, right, strict=True) if isinstance(right, tuple) else [(mine, right)]:
            if other is not None:
                np.testing.assert_allclose(np.asarray(one), other, rtol=1e-14, strict=True)


def test_more_counts_than_were_captured() -> None:
    """Beyond `minlength` the function itself is called; one that writes as well must not be called twice."""

    def function(i: Any) -> Any:
        return np.bincount(i, minlength=12) + 1

    def writes(i: Any) -> Any:
        i += 1
        return np.bincount(i, minlength=12) + 1

    fused, writing = xt.fuse(function), xt.fuse(writes)
    for call, high in enumerate((12, 12, 12, 30, 12, 13)):
        i = indices(call, high=high)
        np.testing.assert_array_equal(np.asarray(fused(xt.asarray(i))), function(i), strict=True)
        np.testing.assert_array_equal(np.asarray(writing(xt.asarray(i.copy()))), function(i + 1), strict=True)
    assert fused.why(xt.asarray(i)) == ""
    assert writing.why(xt.asarray(i)).startswith("[values]")


def test_a_write_out_of_bounds_is_an_error() -> None:
    fused = xt.fuse(argument, strict=True)
    for call in range(3):
        fused(xt.asarray(line(call)), xt.asarray(indices(call)))
    with pytest.raises(IndexError):
        fused(xt.asarray(line(0)), xt.asarray(indices(0) + 40))


def test_a_read_only_target_is_an_error() -> None:
    x = xt.broadcast_to(xt.asarray(1.0), (40,))
    with pytest.raises(ValueError, match="writable"):
        xt.fuse(masked)(x, xt.asarray(indices(0)))


def test_windows_are_views_without_fuse() -> None:
    a = line(0)
    x = xt.asarray(a)
    view = sliding_window_view(x, 3)
    a[1] = 50.0
    np.testing.assert_array_equal(np.asarray(view), sliding_window_view(a, 3))
    assert not view.is_writeable
    with pytest.raises(ValueError, match="window"):
        sliding_window_view(x, 41)


def test_gradients_of_windows() -> None:
    def loss(x: Any) -> Any:
        view = sliding_window_view(x.reshape(4, 10), (2, 3))
        return xt.sum(view * view * view)

    rows = line(1).reshape(4, 10)
    times = np.zeros_like(rows)
    for at in np.ndindex(3, 8):
        times[at[0] : at[0] + 2, at[1] : at[1] + 3] += 1.0
    for gradient in (xt.grad(loss), xt.fuse(xt.grad(loss), strict=True)):
        for _ in range(3):
            found = gradient(xt.asarray(rows.reshape(-1).copy()))
            np.testing.assert_allclose(np.asarray(found).reshape(4, 10), 3.0 * rows**2 * times, rtol=1e-14)


def by_rows(x: Any, i: Any) -> Any:
    return xt.sum(x.reshape(10, 4)[i % 10] ** 2)


def by_pairs(x: Any, i: Any) -> Any:
    return xt.sum(x.reshape(10, 4)[i % 10, i % 4] ** 3)


def by_lists(x: Any, i: Any) -> Any:
    return xt.sum(x.reshape(10, 4)[[0, 3, 3], 1:] ** 2) + xt.sum(x[[1, 1]] * x[i[:2]])


@pytest.mark.parametrize("loss", [by_rows, by_pairs, by_lists])
def test_gradients_of_index_arrays(loss: Callable[..., Any]) -> None:
    """Beside differences, which are exact enough of polynomials; an index that comes twice adds up."""
    fused = xt.fuse(xt.grad(loss), strict=True)
    for call in range(4):
        a, i = line(call), xt.asarray(indices(call))
        right = [
            (float(loss(xt.asarray(a + step), i)) - float(loss(xt.asarray(a - step), i))) / 2e-3
            for step in np.eye(len(a)) * 1e-3
        ]
        np.testing.assert_allclose(np.asarray(fused(xt.asarray(a), i)), right, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "uint64", "bool"])
def test_means_of_integers(dtype: str) -> None:
    """They are computed in float64 by kernels, and have NumPy's values to the last digits."""
    rng = np.random.default_rng(2)
    low, high = (0, 2) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    make = lambda: rng.integers(low, high, (6, 5000), dtype="int8" if dtype == "bool" else dtype).astype(dtype)  # noqa: E731
    functions = [
        lambda x: x.mean(),
        lambda x: x.mean(axis=0),
        lambda x: x.std(axis=1, ddof=1),
        lambda x: x.var(axis=(0, 1)),
        lambda x: x.mean(axis=(0, 1), keepdims=True),
    ]
    for function in functions:
        fused = xt.fuse(function)
        for _ in range(4):
            x = make()
            found, expected = fused(xt.asarray(x, copy=True)), function(x)
            near = {"rtol": 1e-14, "atol": 1e-14 * float(np.max(np.abs(expected)))}  # sums of both signs cancel
            np.testing.assert_allclose(np.asarray(found), expected, **near)
            assert found.dtype == expected.dtype
            np.testing.assert_allclose(np.asarray(function(xt.asarray(x, copy=True))), expected, **near)
        assert "library: " not in fused.explained()


def test_averages_and_gradients_at_places() -> None:
    """Weights are looked at by each call; NumPy's error where they add up to zero. Distances may be alike, or not."""
    rng = np.random.default_rng(4)
    average = xt.fuse(lambda x, w: names.average(x, weights=w) * 2)
    slope = xt.fuse(lambda x, t: names.gradient(x, t) * 2)
    for call in range(6):
        x, w = rng.random(20), rng.random(20)
        t = np.arange(20.0) if call % 2 else np.cumsum(rng.random(20) + 0.5)
        ours = [xt.asarray(one, copy=True) for one in (x, w, t)]
        np.testing.assert_allclose(np.asarray(average(*ours[:2])), np.average(x, weights=w) * 2, rtol=1e-13)
        np.testing.assert_allclose(np.asarray(slope(ours[0], ours[2])), np.gradient(x, t) * 2, rtol=1e-11, atol=1e-12)
        with pytest.raises(ZeroDivisionError):
            average(ours[0], xt.zeros(20))
    for fused in (average, slope):
        assert "[values]" not in fused.explained()


def test_edges_that_are_tensors() -> None:
    """A histogram whose edges a tensor has is captured, and returns it; their number must not depend on values."""
    edges = names.linspace(0.0, 1.0, 11)
    counts, same = names.histogram(xt.ones(5), bins=edges)
    assert same is edges and counts.tolist() == [0] * 9 + [5]
    fused = xt.fuse(lambda x, edges: names.histogram(x * 2, bins=edges)[0] * 2.0, strict=True)
    for call in range(4):
        x = np.random.default_rng(call).random(5000)
        with xt.options(engine="llvm"):
            found = fused(xt.asarray(x), edges)
        np.testing.assert_array_equal(found.numpy(), np.histogram(x * 2, bins=edges.numpy())[0] * 2.0)
    with pytest.raises(RuntimeError, match="histogram"):
        fused(xt.ones(5000), xt.asarray(7))

"""Gradients in captured functions that write: to what a way back keeps, and to rows at computed places."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import xtensor as xt
from xtensor.codegen.cpu.compile import host

needs_llvm = pytest.mark.skipif(host() is None, reason="generated code needs llvmlite and a fused multiply-add")


@pytest.fixture(params=["interpret", pytest.param("llvm", marks=needs_llvm)], autouse=True)
def engine(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run a test on each engine that has kernels."""
    with xt.options(engine=request.param, cache_dir=""):
        yield


def line(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-9, 9, shape or (9,)).astype(np.float64)


def written_before_going_back(x: Any, m: Any, q: Any) -> Any:
    y, back = xt.vjp(lambda x: x[1:] * x[:-1], x)
    x *= 2.0
    return y, back(m[0, :-1])[0]


def right_before_going_back(x: Any, m: Any, q: Any) -> Any:
    y, g, slope = x[1:] * x[:-1], m[0, :-1], np.zeros_like(x)
    slope[1:] += g * x[:-1]
    slope[:-1] += g * x[1:]
    x *= 2.0
    return y, slope


def row_written_outside(x: Any, m: Any, q: Any) -> Any:
    p = q.argmax()
    row = m[p]
    row += x
    slope = xt.grad(lambda x: xt.sum(m[p] * x**2))(x)
    row -= slope
    return slope + row, xt.grad(lambda x: xt.sum(m[0] * row * x))(x)


def right_row_written_outside(x: Any, m: Any, q: Any) -> Any:
    p = q.argmax()
    m[p] += x
    slope = 2.0 * m[p] * x
    m[p] -= slope
    return slope + m[p], m[0] * m[p]


def row_written_inside(x: Any, m: Any, q: Any) -> Any:
    p = q.argmax()

    def loss(x: Any) -> Any:
        y = m * 1.0
        y[p] += x
        y[p] *= y[p]
        return xt.sum(y)

    return (xt.grad(loss)(x),)


def right_row_written_inside(x: Any, m: Any, q: Any) -> Any:
    p = q.argmax()
    return (2.0 * (m[p] + x),)


def row_updated_by_its_gradient(x: Any, m: Any, q: Any) -> Any:
    p = q.argmax()
    loss, slope = xt.value_and_grad(lambda m: xt.sum(m[p] ** 2 * x) + xt.sum(m[0]))(m)
    m[p] -= 0.5 * slope[p]
    return loss, slope


def right_row_updated_by_its_gradient(x: Any, m: Any, q: Any) -> Any:
    p = q.argmax()
    loss, slope = (m[p] ** 2 * x).sum() + m[0].sum(), np.zeros_like(m)
    slope[p] += 2.0 * m[p] * x
    slope[0] += 1.0
    m[p] -= 0.5 * slope[p]
    return loss, slope


CASES = [
    (written_before_going_back, right_before_going_back),
    (row_written_outside, right_row_written_outside),
    (row_written_inside, right_row_written_inside),
    (row_updated_by_its_gradient, right_row_updated_by_its_gradient),
]


@pytest.mark.parametrize("shared", [False, True], ids=["own memory", "NumPy's memory"])
@pytest.mark.parametrize(("function", "right"), CASES)
def test_beside_what_is_derived_by_hand(function: Callable[..., Any], right: Callable[..., Any], shared: bool) -> None:
    fused = xt.fuse(function)
    m, mine = line(0, 5, 9), xt.asarray(line(0, 5, 9), copy=not shared)
    for call in range(5):
        x, q = line(call), line(call + 50, 5)
        given = xt.asarray(x.copy(), copy=not shared)
        ours, theirs = fused(given, mine, xt.asarray(q)), right(x, m, q)
        for one, other in zip((*ours, mine, given), (*theirs, m, x), strict=True):
            np.testing.assert_array_equal(np.asarray(one), other)
    why = fused.why(given, mine, xt.asarray(q))
    inside = function in (row_written_inside, row_updated_by_its_gradient)  # rows of what has a gradient
    assert why.startswith("[values]") if inside else why == ""


def test_a_pending_convolution_of_shared_memory_is_computed_once() -> None:
    """Its own sums are written while it is a reader of memory that somebody outside can write to."""
    k, calls = xt.asarray(line(1, 4, 1, 3, 3)), 3

    def loss(k: Any, x: Any) -> Any:
        return xt.mean(xt.nn.max_pool(xt.nn.relu(xt.nn.conv(x, k, padding=1)), 2))

    with xt.options(engine="auto"):
        fused = xt.fuse(xt.value_and_grad(loss))
        for call in range(calls):
            x = xt.asarray(line(call, 2, 1, 6, 6))
            for one, other in zip(fused(k, x), xt.value_and_grad(loss)(k, x), strict=True):
                np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-12)


@pytest.mark.parametrize("size", [11, 20_001])
def test_updates_of_parts_are_captured_on_the_way_back(size: int) -> None:
    def stepped(u: Any) -> Any:
        u = u + 0.0
        u[1:-1] += u[2:]
        u[::2] *= 2.0
        return xt.sum(u * u)

    plain = xt.value_and_grad(stepped)
    fused = xt.fuse(plain)
    for seed in range(4):
        u = xt.asarray(line(seed, size))
        for one, two in zip(fused(u), plain(u), strict=True):
            np.testing.assert_array_equal(one.numpy(), two.numpy())
    assert fused.why(u) == ""


@pytest.mark.parametrize("product", [xt.matmul, xt.vecdot])
def test_gradients_that_were_plain_before_are_captured(product: Callable[[Any, Any], Any]) -> None:
    """The cotangent that they begin with is kept from call to call."""
    gradient, x = xt.grad(lambda x: product(x, x * 2.0)), xt.asarray(line(3, 20_001))
    for _ in range(3):
        gradient(x)
    fused = xt.fuse(gradient)
    for seed in range(3):
        x = xt.asarray(line(seed, 20_001))
        np.testing.assert_array_equal(fused(x).numpy(), 4.0 * x.numpy())
    assert fused.why(x) == ""


def test_small_gradients_are_captured_for_what_their_tape_costs() -> None:
    def smoothed(u: Any) -> Any:
        u = u + 0.0
        for _ in range(5):
            u[1:-1] = 0.5 * (u[2:] + u[:-2])
        return xt.sum(u * u)

    gradient, u = xt.grad(smoothed), xt.asarray(line(1, 64))
    with xt.options(engine="auto"):
        fused = xt.fuse(gradient)
        for seed in range(3):
            u = xt.asarray(line(seed, 64))
            np.testing.assert_allclose(fused(u).numpy(), gradient(u).numpy(), rtol=1e-14)
        assert (fused.why(u) == "") == (host() is not None)


def test_gradients_of_writes_to_parts_are_kernels() -> None:
    """What goes back through them is no call of the library, also where it is differentiated again."""

    def stepped(u: Any) -> Any:
        u = u * u
        for _ in range(3):
            u[1:-1] += 0.25 * (u[2:] - 2 * u[1:-1] + u[:-2])
        u[3:6] = u[:3] * u[6:9]
        u[::2] *= u[1::2][: u[::2].shape[0]] if u.size % 2 == 0 else 2.0
        return xt.sum(u * u * u)

    def twice(u: Any, v: Any) -> Any:
        return xt.hvp(stepped, (u,), (v,))

    for function, operands in ((xt.value_and_grad(stepped), 1), (twice, 2)):
        fused = xt.fuse(function)
        for seed, size in ((0, 12), (1, 12), (2, 12), (3, 13), (4, 13), (5, 13)):
            given = [xt.asarray(line(seed + n, size)) for n in range(operands)]
            for one, two in zip(_listed(fused(*given)), _listed(function(*given)), strict=True):
                np.testing.assert_allclose(one.numpy(), two.numpy(), rtol=1e-12, atol=1e-9)
        assert "library: " not in str(xt.explain(fused))


def _listed(result: Any) -> list[Any]:
    return list(result) if isinstance(result, tuple) else [result]


@pytest.mark.parametrize("axis", [0, 1, None])
def test_the_way_back_of_repeated_elements_is_captured(axis: int | None) -> None:
    """As that of images enlarged by repeating pixels is."""
    step = xt.value_and_grad(lambda x: xt.sum(xt.repeat(x, 3, axis=axis) ** 2))
    fused = xt.fuse(step)
    for seed in range(4):
        x = xt.asarray(np.random.default_rng(seed).normal(size=(40, 50)))
        for one, two in zip(fused(x), step(x), strict=True):
            np.testing.assert_allclose(one.numpy(), two.numpy(), rtol=1e-12)
    assert fused.why(x) == ""

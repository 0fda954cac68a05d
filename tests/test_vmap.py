"""xt.vmap: against jax.vmap, and against the rows one by one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

import numpy as np
import pytest

import xtensor as xt
from xtensor.base.options import in_force
from xtensor.codegen.cpu.compile import host
from xtensor.devices import blas
from xtensor.storage.storage import watchers

RNG = np.random.default_rng(7)
X, Y, W, S = (RNG.normal(size=shape) for shape in ((6, 40), (6, 40), (40, 40), (3, 6, 4)))

# Functions of a namespace, a gradient transform and one sample; arguments; axes.
CASES: dict[str, tuple[Any, tuple[Any, ...], Any, Any]] = {
    "elementwise": (lambda xp, grad, a: xp.tanh(a) * 2, (X,), 0, 0),
    "all elements": (lambda xp, grad, a, b: xp.sum((a - b) ** 2), (X, Y), 0, 0),
    "softmax": (lambda xp, grad, a: xp.exp(a - xp.max(a)) / xp.sum(xp.exp(a - xp.max(a))), (X,), 0, 0),
    "one whole": (lambda xp, grad, w, a: xp.tanh(w @ a), (W, X), (None, 0), 0),
    "columns": (lambda xp, grad, a, b: a / xp.sum(b), (X, Y), (1, -1), 0),
    "out": (lambda xp, grad, a: xp.cumulative_sum(a), (X,), 0, -1),
    "middle": (lambda xp, grad, a: xp.sum(a, axis=0), (S,), 1, 1),
    "indices": (lambda xp, grad, a: a[0] * a[1:], (X,), 0, 0),
    "sort": (lambda xp, grad, a: xp.sort(a), (X,), 0, 0),
    "matrix": (lambda xp, grad, a: a.T @ a, (S,), 0, 0),
    "tree": (lambda xp, grad, p: {"sum": p["a"] + p["b"], "two": (p["a"], xp.sum(p["b"]))}, ({"a": X, "b": Y},), 0, 0),
    "trees of axes": (
        lambda xp, grad, p, q: {"a": p["w"] @ p["x"], "q": (q[0] + q[1], xp.sum(p["x"]))},
        ({"w": W, "x": X}, (Y, X)),
        ({"x": 0, "w": None}, (0, 0)),
        {"a": 1, "q": 0},
    ),
    "upper parts of trees": (
        lambda xp, grad, p, c: (p["a"] * p["b"]["c"], c),
        ({"a": X, "b": {"c": Y}}, S[0].T @ S[0, :, :1] * np.ones((1, 6))),
        ({"a": 0, "b": 0}, 1),
        (0, -1),
    ),
    "gradients of samples": (lambda xp, grad, a: grad(lambda v: xp.sum(xp.tanh(v) ** 2))(a), (X,), 0, 0),
    "numbers": (lambda xp, grad, a: a * a, (X[0],), 0, 0),
}


def leaves(tree: Any) -> list[Any]:
    if isinstance(tree, dict):
        tree = list(tree.values())
    return [leaf for part in tree for leaf in leaves(part)] if isinstance(tree, (list, tuple)) else [tree]


def converted(tree: Any, convert: Any) -> Any:
    if isinstance(tree, dict):
        return {name: converted(x, convert) for name, x in tree.items()}
    return tuple([converted(x, convert) for x in tree]) if isinstance(tree, tuple) else convert(tree)


@pytest.mark.parametrize("lazy", ["auto", "always", "never"])
@pytest.mark.parametrize("name", CASES)
def test_as_jax(name: str, lazy: Any) -> None:
    jax = pytest.importorskip("jax")
    function, args, in_axes, out_axes = CASES[name]
    with jax.enable_x64(True):
        theirs = jax.vmap(lambda *a: function(jax.numpy, jax.grad, *a), in_axes, out_axes)(
            *[converted(one, jax.numpy.asarray) for one in args]
        )
        wanted = [np.asarray(one) for one in leaves(theirs)]
    ours = xt.vmap(lambda *a: function(xt, xt.grad, *a), in_axes, out_axes)
    with xt.options(lazy=lazy):
        for _ in range(4):  # captured, prepared, run
            given = [converted(one, lambda values: xt.asarray(values, copy=True)) for one in args]
            for found, one in zip(leaves(ours(*given)), wanted, strict=True):
                assert found.shape == one.shape
                np.testing.assert_allclose(found.numpy(), one, rtol=1e-13, atol=1e-15)


def test_nested_and_differentiated() -> None:
    """Pairs of rows; and the gradient through the rows is that of the whole."""
    x, y = (xt.asarray(one, copy=True) for one in (X, Y))
    products = xt.vmap(lambda a: xt.vmap(lambda b: xt.sum(a * b))(y))
    np.testing.assert_allclose(products(x).numpy(), X @ Y.T, rtol=1e-12, atol=1e-13)
    found = xt.grad(lambda v: xt.sum(xt.vmap(lambda a: xt.sum(a * a) ** 2)(v)))(x)
    np.testing.assert_allclose(found.numpy(), 4 * X * np.sum(X * X, axis=1, keepdims=True), rtol=1e-12)


def test_functions_that_look_at_values_and_write() -> None:
    def turned(a: Any) -> Any:
        b = a if float(a[0]) > 0 else -a
        b = b.copy()
        b[1:] += 1.0
        return b

    wanted = np.where(X[:, :1] > 0, X, -X)
    wanted[:, 1:] += 1.0
    mapped = xt.vmap(turned)
    for _ in range(3):
        xt.testing.assert_array_equal(mapped(xt.asarray(X, copy=True)), wanted)


def test_many_rows_run_in_few_calls() -> None:
    """Five hundred rows of three steps are not so many calls from Python."""
    x = xt.asarray(RNG.normal(size=(500, 64)))
    mapped = xt.vmap(lambda a: a / xt.sum(a * a))
    for _ in range(3):
        mapped(x).evaluate()
    with xt.profile() as seen:
        mapped(x).evaluate()
    assert 1 <= len(seen.entries) <= 4
    np.testing.assert_allclose(mapped(x).numpy(), x.numpy() / np.sum(x.numpy() ** 2, axis=1, keepdims=True), rtol=1e-13)


def test_keywords_are_mapped() -> None:
    mapped = xt.vmap(lambda a, b: a + xt.sum(b))
    np.testing.assert_allclose(mapped(xt.asarray(X), b=xt.asarray(Y)).numpy(), X + Y.sum(1, keepdims=True), rtol=1e-13)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: xt.vmap(x), TypeError, "vmap: function must be callable, got Tensor"),
        (lambda x: xt.vmap(xt.add)(x, x[:2]), ValueError, "one length along the mapped axes.*2, 6"),
        (lambda x: xt.vmap(xt.add, (0,))(x, x), ValueError, "in_axes must have one axis for each of 2"),
        (lambda x: xt.vmap(xt.exp, None)(x), ValueError, "got none that is mapped"),
        (lambda x: xt.vmap(xt.exp, 2)(x), ValueError, r"have the axis 2, got shape \(6, 40\)"),
        (lambda x: xt.vmap(xt.add)(x[:1], x[:2]), ValueError, "one length"),
        (lambda x: xt.vmap(xt.exp, ({"a": 0},))(x), ValueError, "in_axes must be an axis or a tree like an argument"),
        (lambda x: xt.vmap(xt.exp, ("a",))(x), TypeError, "in_axes must be integers or None"),
        (lambda x: xt.vmap(xt.exp, out_axes=None)(x), ValueError, "out_axes must be an axis for each result"),
        (
            lambda x: xt.vmap(xt.exp, out_axes=(0, 1))(x),
            ValueError,
            "out_axes must be an axis or a tree like the result",
        ),
        (lambda x: xt.vmap(xt.exp)(xt.asarray(1.0)), ValueError, "have the axis 0"),
        (lambda x: xt.vmap(lambda a: a @ a[:3])(x), ValueError, "matmul"),
    ],
)
def test_errors(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call(xt.asarray(X, copy=True))


@pytest.mark.skipif(not blas.address("dgemm"), reason="NumPy's BLAS is not OpenBLAS")
def test_gradients_of_rows_by_matrices_run_as_machine_code() -> None:
    """The products of one column each are no calls of the library."""

    def loss(p: Any, x: Any) -> Any:
        return xt.sum((xt.tanh(x @ p[0] + p[2]) @ p[1]) ** 2)

    draw = np.random.default_rng(0).normal
    p = [xt.asarray(draw(size=shape)) for shape in ((8, 16), (16, 1), (16,))]
    x = xt.asarray(draw(size=(50, 8)))
    slopes = xt.vmap(xt.grad(loss), (None, 0))
    expected = [xt.grad(loss)(p, x[row, :]) for row in range(50)]
    for _ in range(3):
        found = slopes(p, x)
        for place, one in enumerate(found):
            rows = np.stack([row[place].numpy() for row in expected])
            np.testing.assert_allclose(one.numpy(), rows, rtol=1e-12, atol=1e-13)
    if host() is not None:
        assert "library" not in str(xt.explain(slopes))


# ---- one row for all


def calls_of(function: Any, *args: Any, axes: Any = 0) -> tuple[Any, int]:
    """Return what a mapped function gives in its first call, and how often that called the function."""

    def counted(*row: Any) -> Any:
        print("a row")  # what a function changes that it finds would have it called for each
        return function(*row)

    with redirect_stdout(StringIO()) as printed:
        found = xt.vmap(counted, axes)(*args)
    return found, len(printed.getvalue().splitlines())


def own_memory(row: xt.Tensor) -> xt.Tensor:
    """Write into memory that is the row's own: with zeros, unset, and a copy."""
    zeros, unset, copy = xt.zeros(5), xt.empty(5), xt.asarray(row, copy=True)
    zeros[1:] += row[:-1]
    unset[...] = row
    unset[::2] *= 3
    copy[-1] = 7
    return zeros * unset + copy


WEIGHTS = xt.asarray(W)

# Functions of a row of five numbers that are done for all rows at once, beside what they are of one in NumPy.
TOGETHER: dict[str, tuple[Any, Any]] = {
    "elementwise": (lambda v: xt.tanh(v) * 2 + 1, lambda v: np.tanh(v) * 2 + 1),
    "other axes": (lambda v: v[:, None] - v[None, :], lambda v: v[:, None] - v[None, :]),
    "reductions": (
        lambda v: xt.stack([xt.sum(v), xt.max(v), xt.var(v), xt.sum(xt.sum(v) * xt.ones(()))]),
        lambda v: np.stack([np.sum(v), np.max(v), np.var(v), np.sum(v)]),
    ),
    "places": (lambda v: xt.argmax(v), np.argmax),
    "views": (
        lambda v: xt.permute_dims(xt.reshape(xt.flip(xt.concat([v, v[1:]])), (3, 3)), (1, 0))[1:, ::-1],
        lambda v: np.concatenate([v, v[1:]])[::-1].reshape(3, 3).T[1:, ::-1],
    ),
    "products": (
        lambda v: WEIGHTS[:4, :5] @ v + (v @ WEIGHTS[:5, :4]) * (v @ v),
        lambda v: W[:4, :5] @ v + (v @ W[:5, :4]) * (v @ v),
    ),
    "products of matrices": (
        lambda v: (v[:, None] * v) @ WEIGHTS[:5, :3] + WEIGHTS[:5, :5] @ (v[:, None] * v[:3]),
        lambda v: np.outer(v, v) @ W[:5, :3] + W[:5, :5] @ np.outer(v, v[:3]),
    ),
    "own memory": (
        own_memory,
        lambda v: np.r_[0, v[:-1]] * np.where(np.arange(5) % 2, 1, 3) * v + np.r_[v[:-1], 7],
    ),
    "functions of the library": (
        lambda v: xt.cumulative_sum(xt.sort(v)) * xt.astype(xt.searchsorted(WEIGHTS[0], v), xt.float64),
        lambda v: np.cumsum(np.sort(v)) * np.searchsorted(W[0], v),
    ),
    "stacks of matrices": (
        lambda v: xt.linalg.inv(v[:, None] * v + xt.eye(5)) + xt.linalg.det(v[:, None] * v + xt.eye(5)),
        lambda v: np.linalg.inv(np.outer(v, v) + np.eye(5)) + np.linalg.det(np.outer(v, v) + np.eye(5)),
    ),
    "a solution": (
        lambda v: xt.linalg.solve(xt.eye(5) * 9 + WEIGHTS[:5, :5], v) + xt.linalg.solve(v[:, None] * v + xt.eye(5), v),
        lambda v: np.linalg.solve(np.eye(5) * 9 + W[:5, :5], v) + np.linalg.solve(np.outer(v, v) + np.eye(5), v),
    ),
    "frequencies": (lambda v: xt.abs(xt.fft.rfft(v)), lambda v: abs(np.fft.rfft(v))),
    "places in the row": (lambda v: xt.take(v, xt.argsort(v)), np.sort),
    "a row at a computed place": (lambda v: WEIGHTS[xt.argmax(v)], lambda v: W[np.argmax(v)]),
    "convolution": (
        lambda v: xt.nn.conv(v[None, None, :], xt.ones((1, 1, 3)))[0, 0, :],
        lambda v: np.convolve(v, np.ones(3), "valid"),
    ),
    "the row itself": (lambda v: (v, v, v[1:])[0], lambda v: v),
    "no row": (lambda v: WEIGHTS[0], lambda v: W[0]),
}


DRAWS = xt.random.default_rng(1)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("name", TOGETHER)
def test_one_row_is_taken_for_all(name: str, axis: int) -> None:
    function, wanted = TOGETHER[name]
    rows = RNG.normal(size=(9, 5))
    given = xt.asarray(np.moveaxis(rows, 0, axis).copy())
    found, calls = calls_of(function, given, axes=axis)
    assert calls == 1
    again = xt.vmap(function, axis)
    for one in (found, *[again(given) for _ in range(3)]):
        np.testing.assert_allclose(one.numpy(), np.stack([wanted(row) for row in rows]), rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(given.numpy(), np.moveaxis(rows, 0, axis))


@pytest.mark.parametrize(
    "function",
    [lambda v: v * float(xt.max(v)), lambda v: v[v > 0][:1], lambda v: v * DRAWS.normal(size=5)],
)
def test_what_no_rows_have_together_is_done_row_by_row(function: Any) -> None:
    global DRAWS
    rows = np.abs(RNG.normal(size=(9, 5)))
    DRAWS = xt.random.default_rng(1)
    found, calls = calls_of(function, xt.asarray(rows))
    assert calls == 9
    DRAWS = xt.random.default_rng(1)
    np.testing.assert_array_equal(found.numpy(), np.stack([function(xt.asarray(row)).numpy() for row in rows]))


def test_many_rows_are_one_row() -> None:
    """As many rows as no call could take down one by one, and maps inside of maps."""
    values = RNG.normal(size=300_000)
    found, calls = calls_of(lambda x: xt.exp(x) * x, xt.asarray(values))
    assert calls == 1
    np.testing.assert_allclose(found.numpy(), np.exp(values) * values, rtol=1e-13)
    points = RNG.normal(size=(70, 3))
    distances = xt.vmap(lambda p: xt.vmap(lambda q: xt.sqrt(xt.sum((p - q) ** 2)))(xt.asarray(points)))
    wanted = np.linalg.norm(points[:, None] - points, axis=-1)
    for _ in range(3):
        np.testing.assert_allclose(distances(xt.asarray(points)).numpy(), wanted, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("axis", [0, 1])
def test_rows_that_are_written(axis: int) -> None:
    """What a function writes into its row is written into the argument, whatever it is besides."""

    def update(v: xt.Tensor) -> xt.Tensor:
        v[1:] *= 2
        return v[0] + 1

    def sorted_update(v: xt.Tensor) -> xt.Tensor:
        v[1:] *= 2
        return xt.sort(v)[0]

    for function in (update, sorted_update):
        rows = RNG.normal(size=(6, 5))
        given = xt.asarray(np.moveaxis(rows, 0, axis).copy())
        mapped = xt.vmap(function, axis)
        for time in range(1, 4):
            mapped(given)
            factors = np.r_[1.0, [2.0**time] * 4]
            np.testing.assert_allclose(given.numpy(), np.moveaxis(rows * factors, 0, axis), rtol=1e-13)


def test_results_of_rows_have_memory_of_their_own() -> None:
    given = xt.asarray(RNG.normal(size=(6, 5)))
    before = given.numpy().copy()
    mapped = xt.vmap(lambda v: (v, v, 2 * v, v[1:]))
    for _ in range(3):
        for one in mapped(given):
            one[...] = 99.0
        np.testing.assert_array_equal(given.numpy(), before)
        first, second, *_ = mapped(given)
        first[...] = 1.0
        np.testing.assert_array_equal(second.numpy(), before)


# Functions of a namespace, its gradient and map, to functions of points, weights and a vector that give a number.
LOSSES: dict[str, Any] = {
    "network": lambda xp, grad, vmap: (
        lambda x, w, v: xp.mean(vmap(lambda one: xp.sum(xp.tanh(xp.matmul(w, one) + v) ** 2))(x))
    ),
    "row and whole": lambda xp, grad, vmap: (
        lambda x, w, v: xp.sum(v[0] * vmap(lambda one: xp.exp(-xp.sum((x - one) ** 2, axis=-1)))(x))
    ),
    "gradients of rows": lambda xp, grad, vmap: (
        lambda x, w, v: xp.sum(vmap(grad(lambda one: xp.sum(xp.tanh(xp.matmul(w, one)) * v)))(x) ** 2)
    ),
    "several results": lambda xp, grad, vmap: (
        lambda x, w, v: sum(
            xp.sum(found * (place + 1) * xp.sum(w))
            for place, found in enumerate(vmap(lambda one: (one[0] * v, xp.sum(one) ** 2, one))(x))
        )
    ),
    "map in a map": lambda xp, grad, vmap: (
        lambda x, w, v: xp.sum(vmap(lambda one: vmap(lambda row: xp.tanh(xp.sum(row * one)))(w) * v)(x))
    ),
    "a function of the library": lambda xp, grad, vmap: (
        lambda x, w, v: xp.sum(vmap(lambda one: xp.sort(xp.matmul(w, one)) * v)(x))
    ),
    "rules by rows": lambda xp, grad, vmap: (
        lambda x, w, v: xp.sum(
            vmap(lambda one: xp.prod(one) * xp.linalg.vector_norm(one) + xp.einsum("i,ij,j", v, w, one) ** 2)(x)
        )
    ),
    "solutions": lambda xp, grad, vmap: (
        lambda x, w, v: xp.sum(vmap(lambda one: xp.linalg.solve(xp.eye(4) * 20 + w[:, :4] * one[:4], v))(x) ** 2)
    ),
    "products": lambda xp, grad, vmap: (
        lambda x, w, v: xp.sum(
            vmap(lambda one: (one[:, None] * one) @ w.T @ v + w.T @ (w @ one) * (one @ one) + v @ w)(x) ** 2
        )
    ),
    "views and reductions": lambda xp, grad, vmap: (
        lambda x, w, v: xp.sum(
            vmap(
                lambda one: (
                    xp.sum(xp.reshape(xp.permute_dims(w * one, (1, 0))[1:, ::-1], (2, 8)), axis=-1)
                    * xp.max(xp.stack([one, one * 2]), axis=0, keepdims=True)[0, 1:3]
                    + xp.var(one) * xp.squeeze(xp.expand_dims(v, axis=0), axis=0)[:2]
                )
            )(x)
            ** 2
        )
    ),
    "not of the row": lambda xp, grad, vmap: lambda x, w, v: xp.sum(vmap(lambda one: w @ w.T @ v)(x) ** 2) + xp.sum(x),
    "columns": lambda xp, grad, vmap: (
        lambda x, w, v: (
            xp.sum(vmap(lambda one, two: xp.tanh((one * v) @ two), (1, 0), 1)(w, xp.stack([w] * 5)) ** 2) + xp.sum(x)
        )
    ),
}


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_through_maps(name: str) -> None:
    """First and second ones beside JAX's, plain and captured: of rows, and of what all rows take."""
    jax = pytest.importorskip("jax")
    given = [RNG.normal(size=shape) for shape in ((9, 5), (4, 5), (4,))]
    ours, theirs = LOSSES[name](xt, xt.grad, xt.vmap), LOSSES[name](jax.numpy, jax.grad, jax.vmap)

    def slopes(xp: Any, grad: Any, f: Any) -> list[Any]:
        first = grad(f, argnums=(0, 1, 2))
        return [first, grad(lambda x, w, v: sum(xp.sum(one**2) for one in first(x, w, v)), argnums=(0, 1, 2))]

    for one, other in zip(slopes(xt, xt.grad, ours), slopes(jax.numpy, jax.grad, theirs), strict=True):
        with jax.enable_x64(True):
            wanted = [np.asarray(g) for g in other(*map(jax.numpy.asarray, given))]
        fused = xt.fuse(one, strict=True)
        for function in (one, fused, fused, fused):
            for found, g in zip(function(*map(xt.asarray, given)), wanted, strict=True):
                np.testing.assert_allclose(found.numpy(), g, rtol=1e-10, atol=1e-10 * abs(g).max())


# ---- what one row alone does not show


def check_rows(function: Any, *args: Any, axes: Any = 0) -> None:
    """Compare captured calls with what a function gives for each row, in copies of the arguments."""
    given = [xt.asarray(one, copy=True) for one in args]
    whole = [axes] * len(args) if axes == 0 else axes
    rows = next(len(one) for one, axis in zip(args, whole, strict=True) if axis == 0)
    mapped = xt.vmap(function, axes)
    for _ in range(3):
        wanted = [
            function(*[xt.asarray(x[row] if axis == 0 else x) for x, axis in zip(args, whole, strict=True)]).numpy()
            for row in range(rows)
        ]
        np.testing.assert_allclose(mapped(*given).numpy(), np.stack(wanted), rtol=1e-13, atol=1e-13)


NUMBERS = np.arange(5.0)


def test_constants_of_numpy_and_empty_products() -> None:
    rows = RNG.normal(size=(6, 5))
    check_rows(lambda v: v * xt.asarray(NUMBERS) + xt.sum(v * xt.asarray(NUMBERS[::2])[0]), rows)
    found = xt.vmap(lambda v: v @ xt.zeros((0, 3)))(xt.zeros((4, 2, 0)))
    np.testing.assert_array_equal(found.numpy(), np.zeros((4, 2, 3)))


def test_what_was_pending_outside_is_computed_once() -> None:
    """What the first row computes for others, who use it afterwards: whole, as a view, inside another map."""
    x = RNG.normal(size=(6, 5))

    @xt.fuse
    def outer(x: xt.Tensor) -> xt.Tensor:
        y = xt.exp(x)
        view = y[1:]

        def row(v: xt.Tensor) -> xt.Tensor:
            view.evaluate()
            return v * y[0] + y[1, 2]

        return xt.vmap(row)(x) + y + view[0]

    inner = xt.vmap(lambda v: (lambda y: xt.vmap(lambda q: q * xt.sum(y))(v) + y)(xt.exp(v)))
    e = np.exp(x)
    for _ in range(4):
        np.testing.assert_allclose(outer(xt.asarray(x)).numpy(), x * e[0] + e[1, 2] + e + e[1], rtol=1e-13)
        np.testing.assert_allclose(inner(xt.asarray(x)).numpy(), x * e.sum(1, keepdims=True) + e, rtol=1e-13)


def test_gradients_are_those_of_the_moment() -> None:
    """What the function reads besides its rows may be bound anew, or written, before anybody goes back."""
    ones, rows = xt.ones(5), xt.ones((6, 5))

    def loop(w: xt.Tensor, x: xt.Tensor, s: xt.Tensor) -> xt.Tensor:
        total = xt.asarray(0.0)
        for k in range(2):
            total = total + xt.sum(xt.vmap(lambda row: (k + 1.0) * xt.sum(w * row * s))(x))  # noqa: B023
            s += 1
        return total

    fused = xt.fuse(xt.grad(loop))
    for _ in range(3):
        np.testing.assert_allclose(fused(ones, rows, xt.ones(5)).numpy(), np.full(5, 6 * (1 + 2 * 2.0)))


@pytest.mark.parametrize("axes", [(0, 0), (0, None)])
def test_arguments_that_share_memory(axes: Any) -> None:
    def add(v: xt.Tensor, w: xt.Tensor) -> xt.Tensor:
        v += 1
        return v * w

    x, wanted = xt.zeros((5, 2)), np.zeros((5, 2))
    for _ in range(3):
        found = xt.vmap(add, axes)(x, x)
        for row in range(5):
            wanted[row] += 1
            np.testing.assert_array_equal(found.numpy()[row], wanted[row] * (wanted[row] if axes[1] == 0 else wanted))
        np.testing.assert_array_equal(x.numpy(), wanted)


def test_an_array_of_numpys_is_written_by_each_row() -> None:
    total = np.zeros(5)

    def add(v: xt.Tensor) -> xt.Tensor:
        shown = xt.asarray(total)
        shown += v
        return v * 2

    for time in range(1, 4):
        np.testing.assert_array_equal(xt.vmap(add)(xt.ones((6, 5))).numpy(), np.full((6, 5), 2.0))
        np.testing.assert_array_equal(total, np.full(5, 6.0 * time))


def test_elements_are_values() -> None:
    """A row of one axis is a number, and no view: what is written into it stays there."""

    def write(s: xt.Tensor) -> xt.Tensor:
        s[...] = s + 1
        return s * 2

    for rows in (3, 6):
        x = xt.zeros(rows)
        np.testing.assert_array_equal(xt.vmap(write)(x).numpy(), np.full(rows, 2.0))
        np.testing.assert_array_equal(x.numpy(), np.zeros(rows))


def calls_back(loss: Any, *args: Any) -> tuple[list[np.ndarray[Any, Any]], list[int]]:
    """Return the gradients of plain calls, which agree with those of captured ones, and how often each called a row."""

    def counted(function: Any) -> Any:
        def call(*rows: Any) -> Any:
            print("a row")
            return function(*rows)

        return call

    slopes = xt.grad(lambda *given: loss(counted, *given), tuple(range(len(args))))
    fused, done, found = xt.fuse(slopes), [], []
    for function in (slopes, slopes, fused, fused, fused):
        with redirect_stdout(StringIO()) as printed:
            found.append([g.numpy() for g in function(*[xt.asarray(x, copy=True) for x in args])])
        done.append(len(printed.getvalue().splitlines()))
    for other in found[1:]:
        for one, two in zip(found[0], other, strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-12, atol=1e-12)
    return found[0], done[:3]


def test_gradients_of_all_rows_take_one_call() -> None:
    """Plain ones and captured ones; of few rows a plain one takes them one by one."""
    x, w = RNG.normal(size=(9, 5)), RNG.normal(size=(4, 5))

    def loss(counted: Any, x: xt.Tensor, w: xt.Tensor) -> xt.Tensor:
        return xt.sum(xt.vmap(counted(lambda one: xt.nn.relu(w @ one) * NUMBERS[1:]))(x) ** 2)

    found, calls = calls_back(loss, x, w)
    assert calls == [1, 1, 1]
    slope = 2 * np.maximum(x @ w.T, 0) * NUMBERS[1:] ** 2
    np.testing.assert_allclose(found[0], slope @ w, rtol=1e-12)
    np.testing.assert_allclose(found[1], slope.T @ x, rtol=1e-12)
    assert calls_back(loss, x[:3], w)[1] == [3, 3, 1]


@xt.custom_vjp
def tripled(x: xt.Tensor) -> xt.Tensor:
    return x * x


tripled.defvjp(lambda x: (x * x, x), lambda x, g: (6 * x * g,))

# Losses by a function that counts calls, of rows and a vector, with the slope of the vector.
APART: dict[str, tuple[Any, Any]] = {
    "rules of users": (
        lambda counted, x, v: xt.sum(xt.vmap(counted(lambda one: tripled(one * v)))(x)),
        lambda x, v: (6 * v * x**2).sum(0),
    ),
    "checkpoints": (
        lambda counted, x, v: xt.sum(xt.vmap(counted(xt.checkpoint(lambda one: (one * v) ** 2)))(x)),
        lambda x, v: (2 * v * x**2).sum(0),
    ),
    "values": (
        lambda counted, x, v: xt.sum(xt.vmap(counted(lambda one: one * v if float(one[0]) > 0 else v))(x)),
        lambda x, v: np.where(x[:, :1] > 0, x, 1).sum(0),
    ),
}


@pytest.mark.parametrize("name", APART)
def test_gradients_that_rows_have_apart(name: str) -> None:
    loss, slope = APART[name]
    x, v = RNG.normal(size=(9, 5)), RNG.normal(size=5)
    found, calls = calls_back(loss, x, v)
    assert min(calls) >= 9
    np.testing.assert_allclose(found[1], slope(x, v), rtol=1e-12, atol=1e-12)


def test_gradients_that_each_row_leaves_elsewhere() -> None:
    """A leaf's gradient adds up over rows, and so does memory that all rows write to."""
    x = RNG.normal(size=(9, 5))
    leaf = xt.asarray(NUMBERS, copy=True, requires_grad=True)

    def row(one: xt.Tensor) -> xt.Tensor:
        xt.sum(leaf * one).backward()
        return xt.sum(one)

    xt.vmap(row)(xt.asarray(x))
    assert leaf.grad is not None
    np.testing.assert_allclose(leaf.grad.numpy(), x.sum(0), rtol=1e-12)

    def running(x: xt.Tensor, v: xt.Tensor) -> xt.Tensor:
        total = xt.zeros(5)

        def add(one: xt.Tensor) -> xt.Tensor:
            total[...] = total + one * v
            return xt.sum(total)

        return xt.sum(xt.vmap(add)(x)) + xt.sum(total)

    found = xt.grad(running, 1)(xt.asarray(x), xt.ones(5))
    np.testing.assert_allclose(found.numpy(), np.cumsum(x, axis=0).sum(0) + x.sum(0), rtol=1e-12, atol=1e-12)


def test_gradients_through_writes_into_own_memory() -> None:
    x, v = RNG.normal(size=(9, 5)), RNG.normal(size=5)

    def loss(counted: Any, x: xt.Tensor, v: xt.Tensor) -> xt.Tensor:
        def row(one: xt.Tensor) -> xt.Tensor:
            h = one * 2
            h[0] = h[1] * v[0]
            y = h * h
            h[...] = y + v
            return y * h

        return xt.sum(xt.vmap(counted(row))(x))

    found, calls = calls_back(loss, x, v)
    assert calls == [1, 1, 1]
    h = np.concatenate([2 * x[:, 1:2] * v[0], 2 * x[:, 1:]], axis=1)  # the loss is h^4 + h^2 v
    slope = 4 * h**3 + 2 * h * v
    wanted = 2 * slope
    wanted[:, 1] += slope[:, 0] * 2 * v[0]
    wanted[:, 0] = 0
    np.testing.assert_allclose(found[0], wanted, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found[1], (h**2).sum(0) + np.eye(5)[0] * (slope[:, 0] * 2 * x[:, 1]).sum(), rtol=1e-12)


def scan(rows: Any, mapped: Any) -> Any:
    """Carry a value from row to row."""
    h = xt.zeros(5)

    def step(one: xt.Tensor) -> xt.Tensor:
        nonlocal h
        h = xt.tanh(h + one)
        return h

    return mapped(step)(rows)


def penalty(rows: Any, mapped: Any) -> Any:
    """Add up beside the results."""
    parts = [0.0]

    def add(one: xt.Tensor) -> xt.Tensor:
        parts[0] = parts[0] + xt.sum(one**2)
        return xt.sum(one)

    return xt.sum(mapped(add)(rows)) + parts[0]


def drawn(rows: Any, mapped: Any) -> Any:
    """Draw by NumPy."""
    generator = np.random.default_rng(3)
    return mapped(lambda one: one * generator.random())(rows)


def counted_rows(rows: Any, mapped: Any) -> Any:
    """Count in a dict, and write to the row."""
    seen = {"n": 0.0}

    def count(one: xt.Tensor) -> xt.Tensor:
        seen["n"] += 1.0
        one *= seen["n"]
        return one + 1

    return mapped(count)(rows * 1.0)


def shared(rows: Any, mapped: Any) -> Any:
    """Write to memory of others that was pending when the map began."""
    total = xt.sum(rows, axis=0)

    def add(one: xt.Tensor) -> xt.Tensor:
        total[...] += one
        return xt.sum(total * one)

    return xt.sum(mapped(add)(rows)) + xt.sum(total)


def singular(rows: Any, mapped: Any) -> Any:
    """Go on where a matrix has no inverse."""

    def inverse(one: xt.Tensor) -> xt.Tensor:
        try:
            return xt.linalg.inv(xt.linalg.diagonal(one * xt.eye(5))[:, None] * xt.eye(5))
        except np.linalg.LinAlgError:
            return xt.ones((5, 5))

    return mapped(inverse)(rows * xt.astype(rows[:, :1] < 1.0, xt.float64))


def around(rows: Any, mapped: Any) -> Any:
    """Checkpoint the map."""
    sums = lambda one: xt.stack([xt.sum(one), one[0], xt.sum(xt.permute_dims(one[:, None] @ one[None, :], (1, 0)))])  # noqa: E731
    return xt.checkpoint(lambda given: mapped(sums)(given))(rows)


def one_by_one(function: Any) -> Any:
    return lambda rows: xt.stack([function(rows[row, :]) for row in range(rows.shape[0])])


@pytest.mark.parametrize("program", [scan, penalty, drawn, counted_rows, shared, singular, around])
def test_rows_that_depend_on_others(program: Any) -> None:
    """Values and gradients, plain and captured, are those of the rows one by one."""
    x = RNG.normal(size=(9, 5))

    def loss(mapped: Any) -> Any:
        return lambda rows: xt.sum(xt.sin(program(rows, mapped)))

    value, slope = xt.value_and_grad(loss(one_by_one))(xt.asarray(x))
    xt.fuse(loss(xt.vmap))(xt.asarray(x))
    both = xt.value_and_grad(loss(xt.vmap))
    fused = xt.fuse(both)
    for function in (both, both, fused, fused, fused):
        found, g = function(xt.asarray(x, copy=True))
        np.testing.assert_allclose(float(found), float(value), rtol=1e-12)
        np.testing.assert_allclose(g.numpy(), slope.numpy(), rtol=1e-11, atol=1e-12)


def test_maps_in_maps_of_functions_of_matrices() -> None:
    matrices = RNG.normal(size=(9, 9, 4, 4)) + 5 * np.eye(4)
    for function, wanted in ((xt.linalg.inv, np.linalg.inv), (xt.linalg.det, np.linalg.det)):
        mapped = xt.vmap(xt.vmap(function))
        for _ in range(3):
            np.testing.assert_allclose(mapped(xt.asarray(matrices)).numpy(), wanted(matrices), rtol=1e-10)


def test_an_interrupted_row_leaves_nobody_watching() -> None:
    def interrupted(one: xt.Tensor) -> xt.Tensor:
        raise KeyboardInterrupt

    before = in_force.get()
    with pytest.raises(KeyboardInterrupt):
        xt.grad(lambda x: xt.sum(xt.vmap(interrupted)(x)))(xt.ones((9, 5)))
    assert not watchers and in_force.get() is before


def test_no_rows() -> None:
    """Where there is no row the results have none; a gradient of them is zero."""
    x, w = xt.ones((0, 3)), xt.ones(3)
    doubled, total = xt.vmap(lambda v: (v * 2, xt.sum(v * w)))(x)
    assert doubled.shape == (0, 3)
    assert total.shape == (0,)
    assert xt.vmap(lambda v: v > 1)(x).dtype == xt.bool
    assert bool(xt.all(xt.grad(lambda w: xt.sum(xt.vmap(lambda v: v * w)(x)))(w) == 0))


ALONG: dict[str, Callable[..., Any]] = {
    "sort": lambda x, axis: xt.sort(x, axis=axis, descending=True),
    "argsort": lambda x, axis: xt.argsort(x, axis=axis),
    "cumulative_sum": lambda x, axis: xt.cumulative_sum(x, axis=axis, include_initial=True),
    "cumulative_prod": lambda x, axis: xt.cumulative_prod(x, axis=axis),
    "take_along_axis": lambda x, axis: xt.take_along_axis(x, xt.argsort(x, axis=axis), axis=axis),
    "fft": lambda x, axis: xt.fft.fft(x, axis=axis, n=5),
    "irfft": lambda x, axis: xt.fft.irfft(x, axis=axis),
    "fftn": lambda x, axis: xt.fft.fftn(x, axes=(axis,)),
    "rfftn": lambda x, axis: xt.fft.rfftn(x),
    "fftshift": lambda x, axis: xt.fft.fftshift(x, axes=axis),
    "fftshift of all axes": lambda x, axis: xt.fft.fftshift(x),
    "roll of all elements": lambda x, axis: xt.roll(x, 2),
    "slope of take_along_axis": lambda x, axis: xt.grad(
        lambda one: xt.sum(xt.take_along_axis(one, xt.argsort(one, axis=axis), axis=axis)[:2] ** 2)
    )(x),
}


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("name", ALONG)
def test_functions_along_axes_of_rows(name: str, axis: int) -> None:
    """Their axes are those of a row, whatever stands in front, for functions of rows of rows too."""
    x = xt.asarray(np.random.default_rng(0).standard_normal((3, 4, 4)))
    each = xt.stack([ALONG[name](row, axis) for row in x])
    rows = xt.vmap(lambda row: ALONG[name](row, axis))
    np.testing.assert_array_equal(np.asarray(rows(x)), np.asarray(each))
    nested = xt.vmap(rows)(xt.stack([x, x + 1]))
    np.testing.assert_array_equal(np.asarray(nested[0]), np.asarray(each))
    fused = xt.fuse(rows)
    for _ in range(3):
        np.testing.assert_array_equal(np.asarray(fused(x)), np.asarray(each))

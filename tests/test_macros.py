"""Functions that are recorded as one node: the same values, errors and barriers as their steps have."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest
from programs import all_large

import xtensor as xt
from xtensor import nn
from xtensor.calls.compositions import macro
from xtensor.codegen.cpu.compile import host
from xtensor.graph.node import Macro, Node

SHAPE = (150, 300)

needs_llvm = pytest.mark.skipif(host() is None, reason="generated code needs llvmlite and a fused multiply-add")


def numbers(seed: int = 0, shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-2.0, 2.0, shape)


def own(a: np.ndarray) -> xt.Tensor:
    return xt.asarray(a, copy=True)


def is_macro(x: xt.Tensor) -> bool:
    return type(x.value) is Node and type(x.value.op) is Macro


def assert_close(mine: Any, right: np.ndarray) -> None:
    np.testing.assert_allclose(np.asarray(mine), right, rtol=1e-12, atol=1e-13)


def stepwise(function: Any, *args: Any, **kwargs: Any) -> np.ndarray:
    """Return what the function's steps give, each computed at once."""
    with xt.options(lazy="never"):
        return np.asarray(function(*args, **kwargs))


CASES = {
    "layer_norm": lambda x, y, w: nn.layer_norm(x, w, w),
    "rms_norm": lambda x, y, w: nn.rms_norm(x, w),
    "layer_norm without": lambda x, y, w: nn.layer_norm(x, eps=0.5),
    "batch_norm": lambda x, y, w: nn.batch_norm(x, w, w * w + 1.0, w, w),
    "softmax": lambda x, y, w: nn.softmax(x, axis=0),
    "log_softmax": lambda x, y, w: nn.log_softmax(x),
    "gelu": lambda x, y, w: nn.gelu(x, approximate="tanh"),
    "silu": lambda x, y, w: nn.silu(x),
    "mish": lambda x, y, w: nn.mish(x),
    "elu": lambda x, y, w: nn.elu(x, alpha=0.7),
    "softplus": lambda x, y, w: nn.softplus(x, 2.0, 3.0),
    "hardswish": lambda x, y, w: nn.hardswish(x),
    "huber": lambda x, y, w: nn.huber_loss(x, y, delta=0.3),
    "mse": lambda x, y, w: nn.mse_loss(x, y, reduction="none"),
    "kl_div": lambda x, y, w: nn.kl_div(x, xt.abs(y)),
    "logits": lambda x, y, w: nn.binary_cross_entropy_with_logits(x, xt.abs(y) / 2.0),
}


@pytest.mark.parametrize("name", CASES)
def test_again_and_again(name: str) -> None:
    """The first call records steps, later ones a node; alone, of pending values, below others, and of other values."""
    call = CASES[name]
    w = own(numbers(9, SHAPE[1:]))
    for seed in range(5):
        x, y = own(numbers(seed)), own(numbers(seed + 100))
        right = stepwise(call, x, y, w)
        assert_close(call(x, y, w), right)
        assert_close(call(x * 1.0, y + 0.0, w) * 2.0 + right, right * 3.0)
        below = call(x, y, w)
        assert_close(below * below, right * right)
        assert_close(below, right)


def test_what_is_recorded() -> None:
    """One node, from the second call of a kind on; steps again where steps are asked for."""
    x = own(numbers())
    nn.silu(x)
    node = nn.silu(x)
    assert is_macro(node)
    assert "exp" in xt.explain(node)
    assert not is_macro(node) and node.is_pending
    assert not is_macro(nn.silu(own(numbers(0, (7, 7)))))
    with xt.options(lazy="always"):
        assert not is_macro(nn.silu(x))
    with xt.options(lazy="never"):
        assert not nn.silu(x).is_pending
    grads = xt.grad(lambda z: xt.sum(nn.silu(z)))(x)
    assert_close(grads, np.asarray(xt.grad(lambda z: xt.sum(z * nn.sigmoid(z)))(x)))


def test_kinds_are_told_apart() -> None:
    """Shapes, dtypes, constants with their signs, and which arguments are one."""
    x, y = own(numbers(1)), own(numbers(2))
    for _ in range(3):
        assert_close(nn.mse_loss(x, y), np.mean((np.asarray(x) - np.asarray(y)) ** 2))
        assert_close(nn.mse_loss(x, x), 0.0)
        assert_close(nn.mse_loss(y, x), np.mean((np.asarray(x) - np.asarray(y)) ** 2))
        assert nn.silu(xt.astype(x, xt.float32)).dtype == xt.float32
        for slope in (0.0, -0.0):
            low = np.asarray(nn.leaky_relu(xt.abs(x) * -1.0, slope))
            assert np.array_equal(np.signbit(low), np.full(SHAPE, slope == 0.0 and not np.signbit(slope)))


def test_writes_wait() -> None:
    """What a macro reads keeps its value until the macro is computed."""
    a = numbers()
    right = stepwise(nn.softmax, own(a))
    for _ in range(4):
        x = own(a)
        y = nn.softmax(x)
        x[...] = 0.0
        x += 1.0
        assert_close(y, right)
        z = own(a)
        z[...] = nn.softmax(z)
        assert_close(z, right)
        z = own(a)
        z *= nn.softmax(z)
        assert_close(z, a * right)


def test_inner_values_that_are_held() -> None:
    """A composition whose inner value somebody else holds as well gives it all the same."""
    kept = []

    @macro
    def both(x: xt.Tensor) -> xt.Tensor:
        inner = x + 1.0
        kept.append(inner)
        return inner * inner

    x = own(numbers())
    for _ in range(3):
        assert_close(both(x), (numbers() + 1.0) ** 2)
    assert_close(kept[0], numbers() + 1.0)


def test_compositions_that_are_none() -> None:
    """What reads something else than its arguments, or computes something at once, is called every time."""
    other = own(numbers(5))
    calls = []

    @macro
    def outside(x: xt.Tensor) -> xt.Tensor:
        calls.append(1)
        return x * other + 1.0

    @macro
    def at_once(x: xt.Tensor) -> xt.Tensor:
        calls.append(2)
        return x + float(xt.sum(x))

    x = own(numbers())
    for _ in range(3):
        assert_close(outside(x), numbers() * numbers(5) + 1.0)
        assert_close(at_once(x), numbers() + numbers().sum())
    assert len(calls) == 6


def test_errors_stay() -> None:
    x = own(numbers())
    for _ in range(3):
        nn.softmax(x)
        with pytest.raises(TypeError):
            nn.softmax(xt.astype(x, xt.int64))
        with pytest.raises(IndexError):
            nn.softmax(x, axis=2)
        with pytest.raises(TypeError):
            nn.softmax(x, axes=1)  # type: ignore[call-arg]


def test_macros_of_macros_and_bounds() -> None:
    """Macros inside a macro, graphs that grow beyond the bounds, and parts of what is pending."""

    @macro
    def twice(x: xt.Tensor) -> xt.Tensor:
        return nn.gelu(nn.silu(x)) - x

    x = own(numbers())
    right = stepwise(lambda z: nn.gelu(nn.silu(z)) - z, x)
    for _ in range(4):
        assert_close(twice(x), right)
        assert_close(twice(x)[3, 5:9], right[3, 5:9])
    with xt.options(fuse_limit=4):
        for _ in range(3):
            assert_close(twice(x) + twice(x), right * 2)
    y, n = x, numbers()
    for _ in range(60):
        y, n = nn.silu(y) + 1.0, n / (1 + np.exp(-n)) + 1.0
    assert_close(y, n)


def test_in_several_threads() -> None:
    """Nodes that threads share are spelled out once."""
    x = own(numbers())
    right = stepwise(nn.gelu, x)
    nn.gelu(x)
    with ThreadPoolExecutor(8) as pool:
        for _ in range(20):
            shared = nn.gelu(x)
            for found in pool.map(lambda k, y=shared: np.asarray(y * float(k)), range(8)):
                assert found.shape == SHAPE
            assert_close(shared, right)


LAID_OUT = {
    "mean": lambda x: xt.mean(x, axis=0),
    "var": lambda x: xt.var(x, axis=1, keepdims=True, correction=1),
    "std": lambda x: xt.std(x),
    "softmax": lambda x: nn.softmax(x, axis=1),
    "layer_norm": nn.layer_norm,
    "silu": nn.silu,
}


@pytest.mark.parametrize("doubled", [False, True])
@pytest.mark.parametrize("name", LAID_OUT)
def test_layouts_that_come_late(name: str, doubled: bool) -> None:
    """An expression that is recognised by its last node may lie as no earlier one did."""
    function = LAID_OUT[name]
    a = numbers(shape=(300, 300))
    views: list[Any] = [lambda x: x] * 4
    views += [lambda x: xt.flip(x, axis=0), lambda x: x.T, lambda x: x[::-1, ::-1], lambda x: x[::2], lambda x: x]
    for view in views:
        x = view(own(a))
        z = function(x) * 2.0 if doubled else function(x)
        right = stepwise(function, view(own(a)))
        assert_close(z, right * 2.0 if doubled else right)
        x[...] = 0.0


def test_reductions_made_of_others_are_one_node() -> None:
    x = own(numbers(shape=(400, 200)))
    for _ in range(2):
        found = [xt.mean(x, axis=0), xt.std(x, axis=1), xt.var(x)]
    assert all(is_macro(one) for one in found)
    with xt.options(lazy="always"):
        assert not is_macro(xt.mean(x, axis=0))


WHOLE: list[Any] = [xt.mean, xt.var, xt.std, nn.silu, nn.gelu]
ALONG: list[Any] = [xt.mean, xt.var, xt.std, nn.softmax]
VIEWS: list[Any] = [
    lambda x: x,
    lambda x: x.T,
    lambda x: x[::-1],
    lambda x: x[:, ::-1],
    lambda x: x[::2],
    lambda x: x[:, 3:11],
    lambda x: x[:1],
    lambda x: x[0],
    lambda x: xt.broadcast_to(x[:, :1], x.shape),
]
TAILS: list[Any] = [
    lambda z, x: z,
    lambda z, x: z * 2.0,
    lambda z, x: x - z if z.shape in ((), x.shape) else z + 1.0,
    lambda z, x: xt.abs(z) + z,
    lambda z, x: xt.sum(z),
]


@pytest.mark.parametrize("engine", ["auto", "interpret", pytest.param("llvm", marks=needs_llvm)])
def test_random_compositions(engine: str) -> None:
    """Met again and again in other shapes, dtypes and layouts, and among other steps."""
    draw = random.Random(5)
    with all_large(), xt.options(engine=engine):
        for turn in range(500):
            shape, dtype = draw.choice([(24, 24), (20, 16), (1, 16)]), draw.choice(["float32", "float64"])
            a, function = numbers(turn % 7, shape).astype(dtype), composition(draw)
            x = own(a)
            found, right = function(x), stepwise(function, own(a))
            rtol = 1e-11 if dtype == "float64" else 3e-4
            np.testing.assert_allclose(np.asarray(found), right, rtol=rtol, atol=rtol)
            assert (found.shape, found.dtype) == (right.shape, right.dtype)
            x[...] = 0.0


def composition(draw: random.Random) -> Any:
    """Return a random function of views, functions that are recorded as one node, and other steps."""
    view, tail, function = draw.choice(VIEWS), draw.choice(TAILS), draw.choice(WHOLE)
    if draw.random() < 0.6:
        function = partial(draw.choice(ALONG), axis=draw.choice([0, -1]))
    outer = draw.choice(ALONG) if draw.random() < 0.3 else None

    def call(x: xt.Tensor) -> xt.Tensor:
        y = function(view(x))
        return tail(outer(y, axis=-1) if outer and y.ndim else y, view(x))

    return call

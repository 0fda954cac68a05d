"""Weights that are laid out once, and kept as long as nobody writes to them: never what they were before."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import xtensor as xt
from xtensor import nn
from xtensor.codegen.cpu.compile import host
from xtensor.run import launches

pytestmark = pytest.mark.skipif(host() is None, reason="there is no compiler, which lays weights out")

# Shapes of x and w, and what else conv is told, by the kernel that is for them.
KINDS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "winograd": ((2, 64, 20, 20), (64, 64, 3, 3), {"padding": 1}),
    "winograd with a stride": ((4, 64, 28, 28), (64, 64, 3, 3), {"padding": 1, "stride": 2}),
    "strips": ((2, 28, 28, 32), (32, 32, 5, 5), {"padding": 2, "layout": "NHWC"}),
    "turned strips": ((2, 32, 28, 28), (32, 32, 5, 5), {"padding": 2}),
    "in place": ((2, 64, 28, 28), (256, 64, 1, 1), {}),
    "products": ((1, 1024, 14, 14), (256, 1024, 1, 1), {}),
}


@pytest.fixture(params=KINDS)
def layer(request: pytest.FixtureRequest) -> Iterator[tuple[Any, Any, Callable[..., Any]]]:
    """Inputs, weights, and a convolution that is pending until it is evaluated."""
    of_x, of_w, kind = KINDS[request.param]
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in (of_x, of_w))
    yield x, w, lambda x, w, bias=None: nn.conv(x, w, bias, **kind)


@pytest.fixture
def packed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note of each call whether weights were laid out for it."""
    found, plain = [], launches.Prepared.run

    def run(self: Any, words: Any, kept: Any, *rest: Any) -> None:
        found.append(kept is None or kept.threads != self.threads)
        plain(self, words, kept, *rest)

    monkeypatch.setattr(launches.Prepared, "run", run)
    return found


def own(array: Any) -> xt.Tensor:
    return xt.asarray(array, copy=True)


def agree(found: xt.Tensor, conv: Callable[..., Any], x: Any, w: Any, bias: Any = None) -> None:
    """Compare with what weights in other memory give."""
    given = [None if one is None else own(one) for one in (x, w, bias)]
    np.testing.assert_array_equal(found.numpy(), conv(*given).numpy())


def test_weights_are_laid_out_twice_and_kept(layer: Any, packed: list[int]) -> None:
    x, w, conv = layer
    inputs, weights = [own(x + n) for n in range(5)], own(w)
    found = [conv(one, weights).evaluate() for one in inputs]
    assert packed[-2:] == [False, False] and any(packed)
    for one, result in zip(inputs, found, strict=True):
        agree(result, conv, one, w)


WRITES: dict[str, Callable[[Any], Any]] = {
    "an element": lambda w: w.__setitem__((0, 0, 0, 0), 9.0),
    "a slice": lambda w: w.__setitem__(slice(1, 3), 0.5),
    "in place": lambda w: w.__imul__(2),
    "through a view": lambda w: w[1:2].__iadd__(1),
    "a mask": lambda w: w.__setitem__(w > 1, -1.0),
    "out": lambda w: xt.numpy.multiply(w, 3, out=w),
    "fill": lambda w: w.fill(0.25),
    "exported": lambda w: w.numpy().__setitem__((0, 0), 7.0),
    "by a buffer": lambda w: np.from_dlpack(w).__setitem__(0, 3.0),
    "fused": xt.fuse(lambda w: w.__isub__(w * 0.5)),
    "by NumPy": lambda w: np.add(w, 1, out=w),
}


@pytest.mark.parametrize("write", WRITES)
def test_writes_are_seen(write: str, layer: Any) -> None:
    """However often, and whoever wrote; also where the array that was handed out is gone by then."""
    x, w, conv = layer
    inputs, weights, mirror = own(x), own(w), own(w)
    for _ in range(3):
        for _ in range(3):
            agree(conv(inputs, weights).evaluate(), conv, x, mirror.numpy())
        for one in (weights, mirror):
            WRITES[write](one)
        gc.collect()
        mirror = own(mirror.numpy())
        np.testing.assert_array_equal(own(weights).numpy(), mirror.numpy())


def test_small_writes_by_machine_code(layer: Any) -> None:
    x, w, conv = layer
    inputs, weights = own(x), own(w)
    for step in range(200):
        weights[0, 0, 0, 0] = float(step)
        if step % 40 == 39:
            mirror = w.copy()
            mirror[0, 0, 0, 0] = step
            for _ in range(3):
                agree(conv(inputs, weights).evaluate(), conv, x, mirror)


def test_joined_with_what_follows(layer: Any, packed: list[int]) -> None:
    x, w, conv = layer
    inputs, weights, shift = own(x), own(w), own(np.float32(0.5))
    for step in range(3):
        for _ in range(6):
            found = nn.relu(conv(inputs, weights) + shift).evaluate()
        assert not packed[-1]
        expected = np.maximum(conv(own(x), own(w * 2**step)).numpy() + np.float32(0.5), 0)
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-4)
        weights *= 2


def test_captured_functions_that_write_weights(layer: Any) -> None:
    """What is laid out while one runs is not kept, and what other calls kept is not used."""
    x, w, conv = layer

    def steps(x: Any, w: Any) -> Any:
        total = conv(x, w)
        for n in range(3):
            w *= 0.5
            total = total + conv(x, w) * n
        return total

    fused, inputs, weights = xt.fuse(steps), own(x), own(w)
    for _ in range(5):
        plain = own(weights.numpy().copy())
        expected = steps(own(x), plain)
        np.testing.assert_allclose(fused(inputs, weights).numpy(), expected.numpy(), rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(weights.numpy(), plain.numpy())
        agree(conv(inputs, weights).evaluate(), conv, x, plain.numpy())
        weights *= 3


def test_weights_that_a_captured_function_makes(layer: Any) -> None:
    """They lie in memory that comes again with other values."""
    x, w, conv = layer
    fused, inputs = xt.fuse(lambda x, w, scale: conv(x, w * scale)), own(x)
    for call in range(6):
        scale = own(np.float32(call + 1))
        expected = conv(own(x), own(w * np.float32(call + 1)))
        np.testing.assert_allclose(fused(inputs, own(w), scale).numpy(), expected.numpy(), rtol=1e-4, atol=1e-4)


def test_steps_of_training(layer: Any) -> None:
    """Weights change between calls, in place and as new tensors."""
    x, w, conv = layer
    inputs, weights, mirror = own(x), own(w), w.copy()
    slope = xt.grad(lambda w, x: xt.sum(conv(x, w) ** 2) * 1e-6)
    for step in range(4):
        change = slope(weights, inputs)
        np.testing.assert_allclose(change.numpy(), slope(own(mirror), own(x)).numpy(), rtol=1e-3, atol=1e-5)
        if step % 2:
            weights = weights - change
        else:
            weights -= change
        mirror = weights.numpy().copy()


def test_parts_of_one_array(layer: Any) -> None:
    """The weights of several layers in one tensor."""
    x, w, conv = layer
    whole = own(np.stack([w, w * 2, -w]))
    for _ in range(3):
        for n, factor in enumerate((1, 2, -1)):
            agree(conv(own(x), whole[n]).evaluate(), conv, x, w * np.float32(factor))
    whole[1] = whole[0]
    agree(conv(own(x), whole[1]).evaluate(), conv, x, w)


def test_threads(layer: Any, packed: list[int]) -> None:
    """Another number of threads may lay them out in another way."""
    x, w, conv = layer
    inputs, weights = own(x), own(w)
    for threads in (1, 2, 1, 2, 2, 2):
        with xt.options(threads=threads):
            agree(conv(inputs, weights).evaluate(), conv, x, w)


def test_no_more_is_kept_than_there_is_room_for(layer: Any, packed: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is given back with the weights, and beyond the bound they are laid out anew each time."""
    x, w, conv = layer
    inputs, weights = own(x), own(w)
    gc.collect()
    before = len(launches._kept)
    for _ in range(4):
        conv(inputs, weights).evaluate()
    assert len(launches._kept) == before + 1 and not packed[-1]
    del weights
    gc.collect()
    assert len(launches._kept) == before
    monkeypatch.setattr(launches, "KEPT_MOST", 0)
    weights = own(w)
    for _ in range(4):
        found = conv(inputs, weights).evaluate()
    assert packed[-1] and len(launches._kept) == before
    agree(found, conv, x, w)


def test_memory_that_others_can_write_to(layer: Any, packed: list[int]) -> None:
    x, w, conv = layer
    inputs, shared = own(x), w.copy()
    weights = xt.asarray(shared)
    for step in range(4):
        shared[...] = w * np.float32(step + 1)
        agree(conv(inputs, weights).evaluate(), conv, x, shared)
    assert all(packed)

"""Weights that are laid out once, and kept as long as nobody writes to them: never what they were before."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import xtensor as xt
from xtensor import nn
from xtensor.calls.thin import in_python
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
        found.append(kept is None or kept.memory is None or kept.filled is not kept.memory)
        plain(self, words, kept, *rest)

    monkeypatch.setattr(launches.Prepared, "run", run)
    return found


def held() -> int:
    """Return of how many weights something is kept, those that nobody holds any more aside."""
    gc.collect()
    return sum([one() is not None and one().memory is not None for one in launches._kept])  # type: ignore[union-attr]


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


def test_threads_by_turns(layer: Any, packed: list[int]) -> None:
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
    before = held()
    for _ in range(4):
        conv(inputs, weights).evaluate()
    assert held() == before + 1 and not packed[-1]
    del weights
    gc.collect()
    assert held() == before
    monkeypatch.setattr(launches, "KEPT_MOST", 0)
    weights = own(w)
    for _ in range(4):
        found = conv(inputs, weights).evaluate()
    assert packed[-1] and held() == before
    agree(found, conv, x, w)


def test_memory_that_others_can_write_to(layer: Any, packed: list[int]) -> None:
    x, w, conv = layer
    inputs, shared = own(x), w.copy()
    weights = xt.asarray(shared)
    for step in range(4):
        shared[...] = w * np.float32(step + 1)
        agree(conv(inputs, weights).evaluate(), conv, x, shared)
    assert all(packed)


class Nested:
    """Values whose conversion convolves with the weights that they are about to be written to, time and again."""

    def __init__(self, conv: Callable[[], Any], values: Any) -> None:
        self._conv, self._values = conv, values

    def _found(self) -> Any:
        for _ in range(4):
            self._conv()
        return self._values

    def __index__(self) -> int:
        return int(self._found())

    def __array__(self, *_: Any, **__: Any) -> Any:
        return self._found()


@xt.fuse
def tripled(w: Any) -> None:
    """Write in place as one schedule."""
    w *= 3.0


NESTED: dict[str, Callable[[Any, Callable[[Any], Nested]], Any]] = {
    "an index": lambda w, nested: w.__setitem__(nested(3), 2.0),
    "put": lambda w, nested: xt.numpy.put(w, list(range(64)), nested(np.full(64, 5.0, np.float32))),
    "putmask": lambda w, nested: xt.numpy.putmask(w, w > 0, nested(np.full(8, -2.0, np.float32))),
}


@pytest.mark.parametrize("write", NESTED)
def test_calls_inside_a_write(write: str, layer: Any) -> None:
    """What is laid out after a write was counted and before it is done is not kept."""
    x, w, conv = layer
    inputs, weights = own(x), own(w)
    for _ in range(3):
        conv(inputs, weights).evaluate()
    NESTED[write](weights, lambda values: Nested(lambda: conv(inputs, weights).evaluate(), values))
    assert not np.array_equal(weights.numpy(), w)
    for _ in range(3):
        agree(conv(inputs, weights).evaluate(), conv, x, weights.numpy().copy())


@pytest.mark.parametrize(
    "write", ["mask", "shuffle", "values", "sort", "update", "number", "part", "out", "into", "fused"]
)
def test_another_thread_that_writes(write: str, layer: Any) -> None:
    """Once it is done, and nobody else writes, results are those of the new weights."""
    x, w, conv = layer
    others = w.astype(np.float64) * 3
    writes: dict[str, Callable[[Any], Any]] = {
        "mask": lambda w: w.__setitem__(w > 0, 0.5),
        "shuffle": lambda w: xt.random.default_rng(0).shuffle(w),
        "values": lambda w: w.__setitem__(..., others),
        "sort": lambda w: w.sort(axis=0),
        "update": lambda w: w.__imul__(1.5),
        "number": lambda w: w.__setitem__(..., 2.5),
        "part": lambda w: w[3:].__setitem__(slice(5), 1.25),
        "out": lambda w: xt.numpy.multiply(w, 3.0, out=w),
        "into": lambda w: xt.numpy.copyto(w, others, casting="same_kind"),
        "fused": tripled,
    }
    for _ in range(6):
        inputs, weights, begun, done = own(x), own(w), threading.Event(), threading.Event()

        def read(inputs: Any = inputs, weights: Any = weights, begun: Any = begun, done: Any = done) -> None:
            begun.set()
            while not done.is_set():
                conv(inputs, weights).evaluate()

        thread = threading.Thread(target=read)
        thread.start()
        begun.wait()
        writes[write](weights)
        done.set()
        thread.join()
        agree(conv(inputs, weights).evaluate(), conv, x, own(weights).numpy())


@pytest.mark.parametrize("write", ["number", "out", "update"])
def test_a_write_that_is_interrupted_before_it_is_counted(write: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by Ctrl-C: nothing that was laid out before is used again."""
    of_x, of_w, kind = KINDS["winograd"]
    x, w = (own(np.random.default_rng(0).standard_normal(shape).astype(np.float32)) for shape in (of_x, of_w))
    fused = xt.fuse(lambda x, w: nn.relu(nn.conv(x, w, **kind)))
    for weights in (own(w.numpy()), w):  # a replay leaves no reader that has to be served before a write
        for _ in range(5):
            fused(x, weights)

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    for module in (xt.tensor.face, xt.numpy.thin, xt.calls.rows):
        monkeypatch.setattr(module, "count_thin_write", interrupted)
    writes: dict[str, Callable[[], Any]] = {
        "number": lambda: w.__setitem__(..., 2.5),
        "out": lambda: xt.numpy.add(w, 1.0, out=w),
        "update": lambda: w.__iadd__(2.0),
    }
    with in_python(), pytest.raises(KeyboardInterrupt):  # nothing interrupts machine code
        writes[write]()
    found = fused(x, w).numpy()
    np.testing.assert_array_equal(found, fused(x, own(w.numpy())).numpy())


def test_weights_are_kept_beside_other_threads(layer: Any, packed: list[int]) -> None:
    x, w, conv = layer
    inputs, weights, done = own(x), own(w), threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    found = [conv(inputs, weights).evaluate() for _ in range(3)]
    done.set()
    thread.join()
    assert not packed[-1]
    agree(found[-1], conv, x, w)


def test_many_shapes_of_inputs(packed: list[int]) -> None:
    """The ways in which one tensor is laid out are few, and what is kept of what it was goes with the next write."""
    w, gone = own(np.ones((64, 64, 3, 3), np.float32)), held()
    for size in range(40, 80):
        x = own(np.ones((1, 64, size, 24), np.float32))
        for _ in range(3):
            nn.conv(x, w, padding=1).evaluate()
    assert len(w.owner.layouts.ways) <= launches.KEPT_WAYS and held() <= gone + launches.KEPT_WAYS
    w *= 2
    nn.conv(x, w, padding=1).evaluate()
    assert held() == gone and len(w.owner.layouts.ways) == 1


def test_the_oldest_makes_room(packed: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launches, "KEPT_MOST", 1 << 20)
    x, before = own(np.ones((1, 64, 40, 24), np.float32)), held()
    weights = [own(np.full((64, 64, 3, 3), n, np.float32)) for n in range(1, 6)]
    for _ in range(2):
        for n, w in enumerate(weights, 1):
            for _ in range(4):
                found = nn.conv(x, w, padding=1)
            np.testing.assert_allclose(found.numpy()[0, 0, 5, 5], 576 * n, rtol=1e-5)
            assert held() <= before + 4


@pytest.mark.parametrize("threads", [1, 2, 3, 4, 8])
def test_groups_in_parts(threads: int) -> None:
    """Outputs of several groups are cut among threads, on the way back too, where those of a group lie far apart."""
    rng = np.random.default_rng(1)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((1, 256, 7, 7), (256, 128, 3, 3)))
    kind: dict[str, Any] = {"padding": 1, "groups": 2, "algorithm": "winograd"}
    results = []
    for number in (1, threads):
        with xt.options(threads=number):
            forward = nn.conv(own(x), own(w), **kind)
            results.append((forward.numpy(), nn.conv_transpose(own(x), own(w), **kind).numpy()))
    for ours, first in zip(results[1], results[0], strict=True):
        np.testing.assert_array_equal(ours, first)


@pytest.mark.parametrize("layer", ["winograd", "winograd with a stride", "products"], indirect=True)
def test_what_was_handed_out_once_is_kept_again(layer: Any, packed: list[int]) -> None:
    """Of memory from 128 KiB on somebody knows when the array that was handed out is gone."""
    x, w, conv = layer
    for weights in (xt.asarray(w.copy()), own(w)):
        weights.numpy()
        gc.collect()
        for _ in range(5):
            found = conv(own(x), weights).evaluate()
        assert not packed[-1]
        agree(found, conv, x, w)

"""Functions of xt.nn, plain and under xt.fuse, beside those of torch.nn.functional: values alone, and gradients.

The inputs are rows of 1024 float32 numbers; of attention, 8 heads of 1024 queries and keys of 64; of the network that
reads digits, 64 images of 8 x 8, as in examples/digits_cnn.py; of ctc_loss, 200 frames of 40 classes for 16 sequences.
Results are compared before anything is timed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from .machine import cores
from .measure import print_table, repeated, take_turns, warmed
from .report import FUSED, OURS

SHAPE = (4096, 1024)
HEADS = (1, 8, 1024, 64)
FILTERS = ((32, 1, 3, 3), (64, 32, 3, 3), (128, 64, 3, 3), (10, 128 * 2 * 2))
PAUSE = 0.01  # seconds for the other library's threads to sleep


def rows() -> list[Any]:
    """Return x, labels, weight, bias and a cotangent."""
    rng = np.random.default_rng(0)
    x, cotangent = rng.normal(size=(2, *SHAPE)).astype(np.float32)
    w = rng.uniform(0.5, 2.0, SHAPE[1]).astype(np.float32)
    return [x, rng.integers(0, SHAPE[1], SHAPE[0]), w, rng.normal(size=SHAPE[1]).astype(np.float32), cotangent]


def heads() -> list[Any]:
    """Return query, key, value and a cotangent."""
    return list(np.random.default_rng(0).normal(size=(4, *HEADS)).astype(np.float32))


def digits() -> list[Any]:
    """Return images, labels, the weights and biases of three convolutions and a linear layer, and a cotangent."""
    rng = np.random.default_rng(0)
    layers: list[Any] = []
    for shape in FILTERS:
        spread = (2 / np.prod(shape[1:])) ** 0.5
        layers += [(rng.normal(size=shape) * spread).astype(np.float32), np.zeros(shape[0], np.float32)]
    images = rng.random((64, 1, 8, 8)).astype(np.float32)
    return [images, rng.integers(0, 10, 64), *layers, np.ones((), np.float32)]


def speech() -> list[Any]:
    """Return frames of sequences, what they spell, how long both are, and a cotangent."""
    rng = np.random.default_rng(0)
    x, targets = rng.normal(size=(200, 16, 40)).astype(np.float32), rng.integers(1, 40, (16, 30))
    return [x, targets, rng.integers(150, 201, 16), rng.integers(10, 31, 16), np.ones((), np.float32)]


class Case(NamedTuple):
    """A function of either library, given its module of functions and tensors of its own: those of `operands`."""

    name: str
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    places: tuple[int, ...] = (0,)  # of the operands with a gradient
    operands: Callable[[], list[Any]] = rows  # the last is a cotangent


def attention(**more: Any) -> Callable[..., Any]:
    """Return attention of either library."""
    return lambda f, q, k, v: f.scaled_dot_product_attention(q, k, v, **more)


def digits_loss(f: Any, x: Any, labels: Any, *layers: Any) -> Any:
    """Return the loss of the network that reads digits, by xtensor."""
    w1, b1, w2, b2, w3, b3, w4, b4 = layers
    x = f.gelu(f.conv(x, w1, b1, padding="same"))
    x = f.max_pool(f.gelu(f.conv(x, w2, b2, padding="same")), 2)
    x = f.max_pool(f.gelu(f.conv(x, w3, b3, padding="same")), 2)
    reshape = import_module("xtensor").reshape
    return f.cross_entropy(f.linear(reshape(x, (x.shape[0], -1)), w4, b4), labels)


def digits_loss_by_torch(f: Any, x: Any, labels: Any, *layers: Any) -> Any:
    """Return the same by PyTorch."""
    w1, b1, w2, b2, w3, b3, w4, b4 = layers
    x = f.gelu(f.conv2d(x, w1, b1, padding="same"))
    x = f.max_pool2d(f.gelu(f.conv2d(x, w2, b2, padding="same")), 2)
    x = f.max_pool2d(f.gelu(f.conv2d(x, w3, b3, padding="same")), 2)
    return f.cross_entropy(f.linear(x.flatten(1), w4, b4), labels)


CASES = [
    Case("relu", lambda f, x, t, w, b: f.relu(x), lambda f, x, t, w, b: f.relu(x)),
    Case("silu", lambda f, x, t, w, b: f.silu(x), lambda f, x, t, w, b: f.silu(x)),
    Case("gelu", lambda f, x, t, w, b: f.gelu(x), lambda f, x, t, w, b: f.gelu(x)),
    Case("softmax", lambda f, x, t, w, b: f.softmax(x), lambda f, x, t, w, b: f.softmax(x, -1)),
    Case("log_softmax", lambda f, x, t, w, b: f.log_softmax(x), lambda f, x, t, w, b: f.log_softmax(x, -1)),
    Case(
        "layer_norm",
        lambda f, x, t, w, b: f.layer_norm(x, w, b),
        lambda f, x, t, w, b: f.layer_norm(x, (SHAPE[1],), w, b),
        (0, 2, 3),
    ),
    Case("cross_entropy", lambda f, x, t, w, b: f.cross_entropy(x, t), lambda f, x, t, w, b: f.cross_entropy(x, t)),
    Case(
        "batch_norm, inference",
        lambda f, x, t, w, b: f.batch_norm(x, b, w, w, b),
        lambda f, x, t, w, b: f.batch_norm(x, b, w, w, b),
    ),
    Case(
        "batch_norm, training",
        lambda f, x, t, w, b: f.batch_norm(x, None, None, w, b, training=True),
        lambda f, x, t, w, b: f.batch_norm(x, None, None, w, b, training=True),
        (0, 2, 3),
    ),
    Case("attention", attention(), attention(), (0, 1, 2), heads),
    Case("attention, causal", attention(is_causal=True), attention(is_causal=True), (0, 1, 2), heads),
    Case(
        "ctc_loss",
        lambda f, x, *told: f.ctc_loss(f.log_softmax(x), *told),
        lambda f, x, *told: f.ctc_loss(f.log_softmax(x, -1), *told),
        operands=speech,
    ),
    Case("network of digits", digits_loss, digits_loss_by_torch, tuple(range(2, 10)), digits),
]


def ours(case: Case, *, gradients: bool, fused: bool) -> Callable[[], list[Any]]:
    """Return a call that computes the value, or value and gradients, by xtensor."""
    xt = import_module("xtensor")
    *given, cotangent = [xt.asarray(a, copy=True) for a in case.operands()]
    if not gradients:
        value = partial(case.ours, xt.nn)
        value = xt.fuse(value) if fused else value
        return lambda: [value(*given).evaluate()]

    function, places = case.ours, case.places  # a fused function may not reach what draws the operands

    def loss(tracked: Any, given: Any, cotangent: Any) -> Any:
        every = list(given)
        for place, x in zip(places, tracked, strict=True):
            every[place] = x
        y = function(xt.nn, *every)
        return xt.sum(y * cotangent) if y.ndim else y

    both = xt.value_and_grad(loss)
    both = xt.fuse(both) if fused else both
    tracked = [given[place] for place in places]

    def call() -> list[Any]:
        value, grads = both(tracked, given, cotangent)
        xt.evaluate(value, *grads)
        return [value, *grads]

    return call


def theirs(case: Case, *, gradients: bool) -> Callable[[], list[Any]]:
    """Return the same by PyTorch."""
    torch = import_module("torch")
    torch.set_num_threads(cores())
    *given, cotangent = [torch.tensor(a) for a in case.operands()]
    if not gradients:
        return lambda: [case.theirs(torch.nn.functional, *given)]
    for place in case.places:
        given[place].requires_grad_()

    def call() -> list[Any]:
        y = case.theirs(torch.nn.functional, *given)
        loss = (y * cotangent).sum() if y.ndim else y
        return [loss.detach(), *torch.autograd.grad(loss, [given[place] for place in case.places])]

    return call


def row(case: Case, *, gradients: bool, repeats: int, warm: float) -> list[str]:
    """Return a line of the table: the times, and PyTorch's over each of ours."""
    calls = {name: ours(case, gradients=gradients, fused=name == FUSED) for name in (OURS, FUSED)}
    calls["torch"] = theirs(case, gradients=gradients)
    found = {name: [np.asarray(a) for a in call()] for name, call in calls.items()}
    for name in (OURS, FUSED):
        for one, other in zip(found[name], found["torch"], strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5 * np.max(np.abs(other)))
    timers = {name: repeated(call, warmed(call, warm), PAUSE) for name, call in calls.items()}
    times = take_turns(timers, repeats)
    least = [f"{times[name].least * 1e3:.2f}" for name in calls]
    ratios = [times["torch"].over(times[name]) for name in (OURS, FUSED)]
    return [case.name, "gradients" if gradients else "value", *least, *ratios]


def main(quick: bool = False) -> None:
    """Print the table."""
    if find_spec("torch") is None:
        print("nn: PyTorch is not installed (the extra `oracle`), so there is nothing to compare with.")
        return
    repeats, warm = (2, 0.0) if quick else (25, 0.5)
    lines = [row(case, gradients=g, repeats=repeats, warm=warm) for g in (False, True) for case in CASES]
    title = f"{SHAPE[0]} x {SHAPE[1]} float32: above 1 xtensor is faster, by least times (by medians)"
    heading = ["function", "of", "xtensor ms", "fused ms", "torch ms", "torch / xtensor", "torch / fused"]
    print_table(title, heading, lines)


if __name__ == "__main__":
    main()

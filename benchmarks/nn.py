"""Functions of xt.nn beside those of torch.nn.functional: values alone, and values with gradients.

The inputs are rows of 1024 float32 numbers; of attention, 8 heads of 1024 queries and keys of 64. Results are compared
before anything is timed.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from .machine import cores
from .measure import print_table, repeated, take_turns, warmed

SHAPE = (4096, 1024)
HEADS = (1, 8, 1024, 64)
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
]


def ours(case: Case, *, gradients: bool) -> Callable[[], list[Any]]:
    """Return a call that computes the value, or the gradients, by xtensor."""
    xt = import_module("xtensor")
    *given, cotangent = [xt.asarray(a, copy=True) for a in case.operands()]
    if not gradients:
        return lambda: [case.ours(xt.nn, *given).evaluate()]

    def loss(*tracked: Any) -> Any:
        every = list(given)
        for place, x in zip(case.places, tracked, strict=True):
            every[place] = x
        y = case.ours(xt.nn, *every)
        return xt.sum(y * cotangent) if y.ndim else y

    grad = xt.grad(loss, tuple(range(len(case.places))))
    tracked = [given[place] for place in case.places]
    return lambda: [g.evaluate() for g in grad(*tracked)]


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
        return list(torch.autograd.grad(loss, [given[place] for place in case.places]))

    return call


def row(case: Case, *, gradients: bool, repeats: int, warm: float) -> list[str]:
    """Return a line of the table: both times and their ratio."""
    calls = {"xtensor": ours(case, gradients=gradients), "torch": theirs(case, gradients=gradients)}
    found = {name: [np.asarray(a) for a in call()] for name, call in calls.items()}
    for one, other in zip(*found.values(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5 * np.max(np.abs(other)))
    timers = {name: repeated(call, warmed(call, warm), PAUSE) for name, call in calls.items()}
    times = take_turns(timers, repeats)
    least = [f"{times[name].least * 1e3:.2f}" for name in calls]
    return [case.name, "gradients" if gradients else "value", *least, times["torch"].over(times["xtensor"])]


def main(quick: bool = False) -> None:
    """Print the table."""
    if find_spec("torch") is None:
        print("nn: PyTorch is not installed (the extra `oracle`), so there is nothing to compare with.")
        return
    repeats, warm = (2, 0.0) if quick else (25, 0.5)
    lines = [row(case, gradients=g, repeats=repeats, warm=warm) for g in (False, True) for case in CASES]
    title = f"{SHAPE[0]} x {SHAPE[1]} float32: above 1 xtensor is faster, by least times (by medians)"
    print_table(title, ["function", "of", "xtensor ms", "torch ms", "torch / xtensor"], lines)


if __name__ == "__main__":
    main()

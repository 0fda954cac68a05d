"""The losses whose gradients are timed.

A loss is written once, over a namespace `xp` and its arrays, in names that NumPy, HIPS autograd, PyTorch, JAX and
xtensor share. Its gradient by hand, over NumPy, is what everybody's results are compared with, and a contestant itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .workloads import FLOATS, Array

RIDGE = 1e-3  # the weight of the squares of a model's parameters


@dataclass(frozen=True)
class Case:
    """One loss.

    name: what it is called in tables. size: what stands behind it there.
    loss: a function of xp and the operands that returns a scalar.
    by_hand: a function of the operands, NumPy arrays, that returns the loss and its gradients.
    inputs: makes the operands from a generator.
    wrt: how many of the operands, from the first on, have a gradient.
    """

    name: str
    size: str
    loss: Callable[..., Any]
    by_hand: Callable[..., tuple[Any, list[Array]]]
    inputs: Callable[[np.random.Generator], list[Array]]
    wrt: int
    dtypes: tuple[str, ...] = FLOATS


# ---- elementwise steps and a sum


def elementwise(xp: Any, x: Any, y: Any) -> Any:
    """Return a sum over elementwise functions of two vectors."""
    return xp.sum(xp.tanh(x * y) ** 2 + xp.exp(-x * x))


def elementwise_by_hand(x: Array, y: Array) -> tuple[Any, list[Array]]:
    """Return that and its gradients."""
    t, e = np.tanh(x * y), np.exp(-x * x)
    shared = 2 * t * (1 - t * t)
    return np.sum(t * t + e), [shared * y - 2 * x * e, shared * x]


def vectors(size: int) -> Callable[[np.random.Generator], list[Array]]:
    """Return a maker of two vectors of normal numbers."""
    return lambda rng: [rng.normal(size=size) for _ in range(2)]


# ---- logistic regression


def logistic(xp: Any, w: Any, b: Any, x: Any, labels: Any) -> Any:
    """Return the mean negative log-likelihood of labels 0 and 1, and the squares of the weights."""
    z = x @ w + b
    return xp.mean(xp.log1p(xp.exp(z)) - labels * z) + RIDGE * xp.sum(w * w)


def logistic_by_hand(w: Array, b: Array, x: Array, labels: Array) -> tuple[Any, list[Array]]:
    """Return that and its gradients."""
    z = x @ w + b
    e = np.exp(z)
    off = (e / (1 + e) - labels) / len(x)
    value = np.mean(np.log1p(e) - labels * z) + RIDGE * np.sum(w * w)
    return value, [x.T @ off + 2 * RIDGE * w, np.sum(off)]


def labelled(rng: np.random.Generator) -> list[Array]:
    """Make weights, samples and labels that weights like these would give."""
    x, w = rng.normal(size=(20_000, 100)), rng.normal(size=100) / 10
    labels = (x @ w + rng.normal(size=len(x)) > 0).astype(float)
    return [w, np.asarray(0.1), x, labels]


# ---- a network of two layers


def network(xp: Any, w1: Any, b1: Any, w2: Any, b2: Any, x: Any, targets: Any) -> Any:
    """Return the mean cross-entropy of a network with one hidden layer."""
    z = xp.tanh(x @ w1 + b1) @ w2 + b2
    normaliser = xp.log(xp.sum(xp.exp(z), axis=1))
    return xp.mean(normaliser - xp.sum(targets * z, axis=1))


def network_by_hand(w1: Array, b1: Array, w2: Array, b2: Array, x: Array, targets: Array) -> tuple[Any, list[Array]]:
    """Return that and its gradients."""
    hidden = np.tanh(x @ w1 + b1)
    z = hidden @ w2 + b2
    e = np.exp(z)
    total = np.sum(e, axis=1, keepdims=True)
    value = np.mean(np.log(total[:, 0]) - np.sum(targets * z, axis=1))
    off = (e / total - targets) / len(x)
    before = off @ w2.T * (1 - hidden * hidden)
    return value, [x.T @ before, np.sum(before, axis=0), hidden.T @ off, np.sum(off, axis=0)]


def batch(rng: np.random.Generator) -> list[Array]:
    """Make weights, 1024 samples of 256 features and their classes, ten of them, as ones among zeros."""
    w1, w2 = rng.normal(size=(256, 256)) / 16, rng.normal(size=(256, 10)) / 16
    targets = np.eye(10)[rng.integers(0, 10, 1024)]
    return [w1, np.zeros(256), w2, np.zeros(10), rng.normal(size=(1024, 256)), targets]


CASES = (
    Case("elementwise", "5,000,000", elementwise, elementwise_by_hand, vectors(5_000_000), 2, ("float32",)),
    Case("elementwise", "1,000", elementwise, elementwise_by_hand, vectors(1_000), 2, ("float32",)),
    Case("logistic regression", "20,000 x 100", logistic, logistic_by_hand, labelled, 2),
    Case("network", "1024 x 256 x 256 x 10", network, network_by_hand, batch, 4, ("float32",)),
)

"""What the networks that read scikit-learn's 1797 images of handwritten digits have in common: data, learning, figures.

It needs scikit-learn (the extra `demo`); tqdm for a progress bar and matplotlib for figures, where they are installed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from sklearn.datasets import load_digits

import xtensor as xt
from xtensor import nn

BATCH, TESTED = 64, 450

Layers = list[dict[str, Any]]


class Learned(NamedTuple):
    """What became of learning: the weights, the mean loss of each epoch, and how images not seen before were read."""

    layers: Layers
    losses: list[float]
    accuracy: float
    confusion: Any  # (written, read as): how many images


def data(generator: Any) -> tuple[Any, ...]:
    """Return images (n, 64) and labels to learn from, and 450 to be tested with, drawn at random."""
    digits = load_digits()
    images = xt.asarray(digits.data / 16.0, dtype=xt.float32)
    labels = xt.asarray(digits.target)
    order = generator.permutation(len(digits.target))
    learn, test = order[TESTED:], order[:TESTED]
    return images[learn], labels[learn], images[test], labels[test]


def weights(generator: Any, *shape: int) -> dict[str, Any]:
    """Return a layer's random weights, of a size that keeps the variance from layer to layer, and biases of 0."""
    fan = xt.prod(xt.asarray(shape[1:]))
    w = generator.normal(0.0, float(2 / fan) ** 0.5, shape, dtype=xt.float32)
    return {"w": w, "b": xt.zeros(shape[0], dtype=xt.float32)}


def adam(layers: Layers, grads: Layers, moments: Any, step: int, rate: float) -> None:
    """Move the weights, in place, against the mean gradient over its usual size."""
    rate *= (1 - 0.9**step) ** -1 * (1 - 0.999**step) ** 0.5
    for layer, grad, moment in zip(layers, grads, moments, strict=True):
        for name, w in layer.items():
            mean, square = moment[name]
            mean += 0.1 * (grad[name] - mean)
            square += 0.001 * (grad[name] ** 2 - square)
            w -= rate * mean / (xt.sqrt(square) + 1e-8)


def learn(
    logits: Callable[..., Any], layers: Layers, generator: Any, epochs: int, rate: float, *, quiet: bool = False
) -> Learned:
    """Make the loss of `logits(layers, images, generator)` small by Adam, and see how the test images are read."""

    @xt.value_and_grad
    def loss(layers: Layers, x: Any, y: Any) -> Any:
        return nn.cross_entropy(logits(layers, x, generator), y, label_smoothing=0.05)

    x, y, x_test, y_test = data(generator)
    moments = [{name: (xt.zeros_like(w), xt.zeros_like(w)) for name, w in layer.items()} for layer in layers]
    losses, step = [], 0
    bar = progress(epochs, quiet)
    for _ in bar:
        order, total = generator.permutation(x.shape[0]), 0.0
        for first in range(0, x.shape[0], BATCH):
            step += 1
            batch = order[first : first + BATCH]
            value, grads = loss(layers, x[batch], y[batch])
            adam(layers, grads, moments, step, rate)
            total += float(value) * batch.size
        losses.append(total / x.shape[0])
        if hasattr(bar, "set_postfix"):
            bar.set_postfix(loss=f"{losses[-1]:.3f}")
    read = xt.argmax(logits(layers, x_test), axis=1)
    confusion = nn.one_hot(y_test, 10).T @ nn.one_hot(read, 10)
    return Learned(layers, losses, float(xt.mean(xt.astype(read == y_test, xt.float64))), confusion)


def progress(epochs: int, quiet: bool) -> Any:
    """Return the numbers of the epochs, with a progress bar in a terminal where tqdm is installed."""
    try:
        from tqdm import tqdm
    except ImportError:
        return range(epochs)
    return tqdm(range(epochs), desc="epochs", disable=True if quiet else None)


# ---- figures


def draw_losses(axes: Any, losses: list[float]) -> None:
    """Draw the loss of each epoch."""
    axes.plot(range(1, len(losses) + 1), losses, marker=".")
    axes.set(xlabel="epoch", ylabel="cross entropy, smoothed labels", title="loss", ylim=0)


def draw_confusion(axes: Any, confusion: Any) -> None:
    """Draw how many images of each digit were read as which."""
    axes.imshow(confusion.numpy() ** 0.5, cmap="Blues")
    for row in range(10):
        for column in range(10):
            count = int(confusion[row, column])
            if count:
                axes.text(column, row, count, ha="center", va="center", color="white" if count > 20 else "black")
    axes.set(xlabel="read as", ylabel="written", xticks=range(10), yticks=range(10), title=f"{TESTED} test images")

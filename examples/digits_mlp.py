"""A small network learns to read scikit-learn's 1797 images of handwritten digits: `python examples/digits_mlp.py`.

It needs scikit-learn and tqdm (the extras `demo` and `bench`), and matplotlib for the figure, which goes to the file
that is named on the command line.
"""

from __future__ import annotations

import sys
from typing import Any

from sklearn.datasets import load_digits
from tqdm import tqdm

import xtensor as xt
from xtensor import nn

EPOCHS, BATCH, RATE = 30, 64, 3e-3
SIZES = (64, 128, 64, 10)


def data(generator: Any) -> tuple[Any, ...]:
    """Return images and labels to learn from, and 450 to be tested with."""
    digits = load_digits()
    images = xt.asarray(digits.data / 16.0, dtype=xt.float32)
    labels = xt.asarray(digits.target)
    order = generator.permutation(len(digits.target))
    learn, test = order[450:], order[:450]
    return images[learn], labels[learn], images[test], labels[test]


def start(generator: Any) -> list[dict[str, Any]]:
    """Return random weights, of a size that keeps the variance from layer to layer."""
    return [
        {"w": generator.normal(0.0, (2 / n) ** 0.5, (m, n), dtype=xt.float32), "b": xt.zeros(m, dtype=xt.float32)}
        for n, m in zip(SIZES, SIZES[1:])  # noqa: B905 - one shorter on purpose
    ]


def logits(layers: list[dict[str, Any]], x: Any, generator: Any = None) -> Any:
    """Return the network's answer; with a generator, as for learning, some of what it sees is dropped."""
    for layer in layers[:-1]:
        x = nn.gelu(nn.linear(x, layer["w"], layer["b"]))
        if generator is not None:
            x = nn.dropout(x, 0.1, generator=generator)
    return nn.linear(x, layers[-1]["w"], layers[-1]["b"])


@xt.value_and_grad
def loss(layers: list[dict[str, Any]], x: Any, y: Any, generator: Any) -> Any:
    """Return what is to become small."""
    return nn.cross_entropy(logits(layers, x, generator), y, label_smoothing=0.05)


def adam(layers: Any, grads: Any, moments: Any, step: int) -> None:
    """Move the weights, in place, against the mean gradient over its usual size."""
    rate = RATE * (1 - 0.9**step) ** -1 * (1 - 0.999**step) ** 0.5
    for layer, grad, moment in zip(layers, grads, moments, strict=True):
        for name, w in layer.items():
            mean, square = moment[name]
            mean += 0.1 * (grad[name] - mean)
            square += 0.001 * (grad[name] ** 2 - square)
            w -= rate * mean / (xt.sqrt(square) + 1e-8)


def train(seed: int = 0, *, quiet: bool = False) -> tuple[list[float], float, Any]:
    """Return the loss of each epoch, and of the 450 images the share read rightly and the confusion matrix."""
    generator = xt.random.default_rng(seed)
    x, y, x_test, y_test = data(generator)
    layers = start(generator)
    moments = [{name: (xt.zeros_like(w), xt.zeros_like(w)) for name, w in layer.items()} for layer in layers]
    losses, step = [], 0
    bar = tqdm(range(EPOCHS), desc="epochs", disable=quiet)
    for _ in bar:
        order, total = generator.permutation(x.shape[0]), 0.0
        for first in range(0, x.shape[0], BATCH):
            step += 1
            batch = order[first : first + BATCH]
            value, grads = loss(layers, x[batch], y[batch], generator)
            adam(layers, grads, moments, step)
            total += float(value) * batch.size
        losses.append(total / x.shape[0])
        bar.set_postfix(loss=f"{losses[-1]:.3f}")
    read = xt.argmax(logits(layers, x_test), axis=1)
    confusion = xt.sum(nn.one_hot(y_test, 10)[:, :, None] * nn.one_hot(read, 10)[:, None, :], axis=0)
    return losses, float(xt.mean(xt.astype(read == y_test, xt.float64))), confusion


def draw(losses: list[float], confusion: Any, file: str) -> None:
    """Write the loss curve and the confusion matrix as a figure."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 4), layout="constrained")
    left.plot(range(1, len(losses) + 1), losses, marker=".")
    left.set(xlabel="epoch", ylabel="cross entropy, smoothed labels", title="loss", ylim=0)
    right.imshow(confusion.numpy() ** 0.5, cmap="Blues")
    for row in range(10):
        for column in range(10):
            count = int(confusion[row, column])
            if count:
                right.text(column, row, count, ha="center", va="center", color="white" if count > 20 else "black")
    right.set(xlabel="read as", ylabel="written", xticks=range(10), yticks=range(10), title="450 test images")
    figure.savefig(file, dpi=120)


if __name__ == "__main__":
    losses, share, confusion = train()
    print(f"test accuracy {share:.1%}")
    if len(sys.argv) > 1:
        draw(losses, confusion, sys.argv[1])

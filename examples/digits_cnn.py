"""A small convolutional network learns to read handwritten digits: `python examples/digits_cnn.py`.

With a name of a file on the command line it writes a figure there, which needs matplotlib.
"""

from __future__ import annotations

import sys
from typing import Any

from digits import Layers, Learned, draw_confusion, draw_losses, learn, weights

import xtensor as xt
from xtensor import nn

EPOCHS, RATE = 15, 3e-3


def start(generator: Any) -> Layers:
    """Return random weights: 32, 64 and 128 filters of 3 x 3, and what makes ten numbers of what they leave."""
    shapes = ((32, 1, 3, 3), (64, 32, 3, 3), (128, 64, 3, 3), (10, 128 * 2 * 2))
    return [weights(generator, *shape) for shape in shapes]


def logits(layers: Layers, x: Any, generator: Any = None) -> Any:
    """Return the network's answer; with a generator, as for learning, some of what the last layer sees is dropped."""
    first, second, third, last = layers
    x = xt.reshape(x, (-1, 1, 8, 8))
    x = nn.gelu(nn.conv(x, first["w"], first["b"], padding="same"))
    x = nn.max_pool(nn.gelu(nn.conv(x, second["w"], second["b"], padding="same")), 2)
    x = nn.max_pool(nn.gelu(nn.conv(x, third["w"], third["b"], padding="same")), 2)
    x = xt.reshape(x, (x.shape[0], -1))
    if generator is not None:
        x = nn.dropout(x, 0.5, generator=generator)
    return nn.linear(x, last["w"], last["b"])


def train(seed: int = 0, *, epochs: int = EPOCHS, quiet: bool = False) -> Learned:
    """Return what becomes of random weights."""
    generator = xt.random.default_rng(seed)
    return learn(logits, start(generator), generator, epochs, RATE, quiet=quiet)


def draw(found: Learned) -> Any:
    """Return a figure of the loss, the filters of the first layer and the confusion matrix."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 4), layout="constrained")
    left, middle, right = figure.subfigures(1, 3, width_ratios=(4, 5, 4))
    draw_losses(left.subplots(), found.losses)
    filters = found.layers[0]["w"].numpy()[:, 0]
    largest = abs(filters).max()
    middle.suptitle("filters of the first layer")
    for axes, one in zip(middle.subplots(4, 8).flat, filters, strict=True):
        axes.imshow(one, cmap="RdBu", vmin=-largest, vmax=largest)
        axes.set_axis_off()
    draw_confusion(right.subplots(), found.confusion)
    return figure


if __name__ == "__main__":
    found = train()
    print(f"test accuracy {found.accuracy:.1%}")
    if len(sys.argv) > 1:
        draw(found).savefig(sys.argv[1], dpi=120)

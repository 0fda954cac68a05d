"""A small network learns to read scikit-learn's 1797 images of handwritten digits: `python examples/digits_mlp.py`.

With a name of a file on the command line it writes a figure there, which needs matplotlib.
"""

from __future__ import annotations

import sys
from itertools import pairwise
from typing import Any

from digits import Layers, Learned, draw_confusion, draw_losses, learn, weights

import xtensor as xt
from xtensor import nn

EPOCHS, RATE = 30, 3e-3
SIZES = (64, 128, 64, 10)


def logits(layers: Layers, x: Any, generator: Any = None) -> Any:
    """Return the network's answer; with a generator, as for learning, some of what it sees is dropped."""
    for layer in layers[:-1]:
        x = nn.gelu(nn.linear(x, layer["w"], layer["b"]))
        if generator is not None:
            x = nn.dropout(x, 0.1, generator=generator)
    return nn.linear(x, layers[-1]["w"], layers[-1]["b"])


def train(seed: int = 0, *, quiet: bool = False) -> Learned:
    """Return what becomes of random weights."""
    generator = xt.random.default_rng(seed)
    layers = [weights(generator, m, n) for n, m in pairwise(SIZES)]
    return learn(logits, layers, generator, EPOCHS, RATE, quiet=quiet)


def draw(found: Learned) -> Any:
    """Return a figure of the loss and the confusion matrix."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    draw_losses(left, found.losses)
    draw_confusion(right, found.confusion)
    return figure


if __name__ == "__main__":
    found = train()
    print(f"test accuracy {found.accuracy:.1%}")
    if len(sys.argv) > 1:
        draw(found).savefig(sys.argv[1], dpi=120)

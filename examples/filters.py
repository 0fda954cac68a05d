"""Filters of pictures as convolutions: `python examples/filters.py figure.png` blurs a photograph and finds its edges.

The photograph is one of scikit-learn's (the extra `demo`); the figure needs matplotlib.
"""

from __future__ import annotations

import sys
from typing import Any

from sklearn.datasets import load_sample_image

import xtensor as xt
from xtensor import nn


def photograph(name: str = "china.jpg") -> Any:
    """Return a picture (height, width, 3), of numbers from 0 to 1."""
    return xt.asarray(load_sample_image(name) / 255.0, dtype=xt.float32)


def blurred(picture: Any, sigma: float, padding_mode: Any = "reflect") -> Any:
    """Return a picture (height, width, channels) under a Gaussian bell, which is cut off at four sigma.

    The bell is one along the height times one along the width, so two narrow convolutions do. Each channel is a group.
    """
    radius, channels = int(4 * sigma + 0.5), picture.shape[2]
    bell = xt.exp(-0.5 * (xt.arange(-radius, radius + 1, dtype=picture.dtype) / sigma) ** 2)
    bell = bell / xt.sum(bell)
    for shape in ((1, 1, -1, 1), (1, 1, 1, -1)):
        w = xt.tile(xt.reshape(bell, shape), (channels, 1, 1, 1))
        picture = nn.conv(
            picture[None, ...], w, groups=channels, padding="same", padding_mode=padding_mode, layout="NHWC"
        )[0, ...]
    return picture


def slopes(grey: Any, padding_mode: Any = "reflect") -> Any:
    """Return how much brighter a picture (height, width) gets downwards, and to the right: (2, height, width).

    Sobel's filter, a difference along one axis that is smoothed along the other.
    """
    down = xt.asarray([[-1, -2, -1], [0, 0, 0], [1, 2, 1]], dtype=grey.dtype)
    w = xt.stack([down, down.T])[:, None, ...]
    return nn.conv(grey[None, None, ...], w, padding="same", padding_mode=padding_mode)[0, ...]


def edges(picture: Any) -> Any:
    """Return the lengths of the slopes of a picture's mean over its channels."""
    return xt.sqrt(xt.sum(slopes(xt.mean(picture, axis=2)) ** 2, axis=0))


def draw(picture: Any) -> Any:
    """Return a figure of a picture, blurred, and its edges."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 3.2), layout="constrained")
    shown = {"photograph": picture, "Gaussian, sigma 5": blurred(picture, 5.0), "edges by Sobel": edges(picture)}
    for axes, (title, one) in zip(figure.subplots(1, 3), shown.items(), strict=True):
        axes.imshow(one.numpy().clip(0, 1), cmap="gray_r")
        axes.set(title=title)
        axes.set_axis_off()
    return figure


if __name__ == "__main__":
    draw(photograph()).savefig(*sys.argv[1:], dpi=120)

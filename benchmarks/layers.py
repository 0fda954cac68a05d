"""Convolution layers of well-known networks, of 1 to 3 axes, transposed ones too: our time, and how many times that of
PyTorch's faster layout it is. Forward, and the gradients of data and of weights.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

import xtensor as xt

from .convolution import PAUSE, WHAT
from .measure import print_table, repeated, take_turns, warmed
from .progress import progress

# Ratios from which on a layer is marked.
BEHIND = 1.5
LAYOUTS = {1: ("NCW", "NWC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}


class Layer(NamedTuple):
    """A layer: its input (batch, channels, *lengths), window, outputs, and what convolutions are told besides."""

    shape: tuple[int, ...]
    window: tuple[int, ...]
    outputs: int
    stride: int = 1
    padding: int | tuple[int, ...] = 0
    dilation: int = 1
    groups: int = 1
    transposed: bool = False

    @property
    def rank(self) -> int:
        """The number of spatial axes."""
        return len(self.window)

    @property
    def kind(self) -> dict[str, Any]:
        """The keyword arguments of both libraries."""
        return {"stride": self.stride, "padding": self.padding, "dilation": self.dilation, "groups": self.groups}

    def arrays(self) -> list[Any]:
        """Return input and weights."""
        channels, rng = self.shape[1], np.random.default_rng(0)
        pair = (channels, self.outputs) if self.transposed else (self.outputs, channels)
        shapes = [self.shape, (pair[0], pair[1] // self.groups, *self.window)]
        return [rng.normal(size=shape).astype(np.float32) for shape in shapes]


LAYERS = {
    "EfficientNet 24 -> 144": Layer((8, 24, 56, 56), (1, 1), 144),
    "EfficientNet 144 -> 24": Layer((8, 144, 56, 56), (1, 1), 24),
    "EfficientNet 672 -> 112": Layer((8, 672, 14, 14), (1, 1), 112),
    "EfficientNet stem": Layer((8, 3, 224, 224), (3, 3), 32, 2, 1),
    "EfficientNet depthwise 5x5": Layer((8, 672, 14, 14), (5, 5), 672, 1, 2, 1, 672),
    "ResNet downsample": Layer((8, 256, 56, 56), (1, 1), 512, 2),
    "ResNet, one image": Layer((1, 256, 14, 14), (3, 3), 256, 1, 1),
    "ResNeXt": Layer((8, 128, 28, 28), (3, 3), 128, 1, 1, 1, 32),
    "ShuffleNet": Layer((8, 240, 28, 28), (1, 1), 240, groups=3),
    "DenseNet": Layer((8, 128, 28, 28), (3, 3), 32, 1, 1),
    "Inception 1x7": Layer((8, 128, 17, 17), (1, 7), 128, 1, (0, 3)),
    "Inception 5x5": Layer((8, 48, 35, 35), (5, 5), 64, 1, 2),
    "ConvNeXt depthwise 7x7": Layer((8, 96, 56, 56), (7, 7), 96, 1, 3, 1, 96),
    "ConvNeXt downsample": Layer((8, 96, 56, 56), (2, 2), 192, 2),
    "Swin patches": Layer((8, 3, 224, 224), (4, 4), 96, 4),
    "ViT patches": Layer((4, 3, 224, 224), (16, 16), 768, 16),
    "VGG first": Layer((4, 3, 224, 224), (3, 3), 64, 1, 1),
    "DeepLab, dilated by 12": Layer((1, 256, 33, 33), (3, 3), 64, 1, 12, 12),
    "U-Net": Layer((1, 64, 128, 128), (3, 3), 64, 1, 1),
    "U-Net up": Layer((1, 128, 64, 64), (2, 2), 64, 2, transposed=True),
    "U-Net last": Layer((1, 64, 128, 128), (1, 1), 2),
    "DCGAN first": Layer((16, 100, 1, 1), (4, 4), 256, transposed=True),
    "DCGAN up": Layer((16, 128, 16, 16), (4, 4), 64, 2, 1, transposed=True),
    "DCGAN down": Layer((16, 64, 32, 32), (4, 4), 128, 2, 1),
    "DCGAN last": Layer((16, 512, 4, 4), (4, 4), 1),
    "VGG fully connected": Layer((8, 512, 7, 7), (7, 7), 256),
    "LeNet first": Layer((64, 1, 28, 28), (5, 5), 6, 1, 2),
    "DQN first": Layer((32, 4, 84, 84), (8, 8), 32, 4),
    "digits": Layer((64, 1, 28, 28), (3, 3), 32),
    "multiplier of 2": Layer((4, 32, 28, 28), (3, 3), 64, 1, 1, 1, 32),
    "EEGNet in time": Layer((32, 1, 64, 256), (1, 64), 8, 1, (0, 32)),
    "EEGNet in space": Layer((32, 8, 64, 256), (64, 1), 16, groups=8),
    "wav2vec first": Layer((1, 1, 16000), (10,), 512, 5),
    "wav2vec second": Layer((1, 512, 3199), (3,), 512, 2),
    "Conv-TasNet": Layer((2, 128, 2000), (3,), 128, 1, 8, 8, 128),
    "temporal, dilated by 32": Layer((16, 32, 256), (3,), 32, 1, 32, 32),
    "text": Layer((32, 300, 50), (5,), 100),
    "3-d": Layer((1, 16, 48, 48, 48), (3, 3, 3), 16, 1, 1),
}


def main(quick: bool = False) -> None:
    """Print the table."""
    layers = list(LAYERS.items())[: 3 if quick else None]
    rows = [row(name, layer, quick) for name, layer in progress(layers, len(layers))]
    heading = ["layer", *[f"{what}{layout}" for what in WHAT for layout in (" ms", "", ", last")], ""]
    print_table(
        "Our time of channels first, and how many times PyTorch's it is, channels first and last", heading, rows
    )


def row(name: str, layer: Layer, quick: bool) -> list[str]:
    """Return the cells of a layer."""
    calls = ours(layer) | (theirs(layer) if find_spec("torch") else {})
    least = {key: warmed(call, 0.01 if quick else 0.06) for key, call in calls.items()}
    turns = {key: repeated(call, least[key], pause=PAUSE) for key, call in calls.items()}
    times = {key: one.least for key, one in take_turns(turns, 2 if quick else 5).items()}
    cells, worst = [name], 0.0
    for what in WHAT:
        best = min([time for key, time in times.items() if key[:2] == ("torch", what)], default=float("nan"))
        ratios = [times["xtensor", what, layout] / best for layout in LAYOUTS[layer.rank]]
        worst = max(worst, *ratios)
        cells += [f"{1e3 * times['xtensor', what, LAYOUTS[layer.rank][0]]:.3f}", *[f"{one:.2f}" for one in ratios]]
    return [*cells, "<" if worst > BEHIND else ""]


Calls = dict[tuple[str, str, str], Callable[[], Any]]  # by library, what is computed, and layout


def ours(layer: Layer) -> Calls:
    """Return our calls."""
    calls, (x, w) = Calls(), layer.arrays()
    for layout in LAYOUTS[layer.rank]:
        lying = x if layout[1] == "C" else np.ascontiguousarray(np.moveaxis(x, 1, -1))
        given, weights = xt.asarray(lying, copy=True), xt.asarray(w, copy=True)
        conv = partial(xt.nn.conv_transpose if layer.transposed else xt.nn.conv, layout=layout, **layer.kind)
        y, of_data = xt.vjp(lambda x, conv=conv, w=weights: conv(x, w), given)
        _, of_weights = xt.vjp(lambda w, conv=conv, x=given: conv(x, w), weights)
        g = xt.asarray(y.numpy(), copy=True)
        calls["xtensor", "forward", layout] = lambda conv=conv, x=given, w=weights: conv(x, w).evaluate()
        calls["xtensor", "data", layout] = lambda back=of_data, g=g: xt.evaluate(*back(g))
        calls["xtensor", "weights", layout] = lambda back=of_weights, g=g: xt.evaluate(*back(g))
    return calls


def theirs(layer: Layer) -> Calls:
    """Return PyTorch's calls; with one axis it has a single layout."""
    torch: Any = import_module("torch")
    orders = [torch.contiguous_format, *{2: [torch.channels_last], 3: [torch.channels_last_3d]}.get(layer.rank, [])]
    conv = getattr(torch.nn.functional, f"conv{'_transpose' * layer.transposed}{layer.rank}d")
    pad = [layer.padding] * layer.rank if isinstance(layer.padding, int) else list(layer.padding)
    rest: Any = (None, [layer.stride] * layer.rank, pad, [layer.dilation] * layer.rank, layer.transposed)
    calls = Calls()
    for layout, order in zip(LAYOUTS[layer.rank], orders, strict=False):
        x, w = (torch.tensor(a).contiguous(memory_format=order) for a in layer.arrays())
        back = partial(
            torch.ops.aten.convolution_backward, conv(x, w, **layer.kind), x, w, *rest, [0] * layer.rank, layer.groups
        )
        calls["torch", "forward", layout] = partial(conv, x, w, **layer.kind)
        calls["torch", "data", layout] = partial(back, [True, False, False])
        calls["torch", "weights", layout] = partial(back, [False, True, False])
    return calls

"""Convolution layers, forward: beside the rate of NumPy's matrix product in the same run, beside PyTorch, and with what
follows them beside the layers alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

import xtensor as xt

from .measure import Times, print_table, repeated, take_turns, warmed
from .progress import progress

# A product so large that NumPy's library is at its best.
PRODUCT = 2048


class Layer(NamedTuple):
    """One layer, its padding half the window."""

    batch: int
    channels: int
    size: int
    window: int
    stride: int
    outputs: int
    groups: int = 1

    def __str__(self) -> str:
        kind = ", depthwise" if self.groups > 1 else f" -> {self.outputs}"
        step = f" / {self.stride}" if self.stride > 1 else ""
        shape = f"{self.batch}x{self.channels}x{self.size}x{self.size}"
        return f"{shape}, {self.window}x{self.window}{step}{kind}"

    @property
    def operations(self) -> int:
        """Multiplications and additions."""
        out = (self.size + 2 * (self.window // 2) - self.window) // self.stride + 1
        return 2 * self.batch * self.outputs * out**2 * self.channels // self.groups * self.window**2

    @property
    def kind(self) -> dict[str, int]:
        """What convolutions are told besides their arrays."""
        return {"stride": self.stride, "padding": self.window // 2, "groups": self.groups}

    def arrays(self) -> list[Any]:
        """Return input, weights and bias."""
        rng = np.random.default_rng(0)
        shapes = [(self.batch, self.channels, self.size, self.size)]
        shapes += [(self.outputs, self.channels // self.groups, self.window, self.window), (self.outputs,)]
        return [rng.normal(size=shape).astype(np.float32) for shape in shapes]


LAYERS = (
    Layer(8, 3, 224, 7, 2, 64),
    Layer(8, 64, 56, 3, 1, 64),
    Layer(8, 64, 56, 1, 1, 256),
    Layer(8, 128, 28, 3, 1, 128),
    Layer(8, 256, 14, 3, 1, 256),
    Layer(8, 512, 7, 3, 1, 512),
    Layer(8, 32, 56, 3, 1, 32),
    Layer(8, 96, 56, 3, 1, 96, 96),
)
LAYOUTS = ("NCHW", "NHWC")
HEADING_FOLLOWED = ["layer", "layout", "alone ms", "bias, relu", "apart", "and residual", "apart", "one read"]
HEADING = ["layer", "xtensor", "channels last", "backward", "/ product", "torch", "/ torch", "/ torch backward"]


def main(quick: bool = False) -> None:
    """Print the table."""
    rows = [row(layer, quick) for layer in progress(LAYERS, len(LAYERS))]
    title = "Convolution, float32, GFLOP/s; the product is NumPy's of 2048x2048 matrices, backward is data and weights"
    print_table(title, HEADING, rows)
    dense = [layer for layer in LAYERS if layer.groups == 1]
    followed = [row_followed(layer, layout, quick) for layer in progress(dense, len(dense)) for layout in LAYOUTS]
    title = "What follows a convolution, float32: the time over that of the convolution alone"
    print_table(title, HEADING_FOLLOWED, followed)


def row_followed(layer: Layer, layout: str, quick: bool) -> list[str]:
    """Return a layer's time alone, and with a bias, a rectifier and a residual, computed with it or apart.

    A residual may cost what reading it takes beside that: half of what copying it does.
    """
    calls = followed(layer, layout)
    least = {name: warmed(call, 0.01 if quick else 0.1) for name, call in calls.items()}
    turns = {name: repeated(call, least[name], pause=0.02) for name, call in calls.items()}
    times = {name: one.least for name, one in take_turns(turns, 2 if quick else 15).items()}
    alone = times["alone"]
    cells = [f"{times[name] / alone:.3f}" for name in ("relu", "relu apart", "residual", "residual apart")]
    return [str(layer), layout, f"{alone * 1e3:.2f}", *cells, f"{times['copy'] / 2 / alone:.3f}"]


def followed(layer: Layer, layout: str) -> dict[str, Callable[[], Any]]:
    """Return what is timed of a layer with what follows it, by name."""
    last, (x, w, bias) = layout == "NHWC", layer.arrays()
    given = xt.asarray(np.moveaxis(x, 1, -1) if last else x, copy=True), xt.asarray(w, copy=True)
    beside = xt.asarray(bias if last else bias.reshape(-1, 1, 1), copy=True)
    conv = partial(xt.nn.conv, *given, layout=layout, **layer.kind)
    source: Any = np.ones(conv().shape, np.float32)
    residual, target = xt.asarray(source, copy=True), np.empty_like(source)

    def apart() -> xt.Tensor:
        return conv().evaluate()

    return {
        "alone": apart,
        "relu": lambda: xt.nn.relu(conv() + beside).evaluate(),
        "relu apart": lambda: xt.nn.relu(apart() + beside).evaluate(),
        "residual": lambda: (xt.nn.relu(conv() + beside) + residual).evaluate(),
        "residual apart": lambda: (xt.nn.relu(apart() + beside) + residual).evaluate(),
        "copy": lambda: np.copyto(target, source),
    }


def row(layer: Layer, quick: bool) -> list[str]:
    """Return a layer's rates, its share of the product's, and how they compare with PyTorch's."""
    calls = contestants(layer)
    least = {name: warmed(call, 0.01 if quick else 0.3) for name, call in calls.items()}
    turns = {name: repeated(call, least[name], pause=0.02) for name, call in calls.items()}
    times = take_turns(turns, 2 if quick else 9)
    rates = {name: layer.operations / times[name].least / 1e9 for name in ("xtensor", "last")}
    rates["backward"] = 2 * layer.operations / times["backward"].least / 1e9
    product = 2 * PRODUCT**3 / times["product"].least / 1e9
    cells = [f"{rates[name]:.0f}" for name in ("xtensor", "last", "backward")]
    cells.append(f"{rates['xtensor'] / product:.2f}")
    return [str(layer), *cells, *torch_cells(layer, times)]


def torch_cells(layer: Layer, times: dict[str, Times]) -> list[str]:
    """Return PyTorch's rate and our share of it, forward and backward."""
    if "torch" not in times:
        return ["-"] * 3
    rate = layer.operations / times["torch"].least / 1e9
    forward, backward = (
        times[theirs].least / times[ours].least
        for ours, theirs in (("xtensor", "torch"), ("backward", "torch backward"))
    )
    return [f"{rate:.0f}", f"{forward:.2f}", f"{backward:.2f}"]


def contestants(layer: Layer) -> dict[str, Callable[[], Any]]:
    """Return what is timed, by name."""
    arrays = layer.arrays()
    x, w, bias = (xt.asarray(a, copy=True) for a in arrays)
    last = xt.asarray(np.ascontiguousarray(np.moveaxis(arrays[0], 1, -1)), copy=True)
    conv = partial(xt.nn.conv, **layer.kind)
    y, back = xt.vjp(lambda x, w: conv(x, w, bias), x, w)
    cotangent = xt.ones_like(y)
    matrix: Any = np.ones((PRODUCT, PRODUCT), np.float32)
    target: Any = np.empty_like(matrix)
    calls: dict[str, Callable[[], Any]] = {
        "product": lambda: np.matmul(matrix, matrix, out=target),
        "xtensor": lambda: conv(x, w, bias),
        "last": lambda: conv(last, w, bias, layout="NHWC"),
        "backward": lambda: xt.evaluate(*back(cotangent)),
    }
    if find_spec("torch"):
        calls.update(torch_calls(layer, arrays))
    return calls


def torch_calls(layer: Layer, arrays: list[Any]) -> dict[str, Callable[[], Any]]:
    """Return PyTorch's forward and backward, in its default layout."""
    torch: Any = import_module("torch")
    x, w, bias = (torch.tensor(a) for a in arrays)
    conv = partial(torch.nn.functional.conv2d, **layer.kind)
    wanted = [x.clone().requires_grad_(), w.clone().requires_grad_()]
    y = conv(*wanted, bias)
    cotangent = torch.ones_like(y)

    def forward() -> Any:
        with torch.no_grad():
            return conv(x, w, bias)

    return {
        "torch": forward,
        "torch backward": lambda: torch.autograd.grad(y, wanted, cotangent, retain_graph=True),
    }

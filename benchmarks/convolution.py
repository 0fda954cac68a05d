"""Convolution layers in both layouts, forward and both gradients, beside the faster of PyTorch's two layouts; and with
what follows them beside the layers alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from statistics import median
from time import thread_time
from typing import Any, NamedTuple

import numpy as np

import xtensor as xt

from .measure import Times, print_table, repeated, take_turns, warmed
from .progress import progress
from .report import BUSY

# Seconds before each measurement: PyTorch's threads spin for 5 to 7 ms after a call, on the cores that others want.
PAUSE = 0.02
LAYOUTS = ("NCHW", "NHWC")
WHAT = ("forward", "data", "weights")


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
        kind = f" -> {self.outputs}" + (f", {self.groups} groups" if self.groups > 1 else "")
        step = f" / {self.stride}" if self.stride > 1 else ""
        shape = f"{self.batch}x{self.channels}x{self.size}x{self.size}"
        return f"{shape}, {self.window}x{self.window}{step}{kind}"

    @property
    def family(self) -> str:
        """What its figures are summed up with."""
        if self.groups > 1:
            return "depthwise" if self.groups == self.channels else "grouped"
        return "3x3, stride 1" if (self.window, self.stride) == (3, 1) else "other dense"

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
        """Return input, channels first, weights and bias."""
        rng = np.random.default_rng(0)
        shapes = [(self.batch, self.channels, self.size, self.size)]
        shapes += [(self.outputs, self.channels // self.groups, self.window, self.window), (self.outputs,)]
        return [rng.normal(size=shape).astype(np.float32) for shape in shapes]


# Of ResNet-50, MobileNetV2, a small network for small images, and ResNeXt-50.
LAYERS = (
    Layer(8, 3, 224, 7, 2, 64),
    Layer(8, 64, 56, 1, 1, 64),
    Layer(8, 64, 56, 1, 1, 256),
    Layer(8, 256, 56, 1, 1, 64),
    Layer(8, 1024, 14, 1, 1, 256),
    Layer(8, 2048, 7, 1, 1, 512),
    Layer(8, 128, 56, 3, 2, 128),
    Layer(8, 256, 28, 3, 2, 256),
    Layer(8, 3, 112, 3, 2, 32),
    Layer(8, 32, 56, 5, 1, 32),
    Layer(8, 32, 56, 3, 1, 32),
    Layer(8, 64, 56, 3, 1, 64),
    Layer(8, 128, 28, 3, 1, 128),
    Layer(8, 256, 14, 3, 1, 256),
    Layer(8, 512, 7, 3, 1, 512),
    Layer(1, 64, 56, 3, 1, 64),
    Layer(8, 96, 56, 3, 1, 96, 96),
    Layer(8, 144, 28, 3, 2, 144, 144),
    Layer(8, 128, 56, 3, 1, 128, 32),
    Layer(8, 256, 14, 3, 1, 256, 32),
)
HEADING_FOLLOWED = ["layer", "layout", "alone ms", "bias, relu", "apart", "and residual", "apart", "one read"]
HEADING = ["layer", "algorithm", "GFLOP/s", "NCHW", "NHWC", "data", "NHWC", "weights", "NHWC"]

Rates = dict[tuple[str, str], float]  # by what is computed, and the layout


def main(quick: bool = False) -> None:
    """Print the table, and what it comes to."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    busy = load > BUSY
    with xt.options(threads=1 if busy else None):
        found = {layer: rates(layer, quick, busy) for layer in progress(LAYERS, len(LAYERS))}
    title = "Convolution, float32: GFLOP/s of the faster of PyTorch's layouts, forward, and times as fast in ours"
    print_table(title, HEADING, [row(layer, *one) for layer, one in found.items()])
    families = {family: [layer for layer in LAYERS if layer.family == family] for family in {x.family for x in LAYERS}}
    families["all dense"] = [layer for layer in LAYERS if layer.groups == 1]
    rows = [summed(family, [found[layer][1] for layer in layers]) for family, layers in sorted(families.items())]
    print_table("Median (and worst) of both layouts", ["layers", *WHAT], rows)
    dense = [layer for layer in LAYERS if layer.groups == 1]
    with xt.options(threads=1 if busy else None):
        followed = [
            row_followed(layer, layout, quick, busy) for layer in progress(dense, len(dense)) for layout in LAYOUTS
        ]
    title = "What follows a convolution, float32: the time over that of the convolution alone"
    print_table(title, HEADING_FOLLOWED, followed)
    print(f"\nLoad average before the run: {load:.1f}" + "; processor time of one thread each" * busy)


def row_followed(layer: Layer, layout: str, quick: bool, busy: bool) -> list[str]:
    """Return a layer's time alone, and with a bias, a rectifier and a residual, computed with it or apart.

    A residual may cost what reading it takes beside that: half of what copying it does. busy: as in `rates`.
    """
    calls = followed(layer, layout)
    least = {name: warmed(call, 0.01 if quick or busy else 0.1) for name, call in calls.items()}
    turns = {name: repeated(call, least[name], pause=PAUSE) for name, call in calls.items()}
    if busy:
        turns = {name: partial(thread_seconds, call) for name, call in calls.items()}
    times = {name: one.least for name, one in take_turns(turns, 2 if quick else 15).items()}
    alone = times["alone"]
    cells = [f"{times[name] / alone:.3f}" for name in ("relu", "relu apart", "residual", "residual apart")]
    return [str(layer), layout, f"{alone * 1e3:.2f}", *cells, f"{times['copy'] / 2 / alone:.3f}"]


def followed(layer: Layer, layout: str) -> dict[str, Callable[[], Any]]:
    """Return what is timed of a layer with what follows it, by name."""
    last, (x, w, bias) = layout == "NHWC", layer.arrays()
    x = np.ascontiguousarray(np.moveaxis(x, 1, -1)) if last else x
    given = xt.asarray(x, copy=True), xt.asarray(w, copy=True)
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


def row(layer: Layer, rate: float, times: Rates) -> list[str]:
    """Return the cells of a layer."""
    x, w, _ = (xt.asarray(a) for a in layer.arrays())
    algorithm = xt.nn.conv_algorithm(x, w, **layer.kind).partition(":")[0]
    cells = [f"{times[what, layout]:.2f}" if times else "-" for what in WHAT for layout in LAYOUTS]
    return [str(layer), algorithm, f"{rate:.0f}", *cells]


def summed(family: str, layers: Sequence[Rates]) -> list[str]:
    """Return what the layers of a family come to."""
    cells = []
    for what in WHAT:
        times = [found[what, layout] for found in layers if found for layout in LAYOUTS]
        cells.append(f"{median(times):.2f} ({min(times):.2f})" if times else "-")
    return [family, *cells]


def rates(layer: Layer, quick: bool, busy: bool) -> tuple[float, Rates]:
    """Return a layer's rate in PyTorch, and how many times as fast we are; of ours and none without PyTorch.

    busy: whether to measure the processor time of one thread, which other processes do not take part in.
    """
    calls = contestants(layer)
    if busy and find_spec("torch"):
        import_module("torch").set_num_threads(1)
    least = {name: warmed(call, 0.01 if quick or busy else 0.1) for name, call in calls.items()}
    turns = {name: repeated(call, least[name], pause=PAUSE) for name, call in calls.items()}
    if busy:
        turns = {name: partial(thread_seconds, call) for name, call in calls.items()}
    times = take_turns(turns, 2 if quick else 9)
    by = "torch" if ("torch", "forward", "NCHW") in calls else "xtensor"
    best = {what: min(times[by, what, layout].least for layout in LAYOUTS) for what in WHAT}
    rate = layer.operations / best["forward"] / 1e9
    return rate, {} if by == "xtensor" else compared(times, best)


def thread_seconds(call: Callable[[], Any]) -> float:
    """Return the processor time that one call takes of this thread, after another one."""
    call()
    start = thread_time()
    call()
    return thread_time() - start


def compared(times: dict[tuple[str, str, str], Times], best: dict[str, float]) -> Rates:
    """Return how many times as fast we are in each layout."""
    return {(what, layout): best[what] / times["xtensor", what, layout].least for what in WHAT for layout in LAYOUTS}


def contestants(layer: Layer) -> dict[tuple[str, str, str], Callable[[], Any]]:
    """Return what is timed, by library, what is computed, and layout."""
    calls: dict[tuple[str, str, str], Callable[[], Any]] = {}
    arrays = layer.arrays()
    for layout in LAYOUTS:
        given = np.ascontiguousarray(np.moveaxis(arrays[0], 1, -1)) if layout == "NHWC" else arrays[0]
        x, w, bias = (xt.asarray(a, copy=True) for a in (given, *arrays[1:]))
        conv = partial(xt.nn.conv, layout=layout, **layer.kind)
        calls["xtensor", "forward", layout] = lambda conv=conv, given=(x, w, bias): conv(*given).evaluate()
        y, of_data = xt.vjp(lambda x, conv=conv, w=w: conv(x, w), x)
        _, of_weights = xt.vjp(lambda w, conv=conv, x=x: conv(x, w), w)
        cotangent = xt.asarray(y.numpy(), copy=True)
        calls["xtensor", "data", layout] = lambda back=of_data, g=cotangent: xt.evaluate(*back(g))
        calls["xtensor", "weights", layout] = lambda back=of_weights, g=cotangent: xt.evaluate(*back(g))
        if find_spec("torch"):
            for what, call in torch_calls(layer, arrays, layout).items():
                calls["torch", what, layout] = call
    return calls


def torch_calls(layer: Layer, arrays: list[Any], layout: str) -> dict[str, Callable[[], Any]]:
    """Return PyTorch's forward and backward, its default layout or channels last."""
    torch: Any = import_module("torch")
    order = torch.channels_last if layout == "NHWC" else torch.contiguous_format
    x, w = (torch.tensor(a).contiguous(memory_format=order) for a in arrays[:2])
    bias, pair = torch.tensor(arrays[2]), [layer.window // 2] * 2
    conv = partial(torch.nn.functional.conv2d, **layer.kind)
    cotangent = conv(x, w).contiguous(memory_format=order)
    rest = None, [layer.stride] * 2, pair, [1, 1], False, [0, 0], layer.groups
    back = partial(torch.ops.aten.convolution_backward, cotangent, x, w, *rest)

    def forward() -> Any:
        with torch.no_grad():
            return conv(x, w, bias)

    return {
        "forward": forward,
        "data": lambda: back([True, False, False]),
        "weights": lambda: back([False, True, False]),
    }

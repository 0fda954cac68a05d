"""Every parameter of every function over windows, against plain loops that know nothing of ours."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import xtensor as xt
from xtensor import nn
from xtensor.nn import windows

Array = np.ndarray[Any, Any]
Pairs = list[tuple[int, int]]
MODES = {"zeros": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def normal(*shape: int) -> Array:
    """Return normal numbers of a shape."""
    return np.random.default_rng(shape).normal(size=shape)


# ---- regions


@pytest.mark.parametrize("by_elements", [False, True])
@pytest.mark.parametrize("seed", range(30))
def test_regions_are_all_pairs_of_outputs_and_elements_inside(seed: int, by_elements: bool) -> None:
    rng = np.random.default_rng(seed)
    axes = []
    for _ in range(2):
        out, kernel, stride, dilation = (int(n) for n in rng.integers([1, 1, 1, 1], [30, 6, 3, 12]))
        low = int(rng.integers(-3, dilation * kernel))
        axes.append(windows.Axis(int(rng.integers(1, 40)), out, kernel, stride, dilation, low))
    parts = windows.regions(tuple(axes), 1 << 40, by_elements=by_elements)
    counts = np.zeros([axis.out for axis in axes] + [axis.kernel for axis in axes], int)
    for part in parts:
        counts[(*part.outputs, *part.elements)] += 1
        for number, (axis, own) in enumerate(zip(axes, part.axes, strict=True)):
            if own is axis:
                continue
            outputs, elements = part.outputs[number], part.elements[number]
            begin = outputs.start * axis.stride - axis.low + elements.start * axis.dilation
            assert (own.low, part.sources[number]) == (0, slice(begin, begin + own.size))
            assert begin >= 0
            assert begin + (own.out - 1) * own.stride + own.span <= axis.size
    assert counts.max() == 1
    inside = [[axis.inside(k)[0] for k in range(axis.kernel)] for axis in axes]
    for place in np.ndindex(*counts.shape):
        there = [one[k].start <= o < one[k].stop for one, o, k in zip(inside, place[:2], place[2:], strict=True)]
        assert counts[place] or not all(there)


def test_dilated_windows_on_a_small_image_are_divided() -> None:
    axis = windows.Axis(33, 33, 3, 1, 12, 12)
    assert [len(windows.regions((axis, axis), 1 << 14, by_elements=way)) for way in (False, True)] == [9, 9]
    assert len(windows.regions((axis, axis), 1)) == 1
    assert len(windows.regions((axis._replace(dilation=1, low=1),) * 2, 1 << 14)) == 1


# ---- plain loops over two spatial axes


def places(lengths: Any, window: Any, stride: Any, dilation: Any) -> Any:
    """Yield each output with the positions of its window in the padded input."""
    counts = [(n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(lengths, window, stride, dilation, strict=True)]
    for out in np.ndindex(*counts):
        yield out, np.ix_(*[o * s + np.arange(k) * d for o, k, s, d in zip(out, window, stride, dilation, strict=True)])


def padded(x: Array, padding: Pairs, mode: str, **kind: Any) -> Array:
    """Return an array with its last two axes padded, or cut where the padding is negative."""
    cut = [slice(max(-low, 0), n - max(-high, 0)) for n, (low, high) in zip(x.shape[-2:], padding, strict=True)]
    added = [(0, 0)] * (x.ndim - 2) + [(max(low, 0), max(high, 0)) for low, high in padding]
    return np.pad(x[..., *cut], added, mode=MODES[mode], **kind)  # type: ignore[call-overload,no-any-return]


def conv_loops(
    x: Array, w: Array, bias: Array, *, stride: Any, padding: Pairs, dilation: Any, groups: int, mode: str
) -> Array:
    """Return the convolution, an output at a time."""
    x = padded(x, padding, mode)
    found: dict[Any, Array] = {}
    for out, window in places(x.shape[2:], w.shape[2:], stride, dilation):
        part = x[:, :, *window].reshape(x.shape[0], groups, w.shape[1], -1)
        own = w.reshape(groups, -1, w.shape[1], part.shape[-1])
        found[out] = np.einsum("ngcw,gkcw->ngk", part, own).reshape(x.shape[0], -1) + bias
    return stacked(found)


def stacked(found: dict[Any, Array]) -> Array:
    """Return values (batch, channels) by place as one array."""
    y = np.empty((*next(iter(found.values())).shape, *(n + 1 for n in max(found))))
    for out, values in found.items():
        y[:, :, *out] = values
    return y


def transpose_loops(
    x: Array, w: Array, bias: Array, *, stride: Any, padding: Pairs, dilation: Any, groups: int, mode: str, more: Any
) -> Array:
    """Return the transposed convolution, an input at a time: its windows are added where they lie."""
    full = [
        (n - 1) * s + d * (k - 1) + 1 + e
        for n, s, d, k, e in zip(x.shape[2:], stride, dilation, w.shape[2:], more, strict=True)
    ]
    whole = np.zeros((x.shape[0], w.shape[1] * groups, *full))
    for out, window in places([n - e for n, e in zip(full, more, strict=True)], w.shape[2:], stride, dilation):
        part = x[:, :, *out].reshape(x.shape[0], groups, -1)
        own = w.reshape(groups, -1, *w.shape[1:])
        whole[:, :, *window] += np.einsum("ngc,gckhw->ngkhw", part, own).reshape(*whole.shape[:2], *w.shape[2:])
    lengths = [n - low - high for n, (low, high) in zip(full, padding, strict=True)]
    numbers = np.arange(np.prod(lengths)).reshape(lengths)
    kind: dict[str, Any] = {"constant_values": -1} if mode == "zeros" else {}
    sources = padded(numbers, padding, mode, **kind)
    y = np.zeros((*whole.shape[:2], numbers.size))
    for place, source in np.ndenumerate(sources):
        if source >= 0:
            y[:, :, source] += whole[:, :, *place]
    return y.reshape(*whole.shape[:2], *lengths) + bias[:, None, None]


def pool_loops(
    x: Array, *, kernel: Any, stride: Any, padding: Pairs, dilation: Any, ceil: bool, of: Callable[[Array, int], Any]
) -> Array:
    """Return what `of` makes of the elements inside each window, and the number with those of the padding."""
    spans = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    counts = []
    for n, (low, high), span, s in zip(x.shape[2:], padding, spans, stride, strict=True):
        count = (n + low + high - span) / s + 1
        counts.append(int(np.ceil(count)) if ceil else int(count))
        counts[-1] -= ceil and (counts[-1] - 1) * s >= n + low
    found: dict[Any, Array] = {}
    for out in np.ndindex(*counts):
        at = [
            o * s - low + np.arange(k) * d
            for o, s, (low, _), k, d in zip(out, stride, padding, kernel, dilation, strict=True)
        ]
        inside = [a[(a >= 0) & (a < n)] for a, n in zip(at, x.shape[2:], strict=True)]
        reached = [int((a < n + high).sum()) for a, n, (_, high) in zip(at, x.shape[2:], padding, strict=True)]
        found[out] = of(x[:, :, *np.ix_(*inside)].reshape(*x.shape[:2], -1), int(np.prod(reached)))
    return stacked(found)


# ---- the cases: a parameter, and values for it; the others keep the values below

CONV = {"stride": (2, 1), "padding": [(1, 2), (0, 1)], "dilation": (1, 2), "groups": 2}
EACH: dict[str, list[Any]] = {
    "stride": [1, 3, (1, 2)],
    "padding": [0, 2, (1, 0), [(2, -1), (0, 3)]],
    "dilation": [1, (2, 1), 3],
    "groups": [1, 4],
    "layout": ["NCHW", "NHWC", ("NCHW", "NHWC"), ("NHWC", "NCHW")],
    "padding_mode": ["zeros", "reflect", "replicate", "circular"],
    "output_padding": [0, (1, 0), (1, 1)],
    "workspace_mb": [0.05, 1, 64.0],
    "algorithm": ["auto", "direct", "im2col", "tune"],
}
POOL = {"stride": (2, 1), "padding": [(1, 0), (0, 1)], "dilation": (1, 2)}
POOLS: dict[str, list[Any]] = {
    "stride": [None, 1, 3, (1, 2)],
    "padding": [0, 1, (1, 0), [(2, 1), (0, 1)]],
    "dilation": [1, (1, 2), 2],
    "ceil_mode": [False, True],
    "layout": [None, "NCHW", "NHWC"],
    "count_include_pad": [False, True],
    "divisor": [None, 3],
    "p": [1, 2, 3.5],
}
CONVS, WINDOWS = ("conv", "conv_transpose"), ("max_pool", "max_pool_with_indices", "avg_pool", "lp_pool")


def parameters(name: str) -> list[str]:
    """Return the names of a function's keyword parameters."""
    return [p.name for p in inspect.signature(getattr(nn, name)).parameters.values() if p.kind is p.KEYWORD_ONLY]


def cases(names: tuple[str, ...], values: dict[str, list[Any]]) -> list[Any]:
    """Return each value of each parameter of each function."""
    return [(name, one, value) for name in names for one in parameters(name) for value in values[one]]


def two(value: Any) -> Any:
    """Return a number, or two, as two."""
    return value if isinstance(value, (tuple, list)) else (value, value)


def turned(x: Array, last: bool) -> Array:
    """Return an array with its channels last."""
    return np.ascontiguousarray(np.moveaxis(x, 1, -1)) if last else x


@pytest.mark.parametrize(("name", "parameter", "value"), cases(CONVS, EACH), ids=str)
def test_conv(name: str, parameter: str, value: Any) -> None:
    """Every value of every parameter of conv and conv_transpose, in float64."""
    kind: dict[str, Any] = CONV | ({"output_padding": 0} if name == "conv_transpose" else {}) | {parameter: value}
    groups, (x_last, y_last) = kind["groups"], [one == "NHWC" for one in two(kind.get("layout"))]
    x, bias = normal(2, 4, 7, 8), normal(8)
    w = normal(8, 4 // groups, 3, 2) if name == "conv" else normal(4, 8 // groups, 3, 2)
    plain = {name: two(kind[name]) for name in ("stride", "dilation", "padding")} | {"groups": groups}
    plain |= {"padding": [two(one) for one in plain["padding"]], "mode": kind.get("padding_mode", "zeros")}
    more = {"more": two(kind["output_padding"])} if name == "conv_transpose" else {}
    expected = (conv_loops if name == "conv" else transpose_loops)(x, w, bias, **plain, **more)
    found = getattr(nn, name)(xt.asarray(turned(x, x_last)), xt.asarray(w), xt.asarray(bias), **kind).numpy()
    np.testing.assert_allclose(found, turned(expected, y_last), rtol=1e-11, atol=1e-11)


def pooled(name: str, kind: dict[str, Any]) -> Callable[[Array, int], Any]:
    """Return what a pooling function makes of the elements of a window, and the number with those of the padding."""
    if name.startswith("max"):
        return lambda part, count: part.max(-1)
    if name == "lp_pool":
        p = kind.get("p", 2)
        return lambda part, count: (np.abs(part) ** p).sum(-1) ** (1 / p)
    included, divisor = kind.get("count_include_pad", True), kind.get("divisor")
    return lambda part, count: part.sum(-1) / (divisor or (count if included else part.shape[-1]))


@pytest.mark.parametrize(("name", "parameter", "value"), cases(WINDOWS, POOLS), ids=str)
def test_pool(name: str, parameter: str, value: Any) -> None:
    """Every value of every parameter of pooling."""
    kind: dict[str, Any] = POOL | {parameter: value}
    x, kernel, last = normal(2, 3, 7, 8), (3, 2), kind.get("layout") == "NHWC"
    plain = {one: two(kernel if kind[one] is None else kind[one]) for one in ("stride", "dilation", "padding")}
    plain["padding"] = [two(one) for one in plain["padding"]]
    ceil = kind.get("ceil_mode", False)
    expected = pool_loops(x, kernel=kernel, **plain, ceil=ceil, of=pooled(name, kind))
    found = getattr(nn, name)(xt.asarray(turned(x, last)), kernel, **kind)
    found = found[0] if isinstance(found, tuple) else found
    np.testing.assert_allclose(found.numpy(), turned(expected, last), rtol=1e-12)


@pytest.mark.parametrize("parameter", ["stride", "padding", "dilation", "layout"])
def test_columns(parameter: str) -> None:
    """Every value of every parameter of unfold, and of fold, its adjoint."""
    assert set(parameters("unfold")) == set(parameters("fold")) == {"stride", "padding", "dilation", "layout"}
    x, window = normal(2, 3, 7, 8), (3, 2)
    for value in POOLS[parameter]:
        kind: dict[str, Any] = POOL | {parameter: 1 if value is None and parameter == "stride" else value}
        last = kind.get("layout") == "NHWC"
        around = padded(x, [two(one) for one in two(kind["padding"])], "zeros")
        at = list(places(around.shape[2:], window, two(kind["stride"]), two(kind["dilation"])))
        expected = np.stack([around[:, :, *one].reshape(2, -1) for _, one in at], -1)
        found = nn.unfold(xt.asarray(turned(x, last)), window, **kind)
        np.testing.assert_array_equal(found.numpy(), expected.swapaxes(1, 2) if last else expected)
        g = xt.asarray(normal(*found.shape))
        back = nn.fold(g, (7, 8), window, **kind)
        np.testing.assert_allclose(np.vdot(found.numpy(), g.numpy()), np.vdot(turned(x, last), back.numpy()))


@pytest.mark.parametrize("options", [{"engine": "direct"}, {"engine": "interpret"}, {"lazy": "always"}, {"threads": 1}])
def test_options_do_not_matter(options: dict[str, Any]) -> None:
    """Columns, padding and pooling, which nothing is multiplied in, are the same whatever computes them."""
    x = xt.asarray(normal(2, 3, 40, 50))

    def everything() -> list[Array]:
        columns = nn.unfold(x, 3, padding=1)
        found = [columns, nn.fold(columns, (40, 50), 3, padding=1), nn.pad(x, 3, mode="reflect", axes=(2, 3))]
        found += [nn.max_pool(x, 3, padding=1), nn.avg_pool(x, 3), *nn.max_pool_with_indices(x, 2)]
        return [one.numpy() for one in found]

    expected = everything()
    with xt.options(**options):
        for one, other in zip(everything(), expected, strict=True):
            np.testing.assert_array_equal(one, other)

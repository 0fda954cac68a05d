"""The node cases of the onnx wheel, and vectors that PyTorch made for it, for convolution, pooling, fold and pad."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import xtensor as xt
from xtensor import nn

onnx = pytest.importorskip("onnx", reason="the extra `test` brings it")

Array = np.ndarray[Any, Any]
AUTO_PADS = {"SAME_UPPER": "same", "SAME_LOWER": "same_lower", "VALID": "valid"}
PAD_MODES = {"constant": "zeros", "edge": "replicate", "reflect": "reflect", "wrap": "circular"}

# What no function of ours computes.
LEFT_OUT = {"DeformConv": "it reads between the elements of its input, at places that are an input too"}


# A case whose results are written with four decimals.
ROUNDED = "test_averagepool_2d_ceil_last_window_starts_on_pad"


# ---- the adapter: attributes and inputs of a node, as arguments of ours


def windows(given: dict[str, Any]) -> dict[str, Any]:
    """Return stride, padding and dilation of the attributes; auto_pad and pads are ONNX's two ways to say padding."""
    auto, pads = given.get("auto_pad", b"NOTSET").decode(), given.get("pads")
    found = {"padding": AUTO_PADS[auto]} if auto in AUTO_PADS else {"padding": pairs(pads)} if pads else {}
    names = {"strides": "stride", "dilations": "dilation"}
    return found | {ours: tuple(given[theirs]) for theirs, ours in names.items() if theirs in given}


def pairs(pads: Any) -> list[tuple[int, int]]:
    """Return all widths before and then all after as a pair for each axis."""
    half = len(pads) // 2
    return [(int(low), int(high)) for low, high in zip(pads[:half], pads[half:], strict=True)]


def conv(given: dict[str, Any], *arrays: Any) -> Any:
    return nn.conv(*arrays, groups=given.get("group", 1), **windows(given))


def conv_transpose(given: dict[str, Any], x: Any, w: Any, *bias: Any) -> Any:
    kind = windows(given) | {"groups": given.get("group", 1)}
    more = given.get("output_padding", 0)
    if "output_shape" in given:
        least = nn.conv_transpose(x, w, **kind).shape[2:]
        more = [wanted - length for wanted, length in zip(given["output_shape"], least, strict=True)]
    return nn.conv_transpose(x, w, *bias, output_padding=more, **kind)


def conv_integer(given: dict[str, Any], x: Any, w: Any, x_zero: Any = 0, w_zero: Any = 0) -> Any:
    """Zero points are subtracted first: of the weights one, or one for each output."""
    x, w = xt.astype(x, xt.int32), xt.astype(w, xt.int32)
    w_zero = xt.reshape(w_zero, (-1, *[1] * (w.ndim - 1))) if isinstance(w_zero, xt.Tensor) and w_zero.ndim else w_zero
    return conv(given, x - xt.astype(x_zero, xt.int32), w - xt.astype(xt.asarray(w_zero), xt.int32))


def qlinear_conv(given: dict[str, Any], *arrays: Any) -> Any:
    """An integer convolution, scaled, rounded and moved into the range of bytes."""
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, *bias = arrays
    total = conv_integer(given, x, w, x_zero, w_zero)
    scale = xt.reshape(w_scale, (-1, *[1] * (w.ndim - 2))) * x_scale / y_scale
    shifted = xt.round(total * scale) + xt.astype(y_zero, xt.float32)
    assert not bias
    return xt.astype(xt.clip(shifted, 0, 255), y_zero.dtype)


def causal_conv(given: dict[str, Any], x: Any, w: Any, bias: Any = None, past: Any = None) -> tuple[Any, Any]:
    """A depthwise convolution of what was there before and what is new; returns also what the next call needs."""
    if past is None:
        past = xt.zeros((*x.shape[:2], w.shape[2] - 1), dtype=x.dtype)
    x = xt.concat([past, x], axis=2)
    y = nn.conv(x, w, bias, groups=x.shape[1])
    y = nn.silu(y) if given.get("activation", b"none") in (b"silu", b"swish") else y
    return y, x[:, :, x.shape[2] - w.shape[2] + 1 :]


def max_pool(given: dict[str, Any], x: Any) -> Any:
    """ONNX counts places over images and channels too, and may count the first spatial axis fastest."""
    values, places = nn.max_pool_with_indices(x, tuple(given["kernel_shape"]), **pooling(given))
    if given.get("storage_order"):
        rows, columns = x.shape[2:]
        places = places % columns * rows + places // columns
    planes = xt.reshape(xt.arange(x.shape[0] * x.shape[1]), (*x.shape[:2], *[1] * (x.ndim - 2)))
    return values, places + planes * int(np.prod(x.shape[2:]))


def max_unpool(given: dict[str, Any], x: Any, places: Any, shape: Any = None) -> Any:
    strides = given.get("strides", [1] * (x.ndim - 2))
    least = [(n - 1) * s + k for n, s, k in zip(x.shape[2:], strides, given["kernel_shape"], strict=True)]
    assert x.shape[:2] == (1, 1)  # places are counted over one plane, the least that there is
    found = nn.max_unpool(x, places, least)
    more = [0, 0, 0, 0] if shape is None else (shape - xt.asarray(found.shape)).tolist()
    return nn.pad(found, [(0, extra) for extra in more])


def avg_pool(given: dict[str, Any], x: Any) -> Any:
    included = bool(given.get("count_include_pad", 0))
    return nn.avg_pool(x, tuple(given["kernel_shape"]), count_include_pad=included, **pooling(given))


def lp_pool(given: dict[str, Any], x: Any) -> Any:
    return nn.lp_pool(x, tuple(given["kernel_shape"]), p=given.get("p", 2), **pooling(given))


def pooling(given: dict[str, Any]) -> dict[str, Any]:
    """Windows lie next to each other unless strides say more: ours have a stride of their length."""
    return {"stride": 1, "ceil_mode": bool(given.get("ceil_mode", 0))} | windows(given)


def col2im(given: dict[str, Any], columns: Any, lengths: Any, window: Any) -> Any:
    return nn.fold(columns, [int(n) for n in lengths], tuple(int(k) for k in window), **windows(given))


def pad(given: dict[str, Any], x: Any, pads: Any = None, value: Any = None, axes: Any = None) -> Any:
    """Widths and value were attributes once, and are inputs since."""
    width = pairs(given["pads"] if pads is None else pads.tolist())
    value = given.get("value", 0) if value is None else value.tolist()
    axes = tuple(range(x.ndim)) if axes is None else tuple(axes.tolist())
    return nn.pad(x, width, mode=PAD_MODES[given.get("mode", b"constant").decode()], value=value, axes=axes)


ADAPTERS: dict[str, Callable[..., Any]] = {
    "Conv": conv,
    "ConvTranspose": conv_transpose,
    "ConvInteger": conv_integer,
    "QLinearConv": qlinear_conv,
    "CausalConvWithState": causal_conv,
    "MaxPool": max_pool,
    "MaxUnpool": max_unpool,
    "AveragePool": avg_pool,
    "LpPool": lp_pool,
    "GlobalAveragePool": lambda given, x: nn.global_avg_pool(x),
    "GlobalMaxPool": lambda given, x: nn.global_max_pool(x),
    "Col2Im": col2im,
    "Pad": pad,
    "Squeeze": lambda given, x: xt.squeeze(x, axis=tuple(given["axes"])),
    "Unsqueeze": lambda given, x: xt.expand_dims(x, axis=given["axes"][0]),
}


def computed(model: Any, inputs: list[Array | None]) -> list[Array]:
    """Return the outputs of a model, node by node."""
    graph = model.graph
    known: dict[str, Any] = {one.name: onnx.numpy_helper.to_array(one) for one in graph.initializer}
    free = [one.name for one in graph.input if one.name not in known]
    known = {name: xt.asarray(np.array(a)) for name, a in (known | dict(zip(free, inputs, strict=False))).items()}
    known[""] = None
    for node in graph.node:
        given = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
        found = ADAPTERS[node.op_type](given, *[known[name] for name in node.input])
        known |= zip(node.output, found if isinstance(found, tuple) else (found,), strict=False)
    return [known[one.name].numpy() for one in graph.output]


def check(name: str, found: list[Array], expected: list[Array], rtol: float) -> None:
    """Assert that results are what they should be, in dtype and shape too."""
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=rtol, err_msg=name, strict=True)


# ---- the cases in code


@cache
def cases() -> dict[str, list[Any]]:
    """Return the cases of one node, by its operator; making them all takes seconds."""
    from onnx.backend.test.case.node import collect_testcases

    state = np.random.get_state()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        every = collect_testcases(None)
    np.random.set_state(state)
    found: dict[str, list[Any]] = {}
    for case in every:
        if len(case.model.graph.node) == 1:
            found.setdefault(case.model.graph.node[0].op_type, []).append(case)
    return found


# How many there are in onnx 1.23; later ones may have more.
COUNTS = {
    "Conv": 6,
    "ConvTranspose": 11,
    "ConvInteger": 2,
    "QLinearConv": 1,
    "CausalConvWithState": 13,
    "DeformConv": 4,
    "MaxPool": 19,
    "AveragePool": 20,
    "LpPool": 8,
    "GlobalAveragePool": 2,
    "GlobalMaxPool": 2,
    "MaxUnpool": 2,
    "Col2Im": 5,
    "Pad": 6,
}


@pytest.mark.parametrize("operator", COUNTS)
def test_node_cases(operator: str) -> None:
    """Every case of an operator that ours cover; float16 is to a few of its last places."""
    found = cases()[operator]
    assert len(found) >= COUNTS[operator]
    if operator in LEFT_OUT:
        pytest.skip(f"{', '.join(case.name for case in found)}: {LEFT_OUT[operator]}")
    for case in found:
        for inputs, expected in case.data_sets:
            half = any(one is not None and one.dtype == np.float16 for one in inputs)
            rtol = 1e-3 if half else 1e-4 if case.name == ROUNDED else 1e-6
            check(case.name, computed(case.model, inputs), expected, rtol)


# ---- vectors that are stored


def frozen() -> list[Any]:
    """Return the folders whose model has a convolution, a pooling or a pad, and nothing that none of ours computes."""
    data = Path(onnx.__file__).parent / "backend" / "test" / "data"
    found = []
    for folder in sorted((*(data / "pytorch-converted").iterdir(), *(data / "pytorch-operator").iterdir())):
        operators = {node.op_type for node in onnx.load(folder / "model.onnx").graph.node}
        if operators & {"Conv", "ConvTranspose", "MaxPool", "AveragePool", "Pad"}:
            found.append(pytest.param(folder, id=folder.name))
    return found


def test_number_of_frozen_vectors() -> None:
    """43 convolutions and poolings and 4 pads as modules, one each of 4 as functions."""
    assert len(frozen()) >= 51


@pytest.mark.parametrize("folder", frozen())
def test_frozen_vectors(folder: Path) -> None:
    """What PyTorch computed: its results in single precision, to 1e-6 of them."""

    def read(kind: str) -> list[Array]:
        files = sorted((folder / "test_data_set_0").glob(f"{kind}_*.pb"))
        return [onnx.numpy_helper.to_array(onnx.load_tensor(file)) for file in files]

    check(folder.name, computed(onnx.load(folder / "model.onnx"), read("input")), read("output"), 1e-6)

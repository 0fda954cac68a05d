"""The convolution family by itself: against plain loops, every parameter, bad input, memory, threads, gradients."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import xtensor as xt
from xtensor.codegen.cpu import compile as compile_
from xtensor.codegen.cpu import forms
from xtensor.nn import (
    channelwise,
    contraction,
    conv,
    conv_transpose,
    convolve,
    correlate,
    fold,
    pad,
    planes,
    product_sums,
    strip_products,
    strips,
    unfold,
    windows,
)
from xtensor.run import contractions, launches

ROOT = Path(__file__).resolve().parent.parent
Array = np.ndarray[Any, Any]


def normal(*shape: int, dtype: str = "float64") -> Array:
    """Return normal numbers of a shape."""
    return np.random.default_rng(shape).normal(size=shape).astype(dtype)


def integers(*shape: int, dtype: str = "int64", low: int = -9, high: int = 10) -> Array:
    """Return random integers of a shape."""
    return np.random.default_rng(shape).integers(low, high, shape).astype(dtype)


def by_loops(x: Array, w: Array, stride: int = 1, pads: Any = (0, 0), dilation: int = 1, groups: int = 1) -> Array:
    """Return a convolution by its definition, one output at a time; the same for all axes."""
    rank = x.ndim - 2
    x = np.pad(x, [(0, 0), (0, 0)] + [pads] * rank)
    spans = [dilation * (k - 1) + 1 for k in w.shape[2:]]
    lengths = [(n - span) // stride + 1 for n, span in zip(x.shape[2:], spans, strict=True)]
    y = np.zeros((x.shape[0], w.shape[0], *lengths), np.result_type(x, w))
    for k, place in product(range(w.shape[0]), np.ndindex(*lengths)):
        window = tuple(slice(o * stride, o * stride + span, dilation) for o, span in zip(place, spans, strict=True))
        group = k // (w.shape[0] // groups)
        channels = slice(group * w.shape[1], (group + 1) * w.shape[1])
        y[(slice(None), k, *place)] = (x[(slice(None), channels, *window)] * w[k]).sum(axis=tuple(range(1, rank + 2)))
    return y


def by_products(monkeypatch: Any, seed: int) -> Mock:
    """Have all that may be products by strips go that way, in parts of some size; return what will be called for it."""
    machine = compile_.host()
    assert machine is not None
    for module, name in ((forms, "the_host"), (strip_products, "host")):
        monkeypatch.setattr(module, name, lambda: machine._replace(vector_bytes=min(machine.vector_bytes, 32)))
    monkeypatch.setattr(strips, "ROOM_BYTES", 1 << (8 + seed % 3 * 5))
    monkeypatch.setattr(strip_products, "POSITIONS", 4 << (seed % 4))
    monkeypatch.setattr(strips, "FEW", 0)
    monkeypatch.setattr(strips, "GROUPED", 0)
    monkeypatch.setattr(strips, "IN_PLACE_WASTE", 0)  # no rows are read where they lie
    kernel = Mock(wraps=strip_products.products_kernel)
    monkeypatch.setattr(strip_products, "products_kernel", kernel)
    return kernel


def counted(monkeypatch: Any) -> list[Any]:
    """Return where the operands of machine code that is laid out will begin from now on."""
    used: list[Any] = []
    run_at = launches.Launches.run_at

    def run(self: launches.Launches, words: Any, packed: Any = None) -> None:
        used.append(words)
        run_at(self, words, packed)

    monkeypatch.setattr(launches.Launches, "run_at", run)
    return used


SHAPES = {1: (9,), 2: (7, 6), 3: (5, 6, 4)}
WINDOWS = {1: (3,), 2: (3, 2), 3: (2, 3, 2)}


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("algorithm", ["auto", "direct", "im2col", "tune"])
@pytest.mark.parametrize("kind", [{}, {"stride": 2}, {"dilation": 2, "groups": 2}, {"stride": 3, "pads": (1, 2)}])
def test_against_loops(rank: int, algorithm: str, kind: dict[str, Any]) -> None:
    """Every algorithm computes the definition."""
    x, w = normal(2, 4, *SHAPES[rank]), normal(6, 4 // kind.get("groups", 1), *WINDOWS[rank])
    padding = [kind.get("pads", (0, 0))] * rank
    if "dilation" in kind:
        padding = [(2, 2)] * rank
    expected = by_loops(x, w, **{**kind, "pads": padding[0]})
    rest = {name: value for name, value in kind.items() if name != "pads"}
    found = conv(xt.asarray(x), xt.asarray(w), padding=padding, algorithm=algorithm, **rest)  # type: ignore[arg-type]
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("algorithm", ["direct", "im2col"])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"])
def test_integers_are_exact_and_wrap(dtype: str, algorithm: Any) -> None:
    """Sums of integers are those of the dtype, beyond 2^53 and beyond its own range."""
    info = np.iinfo(dtype)
    x = integers(2, 3, 5, 4, dtype=dtype, low=info.min // 2, high=info.max // 2)
    w = integers(4, 3, 2, 2, dtype=dtype, low=info.min // 2, high=info.max // 2)
    bias = integers(4, dtype=dtype, low=0, high=9)
    with np.errstate(over="ignore"):
        expected = by_loops(x, w) + bias[:, None, None]
    found = conv(xt.asarray(x), xt.asarray(w), xt.asarray(bias), algorithm=algorithm)
    assert found.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(found.numpy(), expected)


@pytest.mark.parametrize("dtypes", [("float32", "float64"), ("int32", "float64"), ("float64", "complex128")])
def test_dtypes_are_promoted(dtypes: tuple[str, str]) -> None:
    """The result has the dtype both have in common."""
    x, w = normal(1, 2, 5, dtype="float64").astype(dtypes[0]), normal(3, 2, 3).astype(dtypes[1])
    found = conv(xt.asarray(x), xt.asarray(w))
    assert found.dtype == np.result_type(x, w)
    np.testing.assert_allclose(found.numpy(), by_loops(x, w), rtol=1e-12)


@pytest.mark.parametrize("algorithm", ["direct", "im2col"])
@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC", ("NCHW", "NHWC"), ("NHWC", "NCHW")])
def test_layouts_and_strides(layout: Any, groups: int, algorithm: Any) -> None:
    """Views of every kind give what their copies give, in every layout of input and output."""
    base = normal(4, 4, 14, 12)
    views = [base, base[::-1, :, ::-1, ::-1], base[::2, :, ::2, ::-2], base.transpose(0, 1, 3, 2)]
    views.append(np.ascontiguousarray(base.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2))
    w = normal(8, 4 // groups, 3, 3)[:, :, ::-1, :]
    names = (layout, layout) if isinstance(layout, str) else layout
    for x in views:
        given = np.moveaxis(x, 1, -1) if names[0] == "NHWC" else x
        found = conv(xt.asarray(given), xt.asarray(w), padding=1, groups=groups, layout=layout, algorithm=algorithm)
        result = np.moveaxis(found.numpy(), -1, 1) if names[1] == "NHWC" else found.numpy()
        np.testing.assert_allclose(result, by_loops(x, w, pads=(1, 1), groups=groups), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("engine", ["auto", "llvm", "interpret", "direct"])
@pytest.mark.parametrize("lazy", ["auto", "always"])
@pytest.mark.parametrize(("groups", "shape"), [(1, (2, 8, 9, 7)), (8, (2, 8, 9, 7)), (1, (4, 64, 20, 20))])
def test_results_lie_as_their_inputs_do(groups: int, shape: tuple[int, ...], lazy: Any, engine: Any) -> None:
    """Channels that lie next to each other do so in what is computed of them, plain and captured; so do gradients."""
    x, w = normal(*shape), normal(8, shape[1] // groups, 3, 3)
    last = xt.permute_dims(xt.asarray(np.ascontiguousarray(x.transpose(0, 2, 3, 1))), (0, 3, 1, 2))
    first, weights, shift = xt.asarray(x), xt.asarray(w), xt.asarray(normal(1, 8, 1, 1))

    def net(x: xt.Tensor) -> tuple[xt.Tensor, ...]:
        y = xt.nn.relu(conv(x, weights, padding=1, groups=groups) + shift)
        pooled = xt.nn.max_pool(y, 2)
        back = conv_transpose(pooled, weights, stride=2, groups=groups)
        return y, pooled, xt.nn.avg_pool(back, 3), back

    with xt.options(engine=engine, lazy=lazy):
        wanted, fused = net(first), xt.fuse(net)
        gradient = xt.grad(lambda x: xt.sum(net(x)[3] ** 2))
        for found in (net(last), *[fused(last) for _ in range(3)]):
            assert all(one.is_channels_last and not one.is_contiguous for one in found)
            for one, other in zip(found, wanted, strict=True):
                np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-9, atol=1e-9)
        assert not any(one.is_channels_last for one in wanted)
        near, far = gradient(last), gradient(first)
        assert near.is_channels_last and not far.is_channels_last
        np.testing.assert_allclose(near.numpy(), far.numpy(), rtol=1e-9, atol=1e-9)
        kept = conv(last, weights, groups=groups, layout=("NCHW", "NHWC"))
        assert kept.is_contiguous


@pytest.mark.parametrize(
    ("padding", "before_after"),
    [("valid", (0, 0)), ("same", (1, 2)), ("same_lower", (2, 1)), ("full", (3, 3)), (1, (1, 1)), ([(2, -1)], (2, -1))],
)
def test_padding(padding: Any, before_after: tuple[int, int]) -> None:
    """Words, numbers and pairs, negative ones among them."""
    x, w = normal(2, 3, 10), normal(4, 3, 4)
    low, high = before_after
    cut = x[:, :, : x.shape[2] + min(high, 0)]
    expected = by_loops(cut, w, pads=(low, max(high, 0)))
    np.testing.assert_allclose(conv(xt.asarray(x), xt.asarray(w), padding=padding).numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("length", range(3, 12))
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_same_has_as_many_outputs_as_strides_fit(length: int, stride: int) -> None:
    """ceil(length / stride) of them, and length * stride the other way."""
    x, w = xt.ones((1, 1, length)), xt.ones((1, 1, 3))
    assert conv(x, w, stride=stride, padding="same").shape[2] == -(-length // stride)
    assert conv_transpose(x, w, stride=stride, padding="same").shape[2] == length * stride


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize(
    ("stride", "padding", "dilation", "groups", "more"),
    [(1, 0, 1, 1, 0), (2, 1, 1, 2, 1), (3, 2, 2, 4, 2), ((2, 3), [(0, 1), (1, 0)], 1, 1, (1, 2))],
)
def test_transpose_is_the_adjoint(
    stride: Any, padding: Any, dilation: int, groups: int, more: Any, layout: str
) -> None:
    """<conv(x), y> = <x, conv_transpose(y)>."""
    kind = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups, "layout": layout}
    y, w = normal(2, 8, 4, 5), normal(8, 4 // groups, 3, 2)
    y = np.ascontiguousarray(y.transpose(0, 2, 3, 1)) if layout == "NHWC" else y
    back = conv_transpose(xt.asarray(y), xt.asarray(w), output_padding=more, **kind)
    x = normal(*back.shape)
    forward = conv(xt.asarray(x), xt.asarray(w), **kind)
    np.testing.assert_allclose(np.vdot(forward.numpy(), y), np.vdot(x, back.numpy()), rtol=1e-12)


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize(
    ("stride", "padding", "groups", "more"), [(1, 1, 2, 0), (2, [(0, 2), (1, 1)], 1, 1), (3, [(1, -1), (0, 2)], 2, 2)]
)
def test_transpose_with_padding_modes_is_the_adjoint(
    stride: Any, padding: Any, groups: int, more: int, layout: str, mode: Any
) -> None:
    """What stood in the padding goes back to where it came from; the bias is added once to each element."""
    kind = {"stride": stride, "padding": padding, "groups": groups, "layout": layout, "padding_mode": mode}
    y, w, bias = normal(2, 8, 4, 5), normal(8, 4 // groups, 3, 2), normal(4)
    y = np.ascontiguousarray(y.transpose(0, 2, 3, 1)) if layout == "NHWC" else y
    back = conv_transpose(xt.asarray(y), xt.asarray(w), output_padding=more, **kind)
    x = normal(*back.shape)
    forward = conv(xt.asarray(x), xt.asarray(w), **kind)
    np.testing.assert_allclose(np.vdot(forward.numpy(), y), np.vdot(x, back.numpy()), rtol=1e-11)
    found = conv_transpose(xt.asarray(y), xt.asarray(w), xt.asarray(bias), output_padding=more, **kind)
    shift = bias if layout == "NHWC" else bias[:, None, None]
    np.testing.assert_allclose(found.numpy(), back.numpy() + shift, rtol=1e-12)


@pytest.mark.parametrize("shape", [(0, 3, 8, 8), (2, 3, 8, 8)])
@pytest.mark.parametrize("outputs", [0, 4])
def test_empty(shape: tuple[int, ...], outputs: int) -> None:
    """No images, no outputs, no channels: empty results, or zeros, and gradients of the right shapes."""
    x, w = xt.ones(shape), xt.ones((outputs, 3, 3, 3))
    assert conv(x, w).shape == (shape[0], outputs, 6, 6)
    gx, gw = xt.grad(lambda x, w: xt.sum(conv(x, w)), (0, 1))(x, w)
    assert (gx.shape, gw.shape) == (x.shape, w.shape)
    nothing = conv(xt.ones((2, 0, 8, 8)), xt.ones((4, 0, 3, 3)), xt.ones((4,)))
    np.testing.assert_array_equal(nothing.numpy(), np.ones((2, 4, 6, 6)))


@pytest.mark.parametrize("lazy", ["auto", "always"])
def test_nothing_is_left_of_a_transposed_convolution(lazy: Any) -> None:
    """Of which all is padding, along one axis."""
    with xt.options(lazy=lazy):
        found = conv_transpose(xt.ones((1, 4, 13, 2)), xt.ones((4, 1, 3, 1)), padding=(0, 1), groups=4)
        assert found.numpy().shape == (1, 4, 15, 0)


def test_impulse_response_of_dilation() -> None:
    """A single one comes out as the window, spread by the dilation (a test of the ancestor's)."""
    x, w = np.zeros((1, 1, 11, 11)), normal(1, 1, 3, 3)
    x[0, 0, 5, 5] = 1
    found = conv(xt.asarray(x), xt.asarray(w), dilation=2, padding=2).numpy()[0, 0]
    np.testing.assert_array_equal(found[3:8:2, 3:8:2], w[0, 0, ::-1, ::-1])
    assert np.count_nonzero(found) == 9


def test_groups_are_convolutions_side_by_side() -> None:
    """As many convolutions as groups, joined."""
    x, w = normal(2, 6, 8, 8), normal(9, 2, 3, 3)
    parts = [conv(xt.asarray(x[:, 2 * g : 2 * g + 2]), xt.asarray(w[3 * g : 3 * g + 3])).numpy() for g in range(3)]
    np.testing.assert_allclose(conv(xt.asarray(x), xt.asarray(w), groups=3).numpy(), np.concatenate(parts, 1))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: conv(xt.ones((1, 3, 8, 8)), xt.ones((4, 2, 3, 3))), ["(1, 3, 8, 8)", "(4, 2, 3, 3)"]),
        (lambda: conv(xt.ones((1, 3, 8, 8)), xt.ones((4, 3, 3, 3)), groups=2), ["(1, 3, 8, 8)", "groups 2"]),
        (lambda: conv(xt.ones((1, 3, 4)), xt.ones((4, 3, 7)), padding=1), ["(6,)", "(7,)", "(1, 3, 4)"]),
        (lambda: conv(xt.ones((1, 3, 8)), xt.ones((4, 3, 3)), stride=0), ["stride", "at least 1", "0"]),
        (lambda: conv(xt.ones((1, 3, 8)), xt.ones((4, 3, 3)), stride=-2), ["stride", "-2"]),
        (lambda: conv(xt.ones((1, 3, 8)), xt.ones((4, 3, 3)), dilation=0), ["dilation", "at least 1"]),
        (lambda: conv(xt.ones((1, 3, 8)), xt.ones((4, 3, 3)), groups=0), ["groups", "at least 1"]),
        (lambda: conv(xt.ones((1, 3, 8)), xt.ones((4, 3, 3)), layout="NHWC"), ["layout", "'NCW', 'NWC'", "'NHWC'"]),
        (lambda: conv(xt.ones((1, 3, 8)), xt.ones((4, 3, 3)), padding="some"), ["padding", "'same'", "'some'"]),
        (lambda: conv(xt.ones((1, 3, 8)), xt.ones((4, 3, 3)), padding=(1, 1)), ["padding", "1 numbers", "(1, 1)"]),
        (lambda: conv(xt.ones((1, 3, 8)), xt.ones((4, 3, 3)), padding_mode="mirror"), ["mode", "'mirror'"]),
        (
            lambda: conv(xt.ones((1, 3, 8)), xt.ones((4, 3, 3)), padding=9, padding_mode="reflect"),
            ["width", "at most 7"],
        ),
        (lambda: conv(xt.ones((1, 3, 8)), xt.ones((4, 3, 3, 3))), ["x", "(4, 3, 3, 3)", "(1, 3, 8)"]),
        (lambda: conv(xt.ones((3, 8)), xt.ones((4, 3))), ["w", "(4, 3)"]),
        (lambda: conv(xt.ones((1, 3, 8)), xt.ones((4, 3, 3)), xt.ones((3,))), ["bias", "(4,)", "(3,)"]),
        (lambda: conv(xt.ones((1, 3, 8)), xt.ones((4, 3, 3)), algorithm="fft"), ["algorithm", "'fft'"]),
        (lambda: conv(xt.ones((1, 3, 8)), xt.ones((4, 3, 3)), workspace_mb=0), ["workspace_mb", "positive"]),
        (lambda: conv_transpose(xt.ones((1, 3, 8)), xt.ones((3, 4, 3)), output_padding=1), ["output_padding", "less"]),
        (lambda: conv_transpose(xt.ones((1, 3, 8)), xt.ones((4, 3, 3))), ["(1, 3, 8)", "(4, 3, 3)"]),
        (lambda: conv_transpose(xt.ones((1, 3, 2)), xt.ones((3, 4, 3)), padding=3), ["padding", "(1, 3, 2)"]),
        (lambda: conv_transpose(xt.ones((1, 3, 2)), xt.ones((3, 4, 3)), padding_mode="mirror"), ["mode", "'mirror'"]),
        (
            lambda: conv_transpose(xt.ones((1, 3, 4)), xt.ones((3, 4, 3)), padding=2, padding_mode="reflect"),
            ["padding", "at most 1", "(1, 4, 2)"],
        ),
        (lambda: unfold(xt.ones((1, 3)), 3), ["unfold", "(1, 3)"]),
        (lambda: fold(xt.ones((1, 6, 5)), (4,), 3), ["fold", "(1, 6, 5)", "2 places"]),
        (lambda: correlate(xt.ones((3,)), xt.ones((3, 3))), ["correlate", "(3,)", "(3, 3)"]),
        (lambda: convolve(xt.ones((3,)), xt.ones((3,)), mode="some"), ["mode", "'some'"]),
        (lambda: pad(xt.ones((2, 3)), -4), ["width", "(2, 3)"]),
        (lambda: pad(xt.ones((0,)), 1, mode="replicate"), ["width", "(0,)"]),
    ],
)
def test_bad_input(call: Any, words: list[str]) -> None:
    """The error names what is wrong, with its shapes."""
    with pytest.raises(ValueError, match=r"^(conv|conv_transpose|unfold|fold|correlate|convolve|pad): ") as caught:
        call()
    for word in words:
        assert word in str(caught.value)


def test_booleans_are_refused() -> None:
    """They are no numbers."""
    with pytest.raises(TypeError, match="conv: x must be numeric, got bool"):
        conv(xt.ones((1, 1, 3), dtype=xt.bool), xt.ones((1, 1, 2)))


# ---- memory, threads


@pytest.mark.parametrize("algorithm", ["im2col", "direct"])
@pytest.mark.parametrize("groups", [1, 4, 16])
@pytest.mark.parametrize("which", ["forward", "data", "weights"])
def test_workspace_too_small_names_the_least(which: str, groups: int, algorithm: Any) -> None:
    """The error names a number, which is enough, and what is computed with it is the same."""
    x, w = xt.asarray(normal(2, 16, 20, 20)), xt.asarray(normal(16, 16 // groups, 3, 3))

    def run(workspace_mb: float) -> Array:
        def function(x: Any, w: Any) -> Any:
            return conv(x, w, padding=1, groups=groups, workspace_mb=workspace_mb, algorithm=algorithm)

        if which == "forward":
            return function(x, w).numpy()
        # The way forward, which has room enough, is not what is tried.
        mode = sys.modules["xtensor.nn.conv"]
        plan = mode._plan("conv", axes, groups, False, False, workspace_mb, algorithm)
        return (mode._inputs(x, w, None, plan) if which == "data" else mode._weights(x, x, plan)).numpy()

    axes = (windows.Axis(20, 20, 3, 1, 1, 1),) * 2
    with pytest.raises(ValueError, match=r"^conv: workspace_mb must be at least [0-9.]+, got 0.0001 for x") as caught:
        run(1e-4)
    least = float(str(caught.value).split("at least ")[1].split(",")[0])
    assert least < 0.3
    np.testing.assert_allclose(run(least), run(64.0), rtol=1e-11, atol=1e-11)


GROWTH = """
from functools import partial
from pathlib import Path
from sys import argv
from time import sleep
import numpy as np, xtensor as xt
from xtensor import nn

layout = argv[1]
images, weights = (8, 64, 56, 56), (64, 64, 3, 3)

def ones(*shape):
    last = np.moveaxis(np.ones(shape, np.float32), 1, -1) if layout == "NHWC" else np.ones(shape, np.float32)
    return xt.asarray(np.ascontiguousarray(last), copy=True)

def back(function, x):
    y, pull = xt.vjp(function, x)
    return partial(pull, y)

x, w, thin = ones(*images), xt.ones(weights, dtype=xt.float32), xt.ones((64, 1, 3, 3), dtype=xt.float32)
half, many = ones(8, 64, 28, 28), ones(64, 64, 56, 56)
conv = partial(nn.conv, padding=1, layout=layout, workspace_mb=8)
depthwise = partial(conv, groups=64)
pool = partial(nn.max_pool, layout=layout), partial(nn.avg_pool, layout=layout)
measured = {
    "forward": lambda: conv(x, w),
    "data": back(lambda x: conv(x, w), x),
    "weights": back(lambda w: conv(x, w), w),
    "strided": lambda: conv(x, w, stride=2),
    "strided data": back(lambda x: conv(x, w, stride=2), x),
    "1x1": lambda: nn.conv(x, w[:, :, :1, :1], layout=layout, workspace_mb=8),
    "grouped": lambda: conv(x, w[:, :16], groups=4),
    "grouped data": back(lambda x: conv(x, w[:, :16], groups=4), x),
    "grouped weights": back(lambda w: conv(x, w, groups=4), w[:, :16]),
    "depthwise": lambda: depthwise(x, thin),
    "depthwise data": back(lambda x: depthwise(x, thin), x),
    "depthwise weights": back(lambda w: depthwise(x, w), thin),
    "transposed": lambda: nn.conv_transpose(half, w, stride=2, padding=1, layout=layout, workspace_mb=8),
    "max_pool": lambda: pool[0](many, 3, stride=2, padding=1),
    "max_pool data": back(lambda x: pool[0](x, 2), many),
    "avg_pool": lambda: pool[1](many, 3, stride=2, padding=1),
    "avg_pool data": back(lambda x: pool[1](x, 2), many),
}

def status(name):
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name + ":"))
    return int(line.split()[1]) * 1024

for name, run in measured.items():
    for _ in range(3):
        run()
        sleep(0.05)  # for what is compiled beside
    xt.memory.trim()
    Path("/proc/self/clear_refs").write_text("5")
    before = status("VmRSS")
    results = run()
    results = results if isinstance(results, tuple) else (results,)
    print(name, status("VmHWM") - before - sum(result.nbytes for result in results), sep=":")
    del results
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak is read from /proc")
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_workspace_is_not_exceeded(layout: str) -> None:
    """Convolutions of 8x64x56x56 take at most the 8 MB they may beside inputs and outputs, and pooling of 64 its 64."""
    # Without the threshold the C library keeps what was freed, and hides that it is taken again.
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"}
    command = [sys.executable, "-c", GROWTH, layout]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = {name: int(size) for name, size in (line.split(":") for line in done.stdout.splitlines())}
    assert len(found) == 17
    assert not {name: size for name, size in found.items() if size > (64e6 if "pool" in name else 8e6)}


@pytest.mark.parametrize("workspace", [2, 64])
@pytest.mark.parametrize("groups", [1, 4, 32])
def test_threads_do_not_change_a_bit(groups: int, workspace: int) -> None:
    """Results and gradients are the same for any number of threads, small workspaces included."""
    x, w = (
        xt.asarray(normal(4, 32, 30, 30, dtype="float32")),
        xt.asarray(normal(32, 32 // groups, 3, 3, dtype="float32")),
    )

    def everything() -> list[Array]:
        y, back = xt.vjp(lambda x, w: conv(x, w, padding=1, groups=groups, workspace_mb=workspace), x, w)
        return [y.numpy(), *(g.numpy() for g in back(y))]

    found = []
    for threads in (1, 2, 3, 7):
        with xt.options(threads=threads):
            found.append(everything())
    for other in found[1:]:
        for one, two in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC", ("NCHW", "NHWC"), ("NHWC", "NCHW")])
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 5, 1), (13, 12, 2), (37, 25, 3), (24, 48, 3), (600, 7, 1)])
def test_our_product_is_numpys(monkeypatch: Any, shape: tuple[int, int, int], layout: Any, dtype: str) -> None:
    """Results and gradients by code of ours are those by NumPy's product: any numbers of rows, columns and terms."""
    if compile_.host() is None:
        pytest.skip("there is no compiler")
    monkeypatch.setattr(contractions, "CONTRACTION_COMPILED", 0)
    used = counted(monkeypatch)
    channels, outputs, window = shape
    size = (2, channels, 9, 11) if layout in ("NCHW", ("NCHW", "NHWC")) else (2, 9, 11, channels)
    x, w = normal(*size, dtype=dtype), normal(outputs, channels, window, window, dtype=dtype)

    def everything() -> list[Array]:
        y, back = xt.vjp(lambda x, w: conv(x, w, padding=1, layout=layout), xt.asarray(x), xt.asarray(w))
        return [y.numpy(), *(g.numpy() for g in back(xt.asarray(normal(*y.shape, dtype=dtype))))]

    ours = everything()
    assert used
    with xt.options(engine="direct"):
        theirs = everything()
    for one, two in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, two, rtol=0, atol=(1e-4 if dtype == "float32" else 1e-12) * np.abs(two).max())


LAYERS = [
    {"shape": (2, 3, 61, 47), "outputs": 24, "window": 7, "stride": 2},
    {"shape": (2, 64, 14, 14), "outputs": 64, "window": 3},
    {"shape": (9, 96, 7, 7), "outputs": 130, "window": 3},
    {"shape": (2, 32, 56, 56), "outputs": 32, "window": 3, "groups": 8},
    {"shape": (2, 40, 40, 41), "outputs": 40, "window": 3, "stride": 2, "groups": 40},
    {"shape": (3, 16, 28, 28), "outputs": 96, "window": 1},
    {"shape": (2, 30, 33, 20), "outputs": 5, "window": 5, "dilation": 2},
]


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: "x".join(map(str, layer["shape"])))
def test_layers_as_networks_have_them(layer: dict[str, Any], dtype: str, layout: Any, monkeypatch: Any) -> None:
    """Whole layers and their gradients, by code of ours and by NumPy in float64."""
    if compile_.host() is None:
        pytest.skip("there is no compiler")
    monkeypatch.setattr(contractions, "CONTRACTION_COMPILED", 0)
    how = {name: layer[name] for name in ("stride", "dilation", "groups") if name in layer} | {"padding": 2}
    batch, channels, *lengths = layer["shape"]
    x = normal(*((batch, channels, *lengths) if layout == "NCHW" else (batch, *lengths, channels)))
    w = normal(layer["outputs"], channels // how.get("groups", 1), layer["window"], layer["window"])
    bias = normal(layer["outputs"])

    def everything(dtype: str) -> list[Array]:
        given = [xt.asarray(one.astype(dtype)) for one in (x, w, bias)]
        y, back = xt.vjp(lambda *given: conv(*given, layout=layout, **how), *given)
        return [y.numpy(), *(g.numpy() for g in back(xt.asarray(normal(*y.shape).astype(dtype))))]

    ours = everything(dtype)
    with xt.options(engine="direct"):
        theirs = everything("float64")
    for one, two in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, two, rtol=0, atol=(2e-5 if dtype == "float32" else 1e-12) * np.abs(two).max())


def test_blas_has_its_threads_back() -> None:
    """A convolution, also one that fails inside, leaves NumPy's library as it was."""
    from xtensor.devices.blas import controls as found_controls

    controls = found_controls()
    if controls is None:
        pytest.skip("NumPy has another BLAS here")
    before = controls.get()
    try:
        controls.set(2)  # more than the one that it is held to
        conv(xt.asarray(normal(4, 32, 30, 30)), xt.asarray(normal(32, 32, 3, 3)))
        assert controls.get() == 2
    finally:
        controls.set(before)


# ---- gradients


@pytest.mark.parametrize(("groups", "window"), [(1, 1), (2, 1), (4, 1), (1, 3), (2, 3), (4, 3)])
def test_gradients_are_added(groups: int, window: int) -> None:
    """Into existing gradients they are added on every path, 1x1 and grouped ones too (two bugs of the ancestor's)."""
    x, w = xt.asarray(normal(2, 4, 6, 6)), xt.asarray(normal(8, 4 // groups, window, window))
    bias = xt.asarray(normal(8))
    for one in (x, w, bias):
        one.requires_grad = True
    first = []
    for turn in (1, 2):
        xt.sum(conv(x, w, bias, groups=groups) ** 2).backward()
        grads = [one.grad.numpy().copy() for one in (x, w, bias) if one.grad is not None]
        first = first or grads
        for grad, once in zip(grads, first, strict=True):
            np.testing.assert_allclose(grad, turn * once, rtol=1e-12)
    assert len(first) == 3


@pytest.mark.parametrize("mode", ["zeros", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("width", [0, 2, (1, 2), ((1, 0), (2, 1)), ((-1, 1), (1, -2)), ((3, 3),)])
def test_pad(mode: Any, width: Any) -> None:
    """Values as numpy.pad has them; the gradient is the adjoint."""
    x = normal(4, 5)
    pairs = [(width, width)] * 2 if isinstance(width, int) else [p if isinstance(p, tuple) else (p, p) for p in width]
    pairs = [(0, 0)] * (2 - len(pairs)) + pairs
    names = {"zeros": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
    cut = x
    for axis, pair in enumerate(pairs):
        part = slice(max(-pair[0], 0), x.shape[axis] - max(-pair[1], 0))
        cut = cut[(slice(None),) * axis + (part,)]
    if mode == "zeros" or min(min(pair) for pair in pairs) >= 0:
        expected = np.pad(cut, [(max(a, 0), max(b, 0)) for a, b in pairs], mode=names[mode])
        np.testing.assert_array_equal(pad(xt.asarray(x), width, mode=mode).numpy(), expected)
    y, back = xt.vjp(lambda x: pad(x, width, mode=mode), xt.asarray(x))
    g = normal(*y.shape)
    other = normal(4, 5)
    forward = pad(xt.asarray(other), width, mode=mode)
    (found,) = back(xt.asarray(g)) if isinstance(back(xt.asarray(g)), tuple) else (back(xt.asarray(g)),)
    np.testing.assert_allclose(np.vdot(forward.numpy(), g), np.vdot(other, found.numpy()), rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize(
    ("shape", "width"),
    [
        ((9000,), (3, 5)),
        ((2, 3, 40, 50), ((0, 0), (0, 0), (2, 2), (1, 3))),
        ((3, 60, 70), ((1, 2), (0, 4), (5, 0))),
        ((20, 30, 40), ((2, 2), (0, 0), (3, 3))),
        ((40, 30, 24), ((2, 1), (0, 0), (0, 0))),
    ],
)
@pytest.mark.usefixtures("sums_by_code")
def test_large_pads(shape: tuple[int, ...], width: Any, mode: Any, dtype: str) -> None:
    """Arrays large enough for generated code, packed and with their axes turned."""
    native = normal(*shape).astype(dtype)
    pairs = [width] if len(shape) == 1 else width
    name: Any = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}[mode]
    expected = np.pad(native, pairs, mode=name)
    packed = xt.asarray(native, copy=True)
    turned = xt.permute_dims(xt.asarray(np.ascontiguousarray(native.T)), tuple(range(len(shape)))[::-1])
    for x in (packed, turned):
        np.testing.assert_array_equal(pad(x, pairs, mode=mode).numpy(), expected)
        g = normal(*expected.shape).astype(dtype)
        found = xt.vjp(lambda x: pad(x, pairs, mode=mode), x)[1](xt.asarray(g))[0].numpy()
        places = np.pad(np.arange(native.size).reshape(shape), pairs, mode=name)
        right = np.zeros(native.size)
        np.add.at(right, places.ravel(), g.ravel().astype(float))
        tolerance = {"float32": 1e-5, "float64": 1e-13}[dtype]
        np.testing.assert_allclose(found.ravel(), right, rtol=0, atol=tolerance)


def test_pad_value_and_axes() -> None:
    """A constant around one axis."""
    found = pad(xt.asarray([[1, 2], [3, 4]]), 1, value=7, axes=0)
    assert found.tolist() == [[7, 7], [1, 2], [3, 4], [7, 7]]


# ---- correlate, convolve


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize(("n", "k"), [(7, 3), (7, 4), (3, 7), (4, 7), (8, 4), (5, 5), (1, 1), (6, 1)])
@pytest.mark.parametrize("dtype", ["float64", "complex128", "int64"])
def test_one_axis_as_numpy(mode: Any, n: int, k: int, dtype: str) -> None:
    """numpy.correlate and numpy.convolve."""
    a, v = (normal(size) * 5 + (1j * normal(size + 20)[:size] if dtype == "complex128" else 0) for size in (n, k))
    a, v = a.astype(dtype), v.astype(dtype)
    for ours, theirs in ((correlate, np.correlate), (convolve, np.convolve)):
        found = ours(xt.asarray(a), xt.asarray(v), mode).numpy()
        np.testing.assert_allclose(found, theirs(a, v, mode), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shapes", [((6, 7), (3, 3)), ((6, 7), (2, 4)), ((5, 4, 6), (3, 2, 3)), ((2, 2), (3, 3))])
def test_several_axes(shapes: Any) -> None:
    """Against SciPy's; "same" is the part of "full" that MATLAB's conv2 returns."""
    signal = pytest.importorskip("scipy.signal")
    a, v = normal(*shapes[0]), normal(*shapes[1])
    full = signal.convolve(a, v, "full", method="direct")
    np.testing.assert_allclose(convolve(xt.asarray(a), xt.asarray(v)).numpy(), full, rtol=1e-10, atol=1e-12)
    middle = full[tuple(slice(k // 2, k // 2 + n) for n, k in zip(a.shape, v.shape, strict=True))]
    same = convolve(xt.asarray(a), xt.asarray(v), "same").numpy()
    np.testing.assert_allclose(same, middle, rtol=1e-10, atol=1e-12)
    turned = correlate(xt.asarray(a), xt.asarray(v[(slice(None, None, -1),) * v.ndim]), "same")
    np.testing.assert_allclose(turned.numpy(), same)
    inner = [n - k + 1 for n, k in zip(a.shape, v.shape, strict=True)]
    valid = convolve(xt.asarray(a), xt.asarray(v), "valid").numpy()
    if min(inner) > 0:
        np.testing.assert_allclose(valid, signal.convolve(a, v, "valid", method="direct"), rtol=1e-10, atol=1e-12)
    else:
        assert valid.size == 0


@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize("seed", range(24))
def test_products_by_strips_are_those_of_columns(monkeypatch: Any, seed: int, last: bool) -> None:
    """Where channels come first, windows of one element are multiplied as matrices in place, by strides on a copy, and
    others in strips that are turned; with what follows, for any number of threads, the same bits, in strips of any
    size.
    """
    if compile_.host() is None:
        pytest.skip("there is no compiler")
    monkeypatch.setattr(contractions, "CONTRACTION_COMPILED", 0)
    strips.room_last.cache_clear()
    kernel = by_products(monkeypatch, seed)
    rng = np.random.default_rng(seed)
    rank, groups, deep, outputs = 1 + seed % 3, 1 + seed % 2, int(rng.integers(1, 20)), int(rng.integers(1, 20))
    window = [1] * rank if seed % 4 < 2 else [int(n) for n in rng.integers(1, 4, rank)]
    how: dict[str, Any] = {
        "groups": groups,
        "stride": 1 + seed // 8 % 2,
        "padding": int(rng.integers(0, 2)) * (seed % 4 > 1),
    }
    lengths = [int(n) for n in rng.integers(5, 60 if rank == 1 else 12, rank)]
    x, w = normal(3, deep * groups, *lengths), normal(outputs * groups, deep, *window)
    how["layout"] = ("NWC", "NHWC", "NDHWC")[rank - 1] if last else None
    given = np.moveaxis(x, 1, -1).copy() if last else x
    shift = normal(outputs * groups, *[1] * (0 if last else rank))

    def fused() -> Array:
        y = conv(xt.asarray(given), xt.asarray(w), **how)
        return (xt.nn.relu(y + xt.asarray(shift)) * 2 + y).numpy()

    found = []
    for threads in (1, 3):
        with xt.options(threads=threads, lazy="always", engine="llvm"):
            found.append(fused())
    assert kernel.called is (not last and rank * [1] == window and how["padding"] == 0)
    with xt.options(engine="direct"):
        y = conv(*[xt.asarray(a.astype("float64")) for a in (given, w)], **how).numpy()
    expected = np.maximum(y + shift, 0) * 2 + y
    np.testing.assert_array_equal(*found)
    np.testing.assert_allclose(
        found[0], expected, rtol=0, atol=64 * np.finfo(found[0].dtype).eps * max(np.abs(y).max(), 1)
    )
    strips.room_last.cache_clear()


@pytest.mark.parametrize("seed", range(40))
def test_windows_read_where_they_lie_are_those_of_columns(monkeypatch: Any, seed: int) -> None:
    """Windows read where they lie give what columns give: 1 to 3 axes, all parameters, layouts, tiles of any size."""
    if compile_.host() is None:
        pytest.skip("there is no compiler")
    monkeypatch.setattr(contractions, "CONTRACTION_COMPILED", 0)
    monkeypatch.setattr(product_sums, "TERMS", 1 + seed % 2 * 99)
    monkeypatch.setattr(strips, "ROOM_BYTES", 1 << (8 + seed % 3 * 5))
    monkeypatch.setattr(product_sums, "WEIGHT_BYTES", dict.fromkeys((False, True), (seed % 2 << 17,) * 2))
    for remembered in (strips.room_first, strips.room_last):
        remembered.cache_clear()
    rng = np.random.default_rng(seed)
    rank, groups = 1 + seed % 3, int(rng.choice([1, 2, 4]))
    deep, outputs = int(rng.choice([1, 3])), int(rng.choice([1, 2, 5, 13]))
    lengths = [int(n) for n in rng.integers(5, 60 if rank == 1 else 14, rank)]
    window = [int(n) for n in rng.integers(1, 4, rank)]
    how: dict[str, Any] = {"groups": groups, "layout": (None, ("NWC", "NHWC", "NDHWC")[rank - 1])[seed % 5 == 0]}
    how["stride"], how["dilation"] = (tuple(int(n) for n in rng.integers(1, 4 - i, rank)) for i in (0, 1))
    spans = [d * (k - 1) + 1 for d, k in zip(how["dilation"], window, strict=True)]
    how["padding"] = [(int(rng.integers(-1, span + 2)), int(rng.integers(0, span + 1))) for span in spans]
    channels = deep * groups
    size = (3, *lengths, channels) if how["layout"] else (3, channels, *lengths)
    x, w, bias = normal(*size), normal(outputs * groups, deep, *window), normal(outputs * groups)
    used = counted(monkeypatch)

    def everything() -> list[Array]:
        y, back = xt.vjp(lambda x, w, b: conv(x, w, b, **how), *map(xt.asarray, (x, w, bias)))
        return [y.numpy(), *(g.numpy() for g in back(xt.asarray(normal(*y.shape))))]

    ours = everything()
    assert used
    with xt.options(engine="direct"):
        theirs = everything()
    for one, two in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, two, rtol=0, atol=1e-12 * np.abs(two).max(initial=1))


TIGHT = [
    ((8, 9, 9, 1), (8192, 1, 7, 7), {"layout": "NHWC"}, 1.0),
    ((8, 64, 32, 32), (128, 64, 3, 3), {"padding": 1, "stride": 2}, 0.28),
    ((8, 64, 32, 32), (128, 64, 3, 3), {"padding": 1, "stride": 2}, 0.7),
    ((8, 32, 16, 16), (256, 32, 5, 5), {"padding": 2}, 0.77),
    ((8, 32, 16, 16), (256, 32, 5, 5), {"padding": 2}, 1.8),
]


@pytest.mark.parametrize(("given", "weights", "how", "workspace"), TIGHT)
def test_gradients_of_weights_in_little_workspace(given: Any, weights: Any, how: Any, workspace: float) -> None:
    """They are right, or the error says how much is needed: a number that then suffices."""
    x, w = normal(*given, dtype="float32"), normal(*weights, dtype="float32")

    def gradient(workspace: float) -> Array:
        y, back = xt.vjp(lambda w: conv(xt.asarray(x), w, workspace_mb=workspace, **how), xt.asarray(w))
        with xt.options(threads=2):
            found: Array = back(xt.asarray(normal(*y.shape, dtype="float32")))[0].numpy()
        return found

    expected = gradient(64)
    try:
        found = gradient(workspace)
    except ValueError as error:
        least = re.search(r"workspace_mb must be at least ([\d.]+)", str(error))
        assert least is not None and float(least[1]) > workspace
        found = gradient(float(least[1]))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("seed", range(30))
def test_gradients_of_weights_by_products(monkeypatch: Any, seed: int) -> None:
    """In each layout, of windows read in place and copied, in rounds: the same bits for any number of threads."""
    if compile_.host() is None:
        pytest.skip("there is no compiler")
    monkeypatch.setattr(contractions, "CONTRACTION_COMPILED", 0)
    monkeypatch.setattr(product_sums, "WEIGHT_BYTES", dict.fromkeys((False, True), (0, 0)))
    monkeypatch.setattr(product_sums, "TERMS", 1 << seed % 3 * 5)
    made, launches = list[int](), product_sums._Sums._launches

    def noted(self: Any, sheet: Any, rounds: list[range]) -> Any:
        made.append(len(rounds))
        return launches(self, sheet, rounds)

    monkeypatch.setattr(product_sums._Sums, "_launches", noted)
    rng = np.random.default_rng(seed)
    rank, last, dtype = 1 + seed % 3, seed % 2 == 0, ("float32", "float64")[seed % 5 > 1]
    groups, channels, outputs = (int(rng.choice(counts)) for counts in ((1, 2), (5, 16, 24), (5, 16, 19)))
    how: dict[str, Any] = {
        "groups": groups,
        "layout": (("NCW", "NCHW", "NCDHW"), ("NWC", "NHWC", "NDHWC"))[last][rank - 1],
    }
    window = [1] * rank if seed % 7 < 2 else rng.integers(1, 4, rank).tolist()
    how["stride"] = (1,) * rank if seed % 4 < 2 else tuple(rng.integers(1, 4, rank).tolist())
    how["dilation"] = tuple(rng.integers(1, 3, rank).tolist())
    spans = [d * (k - 1) + 1 for d, k in zip(how["dilation"], window, strict=True)]
    if seed % 3:
        how["padding"] = [(int(rng.integers(-1, span + 1)), int(rng.integers(0, span + 1))) for span in spans]
    lengths = rng.integers(7, 60 if rank == 1 else 13, rank).tolist()
    size = (3, *lengths, channels * groups) if last else (3, channels * groups, *lengths)
    x, w = normal(*size, dtype=dtype), normal(outputs * groups, channels, *window, dtype=dtype)
    workspace = 0.3 if seed // 2 % 3 == 0 else 64
    y, back = xt.vjp(lambda w: conv(xt.asarray(x), w, workspace_mb=workspace, **how), xt.asarray(w))
    g, found = normal(*y.shape, dtype=dtype), []
    for threads in (1, 2, 3):
        with xt.options(threads=threads, engine="llvm"):
            found.append(back(xt.asarray(g))[0].numpy())
    assert made or workspace < 64  # which may be too little for them
    with xt.options(engine="direct"):
        _, back = xt.vjp(lambda w: conv(xt.asarray(x.astype("float64")), w, **how), xt.asarray(w.astype("float64")))
        expected = back(xt.asarray(g.astype("float64")))[0].numpy()
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
    atol = 64 * np.finfo(dtype).eps * np.abs(expected).max(initial=1)
    np.testing.assert_allclose(found[0], expected, rtol=0, atol=atol)


THIN = {
    "plain": {"padding": 1},
    "two apart": {"padding": 1, "stride": 2},
    "dilated": {"padding": [(2, 2), (0, 3)], "dilation": (1, 2), "stride": (2, 1)},
    "three apart": {"padding": [(0, 1), (2, 0)], "stride": (1, 3)},
    "few rows": {"padding": [(2, 0), (1, 1)], "dilation": (3, 1), "stride": (1, 2)},
}


@pytest.mark.parametrize("how", THIN.values(), ids=list(THIN))
@pytest.mark.parametrize(("last", "deep"), [(False, 1), (True, 1), (True, 2), (True, 8), (False, 4)])
@pytest.mark.parametrize(("dtype", "large"), [("float32", False), ("float64", False), ("float32", True)])
def test_thin_groups_where_they_lie(
    how: dict[str, Any], last: bool, deep: int, dtype: str, large: bool, monkeypatch: Any
) -> None:
    """Thin groups, and both gradients, are swept where arrays lie: what stands for others is not read, nor written; of
    few channels and rows at a time, or as large arrays are.
    """
    if (machine := compile_.host()) is None:
        pytest.skip("there is no compiler")
    monkeypatch.setattr(contractions, "CONTRACTION_COMPILED", 0)
    monkeypatch.setattr(contraction, "FEW", 0)  # small sums are of the same dtype
    monkeypatch.setattr(channelwise, "CHANNELS_FETCHED", 0 if large else 1 << 40)
    monkeypatch.setattr(channelwise, "CHANNELS_NEAR", (4096, 4096))
    monkeypatch.setattr(channelwise, "CHANNELS_BAND", 1 << 14)
    swept = Mock(wraps=planes.shared)
    monkeypatch.setattr(channelwise if last else planes if deep == 1 else strips, "shared", swept)
    channels = 24 if deep > 1 else 37
    x, w = normal(3, channels, 13, 29, dtype=dtype), normal(channels, deep, 3, 3, dtype=dtype)

    def turned(a: Array) -> Array:
        return np.moveaxis(a, 1, -1) if last else a

    kind = {**how, "groups": channels // deep, "layout": "NHWC" if last else "NCHW", "algorithm": "im2col"}
    y, back = xt.vjp(lambda x, w: conv(x, w, **kind), xt.asarray(turned(x).copy()), xt.asarray(w))
    cotangent = normal(*y.shape, dtype=dtype)
    found = [y, *back(xt.asarray(cotangent))]
    fits = deep * x.itemsize <= machine.vector_bytes  # into a register, and the sums of weights into several
    sums = fits and 3 * deep <= channelwise.MOST_SUMS[machine.vector_bytes == 64]
    planes_fit = deep == 1 and how.get("stride") != (1, 3)
    assert swept.call_count >= (2 * fits + sums if last else 3 * (planes_fit or deep > 1))
    with xt.options(engine="direct"):  # products by NumPy
        y, back = xt.vjp(
            lambda x, w: conv(x, w, **kind), xt.asarray(turned(x).astype("f8")), xt.asarray(w.astype("f8"))
        )
        expected = [y, *back(xt.asarray(cotangent.astype("f8")))]
    for one, two in zip(found, expected, strict=True):
        scale = np.abs(two.numpy()).max()
        np.testing.assert_allclose(one.numpy(), two.numpy(), rtol=0, atol=64 * np.finfo(dtype).eps * scale)


@pytest.mark.parametrize("seed", range(24))
def test_single_channels_go_back_by_powers_of_two(seed: int, monkeypatch: Any) -> None:
    """Windows of one channel that lie 2 to 16 positions apart, going back, are swept in place: rows of neighbouring
    outputs are interleaved, whatever the paddings and lengths.
    """
    if compile_.host() is None:
        pytest.skip("there is no compiler")
    rng = np.random.default_rng(seed)
    monkeypatch.setattr(contractions, "CONTRACTION_COMPILED", 0)
    swept = Mock(wraps=planes.shared)
    monkeypatch.setattr(planes, "shared", swept)
    stride, dtype = 2 << seed % 4, ("float32", "float64")[seed // 4 % 2]
    size = stride + int(rng.integers(0, stride + 1))
    x = normal(2, 5, int(rng.integers(20, 30)), int(rng.integers(1, 40)), dtype=dtype)
    w = normal(5, 1, int(rng.integers(1, planes.LARGEST // size + 1)), size, dtype=dtype)
    low, high = (int(n) for n in rng.integers(0, size // 2, 2))
    kind = {"stride": (1, stride), "padding": [(0, 0), (low, high)], "groups": 5}
    kind["bias"] = normal(5, dtype=dtype) if seed % 2 else None
    found = xt.nn.conv_transpose(xt.asarray(x), xt.asarray(w), **kind).numpy()
    assert swept.call_count
    with xt.options(engine="direct"):
        expected = xt.nn.conv_transpose(xt.asarray(x.astype("f8")), xt.asarray(w.astype("f8")), **kind).numpy()
    np.testing.assert_allclose(found, expected, rtol=0, atol=64 * np.finfo(dtype).eps * np.abs(expected).max())


FEW = {
    "plain": ((3, 40, 3), {"padding": 1}),
    "two apart": ((3, 33, 5), {"padding": 2, "stride": 2}),
    "three apart": ((2, 16, 3), {"padding": [(0, 1), (2, 0)], "stride": (2, 3)}),
    "dilated": ((4, 7, 3), {"padding": [(3, 0), (1, 2)], "dilation": (3, 2), "stride": (1, 2)}),
    "one channel": ((1, 20, 2), {"stride": (3, 1)}),
}


@pytest.mark.parametrize(("shape", "how"), FEW.values(), ids=list(FEW))
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_few_channels_where_they_lie(
    shape: tuple[int, int, int], how: dict[str, Any], layout: str, dtype: str, monkeypatch: Any
) -> None:
    """Few channels are swept where they lie, as is the gradient of weights where they come last, by any threads."""
    if compile_.host() is None:
        pytest.skip("there is no compiler")
    monkeypatch.setattr(contractions, "CONTRACTION_COMPILED", 0)
    monkeypatch.setattr(contraction, "FEW", 0)  # small sums are of the same dtype
    swept = Mock(wraps=strips.Sweep.launch)
    monkeypatch.setattr(strips.Sweep, "launch", lambda *given: swept(*given))
    channels, outputs, window = shape
    x, w, bias = normal(5, channels, 19, 23, dtype=dtype), normal(outputs, channels, window, window), normal(outputs)
    if layout == "NHWC":
        x = np.moveaxis(x, 1, -1).copy()
    kind = {**how, "layout": layout, "algorithm": "im2col"}

    def everything(dtype: str) -> list[Array]:
        given = [xt.asarray(a.astype(dtype)) for a in (x, w, bias)]
        y, back = xt.vjp(lambda w: conv(given[0], w, given[2], **kind), given[1])
        return [y.numpy(), back(xt.asarray(np.cos(y.numpy())))[0].numpy()]

    found = everything(dtype)
    assert swept.call_count >= 2  # by numbers of threads
    for threads in (1, 3):
        with xt.options(threads=threads):
            for one, two in zip(found, everything(dtype), strict=True):
                np.testing.assert_array_equal(one, two)
    with xt.options(engine="direct"):  # products by NumPy
        for one, two in zip(found, everything("float64"), strict=True):
            np.testing.assert_allclose(one, two, rtol=0, atol=64 * np.finfo(dtype).eps * np.abs(two).max())


@pytest.mark.parametrize("layout", ["NCHW", "NHWC", ("NCHW", "NHWC"), ("NHWC", "NCHW")])
@pytest.mark.parametrize("stride", [1, 3])
def test_inputs_that_lie_in_other_ways(layout: Any, stride: int, monkeypatch: Any) -> None:
    """Of another dtype, every second column, backwards, some of more channels: as others of the same numbers."""
    monkeypatch.setattr(contractions, "CONTRACTION_COMPILED", 0)
    whole, w = normal(2, 18, 13, 40), xt.asarray(normal(20, 9, 3, 3))
    whole = np.moveaxis(whole, 1, -1).copy() if layout in ("NHWC", ("NHWC", "NCHW")) else whole
    last = whole.shape[-1] == 18
    columns, channels = (2, -1) if last else (-1, 1)

    def part(axis: int, step: slice) -> Array:
        return whole[(slice(None),) * (axis % 4) + (step,)]

    views = [part(channels, slice(9, None)), part(channels, slice(None, None, 2))]
    views += [
        a[(slice(None),) * (columns % 4) + (step,)]
        for a in views
        for step in (slice(None, None, 2), slice(None, None, -1))
    ]
    for view in [*views, views[0].astype("float32").astype("float64").astype("float32")]:
        found = conv(xt.asarray(view), w, padding=1, stride=stride, layout=layout)
        expected = conv(
            xt.asarray(view.astype("float64")), w, padding=1, stride=stride, layout=layout, algorithm="direct"
        )
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=0, atol=1e-12 * abs(expected.numpy()).max())


@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_a_bias_of_a_transposed_convolution(layout: str, groups: int, monkeypatch: Any) -> None:
    """Each output of each group has its own, whichever code goes back."""
    monkeypatch.setattr(contractions, "CONTRACTION_COMPILED", 0)
    x, w, bias = normal(2, 24, 5, 7), xt.asarray(normal(24, 20 // groups, 3, 3)), xt.asarray(normal(20))
    given = xt.asarray(np.moveaxis(x, 1, -1).copy() if layout == "NHWC" else x)
    kind: dict[str, Any] = {"stride": 2, "groups": groups, "layout": layout}
    found, without = conv_transpose(given, w, bias, **kind), conv_transpose(given, w, **kind)
    beside = bias.numpy() if layout == "NHWC" else bias.numpy()[:, None, None]
    np.testing.assert_allclose(found.numpy(), without.numpy() + beside, rtol=0, atol=1e-12)


@pytest.mark.parametrize("groups", [1, 2, 5, 20])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_infinite_numbers_beside_windows(layout: str, groups: int, monkeypatch: Any) -> None:
    """An infinity that is in no window is in no gradient of weights, where blocks reach beyond the last window."""
    monkeypatch.setattr(contractions, "CONTRACTION_COMPILED", 0)
    monkeypatch.setattr(contraction, "FEW", 0)  # small sums are of the same dtype
    x, weights = normal(2, 20, 11, 21), normal(20, 20 // groups, 2, 2)
    x[:, :, -1], x[..., -1] = np.inf, np.inf
    kind: dict[str, Any] = {"stride": 2, "groups": groups, "layout": layout}
    given, w = xt.asarray(np.moveaxis(x, 1, -1).copy() if layout == "NHWC" else x), xt.asarray(weights)
    y, back = xt.vjp(lambda w: conv(given, w, **kind), w)
    assert np.isfinite(y.numpy()).all()
    assert np.isfinite(back(xt.ones(y.shape, dtype=y.dtype))[0].numpy()).all()


def test_workspace_may_be_infinite() -> None:
    x, w = xt.ones((1, 2, 8, 8)), xt.ones((3, 2, 3, 3))
    found = xt.nn.conv(x, w, workspace_mb=float("inf"))
    np.testing.assert_array_equal(found.numpy(), np.full((1, 3, 6, 6), 18.0))

"""Pooling by itself: against plain loops, every parameter, dtypes, bad input, gradients."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import xtensor as xt
import xtensor.codegen.cpu.compile as compile_
from xtensor import nn
from xtensor.nn import origins, planes
from xtensor.run import contractions

Array = np.ndarray[Any, Any]


def normal(*shape: int) -> Array:
    """Return normal numbers of a shape."""
    return np.random.default_rng(shape).normal(size=shape)


def windows_of(x: Array, kernel: int, stride: int, pads: tuple[int, int], dilation: int = 1) -> list[Array]:
    """Return the elements inside x of each window over the last axis, one list entry for each place."""
    span = dilation * (kernel - 1) + 1
    count = (x.shape[-1] + sum(pads) - span) // stride + 1
    starts = [place * stride - pads[0] for place in range(count)]
    inside = [[s + k * dilation for k in range(kernel) if 0 <= s + k * dilation < x.shape[-1]] for s in starts]
    return [x[..., part] for part in inside]


@pytest.mark.parametrize("pads", [(0, 0), (1, 1), (2, 0)])
@pytest.mark.parametrize(("kernel", "stride", "dilation"), [(3, 1, 1), (3, 2, 1), (2, 3, 2), (4, 4, 1)])
def test_one_axis(kernel: int, stride: int, dilation: int, pads: tuple[int, int]) -> None:
    """Largest, average and norm of each window, padding on both sides of different widths."""
    x = normal(2, 3, 13)
    if max(pads) >= dilation * (kernel - 1) + 1:
        pytest.skip("padding as long as a window is refused")
    parts = windows_of(x, kernel, stride, pads, dilation)
    kind: dict[str, Any] = {"stride": stride, "padding": [pads], "dilation": dilation}
    tensor = xt.asarray(x)
    largest = np.stack([part.max(-1) for part in parts], -1)
    np.testing.assert_array_equal(nn.max_pool(tensor, kernel, **kind).numpy(), largest)
    mean = np.stack([part.mean(-1) for part in parts], -1)
    np.testing.assert_allclose(nn.avg_pool(tensor, kernel, count_include_pad=False, **kind).numpy(), mean)
    total = np.stack([part.sum(-1) for part in parts], -1)
    np.testing.assert_allclose(nn.avg_pool(tensor, kernel, **kind).numpy(), total / kernel)
    np.testing.assert_allclose(nn.avg_pool(tensor, kernel, divisor=5, **kind).numpy(), total / 5)
    for p in (1, 2, 3.5):
        norm = np.stack([(np.abs(part) ** p).sum(-1) ** (1 / p) for part in parts], -1)
        np.testing.assert_allclose(nn.lp_pool(tensor, kernel, p=p, **kind).numpy(), norm)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("kind", [{}, {"stride": 1, "padding": 1}, {"stride": 2, "dilation": 2, "ceil_mode": True}])
@pytest.mark.parametrize("engine", ["direct", "interpret", "llvm"])
def test_indices(kind: dict[str, Any], layout: str, engine: str) -> None:
    """They say where the largest elements are, of an input with many ties too: at the first."""
    with xt.options(engine=engine, lazy="auto" if engine == "direct" else "always"):
        check_indices(kind, layout)


def check_indices(kind: dict[str, Any], layout: str) -> None:
    """Compare places with values, and with where derivatives go."""
    for x in (normal(2, 3, 7, 8), np.round(normal(2, 3, 7, 8))):
        given = x if layout == "NCHW" else np.ascontiguousarray(np.moveaxis(x, 1, -1))
        values, places = nn.max_pool_with_indices(xt.asarray(given), (3, 2), layout=layout, **kind)
        np.testing.assert_array_equal(
            values.numpy(), nn.max_pool(xt.asarray(given), (3, 2), layout=layout, **kind).numpy()
        )
        assert (places.dtype, places.shape) == (xt.int64, values.shape)
        found, where = (t.numpy() if layout == "NCHW" else np.moveaxis(t.numpy(), -1, 1) for t in (values, places))
        flat, rows = x.reshape(2, 3, -1), where.reshape(2, 3, -1)
        np.testing.assert_array_equal(np.take_along_axis(flat, rows, -1), found.reshape(2, 3, -1))
        slope = xt.grad(lambda x: xt.sum(nn.max_pool(x, (3, 2), layout=layout, **kind)))(xt.asarray(given)).numpy()
        slope = slope if layout == "NCHW" else np.moveaxis(slope, -1, 1)
        counts = [[np.bincount(row, minlength=56) for row in image] for image in rows]
        np.testing.assert_array_equal(slope.reshape(2, 3, -1), counts)


@pytest.mark.parametrize("low", [-np.inf, -128])
def test_lowest_elements_have_places(low: float) -> None:
    """Windows of elements as low as the padding have a place inside: the first."""
    x = xt.full((1, 1, 3, 3), low, dtype=xt.float32 if low == -np.inf else xt.int8)
    values, places = nn.max_pool_with_indices(x, 2, stride=1, padding=1)
    assert (values == low).numpy().all()
    assert places.tolist() == [[[[0, 0, 1, 2], [0, 0, 1, 2], [3, 3, 4, 5], [6, 6, 7, 8]]]]


def test_windows_of_padding_have_no_place() -> None:
    """A window with gaps may have nothing of the input: -inf, at no place."""
    values, places = nn.max_pool_with_indices(xt.asarray([[[5.0]]]), 2, dilation=2, padding=1)
    assert (values.tolist(), places.tolist()) == ([[[-np.inf]]], [[[-1]]])


def test_unpool_puts_elements_back() -> None:
    """What max_unpool takes apart is what the windows had, with zeros for the rest; at the same place they add up."""
    x = normal(2, 3, 6, 4)
    values, places = nn.max_pool_with_indices(xt.asarray(x), 2)
    found = nn.max_unpool(values, places, (6, 4)).numpy()
    kept = found != 0
    np.testing.assert_array_equal(found[kept], x[kept])
    assert kept.sum() == values.size
    again, last = nn.max_pool_with_indices(xt.asarray(np.moveaxis(x, 1, -1).copy()), 2, layout="NHWC")
    np.testing.assert_array_equal(nn.max_unpool(again, last, (6, 4), layout="NHWC").numpy(), np.moveaxis(found, 1, -1))
    assert nn.max_unpool(xt.asarray([[[1.0, 2.0]]]), xt.asarray([[[1, 1]]]), (3,)).tolist() == [[[0, 3, 0]]]


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int64", "float32", "float64"])
def test_dtypes(dtype: str) -> None:
    """The largest of integers too, all of them negative; averages keep the floating dtype."""
    low = -100 if dtype != "uint16" else 0
    x = np.random.default_rng(0).integers(low, low + 90, (2, 3, 9)).astype(dtype)
    found = nn.max_pool(xt.asarray(x), 3, stride=2, padding=1)
    expected = np.stack([part.max(-1) for part in windows_of(x, 3, 2, (1, 1))], -1)
    assert found.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(found.numpy(), expected)
    if dtype.startswith("float"):
        assert nn.avg_pool(xt.asarray(x), 3, padding=1, count_include_pad=False).dtype == np.dtype(dtype)


def test_nan_and_ties() -> None:
    """A NaN is the largest; the first of several largest gets the derivative."""
    x = xt.asarray([[[1.0, float("nan"), 0.0, 2.0, 2.0, 1.0]]])
    assert str(nn.max_pool(x, 3).tolist()) == "[[[nan, 2.0]]]"
    assert xt.grad(lambda x: xt.sum(nn.max_pool(x, 3)))(x).tolist() == [[[0, 1, 0, 1, 0, 0]]]


def test_norm_of_zeros_has_no_slope() -> None:
    """Where a norm is 0 its derivative is 0, not NaN."""
    x = xt.asarray([[[0.0, 0.0, 3.0, 4.0]]])
    np.testing.assert_allclose(xt.grad(lambda x: xt.sum(nn.lp_pool(x, 2)))(x).numpy(), [[[0, 0, 0.6, 0.8]]])


def test_complex_average() -> None:
    """Averages of complex numbers, with derivatives."""
    x = normal(1, 2, 8) + 1j * normal(1, 2, 9)[..., :8]
    np.testing.assert_allclose(nn.avg_pool(xt.asarray(x), 2).numpy(), x.reshape(1, 2, 4, 2).mean(-1))
    part = nn.avg_pool(xt.asarray(x), 3, stride=1, padding=1, count_include_pad=False)
    assert part.dtype == np.complex128


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_views(layout: str) -> None:
    """Views with negative steps and gaps give what their copies give."""
    base = normal(3, 12, 14, 10)
    for view in (base[::-1, ::3, ::-1, ::2], base.transpose(0, 3, 2, 1)[:, :, ::-2]):
        x, copied = xt.asarray(view), xt.asarray(np.ascontiguousarray(view))
        for pool in (nn.max_pool, nn.avg_pool, nn.lp_pool):
            found, expected = (pool(one, (2, 3), stride=1, padding=(0, 1), layout=layout) for one in (x, copied))
            np.testing.assert_array_equal(found.numpy(), expected.numpy())


def test_global_pools() -> None:
    """Over all spatial axes, which stay."""
    x = normal(2, 3, 4, 5)
    np.testing.assert_allclose(nn.global_avg_pool(xt.asarray(x)).numpy(), x.mean((2, 3), keepdims=True))
    last = xt.asarray(np.ascontiguousarray(np.moveaxis(x, 1, -1)))
    np.testing.assert_array_equal(nn.global_max_pool(last, layout="NHWC").numpy()[:, 0, 0], x.max((2, 3)))


@pytest.mark.parametrize("name", ["max_pool", "avg_pool"])
def test_empty_batch(name: str) -> None:
    """No images: an empty result, and an empty gradient."""
    x = xt.ones((0, 3, 8, 8))
    assert getattr(nn, name)(x, 2).shape == (0, 3, 4, 4)
    assert xt.grad(lambda x: xt.sum(getattr(nn, name)(x, 2)))(x).shape == x.shape


def test_large_inputs_in_chunks() -> None:
    """What is cut into chunks of images, or of channels, is what it would be in one."""
    for shape in ((6, 40, 64, 64), (2, 3, 600, 700)):
        x = normal(*shape)
        rows = np.lib.stride_tricks.sliding_window_view(np.pad(x, [(0, 0)] * 2 + [(1, 1)] * 2), (3, 3), (2, 3))
        found = nn.avg_pool(xt.asarray(x), 3, stride=2, padding=1)
        np.testing.assert_allclose(found.numpy(), rows[:, :, ::2, ::2].mean((-1, -2)), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: nn.max_pool(xt.ones((1, 2, 4)), 5), ValueError, ["(4,)", "(5,)", "(1, 2, 4)"]),
        (lambda: nn.max_pool(xt.ones((1, 2, 4)), 2, padding=2), ValueError, ["padding", "less than the window (2,)"]),
        (lambda: nn.max_pool(xt.ones((1, 2, 4)), 2, padding=-1), ValueError, ["padding", "at least 0"]),
        (lambda: nn.max_pool(xt.ones((1, 2, 4)), 0), ValueError, ["kernel", "at least 1"]),
        (lambda: nn.max_pool(xt.ones((1, 2, 4)), 2, stride=0), ValueError, ["stride", "at least 1"]),
        (lambda: nn.max_pool(xt.ones((2, 4)), 2), ValueError, ["x", "(2, 4)"]),
        (lambda: nn.max_pool(xt.ones((1, 2, 4)), 2, layout="NHWC"), ValueError, ["layout", "'NCW'"]),
        (lambda: nn.max_pool(xt.ones((1, 2, 4), dtype=xt.complex64), 2), TypeError, ["real", "complex64"]),
        (lambda: nn.max_pool_with_indices(xt.ones((1, 2, 4), dtype=xt.bool), 2), TypeError, ["with_indices", "bool"]),
        (lambda: nn.max_unpool(xt.ones((1, 2, 4)), xt.ones((1, 2, 4)), (8,)), TypeError, ["indices", "integer"]),
        (lambda: nn.max_unpool(xt.ones((1, 1, 1)), xt.asarray([[[8]]]), (8,)), IndexError, ["indices", "0 to 7", "8"]),
        (lambda: nn.max_unpool(xt.ones((1, 1, 1)), xt.asarray([[8]]), (8,)), ValueError, ["(1, 1, 1)", "(1, 1)"]),
        (lambda: nn.max_unpool(xt.ones((1, 1, 1)), xt.asarray([[[8]]]), (8, 2)), ValueError, ["lengths", "(8, 2)"]),
        (lambda: nn.avg_pool(xt.ones((1, 2, 4), dtype=xt.int32), 2), TypeError, ["floating-point", "int32"]),
        (lambda: nn.avg_pool(xt.ones((1, 2, 4)), 2, divisor=0), ValueError, ["divisor", "at least 1"]),
        (lambda: nn.lp_pool(xt.ones((1, 2, 4)), 2, p=0), ValueError, ["p", "positive"]),
        (lambda: nn.adaptive_avg_pool(xt.ones((1, 2, 4)), 0), ValueError, ["lengths", "at least 1"]),
        (lambda: nn.adaptive_max_pool(xt.ones((1, 2, 0)), 1), ValueError, ["elements", "(1, 2, 0)"]),
    ],
)
def test_bad_input(call: Any, error: type[Exception], words: list[str]) -> None:
    """The error names what is wrong."""
    with pytest.raises(error) as caught:
        call()
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("seed", range(20))
def test_planes_are_the_engines(monkeypatch: Any, seed: int, dtype: str) -> None:
    """Pools by code for planes are those of shifted views: windows, strides, dilations, NaN, any number of threads."""
    if compile_.host() is None:
        pytest.skip("there is no compiler")
    monkeypatch.setattr(contractions, "CONTRACTION_COMPILED", 0)
    rng = np.random.default_rng(seed)
    rank = 1 + seed % 2
    x = rng.normal(size=(2, 3, *rng.integers(9, 80, rank))).astype(dtype)
    x[0, 0, ..., seed % 9] = np.nan
    window, stride, dilation = (tuple(int(n) for n in rng.integers(1, top, rank)) for top in (5, 3, 3))
    padding = [int(rng.integers(0, d * (k - 1) + 1)) for k, d in zip(window, dilation, strict=True)]
    how: dict[str, Any] = {"stride": stride, "padding": padding, "dilation": dilation, "ceil_mode": seed % 3 == 0}
    used = Mock(wraps=planes.form_of)
    monkeypatch.setattr(planes, "form_of", used)
    for pool in (nn.max_pool, nn.avg_pool):
        with xt.options(threads=1 + seed % 3):
            ours = pool(xt.asarray(x), window, **how).numpy()
        with xt.options(engine="direct"):
            theirs = pool(xt.asarray(x), window, **how).numpy()
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5 if dtype == "float32" else 1e-14)
    assert used.call_count == 2


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("seed", range(20))
def test_origins_are_the_engines(monkeypatch: Any, seed: int, dtype: str) -> None:
    """Places and derivatives of maxima by code of their own are those of shifted views: ties, NaN, -inf, padding, gaps,
    layouts, any number of threads.
    """
    if compile_.host() is None:
        pytest.skip("there is no compiler")
    monkeypatch.setattr(contractions, "CONTRACTION_COMPILED", 0)
    rng = np.random.default_rng(seed)
    rank = 1 + seed % 2
    layout = (("NCW", "NCHW"), ("NWC", "NHWC"))[seed // 2 % 2][rank - 1]
    shape = (2 - seed % 3 // 2, 3, *rng.integers(5, 20, rank))
    x = np.round(rng.normal(size=shape)).astype(dtype)
    x[rng.random(shape) < 0.1] = np.nan
    x[..., : seed % 4] = -np.inf
    x = x if layout[1] == "C" else np.ascontiguousarray(np.moveaxis(x, 1, -1))
    window, stride, dilation = (tuple(int(n) for n in rng.integers(1, top, rank)) for top in (5, 3, 3))
    padding = [int(rng.integers(0, d * (k - 1) + 1)) for k, d in zip(window, dilation, strict=True)]
    how: dict[str, Any] = {"stride": stride, "padding": padding, "dilation": dilation, "ceil_mode": seed % 3 == 0}
    how["layout"] = layout

    def found(**options: Any) -> list[Array]:
        with xt.options(**options):
            values, places = nn.max_pool_with_indices(xt.asarray(x), window, **how)
            cotangent = xt.reshape(xt.arange(values.size, dtype=xt.int32) % 7 - 3, values.shape)
            _, pull = xt.vjp(lambda x: nn.max_pool(x, window, **how), xt.asarray(x))
            return [places.numpy(), pull(xt.astype(cotangent, x.dtype))[0].numpy()]

    used = Mock(wraps=origins._made)
    monkeypatch.setattr(origins, "_made", used)
    for ours, theirs in zip(found(threads=1 + seed % 3), found(engine="direct"), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert used.call_count == 3  # places twice, and the derivative


@pytest.mark.parametrize(
    "pooled",
    [
        lambda x: nn.avg_pool(x, 3, stride=2, padding=1, count_include_pad=False),
        lambda x: nn.adaptive_avg_pool(x, 5),
        lambda x: nn.adaptive_max_pool(x, 5),
    ],
)
def test_pooling_with_tables_is_captured(pooled: Any) -> None:
    fused = xt.fuse(pooled)
    for seed in range(3):
        x = xt.asarray(np.random.default_rng(seed).random((2, 3, 160, 160)))
        np.testing.assert_allclose(fused(x).numpy(), pooled(x).numpy(), rtol=1e-14)
    assert fused.why(x) == ""


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("kernel", [(4, 5), (10, 4), (40, 60), (20, 1)])
@pytest.mark.usefixtures("sums_by_code")
def test_averages_of_large_parts(kernel: tuple[int, int], last: bool) -> None:
    """Averages of parts that axes are cut into, and their gradients, of arrays large enough for generated code."""
    rng = np.random.default_rng(kernel)
    x = rng.normal(size=(3, 40, 60, 18) if last else (3, 18, 40, 60))
    first, layout = (1, "NHWC") if last else (2, None)
    parts = [one for kernel, length in zip(kernel, (40, 60), strict=True) for one in (length // kernel, kernel)]
    split = x.reshape(*x.shape[:first], *parts, *x.shape[first + 2 :])
    expected = split.mean(axis=(first + 1, first + 3))
    y, pullback = xt.vjp(lambda x: nn.avg_pool(x, kernel, layout=layout), xt.asarray(x))
    np.testing.assert_allclose(y.numpy(), expected, rtol=0, atol=1e-14)
    g = rng.normal(size=expected.shape)
    spread = np.expand_dims(g, (first + 1, first + 3)) / np.prod(kernel)
    given = np.broadcast_to(spread, split.shape).reshape(x.shape)
    np.testing.assert_allclose(pullback(xt.asarray(g))[0].numpy(), given, rtol=0, atol=1e-14)


@pytest.mark.parametrize("layout", [None, "last"])
@pytest.mark.parametrize(
    ("lengths", "kernel", "kind"),
    [
        ((12, 10, 8), (2, 2, 2), {}),
        ((9, 11, 14), (3, 3, 3), {"stride": 2, "padding": 1}),
        ((7, 8, 9), (2, 3, 2), {"stride": (1, 2, 3), "dilation": (2, 1, 1)}),
        ((28, 36), (14, 12), {}),
        ((30, 30), (30, 30), {}),
        ((20, 22), (15, 13), {"stride": (5, 3)}),
        ((24, 24), (4, 4), {}),
    ],
)
def test_gradients_of_maxima_go_to_the_first_of_equal_ones(
    lengths: tuple[int, ...], kernel: tuple[int, ...], kind: dict[str, Any], layout: str | None
) -> None:
    """Windows on three axes, large ones, and all of an axis: of elements with few values, and with NaN."""
    rng, rank = np.random.default_rng(kernel), len(lengths)
    x = rng.integers(0, 4, (2, 17, *lengths)).astype(float)
    x[0, 3, *[n // 2 for n in lengths]] = np.nan
    stride, padding, dilation = [
        one if isinstance(one, tuple) else (one,) * rank
        for one in (kind.get("stride", kernel), kind.get("padding", 0), kind.get("dilation", 1))
    ]
    pads = [(0, 0), (0, 0), *[(p, p) for p in padding]]
    wide = np.pad(x, pads, constant_values=-np.inf)
    outs = [(n - d * (k - 1) - 1) // s + 1 for n, d, k, s in zip(wide.shape[2:], dilation, kernel, stride, strict=True)]
    g, expected = rng.normal(size=(2, 17, *outs)), np.zeros(wide.shape)
    for place in np.ndindex(2, 17, *outs):
        own = [
            slice(o * s, o * s + d * (k - 1) + 1, d)
            for o, s, d, k in zip(place[2:], stride, dilation, kernel, strict=True)
        ]
        part = wide[(*place[:2], *own)]
        first = np.unravel_index(np.argmax(part), part.shape)
        at = [o * s + f * d for o, s, f, d in zip(place[2:], stride, first, dilation, strict=True)]
        expected[(*place[:2], *at)] += g[place]
    inner = tuple(slice(p, n - p) for p, n in zip(padding, wide.shape[2:], strict=True))
    expected = expected[(slice(None), slice(None), *inner)]
    last = layout is not None
    own_layout = {2: "NHWC", 3: "NDHWC"}[rank] if last else None
    given, cotangent = [xt.asarray(np.ascontiguousarray(np.moveaxis(one, 1, -1)) if last else one) for one in (x, g)]
    with xt.options(engine="llvm"):
        found = xt.vjp(lambda x: nn.max_pool(x, kernel, layout=own_layout, **kind), given)[1](cotangent)[0].numpy()
    np.testing.assert_allclose(np.moveaxis(found, -1, 1) if last else found, expected, rtol=0, atol=1e-13)

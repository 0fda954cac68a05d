"""Winograd's convolution by itself: against sums over windows in float64, its errors, memory, threads, bad numbers."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

import xtensor as xt
from xtensor import nn
from xtensor.codegen.cpu import winograd as generated
from xtensor.nn import conv, conv_algorithm, conv_transpose, winograd
from xtensor.run import native

Array = np.ndarray[Any, Any]
Pads = tuple[tuple[int, int], tuple[int, int]]

# Largest errors of tiles of 2x2 and 4x4 outputs, in last places of the largest output of as many channels.
PLACES = {"winograd": 8, "winograd4": 64}


def by_windows(x: Array, w: Array, pads: Pads, groups: int = 1, stride: int = 1) -> Array:
    """Return a convolution by its definition, in float64."""
    for axis, (low, high) in enumerate(pads, 2):
        cut = slice(max(-low, 0), x.shape[axis] - max(-high, 0))
        x = x[(slice(None),) * axis + (cut,)]
    x = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *(tuple(max(n, 0) for n in pair) for pair in pads)])
    windows = sliding_window_view(x, (3, 3), axis=(2, 3))[:, :, ::stride, ::stride]
    windows = windows.reshape(x.shape[0], groups, -1, *windows.shape[2:])
    w = w.astype(np.float64).reshape(groups, -1, *w.shape[1:])
    return np.einsum("ngchwij,gkcij->ngkhw", windows, w).reshape(x.shape[0], -1, *windows.shape[3:5])


def normal(seed: int, *shape: int, dtype: str = "float64") -> Array:
    """Return normal numbers."""
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def given(x: Array, last: bool) -> Array:
    """Return images with channels last, if so."""
    return np.ascontiguousarray(np.moveaxis(x, 1, -1)) if last else x


def seen(x: Array, last: bool) -> Array:
    """Return images with channels first."""
    return np.moveaxis(x, -1, 1) if last else x


def convolved(
    x: Array,
    w: Array,
    pads: Pads = ((0, 0), (0, 0)),
    groups: int = 1,
    lasts: tuple[bool, bool] = (False, False),
    **more: Any,
) -> Array:
    """Return our convolution, channels first."""
    layout = tuple("NHWC" if last else "NCHW" for last in lasts)
    more = {"padding": pads, "groups": groups, "layout": layout, **more}
    return seen(conv(xt.asarray(given(x, lasts[0])), xt.asarray(w), **more).numpy(), lasts[1])


def assert_near(found: Array, expected: Array, dtype: str, algorithm: str) -> None:
    """Check that errors are a few last places of the largest number."""
    error = np.abs(found - expected).max() / np.abs(expected).max()
    assert error <= PLACES[algorithm] * np.finfo(dtype).eps


def counted(monkeypatch: Any) -> list[Any]:
    """Return the kernels that are asked for from now on, of convolutions that came before too."""
    used: list[Any] = []
    ask = winograd.winograd_kernel
    winograd._outputs_of.cache_clear()
    winograd._weights_of.cache_clear()

    def asked(tiled: Any, finish: Any = None) -> Any:
        used.append(tiled)
        return ask(tiled, finish)

    monkeypatch.setattr(winograd, "winograd_kernel", asked)
    return used


@pytest.mark.parametrize("scheme", [one for one in generated.matrices if not one.back])
def test_matrices_are_those_of_short_convolutions(scheme: Any) -> None:
    """A'[(G g) * (B' d)] is what a window of three numbers gives at some places, exactly for integers."""
    of = generated.matrices[scheme]
    g, d = np.array([3.0, -5.0, 7.0]), np.arange(scheme.length) ** 2.0 + 1
    found = np.array(of.products) @ ((np.array(of.weights) @ g) * (np.array(of.inputs) @ d))
    np.testing.assert_allclose(found, np.correlate(d, g, "valid")[:: scheme.stride], rtol=1e-13)
    assert len(found) == scheme.gives == scheme.outputs


@pytest.mark.parametrize("scheme", [one for one in generated.matrices if one.back])
def test_matrices_back_are_those_of_the_adjoint(scheme: Any) -> None:
    """A tile of inputs is what the outputs of the windows over it give, from the one that begins before it on."""
    of = generated.matrices[scheme]
    g, d = np.array([3.0, -5.0, 7.0]), np.arange(scheme.length) ** 2.0 + 1
    found = np.array(of.products) @ ((np.array(of.weights) @ g) * (np.array(of.inputs) @ d))
    spread = np.zeros(scheme.stride * scheme.length)
    spread[:: scheme.stride] = d
    np.testing.assert_array_equal(found, np.convolve(spread, g)[scheme.stride :][: scheme.gives])
    assert len(found) == scheme.gives == scheme.outputs * scheme.stride


@pytest.mark.parametrize(("algorithm", "stride"), [("winograd", 1), ("winograd4", 1), ("winograd", 2)])
@pytest.mark.parametrize("seed", range(12))
def test_random_configurations(seed: int, algorithm: str, stride: int, monkeypatch: Any) -> None:
    """Odd sizes, padding of all kinds, groups, layouts and small workspaces: outputs and both gradients."""
    rng = np.random.default_rng(seed)
    dtype = "float32" if seed % 2 else "float64"
    groups, channels, outputs = [(1, 5, 6), (2, 16, 19), (1, 33, 40)][seed % 3]
    n, height, width = rng.integers(1, 4), rng.integers(3, 14), rng.integers(3, 14)
    pads: Any = tuple(tuple(int(p) for p in rng.integers(-1 if min(height, width) > 4 else 0, 6, 2)) for _ in "hw")
    lasts = bool(seed & 2), bool(seed & 4)
    x, w = normal(seed, n, groups * channels, height, width), normal(seed, groups * outputs, channels, 3, 3)
    x, w = x.astype(dtype), w.astype(dtype)
    used = counted(monkeypatch)
    expected = by_windows(x, w, pads, groups, stride)
    more = {"algorithm": algorithm, "workspace_mb": [64.0, 1.0][seed // 6], "stride": stride}
    found = convolved(x, w, pads, groups, lasts, **more)
    assert_near(found, expected, dtype, algorithm)
    assert used

    cotangent = normal(seed + 1, *expected.shape, dtype=dtype)
    layout = tuple("NHWC" if last else "NCHW" for last in lasts)
    _, back = xt.vjp(
        lambda x, w: conv(x, w, padding=pads, groups=groups, layout=layout, **more),
        *(xt.asarray(given(x, lasts[0])), xt.asarray(w)),
    )
    of_x, of_w = (found.numpy() for found in back(xt.asarray(given(cotangent, lasts[1]))))
    assert any(one.scheme.back for one in used) == (stride == 2)
    assert any(one.gradient for one in used) or dtype == "float32" or seed >= 6  # sums wider, or little room
    unit_x, unit_w = normal(seed + 2, *x.shape), normal(seed + 3, *w.shape)
    for gradient, unit, change in (
        (seen(of_x, lasts[0]), unit_x, by_windows(unit_x, w, pads, groups, stride)),
        (of_w, unit_w, by_windows(x, unit_w, pads, groups, stride)),
    ):
        scale = np.linalg.norm(gradient) * np.linalg.norm(unit)
        assert abs((gradient * unit).sum() - (cotangent * change).sum()) <= 64 * np.finfo(dtype).eps * scale


@pytest.mark.parametrize("last", [False, True])
def test_views_are_read_where_they_lie(last: bool) -> None:
    """Parts of images, flipped and swapped weights; what cannot be read where it lies is computed otherwise."""
    base, w = normal(0, 3, 20, 12, 13), normal(1, 24, 20, 3, 3)
    kernel = w.swapaxes(0, 1)[:, :, ::-1, ::-1].swapaxes(0, 1)
    for view in (np.s_[::-1, :, 2:9, 1:12], np.s_[::2, :, ::-2], np.s_[:, :, :, ::-1]):
        whole = xt.asarray(given(base, last))
        turned = xt.permute_dims(whole, (0, 3, 1, 2)) if last else whole
        part = turned[view]
        part = xt.permute_dims(part, (0, 2, 3, 1)) if last else part
        found = conv(part, xt.asarray(kernel), padding=1, layout="NHWC" if last else "NCHW", algorithm="winograd")
        assert_near(seen(found.numpy(), last), by_windows(base[view], kernel, ((1, 1), (1, 1))), "float64", "winograd")


@pytest.mark.parametrize(("stride", "lengths"), [(1, (9, 8)), (2, (17, 16))])
def test_transposed_convolution(stride: int, lengths: Any) -> None:
    """conv_transpose goes through tiles too, and stays the adjoint; a bias is added."""
    x, w, y, bias = normal(0, 2, 24, 9, 8), normal(1, 24, 20, 3, 3), normal(2, 2, 20, *lengths), normal(3, 20)
    kind: Any = {"padding": 1, "stride": stride, "output_padding": [0, stride - 1], "algorithm": "winograd"}
    found = conv_transpose(xt.asarray(x), xt.asarray(w), xt.asarray(bias), **kind).numpy()
    expected = (x * by_windows(y, w, ((1, 1), (1, 1)), stride=stride)).sum() + (y * bias[:, None, None]).sum()
    np.testing.assert_allclose((found * y).sum(), expected, rtol=1e-12)


LARGE = {"x": (2, 32, 24, 25), "w": (64, 32, 3, 3)}


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("lasts", [(False, False), (True, True)])
def test_errors_are_within_four_times_those_of_products(lasts: tuple[bool, bool], stride: int) -> None:
    """The bound of the documentation, for float32: outputs, and both gradients."""
    x, w = (normal(n, *shape, dtype="float32") for n, shape in enumerate(LARGE.values()))
    pads: Pads = ((1, 1), (1, 1))
    cotangent = normal(3, x.shape[0], w.shape[0], *(-(-n // stride) for n in x.shape[2:]), dtype="float32")
    errors = {}
    exact: list[Array] = []
    layout = "NHWC" if lasts[0] else "NCHW"
    for algorithm, dtype in (("im2col", "float64"), ("im2col", "float32"), ("winograd", "float32")):
        given_x = xt.asarray(given(x, lasts[0]).astype(dtype))
        y, back = xt.vjp(
            lambda x, w, a=algorithm: conv(x, w, padding=1, stride=stride, layout=layout, algorithm=a),
            *(given_x, xt.asarray(w.astype(dtype))),
        )
        found = [one.numpy() for one in (y, *back(xt.asarray(given(cotangent, lasts[1]).astype(dtype))))]
        if not exact:
            exact = found
            np.testing.assert_allclose(
                seen(exact[0], lasts[1]), by_windows(x, w, pads, stride=stride), rtol=1e-9, atol=1e-9
            )
        errors[algorithm] = [np.sqrt(((a - b) ** 2).mean()) for a, b in zip(found, exact, strict=True)]
    for ours, products in zip(errors["winograd"], errors["im2col"], strict=True):
        assert 0 < ours <= 4 * products


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 3e38])
@pytest.mark.parametrize("where", ["x", "w"])
@pytest.mark.parametrize(("stride", "channels", "outputs"), [(1, 32, 64), (2, 128, 128)])
def test_auto_gives_what_products_give_for_numbers_that_are_not_finite(
    bad: float, where: str, stride: int, channels: int, outputs: int
) -> None:
    """One number that is not finite, or whose tile overflows, reaches the outputs of its own windows alone."""
    shapes = {"x": (2, channels, 24 * stride, 24 * stride + 1), "w": (outputs, channels, 3, 3)}
    arrays = {name: normal(n, *shape, dtype="float32") for n, (name, shape) in enumerate(shapes.items())}
    arrays[where][1, 3, 1, 2] = bad
    x, w = (xt.asarray(arrays[name]) for name in "xw")
    kind: Any = {"padding": 1, "stride": stride}
    assert conv_algorithm(x, w, **kind).startswith("winograd: ")
    cotangent = xt.asarray(normal(3, 2, outputs, *(-(-n // stride) for n in x.shape[2:]), dtype="float32"))
    found = {}
    for algorithm in ("auto", "im2col"):
        y, back = xt.vjp(lambda x, w, a=algorithm: conv(x, w, algorithm=a, **kind), x, w)
        found[algorithm] = [one.numpy() for one in (y, *back(cotangent))]
    for ours, products in zip(found["auto"], found["im2col"], strict=True):
        finite = np.isfinite(products)
        np.testing.assert_array_equal(np.isfinite(ours), finite)
        np.testing.assert_array_equal(ours[~finite], products[~finite])
        scale = np.abs(products[finite & (np.abs(products) < 1e30)]).max()
        np.testing.assert_allclose(ours[finite], products[finite], rtol=1e-5, atol=1e-5 * scale)
    assert not np.isfinite(found["auto"][0]).all() or bad == 3e38


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("stride", [1, 2])
def test_threads_do_not_change_a_bit(groups: int, stride: int) -> None:
    """Outputs and gradients are the same bits for any number of threads."""
    x, w = normal(0, 3, 64, 17, 18, dtype="float32"), normal(1, 256, 64 // groups, 3, 3, dtype="float32")
    cotangent = xt.asarray(normal(2, 3, 256, *(-(-n // stride) for n in x.shape[2:]), dtype="float32"))
    kind: Any = {"padding": 1, "groups": groups, "stride": stride, "algorithm": "winograd"}
    results = []
    for threads in (1, 2, 3, 7):
        with xt.options(threads=threads):
            y, back = xt.vjp(lambda x, w: conv(x, w, **kind), xt.asarray(x), xt.asarray(w))
            results.append([one.numpy() for one in (y, *back(cotangent))])
    for other in results[1:]:
        for ours, first in zip(other, results[0], strict=True):
            np.testing.assert_array_equal(ours, first)


@pytest.mark.parametrize("workspace_mb", [1.6, 3.0, 64.0])
def test_workspace_is_not_exceeded(workspace_mb: float, monkeypatch: Any) -> None:
    """What a convolution, or a gradient of weights, takes at a time; what has no room is computed by products."""
    x, w = (xt.asarray(normal(n, *shape, dtype="float32")) for n, shape in enumerate(LARGE.values()))
    kernels, taken = counted(monkeypatch), list[int]()

    lend = native.POOL.lend

    def counting(nbytes: int) -> Any:
        taken.append(nbytes)
        return lend(nbytes)

    monkeypatch.setattr(native, "POOL", SimpleNamespace(lend=counting))
    kind = {"padding": 1, "algorithm": "winograd", "workspace_mb": workspace_mb}
    y, back = xt.vjp(lambda x, w: conv(x, w, **kind), x, w)
    assert kernels
    assert 0 < sum(taken) <= workspace_mb * 1e6
    taken.clear()
    xt.evaluate(*back(y))
    assert 0 < sum(taken) <= 2 * workspace_mb * 1e6  # one after the other: of data, and of weights
    kernels.clear()
    conv(x, w, **{**kind, "workspace_mb": 0.3})
    assert not kernels


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: conv(xt.ones((1, 2, 9, 9)), xt.ones((2, 2, 5, 5)), algorithm="winograd"), ["5x5", "'winograd'"]),
        (lambda: conv(xt.ones((1, 2, 9)), xt.ones((2, 2, 3)), algorithm="winograd"), ["windows are 3,"]),
        (lambda: conv(xt.ones((1, 2, 9, 9)), xt.ones((2, 2, 3, 3)), stride=2, algorithm="winograd4"), ["strides 2, 2"]),
        (lambda: conv(xt.ones((1, 2, 9, 9)), xt.ones((2, 2, 3, 3)), stride=(1, 2), algorithm="winograd"),
         ["strides 1, 2"]),
        (lambda: conv(xt.ones((1, 2, 9, 9)), xt.ones((2, 2, 3, 3)), dilation=2, algorithm="winograd"), ["dilated"]),
        (lambda: conv(xt.ones((1, 2, 9, 9), dtype=xt.int32), xt.ones((2, 2, 3, 3), dtype=xt.int32),
                      algorithm="winograd"), ["int32"]),
        (lambda: conv_transpose(xt.ones((1, 2, 9, 9)), xt.ones((2, 2, 3, 3)), stride=3, algorithm="winograd"),
         ["conv_transpose", "strides 3, 3"]),
        (lambda: conv(xt.ones((1, 2, 9, 9)), xt.ones((2, 2, 3, 3)), algorithm="fft"), ["'winograd4'", "'fft'"]),
    ],
)  # fmt: skip
def test_what_there_are_no_tiles_for(call: Any, words: list[str]) -> None:
    """Asking for tiles where there are none is an error that says why."""
    with pytest.raises(ValueError, match=r"algorithm must be one of .*, got ") as error:
        call()
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize(
    ("shape", "weights", "kind", "words"),
    [
        ((8, 64, 28, 28), (64, 64, 3, 3), {"padding": 1}, "winograd: an estimated"),
        ((8, 128, 28, 28), (128, 128, 3, 3), {"stride": 2, "padding": 1}, "winograd: an estimated"),
        ((8, 64, 28, 28), (64, 64, 3, 3), {"stride": 3}, "im2col: windows are 3x3 with strides 3, 3"),
        ((8, 64, 28, 28), (64, 64, 1, 1), {}, "im2col: windows are 1x1"),
        ((8, 3, 28, 28), (512, 3, 3, 3), {}, "im2col: an estimated"),
        ((1, 4, 9, 9), (4, 4, 3, 3), {}, "im2col: it is little work"),
        ((8, 64, 28, 28), (64, 1, 3, 3), {"groups": 64}, "im2col: generated code for single channels"),
        ((1, 4, 9, 9), (4, 4, 3, 3), {"algorithm": "winograd"}, "winograd: asked for"),
        ((1, 4, 9, 9), (4, 4, 3, 3), {"algorithm": "direct"}, "direct: asked for"),
    ],
)
def test_the_choice_and_its_reason(shape: Any, weights: Any, kind: Any, words: str) -> None:
    """conv_algorithm says what is taken and why."""
    found = conv_algorithm(xt.ones(shape, dtype=xt.float32), xt.ones(weights, dtype=xt.float32), **kind)
    assert found.startswith(words)


# ---- what follows


FOLLOWED: dict[str, Any] = {
    "bias and relu": lambda y, row, like: (nn.relu(y + row),),
    "scale, relu, residual": lambda y, row, like: (nn.relu(y * row) + like,),
    "two results": lambda y, row, like: (xt.maximum(y + like, 0.5), y - row),
    "leaky": lambda y, row, like: (xt.where(y > 0, y, y * 0.1),),
}


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("lasts", [(False, False), (True, True), (True, False), (False, True)])
@pytest.mark.parametrize("name", FOLLOWED)
def test_what_follows_in_registers(name: str, lasts: tuple[bool, bool], stride: int) -> None:
    """The bits that it has apart, also for groups, odd sizes, kept weights, and numbers that are not finite."""
    follow, (first, last) = FOLLOWED[name], lasts
    layout: Any = tuple("NHWC" if one else "NCHW" for one in lasts)
    for seed, (groups, dtype, threads) in enumerate([(1, "float32", 1), (2, "float64", 2), (1, "float32", 2)]):
        x, w = normal(seed, 3, groups * 17, 14, 11, dtype=dtype), normal(1, groups * 21, 17, 3, 3, dtype=dtype)
        with xt.options(lazy="always", engine="llvm", threads=threads):
            own = partial(xt.asarray, copy=True)
            weights, kind = own(w), {"padding": (2, 1), "stride": stride, "groups": groups, "layout": layout}
            shape = conv(own(given(x, first)), weights, **kind).evaluate().shape
            row = own(normal(2, groups * 21, *[1] * (0 if last else 2), dtype=dtype))
            like = own(normal(3, *shape, dtype=dtype))
            for algorithm in ("winograd", "auto", "winograd4")[: 4 - stride]:
                for spoiled in (False, False, False, True):
                    x[1, 3, 5, 5] = np.inf if spoiled else 1.0
                    images = own(given(x, first))
                    results = follow(conv(images, weights, algorithm=algorithm, **kind), row, like)
                    joint = "goes on from a contraction" in str(xt.explain(*results))
                    assert joint or algorithm == "auto"
                    xt.evaluate(*results)
                    alone = conv(images, weights, algorithm=algorithm, **kind).evaluate()
                    for found, expected in zip(results, follow(alone, row, like), strict=True):
                        np.testing.assert_array_equal(found.numpy(), expected.numpy())


@pytest.mark.parametrize("algorithm", ["winograd", "auto"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_what_follows_a_gradient_of_data(layout: Any, algorithm: Any) -> None:
    """The gradient of a rectifier, of repeated calls too: the bits that it has apart."""
    own = partial(xt.asarray, copy=True)
    x, w = normal(0, 2, 24, 13, 18, dtype="float32"), own(normal(1, 20, 24, 3, 3, dtype="float32"))
    x = given(x, layout == "NHWC")
    with xt.options(lazy="always", engine="llvm", threads=2):
        y, back = xt.vjp(lambda x: conv(x, w, padding=1, layout=layout, algorithm=algorithm), own(x))
        for seed in range(5):
            cotangent, mask = own(normal(seed, *y.shape, dtype="float32")), own(normal(seed, *x.shape) > 0)
            if seed == 4:
                cotangent[0, 1, 1, 1] = xt.inf
            found = xt.where(mask, back(cotangent)[0], 0)
            assert algorithm == "auto" or "goes on from a contraction" in str(xt.explain(found))
            found.evaluate()
            expected = xt.where(mask, back(cotangent)[0].evaluate(), 0)
            np.testing.assert_array_equal(found.numpy(), expected.numpy())


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_what_follows_chosen_tiles(layout: Any) -> None:
    """A layer for which tiles are chosen, and its gradient, go on with what follows."""
    x, w = xt.ones((8, 56, 64, 56) if layout == "NHWC" else (8, 64, 56, 56), dtype=xt.float32), xt.ones((64, 64, 3, 3))
    x, w = (x if layout == "NCHW" else xt.matrix_transpose(x).copy()), xt.astype(w, xt.float32)
    assert "winograd" in nn.conv_algorithm(x, w, padding=1, layout=layout)
    with xt.options(lazy="always", engine="llvm"):
        y, back = xt.vjp(lambda x: conv(x, w, padding=1, layout=layout), x)
        for made in (nn.relu(conv(x, w, padding=1, layout=layout) + 1), xt.where(x > 0, back(y)[0], 0)):
            assert "goes on from a contraction" in str(xt.explain(made))


def test_functions_follow_apart() -> None:
    """Steps that are functions are no part of the loops over tiles."""
    x, w = (xt.asarray(normal(n, *shape), copy=True) for n, shape in enumerate([(2, 32, 20, 20), (32, 32, 3, 3)]))
    with xt.options(lazy="always", engine="llvm"):
        y = xt.tanh(conv(x, w, algorithm="winograd"))
        assert "followed by few light steps only" in str(xt.explain(y))
        expected = np.tanh(conv(x, w, algorithm="winograd").numpy())
    np.testing.assert_allclose(y.numpy(), expected, rtol=1e-14, atol=1e-14)

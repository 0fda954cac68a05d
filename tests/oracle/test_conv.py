"""The convolution family against PyTorch: forward, and backward for input, weights and bias."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import xtensor as xt

torch = pytest.importorskip("torch")

LENGTHS, WINDOW = (9, 8, 7), (3, 2, 2)
CHANNELS, OUTPUTS = 4, 8
Array = np.ndarray[Any, Any]


def normal(dtype: str, *shape: int) -> Array:
    """Return random numbers of a dtype, small ones where they are integers."""
    rng = np.random.default_rng(shape)
    if dtype.startswith("int"):
        return rng.integers(-9, 10, shape).astype(dtype)
    values = rng.normal(size=shape)
    return (values + 1j * rng.normal(size=shape) if dtype.startswith("complex") else values).astype(dtype)


def torch_call(name: str, rank: int, *args: Any, **kwargs: Any) -> Any:
    """Call PyTorch's function of so many spatial axes."""
    return getattr(torch.nn.functional, name.format(rank))(*args, **kwargs)


def to_last(x: Array, layout: str | None) -> Array:
    """Return an array whose channels are the second axis in the layout."""
    return np.moveaxis(x, 1, -1) if layout and layout.endswith("C") else x


def to_first(x: Array, layout: str | None) -> Array:
    """Return it back."""
    return np.moveaxis(x, -1, 1) if layout and layout.endswith("C") else x


def both(ours: Any, theirs: Any, arrays: list[Array], layout: str | None) -> list[tuple[Array, Array]]:
    """Return result and gradients of a function, ours and theirs; the first array and the result have the layout."""
    given = [torch.tensor(a, requires_grad=True) for a in arrays]
    y = theirs(*given)
    cotangent = normal(str(arrays[0].dtype), *y.shape)
    gradients = torch.autograd.grad(y, given, torch.tensor(cotangent))
    mine = [xt.asarray(np.ascontiguousarray(a)) for a in (to_last(arrays[0], layout), *arrays[1:])]
    result, back = xt.vjp(ours, *mine)
    found = back(xt.asarray(np.ascontiguousarray(to_last(cotangent, layout))))
    pairs = [(to_first(result.numpy(), layout), y.detach().numpy())]
    pairs.append((to_first(found[0].numpy(), layout), gradients[0].numpy()))
    return pairs + [(f.numpy(), g.numpy()) for f, g in zip(found[1:], gradients[1:], strict=True)]


def check(pairs: list[tuple[Array, Array]], tolerance: float = 1e-10) -> None:
    """Assert that ours are theirs, relative to the largest of theirs."""
    for ours, theirs in pairs:
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance * max(1.0, np.abs(theirs).max()))


LAYOUTS = {1: (None, "NWC"), 2: (None, "NHWC"), 3: (None, "NDHWC")}
GRID = [
    (rank, stride, padding, dilation, groups, layout)
    for rank in (1, 2, 3)
    for stride, padding, dilation, groups in product((1, 2, 3), (0, 1, 2), (1, 2), (1, 2, 4))
    for layout in LAYOUTS[rank]
]


def conv_case(case: Any, dtype: str) -> list[tuple[Array, Array]]:
    """Return ours and theirs of a convolution."""
    rank, stride, padding, dilation, groups, layout = case
    arrays = [normal(dtype, 2, CHANNELS, *LENGTHS[:rank]), normal(dtype, OUTPUTS, CHANNELS // groups, *WINDOW[:rank])]
    arrays.append(normal(dtype, OUTPUTS))
    kind = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return both(
        lambda *a: xt.nn.conv(*a, layout=layout, **kind),
        lambda *a: torch_call("conv{}d", rank, *a, **kind),
        arrays,
        layout,
    )


@pytest.mark.parametrize("case", GRID, ids=str)
def test_conv(case: Any) -> None:
    """Every combination of rank, stride, padding, dilation, groups and layout, in float64."""
    check(conv_case(case, "float64"))


# Channels, size, window, stride and outputs of layers that come in strips: whose rows end in blocks of fewer registers,
# whose outputs are turned in several segments and in parts of squares, whose columns lie apart, whose gradients of
# weights take some elements again.
STRIPS = [
    (3, 61, 3, 1, 20),
    (3, 61, 3, 2, 20),
    (2, 120, 7, 2, 8),
    (20, 53, 3, 1, 37),
    (20, 53, 3, 2, 37),
    (32, 26, 5, 1, 32),
    (24, 27, 2, 2, 24),
    (33, 30, 1, 1, 24),
    (17, 30, 1, 2, 48),
]


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("layer", STRIPS, ids=str)
def test_strips(layer: tuple[int, ...], layout: str) -> None:
    """Layers in strips, and their gradients, are PyTorch's, the same bits for any number of threads."""
    channels, size, window, stride, outputs = layer
    arrays = [normal("float64", 3, channels, size, size), normal("float64", outputs, channels, window, window)]
    how: dict[str, Any] = {"stride": stride, "padding": window // 2}

    def ours(x: Any, w: Any) -> Any:
        return xt.nn.conv(x, w, layout=layout, algorithm="im2col", **how)

    found = []
    for threads in (1, 3):
        with xt.options(threads=threads, engine="llvm"):
            found.append(both(ours, lambda x, w: torch.nn.functional.conv2d(x, w, **how), arrays, layout))
        check(found[-1])
    for (one, _), (other, _) in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("case", GRID[::3], ids=str)
def test_conv_complex(case: Any) -> None:
    """A third of them for complex numbers."""
    check(conv_case(case, "complex128"))


# How many last places of the largest element our errors may be beyond PyTorch's, for result, input, weights and bias.
# Both add up float32 in an order of their own, and neither order is the better one for every case: ours was worse for
# 28 results and 46 gradients of inputs of 108, by at most 0.5 and 2.8 of them. Gradients of weights as small as these
# and those of biases are added up in float64, and are never worse.
BEYOND = (1, 3, 0, 0)


@pytest.mark.parametrize("case", GRID[1::3], ids=str)
def test_conv_float32(case: Any) -> None:
    """Another third in single precision, to be as near to the result in double precision as PyTorch is."""
    single, exact = conv_case(case, "float32"), conv_case_exact(case)
    for (ours, theirs), reference, beyond in zip(single, exact, BEYOND, strict=True):
        assert ours.dtype == np.float32 and ours.shape == reference.shape
        error, other = (np.abs(x.astype("float64") - reference).max() for x in (ours, theirs))
        assert error <= other + beyond * np.spacing(np.float32(np.abs(reference).max()))


def conv_case_exact(case: Any) -> list[Array]:
    """Return PyTorch's results in double precision, of the arrays in single precision."""
    rank, stride, padding, dilation, groups, _ = case
    shapes = [(2, CHANNELS, *LENGTHS[:rank]), (OUTPUTS, CHANNELS // groups, *WINDOW[:rank]), (OUTPUTS,)]
    given = [torch.tensor(normal("float32", *shape).astype("float64"), requires_grad=True) for shape in shapes]
    kind = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    y = torch_call("conv{}d", rank, *given, **kind)
    cotangent = torch.tensor(normal("float32", *y.shape).astype("float64"))
    return [y.detach().numpy(), *(g.numpy() for g in torch.autograd.grad(y, given, cotangent))]


@pytest.mark.parametrize("case", GRID[2::3], ids=str)
def test_conv_integers(case: Any) -> None:
    """The last third for integers, which are exact."""
    rank, stride, padding, dilation, groups, layout = case
    kind = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    x = normal("int64", 2, CHANNELS, *LENGTHS[:rank])
    w = normal("int64", OUTPUTS, CHANNELS // groups, *WINDOW[:rank])
    ours = xt.nn.conv(xt.asarray(to_last(x, layout)), xt.asarray(w), layout=layout, **kind)
    theirs = torch_call("conv{}d", rank, torch.tensor(x), torch.tensor(w), **kind)
    np.testing.assert_array_equal(to_first(ours.numpy(), layout), theirs.numpy())


TRANSPOSED = [
    (rank, stride, padding, more, dilation, groups, layout)
    for rank in (1, 2, 3)
    for stride, padding, more, dilation, groups in product((1, 2, 3), (0, 1), (0, 1), (1, 2), (1, 4))
    if more < max(stride, dilation)
    for layout in LAYOUTS[rank]
]


@pytest.mark.parametrize("case", TRANSPOSED, ids=str)
def test_conv_transpose(case: Any) -> None:
    """Transposed convolutions over the same parameters, and output_padding."""
    rank, stride, padding, more, dilation, groups, layout = case
    arrays = [normal("float64", 2, CHANNELS, *LENGTHS[:rank])]
    arrays += [normal("float64", CHANNELS, OUTPUTS // groups, *WINDOW[:rank]), normal("float64", OUTPUTS)]
    kind = {"stride": stride, "padding": padding, "output_padding": more, "dilation": dilation, "groups": groups}
    pairs = both(
        lambda *a: xt.nn.conv_transpose(*a, layout=layout, **kind),
        lambda *a: torch_call("conv_transpose{}d", rank, *a, **kind),
        arrays,
        layout,
    )
    check(pairs)


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("groups", [1, 2])
def test_padding_modes(mode: str, rank: int, groups: int) -> None:
    """What stands in the padding, as PyTorch's layers have it."""
    arrays = [normal("float64", 2, CHANNELS, *LENGTHS[:rank])]
    arrays += [normal("float64", OUTPUTS, CHANNELS // groups, *WINDOW[:rank])]

    def theirs(x: Any, w: Any) -> Any:
        padded = torch.nn.functional.pad(x, [2, 2] * rank, mode=mode)
        return torch_call("conv{}d", rank, padded, w, groups=groups)

    check(both(lambda x, w: xt.nn.conv(x, w, padding=2, groups=groups, padding_mode=mode), theirs, arrays, None))


@pytest.mark.filterwarnings("ignore:Using padding='same':UserWarning")  # PyTorch's, about a copy it makes
@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("dilation", [1, 2])
def test_same(rank: int, dilation: int) -> None:
    """The word "same" at stride 1, windows of even length among them."""
    arrays = [normal("float64", 2, CHANNELS, *LENGTHS[:rank]), normal("float64", OUTPUTS, CHANNELS, *WINDOW[:rank])]
    kind = {"padding": "same", "dilation": dilation}
    ours = lambda *a: xt.nn.conv(*a, **kind)  # noqa: E731
    check(both(ours, lambda *a: torch_call("conv{}d", rank, *a, **kind), arrays, None))


@pytest.mark.parametrize("function", ["conv", "conv_transpose"])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("groups", [1, 2])
def test_second_derivatives(function: str, stride: int, groups: int) -> None:
    """The gradient of a gradient, for input and weights."""
    shape = (8, 4 // groups) if function == "conv" else (4, 8 // groups)
    x, w = normal("float64", 2, 4, 7, 6), normal("float64", *shape, 3, 2)
    call = getattr(xt.nn, function)
    theirs = "conv2d" if function == "conv" else "conv_transpose2d"

    def ours(x: Any, w: Any) -> Any:
        gx, gw = xt.grad(lambda x, w: xt.sum(call(x, w, stride=stride, groups=groups) ** 3), (0, 1))(x, w)
        return xt.sum(gx**2) + xt.sum(gw**2)

    tx, tw = (torch.tensor(a, requires_grad=True) for a in (x, w))
    y = getattr(torch.nn.functional, theirs)(tx, tw, stride=stride, groups=groups)
    gx, gw = torch.autograd.grad((y**3).sum(), (tx, tw), create_graph=True)
    expected = torch.autograd.grad((gx**2).sum() + (gw**2).sum(), (tx, tw))
    found = xt.grad(ours, (0, 1))(xt.asarray(x), xt.asarray(w))
    check([(f.numpy(), e.numpy()) for f, e in zip(found, expected, strict=True)])


def folding(last: bool, **kind: Any) -> list[tuple[Array, Array]]:
    """Return ours and theirs of windows as columns, and of columns added up."""
    x = normal("float64", 2, 3, 7, 6)
    columns = torch.nn.functional.unfold(torch.tensor(x), (3, 2), **kind)
    back = torch.nn.functional.fold(columns, (7, 6), (3, 2), **kind)
    layout = "NHWC" if last else None
    ours = xt.nn.unfold(xt.asarray(to_last(x, layout).copy()), (3, 2), layout=layout, **kind)
    again = xt.nn.fold(ours, (7, 6), (3, 2), layout=layout, **kind)
    found = ours.numpy().swapaxes(1, 2) if last else ours.numpy()
    return [(found, columns.numpy()), (to_first(again.numpy(), layout), back.numpy())]


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("padding", [0, (1, 1)])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("stride", [1, 2])
def test_unfold_and_fold(stride: int, dilation: int, padding: Any, last: bool) -> None:
    """Windows of images, which PyTorch has for two axes."""
    check(folding(last, stride=stride, dilation=dilation, padding=padding))


POOLS = [
    (rank, stride, padding, ceil, last)
    for rank, stride, padding, ceil in product((1, 2, 3), (None, 1, 2, 3), (0, 1), (False, True))
    for last in (False, True)
]


def pool_case(name: str, case: Any, **more: Any) -> list[tuple[Array, Array]]:
    """Return ours and theirs of one pooling function."""
    rank, stride, padding, ceil, last = case
    kind: dict[str, Any] = {"stride": stride, "padding": padding, "ceil_mode": ceil, **more}
    layout = LAYOUTS[rank][1] if last else None
    x = normal("float64", 2, 3, *LENGTHS[:rank])
    window = (3, 2, 2)[:rank]
    return both(
        lambda x: getattr(xt.nn, name)(x, window, layout=layout, **kind),
        lambda x: torch_call(name + "{}d", rank, x, window, **kind),
        [x],
        layout,
    )


@pytest.mark.parametrize("case", POOLS, ids=str)
def test_max_pool(case: Any) -> None:
    """The largest elements, and where their derivatives go."""
    check(pool_case("max_pool", case))


@pytest.mark.parametrize("case", POOLS, ids=str)
@pytest.mark.parametrize("dilation", [1, 2])
def test_max_pool_with_indices(case: Any, dilation: int) -> None:
    """Where the largest elements were, and putting them back there."""
    rank, stride, padding, ceil, last = case
    layout = LAYOUTS[rank][1] if last else None
    kind: dict[str, Any] = {"stride": stride, "padding": padding, "ceil_mode": ceil, "dilation": dilation}
    x, window = normal("float64", 2, 3, *LENGTHS[:rank]), (3, 2, 2)[:rank]
    values, places = torch_call("max_pool{}d", rank, torch.tensor(x), window, return_indices=True, **kind)
    given = xt.asarray(np.ascontiguousarray(to_last(x, layout)))
    found, where = xt.nn.max_pool_with_indices(given, window, layout=layout, **kind)
    np.testing.assert_array_equal(to_first(found.numpy(), layout), values.numpy())
    np.testing.assert_array_equal(to_first(where.numpy(), layout), places.numpy())
    if (stride, padding, dilation, ceil) == (None, 0, 1, False):  # no element is in two windows
        back = torch_call("max_unpool{}d", rank, values, places, window, output_size=x.shape[2:])
        again = xt.nn.max_unpool(found, where, x.shape[2:], layout=layout)
        np.testing.assert_array_equal(to_first(again.numpy(), layout), back.numpy())


@pytest.mark.parametrize("case", POOLS[::2], ids=str)
def test_max_pool_dilated(case: Any) -> None:
    """Windows with gaps."""
    check(pool_case("max_pool", case, dilation=2))


@pytest.mark.parametrize("case", POOLS, ids=str)
@pytest.mark.parametrize("count_include_pad", [False, True])
def test_avg_pool(case: Any, count_include_pad: bool) -> None:
    """Averages with and without the padding."""
    check(pool_case("avg_pool", case, count_include_pad=count_include_pad))


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_lp_pool(rank: int, p: float) -> None:
    """Norms of positive numbers, on whose odd powers PyTorch agrees."""
    x, window = np.abs(normal("float64", 2, 3, *LENGTHS[:rank])) + 0.1, (3, 2, 2)[:rank]
    ours = lambda x: xt.nn.lp_pool(x, window, p=p)  # noqa: E731
    theirs = window if rank > 1 else window[0]
    check(both(ours, lambda x: torch_call("lp_pool{}d", rank, x, p, theirs), [x], None))


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("name", ["adaptive_avg_pool", "adaptive_max_pool"])
@pytest.mark.parametrize("lengths", [(1, 1, 1), (3, 4, 7), (4, 3, 2), (11, 9, 8)])
@pytest.mark.parametrize("last", [False, True])
def test_adaptive_pool(name: str, rank: int, lengths: Any, last: bool) -> None:
    """Parts that overlap, divide, and are more than there are elements."""
    layout = LAYOUTS[rank][1] if last else None
    x = normal("float64", 2, 3, *LENGTHS[:rank])
    ours = lambda x: getattr(xt.nn, name)(x, lengths[:rank], layout=layout)  # noqa: E731
    check(both(ours, lambda x: torch_call(name + "{}d", rank, x, lengths[:rank]), [x], layout))

"""What convolutions remember of arrays, by which they are run: all that their code depends on is asked for."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest

import xtensor as xt
from xtensor.base.threads import count
from xtensor.codegen.cpu.compile import host
from xtensor.nn import avg_pool, conv, conv_transpose, max_pool, sweeps
from xtensor.nn.panels import lane_sums
from xtensor.plan.costs import CALLS_COMPILED
from xtensor.run import launches
from xtensor.run.native import Place

Array = np.ndarray[Any, Any]

pytestmark = pytest.mark.skipif(host() is None, reason="there is no compiler here")

# Layers with little work: shape of x with channels first, of w, and keyword arguments.
LITTLE: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "few channels": ((2, 3, 8, 9), (8, 3, 3, 3), {}),
    "dense": ((1, 16, 7, 6), (20, 16, 3, 3), {"padding": 1}),
    "strided": ((2, 8, 9, 7), (6, 8, 3, 2), {"stride": 2, "padding": 1}),
    "depthwise": ((2, 16, 7, 9), (16, 1, 3, 3), {"padding": 1, "groups": 16}),
    "groups of four": ((2, 8, 7, 9), (8, 4, 3, 3), {"padding": 1, "groups": 2}),
    "two outputs a channel": ((2, 24, 7, 9), (48, 1, 3, 3), {"padding": 1, "groups": 24}),
    "four channels to two outputs": ((2, 24, 7, 9), (12, 4, 3, 3), {"padding": 1, "groups": 6}),
    "whole windows": ((3, 6, 4, 4), (12, 6, 4, 4), {}),
    "windows of whole columns": ((2, 6, 12, 7), (12, 3, 12, 1), {"groups": 2}),
    "few rows for tall windows": ((2, 16, 12, 7), (16, 1, 11, 1), {"groups": 16}),
    "to few outputs": ((2, 16, 9, 7), (3, 16, 3, 3), {"padding": 1}),
    "single elements": ((2, 16, 5, 7), (33, 16, 1, 1), {}),
    "single elements by strides": ((2, 16, 9, 8), (24, 16, 1, 1), {"stride": (3, 2)}),
    "to one output": ((2, 16, 5, 7), (1, 16, 1, 1), {}),
    "of one channel": ((2, 1, 5, 7), (16, 1, 1, 1), {}),
    "one axis": ((2, 5, 11), (7, 5, 4), {"dilation": 2}),
    "three axes": ((1, 4, 5, 4, 6), (6, 4, 2, 3, 2), {"stride": (1, 2, 1)}),
}


def normal(*shape: int, dtype: str = "float32", seed: int = 0) -> Array:
    """Return normal numbers of a shape."""
    return np.random.default_rng((*shape, seed)).normal(size=shape).astype(dtype)


def remembered() -> list[Any]:
    """Return what is remembered, in the order in which it came."""
    return list(sweeps._runs.values())


def often(call: Callable[[], list[Array]]) -> list[Array]:
    """Return what a call gives that came so often that code was made for it."""
    for _ in range(CALLS_COMPILED + 1):
        found = call()
    assert any(not isinstance(one, int) for one in remembered())
    return found


def exactly(x: Array, w: Array, bias: Array | None = None, function: Any = conv, **kind: Any) -> Array:
    """Return a convolution in float64, by products of NumPy's."""
    given = [xt.asarray(a.astype("float64")) for a in (x, w, bias) if a is not None]
    with xt.options(engine="direct"):
        return np.asarray(function(*given, **kind))


def close(found: Array, expected: Array) -> None:
    """Assert that results are those of more digits, by their dtype."""
    scale = np.abs(expected).max(initial=1)
    np.testing.assert_allclose(found, expected, rtol=0, atol=64 * np.finfo(found.dtype).eps * scale)


def placed(x: Array, last: bool) -> Array:
    return np.moveaxis(x, 1, -1).copy() if last else x


@pytest.mark.parametrize("layer", LITTLE.values(), ids=list(LITTLE))
@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_comes_often(layer: Any, last: bool, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Little work is computed by code once it came often, as are its gradients: the same bits by 1, 2 and 4 threads."""
    shape, of_w, kind = layer
    kind = kind | {"layout": ("NWC", "NHWC", "NDHWC")[len(shape) - 3] if last else None}
    x, w, bias = placed(normal(*shape, dtype=dtype), last), normal(*of_w, dtype=dtype), normal(of_w[0], dtype=dtype)

    def everything(dtype: str = dtype) -> list[Array]:
        given = [xt.asarray(a.astype(dtype)) for a in (x, w, bias)]
        y, back = xt.vjp(lambda *given: conv(*given, **kind), *given)
        cotangent = xt.asarray(np.cos(np.arange(y.size)).reshape(y.shape), dtype=dtype)
        return [np.asarray(one) for one in (y, *back(cotangent))]

    found = often(everything)
    assert all(not isinstance(one, int) for one in remembered()), remembered()
    with xt.options(engine="direct"):
        for one, other in zip(found, everything("float64"), strict=True):
            close(one, other)
    monkeypatch.setattr(launches, "worth", lambda seconds: count())  # however little work it is
    for threads in (1, 2, 4):
        with xt.options(threads=threads):
            for one, other in zip(found, everything(), strict=True):
                np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("stride", [1, 2])
def test_transposed_ones_that_come_often(stride: int) -> None:
    x, w, bias = normal(2, 8, 5, 6), normal(8, 5, 3, 3), normal(5)
    given = [xt.asarray(a) for a in (x, w, bias)]
    found = often(lambda: [np.asarray(conv_transpose(*given, stride=stride))])
    close(found[0], exactly(x, w, bias, conv_transpose, stride=stride))


def views(whole: Array) -> list[Array]:
    """Return views (2, 6, 8, 9) of an array (4, 14, 20, 22), whose numbers are others."""
    unaligned = np.frombuffer(b"\0" + whole[:2, :6, :8, :9].tobytes(), np.uint8)[1:].view(whole.dtype)
    return [
        whole[:2, :6, :8, :9],
        whole[::2, 1:7, 3:11, 2:11],
        whole[2:, ::2, :16:2, :9][:, :6],
        whole[1:3, 6:0:-1, 7::-1, :9],
        whole[:2, :6, :8, 8::-1],
        whole[:2, :6, :8, 0:18:2],
        whole[:1, :6, :8, :9].repeat(2, 0),
        np.broadcast_to(whole[:1, :6, :8, :9], (2, 6, 8, 9)),
        unaligned.reshape(2, 6, 8, 9),
        np.moveaxis(np.moveaxis(whole[:2, :6, :8, :9], 1, -1).copy(), -1, 1),
        whole[:2, :6, :8, :9].astype("float64"),
        whole[:2, :6, :8, :9].astype("float16"),
    ]


def test_each_way_to_lie_is_another() -> None:
    """Arrays of one shape that lie otherwise, are of other dtypes, begin elsewhere or are not aligned, by turns."""
    w, bias = normal(5, 6, 3, 3), normal(5)
    wide = normal(5, 6, 3, 8)[..., ::-3]
    ways = list(product(views(normal(4, 14, 20, 22)), (w, wide, w.astype("float64")), (None, bias, bias[::-1])))
    given = [[None if a is None else xt.asarray(a) for a in way] for way in ways]
    for _ in range(CALLS_COMPILED + 1):
        found = [conv(*way, padding=1) for way in given]
    for own, way in zip(found, ways, strict=True):
        expected = exactly(*way, padding=1)
        assert own.dtype == np.result_type(*(a for a in way if a is not None))
        close(np.asarray(own), expected)


def test_other_parameters_of_the_same_arrays() -> None:
    x, w = normal(2, 6, 9, 9), normal(6, 6, 3, 3)
    kinds: list[dict[str, Any]] = [
        {name: value}
        for name, values in {"stride": (1, 2), "padding": (1, 2, "same"), "dilation": (1, 2)}.items()
        for value in values
    ]
    given = xt.asarray(x), xt.asarray(w)
    for _ in range(CALLS_COMPILED + 1):
        found = [conv(*given, **kind) for kind in kinds]
    for own, kind in zip(found, kinds, strict=True):
        close(np.asarray(own), exactly(x, w, **kind))
    with pytest.raises(TypeError, match="stride"):
        conv(*given, stride=1.0)


def test_other_layouts_of_the_same_arrays() -> None:
    x, w = normal(2, 6, 6, 6), normal(6, 6, 3, 3)
    layouts = ["NCHW", "NHWC", ("NCHW", "NHWC"), ("NHWC", "NCHW")]
    for _ in range(CALLS_COMPILED + 1):
        found = [conv(xt.asarray(x), xt.asarray(w), padding=1, layout=layout) for layout in layouts]
    for own, layout in zip(found, layouts, strict=True):
        close(np.asarray(own), exactly(x, w, padding=1, layout=layout))


def test_other_dtypes_that_lie_alike() -> None:
    """Every second number of float32 lies as float64 does, and integers as other floats of their size."""
    wide, w = normal(2, 6, 8, 18), normal(5, 6, 3, 6)
    ways: list[tuple[Array, Array]] = [
        (wide[..., ::2], w[..., ::2]),
        (wide[..., ::2].astype("float64"), w[..., ::2].astype("float64")),
        (wide, w),
        ((4 * wide).astype("int32"), (4 * w).astype("int32")),
    ]
    assert ways[0][0].strides == ways[1][0].strides and ways[2][0].strides == ways[3][0].strides
    for _ in range(CALLS_COMPILED + 1):
        found = [conv(xt.asarray(x), xt.asarray(w)) for x, w in ways]
    for own, way in zip(found[:3], ways, strict=False):
        close(np.asarray(own), exactly(*way))
    np.testing.assert_array_equal(np.asarray(found[3]), exactly(*ways[3]))


def test_other_engines() -> None:
    """What code computed in one engine is not computed by it in another."""
    x, w = xt.asarray(normal(1, 4, 9, 9)), xt.asarray(normal(5, 4, 3, 3))
    often(lambda: [np.asarray(conv(x, w))])
    before = len(remembered())
    with xt.options(engine="direct"):
        conv(x, w).evaluate()
    assert remembered()[before:] == [1]


def test_what_changes_between_calls() -> None:
    """Nothing of values is remembered: exposed memory that others write to, and arrays that are changed in place."""
    memory, weights = normal(1, 4, 9, 9), normal(5, 4, 3, 3)
    x, w, bias = xt.asarray(memory), xt.asarray(weights, copy=True), xt.zeros(5, dtype=xt.float32)
    often(lambda: [np.asarray(conv(x, w, bias))])
    for n in range(3):
        memory += n
        w *= 1.5
        bias += n
        close(np.asarray(conv(x, w, bias)), exactly(memory, np.asarray(w), np.asarray(bias)))
    kept = conv(x, w, bias)
    again = np.asarray(kept).copy()
    conv(x * 2, w, bias).evaluate()
    np.testing.assert_array_equal(np.asarray(kept), again)


@pytest.mark.parametrize(
    ("shape", "of_w"), [((0, 4, 9, 9), (5, 4, 3, 3)), ((2, 0, 9, 9), (5, 0, 3, 3)), ((2, 4, 9, 9), (0, 4, 3, 3))]
)
def test_nothing_at_all(shape: tuple[int, ...], of_w: tuple[int, ...]) -> None:
    x, w = xt.asarray(normal(*shape)), xt.asarray(normal(*of_w))
    for _ in range(CALLS_COMPILED + 2):
        found = np.asarray(conv(x, w))
    assert found.shape == (shape[0], of_w[0], 7, 7) and not found.any()


def test_only_so_many_are_remembered() -> None:
    w = xt.asarray(normal(3, 2, 2))
    for length in range(2, sweeps.KINDS + 50):
        conv(xt.asarray(normal(1, 2, length)), w)
        assert 0 < len(remembered()) <= sweeps.KINDS


def test_places_that_are_joined_keep_their_columns() -> None:
    """Images of one place each, cut out of larger ones, do not lie side by side."""
    whole, w = normal(40, 3, 3, 24), normal(30, 24, 1, 1)
    x = xt.asarray(whole[:, :1, :1])
    found = often(lambda: [np.asarray(conv(x, xt.asarray(w), layout="NHWC"))])
    close(found[0], exactly(whole[:, :1, :1], w, layout="NHWC"))


@pytest.mark.parametrize("pool", [max_pool, avg_pool])
def test_pools_that_come_often(pool: Any) -> None:
    """Windows of other arrays, that lie otherwise, are not the first one's."""
    whole = normal(4, 6, 18, 20)
    ways = [whole[:2, :3, :9, :10], whole[::2, ::2, ::2, ::2], whole[1::2, 3:, 9:, 10:], whole[:2, :3, 8::-1, :10]]
    for _ in range(CALLS_COMPILED + 1):
        found = [pool(xt.asarray(x), (2, 3), stride=1, padding=1) for x in ways]
    assert any(not isinstance(one, int) for one in remembered())
    for own, x in zip(found, ways, strict=True):
        with xt.options(engine="direct"):
            close(np.asarray(own), np.asarray(pool(xt.asarray(x.astype("float64")), (2, 3), stride=1, padding=1)))


@pytest.mark.parametrize("stride", [1, 4])
def test_arrays_are_not_kept(stride: int) -> None:
    """What is remembered of arrays holds none of them, also where no window reaches some positions."""
    alive = []

    def call() -> list[Array]:
        memory = normal(2, 4, 9, 9), normal(5, 4, 3, 3)
        alive.extend(map(weakref.ref, memory))
        y, back = xt.vjp(partial(conv, stride=stride), *map(xt.asarray, memory))
        return [np.asarray(g) for g in back(max_pool(y, 3, stride=1, padding=1))]

    often(call)
    gc.collect()
    assert not [one for one in alive if one() is not None]


@pytest.mark.parametrize("threads", [1, 3])
def test_schedules_tell_code_where_arrays_begin(monkeypatch: Any, threads: int) -> None:
    """Layers by tiles, or with many weights, are code that is told addresses, or Python's again where an output is not
    finite.
    """
    x, w, v, bias = (normal(*n) for n in ((16, 32, 8, 8), (64, 32, 3, 3), (64, 64, 3, 3), (64,)))

    def loss(w: Any, v: Any, bias: Any, x: Any) -> Any:
        y = max_pool(xt.maximum(conv(x, w, bias, padding=1), 0), 2)
        return xt.sum(conv(y, v, padding=1) ** 2)

    told: list[bool] = []
    call = launches.Begun.__call__

    def noted(self: Any, given: Any, to: int, packed: Any) -> bool:
        told.append(call(self, given, to, packed))
        return told[-1]

    monkeypatch.setattr(launches.Begun, "__call__", noted)
    both = xt.value_and_grad(loss, argnums=(0, 1, 2))
    fused, spoiled = xt.fuse(both), x.copy()
    spoiled[3, 5, 2, 2] = np.inf
    with xt.options(engine="llvm", threads=threads):
        for given in (x, x, x, 2 * x, spoiled, x):
            told.clear()
            mine = fused(*(xt.asarray(one) for one in (w, v, bias, given)))
            right = both(*(xt.asarray(one) for one in (w, v, bias, given)))
            for ours, theirs in zip((mine[0], *mine[1]), (right[0], *right[1]), strict=True):
                np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-4, atol=1e-2)
            assert given is not spoiled or not all(told)
    assert len(told) == 5  # but for the maxima and their gradient, which are kernels of the schedule
    assert all(told)


@pytest.mark.parametrize("layer", LITTLE)
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("threads", [1, 3])
def test_small_layers_are_kernels_of_a_schedule(layer: str, last: bool, threads: int) -> None:
    """Outputs, both gradients and the steps between them are one call of machine code, wherever arrays begin."""
    shape, of_w, parameters = LITTLE[layer]
    x, w = normal(*shape), normal(*of_w)
    if last:
        x = np.ascontiguousarray(np.moveaxis(x, 1, -1))
        parameters = parameters | {"layout": {3: "NWC", 4: "NHWC", 5: "NDHWC"}[x.ndim]}

    def loss(w: Any, x: Any) -> Any:
        return xt.sum(xt.tanh(conv(x, w, **parameters)) ** 2)

    gradients = xt.value_and_grad(loss, argnums=(0, 1))
    with xt.options(threads=threads):
        right = gradients(*map(xt.asarray, (w.astype("f8"), x.astype("f8"))))[1]
        fused = xt.fuse(gradients)
        for begin in (0, 0, 0, 1, 2, 0):
            found = fused(*[xt.asarray(at_odd_address(a, begin)) for a in (w, x)])[1]
            for ours, theirs in zip(found, right, strict=True):
                scale = abs(theirs.numpy()).max()
                np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-4, atol=1e-4 * scale)
        told = xt.explain(fused)
    assert "1 instruction" in str(told)
    assert "library" not in str(told)


def at_odd_address(a: Array, begin: int) -> Array:
    """Return a copy that begins so many bytes behind where numbers begin."""
    memory = bytearray(a.nbytes + begin)
    found = np.frombuffer(memory, a.dtype, a.size, begin).reshape(a.shape)
    found[...] = a
    return found


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("step", [(40, 1), (40, 2), (-40, 1), (1, 40), (1, -3)])
def test_sums_of_lanes_go_where_the_weights_lie(dtype: str, step: tuple[int, int]) -> None:
    """Rows and columns may lie any steps apart; what lies between them stays as it is."""
    lanes, rows, wide = 3, 3, 21
    x, memory = normal(lanes, rows, wide, dtype=dtype), np.full(2048, 7.0, dtype)
    w = np.lib.stride_tricks.as_strided(memory[1000:], (rows, wide), [n * memory.itemsize for n in step])
    right = memory.copy()
    np.lib.stride_tricks.as_strided(right[1000:], w.shape, w.strides)[...] = x.sum(axis=0, dtype="f8")

    def make(sheet: launches.Sheet) -> list[Any]:
        view = launches.View(w, launches.W, w)
        offsets = np.arange(rows) * view.steps[0], np.arange(wide) * view.steps[1]
        return [lane_sums(Place(launches.X), lanes, view, *offsets, sheet)]

    launches.Launches([make], 4, 0.0).run(x, w, None, None)
    np.testing.assert_array_equal(memory, right)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize(("window", "over"), [((4, 4), (0, 0)), ((3, 5), (2, 1)), ((16, 16), (0, 3))])
@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_inputs_under_windows_side_by_side(dtype: str, window: Any, over: Any, layout: Any) -> None:
    """As of patches: each element of an input has one window, those behind the last have none, and the bias alone."""
    rng = np.random.default_rng(0)
    y, w = rng.standard_normal((2, 6, 3, 4)).astype(dtype), rng.standard_normal((6, 2, *window)).astype(dtype)
    bias = rng.standard_normal(4).astype(dtype)
    expected = np.zeros((2, 4, 3 * window[0] + over[0], 4 * window[1] + over[1]), dtype)
    parts = np.einsum("ngohw,gocij->ngchiwj", y.reshape(2, 2, 3, 3, 4), w.reshape(2, 3, 2, *window))
    expected[:, :, : 3 * window[0], : 4 * window[1]] = parts.reshape(2, 4, 3 * window[0], 4 * window[1])
    expected += bias[:, None, None]
    given = np.ascontiguousarray(np.moveaxis(y, 1, -1)) if layout == "NHWC" else y
    kind: Any = {"stride": window, "output_padding": over, "groups": 2, "layout": layout}
    found = conv_transpose(*(xt.asarray(one, copy=True) for one in (given, w, bias)), **kind).numpy()
    found = np.moveaxis(found, -1, 1) if layout == "NHWC" else found
    np.testing.assert_allclose(found, expected, rtol=2e-5 if dtype == "float32" else 1e-12, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "int64"])
@pytest.mark.parametrize("padding", [((0, 2), (0, 1)), ((0, 0), (0, 3)), ((1, 1), (0, 2))])
def test_windows_side_by_side_reach_beyond_the_input(padding: Any, dtype: str) -> None:
    """The gradient of the input, repeated, as an array that is too short would be written beyond its end."""
    sizes = [out * k - sum(pair) for out, k, pair in zip((4, 3), (3, 4), padding, strict=True)]
    y = np.arange(2 * 6 * 12, dtype=dtype).reshape(2, 6, 4, 3)
    w = np.arange(6 * 2 * 12, dtype=dtype).reshape(6, 2, 3, 4) % 7
    whole = np.einsum("nohw,ocij->nchiwj", y, w).reshape(2, 2, 12, 12)
    expected = whole[:, :, padding[0][0] : 12 - padding[0][1], padding[1][0] : 12 - padding[1][1]]
    for _ in range(8):
        found = conv_transpose(xt.asarray(y, copy=True), xt.asarray(w, copy=True), stride=(3, 4), padding=padding)
        assert found.shape[2:] == tuple(sizes)
        np.testing.assert_array_equal(found.numpy(), expected)


def test_windows_side_by_side_of_no_channels() -> None:
    found = conv_transpose(xt.ones((2, 0, 4, 4)), xt.ones((0, 5, 3, 3)), xt.ones(5), stride=3)
    np.testing.assert_array_equal(found.numpy(), np.ones((2, 5, 12, 12)))


@pytest.mark.parametrize("megabytes", [0.03, 0.064, 0.0641, 0.066, 0.13, 0.2, 1.0])
def test_windows_side_by_side_in_little_room(megabytes: float) -> None:
    y, w = np.ones((1, 16, 10, 10), np.float32), np.ones((16, 4, 10, 4), np.float32)
    found = conv_transpose(xt.asarray(y), xt.asarray(w), stride=(10, 4), workspace_mb=megabytes)
    np.testing.assert_array_equal(found.numpy(), np.full((1, 4, 100, 40), 16.0))


def test_depthwise_layers_of_broadcast_inputs() -> None:
    """Columns of inputs, and of cotangents, that lie in one place; channels last."""
    rng = np.random.default_rng(0)
    row, w = rng.standard_normal((2, 24, 1, 16)), xt.asarray(rng.standard_normal((16, 1, 3, 3)), copy=True)
    kind: Any = {"padding": 1, "groups": 16, "layout": "NHWC"}
    broad = xt.broadcast_to(xt.asarray(row, copy=True), (2, 24, 40, 16))
    with xt.options(engine="llvm"):
        whole = broad.copy()
        np.testing.assert_array_equal(conv(broad, w, **kind).numpy(), conv(whole, w, **kind).numpy())
        _, back = xt.vjp(lambda x, w: conv(x, w, **kind), whole, w)
        for found, expected in zip(back(broad), back(whole), strict=True):
            np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize(("dilation", "stride"), [((13, 2), (1, 1)), ((7, 9), (2, 1)), ((2, 13), (1, 2))])
def test_rows_that_dilation_skips(dilation: Any, stride: Any, layout: Any) -> None:
    """They are not copied: outputs, and the gradients of inputs and weights, beside sums over shifted views."""
    rng = np.random.default_rng(0)
    shape = (2, 48, 37, 41) if layout == "NCHW" else (2, 37, 41, 48)
    x, w = (xt.asarray(rng.standard_normal(one), copy=True) for one in (shape, (20, 48, 3, 3)))
    kind: Any = {"dilation": dilation, "stride": stride, "padding": dilation, "layout": layout}
    found = []
    for algorithm in ("im2col", "direct"):
        y, back = xt.vjp(partial(conv, algorithm=algorithm, **kind), x, w)
        cotangent = xt.asarray(np.random.default_rng(1).standard_normal(y.shape), copy=True)
        found.append([y, *back(cotangent)])
    for ours, expected in zip(*found, strict=True):
        np.testing.assert_allclose(ours.numpy(), expected.numpy(), rtol=1e-11, atol=1e-11)


# ---- windows that reach far into the padding, and few images


def dilated(last: bool) -> tuple[Array, Array, dict[str, Any]]:
    """Return an image, weights, and keyword arguments for which a part of most windows lies in the padding."""
    shape = (1, 21, 21, 48) if last else (1, 48, 21, 21)
    return (
        normal(*shape),
        normal(40, 48, 3, 3),
        {"padding": 9, "dilation": 9, "layout": "NHWC" if last else "NCHW"},
    )


@pytest.mark.parametrize("last", [False, True])
def test_elements_of_windows_in_the_padding_are_left_out(last: bool) -> None:
    x, w, kind = dilated(last)
    scale, other = normal(40), normal(1, 21, 21, 40) if last else normal(1, 40, 21, 21)
    own = xt.asarray(scale) if last else xt.asarray(scale)[:, None, None]
    found = xt.maximum(conv(xt.asarray(x), xt.asarray(w), **kind) * own + xt.asarray(other), 0)
    exact = exactly(x, w, **kind)
    expected = np.maximum(exact * (scale if last else scale[:, None, None]) + other, 0)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(conv(xt.asarray(x), xt.asarray(w), **kind).numpy(), exact, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("last", [False, True])
def test_gradients_of_windows_in_the_padding_agree_with_float64(last: bool) -> None:
    x, w, kind = dilated(last)
    found = {}
    for dtype in ("float32", "float64"):
        algorithm = "im2col" if dtype == "float32" else "direct"
        y, pullback = xt.vjp(
            partial(conv, algorithm=algorithm, **kind), xt.asarray(x.astype(dtype)), xt.asarray(w.astype(dtype))
        )
        found[dtype] = [one.numpy() for one in pullback(y)]
    for near, exact in zip(found["float32"], found["float64"], strict=True):
        np.testing.assert_allclose(near, exact, rtol=1e-4, atol=1e-5 * np.abs(exact).max())


@pytest.mark.parametrize("images", [1, 3])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("channels", [3, 20])
def test_threads_that_share_a_window_find_the_same_gradient(images: int, last: bool, channels: int) -> None:
    shape = (images, 30, 31, channels) if last else (images, channels, 30, 31)
    x, w, layout = xt.asarray(normal(*shape)), xt.asarray(normal(40, channels, 3, 3)), "NHWC" if last else "NCHW"
    found = set()
    for threads in (1, 2, 3, 7):
        with xt.options(threads=threads):
            y, pullback = xt.vjp(lambda w: conv(x, w, padding=1, layout=layout, algorithm="im2col"), w)
            (gradient,) = pullback(y)
            found.add(gradient.numpy().tobytes())
    assert len(found) == 1


# ---- weights that lie otherwise, for windows with all of an axis

LIES: dict[str, Callable[[Array], Array]] = {
    "channels last": lambda w: np.ascontiguousarray(np.moveaxis(w, 1, -1)).transpose(0, 3, 1, 2),
    "transposed": lambda w: np.ascontiguousarray(w.swapaxes(0, 1)).swapaxes(0, 1),
    "channels reversed": lambda w: w[:, ::-1].copy()[:, ::-1],
    "window reversed": lambda w: w[:, :, ::-1, ::-1].copy()[:, :, ::-1, ::-1],
    "a part": lambda w: np.repeat(w, 2, axis=3)[..., ::2],
}


@pytest.mark.parametrize("name", LIES)
@pytest.mark.parametrize("engine", ["auto", "llvm"])
def test_weights_that_cannot_be_seen_as_a_matrix(name: str, engine: str) -> None:
    """Code that is made for them reads them where they lie, also when it is called again and where steps follow."""
    x, w, g = normal(20, 24, 4, 4), normal(40, 24, 4, 4), normal(20, 40, 1, 1)
    lying = LIES[name](w)
    np.testing.assert_array_equal(lying, w)
    given, weights = xt.asarray(x), xt.asarray(lying)
    assert not lying.flags.c_contiguous
    exact = np.einsum("nchw,ochw->no", x, w.astype("float64"))[..., None, None]
    back = np.einsum("no,ochw->nchw", g[:, :, 0, 0], w.astype("float64"))
    by_gradient = np.einsum("no,nchw->ochw", g[:, :, 0, 0], x.astype("float64"))
    fused = xt.fuse(lambda x: xt.maximum(conv(x, weights) * 2.0, 0.0))
    with xt.options(engine=engine):
        for _ in range(CALLS_COMPILED + 2):
            close(conv(given, weights).numpy(), exact)
            close(fused(given).numpy(), np.maximum(2 * exact, 0))
            close(conv_transpose(xt.asarray(g), weights).numpy(), back)
            _, pullback = xt.vjp(conv, given, weights)
            of_x, of_w = (one.numpy() for one in pullback(xt.asarray(g)))
            close(of_x, back)
            close(of_w, by_gradient)


def test_no_outputs_of_whole_windows() -> None:
    assert conv(xt.ones((3, 6, 4, 4)), xt.ones((0, 6, 4, 4))).shape == (3, 0, 1, 1)

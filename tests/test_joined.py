"""Contractions and what follows them as one kernel, beside the same computed apart and a naive sum over windows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

import xtensor as xt
from xtensor import nn
from xtensor.codegen.cpu.compile import host
from xtensor.nn.sweeps import can_end
from xtensor.plan import costs
from xtensor.run import contractions, joined

Array = np.ndarray[Any, Any]

pytestmark = pytest.mark.skipif(host() is None, reason="there is no compiler")

TOLERANCES = {"float32": 2e-4, "float64": 1e-11}


@pytest.fixture(autouse=True)
def small_work(monkeypatch: Any) -> None:
    """Code is compiled for small contractions too, and they wait for what follows, which runs in their registers."""
    monkeypatch.setattr(costs, "ENDED_APART", 0)
    for module in (sys.modules["xtensor.nn.algorithms"], contractions):
        monkeypatch.setattr(module, "CONTRACTION_COMPILED", 1)
    monkeypatch.setattr(sys.modules["xtensor.calls.op"], "CONTRACTION_WAITS", 1)


@pytest.fixture
def runs(monkeypatch: Any) -> Iterator[list[joined.Joint]]:
    """The contractions that were computed with what follows."""
    found: list[joined.Joint] = []
    run = joined.Joint.run

    def noted(self: joined.Joint, *given: Any, apart: bool) -> None:
        found.append(self)
        run(self, *given, apart=apart)

    monkeypatch.setattr(joined.Joint, "run", noted)
    yield found


def recorded() -> Any:
    """Return options under which everything is recorded, and computed by generated code."""
    return xt.options(lazy="always", engine="llvm")


def tensor(array: Any) -> xt.Tensor:
    """Return a tensor over memory of its own: what reads memory that others see is computed at once."""
    return xt.asarray(array, copy=True)


def numbers(*shape: int, dtype: str = "float64", seed: int = 0) -> xt.Tensor:
    """Return normal numbers."""
    return tensor(np.random.default_rng((seed, *shape)).normal(size=shape).astype(dtype))


class Layer:
    """A random convolution: arrays, what it is told, and a result that was computed apart."""

    def __init__(self, seed: int, dtype: str) -> None:
        rng = np.random.default_rng(seed)
        rank, groups = int(rng.integers(1, 4)), int(rng.choice([1, 1, 2, 4]))
        layouts = {1: ("NCW", "NWC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}[rank]
        self.last = bool(rng.integers(2))
        channels, outputs = (groups * int(rng.integers(2, 9)) for _ in range(2))
        if seed % 3 == 0:  # several panels, of which the last is not full
            outputs = groups * int(rng.integers(30, 70))
        lengths = [int(n) for n in rng.integers(5, {1: 60, 2: 16, 3: 8}[rank], rank)]
        window = [int(n) for n in rng.integers(1, 4, rank)]
        shape = (int(rng.integers(1, 4)), *((*lengths, channels) if self.last else (channels, *lengths)))
        self.kind: dict[str, Any] = {
            "stride": int(rng.integers(1, 3)),
            "padding": int(rng.integers(0, 2)),
            "dilation": int(rng.integers(1, 3)) if min(lengths) > 6 else 1,
            "groups": groups,
            "layout": layouts[self.last],
        }
        self.x = numbers(*shape, dtype=dtype, seed=seed)
        self.w = numbers(outputs, channels // groups, *window, dtype=dtype, seed=seed)
        with xt.options(lazy="never"):
            self.apart = self.conv()
        beside = (outputs,) if self.last else (outputs, *[1] * rank)
        self.bias, self.scale = (numbers(*beside, dtype=dtype, seed=seed + n) for n in (1, 2))
        self.residual, self.mask = (numbers(*self.apart.shape, dtype=dtype, seed=seed + n) for n in (3, 4))
        self.mask = tensor(self.mask.numpy() > 0)

    def conv(self) -> xt.Tensor:
        """Return the convolution."""
        return nn.conv(self.x, self.w, **self.kind)

    def naive(self) -> Array:
        """Return the convolution as a sum over the elements of the window, in float64."""
        x, w = (tensor(array).numpy().astype(np.float64) for array in (self.x, self.w))
        x = np.moveaxis(x, -1, 1) if self.last else x
        rank, (stride, step) = x.ndim - 2, (self.kind["stride"], self.kind["dilation"])
        x = np.pad(x, [(0, 0)] * 2 + [(self.kind["padding"],) * 2] * rank)
        shape = np.moveaxis(np.empty(self.apart.shape), -1, 1).shape if self.last else self.apart.shape
        y = np.zeros(shape)
        groups = self.kind["groups"]
        for element in product(*map(range, w.shape[2:])):
            places = [
                slice(k * step, k * step + (n - 1) * stride + 1, stride)
                for k, n in zip(element, shape[2:], strict=True)
            ]
            part = x[(slice(None), slice(None), *places)]
            parts = np.split(part, groups, 1), np.split(w[(slice(None), slice(None), *element)], groups)
            y += np.concatenate([np.einsum("nc...,oc->no...", a, b) for a, b in zip(*parts, strict=True)], 1)
        return np.moveaxis(y, 1, -1) if self.last else y


FOLLOWS: dict[str, Callable[[xt.Tensor, Layer], xt.Tensor]] = {
    "bias, relu, scale, residual": lambda y, one: nn.relu(y + one.bias) * one.scale + one.residual,
    "a function": lambda y, one: nn.gelu(y * one.scale) - 0.5,
    "a mask and a number in memory": lambda y, one: xt.where(one.mask, y * one.x[(0,) * one.x.ndim], y),
    "a comparison on the way": lambda y, one: xt.where(y > one.residual, y, one.bias),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("seed", range(12))
def test_what_follows_has_the_bits_that_it_has_apart(seed: int, dtype: str, runs: list[Any]) -> None:
    """Random windows, strides, dilations, groups and layouts, each with several kinds of steps."""
    layer = Layer(seed, dtype)
    naive = layer.naive()
    np.testing.assert_allclose(layer.apart.numpy(), naive, rtol=0, atol=TOLERANCES[dtype] * abs(naive).max())
    apart = tensor(layer.apart.numpy())
    for follow in FOLLOWS.values():
        with recorded():
            found, wanted = follow(layer.conv(), layer), follow(apart, layer)
            np.testing.assert_array_equal(found.numpy(), wanted.numpy())
    groups = layer.kind["groups"]
    assert len(runs) == len(FOLLOWS) * can_end(groups, layer.w.shape[1], layer.w.shape[0] // groups, layer.last)


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_what_follows_a_transposed_convolution(stride: int, layout: str, runs: list[Any]) -> None:
    """Each phase of the positions is finished; where no window reaches, or columns lie apart, what follows is a kernel
    of its own.
    """
    last = layout == "NHWC"
    x, w = numbers(*((2, 9, 11, 8) if last else (2, 8, 9, 11))), numbers(8, 20, 2, 3)
    bias = numbers(*((20,) if last else (20, 1, 1)))

    def follow(y: xt.Tensor, residual: xt.Tensor) -> xt.Tensor:
        return nn.relu(y + bias) + residual

    with xt.options(lazy="never"):
        apart = nn.conv_transpose(x, w, stride=stride, layout=layout)
    residual = numbers(*apart.shape)
    with recorded():
        found = follow(nn.conv_transpose(x, w, stride=stride, layout=layout), residual)
        np.testing.assert_array_equal(found.numpy(), follow(apart, residual).numpy())
    assert len(runs) == (stride < (3 if last else 2))


def test_what_is_not_finished_in_registers(runs: list[Any], monkeypatch: Any) -> None:
    """Where code turns out not to go on with what follows, that is computed after it."""
    layer = Layer(3, "float64")
    monkeypatch.setattr(sys.modules["xtensor.nn.algorithms"], "sweep", lambda *given, **more: False)
    with recorded():
        found = FOLLOWS["bias, relu, scale, residual"](layer.conv(), layer)
        np.testing.assert_allclose(
            found.numpy(),
            FOLLOWS["bias, relu, scale, residual"](tensor(layer.naive()), layer).numpy(),
            rtol=1e-10,
            atol=1e-10,
        )
    assert len(runs) == 1


def same() -> tuple[xt.Tensor, xt.Tensor, Array]:
    """Return an input, weights, and the convolution of the input's shape."""
    x, w = numbers(2, 12, 9, 10), numbers(12, 12, 3, 3)
    with xt.options(lazy="never"):
        return x, w, nn.conv(x, w, padding=1).numpy()


@pytest.mark.parametrize("engine", ["auto", "llvm", "interpret", "direct"])
def test_engines(engine: str, runs: list[Any]) -> None:
    """Other engines compute a contraction by itself, to the bits that they give at once."""
    x, w, _ = same()
    with xt.options(lazy="never", engine=engine):
        apart = nn.conv(x, w, padding=1).numpy()
    with xt.options(lazy="always", engine=engine):
        found = nn.relu(nn.conv(x, w, padding=1) * 2.0).numpy()
    np.testing.assert_array_equal(found, np.maximum(apart * 2, 0))
    assert engine in ("auto", "llvm") or not runs


def test_results_that_overlap_operands(runs: list[Any]) -> None:
    """What follows may be written over the contraction's operand, or another one that it reads."""
    x, w, apart = same()
    before, residual = x.numpy().copy(), numbers(*x.shape)
    for target, other in ((tensor(before), None), (tensor(residual.numpy()), tensor(before))):
        with recorded():
            own = target if other is None else other
            y = nn.relu(nn.conv(own, w, padding=1)) + target
            wanted = np.maximum(apart, 0) + np.asarray(before if other is None else residual)
            target[...] = y
            np.testing.assert_array_equal(target.numpy(), wanted)
    assert runs


def test_writes_before_it_is_computed() -> None:
    """A write to the input or to the weights comes after all that was recorded before."""
    x, w, apart = same()
    wanted = np.maximum(apart, 0) + 1
    for written in (0, 1):
        for options in (xt.options(lazy="always"), xt.options(lazy="auto")):
            with options:
                given = [tensor(x.numpy()), tensor(w.numpy())]
                y = nn.relu(nn.conv(*given, padding=1)) + 1
                given[written][...] = 0.0
                np.testing.assert_array_equal(y.numpy(), wanted)


def test_several_consumers(runs: list[Any]) -> None:
    """Two results of the same sums come from one kernel; sums that are wanted themselves are stored."""
    x, w, apart = same()
    with recorded():

        def two() -> tuple[xt.Tensor, xt.Tensor]:
            y = nn.conv(x, w, padding=1)
            return nn.relu(y), y * 2.0

        positive, double = two()
        xt.evaluate(positive, double)
        assert len(runs) == 1
        np.testing.assert_array_equal(positive.numpy(), np.maximum(apart, 0))
        np.testing.assert_array_equal(double.numpy(), apart * 2)
        y = nn.conv(x, w, padding=1)
        above, total = nn.relu(y), xt.sum(y, axis=(0, 2, 3))
        np.testing.assert_array_equal(above.numpy(), np.maximum(apart, 0))
        np.testing.assert_allclose(total.numpy(), apart.sum((0, 2, 3)), rtol=1e-12)
        np.testing.assert_array_equal(y.numpy(), apart)
        assert len(runs) == 1
        both = nn.conv(x, w, padding=1) + nn.conv(x, w, padding=1)
        np.testing.assert_array_equal(both.numpy(), apart * 2)
        assert len(runs) == 2


def test_operands_are_kept_until_they_are_read(runs: list[Any]) -> None:
    """What a contraction reads is read with what follows, after others that read it too: itself or a view of it."""
    x, w, _ = same()
    other = numbers(5, 12, 1, 1)

    def two(view: Callable[[xt.Tensor], xt.Tensor]) -> tuple[xt.Tensor, xt.Tensor]:
        double = x * 2.0
        return nn.relu(nn.conv(view(double), w, padding=1)) + 1, nn.conv(double, other)

    for view, step in product((lambda one: one, lambda one: xt.flip(one, axis=2)), (1, -1)):
        with xt.options(lazy="never"):
            wanted = [one.numpy() for one in two(view)]
        with recorded():
            found = two(view)
            xt.evaluate(*found[::step])
            for one, given in zip(found, wanted, strict=True):
                np.testing.assert_array_equal(one.numpy(), given)
    assert len(runs) == 4


def test_the_bits_do_not_depend_on_threads() -> None:
    """One thread or several."""
    x, w = numbers(2, 24, 20, 20, dtype="float32"), numbers(70, 24, 3, 3, dtype="float32")
    found = set()
    for threads in (1, 2, 3):
        with xt.options(lazy="always", engine="llvm", threads=threads):
            found.add((nn.silu(nn.conv(x, w, padding=1)) * 0.5).numpy().tobytes())
    assert len(found) == 1


def test_gradients(runs: list[Any]) -> None:
    """Gradients by everything, and second ones, of what is pending as of what is computed at once."""
    x, w, _ = same()
    bias, scale = numbers(12, 1, 1), numbers(12, 1, 1)

    def loss(x: xt.Tensor, w: xt.Tensor, bias: xt.Tensor, scale: xt.Tensor) -> xt.Tensor:
        return xt.sum((nn.silu(nn.conv(x, w, padding=1) + bias) * scale + x) ** 2)

    def slope(x: xt.Tensor, w: xt.Tensor) -> xt.Tensor:
        return xt.sum(xt.grad(loss, 0)(x, w, bias, scale) ** 2)

    with xt.options(lazy="never"):
        wanted = [g.numpy() for g in (*xt.grad(loss, (0, 1, 2, 3))(x, w, bias, scale), xt.grad(slope, 1)(x, w))]
    for lazy in ("auto", "always"):
        with xt.options(lazy=lazy, engine="llvm"):
            found = [*xt.grad(loss, (0, 1, 2, 3))(x, w, bias, scale), xt.grad(slope, 1)(x, w)]
            for one, other in zip(found, wanted, strict=True):
                np.testing.assert_allclose(one.numpy(), other, rtol=1e-9, atol=1e-9 * abs(other).max())
    assert runs


def test_nothing_is_computed_twice_for_a_gradient(monkeypatch: Any) -> None:
    """What a gradient asks for of what a contraction leads to is kept when that is computed."""
    conv, forward = sys.modules["xtensor.nn.algorithms"], []
    step, launched = conv._forward, conv._by_launches

    def noted(wanted: str, *given: Any) -> bool:
        done = launched(wanted, *given)
        forward.extend([1] * (done and wanted != conv.cudnn.WEIGHTS))
        return bool(done)

    monkeypatch.setattr(conv, "_forward", lambda *given: (forward.append(1), step(*given))[1])
    monkeypatch.setattr(conv, "_by_launches", noted)
    x, w = numbers(4, 16, 40, 40), numbers(16, 16, 3, 3)
    for tensor_ in (x, w):
        tensor_.requires_grad = True
    loss = xt.sum(nn.gelu(nn.conv(x, w, padding=1)))
    float(loss)
    assert len(forward) == 1
    loss.backward()
    _ = w.grad.numpy(), x.grad.numpy()
    assert len(forward) == 2  # and one for the gradient of the data


def test_a_captured_function_has_one_step(runs: list[Any]) -> None:
    """Under `fuse`: with other arguments, and a whole gradient."""
    x, w, _ = same()
    bias = numbers(12, 1, 1)

    def net(x: xt.Tensor, w: xt.Tensor, bias: xt.Tensor) -> xt.Tensor:
        return nn.relu(nn.conv(nn.relu(nn.conv(x, w, padding=1) + bias) + x, w, padding=1))

    fused = xt.fuse(net)
    for seed in range(4):
        given = numbers(*x.shape, seed=seed)
        with xt.options(lazy="never"):
            wanted = net(given, w, bias).numpy()
        runs.clear()
        np.testing.assert_array_equal(fused(given, w, bias).numpy(), wanted)
    assert len(runs) == 2
    assert "captured" in str(xt.explain(fused))

    def loss(x: xt.Tensor, w: xt.Tensor, bias: xt.Tensor) -> xt.Tensor:
        return xt.sum(net(x, w, bias) ** 2)

    gradient = xt.fuse(xt.grad(loss, (0, 1, 2)))
    wanted_all = xt.grad(loss, (0, 1, 2))(x, w, bias)
    for _ in range(3):
        for one, other in zip(gradient(x, w, bias), wanted_all, strict=True):
            np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-9)
    assert "used 3 times: captured" in str(xt.explain(gradient))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_products_of_matrices(dtype: str, runs: list[Any], monkeypatch: Any) -> None:
    """Any number of rows, columns and terms, strided rows, and threads; others are the library's."""
    monkeypatch.setattr(joined, "PRODUCT_CALL", -1.0)
    for rows, depth, columns in [(1, 1200, 1000), (37, 700, 50), (500, 17, 129), (160, 96, 96)]:
        a, b = numbers(rows, 2 * depth, dtype=dtype)[:, :depth], numbers(depth, columns, dtype=dtype)
        bias, residual = numbers(columns, dtype=dtype), numbers(rows, columns, dtype=dtype)
        found = set()
        for threads in (1, 2, 3):
            with recorded(), xt.options(threads=threads):
                found.add((nn.silu(a @ b + bias) * 2.0 + residual).numpy().tobytes())
        (one,) = found
        with xt.options(lazy="never"):
            wanted = (nn.silu(a @ b + bias) * 2.0 + residual).numpy()
        given = np.frombuffer(one, dtype).reshape(rows, columns)
        np.testing.assert_allclose(given, wanted, rtol=0, atol=TOLERANCES[dtype] * abs(wanted).max())
    assert len(runs) == 12
    with recorded():
        turned = nn.relu(numbers(130, 100, dtype=dtype).mT @ numbers(130, 110, dtype=dtype))
        stacked = nn.relu(numbers(3, 100, 130, dtype=dtype) @ numbers(130, 110, dtype=dtype))
        assert "computed by itself: its operands do not lie row by row" in str(xt.explain(turned))
        assert "computed by itself: it is no product of two matrices" in str(xt.explain(stacked))
        assert turned.numpy().min() == stacked.numpy().min() == 0
    assert len(runs) == 12


def test_the_cost_model_decides_on_products() -> None:
    """Few terms: a pass over the result costs more than the library's product is faster; not so with many."""
    with recorded():
        for depth, joint in ((64, True), (4096, False)):
            y = nn.relu(xt.zeros((4096, depth), dtype=xt.float64) @ xt.zeros((depth, 256), dtype=xt.float64))
            text = str(xt.explain(y))
            assert ("goes on from a contraction" in text) == joint
            assert ("computed by itself: the library's product takes" in text) != joint


def test_errors_are_raised_at_the_call() -> None:
    """Also where all is recorded: shapes, and a workspace that is too small."""
    x, w, _ = same()
    with recorded():
        with pytest.raises(ValueError, match="conv: w must have"):
            nn.conv(x, numbers(12, 5, 3, 3))
        with pytest.raises(ValueError, match="workspace_mb"):
            nn.conv(x, w, workspace_mb=1e-4)


def test_explain_says_what_was_chosen() -> None:
    """A contraction that others go on from, and why another one is computed by itself."""
    x, w, _ = same()
    with recorded():
        joint = str(xt.explain(nn.relu(nn.conv(x, w, padding=1))))
        alone = str(xt.explain(nn.relu(nn.conv(x, w, padding=1, algorithm="direct"))))
        nothing = str(xt.explain(nn.conv(x, w, padding=1) > 0))
    assert "goes on from a contraction in its registers" in joint
    assert "window 3x3, stride 1x1, dilation 1x1" in joint
    assert "computed by itself: algorithm is 'direct'" in alone
    assert "computed by itself: no result of what follows is of its dtype float64" in nothing


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(
    ("of_x", "of_w", "kind"),
    [
        ((1, 64, 7, 7), (200, 64, 3, 3), {"padding": 1}),
        ((1, 128, 7, 7), (130, 128, 1, 1), {}),
        ((1, 4, 40, 6), (96, 4, 3, 3), {"padding": 1}),
        ((1, 48, 9, 9), (170, 24, 3, 3), {"padding": 1, "stride": 2, "groups": 2}),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_threads_share_the_outputs_of_few_positions(dtype: str, of_x: Any, of_w: Any, kind: Any, last: bool) -> None:
    """What follows is told of their own channels, and no bit depends on how many threads there are."""
    rng = np.random.default_rng(2)
    x, w = (rng.standard_normal(shape).astype(dtype) for shape in (of_x, of_w))
    bias, scale = (rng.standard_normal(of_w[0]).astype(dtype) for _ in range(2))
    x = np.ascontiguousarray(np.moveaxis(x, 1, -1)) if last else x
    along = (lambda one: one) if last else (lambda one: one.reshape(-1, 1, 1))
    kind = {**kind, "layout": "NHWC" if last else "NCHW", "algorithm": "im2col"}
    results, alone = [], []
    for threads in (1, 2, 3, 5):
        with recorded(), xt.options(threads=threads):
            given, weights, shift = tensor(x), tensor(w), tensor(bias)
            whole = nn.conv(given, weights, shift, **kind)
            alone.append(whole.numpy())
            residual = tensor(np.cos(alone[0]))
            for _ in range(3):  # found out, then kept
                y = nn.conv(given, weights, shift, **kind)
                found = (y * tensor(along(scale)) + residual).evaluate()
            results.append(found.numpy())
    for ours in alone[1:]:
        np.testing.assert_array_equal(ours, alone[0])
    for ours in results:
        np.testing.assert_array_equal(ours, results[0])
        expected = alone[0] * along(scale) + np.cos(alone[0])
        np.testing.assert_allclose(ours, expected, rtol=1e-5 if dtype == "float32" else 1e-12, atol=1e-5)

"""Compositions that come often: from some call on they are captured functions, with the values of the steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import xtensor as xt
from xtensor.calls import composed
from xtensor.calls.composed import CapturedCalls
from xtensor.codegen.cpu.compile import host
from xtensor.plan.costs import PREPARED_AFTER

needs_code = pytest.mark.skipif(host() is None, reason="needs llvmlite")

FORMS: dict[str, Callable[..., Any]] = {
    "gelu": xt.nn.gelu,
    "silu": xt.nn.silu,
    "elu": lambda x: xt.nn.elu(x, 0.5),
    "leaky_relu": lambda x: xt.nn.leaky_relu(x, negative_slope=0.1),
    "softmax": xt.nn.softmax,
    "softmax over two axes": lambda x: xt.nn.softmax(x, axis=(0, 1)),
    "log_softmax": lambda x: xt.nn.log_softmax(x, axis=0),
    "layer_norm": lambda x: xt.nn.layer_norm(x, weight=x[0], bias=x[1]),
    "mse_loss": lambda x: xt.nn.mse_loss(x, x[::-1]),
    "cross_entropy": lambda x: xt.nn.cross_entropy(x, xt.arange(x.shape[0]) % x.shape[1]),
    "expit": xt.special.expit,
    "conv": lambda x: xt.nn.conv(x[None, None], x[None, None, :3, :2], padding=1),
    "conv_transpose": lambda x: xt.nn.conv_transpose(x[None], x[:, None, :4], stride=2),
    "max_pool": lambda x: xt.nn.max_pool(x[None, None], 2),
    "avg_pool": lambda x: xt.nn.avg_pool(x[None], 3, stride=2),
}


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The captured functions that are called while a test runs."""
    found: list[Any] = []
    form_of = CapturedCalls._form_of

    def noting(self: CapturedCalls, *given: Any) -> Any:
        form = form_of(self, *given)
        if all(form is not one for one in found):
            found.append(form)
        return form

    monkeypatch.setattr(CapturedCalls, "_form_of", noting)
    monkeypatch.setattr(composed, "is_exchanged", lambda: True)
    yield found


def given(shape: tuple[int, ...], dtype: str, call: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(call).standard_normal(shape).astype(dtype)


@needs_code
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", FORMS)
def test_values_are_those_of_the_steps(name: str, dtype: str, prepared: list[Any]) -> None:
    """Other elements and other memory at each call; steps are those of plain calls."""
    form, shape = FORMS[name], (6, 13)
    held = []
    for call in range(PREPARED_AFTER + 4):
        native = given(shape, dtype, call)
        found = form(xt.asarray(native, copy=True))
        with xt.options(lazy="never"):
            steps = form(xt.asarray(native, copy=True))
        assert (found.shape, found.dtype, found.ndim) == (steps.shape, steps.dtype, steps.ndim)
        tolerance = 1e-5 if dtype == "float32" else 1e-13
        np.testing.assert_allclose(found.numpy(), steps.numpy(), rtol=tolerance, atol=tolerance)
        held.append((found, steps.numpy().copy()))
    assert prepared
    for found, steps in held:  # each result has memory of its own
        np.testing.assert_allclose(found.numpy(), steps, rtol=1e-5, atol=1e-5)


def call_until_prepared(form: Callable[..., Any], *operands: Any) -> Any:
    for _ in range(PREPARED_AFTER):
        found = form(*operands)
    return found


@needs_code
def test_constants_are_kinds_of_their_own(prepared: list[Any]) -> None:
    native = given((4, 6), "float64", 0)
    x = xt.asarray(native, copy=True)
    for seen in (x, x.T, x[:, ::2], x[::-1], x[1], xt.broadcast_to(x[0], (3, 6))):
        for slope in (0.25, -0.0, 0.0):
            found = call_until_prepared(lambda x, slope=slope: xt.nn.leaky_relu(x, slope), seen)
            found = xt.nn.leaky_relu(seen, slope)
            expected = np.where(seen.numpy() > 0, seen.numpy(), seen.numpy() * slope)
            np.testing.assert_array_equal(found.numpy(), expected)
            np.testing.assert_array_equal(np.signbit(found.numpy()), np.signbit(expected))
    assert len(prepared) == 3


@needs_code
def test_views_of_arguments_are_read_anew(prepared: list[Any]) -> None:
    """A weight is looked at as a view with more axes: what it holds at each call counts, and no other memory."""
    x, weights = xt.asarray(given((3, 4), "float64", 0), copy=True), [xt.ones(4) * n for n in range(1, 4)]
    call_until_prepared(lambda: xt.nn.layer_norm(x, weight=weights[0]))
    assert prepared
    for n, weight in enumerate(weights, 1):
        np.testing.assert_allclose(
            xt.nn.layer_norm(x, weight=weight).numpy(), n * xt.nn.layer_norm(x).numpy(), rtol=1e-13
        )
    weights[0][...] = 7.0
    np.testing.assert_allclose(
        xt.nn.layer_norm(x, weight=weights[0]).numpy(), 7 * xt.nn.layer_norm(x).numpy(), rtol=1e-13
    )


@needs_code
def test_gradients_stay(prepared: list[Any]) -> None:
    x = xt.asarray(given((3, 4), "float64", 0), copy=True)
    weights = xt.asarray(given((3, 4), "float64", 1), copy=True)
    slope = xt.grad(lambda x: xt.sum(weights * xt.nn.silu(xt.nn.softmax(x))))
    before = slope(x).numpy().copy()
    for form in (xt.nn.softmax, xt.nn.silu):
        call_until_prepared(form, x)
    call_until_prepared(slope, x)
    assert prepared
    np.testing.assert_allclose(slope(x).numpy(), before, rtol=1e-12)
    twice = xt.grad(lambda x: xt.sum(slope(x) ** 2))
    numeric = [
        (np.sum(slope(x + step).numpy() ** 2) - np.sum(slope(x - step).numpy() ** 2)) / 2e-5
        for step in 1e-5 * np.eye(12).reshape(12, 3, 4)
    ]
    np.testing.assert_allclose(twice(x).numpy().ravel(), numeric, rtol=1e-6, atol=1e-9)


@needs_code
def test_a_tensor_that_stands_twice_is_a_kind_of_its_own(prepared: list[Any]) -> None:
    x, weight, bias = xt.asarray(given((3, 4), "float64", 0), copy=True), xt.ones(3) * 2, xt.ones(3)
    expected = 2 * xt.nn.layer_norm(x, axis=0).numpy()
    call_until_prepared(lambda: xt.nn.layer_norm(x, weight, weight, axis=0))
    np.testing.assert_allclose(xt.nn.layer_norm(x, weight, weight, axis=0).numpy(), expected + 2, rtol=1e-12)
    call_until_prepared(lambda: xt.nn.layer_norm(x, weight, bias, axis=0))
    np.testing.assert_allclose(xt.nn.layer_norm(x, weight, bias, axis=0).numpy(), expected + 1, rtol=1e-12)
    assert prepared
    np.testing.assert_allclose(xt.nn.layer_norm(x, weight, weight, axis=0).numpy(), expected + 2, rtol=1e-12)


@needs_code
def test_two_views_of_the_same_elements_are_no_kind_of_their_own(prepared: list[Any]) -> None:
    """What was prepared for them has to tell other arrays apart."""
    x, weight, bias = xt.asarray(given((3, 5), "float64", 0), copy=True), xt.ones(3) * 2, xt.ones(3)
    expected = 2 * xt.nn.layer_norm(x, axis=0).numpy()
    call_until_prepared(lambda: xt.nn.layer_norm(x, weight[:], weight[:], axis=0))
    np.testing.assert_allclose(xt.nn.layer_norm(x, weight, bias, axis=0).numpy(), expected + 1, rtol=1e-12)
    np.testing.assert_allclose(xt.nn.layer_norm(x, weight[:], weight[:], axis=0).numpy(), expected + 2, rtol=1e-12)


@needs_code
@pytest.mark.parametrize(
    "option",
    [{"engine": "direct"}, {"engine": "interpret"}, {"lazy": "never"}, {"fast_math": True}, {"reproducible": True}],
)
def test_what_is_asked_for_is_never_prepared(option: dict[str, Any], prepared: list[Any]) -> None:
    x = xt.asarray(given((5, 9 + len(str(option))), "float32", 0), copy=True)  # a kind of this test's own
    with xt.options(**option):
        before = xt.nn.log_softmax(x).numpy().copy()
        call_until_prepared(xt.nn.log_softmax, x)
    assert not prepared
    call_until_prepared(xt.nn.log_softmax, x)
    xt.nn.log_softmax(x)
    assert len(prepared) == 1
    with xt.options(**option):
        np.testing.assert_array_equal(xt.nn.log_softmax(x).numpy(), before)


@needs_code
def test_options_and_captures_go_their_own_way(prepared: list[Any]) -> None:
    x = xt.asarray(given((3, 4), "float64", 0), copy=True)
    call_until_prepared(xt.nn.silu, x)
    count = len(prepared)
    with xt.options(lazy="always"):
        assert xt.nn.silu(x).is_pending
    with xt.options(lazy="never"):
        plain = xt.nn.silu(x)
    np.testing.assert_allclose(xt.nn.silu(x).numpy(), plain.numpy(), rtol=1e-13)
    fused = xt.fuse(lambda x: xt.nn.silu(x) * 2)
    with xt.options(engine="llvm"):
        for _ in range(3):
            np.testing.assert_allclose(fused(x).numpy(), 2 * plain.numpy(), rtol=1e-13)
        assert not fused.why(x)
    assert len(prepared) == count


COMPOSED: dict[str, Callable[..., Any]] = {
    "layer_norm": xt.nn.layer_norm,
    "group_norm": lambda x, w, b: xt.nn.group_norm(x[:, :, None], 3, w[:12], b[:12]),
    "batch_norm": lambda x, w, b: xt.nn.batch_norm(x, weight=w, bias=b, training=True),
    "rms_norm": lambda x, w, b: xt.nn.rms_norm(x, weight=w) + b,
    "cosine_similarity": lambda x, w, b: xt.nn.cosine_similarity(x, w * b),
    "cross_entropy": lambda x, w, b: xt.nn.cross_entropy(x * w + b, xt.arange(x.shape[0]) % x.shape[1]),
    "huber_loss": lambda x, w, b: xt.nn.huber_loss(x * w, xt.broadcast_to(b, x.shape), delta=0.5),
    "elu": lambda x, w, b: xt.nn.elu(x * w, alpha=0.5) + b,
    "softplus": lambda x, w, b: xt.nn.softplus(x * w + b, beta=2.0, threshold=3.0),
    "glu": lambda x, w, b: xt.nn.glu(x * w + b, axis=0),
    "grid_sample": lambda x, w, b: xt.nn.grid_sample(x[None, None], xt.tanh(xt.reshape(w * b, (1, 2, 3, 2)))),
    "conv": lambda x, w, b: xt.nn.conv(x[:50, None], xt.reshape(w, (2, 1, 6)), b[:2]),
    "conv, broadcast": lambda x, w, b: xt.sum(
        xt.nn.conv(x[:50, None], xt.reshape(w, (2, 1, 6)), b[:2], padding=1), axis=2
    ),
    "pools": lambda x, w, b: xt.nn.max_pool(x[:50, None], 2) + xt.nn.avg_pool((w * b)[None, None], 2),
}


@needs_code
@pytest.mark.parametrize("rows", [6, 4000])
@pytest.mark.parametrize("name", COMPOSED)
def test_gradients_are_those_of_the_steps(name: str, rows: int, prepared: list[Any]) -> None:
    """With other elements at each call, to all operands or some of them, once and twice, and in tensors' .grad."""
    form, shape = COMPOSED[name], (rows, 12)
    cotangent = np.cos(np.arange(rows * 24.0))

    def loss(*operands: Any) -> Any:
        y = form(*operands)
        return xt.sum(y * xt.asarray(cotangent[: y.size].reshape(y.shape)))

    every, some = xt.grad(loss, argnums=(0, 1, 2)), xt.grad(loss, argnums=1)
    for call in range(PREPARED_AFTER + 3):
        operands = [xt.asarray(given(n, "float64", 3 * call + at)) for at, n in enumerate((shape, 12, 12))]
        if call % 20 and call < PREPARED_AFTER:
            every(*operands), some(*operands)
            continue
        with xt.options(lazy="never"):
            expected = [*every(*operands), some(*operands)]
        for one, other in zip([*every(*operands), some(*operands)], expected, strict=True):
            np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-9, atol=1e-9 * np.abs(other.numpy()).max())
    assert prepared
    if rows > 6:
        return
    twice = xt.grad(lambda x: xt.sum(some(x, *operands[1:]) ** 2))
    with xt.options(lazy="never"):
        expected = twice(operands[0]).numpy()
    np.testing.assert_allclose(twice(operands[0]).numpy(), expected, rtol=1e-8, atol=1e-8 * np.abs(expected).max())
    leaf = operands[1].copy()
    leaf.requires_grad = True
    loss(operands[0], leaf, operands[2]).backward()
    np.testing.assert_allclose(leaf.grad.numpy(), some(*operands).numpy(), rtol=1e-12)


@needs_code
def test_what_is_kept_for_the_way_back_stays(prepared: list[Any]) -> None:
    """Operands that are written after the call: the gradient is that at the values they had."""
    x, w, b = (xt.asarray(given(n, "float64", at), copy=True) for at, n in enumerate(((5, 8), 8, 8)))

    def gradient(write: bool) -> Any:
        y, back = xt.vjp(lambda w: xt.nn.layer_norm(x, w, b), w)
        if write:
            x[...] = 7.0
        return back(xt.ones_like(y))[0].numpy().copy()

    before = call_until_prepared(lambda: gradient(False))
    np.testing.assert_array_equal(gradient(True), before)
    with xt.no_grad():
        assert not xt.nn.layer_norm(x, w, b).requires_grad


def test_without_a_compiler_nothing_is_captured(prepared: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(composed, "can_generate", lambda: False)
    x = xt.asarray(given((5, 21), "float64", 0), copy=True)
    slope = xt.grad(lambda x: xt.nn.mse_loss(x, x * 2))
    for _ in range(2):
        call_until_prepared(xt.nn.normalize, x)
        call_until_prepared(slope, x)
    assert not prepared


@needs_code
def test_ever_new_kinds_are_not_captured_for_ever(prepared: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A captured function would forget them."""
    monkeypatch.setattr(composed, "PREPARED_AFTER", 1)
    counts = [0] * 2
    for turn in range(2):
        for length in range(1, composed.MOST_KINDS + 9):
            before = len(prepared)
            x = xt.ones((2, length, 3), dtype=xt.float32)
            found = xt.nn.normalize(x, axis=-2, eps=2.0**-turn)
            np.testing.assert_allclose(found.numpy(), length**-0.5, rtol=1e-6)
            counts[turn] += len(prepared) - before
    assert len(prepared) == 2
    captured = [cell.cell_contents for cell in xt.nn.normalize.__closure__ if type(cell.cell_contents) is CapturedCalls]
    assert [*captured[0]._kinds.values()].count(prepared[0]) == composed.MOST_KINDS


@needs_code
def test_pending_operands_stay_so_where_nothing_is_captured(prepared: list[Any]) -> None:
    x = xt.asarray(given((601, 201), "float64", 0), copy=True)  # a kind of this test's own

    def loss(x: xt.Tensor) -> xt.Tensor:
        y = xt.tanh(x * 2)
        found = xt.nn.huber_loss(y, x)
        assert y.is_pending
        return found

    with xt.options(lazy="auto"):
        xt.grad(loss)(x)


def test_numbers_without_axes_stay_values() -> None:
    """A loss is a value as any reduction's: it hashes, and is no array for `x[...] += 1`."""
    x = xt.asarray(given((3, 4), "float64", 0), copy=True)
    first = xt.nn.mse_loss(x, x * 2)
    last = call_until_prepared(xt.nn.mse_loss, x, x * 2)
    last = xt.nn.mse_loss(x, x * 2)
    assert hash(last) == hash(last.item())
    assert type(first) is type(last)
    assert hash(first) == hash(first.item())
    np.testing.assert_allclose(float(first), float(last), rtol=1e-14)


def test_errors_are_those_of_every_call() -> None:
    for _ in range(PREPARED_AFTER + 2):
        with pytest.raises(TypeError, match="^softmax: x must be "):
            xt.nn.softmax(xt.arange(3))
        with pytest.raises(IndexError, match="^softmax: "):
            xt.nn.softmax(xt.ones(3), axis=1)


@needs_code
def test_threads_compute_one_kind_at_once() -> None:
    from concurrent.futures import ThreadPoolExecutor

    natives = [given((5, 7), "float64", n) for n in range(8)]
    call_until_prepared(xt.nn.softmax, xt.asarray(natives[0], copy=True))
    expected = [np.exp(n) / np.exp(n).sum(-1, keepdims=True) for n in natives]

    def work(n: int) -> bool:
        x = xt.asarray(natives[n], copy=True)
        return all(np.allclose(xt.nn.softmax(x).numpy(), expected[n], rtol=1e-13) for _ in range(200))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(8)))


@needs_code
def test_small_layers_wait_for_dispatch(prepared: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Called from Python, a captured layer takes longer than a plain one; with a gradient it takes less time."""
    compiled: list[bool] = []
    monkeypatch.setattr(composed, "is_exchanged", lambda: bool(compiled))
    monkeypatch.setattr(composed, "exchange", lambda: compiled.append(True))
    monkeypatch.setattr(composed, "EXCHANGED_AFTER", 2 * PREPARED_AFTER)
    x, w = xt.ones((1, 2, 6, 7)), xt.ones((3, 2, 3, 2))
    for _ in range(2 * PREPARED_AFTER - 1):
        xt.nn.conv(x, w)
    assert not prepared and not compiled
    xt.nn.conv(x, w)
    assert len(prepared) == len(compiled) == 1
    compiled.clear()
    gradient = xt.grad(lambda w: xt.sum(xt.nn.conv(x, w, stride=2)))
    call_until_prepared(gradient, w)
    assert len(prepared) == 2 and not compiled

"""xt.nn: values by their definitions, extremes, dtypes, laziness, and what is refused. PyTorch: oracle/test_nn.py."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from importlib import import_module
from typing import Any

import mpmath
import numpy as np
import pytest

import xtensor as xt
from tests.samples import normal, positive
from xtensor.nn import norms

nn = xt.nn
INF, NAN = math.inf, math.nan
FILES = ("activations", "alignments", "attention", "layers", "losses", "normalisers", "norms", "resizing")

# ---- definitions, in NumPy


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


DEFINITIONS: dict[str, Callable[[Any], Any]] = {
    "elu": lambda x: np.where(x > 0, x, np.exp(x) - 1),
    "erf": np.vectorize(math.erf, otypes=[float]),
    "gelu": lambda x: 0.5 * x * (1 + np.vectorize(math.erf, otypes=[float])(x / math.sqrt(2))),
    "hardsigmoid": lambda x: np.clip(x / 6 + 0.5, 0, 1),
    "hardswish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "hardtanh": lambda x: np.clip(x, -1, 1),
    "leaky_relu": lambda x: np.where(x > 0, x, 0.01 * x),
    "log_sigmoid": lambda x: np.log(sigmoid(x)),
    "mish": lambda x: x * np.tanh(np.log(1 + np.exp(x))),
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "selu": lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * (np.exp(x) - 1)),
    "sigmoid": sigmoid,
    "silu": lambda x: x * sigmoid(x),
    "softplus": lambda x: np.log(1 + np.exp(x)),
    "softmax": lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True),
    "log_softmax": lambda x: x - np.log(np.exp(x).sum(-1, keepdims=True)),
    "rms_norm": lambda x: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6),
    "layer_norm": lambda x: (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5),
}
every_definition = pytest.mark.parametrize("name", DEFINITIONS)
every_engine = pytest.mark.parametrize("engine", ["direct", "interpret", "llvm"])


@every_definition
@every_engine
def test_definitions(name: str, engine: str) -> None:
    """Values, in every engine, for arrays that lie in every way; one shape and dtype in and out."""
    memory = normal(40, 66) * 3
    for x in (memory, memory.T[::-1], memory[::2, 3:5], np.broadcast_to(memory[:1], (5, 66)), memory[:0]):
        with xt.options(engine=engine, lazy="never" if engine == "direct" else "always"):
            got = getattr(nn, name)(xt.asarray(x)).numpy()
        np.testing.assert_allclose(got, DEFINITIONS[name](x), rtol=1e-12, atol=1e-12, strict=True)


@every_definition
def test_dtypes(name: str) -> None:
    """Floating dtypes stay what they are, and other dtypes are refused by name."""
    function = getattr(nn, name)
    right = DEFINITIONS[name](normal(8, 16))
    for dtype, atol in ((xt.float32, 2e-6), (np.float16, 1e-2)):
        got = function(xt.asarray(normal(8, 16).astype(dtype)))
        assert got.dtype == dtype
        np.testing.assert_allclose(got.numpy().astype(float), right, atol=atol)
    refused = [xt.complex64] if name == "erf" else [xt.int64, xt.bool, xt.complex64]
    for dtype in refused:
        with pytest.raises(TypeError, match=rf"^{name}: x must be real floating, got {np.dtype(dtype)}"):
            function(xt.ones(3, dtype=dtype))
    with pytest.raises(TypeError, match=rf"^{name}: x must be an array or a scalar, got str"):
        function("x")


@pytest.mark.parametrize("size", [100, 100_000])
def test_recorded_above_a_size(size: int) -> None:
    """Large calls wait and fuse into one plan; small ones are computed at once."""
    y = nn.gelu(nn.softplus(xt.ones(size)) * 2.0)
    assert y.is_pending == (size > 1000)


def test_softmax_is_one_plan() -> None:
    """The rows go through all steps together."""
    with xt.options(engine="llvm", lazy="always"):
        text = str(xt.explain(nn.softmax(xt.ones((300, 1000)))))
    assert "together, row by row" in text


# ---- accuracy


def ulps(got: Any, right: list[Any]) -> float:
    """Return the largest distance from true values, in units in the last place of the results' dtype."""
    spacing = np.spacing(np.abs(np.array([float(r) for r in right])).astype(got.dtype)).astype(float)
    off = [abs(mpmath.mpf(float(g)) - r) / float(s) for g, r, s in zip(got, right, spacing, strict=True)]
    return float(max(off))


@every_engine
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_erf_accuracy(engine: str, dtype: Any) -> None:
    """Within 2 units in the last place, from the smallest numbers up to where it is 1."""
    tiny = np.finfo(dtype).tiny
    edges = [0.9, 1.0, 3.94, 5.94]
    near = [np.nextafter(dtype(e), dtype(to)) for e in edges for to in (0, 9)]
    x = np.concatenate([np.geomspace(tiny, 1e-3, 200), np.linspace(1e-3, 6.5, 1500), edges, near]).astype(dtype)
    with xt.options(engine=engine, lazy="always"):
        got = nn.erf(xt.asarray(x)).numpy()
        negative = nn.erf(xt.asarray(-x)).numpy()
    assert got.dtype == dtype
    np.testing.assert_array_equal(negative, -got)
    assert ulps(got, [mpmath.erf(mpmath.mpf(float(v))) for v in x]) <= 2


@every_engine
def test_erf_at_the_ends(engine: str) -> None:
    """Zeros keep their sign, infinities give 1, NaN stays."""
    x = np.array([0.0, -0.0, INF, -INF, NAN, 1e300, -1e300, 5e-324])
    with xt.options(engine=engine, lazy="always"):
        got = nn.erf(xt.asarray(x)).numpy()
    np.testing.assert_array_equal(got, [0.0, -0.0, 1.0, -1.0, NAN, 1.0, -1.0, 5e-324])
    assert np.signbit(got[1]) and not np.signbit(got[0])


@every_engine
@pytest.mark.parametrize("values", [[0, 1, -2, -(2**63)], [True, False], np.int8([-128, 1, 127]), np.uint16([0, 2])])
def test_erf_of_other_dtypes(engine: str, values: Any) -> None:
    """Integers, also the least, and booleans are converted as NumPy converts; a scalar is a 0-d array."""
    with xt.options(engine=engine, lazy="never" if engine == "direct" else "always"):
        got = nn.erf(xt.asarray(values))
        assert got.dtype == xt.float64
        np.testing.assert_allclose(got.numpy(), [math.erf(v) for v in values], rtol=1e-15)
        assert nn.erf(0.5).shape == ()


def test_sigmoid_and_softplus_keep_relative_accuracy() -> None:
    """The small end is accurate digit by digit, down to subnormal numbers."""
    x = np.array([-745.0, -730.0, -709.0, -100.0, -40.0, -1.0, 0.0, 3.0, 40.0, 800.0])
    truth = [1 / (1 + mpmath.exp(-mpmath.mpf(v))) for v in x]
    np.testing.assert_allclose(nn.sigmoid(xt.asarray(x)).numpy()[1:], [float(t) for t in truth][1:], rtol=1e-11)
    assert float(nn.sigmoid(xt.asarray(-745.0))) > 0
    logs = [mpmath.log1p(mpmath.exp(mpmath.mpf(v))) for v in x[2:]]
    np.testing.assert_allclose(nn.softplus(xt.asarray(x[2:])).numpy(), [float(v) for v in logs], rtol=1e-15)
    np.testing.assert_allclose(nn.log_sigmoid(xt.asarray(-x[2:])).numpy(), [-float(v) for v in logs], rtol=1e-15)


def test_norms_of_halves() -> None:
    """Squares of numbers that are large or small for float16, as PyTorch has them."""
    for size in (300.0, 1e-5, 1.0):
        x = np.full((2, 64), size, np.float16)
        x[:, ::2] *= -1
        for norm in (nn.rms_norm, nn.layer_norm):
            got = norm(xt.asarray(x), eps=1e-12).numpy()
            assert got.dtype == np.float16
            np.testing.assert_allclose(got.astype(float), np.sign(x), atol=0.02)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_layer_norm_far_from_zero(dtype: Any) -> None:
    """The variance is that of distances from the mean: an offset costs the digits it takes, not their square."""
    x = (normal(16, 500) + 1e3).astype(dtype)
    wide = x.astype(np.float64)
    right = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    got = nn.layer_norm(xt.asarray(x)).numpy()
    assert np.max(np.abs(got - right)) < 1e4 * np.finfo(dtype).eps


# ---- extremes


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("elu", -1.0, INF),
        ("hardsigmoid", 0.0, 1.0),
        ("hardtanh", -1.0, 1.0),
        ("leaky_relu", -INF, INF),
        ("log_sigmoid", -INF, 0.0),
        ("relu", 0.0, INF),
        ("relu6", 0.0, 6.0),
        ("sigmoid", 0.0, 1.0),
        ("softplus", 0.0, INF),
        ("silu", NAN, INF),
        ("gelu", NAN, INF),
        ("mish", NAN, INF),
        ("hardswish", NAN, INF),
    ],
)
@pytest.mark.parametrize("lazy", ["never", "always"])
def test_at_infinity(name: str, low: float, high: float, lazy: str) -> None:
    """Limits, or NaN where the product of infinity and 0 stands there; a NaN stays one; gradients do not overflow."""
    function = getattr(nn, name)
    with xt.options(lazy=lazy):
        got = function(xt.asarray([-INF, INF, NAN])).numpy()
        np.testing.assert_array_equal(got, [low, high, NAN])
        huge = xt.asarray([-1e300, -1e4, 1e4, 1e300])
        slopes = xt.grad(lambda x: xt.sum(function(x)))(huge).numpy()
    assert np.all(np.isfinite(slopes)) and np.all(np.isfinite(function(huge).numpy()))


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_is_one_step_of_the_tape(approximate: str) -> None:
    x = xt.linspace(-3.0, 3.0, 7)
    x.requires_grad = True
    step = nn.gelu(x, approximate)._step
    assert step is not None
    assert step.parents == (x._step,)


def test_gelu_tanh_of_huge_numbers() -> None:
    """The cube of what is huge is not formed."""
    x = xt.asarray([-1e300, -50.0, 50.0, 1e300])
    np.testing.assert_array_equal(nn.gelu(x, "tanh").numpy(), [0.0, 0.0, 50.0, 1e300])
    slopes = xt.grad(lambda x: xt.sum(nn.gelu(x, "tanh")))(x).numpy()
    np.testing.assert_array_equal(slopes, [0.0, 0.0, 1.0, 1.0])


@pytest.mark.parametrize(
    ("name", "at", "slope"),
    [
        ("relu", 0.0, 0.0),
        ("relu6", 0.0, 0.0),
        ("relu6", 6.0, 0.0),
        ("hardtanh", 1.0, 0.0),
        ("hardtanh", -1.0, 0.0),
        ("leaky_relu", 0.0, 0.01),
        ("elu", 0.0, 1.0),
        ("sigmoid", 0.0, 0.25),
        ("softplus", 0.0, 0.5),
        ("log_sigmoid", 0.0, 0.5),
        ("gelu", 0.0, 0.5),
        ("silu", 0.0, 0.5),
        ("mish", 0.0, 0.6),
        ("hardsigmoid", 3.0, 0.0),
        ("hardswish", 3.0, 1.0),
        ("hardswish", -3.0, 0.0),
    ],
)
def test_slopes_at_kinks(name: str, at: float, slope: float) -> None:
    """The derivative of one side, as in PyTorch; at smooth points the derivative."""
    assert float(xt.grad(getattr(nn, name))(xt.asarray(at))) == pytest.approx(slope, abs=1e-15)


def test_second_derivatives_at_smooth_points() -> None:
    """Where a composition would go through |x| or a maximum, second derivatives are right as well."""
    second = {name: xt.grad(xt.grad(getattr(nn, name))) for name in ("sigmoid", "softplus", "silu", "gelu")}
    zero = xt.asarray(0.0)
    assert float(second["sigmoid"](zero)) == 0
    assert float(second["softplus"](zero)) == 0.25
    assert float(second["silu"](zero)) == 0.5
    assert float(second["gelu"](zero)) == pytest.approx(math.sqrt(2 / math.pi))
    huber = xt.grad(xt.grad(lambda x: nn.huber_loss(x, zero)))
    assert float(huber(zero)) == 1


def test_infinite_rows() -> None:
    """-inf is a probability of 0; a row of nothing else has no softmax, and a sum of -inf."""
    x = xt.asarray([[-INF, 0.0, 0.0], [-INF, -INF, -INF], [INF, 0.0, -INF]])
    np.testing.assert_array_equal(nn.softmax(x).numpy()[0], [0.0, 0.5, 0.5])
    assert np.all(np.isnan(nn.softmax(x).numpy()[1]))
    np.testing.assert_array_equal(nn.logsumexp(x, axis=1).numpy(), [math.log(2), -INF, INF])
    slopes = xt.grad(lambda x: xt.sum(nn.logsumexp(x, axis=1)))(x).numpy()
    np.testing.assert_allclose(slopes, [[0, 0.5, 0.5], [1 / 3] * 3, [1, 0, 0]])
    again = xt.grad(lambda x: xt.sum(xt.grad(lambda y: xt.sum(nn.logsumexp(y, axis=1)))(x) ** 2))(x).numpy()
    np.testing.assert_allclose(again, 0, atol=1e-16)


def test_sums_over_nothing() -> None:
    """No elements: the sum of exponentials is 0; the others are empty."""
    x = xt.zeros((2, 0))
    np.testing.assert_array_equal(nn.logsumexp(x, axis=1).numpy(), [-INF, -INF])
    np.testing.assert_array_equal(nn.logsumexp(x, axis=1, keepdims=True).numpy(), [[-INF], [-INF]])
    assert nn.softmax(x).shape == nn.log_softmax(x).shape == (2, 0)


@pytest.mark.parametrize("offset", [1e4, -1e4, 1e30])
def test_offsets_do_not_overflow(offset: float) -> None:
    """Sums of exponentials are taken relative to the largest."""
    x = xt.asarray(np.array([[0.0, 1.0], [2.0, 0.0]]) + offset)
    assert np.all(np.isfinite(nn.log_softmax(x).numpy()))
    np.testing.assert_allclose(nn.softmax(x).numpy().sum(axis=1), 1)
    assert np.all(np.isfinite(nn.cross_entropy(x, xt.asarray([0, 1]), reduction="none").numpy()))


# ---- norms


def test_batch_norm_moves_running_statistics() -> None:
    """In place, also through a view, and without a gradient; inference leaves them alone."""
    x = xt.asarray(normal(6, 3, 4))
    kept = xt.zeros((2, 3))
    mean, var = kept[0], kept[1]
    nn.batch_norm(x, mean, var, training=True, momentum=0.25)
    np.testing.assert_allclose(kept[0].numpy(), 0.25 * x.numpy().mean((0, 2)), rtol=1e-14)
    np.testing.assert_allclose(kept[1].numpy(), 0.25 * x.numpy().var((0, 2), ddof=1), rtol=1e-14)
    before = kept.numpy().copy()
    nn.batch_norm(x, mean, var)
    np.testing.assert_array_equal(kept.numpy(), before)


@pytest.mark.parametrize("axis", [1, 2, -1])
def test_channels_may_lie_anywhere(axis: int) -> None:
    """Norms over channels along another axis are those of the array turned round."""
    x = normal(3, 4, 5, 2)
    turned = xt.asarray(np.moveaxis(x, 1, axis))
    w, b = xt.asarray(positive(4)), xt.asarray(normal(4))
    for call in (
        lambda a, **axis: nn.batch_norm(a, b, w, w, b, **axis),
        lambda a, **axis: nn.batch_norm(a, None, None, w, b, training=True, **axis),
        lambda a, **axis: nn.group_norm(a, 2, w, b, **axis),
    ):
        wanted = np.moveaxis(call(xt.asarray(x)).numpy(), 1, axis)
        np.testing.assert_allclose(call(turned, axis=axis).numpy(), wanted, rtol=1e-12, atol=1e-12)


def test_constant_rows_have_no_spread() -> None:
    """Where all elements are equal the result is the bias, and the gradient finite."""
    x = xt.ones((2, 8))
    np.testing.assert_array_equal(nn.layer_norm(x, None, xt.ones(8)).numpy(), 1)
    assert np.all(np.isfinite(xt.grad(lambda x: xt.sum(nn.layer_norm(x) ** 2))(x).numpy()))


# ---- layers


def test_dropout() -> None:
    """As many elements as asked for are 0, the others grow; the same seed drops the same."""
    x = xt.ones((200, 300), dtype=xt.float32)
    y = nn.dropout(x, 0.3, generator=xt.random.default_rng(0))
    again = nn.dropout(x, 0.3, generator=np.random.default_rng(0))
    assert y.dtype == xt.float32
    np.testing.assert_array_equal(y.numpy(), again.numpy())
    assert float(xt.mean(xt.astype(y == 0, xt.float64))) == pytest.approx(0.3, abs=0.01)
    assert set(np.unique(y.numpy())) == {np.float32(0), np.float32(1 / 0.7)}
    slopes = xt.grad(lambda x: xt.sum(nn.dropout(x, 0.3, generator=xt.random.default_rng(0))))(x)
    np.testing.assert_array_equal(slopes.numpy(), y.numpy())


def test_dropout_of_none_and_of_all() -> None:
    """At 0, and outside of training, x comes back and nothing is drawn; at 1 zeros, even for NaN."""
    generator = xt.random.default_rng(0)
    state = generator.state
    x = xt.asarray([1.0, NAN])
    assert nn.dropout(x, 0.0, generator=generator) is x
    assert nn.dropout(x, 0.9, generator=generator, training=False) is x
    np.testing.assert_array_equal(nn.dropout(x, 1.0, generator=generator).numpy(), [0.0, 0.0])
    assert generator.state == state


def test_embedding_adds_gradients() -> None:
    """A row that is looked up three times gets the sum of three; the padding row none."""
    weight, indices = xt.asarray(normal(5, 2)), xt.asarray([[0, 3, 0], [0, 4, 4]])
    np.testing.assert_array_equal(nn.embedding(indices, weight).numpy(), weight.numpy()[indices.numpy()])
    slopes = xt.grad(lambda w: xt.sum(nn.embedding(indices, w)))(weight).numpy()
    np.testing.assert_array_equal(slopes[:, 0], [3, 0, 0, 1, 2])
    for padding in (4, -1):
        slopes = xt.grad(lambda w, p=padding: xt.sum(nn.embedding(indices, w, padding_idx=p)))(weight).numpy()
        np.testing.assert_array_equal(slopes[:, 0], [3, 0, 0, 1, 0])


def test_one_hot() -> None:
    """The new axis stands where it is asked for; the number of classes is that of the largest index."""
    x = xt.asarray([[0, 2], [1, 1]])
    wanted = np.eye(3, dtype=np.int64)[x.numpy()]
    np.testing.assert_array_equal(nn.one_hot(x).numpy(), wanted, strict=True)
    np.testing.assert_array_equal(nn.one_hot(x, 3, axis=0).numpy(), np.moveaxis(wanted, -1, 0))
    got = nn.one_hot(x, 4, dtype=xt.float32)
    assert got.shape == (2, 2, 4) and got.dtype == xt.float32
    assert nn.one_hot(xt.zeros((0,), dtype=xt.int64), 3).shape == (0, 3)


def test_attention_by_its_formula() -> None:
    """Weights of softmax over keys; booleans and numbers mask; a mask and causality hold together."""
    q, k, v = normal(2, 4, 3), normal(2, 4, 3, seed=1), normal(2, 4, 5, seed=2)
    allowed = np.random.default_rng(0).integers(0, 2, (4, 4)).astype(bool) | np.eye(4, dtype=bool)

    def by_hand(seen: Any) -> Any:
        scores = np.where(seen, q @ k.swapaxes(1, 2) / math.sqrt(3), -INF)
        powers = np.exp(scores)
        return powers / powers.sum(-1, keepdims=True) @ v

    tensors = [xt.asarray(a) for a in (q, k, v)]
    attend = nn.scaled_dot_product_attention
    low = np.tril(np.ones((4, 4), bool))
    np.testing.assert_allclose(attend(*tensors).numpy(), by_hand(True), rtol=1e-12)
    np.testing.assert_allclose(attend(*tensors, xt.asarray(allowed)).numpy(), by_hand(allowed), rtol=1e-12)
    np.testing.assert_allclose(attend(*tensors, is_causal=True).numpy(), by_hand(low), rtol=1e-12)
    both = attend(*tensors, xt.asarray(allowed), is_causal=True)
    np.testing.assert_allclose(both.numpy(), by_hand(low & allowed), rtol=1e-12)
    added = attend(*tensors, xt.asarray(np.where(allowed, 0.0, -INF)))
    np.testing.assert_allclose(added.numpy(), by_hand(allowed), rtol=1e-12)


def test_attention_drops_weights() -> None:
    """With the generator it is given."""
    q = xt.ones((1, 30, 4))
    got = [nn.scaled_dot_product_attention(q, q, q, dropout_p=0.5, generator=xt.random.default_rng(3)) for _ in "ab"]
    np.testing.assert_array_equal(got[0].numpy(), got[1].numpy())
    assert np.std(got[0].numpy()) > 0.05


# ---- losses


def test_cross_entropy_of_one_hot_is_that_of_classes() -> None:
    """Classes and probabilities of 0 and 1 say the same."""
    x, t = xt.asarray(normal(6, 5)), xt.asarray([0, 1, 2, 3, 4, 0])
    for smoothing in (0.0, 0.3):
        one = nn.cross_entropy(x, t, label_smoothing=smoothing)
        other = nn.cross_entropy(x, nn.one_hot(t, 5, dtype=xt.float64), label_smoothing=smoothing)
        assert float(one) == pytest.approx(float(other), rel=1e-14)
        logs = nn.nll_loss(nn.log_softmax(x), t)
        assert smoothing or float(one) == pytest.approx(float(logs), rel=1e-14)


def test_alignments_in_captured_functions_and_twice() -> None:
    """The gradient of ctc_loss is that of its formula when captured, and differentiable; lengths are checked each time
    that a captured function is called; halves are summed in float32.
    """
    targets, wanted = np.array([[1, 2, 3], [2, 2, 1], [3, 1, 1]]), np.array([3, 1, 0])
    x, v = normal(7, 3, 4), normal(7, 3, 4)

    def loss(x: xt.Tensor, given: Any) -> xt.Tensor:
        return nn.ctc_loss(nn.log_softmax(x), xt.asarray(targets), given, wanted)

    given, grad = xt.asarray([7, 5, 6]), xt.grad(loss)
    fused = xt.fuse(xt.value_and_grad(loss))
    for _ in range(3):
        value, found = fused(xt.asarray(x), given)
    assert float(value) == pytest.approx(float(loss(xt.asarray(x), given)), rel=1e-12)
    np.testing.assert_allclose(found.numpy(), grad(xt.asarray(x), given).numpy(), rtol=0, atol=1e-12)
    with pytest.raises(ValueError, match=r"ctc_loss: input_lengths must be from 1 to 7, got \[7, 5, 8\]"):
        fused(xt.asarray(x), xt.asarray([7, 5, 8]))
    twice = xt.grad(lambda x: xt.sum(grad(x, given) * xt.asarray(v)))(xt.asarray(x)).numpy()
    above, below = (grad(xt.asarray(x + e * v), given).numpy() for e in (1e-5, -1e-5))
    np.testing.assert_allclose(twice, (above - below) / 2e-5, rtol=0, atol=1e-8)
    half = loss(xt.asarray(x, dtype=xt.float16), given)
    assert half.dtype == xt.float16
    assert float(half) == pytest.approx(float(loss(xt.asarray(x), given)), rel=2e-3)


def test_alignments_with_classes_that_cannot_be() -> None:
    """Classes of no chance in a frame count nothing, and targets that do not fit into their frames have no gradient."""
    x = np.log(np.full((5, 2, 3), 1 / 3))
    x[2, :, 2] = -np.inf
    targets = xt.asarray([[1, 2], [2, 2]])

    def loss(x: xt.Tensor) -> xt.Tensor:
        return nn.ctc_loss(x, targets, [5, 2], [2, 2], reduction="none")

    found = loss(xt.asarray(x)).numpy()
    assert np.isfinite(found[0])
    assert found[1] == np.inf
    gradient = xt.grad(lambda x: xt.sum(loss(x)))(xt.asarray(x)).numpy()
    assert not gradient[:, 1].any()
    assert not gradient[2, 0, 2]
    np.testing.assert_allclose(gradient[:, 0].sum(axis=-1), -1, rtol=1e-12)  # each frame is one class or another


@pytest.mark.parametrize("plain", [False, True])
def test_alignments_of_certain_classes(plain: bool) -> None:
    """Frames that are certain of one class each: the only alignment has probability 1, and all others none."""
    x = np.full((5, 1, 4), -np.inf)
    x[range(5), 0, [1, 2, 3, 3, 3]] = 0

    def loss(x: xt.Tensor) -> xt.Tensor:
        return nn.ctc_loss(x, xt.asarray([[1, 2, 3]]), [5], [3], zero_infinity=True)

    assert float(loss(xt.asarray(x))) == 0
    gradient = xt.grad(loss)(xt.asarray(x)).numpy()
    if plain:  # step by step, as where a second derivative is asked for
        gradient = xt.vjp(xt.grad(loss), xt.asarray(x))[0].numpy()
    np.testing.assert_allclose(gradient, np.isfinite(x) / -3, rtol=0, atol=1e-12)


def test_ignored_targets_count_nothing() -> None:
    """Neither in the sum nor in the divisor nor in gradients, whatever stands in their rows."""
    x = normal(4, 3)
    x[1] = NAN
    t = xt.asarray([0, -100, 2, 1])
    keep = [0, 2, 3]
    part = nn.cross_entropy(xt.asarray(x[keep]), t[xt.asarray(keep)])
    assert float(nn.cross_entropy(xt.asarray(x), t)) == pytest.approx(float(part), rel=1e-14)
    assert math.isnan(nn.cross_entropy(xt.asarray(normal(1, 3)), xt.asarray([-100])))
    got = nn.nll_loss(xt.asarray(x), t, reduction="none").numpy()
    assert got[1] == 0
    slopes = xt.grad(lambda x: nn.nll_loss(x, t))(xt.asarray(x)).numpy()
    np.testing.assert_array_equal(slopes[1], 0)


def test_kl_div_of_nothing() -> None:
    """A probability of 0 contributes 0."""
    x = xt.log(xt.asarray([[0.25, 0.75]]))
    assert float(nn.kl_div(x, xt.asarray([[0.0, 1.0]]), reduction="batchmean")) == pytest.approx(-math.log(0.75))
    assert float(nn.kl_div(x, xt.exp(x), reduction="sum")) == 0


@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "huber_loss", "smooth_l1_loss"])
def test_far_from_the_target(name: str) -> None:
    """Infinite distances are infinite losses; equal values lose nothing."""
    loss = getattr(nn, name)(xt.asarray([INF, 1.0, NAN]), xt.asarray([0.0, 1.0, 0.0]), reduction="none")
    np.testing.assert_array_equal(loss.numpy(), [INF, 0.0, NAN])


# ---- what is refused

X, Y = xt.ones((2, 3)), xt.ones((2, 4))
IMAGE, INT = xt.ones((2, 6, 4)), xt.asarray([0, 1])
RNG = xt.random.default_rng(0)
SPELLED = xt.asarray([[1, 2], [2, 1]])
REFUSED: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: nn.hardtanh(X, 2.0, 1.0), ValueError, "hardtanh: max_val must not be below min_val, 2.0, got 1.0"),
    (lambda: nn.leaky_relu(X, "a"), TypeError, "leaky_relu: negative_slope must be a number, got 'a'"),
    (lambda: nn.softplus(X, 0.0), ValueError, "softplus: beta must not be 0"),
    (lambda: nn.gelu(X, "fast"), ValueError, "gelu: approximate must be one of 'none', 'tanh', got 'fast'"),
    (lambda: nn.softmax(X, 2), IndexError, "softmax: axis"),
    (lambda: nn.rms_norm(X, xt.ones(2)), ValueError, r"rms_norm: weight must have shape \(3,\), got \(2,\)"),
    (lambda: nn.layer_norm(X, xt.ones(2)), ValueError, r"layer_norm: weight must have shape \(3,\), got \(2,\)"),
    (lambda: nn.layer_norm(X, None, Y), ValueError, r"layer_norm: bias must have shape \(3,\), got \(2, 4\)"),
    (lambda: nn.layer_norm(X, eps=-1.0), ValueError, "layer_norm: eps must be between 0 and inf, got -1.0"),
    (
        lambda: nn.group_norm(IMAGE, 4),
        ValueError,
        r"num_groups must divide the 6 channels of x, shape \(2, 6, 4\), got 4",
    ),
    (lambda: nn.group_norm(IMAGE, 0), ValueError, "group_norm: num_groups must be positive, got 0"),
    (lambda: nn.group_norm(IMAGE, 2.0), TypeError, "group_norm: num_groups must be an integer, got 2.0"),
    (lambda: nn.batch_norm(IMAGE), ValueError, "batch_norm: running_mean must be given unless training"),
    (lambda: nn.batch_norm(IMAGE, xt.ones(6)), ValueError, "batch_norm: running_var must be given unless training"),
    (
        lambda: nn.batch_norm(IMAGE, xt.ones(4), xt.ones(6)),
        ValueError,
        r"running_mean must have shape \(6,\), got \(4,\)",
    ),
    (
        lambda: nn.batch_norm(xt.ones(3)),
        ValueError,
        r"x must have at least 2 axes, batch and channels, got shape \(3,\)",
    ),
    (
        lambda: nn.batch_norm(xt.ones((1, 3)), training=True),
        ValueError,
        r"more than 1 value per channel, got shape \(1, 3\)",
    ),
    (
        lambda: nn.linear(X, Y),
        ValueError,
        r"linear: weight must have shape \(outputs, 3\) for x \(2, 3\), got \(2, 4\)",
    ),
    (lambda: nn.linear(X, X, xt.ones(3)), ValueError, r"linear: bias must have shape \(2,\), got \(3,\)"),
    (lambda: nn.embedding(X, X), TypeError, "embedding: indices must be integer, got float64"),
    (
        lambda: nn.embedding(INT, xt.ones(3)),
        ValueError,
        r"embedding: weight must have shape \(count, size\), got \(3,\)",
    ),
    (lambda: nn.embedding(INT + 1, X), IndexError, "embedding: indices must hold integers from 0 to 1, got 2"),
    (lambda: nn.embedding(INT - 1, X), IndexError, "embedding: indices must hold integers from 0 to 1, got -1"),
    (lambda: nn.one_hot(INT, 1), IndexError, "one_hot: indices must hold integers from 0 to 0, got 1"),
    (lambda: nn.one_hot(INT[:0]), ValueError, "one_hot: num_classes must be given where there are no indices"),
    (lambda: nn.dropout(X, 1.5, generator=RNG), ValueError, "dropout: p must be between 0 and 1, got 1.5"),
    (lambda: nn.dropout(X, generator=3), TypeError, "dropout: generator must be a Generator, as of xt.random, got int"),
    (
        lambda: nn.scaled_dot_product_attention(X, Y, Y),
        ValueError,
        r"fit together as .*, got \(2, 3\), \(2, 4\), \(2, 4\)",
    ),
    (
        lambda: nn.scaled_dot_product_attention(X, X, X, xt.ones((3, 3))),
        ValueError,
        r"mask must broadcast to .*\(2, 2\), got",
    ),
    (lambda: nn.scaled_dot_product_attention(X, X, X, INT), TypeError, "mask must be real floating, got int64"),
    (lambda: nn.mse_loss(X, Y), ValueError, r"mse_loss: target must have the shape of x, \(2, 3\), got \(2, 4\)"),
    (
        lambda: nn.l1_loss(X, X, reduction="all"),
        ValueError,
        "l1_loss: reduction must be one of 'mean', 'sum', 'none', got",
    ),
    (lambda: nn.huber_loss(X, X, delta=0.0), ValueError, "huber_loss: delta must be positive, got 0.0"),
    (lambda: nn.kl_div(X, X, reduction="max"), ValueError, "kl_div: reduction must be one of .*'batchmean', got 'max'"),
    (lambda: nn.cross_entropy(X, xt.asarray([0, 3])), IndexError, "cross_entropy: target must hold .* 0 to 2, got 3"),
    (
        lambda: nn.cross_entropy(X, xt.asarray([0])),
        ValueError,
        r"target must have shape \(2,\) for x \(2, 3\), got \(1,\)",
    ),
    (lambda: nn.cross_entropy(X, Y), ValueError, r"target must have shape \(2, 3\) for x \(2, 3\), got \(2, 4\)"),
    (lambda: nn.cross_entropy(X, INT, weight=xt.ones(2)), ValueError, r"weight must have shape \(3,\), got \(2,\)"),
    (lambda: nn.cross_entropy(X, INT, label_smoothing=2.0), ValueError, "label_smoothing must be between 0 and 1"),
    (lambda: nn.cross_entropy(X, INT, reduction="batchmean"), ValueError, "reduction must be one of"),
    (lambda: nn.nll_loss(X, X), TypeError, "nll_loss: target must be integer, got float64"),
    (lambda: nn.celu(X, 0), ValueError, "celu: alpha must not be 0, got 0"),
    (lambda: nn.celu(X, -1), ValueError, "celu: alpha must be between 0 and inf, got -1"),
    (lambda: nn.prelu(X, xt.ones(2)), ValueError, r"prelu: weight must have shape \(3,\), got \(2,\)"),
    (lambda: nn.glu(X), ValueError, r"glu: x must have an even length along axis 1, got shape \(2, 3\)"),
    (
        lambda: nn.instance_norm(X),
        ValueError,
        r"instance_norm: x must have more than 1 position per channel, got shape",
    ),
    (lambda: nn.local_response_norm(X, 0), ValueError, "local_response_norm: size must be positive, got 0"),
    (lambda: nn.normalize(INT), TypeError, "normalize: x must be real floating, got int64"),
    (lambda: nn.cosine_similarity(X, INT), TypeError, "cosine_similarity: y must be real floating, got int64"),
    (lambda: nn.interpolate(X, 2), ValueError, r"interpolate: x must have 3, 4 or 5 axes, got shape \(2, 3\)"),
    (lambda: nn.interpolate(IMAGE), ValueError, "interpolate: size must be given, or scale_factor, got neither"),
    (lambda: nn.interpolate(IMAGE, 2, 2), ValueError, "interpolate: size must be given, or scale_factor, got both"),
    (
        lambda: nn.interpolate(IMAGE, 2, mode="cubic"),
        ValueError,
        "interpolate: mode must be one of 'nearest', .*'cubic'",
    ),
    (
        lambda: nn.interpolate(IMAGE, 2, mode="trilinear"),
        ValueError,
        "interpolate: mode must be 'linear' where x has 3 axes, got 'trilinear'",
    ),
    (
        lambda: nn.interpolate(IMAGE, 2, align_corners=True),
        ValueError,
        "interpolate: align_corners must be False for mode 'nearest', got True",
    ),
    (lambda: nn.interpolate(IMAGE, scale_factor=0.1), ValueError, "scale_factor must leave an element along each axis"),
    (
        lambda: nn.interpolate(IMAGE, scale_factor="2"),
        TypeError,
        "interpolate: scale_factor must hold numbers, got '2'",
    ),
    (lambda: nn.pixel_shuffle(IMAGE, 5), ValueError, r"pixel_shuffle: x must have channels, .* divisible by 25, got"),
    (
        lambda: nn.pixel_unshuffle(IMAGE, 5),
        ValueError,
        r"pixel_unshuffle: x must have channels, .* divisible by 5, got",
    ),
    (
        lambda: nn.grid_sample(IMAGE, X),
        ValueError,
        r"grid_sample: grid must have 3 axes",
    ),
    (lambda: nn.affine_grid(X, (2, 3, 4, 5)), ValueError, r"affine_grid: theta must have shape \(batch, 2, 3\) for"),
    (
        lambda: nn.ctc_loss(xt.ones((4, 2, 3)), INT, [4, 4], [1, 1]),
        ValueError,
        r"ctc_loss: targets must have shape \(2, longest\), got shape",
    ),
    (
        lambda: nn.ctc_loss(xt.ones((4, 2, 3)), SPELLED, [4, 5], [1, 1]),
        ValueError,
        r"ctc_loss: input_lengths must be from 1 to 4, got \[4, 5\]",
    ),
    (
        lambda: nn.ctc_loss(xt.ones((4, 2, 3)), SPELLED, [4, 4], [1]),
        ValueError,
        r"ctc_loss: target_lengths must have shape \(2,\), got shape \(1,\)",
    ),
    (
        lambda: nn.ctc_loss(xt.ones((4, 2, 3)), SPELLED + 2, [4, 4], [1, 1]),
        IndexError,
        "ctc_loss: targets must hold integers from 0 to 2, got 3",
    ),
    (
        lambda: nn.ctc_loss(xt.ones((4, 2, 3)), SPELLED, [4, 4], [1, 1], blank=3),
        IndexError,
        "ctc_loss: blank must be from 0 to 2, got 3",
    ),
    (
        lambda: nn.nll_loss(xt.asarray(1.0), INT),
        ValueError,
        r"nll_loss: x must have an axis of classes, got shape \(\)",
    ),
    (
        lambda: nn.binary_cross_entropy_with_logits(X, X, pos_weight=xt.ones(2)),
        ValueError,
        r"pos_weight must broadcast to x, \(2, 3\), got \(2,\)",
    ),
]


@pytest.mark.parametrize(("call", "kind", "text"), REFUSED, ids=[text[:50] for _, _, text in REFUSED])
def test_refused(call: Callable[[], Any], kind: type[Exception], text: str) -> None:
    """Errors name the function, the argument, what it must be and what it is, shapes included."""
    with pytest.raises(kind, match=text):
        call()


# ---- what is public


@pytest.mark.parametrize("file", FILES)
def test_a_file_names_its_functions(file: str) -> None:
    """`__all__` holds the public functions that are documented, in order, and xt.nn has them."""
    module = import_module(f"xtensor.nn.{file}")
    assert list(module.__all__) == sorted(module.__all__)
    for name in module.__all__:
        function = getattr(nn, name)
        assert function is getattr(module, name) and inspect.getdoc(function)
        first = inspect.getdoc(function) or ""
        assert first.startswith("Return"), name


FORMULAS = [
    (norms._squared_distance, lambda x, y, z: xt.square(x - y), 2),
    (norms._over_root, lambda x, y, z: y / xt.sqrt(x + z), 3),
    (norms._distance_times, lambda x, y, z: (x - y) * z, 3),
    (norms._multiply_add, lambda x, y, z: x * y + z, 3),
]


@pytest.mark.parametrize(("formula", "steps", "count"), FORMULAS)
def test_formulas_of_norms(formula: Any, steps: Any, count: int) -> None:
    """The value and the gradients of several steps in one formula are those of the steps, to second order."""
    rng = np.random.default_rng(8)
    given = [xt.asarray(rng.uniform(0.5, 2.0, (4, 5)), copy=True) for _ in range(3)]
    places = tuple(range(count))

    def once(function: Any) -> Any:
        return lambda *args: xt.sum(xt.sin(function(*args)))

    def twice(function: Any) -> Any:
        return lambda *args: sum(xt.sum(g * g) for g in xt.grad(once(function), places)(*args))

    def whole(*args: Any) -> Any:
        return formula(*args[:count])

    np.testing.assert_allclose(np.asarray(whole(*given)), np.asarray(steps(*given)), rtol=1e-14)
    for order in (once, twice):
        mine, right = (xt.grad(order(function), places)(*given) for function in (whole, steps))
        for one, other in zip(mine, right, strict=True):
            np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-11)


def test_biases_by_name() -> None:
    """The bias of a layer may be given by its name, with its gradient."""
    x, w, b = xt.ones((1, 2, 5)), xt.ones((3, 2, 3)), xt.asarray([1.0, 2.0, 3.0])
    for layer, *given in ((xt.nn.conv, x, w), (xt.nn.conv_transpose, xt.ones((1, 3, 5)), w)):
        bias = b[: layer(*given).shape[1]]
        assert bool(xt.all(layer(*given, bias=bias) == layer(*given, bias)))
        slope = xt.grad(lambda bias: xt.sum(layer(*given, bias=bias)))(bias)  # noqa: B023 - called at once
        assert slope.tolist() == [layer(*given).size / bias.shape[0]] * bias.shape[0]
    y = xt.nn.linear(xt.ones((2, 4)), xt.ones((3, 4)), bias=b)
    assert y.tolist() == [[5.0, 6.0, 7.0]] * 2


def test_elements_are_not_deleted() -> None:
    """`del x[0]` says what to do, as NumPy does."""
    with pytest.raises(ValueError, match="delitem: x must keep all its elements"):
        del xt.ones(3)[0]


def test_binary_cross_entropy_of_certain_events() -> None:
    """Logarithms are at least -100, and gradients finite: those of torch.nn.functional.binary_cross_entropy."""
    x, target = xt.asarray([0.0, 1.0, 0.0, 1.0]), xt.asarray([0.0, 1.0, 1.0, 0.0])
    losses = nn.binary_cross_entropy(x, target, reduction="none")
    np.testing.assert_array_equal(np.asarray(losses), [0.0, 0.0, 100.0, 100.0])
    slope = xt.grad(lambda x: nn.binary_cross_entropy(x, target, reduction="sum"))(x)
    np.testing.assert_allclose(np.asarray(slope), [0.0, 0.0, -1e12, 1e12], rtol=1e-7)

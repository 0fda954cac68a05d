"""What is added up of float16 has room for it: the functions of xt.nn beside themselves in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import xtensor as xt
from tests.samples import normal

nn = xt.nn
LARGE = normal(4, 8, 6, 6) * 300 + 100  # whose squares are infinite
LONG = normal(2, 40_000) / 8 + 1  # whose sums of exponentials are
MANY = normal(70_000, 3)  # whose number is, as a float16
CLASSES = np.arange(70_000) % 3
STEP = float(np.finfo(np.float16).smallest_subnormal)

CASES: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "layer_norm": (lambda x: nn.layer_norm(x, axis=(1, 2, 3)), LARGE),
    "rms_norm": (nn.rms_norm, LARGE),
    "group_norm": (lambda x: nn.group_norm(x, 2), LARGE),
    "instance_norm": (nn.instance_norm, LARGE),
    "batch_norm": (lambda x: nn.batch_norm(x, training=True), LARGE),
    "local_response_norm": (lambda x: nn.local_response_norm(x, 3), LARGE),
    "normalize": (nn.normalize, LARGE),
    "cosine_similarity": (lambda x: nn.cosine_similarity(x, x[:, ::-1]), LARGE),
    "vector_norm": (lambda x: xt.linalg.vector_norm(x, axis=(1, 2)), LARGE),
    "vector_norm of all": (lambda x: xt.linalg.vector_norm(x / 20), LARGE),
    "softmax": (lambda x: nn.softmax(x) * 10_000, LONG),
    "log_softmax": (nn.log_softmax, LONG),
    "logsumexp": (lambda x: nn.logsumexp(x, axis=1), LONG),
    "mean": (xt.mean, MANY),
    "mse_loss": (lambda x: nn.mse_loss(x, xt.zeros_like(x)), MANY),
    "kl_div": (lambda x: nn.kl_div(x, xt.ones_like(x), reduction="batchmean"), MANY),
    "nll_loss": (lambda x: nn.nll_loss(x, xt.asarray(CLASSES)), MANY),
    "cross_entropy": (lambda x: nn.cross_entropy(x, xt.asarray(CLASSES)), MANY),
    "cross_entropy of long rows": (lambda x: nn.cross_entropy(x, xt.asarray([1, 2])), LONG),
    "cross_entropy of probabilities": (lambda x: nn.cross_entropy(x, xt.full_like(x, 1 / 3)), MANY),
    "cross_entropy with weights": (
        lambda x: nn.cross_entropy(x, xt.asarray(CLASSES), weight=xt.asarray([1, 2, 3], dtype=x.dtype)),
        MANY,
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("fused", [False, True])
def test_sums_have_room(name: str, fused: bool) -> None:
    """Values and gradients are those of float64, as float16 rounds them."""
    function, given = CASES[name]
    scale = 1000.0 if given is MANY else 1.0  # of a loss, as mixed precision takes it: gradients are small otherwise

    def both(x: Any) -> tuple[Any, Any]:
        y, pull = xt.vjp(function, x)
        return y, pull(xt.asarray(normal(*y.shape, seed=7) * scale, dtype=x.dtype))[0]

    x = given.astype(np.float16)
    wanted = both(xt.asarray(x.astype(np.float64)))
    call = xt.fuse(both) if fused else both
    for _ in range(1 + 3 * fused):
        found = call(xt.asarray(x))
    for mine, right in zip(found, wanted, strict=True):
        assert mine.dtype == np.float16
        most = float(xt.max(xt.abs(right)))
        np.testing.assert_allclose(mine.numpy(), right.numpy(), rtol=0.01, atol=2e-3 * most + STEP)


def test_running_variance() -> None:
    """That of float16 may be beyond it: running statistics are of the dtype that they have."""
    x, mean, var = LARGE.astype(np.float16), xt.zeros(8), xt.ones(8)
    nn.batch_norm(xt.asarray(x), mean, var, training=True, momentum=1.0)
    wide = np.moveaxis(x.astype(float), 1, 0).reshape(8, -1)
    np.testing.assert_allclose(mean.numpy(), wide.mean(1), rtol=0.01)
    np.testing.assert_allclose(var.numpy(), wide.var(1, ddof=1), rtol=0.01)


def test_gradient_of_a_bias() -> None:
    """The sum of 90 000 numbers of float16."""
    x, w, b = np.full((1, 1, 300, 300), 0.5), np.ones((1, 1, 1, 1)), np.zeros(1)
    x, w, b = (xt.asarray(one.astype(np.float16)) for one in (x, w, b))
    found = xt.grad(lambda b: xt.sum(xt.astype(nn.conv(x, w, b), xt.float32)) / 4)(b)
    assert float(found[0]) == float(np.float16(22_500.0))


def test_gelu_of_small_results() -> None:
    x = np.array([-3.0, -3.67, -4.0], dtype=np.float16)
    exact = [float(v) / 2 * math.erfc(-float(v) / math.sqrt(2)) for v in x]
    np.testing.assert_allclose(nn.gelu(xt.asarray(x)).numpy().astype(float), exact, rtol=0.03)


def test_random_numbers_are_below_one() -> None:
    found = xt.random.default_rng(0).random(200_000, dtype=xt.float16)
    assert found.dtype == np.float16
    assert 0.0 <= float(xt.min(found)) < 0.001 < 0.998 < float(xt.max(found)) < 1.0
    assert abs(float(xt.mean(xt.astype(found, xt.float64))) - 0.5) < 0.003


def test_losses_of_halves_beside_other_dtypes() -> None:
    """The result is of the dtype that all operands together have."""
    x, labels = xt.full((4, 5), 0.5, dtype=xt.float16), xt.asarray([0, 1, 2, 3])
    for dtype in (xt.float16, xt.float32, xt.float64):
        other, weight = xt.full((4, 5), 0.2, dtype=dtype), xt.ones(5, dtype=dtype)
        losses = (
            nn.kl_div(x, other),
            nn.kl_div(other, x),
            nn.cross_entropy(x, other),
            nn.cross_entropy(x, labels, weight=weight),
            nn.nll_loss(x, labels, weight=weight),
        )
        assert {loss.dtype for loss in losses} == {dtype}
    assert nn.cross_entropy(x, labels).dtype == nn.nll_loss(x, labels).dtype == xt.float16

"""Gradients compared with those of PyTorch and JAX, on the samples of all chapters that these define alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import xtensor as xt
from tests.samples import Array, Sample, complexes, normal, samples

torch = pytest.importorskip("torch")
jax = pytest.importorskip("jax")
tp = pytest.importorskip("array_api_compat.torch")
jnp = pytest.importorskip("jax.numpy")

SAMPLES = list(samples())


@pytest.fixture(autouse=True)
def double_precision() -> Any:
    """JAX computes in float64 here, and as before elsewhere."""
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


def loss_of(sample: Sample, xp: Any, is_floating: Callable[[Any], bool]) -> Callable[..., Any]:
    """Return the inner product of a sample's results with random cotangents, as a real scalar."""

    def loss(*args: Any) -> Any:
        found = sample.call(xp, *args)
        total = 0.0
        for n, y in enumerate(found if isinstance(found, (tuple, list)) else [found]):
            if is_floating(y):
                is_complex = xp.isdtype(y.dtype, "complex floating")
                weights = xp.asarray((complexes if is_complex else normal)(*y.shape, seed=7 + n))
                product = xp.real(xp.conj(weights) * y) if is_complex else weights * y
                total = total + xp.sum(product)
        return total

    return loss


def ours(sample: Sample) -> list[Array]:
    """Return the gradients that xtensor finds."""
    loss = loss_of(sample, xt, lambda y: y.dtype.kind in "fc")
    found = xt.grad(loss, tuple(range(len(sample.args))))(*[xt.asarray(a.copy()) for a in sample.args])
    return [g.numpy() for g in found]


def by_torch(sample: Sample) -> list[Array]:
    """Return the gradients that PyTorch finds, whose convention for complex numbers is ours."""
    args = [torch.tensor(a, requires_grad=True) for a in sample.args]
    loss = loss_of(sample, tp, lambda y: y.dtype.is_floating_point or y.dtype.is_complex)
    value = loss(*args)
    if not isinstance(value, torch.Tensor) or not value.requires_grad:  # nothing depends on the arguments
        return [np.zeros_like(a) for a in sample.args]
    found = torch.autograd.grad(value, args, allow_unused=True, materialize_grads=True)
    return [g.resolve_conj().numpy() for g in found]


def by_jax(sample: Sample) -> list[Array]:
    """Return the gradients that JAX finds; of a complex argument it returns the conjugate."""
    loss = loss_of(sample, jnp, lambda y: jnp.issubdtype(y.dtype, jnp.inexact))
    found = jax.grad(loss, tuple(range(len(sample.args))))(*[jnp.asarray(a) for a in sample.args])
    return [np.conj(np.asarray(g)) for g in found]


ORACLES = {"torch": by_torch, "jax": by_jax}
CASES = [(sample, oracle) for sample in SAMPLES for oracle in sample.oracles]


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::RuntimeWarning")
@pytest.mark.parametrize(("sample", "oracle"), CASES, ids=[f"{sample}-{oracle}" for sample, oracle in CASES])
def test_gradients(sample: Sample, oracle: str) -> None:
    """They agree to the last digits; where matrices are decomposed, to those that conditioning leaves."""
    rtol = 1e-7 if sample.function.startswith("linalg.") else 1e-10
    for got, wanted in zip(ours(sample), ORACLES[oracle](sample), strict=True):
        scale = np.max(np.abs(wanted), initial=0.0)
        np.testing.assert_allclose(got, wanted, rtol=rtol, atol=rtol * scale)


def test_samples_name_known_oracles() -> None:
    """A misspelt library would compare nothing."""
    assert {oracle for sample in SAMPLES for oracle in sample.oracles} <= set(ORACLES)

"""Gradients compared with those of PyTorch and JAX, on the samples of all chapters.

Every sample is compared with both, except for those that LEFT_OUT names with the reason why.
"""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import pytest

import xtensor as xt
from tests.samples import Array, Sample, complexes, function_by_function, normal, samples

torch = pytest.importorskip("torch")
jax = pytest.importorskip("jax")
tp = pytest.importorskip("array_api_compat.torch")
jnp = pytest.importorskip("jax.numpy")

SAMPLES = list(samples())

NN = "what xt.nn has goes by other names there: test_nn.py and test_conv.py compare most of it with PyTorch's"
SPECIAL = "special functions are in modules of their own there: test_special.py compares with mpmath and SciPy"
NOT_IN_TORCH = """
    cosm1 exp10 exprel* log_expit softplus softmax log_softmax logsumexp* rel_entr* kl_div huber pseudo_huber*
    radian dawsn erfi j0 j1 cosdg sindg tandg cbrt wrightomega gamma loggamma rgamma expi exp1 y0 y1 k0 k0e k1
    k1e spence erfcinv ellipk ellipe cotdg gammasgn beta betaln poch binom multigammaln chdtr chdtrc pdtr
    gammaincinv gammainccinv stdtrit betainc betaincc betaincinv stdtr owens_t expn jv yv iv kv boxcox*
    inv_boxcox*
"""

# What is not compared: for each library, patterns of the samples' names, under the reason. Where a library refuses, it
# raises, because it has no such function or argument or no derivative; where it differs, its gradients are other ones.
LEFT_OUT: dict[tuple[str, str], dict[str, list[str]]] = {
    ("torch", "refuses"): {
        NN: ["nn.*"],
        "torch.special has no function of this name, or it takes an axis": [
            f"special.{name}" for name in NOT_IN_TORCH.split()
        ],
        "its tensors have no method copy, astype, flat_2d or to_device": [
            *("copy", "copy-in-memory-order", "astype-complex-and-real", "flat_2d", "to_device"),
            *("view-parts", "view-of-parts"),
        ],
        "its method view needs a shape or dtype, its method round takes decimals by name alone": [
            *("view", "round-decimals"),
        ],
        "slices with a negative step are refused": ["getitem-negative-step", "ravel", "copy-deep"],
        "full, full_like and arange refuse tensors with a gradient as numbers": ["full*", "arange*"],
        "linspace refuses tensors with axes": ["linspace-arrays"],
        "asarray refuses sequences of tensors of more than one element": ["asarray-of-tensors"],
        "concat and stack refuse a tensor in place of a sequence": [
            "concat-rows-of-a-tensor",
            "stack-rows-of-a-tensor",
        ],
        "diff refuses to prepend what has fewer axes": ["diff-prepend-a-number"],
        "take refuses lists, and indices with two axes": ["take-a-list", "take-of-two-axes"],
        "einsum and meshgrid refuse real and complex tensors together": ["einsum-ij-jk", "meshgrid-ij-complex"],
        "imag refuses real tensors": ["imag", "imag-empty"],
        "sort refuses complex tensors": ["sort-complex"],
        "subtract refuses booleans, also in the derivative of pow": ["subtract-booleans-*", "pow-booleans-second"],
        "var and std have no ddof, and std refuses corrections that are no integers": [
            *("var-ddof", "std-ddof", "std-large-correction"),
        ],
        "the Fourier transform of no rows is refused": ["fft.fft-empty", "fft.irfft-empty"],
        "floor_divide has no derivative": ["floor_divide*", "operators-numbers"],
        "remainder of a number by a tensor has no derivative": ["remainder-number-first"],
        "where has no derivative by a real tensor beside a complex one": ["where-broadcast-complex"],
        "a sum, mean or product of real numbers in a complex dtype has no derivative": [
            *("sum-dtype", "mean-dtype", "prod-dtype", "cumulative_prod-dtype"),
        ],
        "the complete QR decomposition of tall matrices has no derivative": ["linalg.qr-complete-tall*"],
        "unique_all is not there, and the others have no derivative": ["unique_*"],
    },
    ("jax", "refuses"): {
        NN: ["nn.*"],
        SPECIAL: ["special.*"],
        "its arrays have no method flat_2d, copy takes no order, and to_device no names": [
            *("flat_2d", "copy-in-memory-order", "to_device"),
        ],
        "lists as indices are refused": ["getitem-a-list", "take-a-list"],
        "meshgrid refuses arrays without axes": ["meshgrid-three-and-a-number"],
        "permute_dims refuses negative axes": ["permute_dims-negative"],
        "det refuses matrices without elements": ["linalg.det-no-elements"],
        "nextafter has no derivative": ["nextafter*"],
        "the eigenvectors of eig have no derivative": ["linalg.eig-*"],
        "the full SVD of matrices that are not square has no derivative": [
            "linalg.svd-full-*-(4,-2)",
            "linalg.svd-full-*-(2,-4)",
        ],
    },
    ("torch", "differs"): {
        "its trigamma function has nine digits (mpmath's and SciPy's agree)": [
            "special.psi",
            "special.digamma",
        ],
        "asarray of a sequence and linspace take tensors as constants": [
            *("asarray-nested", "linspace", "linspace-open", "linspace-complex", "linspace-one-*"),
        ],
        "an integer in a key is no index array: x[1, :, array] has its axes in another order": [
            "getitem-array-and-integer"
        ],
        "take keeps the axis along which it takes at an index without axes": ["take-of-no-axes"],
        "nextafter of equal numbers has the derivative 0 by both, not 1 by the first": ["nextafter-with-itself"],
        "det of a singular matrix has the derivative 0, not the cofactors": ["linalg.det-of-rank-n---1"],
        "the full SVD gives no gradient to the vectors that complete a basis": [
            *("linalg.svd-full-*-(4,-2)", "linalg.svd-full-*-(2,-4)"),
        ],
        "atan2 of float32 and float64 has a derivative in the precision of float32": ["atan2-float32-*"],
    },
    ("jax", "differs"): {
        "arange takes its arguments as constants": ["arange", "arange-down"],
        "acosh has the opposite derivative where the real part is negative": ["acosh-complex"],
        "the sign of complex numbers is a constant": ["sign-complex*"],
        "unique values are constants": [
            *("unique_all*", "unique_counts", "unique_inverse"),
            *("unique_values", "unique_values-complex", "unique_values-scalar"),
        ],
    },
}


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
    args = [torch.tensor(a.copy(), requires_grad=True) for a in sample.args]
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


def named(patterns: list[str]) -> list[Sample]:
    """Return the samples whose names match one of the patterns."""
    return [sample for sample in SAMPLES if any(fnmatchcase(str(sample), pattern) for pattern in patterns)]


def assert_agreement(sample: Sample, oracle: str) -> None:
    """Check gradients to the last digits; where matrices are decomposed, to those that conditioning leaves."""
    rtol = 1e-7 if sample.function.startswith("linalg.") else 1e-10
    for got, wanted in zip(ours(sample), ORACLES[oracle](sample), strict=True):
        scale = np.max(np.abs(wanted), initial=0.0)
        np.testing.assert_allclose(got, wanted, rtol=rtol, atol=rtol * scale)


def differs(sample: Sample, oracle: str) -> bool:
    """Return whether a library has other gradients of a sample."""
    try:
        assert_agreement(sample, oracle)
    except AssertionError:
        return True
    return False


def refuses(sample: Sample, oracle: str) -> bool:
    """Return whether a library raises for a sample."""
    try:
        ORACLES[oracle](sample)
    except (AttributeError, IndexError, RuntimeError, TypeError, ValueError):
        return True
    return False


def compared(oracle: str) -> list[Sample]:
    """Return the samples that are not left out."""
    left_out = [sample for kind in ("refuses", "differs") for sample in named(sum(LEFT_OUT[oracle, kind].values(), []))]
    return [sample for sample in SAMPLES if sample not in left_out]


CASES = [(sample, oracle) for oracle in ORACLES for sample in compared(oracle)]
REASONS = [(*key, reason) for key, reasons in LEFT_OUT.items() for reason in reasons]
ignore_warnings = pytest.mark.filterwarnings(
    "ignore::UserWarning", "ignore::DeprecationWarning", "ignore::RuntimeWarning"
)


@ignore_warnings
@function_by_function(sample for sample, oracle in CASES if oracle == "torch")
def test_gradients_as_in_torch(sample: Sample) -> None:
    """Whatever is not left out agrees."""
    assert_agreement(sample, "torch")


@ignore_warnings
@function_by_function(sample for sample, oracle in CASES if oracle == "jax")
def test_gradients_as_in_jax(sample: Sample) -> None:
    """Whatever is not left out agrees."""
    assert_agreement(sample, "jax")


@ignore_warnings
@pytest.mark.parametrize(("oracle", "kind", "reason"), REASONS, ids=[f"{oracle}-{why}" for oracle, _, why in REASONS])
def test_reasons_to_leave_out(oracle: str, kind: str, reason: str) -> None:
    """What is left out because a library refuses it makes it raise; what is because gradients differ, differs."""
    holds = refuses if kind == "refuses" else differs
    left_out = named(LEFT_OUT[oracle, kind][reason])
    assert [str(sample) for sample in left_out if not holds(sample, oracle)] == []


def test_what_is_left_out_exists() -> None:
    """Every pattern matches a sample, and no sample is left out twice."""
    for oracle in ORACLES:
        patterns = [p for kind in ("refuses", "differs") for p in sum(LEFT_OUT[oracle, kind].values(), [])]
        assert [p for p in patterns if not named([p])] == []
        assert sum(len(named([p])) for p in patterns) == len(named(patterns))

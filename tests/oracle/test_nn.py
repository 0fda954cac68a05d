"""The functions of xt.nn compared with those of torch.nn.functional: values and gradients, parameter by parameter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import xtensor as xt
from tests.samples import normal, positive

torch = pytest.importorskip("torch")
F = torch.nn.functional
nn = xt.nn

INF, NAN = float("inf"), float("nan")


@dataclass(frozen=True)
class Case:
    """One call on both sides, over the same arrays; gradients go to floating ones."""

    name: str
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    args: tuple[Any, ...]


def grads_of_torch(case: Case, dtype: Any) -> tuple[Any, list[Any]]:
    args = [torch.tensor(np.array(a).astype(dtype) if a.dtype.kind == "f" else a) for a in case.args]
    for a in args:
        a.requires_grad_(a.is_floating_point())
    y = case.theirs(*args)
    y.backward(torch.tensor(normal(*y.shape, seed=7).astype(dtype)))
    found = [a.grad if a.grad is not None else torch.zeros_like(a) for a in args if a.is_floating_point()]
    return y.detach().numpy(), [g.numpy() for g in found]


def grads_of_ours(case: Case, dtype: Any) -> tuple[Any, list[Any]]:
    args = [xt.asarray(a.astype(dtype) if a.dtype.kind == "f" else a, copy=True) for a in case.args]
    places = [n for n, a in enumerate(args) if a.dtype.kind == "f"]

    def call(*given: Any) -> Any:
        every = list(args)
        for place, x in zip(places, given, strict=True):
            every[place] = x
        return case.ours(*every)

    y, pull = xt.vjp(call, *[args[place] for place in places])
    found = pull(xt.asarray(normal(*y.shape, seed=7).astype(dtype)))
    found = found if isinstance(found, (tuple, list)) else (found,)
    return y.numpy(), [g.numpy() for g in found]


def check(case: Case, dtype: Any, rtol: float) -> None:
    wanted, theirs = grads_of_torch(case, dtype)
    got, ours = grads_of_ours(case, dtype)
    assert got.dtype == wanted.dtype and got.shape == wanted.shape
    for one, other in zip([got, *ours], [wanted, *theirs], strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        finite = np.abs(other[np.isfinite(other)])
        np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol * np.max(finite, initial=0.0))


# ---- activations

X = normal(4, 33) * 3
KINKS = np.array([-8.0, -6.0, -3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0, 6.0, 8.0])

ACTIVATIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "relu": (nn.relu, F.relu),
    "relu6": (nn.relu6, F.relu6),
    "leaky_relu": (nn.leaky_relu, F.leaky_relu),
    "leaky_relu slope": (lambda x: nn.leaky_relu(x, 0.3), lambda x: F.leaky_relu(x, 0.3)),
    "elu": (nn.elu, F.elu),
    "elu alpha": (lambda x: nn.elu(x, alpha=2.5), lambda x: F.elu(x, alpha=2.5)),
    "selu": (nn.selu, F.selu),
    "celu": (lambda x: nn.celu(x, 1.5), lambda x: F.celu(x, 1.5)),
    "softsign": (nn.softsign, F.softsign),
    "gelu": (nn.gelu, F.gelu),
    "gelu tanh": (lambda x: nn.gelu(x, approximate="tanh"), lambda x: F.gelu(x, approximate="tanh")),
    "silu": (nn.silu, F.silu),
    "mish": (nn.mish, F.mish),
    "softplus": (lambda x: nn.softplus(x, threshold=20), F.softplus),
    "softplus beta": (lambda x: nn.softplus(x, 2.0, 5.0), lambda x: F.softplus(x, 2.0, 5.0)),
    "sigmoid": (nn.sigmoid, F.sigmoid),
    "log_sigmoid": (nn.log_sigmoid, F.logsigmoid),
    "hardtanh": (nn.hardtanh, F.hardtanh),
    "hardtanh bounds": (lambda x: nn.hardtanh(x, -2.0, 0.5), lambda x: F.hardtanh(x, -2.0, 0.5)),
    # PyTorch's own has 1 / 6 of float32 in its derivative, whatever the dtype.
    "hardsigmoid": (nn.hardsigmoid, lambda x: F.relu6(x + 3) / 6),
    "hardswish": (nn.hardswish, F.hardswish),
    "erf": (nn.erf, torch.erf),
    "softmax": (nn.softmax, lambda x: F.softmax(x, -1)),
    "log_softmax": (nn.log_softmax, lambda x: F.log_softmax(x, -1)),
    "logsumexp": (lambda x: nn.logsumexp(x, axis=-1), lambda x: torch.logsumexp(x, -1)),
}
every_activation = pytest.mark.parametrize("name", ACTIVATIONS)


@every_activation
@pytest.mark.parametrize(("dtype", "rtol"), [(np.float64, 1e-10), (np.float32, 2e-6)])
@pytest.mark.parametrize("lazy", ["auto", "always"])
def test_activations(name: str, dtype: Any, rtol: float, lazy: str) -> None:
    """Values and gradients, at the kinks too."""
    ours, theirs = ACTIVATIONS[name]
    for x in (X, X.T[::-2], KINKS, np.zeros((0, 3)), np.array([1.5])):
        with xt.options(lazy=lazy):
            check(Case(name, ours, theirs, (x,)), dtype, rtol)


EXTREMES = [INF, -INF, NAN, 1e4, -1e4, 1e30, -1e30, 1e300, -1e300, 1e-310, -1e-310, -0.0]


@pytest.mark.parametrize("name", [name for name in ACTIVATIONS if name != "logsumexp"])  # see test_infinite_rows
@pytest.mark.parametrize("value", EXTREMES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("size", [1, 70])
def test_extremes(name: str, value: float, dtype: Any, size: int) -> None:
    """Infinite, huge, tiny and NaN: values are PyTorch's, and gradients where PyTorch's are no NaN.

    Those of one element: of several PyTorch's vector code gives others, such as gelu(inf) = NaN in float32. At NaN
    its gradients depend on the number of elements too, and are not compared.
    """
    ours, theirs = ACTIVATIONS[name]
    rtol = 1e-10 if dtype == np.float64 else 2e-6
    with np.errstate(over="ignore"):
        wanted, slopes = grads_of_torch(Case(name, ours, theirs, (np.full((size, 1), value),)), dtype)
        if "softmax" not in name:
            one, slope = grads_of_torch(Case(name, ours, theirs, (np.full(1, value),)), dtype)
            wanted = np.full_like(wanted, one[0])
            slopes = [slope[0] / normal(1, seed=7) * normal(size, 1, seed=7)]
        got, mine = grads_of_ours(Case(name, ours, theirs, (np.full((size, 1), value),)), dtype)
    np.testing.assert_allclose(got, wanted, rtol=rtol, atol=1e-300)
    sure = ~np.isnan(slopes[0]) & ~np.isnan(wanted)
    np.testing.assert_allclose(mine[0][sure], slopes[0][sure], rtol=rtol, atol=rtol)


# ---- softmax and its kin, norms, layers, losses

X3 = normal(3, 4, 5)
CHANCES = np.array([0.01, 0.2, 0.5, 0.9, 0.99, 0.7, 0.3])
W4, B4 = positive(4), normal(4, seed=1)
IMAGES = normal(3, 6, 4, 2)
W6, B6 = positive(6), normal(6, seed=1)
CLASSES = np.random.default_rng(0).integers(0, 4, (3, 5))
PROBABLE = positive(3, 4, 5) / positive(3, 4, 5).sum(axis=1, keepdims=True)
SOME = np.where(np.arange(15).reshape(3, 5) % 4 == 1, -100, CLASSES)
Q, K, V = normal(2, 3, 5, 4), normal(2, 3, 6, 4, seed=1), normal(2, 3, 6, 7, seed=2)
SEEN = np.random.default_rng(1).integers(0, 2, (5, 6)).astype(bool)
LONG = normal(2, 3, 300, 40), normal(2, 3, 500, 40, seed=1), normal(2, 3, 500, 24, seed=2)  # so long that tiles pay
LONG_SEEN = np.random.default_rng(1).integers(0, 2, (300, 500)).astype(bool)
SEEN[:, 0] = True


def both(name: str, *args: Any, ours: dict[str, Any] | None = None, **keywords: Any) -> Case:
    """Return a case of a function with the same name and keywords on both sides; `ours` differ."""
    mine = keywords if ours is None else ours
    return Case(
        f"{name} {mine}",
        lambda *given: getattr(nn, name)(*given, **mine),
        lambda *given: getattr(F, name)(*given, **keywords),
        args,
    )


def weighted(name: str, x: Any, target: Any, **keywords: Any) -> Case:
    """Return a case of a loss with weights, which have no gradient in PyTorch."""
    return Case(
        f"{name} weighted {keywords}",
        lambda a, b: getattr(nn, name)(a, b, weight=xt.asarray(W4.astype(x.dtype), dtype=a.dtype), **keywords),
        lambda a, b: getattr(F, name)(a, b, weight=torch.tensor(W4).to(a.dtype), **keywords),
        (x, target),
    )


def normed(training: bool, count: int, *, tracked: bool = True) -> Case:
    """Return a case of batch normalisation with the first `count` of weight and bias."""

    def call(norm: Any, array: Callable[[Any, Any], Any], x: Any, *rest: Any) -> Any:
        kept = [array(a, x.dtype) for a in (B6, W6)] if tracked else [None, None]
        return norm(x, *kept, *rest, training=training, momentum=0.3, eps=1e-3)

    return Case(
        f"batch_norm {training=} {count=} {tracked=}",
        lambda *args: call(nn.batch_norm, lambda a, dtype: xt.asarray(a, dtype=dtype, copy=True), *args),
        lambda *args: call(F.batch_norm, lambda a, dtype: torch.tensor(a).to(dtype), *args),
        (IMAGES, W6, B6)[: count + 1],
    )


CASES = [
    *[both(name, X3, ours={"axis": d}, dim=d) for name in ("softmax", "log_softmax") for d in (0, 1, -1)],
    *[
        Case(
            f"logsumexp {axis} {keep}",
            lambda x, axis=axis, keep=keep: nn.logsumexp(x, axis, keepdims=keep),
            lambda x, axis=axis, keep=keep: torch.logsumexp(x, (0, 1, 2) if axis is None else axis, keepdim=keep),
            (X3,),
        )
        for axis in (None, 0, (0, 2), -1)
        for keep in (False, True)
    ],
    Case(
        "softmax of two axes",
        lambda x: nn.softmax(x, (1, 2)),
        lambda x: F.softmax(x.flatten(1), 1).reshape(3, 4, 5),
        (X3,),
    ),
    Case(
        "log_softmax of two axes",
        lambda x: nn.log_softmax(x, (1, 2)),
        lambda x: F.log_softmax(x.flatten(1), 1).reshape(3, 4, 5),
        (X3,),
    ),
    *[
        Case(
            f"layer_norm {shape} {count} {eps}",
            lambda x, *rest, axes=axes, eps=eps: nn.layer_norm(x, *rest, axis=axes, eps=eps),
            lambda x, *rest, shape=shape, eps=eps: F.layer_norm(x, shape, *rest, eps=eps),
            (X3, positive(*shape), normal(*shape, seed=1))[: count + 1],
        )
        for shape, axes in (((5,), -1), ((4, 5), (1, 2)), ((4, 5), (-1, -2)))
        for count in (0, 1, 2)
        for eps in (1e-5, 0.1)
    ],
    *[
        Case(
            f"rms_norm {shape} {count} {eps}",
            lambda x, *rest, axes=axes, eps=eps: nn.rms_norm(x, *rest, axis=axes, eps=eps),
            lambda x, *rest, shape=shape, eps=eps: F.rms_norm(x, shape, *rest, eps=eps),
            (X3, positive(*shape))[: count + 1],
        )
        for shape, axes in (((5,), -1), ((4, 5), (1, 2)))
        for count in (0, 1)
        for eps in (1e-6, 0.1)
    ],
    Case(
        "layer_norm of a middle axis",
        lambda x, w, b: nn.layer_norm(x, w, b, axis=1),
        lambda x, w, b: F.layer_norm(x.movedim(1, -1), (4,), w, b).movedim(-1, 1),
        (X3, W4, B4),
    ),
    *[both("group_norm", IMAGES, num_groups=g, eps=1e-3) for g in (1, 2, 3, 6)],
    *[
        Case(
            f"group_norm {g} channels {axis}",
            lambda x, w, b, g=g, axis=axis: xt.moveaxis(
                nn.group_norm(xt.moveaxis(x, 1, axis), g, w, b, axis=axis), axis, 1
            ),
            lambda x, w, b, g=g: F.group_norm(x, g, w, b),
            (IMAGES, W6, B6),
        )
        for g in (2, 3)
        for axis in (1, 2, -1)
    ],
    both("instance_norm", IMAGES, eps=1e-3),
    both("instance_norm", IMAGES[..., 0]),
    Case(
        "instance_norm weighted",
        nn.instance_norm,
        lambda x, w, b: F.instance_norm(x, weight=w, bias=b),
        (IMAGES, W6, B6),
    ),
    *[both("local_response_norm", IMAGES, size=n, alpha=0.3, beta=0.6, k=1.2) for n in (1, 2, 3, 4, 9)],
    both("normalize", IMAGES),
    both("normalize", IMAGES, ours={"p": 3.0, "axis": -1}, p=3.0, dim=-1),
    both("normalize", np.zeros((2, 3))),
    both("cosine_similarity", X3, normal(3, 4, 1, seed=1)),
    both("cosine_similarity", X3, np.zeros((3, 4, 5)), ours={"axis": -1}, dim=-1),
    both("glu", IMAGES, ours={"axis": 1}, dim=1),
    both("prelu", IMAGES, W6),
    both("prelu", KINKS, B6[:1]),
    *[normed(training, count) for training in (False, True) for count in (0, 1, 2)],
    normed(True, 2, tracked=False),
    Case(
        "batch_norm channels last",
        lambda x, w, b: xt.moveaxis(
            nn.batch_norm(xt.moveaxis(x, 1, -1), None, None, w, b, training=True, axis=-1), -1, 1
        ),
        lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
        (IMAGES, W6, B6),
    ),
    both("linear", normal(2, 3, 4), normal(5, 4), normal(5)),
    both("linear", normal(4), normal(5, 4)),
    both("embedding", CLASSES, normal(4, 3)),
    both("embedding", CLASSES, normal(4, 3), padding_idx=2),
    both("embedding", CLASSES, normal(4, 3), padding_idx=-1),
    both("scaled_dot_product_attention", Q, K, V),
    both("scaled_dot_product_attention", Q, K, V, is_causal=True),
    both("scaled_dot_product_attention", Q, K, V, scale=0.3),
    both("scaled_dot_product_attention", Q[0, 0], K[0, 0], V[0, 0]),
    both("scaled_dot_product_attention", Q, K, V, SEEN),
    both("scaled_dot_product_attention", Q, K, V, normal(2, 1, 5, 6)),
    both("scaled_dot_product_attention", *LONG),
    both("scaled_dot_product_attention", *LONG, is_causal=True),
    both("scaled_dot_product_attention", *LONG, LONG_SEEN),
    both("scaled_dot_product_attention", *LONG, normal(2, 1, 1, 500)),
    *[both("mse_loss", X3, normal(3, 4, 5, seed=1), reduction=r) for r in ("mean", "sum", "none")],
    *[both("l1_loss", X3, normal(3, 4, 5, seed=1), reduction=r) for r in ("mean", "sum", "none")],
    *[
        both(name, X3, normal(3, 4, 5, seed=1), reduction=r, **{p: v})
        for name, p in (("huber_loss", "delta"), ("smooth_l1_loss", "beta"))
        for v in (0.7, 1.0, 5.0)
        for r in ("mean", "sum", "none")
    ],
    both("smooth_l1_loss", X3, normal(3, 4, 5, seed=1), beta=0.0),
    both("l1_loss", X3, X3.copy()),
    both("smooth_l1_loss", KINKS, np.zeros(12), beta=2.0),
    both("huber_loss", KINKS, np.zeros(12), delta=3.0),
    *[
        both(
            "kl_div",
            np.log(PROBABLE),
            np.log(positive(3, 4, 5, seed=3)) if log else positive(3, 4, 5, seed=3),
            reduction=r,
            log_target=log,
        )
        for r in ("mean", "sum", "none", "batchmean")
        for log in (False, True)
    ],
    *[both("binary_cross_entropy", CHANCES, CHANCES[::-1].copy(), reduction=r) for r in ("mean", "sum", "none")],
    *[
        both("binary_cross_entropy_with_logits", X3 * 5, positive(3, 4, 5) / 2, reduction=r)
        for r in ("mean", "sum", "none")
    ],
    Case(
        "binary_cross_entropy_with_logits weighted",
        lambda x, t: nn.binary_cross_entropy_with_logits(
            x, t, weight=xt.asarray(positive(4, 1), dtype=x.dtype), pos_weight=xt.asarray(positive(5), dtype=x.dtype)
        ),
        lambda x, t: F.binary_cross_entropy_with_logits(
            x, t, weight=torch.tensor(positive(4, 1)).to(x.dtype), pos_weight=torch.tensor(positive(5)).to(x.dtype)
        ),
        (X3, positive(3, 4, 5) / 2),
    ),
    *[
        both(name, X3, target, reduction=r, **more)
        for name in ("cross_entropy", "nll_loss")
        for target, more in ((CLASSES, {}), (SOME, {}), (CLASSES, {"ignore_index": 2}))
        for r in ("mean", "sum", "none")
    ],
    *[
        both("cross_entropy", X3, target, reduction=r, label_smoothing=0.2, **more)
        for target, more in ((CLASSES, {}), (SOME, {}), (CLASSES, {"ignore_index": 2}), (PROBABLE, {}))
        for r in ("mean", "sum", "none")
    ],
    *[both("cross_entropy", X3, PROBABLE, reduction=r) for r in ("mean", "sum", "none")],
    *[
        weighted(name, X3, target, reduction=r, **more)
        for name in ("cross_entropy", "nll_loss")
        for target, more in ((CLASSES, {}), (SOME, {}), (CLASSES, {"ignore_index": 2}))
        for r in ("mean", "sum", "none")
    ],
    *[
        weighted("cross_entropy", X3, target, reduction=r, label_smoothing=0.2)
        for target in (CLASSES, SOME, PROBABLE)
        for r in ("mean", "sum", "none")
    ],
    both("cross_entropy", normal(5), np.array(3)),
    both("nll_loss", normal(7, 5), np.arange(7) % 5),
    Case(
        "cross_entropy classes last",
        lambda x, t: nn.cross_entropy(x, t, axis=-1),
        lambda x, t: F.cross_entropy(x.movedim(-1, 1), t),
        (normal(3, 5, 4), CLASSES),
    ),
]


@pytest.mark.filterwarnings("ignore:reduction:UserWarning")  # PyTorch's, of what kl_div means by a mean
@pytest.mark.parametrize("lazy", ["auto", "always"])
@pytest.mark.parametrize(("dtype", "rtol"), [(np.float64, 1e-10), (np.float32, 5e-6)])
@pytest.mark.parametrize("case", CASES, ids=[f"{n} {case.name}".replace(" ", "-") for n, case in enumerate(CASES)])
def test_cases(case: Case, dtype: Any, rtol: float, lazy: str) -> None:
    """Values and gradients, with every parameter."""
    with xt.options(lazy=lazy):
        check(case, dtype, rtol)


@pytest.mark.parametrize("shape", [(8, 6), (3, 6, 4, 2)])
def test_running_statistics(shape: tuple[int, ...]) -> None:
    """They are updated in place as PyTorch updates them, and take no part in gradients."""
    x = normal(*shape)
    ours = [xt.asarray(a, copy=True) for a in (B6, W6)]
    theirs = [torch.tensor(a) for a in (B6, W6)]
    for momentum in (0.1, 0.5, 0.0, 1.0):
        F.batch_norm(torch.tensor(x), *theirs, training=True, momentum=momentum)
        xt.grad(lambda a, m=momentum: xt.sum(nn.batch_norm(a, *ours, training=True, momentum=m)))(xt.asarray(x))
        for one, other in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-12)
            assert one._step is None


def test_infinite_rows() -> None:
    """Rows with infinities: values are PyTorch's; where PyTorch's gradients are NaN, elements share evenly."""
    rows = np.array([[-INF, -INF, -INF], [-INF, 1.0, 2.0], [INF, 1.0, INF], [NAN, 1.0, -INF], [1e300, 1e300, -1e300]])
    x = torch.tensor(rows)
    for ours, theirs in [(nn.softmax, F.softmax), (nn.log_softmax, F.log_softmax), (nn.logsumexp, torch.logsumexp)]:
        np.testing.assert_allclose(ours(xt.asarray(rows), axis=-1).numpy(), theirs(x, -1).numpy(), rtol=1e-14)
    found = xt.grad(lambda a: xt.sum(nn.logsumexp(a, axis=-1)))(xt.asarray(rows)).numpy()
    third, half = 1 / 3, 1 / 2
    wanted = [[third] * 3, [0, *(np.exp([1, 2]) / np.exp([1, 2]).sum())], [half, 0, half], [NAN] * 3, [half, half, 0]]
    np.testing.assert_allclose(found[[0, 1, 2, 4]], np.array(wanted)[[0, 1, 2, 4]], rtol=1e-14)
    assert np.isnan(found[3]).any()


def test_queries_that_look_nowhere() -> None:
    """A row that is masked altogether gives 0, and gradients of 0, as in PyTorch."""
    mask = SEEN.copy()
    mask[2] = False
    check(both("scaled_dot_product_attention", Q, K, V, mask), np.float64, 1e-10)


@pytest.mark.parametrize("causal", [False, True])
def test_errors_of_attention_beside_pytorchs(causal: bool) -> None:
    """float32 values and gradients of 8 heads are off by no more than twice what PyTorch's are."""
    case = both("scaled_dot_product_attention", *(normal(1, 8, 512, 64, seed=n) for n in range(3)), is_causal=causal)
    exact = grads_of_torch(case, np.float64)
    errors = [
        [np.sqrt(np.mean((one - right) ** 2)) for one, right in zip((y, *gs), (exact[0], *exact[1]), strict=True)]
        for y, gs in (grads_of_ours(case, np.float32), grads_of_torch(case, np.float32))
    ]
    for mine, theirs in zip(*errors, strict=True):
        assert mine <= 2 * theirs


@pytest.mark.parametrize("scale", [1.0, 1e3, 1e8])
def test_cross_entropy_far_from_zero(scale: float) -> None:
    """Logits that are large, or far from zero, lose no more digits than PyTorch's loss."""
    x = (normal(64, 50) + scale).astype(np.float32)
    target = np.arange(64) % 50
    right = F.cross_entropy(torch.tensor(x.astype(np.float64)), torch.tensor(target), reduction="none").numpy()
    theirs = F.cross_entropy(torch.tensor(x), torch.tensor(target), reduction="none").numpy()
    ours = nn.cross_entropy(xt.asarray(x), xt.asarray(target), reduction="none").numpy()
    assert np.max(np.abs(ours - right)) <= 2 * np.max(np.abs(theirs - right)) + 1e-6


def test_one_hot() -> None:
    """Values, shape and dtype."""
    for arguments in ((), (6,)):
        got = nn.one_hot(xt.asarray(CLASSES), *arguments).numpy()
        np.testing.assert_array_equal(got, F.one_hot(torch.tensor(CLASSES), *arguments).numpy(), strict=True)

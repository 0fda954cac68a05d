"""Samples of activations, norms, layers, attention and losses; PyTorch's are compared in tests/oracle/test_nn.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.samples import Sample, normal, positive

X = normal(3, 4)
IMAGES = normal(2, 4, 3)
LABELS = np.array([[0, 2, 1], [3, 3, 0]])
IGNORED = np.array([[0, -100, 1], [3, 3, -100]])
CHANCES = positive(2, 4, 3) / positive(2, 4, 3).sum(axis=1, keepdims=True)
MASK = np.array([[True, False, True, True], [False, False, True, False], [False, False, False, False]])


def nn(name: str, *args: Any, note: str = "", given: tuple[Any, ...] = (), **keywords: Any) -> Sample:
    """Return a sample of a function of nn, called with arrays that have gradients, those that have none, keywords."""

    def call(xp: Any, *tensors: Any) -> Any:
        return getattr(xp.nn, name)(*tensors, *map(xp.asarray, given), **keywords)

    return Sample(f"nn.{name}", call, args, note)


def along_axis(axis: int | None) -> Callable[..., Any]:
    """Return a sum of exponentials along an axis that stays."""
    return lambda xp, x: xp.nn.logsumexp(x, axis, keepdims=True)


PLAIN = [
    *("relu", "relu6", "leaky_relu", "elu", "selu", "gelu", "silu", "mish", "softplus", "sigmoid", "log_sigmoid"),
    *(
        "celu",
        "softsign",
        "hardtanh",
        "hardsigmoid",
        "hardswish",
        "erf",
        "softmax",
        "log_softmax",
        "logsumexp",
        "layer_norm",
    ),
]

SAMPLES = [
    *[nn(name, X) for name in PLAIN],
    *[nn(name, np.array(0.7), note="0-d") for name in PLAIN if "soft" not in name and name != "layer_norm"],
    *[nn(name, normal(0, 3), note="empty") for name in PLAIN],
    nn("softplus", np.array(0.7), note="0-d"),
    # where a composition's own gradient would be another one
    nn("sigmoid", np.array([0.0, 2.0]), note="at 0"),
    nn("softplus", np.array([0.0, 2.0]), note="at 0"),
    nn("log_sigmoid", np.array([0.0, 2.0]), note="at 0"),
    nn("gelu", np.array([0.0, 2.0]), note="at 0"),
    nn("mish", np.array([0.0, 2.0]), note="at 0"),
    nn("gelu", X, note="tanh", approximate="tanh"),
    nn("elu", X, note="alpha", alpha=2.0),
    nn("leaky_relu", X, note="slope", negative_slope=-0.3),
    nn("hardtanh", X, note="bounds", min_val=-0.3, max_val=0.7),
    nn("softplus", X, note="beta and threshold", beta=2.0, threshold=1.0),
    nn("celu", X, note="alpha", alpha=0.7),
    nn("prelu", IMAGES, normal(4)),
    nn("prelu", X, normal(1), note="one weight"),
    nn("glu", IMAGES, axis=1),
    nn("softmax", IMAGES, note="axis", axis=1),
    nn("softmax", IMAGES, note="axes", axis=(0, 2)),
    nn("log_softmax", IMAGES, note="axes", axis=(0, 2)),
    nn("logsumexp", IMAGES, note="axes", axis=(0, 2)),
    Sample("nn.logsumexp", along_axis(1), (IMAGES,), "keepdims"),
    nn("rms_norm", X, positive(4), note="scaled"),
    nn("rms_norm", IMAGES, positive(4, 3), note="axes", axis=(1, 2), eps=0.1),
    nn("layer_norm", X, positive(4), normal(4), note="scaled"),
    nn("layer_norm", IMAGES, positive(4, 3), note="axes", axis=(1, 2), eps=0.1),
    nn("layer_norm", IMAGES, positive(4), normal(4), note="middle axis", axis=1),
    Sample("nn.group_norm", lambda xp, x, w, b: xp.nn.group_norm(x, 2, w, b), (IMAGES, positive(4), normal(4))),
    Sample("nn.group_norm", lambda xp, x: xp.nn.group_norm(x, 3, axis=-1), (IMAGES,), "channels last"),
    nn("instance_norm", IMAGES, positive(4), normal(4)),
    nn("instance_norm", normal(2, 3, 4), note="channels last", axis=-1),
    nn("local_response_norm", IMAGES, size=3, alpha=0.3, k=1.2),
    nn("normalize", IMAGES),
    nn("normalize", X, note="p", p=3.0, axis=-1),
    nn("cosine_similarity", IMAGES, normal(2, 4, 1, seed=1)),
    Sample(
        "nn.batch_norm",
        lambda xp, x, w, b: xp.nn.batch_norm(x, None, None, w, b, training=True),
        (IMAGES, positive(4), normal(4)),
        "training",
    ),
    nn("batch_norm", IMAGES, normal(4), positive(4), positive(4, seed=1), normal(4, seed=1), note="inference"),
    nn("linear", normal(2, 3, 4), normal(5, 4), normal(5)),
    nn("linear", normal(4), normal(5, 4), note="vector"),
    Sample("nn.embedding", lambda xp, w: xp.nn.embedding(xp.asarray(LABELS), w), (normal(4, 2),)),
    Sample("nn.dropout", lambda xp, x: xp.nn.dropout(x, 0.4, generator=np.random.default_rng(0)), (X,)),
    Sample(
        "nn.dropout",
        lambda xp, x: xp.nn.dropout(x, 0.4, generator=np.random.default_rng(0), together=2),
        (IMAGES,),
        "channels",
    ),
    nn("scaled_dot_product_attention", normal(2, 3, 4), normal(2, 4, 4, seed=1), normal(2, 4, 5)),
    nn("scaled_dot_product_attention", X, normal(4, 4), normal(4, 5), note="mask", given=(MASK,)),
    nn("scaled_dot_product_attention", X, normal(4, 4), normal(4, 5), normal(3, 4, seed=2), note="bias"),
    nn("scaled_dot_product_attention", X, normal(4, 4), normal(4, 5), note="causal", is_causal=True, scale=0.4),
    nn("mse_loss", X, normal(3, 4, seed=1)),
    nn("mse_loss", X, X.copy(), note="at 0", reduction="none"),
    nn("l1_loss", X, normal(3, 4, seed=1), reduction="sum"),
    nn("huber_loss", 2 * X, normal(3, 4, seed=1), delta=0.7),
    nn("huber_loss", X, X.copy(), note="at 0", reduction="none"),
    nn("smooth_l1_loss", 2 * X, normal(3, 4, seed=1), beta=0.7),
    nn("kl_div", X, positive(3, 4), reduction="batchmean"),
    nn("kl_div", X, normal(3, 4, seed=1), note="logarithms", log_target=True),
    nn("binary_cross_entropy", positive(3, 4) / 4, positive(3, 4)),
    nn("binary_cross_entropy_with_logits", X, positive(3, 4)),
    nn(
        "binary_cross_entropy_with_logits",
        X,
        positive(3, 4),
        note="weights",
        weight=positive(4),
        pos_weight=positive(4),
    ),
    nn("cross_entropy", IMAGES, given=(LABELS,)),
    nn("cross_entropy", IMAGES, given=(IGNORED,), note="ignored", reduction="none"),
    nn("cross_entropy", IMAGES, given=(LABELS,), note="smooth", label_smoothing=0.2, weight=positive(4)),
    nn("cross_entropy", IMAGES, CHANCES, note="probabilities", label_smoothing=0.2),
    nn("cross_entropy", IMAGES, given=(np.array([[0] * 4, [2] * 4]),), note="axis", axis=-1, reduction="sum"),
    nn("nll_loss", IMAGES, given=(LABELS,)),
    nn("nll_loss", IMAGES, given=(IGNORED,), note="weights", weight=positive(4)),
    nn("ctc_loss", normal(4, 2, 4) - 2, given=(np.array([[1, 1], [3, 2]]), np.array([4, 3]), np.array([2, 1]))),
]

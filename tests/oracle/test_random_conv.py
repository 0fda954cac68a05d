"""Convolutions of random kinds, and their gradients, against PyTorch in float64, in every engine.

Their work lies below and above what code is compiled for alike: with engine="llvm" all of it is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import xtensor as xt

torch: Any = pytest.importorskip("torch")

Array = Any

ENGINES = ("auto", "llvm", "interpret", "direct")
COUNT = 100


def configuration(seed: int) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]:
    """Return the shapes of an input and of weights, and what else a convolution is told."""
    rng = np.random.default_rng(seed)
    axes = int(rng.choice([1, 2, 2, 2, 3]))
    groups = int(rng.choice([1, 1, 1, 2, 3, 8]))
    channels, outputs = int(rng.integers(1, 7)), int(rng.integers(1, 20))
    if rng.random() < 0.2:
        groups, channels, outputs = int(rng.integers(2, 20)), 1, 1
    window = [int(n) for n in (rng.integers(1, 6, axes) if rng.random() < 0.6 else [3] * axes)]
    stride, dilation = ([int(n) for n in rng.integers(1, 1 + most, axes)] for most in (2 + (seed % 3 == 0), 2))
    padding = [int(rng.integers(0, 1 + (k - 1) * d)) for k, d in zip(window, dilation, strict=True)]
    lengths = [int(rng.integers(1 + (k - 1) * d, 24)) for k, d in zip(window, dilation, strict=True)]
    x = (int(rng.integers(1, 4)), groups * channels, *lengths)
    told = {"stride": tuple(stride), "padding": tuple(padding), "dilation": tuple(dilation), "groups": groups}
    return x, (groups * outputs, channels, *window), told


def theirs(x: Array, w: Array, bias: Array, told: dict[str, Any]) -> tuple[Array, list[Array], Array]:
    """Return PyTorch's outputs, gradients of all three, and the cotangent these are for."""
    given = [torch.tensor(one, requires_grad=True) for one in (x, w, bias)]
    y = getattr(torch.nn.functional, f"conv{x.ndim - 2}d")(*given, **told)
    g = np.random.default_rng(1).normal(size=tuple(y.shape))
    y.backward(torch.tensor(g))
    return y.detach().numpy(), [one.grad.numpy() for one in given], g


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", range(COUNT))
def test_as_pytorch(seed: int, engine: Any) -> None:
    """Both layouts, outputs and all gradients; float32 within rounding of the same."""
    of_x, of_w, told = configuration(seed)
    rng = np.random.default_rng(seed)
    x, w, bias = rng.normal(size=of_x), rng.normal(size=of_w), rng.normal(size=of_w[:1])
    wanted, gradients, g = theirs(x, w, bias, told)
    last = seed % 2 == 1
    places = "DHW"[5 - x.ndim :]
    layout = f"N{places}C" if last else f"NC{places}"

    def lying(a: Array) -> Array:
        return np.ascontiguousarray(np.moveaxis(a, 1, -1)) if last else a

    for dtype, bound in (("float64", 1e-12), ("float32", 1e-4)):
        given = [xt.asarray(a.astype(dtype), copy=True) for a in (lying(x), w, bias)]
        with xt.options(engine=engine):
            y, back = xt.vjp(lambda x, w, b: xt.nn.conv(x, w, b, layout=layout, **told), *given)
            found = [y.numpy(), *(one.numpy() for one in back(xt.asarray(lying(g).astype(dtype), copy=True)))]
        for one, other in zip(found, [lying(wanted), lying(gradients[0]), *gradients[1:]], strict=True):
            scale = max(1.0, float(abs(other).max()))
            np.testing.assert_allclose(one, other, rtol=0, atol=bound * scale, err_msg=f"{dtype}, {told}, {layout}")

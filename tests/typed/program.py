"""Typical programs, checked by mypy and pyright in their strict modes and run: see tests/test_typing.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

import xtensor as xt
import xtensor.numpy as xnp
from xtensor import nn, special


class Layer(NamedTuple):
    """A layer of a network."""

    weight: xt.Tensor
    bias: xt.Tensor


def created() -> list[xt.Tensor]:
    """Return tensors made in several ways."""
    x = xt.asarray([[1.0, 2.0], [3.0, 4.0]], dtype=xt.float32, device="cpu")
    n = np.arange(6.0).reshape(2, 3)
    return [
        x,
        xt.asarray(n, copy=True),
        xt.asarray(1),
        xt.zeros((2, 3)),
        xt.ones(3, dtype=xt.int64),
        xt.full((2,), 7.5),
        xt.empty_like(x),
        xt.zeros_like(x, dtype=xt.float64),
        xt.arange(10),
        xt.linspace(0.0, 1.0, 5),
        xt.eye(3),
        *xt.meshgrid(xt.arange(2), xt.arange(3), indexing="ij"),
        xt.from_dlpack(n),
        xt.random.default_rng(0).normal(size=(3, 2)),
    ]


def standardised(x: xt.Tensor, axis: int = 0) -> xt.Tensor:
    """Return values less their mean, over their deviation."""
    centred = x - xt.mean(x, axis=axis, keepdims=True)
    return centred / xt.std(x, axis=axis, keepdims=True, correction=1.0)


def arithmetic(x: xt.Tensor, y: xt.Tensor) -> xt.Tensor:
    """Use every operator, with numbers on both sides."""
    z = 2 * x + y / 3.0 - 1
    z += x
    z *= 0.5
    z **= 2
    z = -z @ xt.matrix_transpose(y) if z.ndim == 2 else abs(z)
    mask: xt.Tensor = (z > 0) & ~(z >= 10) | (z == 5) ^ (z != 6)
    z[mask] = 0.0
    z[0, ...] = z[-1]
    z[1:, ::2] = 1
    z[..., None][0] = 3
    whole = xt.arange(5) // 2 % 2 << 1
    return xt.where(mask, z, z.T.mT) + xt.sum(whole)


def conversions(x: xt.Tensor) -> tuple[float, int, bool, complex, list[float]]:
    """Return Python's values, and use attributes."""
    shape: tuple[int, ...] = x.shape
    size: int = x.size * len(shape) + x.ndim + x.itemsize + x.nbytes
    native: np.ndarray = x.numpy()
    again = np.asarray(x)
    total = float(xt.sum(x)) + native.size + again.size
    for row in x:
        total += float(row[0])
    text: str = f"{x.dtype} {x.device} {x[0, 0]:.3f}"
    return total, int(x[0, 0]) + size, bool(xt.all(x > 0)), complex(x[0, 0]), [float(len(text)), *map(float, x[0])]


def manipulated(x: xt.Tensor) -> xt.Tensor:
    """Move, join and cut."""
    parts = xt.unstack(xt.stack([x, x], axis=0))
    joined = xt.concat(parts, axis=-1)
    moved = xt.permute_dims(xt.expand_dims(joined, axis=0), (2, 0, 1))
    flat = xt.reshape(xt.flip(xt.roll(moved, 1, axis=0)), (-1,))
    values, counts = xt.unique_counts(xt.round(flat))
    order = xt.argsort(values, descending=True)
    result = xt.unique_all(flat)
    return xt.take(values, order, axis=0) + xt.astype(counts, xt.float64) + xt.sum(result.values)


def linear(a: xt.Tensor, b: xt.Tensor) -> xt.Tensor:
    """Solve, decompose and transform."""
    solution = xt.linalg.solve(a, b)
    u, s, vh = xt.linalg.svd(a, full_matrices=False)
    decomposed = xt.linalg.eigh(a + a.T)
    spectrum = xt.fft.fft(xt.fft.rfft(solution[:, 0]))
    rest = u * s @ vh - a
    return xt.linalg.vector_norm(rest) + xt.abs(spectrum[0]) + xt.max(decomposed.eigenvalues) + xt.einsum("ij->", rest)


def loss(layers: Sequence[Layer], x: xt.Tensor, labels: xt.Tensor) -> xt.Tensor:
    """Return the loss of a network."""
    for weight, bias in layers[:-1]:
        x = nn.relu(nn.linear(x, weight, bias))
    weight, bias = layers[-1]
    return nn.cross_entropy(nn.linear(x, weight, bias), labels, label_smoothing=0.1)


def trained(steps: int = 3) -> float:
    """Descend, with a gradient of nested parameters, and on the tape."""
    generator = xt.random.default_rng(0)
    x, labels = generator.normal(size=(8, 4)), generator.integers(0, 3, size=8)
    layers = [Layer(generator.normal(size=(5, 4)), xt.zeros(5)), Layer(generator.normal(size=(3, 5)), xt.zeros(3))]
    value = xt.asarray(0.0)
    for _ in range(steps):
        value, slopes = xt.value_and_grad(loss)(layers, x, labels)
        for layer, slope in zip(layers, slopes, strict=True):
            layer.weight[...] = layer.weight - 0.1 * slope.weight
    w = xt.ones(3, dtype=xt.float64)
    w.requires_grad = True
    xt.sum(special.gammaln(w) * xt.exp(w)).backward()
    assert w.grad is not None
    with xt.no_grad():
        w -= 0.1 * w.grad
    hessian: xt.Tensor = xt.hessian(lambda v: xt.sum(v**3))(w.detach())
    first, second = xt.grad(lambda v, u: xt.sum(v * u), (0, 1))(w.detach(), xt.ones(3))
    hessian += first + second
    outputs, pull = xt.vjp(cubes, w.detach())
    (slope,) = pull(xt.ones_like(outputs))
    _, change = xt.jvp(cubes, (w.detach(),), (xt.ones(3),))
    return float(value) + float(xt.sum(hessian)) + float(slope[0]) + float(change)


def cubes(v: xt.Tensor) -> xt.Tensor:
    """Return a sum of cubes."""
    return xt.sum(v**3)


@dataclass
class Statistics:
    """What is known of data, by methods and under NumPy's names."""

    mean: xt.Tensor
    spread: xt.Tensor
    middle: xt.Tensor

    @classmethod
    def of(cls, x: xt.Tensor) -> Statistics:
        """Return the statistics of columns."""
        spread: xt.Tensor = xnp.std(x, axis=0, ddof=1)
        return cls(x.mean(axis=0), spread + x.sum(axis=0).max(), xnp.median(x, axis=0))

    def scaled(self, factor: float) -> Statistics:
        """Return them in another unit."""
        return Statistics(factor * self.mean, abs(factor) * self.spread, self.middle.astype(xt.float32) * factor)


def convolved(generator: xt.random.Generator) -> xt.Tensor:
    """Convolve and pool images."""
    images = generator.uniform(size=(2, 3, 8, 8), dtype=xt.float32)
    weight = generator.normal(size=(4, 3, 3, 3), dtype=xt.float32)
    features = nn.gelu(nn.conv(images, weight, padding=1, stride=2))
    return nn.softmax(xt.mean(nn.max_pool(features, 2), axis=(2, 3)), axis=-1)


@xt.fuse
def heat(u: xt.Tensor, rate: float = 0.25) -> None:
    """Make a step in place."""
    u[1:-1] += rate * (u[:-2] - 2.0 * u[1:-1] + u[2:])


def settings() -> str:
    """Use options, explanations and the namespace's inspection."""
    with xt.options(lazy="always", engine="interpret"):
        x = xt.named(xt.ones(10), "x")
        text = str(xt.explain(x + 1.0))
    info = xt.__array_namespace_info__()
    xp = x.__array_namespace__()
    kinds: bool = xt.isdtype(xt.float32, "real floating") and xt.can_cast(xt.int8, xt.int16)
    limits = xt.finfo(xt.float32).eps + xt.iinfo(xt.int8).max
    return f"{text}{info.default_device()}{info.dtypes()}{xp.__name__}{kinds}{limits}{xt.memory.stats()}"


def run() -> None:
    """Call everything."""
    x = xt.asarray([[1.0, 2.0], [3.0, 4.0]])
    assert len(created()) == 15
    assert standardised(x).shape == x.shape
    assert arithmetic(x, x).shape == (2, 2)
    assert conversions(x)[2]
    assert manipulated(x).ndim == 1
    assert linear(x, x).shape == ()
    assert trained() > 0
    assert Statistics.of(x).scaled(2.0).mean.shape == (2,)
    assert convolved(xt.random.default_rng(0)).shape == (2, 4)
    u = xt.zeros(11)
    u[5] = 1.0
    heat(u)
    heat(u, rate=0.5)
    assert isinstance(heat.why(u), str)
    assert settings()

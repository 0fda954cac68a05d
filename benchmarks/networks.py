"""Training steps of small networks (loss, gradients, and plain descent), beside PyTorch: our time, plain and under
`xt.fuse`, and how many times PyTorch's it is. Both libraries run the same function of the same parameters; the losses
of the first step are compared before anything is timed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

import xtensor as xt

from .measure import print_table, repeated, take_turns, warmed
from .progress import progress

PAUSE = 0.4  # seconds before our calls are timed, in which PyTorch's threads stop to look for work
RATE, TOLERANCE = 1e-3, 1e-3

# Functions of one name and meaning in both libraries.
SAME = ("relu", "gelu", "silu", "sigmoid", "linear", "cross_entropy", "mse_loss", "embedding")

Params = list[Any]
Loss = Callable[..., Any]  # of functions, parameters and data


class Network(NamedTuple):
    """Parameters and data, NumPy's, and the loss as a function of a library's functions, these parameters and data."""

    parameters: Params
    data: Sequence[Any]
    loss: Loss


# ---- functions by the names that networks call them


def ours() -> Any:
    """Return our functions."""
    nn = xt.nn
    return SimpleNamespace(
        **{name: getattr(nn, name) for name in SAME},
        conv=nn.conv,
        batch_norm=lambda x, w, b: nn.batch_norm(x, None, None, w, b, training=True),
        group_norm=nn.group_norm,
        layer_norm=nn.layer_norm,
        max_pool=nn.max_pool,
        twice=lambda x: nn.interpolate(x, scale_factor=2, mode="bilinear"),
        attention=partial(nn.scaled_dot_product_attention, is_causal=True),
        binary=nn.binary_cross_entropy_with_logits,
        tanh=xt.tanh,
        exp=xt.exp,
        sum=xt.sum,
        mean=lambda x, axis: xt.mean(x, axis=axis),
        concat=lambda parts, axis: xt.concat(parts, axis=axis),
        stack=lambda parts, axis: xt.stack(parts, axis=axis),
        reshape=xt.reshape,
        permute=xt.permute_dims,
        zeros=lambda shape: xt.zeros(shape, dtype=xt.float32),
    )


def theirs() -> Any:
    """Return PyTorch's functions."""
    torch, functional = import_module("torch"), import_module("torch.nn.functional")
    return SimpleNamespace(
        **{name: getattr(functional, name) for name in SAME},
        conv=functional.conv2d,
        batch_norm=lambda x, w, b: functional.batch_norm(x, None, None, w, b, training=True),
        group_norm=functional.group_norm,
        layer_norm=lambda x, w, b: functional.layer_norm(x, w.shape, w, b),
        max_pool=functional.max_pool2d,
        twice=lambda x: functional.interpolate(x, scale_factor=2, mode="bilinear"),
        attention=partial(functional.scaled_dot_product_attention, is_causal=True),
        binary=functional.binary_cross_entropy_with_logits,
        tanh=torch.tanh,
        exp=torch.exp,
        sum=torch.sum,
        mean=torch.mean,
        concat=torch.cat,
        stack=torch.stack,
        reshape=torch.reshape,
        permute=torch.permute,
        zeros=torch.zeros,
    )


# ---- parameters


def weights(*shape: int, scale: float | None = None) -> Any:
    """Return random weights, which keep the variance unless a scale is given."""
    rng = np.random.default_rng(sum(shape))
    own = scale or 1 / np.sqrt(np.prod(shape[1:]))
    return (own * rng.normal(size=shape)).astype(np.float32)


def one(count: int) -> Any:
    return np.ones(count, np.float32)


def zero(count: int) -> Any:
    return np.zeros(count, np.float32)


def dense(outputs: int, inputs: int, *window: int) -> Params:
    """Return weights and biases."""
    return [weights(outputs, inputs, *window), zero(outputs)]


def normal(outputs: int, inputs: int, *window: int) -> Params:
    """Return the weights of a convolution, and those and the biases of the norm after it."""
    return [weights(outputs, inputs, *window), one(outputs), zero(outputs)]


def classes(count: int, *shape: int) -> Any:
    return np.random.default_rng(0).integers(0, count, shape)


# ---- networks


def perceptron() -> Network:
    """Three dense layers: 512 rows of 64."""

    def loss(f: Any, p: Params, x: Any, y: Any) -> Any:
        for n in (0, 2):
            x = f.relu(f.linear(x, p[n], p[n + 1]))
        return f.cross_entropy(f.linear(x, p[4], p[5]), y)

    p = [*dense(256, 64), *dense(256, 256), *dense(10, 256)]
    return Network(p, [weights(512, 64, scale=1.0), classes(10, 512)], loss)


def autoencoder() -> Network:
    """A variational autoencoder of digits (Kingma and Welling, 2013): 128 pictures of 784."""

    def loss(f: Any, p: Params, x: Any, noise: Any) -> Any:
        inner = f.relu(f.linear(x, p[0], p[1]))
        mean, spread = f.linear(inner, p[2], p[3]), f.linear(inner, p[4], p[5])
        code = mean + f.exp(0.5 * spread) * noise
        made = f.linear(f.relu(f.linear(code, p[6], p[7])), p[8], p[9])
        return f.binary(made, x) - 0.5 * f.sum(1 + spread - mean**2 - f.exp(spread)) / (128 * 784)

    p = [*dense(400, 784), *dense(20, 400), *dense(20, 400), *dense(400, 20), *dense(784, 400)]
    return Network(p, [np.abs(weights(128, 784, scale=0.3)).clip(0, 1), weights(128, 20, scale=1.0)], loss)


def recurrent() -> Network:
    """An LSTM over 60 characters, 32 texts, 128 wide, its steps a loop of Python."""
    wide, steps, batch, letters = 128, 60, 32, 64

    def loss(f: Any, p: Params, text: Any, y: Any) -> Any:
        given = f.linear(f.embedding(text, p[0]), p[1], p[2])
        h = c = f.zeros((batch, wide))
        found = []
        for n in range(steps):
            z = given[:, n] + f.linear(h, p[3])
            keep, let, out = [f.sigmoid(z[:, k * wide : (k + 1) * wide]) for k in range(3)]
            c = let * c + keep * f.tanh(z[:, 3 * wide :])
            h = out * f.tanh(c)
            found.append(h)
        logits = f.linear(f.stack(found, 1), p[4], p[5])
        return f.cross_entropy(f.reshape(logits, (batch * steps, letters)), f.reshape(y, (batch * steps,)))

    p = [weights(letters, wide, scale=0.1), *dense(4 * wide, wide), weights(4 * wide, wide), *dense(letters, wide)]
    return Network(p, [classes(letters, batch, steps), classes(letters, batch, steps)], loss)


def residual() -> Network:
    """A residual network (He et al., 2016) of 13 convolutions with batch norms: 64 pictures of 32 x 32."""
    p, plan, channels = normal(16, 3, 3, 3), [], 16
    for wide, stride in ((16, 1), (16, 1), (32, 2), (32, 1), (64, 2), (64, 1)):
        block = [*normal(wide, channels, 3, 3), *normal(wide, wide, 3, 3)]
        block += normal(wide, channels, 1, 1) if wide != channels else []
        plan.append((stride, len(block)))
        p, channels = [*p, *block], wide

    def loss(f: Any, p: Params, x: Any, y: Any) -> Any:
        x, at = f.relu(f.batch_norm(f.conv(x, p[0], padding=1), p[1], p[2])), 3
        for stride, count in plan:
            w, at = p[at : at + count], at + count
            inner = f.relu(f.batch_norm(f.conv(x, w[0], stride=stride, padding=1), w[1], w[2]))
            inner = f.batch_norm(f.conv(inner, w[3], padding=1), w[4], w[5])
            x = f.relu(inner + (f.batch_norm(f.conv(x, w[6], stride=stride), w[7], w[8]) if count > 6 else x))
        return f.cross_entropy(f.linear(f.mean(x, (2, 3)), p[at], p[at + 1]), y)

    return Network([*p, *dense(10, 64)], [weights(64, 3, 32, 32, scale=1.0), classes(10, 64)], loss)


def mobile() -> Network:
    """Inverted residuals with depthwise windows (Sandler et al., 2018): 16 pictures of 96 x 96."""
    p, plan, channels = normal(16, 3, 3, 3), [], 16
    for wide, stride in ((24, 2), (24, 1), (40, 2), (40, 1)):
        inner = 4 * channels
        p = [*p, *normal(inner, channels, 1, 1), *normal(inner, 1, 3, 3), *normal(wide, inner, 1, 1)]
        plan.append((stride, inner, wide == channels))
        channels = wide

    def loss(f: Any, p: Params, x: Any, y: Any) -> Any:
        x, at = f.silu(f.batch_norm(f.conv(x, p[0], stride=2, padding=1), p[1], p[2])), 3
        for stride, groups, is_same in plan:
            w, at = p[at : at + 9], at + 9
            inner = f.silu(f.batch_norm(f.conv(x, w[0]), w[1], w[2]))
            inner = f.silu(f.batch_norm(f.conv(inner, w[3], stride=stride, padding=1, groups=groups), w[4], w[5]))
            inner = f.batch_norm(f.conv(inner, w[6]), w[7], w[8])
            x = x + inner if is_same else inner
        return f.cross_entropy(f.linear(f.mean(x, (2, 3)), p[at], p[at + 1]), y)

    return Network([*p, *dense(10, channels)], [weights(16, 3, 96, 96, scale=1.0), classes(10, 16)], loss)


def diffusion() -> Network:
    """A U-Net of residual blocks with group norms, as diffusion models have: 8 pictures of 64 x 64."""
    wide = 32
    plan = [(1, 1), (1, 2), (2, 2), (2, 2), (4, 1), (2, 1)]
    blocks = []
    for given, made in plan:
        a, b = given * wide, made * wide
        block = [one(a), zero(a), *dense(b, a, 3, 3), one(b), zero(b), *dense(b, b, 3, 3)]
        blocks.append(block + (dense(b, a, 1, 1) if a != b else []))

    def resnet(f: Any, x: Any, w: Params) -> Any:
        inner = f.conv(f.silu(f.group_norm(x, 8, w[0], w[1])), w[2], w[3], padding=1)
        inner = f.conv(f.silu(f.group_norm(inner, 8, w[4], w[5])), w[6], w[7], padding=1)
        return inner + (f.conv(x, w[8], w[9]) if len(w) > 8 else x)

    def loss(f: Any, p: Params, x: Any, y: Any) -> Any:
        at, own = 6, []
        for block in blocks:
            own.append(p[at : at + len(block)])
            at += len(block)
        first = resnet(f, f.conv(x, p[0], p[1], padding=1), own[0])
        second = resnet(f, f.max_pool(first, 2), own[1])
        middle = resnet(f, resnet(f, f.max_pool(second, 2), own[2]), own[3])
        up = resnet(f, f.concat([f.twice(middle), second], 1), own[4])
        up = resnet(f, f.concat([f.twice(up), first], 1), own[5])
        return f.mse_loss(f.conv(f.silu(f.group_norm(up, 8, p[2], p[3])), p[4], p[5], padding=1), y)

    p = [*dense(wide, 3, 3, 3), one(wide), zero(wide), *dense(3, wide, 3, 3)]
    images = [weights(8, 3, 64, 64, scale=1.0), weights(8, 3, 64, 64, scale=0.5)]
    return Network([*p, *[x for block in blocks for x in block]], images, loss)


def block_of(wide: int) -> Params:
    """Return the parameters of a transformer's block."""
    attention = [one(wide), zero(wide), *dense(3 * wide, wide), *dense(wide, wide)]
    return [*attention, one(wide), zero(wide), *dense(4 * wide, wide), *dense(wide, 4 * wide)]


def block(f: Any, x: Any, w: Params, heads: int) -> Any:
    """Return x (batch, length, wide) after attention and two dense layers, with norms before them."""
    batch, length, wide = x.shape
    three = f.reshape(f.linear(f.layer_norm(x, w[0], w[1]), w[2], w[3]), (batch, length, 3, heads, wide // heads))
    three = f.permute(three, (2, 0, 3, 1, 4))
    found = f.attention(three[0, ...], three[1, ...], three[2, ...])
    x = x + f.linear(f.reshape(f.permute(found, (0, 2, 1, 3)), (batch, length, wide)), w[4], w[5])
    return x + f.linear(f.gelu(f.linear(f.layer_norm(x, w[6], w[7]), w[8], w[9])), w[10], w[11])


def language() -> Network:
    """A transformer of four blocks over 128 words, 8 texts, 128 wide."""
    wide, length, batch, words = 128, 128, 8, 512

    def loss(f: Any, p: Params, text: Any, y: Any) -> Any:
        x = f.embedding(text, p[0]) + p[1]
        for n in range(4):
            x = block(f, x, p[4 + 12 * n : 16 + 12 * n], 4)
        logits = f.linear(f.layer_norm(x, p[2], p[3]), p[0])
        return f.cross_entropy(f.reshape(logits, (batch * length, words)), f.reshape(y, (batch * length,)))

    p = [weights(words, wide, scale=0.02), weights(length, wide, scale=0.02), one(wide), zero(wide)]
    p += [x for _ in range(4) for x in block_of(wide)]
    return Network(p, [classes(words, batch, length), classes(words, batch, length)], loss)


def vision() -> Network:
    """A transformer of three blocks over patches of 16 pictures of 64 x 64."""
    wide, batch, patches = 128, 16, 64

    def loss(f: Any, p: Params, x: Any, y: Any) -> Any:
        cut = f.reshape(f.conv(x, p[0], p[1], stride=8), (batch, wide, patches))
        x = f.permute(cut, (0, 2, 1)) + p[2]
        for n in range(3):
            x = block(f, x, p[5 + 12 * n : 17 + 12 * n], 4)
        return f.cross_entropy(f.linear(f.mean(x, 1), p[3], p[4]), y)

    p = [*dense(wide, 3, 8, 8), weights(patches, wide, scale=0.02), *dense(10, wide)]
    p += [x for _ in range(3) for x in block_of(wide)]
    return Network(p, [weights(batch, 3, 64, 64, scale=1.0), classes(10, batch)], loss)


NETWORKS: dict[str, Callable[[], Network]] = {
    "perceptron": perceptron,
    "autoencoder": autoencoder,
    "LSTM": recurrent,
    "residual network": residual,
    "mobile network": mobile,
    "U-Net": diffusion,
    "language transformer": language,
    "vision transformer": vision,
}


# ---- steps


def our_steps(network: Network) -> dict[str, Callable[[], Any]]:
    """Return our step, plain and fused."""
    functions, loss = ours(), network.loss
    slopes = xt.value_and_grad(lambda p, *data: loss(functions, p, *data))

    def step(p: Params, *data: Any) -> Any:
        value, found = slopes(p, *data)
        for x, g in zip(p, found, strict=True):
            x -= RATE * g
        return value

    steps = {}
    for name, one_step in (("plain", step), ("fused", xt.fuse(step))):
        p, data = [[xt.asarray(x, copy=True) for x in given] for given in (network.parameters, network.data)]

        def call(one_step: Any = one_step, p: Params = p, data: Any = data) -> Any:
            value = one_step(p, *data)
            xt.evaluate(value, *p)
            return value

        steps[name] = call
    return steps


def their_step(network: Network) -> Callable[[], Any]:
    """Return PyTorch's step."""
    torch, functions = import_module("torch"), theirs()
    p = [torch.tensor(x, requires_grad=True) for x in network.parameters]
    data, descent = [torch.tensor(x) for x in network.data], torch.optim.SGD(p, lr=RATE)

    def step() -> Any:
        descent.zero_grad()
        value = network.loss(functions, p, *data)
        value.backward()
        descent.step()
        return value.detach()

    return step


def row(name: str, quick: bool) -> list[str]:
    """Return the cells of a network."""
    network = NETWORKS[name]()
    calls = our_steps(network) | ({"torch": their_step(network)} if find_spec("torch") else {})
    losses = [float(call()) for call in calls.values()]
    if max(losses) - min(losses) > TOLERANCE * abs(losses[0]):
        raise ArithmeticError(f"{name}: losses differ: {losses}")
    least = {key: warmed(call, 0.01 if quick else 0.2) for key, call in calls.items()}
    turns = {key: repeated(call, least[key], pause=PAUSE) for key, call in calls.items()}
    times = {key: turn.least for key, turn in take_turns(turns, 2 if quick else 5).items()}
    whole = times.get("torch", float("nan"))
    cells = [f"{1e3 * time:.2f}" for time in times.values()] + [""] * (3 - len(times))
    return [name, *cells, *[f"{times[key] / whole:.2f}" for key in ("plain", "fused")]]


def main(quick: bool = False) -> None:
    """Print the table."""
    names = list(NETWORKS)[: 2 if quick else None]
    rows = [row(name, quick) for name in progress(names, len(names))]
    heading = ["training step", "plain ms", "fused ms", "PyTorch ms", "plain / PyTorch", "fused / PyTorch"]
    print_table("Training steps of small networks, float32", heading, rows)

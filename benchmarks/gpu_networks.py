"""Attention, a training step, and an expression of hundreds of steps on a CUDA device, beside PyTorch and JAX. What is
computed is compared before it is timed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from .gpu_layers import torch_there
from .measure import table
from .seawater import enthalpy_slope, waters
from .workloads import Array

# Batch, heads, length and width of attention; the sizes of the layers of the network, and how many rows it is given.
HEADS = (8, 16, 1024, 64)
SIZES, BATCH, RATE = (256, 256, 10), 1024, 0.1

TOLERANCE = 1e-3

Seconds = Callable[[Callable[[], Any]], float]


def networks(device: str, seconds_of: Seconds) -> str:
    """Return the table, in milliseconds."""
    lines = [*_attention(device, seconds_of), _step(device, seconds_of), *_waters(device, seconds_of)]
    heading = ["what", "xtensor", "torch", "jax"]
    lines = [[*line, *[""] * (len(heading) - len(line))] for line in lines]
    return table("networks and long expressions, milliseconds", heading, lines)


def _torch() -> Any:
    """Return PyTorch for float32 and with gradients, None where it cannot be used."""
    torch = torch_there()
    if torch:
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.set_grad_enabled(True)
    return torch


def _cell(call: Callable[[], Any], seconds_of: Seconds) -> str:
    try:
        return f"{seconds_of(call) * 1e3:.3f}"
    except Exception as error:  # a library that fails here is reported, and the others go on
        return f"{type(error).__name__}"


def _same(found: Any, right: Any) -> None:
    """Raise ArithmeticError where results differ by more than rounding."""
    a, b = (np.asarray(import_module("cupy").asnumpy(import_module("cupy").from_dlpack(x))) for x in (found, right))
    if not np.max(np.abs(a - b)) <= TOLERANCE * np.max(np.abs(b)):
        raise ArithmeticError("results differ")


def _attention(device: str, seconds_of: Seconds) -> list[list[str]]:
    xt, torch = import_module("xtensor"), _torch()
    hosts = list(np.random.default_rng(0).standard_normal((4, *HEADS)).astype(np.float32))
    lines = []
    for causal in (False, True):
        words = "attention, causal" if causal else "attention"
        ours = [xt.asarray(one, device=device) for one in hosts]
        attend = partial(xt.nn.scaled_dot_product_attention, is_causal=causal)

        def forward(attend: Any = attend, ours: Any = ours) -> Any:
            return attend(*ours[:3]).evaluate()

        def backward(attend: Any = attend, ours: Any = ours) -> Any:
            y, back = xt.vjp(attend, *ours[:3])
            found = (y, *back(ours[3]))
            xt.evaluate(*found)
            return found

        cells = [[_cell(forward, seconds_of)], [_cell(backward, seconds_of)]]
        if torch:
            theirs = [torch.from_dlpack(import_module("cupy").asarray(one)) for one in hosts]
            leaves = [one.requires_grad_() for one in theirs[:3]]
            own = partial(torch.nn.functional.scaled_dot_product_attention, is_causal=causal)

            def both(own: Any = own, leaves: Any = leaves, g: Any = theirs[3]) -> Any:
                y = own(*leaves)
                return (y, *torch.autograd.grad(y, leaves, g))

            for one, other in zip(backward(), both(), strict=True):
                _same(one, other.detach())
            with torch.no_grad():
                cells[0].append(_cell(lambda own=own, leaves=leaves: own(*leaves), seconds_of))
            cells[1].append(_cell(both, seconds_of))
        lines += [[f"{words}, forward", *cells[0]], [f"{words}, and gradients", *cells[1]]]
    return lines


def weights() -> list[Array]:
    """Return a network's weights and biases, its input and the classes."""
    rng = np.random.default_rng(0)
    found = []
    for n, m in zip(SIZES, SIZES[1:], strict=False):
        found += [(rng.standard_normal((n, m)) / n**0.5).astype(np.float32), np.zeros(m, np.float32)]
    return [*found, rng.standard_normal((BATCH, SIZES[0])).astype(np.float32), rng.integers(0, SIZES[-1], BATCH)]


def _step(device: str, seconds_of: Seconds) -> list[str]:
    """Return the line of one step of gradient descent of two layers and their cross entropy."""
    xt, torch = import_module("xtensor"), _torch()
    hosts = weights()

    def loss(w1: Any, b1: Any, w2: Any, b2: Any, x: Any, labels: Any) -> Any:
        return xt.nn.cross_entropy(xt.nn.relu(x @ w1 + b1) @ w2 + b2, labels)

    @xt.fuse
    def step(*operands: Any) -> Any:
        value, slopes = xt.value_and_grad(loss, (0, 1, 2, 3))(*operands)
        for one, slope in zip(operands, slopes, strict=False):
            one -= RATE * slope
        return value

    ours = [xt.asarray(one, device=device, copy=True) for one in hosts]
    cells = [f"step of an MLP, {BATCH} x {' x '.join(map(str, SIZES))}"]
    if not torch:
        return [*cells, _cell(lambda: step(*ours), seconds_of)]
    theirs = [torch.asarray(one, device=device) for one in hosts]
    leaves = [one.requires_grad_() for one in theirs[:4]]

    def other() -> Any:
        w1, b1, w2, b2 = leaves
        found = torch.nn.functional.cross_entropy(torch.relu(theirs[4] @ w1 + b1) @ w2 + b2, theirs[5])
        slopes = torch.autograd.grad(found, leaves)
        with torch.no_grad():
            for one, slope in zip(leaves, slopes, strict=True):
                one -= RATE * slope
        return found

    for _ in range(3):
        _same(step(*ours), other().detach())
    return [*cells, _cell(lambda: step(*ours), seconds_of), _cell(other, seconds_of)]


def _waters(device: str, seconds_of: Seconds) -> list[list[str]]:
    """Return the lines of the equation of state of sea water, of float64."""
    xt, lines = import_module("xtensor"), []
    for n in (4096, 65_536, 1_048_576):
        hosts = waters(np.random.default_rng(0), n, "float64")
        fused = xt.fuse(lambda *x: enthalpy_slope(xt, *x))
        ours = [xt.asarray(one, device=device) for one in hosts]
        cells = [f"sea water, {n}", _cell(lambda f=fused, x=ours: f(*x), seconds_of), ""]
        if find_spec("jax"):
            jax = import_module("jax")
            jax.config.update("jax_enable_x64", True)
            theirs = [jax.numpy.asarray(one) for one in hosts]
            jitted = jax.jit(lambda *x, np=jax.numpy: enthalpy_slope(np, *x))
            _same(fused(*ours), jitted(*theirs))
            cells.append(_cell(lambda f=jitted, x=theirs: f(*x), seconds_of))
        lines.append(cells)
    return lines

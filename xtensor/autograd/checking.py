"""check_grads: gradients compared with differences of function values."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..base.errors import expected
from ..storage.storage import Native
from ..tensor.face import Tensor
from ..tensor.operands import as_tensor
from ..tensor.trees import flatten, paths, rebuilt
from .rules import xt
from .tape import OFF, recording

__all__ = ["check_grads"]

Function = Callable[..., Any]


class _Tolerance(NamedTuple):
    eps: float
    rtol: float
    atol: float


def check_grads(
    f: Function, args: Sequence[Any], order: int = 2, *, eps: float = 1e-6, rtol: float = 1e-5, atol: float = 1e-7
) -> None:
    """Check the gradients of f at args, and the gradients of these, up to derivatives of the given order.

    f: takes floating-point tensors, or trees of them, and returns tensors, of which the floating-point ones are
        checked.
    args: a tuple or list of its positional arguments; use float64 or complex128, away from kinks.
    eps: the step of the central differences: f, and at higher orders its gradients, are called twice for each real
        number in args. In float32 take 1e-2, with tolerances of the same size.
    rtol, atol: the largest error of a gradient is atol + rtol * its absolute value.

    At each order the pullback of a random cotangent is compared with central differences in every entry, and with the
    derivative along a random tangent (jvp) by their inner product. Raises AssertionError that names the argument and
    the entry that is off, TypeError for arguments that have no gradient.
    """
    if not isinstance(args, (tuple, list)):
        raise TypeError(expected("check_grads", "args", "be a tuple of arguments", type(args).__name__))
    if not isinstance(order, int) or order < 1:
        raise ValueError(expected("check_grads", "order", "be a positive integer", repr(order)))
    names = [path for arg, name in zip(args, _names(f, len(args)), strict=True) for path in paths(arg, name)]
    leaves, rebuild = flatten(list(args))
    tensors = [as_tensor(leaf, "check_grads", name) for leaf, name in zip(leaves, names, strict=True)]
    for x, name in zip(tensors, names, strict=True):
        if x.dtype.kind not in "fc":
            raise TypeError(expected("check_grads", name, "be floating-point, to have a gradient", x.dtype))

    def call(*given: Tensor) -> list[Tensor]:
        results = flatten(f(*rebuilt(rebuild, given)))[0]
        return [y for y in results if not isinstance(y, Tensor) or y.dtype.kind in "fc"]

    generator = np.random.default_rng(0)
    for depth in range(1, order + 1):
        call = _checked(call, tensors, names, f"order {depth}", generator, _Tolerance(eps, rtol, atol))


def _names(f: Function, count: int) -> list[str]:
    """Return the names of the first arguments of a function."""
    try:
        parameters = list(inspect.signature(f).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    plain = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)][:count]
    return plain + [f"argument {n}" for n in range(len(plain), count)]


def _checked(
    call: Function, tensors: list[Tensor], names: list[str], order: str, generator: Any, tolerance: _Tolerance
) -> Function:
    """Check the derivative of a call; return its pullback of a random cotangent, as a function of the same tensors."""
    with recording(OFF):
        results = call(*tensors)
    cotangents = [_random(y, generator) for y in results]
    weights = [g.host() for g in cotangents]

    def pulled(*given: Tensor) -> list[Tensor]:
        return list(xt.vjp(call, *given)[1](cotangents))

    grads = [g.host() for g in pulled(*tensors)]
    for number, (got, name) in enumerate(zip(grads, names, strict=True)):
        wanted = _differences(call, tensors, number, weights, tolerance.eps)
        _compare(got, wanted, f"{order}, {name}", tolerance)
    tangents = [_random(x, generator) for x in tensors]
    _, pushed = xt.jvp(call, tensors, tangents)
    pairs = [(t.host(), g) for t, g in zip(tangents, grads, strict=True)]
    forward = sum([_inner(g, one.host()) for g, one in zip(weights, pushed, strict=True)])
    size = sum([float(np.sum(np.abs(t) * np.abs(g))) for t, g in pairs])
    backward = sum([_inner(g, t) for t, g in pairs])
    if not abs(forward - backward) <= tolerance.atol + tolerance.rtol * size:
        raise AssertionError(f"check_grads: {order}, jvp along a random tangent: got {forward}, expected {backward}")
    return pulled


def _random(like: Tensor, generator: Any) -> Tensor:
    """Return normal numbers of a tensor's shape and dtype."""
    values = generator.normal(size=like.shape)
    if like.dtype.kind == "c":
        values = values + 1j * generator.normal(size=like.shape)
    drawn: Tensor = xt.asarray(np.asarray(values, like.dtype), device=like.device)
    return drawn


def _inner(a: Native, b: Native) -> float:
    """Return the inner product of two arrays as vectors of real numbers."""
    return float(np.real(np.vdot(a, b)))


def _differences(call: Function, tensors: list[Tensor], number: int, weights: list[Native], eps: float) -> Native:
    """Return the central differences of a call's inner product with weights, for every entry of one of its tensors."""
    values = tensors[number].host()
    found = np.zeros(values.shape, values.dtype)

    def moved(index: tuple[int, ...], step: complex) -> tuple[Native, list[Native]]:
        changed = values.copy()
        changed[index] += step
        given = [*tensors[:number], xt.asarray(changed, device=tensors[number].device), *tensors[number + 1 :]]
        with recording(OFF):
            return changed[index], [y.host() for y in call(*given)]

    for index in np.ndindex(values.shape):
        for unit in (1, 1j) if values.dtype.kind == "c" else (1,):
            (above, results), (below, others) = moved(index, eps * unit), moved(index, -eps * unit)
            change = sum([_inner(g, y - z) for g, y, z in zip(weights, results, others, strict=True)])
            found[index] += unit * (change / abs(above - below))
    return found


def _compare(got: Native, wanted: Native, where: str, tolerance: _Tolerance) -> None:
    """Raise AssertionError if a gradient differs from the differences; it shows the entry with the largest error."""
    error = np.abs(got - wanted)
    off = ~(error <= tolerance.atol + tolerance.rtol * np.abs(wanted))
    if not off.any():
        return
    worst = np.unravel_index(np.argmax(np.where(off, np.nan_to_num(error, nan=np.inf), -1)), error.shape)
    index = f"[{', '.join(str(int(i)) for i in worst)}]" if worst else ""
    count = f"; {off.sum()} of {off.size} entries are off" if off.size > 1 else ""
    raise AssertionError(
        f"check_grads: {where}{index}: got {got[worst]}, expected {wanted[worst]}, error {error[worst]:.3g}{count}"
    )

"""Writes in place while gradients are recorded: values and gradients are those of the program without memory.

Differences of values are the measure, so that a program here need not be written twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import xtensor as xt
from tests.samples import Array, complexes, normal
from xtensor.autograd import check_grads

MATRIX, NUMBERS = normal(4, 3), complexes(4, 3)


def base_then_view(x: Any) -> Any:
    y = x * 2
    view = y[1:]
    y *= x
    return view * view, y[0]


def view_then_base(x: Any) -> Any:
    y = x * 2
    view = y[1:, ::2]
    view *= x[1:, ::2]
    return y * y, view


def overlapping_views(x: Any) -> Any:
    y = x * 1
    first, second = y[:3], y[1:]
    first *= 3
    second += first
    first[...] = second
    return y * y, first, second


def written_from_itself(x: Any) -> Any:
    y = x * 1
    y[1:] = y[:-1]
    y[::-1] = y
    y += y[::-1]
    return y * x


def views_of_views(x: Any) -> Any:
    y = x * x
    corner = y.T[1:][:, ::-1][0]
    corner[1:3] = x[0, :2]
    flat = xt.reshape(y, (-1,))
    flat[5] = x[0, 0]
    return y * y, corner, flat[::2]


def parts_of_calls(x: Any) -> Any:
    y = x * 1
    rows = xt.unstack(y)
    rows[1][...] = rows[0] * rows[2]
    expanded = xt.expand_dims(y, axis=0)
    expanded[0, 2] *= 2
    moved = xt.permute_dims(y, (1, 0))
    moved[0] -= rows[3][0]
    flipped = xt.flip(y)
    flipped[0, 0] = y[0, 0]
    one, _ = xt.broadcast_arrays(y, x)
    one[1] *= 5
    return [*rows, moved * moved]


def repeated_integers(x: Any) -> Any:
    y = x * 1
    y[[0, 2, 0]] = x[:3] * 2
    y[[1, 1]] += x[:2]
    return y * y


def masks(x: Any) -> Any:
    y = x * 1
    mask = xt.asarray(MATRIX > 0)
    y[mask] = 2.0
    y[~mask] *= 3
    y[mask] = y[mask] * xt.sum(x)
    return y * y


def mixed_keys(x: Any) -> Any:
    y = x * 1
    y[[0, 2], [1, 1]] = x[0, :2]
    y[..., xt.asarray([0, 2])] = x[:, :2]
    y[None, 1, None] = x[2]
    y[-1, ::-2] = x[0, :2] * 2
    return y * y


def broadcast_values(x: Any) -> Any:
    y = x * 1
    y[1:] = x[0]
    y[:, 1:] = x[:, :1]
    y[0] = x[1, 1]
    y[2:3] = x[None, 3]
    return y * y


def tracked_into_constant(x: Any) -> Any:
    total = xt.zeros((4, 3))
    view = total[1]
    total[0] = x[0]
    view[...] = x[1] * x[2]
    total[3] += xt.sum(x)
    return total * total, view * 2


def constant_into_tracked(x: Any) -> Any:
    y = x * x
    y[1] = xt.asarray([1.0, 2.0, 3.0])
    y[2] = 7
    y[3, :2] = [1.0, 2.0]
    return y * x


def everything_replaced(x: Any) -> Any:
    y = x * x
    y[...] = 1.0
    return y * x


def in_a_loop(x: Any) -> Any:
    out = xt.zeros(4)
    state = x[0] * 1
    for n in range(4):
        state *= x[n] + 1
        out[n] = xt.sum(state)
    return out * out, state


def saved_before_and_after(x: Any) -> Any:
    y = x * 1
    first = xt.exp(y) * y
    y[0] = x[1] * 2
    second = xt.sin(y) * y
    y += second
    y[:, 0] /= y[:, 1] ** 2 + 1
    return first, second, y * first


def every_operator(x: Any) -> Any:
    y = x * x + 2
    y += x
    y -= x[0] * 0.5
    y *= x[:, :1] + 3
    y /= y * y + 1
    y **= 2
    y %= 0.3
    y[:3] @= xt.asarray(normal(3, 3)) @ x[:3]
    return y


def small_results_alone(x: Any) -> Any:
    y = x * 2
    y += 1
    z = y
    z *= x
    return y * z


def parts_of_complex(x: Any) -> Any:
    z = x * (1 + 2j)
    z.real[1:] *= x[1:]
    z.imag[...] = x * x
    z[0] = 1j * x[0]
    z.imag[0] += 3
    return z * z, z.real[0], z.imag


def reread(x: Any) -> Any:
    z = x * (1 + 2j)
    z.view(xt.float64)[:, 1::2] *= x
    return z * z


def narrow_into_wide(x: Any) -> Any:
    y = x * 1
    y[0] = xt.astype(x[1], xt.float32) * xt.asarray([1.0, 2.0, 3.0], dtype=xt.float32)
    y[1] *= xt.asarray([1.0, 2.0, 3.0], dtype=xt.float32)
    return y * y


def real_into_complex(x: Any) -> Any:
    z = xt.zeros((4, 3), dtype=xt.complex128)
    z[1:] = x[1:]
    z[0] = x[0] * 1j
    z *= x
    return z * z


def copies_are_apart(x: Any) -> Any:
    y = x * 1
    before = y.copy()
    turned = xt.asarray(y, copy=True)
    same = xt.asarray(y)
    y[0] = x[1] * x[1]
    return before * turned, same * same


def detached_is_apart(x: Any) -> Any:
    y = x * 1
    y[0] = x[1] * x[2]
    return y.detach()[1:] * 0.0 + y[1:]


def constant_views_seen_later(x: Any) -> Any:
    return _views_seen_later(xt.ones((4, 3)), x)


def views_of_zeros_seen_later(x: Any) -> Any:
    base = xt.zeros((4, 3))
    base[...] = 1.0
    return _views_seen_later(base, x)


def _views_seen_later(base: Any, x: Any) -> Any:
    old = base[:, 1]
    older = old[::-1]
    base *= x
    old[0] = x[3, 2]
    return older * x[:, 0], base * base


PROGRAMS: list[Callable[[Any], Any]] = [
    base_then_view,
    view_then_base,
    overlapping_views,
    written_from_itself,
    views_of_views,
    parts_of_calls,
    repeated_integers,
    masks,
    mixed_keys,
    broadcast_values,
    tracked_into_constant,
    constant_into_tracked,
    everything_replaced,
    in_a_loop,
    saved_before_and_after,
    every_operator,
    small_results_alone,
    copies_are_apart,
    constant_views_seen_later,
    views_of_zeros_seen_later,
    parts_of_complex,
    reread,
    real_into_complex,
]
# Of these the memory, or an operation, is real; the remaining ones take complex numbers as well.
REAL_ONLY = (
    every_operator,
    parts_of_complex,
    reread,
    tracked_into_constant,
    in_a_loop,
    real_into_complex,
    constant_views_seen_later,
    views_of_zeros_seen_later,
)


def listed(f: Callable[[Any], Any]) -> Callable[[Any], list[Any]]:
    """Return a function that returns its results in a list."""

    def call(x: Any) -> list[Any]:
        found = f(x)
        return list(found) if isinstance(found, (tuple, list)) else [found]

    return call


@pytest.mark.parametrize("lazy", ["auto", "always"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_first_order(program: Callable[[Any], Any], lazy: str) -> None:
    with xt.options(lazy=lazy):
        check_grads(listed(program), (MATRIX,))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_second_order(program: Callable[[Any], Any]) -> None:
    check_grads(listed(program), (MATRIX,), order=2)


@pytest.mark.parametrize("program", [f for f in PROGRAMS if f not in REAL_ONLY], ids=lambda f: f.__name__)
def test_complex(program: Callable[[Any], Any]) -> None:
    check_grads(listed(program), (NUMBERS,))


def test_single_into_double_precision() -> None:
    """The cotangent of what was converted on the way in is converted back."""
    check_grads(listed(narrow_into_wide), (MATRIX.astype(np.float32).astype(np.float64),), rtol=1e-4, eps=1e-3)
    x = xt.asarray(MATRIX[0].astype(np.float32), requires_grad=True)
    memory = xt.zeros((2, 3))
    memory[1] = x
    xt.sum(memory * memory).backward()
    assert x.grad is not None and x.grad.dtype == xt.float32
    np.testing.assert_allclose(x.grad.numpy(), 2 * MATRIX[0], rtol=1e-6)


@pytest.mark.parametrize("size", [3, 100_000])
def test_large_and_pending(size: int) -> None:
    """A value that waits is written like one that does not."""

    def f(x: Any) -> Any:
        y = xt.exp(x) * 2
        y *= x
        z = y + 1
        y[1:] += y[:-1] * 0.5
        y[::2] = x[::2] * z[::2]
        return xt.sum(y * z)

    values: Array = normal(size)
    x = xt.asarray(values)
    v = normal(size, seed=2)
    slope = float(xt.sum(xt.grad(f)(x) * xt.asarray(v)))
    eps = 1e-6
    wanted = (float(f(xt.asarray(values + eps * v))) - float(f(xt.asarray(values - eps * v)))) / (2 * eps)
    np.testing.assert_allclose(slope, wanted, rtol=1e-7)
    np.testing.assert_array_equal(x.numpy(), values)


def test_leaves_are_not_written() -> None:
    """A tensor that requires a gradient, and its views, are written only where nothing is recorded."""
    x = xt.asarray(MATRIX.copy(), requires_grad=True)
    for write in (
        lambda: x.__setitem__(0, 1.0),
        lambda: x.__iadd__(1),
        lambda: x.T[1:].__imul__(2),
        lambda: xt.unstack(x)[0].__setitem__(..., 1.0),
        lambda: x.__setitem__([0, 1], 1.0),
    ):
        with pytest.raises(RuntimeError, match="must not be a tensor that requires a gradient"):
            write()
    np.testing.assert_array_equal(x.detach().numpy(), MATRIX)
    with xt.no_grad():
        x[0] = 1.0
        x *= 2
    assert x.requires_grad and float(x[0, 0]) == 2.0
    xt.sum(x * x).backward()
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), 2 * x.detach().numpy())


def test_read_as_another_dtype() -> None:
    """What would need the derivative of a change of dtype says so on the way back, and not before."""
    x = xt.asarray(MATRIX, requires_grad=True)
    y = x * 2
    y[0] = x[1]
    halves = y.view(xt.float32)
    assert xt.sum(halves).requires_grad
    with pytest.raises(NotImplementedError, match="view"):
        xt.sum(halves).backward()
    bits = y.view(xt.int64)
    assert not bits.requires_grad and not bits.is_writeable
    y = x * 2
    y.view(xt.float32)[0] = 1.0
    with pytest.raises(NotImplementedError, match="view"):
        xt.sum(y).backward()


def test_detached_memory() -> None:
    """Reading memory that was detached gives a constant, whatever was written; writing it counts for nothing."""
    x = xt.asarray(MATRIX, requires_grad=True)
    y = x * 2
    y[0] = x[1]
    for constant in (y.detach(), y.detach()[1:], y.detach().T, xt.from_dlpack(y)):
        assert not constant.requires_grad and not (constant * 2).requires_grad
    y.detach()[...] = 5.0
    assert float(y[0, 0]) == 5.0
    xt.sum(y).backward()
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), [[0] * 3, [3] * 3, [2] * 3, [2] * 3])


def test_arguments_of_transforms_may_be_written() -> None:
    """A function that writes into its argument has its gradient; the argument is a constant afterwards."""

    def f(x: Any) -> Any:
        x *= 3
        x[0] = x[1]
        return xt.sum(x * x)

    x = xt.asarray([1.0, 2.0, 3.0])
    np.testing.assert_allclose(xt.grad(f)(x).numpy(), [0, 72, 54])
    assert not x.requires_grad
    np.testing.assert_array_equal(x.numpy(), [6, 6, 9])


def test_arguments_with_a_history() -> None:
    """An argument that was written before is one nonetheless, apart from its memory."""
    w = xt.asarray(2.0, requires_grad=True)
    h = xt.zeros(3)
    h[0] = w
    np.testing.assert_allclose(xt.grad(lambda a: xt.sum(a * a))(h).detach().numpy(), [4, 0, 0])
    np.testing.assert_allclose(xt.grad(lambda a: xt.sum(a * h))(h).detach().numpy(), [2, 0, 0])
    xt.sum(xt.grad(lambda a: xt.sum(a**3))(h)).backward()
    assert w.grad is not None
    np.testing.assert_allclose(float(w.grad), 12)


VIEWS_OF_PENDING: dict[str, Callable[[xt.Tensor], xt.Tensor]] = {
    "expand_dims": lambda z: xt.expand_dims(z, 1),
    "squeeze": lambda z: xt.squeeze(xt.expand_dims(z, (0, 2)), 0),
    "permute_dims": lambda z: xt.permute_dims(xt.expand_dims(z, 0), (2, 0, 1)),
    "flip": lambda z: xt.flip(z, axis=0),
    "reshape": lambda z: xt.reshape(z, (-1, 2)),
    "reshape of a transpose": lambda z: xt.reshape(z.T, (-1, 2)),
    "index": lambda z: z[1:, ::-1],
    "row": lambda z: z[-1],
    "view of a view": lambda z: xt.flip(z.T)[1:],
}


@pytest.mark.parametrize("lazy", ["auto", "always"])
@pytest.mark.parametrize("name", VIEWS_OF_PENDING)
def test_writes_through_views_of_pending_values(name: str, lazy: str) -> None:
    """A view that waits together with its base is a view all the same: writes to either show in both gradients."""

    def loss(x: xt.Tensor, y: xt.Tensor) -> xt.Tensor:
        z = x * y
        view = VIEWS_OF_PENDING[name](z)
        view *= 3.0
        z[0] = y[1] * 2.0
        view += x[0, 0]
        z[:, 1] = x[:, 0] * z[:, 1]
        other = xt.broadcast_to(z[:1], (3, *z.shape[1:]))
        z += 1.0
        return xt.sum(z * z * y) + xt.sum(xt.tanh(view) ** 2) + xt.sum(other * other)

    rng = np.random.default_rng(0)
    x, y = (xt.asarray(rng.normal(size=(4, 6)), copy=True) for _ in range(2))
    with xt.options(lazy=lazy):
        value, grads = xt.value_and_grad(loss, (0, 1))(x, y)
        xt.evaluate(value, *grads)
    with xt.options(lazy="never"):
        wanted, others = xt.value_and_grad(loss, (0, 1))(x, y)
    for one, other in zip((value, *grads), (wanted, *others), strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-12)
    for number in range(2):  # and against differences of the value
        step = rng.normal(size=(4, 6))
        ends = []
        for sign in (1e-6, -1e-6):
            moved = [x, y]
            moved[number] = moved[number] + sign * xt.asarray(step)
            ends.append(float(loss(*moved)))
        slope = float(np.sum(step * grads[number].numpy()))
        assert slope == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-6)


def test_pending_leaves_are_not_written_through_views() -> None:
    with xt.options(lazy="always"):
        for view in (
            lambda x: xt.flip(x),
            lambda x: xt.expand_dims(x, 0),
            lambda x: x[1:],
            lambda x: xt.reshape(x, (2, 2)),
        ):
            x = xt.ones(4) * 2.0
            x.requires_grad = True
            with pytest.raises(RuntimeError, match="requires a gradient"):
                view(x)[...] = 1.0


@pytest.mark.parametrize("way", ["plain", "always", "fused"])
@pytest.mark.parametrize("write", ["all", "some"])
def test_copies_made_by_reshaping_are_written(way: str, write: str) -> None:
    """What is reshaped after its axes were permuted, as pixels are shuffled, is a copy that has its own values."""

    def shuffled(x: Any) -> Any:
        apart = xt.reshape(x * 2.0, (2, 2, 2, 3))
        return xt.reshape(xt.permute_dims(apart, (2, 0, 3, 1)), (4, 6))

    def written(x: Any) -> Any:
        y = shuffled(x)
        if write == "all":
            y += x
        else:
            y[1:, ::2] = 3.0
        return xt.sum(y * y * x)

    def fresh(x: Any) -> Any:
        y = shuffled(x)
        inside = (xt.arange(4)[:, None] >= 1) & (xt.arange(6) % 2 == 0)
        return xt.sum((y + x if write == "all" else xt.where(inside, 3.0, y)) ** 2 * x)

    gradient = xt.grad(written)
    if way == "fused":
        gradient = xt.fuse(gradient)
    wanted = xt.grad(fresh)
    for seed in range(4):
        x = xt.asarray(np.random.default_rng(seed).normal(size=(4, 6)))
        with xt.options(lazy="always" if way == "always" else "auto"):
            np.testing.assert_allclose(gradient(x).numpy(), wanted(x).numpy(), rtol=1e-13)

"""What gradients are where the derivative is a matter of convention: kinks, ties, poles, and complex numbers.

The convention is PyTorch's, with ties split evenly and finite values where PyTorch's formula gives 0 / 0.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from math import e, inf, nan
from typing import Any

import numpy as np
import pytest

import xtensor as xt
import xtensor.numpy as xnp
from tests.samples import normal


def gradient(f: Callable[..., Any], *args: Any, argnums: int = 0) -> Any:
    """Return the gradient of the sum of f's real parts, as an array."""
    numbers = [np.asarray(a, dtype=complex if np.iscomplexobj(a) else float) for a in args]
    return xt.grad(lambda *x: xt.sum(xt.real(f(*x))), argnums)(*[xt.asarray(a) for a in numbers]).numpy()


def second(f: Callable[[Any], Any], x: Any) -> Any:
    """Return the gradient of the sum of the gradient's entries."""
    return gradient(xt.grad(lambda x: xt.sum(f(x))), x)


Case = tuple[Callable[[Any], Any], Any, Any]

ONE: dict[str, Case] = {
    "where log": (lambda x: xt.where(x > 0, xt.log(x), 0.0), 0.0, nan),
    "where sqrt": (lambda x: xt.where(x > 0, xt.sqrt(x), 0.0), 0.0, nan),
    "double where": (lambda x: xt.where(x > 0, xt.log(xt.where(x > 0, x, 1.0)), 0.0), [0.0, 2.0], [0.0, 0.5]),
    "maximum at a number": (lambda x: xt.maximum(x, 1), 1.0, 0.5),
    "minimum at a number": (lambda x: xt.minimum(1, x), 1.0, 0.5),
    "maximum at zero": (lambda x: xt.maximum(x, 0), [-1.0, 0.0, 1.0], [0.0, 0.5, 1.0]),
    "maximum of one": (lambda x: xt.maximum(x, x), [0.0, 2.0], [1.0, 1.0]),
    "minimum of one": (lambda x: xt.minimum(x, x), [0.0, 2.0], [1.0, 1.0]),
    "maximum of NaN": (lambda x: xt.maximum(x, 1), nan, 1.0),
    "minimum of NaN": (lambda x: xt.minimum(1, x), nan, 1.0),
    "maximum beside NaN": (lambda x: xt.maximum(x, nan), 2.0, 0.0),
    "max with ties": (xt.max, [1.0, 1.0, 0.0], [0.5, 0.5, 0.0]),
    "min with ties": (xt.min, [0.0, 0.0, 1.0, 0.0], [1 / 3, 1 / 3, 0.0, 1 / 3]),
    "max along an axis": (lambda x: xt.max(x, axis=1), [[2.0, 2.0], [1.0, 3.0]], [[0.5, 0.5], [0.0, 1.0]]),
    "max with NaN": (xt.max, [nan, 1.0, 5.0], [1.0, 0.0, 0.0]),
    "min with NaN": (xt.min, [1.0, nan, 0.0], [0.0, 1.0, 0.0]),
    "max of infinities": (xt.max, [inf, inf, -inf], [0.5, 0.5, 0.0]),
    "max of all of -inf": (xt.max, [-inf, -inf], [0.5, 0.5]),
    "sort with ties": (lambda x: xt.sort(x) * xt.arange(1.0, 4.0), [1.0, 0.0, 1.0], [2.0, 1.0, 3.0]),
    "sort down with ties": (
        lambda x: xt.sort(x, descending=True) * xt.arange(1.0, 4.0),
        [1.0, 0.0, 1.0],
        [1.0, 3.0, 2.0],
    ),
    "sort with NaN": (lambda x: xt.sort(x) * xt.arange(1.0, 4.0), [nan, 2.0, 1.0], [3.0, 2.0, 1.0]),
    "unique": (lambda x: xt.unique_values(x) * xt.arange(1.0, 4.0), [2.0, 1.0, 2.0, 3.0, 1.0], [2.0, 1.0, 0.0, 3.0, 0]),
    "clip at the bounds": (lambda x: xt.clip(x, 0.0, 1.0), [-1.0, 0.0, 0.5, 1.0, 2.0], [0.0, 1.0, 1.0, 1.0, 0.0]),
    "clip of NaN": (lambda x: xt.clip(x, 0.0, 1.0), nan, 0.0),
    "clip between equal bounds": (lambda x: xt.clip(x, 1.0, 1.0), 1.0, 1.0),
    "abs at zero": (xt.abs, [0.0, -0.0, -2.0], [0.0, 0.0, -1.0]),
    "abs at a complex zero": (xt.abs, 0j, 0j),
    "sign": (xt.sign, [0.0, 2.0], [0.0, 0.0]),
    "sign at a complex zero": (xt.sign, 0j, 0j),
    "rounding": (lambda x: xt.floor(x) + xt.ceil(x) + xt.round(x) + xt.trunc(x) + x // 2.0, [1.0, 0.5], [0.0, 0.0]),
    "prod with a zero": (xt.prod, [2.0, 0.0, 3.0], [0.0, 6.0, 0.0]),
    "prod with two": (xt.prod, [2.0, 0.0, 0.0], [0.0, 0.0, 0.0]),
    "cumulative_prod with zeros": (xt.cumulative_prod, [2.0, 0.0, 3.0, 0.0], [1.0, 8.0, 0.0, 0.0]),
    "var of constants": (xt.var, [3.0, 3.0], [0.0, 0.0]),
    "std of constants": (xt.std, [3.0, 3.0], [0.0, 0.0]),
    "std of one": (xt.std, [3.0], [0.0]),
    "var without freedom": (lambda x: xt.var(x, correction=1), [3.0], [nan]),
    "std without freedom": (lambda x: xt.std(x, correction=1), [3.0], [nan]),
    "sqrt at zero": (xt.sqrt, 0.0, inf),
    "root at zero": (lambda x: x**0.5, 0.0, inf),
    "log at zero": (xt.log, 0.0, inf),
    "hypot at the origin": (lambda x: xt.hypot(x, 0.0), 0.0, 0.0),
    "atan2 at the origin": (lambda x: xt.atan2(x, x), 0.0, 0.0),
    "power of zero, float": (lambda x: x**0.0, 0.0, 0.0),
    "power of zero, integer": (lambda x: x**0, 0.0, 0.0),
    "power of zero, array": (lambda x: x ** xt.asarray([0.0, 1.0, 2.0, 3.0]), [0.0] * 4, [0.0, 1.0, 0.0, 0.0]),
    "first power": (lambda x: x**1.0, 0.0, 1.0),
    "square": (lambda x: x**2.0, 0.0, 0.0),
    "zero to a power": (lambda y: 0.0**y, [0.0, 2.0, 0.5], [0.0, 0.0, 0.0]),
    "zero array to a power": (lambda y: xt.zeros(2) ** y, [0.0, 2.0], [0.0, 0.0]),
    "negative number to a power": (lambda y: (-1.0) ** y, 2.0, nan),
    "logaddexp at -inf": (lambda x: xt.logaddexp(x, -inf), [-inf, 0.0, inf], [0.5, 1.0, 1.0]),
    "logaddexp at inf": (lambda x: xt.logaddexp(x, inf), [-inf, 0.0, inf], [0.0, 0.0, 0.5]),
    "logaddexp of one": (lambda x: xt.logaddexp(x, x), [-inf, 0.0, inf], [1.0, 1.0, 1.0]),
    "logaddexp of large ones": (lambda x: xt.logaddexp(x, x + 1.0), [-(2.0**40), 2.0**40], [1.0, 1.0]),
    "logaddexp beside a large one": (lambda x: xt.logaddexp(x, 2.0**40), [2.0**40 - 1.0], [1 / (1 + e)]),
    "logaddexp2 at inf": (lambda x: xnp.logaddexp2(x, inf), [-inf, 0.0, inf], [0.0, 0.0, 0.5]),
    "logaddexp2 of inf": (lambda x: xnp.logaddexp2(x, 2.0**50), [inf, 2.0**50, 2.0**50 - 1.0], [1.0, 0.5, 1 / 3]),
    "remainder at the jump": (lambda x: x % 2.0, [4.0, 3.0], [1.0, 1.0]),
    "remainder by the divisor": (lambda y: 7.0 % y, [2.0, -2.0], [-3.0, 4.0]),
    "copysign at zero": (lambda x: xt.copysign(x, -1.0), [0.0, 2.0, -2.0], [0.0, -1.0, 1.0]),
    "copysign by the sign": (lambda x: xt.copysign(2.0, x), [0.0, -2.0], [0.0, 0.0]),
    "nextafter": (lambda x: xt.nextafter(x, 5.0) + xt.nextafter(1.0, x), [2.0], [1.0]),
    "repeated indices": (lambda x: x[[0, 0, 1]] * xt.arange(1.0, 4.0), [5.0, 6.0, 7.0], [3.0, 3.0, 0.0]),
    "abs of a complex number": (xt.abs, 3 + 4j, 0.6 + 0.8j),
    "real of a square": (lambda z: z * z, 1 + 2j, 2 - 4j),
    "squared size": (lambda z: z * xt.conj(z), 1 + 2j, 2 + 4j),
    "imag": (xt.imag, 1 + 2j, 1j),
    "real": (xt.real, 1 + 2j, 1),
    "real parameter": (lambda x: x * (2 + 3j), 1.0, 2.0),
}


@pytest.mark.parametrize(("f", "x", "wanted"), ONE.values(), ids=ONE)
@pytest.mark.parametrize("lazy", ["auto", "always"])
def test_convention(f: Callable[[Any], Any], x: Any, wanted: Any, lazy: str) -> None:
    with xt.options(lazy=lazy):
        np.testing.assert_allclose(gradient(f, x), wanted, rtol=1e-14)


SECOND: dict[str, Case] = {
    "prod with a zero": (xt.prod, [2.0, 0.0, 3.0], [3.0, 5.0, 2.0]),
    "prod with two": (xt.prod, [2.0, 0.0, 0.0], [0.0, 2.0, 2.0]),
    "first power": (lambda x: x**1.0, 0.0, 0.0),
    "first power of an array": (lambda x: x ** xt.ones(2), [0.0, 1.0], [0.0, 0.0]),
    "square": (lambda x: x**2.0, 0.0, 2.0),
    "cumulative_prod with zeros": (xt.cumulative_prod, [2.0, 0.0, 3.0], [4.0, 6.0, 2.0]),
    "hypot at the origin": (lambda x: xt.hypot(x, 0.0), 0.0, 0.0),
    "atan2 at the origin": (lambda x: xt.atan2(x, 2 * x), 0.0, 0.0),
    "std of constants": (xt.std, [3.0, 3.0], [0.0, 0.0]),
    "abs": (xt.abs, [0.0, 2.0], [0.0, 0.0]),
    "logaddexp": (lambda x: xt.logaddexp(x, 0.0), [0.0, -800.0, 800.0, -inf, inf], [0.25, 0.0, 0.0, 0.0, 0.0]),
}


@pytest.mark.parametrize(("f", "x", "wanted"), SECOND.values(), ids=SECOND)
def test_second_order(f: Callable[[Any], Any], x: Any, wanted: Any) -> None:
    np.testing.assert_allclose(second(f, x), wanted, rtol=1e-14, atol=1e-14)


def test_both_of_two() -> None:
    """The other argument's share, where that is a convention as well."""
    for argnums, wanted in ((0, [0.5, 0.0, 1.0, 0.0, 1.0]), (1, [0.5, 1.0, 0.0, 1.0, 1.0])):
        got = gradient(xt.maximum, [1.0, 1.0, nan, 1.0, nan], [1.0, 2.0, 1.0, nan, nan], argnums=argnums)
        np.testing.assert_array_equal(got, wanted)
    for argnums in (0, 1):
        assert gradient(xt.atan2, 0.0, 0.0, argnums=argnums) == 0
        assert gradient(xt.hypot, 0.0, 0.0, argnums=argnums) == 0
    np.testing.assert_array_equal(gradient(xt.logaddexp, [-inf, inf], [-inf, inf], argnums=1), [0.5, 0.5])


def test_bounds_of_clip() -> None:
    """A bound has the cotangent of what it moved, and none at the bound itself; the upper one wins."""
    x = [-1.0, 0.0, 0.5, 1.0, 2.0]
    np.testing.assert_array_equal(gradient(xt.clip, x, [0.0] * 5, [1.0] * 5, argnums=1), [1, 0, 0, 0, 0])
    np.testing.assert_array_equal(gradient(xt.clip, x, [0.0] * 5, [1.0] * 5, argnums=2), [0, 0, 0, 0, 1])
    np.testing.assert_array_equal(gradient(xt.clip, x, [3.0] * 5, [1.0] * 5, argnums=1), [0] * 5)
    np.testing.assert_array_equal(gradient(xt.clip, x, [3.0] * 5, [1.0] * 5, argnums=2), [1] * 5)


def test_sign_of_a_complex_number() -> None:
    """Only the direction counts."""
    z, g = 3 + 4j, 1 - 2j
    y = z / abs(z)
    _, pull = xt.vjp(xt.sign, xt.asarray(z))
    np.testing.assert_allclose(complex(pull(xt.asarray(g))[0]), (g - y * y * g.conjugate()) / (2 * abs(z)))


def test_integers_have_no_gradient() -> None:
    with pytest.raises(TypeError, match="must be floating-point"):
        xt.grad(lambda x: xt.sum(x * 1.0))(xt.arange(3))
    with pytest.raises(TypeError, match="requires_grad: x must be floating-point"):
        xt.arange(3).requires_grad = True
    with pytest.raises(TypeError, match="asarray: dtype must be floating-point"):
        xt.asarray([1, 2], requires_grad=True)
    with pytest.raises(TypeError, match="astype"):
        xt.grad(lambda z: xt.sum(xt.astype(z, xt.float64)))(xt.asarray([1j]))


CONSTANTS: dict[str, Callable[[Any], Any]] = {
    "to integers": lambda x: xt.astype(x, xt.int64),
    "to booleans": lambda x: xt.astype(x, xt.bool),
    "comparison": lambda x: x > 1,
    "argsort": xt.argsort,
    "argmax": xt.argmax,
    "nonzero": lambda x: xt.nonzero(x)[0],
    "count_nonzero": xt.count_nonzero,
    "searchsorted": lambda x: xt.searchsorted(x, 0.5),
    "isin": lambda x: xt.isin(x, x),
    "counts": lambda x: xt.unique_counts(x).counts,
    "any": xt.any,
    "ones_like": xt.ones_like,
    "zeros_like": xt.zeros_like,
    "empty_like": xt.empty_like,
    "full_like": lambda x: xt.full_like(x, 2.0),
    "from_dlpack": xt.from_dlpack,
    "copy through dlpack": lambda x: xt.from_dlpack(x, copy=True),
    "detach": lambda x: x.detach(),
    "stop_gradient": xt.stop_gradient,
}


@pytest.mark.parametrize("f", CONSTANTS.values(), ids=CONSTANTS)
def test_constants(f: Callable[[Any], Any]) -> None:
    x = xt.asarray([1.0, 2.0], requires_grad=True)
    assert not f(x).requires_grad
    assert not f(x * x).requires_grad


# ---- in and out


def test_asarray_requires_grad() -> None:
    """The result is a leaf; a constant given stays one, a tensor with a gradient keeps it."""
    assert not xt.asarray([1.0]).requires_grad
    x = xt.asarray([1.0, 2.0], requires_grad=True)
    assert x.requires_grad
    assert xt.asarray(x) is x and xt.asarray(x, requires_grad=True) is x
    constant = xt.asarray([1.0, 2.0])
    leaf = xt.asarray(constant, requires_grad=True)
    assert leaf.requires_grad and not constant.requires_grad
    xt.sum(leaf * leaf).backward()
    np.testing.assert_array_equal(leaf.grad.numpy(), [2.0, 4.0])  # type: ignore[union-attr]
    y = x * 2
    for kept in (xt.asarray(y), xt.asarray(y, copy=True), xt.asarray(y, dtype=xt.float32), xt.asarray([y, y])):
        assert kept.requires_grad
    with xt.no_grad():
        assert not xt.asarray([y, y]).requires_grad
        assert xt.asarray([1.0], requires_grad=True).requires_grad
    assert not xt.asarray(xt.asarray(np.ones(2)), dtype=xt.int64).requires_grad


LEAVING: dict[str, tuple[Callable[[Any], Any], type[Exception]]] = {
    "numpy": (lambda x: x.numpy(), RuntimeError),
    "numpy.asarray": (np.asarray, RuntimeError),
    "numpy.array": (lambda x: np.array(x, dtype=np.float32), RuntimeError),
    "numpy.from_dlpack": (np.from_dlpack, BufferError),
    "dlpack": (lambda x: x.__dlpack__(copy=True), BufferError),
    "in a list": (lambda x: np.asarray([x, x]), RuntimeError),
}


@pytest.mark.parametrize(("leave", "error"), LEAVING.values(), ids=LEAVING)
def test_leaving(leave: Callable[[Any], Any], error: type[Exception]) -> None:
    """What would lose its gradient on the way out says so; a constant of the same values leaves."""
    x = xt.asarray([1.0, 2.0], requires_grad=True)
    for tensor in (x, x * 2, x[1:]):
        with pytest.raises(error, match=r"use x\.detach\(\), or `with xt\.no_grad\(\):`"):
            leave(tensor)
        leave(tensor.detach())
        with xt.no_grad():
            leave(tensor)
    leave(xt.asarray([1.0, 2.0]))


def test_numbers_leave() -> None:
    """Python's numbers, texts and truths leave the graph without a word."""
    x = xt.asarray(1.5, requires_grad=True) * 2
    assert (float(x), int(x), x.item(), x.tolist(), bool(x), complex(x)) == (3.0, 3, 3.0, 3.0, True, 3 + 0j)
    assert (str(x), f"{x:.1f}") == ("3.0", "3.0")
    assert "3." in repr(x)
    assert 3.0 in x[None]


def test_copies_of_leaves() -> None:
    """copy.copy() is a copy with a graph; copy.deepcopy() of a leaf is another leaf, its gradient copied."""
    x = xt.asarray([1.0, 2.0], requires_grad=True)
    xt.sum(x * x).backward()
    other = copy.deepcopy(x)
    assert other.requires_grad and other.grad is not None and other.grad is not x.grad
    np.testing.assert_array_equal(other.grad.numpy(), [2.0, 4.0])
    xt.sum(other).backward()
    np.testing.assert_array_equal(x.grad.numpy(), [2.0, 4.0])  # type: ignore[union-attr]
    for computed in (copy.copy(x), copy.deepcopy(x * 1), x.copy()):
        before = x.grad.numpy().copy()  # type: ignore[union-attr]
        xt.sum(computed).backward()
        np.testing.assert_array_equal(x.grad.numpy(), before + 1)  # type: ignore[union-attr]


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_pickles(protocol: int) -> None:
    """A leaf stays a leaf; a computed tensor is pickled without its graph where that is asked for."""
    x = xt.asarray([1.0, 2.0], requires_grad=True)
    again = pickle.loads(pickle.dumps(x, protocol))
    assert again.requires_grad and again.grad is None
    assert not pickle.loads(pickle.dumps(xt.asarray([1.0]), protocol)).requires_grad
    with pytest.raises(RuntimeError, match=r"pickle: x must not have a gradient"):
        pickle.dumps(x * 2, protocol)
    with xt.no_grad():
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(x * 2, protocol)).numpy(), [2.0, 4.0])
    assert not pickle.loads(pickle.dumps((x * 2).detach(), protocol)).requires_grad


def test_resize() -> None:
    """A tensor with a gradient keeps its shape."""
    x = xt.asarray([1.0, 2.0], requires_grad=True)
    for tensor in (x, x * 2):
        with pytest.raises(RuntimeError, match="resize: x must not have a gradient"):
            tensor.resize((1,))


# ---- mixed dtypes


@pytest.mark.parametrize("f", [xt.add, xt.multiply, xt.divide, xt.pow, xt.atan2, xt.hypot, xt.logaddexp, xt.remainder])
def test_mixed_precision(f: Callable[..., Any]) -> None:
    """The gradient of a float32 argument is float32, that of a float64 one as exact as in double precision."""
    small, large = np.abs(normal(5)).astype(np.float32) + 1, np.abs(normal(5, seed=3)) + 1
    for args in ((small, large), (large, small)):
        got = xt.grad(lambda a, b: xt.sum(f(a, b)), (0, 1))(*[xt.asarray(a) for a in args])
        wanted = xt.grad(lambda a, b: xt.sum(f(a, b)), (0, 1))(*[xt.asarray(a.astype(np.float64)) for a in args])
        for one, other, given in zip(got, wanted, args, strict=True):
            assert one.dtype == given.dtype
            np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-6 if given is small else 1e-14)


def test_dtype_of_reductions() -> None:
    """A gradient has its argument's dtype, whatever the reduction was computed in."""
    x = xt.asarray(np.arange(1, 5, dtype=np.float32))
    for f in (xt.sum, xt.prod, xt.mean, xt.cumulative_sum, xt.cumulative_prod):
        got = xt.grad(lambda x, f=f: xt.sum(f(x, dtype=xt.float64)))(x)
        wanted = xt.grad(lambda x, f=f: xt.sum(f(x)))(xt.astype(x, xt.float64))
        assert got.dtype == xt.float32
        np.testing.assert_allclose(got.numpy(), wanted.numpy(), rtol=1e-7)

"""The tape and the transforms over it: arguments, nesting, in-place writes, what is kept, and when it is let go."""

from __future__ import annotations

import gc
import os
import random
import re
import signal
import subprocess
import sys
import threading
import tracemalloc
import weakref
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest

import xtensor as xt
from tests.samples import complexes, normal
from xtensor.autograd import check_grads
from xtensor.autograd.tape import Step, is_recording
from xtensor.graph.node import Node
from xtensor.tensor.trees import flatten, paths, rebuilt


def asarray(*values: float) -> Any:
    """Return a vector in double precision."""
    return xt.asarray(list(values), dtype=xt.float64)


def required(x: Any) -> Any:
    """Return a tensor, as one that requires a gradient."""
    x.requires_grad = True
    return x


def same(got: Any, wanted: Any) -> None:
    """Check a tensor against what it must be, to the last digits."""
    assert isinstance(got, xt.Tensor)
    np.testing.assert_allclose(got.numpy(), wanted, rtol=1e-12, atol=1e-14)


def cube(x: Any) -> Any:
    return xt.sum(x * x * x)


# ---- arguments of transforms


def weighted(x: Any, y: Any, z: Any, *, power: int = 1) -> Any:
    return xt.sum(x * 2 + y * 3 + z**power * 5)


@pytest.mark.parametrize(
    ("argnums", "wanted"),
    [(0, 2.0), (1, 3.0), (-1, 5.0), (-3, 2.0), ((0, 2), (2.0, 5.0)), ([1], (3.0,)), ((-1, 0), (5.0, 2.0)), ((), ())],
)
def test_argnums(argnums: Any, wanted: Any) -> None:
    """Arguments are named by number, from the end too; several give a tuple in their order."""
    got = xt.grad(weighted, argnums)(*[asarray(1, 2)] * 3)
    assert isinstance(got, tuple) == isinstance(wanted, tuple)
    for one, other in zip(got if isinstance(got, tuple) else (got,), np.atleast_1d(wanted), strict=True):
        same(one, [other, other])


def test_the_same_argument_twice() -> None:
    """Each place at which an argument stands has a gradient of its own."""
    x = asarray(1, 2)
    first, second = xt.grad(lambda a, b: xt.sum(a * b * b), (0, 1))(x, x)
    same(first, [1, 4])
    same(second, [2, 8])


@pytest.mark.parametrize("argnums", [3, -4, (0, 3), (0, -4)])
def test_argnums_out_of_range(argnums: Any) -> None:
    with pytest.raises(ValueError, match=r"grad: argnums must name some of 3 positional arguments, got -?[34]"):
        xt.grad(weighted, argnums)(*[asarray(1)] * 3)


@pytest.mark.parametrize("argnums", [(0, 0), (1, -2)])
@pytest.mark.parametrize("transform", ["grad", "value_and_grad", "jacobian"])
def test_argnums_name_an_argument_once(argnums: Any, transform: str) -> None:
    with pytest.raises(ValueError, match=r": argnums must not name an argument twice, got \("):
        getattr(xt, transform)(weighted, argnums)(*[asarray(1)] * 3)


@pytest.mark.parametrize("transform", ["checkpoint", "custom_vjp", "grad", "hessian", "jacobian", "jvp", "vjp", "vmap"])
def test_transforms_take_functions(transform: str) -> None:
    rest = {"jvp": ((asarray(1),), (asarray(1),)), "vjp": (asarray(1),)}.get(transform, ())
    with pytest.raises(TypeError, match=f"{transform}: f.* must be callable, got int"):
        getattr(xt, transform)(3, *rest)


@pytest.mark.parametrize("argnums", ["x", 1.0, True, None, (0, "y")])
def test_argnums_of_wrong_type(argnums: Any) -> None:
    with pytest.raises(TypeError, match="grad: argnums must be an integer or several"):
        xt.grad(weighted, argnums)(*[asarray(1)] * 3)


def test_no_positional_argument() -> None:
    with pytest.raises(ValueError, match="argnums"):
        xt.grad(weighted)(x=asarray(1), y=asarray(1), z=asarray(1))


def test_keyword_arguments_pass_through() -> None:
    """They are handed on, and have no gradient."""
    same(xt.grad(weighted, 2)(*[asarray(1, 2)] * 3, power=2), [10, 20])
    same(xt.grad(weighted)(asarray(1), z=asarray(1), y=asarray(1)), [2])
    same(xt.jacobian(weighted, 2)(*[asarray(1, 2)] * 3, power=3), [15, 60])


def test_has_aux() -> None:
    """Whatever else f returns comes back beside value and gradient."""

    def f(x: Any) -> Any:
        return xt.sum(x * x), {"seen": x * 2, "text": "hello"}

    (value, aux), slope = xt.value_and_grad(f, has_aux=True)(asarray(1, 2))
    same(value, 5)
    same(slope, [2, 4])
    same(aux["seen"], [2, 4])
    assert aux["text"] == "hello"
    assert not aux["seen"].requires_grad and not value.requires_grad
    slope, aux = xt.grad(f, has_aux=True)(asarray(3))
    same(slope, [6])
    same(aux["seen"], [6])


@pytest.mark.parametrize("result", [lambda x: xt.sum(x), lambda x: [xt.sum(x), 1], lambda x: (xt.sum(x),)])
def test_has_aux_without_a_pair(result: Any) -> None:
    with pytest.raises(TypeError, match="grad: the function must return a pair with has_aux=True"):
        xt.grad(result, has_aux=True)(asarray(1))


class Point(NamedTuple):
    """A pair by names."""

    x: Any
    y: Any


@dataclass(frozen=True)
class Layer:
    """A pair by names."""

    weight: Any
    bias: Any


TREES: dict[str, Callable[[], Any]] = {
    "dict": lambda: {"a": asarray(1, 2), "b": asarray(3)},
    "nested": lambda: {"a": [asarray(1, 2), (asarray(3), {"c": asarray(4, 5)})], "b": []},
    "ordered": lambda: OrderedDict(b=asarray(1), a=asarray(2, 3)),
    "factory": lambda: defaultdict(list, {"b": asarray(1), "a": asarray(2, 3)}),
    "named": lambda: Point(asarray(1, 2), [asarray(3)]),
    "dataclass": lambda: Layer(asarray(1, 2), Point(asarray(3), None)),
    "none": lambda: [None, asarray(1, 2), None],
    "numpy": lambda: [np.asarray([1.0, 2.0]), 3.0],
}
every_tree = pytest.mark.parametrize("tree", TREES.values(), ids=TREES)


@every_tree
def test_trees(tree: Callable[[], Any]) -> None:
    """A gradient is built as its argument is."""

    def f(given: Any) -> Any:
        assert type(given) is type(tree())
        total = xt.zeros(())
        for leaf in flatten(given)[0]:
            total = total + xt.sum(leaf * leaf)
        return total

    got = xt.grad(f)(tree())
    assert type(got) is type(tree())
    assert paths(got, "x") == paths(tree(), "x")
    for one, other in zip(flatten(got)[0], flatten(tree())[0], strict=True):
        same(one, 2 * np.asarray(other))
    check_grads(f, (tree(),), order=2)


@every_tree
def test_flatten_and_rebuild(tree: Callable[[], Any]) -> None:
    """A tree put together of other leaves is of the same kind all the way down, and the first is as it was."""
    first = tree()
    leaves, rebuild = flatten(first)
    other = rebuilt(rebuild, [str(n) for n in range(len(leaves))])
    assert flatten(other)[0] == [str(n) for n in range(len(leaves))]
    assert paths(other, "x") == paths(first, "x")
    assert all(one is before for one, before in zip(flatten(first)[0], leaves, strict=True))


def test_paths() -> None:
    """Leaves are called as Python calls them."""
    assert paths(TREES["nested"](), "p") == ["p['a'][0]", "p['a'][1][0]", "p['a'][1][1]['c']", "p['b']"][:3]
    assert paths(TREES["dataclass"](), "p") == ["p.weight", "p.bias.x"]
    assert paths(1.0, "p") == ["p"]


@pytest.mark.parametrize("value", [3.0, np.float64(3.0), np.asarray(3.0), [3.0]])
def test_python_numbers_as_arguments(value: Any) -> None:
    """Floats and NumPy's arrays become tensors, lists of floats trees of them."""
    got = xt.grad(lambda x: xt.sum((x[0] if isinstance(x, list) else x) ** 2))(value)
    same(got[0] if isinstance(value, list) else got, 6.0)


def test_complex_python_number() -> None:
    same(xt.grad(lambda z: xt.real(z * z))(1 + 2j), 2 - 4j)


@pytest.mark.parametrize(
    ("value", "leaf"), [(3, ""), (True, ""), (np.arange(3), ""), ([1.0, 2], "[1]"), ({"a": {"b": 1}}, "['a']['b']")]
)
@pytest.mark.parametrize("transform", [xt.grad, xt.value_and_grad, xt.jacobian, xt.hessian])
def test_integer_arguments(transform: Any, value: Any, leaf: str) -> None:
    """There is no gradient for integers, and no silent one; the error names the leaf."""
    with pytest.raises(TypeError, match=re.escape(f"argument 0{leaf} must be floating-point, to have a gradient")):
        transform(lambda x: xt.sum(xt.asarray(1.0)))(value)


@pytest.mark.parametrize("value", ["text", object()])
def test_arguments_that_are_no_numbers(value: Any) -> None:
    with pytest.raises(TypeError, match="argument 0"):
        xt.grad(lambda x: xt.sum(xt.asarray(1.0)))(value)


def test_integer_beside_a_floating_argument() -> None:
    """What no gradient is asked for may be anything."""
    same(xt.grad(lambda x, n: xt.sum(x) * n)(asarray(1), 3), [3])


@pytest.mark.parametrize("transform", [xt.grad, xt.value_and_grad])
def test_results_that_are_no_scalars(transform: Any) -> None:
    for f in (lambda x: x, lambda x: xt.sum(x) * 1j, lambda x: xt.argmax(x), lambda x: xt.sum(x)[None]):
        with pytest.raises(ValueError, match="the function must return a real scalar"):
            transform(f)(asarray(1, 2))


@pytest.mark.parametrize("transform", [xt.grad, xt.value_and_grad])
def test_results_that_are_no_tensors(transform: Any) -> None:
    for f in (lambda x: 1.0, lambda x: None, lambda x: (xt.sum(x),)):
        with pytest.raises(TypeError, match="the function must return a tensor"):
            transform(f)(asarray(1, 2))


def test_vjp_of_no_tensors() -> None:
    with pytest.raises(TypeError, match="vjp: the function must return tensors, got float"):
        xt.vjp(lambda x: {"a": 1.0}, asarray(1))


def test_constant_function() -> None:
    """Where nothing depends on an argument its gradient is zeros."""
    same(xt.grad(lambda x: xt.asarray(1.0))(asarray(1, 2)), [0, 0])
    got = xt.grad(lambda x, y: xt.sum(x), 1)(asarray(1), xt.ones((2, 0), dtype=xt.float32))
    assert (got.shape, got.dtype) == ((2, 0), xt.float32)
    same(xt.grad(lambda x: xt.sum(xt.floor(x) + xt.round(x)))(asarray(1.5)), [0])


def test_identity() -> None:
    """f may return its argument."""
    value, slope = xt.value_and_grad(lambda x: x)(xt.asarray(2.0))
    same(value, 2)
    same(slope, 1)


def test_the_functions_keep_their_names() -> None:
    for transform in (xt.grad, xt.value_and_grad, xt.jacobian, xt.hessian, xt.checkpoint):
        assert transform(weighted).__name__ == "weighted"


def test_gradients_can_be_written() -> None:
    """Each has memory of its own, though rules hand the same one on."""
    x, y = asarray(1, 2), asarray(3, 4)
    first, second = xt.grad(lambda a, b: xt.sum(a + b), (0, 1))(x, y)
    first += 1
    same(second, [1, 1])
    value, third = xt.value_and_grad(lambda a: a)(xt.asarray(2.0))
    third += 1
    same(value, 2)
    g = asarray(1, 1)
    _, pull = xt.vjp(lambda a: a, x)
    (back,) = pull(g)
    back += 5
    same(g, [1, 1])


# ---- vjp, jvp, and matrices of derivatives


def test_vjp_twice() -> None:
    """The pullback may be called again, and is linear."""
    out, pull = xt.vjp(lambda x, y: {"product": x * y, "sum": x + y}, asarray(1, 2), asarray(3, 4))
    same(out["product"], [3, 8])
    for factor in (1.0, 2.0):
        g = {"product": asarray(1, 10) * factor, "sum": asarray(0, 0)}
        by_x, by_y = pull(g)
        same(by_x, np.asarray([3, 40]) * factor)
        same(by_y, np.asarray([1, 20]) * factor)


def test_vjp_refuses_other_shapes() -> None:
    _, pull = xt.vjp(lambda x: x * x, asarray(1, 2))
    for wrong in (1.0, asarray(1, 2, 3), asarray(1), [asarray(1, 2), asarray(1, 2)], {}):
        with pytest.raises(ValueError, match=r"vjp: the cotangent must have shapes \[\(2,\)\]"):
            pull(wrong)


def test_vjp_with_integer_results() -> None:
    """They have cotangents of their shape, which say nothing."""
    out, pull = xt.vjp(lambda x: (x * x, xt.argsort(x)), asarray(3, 1))
    assert out[1].dtype.kind == "i"
    same(pull((asarray(1, 1), asarray(9, 9)))[0], [6, 2])


def test_jvp() -> None:
    """Forward mode: the derivative along tangents, of trees and several arguments."""
    out, pushed = xt.jvp(
        lambda p, y: {"s": xt.sum(p["x"] * y), "v": xt.sin(y)},
        ({"x": asarray(1, 2)}, asarray(3, 4)),
        ({"x": asarray(1, 0)}, asarray(0, 1)),
    )
    same(out["s"], 11)
    same(pushed["s"], 3 + 2)
    same(pushed["v"], [0, np.cos(4)])


def test_jvp_of_complex_arguments() -> None:
    z, t = complexes(3), complexes(3, seed=5)
    _, pushed = xt.jvp(lambda z: xt.exp(z) * z, (z,), (t,))
    same(pushed, np.exp(z) * (1 + z) * t)


def test_jvp_refuses_other_shapes() -> None:
    for function in (xt.jvp, xt.hvp):
        with pytest.raises(TypeError, match="primals must be a tuple or a list, of one for each argument, got Tensor"):
            function(lambda x: xt.sum(x**3), xt.ones((1, 3)), xt.ones((1, 3)))  # rows are no arguments
    with pytest.raises(ValueError, match="hvp: the tangents must have shapes"):
        xt.hvp(lambda x: xt.sum(x**3), (xt.ones(3),), (xt.ones(4),))
    with pytest.raises(ValueError, match="jvp: the tangents must have shapes"):
        xt.jvp(cube, (asarray(1, 2),), (asarray(1),))
    with pytest.raises(ValueError, match="jvp: the tangents must have shapes"):
        xt.jvp(cube, (asarray(1, 2),), ())


def test_jacobian() -> None:
    """Shape of the result, then shape of the argument; trees of them for trees."""
    a, x = normal(3, 2), normal(2, 4)
    same(xt.jacobian(lambda x: xt.asarray(a) @ x)(x), np.einsum("ik,jl->ijkl", a, np.eye(4)))
    got = xt.jacobian(lambda p, y: p["x"] * y, (0, 1))({"x": asarray(1, 2)}, asarray(3, 4))
    same(got[0]["x"], np.diag([3, 4]))
    same(got[1], np.diag([1, 2]))
    same(xt.jacobian(lambda x: xt.sum(x))(asarray(1, 2)), [1, 1])
    assert xt.jacobian(lambda x: x[:0])(asarray(1, 2)).shape == (0, 2)


@pytest.mark.parametrize("fused", [False, True])
def test_jacobian_of_more_results_than_arguments(fused: bool) -> None:
    """Columns are what differences say, and what rows are: of trees, results with axes, and their own gradients."""
    t = np.linspace(0, 1, 7)

    def model(p: Any, shift: xt.Tensor) -> xt.Tensor:
        wave = p["height"] * xt.exp(-p["rates"][0] * xt.asarray(t)) * xt.sin(p["rates"][1] * xt.asarray(t))
        return xt.stack([wave + shift, wave * shift])

    given = {"height": xt.asarray(2.0), "rates": asarray(0.5, 3.0)}, asarray(0.25)
    both = xt.jacobian(model, (0, 1))
    for _ in range(3):
        of_p, of_shift = (xt.fuse(both) if fused else both)(*given)
    decay, angle = np.exp(-0.5 * t), 3.0 * t
    height, rates = decay * np.sin(angle), [-t * 2 * decay * np.sin(angle), 2 * t * decay * np.cos(angle)]
    same(of_p["height"], [height, 0.25 * height])
    same(of_p["rates"], np.stack([np.stack(rates, -1), 0.25 * np.stack(rates, -1)]))
    same(of_shift, np.stack([np.ones(7), 2 * height])[..., None])
    curved = xt.grad(lambda x: xt.sum(xt.jacobian(lambda x: xt.exp(x) * xt.ones(4))(x) ** 2))(xt.asarray(0.5))
    same(curved, 8 * np.exp(1.0))


def test_jacobian_by_rows_where_a_way_back_is_the_users() -> None:
    """A rule that is not linear, or asks for values, is given the unit cotangents of rows."""
    seen = []

    @xt.custom_vjp
    def spread(x: xt.Tensor) -> xt.Tensor:
        return x * xt.ones(3)

    def backward(kept: Any, g: xt.Tensor) -> tuple[xt.Tensor]:
        seen.append(g.numpy().tolist())
        return (xt.sum(xt.clip(g, -0.5, 0.5)),)

    spread.defvjp(lambda x: (x * xt.ones(3), None), backward)
    same(xt.jacobian(spread)(xt.asarray(2.0)), [0.5, 0.5, 0.5])
    same(xt.jacobian(xt.checkpoint(spread))(xt.asarray(2.0)), [0.5, 0.5, 0.5])
    assert seen == np.eye(3).tolist() * 2


@pytest.mark.parametrize("f", [lambda x: x * 1j, lambda x: (x, x), lambda x: xt.argsort(x)])
def test_jacobian_of_what_has_none(f: Any) -> None:
    with pytest.raises(TypeError, match="jacobian: the function must return a real tensor|vjp: the function"):
        xt.jacobian(f)(asarray(1, 2))


def quadratic() -> tuple[Any, Any, Any]:
    """Return a matrix, a quadratic form with it, and a point."""
    a = normal(4, 4)
    return a, lambda x: x @ xt.asarray(a) @ x + xt.sum(xt.sin(x)), normal(4)


def test_hessian() -> None:
    a, f, x = quadratic()
    same(xt.hessian(f)(xt.asarray(x)), a + a.T - np.diag(np.sin(x)))


def test_hvp() -> None:
    a, f, x = quadratic()
    v = normal(4, seed=3)
    same(xt.hvp(f, (x,), (v,)), (a + a.T - np.diag(np.sin(x))) @ v)
    first, second = xt.hvp(
        lambda x, y: xt.sum(x * x * y), (asarray(1, 2), asarray(3, 4)), (asarray(1, 0), asarray(0, 1))
    )
    same(first, [6, 4])  # 2 y u + 2 x v
    same(second, [2, 0])  # 2 x u


def test_hessian_of_a_linear_function() -> None:
    same(xt.hessian(lambda x: xt.sum(x) * 3)(asarray(1, 2)), np.zeros((2, 2)))


# ---- nesting


@pytest.mark.parametrize("order", range(5))
def test_higher_derivatives(order: int) -> None:
    """Transforms nest to any order."""
    f: Any = lambda x: xt.sin(2 * x) * xt.exp(x)  # noqa: E731
    for _ in range(order):
        f = xt.grad(f)
    wanted = np.imag((1 + 2j) ** order * np.exp((1 + 2j) * 0.7))
    np.testing.assert_allclose(float(f(xt.asarray(0.7))), wanted, rtol=1e-12)


def test_third_derivative_of_vectors() -> None:
    third = xt.jacobian(xt.hessian(cube))(asarray(1, 2))
    wanted = np.zeros((2, 2, 2))
    wanted[[0, 1], [0, 1], [0, 1]] = 6
    same(third, wanted)


def test_perturbations_are_not_confused() -> None:
    """What an inner transform differentiates for is not what the outer one does."""
    same(xt.grad(lambda x: x * xt.grad(lambda y: x + y)(xt.asarray(1.0)))(xt.asarray(1.0)), 1)
    same(xt.grad(lambda x: x * xt.grad(lambda y: x * y)(xt.asarray(5.0)))(xt.asarray(3.0)), 6)
    same(xt.grad(lambda x: xt.grad(lambda y: x * y * y)(x))(xt.asarray(3.0)), 12)  # 2xy at y = x
    same(xt.grad(lambda x: xt.grad(lambda y: xt.grad(lambda z: x * y * z)(y) * y)(x))(xt.asarray(3.0)), 12)
    inner = lambda x: xt.jvp(lambda y: x + y, (1.0,), (1.0,))[1] * x  # noqa: E731
    same(xt.jvp(inner, (xt.asarray(1.0),), (xt.asarray(1.0),))[1], 1)


def test_captured_tensors() -> None:
    """Inside, outer variables are constants of the inner transform and variables of the outer one."""

    def outer(w: Any) -> Any:
        slope = xt.grad(lambda x: xt.sum(w * x * x))(asarray(1, 2))  # 2 w x
        return xt.sum(slope * w)  # 2 w^2 x

    same(xt.grad(outer)(asarray(3, 4)), [12, 32])


def test_captured_leaf() -> None:
    """A leaf that f reads besides its arguments gets its gradient through the transform's result."""
    w = required(asarray(3, 4))
    slope = xt.grad(lambda x: xt.sum(w * x * x))(asarray(1, 2))
    xt.sum(slope * slope).backward()
    same(w.grad, 2 * 4 * np.asarray([3, 4]) * np.asarray([1, 4]))  # (2 w x)^2
    value, pull = xt.vjp(lambda x: x * w, asarray(1, 2))
    w.grad = None
    xt.sum(pull(asarray(1, 1))[0] * 2 + value * 3).backward()
    same(w.grad, [5, 8])


def test_jvp_of_grad_and_grad_of_jvp() -> None:
    """Both are the Hessian times a vector."""
    a, f, x = quadratic()
    v = normal(4, seed=9)
    wanted = (a + a.T - np.diag(np.sin(x))) @ v
    same(xt.jvp(xt.grad(f), (x,), (v,))[1], wanted)
    same(xt.grad(lambda x: xt.jvp(f, (x,), (v,))[1])(x), wanted)
    _, twice = xt.jvp(lambda x: xt.jvp(f, (x,), (v,))[1], (x,), (v,))
    same(twice, v @ wanted)


def test_vjp_of_vjp() -> None:
    """The pullback can be differentiated for its cotangent."""
    _, pull = xt.vjp(lambda x: x * x, asarray(1, 2))
    got = xt.grad(lambda g: xt.sum(pull(g)[0] ** 2))(asarray(3, 4))
    same(got, [2 * 4 * 3, 2 * 16 * 4])


def test_results_of_a_transform_are_constants_outside() -> None:
    """When no other transform is at work, nothing hangs on to the tape."""
    x = asarray(1, 2)
    value, slope = xt.value_and_grad(cube)(x)
    out, pull = xt.vjp(lambda x: x * x, x)
    (back,) = pull(asarray(1, 1))
    for one in (x, value, slope, out, back, xt.jacobian(lambda x: x * x)(x), xt.hessian(cube)(x)):
        assert not one.requires_grad


# ---- constants


def test_stop_gradient() -> None:
    same(xt.grad(lambda x: xt.sum(x * xt.stop_gradient(x)))(asarray(2, 3)), [2, 3])
    assert not xt.stop_gradient(required(asarray(1))).requires_grad
    y = xt.stop_gradient(x := asarray(1, 2))
    y[0] = 9
    same(x, [1, 2])


def test_no_grad() -> None:
    """As a context manager, as a decorator, nested, and after an exception."""
    x = required(asarray(1, 2))
    with xt.no_grad():
        assert not (x * x).requires_grad
        with xt.no_grad():
            assert not is_recording()
        assert not is_recording()
    assert (x * x).requires_grad

    @xt.no_grad()
    def f(x: Any) -> Any:
        """Compute."""
        assert not is_recording()
        return x * x if x is not None else 1 / 0

    assert f.__name__ == "f" and f.__doc__ == "Compute."
    assert not f(x).requires_grad
    with pytest.raises(ZeroDivisionError):
        f(None)
    assert is_recording()
    same(xt.grad(lambda x: xt.sum(f(x) * x))(asarray(2, 3)), [4, 9])


def test_no_grad_in_threads() -> None:
    """Each thread has its own."""
    inside, over = threading.Event(), threading.Event()
    found = []

    def work() -> None:
        found.append(is_recording())
        with xt.no_grad():
            inside.set()
            over.wait(10)
        found.append(is_recording())

    thread = threading.Thread(target=work)
    thread.start()
    inside.wait(10)
    found.append(is_recording())
    over.set()
    thread.join()
    assert found == [True, True, True]
    decorated = xt.no_grad()(lambda n: is_recording() or n)
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(decorated, range(200))) == list(range(200))


def test_no_grad_on_a_generator() -> None:
    """A decorated generator runs without, and who takes from it with."""
    seen: list[Any] = []

    @xt.no_grad()
    def numbers() -> Iterator[Any]:
        """Count."""
        try:
            got = yield is_recording()
            seen.append(got)
            try:
                yield is_recording()
            except KeyError:
                seen.append(is_recording())
                yield is_recording()
        finally:
            seen.append(("end", is_recording()))
        return 7

    assert numbers.__doc__ == "Count."
    one = numbers()
    assert next(one) is False and is_recording()
    assert one.send("hello") is False and is_recording()
    assert one.throw(KeyError) is False and is_recording()
    with pytest.raises(StopIteration) as end:
        next(one)
    assert end.value.value == 7
    assert seen == ["hello", False, ("end", False)]
    other = numbers()
    next(other)
    other.close()
    assert seen[-1] == ("end", False) and is_recording()


def test_no_grad_within_a_generator() -> None:
    def numbers() -> Iterator[bool]:
        with xt.no_grad():
            yield is_recording()
        yield is_recording()

    assert list(numbers()) == [False, True]
    assert is_recording()


# ---- the tape used directly


def leaf(*values: float) -> Any:
    """Return a vector that requires a gradient."""
    return required(asarray(*values))


def test_backward() -> None:
    x = leaf(1, 2)
    assert x.requires_grad and x.grad is None
    y = xt.sum(x * x)
    assert y.requires_grad and y.grad is None
    y.backward()
    same(x.grad, [2, 4])
    assert not x.grad.requires_grad


def test_gradients_add_up() -> None:
    """Two backwards add; setting .grad starts anew."""
    x = leaf(1, 2)
    cube(x).backward()
    first = x.grad
    cube(x).backward()
    same(x.grad, [6, 24])
    assert x.grad is first
    x.grad = None
    assert x.grad is None
    cube(x).backward()
    same(x.grad, [3, 12])
    x.grad = xt.zeros(2, dtype=xt.float64)
    cube(x).backward()
    same(x.grad, [3, 12])


def test_several_leaves() -> None:
    x, y, z = leaf(1, 2), leaf(3, 4), leaf(5, 6)
    xt.sum(x * y).backward()
    same(x.grad, [3, 4])
    same(y.grad, [1, 2])
    assert z.grad is None
    xt.sum(x + y).backward()
    x.grad += 100
    same(y.grad, [2, 3])


def test_a_graph_is_used_up() -> None:
    """A second backward needs retain_graph at the first."""
    x = leaf(1, 2)
    y = cube(x)
    y.backward(retain_graph=True)
    y.backward()
    same(x.grad, [6, 24])
    with pytest.raises(RuntimeError, match=r"backward: the result must still have its graph \(backward\(retain_graph"):
        y.backward()
    same(x.grad, [6, 24])


def test_a_part_of_a_graph_is_used_up() -> None:
    x = leaf(1, 2)
    shared = x * x
    xt.sum(shared * 2).backward()
    with pytest.raises(RuntimeError, match="already used"):
        xt.sum(shared * 3).backward()


def test_backward_with_a_cotangent() -> None:
    x = leaf(1, 2)
    (x * x).backward(asarray(1, 10))
    same(x.grad, [2, 40])
    x.grad = None
    (x * 3).backward(np.asarray([1, 2]))
    same(x.grad, [3, 6])


@pytest.mark.parametrize("g", [1.0, asarray(1), asarray(1, 2, 3)])
def test_backward_with_a_cotangent_of_wrong_shape(g: Any) -> None:
    with pytest.raises(ValueError, match=r"backward: gradient must have x's shape \(2,\), got shape"):
        (leaf(1, 2) * 2).backward(g)


def test_backward_of_what_is_no_scalar() -> None:
    for y in (leaf(1, 2) * 2, xt.sum(leaf(1)) * 1j):
        with pytest.raises(ValueError, match="backward: x must be a real scalar where no gradient is given"):
            y.backward()


def test_backward_of_a_constant() -> None:
    with xt.no_grad():
        y = xt.sum(leaf(1, 2))
    for one in (asarray(1), y, xt.argmax(leaf(1, 2))):
        with pytest.raises(RuntimeError, match="backward: x must depend on a tensor that requires a gradient"):
            one.backward()


def test_requires_grad() -> None:
    x = asarray(1, 2)
    assert not x.requires_grad
    x.requires_grad = True
    cube(x).backward()
    same(x.grad, [3, 12])
    x.requires_grad = False
    assert not x.requires_grad and not (x * x).requires_grad and x.grad is None
    for wrong in (1, "yes", None):
        with pytest.raises(TypeError, match="requires_grad: the value must be True or False"):
            x.requires_grad = wrong
    with pytest.raises(TypeError, match="requires_grad: x must be floating-point"):
        xt.asarray([1, 2]).requires_grad = True
    y = leaf(1) * 2
    y.requires_grad = True  # it is
    with pytest.raises(RuntimeError, match="requires_grad: x must be a leaf"):
        y.requires_grad = False


def test_what_grad_can_be_set_to() -> None:
    x = leaf(1, 2)
    for wrong in (1.0, asarray(1), xt.asarray([1.0, 2.0], dtype=xt.float32), np.asarray([1.0, 2.0])):
        with pytest.raises(ValueError, match="grad: the value must be None or a tensor of float64 and"):
            x.grad = wrong
    for other in (asarray(1, 2), x * 2):
        with pytest.raises(RuntimeError, match="grad: x must be a leaf"):
            other.grad = None


def test_a_leaf_is_not_written() -> None:
    """Outside no_grad a write would take the gradient's meaning away; through a view as well."""
    x = leaf(1, 2, 3)
    writes: list[Callable[[], Any]] = [
        lambda: x.__iadd__(1),
        lambda: x.__setitem__(0, 5.0),
        lambda: x.__setitem__(x > 1, 5.0),
        lambda: x[1:].__imul__(2),
        lambda: x[1:][0, ...].__imul__(2),
        lambda: xt.flip(x).__setitem__(..., 0.0),
    ]
    for write in writes:
        with pytest.raises(RuntimeError, match="must not be a tensor that requires a gradient"):
            write()
    same(x.detach(), [1, 2, 3])
    with xt.no_grad():
        for write in writes:
            write()
    cube(x).backward()
    same(x.grad, 3 * x.detach().numpy() ** 2)


def test_descent() -> None:
    """A loop that writes into leaves under no_grad finds the minimum."""
    target = normal(3)
    w = xt.zeros(3, dtype=xt.float64)
    w.requires_grad = True
    for _ in range(100):
        loss = xt.sum((w - xt.asarray(target)) ** 2)
        loss.backward()
        with xt.no_grad():
            w -= 0.1 * w.grad
        w.grad = None
        assert w.requires_grad
    np.testing.assert_allclose(w.detach().numpy(), target, rtol=1e-6)


def test_descent_with_item_assignment() -> None:
    w = leaf(1, 2)
    for _ in range(3):
        cube(w).backward()
        with xt.no_grad():
            w[...] = w - 0.01 * w.grad
            w.grad[...] = 0
    x = np.asarray([1.0, 2.0])
    for _ in range(3):
        x = x - 0.01 * 3 * x * x
    same(w.detach(), x)


def test_detach() -> None:
    """It shares memory, and no gradient goes through it, nor through views of it."""
    x = leaf(1, 2)
    d = x.detach()
    assert not d.requires_grad and not d[1:].requires_grad
    d[0] = 7
    same(x.detach(), [7, 2])
    xt.sum(x * d).backward()
    same(x.grad, [7, 2])


def test_detach_of_what_was_written() -> None:
    """Neither where the memory has a history."""

    def f(x: Any) -> Any:
        y = x * x
        y[0] = x[1]
        d = y.detach()
        assert not d.requires_grad and not d[:1].requires_grad and not xt.flip(d).requires_grad
        assert y.requires_grad and y[1:].requires_grad
        return xt.sum(y * d)

    same(xt.grad(f)(asarray(3, 2)), [0, 2 + 4 * 4])


def test_writes_through_detached_memory() -> None:
    """They are not recorded, and those of others are constants to it."""

    def through(x: Any) -> Any:
        y = x * x
        d = y.detach()
        d[0] = x[0]
        assert not d.requires_grad
        return xt.sum(y * 3 + d)

    def beside(x: Any) -> Any:
        y = x * x
        d = y.detach()
        y[0] = x[1]
        return xt.sum(y * d)

    same(xt.grad(through)(asarray(3, 4)), [18, 24])
    same(xt.grad(beside)(asarray(3, 4)), [0, 4 + 8 * 16])


def test_writes_through_views_made_without_recording() -> None:
    """The rest of the memory keeps its gradient."""

    def f(x: Any) -> Any:
        y = x * x
        with xt.no_grad():
            v = y[1:]
        v[0] = x[0]
        return xt.sum(y)

    same(xt.grad(f)(asarray(3, 4)), [7, 0])


def test_transforms_of_what_was_written() -> None:
    """An argument begins anew, whatever was written into its memory before, and is seen as it is by others after."""
    y = asarray(1, 2) * 1
    y[0] = leaf(5)[0]
    assert y.requires_grad
    same(xt.grad(cube)(y).detach(), [75, 12])
    z = leaf(3, 4)
    w = z * 1
    w *= z
    w[1] = 1.0
    same(xt.grad(lambda v: xt.sum(v * v * w.detach()))(w).detach(), [2 * 81, 2])
    xt.sum(xt.grad(cube)(w)).backward()  # 6 w * dw/dz
    same(z.grad, [6 * 9 * 2 * 3, 0])

    def overwriting(v: Any) -> Any:
        v[0] = v[1] * v[1]
        return xt.sum(v * v)

    a = asarray(3, 4)
    same(xt.grad(overwriting)(a), [0, 4 * 4**3 + 8])
    same(a.detach(), [16, 4])
    same(xt.hessian(overwriting)(asarray(3, 4)), [[0, 0], [0, 12 * 16 + 2]])


def test_backward_in_a_transform() -> None:
    """Both ways stand on one tape."""
    w = leaf(2)

    def f(x: Any) -> Any:
        xt.sum(w * w * 3).backward()
        return xt.sum(x * x)

    same(xt.grad(f)(asarray(3)), [6])
    same(w.grad, [12])


def test_complex_leaves() -> None:
    z = required(xt.asarray([1 + 2j]))
    xt.sum(xt.real(z * xt.conj(z))).backward()
    same(z.grad, [2 + 4j])


# ---- functions with rules of their own


@pytest.fixture
def doubled() -> Any:
    """A product whose gradient is twice what it should be, so that one sees it at work."""

    @xt.custom_vjp
    def f(x: Any, y: Any) -> Any:
        """Multiply."""
        return x * y

    f.defvjp(lambda x, y: (x * y, (x, y)), lambda kept, g: (2 * g * kept[1], 2 * g * kept[0]))
    return f


def test_custom_vjp(doubled: Any) -> None:
    first, second = xt.grad(lambda x, y: xt.sum(doubled(x, y)), (0, 1))(asarray(1, 2), asarray(3, 4))
    same(first, [6, 8])
    same(second, [2, 4])
    same(xt.grad(lambda x: xt.sum(doubled(x, asarray(3, 4))))(asarray(1, 2)), [6, 8])
    assert doubled.__name__ == "f" and doubled.__doc__ == "Multiply."
    same(doubled(asarray(1), asarray(2)), [2])


def test_custom_vjp_second_order(doubled: Any) -> None:
    """Its backward is written in functions that have gradients."""
    slope = xt.grad(lambda x: xt.sum(xt.grad(lambda x: xt.sum(doubled(x, x)))(x)))
    same(slope(asarray(1, 2)), [4, 4])  # the gradient is 4 x: two terms of 2 x, kept with their steps


def test_custom_vjp_returns_its_argument() -> None:
    @xt.custom_vjp
    def f(x: Any) -> Any:
        return x

    f.defvjp(lambda x: (x, None), lambda kept, g: (-g,))
    same(xt.grad(lambda x: xt.sum(f(x) * 2 + x))(asarray(1)), [-1])


def test_custom_vjp_keeps_what_is_overwritten(doubled: Any) -> None:
    def f(x: Any) -> Any:
        a, b = x * 1, x + 1
        y = doubled(a, b)
        a[...] = 0
        b *= 100
        return xt.sum(y)

    same(xt.grad(f)(asarray(1, 2)), [2 * (2 + 1), 2 * (3 + 2)])


@pytest.mark.parametrize(
    ("result", "error", "text"),
    [
        (lambda g: g, TypeError, "return a tuple of 2 cotangents, got Tensor"),
        (lambda g: (g,), TypeError, "return a tuple of 2 cotangents, got 1 of them"),
        (lambda g: (g, g, g), TypeError, "return a tuple of 2 cotangents, got 3 of them"),
        (lambda g: (g, g[:1]), ValueError, r"return shape \(2,\) for argument 1, got shape \(1,\)"),
        (lambda g: (xt.sum(g), g), ValueError, r"return shape \(2,\) for argument 0, got shape \(\)"),
        (lambda g: (g * 1j, g), TypeError, "return a real floating-point tensor for argument 0, got complex128"),
        (lambda g: (xt.astype(g, xt.int64), g), TypeError, "for argument 0, got int64"),
        (lambda g: (g, 0.0), TypeError, "for argument 1, got float"),
    ],
)
def test_custom_vjp_refuses(result: Any, error: Any, text: str) -> None:
    @xt.custom_vjp
    def f(x: Any, y: Any) -> Any:
        return x * y

    f.defvjp(lambda x, y: (x * y, None), lambda kept, g: result(g))
    with pytest.raises(error, match=text):
        xt.grad(lambda x, y: xt.sum(f(x, y)), (0, 1))(asarray(1, 2), asarray(3, 4))


def test_custom_vjp_none_is_zero() -> None:
    @xt.custom_vjp
    def f(x: Any, y: Any) -> Any:
        return x * y

    f.defvjp(lambda x, y: (x * y, y), lambda y, g: (g * y, None))
    first, second = xt.grad(lambda x, y: xt.sum(f(x, y)), (0, 1))(asarray(1, 2), asarray(3, 4))
    same(first, [3, 4])
    same(second, [0, 0])


def test_custom_vjp_without_a_rule() -> None:
    f = xt.custom_vjp(lambda x: x * x)
    same(f(asarray(2)), [4])
    with pytest.raises(RuntimeError, match="must have its rule"):
        xt.grad(lambda x: xt.sum(f(x)))(asarray(2))


def test_custom_vjp_whose_forward_returns_no_tensor() -> None:
    f = xt.custom_vjp(lambda x: x * x)
    f.defvjp(lambda x: (2.0, None), lambda kept, g: (g,))
    with pytest.raises(TypeError, match="forward must return a tensor first"):
        xt.grad(lambda x: xt.sum(f(x)))(asarray(2))


def messy(x: Any, w: Any) -> Any:
    """Return something with intermediates, views and writes in it."""
    y = xt.exp(x * w)
    y[0] = x[1]
    y[1:] *= 2
    return xt.sin(y) * x


@pytest.mark.parametrize(
    "wrap",
    [
        lambda f: xt.checkpoint(f),
        lambda f: xt.checkpoint(xt.checkpoint(f)),
        lambda f: xt.checkpoint(lambda x, w: xt.checkpoint(f)(x * 1, w) * 1),
    ],
)
def test_checkpoint(wrap: Any) -> None:
    """The same gradients, at first and second order, nested or not."""
    x, w = asarray(0.3, 0.5, 0.7), asarray(0.2, 0.1, 0.4)
    f = wrap(messy)
    plain = xt.grad(lambda x, w: xt.sum(messy(x, w)), (0, 1))(x, w)
    for got, wanted in zip(xt.grad(lambda x, w: xt.sum(f(x, w)), (0, 1))(x, w), plain, strict=True):
        same(got, wanted.numpy())
    check_grads(f, (x, w), order=2)
    same(f(x, w), messy(x, w).numpy())


def test_checkpoint_of_captured_tensors() -> None:
    """What the function reads besides its arguments has gradients too."""
    w = leaf(2, 3)
    f = xt.checkpoint(lambda x: xt.exp(x) * w * w)
    x = leaf(0, 1)
    xt.sum(f(x)).backward()
    same(w.grad, 2 * np.asarray([2, 3]) * np.exp([0, 1]))
    same(x.grad, np.asarray([4, 9]) * np.exp([0, 1]))
    same(xt.grad(lambda v: xt.sum(xt.checkpoint(lambda x: x * v * v)(asarray(1, 2))))(asarray(3, 4)), [6, 16])


def test_checkpoint_after_its_arguments_were_overwritten() -> None:
    def f(x: Any) -> Any:
        y = x * 2
        z = xt.checkpoint(lambda y: y * y)(y)
        y[...] = 0
        return xt.sum(z)

    same(xt.grad(f)(asarray(1, 2)), [8, 16])


def test_checkpoint_of_arguments_that_depend_on_each_other() -> None:
    """What leads from one argument to another is no part of the function."""
    f = xt.checkpoint(lambda x, y: x * y)
    same(xt.grad(lambda x: xt.sum(f(x, x * 2)))(asarray(1, 2)), [4, 8])
    x = leaf(1, 2)
    y = x * 2
    z = y * y
    total = xt.sum(xt.checkpoint(lambda x: x * y * z)(x))  # 8 x^4
    total.backward(retain_graph=True)
    same(x.grad, [32, 256])
    total.backward()
    same(x.grad, [64, 512])


def test_checkpoint_leaves_steps_of_others() -> None:
    """What it goes through on the way back, but was there before, can be gone through again."""
    x = leaf(1, 2)
    w = x * 1
    w[0] = 5.0
    y = xt.checkpoint(lambda v: v * w)(x)
    xt.sum(y + w * 3).backward()
    same(x.grad, [5, 2 * 2 + 3])


def test_checkpoint_with_trees_and_keywords() -> None:
    @xt.checkpoint
    def f(p: Any, *, power: int) -> Any:
        return {"y": p["x"] ** power, "z": p["x"] * 2}

    def loss(p: Any) -> Any:
        found = f(p, power=3)
        return xt.sum(found["y"] + found["z"])

    same(xt.grad(loss)({"x": asarray(1, 2)})["x"], [5, 14])


def test_checkpoint_one_of_several_results() -> None:
    f = xt.checkpoint(lambda x: (x * x, x * 3, xt.argsort(x)))
    same(xt.grad(lambda x: xt.sum(f(x)[1]))(asarray(1, 2)), [3, 3])


def test_checkpoint_of_constants() -> None:
    calls = []

    @xt.checkpoint
    def f(x: Any) -> Any:
        calls.append(x)
        return x * x

    same(f(asarray(2)), [4])
    with xt.no_grad():
        assert not f(leaf(2)).requires_grad
    assert len(calls) == 2
    y = f(leaf(2))
    y.backward(asarray(1))
    assert len(calls) == 4


def test_checkpoint_is_used_up() -> None:
    x = leaf(1, 2)
    y = xt.sum(xt.checkpoint(lambda x: x * x * x)(x))
    y.backward(retain_graph=True)
    y.backward()
    same(x.grad, [6, 24])
    with pytest.raises(RuntimeError, match="already used"):
        y.backward()


# ---- what is kept is protected from writes

LARGE = 40_000  # numbers: more than is computed at once


@pytest.mark.parametrize("size", [3, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("lazy", ["auto", "always", "never"])
@pytest.mark.parametrize("made", ["fresh", "computed", "pending", "view"])
@pytest.mark.parametrize("through", ["base", "view", "rows", "update", "older view"])
def test_writes_after_a_product(size: int, lazy: str, made: str, through: str) -> None:
    """y = x * x; then x is overwritten: the way back sees the old x."""
    values = np.linspace(1, 2, size)

    def f(x: Any) -> Any:
        base = x * 1
        x = {"fresh": base, "computed": base.evaluate(), "pending": base + 0, "view": base[::-1]}[made]
        older = x[1:]
        y = x * x
        if through == "base":
            x[...] = 0
        elif through == "view":
            x[: size // 2] = 5
        elif through == "rows":
            xt.reshape(x, (1, size))[0] = 7
        elif through == "update":
            x *= 3
        else:
            older[...] = -1
        return xt.sum(y)

    with xt.options(lazy=lazy):
        same(xt.grad(f)(xt.asarray(values)), 2 * values)


@pytest.mark.parametrize("size", [3, LARGE], ids=["small", "large"])
def test_constants_written_afterwards(size: int) -> None:
    """A factor without a gradient is kept as well, written from NumPy's side excepted."""
    values = np.linspace(1, 2, size)
    c, x = xt.asarray(values.copy()), required(xt.asarray(values))
    view = c[1:]
    y = xt.sum(x * c)
    c[0] = 100
    view *= 50
    y.backward()
    same(x.grad, values)


def test_results_written_afterwards() -> None:
    """exp keeps its result: a write into it moves what was kept aside, and goes on from the written one."""

    def f(x: Any) -> Any:
        y = xt.exp(x)
        z = y * 1
        y *= y
        return xt.sum(z + y)

    x = np.asarray([0.1, 0.2])
    same(xt.grad(f)(xt.asarray(x)), np.exp(x) + 2 * np.exp(2 * x))


def test_leaf_written_without_recording() -> None:
    """Under no_grad a leaf may change between forward and backward: the gradient is of the forward."""
    x = leaf(1, 2)
    y = cube(x)
    with xt.no_grad():
        x += 10
    y.backward()
    same(x.grad, [3, 12])
    x.grad = None
    cube(x).backward()
    same(x.grad, [3 * 121, 3 * 144])


# ---- long tapes


def deep(recursion: Callable[[], Any]) -> Any:
    """Run something under a low limit of recursion."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(400)
    try:
        return recursion()
    finally:
        sys.setrecursionlimit(before)


def chain(x: Any, count: int) -> Any:
    for _ in range(count):
        x = x * 1.0
    return x


@pytest.mark.parametrize(
    "count", [20_000, pytest.param(1_000_000, marks=pytest.mark.long)], ids=["thousands", "a million"]
)
@pytest.mark.parametrize("lazy", ["auto", "always"])
def test_long_tapes(count: int, lazy: str) -> None:
    """So many steps are walked and let go without recursion."""
    with xt.options(lazy=lazy):
        x = required(xt.asarray(3.0))
        y = deep(partial(chain, x, count))
        deep(y.backward)
        same(x.grad, 1.0)
        del y
        same(deep(lambda: xt.grad(partial(chain, count=count))(xt.asarray(3.0))), 1.0)
        deep(lambda: chain(x, count) and None)  # never gone back


def test_long_tapes_of_writes() -> None:
    """In place as well."""

    def f(x: Any) -> Any:
        y = x * 1
        for _ in range(2000):
            y *= 1.0
            y[0] += 1.0
        return xt.sum(y)

    same(deep(lambda: xt.grad(f)(asarray(1, 2))), [1, 1])


def test_wide_tapes() -> None:
    """One tensor used by many steps."""
    x = leaf(1, 2)
    total = xt.zeros((), dtype=xt.float64)
    for n in range(3000):
        total = total + x[n % 2]
    total.backward()
    same(x.grad, [1500, 1500])


# ---- what is let go


@pytest.fixture
def alive() -> Iterator[Callable[[], int]]:
    """Count the steps and pending values that are alive, the garbage collector standing still."""
    gc.collect()
    gc.disable()
    before = {id(one) for one in gc.get_objects() if isinstance(one, (Step, Node))}
    yield lambda: sum(isinstance(one, (Step, Node)) and id(one) not in before for one in gc.get_objects())
    gc.enable()


def views_and_writes(x: Any) -> Any:
    y = x * x
    z = y[1:]
    y *= 3
    y[0] = z[0]
    z += xt.reshape(y, (1, -1))[0, 1:]
    return xt.sum(xt.exp(y / 100))


def failing(x: Any) -> Any:
    y = x * x
    y[0] = 1
    raise KeyError(len(y))


FUNCTIONS = {"plain": cube, "views and writes": views_and_writes, "checkpoint": xt.checkpoint(views_and_writes)}


@pytest.mark.parametrize("size", [3, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("f", FUNCTIONS.values(), ids=FUNCTIONS)
def test_no_cycles(alive: Callable[[], int], f: Any, size: int) -> None:
    """What a gradient left behind dies with the last that holds it, without the garbage collector."""
    x = xt.asarray(np.linspace(1, 2, size))
    for transform in (xt.grad, xt.value_and_grad, lambda f: lambda x: xt.hvp(f, (x,), (x,))):
        kept = xt.evaluate(*flatten(transform(f)(x))[0])
        assert alive() == 0
    x.requires_grad = True
    y = f(x)
    assert alive() > 1
    y.backward()
    x.grad.evaluate()
    del y, kept
    assert alive() == 1, "the leaf alone"
    y = f(x)
    del y
    assert alive() == 1
    x.requires_grad = False
    assert alive() == 0


def test_no_cycles_after_vjp(alive: Callable[[], int]) -> None:
    out, pull = xt.vjp(views_and_writes, asarray(1, 2, 3))
    assert alive() > 0
    pull(xt.asarray(1.0))
    del pull
    assert alive() == 0
    assert out is not None


def test_no_cycles_after_an_exception(alive: Callable[[], int]) -> None:
    x = leaf(1, 2)
    for call in (lambda: xt.grad(failing)(asarray(1, 2)), lambda: failing(x), lambda: xt.checkpoint(failing)(x)):
        with pytest.raises(KeyError):
            call()
        assert is_recording()
    assert alive() == 1


def test_no_cycles_of_custom_vjp(alive: Callable[[], int], doubled: Any) -> None:
    xt.grad(lambda x: xt.sum(doubled(x, x)))(asarray(1, 2)).evaluate()
    assert alive() == 0


def test_backward_lets_values_go() -> None:
    """What rules asked for dies during backward, though the result lives on."""
    x = leaf(1, 2)
    square = x * x
    y = xt.sum(square * square)
    seen = weakref.ref(square)
    del square
    y.backward()
    assert seen() is None
    assert y.requires_grad


def loss(x: Any) -> Any:
    """Return a sum over eight elementwise steps."""
    return xt.sum(xt.tanh(xt.exp(xt.sin(x) * 0.5) + x * x) * x)


# ---- memory

MEMORY = """
import xtensor as xt, numpy as np
x = xt.asarray(np.linspace(0, 1, 1 << 21))
def chain(x):
    return xt.sum(xt.exp(xt.sin(xt.exp(xt.sin(xt.exp(xt.sin(x)))))))
def branches(x):
    return xt.sum(xt.tanh(xt.exp(xt.sin(x) * 0.5) + x * x) * xt.cos(x) * x)
{call}
print(xt.memory.stats().peak / x.nbytes)
"""


@pytest.mark.parametrize(("loss", "most"), [("chain", 1.1), ("branches", 4.1)])
@pytest.mark.parametrize(
    "call", ["xt.grad({loss})(x).evaluate()", "x.requires_grad = True; {loss}(x).backward(); x.grad.evaluate()"]
)
def test_intermediates_are_not_kept(call: str, loss: str, most: float) -> None:
    """The gradient of a sum over recorded steps takes its own memory; of steps used twice, less than all of them."""
    code = MEMORY.format(call=call.format(loss=loss))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) < most


def test_kept_memory_is_let_go() -> None:
    """What was kept for a gradient is given back when the gradient has been computed."""
    x = required(xt.asarray(np.linspace(0, 1, 1 << 16)))
    xt.memory.trim()  # else memory that other tests left in the pool serves this one untraced
    tracemalloc.start()
    with xt.options(lazy="never"):
        y = xt.sum(xt.exp(xt.sin(x * x)) * x)
        assert tracemalloc.get_traced_memory()[0] > 2 * x.nbytes
        y.backward()
    xt.memory.trim()  # what the pool keeps for later
    assert tracemalloc.get_traced_memory()[0] < 1.25 * x.nbytes, "the gradient alone"
    tracemalloc.stop()


# ---- threads


def test_threads_compute_gradients_at_once() -> None:
    """Eight threads, small and large arrays, each its own gradients, over a constant that all share."""
    shared = {size: xt.asarray(np.linspace(1, 2, size)) for size in (3, LARGE)}

    def work(n: int) -> None:
        size = (3, LARGE)[n % 2]
        x = np.linspace(0, 1, size) + n
        c = shared[size].numpy()
        slope = xt.grad(lambda x: xt.sum(xt.exp(shared[size] / 4) * x * x))(x)
        np.testing.assert_allclose(slope.numpy(), 2 * x * np.exp(c / 4), rtol=1e-12)
        leaf = required(xt.asarray(x))
        xt.sum(leaf * leaf * shared[size]).backward()
        np.testing.assert_allclose(leaf.grad.numpy(), 2 * x * c, rtol=1e-12)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(160)))


def test_backward_in_another_thread() -> None:
    """A tape goes where its tensor goes."""
    x = leaf(1, 2)
    y = cube(x)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(y.backward).result()
    same(x.grad, [3, 12])
    with pytest.raises(RuntimeError, match="already used"):
        y.backward()


# ---- values that are no numbers


def test_where_hides_no_nan() -> None:
    """0 * inf is NaN, as it is everywhere: what is not chosen must be finite too (where, twice)."""
    x = asarray(0, 2)
    slope = xt.grad(lambda x: xt.sum(xt.where(x > 0, xt.log(x), 0.0)))(x)
    assert np.isnan(slope.numpy()[0]) or slope.numpy()[0] == 0
    same(slope[1:], [0.5])
    safe = xt.grad(lambda x: xt.sum(xt.where(x > 0, xt.log(xt.where(x > 0, x, 1.0)), 0.0)))(x)
    same(safe, [0, 0.5])


def test_slopes_that_are_infinite() -> None:
    same(xt.grad(lambda x: xt.sqrt(x))(xt.asarray(0.0)), np.inf)
    assert np.isnan(xt.grad(lambda x: xt.sqrt(x * x))(xt.asarray(0.0)).numpy())


# ---- every call written down


def test_every_call_is_written_down() -> None:
    """What nobody asked a gradient of may be written, exported and differentiated all the same."""
    with xt.options(gradients="always"):
        x = asarray(1, 2)
        y = x * 2
        assert y.requires_grad and x.requires_grad
        np.testing.assert_array_equal(np.from_dlpack(y), [2, 4])
        y[0] = x[1]
        x += 1
        x[...] = y
        same(xt.grad(cube)(x).detach(), [12, 48])
        w = leaf(1, 2)
        (xt.sum(w * x)).backward()
        same(w.grad, [2, 4])
        assert x.grad is None
        with pytest.raises(RuntimeError, match="backward: x must depend on a tensor that requires a gradient"):
            xt.sum(x * 2).backward()
        z = asarray(1, 2)
        assert (z * 2).requires_grad
        z.requires_grad = True
        with pytest.raises(RuntimeError, match="must not be a tensor that requires a gradient"):
            z += 1
    assert not (asarray(1) * 2).requires_grad


def test_always_in_the_environment() -> None:
    code = "import xtensor as xt; x = xt.asarray([1.0]); y = x * 2; y = x * 2; print(y.requires_grad)"
    for value, wanted in (("always", "True"), ("asked", "False")):
        environment = {**os.environ, "XTENSOR_GRADIENTS": value}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == wanted


def test_wrong_setting() -> None:
    with pytest.raises(ValueError, match="options: gradients must be one of 'asked', 'always', got 'never'"):
        xt.options(gradients="never")


SLOPES: dict[str, Callable[..., tuple[Any, Any]]] = {
    "another operand": lambda x, c: (xt.sum(x * c), None),
    "the result": lambda x, c: (xt.sum(y := xt.exp(x)), y),
    "a pending result": lambda x, c: (xt.sum(xt.exp(y := x * c)), (y, xt.exp(y))),
    "the other argument": lambda x, c: (xt.sum(x * c) + xt.sum(c * 1.0), None),
    "a square": lambda x, c: (xt.sum(x**2), None),
    "a view": lambda x, c: (xt.sum(x[::-1] * c), None),
    "a product": lambda x, c: (xt.sum(xt.reshape(x, (10, -1)) @ xt.reshape(c, (-1, 10))), None),
}


@pytest.mark.parametrize("lazy", ["auto", "always", "never"])
@pytest.mark.parametrize("size", [100, 40_000])
@pytest.mark.parametrize("name", SLOPES)
def test_gradients_are_memory_of_their_own(name: str, size: int, lazy: str) -> None:
    """At the end of a function the cotangent is a derivative itself, which others hold too: the gradient is a copy."""
    start = np.linspace(-1.0, 1.0, size), np.linspace(0.5, 1.5, size)
    x, c = (xt.asarray(one, copy=True) for one in start)
    with xt.options(lazy=lazy):
        (_, aux), grads = xt.value_and_grad(SLOPES[name], (0, 1), has_aux=True)(x, c)
        others = [aux] if isinstance(aux, xt.Tensor) else list(aux or ())
        others += [x, c, grads[1]]
        before = [one.numpy().copy() for one in others]
        grads[0][...] = 7.0
        for one, values in zip(others, before, strict=True):
            assert np.array_equal(one.numpy(), values)


@pytest.mark.parametrize("lazy", ["auto", "always", "never"])
@pytest.mark.parametrize("size", [5, 100_000])
def test_arrays_of_numpys_are_constants(size: int, lazy: Any) -> None:
    """On either side of each operator, as they were when the call was made."""
    x, constant = np.linspace(0.5, 2.0, size), np.linspace(3.0, 1.0, size)
    cases: list[tuple[Any, Any]] = [
        (lambda v, a: v * a, constant),
        (lambda v, a: a * v, constant),
        (lambda v, a: v / a, 1 / constant),
        (lambda v, a: a / v, -constant / x**2),
        (lambda v, a: v**a, constant * x ** (constant - 1)),
        (lambda v, a: a**v, constant**x * np.log(constant)),
        (lambda v, a: xt.atan2(v, a), constant / (x**2 + constant**2)),
        (lambda v, a: xt.where(a > 2, v * a[0], v + a), np.where(constant > 2, 3.0, 1.0)),
        (lambda v, a: v * a[1], np.full(size, constant[1])),
    ]
    with xt.options(lazy=lazy):
        for function, wanted in cases:
            array = constant.copy()

            def loss(v: xt.Tensor) -> xt.Tensor:
                result = xt.sum(function(v, array))  # noqa: B023
                array[...] = 99.0  # noqa: B023
                return result

            np.testing.assert_allclose(xt.grad(loss)(xt.asarray(x)).numpy(), wanted, rtol=1e-13)


@pytest.mark.parametrize("factor", [0, 0.0, -0.0])
def test_constants_of_zero(factor: float) -> None:
    """A leaf that all derivatives on the way to are 0 has a gradient of zeros, not none."""
    w = xt.asarray([1.0, 2.0])
    w.requires_grad = True
    xt.sum(w * w * factor).backward()
    same(w.grad, [0.0, 0.0])
    xt.sum(xt.floor(w)).backward()
    same(w.grad, [0.0, 0.0])


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the system has no timers")
def test_interrupts_leave_recording_as_it_was() -> None:
    """At any moment of a gradient, which then can be asked for again."""

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    def slope() -> Any:
        w = xt.asarray([1.0, 2.0, 3.0])
        w.requires_grad = True
        xt.sum(xt.tanh(w * w) + xt.mean(w)).backward()
        return w.grad

    right, rng, came = slope().numpy(), random.Random(0), 0
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for _ in range(1500):
            try:
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-6, 4e-4))
                slope()
                signal.setitimer(signal.ITIMER_REAL, 0.0)
            except KeyboardInterrupt:
                came += 1
            same(slope(), right)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
    assert came > 100

"""Fused functions give what the plain ones give, and launch kernels only where that is so."""

from __future__ import annotations

import gc
import math
import os
import pickle
import random
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import lru_cache, partial
from importlib import import_module
from logging import Handler, Logger, LogRecord
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from programs import Ours, Side, failures_of
from programs.captured import CAPTURED as PROGRAMS
from programs.captured import arguments, function_of, numbers_of, parted, returning

import xtensor as xt
from xtensor.base.options import Settings, settings
from xtensor.calls.known import ASKED, SMALL
from xtensor.codegen.cpu.compile import host
from xtensor.plan.costs import CAPTURED_STEPS
from xtensor.run.capture import LOOKED, OUTSIDE, WRITES
from xtensor.storage.storage import watchers

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # the benchmarks are not installed with the package
from benchmarks.workloads import WORKLOADS, Workload  # noqa: E402 - found through the line above

sys.path.remove(str(ROOT))

# xtensor.fuse is the function: its file is found as a module.
room = import_module("xtensor.calls.capture")

CASES = [(workload, dtype) for workload in WORKLOADS for dtype in workload.dtypes]
N = 140_000  # float32 of which calls are recorded, also where the library is as fast as generated code

needs_llvm = pytest.mark.skipif(host() is None, reason="generated code needs llvmlite and a fused multiply-add")


@pytest.fixture(autouse=True)
def defaults(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Begin with the default settings, whatever the environment asks of the other tests; leave nobody watching."""
    settings()  # asks the environment, which opens the shortcut of small operands
    monkeypatch.setattr(sys.modules["xtensor.base.options"], "_from_environment", [Settings(cache_dir="")])
    yield
    assert not watchers


@pytest.fixture(params=["interpret", pytest.param("llvm", marks=needs_llvm)])
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run a test on each engine that has kernels."""
    with xt.options(engine=request.param, cache_dir=""):
        yield request.param


class Lines(Handler):
    """It counts what is logged."""

    count = 0

    def emit(self, record: LogRecord) -> None:
        self.count += 1


class Counted:
    """A function that logs its calls: no signature looks into a log, but a number that changes would be part of it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.log, self.lines = function, Logger("calls"), Lines()
        self.log.addHandler(self.lines)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.log.warning("called")
        return self.function(*args, **kwargs)

    @property
    def calls(self) -> int:
        return self.lines.count


def array(n: int = N, dtype: str = "float32", start: int = 0) -> xt.Tensor:
    """Return different elements for each start."""
    return xt.asarray((np.arange(n) * 7 + start) % 101 - 50, dtype=getattr(xt, dtype), copy=True)


def same(ours: Any, theirs: Any) -> None:
    """Check dtype, shape, bits and layout."""
    assert type(ours) is type(theirs)
    if isinstance(ours, xt.Tensor):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        assert ours.numpy().tobytes() == theirs.numpy().tobytes()
        assert ours.strides == theirs.strides
    else:
        assert len(ours) == len(theirs)
        for one, other in zip(*(x.values() if isinstance(x, dict) else x for x in (ours, theirs)), strict=True):
            same(one, other)


def check(function: Callable[..., Any], *makers: Callable[[int], Any], calls: int = 1) -> None:
    """Compare three fused calls on different elements with plain ones; the function itself runs in `calls` of them."""
    counted = Counted(function)
    fused = xt.fuse(counted)
    for start in range(3):
        args = [make(start) for make in makers]
        with xt.options(lazy="always"):
            plain = function(*[make(start) for make in makers])
            xt.evaluate(
                *([plain] if isinstance(plain, xt.Tensor) else plain.values() if isinstance(plain, dict) else plain)
            )
            result = fused(*args)
        same(result, plain)
    assert counted.calls == calls, fused.why(*args)


# ---- what is fused


@pytest.mark.parametrize("n", [100, 10_000, 70_000])
@pytest.mark.parametrize(("workload", "dtype"), CASES, ids=[f"{w.name}-{dtype}" for w, dtype in CASES])
@pytest.mark.usefixtures("engine")
def test_workloads(workload: Workload, dtype: str, n: int) -> None:
    """Every expression of the benchmarks is one of its arguments, and has the plain call's bits on each engine."""
    counted = Counted(lambda *operands: workload.formula(xt, *operands))
    fused = xt.fuse(counted)
    with xt.options(lazy="always"):
        for seed in range(3):
            given = workload.inputs(np.random.default_rng(seed), n, dtype)
            args = [xt.asarray(one, copy=True) for one in given]
            result = fused(*args)
            assert not result.is_pending
            same(result, workload.formula(xt, *args))
        assert fused.why(*args) == ""
    assert counted.calls == 1


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float64", "complex64", "complex128"])
def test_dtypes(dtype: str) -> None:
    """Those that generated code lacks are interpreted."""
    check(lambda x, y: xt.where(x == y, x, y), lambda s: array(N, dtype, s), lambda s: array(N, dtype, 2 * s))


LAYOUTS: dict[str, Callable[[int], xt.Tensor]] = {
    "transposed": lambda s: xt.reshape(array(200 * 200, "float64", s), (200, 200)).T,
    "strided": lambda s: xt.reshape(array(400 * 200, "float64", s), (400, 200))[::2, :],
    "reversed": lambda s: xt.reshape(array(200 * 200, "float64", s), (200, 200))[::-1, ::-1],
    "row": lambda s: array(200, "float64", s),
    "column": lambda s: array(200, "float64", s)[:, None],
    "inside": lambda s: xt.reshape(array(300 * 300, "float64", s), (300, 300))[50 + s : 250 + s, 10:210],
    "broadcast": lambda s: xt.broadcast_to(array(200, "float64", s), (200, 200)),
}


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("second", LAYOUTS)
@pytest.mark.parametrize("first", LAYOUTS)
def test_layouts_of_arguments(first: str, second: str) -> None:
    """Arguments are read where they lie, wherever they begin, and results lie as NumPy's would."""
    check(lambda x, y: (x - y) * 2.0, LAYOUTS[first], LAYOUTS[second])


VIEWS: dict[str, Callable[[Any], Any]] = {
    "shifted": lambda x: x[1:, :] - x[:-1, :],
    "transposed": lambda x: x + x.T,
    "reversed": lambda x: x[::-1, :] * x[:, ::-1],
    "part": lambda x: xt.exp(x[3]) + x[:, None, 4],
    "reshaped": lambda x: xt.reshape(x, (-1,)) + 1.0,
    "views of views": lambda x: x[2:, 5:].T[::2, 1:] * 3.0,
    "diagonal": lambda x: xt.linalg.diagonal(x) + x,
    "other dtype": lambda x: x.view(xt.uint64) & 255,
    "broadcast": lambda x: xt.broadcast_to(x[0], (200, 200)) - x,
}


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("name", VIEWS)
def test_views_of_arguments(name: str) -> None:
    """A view is found again in other arguments of the same layout, wherever these begin."""
    check(VIEWS[name], LAYOUTS["inside"] if name not in ("reshaped", "other dtype") else LAYOUTS["transposed_back"])


LAYOUTS["transposed_back"] = lambda s: xt.reshape(array(200 * 200, "float64", s), (200, 200))


@pytest.mark.usefixtures("engine")
def test_parts_of_complex_numbers() -> None:
    """Real and imaginary parts are views in another dtype."""
    check(lambda z: z.real * 2.0 - z.imag, lambda s: array(N, "complex128", s) * (1 + 2j))


@pytest.mark.usefixtures("engine")
def test_plans_of_several_kernels() -> None:
    """Temporary values share memory; reductions over every axis, of halves, twice."""

    def function(x: Any) -> Any:
        a = x - xt.mean(x, axis=0)
        b = a / (1.0 + xt.max(xt.abs(a), axis=1, keepdims=True))
        c = b - xt.sum(b, axis=0, keepdims=True)
        return xt.sum(c * c, axis=1) + xt.prod(b[:, :1], axis=1), xt.any(c > 0.5), xt.count_nonzero(b, axis=0)

    def whole(x: Any) -> Any:
        centred = x - xt.mean(x, axis=0)
        scaled = centred / xt.sqrt(xt.var(centred, axis=0) + 1e-3)
        return scaled - xt.max(scaled), xt.sum(scaled), centred

    check(function, lambda s: xt.reshape(array(N, "float64", s), (1400, 100)))
    check(whole, lambda s: xt.reshape(array(N, "float64", s), (1400, 100)))


PENDING_VIEWS: dict[str, Callable[[Any], Any]] = {
    "expand_dims": lambda z: z - xt.expand_dims(xt.sum(z, axis=1), axis=1),
    "squeeze": lambda z: xt.squeeze(xt.sum(z, axis=1, keepdims=True), axis=1) + z[:, 0],
    "slices": lambda z: z[1:, ::-2] - z[:-1, ::2],
    "row": lambda z: z[3] + z[:, :100] * z[-1, 7],
    "axes": lambda z: z[None, :, 2, None] + z[..., None, :100],
    "transposed": lambda z: xt.exp(z.T * 0.01) + z.T,
    "permuted": lambda z: xt.moveaxis(xt.reshape(z, (20, 20, 100)), 0, -1) * z[0, 0],
    "flipped": lambda z: xt.flip(z) + xt.flip(z, axis=0) * xt.sum(xt.flip(z, axis=1), axis=0),
    "reshaped": lambda z: xt.reshape(z, (-1, 50)) + xt.reshape(z, (800, 50)),
    "reshaped by a copy": lambda z: xt.reshape(z.T, (200, 200)) + xt.sum(xt.reshape(z[:, ::2], (-1, 200)), axis=0),
    "broadcast": lambda z: xt.broadcast_to(z[0], (3, 100)) * z[:3] + xt.sum(xt.broadcast_to(z[1], (5, 100)), axis=0),
    "views of views": lambda z: xt.expand_dims(z[2:, 5:].T[::2, 1:][0], axis=1) * 3.0 + z[1],
    "of products": lambda z: (z.T @ z)[1:, :].T @ z[:99, :50] + 1.0,
    "in library steps": lambda z: xt.argmax(xt.flip(z[::2], axis=1), axis=1) + 1,
    "of what is needed late": lambda z: late(z, xt.expand_dims(xt.sum(z, axis=1), 1)),
    "alone": lambda z: (z * 2.0)[10:20, ::-1],
    "and the whole": lambda z: (twice := z * 2.0, twice[5:], xt.exp(twice[3:] * 0.01)),
    "several": lambda z: ((s := xt.sum(z, axis=0))[::-1], xt.broadcast_to(s, (2, 100)), xt.reshape(s, (10, 10)).T),
}


def late(z: Any, column: Any) -> Any:
    """Use a view after other temporary values have come and gone."""
    for _ in range(3):
        z = z - xt.expand_dims(xt.sum(z, axis=1), axis=1) / 100.0
    return z + column


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("first", ["packed", "transposed", "inside"])
@pytest.mark.parametrize("name", PENDING_VIEWS)
def test_views_of_pending_values(name: str, first: str) -> None:
    """They are no steps of a run, and results that are views of a result share its memory."""
    made = matrix(100, 400)
    lie = {"packed": lambda s: xt.reshape(made(s), (400, 100)), "transposed": lambda s: made(s).T}
    lie["inside"] = lambda s: xt.reshape(array(500 * 200, "float64", s), (500, 200))[20 + s : 420 + s, 30:130]
    check(lambda x: PENDING_VIEWS[name](x + 1.0), lie[first])
    found = xt.fuse(lambda x: PENDING_VIEWS[name](x + 1.0))(lie[first](5))
    with xt.options(lazy="never"):
        wanted = PENDING_VIEWS[name](lie[first](5) + 1.0)
    for one, other in zip(*[x if isinstance(x, tuple) else (x,) for x in (found, wanted)], strict=True):
        assert (one.shape, one.strides) == (other.shape, other.strides)
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-12)


@pytest.mark.usefixtures("engine")
def test_results_that_share_memory() -> None:
    """A write through one of them shows in the others, as after a plain call; a stretched one is read-only."""

    def function(x: Any) -> Any:
        z = x * 2.0
        return z, z[1:], xt.flip(z), xt.broadcast_to(xt.sum(z, keepdims=True), (3,))

    fused = xt.fuse(function)
    for start in range(3):
        for call in (fused, function):
            z, part, flipped, stretched = call(array(start=start))
            part[0] = 7.0
            z += 1.0
            flipped[-1] = 3.0
            assert float(z[1]) == 8.0 and float(z[0]) == 3.0 and float(part[0]) == 8.0
            assert float(flipped[-2]) == 8.0 and not stretched.is_writeable
    assert fused.why(array()) == ""


@pytest.mark.usefixtures("engine")
def test_steps_that_no_loop_computes() -> None:
    """They are recorded, and so remembered."""
    check(lambda x: xt.argmax(x * 2.0, axis=0) + 1, lambda s: xt.reshape(array(N, "float64", s), (1400, 100)))


def repeated(times: int) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        y = x
        for step in range(times):
            y = y * 0.5 + float(step)
        return xt.sum(y)

    return function


@pytest.mark.usefixtures("engine")
def test_many_steps() -> None:
    """More than a plain call records, as gradients have them; more than that are several evaluations."""
    with xt.options(fuse_limit=50):
        check(repeated(600), array_at)
    check(repeated(CAPTURED_STEPS // 2 + 1), array_at)
    with xt.options(fuse_limit=2 * CAPTURED_STEPS):
        check(repeated(CAPTURED_STEPS // 2 + 1), array_at)


@pytest.mark.usefixtures("engine")
def test_results() -> None:
    """One tensor, or a tuple, list or dict of some; one that comes twice is one object."""
    check(lambda x: (x + 1.0, x * 2.0), array_at)
    check(lambda x: [xt.sum(x * 2.0)], array_at)
    check(lambda x: {"b": x + 1.0, "a": xt.exp(x)}, array_at)

    def twice(x: Any) -> Any:
        y = x + 1.0
        return y, y * 2.0, y

    check(twice, array_at)
    fused = xt.fuse(twice)
    for _ in range(3):
        a, b, c = fused(array())
        assert a is c and a is not b
    assert list(xt.fuse(lambda x: {"b": x + 1.0, "a": x})(array())) == ["b", "a"]


@pytest.mark.usefixtures("engine")
def test_nested_results() -> None:
    """Tuples, lists and dicts within each other come back as they were."""
    fused = xt.fuse(lambda x: {"a": [x + 1.0, (x * 2.0,)], "b": x - 1.0})
    for start in range(3):
        x = array(start=start)
        found = fused(x)
        assert list(found) == ["a", "b"]
        assert type(found["a"]) is list and type(found["a"][1]) is tuple
        for ours, plain in ((found["a"][0], x + 1.0), (found["a"][1][0], x * 2.0), (found["b"], x - 1.0)):
            same(ours, plain)
    assert fused.why(x) == ""


def matrix(*shape: int, dtype: str = "float64") -> Callable[[int], xt.Tensor]:
    """Return a maker of matrices that are others for each start, with entries around 1 in magnitude."""
    return lambda start: xt.reshape(array(math.prod(shape), dtype, start) * 0.02, shape).evaluate()


PRODUCTS: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "matrices": (lambda a, b: xt.exp((a + 1.0) @ (b * 0.1)) * 2.0, [(60, 40), (40, 80)]),
    "vector": (lambda a, b: xt.tanh(a @ b) + 1.0, [(200, 70), (70,)]),
    "row": (lambda a, b: (a * 2.0) @ b, [(70,), (70, 50)]),
    "inner": (lambda a, b: (a + 1.0) @ b + 1.0, [(5000,), (5000,)]),
    "stack": (lambda a, b: (a + b) @ xt.matrix_transpose(b) - 1.0, [(7, 30, 20), (7, 30, 20)]),
    "views": (lambda a, b: a.T @ b[::2] + 1.0, [(50, 40), (100, 60)]),
    "twice": (lambda a, b: ((a @ b) * 0.1) @ ((a @ b) * 0.2) + xt.sum(a), [(50, 50), (50, 50)]),
    "returned": (lambda a, b: (a @ b, xt.exp(a @ b)), [(50, 30), (30, 50)]),
    "rows of it": (lambda a, b: xt.exp(a @ b - xt.max(a @ b, axis=1, keepdims=True)), [(300, 30), (30, 500)]),
    "chain": (lambda a, b: xt.tanh(xt.tanh(xt.tanh(a @ b) @ b) @ b), [(300, 100), (100, 100)]),
    "empty": (lambda a, b: xt.sum(a @ b) + xt.sum(a * 0.0 + 1.0), [(40, 0), (0, 30)]),
}


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_products_are_steps(name: str, dtype: str) -> None:
    """A matrix product is a step of an expression: what was remembered gives what a plain call gives."""
    function, shapes = PRODUCTS[name]
    if "rows" in name and dtype == "complex128":
        dtype = "float64"  # complex numbers have no largest one
    check(function, *[matrix(*shape, dtype=dtype) for shape in shapes])


def network(x: Any, w: Any, b: Any, labels: Any) -> Any:
    z = x @ w + b
    return xt.mean(xt.log1p(xt.exp(z)) - labels * z) + 1e-3 * xt.sum(w * w)


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gradients_are_remembered(dtype: str) -> None:
    """A value and its gradients, through a product, are one expression of the arguments."""
    makers = [matrix(400, 30, dtype=dtype), matrix(30, dtype=dtype), matrix(dtype=dtype), matrix(400, dtype=dtype)]
    counted = Counted(xt.value_and_grad(network, (1, 2)))
    fused = xt.fuse(counted)
    for start in range(3):
        args = [make(start) for make in makers]
        value, grads = fused(*args)
        plain, others = xt.value_and_grad(network, (1, 2))(*args)
        for ours, theirs in zip((value, *grads), (plain, *others), strict=True):
            assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
            np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-5 if dtype == "float32" else 1e-12)
    assert counted.calls == 1, fused.why(*args)


def layers(w1: Any, b1: Any, w2: Any, b2: Any, x: Any, targets: Any) -> Any:
    z = xt.tanh(x @ w1 + b1) @ w2 + b2
    return xt.mean(xt.log(xt.sum(xt.exp(z), axis=1)) - xt.sum(targets * z, axis=1))


def pooled(w1: Any, b1: Any, w2: Any, b2: Any, x: Any, targets: Any) -> Any:
    """Views of pending values, and reductions along axes whose results stand along others."""
    z = xt.expand_dims(x @ w1, axis=0) * 0.1 + xt.reshape(b1 * 2.0, (1, 1, -1))
    z = xt.max(z, axis=(0, 1)) + xt.std(xt.squeeze(z, axis=0).T, axis=1) * xt.mean(xt.flip(z), axis=(0, 1))
    found = xt.moveaxis(xt.expand_dims(z, 1), 0, 1) @ w2 + b2
    return xt.mean((xt.broadcast_to(found, targets.shape) - targets) ** 2)


NETWORK = [matrix(30, 40), matrix(40), matrix(40, 5), matrix(5), matrix(100, 30), matrix(100, 5)]


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("loss", [layers, pooled])
def test_gradients_along_axes_are_remembered(loss: Callable[..., Any]) -> None:
    """A reduction along some axes gives its cotangent the axes back; first and second derivatives."""
    first = xt.value_and_grad(loss, (0, 1, 2, 3))

    def second(*args: Any) -> Any:
        return xt.grad(lambda *some: sum([xt.sum(g * g) for g in first(*some, *args[4:])[1]]), (0, 1, 2, 3))(*args[:4])

    for function in (lambda *args: [first(*args)[0], *first(*args)[1]], second):
        counted = Counted(function)
        fused = xt.fuse(counted)
        for start in range(3):
            args = [make(start) for make in NETWORK]
            for ours, theirs in zip(fused(*args), function(*args), strict=True):
                assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
                np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-9, atol=1e-11)
        assert (counted.calls, fused.why(*args)) == (1, "")


@pytest.mark.usefixtures("engine")
def test_gradients_in_memory_of_their_own() -> None:
    """A gradient that would be a view of another one is a copy."""
    fused = xt.fuse(xt.grad(lambda x, y: xt.sum((x + xt.expand_dims(y, 1)) ** 2), (0, 1)))
    for start in range(3):
        x, y = matrix(400, 1)(start), matrix(400)(start + 1)
        for of_x, of_y in (fused(x, y), xt.grad(lambda x, y: xt.sum((x + xt.expand_dims(y, 1)) ** 2), (0, 1))(x, y)):
            before = of_y.numpy().copy()
            of_x *= 0.0
            assert np.array_equal(of_y.numpy(), before) and before.any()
    assert fused.why(x, y) == ""


@pytest.mark.usefixtures("engine")
def test_second_derivatives_are_remembered() -> None:
    """A Hessian-vector product, with a matrix that depends on the argument of both derivatives."""

    def product(x: Any, v: Any) -> Any:
        return xt.grad(lambda x: xt.sum(xt.grad(lambda x: xt.sum(xt.tanh(xt.sin(x) @ x) ** 2))(x) * v))(x)

    counted = Counted(product)
    fused = xt.fuse(counted)
    for start in range(3):
        x, v = matrix(60, 60)(start), matrix(60, 60)(start + 5)
        np.testing.assert_allclose(fused(x, v).numpy(), product(x, v).numpy(), rtol=1e-9, atol=1e-9)


def array_at(start: int) -> xt.Tensor:
    return array(start=start)


@pytest.mark.usefixtures("engine")
def test_the_same_tensor_twice() -> None:
    """What was found out with one tensor twice holds for two, and the other way round."""
    for first in (True, False):
        fused = xt.fuse(lambda x, y: (x - y) * 0.5 + x)
        for together in (first, not first):
            x, y = array(start=1), array(start=2)
            y = x if together else y
            same(fused(x, y), (x - y) * 0.5 + x)
        assert fused.why(x, y) == ""


@pytest.mark.usefixtures("engine")
def test_overlapping_arguments() -> None:
    """Views of one buffer are two arguments."""
    fused = xt.fuse(lambda x, y: x[1:] - y[:-1])
    for start in range(3):
        whole = array(N + 1 + start, start=start)
        x, y = whole[start : start + N], whole[1 : N + 1]
        same(fused(x, y), x[1:] - y[:-1])
    other = array(N), array(N, start=5)
    same(fused(*other), other[0][1:] - other[1][:-1])
    assert fused.why(*other) == ""


@pytest.mark.usefixtures("engine")
def test_pending_arguments_are_evaluated() -> None:
    counted = Counted(lambda x: xt.exp(x) + 1.0)
    fused = xt.fuse(counted)
    for start in range(3):
        x = array(start=start) * 0.25
        same(fused(x), xt.exp(x) + 1.0)
        y = (array(N, start=start) * 0.25)[1:]
        same(fused(y), xt.exp(y) + 1.0)
    assert counted.calls == 2


# ---- what is not


GLOBAL = xt.asarray(np.arange(N, dtype=np.float32), copy=True)


class Kept:
    """A class whose attribute a function sets."""

    last: Any = None


def keeps(x: Any) -> Any:
    Kept.last = x * 3.0
    return Kept.last + 1.0


def writes_aside(x: Any) -> Any:
    GLOBAL[0] = 0.0
    return x + 1.0


def updates_aside(x: Any) -> Any:
    xt.asarray(GLOBAL)[:] = xt.zeros(N, dtype=xt.float32)
    return x + 1.0


def catches(x: Any) -> Any:
    try:
        return x + float(x[0])
    except ValueError:
        return x


def writes(x: Any) -> Any:
    x += 1.0
    return x * 2.0


def resizes(x: Any) -> Any:
    x.resize((N // 2,))
    return x + 1.0


@lru_cache
def remembered() -> np.ndarray:
    return np.arange(N, dtype=np.float32)


REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "float": (lambda x: x * float(x[3]), LOOKED),
    "item": (lambda x: x * x[1].item(), LOOKED),
    "int": (lambda x: x[int(x[2]) % 7 :] * 2.0, LOOKED),
    "a sum": (lambda x: x / float(xt.sum(x)), LOOKED),
    "a sorted value": (lambda x: x / float(xt.sort(x)[-1]), LOOKED),
    "a global's value": (lambda x: x + float(GLOBAL[5]), LOOKED),
    "tolist": (lambda x: x + len(x.tolist()), LOOKED),
    "repr": (lambda x: x + len(repr(x)), LOOKED),
    "nonzero": (lambda x: xt.nonzero(x)[0] + 1, LOOKED),
    "mask": (lambda x: x[x > 0] + 1.0, LOOKED),
    "caught": (catches, LOOKED),
    "exported": (lambda x: x + float(np.asarray(x)[0]), LOOKED),
    "nothing": (lambda x: None, room.NOTHING),
    "number": (lambda x: 3.0, room.NOTHING),
    "empty": (lambda x: (), room.NOTHING),
    "object": (lambda x: object() if x is None else {1, 2}, room.RETURNS),
    "keeps": (keeps, room.KEEPS),
    "an array of NumPy's that is remembered": (lambda x: x + remembered(), OUTSIDE),
    "a random number": (lambda x: x + xt.random.default_rng(3).random(), OUTSIDE),
    "resizes": (resizes, WRITES),
}


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("name", REFUSED)
def test_plain_where_it_must_be(name: str) -> None:
    """The function itself is run each time, and does to its argument what it does; the reason is told."""
    function, why = REFUSED[name]
    counted = Counted(function)
    fused = xt.fuse(counted)
    for start in range(3):
        x, y = array(start=start), array(start=start)
        result, plain = fused(x), function(y)
        if isinstance(plain, (xt.Tensor, tuple, list)):
            same_deep(result, plain)
        else:
            assert result == plain
        same(x, y)
        assert (result is x) == (plain is y)
    assert fused.why(array()).startswith(why)
    assert counted.calls == 3
    with pytest.raises(RuntimeError, match="which is strict, must be captured, got"):
        xt.fuse(function, strict=True)(array())


CAPTURED: dict[str, Callable[[Any], Any]] = {
    "sort": lambda x: xt.sort(x) + 1.0,
    "integer matmul": lambda x: xt.astype(x, xt.int16) @ xt.astype(x, xt.int16) + x,
    "copy": lambda x: x.copy() + 1.0,
    "transposed copy": lambda x: xt.reshape(x, (100, -1)).T.copy() + 1.0,
    "itself": lambda x: [x, x + 1.0],
    "view": lambda x: [x[1:], x + 1.0],
    "view of a result": lambda x: [(x * 2.0)[1:], x],
    "two views of one result": lambda x: halves(x * 3.0),
    "constants": lambda x: {"x": x + 1.0, "n": 3, "t": (None, "word", 2.5)},
    "zeros": lambda x: [xt.zeros(N), x * 2.0],
    "global": lambda x: x + GLOBAL,
    "computed from a global": lambda x: x + xt.exp(GLOBAL * 0.001),
    "sorted global": lambda x: x + xt.sort(GLOBAL),
    "made": lambda x: x + xt.arange(N, dtype=xt.float32),
    "scalar tensor": lambda x: x * xt.asarray(0.5, dtype=xt.float32),
    "list": lambda x: x[:3] * xt.asarray([1.0, 2.0, 3.0], dtype=xt.float32),
    "writes": writes,
    "writes an item": lambda x: [x.__setitem__(0, 1.0), x + 1.0][1],
    "writes aside": writes_aside,
    "updates aside": updates_aside,
    "writes into zeros": lambda x: filled(xt.zeros(N, dtype=xt.float32), x),
    "writes into empty memory": lambda x: filled(xt.empty(N, dtype=xt.float32), x),
    "takes": lambda x: xt.take(x, xt.asarray([5, 3, 3, -1])) + 1.0,
    "index arrays": lambda x: x[xt.asarray([5, 3, 3, -1])] + 1.0,
    "index lists": lambda x: x[[5, 3, 3, -1]] + x[:6][[[0], [1]], None][:, 0],
    "lists beside slices": lambda x: xt.reshape(x, (100, -1))[[0, -1], 3:9] * xt.reshape(x, (100, -1))[1:3, []].sum(),
    "writes at lists": lambda x: [x.__setitem__([0, -1], 7.0), x.__setitem__([1, 1, 2], x[4:7]), x * 1.0][2],
    "scatters": lambda x: [x.__setitem__(xt.asarray([5, 3, -1]), x[:3] * 2.0), x * 1.0][1],
    "masks": lambda x: [x.__setitem__(x > 3.0, 0.0), x * 1.0][1],
    "a value": lambda x: x * x[7],
    "swapped values": lambda x: swapped(x),
    "nothing": lambda x: xt.concat([xt.take(x, xt.asarray([], dtype=xt.int64)), x]) + xt.sum(xt.zeros((0, 3)) * 2.0),
    "frequencies": lambda x: xt.fft.rfft(x)[:9] * xt.fft.rfftfreq(17) + xt.fft.fftfreq(9, dtype=xt.float32),
    "cumulative": lambda x: xt.cumulative_sum(x) * 2.0,
    "linear algebra": lambda x: xt.linalg.inv(xt.reshape(x[:9], (3, 3)) + xt.eye(3, dtype=xt.float32) * 9.0) * 2.0,
    "fourier": lambda x: xt.conj(xt.fft.fft(xt.astype(x[:64], xt.complex64))) * 2.0,
    "joined": lambda x: xt.concat([x[:5], x[3:9] * 2.0]) + xt.roll(x, 3)[:11],
    "stacked": lambda x: xt.stack([x[:7], x[1:8] * 2.0, xt.flip(x[:7])], axis=1) + 1.0,
    "joined dtypes": lambda x: xt.concat([x[:5], xt.astype(x[3:9], xt.float64)]) * 2.0,
    "repeated": lambda x: xt.repeat(xt.reshape(x[:6], (2, 3)), 3, axis=1) + 1.0,
    "rolled": lambda x: xt.roll(xt.reshape(x[:60], (3, 4, 5)), (1, -7, 5), axis=(0, 1, 2)) + xt.roll(x[:5], 10, axis=0),
    "gradient": lambda x: xt.grad(lambda y: xt.sum(xt.exp(y * 0.001) * y))(x),
    "value and gradient": lambda x: xt.value_and_grad(lambda y: xt.mean(y[1:] * y[:-1]))(xt.concat([x, x])),
    "loop": lambda x: looped(x),
}


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("name", CAPTURED)
def test_what_is_captured(name: str) -> None:
    """The function is run once; what it returns and writes is what a plain call would, each time."""
    function, counted = CAPTURED[name], Counted(CAPTURED[name])
    fused = xt.fuse(counted, strict=True)
    before = np.asarray(GLOBAL).copy()
    for start in range(5):
        GLOBAL[...] = xt.asarray(before + np.float32(start))
        x, y = array(start=start), array(start=start)
        result = fused(x)
        ours = np.asarray(GLOBAL).copy()
        GLOBAL[...] = xt.asarray(before + np.float32(start))
        plain = function(y)
        same_deep(result, plain)
        same(x, y)
        assert np.array_equal(ours, np.asarray(GLOBAL))
        assert fused.why(array()) == ""
    GLOBAL[...] = xt.asarray(before)
    assert counted.calls == 1


def halves(x: Any) -> Any:
    return x[: N // 2], x[N // 2 :]


def filled(y: Any, x: Any) -> Any:
    y[:] = 1.0
    y[2:10] = x[:8]
    y[3:9] += x[1:7] * 2.0
    return y


def swapped(x: Any) -> Any:
    x[0], x[1] = x[1], x[0]
    return x * 1.0


def looped(x: Any) -> Any:
    for step in range(5):
        x[1:-1] = (x[:-2] + x[2:]) * 0.5 + step
    return x * 1.0


def same_deep(ours: Any, theirs: Any) -> None:
    if isinstance(ours, xt.Tensor):
        same(ours, theirs)
    elif isinstance(ours, dict):
        assert ours.keys() == theirs.keys()
        same_deep(list(ours.values()), list(theirs.values()))
    elif not isinstance(ours, (tuple, list)):
        assert ours == theirs
    else:
        assert type(ours) is type(theirs)
        for one, other in zip(ours, theirs, strict=True):
            same_deep(one, other)


def test_captured_views_of_an_argument() -> None:
    """A view of the very argument, or the argument itself, that comes from elsewhere is read as it overlaps."""
    x = array()
    captured = x[1:]
    for function in (lambda a: a[1:] + captured, lambda a: a + x, lambda a: a[1:] + x[1:]):
        fused = xt.fuse(function)
        for y in (x, array(start=3), array(start=4), x):
            same(fused(y), function(y))
        assert fused.why(y) == ""


def test_written_through_a_captured_view() -> None:
    """That writes to the argument, and is seen."""
    x = array()
    captured = x[:1]
    assert float(captured[0]) == float(x[0])  # what is remembered of the view is in place

    def function(a: Any) -> Any:
        nonlocal captured
        y = a + 1.0
        captured += 1.0
        return y

    fused = xt.fuse(function)
    for times in range(4):
        before = float(x[0])
        assert float(fused(x)[0]) == before + 1.0
        assert float(x[0]) == before + 1.0, times
    assert fused.why(x) == ""


def test_identity_of_an_argument() -> None:
    """A plain call returns the argument itself, the first one as well."""
    x = array()
    for function in (lambda a: a, lambda a: (a, a + 1.0), lambda a: [a], lambda a: {"a": a}):
        fused = xt.fuse(function)
        for _ in range(2):
            result = fused(x)
            assert result is x or (result["a"] if isinstance(result, dict) else result[0]) is x


def test_later_writes_are_seen() -> None:
    """Arguments are read at the call, and results are their own memory."""
    fused = xt.fuse(lambda x: x[1:] + x[:-1])
    x = array(200_000)
    kept = []
    for step in range(4):
        x[:100] = float(step)
        kept.append((fused(x), np.full(99, 2.0 * step, np.float32)))
    for result, head in kept:
        assert np.array_equal(result.native()[:99], head)


def test_shared_memory() -> None:
    """Memory that others can write is read in the call, whether its kernels are known or not."""
    fused = xt.fuse(lambda x, y: x + y * 0.0)
    outside = np.zeros(200_000, np.float32)
    shared, own = xt.asarray(outside), array(200_000)
    exported = np.asarray(own)
    for call in range(5):
        for theirs, args in ((outside, (shared, array(200_000))), (exported, (own, shared))):
            theirs[:] = call
            result = fused(*args)
            assert not result.is_pending
            theirs[:] = -1.0
            assert float(result[7]) == float(result[-1]) == call
    assert fused.why(shared, own) == "" and (shared + 1.0).is_pending is False


def test_what_a_call_leaves_behind_has_been_read() -> None:
    """Also where its result is no expression, or none at all: what it kept read the memory as it was."""
    outside = np.full(200_000, 3.0)
    shared = xt.asarray(outside)
    kept = []

    def keeps(x: xt.Tensor, how: str) -> xt.Tensor | None:
        kept.append(x * 2.0)
        if how == "raises":
            raise RuntimeError(how)
        if how == "exports":
            theirs = np.asarray(x)
            y = x + 1.0
            theirs[:] = 9.0
            return y
        return None if how == "nothing" else kept[-1] + float(x[0])

    fused = xt.fuse(keeps)
    for how in ("nothing", "looks", "exports", "raises"):
        outside[:] = 3.0
        kept.clear()
        if how == "raises":
            with pytest.raises(RuntimeError, match="raises"):
                fused(shared, how)
        else:
            result = fused(shared, how)
        outside[:] = -1.0
        assert float(kept[0][5]) == 6.0, how
        if how != "raises":
            assert result is None or float(result[5]) == {"looks": 9.0, "exports": 4.0}[how]


@pytest.mark.usefixtures("engine")
def test_no_tensor_among_the_arguments() -> None:
    """What a function makes inside is made anew in each call, and is nobody else's; constants are part of the kind."""

    def made(n: int, slope: float, generator: Any = None) -> tuple[Any, Any]:
        line = xt.linspace(0.0, 1.0, n) * slope
        line[1:] += line[:-1] * 0.5
        total = xt.zeros(n)
        for _ in range(3):
            total += xt.exp(line)
        total[line > 0.5] = -1.0
        return line, total

    counted = Counted(made)
    fused = xt.fuse(counted)
    for start in range(4):
        for n, slope in ((N, 1.5), (N, -0.25), (N + 1, 1.5)):
            with xt.options(lazy="always"):
                same(fused(n, slope), made(n, slope))
        line, _ = fused(N, 1.5)
        line[...] = float(start)
    assert counted.calls == 3 and fused.why(N, 1.5) == ""


def test_what_differs_from_call_to_call_without_tensors() -> None:
    """Random numbers, counters and generators are asked anew."""
    drawn = xt.fuse(lambda n: xt.ones(n) * random.random())
    assert len({float(drawn(2)[0]) for _ in range(5)}) == 5 and "[changing]" in drawn.why(2)
    count = [0]

    def counts(n: int) -> Any:
        count[0] += 1
        return xt.ones(n) * count[0]

    counted = xt.fuse(counts)
    assert [float(counted(3)[0]) for _ in range(5)] == [1.0, 2.0, 3.0, 4.0, 5.0]


def helper(x: Any) -> Any:
    return x * getattr(helper, "factor", 1.0)


@pytest.mark.usefixtures("engine")
def test_functions_that_are_given_attributes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a function that is called has of its own is looked up again at each call, also where it had nothing before;
    another function of its name is another kind.
    """
    fused, x = xt.fuse(lambda x: helper(x) + 1.0), array()
    for factor in (1.0, 5.0, -2.0):
        if factor != 1.0:
            monkeypatch.setattr(helper, "factor", factor, raising=False)
        for _ in range(3):
            same(fused(x), x * factor + 1.0)
    monkeypatch.setitem(globals(), "helper", lambda x: x - 7.0)
    for _ in range(3):
        same(fused(x), (x - 7.0) + 1.0)


def test_nothing_to_fuse() -> None:
    """No tensors, arrays that come from NumPy, arguments that may change."""
    fused = xt.fuse(lambda *args: args[0])
    assert fused(3) == 3
    assert fused.why(3) == room.NOTHING
    given = [1]
    assert fused(given, array()) is given
    assert fused.why(given, array()) == room.NOTHING
    assert "set" in fused.why({frozenset()}, array())
    assert fused.why(np.ones(3), array()) == room.NEW
    assert "bytearray" in fused.why(bytearray(2), array())


def test_empty_arrays() -> None:
    check(lambda x: x + 1.0, lambda s: xt.zeros((0, 3)), calls=3)
    check(lambda x: xt.sum(x[:, :0] * 2.0, axis=1), lambda s: xt.zeros((500, 3)), calls=3)


def test_0d() -> None:
    with xt.options(engine="interpret"):
        check(lambda x: xt.exp(x) * 2.0, lambda s: xt.asarray(s * 0.5))


# ---- signatures


def test_constants_by_value_and_type(monkeypatch: pytest.MonkeyPatch) -> None:
    """1, 1.0 and True are three, zeros have signs, NaN is itself, where a value is asked for; nested ones too."""
    monkeypatch.setattr(room, "IN_A_ROW", 1000)  # so that all of them are taken down
    values = [1, 1.0, True, 0.0, -0.0, 0, False, math.nan, 1j, complex(-0.0, 0.0), complex(0.0, 0.0), "1", b"1", None]
    values += [(1,), (1.0,), (True,), (-0.0,), (0.0,), ((1, 2), 3), (1, 2, 3), slice(1), slice(0, 1), xt.float32]
    values += [np.float32(1), np.float64(1), np.int32(1), xt.exp, xt.sin, np.add, float, ...]
    counted = Counted(lambda x, value: x + 1.0 if str(value) else x)
    fused = xt.fuse(counted)
    x = array()
    for _ in range(3):
        for value in values:
            fused(x, value)
    assert counted.calls == len(values)
    fused(x, float("nan"))
    assert counted.calls == len(values)


def test_constants_are_used() -> None:
    fused = xt.fuse(lambda x, power, *, axis: xt.sum(x**power, axis=axis))
    for _ in range(3):
        for power in (2, 2.0, 3, 0.5):
            for axis in (0, 1, (0, 1), None):
                x = xt.abs(xt.reshape(array(N, "float64"), (1400, 100))).evaluate()
                with xt.options(engine="interpret"):
                    same(fused(x, power, axis=axis), xt.sum(x**power, axis=axis))


def test_keywords() -> None:
    """Names count, and are never mistaken for values."""

    def function(*args: Any, **kwargs: Any) -> Any:
        return args[0] + float(len(args)) + 10.0 * float(len(kwargs))

    fused = xt.fuse(function)
    x = array()
    for _ in range(2):
        for args, kwargs in [((x, ("a",), 2), {}), ((x,), {"a": 2}), ((x, 2), {"a": 2}), ((x,), {"b": 2, "a": 1})]:
            same(fused(*args, **kwargs), function(*args, **kwargs))
    swapped = xt.fuse(lambda a, b: a - b)
    for start in range(3):
        x, y = array(start=start), array(start=2 * start)
        same(swapped(a=x, b=y), x - y)
        same(swapped(b=x, a=y), y - x)
        same(swapped(x, b=y), x - y)


def test_shapes_dtypes_and_strides() -> None:
    """Each kind is found out anew, and all are right."""
    counted = Counted(lambda x: xt.sum(x * 2, axis=0))
    fused = xt.fuse(counted)
    x = xt.reshape(array(2 * N, "int32"), (1400, 200))
    kinds = [x, x.T, x[:400], x[::2], xt.reshape(x, (-1,)), xt.astype(x, xt.int64), xt.reshape(x, (1, 1400, 200))]
    for _ in range(3):
        for kind in kinds:
            same(fused(kind), xt.sum(kind * 2, axis=0))
    assert counted.calls == len(kinds)


def test_how_many_are_remembered() -> None:
    """Those used last; of kinds that never come again, ever fewer are watched once there is no room."""
    counted = Counted(lambda x, k: x + int(k))  # whose value is asked for
    fused = xt.fuse(counted)
    x = array()
    first, more, gap = room.REMEMBERED, 9 * room.UNWATCHED, room.UNWATCHED
    watched = [first]
    while watched[-1] + gap + 1 < first + more:
        watched.append(watched[-1] + gap + 1)
        gap *= 2
    for k in range(first + more):
        same(fused(x, k), x + k)
        fused(x, 0)
    assert counted.calls == first + more
    assert len(fused._known) == room.REMEMBERED
    assert fused.why(x, 0) == ""
    forgotten = [k for k in range(first + more) if fused.why(x, k).startswith(room.NUMBER)]
    assert forgotten[: len(watched)] == list(range(1, len(watched) + 1))
    assert [k for k in range(first, first + more) if fused.why(x, k) == ""] == watched


def test_kinds_that_never_come_again_cost_little() -> None:
    """A number that changes with each call, and whose value is asked for: few calls are taken down, all are right."""
    fused, watched = xt.fuse(lambda x, k: x * math.cos(k)), 0
    x = array()
    for k in range(200):
        before = len(fused._known)
        same(fused(x, 0.5 * k), x * math.cos(0.5 * k))
        watched += len(fused._known) > before
    assert room.IN_A_ROW <= watched <= 20
    for _ in range(2 * room.UNWATCHED * (watched // room.IN_A_ROW)):
        fused(x, 1.0)
    assert fused.why(x, 1.0) == ""  # a kind that stays is taken down in the end


def test_ever_new_kinds_are_looked_at_ever_more_rarely() -> None:
    """As long as nothing comes again: then it is taken down before long."""
    fused, watched = xt.fuse(lambda x, k: x * math.cos(k)), 0
    x = xt.asarray(np.ones(8))
    for k in range(8000):
        before = fused._uses
        assert float(fused(x, float(k))[0]) == math.cos(k)
        watched += fused._uses > before
    assert watched <= 9 * room.IN_A_ROW  # 15 << n of 8000 calls after so many each
    calls = 0
    while fused.why(x, 0.5).startswith("[changing]"):
        assert float(fused(x, 0.5)[0]) == math.cos(0.5)
        calls += 1
    assert room.UNWATCHED < calls <= 60 * room.UNWATCHED


def test_counters_whose_value_is_asked_for_cost_little() -> None:
    """Each call of such a method is one of another kind: ever fewer calls are taken down."""

    class Counter:
        def __init__(self) -> None:
            self.t = 0

        def step(self, x: Any) -> Any:
            self.t += 1
            return x * math.sqrt(self.t)

    counter, watched = Counter(), 0
    fused = xt.fuse(counter.step)
    x = array()
    for k in range(1, 301):
        before = len(fused._known)
        same(fused(x), x * math.sqrt(k))
        watched += len(fused._known) > before
    assert 1 < watched <= 10
    assert fused.why(x).startswith(room.COUNTS)


def test_new_kinds_from_several_threads() -> None:
    """What is remembered changes while another thread looks at it."""
    fused, failures = xt.fuse(lambda x, k: x * math.cos(k)), list[BaseException]()
    x = array()

    def call(first: int) -> None:
        try:
            for k in range(first, first + 150):
                same(fused(x, float(k)), x * math.cos(k))
        except BaseException as error:
            failures.append(error)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=call, args=(1000 * n,)) for n in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert not failures


def test_a_strict_function_takes_down_every_kind() -> None:
    fused = xt.fuse(lambda x, k: x * float(k), strict=True)
    x = array()
    for k in range(3 * room.IN_A_ROW):
        same(fused(x, k), x * float(k))
        assert fused.why(x, k) == ""


def test_kinds_that_come_again() -> None:
    """They find room, whatever came before them."""
    fused = xt.fuse(lambda x, k: x + int(k))
    x = array()
    for k in range(3 * room.REMEMBERED):
        fused(x, k)
    for _ in range(3):
        for k in range(10):
            same(fused(x, -k), x + -k)
            for _ in range(room.UNWATCHED + 1):
                fused(x, -k)
    assert all(fused.why(x, -k) == "" for k in range(10))


# ---- settings


def test_settings_are_honoured() -> None:
    """Plain calls where they are asked for; the engine and fast_math of the call."""
    counted = Counted(lambda x, y, z: x * y + z)
    fused = xt.fuse(counted)
    args = [xt.asarray(np.random.default_rng(seed).random(N), copy=True) for seed in range(3)]
    for _ in range(3):
        fused(*args)
    assert counted.calls == 1
    for changes in ({"lazy": "never"}, {"engine": "direct"}, {"show": "plan"}):
        with xt.options(**changes):
            assert fused.why(*args) == ASKED
            before = counted.calls
            result = fused(*args)
            assert counted.calls == before + 1
    del result
    assert fused.why(*args) == ""
    with xt.options(lazy="never"):
        other = Counted(lambda x: x + 1.0)
        plain = xt.fuse(other)
        plain(args[0])
    assert plain.why(args[0]) == room.NEW


@needs_llvm
def test_each_call_has_its_own_settings() -> None:
    """Contraction, engines and threads may change between calls."""
    fused = xt.fuse(lambda x, y, z: x * y + z)
    args = [xt.asarray(np.random.default_rng(seed).random(200_000), copy=True) for seed in range(3)]
    strict = (args[0].native() * args[1].native() + args[2].native()).tobytes()
    for turn in range(3):
        with xt.options(engine="llvm"):
            assert fused(*args).numpy().tobytes() == strict
        kernels = xt.cache_info().kernels
        with xt.options(engine="llvm", fast_math=True):
            assert np.allclose(fused(*args).numpy(), np.frombuffer(strict))
        assert xt.cache_info().kernels == kernels + (turn == 0)  # contraction has code of its own
        with xt.options(engine="interpret"):
            assert fused(*args).numpy().tobytes() == strict
        with xt.options(engine="llvm", threads=1):
            assert fused(*args).numpy().tobytes() == strict


@needs_llvm
def test_other_sizes_compile_nothing() -> None:
    fused = xt.fuse(lambda x: xt.sum(xt.exp(x - xt.max(x, axis=1, keepdims=True)), axis=1))
    with xt.options(engine="llvm"):
        for _ in range(2):
            fused(xt.reshape(array(N), (1400, 100)))
        kernels = xt.cache_info().kernels
        for rows in (100, 250, 800):
            for _ in range(2):
                fused(xt.reshape(array(N), (rows, N // rows)))
        assert xt.cache_info().kernels == kernels


@needs_llvm
def test_small_arrays() -> None:
    """The function itself is run as long as that costs less, or has not cost as much as compiling."""
    few = xt.fuse(lambda x: x + 1.0)
    many = xt.fuse(lambda x: xt.tanh(x) * xt.exp(x) + xt.sin(x) * xt.cos(x) - xt.exp(-x) / (xt.exp(x) + 1.0))
    x = array(1000)
    few(x)
    many(x)
    assert few.why(x) == SMALL
    for _ in range(3):
        many(x)
    assert many.why(x) == ""
    assert np.allclose(many(x).numpy(), many.__wrapped__(x).numpy(), rtol=1e-5)
    with xt.options(engine="llvm"):
        assert few.why(x) == ""


@needs_llvm
def test_small_arrays_are_not_looked_up_each_time() -> None:
    """That holds for nothing but calls as small, under the settings it was found out under."""
    plain = Counted(lambda x: x + 1.0)
    fused = xt.fuse(plain)
    small, large = array(1000), array(1_000_000)
    few, many = [xt.asarray(x, copy=True).numpy() + 1.0 for x in (small, large)]
    for _ in range(20):
        fused(small)
        fused(large)
    calls = plain.calls
    fused(large)
    assert plain.calls == calls
    for _ in range(3):
        fused(small)
    calls = plain.calls
    assert np.array_equal(fused(large).numpy(), many)
    assert np.array_equal(fused(x=small).numpy(), few)
    assert plain.calls == calls + 1
    for _ in range(3):
        fused(small)
    with xt.options(engine="llvm"):
        fused(small)
        calls = plain.calls
        assert np.array_equal(fused(small).numpy(), few)
        assert plain.calls == calls


def test_what_asks_for_values_is_not_looked_up_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is what cannot be captured for another reason; a function of larger arrays is looked up again."""
    looked: list[Any] = []
    look = room.signature_of
    monkeypatch.setattr(room, "signature_of", lambda *given: [looked.append(given), look(*given)][1])
    fused = xt.fuse(lambda x: x * 2.0 if float(x[0]) > 0 else x)
    small, large = xt.ones(4), xt.ones(100_000)
    for _ in range(33):
        assert np.array_equal(fused(small).numpy(), small.numpy() * 2.0)
    assert len(looked) == 4  # to find out, for the same kind once more, and after 15 calls each
    assert np.array_equal(fused(large).numpy(), large.numpy() * 2.0)
    assert len(looked) == 5 and fused.why(large).startswith("[values]")


def test_what_is_strict_never_stops_raising() -> None:
    """However often what cannot be captured is called; small arrays are nothing to be raised for."""
    asking = xt.fuse(lambda x: x * 2.0 if float(x[0]) > 0 else x, strict=True)
    small = xt.fuse(lambda x: x + 1.0, strict=True)
    for _ in range(40):
        with pytest.raises(RuntimeError, match="which is strict"):
            asking(xt.ones(4))
        assert small(xt.ones(4)).tolist() == [2.0] * 4


# ---- running


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (lambda x, y: xt.exp(x[1:]) - xt.sum(y * 2.0), [(200_000,), (100,)]),
        (lambda x, y: xt.tanh(x @ y.T) + 1.0, [(300, 100), (200, 100)]),
    ],
    ids=["loops", "library"],
)
def test_nobody_is_kept_alive(function: Any, shapes: Any) -> None:
    """Neither arguments nor results, in no engine."""
    for engine in ("interpret", "llvm") if host() else ("interpret",):
        with xt.options(engine=engine):
            fused = xt.fuse(function)
            for _ in range(3):
                x, y = (xt.reshape(array(math.prod(shape)), shape) for shape in shapes)
                result = fused(x, y)
                memory = [weakref.ref(one.blob.owner.bytes) for one in (x, y, result)]
                memory += [weakref.ref(x), weakref.ref(result)]
                del x, y, result
                gc.collect()
                assert not any(reference() is not None for reference in memory)


def test_a_result_that_asks_for_a_gradient() -> None:
    """Such a function is called each time."""

    def function(x: Any) -> Any:
        w = x * 2.0
        w.requires_grad = True
        return w * 3.0

    fused = xt.fuse(function)
    for _ in range(3):
        x = array()
        assert fused(x).requires_grad
        assert fused.why(x) == room.REQUIRES


def test_exceptions_pass_through() -> None:
    """And nothing is remembered."""
    error = RuntimeError("mine")

    def function(x: Any, fail: int) -> Any:
        y = x + 1.0
        if fails:
            raise error
        return y

    fails = [True]
    fused = xt.fuse(function)
    for _ in range(2):
        with pytest.raises(RuntimeError) as raised:
            fused(array(), 1)
        assert raised.value is error
    fails.clear()
    same(fused(array(), 1), array() + 1.0)
    with pytest.raises(ValueError, match=r"subtract: .*\(3,\)"):
        xt.fuse(lambda x, y: x - y)(array(), array(3))
    with pytest.raises(TypeError, match="fuse: function must be callable, got int"):
        xt.fuse(3)  # type: ignore[arg-type]


def test_fused_functions_call_each_other() -> None:
    """The inner one only records while the outer one is watched."""
    inner = xt.fuse(Counted(lambda x: x * 2.0))
    counted = Counted(lambda x: inner(inner(x)) + inner(x))
    outer = xt.fuse(counted)
    inner(array())
    for start in range(3):
        same(outer(array(start=start)), array(start=start) * 4.0 + array(start=start) * 2.0)
    assert counted.calls == 1 and outer.why(array()) == ""
    reasons = []
    xt.fuse(lambda x: [reasons.append(inner.why(x)), x + 1.0][1])(array())
    assert reasons == [room.INSIDE]


def test_recursion() -> None:
    fused: Any = xt.fuse(lambda x, n: x if n == 0 else fused(x * 0.5, n - 1))
    for _ in range(3):
        same(fused(array(), 5), array() * 0.5 * 0.5 * 0.5 * 0.5 * 0.5)
    assert fused.why(array(), 5) == ""


class Layer:
    def __init__(self) -> None:
        self.scale = 2.0

    @xt.fuse
    def forward(self, x: Any) -> Any:
        """Scale."""
        return x * self.scale

    @staticmethod
    @xt.fuse
    def double(x: Any) -> Any:
        return x * 2.0


def test_methods() -> None:
    """What a method reads of its object is looked up at each call; static ones are functions."""
    layer = Layer()
    for scale in (2.0, 3.0):
        layer.scale = scale
        for _ in range(2):
            same(layer.forward(array()), array() * scale)
    assert Layer.forward.why(layer, array()) == ""
    for _ in range(3):
        same(layer.double(array()), array() * 2.0)
    assert Layer.double.why(array()) == ""


@xt.fuse
def documented(x: xt.Tensor, scale: float = 2.0) -> xt.Tensor:
    """Say something."""
    return x * scale


def undecorated(x: xt.Tensor) -> xt.Tensor:
    return x + 1


def test_it_looks_like_the_function() -> None:
    assert documented.__name__ == "documented" and documented.__doc__ == "Say something."
    assert repr(documented) == "fuse(documented)"
    assert documented.__wrapped__.__name__ == "documented"
    assert repr(xt.fuse(np.add)) == "fuse(add)"


def test_leaks_are_sound() -> None:
    """What a watched function leaves elsewhere is as good as after a plain call: a write does not change it."""
    left: list[Any] = []

    def function(x: Any) -> Any:
        left.append(x * 2.0)
        left.append(x)
        return x + 1.0

    x = array(200_000)
    fused = xt.fuse(function)
    fused(x)
    before = x.numpy().copy()
    y = array(200_000)
    fused(y)
    later = left[1] + 1.0
    x[:] = 0.0
    assert np.array_equal(left[0].numpy(), before * 2.0)
    assert np.array_equal(later.numpy(), before + 1.0)
    assert np.array_equal(left[1].numpy(), np.zeros(200_000))


def test_resized_meanwhile() -> None:
    """The caller's tensor is what was resized."""
    x = array()
    result = xt.fuse(resizes)(x)
    assert x.shape == result.shape == (N // 2,)


def test_threads() -> None:
    """Many at once, each with its own arguments, new and known kinds mixed."""
    fused = xt.fuse(lambda x, k: (x[1:] - x[:-1]) * k + xt.sum(x))
    failures = []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(60):
            n, k = rng.choice((5_000, 40_000, 60_000)), rng.randrange(4)
            x = array(n, "float64", rng.randrange(100))
            native = x.native()
            if not np.array_equal(fused(x, k).native(), (native[1:] - native[:-1]) * k + native.sum()):
                failures.append((seed, n, k))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def look(x: xt.Tensor) -> None:
    float(x[0])


def write(x: xt.Tensor) -> None:
    x[0] = 1.0


@pytest.mark.parametrize("does", [look, write])
@pytest.mark.parametrize("to_argument", [True, False])
def test_other_threads_do_something_meanwhile(does: Callable[[Any], None], to_argument: bool) -> None:
    """That never counts against the function; if it is done to the argument, the next call is watched again."""
    x = array()
    other = x if to_argument else array()

    def function(x: Any) -> Any:
        if done.is_set():
            return x + 1.0
        thread = threading.Thread(target=lambda: (does(other), done.set()))
        thread.start()
        thread.join()
        return x + 1.0

    done = threading.Event()
    counted = Counted(function)
    fused = xt.fuse(counted)
    for calls in (1, 2, 2):
        same(fused(x), x + 1.0)
        assert counted.calls == calls  # what a closure holds is read as an argument is
    assert fused.why(x) == ""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of forking with threads, which is the point
def test_forks() -> None:
    """A child launches what its parent found out, and a fork in the middle of a watched call ends the watching."""
    fused = xt.fuse(lambda x: x * 2.0)
    fused(array())

    unseen: Any = Logger("of which no signature sees anything")

    def function(x: Any) -> Any:
        unseen.child = os.fork()
        return x + 1.0

    forking = xt.fuse(function)
    result = forking(array())
    if unseen.child == 0:
        good = not watchers and forking.why(array()) == room.NEW and fused.why(array()) == ""
        good = good and np.array_equal(fused(array()).native(), array().native() * 2)
        good = good and np.array_equal(result.native(), array().native() + 1)
        os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(unseen.child, 0)[1]) == 0
    assert forking.why(array()) == ""


def test_pickling() -> None:
    """A decorated function is found by its name, one that has another name by that of what it was made of."""
    assert pickle.loads(pickle.dumps(documented)) is documented
    other = pickle.loads(pickle.dumps(xt.fuse(undecorated)))
    assert type(other) is type(documented)
    assert other.__wrapped__ is undecorated


def test_pickles_of_a_script_by_value(tmp_path: Path) -> None:
    """As joblib, Dask and Ray send functions of `__main__` to processes that have another one."""
    pytest.importorskip("cloudpickle", reason="cloudpickle comes with the extra `dask`")
    script, written = tmp_path / "script.py", tmp_path / "pickle"
    script.write_text(
        "import cloudpickle, sys, xtensor as xt\n"
        "@xt.fuse\ndef even(x, n): return x * K if n == 0 else odd(x, n - 1)\n"
        "@xt.fuse\ndef odd(x, n): return even(x, n - 1)\n"
        "class Scaled:\n"
        "    @xt.fuse\n    def times(self, x): return x * K\n"
        "K = 3.0\n"
        "def local():\n"
        "    @xt.fuse\n    def inner(x): return x * K\n"
        "    return inner\n"
        "@xt.custom_vjp\ndef ruled(x): return x * K\n"
        "ruled.defvjp(lambda x: (ruled.f(x), None), lambda kept, g: (g * 7,))\n"
        "derived = [xt.fuse(xt.grad(lambda x, f=f: xt.sum(f(x)))) for f in (local(), ruled)]\n"
        "whole = [even, odd, Scaled().times, local(), ruled, derived]\n"
        "open(sys.argv[1], 'wb').write(cloudpickle.dumps(whole))\n"
    )
    subprocess.run([sys.executable, script, written], check=True, timeout=120)
    even, odd, times, inner, ruled, derived = pickle.loads(written.read_bytes())
    assert type(even) is type(odd) is type(inner) is type(documented)
    x = xt.arange(5.0)
    for result in (even(x, 4), odd(x, 3), times(x), inner(x), ruled(x)):
        assert result.tolist() == [0.0, 3.0, 6.0, 9.0, 12.0]
    assert [one(x).tolist() for one in derived] == [[3.0] * 5, [7.0] * 5]


# ---- random programs


@pytest.mark.parametrize("seed", range(10))
def test_random_programs(seed: int) -> None:
    """Results and arguments are NumPy's, call after call with other elements."""
    for failure in failures_of(PROGRAMS, seed, 50):
        raise failure


def test_random_programs_are_captured() -> None:
    """A generator of programs that no capture takes would pass everything."""
    taken = 0
    with xt.options(engine="interpret"):
        for seed in range(1, 300, 2):
            makers, body = parted(PROGRAMS.make(seed, "interpret").lines)
            given = makers + numbers_of(body, 0)
            names = arguments(given)
            fused = xt.fuse(function_of(names, body, returning(names, body)))
            side = Side(Ours(), lambda x: x)
            for line in given:
                side.step(line)
            args = [side.names[name] for name in names]
            for _ in range(3):
                fused(*args)
            taken += fused.why(*args) == ""
    assert taken > 40


def test_arguments_that_take_part_in_a_gradient_get_it() -> None:
    fused = xt.fuse(lambda x: xt.sum(xt.exp(x) * x))
    x = xt.asarray(np.linspace(0.0, 1.0, 100_000), copy=True)
    for _ in range(3):
        plain = fused(x)
    assert fused.why(x) == ""
    gradient = xt.grad(fused)(x)
    np.testing.assert_allclose(np.asarray(gradient), np.exp(x.numpy()) * (1.0 + x.numpy()), rtol=1e-14)
    x.requires_grad = True
    found = fused(x)
    assert found.requires_grad
    assert float(found) == float(plain)
    assert fused.why(x) == room.REQUIRES


@pytest.mark.parametrize("engine", ["auto", "llvm", "interpret"])
def test_a_function_meets_the_errors_of_its_steps(engine: Any) -> None:
    """Where a step of a schedule fails, and nothing was written to arguments, the function itself is called."""

    def solved(a: Any, b: Any) -> Any:
        try:
            return xt.linalg.solve(a, b) + 1.0
        except np.linalg.LinAlgError:
            return b * 2.0

    def taken(a: Any, k: Any) -> Any:
        return xt.take(a, k, axis=0) * 2.0

    with xt.options(engine=engine):
        right = np.arange(300.0).reshape(100, 3)
        for first in (0, 1):  # what a function does in its first call because of an error is not captured either
            fused = xt.fuse(solved)
            for call in range(first, 6):
                a = np.eye(100) * (call % 3)
                found = fused(xt.asarray(a, copy=True), xt.asarray(right, copy=True))
                np.testing.assert_allclose(np.asarray(found), right / (call % 3) + 1.0 if call % 3 else right * 2.0)
        fused = xt.fuse(taken)
        a = xt.asarray(right, copy=True)
        for last in (99, 99, 99, 100):
            places = xt.asarray([0, last])
            if last == 100:
                with pytest.raises(IndexError, match="take") as raised:
                    fused(a, places)
                assert "taken" in [entry.name for entry in raised.traceback]  # the line that failed is told
            else:
                np.testing.assert_array_equal(np.asarray(fused(a, places)), right[[0, last]] * 2.0)


def test_errors_after_writes_are_raised() -> None:
    """What was written to an argument is not written twice."""

    def added(x: Any, k: Any) -> Any:
        x += 1.0
        return xt.take(x, k, axis=0)

    fused = xt.fuse(added)
    x = xt.zeros((100, 1000))
    for call in range(1, 4):
        fused(x, xt.asarray([0, 1]))
        assert float(x[0, 0]) == call
    with pytest.raises(IndexError):
        fused(x, xt.asarray([0, 100]))
    assert float(x[0, 0]) == 4.0


def test_a_long_loop_is_run_by_kernels_in_the_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Library calls for each step of each repetition would take longer than a schedule that all share."""
    import xtensor.run.replay as replay

    calls, by_steps = [0], replay._by_steps

    def counted(*given: Any) -> Any:
        calls[0] += 1
        return by_steps(*given)

    monkeypatch.setattr(replay, "_by_steps", counted)

    def sweep(x: Any, y: Any) -> None:
        for j in range(1, 1200):
            x[:, j] = 0.5 * x[:, j - 1] / (2.0 + y[:, j]) + y[:, j - 1]

    start = np.random.default_rng(0).random((2, 50, 1200))
    x, y, (a, b) = xt.asarray(start[0]), xt.asarray(start[1]), start.copy()
    fused = xt.fuse(sweep, strict=True)
    for _ in range(2):
        fused(x, y)
        sweep(a, b)
        np.testing.assert_array_equal(x.numpy(), a)
    assert 0 < calls[0] < 600
    assert fused.why(x, y) == ""


@pytest.mark.parametrize("pays", [False, True])
def test_a_long_function_is_captured_when_plain_calls_have_taken_as_long(
    pays: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who calls it once does not wait for that; until then it does what it does plainly, also where it raises."""
    import xtensor.calls.capture as capture

    monkeypatch.setattr(capture, "CAPTURING", 1e-9 if pays else 1e9)

    def steps(x: Any, last: Any) -> None:
        for j in range(1, capture.FIRST_STEPS + 100):
            x[j] = 0.5 * x[j - 1] + x[j]
        x[last] = 0.0

    start = np.random.default_rng(0).random((capture.FIRST_STEPS + 100, 2000))
    x, y = xt.asarray(start), xt.asarray(start, copy=True)
    counted = Counted(steps)
    fused = xt.fuse(counted)
    for call in range(5):
        fused(x, 3)
        steps(y, 3)
        np.testing.assert_array_equal(x.numpy(), y.numpy())
        if call < 1 or not pays:
            assert fused.why(x, 3).startswith("[long]")
            assert "test_fuse.py" in fused.why(x, 3)
    assert counted.calls == (3 if pays else 5)
    assert (fused.why(x, 3) == "") == pays
    for _ in range(3):
        with pytest.raises(IndexError, match="10000"):
            fused(x, 10_000)


def test_why_without_the_arguments_of_a_call() -> None:
    """It says that it needs them, once there were calls with some."""
    fused = xt.fuse(lambda x: x * 2 + 1)
    assert fused.why().endswith("forgotten")
    for _ in range(3):
        fused(xt.ones(8))
    assert fused.why().endswith("why(...) takes the arguments of the call that is asked about")
    assert fused.why(xt.ones((8, 1, 1))).endswith("forgotten")


def test_why_tells_of_numbers_that_make_kinds() -> None:
    """A learning rate whose value is asked for at each call is never captured; as a tensor it is."""
    fused, w = (
        xt.fuse(lambda w, rate, rows: w - (rate if isinstance(rate, xt.Tensor) else float(rate)) * rows[0] * w),
        xt.ones(100_000),
    )
    for step in range(4):
        fused(w, 0.1 / (step + 1), [w])
    why = fused.why(w, 0.5, [w])
    assert why.startswith(
        "[changing] a number whose value it asks for, or that is not told to it, makes a kind of its own, as 0.5 now"
    )
    assert fused.why(w, 0.5, [w, w]).startswith("[new]")  # another length of a list is no number
    for step in range(4):
        fused(w, xt.asarray(0.1 / (step + 1)), [w])
    assert fused.why(w, xt.asarray(0.5), [w]) == ""


class Scaled:
    """An object with a method that is fused where it is made."""

    def __init__(self) -> None:
        self.w = xt.ones(20_000)
        self.fused = xt.fuse(self.times)

    def times(self, x: Any) -> Any:
        return x * self.w


@pytest.mark.parametrize("copied", [deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_the_method_of_a_copied_object_is_that_of_the_copy(copied: Callable[[Any], Any]) -> None:
    one, x = Scaled(), xt.ones(20_000)
    other = copied(one)
    other.w = other.w * 5.0
    for _ in range(3):
        assert (float(one.fused(x)[0]), float(other.fused(x)[0])) == (1.0, 5.0)
    assert deepcopy(xt.fuse(xt.abs)).why(x) != ""  # of a function, which is no copy


def test_settings_that_change_to_and_fro(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was prepared under some settings is there when they come again: they are the same object then."""
    from xtensor.run import captured

    prepared: list[Any] = []
    prepare = captured.Captured._prepared
    monkeypatch.setattr(
        captured.Captured, "_prepared", lambda self, limits: prepared.append(1) or prepare(self, limits)
    )
    fused, x = xt.fuse(lambda x: xt.tanh(x) * 2 + xt.sum(x)), array()
    seen = set()
    for _ in range(20):
        for changes in ({}, {"threads": 1}, {"fuse_limit": 64}):
            with xt.options(**changes) as given:
                seen.add(id(given))
                fused(x)
    assert len(prepared) == len(seen) == 3


def test_a_long_function_that_is_told_numbers_waits_as_any_other() -> None:
    """A number that changes makes no new first calls of it."""

    def many(x: Any, scale: float) -> Any:
        for _ in range(300):
            x[:10] += scale
        return x

    fused, x = xt.fuse(many), xt.zeros(20_000)
    for call in range(6):
        fused(x, float(call))
    assert len(fused._known) == 1
    assert fused.why(x, 0.0).startswith("[long]")
    assert float(x[0]) == 300.0 * sum(range(6))


@pytest.mark.parametrize("made", [lambda t: xt.asarray(t), lambda t: xt.asarray([[t, 1.0]], dtype=xt.float64)])
def test_tensors_of_told_numbers(made: Callable[[Any], Any]) -> None:
    fused, x = xt.fuse(lambda x, t: x * xt.sum(made(t))), xt.ones(200_000)
    for t in (0.5, 1.5, 2.5, 3.5, 4.5):
        np.testing.assert_array_equal(fused(x, t).numpy(), (x * xt.sum(made(t))).numpy())
    assert fused.why(x, 7.25) == ""


def test_what_is_refused_again_and_again_is_not_looked_up_each_time() -> None:
    box = iter([])
    fused, x = xt.fuse(lambda x, box: x + 1.0), xt.ones(200_000)
    for _ in range(3):
        fused(x, box)
    assert fused._not_looked_up > 0
    for _ in range(20):
        np.testing.assert_array_equal(fused(x, None).numpy(), 2.0)
    assert fused.why(x, None) == ""


def test_told_numbers_have_to_fit() -> None:
    """What a dtype does not hold is an error, as in a plain call."""
    fused, x = xt.fuse(lambda x, n: x * xt.astype(xt.asarray(n, dtype=xt.uint8), xt.float64)), xt.ones(20_000)
    for n in (1, 2, 3, 4):
        assert float(fused(x, n)[0]) == n
    for n in (300, -1):
        with pytest.raises(OverflowError, match="asarray"):
            fused(x, n)
    with pytest.raises(ValueError, match="copy"):
        xt.fuse(lambda x, t: x * xt.asarray(t, copy=False))(x, 1.5)


@pytest.mark.parametrize("function", [xt.exp, xt.nn.gelu, xt.nn.softmax, xt.special.erf, partial(xt.sum, axis=0)])
def test_a_function_of_the_library_is_captured_alone(function: Any) -> None:
    """What it finds by its names is always the same."""
    x = xt.linspace(0.5, 2.0, 200_000)  # of numbers of both signs a sum would tell the order of additions
    fused = xt.fuse(function, strict=True)
    for _ in range(3):
        np.testing.assert_allclose(fused(x).numpy(), function(x).numpy(), rtol=1e-13)
    assert fused.why(x) == ""

"""Gradients of every differentiable function, against differences of values, and that none is forgotten.

Driven by tests/samples: a function of the standard that has a gradient and no sample fails here.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from inspect import isroutine
from operator import attrgetter
from typing import Any

import numpy as np
import pytest

import xtensor as xt
from tests.samples import Array, Sample, complexes, function_by_function, normal, samples
from xtensor.autograd import check_grads
from xtensor.autograd.rules import RULES
from xtensor.calls.op import REGISTRY

# ---- every function of the standard, by what it has to do with gradients


def words(text: str) -> set[str]:
    """Return the names in a text."""
    return set(text.split())


# Floating results that change with floating arguments; linalg's and fft's functions with the name of their part.
DIFFERENTIABLE = words(
    """
    asarray meshgrid tril triu full full_like linspace astype
    abs acos acosh add asin asinh atan atan2 atanh clip conj copysign cos cosh divide exp expm1 hypot imag log log1p
    log2 log10 logaddexp maximum minimum multiply negative nextafter positive pow real reciprocal remainder sign sin
    sinh square sqrt subtract tan tanh
    take take_along_axis
    matmul matrix_transpose tensordot vecdot
    broadcast_arrays broadcast_to concat expand_dims flip moveaxis permute_dims repeat reshape roll squeeze stack tile
    unstack
    where
    unique_all unique_counts unique_inverse unique_values
    sort
    cumulative_sum cumulative_prod max mean min prod std sum var
    diff
    linalg.cholesky linalg.cross linalg.det linalg.diagonal linalg.eig linalg.eigh linalg.eigvals linalg.eigvalsh
    linalg.inv linalg.matmul linalg.matrix_norm linalg.matrix_power linalg.matrix_transpose linalg.outer linalg.pinv
    linalg.qr linalg.slogdet linalg.solve linalg.svd linalg.svdvals linalg.tensordot linalg.trace linalg.vecdot
    linalg.vector_norm
    fft.fft fft.ifft fft.fftn fft.ifftn fft.rfft fft.irfft fft.rfftn fft.irfftn fft.hfft fft.ihfft fft.fftshift
    fft.ifftshift
    """
)

# Floating results that do not change with their arguments, except at jumps.
STEPS = words("ceil floor floor_divide round trunc")

# Integers, booleans and structure; constants; and memory of other libraries, which has no history here.
WITHOUT = words(
    """
    arange empty empty_like eye from_dlpack ones ones_like zeros zeros_like can_cast finfo iinfo isdtype result_type
    bitwise_and bitwise_left_shift bitwise_invert bitwise_or bitwise_right_shift bitwise_xor equal greater
    greater_equal isfinite isinf isnan less less_equal logical_and logical_not logical_or logical_xor not_equal signbit
    broadcast_shapes argmax argmin count_nonzero nonzero searchsorted isin argsort all any linalg.matrix_rank
    fft.fftfreq fft.rfftfreq
    """
)

# Functions that are written in differentiable ones, called with the tensors themselves.
COMPOSED = words(
    """
    asarray broadcast_arrays meshgrid diff linalg.eigvals linalg.trace
    """
)

# What has samples under these names and is neither a function of the namespace nor a method.
SYNTAX = words("getitem setitem operators")

# What depends on how its argument lies in memory, or on its dtype: no other one is given to it.
OF_MEMORY = words("view flat_2d")

SAMPLES = list(samples())
PLACES = {id(sample): place for place, sample in enumerate(SAMPLES)}
every_sample = function_by_function(SAMPLES)
every_numeric_sample = function_by_function(sample for sample in SAMPLES if sample.function not in OF_MEMORY)
every_function = pytest.mark.parametrize("name", sorted(DIFFERENTIABLE | STEPS))


def function_of(name: str) -> Any:
    """Return a function of the namespace by its name, which may have a dot in it; None where there is none."""
    found: Any = xt
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def test_every_function_of_the_standard_is_listed() -> None:
    """The three lists together are what the namespace has, and no name is in two of them."""
    parts = {"": xt, "linalg.": xt.linalg, "fft.": xt.fft}
    listed = DIFFERENTIABLE | STEPS | WITHOUT
    assert len(listed) == len(DIFFERENTIABLE) + len(STEPS) + len(WITHOUT) == 174
    for prefix, part in parts.items():
        have = {
            prefix + name
            for name in dir(part)
            if isroutine(getattr(part, name)) or isinstance(getattr(part, name), type)
        }
        missing = {name for name in listed if name.rpartition(".")[0] + "." == (prefix or ".")} - have
        assert not missing


@every_function
def test_every_function_has_a_rule(name: str) -> None:
    """A function has a rule, or is named as a composition, and not both."""
    attrgetter(name)(xt)  # whose rule comes with it
    rule = RULES.get(name.rpartition(".")[2])
    if name in COMPOSED:
        assert rule is None, f"{name} has a rule: take it out of COMPOSED"
    else:
        assert rule is not None, f"{name} has no rule, and is not among COMPOSED"


def test_every_row_with_floating_results_has_a_rule() -> None:
    """An elementwise function or reduction that makes floating-point numbers of such says how gradients go back."""
    for op in REGISTRY.values():
        operands = [np.dtype(np.float64)] * (len(op.parameters) if op.kind == "elementwise" else 1)
        try:
            dtype = op.dtype(*operands)
        except TypeError:
            continue  # takes integers only
        assert dtype.kind not in "fc" or set(op.rule.pulls) == set(op.parameters), op.name


def test_every_rule_has_a_sample() -> None:
    """What has a rule and can be called by users, and every differentiable function of the standard, has a sample.

    Names of NumPy's, which the namespace looks up, are no functions of it.
    """
    sampled = {sample.function for sample in SAMPLES}
    parts = {"": xt, "linalg.": xt.linalg, "fft.": xt.fft}
    public = {
        prefix + rule
        for prefix, part in parts.items()
        for rule in RULES
        if rule in getattr(part, "__all__", vars(part)) and callable(getattr(part, rule))
    }
    assert sorted((public | DIFFERENTIABLE | STEPS | {"getitem"}) - sampled) == []


def test_every_sample_names_a_function() -> None:
    """A sample with a misspelt name would be of no function."""
    names = {sample.function for sample in SAMPLES} - SYNTAX
    assert sorted(name for name in names if not callable(function_of(name)) and not hasattr(xt.Tensor, name)) == []


# ---- what is checked of each


def of(sample: Sample) -> Callable[..., list[Any]]:
    """Return a sample's call, as a function that returns its floating-point results."""

    def call(*args: Any) -> list[Any]:
        found = sample.call(xt, *args)
        return [y for y in (found if isinstance(found, (tuple, list)) else [found]) if y.dtype.kind in "fc"]

    return call


def cotangents_of(results: list[Any]) -> list[Array]:
    """Return random cotangents for results."""
    return [(complexes if y.dtype.kind == "c" else normal)(*y.shape, seed=7 + n) for n, y in enumerate(results)]


def gradients(call: Callable[..., list[Any]], args: Any, only: int | None = None) -> list[Any]:
    """Return the gradients at tensors for random cotangents of all results, or of one alone."""
    results, pull = xt.vjp(call, *args)
    seeds = [g if only in (None, n) else np.zeros_like(g) for n, g in enumerate(cotangents_of(results))]
    return list(pull([xt.asarray(np.asarray(g, y.dtype)) for g, y in zip(seeds, results, strict=True)]))


@cache
def plain_gradients(number: int) -> list[Array]:
    """Return the gradients of a sample at its own arguments, as they are."""
    sample = SAMPLES[number]
    return [g.numpy() for g in gradients(of(sample), [xt.asarray(a.copy()) for a in sample.args])]


def expected_of(sample: Sample) -> list[Array]:
    """Return the gradients of a sample, computed once for all tests."""
    return plain_gradients(PLACES[id(sample)])


def assert_close(got: list[Any], wanted: list[Array], rtol: float, atol: float = 0.0) -> None:
    """Check gradients, in relation to the largest entry of each."""
    assert len(got) == len(wanted)
    for one, other in zip(got, wanted, strict=True):
        scale = np.max(np.abs(other), initial=0.0)
        np.testing.assert_allclose(one.numpy(), other, rtol=rtol, atol=max(rtol * scale, atol))


@every_sample
def test_first_order(sample: Sample) -> None:
    """Gradients are what differences of values are, in every entry, and their transpose is the derivative forward."""
    check_grads(of(sample), sample.args, order=1)


@function_by_function(one for one in SAMPLES if one.second)
def test_second_order(sample: Sample) -> None:
    """Gradients of gradients as well."""
    check_grads(of(sample), sample.args, order=2)


@every_sample
def test_shapes_and_dtypes(sample: Sample) -> None:
    """A gradient has the shape and dtype of its argument."""
    assert [(g.shape, g.dtype) for g in expected_of(sample)] == [(a.shape, a.dtype) for a in sample.args]


@every_numeric_sample
def test_single_precision(sample: Sample) -> None:
    """Arguments in single precision have gradients in single precision, near those in double."""
    single = [xt.asarray(a.astype(np.complex64 if a.dtype.kind == "c" else np.float32)) for a in sample.args]
    got = gradients(of(sample), single)
    assert [g.dtype for g in got] == [x.dtype for x in single]
    assert_close(got, expected_of(sample), 2e-3, atol=1e-5)  # where terms of about 1 leave nothing


LAYOUTS: dict[str, Callable[[Array], Any]] = {
    "transposed": lambda a: xt.permute_dims(xt.asarray(a.T.copy()), tuple(range(a.ndim))[::-1]),
    "reversed": lambda a: xt.flip(xt.asarray(np.flip(a).copy())),
    "gaps": lambda a: xt.asarray(np.repeat(a[..., None], 2, -1).copy())[..., 0],
}


@every_numeric_sample
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_layouts(sample: Sample, layout: Callable[[Array], Any]) -> None:
    """How arguments lie in memory makes no difference."""
    assert_close(gradients(of(sample), [layout(a) for a in sample.args]), expected_of(sample), 1e-9)


@function_by_function(
    one for one in SAMPLES if not one.function.startswith("linalg.") and one.function not in OF_MEMORY
)
def test_broadcast_arguments(sample: Sample) -> None:
    """Neither does it that they repeat in memory (equal rows would make matrices singular)."""

    def stretched(a: Array) -> Any:
        return xt.broadcast_to(xt.asarray(a[:1].copy()), a.shape) if a.ndim else xt.asarray(a)

    args = [stretched(a) for a in sample.args]
    packed = [xt.asarray(x.numpy().copy()) for x in args]
    with np.errstate(all="ignore"):
        assert_close(gradients(of(sample), args), [g.numpy() for g in gradients(of(sample), packed)], 1e-9)


@every_sample
@pytest.mark.parametrize("lazy", ["always", "never"])
def test_recorded_or_direct(sample: Sample, lazy: str) -> None:
    """Recording every call, or none, makes no difference."""
    with xt.options(lazy=lazy):
        got = gradients(of(sample), [xt.asarray(a.copy()) for a in sample.args])
    assert_close(got, expected_of(sample), 1e-9)


@every_sample
def test_arguments_written_afterwards(sample: Sample) -> None:
    """What the way back needs is what the arguments were when the call was made."""
    tensors = [xt.asarray(a.copy()) for a in sample.args]
    results, pull = xt.vjp(of(sample), *tensors)
    for x in tensors:
        x[...] = 77
    assert_close(list(pull([xt.asarray(g) for g in cotangents_of(results)])), expected_of(sample), 1e-9)


@every_sample
def test_one_of_several_results(sample: Sample) -> None:
    """A result that is not used counts as one whose cotangent is zero."""
    call, args = of(sample), [xt.asarray(a) for a in sample.args]
    count = len(call(*args))
    for only in range(count if count > 1 else 0):
        results, pull = xt.vjp(lambda *x, only=only: call(*x)[only], *args)
        got = pull(xt.asarray(cotangents_of(call(*args))[only]))
        assert_close(list(got), [g.numpy() for g in gradients(call, args, only)], 1e-9)


# ---- operators, methods and conveniences: each is one of the functions, or has a gradient of its own

MATRIX, CUBE, NUMBERS = normal(3, 3), normal(2, 3, 3), complexes(2, 3)

METHODS: dict[str, tuple[Callable[..., Any], Array]] = {
    "x + 2": (lambda x: x + 2 + (1.5 - x) * 3 / (x * x + 1), MATRIX),
    "2 ** x": (lambda x: 2**x - (-x) ** 3 + abs(x) % 0.7, MATRIX),
    "x @ x": (lambda x: x @ x.T, MATRIX),
    "+x": (lambda x: +x * 2, MATRIX),
    "T": (lambda x: x.T * x, MATRIX),
    "mT": (lambda x: x.mT * x, CUBE),
    "real": (lambda z: z.real * 2, NUMBERS),
    "imag": (lambda z: z.imag * 2, NUMBERS),
    "real of real": (lambda x: x.real * 2, MATRIX),
    "conj": (lambda z: z.conj() * z * z, NUMBERS),
    "index": (lambda x: x[1] * x[:, 0] * x[-1, ::-1], MATRIX),
    "index by integers": (lambda x: x[[0, 2, 0]] * 2, MATRIX),
    "index by a mask": (lambda x: x[x > 0] ** 2, MATRIX),
    "index by None": (lambda x: x[None, ..., None] * x[1, 1], MATRIX),
    "iteration": (lambda x: [row * n for n, row in enumerate(x)], MATRIX),
    "astype": (lambda x: x.astype(xt.complex128) * (2 + 1j), MATRIX),
    "reshape": (lambda x: x.reshape(9) * x.reshape((9,)), MATRIX),
    "flatten": (lambda x: x.flatten() * 2, MATRIX),
    "ravel": (lambda x: x.ravel() * 2, MATRIX),
    "squeeze": (lambda x: x[None].squeeze() * 2, MATRIX),
    "transpose": (lambda x: x.transpose() * x.transpose(1, 0), MATRIX),
    "dot": (lambda x: x.dot(x), MATRIX),
    "dot of a vector": (lambda x: x.dot(x[0]), MATRIX),
    "clip": (lambda x: x.clip(-0.5, 0.5) * x, MATRIX),
    "sum": (lambda x: x.sum(axis=0) * x.mean(axis=1) + x.prod(axis=0), MATRIX),
    "std": (lambda x: x.std(axis=0) * x.var(axis=1), MATRIX),
    "max": (lambda x: x.max(axis=0) * x.min(axis=1), MATRIX),
    "copy": (lambda x: x.copy() * 2, MATRIX),
    "copy of module copy": (lambda x: copy.copy(x) * copy.deepcopy(x), MATRIX),
    "to_device": (lambda x: x.to_device("cpu") * 2, MATRIX),
    "diag": (lambda x: xt.diag(x) * 2, MATRIX),
    "diag of a vector": (lambda x: xt.diag(x[0], 1) * 2, MATRIX),
    "einsum": (lambda x: xt.einsum("ij,jk->ik", x, x), MATRIX),
    "view": (lambda x: x.view(xt.complex128) * (2 + 1j), normal(3, 4)),
    "flat_2d": (lambda x: x.flat_2d() * 2, CUBE),
    "asarray": (lambda x: xt.asarray(x) * xt.asarray(x, copy=True), MATRIX),
    "asarray of a dtype": (lambda x: xt.asarray(x, dtype=xt.complex128) * (2 + 1j), MATRIX),
    "evaluate": (lambda x: (x * x).evaluate() * x, MATRIX),
    "round": (lambda x: x.round() + x, MATRIX),
}


@pytest.mark.parametrize(("f", "x"), METHODS.values(), ids=METHODS)
def test_methods(f: Callable[..., Any], x: Array) -> None:
    """Methods and operators have the gradients of what they do; never silently none."""
    check_grads(f, (x,))


WRITES: dict[str, Callable[[Any], None]] = {
    "+=": lambda y: y.__iadd__(y[0] * 2),
    "-=": lambda y: y.__isub__(3.0),
    "*=": lambda y: y.__imul__(y[:, :1]),
    "/=": lambda y: y.__itruediv__(y * y + 1),
    "**=": lambda y: y.__ipow__(2),
    "@=": lambda y: y.__imatmul__(y + 1),
    "x[...] =": lambda y: y.__setitem__(..., y[0] * y[1]),
    "x[0] =": lambda y: y.__setitem__(0, y[1] * y[2]),
    "x[:, ::2] +=": lambda y: y[:, ::2].__iadd__(y[:, :1]),
    "x[mask] =": lambda y: y.__setitem__(y > 0, 1.0),
    "x[mask] = values": lambda y: y.__setitem__(y > 0, y[y > 0] ** 2),
    "x[integers] =": lambda y: y.__setitem__([2, 0], y[:2] * y[1:]),
    "x[integers, twice] =": lambda y: y.__setitem__([0, 0], y[1:] * 2),
    "x.T[0] =": lambda y: y.T.__setitem__(0, y[0]),
    "x[0, 0] = number": lambda y: y.__setitem__((0, 0), 5.0),
    "row view": lambda y: y[1].__imul__(y[2]),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("lazy", ["auto", "always"])
def test_writes(write: Callable[[Any], None], lazy: str) -> None:
    """A program that writes in place has the gradients of what it computes, seen through views made before or after."""

    def f(x: Any) -> Any:
        y = x * x
        before = y[1:]
        z = y * 3
        write(y)
        return y * y, before * 2, y[:, 1] * 3, z

    with xt.options(lazy=lazy):
        check_grads(f, (MATRIX,))


KEYS: dict[str, Any] = {
    "rows": np.asarray([0, 3, 3, 1]),
    "columns": (slice(None), np.asarray([4, 0, 4])),
    "last": (slice(None), slice(None), np.asarray([[0, 5], [5, 1]])),
    "from the end": (slice(None), np.asarray([-1, 0, -1])),
    "of a part": (slice(1, 3), np.asarray([2, 2])),
    "after an ellipsis": (..., np.asarray([2, 0, 2])),
    "two": (np.asarray([0, 3, 3]), np.asarray([1, 2, 2])),
    "a mask": (slice(None), np.asarray([True, False, True, True, False])),
    "none": (slice(None), np.asarray([], int)),
}


@pytest.mark.parametrize("name", KEYS)
def test_gradients_of_index_arrays_are_added_where_they_came_from(name: str) -> None:
    key, x = KEYS[name], np.random.default_rng(0).normal(size=(4, 5, 6))
    y, pullback = xt.vjp(lambda x: x[key], xt.asarray(x))
    g = np.random.default_rng(1).normal(size=y.shape)
    expected = np.zeros_like(x)
    np.add.at(expected, key, g)
    np.testing.assert_allclose(pullback(xt.asarray(g))[0].numpy(), expected, rtol=1e-14)


# ---- parts of arrays


def parted(x: Any, kind: str) -> Any:
    """Return a loss of parts of x, (6, 8), that lie apart, overlap, are strided or are all of it."""
    if kind == "halves":
        return xt.sum(x[:, :4] * xt.exp(x[:, 4:]))
    if kind == "rows":
        return sum(xt.sum(x[n] ** 2) * (n + 1.0) for n in range(6))
    if kind == "some rows":
        return xt.sum(x[1] ** 3) + xt.sum(x[-1] * x[2])
    if kind == "windows":
        return xt.sum(x[1:] * x[:-1]) + xt.sum(x[:, 2:] * x[:, 1:-1] * x[:, :-2])
    if kind == "strided":
        return xt.sum(x[::2] ** 2 * x[1::2]) + xt.sum(x[::-1, 3] * x[:, 2])
    if kind == "elements":
        return x[0, 0] * x[5, 7] + x[2, 3] ** 2 * x[0, 0]
    if kind == "and the whole":
        return xt.sum(x[0]) + xt.sum(x) + xt.sum(x**2) + xt.sum(x[2:4] ** 3) + xt.sum(x) + xt.sum(x) * 2.0
    return xt.sum(xt.exp(x[:, None] - x[None, :]) * x[None, ...])


@pytest.mark.parametrize("times", [1, 800])
@pytest.mark.parametrize(
    "kind", ["halves", "rows", "some rows", "windows", "strided", "elements", "and the whole", "new axes"]
)
def test_parts_of_arrays(kind: str, times: int) -> None:
    """Gradients through parts agree with differences; those of large arrays, which are not NumPy's, with small ones."""
    native = np.random.default_rng(len(kind)).normal(size=(6, 8)) / 2
    x = xt.asarray(native)
    found = xt.grad(lambda x: parted(x, kind))(x).numpy()
    for place in [(0, 0), (2, 3), (5, 7), (4, 1)]:
        step = np.zeros((6, 8))
        step[place] = 1e-6
        ends = [float(parted(xt.asarray(native + sign * step), kind)) for sign in (1, -1)]
        assert found[place] == pytest.approx((ends[0] - ends[1]) / 2e-6, abs=1e-6)
    if times > 1:  # copies of x side by side along a new axis, so many that they are no longer NumPy's
        whole = xt.grad(lambda x: xt.sum(parted(x, kind)))(xt.asarray(np.stack([native] * times, axis=-1)))
        np.testing.assert_allclose(whole.numpy(), np.stack([found] * times, axis=-1), rtol=0, atol=1e-13)
    fused = xt.fuse(xt.grad(lambda x: parted(x, kind)))
    for _ in range(3):
        np.testing.assert_allclose(fused(x).numpy(), found, rtol=0, atol=1e-13)
    twice = xt.grad(lambda x: xt.sum(xt.grad(lambda x: parted(x, kind))(x) ** 2))(x).numpy()
    step = np.zeros((6, 8))
    step[2, 3] = 1e-6
    ends = [
        float(xt.sum(xt.grad(lambda x: parted(x, kind))(xt.asarray(native + sign * step)) ** 2)) for sign in (1, -1)
    ]
    assert twice[2, 3] == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-5, abs=1e-5)

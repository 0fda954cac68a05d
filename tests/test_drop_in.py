"""What programs written for NumPy do now and then: arguments of methods, lists with arrays in them, odd dtypes."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy
import pytest

import xtensor as xt
import xtensor.numpy as np
from xtensor.autograd.checking import check_grads

Form = Callable[..., Any]


def same(ours: Any, theirs: Any) -> None:
    numpy.testing.assert_array_equal(numpy.asarray(ours), theirs)
    assert getattr(ours, "dtype", None) == getattr(theirs, "dtype", None)


# ---- methods

METHODS: dict[str, Form] = {
    "astype by a rule": lambda y, np: y.astype("f4", casting="same_kind"),
    "astype in an order": lambda y, np: y.astype("f4", order="F"),
    "astype, all by place": lambda y, np: y.astype("f4", "C", "unsafe", True, False),
    "astype of values that stay": lambda y, np: np.floor(y).astype("i4", casting="same_value"),
    "sum where": lambda y, np: y.sum(0, where=[True, False, True]),
    "sum from": lambda y, np: y.sum(initial=3.0),
    "sum, all by place": lambda y, np: y.sum(0, None, None, True, 5.0, [[True], [False]]),
    "max, all by place": lambda y, np: y.max(1, None, True, 0.5, y > -1),
    "astype, order A": lambda y, np: y.T.astype("f4", order="A"),
    "astype, order A of a row": lambda y, np: y[:, ::2].astype("f4", order="A"),
    "astype of NaN that stays": lambda y, np: (y * np.nan).astype("f8", casting="same_value"),
    "prod where": lambda y, np: y.prod(where=y > 0),
    "mean where": lambda y, np: y.mean(1, where=[True, False, True]),
    "max from": lambda y, np: y.max(initial=9.0),
    "min where": lambda y, np: y.min(where=y > 0, initial=5.0),
    "any where": lambda y, np: y.any(where=y > 1),
    "all where": lambda y, np: y.all(1, where=y > 1),
    "var where": lambda y, np: y.var(ddof=1, where=[True, True, False]),
    "std of a mean": lambda y, np: y.std(mean=1.5),
    "clip out": lambda y, np: y.clip(0, 1, out=np.zeros((2, 3))),
    "round out": lambda y, np: y.round(1, out=np.zeros((2, 3))),
    "dot out": lambda y, np: y.dot(y.T, out=np.zeros((2, 2))),
}


@pytest.mark.parametrize("name", METHODS)
def test_methods_take_what_numpys_take(name: str) -> None:
    native = numpy.random.default_rng(0).standard_normal((2, 3))
    ours, theirs = METHODS[name](xt.asarray(native.copy()), np), METHODS[name](native, numpy)
    same(ours, theirs)
    assert getattr(ours, "strides", ()) == getattr(theirs, "strides", ())


def test_methods_refuse_what_numpys_refuse() -> None:
    y = xt.asarray([1.5, 2.0])
    with pytest.raises(TypeError, match="^astype: dtype must be one that float64 can be cast to by 'safe', got int32"):
        y.astype("i4", casting="safe")
    with pytest.raises(ValueError, match="^astype: x must hold values that are the same in int32"):
        y.astype("i4", casting="same_value")
    with pytest.raises(TypeError, match="unexpected keyword argument 'foo'"):
        y.sum(foo=1)


def test_gradients_of_views_in_foreign_byte_order_are_an_error() -> None:
    with pytest.raises(NotImplementedError, match="^view: no derivative"):
        xt.grad(lambda x: xt.sum(x * x) + xt.sum(x.view(">f8")))(xt.asarray([1.0, 2.0]))


def test_setflags_is_no_step_of_a_captured_function() -> None:
    def function(x: xt.Tensor) -> xt.Tensor:
        x.setflags(write=False)
        return x + 1

    fused = xt.fuse(function)
    with xt.options(engine="llvm"):
        for _ in range(3):
            x = xt.asarray([1.0, 2.0], copy=True)
            assert fused(x).tolist() == [2.0, 3.0]
            assert not x.is_writeable
        assert "(setflags)" in fused.why(xt.asarray([1.0, 2.0], copy=True))


def test_setflags() -> None:
    y = xt.asarray([1.0, 2.0], copy=True)
    other = y[:]
    y.setflags(write=False)
    y.setflags(align=True)
    with pytest.raises(ValueError, match="read-only"):
        y[0] = 5.0
    other[0] = 7.0
    assert y.tolist() == [7.0, 2.0]
    with pytest.raises(ValueError, match="^setflags: write must be None or False"):
        y.setflags(write=True)


# ---- lists with tensors in them

LISTS: dict[str, Form] = {
    "beside an operator": lambda x, np: (x + [x[1], 2.0]).sum(),
    "beside a constant": lambda x, np: (np.asarray([1.0, 2.0]) * [x[0], x[1]] * x[0]).sum(),
    "in a product": lambda x, np: x @ [x[0], 1.0],
    "reduced": lambda x, np: np.max([x[0], x[1]]),
    "chosen": lambda x, np: np.where(x > 0, [x[1], x[0]], x).sum(),
    "nested": lambda x, np: (x * ((x[1],), (2.0,))).sum(),
    "joined": lambda x, np: np.concatenate([[x[0] * 2, 1.0], x]).sum(),
    "a matrix": lambda x, np: np.linalg.det([[x[0], 0.5], [0.5, x[1]]]),
    "in place": lambda x, np: written(np, x, lambda y: y.__iadd__([x[0], x[1]])),
    "assigned": lambda x, np: written(np, x, lambda y: y.__setitem__(slice(None), [x[1], -x[0]])),
    "assigned, as a tuple": lambda x, np: written(np, x, lambda y: y.__setitem__(slice(None), (x[1], x[0] ** 2))),
}


def written(np: Any, x: Any, write: Callable[[Any], Any]) -> Any:
    y = np.zeros(2)
    write(y)
    return (y * y * x).sum()


@pytest.mark.parametrize("name", LISTS)
def test_gradients_through_lists(name: str) -> None:
    function, point = LISTS[name], numpy.asarray([1.5, 2.5])
    expected = numpy.zeros(2)
    for place in range(2):
        step = numpy.zeros(2)
        step[place] = 1e-6
        expected[place] = (function(point + step, numpy) - function(point - step, numpy)) / 2e-6
    x = xt.asarray(point.copy())
    found = xt.grad(lambda x: function(x, np))
    numpy.testing.assert_allclose(found(x).numpy(), expected, rtol=1e-7, atol=1e-7)
    fused = xt.fuse(found)
    for _ in range(3):
        numpy.testing.assert_allclose(fused(x).numpy(), expected, rtol=1e-7, atol=1e-7)


def test_lists_of_constants_are_captured() -> None:
    fused = xt.fuse(lambda x, y: x * [y[0], 2.0] + [1.0, y[1]])
    x, y = xt.asarray([1.0, 2.0]), xt.asarray([3.0, 4.0])
    with xt.options(engine="llvm"):
        for _ in range(3):
            assert fused(x, y).tolist() == [4.0, 8.0]
            y += 0.0
        assert not fused.why(x, y)
        y[...] = xt.asarray([5.0, 6.0])
        assert fused(x, y).tolist() == [6.0, 10.0]


def test_a_jacobian_of_a_right_hand_side() -> None:
    def rhs(x: xt.Tensor) -> xt.Tensor:
        dy = np.zeros(2)
        dy[:] = [x[1], -x[0]]
        return dy

    assert xt.jacobian(rhs)(xt.ones(2)).tolist() == [[0.0, 1.0], [-1.0, 0.0]]


# ---- dtypes, orders, errors


@pytest.mark.parametrize("dtype", [">u2", ">i4", ">f4", "<u2", numpy.dtype(">u2")])
def test_views_in_foreign_byte_order_are_converted(dtype: Any) -> None:
    raw = bytes(range(8))
    theirs = numpy.frombuffer(raw, numpy.uint8).view(dtype)
    ours = np.frombuffer(raw, dtype=np.uint8).view(dtype)
    same(ours, theirs.astype(theirs.dtype.newbyteorder("=")))
    if not numpy.dtype(dtype).isnative:
        with pytest.raises(ValueError, match="read-only"):
            ours[0] = 1


@pytest.mark.parametrize("value", [300, -1, 5, -200, 70_000, 2**40, 128, -128])
@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16", "float32"])
def test_where_takes_the_bits_of_integers(dtype: str, value: int) -> None:
    mask, x = numpy.asarray([False, True] * 10_000), numpy.zeros(20_000, dtype)
    fused = xt.fuse(lambda mask, x: np.where(mask, x, value))
    try:
        theirs = numpy.where(mask, x, value)
    except OverflowError:  # from NumPy 2.5 on
        for call in (np.where, lambda mask, x, value: fused(mask, x)):
            with pytest.raises(OverflowError, match=f"Python integer {value} out of bounds for {dtype}"):
                call(xt.asarray(mask), xt.asarray(x), value)
        return
    for _ in range(3):
        same(fused(xt.asarray(mask), xt.asarray(x)), theirs)
    same(np.where(xt.asarray(mask), xt.asarray(x), value), theirs)


def test_where_refuses_integers_of_more_than_64_bits() -> None:
    with pytest.raises(
        OverflowError, match="^where: (an integer must fit into 64 bits|Python integer .* out of bounds)"
    ):
        np.where(xt.asarray([True] * 9000), xt.zeros(9000, dtype=xt.int8), 2**70)


@pytest.mark.parametrize("shape", [(3, 4), (120, 130)])
@pytest.mark.parametrize("order", ["K", "A", "C", "F"])
def test_arrays_like_others_lie_like_them(shape: tuple[int, int], order: str) -> None:
    ours, theirs = np.ones((*shape, 2)).transpose(2, 1, 0), numpy.ones((*shape, 2)).transpose(2, 1, 0)
    for name in ("empty_like", "zeros_like", "ones_like"):
        for cut in (slice(None), slice(None, None, -1)):
            like = getattr(np, name)(ours[:, cut], order=order)
            assert like.strides == getattr(numpy, name)(theirs[:, cut], order=order).strides
    assert np.full_like(ours, 2.0, order=order).strides == numpy.full_like(theirs, 2.0, order=order).strides
    assert np.ones_like(ours.transpose(1, 0, 2)).strides == numpy.ones_like(theirs.transpose(1, 0, 2)).strides
    assert np.zeros_like(ours, shape=(2, 3)).strides == (24, 8)


@pytest.mark.parametrize("name", ["inv", "det", "cholesky", "eigh", "slogdet"])
def test_matrices_that_are_not_square_are_an_error_of_linear_algebra(name: str) -> None:
    for shape in ((2, 3), (3,)):
        with pytest.raises(numpy.linalg.LinAlgError, match=f"^{name}: x must "):
            getattr(np.linalg, name)(np.ones(shape))


def test_only_functions_have_gradients() -> None:
    for transform in (xt.grad, xt.value_and_grad):
        with pytest.raises(TypeError, match=f"^{transform.__name__}: f must be callable, got int"):
            transform(3)  # type: ignore[arg-type]


# ---- random numbers

DRAWS: dict[str, Form] = {
    "random, out": lambda g, np: g.random(out=np.zeros((2, 3))),
    "random, size and out": lambda g, np: g.random(3, out=np.zeros(3)),
    "standard_normal, out": lambda g, np: g.standard_normal(3, "f4", np.zeros(3, dtype="f4")),
    "standard_exponential, method": lambda g, np: g.standard_exponential(9, method="inv"),
    "standard_exponential, out": lambda g, np: g.standard_exponential(out=np.zeros(3), dtype="f8"),
    "standard_gamma": lambda g, np: g.standard_gamma(np.asarray([1.0, 2.0]), out=np.zeros(2)),
}
BOTH: dict[str, Form] = {
    "standard_gamma": lambda g, np: g.standard_gamma(2.0, 5, dtype="f4"),
    "standard_cauchy": lambda g, np: g.standard_cauchy(3),
    "rayleigh": lambda g, np: g.rayleigh(2.0, 3),
    "weibull": lambda g, np: g.weibull(2.0, 3),
    "pareto": lambda g, np: g.pareto(np.asarray([2.0, 3.0])),
    "power": lambda g, np: g.power(2.0, 3),
    "wald": lambda g, np: g.wald(1.0, 2.0, 3),
    "vonmises": lambda g, np: g.vonmises(0.1, 2.0, 3),
    "f": lambda g, np: g.f(3, 4, 3),
    "noncentral_chisquare": lambda g, np: g.noncentral_chisquare(3, 4.0, 3),
    "negative_binomial": lambda g, np: g.negative_binomial(3, 0.4, 3),
    "hypergeometric": lambda g, np: g.hypergeometric(10, 5, 4, 3),
    "zipf": lambda g, np: g.zipf(3.0, 3),
    "logseries": lambda g, np: g.logseries(0.5, 3),
}


@pytest.mark.parametrize("name", DRAWS)
def test_generators_take_what_numpys_take(name: str) -> None:
    same(DRAWS[name](np.random.default_rng(0), np), DRAWS[name](numpy.random.default_rng(0), numpy))


def test_generators_refuse_targets_of_another_dtype() -> None:
    with pytest.raises(TypeError, match="^random: out must hold float32, got float64"):
        np.random.default_rng(0).random(dtype="f4", out=np.zeros(3))


@pytest.mark.parametrize("name", BOTH)
def test_distributions_have_numpys_streams(name: str) -> None:
    theirs = BOTH[name](numpy.random.default_rng(0), numpy)
    for generator in (np.random.default_rng(0), xt.random.default_rng(0)):
        same(BOTH[name](generator, xt), theirs)


def test_lists_and_numpys_arrays_are_shuffled() -> None:
    for given in ([1, 2, 3, 4], numpy.arange(6)):
        ours, theirs = given.copy(), given.copy()
        xt.random.default_rng(0).shuffle(ours)
        numpy.random.default_rng(0).shuffle(theirs)
        assert list(ours) == list(theirs)


@pytest.mark.parametrize("make", [lambda: np.ones(9) + 1, lambda: xt.ones(100_000) * 2.0, lambda: xt.ones(9)])
def test_flags_of_tensors_that_are_not_computed_yet(make: Any) -> None:
    x = make()
    flags = x.flags
    assert flags.writeable and flags["WRITEABLE"] and flags.c_contiguous
    assert flags == x.flags != numpy.ones((2, 2), order="F")[:1].flags
    flags.writeable = False
    assert not (flags.writeable or flags["W"] or x.flags.writeable or "WRITEABLE : True" in repr(flags))
    with pytest.raises(ValueError, match="^setitem: the target must be writable"):
        x[0] = 3.0
    with pytest.raises(ValueError, match="^setflags: write must be None or False"):
        x.flags["WRITEABLE"] = True
    with pytest.raises(AttributeError, match="^flags: c_contiguous cannot be assigned"):
        flags.c_contiguous = False
    for name in ("C_CONTIGUOUS", "writeable", 1):
        with pytest.raises(KeyError, match="Unknown flag"):
            flags[name] = True
    with pytest.raises(TypeError, match="^cannot copy or pickle"):
        copy.copy(flags)


@pytest.mark.parametrize(
    "operands",
    [
        lambda x, y: (x, [0, 1], y, [1, 2], [0, 2]),
        lambda x, y: (x, [30, 1], y, [1, 2]),  # lists without results: in the order of the numbers
        lambda x, y: (x, [..., 0], y, [0, ...], [...]),
        lambda x, y: (x, [0, 0]),
    ],
)
def test_einsum_with_lists_of_numbers(operands: Any) -> None:
    x, y = numpy.arange(9.0).reshape(3, 3), numpy.arange(9.0, 18.0).reshape(3, 3)
    found = np.einsum(*operands(np.asarray(x), np.asarray(y)))
    numpy.testing.assert_array_equal(found, numpy.einsum(*operands(x, y)))
    slope = xt.grad(lambda x: np.einsum(*operands(x, np.asarray(y))).sum())(np.asarray(x))
    step = numpy.einsum(*operands(x + 1.0, y)).sum() - numpy.einsum(*operands(x, y)).sum()  # it is linear in x
    numpy.testing.assert_allclose(numpy.asarray(slope).sum(), step)


def test_einsum_refuses_what_numpy_refuses_in_lists() -> None:
    for lists in ([0, 99], [0, -1], [True, False], [0, "a"], 3):
        with pytest.raises((TypeError, ValueError)):
            np.einsum(np.ones((2, 2)), lists)


@pytest.mark.parametrize("kind", ["real", "complex", "rotation"])
def test_eigenvalues_under_numpys_names_have_gradients(kind: str) -> None:
    a = numpy.asarray(
        [[0.0, -1.0, 0.5], [1.0, 0.1, 0.0], [0.0, 0.2, 2.0]] if kind == "rotation" else [[2.0, 1.0], [0.5, 3.0]]
    )
    a = a * (1 + 0.5j) if kind == "complex" else a

    def measured(m: Any) -> Any:
        values, vectors = np.linalg.eig(m)
        assert values.dtype == numpy.linalg.eig(a)[0].dtype and vectors.dtype == values.dtype
        return (
            np.sum(np.abs(values) ** 2) + np.sum(np.abs(vectors[0]) ** 2) + np.sum(np.abs(np.linalg.eigvals(m) - 1.0))
        )

    x = np.asarray(a)
    check_grads(measured, (x,))
    numpy.testing.assert_array_equal(numpy.asarray(np.linalg.eigvals(x)), numpy.linalg.eigvals(a))


def test_upper_triangles_have_gradients() -> None:
    x = np.asarray(numpy.asarray([[2.0, 1.0 + 0.5j], [0.25j, 3.0]]))

    def hermitian(m: Any) -> Any:
        return m + np.conj(m.T)

    check_grads(lambda m: np.linalg.eigvalsh(hermitian(m), UPLO="U") ** 2, (x,))
    check_grads(lambda m: np.linalg.eigh(hermitian(m), UPLO="U")[0] ** 2, (x,))
    upper = numpy.asarray([[2.0, 1.0 + 0.5j], [100.0, 3.0]])  # whose lower triangle is not read
    values, _ = xt.vjp(lambda m: np.linalg.eigvalsh(m, UPLO="U"), np.asarray(upper))
    numpy.testing.assert_allclose(numpy.asarray(values), numpy.linalg.eigvalsh(upper, UPLO="U"))


def test_hermitian_forms_have_gradients() -> None:
    x = np.asarray([[2.0, 0.5], [0.5, -1.0]])
    check_grads(lambda m: np.linalg.pinv(m + m.T, hermitian=True), (x,))
    check_grads(lambda m: np.linalg.svd(m + m.T, compute_uv=False, hermitian=True), (x,))
    lower = numpy.asarray([[2.0, 5.0], [1.0, -3.0]])  # whose upper triangle is not read
    for name, more in (("svd", {"compute_uv": False}), ("pinv", {})):
        found, _ = xt.vjp(partial(getattr(np.linalg, name), hermitian=True, **more), np.asarray(lower))
        numpy.testing.assert_allclose(found, getattr(numpy.linalg, name)(lower, hermitian=True, **more))


def test_sorting_takes_one_of_kind_and_stable() -> None:
    for sort in (np.sort, np.argsort):
        with pytest.raises(ValueError, match="`kind` and `stable`"):
            sort(np.ones(3), kind="stable", stable=True)


# ---- numpy.testing


def test_assertions_take_tensors() -> None:
    from xtensor.numpy.testing import assert_almost_equal, assert_equal

    x = np.asarray([1.0, np.nan, -0.0])
    assert_equal(x, [1.0, np.nan, 0.0])
    assert_equal((x[0], {"x": x}), (1.0, {"x": numpy.asarray(x)}))
    assert_equal(xt.asarray([1.0], requires_grad=True) * 2.0, np.asarray([2.0]))
    assert_equal(actual=np.sum(x[::2]), desired=1)
    assert_almost_equal(x, x + 1e-9)
    np.testing.assert_allclose(x + 1e-9, x, atol=1e-8)
    with pytest.raises(AssertionError, match="Mismatched elements: 1 / 3"):
        assert_equal(x, [2.0, np.nan, 0.0])
    with pytest.raises(AssertionError, match="Items are not equal"):
        assert_equal(x[2], 0.0)  # one is a scalar minus zero


def test_what_compares_nothing_is_numpys_own() -> None:
    assert np.testing.suppress_warnings is numpy.testing.suppress_warnings
    with pytest.raises(AttributeError, match="assert_fair"):
        _ = np.testing.assert_fair
    with np.testing.assert_raises(ValueError):
        np.linspace(0.0, 1.0, -1)
    taken: dict[str, Any] = {}
    exec("from xtensor.numpy.testing import *", taken)
    assert taken["assert_equal"] is np.testing.assert_equal and "Tensor" not in taken


def test_the_type_of_a_tensor_equals_ndarray() -> None:
    kind = type(np.zeros(3))
    assert kind == np.ndarray and np.ndarray == kind and kind in (list, np.ndarray)
    assert {np.ndarray: 1}[kind] == 1 and {kind: 2}[np.ndarray] == 2
    assert np.ndarray not in (numpy.ndarray, list, 3)
    assert copy.deepcopy(np.ndarray) is np.ndarray and pickle.loads(pickle.dumps(np.ndarray)) is np.ndarray


def test_ratios_and_bits_of_elements() -> None:
    assert np.asarray([2**62 + 1])[0].as_integer_ratio() == (2**62 + 1, 1)
    with pytest.raises(ValueError, match="NaN"):
        np.asarray([np.nan])[0].as_integer_ratio()
    with pytest.raises(TypeError, match="complex"):
        np.asarray([1j])[0].as_integer_ratio()
    with pytest.raises(TypeError, match="integer"):
        np.asarray([1.5])[0].bit_count()

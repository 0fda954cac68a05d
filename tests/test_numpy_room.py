"""What xtensor.numpy promises beside values: gradients, memory that is shared, errors, and an import that is cheap."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import host_cupy
import numpy
import pytest

import xtensor as xt
import xtensor.numpy as np
from xtensor.numpy import door, names


def draw(*shape: int) -> Any:
    return xt.asarray(numpy.random.default_rng(3).uniform(0.5, 1.5, shape))


V, W, A, B, T = (6,), (6,), (3, 4), (4, 3), (2, 3, 4)

NORMS = (None, 2, -2, 1, -1, numpy.inf, -numpy.inf, "fro", "nuc")
PADDINGS = [
    *((mode, {}) for mode in ("edge", "wrap", "symmetric", "mean", "median", "maximum", "minimum", "linear_ramp")),
    *((mode, {"reflect_type": "odd"}) for mode in ("reflect", "symmetric")),
    *((mode, {"stat_length": ((1, 2), (2, 9))}) for mode in ("mean", "maximum")),
    ("linear_ramp", {"end_values": ((1.0, 2.0), (3.0, 4.0))}),
]
METHODS = (
    *("inverted_cdf", "averaged_inverted_cdf", "closest_observation", "interpolated_inverted_cdf", "hazen", "weibull"),
    *("median_unbiased", "normal_unbiased", "lower", "higher", "midpoint", "nearest"),
)

# Compositions, and the shapes of what they are differentiated by.
GRADIENTS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "append": (lambda x, y: np.append(x, y), (V, A)),
    "apply_along_axis": (lambda x: np.apply_along_axis(lambda row: row * np.sum(row), 0, x), (A,)),
    "average": (lambda x, w: np.average(x, weights=w), (V, W)),
    "bincount": (lambda w: np.bincount([0, 1, 1, 3, 0, 2], w), (W,)),
    "block": (lambda x: np.block([[x, x], [x, 2 * x]]), (A,)),
    "cbrt": (np.cbrt, (V,)),
    "choose": (lambda x, y: np.choose([0, 1, 0, 1, 1, 0], [x, y]), (V, W)),
    "clip": (lambda x: np.clip(x, 0.8, 1.2), (V,)),
    "column_stack": (lambda x, y: np.column_stack([x, y]), (V, W)),
    "compress": (lambda x: np.compress([True, False, True], x, 0), (A,)),
    "convolve": (np.convolve, (V, (3,))),
    "convolve same": (lambda x, y: np.convolve(x, y, "same"), (V, (3,))),
    "convolve valid": (lambda x, y: np.convolve(x, y, "valid"), ((3,), V)),
    "corrcoef": (np.corrcoef, (A,)),
    "correlate": (lambda x, y: np.correlate(x, y, "full"), (V, (3,))),
    "cov": (np.cov, (A,)),
    "cross": (lambda x, y: np.cross(x, y), ((2, 3), (2, 3))),
    "cumprod": (lambda x: np.cumprod(x), (A,)),
    "cumsum": (lambda x: np.cumsum(x, 1), (A,)),
    "deg2rad": (np.deg2rad, (V,)),
    "delete": (lambda x: np.delete(x, [1, 3]), (V,)),
    "diff": (lambda x: np.diff(x, 2), (A,)),
    "dot": (np.dot, (A, B)),
    "dot of 3 axes": (np.dot, (T, (4, 2))),
    "ediff1d": (np.ediff1d, (V,)),
    "einsum": (lambda x, y: np.einsum("ij,jk->k", x, y), (A, B)),
    "exp2": (np.exp2, (V,)),
    "exp2 of complex numbers": (lambda x, y: np.real(np.exp2(x + 1j * y)), (V, W)),
    "extract": (lambda x: np.extract([True, False, True, True, False, True], x), (V,)),
    "float_power": (np.float_power, (V, W)),
    "fmax": (np.fmax, (V, (1, 6))),
    "fmod": (lambda x: np.fmod(x, 0.7), (V,)),
    "geomspace": (lambda x, y: np.geomspace(-x, -3 * y, 4, axis=1), ((2, 1), V)),
    "gradient": (lambda x: np.gradient(x)[1], (A,)),
    "gradient uneven": (lambda x: np.gradient(x, [0.0, 1.0, 3.0, 4.0, 8.0, 9.0], edge_order=2), (V,)),
    "histogram": (lambda w: np.histogram([0.1, 0.4, 0.5, 0.9, 0.2, 0.3], 3, weights=w)[0], (W,)),
    "hstack": (lambda x, y: np.hstack([x, y]), (V, W)),
    "i0": (np.i0, (V,)),
    "inner": (np.inner, (A, A)),
    "insert": (lambda x, y: np.insert(x, [1, 2], y), (V, (2,))),
    "interp": (lambda x, y: np.interp(x, [0.0, 0.9, 2.0], y), (V, (3,))),
    "kron": (np.kron, (A, (2, 2))),
    "ldexp": (lambda x: np.ldexp(x, [[1], [-3]]), (V,)),
    **{f"linalg.cond {p}": (lambda x, p=p: np.linalg.cond(x + np.eye(3), p), ((3, 3),)) for p in NORMS},
    "linalg.multi_dot": (lambda x, y: np.linalg.multi_dot([x, y, x]), (A, B)),
    "linalg.norm": (lambda x: np.linalg.norm(x, axis=1), (A,)),
    "linalg.solve": (lambda x, y: np.linalg.solve(x + 5 * np.eye(3), y), ((3, 3), (3,))),
    "linalg.tensorinv": (lambda x: np.linalg.tensorinv(x + np.eye(6).reshape((2, 3, 6)), 2), ((2, 3, 6),)),
    "linalg.tensorsolve": (lambda x, y: np.linalg.tensorsolve(x, y, (0,)), ((3, 2, 3, 2), (2, 3))),
    "linspace": (lambda x, y: np.linspace(x, y, 4), (V, W)),
    "logaddexp2": (np.logaddexp2, (V, W)),
    "median": (lambda x: np.median(x, 1), (A,)),
    "nan_to_num": (np.nan_to_num, (V,)),
    "nanmean": (lambda x: np.nanmean(np.where(x > 1.2, np.nan, x)), (A,)),
    "nanstd": (lambda x: np.nanstd(np.where(x > 1.2, np.nan, x)), (A,)),
    "nansum": (lambda x: np.nansum(x, 0), (A,)),
    "outer": (np.outer, (V, W)),
    "pad": (lambda x: np.pad(x, 1), (A,)),
    **{
        f"pad {mode} {options}": (lambda x, m=mode, o=options: np.pad(x, ((1, 9), (0, 2)), m, **o), (A,))
        for mode, options in PADDINGS
    },
    "pad reflect": (lambda x: np.pad(x, 2, mode="reflect"), (A,)),
    "percentile": (lambda x: np.percentile(x, [20, 70]), (V,)),
    "piecewise": (lambda x: np.piecewise(x, [x < 1], [lambda y: y**2, lambda y: 3 * y]), (V,)),
    "poly": (np.poly, ((4,),)),
    "poly of a matrix": (np.poly, ((3, 3),)),
    "polydiv": (lambda u, v: np.polydiv(u, v)[0], (V, (3,))),
    "polydiv's rest": (lambda u, v: np.polydiv(u, v)[1], (V, (3,))),
    "polydiv by more": (lambda u, v: np.polydiv(u, v)[1], ((2,), (3,))),
    "polyder": (np.polyder, (V,)),
    "polyint": (np.polyint, (V,)),
    "polymul": (np.polymul, (V, (2,))),
    "polyval": (np.polyval, ((3,), V)),
    "ptp": (lambda x: np.ptp(x, 0), (A,)),
    **{
        f"quantile {method} {axis}": (lambda x, m=method, a=axis: np.quantile(x, [[0.2, 0.5, 1]], a, method=m), (A,))
        for method in METHODS
        for axis in (None, 1)
    },
    "percentile midpoint": (lambda x: np.percentile(x, 37, 0, method="midpoint", keepdims=True), (A,)),
    "quantile with weights": (
        lambda x: np.quantile(x, [0.2, 0.7], 1, weights=[1, 3, 2, 0], method="inverted_cdf"),
        (A,),
    ),
    "roots": (lambda p: np.abs(np.roots(p)), ((4,),)),
    "rot90": (np.rot90, (A,)),
    "select": (lambda x, y: np.select([x > 1, x > 0.7], [x * y, y]), (V, W)),
    "sinc": (np.sinc, (V,)),
    "sinc at 0": (lambda x: np.sinc(np.append(x, 0 * x[0])), (V,)),
    "sort": (lambda x: np.sort(x, None), (A,)),
    "std": (lambda x: np.std(x, 1, ddof=1), (A,)),
    "sum where": (lambda x: np.sum(x, 0, where=x > 1, initial=2.0), (A,)),
    "swapaxes": (lambda x: np.swapaxes(x, 0, 2), (T,)),
    "take": (lambda x: np.take(x, [0, 5, -1, 7]), (A,)),
    "tile": (lambda x: np.tile(x, (2, 1)), (V,)),
    "trace": (np.trace, (T,)),
    "trapezoid": (lambda x, y: np.trapezoid(x, y), (V, W)),
    "unique": (np.unique, (V,)),
    "ufunc.outer": (np.multiply.outer, (V, W)),
    "ufunc.reduce": (lambda x: np.multiply.reduce(x, 1), (A,)),
    "vander": (lambda x: np.vander(x, 3), (V,)),
    "vdot": (np.vdot, (A, A)),
    "vstack": (lambda x, y: np.vstack([x, y]), (V, W)),
}  # fmt: skip


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_of_compositions(name: str) -> None:
    """They agree with differences of the function's values."""
    function, shapes = GRADIENTS[name]
    generator = numpy.random.default_rng(7)
    xt.autograd.check_grads(function, [xt.asarray(generator.uniform(0.5, 1.5, shape)) for shape in shapes], order=1)


def test_sinc_has_all_its_derivatives_at_and_near_0() -> None:
    """The limits where quotients have none, or lose their digits."""
    x = xt.asarray([0.0, 1e-9, -1e-5, 0.2])
    first = xt.grad(lambda x: np.sum(np.sinc(x)))
    second = xt.grad(lambda x: np.sum(first(x)))
    y = numpy.pi * x.numpy()
    numpy.testing.assert_allclose(first(x), numpy.pi * (-y / 3 + y**3 / 30 - y**5 / 840 + y**7 / 45360), rtol=1e-7)
    wanted = numpy.pi**2 * (-1 / 3 + y**2 / 10 - y**4 / 168 + y**6 / 6480)
    numpy.testing.assert_allclose(second(x), wanted, rtol=1e-6)


def test_a_gradient_of_a_quantile_goes_to_no_nan() -> None:
    x = xt.asarray([[1.0, numpy.nan, 2.0], [5.0, 4.0, 3.0]], requires_grad=True)
    found = np.quantile(x, 0.4, 1, method="higher")
    assert numpy.isnan(found[0].item()) and found[1].item() == 4.0
    found[1].backward()
    assert x.grad.tolist() == [[0.0, 0.0, 0.0], [0.0, 1.0, 0.0]]


THERE = [True, True, False]
DEVIATIONS: dict[str, Callable[[Any], Any]] = {
    "std": np.std,
    "std of complex numbers": lambda x: np.std(x + 1j),
    "std where": lambda x: np.std(x, where=THERE),
    "std about a mean": lambda x: np.std(x, mean=[2.0]),
    "nanstd": np.nanstd,
    "nanstd beside a NaN": lambda x: np.nanstd(np.where(THERE, x, np.nan)),
}


@pytest.mark.parametrize("name", DEVIATIONS)
def test_equal_elements_have_a_deviation_without_slope(name: str) -> None:
    x = xt.asarray([2.0, 2.0, 2.0])
    assert xt.grad(DEVIATIONS[name])(x).tolist() == [0.0, 0.0, 0.0]
    assert float(xt.jvp(DEVIATIONS[name], (x,), (x,))[1]) == 0.0


def test_gradients_of_powers_of_two() -> None:
    """Those of complex numbers are conjugated, and the larger of infinite logarithms has all of a sum."""
    z = xt.asarray([0.3 + 0.4j, -1.0 + 2.0j])
    xt.autograd.check_grads(np.exp2, [z])
    share = xt.grad(lambda x, y: np.sum(np.logaddexp2(x, y)), (0, 1))
    ends = [xt.asarray([np.inf, -np.inf, np.inf, -np.inf]), xt.asarray([1.0, 1.0, np.inf, -np.inf])]
    assert [one.tolist() for one in share(*ends)] == [[1.0, 0.0, 0.5, 0.5], [0.0, 1.0, 0.5, 0.5]]
    assert [one.tolist() for one in share(*ends[::-1])] == [[0.0, 1.0, 0.5, 0.5], [1.0, 0.0, 0.5, 0.5]]


# ---- the door


def test_what_shares_memory_shares_its_owner() -> None:
    """A view that the library's function returns is a view of the tensor: written through either, barriers included."""
    x = xt.arange(6.0)
    view = door.through("lib.stride_tricks.sliding_window_view", None, (x, 3), {"writeable": True})
    assert view.owner is x.owner and view.shape == (4, 3)
    with xt.options(lazy="always"):
        waiting = view + 0.0
    x[2] = 50.0
    assert view[0, 2] == 50.0 and waiting[0, 2] == 2.0


def test_a_written_argument_is_counted_and_its_readers_are_served() -> None:
    x = xt.arange(6.0)
    y, version = x[::2], x.version
    with xt.options(lazy="always"):
        waiting = y * 2
    np.put(x, [0], 9.0)
    assert x.version > version and waiting.tolist() == [0.0, 4.0, 8.0] and y[0] == 9.0


def test_a_write_through_the_door_refuses_what_has_a_gradient() -> None:
    """The function is named, and nothing is written."""
    x = xt.asarray([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    for target in (x, x * 1.0):
        with pytest.raises(RuntimeError, match="fill_diagonal"):
            np.fill_diagonal(target, [0.0])
    assert x.detach().tolist() == [[1.0, 2.0], [3.0, 4.0]]


MASK = [[True, False, True], [False, True, True]]
WRITES: dict[str, tuple[Any, tuple[int, ...]]] = {
    "put": (lambda np, y, v: np.put(y, [0, 4, 0, -1], v), (3,)),
    "put, to a view": (lambda np, y, v: np.put(y.T, [[0, 4], [7, 1]], v, mode="wrap"), (2,)),
    "put, clipped": (lambda np, y, v: np.put(y, [-5, 99], v, mode="clip"), (2,)),
    "method put": (lambda np, y, v: y.put([5, 1], v), (1,)),
    "putmask": (lambda np, y, v: np.putmask(y, np.asarray(MASK), v), (4,)),
    "place": (lambda np, y, v: np.place(y, np.asarray(MASK), v), (3,)),
    "put_along_axis": (lambda np, y, v: np.put_along_axis(y, np.asarray([[0, 2], [1, 0]]), v, 1), (2, 2)),
    "put_along_axis, same for all rows": (lambda np, y, v: np.put_along_axis(y, np.asarray([[2, 0]]), v, 1), (2,)),
    "put, a list": (lambda np, y, v: np.put(y, [1, 2], [v[0], v[1]]), (2,)),
    "place, a list": (lambda np, y, v: np.place(y, np.asarray(MASK), [v[1], v[0], 0.0]), (2,)),
    "put_along_axis, first axis": (lambda np, y, v: np.put_along_axis(y, np.asarray([[0, 1, 0]]), v, 0), (1, 3)),
    "put_along_axis, flat": (lambda np, y, v: np.put_along_axis(y, np.asarray([0, 3]), v, None), (2,)),
}


@pytest.mark.parametrize("name", WRITES)
def test_gradients_of_writes(name: str) -> None:
    """Of what is written, and of what stays; NumPy's values, whose differences are the oracle."""
    write, shape = WRITES[name]
    rng = numpy.random.default_rng(0)
    x, v, w = rng.standard_normal((2, 3)), rng.standard_normal(shape), rng.standard_normal((2, 3))

    def written(library: Any, x: Any, v: Any) -> Any:
        y = x * 1
        write(library, y, v)
        return y

    def slope(argument: int) -> numpy.ndarray[Any, Any]:
        found = numpy.zeros_like((x, v)[argument])
        for place in numpy.ndindex(found.shape):
            given = [x.copy(), v.copy()]
            given[argument][place] += 1.0  # the sum is linear in both
            found[place] = ((written(numpy, *given) - written(numpy, x, v)) * w).sum()
        return found

    given = xt.asarray(x.copy()), xt.asarray(v.copy())
    numpy.testing.assert_array_equal(written(np, *given).numpy(), written(numpy, x, v))
    for argument, found in enumerate(xt.grad(lambda x, v: (written(np, x, v) * xt.asarray(w)).sum(), (0, 1))(*given)):
        numpy.testing.assert_allclose(found.numpy(), slope(argument), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["put", "putmask", "place", "put_along_axis", "copyto"])
def test_no_gradient_is_lost_in_an_array_of_numpys(name: str) -> None:
    x, target = xt.asarray([1.5, 2.5], requires_grad=True), numpy.zeros(2)
    given: dict[str, tuple[Any, ...]] = {
        "put": ([0], x),
        "put_along_axis": (numpy.asarray([0, 1]), x, 0),
        "copyto": (x,),
    }
    with pytest.raises(RuntimeError, match=f"^{name}: the target must be a tensor"):
        getattr(np, name)(target, *given.get(name, (numpy.asarray([True, False]), x)))
    assert not target.any()
    with xt.no_grad():
        getattr(np, name)(target, *given.get(name, (numpy.asarray([True, False]), x)))
    assert target.any()


def test_writes_that_have_a_gradient_refuse() -> None:
    """Indices that are out of bounds, no values, and leaves, to which nothing can be written."""
    x = xt.asarray([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    with pytest.raises(IndexError, match="^put: ind must lie within 4 elements"):
        np.put(x * 1, [4], 0.0)
    with pytest.raises(ValueError, match="^place: vals must not be empty"):
        np.place(x * 1, x.detach() > 0, [])
    for write in (lambda: np.put(x, [0], 0.0), lambda: np.putmask(x, x.detach() > 0, 0.0)):
        with pytest.raises(RuntimeError, match="requires a gradient|require"):
            write()
    assert x.detach().tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_the_list_of_written_arguments_is_numpys() -> None:
    """No other function of NumPy's that goes through the door changes an operand: the calls of the other tests."""
    from test_numpy_names import CALLS, arrays, on_tensors, run

    through = [
        text
        for text in CALLS
        if any(f"np.{name}(" in text for name, how in names.groups().items() if how == names.LIBRARY)
    ]
    assert len(through) > 50
    for text in through:
        tensors, before = on_tensors(arrays()), arrays()
        run(text, tensors, np)
        for name, x in tensors.items():
            assert numpy.array_equal(x.numpy(), before[name], equal_nan=x.dtype.kind in "fc"), (text, name)


@pytest.mark.parametrize("call", [np.spacing, np.sort_complex])
def test_a_gradient_through_the_library_is_refused(call: Callable[..., Any]) -> None:
    """Launcher back raises, and names the function; forward nothing is in the way."""
    x = xt.asarray([1.0, 2.5, 4.0], requires_grad=True)
    y = np.sum(np.abs(call(x)))
    with pytest.raises(NotImplementedError, match=r"^(spacing|sort_complex): no derivative"):
        y.backward()


def test_functions_of_the_library_are_not_captured_wrongly() -> None:
    """A fused function with a library call in it gives what it gives unfused, for other values as well."""

    def f(x: Any) -> Any:
        return np.sum(np.unwrap(x) * 2) + np.bincount(np.astype(x, int))[0] + np.unique(x).size

    fused = xt.fuse(f)
    for seed in range(4):
        x = xt.asarray(numpy.random.default_rng(seed).integers(0, 4, 5).astype(float))
        for _ in range(3):
            assert float(fused(x)) == float(f(x))


def overwritten(x: Any) -> Any:
    np.copyto(x[1:], x[:-1])
    np.copyto(x, 0.5, where=x > 2)
    np.fill_diagonal(np.reshape(x, (250, -1)), 9)
    np.fill_diagonal(np.reshape(x[:9], (3, 3)), x[5])
    return x


@pytest.mark.parametrize(
    "call",
    [
        lambda x: np.unwrap(x) + np.i0(x),
        lambda x: np.partition(x, 2) * 2 + np.argpartition(x, 1),
        lambda x: np.lexsort((x, -x)) + np.spacing(x),
        lambda x: np.gcd(np.astype(x, int), 6) * np.frexp(x)[0],
        lambda x: np.unravel_index(np.astype(x, int), (2, 2))[1] * 2,
        lambda x: np.unpackbits(np.astype(x, np.uint8)) * 1,
        lambda x: np.ldexp(x, np.astype(x, np.int32)),
        lambda x: np.minimum.accumulate(x) + np.logaddexp.reduce(np.reshape(x, (2, -1)), axis=1)[0],
        lambda x: np.add.reduceat(x, [0, 7, 100]) * np.percentile(x, [10, 50, 90]) + np.quantile(x, 0.3),
        lambda x: np.pad(np.reshape(x, (250, -1)), 3, "reflect") + np.pad(np.reshape(x, (250, -1)), 3),
        lambda x: np.insert(x, 0, 0.5)[:-1] * np.insert(np.delete(x, [0, -1]), [3, 3], x[:2]) + np.median(x),
        lambda x: overwritten(x + 1.0),
        lambda x: x[:30] * np.hanning(30) + np.sum(np.reshape(x, (250, -1))[np.triu_indices(250, 3, 200)]),
        lambda x: np.indices((250, 200))[1] * x[:200] + np.geomspace(1, 8, 200),
        lambda x: np.array([x[0], 2, x[1] * 2.0]) + np.array([[x[3], 0.5, 1], x[:3]]),
    ],
)
def test_functions_of_the_library_are_steps(call: Callable[..., Any]) -> None:
    """Where no shape depends on values a fused function runs them as steps, whatever the values."""
    fused = xt.fuse(call, strict=True)
    for seed in range(5):
        x = xt.asarray(numpy.random.default_rng(seed).integers(0, 4, 50_000).astype(float), copy=True)
        wanted = call(x).numpy()
        with xt.options(engine="llvm"):  # otherwise what computes little between its steps is called plainly
            assert numpy.array_equal(fused(x).numpy(), wanted)
            assert fused.why(x) == ""


def test_a_captured_step_loses_no_gradient() -> None:
    """A call of the library under a gradient raises on the way back, captured or not."""
    w = xt.ones(3)
    for call in (lambda x: np.abs(np.sort_complex(x)), np.spacing, lambda x: np.frexp(x)[0]):
        for _ in range(3):
            with pytest.raises(NotImplementedError, match="no derivative"):
                xt.grad(xt.fuse(lambda x, call=call: np.sum(call(x))))(w)


@pytest.mark.parametrize("count", [100, 5000])
def test_sorts_keep_equal_elements_in_their_order(count: int) -> None:
    """For arrays of any size: 0.0 and -0.0 are equal too."""
    n = numpy.random.default_rng(0).integers(0, 3, count)
    x, zeros = xt.asarray(n), numpy.where(n > 0, -0.0, 0.0)
    assert numpy.array_equal(np.argsort(x).numpy(), numpy.argsort(n, kind="stable"))
    assert numpy.array_equal(x.argsort().numpy(), numpy.argsort(n, kind="stable"))
    assert numpy.array_equal(numpy.signbit(np.sort(xt.asarray(zeros)).numpy()), numpy.signbit(zeros))


METHODS = ("sum", "prod", "mean", "std", "var", "min", "max", "any", "all", "argmax", "argmin")


@pytest.mark.parametrize("name", METHODS)
def test_reductions_as_methods_write_into_out(name: str) -> None:
    """They return it, as NumPy's arrays do, views and captured functions included."""
    n = numpy.random.default_rng(0).normal(size=(3, 4))
    x, expected = xt.asarray(n, copy=True), numpy.asarray(getattr(n, name)(axis=0))
    memory = xt.zeros((2, 4), dtype=expected.dtype)
    out = memory[1]
    assert getattr(x, name)(axis=0, out=out) is out
    numpy.testing.assert_allclose(memory.numpy(), [numpy.zeros(4), expected], rtol=1e-14)
    fused = xt.fuse(lambda x, out: getattr(x, name)(axis=0, out=out))
    for scale in (1.0, -2.0, 3.0):
        fused(scale * x, out)
        numpy.testing.assert_allclose(out.numpy(), getattr(scale * n, name)(axis=0), rtol=1e-14)


# ---- errors


@pytest.mark.parametrize("size", [5, 40_000, 300_000])
@pytest.mark.parametrize("how", ["own", "view", "shared", "wider", "overlapping", "awaited", "positional"])
@pytest.mark.parametrize("name", ["add", "multiply", "divide", "less", "subtract"])
def test_results_are_written_into_arrays(name: str, how: str, size: int) -> None:
    """NumPy writes the same, whatever the size; who waited for the bytes has what was there before."""
    made = []
    for library in (numpy, np):
        function, x = getattr(library, name), library.linspace(1.0, 2.0, size)
        base = numpy.zeros((2, 2 * size), bool if name == "less" else float)
        if library is np:
            base = np.from_dlpack(base) if how == "shared" else np.asarray(base, copy=True)
        out = base if how == "wider" else base[0, ::2] if how == "view" else base[0, :size]
        if how == "wider":
            x = library.concatenate([x, x])
        if how == "overlapping" and name != "less":
            base[:] = library.concatenate([x, x])
            out, x = base[0, 1 : size + 1], base[0, :size]
        before = out + 1 if how == "awaited" else None
        result = function(x, 1.5, out) if how == "positional" else function(x, 1.5, out=out)
        assert result is out
        made.append([numpy.asarray(one) for one in (base, out, *([] if before is None else [before]))])
    for ours, theirs in zip(made[1], made[0], strict=True):
        numpy.testing.assert_array_equal(ours, theirs, strict=True)


def test_a_written_array_is_known_to_gradients() -> None:
    """What a way back needs is found changed, or kept, when a function writes over it."""
    x, y = draw(4), draw(4)

    def f(x: Any) -> Any:
        z = x * y
        w = np.sin(z)
        np.multiply(z, 2, out=z)
        return np.sum(w * z)

    found = xt.grad(f)(x)
    numpy.testing.assert_allclose(found, xt.grad(lambda x: xt.sum(xt.sin(x * y) * (x * y) * 2))(x), rtol=1e-14)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: np.add(x, x, out=np.zeros((2, 2))), ValueError, "add: out must have the result's shape"),
        (lambda x: np.add(x, x, out=np.zeros(3, int)), TypeError, "add: out must hold float64"),
        (lambda x: np.add(x, x, out=[0.0] * 3), TypeError, "add: out must be a tensor, got list"),
        (lambda x: x.sum(out=np.zeros(3)), ValueError, "sum: out must have the result's shape"),
        (lambda x: x.argmax(out=np.zeros((), bool)), TypeError, "argmax: out must hold int64"),
        (lambda x: x.max(out=0.0), TypeError, "max: out must be a tensor, got float"),
        (lambda x: np.exp(numpy.array([None])), TypeError, "has no callable exp"),
        (lambda x: np.max(x, where=x > 1), ValueError, "initial"),
        (lambda x: np.concatenate([]), ValueError, "need at least one array"),
        (lambda x: np.split(x, 2), ValueError, "equal division"),
        (lambda x: np.rot90(x[None], axes=(0,)), ValueError, r"rot90: axes must name two different axes, got \(0,\)"),
        (lambda x: np.rot90(x[None], axes=[1, -1]), ValueError, "rot90: axes must name two different axes"),
        (lambda x: np.sum(x, axis=3), IndexError, "axis"),
        (lambda x: np.add(x), TypeError, "add"),
        (lambda x: np.exp(x, dtype=int), TypeError, "exp"),
        (lambda x: np.percentile(x, 101), ValueError, "0, 100"),
        (lambda x: np.nanargmax(x * np.nan), ValueError, "All-NaN"),
        (lambda x: np.linalg.norm(x, "fro"), ValueError, "norm order"),
    ],
)
def test_errors(call: Callable[..., Any], error: type[Exception], text: str) -> None:
    """NumPy's classes, and texts that say what is wrong."""
    with pytest.raises(error, match=text):
        call(xt.asarray([1.0, 2.0, 3.0]))


def test_removed_names_are_told_apart_as_numpy_does() -> None:
    """A name that NumPy 2 removed raises NumPy's own hint."""
    for name in ("float_", "NaN", "cast", "Inf"):
        with pytest.raises(AttributeError) as theirs:
            getattr(numpy, name)
        with pytest.raises(AttributeError) as ours:
            getattr(np, name)
        assert str(ours.value) == str(theirs.value) and "was removed" in str(ours.value)


def test_names_are_listed() -> None:
    """dir() shows what is there, and all of it is."""
    assert {"exp", "hstack", "lexsort", "pi", "linalg", "fft", "random", "testing"} <= set(dir(np))
    assert "memmap" not in dir(np)


# ---- laziness, and what the import costs


def test_compositions_of_large_arrays_are_recorded() -> None:
    """What is composed of elementwise functions waits, and fuses with what follows."""
    x = draw(300, 300)
    for y in (
        np.add(x, 1),
        np.sinc(x),
        np.degrees(x),
        np.isclose(x, 1.0),
        np.nan_to_num(x),
        np.clip(x, 0.6, 1.2),
        np.fmax(x, 1),
    ):
        assert y.is_pending
    assert np.var(np.exp(x), axis=1).is_pending


def test_the_import_loads_nothing_that_numpy_leaves_for_later() -> None:
    code = "import sys, xtensor; a = set(sys.modules); import xtensor.numpy; print(*sorted(set(sys.modules) - a))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert all(name.startswith(("xtensor.numpy", "xtensor.standard")) for name in done.stdout.split()), done.stdout


@pytest.mark.skipif(host_cupy.MISSING is not None, reason=str(host_cupy.MISSING))
def test_the_door_of_a_device_is_its_own_librarys() -> None:
    """On a device (emulated) the door calls CuPy, results stay there, and what CuPy has not is said."""
    with host_cupy.installed():
        x = xt.asarray([[3.0, 1.0], [2.0, 4.0]], device="cuda:0")
        y = door.through("tril", None, (x,), {})
        assert y.device == x.device and y.to_device("cpu").tolist() == [[3.0, 0.0], [2.0, 4.0]]
        assert np.hstack((x, x)).device == x.device and np.dot(x, x).device == x.device
        view = door.through("transpose", None, (x,), {})
        assert view.owner is x.owner
        with pytest.raises(NotImplementedError, match=r"^spacing: cuda:0 has no function"):
            door.through("spacing", None, (x,), {})


def test_modules_can_be_imported_by_themselves() -> None:
    """`import xtensor.numpy.linalg` gives all names too, and help says in NumPy's words what a function does."""
    code = (
        "from xtensor.numpy.linalg import lstsq, inv; from xtensor.numpy.random import rand; import xtensor.numpy as np"
    )
    code += "; print(np.linalg.lstsq.__name__, np.fft.fft2.__name__, len(np.hstack.__doc__) > 9, np.exp.__doc__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split()[:3] == ["lstsq", "fft2", "True"] and "exponential" in done.stdout


def test_types_for_annotations_are_numpys() -> None:
    """They are taken as attributes, and from the module of that name."""
    typing = importlib.import_module("xtensor.numpy.typing")
    assert typing.NDArray is np.typing.NDArray is numpy.typing.NDArray
    assert typing.ArrayLike is numpy.typing.ArrayLike and typing.DTypeLike is numpy.typing.DTypeLike
    with pytest.raises(AttributeError):
        typing.Missing  # noqa: B018 - the name is asked for


def test_every_name_of_the_table_stands_in_one_column() -> None:
    """Those left out are NumPy's names, and each has its reason."""
    groups = names.groups()
    assert set(groups.values()) == {names.NATIVE, names.COMPOSED, names.LIBRARY, names.OWN, ""}
    assert all(names.LEFT_OUT.values())
    assert {path for path, how in groups.items() if not how} <= set(names.LEFT_OUT)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_a_covariance_is_as_symmetric_as_numpys(dtype: str) -> None:
    """Of a matrix and its own transpose the BLAS computes one half."""
    x = numpy.random.default_rng(0).standard_normal((60, 40)).astype(dtype)
    x = x + 1j * x[::-1] if dtype == "complex128" else x
    found = np.cov(np.asarray(x)).numpy()
    numpy.testing.assert_allclose(found, numpy.cov(x), rtol=1e-12, atol=1e-14)
    if dtype == "float64":
        numpy.testing.assert_array_equal(found, found.T)


def test_squares_of_complex_numbers() -> None:
    """Products, as NumPy's operator has them: its power takes ten times as long."""
    x = numpy.random.default_rng(0).standard_normal((300, 2)) @ numpy.asarray([1, 1j])
    for power in (2, 2.0):
        numpy.testing.assert_array_equal((np.asarray(x) ** power).numpy(), x**2)
    numpy.testing.assert_allclose((np.asarray(x) ** 3).numpy(), x**3, rtol=1e-14)


def test_a_module_is_wrapped_once() -> None:
    """Small arrays go to NumPy's function by one step, however often the module was asked for."""
    assert names.library("linalg") is np.linalg is names.library("linalg")
    assert not hasattr(np.linalg.cond.__wrapped__, "__wrapped__")
    assert type(np.random.default_rng(3)) is np.random.Generator


def test_the_thin_way_writes_nothing() -> None:
    """What may write an argument goes the long way: readers that wait are served first."""
    x = np.array([3.0, 1.0, 2.0])
    for write in (
        lambda out: np.cumsum(x, None, None, out),
        lambda out: np.cumsum(x, out=out),
        lambda out: np.median(x[None, :], 0, out),
        lambda out: np.nan_to_num(out, False),
        lambda out: np.nan_to_num(out, copy=False),
        lambda out: np.clip(x, 0.0, 1.0, out),
    ):
        out = np.array([9.0, numpy.nan, 7.0])
        with xt.options(lazy="always"):
            pending = out * 2.0
        write(out)
        assert numpy.array_equal(numpy.asarray(pending), [18.0, numpy.nan, 14.0], equal_nan=True)
        assert not numpy.isnan(numpy.asarray(out)).any()


class Column:
    """What NumPy makes an array of, as a Series of pandas."""

    def __init__(self, *values: Any) -> None:
        self.values = values

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return numpy.array(self.values, dtype)


class Refusing:
    """What refuses to be an array, as a tensor of PyTorch that has a gradient."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise RuntimeError("there is a gradient")


def test_what_has_arrays_selects_and_is_selected() -> None:
    """As branches of `where`, as keys to read and to write, and as what is drawn from."""
    x, column = np.array([1.0, 2.0, 3.0]), Column(5.0, 6.0, 7.0)
    assert np.where(x > 2, column, 0).tolist() == [0.0, 0.0, 7.0]
    assert np.where(Column(True, False, True), (1, 2, 3), column).tolist() == [1.0, 6.0, 3.0]
    assert x[Column(False, True, True)].tolist() == [2.0, 3.0]
    assert x[Column(2, 0)].tolist() == [3.0, 1.0]
    x[Column(False, True, True)] = 9.0
    assert x.tolist() == [1.0, 9.0, 9.0]
    drawn = np.random.default_rng(0).permutation(column)
    assert drawn.tolist() == numpy.random.default_rng(0).permutation([5.0, 6.0, 7.0]).tolist()
    with pytest.raises(IndexError, match="integers or booleans, got float64"):
        x[column]
    with pytest.raises(IndexError, match="got Refusing"):
        x[Refusing()]
    with pytest.raises(TypeError, match="a parameter must be .*, got Refusing"):
        np.random.default_rng(0).choice(Refusing())


class Frame(Column):
    """What answers NumPy's functions itself."""

    def __array_ufunc__(self, ufunc: Any, method: str, *operands: Any, **given: Any) -> Any:
        given.pop("out", None)
        return getattr(ufunc, method)(*[numpy.asarray(x) for x in operands], **given)

    def mean(self, axis: Any = None, dtype: Any = None, out: Any = None) -> str:
        return f"mean, {axis}"

    def cumsum(self, axis: Any = None, dtype: Any = None, out: Any = None) -> str:
        return f"cumsum, {axis}"


def test_what_answers_itself_does() -> None:
    """By the methods that NumPy's functions ask for; what has none of a name is an array, whose result is a tensor."""
    frame = Frame(1.0, 4.0, 9.0)
    for lazy in ("auto", "always", "never"):
        with xt.options(lazy=lazy):
            assert np.mean(frame) == "mean, None"
            assert np.mean(frame, 0) == "mean, 0"
            assert np.cumsum(frame, axis=0) == "cumsum, 0"
            for found, expected in ((np.diff(frame), [3.0, 5.0]), (np.median(frame), 4.0), (np.sum(frame), 14.0)):
                assert type(found) is xt.Tensor
                assert found.tolist() == expected
            counts, edges = np.histogram(frame, 2)
            assert type(counts) is type(edges) is xt.Tensor
            assert counts.tolist() == [2, 1]


@pytest.mark.parametrize("name", ["random", "normal", "uniform", "poisson", "binomial", "choice", "standard_normal"])
def test_one_number_that_is_drawn_is_a_number(name: str) -> None:
    """Without a size NumPy draws a float or an int of Python's, which no promotion widens; from its own stream."""
    parameters = {"poisson": (3.0,), "binomial": (9, 0.5), "choice": (7,)}.get(name, ())
    ours, theirs = np.random.default_rng(1), numpy.random.default_rng(1)
    for _ in range(3):
        found, expected = (getattr(one, name)(*parameters) for one in (ours, theirs))
        assert type(found) is type(expected)
        assert found == expected
        given: Any = {"size": 2}
        one, other = getattr(ours, name)(*parameters, **given), getattr(theirs, name)(*parameters, **given)
        assert type(one) is xt.Tensor
        numpy.testing.assert_array_equal(one.numpy(), other)
    np.random.seed(3)
    numpy_state = numpy.random.RandomState(3)
    assert [np.random.rand(), np.random.randint(9)] == [numpy_state.rand(), numpy_state.randint(9)]
    x = np.asarray([1.0, 2.0], dtype=np.float32)
    assert (x * ours.normal(x[0], 0.5)).dtype == np.float32


@pytest.mark.parametrize("a", [["red", "green"], ("red", "green"), [b"red", b"green"], [sum, None, max]])
def test_what_no_tensor_holds_is_drawn_from_a_list(a: Any) -> None:
    """One element is no array: NumPy's text or the object itself. Arrays of them are NumPy's own."""
    for ours, theirs in (
        (np.random.default_rng(1), numpy.random.default_rng(1)),
        (np.random.RandomState(1), numpy.random.RandomState(1)),
    ):
        found, expected = ours.choice(a), theirs.choice(a)
        assert found == expected and type(found) is type(expected)
        assert ours.choice(a, p=[0.0, 1.0, 0.0][: len(a)]) == a[1]
        theirs.choice(a, p=[0.0, 1.0, 0.0][: len(a)])
        found, expected = ours.choice(a, 2), theirs.choice(a, 2)
        assert type(found) is numpy.ndarray and found.dtype == expected.dtype and found.tolist() == expected.tolist()
    np.random.seed(1)
    assert np.random.choice(a) == numpy.random.RandomState(1).choice(a)


def test_one_number_that_is_drawn_keeps_gradients_and_stays_plain() -> None:
    """A parameter with a gradient makes a tensor; a number of Python's is no step of a captured function."""
    rng = np.random.default_rng(2)
    assert float(xt.grad(lambda m: 3.0 * rng.normal(m, 1.0))(xt.asarray(2.0))) == 3.0
    native, rng = numpy.random.default_rng(5), np.random.default_rng(5)
    fused = xt.fuse(lambda x: x + rng.normal())
    x = np.ones(1000)
    for _ in range(4):
        numpy.testing.assert_array_equal(fused(x).numpy(), numpy.ones(1000) + native.normal())
    assert "random" in fused.why(x)


def test_what_a_captured_function_draws_is_drawn_in_each_call() -> None:
    """A number of a generator that is made or spawned in there is no constant of it."""
    x, outer = np.ones(100_000), np.random.default_rng(7)
    for draw in (
        lambda: np.random.default_rng().normal(),
        lambda: np.random.Generator(np.random.PCG64()).random(),
        lambda: outer.spawn(1)[0].random(),
        lambda: np.random.rand(),
    ):
        fused = xt.fuse(lambda x, draw=draw: x * 2 + draw())
        with xt.options(engine="llvm"):
            assert len({float(fused(x)[0]) for _ in range(6)}) == 6


def test_one_number_of_a_dtype_has_it() -> None:
    """What NumPy draws in a dtype itself is a float all the same; what is cast afterwards a tensor."""
    rng = np.random.default_rng(0)
    assert type(rng.random(dtype=np.float32)) is float
    assert rng.normal(dtype=np.float32).dtype == np.float32
    assert rng.poisson(3.0, dtype=np.int8).dtype == np.int8
    given = list(range(10))
    np.random.seed(1)
    np.random.shuffle(given)
    expected = list(range(10))
    numpy.random.RandomState(1).shuffle(expected)
    assert given == expected != sorted(given)


def test_ends_of_what_is_interpolated_have_gradients() -> None:
    """`left` and `right` may be tensors, and complex, although NumPy's own function takes neither."""
    x, places, values = xt.asarray([-5.0, 0.5, 9.0]), xt.asarray([0.0, 1.0, 2.0]), xt.asarray([1.0, 2.0, 4.0])
    assert float(xt.grad(lambda left: np.sum(np.interp(x, places, values, left=left)))(xt.asarray(2.0))) == 1.0
    assert np.interp(x, places, values, right=1j).tolist() == [1.0, 1.5, 1j]


def test_slopes_at_the_places_of_an_interpolation() -> None:
    """They are those of the segment above, at the last place of the one below: one of the two, as in JAX."""
    places, values = xt.asarray([0.0, 1.0, 3.0]), xt.asarray([1.0, 3.0, 4.0])
    x = xt.asarray([0.0, 1.0, 3.0, 2.0, -1.0, 9.0])
    assert xt.grad(lambda x: np.sum(np.interp(x, places, values)))(x).tolist() == [2.0, 0.5, 0.5, 0.5, 0.0, 0.0]
    assert xt.grad(lambda p: np.interp(1.0, p, values))(places).tolist() == [0.0, -0.5, 0.0]
    with xt.options(lazy="always"):  # and the values are exact there
        third = xt.asarray([0.1, 0.3, 0.7], requires_grad=True)
        assert np.interp([0.1, 0.3, 0.7], third, third).tolist() == [0.1, 0.3, 0.7]


INTEGERS: dict[str, Callable[[Any], Any]] = {
    "a position": lambda np: np.argmax(np.array([1, 3, 2])),
    "an element": lambda np: np.array([4, 1])[1],
    "one of an iteration": lambda np: next(iter(np.argsort(np.array([3, 1, 2])))),
    "a sum": lambda np: np.array([2, -1], dtype=np.int8).sum(),
    "a drawn number": lambda np: np.random.default_rng(0).integers(1, 2),
    "a place of the library's": lambda np: np.unravel_index(5, (2, 4))[1],
    "of the flat iterator": lambda np: np.array([[4, 1]]).flat[1],
    "NumPy's own": lambda np: np.int64(1),
}


@pytest.mark.parametrize("lazy", ["auto", "always", "never"])
@pytest.mark.parametrize("made", INTEGERS.values(), ids=INTEGERS.keys())
def test_a_computed_integer_selects_a_view(made: Callable[[Any], Any], lazy: Any) -> None:
    def program(np: Any) -> Any:
        m, i = np.zeros((3, 4)), made(np)
        row = m[i]
        row += 1.0
        part = m[:, i][1:]
        part[...] = 7.0
        m[i, 2:][0] = 5.0
        element = m[i, i]
        m[i, i] = -1.0
        one = m[i, ...][np.array(0)]
        one += 100.0
        return m, element

    wanted, element = program(numpy)
    with xt.options(lazy=lazy):
        found, single = program(np)
        assert numpy.array_equal(wanted, found.numpy()) and float(element) == float(single)


def test_an_array_without_axes_selects_a_copy() -> None:
    m, i = np.zeros((3, 4)), np.array(1)
    row = m[i]
    row += 1.0
    assert row.shape == (4,) and not m.numpy().any()
    with pytest.raises(IndexError):
        m[np.argmax(np.arange(9))]
    with pytest.raises(IndexError):
        m[np.sum(np.ones(1))]
    assert m[np.any(m == 0.0)].shape == (1, 3, 4)


def test_rows_at_computed_places_under_fuse() -> None:
    """Views of places that depend on values are captured, and elements there."""

    def bumped(m: Any, s: Any) -> Any:
        row = m[np.argmax(s)]
        row += 1.0
        m *= 0.5
        return m

    def scaled(m: Any, s: Any) -> Any:
        return m * s[np.argmax(s)]

    s = np.sin(np.arange(300.0))
    fused, other = xt.fuse(bumped), xt.fuse(scaled)
    m, wanted = np.zeros((300, 400)), numpy.zeros((300, 400))
    for _ in range(4):
        bumped(wanted, s.numpy())
        assert numpy.array_equal(fused(m, s).numpy(), wanted)
        assert numpy.array_equal(other(m, s).numpy(), wanted * s.numpy().max())
    assert fused.why(m, s) == "" and other.why(m, s) == ""


def test_computed_places_in_gradients() -> None:
    def loss(w: Any, place: Callable[[Any], Any]) -> Any:
        v = w * 2.0
        i = place(np.argmax(np.sum(v, axis=1)))
        row = v[i]
        row *= 3.0
        v[i] += row
        return np.sum(v * v)

    w = xt.reshape(xt.arange(6.0), (3, 2))
    found, wanted = (xt.value_and_grad(loss)(w, place) for place in (lambda i: i, int))
    xt.testing.assert_array_equal(found[0], wanted[0])
    xt.testing.assert_array_equal(found[1], wanted[1])


@pytest.mark.parametrize("reduce", [np.sum, np.max, np.mean, np.linalg.norm, np.median, np.std])
def test_a_value_on_the_tape_is_no_array(reduce: Callable[[Any], Any]) -> None:
    """`+=` makes another one, so whoever holds the first sees no change, with a gradient as without."""

    def kept(w: Any) -> Any:
        total = reduce(w)
        before = total
        total += 1.0
        return before

    w = draw(6)
    value, gradient = xt.value_and_grad(kept)(w)
    numpy.testing.assert_allclose(float(value), float(kept(w.numpy())), rtol=1e-15)
    xt.testing.assert_array_equal(gradient, xt.grad(reduce)(w))


@pytest.mark.parametrize("size", [9, 300_000])
@pytest.mark.parametrize("call", [lambda x: np.percentile(x, 30.0), lambda x: np.quantile(x, 0.5), np.nanmedian])
def test_quantiles_of_all_elements_are_values(call: Any, size: int) -> None:
    """Another name of one keeps what it had, as of NumPy's scalars."""
    total = before = call(np.arange(float(size)))
    held = float(before)
    total += 1
    assert (float(before), float(total)) == (held, held + 1)


def test_gradients_of_what_is_trimmed_and_iterated() -> None:
    """Elements that are cut off, or come one by one, keep their gradients."""
    x = xt.asarray([0.0, 1.0, 2.0, 0.0])
    slope = xt.grad(lambda x: xt.sum(np.trim_zeros(x) ** 2))(x)
    numpy.testing.assert_array_equal(numpy.asarray(slope), [0.0, 2.0, 4.0, 0.0])
    slope = xt.grad(lambda x: xt.sum(np.fromiter((v * v for v in x), float, 3)))(x)
    numpy.testing.assert_array_equal(numpy.asarray(slope), [0.0, 2.0, 4.0, 0.0])
    cases: list[tuple[Any, Any]] = [("fb", None), ("f", 0), ("b", 1), ("fb", (0, 1)), ("b", -1)]
    for trim, axis in cases:
        z = numpy.zeros((5, 6))
        z[1:4, 2:4] = 1.0
        found = np.trim_zeros(xt.asarray(z), trim, axis)
        numpy.testing.assert_array_equal(numpy.asarray(found), numpy.trim_zeros(z, trim, axis))
    assert np.trim_zeros([0, 1, 0]) == [1]
    with pytest.raises(ValueError, match="unexpected character"):
        np.trim_zeros(x, "q")
    items = iter(range(10))
    assert np.fromiter(items, float, 3).tolist() == [0.0, 1.0, 2.0]
    assert next(items) == 3
    with pytest.raises(ValueError, match="too short"):
        np.fromiter(iter(x), float, 9)


def test_shapes_that_are_arrays() -> None:
    assert np.zeros(xt.asarray(3)).shape == np.ones(numpy.asarray(3)).shape == (3,)
    assert np.zeros(xt.asarray([2, 3])).shape == (2, 3)


def differences(function: Callable[..., Any], x: Any, h: float = 1e-6) -> Any:
    """Return the gradient of NumPy's own function by differences."""
    found = numpy.zeros_like(x)
    for place in numpy.ndindex(*x.shape):
        more, less = x.copy(), x.copy()
        more[place] += h
        less[place] -= h
        found[place] = (float(function(numpy, more)) - float(function(numpy, less))) / (2 * h)
    return found


RANDOM = numpy.random.default_rng(0)
TALL, SIDE, SIDES = RANDOM.normal(size=(6, 3)), RANDOM.normal(size=6), RANDOM.normal(size=(6, 2))
EVEN, POWERS = numpy.linspace(0, 1, 6), numpy.arange(3.0)
FITS: dict[str, tuple[Callable[..., Any], Any]] = {
    "lstsq of a": (lambda lib, a: (lib.linalg.lstsq(a, lib.asarray(SIDE))[0] * lib.asarray(POWERS)).sum(), TALL),
    "lstsq of b": (lambda lib, b: (lib.linalg.lstsq(lib.asarray(TALL), b)[0] ** 2).sum(), SIDE),
    "lstsq of sides": (lambda lib, b: (lib.linalg.lstsq(lib.asarray(TALL), b)[0] ** 2).sum(), SIDES),
    "residuals": (lambda lib, a: lib.linalg.lstsq(a, lib.asarray(SIDE))[1].sum(), TALL),
    "singular values": (lambda lib, a: (lib.linalg.lstsq(a, lib.asarray(SIDE))[3] ** 3).sum(), TALL),
    "polyfit of y": (lambda lib, y: (lib.polyfit(lib.asarray(EVEN), y, 2) ** 2).sum(), SIDE),
    "polyfit of x": (lambda lib, x: (lib.polyfit(x, lib.asarray(EVEN) ** 3, 2) ** 2).sum(), numpy.sort(SIDE)),
    "polyfit of weights": (lambda lib, w: (lib.polyfit(lib.asarray(EVEN), EVEN**3, 1, w=w) ** 2).sum(), EVEN + 0.5),
    "polyfit of sides": (lambda lib, y: (lib.polyfit(EVEN, y, 1, w=EVEN + 1) ** 2).sum(), SIDES),
    "unwrap": (lambda lib, x: (lib.unwrap(x) ** 2).sum(), RANDOM.uniform(-9, 9, 12)),
    "partition": (lambda lib, x: (lib.partition(x, 3)[:4] ** 2).sum(), RANDOM.normal(size=12)),
    "partition of columns": (lambda lib, x: (lib.partition(x, 2, axis=0)[:2] ** 3).sum(), RANDOM.normal(size=(5, 3))),
    "partition of all": (lambda lib, x: (lib.partition(x, 2, axis=None)[:3] ** 3).sum(), RANDOM.normal(size=(5, 3))),
}


@pytest.mark.parametrize("name", FITS)
def test_gradients_of_fits(name: str) -> None:
    """Values are NumPy's, and gradients those of differences; they are differentiable again."""
    function, x = FITS[name]
    value, slope = xt.value_and_grad(lambda x: function(np, x))(xt.asarray(x))
    numpy.testing.assert_allclose(float(value), function(numpy, x), rtol=1e-14)
    numpy.testing.assert_allclose(numpy.asarray(slope), differences(function, x), rtol=1e-6, atol=1e-7)
    again = xt.grad(lambda x: xt.sum(xt.grad(lambda x: function(np, x))(x)))(xt.asarray(x))
    assert bool(xt.all(xt.isfinite(again)))


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("exceptions", "AxisError"),
        ("lib.stride_tricks", "sliding_window_view"),
        ("polynomial", "Polynomial"),
        ("polynomial.polynomial", "polyval"),
        ("dtypes", "Float64DType"),
        ("linalg", "norm"),
        ("random", "default_rng"),
    ],
)
def test_modules_can_be_imported_from(module: str, name: str) -> None:
    """As NumPy's: `from numpy.lib.stride_tricks import sliding_window_view`."""
    code = f"from xtensor.numpy.{module} import {name}; assert callable({name})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_numpys_polynomials_take_tensors() -> None:
    x = np.linspace(0.0, 1.0, 20)
    native = numpy.linspace(0.0, 1.0, 20)
    fitted, right = [numpy.polynomial.Polynomial.fit(v, v**2 - v, 2) for v in (x, native)]
    numpy.testing.assert_allclose(fitted.coef, right.coef, atol=1e-12)
    numpy.testing.assert_allclose(numpy.asarray(fitted.deriv()(x)), right.deriv()(native), atol=1e-12)
    assert np.polynomial is numpy.polynomial and np.poly1d is numpy.poly1d
    numpy.testing.assert_allclose(numpy.asarray(np.poly1d([1, 2, 3])(x)), native**2 + 2 * native + 3)

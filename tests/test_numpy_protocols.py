"""NumPy's own functions, called with tensors: they stay in this library, and an option converts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import xtensor as xt

CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "exp": lambda x, n: np.exp(x),
    "add of both": lambda x, n: np.add(n, x),
    "operator": lambda x, n: n * x,
    "scalar": lambda x, n: np.float64(2.0) * x,
    "concatenate": lambda x, n: np.concatenate([x, n]),
    "norm": lambda x, n: np.linalg.norm(x),
    "fft": lambda x, n: np.fft.fft(x),
    "reduce": lambda x, n: np.multiply.reduce(x),
    "outer": lambda x, n: np.subtract.outer(x, n),
    "method of the same name": lambda x, n: np.sum(x, axis=0),
    "composed": lambda x, n: np.median(x),
    "through the library": lambda x, n: np.partition(x, 1)[1],
    "of no public name": lambda x, n: np.lib.stride_tricks.sliding_window_view(x, 2),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_stay_in_the_library(name: str) -> None:
    """Results are tensors with NumPy's values; with the option they are what NumPy makes of arrays."""
    n = np.asarray([3.0, 1.0, 2.0])
    x = xt.asarray(n, copy=True)
    expected, found = CALLS[name](n, n), CALLS[name](x, n)
    assert isinstance(found, xt.Tensor) and found.dtype == expected.dtype
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-15)
    if name not in ("operator", "scalar", "method of the same name"):  # the tensor's own method
        with xt.options(numpy="convert"):
            assert not isinstance(CALLS[name](x, n), xt.Tensor)


def test_gradients_and_laziness_go_through() -> None:
    """A call of NumPy's is the call of this library: recorded, and differentiable."""
    x = xt.arange(100_000.0) / 1e5
    assert np.exp(x).is_pending
    assert xt.grad(lambda v: np.sum(np.sin(v) * np.hypot(v, 1.0)))(x[:3]).shape == (3,)


def test_a_result_that_goes_into_an_array_is_an_array() -> None:
    """`out=` of NumPy's asks for NumPy's; a tensor is written as such."""
    n, x = np.ones(2), xt.asarray([1.0, 2.0])
    assert np.add(n, x, out=n) is n and n.tolist() == [2.0, 3.0]
    n += x
    assert type(n) is np.ndarray and n.tolist() == [3.0, 5.0]
    assert np.add(x, x, out=x) is x and x.tolist() == [2.0, 4.0]
    np.multiply.at(x, [0], 10.0)
    np.copyto(x[1:], 7.0)
    into = np.zeros(3)
    np.copyto(into, xt.asarray([1.0, 2.0, 3.0]), where=[True, False, True])
    assert into.tolist() == [1.0, 0.0, 3.0]
    assert x.tolist() == [20.0, 7.0]


def test_others_that_know_the_protocol_are_asked() -> None:
    """An operand of another library's with a say of its own decides."""

    class Other:
        def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **given: Any) -> str:
            return f"other's {ufunc.__name__}"

        def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> str:
            return f"other's {function.__name__}"

    x: Any = xt.ones(2)
    assert np.add(x, Other()) == "other's add"
    assert np.concatenate([x, Other()]) == "other's concatenate"


def test_conversions_are_conversions() -> None:
    """Asked for an array, NumPy makes one, and what leaves with a gradient is refused as ever."""
    x = xt.asarray([1.0, 2.0])
    assert type(np.asarray(x)) is np.ndarray and type(np.array(x)) is np.ndarray
    w = xt.asarray([1.0], requires_grad=True)
    with pytest.raises(RuntimeError, match="gradient"):
        np.asarray(w)
    with xt.options(numpy="convert"), pytest.raises(RuntimeError, match="gradient"):
        np.exp(w)


def test_the_option_is_checked() -> None:
    with pytest.raises(ValueError, match="numpy"):
        xt.options(numpy="perhaps")  # type: ignore[arg-type]


# ---- arrays of other libraries


SERIES: dict[str, Callable[[Any, Any], Any]] = {
    "where": lambda s, x: np.where(s > 1, x, 0),
    "allclose": lambda s, x: np.allclose(s, x),
    "dot": lambda s, x: np.dot(s, x),
    "interp": lambda s, x: np.interp(s, np.sort(x), x),
    "isin": lambda s, x: np.isin(s, x),
    "average": lambda s, x: np.average(s, weights=x),
    "maximum": lambda s, x: np.maximum(s, x),
    "maximum of the tensor": lambda s, x: np.maximum(x, s),
    "hypot": lambda s, x: np.hypot(x, s),
    "ours": lambda s, x: xt.numpy.maximum(s, x),
    "product of the tensor": lambda s, x: x.dot(s),
    "product with an iterator": lambda s, x: x.dot(np.asarray(s).flat),
    "the tensor clipped": lambda s, x: x.clip(s, max=s * 2.0),
    "clip of ours": lambda s, x: xt.numpy.clip(x, None, s),
    "where of ours": lambda s, x: xt.numpy.where(s > 1, x, 0),
}


@pytest.mark.parametrize("name", SERIES)
def test_a_series_beside_a_tensor(name: str) -> None:
    pandas = pytest.importorskip("pandas")
    s, n = pandas.Series([3.0, 1.0, 2.0]), np.asarray([2.0, 1.0, 4.0])
    expected, found = SERIES[name](s, n), SERIES[name](s, xt.asarray(n))
    assert isinstance(found, pandas.Series) is isinstance(expected, pandas.Series)
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=1e-15)


class Metres(np.ndarray[Any, Any]):
    """Lengths, which NumPy's functions leave to their own class, as those of astropy and unyt are."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **given: Any) -> Any:
        plain = [np.asarray(x) if isinstance(x, Metres) else x for x in inputs]
        if any(isinstance(x, xt.Tensor) for x in plain):
            return NotImplemented
        return getattr(ufunc, method)(*plain, **given).view(Metres)


@pytest.mark.parametrize("swaps", [False, True])
@pytest.mark.parametrize("function", [np.multiply, np.hypot, lambda a, b: a * b, lambda a, b: a + b])
def test_units_are_kept(function: Any, swaps: bool) -> None:
    lengths, x = np.asarray([1.0, 2.0]).view(Metres), xt.asarray([3.0, 4.0])
    pair = (lengths, x) if swaps else (x, lengths)
    found = function(*pair)
    assert type(found) is Metres
    np.testing.assert_array_equal(np.asarray(found), function(*map(np.asarray, pair)))


def test_units_are_not_dropped_in_silence() -> None:
    lengths, x = np.asarray([1.0, 2.0]).view(Metres), xt.zeros(2)
    with pytest.raises(TypeError, match=r"add: x2 must be an array or a scalar \(numpy.asarray\(x\) makes one\)"):
        xt.add(x, lengths)
    with pytest.raises(TypeError, match="setitem: value must be an array"):
        x[...] = lengths
    assert xt.asarray(lengths).tolist() == [1.0, 2.0]


def test_assignment_takes_arrays_of_other_libraries() -> None:
    pandas = pytest.importorskip("pandas")
    x = xt.zeros(3)
    x[...] = pandas.Series([3.0, 1.0, 2.0])
    x[1:] = pandas.Series([5, 6])
    assert x.tolist() == [3.0, 5.0, 6.0]
    with pytest.raises(TypeError, match="setitem: value must be an array or a scalar, got object"):
        x[...] = object()


def test_names_that_other_libraries_ask_for() -> None:
    x = xt.asarray(np.arange(6.0).reshape(2, 3))
    assert type(x.to_numpy()) is np.ndarray
    assert xt.transpose(x).shape == (3, 2)
    assert bool(xt.any(x, out=None))
    with pytest.raises(TypeError, match="any: a keyword must be one of"):
        xt.any(x, out=x)
    with pytest.raises(TypeError, match="isnat: x must hold dates"):
        np.isnat(x)


def squares(p: Any) -> Any:
    return xt.sum((p - xt.arange(3.0)) ** 2 + xt.cos(p))


def residuals(p: Any) -> Any:
    t = xt.arange(5.0)
    return xt.exp(-t * p[0]) * p[1] - xt.exp(-t * 0.5) * 2.0


@pytest.mark.parametrize("method", ["L-BFGS-B", "SLSQP", "trust-constr", "BFGS", "CG", "TNC", "Newton-CG"])
def test_minimizers_take_gradients_that_are_tensors(method: str) -> None:
    optimize = pytest.importorskip("scipy.optimize")
    found = optimize.minimize(
        lambda p: float(squares(xt.asarray(p))),
        np.zeros(3),
        jac=lambda p: xt.grad(squares)(xt.asarray(p)),
        method=method,
    )
    assert type(found.x) is np.ndarray
    np.testing.assert_allclose(found.x, [0.0, 1.498701, 2.354243], atol=1e-2)


@pytest.mark.parametrize("method", ["trf", "dogbox", "lm"])
def test_least_squares_take_jacobians_that_are_tensors(method: str) -> None:
    optimize = pytest.importorskip("scipy.optimize")
    found = optimize.least_squares(
        lambda p: residuals(xt.asarray(p)),
        [1.0, 1.0],
        jac=lambda p: xt.jacobian(residuals)(xt.asarray(p)),
        method=method,
    )
    assert type(found.jac) is np.ndarray
    np.testing.assert_allclose(found.x, [0.5, 2.0], rtol=1e-6)


def test_lifted_tensors_stay_tensors_elsewhere() -> None:
    assert type(np.atleast_1d(xt.asarray(1.0))) is xt.Tensor


class Answering:
    """What answers NumPy's functions itself, and refuses to become an array."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise RuntimeError("not to be converted")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **given: Any) -> str:
        return f"{ufunc.__name__} {method}"

    def __array_function__(self, function: Any, types: Any, args: Any, given: Any) -> str:
        return str(function.__name__)


@pytest.mark.parametrize("name", ["sort", "mean", "unique", "sum", "median", "argsort", "cumsum", "max", "any"])
def test_what_answers_itself_is_asked(name: str) -> None:
    for _ in range(2):
        assert getattr(xt.numpy, name)(Answering()) == name
    assert xt.numpy.linalg.norm(Answering()) == "norm"
    assert xt.numpy.exp(Answering()) == "exp __call__"
    assert xt.numpy.dot(xt.ones(2), Answering()) == "dot"

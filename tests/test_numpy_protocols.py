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

"""NumPy's names in machine code: the same results as in Python, and as NumPy's."""

from __future__ import annotations

import copy
import gc
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest
from test_numpy_names import CALLS, arrays, compare, on_tensors, run

import xtensor as xt
import xtensor.numpy as np
from xtensor.base.interpreter import has_known_objects
from xtensor.calls import thin
from xtensor.calls.record import can_generate
from xtensor.numpy.thin import AtOnce


def all_called() -> list[Any]:
    found = [getattr(room, name, None) for room in (np, np.linalg, np.fft) for name in dir(room)]
    return [one for one in found if isinstance(one, thin.Called)]


@pytest.fixture(scope="module", autouse=True)
def exchanged() -> Iterator[None]:
    """Let machine code know all functions: it learns of each at its first call."""
    xt.zeros(1)
    for one in all_called():
        if isinstance(one, AtOnce):
            one._told()
        elif not one._is_told:
            one._tell()
    if not (has_known_objects() and can_generate()):
        pytest.skip("there is no machine code for methods here")
    assert thin.exchange()
    yield


def in_machine_code(call: Callable[[], Any]) -> bool:
    """Return whether a call is answered without its door."""
    entered = []

    def trace(frame: Any, event: str, argument: Any) -> None:
        if frame.f_code.co_filename.startswith(xt.__path__[0]):
            entered.append(frame.f_code.co_name)

    sys.setprofile(trace)
    try:
        call()
    finally:
        sys.setprofile(None)
    return not set(entered) - {"<lambda>"}


@pytest.mark.parametrize("text", CALLS)
def test_a_call_gives_what_numpy_gives(text: str) -> None:
    """Twice, as the first call may be one in Python."""
    given = arrays()
    expected, tensors = run(text, given, numpy), on_tensors(given)
    for _ in range(2):
        compare(run(text, tensors, np), expected)


X, Y = numpy.linspace(0.0, 1.0, 5), numpy.arange(6.0).reshape(2, 3)

ANSWERED: tuple[Callable[[Any, Any, Any], Any], ...] = (
    lambda np, x, y: np.exp(x),
    lambda np, x, y: np.exp(x[1]),
    lambda np, x, y: np.exp(0.5),
    lambda np, x, y: np.sqrt(2),
    lambda np, x, y: np.maximum(x, 0.5),
    lambda np, x, y: np.arctan2(x[1], 0.5),
    lambda np, x, y: np.hypot(x, x),
    lambda np, x, y: np.add(y, y[0]),
    lambda np, x, y: np.isnan(x),
    lambda np, x, y: np.deg2rad(90.0),
    lambda np, x, y: np.dot(x, x),
    lambda np, x, y: np.dot(y, x[:3]),
    lambda np, x, y: np.concatenate((x, x)),
    lambda np, x, y: np.concatenate([y, y], axis=1),
    lambda np, x, y: np.vstack([x, x]),
    lambda np, x, y: np.where(x > 0.5, x, 0.0),
    lambda np, x, y: np.outer(x, x),
    lambda np, x, y: np.linalg.norm(x),
    lambda np, x, y: np.linalg.norm(y, axis=(0, 1)),
    lambda np, x, y: np.array([1.0, 2.0]),
    lambda np, x, y: np.array([[1, 2], [3, 4]]),
    lambda np, x, y: np.array([[x[0], x[1]], [-x[1], x[0]]]),
    lambda np, x, y: np.array((1.0, x[1]), float),
    lambda np, x, y: np.array([x, x]),
    lambda np, x, y: np.array(x),
    lambda np, x, y: np.array(3),
    lambda np, x, y: np.zeros(3),
    lambda np, x, y: np.zeros((2, 3), dtype=int),
    lambda np, x, y: np.ones((2, 2), np.float32),
    lambda np, x, y: np.full(3, 2.5),
    lambda np, x, y: np.arange(5),
    lambda np, x, y: np.arange(8, 1, -2),
    lambda np, x, y: np.exp(x, out=x + 0.0),
    lambda np, x, y: np.add(y, 1.0, out=y + 0.0),
    lambda np, x, y: np.eye(3),
    lambda np, x, y: np.identity(2),
    lambda np, x, y: np.argmin(x),
    lambda np, x, y: np.diag([1.0, 2.0]),
    lambda np, x, y: np.diag(x),
    lambda np, x, y: np.append(x, 1.0),
    lambda np, x, y: np.zeros_like(x),
)


@pytest.mark.parametrize("number", range(len(ANSWERED)))
def test_common_calls_enter_no_python_of_ours(number: int) -> None:
    call, x, y = ANSWERED[number], np.asarray(X), np.asarray(Y)
    call(np, x, y)
    assert in_machine_code(lambda: call(np, x, y))
    found, expected = call(np, x, y), call(numpy, X, Y)
    compare(found, expected)
    assert np.isscalar(found) == numpy.isscalar(expected)


def test_results_are_written_where_they_are_wanted() -> None:
    """What was computed of the memory before, or saved for a gradient, has its old values."""
    x = np.array(X)
    assert np.add(x, 1.0, out=x) is x and x.tolist() == (X + 1.0).tolist()
    np.multiply(x[1:4], 2.0, out=x[1:4])
    assert x.tolist() == [1.0, 2.5, 3.0, 3.5, 2.0]
    with xt.options(lazy="always"):
        pending = xt.exp(x)
    np.add(x, 1.0, out=x)
    assert numpy.allclose(pending.numpy(), numpy.exp([1.0, 2.5, 3.0, 3.5, 2.0]))
    w = xt.asarray(X, copy=True, requires_grad=True)
    y = np.array(X)
    loss = xt.sum(w * y)
    np.add(y, 1.0, out=y)
    loss.backward()
    assert w.grad.tolist() == X.tolist() and y.tolist() == (X + 1.0).tolist()
    z = np.zeros(5)
    z.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        np.add(y, y, out=z)
    with pytest.raises(TypeError, match="out"):
        np.exp(x, out=np.zeros(5, dtype=int))


DOORS: tuple[Callable[[Any, Any], Any], ...] = (
    lambda np, x: np.exp(x, out=np.zeros(5)),
    lambda np, x: np.exp(x, dtype=np.float32),
    lambda np, x: np.add(x, x, where=x > 0.5, out=np.zeros(5)),
    lambda np, x: np.nan_to_num(x, copy=False),
    lambda np, x: np.real_if_close(x),
    lambda np, x: np.trim_zeros(x),
    lambda np, x: np.array(x, copy=None),
    lambda np, x: np.full_like(x, 1, dtype=">f8"),
    lambda np, x: np.zeros(3, ">i4"),
    lambda np, x: np.zeros((200, 200)),
    lambda np, x: np.eye(100),
    lambda np, x: np.where(x > 0.5),
    lambda np, x: np.unique(x, return_counts=True),
    lambda np, x: np.add(x[:, None], np.zeros((1, 20000))),
    lambda np, x: np.maximum(x, numpy.float64(0.5)),
    lambda np, x: np.array([numpy.ones(2), numpy.ones(2)]),
    lambda np, x: np.array(list(range(1000))),
    lambda np, x: np.concatenate([np.ones(20000), x]),
    lambda np, x: np.exp([0.0, 1.0]),
    lambda np, x: np.linspace(0, 1, 5),
    lambda np, x: np.arange(0, 1, 0.25),
    lambda np, x: np.arange(0, 100_000),
    lambda np, x: np.linspace(0, 2.0**70, 5),
    lambda np, x: np.full((), -1),
    lambda np, x: np.full((2, 2), 1 << 64, dtype=float),
    lambda np, x: np.eye(3, k=2**70),
    lambda np, x: np.exp([[0.0, x[1]]]),
    lambda np, x: np.linalg.eigh(np.eye(2)),
    lambda np, x: np.modf(x),
    lambda np, x: np.allclose(x, x),
    lambda np, x: np.array_equal(x, x),
    lambda np, x: np.array([2**63]),
)


@pytest.mark.parametrize("number", range(len(DOORS)))
def test_other_calls_give_the_same(number: int) -> None:
    call = DOORS[number]
    for _ in range(2):
        found, expected = call(np, np.asarray(X.copy())), call(numpy, X.copy())
        if isinstance(expected, numpy.ndarray):
            expected = expected.astype(expected.dtype.newbyteorder("="))
        compare(found, expected)


REFUSED: tuple[Callable[[Any, Any], Any], ...] = (
    lambda np, x: np.exp(x, x, x),
    lambda np, x: np.exp(),
    lambda np, x: np.exp("text"),
    lambda np, x: np.exp(None),
    lambda np, x: np.add(x, np.ones(3)),
    lambda np, x: np.dot(x, np.ones(3)),
    lambda np, x: np.dot(x),
    lambda np, x: np.concatenate([x, np.ones((2, 2))]),
    lambda np, x: np.concatenate(x[0]),
    lambda np, x: np.linalg.inv(np.zeros((2, 2))),
    lambda np, x: np.array([[1], [2, 3]]),
    lambda np, x: np.zeros(-1),
    lambda np, x: np.zeros(2**70),
    lambda np, x: np.ones((2, -(2**70))),
    lambda np, x: np.arange(2**70),
    lambda np, x: np.eye(2**63),
    lambda np, x: np.full(3, 2**70),
    lambda np, x: np.zeros(3, dtype="no dtype"),
    lambda np, x: np.vstack([]),
    lambda np, x: np.not_equal(x, None),
    lambda np, x: np.logical_or(x, "a"),
    lambda np, x: np.logical_or(x[0], object),
    lambda np, x: np.arctan2(x, slice(1)),
    lambda np, x: np.fft.fftfreq(0),
    lambda np, x: np.dot(x, x, **{f"k{n}": 0 for n in range(600_000)}),
    lambda np, x: np.exp(*[x] * 500_000),
    lambda np, x: np.where(x, x),
    lambda np, x: np.left_shift(x, 1),
)


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_refused_calls_say_the_same(number: int) -> None:
    """The error is that of the call in Python, and the function goes on to answer others."""
    x = np.asarray(X)
    with pytest.raises(Exception) as found:
        REFUSED[number](np, x)
    with thin.in_python(), pytest.raises(type(found.value)) as expected:
        REFUSED[number](np, x)
    assert type(found.value) is type(expected.value) and str(found.value) == str(expected.value)
    assert np.dot(x, x) == numpy.dot(X, X)


def test_a_list_that_contains_itself_is_refused() -> None:
    own: list[Any] = []
    own.append(own)
    for function in (np.concatenate, np.array, np.vstack):
        with pytest.raises((ValueError, TypeError, RecursionError)):
            function(own)


def test_results_are_arrays_of_their_own() -> None:
    x = np.asarray(X.copy())
    for make in (np.array, np.copy, np.real_if_close, lambda x: np.concatenate([x])):
        y = make(x)
        y[0] = 7.0
        assert x[0] == (7.0 if make is np.real_if_close else 0.0), make
        x[0] = 0.0


def test_gradients_captures_and_options_go_their_way() -> None:
    x = np.asarray(X)
    assert xt.grad(lambda v: np.dot(np.exp(v), np.array([v[0], 1.0, 1.0, 1.0, 1.0])))(x).shape == (5,)
    fused = xt.fuse(lambda v: np.concatenate([np.exp(v), np.array([v[1], 2.0])]))
    for _ in range(3):
        compare(fused(x), numpy.concatenate([numpy.exp(X), [X[1], 2.0]]))
    with xt.options(lazy="always"):
        assert np.exp(np.array(X)).is_pending and np.zeros(3).is_pending == xt.zeros(3).is_pending
    y = np.exp(xt.asarray(X, requires_grad=True))
    assert y.requires_grad
    large = np.exp(np.linspace(0.0, 1.0, 1_000_000))
    assert large.is_pending and np.sqrt(large).is_pending


def test_no_reference_is_lost_or_kept() -> None:
    x, parts = np.asarray(X.copy()), [1.5, 2.5]
    calls: tuple[Callable[[], Any], ...] = (
        lambda: np.exp(x),
        lambda: np.exp(x[1]),
        lambda: np.concatenate([x, x], axis=0),
        lambda: np.array([[parts[0], x[1]], parts]),
        lambda: np.where(x > 0.5),
        lambda: np.real_if_close(x),
        lambda: np.dot(x, 2.0),
        lambda: np.zeros(3),
        lambda: pytest.raises(ValueError, np.dot, x, np.ones(3)),
    )
    for call in calls:
        for _ in range(3):
            call()
        gc.collect()
        before = sys.getrefcount(x._content), sys.getrefcount(parts), sys.getrefcount(parts[0])
        allocated = sys.getallocatedblocks()
        for _ in range(1000):
            call()
        gc.collect()
        assert (sys.getrefcount(x._content), sys.getrefcount(parts), sys.getrefcount(parts[0])) == before
        assert sys.getallocatedblocks() - allocated < 400


def test_threads_call_at_the_same_time() -> None:
    x, wrong = np.asarray(X), []

    def work(n: int) -> None:
        for k in range(500):
            y = np.concatenate([np.exp(x), np.array([float(n), float(k)])])
            if y[-1] != k or y[-2] != n:
                wrong.append((n, k))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not wrong


def test_functions_are_objects_as_numpys_are() -> None:
    class Holder:
        function = np.dot
        universal = np.exp

    x = np.asarray(X)
    with pytest.raises(TypeError):
        Holder().function(x, x, x, x)  # bound, as functions are
    assert Holder.function is np.dot and Holder().universal is np.exp
    for function in (np.dot, np.linalg.norm, np.array, np.zeros, np.mean, np.exp):
        assert pickle.loads(pickle.dumps(function)) is function and copy.deepcopy(function) is function
        assert function.__doc__ and function.__name__ in repr(function)


ASSIGNED: tuple[Any, ...] = (
    [1.0, 2.0],
    (1, 2),
    [True, 2.5],
    [numpy.float32(0.1), 2],
    [2**53 + 1, 1],
    [2**63, 1],
    [[1.0, 2.0]],
    [[3.0], [4.0]],
    [1.0],
    [],
    [1.0, 2.0, 3.0],
    [None, 1.0],
    ["1", "2"],
    [1j, 2.0],
    [2**70, 1],
    [[1.0], [2.0, 3.0]],
    {1.0: 2.0},
)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64", "complex128", "bool"])
@pytest.mark.parametrize("number", range(len(ASSIGNED)))
def test_lists_are_assigned_as_in_python(number: int, dtype: str) -> None:
    """The elements, or the error, are those of the call in Python; NumPy's where it takes the value."""

    def assigned(key: Any) -> Any:
        x = np.zeros(4, dtype)
        try:
            x[key] = ASSIGNED[number]
        except Exception as error:  # compared by the caller
            return type(error), str(error)
        return x.tolist()

    for key in (slice(1, 3), slice(0, 4, 2), [0, 3], 2):
        found = assigned(key)
        with thin.in_python():
            assert found == assigned(key)


def test_elements_in_lists_are_assigned_and_added() -> None:
    x, y = np.array(X), X.copy()
    for _ in range(2):
        x[1:3] = [x[3], 2.0]
        y[1:3] = [y[3], 2.0]
        x[:2] = (x[4], x[0])
        y[:2] = (y[4], y[0])
        compare(x, y)
        compare(x + [1.0, 2, 3, True, x[1]], y + [1.0, 2, 3, True, y[1]])
        compare([1, 2, 3, 4, 5] * x, [1, 2, 3, 4, 5] * y)
        compare(np.astype(x, np.float32) * [0.1] * 2, y.astype("float32") * [0.1] * 2)
        compare(x > (0, 1, 0, 1, 0), y > (0, 1, 0, 1, 0))
    assert np.arange(3)[2] * [1, 2] == [1, 2, 1, 2]
    with pytest.raises(ValueError, match="broadcast"):
        x + [1.0, 2.0]
    loss = xt.grad(lambda v: xt.sum(v * [v[0], 2.0, 3.0, 4.0, 5.0]))(np.array(X))
    compare(loss, numpy.array([2 * X[0], 2.0, 3.0, 4.0, 5.0]))

"""Operators whose results take the memory of an operand, as NumPy's do: only of one that nothing else holds."""

from __future__ import annotations

import functools
import operator
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import xtensor as xt
from xtensor.calls import op, record, rows, temporaries, thin
from xtensor.plan.costs import CHEAP_BELOW, ELIDED

N = 40_000
KNOWN = pytest.mark.skipif(temporaries.references(1, 1, 1) == 0, reason="references are not known in this Python")


@pytest.fixture(params=["counted", "in Python", "machine code"], autouse=True)
def methods(request: pytest.FixtureRequest) -> Iterator[None]:
    """Call the operators of tensors in each of the ways that they may be called."""
    if request.param == "machine code" and not thin.exchange():
        pytest.skip("there is no machine code")
    with xt.options(lazy="auto"), thin.in_python() if request.param == "in Python" else nullcontext():
        yield


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of results that took the memory of an operand."""
    found = [0]
    quickly = rows.quickly

    def counting(kernel: Any, *natives: Any, **params: Any) -> Any:
        result = quickly(kernel, *natives, **params)
        found[0] += len(natives) == kernel.nin + 1 and natives[-1] is result if type(kernel) is np.ufunc else 0
        return result

    monkeypatch.setattr(rows, "quickly", counting)
    return found


def arrays() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    return rng.uniform(1.0, 2.0, size=N), rng.uniform(1.0, 2.0, size=N)


def tensors() -> tuple[Any, Any]:
    first, second = arrays()
    return xt.asarray(first, copy=True), xt.asarray(second, copy=True)


TAKEN: dict[str, tuple[Callable[[Any, Any], Any], int]] = {
    "left": (lambda x, y: 2.0 * x + y, 1),
    "right": (lambda x, y: x - y * 2.0, 1),
    "beside a number": (lambda x, y: 2.0 - (x + y), 1),
    "before a number": (lambda x, y: (x + y) / 2.0, 1),
    "both": (lambda x, y: x * x + y * y, 1),
    "views": (lambda x, y: (x[2:] + x[:-2]) + y[1:-1] - 4.0 * x[1:-1], 2),
    "several": (lambda x, y: ((x - y) * x + y) * 2.0 - x, 4),
    "square": (lambda x, y: (x - y) ** 2, 1),
    "of functions": (lambda x, y: xt.sqrt(x) * 2.0 + y * xt.floor(y), 3),
    "a product of two": (lambda x, y: (x - y) * (x + y) * 0.5, 2),
}


@KNOWN
@pytest.mark.parametrize("name", list(TAKEN))
def test_memory_is_taken(name: str, taken: list[int]) -> None:
    """A temporary's memory becomes that of the result."""
    assert ELIDED <= 8 * N <= CHEAP_BELOW
    function, times = TAKEN[name]
    x, y = tensors()
    x + y  # both have arrays from now on
    for _ in range(3):
        taken[0] = 0
        found = function(x, y)
        assert taken[0] == times
        np.testing.assert_array_equal(found.numpy(), function(*arrays()))
    np.testing.assert_array_equal(x.numpy(), arrays()[0])
    np.testing.assert_array_equal(y.numpy(), arrays()[1])


@KNOWN
@pytest.mark.parametrize("name", list(TAKEN))
def test_memory_is_taken_beside_that_of_numpys_arrays(
    name: str, taken: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where others can write to operands, larger arrays are computed at once, and so is what follows."""
    monkeypatch.setattr(op, "quickly", rows.quickly)
    size = CHEAP_BELOW // 8 + 100
    first, second = [np.resize(one, size) for one in arrays()]
    function, times = TAKEN[name]
    x, y = xt.asarray(first), xt.asarray(second)
    for _ in range(3):
        taken[0] = 0
        found = function(x, y)
        assert taken[0] == times and not found.is_pending
        np.testing.assert_array_equal(
            found.numpy(), function(xt.asarray(first, copy=True), xt.asarray(second, copy=True)).numpy()
        )
    np.testing.assert_array_equal(first, np.resize(arrays()[0], size))


class Box:
    """An object that holds what was computed, and whose operator returns that."""

    def __init__(self, x: Any, hold: Callable[[Any], Any] = lambda x: x) -> None:
        self.x, self.hold = x, hold
        self.value: Any = None

    def __mul__(self, factor: float) -> Any:
        result = self.x * factor
        self.value = self.hold(result)
        return result


def variable(x: Any, y: Any) -> Any:
    value = x * 2.0
    return value + y, y - value, 1.0 - value, value**2, value


def bound_in_passing(x: Any, y: Any) -> Any:
    return (value := x * 2.0) + y, y - (other := x * 3.0), value, other


def element(x: Any, y: Any) -> Any:
    values = [x * 2.0]
    return values[0] + y, y + values[-1], values


def attribute(x: Any, y: Any) -> Any:
    box = Box(x)
    box.value = x * 2.0
    return box.value + y, y - box.value, box.value


def chosen(x: Any, y: Any) -> Any:
    value = x * 2.0
    return (value if len(x) else x * 2.0) + y, (value or x * 2.0) + y if not len(x) else 0.0, value


def closed_over(x: Any, y: Any) -> Any:
    value = x * 2.0
    return (lambda: value)() + y, (lambda: value + y)(), value


def by_function(x: Any, y: Any) -> Any:
    value = x * 2.0
    return operator.add(value, y), functools.reduce(operator.add, [value, y, x]), sum([value, y]), value


def by_method(x: Any, y: Any) -> Any:
    value = x * 2.0
    return value.__add__(y), type(value).__sub__(value, y), value.__rsub__(1.0), value


def returned_by_an_operator(x: Any, y: Any) -> Any:
    box = Box(x)
    return box * 2.0 + y, y - box * 3.0, box.value


def in_part(x: Any, y: Any) -> Any:
    box = Box(x, lambda value: value[1:])
    return box * 2.0 + y, box.value


def reshaped(x: Any, y: Any) -> Any:
    box = Box(x, lambda value: value.reshape(2, -1).T)
    return box * 2.0 + y, box.value


def as_numpy(x: Any, y: Any) -> Any:
    box = Box(x, np.asarray)
    return box * 2.0 + y, box.value


def by_dlpack(x: Any, y: Any) -> Any:
    box = Box(x, np.from_dlpack)
    return box * 2.0 + y, box.value


def generated(x: Any, y: Any) -> Any:
    value = x * 2.0
    return [one + y for one in (value for _ in range(2))], next(one - y for one in [value]), value


HELD: list[Callable[[Any, Any], Any]] = [
    *(variable, bound_in_passing, element, attribute, chosen, closed_over, by_function, by_method),
    *(returned_by_an_operator, in_part, reshaped, as_numpy, by_dlpack, generated),
]


def compare(found: Any, right: Any) -> None:
    if isinstance(right, (list, tuple)):
        for one, other in zip(found, right, strict=True):
            compare(one, other)
    else:
        np.testing.assert_array_equal(np.asarray(found), right)


@pytest.mark.parametrize("function", HELD, ids=[one.__name__ for one in HELD])
@pytest.mark.parametrize("fused", [False, True], ids=["plain", "captured"])
def test_values_that_are_held_stay(function: Callable[[Any, Any], Any], fused: bool) -> None:
    """What can still be read keeps its values."""
    call = xt.fuse(function) if fused else function
    x, y = tensors()
    for _ in range(3):
        compare(call(x, y), function(*arrays()))
    compare([x, y], arrays())


def test_elements_of_arrays_of_objects() -> None:
    """Only the array holds them, by as few references as the stack holds temporaries."""
    x, y = tensors()
    u, v = arrays()
    values = np.empty(2, object)
    values[0], values[1] = x * 2.0, x * 3.0
    for _ in range(2):
        compare(list(np.add(values, 1.0)), [u * 2.0 + 1.0, u * 3.0 + 1.0])
        compare(list(1.0 - values), [1.0 - u * 2.0, 1.0 - u * 3.0])
        compare(list(values[:1] * 1.0 + 1.0), [u * 2.0 + 1.0])
        compare([value + y for value in values], [u * 2.0 + v, u * 3.0 + v])
    compare(list(values), [u * 2.0, u * 3.0])


def test_elements_that_are_read_again() -> None:
    """An operator that makes several tensors leaves them in an array, whose elements may be broadcast, or kept."""
    x, y = tensors()
    u, v = arrays()
    values = np.empty((2, 1), object)
    values[:, 0] = [x, y]
    for _ in range(2):
        found = (values * 2.0) + np.asarray([1.0, 2.0, 3.0])
        for row, native in zip(found, (u, v), strict=True):
            compare(list(row), [native * 2.0 + 1.0, native * 2.0 + 2.0, native * 2.0 + 3.0])
        product = (values * 1.0) @ np.asarray([[1.0, 2.0]], dtype=object)
        compare(list(product[1]), [v, v * 2.0])
    alone = np.empty((), object)
    alone[()] = x * 3.0
    box = Box(x, lambda _: alone)
    box.x = type("Times", (), {"__mul__": lambda self, factor: alone})()
    compare([box * 2.0 + 1.0, box * 2.0 + 1.0, alone[()]], [u * 3.0 + 1.0, u * 3.0 + 1.0, u * 3.0])


DIFFERENT: dict[str, Callable[[Any, Any], Any]] = {
    "booleans": lambda x, y: 2.0 * x > y,
    "of another dtype": lambda x, y: (x * 2.0).astype("float32") * 2.0 + y,
    "integers divided": lambda x, y: (x.astype("int64") * 2) / 3,
    "float32 beside float64": lambda x, y: x.astype("float32") * 2.0 - y,
    "complex": lambda x, y: (x * 2.0 + y) * 1j,
    "larger": lambda x, y: 2.0 * x + y.reshape(2, -1)[:, :1],
    "transposed": lambda x, y: x.reshape(200, 200).T * 2.0 + y.reshape(200, 200),
    "beside a scalar array": lambda x, y: x * 2.0 + y[:1],
    "every other element": lambda x, y: x[::2] * 2.0 + y[::2],
    "floor division": lambda x, y: (x * 3.0) // y + (x * 3.0) % y,
    "powers": lambda x, y: (x * y) ** 3 + (x * y) ** 2.0 + (x * y) ** y,
    "powers of numbers": lambda x, y: 2 ** (x * y) + 2.0**y,
}


@pytest.mark.parametrize("name", list(DIFFERENT))
def test_results_of_other_kinds(name: str) -> None:
    """A result that an operand's memory cannot hold has its own, and NumPy's dtype."""
    function = DIFFERENT[name]
    x, y = tensors()
    x + y  # both have arrays from now on
    found, right = function(x, y), function(*arrays())
    assert found.dtype == right.dtype
    np.testing.assert_allclose(found.numpy(), right, rtol=1e-6 if right.dtype == np.float32 else 1e-15)


def test_gradients() -> None:
    """Values that a gradient needs are kept."""

    def loss(x: Any, y: Any) -> Any:
        return xt.sum((x * y + x) * (x - y) ** 2 - (2.0 - x * y) * x)

    for size in (100, N):
        x, y = [one[:size] for one in arrays()]
        found = xt.grad(loss, (0, 1))(xt.asarray(x), xt.asarray(y))
        u, d = x * y + x, x - y
        np.testing.assert_allclose(found[0].numpy(), (y + 1) * d**2 + 2 * u * d - 2 + 2 * x * y, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(found[1].numpy(), x * d**2 - 2 * u * d + x * x, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("size", [N, CHEAP_BELOW // 8 + 100])
@pytest.mark.parametrize("copy", [True, None], ids=["own", "NumPy's"])
def test_gradients_beside_constants(size: int, copy: bool | None) -> None:
    """What was computed from constants has no step, but the tape keeps it beside a value that has one."""
    u, v = [np.resize(one, size) for one in arrays()]
    x, y = xt.asarray(u, copy=copy), xt.asarray(v, copy=copy)
    np.testing.assert_array_equal(xt.grad(lambda y: xt.sum((x * 2.0) * y))(y).numpy(), u * 2.0)
    np.testing.assert_array_equal(xt.grad(lambda y: xt.sum(y * (x * 2.0)))(y).numpy(), u * 2.0)
    slope = xt.grad(lambda y: xt.sum(y / (x + 1.0) - (x + 1.0) / y))(y)
    np.testing.assert_allclose(slope.numpy(), 1 / (u + 1.0) + (u + 1.0) / v**2, rtol=1e-12)


def test_weak_references(taken: list[int]) -> None:
    """Another thread could get hold of a value by a weak reference while its memory is written to."""
    x, y = tensors()
    box = Box(x, weakref.ref)
    compare([box * 2.0 + y], [arrays()[0] * 2.0 + arrays()[1]])
    assert taken[0] == 0 and box.value() is None


def test_latest_arrays_of_other_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other threads may add to the latest arrays that were computed at once, while these are looked through."""
    found: deque[Any] = deque(maxlen=4)
    found.extend([lambda: found.append(found[0])] * 2)
    monkeypatch.setattr(record, "latest_at_once", found)
    x, _ = tensors()
    assert not record.follows_at_once((x + 1.0,))


def test_threads() -> None:
    """Each thread's temporaries are its own."""
    x, y = tensors()
    right = (arrays()[0] * 2.0 + arrays()[1]) * 3.0 - arrays()[0]
    wrong: list[int] = []

    def work() -> None:
        for _ in range(200):
            found = (x * 2.0 + y) * 3.0 - x
            if not np.array_equal(found.numpy(), right):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong

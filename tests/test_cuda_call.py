"""Small calls on a CUDA device, each one kernel: emulated, beside the CPU, and beside the same calls recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import emulated
import numpy as np
import pytest

import xtensor as xt
from tests.test_cuda_backend import entered
from xtensor.autograd.tape import active
from xtensor.calls import elsewhere

pytestmark = pytest.mark.skipif(bool(emulated.MISSING), reason=emulated.MISSING or "never")


@pytest.fixture(scope="module")
def calls() -> Iterator[emulated.Launches]:
    with emulated.device(lazy="auto") as launches:
        yield launches


def on_host(x: xt.Tensor) -> np.ndarray[Any, Any]:
    return np.asarray(x.to_device("cpu"))


def given(device: str) -> dict[str, Any]:
    """Return operands by name: x, y alike, a row and a column, integers i and booleans b of the same shape."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 6, 9)).astype(np.float32)
    arrays = {"x": x, "y": y, "row": y[0], "column": y[:, :1], "i": rng.integers(-9, 9, (6, 9)), "b": x > 0}
    return {name: xt.asarray(array, device=device, copy=True) for name, array in arrays.items()}


CALLS: dict[str, Callable[..., Any]] = {
    "x + y": lambda x, y, **_: x + y,
    "x + x": lambda x, **_: x + x,
    "x * 2.5": lambda x, **_: x * 2.5,
    "1 - x": lambda x, **_: 1 - x,
    "x / row": lambda x, row, **_: x / row,
    "x - column": lambda x, column, **_: x - column,
    "row * column": lambda row, column, **_: row * column,
    "windows": lambda x, y, **_: x[1:, :-1] + y[:-1, 1:],
    "backwards": lambda x, y, **_: x[::-1, ::2] - y[:, ::-2],
    "transposed": lambda x, y, **_: x.T + y.T,
    "unaligned": lambda x, y, **_: x[0, 1:] * y[1, :-1],
    "exp": lambda x, **_: xt.exp(x),
    "where": lambda b, x, y, **_: xt.where(b, x, y),
    "where of a number": lambda b, x, **_: xt.where(b, x, 0.5),
    "x < 0": lambda x, **_: x < 0,
    "a number below 0": lambda x, i, **_: -1 * x + xt.astype(i * -2, xt.float32),
    "a number below 0 and unsigned": lambda i, **_: xt.astype(xt.astype(abs(i), xt.uint8) * 3, xt.int64) * -3,
    "integers": lambda i, **_: i // 3 + i * 2,
    "mixed dtypes": lambda i, x, **_: xt.astype(i, xt.float32) * x,
    "abs": lambda i, **_: abs(i),
    "clip": lambda x, **_: xt.clip(x, -0.5, 0.5),
    "no axes": lambda x, **_: xt.sum(x) * 0.0 + 2.0,
    "no elements": lambda x, **_: x[:0] + 1.0,
}


@pytest.mark.parametrize("name", CALLS)
def test_small_calls_are_the_cpus_and_recorded_ones(name: str, calls: emulated.Launches) -> None:
    """Values near the CPU's, and bit for bit those of the same call as recorded steps; found out, and known."""
    call = CALLS[name]
    with xt.options(lazy="always"):
        recorded = on_host(call(**given("cuda:0")))
    wanted = call(**given("cpu")).numpy()
    operands = given("cuda:0")
    for _ in range(2):
        found = on_host(call(**operands))
        np.testing.assert_allclose(found, wanted, rtol=2e-6, atol=1e-6, strict=True)
        if name != "no axes":  # whose sum CuPy makes
            np.testing.assert_array_equal(found, recorded, strict=True)


def test_a_small_call_is_one_launch(calls: emulated.Launches) -> None:
    x, y = (given("cuda:0")[name] for name in "xy")
    every: list[Callable[[], Any]] = [
        lambda: x + y,
        lambda: x * 2.5,
        lambda: xt.exp(x[1:]),
        lambda: x.__iadd__(y),
        lambda: x[1:, 1:].__imul__(y[1:, 1:]),
    ]
    for call in every:
        before = len(calls.texts)
        call()
        assert len(calls.texts) == before + 1


# How many functions of the package a call enters that is a kernel of its own, the launch's two among them.
ENTERED: dict[str, tuple[Callable[..., Any], int]] = {
    "x + y": (lambda x, y: x + y, 9),
    "x * 2.5": (lambda x, y: x * 2.5, 12),
    "x * 2.5 + x": (lambda x, y: x * 2.5 + x, 21),
    "exp": (lambda x, y: xt.exp(x), 9),
    "sum": (lambda x, y: xt.sum(x), 12),
    "x += y": (lambda x, y: x.__iadd__(y), 12),
    "x *= 0.5": (lambda x, y: x.__imul__(0.5), 13),
}


@pytest.mark.parametrize("name", ENTERED)
def test_a_small_call_enters_few_functions(name: str, calls: emulated.Launches) -> None:
    """As long as nobody has asked for a gradient, of anything; afterwards calls look for one first."""
    call, most = ENTERED[name]
    x, y = (given("cuda:0")[name] for name in "xy")
    call(x, y)
    asked, active[0] = active[0], False
    try:
        found = entered(lambda: call(x, y))
    finally:
        active[0] = asked
    assert len(found) <= most, found


UPDATES: dict[str, Callable[..., Any]] = {
    "x += y": lambda x, y, **_: x.__iadd__(y),
    "x *= 0.5": lambda x, **_: x.__imul__(0.5),
    "x -= row": lambda x, row, **_: x.__isub__(row),
    "x += x": lambda x, **_: x.__iadd__(x),
    "x += x.T, which overlaps": lambda x, **_: x[:6, :6].__iadd__(x[:6, :6].T),
    "x[1:] += x[:-1], which overlaps": lambda x, **_: x[1:].__iadd__(x[:-1]),
    "window": lambda x, y, **_: x[1:-1, 2:].__iadd__(y[2:, :-2]),
    "float64 into float32": lambda x, y, **_: x.__iadd__(xt.astype(y, xt.float64)),
    "i += 300": lambda i, **_: i.__iadd__(300),
    "i /= 2": lambda i, **_: i.__itruediv__(2),
    "i += 0.5": lambda i, **_: i.__iadd__(0.5),
    "more elements": lambda row, x, **_: row.__iadd__(x),
}


@pytest.mark.parametrize("name", UPDATES)
def test_small_updates_in_place(name: str, calls: emulated.Launches) -> None:
    """The CPU's values or its error, all that shares the memory sees them, and what was read before stays."""
    outcomes = []
    for device in ("cpu", "cuda:0"):
        operands = given(device)
        views = {name: operands[name][...] for name in operands}
        with xt.options(lazy="always"):
            readers = {name: operands[name] + operands[name] for name in operands}
        errors = []
        for _ in range(2):
            try:
                UPDATES[name](**operands)
                errors.append("")
            except (TypeError, ValueError) as error:
                errors.append(repr(error))
        every = [one for found in (operands, views, readers) for one in found.values()]
        outcomes.append((errors, [on_host(one) for one in every]))
    assert outcomes[0][0] == outcomes[1][0]
    for one, other in zip(outcomes[0][1], outcomes[1][1], strict=True):
        np.testing.assert_allclose(other, one, rtol=2e-6, atol=1e-6, strict=True)


def test_few_ways_to_lie_are_remembered(calls: emulated.Launches, monkeypatch: Any) -> None:
    monkeypatch.setattr(elsewhere, "MOST", 4)
    x = given("cuda:0")["x"]
    for n in range(1, 7):
        np.testing.assert_array_equal(on_host(x[:n] + 1.0), on_host(x)[:n] + np.float32(1.0))

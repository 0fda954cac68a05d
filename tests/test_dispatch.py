"""The dispatch of captured functions in machine code: it answers the calls that it may, and no others."""

from __future__ import annotations

import gc
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import xtensor as xt
from xtensor.calls import capture, dispatch, thin
from xtensor.calls import known as known_kinds
from xtensor.calls.numbers import MOST_WAYS
from xtensor.codegen.cpu import compile as compile_
from xtensor.codegen.cpu.compile import host
from xtensor.graph.number import MOST_VALUES

pytestmark = pytest.mark.skipif(host() is None, reason="there is no compiler, and machine code answers no calls")

N = 1000


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tell machine code of calls as soon as it can be."""
    assert thin.exchange()
    monkeypatch.setattr(known_kinds, "DISPATCHED_AFTER", 1)
    monkeypatch.setattr(known_kinds, "AGAIN_AFTER", 1)
    monkeypatch.setattr(known_kinds, "SMALL_AFTER", 0)
    monkeypatch.setattr(compile_, "HOT_CALLS", 0)
    yield


def vector(seed: int = 0, n: int = N, dtype: Any = np.float64) -> xt.Tensor:
    return xt.asarray(np.random.default_rng(seed).uniform(0.5, 1.5, n).astype(dtype))


def answered(function: Any) -> int:
    """Return how many calls machine code has answered."""
    return sum(one.dispatched for known in function._known.values() for one in known.ways())


def by_machine_code(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Return a call's result, which machine code must have made."""
    before = answered(function)
    result = function(*args, **kwargs)
    assert answered(function) == before + 1
    return result


def by_python(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Return a call's result, which Python must have made."""
    before = answered(function)
    result = function(*args, **kwargs)
    assert answered(function) == before
    return result


def known(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return a fused function that machine code knows for such arguments."""
    fused = xt.fuse(function)
    for _ in range(5):
        fused(*args, **kwargs)
    assert answered(fused), fused.why(*args, **kwargs)
    return fused


def test_values_follow_the_arguments() -> None:
    fused = known(lambda x, y: xt.exp(x) * y + 2 * x, vector(), vector(1))
    for seed in range(5):
        x, y = vector(seed), vector(seed + 9)
        np.testing.assert_allclose(
            np.asarray(by_machine_code(fused, x, y)), np.exp(x.numpy()) * y.numpy() + 2 * x.numpy(), rtol=1e-14
        )


def test_results_are_apart_from_each_other() -> None:
    fused = known(lambda x: x * 2 + 1, vector())
    one, other = by_machine_code(fused, vector(1)), by_machine_code(fused, vector(2))
    one[:] = 0.0
    np.testing.assert_array_equal(np.asarray(other), vector(2).numpy() * 2 + 1)
    assert one.shape == (N,)
    assert one.dtype == xt.float64


def test_trees_of_results() -> None:
    """Tuples, lists, dicts, nothing, arguments, constants, the same thing twice."""

    def pair(x: xt.Tensor) -> Any:
        y = x * 2
        return y, y, x, "name", {"sum": [xt.sum(y)]}

    x = vector()
    y, again, given, name, parts = by_machine_code(known(pair, x), x)
    assert y is again
    assert given is x
    assert name == "name"
    assert float(parts["sum"][0]) == pytest.approx(float(np.sum(x.numpy() * 2)))
    two = by_machine_code(known(lambda x: (x + 1, x + 2), x), x)
    assert type(two) is tuple
    np.testing.assert_array_equal(two[1].numpy(), x.numpy() + 2)

    def nothing(x: xt.Tensor) -> None:
        x += 1

    z = vector()
    fused = known(nothing, z)
    before = z.numpy().copy()
    assert by_machine_code(fused, z) is None
    np.testing.assert_array_equal(z.numpy(), before + 1)


def test_results_lie_as_those_of_plain_calls() -> None:
    """Those of transposed operands have their first axis innermost."""
    function = lambda x, y: (x.T * 2, y + 1, xt.where(x.T > 0.5, x.T, 0.0))  # noqa: E731
    fused = xt.fuse(function)
    for _ in range(20):
        x, y = vector(1, 35), vector(2, 6)
        given = xt.reshape(x, (5, 7)), xt.reshape(y, (1, 6))
        for one, other in zip(fused(*given), function(*given), strict=True):
            np.testing.assert_array_equal(one.numpy(), other.numpy())
            assert one.numpy().strides == other.numpy().strides
    assert answered(fused)


def test_results_without_axes_are_values() -> None:
    fused = known(lambda x: xt.sum(x), vector())
    total = by_machine_code(fused, vector())
    kept = total
    total += 1.0
    assert float(total) == float(kept) + 1.0


@pytest.mark.parametrize(
    "other",
    [
        lambda: vector(n=N - 1),
        lambda: vector(dtype=np.float32),
        lambda: vector(n=2 * N)[::2],
        lambda: xt.reshape(vector(), (10, 100)),
        lambda: xt.asarray(vector().numpy() + 0j),
        lambda: xt.astype(vector(), xt.float64)[::-1],
    ],
)
def test_other_arguments_are_other_kinds(other: Callable[[], xt.Tensor]) -> None:
    fused = known(lambda x: x * x + 1, vector())
    x = other()
    found = by_python(fused, x)
    np.testing.assert_allclose(np.asarray(found), x.numpy() * x.numpy() + 1, rtol=1e-6)
    by_machine_code(fused, vector())


def test_several_kinds_take_turns() -> None:
    fused, sizes = xt.fuse(lambda x: x * x + 1), [N + n for n in range(4)]
    for _ in range(5):
        for n in sizes:
            fused(vector(n=n))
    for n in sizes:
        assert by_machine_code(fused, vector(n=n)).shape == (n,)


def test_constants_tell_kinds_apart() -> None:
    x = vector()
    fused = known(lambda x, how, to: x * 2 if how == "double" else x + to, x, "double", 3)
    by_machine_code(fused, x, "".join(["dou", "ble"]), 3)
    np.testing.assert_array_equal(np.asarray(by_python(fused, x, "add", 3)), x.numpy() + 3)
    by_python(fused, x, "double", 3.0)
    by_python(fused, x, "double", True)


@pytest.mark.parametrize(("first", "second"), [(0.0, -0.0), (1, True), (1, 1.0)])
def test_equal_constants_that_differ(first: Any, second: Any) -> None:
    x = vector()
    fused = known(lambda x, c: xt.copysign(x, xt.asarray(c, dtype=xt.float64)) + 1, x, first)
    np.testing.assert_array_equal(np.asarray(by_python(fused, x, second)), np.copysign(x.numpy(), float(second)) + 1)


def test_names_of_arguments() -> None:
    x, y = vector(), vector(1)
    fused = known(lambda x, y, *, scale=2.0: x * scale - y, x, y=y, scale=3.0)
    np.testing.assert_allclose(
        np.asarray(by_machine_code(fused, x, y=y, scale=3.0)), x.numpy() * 3 - y.numpy(), rtol=1e-14
    )
    np.testing.assert_allclose(np.asarray(by_python(fused, x, y=y)), x.numpy() * 2 - y.numpy(), rtol=1e-14)
    np.testing.assert_allclose(np.asarray(by_python(fused, x, scale=3.0, y=y)), x.numpy() * 3 - y.numpy(), rtol=1e-14)
    with pytest.raises(TypeError):
        fused(x)
    with pytest.raises(TypeError):
        fused(x, y=y, scale=3.0, more=1)


# ---- what a function finds


def test_globals_are_looked_up_again() -> None:
    spread: dict[str, Any] = {"xt": xt, "c": 2.0, "w": vector(7), "g": lambda x: x + 1}
    exec("def f(x):\n    return g(x * c) + w", spread)
    x = vector()
    fused = known(spread["f"], x)
    by_machine_code(fused, x)
    spread["w"] = vector(8)
    np.testing.assert_allclose(np.asarray(by_machine_code(fused, x)), x.numpy() * 2 + 1 + vector(8).numpy())
    spread["c"] = 3.0
    np.testing.assert_allclose(np.asarray(by_python(fused, x)), x.numpy() * 3 + 1 + vector(8).numpy())
    spread["c"] = 2.0
    spread["g"] = lambda x: x - 1
    np.testing.assert_allclose(np.asarray(by_python(fused, x)), x.numpy() * 2 - 1 + vector(8).numpy())
    spread["w"] = vector(8, dtype=np.float32)
    by_python(fused, x)
    spread["w"] = 5.0
    np.testing.assert_allclose(np.asarray(by_python(fused, x)), x.numpy() * 2 - 1 + 5)
    del spread["w"]
    with pytest.raises(NameError):
        fused(x)


def test_a_name_that_hides_another() -> None:
    """A global that is added later is found before the builtin of its name."""
    spread: dict[str, Any] = {"xt": xt}
    exec("def f(x):\n    return x * max(2, 3)", spread)
    x = vector()
    fused = known(spread["f"], x)
    spread["max"] = min
    np.testing.assert_array_equal(np.asarray(by_python(fused, x)), x.numpy() * 2)


def test_cells_are_looked_up_again() -> None:
    w, c = vector(3), 2.0

    def f(x: xt.Tensor) -> xt.Tensor:
        return x * c + w

    x = vector()
    fused = known(f, x)
    w = vector(4)
    np.testing.assert_allclose(np.asarray(by_machine_code(fused, x)), x.numpy() * 2 + vector(4).numpy())
    c = 5.0
    np.testing.assert_allclose(np.asarray(by_python(fused, x)), x.numpy() * 5 + vector(4).numpy())


def test_functions_that_change() -> None:
    def helper(x: xt.Tensor, c: float = 2.0, *, d: float = 1.0) -> xt.Tensor:
        return x * c + d

    def other(x: xt.Tensor, c: float = 2.0, *, d: float = 1.0) -> xt.Tensor:
        return x - c + d

    x = vector()
    fused = known(lambda x: helper(x) * 2, x)
    helper.__defaults__ = (3.0,)
    np.testing.assert_allclose(np.asarray(by_python(fused, x)), (x.numpy() * 3 + 1) * 2)
    helper.__kwdefaults__ = {"d": 4.0}
    np.testing.assert_allclose(np.asarray(by_python(fused, x)), (x.numpy() * 3 + 4) * 2)
    helper.__code__ = other.__code__
    np.testing.assert_allclose(np.asarray(by_python(fused, x)), (x.numpy() - 3 + 4) * 2)


def test_attributes_of_a_function() -> None:
    def helper(x: xt.Tensor) -> xt.Tensor:
        return x * getattr(helper, "c", 2.0)

    x = vector()
    fused = known(lambda x: helper(x) + 1, x)
    helper.c = 3.0  # type: ignore[attr-defined]
    np.testing.assert_allclose(np.asarray(by_python(fused, x)), x.numpy() * 3 + 1)


def test_lists_dicts_and_modules_are_looked_into() -> None:
    module = ModuleType("users")
    module.c, module.f = 2.0, lambda x: x * module.c  # type: ignore[attr-defined]
    held: dict[Any, Any] = {"c": 2.0, "w": [vector(1), (3, "name")], 5: {"deep": 1.0}}
    rows = [(1, 0.5), (2, 0.25)]

    def f(x: xt.Tensor) -> xt.Tensor:
        more = sum(weight * x * n for n, weight in rows)
        return module.f(x) * held["c"] + held["w"][0] * held["w"][1][0] + held[5]["deep"] + more

    x = vector()
    fused = known(f, x)
    by_machine_code(fused, x)
    held["w"][0] = vector(2)
    np.testing.assert_allclose(by_machine_code(fused, x).numpy(), f(x).numpy(), rtol=1e-14)
    for change in (
        lambda: held.update(c=3.0),
        lambda: held["w"].__setitem__(1, (4, "name")),
        lambda: held[5].update(deep=2.0),
        lambda: rows.append((3, 0.125)),
        lambda: rows.__setitem__(0, (7, 0.5)),
        lambda: setattr(module, "c", 5.0),
        lambda: setattr(module, "f", lambda x: x - 1),
    ):
        for _ in range(3):
            fused(x)
        change()
        np.testing.assert_allclose(by_python(fused, x).numpy(), f(x).numpy(), rtol=1e-14)
    for _ in range(3):
        fused(x)
    held["w"] = [vector(3), (4, "name")]  # another list like it
    np.testing.assert_allclose(by_machine_code(fused, x).numpy(), f(x).numpy(), rtol=1e-14)
    rows.clear()
    held.clear()
    with pytest.raises(KeyError):
        fused(x)


def test_functions_of_the_librarys_are_looked_into() -> None:
    """Other fused functions, and gradients."""
    c = 2.0

    def energy(x: xt.Tensor) -> xt.Tensor:
        return xt.sum(x * x) * c

    inner, slope, x = xt.fuse(lambda x: x * c), xt.grad(energy), vector()
    fused = known(lambda x: inner(x) + slope(x), x)
    np.testing.assert_allclose(by_machine_code(fused, x).numpy(), x.numpy() * 2 + x.numpy() * 4, rtol=1e-14)
    c = 3.0
    np.testing.assert_allclose(by_python(fused, x).numpy(), x.numpy() * 3 + x.numpy() * 6, rtol=1e-14)
    inner = xt.fuse(lambda x: x - c)
    np.testing.assert_allclose(by_python(fused, x).numpy(), x.numpy() - 3 + x.numpy() * 6, rtol=1e-14)


def test_objects_and_arrays_are_looked_up_in_python() -> None:
    class Model:
        c = 2.0

    model, array, x = Model(), np.full(N, 2.0), vector()
    fused = xt.fuse(lambda x: x * model.c + 1)
    other = xt.fuse(lambda x: x * xt.asarray(array) + 1)
    for _ in range(4):
        fused(x)
        other(x)
    model.c = 3.0
    np.testing.assert_allclose(np.asarray(fused(x)), x.numpy() * 3 + 1)
    Model.c, _ = 4.0, delattr(model, "c")
    np.testing.assert_allclose(np.asarray(fused(x)), x.numpy() * 4 + 1)
    array[:] = 4.0
    np.testing.assert_allclose(np.asarray(other(x)), x.numpy() * 4 + 1)


def test_a_builtin_is_hidden_while_another_name_goes() -> None:
    """The number of names stays the same."""
    spread: dict[str, Any] = {"xt": xt, "unused": 1}
    exec("def f(x):\n    return x * abs(-3)", spread)
    x = vector()
    fused = known(spread["f"], x)
    del spread["unused"]
    spread["abs"] = lambda n: 7
    np.testing.assert_array_equal(np.asarray(by_python(fused, x)), x.numpy() * 7)


def test_names_that_mean_nothing_are_soon_told() -> None:
    spread: dict[str, Any] = {"xt": xt}
    exec("def f(x):\n    return x * 2 + 1", spread)
    x = vector()
    fused = known(spread["f"], x)
    for n in range(8):
        spread[f"cell{n}"] = n
        by_python(fused, x)
        by_machine_code(fused, x)
    (kind,) = fused._known.values()
    assert len(kind.kinds) == 1


# ---- numbers


def test_numbers_are_told() -> None:
    def step(x: xt.Tensor, t: float, n: int, how: str) -> Any:
        return x * t + n * 0.5 if how == "half" else x, t + 0.1, n + 1, [xt.sum(x) * n]

    fused = xt.fuse(step)
    for call in range(6):
        fused(vector(), call * 0.3, call, "half")
    for call in range(6, 12):
        x = vector(call)
        found = by_machine_code(fused, x, call * 0.3, call, "half")
        expected = step(x, call * 0.3, call, "half")
        np.testing.assert_allclose(found[0].numpy(), expected[0].numpy(), rtol=1e-14)
        assert found[1:3] == expected[1:3]
        assert float(found[3][0]) == pytest.approx(float(expected[3][0]))
    by_python(fused, vector(), 1, 3, "half")  # an integer where a float was
    by_python(fused, vector(), 1.0, True, "half")
    with pytest.raises(TypeError):
        fused(vector(), None, 3, "half")


def test_numbers_that_are_compared() -> None:
    """Where a comparison comes out otherwise, Python finds what was captured for that."""

    def f(x: xt.Tensor, k: float) -> xt.Tensor:
        return x * k if k < 3.0 else x + k

    fused = xt.fuse(f)
    for k in (0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 0.5, 4.0, 1.0, 9.0, 2.0, 2.25):
        np.testing.assert_allclose(fused(vector(), k).numpy(), f(vector(), k).numpy(), rtol=1e-14)
    assert answered(fused)


def test_remainders_as_indices() -> None:
    """A counter that is reduced to one of few numbers leads to as many kinds, all of which machine code answers."""

    class Ring:
        def __init__(self) -> None:
            self.at, self.x = -7, vector(3)

        def step(self, k: int) -> tuple[Any, int]:
            self.at += 1
            self.x *= 1.5
            return self.x[self.at % 4] + self.x[k & 1], 10 * (1 - k % 3)

    fused, ring, plain = xt.fuse(Ring.step), Ring(), Ring()
    for k in range(300):
        value, number = fused(ring, 7 * k)
        expected, other = plain.step(7 * k)
        assert (float(value), number, ring.at) == (float(expected), other, plain.at)
    assert sorted(ways(fused)) == [1, 4]  # whether k is odd follows from where the ring is
    before = answered(fused)
    for k in range(48):
        fused(ring, 7 * k)
    assert answered(fused) == before + 48


def test_bounds_of_slices() -> None:
    """Each place where a window begins is a kind, of which machine code answers all, and returns the numbers, too."""
    fused = xt.fuse(lambda x, k: (x[k : k + 5] * 2.0 + k, k + 1, k * 0.5))
    places = (0, 7, 3, 50)
    for at in range(120):
        k, x = places[at % 4], vector(at)
        found, below, half = fused(x, k)
        np.testing.assert_array_equal(found.numpy(), x.numpy()[k : k + 5] * 2.0 + k)
        assert (below, half) == (k + 1, k * 0.5)
    before = answered(fused)
    for k in places * 4:
        assert fused(vector(), k)[1:] == (k + 1, k * 0.5)
    assert answered(fused) == before + 16


def test_numbers_of_dataclasses_beside_comparisons() -> None:
    """Their own comparisons ask for the class of the other one, which makes no difference to a number."""

    @dataclass
    class State:
        x: Any
        t: float = 0.0

    def step(one: State, y: xt.Tensor) -> xt.Tensor:
        one.x = xt.where(one.x < y, one.x + 0.25, one.x * 0.5)
        one.t += 0.5
        return one.x * one.t

    fused, state, plain = xt.fuse(step), State(vector()), State(vector())
    for seed in range(40):
        np.testing.assert_allclose(fused(state, vector(seed)).numpy(), step(plain, vector(seed)).numpy(), rtol=1e-14)
        assert state.t == plain.t
    assert len(fused._known) <= 2
    assert answered(fused)


def ways(function: Any) -> list[int]:
    """Return how many kinds there are of each signature."""
    return [len([*known.ways()]) for known in function._known.values()]


def watched(function: Any, *args: Any) -> Any:
    """Return a call's result, which is watched if its kind is new."""
    function._unwatched = function._not_looked_up = 0
    return function(*args)


def test_values_that_are_not_few_are_constants() -> None:
    """At first: indices of many values are told."""
    fused, x = xt.fuse(lambda x, n: x[n % 40] + 0.0), vector()
    for n in range(-20, 20):
        assert float(watched(fused, x, n)) == float(x[n % 40])
        assert (fused._fixed == {0}) == (0 < n + 20 <= MOST_VALUES)
    assert ways(fused) == [1]


def test_other_values_that_are_not_few_are_constants() -> None:
    fused, x = xt.fuse(lambda x, n: x.reshape(1, -1).sum(axis=n % 40 // 30) + 0.0), vector()
    for n in range(-20, 20):
        watched(fused, x, n)
    assert fused._fixed == {0}
    assert ways(fused) == [1] * 40


def test_values_that_were_asked_for_twice() -> None:
    """Each is compared once, however often it is an index."""

    def step(x: xt.Tensor, n: int) -> xt.Tensor:
        k, found = n % 2, x[0]
        for _ in range(300):
            found = found + x[k]
        return found

    fused, x = xt.fuse(step), vector()
    for n in range(6):
        assert float(watched(fused, x, n)) == float(step(x, n))
    assert not fused._fixed
    assert sorted(ways(fused)) == [1, 2]


FEW = (lambda n: n & 48, lambda n: (n % 2) * (n % 2), lambda n: 2 ** (n % 4), lambda n: -(n % 3))


@pytest.mark.parametrize("of", FEW)
def test_values_that_are_few(of: Callable[[int], int]) -> None:
    fused, x, values = xt.fuse(lambda x, n: x[of(n)] + 0.0), vector(), {of(n) for n in range(64)}
    for n in range(64):
        assert float(watched(fused, x, n)) == float(x[of(n)])
    assert not fused._fixed
    assert sorted(ways(fused)) == [1, len(values)]
    for n in range(64):
        by_machine_code(fused, x, n)
    with pytest.raises((IndexError, TypeError)):
        fused(x, 8.0)
    assert float(fused(x, True)) == float(x[of(True)])


def test_numbers_that_lead_too_far() -> None:
    """From more kinds on than are asked one after the other, such numbers are constants."""
    fused, x = xt.fuse(lambda x, n: x[: n % 5 + 1].sum() * x[: n % 7 + 1].sum()), vector()
    for n in range(35):
        assert float(watched(fused, x, n)) == pytest.approx(float(x[: n % 5 + 1].sum() * x[: n % 7 + 1].sum()))
        assert max(ways(fused)) <= MOST_WAYS
    for n in range(70):
        for _ in range(3):
            watched(fused, x, n % 35)
    assert fused._fixed == {0}
    for n in range(35):
        expected = float(x[: n % 5 + 1].sum() * x[: n % 7 + 1].sum())
        assert float(by_machine_code(fused, x, n)) == pytest.approx(expected)


@pytest.fixture
def beside(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], object]]:
    """What is done first whenever machine code asks for what is computed of numbers, of kinds that it learns now."""
    found: list[Callable[[], object]] = []
    computing = dispatch.computing

    def also(*given: Any) -> Any:
        compute = computing(*given)

        def computed(numbers: Any) -> Any:
            for one in tuple(found):
                one()
            return compute(numbers)

        return computed

    monkeypatch.setattr(dispatch, "computing", also)
    return found


def test_kinds_that_go_while_one_declines(beside: list[Callable[[], object]]) -> None:
    """What machine code asks next is looked for anew: other threads may run while numbers are computed."""
    fused, x = xt.fuse(lambda x, n: x[n % 4] + 0.0), vector()
    for n in range(40):
        watched(fused, x, n)
    for n in range(8):
        by_machine_code(fused, x, n)
    asked = []

    def drop() -> None:
        asked.append(1)
        fused._dispatched_kinds.drop(fused._dispatched_kinds._all[1:])

    for n in range(4):
        beside.append(drop)
        assert float(fused(x, n)) == float(x[n % 4])
        beside.clear()
        for k in range(40):
            assert float(watched(fused, x, k)) == float(x[k % 4])
    assert len(asked) >= 4


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int8, np.complex128])
def test_numbers_of_dtypes(dtype: Any) -> None:
    fused, calls = xt.fuse(lambda x, n: x * n + x), range(9)
    x = xt.asarray(np.arange(N).astype(dtype))
    for n in calls:
        np.testing.assert_allclose(fused(x, n).numpy(), x.numpy() * n + x.numpy(), rtol=1e-6)
    assert answered(fused) >= 5


def test_numbers_that_do_not_fit() -> None:
    """What a plain call raises, or gives."""
    fused = xt.fuse(lambda x, n: x + n)
    x = xt.asarray(np.arange(N).astype(np.int8))
    for n in range(6):
        fused(x, n)
    for n in (200, -129, 2**70):
        with pytest.raises(OverflowError):
            x + n
        with pytest.raises(OverflowError):
            fused(x, n)
    with np.errstate(all="ignore"):
        y = xt.asarray(np.ones(N, np.float32))
        other = xt.fuse(lambda x, t: x * t)
        for t in (0.5, 1.5, 2.5, 3.5, 1e300, float("inf"), -0.0, float("nan")):
            np.testing.assert_array_equal(other(y, t).numpy(), (y * t).numpy())


def test_interrupts_are_not_lost(beside: list[Callable[[], object]]) -> None:
    """One that comes while words are computed of numbers ends the call."""
    fused = xt.fuse(lambda x, t: x * (t + 1))
    for call in range(6):
        fused(vector(), call * 0.5)
    assert answered(fused)

    def interrupt() -> None:
        beside.clear()
        raise KeyboardInterrupt

    beside.append(interrupt)
    with pytest.raises(KeyboardInterrupt):
        fused(vector(), 7.0)
    by_machine_code(fused, vector(), 8.0)


def test_numbers_elsewhere_are_told_in_python() -> None:
    """In dicts, lists and tuples."""
    fused = xt.fuse(lambda x, state, pair: x * state["t"] + pair[1])
    for call in range(8):
        x, state, pair = vector(call), {"t": call * 0.5}, (vector(), call)
        np.testing.assert_allclose(fused(x, state, pair).numpy(), x.numpy() * state["t"] + call, rtol=1e-14)


# ---- memory


def test_values_are_apart_from_arrays_without_axes() -> None:
    """`+=` makes another tensor of a value, and writes into an array."""

    def add(x: xt.Tensor, s: xt.Tensor) -> None:
        s += xt.sum(x)

    array, x = xt.zeros(()), vector()
    fused = known(add, x, array)
    before = float(array)
    by_machine_code(fused, x, array)
    assert float(array) == pytest.approx(before + float(xt.sum(x)))
    value = xt.sum(x)
    for _ in range(6):
        fused(x, value)
    assert float(value) == pytest.approx(x.numpy().sum())


def test_empty_tensors_are_told_apart() -> None:
    """One tensor given twice, and two of them."""

    def first(x: xt.Tensor, y: xt.Tensor, z: xt.Tensor) -> Any:
        x += y
        return x, z * 2

    def empty() -> xt.Tensor:
        return xt.asarray(np.zeros(0))

    fused, z = xt.fuse(first), vector(n=100_000)
    for _ in range(4):
        x = empty()
        assert fused(x, x, z)[0] is x
    for _ in range(4):
        x, y = empty(), empty()
        assert fused(x, y, z)[0] is x
        assert fused(x, x, z)[0] is x


def test_pending_and_computed_arguments_become_thin() -> None:
    fused = known(lambda x, y: x * 2 + y, vector(), vector(1))
    x = vector()
    with xt.options(lazy="always"):
        y = xt.exp(x)
    np.testing.assert_allclose(by_machine_code(fused, x, y).numpy(), x.numpy() * 2 + np.exp(x.numpy()), rtol=1e-14)


def test_arguments_are_let_go() -> None:
    held = []
    fused = xt.fuse(lambda x: xt.exp(x) * 2)
    for _ in range(20):
        array = np.ones(50_000)
        held.append(weakref.ref(array))
        fused(xt.asarray(array))
        del array
    gc.collect()
    assert not any(one() is not None for one in held)


def update(x: xt.Tensor, y: xt.Tensor) -> None:
    x[1:] = x[1:] + y[:-1] * 2


def test_memory_that_overlaps_otherwise() -> None:
    def difference(first: int, second: int) -> np.ndarray:
        whole = np.arange(2.0 * N)
        x, y = whole[first : first + N], whole[second : second + N]
        x[1:] = x[1:] + y[:-1] * 2
        return whole

    fused = known(update, vector(), vector(1))
    by_machine_code(fused, vector(), vector(1))
    for first, second, times in ((0, 3, 4), (3, 0, 4), (5, 5, 4), (0, N, 1)):
        for _ in range(times):
            whole = xt.arange(2.0 * N)
            fused(whole[first : first + N], whole[second : second + N])
            np.testing.assert_array_equal(whole.numpy(), difference(first, second))
    x = vector()
    by_python(fused, x, x)
    np.testing.assert_array_equal(x.numpy()[1:], (vector().numpy()[1:] + vector().numpy()[:-1] * 2))


def test_who_waits_for_what_is_written() -> None:
    """A pending node that reads the memory gets the old values; so does a value kept for a gradient."""
    fused = known(update, vector(), vector(1))
    x = vector()
    with xt.options(lazy="always"):
        later = x * 10
    by_python(fused, x, vector(1))
    np.testing.assert_array_equal(later.numpy(), vector().numpy() * 10)

    w = xt.asarray(np.ones(N), requires_grad=True)
    x = vector()
    loss = xt.sum(w * x)
    fused(x, vector(1))
    loss.backward()
    assert w.grad is not None
    np.testing.assert_array_equal(w.grad.numpy(), vector().numpy())


def test_writes_are_counted() -> None:
    """Who asks for the version of an owner sees that its memory was written."""
    fused = known(update, vector(), vector(1))
    x = vector()
    owner = x.owner
    by_machine_code(fused, x, vector(1))
    first = owner.version
    by_machine_code(fused, x, vector(1))
    assert owner.version == first + 1


def test_shared_memory_is_written() -> None:
    array = np.ones(N)
    x = xt.asarray(array, copy=False)
    fused = known(update, vector(), vector(1))
    by_machine_code(fused, x, vector(1))
    np.testing.assert_array_equal(array[1:], 1 + vector(1).numpy()[:-1] * 2)


def test_memory_that_cannot_be_written() -> None:
    fused = known(update, vector(), vector(1))
    array = np.ones(N)
    array.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        fused(xt.asarray(array, copy=False), vector(1))
    assert (array == 1).all()


# ---- modes


def test_gradients_go_through_python() -> None:
    fused = known(lambda x: xt.sum(x * x), vector())
    x = xt.asarray(vector().numpy(), requires_grad=True)
    by_python(fused, x).backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), 2 * vector().numpy())


def test_a_gradient_is_dispatched() -> None:
    step = known(xt.value_and_grad(lambda x: xt.sum(xt.exp(x))), vector())
    value, gradient = by_machine_code(step, vector(3))
    np.testing.assert_allclose(gradient.numpy(), np.exp(vector(3).numpy()), rtol=1e-14)
    assert float(value) == pytest.approx(np.exp(vector(3).numpy()).sum())


def test_options_go_through_python() -> None:
    fused = known(lambda x: x * 2 + 1, vector())
    for changes in ({"lazy": "never"}, {"engine": "direct"}, {"lazy": "always"}, {"threads": 1}):
        with xt.options(**changes):
            np.testing.assert_array_equal(by_python(fused, vector()).numpy(), vector().numpy() * 2 + 1)
    by_machine_code(fused, vector())


def test_captures_and_profiles_see_calls() -> None:
    inner = known(lambda x: x * 2 + 1, vector())
    outer = xt.fuse(lambda x: inner(x) * 3)
    for _ in range(4):
        np.testing.assert_array_equal(outer(vector()).numpy(), (vector().numpy() * 2 + 1) * 3)
    with xt.profile() as seen:
        by_python(inner, vector())
    assert seen.entries


def test_explain_counts_all_calls() -> None:
    fused = known(lambda x: x * 2 + 1, vector())
    for _ in range(7):
        by_machine_code(fused, vector())
    assert "used 12 times" in xt.explain(fused)


def test_failures_are_the_functions_own() -> None:
    """Where a factorisation fails, the function itself is called, which raises."""
    unit = xt.eye(4) * 2
    fused = known(lambda a, b: xt.linalg.solve(a, b) * 2, unit, xt.ones(4))
    by_machine_code(fused, unit, xt.ones(4))
    with pytest.raises(np.linalg.LinAlgError):
        fused(xt.zeros((4, 4)), xt.ones(4))
    np.testing.assert_array_equal(by_machine_code(fused, unit, xt.ones(4)).numpy(), np.ones(4))


def test_wrong_arguments_are_refused_as_ever() -> None:
    fused = known(lambda x, y: x * 2 + y, vector(), vector())
    with pytest.raises(ValueError, match="shape"):
        fused(vector(), vector(n=3))
    with pytest.raises(TypeError):
        fused(vector())
    with pytest.raises(TypeError):
        fused(vector(), "text")
    np.testing.assert_allclose(np.asarray(fused(vector(), np.ones(N))), vector().numpy() * 2 + 1)


def test_methods() -> None:
    class Model:
        def __init__(self) -> None:
            self.w = vector(5)

        @xt.fuse
        def step(self, x: xt.Tensor) -> xt.Tensor:
            return x * self.w + 1

    model = Model()
    for seed in range(6):
        model.w = vector(seed)
        np.testing.assert_allclose(model.step(vector()).numpy(), vector().numpy() * vector(seed).numpy() + 1)


# ---- what lives, and what goes on at the same time


def test_nothing_is_kept() -> None:
    """References to arguments, results, constants and dtypes stay as many."""
    c, x = "constant", vector()
    spread: dict[str, Any] = {"xt": xt, "w": vector(1)}
    exec("def f(x, c):\n    return x * 2 + w, c, [x, xt.sum(x)]", spread)
    fused = known(spread["f"], x, c)
    held = (x, c, spread["w"], x.numpy().dtype, None, x._content, fused)

    def counts() -> list[int]:
        gc.collect()
        return [sys.getrefcount(one) for one in held]

    by_machine_code(fused, x, c)
    before = counts()
    for _ in range(1000):
        fused(x, c)
    after = counts()
    assert all(abs(new - old) < 50 for old, new in zip(before, after, strict=True))


def test_garbage_is_collected_in_between() -> None:
    """A finalizer that calls the same function while results are made."""
    x = vector()
    fused = known(lambda x: (x * 2, x + 1, xt.sum(x)), x)
    seen = []

    class Circle:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            y = fused(vector(9))
            seen.append(
                float(y[2]) == pytest.approx(vector(9).numpy().sum()) and (y[1].numpy() == vector(9).numpy() + 1).all()
            )

    threshold = gc.get_threshold()
    gc.set_threshold(5, 1, 1)
    try:
        for _ in range(300):
            Circle()
            y = fused(x)
            np.testing.assert_array_equal(y[0].numpy(), x.numpy() * 2)
            np.testing.assert_array_equal(y[1].numpy(), x.numpy() + 1)
    finally:
        gc.set_threshold(*threshold)
    gc.collect()
    assert len(seen) == 300
    assert all(seen)


def test_a_kind_that_is_forgotten_while_it_answers() -> None:
    """A finalizer that calls the function with many other arguments while results are made."""
    program = lambda x: (x * 2 + 1, {"a": x + 3}, [x * 4])  # noqa: E731
    for after in range(1, 6):
        fused, x, begun = known(program, vector()), vector(), []

        class Circle:
            def __init__(self) -> None:
                self.itself = self

            def __del__(self, fused: Any = fused, begun: list[int] = begun) -> None:
                if begun:
                    begun.clear()
                    for n in range(1, 75):
                        for _ in range(4):
                            fused(vector(n=n))
                    begun.extend(np.full(400, -1).tolist())

        threshold = gc.get_threshold()
        gc.collect()
        gc.disable()
        Circle()
        begun.append(1)
        gc.set_threshold(gc.get_count()[0] + after, 1000, 1000)
        gc.enable()
        try:
            one, two, three = fused(x)
        finally:
            gc.set_threshold(*threshold)
        np.testing.assert_array_equal(one.numpy(), x.numpy() * 2 + 1)
        np.testing.assert_array_equal(two["a"].numpy(), x.numpy() + 3)
        np.testing.assert_array_equal(three[0].numpy(), x.numpy() * 4)
        del Circle
        gc.collect()


def test_threads_at_once() -> None:
    fused, failures = known(lambda x: xt.exp(x) * 2 + x, vector()), []

    def work(seed: int) -> None:
        x = vector(seed)
        expected = np.exp(x.numpy()) * 2 + x.numpy()
        for _ in range(300):
            if not np.allclose(fused(x).numpy(), expected, rtol=1e-13):
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_no_warnings() -> None:
    fused = known(lambda x: xt.log(x) / x, vector())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not np.isfinite(by_machine_code(fused, xt.zeros(N)).numpy()).any()


def test_long_work_is_shared() -> None:
    """What takes long lets other threads run meanwhile: Python starts it."""
    x = xt.ones(2_000_000)
    fused = xt.fuse(lambda x: xt.exp(x) * 2)
    for _ in range(5):
        fused(x)
    assert not answered(fused)


def test_small_functions_are_plain_until_machine_code_is_worth_loading(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found in Python, they cost more than library calls; machine code is loaded when they are run at last."""
    loaded: list[bool] = []
    monkeypatch.setattr(known_kinds, "is_exchanged", lambda: bool(loaded))
    monkeypatch.setattr(known_kinds, "SMALL_ALONE", 3)
    monkeypatch.setattr(capture, "NOT_LOOKED_UP", 0)
    monkeypatch.setattr(capture, "exchange", lambda: loaded.append(True))
    fused, x = xt.fuse(lambda x: x * 2.0 + 1.0), vector(n=64)
    for _ in range(3):
        fused(x)
    (known,) = fused._known.values()
    assert known.captured is not None and known.captured.is_small
    assert known.runs is None and not loaded
    fused(x)
    assert known.dispatched == 0 and loaded
    np.testing.assert_array_equal(by_machine_code(fused, x).numpy(), x.numpy() * 2.0 + 1.0)

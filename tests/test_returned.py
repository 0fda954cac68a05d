"""Numbers that captured functions only return: each call returns its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import xtensor as xt
from xtensor.calls.dispatch import DISPATCHED_AFTER

RNG = np.random.default_rng(7)
CALLS = 3 * DISPATCHED_AFTER


@pytest.fixture(autouse=True, params=["called", "dispatched"])
def calls(request: pytest.FixtureRequest) -> Iterator[int]:
    """How many calls there are: few of them, or so many that machine code answers the last ones."""
    with xt.options(lazy="always"):
        yield CALLS if request.param == "dispatched" else 4


def alone(x: Any) -> Any:
    return float(xt.sum(x * 2))


def by_item(x: Any) -> Any:
    return xt.max(x).item()


def in_a_tuple(x: Any) -> Any:
    y = xt.exp(x)
    return y, float(xt.max(xt.abs(y)))


def by_a_variable(x: Any) -> Any:
    error = float(xt.max(xt.abs(x)))
    y = x / 2
    return y, error


def in_containers(x: Any) -> Any:
    low, high = xt.min(x).item(), float(xt.max(x))
    return {"range": [low, high], "mean": float(xt.mean(x)), "three": 3}, (x + 1, 2.5)


def twice(x: Any) -> Any:
    total = float(xt.sum(x))
    return total, [total, xt.sum(x)]


def an_integer(x: Any) -> Any:
    return int(xt.argmax(x)), int(xt.count_nonzero(x > 0)) + xt.sum(x) * 0


def one_integer(x: Any) -> Any:
    place = int(xt.argmax(x))
    return place, x * 2


def an_integer_as_float(x: Any) -> Any:
    return float(xt.argmax(x)), xt.argmin(x).item()


def of_an_argument(x: Any) -> Any:
    return float(x[0]), x[1].item()


def before_a_write(x: Any) -> Any:
    before = float(xt.sum(x))
    x += 1.0
    return before, float(xt.sum(x))


def after_a_branch(x: Any) -> Any:
    if xt.sum(x) > 0:
        return float(xt.max(x))
    return float(xt.min(x))


def appended(x: Any) -> Any:
    norms = []
    rows = []
    for row in (x, x * 2, x + 1):
        norms.append(float(xt.sum(row * row)))
        largest = row[3].item()
        rows.append(largest)
        rows.append(row)
    return {"norms": norms}, rows


ONLY_RETURNED: list[Callable[[Any], Any]] = [
    *(alone, by_item, in_a_tuple, by_a_variable, in_containers, twice, one_integer, an_integer_as_float),
    *(of_an_argument, before_a_write, after_a_branch, appended),
]


def computed_with(x: Any) -> Any:
    return float(xt.sum(x)) * 2


def branched_on(x: Any) -> Any:
    total = float(xt.sum(x))
    return 1.0 if total > 0 else total


def sorted_by_map(x: Any) -> Any:
    return sorted(map(float, (x[0], x[1], x[2])))


def largest_by_map(x: Any) -> Any:
    return max(map(float, (x[0], x[1])))


def of_mathematics(x: Any) -> Any:
    return math.exp(xt.sum(x))


def as_a_key(x: Any) -> Any:
    return {float(xt.sum(x)): x}


def by_name(x: Any) -> Any:
    total = float(xt.sum(x))
    return total, locals()["total"] * 2


def in_a_list_that_is_sorted(x: Any) -> Any:
    found = [float(x[0]), float(x[1])]
    found.sort()
    return found


def of_another_function(x: Any) -> Any:
    return sorted(alone(x * sign) for sign in (1, -1))


def assigned_twice(x: Any) -> Any:
    value = float(x[0])
    value += float(x[1])
    return value, x * 2


def of_a_loop(x: Any) -> Any:
    worst = 0.0
    for place in range(3):
        worst = max(worst, float(x[place]))
    return worst


def appended_and_read(x: Any) -> Any:
    norms = []
    for row in (x, x * 2):
        norms.append(float(xt.sum(row * row)))
        x = x * norms[-1]
    return norms, x


def appended_to_another(x: Any) -> Any:
    norms = Norms()
    norms.append(float(xt.sum(x)))
    return norms.total


class Norms:
    """What has a method of this name and is no list."""

    total = 0.0

    def append(self, norm: float) -> None:
        self.total += norm


def appended_to_itself(x: Any) -> Any:
    norms: list[Any] = []
    norms.append(float(xt.sum(x)))
    norms.append(len(norms))
    return norms


def formatted(x: Any) -> Any:
    total = float(xt.sum(x))
    return total, f"{total:.3f}"


USED: list[Callable[[Any], Any]] = [
    *(computed_with, branched_on, sorted_by_map, largest_by_map, of_mathematics, as_a_key, by_name),
    *(in_a_list_that_is_sorted, of_another_function, assigned_twice, of_a_loop, formatted, an_integer),
    *(appended_and_read, appended_to_another, appended_to_itself),
]


def leaves_of(tree: Any) -> list[Any]:
    """Return types and values in a tree, with arrays for tensors."""
    if isinstance(tree, dict):
        return [*tree, *leaves_of(list(tree.values()))]
    if isinstance(tree, (list, tuple)):
        return [type(tree), *[leaf for one in tree for leaf in leaves_of(one)]]
    return [type(tree), np.asarray(tree) if isinstance(tree, xt.Tensor) else tree]


def compare(function: Callable[[Any], Any], calls: int) -> Any:
    """Call a function and its captured form with many arrays; return the latter."""
    fused = xt.fuse(function)
    for _ in range(calls):
        x = RNG.standard_normal(40)
        mine, other = xt.asarray(x, copy=True), xt.asarray(x, copy=True)
        for found, right in zip(leaves_of(fused(mine)), leaves_of(function(other)), strict=True):
            if isinstance(right, (float, np.ndarray)):  # sums of fused kernels may differ in the last bits
                np.testing.assert_allclose(found, right, rtol=1e-12, atol=1e-14)
            else:
                assert found == right
        np.testing.assert_array_equal(np.asarray(mine), np.asarray(other))
    return fused


@pytest.mark.parametrize("function", ONLY_RETURNED, ids=[one.__name__ for one in ONLY_RETURNED])
def test_numbers_that_are_only_returned(function: Callable[[Any], Any], calls: int) -> None:
    why = compare(function, calls).why(xt.asarray(RNG.standard_normal(40)))
    assert not why or "[small]" in why


@pytest.mark.parametrize("function", USED, ids=[one.__name__ for one in USED])
def test_numbers_that_are_used(function: Callable[[Any], Any], calls: int) -> None:
    why = compare(function, calls).why(xt.asarray(RNG.standard_normal(40)))
    assert why
    assert "[small]" not in why


def test_a_global_name_of_another_meaning(calls: int) -> None:
    space = {"xt": xt, "float": lambda x: -float(x)}
    exec("def negated(x):\n    return float(xt.sum(x))\n", space)
    compare(space["negated"], calls)  # type: ignore[arg-type]


def test_methods_and_partials(calls: int) -> None:
    """Calls that reach the function by way of others."""

    class Model:
        scale = 3.0

        def loss(self, x: Any) -> Any:
            return float(xt.sum(x * self.scale))

    model = Model()
    fused = xt.fuse(model.loss)
    for _ in range(calls):
        x = xt.asarray(RNG.standard_normal(40))
        assert fused(x) == pytest.approx(model.loss(x), rel=1e-12)


def test_a_constant_beside_an_equal_integer(calls: int) -> None:
    """A small integer is one object wherever it comes from."""

    def place(x: Any) -> Any:
        return int(xt.argmax(x)), 3

    fused = xt.fuse(place)
    for largest in (3, 5, 3, 1) * (calls // 4):
        x = np.zeros(10)
        x[largest] = 1.0
        assert fused(xt.asarray(x)) == (largest, 3)


def test_beside_numbers_that_are_inputs(calls: int) -> None:
    """A call that is traced for other values of a number returns numbers, too."""

    def step(x: Any, rate: float) -> Any:
        return x - rate * x, float(xt.sum(x)), rate

    fused = xt.fuse(step)
    for call in range(calls):
        x = RNG.standard_normal(20)
        y, total, rate = fused(xt.asarray(x), call / 3)
        assert (type(total), rate) == (float, call / 3)
        assert total == pytest.approx(x.sum(), rel=1e-12)
        np.testing.assert_allclose(np.asarray(y), x - call / 3 * x, rtol=1e-13, atol=1e-15)


def test_in_a_gradient(calls: int) -> None:
    """The number of a function that is differentiated goes to that, not into the result."""

    def loss(w: Any) -> Any:
        value = xt.sum(w * w)
        return value, float(value)

    step = xt.fuse(lambda w: xt.value_and_grad(loss, has_aux=True)(w))
    for _ in range(calls):
        w = xt.asarray(RNG.standard_normal(5))
        (value, seen), slope = step(w)
        assert float(value) == seen == pytest.approx(float(xt.sum(w * w)), rel=1e-12)
        np.testing.assert_array_equal(np.asarray(slope), 2 * np.asarray(w))

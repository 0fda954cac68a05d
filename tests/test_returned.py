"""Numbers that captured functions only return: each call returns its own."""

from __future__ import annotations

import functools
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


def numbers(count: int) -> Any:
    """Return random numbers whose sums are exact, in whatever order they are added."""
    return np.round(RNG.standard_normal(count) * 64) / 64


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


def an_integer_in_a_list(x: Any) -> Any:
    place = int(xt.argmax(x))
    y = x * 2
    found = [place, "of", (40,)]
    return y, found


def one_integer(x: Any) -> Any:
    place = int(xt.argmax(x))
    return place, x * 2


def an_integer_as_float(x: Any) -> Any:
    return float(xt.argmax(x)), float(xt.argmin(x))


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
    *(alone, by_item, in_a_tuple, by_a_variable, in_containers, twice, an_integer_as_float),
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


def an_integer_or_its_like(x: Any) -> Any:
    """What is returned instead may be the same object as a small integer."""
    place = int(xt.argmax(x[:3]))
    if xt.sum(x) > 0:
        return place, x * 2
    return 1, x * 2


def an_integer_that_an_error_drops(x: Any) -> Any:
    try:
        place = int(xt.argmax(x[:3]))
        if xt.sum(x) > 0:
            raise KeyError
    except KeyError:
        return 1, x * 2
    return place, x * 2


def an_integer_by_a_key_that_is_there_twice(x: Any) -> Any:
    first = second = "place"
    return {first: int(xt.argmax(x[:3])), second: 1}, x * 2


def an_integer_that_may_be_none(x: Any) -> Any:
    """The integer of a nan is an error, which is handled."""
    try:
        return int(xt.sum(xt.sqrt(x[:1])))
    except ValueError:
        return -1


def an_integer_before_a_write(x: Any) -> Any:
    """Nothing is written where the integer of a nan is an error."""
    whole = int(xt.sum(x))
    x += 1.0
    return whole


def appended_to_one_of_two(x: Any) -> Any:
    """The list that is made where the variable is assigned is not the one that is assigned."""
    first = [0.5]
    found = first or []
    found.append(float(xt.sum(x)))
    return found, first[-1] * 2


def appended_and_read_by_the_method(x: Any) -> Any:
    norms = []
    norms.append(float(xt.sum(x)))
    return norms, norms.append.__self__[0] * 2  # type: ignore[attr-defined]


USED: list[Callable[[Any], Any]] = [
    *(computed_with, branched_on, sorted_by_map, largest_by_map, of_mathematics, as_a_key, by_name),
    *(
        in_a_list_that_is_sorted,
        of_another_function,
        assigned_twice,
        of_a_loop,
        formatted,
        an_integer,
        one_integer,
        an_integer_in_a_list,
    ),
    *(appended_and_read, appended_to_another, appended_to_itself),
    *(an_integer_or_its_like, an_integer_that_an_error_drops, an_integer_by_a_key_that_is_there_twice),
    *(an_integer_that_may_be_none, an_integer_before_a_write),
    *(appended_to_one_of_two, appended_and_read_by_the_method),
]


def leaves_of(tree: Any) -> list[Any]:
    """Return types and values in a tree, without the arrays that tensors are."""
    if isinstance(tree, dict):
        return [*tree, *leaves_of(list(tree.values()))]
    if isinstance(tree, (list, tuple)):
        return [type(tree), *[leaf for one in tree for leaf in leaves_of(one)]]
    return [type(tree), np.asarray(tree).tolist() if isinstance(tree, xt.Tensor) else tree]


def compare(function: Callable[[Any], Any], calls: int) -> Any:
    """Call a function and its captured form with many arrays; return the latter."""
    fused = xt.fuse(function)
    for _ in range(calls):
        x = numbers(40)
        mine, other = xt.asarray(x, copy=True), xt.asarray(x, copy=True)
        assert leaves_of(fused(mine)) == leaves_of(function(other))
        np.testing.assert_array_equal(np.asarray(mine), np.asarray(other))
    return fused


@pytest.mark.parametrize("function", ONLY_RETURNED, ids=[one.__name__ for one in ONLY_RETURNED])
def test_numbers_that_are_only_returned(function: Callable[[Any], Any], calls: int) -> None:
    why = compare(function, calls).why(xt.asarray(numbers(40)))
    assert not why or "[small]" in why


@pytest.mark.parametrize("function", USED, ids=[one.__name__ for one in USED])
def test_numbers_that_are_used(function: Callable[[Any], Any], calls: int) -> None:
    why = compare(function, calls).why(xt.asarray(numbers(40)))
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
        x = xt.asarray(numbers(40))
        assert fused(x) == model.loss(x)


def test_a_function_in_c_that_calls_others(calls: int) -> None:
    """What a function returns is then an argument of its next call."""

    def both(found: Any, x: Any) -> Any:
        before = found[0] * 2 if type(found) is tuple else 0.0
        total = float(xt.sum(x))
        return total, before, found

    reduced = functools.partial(functools.reduce, both)
    fused = xt.fuse(reduced)
    for _ in range(calls):
        xs = [xt.asarray(numbers(40)) for _ in range(3)]
        assert leaves_of(fused(xs)) == leaves_of(reduced(xs))
    assert fused.why(xs)


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
        x = numbers(20)
        y, total, rate = fused(xt.asarray(x), call / 3)
        assert (type(total), total, rate) == (float, float(xt.sum(xt.asarray(x))), call / 3)
        np.testing.assert_allclose(np.asarray(y), x - call / 3 * x, rtol=1e-13, atol=1e-15)


def test_in_a_gradient(calls: int) -> None:
    """The number of a function that is differentiated goes to that, not into the result."""

    def loss(w: Any) -> Any:
        value = xt.sum(w * w)
        return value, float(value)

    step = xt.fuse(lambda w: xt.value_and_grad(loss, has_aux=True)(w))
    for _ in range(calls):
        w = xt.asarray(numbers(5))
        (value, seen), slope = step(w)
        assert float(value) == seen == float(xt.sum(w * w))
        np.testing.assert_array_equal(np.asarray(slope), 2 * np.asarray(w))


def test_beside_values_that_are_left_elsewhere(calls: int) -> None:
    """An object's attribute is set, and a number is returned."""

    class Field:
        u = xt.zeros(20)

        def step(self, x: Any) -> Any:
            error = float(xt.sum(x - self.u))
            self.u = self.u + x
            return error

    field, u = Field(), np.zeros(20)
    fused = xt.fuse(field.step)
    for _ in range(calls):
        x = numbers(20)
        assert fused(xt.asarray(x)) == (x - u).sum()
        u = u + x
    np.testing.assert_array_equal(np.asarray(field.u), u)

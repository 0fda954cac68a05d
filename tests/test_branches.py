"""Captured functions that branch on values: each way is captured, and a call whose booleans differ goes another one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import xtensor as xt
from xtensor.calls import known as known_kinds
from xtensor.calls.numbers import MOST_WAYS
from xtensor.codegen.cpu.compile import host

ENGINES = ["interpret", *(["llvm", "auto"] if host() is not None else [])]
RNG = np.random.default_rng(0)


@pytest.fixture(params=ENGINES, autouse=True)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Compute in each way, and let machine code dispatch calls as soon as it can."""
    monkeypatch.setattr(known_kinds, "DISPATCHED_AFTER", 2)
    monkeypatch.setattr(known_kinds.Known, "_is_small", lambda *_: False)
    with xt.options(engine=request.param, lazy="auto"):
        yield request.param


def ways_of(fused: Any) -> int:
    """Return how many captured ways a fused function knows."""
    return sum(way.captured is not None for known in fused._known.values() for way in known.ways())


def agrees(
    function: Callable[..., Any], calls: list[tuple[Any, ...]], *, ways: int, times: int = 4, **options: Any
) -> Any:
    """Check that a fused function does for some arguments, several times in turn, what it does by itself; return it."""
    fused = xt.fuse(function, **options)
    for _ in range(times):
        for given in calls:
            mine, theirs = [[xt.asarray(x, copy=True) for x in given] for _ in range(2)]
            found, wanted = fused(*mine), function(*theirs)
            for x, y in zip((found, *mine), (wanted, *theirs), strict=True):
                assert type(x) is type(y)
                np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=1e-12)
    assert ways_of(fused) == ways
    return fused


def array(*shape: int, scale: float = 1.0) -> Any:
    """Return random numbers."""
    return scale * RNG.normal(size=shape)


# ---- what a function may ask for


def limited(x: Any) -> Any:
    norm = xt.sqrt(xt.sum(x * x))
    return x * (2.0 / norm) if norm > 2 else x + 1


@pytest.mark.parametrize("size", [5, 50_000])
def test_each_outcome_is_captured(size: int) -> None:
    """Calls go back and forth between two ways; none of them is a plain call."""
    small, large = array(size, scale=1e-3), array(size, scale=10.0)
    fused = agrees(limited, [(small,), (large,), (large,), (small,)], ways=2)
    assert all(fused.why(xt.asarray(x)) == "" for x in (small, large))
    assert "kind 2" in str(xt.explain(fused))


TRUTHS: dict[str, Callable[[Any], Any]] = {
    "an element": lambda x: x + 1.0 if x[0] else x - 1.0,
    "bool": lambda x: x + 1.0 if bool(x[0] > 0) else x - 1.0,
    "item": lambda x: x + 1.0 if (x[0] > 0).item() else x - 1.0,
    "an integer": lambda x: x + 1.0 if xt.count_nonzero(x > 1) else x - 1.0,
    "int": lambda x: x + int(xt.any(x > 1)),
    "of one row": lambda x: x + 1.0 if x[:1] > 0 else x - 1.0,
    "in": lambda x: x + (3.0 in x),
    "not": lambda x: x + 1.0 if not xt.any(x > 1) else x - 1.0,
    "and": lambda x: x + 1.0 if x[0] > 0 and x[1] > 0 else x - 1.0,
    "max": lambda x: x * max(x[0], x[1]),
    "returned": lambda x: (x + 1.0) * bool(x[0] > 0),
    "NaN": lambda x: x + 1.0 if x[0] * xt.nan else x - 1.0,
    "complex": lambda x: x + 1.0 if x[0] * 1j else x - 1.0,
    "a chain": lambda x: x + 1.0 if -1 < x[0] < 1 else x - 1.0,
}


@pytest.mark.parametrize("name", TRUTHS)
def test_truths(name: str) -> None:
    """Everything that Python turns into True or False."""
    calls = [(np.array([a, b, 3.0 * (a > 0)]),) for a in (-2.0, 0.0, 0.5, 2.0) for b in (-1.0, 1.0)]
    agrees(TRUTHS[name], calls, ways={"an element": 2, "NaN": 1, "and": 3, "a chain": 3}.get(name, 2))


def test_an_argument_decides() -> None:
    """The boolean may be an argument itself."""
    calls = [(array(9), np.array(flag)) for flag in (True, False, False)]
    agrees(lambda x, flag: x * 2 if flag else x - 1, calls, ways=2)


def test_a_loop_until_it_converges() -> None:
    """Each number of iterations is a way of its own."""

    def root(x: Any) -> Any:
        y = xt.ones_like(x)
        while xt.max(xt.abs(y * y - x)) > 1e-9:
            y = 0.5 * (y + x / y)
        return y

    calls = [(np.linspace(1.0, most, 40),) for most in (1.5, 4.0, 100.0, 1.5)]
    agrees(root, calls, ways=3)


def test_numbers_decide_as_well() -> None:
    """Comparisons of Python numbers and of values are made in turn."""
    fused = xt.fuse(lambda x, k: x * k if x[0] > k else x + k if k > 2 else x)
    for k in (0.0, 1.0, 2.0, 3.0, 4.0, 1.5, 2.5, 3.5) * 4:
        for first in (-1.0, 2.2, 5.0):
            x = np.array([first, 1.0])
            wanted = x * k if first > k else x + k if k > 2 else x
            np.testing.assert_array_equal(fused(xt.asarray(x), k).numpy(), wanted)


def test_a_value_that_is_a_kind_of_its_own_finds_the_ways_of_others() -> None:
    """The first value of a number makes a kind; its other branch is one of those for all values, captured once."""
    fused = xt.fuse(lambda x, k: x * k if x[0] > 0 else x + k)
    for first, k in [(1.0, 1.0), (1.0, 2.0), *[(-1.0, 1.0), (1.0, 1.0), (-1.0, 3.0), (1.0, 3.0)] * 2 * MOST_WAYS]:
        x = np.array([first, 1.0])
        np.testing.assert_array_equal(fused(xt.asarray(x), k).numpy(), x * k if first > 0 else x + k)
    assert ways_of(fused) == 3


def test_shapes_depend_on_a_branch() -> None:
    """The results of two ways may have any forms."""
    fused = xt.fuse(lambda x: (x, 3, None) if x[0] > 0 else {"y": x[:2] * 2.0})
    for _ in range(6):
        y, three, nothing = fused(xt.asarray([1.0, 2.0, 3.0]))
        assert (y.shape, three, nothing) == ((3,), 3, None)
        assert fused(xt.asarray([-1.0, 2.0, 3.0]))["y"].tolist() == [-2.0, 4.0]


# ---- errors


@pytest.mark.parametrize("size", [4, 50_000])
def test_assertions(size: int) -> None:
    """A check that fails raises at its own line, and the function stays captured."""

    @xt.fuse
    def logarithm(x: xt.Tensor) -> xt.Tensor:
        if not xt.all(x > 0):  # as `assert`, which pytest rewrites
            raise AssertionError("a number is not positive")
        return xt.log(x)

    good, bad = xt.asarray(1.0 + array(size) ** 2), xt.asarray(-np.ones(size))
    for _ in range(5):
        np.testing.assert_allclose(logarithm(good).numpy(), np.log(good.numpy()), rtol=1e-12)
        with pytest.raises(AssertionError, match="a number is not positive"):
            logarithm(bad)
    assert ways_of(logarithm) == 1 and logarithm.why(good) == ""


def test_handled_errors() -> None:
    """What an `except` does is a way of its own."""

    def careful(x: Any) -> Any:
        try:
            if xt.any(x < 0):
                raise ValueError
            return xt.sqrt(x)
        except ValueError:
            return xt.sqrt(xt.abs(x)) * -1.0

    agrees(careful, [(np.array([1.0, 4.0]),), (np.array([1.0, -4.0]),)], ways=2)


# ---- effects before a branch


def test_writes_before_a_branch_are_put_back() -> None:
    """A call that turns out to go another way begins anew, with its arguments as they were."""

    def step(w: Any, g: Any) -> Any:
        w -= 0.5 * g
        if xt.any(xt.abs(w) > 3):
            w *= 0.5
            return xt.max(w)
        w += 1.0
        return xt.min(w)

    calls = [(array(20, scale=a), array(20, scale=b)) for a, b in ((0.1, 0.1), (9.0, 1.0), (0.1, 9.0), (0.2, 0.1))]
    agrees(step, calls, ways=2)


def test_state_is_bound_as_its_way_binds_it() -> None:
    """Attributes, lists and counts follow the way that a call goes, also where it writes before it branches."""

    def advance(state: Any, x: Any) -> Any:
        state.count += 1
        state.total += x
        state.log.append(xt.sum(x))
        if xt.sum(state.total) > 10:
            state.total = xt.zeros_like(x)
            state.resets += 1
        return state.total * 2.0

    mine, theirs = [SimpleNamespace(count=0, resets=0, total=xt.zeros(4), log=[]) for _ in range(2)]
    fused = xt.fuse(advance)
    for k in range(60):
        x = xt.full(4, 0.25 * (k % 5))
        np.testing.assert_allclose(fused(mine, x).numpy(), advance(theirs, x).numpy())
        assert (mine.count, mine.resets, len(mine.log)) == (theirs.count, theirs.resets, len(theirs.log))
    np.testing.assert_allclose([float(x) for x in mine.log], [float(x) for x in theirs.log])
    assert theirs.resets > 3


def test_random_numbers_are_drawn_once() -> None:
    """A call that goes another way than expected draws what the plain call would."""

    def walk(x: Any, rng: Any) -> Any:
        step = xt.asarray(rng.normal(size=x.shape[0]))
        return x + step if step[0] > 0 else x - 2.0 * step

    fused, x = xt.fuse(walk), xt.zeros(3)
    mine, theirs = xt.random.default_rng(5), xt.random.default_rng(5)
    for _ in range(40):
        np.testing.assert_array_equal(fused(x, mine).numpy(), walk(x, theirs).numpy())


def test_a_branch_after_a_large_write_is_plain() -> None:
    """More is written than is copied for each call: the reason is said, and results stay right."""
    fused = xt.fuse(_written_and_tested)
    for value in (0.0, 1.0, 0.0):
        x = xt.full(3_000_000, value)
        fused(x)
        assert float(x[0]) == (value + 1.0) * (2.0 if value else 1.0)
    assert fused.why(xt.zeros(3_000_000)).startswith("[late]")


def _written_and_tested(x: xt.Tensor) -> None:
    x += 1.0
    if xt.any(x > 1.5):
        x *= 2.0


# ---- gradients, other functions, limits


def test_gradients_take_the_way_that_was_taken() -> None:
    """A loss that branches inside a captured gradient."""

    def loss(w: Any, x: Any) -> Any:
        y = xt.sum((w - x) ** 2)
        return y if y < 10 else xt.sqrt(10.0 * y)

    def step(w: Any, x: Any) -> Any:
        value, slope = xt.value_and_grad(loss)(w, x)
        w -= 0.1 * slope
        return value

    agrees(step, [(array(6, scale=a), array(6)) for a in (0.1, 9.0, 0.2, 20.0)], ways=2)


def test_a_fused_function_inside() -> None:
    """Its branches are those of the outer function."""
    inner = xt.fuse(limited)
    agrees(lambda x: inner(x) * 2.0, [(array(8, scale=a),) for a in (1e-3, 9.0)], ways=2)


def test_too_many_ways() -> None:
    """A function that goes ever new ways is called plainly from then on, and `why` says so."""

    def bits(x: Any) -> Any:
        found = x
        for k in range(6):
            found = found + 2.0**k if x[k] > 0 else found
        return found

    fused = xt.fuse(bits, strict=False)
    fused._unwatched = -(10**9)  # all first calls are watched
    for number in range(3 * MOST_WAYS):
        fused._unwatched = -(10**9)
        x = np.array([1.0 if number >> k & 1 else -1.0 for k in range(6)])
        np.testing.assert_array_equal(fused(xt.asarray(x)).numpy(), bits(xt.asarray(x)).numpy())
    assert fused.why(xt.zeros(6)).startswith("[values] it branches")


def test_strict_functions_may_branch() -> None:
    """A branch is no reason not to be captured; asking for a number is one."""
    agrees(limited, [(array(5, scale=a),) for a in (1e-3, 9.0)], ways=2, strict=True)
    with pytest.raises(RuntimeError, match=r"\[values\]"):
        xt.fuse(lambda x: x * float(x[0]), strict=True)(xt.ones(3))


@pytest.mark.parametrize("order", [(1.0, -9.0, -1.0), (-9.0, 1.0, -1.0)])
def test_strict_functions_refuse_one_way(order: tuple[float, ...]) -> None:
    """A way that cannot be captured raises; it is no reason to refuse the others, whichever comes first."""

    def function(x: Any) -> Any:
        if x[0] > 0:
            return x * 2.0
        return x * float(x[0]) if x[0] < -5 else x + 1.0

    fused = xt.fuse(function, strict=True)
    for first in order * 3:
        x = xt.full(3, first)
        if first < -5:
            with pytest.raises(RuntimeError, match=r"\[values\]"):
                fused(x)
        else:
            np.testing.assert_array_equal(fused(x).numpy(), function(x).numpy())
    assert ways_of(fused) == 2


def test_threads_go_their_own_ways() -> None:
    """Calls of several threads at once, each with booleans of its own."""
    fused, faults = xt.fuse(limited), list[str]()

    def run(scale: float, seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(200):
            x = scale * rng.normal(size=8)
            norm = np.sqrt((x * x).sum())
            wanted = x * (2.0 / norm) if norm > 2 else x + 1
            if not np.allclose(fused(xt.asarray(x)).numpy(), wanted, rtol=1e-12):
                faults.append(f"{scale}: {x}")

    threads = [threading.Thread(target=run, args=(scale, n)) for n, scale in enumerate((0.01, 5.0, 0.7, 0.7))]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not faults

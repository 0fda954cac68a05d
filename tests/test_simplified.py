"""Statements of captured functions that go on from each other, which are one kernel: when, and what they leave."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import xtensor as xt
from xtensor.codegen.cpu.compile import host
from xtensor.graph.node import pending_below
from xtensor.plan.trace import Trace

Array = Any

ENGINES = ["interpret", *(["llvm"] if host() is not None else [])]


@pytest.fixture(autouse=True, params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    with xt.options(engine=request.param, cache_dir=""):
        yield request.param


def arrays(call: int) -> list[Array]:
    """Return other elements for each call."""
    rng = np.random.default_rng(call)
    return [*rng.uniform(0.5, 2.0, (3, 30, 40)), rng.integers(0, 9, (30, 40))]


def kernels_of(function: Callable[..., Any], make: Callable[[int], list[Array]] = arrays) -> int:
    """Call a function again and again, compare results and arguments with NumPy's, and return how many kernels run."""
    fused = xt.fuse(function)
    for call in range(4):
        theirs, mine = make(call), make(call)
        given = [xt.asarray(one) for one in mine]  # of the same memory
        right, found = function(np, *theirs), fused(xt, *given)
        for one, other in zip((*theirs, right), (*given, found), strict=True):
            if other is not None:
                np.testing.assert_array_equal(np.asarray(other), one)
        assert call == 0 or fused.why(xt, *given) == ""
    text = xt.explain(fused)
    words = re.findall(r"machine code: (\d+) kernels", text)
    return sum(map(int, words)) if words else text.count("a kernel, by the interpreter")


def momenta(xp: Any, p: Any, m: Any, v: Any, k: Any) -> None:
    """As an optimiser's step has them."""
    m[...] = 0.5 * m + 0.25 * k
    v[...] = 0.5 * v + m * m
    p -= m / (v + 1.0)


def overwritten(xp: Any, x: Any, y: Any, z: Any, k: Any) -> None:
    x[...] = y + 1.0
    x[...] = x * z
    x -= y


def with_temporaries(xp: Any, x: Any, y: Any, z: Any, k: Any) -> Any:
    twice = y * 2.0
    x += twice
    z[...] = twice * x
    return twice


def of_what_is_used_up(xp: Any, x: Any, y: Any, z: Any, k: Any) -> None:
    x[...] = 0.5 * x + 0.25 * y
    z[...] = x * x + y
    y -= x / (z + 1.0)


def of_columns(xp: Any, x: Any, y: Any, z: Any, k: Any) -> None:
    for i in range(1, 12):
        x[:, i] = y[:, i] - x[:, i - 1]
        z[:, i] = (z[:, i] - z[:, i - 1]) * x[:, i]


def of_other_dtypes(xp: Any, x: Any, y: Any, z: Any, k: Any) -> None:
    k[...] = x * 3.0
    y[...] = k / 2


def beside_a_row(xp: Any, x: Any, y: Any, z: Any, k: Any) -> None:
    x += z[0]
    y -= x * z[0]


TOGETHER = [momenta, overwritten, with_temporaries, of_what_is_used_up, of_other_dtypes, beside_a_row]


@pytest.mark.parametrize("function", TOGETHER)
def test_statements_that_are_one_kernel(function: Callable[..., Any]) -> None:
    """What one writes the next reads at the same element, and overwrites what is of no more use."""
    assert kernels_of(function) == 1


def test_loops_over_columns_are_few_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many steps as one kernel may have."""
    assert kernels_of(of_columns) == 1
    for most, kernels in ((30, 2), (0, 22)):
        monkeypatch.setattr("xtensor.run.simplified.MERGED_STEPS", most)
        assert kernels_of(of_columns) == kernels


def neighbours(xp: Any, x: Any, y: Any, z: Any, k: Any) -> None:
    x[1:] = y[:-1] + z[1:]
    y[1:] = x[:-1] + z[1:]


def swapped(xp: Any, x: Any, y: Any, z: Any, k: Any) -> None:
    x += y
    y[...] = y[::-1] * z


def read_before_and_kept(xp: Any, x: Any, y: Any, z: Any, k: Any) -> None:
    x[...] = y * 2.0
    z[...] = x + y
    y -= x


def read_before(xp: Any, x: Any, y: Any, z: Any, k: Any) -> None:
    x += y
    y -= z


def lost(xp: Any, x: Any, y: Any, z: Any, k: Any) -> Any:
    old = x * y
    x += 1.0
    x[...] = y
    return old


def turned(xp: Any, x: Any, y: Any, z: Any, k: Any) -> None:
    x[:30, :30] += y[:30, :30]
    z[:30, :30] = x[:30, :30].T + y[:30, :30]


def apart(xp: Any, x: Any, y: Any, z: Any, k: Any) -> None:
    x += 1.0
    y += 2.0


def summed(xp: Any, x: Any, y: Any, z: Any, k: Any) -> None:
    x += y
    z[...] = x / xp.max(x)


@pytest.mark.parametrize("function", [neighbours, read_before, read_before_and_kept, turned, apart])
def test_statements_that_are_kernels_of_their_own(function: Callable[..., Any]) -> None:
    """One reads neighbours of what the other writes, writes what the other has read, or takes nothing of the same."""
    assert kernels_of(function) == 2


@pytest.mark.parametrize("function", [lost, summed, swapped])
def test_what_lies_between(function: Callable[..., Any]) -> None:
    """What is kept, overwritten or reduced has the values that there were."""
    assert kernels_of(function) >= 2


@pytest.mark.parametrize("after", [0, 1, 40])
def test_arguments_that_overlap(after: int) -> None:
    """Two arguments over one memory, the same elements or others."""

    def make(call: int) -> list[Array]:
        memory = np.random.default_rng(call).uniform(0.5, 2.0, 30 * 40 + 40)
        views = [memory[start : start + 1200].reshape(30, 40) for start in (0, after)]
        return [*views, *arrays(call)[2:]]

    def function(xp: Any, x: Any, y: Any, z: Any, k: Any) -> None:
        x += z
        y *= z
        z -= x

    kernels_of(function, make)


FAMILIES = [
    ["[...]"],
    ["[1:]", "[:-1]"],
    ["[:, 1]", "[:, 2]", "[:, 3]"],
    ["[::2]", "[1::2]"],
    ["[2:5, 1:4]", "[3:6, 1:4]"],
]
TERMS = ["{0} * 2 + {1}", "{0} - {1}", "{0} * {1} + {2}", "xp.where({0} > {1}, {2}, {0})"]


def statements(rng: random.Random) -> list[str]:
    """Return random statements over elements that are the same, neighbours or others."""
    family = rng.choices(FAMILIES, [5, 1, 3, 2, 1])[0]
    lines: list[str] = []
    for number in range(rng.randint(3, 9)):
        x, *others = (f"{rng.choice('xyzk')}{rng.choice(family)}" for _ in range(4))
        term = rng.choice(TERMS).format(*others)
        lines.append(rng.choice([f"{x} = {term}", f"{x} {rng.choice('+-*')}= {term}", f"t{number} = {term}"]))
    kept = [line.partition(" ")[0] for line in lines if line[0] == "t"]
    return [*lines, f"return [{', '.join(rng.sample(kept, len(kept) // 2))}]"]


@pytest.mark.parametrize("seed", range(3))
def test_random_statements(seed: int, engine: str) -> None:
    """Integers, so that all is exact; some arguments overlap."""
    for number in range(60 if engine == "interpret" else 15):
        lines, spread = statements(random.Random(1000 * seed + number)), dict[str, Any]()
        exec("\n    ".join(["def function(xp, x, y, z, k):", *lines]), spread)
        fused = xt.fuse(spread["function"])
        for call in range(3):
            both = []
            for _ in range(2):
                memory = np.random.default_rng([seed, number, call]).integers(-9, 9, (4, 90))
                second = memory[0, 9:81] if number % 4 == 0 else memory[1, :72]
                both.append([one.reshape(8, 9) for one in (memory[0, :72], second, memory[2, :72], memory[3, :72])])
            found = fused(xt, *map(xt.asarray, both[0]))
            right = spread["function"](np, *both[1])
            for one, other in zip((*both[0], *found), (*both[1], *right), strict=True):
                np.testing.assert_array_equal(np.asarray(one), other, err_msg="\n".join(lines))


def test_traces_of_other_steps_have_other_keys() -> None:
    """Else they would have one plan."""
    x = [xt.ones(5).evaluate() for _ in range(3)]
    with xt.options(lazy="always"):
        nodes = [(x[0] * x[1] + x[2]).value for _ in range(2)]
    traces = [Trace(pending_below([node]), [node]) for node in nodes]
    (kept,) = traces[0].kept
    once = [traces[0].simplified([kept], same) for same in ({}, {1: 0}, {3: 0})]
    twice = [one.simplified([kept], {}) for one in once]
    both = [one.followed_by(other) for one in once for other in once]
    again = [one.simplified([kept], {}) for one in both]
    assert len({trace.key for trace in (*once, *twice, *both, *again)}) == 3 + 3 + 9 + 9

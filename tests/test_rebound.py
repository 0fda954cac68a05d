"""What captured functions bind anew in containers, attributes and names, beside the same on NumPy's arrays."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import xtensor as xt
from xtensor.calls import capture as room
from xtensor.codegen.cpu.compile import host

needs_llvm = pytest.mark.skipif(host() is None, reason="generated code needs llvmlite and a fused multiply-add")


@pytest.fixture(params=["interpret", pytest.param("llvm", marks=needs_llvm)], autouse=True)
def engine(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run a test on each engine that has kernels."""
    with xt.options(engine=request.param, cache_dir=""):
        yield


def array(seed: float) -> np.ndarray:
    return np.arange(24.0) + seed


def given(tree: Any) -> Any:
    """Return a tree of tensors for one of arrays."""
    if isinstance(tree, np.ndarray):
        return xt.asarray(tree.copy())
    if isinstance(tree, dict):
        return type(tree)({key: given(value) for key, value in tree.items()})
    if isinstance(tree, deque):
        return deque([given(value) for value in tree], tree.maxlen)
    if isinstance(tree, (list, tuple)):
        return type(tree)([given(value) for value in tree])
    if hasattr(tree, "__dict__") and not callable(tree):
        other = type(tree).__new__(type(tree))
        other.__dict__.update({key: given(value) for key, value in vars(tree).items()})
        return other
    return tree


def same(mine: Any, right: Any) -> None:
    """Check that two trees hold the same, in the same order."""
    if isinstance(right, (np.ndarray, np.generic)):
        np.testing.assert_array_equal(np.asarray(mine), right, strict=isinstance(right, np.ndarray))
    elif isinstance(right, dict):
        assert list(mine) == list(right)
        for key in right:
            same(mine[key], right[key])
    elif isinstance(right, (list, tuple, deque)):
        assert len(mine) == len(right)
        for one, other in zip(mine, right, strict=True):
            same(one, other)
    elif hasattr(right, "__dict__"):
        same(vars(mine), vars(right))
    else:
        assert mine == right


@dataclass
class State:
    """Attributes that functions set."""

    u: Any
    v: Any = None
    flip: bool = False
    log: list[Any] = field(default_factory=list)

    def advance(self, x: Any) -> Any:
        self.v = self.u
        self.u = self.u * 0.5 + x
        return self.u


class Slotted:
    """An object without a dict."""

    __slots__ = ("u",)

    def __init__(self, u: Any) -> None:
        self.u = u


def adam(p: Any, g: Any, state: Any) -> Any:
    """Moments are made at the first call, and replaced at others."""
    for key in p:
        moments = state.setdefault(key, {"m": p[key] * 0.0})
        moments["m"] = 0.5 * moments["m"] + g[key]
        p[key] = p[key] - 0.25 * moments["m"]
    return p


def swaps(state: Any, x: Any) -> None:
    state["a"], state["b"] = state["b"], state["a"] + x


def removes(state: Any, x: Any) -> Any:
    y = state.pop("old") + x
    state["new"] = y
    del state["unused"]
    return y


def lists(rows: Any, x: Any) -> Any:
    rows[0] = rows[1] * 2.0
    rows.append(x + rows[0])
    return len(rows)


def shortens(rows: Any, x: Any) -> Any:
    return rows.pop() + rows.pop() + x


def nested(state: Any, x: Any) -> Any:
    state["deep"] = {"pair": (x * 2.0, [x, 3.5]), "same": state["inner"], "none": None}
    state["inner"]["x"] = state["deep"]["pair"][0]
    return state


def attributes(state: Any, x: Any) -> Any:
    state.new = state.advance(x) - 1.0
    return state.new


def ordered(state: Any, x: Any) -> Any:
    state.inner["y"] = x * state.inner["x"]
    state.inner["x"] = state.inner["y"] + 1.0
    return state.inner


def queues(rows: Any, x: Any) -> Any:
    rows.append(x * rows[0])
    return sum(rows)


def rotates(rows: Any, x: Any) -> None:
    rows.appendleft(rows.pop() + x)
    rows.pop()


CASES: dict[str, tuple[Callable[..., Any], Callable[[float], tuple[Any, ...]]]] = {
    "moments": (adam, lambda n: ({"w": array(n), "b": array(n + 1)}, {"w": array(n + 2), "b": array(n + 3)}, {})),
    "swaps": (swaps, lambda n: ({"a": array(n), "b": array(n + 1)}, array(n + 2))),
    "removes": (removes, lambda n: ({"old": array(n), "unused": array(1), "k": 3}, array(n + 2))),
    "lists": (lists, lambda n: ([array(n), array(n + 1)], array(n + 2))),
    "shortens": (shortens, lambda n: ([array(n), array(n + 1), array(n + 3)], array(n + 2))),
    "nested": (nested, lambda n: ({"inner": {"x": array(n)}}, array(n + 2))),
    "attributes": (attributes, lambda n: (State(array(n)), array(n + 2))),
    "queues": (queues, lambda n: (deque([array(n), array(n + 1)], maxlen=2), array(n + 2))),
    "rotates": (rotates, lambda n: (deque([array(n), array(n + 1), array(n + 3)]), array(n + 2))),
    "ordered": (ordered, lambda n: (SimpleNamespace(inner=OrderedDict(x=array(n))), array(n + 2))),
}


@pytest.mark.parametrize("name", CASES)
def test_what_arguments_hold_afterwards(name: str) -> None:
    function, make = CASES[name]
    fused = xt.fuse(function, strict=True)
    for call in range(5):
        arrays = make(float(call))
        tensors = given(arrays)
        same(fused(*tensors), function(*arrays))
        same(tensors, arrays)
    assert fused.why(*given(make(9.0))) == ""


def test_the_container_itself_is_returned() -> None:
    fused = xt.fuse(nested, strict=True)
    for call in range(4):
        state, x = given(CASES["nested"][1](float(call)))
        inner = state["inner"]
        assert fused(state, x) is state
        assert state["inner"] is inner is state["deep"]["same"]
        assert state["inner"]["x"] is state["deep"]["pair"][0]
        assert state["deep"]["pair"][1][0] is x


class Simulation:
    """A method that replaces what its object holds."""

    total = None

    def __init__(self, u: Any) -> None:
        self.u = self.before = u

    @xt.fuse
    def step(self, x: Any) -> None:
        """Return nothing: all that it does is seen in its object."""
        self.before = self.u
        self.u = self.u * 0.5 + x
        if self.total is None:
            self.total = self.u * 1.0
        else:
            self.total = self.total + self.u


def test_attributes_of_a_methods_object() -> None:
    """Two objects, in turns: results go to the one that is stepped."""
    mine, right = [[Simulation(kind(array(k))) for k in range(2)] for kind in (xt.asarray, np.asarray)]
    for call in range(8):
        x = array(call)
        for one, other in zip(mine, right, strict=True):
            one.step(xt.asarray(x))
            Simulation.step.__wrapped__(other, x)
            same(one, other)
    assert Simulation.step.why(mine[0], xt.asarray(array(0))) == ""


def test_slots() -> None:
    def function(state: Any, x: Any) -> None:
        state.u = state.u + x

    fused = xt.fuse(function, strict=True)
    for call in range(4):
        state, x = Slotted(xt.asarray(array(call))), xt.asarray(array(1))
        fused(state, x)
        same(state.u, array(call) + array(1))


KEPT: Any = None


def test_names_that_are_bound_anew() -> None:
    """A global and a name of an outer function."""
    count = xt.zeros(24)

    def function(x: Any) -> Any:
        nonlocal count
        global KEPT
        count = count + x
        KEPT = count * 2.0
        return x + 1.0

    fused, right = xt.fuse(function, strict=True), np.zeros(24)
    for call in range(6):
        fused(xt.asarray(array(call)))
        right += array(call)
        same(count, right)
        same(KEPT, right * 2.0)
    assert fused.why(xt.asarray(array(0))) == ""


def test_a_flag_that_goes_back_and_forth() -> None:
    def function(state: Any, x: Any) -> Any:
        state.flip = not state.flip
        state.u = state.u + x if state.flip else state.u - 2.0 * x
        return state.flip

    fused, mine, right = xt.fuse(function), State(xt.asarray(array(0))), State(array(0))
    for call in range(50):
        x = array(call)
        assert fused(mine, xt.asarray(x)) is function(right, x)
        same(mine, right)


def test_a_count_is_counted_where_it_begins_again() -> None:
    def function(state: Any, x: Any) -> Any:
        state["t"] += 1
        return x * state["t"]

    fused = xt.fuse(function)
    for _ in range(40):
        state = {"t": 3}
        same(fused(state, xt.asarray(array(1))), array(1) * 4)
        assert state == {"t": 4}
    assert fused.why({"t": 3}, xt.asarray(array(1))) == ""
    assert fused.why({"t": 5}, xt.asarray(array(1))) == room.NEW  # one more number, and it is told them


class Shared:
    """A class whose attribute a function sets."""

    last: Any = None


def sets_a_class(x: Any) -> Any:
    Shared.last = x * 2.0
    return x + 1.0


def sets_a_method(x: Any) -> Any:
    Shared.double = lambda self, y: y * 2.0  # type: ignore[attr-defined]
    Shared.last = Shared().double(x)  # type: ignore[attr-defined]
    return x + 1.0


@pytest.mark.parametrize("function", [sets_a_class, sets_a_method])
def test_what_later_calls_cannot_leave_makes_them_plain(function: Any) -> None:
    fused = xt.fuse(function)
    for call in range(4):
        x = array(call)
        same(fused(xt.asarray(x)), x + 1.0)
        same(Shared.last, x * 2.0)
    why = fused.why(xt.asarray(array(0)))
    assert why.startswith(room.KEEPS if function is sets_a_class else (room.KEEPS, room.NEW))  # the method is another

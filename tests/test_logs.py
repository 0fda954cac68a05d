"""Lists that a captured function only appends to: what is in them makes no difference, and later calls append, too."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import numpy as np
import pytest
from test_dispatch import at_once, by_machine_code
from test_fuse import Counted

import xtensor as xt

N = 50_000


def ones() -> xt.Tensor:
    return xt.ones(N)


class Simulation:
    def __init__(self) -> None:
        self.u, self.t, self.history, self.times = ones(), 0.0, [], []

    def step(self, rate: float) -> None:
        self.u = self.u * rate + 1
        self.t += 0.5
        self.history.append(self.u)
        self.times.append(self.t)


def compared(one: Any, other: Any) -> None:
    assert one.times == other.times
    assert len(one.history) == len(other.history)
    for ours, theirs in zip(one.history, other.history, strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


def test_a_history_is_appended_to() -> None:
    counted = Counted(Simulation.step)
    fused, one, other = xt.fuse(counted), Simulation(), Simulation()
    for call in range(100):
        fused(one, 0.5)
        other.step(0.5)
        if call == 50:
            one.history.clear()
            other.history.clear()
    compared(one, other)
    assert counted.calls <= 3
    fresh = Simulation()
    fused(fresh, 0.5)
    assert len(fresh.history) == 1
    compared(one, other)


@pytest.mark.usefixtures(at_once.__name__)
def test_machine_code_appends() -> None:
    fused, one, other = xt.fuse(Simulation.step), Simulation(), Simulation()
    for call in range(30):
        (by_machine_code if call > 6 else lambda function, *args: function(*args))(fused, one, 0.5)
        other.step(0.5)
    compared(one, other)
    one.history, other.history = [], []
    for _ in range(5):
        fused(one, 0.5)
        other.step(0.5)
    compared(one, other)
    one.history = other.history = None  # type: ignore[assignment]
    with pytest.raises(AttributeError):
        fused(one, 0.5)


def test_names_and_cells() -> None:
    losses: list[Any] = []
    spread: dict[str, Any] = {"xt": xt, "losses": losses, "seen": []}
    exec("def f(x):\n    losses.append(xt.sum(x))\n    seen.append('text')\n    return x * 2", spread)
    fused = xt.fuse(Counted(spread["f"]))
    for _ in range(20):
        fused(ones())
    assert [float(one) for one in losses] == [N] * 20
    assert spread["seen"] == ["text"] * 20

    inner: list[Any] = []

    def g(x: xt.Tensor) -> xt.Tensor:
        inner.append(x)
        inner.append(1)
        return x + 1

    counted = Counted(g)
    fused = xt.fuse(counted)
    for _ in range(20):
        fused(ones())
    assert len(inner) == 40
    assert counted.calls <= 3


def test_lists_that_are_read_are_looked_into() -> None:
    """Under the same name, or another one."""

    class Read:
        def __init__(self) -> None:
            self.rows: list[Any] = [1.0]
            self.same = self.rows

        def by_name(self, x: xt.Tensor) -> xt.Tensor:
            self.rows.append(len(self.rows))
            return x * sum(self.rows)

        def by_another(self, x: xt.Tensor) -> xt.Tensor:
            self.rows.append(2.0)
            return x * len(self.same)

        def by_text(self, x: xt.Tensor) -> xt.Tensor:
            self.rows.append(2.0)
            return x * len(getattr(self, "rows"))  # noqa: B009

        def by_helper(self, x: xt.Tensor) -> xt.Tensor:
            self.rows.append(2.0)
            return x * self.count()

        def count(self) -> int:
            return len(self.rows)

    for name in ("by_name", "by_another", "by_text", "by_helper"):
        fused, one, other = xt.fuse(getattr(Read, name)), Read(), Read()
        for _ in range(12):
            np.testing.assert_array_equal(fused(one, ones()).numpy(), getattr(other, name)(ones()).numpy())
            assert one.rows == other.rows
            assert one.same is one.rows


def test_a_call_that_fails_leaves_what_a_plain_one_does() -> None:
    class Failing:
        def __init__(self) -> None:
            self.rows: list[Any] = []

        def step(self, x: xt.Tensor, y: xt.Tensor) -> xt.Tensor:
            self.rows.append(x + 1)
            return x + y

    fused, one = xt.fuse(Failing.step), Failing()
    for _ in range(4):
        fused(one, ones(), ones())
    with pytest.raises(ValueError, match="shape"):
        fused(one, ones(), xt.ones(3))
    assert len(one.rows) == 5


def runs(function: Any, calls: int = 6) -> Any:
    fused = xt.fuse(function)
    return fused, lambda *args: [fused(*args) for _ in range(calls)]


class Holder:
    def __init__(self, **own: Any) -> None:
        vars(self).update(own)


@pytest.mark.usefixtures(at_once.__name__)
def test_logs_that_become_one_list_or_two() -> None:
    def step(s: Any, x: xt.Tensor) -> xt.Tensor:
        s.a.append(1.0)
        s.b.append(x * 2)
        return x + 1

    fused, often = runs(step)
    s = Holder(a=[], b=[])
    often(s, ones())
    s.b = s.a
    often(s, ones())
    assert len(s.a) == 6 + 12
    assert s.a[-2] == 1.0
    s.b = []
    often(s, ones())
    assert (len(s.a), len(s.b)) == (24, 6)
    p, q = Holder(a=[], b=[]), Holder(a=[], b=[])
    both = xt.fuse(lambda p, q, x: (step(p, x), step(q, x)))
    for _ in range(4):
        both(p, q, ones())
    q.a = p.a
    both(p, q, ones())
    assert (len(p.a), len(q.b)) == (6, 5)


@pytest.mark.usefixtures(at_once.__name__)
@pytest.mark.parametrize("order", [("rows", "same"), ("same", "rows")])
def test_a_log_that_becomes_a_list_that_is_read(order: tuple[str, str]) -> None:
    def step(s: Any, x: xt.Tensor) -> Any:
        s.rows.append(2.0)
        return x * len(s.same), ()

    fused, often = runs(step)
    s = Holder(**{name: [1.0] * (name == "same") for name in order})
    often(s, ones())
    s.rows = s.same
    for call in range(4):
        found, nothing = fused(s, ones())
        assert float(found[0]) == len(s.same) == 2 + call
        assert nothing == ()
    s.same = [1.0]
    for _ in range(4):
        found, nothing = fused(s, ones())
        assert float(found[0]) == 1
        assert nothing == ()


@pytest.mark.usefixtures(at_once.__name__)
def test_a_log_of_a_class() -> None:
    class Shared:
        rows: list[Any] = []

        def step(self, x: xt.Tensor) -> xt.Tensor:
            self.rows.append(x * 2)
            return x + 1

    fused, one = xt.fuse(Shared.step), Shared()
    for call in range(12):
        if call == 6:
            Shared.rows.clear()
        fused(one, ones())
    assert len(Shared.rows) == 6


def test_logs_that_are_read_in_other_ways() -> None:
    """By the method's owner, or by names in texts."""

    def by_method(s: Any, x: xt.Tensor) -> xt.Tensor:
        m = s.rows.append
        m(1.0)
        return x * len(m.__self__)

    def by_path(h: Any, x: xt.Tensor) -> xt.Tensor:
        h.sim.rows.append(1.0)
        return x * len(attrgetter("sim.rows")(h))

    def by_format(s: Any, x: xt.Tensor) -> xt.Tensor:
        s.rows.append(1.0)
        return x * "{0.rows}".format(s).count("1")  # noqa: UP030, UP032

    for function, s in (
        (by_method, Holder(rows=[])),
        (by_path, Holder(sim=Holder(rows=[]))),
        (by_format, Holder(rows=[])),
    ):
        fused = xt.fuse(function)
        assert [float(fused(s, ones())[0]) for _ in range(4)] == [1, 2, 3, 4]

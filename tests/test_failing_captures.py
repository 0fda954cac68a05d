"""Calls of captured functions that fail after they have written: what they leave is what a plain call leaves."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import xtensor as xt
import xtensor.numpy as xnp
from xtensor.calls import known, thin
from xtensor.run import captured

N = 12


def index_at_the_end(s: Any, x: Any, at: Any) -> None:
    s.n += 1
    s.x += x
    s.last = x * 2.0
    s.log.append(s.n)
    s.x[:4] += x[at]


def solved(s: Any, x: Any, at: Any) -> None:
    s.n += 1
    s.x *= 0.5
    s.table["k"] = s.n * 2
    s.last = s.xp.linalg.solve(s.xp.eye(4) * at[3], x[:4]) + s.x[:4]


def index_in_the_middle(s: Any, x: Any, at: Any) -> None:
    s.x[at] += 1.0
    s.n += 1
    s.y = s.y + s.x[at] * 2.0
    s.x[at[::-1]] = s.y
    s.table["k"] = s.y[0]


def draws_first(s: Any, x: Any, at: Any) -> None:
    s.n += 1
    s.x += x
    s.x[:4] += s.g.standard_normal(4)
    s.x[:4] += x[at]


def only_draws(s: Any, x: Any, at: Any) -> None:
    s.n += 1
    s.y = s.g.standard_normal(4)
    s.last = x[at] * 2.0


def put(s: Any, x: Any, at: Any) -> None:
    """NumPy's own writes before it finds what is outside."""
    s.n += 1
    s.xp.put(s.x, at, 9.0)


def put_along(s: Any, x: Any, at: Any) -> None:
    s.n += 1
    s.x += x
    s.xp.put_along_axis(s.x, at, 1.0, 0)


def powers(s: Any, x: Any, at: Any) -> None:
    s.n += 1
    s.x += x
    s.last = s.xp.linalg.matrix_power(s.xp.eye(4) * at[3], -1)[0]


def first_index(s: Any, x: Any, at: Any) -> None:
    """It fails before anything is written."""
    s.n += 1
    s.last = x * 2.0
    s.x[:4] += x[at]


PROGRAMS = [
    *(index_at_the_end, solved, index_in_the_middle, draws_first, only_draws, put, put_along, powers, first_index)
]
SINGULAR = (solved, powers)


def state(xp: Any) -> Any:
    own = {"x": xp.zeros(N), "y": xp.zeros(4), "g": xp.random.default_rng(0)}
    return SimpleNamespace(**own, n=0, last=None, log=[], table={"k": 0}, xp=xp)


def agree(s: Any, plain: Any) -> None:
    assert (s.n, s.log) == (plain.n, plain.log)
    for one, other in ((s.x, plain.x), (s.y, plain.y), (s.last, plain.last), (s.table["k"], plain.table["k"])):
        assert (one is None) == (other is None)
        if other is not None:
            np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-12)


@pytest.mark.parametrize("way", ["python", "machine code"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: str(one.__name__))
def test_what_a_failing_call_leaves(program: Callable[..., None], way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known.Known, "_is_small", lambda *_: False)
    if way == "machine code":
        thin.exchange()
        monkeypatch.setattr(known, "DISPATCHED_AFTER", 1)
        monkeypatch.setattr(known, "AGAIN_AFTER", 1)
    fused, s, plain = xt.fuse(program), state(xnp), state(np)
    for call in range(60):
        x, at = np.arange(N) + float(call), np.array([0, 2, 1, 3])
        if call % 7 == 6:
            at[3] = 0 if program in SINGULAR else N + call
        raised = []
        for own, xp, function in ((s, xnp, fused), (plain, np, program)):
            try:
                function(own, xp.array(x), xp.array(at))
            except (IndexError, np.linalg.LinAlgError) as error:
                raised.append(type(error))
        assert raised in ([], [IndexError] * 2, [np.linalg.LinAlgError] * 2)
        assert bool(raised) == (call % 7 == 6)
        agree(s, plain)


def test_what_cannot_be_put_back_is_not_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A position is advanced although a later index fails, where too much was written before to undo it."""
    monkeypatch.setattr(captured, "UNDONE", 0)

    def step(state: Any, x: Any) -> Any:
        state.rows[state.pos] = x
        state.pos += 1
        return state.rows[state.pos + 3] * 2

    fused, x, left = xt.fuse(step), xt.ones(6), []
    for function in (step, fused):
        state, seen = SimpleNamespace(rows=xt.zeros((30, 6)), pos=0), []
        for _ in range(30):
            with suppress(IndexError):
                function(state, x)
            seen.append((state.pos, float(xt.sum(state.rows))))
        left.append(seen)
    assert left[0] == left[1] and left[0][-1] == (30, 180.0)
    assert fused.why(state, x) != ""


def test_why_says_what_cannot_be_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no number is told either."""
    monkeypatch.setattr(captured, "UNDONE", 0)

    def step(state: Any, x: Any) -> None:
        state.rows += x
        state.last = xt.linalg.inv(state.matrix)

    state = SimpleNamespace(rows=xt.zeros((30, 6)), matrix=xt.eye(3), last=None)
    fused, x = xt.fuse(step), xt.ones(6)
    for _ in range(2):  # first there is no tensor in the attribute
        fused(state, x)
    assert fused.why(state, x).startswith("[late]")

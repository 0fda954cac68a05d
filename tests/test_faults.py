"""A little of what `python -m tests.faults` does: every kind of fault in a few programs."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from faults.calls import run_calls
from faults.injections import NoCompiler, NoDisk, NoMemory, NoThreads, batch
from faults.interrupts import Interrupt
from faults.native import ALLOCATIONS, allocations
from faults.processes import ends, fork_beside, fork_inside, killed
from faults.trial import Left, Outcome, run_with_fault
from programs import Ours

import xtensor as xt
from xtensor.autograd import history
from xtensor.base.options import thin_closed
from xtensor.codegen.cpu.compile import host
from xtensor.storage import storage
from xtensor.storage.storage import histories

pytestmark = [
    pytest.mark.skipif(host() is None, reason="faults are injected by machine code"),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork"),
]

BATCHES: dict[str, tuple[Callable[[int, int], Outcome], int]] = {
    "memory": (batch(NoMemory, 8), 6),
    "compiler": (batch(NoCompiler, 2), 4),
    "threads": (batch(NoThreads, 1), 6),
    "disk": (batch(NoDisk, 2), 4),
    "interrupt": (batch(Interrupt, 8), 6),
    "memory, calls": (batch(NoMemory, 5, run_calls, warming=6), 3),
    "interrupt, calls": (batch(Interrupt, 5, run_calls, warming=6), 3),
    "fork inside": (fork_inside, 4),
    "fork beside": (fork_beside, 4),
    "ends": (ends, 3),
    "killed": (killed, 1),
}


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    """Begin without what other tests left."""
    xt.memory.trim()
    yield
    assert not storage.watchers


@pytest.mark.parametrize("fault", BATCHES)
def test_nothing_is_lost(fault: str) -> None:
    run, count = BATCHES[fault]
    outcome = run(100, count)
    assert outcome.struck > 0
    assert (outcome.wrong, outcome.crashes, outcome.leaks) == (0, 0, 0), outcome.notes


def test_a_history_that_was_not_made_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """One counted out that was not counted in would hide the others: gradients of what is written would be lost."""

    def gradient() -> float:
        def loss(x: Any) -> Any:
            y = x * 1.0
            y[0] = y[1] * 3.0
            return xt.sum(y * y)

        return float(xt.grad(loss)(xt.asarray([1.0, 2.0]))[1])

    assert gradient() == 2.0 * 2.0 + 2.0 * 9.0 * 2.0
    before = histories[0], len(thin_closed)
    with monkeypatch.context() as patch:
        patch.setattr(history, "Like", interrupted)
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                gradient()
    gc.collect()
    assert (histories[0], len(thin_closed)) == before
    assert gradient() == 2.0 * 2.0 + 2.0 * 9.0 * 2.0


def interrupted(*args: Any) -> Any:
    raise KeyboardInterrupt


# ---- that the tests can fail


class Keeps(NoMemory):
    """A fault that keeps a pending tensor and a lock shut each time it is armed."""

    kept: list[Any] = []

    def arm(self, at: int) -> None:
        super().arm(at)
        self.kept.append(xt.ones(10_000) * 2)


def test_a_leak_is_seen() -> None:
    outcome = batch(Keeps, 1)(100, 2)
    Keeps.kept.clear()
    assert any("Tensor" in note for note in outcome.notes) and outcome.leaks


def test_a_wrong_value_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure that leaves half an update behind."""

    def spoils(x: Any) -> Any:
        x += 1
        raise MemoryError

    monkeypatch.setattr(Ours, "force", staticmethod(spoils))
    with allocations():
        outcome = Outcome()
        seeds = [seed for seed in range(100) if run_with_fault(seed, NoMemory(), 0, outcome) and outcome.wrong]
    assert seeds, "no program forces anything"


def test_a_lock_that_is_held_is_seen() -> None:
    outcome, left = Outcome(), Left()
    with storage.first_use:
        left.look(outcome, "here")
    assert "first use is held" in " ".join(outcome.notes)


def test_allocations_are_counted() -> None:
    x = xt.ones((10, 10))
    with allocations():
        ALLOCATIONS.arm(0)
        ALLOCATIONS.resume()
        _ = x + x
        ALLOCATIONS.pause()
        assert ALLOCATIONS.disarm() > 0
        ALLOCATIONS.arm(1)
        ALLOCATIONS.resume()
        with pytest.raises(MemoryError):
            _ = x + x
        ALLOCATIONS.pause()
        ALLOCATIONS.disarm()
    assert float(xt.sum(x + x)) == 200.0

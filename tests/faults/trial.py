"""One program with a fault in it, and what is left of it afterwards."""

from __future__ import annotations

import gc
import threading
from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from programs import MODES, TIMES, Maker, Ours, Side, all_large, same_bits, same_error
from programs.sides import oracle_side, quiet

import xtensor as xt
from xtensor.base import options, threads
from xtensor.graph.node import Node
from xtensor.run import executor
from xtensor.storage import storage
from xtensor.storage.blob import TBlob
from xtensor.storage.pool import POOL

# The modes that programs take turns in.
TURNS = ("auto", "always", "interpret", "llvm", "large", "large, llvm", "direct")


# A last line, which computes all that waits.
EVALUATE = "evaluate()"


class Fault(Protocol):
    """Something that goes wrong at the n-th place where it can.

    error: what it is raised as. modes: those that programs take turns in. settings: under which they run besides.
    """

    error: type[BaseException]
    modes: tuple[str, ...]
    settings: dict[str, Any]

    def arm(self, at: int) -> None:
        """Let it strike at the n-th place from now on; 0 for never, only counting."""

    def resume(self) -> None:
        """Look for places: xtensor is about to be called."""

    def pause(self) -> None:
        """Look for none meanwhile."""

    def disarm(self) -> int:
        """Let it strike no more; return how many places there were."""

    def installed(self) -> AbstractContextManager[Any]:
        """Return what puts it in place."""


@dataclass
class Outcome:
    """What came of the faults of one kind. Only `programs`, `struck` and `raised` may be other than 0."""

    programs: int = 0
    struck: int = 0
    raised: int = 0
    wrong: int = 0
    leaks: int = 0
    crashes: int = 0
    notes: list[str] = field(default_factory=list)

    def note(self, kind: str, text: str) -> None:
        """Count something that must not be."""
        setattr(self, kind, getattr(self, kind) + 1)
        self.notes.append(f"{kind}: {text}")


def run_with_fault(seed: int, fault: Fault, at: int, outcome: Outcome) -> int:
    """Run the program of a seed with a fault at its n-th place; return how many places there were."""
    mode = fault.modes[seed % len(fault.modes)]
    with all_large() if mode in TIMES else nullcontext(), xt.options(**{**MODES[mode], **fault.settings}):
        return _Trial(Maker(seed, exact=True).lines, fault, outcome, f"program {seed}, mode {mode}, fault at {at}").run(
            at
        )


class _Trial:
    """A program on both sides, line by line."""

    def __init__(self, lines: list[str], fault: Fault, outcome: Outcome, name: str) -> None:
        self.lines, self.fault, self.outcome, self.name = lines, fault, outcome, name
        self.ours, self.theirs = Side(Ours(), lambda x: x), oracle_side()

    def run(self, at: int) -> int:
        self.fault.arm(at)
        struck = False
        for line in [*self.lines, EVALUATE]:
            before = self._state()
            error = self._attempt(line)
            with quiet():
                self._expected(line)
            if isinstance(error, self.fault.error):
                places, struck = self.fault.disarm(), True
                if not self._went_on(line, before):
                    return places
            elif not same_error(error, self.theirs.errors[-1]):
                self.outcome.note("wrong", f"{self.name}: `{line}` raised {error!r}, not {self.theirs.errors[-1]!r}")
                return self.fault.disarm()
        places = places if struck else self.fault.disarm()
        self.outcome.raised += struck
        found = self._differs(self._state())
        if found:
            self.outcome.note("wrong", f"{self.name}: {found}")
        return places

    def _state(self) -> dict[str, np.ndarray]:
        """Return copies of what NumPy has."""
        return {name: np.array(x) for name, x in self.theirs.variables().items()}

    def _attempt(self, line: str) -> BaseException | None:
        """Run a line on xtensor; return what it raised."""
        try:
            try:
                self.fault.resume()
                if line != EVALUATE:
                    self.ours.step(line)
                    return self.ours.errors[-1]
                xt.evaluate(*[x for x in self.ours.variables().values() if isinstance(x, xt.Tensor)])
            finally:
                self.fault.pause()
        except BaseException as error:
            self.fault.pause()  # where that was interrupted itself
            return error
        return None

    def _expected(self, line: str) -> None:
        if line == EVALUATE:
            self.theirs.errors.append(None)
        else:
            self.theirs.step(line)

    def _went_on(self, line: str, before: dict[str, np.ndarray]) -> bool:
        """Return whether the state after a fault is that before the line, which then runs again, or that after it."""
        after = self._differs(self._state())
        if not after:
            return True
        found = self._differs(before)
        if found:
            self.outcome.note("wrong", f"{self.name}: after `{line}` failed: {found}")
            return False
        error = self._attempt(line)
        if not same_error(error, self.theirs.errors[-1]):
            self.outcome.note("wrong", f"{self.name}: `{line}` raised {error!r} when it ran again")
            return False
        return True

    def _differs(self, right: dict[str, np.ndarray]) -> str:
        """Return which variable of xtensor's is not as it must be."""
        mine = self.ours.variables()
        if mine.keys() != right.keys():
            return f"variables {sorted(mine)}, NumPy {sorted(right)}"
        for name, x in mine.items():
            try:
                found = x.numpy() if isinstance(x, xt.Tensor) else np.asarray(x)
            except Exception as error:
                return f"{name} raises {error!r}"
            if (found.dtype, found.shape) != (right[name].dtype, right[name].shape) or not same_bits(
                found, right[name]
            ):
                return f"{name} is {found.tolist()}, NumPy's {right[name].tolist()}"[:300]
        return ""


# ---- what is left


class Left:
    """What there is of nodes, memory, threads and closed locks; compared before and after many programs."""

    def __init__(self) -> None:
        self.kinds = self._count()

    def _count(self) -> Counter[str]:
        for thread in threading.enumerate():
            if thread.name == "xtensor-compile":  # it ends by itself, when nothing is left to compile
                thread.join()
        for _ in range(3):
            gc.collect()
        kinds = Counter(type(one).__name__ for one in gc.get_objects() if isinstance(one, (Node, TBlob, xt.Tensor)))
        kinds["bytes in use"] = POOL.stats().in_use
        kinds["threads"] = threading.active_count()
        kinds["reasons against the thin way"] = len(options.thin_closed)
        kinds["watchers"] = len(storage.watchers)
        kinds["trusted owners"] = len(storage.trusted.owners)
        return kinds

    def look(self, outcome: Outcome, name: str, spare: dict[str, int] | None = None) -> None:
        """Note what has grown. spare: by how much it may have."""
        now = self._count()
        for kind, count in now.items():
            if count > self.kinds[kind] + (spare or {}).get(kind, 0):
                outcome.note("leaks", f"{name}: {count} {kind}, {self.kinds[kind]} before")
        for lock in held_locks():
            outcome.note("leaks", f"{name}: {lock} is held")


def held_locks() -> list[str]:
    """Return the locks that another thread cannot take now."""
    from xtensor.codegen.cpu import compile as compiling

    locks = {
        "the turn": executor._evaluating,
        "first use": storage.first_use,
        "reading": storage.reading,
        "the pool's": POOL._lock,
        "the compiler's": compiling._compiling,
        "saving": compiling._saving,
        "the team's": threads._team.taken,
        "counting": options.counting,
    }
    found: list[str] = []

    def take() -> None:
        for name, lock in locks.items():
            if lock.acquire(timeout=5):
                lock.release()
            else:
                found.append(name)

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    return found

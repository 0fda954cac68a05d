"""Faults that a function raises in the place of the system: no memory, no compiler, no threads, a disk that fails."""

from __future__ import annotations

import errno
import random
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from xtensor.base import threads
from xtensor.codegen import disk
from xtensor.codegen.cpu import compile as compiling
from xtensor.plan import fusion, program
from xtensor.run import native, replay

from .native import ALLOCATIONS, allocations
from .trial import TURNS, Fault, Left, Outcome, run_with_fault


class NoError(Exception):
    """What is raised by faults that nobody but xtensor itself hears of."""


COMPILED = ("llvm", "large, llvm")


class Shot:
    """A function that fails at its n-th call, once; or from then on until it is disarmed."""

    modes = TURNS

    def __init__(self, error: BaseException, *, once: bool = True) -> None:
        self.error: type[BaseException] = type(error)
        self.settings: dict[str, Any] = {}
        self._raised, self._once = error, once
        self._at = self._count = self.struck = 0

    def arm(self, at: int) -> None:
        self._at, self._count = at, 0

    def disarm(self) -> int:
        self._at = 0
        return self._count

    def resume(self) -> None:
        """Only xtensor calls what fails: it need not be told when."""

    pause = resume

    def over(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that fails where this says so."""

        def call(*args: Any, **keywords: Any) -> Any:
            self._count += 1
            if self._at and (self._count == self._at or (self._count > self._at and not self._once)):
                self.struck += 1
                raise type(self._raised)(*self._raised.args)  # another one: what is raised holds what was there
            return function(*args, **keywords)

        return call


class NoMemory:
    """The n-th allocation of array data fails."""

    error, modes = MemoryError, TURNS
    settings: dict[str, Any] = {}
    arm, disarm = ALLOCATIONS.arm, ALLOCATIONS.disarm
    resume, pause = ALLOCATIONS.resume, ALLOCATIONS.pause
    installed = staticmethod(allocations)


class NoCompiler(Shot):
    """LLVM refuses the n-th module and all after it."""

    modes = COMPILED

    def __init__(self) -> None:
        super().__init__(RuntimeError("LLVM refuses, as a test has it"), once=False)
        self.error = NoError  # the interpreter runs what is refused

    def arm(self, at: int) -> None:
        super().arm(at)
        forget_code()

    @contextmanager
    def installed(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(compiling, "_object_of", self.over(compiling._object_of))
            yield
        forget_code()


class NoThreads(Shot):
    """No thread can be started, by a team that has none yet."""

    places = 1

    def __init__(self) -> None:
        super().__init__(RuntimeError("can't start new thread"), once=False)
        self.error, self.settings = NoError, {"threads": 3}

    def arm(self, at: int) -> None:
        super().arm(at)
        if at:
            threads._team = threads._Team()

    @contextmanager
    def installed(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(threads, "start_new_thread", self.over(threads.start_new_thread))
            patch.setattr(threading.Thread, "start", self.over(threading.Thread.start))
            patch.setattr(threads, "_team", threads._Team())
            patch.setattr(threads, "SHARE_PAYS", 0.0)
            patch.setattr(native, "PART_PAYS", 1e-12)
            for module in (threads, native):
                patch.setattr(module, "WAKE_PAYS", 0.0)
            yield


class NoDisk(Shot):
    """Every file operation of the cache of kernels fails from the n-th on: the disk is full, or gone."""

    modes = COMPILED

    def __init__(self) -> None:
        super().__init__(OSError(errno.ENOSPC, "No space left on device"), once=False)
        self.error = NoError

    def arm(self, at: int) -> None:
        super().arm(at)
        forget_code()

    @contextmanager
    def installed(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
            for module, name in ((disk.tempfile, "mkstemp"), (disk.os, "fdopen"), (disk.os, "replace")):
                patch.setattr(module, name, self.over(getattr(module, name)))
            for name in ("read_bytes", "stat", "unlink", "mkdir"):
                patch.setattr(disk.Path, name, self.over(getattr(disk.Path, name)))
            self.settings = {"cache_dir": folder}
            yield
        forget_code()


def forget_code() -> None:
    """Drop all code and all schedules, so that programs are compiled again."""
    compiling.wait_for_better_code()
    compiling.forget()
    for one in program._programs.values():
        one.notes.clear()
    for plan in [*fusion._plans.values(), *[known.plan for known in replay._known.values()]]:
        plan.schedules.clear()


Run = Callable[[int, Fault, int, Outcome], int]
"""Runs the program of a seed with a fault at its n-th place, and returns how many places there were."""


def at_every_place(run: Run, fault: Fault, seed: int, outcome: Outcome, most: int, rng: random.Random) -> None:
    """Run a program without the fault to count its places, then with it at each of them, or at some of many.

    A fault may say itself how many places there are.
    """
    places = getattr(fault, "places", 0) or run(seed, fault, 0, Outcome())
    chosen = range(1, places + 1) if places <= most else sorted(rng.sample(range(1, places + 1), most))
    for at in chosen:
        outcome.struck += 1
        run(seed, fault, at, outcome)


def batch(
    make: Callable[[], Any], most: int, run: Run = run_with_fault, warming: int = 30
) -> Callable[[int, int], Outcome]:
    """Return what runs the programs of some seeds with a fault at up to `most` places of each.

    warming: programs that run without the fault first, so that what is remembered for ever is there.
    """

    def work(first: int, count: int) -> Outcome:
        outcome, fault, rng = Outcome(), make(), random.Random(first)
        with fault.installed(), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # that another engine runs what cannot be compiled
            for seed in range(warming):
                run(seed, fault, 0, Outcome())
            left = Left()
            for seed in range(first, first + count):
                outcome.programs += 1
                at_every_place(run, fault, seed, outcome, most, rng)
            left.look(outcome, f"programs {first} to {first + count - 1}")
        return outcome

    return work


BATCHES = {
    "memory": batch(NoMemory, 25),
    "compiler": batch(NoCompiler, 2),
    "threads": batch(NoThreads, 1),
    "disk": batch(NoDisk, 3),
}

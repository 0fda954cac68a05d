"""Faults of whole processes: forks in the middle of an evaluation, ends of the interpreter with work pending, and
processes that are killed beside a cache that others read.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from .trial import TURNS, Left, Outcome, run_with_fault

ROOT = Path(__file__).resolve().parent.parent.parent
SECONDS = 60.0  # in which a child must have ended


class NoFault:
    """Nothing goes wrong."""

    error: type[BaseException] = KeyError
    modes = TURNS
    settings: dict[str, Any] = {"cache_dir": ""}

    def arm(self, at: int) -> None:
        """Nothing to arm."""

    def resume(self) -> None:
        """Nothing to look for."""

    pause = resume

    def disarm(self) -> int:
        return 0


def runs_right(seed: int) -> bool:
    """Return whether a program gives what NumPy does."""
    outcome = Outcome()
    run_with_fault(seed, NoFault(), 0, outcome)
    return not outcome.wrong


# ---- forks


class ForkInside(NoFault):
    """A fork at the n-th call or return inside xtensor's work, as a finalizer or a signal handler may do it.

    child: its number, 0 in the child, which goes on with the program; -1 before.
    """

    def __init__(self) -> None:
        self._at = self._count = 0
        self.child = -1

    def arm(self, at: int) -> None:
        self._at, self._count = at, 0

    def _note(self, frame: Any, event: str, argument: Any) -> None:
        self._count += 1
        if self._count == self._at:
            sys.setprofile(None)
            self.child = os.fork()

    def resume(self) -> None:
        sys.setprofile(self._note)

    def pause(self) -> None:
        sys.setprofile(None)
        self._at = 0 if self.child >= 0 else self._at

    def disarm(self) -> int:
        return self._count


def ended(child: int, outcome: Outcome, name: str) -> None:
    """Wait for a child, and note where it did not end well."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            code = os.waitstatus_to_exitcode(status)
            if code:
                outcome.note("wrong" if code == 1 else "crashes", f"{name}: the child ended with {code}")
            return
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    outcome.note("crashes", f"{name}: the child did not end")


def fork_inside(first: int, count: int) -> Outcome:
    """Fork in the middle of programs; parent and child both finish them."""
    outcome, rng = Outcome(), random.Random(first)
    for seed in range(first, first + count):
        outcome.programs += 1
        counting = ForkInside()
        places = run_with_fault(seed, counting, 0, Outcome())
        for at in sorted(rng.sample(range(1, places + 1), min(4, places))):
            outcome.struck += 1
            fault, here = ForkInside(), Outcome()
            try:
                run_with_fault(seed, fault, at, here)
                right = not here.wrong
            except BaseException:
                right = False
            if fault.child == 0:
                os._exit(not right)
            name = f"program {seed}, fork at {at}"
            if not right:
                outcome.note("wrong", f"{name}: in the parent: {here.notes}")
            if fault.child > 0:
                ended(fault.child, outcome, name)
    return outcome


def fork_beside(first: int, count: int) -> Outcome:
    """Fork while another thread evaluates; the child runs programs of its own."""
    outcome, rng, going = Outcome(), random.Random(first), [True]

    def work() -> None:
        seed = first
        while going:
            if not runs_right(seed := seed + 1):
                outcome.note("wrong", f"program {seed} beside forks")

    runs_right(first)
    left = Left()
    thread = threading.Thread(target=work)
    thread.start()
    for seed in range(first, first + count):
        outcome.programs += 1
        outcome.struck += 1
        time.sleep(rng.random() * 0.01)
        child = os.fork()
        if child == 0:
            code = 2
            with suppress(BaseException):
                code = not (runs_right(seed) and runs_right(seed + 1))
            os._exit(code)
        ended(child, outcome, f"fork {seed} beside a thread")
    going.clear()
    thread.join()
    left.look(outcome, f"forks {first} to {first + count - 1}")
    return outcome


# ---- ends

PREAMBLE = """
import os, sys, threading, time, signal
import numpy as np
import xtensor as xt
options = xt.options(lazy="always", engine={engine!r})
options.__enter__()
x = xt.asarray(np.arange({n}.0), copy=True)
def work(x, turn):
    y = xt.exp(x * 1e-6) * 2 + turn
    z = xt.sum(y * y)
    return y, z
f = xt.fuse(work)
"""

ENDS = {
    "pending": "kept = [work(x, turn) for turn in range(20)]",
    "pending in a circle": "class A: pass\na = A(); a.a = a; a.pending = work(x, 1)",
    "pending in a module": "sys.pending = work(x, 1)\nimport numpy\nnumpy.pending = work(x, 2)",
    "half evaluated": "y, z = work(x, 1); float(z); w = y + z",
    "in a daemon thread": (
        "def go():\n while True: [float(one) for one in (work(x, 1)[1], f(x, 2)[1])]\n"
        "for _ in range(3): threading.Thread(target=go, daemon=True).start()\ntime.sleep({sleep})"
    ),
    "beside the compiler": "[float(work(x, turn)[1] * turn) for turn in range(15)]\ntime.sleep({sleep})",
    "with a gradient": "x.requires_grad = True\ny, z = work(x, 1); z.backward()",
    "after an error": "kept = work(x, 1)\nsys.exit(3)",
    "captured": "kept = [f(x, 1) for _ in range(5)]",
    "in atexit": "import atexit\natexit.register(lambda: float(work(x, 7)[1]))\nkept = work(x, 1)",
    "evaluated by a finalizer": "class A:\n def __del__(self): float(work(x, 3)[1])\na = A(); b = A(); b.b = b",
    "by a signal": "kept = work(x, 1)\nos.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(5)",
}
ALLOWED = {"after an error": 3, "by a signal": -signal.SIGTERM}


def python(code: str, cache: str, timeout: float = SECONDS) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter, with a folder of kernels."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XTENSOR_CACHE_DIR": cache}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=environment)


def ends(first: int, count: int) -> Outcome:
    """End the interpreter in many ways with work pending: it must end well, at once, and say nothing."""
    outcome, rng, names = Outcome(), random.Random(first), list(ENDS)
    with tempfile.TemporaryDirectory() as cache:
        for seed in range(first, first + count):
            outcome.programs += 1
            outcome.struck += 1
            name = names[seed % len(names)]
            how = {"engine": rng.choice(["auto", "llvm", "interpret"]), "n": rng.choice([10, 5_000, 300_000])}
            code = PREAMBLE.format(**how) + ENDS[name].replace("{sleep}", str(rng.random() * 0.2))
            try:
                done = python(code, cache)
            except subprocess.TimeoutExpired:
                outcome.note("crashes", f"{name} {how}: no end")
                continue
            if done.returncode != ALLOWED.get(name, 0) or done.stderr:
                outcome.note("crashes", f"{name} {how}: {done.returncode} {done.stderr[-600:]}")
    return outcome


KILLED = """
seed = {seed}
for turn in range(400):
    c = float(seed % 7 + turn % 13)
    y = x * c
    for step in range(turn % 11):
        y = xt.sin(y) if (turn + step) % 2 else y + 1.0
    y.evaluate()
"""
CHECKED = """
for turn in range(30):
    y, right = x * 2.0, np.arange({n}.0) * 2.0
    for step in range(turn % 11):
        y, right = (xt.sin(y), np.sin(right)) if (turn + step) % 2 else (y + 1.0, right + 1.0)
    assert np.allclose(np.asarray(y), right, rtol=1e-12, atol=1e-12), turn
"""


def killed(first: int, count: int) -> Outcome:
    """Kill processes while they fill a cache that others read; those must be right, and nothing half written stay."""
    outcome, rng = Outcome(), random.Random(first)
    how = {"engine": "llvm", "n": 1000}
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "XTENSOR_CACHE_DIR": cache}
        for seed in range(first, first + count):
            outcome.programs += 1
            outcome.struck += 1
            code = PREAMBLE.format(**how) + KILLED.format(seed=seed)
            victims = [subprocess.Popen([sys.executable, "-c", code], env=environment) for _ in range(2)]
            time.sleep(0.4 + rng.random())
            for victim in victims:
                victim.kill()
                victim.wait()
            done = python(PREAMBLE.format(**how) + CHECKED.format(**how), cache)
            if done.returncode or done.stderr:
                outcome.note("wrong", f"after a kill at {seed}: {done.returncode} {done.stderr[-600:]}")
    return outcome


BATCHES = {"fork inside": fork_inside, "fork beside": fork_beside, "ends": ends, "killed": killed}

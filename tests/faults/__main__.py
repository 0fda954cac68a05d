"""The runner: `python -m tests.faults --programs 1000` prints a table."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))

from .calls import BATCHES as CALLS
from .injections import BATCHES as INJECTIONS
from .interrupts import BATCHES as INTERRUPTS
from .processes import BATCHES as PROCESSES
from .trial import Outcome

BATCHES = {**INJECTIONS, **INTERRUPTS, **CALLS, **PROCESSES}
SIZE = 50  # programs of a batch
SECONDS = 1200
COLUMNS = ("programs", "struck", "raised", "wrong", "crashes", "leaks")


def apart(fault: str, first: int, count: int) -> Outcome:
    """Run a batch in a process of its own."""
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.faults", "--here", fault, str(first), str(count)]
    root = Path(__file__).resolve().parent.parent.parent
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired as late:
        told = late.stderr.decode()[-2000:] if late.stderr else ""
        return Outcome(programs=count, crashes=1, notes=[f"crashes: no end of {first}: {told}"])
    last = done.stdout.splitlines()[-1:] or [""]
    if done.returncode or not last[0].startswith("{"):
        note = f"crashes: {done.returncode} at {first}: {done.stderr[-3000:]}"
        return Outcome(programs=count, crashes=1, notes=[note])
    return Outcome(**json.loads(last[0]))


def total(outcomes: list[Outcome]) -> Outcome:
    """Return what came of several batches."""
    found = Outcome(notes=[note for one in outcomes for note in one.notes])
    for column in COLUMNS:
        setattr(found, column, sum(getattr(one, column) for one in outcomes))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="Inject faults into random programs.")
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1000)
    parser.add_argument("--faults", nargs="*", default=list(BATCHES), choices=list(BATCHES))
    parser.add_argument("--here", nargs=3, metavar=("FAULT", "FIRST", "COUNT"), help="one batch, in this process")
    given = parser.parse_args()
    if given.here:
        fault, first, count = given.here
        print(json.dumps(asdict(BATCHES[fault](int(first), int(count)))))
        return 0
    print(f"{'fault':12}" + "".join(f"{column:>10}" for column in COLUMNS) + f"{'seconds':>10}", flush=True)
    bad = 0
    for fault in given.faults:
        started, outcomes = time.perf_counter(), []
        for first in range(given.seed, given.seed + given.programs, SIZE):
            outcomes.append(apart(fault, first, min(SIZE, given.seed + given.programs - first)))
        found = total(outcomes)
        bad += found.wrong + found.crashes + found.leaks
        row = "".join(f"{getattr(found, column):10}" for column in COLUMNS)
        print(f"{fault:12}{row}{time.perf_counter() - started:10.0f}", flush=True)
        for note in found.notes[:20]:
            print(f"    {note}", flush=True)
    return min(bad, 1)


if __name__ == "__main__":
    sys.exit(main())

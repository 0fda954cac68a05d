"""The runner: `python -m tests.programs --kind captured --count 20000 --seed 1`."""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from contextlib import nullcontext
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))  # the emulated device is found there

from xtensor.calls import thin

from . import DEVICE, KINDS, failures_of
from .coverage import Coverage
from .device import emulated_device


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare random programs on xtensor with an oracle.")
    parser.add_argument("--kind", default="plain", choices=list(KINDS))
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--stop-after", type=int, default=20, help="give up after so many failures")
    parser.add_argument("--modes", nargs="*", default=[], help="all of the kind's, if none is named")
    given = parser.parse_args()
    kind = KINDS[given.kind]
    unknown = sorted({*given.modes} - {*kind.modes})
    if unknown or not kind.modes:
        parser.error(f"{kind.name} has no modes {unknown}: {kind.modes}")
    warnings.simplefilter("error")
    thin.exchange()
    begin, found, covered = time.perf_counter(), 0, Coverage()
    modes = given.modes or list(kind.modes)
    with emulated_device() if kind is DEVICE else nullcontext():
        for failure in failures_of(kind, given.seed, given.count, modes, covered):
            found += 1
            print(failure, flush=True)
            if found == given.stop_after:
                break
    print(covered.summary())
    seconds = time.perf_counter() - begin
    print(f"{kind.name} {modes}, seed {given.seed}, count {given.count}, failures {found}, {seconds:.0f} s")
    return min(found, 1)


if __name__ == "__main__":
    sys.exit(main())

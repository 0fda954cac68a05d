"""Systems that lack what Linux has: a process whose `os` has lost it computes, caches, counts threads and reports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from processors import MACOS_LACKS

# What Windows lacks of what the package asks for, besides.
WINDOWS = (*MACOS_LACKS, "fork", "register_at_fork", "getuid", "sysconf", "getloadavg", "sched_yield")

WORK = """
import os, sys

for name in {lacking}:
    if hasattr(os, name):
        delattr(os, name)

import numpy as np
import xtensor as xt
import xtensor.base.machine as machine
import xtensor.codegen.cpu.compile as compiled

compiled.ON_WINDOWS = {on_windows}

machine._CGROUPS = machine._OWN_CGROUPS = machine._MEMORY_FACTS = "/nowhere"

x = np.linspace(0.0, 1.0, 200_000)
for engine in ("auto", "direct", "interpret", "llvm"):
    with xt.options(engine=engine, threads=3, lazy="always", cache_dir={folder!r}):
        t = xt.asarray(x, copy=True)
        assert abs(float(xt.sum(xt.exp(t))) - np.exp(x).sum()) < 1e-6
        t += xt.sqrt(t)
        assert np.array_equal(np.asarray(t), x + np.sqrt(x))
with xt.options(engine="llvm", threads=2, cache_dir={folder!r}):
    t = xt.asarray(x[:100_000], copy=True)
    for _ in range(300):  # calls that follow each other at once find the other thread watching
        t += xt.sqrt(t) * 0.001
        assert float(t[-1]) == float(xt.max(t))
assert machine.memory_limit() > 0 and machine.free_memory() > 0
from xtensor.__main__ import main

sys.exit(main(["info"]) or main(["doctor"]) * 0)
"""


@pytest.mark.parametrize("lacking", [MACOS_LACKS, WINDOWS], ids=["macOS", "Windows"])
def test_a_system_that_lacks(lacking: tuple[str, ...], tmp_path: Path) -> None:
    """Every engine, the cache on disk, memory and threads, how Windows links, and what `info` and `doctor` ask."""
    text = WORK.format(lacking=lacking, on_windows=lacking is WINDOWS, folder=str(tmp_path / "cache"))
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

"""Generated code stays inside of its memory: random programs between pages that nobody may touch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from guards import run_apart
from programs import CAPTURED, GRADIENT, KERNELS, PLAIN, Kind

from xtensor.codegen.cpu.compile import host

ROOT = Path(__file__).resolve().parent.parent
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="pages are protected by mprotect"),
    pytest.mark.skipif(host() is None, reason="there is no compiler here"),
]

PROGRAMS = [(KERNELS, 40, "large, llvm"), (PLAIN, 60, "large, llvm"), (CAPTURED, 60, "llvm"), (GRADIENT, 20, "llvm")]


@pytest.mark.parametrize(("kind", "count", "mode"), PROGRAMS, ids=[kind.name for kind, _, _ in PROGRAMS])
def test_programs_touch_nothing_else(kind: Kind, count: int, mode: str) -> None:
    report = run_apart(kind, 0, count, [mode])
    assert report.endswith(" 0 differ\n"), report


ACCESS = """
import ctypes, sys
import numpy as np
import xtensor as xt
from tests.guards import guarded

with guarded() as memory:
    blocks = [xt.asarray(np.arange({n}.0), copy=True) for _ in range(5)]
    begins = [one.blob.address for one in blocks]
    low = next(one for one in begins if one % 4096 == 0)
    high = next(one for one in begins if one % 4096)
    {access}
    del blocks
"""


@pytest.mark.parametrize(
    ("n", "access", "ends"),
    [
        (8, "ctypes.string_at(high, 64)", ""),
        (8, "ctypes.string_at(high + 64, 1)", "Segmentation fault"),
        (8, "ctypes.string_at(low - 1, 1)", "Segmentation fault"),
        (8, "ctypes.memset(high + 64, 0, 1)", "Segmentation fault"),
        (7, "ctypes.memset(high + 56, 0, 1)", "written into the 8 bytes behind a block"),
    ],
)
def test_an_access_beyond_memory_is_seen(n: int, access: str, ends: str) -> None:
    code = ACCESS.format(n=n, access=access)
    command = [sys.executable, "-X", "faulthandler", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert ends in done.stderr and (done.returncode == 0) == (not ends), done.stderr

"""Mixed work for an hour, or the minutes given: memory stays, caches stay within their bounds, and times are steady.

    python -m tests.soak --minutes 60

Each round trains a little network, goes some steps of a simulation, convolves, works on arrays of changing sizes, makes
a new function under `xt.fuse`, and runs random programs of every kind that have not been run before. So that caches of
what comes again are full within minutes, their bounds are set to what is given by BOUNDS and SHORT; what is dropped
from a full cache must be given back all the same.

Every 50th round looks at memory, however long rounds take where others use the machine: a look calls the garbage
collector, so that more looks mean less garbage meanwhile. A quarter of the rounds is for warming up: a cache that is
being filled is no leak. Then the table says, for resident memory, for each cache, and for the time of each kind of
work, what it was in the first and in the last quarter of the other rounds; and the least memory that was in use
meanwhile. With `--arenas 1` all threads take memory from one place, so that less lies unused between what is in use.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import math
import os
import statistics
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import _lru_cache_wrapper, lru_cache
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent))

import numpy as np
import pytest
from programs import CAPTURED, GRADIENT, KERNELS, PLAIN
from programs.kinds import check

import xtensor as xt
from xtensor.calls import capture, compositions
from xtensor.calls.op import REGISTRY
from xtensor.codegen import disk
from xtensor.codegen.cpu import compile as compiling
from xtensor.codegen.cpu import gemm
from xtensor.graph import node
from xtensor.nn import sweeps
from xtensor.plan import fusion, program
from xtensor.run import engines, executor, prepare, replay
from xtensor.storage.pool import POOL

# The bounds of caches here: where they stand in the package, and what they are set to.
BOUNDS: list[tuple[Any, str, int]] = [
    (program, "REMEMBERED", 256),
    (fusion, "REMEMBERED", 256),
    (replay, "REMEMBERED", 256),
    (engines, "REMEMBERED", 256),
    (compositions, "REMEMBERED", 16),
    (capture, "REMEMBERED", 8),
    (compiling, "CODES", 128),
    (node, "SIGNATURES", 2048),
    (disk, "MOST_BYTES", 1 << 20),
]
SHORT = 64  # the results that a function of functools.lru_cache remembers
LIBC = ctypes.CDLL(None)
M_ARENA_MAX = -8  # of mallopt, in glibc
PYTHON_BLOCK = 88  # bytes of one of Python's small blocks, about
LOOK = 50  # rounds from one look at memory to the next
GROWTH = 0.01  # of resident memory
SLOWER = 1.25  # of the median processor time of any kind of work, on a machine that others share
ROUND_PROGRAMS = 2  # of each kind, in a round


# ---- work


def training() -> Callable[[int], None]:
    """Return some steps of training a network of two layers on noise."""
    rng = np.random.default_rng(0)
    parameters = [xt.asarray(rng.normal(size=shape) * 0.1, dtype=xt.float32) for shape in ((64, 128), (128,), (128, 8))]

    def loss(w: Any, b: Any, v: Any, x: Any, y: Any) -> Any:
        return xt.mean(xt.square(xt.maximum(x @ w + b, 0.0) @ v - y))

    step = xt.fuse(xt.grad(loss, argnums=(0, 1, 2)))

    def work(turn: int) -> None:
        for _ in range(5):
            x = xt.asarray(rng.normal(size=(256, 64)), dtype=xt.float32)
            y = xt.asarray(rng.normal(size=(256, 8)), dtype=xt.float32)
            for one, slope in zip(parameters, step(*parameters, x, y), strict=True):
                one -= 0.01 * slope
        assert all(bool(xt.all(xt.isfinite(one))) for one in parameters)

    return work


def simulation() -> Callable[[int], None]:
    """Return some steps of heat that spreads, written in place."""
    heat = xt.zeros((300, 300))
    heat[100:200, 100:200] = 1.0
    right = float(xt.sum(heat))

    def work(turn: int) -> None:
        for _ in range(5):
            flow = heat[1:-1, 2:] + heat[1:-1, :-2] + heat[2:, 1:-1] + heat[:-2, 1:-1] - 4 * heat[1:-1, 1:-1]
            heat[1:-1, 1:-1] += 0.1 * flow
        assert float(xt.sum(heat)) <= right * (1 + 1e-9)

    return work


def convolving() -> Callable[[int], None]:
    """Return a convolution and its gradients."""
    rng = np.random.default_rng(1)
    x = xt.asarray(rng.normal(size=(4, 8, 24, 24)), dtype=xt.float32)
    w = xt.asarray(rng.normal(size=(16, 8, 3, 3)), dtype=xt.float32)
    step = xt.grad(lambda x, w: xt.sum(xt.square(xt.nn.conv(x, w, padding=1))), argnums=(0, 1))

    def work(turn: int) -> None:
        xt.evaluate(*step(x, w))

    return work


def sizes() -> Callable[[int], None]:
    """Return work on arrays of changing sizes, of up to 4 MB."""

    def work(turn: int) -> None:
        n = 1000 + turn * 7919 % 500_000
        x = xt.arange(n, dtype=xt.float64)
        total = float(xt.sum(xt.sqrt(x) * 2.0 + x))
        assert np.isclose(total, np.sum(np.sqrt(np.arange(n)) * 2.0 + np.arange(n)), rtol=1e-12)

    return work


def functions() -> Callable[[int], None]:
    """Return the making of new functions under fuse, which are called some times and dropped."""

    def work(turn: int) -> None:
        for shape in ((50_000,), (200, 250), (250, 200)):
            fused = xt.fuse(lambda x, c=float(turn): xt.exp(x * 0.001) * c + x)
            x = xt.ones(shape)
            for _ in range(3):
                fused(x).evaluate()

    return work


def programs() -> Callable[[int], None]:
    """Return the running of random programs, other ones each time."""

    def work(turn: int) -> None:
        for kind in (PLAIN, KERNELS, CAPTURED, GRADIENT):
            for one in range(ROUND_PROGRAMS):
                seed = 77_000_000 + turn * ROUND_PROGRAMS + one
                check(kind, seed, [kind.modes[seed % len(kind.modes)]])

    return work


def threaded() -> Callable[[int], None]:
    """Return work of several threads that come and go."""
    x = xt.arange(20_000, dtype=xt.float64)
    right = float(xt.sum(x * 2.0))

    def work(turn: int) -> None:
        found: list[float] = []
        team = [threading.Thread(target=lambda: found.append(float(xt.sum(x * 2.0)))) for _ in range(4)]
        for one in team:
            one.start()
        for one in team:
            one.join()
        assert found == [right] * 4

    return work


WORK = {make.__name__: make for make in (training, simulation, convolving, sizes, functions, programs, threaded)}


# ---- what is looked at


def resident() -> tuple[int, int]:
    """Return the bytes of memory that this process holds, without what it could give back at once; and how much of
    that are pages of files: libraries' code and tables, of which each page is read in when it is first touched.
    """
    gc.collect()
    xt.memory.trim()
    if hasattr(LIBC, "malloc_trim"):
        LIBC.malloc_trim(0)
    with open("/proc/self/statm", encoding="ascii") as file:
        _, held, shared, *_ = (int(one) * os.sysconf("SC_PAGE_SIZE") for one in file.read().split())
    return held, shared


class _Malloc(ctypes.Structure):
    """What glibc says of its memory: `uordblks` is in use, `hblkhd` was mapped alone."""

    _names = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
    _fields_ = [(name, ctypes.c_size_t) for name in _names]


def in_use() -> int:
    """Return the bytes that malloc has given away and Python's own blocks, without what lies unused between them; 0
    where malloc cannot be asked.
    """
    if not hasattr(LIBC, "mallinfo2"):
        return 0
    LIBC.mallinfo2.restype = _Malloc
    now = LIBC.mallinfo2()
    return int(now.uordblks + now.hblkhd) + PYTHON_BLOCK * sys.getallocatedblocks()


def caches(folder: str) -> dict[str, tuple[int, int]]:
    """Return how much is in each cache, and its bound."""
    files = sum(file.stat().st_size for file in Path(folder).iterdir())
    return {
        "kernels in memory": (compiling.cached(), compiling.CODES),
        "kernels on disk, kB": (files >> 10, (disk.MOST_BYTES >> 10) * 5 // 4 + 256),
        "programs": (len(program._programs), program.REMEMBERED),
        "plans": (len(fusion._plans), program.REMEMBERED),
        "schedules": (sum(len(one.schedules) for one in fusion._plans.values()), program.REMEMBERED * prepare.WAYS),
        "graphs known": (len(replay._known), replay.REMEMBERED),
        "graphs met": (len(replay._met), replay.REMEMBERED),
        "seconds spent": (len(engines._spent), engines.REMEMBERED),
        "signatures": (len(node.signatures), node.SIGNATURES),
        "result dtypes": (len(node.result_dtypes), node.SIGNATURES),
        "kinds of reductions": (max(len(op.reduced) for op in REGISTRY.values()), compositions.REMEMBERED),
        "results remembered": (max(one.cache_info().currsize for _, _, one in remembering()), SHORT),
        "convolutions and pools": (len(sweeps._runs), sweeps.KINDS),
        "other machine code": (compiling.handmade.cache_info().currsize, 512),
        "products": (gemm.kernel_of.cache_info().currsize, gemm.kernel_of.cache_parameters()["maxsize"]),
        "pending nodes": (len(executor.ledger._nodes), 1 << 12),
        "threads": (threading.active_count(), 8),
        "pool in use, kB": (POOL.stats().in_use >> 10, 1 << 15),
    }


class Series:
    """What was measured, look after look: a number kept for each round would itself be memory that grows."""

    def __init__(self) -> None:
        self.memory: list[int] = []
        self.files: list[int] = []
        self.used: list[int] = []
        self.most: dict[str, tuple[int, int]] = {}
        self.seconds: dict[str, list[float]] = {name: [] for name in WORK}
        self._took: dict[str, list[float]] = {name: [] for name in WORK}  # since the last look

    def took(self, name: str, seconds: float) -> None:
        """Note the processor time of one round of a kind of work."""
        self._took[name].append(seconds)

    def look(self, folder: str) -> None:
        for name, took in self._took.items():
            self.seconds[name].append(statistics.median(took))
            took.clear()
        held, files = resident()
        self.memory.append(held)
        self.files.append(files)
        self.used.append(in_use())
        for name, (size, bound) in caches(folder).items():
            self.most[name] = max(self.most.get(name, (0, bound)), (size, bound))

    def table(self) -> tuple[str, bool]:
        """Return the table, and whether everything is as it should be."""
        rows, good = [f"{'':24}{'first':>12}{'last':>12}{'change':>10}"], True

        def row(name: str, first: float, last: float, most: float, form: str) -> None:
            nonlocal good
            good &= last <= first * most
            text = f"{name:24}{first:12{form}}{last:12{form}}{last / first - 1:10.1%}"
            rows.append(text + ("" if last <= first * most else "  !"))

        row("memory, MB", *ends([one / 1e6 for one in self.memory]), 1 + GROWTH, ".1f")
        row("of it files', MB", *ends([one / 1e6 for one in self.files]), math.inf, ".1f")
        row("least in use, MB", *ends([max(one / 1e6, 1e-6) for one in self.used], min), math.inf, ".1f")
        rows.append("memory by eighths: " + " ".join(f"{one / 1e6:.1f}" for one in eighths(self.memory)))
        for name, series in self.seconds.items():
            row(f"{name}, ms", *ends([one * 1e3 for one in series]), SLOWER, ".2f")
        rows.append(f"{'':24}{'most':>12}{'bound':>12}")
        for name, (size, bound) in self.most.items():
            good &= size <= bound
            rows.append(f"{name:24}{size:12}{bound:12}" + ("" if size <= bound else "  !"))
        return "\n".join(rows), good


def ends(series: list[float], of: Callable[[list[float]], float] = statistics.median) -> tuple[float, float]:
    """Return the medians of the first and of the last quarter of what comes after warming up, or what `of` gives."""
    steady = series[len(series) // 4 :]
    part = max(len(steady) // 4, 1)
    return of(steady[:part]), of(steady[-part:])


def eighths(series: list[int]) -> list[float]:
    """Return the medians of the eighths of a series, warming up included."""
    return [statistics.median(series[len(series) * i // 8 : len(series) * (i + 1) // 8]) for i in range(8)]


def remembering() -> list[tuple[Any, str, Any]]:
    """Return the functions of the package that remember results up to a bound, and all modules and names they have."""
    modules = [module for name, module in sys.modules.items() if name.partition(".")[0] == "xtensor"]
    named = [(module, name, one) for module in modules for name, one in vars(module).items()]
    kept = [(*where, one) for *where, one in named if isinstance(one, _lru_cache_wrapper)]
    return [(module, name, one) for module, name, one in kept if one.cache_parameters()["maxsize"] is not None]


@contextmanager
def small_caches() -> Iterator[None]:
    """Set the bounds of all caches."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name, bound in BOUNDS:
            patch.setattr(module, name, bound)
        short: dict[Any, Any] = {}
        for module, name, one in remembering():
            most = min(one.cache_parameters()["maxsize"], SHORT)
            patch.setattr(module, name, short.setdefault(one, lru_cache(most)(one.__wrapped__)))
        yield


def soak(seconds: float, first: int = 0) -> tuple[str, bool]:
    """Work for so long; return the table, and whether it is as it should be."""
    with tempfile.TemporaryDirectory() as folder, xt.options(cache_dir=folder), warnings.catch_warnings():
        warnings.simplefilter("error")
        with small_caches():
            return _soak(seconds, first, folder)


def _soak(seconds: float, first: int, folder: str) -> tuple[str, bool]:
    work = {name: make() for name, make in WORK.items()}
    series, begin, turn = Series(), time.perf_counter(), first
    while time.perf_counter() - begin < seconds or len(series.memory) < 8:
        for name, task in work.items():
            started = time.process_time()
            task(turn)
            series.took(name, time.process_time() - started)
        turn += 1
        if (turn - first) % LOOK == 0:
            series.look(folder)
    text, good = series.table()
    return f"{turn - first} rounds in {time.perf_counter() - begin:.0f} s\n{text}", good


def main() -> int:
    parser = argparse.ArgumentParser(description="Mixed work: memory, caches and times over a long run.")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--arenas", type=int, default=0, help="of glibc's malloc, at most; 0 for as many as it makes")
    given = parser.parse_args()
    if given.arenas and not LIBC.mallopt(M_ARENA_MAX, given.arenas):
        parser.error("malloc takes no number of arenas here")
    text, good = soak(given.minutes * 60)
    print(text, flush=True)
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())

"""Guard pages: memory of xtensor's that ends the process when anybody reads or writes beyond it.

Inside `guarded()` every block that xtensor allocates - results, temporaries in an arena, scratch memory of kernels, the
words that machine code is told, NumPy's own empty and zeroed arrays - lies between pages that may not be touched. A
block begins at a multiple of 64 bytes, as the pool's do; by turns it lies against the page before it or the page behind
it. What is left between its end and the next page, up to 63 bytes, is marked and looked at when the block dies; blocks
of whole multiples of 64 bytes leave nothing, and the programs below read and write views of them that end anywhere.

    python -m tests.guards --kind kernels --count 2000 --seed 1

runs random programs so in a process of its own, and prints the program in which that ended;

    python -m pytest -p tests.guards tests/test_launch.py tests/test_columns.py tests/test_conv.py

runs tests so.
"""

from __future__ import annotations

import argparse
import ctypes
import faulthandler
import mmap
import os
import subprocess
import sys
import threading
import warnings
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent))  # for the process that runs the programs

import numpy as np
import numpy.ma  # whose import looks into the documentation of numpy.empty
import pytest
from programs import KINDS, Kind, ProgramError
from programs.kinds import check

from xtensor.devices import cpu
from xtensor.plan.arena import Arena
from xtensor.run import native, prepare
from xtensor.run.schedule import Schedule
from xtensor.standard import creation
from xtensor.storage import pool

PAGE = mmap.PAGESIZE
MARK = 0xA5
PROT_NONE = 0

if os.name == "nt":
    pytest.skip("pages are forbidden by mprotect, which Windows lacks", allow_module_level=True)
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def forbid(address: int, nbytes: int) -> None:
    """Let nobody touch some pages any more."""
    if _libc.mprotect(address, nbytes, PROT_NONE):
        raise OSError(ctypes.get_errno(), "mprotect")


class Expected(threading.local):
    """The size of the arena that this thread allocates next, -1 where it allocates something else."""

    size = -1


class Arenas:
    """Where arenas have pages that nobody may touch. A size stands for one arena: no two have the same."""

    def __init__(self) -> None:
        self.expected = Expected()
        self.guards: dict[int, list[int]] = {}

    def enter(self, builder: Any) -> None:
        """Take in a schedule's arenas before it is made, making their size one that no other has."""
        kept, passing = builder.arena, builder.temporaries
        while (size := kept.nbytes + passing.nbytes) in self.guards:
            passing.nbytes += PAGE
        self.guards[size] = [*kept.guards, *(kept.nbytes + begin for begin in passing.guards)]


class GuardedArena(Arena):
    """An arena in which nothing shares a place and each value has pages of its own, between such as are forbidden."""

    def __init__(self) -> None:
        super().__init__()
        self.guards: list[int] = []

    def place(self, number: int, nbytes: int) -> int:
        pages = -(-max(nbytes, 1) // PAGE) * PAGE
        begin = self.nbytes + PAGE
        self.guards += [self.nbytes, begin + pages]
        self.nbytes = begin + pages + PAGE
        rounded = -(-nbytes // pool.ALIGNMENT) * pool.ALIGNMENT
        return begin + (pages - rounded if len(self.guards) % 4 else 0)

    def apart(self, nbytes: int) -> int:
        return self.place(0, nbytes)

    def release(self, number: int) -> None:
        pass


class Guarded:
    """Gives memory between guard pages. given: how many blocks; broken: what was written beyond a block's end."""

    def __init__(self) -> None:
        self.given = 0
        self.broken: list[str] = []
        self.arenas = Arenas()

    def lend(self, nbytes: int) -> tuple[Any, int]:
        """Return what keeps a block alive, and its address, as Pool.lend does."""
        self.given += 1
        pages = -(-max(nbytes, 1) // PAGE) * PAGE
        memory = mmap.mmap(-1, pages + 2 * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        begin = pool.address_of(memory)
        rounded = -(-nbytes // pool.ALIGNMENT) * pool.ALIGNMENT
        start = PAGE + (pages - rounded if self.given % 4 else 0)
        forbid(begin, PAGE)
        forbid(begin + PAGE + pages, PAGE)
        if self.arenas.expected.size == nbytes:
            self.arenas.expected.size = -1
            for guard in self.arenas.guards[nbytes]:
                forbid(begin + start + guard, PAGE)
        keeper = np.ndarray(pages, np.uint8, memory, PAGE).view(_Keeper)
        end = start - PAGE + nbytes
        left = min(rounded - nbytes, pages - end) if nbytes else 0
        if left:
            np.ndarray.__setitem__(keeper, slice(end, end + left), MARK)
            weakref.finalize(keeper, self._look, memory, PAGE + end, left).atexit = False
        return keeper, begin + start

    def _look(self, memory: Any, begin: int, nbytes: int) -> None:
        if memory[begin : begin + nbytes] != bytes([MARK]) * nbytes:
            self.broken.append(f"written into the {nbytes} bytes behind a block")

    def array(self, shape: Any, dtype: Any = float, *args: Any, **keywords: Any) -> Any:
        """Return what numpy.empty does, between guard pages."""
        if args or keywords or np.dtype(dtype).hasobject:
            return _empty(shape, dtype, *args, **keywords)
        shape = tuple(shape) if hasattr(shape, "__iter__") else (int(shape),)
        nbytes = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        keeper, address = self.lend(nbytes)
        return np.ndarray(shape, dtype, keeper, address - pool.address_of(keeper))

    def zeros(self, shape: Any, dtype: Any = float, *args: Any, **keywords: Any) -> Any:
        """Return what numpy.zeros does, between guard pages."""
        if args or keywords or np.dtype(dtype).hasobject:
            return _zeros(shape, dtype, *args, **keywords)
        return self.array(shape, dtype)  # fresh pages are zeros

    def call(self, laid: Any) -> Any:
        """Return what enters a driver with the words of a run between guard pages."""

        def guarded_call(words: Any) -> None:
            if isinstance(words, ctypes.c_char_p):  # a driver that enters another one
                laid(words)
                return
            rounded = -(-len(words) // 8) * 8
            keeper, address = self.lend(-(-rounded // pool.ALIGNMENT) * pool.ALIGNMENT)
            address += -rounded % pool.ALIGNMENT
            ctypes.memmove(address, words, len(words))
            laid(ctypes.c_char_p(address))
            del keeper

        return guarded_call


class _Keeper(np.ndarray):  # type: ignore[type-arg]
    """The pages between two that are forbidden; views keep it as their base, as they keep blocks of the pool."""


_empty, _zeros = np.empty, np.zeros


@contextmanager
def guarded() -> Iterator[Guarded]:
    """Have all memory of xtensor's lie between guard pages; raises AssertionError where marks were overwritten."""
    memory = Guarded()
    plain_schedule, plain_laid, plain_run = prepare.Builder.schedule, native.Laid.__init__, Schedule.run

    def schedule(builder: Any, results: Any, **_: Any) -> Any:  # every run has an arena between guards, and keeps none
        memory.arenas.enter(builder)
        return plain_schedule(builder, results)

    def laid(self: Any, *args: Any) -> None:
        plain_laid(self, *args)
        self._call = memory.call(self._call)

    def run(self: Schedule, *args: Any) -> Any:
        size = self.facts.arena[1]
        memory.arenas.expected.size = size if size in memory.arenas.guards else -1
        return plain_run(self, *args)

    def aligned(make: Any, nbytes: int) -> Any:
        return pool.cut(*memory.lend(nbytes), nbytes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool.Pool, "lend", lambda pool, nbytes: memory.lend(nbytes))
        for limit in ("POOLED", "REUSED", "BY_PARTS"):
            patch.setattr(cpu, limit, 0)
        patch.setattr(creation, "DIRECT_BELOW", -1)  # copies of NumPy's arrays, too
        patch.setattr(prepare, "Arena", GuardedArena)
        patch.setattr(prepare.Builder, "schedule", schedule)
        patch.setattr(native.Laid, "__init__", laid)
        patch.setattr(Schedule, "run", run)
        patch.setattr(cpu, "aligned", aligned)
        patch.setattr(np, "empty", memory.array)
        patch.setattr(np, "zeros", memory.zeros)
        yield memory
    assert not memory.broken, memory.broken


@pytest.fixture(autouse=True)
def _on_guarded_memory() -> Iterator[None]:
    """Run every test between guard pages where this file is a plugin."""
    with guarded():
        yield


# ---- random programs between guard pages


def run(kind: Kind, seed: int, count: int, modes: Iterable[str]) -> int:
    """Run programs here; return how many differ from their oracle. Where they are is said on standard error."""
    found = 0
    with guarded() as memory:
        for one in range(seed * 1_000_000, seed * 1_000_000 + count):
            for mode in modes:
                print(f"{one} {mode}", file=sys.stderr, flush=True)
                try:
                    check(kind, one, [mode])
                except ProgramError as failure:
                    found += 1
                    print(failure, flush=True)
    print(f"{kind.name}: seed {seed}, count {count}, {memory.given} blocks, {found} differ", flush=True)
    return found


def run_apart(kind: Kind, seed: int, count: int, modes: Iterable[str]) -> str:
    """Run programs in a process of its own; return what it printed and, where it was ended, the program it was at."""
    names = ["--kind", kind.name, "--seed", str(seed), "--count", str(count), "--modes", *modes]
    command = [sys.executable, "-m", "tests.guards", "--here", *names]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).resolve().parent.parent)
    if done.returncode in (0, 1):
        return done.stdout + (done.stderr if done.returncode and not done.stdout else "")
    at = next(line for line in reversed(done.stderr.splitlines()) if line[:1].isdigit())
    number, _, mode = at.partition(" ")
    program = "\n".join(f"    {line}" for line in kind.make(int(number), mode).lines)
    return f"{done.stdout}ended by {-done.returncode} at program {number}, {kind.name}, mode {mode}\n{program}"


def main() -> int:
    parser = argparse.ArgumentParser(description="Run random programs on memory between guard pages.")
    parser.add_argument("--kind", default="kernels", choices=list(KINDS))
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--modes", nargs="*", default=[], help="all of the kind's, if none is named")
    parser.add_argument("--here", action="store_true", help="in this process, which an access beyond a block ends")
    given = parser.parse_args()
    kind = KINDS[given.kind]
    what = kind, given.seed, given.count, given.modes or kind.modes
    if given.here:
        faulthandler.enable()
        warnings.simplefilter("error")
        return min(run(*what), 1)
    print(report := run_apart(*what))
    return int(" 0 differ" not in report)


if __name__ == "__main__":
    sys.exit(main())

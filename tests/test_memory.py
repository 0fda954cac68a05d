"""The pool and `xt.memory`: alignment, reuse, what keeps memory alive, the policy, and bad weather."""

from __future__ import annotations

import ctypes
import gc
import os
import random
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import xtensor as xt
from xtensor import memory
from xtensor.base import machine
from xtensor.calls import op as calls
from xtensor.calls.op import REGISTRY
from xtensor.codegen.cpu import compile as compiling
from xtensor.codegen.cpu.compile import handmade, host
from xtensor.devices import as_device
from xtensor.graph import node
from xtensor.plan import fusion as plan
from xtensor.run import replay
from xtensor.storage import pool
from xtensor.storage.pool import IDLE_SECONDS, POOLED, WAITING, Pool, size_class

KIB, MIB = 1 << 10, 1 << 20
SIZES = [0, 1, 63, 64, 65, 1000, POOLED - 1, POOLED, POOLED + 1, 100_000, MIB, 2 * MIB, 2 * MIB + 1, 5 * MIB, 33 * MIB]

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time the pool sees, as a list of one number that a test can change."""
    now = [1000.0]
    monkeypatch.setattr(pool, "monotonic", lambda: now[0])
    return now


def address(array: Any) -> int:
    return array.__array_interface__["data"][0]


def in_child(work: Callable[[], bool]) -> bool:
    """Return whether `work` returns True in a forked child."""
    child = os.fork()
    if not child:
        signal.alarm(20)  # a deadlock ends, too
        done = False
        try:
            done = work()
        finally:
            os._exit(0 if done else 1)
    return os.waitpid(child, 0)[1] == 0


# ---- what allocate gives


@pytest.mark.parametrize("nbytes", SIZES)
def test_bytes_are_plain_exact_aligned_and_writable(nbytes: int) -> None:
    mine = Pool()
    for _ in range(3):  # fresh, and used before
        memory = mine.allocate(nbytes)
        assert type(memory) is np.ndarray and memory.dtype == np.uint8 and memory.shape == (nbytes,)
        assert memory.flags.writeable and memory.flags.c_contiguous
        assert nbytes == 0 or address(memory) % 64 == 0
        assert nbytes < POOLED or address(memory) % 4096 == 0
        memory[...] = 7
        assert memory.sum(dtype=int) == 7 * nbytes
        del memory


def test_size_classes_waste_at_most_an_eighth() -> None:
    draw = random.Random(0)
    for nbytes in [POOLED, POOLED + 1, *(draw.randrange(POOLED, 1 << 33) for _ in range(2000))]:
        size = size_class(nbytes)
        assert nbytes <= size <= nbytes * 9 / 8 and size % 64 == 0
        assert size_class(size) == size
    assert len({size_class(n) for n in range(MIB + 1, 2 * MIB + 1, 1000)}) == 8


@pytest.mark.parametrize("nbytes", [POOLED + 1, 300_000, 3 * MIB, 40 * MIB])
def test_memory_is_used_again(nbytes: int) -> None:
    mine = Pool()
    first = mine.allocate(nbytes)
    where = address(first)
    assert mine.stats().in_use == size_class(nbytes) and mine.stats().misses == 1
    del first
    assert mine.stats().in_use == 0 and mine.stats().idle == size_class(nbytes)
    again = mine.allocate(nbytes - 1)
    assert address(again) == where
    other = mine.allocate(nbytes)
    assert not np.shares_memory(again, other)
    stats = mine.stats()
    assert (stats.hits, stats.misses, stats.idle) == (1, 2, 0)
    assert stats.peak == stats.in_use == 2 * size_class(nbytes)


def test_small_memory_is_not_pooled() -> None:
    mine = Pool()
    mine.allocate(POOLED - 1)
    assert mine.stats().misses == mine.stats().hits == mine.stats().idle == 0


# ---- what keeps memory alive

VIEWS: dict[str, Callable[[Any], Any]] = {
    "itself": lambda m: m,
    "slice": lambda m: m[10:],
    "slice of a slice": lambda m: m[10:][5:][::-1],
    "reshape": lambda m: m[:100].reshape(10, 10).T,
    "view": lambda m: m[: len(m) // 8 * 8].view(np.float64),
    "subclass": lambda m: m.view(np.matrix),
    "over it": lambda m: np.ndarray((3, 4), np.float32, m, 64, (16, 4)),
    "over a view": lambda m: np.ndarray((3,), np.int16, m[64:].view(np.int16)[4:], 2),
    "asarray": lambda m: np.asarray(m.view(np.int8)),
    "strided": lambda m: np.lib.stride_tricks.as_strided(m, (4, 5), (8, 1)),
    "broadcast": lambda m: np.broadcast_to(m, (2, len(m))),
    "memoryview": lambda m: memoryview(m)[7:],
    "frombuffer": lambda m: np.frombuffer(m, np.uint16, 100),
    "dlpack": lambda m: np.from_dlpack(m[8:]),
    "capsule": lambda m: m.__dlpack__(),
    "interface": lambda m: np.asarray(type("Face", (), {"of": m, "__array_interface__": m.__array_interface__})()),
    "iterator": lambda m: np.nditer(m),
    "flat": lambda m: m.flat,
    "field": lambda m: m[:96].view([("a", "f4"), ("b", "f8")])["b"],
    "closure": lambda m: lambda: m,
}


@pytest.mark.parametrize("nbytes", [POOLED, 2 * MIB])
@pytest.mark.parametrize("see", VIEWS.values(), ids=VIEWS.keys())
def test_every_view_keeps_it_alive(see: Callable[[Any], Any], nbytes: int) -> None:
    mine = Pool()
    view = see(mine.allocate(nbytes))
    gc.collect()
    assert mine.stats().in_use == size_class(nbytes), "it came back while something looked at it"
    other = mine.allocate(nbytes)
    assert mine.stats().misses == 2
    del view, other
    gc.collect()
    assert mine.stats().in_use == 0 and mine.stats().idle == 2 * size_class(nbytes)


def test_a_copy_does_not() -> None:
    mine = Pool()
    copy = mine.allocate(POOLED)[:100].copy()
    assert mine.stats().in_use == 0 and len(copy) == 100


def test_it_cannot_be_resized() -> None:
    with pytest.raises(ValueError, match="does not own its data"):
        Pool().allocate(POOLED).resize(10)


def test_contents_stay_under_churn() -> None:
    mine, draw = Pool(limit=20 * MIB), random.Random(1)
    alive: list[tuple[Any, int]] = []
    for turn in range(3000):
        if len(alive) > 12 or (alive and draw.random() < 0.4):
            array, mark = alive.pop(draw.randrange(len(alive)))
            assert array[0] == array[-1] == array[len(array) // 2] == mark
        else:
            array = draw.choice([lambda m: m, lambda m: m[5:-5], lambda m: m.reshape(1, -1)[0]])(
                mine.allocate(int(2 ** draw.uniform(16, 22)))
            )
            array[[0, -1, len(array) // 2]] = turn % 251
            alive.append((array, turn % 251))
        if turn % 500 == 0:
            mine.trim()
    alive.clear()
    del array
    stats = mine.stats()
    assert stats.in_use == 0 and stats.idle <= stats.limit and stats.hits > stats.misses


def test_memory_outlives_its_pool() -> None:
    mine = Pool()
    gone, array = weakref.ref(mine), mine.allocate(MIB)
    mine.allocate(MIB)  # and one that is idle
    array[...] = 3
    del mine
    gc.collect()
    assert gone() is None and (array == 3).all()


# ---- the policy


def idle_after(mine: Pool, *sizes: int) -> None:
    """Leave blocks of these sizes idle."""
    arrays = [mine.allocate(size) for size in sizes]
    del arrays


def test_a_larger_idle_block_serves_when_little_is_wasted() -> None:
    mine = Pool()
    idle_after(mine, 400 * MIB)
    mine.allocate(380 * MIB)
    mine.allocate(330 * MIB)
    assert mine.stats().hits == 2 and mine.stats().misses == 1
    mine.allocate(290 * MIB)  # more than a quarter of the block would be waste
    assert mine.stats().misses == 2


def test_a_chain_holds_what_is_live_and_one_idle_set() -> None:
    mine = Pool()
    result = mine.allocate(400 * MIB)
    for _ in range(20):
        fresh = mine.allocate(400 * MIB)
        result = fresh
        del fresh
        stats = mine.stats()
        assert stats.in_use + stats.idle <= 2 * size_class(400 * MIB)
    assert mine.stats().misses == 2
    del result


def test_idle_blocks_make_room_for_another_size() -> None:
    mine = Pool()
    idle_after(mine, 400 * MIB)
    small = mine.allocate(200 * MIB)
    stats = mine.stats()
    assert stats.idle == 0 and stats.peak == size_class(400 * MIB) and stats.returned == stats.peak
    del small


def test_they_stay_while_the_peak_is_not_exceeded() -> None:
    mine = Pool()
    idle_after(mine, 100 * MIB, 200 * MIB, 300 * MIB)
    keep = mine.allocate(300 * MIB)
    idle_after(mine, 200 * MIB)
    idle_after(mine, 100 * MIB)
    assert mine.stats().hits == 3 and mine.stats().returned == 0
    del keep


def test_a_few_small_sizes_need_not_make_room() -> None:
    mine = Pool()
    for size in (4 * MIB, 2 * MIB, MIB, 512 * KIB):
        idle_after(mine, size)
    assert mine.stats().returned == 0


def test_alternating_sizes_settle() -> None:
    mine = Pool()
    for _ in range(10):
        idle_after(mine, 400 * MIB)
        idle_after(mine, 200 * MIB)
    stats = mine.stats()
    assert stats.misses == 3 and stats.hits == 17
    assert stats.idle == size_class(400 * MIB) + size_class(200 * MIB)


def test_the_limit_holds_and_the_largest_go_first() -> None:
    mine = Pool(limit=100 * MIB)
    idle_after(mine, 40 * MIB, 30 * MIB, 20 * MIB)
    assert mine.stats().idle == 90 * MIB and mine.stats().returned == 0
    arrays = [mine.allocate(size * MIB) for size in (40, 30, 20, 10, 8)]
    del arrays
    assert mine.stats().idle == 68 * MIB and mine.stats().returned == 40 * MIB
    idle_after(mine, 400 * MIB)  # larger than the limit: not kept for a moment
    assert mine.stats().idle <= 100 * MIB
    mine.limit = 25 * MIB
    assert mine.stats().idle <= 25 * MIB
    mine.limit = 0
    idle_after(mine, MIB)
    assert mine.stats().idle == 0 and mine.stats().limit == 0


def test_trim_returns_what_was_idle() -> None:
    mine = Pool()
    idle_after(mine, MIB, 5 * MIB)
    keep = mine.allocate(MIB)
    assert mine.trim() == 5 * MIB
    assert mine.trim() == 0
    stats = mine.stats()
    assert stats.idle == 0 and stats.in_use == MIB and stats.returned == 5 * MIB
    del keep


def test_old_blocks_are_dropped(clock: list[float]) -> None:
    mine = Pool()
    idle_after(mine, MIB, MIB, 3 * MIB)
    clock[0] += IDLE_SECONDS - 1
    idle_after(mine, MIB)  # used, so young again
    clock[0] += 2
    assert mine.stats().idle == MIB
    clock[0] += IDLE_SECONDS
    assert mine.stats().idle == 0 and mine.stats().returned == 5 * MIB


def test_mistakes_are_forgotten_in_time(clock: list[float]) -> None:
    mine = Pool()
    idle_after(mine, 400 * MIB)
    idle_after(mine, 200 * MIB)  # drops the 400
    clock[0] += IDLE_SECONDS + 2
    idle_after(mine, 200 * MIB)
    idle_after(mine, 400 * MIB)  # long since: the 200 makes room
    assert mine.stats().idle == size_class(400 * MIB)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_dropped_blocks_go_back_to_the_system() -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")

    mine = Pool()
    before = resident()
    mine.allocate(64 * MIB)[...] = 1
    assert resident() > before + 60 * MIB
    mine.trim()
    assert resident() < before + 4 * MIB


# ---- no room


def test_no_room_leaves_everything_as_it_was() -> None:
    mine = Pool()
    keep = mine.allocate(MIB)
    keep[...] = 5
    idle_after(mine, 2 * MIB)
    for nbytes in (1 << 50, 1 << 62, 1 << 70):
        with pytest.raises(MemoryError, match="^allocate: nbytes must fit into memory, got "):
            mine.allocate(nbytes)
    stats = mine.stats()
    assert stats.in_use == stats.peak - 2 * MIB == MIB and stats.misses == 2
    assert (keep == 5).all() and len(mine.allocate(2 * MIB)) == 2 * MIB


def test_idle_memory_is_given_up_before_an_allocation_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    mine, make = Pool(), pool._fresh_block
    idle_after(mine, 2 * MIB)

    def scarce(nbytes: int) -> Any:
        if mine.stats().idle:
            raise MemoryError
        return make(nbytes)

    monkeypatch.setattr(pool, "_fresh_block", scarce)
    keep = mine.allocate(MIB)
    assert mine.stats().returned == 2 * MIB and mine.stats().in_use == keep.nbytes == MIB


def test_the_backend_says_no_room_in_its_own_words() -> None:
    backend = as_device("cpu", "tests").backend
    for nbytes in (1 << 50, 1 << 70):
        with pytest.raises(MemoryError, match="^empty: shape must fit into memory, got "):
            backend.allocate(nbytes)
        with pytest.raises(MemoryError, match="^zeros: shape must fit into memory, got "):
            backend.zeros((nbytes,), np.dtype("int64"))


@pytest.mark.parametrize("shape", [(), (0,), (0, 1 << 40), (3, 5), (300, 400), (1 << 20,)])
def test_zeros(shape: tuple[int, ...]) -> None:
    array = as_device("cpu", "tests").backend.zeros(shape, np.dtype("complex64"))
    assert array.shape == shape and array.dtype == np.complex64 and array.flags.writeable and not array.any()
    assert array.nbytes < POOLED or address(array) % 64 == 0


# ---- bad weather


def hammer(mine: Pool, seed: int, failures: list[str]) -> None:
    draw, alive = random.Random(seed), []
    for turn in range(1500):
        array = mine.allocate(int(2 ** draw.uniform(15, 20)))
        array[:64] = array[-64:] = seed
        alive.append(array)
        if len(alive) > 6:
            old = alive.pop(draw.randrange(7))
            if not ((old[:64] == seed).all() and (old[-64:] == seed).all()):
                failures.append(f"thread {seed} lost its values in turn {turn}")
        if turn % 300 == 0:
            mine.trim()
            mine.stats()


def test_threads_hammer_one_pool() -> None:
    mine, failures = Pool(limit=4 * MIB), []
    threads = [threading.Thread(target=hammer, args=(mine, seed, failures)) for seed in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert mine.stats().in_use == 0 and mine.stats().idle <= 4 * MIB


def test_arrays_may_die_in_another_thread() -> None:
    mine = Pool()
    arrays = [mine.allocate(MIB) for _ in range(20)]
    thread = threading.Thread(target=arrays.clear)
    thread.start()
    thread.join()
    assert mine.stats().in_use == 0 and mine.stats().idle == 20 * MIB


class Cycle:
    """Garbage that only the collector finds, holding pool memory and using the pool as it dies."""

    def __init__(self, mine: Pool, log: list[int]) -> None:
        self.array, self.me, self.pool, self.log = mine.allocate(MIB), self, mine, log

    def __del__(self) -> None:
        self.log.append(self.pool.allocate(MIB).nbytes)
        self.pool.trim()
        self.pool.stats()


def test_the_collector_may_run_inside_any_call() -> None:
    mine, log = Pool(), []
    before = gc.get_threshold()
    gc.set_threshold(3)
    try:
        for _ in range(300):
            Cycle(mine, log)
            mine.allocate(100_000)
            mine.stats()
            mine.trim()
    finally:
        gc.set_threshold(*before)
    gc.collect()
    assert log == [MIB] * 300
    assert mine.stats().in_use == 0


def test_a_call_inside_every_step_of_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    # What a finalizer or signal handler may do between any two lines, provoked between all of them
    mine, inner = Pool(limit=8 * MIB), []

    def trace(frame: Any, event: str, _: Any) -> Any:
        if frame.f_code.co_filename == pool.__file__ and event == "line" and not inner:
            inner.append(1)
            array = mine.allocate(MIB)
            array[...] = 9
            mine.stats()
            if frame.f_lineno % 3 == 0:
                mine.trim()
            del array
            inner.clear()
        return trace

    previous = sys.gettrace()
    sys.settrace(trace)
    try:
        kept = [mine.allocate(2 * MIB) for _ in range(3)]
        for mark, array in enumerate(kept):
            array[...] = mark
        idle_after(mine, MIB, 4 * MIB)
        mine.trim()
        idle_after(mine, MIB, MIB)
    finally:
        sys.settrace(previous)
    assert [set(array.tolist()) for array in kept] == [{0}, {1}, {2}]
    assert mine.stats().in_use == 6 * MIB
    del kept, array
    assert mine.stats().in_use == 0 and mine.trim() > 0 and mine.stats().idle == 0


def test_an_interrupt_before_the_owner_has_its_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is lost, and nothing given back twice."""
    mine = Pool()

    class HitError(Exception):
        pass

    def short(*given: Any) -> Any:
        made = owner(*given)
        if place == "before":
            raise HitError
        return made

    owner = mine._owner
    for place in ("before", "never"):
        monkeypatch.setattr(mine, "_owner", short)
        if place == "before":
            with pytest.raises(HitError):
                mine.lend(MIB)
        else:
            memory, _ = mine.lend(MIB)
            assert mine.stats().in_use == MIB
            del memory
        assert mine.stats().in_use == 0


def test_blocks_that_wait_count_to_the_limit() -> None:
    mine = Pool(16 * MIB)
    for block in [mine._take(size * MIB) for size in (16, 8, 5, 4, 3, 2)]:
        mine.take_back(block)
        assert mine._idle_bytes + sum(one.nbytes for one in mine._back) <= mine.limit


def test_an_interrupt_when_the_lock_has_just_been_taken() -> None:
    """The lock is given back, so that other threads find it free."""
    mine = Pool()

    class Interrupting:
        """The pool's lock, where an interrupt comes before the caller hears that it has taken it."""

        def __init__(self, lock: Any) -> None:
            self._lock = lock

        def __getattr__(self, name: str) -> Any:
            return getattr(self._lock, name)

        def acquire(self, blocking: bool = True) -> bool:
            self._lock.acquire(blocking)
            raise KeyboardInterrupt

    lock = mine._lock
    *waiting, block = [mine._take(4 * MIB) for _ in range(WAITING + 1)]
    for one in waiting:
        mine.take_back(one)  # these wait for the next call; with one more all are sorted in
    mine._lock = Interrupting(lock)
    with pytest.raises(KeyboardInterrupt):
        mine.take_back(block)
    mine._lock = lock
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(lock.acquire(False)))
    thread.start()
    thread.join()
    assert found == [True]


@needs_fork
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_fork_in_the_middle_of_use() -> None:
    mine, stop = Pool(), []
    keep = mine.allocate(MIB)
    keep[...] = 5
    idle_after(mine, MIB, 3 * MIB)

    def churn() -> None:
        while not stop:
            mine.allocate(2 * MIB)
            mine.trim()

    def work() -> bool:
        fresh = mine.stats().idle == 0  # the parent's pages are not written to
        array = mine.allocate(MIB)
        array[...] = 6
        idle_after(mine, MIB)
        return fresh and mine.stats().idle == MIB and mine.trim() == MIB and bool((keep == 5).all())

    threads = [threading.Thread(target=churn) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        assert all(in_child(work) for _ in range(10))
        with mine._lock:
            assert in_child(work)
    finally:
        stop.append(1)
        for thread in threads:
            thread.join()
    assert (keep == 5).all()


def test_exit_is_quiet() -> None:
    code = """
import threading, time
from xtensor.storage.pool import POOL
keep = [POOL.allocate(1 << 20) for _ in range(3)]
POOL.allocate(1 << 22)
class Late:
    def __init__(self): self.me, self.array = self, POOL.allocate(1 << 20)
    def __del__(self, allocate=POOL.allocate): self.array = allocate(1 << 20)
late = Late()
def churn():
    while True: POOL.allocate(1 << 18)
threading.Thread(target=churn, daemon=True).start()
time.sleep(0.05)
"""
    root = Path(__file__).resolve().parent.parent
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# ---- the limit of the machine


def test_the_limit_is_a_quarter_of_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def limit() -> int:
        pool._quarter_of_memory.cache_clear()
        return Pool().limit

    own = tmp_path / "own"
    monkeypatch.setattr(machine, "_OWN_CGROUPS", own)
    monkeypatch.setattr(machine, "_CGROUPS", tmp_path)
    monkeypatch.setattr(machine, "_physical_memory", lambda: 64 * MIB)
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "memory" / "c").mkdir(parents=True)
    try:
        assert limit() == 16 * MIB  # no groups at all
        own.write_text("0::/a/b\n", encoding="ascii")
        (tmp_path / "a" / "b" / "memory.max").write_text("max\n", encoding="ascii")
        assert limit() == 16 * MIB
        (tmp_path / "a" / "memory.max").write_text(f"{32 * MIB}\n", encoding="ascii")
        assert limit() == 8 * MIB  # a group around ours counts
        own.write_text("4:memory:/c/d\n3:cpu,cpuacct:/a/b\n", encoding="ascii")
        (tmp_path / "memory" / "c" / "memory.limit_in_bytes").write_text(f"{8 * MIB}\n", encoding="ascii")
        assert limit() == 2 * MIB
    finally:
        pool._quarter_of_memory.cache_clear()


# ---- xt.memory


@pytest.fixture
def _own_limit() -> Any:
    yield
    memory.set_limit(None)


def test_tensors_use_the_pool() -> None:
    memory.trim()
    before = memory.stats()
    x = xt.empty((1000, 1000)).evaluate()
    x.native()[...] = 1
    assert memory.stats().in_use - before.in_use == size_class(8_000_000)
    theirs = np.asarray(x)
    del x
    assert memory.stats().in_use - before.in_use == size_class(8_000_000) and (theirs == 1).all()
    del theirs
    gc.collect()
    assert memory.stats().in_use <= before.in_use
    assert memory.trim() >= size_class(8_000_000) and memory.stats().idle == 0


@pytest.mark.usefixtures("_own_limit")
def test_set_limit() -> None:
    memory.set_limit(3 * MIB)
    assert memory.stats().limit == 3 * MIB
    xt.empty((1000, 1000)).evaluate()
    assert memory.stats().idle <= 3 * MIB
    memory.set_limit(None)
    assert memory.stats().limit > 3 * MIB
    for wrong in (-1, 1.5, "4"):
        with pytest.raises(ValueError, match="^set_limit: nbytes must be a number of bytes or None, got "):
            memory.set_limit(wrong)  # type: ignore[arg-type]


# ---- caches of the package


def test_dtypes_of_results_are_forgotten_with_what_they_belong_to(monkeypatch: Any) -> None:
    """Structures have numbers; whoever remembers something by them has to forget it with them."""
    monkeypatch.setattr(node, "SIGNATURES", 32)
    with xt.options(lazy="always"):
        for n in range(2, 200):
            assert float(xt.sum(xt.ones((n, 1)) * xt.ones(3) + 1.0)) == 6.0 * n
            assert len(node.signatures) <= 32
            assert {*node.result_dtypes} <= {*node.signatures.values()}


def test_full_caches_forget_the_oldest_quarter(monkeypatch: Any) -> None:
    """Expressions of ever more steps: of their plans those made last are still known."""
    monkeypatch.setattr(plan, "REMEMBERED", 8)
    monkeypatch.setattr(plan, "_plans", {})
    for known in ("_known", "_met"):  # of what ran before in this process
        monkeypatch.setattr(replay, known, {})
    sizes, last = [], []
    with xt.options(lazy="always", engine="interpret"):
        for n in range(1, 21):
            y = xt.ones(10)
            for _ in range(n):
                y = y + 1.0
            y.evaluate()
            sizes.append(len(plan._plans))
            last.append(next(reversed(plan._plans)))
    assert sizes == [1, 2, 3, 4, 5, 6, 7, 8] + 6 * [7, 8]
    assert [*plan._plans] == last[-8:]


def test_reductions_of_many_shapes_are_forgotten(monkeypatch: Any) -> None:
    monkeypatch.setattr(calls, "REMEMBERED", 8)
    for op in REGISTRY.values():  # of what ran before in this process
        monkeypatch.setattr(op, "reduced", {})
    with xt.options(lazy="always"):
        for n in range(1, 40):
            assert float(xt.mean(xt.arange(n, dtype=xt.float64))) == (n - 1) / 2
            assert 0 < max(len(op.reduced) for op in REGISTRY.values()) <= 8


@pytest.mark.skipif(host() is None, reason="there is no compiler here")
def test_code_that_stays_keeps_no_dropped_kernels() -> None:
    """What lays out kernels that come and go is given back with the last of them: nothing else is in it."""
    with xt.options(engine="llvm", lazy="always", cache_dir=""):
        (xt.ones(1000) * 1.5 + 0.25).evaluate()
    handmade("define void @kernel(ptr %x) {\nentry:\n  %kept = add i64 1, 2\n  ret void\n}\n")
    assert compiling._linkers[True][0] is not compiling._linkers[False][0]


LIBC: Any = ctypes.CDLL(None) if os.name == "posix" else None


class Mallinfo(ctypes.Structure):
    """What glibc says of its memory; the eighth number is what is in use."""

    _fields_ = [("numbers", ctypes.c_size_t * 10)]


@pytest.mark.skipif(host() is None, reason="there is no compiler here")
@pytest.mark.skipif(not hasattr(LIBC, "mallinfo2"), reason="only glibc says what is in use")
def test_a_text_leaves_nothing_behind_in_llvm() -> None:
    """Its numbers and types are dropped with it: in LLVM's global context 50 numbers are some 5 kB for ever."""

    def in_use() -> int:
        LIBC.mallinfo2.restype = Mallinfo
        return int(LIBC.mallinfo2().numbers[7])

    def compiled(numbers: range) -> None:
        lines = "".join(f"  %v{n} = add i64 %v{n - 1}, {n << 20}\n" for n in numbers)
        text = f"define i64 @kernel(i64 %v{numbers[0] - 1}) {{\nentry:\n{lines}  ret i64 %v{numbers[-1]}\n}}\n"
        assert compiling._object_of(text, compiling.CHEAP)

    for first in range(1, 501, 50):
        compiled(range(first, first + 50))
    before = in_use()
    for first in range(501, 10_501, 50):
        compiled(range(first, first + 50))
    assert in_use() - before < 200_000


FAULTS = """
from resource import RUSAGE_SELF, getrusage
import numpy as np
import xtensor
held, faults = np.ones(64_000), []
for call in range(40):
    faults.append(getrusage(RUSAGE_SELF).ru_minflt)
    held = held * 0.5 + 1.0
print(faults[-1] - faults[10])
"""


@pytest.mark.skipif(not hasattr(LIBC, "gnu_get_libc_version"), reason="only glibc learns from what is freed")
@pytest.mark.parametrize("learns", [True, False])
def test_the_c_library_keeps_what_numpy_frees(learns: bool) -> None:
    """Results of NumPy's functions take the same pages again, unless who runs the program has set a limit for that."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_TUNABLES"))}
    if not learns:
        env["MALLOC_MMAP_THRESHOLD_"] = str(128 << 10)
    code = [sys.executable, "-c", FAULTS]
    done = subprocess.run(code, env=env, capture_output=True, text=True, check=True, timeout=60)
    pages = 29 * 2 * 64_000 * 8 // 4096
    assert (int(done.stdout) < pages // 10) is learns, done.stdout

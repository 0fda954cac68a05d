"""Many Python threads over shared tensors: reads, writes, exports, capture and gradients at once; pools of workers.

Where threads write, each has elements of its own, or all write the same: then every interleaving gives one result.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_all_start_methods, get_context
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import xtensor as xt
from xtensor.base import interpreter

ROOT = Path(__file__).resolve().parent.parent
THREADS, TURNS = 6, 12
N = 70_000  # float64 of which calls are recorded


@pytest.fixture(autouse=True)
def turns_are_short() -> Iterator[None]:
    """Let threads change places a hundred times as often."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(5e-5)
    yield
    sys.setswitchinterval(before)


def at_once(work: Callable[[int], None], threads: int = THREADS) -> None:
    """Run work in several threads that begin together; raises what the first of those that failed raised."""
    start, failures = threading.Barrier(threads), []

    def run(number: int) -> None:
        start.wait()
        try:
            work(number)
        except BaseException as error:
            failures.append(error)

    team = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
    for one in team:
        one.start()
    for one in team:
        one.join()
    if failures:
        raise failures[0]


@pytest.fixture(params=["auto", "interpret", "llvm"])
def engine(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_one_pending_value_is_the_same_for_all(engine: str) -> None:
    x = np.linspace(0.0, 1.0, N)
    for _ in range(TURNS):
        with xt.options(engine=engine, cache_dir=""):
            pending = xt.sqrt(xt.asarray(x, copy=True)) * 2.0 + 1.0
        right, found = np.sqrt(x) * 2.0 + 1.0, dict[int, np.ndarray]()
        at_once(lambda number, z=pending, found=found: found.update({number: z[number :: number + 1].numpy()}))
        for number, one in found.items():
            np.testing.assert_array_equal(one, right[number :: number + 1])


def test_writes_to_parts_of_one_tensor(engine: str) -> None:
    """Each thread writes a part of its own and reads it back; whoever recorded a read before sees the old elements."""
    x = xt.zeros(THREADS * 20_000)
    half = 20_000

    def work(number: int) -> None:
        mine = x[number * half : (number + 1) * half]
        with xt.options(engine=engine, lazy="always", cache_dir=""):
            for turn in range(1, TURNS):
                before = mine * 3.0
                mine[...] = float(turn * 10 + number)
                mine += 1.0
                after = mine * 2.0
                assert (after.numpy() == 2 * (turn * 10 + number + 1.0)).all()
                assert (before.numpy() == (0 if turn == 1 else 3 * ((turn - 1) * 10 + number + 1.0))).all()

    at_once(work)
    right = np.repeat([(TURNS - 1) * 10 + number + 1.0 for number in range(THREADS)], half)
    np.testing.assert_array_equal(x.numpy(), right)


def test_exports_while_others_record(engine: str) -> None:
    x = xt.asarray(np.arange(float(N)), copy=True)

    def work(number: int) -> None:
        rng = Random(number)
        for _ in range(TURNS):
            with xt.options(engine=engine, cache_dir=""):
                y = x * 2.0 + number
                seen = np.from_dlpack(x) if rng.random() < 0.5 else np.asarray(x)
                assert seen[7] == 7.0 and seen.shape == (N,)
                assert float(xt.sum(y[:3])) == 6.0 + 3 * number
                del seen

    at_once(work)


def test_capture_in_all_threads(engine: str) -> None:
    """One function, captured by several threads at once, on tensors that all of them read."""
    shared = xt.asarray(np.arange(float(N)), copy=True)

    def function(x: Any, y: Any) -> Any:
        z = x + y * 2.0
        z[:5] = 0.0
        return xt.sum(z), z

    fused = xt.fuse(function)

    def work(number: int) -> None:
        with xt.options(engine=engine, cache_dir=""):
            for turn in range(TURNS):
                y = xt.full(N, float(number + turn))
                total, z = fused(shared, y)
                right = np.arange(float(N)) + 2.0 * (number + turn)
                right[:5] = 0.0
                np.testing.assert_array_equal(z.numpy(), right)
                assert np.isclose(float(total), right.sum(), rtol=1e-12)

    at_once(work)
    assert (shared.numpy() == np.arange(N)).all()


def test_gradients_in_all_threads() -> None:
    w = xt.asarray(np.linspace(-1.0, 1.0, 4000), copy=True)

    def work(number: int) -> None:
        gradient = xt.grad(lambda w: xt.sum(xt.exp(w) * float(number)))
        for _ in range(TURNS):
            np.testing.assert_allclose(gradient(w).numpy(), np.exp(np.linspace(-1.0, 1.0, 4000)) * number, rtol=1e-14)

    at_once(work)


def task(number: int) -> float:
    """Return a number that a worker of a pool computes."""
    x = xt.arange(50_000, dtype=xt.float64)
    return float(xt.sum(xt.floor(x / 3.0) * number))  # exactly, on every engine


def test_pools_of_threads_and_processes() -> None:
    """concurrent.futures, whose processes are forked or spawned: joblib's and Dask's are such."""
    right = [task(number) for number in range(12)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(task, range(12))) == right
    for way in sorted({"fork", "spawn"}.intersection(get_all_start_methods())):
        with warnings.catch_warnings(), ProcessPoolExecutor(2, mp_context=get_context(way)) as processes:
            warnings.simplefilter("ignore", DeprecationWarning)  # of forks in a process with threads
            assert list(processes.map(task, range(12))) == right


def test_joblib() -> None:
    joblib = pytest.importorskip("joblib")
    right = [task(number) for number in range(6)]
    for backend in ("threading", "loky"):
        assert joblib.Parallel(2, backend=backend)(joblib.delayed(task)(number) for number in range(6)) == right


def test_workers_of_dask() -> None:
    dask = pytest.importorskip("dask")
    tasks = [dask.delayed(task)(number) for number in range(6)]
    right = [task(number) for number in range(6)]
    assert list(dask.compute(*tasks, scheduler="threads", num_workers=4)) == right
    assert list(dask.compute(*tasks, scheduler="processes", num_workers=2)) == right


# ---- interpreters


def test_a_subinterpreter_is_refused() -> None:
    code = f"""
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
run = getattr(interpreters, "run_string", None) or interpreters.exec
run(interpreters.create(), '''
import sys
sys.path.insert(0, {str(ROOT)!r})
try:
    import xtensor
except ImportError as error:
    print(error, flush=True)
''')
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "xtensor: the interpreter must be the main one of its process, got a subinterpreter\n", done


def test_an_interpreter_without_the_global_lock_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    interpreter.check_interpreter()  # says nothing here
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    with pytest.warns(RuntimeWarning, match="without its global lock, where xtensor is not known to be safe"):
        interpreter.check_interpreter()


@pytest.mark.parametrize("way", ["fused", "recorded", "plain"])
def test_rows_of_one_array(way: str) -> None:
    """Each thread adds to a row of its own: what another one computes on the way to its own write is not lost."""
    for _ in range(12):
        rows = xt.zeros((THREADS, N))

        def add(rows: Any, i: int, x: Any) -> None:
            rows[i] = rows[i] + x

        put = xt.fuse(add) if way == "fused" else add

        def work(i: int, rows: Any = rows, put: Any = put) -> None:
            x = xt.ones(N)
            with xt.options(lazy="always" if way == "recorded" else "auto"):
                for _ in range(TURNS):
                    put(rows, i, x)

        at_once(work)
        np.testing.assert_array_equal(rows.numpy(), np.full((THREADS, N), float(TURNS)))

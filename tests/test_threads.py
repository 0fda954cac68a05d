"""Workers: every task runs once, failures arrive, nesting and several callers go on, and forks and exits do no harm."""

from __future__ import annotations

import _thread
import ctypes
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from xtensor.base import machine, threads
from xtensor.codegen.cpu import compile as compiling
from xtensor.codegen.cpu import mailbox
from xtensor.run import native

ROOT = Path(__file__).resolve().parent.parent
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let interrupts through: a shell starts what it runs in the background without them."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def _four_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the tests of `run` have four threads on any machine."""
    monkeypatch.setattr(threads, "_processors", Fixed(4))


class Fixed:
    """A count that forking forgets, as the true one."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __call__(self) -> int:
        return self.number

    def cache_clear(self) -> None:
        """Nothing to forget."""


def marking(log: list[int], number: int) -> list[Callable[[], None]]:
    return [partial(log.append, mark) for mark in range(number)]


def note_thread(log: list[int]) -> None:
    log.append(threading.get_ident())


def sleepy(log: list[Any], mark: Any, seconds: float = 0.01) -> Callable[[], None]:
    def task() -> None:
        time.sleep(seconds)
        log.append(mark)

    return task


# ---- run


@pytest.mark.parametrize("number", [0, 1, 2, 3, 4, 5, 50])
def test_every_task_runs_once(number: int) -> None:
    for _ in range(20):
        log: list[int] = []
        threads.run(marking(log, number))
        assert sorted(log) == list(range(number))


def test_tasks_run_at_once() -> None:
    log: list[int] = []
    threads.run([lambda: None] * 4)  # the threads are there
    start = time.perf_counter()
    threads.run([sleepy(log, mark, 0.1) for mark in range(4)])
    assert time.perf_counter() - start < 0.3 and sorted(log) == [0, 1, 2, 3]


def test_the_first_task_runs_on_the_calling_thread() -> None:
    for _ in range(200):
        ran: list[int] = []
        threads.run([partial(note_thread, ran), lambda: None, lambda: None])
        assert ran == [threading.get_ident()]


def test_workers_stay() -> None:
    threads.run([lambda: None] * 4)
    before, workers = threading.active_count(), list(threads._team._workers)
    assert len(workers) >= 3
    for _ in range(100):
        threads.run([lambda: None] * 4)
    assert threading.active_count() == before
    assert threads._team._workers == workers
    assert all(worker.thread.daemon for worker in threads._team._workers)


def test_results_are_there_when_run_returns() -> None:
    source, target = np.arange(400_000.0), np.zeros(400_000)
    for _ in range(200):
        target[...] = 0
        parts = [slice(start, start + 100_000) for start in range(0, 400_000, 100_000)]
        threads.run([partial(np.sqrt, source[part], target[part]) for part in parts])
        assert target[99_999] and target[-1] and target[200_001]
    np.testing.assert_array_equal(target, np.sqrt(source))


def test_nothing_is_held_afterwards() -> None:
    array = np.zeros(1000)
    gone = weakref.ref(array)
    threads.run([partial(array.fill, mark) for mark in range(4)])
    del array
    for _ in range(100):  # a worker that woke up late holds it for a moment
        if gone() is None:
            break
        time.sleep(0.01)
    assert gone() is None


# ---- shared machine code


class Sharing:
    """Machine code that adds 1 to the numbers it is given the addresses of, and a team of one worker.

    taken: how many of the calls a worker that watched took part in.
    """

    def __init__(self) -> None:
        text = """define void @kernel(ptr %at) {
  %target = load ptr, ptr %at
  %old = load i64, ptr %target
  %new = add i64 %old, 1
  store i64 %new, ptr %target
  ret void
}
"""
        self.code = compiling.handmade(text)
        self.numbers = np.zeros(1000, np.int64)
        first = self.numbers.__array_interface__["data"][0]
        arguments = [(first + 8 * place).to_bytes(8, sys.byteorder) for place in range(1000)]
        words = [int.from_bytes(argument, sys.byteorder) for argument in arguments]
        launch = native.Launch(self.code, (500, 500), 1, words, [])
        self.laid = native.Laid([launch], 2, 0, ())
        self.taken = self.calls = 0

    def call(self) -> None:
        watched, missed = self.state() == mailbox.WATCHING, self.word(threads.MISSED)
        assert self.share()
        self.taken += watched and self.word(threads.MISSED) == missed
        self.calls += 1

    def share(self) -> bool:
        return threads.share(2, lambda rest, boxes: self.laid.run((), rest, boxes))

    def word(self, place: int) -> int:
        workers = threads._team._workers
        return int(workers[0].box.words[place]) if workers else 0

    def state(self) -> int:
        return self.word(0)

    def until_away(self) -> None:
        """Return when the worker watches no longer."""
        deadline = time.perf_counter() + 20
        while self.state() != mailbox.AWAY:
            assert time.perf_counter() < deadline, f"the mailbox is still in state {self.state()}"
            time.sleep(0.0001)


@pytest.fixture
def sharing(monkeypatch: pytest.MonkeyPatch) -> Sharing:
    if compiling.host() is None:
        pytest.skip("no compiler here")
    monkeypatch.setattr(threads, "_team", threads._Team())
    return Sharing()


def until_taken(sharing: Sharing, times: int) -> None:
    """Call until the worker took part in so many calls: it may be without a processor for a while."""
    deadline = time.perf_counter() + 20
    while sharing.taken < times:
        assert time.perf_counter() < deadline, f"the worker took part in {sharing.taken} of {sharing.calls} calls"
        sharing.call()


def test_shared_code_runs_once_for_every_argument(sharing: Sharing) -> None:
    until_taken(sharing, 50)
    assert (sharing.numbers == sharing.calls).all()


def test_a_worker_without_calls_goes_to_sleep(sharing: Sharing) -> None:
    until_taken(sharing, 1)
    sharing.until_away()
    log: list[int] = []
    threads.run(marking(log, 4))
    assert sorted(log) == [0, 1, 2, 3]


def test_a_sleeping_worker_is_woken(sharing: Sharing) -> None:
    woken, deadline = 0, time.perf_counter() + 20
    while woken < 10:
        assert time.perf_counter() < deadline, f"it came {woken} times in {sharing.calls} calls"
        sharing.until_away()
        sharing.call()
        for _ in range(2000):
            if sharing.state() == mailbox.WATCHING:
                woken += 1
                break
            time.sleep(0)
    assert (sharing.numbers == sharing.calls).all()


def test_code_after_tasks_and_tasks_after_code(sharing: Sharing) -> None:
    """The worker comes for both, whatever it was doing."""
    for turn in range(300):
        log: list[int] = []
        sharing.call()
        threads.run(marking(log, 3))
        assert sorted(log) == [0, 1, 2]
        if turn % 3 == 0:
            time.sleep(0.0003)
    assert (sharing.numbers == sharing.calls).all()


def test_code_is_shared_by_one_caller_at_a_time_and_not_inside_tasks(sharing: Sharing) -> None:
    until_taken(sharing, 1)
    with threads._team.taken:
        assert not sharing.share()
    found: list[bool] = []
    threads.run([lambda: found.append(sharing.share())] * 3)
    assert found == [False, False, False]
    assert (sharing.numbers == sharing.calls).all()


def test_workers_stay_while_one_thread_takes_long(sharing: Sharing) -> None:
    """A list of kernels, of which the first takes one thread longer than a worker watches: the others are shared."""
    if os.name == "nt":
        pytest.skip("workers do not nap here")
    libc = ctypes.CDLL(None)
    text = """define void @kernel(ptr %at) {
  %word = getelementptr i64, ptr %at, i64 1
  %sleep = load ptr, ptr %word
  %slept = call i32 %sleep(i32 2000)
  %who.at = getelementptr i64, ptr %at, i64 2
  %who = load ptr, ptr %who.at
  %self = call i64 %who()
  %target = load ptr, ptr %at
  store i64 %self, ptr %target
  ret void
}
"""
    sleep, who = (ctypes.cast(one, ctypes.c_void_p).value or 0 for one in (libc.usleep, libc.pthread_self))
    first, code = sharing.numbers.__array_interface__["data"][0], compiling.handmade(text)
    words = [[first + 8 * place, sleep, who] for place in range(9)]
    alone = native.Launch(code, (1,), 3, words[0], [])
    both = native.Launch(code, (4, 4), 3, sum(words[1:], []), [])
    sharing.laid = native.Laid([alone, both], 2, 0, ())
    came = 0
    for _ in range(40):
        assert sharing.share()
        assert sharing.numbers[0] == sharing.numbers[1]  # the caller
        came += len({*sharing.numbers[1:9].tolist()}) == 2
        if came == 10:
            break
    assert came == 10
    sharing.until_away()


@needs_fork
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_shares_code_with_its_own_workers(sharing: Sharing) -> None:
    until_taken(sharing, 1)
    child = os.fork()
    if not child:
        signal.alarm(30)
        done = False
        try:
            sharing.taken = 0
            until_taken(sharing, 5)
            done = bool((sharing.numbers == sharing.calls).all())
        finally:
            os._exit(0 if done else 1)
    assert os.waitpid(child, 0)[1] == 0
    until_taken(sharing, sharing.taken + 1)


def test_little_work_has_one_thread_until_a_worker_watches(sharing: Sharing) -> None:
    assert threads.worth(threads.SHARE_PAYS) == 1
    assert threads.worth(2 * threads.WAKE_PAYS) == 4
    assert threads.worth(threads.WAKE_PAYS / 2) == 1  # nobody watches yet


# ---- failures


def fail(kind: type[BaseException], text: str, seconds: float = 0) -> Callable[[], None]:
    def task() -> None:
        time.sleep(seconds)
        raise kind(text)

    return task


@pytest.mark.parametrize("serially", [False, True])
def test_the_first_failure_is_raised_when_all_have_finished(serially: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if serially:
        monkeypatch.setattr(threads, "_processors", Fixed(1))
    for place in range(4):
        log: list[int] = []
        tasks = [sleepy(log, mark) for mark in range(5)]
        tasks[place] = fail(KeyError, "early", 0.02)
        tasks[4] = fail(ValueError, "late")
        with pytest.raises(KeyError, match="early"):
            threads.run(tasks)
        assert sorted(log) == [mark for mark in range(4) if mark != place]
    threads.run([lambda: None] * 4)  # and the workers are well


def test_a_failure_keeps_nothing_alive() -> None:
    def call() -> weakref.ref[Any]:
        array = np.zeros(1000)

        def task() -> None:
            array.fill(1)
            raise ValueError("mine")

        with pytest.raises(ValueError, match="mine"):
            threads.run([lambda: None, task, task])
        return weakref.ref(array)

    gc.disable()
    try:
        gone = call()
        time.sleep(0.02)
        for worker in threads._team._workers:
            assert worker.job is None
    finally:
        gc.enable()
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("where", ["task", "waiting"])
def test_an_interrupt_waits_for_the_workers(where: str, interruptible: None) -> None:
    log: list[str] = []
    begun = threading.Event()

    def other() -> None:
        begun.set()
        time.sleep(0.15)
        log.append("done")

    def mine() -> None:
        begun.wait()
        if where == "task":
            _thread.interrupt_main()
            time.sleep(1)
        else:
            threading.Timer(0.05, _thread.interrupt_main).start()

    with pytest.raises(KeyboardInterrupt):
        threads.run([mine, other])
    assert log == ["done"]
    threads.run([lambda: log.append("again")] * 2)
    assert log == ["done", "again", "again"]


def test_an_interrupt_begins_nothing_new() -> None:
    log: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        threads.run([fail(KeyboardInterrupt, ""), *[sleepy(log, mark, 0.05) for mark in range(50)]])
    assert len(log) <= 3


# ---- nesting, several callers


def test_nested_calls_run_on_their_thread() -> None:
    seen: list[tuple[int, set[int]]] = []

    def outer() -> None:
        inner: set[int] = set()
        assert threads.count() == 1
        threads.run([lambda: inner.add(threading.get_ident())] * 4)
        seen.append((threading.get_ident(), inner))

    threads.run([outer] * 4)
    assert len(seen) == 4 and all(inner == {outer} for outer, inner in seen)
    assert threads.count() == 4


def test_a_second_caller_does_not_wait() -> None:
    busy, free = threading.Event(), threading.Event()

    def hold() -> None:
        busy.set()
        free.wait(10)

    first = threading.Thread(target=threads.run, args=([hold, hold],))
    first.start()
    busy.wait()
    ran: set[int] = set()
    threads.run([lambda: ran.add(threading.get_ident())] * 4)
    assert ran == {threading.get_ident()}
    free.set()
    first.join()


def test_many_callers() -> None:
    wrong: list[Any] = []

    def call(seed: int) -> None:
        for turn in range(150):
            log: list[int] = []
            try:
                tasks = marking(log, 5)
                if turn % 7 == 0:
                    tasks.append(fail(KeyError, str(seed)))
                threads.run(tasks)
            except KeyError as error:
                if error.args != (str(seed),):
                    wrong.append(error)
            if sorted(log) != [0, 1, 2, 3, 4]:
                wrong.append(log)

    callers = [threading.Thread(target=call, args=(seed,)) for seed in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong


def test_a_system_that_refuses_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threads, "_team", threads._Team())
    monkeypatch.setattr(threading.Thread, "start", refuse)
    log: list[int] = []
    threads.run([lambda: log.append(1)] * 3)
    assert log == [1, 1, 1]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity here")
def test_the_callers_affinity_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError

    before = os.sched_getaffinity(0)
    for processor in (0, 1, 12345):
        monkeypatch.setattr(threads, "_getcpu", lambda processor=processor: lambda: processor)
        threads.run([lambda: None] * 4)
    assert os.sched_getaffinity(0) == before
    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    monkeypatch.setattr(threads, "_getcpu", lambda: lambda: 2)
    threads.run([lambda: None] * 4)


# ---- forks and exits


@needs_fork
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_starts_its_own_workers() -> None:
    threads.run([lambda: None] * 4)
    stop: list[int] = []

    def churn() -> None:
        while not stop:
            threads.run([lambda: None] * 4)

    other = threading.Thread(target=churn)
    other.start()
    try:
        for _ in range(10):
            child = os.fork()
            if not child:
                signal.alarm(20)
                log: list[int] = []
                try:
                    before = threading.active_count()
                    threads.run(marking(log, 4))
                    done = before == 1 and sorted(log) == [0, 1, 2, 3] and threading.active_count() == 4
                finally:
                    os._exit(0 if done else 1)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.append(1)
        other.join()
    threads.run([lambda: None] * 4)


def run_python(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        env={**{name: value for name, value in os.environ.items() if "NUM_THREADS" not in name}, **environment},
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def test_exit_is_quiet() -> None:
    code = """
import threading
from xtensor.base import threads
threads._processors = lambda: 3
threads.run([lambda: None] * 3)
def churn():
    while True: threads.run([lambda: None] * 3)
threading.Thread(target=churn, daemon=True).start()
threads.run([lambda: None] * 3)
"""
    assert run_python(code) == ""


def test_exit_is_quiet_while_a_worker_watches() -> None:
    code = """
import numpy, xtensor
from xtensor.base import threads
threads._processors = lambda: 2
x, large = (xtensor.asarray(numpy.ones(count), copy=True) for count in (100_000, 2_000_000))
with xtensor.options(engine="llvm", lazy="always"):
    while not threads._team._workers: xtensor.sin(large).evaluate()
    for _ in range(50): xtensor.sin(x).evaluate()
print(threads._team._workers[0].box.wanted)
"""
    if compiling.host() is not None:
        assert run_python(code) == "True"


# ---- how many

COUNT = "from xtensor.base import threads; print(threads.count())"


def test_count_is_what_the_process_may_use() -> None:
    may = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    assert 1 <= int(run_python(COUNT)) <= may
    assert int(run_python(COUNT, OMP_NUM_THREADS="1")) == 1
    assert int(run_python(COUNT, OMP_NUM_THREADS="1,2")) == 1
    assert int(run_python(COUNT, OMP_NUM_THREADS="1000")) == int(run_python(COUNT, OMP_NUM_THREADS="many")) <= may


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity here")
def test_count_follows_affinity_and_is_read_anew_in_a_child() -> None:
    code = """
import os
from xtensor.base import threads
first = threads.count()
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
assert threads.count() == first
child = os.fork()
if not child: os._exit(threads.count())
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert run_python(code) == "1"


def test_quotas_of_control_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, inner = tmp_path / "own", tmp_path / "a" / "b"
    old = tmp_path / "cpu" / "c"
    inner.mkdir(parents=True)
    old.mkdir(parents=True)
    monkeypatch.setattr(machine, "_OWN_CGROUPS", own)
    monkeypatch.setattr(machine, "_CGROUPS", tmp_path)
    assert threads._quotas() == []
    own.write_text("0::/a/b\n", encoding="ascii")
    (inner / "cpu.max").write_text("max 100000\n", encoding="ascii")
    assert threads._quotas() == []
    (inner.parent / "cpu.max").write_text("250000 100000\n", encoding="ascii")
    assert threads._quotas() == [3]
    own.write_text("3:cpuacct,cpu:/c\n2:memory:/a/b\n", encoding="ascii")
    (old / "cpu.cfs_period_us").write_text("100000\n", encoding="ascii")
    (old / "cpu.cfs_quota_us").write_text("-1\n", encoding="ascii")
    assert threads._quotas() == []
    (old / "cpu.cfs_quota_us").write_text("50000\n", encoding="ascii")
    assert threads._quotas() == [1]


def test_the_setting_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    class Given:
        threads: int | None = 7

    monkeypatch.setattr(threads, "settings", Given)
    assert threads.count() == 7
    Given.threads = None
    assert threads.count() == 4


@needs_fork
def test_children_of_multiprocessing_use_one_thread() -> None:
    code = """
import multiprocessing, sys
from xtensor.base import threads
def give(_): return threads.count()
if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(2) as workers:
        print(*workers.map(give, range(2)))
"""
    assert run_python(code) == "1 1"


def test_children_of_joblib_use_one_thread() -> None:
    pytest.importorskip("joblib")
    code = """
import joblib
def give():
    from xtensor.base import threads
    return threads.count()
print(*joblib.Parallel(2, "loky")(joblib.delayed(give)() for _ in range(2)))
"""
    assert run_python(code) == "1 1"


# ---- work that an interrupt must not hit


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_waits_for_what_is_done_aside() -> None:
    def work() -> None:
        assert threading.current_thread() is not threading.main_thread()
        signal.raise_signal(signal.SIGINT)
        time.sleep(0.05)
        log.append(1)

    log: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        threads.aside(work)
    assert log == [1]


def test_aside_gives_results_and_errors() -> None:
    assert threads.aside(lambda: 3) == 3
    assert threads.aside(lambda: threads.aside(lambda: 3)) == 3
    with pytest.raises(ZeroDivisionError):
        threads.aside(lambda: 1 // 0)


@pytest.mark.skipif(compiling.host() is None, reason="no compiler here")
@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_leaves_the_compiler_usable() -> None:
    """llvmlite's lock has lines of Python between its being shut and its being held."""
    from llvmlite.binding import ffi

    def entered() -> None:
        signal.raise_signal(signal.SIGINT)
        ffi.lib._lock.unregister(entered, left)

    def left() -> None:
        pass

    ffi.lib._lock.register(entered, left)
    text = "define void @kernel(ptr %slots) {\nret void\n}\n; of this test alone"
    with pytest.raises(KeyboardInterrupt):
        compiling.handmade(text)
    found: list[Any] = []
    other = threading.Thread(target=lambda: found.append(compiling.handmade(text + " too")), daemon=True)
    other.start()
    other.join(20)
    assert found


@pytest.mark.skipif(compiling.host() is None, reason="there is no compiler here")
def test_machine_code_lasts_as_long_as_its_function() -> None:
    """A thread may be about to call the function of code that nothing else holds: two that compile the same text at
    once make it twice, and only one is remembered. (The faulty version ends the process.)
    """
    store = "store i64 7, ptr %slots, align 1"
    code: Any = compiling.handmade(f"define void @kernel(ptr %slots) {{\n{store}\nret void\n}}\n; dropped at once")
    call = code.call
    others = [compiling.handmade(f"define void @kernel(ptr %slots) {{\nret void\n}}\n; {n}") for n in range(40)]
    del code, others
    compiling.handmade.cache_clear()
    compiling._linkers.pop(True, None)
    gc.collect()
    room = (ctypes.c_int64 * 1)()
    call(ctypes.cast(room, ctypes.c_char_p))
    assert room[0] == 7


def test_aside_in_the_middle_of_an_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task is done by who imports: another thread would wait for the import, and that for the other thread."""
    (tmp_path / "asks_aside.py").write_text(
        "import threading\nfrom xtensor.base.threads import aside\nfound = aside(threading.get_ident)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert import_module("asks_aside").found == threading.get_ident()
    assert threads.aside(threading.get_ident) != threading.get_ident()

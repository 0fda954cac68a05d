"""Persistent worker threads: `run(tasks)` shares tasks between the caller and threads that sleep between calls.

A worker sleeps on a lock, whose release wakes it as cheaply as anything measured. Microseconds that two tasks of 110 us
take beyond one, on two cores of a virtual machine: locks 45, SimpleQueue 45, Condition 43, ThreadPoolExecutor 48; after
half a millisecond of sleep 120 to 130 for each of them, as both tasks land on one core, and 37 with the worker kept off
the caller's. Polling before sleeping gained nothing, as a polling thread holds the interpreter's lock. The caller takes
the tasks that no worker has begun, so it never waits for one to wake up, and tiny tasks cost 3 us.

Calls of machine code are shared through mailboxes, `share(...)`. Workers that took part a moment ago go on watching
theirs, in machine code and without the interpreter's lock (codegen/cpu/mailbox.py), before they sleep; others are
woken. As long as a run is under way its workers stay: after a step that one thread takes they nap. The caller never
sleeps meanwhile: Linux would wake it on the processor of the worker that finished last, which goes on watching there
(measured: such calls took 340 us instead of 90, for as long as they followed each other).
"""

from __future__ import annotations

import _imp
import atexit
import ctypes
import mmap
import os
import sys
import threading
from _thread import start_new_thread
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, partial
from math import ceil
from time import perf_counter, sleep
from types import FrameType
from typing import Any, NamedTuple, TypeVar

from .locks import holding
from .machine import cgroup_folders, cgroup_value
from .options import settings

Task = Callable[[], None]
T = TypeVar("T")

# Words of a mailbox besides the first, which is its state. Different threads write to different cache lines.
LIMIT, CALL, MISSED, REST, HELD, NAPPING = 8, 16, 24, 32, 40, 48
WATCHING = 1

# Seconds that a worker watches its mailbox after it has taken part, and calls without watching after a miss.
WATCH_SECONDS, DISTRUST = 200e-6, 10

# Seconds of work that are worth sharing with a worker that must be woken (some 45 us), and with one that watches.
WAKE_PAYS, SHARE_PAYS = 120e-6, 15e-6


class Machinery(NamedTuple):
    """Machine code for mailboxes. watch: a worker's loop on its mailbox. rest, nap: addresses of functions that let
    other threads run, and that sleep for some microseconds, or 0.
    """

    watch: Any
    rest: int
    nap: int


class _Here(threading.local):
    """The state of one thread."""

    working = False  # inside a task, whose calls run on this thread alone


_here = _Here()


# ---- how many


def inside_task() -> bool:
    """Return whether this thread is running a task, whose caller waits for it."""
    return _here.working


def count() -> int:
    """Return the number of threads that a computation may use here.

    The setting `threads` decides (`XTENSOR_NUM_THREADS`, `xt.options(threads=...)`); where it is unset, the processors
    this process may use. Inside a task it is 1.
    """
    if _here.working:
        return 1
    return getattr(settings(), "threads", None) or _processors()


def worth(seconds: float) -> int:
    """Return how many threads pay for work in machine code that takes one thread so many seconds.

    Little work is shared only with workers that watch their mailboxes, which they do once such calls are frequent.
    """
    if seconds <= SHARE_PAYS:
        return 1
    threads = count()
    return threads if seconds > WAKE_PAYS or threads == 1 or _team.attends(threads - 1, seconds) else 1


@cache
def _processors() -> int:
    """Return how many processors affinity, control groups and OMP_NUM_THREADS allow; 1 in a multiprocessing child."""
    if _is_child():
        return 1
    limits = [os.cpu_count() or 1, *_affinity(), *_quotas(), *_openmp()]
    return max(1, min(limits))


def _is_child() -> bool:
    """Return whether multiprocessing started this process (joblib, loky, dask do so): its siblings fill the machine."""
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.parent_process() is not None


def _affinity() -> list[int]:
    return [len(os.sched_getaffinity(0))] if hasattr(os, "sched_getaffinity") else []


def _quotas() -> list[int]:
    """Return the processors that the control groups around this process allow, rounded up."""
    found = []
    for folder in cgroup_folders("cpu"):
        version2 = cgroup_value(folder, "cpu.max").split()
        version1 = [cgroup_value(folder, "cpu.cfs_quota_us"), cgroup_value(folder, "cpu.cfs_period_us")]
        for pair in (version2, version1):
            if len(pair) == 2 and all(text.isdigit() for text in pair):  # no limit reads "max" or "-1"
                found.append(ceil(int(pair[0]) / int(pair[1])))
    return found


def _openmp() -> list[int]:
    """Return the first number in OMP_NUM_THREADS, which the BLAS libraries respect too."""
    first = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return [int(first)] if first.isdigit() and int(first) else []


# ---- workers


class _Job:
    """The tasks of one call that nobody has begun, and the workers that are active on the others."""

    __slots__ = ("active", "done", "failures", "team", "waiting")

    def __init__(self, tasks: Sequence[Task]) -> None:
        self.team = _team
        self.waiting = deque(enumerate(tasks))
        self.active: set[Any] = set()
        self.failures: list[tuple[int, BaseException]] = []
        self.done = threading.Lock()
        self.done.acquire()

    def work(self) -> None:
        """Run tasks until none is waiting; their errors are kept."""
        while True:
            try:
                number, task = self.waiting.popleft()
            except IndexError:
                return
            self.attempt(number, task)

    def attempt(self, number: int, task: Task) -> None:
        try:
            task()
        except BaseException as error:
            self.fail(number, error)

    def fail(self, number: int, error: BaseException) -> None:
        """Keep the error of a task. After an interrupt no further task is begun."""
        self.failures.append((number, error))
        if not isinstance(error, Exception):
            self.waiting.clear()

    def help(self, worker: Any) -> None:
        """Work as one of several, and signal the caller when nobody is active any more."""
        self.active.add(worker)  # before a task is taken, so that none runs unnoticed
        self.work()
        self.active.discard(worker)
        if not self.active:
            with suppress(RuntimeError):  # two that leave at once both signal it
                self.done.release()

    def wait(self) -> None:
        """Wait until nobody is active; an interrupt is kept for later.

        A child that a task forked lacks the other threads.
        """
        while self.active and self.team is _team:
            try:
                self.done.acquire()
            except BaseException as error:
                self.fail(-1, error)
        if self.active and self.team is not _team:
            self.fail(-1, RuntimeError("run: the process was forked inside a task, and the child lacks the others"))

    def finish(self) -> None:
        """Raise the error of the first failed task; an interrupt comes before all."""
        if self.failures:
            failure = min(self.failures, key=lambda failed: (isinstance(failed[1], Exception), failed[0]))[1]
            self.failures.clear()  # its traceback leads here: a circle would keep the tasks' arrays alive
            try:
                raise failure
            finally:
                del failure


class _Worker:
    """A thread that sleeps until it is given a job."""

    def __init__(self) -> None:
        self.wake = threading.Lock()
        self.wake.acquire()
        self.job: _Job | None = None
        self.avoids = -1
        self.box = _Mailbox()
        self.thread = threading.Thread(target=self._serve, name="xtensor", daemon=True)
        self.thread.start()

    def give(self, job: _Job, processor: int) -> None:
        """Wake the thread for a job, on another processor than the caller's."""
        self.job = job
        self.avoid(processor)
        self.call()

    def call(self) -> None:
        """Wake the thread, on whatever processor."""
        if self.wake.locked():  # else it has yet to wake up for an earlier job, and will find this one
            self.wake.release()
        self.box.words[LIMIT] = 0

    def avoid(self, processor: int) -> None:
        """Keep the thread off a processor, the caller's, where the system has it: -1 elsewhere.

        Linux in a virtual machine takes a sleeping processor for a busy one and puts both threads onto one: the second
        would begin when the first has finished.
        """
        if processor == self.avoids:
            return
        self.avoids = processor
        allowed = os.sched_getaffinity(0)
        with suppress(OSError):  # forbidden in some sandboxes; it is only slower then
            os.sched_setaffinity(self.thread.native_id or 0, allowed - {processor} or allowed)

    def _serve(self) -> None:
        _here.working = True
        while True:
            self.wake.acquire()
            job = self.job
            if job is None:
                self._watch()
            else:
                job.help(self)
            del job  # it keeps the arrays of its tasks alive

    def _watch(self) -> None:
        """Take part in shared machine code until none has come for a while, or somebody wakes this thread."""
        machinery = _attached[0]
        if machinery is not None:
            words = self.box.words
            words[REST] = machinery.rest
            words[LIMIT] = _looks(machinery.watch.address) if self.box.trusted() else 1
            if self.wake.locked() and not _leaving:  # a call from now on finds the limit set, and sets it to 0
                _loop(machinery.watch.address)(self.box.address)


# Memory that a child of a fork does not write to.
_PRIVATE: dict[str, Any] = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANON} if hasattr(mmap, "MAP_PRIVATE") else {}


class _Mailbox:
    """A mailbox, and whether watching it pays. Its memory is never freed, as a daemon thread may outlive everything."""

    def __init__(self) -> None:
        memory = mmap.mmap(-1, mmap.PAGESIZE, **_PRIVATE)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(memory))
        self.words = memoryview(memory).cast("q")
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        self.wanted = False
        self._missed = self._distrust = 0

    def watched(self) -> bool:
        """Return whether the worker is watching, so that work can be posted to it."""
        return self.words[0] == WATCHING

    def trusted(self) -> bool:
        """Return whether machine code is shared here, and the worker did not lack a processor lately."""
        return self.wanted and not self._distrust

    def reckon(self) -> None:
        """Note, after a call, whether a watching worker took part: it does not if others want its processor."""
        missed = self.words[MISSED]
        if missed != self._missed:
            self._missed, self._distrust = missed, DISTRUST
            self.words[LIMIT] = 0
        elif self._distrust:
            self._forgive()

    def refuse(self, wanted: bool) -> None:
        """Note that the worker was needed while it was not watching. wanted: whether it may watch next time."""
        self.wanted = wanted
        self._forgive()

    def _forgive(self) -> None:
        """Reduce the distrust in the worker. One that is watching gets the usual limit back here: between calls in
        close succession it only naps, and never leaves to read a new one.
        """
        self._distrust = max(self._distrust - 1, 0)
        machinery = _attached[0]
        if machinery is not None and self.trusted() and self.watched():
            self.words[LIMIT] = _looks(machinery.watch.address)


_attached: list[Machinery | None] = [None]
_makers: list[Callable[[], Machinery]] = []
_leaving: list[bool] = []


def provide(make: Callable[[], Machinery]) -> None:
    """Set the function that makes machine code for mailboxes, called when that is first needed."""
    _makers[:] = [make]


def _attach() -> None:
    """Have workers watch for machine code from now on, until the interpreter ends; the caller must hold the team."""
    if _makers:
        make = _makers.pop()
        with suppress(RuntimeError, OSError):  # it cannot be made: workers are woken as for any task
            _attached[0] = make()
            atexit.register(_leave)


def _leave() -> None:
    """Have all workers leave machine code, which is about to be unloaded."""
    _leaving.append(True)
    _attached[0] = None
    for worker in _team._workers:
        worker.box.words[LIMIT] = 0
    deadline = perf_counter() + 1
    while any(worker.box.words[0] for worker in _team._workers) and perf_counter() < deadline:
        sleep(0.0001)


@cache
def _loop(address: int) -> Any:
    """Return a worker's loop as a function of its mailbox's address."""
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)


@cache
def _looks(address: int) -> int:
    """Return how often a worker looks into its mailbox in the time that it watches; an interruption only reduces it."""
    box, loop, found = _Mailbox(), _loop(address), 1
    for _ in range(3):
        box.words[LIMIT] = 1000
        started = perf_counter()
        loop(box.address)
        found = max(found, int(1000 * WATCH_SECONDS / (perf_counter() - started)))
    return found


class _Team:
    """The workers of this process; one call at a time holds them."""

    def __init__(self) -> None:
        self.taken = threading.RLock()
        self._workers: list[_Worker] = []
        self._asked = 0.0

    def workers(self, number: int) -> list[_Worker]:
        """Return so many workers, fewer where the system refuses to start a thread."""
        if len(self._workers) < number:
            with suppress(RuntimeError):
                while len(self._workers) < number:
                    self._workers.append(_Worker())
        return self._workers[:number]

    def attends(self, number: int, seconds: float) -> bool:
        """Return whether so many workers watch their mailboxes, or are being woken to do so, as this is asked twice
        within a moment, not counting the work in between. seconds: an estimate of that; slow cores take twice as long.
        """
        found = [worker for worker in self._workers[:number] if worker.box.watched()]
        if len(found) == number:
            return True
        now, before = perf_counter(), self._asked
        self._asked = now
        if now - before < WATCH_SECONDS + 2 * seconds:
            return bool(holding(self.taken, partial(self._summon, number)))
        return False

    def _summon(self, number: int) -> bool:
        """Have workers watch their mailboxes, except those that do already or may lack a processor; return whether all
        come.
        """
        _attach()
        processor, workers = _getcpu()(), self.workers(number)
        for worker in workers:
            if not worker.box.watched():
                worker.box.refuse(number < _processors())
                if worker.box.trusted():
                    worker.avoid(processor)
                    worker.call()
        return len(workers) == number and all([worker.box.trusted() for worker in workers])

    def called(self, number: int) -> list[_Mailbox] | None:
        """Return the mailboxes of so many workers, after waking those who do not watch; None where there are fewer."""
        workers = self.workers(number)
        if len(workers) < number:
            return None
        processor = _getcpu()()
        boxes = []
        for worker in workers:
            box = worker.box
            worker.avoid(processor)
            if not box.watched():
                box.refuse(number < _processors())
                worker.call()
            boxes.append(box)
        return boxes


_team = _Team()


def dismiss() -> None:
    """Have workers that watch for machine code leave the processors to others: a BLAS is about to use them all."""
    for worker in _team._workers:
        if worker.box.watched():
            worker.box.words[LIMIT] = 0


def share(threads: int, call: Callable[[int, list[int]], None]) -> bool:
    """Have machine code share its work among so many threads, this one among them.

    call: takes the address of a function that lets other threads run, or 0, and the mailboxes' addresses, one for each
    worker. Returns False, with nothing done, where there are too few workers or no machine code for mailboxes.
    """
    if _here.working or threads > count():
        return False
    return bool(holding(_team.taken, partial(_post, threads, call)))


def _post(threads: int, call: Callable[[int, list[int]], None]) -> bool:
    """Have machine code share its work, if there are enough workers; the caller holds the team."""
    if _makers:
        _attach()
    machinery = _attached[0]
    boxes = _team.called(threads - 1) if machinery is not None else None
    if boxes is None or machinery is None:
        return False
    try:
        for box in boxes:
            box.words[HELD] = machinery.nap  # work of one thread between two calls may take long
        call(machinery.rest, [box.address for box in boxes])
    finally:
        for box in boxes:
            box.words[HELD] = 0
    for box in boxes:
        box.reckon()
    return True


def run(tasks: Sequence[Task]) -> None:
    """Run every task and return when all are done; then raise the error of the first that failed.

    The first task runs on the calling thread, the others there or on workers, in any order: none may wait for another.
    Inside a task, and while another thread holds the workers, all run on the calling thread.
    """
    helpers = min(len(tasks), count()) - 1
    if helpers <= 0 or not holding(_team.taken, partial(_share, tasks, helpers)):
        job = _Job(tasks)
        job.work()
        job.finish()


def _share(tasks: Sequence[Task], helpers: int) -> bool:
    """Do tasks together with workers; the caller holds the team."""
    job, workers = _Job(tasks), _team.workers(helpers)
    _here.working = True
    try:
        _lead(job, workers)
    except BaseException as error:  # an interrupt between two tasks
        job.fail(-1, error)
    finally:
        try:
            job.wait()
        finally:
            job.wait()  # again if an interrupt hit inside the first: workers may still use the memory
            _here.working = False
            for worker in workers:
                worker.job = None
    job.finish()
    return True


def _lead(job: _Job, workers: list[_Worker]) -> None:
    """Wake the workers, run the first task, and then the tasks that no worker has begun."""
    number, first = job.waiting.popleft()
    processor = _getcpu()()
    for worker in workers:
        worker.give(job, processor)
    job.attempt(number, first)
    job.work()


def aside(task: Callable[[], T], afterwards: Task = lambda: None) -> T:
    """Return the result of a task that no interrupt (Ctrl-C) may hit: the main thread, the only one to receive them,
    has another thread run it. An interrupt takes effect when it is done.

    For libraries that an interrupt between two of their lines would leave with a locked lock. afterwards: run next by
    that thread, while the caller goes on. In the middle of an import, as in a signal handler, the task is run here:
    another thread would wait for the import lock, and this one for that thread.
    """
    if _here.working or threading.current_thread() is not threading.main_thread() or _is_importing():
        return _in_turn(task, afterwards)
    found: list[T] = []
    job = _Job([lambda: found.append(task())])
    job.active.add(job)  # before it begins

    def work() -> None:
        _here.working = True
        job.help(job)
        afterwards()

    try:
        start_new_thread(work, ())
    except RuntimeError:  # none is to be had
        return _in_turn(task, afterwards)
    job.wait()
    job.finish()
    return found[0]


def _is_importing() -> bool:
    """Return whether a module is being imported here, or an interrupt has left the import lock locked."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code.co_filename != "<frozen importlib._bootstrap>":
        frame = frame.f_back
    return frame is not None or _imp.lock_held()


def _in_turn(task: Callable[[], T], afterwards: Task) -> T:
    result = task()
    afterwards()
    return result


@cache
def _getcpu() -> Callable[[], int]:
    """Return the C library's sched_getcpu, or a function that returns -1 where there is none."""
    try:
        return ctypes.PyDLL(None).sched_getcpu if hasattr(os, "sched_setaffinity") else lambda: -1
    except (OSError, AttributeError):
        return lambda: -1


def _after_fork() -> None:
    """Start anew in a child: it lacks the threads of its parent, and its limits may differ."""
    global _team
    _team = _Team()
    _here.working = False
    _processors.cache_clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

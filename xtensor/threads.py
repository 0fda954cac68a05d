"""Persistent worker threads: `run(tasks)` shares tasks between the caller and threads that sleep between calls.

A worker sleeps on a lock, whose release wakes it as cheaply as anything measured. Microseconds that two tasks of 110 us
take beyond one, on two cores of a virtual machine: locks 45, SimpleQueue 45, Condition 43, ThreadPoolExecutor 48; after
half a millisecond of sleep 120 to 130 for each of them, as both tasks land on one core, and 37 with the worker kept off
the caller's. Looking again and again before sleeping gained nothing: who looks holds the interpreter's lock. The caller
takes the tasks that no worker has begun, so it never waits for one to wake up, and tiny tasks cost 3 us.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from math import ceil
from typing import Any

from .options import settings
from .pool import cgroup_folders, cgroup_value

Task = Callable[[], None]


class _Here(threading.local):
    """What holds for one thread."""

    working = False  # it runs a task, so what it calls runs on this thread alone


_here = _Here()


# ---- how many


def inside_task() -> bool:
    """Return whether this thread is running a task, for a caller who waits until it is done."""
    return _here.working


def count() -> int:
    """Return how many threads a computation may use here.

    The setting `threads` decides (`XTENSOR_NUM_THREADS`, `xt.options(threads=...)`); where it is unset, the processors
    this process may use. Inside a task it is 1.
    """
    if _here.working:
        return 1
    return getattr(settings(), "threads", None) or _processors()


@cache
def _processors() -> int:
    """Return what affinity, the control group and OMP_NUM_THREADS leave; 1 in a process that another one feeds."""
    if _is_child():
        return 1
    limits = [os.cpu_count() or 1, *_affinity(), *_quotas(), *_openmp()]
    return max(1, min(limits))


def _is_child() -> bool:
    """Tell whether multiprocessing started this process (and so joblib, loky, dask): its siblings fill the machine."""
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.parent_process() is not None


def _affinity() -> list[int]:
    return [len(os.sched_getaffinity(0))] if hasattr(os, "sched_getaffinity") else []


def _quotas() -> list[int]:
    """Return the processors that the control groups around this process allow, rounded up."""
    found = []
    for folder in cgroup_folders("cpu"):
        version2 = cgroup_value(folder / "cpu.max").split()
        version1 = [cgroup_value(folder / "cpu.cfs_quota_us"), cgroup_value(folder / "cpu.cfs_period_us")]
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
    """The tasks of one call that nobody has begun, and who is at work on the others."""

    __slots__ = ("active", "done", "failures", "waiting")

    def __init__(self, tasks: Sequence[Task]) -> None:
        self.waiting = deque(enumerate(tasks))
        self.active: set[Any] = set()
        self.failures: list[tuple[int, BaseException]] = []
        self.done = threading.Lock()
        self.done.acquire()

    def work(self) -> None:
        """Run tasks until none is waiting; what they raise is kept."""
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
        """Keep what a task raised. After an interrupt nothing new is begun."""
        self.failures.append((number, error))
        if not isinstance(error, Exception):
            self.waiting.clear()

    def help(self, worker: Any) -> None:
        """Work as one of several, and tell the caller when nobody is at work any more."""
        self.active.add(worker)  # before a task is taken: none may be under way unseen
        self.work()
        self.active.discard(worker)
        if not self.active:
            with suppress(RuntimeError):  # two that leave at once both tell it
                self.done.release()

    def wait(self) -> None:
        """Return when nobody is at work; an interrupt is kept for later."""
        while self.active:
            try:
                self.done.acquire()
            except BaseException as error:
                self.fail(-1, error)

    def finish(self) -> None:
        """Raise what the first of the failed tasks raised; an interrupt comes before all."""
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
        self.thread = threading.Thread(target=self._serve, name="xtensor", daemon=True)
        self.thread.start()

    def give(self, job: _Job, processor: int) -> None:
        """Wake the thread for a job, on another processor than the caller's."""
        self.job = job
        if processor != self.avoids:
            self._avoid(processor)
        if self.wake.locked():  # else it has yet to wake up for an earlier job, and will find this one
            self.wake.release()

    def _avoid(self, processor: int) -> None:
        """Keep the thread off a processor.

        Linux in a virtual machine takes a sleeping processor for a taken one and puts the two who should share the
        work onto one: the second would begin when the first has finished.
        """
        self.avoids = processor
        allowed = os.sched_getaffinity(0)
        with suppress(OSError):  # forbidden in some sandboxes; it is only slower then
            os.sched_setaffinity(self.thread.native_id or 0, allowed - {processor} or allowed)

    def _serve(self) -> None:
        _here.working = True
        while True:
            self.wake.acquire()
            job = self.job
            if job is not None:
                job.help(self)
            del job  # it holds what its tasks hold


class _Team:
    """The workers of this process; one call at a time has them."""

    def __init__(self) -> None:
        self.taken = threading.Lock()
        self._workers: list[_Worker] = []

    def workers(self, number: int) -> list[_Worker]:
        """Return so many workers, fewer where the system refuses to start a thread."""
        with suppress(RuntimeError):
            while len(self._workers) < number:
                self._workers.append(_Worker())
        return self._workers[:number]


_team = _Team()


def run(tasks: Sequence[Task]) -> None:
    """Run every task and return when all are done; then raise what the first of those that failed raised.

    The first task runs on the calling thread, the others there or on workers, in any order: none may wait for another.
    Inside a task, and while another thread has the workers, all run on the calling thread.
    """
    team, helpers = _team, min(len(tasks), count()) - 1
    if helpers > 0 and team.taken.acquire(blocking=False):
        try:
            _share(_Job(tasks), team.workers(helpers))
        finally:
            team.taken.release()
    else:
        job = _Job(tasks)
        job.work()
        job.finish()


def _share(job: _Job, workers: list[_Worker]) -> None:
    """Do a job together with workers."""
    _here.working = True
    try:
        _lead(job, workers)
    except BaseException as error:  # an interrupt between two tasks
        job.fail(-1, error)
    finally:
        try:
            job.wait()
        finally:
            job.wait()  # should an interrupt have hit between the lines of the first: the memory may not be freed yet
            _here.working = False
            for worker in workers:
                worker.job = None
    job.finish()


def _lead(job: _Job, workers: list[_Worker]) -> None:
    """Wake the workers, run the first task, and then what no worker has begun."""
    number, first = job.waiting.popleft()
    processor = _getcpu()()
    for worker in workers:
        worker.give(job, processor)
    job.attempt(number, first)
    job.work()


@cache
def _getcpu() -> Callable[[], int]:
    """Return the C library's sched_getcpu, or what says -1 where there is none."""
    try:
        return ctypes.PyDLL(None).sched_getcpu if hasattr(os, "sched_setaffinity") else lambda: -1
    except (OSError, AttributeError):
        return lambda: -1


def _after_fork() -> None:
    """Start anew in a child: the threads of its parent are not there, and its limits may be others."""
    global _team
    _team = _Team()
    _here.working = False
    _processors.cache_clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

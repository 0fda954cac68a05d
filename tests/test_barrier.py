"""The write barrier under stress: threads, failures, pickles, resizing, forks; and what pending work may hold."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import xtensor as xt
from xtensor.run.executor import ledger

N = 100_000  # elements: enough to be recorded


def test_threads_lose_no_reader() -> None:
    """What several threads recorded of one tensor is served before it is written."""
    x = xt.zeros(8192)
    kept: list[list[xt.Tensor]] = [[], []]

    def record(mine: list[xt.Tensor]) -> None:
        mine.extend(x + 1 for _ in range(400))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=record, args=(mine,)) for mine in kept]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    x[...] = 100.0
    assert all(float(z[0]) == 1 for mine in kept for z in mine)


@xt.options(engine="interpret")  # which asks the row for its function
def test_a_failed_barrier_forgets_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that cannot be evaluated stops the write, every time, and the other readers stay right."""
    x = xt.ones(N)
    bad, good = xt.exp(x), x + 1
    kernel = xt.exp.op.kernel  # type: ignore[attr-defined]

    def fails(backend: Any) -> Any:
        raise MemoryError("no room")

    monkeypatch.setattr(xt.exp.op, "kernel", fails)  # type: ignore[attr-defined]
    for _ in range(2):
        with pytest.raises(MemoryError):
            x[0] = 5.0
    monkeypatch.setattr(xt.exp.op, "kernel", kernel)  # type: ignore[attr-defined]
    x[0] = 5.0
    assert float(good[0]) == 2.0
    assert float(bad[0]) == float(np.exp(1.0))


def test_out_of_band_pickles_share_memory_safely() -> None:
    """A tensor unpickled over another's bytes can be written without changing what is pending on the other."""
    x = xt.ones(N)
    buffers: list[pickle.PickleBuffer] = []
    text = pickle.dumps(x, protocol=5, buffer_callback=buffers.append)
    y = pickle.loads(text, buffers=buffers)
    z = x + 1
    y[...] = 0
    assert float(z[0]) == 2.0
    assert float(x[0]) == 0.0


def test_resize_serves_pending_readers() -> None:
    """A tensor that is resized keeps nothing stale, and what was recorded of it keeps its old shape."""
    x = xt.arange(N)
    z = x + 1
    x.resize((10,))
    assert x.shape == (10,) and (x + 1).shape == (10,)
    assert z.shape == (N,) and float(z[-1]) == N


def test_resize_keeps_elements_and_adds_zeros() -> None:
    """As NumPy does, in the same memory and in new one; of a view with gaps, and after it was smaller."""
    n = np.arange(6.0).reshape(2, 3)
    for shape in ((3, 3), (2, 2), (12,), (0,), (4, 1), ()):
        x, a = xt.asarray(n, copy=True), n.copy()
        assert x.resize(shape) is x
        a.resize(shape, refcheck=False)
        np.testing.assert_array_equal(x.numpy(), a)
    x = xt.asarray(n, copy=True)
    x.resize(2)
    x.resize(2, 2, refcheck=False)
    assert x.tolist() == [[0.0, 1.0], [0.0, 0.0]]
    for key in (slice(1), (slice(None), slice(None, None, 2))):
        x = xt.asarray(n, copy=True)
        view = x[key]
        elements = view.numpy().ravel().tolist()
        view.resize(5)
        assert view.tolist() == [*elements, 0.0, 0.0, 0.0, 0.0][:5]
        np.testing.assert_array_equal(x.numpy(), n)


@pytest.mark.parametrize("name", ["dtype", "device"])
def test_metadata_is_read_only(name: str) -> None:
    """Dtype and device cannot be assigned past the memory they describe."""
    x = xt.ones(10)
    with pytest.raises(AttributeError):
        setattr(x, name, getattr(x, name))


def test_a_shape_that_is_assigned_serves_pending_readers() -> None:
    """The tensor looks at its memory in another shape; what was recorded of it, and views of it, keep theirs."""
    x = xt.arange(N)
    z, view = x + 1, x[2:]
    x.shape = (N // 2, 2)
    x[0, 0] = 7
    assert x.shape == (N // 2, 2) and z.shape == (N,) and int(z[0]) == 1
    view[0] = -1
    assert int(x[1, 0]) == -1 and view.shape == (N - 2,)
    with pytest.raises(ValueError, match="shape"):
        x.shape = (3, N)
    with pytest.raises(AttributeError):
        xt.ones((4, 6)).T.shape = (24,)


def test_all_that_is_pending_is_bounded() -> None:
    """Pending reductions over many arrays keep no more inputs alive than the limit."""
    with xt.options(pinned_limit=20 * 8 * N):
        sums, waiting = [], []
        for _ in range(200):
            sums.append(xt.sum(xt.ones(N)))
            waiting.append(sum(total.is_pending for total in sums))
    assert max(waiting) == 21  # the last one is held by who calls
    assert [float(total) for total in sums] == [N] * 200


def test_the_ledger_stays_short() -> None:
    """Nodes that are gone leave nothing behind."""
    x = xt.ones(N)
    for _ in range(20_000):
        x + 1
    assert len(ledger._nodes) <= 2 * 4096


def test_many_readers_of_one_value_stay_cheap() -> None:
    """References to readers that are gone are dropped."""
    z = xt.ones(N) + 1
    for _ in range(5_000):
        z * 2
    assert len(z.value.readers) <= 128  # type: ignore[union-attr]


CHAIN = """
import resource, xtensor as xt
y = xt.ones(1_000_000)
float(y[0])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for _ in range(50):
    y = y + 1.0
float(y[0])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""

FORK = """
import os, threading, xtensor as xt
stop = threading.Event()
def work():
    x = xt.ones(200_000)
    while not stop.is_set():
        float(xt.sum(xt.exp(x)))
thread = threading.Thread(target=work)
thread.start()
failed = 0
for _ in range(5):
    child = os.fork()
    if child == 0:
        os._exit(0 if float(xt.sum(xt.ones(100_000) + 1)) == 200_000 else 1)
    failed += os.waitpid(child, 0)[1] != 0
stop.set()
thread.join()
print(failed)
"""


def output(program: str) -> int:
    """Return the number a program prints; it runs in a process of its own."""
    place = str(Path(xt.__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": place}
    # An emulated Python cannot be started by its path: tests/machines.py says how.
    command = [*os.environ.get("XTENSOR_TEST_PYTHON", sys.executable).split(), "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=True)
    return int(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="counts memory as Linux does, in KiB")
def test_a_chain_lets_its_steps_go() -> None:
    """Fifty pending steps on 8 MB need a few arrays at a time, not fifty."""
    assert output(CHAIN) < 8 * 8 * 1024


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_can_evaluate() -> None:
    """A child forked while a thread evaluates finds the locks open."""
    assert output(FORK) == 0

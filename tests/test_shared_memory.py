"""Memory that others can write to: when it is read, by what, and how it is known that nobody holds it any more.

The oracle writes into the memory after each call, from outside: what was to be read before must have been.
"""

from __future__ import annotations

import gc
import pickle
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from programs import small_up_to

import xtensor as xt
from xtensor import nn
from xtensor.base.options import thin_closed
from xtensor.calls import thin
from xtensor.plan.costs import DIRECT_BELOW, FAST_LAUNCH_PAYS, LAUNCH_PAYS

# Elements of arrays that the library computes at once, and of such as launches are worth.
SMALL, MIDDLE, LARGE = 2_000, 40_000, 500_000
ENGINES = ["auto", "interpret", "llvm"]


@pytest.fixture(autouse=True, params=["auto", "always"])
def lazy(request: pytest.FixtureRequest) -> Iterator[str]:
    with xt.options(lazy=request.param):
        yield request.param


def numbers(size: int) -> Any:
    """An array that owns its memory, and that nobody but the caller holds."""
    return np.linspace(0.5, 2.0, size) * 1.0


def is_open(x: xt.Tensor) -> bool:
    """Return whether calls on a tensor are computed at once."""
    return not xt.sign(x).is_pending  # recorded from 256 KiB on


# ---- what is computed is computed before the call returns


CALLS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "add": lambda xp, x, y: x + 1.0,
    "two": lambda xp, x, y: xp.hypot(x, y),
    "three": lambda xp, x, y: xp.where(x > 1.0, x, y),
    "column": lambda xp, x, y: xp.reshape(x, (-1, 4)) * xp.reshape(y, (-1, 4))[:, :1],
    "view": lambda xp, x, y: x[::-2] - y[::2],
    "integers": lambda xp, x, y: xp.astype(x * 100.0, xp.int32) // 7,
    "comparison": lambda xp, x, y: (x < y) | (x == y),
    "with pending": lambda xp, x, y: (y * 1.0) * 2.0 + x,
    "sum": lambda xp, x, y: xp.sum(x),
    "max": lambda xp, x, y: xp.max(x),
    "rows": lambda xp, x, y: xp.max(xp.reshape(x, (-1, 50)), axis=1),
    "mean": lambda xp, x, y: xp.mean(x),
    "spread": lambda xp, x, y: xp.std(xp.reshape(x, (-1, 50)), axis=0),
    "argmin": lambda xp, x, y: xp.argmin(xp.reshape(x, (-1, 50)), axis=0),
    "cast": lambda xp, x, y: xp.astype(x, xp.float32),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("size", [SMALL, MIDDLE, LARGE])
@pytest.mark.parametrize("name", CALLS)
def test_a_call_reads_before_it_returns(name: str, size: int, engine: Any) -> None:
    """Met for the first time and again, imported, exported and in two buffers over the same memory."""
    call = CALLS[name]
    theirs, others = numbers(size), numbers(size)[::-1].copy()
    own = xt.asarray(others, copy=True)
    x, again, y = xt.asarray(theirs), xt.from_dlpack(theirs), xt.asarray(others)
    with xt.options(engine=engine):
        for turn in range(4):
            for args in ((x, y), (x, own), (again, x)):
                theirs[:] = np.roll(numbers(size), turn)
                right = call(np, *[np.asarray(one).copy() for one in args])
                result = call(xt, *args)
                theirs[:] = -100.0
                np.testing.assert_allclose(result.native(), right, rtol=1e-6 if name == "cast" else 1e-12)
                assert result.dtype == right.dtype and (name == "view" or not result.is_pending)


def test_errors_stay_what_they_are() -> None:
    for size in (SMALL, MIDDLE, LARGE):
        x = xt.asarray(np.arange(size))
        held = np.asarray(x)
        with pytest.raises(TypeError, match="bitwise_and: x2 must be integer or boolean"):
            xt.bitwise_and(x, x * 1.5)
        with pytest.raises(ValueError, match="add"):
            x + xt.asarray(np.ones(3))
        with pytest.raises(OverflowError):
            xt.asarray(np.ones(size, np.int8)) + 1000
        assert held.size == size


def test_compositions_read_before_they_return() -> None:
    theirs = numbers(LARGE).reshape(500, 1000)
    x = xt.asarray(theirs)
    for call in (nn.gelu, nn.softmax, nn.layer_norm, nn.silu):
        for _ in range(4):
            theirs[:] = numbers(LARGE).reshape(500, 1000)
            right = call(xt.asarray(theirs, copy=True)).native().copy()
            result = call(x)
            theirs[:] = -100.0
            # one of the two may be compiled and the other not yet: their sums differ in the last bits
            np.testing.assert_allclose(result.native(), right, rtol=1e-12, atol=1e-12)


def test_gradients_of_memory_of_others() -> None:
    theirs = numbers(LARGE)
    x = xt.asarray(theirs, requires_grad=True)
    for _ in range(3):
        theirs[:] = numbers(LARGE)
        x.grad = None
        loss = xt.sum(xt.tanh(x) * x)
        value = float(loss)
        loss.backward()
        t = np.tanh(theirs)
        np.testing.assert_allclose(value, np.sum(t * theirs), rtol=1e-12)
        assert x.grad is not None
        np.testing.assert_allclose(x.grad.native(), t + theirs * (1 - t * t), rtol=1e-12)


def test_updates_of_memory_of_others() -> None:
    """Also by what looks at the same memory through another buffer."""
    theirs = numbers(LARGE)
    right = theirs.copy()
    x, left, shifted = xt.asarray(theirs), xt.asarray(theirs[:-1]), xt.asarray(theirs[1:])
    for _ in range(3):
        x *= 1.5
        right *= 1.5
        left += shifted
        right[:-1] += right[1:].copy()
        shifted += xt.sqrt(left)
        right[1:] += np.sqrt(right[:-1])
        x[::2] = shifted[::2] + 1.0
        right[::2] = right[1::2].copy() + 1.0
        np.testing.assert_allclose(theirs, right, rtol=1e-13)


# ---- fused functions


def test_a_fused_function_reads_in_the_call() -> None:
    fused = xt.fuse(lambda x, y: (xt.sum(x * y), xt.exp(x - y)))
    theirs, others = numbers(LARGE), numbers(LARGE)
    args = xt.asarray(theirs), xt.asarray(others)
    for turn in range(5):
        theirs[:] = np.roll(numbers(LARGE), turn)
        total, result = fused(*args)
        right = np.exp(theirs - others)
        rights = np.sum(theirs * others)
        theirs[:] = 0.0
        np.testing.assert_allclose(result.native(), right, rtol=1e-14)
        np.testing.assert_allclose(float(total), rights, rtol=1e-12)
        theirs[:] = np.roll(numbers(LARGE), turn)
    assert fused.why(*args) == ""


def test_a_function_that_writes_to_one_of_two_views() -> None:
    """Two arguments over the same memory, in two buffers: what was recorded of one is read before the other changes."""
    theirs = numbers(LARGE)

    def function(x: xt.Tensor, y: xt.Tensor) -> xt.Tensor:
        z = y * 2.0
        x += 1.0
        return z + y

    fused = xt.fuse(function)
    for _ in range(3):
        before = theirs.copy()
        result = fused(xt.asarray(theirs), xt.asarray(theirs[:]))
        np.testing.assert_allclose(result.native(), before * 2.0 + before + 1.0)
        np.testing.assert_array_equal(theirs, before + 1.0)


# ---- nobody holds it any more


MADE: dict[str, Callable[[], Any]] = {
    "owner": lambda: numbers(MIDDLE),
    "shaped": lambda: numbers(MIDDLE).reshape(100, -1),
    "transposed": lambda: numbers(MIDDLE).reshape(100, -1).T,
    "in Fortran's order": lambda: np.asfortranarray(numbers(MIDDLE).reshape(100, -1)),
    "read-only": lambda: _read_only(numbers(MIDDLE)),
    "small numbers": lambda: np.ones(400_000, np.int8),
}


def _read_only(native: Any) -> Any:
    native.flags.writeable = False
    return native


@pytest.mark.parametrize("name", MADE)
def test_what_nobody_else_holds_is_read_later(name: str) -> None:
    x = xt.asarray(MADE[name]())
    assert not is_open(x)
    theirs = MADE[name]()
    x = xt.asarray(theirs)
    assert is_open(x) and np.shares_memory(np.asarray(x), theirs)
    right, strides, writeable = theirs + 1, theirs.strides, theirs.flags.writeable
    del theirs
    assert not is_open(x)
    np.testing.assert_array_equal((x + 1).native(), right)
    assert x.strides == strides and x.is_writeable is writeable


HOLDERS: dict[str, Callable[[Any], Any]] = {
    "the array": lambda n: n,
    "a view": lambda n: n[5:],
    "a view of a view": lambda n: n[5:].reshape(-1)[::3],
    "another dtype": lambda n: n.view(np.uint8),
    "memoryview": memoryview,
    "a weak reference": weakref.ref,
    "a tensor": lambda n: xt.asarray(n),
    "a view's tensor": lambda n: xt.asarray(n[1:]),
    "a capsule": lambda n: n.__dlpack__(),
    "DLPack": lambda n: np.from_dlpack(n),
    "a list": lambda n: [{"key": (n,)}],
    "a closure": lambda n: lambda: n,
    "a broadcast": lambda n: np.broadcast_to(n, (2, n.size)),
    "ctypes": lambda n: n.ctypes,
    "flat": lambda n: n.flat,
}


@pytest.mark.parametrize("name", HOLDERS)
@pytest.mark.parametrize("way", ["imported", "exported"])
def test_whoever_holds_it_keeps_it_open(name: str, way: str) -> None:
    """Memory that was imported, or exported; and once that is let go of, it is read later again."""
    if way == "imported":
        array = numbers(MIDDLE)
        x = xt.asarray(array)
    else:
        x = xt.asarray(numbers(MIDDLE), copy=True)
        array = np.asarray(x)
    holder = HOLDERS[name](array)
    dead = name == "a weak reference" and way == "exported"
    del array
    assert is_open(x) is not dead
    del holder
    gc.collect()
    assert not is_open(x)


def test_several_holders() -> None:
    array = numbers(MIDDLE)
    x = xt.asarray(array)
    first, second = np.asarray(x), x.numpy()[3:]
    for name in ("array", "first", "second"):
        assert is_open(x), name
        if name == "array":
            del array
        elif name == "first":
            del first
        else:
            del second
    assert not is_open(x)


def test_leaving_and_coming_back() -> None:
    """A tensor's own memory, exported and imported: both tensors know of each other."""
    x = xt.asarray(numbers(MIDDLE), copy=True)
    y = xt.asarray(np.asarray(x))
    assert is_open(x) and is_open(y)
    z = x + 1.0
    y[0] = 50.0
    assert float(x[0]) == 50.0 and float(z[0]) == 1.5
    del y
    assert not is_open(x)


def test_what_waits_is_read_before_memory_leaves() -> None:
    x = xt.asarray(numbers(LARGE))
    z = x + 1.0
    assert z.is_pending
    theirs = np.asarray(x)
    assert not z.is_pending
    theirs[:] = 0.0
    assert float(z[0]) == 1.5


def test_pickles_out_of_band_hold_it() -> None:
    x = xt.asarray(numbers(MIDDLE), copy=True)
    buffers: list[Any] = []
    data = pickle.dumps(x, protocol=5, buffer_callback=buffers.append)
    assert is_open(x)
    y = pickle.loads(data, buffers=buffers)
    y[0] = 9.0
    assert float(x[0]) == 9.0
    del y, buffers
    assert not is_open(x)


def test_threads_that_import_and_let_go() -> None:
    """Recording while others come to hold the memory and leave it: no value is read after a write."""
    x = xt.asarray(numbers(MIDDLE), copy=True)
    stop, failures = threading.Event(), []

    def write() -> None:
        while not stop.is_set():
            theirs = np.asarray(x)
            before = float(theirs[0])
            theirs[0] = before + 1.0
            theirs[-1] = before + 1.0
            del theirs

    def read() -> None:
        last = 0.0
        for _ in range(300):
            y = (x * 1.0).native()
            if y[0] < last:
                failures.append((last, y[0]))
            last = y[0]

    writer = threading.Thread(target=write)
    writer.start()
    try:
        read()
    finally:
        stop.set()
        writer.join()
    assert not failures


def test_an_export_between_checking_and_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    """By another thread, when a call has seen that nobody holds the memory and has not yet said that it reads it."""
    from xtensor.calls import record as recording

    x = xt.asarray(numbers(LARGE), copy=True)
    (x + 1.0).evaluate()
    worth_recording, exported = recording.worth_recording, []

    def interrupted(*args: Any) -> bool:
        if not exported:
            thread = threading.Thread(target=lambda: exported.append(np.asarray(x)))
            thread.start()
            thread.join()
        return worth_recording(*args)

    for call in (lambda x: x + 1.0, xt.exp, lambda x: xt.sum(x, axis=0), xt.mean):
        call(x)
        exported.clear()
        monkeypatch.setattr(recording, "worth_recording", interrupted)
        monkeypatch.setattr("xtensor.calls.op.worth_recording", interrupted)
        z, right = call(x), call(xt.asarray(numbers(LARGE), copy=True)).native().copy()
        exported[0][:] = 100.0
        np.testing.assert_array_equal(z.native(), right)
        exported[0][:] = numbers(LARGE)
        exported.clear()
        monkeypatch.undo()


def test_an_export_of_one_of_two_arguments() -> None:
    """Inside a function that is watched: the other may be the same memory."""
    theirs = numbers(MIDDLE)

    def function(x: xt.Tensor, y: xt.Tensor) -> xt.Tensor:
        exported = np.asarray(x)
        z = y * 2.0
        exported[:] = 7.0
        return z

    fused = xt.fuse(function)
    for _ in range(3):
        theirs[:] = 1.0
        assert float(fused(xt.asarray(theirs), xt.asarray(theirs))[3]) == 2.0


@pytest.mark.parametrize("size", [16, MIDDLE])
def test_an_array_may_change_its_shape(size: int) -> None:
    theirs = numbers(size)
    x = xt.asarray(theirs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # NumPy's from 2.5 on
        theirs.shape = (4, -1)
    assert x.shape == (x + 1.0).shape == x.native().shape == (size,)
    theirs.setflags(write=False)
    x += 1.0
    assert float(theirs[0, 0]) == 1.5


# ---- little work


def test_reductions_of_whole_arrays_are_not_recorded() -> None:
    """Where the library takes less time than a launch, and nothing is pending."""
    with thin.in_python(), small_up_to(DIRECT_BELOW, DIRECT_BELOW), xt.options(lazy="auto"):
        for size, function, waits in (
            (LAUNCH_PAYS // 8, xt.sum, False),
            (LAUNCH_PAYS // 8 + 1, xt.sum, True),
            (FAST_LAUNCH_PAYS // 8, xt.max, False),
            (FAST_LAUNCH_PAYS // 8 + 1, xt.argmin, True),
        ):
            x = xt.asarray(numbers(size), copy=True)
            assert function(x).is_pending is (waits or thin_closed[0] > 0)
            is_row = function is xt.argmin and not thin_closed[0]  # along which the library goes as fast
            assert function(x, axis=0).is_pending is not is_row and function(x * 2.0).is_pending
            np.testing.assert_allclose(function(x).native(), getattr(np, function.__name__)(numbers(size)), rtol=1e-13)

"""Library functions that the machine code of captured functions calls: values, errors, threads, and what is held."""

from __future__ import annotations

import gc
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.linalg import LinAlgError
from test_dispatch import answered, by_machine_code, by_python

import xtensor as xt
import xtensor.numpy as xnp
from xtensor.calls import known as known_kinds
from xtensor.calls import thin
from xtensor.codegen.cpu import compile as compile_
from xtensor.codegen.cpu.compile import host
from xtensor.run import callbacks

pytestmark = pytest.mark.skipif(host() is None, reason="there is no compiler, and machine code answers no calls")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tell machine code of calls as soon as it can be, whatever they cost."""
    assert thin.exchange()
    monkeypatch.setattr(known_kinds, "DISPATCHED_AFTER", 1)
    monkeypatch.setattr(known_kinds, "AGAIN_AFTER", 1)
    monkeypatch.setattr(known_kinds.Known, "_is_small", lambda *_: False)
    monkeypatch.setattr(compile_, "HOT_CALLS", 0)
    yield


def told(function: Callable[..., Any], *args: Any) -> Any:
    """Return a captured function whose calls with such arguments machine code answers."""
    fused = xt.fuse(function)
    for _ in range(200):
        fused(*args)
        if answered(fused):
            return fused
    raise AssertionError(f"machine code answers no call: {fused.explained()}")


def same(found: Any, expected: Any) -> None:
    found, expected = (one if isinstance(one, tuple) else (one,) for one in (found, expected))
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        one = np.asarray(one)
        assert (one.shape, one.dtype) == (np.shape(other), np.asarray(other).dtype)
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


def ranked(np: Any, x: Any, y: Any, i: Any) -> Any:
    order = np.argsort(x * 2)
    return order, np.sort(y[order] - 1)[::-1] * 2


def spectrum(np: Any, x: Any, y: Any, i: Any) -> Any:
    z = np.fft.rfft(x * y)
    return np.abs(z) ** 2, np.fft.irfft(z * 0.5, 64)


def counted(np: Any, x: Any, y: Any, i: Any) -> Any:
    total = np.zeros(9)
    np.add.at(total, i, x)
    return total + np.bincount(i, y, minlength=9), np.digitize(x, np.sort(y[:5]))


def written(np: Any, x: Any, y: Any, i: Any) -> Any:
    x[10:20] = np.sort(x[10:20])
    y += np.interp(x, np.sort(y), x * 2)
    x *= 0.5
    return x.sum()


def whole(np: Any, x: Any, y: Any, i: Any) -> Any:
    return np.sort(x)


def of_matrices(np: Any, x: Any, y: Any, i: Any) -> Any:
    a = x.reshape(8, 8) + 20 * np.eye(8)
    values, vectors = np.linalg.eigh(a @ a.T)
    return values, np.abs(vectors), np.linalg.solve(a, y[:8]), np.linalg.qr(a)[1] ** 2


def eliminated(np: Any, x: Any, y: Any, i: Any) -> Any:
    """Elimination over GF(2): searches in views of what was made, and rows that change places."""
    a = i.reshape(8, 8) & 1
    for k in range(8):
        row = k + np.argmax(a[k:, k])
        kept = a[row].copy()
        a[row] = a[k]
        a[k] = kept
        column = a[:, k].copy()
        column[k] = 0
        a ^= column[:, None] & a[k]
    return a


def of_views(np: Any, x: Any, y: Any, i: Any) -> Any:
    part = np.sort(x)[::-1].reshape(8, 8).T
    return np.argmax(part[2:], axis=0), np.sort(part[:, 1:4], axis=1), np.argsort(y[::3]), part * 2


FUNCTIONS = [ranked, spectrum, counted, written, whole, of_matrices, eliminated, of_views]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda one: str(one.__name__))
def test_values(function: Callable[..., Any]) -> None:
    """They are NumPy's, call for call, with arguments that change, and results stay what they were."""
    rng = np.random.default_rng(0)
    given = rng.random(64), rng.random(64), rng.integers(0, 9, 64)
    fused = told(lambda *args: function(xnp, *args), *[xnp.array(one) for one in given])
    kept = []
    for _ in range(5):
        given = rng.random(64), rng.random(64), rng.integers(0, 9, 64)
        ours = [xnp.array(one) for one in given]
        found, expected = by_machine_code(fused, *ours), function(np, *given)
        kept.append((found, expected))
        for one, other in zip(ours, given, strict=True):
            same(one, other)
    for found, expected in kept:
        same(found, expected)


@pytest.mark.parametrize("dtype", ["float32", "complex64", "int16", "bool"])
def test_dtypes_and_places(dtype: str) -> None:
    """Of any dtype, of views that lie in any way, and without axes or elements."""

    def function(np: Any, x: Any) -> Any:
        part = x[::-2]
        return np.sort(part, axis=1), np.sort(x.T, axis=0).sum(axis=0), np.sort(x[:0]), np.median(x.real * 1.0)

    rng = np.random.default_rng(1)
    make = lambda: rng.integers(0, 50, (6, 5)).astype(dtype)  # noqa: E731
    fused = told(lambda x: function(xnp, x), xnp.array(make()))
    for _ in range(3):
        x = make()
        same(by_machine_code(fused, xnp.array(x)), function(np, x))


def test_a_failure_is_the_functions_own() -> None:
    """Where nothing was written the function is called; its error names its line, and later calls are right."""
    fused = told(lambda a, x: xnp.linalg.eigh(a)[0] + xnp.sort(x), xnp.eye(3), xnp.ones(3))
    bad = xnp.array(np.full((3, 3), np.nan))
    for _ in range(3):
        with pytest.raises(LinAlgError, match="converge"):
            fused(bad, xnp.ones(3))
        same(by_machine_code(fused, xnp.eye(3) * 2, xnp.ones(3)), np.full(3, 3.0))


def test_a_failure_after_a_write() -> None:
    """It is raised, once, and what was written before it stays written, as of a plain call."""

    def function(x: Any, a: Any) -> Any:
        x += 1
        return xnp.linalg.eigh(a)[0] + x

    fused = told(function, xnp.zeros(3), xnp.eye(3))
    x, bad = xnp.zeros(3), xnp.array(np.full((3, 3), np.nan))
    for times in (1, 2, 3):
        same(by_machine_code(fused, x, xnp.eye(3)), np.full(3, 2.0 * times))
        before = answered(fused)
        with pytest.raises(LinAlgError) as failed:
            fused(x, bad)
        assert answered(fused) == before + 1
        same(x, np.full(3, 2.0 * times))
        frames = traceback.walk_tb(failed.tb)
        assert not any("natives" in frame.f_locals and frame.f_locals["natives"] for frame, _ in frames)


def test_failures_of_two_kinds() -> None:
    """An index outside and a singular matrix in one function: whichever it is, later calls are right."""
    fused = told(
        lambda a, b, x, i: xnp.linalg.solve(a, b) + x[i], xnp.eye(3), xnp.ones(3), xnp.ones(4), xnp.array([0, 1, 2])
    )
    good = xnp.eye(3), xnp.ones(3), xnp.arange(4.0), xnp.array([0, 1, 2])
    for place, bad, error in ((3, xnp.array([0, 1, 77]), IndexError), (0, xnp.zeros((3, 3)), LinAlgError)):
        for _ in range(2):
            with pytest.raises(error):
                fused(*[bad if at == place else one for at, one in enumerate(good)])
            same(by_machine_code(fused, *good), np.array([1.0, 2.0, 3.0]))


def interrupted(monkeypatch: pytest.MonkeyPatch, action: Callable[[], None], *, after: bool = False) -> None:
    """Do something once within the next library call that machine code makes, before the function runs or after it."""
    called, left = callbacks.CPU.call, [action]

    def call(*args: Any, **given: Any) -> Any:
        found = called(*args, **given) if after else None
        if left:
            left.pop()()
        return found if after else called(*args, **given)

    monkeypatch.setattr(callbacks.CPU, "call", call)


@pytest.mark.parametrize("after", [False, True])
def test_an_interrupt(after: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reaches the caller, and the kind goes on answering."""
    fused = told(lambda x: xnp.sort(x * 2) + 1, xnp.ones(4))

    def stop() -> None:
        raise KeyboardInterrupt

    interrupted(monkeypatch, stop, after=after)
    with pytest.raises(KeyboardInterrupt):
        fused(xnp.ones(4))
    same(by_machine_code(fused, xnp.array([2.0, 1.0, 0.0, 3.0])), np.array([1.0, 3.0, 5.0, 7.0]))


@pytest.mark.parametrize("after", [False, True])
def test_a_call_inside_a_call(after: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that comes meanwhile, as of a finalizer, is answered in Python, and each has its own result."""
    fused = told(lambda x: xnp.sort(x * 2) + 1, xnp.ones(4))
    inner: list[Any] = []
    x, y = xnp.array([2.0, 1.0, 0.0, 3.0]), xnp.array([9.0, 7.0, 8.0, 6.0])
    interrupted(monkeypatch, lambda: inner.append(by_python(fused, y)), after=after)
    same(fused(x), np.array([1.0, 3.0, 5.0, 7.0]))
    same(inner[0], np.array([13.0, 15.0, 17.0, 19.0]))
    same(by_machine_code(fused, y), np.array([13.0, 15.0, 17.0, 19.0]))


def test_what_was_found_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the function finds by its names, and others let go of meanwhile, is there until the call has ended."""

    class State:
        def __init__(self) -> None:
            self.x = xnp.arange(5000.0)[::-1].copy()
            self.last = None

    home = {"state": State()}

    def function() -> Any:
        state = home["state"]
        state.last = xnp.sort(state.x * 2)
        return state.last + state.x

    fused = told(function)
    seen, first = weakref.ref(home["state"]), home["state"].x.numpy().copy()

    def change() -> None:
        home["state"] = State()
        gc.collect()
        np.full(50_000, 7.0)  # where what was let go of may have been

    interrupted(monkeypatch, change)
    same(fused(), np.sort(first * 2) + first)
    gc.collect()
    assert seen() is None, "the call is over, and holds nothing any more"


def test_threads() -> None:
    """Several at once, each with arguments of its own, all of which are right."""
    fused = told(lambda x, y: (xnp.sort(x * 2) + 1, x + xnp.sort(y)), xnp.ones(3000), xnp.ones(3000))
    wrong: list[Any] = []

    def run(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(300):
            x, y = rng.random(3000), rng.random(3000)
            found = fused(xnp.array(x), xnp.array(y))
            if not np.array_equal(np.asarray(found[0]), np.sort(x * 2) + 1) or not np.array_equal(
                np.asarray(found[1]), x + np.sort(y)
            ):
                wrong.append(seed)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(4)]
    before, interval = answered(fused), sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for one in threads:
            one.start()
        for one in threads:
            one.join()
    finally:
        sys.setswitchinterval(interval)
    assert not wrong
    assert 300 < answered(fused) - before < 1200, "some calls come while another one is inside, and are Python's"


def test_generators_are_drawn_from_in_order() -> None:
    """A call draws what a plain one draws, and once."""
    ours, theirs = xt.random.default_rng(5), xt.random.default_rng(5)
    plain = lambda rng, x: x + rng.random((4,)) * rng.normal(size=(4,))  # noqa: E731
    fused = told(plain, ours, xnp.zeros(4))
    for _ in range(answered(fused) + sum(one.uses for one in fused._known.values())):
        plain(theirs, xnp.zeros(4))
    for _ in range(3):
        same(by_machine_code(fused, ours, xnp.ones(4)), plain(theirs, xnp.ones(4)))


def test_generators_of_objects() -> None:
    """One that an object or the surroundings have is drawn from, and another one in its place instead."""

    class Walk:
        def __init__(self, seed: int) -> None:
            self.rng, self.x = xt.random.default_rng(seed), xnp.zeros(3)

        def step(self) -> None:
            self.x = self.x + self.rng.normal(size=(3,)) * above.random(())

    above = xt.random.default_rng(1)
    step, plain, ours = xt.fuse(Walk.step), Walk.step, Walk(5)
    for _ in range(40):
        step(ours)
    by_machine_code(step, ours)
    count, theirs, above = 41, Walk(5), xt.random.default_rng(1)
    for _ in range(count):
        plain(theirs)
    same(ours.x, theirs.x)
    above = xt.random.default_rng(2)
    step(ours)
    above = xt.random.default_rng(2)
    plain(theirs)
    same(ours.x, theirs.x)


def test_nothing_is_kept() -> None:
    """Neither arguments nor results, of calls that end well or do not."""
    fused = told(lambda a: xnp.linalg.eigh(a)[0] * 2, xnp.eye(3))
    good, bad = xnp.eye(3), xnp.array(np.full((3, 3), np.nan))
    result = by_machine_code(fused, good)
    with pytest.raises(LinAlgError):
        fused(bad)
    gone = [weakref.ref(one) for one in (good, bad, result)]
    del good, bad, result
    gc.collect()
    assert [one() for one in gone] == [None] * 3


def test_long_results_are_found_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would be copied once more."""
    monkeypatch.setattr(callbacks.costs, "CALLBACK_BYTES", 64)
    fused = xt.fuse(lambda x: xnp.sort(x) * 2)
    for _ in range(40):
        by_python(fused, xnp.ones(9))

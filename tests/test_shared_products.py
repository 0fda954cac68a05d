"""Products that threads share in parts, with the BLAS held to one thread: NumPy's values, the same bits however many
threads take part, and a BLAS that has its threads again afterwards.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any

import numpy as np
import pytest

import xtensor as xt
from xtensor.codegen.cpu import holding
from xtensor.codegen.cpu.compile import host
from xtensor.devices import blas
from xtensor.run import native, products

Array = Any

needs_code = pytest.mark.skipif(host() is None, reason="needs llvmlite")
needs_blas = pytest.mark.skipif(not blas.address("dgemm"), reason="NumPy's BLAS is not OpenBLAS")
pytestmark = [needs_code, needs_blas]


@pytest.fixture(autouse=True)
def threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Four threads, which share products however small."""
    monkeypatch.setattr(products, "SHARE_PAYS", 0.0)
    monkeypatch.setattr("xtensor.base.threads.SHARE_PAYS", 0.0)
    monkeypatch.setattr(native, "PART_PAYS", 1e-12)
    monkeypatch.setattr(products.costs, "PRODUCT_SHARED", 1e-12)
    with xt.options(engine="llvm", threads=4):
        yield


@pytest.fixture(params=["shared", "alone"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Whether four threads run the parts, or one."""
    alone = request.param == "alone"
    ran: list[int] = []
    monkeypatch.setattr(native.Segment, "_shares", lambda self: ran.append(1) or (not alone, None))
    yield str(request.param)
    assert ran


def matrices(rng: Any, shape: tuple[int, ...], dtype: str) -> Iterator[tuple[str, Array]]:
    """Yield stacks of matrices that lie in different ways."""
    wide = rng.standard_normal((*shape[:-2], shape[-2] + 3, shape[-1] + 5))
    wide = (wide + 1j * rng.standard_normal(wide.shape) if dtype[0] == "c" else wide).astype(dtype)
    own = np.ascontiguousarray(wide[..., : shape[-2], : shape[-1]])
    yield "rows", own
    yield "columns", np.ascontiguousarray(own.swapaxes(-1, -2)).swapaxes(-1, -2)
    yield "window", wide[..., 2 : shape[-2] + 2, 4 : shape[-1] + 4]


def captured(function: Callable[..., Any], *arrays: Array) -> tuple[Array, list[native.Segment]]:
    """Return the result of a captured call, and the segments of its schedule."""
    fused = xt.fuse(function, strict=True)
    for _ in range(3):
        found = fused(*[xt.asarray(one) for one in arrays])
    (known,) = fused._known.values()
    segments = [getattr(one, "segment", None) for one in known.captured._schedule.instructions]
    return np.asarray(found), [one for one in segments if isinstance(one, native.Segment)]


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize(
    ("m", "k", "n"), [(2, 3, 2), (33, 40, 16), (70, 80, 90), (200, 7, 3), (3, 7, 200), (64, 300, 64), (17, 2, 1000)]
)
def test_parts_make_the_product(way: str, dtype: str, m: int, k: int, n: int) -> None:
    rng, eps = np.random.default_rng(m * k * n), np.finfo(dtype).eps
    before = blas.thread_count()
    for (own, a), (other, b) in product(matrices(rng, (m, k), dtype), matrices(rng, (k, n), dtype)):
        found, segments = captured(lambda x, y: xt.matmul(x, y) + 1, a, b)
        scale = np.abs(a) @ np.abs(b) + 1
        assert np.all(np.abs(found - (a @ b + 1)) <= 2 * k * eps * scale), (own, other)
        assert segments and all(one._alone.held for one in segments)
    assert blas.thread_count() == before


@pytest.mark.parametrize("lead", [(2,), (4,), (3, 2), (5, 4), (17,)])
def test_stacks(way: str, lead: tuple[int, ...]) -> None:
    rng = np.random.default_rng(len(lead))
    for (_, a), (_, b) in product(
        matrices(rng, (*lead, 34, 20), "float64"), matrices(rng, (*lead[1:], 20, 50), "float64")
    ):
        found, segments = captured(lambda x, y: xt.matmul(x, y) * 2, a, b)
        np.testing.assert_allclose(found, np.matmul(a, b) * 2, rtol=1e-13, atol=1e-13)
        assert segments


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_operands_that_the_blas_does_not_take_are_copied(way: str, dtype: str) -> None:
    """So does NumPy with most; reproducible products are left to it."""
    rng = np.random.default_rng(9)
    wide = rng.standard_normal((80, 120)).astype(dtype)
    odd = {
        "strided": wide[::2, ::3],
        "backwards": wide[:40, 40:0:-1],
        "one row": np.broadcast_to(wide[0, :40], (40, 40)),
        "stack of rows": np.broadcast_to(wide[:3, None, :40], (3, 40, 40)),
        "whole": np.ascontiguousarray(wide[:40, :40]),
    }
    for (own, a), (other, b) in product(odd.items(), odd.items()):
        for reproducible in (False, True):
            with xt.options(reproducible=reproducible):
                found, segments = captured(lambda x, y: xt.matmul(x, y) + 1, a, b)
            right = a @ b + 1
            np.testing.assert_allclose(found, right, rtol=1e-4 if dtype == "float32" else 1e-12, atol=1e-4)
            if reproducible:
                np.testing.assert_array_equal(found, right, err_msg=f"{own}, {other}")
            assert reproducible or own == other or len(segments) == 1


def test_bits_do_not_depend_on_who_takes_part(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    for m, k, n in ((100, 1000, 320), (48, 768, 72), (300, 700, 500)):
        a, b = rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)
        found = []
        for shares in (True, False):
            monkeypatch.setattr(native.Segment, "_shares", lambda self, shares=shares: (shares, None))
            found.append(captured(lambda x, y: xt.matmul(x, y) + 1, a, b)[0])
        np.testing.assert_array_equal(*found)


def test_matrices_that_lie_at_one_place_are_copied_once() -> None:
    rng = np.random.default_rng(6)
    wide, b = rng.standard_normal((80, 60)), rng.standard_normal((5, 30, 70))
    a = np.broadcast_to(wide[::2, ::2], (5, 40, 30))
    found, segments = captured(lambda x, y: xt.matmul(x, y) + 1, a, b)
    np.testing.assert_allclose(found, a @ b + 1, rtol=1e-12)
    (way,) = [one.way for one in segments[0].makes if isinstance(one.way, products.ByBlas)]
    scratch = native.Scratch()
    way.launches(native.Making(4, False, False, scratch))
    assert scratch.nbytes <= 40 * 30 * 8 + 64


def test_whole_products_that_weigh_more_are_left_to_the_blas_with_the_others() -> None:
    """A matrix times itself transposed is no product that is cut: the BLAS's threads share it, if it is larger."""
    rng = np.random.default_rng(7)
    for large, held in ((150, False), (10, True)):
        x, a, b = rng.standard_normal((large, large)), rng.standard_normal((40, 50)), rng.standard_normal((50, 40))
        found, segments = captured(lambda x, a, b: xt.sum(x @ x.T) + xt.sum(a @ b), x, a, b)
        np.testing.assert_allclose(found, np.sum(x @ x.T) + np.sum(a @ b), rtol=1e-10)
        assert any(one._alone.held for one in segments) == held


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers here")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # an interrupt inside a finalizer
def test_an_interrupt_leaves_the_blas_its_threads() -> None:
    before, words = blas.thread_count(), holding.one_thread.words
    rng = np.random.default_rng(8)
    a, b = (xt.asarray(rng.standard_normal((150, 150))) for _ in range(2))
    fused = xt.fuse(lambda x, y: xt.matmul(x, y) + 1, strict=True)

    def interrupted(*_: Any) -> None:
        raise InterruptedError

    earlier = signal.signal(signal.SIGALRM, interrupted)
    try:
        for n in range(400):
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-6 + 1e-6 * n)
                for _ in range(3):
                    fused(a, b)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except InterruptedError:
                pass
            assert blas.thread_count() == before and not words[holding.ASKING] and not words[holding.BUSY]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, earlier)


def test_reproducible_results_are_whole_products() -> None:
    rng = np.random.default_rng(5)
    a, b = rng.standard_normal((120, 700)), rng.standard_normal((700, 90))
    with xt.options(reproducible=True):
        found, segments = captured(lambda x, y: xt.matmul(x, y) + 1, a, b)
    assert segments and not any(one._alone.held for one in segments)
    np.testing.assert_array_equal(found, a @ b + 1)


@pytest.mark.parametrize("rows", [1, 2, 15, 16, 17, 63, 64, 1000])
@pytest.mark.parametrize("columns", [2, 16, 33, 512])
@pytest.mark.parametrize("number", [2, 3, 4, 7, 16, 64])
def test_parts_cover_a_matrix_once(rows: int, columns: int, number: int) -> None:
    down, across = products._grid(rows, columns, number)
    for parts, length in ((down, rows), (across, columns)):
        assert [begin for begin, _ in parts] == [0, *[end for _, end in parts[:-1]]]
        assert parts[-1][1] == length and all(begin < end for begin, end in parts)
    assert len(down) * len(across) <= number


@contextmanager
def held_elsewhere() -> Iterator[None]:
    """Another thread holds the BLAS to one thread."""
    inside, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with holding.one_thread:
            inside.set()
            leave.wait(20)

    other = threading.Thread(target=hold)
    other.start()
    try:
        assert inside.wait(20)
        yield
    finally:
        leave.set()
        other.join()


def is_free(before: int | None) -> bool:
    """Return whether the BLAS has its threads, and nobody holds it."""
    return blas.thread_count() == before and not holding.one_thread.words[holding.ASKING]


def test_blocks_of_several_threads_hold_the_blas_together() -> None:
    before = blas.thread_count()
    with held_elsewhere():
        with holding.one_thread:
            assert blas.thread_count() == 1
        assert blas.thread_count() == 1
    assert is_free(before)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_has_the_threads_that_another_thread_held() -> None:
    before = blas.thread_count()
    with held_elsewhere():
        child = os.fork()
        if not child:
            a = np.ones((300, 300))
            os._exit(0 if is_free(before) and float((a @ a)[0, 0]) == 300 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with holding.one_thread:  # and a fork inside a block
        child = os.fork()
        if not child:
            holding.one_thread.__exit__()
            os._exit(0 if is_free(before) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert is_free(before)

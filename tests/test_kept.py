"""Memory of NumPy's results: which blocks are kept, for whom, and how much."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import xtensor as xt
from xtensor.codegen.cpu import kept
from xtensor.codegen.cpu.driver import driver
from xtensor.devices.cpu import CPU, quickly
from xtensor.storage.pool import POOL


@pytest.fixture
def keeping() -> Iterator[Callable[[int], int]]:
    """Have NumPy keep memory, none of it yet; give what sets the most bytes and returns how many were freed."""
    driver()
    ((limit, most),) = POOL._beside
    limit(0)
    limit(most)
    yield limit
    limit(0)
    limit(most)


def small(nbytes: int) -> xt.Tensor:
    """Return a small result of a function of NumPy's, which is ones."""
    return xt.ones(nbytes // 8) * 1.0


def address(x: xt.Tensor) -> int:
    return int(x._data.__array_interface__["data"][0])


def test_results_take_the_memory_of_the_last_one_of_their_size(keeping: Callable[[int], int]) -> None:
    """In a context of its own, whose arrays say so; NumPy's own calls outside are as they were."""
    x, y = small(100_000), small(200_000)
    assert np._core.multiarray.get_handler_name(x._data) == "xtensor"  # type: ignore[attr-defined]
    assert np._core.multiarray.get_handler_name(np.ones(20_000) * 2) == "default_allocator"  # type: ignore[attr-defined]
    places = address(x), address(y)
    del x, y
    again = small(200_000), small(100_000), small(100_000)
    assert (address(again[1]), address(again[0])) == places and address(again[2]) not in places
    assert all(bool((one._data == 1.0).all()) for one in again)


@pytest.mark.parametrize("nbytes", [kept.LEAST - 8, kept.LEAST, kept.MOST, kept.MOST + 8])
def test_blocks_of_what_size_are_kept(keeping: Callable[[int], int], nbytes: int) -> None:
    """Less is quickly had, and more is written by generated code."""
    native = quickly(np.multiply, np.ones(nbytes // 8), 2.0)
    assert np._core.multiarray.get_handler_name(native) == "xtensor"  # type: ignore[attr-defined]
    del native
    assert keeping(0) == (nbytes if kept.LEAST <= nbytes <= kept.MOST else 0)


def test_kept_memory_is_bounded(keeping: Callable[[int], int]) -> None:
    """The oldest blocks go first: of many bytes, and of many blocks."""
    for nbytes, count in ((400_000, 30), (80_000, 50)):
        some = [small(nbytes) for _ in range(count)]
        last = address(some[-1])
        while some:
            del some[0]
        assert address(small(nbytes)) == last
        held = keeping(0)
        assert nbytes < held <= kept.ALL and held <= kept.BLOCKS * nbytes
        keeping(kept.ALL)


def test_kept_memory_is_trimmed_and_limited(keeping: Callable[[int], int]) -> None:
    """By the pool's own calls."""
    xt.memory.trim()
    quickly(np.multiply, np.ones(12_500), 2.0)
    assert xt.memory.trim() >= 100_000  # more where something else was let go of meanwhile
    assert keeping(0) == 0
    try:
        xt.memory.set_limit(0)
        quickly(np.multiply, np.ones(12_500), 2.0)
        assert keeping(0) == 0
    finally:
        xt.memory.set_limit(None)
    quickly(np.multiply, np.ones(12_500), 2.0)
    assert keeping(0) == 100_000


def test_kept_memory_is_nobody_elses(keeping: Callable[[int], int]) -> None:
    """What is held keeps its elements, in any order of calls, in several threads, in arrays that NumPy made larger."""

    def use(seed: int) -> None:
        rng = np.random.default_rng(seed)
        held: list[tuple[float, xt.Tensor]] = []
        for number in range(600):
            nbytes = 8 * int(rng.choice([9_000, 10_000, 20_000, 65_000, 140_000]))
            value = float(seed * 1000 + number)
            held.append((value, small(nbytes) * value))
            if number % 50 == 0:
                own = CPU.call(np.add, np.ones(10_000), value)
                own.resize(20_000, refcheck=False)
                assert (own[:10_000] == value + 1).all() and (own[10_000:] == 0).all()
            while len(held) > rng.integers(1, 20):
                value, x = held.pop(int(rng.integers(len(held))))
                assert bool((x.native() == value).all())
                del x

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(use, range(4)))


@pytest.mark.parametrize("function", [np.sort, np.argsort, lambda a: np.argpartition(a, 2)])
def test_no_block_is_kept_of_a_null(keeping: Callable[[int], int], function: Callable[..., object]) -> None:
    """NumPy's sorts free buffers that they have not allocated: taken for blocks, they were a lack of memory later."""
    values = np.random.default_rng(0).normal(size=50_000)
    found = quickly(function, values)
    assert np.array_equal(found, function(values))
    assert keeping(0) == 0
    keeping(kept.ALL)
    assert np.array_equal(quickly(function, values), function(values))
    held = [quickly(np.multiply, values, 2.0) for _ in range(3)]
    assert all(np.array_equal(one, values * 2.0) for one in held)

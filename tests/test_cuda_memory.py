"""Out of memory on a device, with an allocator that refuses: what is tried again, and that nothing is half done.

On host memory, and with emulated kernels. Nothing here shows what a GPU does.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any

import emulated
import host_cupy
import numpy as np
import pytest

import xtensor as xt
from xtensor.run import cuda_segment

if emulated.MISSING:
    pytest.skip(emulated.MISSING, allow_module_level=True)

CUDA = "cuda:0"
LARGE = 64  # bytes of what is refused at least


class Allocator:
    """Refuses the allocation of this number, and so many in all. asked: how many there were."""

    def __init__(self) -> None:
        self._own = host_cupy._allocate
        self.asked, self.first, self.count = 0, -1, 0

    def __call__(self, nbytes: int) -> Any:
        if nbytes >= LARGE:
            self.asked += 1
            if self.first <= self.asked - 1 < self.first + self.count:
                raise host_cupy.memory.OutOfMemoryError(nbytes, 0, 0)
        return self._own(nbytes)

    def refuse(self, number: int, count: int) -> None:
        self.asked, self.first, self.count = 0, number, count


@pytest.fixture(scope="module", params=["host memory", "emulated"])
def there(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Host memory, where the library's functions do all work, or emulated kernels."""
    if request.param == "emulated":
        with emulated.device() as launches:
            yield launches
    else:
        with host_cupy.installed() as library, xt.options(engine="direct"):
            yield library


@pytest.fixture
def allocator(there: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Allocator]:
    own = Allocator()
    monkeypatch.setattr(host_cupy, "_allocate", own)
    host_cupy.real.cuda.set_allocator(own)
    yield own
    host_cupy.real.cuda.set_allocator(own._own)


def numbers(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).integers(1, 9, shape).astype(np.float32)


X, Y = numbers(6, 20), numbers(6, 20)

PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "to the device": lambda x, y: xt.asarray(X, device=x.device),
    "zeros": lambda x, y: xt.zeros((30, 3), device=x.device),
    "one call": lambda x, y: x + y,
    "a library's function": lambda x, y: xt.sort(x, axis=1),
    "a conversion": lambda x, y: xt.astype(x, xt.float64),
    "a copy": lambda x, y: xt.asarray(x.T, copy=True),
    "index arrays": lambda x, y: x[xt.asarray(np.arange(5).repeat(9), device=x.device)],
    "a product": lambda x, y: x @ y.T,
    "convolution": lambda x, y: xt.nn.conv(x[None, None], y[None, None, :2, :3]),
    "reductions": lambda x, y: xt.sum(x * y + 1.0, axis=1, keepdims=True) * y,
    "softmax": lambda x, y: xt.nn.softmax(x * y),
    "gradient": lambda x, y: xt.grad(lambda x: xt.sum(xt.exp(x / 9.0) * y))(x),
}


@pytest.mark.parametrize("lazy", ["auto", "always"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_second_try(name: str, lazy: Any, allocator: Allocator) -> None:
    """Whichever allocation is refused once, values are as without; refused for good, that is said, and all is as
    before.
    """
    program = PROGRAMS[name]
    given = [xt.asarray(one, device=CUDA) for one in (X, Y)]
    with xt.options(lazy=lazy):

        def run() -> Any:
            return program(*given).to_device("cpu").numpy()

        wanted = run()
        allocator.refuse(-1, 0)
        np.testing.assert_array_equal(run(), wanted)
        allocations = allocator.asked
        assert allocations
        for number in range(allocations):
            allocator.refuse(number, 1)
            np.testing.assert_array_equal(run(), wanted)
            assert allocator.asked > number
            allocator.refuse(number, 1 << 30)
            with pytest.raises(MemoryError, match=r"^cuda:0: Out of memory allocating [\d,]+ bytes"):
                run()
            allocator.refuse(-1, 0)
            for one, other in zip(given, (X, Y), strict=True):
                np.testing.assert_array_equal(one.to_device("cpu").numpy(), other)
            np.testing.assert_array_equal(run(), wanted)


def test_pending_work_lets_go_of_its_inputs(allocator: Allocator) -> None:
    """Of memory that only it holds: before an outermost call is tried a third time, not in the middle of one."""
    with xt.options(lazy="always"):
        large = xt.asarray(X, device=CUDA)
        gone = weakref.ref(large.owner)
        total = xt.sum(large * 2.0)
        del large
        assert gone() is not None
        for count, evaluated in ((1, False), (2, True)):
            allocator.refuse(0, count)
            np.testing.assert_array_equal(xt.zeros((30, 3), device=CUDA).to_device("cpu"), np.zeros((30, 3)))
            assert (gone() is None) == evaluated
        allocator.refuse(-1, 0)
        assert float(total) == 2 * X.sum()


def test_an_evaluation_begins_again_after_the_others(allocator: Allocator) -> None:
    with xt.options(lazy="always"):
        large = xt.asarray(X, device=CUDA)
        gone = weakref.ref(large.owner)
        total = xt.sum(large * 2.0)
        x = xt.asarray(Y, device=CUDA)
        z = xt.sort(x + 1.0, axis=1) * 2.0
        del large
        allocator.refuse(0, 2)
        np.testing.assert_array_equal(z.to_device("cpu"), np.sort(Y + 1, axis=1) * 2)
        assert gone() is None
        allocator.refuse(-1, 0)
        assert float(total) == 2 * X.sum()


UPDATES: dict[str, Callable[[Any, Any, Any], None]] = {
    "index arrays": lambda x, places, values: x.__setitem__(places, values),
    "a mask": lambda x, places, values: x.__setitem__(places > 3, values[places > 3]),
    "a slice": lambda x, places, values: x.__setitem__(slice(None, None, -1), values * 2.0),
    "in place": lambda x, places, values: x.__iadd__(values),
}


@pytest.mark.parametrize("name", UPDATES)
def test_an_update_is_whole_or_not_at_all(name: str, allocator: Allocator) -> None:
    """Whichever of its allocations is refused, for once or for good."""
    places, values = (xt.asarray(one, device=CUDA) for one in (np.arange(40)[::-1].copy(), numbers(40)))
    x = xt.zeros(40, device=CUDA)
    UPDATES[name](x, places, values)
    wanted = x.tolist()
    failed = 0
    for number in range(6):
        for count in (1, 1 << 30):
            x = xt.zeros(40, device=CUDA)
            allocator.refuse(number, count)
            try:
                UPDATES[name](x, places, values)
                after = wanted
            except MemoryError:
                after, failed = [0.0] * 40, failed + 1
            allocator.refuse(-1, 0)
            assert x.tolist() == after
    assert failed or name in ("in place", "a slice")  # which may take no memory


def test_graphs_go_first(there: Any, allocator: Allocator) -> None:
    """With their tables, and are recorded anew."""
    if there is host_cupy.module():
        pytest.skip("no kernel runs on host memory, so that there are no graphs")
    x = xt.asarray(X, device=CUDA)

    def run() -> Any:
        with xt.options(lazy="always"):
            y = xt.exp(x / 9.0)
            return (xt.sum(y, axis=0) * xt.max(x) + xt.sum(xt.cos(xt.sum(y, axis=1)))).evaluate()

    for _ in range(2):
        before = set(cuda_segment._graphs)
        found = [run().to_device("cpu").numpy() for _ in range(cuda_segment.REPEATS + 2)][-1]
        graphs = set(cuda_segment._graphs) - before
        assert graphs
        allocator.refuse(0, 1)
        np.testing.assert_array_equal(run().to_device("cpu"), found)
        segments = [one.segment() for one in graphs]
        assert not any(one is not None and one.graphs for one in segments)

"""Whole functions under xt.fuse: writes, overlaps and what others got silently wrong, call after call."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from logging import Handler, Logger, LogRecord
from typing import Any
from weakref import ref

import numpy as np
import pytest

import xtensor as xt
from xtensor.base.options import Settings, settings, thin_closed
from xtensor.codegen.cpu.compile import host
from xtensor.run import schedule
from xtensor.storage.storage import trusted, watchers

needs_llvm = pytest.mark.skipif(host() is None, reason="generated code needs llvmlite and a fused multiply-add")
SHIFT = 3.0


@pytest.fixture(autouse=True)
def defaults(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Begin with the default settings, whatever the environment asks of the other tests; leave nobody watching."""
    settings()
    monkeypatch.setattr(sys.modules["xtensor.base.options"], "_from_environment", [Settings(cache_dir="")])
    yield
    assert not watchers


@pytest.fixture(params=["interpret", pytest.param("llvm", marks=needs_llvm)], autouse=True)
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run a test on each engine that has kernels."""
    with xt.options(engine=request.param, cache_dir=""):
        yield request.param


def both(n: int = 64, dtype: str = "float64", seed: int = 0) -> tuple[xt.Tensor, np.ndarray]:
    """Return the same elements as a tensor and as an array."""
    a = np.random.default_rng(seed).integers(-9, 9, n).astype(dtype)
    return xt.asarray(a, copy=True), a.copy()


def agrees(one: Any, other: Any) -> None:
    """Check that a result is what NumPy gives."""
    if isinstance(other, tuple):
        for mine, right in zip(one, other, strict=True):
            agrees(mine, right)
    elif isinstance(other, np.ndarray):
        np.testing.assert_array_equal(np.asarray(one), other, strict=True)
    else:
        assert one == other


def follows(function: Callable[..., Any], views: Callable[[Any], tuple[Any, ...]], calls: int = 5) -> Any:
    """Check a fused function beside NumPy, on views of fresh memory at each call; return it."""
    fused = xt.fuse(function, strict=True)
    for call in range(calls):
        x, a = both(seed=call)
        agrees(fused(*views(x)), function(*views(a)))
        np.testing.assert_array_equal(np.asarray(x), a)
    return fused


# ---- what others got silently wrong


def doubled(x: Any, y: Any) -> Any:
    x *= 2.0
    return x + y


def test_arguments_that_overlap_in_a_new_way() -> None:
    fused = xt.fuse(doubled, strict=True)
    ways = [
        lambda a: (a[:4], a[10:14]),
        lambda a: (a[:4], a[2:6]),
        lambda a: (a[2:6], a[:4]),
        lambda a: (a[:4], a[:4]),
        lambda a: (a[1:5], a[40:44]),
    ]
    for call, way in enumerate(ways * 3):
        x, a = both(seed=call)
        agrees(fused(*way(x)), doubled(*way(a)))
        np.testing.assert_array_equal(np.asarray(x), a)


def test_a_copy_that_matters() -> None:
    def function(x: Any) -> None:
        x[1:] = x[:-1].copy()

    follows(function, lambda a: (a,))


def test_a_scatter_and_a_reversed_read() -> None:
    def function(x: Any, index: Any) -> None:
        x[index] = 7.0
        x += x[::-1]

    index = np.array([3, 5, 5, -1])
    fused = xt.fuse(function, strict=True)
    for call in range(4):
        x, a = both(seed=call)
        fused(x, xt.asarray(index, copy=True))
        function(a, index)
        np.testing.assert_array_equal(np.asarray(x), a)


def test_windows_that_overlap_themselves() -> None:
    """Reversed, shifted, and read through a view of what is pending yet."""

    def function(x: Any) -> Any:
        x[5:2:-1] = x[3:6]
        y = x + 1.0
        y[3::-1] = y[0:4]
        z = y * 2.0
        z[2:8] = z[:6]
        return y, z

    follows(function, lambda a: (a[:20],))


def test_square_views_are_returned_as_they_lie() -> None:
    def function(x: Any) -> Any:
        y = x.reshape((8, 8)) * 2.0
        return y.T, (y + 1.0)[::-1], y

    follows(function, lambda a: (a,))


def test_masks_that_take_other_elements_each_time() -> None:
    def function(x: Any, y: Any) -> None:
        x[x > 2.0] = 0.0
        y[...] = x

    follows(function, lambda a: (a[:20], a[30:50]))
    fused = xt.fuse(lambda x, m, y: x.__setitem__(m, y))
    for n in (3, 3, 5, 2):
        x, a = both()
        mask = np.arange(64) < n
        fused(x, xt.asarray(mask, copy=True), xt.asarray(np.arange(float(n)), copy=True))
        a[mask] = np.arange(n)
        np.testing.assert_array_equal(np.asarray(x), a)


def test_nothing_assigned_where_a_mask_takes_nothing() -> None:
    """Another time the mask takes something: that is an error then, which the function itself meets."""

    def function(x: Any, m: Any) -> Any:
        try:
            x[m] = xt.zeros(0)
        except ValueError:
            return x * 2.0
        return x + 1.0

    fused = xt.fuse(function)
    for taken in (0, 0, 0, 3, 0):
        x, a = both()
        right = a * 2.0 if taken else a + 1.0
        agrees(fused(x, xt.asarray(np.arange(64) < taken, copy=True)), right)


def test_writes_into_memory_that_came_from_numpy() -> None:
    """What a function imports is not captured, nor written a second time."""
    source = np.arange(64.0)

    def function(x: Any) -> Any:
        y = xt.asarray(source, copy=True)
        y[3:9] = x[:6]
        return y + x

    fused = xt.fuse(function)
    for call in range(4):
        source[...] = call
        x, a = both(seed=call)
        right = source.copy()
        right[3:9] = a[:6]
        agrees(fused(x), right + a)


def test_a_source_that_is_written_after_it_was_copied() -> None:
    def function(x: Any, y: Any) -> None:
        x[:] = y
        y += 1.0

    follows(function, lambda a: (a[:20], a[30:50]))


def test_an_argument_that_is_cleared_after_it_was_used() -> None:
    def function(x: Any) -> Any:
        y = x * 1.0
        y[2:5] = x[5:8]
        x[:] = 0.0
        return y

    follows(function, lambda a: (a,))


def test_a_view_of_what_is_written_is_returned() -> None:
    def function(x: Any, y: Any) -> Any:
        x += 1.0
        return y[0:1], y

    follows(function, lambda a: (a[:30], a[1:31]))


def test_a_view_with_gaps_keeps_them() -> None:
    def function(x: Any) -> None:
        x[::3] *= 2.0
        x[1::3] = x[::3][: x[1::3].shape[0]]

    follows(function, lambda a: (a[2:50],))


def test_writes_through_what_returns_its_argument() -> None:
    def function(x: Any) -> None:
        y = xt.asarray(x) if isinstance(x, xt.Tensor) else np.asarray(x)
        y[3] = 5.0
        z = y.reshape(-1)
        z[4] = 6.0

    follows(function, lambda a: (a,))


def test_reversed_updates() -> None:
    def function(base: Any, x: Any) -> None:
        base[::-1] += 2.0 * x[::-1]

    follows(function, lambda a: (a[:20], a[5:25]))
    follows(function, lambda a: (a[:20], a[30:50]))


def test_writes_to_arguments_that_are_not_returned() -> None:
    def function(x: Any, y: Any) -> Any:
        y[...] = x * 3.0
        x[0] = -1.0
        return x * 2.0

    follows(function, lambda a: (a[:10], a[20:30]))


# ---- and besides


def test_results_are_memory_of_their_own() -> None:
    """A result that goes in again, a fresh argument after it, and results that are kept."""
    fused = xt.fuse(lambda x: (x * 2.0 - 1.0)[::1] + 0.5, strict=True)
    x, a = both()
    kept = []
    for _ in range(6):
        x = fused(x)
        a = a * 2.0 - 0.5
        kept.append((x, a))
    kept.append((fused(both(seed=5)[0]), both(seed=5)[1] * 2.0 - 0.5))
    for one, other in kept:
        np.testing.assert_array_equal(np.asarray(one), other)


def test_pending_readers_see_what_was_before() -> None:
    def function(x: Any) -> None:
        x += 1.0

    fused = xt.fuse(function, strict=True)
    x, a = both(100_000)
    for _ in range(4):
        before, right = xt.exp(x * 0.1) + x, np.exp(a * 0.1) + a
        fused(x)
        function(a)
        np.testing.assert_allclose(np.asarray(before), right, rtol=1e-14)
        np.testing.assert_array_equal(np.asarray(x), a)


class Model:
    """An object whose attributes a method reads."""

    rate = 2.0

    def __init__(self) -> None:
        self.weight, self.offset, self.sizes = xt.ones(64), 1.0, [1, 2]

    @xt.fuse
    def step(self, x: Any) -> Any:
        """Return what depends on everything."""
        return x * self.weight * self.rate + self.offset + SHIFT + float(self.sizes[0])


def test_names_are_looked_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attributes of objects and classes, globals and closures may change between calls."""
    model, other = Model(), Model()
    other.weight = xt.ones(64) * 5.0
    x, a = both()
    for rate, offset, shift, size in ((2.0, 1.0, 3.0, 1), (2.0, 1.0, 3.0, 1), (4.0, 0.5, 2.0, 7), (2.0, 1.0, 3.0, 1)):
        monkeypatch.setattr(Model, "rate", rate)
        monkeypatch.setattr(sys.modules[__name__], "SHIFT", shift)
        for one in (model, other):
            one.offset, one.sizes[0] = offset, size
            one.weight += 1.0
            for _ in range(3):
                right = a * np.asarray(one.weight) * rate + offset + shift + size
                np.testing.assert_array_equal(np.asarray(one.step(x)), right)
    assert Model.step.why(model, x) == ""


def test_containers_of_arguments() -> None:
    def function(state: dict[str, Any], pair: tuple[Any, Any]) -> Any:
        state["x"] += pair[0]
        return {"y": state["x"] * pair[1], "n": len(state)}

    fused = xt.fuse(function, strict=True)
    for call in range(4):
        (x, a), (y, b) = both(seed=call), both(seed=call + 50)
        mine, right = fused({"x": x, "k": 3}, (y, 2.0)), function({"x": a, "k": 3}, (b, 2.0))
        agrees(mine["y"], right["y"])
        assert mine["n"] == right["n"]
        np.testing.assert_array_equal(np.asarray(x), a)


def test_an_exception_leaves_whole_statements() -> None:
    """What was done before is done, in the call that is watched and in the plain ones; later calls are captured."""

    def function(x: Any, n: int) -> Any:
        x += 1.0
        if n:
            raise KeyError("stop")
        x *= 2.0
        return x[1:] + 1.0

    fused = xt.fuse(function)
    x, a = both()
    for n in (1, 0, 1, 0, 0, 1):
        for args, run in (((x, n), fused), ((a, n), function)):
            try:
                run(*args)
            except KeyError:
                assert n
        np.testing.assert_array_equal(np.asarray(x), a)
    assert fused.why(x, 0) == ""


def test_errors_of_library_calls_come_in_replays() -> None:
    def function(x: Any) -> Any:
        x += 1.0
        y = xt.linalg.inv(x)
        x *= 2.0
        return y

    fused = xt.fuse(function, strict=True)
    for _ in range(3):
        fused(xt.eye(3) * 4.0)
    x = xt.zeros((3, 3)) - 1.0
    with pytest.raises(np.linalg.LinAlgError):
        fused(x)
    np.testing.assert_array_equal(np.asarray(x), np.zeros((3, 3)))


@pytest.mark.parametrize("kind", ["cross_entropy", "embedding"])
def test_classes_are_checked_in_replays(kind: str) -> None:
    """A captured function asks again whether there are such classes, at its place among the statements."""

    def function(x: Any, rows: Any, classes: Any) -> Any:
        x += 1.0
        found = xt.nn.embedding(classes, rows) if kind == "embedding" else xt.nn.cross_entropy(rows, classes)
        x *= 2.0
        return found

    fused = xt.fuse(function, strict=True)
    rows = xt.reshape(xt.arange(12.0, dtype=xt.float32), (4, 3))
    last = 3 if kind == "embedding" else 2
    for classes in ([0, 1, 2, 1], [2, 2, 0, 0], [1, 0, 1, last]):
        given = xt.asarray(classes)
        found = fused(xt.zeros(8), rows, given)
        np.testing.assert_allclose(found.numpy(), function(xt.zeros(8), rows, given).numpy(), rtol=1e-6)
    for wrong in (last + 1, -1):
        x = xt.zeros(8)
        with pytest.raises(IndexError, match=f"{kind}: .* must hold integers from 0 to {last}, got {wrong}"):
            fused(x, rows, xt.asarray([0, wrong, 1, 0]))
        np.testing.assert_array_equal(x.numpy(), np.ones(8))


def test_read_only_arguments_are_refused() -> None:
    def function(x: Any) -> Any:
        x += 1.0
        return x * 2.0

    fused = xt.fuse(function)
    for _ in range(3):
        fused(both()[0])
    frozen = xt.broadcast_to(xt.ones(()), (64,))
    for _ in range(3):
        with pytest.raises(ValueError, match="read-only"):
            fused(frozen)


def test_arrays_shared_with_numpy() -> None:
    """What outsiders write between calls is read, and what is written they see."""

    def function(x: Any) -> Any:
        x[1:-1] += x[2:] * 0.5
        return x * 2.0

    fused = xt.fuse(function, strict=True)
    a = np.arange(64.0)
    b, x = a.copy(), xt.asarray(a)
    for call in range(5):
        a[call] = b[call] = -7.0 * call
        agrees(fused(x), function(b))
        np.testing.assert_array_equal(a, b)


def test_results_without_axes_are_values_in_every_call() -> None:
    """Updated in place they become others, in the call that is watched and in replays; arrays stay what they are."""
    fused = xt.fuse(lambda x: (xt.sum(x * 2.0), x[1], xt.reshape(x[2:3], ())), strict=True)
    for _ in range(4):
        x = xt.asarray([1.0, 2.0, 3.0])
        found = fused(x)
        total, element, part = found
        total += 1.0
        element += 1.0
        part += 1.0
        assert [float(one) for one in found] == [12.0, 2.0, 4.0] and x.tolist() == [1.0, 2.0, 4.0]


def test_arguments_of_numpy_are_tensors_inside() -> None:
    """They share their memory, in captured calls, plain ones and nested ones; results are tensors in each."""

    def step(x: Any, y: Any, scale: float = 2.0) -> Any:
        x[1:] += y * scale
        return x * 0.5, y[:2]

    inner = xt.fuse(step)
    for fused in (xt.fuse(step, strict=True), xt.fuse(lambda x, y: inner(x, y=y), strict=True)):
        for views in (
            lambda a: (a[:9], a[20:28]),
            lambda a: (a[:9], a[1:9]),
            lambda a: (a[9::-1][:9], a[30:38]),
        ):
            for call in range(4):
                mine, right = both(seed=call)[1], both(seed=call)[1]
                halves, part = fused(*views(mine))
                agrees(halves, step(*views(right))[0])
                np.testing.assert_array_equal(mine, right)
                assert type(part) is xt.Tensor and np.shares_memory(part.numpy(), mine)
    assert fused.why(*views(mine)) == ""


@pytest.mark.parametrize("a", [np.arange(4).astype(">f8"), np.array(["a", "b"]), np.array([1, None])])
def test_arrays_that_no_tensor_can_share_are_left_alone(a: Any) -> None:
    fused = xt.fuse(lambda x: x)
    assert fused(a) is a and "ndarray" in fused.why(a)


def test_read_only_arrays_are_refused() -> None:
    """As a plain call refuses them, and they stay as they are."""
    fused = xt.fuse(doubled)
    a = np.ones(8)
    a.flags.writeable = False
    for _ in range(3):
        with pytest.raises(ValueError, match="read-only"):
            fused(a, xt.ones(8))
    assert a.tolist() == [1.0] * 8


def test_gradients_inside_and_outside() -> None:
    def loss(w: Any, x: Any) -> Any:
        y = x * w
        y[3:10] = w[3:10] * 2.0
        return xt.sum(y * y)

    fused = xt.fuse(lambda w, x: xt.value_and_grad(loss)(w, x), strict=True)
    for call in range(4):
        w, x = both(seed=call)[0], both(seed=call + 9)[0]
        value, gradient = fused(w, x)
        right, other = xt.value_and_grad(loss)(w, x)
        assert float(value) == float(right)
        np.testing.assert_array_equal(np.asarray(gradient), np.asarray(other))
    outer = xt.fuse(lambda x: xt.exp(x * 0.1))
    for _ in range(3):
        outer(w)
    np.testing.assert_allclose(
        np.asarray(xt.grad(lambda w: xt.sum(outer(w)))(w)), 0.1 * np.exp(np.asarray(w) * 0.1), rtol=1e-14
    )


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_a_view_that_is_returned_of_what_nobody_else_keeps(dtype: str) -> None:
    """Its memory is a result although the value that it is part of is not."""

    def function(x: Any) -> Any:
        y = xt.astype(x, getattr(xt, dtype))
        view = xt.squeeze(y, axis=(0,))
        y = view * 2
        y[0, ::-2] -= 300
        return view

    fused, x = xt.fuse(function), np.arange(12, dtype=np.uint32).reshape(1, 3, 4)
    for n in range(4):
        np.testing.assert_array_equal(np.asarray(fused(xt.asarray(x + n))), (x + n)[0].astype(dtype))


class Lines(Handler):
    """It counts what is logged, where no signature looks."""

    count = 0

    def emit(self, record: LogRecord) -> None:
        self.count += 1


def test_a_step_for_windows_of_one_array() -> None:
    """The same function on every row of an array is captured once."""
    log, lines = Logger("calls"), Lines()
    log.addHandler(lines)

    def function(x: Any, y: Any) -> None:
        log.warning("called")
        y[...] = x * 2.0 + y

    fused = xt.fuse(function)
    big, right = xt.asarray(np.arange(64.0 * 64).reshape(64, 64), copy=True), np.arange(64.0 * 64).reshape(64, 64)
    for i in range(40):
        fused(big[i], big[i + 3])
        right[i + 3] = right[i] * 2.0 + right[i + 3]
    np.testing.assert_array_equal(np.asarray(big), right)
    assert lines.count == 1


def test_threads_call_one_function() -> None:
    def function(x: Any) -> Any:
        y = xt.zeros(1000)
        y[1:] = x[:-1] * 2.0
        x += 1.0
        return y + x

    fused, failures = xt.fuse(function), []

    def work(seed: int) -> None:
        for call in range(60):
            x, a = xt.asarray(np.full(1000, seed + call, np.float64), copy=True), np.full(1000, seed + call, np.float64)
            y = np.zeros(1000)
            y[1:] = a[:-1] * 2.0
            a += 1.0
            if not np.array_equal(np.asarray(fused(x)), y + a) or not np.array_equal(np.asarray(x), a):
                failures.append((seed, call))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


class Hidden:
    """A place that no name of a function leads to."""

    __slots__ = ("x",)


HIDDEN = Hidden()


def test_values_that_come_from_nowhere() -> None:
    """A tensor that is not found by its name is asked for its value at each call, or read by a plain call."""
    HIDDEN.x = xt.asarray(np.arange(64.0), copy=True)
    looks, reads = xt.fuse(lambda x: x * float(HIDDEN.x[3])), xt.fuse(lambda x: x * HIDDEN.x)
    indexes, tests = xt.fuse(lambda x: x[int(HIDDEN.x[3]) :]), xt.fuse(lambda x: x * (2.0 if HIDDEN.x[3] > 3 else 1.0))
    x, a = both()
    for value in (3.0, 3.0, 5.0, 5.0, 2.0):
        HIDDEN.x[3] = value
        agrees(looks(x), a * value)
        agrees(reads(x), a * np.asarray(HIDDEN.x))
        agrees(indexes(x), a[int(value) :])
        agrees(tests(x), a * (2.0 if value > 3 else 1.0))


def test_random_numbers_are_drawn_in_order() -> None:
    """From a generator that is given, or found by its name; one that a function makes begins anew."""
    generators = [xt.random.default_rng(seed) for seed in (1, 1, 2, 2)]

    def noisy(x: Any, generator: Any) -> Any:
        return x + generator.normal(size=64) * generator.random(64, dtype=xt.float64)

    fused = xt.fuse(noisy, strict=True)
    x, _ = both()
    for _ in range(4):
        for mine, plain in (generators[:2], generators[2:]):
            agrees(fused(x, mine), np.asarray(noisy(x, plain)))
    own, other = xt.random.default_rng(5), xt.random.default_rng(5)
    found = xt.fuse(lambda x: x * own.integers(0, 9, 64), strict=True)
    for _ in range(4):
        agrees(found(x), np.asarray(x * other.integers(0, 9, 64)))
    anew = xt.fuse(lambda x: noisy(x, xt.random.default_rng(7)))
    for _ in range(4):
        agrees(anew(x), np.asarray(noisy(x, xt.random.default_rng(7))))


@pytest.mark.parametrize("enabled", [True, False])
def test_the_garbage_collector_is_left_as_it_was(enabled: bool) -> None:
    """After first and second calls, and after errors in these."""

    def step(x: Any, fails: bool) -> Any:
        x += 1.0
        if fails:
            raise LookupError
        return x * 2.0

    fused = xt.fuse(step)
    try:
        (gc.enable if enabled else gc.disable)()
        for fails in (False, False, False, True, True):
            with pytest.raises(LookupError) if fails else nullcontext():
                fused(xt.ones(8), fails)
            assert gc.isenabled() == enabled
    finally:
        gc.enable()


def test_recursion_and_nesting() -> None:
    @xt.fuse
    def power(x: Any, n: int) -> Any:
        return x * 1.0 if n == 0 else power(x, n - 1) * x

    inner = xt.fuse(lambda x: x.__iadd__(1.0))
    outer = xt.fuse(lambda x: (inner(x), x * 2.0)[1], strict=True)
    for call in range(4):
        x, a = both(seed=call)
        agrees(power(x, 3), ((a * 1.0 * a) * a) * a)
        a += 1.0
        agrees(outer(x), a * 2.0)
        np.testing.assert_array_equal(np.asarray(x), a)


def test_what_functools_partial_binds_is_read_again() -> None:
    """Bound tensors are arguments like others, wherever their memory is written to between two calls."""
    (w, b), (x, a) = both(seed=1), both(seed=2)
    fused = xt.fuse(partial(lambda w, x, *, scale: w * x * scale, w, scale=2.0), strict=True)
    for _ in range(4):
        agrees(fused(x), b * a * 2.0)
        w += 1.0
        b += 1.0
    assert fused.why(x) == ""


def test_a_resized_argument_is_another_kind() -> None:
    """What is remembered of how memory lies goes with its shape."""
    fused = xt.fuse(lambda x: x * 2.0, strict=True)
    x = xt.asarray([1.0, 2.0, 3.0, 4.0])
    for shape in ((4,), (2,), (2, 2), (4,)):
        x.resize(shape)
        for _ in range(3):
            agrees(fused(x), np.asarray(x) * 2.0)


def test_a_loop_is_launched_again() -> None:
    """Statements that come again over the same memory are entered once, whatever comes between them."""

    def sweeps(x: Any, y: Any) -> Any:
        for turn in range(40):
            y[1:-1] = 0.5 * (x[:-2] + x[2:])
            x[1:-1] = y[1:-1] - 0.25 * x[1:-1]
            x[0] = 1.0
            x[-1] = float(turn % 2)
            y[5] = x[3]
        return x[2:5] * 1.0

    fused = xt.fuse(sweeps, strict=True)
    for call in range(4):
        (x, a), (y, b) = both(seed=call), both(seed=call + 9)
        agrees(fused(x, y), sweeps(a, b))
        agrees(x, a)
        agrees(y, b)


@pytest.mark.parametrize("call", [xt.sort, lambda x: xt.argsort(x) * 1.0, lambda x: xt.fft.fft(x).real])
def test_results_of_the_library_are_let_go_of(call: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """What a library call of a captured function returns is there until its last use, not until the function ends."""

    def function(x: Any) -> Any:
        total = x * 0.5
        for _ in range(6):
            total = call(total) + x
        return total

    fused = xt.fuse(function, strict=True)
    for seed in range(3):
        x, _ = both(seed=seed)
        np.testing.assert_allclose(np.asarray(fused(x)), np.asarray(function(x)), rtol=1e-12)

    made: list[ref[Any]] = []
    most: list[int] = []

    def noted(*given: Any) -> Any:
        blob = laid_out(*given)
        made.append(ref(blob.owner))
        most.append(sum([one() is not None for one in made]))
        return blob

    laid_out = schedule._laid_out
    monkeypatch.setattr(schedule, "_laid_out", noted)
    fused(x)
    assert len(most) == 6
    assert max(most) <= 2


def test_statements_alike_have_their_own_scalars_and_places() -> None:
    """What statements over arrays that lie alike have in common is found once, and small ones call the library first:
    each has its own numbers, its own memory, and what it reads of itself.
    """

    def statements(x: Any) -> None:
        for i, number in enumerate([3.0, 0.0, -0.0, float("inf"), 2.0, 5.0] * 4):
            x[i : i + 8] = x[i + 4 : i + 12] * 0.5 - np.float64(i)
            x[2 * i] = (x[i] + 1.0) * number
            x[: i + 2] += x[1 : i + 3]
            x[i] /= number

    with xt.options(engine="auto"), np.errstate(all="ignore"):
        fused = follows(statements, lambda x: (x,))
        x, a = both(seed=1)
        statements(a)
        fused(x)
        np.testing.assert_array_equal(np.signbit(np.asarray(x)), np.signbit(a))


def test_columns_of_one_array_are_written_from_others() -> None:
    """A recurrence along an axis reads what lies between what it writes: one pass each, nothing kept aside."""

    def recurrence(x: Any, y: Any) -> Any:
        for j in range(1, x.shape[1]):
            x[:, j] = 0.5 * x[:, j - 1] + y[:, j]

    fused = xt.fuse(recurrence, strict=True)
    for call in range(3):
        given = [both(120, seed=seed) for seed in (call, call + 9)]
        (x, a), (y, b) = [(xt.reshape(one, (10, 12)), other.reshape(10, 12)) for one, other in given]
        fused(x, y)
        recurrence(a, b)
        agrees(x, a)
    assert " 0 bytes of arena" in str(xt.explain(fused))


def moved_by(fused: Any, *args: Any) -> int:
    """Return the bytes that the kernels of a call read and write."""
    with xt.profile() as found:
        fused(*args)
    return sum([entry.nbytes for entry in found.entries if entry.kind == "kernel"])


def test_what_nobody_reads_is_not_stored_and_what_lies_in_one_place_is_read_once() -> None:
    """The operand of a statement is held while it is computed; two views of the same elements are two tensors."""

    def function(x: Any, y: Any) -> Any:
        x[1:-1] += 2.0 * y[1:-1] * y[1:-1]

    follows(function, lambda x: (x[:30], x[30:60]))
    x, y = (xt.zeros(64) for _ in range(2))
    fused = xt.fuse(function)
    for _ in range(3):
        fused(x, y)
    assert moved_by(fused, x, y) == 3 * 62 * 8


def test_reductions_that_nobody_reads() -> None:
    """They are computed in the pass over what is asked for, if somebody holds them; not in later calls."""

    def function(x: Any) -> Any:
        y = x * 2.0
        total = y.sum() if isinstance(y, np.ndarray) else xt.sum(y)
        x[...] = y[::-1]
        return y if total is None else x[:4] + 1.0

    follows(function, lambda x: (x,))


@pytest.mark.parametrize("read", [slice(1, 9), slice(2, 10), slice(9, 1, -1), slice(0, 16, 2)])
def test_views_that_lie_alike_are_told_from_others(read: slice) -> None:
    """The same elements, a shifted view, one the other way round, one with gaps: beside a view that is written."""

    def function(x: Any) -> Any:
        part, other = x[1:9], x[read]
        part += 3.0 * x[1:9] * other - x[read]
        x[1:9] = other - x[read] * 0.5
        return x[1:9] + x[1:9] * x[read]

    follows(function, lambda x: (x[20:40],))


def test_a_loop_over_large_arrays_is_shared_among_threads() -> None:
    """The same launch comes again, each time for all threads."""

    def sweeps(x: Any, y: Any) -> None:
        for _ in range(12):
            y[1:-1] = 0.5 * (x[:-2] + x[2:])
            x[1:-1] = y[1:-1] * 0.75 + 1.0

    fused = xt.fuse(sweeps, strict=True)
    with xt.options(threads=2):
        for call in range(3):
            (x, a), (y, b) = both(600_000, seed=call), both(600_000, seed=call + 9)
            fused(x, y)
            sweeps(a, b)
            agrees(x, a)
            agrees(y, b)


# ---- calls that cannot be captured


def test_what_cannot_be_captured_goes_on_as_a_plain_call() -> None:
    """As soon as a value is asked for, nothing is watched or recorded any longer than a plain call would."""
    seen: list[Any] = []

    def f(x: xt.Tensor) -> xt.Tensor:
        y = x * 2.0
        seen.append((y.is_pending, settings().lazy, gc.isenabled()))
        if float(y[0]) > 0.0:
            seen.append(((y + 1.0).is_pending, settings().lazy, gc.isenabled()))
        return y + x

    shared = np.arange(1.0, 5.0)
    for x in (xt.asarray(shared, copy=True), xt.asarray(shared)):
        before = (settings(), len(thin_closed), trusted.owners)
        fused = xt.fuse(f)
        assert np.array_equal(np.asarray(fused(x)), shared * 3.0)
        assert seen == [(True, "always", False), (False, "auto", True)]
        seen.clear()  # it is one of the constants of the function
        assert before == (settings(), len(thin_closed), trusted.owners)
        assert fused.why(x).startswith("[values]")


def test_settings_that_a_function_changes_are_put_back() -> None:
    """Where a value is asked for inside a block of other settings, that block is left as it is."""
    seen: list[Any] = []

    @xt.fuse
    def f(x: xt.Tensor) -> xt.Tensor:
        with xt.options(fuse_limit=7):
            y = x * 2.0 + float(x[1])
            seen.append(settings().fuse_limit)
        seen.append(settings().lazy)
        _ = bool(y[0] > 0.0)
        seen.append(settings().lazy)
        return y

    before = (settings(), len(thin_closed))
    for _ in range(3):
        assert f(xt.asarray([1.0, 2.0])).tolist() == [4.0, 6.0]
        assert (settings(), len(thin_closed)) == before
    assert seen[:3] == [7, "always", "auto"]


def test_a_view_of_what_the_library_has_made_is_copied_and_written() -> None:
    """The copy is memory of its own, though nobody but the view holds what was made."""
    x = np.random.default_rng(3).normal(size=(5, 3, 3))
    product = (x @ x.swapaxes(1, 2)).reshape(15, 3)

    @xt.fuse
    def step(x: xt.Tensor) -> tuple[xt.Tensor, xt.Tensor]:
        shown = xt.reshape(xt.matmul(x, xt.matrix_transpose(x)), (15, 3))
        copy = xt.asarray(shown, copy=True)
        copy[0] += 2
        return xt.sort(shown), xt.cumulative_sum(copy, axis=1)

    for _ in range(4):
        found, summed = step(xt.asarray(x, copy=True))
        np.testing.assert_allclose(found.numpy(), np.sort(product), rtol=1e-13)
        wanted = product + 2.0 * (np.arange(15) == 0)[:, None]
        np.testing.assert_allclose(summed.numpy(), wanted.cumsum(1), rtol=1e-12, atol=1e-12)


def test_garbage_is_not_kept() -> None:
    """A tensor that only a circle of garbage holds makes no call a plain one, whenever that is collected."""

    def function(x: Any) -> Any:
        circle: list[Any] = [xt.exp(x)]
        circle.append(circle)
        return x + circle[0]

    gc.disable()
    try:
        fused = xt.fuse(function, strict=True)
        for _ in range(3):
            np.testing.assert_allclose(np.asarray(fused(xt.ones(5))), 1.0 + np.e)
    finally:
        gc.enable()

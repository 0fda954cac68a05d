"""Laziness is invisible: what is recorded, what forces it, how far it goes, and that nobody can tell by a value.

The write barrier itself is tested in test_blob.py, errors at the call in test_errors.py.
"""

from __future__ import annotations

import asyncio
import copy
import gc
import operator
import os
import pickle
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import xtensor as xt
from xtensor.base import machine
from xtensor.base.options import Closing, Settings, in_force, settings, thin_closed
from xtensor.calls import thin
from xtensor.devices import cpu
from xtensor.devices.cpu import CPU, CPUBackend
from xtensor.graph.node import Node
from xtensor.plan.costs import CHEAP_BELOW, CHEAP_LAUNCH_PAYS, DIRECT_BELOW, DIRECT_BYTES, NARROW_BELOW, limit_of
from xtensor.run import executor, prepare, replay
from xtensor.run.executor import ledger


@pytest.fixture(autouse=True)
def defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin with the default settings in every thread, whatever the environment asks of the other tests."""
    settings()  # asks the environment, which opens the shortcut of small operands
    monkeypatch.setattr(sys.modules["xtensor.base.options"], "_from_environment", [Settings()])


@pytest.fixture
def always() -> Iterator[None]:
    """Record every call of a test."""
    with xt.options(lazy="always"):
        yield


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that grows by the name of every kernel that runs on more than one element.

    A row asks its kernel once, with single elements, which dtype comes out.
    """
    names: list[str] = []
    call = CPUBackend.call

    def counted(self: CPUBackend, function: Callable[..., Any], *args: Any, **params: Any) -> Any:
        if any(isinstance(arg, np.ndarray) and arg.size > 1 for arg in args):
            names.append(function.__name__)
        return call(self, function, *args, **params)

    monkeypatch.setattr(CPUBackend, "call", counted)
    return names


def pending(values: Any = (1.0, 2.0, 3.0), **keywords: Any) -> xt.Tensor:
    """Return a tensor of these values that is still to be computed."""
    x = +xt.asarray(values, **keywords)
    assert x.is_pending
    return x


def one(dtype: str = "float64") -> xt.Tensor:
    return pending(1, dtype=dtype)


# ---- what forces, and what does not

FORCING: dict[str, Callable[[], tuple[xt.Tensor, Any]]] = {
    "bool": lambda: (x := one(), bool(x)),
    "if": lambda: (x := one(), 1 if x else 0),
    "int": lambda: (x := one(), int(x)),
    "float": lambda: (x := one(), float(x)),
    "complex": lambda: (x := one("complex128"), complex(x)),
    "index": lambda: (x := one("int64"), operator.index(x)),
    "range": lambda: (x := one("int64"), range(x)),
    "round": lambda: (x := one(), round(float(x))),
}

FORCING_ARRAYS: dict[str, Callable[[xt.Tensor], Any]] = {
    "print": lambda x: print(x),
    "repr": repr,
    "str": str,
    "format": lambda x: f"{x}",
    "asarray": np.asarray,
    "numpy": lambda x: x.numpy(),
    "numpy function": lambda x: np.add(np.ones(3), x),
    "__dlpack__": lambda x: x.__dlpack__(),
    "from_dlpack": np.from_dlpack,
    "own from_dlpack": xt.from_dlpack,
    "in": lambda x: 2.0 in x,
    "item": lambda x: x[0].item(),
    "tolist": lambda x: x.tolist(),
    "pickle": pickle.dumps,
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "mask": lambda x: x[x > 1],
    "integers": lambda x: x[xt.asarray([0, 2])],
    "as a mask of another": lambda x: xt.ones(3)[x > 1],
    "setitem": lambda x: x.__setitem__(0, 5.0),
    "as a value to set": lambda x: xt.ones(3).__setitem__(slice(None), x),
    "in place": lambda x: x.__iadd__(1),
    "as an operand in place": lambda x: xt.ones(3).__iadd__(x),
    "evaluate": lambda x: x.evaluate(),
    "xt.evaluate": xt.evaluate,
    "strides": lambda x: x.strides,
    "contiguity": lambda x: x.is_contiguous,
    "version": lambda x: x.version,
    "detach": lambda x: x.detach(),
    "sort": xt.sort,
    "nonzero": xt.nonzero,
    "unique": xt.unique_values,
    "cumulative": xt.cumulative_sum,
    "concat": lambda x: xt.concat([x, x]),
    "fft": xt.fft.fft,
    "take": lambda x: xt.take(x, xt.asarray([1])),
}


@pytest.mark.parametrize("name", FORCING)
@pytest.mark.usefixtures("always")
def test_a_python_scalar_forces(name: str) -> None:
    """What needs a value of Python gets it."""
    x, value = FORCING[name]()
    assert not x.is_pending
    assert value in (1, range(1))


@pytest.mark.parametrize("name", FORCING_ARRAYS)
@pytest.mark.usefixtures("always")
def test_what_forces(name: str) -> None:
    """Whoever needs bytes gets them."""
    x = pending()
    FORCING_ARRAYS[name](x)
    assert not x.is_pending


NOT_FORCING: dict[str, Callable[[xt.Tensor], Any]] = {
    "matmul": lambda x: x @ x,
    "list": list,
    "unpacking": lambda x: operator.add(*x[:2]),
    "integer": lambda x: x[1],
    "slice": lambda x: x[1:],
    "flip": xt.flip,
    "expand_dims": lambda x: xt.expand_dims(x, axis=0),
    "reshape": lambda x: xt.reshape(x, (1, -1)),
    "broadcast_to": lambda x: xt.broadcast_to(x, (2, *x.shape)),
    "shape": lambda x: x.shape,
    "dtype": lambda x: x.dtype,
    "device": lambda x: x.device,
    "ndim": lambda x: x.ndim,
    "size": lambda x: x.size,
    "nbytes": lambda x: x.nbytes,
    "itemsize": lambda x: x.itemsize,
    "len": len,
    "is_pending": lambda x: x.is_pending,
    "namespace": lambda x: x.__array_namespace__(),
    "dlpack device": lambda x: x.__dlpack_device__(),
    "to_device": lambda x: x.to_device("cpu"),
    "iter": iter,
    "settings": lambda x: settings(),
    "add": lambda x: x + 1,
    "reflected": lambda x: 1 - x,
    "comparison": lambda x: x == x,
    "unary": lambda x: -x,
    "function": xt.exp,
    "where": lambda x: xt.where(x > 1, x, -x),
    "clip": lambda x: xt.clip(x, 1, 2),
    "sum": lambda x: xt.sum(x),
    "method": lambda x: x.mean(),
    "reduction": lambda x: xt.argmax(x, axis=0, keepdims=True),
    "any": lambda x: xt.any(x),
    "asarray": xt.asarray,
    "result_type": lambda x: xt.result_type(x, xt.float32),
    "ones_like": xt.ones_like,
    "finfo": xt.finfo,
    "isdtype": lambda x: xt.isdtype(x.dtype, "real floating"),
    "weak reference": weakref.ref,
    "a wrong call": lambda x: refused(lambda: x + xt.ones((7,)), ValueError),
    "a wrong dtype": lambda x: refused(lambda: x & 1, TypeError),
    "a stranger": lambda x: refused(lambda: x + object(), TypeError),
}


def refused(call: Callable[[], Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        call()


@pytest.mark.parametrize("name", NOT_FORCING)
@pytest.mark.usefixtures("always")
def test_what_does_not_force(name: str, calls: list[str]) -> None:
    """What needs no bytes computes none, and what can be recorded is."""
    x = pending()
    calls.clear()
    result = NOT_FORCING[name](x)
    assert x.is_pending
    assert "positive" not in calls
    if isinstance(result, xt.Tensor) and name != "ones_like":
        assert result.is_pending


@pytest.mark.usefixtures("always")
def test_dtype_and_shape_are_known_before_the_values(calls: list[str]) -> None:
    """A pending tensor's attributes are those its value will have."""
    x = pending([[1, 2, 3], [4, 5, 6]], dtype=xt.int8)
    results = [x + 1.5, x / x, x > 0, xt.sum(x), xt.mean(x, axis=0), xt.argmax(x, axis=1, keepdims=True), x + x[:1]]
    before = [(y.shape, y.dtype, y.ndim, y.size) for y in results]
    xt.evaluate(*results)
    assert before == [(n.shape, n.dtype, n.ndim, n.size) for n in (np.array(y.native()) for y in results)]


@pytest.mark.usefixtures("always")
def test_errors_are_raised_at_the_call() -> None:
    """On pending operands too; nothing is recorded and nothing computed."""
    x = pending()
    wrong: list[tuple[Callable[[], Any], type[Exception]]] = [
        (lambda: x + pending([1.0, 2.0]), ValueError),
        (lambda: xt.bitwise_and(x, x), TypeError),
        (lambda: xt.sum(x, axis=1), IndexError),
        (lambda: xt.max(pending(xt.zeros((0, 3))), axis=0), ValueError),
        (lambda: pending([1], dtype=xt.int8) + 300, OverflowError),
        (lambda: pending([2]) ** pending([-1]), ValueError),  # which only values show
        (lambda: x.to_device("cuda:99"), ValueError),
    ]
    for call, error in wrong:
        with pytest.raises(error):
            call()
    assert x.is_pending
    assert (x + 1).tolist() == [2, 3, 4]


# ---- when calls are recorded


@pytest.mark.parametrize("lazy", ["auto", "always", "never"])
@pytest.mark.parametrize(
    "nbytes",
    [8, DIRECT_BELOW - 8, *[limit + more for limit in (DIRECT_BELOW, CHEAP_BELOW, NARROW_BELOW) for more in (0, 8)]],
)
def test_when_calls_are_recorded(lazy: Any, nbytes: int) -> None:
    """By default calls are recorded from 256 KiB on; cheap ones from 512, those with booleans as results from 1024.
    Whether `exp` is cheap depends on the machine.
    """
    x, limits = xt.zeros((nbytes // 8,)), (CHEAP_BELOW, NARROW_BELOW, limit_of("exp")[0])
    with thin.in_python(), xt.options(lazy=lazy):
        results = [x + 1, 1 - x, xt.sum(x, axis=0), x > 0, xt.sqrt(x), xt.exp(x)]
    cheap, narrow, costly = ({"auto": nbytes > most, "always": True, "never": False}[lazy] for most in limits)
    assert [y.is_pending for y in results] == [cheap, cheap, cheap, narrow, cheap, costly]


@pytest.mark.parametrize("name", ["sin", "cos", "hypot", "logaddexp"])
@pytest.mark.parametrize("dtype", [xt.float32, xt.float64])
@pytest.mark.parametrize("lazy", ["auto", "never"])
def test_what_the_library_is_slow_at_is_recorded_sooner(lazy: Any, dtype: Any, name: str) -> None:
    """From 32 KiB on, of tensors met for the first time and again; the rest of the expression with it."""
    slow = dtype == xt.float64 or name in ("hypot", "logaddexp")
    for nbytes in (DIRECT_BYTES, DIRECT_BYTES + 8):
        native = np.linspace(-3, 3, nbytes // dtype.itemsize).astype(dtype)
        x = xt.asarray(native, copy=True)
        arguments = 2 if name in ("hypot", "logaddexp") else 1
        for _ in range(3):
            with xt.options(lazy=lazy):
                y = getattr(xt, name)(*[x] * arguments)
                z = y * 2.0
            assert y.is_pending is z.is_pending is (slow and lazy == "auto" and nbytes > DIRECT_BYTES)
            expected = getattr(np, name)(*[native] * arguments)
            np.testing.assert_allclose(z.native(), expected * 2, rtol=4e-7 if dtype == xt.float32 else 1e-15)
        waiting = getattr(xt, name)(*[x] * arguments)
        x[:1] = 100.0  # a small write, which waits for its readers too
        np.testing.assert_allclose(waiting.native()[:1], y.native()[:1], rtol=4e-7)


def test_calls_on_pending_values_are_recorded() -> None:
    """Whatever the size: one step more costs less than computing the operand now."""
    x = xt.ones((CHEAP_BELOW // 8 + 1,)) + 1
    assert x.is_pending
    total = xt.sum(x)
    steps = [total, total + 1, xt.sqrt(total), xt.astype(total, xt.float32), total / 2 > 1]
    assert all(y.is_pending for y in steps)
    assert [float(y) for y in steps[:2]] == [2.0 * x.size, 2.0 * x.size + 1]


def test_what_was_recorded_stays_so() -> None:
    """Leaving "always" computes nothing; a pending operand of an eager call is computed for it."""
    with xt.options(lazy="always"):
        x = xt.ones(3) + 1
    assert x.is_pending
    with xt.options(lazy="never"):
        y = x * 2
    assert not y.is_pending and not x.is_pending
    assert y.tolist() == [4, 4, 4]


@pytest.mark.parametrize("lazy", ["auto", "always"])
def test_shared_memory_is_never_read_lazily(lazy: Any) -> None:
    """Whoever holds the array may write to it at any time: all that reads it is computed at once."""
    theirs = np.zeros(80_000)
    x = xt.asarray(theirs)
    exported = xt.zeros((80_000,))
    with xt.options(lazy=lazy):
        _ = exported.numpy()
        imported = xt.from_dlpack(theirs)
        for shared in (x, x[1:-1], xt.reshape(x, (400, 200)).T, imported, exported, exported[::-1], x.detach()):
            for y in (shared + 1, 1 - shared, xt.sum(shared), xt.where(shared > 0, shared, shared)):
                assert not y.is_pending
            own = shared + 1
            assert (own * 2).is_pending is (lazy == "always")  # computed at once, too, as it is probably not the last
        theirs = np.zeros(CHEAP_LAUNCH_PAYS // 8 + 1)
        own = xt.asarray(theirs) + 1
        assert not own.is_pending and (own * 2).is_pending  # what was computed from it is ours


@pytest.mark.usefixtures("always")
def test_a_pending_value_does_not_see_later_writes_from_outside() -> None:
    """Exporting is a write that may come at any time: readers are served before the memory leaves."""
    for export in (np.asarray, np.from_dlpack, lambda x: x.numpy(), lambda x: np.asarray(x[1:])):
        x = xt.zeros((4,)).evaluate()
        before = x + 1
        outside = export(x)
        assert not before.is_pending
        if outside.flags.writeable:
            outside[...] = 9
            after = x + 1
            outside[...] = 20
            assert after.tolist()[-1] == 10
        assert before.tolist() == [1, 1, 1, 1]


def test_the_barrier_reaches_values_recorded_elsewhere() -> None:
    """Recorded in one context and one thread, written in another."""
    x = xt.asarray([1.0, 2.0])
    with xt.options(lazy="always"):
        y = x + 1
    x += 10  # small and eager
    assert y.tolist() == [2, 3]
    with xt.options(lazy="always"):
        y = x + 1
        writer = threading.Thread(target=x.__setitem__, args=(0, 0.0))
        writer.start()
        writer.join()
    assert y.tolist() == [12, 13] and x.tolist() == [0, 12]


# ---- how far it goes


def walk(value: Any) -> int:
    """Return the number of pending nodes behind a value."""
    seen: set[int] = set()
    open_ = [value]
    while open_:
        node = open_.pop()
        if isinstance(node, Node) and node.blob is None and id(node) not in seen:
            seen.add(id(node))
            open_.extend(node.inputs)
    return len(seen)


@pytest.mark.parametrize("limit", [1, 5, 64])
def test_fuse_limit(limit: int) -> None:
    """A pending graph never has more steps than the limit."""
    with xt.options(lazy="always", fuse_limit=limit):
        x = xt.zeros((3,))
        sizes = []
        for _ in range(200):
            x = x + 1
            sizes.append(walk(x.value))
        assert max(sizes) == limit
        assert x.tolist() == [200, 200, 200]


def test_pinned_limit() -> None:
    """What is pending never keeps more bytes alive than the limit, beside what others hold: here the one who calls."""
    ledger._settle(0)  # what other tests have left counts too
    with xt.options(lazy="always", pinned_limit=2000):
        x, y = xt.zeros((100,)).evaluate(), xt.zeros((100,)).evaluate()
        both = x + y
        held = [xt.zeros((100,)).evaluate() for _ in range(5)]
        for one in held:
            both = both + one
        assert both.is_pending
        del x, y
        both = both + xt.zeros((100,)).evaluate()
        assert both.is_pending
        assert not (both + xt.zeros((100,)).evaluate()).is_pending


RECORDED: dict[str, Callable[[xt.Tensor], xt.Tensor]] = {
    "elementwise": lambda x: x + x,
    "to a narrower dtype": lambda x: x > 0.0,
    "reduction": lambda x: xt.sum(x, axis=0),
    "composed reduction": lambda x: xt.mean(x, axis=0),
    "cast": lambda x: xt.astype(x, xt.float32),
}


@pytest.mark.parametrize("call", RECORDED.values(), ids=RECORDED.keys())
def test_one_rule_says_what_is_recorded(call: Callable[[xt.Tensor], xt.Tensor]) -> None:
    """Asked for, or of large operands, but not too large: the first call and later ones go by the same rule."""
    x = xt.ones((400, 400)).evaluate()  # 1 280 000 bytes
    small = xt.ones((2, 100)).evaluate()
    for _ in range(3):
        assert call(x).is_pending and not call(small).is_pending
        for recorded, changes in ((True, {"lazy": "always"}), (False, {"lazy": "never"})):
            with xt.options(**changes):
                assert call(x).is_pending == call(small).is_pending == recorded
        with xt.options(pinned_limit=100_000):
            assert not call(x).is_pending
        with xt.options(lazy="always", pinned_limit=100_000):
            assert not call(x).is_pending


def test_the_default_limits_hold() -> None:
    """What is pinned by default is bounded too, by what is free."""
    assert Settings().fuse_limit <= 4096 and Settings().pinned_limit is None


@pytest.mark.usefixtures("always")
def test_a_loop_of_many_steps_stays_bounded() -> None:
    """100 000 steps without a look at the value: the graph stays small, the result exact."""
    x = xt.zeros((3,))
    largest = 0
    for step in range(100_000):
        x = x + 1
        if step % 97 == 0:
            largest = max(largest, walk(x.value))
    assert largest <= settings().fuse_limit
    assert x.tolist() == [100_000] * 3


def test_a_long_chain_needs_no_recursion() -> None:
    """Evaluated or dropped, a chain may be longer than Python's stack."""
    with xt.options(lazy="always", fuse_limit=1 << 60):
        for evaluated in (True, False):
            x = xt.zeros((1,))
            for _ in range(20_000):
                x = x + 1
            assert walk(x.value) == 20_000
            if evaluated:
                assert float(x[0]) == 20_000
            del x


def test_a_graph_that_doubles() -> None:
    """A value used twice in each of many steps is one step each, however it is counted."""
    with xt.options(lazy="always", fuse_limit=1 << 62):
        x = xt.ones((2,))
        for _ in range(60):
            x = x + x
        assert walk(x.value) <= 60
        assert x.tolist() == [2.0**60] * 2


def test_a_value_of_many_uses_is_one_step() -> None:
    """However often a value is used, the graph is as large as its distinct steps, and is not cut before."""
    with xt.options(lazy="always", fuse_limit=100):
        x = xt.ones((5,)).evaluate() * 1.0
        y = x
        for step in range(49):
            y = y * y if step % 7 else y * x
        assert y.is_pending and walk(y.value) == 50
        for _ in range(30):
            other = xt.ones((5,)) + 2.0  # what others wait for is not counted, or not for long
            y = y * x
        assert y.is_pending and walk(y.value) == 80 and other.is_pending
        for _ in range(21):
            y = y + y
        assert walk(y.value) < 80
        assert y.tolist() == [2.0**21] * 5


def test_pending_work_follows_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """By default what is kept alive is bounded by half of what is free; what others hold, and results, cost nothing."""
    free = [1 << 40]
    monkeypatch.setattr(CPUBackend, "free_memory", lambda self: free[0])
    monkeypatch.setattr(executor, "ASK_BYTES", 100_000)
    ledger._settle(0)
    x = xt.ones((80_000,)).evaluate()
    huge = xt.broadcast_to(x, (1 << 20, 80_000)) + 1.0
    assert huge.is_pending
    sums = [xt.sum(xt.ones((80_000,)).evaluate() + x) for _ in range(20)]
    assert all(total.is_pending for total in sums)
    free[0] = 1 << 20
    held = [xt.ones((80_000,)).evaluate() for _ in range(10)]
    more = [xt.sum(one * 2.0 + x) for one in held]
    assert not any(total.is_pending for total in sums)
    assert all(total.is_pending for total in more[3:])
    assert [float(total) for total in (*sums, *more)] == [160_000.0] * 20 + [240_000.0] * 10


def test_free_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The machine's, or that of the control group, where files that nobody reads count as free."""
    assert 0 < machine.free_memory() <= machine.memory_limit()
    (tmp_path / "own").write_text("0::/here")
    monkeypatch.setattr(machine, "_OWN_CGROUPS", tmp_path / "own")
    monkeypatch.setattr(machine, "_CGROUPS", tmp_path)
    (tmp_path / "here").mkdir()
    for name, text in (("max", "3000000"), ("current", "1500000"), ("stat", "anon 7\ninactive_file 250000\n")):
        (tmp_path / "here" / f"memory.{name}").write_text(text)
    assert machine.free_memory() == 1_750_000


# ---- once


@pytest.mark.usefixtures("always")
def test_a_value_used_twice_is_computed_once(calls: list[str]) -> None:
    """Within one graph, by two graphs evaluated together, and by two evaluated apart."""
    x = xt.ones((3,)).evaluate()
    calls.clear()
    y = xt.exp(x)
    z = y * 2 + y
    w = y - 1
    xt.evaluate(z, w)
    assert sorted(calls) == ["add", "exp", "multiply", "subtract"]
    v = y + 5
    y.evaluate()
    v.evaluate()
    z.evaluate()
    assert calls.count("exp") == 1 and len(calls) == 5


@pytest.mark.usefixtures("always")
def test_what_nobody_asks_for_is_not_computed(calls: list[str]) -> None:
    """A value that is dropped, or not needed, costs nothing."""
    x = xt.ones((3,)).evaluate()
    calls.clear()
    dropped, needed, unasked = xt.exp(x), xt.sin(x), xt.cos(x)
    del dropped
    needed.evaluate()
    assert calls == ["sin"] and unasked.is_pending


@pytest.mark.usefixtures("always")
def test_evaluate() -> None:
    """Any number of tensors, pending or not, the same one twice; nothing else."""
    x = pending()
    y, z = x + 1, xt.ones(2)
    assert xt.evaluate() is None
    assert xt.evaluate(x, y, y, z) is None
    assert not (x.is_pending or y.is_pending)
    assert y.evaluate() is y
    pending_one = pending()
    for stranger in (np.ones(2), 1.0, None, [x]):
        with pytest.raises(TypeError, match="^evaluate: tensors must be tensors, got "):
            xt.evaluate(pending_one, stranger)


# ---- what is let go


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Run a test without the garbage collector: what goes must go by itself."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("always", "no_collector")
def test_nodes_drop_their_inputs() -> None:
    """An evaluated node keeps nothing alive: not its inputs' nodes, not their bytes."""
    x = xt.ones((100,)).evaluate()
    y = x + 1
    z = y * 2
    node, memory = weakref.ref(y.value), weakref.ref(x.native())
    del x, y
    assert node() is not None and memory() is not None
    kept = z.value
    z.evaluate()
    assert node() is None and memory() is None
    assert kept.inputs == ()
    assert z.tolist() == [4.0] * 100


@pytest.mark.usefixtures("always", "no_collector")
def test_a_tensor_forgets_its_node() -> None:
    """After evaluation the tensor holds the bytes alone."""
    x = xt.ones((3,)) + 1
    node = weakref.ref(x.value)
    x.evaluate()
    assert node() is None


@pytest.mark.usefixtures("always", "no_collector")
def test_dropped_graphs_go() -> None:
    """A graph nobody evaluated goes with its last tensor, and so do the bytes it would have read."""
    x = xt.ones((100,)).evaluate()
    y = xt.exp(x) + xt.sum(x)
    memory = weakref.ref(x.native())
    del x, y
    assert memory() is None


@pytest.mark.parametrize("lazy", ["auto", "always", "never"])
@pytest.mark.usefixtures("no_collector")
def test_no_reference_cycles(lazy: Any) -> None:
    """Calls, views, writes, errors, evaluation and export leave nothing for the collector."""

    def work() -> None:
        with xt.options(lazy=lazy):
            x = xt.reshape(xt.arange(40_000.0), (200, 200))
            y = xt.exp(x) * 2 + xt.sum(x, axis=0)
            x[1:, ::2] += y[:-1, ::2]
            y[y > 3] = 0
            z = xt.sort(x @ y)
            _ = float(xt.sum(z)), np.asarray(z), xt.unstack(x)[0], repr(y)

    def found() -> int:
        gc.collect()
        work()
        return gc.collect()

    # What is compiled in the background meanwhile leaves ctypes' types behind, once; a circle comes with every call.
    assert 0 in [found() for _ in range(5)]


@pytest.mark.parametrize("engine", ["llvm", "interpret"])
def test_views_are_as_writeable_as_what_they_show(engine: Any) -> None:
    """Whatever an earlier evaluation of the same structure showed."""

    def view_of(x: xt.Tensor) -> xt.Tensor:
        y = x[...]
        x.evaluate()
        return y.evaluate()

    with xt.options(lazy="always", engine=engine):
        for _ in range(4):
            assert not view_of(xt.broadcast_to(xt.ones(()) + 1.0, ())).is_writeable
        for _ in range(4):
            assert view_of(xt.ones(()) + 1.0).is_writeable
        for _ in range(4):
            assert not xt.reshape(xt.broadcast_to(xt.ones(()) + 1.0, ()), ()).evaluate().is_writeable


# ---- failures


@pytest.mark.usefixtures("always")
def test_a_failing_kernel_leaves_the_graph_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was computed before the failure stays computed, the rest pending; it can be asked for again."""
    x = xt.ones((3,)).evaluate()
    y = x + 1
    z = xt.exp(y)
    w = z * 2

    def no_room(self: CPUBackend, function: Callable[..., Any], *args: Any, **params: Any) -> Any:
        if function is np.exp:
            raise MemoryError("no room")
        return function(*args, **params)

    with monkeypatch.context() as patch:
        patch.setattr(CPUBackend, "call", no_room)
        for _ in range(2):
            with pytest.raises(MemoryError):
                w.evaluate()
            assert w.is_pending and z.is_pending and not y.is_pending
    np.testing.assert_array_equal(np.asarray(w), np.exp(np.full(3, 2.0)) * 2)


@pytest.mark.usefixtures("always")
def test_a_failure_at_the_barrier_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a pending reader cannot be computed now, the write must not happen: its old values would be lost."""
    x = xt.ones((3,)).evaluate()
    y = xt.exp(x)

    def no_room(self: CPUBackend, function: Callable[..., Any], *args: Any, **params: Any) -> Any:
        raise MemoryError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(CPUBackend, "call", no_room)
        with pytest.raises(MemoryError):
            x[...] = 5.0
    assert x.tolist() == [1, 1, 1]
    x[...] = 7.0  # the reader still waits, so it is served now
    np.testing.assert_array_equal(np.asarray(y), np.exp(np.ones(3)))


# ---- options


def test_options_hold_inside_library_functions() -> None:
    """What NumPy is called in, without its warnings, has the options of who calls."""
    for count in (1, 3):
        with xt.options(threads=count, engine="interpret"):
            inside = CPU.call(settings)
            assert (inside.threads, inside.engine) == (count, "interpret") and inside is settings()
    assert CPU.call(settings) == settings()


def test_options_in_a_block() -> None:
    """They hold inside, nest, and end with the block, also by an exception."""
    x = xt.ones(3)
    assert settings().lazy == "auto"
    with xt.options(lazy="always") as outer:
        assert outer.lazy == settings().lazy == "always" and (x + 1).is_pending
        with xt.options(lazy="never", fuse_limit=3):
            assert not (x + 1).is_pending and settings().fuse_limit == 3
        with pytest.raises(KeyError), xt.options(fuse_limit=7):
            assert settings().lazy == "always" and settings().fuse_limit == 7
            raise KeyError
        assert (x + 1).is_pending and settings().fuse_limit == Settings().fuse_limit
    assert not (x + 1).is_pending and settings().lazy == "auto"


def test_options_as_a_decorator() -> None:
    """Each call of the function runs under them, also when it calls itself."""

    @xt.options(lazy="always")
    def step(depth: int) -> list[str]:
        """Say what is in force."""
        return [settings().lazy, *(step(depth - 1) if depth else [])]

    assert step(3) == ["always"] * 4 and settings().lazy == "auto"
    assert step.__name__ == "step" and step.__doc__ == "Say what is in force."


def test_options_used_again() -> None:
    """One object may be entered many times, inside itself too."""
    never = xt.options(lazy="never")
    for _ in range(2):
        with never, xt.options(lazy="always"), never:
            assert settings().lazy == "never"
        assert settings().lazy == "auto"


def test_the_short_way_is_open_again() -> None:
    """Small calls skip the settings only while nobody records everything."""
    _ = settings()
    before = list(thin_closed)
    with xt.options(lazy="always"), xt.options(lazy="never"), xt.options(lazy="always"):
        assert len(thin_closed) == len(before) + 2 and thin_closed[0]
    with pytest.raises(ValueError):
        xt.options(lazy="sometimes")
    assert thin_closed == before
    with pytest.raises(KeyboardInterrupt):
        interrupted_before_the_end()
    assert thin_closed == before


def interrupted_before_the_end() -> None:
    """Close the thin way, and never say that it may be open again."""
    closing = Closing()
    assert thin_closed[0] == id(closing)
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"lazyness": "auto"}, TypeError, "options: a setting must be one of 'lazy', 'engine', 'device', "),
        ({"lazy": "sometimes"}, ValueError, "options: lazy must be one of 'auto', 'always', 'never', got 'sometimes'"),
        ({"lazy": None}, ValueError, "options: lazy must be one of 'auto', 'always', 'never', got None"),
        ({"fuse_limit": 0}, ValueError, "options: fuse_limit must be a positive integer, got 0"),
        ({"fuse_limit": 1.5}, ValueError, "options: fuse_limit must be a positive integer, got 1.5"),
        ({"pinned_limit": -1}, ValueError, "options: pinned_limit must be a positive integer, got -1"),
        ({"device": 3}, TypeError, "options: device must be a string, got 3"),
        ({"device": "tpu"}, ValueError, "options: device must be 'cpu', 'cuda' or 'cuda:N', got 'tpu'"),
        ({"device": "cuda:x"}, ValueError, "options: device must be 'cpu', 'cuda' or 'cuda:N', got 'cuda:x'"),
        ({"device": "cpu:0"}, ValueError, "options: device must be 'cpu', 'cuda' or 'cuda:N', got 'cpu:0'"),
        (
            {"engine": "fast"},
            ValueError,
            "options: engine must be one of 'auto', 'direct', 'interpret', 'llvm', got 'fast'",
        ),
        ({"threads": 0}, ValueError, "options: threads must be a positive integer, got 0"),
        ({"fast_math": 1}, TypeError, "options: fast_math must be True or False, got 1"),
        ({"tf32": "yes"}, TypeError, "options: tf32 must be True or False, got 'yes'"),
        ({"cache_dir": 3}, TypeError, "options: cache_dir must be a string or None, got 3"),
        ({"show": "plans"}, ValueError, "options: show must name some of plan, llvm, got 'plans'"),
    ],
)
def test_wrong_options(changes: dict[str, Any], error: type[Exception], text: str) -> None:
    """Said where the options are written, not where the block is entered."""
    with pytest.raises(error) as caught:
        xt.options(**changes)
    assert str(caught.value).startswith(text)
    assert settings() == Settings()


def run_threads(*functions: Callable[[], Any]) -> None:
    """Run functions at the same time and raise what they raise."""
    failures: list[BaseException] = []

    def guarded(function: Callable[[], Any]) -> None:
        try:
            function()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads), "a thread hangs"
    if failures:
        raise failures[0]


def test_threads_have_their_own_options() -> None:
    """What one thread sets, no other sees."""
    barrier = threading.Barrier(3, timeout=20)
    x = xt.ones(3)

    def under(lazy: Any) -> Callable[[], None]:
        def body() -> None:
            with xt.options(lazy=lazy):
                barrier.wait()
                assert settings().lazy == lazy
                assert (x + 1).is_pending == (lazy == "always")
                barrier.wait()

        return body

    run_threads(under("always"), under("never"), under("auto"))
    assert settings().lazy == "auto" and not (x + 1).is_pending


def test_threads_share_a_decorated_function() -> None:
    """A decorator is one object for all threads: their blocks may overlap in any order."""
    first_in, second_in, first_out = threading.Event(), threading.Event(), threading.Event()

    @xt.options(lazy="always")
    def overlapping(enter: threading.Event, leave: threading.Event) -> None:
        enter.set()
        assert leave.wait(5)
        assert settings().lazy == "always"

    def first() -> None:
        overlapping(first_in, second_in)
        assert settings().lazy == "auto"
        first_out.set()

    def second() -> None:
        assert first_in.wait(5)
        try:
            overlapping(second_in, first_out)
        finally:
            assert settings().lazy == "auto"

    run_threads(first, second)


def test_tasks_have_their_own_options() -> None:
    """So do coroutines on one thread."""

    async def under(lazy: Any) -> str:
        with xt.options(lazy=lazy):
            await asyncio.sleep(0.01)
            return settings().lazy

    async def both() -> list[str]:
        return await asyncio.gather(under("always"), under("never"))

    assert asyncio.run(both()) == ["always", "never"]


# ---- the environment


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("XTENSOR_")}
    return subprocess.run(
        [sys.executable, "-c", code], env={**clean, **environment}, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("lazy", ["auto", "always", "never"])
def test_the_environment_says_when_calls_are_recorded(lazy: str) -> None:
    """XTENSOR_LAZY holds in every thread; options inside it win."""
    code = """
import threading
import xtensor as xt
x, seen = xt.ones(3), []
def look():
    seen.append((x + 1).is_pending)
    seen.append(xt.exp(x).is_pending)
    with xt.options(lazy="never"):
        seen.append((x + 1).is_pending)
look()
thread = threading.Thread(target=look)
thread.start(); thread.join()
print(seen, (xt.ones(80_000) + 1).is_pending)
"""
    done = run_python(code, XTENSOR_LAZY=lazy)
    yes = lazy == "always"
    assert done.stdout.strip() == f"{[yes, yes, False] * 2} {lazy != 'never'}", done.stderr


def test_the_environment_is_read_at_first_use() -> None:
    """Set after the import and before the first call, it still counts; set after that, no more."""
    code = """
import os
import xtensor as xt
os.environ["XTENSOR_LAZY"] = "always"
x = xt.ones(3)
print((x + 1).is_pending)
os.environ["XTENSOR_LAZY"] = "never"
print((x + 1).is_pending)
"""
    done = run_python(code)
    assert done.stdout.split() == ["True", "True"], done.stderr


def test_the_environment_sets_the_engine() -> None:
    """Every setting of the engine has a variable; an empty cache folder means none."""
    code = """
from xtensor.base.options import settings
found = settings()
print(found.engine, found.threads, found.fast_math, repr(found.cache_dir), found.show, found.fuse_limit)
"""
    done = run_python(
        code,
        XTENSOR_ENGINE="interpret",
        XTENSOR_NUM_THREADS="3",
        XTENSOR_FAST_MATH="1",
        XTENSOR_CACHE_DIR="",
        XTENSOR_SHOW="plan,llvm",
        XTENSOR_FUSE_LIMIT="7",
    )
    assert done.stdout.split() == ["interpret", "3", "True", "''", "plan,llvm", "7"], done.stderr


def test_values_that_equal_others_are_checked() -> None:
    """1 is True, but no switch."""
    xt.options(fast_math=True, fuse_limit=77, threads=1)
    for changes, error in (
        ({"fast_math": 1}, TypeError),
        ({"fuse_limit": 77.0}, ValueError),
        ({"threads": 1.0}, ValueError),
    ):
        with pytest.raises(error):
            xt.options(**{"fast_math": True, "fuse_limit": 77, "threads": 1} | changes)


@pytest.mark.parametrize(
    ("variable", "value", "text"),
    [
        ("XTENSOR_LAZY", "sometimes", "XTENSOR_LAZY must be one of 'auto', 'always', 'never', got 'sometimes'"),
        ("XTENSOR_FUSE_LIMIT", "many", "XTENSOR_FUSE_LIMIT must be a positive integer, got 'many'"),
        ("XTENSOR_FUSE_LIMIT", "0", "XTENSOR_FUSE_LIMIT must be a positive integer, got 0"),
        ("XTENSOR_ENGINE", "fast", "XTENSOR_ENGINE must be one of 'auto', 'direct', 'interpret', 'llvm', got 'fast'"),
        ("XTENSOR_DEVICE", "tpu", "XTENSOR_DEVICE must be 'cpu', 'cuda' or 'cuda:N', got 'tpu'"),
        ("XTENSOR_NUM_THREADS", "two", "XTENSOR_NUM_THREADS must be a positive integer, got 'two'"),
        ("XTENSOR_FAST_MATH", "yes", "XTENSOR_FAST_MATH must be one of '0', '1', got 'yes'"),
        ("XTENSOR_SHOW", "plan,graph", "XTENSOR_SHOW must name some of plan, llvm, got 'plan,graph'"),
    ],
)
def test_a_wrong_environment(variable: str, value: str, text: str) -> None:
    """Importing is no use yet: the first call says what is wrong with a variable, in the words of options()."""
    code = "import xtensor as xt; print('imported'); xt.ones(3) + 1"
    done = run_python(code, **{variable: value})
    assert done.stdout.strip() == "imported"
    assert done.stderr.strip().splitlines()[-1].endswith(text)
    assert done.stderr.strip().splitlines()[-1].startswith("ValueError: ")


# ---- threads

THREADS, ROUNDS = 8, 500


@pytest.fixture
def hurried() -> Iterator[None]:
    """Let threads take over from each other much more often than they do by default."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


def thread_program(number: int, shared: list[xt.Tensor], known: list[Any]) -> None:
    """Compute with tensors all threads hold and with own ones; compare with NumPy each time."""
    random = np.random.default_rng(number)
    for turn in range(ROUNDS):
        which = int(random.integers(len(shared)))
        size = known[which].size
        n = random.uniform(-1, 1, size)
        x = xt.asarray(n, copy=True)
        with xt.options(lazy=("always", "auto", "never")[turn % 3]):
            y = xt.sqrt(x * x + 1) * shared[which] + shared[which]
            total = xt.sum(y)
            x[: size // 2] = 0.0
        np.testing.assert_array_equal(y.native(), np.sqrt(n * n + 1) * known[which] + known[which])
        assert abs(float(total) - float(np.sum(y.native()))) < 1e-9 * size


@pytest.mark.usefixtures("hurried")
def test_threads_get_numpys_values() -> None:
    """Eight threads force the same pending tensors and their own, small and large, thousands of times.

    Every engine gives these steps NumPy's bits.
    """
    with xt.options(lazy="always"):
        bases = [np.linspace(0.0, 1.0, size) for size in (1, 7, 100, 5000) for _ in range(10)]
        shared = [xt.sqrt(xt.asarray(base, copy=True)) * 2 for base in bases]
    known = [np.sqrt(base) * 2 for base in bases]
    assert all(x.is_pending for x in shared)
    run_threads(*[lambda number=number: thread_program(number, shared, known) for number in range(THREADS)])


@pytest.mark.usefixtures("hurried")
def test_threads_forcing_one_value(calls: list[str]) -> None:
    """However many ask at once, it is computed once, and all see the same memory."""
    for _ in range(200):
        with xt.options(lazy="always"):
            x = xt.exp(xt.ones((50,)))
        calls.clear()
        barrier = threading.Barrier(4, timeout=20)
        seen: list[Any] = []

        def ask(x: xt.Tensor = x, barrier: Any = barrier, seen: list[Any] = seen) -> None:
            barrier.wait()
            seen.append(x.native())

        run_threads(*[ask] * 4)
        assert calls == ["exp"]
        assert all(np.shares_memory(one, seen[0]) for one in seen)


@pytest.mark.usefixtures("hurried")
def test_threads_writing_and_reading() -> None:
    """A writer and readers recorded before each write: every reader sees one whole state, never a mixture."""
    x = xt.zeros((2000,))
    stop = threading.Event()

    def write() -> None:
        try:
            for _ in range(1500):
                x[...] = 1.0
                x[...] = 0.0
        finally:
            stop.set()

    def read() -> None:
        with xt.options(lazy="always"):
            while not stop.is_set():
                y = x + 1
                _ = y * 2
                y.evaluate()
                assert set(y.tolist()) <= {1.0, 2.0}

    run_threads(write, read, read)


@pytest.mark.usefixtures("always")
def test_a_part_that_was_looked_at_follows_later_writes() -> None:
    """What a library function saw of a part is not what the part is after a write to it, or to its whole."""
    for write in (lambda x, part: part.__setitem__(..., 7.0), lambda x, part: x.__setitem__(..., 7.0)):
        x = xt.ones((8, 8)) * 2
        part = x[0]
        assert xt.sort(part).tolist() == [2.0] * 8
        write(x, part)
        assert part.tolist() == x[0].tolist() == [7.0] * 8


def test_who_looks_again_and_again_has_all_computed() -> None:
    """A loop over elements of what is pending does not compute each by itself; a look or two do not compute it all."""
    x = xt.asarray(np.arange(120_000.0).reshape(400, 300), copy=True)
    y = x * 1.5
    assert y.is_pending
    assert float(y[3, 4]) == 904 * 1.5
    assert y.is_pending
    for row in range(10):
        np.testing.assert_array_equal(y[row].numpy(), (x.numpy() * 1.5)[row])
        assert float(y[row, 7]) == (300 * row + 7) * 1.5
    assert not y.is_pending


def test_iterating_computes_all_at_once() -> None:
    """Every element will be asked for: they are not computed part by part."""
    with xt.options(lazy="always", engine="interpret"):
        z = xt.exp(xt.asarray(np.arange(4000.0), copy=True)) * 2.0
        elements = iter(z)
        assert z.is_pending  # nobody has asked for an element
        first = next(elements)
        assert not z.is_pending
        np.testing.assert_array_equal([float(one) for one in (first, *elements)], np.asarray(z))


def test_lengths_that_never_come_again_make_no_schedules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of operands that lie in another way each time the first few make schedules, and those that come again."""
    made: list[Any] = []
    prepared = prepare.prepared
    monkeypatch.setattr(prepare, "prepared", lambda *given: made.append(given) or prepared(*given))
    base = np.arange(1.0, 50_001.0)
    x = xt.asarray(base, copy=True)

    def check(length: int) -> None:
        assert np.array_equal((x[:length] * 1.21875 - x[:length]).numpy(), base[:length] * 1.21875 - base[:length])

    with xt.options(lazy="always", engine="auto", cache_dir=""):
        for length in range(40_000, 40_040):
            check(length)
        assert len(made) == replay.SEVERAL
        for _ in range(3):
            check(40_030)
        assert len(made) == replay.SEVERAL + 1


# ---- expressions of which parts are held, and small writes


def test_an_expression_is_found_again_with_what_is_held_of_it() -> None:
    """With the same values held, or with none; what nobody holds is not kept for it."""
    x, y = xt.ones(80_000), xt.ones(80_000)

    def last(held: bool) -> tuple[Any, Node]:
        kept = x + y
        z = kept * 2.0 - x / 4.0
        return kept if held else None, z.value  # type: ignore[return-value]

    for held in (True, True, True, False, False, False):
        kept, node = last(held)
        executor.evaluate([node])
        assert node.blob is not None and bool((node.blob.native() == 3.75).all())
        assert kept is None or (not kept.is_pending and bool((kept.numpy() == 2.0).all()))
    _, node = last(False)
    found = replay.found_again([node], 0)
    assert found is not None and len(found.plan.kept) == 1
    kept, node = last(True)
    assert kept.is_pending and replay.found_again([node], 0) is None


@pytest.mark.parametrize(
    ("ends", "together"),
    [
        (lambda x: (m := x > 0.5, xt.any(m), xt.all(m)), False),
        (lambda x: (m := x > 0.5, xt.any(m), xt.all(m)), True),
        (lambda x: (m := x * 2.0 + 1.0, xt.sum(m, axis=0), xt.max(m, axis=0)), False),
        (lambda x: (m := x - 1.0, xt.exp(m) * x, m * m), True),
    ],
)
def test_expressions_with_several_ends_are_found_again(
    ends: Any, together: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is computed in one pass is planned once: ends asked for together, small ones beside another."""
    planned, counts = replay.planned, []
    monkeypatch.setattr(replay, "planned", lambda *args, **given: counts.append(1) or planned(*args, **given))
    for run in range(8):
        numbers = np.random.default_rng(run).standard_normal(150_000)
        wanted = [np.asarray(one) for one in ends(xt.asarray(numbers, copy=True)) if one is not None]
        counts.clear()
        found = ends(xt.asarray(numbers, copy=True))
        if together:
            xt.evaluate(*found)
        else:
            found[1].evaluate()
        for one, expected in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, expected, rtol=1e-12)
    assert not counts
    x = xt.asarray(numbers, copy=True)
    value, first, second = ends(x)
    other = value * 1.0 if value.dtype.kind == "f" else ~value  # is used by one more: it is another expression
    xt.evaluate(first, second)
    assert xt.all(other == (value if value.dtype.kind == "f" else ~value))


def test_ends_of_other_shapes_are_another_expression() -> None:
    """What one kernel computed where shapes were the same, two compute where they are not."""
    for lengths in [(80_000, 80_000)] * 4 + [(80_000, 90_000), (70_000, 60_000)]:
        x, y = [xt.ones(length) for length in lengths]
        found = xt.exp(x - 1.0), y * 3.0
        xt.evaluate(*found)
        assert [one.shape for one in found] == [(length,) for length in lengths]
        assert bool(xt.all(found[0] == 1.0)) and bool(xt.all(found[1] == 3.0))


def test_an_expression_with_a_held_value_is_found_again() -> None:
    """It need not be planned again; where the value was computed meanwhile it is."""
    x = xt.ones(80_000)
    for _ in range(3):
        kept = x * 3.0
        z = xt.sqrt(kept + 1.0) - x
        z.evaluate()
    kept = x * 3.0
    z = xt.sqrt(kept + 1.0) - x
    again = replay.found_again([z.value], 0)  # type: ignore[arg-type]
    assert again is not None and len(again.plan.kept) == 2
    kept.evaluate()
    assert replay.found_again([z.value], 0) is None  # type: ignore[arg-type]
    assert bool((z.numpy() == 1.0).all())


@pytest.mark.parametrize("size", [1000, 40_000, 140_000])
def test_pending_values_are_written_into_windows(size: int) -> None:
    """As NumPy writes them, overlapping ones too, after all who wait to read what was there."""
    native, grid = np.linspace(0.0, 1.0, size), np.linspace(0.0, 1.0, size).reshape(10, -1)
    x, g = xt.asarray(native, copy=True), xt.asarray(grid, copy=True)
    for _ in range(6):
        before = x[:-2] * 3.0
        old = native[:-2] * 3.0
        x[1:-1] = (x[:-2] + x[2:]) * 0.5
        native[1:-1] = (native[:-2] + native[2:]) * 0.5
        np.testing.assert_array_equal(x.numpy(), native)
        np.testing.assert_array_equal(before.numpy(), old)
        x[1:] -= 0.5 * x[:-1]
        native[1:] -= 0.5 * native[:-1]
        x[...] = x * 2.0 - 1.0
        native[...] = native * 2.0 - 1.0
        np.testing.assert_array_equal(x.numpy(), native)
        g[1:, ::2] += g[:-1, 1::2] * g[1:, ::2]
        grid[1:, ::2] += grid[:-1, 1::2] * grid[1:, ::2]
        g[:, 1:] = g[:1, 1:] * 1.0  # broadcast
        grid[:, 1:] = grid[:1, 1:]
        np.testing.assert_array_equal(g.numpy(), grid)
    window = x[:5]
    with pytest.raises(ValueError, match="setitem"):
        window[...] = x * 2.0
    with pytest.raises(TypeError, match="complex"):
        x[1:] = x[1:] * 2j
    constant = xt.broadcast_to(x[:1], (size,))
    with pytest.raises(ValueError, match="writable"):
        constant[1:] = x[1:] * 2.0
    np.testing.assert_array_equal(x.numpy(), native)


COUNTED = """
import xtensor as xt
from xtensor.calls import thin
from xtensor.storage.pool import POOL

x, y = xt.ones(200_000), xt.ones(200_000)


def statement():
    global x
    for _ in range(8):
        before = POOL.stats()
        x += y * 0.5
        after = POOL.stats()
    return after.hits + after.misses - before.hits - before.misses


print(statement())
thin.exchange()
print(statement())
"""


def test_what_only_the_statement_holds_is_not_kept() -> None:
    """`x += y * 0.5` needs no memory, whether calls are still counted or methods are machine code."""
    done = run_python(COUNTED)
    assert done.stdout.split() == ["0", "0"], done.stderr


def test_an_interrupt_leaves_no_options_where_numpy_is_called() -> None:
    """What one has left in the context of such calls is not what later calls find there."""
    cpu._quiet.run(in_force.set, settings()._replace(lazy="always", engine="interpret"))
    try:
        assert CPU.call(settings) == settings()
        with xt.options(lazy="never"):
            assert CPU.call(settings) == settings()
    finally:
        cpu._quiet.run(in_force.set, None)

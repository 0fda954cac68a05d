"""NumPy arrays that a captured function finds, is given in lists and dicts, or makes."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

import xtensor as xt
from xtensor.codegen.cpu.compile import host

needs_llvm = pytest.mark.skipif(host() is None, reason="generated code needs llvmlite and a fused multiply-add")

N = 3000
RNG = np.random.default_rng(3)
WEIGHTS: Any = RNG.normal(size=N)
TABLE: Any = RNG.normal(size=(N, 3))
PLACES: Any = RNG.integers(0, N, size=N)
MASK: Any = RNG.random(N) < 0.5
BOTH = {"weights": WEIGHTS, "table": TABLE}


@pytest.fixture(params=["interpret", pytest.param("llvm", marks=needs_llvm)], autouse=True)
def engine(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run a test on each engine that has kernels."""
    with xt.options(engine=request.param, cache_dir=""):
        yield


class Found(NamedTuple):
    weights: Any
    table: Any


class Model:
    def __init__(self) -> None:
        self.weights = RNG.normal(size=N)

    def __call__(self, x: Any) -> Any:
        return xt.tanh(x * self.weights) + 1


def made(x: Any) -> Any:
    t = np.linspace(0, 1, N)
    t[3:5] = 7
    return xt.sin(x * t) + t


def with_a_default(x: Any, weights: Any = WEIGHTS) -> Any:
    return xt.sin(x) * weights + 1


def assign(x: Any, array: Any) -> Any:
    xt.asarray(array)[...] = x
    return x * array


CAPTURED: dict[str, Callable[[Any], Any]] = {
    "a global": lambda x: xt.sin(x) * WEIGHTS + 1,
    "in a dict": lambda x: xt.sin(x) * BOTH["weights"] + BOTH["table"][:, 1],
    "a view": lambda x: xt.exp(-x) * TABLE[:, 2] + TABLE[::-1, 0],
    "what NumPy makes of it": lambda x: xt.sin(x) * WEIGHTS.astype(np.float32) + WEIGHTS.sum() + float(WEIGHTS[3]),
    "of NumPy's functions": lambda x: np.sin(x) * WEIGHTS + np.maximum(x, WEIGHTS),
    "as a tensor": lambda x: xt.asarray(WEIGHTS) * x + xt.asarray(WEIGHTS, dtype=xt.float32),
    "indices": lambda x: x[PLACES] * 2 + xt.take(x, PLACES),
    "indices that are made": lambda x: xt.sin(x[np.arange(N - 1, -1, -1)]) + 1,
    "a mask": lambda x: xt.where(MASK, xt.sin(x), 0.0) + x[MASK].sum(),
    "made": made,
    "an attribute": Model(),
    "a default": with_a_default,
    "the result is one": lambda x: (xt.sin(x) + x * x, xt.asarray(np.arange(4.0))),
}


@pytest.mark.parametrize("name", CAPTURED)
def test_captured(name: str) -> None:
    function = CAPTURED[name]
    fused = xt.fuse(function)
    for seed in range(3):
        x = xt.asarray(np.random.default_rng(seed).normal(size=N))
        for one, other in zip(leaves(fused(x)), leaves(function(x)), strict=True):
            assert one.dtype == other.dtype
            agree(one, other)
    assert fused.why(xt.ones(N)) == ""


def agree(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=1e-12, atol=1e-12)


def leaves(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


def test_other_contents() -> None:
    """What an array holds now counts; one that holds something else each time makes the calls plain ones, until it
    stays the same for some calls.
    """
    weights = RNG.normal(size=N)
    fused, x = xt.fuse(lambda x: xt.sin(x) * weights + weights.max()), xt.ones(N)
    for call in range(12):
        weights[call] += 1
        for _ in range(3):
            agree(fused(x), np.sin(1.0) * weights + weights.max())
        if call == 2:
            assert fused.why(x) == ""
    for _ in range(100):
        fused(x)
    assert fused.why(x) == ""


def test_large_arrays_are_not_copied() -> None:
    weights = np.ones(600_000)
    fused = xt.fuse(lambda x: x * weights)
    x = xt.ones(600_000)
    for k in range(3):
        weights[7] = k
        assert fused(x)[7] == k
    assert fused.why(x).startswith("[changing]")


def test_arrays_of_other_kinds() -> None:
    """Texts, records, dates and arrays without elements or axes are compared as others are."""
    records = np.zeros(10, dtype=[("a", "f4"), ("b", "i8")])
    others: list[Any] = [np.array(["cat", "dog"]), records, np.array(["2020-01-01"], "M8[D]"), np.array(["", ""])]
    others += [
        np.zeros((0, 3)),
        np.asarray(3.0),
        np.zeros(3, np.float16),
        np.zeros((300, 3), "U5"),
        np.asfortranarray(TABLE),
    ]
    for one in others:
        fused = xt.fuse(lambda x, one=one: (xt.sin(x), str(one[..., :1] if one.ndim else one)))
        for _ in range(3):
            assert fused(xt.ones(N))[1] == str(one[..., :1] if one.ndim else one)
        agree(xt.vmap(lambda x, one=one: xt.sin(x) * one.size)(xt.ones((9, 3))), np.sin(np.ones((9, 3))) * one.size)


def test_whether_it_can_be_written() -> None:
    weights = np.ones(N)
    fused = xt.fuse(lambda x: xt.sin(x) * (2.0 if weights.flags.writeable else 3.0))
    for _ in range(3):
        agree(fused(xt.ones(N)), np.sin(1.0) * 2 * weights)
    weights.flags.writeable = False
    agree(fused(xt.ones(N)), np.sin(1.0) * 3 * weights)


def test_rebound() -> None:
    holder = {"weights": np.ones(N)}
    fused, x = xt.fuse(lambda x: xt.sin(x) * holder["weights"]), xt.ones(N)
    for k in range(8):
        holder["weights"] = np.full(N, float(k % 3))
        for _ in range(2):
            assert bool(xt.all(fused(x) == xt.sin(x) * (k % 3)))
    assert fused.why(x) == ""


REFUSED: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "NumPy writes it": (lambda x, a: (np.add(a, 1, out=a), x * a)[1], "[writes]"),
    "a tensor writes it": (assign, "[writes]"),
    "a tensor updates it": (lambda x, a: (xt.asarray(a).__iadd__(x), x * a)[1], "[writes]"),
    "it is returned": (lambda x, a: (xt.sin(x), xt.asarray(a)), "[outside]"),
    "its view is returned": (lambda x, a: (xt.sin(x), xt.asarray(a)[3:]), "[outside]"),
    "NumPy has it itself": (lambda x, a: (xt.sin(x), a), "[returns]"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_written_and_returned(name: str) -> None:
    """Memory of an array that is found is written and returned as it is."""
    function, why = REFUSED[name]
    own, other = RNG.normal(size=N), np.empty(N)
    other[:] = own
    fused = xt.fuse(lambda x: function(x, own))
    for seed in range(4):
        x = xt.asarray(np.random.default_rng(seed).normal(size=N))
        found, expected = leaves(fused(x)), leaves(function(x, other))
        np.testing.assert_array_equal(own, other)
        for one, plain in zip(found, expected, strict=True):
            np.testing.assert_allclose(np.asarray(one), np.asarray(plain), rtol=1e-14)
            assert np.shares_memory(np.asarray(one), own) == np.shares_memory(np.asarray(plain), other)
    assert fused.why(xt.ones(N)).startswith((why, "[changing]"))


def test_an_argument_in_its_memory() -> None:
    """A write to an argument changes what NumPy reads of an array that is found."""
    array = np.zeros(N)
    same = xt.asarray(array)

    def function(x: Any, y: Any) -> Any:
        y += x
        return xt.sin(x) * array.sum()

    fused = xt.fuse(function)
    for k in range(4):
        result = fused(xt.full(N, float(k)), same)
        total = N * sum(range(k + 1))
        assert array.sum() == total
        agree(result, np.sin(k) * total)


def test_remembered_arrays() -> None:
    """What a function that remembers its results returns can be changed by others."""

    @functools.lru_cache
    def table(n: int) -> Any:
        return np.ones(n)

    fused = xt.fuse(lambda x: x * table(N))
    for k in range(4):
        table(N)[0] = k
        assert fused(xt.ones(N))[0] == k


def test_files(tmp_path: Any) -> None:
    path = str(tmp_path / "array.npy")
    fused = xt.fuse(lambda x: x * np.load(path))
    for k in range(4):
        np.save(path, np.full(N, float(k)))
        assert fused(xt.ones(N))[0] == k


def test_masked_arrays_are_no_constants() -> None:
    masked: Any = np.ma.masked_array(np.ones(40), np.zeros(40, bool))
    fused = xt.fuse(lambda x: x * float(masked.sum()))
    for k in range(4):
        masked.mask[: k + 1] = True
        assert fused(xt.ones(N))[0] == 39 - k


# ---- in lists, tuples and dicts that are arguments


@pytest.mark.parametrize("kind", [tuple, list, dict, Found])
def test_arguments(kind: Any) -> None:
    """Arrays in arguments are read anew at each call, and stay where they are."""

    def function(x: Any, held: Any) -> Any:
        weights, table = (held["weights"], held["table"]) if isinstance(held, dict) else held
        return xt.sin(x) * weights + table[:, 1]

    fused = xt.fuse(function)
    x = xt.asarray(RNG.normal(size=N))
    for _ in range(4):
        weights, table = RNG.normal(size=N), RNG.normal(size=(N, 3))
        pair: dict[str, Any] = {"weights": weights, "table": table}
        held: Any = pair if kind is dict else kind(*pair.values()) if kind is Found else kind(pair.values())
        agree(fused(x, held), np.sin(np.asarray(x)) * weights + table[:, 1])
        now = [*held.values()] if isinstance(held, dict) else [*held]
        assert now[0] is weights
        assert now[1] is table
    held = kind(weights=weights, table=table) if kind in (dict, Found) else kind((weights, table))
    assert fused.why(x, held) == ""


def test_arguments_are_rebound() -> None:
    """What a function puts into a list or dict stays there, in nested ones too."""

    def step(state: Any, g: Any) -> None:
        state["w"] = state["w"] - 0.1 * g
        state["parts"][0], state["parts"][1] = state["parts"][1], state["parts"][0]
        state["moved"] = state["pair"][1]

    fused, g = xt.fuse(step), RNG.normal(size=N)
    for _ in range(3):
        w, a, b, c, d = (RNG.normal(size=N) for _ in range(5))
        state: dict[str, Any] = {"w": w, "parts": [a, b], "pair": (c, d)}
        fused(state, g)
        agree(state["w"], w - 0.1 * g)
        assert state["parts"][0] is b
        assert state["parts"][1] is a
        assert state["moved"] is d
        assert state["pair"][0] is c


def test_what_is_returned_of_arguments() -> None:
    """Lists and dicts that are returned are those that were given."""
    held: dict[str, Any] = {"w": RNG.normal(size=N), "l": [np.ones(N)]}
    fused = xt.fuse(lambda x, held: (xt.sin(x) * held["w"], held, held["l"]))
    for _ in range(3):
        result, same, inner = fused(xt.ones(N), held)
        assert same is held
        assert inner is held["l"]
        agree(result, np.sin(1.0) * held["w"])
    assert type(held["w"]) is type(inner[0]) is np.ndarray


def test_subclasses_of_tuples() -> None:
    class Pair(tuple):  # type: ignore[type-arg]
        pass

    fused = xt.fuse(lambda x, held: xt.sin(x) * held[0])
    for k in range(3):
        agree(fused(xt.ones(N), Pair([np.full(N, float(k))])), np.sin(1.0) * np.full(N, float(k)))


def test_overlapping_arguments_beside_an_array() -> None:
    """What was read before a write is what it was then, also where the write reads memory of an array."""

    def step(x: Any, inner: Any) -> Any:
        old = x * 1.0
        inner += np.ones(inner.shape[0])
        inner[:5] = WEIGHTS[:5]
        return old

    for size in (8, N, 300_000):
        fused = xt.fuse(step)
        for k in range(3):
            x, y = np.full(size, float(k)), np.full(size, float(k))
            agree(fused(x, x[1:-1]), step(y, y[1:-1]))
            agree(x, y)
            x = np.full(size, float(k))
            agree(fused(xt.asarray(x), xt.asarray(x[::-1])), np.full(size, float(k)))


def test_threads_with_one_dict() -> None:
    """Threads may call with one dict: each gets tensors, and arrays stay there."""
    held: dict[str, Any] = {"a": np.ones(N), "l": [np.ones(N)], "t": (np.ones(N), {"b": np.ones(N)})}
    arrays = [held["a"], held["l"][0], held["t"][0], held["t"][1]["b"]]

    def step(held: Any, x: Any, name: str) -> Any:
        held[name] = x + held["a"]
        return xt.sin(x) * held["l"][0] + held["t"][0] * held["t"][1]["b"]

    fused, failures = xt.fuse(step), []

    def work(name: str) -> None:
        x = xt.asarray(RNG.normal(size=N))
        for _ in range(30):
            try:
                agree(fused(held, x, name), np.sin(np.asarray(x)) + 1)
                agree(held[name], np.asarray(x) + 1)
            except Exception as error:
                failures.append(error)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work, args=(name,)) for name in "pqrs"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert not failures
    now = [held["a"], held["l"][0], held["t"][0], held["t"][1]["b"]]
    assert all(one is other for one, other in zip(now, arrays, strict=True))


def test_arguments_after_an_error() -> None:
    w = RNG.normal(size=N)
    held, cyclic = {"w": w}, [w]
    cyclic.append(cyclic)  # type: ignore[arg-type]

    def fails(x: Any, held: Any) -> Any:
        raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        xt.fuse(fails)(xt.ones(N), held)
    with pytest.raises(ValueError, match="on purpose"):
        xt.fuse(fails)(xt.ones(N), cyclic)
    assert held["w"] is w
    assert cyclic[0] is w


# ---- in maps


@pytest.mark.parametrize("is_fused", [False, True])
def test_rows(is_fused: bool) -> None:
    calls = []

    def row(x: Any) -> Any:
        calls.append(1)
        return xt.sum(xt.sin(x) * WEIGHTS) + TABLE[0, 1]

    def quiet(x: Any) -> Any:
        return xt.sum(xt.sin(x) * WEIGHTS) + TABLE[0, 1]

    x = xt.asarray(RNG.normal(size=(12, N)))
    mapped = xt.vmap(quiet)
    mapped = xt.fuse(mapped) if is_fused else mapped
    for _ in range(3):
        expected = (np.sin(np.asarray(x)) * WEIGHTS).sum(1) + TABLE[0, 1]
        agree(mapped(x), expected)
    np.testing.assert_allclose(np.asarray(xt.vmap(row)(x)), expected, rtol=1e-12)
    assert len(calls) == 12  # as `calls` holds something else for each row


def test_rows_that_change_an_array() -> None:
    """Each row finds what the last one has left in an array of NumPy's."""
    for size in (4, N):
        count = np.zeros(size)

        def row(x: Any, count: Any = count) -> Any:
            count[0] += 1
            return x * count[0]

        found = xt.vmap(row)(xt.ones((5, 3)))
        np.testing.assert_array_equal(np.asarray(found)[:, 0], np.arange(1.0, 6))


def test_libraries_that_are_not_known() -> None:
    """What a library makes that draws random numbers, as SciPy does, is something else each time."""
    stats = pytest.importorskip("scipy.stats")
    weights = np.ones(N)
    fused = xt.fuse(lambda x: x * stats.norm.rvs(size=N))
    first, second, third = (fused(xt.ones(N)) for _ in range(3))
    assert not bool(xt.any(first == second)) and not bool(xt.any(second == third))
    known = xt.fuse(lambda x: xt.sin(x) * weights + x * float(stats.norm.cdf(0.0)))  # an array that is found
    for _ in range(3):
        known(xt.ones(N))
    assert known.why(xt.ones(N)) == ""


# ---- what does not follow from what is found


def numbers_of(library: Any) -> Any:
    return library.random.rand(N)


class Library:
    np = np


def scale(x: Any) -> Any:
    return x * SCALES


SCALES: Any = np.ones(N)
SAME = np.linspace


@pytest.mark.parametrize("way", ["argument", "attribute", "partial", "lambda", "converted", "copied", "swapped"])
def test_random_numbers_by_other_names(way: str) -> None:
    """Modules that are arguments or attributes, and conversions of what libraries make, hide no random numbers."""
    stats = pytest.importorskip("scipy.stats")
    made: dict[str, Any] = {
        "argument": lambda x, np: x + np.random.rand(N),
        "attribute": lambda x, np: x + numbers_of(Library.np),
        "partial": functools.partial(lambda np, x, _: x + np.random.rand(N), np),
        "lambda": lambda x, _: x + (lambda xp: xp.random.rand(N))(np),
        "converted": lambda x, _: x + xt.asarray(stats.norm.rvs(size=N), dtype=xt.float32),
        "copied": lambda x, _: x + xt.asarray(stats.norm.rvs(size=N), copy=True),
        "swapped": lambda x, _: x + stats.norm.rvs(size=N).astype(">f8"),
    }
    fused, x = xt.fuse(made[way]), xt.ones(N)
    first, second, third, fourth = (fused(x, np) for _ in range(4))
    for one, other in ((first, second), (second, third), (third, fourth)):
        assert not bool(xt.any(one == other))


def test_files_by_other_names(tmp_path: Any) -> None:
    from numpy import load

    path = tmp_path / "array.npy"

    def by_a_name(x: Any) -> Any:
        return x * load(path)

    def by_a_path(x: Any) -> Any:
        with path.open("rb") as file:
            return x * np.frombuffer(file.read()[-8 * N :])

    for function in (by_a_name, by_a_path, lambda x: x * np.lib.format.open_memmap(path)):
        fused = xt.fuse(function)
        for k in range(4):
            np.save(path, np.full(N, float(k)))
            assert fused(xt.ones(N))[0] == k


@pytest.mark.parametrize("default", [scale, (scale,), Library, {"a": scale}])
def test_defaults_that_are_functions(default: Any) -> None:
    """What functions, classes and tuples of them find that are defaults is looked up as well."""
    Library.scales = SCALES  # type: ignore[attr-defined]

    def function(x: Any, act: Any = default) -> Any:
        if isinstance(act, type):
            return xt.sin(x) * act.scales  # type: ignore[attr-defined]
        return (act[0] if isinstance(act, tuple) else act["a"] if isinstance(act, dict) else act)(xt.sin(x))

    fused = xt.fuse(function)
    for k in range(5):
        SCALES[:] = k
        agree(fused(xt.ones(N)), np.sin(1.0) * np.full(N, float(k)))


def test_memory_behind_a_view() -> None:
    whole = np.zeros(2 * N)
    part = whole[:N]
    for function in (
        lambda x: x + np.lib.stride_tricks.as_strided(part, (2 * N,), (8,)),
        lambda x: x + part.base,
    ):
        fused = xt.fuse(function)
        for k in range(4):
            whole[N:] = k
            assert float(fused(xt.ones(2 * N))[-1]) == k + 1


def test_an_array_that_changes_for_a_while() -> None:
    def function(x: Any) -> Any:
        array = np.zeros(N)
        tensor = xt.asarray(array)
        first = xt.sin(x) + tensor
        array[:] = 1
        second = xt.sin(x) + tensor
        array[:] = 0
        return first, second

    fused = xt.fuse(function)
    for _ in range(4):
        first, second = fused(xt.ones(N))
        agree(second - first, np.ones(N))


def test_results_in_one_array() -> None:
    def function(x: Any) -> Any:
        array = np.arange(float(N))
        return xt.sin(x), xt.asarray(array), xt.asarray(array[2:])

    fused = xt.fuse(function)
    for _ in range(4):
        _, one, other = fused(xt.ones(N))
        one[5] = 77
        assert other[3] == 77


def test_threads_with_arrays_of_their_own() -> None:
    """Contents that come at once are told apart."""

    class Holder:
        def __init__(self, k: int) -> None:
            self.w = np.full(60_000, float(k))

    fused, wrong = xt.fuse(lambda holder, x: xt.exp(xt.sin(x)) * 0 + holder.w), []

    def work(k: int) -> None:
        holder, x = Holder(k), xt.ones(60_000)
        for _ in range(20):
            if float(fused(holder, x)[7]) != k:
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_copies_make_room() -> None:
    """Arrays of other shapes take the place of those that came longest ago."""
    weights: Any = np.ones(1)
    fused = xt.fuse(lambda x: xt.sin(x) * weights[0] + 1)
    for k in range(30):
        weights = np.full(100_000 + k, float(k))
        for _ in range(2):
            agree(fused(xt.ones(10_000)), np.sin(1.0) * k + np.ones(10_000))
    agree(fused(xt.ones(10_000)), np.sin(1.0) * 29 + np.ones(10_000))
    assert not fused.why(xt.ones(10_000)).startswith("[changing]")


# ---- lists and dicts that are arguments stay what they are


def test_containers_are_the_very_ones() -> None:
    class Kept:
        last: Any = None

    kept, log = Kept(), []

    def function(x: Any, state: Any, keeps: bool) -> Any:
        state["hist"].append((1, state["cur"]))
        removed = state.pop("a")
        state["a"] = removed
        state["inner"]["p"] = xt.sin(x) * state["cur"]
        if keeps:
            kept.last = state
            log.append(state)
        return {"state": state}, [x + 1, state], (x, (state,))

    for keeps in (False, True):
        fused = xt.fuse(function)
        for call in range(4):
            cur = RNG.normal(size=N)
            state: dict[str, Any] = {"a": np.ones(N), "cur": cur, "hist": [], "inner": {}}
            found, listed, nested = fused(xt.ones(N), state, keeps)
            assert found["state"] is state and listed[1] is state and nested[1][0] is state
            assert state["cur"] is cur and type(state["a"]) is np.ndarray
            assert list(state) == ["cur", "hist", "inner", "a"]
            assert len(state["hist"]) == 1, call
            agree(state["hist"][0][1], cur)
            agree(state["inner"]["p"], np.sin(1.0) * cur)
            if keeps:
                assert kept.last is state and log[-1] is state


def test_threads_that_append_to_one_list() -> None:
    shared: list[Any] = [np.ones(40)]

    def function(shared: Any, k: int) -> Any:
        shared.append(k)
        return k

    fused = xt.fuse(function)
    threads = [threading.Thread(target=lambda: [fused(shared, k) for k in range(10)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(shared) == 41
    assert type(shared[0]) is np.ndarray


def test_classes_that_look_like_named_tuples() -> None:
    class Odd:
        _make = 3

    for _ in range(3):
        agree(xt.fuse(lambda odd, x: xt.sin(x))(Odd(), np.ones(N)), np.sin(np.ones(N)))

"""`xt.profile`: every kernel and library call once, in order, with its bytes; and nothing is left behind."""

from __future__ import annotations

import gc
import re
import threading
import weakref
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

import emulated
import numpy as np
import pytest

import xtensor as xt
from xtensor.base import profiling
from xtensor.base.options import thin_closed
from xtensor.base.profiling import Entry
from xtensor.calls.op import REGISTRY
from xtensor.codegen.cpu.compile import host
from xtensor.devices import blas
from xtensor.plan import costs
from xtensor.profiler import LINES
from xtensor.run import executor
from xtensor.timeline import ENTRIES

SVG = "{http://www.w3.org/2000/svg}"
N = 100_000
ENGINES = ["interpret", *(["llvm"] if host() is not None else [])]


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """See that nobody is told of work, and that the thin way is as open as before, when a test ends."""
    with xt.options(lazy="auto", engine="auto", gradients="asked"):
        _ = xt.zeros(1)  # the environment has been asked
        before = len(thin_closed)
        yield
    gc.collect()
    assert len(thin_closed) == before and not profiling.observers


def products_are_native() -> bool:
    """Return whether machine code can call the BLAS."""
    return host() is not None and blas.address("dgemm") != 0


def array(*shape: int) -> xt.Tensor:
    """Return numbers above 0 that have memory of their own."""
    return xt.asarray(np.random.default_rng(0).uniform(0.5, 1.5, shape), copy=True)


def work(found: Any) -> list[Entry]:
    """Return what was computed, without the preparing of it."""
    return [entry for entry in found.entries if entry.kind in ("kernel", "library")]


def named(found: Any) -> list[tuple[str, ...]]:
    """Return the names of what was computed, in order, without shapes."""
    return [tuple([re.sub(r" \(.*", "", name) for name in entry.names]) for entry in work(found)]


def assert_in_order(entries: list[Entry]) -> None:
    """Check that the entries of each thread follow each other."""
    for thread in {entry.thread for entry in entries}:
        own = [entry for entry in entries if entry.thread == thread]
        for one, other in pairwise(own):
            assert one.began + one.seconds <= other.began


# ---- kernels


@pytest.mark.parametrize("engine", ENGINES)
def test_a_kernel_is_one_entry_with_the_bytes_of_explain(engine: str) -> None:
    """Its steps by name, its shape, what it reads and writes."""
    x = array(N)
    with xt.options(engine=engine), xt.profile() as found:
        z = xt.exp(-x) * xt.sin(x)
        total = float(xt.sum(z))
    (entry,) = work(found)
    (name,) = entry.names
    assert sorted(re.findall(r"\w+(?=[, ])", name)[:5]) == ["exp", "multiply", "negative", "sin", "sum"]
    assert name.endswith(f" ({N},)") and (entry.kind, entry.by) == ("kernel", engine)
    assert entry.nbytes == 8 * (N + N + 1)  # x, z, which is held, and the sum
    assert [one.kind for one in found.entries].count("prepare") == 1
    assert total == pytest.approx(float(np.sum(np.exp(-x.numpy()) * np.sin(x.numpy()))))


@pytest.mark.parametrize("engine", ENGINES)
def test_bytes_are_those_that_explain_counts(engine: str) -> None:
    """Of kernels apart and of such that go row by row together."""
    x = array(500, 400)
    with xt.options(engine=engine):
        z = (x - xt.mean(x, axis=1, keepdims=True)) / xt.std(x, axis=1, keepdims=True)
        moved = re.search(r"moving ([^ ]+ [^ ]+) to and from memory", xt.explain(z))
        with xt.profile() as found:
            z.evaluate()
    assert moved is not None
    assert f"; {moved[1]} moved" in found.title()


@pytest.mark.parametrize("engine", ENGINES)
def test_kernels_and_library_calls_of_one_program_in_order(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel on each side of a library's function, all recorded."""
    monkeypatch.setattr(costs, "NATIVE_PRODUCT", 0)  # else machine code calls it between the kernels
    x, w = array(300, 300), array(300, 300)
    with xt.options(engine=engine, lazy="always"):
        z = xt.sum(xt.exp(xt.matmul(xt.sqrt(x) + 1.0, w)))
        with xt.profile() as found:
            z.evaluate()
    assert named(found) == [("sqrt, add",), ("matmul",), ("exp, sum",)]
    assert [entry.nbytes for entry in work(found)] == [2 * x.nbytes, 3 * x.nbytes, x.nbytes + 8]
    assert [entry.kind for entry in work(found)] == ["kernel", "library", "kernel"]
    assert_in_order(found.entries)


def test_a_second_run_prepares_nothing() -> None:
    """What was prepared before is only run."""
    x = array(N)
    for _ in range(4):
        xt.sqrt(x * 1.5).evaluate()
    with xt.profile() as found:
        xt.sqrt(x * 2.5).evaluate()
    assert [entry.kind for entry in found.entries] == ["kernel"]


def test_updates_in_place_are_kernels() -> None:
    """They read and write their target."""
    x, y = array(N), array(N)
    with xt.options(engine="interpret"), xt.profile() as found:
        x += xt.exp(y)
    assert named(found) == [("exp, add",)]
    assert work(found)[0].nbytes == 3 * x.nbytes


def test_an_update_is_a_kernel_whatever_was_kept_before() -> None:
    """An expression like it whose inner value somebody held is remembered with that value; the update needs it not."""
    small, x, y = array(5), array(N), array(N)
    with xt.options(engine="interpret"):
        for _ in range(3):
            with xt.options(lazy="always"):
                held = xt.expm1(small)
                (small + held).evaluate()
        with xt.profile() as found:
            x += xt.expm1(y)
    assert named(found) == [("expm1, add",)]


# ---- library calls


@pytest.mark.parametrize("name", sorted(name for name in REGISTRY if hasattr(xt, name)))
def test_a_small_call_of_every_row_is_one_entry(name: str) -> None:
    """All that goes the thin way otherwise: the function's name, what it is given and what it gives."""
    op = REGISTRY[name]
    dtype = next(one for one in (xt.float64, xt.int64, xt.bool, xt.complex128) if one in op.accepts)
    count = len(op.parameters)
    given = [xt.asarray(np.ones((3, 4)), dtype=dtype) for _ in range(count)]
    if name == "where":
        given[0] = xt.astype(given[0], xt.bool)
    with xt.options(engine="direct"), xt.profile() as found:
        result = getattr(xt, name)(*given).evaluate()
    entries = [entry for entry in found.entries if entry.names == (name,)]
    assert found.entries == entries and len(entries) == 1
    assert entries[0].nbytes == sum(x.nbytes for x in given) + result.nbytes


LIBRARY: dict[str, tuple[Callable[[xt.Tensor], Any], list[str], int]] = {
    "operators": (lambda x: (x + 1.0) @ x, ["add", "matmul"], 5),
    "update": (lambda x: x.__iadd__(2.0), ["add"], 2),
    "update by an array": (lambda x: x.__imul__(x), ["multiply"], 3),
    "sort": (xt.sort, ["sort"], 2),
    "inverse": (xt.linalg.inv, ["inv"], 2),
    "assignment": (lambda x: x.__setitem__(..., 3.0), ["setitem"], 1),
    "conversion": (lambda x: xt.astype(x, xt.int64), ["astype"], 2),
    "copy": (lambda x: x.copy(), ["copy"], 2),
    "copy in the order of memory": (lambda x: x.T.copy("K"), ["copy"], 2),
    "copy of NumPy's": (lambda x: xt.asarray(np.ones((8, 8)), copy=True), ["asarray"], 2),
    "copy that converts": (lambda x: xt.asarray(np.ones((8, 8), np.int64), dtype=xt.float64), ["asarray"], 2),
    "stack": (lambda x: xt.concat([x, x]), ["concat"], 4),
    "convolution": (lambda x: xt.nn.conv(x[None, None], x[None, None, :1, :1]), ["conv"], 0),
    "of NumPy": (lambda x: xt.numpy.argpartition(x, 3), ["argpartition"], 2),
}


@pytest.mark.parametrize("case", LIBRARY)
def test_library_calls(case: str) -> None:
    """Each is one entry, whatever it computes inside; the bytes are those of the arrays given and got."""
    run, names, arrays = LIBRARY[case]
    x = array(8, 8) + xt.eye(8)
    with xt.profile() as found:
        run(x)
    assert named(found) == [(name,) for name in names]
    assert {entry.kind for entry in found.entries} == {"library"} and {entry.by for entry in found.entries} == {"numpy"}
    if arrays:
        assert sum(entry.nbytes for entry in found.entries) == arrays * x.nbytes
    assert_in_order(found.entries)


def test_a_look_at_a_part_is_one_entry() -> None:
    """As many bytes as are looked at."""
    x = array(N)
    z = xt.exp(x) * 2.0
    with xt.profile() as found:
        str(z[:3])
    assert [entry.nbytes for entry in found.entries] == [24] and z.is_pending


def test_random_numbers_are_one_entry() -> None:
    """Of the bytes that are drawn."""
    generator = xt.random.default_rng(0)
    with xt.profile() as found:
        drawn = generator.normal(size=(5, 7))
    assert [(entry.names, entry.nbytes) for entry in found.entries] == [(("random",), drawn.nbytes)]


# ---- fused functions and gradients


@pytest.mark.parametrize("engine", ENGINES)
def test_fused_functions(engine: str) -> None:
    """The call that is watched, then the schedule: its kernels by name, library calls between them, the same bytes."""

    @xt.fuse
    def f(x: Any) -> Any:
        return xt.sum(xt.sort(xt.exp(x) * 2.0) + 1.0)

    x = array(N)
    runs = []
    with xt.options(engine=engine):
        for _ in range(4):
            with xt.profile() as found:
                f(x).evaluate()
            runs.append(found)
        assert not f.why(x)
    watched, first, *later = runs
    assert named(watched) == [("exp, multiply",), ("sort",), ("add, sum",)]
    assert [entry.kind for entry in first.entries] == ["prepare", "kernel", "library", "kernel"]
    assert first.entries[0].names == ("a captured function of 3 steps",)
    for found in (first, *later):
        assert named(found) == named(watched)
        assert [one.nbytes for one in work(found)] == [2 * x.nbytes, 2 * x.nbytes, x.nbytes + 8]
    assert all(len(found.entries) == 3 for found in later)


@pytest.mark.skipif(host() is None, reason="generated code needs llvmlite and a fused multiply-add")
def test_kernels_of_one_call_are_listed() -> None:
    """Machine code that follows machine code is one entry, which names all of it."""

    @xt.fuse
    def step(u: xt.Tensor) -> None:
        u[1:-1] += 0.25 * (u[:-2] - 2.0 * u[1:-1] + u[2:])
        u *= 0.5

    u = array(N)
    with xt.options(engine="llvm"):
        step(u), step(u)
        with xt.profile() as found:
            step(u)
    (entry,) = found.entries
    assert len(entry.names) > 1 and entry.words.startswith(f"{len(entry.names)} kernels in one call: ")
    assert entry.names[-1] == f"multiply, astype ({N},)" or entry.names[-1] == f"multiply ({N},)"


@pytest.mark.skipif(not products_are_native(), reason="machine code calls no BLAS here")
def test_products_of_machine_code_are_among_its_kernels() -> None:
    """A small product of a captured function is named where it runs, with the bytes of its three matrices."""

    @xt.fuse
    def layer(x: xt.Tensor, w: xt.Tensor) -> xt.Tensor:
        return xt.tanh(xt.matmul(x * 2.0, w))

    x, w = array(40, 30), array(30, 20)
    with xt.options(engine="llvm"):
        layer(x, w), layer(x, w)
        with xt.profile() as found:
            z = layer(x, w)
    (entry,) = found.entries
    assert entry.names == ("multiply (40, 30)", "matmul (40, 20)", "tanh (40, 20)") and entry.kind == "kernel"
    assert entry.nbytes == 3 * x.nbytes + w.nbytes + 3 * z.nbytes


@pytest.mark.parametrize("engine", ENGINES)
def test_gradients(engine: str) -> None:
    """A gradient is computed as without a profile, bit for bit, and its kernels follow each other."""

    def loss(w: xt.Tensor) -> xt.Tensor:
        return xt.sum(xt.tanh(w * x) ** 2)

    x, w = array(N), array(N)
    with xt.options(engine=engine):
        plain = xt.value_and_grad(loss)(w)
        expected = [value.numpy() for value in plain]
        with xt.profile() as found:
            value, gradient = xt.value_and_grad(loss)(w)
            xt.evaluate(value, gradient)
    assert np.array_equal(value.numpy(), expected[0]) and np.array_equal(gradient.numpy(), expected[1])
    assert any("tanh" in name for names in named(found) for name in names)
    assert sum(entry.nbytes for entry in found.entries) >= 3 * x.nbytes  # x and w are read, the gradient written
    assert_in_order(found.entries)


# ---- threads, nesting, exceptions


def test_threads_have_their_own_entries() -> None:
    """Each says which thread it was, and none is lost."""
    start = threading.Barrier(2)

    def run(x: xt.Tensor) -> None:
        start.wait()
        for _ in range(20):
            xt.sort(x)

    threads = [threading.Thread(target=run, args=(array(1000),)) for _ in range(2)]
    with xt.profile() as found:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    seen = [entry.thread for entry in found.entries]
    assert sorted(map(seen.count, set(seen))) == [20, 20]
    assert threading.get_ident() not in seen
    assert_in_order(found.entries)
    assert "library calls by 2 threads" in found.title()
    assert len(bars(found)) == 40 and len({y for _, y, *_ in bars(found)}) == 2


def test_a_wait_for_another_thread_is_an_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where an evaluation has to wait until another thread's is done."""
    tried, real = threading.Event(), executor._evaluating

    class Lock:
        """The lock, which says when somebody finds it taken."""

        def acquire(self, blocking: bool = True) -> bool:
            taken: bool = real.acquire(blocking=blocking)
            if not taken:
                tried.set()
            return taken

        def release(self) -> None:
            real.release()

        def _is_owned(self) -> bool:
            return real._is_owned()

    x = xt.exp(array(N))
    with xt.profile() as found:
        monkeypatch.setattr(executor, "_evaluating", Lock())
        with executor.turn():
            thread = threading.Thread(target=x.evaluate)
            thread.start()
            assert tried.wait(60)
        thread.join()
    assert not x.is_pending
    (wait,) = [entry for entry in found.entries if entry.kind == "wait"]
    assert wait.names == ("another thread's evaluation",) and wait.thread == thread.ident
    assert "in a wait" in found.title()


def test_profiles_nest() -> None:
    """The outer one has all that the inner one has."""
    x = array(5, 5)
    with xt.profile() as outer:
        xt.sort(x)
        with xt.profile() as inner:
            xt.linalg.det(x)
        xt.argsort(x)
    assert named(outer) == [("sort",), ("det",), ("argsort",)]
    assert inner.entries == outer.entries[1:2]
    assert inner.seconds <= outer.seconds


def test_an_exception_ends_the_profile() -> None:
    """What was computed before it stays, and what failed says so."""
    x = array(3, 3)
    with pytest.raises(np.linalg.LinAlgError), xt.profile() as found:
        xt.sort(x)
        xt.linalg.inv(xt.zeros((3, 3)))
    assert [entry.failure for entry in found.entries] == ["", "LinAlgError"]
    assert "inv, ended in LinAlgError" in str(found)
    with xt.profile() as after:
        xt.sort(x)
    assert len(after.entries) == 1  # a failure inside leaves no trace


def test_a_profile_is_entered_once() -> None:
    """A second time is refused, and changes nothing."""
    with xt.profile() as found, pytest.raises(RuntimeError, match="profile: a profile must be entered once"):
        found.__enter__()
    with pytest.raises(RuntimeError), found:
        pass
    assert found.entries == []


def test_it_keeps_no_memory_alive() -> None:
    """Entries are words and numbers."""
    x = array(N)
    with xt.profile() as found:
        xt.exp(x).evaluate()
    owner = weakref.ref(x.owner)
    del x
    gc.collect()
    assert owner() is None and len(found.entries) >= 1


# ---- what it shows


def test_the_table() -> None:
    """Entries that are alike are one line, the longest first; it says where in the program they were asked for."""
    x = array(200, 200)
    with xt.profile() as found:
        for _ in range(3):
            xt.sort(x)
        xt.linalg.svdvals(x)
    title, head, *lines = str(found).splitlines()
    assert title == found.title() and title.startswith("profile: ") and "in 4 library calls" in title
    assert head.split()[:3] == ["ms", "times", "moved"]
    cells = {
        name: next(re.split(r"  +", one.strip()) for one in lines if f"  {name}  " in one)
        for name in ("sort", "svdvals")
    }
    assert cells["sort"][1] == "3" and cells["sort"][2] == "1.92 MB" and cells["svdvals"][1] == "1"
    assert all(re.search(r"test_profile\.py:\d+ in test_the_table$", line) for line in lines)
    assert float(cells["sort"][0]) == pytest.approx(1e3 * sum(one.seconds for one in found.entries[:3]), abs=1e-3)
    times = [float(line.split()[0]) for line in lines]
    assert times == sorted(times, reverse=True)


def test_nothing_computed() -> None:
    """Pending values are no work yet."""
    x = array(N)
    with xt.profile() as found:
        z = xt.exp(x)
    assert z.is_pending
    assert "nothing was computed" in str(found) and repr(found) == str(found)
    assert bars(found) == []
    assert xt.profile().seconds == 0.0


def test_much_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many different lines and many entries the first are shown, and how many are left out."""
    found = xt.profile()
    found.entries = [
        Entry("library", "numpy", (f"f{n}" * 50,), 8, n * 1e-6, 1e-6, 1, f"/a/b.py:{n} in g", "")
        for n in range(ENTRIES + 5)
    ]
    table = str(found).splitlines()
    assert len(table) == LINES + 3 and table[-1] == f"and {ENTRIES + 5 - LINES} lines more"
    assert len(bars(found)) == ENTRIES
    assert f"the first {ENTRIES} of {ENTRIES + 5} entries" in found._repr_svg_()


def bars(found: Any) -> list[tuple[float, float, float, str]]:
    """Return left, top, width and what is said of each bar of a timeline, which is well-formed."""
    picture = ElementTree.fromstring(found._repr_svg_())
    places = []
    for group in picture.iter(f"{SVG}g"):
        title, bar = group.find(f"{SVG}title"), group.find(f"{SVG}rect")
        assert title is not None and bar is not None
        places.append((float(bar.attrib["x"]), float(bar.attrib["y"]), float(bar.attrib["width"]), title.text or ""))
    width = float(picture.attrib["width"])
    assert all(x >= 0 and x + wide <= width for x, _, wide, _ in places)
    return places


def test_the_timeline() -> None:
    """A bar for each entry, in order, as long as it took."""
    x = array(300, 300)
    with xt.profile() as found:
        xt.linalg.svdvals(x)
        xt.exp(array(N)).evaluate()
    drawn = bars(found)
    assert len(drawn) == len(found.entries)
    scale = drawn[0][2] / found.entries[0].seconds
    for (x0, _, width, text), entry in zip(drawn, found.entries, strict=True):
        assert text.startswith(f"{entry.kind} ({entry.by}): {entry.words}")
        assert width == pytest.approx(max(1.0, entry.seconds * scale), abs=0.02)
        assert x0 == pytest.approx(drawn[0][0] + (entry.began - found.entries[0].began) * scale, abs=0.1)
    page = ElementTree.fromstring(found._repr_html_())
    assert [element.text for element in page.iter("pre")] == [str(found)]


# ---- CUDA


def test_on_a_cuda_device() -> None:
    """Kernels are the host's launches, and copies to the host are waits, whose bytes cross."""
    if emulated.MISSING:
        pytest.skip(emulated.MISSING)
    with emulated.device(), xt.options(engine="auto"):
        x = xt.asarray(np.linspace(0.0, 1.0, N), device="cuda:0", copy=True)
        with xt.profile() as found:
            z = xt.sort(xt.sqrt(x) * 2.0)
            z.to_device("cpu")
        with xt.profile() as there:
            x = xt.asarray(np.ones(N), device="cuda:0", copy=True)
    kinds = [(entry.kind, entry.by) for entry in found.entries if entry.kind != "prepare"]
    assert [kind for kind, _ in kinds] == ["kernel", "library", "wait"] and kinds[1:] == [
        ("library", "cupy"),
        ("wait", "cuda"),
    ]
    assert found.entries[-1].nbytes == x.nbytes
    assert "times of cuda and cupy are the host's" in found.title() and "in a wait" in found.title()
    assert [(entry.names, entry.nbytes) for entry in there.entries] == [(("copy to the device",), x.nbytes)]

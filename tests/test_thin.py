"""Thin faces: tensors that are NumPy arrays, whose views, items, writes and small calls go straight to NumPy.

NumPy is the oracle: the same statements run on its arrays. What waits for the memory of such a tensor (pending
readers, saved values, histories, outsiders) must never see another program than NumPy's.
"""

from __future__ import annotations

import gc
import operator
import pickle
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np
import pytest

import xtensor as xt
from xtensor.base.options import thin_closed
from xtensor.calls.library import on
from xtensor.codegen.cpu.compile import wait_for_better_code
from xtensor.devices.cpu import CPU
from xtensor.graph.node import Node
from xtensor.run import executor
from xtensor.storage.blob import TBlob
from xtensor.storage.pool import POOL
from xtensor.storage.storage import Guard, Storage

LARGE = (450, 200)  # 720 000 bytes: calls on it are recorded


@pytest.fixture(autouse=True)
def open_way() -> Iterator[None]:
    """Let calls go the thin way, and see that nothing closed it for good."""
    with xt.options(lazy="auto"):
        _ = xt.zeros(1)  # the environment has been asked
        before = len(thin_closed)
        yield
    gc.collect()
    assert len(thin_closed) == before


def tensor(shape: Any = LARGE) -> xt.Tensor:
    """Return a tensor with distinct elements."""
    return xt.asarray(np.arange(np.prod(shape), dtype=float).reshape(shape), copy=True)


def leaf(size: int) -> xt.Tensor:
    """Return ones that require a gradient."""
    w = xt.ones(size)
    w.requires_grad = True
    return w


def is_thin(x: xt.Tensor) -> bool:
    return type(x._content) is np.ndarray


# ---- items are values, all else are views


@pytest.mark.parametrize("shape", [(6,), (3, 4), LARGE])
def test_an_integer_for_each_axis_selects_a_value(shape: tuple[int, ...]) -> None:
    """As NumPy's scalars are values: a later write to the array does not change them, nor one to them the array."""
    x, key = tensor(shape), (2,) * len(shape)
    item, view = x[key], x[(*key, ...)]
    x[key] = -1.0
    assert (float(item), float(view)) == (float(tensor(shape)[key]), -1.0)
    view += 10.0
    item += 100.0
    assert float(x[key]) == 9.0 and float(item) == float(tensor(shape)[key]) + 100.0


def test_items_can_be_swapped() -> None:
    """x[0], x[1] = x[1], x[0] swaps, as in NumPy."""
    x = tensor((4,))
    x[0], x[1] = x[1], x[0]
    assert x.tolist() == [1.0, 0.0, 2.0, 3.0]


@pytest.mark.parametrize("lazy", ["auto", "always", "never"])
def test_items_of_pending_values_are_values(lazy: Any) -> None:
    """An item of what is not computed yet keeps what the value was, whatever is written later."""
    with xt.options(lazy=lazy):
        x = tensor()
        y = x * 2.0
        item, rows = y[1, 2], y[1, 2:4]
        x[1, 2] = 0.0
        y += 1.0
        y[1, 2] = 7.0
        assert float(item) == 404.0 and rows.tolist() == [7.0, 407.0]


def test_items_have_gradients() -> None:
    """A value selected by integers is differentiated like a view of it."""
    grad = xt.grad(lambda x: x[1, 2] ** 2 + x[0, 0])(tensor((2, 3)))
    assert grad.tolist() == [[1.0, 0.0, 0.0], [0.0, 0.0, 10.0]]


@pytest.mark.parametrize(
    "key", [0, -1, slice(1, 3), (slice(None), 1), (..., 2), None, (1, None), (0, slice(None, None, -1)), ...]
)
def test_views_share_memory_both_ways(key: Any) -> None:
    """A write to a view is seen in the array and the other way round, through views of views too."""
    x, n = tensor((4, 5)), np.arange(20.0).reshape(4, 5)
    view, shown = x[key], n[key]
    assert is_thin(view) and (view.shape, view.strides) == (shown.shape, shown.strides)
    view[...] = view * 2.0 + 1.0
    shown[...] = shown * 2.0 + 1.0
    np.testing.assert_array_equal(x.numpy(), n)
    x += 1.0
    np.testing.assert_array_equal(view.numpy(), shown + 1.0)
    assert view.owner is x.owner


def test_views_of_tensors_that_kernels_made() -> None:
    """What a kernel computed becomes a thin face at the first view, over the same memory."""
    x = tensor() * 2.0 + 1.0
    x.evaluate()
    row = x[3]
    row[...] = 0.0
    assert is_thin(x) and float(xt.sum(xt.abs(x[3]))) == 0.0 and row.owner is x.owner


@pytest.mark.parametrize("name", ["real", "imag", "conj", "positive", "round", "abs"])
@pytest.mark.parametrize("dtype", [np.float64, np.complex128, np.int64])
def test_results_of_small_calls_are_their_own(name: str, dtype: Any) -> None:
    """A write to a result never shows in the operand."""
    x = xt.asarray(np.arange(1, 6, dtype=dtype), copy=True)
    result = getattr(xt, name)(x)
    result[0] = 3
    assert x[0] == 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_functions_that_may_return_their_operand(dtype: Any) -> None:
    """Those of the library's functions that give back an operand or a view of it share no memory unseen."""
    x = xt.asarray(np.eye(3, dtype=dtype), copy=True)
    results = [
        xt.linalg.matrix_power(x, 1), xt.einsum("ij->ji", x), xt.einsum("ii->i", x), xt.take(x, xt.arange(3), axis=0),
        xt.concat([x]), xt.stack([x]), xt.clip(x, 0.0, 1.0), xt.sort(x), xt.where(x > 5, x, x), xt.tile(x, (1, 1)),
        xt.repeat(x, 1, axis=0), xt.roll(x, 0), xt.astype(x, x.dtype),
    ]  # fmt: skip
    before = x.tolist()
    for result in results:
        shared = result.owner is x.owner
        result[...] = 5.0
        assert shared or x.tolist() == before
        x[...] = xt.asarray(before, dtype=dtype)


# ---- writes


VALUES: list[Any] = [
    2,
    2.7,
    True,
    np.float32(1.5),
    np.int64(300),
    [1, 2, 3],
    xt.asarray([7.0, 8.0, 9.0]),
    xt.asarray(3),
]


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int64", "float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("value", VALUES, ids=repr)
@pytest.mark.parametrize("key", [1, slice(0, 3), ..., (slice(1, 4),)], ids=repr)
def test_assignments_are_numpys(dtype: str, value: Any, key: Any) -> None:
    """Numbers and arrays are assigned as NumPy assigns them, or refused with an error of the same class."""
    x, n = xt.zeros(3 if key is ... else 4, dtype=xt.__dict__[dtype]), np.zeros(3 if key is ... else 4, dtype)
    _ = x[:]  # somebody has asked for the owner: writes go the thin way
    given = value.numpy() if isinstance(value, xt.Tensor) else np.asarray(value) if isinstance(value, list) else value
    wants: type[Exception] | None = None
    try:
        n[key] = given
    except (TypeError, ValueError, OverflowError) as error:
        wants = type(error)
    if wants is None:
        x[key] = value
    else:
        with pytest.raises((wants, ValueError)):
            x[key] = value
    np.testing.assert_array_equal(x.numpy(), n)


@pytest.mark.parametrize(
    ("dtype", "value", "error"),
    [
        ("float64", 1j, TypeError),
        ("int8", 300, OverflowError),
        ("int64", float("nan"), ValueError),
        ("float64", "a", TypeError),
    ],
)
def test_refused_assignments_change_nothing(dtype: str, value: Any, error: type[Exception]) -> None:
    x = xt.ones(4, dtype=xt.__dict__[dtype])
    _ = x[:]
    with pytest.raises(error, match="setitem"):
        x[1:3] = value
    assert x.tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("kind", [xt.asarray, np.asarray, list, tuple])
@pytest.mark.parametrize("key", [[False, True, True], [0, 2], ([0, 2],), (slice(1), [1, 2])], ids=repr)
def test_arrays_are_assigned_where_arrays_select(kind: Any, key: Any) -> None:
    """Tensors, NumPy's arrays and lists alike, whichever of them the key has, too."""
    for make in (xt.asarray, np.asarray):
        n = np.zeros((2, 3) if len(key) == 2 and type(key) is tuple else 3)
        x = xt.asarray(n, copy=True)
        at = tuple([make(one) if type(one) is list else one for one in (key if type(key) is tuple else (key,))])
        x[at if type(key) is tuple else at[0]] = kind([3.0, 4.0])
        n[key] = [3.0, 4.0]
        np.testing.assert_array_equal(x.numpy(), n)


def test_overflow_does_not_warn() -> None:
    """A value that a smaller float cannot hold becomes infinite without a warning."""
    x = xt.ones(3, dtype=xt.float32)
    _ = x[:]
    x[0] = 1e300
    x[1:] = xt.asarray([1e300, -1e300])
    x *= 2.0
    assert x.tolist() == [np.inf, np.inf, -np.inf]


@pytest.mark.parametrize("shift", [-1, 1, 2])
def test_overlapping_assignments(shift: int) -> None:
    """A value that overlaps its target is read before it is overwritten."""
    x, n = tensor((8,)), np.arange(8.0)
    there, here = (slice(shift, None), slice(None, -shift)) if shift > 0 else (slice(None, shift), slice(-shift, None))
    x[there] = x[here]
    n[there] = n[here]
    x[::-1] += 2 * x[::-1][:: (1 if shift > 0 else 1)]
    n[::-1] += 2 * n[::-1]
    x[there] -= x[here]
    n[there] -= n[here]
    assert x.tolist() == n.tolist()


def test_every_write_is_counted() -> None:
    """`version` counts writes through the tensor and through its views, whichever way they go."""
    x = tensor((5,))
    assert x.version == 0
    x[0] = 1.0
    row = x[1:]
    row += 1.0
    row[...] = 3.0
    x -= x
    assert x.version == row.version == 4


def test_read_only_views() -> None:
    """What NumPy does not write to is refused by name, whichever way a write goes."""
    x = xt.broadcast_to(xt.ones(1), (3,))
    with pytest.raises(ValueError, match="setitem: the target must be writable"):
        x[0] = 1.0
    with pytest.raises(ValueError, match="add: the target must be writable"):
        x += 1.0


# ---- who waits for the memory


def test_a_recorded_reader_closes_the_way_until_it_is_served() -> None:
    """A write through a thin view lets a recorded reader read first; later writes find no guard."""
    x = tensor()
    row = x[3]
    pending = x * 2.0
    assert type(x.owner.guard) is Guard and pending.is_pending
    row[0] = -1.0
    assert not pending.is_pending and float(pending[3, 0]) == 1200.0 and x.owner.guard is None
    row[1] = -2.0
    assert float(x[3, 1]) == -2.0


def test_a_dead_reader_costs_one_write() -> None:
    """A reader that nobody holds any more is forgotten, and not computed."""
    x = tensor()
    pending: Any = x * 2.0
    node = weakref.ref(pending._content)
    del pending
    gc.collect()
    _ = x[:]
    x[0, 0] = 1.0
    assert node() is None and x.owner.guard is None


def test_saved_values_survive_writes_through_thin_views() -> None:
    """What a gradient kept is copied before a view of it is written."""
    constant, w = tensor((4,)), leaf(4)
    view = constant[1:3]
    loss = xt.sum(w * constant)
    view[...] = 100.0
    constant[0] = 50.0
    loss.backward()
    assert w.grad is not None and w.grad.tolist() == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize("size", [4, 40_000])
def test_saved_values_survive_outside_writes(size: int) -> None:
    """What a gradient keeps of memory that others can write to is copied at once."""
    n = np.arange(size, dtype=float)
    x, w = xt.asarray(n), leaf(size)
    loss = xt.sum(w * x)
    n[:] = -1.0
    loss.backward()
    assert w.grad is not None and w.grad[:4].tolist() == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize("size", [4, 40_000])
def test_saved_values_survive_a_later_export(size: int) -> None:
    """Who exports memory that a gradient has kept gets it after that is copied."""
    constant, w = tensor((size,)), leaf(size)
    loss = xt.sum(w * constant)
    constant.numpy()[:] = -1.0
    loss.backward()
    assert w.grad is not None and w.grad[:4].tolist() == [0.0, 1.0, 2.0, 3.0]


def test_histories_of_writes_count_for_tensors_without_a_step() -> None:
    """A view made before a differentiable write sees its gradient, though it has none of its own."""
    b, w = xt.zeros(4), leaf(2)
    c = b[:]
    c[1:3] = w
    xt.sum(b * b).backward()
    assert w.grad is not None and w.grad.tolist() == [2.0, 2.0]


def test_memory_that_was_exported_is_read_at_once() -> None:
    """What reads memory that NumPy holds is computed before the call returns."""
    x = tensor()
    n = x.numpy()
    doubled = x * 2.0
    n[...] = 0.0
    assert float(doubled[0, 1]) == 2.0 and float(x[0, 1]) == 0.0


def test_detached_views_take_no_gradient() -> None:
    """What is written through a detached tensor is a constant, also through views of it."""
    x = xt.zeros(4)
    constant = x.detach()[1:]
    constant[...] = leaf(3) * 2.0
    assert x.tolist() == [0.0, 2.0, 2.0, 2.0] and not x.requires_grad


def test_pickles_and_copies_of_thin_views() -> None:
    """A view leaves as what it shows."""
    view = tensor((4, 5))[1:3, ::2]
    for copied in (pickle.loads(pickle.dumps(view)), pickle.loads(pickle.dumps(view, protocol=5)), view.copy()):
        assert copied.tolist() == view.tolist() and copied.owner is not view.owner


# ---- the guard


def test_who_joins_while_a_guard_is_let_go_of_is_served() -> None:
    """A reader that is published between the barrier's last look and the end of the guard reads the old bytes."""
    x = tensor()
    _ = x[0]
    late: list[xt.Tensor] = []
    serve = executor._serve

    def slow(guard: Guard | None) -> None:
        serve(guard)
        if not late:
            late.append(x * 3.0)

    first = x * 2.0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(executor, "_serve", slow)
        x[0, 1] = -1.0
    assert float(first[0, 1]) == 2.0 and float(late[0][0, 1]) == 3.0 and float(x[0, 1]) == -1.0


def test_an_interrupt_loses_no_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where serving who came late is interrupted the write does not happen, and everybody still waits."""
    x = tensor()
    _ = x[0]
    first = x * 2.0
    serve, calls = executor._serve, [0]

    def interrupted(guard: Guard | None) -> None:
        calls[0] += 1
        if calls[0] == 2:
            raise KeyboardInterrupt
        serve(guard)

    monkeypatch.setattr(executor, "_serve", interrupted)
    kept = x * 4.0
    with pytest.raises(KeyboardInterrupt):
        x[0, 1] = -1.0
    monkeypatch.setattr(executor, "_serve", serve)
    assert float(x[0, 1]) == 1.0
    x[0, 1] = -1.0
    assert (float(first[0, 1]), float(kept[0, 1]), float(x[0, 1])) == (2.0, 4.0, -1.0)


def test_readers_join_a_guard_that_is_still_there() -> None:
    """Who finds that a guard was let go of joins the next one."""

    class Forgetful(Storage):
        __slots__ = ("asked",)

        def guarded(self) -> Guard:
            guard = super().guarded()
            self.asked = getattr(self, "asked", 0) + 1
            if self.asked == 1:
                self.guard = None  # as a write in another thread does
            return guard

    owner = Forgetful(xt.zeros(1).device, 8)
    owner.read_by(weakref.ref(owner_of_nothing))
    assert owner.asked == 2 and owner.guard is not None and len(owner.guard.readers) == 1


def owner_of_nothing() -> None:
    """Something that can be referred to weakly."""


def race(*work: Callable[[], None], seconds: float = 0.5) -> None:
    """Let functions run again and again side by side; raise what one of them raises."""
    stop, failures = threading.Event(), []

    def repeat(one: Callable[[], None]) -> None:
        try:
            while not stop.is_set():
                one()
        except BaseException as failure:
            failures.append(failure)
            stop.set()

    threads = [threading.Thread(target=repeat, args=(one,)) for one in work]
    for thread in threads:
        thread.start()
    stop.wait(seconds)
    stop.set()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def test_writes_beside_recording_and_exporting_threads() -> None:
    """Rows are only ever written as a whole, by one thread; whoever reads sees no mixture of two rounds."""
    x = xt.zeros(LARGE)
    row = x[7]
    turn = [0.0]

    def write() -> None:
        turn[0] += 1.0
        row[...] = turn[0]

    def record() -> None:
        result = x + 1.0
        values = result[7].numpy().copy()
        assert values.min() >= 1.0 and values.max() <= turn[0] + 1.0

    def export() -> None:
        assert x.numpy()[7].max() <= turn[0]

    race(write, record, export)


def test_first_views_in_many_threads_have_one_owner() -> None:
    """Threads that ask for the owner of fresh memory at once get the same one."""
    for _ in range(50):
        x = tensor((16,))
        found: list[Any] = []
        ready = threading.Barrier(4)

        def look(x: xt.Tensor = x, found: list[Any] = found, ready: threading.Barrier = ready) -> None:
            ready.wait()
            found.append((x[1:].owner, x.owner, x.blob.owner))

        threads = [threading.Thread(target=look) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert {one for owners in found for one in owners} == {x.owner}


def test_finalizers_may_use_tensors() -> None:
    """A finalizer that reads and writes thin faces, called while another write is served, does no harm."""
    x = tensor()
    log: list[float] = []

    class Last:
        def __del__(self) -> None:
            x[5, 5] = float(x[5, 5]) + 1.0
            log.append(float(x[5, 5]))

    for _ in range(5):
        pending = x * 2.0
        garbage: list[Any] = [Last()]
        garbage.append(garbage)
        del garbage
        gc.collect()
        x[5, 6] = 1.0
        assert pending.shape == LARGE
    assert log == [1006.0, 1007.0, 1008.0, 1009.0, 1010.0]


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the system has no timers")
def test_signals_at_any_point_of_small_writes() -> None:
    """A signal handler that writes to the same memory finds it whole, and loses no write of ours."""
    x = xt.zeros(64)
    row, counts = x[1:3], [0]

    def handle(*_: object) -> None:
        counts[0] += 1
        row[0] = counts[0]
        row[1] += 1.0
        signal.setitimer(signal.ITIMER_REAL, 0.001)  # only now: handlers do not interrupt each other

    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.001)
    try:
        while counts[0] < 50:
            x[5:9] += 1.0
            x[10] = x[5]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
    assert row.tolist() == [float(counts[0])] * 2 and len(set(x[5:9].tolist())) == 1


# ---- how far a call goes


def entered(call: Callable[[], Any]) -> list[str]:
    """Return the functions of the package that a call enters, and no finalizers of what others have left."""
    found = []

    def note(frame: Any, event: str, argument: object) -> None:
        code = frame.f_code
        if (
            event == "call"
            and "xtensor" in code.co_filename
            and code.co_name[0] != "<"
            and "tests" not in code.co_filename
        ):
            found.append(code.co_name)

    gc.collect()
    gc.disable()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
        gc.enable()
    return found


@pytest.mark.parametrize(
    ("name", "call", "most"),
    [
        ("x * 2 + y", lambda x, y: x * 2 + y, 2),
        ("x[1:]", lambda x, y: x[1:], 1),
        ("x[1]", lambda x, y: x[1], 1),
        ("x[1] = 2.0", lambda x, y: x.__setitem__(1, 2.0), 3),
        ("x += y", lambda x, y: x.__iadd__(y), 2),
        ("x[x > y]", lambda x, y: x[x > y], 4),
        ("float(x[1])", lambda x, y: float(x[1]), 2),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_functions_that_thin_calls_enter(name: str, call: Callable[..., Any], most: int) -> None:
    """A thin call enters one function of the package, or a few."""
    x, y = tensor((64,)), tensor((64,))
    _ = x[:]
    call(x, y)
    assert len(entered(lambda: call(x, y))) <= most


def test_functions_that_other_ways_enter() -> None:
    """What a call costs that is recorded, or captured, is a bounded number of functions."""
    x, y = tensor(), tensor()
    for _ in range(3):
        (x * 2 + y).evaluate()
    names = min([entered(lambda: x * 2 + y) for _ in range(3)], key=len)  # memory may be returned in one of them
    assert len(names) <= 42, names  # 38; more where gradients or a device were used in this process
    x, y = tensor((300, 200)), tensor((300, 200))  # too few elements to be shared among threads, which is asked too
    fused = xt.fuse(lambda x, y: x * 2 + y)
    POOL.trim()  # a block that others have left, larger than the result, is looked for anew in each call
    for _ in range(40):
        fused(x, y)
    wait_for_better_code()  # an interpreted schedule enters more
    names = min([entered(lambda: fused(x, y)) for _ in range(3)], key=len)
    assert len(names) <= 50, names


# ---- values without axes

SPELLED = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.divide, "and_": np.bitwise_and,
    "or_": np.bitwise_or, "xor": np.bitwise_xor, "lshift": np.left_shift, "rshift": np.right_shift, "lt": np.less,
    "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
}  # fmt: skip
KINDS = ["bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)), "float32", "float64"]
KINDS += ["complex64", "complex128"]
NUMBERS: list[Any] = [2, -1, 300, 2.5, 1e300, 1j, True, 0.0, -0.0, np.float64(2.5), np.float32(0.1), np.uint8(200)]
NUMBERS += [np.int64(-3), np.bool_(True), np.complex64(1j)]


def odd_value(rng: np.random.Generator, dtype: str) -> Any:
    """Return an array without axes, mostly at the edge of what a dtype holds."""
    kind = np.dtype(dtype).kind
    if kind == "b":
        return np.array(rng.integers(0, 2), bool)
    if kind in "iu":
        info = np.iinfo(dtype)
        return np.array(
            [info.min, info.max, 0, 1, 3, rng.integers(info.min, info.max, dtype=dtype)][rng.integers(6)], dtype
        )
    parts = rng.choice([0.0, -0.0, np.inf, -np.inf, np.nan, 1e38, 1e-40, rng.normal(), rng.normal() * 1e20], 2)
    return np.array(parts[0] + 1j * parts[1] if kind == "c" else parts[0], dtype)


@pytest.mark.parametrize("name", SPELLED)
def test_values_without_axes_are_computed_as_arrays_are(name: str) -> None:
    """NumPy's scalars, which compute them, give the bits, dtypes and refusals of its arrays; also in place."""
    rng = np.random.default_rng(0)
    for _ in range(500):
        a = odd_value(rng, rng.choice(KINDS))
        b: Any = odd_value(rng, rng.choice(KINDS)) if rng.random() < 0.7 else NUMBERS[rng.integers(len(NUMBERS))]
        x, y = xt.asarray(a, copy=True), xt.asarray(b, copy=True) if isinstance(b, np.ndarray) else b
        with np.errstate(all="ignore"):
            try:
                wanted = SPELLED[name](a[None], b[None] if isinstance(b, np.ndarray) else b)[0]
            except (TypeError, OverflowError, ValueError) as error:
                with pytest.raises((type(error), TypeError)):
                    getattr(operator, name)(x, y)
                continue
        result = getattr(operator, name)(x, y)
        assert (result.dtype, result.shape) == (wanted.dtype, ())
        np.testing.assert_array_equal(result.numpy(), wanted, strict=True)
        if name in ("add", "mul", "truediv", "xor") and np.can_cast(wanted.dtype, a.dtype, "same_kind"):
            x = getattr(operator, "i" + name)(x, y)
            with np.errstate(all="ignore"):
                np.testing.assert_array_equal(x.numpy(), wanted.astype(a.dtype), strict=True)


@pytest.mark.parametrize("name", SPELLED)
def test_numbers_before_values_without_axes(name: str) -> None:
    """The same with a Python number as the first operand."""
    rng = np.random.default_rng(1)
    for _ in range(300):
        a, b = NUMBERS[rng.integers(len(NUMBERS))], odd_value(rng, rng.choice(KINDS))
        x = xt.asarray(b, copy=True)
        with np.errstate(all="ignore"):
            try:
                wanted = SPELLED[name](a, b[None])[0]
            except (TypeError, OverflowError, ValueError) as error:
                with pytest.raises((type(error), TypeError)):
                    getattr(operator, name)(a, x)
                continue
        np.testing.assert_array_equal(getattr(operator, name)(a, x).numpy(), wanted, strict=True)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: xt.floor_divide(x, xt.inf),
        lambda x: x // xt.asarray(-xt.inf),
        lambda x: xt.expm1(xt.astype(x, xt.complex128)),
        lambda x: xt.log1p(xt.astype(x, xt.complex64)),
        lambda x: xt.tanh(xt.inf + 1j * x),
        lambda x: xt.sqrt(2),
        lambda x: xt.maximum(1, 2.5),
        lambda x: xt.floor_divide(2, 1.5),
    ],
)
def test_results_without_axes_are_values(call: Callable[..., Any]) -> None:
    """`+=` makes another one, as of NumPy's scalars, also where the library's function is repaired."""
    result = before = call(xt.asarray(0.0))
    wanted = result.item()
    result += 1
    assert before.item() == wanted and result.item() == wanted + 1


def test_functions_of_numbers_alone_are_numpys() -> None:
    """Dtypes, values and refusals are those of arrays without axes, beside which Python numbers are weak."""
    for a in (*NUMBERS, np.float32(1.5), np.int8(3), 1 << 63, 1 << 70):
        for ours, theirs in ((xt.sqrt, np.sqrt), (xt.abs, np.abs), (xt.negative, np.negative), (xt.sin, np.sin)):
            agree(lambda a, f=ours: f(a), lambda a, f=theirs: f(np.asarray(a)), a)
        for b in NUMBERS if abs(a) < 1 << 62 else ():
            for ours, theirs in ((xt.maximum, np.maximum), (xt.pow, np.power), (xt.less, np.less)):
                agree(lambda a, f=ours, b=b: f(a, b), lambda a, f=theirs, b=b: f(a, b), a)


@pytest.mark.parametrize("dtype", ["bool", "int8", "int64", "float16", "float32", "float64", "complex64"])
def test_small_arrays_of_numpys_are_computed_at_once(dtype: str) -> None:
    """Without a tensor among the operands, too, as where another library calls a function with its arrays: results
    are those of tensors, and share no memory with the arrays.
    """
    n = np.asarray([[1, 0, 2]], dtype=dtype)
    x = xt.asarray(n, copy=True)
    with np.errstate(all="ignore"):
        for name in ("abs", "positive", "exp", "sign", "isnan", "square", "floor", "conj"):
            compared(getattr(xt, name), n, x)
        for name in ("add", "pow", "maximum", "less", "divide", "logical_and", "atan2", "floor_divide", "equal"):
            function = getattr(xt, name)
            for call in (
                lambda a, f=function: f(a, a),
                lambda a, f=function: f(a, a[0, 2]),
                lambda a, f=function: f(a.T, a),
                lambda a, f=function: f(2, a),
                lambda a, f=function: f(a, 2.5),
                lambda a, f=function: f(np.asarray(2.0), a),
                lambda a, f=function: f(a[0, 0, ...], 3),
            ):
                compared(call, n, x)
    rows: Any = np.arange(1000.0)
    summed = xt.add(rows[:, None], rows)  # large, and recorded: the arrays may be written before it is computed
    rows[...] = 0.0
    assert float(summed[2, 3]) == 5.0


def compared(call: Callable[[Any], Any], n: Any, x: xt.Tensor) -> None:
    """Compare a function of NumPy's array with that of an equal tensor: values and dtypes, or that both refuse it."""
    try:
        wanted = call(x)
    except (TypeError, ValueError) as error:
        with pytest.raises(type(error)):
            call(n)
        return
    found = call(n)
    np.testing.assert_array_equal(found.numpy(), wanted.numpy(), strict=True)
    assert not np.shares_memory(found.numpy(), n)


def agree(ours: Callable[[Any], Any], theirs: Callable[[Any], Any], x: Any) -> None:
    """Compare two functions of a number: what they return, or that both refuse it."""
    with np.errstate(all="ignore"):
        try:
            wanted = theirs(x)
        except (TypeError, OverflowError, ValueError):
            wanted = None
    if wanted is None or np.asarray(wanted).dtype.kind == "O":
        with pytest.raises((TypeError, OverflowError, ValueError)):
            ours(x)
        return
    np.testing.assert_array_equal(ours(x).numpy(), np.asarray(wanted), strict=True)


@pytest.mark.parametrize("dtype", ["float32", "complex64", "int64"])
def test_a_row_assigned_to_a_column_that_it_crosses(dtype: str) -> None:
    """NumPy itself reads the crossing after it has written it."""
    for row, column in ((17, 59), (59, 17), (0, 69), (3, 3)):
        a = np.arange(4900).reshape(70, 70).astype(dtype)
        right = a.copy()
        right[:, column] = a[row].copy()
        x = xt.asarray(a, copy=True)
        x[:, column] = x[row]
        np.testing.assert_array_equal(np.asarray(x), right)
        x = xt.asarray(a, copy=True)
        x[:, column] = x[row, :][None]
        np.testing.assert_array_equal(np.asarray(x), right)
        x = xt.asarray(a, copy=True)
        x[:35, column] = x[row, ::2]
        right = a.copy()
        right[:35, column] = a[row, ::2].copy()
        np.testing.assert_array_equal(np.asarray(x), right)


# ---- larger operands


@pytest.mark.parametrize("size", [64, 200_000])
def test_a_function_of_the_library_is_called_once(size: int) -> None:
    """Also where its result is a view of memory of its own; one that shows an operand is copied."""
    x, calls = xt.asarray(np.arange(float(size)), copy=True), []

    def shifted(xp: Any, a: Any) -> Any:
        calls.append(a)
        return xp.reshape(a + 1, (-1, 1))

    assert np.array_equal(on(x, "sort", shifted), np.arange(1.0, size + 1)[:, None])
    assert len(calls) == 1
    shown = on(x, "sort", lambda xp, a: a[::2])
    x[0] = 5.0
    assert float(shown[0]) == 0.0


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "int32", "uint8"])
@pytest.mark.parametrize("exponent", [2, 2.0])
def test_squares_are_numpys(dtype: str, exponent: float) -> None:
    """A power of two costs as little as a product, so it is computed at once where that is; the bits are the same."""
    numbers = np.random.default_rng(3).integers(-90, 90, 400 * 1024 // np.dtype(dtype).itemsize).astype(dtype)
    x = xt.asarray(numbers, copy=True)
    is_cheap = type(exponent) is int or numbers.dtype.kind in "fc"
    for square in (x**exponent, xt.pow(x, exponent)):
        assert not (is_cheap and square.is_pending)
        expected = numbers**exponent
        assert square.dtype == expected.dtype
        assert np.array_equal(square, expected)
    with xt.options(lazy="always"):
        recorded: Any = x**exponent
        assert (recorded.value.op.name == "square") == is_cheap


def test_squares_have_gradients() -> None:
    """The derivative is that of the power."""
    x = xt.asarray([1.0, -3.0])
    assert np.array_equal(xt.grad(lambda x: xt.sum(x**2))(x), [2.0, -6.0])
    assert np.array_equal(xt.grad(lambda x: xt.sum(xt.grad(lambda y: xt.sum(y**2))(x) * x))(x), [4.0, -12.0])


@pytest.mark.parametrize("lazy", ["auto", "always"])
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [-1, 0, (0, 1), ()])
@pytest.mark.parametrize("turned", [False, True])
def test_norms_along_axes(axis: Any, keepdims: bool, lazy: Any, turned: bool) -> None:
    """Norms of rows, packed in memory or not, and of other axes are the roots of sums of squares."""
    numbers = np.random.default_rng(4).standard_normal((300, 40), dtype=np.float32)
    numbers = numbers.T if turned else numbers
    wanted = np.sqrt(np.sum(numbers.astype(np.float64) ** 2, axis=axis, keepdims=keepdims))
    with xt.options(lazy=lazy):
        found = xt.linalg.vector_norm(xt.asarray(numbers), axis=axis, keepdims=keepdims)
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=2e-6)


def test_room_is_made_for_functions_of_elements_alone() -> None:
    """A function of whole rows has a result of another shape than its operands."""
    rows = np.ones((200, 2000))
    assert CPU.compute(np.vecdot, rows, rows).shape == (200,)


def test_a_mask_without_axes_selects_as_numpys() -> None:
    """As an axis of one element, or of none."""
    x, numbers = xt.asarray([1.0, 2.0]), np.asarray([1.0, 2.0])
    for truth in (True, False):
        mask = np.asarray(truth)
        assert np.array_equal(x[xt.asarray(mask)], numbers[mask])
        assert x[xt.asarray(mask)].shape == numbers[mask].shape


def test_numbers_of_numpys_among_tensors() -> None:
    """NumPy's integers in keys, its arrays as keys, and its scalars before values give what NumPy gives."""
    numbers = np.arange(1.0, 13.0).reshape(3, 4)
    x = xt.asarray(numbers, copy=True)
    for key in (
        np.int64(1),
        (slice(None), np.int32(2)),
        (np.uint8(1), np.int64(2)),
        np.asarray([2, 0]),
        (0, np.asarray([1, 1])),
    ):
        found = x[key]
        assert np.array_equal(found, numbers[key]) and found.shape == numbers[key].shape
    x[:, np.int64(1)] = 5.0
    x[np.int64(2)][0] = 7.0
    numbers[:, 1], numbers[2, 0] = 5.0, 7.0
    assert np.array_equal(x, numbers)
    for scalar in (np.float64(2.5), np.float32(2.5), np.int8(3), np.bool_(True), np.complex64(1j)):
        for call in (operator.add, operator.mul, operator.eq, operator.truediv):
            for value, expected in ((x[1, 1], numbers[1, 1]), (x, numbers)):
                found, wanted = call(scalar, value), call(scalar, expected)
                assert found.dtype == wanted.dtype and np.array_equal(found, wanted)
                found, wanted = call(value, scalar), call(expected, scalar)
                assert found.dtype == wanted.dtype and np.array_equal(found, wanted)
    with pytest.raises(IndexError):
        x[np.asarray([1.5])]
    with pytest.raises(IndexError):
        x[np.int64(9)]


def test_a_scalar_of_numpys_before_a_value_is_not_kept() -> None:
    """It comes as an array, which may be written later."""
    place, x = np.asarray(2.0), xt.asarray(3.0)
    found = place * x
    place[()] = 9.0
    assert float(found) == 6.0


@pytest.mark.parametrize("dtype", ["f8", "f4", "i4", "u1", "?", "c8", ">f8", "f2"])
def test_arrays_of_numpys_beside_tensors(dtype: str) -> None:
    """A small array of NumPy's is an operand as it is, on both sides, whatever its layout; nothing is shared."""
    made: Any = np.asarray(np.arange(12.0).reshape(3, 4) % 5).astype(dtype)
    for array in (made, made[::-1], made.T.copy().T, made[:, :1], made[0], np.asarray(made[0, 0]), made[:0]):
        for other in (xt.asarray(made).copy(), xt.asarray(made, copy=True)[0], xt.asarray(2.0)):
            for call in (np.add, np.multiply, np.maximum, np.equal, np.less_equal):
                same = xt.asarray(array, copy=True)
                for one, two in ((array, other), (other, array)):
                    ours = getattr(xt, call.__name__)
                    try:
                        expected = ours(*[same if x is array else x for x in (one, two)])
                    except (TypeError, ValueError) as error:
                        with pytest.raises(type(error)):
                            call(one, two)
                        with pytest.raises(type(error)):
                            ours(one, two)
                        continue
                    for found in (call(one, two), ours(one, two)):
                        assert type(found) is xt.Tensor
                        assert found.dtype == expected.dtype
                        np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))
    x, array = xt.zeros((3, 4)), np.ones((3, 4))
    found, picked, product = x + array, xt.where(x == 0, array, x), array.T @ (x + 1)
    array[...] = 7
    assert bool(xt.all(found == 1)) and bool(xt.all(picked == 1)) and bool(xt.all(product == 3))


def test_strange_arrays_beside_tensors() -> None:
    """Texts, dates, objects and masked arrays are refused, or are asked themselves, as large ones are."""
    x = xt.ones(3)
    others: list[Any] = [np.array(["a", "b", "c"]), np.array([1, 2, None]), np.array(["2020"] * 3, "M8[Y]")]
    for array in others:
        with pytest.raises(TypeError):
            x + array
        with pytest.raises(TypeError):
            array + x
        with pytest.raises(TypeError):
            xt.where(x > 0, array, x)
        with pytest.raises(TypeError):
            xt.matmul(x, array)
    with pytest.raises(TypeError, match="masked_array|MaskedArray"):
        xt.add(x, cast(Any, np.ma).masked_array(np.ones(3), [0, 1, 0]))


TOUCHES: dict[str, Callable[[Any], Any]] = {
    "binary": lambda y: y * 2.0,
    "number first": lambda y: 2.0 - y,
    "second operand": lambda y: xt.ones(3) + y,
    "unary": lambda y: -y,
    "function": lambda y: xt.exp(y),
    "reduction": lambda y: xt.sum(y),
    "in place": lambda y: y.__iadd__(1.0),
}


@pytest.mark.parametrize("kind", [TBlob, Node])
@pytest.mark.parametrize("name", TOUCHES)
def test_what_kernels_have_made_is_a_thin_face_once_it_is_touched(name: str, kind: type) -> None:
    """So that plain code after a fused function costs what plain code costs."""

    with xt.options(lazy="always"):
        y = xt.asarray([1.0, 2.0, 3.0], copy=True) * 2 + 1
        (y if kind is TBlob else y * 2).evaluate()
    assert type(y._content) is kind
    plain = xt.asarray([3.0, 5.0, 7.0], copy=True)
    held = y._content if kind is TBlob else y._content.blob
    found, expected = TOUCHES[name](y), TOUCHES[name](plain)
    assert type(y._content) is np.ndarray
    assert found.tolist() == expected.tolist()
    assert y.tolist() == plain.tolist()
    assert y.blob is held  # over the same memory


def test_what_has_a_gradient_or_is_pending_is_no_thin_face_when_it_is_touched() -> None:
    x = xt.asarray([1.0, 2.0], requires_grad=True)
    y = x * 3
    _ = y * 2.0, -y, xt.sum(y), 1.0 + y
    assert type(y._content) is not np.ndarray
    xt.sum(y * y).backward()
    assert x.grad is not None
    assert x.grad.tolist() == [18.0, 36.0]
    with xt.options(lazy="always"):
        pending = xt.asarray([1.0, 2.0]) + 1
        _ = pending * 2.0, -pending, 1.0 + pending
        assert pending.is_pending


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "int64", "bool"])
@pytest.mark.parametrize("mode", ["auto", "always", "gradient"])
def test_a_few_values_are_assigned_to_a_row(mode: str, dtype: str) -> None:
    """As NumPy assigns its scalars: computed values, pending ones and numbers, in tuples and lists."""
    a = np.asarray([0.5, 1.25, -3.0, 7.0]).astype(dtype)
    with xt.options(
        lazy="always" if mode == "always" else "auto", gradients="always" if mode == "gradient" else "asked"
    ):
        for make in (
            lambda x: (x[0], x[1], x[2]),
            lambda x: [x[3], 2, x[0] * x[1]],
            lambda x: (x[0] + x[1], 1.5, True),
            lambda x: [x[2]],
            lambda x: (x[1],) * 17,
            lambda x: [(x[0], x[1], x[2])] * 2,
        ):
            x, value = xt.asarray(a, copy=True), make(a)
            shape = np.shape(value)[-1] if np.shape(value)[-1] != 1 else 3
            right, mine = np.zeros((4, shape), dtype), xt.zeros((4, shape), dtype=getattr(xt, dtype))
            for key in (1, slice(2, 4), (3, ...)) if np.ndim(value) == 1 else (slice(1, 3),):
                right[key] = value
                mine[key] = make(x)
            np.testing.assert_array_equal(np.asarray(mine), right)


def test_a_row_of_values_that_does_not_fit() -> None:
    x, row = xt.asarray([1.0, 2.0]), xt.zeros((2, 3))
    for value, error in (((x[0], x[1]), ValueError), ((x[0], 1j, x[1]), TypeError)):
        with pytest.raises(error):
            row[0] = value
    with np.errstate(all="raise"):  # an overflow is as silent as in other assignments
        single = xt.zeros((2, 2), dtype=xt.float32)
        single[0] = (xt.asarray(1e300), 1e300)
        np.testing.assert_array_equal(np.asarray(single), [[np.inf, np.inf], [0.0, 0.0]])
    for value in ((xt.asarray(1 + 1j), 1.0), (xt.asarray(1 + 0j), x[0]), (x[0], 1j)):
        with pytest.raises(TypeError, match="real"):
            single[1] = value
    np.testing.assert_array_equal(np.asarray(row), np.zeros((2, 3)))


def test_the_gradient_of_a_row_of_values() -> None:
    def function(x: Any) -> Any:
        row = xt.zeros((2, 2))
        row[1] = (x[0] * x[1], x[1])
        return xt.sum(row * row)

    found = xt.grad(function)(xt.asarray([3.0, 2.0]))
    np.testing.assert_allclose(np.asarray(found), [2 * 6 * 2.0, 2 * 6 * 3.0 + 2 * 2.0])


@pytest.mark.parametrize("shift", [-2, -1, 0, 1, 2])
@pytest.mark.parametrize("step", [1, 2, -1])
def test_numpy_arrays_are_assigned_as_numpy_assigns_them(shift: int, step: int) -> None:
    """Also those that share memory with the target, of which a copy is made first where NumPy makes one."""
    for _ in range(3):
        for target, source in ((slice(3, 7), slice(3 + shift, 7 + shift, step)), (slice(7, 3, -1), slice(3, 7))):
            memory, right = np.arange(10.0), np.arange(10.0)
            x, given = xt.asarray(memory, copy=False), memory[source]
            if given.shape != right[target].shape:
                continue
            x[target] = given
            right[target] = right[source].copy()
            np.testing.assert_array_equal(memory, right)
            np.testing.assert_array_equal(np.asarray(x), right)
    whole = xt.zeros((3, 4))
    for key, value in ((1, np.arange(4.0)), ((slice(None), 2), np.ones(3)), ((slice(1, 3), slice(0, 2)), np.eye(2))):
        whole[key] = value
        np.testing.assert_array_equal(np.asarray(whole[key]), value)
    for wrong in (np.ones(5), np.ones((2, 4))):
        with pytest.raises(ValueError):
            whole[1] = wrong


@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "float64", "complex64", "complex128", "int8", "int64", "uint16"]
)
def test_squares(dtype: str) -> None:
    """The operator with an exponent 2 has the function's result, for arrays and values, whoever computes it."""
    a = np.asarray([0.0, -0.0, 1.5, -3.0, np.inf, np.nan, 300.0] if dtype[0] in "fc" else [0, 1, 5, 100, 3]).astype(
        dtype
    )
    x = xt.asarray(a, copy=True)
    with np.errstate(all="ignore"):
        for _ in range(3):
            for found, expected in ((x**2, a * a), (x[2] ** 2, a[2] * a[2]), (x[:0] ** 2, a[:0] * a[:0])):
                np.testing.assert_array_equal(np.asarray(found), expected)
                assert found.dtype == expected.dtype
            np.testing.assert_array_equal(np.asarray(2 ** xt.asarray([1.0, 2.0])), [2.0, 4.0])
            np.testing.assert_array_equal(np.asarray(xt.asarray([7, 9]) // 2), [3, 4])

"""Methods in machine code do what those in Python do: results, errors, counts of writes and of references."""

from __future__ import annotations

import contextvars
import gc
import inspect
import operator
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest

import xtensor as xt
from xtensor.base.options import converting
from xtensor.calls import thin
from xtensor.codegen.cpu.compile import host
from xtensor.tensor.face import Tensor
from xtensor.tensor.scalars import is_value

pytestmark = pytest.mark.skipif(host() is None, reason="there is no compiler here")

DTYPES = "?bBhHiIlLqQfdFD"
INTEGERS = ("and_", "or_", "xor", "lshift", "rshift")
BINARY = ("add", "sub", "mul", "truediv", "mod", *INTEGERS)
COMPARED = ("lt", "le", "gt", "ge", "eq", "ne")
UPDATES = ("iadd", "isub", "imul", "itruediv", "imod", "iand", "ior", "ixor", "ilshift", "irshift")
NUMBERS = (
    True,
    3,
    -1,
    2**40,
    2**70,
    0.0,
    -0.0,
    2.5,
    float("nan"),
    float("inf"),
    1j,
    np.float32(2.5),
    np.int8(7),
    "x",
    None,
)


def outcome(call: Callable[[], Any]) -> tuple[Any, ...]:
    """Return what came of a call: a result with its bytes, or an error with its words."""
    try:
        result = call()
    except Exception as error:
        return type(error), str(error)
    if isinstance(result, Tensor):
        version, array = result.version, result.host()
        return "tensor", array.dtype, array.shape, array.tobytes(), is_value(result), version
    return type(result), repr(result)


def same(calls: Iterable[Callable[[], Any]]) -> None:
    """Check that calls come to the same in machine code and in Python."""
    calls = list(calls)
    found = [outcome(call) for call in calls]
    with thin.in_python():
        for call, expected in zip(calls, found, strict=True):
            assert outcome(call) == expected, call


def tensors(char: str) -> Iterator[Any]:
    """Yield a tensor of a dtype with axes, of other axes, with strides, without elements, without axes, and a value."""
    for array in (np.arange(6).reshape(2, 3), np.arange(3), np.arange(24)[::4], np.zeros((0, 3)), np.asarray(2)):
        yield xt.asarray(array.astype(char))
    yield xt.asarray(np.arange(1, 7).astype(char))[3]


def test_there_is_machine_code() -> None:
    """Where there is a compiler, tensors get the methods."""
    assert thin.exchange()
    assert type(Tensor.__getitem__) is type(str.join)


@pytest.mark.parametrize("name", [*BINARY, *COMPARED, "pow", "floordiv", "matmul"])
@pytest.mark.parametrize("char", DTYPES)
def test_numbers_and_tensors(name: str, char: str) -> None:
    """Operators of tensors and Python numbers, on either side."""
    call = getattr(operator, name)
    pairs = list(product(tensors(char), (*NUMBERS, *tensors(char), *tensors("d"))))
    same([partial(call, x, y) for x, y in pairs])
    same([partial(call, y, x) for x, y in pairs])


@pytest.mark.parametrize("char", DTYPES)
def test_pairs_of_dtypes(char: str) -> None:
    """Sums, products and comparisons of tensors of any two dtypes."""
    calls: list[Callable[[], Any]] = []
    for other, call in product(DTYPES, (operator.add, operator.mul, operator.lt)):
        x, y = xt.asarray(np.arange(6).astype(char)), xt.asarray(np.arange(6).astype(other))
        calls += [partial(call, x, y), partial(call, x[2], y[3])]
    same(calls)


@pytest.mark.parametrize("x", [4.0, 0.0, -0.0, xt.inf, -xt.inf, xt.nan, -1.0])
def test_powers_of_values(x: float) -> None:
    """They have the standard's special values, and those of numbers that are not special take no reduction."""
    called: list[str] = []

    def note(frame: Any, event: str, function: Any) -> None:
        if event == "c_call":
            called.append(function.__name__)

    half = xt.asarray([0.5, 2.5])
    value, one, other = xt.asarray([x])[0], half[0], half[1]
    with thin.in_python():
        expected = [float((xt.asarray([x, x]) ** y)[0]) for y in (0.5, 2.5, 0.5)]
        sys.setprofile(note)
        try:
            found = [value**0.5, value**other]
        finally:
            sys.setprofile(None)
        found.append(value**one)
    assert [repr(float(y)) for y in found] == [repr(y) for y in expected]
    assert x == -xt.inf or xt.isnan(value) or not {"reduce", "any"} & set(called)


@pytest.mark.parametrize("name", UPDATES)
@pytest.mark.parametrize("char", DTYPES)
def test_updates(name: str, char: str) -> None:
    """Operators that write, into arrays and views, and beside values; the writes are counted."""

    def updated(x: Any, y: Any) -> Any:
        x = xt.asarray(np.asarray(x), copy=True) if not is_value(x) else +x
        view = x[1:] if x.ndim == 1 and x.shape[0] == 6 else x
        result = getattr(operator, name)(view, y)
        assert (result is view) == (not is_value(view))
        return (x, result)[is_value(view)]

    pairs = product(tensors(char), (*NUMBERS, *tensors(char), xt.asarray(2.5)))
    same([partial(updated, x, y) for x, y in pairs])


@pytest.mark.parametrize("name", ["neg", "pos", "abs", "invert", "float", "int", "bool", "complex", "index"])
@pytest.mark.parametrize("char", DTYPES)
def test_one_operand(name: str, char: str) -> None:
    """Operators of one operand, and Python's numbers."""
    call = getattr(operator, name, None) or {"float": float, "int": int, "bool": bool, "complex": complex}[name]
    odd = [xt.asarray(float(text), dtype=np.dtype(char)) for text in ("nan", "inf") if char in "fd"]
    same([partial(call, x) for x in (*tensors(char), xt.asarray(np.asarray([2]).astype(char)), *odd)])


class Place:
    """An integer as an index that changes who is asked, before NumPy has read anything."""

    def __init__(self, x: Any) -> None:
        self.x = x

    def __index__(self) -> int:
        self.x.resize((3,))
        return 1


INDICES = [[0, 2, -1], [True, False, True], [[0, 1]], [5], [-9], [], [1.0], 2, [True, False, True, True, False, True]]
SINGLE = [xt.asarray(one, dtype=dtype) for one in (1, -1, 99) for dtype in ("int64", "int8")]
ROWS, COLUMNS, PLACES, PLACE = xt.asarray([0, 2]), xt.asarray([True, False]), xt.asarray([[1], [0]]), xt.sum(SINGLE[0])
KEYS = (
    *[xt.asarray(one) for one in INDICES],
    *SINGLE,
    *[xt.sum(one) for one in SINGLE],
    *[xt.asarray(one) for one in (True, False, 1.0)],
    *((PLACE, 0), (PLACE, PLACE), (PLACE,), (PLACE, ...), (slice(None), PLACE), (PLACE, None), (xt.sum(SINGLE[4]), 0)),
    *((SINGLE[0], 0), (SINGLE[0],), (SINGLE[0], SINGLE[0]), (SINGLE[0], slice(None)), (SINGLE[0], PLACE)),
    *((ROWS,), (ROWS, 1), (ROWS, PLACE), (ROWS, slice(1)), (..., COLUMNS), (ROWS, COLUMNS), (ROWS, PLACES - 1)),
    *((slice(None), None, PLACES), (ROWS, None, 0), (ROWS, True), (ROWS, [0, 1]), (ROWS, 1.5), (ROWS, ROWS, ROWS)),
    *(1, -1, 99, True, slice(1, None), slice(None, None, -2), None, ..., (), (1,), (0, 1), (1, ..., None), (9, 9)),
    *((slice(None), 1), (None, 0, slice(1)), [0, 1], (0, [1]), np.int64(1), "x", 1.5, (0, True), (..., ...)),
)


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_getitem(key: Any) -> None:
    """Views and values; views share memory, and their owner."""
    indexed = (xt.asarray(np.arange(6.0)), xt.asarray(np.arange(12).reshape(3, 4))[:, ::2], xt.asarray(1.5))
    same([partial(operator.getitem, x, key) for x in indexed])
    x = xt.zeros((3, 3))
    if isinstance(key, slice):
        view = x[key]
        view += 1.0
        assert view.owner is x.owner
        assert float(xt.sum(x)) == float(xt.sum(view)) > 0.0
        assert x.version == 1


@pytest.mark.parametrize("key", KEYS, ids=repr)
@pytest.mark.parametrize("char", "?Bldf")
def test_setitem(key: Any, char: str) -> None:
    """Assignments of numbers and tensors."""

    def assigned(start: Any, value: Any) -> Any:
        x = xt.asarray(start, copy=True)
        assert not x.version  # who asks has writes counted
        x[key] = value
        return x

    values = (
        *NUMBERS,
        xt.asarray(np.arange(3).astype(char)),
        xt.asarray(np.arange(4.0)),
        xt.asarray(np.asarray(2, char)),
    )
    starts = (np.arange(6).astype(char), np.arange(12).reshape(3, 4).astype(char), np.asarray(1, char))
    same([partial(assigned, start, value) for start, value in product(starts, values)])


@pytest.mark.parametrize("step", [-2, -1, 1, 2])
@pytest.mark.parametrize("other", [-2, -1, 1, 2])
def test_assignments_that_overlap(step: int, other: int) -> None:
    """What is assigned is read before it is written, whatever its strides."""
    for start, begin in product(range(0, 12, 3), range(0, 12, 3)):
        expected = np.arange(40.0)
        x = xt.asarray(expected, copy=True)
        to, of = slice(start + 14, start + 14 + 5 * step, step), slice(begin + 14, begin + 14 + 5 * other, other)
        expected[to] = expected[of].copy()
        x[to] = x[of]
        assert np.array_equal(np.asarray(x), expected)


def test_an_index_that_lies_in_what_it_indexes() -> None:
    """What is assigned by itself is what NumPy assigns."""
    expected = np.asarray([3, 2, 0, 1])
    x = xt.asarray(expected, copy=True)
    x[x] = 2
    expected[expected] = 2
    assert np.array_equal(np.asarray(x), expected)
    assert np.array_equal(np.asarray(x[x]), expected[expected])


def test_a_computed_place_enters_no_python() -> None:
    """An element is read and written at an integer that was computed; what it is read from may be the same array."""
    x, expected = xt.asarray([3, 2, 0, 1], copy=True), np.asarray([3, 2, 0, 1])
    entered: list[str] = []

    def program(x: Any) -> Any:
        place = x[1]
        x[place] = x[x[place]]
        x[x[3]] = 7
        return x[place]

    def note(frame: Any, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code is not program.__code__:
            entered.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        found = program(x)
    finally:
        sys.setprofile(None)
    assert (int(found), entered) == (int(program(expected)), [])
    assert np.array_equal(x.numpy(), expected)


@pytest.mark.parametrize("name", ["mul", "add", "lt", "pow", "and_"])
def test_other_objects_of_numpys_before_tensors(name: str) -> None:
    """What is no number of a tensor's dtypes goes the long way, as arrays with axes and functions with options do."""
    call = getattr(operator, name)
    before = (np.array(2.5), np.array([1, 2, 3]), np.float16(2), np.longdouble(2), np.array("x"), np.datetime64("2020"))
    for x in (xt.asarray([1.0, 2.0, 3.0]), xt.asarray([3, 2, 1]), xt.asarray(2.0), xt.ones((2, 1))):
        same([partial(call, other, x) for other in before])
        same([partial(np.multiply, 2.0, x, dtype="f"), partial(np.add.reduce, x)])


@pytest.fixture
def nothing_converted() -> Iterator[None]:
    """Nobody has asked NumPy's functions for arrays yet, nor has anybody afterwards whom this test asked for it."""
    before, converting[0] = converting[0], 0
    yield
    converting[0] = before


@pytest.mark.parametrize("name", [*BINARY, *COMPARED])
@pytest.mark.usefixtures("nothing_converted")
def test_numpys_numbers_before_tensors_enter_no_python(name: str) -> None:
    """NumPy asks tensors what its function makes of its own number and a tensor: the operator with both exchanged."""
    call, native, entered = getattr(operator, name), np.arange(1, 7), list[str]()
    x = xt.asarray(native)

    def note(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            entered.append(frame.f_code.co_name)

    for number in (np.int64(3), np.int8(2), *([] if name in INTEGERS else [np.float64(0.3), np.float32(2)])):
        call(number, x)  # from now on it is known
        sys.setprofile(note)
        try:
            found = call(number, x)
        finally:
            sys.setprofile(None)
        expected = call(number, native)
        assert (found.dtype, entered) == (expected.dtype, [])
        assert np.array_equal(found.numpy(), expected)


@pytest.mark.usefixtures("nothing_converted")
def test_numpys_functions_convert_where_asked_for() -> None:
    """Where NumPy's functions are to make arrays, they do, in contexts, too, that outlive the option; not elsewhere."""
    x, number = xt.asarray([1.0, 2.0]), np.float64(2)
    assert type(number * x) is Tensor
    with xt.options(numpy="convert"):
        assert type(number * x) is np.ndarray
        inside = contextvars.copy_context()
    assert type(number * x) is Tensor
    assert type(inside.run(lambda: number * x)) is np.ndarray


def test_views_at_computed_places() -> None:
    """What values and slices select is a view of the array, of which writes are counted."""
    m = xt.zeros((3, 4))
    i = xt.sum(xt.asarray([1, 1]))
    row, part = m[i], m[i - 1, 1:]
    row += 1.0
    part[i] = 5.0
    m[i, i] = m[i, 0] + 6.0
    assert m.tolist() == [[0.0] * 4, [0.0, 0.0, 0.0, 5.0], [1.0, 1.0, 7.0, 1.0]]
    assert row.owner is part.owner is m.owner
    assert m.version == 3


def test_a_key_that_changes_what_it_indexes() -> None:
    """An index whose `__index__` exchanges the array reads and writes what was there."""
    x = xt.asarray(np.arange(10.0), copy=True)
    view = x[Place(x) :]
    assert view.tolist() == [*range(1, 10)]
    assert x.shape == (3,)
    y = xt.asarray(np.arange(10.0), copy=True)
    y[Place(y) : 2] = 7.0
    assert y.tolist() == [0.0, 7.0, 2.0]


def test_who_waits_is_served_before_a_write() -> None:
    """A write in machine code finds that somebody waits to read, and goes through the door."""
    x = xt.asarray(np.arange(100_000.0))
    later = x * 2.0 + 1.0
    x[3] = -1.0
    view = x[5:10]
    view += 100.0
    assert float(later[3]) == 7.0
    assert float(later[5]) == 11.0
    assert float(x[5]) == 105.0


def test_gradients_see_every_call() -> None:
    """What has a gradient is no thin face: nothing is computed past the tape."""

    def f(x: Any) -> Any:
        y = x[1:] * x[:-1] + 2.0
        y += x[2] - x[:-1]
        return xt.sum(y * -y)

    x = np.asarray([0.5, -1.0, 2.0, 3.0])
    found = np.asarray(xt.grad(f)(xt.asarray(x)))
    step = 1e-6
    for i in range(4):
        more, less = x.copy(), x.copy()
        more[i] += step
        less[i] -= step
        expected = (float(f(xt.asarray(more))) - float(f(xt.asarray(less)))) / (2 * step)
        assert found[i] == pytest.approx(expected, rel=1e-6)


def test_all_is_recorded_where_asked_for() -> None:
    """Where every call is to be recorded, machine code lets all pass."""
    with xt.options(lazy="always"):
        x = xt.asarray(np.arange(4.0), copy=True) + 1.0
        assert x.is_pending
        y = x[1:] * 2.0
        assert y.is_pending
    assert np.array_equal(np.asarray(y), [4.0, 6.0, 8.0])


def test_subclasses_and_strangers_go_through_the_door() -> None:
    """A subclass is no thin face, and a stranger's own operator is tried."""

    class Stranger:
        def __radd__(self, other: Any) -> str:
            return "mine"

    class Other(Tensor):
        __slots__ = ()

    x = xt.asarray([1.0, 2.0])
    assert x + Stranger() == "mine"
    one = Other()
    one._content, one._owner, one._blob, one._step = x._content, None, None, None
    same([lambda: one[0], lambda: x + one])


def calls_of_all_kinds() -> Callable[[], None]:
    """Return a function that enters every method, with results and with errors, and keeps nothing."""
    x, z = xt.asarray(np.arange(1.0, 7.0)), xt.asarray(2.5)
    k, m = xt.asarray(np.arange(1, 7)), xt.asarray(np.arange(12.0).reshape(3, 4))

    def work() -> None:
        _ = x + x, x * 2.5, 3 - k, 0.0 * x, z * z, z + 1, k[1] << 2, -x, abs(x), ~k, x < 2.0, x[1] == z
        _ = x[1:], x[2], x[None, ::2], float(z), int(z), bool(z), x.shape
        _ = x.sum(), m.max(axis=0), m.min(1), m.reshape(4, 3), m.reshape((-1,)), m.T.reshape(12), m.ravel(), m.T.ravel()
        _ = m.copy(), m.transpose(), k.astype(float), k.astype(xt.int8, copy=False), x.mean(), x.argmax(), k.any(axis=0)
        _ = x[k[0], None], x[k[1:3] - 2,], m[k[0], k[1]], m[:, k[:1]], m[k[0]], m[k[:1], 1]
        m[k[0], k[1]], m[k[:1], 0], m[k[0]] = 2.0, 3.0, m[0]
        x[1:3] = x[:2]
        x[0], x[1:] = 2.0, 1.0
        y = x[2]
        y += 1.0
        view = x[1:]
        view *= 1.0
        for odd in (lambda: m.sum(9), lambda: m.reshape(5), lambda: m.astype("no dtype"), lambda: x.mean(axs=1)):
            with pytest.raises(Exception, match="."):
                odd()  # type: ignore[no-untyped-call]
        for wrong in (lambda: m[k[5], 0], lambda: m[k[:1], 1.5], lambda: m[k, 0]):
            with pytest.raises(IndexError, match="."):
                wrong()
        for wrong in (lambda: x + "a", lambda: x[99], lambda: x + xt.zeros(4), lambda: x[:2] + k[:3], lambda: k << 1.5):
            with pytest.raises(Exception, match="."):
                wrong()  # type: ignore[no-untyped-call]

    return work


def test_references_are_given_back() -> None:
    """Calls leave no object behind, and take none from others."""
    work = calls_of_all_kinds()
    shared = (None, True, ..., 2.5, np.dtype(float), np.dtype(int), Tensor, np.ndarray, thin.LONG_WAY)
    for _ in range(300):
        work()
    gc.collect()
    before, blocks = [sys.getrefcount(one) for one in shared], sys.getallocatedblocks()
    for _ in range(1000):
        work()
    gc.collect()
    assert max(abs(a - b) for a, b in zip(before, map(sys.getrefcount, shared), strict=True)) < 100
    assert sys.getallocatedblocks() - blocks < 500


REDUCED = ("sum", "prod", "mean", "std", "var", "min", "max", "any", "all", "argmax", "argmin")
GIVEN: tuple[tuple[tuple[Any, ...], dict[str, Any]], ...] = (
    *[((), {}), ((0,), {}), ((1,), {}), ((-1,), {}), ((5,), {}), ((None,), {}), ((True,), {}), (((0, 1),), {})],
    *[((), {"axis": one}) for one in (0, -1, 7, None, (0, 1), 1.5, True, np.int64(0))],
    *[
        ((), {"keepdims": True}),
        ((0,), {"keepdims": True}),
        ((), {"keepdims": 1}),
        ((), {"axes": 0}),
        ((0, 1, 2, 3), {}),
    ],
    ((xt.asarray(0),), {}),
)
SHAPES = (
    *((12,), (-1,), (3, 4), ((4, 3),), (2, -1), ((-1, 2),), (-2,), (3, -4), (-1, -1), (5,), ((),), (), (None,)),
    *(
        ([3, 4],),
        (True,),
        (12.0,),
        (1, 12, 1),
        (2**70,),
        (np.int64(12),),
        (xt.asarray(12),),
        ((3, 4), 1),
        (xt.asarray([3, 4]),),
    ),
)
KINDS = (
    *DTYPES,
    float,
    int,
    bool,
    complex,
    np.float16,
    np.dtype(">f8"),
    "float32",
    None,
    object,
    str,
    np.float64,
    [],
    3,
)


def rooms() -> list[Any]:
    """Return arrays that lie in memory in all ways, empty and large ones too."""
    m = xt.asarray(np.arange(12.0).reshape(3, 4) % 7)
    views = [m, m.T, m[:, ::2], m[::-1], m[0], m[0, ::-2], m[1, 2], m[1, 2, ...], m[:0], m[..., None], xt.asarray(2.5)]
    others = [xt.asarray(np.arange(12) % 5), xt.asarray(np.arange(12) > 5), xt.asarray([1 + 2j, 3.0]), xt.zeros((0, 3))]
    return [*views, *others, xt.broadcast_to(m[0], (3, 4)), xt.ones(70_000), xt.asarray([np.nan, 1.0])]


def test_methods_of_arrays() -> None:
    """Reductions, copies, views and casts give what they give in Python, whatever they are given."""
    same([partial(getattr(x, name), *args, **given) for x in rooms() for name in REDUCED for args, given in GIVEN])
    same([partial(x.reshape, *shape) for x in rooms() for shape in SHAPES])
    same([partial(x.reshape, (-1,), **given) for x in rooms() for given in ({"copy": True}, {"order": "F"})])
    names = ("f4", "<f8", "float32", "int", "uint8", "|b1", ">f8", "f16", "U3", "nothing")
    same([partial(x.astype, one) for x in rooms() for one in (*KINDS, *names)])
    same([partial(x.astype, *one) for x in rooms() for one in ((), (float, True), (float, "K"))])
    same([partial(x.astype, float, copy=copy) for x in rooms() for copy in (True, False)])
    orders = ((), ("C",), ("F",), ("K",), (1,))
    same([partial(getattr(x, name), *one) for x in rooms() for name in ("copy", "flatten", "ravel") for one in orders])
    same(
        [
            partial(x.transpose, *axes)
            for x in rooms()
            for axes in ((), (1, 0), ((1, 0),), (None,), (0,), (0, 0), ("x",))
        ]
    )


def test_methods_that_share_memory() -> None:
    """What is a view in Python is one in machine code, with one owner; what is a copy is none."""
    for x in [
        xt.asarray(np.arange(12.0).reshape(3, 4), copy=True),
        xt.asarray(np.arange(12.0).reshape(3, 4), copy=True).T,
    ]:
        shown = [x.ravel(), x.transpose(), x.reshape(-1), x.reshape(4, 3), x.reshape((12,)), x.flatten(), x.copy()]
        with thin.in_python():
            known = [x.ravel(), x.transpose(), x.reshape(-1), x.reshape(4, 3), x.reshape((12,)), x.flatten(), x.copy()]
        for ours, theirs in zip(shown, known, strict=True):
            assert (ours.owner is x.owner) == (theirs.owner is x.owner)
            assert ours.strides == theirs.strides
            assert np.shares_memory(ours.host(), x.host()) == np.shares_memory(theirs.host(), x.host())


def test_threads() -> None:
    """Threads that use the methods at once get what one alone gets."""
    large = np.arange(20_000.0)
    failures: list[Any] = []

    def work() -> None:
        for i in range(200):
            x = xt.asarray(large, copy=True)
            y = x[1:] - x[:-1] + float(i)
            y[3] = 2.0
            if not (float(y[0]) == 1.0 + i and float(y[3]) == 2.0):
                failures.append(i)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not failures


def test_methods_are_shown_as_methods() -> None:
    """Help and signatures are those of the methods in Python."""

    def parameters(name: str) -> list[tuple[str, Any]]:
        return [(one.name, one.default) for one in inspect.signature(getattr(Tensor, name)).parameters.values()]

    names = [door.name for door in thin._doors]
    shown = [(parameters(name), getattr(Tensor, name).__doc__ or None) for name in names]
    with thin.in_python():
        assert shown == [(parameters(name), getattr(Tensor, name).__doc__ or None) for name in names]


def test_counted_calls_lead_to_machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Methods in Python count their calls and are exchanged, once."""
    asked: list[bool] = []

    def exchanged() -> None:
        asked.append(True)
        setattr(Home, "double", two)  # noqa: B010 - as it is exchanged

    monkeypatch.setattr(thin, "exchange", exchanged)
    monkeypatch.setattr(thin, "THIN_CALLS", 10)
    monkeypatch.setattr(thin, "_calls", iter(range(1, 1000)))

    class Home:
        pass

    def two(self: Any, x: int) -> int:
        return 2 * x

    known = len(thin._doors)
    try:
        thin.add_door(thin.Door(Home, "double", two, "binary"))
        with xt.options(engine="interpret"):
            assert [Home().double(n) for n in range(15)] == [2 * n for n in range(15)]  # type: ignore[attr-defined]
        assert not asked
        assert [Home().double(n) for n in range(30)] == [2 * n for n in range(30)]  # type: ignore[attr-defined]
    finally:
        del thin._doors[known:]
    assert asked == [True]


@pytest.mark.parametrize("why", ["no lock", "another layout", "no compiler"])
def test_methods_stay_pythons(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where machine code cannot be had, or objects are laid out in another way, methods are Python's."""
    monkeypatch.setattr(thin, "_methods", [])
    if why == "no lock":
        known = sysconfig.get_config_var
        monkeypatch.setattr(sysconfig, "get_config_var", lambda name: 1 if "GIL" in name else known(name))
    elif why == "another layout":
        known_words = thin._words
        monkeypatch.setattr(thin, "_words", lambda one, nbytes: [0, *known_words(one, nbytes)])
    else:
        monkeypatch.setattr(thin, "can_generate", lambda: False)
    before = Tensor.__getitem__
    try:
        assert not thin.exchange()
        assert type(Tensor.__getitem__) is type(outcome)
        assert float((xt.asarray([1.0, 2.0]) + 1.0)[1]) == 3.0
    finally:
        monkeypatch.undo()
        assert thin.exchange()
    assert type(Tensor.__getitem__) is type(before)


LATE = """
import builtins, sys
import numpy as np, xtensor as xt
from xtensor.calls import thin

class Late:
    def __init__(self):
        self.x = xt.asarray(np.arange(5.0))

    def __del__(self, err=sys.__stderr__):
        y = self.x + self.x
        y[1:] = 2.0
        err.write(f"{float(y[0] * 3.0 + y[1])} ")

assert thin.exchange()
circle = Late()
circle.itself = circle
builtins.late = Late()
sys.modules["late"] = Late()
"""


def test_tensors_are_used_until_the_process_ends() -> None:
    """Finalizers that run when modules have lost their names find the methods still there."""
    found = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, timeout=60, check=False)
    assert found.returncode == 0
    assert found.stderr.split() == ["2.0"] * 3


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 3, 4), (1, 2, 3, 4)])
@pytest.mark.parametrize("options", [{}, {"lazy": "always"}, {"lazy": "always", "engine": "direct"}])
def test_the_transpose_reverses_all_axes(shape: tuple[int, ...], options: Any) -> None:
    """As NumPy's, a view: the standard suggests an error unless there are two axes."""
    native = np.arange(float(np.prod(shape))).reshape(shape)
    x = xt.asarray(native, copy=True)
    with xt.options(**options):
        for y, right in ((x, native), (x + 1.0, native + 1.0)):
            found = y.T
            assert found.shape == right.T.shape
            np.testing.assert_array_equal(found.numpy(), right.T)
    if shape:
        x.T[...] = -1.0
        assert bool(xt.all(x == -1.0))
        slope = xt.grad(lambda x: xt.sum(x.T * weights))
        weights = xt.asarray(np.random.default_rng(0).uniform(size=shape[::-1]))
        np.testing.assert_array_equal(slope(x).numpy(), weights.numpy().T)
        fused = xt.fuse(lambda x: x.T * 2.0)
        for _ in range(3):
            np.testing.assert_array_equal(fused(xt.asarray(native)).numpy(), native.T * 2.0)

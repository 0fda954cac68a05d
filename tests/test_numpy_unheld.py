"""What no tensor holds (texts, objects, records, dates) is NumPy's own under NumPy's names, and meets tensors there."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy
import pytest

import xtensor as xt
import xtensor.numpy as np

# t: texts; o: objects; r: records; d: dates; x: numbers; e: an element.
CALLS = """
    np.array(['a', 'b', 'a']); np.asarray(['a', 'b']); np.array([b'a']); np.array([None, 1]); np.array([1, 'a']);
    np.array([1, 'a'], dtype=object); np.array([[1, 2], [3]], dtype=object); np.array(5, dtype=object);
    np.array({'a': 1}); np.array([x, x[:1]], dtype=object); np.array([e, 'a'], dtype=object); np.array([max, None]);
    np.array([Fraction(1, 2)]); np.array(['1', '2']).astype(float); np.array(['1', '2'], dtype=float);
    np.array([(1.0, 2)], dtype=[('a', float), ('b', int)]); np.array(['2020-01-01'], dtype='datetime64[D]');
    np.empty(3, dtype=object); np.zeros(3, dtype=object); np.zeros(3, dtype='U5'); np.full(3, 'a'); np.full(3, None);
    np.ones(2, dtype='S3'); np.zeros(2, dtype=[('a', float), ('b', int)]); np.ndarray((2,), dtype=object);
    np.arange('2020-01-01', '2020-01-05', dtype='datetime64[D]'); np.fromiter(['a'], dtype='U1');
    np.frombuffer(b'ab', dtype='S1'); np.zeros_like(t); np.empty_like(t, dtype=float); np.asarray(o); np.copy(t);
    t == 'a'; t != t; x[t == 'a']; x[o == 'a']; t[x > 1.0]; t[x > 9.0]; o[np.argsort(x)]; t[np.array([0, 1])];
    r['a'] * 2.0; np.sum(r['a']); np.mean(r['b'] + x[:2]); r[x[:2] > 1.0]; d[1:] - d[:-1]; d > d[0]; x[d > d[0]];
    np.unique(t); np.unique(t, return_counts=True); np.unique(t, return_inverse=True); np.sort(t); np.argsort(t);
    np.unique(t, return_index=True)[1]; np.concatenate([t, t]); np.concatenate([t, x]); np.column_stack([t, x]);
    np.where(x > 1.0, 'a', 'b'); np.where(t == 'a', x, 0.0); np.where(x > 1.0, t, 'z'); np.nonzero(t == 'a');
    np.isin(t, ['a']); np.isin(['a'], t); np.searchsorted(['a', 'c'], 'b'); np.append(t, 'c'); np.tile(['a'], 2);
    np.repeat(['a', 'b'], 2); np.hstack([['a'], ['b']]); np.vstack([['a'], ['b']]); np.stack([['a'], ['b']]);
    np.delete(t, 0); np.insert(t, 0, 'b'); np.flip(t); np.roll(t, 1); np.take(t, 1); np.split(t, 3); np.meshgrid(t, x);
    np.reshape(t, (3, 1)); np.ravel([['a'], ['b']]); np.transpose([['a', 'b']]); np.expand_dims(t, 0);
    np.squeeze([['a']]); np.atleast_2d(t); np.broadcast_to('a', (2,)); np.swapaxes([['a', 'b']], 0, 1);
    np.count_nonzero(t == 'a'); np.array_equal(t, t); np.array_equal(t, x); np.shape(t); np.size(t); np.ndim(['a']);
    np.sum(o[:2]); np.max(o[:2]); np.mean(o[:2]); np.prod(o[:2]); np.cumsum(o[:2]); np.dot(o[:2], x[:2]); np.any(o);
    np.argmax(o[:2]); np.all(o); np.sum([Fraction(1, 2), Fraction(1, 3)]);
    o[:2] + 1; o[:2] * x[:2]; x[:2] * o[:2]; x[:2] + o[:2]; e * o[:2]; o[:2] < x[:2]; x[:2] >= o[:2]; x == t; t == x;
    np.add(o[:2], x[:2]); np.multiply(x[:2], o[:2]); np.add(t, 'c', dtype=object); np.power(o[:2], 2);
    np.add(x[:2], 1, dtype=object); np.add.reduce(o[:2]); np.maximum(x[:2], o[:2]); np.negative(o[:2]); np.abs(o[:2]);
    x.astype(object); x.astype(str); x.astype('U4'); x.astype('S3'); np.astype(x, object); e.astype(object);
    np.vectorize(str)(x); np.apply_along_axis(len, 0, t); np.lexsort((t, x));
    np.loadtxt(['a 1', 'b 2'], dtype=str); np.genfromtxt(['a,1', 'b,2'], delimiter=',', dtype=None, encoding=None);
    np.array2string(t); np.char.upper(t); np.strings.find(t, 'a'); np.frompyfunc(lambda one: one + 1, 1, 1)(x);
    np.busday_count('2020-01-01', '2020-02-01'); np.isnat(d); np.datetime_as_string(d); np.issubdtype(t.dtype, np.str_);
    isinstance(t, np.ndarray); isinstance(o, np.ndarray); np.isscalar('a'); np.result_type(t, x);
    np.random.RandomState(1).choice(['a', 'b'], 3); np.random.RandomState(1).permutation(t);
    np.random.default_rng(1).choice(t, 2); np.random.default_rng(1).permutation(['a', 'b']);
    np.recarray((2,), [('a', int)]).shape; np.add.accumulate(o[:2]); np.add.outer(x, o[:2]); np.equal.outer(t, t);
    np.where(x > 1.0, x, None); np.where(x > 1.0, None, x); np.where(t == 'a', None, 'b'); np.any([None, 1]);
    np.all([None, 1]); np.any(None); np.all({}); np.any(['', 'a']); x[:2] @ o[:2]; o[:2] @ x[:2]
"""
NAMES = [one.strip() for one in CALLS.replace("\n", " ").split(";")]

Call = Callable[..., Any]


def arguments(np: Any) -> dict[str, Any]:
    return {
        "np": np,
        "Fraction": Fraction,
        "t": np.array(["b", "a", "c"]),
        "o": np.array([2, 1.5, "a"], dtype=object),
        "r": np.array([(1.0, 2), (3.0, 4)], dtype=[("a", float), ("b", int)]),
        "d": np.array(["2020-01-01", "NaT", "2020-01-03"], dtype="datetime64[D]"),
        "x": np.array([3.0, 0.5, 2.0]),
        "e": np.array([3.0, 0.5, 2.0])[1],
    }


def plain(result: Any) -> Any:
    """Return a result as lists and dtypes: a tensor's as that of an array."""
    if isinstance(result, (list, tuple)):
        return [plain(one) for one in result]
    if isinstance(result, (xt.Tensor, numpy.ndarray, numpy.generic)):
        items = result.tolist()
        return (
            result.dtype,
            result.shape,
            re.sub(r"array\(|\)|\.(?=[],])", "", repr(items)) if "[" in repr(items) else items,
        )
    return result


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NAMES)
def test_what_no_tensor_holds_is_as_in_numpy(name: str) -> None:
    """Arrays of numbers are tensors, unless a method of NumPy's own arrays made them."""
    right = eval(name, arguments(numpy))
    found = eval(name, arguments(np))
    assert plain(found) == plain(right)
    for one in found if isinstance(found, (list, tuple)) else (found,):
        if name.startswith("np.") and isinstance(one, numpy.ndarray) and not name.startswith(("np.char", "np.strings")):
            assert one.dtype.kind not in "biufc" or ".astype" in name


def error_of(call: Call, *args: Any) -> type[Exception] | None:
    try:
        call(*args)
    except Exception as error:
        return type(error)
    return None


REFUSED: list[Call] = [
    lambda np: np.array(["a"], dtype=float),
    lambda np: np.exp(np.array([None])),
    lambda np: np.sin(["a"]),
    lambda np: np.sum(["a", "b"]),
    lambda np: np.mean(np.array(["a"])),
    lambda np: np.array([1.0]) + np.array(["a"]),
    lambda np: np.array([1.0]) * np.array([None]),
    lambda np: np.array([1.0]).astype("M8[D]", casting="safe"),
    lambda np: np.reshape(["a", "b"], (3,)),
    lambda np: np.zeros(2, dtype="no dtype"),
    lambda np: np.concatenate([np.array(["a"]), np.ones((2, 2))]),
    lambda np: np.linalg.inv(np.array([["a"]])),
    lambda np: np.array([[1, 2], [3]]),
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_what_numpy_refuses_is_refused(number: int) -> None:
    wanted, found = (error_of(REFUSED[number], one) for one in (numpy, np))
    assert wanted is not None and found is not None
    pythons = next(kind for kind in (TypeError, ValueError) if issubclass(wanted, kind))  # NumPy's are subclasses
    assert issubclass(found, pythons)


def test_the_standards_functions_take_numbers_alone() -> None:
    for call in (lambda: xt.asarray(["a"]), lambda: xt.zeros(3, dtype=object), lambda: xt.sum([None])):
        with pytest.raises(TypeError):
            call()  # type: ignore[no-untyped-call]


def test_written_elements_are_shared() -> None:
    o = np.zeros(3, dtype=object)
    x = np.array([1.0, 2.0, 3.0])
    o[:] = x
    o[0] = x
    assert o[0] is x and o[1:].tolist() == [2.0, 3.0]
    same = np.asarray(o)
    same[1] = "a"
    assert o[1] == "a"
    x[1:] = np.array(["5", "6"]).astype(float)
    assert x.tolist() == [1.0, 5.0, 6.0]


def test_numbers_are_drawn_once() -> None:
    ours, theirs = np.random.RandomState(3), numpy.random.RandomState(3)
    for _ in range(3):
        assert ours.choice(["a", "b", "c"], 4).tolist() == theirs.choice(["a", "b", "c"], 4).tolist()
        assert ours.rand(2).tolist() == theirs.rand(2).tolist()


def test_a_captured_function_sees_other_texts() -> None:
    labels = np.array(["a", "b", "a"])
    fused = xt.fuse(lambda x: np.sum(x * (labels == "a")))
    for wanted in (4.0, 4.0, 4.0, 6.0):
        if wanted == 6.0:
            labels[1] = "a"
        assert float(fused(np.array([1.0, 2.0, 3.0]))) == wanted


def test_a_gradient_is_not_lost() -> None:
    with pytest.raises(RuntimeError, match="gradient"):
        xt.grad(lambda x: np.sum(x * np.array([1, 2], dtype=object)))(np.array([1.0, 2.0]))


ITERATORS: dict[str, Call] = {
    "texts": lambda np: np.fromiter((one for one in "abc"), dtype="U1"),
    "objects": lambda np: np.fromiter((one for one in [1, None]), dtype=object),
    "records": lambda np: np.fromiter((one for one in [(1, 2.0)]), dtype=[("a", int), ("b", float)]),
    "rows": lambda np: np.fromiter((np.ones(2) for _ in range(3)), dtype=(float, 2)),
    "texts of elements": lambda np: np.fromiter((one for one in np.array([1.0, 2.0])), dtype="U3"),
    "counted": lambda np: np.fromiter((one for one in "abc"), dtype="U1", count=2),
}


@pytest.mark.parametrize("name", ITERATORS)
def test_an_iterator_is_read_once(name: str) -> None:
    assert plain(ITERATORS[name](np)) == plain(ITERATORS[name](numpy))


def test_an_error_of_an_iterator_is_raised() -> None:
    with pytest.raises(TypeError):
        np.fromiter((xt.asarray(["a"]) for _ in range(2)), dtype=float)


WRITING: list[Callable[[Any, Any, Any], Any]] = [
    lambda np, o, x: np.add(o, 1, out=x, casting="unsafe"),
    lambda np, o, x: np.sum(o[None], axis=0, out=x),
    lambda np, o, x: np.sum(o[None], 0, None, x),
    lambda np, o, x: np.cumsum(o, out=x),
    lambda np, o, x: np.add.accumulate(o, out=x),
    lambda np, o, x: np.take(o, [0, 1], out=x, mode="clip"),
    lambda np, o, x: np.any(o[None], axis=0, out=x),
    lambda np, o, x: np.stack(["1", "2"], out=x, casting="unsafe"),
]


@pytest.mark.parametrize("number", range(len(WRITING)))
def test_what_numpy_writes_to_is_returned(number: int) -> None:
    x, wanted = np.zeros(2), numpy.zeros(2)
    assert WRITING[number](np, np.array([2, 1.5], dtype=object), x) is x
    assert WRITING[number](numpy, numpy.array([2, 1.5], dtype=object), wanted) is wanted
    assert x.tolist() == wanted.tolist()

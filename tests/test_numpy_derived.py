"""Classes that inherit from `np.ndarray` are subclasses of NumPy's own arrays, as matrices and masked arrays are, and
functions and operators with one of these and tensors give what NumPy gives.
"""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy
import pytest

import xtensor as xt
import xtensor.numpy as np


def class_of(np: Any) -> Any:
    class Measured(np.ndarray):  # type: ignore[name-defined, misc]
        unit: str | None

        def __new__(cls, values: Any, unit: str | None = None) -> Any:
            made = np.asarray(values).view(cls)
            made.unit = unit
            return made

        def __array_finalize__(self, base: Any) -> None:
            self.unit = getattr(base, "unit", None)

        def doubled(self) -> Any:
            return self * 2.0

        def sum(self, *args: Any, **given: Any) -> Any:
            return super().sum(*args, **given)

    return Measured


Measured, Plain = class_of(np), class_of(numpy)


class Named(np.ndarray):
    """An array with a name, for pickles: which the classes above are not found for."""

    name = "named"


CALLS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "method": lambda np, x, t: x.doubled(),
    "own sum": lambda np, x, t: x.sum(),
    "array on the right": lambda np, x, t: x + t,
    "array on the left": lambda np, x, t: t - x,
    "number": lambda np, x, t: 2.0 * x,
    "element on the left": lambda np, x, t: t[1] * x,
    "comparison": lambda np, x, t: t < x,
    "function": lambda np, x, t: np.exp(x),
    "function of two": lambda np, x, t: np.maximum(t, x),
    "function of the first": lambda np, x, t: np.multiply(x, t),
    "slice": lambda np, x, t: x[1:],
    "mask": lambda np, x, t: x[t > 1.0],
    "transposed": lambda np, x, t: x.T,
    "sorted": lambda np, x, t: np.sort(x),
    "differences": lambda np, x, t: np.diff(x),
    "zeros like it": lambda np, x, t: np.zeros_like(x),
    "copy": lambda np, x, t: x.copy(),
    "deep copy": lambda np, x, t: copy.deepcopy(x),
    "copied as it is": lambda np, x, t: np.array(x, subok=True),
    "as it is": lambda np, x, t: np.asanyarray(x),
    "product of matrices": lambda np, x, t: np.reshape(t, (1, 3)) @ x.reshape(3, 1),
    "matrix times array": lambda np, x, t: x.reshape(1, 3) @ np.reshape(t, (3, 1)),
    "reshaped": lambda np, x, t: np.reshape(x, (3, 1)),
    "flat": lambda np, x, t: np.ravel(x),
    "two axes": lambda np, x, t: np.atleast_2d(x),
}
TENSORS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "asarray": lambda np, x, t: np.asarray(x),
    "array": lambda np, x, t: np.array(x),
    "view": lambda np, x, t: x.view(np.ndarray),
    "view by name": lambda np, x, t: x.view(type=np.ndarray),
    "view as integers": lambda np, x, t: x.view(np.int64, np.ndarray),
    "concatenate": lambda np, x, t: np.concatenate([x, t]),
    "where": lambda np, x, t: np.where(t > 1.0, x, t),
    "outer": lambda np, x, t: np.outer(t, x),
}


@pytest.mark.parametrize("name", CALLS)
def test_results_are_of_the_class(name: str) -> None:
    call, values = CALLS[name], [1.0, 2.0, 3.0]
    found = call(np, Measured(values, "m"), np.asarray([3.0, 2.0, 1.0]))
    right = call(numpy, Plain(values, "m"), numpy.asarray([3.0, 2.0, 1.0]))
    assert isinstance(right, Plain)
    assert type(found) is Measured and found.unit == right.unit and found.dtype == right.dtype
    numpy.testing.assert_array_equal(found, right)


@pytest.mark.parametrize("name", TENSORS)
def test_results_are_tensors(name: str) -> None:
    call, values = TENSORS[name], [1.0, 2.0, 3.0]
    found = call(np, Measured(values, "m"), np.asarray([3.0, 2.0, 1.0]))
    right = call(numpy, Plain(values, "m"), numpy.asarray([3.0, 2.0, 1.0]))
    assert type(found) is xt.Tensor and type(right) is numpy.ndarray
    numpy.testing.assert_array_equal(numpy.asarray(found), right)


def test_a_class_is_one_of_arrays() -> None:
    x = Measured([1.0, 2.0])
    assert isinstance(x, np.ndarray) and isinstance(x, numpy.ndarray) and issubclass(Measured, np.ndarray)
    assert not isinstance(np.asarray([1.0]), Measured)
    with pytest.raises(ValueError, match="output type twice"):
        x.view(np.ndarray, int)


def test_views_share_memory() -> None:
    x = np.asarray([1.0, 2.0, 3.0])
    seen = x.view(Measured)
    seen[0] = 10.0
    x[1] = 20.0
    assert x.tolist() == seen.tolist() == [10.0, 20.0, 3.0]
    back = seen.view(np.ndarray)
    back[2] = 30.0
    assert x.tolist() == [10.0, 20.0, 30.0]
    assert x.view(np.int64, Measured).dtype == np.int64


def test_writes_take_the_class() -> None:
    x, seen = np.asarray([1.0, 2.0]), Measured([3.0, 4.0])
    x += seen
    seen *= x
    assert type(x) is xt.Tensor and x.tolist() == [4.0, 6.0]
    assert type(seen) is Measured and seen.tolist() == [12.0, 24.0]
    x[:] = seen
    seen[0] = x[1]
    assert x.tolist() == [12.0, 24.0] and seen.tolist() == [24.0, 24.0]


def test_a_class_makes_arrays_itself() -> None:
    x = np.ndarray.__new__(Measured, (2, 3), dtype=np.float32)
    assert type(x) is Measured and x.shape == (2, 3) and x.dtype == np.float32
    assert type(Named((2,))) is Named
    x = pickle.loads(pickle.dumps(np.asarray([1.0, 2.0]).view(Named)))
    assert type(x) is Named and x.tolist() == [1.0, 2.0] and x.name == "named"


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 3)])
def test_tensors_are_keys(shape: tuple[int, ...]) -> None:
    """Masks, of nothing, too, and indices, alone and beside others, to read and to write."""
    n = numpy.arange(6.0)[: math.prod(shape)].reshape(shape)
    x = np.array(n).view(Measured)
    for key in (n > 1.0, (n > 1.0).any(axis=tuple(range(1, n.ndim))), numpy.zeros(0, int)):
        assert x[np.asarray(key)].shape == n[key].shape and x[np.asarray(key), ...].shape == n[key, ...].shape
        x[np.asarray(key)] = 5.0
        n[key] = 5.0
        assert type(x) is Measured and x.tolist() == n.tolist()


def test_its_elements_one_after_another() -> None:
    """Read and written by an iterator, which takes masks that are tensors."""
    x, n = Measured([[1.0, 2.0], [3.0, 4.0]]), Plain([[1.0, 2.0], [3.0, 4.0]])
    for np_, one in ((np, x), (numpy, n)):
        one.flat[np_.asarray([True, False, False, True])] = [5.0, 6.0]
        one.T.flat[2] = one.flat[np_.asarray([3])][0]
        assert list(one.flat) == [5.0, 6.0, 3.0, 6.0]
        assert np_.dot(one.flat, one.flat) == 106.0
        one.flat = [7.0, 8.0]
        assert isinstance(one, numpy.ndarray) and one.tolist() == [[7.0, 8.0], [7.0, 8.0]]


def test_a_class_wraps_results_itself() -> None:
    """In mere arrays, values, or by the base's method: what it is given can be viewed as such an array."""

    def classes(np: Any) -> list[Any]:
        class Mere(np.ndarray):  # type: ignore[name-defined, misc]
            def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
                plain = array.view(np.ndarray)
                return plain[()] if return_scalar else plain

        class Based(np.ndarray):  # type: ignore[name-defined, misc]
            def __array_wrap__(self, array: Any, *rest: Any) -> Any:
                return super().__array_wrap__(array, *rest) if array.ndim else array[()]

        class Unbound(np.ndarray):  # type: ignore[name-defined, misc]
            def __array_wrap__(self, array: Any, *rest: Any) -> Any:
                return np.ndarray.__array_wrap__(self, array, *rest) if array.ndim else array[()]

        return [Mere, Based, Unbound]

    for kind, plain in zip(classes(np), classes(numpy), strict=True):
        x, right = np.asarray([1.0, -2.0]).view(kind), numpy.asarray([1.0, -2.0]).view(plain)
        for call in (lambda x: x + 1.0, lambda x: x < 0.0, abs, lambda x: x.sum(axis=0, keepdims=True)):
            found, wanted = call(x), call(right)
            assert type(found) is (xt.Tensor if type(wanted) is numpy.ndarray else kind) and found.dtype == wanted.dtype
            numpy.testing.assert_array_equal(numpy.asarray(found), wanted)
        assert x.sum() == -1.0 and bool(np.any(x < 0.0)) and np.mean(x) == -0.5 and np.std(x) == 1.5
        assert type(np.ndarray.view(x, np.ndarray)) is xt.Tensor
        seen = x
        x += 1.0
        right += 1.0
        assert type(x) is (kind if type(right) is plain else xt.Tensor) and seen.tolist() == [2.0, -1.0]


def test_a_class_has_other_bases_and_keywords() -> None:
    class Mixed:
        def __init_subclass__(cls, *, word: str = "", **options: Any) -> None:
            super().__init_subclass__(**options)
            cls.word = word  # type: ignore[attr-defined]

        def half(self: Any) -> Any:
            return self / 2.0

    class Both(Mixed, np.ndarray, word="both"):
        pass

    class Third(Both):
        def __getitem__(self, key: Any) -> Any:
            return super().__getitem__(key) + 1.0

    x = np.asarray([1.0, 2.0]).view(Third)
    assert x.half().tolist() == [0.5, 1.0] and x[0] == 2.0 and Both.word == "both"  # type: ignore[attr-defined]


def test_unbound_methods_take_both() -> None:
    x, t = Measured([1.0, 2.0]), np.asarray([1.0, 2.0])
    for one in (x, t, numpy.asarray([1.0, 2.0])):
        assert float(np.ndarray.mean(one)) == 1.5
        assert float(np.ndarray.__getitem__(one, 1)) == 2.0
    assert np.ndarray.mean is np.ndarray.mean
    with pytest.raises(AttributeError, match="no attribute '_none'"):
        _ = np.ndarray._none


def test_a_captured_function_computes_with_it() -> None:
    x = Measured([1.0, 2.0])
    fused = xt.fuse(lambda t: np.exp(x) * 2.0 + t)
    for value in (1.0, 2.0, 3.0):
        x[0] = value
        found = fused(np.asarray([1.0, 2.0]))
        numpy.testing.assert_array_equal(numpy.asarray(found), numpy.exp([value, 2.0]) * 2.0 + [1.0, 2.0])


# M: a matrix; A: a masked array; t: a tensor; v: a row of it.
OTHERS = """
    M * M; M * t; t * M; t @ M; M @ t; M + t; t + M; 2 * M; M.T; M.I; np.linalg.inv(M); np.dot(t, M); np.dot(M, t);
    np.sum(M); np.sum(M, 0); np.mean(M, axis=1); np.exp(M); np.add(t, M); np.asarray(M); np.array(M); np.asanyarray(M);
    np.matrix([[1, 2], [3, 4]]); np.asmatrix(t); np.bmat([[t, t]]); np.multiply(M, t); np.concatenate([M, M]);
    np.vstack([M, t]); np.reshape(M, (4, 1)); np.ravel(M); np.transpose(M); np.trace(M); np.linalg.eigvals(M);
    np.linalg.solve(M, v); np.diag(M); np.where(M > 1, M, t); np.unique(M); np.allclose(M, t); np.linalg.norm(M);
    np.shape(M); np.squeeze(M); np.einsum('ij,jk', M, t); A + t; t + A; t - A; A - t; t / A; A * t[0, 0]; t[0, 0] * A;
    np.sum(A); np.mean(A); np.add(t, A); np.exp(A); np.max(A); np.sqrt(A); np.maximum(A, t); np.std(A); np.median(A);
    np.cumsum(A); np.concatenate([A, A]); np.abs(A); np.sort(A); np.where(t > 1, A, 0.0); np.round(A); np.clip(A, 1, 2);
    np.dot(A, t); np.outer(A, t); np.size(A); np.lexsort((A[0],)); np.ma.mean(A); np.ma.masked_where(t > 2, t);
    np.ma.array(t, mask=t > 2); np.ma.masked_invalid(t); A.filled(0.0); np.ma.filled(A, 0.0) * t; np.ma.is_masked(A);
    np.interp(1.5, np.ma.array([1.0, 2.0]), v)
"""


def described(result: Any) -> Any:
    """Return the class, dtype, shape and elements of a result: of tensors, and of scalars, as those of arrays."""
    kind = type(result).__name__
    if not isinstance(result, (xt.Tensor, numpy.ndarray, numpy.generic)):
        return kind.replace("bool_", "bool"), result
    plain = numpy.ma.filled(result, -9.0) if "Mask" in kind else numpy.asarray(result)
    return kind if kind in ("matrix", "MaskedArray") else "array", plain.dtype, plain.shape, plain.round(12).tolist()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [one.strip() for one in OTHERS.replace("\n", " ").split(";")])
def test_matrices_and_masked_arrays_are_numpys(name: str) -> None:
    def result(np: Any) -> Any:
        rows: Any = [[1.0, 2.0], [3.0, 4.0]]
        matrix, masked = numpy.matrix(rows), numpy.ma.masked_array(rows, [[False, True], [False, False]])
        t = np.asarray([[1.0, 2.0], [3.0, 5.0]])
        return eval(name, {"np": np, "M": matrix, "A": masked, "t": t, "v": t[0]})

    assert described(result(np)) == described(result(numpy))


def test_masked_arrays_beside_pending_tensors() -> None:
    """NumPy's masked arrays look for an attribute `_data` of their operands."""
    x, masked = np.ones(300_000) * 2.0 + 1.0, numpy.ma.masked_array(numpy.ones(300_000), numpy.arange(300_000) % 2)
    for call in (
        lambda x: x * masked,
        lambda x: masked - x,
        lambda x: np.ma.exp(x),
        lambda x: np.ma.where(x > 1.0, x, 0.0),
    ):
        found, right = call(x + 0.0), call(numpy.full(300_000, 3.0))
        assert type(found) is numpy.ma.MaskedArray and found.dtype == right.dtype
        numpy.testing.assert_array_equal(found.filled(-1.0), right.filled(-1.0))
    assert type(np.ma.getdata(x + 1.0)) is numpy.ndarray

"""SciPy's sparse arrays beside tensors: every operator, on either side, and NumPy's functions of them."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import xtensor as xt
import xtensor.numpy as ours

# NumPy calls the methods of sparse arrays, which are no arrays themselves.
FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda np, a: np.sum(a),
    "sum of columns": lambda np, a: np.sum(a, axis=0),
    "mean": lambda np, a: np.mean(a, axis=1),
    "max": lambda np, a: np.max(a),
    "argmax": lambda np, a: np.argmax(a),
    "nonzero": lambda np, a: np.nonzero(a)[1],
    "sqrt": lambda np, a: np.sqrt(a),
    "abs": lambda np, a: np.abs(a),
    "power": lambda np, a: np.power(a, 2),
    "multiply": lambda np, a: np.multiply(a, 2.0),
    "round": lambda np, a: np.round(a, 1),
    "shape": lambda np, a: np.shape(a),
    "ndim": lambda np, a: np.ndim(a),
    "size": lambda np, a: np.size(a),
    "iscomplexobj": lambda np, a: np.iscomplexobj(a * 1j),
    "array of sums": lambda np, a: np.asarray(a.sum(axis=0)).ravel() * np.ones(2),
    "copy of sums": lambda np, a: np.array(a.sum(axis=1)) * np.ones(2),
}


@pytest.mark.parametrize("form", ["csr_array", "coo_array", "dia_array", "lil_array", "dok_array", "csr_matrix"])
@pytest.mark.parametrize("sign", ["add", "sub", "mul", "eq", "ne", "lt", "le", "gt", "ge"])
def test_operators_of_sparse_arrays(form: str, sign: str) -> None:
    """They answer on either side as for NumPy's arrays, of which alone they know; a gradient is not lost silently."""
    sparse = getattr(pytest.importorskip("scipy.sparse"), form)(np.diag([2.0, 3.0]))
    n, apply = np.asarray([[1.0, 0.0], [4.0, 3.0]]), getattr(operator, sign)
    x = xt.asarray(n)
    for found, expected in ((apply(sparse, x), apply(sparse, n)), (apply(x, sparse), apply(n, sparse))):
        np.testing.assert_array_equal(*(one.toarray() if hasattr(one, "toarray") else one for one in (found, expected)))
    x.requires_grad = True
    with pytest.raises(RuntimeError, match="__array__: x must not have a gradient"):
        apply(x, sparse)


def test_sparse_arrays_divided() -> None:
    """By a tensor, by an element of one; a tensor by them is refused, as in NumPy."""
    sparse = pytest.importorskip("scipy.sparse").csr_array(np.diag([2.0, 3.0]))
    x = xt.asarray([[1.0, 2.0], [4.0, 6.0]])
    np.testing.assert_array_equal((sparse / x).toarray(), np.diag([2.0, 0.5]))
    np.testing.assert_array_equal((sparse / x[0, 1]).toarray(), np.diag([1.0, 1.5]))
    np.testing.assert_array_equal((sparse + 0 * x[0, 1]).toarray(), sparse.toarray())
    with pytest.raises(TypeError, match="unsupported operand"):
        x / sparse


@pytest.mark.parametrize("form", ["csr_array", "csr_matrix"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_sparse_arrays(name: str, form: str) -> None:
    """They have NumPy's results; the sums of a sparse matrix are a numpy.matrix, of which asarray makes a tensor."""
    sparse = getattr(pytest.importorskip("scipy.sparse"), form)(np.asarray([[2.0, 0.0], [-1.25, 3.0]]))
    with np.errstate(invalid="ignore"):
        found, expected = FUNCTIONS[name](ours, sparse), FUNCTIONS[name](np, sparse)
    if isinstance(found, xt.Tensor):
        found = found.numpy()
    else:
        assert type(found) is type(expected)
    if hasattr(expected, "toarray"):
        found, expected = found.toarray(), expected.toarray()
    np.testing.assert_array_equal(found, expected)


def test_a_tensor_times_a_sparse_array_by_a_function() -> None:
    """Is NumPy's array of sparse arrays, as if the tensor was its array."""
    sparse = pytest.importorskip("scipy.sparse").csr_array(np.diag([2.0, 3.0]))
    for function in (np.multiply, ours.multiply):
        assert function(xt.ones(2), sparse)[1].toarray().tolist() == [[2.0, 0.0], [0.0, 3.0]]

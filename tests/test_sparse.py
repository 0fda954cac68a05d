"""SciPy's sparse arrays beside tensors: every operator, on either side."""

from __future__ import annotations

import operator

import numpy as np
import pytest

import xtensor as xt


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

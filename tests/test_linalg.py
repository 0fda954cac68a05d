"""Functions of xt.linalg where the standard's suite does not look: precision, empty matrices, integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import xtensor as xt


@pytest.mark.parametrize("lazy", ["auto", "always"])
@pytest.mark.parametrize("axis", [None, -1])
@pytest.mark.parametrize("count", [1000, 1_000_000])
def test_norms_of_long_vectors(count: int, axis: int | None, lazy: Any) -> None:
    """As exact as a sum: products that the BLAS adds up one after the other lose 3 digits of single precision."""
    values = np.full(count, 1.1, dtype=np.float32)
    exact = np.sqrt(count) * float(np.float32(1.1))
    with xt.options(lazy=lazy):
        found = xt.linalg.vector_norm(xt.asarray(values), axis=axis)
        kept = xt.linalg.vector_norm(xt.asarray(values), axis=axis, keepdims=True)
    assert found.dtype == np.float32
    assert kept.shape == (1,)
    assert abs(float(found) / exact - 1) < 2e-6
    assert abs(float(kept[0]) / exact - 1) < 2e-6


def test_norms_of_long_vectors_in_captured_functions() -> None:
    values = np.full(1_000_000, 1.1, dtype=np.float32)
    fused = xt.fuse(xt.linalg.vector_norm)
    for _ in range(3):
        assert abs(float(fused(xt.asarray(values))) / (1000 * float(np.float32(1.1))) - 1) < 2e-6


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0, 2), (0, 2, 2)])
def test_ranks_of_empty_matrices(shape: tuple[int, ...]) -> None:
    found = xt.linalg.matrix_rank(xt.zeros(shape))
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found.numpy(), np.zeros(shape[:-2], dtype=int))


@pytest.mark.parametrize("dtype", ["bool", "int8", "int64", "uint16"])
def test_pseudo_inverses_and_ranks_of_integers(dtype: str) -> None:
    values = np.array([[1, 0], [1, 1], [0, 1]], dtype=dtype)
    found = xt.linalg.pinv(xt.asarray(values))
    assert found.dtype == np.float64
    np.testing.assert_allclose(found.numpy(), np.linalg.pinv(values.astype(float)), atol=1e-15)
    assert int(xt.linalg.matrix_rank(xt.asarray(values))) == 2

"""Sorting against NumPy's stable sorts: whichever sort does the work, nobody can tell."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import xtensor as xt

DTYPES = ["bool", "int8", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64", "complex128"]


def filled(kind: str, shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    """Return an array: without equal elements, with many, with zeros of both signs, with several NaNs."""
    rng = np.random.default_rng(5)
    a = rng.permutation(np.prod(shape, dtype=int)) - 40.0 if kind == "apart" else rng.integers(-9, 9, shape)
    a = a.reshape(shape).astype(dtype)
    if kind == "zeros":
        a = np.where(a < 0, np.array(-0.0).astype(dtype), a)
    if kind == "nan":
        a[..., ::7], a[..., ::14], a[..., 1::11] = np.nan, -np.nan, -np.inf
    return a


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize(("shape", "axis"), [((5,), 0), ((5000,), 0), ((70, 50), 0), ((70, 50), 1), ((0, 3), 0)])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["apart", "many", "zeros", "nan"])
def test_sorts(kind: str, dtype: str, shape: tuple[int, ...], axis: int, descending: bool) -> None:
    """Values and their places, equal ones in the order they had, which tells zeros of both signs apart."""
    if kind == "nan" and np.dtype(dtype).kind not in "fc":
        return
    a = filled(kind, shape, dtype)
    places = np.argsort(np.flip(a, axis) if descending else a, axis=axis, kind="stable")
    if descending:
        places = a.shape[axis] - 1 - np.flip(places, axis)
    right = np.take_along_axis(a, places, axis=axis)
    x = xt.asarray(a, copy=True)
    for stable in (True, False):
        found = xt.sort(x, axis=axis, descending=descending, stable=stable).numpy()
        np.testing.assert_array_equal(found, right)
        order = xt.argsort(x, axis=axis, descending=descending, stable=stable).numpy()
        np.testing.assert_array_equal(np.take_along_axis(a, order, axis=axis), right)
        if stable:
            np.testing.assert_array_equal(order, places)
            if np.dtype(dtype).kind == "f":
                numbers = right == right  # signs of NaNs are nobody's
                np.testing.assert_array_equal(np.signbit(found)[numbers], np.signbit(right)[numbers])

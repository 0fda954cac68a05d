"""NumPy as the CPU's library: which of its functions are its own, and when the others are loaded."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import array_api_compat.numpy as compat
import numpy as np
import pytest

from xtensor.devices.cpu import CPU, WRAPPED, WRAPPED_LINALG

# What array-api-compat wraps for older NumPys: the oldest that xtensor takes has it as the standard has it.
CONFORMING = {"cumulative_prod", "cumulative_sum", "fft", "matmul", "nonzero", "tensordot"}
CONFORMING_LINALG = {"cross", "eigh", "matrix_norm", "outer", "qr", "slogdet", "svd", "svdvals"}

OWN = {"argsort", "sort"}

ASIDE = {"Final", "annotations", "clone_module", "get_xp", "np", "numpy"}  # what its modules import


@pytest.mark.parametrize(
    ("library", "theirs", "ours", "wrapped", "others"),
    [
        (np, compat, CPU.xp, WRAPPED, CONFORMING | OWN | {"linalg"}),
        (np.linalg, compat.linalg, CPU.xp.linalg, WRAPPED_LINALG, CONFORMING_LINALG),
    ],
)
def test_what_is_wrapped_is_taken_from_there(
    library: Any, theirs: Any, ours: Any, wrapped: frozenset[str], others: set[str]
) -> None:
    """The list is that of the array-api-compat that is installed; all else is NumPy's own in both."""
    names = {name for name in vars(theirs) if name[0] != "_"} - ASIDE
    assert {name for name in names if getattr(library, name, None) is not getattr(theirs, name)} - others == wrapped
    assert {name for name in wrapped if getattr(ours, name) is not getattr(theirs, name)} == set()
    own = names - wrapped - OWN - {"linalg"}
    assert {name for name in own if getattr(ours, name) is not getattr(library, name)} == set()


def test_what_conforms_gives_the_same() -> None:
    """Of numpy.linalg: stacks, complex numbers, options, and the names of results."""
    rng = np.random.default_rng(0)
    a = rng.normal(size=(4, 3, 3)) + 1j * rng.normal(size=(4, 3, 3))
    h, v = a + a.swapaxes(1, 2).conj(), a[0]
    for call in (
        lambda linalg: linalg.cross(v, v[::-1], axis=0),
        lambda linalg: linalg.eigh(h),
        *(
            lambda linalg, ord=ord: linalg.matrix_norm(a, keepdims=True, ord=ord)
            for ord in ("fro", "nuc", 1, -2, np.inf)
        ),
        lambda linalg: linalg.outer(v[0], v[1]),
        lambda linalg: linalg.qr(a, mode="complete"),
        lambda linalg: linalg.slogdet(a),
        lambda linalg: linalg.svd(a[:, :2], full_matrices=False),
        lambda linalg: linalg.svdvals(a),
    ):
        one, other = call(CPU.xp.linalg), call(compat.linalg)
        assert getattr(one, "_fields", None) == getattr(other, "_fields", None)
        for ours, theirs in zip(
            one if isinstance(one, tuple) else (one,), other if isinstance(other, tuple) else (other,), strict=True
        ):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("name", sorted(OWN))
@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("descending", [False, True])
def test_sorts(name: str, descending: bool, stable: bool) -> None:
    """They are those of array-api-compat: NaNs, equal elements, zeros of both signs, along each axis."""
    rng = np.random.default_rng(0)
    for a in (rng.integers(0, 5, (7, 9)), rng.choice([0.0, -0.0, 1.0, np.nan, -np.inf], (30, 3)), np.ones(0)):
        for axis in range(-1, a.ndim):
            ours, theirs = (
                getattr(xp, name)(a, axis=axis, descending=descending, stable=stable) for xp in (CPU.xp, compat)
            )
            np.testing.assert_array_equal(ours, theirs)
            assert ours.dtype == theirs.dtype
            np.testing.assert_array_equal(np.signbit(ours), np.signbit(theirs))


LIGHT = """
import sys, xtensor as xt
x = xt.arange(6.0)
xt.evaluate(xt.concat([x, x]), xt.flip(x), xt.roll(x, 2), xt.take(x, xt.asarray([1, 2])), xt.fft.fft(x))
xt.evaluate(xt.cumulative_sum(x), x[None, :] @ x[:, None], *xt.nonzero(x), xt.std(x), xt.stack([x, x]), x[x > 2.0])
xt.evaluate(xt.sort(x[::-1]), xt.argsort(x, descending=True))
xt.evaluate(*xt.linalg.eigh(x[:2, None] * x[:2]), xt.linalg.solve(2.0 * xt.eye(2), x[:2]), xt.linalg.svdvals(xt.eye(2)))
print("array_api_compat.numpy" in sys.modules)
print(xt.linalg.pinv(xt.eye(2)).tolist(), "array_api_compat.numpy" in sys.modules)
"""


def test_common_functions_load_no_more_than_numpy() -> None:
    """array-api-compat takes longer to import than NumPy itself, and stays away until something of it is asked for."""
    found = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, check=True).stdout.split("\n")
    assert found[:2] == ["False", "[[1.0, 0.0], [0.0, 1.0]] True"]

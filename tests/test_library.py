"""NumPy as the CPU's library: which of its functions are its own, and when the others are loaded."""

from __future__ import annotations

import subprocess
import sys

import array_api_compat.numpy as compat
import numpy as np
import pytest

from xtensor.devices.cpu import CPU, WRAPPED

# What array-api-compat wraps for older NumPys: the oldest that xtensor takes has it as the standard has it.
CONFORMING = {"cumulative_prod", "cumulative_sum", "fft", "matmul", "nonzero", "tensordot"}

OWN = {"argsort", "sort"}

ASIDE = {"Final", "clone_module", "numpy"}  # what its modules import


def test_what_is_wrapped_is_taken_from_there() -> None:
    """The list is that of the array-api-compat that is installed; all else is NumPy's own in both."""
    names = {name for name in vars(compat) if name[0] != "_"} - ASIDE
    wrapped = {name for name in names if getattr(np, name, None) is not getattr(compat, name)}
    assert wrapped - CONFORMING - OWN == WRAPPED
    assert {name for name in WRAPPED if getattr(CPU.xp, name) is not getattr(compat, name)} == set()
    assert {name for name in names - WRAPPED - OWN if getattr(CPU.xp, name) is not getattr(np, name)} == set()


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
print("array_api_compat.numpy" in sys.modules)
print(xt.linalg.svdvals(xt.eye(2)).tolist(), "array_api_compat.numpy" in sys.modules)
"""


def test_common_functions_load_no_more_than_numpy() -> None:
    """array-api-compat takes longer to import than NumPy itself, and stays away until something of it is asked for."""
    found = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, check=True).stdout.split("\n")
    assert found[:2] == ["False", "[1.0, 1.0] True"]

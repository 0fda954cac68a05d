"""Device programs: plain programs on a CUDA device, real or emulated (tests/emulated.py checks every access).

Left out: lines that share memory with NumPy's arrays, strides of results, and the last bits of complex numbers.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec

import numpy as np

import xtensor as xt

from .kinds import Kind
from .maker import Maker
from .plain import run_with
from .sides import run_oracle, same_bits, same_error

SETTINGS = {"lazy": "always", "device": "cuda:0", "cache_dir": ""}


class InsideMaker(Maker):
    """Makes programs without lines that share memory with NumPy's arrays."""

    def cross_border(self) -> str | None:
        return None


@contextmanager
def emulated_device() -> Iterator[None]:
    """Put the emulated device in place."""
    with import_module("emulated").device(), warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def difference(lines: list[str], mode: str) -> str | None:
    """Return what differs on the device, None where nothing does."""
    theirs, ours = run_oracle(lines), run_with(lines, SETTINGS)
    for line, mine, right in zip(lines, ours.errors, theirs.errors, strict=True):
        if not same_error(mine, right):
            return f"`{line}` raised {mine!r}, NumPy {right!r}"
    rounds = any(x.dtype.kind == "c" for x in theirs.variables().values())
    for name, right in theirs.variables().items():
        found = np.asarray(xt.asarray(ours.variables()[name]).to_device("cpu"))
        if (found.dtype, found.shape) != (right.dtype, right.shape):
            return f"{name}: {found.dtype} {found.shape}, NumPy {right.dtype} {right.shape}"
        if not (np.allclose(found, right, rtol=1e-5, atol=0, equal_nan=True) if rounds else same_bits(found, right)):
            return f"{name}: values {found.tolist()}, NumPy {right.tolist()}"
    return None


@lru_cache(8)
def made(seed: int) -> Maker:
    """Return the program of a seed."""
    return InsideMaker(seed, exact=True)


DEVICE = Kind("device", ("cuda",) if find_spec("cupy") else (), lambda seed, mode: made(seed), difference)

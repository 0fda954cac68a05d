"""`xt.options(reproducible=True)`: the same bits on every processor; sums near the truth; the same on any threads."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import processors
import pytest

import xtensor as xt
from xtensor.base.options import settings
from xtensor.calls.op import REGISTRY
from xtensor.codegen.cpu.compile import host

pytest.importorskip("llvmlite")

HERE = Path(__file__).resolve().parent
LENGTHS = (1, 7, 64, 1000, 40_000)


def data(shape: Any, dtype: str, seed: int = 1) -> Any:
    """Return numbers of many sizes and both signs, made without the library's own functions."""
    random = np.random.default_rng(seed)
    return (random.random(shape) * 2 - 1).astype(dtype) * (random.integers(1, 1000, shape)).astype(dtype)


def bits(x: Any) -> bytes:
    """Return the bits of a tensor, with one NaN for all."""
    array = np.asarray(x)
    return bytes(np.where(np.isnan(array), array.dtype.type(np.nan), array).tobytes())


def results() -> dict[str, str]:
    """Return a digest of the bits of every elementwise function and reduction, by name and dtype."""
    found = {}
    with xt.options(reproducible=True, cache_dir=""):
        for dtype in ("float32", "float64"):
            for op in REGISTRY.values():
                function: Any = getattr(xt, op.name, None)
                if function is None or (op.kind == "elementwise" and not op.accepts.takes(np.dtype(dtype))):
                    continue
                digest = hashlib.sha256()
                for part in outcomes(function, op, dtype):
                    digest.update(bits(part))
                found[f"{op.name} {dtype}"] = digest.hexdigest()
    return found

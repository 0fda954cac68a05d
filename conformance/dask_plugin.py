"""A pytest plugin that runs the tests that Dask has for CuPy's arrays on tensors.

They import `cupy`: they are given a module of that name whose arrays are xtensor's.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import xtensor
import xtensor.dask
import xtensor.numpy


class StandIn(ModuleType):
    """What Dask's tests use of CuPy: NumPy's names, an array type, and the way to NumPy."""

    __version__ = "14.0.0"
    ndarray = xtensor.Tensor
    asnumpy = staticmethod(xtensor.Tensor.numpy)
    random = xtensor.random

    def __getattr__(self, name: str) -> Any:
        return getattr(xtensor.numpy, name)


def pytest_configure() -> None:
    """Put the stand-in in CuPy's place, once other plugins have looked for CuPy."""
    sys.modules["cupy"] = StandIn("cupy")
    xtensor.Tensor.get = xtensor.Tensor.numpy  # type: ignore[attr-defined]

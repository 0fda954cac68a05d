"""Memory as a CUDA device sees it: what a thread moves at a time, and page-locked memory of the host, to which the
device copies while the host goes on.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from ..base.dtypes import DType
from ..base.layout import Shape

# Bytes that a thread reads or writes at a time: kernels are made for how far behind multiples of them operands begin.
VECTOR = 16


def pinned(cp: Any, shape: Shape, dtype: DType) -> Any:
    """Return a new array of the host in page-locked memory, where there is some."""
    try:
        return (np.empty if 0 in shape else import_module("cupyx").empty_pinned)(shape, dtype)
    except (MemoryError, cp.cuda.runtime.CUDARuntimeError):
        return np.empty(shape, dtype)

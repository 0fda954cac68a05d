"""Page-locked memory of the host, to which a CUDA device copies while the host goes on."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..base.dtypes import DType
from ..base.layout import Shape


def pinned(cp: Any, shape: Shape, dtype: DType) -> Any:
    """Return a new array of the host in page-locked memory, where there is some."""
    try:
        import cupyx

        return (np.empty if 0 in shape else cupyx.empty_pinned)(shape, dtype)
    except (MemoryError, cp.cuda.runtime.CUDARuntimeError):
        return np.empty(shape, dtype)

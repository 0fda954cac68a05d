"""NumPy's types for annotations: `import xtensor.numpy.typing as npt`."""

from typing import Any

import numpy.typing as theirs
from numpy.typing import ArrayLike, DTypeLike, NDArray

__all__ = ["ArrayLike", "DTypeLike", "NDArray"]


def __getattr__(name: str) -> Any:
    """Return another name of NumPy's, such as one that it deprecates."""
    return getattr(theirs, name)

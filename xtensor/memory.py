"""`xt.memory`: see, trim and limit the memory the CPU keeps for its next results.

Results are written into blocks that were used before, because fresh pages cost more than the arithmetic. Arrays of
less than 64 KiB and the memory of CUDA devices, which CuPy pools, are not counted here. Of results of NumPy's own
functions, of 1 MiB at most, up to 8 MiB are kept as well; they are trimmed and limited with the others, not counted.

>>> xt.memory.stats().idle
33554432
>>> xt.memory.trim()
33554432
"""

from __future__ import annotations

from .base.errors import expected
from .storage.pool import POOL, Stats

__all__ = ["Stats", "set_limit", "stats", "trim"]


def stats() -> Stats:
    """Return the bytes in use, idle, at the peak and at most idle, and how many requests were served from idle ones."""
    return POOL.stats()


def trim() -> int:
    """Give all idle memory back to the system; returns how many bytes."""
    return POOL.trim()


def set_limit(nbytes: int | None) -> None:
    """Keep at most `nbytes` bytes idle; 0 keeps none, None a quarter of the memory of the machine or its container.

    Raises ValueError for anything else.
    """
    if nbytes is not None and (not isinstance(nbytes, int) or nbytes < 0):
        raise ValueError(expected("set_limit", "nbytes", "be a number of bytes or None", repr(nbytes)))
    POOL.limit = nbytes


def __dir__() -> list[str]:
    return __all__

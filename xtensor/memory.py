"""`xt.memory`: see, trim and limit the memory that the CPU keeps for its next results.

Results are written into blocks that were used before, because fresh pages cost more than the arithmetic. Not counted
here are arrays of less than 64 KiB and the memory of CUDA devices, which CuPy pools. Up to 8 MiB of memory from results
of NumPy's own functions, each of 1 MiB at most, are kept as well: trimmed and limited with the others, but not counted.

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
    """Return the bytes in use, idle, at the peak, the limit of idle bytes, and how many requests idle blocks served."""
    return POOL.stats()


def trim() -> int:
    """Give all idle memory back to the system, and return how many bytes that was."""
    return POOL.trim()


def set_limit(nbytes: int | None) -> None:
    """Keep at most `nbytes` idle bytes; 0 keeps none, None a quarter of the memory of the machine or its container.

    Raises ValueError for anything else.
    """
    if nbytes is not None and (not isinstance(nbytes, int) or nbytes < 0):
        raise ValueError(expected("set_limit", "nbytes", "be a number of bytes or None", repr(nbytes)))
    POOL.limit = nbytes


def __dir__() -> list[str]:
    return __all__

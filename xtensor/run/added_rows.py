"""Rows added up at places: the adjoint of taking rows at indices. Threads share the columns, so that each sum is made
in the rows' order, whatever their number.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod

import numpy as np

from ..base.dtypes import DType
from ..codegen.cpu.adding import adding
from ..codegen.cpu.compile import the_host
from ..devices.cpu import CPU
from .contractions import is_compiled
from .launches import Array, Launches, Sheet, shared
from .native import Launch, Place

# Elements that a thread adds in a second, and how much longer NumPy takes for one than for a product.
SPEED, SLOWER = 1.5e9, 200

# Elements that NumPy adds at a time: add.at is fast for flat places, and so many fit the cache.
AT_A_TIME = 1 << 16


def added_rows(rows: Array, places: Array, length: int) -> Array:
    """Return for each of `length` places, integers of any dtype, the sum of the rows that belong to it, in their
    order.
    """
    places = np.ascontiguousarray(places, np.int64)  # products with the width would not fit into others
    width, shape = prod(rows.shape[1:]), (length, *rows.shape[1:])
    if is_compiled(rows.dtype, SLOWER * rows.size) and width >= the_host().vector_bytes // rows.itemsize:
        found: Array = np.ndarray(shape, rows.dtype, CPU.allocate(prod(shape) * rows.itemsize))
        found.fill(0)
        _launches(places.size, width, rows.dtype).run(np.ascontiguousarray(rows), places, found)
        return found
    result = np.zeros(shape, rows.dtype)
    step = max(AT_A_TIME // max(width, 1), 1)
    for first in range(0, places.size, step):
        flat = places[first : first + step, None] * width + np.arange(width)
        np.add.at(result.reshape(-1), flat.reshape(-1), rows[first : first + step].reshape(-1))
    return result


@lru_cache(256)
def _launches(count: int, width: int, dtype: DType) -> Launches:
    """Return launches for so many rows: operands are the rows, their places, and the sums."""
    lanes = the_host().vector_bytes // dtype.itemsize

    def make(sheet: Sheet) -> list[Launch]:
        share = -(-width // (lanes * sheet.threads)) * lanes
        firsts = [(first, first * dtype.itemsize) for first in range(0, width, share)]
        calls = [
            (Place(0, far), Place(1, 0), Place(2, far), count, min(share, width - first), width, width)
            for first, far in firsts
        ]
        return [shared(adding(dtype.char, lanes), calls, sheet.threads)]

    return Launches([make], 3, count * width / SPEED)

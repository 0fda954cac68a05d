"""Memory as a CUDA device sees it: what a thread moves at a time, and page-locked memory of the host, to which the
device copies while the host goes on.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from importlib import import_module
from threading import get_ident
from typing import Any

import numpy as np

from ..base.dtypes import DType
from ..base.layout import Shape

# Bytes that a thread reads or writes at a time: kernels are made for how far behind multiples of them operands begin.
VECTOR = 16

# The number of the default stream that each thread has for itself.
PER_THREAD = 2

# What makes room on a CUDA device, given its backend; each returns whether there may be more room than before. The
# first of them compute nothing; `evaluating` is asked where they were not enough.
letting_go: list[Callable[[Any], object]] = []
evaluating: list[Callable[[Any], bool]] = []


def let_go(backend: Any) -> bool:
    """Free memory of a device that no tensor needs: what is kept between calls, cycles, the free blocks of CuPy's pool.

    The pool does the last two itself, but not in the place of another allocator, nor after the first.
    """
    for one in letting_go:
        one(backend)
    gc.collect()
    backend.call(backend.library.get_default_memory_pool().free_all_blocks)
    return True


def again(backend: Any, refused: MemoryError, function: Callable[[], Any]) -> Any:
    """Call a function, for which there was no room, when there is more; raises MemoryError where that is not enough."""
    for more in (let_go, *evaluating):
        if more(backend):
            try:
                return backend.call(function)
            except MemoryError as error:
                refused = bare(error)
    raise refused


def bare(error: MemoryError) -> MemoryError:
    """Return an error without the frames that it came through: they would hold their memory."""
    error.__context__ = None
    return error.with_traceback(None)


def pinned(cp: Any, shape: Shape, dtype: DType) -> Any:
    """Return a new array of the host in page-locked memory, where there is some."""
    try:
        return (np.empty if 0 in shape else import_module("cupyx").empty_pinned)(shape, dtype)
    except (MemoryError, cp.cuda.runtime.CUDARuntimeError):
        return np.empty(shape, dtype)


def stream_key(stream: Any) -> tuple[int, int]:
    """Return what tells a stream from all others: CUDA's default one of each thread has the same number in all."""
    number: int = stream.ptr
    return number, get_ident() if number == PER_THREAD else 0

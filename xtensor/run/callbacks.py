"""Library functions without an address of their own, called by machine code: the driver goes through a whole schedule,
and Python runs for these calls alone.

Results are copied to memory that the run already has, so only calls with small results are made this way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..base.dtypes import DType
from ..base.errors import expected
from ..base.interpreter import c_function
from ..base.layout import Shape
from ..codegen.cpu import callback as code
from ..devices.cpu import CPU
from ..plan import costs
from ..plan.layouts import Meta, Task
from ..storage.storage import Native
from .native import Launch, Making


class Callback:
    """A call of a library's function by machine code.

    gives, takes: metas of its results and its arguments, which are numbered in this order; the next number is that of
    the word in which a failure is noted. again: whether the whole run can be repeated if the call fails.
    """

    seconds, aligned = 0.0, False

    def __init__(
        self, function: Callable[..., Any], gives: Sequence[Meta], takes: Sequence[Meta], *, again: bool
    ) -> None:
        metas, work = [*gives, *takes], partial(_called, function, len(gives), again)
        lies = [np.array([*meta.shape, *meta.layout.strides], np.int64) for meta in metas]
        self.task = Task("library", sum([meta.nbytes for meta in metas]))
        self._words = [id(work), 0, len(metas), *map(c_function, code.FUNCTIONS), id(np.ndarray), id(True)]
        for meta, lie in zip(metas, lies, strict=True):
            self._words += [id(meta.dtype), len(meta.shape), lie.__array_interface__["data"][0], 0]
        self._kept = work, lies, metas  # the words point to these

    def launches(self, making: Making) -> list[Launch]:
        """Return the launch."""
        words, count = self._words, (len(self._words) - len(code.NAMES)) // len(code.ARRAY)
        first = len(code.NAMES) + code.ARRAY.index("memory")
        places = [(first + number * len(code.ARRAY), number, 0) for number in range(count)]
        fillings = [(code.NAMES.index("failed"), count, 0), *places]
        return [Launch(code.call_of(), (1,), len(words), words, fillings)]


def can_call_back(function: Callable[..., Any], gives: Sequence[Meta]) -> bool:
    """Return whether machine code can call a function: results are small and dense, not computed by code of ours."""
    small = sum([meta.nbytes for meta in gives]) <= costs.CALLBACK_BYTES
    dense = [not meta.layout.offset and meta.layout.is_dense(meta.dtype.itemsize) for meta in gives]
    return small and all(dense) and not hasattr(function, "ready")


def as_captured(native: Native, shape: Shape, dtype: DType) -> Native:
    """Return a library's result; raise RuntimeError if its shape or dtype differs from when it was captured."""
    if native.shape != shape or native.dtype != dtype:
        must = f"have shape {shape} and dtype {dtype}, as when it was captured"
        raise RuntimeError(expected("fuse", "a result of the library", must, f"{native.shape} {native.dtype}"))
    return native


def _called(function: Callable[..., Any], results: int, again: bool, *natives: Native) -> bool:
    """Call a function on the last arrays, copy its results to the first `results` ones; return whether it succeeded."""
    try:
        found = CPU.call(function, *natives[results:])
        parts = found if isinstance(found, (tuple, list)) else (found,)
        for native, part in zip(natives[:results], parts, strict=False):
            native[...] = as_captured(CPU.asarray(part), native.shape, native.dtype)
    except BaseException as error:
        if again and isinstance(error, (ArithmeticError, LookupError, ValueError, RuntimeError)):
            return False
        natives = ()
        _forget_frames(error)
        raise
    return True


def _forget_frames(error: BaseException | None) -> None:
    """Drop the frames in which an error was raised: they hold arrays that do not own their memory."""
    while error is not None:
        error.__traceback__, error = None, error.__context__

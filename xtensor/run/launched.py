"""Library calls that are launches of their own, as kernels of a schedule: convolutions, pools, attention, gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ..devices.cpu import CPU
from ..plan.layouts import Meta, Task, Work
from ..plan.program import Kernel
from .factors import RESULT
from .launches import KEPT_LEAST, PACKED, Launches
from .native import SCRATCH, Launch, Making


class ByLaunches:
    """A function of native arrays as its launches.

    numbers: of each operand of the launches, the number that stands for its value; None for one that is absent.
    """

    aligned = False

    def __init__(self, launches: Launches, numbers: Sequence[int | None], task: Task) -> None:
        self.seconds, self.task = launches.seconds, task
        self._launches, self._numbers = launches, numbers
        self._tables: list[Any] = []  # which the launches read

    @classmethod
    def of(
        cls, function: Any, takes: Sequence[Meta], gives: Sequence[Meta], numbers: Sequence[int], task: Task
    ) -> ByLaunches | None:
        """Return the launches of a function for operands and results that lie so; None where it has none, or where the
        weights that it lays out may be kept from one run to the next.

        numbers: of the results and of the operands.
        """
        are_dense = [not meta.layout.offset and meta.layout.is_dense(meta.dtype.itemsize) for meta in gives]
        if not all(are_dense) or any([0 in meta.shape for meta in gives]):
            return None
        made = function.ready([_standing_for(meta) for meta in takes], *[_standing_for(meta) for meta in gives])
        if made is None or not isinstance(made.launches, Launches) or made.launches.laid_out >= KEPT_LEAST:
            return None
        return cls(made.launches, [None if at is None else numbers[at] for at in made.order], task)

    @classmethod
    def of_kernel(cls, kernel: Kernel, work: Work) -> ByLaunches | None:
        """Return the launches of a step that no loop computes; None for other kernels."""
        (result,) = kernel.results
        node = work.trace.values[result]
        if not hasattr(node.op, "bound") or work.limits.engine != "llvm" or work.device.backend is not CPU:
            return None
        arguments = work.trace.arguments[result]
        if result in work.into or any([number not in work.metas for number in arguments]):
            return None
        takes, function = [work.metas[number] for number in arguments], node.op.bound(**node.params)
        return cls.of(function, takes, [work.metas[result]], (result, *arguments), work.task([kernel]))

    def launches(self, making: Making) -> list[Launch]:
        """Return the launches, those first that lay out weights."""
        made, sheet = self._launches.made(making.threads)
        self._tables += sheet.tables
        begin = {SCRATCH: making.scratch.take(sheet.scratch.nbytes), PACKED: making.scratch.take(sheet.packed.nbytes)}

        def told(word: int, number: int, more: int) -> tuple[int, int, int] | None:
            if number in begin:
                return word, SCRATCH, begin[number] + more
            own = self._numbers[number]
            return None if own is None else (word, own, more)

        found = []
        for one in (*sheet.packing, *made):
            fillings = [told(*filling) for filling in one.fillings]
            found.append(one._replace(fillings=[filling for filling in fillings if filling is not None]))
        return found


def launched(function: Any, takes: Sequence[Meta], gives: Sequence[Meta]) -> ByLaunches | None:
    """Return a library call as its own launches, None where it has none."""
    own = function if hasattr(function, "ready") else getattr(function, "func", None)  # a partial is given the library
    if own is None or not hasattr(own, "ready"):
        return None
    task = Task(own.func.__qualname__, sum([meta.nbytes for meta in (*takes, *gives)]))
    results = range(RESULT, RESULT + len(gives))
    return ByLaunches.of(own, takes, gives, (*results, *range(len(takes))), task)


def _standing_for(meta: Meta) -> Any:
    """Return an array that lies as a value does, without its memory: it is never read or written."""
    return as_strided(np.zeros(1, meta.dtype), meta.shape, meta.layout.strides)

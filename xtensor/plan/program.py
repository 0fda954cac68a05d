"""The parts of a plan: the steps of a loop, a loop as a kernel, and the kernels in the order they run.

The idea is mshadow's: expressions say what is computed, plans say how, and consist of indices and dtypes only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ..base.caches import make_room
from ..base.dtypes import DType, promote, real_of
from ..graph.node import Operation
from .costs import REDUCING_COST, picoseconds

# The most plans, and programs, in a cache.
REMEMBERED = 4096


class Named(NamedTuple):
    """An operation that only generated code has; its name is that of a primitive or a reduction."""

    name: str
    kind: str = "elementwise"
    element: Any = None

    def kernel(self, backend: Any) -> Any:
        raise NotImplementedError(f"{self.name} is a step of generated code only")


class Step(NamedTuple):
    """One operation inside a loop.

    args: the numbers of its operands; loop: the dtypes they are converted to first; dtype: the result's.
    params: the op's parameters (the dtype of a cast), as pairs.
    """

    op: Operation
    params: tuple[tuple[str, Any], ...]
    args: tuple[int, ...]
    loop: tuple[DType, ...]
    dtype: DType


class Reduction(NamedTuple):
    """A reduction at the end of a loop, of the value numbered `arg`, accumulated and returned as `dtype`."""

    op: Operation
    params: tuple[tuple[str, Any], ...]
    arg: int
    dtype: DType


class Program:
    """The work of one loop on one element, with numbers for its values: inputs, then scalars, then one for each step.

    There is one object per program (`program` makes it), so that programs are compared and hashed by identity.

    inputs: dtypes read from memory; scalars: dtypes of the run-time numbers; outputs: the values that are written.
    known: scalars whose value changes the code, as (number, value). reductions: all over the same axes.
    """

    def __init__(
        self,
        inputs: tuple[DType, ...],
        scalars: tuple[DType, ...],
        known: tuple[tuple[int, Any], ...],
        steps: tuple[Step, ...],
        outputs: tuple[int, ...],
        reductions: tuple[Reduction, ...],
    ) -> None:
        self.inputs, self.scalars, self.known = inputs, scalars, known
        self.steps, self.outputs, self.reductions = steps, outputs, reductions

    @cached_property
    def dtypes(self) -> list[DType]:
        """The dtype of every value."""
        return [*self.inputs, *self.scalars, *(step.dtype for step in self.steps)]

    @cached_property
    def seconds(self) -> float:
        """An estimate of the seconds of generated code for one element on one thread, without memory traffic."""
        each = sum(picoseconds(step, dict(self.known)) for step in self.steps)
        return 1e-12 * (each + REDUCING_COST * sum(reduction.dtype.itemsize for reduction in self.reductions))

    @cached_property
    def moved(self) -> tuple[DType, ...]:
        """The dtypes of inputs and outputs, which move to and from memory."""
        return (*self.inputs, *(self.dtypes[number] for number in self.outputs))

    @cached_property
    def traffic(self) -> int:
        """Bytes that one element moves to and from memory, where every operand has the whole shape."""
        return sum(dtype.itemsize for dtype in self.moved)

    @cached_property
    def alive(self) -> int:
        """The most inputs and steps' results that are needed at once, if the steps are computed in their order."""
        inputs, first = len(self.inputs), len(self.inputs) + len(self.scalars)
        return inputs + most_alive([[a for a in one.args if a < inputs or a >= first] for one in self.steps])

    @cached_property
    def notes(self) -> dict[str, Any]:
        """Notes of engines about this program."""
        return {}

    @cached_property
    def widest(self) -> int:
        """Bytes of the largest value."""
        return max(dtype.itemsize for dtype in self._all)

    @cached_property
    def widest_part(self) -> int:
        """Bytes of the largest number that is real, or a part of a complex one."""
        return max(real_of(dtype).itemsize for dtype in self._all)

    @property
    def _all(self) -> list[DType]:
        return [*self.dtypes, *(one.dtype for one in self.reductions)]


def most_alive(taken: Sequence[Iterable[int]]) -> int:
    """Return the most values that are alive during a sequence of steps, beyond those alive before it.

    taken: the operands of each step, as far as they count.
    """
    last = {number: place for place, numbers in enumerate(taken) for number in numbers}
    found = most = 0
    for place, numbers in enumerate(taken):
        found += 1 - len({number for number in numbers if last[number] == place})
        most = max(most, found)
    return most


_programs: dict[Any, Program] = {}


def program(*facts: Any) -> Program:
    """Return the one Program of these fields."""
    found = _programs.get(facts)
    if found is None:
        make_room(_programs, REMEMBERED)
        found = _programs[facts] = Program(*facts)
    return found


class Kernel(NamedTuple):
    """A program and the values of the graph it works on, by their numbers in the trace.

    domain: the value whose shape the loop runs over.
    results: the values of the program's outputs and then of its reductions.
    axes: of reductions, the reduced axes of the domain.
    direct: the number of a node that is computed by the backend's own function instead, else None.
    """

    program: Program
    domain: int
    inputs: tuple[int, ...]
    scalars: tuple[int, ...]
    results: tuple[int, ...]
    axes: tuple[int, ...] = ()
    direct: int | None = None


class Columns(NamedTuple):
    """Kernels that can all go over the same columns: reductions over some leading axes, and the steps that follow.

    Intermediate values are computed where they are used, so that every stored result is kept by the plan, or narrow.
    """

    lead: int
    kernels: tuple[Kernel, ...]


class Plan:
    """Kernels in the order they run.

    last: for each kernel, the temporary values that are not needed after it.
    rows: where all kernels can run row by row over the leading axes, the number of those axes, else 0.
    strided: whether some of its values may be strided although all operands are packed.
    columns: the same if all reductions are over the leading axes, else None.
    endings: the kernels that contain all users of a contraction, elementwise ones, with the contraction's kernel.
    schedules: those that are prepared, by the layouts of operands.
    """

    __slots__ = ("columns", "endings", "kept", "kernels", "last", "rows", "schedules", "strided")

    def __init__(
        self,
        kernels: tuple[Kernel, ...],
        last: tuple[tuple[int, ...], ...],
        kept: frozenset[int],
        rows: int,
        strided: bool,
        columns: Columns | None,
        endings: Mapping[int, int],
    ) -> None:
        self.kernels, self.last, self.kept = kernels, last, kept
        self.rows, self.strided, self.columns, self.endings = rows, strided, columns, endings
        self.schedules: dict[Any, Any] = {}

    def replaced(self, **fields: Any) -> Plan:
        """Return this plan with other values of these fields; both share one cache of schedules."""
        other = copy(self)
        for name, value in fields.items():
            setattr(other, name, value)
        return other

    def largest(self, values: Sequence[Any] | Mapping[int, Any]) -> int:
        """Return the elements of the largest loop over these values."""
        return max(int(prod(values[kernel.domain].shape)) for kernel in self.kernels)


# ---- the dtypes a step computes with


def loop_of(op: Operation, kinds: tuple[Any, ...], dtype: DType) -> tuple[DType, ...]:
    """Return the dtypes an elementwise op converts its operands to, given their dtypes or scalar types.

    These are the loops of NumPy's ufuncs; `dtype` is the result's.
    """
    if op.name == "where":
        return np.dtype(bool), dtype, dtype
    if op.name == "astype":
        return kinds
    if op.name in _UNCHANGED or (op.name == "round" and kinds[0].kind in "iu"):
        return kinds
    ufunc = getattr(np, "rint" if op.name == "round" else op.name, None)
    if not isinstance(ufunc, np.ufunc):
        common = promote(*kinds, dtype)  # as NumPy's: integers become floats before a floating function
        return (common,) * len(kinds)
    found = [np.dtype(bool) if kind is bool else kind for kind in kinds]
    return tuple(ufunc.resolve_dtypes((*found, None))[: len(kinds)])


# Functions that take every dtype as it is.
_UNCHANGED = frozenset(("real", "imag", "conj", "positive"))

"""Factorisations as launches: calls of LAPACK at its own address, as NumPy's `linalg` would make them.

The same function is called for a copy of the same layout, so that results have the same bits. If there is no result for
a matrix, that stops the run if the captured call can be repeated; otherwise it is noted for `Checked`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from itertools import product
from math import prod
from typing import Any, NamedTuple

from numpy.linalg import LinAlgError

from ..base.errors import prefixed
from ..base.layout import Layout, Shape, strides_over
from ..codegen.cpu import lapack as calls
from ..codegen.cpu.blas import TYPES
from ..codegen.cpu.compile import host
from ..devices import blas
from ..plan import costs
from ..plan.layouts import Meta, Task
from .native import SCRATCH, WORD, Launch, Making

# In a call's launches, the number of its first result, behind those of its operands, and of the word for failures.
RESULT, FAILED = 16, 24

# NumPy's messages about matrices without a result.
_SINGULAR, _INDEFINITE = "Singular matrix", "Matrix is not positive definite"
_FAULTS = {"solve": _SINGULAR, "inv": _SINGULAR, "cholesky": _INDEFINITE}


class ByLapack:
    """A factorisation as calls of LAPACK.

    function: of native arrays, for which `can_be_called` is true. first: whether it is the first one of a schedule that
    notes failures.
    """

    seconds, aligned = 0.0, False

    def __init__(self, function: Any, takes: Sequence[Meta], gives: Sequence[Meta], *, first: bool) -> None:
        kind = self.kind = function.func.lapack
        self._takes, self._gives, self._turned, self._first = takes, gives, function.func.turned, first
        self.task = Task(calls.FUNCTIONS[kind], sum([meta.nbytes for meta in (*takes, *gives)]))

    @property
    def can_fail(self) -> bool:
        """Whether there are matrices for which it has no result."""
        return self.kind in _FAULTS

    def launches(self, making: Making) -> list[Launch]:
        """Return the launch, with a call for each matrix of a stack."""
        a, *b = self._takes
        stack, (n, sides), item = _stack(self._takes, self._gives), _lengths(self._takes), a.dtype.itemsize
        take, names = making.scratch.take, calls.WORDS[self.kind]
        rooms = {"room": take(n * n * WORD), "right": take(n * sides * WORD), "rest": take((n + calls.COUNTS) * WORD)}
        matrices = [("a", 0, *_matrix(a, stack, 2))]
        matrices += [("b", 1, *_matrix(one, stack, min(len(one.shape), 2))) for one in b]
        for number, (name, meta) in enumerate(zip("cd", self._gives, strict=False), RESULT):
            steps, row, column = _matrix(meta, stack, len(meta.shape) - len(stack))
            matrices.append((name, number, steps, *((column, row) if self._turned else (row, column))))
        known = {"function": _address(self.kind), "n": n, "k": sides, "kept": -1}
        known |= {name: blas.libm_address(name) for name in calls.LIBM}
        words: list[int] = []
        fillings: list[tuple[int, int, int]] = []
        for place in product(*map(range, stack)):
            places = {name: (SCRATCH, room) for name, room in rooms.items()} | {"failed": (FAILED, 0)}
            for name, number, steps, row, column in matrices:
                places[name] = number, item * sum([at * step for at, step in zip(place, steps, strict=True)])
                known |= {f"{name}.row": row, f"{name}.column": column}
            fillings += [(len(words) + at, *places[name]) for at, name in enumerate(names) if name in places]
            words += [known.get(name, 0) for name in names]
        if self._first and self.can_fail:
            words[names.index("kept")] = 0
        code, size = calls.call_of(self.kind, a.dtype.char), len(names)
        return [Launch(code, (len(words) // size,), size, words, fillings)]


def can_be_called(function: Any, takes: Sequence[Meta], gives: Sequence[Meta]) -> bool:
    """Return whether machine code can do a library call by calling LAPACK.

    The attributes of the function say which factorisation it is (standard/linalg.py).
    """
    kind = getattr(getattr(function, "func", None), "lapack", "")
    if not kind or host() is None or not _address(kind):
        return False
    metas, dtype = (*takes, *gives), takes[0].dtype
    if dtype.char not in TYPES or not dtype.isnative or any([meta.dtype != dtype for meta in metas]):
        return False
    if any([step % dtype.itemsize for meta in metas for step in meta.layout.strides]):
        return False
    if any([meta.layout.offset or not meta.layout.is_dense(dtype.itemsize) for meta in gives]):
        return False
    (n, sides), many = _lengths(takes), prod(_stack(takes, gives))
    return 0 < n <= costs.NATIVE_FACTOR and 0 < sides <= costs.NATIVE_FACTOR and 0 < many <= costs.NATIVE_FACTORS


@cache
def _address(kind: str) -> int:
    """Return the address of LAPACK's function, 0 if some function that a call needs is not known."""
    others = [name for name in calls.LIBM if name in calls.WORDS[kind]]
    known = all([blas.libm_address(name) for name in others])
    return blas.lapack_address(calls.FUNCTIONS[kind], wide=bool(others)) if known else 0


def _lengths(takes: Sequence[Meta]) -> tuple[int, int]:
    """Return the rows of a matrix, and its number of right-hand sides: as many as rows if there is no such operand."""
    n, others = takes[0].shape[-1], [meta.shape for meta in takes[1:]]
    return n, n if not others else 1 if len(others[0]) == 1 else others[0][-1]


def _stack(takes: Sequence[Meta], gives: Sequence[Meta]) -> Shape:
    """Return the lengths of a result's axes without those of a matrix, or of a vector."""
    shape, given = gives[0].shape, [*takes[0].shape[:-2]]
    vector = len(takes) > 1 and len(takes[1].shape) == 1
    return shape[:-1] if vector else shape if len(shape) == len(given) else shape[:-2]


def _matrix(meta: Meta, stack: Shape, core: int) -> tuple[Shape, int, int]:
    """Return the strides, in elements, over the axes of a stack, and from row to row and column to column of a matrix.

    core: the number of its last axes that are a matrix's; a vector is a column.
    """
    strides = tuple([step // meta.dtype.itemsize for step in meta.layout.strides])
    lead = len(strides) - core
    row, column = (*strides[lead:], 0, 0)[:2]
    return strides_over(Layout(meta.shape[:lead], strides[:lead]), stack), row, column


class Checked(NamedTuple):
    """The instruction that raises LinAlgError if a factorisation of a kind failed. word, place: where that is noted."""

    word: int
    place: int
    kind: str
    drops: list[int]

    def words(self) -> str:
        """Return a description of it."""
        return "check of factorisations"

    def tasks(self, facts: Any) -> tuple[Task, ...]:
        """Return its tasks: none, as it computes nothing."""
        return ()

    def run(self, run: Any) -> None:
        if ctypes.c_int64.from_address(run.words[self.word] + self.place).value:
            raise prefixed(self.kind, LinAlgError(_FAULTS[self.kind]))
        run.drop(self.drops)

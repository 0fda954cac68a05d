"""Column programs: reduce over leading axes, then map over the same columns, strip by strip, in one launch.

Centring is one: the sum of each column, its mean, the differences. A strip of columns, a few cache lines wide, goes
through all passes while it lies in the cache. Passes are staggered: while one pass goes down a strip, the next goes
down the strip before it, some rows of each in turn, so that memory is read and written at the same time.

A column is summed in the same order as by `reduce` alone, to the same bits: rows in groups, groups in pieces.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

from ..base.dtypes import DType
from ..base.layout import Shape
from ..codegen.cpu.accumulators import identity
from ..codegen.cpu.columns import AFTER, BEFORE, BLOCK, GROUPS, PIECE, REST, Cells, ColumnForm, ColumnStep, source
from ..codegen.cpu.compile import code_of, host
from ..codegen.cpu.loop import lanes_of
from ..graph.node import COMBINING
from ..plan import costs
from ..plan.layouts import Work
from ..plan.program import Columns, Kernel, Named, Plan, Program, Reduction, Step
from ..plan.program import program as the_program
from ..storage.pool import ALIGNMENT
from . import reduce
from .maps import can_stream
from .native import SCRATCH, Launch, Making, Scalar, enter_scalars, scalar_numbers, scalar_word
from .nest import Nest

# Bytes kept free behind a narrow value: more than a vector has.
ROOM = 512


class Strips(NamedTuple):
    """How the rows and columns are divided.

    width: columns of a strip; block: rows of a block; piece: rows that are summed before sums are combined; far:
    whether arrays come from main memory.
    """

    rows: int
    columns: int
    width: int
    block: int
    piece: int
    far: bool

    @property
    def number(self) -> int:
        return -(-self.columns // self.width)


def shape_of(columns: Columns, values: Mapping[int, Any]) -> Shape:
    """Return the shape that the passes go over."""
    shape: Shape = values[next(kernel for kernel in columns.kernels if kernel.program.reductions).domain].shape
    return shape


class ByColumns:
    """All kernels of some work as one launch, in which each thread takes some of the strips; all arrays are packed."""

    def __init__(self, work: Work, columns: Columns) -> None:
        self.kernels, self.kept = columns.kernels, work.plan.kept
        self.words = f"strip by strip over columns of {prod(shape_of(columns, work.metas)[: columns.lead])} elements"
        self.seconds = work.seconds_together(self.kernels)
        self.aligned = work.is_aligned(sorted(self.kept))
        self.task = work.task(self.kernels, together=True)
        self._columns, self._metas = columns, work.metas

    @classmethod
    def of(cls, work: Work) -> ByColumns | None:
        """Return the work strip by strip, None where that is not possible or does not pay. It is not possible with
        given results, which would be written before all of their memory is read.
        """
        columns = work.plan.columns
        if columns is None or work.into or not work.is_packed or not _pays(columns, work.plan, work.metas):
            return None
        return cls(work, columns)

    def launches(self, making: Making) -> list[Launch]:
        """Return the launch; raises LacksError where generated code lacks a step."""
        machine, contract = host(), making.contract
        assert machine is not None
        strips = _strips_of(self._columns, self._metas, making.threads)
        made = _Steps(self._columns, self.kept, self._metas, strips, making.aligned)
        form = ColumnForm(tuple(made.steps), len(made.memories), machine.vector_bytes, strips.far)
        code = code_of((form, contract), lambda: source(form, contract=contract))
        parts, base = min(making.threads, strips.number), making.scratch.take(made.nbytes)
        words: list[int] = []
        fillings: list[tuple[int, int, int]] = []
        for first, stop in pairwise([strips.number * part // parts for part in range(parts + 1)]):
            ends = min(strips.width, strips.columns - strips.width * (stop - 1))
            words += (stop - first, strips.width, ends, strips.rows, strips.block, strips.piece)
            for memory in made.memories:
                begin = memory.begin + base * (memory.number == SCRATCH)
                fillings.append((len(words), memory.number, begin + first * strips.width * memory.column))
                words += (0, memory.row)
            enter_scalars(made.given, words, fillings)
        return [Launch(code, (1,) * parts, len(words) // parts, words, fillings)]


def _pays(columns: Columns, plan: Plan, values: Mapping[int, Any]) -> bool:
    """Return whether running by columns is worth it, for operands that are packed."""
    shape = shape_of(columns, values)
    rows, cells = _lengths(shape, columns.lead)
    inputs = {n for kernel in columns.kernels for n in kernel.inputs}
    if (
        rows < 2
        or cells < costs.COLUMNS_LEAST
        or rows * cells < costs.COLUMNS_CELLS
        or any([_repeats(columns, values, n) for n in inputs])
    ):
        return False
    nbytes = rows * cells * _widest(columns)
    if nbytes <= costs.COLUMNS_NEAR:
        return True
    loops = sum(values[kernel.domain].shape == shape for kernel in plan.kernels)
    large = nbytes >= (costs.COLUMNS_FAR if loops < 3 else costs.STREAM_BYTES)
    return large and rows * costs.STRIP_BYTES <= costs.STRIP_MOST


def _lengths(shape: Shape, lead: int) -> tuple[int, int]:
    """Return how many rows and columns a shape has."""
    return prod(shape[:lead]), prod(shape[lead:])


def _widest(columns: Columns) -> int:
    return max(kernel.program.widest for kernel in columns.kernels)


def _own_lengths(columns: Columns, values: Mapping[int, Any], number: int) -> tuple[int, int]:
    """Return how many rows and columns a value has itself, before it is broadcast."""
    shape, ndim = values[number].shape, len(shape_of(columns, values))
    return _lengths((1,) * (ndim - len(shape)) + tuple(shape), columns.lead)


def _repeats(columns: Columns, values: Mapping[int, Any], number: int) -> bool:
    """Return whether a value is broadcast along only some of the axes of the rows, or of the columns."""
    every = zip(_own_lengths(columns, values, number), _lengths(shape_of(columns, values), columns.lead), strict=True)
    return any([own not in (1, whole) for own, whole in every])


def _strips_of(columns: Columns, values: Mapping[int, Any], threads: int) -> Strips:
    """Return how the columns are cut: into narrow strips if they come from memory, else as wide as the caches allow."""
    rows, cells = _lengths(shape_of(columns, values), columns.lead)
    widest, machine = _widest(columns), host()
    assert machine is not None
    piece = reduce.piece_of(rows, rows * cells * widest)
    lanes = max(lanes_of(kernel.program, machine.vector_bytes) for kernel in columns.kernels)
    if rows * cells * widest > costs.COLUMNS_NEAR:
        width = -(-costs.STRIP_BYTES // (widest * lanes)) * lanes
        return Strips(rows, cells, width, reduce.GROUP, piece, True)
    width = min(-(-cells // threads), max(costs.STRIP_NEAR_BYTES // (rows * widest), 1))
    return Strips(rows, cells, -(-width // 64) * 64, piece, piece, False)


class Memory(NamedTuple):
    """Where a value lies: its number, or SCRATCH and the offset there, and the bytes to the next row and column; 0
    where that is the same element.
    """

    number: int
    begin: int
    row: int
    column: int


class _Steps:
    """The steps in the order in which they run, while they are collected.

    memories: where values lie. given: the scalars of the steps.
    nbytes: of scratch memory, which holds narrow values and accumulators over all columns.
    """

    def __init__(
        self, columns: Columns, kept: frozenset[int], values: Mapping[int, Any], strips: Strips, is_aligned: bool
    ) -> None:
        self.columns, self.kept, self.values, self.strips = columns, kept, values, strips
        self.is_aligned = is_aligned
        self.memories: list[Memory] = []
        self.nbytes = 0
        self._lies: dict[int, Cells] = {}
        found: list[tuple[ColumnStep, Sequence[Scalar]]] = []
        self._enter = found.append
        shape, lag, kernels = shape_of(columns, values), -1, columns.kernels
        for place, kernel in enumerate(kernels):
            lag += values[kernel.domain].shape == shape
            self._add(kernel, kernels[place + 1 :], lag, values[kernel.domain].shape == shape)
        found.sort(key=lambda one: one[0].when)
        self.steps = [step for step, _ in found]
        self.given = [one for _, given in found for one in given]

    def _room(self, dtype: DType) -> Cells:
        """Return memory for a narrow value, with room for vectors beyond its end."""
        begin = self.nbytes
        self.nbytes += -(-self.strips.columns * dtype.itemsize // ALIGNMENT) * ALIGNMENT + ROOM
        self.memories.append(Memory(SCRATCH, begin, 0, dtype.itemsize))
        return Cells(len(self.memories) - 1, 0, False, True)

    def _cells(self, number: int, *, is_made: bool = False) -> Cells:
        """Return where a value lies; is_made: whether it is a kernel's result."""
        if number not in self._lies:
            itemsize = self.values[number].dtype.itemsize
            rows, cells = _own_lengths(self.columns, self.values, number)
            if is_made and number not in self.kept:
                self._lies[number] = self._room(self.values[number].dtype)
            else:
                row, column = cells * itemsize * (rows > 1), itemsize * (cells > 1)
                self.memories.append(Memory(number, 0, row, column))
                self._lies[number] = Cells(len(self.memories) - 1, 0, rows > 1, cells > 1)
        return self._lies[number]

    def _add(self, kernel: Kernel, later: Sequence[Kernel], lag: int, is_pass: bool) -> None:
        """Enter the steps of a kernel."""
        program, scalars = kernel.program, scalar_numbers(kernel.scalars, kernel.program.scalars)
        cells = [self._cells(n) for n in kernel.inputs] + [self._cells(n, is_made=True) for n in kernel.results]
        if program.reductions:
            self._fold(program, cells, scalars, lag)
        elif is_pass:
            stays = not any([n in other.inputs for other in later for n in kernel.results])
            streams = stays and self.is_aligned and self._can_stream(program, cells)
            self._enter((ColumnStep(program, tuple(cells), BLOCK, lag, GROUPS, streams=streams), scalars))
        else:
            when = AFTER if lag >= 0 else BEFORE
            self._enter((ColumnStep(program, tuple(cells), when, max(lag, 0)), scalars))

    def _can_stream(self, program: Program, cells: Sequence[Cells]) -> bool:
        lies = tuple([(self.memories[one.memory].row, self.memories[one.memory].column) for one in cells])
        machine = host()
        nest = Nest((self.strips.rows, self.strips.columns), lies, (False, False))
        return machine is not None and machine.streams and can_stream(program, nest)

    def _fold(self, program: Program, cells: Sequence[Cells], scalars: Sequence[Scalar], lag: int) -> None:
        """Enter a pass that reduces: filling its accumulators, groups of rows, and the rows that are left over."""
        plain, inputs, count = len(program.moved), len(program.inputs), len(program.reductions)
        own = [self._room(one.dtype) for one in program.reductions]
        together = list(zip(program.reductions, own, cells[plain:], strict=True))
        for reduction, accumulator, result in together:
            self._enter(_fill(reduction, accumulator, BEFORE, lag))
            self._enter(_fill(reduction, result, BEFORE, lag))
        for size, when, rows in ((reduce.GROUP, BLOCK, GROUPS), (1, AFTER, REST)):
            read = [one._replace(after=row) for row in range(size) for one in cells[:inputs]]
            written = [one._replace(after=row) for row in range(size) for one in cells[inputs:plain]]
            every = (*read, *own, *written, *own)
            roomy = (*range(len(read), len(read) + count), *range(len(every) - count, len(every)))
            folding = reduce.folded(program, size)
            self._enter((ColumnStep(folding, every, when, lag, rows, reduce.GROUP, roomy=roomy), scalars))
        for when in (PIECE, AFTER):
            for reduction, accumulator, result in together:
                self._enter((ColumnStep(_combining(reduction), (result, accumulator, result), when, lag), ()))
                if when == PIECE:
                    self._enter(_fill(reduction, accumulator, when, lag))


def _fill(reduction: Reduction, cells: Cells, when: int, lag: int) -> tuple[ColumnStep, tuple[Scalar]]:
    """Return the step that writes the initial value of a reduction's accumulators, and that value as a word."""
    fill = the_program((reduction.dtype,), (), (), (), (0,), ())
    step = ColumnStep(fill, (Cells(-1, 0, False, False), cells), when, lag, starts=True)
    return step, (scalar_word(identity(reduction), reduction.dtype),)


def _combining(reduction: Reduction) -> Program:
    """Return the program that combines two results of a reduction."""
    dtype = reduction.dtype
    step = Step(Named(COMBINING[reduction.op.name]), (), (0, 1), (dtype, dtype), dtype)
    return the_program((dtype, dtype), (), (), (step,), (2,), ())

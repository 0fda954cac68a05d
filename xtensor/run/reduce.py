"""Reductions meet memory: along rows, in registers; over outer axes, by combining rows with what lies in memory.

Results depend on shapes and strides alone, never on the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ..base.dtypes import DType
from ..base.layout import Shape, c_strides
from ..base.threads import worth
from ..codegen.cpu.loop import identity
from ..codegen.cpu.primitives import BOOL
from ..devices.cpu import CPU
from ..plan.program import Named, Program, Reduction, Step
from ..plan.program import program as the_program
from ..storage.blob import TBlob
from ..storage.pool import address_of
from . import launch
from .launch import (
    AHEAD,
    CACHE_BYTES,
    Box,
    Nest,
    Operand,
    Ready,
    nest_of,
    parts_of,
    ready,
    remembered,
    row_boxes,
    seconds_of,
    shared_out,
)

# Reduced axes are cut into pieces of so many elements (innermost) or rows (outer), whatever the number of threads.
PIECE, PIECE_ROWS = 16384, 512

# Rows that are not cut where the array fits the caches: the destination itself accumulates. Rows combined at once.
UNCUT_ROWS, GROUP = 4096, 4

# Elements of a strip of accumulators, which stay in the first-level cache.
STRIP = 4096


class Partial(NamedTuple):
    """Partial results of one reduction, and how they come together.

    room: the shape of the memory where kernels leave them, None where they write to the destination itself. start:
    what accumulators in memory begin with, None for results that are only written. axes: those to combine over.
    shape, strides: the kept axes of the destination, as the partial results have them.
    """

    reduction: Reduction
    room: Shape | None
    start: Any
    axes: tuple[int, ...]
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def memory(self, blob: TBlob) -> Any:
        """Return the memory of one run: another run may begin, in a signal handler, before it is combined."""
        if self.room is None:
            if self.start is not None:
                blob.native().fill(self.start)
            return None
        if self.start is None:
            return np.empty(self.room, self.reduction.dtype)
        return np.full(self.room, self.start, self.reduction.dtype)

    def finish(self, memory: Any, blob: TBlob) -> None:
        """Combine what the kernels left into the destination."""
        function = _COMBINE[self.reduction.op.name]
        native, result = blob.native(), memory
        if not self.shape and not native.ndim:
            CPU.call(function, memory, None, memory.dtype, native)
            return
        if self.axes:
            result = CPU.call(function, memory, axis=self.axes, dtype=memory.dtype)
        if not self.shape:
            native[...] = result if result.ndim == 0 else result.reshape(native.shape)
            return
        into = np.lib.stride_tricks.as_strided(native, self.shape, self.strides)
        into[...] = np.reshape(result, self.shape)


class Reducing(NamedTuple):
    """A program with reductions, ready to run: `ready`, where results come about row by row.

    folds: what combines rows with accumulators in memory, each with which address goes where: those of the program's
    operands, and then of the accumulators.
    """

    ready: Ready
    partials: list[Partial]
    folds: Sequence[tuple[Ready, Sequence[int]]] = ()

    def run(self, addresses: Sequence[int], blobs: Sequence[TBlob], scalars: bytes) -> None:
        """Run over operands at these addresses, into the blobs of the reductions' results."""
        memories, given = self.places(addresses, blobs)
        if not self.folds:
            self.ready.run(given, scalars)
        for fold, which in self.folds:
            fold.run([given[place] for place in which], scalars)
        self.finish(memories, blobs)

    def places(self, addresses: Sequence[int], blobs: Sequence[TBlob]) -> tuple[list[Any], list[int]]:
        """Return memory for partial results, None where there are none, and addresses: of operands, then of that."""
        memories = [one.memory(blob) for one, blob in zip(self.partials, blobs, strict=True)]
        places = [
            blob.address if memory is None else address_of(memory) for memory, blob in zip(memories, blobs, strict=True)
        ]
        return memories, [*addresses, *places]

    def finish(self, memories: Sequence[Any], blobs: Sequence[TBlob]) -> None:
        """Combine partial results into the blobs."""
        for one, memory, blob in zip(self.partials, memories, blobs, strict=True):
            if memory is not None:
                one.finish(memory, blob)


def run_reduction(
    program: Program,
    shape: Shape,
    axes: tuple[int, ...],
    operands: Sequence[Operand],
    results: Sequence[Operand],
    blobs: Sequence[TBlob],
    scalars: bytes,
    contract: bool,
) -> None:
    """Run a program with reductions over some axes of a shape.

    operands: its inputs and plain outputs. results: where the reductions' results go, with stride 0 along reduced
    axes; blobs: the same as memory.
    """
    strides = tuple([o.strides for o in (*operands, *results)])
    threads = worth(seconds_of(program, prod(shape)))
    key = (shape, axes, strides, contract, threads)

    def make() -> Reducing:
        return _ready_reduction(program, shape, axes, strides, contract, threads)

    made: Reducing = remembered(program, key, make)
    made.run([o.address for o in operands], blobs, scalars)


def _ready_reduction(
    program: Program, shape: Shape, axes: tuple[int, ...], strides: Sequence[Shape], contract: bool, threads: int
) -> Reducing:
    lead = max(strides[: len(program.inputs)], key=lambda one: sum(stride != 0 for stride in one))
    nest = nest_of(shape, strides, lead, axes)
    if nest.reduced[-1]:
        return _ready_rows(program, nest, contract, threads)
    return _ready_folding(program, nest, contract, threads)


def _ready_rows(program: Program, nest: Nest, contract: bool, threads: int) -> Reducing:
    """Reduce along the innermost axis, in pieces; combine the pieces, and other reduced axes, afterwards."""
    outer, inner = nest.lengths[:-1], nest.lengths[-1]
    plain = len(nest.strides) - len(program.reductions)
    pieces = -(-inner // PIECE)
    straight = pieces == 1 and not any(nest.reduced[:-1])
    strides: list[tuple[int, ...]] = [(*one[:-1], one[-1] * PIECE, one[-1]) for one in nest.strides[:plain]]
    partials = []
    combined = (*(place for place, reduced in enumerate(nest.reduced[:-1]) if reduced), len(outer))
    for reduction, target in zip(program.reductions, nest.strides[plain:], strict=True):
        if straight:
            strides.append((*target[:-1], 0, 0))
            partials.append(Partial(reduction, None, None, (), (), ()))
            continue
        room = (*outer, pieces)
        strides.append((*c_strides(room, reduction.dtype.itemsize), 0))
        partials.append(Partial(reduction, room, None, combined, *_kept(nest, target)))
    loops = Nest((*outer, pieces, min(inner, PIECE)), tuple(strides), (False,) * (len(outer) + 2))
    full, rest = divmod(inner, PIECE)
    boxes = []
    if full:
        boxes += row_boxes(Box((0,) * len(loops.lengths), (*outer, full, PIECE)), threads)
    if rest:
        boxes.append(Box((*(0,) * len(outer), full, 0), (*outer, 1, rest)))
    if not full:
        boxes = row_boxes(boxes[0], threads)
    sizes = [dtype.itemsize for dtype in program.moved]
    groups = shared_out(boxes, threads)
    return Reducing(ready(program, loops, sizes, groups, contract), partials)


def _ready_folding(program: Program, nest: Nest, contract: bool, threads: int) -> Reducing:
    """Reduce outer axes by combining rows, some at a time, with accumulators in memory.

    The first of these axes is cut into pieces of rows that have accumulators of their own; where there is one piece,
    the destination itself accumulates. All that depends on the shape alone, never on the threads.
    """
    reduces = True in nest.reduced
    if not reduces:
        nest = Nest((1, *nest.lengths), tuple((0, *one) for one in nest.strides), (True, *nest.reduced))
    axis, plain = nest.reduced.index(True), len(nest.strides) - len(program.reductions)
    length = nest.lengths[axis]
    size = piece_of(length, prod(nest.lengths) * program.widest)
    pieces = -(-length // size)
    aside = pieces > 1 or not reduces  # a destination that keeps every element may be what is read
    partials, accumulators = [], []
    for reduction, target in zip(program.reductions, nest.strides[plain:], strict=True):
        kept, into = _kept(nest, target)
        own = (0, *target)
        if aside:
            left = list(c_strides((pieces, *kept), reduction.dtype.itemsize))
            own = tuple([0 if reduced else left.pop(0) for reduced in (False, *nest.reduced)])
        accumulators.append(own)
        room = (pieces, *kept) if aside else None
        partials.append(Partial(reduction, room, identity(reduction), (0,), kept, into))
    grouped, folds = length - length % GROUP, []
    for rows, taken in ((GROUP, range(grouped)), (1, range(grouped, length))):
        if taken:
            moved = [
                (one[axis] * size, *one[:axis], one[axis] * rows, *one[axis + 1 :]) for one in nest.strides[:plain]
            ]
            lengths = (pieces, *nest.lengths[:axis], size // rows, *nest.lengths[axis + 1 :])
            boxes = [
                Box(
                    (piece, *(0,) * axis, max(taken[0] - piece * size, 0) // rows, *(0,) * (len(lengths) - axis - 2)),
                    (1, *lengths[1 : axis + 1], _within(taken, piece, size) // rows, *lengths[axis + 2 :]),
                )
                for piece in range(taken[0] // size, -(-taken.stop // size))
            ]
            steps = [one[axis] for one in nest.strides[:plain]]
            folds.append(_ready_fold(program, rows, steps, lengths, moved, accumulators, boxes, contract, threads))
    return Reducing(folds[0][0], partials, folds)


def piece_of(rows: int, nbytes: int) -> int:
    """Return how many of some rows, of so many bytes together with all else, are combined before others are."""
    return rows if nbytes <= CACHE_BYTES and rows <= UNCUT_ROWS else min(rows, PIECE_ROWS)


def _within(taken: range, piece: int, size: int) -> int:
    """Return how many of the taken rows lie in a piece."""
    return min(taken.stop, (piece + 1) * size) - max(taken.start, piece * size)


def _ready_fold(
    program: Program,
    rows: int,
    steps: Sequence[int],
    lengths: tuple[int, ...],
    moved: list[tuple[int, ...]],
    accumulators: Sequence[tuple[int, ...]],
    boxes: Sequence[Box],
    contract: bool,
    threads: int,
) -> tuple[Ready, list[int]]:
    """Return what combines so many rows at a time with accumulators, over boxes cut into strips of columns.

    steps: bytes from one row to the next, of inputs and outputs. With it comes which address goes where.
    """
    folding, inputs = folded(program, rows), len(program.inputs)
    every = (*moved[:inputs] * rows, *accumulators, *moved[inputs:] * rows, *accumulators)
    width = min(STRIP, -(-lengths[-1] * len(boxes) // (threads * 64)) * 64)  # strips begin where cache lines do
    strips = [strip for box in boxes for strip in parts_of(box, len(lengths) - 1, width)]
    sizes = [dtype.itemsize for dtype in folding.moved]
    far = prod(lengths) * rows * program.widest > launch.STREAM_BYTES
    ahead = {place: rows * steps[place % inputs] or AHEAD for place in range(inputs * rows if far else 0)}
    loops = Nest(lengths, every, (False,) * len(lengths))
    made = ready(folding, loops, sizes, shared_out(strips, threads), contract, ahead=ahead)
    own = range(len(moved), len(moved) + len(accumulators))
    which = [*[*range(inputs)] * rows, *own, *[*range(inputs, len(moved))] * rows, *own]
    further = [row * steps[place] for row in range(rows) for place in range(inputs)] + [0] * len(own)
    further += [row * steps[place] for row in range(rows) for place in range(inputs, len(moved))] + [0] * len(own)
    for call in [call for group in made.groups for call in group]:
        call.offsets[:] = [offset + more for offset, more in zip(call.offsets, further, strict=True)]
    return made, which


def _kept(nest: Nest, target: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the lengths of the kept loops, and a result's strides along them."""
    kept = [place for place, reduced in enumerate(nest.reduced) if not reduced]
    return tuple(nest.lengths[place] for place in kept), tuple(target[place] for place in kept)


_COMBINE: dict[str, Any] = {
    "sum": np.add.reduce,
    "count_nonzero": np.add.reduce,
    "prod": np.multiply.reduce,
    "any": np.logical_or.reduce,
    "all": np.logical_and.reduce,
    "max": np.maximum.reduce,
    "min": np.minimum.reduce,
}


# ---- rows combined with what lies in memory


_CONVERT = Named("astype")
COMBINING = {"sum": "add", "count_nonzero": "add", "prod": "multiply", "any": "logical_or", "all": "logical_and"} | {
    "max": "maximum",
    "min": "minimum",
}


@lru_cache(maxsize=1024)
def folded(program: Program, rows: int) -> Program:
    """Return the program that combines some rows with what lies in memory so far, instead of reducing a row.

    Inputs are those of the first row, of the second and so on, then the accumulators; so are outputs.
    """
    inputs, scalars, count = len(program.inputs), len(program.scalars), len(program.reductions)
    begin = inputs * rows + count
    following = begin + scalars

    def numbers(row: int) -> list[int]:
        first = following + row * len(program.steps)
        own = range(row * inputs, (row + 1) * inputs)
        return [*own, *range(begin, following), *range(first, first + len(program.steps))]

    each = [numbers(row) for row in range(rows)]
    steps = [step._replace(args=tuple(own[arg] for arg in step.args)) for own in each for step in program.steps]
    outputs = [own[number] for own in each for number in program.outputs]

    def add(op: Any, args: tuple[int, ...], loop: DType, dtype: DType) -> int:
        steps.append(Step(op, (), args, (loop,) * len(args), dtype))
        return following + len(steps) - 1

    for place, reduction in enumerate(program.reductions):
        terms: list[int] = []
        for own in each:
            value, dtype = own[reduction.arg], program.dtypes[reduction.arg]
            for wanted in _conversions(reduction):
                value, dtype = add(_CONVERT, (value,), dtype, wanted), wanted
            terms.append(value)
        combined = Named(COMBINING[reduction.op.name])
        while len(terms) > 1:
            terms = [*terms[2:], add(combined, (terms[0], terms[1]), reduction.dtype, reduction.dtype)]
        outputs.append(add(combined, (inputs * rows + place, terms[0]), reduction.dtype, reduction.dtype))
    known = tuple((each[0][number], value) for number, value in program.known)
    dtypes = tuple(reduction.dtype for reduction in program.reductions)
    return the_program((*program.inputs * rows, *dtypes), program.scalars, known, tuple(steps), tuple(outputs), ())


def _conversions(reduction: Reduction) -> list[DType]:
    """Return the dtypes an element passes through before it is combined."""
    truth = [BOOL] if reduction.op.name in ("any", "all", "count_nonzero") else []
    return [*truth, reduction.dtype]

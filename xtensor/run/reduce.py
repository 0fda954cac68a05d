"""Reductions meet memory: along rows, in registers; over outer axes, by combining rows with accumulators in memory.

Results depend on shapes and strides alone, never on the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any

from ..base.dtypes import DType
from ..base.layout import Shape, c_strides
from ..codegen.cpu.accumulators import identity
from ..codegen.cpu.loop import check
from ..codegen.cpu.vector import BOOL
from ..graph.node import COMBINING
from ..plan import costs
from ..plan.program import Named, Program, Reduction, Step
from ..plan.program import program as the_program
from .maps import nest_launch
from .native import SCRATCH, Launch, Making, Place, Scalar, scalar_word
from .nest import Box, Nest, nest_of, parts_of, row_boxes, shared_out, whole

# Reduced axes are cut into pieces of so many elements (innermost) or rows (outer), whatever the number of threads.
PIECE, PIECE_ROWS = 16384, 512

# The most rows that are not cut if the array fits the caches: the destination accumulates. Rows combined at once.
UNCUT_ROWS, GROUP = 4096, 4

# Reduced rows of at most so many elements are columns of loops along axes of at least so many elements. All rows of so
# few are combined at once, by so many steps at most.
SHORT, LONG, UNROLLED = 8, 16, 256


def reduction_launches(
    program: Program,
    shape: Shape,
    axes: Sequence[int],
    strides: Sequence[Shape],
    places: Sequence[Place],
    scalars: Sequence[Scalar],
    making: Making,
) -> list[Launch]:
    """Return a program with reductions over some axes of a shape as launches.

    strides, places: of its inputs, its outputs and the reductions' results, which have stride 0 along reduced axes.
    Raises LacksError where generated code lacks a step.
    """
    check(program)
    lead = max(strides[: len(program.inputs)], key=lambda one: sum(stride != 0 for stride in one))
    return _over(program, nest_of(shape, strides, lead, axes), places, scalars, making)


def _over(
    program: Program, nest: Nest, places: Sequence[Place], scalars: Sequence[Scalar], making: Making
) -> list[Launch]:
    """Return a program with reductions over a nest as launches."""
    nest = _with_long_rows(nest)
    if nest.reduced[-1]:
        return _along_rows(program, nest, places, scalars, making)
    return _by_folding(program, nest, places, scalars, making)


def _with_long_rows(nest: Nest) -> Nest:
    """Return a nest with its last loop that is not reduced innermost, if it is long and the rows reduced now are short:
    squares of four pixels, or coordinates of points.
    """
    kept = [place for place, reduced in enumerate(nest.reduced) if not reduced]
    if not kept or not nest.reduced[-1] or nest.lengths[-1] > SHORT or nest.lengths[kept[-1]] < LONG:
        return nest
    order = [place for place in range(len(nest.lengths)) if place != kept[-1]] + [kept[-1]]
    strides = [tuple([one[place] for place in order]) for one in nest.strides]
    return Nest(tuple([nest.lengths[n] for n in order]), tuple(strides), tuple([nest.reduced[n] for n in order]))


def _along_rows(
    program: Program, nest: Nest, places: Sequence[Place], scalars: Sequence[Scalar], making: Making
) -> list[Launch]:
    """Return launches that reduce along the innermost axis, in pieces, then combine these and other reduced axes."""
    outer, inner = nest.lengths[:-1], nest.lengths[-1]
    plain = len(nest.strides) - len(program.reductions)
    pieces = -(-inner // PIECE)
    straight = pieces == 1 and not any(nest.reduced[:-1])
    strides: list[tuple[int, ...]] = [(*one[:-1], one[-1] * PIECE, one[-1]) for one in nest.strides[:plain]]
    own, afterwards = list(places[:plain]), list[Launch]()
    for reduction, target, place in zip(program.reductions, nest.strides[plain:], places[plain:], strict=True):
        if straight:
            strides.append((*target[:-1], 0, 0))
            own.append(place)
            continue
        room = (*outer, pieces)
        own.append(_room(reduction, room, making))
        strides.append((*c_strides(room, reduction.dtype.itemsize), 0))
        parts = Nest(room, (strides[-1][:-1], (*target[:-1], 0)), (*nest.reduced[:-1], True))
        afterwards += _joined_rows(reduction, parts, (own[-1], place), making)
    loops = Nest((*outer, pieces, min(inner, PIECE)), tuple(strides), (False,) * (len(outer) + 2))
    full, rest = divmod(inner, PIECE)
    boxes = []
    if full:
        boxes += row_boxes(Box((0,) * len(loops.lengths), (*outer, full, PIECE)), making.threads)
    if rest:
        boxes.append(Box((*(0,) * len(outer), full, 0), (*outer, 1, rest)))
    if not full:
        boxes = row_boxes(boxes[0], making.threads)
    groups = shared_out(boxes, making.threads)
    return [nest_launch(program, loops, groups, own, scalars, making), *afterwards]


def _room(reduction: Reduction, shape: Shape, making: Making) -> Place:
    """Return memory for partial results of a reduction."""
    return Place(SCRATCH, making.scratch.take(prod(shape) * reduction.dtype.itemsize))


def _joined_rows(reduction: Reduction, parts: Nest, places: tuple[Place, Place], making: Making) -> list[Launch]:
    """Return launches that combine partial results: pieces of rows, along the last loop, then other reduced loops.

    parts: the loops over packed partial results and the destination; places: of both.
    """
    joining, (outer, pieces) = _joining(reduction), (parts.lengths[:-1], parts.lengths[-1])
    if prod(parts.lengths) <= costs.JOINED_ALONE:
        making = making._replace(threads=1)
    others = parts.reduced[:-1]
    alone = (*(False for _ in others), True)
    if not any(others):
        return _over(joining, parts._replace(reduced=alone), places, (), making)
    found, (given, place), target = list[Launch](), places, parts.strides[1][:-1]
    own = c_strides(outer, reduction.dtype.itemsize)
    if pieces > 1:
        rows = _room(reduction, outer, making)
        found += _over(joining, Nest(parts.lengths, (parts.strides[0], (*own, 0)), alone), (given, rows), (), making)
        given = rows
    return found + _over(joining, Nest(outer, (own, target), others), (given, place), (), making)


def _joining(reduction: Reduction) -> Program:
    """Return the program that reduces partial results of a reduction."""
    name = {"count_nonzero": "sum"}.get(reduction.op.name, reduction.op.name)
    joined = Reduction(Named(name, "reduction"), (), 0, reduction.dtype)
    return the_program((reduction.dtype,), (), (), (), (), (joined,))


def _by_folding(
    program: Program, nest: Nest, places: Sequence[Place], scalars: Sequence[Scalar], making: Making
) -> list[Launch]:
    """Return launches that reduce outer axes by combining rows, some at a time, with accumulators in memory.

    The first of these axes is cut into pieces of rows that have accumulators of their own; if there is one piece, the
    destination itself accumulates. All this depends on the shape alone, never on the threads.
    """
    reduces = True in nest.reduced
    if not reduces:
        nest = Nest((1, *nest.lengths), tuple((0, *one) for one in nest.strides), (True, *nest.reduced))
    axis, plain = nest.reduced.index(True), len(nest.strides) - len(program.reductions)
    length = nest.lengths[axis]
    size = piece_of(length, prod(nest.lengths) * program.widest)
    pieces = -(-length // size)
    aside = pieces > 1 or not reduces  # if nothing is reduced, the destination may be an input, too
    accumulators, own = list[tuple[int, ...]](), list(places[:plain])
    before, afterwards = list[Launch](), list[Launch]()
    kept = [place for place, reduced in enumerate(nest.reduced) if not reduced]
    lengths = tuple([nest.lengths[place] for place in kept])
    for reduction, target, place in zip(program.reductions, nest.strides[plain:], places[plain:], strict=True):
        into = tuple([target[place] for place in kept])
        strides, here = (0, *target), place
        if aside:
            room = c_strides((pieces, *lengths), reduction.dtype.itemsize)
            here = _room(reduction, (pieces, *lengths), making)
            left = list(room)
            strides = tuple([0 if reduced else left.pop(0) for reduced in (False, *nest.reduced)])
            before.append(_filled(reduction, (pieces, *lengths), room, here, making))
            afterwards += _joined_pieces(reduction, pieces, lengths, (room, into), (here, place), making)
        else:
            before.append(_filled(reduction, lengths, into, place, making))
        accumulators.append(strides)
        own.append(here)
    folds = _folds(program, nest, axis, size, pieces, accumulators, own, scalars, making)
    return [*before, *folds, *afterwards]


def _filled(reduction: Reduction, lengths: Shape, strides: Shape, place: Place, making: Making) -> Launch:
    """Return the launch that writes the initial value of a reduction's accumulators."""
    fill = the_program((), (reduction.dtype,), (), (), (0,), ())
    word = scalar_word(identity(reduction), reduction.dtype)
    nest = nest_of(lengths, (strides,), strides)
    return nest_launch(fill, nest, [[whole(nest)]], (place,), (word,), making)


def _joined_pieces(
    reduction: Reduction,
    pieces: int,
    lengths: Shape,
    strides: tuple[Shape, Shape],
    places: Sequence[Place],
    making: Making,
) -> list[Launch]:
    """Return launches that combine the accumulators of pieces, one after the other, in the destination.

    lengths: of the loops that are kept. strides, places: of the accumulators, by piece first, and the destination.
    """
    nest = Nest((pieces, *lengths), (strides[0], (0, *strides[1])), (True, *(False,) * len(lengths)))
    alone = making._replace(threads=1)
    fill = _filled(reduction, lengths, strides[1], places[1], alone)
    joining, accumulators = _joining(reduction), [(0, 0, *strides[1])]
    boxes = [Box((0,) * (len(lengths) + 2), (1, *nest.lengths))]
    moved = [(0, *strides[0])]
    fold = _fold(joining, 1, [0], (1, *nest.lengths), moved, accumulators, boxes, places, (), alone)
    return [fill, fold]


def _folds(
    program: Program,
    nest: Nest,
    axis: int,
    size: int,
    pieces: int,
    accumulators: Sequence[tuple[int, ...]],
    places: Sequence[Place],
    scalars: Sequence[Scalar],
    making: Making,
) -> list[Launch]:
    """Return launches that combine rows, first in groups and then those that are left, with accumulators.

    size: the rows of a piece, along an axis of the nest.
    """
    plain, length = len(nest.strides) - len(program.reductions), nest.lengths[axis]
    group = length if length <= SHORT and length * len(program.steps) <= UNROLLED else GROUP
    grouped, folds = length - length % group, list[Launch]()
    steps = [one[axis] for one in nest.strides[:plain]]
    for rows, taken in ((group, range(grouped)), (1, range(grouped, length))):
        if not taken:
            continue
        moved = [(one[axis] * size, *one[:axis], one[axis] * rows, *one[axis + 1 :]) for one in nest.strides[:plain]]
        lengths = (pieces, *nest.lengths[:axis], size // rows, *nest.lengths[axis + 1 :])
        boxes = [
            Box(
                (piece, *(0,) * axis, max(taken[0] - piece * size, 0) // rows, *(0,) * (len(lengths) - axis - 2)),
                (1, *lengths[1 : axis + 1], _within(taken, piece, size) // rows, *lengths[axis + 2 :]),
            )
            for piece in range(taken[0] // size, -(-taken.stop // size))
        ]
        folds.append(_fold(program, rows, steps, lengths, moved, accumulators, boxes, places, scalars, making))
    return folds


def piece_of(rows: int, nbytes: int) -> int:
    """Return how many of `rows` rows make a piece. nbytes: of all rows, with the widest elements of the program."""
    return rows if nbytes <= costs.CACHE_BYTES and rows <= UNCUT_ROWS else min(rows, PIECE_ROWS)


def _within(taken: range, piece: int, size: int) -> int:
    """Return how many of the taken rows lie in a piece."""
    return min(taken.stop, (piece + 1) * size) - max(taken.start, piece * size)


def _fold(
    program: Program,
    rows: int,
    steps: Sequence[int],
    lengths: tuple[int, ...],
    moved: list[tuple[int, ...]],
    accumulators: Sequence[tuple[int, ...]],
    boxes: Sequence[Box],
    places: Sequence[Place],
    scalars: Sequence[Scalar],
    making: Making,
) -> Launch:
    """Return the launch that combines so many rows at a time with accumulators, over boxes cut into strips of columns.

    steps: bytes from one row to the next, of inputs and outputs. places: of these, and of the accumulators.
    """
    folding, inputs = folded(program, rows), len(program.inputs)
    every = (*moved[:inputs] * rows, *accumulators, *moved[inputs:] * rows, *accumulators)
    width = min(
        costs.FOLD_STRIP, -(-lengths[-1] * len(boxes) // (making.threads * 64)) * 64
    )  # begin where cache lines do
    strips = [strip for box in boxes for strip in parts_of(box, len(lengths) - 1, width)]
    if len(strips) < making.threads:
        axis = max(range(len(lengths)), key=lambda n: lengths[n] if all(one[n] for one in accumulators) else 0)
        strips = [part for one in strips for part in parts_of(one, axis, -(-one.lengths[axis] // making.threads))]
    far = prod(lengths) * rows * program.widest > costs.STREAM_BYTES
    ahead = {place: rows * steps[place % inputs] or costs.AHEAD for place in range(inputs * rows if far else 0)}
    loops = Nest(lengths, every, (False,) * len(lengths))

    def by_row(first: int, stop: int) -> list[Place]:
        every = [(places[at], row * steps[at]) for row in range(rows) for at in range(first, stop)]
        return [Place(place.number, place.after + further) for place, further in every]

    own = list(places[len(moved) :])
    given = [*by_row(0, inputs), *own, *by_row(inputs, len(moved)), *own]
    return nest_launch(folding, loops, shared_out(strips, making.threads), given, scalars, making, ahead=ahead)


# ---- rows combined with accumulators in memory


_CONVERT = Named("astype")


@lru_cache(maxsize=1024)
def folded(program: Program, rows: int) -> Program:
    """Return the program that combines some rows with accumulators in memory, instead of reducing a row.

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

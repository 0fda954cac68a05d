"""Elementwise kernels meet memory: how their loops are cut, and whether results bypass the caches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from ..base.layout import Shape
from ..codegen.cpu.compile import code_of, host, the_host
from ..codegen.cpu.kernel import source
from ..codegen.cpu.loop import brief, lanes_of
from ..codegen.cpu.moves import CROSSWISE, PACKED, SAME, Form
from ..codegen.cpu.tiles import WIDTH, width
from ..plan import costs
from ..plan.program import Program
from .native import Launch, Making, Place, Scalar, launch_of
from .nest import Box, Nest, lie_of, nest_of, parts_between, parts_of, rolled_nest, shared_out, whole

# The most loops inside one kernel; it is called for each step of further outer loops.
DEPTH = 4


def map_launch(
    program: Program,
    shape: Shape,
    strides: Sequence[Shape],
    places: Sequence[Place],
    scalars: Sequence[Scalar],
    making: Making,
    *,
    shifts: Sequence[Sequence[int]] = (),
) -> Launch:
    """Return a program without reductions as a launch over a shape.

    strides, places: of its inputs and outputs. shifts: by how many places each operand is rolled along each axis, empty
    for those that are not. Raises LacksError where generated code lacks a step.
    """
    if any([by % length for one in shifts for by, length in zip(one, shape, strict=False)]):
        nest = rolled_nest(shape, strides, strides[len(program.inputs)], shifts)
        boxes = [part for box in _map_boxes(nest, making.threads) for part in parts_between(box, nest)]
        return nest_launch(program, nest, shared_out(boxes, making.threads), places, scalars, making)
    nest, crosswise = _turned(program, nest_of(shape, strides, strides[len(program.inputs)]))
    sizes = [dtype.itemsize for dtype in program.moved]
    streams = making.aligned and can_stream(program, nest)
    if crosswise:
        lanes = _lanes(program)
        boxes = _tile_boxes(nest, making.threads, lanes)
        further = [lanes * one[-2] for one in nest.strides]  # the same columns of the next tile
    elif _has_short_rows(program, nest):
        nest, further = _along_columns(nest), [costs.AHEAD] * len(nest.strides)
        size = min(-(-nest.lengths[-1] // making.threads), costs.COLUMN_STRIP)
        boxes = parts_of(whole(nest), len(nest.lengths) - 1, -(-size // 64) * 64)
    else:
        boxes = _map_boxes(nest, making.threads)
        further = [costs.AHEAD] * len(nest.strides)
        if streams and (len(nest.lengths) == 1 or nest.lengths[-1] * max(sizes) <= costs.ROW_PART):
            boxes = _backwards(boxes, program.widest)
        if streams and len(nest.lengths) > 1 and nest.lengths[-2] >= costs.MANY_ROWS:
            boxes = _row_parts(boxes, nest.lengths[-1], max(sizes))
            further = [costs.AHEAD_ROWS * one[-2] or costs.AHEAD for one in nest.strides]
    ahead = {place: further[place] for place in range(len(program.inputs) if streams else 0)}
    groups = shared_out(boxes, making.threads)
    return nest_launch(
        program, nest, groups, places, scalars, making, streams=streams, ahead=ahead, crosswise=crosswise
    )


def nest_launch(
    program: Program,
    nest: Nest,
    groups: Sequence[Sequence[Box]],
    places: Sequence[Place],
    scalars: Sequence[Scalar],
    making: Making,
    *,
    streams: bool = False,
    ahead: Mapping[int, int] | None = None,
    crosswise: Sequence[int] = (),
) -> Launch:
    """Return a program as a launch over a nest; operands of reductions come last and have no innermost stride.

    streams: whether outputs bypass the caches. ahead: how many bytes ahead inputs are prefetched, by their places.
    crosswise: the inputs that are transposed in tiles.
    """
    plain = len(nest.strides) - len(program.reductions)
    sizes = [dtype.itemsize for dtype in program.moved]
    lie = [lie_of(s[-1], size) for s, size in zip(nest.strides[:plain], sizes, strict=True)]
    for place in range(len(program.inputs), plain):
        if lie[place] == SAME:  # an output has no stride only if the loop has one iteration
            lie[place] = PACKED
    for place in crosswise:
        lie[place] = CROSSWISE
    machine = the_host()
    depth = min(len(nest.lengths), DEPTH)
    lanes = lanes_of(program, machine.vector_bytes)
    tiles = [lanes * width(lanes) * sizes[place] for place in crosswise]
    fetched = {place: distance for place, distance in (ahead or {}).items() if lie[place] == PACKED}
    form, contract = Form(lanes, depth, tuple(lie), streams and machine.streams, tuple(fetched)), making.contract
    code = code_of(
        (program, form, contract),
        lambda: source(program, form, contract=contract),
        lambda: source(program, brief(program, form, machine.vector_bytes), contract=contract),
    )
    lies = [*lie, *(None for _ in program.reductions)]
    return launch_of(
        code, nest, depth, lies, groups, places, scalars, making, ahead=fetched, own=tiles, goes_on=form.streams
    )


def _has_short_rows(program: Program, nest: Nest) -> bool:
    """Return whether rows are shorter than vectors, and so many that a loop along columns takes less time: as for
    points in space, or pixels of three colours.
    """
    lengths, short = nest.lengths, lanes_of(program, min(host().vector_bytes, costs.SHORT_ROW))  # type: ignore[union-attr]
    return len(lengths) > 1 and lengths[-1] < short and lengths[-2] >= 8 * lengths[-1]


def _along_columns(nest: Nest) -> Nest:
    """Return a nest with its two innermost loops exchanged, so that the long loop over short rows is innermost."""
    turned = [(*one[:-2], one[-1], one[-2]) for one in (nest.lengths, *nest.strides)]
    return Nest(turned[0], tuple(turned[1:]), (*nest.reduced[:-2], nest.reduced[-1], nest.reduced[-2]))


def _backwards(boxes: Sequence[Box], itemsize: int) -> list[Box]:
    """Return boxes in pieces, those of each from its last: after a reduction, the end is still in the cache."""
    found: list[Box] = []
    for box in boxes:
        row = prod(box.lengths[1:]) * itemsize
        size = max(costs.BACKWARDS // row, 1) if len(box.lengths) > 1 else costs.BACKWARDS // itemsize
        found += parts_of(box, 0, size)[::-1]
    return found


def _row_parts(boxes: Sequence[Box], length: int, itemsize: int) -> list[Box]:
    """Return boxes cut through the rows of a nest, into as few equal parts as are short enough."""
    parts = -(-length * itemsize // costs.ROW_PART)
    size = -(-length // (parts * 64)) * 64
    return [part for box in boxes for part in parts_of(box, len(box.lengths) - 1, size)]


def _lanes(program: Program) -> int:
    return lanes_of(program, host().vector_bytes)  # type: ignore[union-attr]


def _turned(program: Program, nest: Nest) -> tuple[Nest, list[int]]:
    """Return the nest with the axis along which some inputs are packed moved next to the innermost, and these inputs.

    If inputs are packed along several such axes, the axis of the first of them is taken.
    """
    lengths, lanes = nest.lengths, _lanes(program)
    axis, found = -1, []
    for place, (dtype, strides) in enumerate(zip(program.inputs, nest.strides, strict=False)):
        if strides[-1] in (0, dtype.itemsize) or dtype.itemsize not in strides[:-1] or dtype.kind == "c":
            continue
        own = strides.index(dtype.itemsize)
        if axis in (-1, own) and min(lengths[own], lengths[-1]) >= lanes:
            axis = own
            found.append(place)
    if not found or axis == len(lengths) - 2:
        return nest, found
    order = [*(a for a in range(len(lengths) - 1) if a != axis), axis, len(lengths) - 1]
    turned = [tuple([one[a] for a in order]) for one in (lengths, *nest.strides)]
    return Nest(turned[0], tuple(turned[1:]), nest.reduced), found


def _tile_boxes(nest: Nest, threads: int, lanes: int) -> list[Box]:
    """Return the parts of a nest with tiles: one per thread, cut between tiles, and strips of columns in each."""
    boxes = [whole(nest)]
    longest = int(np.argmax(nest.lengths[:-1]))
    if threads > 1:
        step = lanes if longest == len(nest.lengths) - 2 else 1
        boxes = parts_of(boxes[0], longest, -(-nest.lengths[longest] // (threads * step)) * step)
    columns = nest.lengths[-1]
    even = -(-columns // -(-columns // WIDTH))
    strip = -(-even // lanes) * lanes
    return [part for box in boxes for part in parts_of(box, len(nest.lengths) - 1, strip)]


def can_stream(program: Program, nest: Nest) -> bool:
    """Return whether outputs may bypass the caches: they are large, packed alike, with vectors of at least 16 bytes."""
    sizes = [program.dtypes[number].itemsize for number in program.outputs]
    inner = nest.lengths[-1] * min(sizes)
    if prod(nest.lengths) * max(sizes) < costs.STREAM_BYTES or (len(nest.lengths) > 1 and inner < costs.STREAM_ROW):
        return False
    lanes = _lanes(program)
    written = [
        [divmod(stride, size) for stride in strides]
        for size, strides in zip(sizes, nest.strides[len(program.inputs) :], strict=False)
    ]
    return written[0][-1] == (1, 0) and all(
        lanes * size >= 16 and steps == written[0] for size, steps in zip(sizes, written, strict=True)
    )


def _map_boxes(nest: Nest, threads: int) -> list[Box]:
    """Return the parts of an elementwise nest: strips where operands lie crosswise, else one per thread."""
    box = whole(nest)
    if _is_crosswise(nest):
        return parts_of(box, len(nest.lengths) - 1, costs.CROSS_STRIP)
    if threads == 1:
        return [box]
    axis = 0 if nest.lengths[0] >= threads else int(np.argmax(nest.lengths))
    size = -(-nest.lengths[axis] // threads)
    if axis == len(nest.lengths) - 1:
        size = -(-size // 64) * 64  # parts begin where a cache line does
    return parts_of(box, axis, size)


def _is_crosswise(nest: Nest) -> bool:
    """Return whether some operand's fastest axis is not the innermost one, over more than a strip."""
    if len(nest.lengths) < 2 or nest.lengths[-1] <= costs.CROSS_STRIP:
        return False
    return any(
        abs(strides[-1]) > 64 and any(0 < abs(stride) < abs(strides[-1]) for stride in strides[:-1])
        for strides in nest.strides
    )


class Operand(NamedTuple):
    """Where an operand lies: the address of its first element, and its strides in bytes over the whole domain."""

    address: int
    strides: Shape
    itemsize: int


def traffic_of(shape: Shape, operands: Sequence[Operand]) -> int:
    """Estimate the bytes that one element of a shape moves to and from memory.

    Views of one array a few rows apart move it once, and operands that repeat move nothing. An operand that lies
    crosswise takes as long as three times its bytes.
    """
    size, found, moved = prod(shape), list[Operand](), 0
    for one in operands:
        steps = [stride for stride, length in zip(one.strides, shape, strict=True) if length != 1]
        near = [other for other in found if abs(other.address - one.address) * 8 < size * one.itemsize]
        if 0 in steps or any(other.strides == one.strides for other in near):
            continue
        found.append(one)
        crosswise = len(steps) > 1 and steps[-1] != one.itemsize and one.itemsize in steps
        moved += one.itemsize * (3 if crosswise else 1)
    return moved

"""Loop nests: the loops over a shape, ordered by memory and joined where they can be, and the parts they are cut into.

Axes are ordered by the strides of the operand that matters most, and joined where every operand's strides allow it
(mshadow's flattening, for any number of axes). Operands with different fastest axes are walked in strips.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from ..base.layout import Shape
from ..codegen.cpu.moves import PACKED, SAME, STRIDED

Mark = TypeVar("Mark")


class Nest(NamedTuple):
    """Loops from the outermost: their lengths, each operand's strides, and which of them are reduced.

    shifts: if some operand is rolled, by how many places each operand is along each loop.
    """

    lengths: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]
    reduced: tuple[bool, ...]
    shifts: tuple[tuple[int, ...], ...] = ()

    def offsets(self, position: Sequence[int]) -> list[int]:
        """Return the offset of each operand at a position from its first element."""
        found = []
        for place, strides in enumerate(self.strides):
            at = self._seen_at(position, place) if self.shifts else position
            found.append(sum([i * s for i, s in zip(at, strides, strict=True)]))
        return found

    def _seen_at(self, position: Sequence[int], place: int) -> Sequence[int]:
        """Return the position in an operand, before it is rolled, of a position in the nest."""
        shifts = self.shifts[place]
        return [(i - by) % length for i, by, length in zip(position, shifts, self.lengths, strict=True)]


def nest_of(shape: Shape, strides: Sequence[Shape], lead: Shape, axes: Sequence[int] = ()) -> Nest:
    """Return as few loops over a shape as possible, in the order of falling strides in `lead`."""
    order = [axis for axis, length in enumerate(shape) if length != 1]
    if len(order) > 1:
        order.sort(key=lambda axis: (-abs(lead[axis]), axis))
    reduced = [axis in axes for axis in order]
    lengths, merged, kept = joined(
        [shape[axis] for axis in order], [[one[axis] for axis in order] for one in strides], reduced
    )
    if not lengths:
        lengths, merged, kept = [1], [[0] for _ in strides], [False]
    return Nest(tuple(lengths), tuple(map(tuple, merged)), tuple(kept))


def rolled_nest(shape: Shape, strides: Sequence[Shape], lead: Shape, shifts: Sequence[Sequence[int]]) -> Nest:
    """Return the same if operands are rolled. shifts: by how many places along each axis, empty for an operand that is
    not rolled. An axis along which an operand is rolled is not joined with others.
    """
    order = [axis for axis, length in enumerate(shape) if length != 1]
    order.sort(key=lambda axis: (-abs(lead[axis]), axis))
    by = [[(one[axis] if one else 0) % shape[axis] for axis in order] for one in shifts]
    marks = [axis if any(one[place] for one in by) else -1 for place, axis in enumerate(order)]
    operands = [[one[axis] for axis in order] for one in strides]
    lengths, merged, _ = joined([shape[axis] for axis in order], [*operands, *by], marks)
    moved, rolled = [tuple(one) for one in merged[: len(strides)]], [tuple(one) for one in merged[len(strides) :]]
    return Nest(tuple(lengths), tuple(moved), (False,) * len(lengths), tuple(rolled))


def joined(
    lengths: Sequence[int], strides: Sequence[Sequence[int]], marks: Sequence[Mark]
) -> tuple[list[int], list[list[int]], list[Mark]]:
    """Return neighbouring loops as one where every operand's strides allow it, and both have the same mark."""
    kept: list[int] = []
    merged: list[list[int]] = [[] for _ in strides]
    marked: list[Mark] = []
    for place, (length, mark) in enumerate(zip(lengths, marks, strict=True)):
        steps = [one[place] for one in strides]
        if kept and marked[-1] == mark and all(m[-1] == s * length for m, s in zip(merged, steps, strict=True)):
            kept[-1] *= length
            for m, s in zip(merged, steps, strict=True):
                m[-1] = s
        else:
            kept.append(length)
            marked.append(mark)
            for m, s in zip(merged, steps, strict=True):
                m.append(s)
    return kept, merged, marked


def lie_of(inner: int, itemsize: int) -> str:
    """Return how an operand lies along an innermost axis of this stride."""
    return PACKED if inner == itemsize else SAME if inner == 0 else STRIDED


class Box(NamedTuple):
    """A part of a nest: where it starts along each loop, and how long it is."""

    starts: tuple[int, ...]
    lengths: tuple[int, ...]


def whole(nest: Nest) -> Box:
    return Box((0,) * len(nest.lengths), nest.lengths)


def parts_of(box: Box, axis: int, size: int) -> list[Box]:
    """Return a box cut along an axis into pieces of a size, the last one perhaps smaller."""
    start, length = box.starts[axis], box.lengths[axis]
    pieces = []
    for at in range(0, length, size):
        starts = (*box.starts[:axis], start + at, *box.starts[axis + 1 :])
        lengths = (*box.lengths[:axis], min(size, length - at), *box.lengths[axis + 1 :])
        pieces.append(Box(starts, lengths))
    return pieces


def parts_between(box: Box, nest: Nest) -> list[Box]:
    """Return a box cut where rolled operands wrap around."""
    boxes = [box]
    for axis, length in enumerate(nest.lengths):
        cuts = sorted({one[axis] for one in nest.shifts if one[axis] < length})
        for cut in cuts:
            boxes = [part for one in boxes for part in _parted(one, axis, cut)]
    return boxes


def _parted(box: Box, axis: int, cut: int) -> list[Box]:
    """Return a box cut in two at a place along an axis, or as it is if the place is not inside."""
    before = cut - box.starts[axis]
    if not 0 < before < box.lengths[axis]:
        return [box]
    lengths, starts = [*box.lengths], [*box.starts]
    lengths[axis] = before
    first = Box(box.starts, tuple(lengths))
    starts[axis], lengths[axis] = cut, box.lengths[axis] - before
    return [first, Box(tuple(starts), tuple(lengths))]


def row_boxes(box: Box, threads: int) -> list[Box]:
    """Return a box cut between rows, one part for each thread."""
    lengths = box.lengths[:-1]
    if not lengths:
        return [box]
    axis = int(np.argmax(lengths))
    return parts_of(box, axis, -(-lengths[axis] // threads))


def shared_out(boxes: Sequence[Box], threads: int) -> list[Sequence[Box]]:
    """Return boxes as one group for each thread."""
    threads = min(threads, len(boxes))
    return [boxes[len(boxes) * part // threads : len(boxes) * (part + 1) // threads] for part in range(threads)]

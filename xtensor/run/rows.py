"""Row programs meet memory: which operands a plan's rows have, how they lie, and what threads share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from ..base.layout import Shape, c_strides
from ..base.threads import worth
from ..codegen.cpu.compile import code_of, host
from ..codegen.cpu.loop import PACKED, SAME
from ..codegen.cpu.primitives import LacksError
from ..codegen.cpu.rows import RowForm, outside, own_rows, source
from ..plan.program import Plan
from ..plan.rows import GIVEN, KEPT, RowProgram, numbers_of, row_program
from ..storage.blob import TBlob
from ..storage.pool import ALIGNMENT
from .launch import (
    Nest,
    Ready,
    can_stream,
    nest_of,
    operand,
    remembered,
    row_boxes,
    scalars_of,
    seconds_together,
    shared_out,
    whole,
)

# The longest row, in bytes of one operand, that is worth it: it has to stay in the cache from stage to stage.
ROW_BYTES = 256 * 1024

# Rows further on are fetched where they are shorter, and all of them are more bytes: processors look ahead within a
# row and no further. (Layer norm of 10 000 x 1000 takes .85 of the time in float32, .53 in float64, softmax 1.02 and
# .9; with the next row alone .94, .7, 1.02 and .89. What fits the last-level cache takes longer.)
NEAR, FAR = 16 * 1024, 24 << 20


class Rows(NamedTuple):
    """A plan ready to run by rows. numbers: of the values whose addresses it takes."""

    ready: Ready
    numbers: tuple[int, ...]


def pays(plan: Plan, shape: Shape) -> bool:
    """Return whether running by rows is possible and worth it for a domain of this shape."""
    cells = prod(shape[plan.rows :])
    widest = max(kernel.program.widest for kernel in plan.kernels)
    return 0 not in shape and cells > 1 and cells * widest <= ROW_BYTES


def run(plan: Plan, shape: Shape, values: Sequence[Any], blobs: Mapping[int, TBlob], contract: bool) -> None:
    """Run a plan's kernels row by row; raise LacksError, with nothing done, where that cannot be.

    blobs: what lies in memory: inputs, and results that are kept.
    """
    threads = worth(seconds_together(plan.kernels, plan.kept, values))
    aligned = not any([blobs[number].address % ALIGNMENT for number in plan.kept])
    layouts = tuple([(n, blob.layout.shape, blob.layout.strides) for n, blob in blobs.items()])
    key = (plan.kernels, plan.kept, shape, layouts, contract, threads, aligned)

    def make() -> Rows | LacksError:
        try:
            return ready_rows(plan, shape, values, blobs, contract, threads, aligned)
        except LacksError as lack:
            return lack

    made: Rows | LacksError = remembered(plan.kernels[0].program, key, make)
    if isinstance(made, LacksError):
        raise made
    made.ready.run([blobs[number].address for number in made.numbers], scalars_of(plan.kernels, values))


def ready_rows(
    plan: Plan,
    shape: Shape,
    values: Sequence[Any],
    blobs: Mapping[int, TBlob],
    contract: bool,
    threads: int,
    aligned: bool,
) -> Rows:
    """Return a plan ready to run by rows; raises LacksError where rows lie in too many ways.

    aligned: whether results that are kept begin at cache lines.
    """
    rows, nest = formed(plan, shape, values, blobs)
    machine = host()
    assert machine is not None
    given, numbers = outside(rows), numbers_of(plan)
    can = aligned and machine.streams
    streams = tuple([can and _can_stream(rows, place, nest) for place in range(len(rows.stages))])
    ahead = _next_rows(rows, nest)
    form = RowForm(len(nest.lengths), machine.vector_bytes, streams, tuple([given[place] for place in ahead]))
    code = code_of((rows, form, contract), lambda: source(rows, form, contract=contract))
    lie = [PACKED if rows.items[place].wide else SAME for place in given]
    own = [nest.lengths[-1] * rows.items[place].dtype.itemsize for place in own_rows(rows)]
    groups = shared_out(row_boxes(whole(nest), threads), threads)
    ready = Ready(code, nest, lie, groups, ahead, own)
    return Rows(ready, tuple([numbers[place] for place in given]))


def formed(plan: Plan, shape: Shape, values: Sequence[Any], blobs: Mapping[int, TBlob]) -> tuple[RowProgram, Nest]:
    """Return the row program of a plan, and the loops over rows and cells of the items that lie outside.

    Raises LacksError where the cells of a row lie in too many ways.
    """
    numbers, cells = numbers_of(plan), len(shape) - plan.rows
    wide = {number: prod(values[number].shape[-cells:]) > 1 for number in numbers}
    strides = {number: operand(blobs[number], shape).strides for number in numbers if number in blobs}
    wide |= {number: any(one[-cells:]) for number, one in strides.items()}
    rows = row_program(plan, shape, values, wide)
    given = [numbers[place] for place in outside(rows)]
    nest = nest_of(shape, [strides[n] for n in given], c_strides(shape, 1), range(plan.rows, len(shape)))
    sizes = [values[n].dtype.itemsize * wide[n] for n in given]
    if sum(nest.reduced) > 1 or any([one[-1] != size for one, size in zip(nest.strides, sizes, strict=True)]):
        raise LacksError("row whose operands lie in too many ways")
    return rows, nest._replace(reduced=(False,) * len(nest.lengths))


def _next_rows(rows: RowProgram, nest: Nest) -> dict[int, int]:
    """Return the operands of which rows further on are fetched, by place, and the bytes from row to row."""
    found = {}
    for place, (number, strides) in enumerate(zip(outside(rows), nest.strides, strict=True)):
        item = rows.items[number]
        length = nest.lengths[-1] * item.dtype.itemsize
        far = length <= NEAR and length * prod(nest.lengths[:-1]) > FAR
        if far and item.role == GIVEN and item.wide and any(strides[:-1]):
            found[place] = strides[-2]
    return found


def _can_stream(rows: RowProgram, place: int, nest: Nest) -> bool:
    """Return whether what a stage writes may bypass the caches: nobody reads it again, and it is large."""
    stage, lies = rows.stages[place], dict(zip(outside(rows), nest.strides, strict=True))
    program = stage.program
    # A sum depends on where its rounds begin: they begin with the row.
    if not stage.wide or program.reductions or not program.outputs:
        return False
    if not all([rows.items[n].role == KEPT and not rows.reads_again(n, place) for n in stage.results]):
        return False
    nothing = (0,) * len(nest.lengths)
    moved = [lies.get(n, nothing) for n in (*stage.inputs, *stage.results)]
    return can_stream(program, Nest(nest.lengths, tuple(moved), nest.reduced))

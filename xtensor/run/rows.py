"""Row programs meet memory: the operands of a plan's rows, their layouts, and the parts for threads."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from ..base.layout import Shape, c_strides, strides_over
from ..codegen.cpu.compile import code_of, the_host
from ..codegen.cpu.moves import PACKED, SAME
from ..codegen.cpu.rows import RowForm, outside, own_rows, source
from ..codegen.cpu.vector import LacksError
from ..plan import costs
from ..plan.layouts import Meta, Work
from ..plan.program import Plan
from ..plan.rows import GIVEN, KEPT, RowProgram, numbers_of, row_program
from .maps import can_stream
from .native import Launch, Making, Place, launch_of, scalar_numbers
from .nest import Nest, nest_of, row_boxes, shared_out, whole


class ByRows:
    """All kernels of some work as one launch over the rows of a shape.

    Raises LacksError if the cells of a row have too many different layouts.
    """

    def __init__(self, work: Work, shape: Shape) -> None:
        plan = work.plan
        self.kernels, self.kept = plan.kernels, plan.kept
        self.words = f"row by row of {prod(shape[plan.rows :])} elements"
        self.seconds = work.seconds_together(self.kernels)
        self.aligned = work.is_aligned(sorted(self.kept))
        self.task = work.task(self.kernels, together=True)
        self._numbers = numbers_of(plan)
        self._rows, self._nest = _formed(plan, shape, work.metas)

    @classmethod
    def of(cls, work: Work, shape: Shape) -> ByRows | None:
        """Return work over a shape row by row, None where that is not possible or does not pay."""
        plan, cells = work.plan, prod(shape[work.plan.rows :])
        if not plan.rows or 0 in shape or cells <= 1:
            return None
        widest = max(kernel.program.widest for kernel in plan.kernels)
        try:
            return cls(work, shape) if cells * widest <= costs.ROW_BYTES else None
        except LacksError:
            return None

    def launches(self, making: Making) -> list[Launch]:
        """Return the launch; raises LacksError where generated code lacks a step."""
        rows, nest, contract = self._rows, self._nest, making.contract
        machine = the_host()
        given, can = outside(rows), making.aligned and machine.streams
        streams = tuple([can and _can_stream(rows, place, nest) for place in range(len(rows.stages))])
        ahead = _next_rows(rows, nest)
        form = RowForm(len(nest.lengths), machine.vector_bytes, streams, tuple([given[place] for place in ahead]))
        code = code_of((rows, form, contract), lambda: source(rows, form, contract=contract))
        lie = [PACKED if rows.items[place].wide else SAME for place in given]
        own = [nest.lengths[-1] * rows.items[place].dtype.itemsize for place in own_rows(rows)]
        groups = shared_out(row_boxes(whole(nest), making.threads), making.threads)
        places = [Place(self._numbers[place]) for place in given]
        scalars = [n for kernel in self.kernels for n in scalar_numbers(kernel.scalars, kernel.program.scalars)]
        return [launch_of(code, nest, len(nest.lengths), lie, groups, places, scalars, making, ahead=ahead, own=own)]


def _formed(plan: Plan, shape: Shape, metas: Mapping[int, Meta]) -> tuple[RowProgram, Nest]:
    """Return the row program of a plan, and the loops over rows and cells of the items in memory outside it.

    Raises LacksError if the cells of a row have too many different layouts.
    """
    numbers, cells = numbers_of(plan), len(shape) - plan.rows
    inside = {number for kernel in plan.kernels for number in kernel.results} - plan.kept
    wide = {number: prod(metas[number].shape[-cells:]) > 1 for number in numbers}
    strides = {number: strides_over(metas[number].layout, shape) for number in numbers if number not in inside}
    wide |= {number: any(one[-cells:]) for number, one in strides.items()}
    rows = row_program(plan, shape, metas, wide)
    given = [numbers[place] for place in outside(rows)]
    nest = nest_of(shape, [strides[n] for n in given], c_strides(shape, 1), range(plan.rows, len(shape)))
    sizes = [metas[n].dtype.itemsize * wide[n] for n in given]
    if sum(nest.reduced) > 1 or any([one[-1] != size for one, size in zip(nest.strides, sizes, strict=True)]):
        raise LacksError("row whose operands lie in too many ways")
    return rows, nest._replace(reduced=(False,) * len(nest.lengths))


def _next_rows(rows: RowProgram, nest: Nest) -> dict[int, int]:
    """Return the operands whose next rows are prefetched, by place, with the bytes from row to row."""
    found = {}
    for place, (number, strides) in enumerate(zip(outside(rows), nest.strides, strict=True)):
        item = rows.items[number]
        length = nest.lengths[-1] * item.dtype.itemsize
        far = length <= costs.ROW_NEAR and length * prod(nest.lengths[:-1]) > costs.ROW_FAR
        if far and item.role == GIVEN and item.wide and any(strides[:-1]):
            found[place] = strides[-2]
    return found


def _can_stream(rows: RowProgram, place: int, nest: Nest) -> bool:
    """Return whether the results of a stage may bypass the caches: no stage reads them again, and they are large."""
    stage, lies = rows.stages[place], dict(zip(outside(rows), nest.strides, strict=True))
    program = stage.program
    # The bits of a sum depend on where vectors begin, so they must begin with the row.
    if not stage.wide or program.reductions or not program.outputs:
        return False
    if not all([rows.items[n].role == KEPT and not rows.reads_again(n, place) for n in stage.results]):
        return False
    nothing = (0,) * len(nest.lengths)
    moved = [lies.get(n, nothing) for n in (*stage.inputs, *stage.results)]
    return can_stream(program, Nest(nest.lengths, tuple(moved), nest.reduced))

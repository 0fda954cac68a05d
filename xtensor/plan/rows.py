"""Row programs: reduce, then map over the same rows, all in one function, so that memory is read once.

Softmax is one: the largest of each row, the exponentials, their sum, the quotients. A row goes through all stages while
it is in the cache, or in shared memory; values with one number per row stay in registers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..base.dtypes import DType
from ..base.layout import Shape
from .program import Plan, Program

GIVEN, KEPT, INSIDE = "given", "kept", "inside"


class Item(NamedTuple):
    """A value of a row program: its dtype, whether it has one element per cell, and where it comes from or goes."""

    dtype: DType
    wide: bool
    role: str


class Stage(NamedTuple):
    """A program, the items it works on, and whether it goes over the cells or once per row."""

    program: Program
    inputs: tuple[int, ...]
    results: tuple[int, ...]
    wide: bool


class RowProgram(NamedTuple):
    """Stages that run in turn over each row; they number items of their own."""

    items: tuple[Item, ...]
    stages: tuple[Stage, ...]

    def reads_again(self, number: int, place: int) -> bool:
        """Return whether a stage after the one at a place reads an item."""
        return any([number in stage.inputs for stage in self.stages[place + 1 :]])


def numbers_of(plan: Plan) -> tuple[int, ...]:
    """Return the numbers of a plan's values in the order of a row program's items."""
    return tuple(dict.fromkeys(n for kernel in plan.kernels for n in (*kernel.inputs, *kernel.results)))


def row_program(plan: Plan, shape: Shape, values: Mapping[int, Any], wide: Mapping[int, bool]) -> RowProgram:
    """Return the row program of a plan whose kernels go over a shape or its rows.

    wide: by the number of a value, whether it has one element per cell.
    """
    made = {n for kernel in plan.kernels for n in kernel.results}
    numbers = numbers_of(plan)
    place = {number: at for at, number in enumerate(numbers)}

    def role(number: int) -> str:
        return (KEPT if number in plan.kept else INSIDE) if number in made else GIVEN

    return RowProgram(
        tuple([Item(values[n].dtype, wide[n], role(n)) for n in numbers]),
        tuple(
            [
                Stage(
                    kernel.program,
                    tuple([place[n] for n in kernel.inputs]),
                    tuple([place[n] for n in kernel.results]),
                    values[kernel.domain].shape == shape,
                )
                for kernel in plan.kernels
            ]
        ),
    )

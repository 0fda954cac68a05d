"""One kernel as loops of machine code: the launches of a map or a reduction over a shape."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ..base.layout import Shape, strides_over, strides_reduced
from ..plan import costs
from ..plan.layouts import APART, Work
from ..plan.program import Kernel
from .maps import Operand, map_launch, traffic_of
from .native import Launch, Making, Place, scalar_numbers
from .reduce import reduction_launches


class ByLoops:
    """A kernel over the shape of its domain."""

    def __init__(self, kernel: Kernel, work: Work) -> None:
        metas, numbers = work.metas, (*kernel.inputs, *kernel.results)
        self.kernel, self.task = kernel, work.task([kernel])
        self._shape, self._places = metas[kernel.domain].shape, [Place(number) for number in numbers]
        own, plain = [metas[number].layout for number in numbers], len(kernel.program.moved)
        self._strides = [strides_over(layout, self._shape) for layout in own[:plain]]
        self._strides += [strides_reduced(layout, self._shape, kernel.axes) for layout in own[plain:]]
        self._shifts = [_over(work.shifts.get(number, ()), metas[number].shape, self._shape) for number in numbers]
        begins = [work.begins.get(number, -APART * place) for place, number in enumerate(numbers, 1)]
        sizes = [metas[number].dtype.itemsize for number in numbers]
        every = [Operand(*one) for one in zip(begins, self._strides, sizes, strict=True)]
        self.seconds = costs.seconds_of(kernel.program, prod(self._shape), traffic_of(self._shape, every))
        alone = len(kernel.results) == 1 and work.is_aligned(kernel.results, sizes[-1])
        self.aligned = alone or work.is_aligned(kernel.results)

    def launches(self, making: Making) -> list[Launch]:
        """Return the launches; raises LacksError where generated code lacks a step."""
        program, axes = self.kernel.program, self.kernel.axes
        scalars = scalar_numbers(self.kernel.scalars, program.scalars)
        if program.reductions:
            return reduction_launches(program, self._shape, axes, self._strides, self._places, scalars, making)
        strides, places = self._strides, self._places
        return [map_launch(program, self._shape, strides, places, scalars, making, shifts=self._shifts)]


def _over(shifts: Sequence[int], shape: Shape, domain: Shape) -> Sequence[int]:
    """Return by how many places an operand of some shape is rolled along each axis of a domain."""
    if not shifts:
        return ()
    before = len(domain) - len(shape)
    return (*(0,) * before, *[by * (length > 1) for by, length in zip(shifts, shape, strict=True)])

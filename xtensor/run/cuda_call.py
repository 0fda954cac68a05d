"""One elementwise call on a CUDA device as one kernel, launched at once: what a small call is, without a graph.

It is the kernel that the same call would be as a recorded step, so that results do not depend on which it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..base.dtypes import DType
from ..base.layout import Shape, broadcast_shapes, contiguous
from ..base.options import settings
from ..codegen.cpu.primitives import LacksError
from ..codegen.cuda.kernel import VECTOR
from ..graph.node import Operation
from ..plan.program import Program, Step, loop_of, program
from ..storage.storage import Native
from .cuda import Launch, map_launch
from .native import scalar_words

# Ways in which operands of one call lie that are remembered at most.
WAYS = 1024


class Call:
    """An op over operands of some dtypes and Python numbers, as one kernel; the launches for how they lie are kept."""

    def __init__(self, op: Operation, kinds: Sequence[DType | type], dtype: DType, backend: Any) -> None:
        self.backend, self.dtype = backend, dtype
        self.arrays = [place for place, kind in enumerate(kinds) if isinstance(kind, np.dtype)]
        self.numbers = [place for place in range(len(kinds)) if place not in self.arrays]
        self.program = _program(op, kinds, dtype, [*self.arrays, *self.numbers])
        self._ways: dict[Any, tuple[Launch, Shape] | None] = {}

    def __call__(self, operands: Sequence[Any], target: Native = None) -> Native | None:
        """Return what an op makes of native arrays and numbers, or write it where `target` lies, which is then one of
        the arrays, or lies apart from them; None for what no kernel is launched for.
        """
        limits = settings()
        if limits.engine == "direct":
            return None
        natives = [operands[place] for place in self.arrays]
        way: list[Any] = [limits.fast_math]
        for native in natives:
            way += (native.shape, native.strides, native.data.ptr % VECTOR)
        if target is not None:
            way += (target.shape, target.strides, target.data.ptr % VECTOR)
        key = tuple(way)
        found = self._ways[key] if key in self._ways else self._new(key, natives, target, limits.fast_math)
        if found is None:
            return None
        launch, shape = found
        result = self.backend.library.empty(shape, self.dtype) if target is None else target
        addresses = [native.data.ptr for native in natives]
        addresses.append(result.data.ptr)
        told = scalar_words([operands[place] for place in self.numbers], self.program.scalars) if self.numbers else b""
        launch(addresses, told, self.backend.current_stream().ptr)
        return result

    def _new(self, key: Any, natives: Sequence[Native], target: Native, contract: bool) -> tuple[Launch, Shape] | None:
        """Return the launch for operands that lie as these do, and its result's shape."""
        shape = broadcast_shapes(*[native.shape for native in natives])
        if len(self._ways) >= WAYS:
            self._ways.clear()
        self._ways[key] = found = self._launch(shape, natives, target, contract)
        return found

    def _launch(
        self, shape: Shape, natives: Sequence[Native], target: Native, contract: bool
    ) -> tuple[Launch, Shape] | None:
        if 0 in shape or (target is not None and target.shape != shape):
            return None
        own = contiguous(shape, self.dtype.itemsize).strides if target is None else target.strides
        strides = [*[_over(native, shape) for native in natives], own]
        aligned = [native.data.ptr % VECTOR for native in (*natives, *([] if target is None else [target]))]
        aligned += [0] * (len(strides) - len(aligned))
        try:
            return map_launch(self.program, shape, strides, aligned, self.backend, contract), shape
        except LacksError:
            return None


def _over(native: Native, shape: Shape) -> Shape:
    """Return an array's strides over a shape that it broadcasts to."""
    missing = len(shape) - native.ndim
    own = [0 if n == 1 else stride for n, stride in zip(native.shape, native.strides, strict=True)]
    return (*(0,) * missing, *own)


def _program(op: Operation, kinds: Sequence[Any], dtype: DType, order: Sequence[int]) -> Program:
    """Return a program of one step. order: of the operands, arrays first, as a program numbers its values."""
    loop = loop_of(op, tuple(kinds), dtype)
    arrays = tuple([kind for kind in kinds if isinstance(kind, np.dtype)])
    scalars = tuple([loop[place] for place in order[len(arrays) :]])
    step = Step(op, (), tuple([order.index(place) for place in range(len(order))]), loop, dtype)
    return program(arrays, scalars, (), (step,), (len(order),), ())

"""One call on a CUDA device as one kernel, launched at once: what a small call is, without a graph.

It is the kernel that the same call would be as a recorded step, so that results do not depend on which it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ..base.dtypes import DType
from ..base.layout import Layout, Shape, broadcast_shapes, keep_order
from ..base.options import settings
from ..codegen.cpu.primitives import LacksError
from ..codegen.cuda.kernel import VECTOR
from ..graph.node import Operation
from ..plan.layouts import axes_of, strides_over, strides_reduced
from ..plan.program import Program, Reduction, Step, loop_of, program
from ..storage.storage import Native
from .cuda import Launches, launches_over
from .native import scalar_words

# Ways in which operands of one call lie that are remembered at most.
WAYS = 1024


class _Way(NamedTuple):
    """What a call comes to where its arrays lie in one way. strides: of the result, None where it is in C order."""

    launches: Launches
    shape: Shape
    strides: Shape | None


class Call:
    """A program of arrays and Python numbers that has one result; the launches for how arrays lie are kept.

    arrays, numbers: their places among the operands. dtype: the result's. axes: which the program reduces, and whether
    they stay, with one element.
    """

    def __init__(
        self,
        program: Program,
        arrays: Sequence[int],
        numbers: Sequence[int],
        dtype: DType,
        backend: Any,
        axes: tuple[Sequence[int], bool] = ((), False),
    ) -> None:
        self.program, self.arrays, self.numbers, self.dtype, self.backend = program, arrays, numbers, dtype, backend
        self.axes, self.keepdims = axes
        self._ways: dict[Any, _Way | None] = {}

    def __call__(self, operands: Sequence[Any], target: Native = None) -> Native | None:
        """Return what an op makes of native arrays and numbers, or write it where `target` lies, which is then one of
        the arrays, or lies apart from them; None for what no kernel is launched for.
        """
        limits = settings()
        if limits.engine == "direct":
            return None
        natives = [operands[place] for place in self.arrays]
        if target is not None:
            natives.append(target)
        lie: list[Any] = [limits.fast_math]
        for native in natives:
            lie += (native.shape, native.strides, native.data.ptr % VECTOR)
        key = tuple(lie)
        way = self._ways[key] if key in self._ways else self._new(key, natives, target, limits.fast_math)
        if way is None:
            return None
        result = target
        if result is None:
            result = self._result(way)
            natives.append(result)
        self._launch(way.launches, natives, operands)
        return result

    def _result(self, way: _Way) -> Native:
        library = self.backend.library
        if way.strides is None:
            return library.empty(way.shape, self.dtype)
        memory = library.empty(prod(way.shape) * self.dtype.itemsize, np.uint8)
        return library.ndarray(way.shape, self.dtype, memory.data, way.strides)

    def _launch(self, launches: Launches, natives: Sequence[Native], operands: Sequence[Any]) -> None:
        between = [self.backend.library.empty(nbytes, np.uint8) for nbytes in launches.between]
        addresses = [native.data.ptr for native in (*natives, *between)]
        told = scalar_words([operands[place] for place in self.numbers], self.program.scalars) if self.numbers else b""
        stream = self.backend.current_stream().ptr
        for launch in launches.launches:
            launch(addresses, told, stream)

    def _new(self, key: Any, natives: Sequence[Native], target: Native, contract: bool) -> _Way | None:
        """Find out what comes of arrays that lie as these do."""
        if len(self._ways) >= WAYS:
            self._ways.clear()
        aligned = [native.data.ptr % VECTOR for native in natives] + [0] * (target is None)
        try:
            found = self._way(natives[: len(self.arrays)], target, aligned, contract)
        except LacksError:
            found = None
        self._ways[key] = found
        return found

    def _way(self, inputs: Sequence[Native], target: Native, aligned: Sequence[int], contract: bool) -> _Way | None:
        shape = broadcast_shapes(*[native.shape for native in inputs])
        if 0 in shape or (target is not None and target.shape != shape):
            return None
        itemsize, axes = self.dtype.itemsize, self.axes
        strides = [strides_over(Layout(native.shape, native.strides), shape) for native in inputs]
        kept = [axis for axis in range(len(shape)) if self.keepdims or axis not in axes]
        if target is None:
            order = keep_order(shape, itemsize, strides, *([axes] if axes else []))
            own = Layout(tuple([1 if a in axes else shape[a] for a in kept]), tuple([order[a] for a in kept]))
        else:
            own = Layout(target.shape, target.strides)
        strides.append(strides_reduced(own, shape, axes))
        launches = launches_over(self.program, shape, strides, axes, aligned, self.backend, contract)
        return _Way(launches, own.shape, None if own.is_contiguous(itemsize) else own.strides)


def mapping(op: Operation, kinds: Sequence[DType | type], dtype: DType, backend: Any) -> Call:
    """Return an elementwise call. kinds: of each operand its dtype, or the type of a Python number.

    Raises TypeError for kinds that NumPy's function of that name has no loop for.
    """
    loop = loop_of(op, tuple(kinds), dtype)
    arrays = [place for place, kind in enumerate(kinds) if isinstance(kind, np.dtype)]
    numbers = [place for place in range(len(kinds)) if place not in arrays]
    order = [*arrays, *numbers]  # as programs number their values
    step = Step(op, (), tuple([order.index(place) for place in range(len(order))]), loop, dtype)
    inputs, scalars = tuple([np.dtype(kinds[place]) for place in arrays]), tuple([loop[place] for place in numbers])
    return Call(program(inputs, scalars, (), (step,), (len(order),), ()), arrays, numbers, dtype, backend)


def reducing(op: Operation, x: DType, ndim: int, params: dict[str, Any], dtype: DType, backend: Any) -> Call:
    """Return a call that reduces an array of so many axes along params["axis"] (None: all of them)."""
    reduction = Reduction(op, tuple(params.items()), 0, dtype)
    axes = axes_of(params["axis"], ndim)
    return Call(program((x,), (), (), (), (), (reduction,)), [0], [], dtype, backend, (axes, params["keepdims"]))

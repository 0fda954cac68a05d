"""One call on a CUDA device as one kernel, launched at once without a graph, as small calls are.

It is the same kernel as for a recorded step, so that results do not depend on whether a call was recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ..base.dtypes import DType
from ..base.layout import Layout, Shape, axes_of, broadcast_shapes, keep_order, strides_over, strides_reduced
from ..base.options import Settings
from ..codegen.cpu.vector import LacksError
from ..codegen.cuda.kernel import VECTOR
from ..graph.node import Operation
from ..plan.program import Program, Reduction, Step, loop_of, program
from ..storage.storage import Native
from .cuda import Launches, launches_over
from .native import scalar_words


class Call:
    """A program of arrays and Python numbers that has one result.

    dtype: the result's. axes: those that the program reduces, and whether they are kept with length 1.
    """

    def __init__(
        self, program: Program, dtype: DType, backend: Any, axes: tuple[Sequence[int], bool] = ((), False)
    ) -> None:
        self.program, self.dtype, self.backend = program, dtype, backend
        self.axes, self.keepdims = axes

    def ready(self, natives: Sequence[Native], limits: Settings, target: Native = None) -> Way | None:
        """Return the kernel for arrays that lie as these do; None where there is none.

        target: the array to write, which is one of the arrays or apart from them in memory; None for a new array.
        """
        shape = broadcast_shapes(*[native.shape for native in natives])
        if 0 in shape or (target is not None and target.shape != shape):
            return None
        itemsize, axes = self.dtype.itemsize, self.axes
        strides = [strides_over(Layout(native.shape, native.strides), shape) for native in natives]
        if target is None:
            kept = [axis for axis in range(len(shape)) if self.keepdims or axis not in axes]
            order = keep_order(shape, itemsize, strides, *([axes] if axes else []))
            own = Layout(tuple([1 if a in axes else shape[a] for a in kept]), tuple([order[a] for a in kept]))
        else:
            own = Layout(target.shape, target.strides)
        strides.append(strides_reduced(own, shape, axes))
        aligned = [native.data.ptr % VECTOR for native in natives] + [0 if target is None else target.data.ptr % VECTOR]
        try:
            launches = launches_over(self.program, shape, strides, axes, aligned, self.backend, limits.fast_math)
        except LacksError:
            return None
        return Way(self, launches, own.shape, None if own.is_contiguous(itemsize) else own.strides)


class Way(NamedTuple):
    """A call for arrays of certain layouts. strides: of a new result, None where that is in C order."""

    call: Call
    launches: Launches
    shape: Shape
    strides: Shape | None

    def __call__(self, natives: Sequence[Native], numbers: Sequence[Any], target: Native = None) -> Native:
        """Launch it, and return the result."""
        call, (launches, between), shape, strides = self
        backend = call.backend
        library = backend.library
        result = target
        if result is None:  # `ndarray` is what `empty` calls
            result = library.ndarray(shape, call.dtype) if strides is None else self._strided(library)
        addresses = [native.data.ptr for native in natives]
        addresses.append(result.data.ptr)
        told = scalar_words(numbers, call.program.scalars) if numbers else b""
        stream = library.cuda.get_current_stream(backend.number).ptr
        if between:
            memory = [library.empty(nbytes, np.uint8) for nbytes in between]  # must live until the last launch
            addresses += [one.data.ptr for one in memory]
        for launch in launches:
            launch(addresses, told, stream)
        return result

    def _strided(self, library: Any) -> Native:
        memory = library.empty(prod(self.shape) * self.call.dtype.itemsize, np.uint8)
        return library.ndarray(self.shape, self.call.dtype, memory.data, self.strides)


def mapping(op: Operation, kinds: Sequence[DType | type], dtype: DType, backend: Any) -> Call:
    """Return an elementwise call. kinds: for each operand its dtype, or the type of a Python number.

    Raises TypeError for kinds that NumPy's function of that name has no loop for.
    """
    loop = loop_of(op, tuple(kinds), dtype)
    arrays = [place for place, kind in enumerate(kinds) if isinstance(kind, np.dtype)]
    numbers = [place for place in range(len(kinds)) if place not in arrays]
    order = [*arrays, *numbers]  # as programs number their values
    step = Step(op, (), tuple([order.index(place) for place in range(len(order))]), loop, dtype)
    inputs, scalars = tuple([np.dtype(kinds[place]) for place in arrays]), tuple([loop[place] for place in numbers])
    return Call(program(inputs, scalars, (), (step,), (len(order),), ()), dtype, backend)


def reducing(op: Operation, x: DType, ndim: int, params: dict[str, Any], dtype: DType, backend: Any) -> Call:
    """Return a call that reduces an array of `ndim` axes along params["axis"] (None: all of them)."""
    reduction = Reduction(op, tuple(params.items()), 0, dtype)
    axes = axes_of(params["axis"], ndim)
    return Call(program((x,), (), (), (), (), (reduction,)), dtype, backend, (axes, params["keepdims"]))

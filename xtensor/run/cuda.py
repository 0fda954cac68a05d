"""CUDA kernels meet memory: loop nests from shapes and strides, the numbers a kernel is given, and its launches.

The launches for one program, shape and layout are remembered, so that a further call only fills in addresses and
scalars and launches. Sizes choose the grid and how many threads share a result, never the code.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

from ..base.dtypes import DType
from ..base.layout import Shape, c_strides, strides_over, strides_reduced
from ..codegen.cpu.moves import PACKED, STRIDED
from ..codegen.cpu.vector import LacksError
from ..codegen.cuda import nvrtc as cuda_build
from ..codegen.cuda.kernel import (
    ARGUMENTS,
    COLUMN,
    MAP,
    ROW,
    SIDE,
    THREADS,
    VECTOR,
    Form,
    best_dtype,
    fields,
    lanes_of,
    source,
)
from ..codegen.cuda.library import REACH, divisor
from ..devices.cpu import CPU
from ..plan.layouts import Meta, Work
from ..plan.program import Kernel, Named, Program, Reduction
from ..plan.program import program as the_program
from .nest import Nest, lie_of, nest_of

# The fewest chunks a block reduces, by rows and by columns, the most as a multiple, and the blocks that fill a device.
ROW_PIECE, COLUMN_PIECE, MOST_PER_PIECE, BLOCKS = 2048, 512, 32, 1024

# With fewer columns than this a reduction goes by rows.
NARROW = 8


class Launch(NamedTuple):
    """A kernel ready for a device: everything but addresses and scalars.

    takes: the places of its addresses among those of the operands and, after them, of the memory between launches; None
    where it takes them all, in order.
    scalars: whether it takes scalars. head: packs the address of the table of addresses, and the addresses. tail: its
    other numbers, packed.
    """

    function: cuda_build.Function
    grid: tuple[int, int]
    block: int
    shared: int
    takes: tuple[int, ...] | None
    scalars: bool
    head: Callable[..., bytes]
    tail: bytes

    def __call__(self, addresses: Sequence[int], scalars: bytes, stream: int, table: int = 0, told: int = 0) -> None:
        """Launch it; with a table of addresses, `addresses` are places in that (see `placed`).

        scalars: their words. told: the address on the device where it finds them instead, if not 0.
        """
        function, grid, block, shared, takes, takes_scalars, head, tail = self
        taken = addresses if takes is None else [addresses[place] for place in takes]
        given = told.to_bytes(8, "little") + scalars if takes_scalars and scalars else b""
        arguments = head(table, *taken) + given + tail
        cuda_build.launch(function, grid, block, shared, (arguments,), stream)


class Launches(NamedTuple):
    """Launches in turn, and the bytes of each buffer through which one passes values to the next."""

    launches: tuple[Launch, ...]
    between: tuple[int, ...] = ()


class Launcher:
    """A maker of the launches of kernels over a shape that has elements; they depend on how operands are aligned.

    numbers, scalars: the numbers of its operands and of its scalars; dtypes: of the scalars.
    """

    def __init__(self, numbers: Sequence[int], kernels: Sequence[Kernel], work: Work) -> None:
        self.numbers, self.contract = numbers, work.limits.fast_math
        self.backend: Any = work.device.backend
        self.scalars = [number for one in kernels for number in one.scalars]
        self.dtypes = [dtype for one in kernels for dtype in one.program.scalars]
        self._made: dict[tuple[int, ...], Launches | LacksError] = {}

    def launches(self, addresses: Sequence[int]) -> Launches | LacksError:
        """Return the launches for operands at these addresses, or the error that says why there are none."""
        aligned = tuple([address % VECTOR for address in addresses])
        made = self._made.get(aligned)
        if made is None:
            made = self._made[aligned] = self.new(aligned)
        return made

    def new(self, aligned: Sequence[int]) -> Launches | LacksError:
        """Return new launches, or the error. aligned: how far operands begin behind multiples of a vector."""
        try:
            return self._launches(aligned)
        except LacksError as lack:
            return lack.with_traceback(None)  # which would keep the memory of the run

    def _launches(self, aligned: Sequence[int]) -> Launches:
        """Return new launches; raises LacksError where there are none."""
        raise NotImplementedError


class ByKernel(Launcher):
    """One kernel of a schedule."""

    def __init__(self, kernel: Kernel, work: Work) -> None:
        super().__init__((*kernel.inputs, *kernel.results), (kernel,), work)
        self.kernel, self._shape = kernel, work.metas[kernel.domain].shape
        self._metas = [work.metas[number] for number in self.numbers]

    def _launches(self, aligned: Sequence[int]) -> Launches:
        maker = _Maker(self.kernel.program, aligned, self.backend, self.contract)
        return maker.work(self.kernel, self._shape, self._metas)


def texts(kernel: Kernel, work: Work) -> list[str]:
    """Return the text of each launch of a kernel; memory that is not allocated yet counts as aligned to vectors."""
    if kernel.direct is not None:
        return ["a matrix product, by cuBLAS"]
    numbers = (*kernel.inputs, *kernel.results)
    aligned = [work.begins.get(number, 0) % VECTOR for number in numbers]
    maker = _Maker(kernel.program, aligned, None, work.limits.fast_math)
    made = maker.work(kernel, work.metas[kernel.domain].shape, [work.metas[number] for number in numbers])
    return [launch.function.text for launch in made.launches]


def generated(kernel: Kernel, values: Sequence[Any]) -> Kernel | None:
    """Return a kernel that the planner leaves to the library as a reduction for CUDA: argmax or argmin; else None."""
    if kernel.direct is None or values[kernel.direct].op.name not in ARGUMENTS:
        return None
    node, (number,) = values[kernel.direct], kernel.inputs
    if node.device.backend is CPU:
        return None
    axis, ndim = node.params["axis"], len(values[number].shape)
    found = Reduction(node.op, tuple(node.params.items()), 0, node.dtype)
    program = the_program((values[number].dtype,), (), (), (), (), (found,))
    axes = tuple(range(ndim)) if axis is None else (axis % ndim,)
    return Kernel(program, number, (number,), (), kernel.results, axes)


def launches_over(
    program: Program,
    shape: Shape,
    strides: Sequence[Shape],
    axes: Sequence[int],
    aligned: Sequence[int],
    backend: Any,
    contract: bool,
) -> Launches:
    """Return the launches of a program over a shape; raises LacksError where none can be made.

    strides, aligned: of its inputs, its outputs, and the results of its reductions. axes: those that it reduces.
    """
    return _Maker(program, aligned, backend, contract).over(shape, strides, axes)


class _Maker:
    """One program's launches on one device, or their texts alone if there is no backend.

    aligned: how far operands begin behind multiples of a vector.
    """

    def __init__(self, program: Program, aligned: Sequence[int], backend: Any, contract: bool) -> None:
        self.program, self.aligned, self.backend, self.contract = program, aligned, backend, contract
        self.sizes = [dtype.itemsize for dtype in program.moved]

    def work(self, kernel: Kernel, shape: Shape, metas: Sequence[Meta]) -> Launches:
        """Return a kernel's launches; raises LacksError where none can be made."""
        moved = len(self.sizes)
        strides = [strides_over(meta.layout, shape) for meta in metas[:moved]]
        strides += [strides_reduced(meta.layout, shape, kernel.axes) for meta in metas[moved:]]
        return self.over(shape, strides, kernel.axes)

    def over(self, shape: Shape, strides: Sequence[Shape], axes: Sequence[int]) -> Launches:
        """Return the launches over a shape."""
        sizes = [*self.sizes, *[one.dtype.itemsize for one in self.program.reductions]]
        for begin, own, size in zip(self.aligned, strides, sizes, strict=True):
            natural = min(size, 8)
            if begin % natural or any([stride % natural for stride in own]):
                raise LacksError("way to read what lies between multiples of its size")
        if self.program.reductions:
            return self.reduction(shape, strides, axes)
        return Launches((self.map(shape, strides),))

    # ---- elementwise

    def map(self, shape: Shape, strides: Sequence[Shape]) -> Launch:
        nest = nest_of(shape, strides, strides[len(self.program.inputs)])
        if nest.lengths == (1,):  # as any other packed array
            nest = Nest((1,), tuple([(size,) for size in self.sizes]), (False,))
        lanes, lie = self._lie(nest.strides, lanes_of(self.program))
        form = Form(MAP, lie, lanes, len(nest.lengths), 0, self._is_wide(nest))
        count = prod(nest.lengths[:-1]) * -(-nest.lengths[-1] // lanes)
        return self._launch(form, nest, {"count": count, "length": nest.lengths[-1]}, (-(-count // THREADS), 1))

    def _lie(self, strides: Sequence[Sequence[int]], most: int) -> tuple[int, tuple[str, ...]]:
        """Return how many neighbours a thread takes, and how operands lie along the innermost loop.

        The number does not depend on addresses, so that results do not either: an operand that is not aligned to
        vectors is read element by element.
        """
        inputs = len(self.program.inputs)
        lie = [lie_of(one[-1], size) for one, size in zip(strides, self.sizes, strict=False)]
        lie[inputs:] = [how if how == PACKED else STRIDED for how in lie[inputs:]]
        lanes = 1 if STRIDED in lie else most
        for place, size in enumerate(self.sizes):
            vector = lanes * size
            outer = any([stride % vector for stride in strides[place][:-1]])
            if lie[place] == PACKED and (outer or self.aligned[place] % vector):
                lie[place] = STRIDED
        return lanes, tuple(lie)

    def _is_wide(self, nest: Nest) -> bool:
        lengths = nest.lengths
        reach = [sum([abs(s) * n for s, n in zip(one, lengths, strict=True)]) for one in nest.strides]
        return max(2 * prod(lengths), *reach) >= REACH

    # ---- reductions

    def reduction(self, shape: Shape, strides: Sequence[Shape], axes: Sequence[int]) -> Launches:
        lead = max(strides[: len(self.program.inputs)], key=lambda one: sum(stride != 0 for stride in one))
        if self.program.reductions[0].op.name in ARGUMENTS:  # counts in C order
            lead = c_strides(shape, 1)
        nest = _kept_first(nest_of(shape, strides, lead, axes))
        kept = nest.reduced.index(True)
        narrow = kept == 0 or nest.lengths[kept - 1] < NARROW
        last = max(range(len(nest.lengths)), key=lambda loop: -min(abs(nest.strides[0][loop]) or REACH, REACH))
        return self._rows(nest, kept) if narrow or nest.reduced[last] else self._columns(nest, kept)

    def _rows(self, nest: Nest, kept: int) -> Launches:
        """Return launches in which some threads of a block, side by side in the innermost loop, reduce each result."""
        lanes, lie = self._lie(nest.strides[: len(self.sizes)], lanes_of(self.program, 8))
        count = prod(nest.lengths[kept:-1]) * -(-nest.lengths[-1] // lanes)
        rows = prod(nest.lengths[:kept])
        shift = (count - 1).bit_length() if count <= 32 else 5 if count <= 256 else 8
        pieces = _pieces(count, rows, ROW_PIECE, MOST_PER_PIECE * ROW_PIECE) if shift == 8 else 1
        form = Form(ROW, lie, lanes, kept, len(nest.lengths) - kept, self._is_wide(nest))
        numbers: dict[str, Any] = {"count": count, "length": nest.lengths[-1], "rows": rows, "shift": shift}
        return self._reducing(form, nest, numbers, -(-rows // (THREADS >> shift)), pieces)

    def _columns(self, nest: Nest, kept: int) -> Launches:
        """Return launches with results side by side: neighbouring threads read neighbouring elements."""
        count, rows = prod(nest.lengths[kept:]), prod(nest.lengths[:kept])
        blocks = -(-rows // SIDE)
        pieces = _pieces(count, blocks, COLUMN_PIECE, MOST_PER_PIECE * COLUMN_PIECE)
        form = Form(COLUMN, (STRIDED,) * len(self.sizes), 1, kept, len(nest.lengths) - kept, self._is_wide(nest))
        numbers: dict[str, Any] = {"count": count, "length": nest.lengths[-1], "rows": rows, "shift": 0}
        return self._reducing(form, nest, numbers, blocks, pieces)

    def _reducing(self, form: Form, nest: Nest, numbers: dict[str, Any], blocks: int, pieces: int) -> Launches:
        """Return a reduction's launch, or two if each result is reduced in pieces."""
        piece = -(-numbers["count"] // pieces)
        pieces = -(-numbers["count"] // piece)
        numbers |= {"piece": piece, "parts": [0] * len(self.program.reductions)}
        if pieces == 1:
            return Launches((self._launch(form, nest, numbers, (blocks, 1)),))
        program, joining = _in_parts(self.program)
        count = len(self.program.reductions)
        rows, moved = nest.lengths[: form.kept], len(self.sizes)
        pitch = -(-pieces // VECTOR) * VECTOR
        sizes = [dtype.itemsize for dtype in joining.inputs]
        own = [tuple(pitch * stride for stride in c_strides(rows, size)) for size in sizes]
        loops = len(nest.lengths)
        strides = (*nest.strides[:moved], *((*one, *(0,) * (loops - form.kept)) for one in own))
        numbers["parts"] = sizes
        first = _Maker(program, self.aligned, self.backend, self.contract)
        launch = first._launch(form, Nest(nest.lengths, strides, nest.reduced), numbers, (blocks, pieces))
        every = [*((*one, size) for one, size in zip(own, sizes, strict=True))]
        every += [(*one[: form.kept], 0) for one in nest.strides[moved:]]
        last = Nest((*rows, pieces), tuple(every), (False,) * form.kept + (True,))
        (second,) = _Maker(joining, (0,) * len(sizes), self.backend, self.contract)._rows(last, form.kept).launches
        parts = tuple(range(moved + count, moved + 2 * count))
        launches = (
            launch._replace(takes=(*range(moved), *parts)),
            second._replace(takes=(*parts, *range(moved, moved + count)), scalars=False),
        )
        return Launches(launches, tuple(prod(rows) * pitch * size for size in sizes))

    # ---- launches

    def _launch(self, form: Form, nest: Nest, numbers: dict[str, Any], grid: tuple[int, int]) -> Launch:
        if grid[0] >= REACH or grid[1] >= 1 << 16:
            raise LacksError("grid of so many blocks")
        values: list[int] = []
        for _, about in fields(self.program, form):
            if about[0] == "divisor":
                loop = about[1]
                n = nest.lengths[loop] if loop >= 0 else -(-nest.lengths[-1] // form.lanes)
                values += [n] if form.wide else list(divisor(n))
            elif about[0] == "stride":
                values.append(nest.strides[about[1]][about[2]])
            else:
                values.append(numbers["parts"][about[1]] if about[0] == "parts" else numbers[about[0]])
        kind = "q" if form.wide else "i"
        wrapped = [value - (1 << 32) if kind == "i" and value >= REACH else value for value in values]
        tail = struct.pack(f"={len(wrapped)}{kind}", *wrapped)
        program, contract = self.program, self.contract
        if self.backend is None:
            function = cuda_build.Function(0, None, 0, source(program, form))
        else:
            function = cuda_build.function_of((program, form), lambda: source(program, form), self.backend, contract)
        every = range(len(self.sizes) + len(program.reductions))
        return launch_of(function, grid, 0, every, tail)._replace(takes=None)


def launch_of(
    function: cuda_build.Function,
    grid: tuple[int, int],
    shared: int,
    takes: Sequence[int],
    tail: bytes,
    threads: int = THREADS,
) -> Launch:
    """Return a kernel ready for a device; tail: its numbers, packed."""
    head = struct.Struct(f"={1 + len(takes)}Q").pack
    return Launch(function, grid, threads, shared, tuple(takes), True, head, tail.ljust(-(-len(tail) // 8) * 8, b"\0"))


def _pieces(count: int, blocks: int, least: int, most: int) -> int:
    """Return in how many pieces a result is reduced: enough to fill the device, and so many that none is too long."""
    return max(min(-(-count // least), -(-BLOCKS // blocks)), -(-count // most))


def _kept_first(nest: Nest) -> Nest:
    """Return the loops reordered so that reduced ones come last, with one of length 1 added if there are none."""
    order = sorted(range(len(nest.lengths)), key=lambda loop: nest.reduced[loop])
    lengths, reduced = tuple([nest.lengths[loop] for loop in order]), tuple([nest.reduced[loop] for loop in order])
    strides = tuple([tuple([one[loop] for loop in order]) for one in nest.strides])
    if not reduced[-1]:
        return Nest((*lengths, 1), tuple([(*one, 0) for one in strides]), (*reduced, True))
    return Nest(lengths, strides, reduced)


def _in_parts(program: Program) -> tuple[Program, Program]:
    """Return the program whose reductions give parts, and the one that joins them."""
    parts = [_part_dtype(program, one) for one in program.reductions]
    firsts = [one._replace(dtype=dtype) for one, dtype in zip(program.reductions, parts, strict=True)]
    seconds = [
        Reduction(Named({"count_nonzero": "sum"}.get(one.op.name, one.op.name), "reduction"), (), place, one.dtype)
        for place, one in enumerate(program.reductions)
    ]
    facts = (program.inputs, program.scalars, program.known, program.steps, program.outputs)
    return the_program(*facts, tuple(firsts)), the_program(tuple(parts), (), (), (), (), tuple(seconds))


def _part_dtype(program: Program, reduction: Reduction) -> DType:
    if reduction.op.name in ARGUMENTS:
        return best_dtype(program.dtypes[reduction.arg])
    return reduction.dtype

"""Matrix products on a CUDA device as launches: cuBLAS is called at its own address, in CUDA graphs too.

The other kernels of a graph read the addresses of operands from a table, but a product is given them only when the
graph is recorded. Operands whose addresses change from run to run are therefore copied for it, packed (see
cuda_segment.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple, cast

import numpy as np

from ..base.layout import Layout, Shape, c_strides, strides_over
from ..codegen.cpu.vector import LacksError
from ..codegen.cuda.kernel import VECTOR
from ..devices import cublas
from ..devices.cublas import CONJUGATED, LETTERS, PLAIN, TURNED, Gemm
from ..plan.layouts import Work
from ..plan.program import Kernel, Program, program
from .cuda import Launch, Launcher, Launches, launches_over
from .products import Matrix, stacks_of

# The bound of the library's integers; the most bytes of an operand that is copied for a graph.
REACH, COPIED = 1 << 31, 16 << 20

# The places of an operation's operands and result.
A, B, C = range(3)


class Product(NamedTuple):
    """A product ready to be launched on a device."""

    gemm: Gemm
    backend: Any

    def __call__(
        self, addresses: Sequence[int], scalars: bytes, stream: int, table: int = 0, told: int = 0, workspace: int = 0
    ) -> None:
        """Launch it. workspace: scratch memory for a product that is recorded; see devices/cublas.py."""
        library = cublas.found()
        assert library is not None
        self.backend.call(library.multiply, self.gemm, addresses, stream, workspace)


class ToldOnce(Launcher):
    """A library's function as a launch, which in a CUDA graph has the addresses of operands from its recording.

    result: the place of the result among the operands.
    """

    result: int

    def packed_nbytes(self, place: int) -> int | None:
        """Return the bytes of a packed copy of an operand, or of the result; None if it is too large to be copied."""
        raise NotImplementedError

    def packed(self, places: Sequence[int], aligned: Sequence[int]) -> Any:
        """Return the launch for operands of which these places are packed. aligned: how far operands begin behind
        multiples of a vector.
        """
        raise NotImplementedError

    def copies(self, place: int, address: int) -> tuple[Launch, ...]:
        """Return the launches that copy an operand at an address to its packed copy, or a packed result back there."""
        raise NotImplementedError


def same(unit: int) -> Program:
    """Return the program that copies elements of so many bytes."""
    return program((np.dtype(f"u{unit}"),), (), (), (), (0,), ())


class ByCublas(ToldOnce):
    """A product as one call."""

    result = C

    def __init__(self, kernel: Kernel, work: Work, gemm: Gemm, *, swapped: bool) -> None:
        (result,) = kernel.results
        first, second = work.trace.arguments[result]
        super().__init__((second, first, result) if swapped else (first, second, result), (), work)
        self._itemsize, self._gemm = work.metas[result].dtype.itemsize, gemm

    @classmethod
    def of(cls, kernel: Kernel, work: Work) -> ByCublas | None:
        """Return a product that cuBLAS can compute from its operands as they lie; None for other steps."""
        (result,) = kernel.results
        node = work.trace.values[result]
        if node.op.name != "matmul" or node.dtype.char not in LETTERS or work.limits.engine in ("direct", "interpret"):
            return None
        if any([work.metas[n].dtype != node.dtype for n in work.trace.arguments[result]]) or cublas.found() is None:
            return None
        stacks = stacks_of(kernel, work)
        turned = node.params["turned"] if node.dtype.kind == "c" else (False, False)
        # The library's matrices lie by columns. One that lies by rows is a transposed one, and so is the product.
        for swapped in (True, False):
            a, b, c = [stacks[place].turned for place in (B, A, C)] if swapped else stacks
            gemm = _gemm(node.dtype.char, (a, b, c), turned[::-1] if swapped else turned)
            if gemm is not None:
                return cls(kernel, work, gemm, swapped=swapped)
        return None

    def _launches(self, aligned: Sequence[int]) -> Launches:
        if any([begin % min(self._itemsize, 8) for begin in aligned]):
            raise LacksError("way to read what lies between multiples of its size")
        return Launches((cast(Any, Product(self._gemm, self.backend)),))  # launched as a Launch is

    def packed_nbytes(self, place: int) -> int | None:
        nbytes = prod(_lies(self._gemm, place)[0]) * self._itemsize
        return nbytes if nbytes <= COPIED else None

    def packed(self, places: Sequence[int], aligned: Sequence[int]) -> Product:
        gemm = self._gemm
        lies = [_lies(gemm, place) for place in (A, B, C)]
        packed = [place in places for place in (A, B, C)]
        a, b, c = [shape[2] if one else strides[1] for one, (shape, strides) in zip(packed, lies, strict=True)]
        leads = a, b, c
        a, b, c = [
            shape[1] * shape[2] if one and strides[0] else strides[0]
            for one, (shape, strides) in zip(packed, lies, strict=True)
        ]
        return Product(gemm._replace(leads=leads, steps=(a, b, c)), self.backend)

    def copies(self, place: int, address: int) -> tuple[Launch, ...]:
        unit = min(self._itemsize, 8)
        shape, strides = _lies(self._gemm, place)
        shape = (*shape[:2], shape[2] * self._itemsize // unit)
        own, packed = (*[self._itemsize * stride for stride in strides[:2]], unit), c_strides(shape, unit)
        sides, aligned = [own, packed], [address % VECTOR, 0]
        if place == C:
            sides, aligned = sides[::-1], aligned[::-1]
        return launches_over(same(unit), shape, sides, (), aligned, self.backend, False).launches


def _gemm(char: str, matrices: Sequence[Matrix], conjugated: Sequence[bool]) -> Gemm | None:
    """Return a product of stacks that lie by columns, or whose operands lie by rows; None where they do not.

    conjugated: whether each operand is.
    """
    a, b, c = matrices
    first, second = _way(a, conjugated[A]), _way(b, conjugated[B])
    lead = c.shape[:-2]
    next_a, next_b, next_c = [_step(one, lead) for one in matrices]
    if first is None or second is None or not c.by_columns or 0 in (*a.shape, *c.shape):
        return None
    if next_a is None or next_b is None or next_c is None:
        return None
    leads = _lead(a, first), _lead(b, second), _lead(c, PLAIN)
    rows, columns, terms, many = *c.shape[-2:], a.shape[-1], prod(lead)
    if second == PLAIN and (next_a, next_b, next_c) == (0, columns * leads[B], columns * leads[C]):
        columns, many, next_b, next_c = columns * many, 1, 0, 0  # all share one first matrix: it is one product
    if max(rows, columns, terms, many, *leads) >= REACH:
        return None
    return Gemm(char, (first, second), (rows, columns, terms), leads, (next_a, next_b, next_c), many)


def _lead(one: Matrix, way: int) -> int:
    """Return the stride between the lines of a matrix, in elements."""
    return one.strides[-1 if way == PLAIN else -2]


def _way(one: Matrix, conjugated: bool) -> int | None:
    """Return the library's code for how an operand lies, None where it cannot take it."""
    if one.by_columns and not conjugated:
        return PLAIN
    if one.by_rows:
        return CONJUGATED if conjugated else TURNED
    return None


def _step(one: Matrix, lead: Shape) -> int | None:
    """Return the stride between the matrices of a stack, in elements; None where it is not constant."""
    steps = strides_over(Layout(one.shape[:-2], one.strides[:-2]), lead)
    loops = [(n, step) for n, step in zip(lead, steps, strict=True) if n > 1]
    if any([outer != n * inner for (_, outer), (n, inner) in pairwise(loops)]) or (loops and loops[-1][1] < 0):
        return None
    return loops[-1][1] if loops else 0


def _lies(gemm: Gemm, place: int) -> tuple[Shape, Shape]:
    """Return the lengths and strides, in elements, of an operand or the result in memory: over matrices, their lines,
    and the elements of a line, which are contiguous.
    """
    rows, columns, terms = gemm.sizes
    high, wide = ((rows, terms), (terms, columns), (rows, columns))[place]
    turned = place != C and gemm.ways[place] != PLAIN
    step = gemm.steps[place]
    return (gemm.many if step else 1, *((high, wide) if turned else (wide, high))), (step, gemm.leads[place], 1)

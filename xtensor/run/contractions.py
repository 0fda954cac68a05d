"""Contractions by the kernel of codegen/cpu/gemm.py: its tables, made as NumPy arrays, and its words."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import lru_cache, partial
from math import ceil, prod
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ..base import threads
from ..base.dtypes import DType
from ..base.layout import Layout, product_strides
from ..base.options import settings
from ..base.threads import worth
from ..codegen.cpu.compile import Code, host
from ..codegen.cpu.finish import Finish
from ..codegen.cpu.forms import Form, form_of
from ..codegen.cpu.gemm import PANEL, POINTERS, THIN, WHOLE, WORDS, kernel_of
from ..devices import library_of
from ..plan.costs import CONTRACTION_COMPILED, INTEGER_SECONDS, INTEGERS_COMPILED, PACKED_BYTES
from .native import Word

Array = Any  # NumPy's, in whose types views of unknown rank cannot be written


def worth_compiling(native: Array, dtype: DType, multiplications: int) -> bool:
    """Return whether so much work on an array is to be done by our generated code, under the settings in force here.

    That code is the CPU's, and works on addresses: never on the array of another library.
    """
    return library_of(native) is np and is_compiled(dtype, multiplications)


def is_compiled(dtype: DType, multiplications: int) -> bool:
    """Return whether so much work on NumPy arrays of a dtype is done by our generated code, under the settings here."""
    if dtype.char not in "fd" or multiplications < CONTRACTION_COMPILED:
        return False
    if settings().engine not in ("auto", "llvm"):
        return False
    machine = host()
    return machine is not None and machine.vector_bytes >= 32


class Rows(NamedTuple):
    """Where elements of A lie: offsets of its rows and terms, and for each term how many from it on are contiguous."""

    rows: Array
    ks: Array
    runs: Array


class Columns(NamedTuple):
    """Where columns lie in B and C: pieces of registers, and the panels that consist of them (see gemm.POINTERS)."""

    pieces: Array
    panels: Array


def rows_of(rows: Array, ks: Array) -> Rows:
    """Return the table of rows and terms with these offsets."""
    ends = np.append(np.flatnonzero(np.diff(ks) != 1), len(ks) - 1) + 1
    runs = ends[np.searchsorted(ends, np.arange(len(ks)), side="right")] - np.arange(len(ks))
    return Rows(np.ascontiguousarray(rows), np.ascontiguousarray(ks), runs)


def columns_of(sources: Array, targets: Array, form: Form) -> Columns:
    """Return the table of columns with these offsets in B and in C."""
    n = len(sources)
    breaks = np.empty(n, bool)
    breaks[0] = True
    breaks[1:] = (np.diff(sources) != 1) | (np.diff(targets) != 1)
    apart = np.cumsum(np.append(True, np.diff(targets) != 1))
    breaks[:: form.lanes] = True
    starts = np.flatnonzero(breaks)
    counts = np.diff(np.append(starts, n))
    pieces = np.stack([sources[starts], starts % form.width, counts, targets[starts]], axis=1)
    begins = np.arange(0, n, form.width)
    ends = np.minimum(begins + form.width, n)
    first, last = np.searchsorted(starts, begins), np.searchsorted(starts, ends)
    whole = (ends - begins == form.width) & (apart[begins] == apart[ends - 1])
    kinds = np.where(whole, WHOLE, THIN * (ends - begins <= form.lanes))
    return Columns(np.ascontiguousarray(pieces), np.stack([first, last - first, kinds], axis=1))


@lru_cache(256)
def straight(count: int, step: int, form: Form) -> Columns:
    """Return the table of columns that are contiguous in B and lie `step` apart in C."""
    return columns_of(np.arange(count), np.arange(count) * step, form)


class Product:
    """One product C = A B + bias, as the kernel computes it.

    Offsets count elements of the dtype. registers: in a row of a tile, 0 for as many as suit. turned: whether A is
    transposed, so that its rows are adjacent in memory.
    """

    def __init__(
        self,
        dtype: DType,
        rows: int,
        columns: int,
        depth: int,
        registers: int = 0,
        finish: Finish | None = None,
        turned: bool = False,
    ) -> None:
        self.dtype, self.rows, self.columns, self.depth = dtype, rows, columns, depth
        char = dtype.char if dtype.kind == "f" else "i" if dtype.itemsize == 4 else "q"
        self.form = form_of(char, rows, columns, registers)._replace(turned=turned)
        self.finish = finish
        self.block = ceil(depth / ceil(depth / self.form.deepest))
        self.panels = ceil(columns / self.form.width)
        panel = self.form.width * self.block * dtype.itemsize
        chunks = ceil(self.panels / max(self._packed_bytes // panel, 1))
        self.together = ceil(self.panels / chunks)

    @property
    def code(self) -> Code:
        return kernel_of(self.form, self.finish)

    @property
    def _packed_bytes(self) -> int:
        """The most bytes of B that are packed at a time."""
        return PACKED_BYTES[self.form.lanes * self.form.itemsize]

    def scratch(self, packed: bool) -> int:
        """Return the bytes of scratch memory of a call, no less for a larger product with tiles as wide."""
        panel = self.form.width * min(self.depth, self.form.deepest)
        block = 0 if packed else min(self.panels * panel, max(self._packed_bytes // self.dtype.itemsize, panel))
        return (self.form.room + block + self.form.lanes) * self.dtype.itemsize

    def told(self, *given: Any, **how: Any) -> bytes:
        """Return the kernel's words as bytes: those of `words`, where all are numbers."""
        return struct.pack(f"={WORDS}q", *self.words(*given, **how))

    def words(
        self,
        a: Word,
        of_a: Rows,
        b: Word,
        of_b: Array | None,
        columns: Columns,
        c: Word,
        of_c: Array,
        scratch: Word,
        bias_rows: int = 0,
        bias_columns: int = 0,
        fresh: bool = True,
        count: int = 1,
        nexts: tuple[int, int, int] = (0, 0, 0),
        slots: int = 0,
        rows_of_it: range | None = None,
        columns_of_it: range | None = None,
    ) -> tuple[Word, ...]:
        """Return the kernel's words. of_b: offsets of terms, None if B is packed already. Biases: addresses, or 0.

        fresh: whether C is written; else it is added to. count: of matrices, nexts: elements from each to the next.
        slots: of the finish of a single matrix. rows_of_it, columns_of_it: the panels to compute, None for all, those
        of columns only where B is not packed.
        """
        form = self.form
        height = form.height
        tall = self.rows - ceil(self.rows / height) * (height - 1)
        step = form.width * (self.depth if of_b is None else self.block)
        high, wide = rows_of_it or range(ceil(self.rows / height)), columns_of_it or range(len(columns.panels))
        first, behind = (n * (height - 1) + min(n, tall) for n in (high.start, high.stop))
        panels = len(columns.panels)
        nothing = _nothing(max(self.rows, panels * form.width) * self.dtype.itemsize)
        tables = address(columns.pieces), address(columns.panels) + 8 * PANEL * wide.start
        pointers = [a, *map(address, of_a), b, 0 if of_b is None else address(of_b), *tables, c]
        pointers += [address(of_c), bias_rows or nothing, bias_columns or nothing, scratch, slots]
        numbers = [behind, max(tall - high.start, 0), self.depth, self.block, len(wide), self.together, step]
        numbers += [of_b is None, fresh, count, *nexts, 0, first]
        assert len(pointers) == len(POINTERS)
        return *pointers, *numbers


def address(array: Array) -> int:
    """Return the address of an array's first element."""
    found: int = array.__array_interface__["data"][0]
    return found


_zeros: list[Array] = []


def _nothing(nbytes: int) -> int:
    """Return the address of so many zero bytes, which stand for no bias."""
    if not _zeros or _zeros[-1].nbytes < nbytes:
        _zeros.append(np.zeros(max(nbytes, 1 << 16), np.uint8))  # the earlier ones may be in use
    return address(_zeros[-1])


@lru_cache(256)
def by_rows(count: int, step: int, depth: int) -> Rows:
    """Return the table of a matrix whose rows lie `step` apart, with contiguous terms."""
    return rows_of(steps(count, step), steps(depth, 1))


@lru_cache(1024)
def steps(count: int, step: int) -> Array:
    """Return the offsets of so many elements that lie `step` apart."""
    return np.arange(count) * step


# ---- matrices of integers

# The integers in which products of integers of each size are summed: their last bits are those of the exact sums.
_SUMS: dict[int, DType] = {size: np.dtype(np.int64 if size == 8 else np.int32) for size in (1, 2, 4, 8)}


def integer_product(a: Array, b: Array) -> Array | None:
    """Return the matrix product of stacks of integers, which wrap, or None where NumPy's own is to compute it.

    NumPy has no library for integers: its loops take fifty times as long.
    """
    if library_of(a) is not np or min(a.ndim, b.ndim) < 2:
        return None
    dtype = np.result_type(a, b)
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    work = prod(lead) * prod(a.shape[-2:]) * b.shape[-1]
    if dtype.kind not in "iu" or work < INTEGERS_COMPILED or settings().engine not in ("auto", "llvm") or not host():
        return None
    sums, x1, x2 = _SUMS[dtype.itemsize], a, b
    a, b = (_stack(np.broadcast_to(x, (*lead, *x.shape[-2:])), sums) for x in (a, b))
    found: Array = np.empty((prod(lead), a.shape[-2], b.shape[-1]), sums)
    threads.run([partial(_multiply, *parts) for parts in _parts(a, b, found, worth(work * INTEGER_SECONDS))])
    return _in_order(found.reshape(*lead, *found.shape[1:]).astype(dtype, copy=False), x1, x2)


def _in_order(c: Array, a: Array, b: Array) -> Array:
    """Return a product of stacks with the strides that NumPy's matmul gives it."""
    strides = product_strides(c.shape, c.itemsize, *[Layout(one.shape, one.strides) for one in (a, b)])
    if strides == c.strides:
        return c
    room: Array = as_strided(np.empty(c.size, c.dtype), c.shape, strides)
    room[...] = c
    return room


def _stack(x: Array, dtype: DType) -> Array:
    """Return stacked matrices along one axis, as a view of the same bits where possible."""
    x = x.view(dtype) if x.itemsize == dtype.itemsize else x.astype(dtype)
    x = x.reshape(-1, *x.shape[-2:])
    return x if x.flags.aligned and not any(step % x.itemsize for step in x.strides) else x.copy()


def _parts(a: Array, b: Array, c: Array, number: int) -> Iterator[tuple[Array, Array, Array]]:
    """Yield about equal parts of products: of the stack if it is long, else of the rows or columns."""
    count, rows, columns = c.shape
    longest = max(range(3), key=lambda axis: c.shape[axis] if axis else count * (count >= number) * rows * columns)
    step = -(-c.shape[longest] // number)
    for first in range(0, c.shape[longest], step):
        part = slice(first, first + step)
        if longest == 0:
            yield a[part], b[part], c[part]
        elif longest == 1:
            yield a[:, part], b, c[:, part]
        else:
            yield a, b[:, :, part], c[:, :, part]


def _multiply(a: Array, b: Array, c: Array) -> None:
    """Write the products of stacks of matrices a (count, rows, depth) and b (count, depth, columns) into c."""
    count, rows, depth = a.shape
    one = Product(c.dtype, rows, c.shape[2], depth)
    (a_next, *of_a), (b_next, *of_b), (c_next, *of_c) = ([n // c.itemsize for n in x.strides] for x in (a, b, c))
    table = rows_of(steps(rows, of_a[0]), steps(depth, of_a[1]))
    columns = columns_of(steps(c.shape[2], of_b[1]), steps(c.shape[2], of_c[1]), one.form)
    terms, targets = steps(depth, of_b[0]), steps(rows, of_c[0])
    scratch: Array = np.empty(one.scratch(False), np.uint8)
    places = address(a), table, address(b), terms, columns, address(c), targets, address(scratch)
    code = one.code
    code.call(one.told(*places, count=count, nexts=(a_next, b_next, c_next)))

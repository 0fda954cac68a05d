"""A matrix product of ours as LLVM code, whose second matrix may be windows of an input that are nowhere laid out.

C[r, j] = bias[r] + sum over k of A[r, k] * B[offset[k] + j]: with offsets of whole rows B is a matrix; with those of
the window's elements in a padded input it is the convolution of it.

NumPy's OpenBLAS has no wide kernels for every processor that has wide registers; this one uses them wherever LLVM knows
them. Blocks of 12 rows of A (6 where there are only 16 registers) times two registers of B are added up in registers;
few rows times up to eight. Blocks of `DEPTH` along the sum keep the part of A in the nearest cache. Nothing is packed.
Every element is the sum in order, so it has the same bits whatever the size of the tile.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import cache
from math import ceil
from typing import Any

import numpy as np

from ..base.dtypes import DType
from ..base.options import settings
from ..codegen.cpu.compile import Code, handmade, host
from ..devices import library_of

Array = Any  # NumPy's, in whose types views of unknown rank cannot be written

# Sums are cut into equal blocks of at most so many terms.
DEPTH = 640

# From so many multiplications on the code is worth compiling.
WORTH_COMPILING = 1 << 23

TYPES = {"f": "float", "d": "double"}


def worth_compiling(native: Array, dtype: DType, multiplications: int) -> bool:
    """Return whether so much work on an array is to be done by code of ours, under the settings in force here.

    That code is the CPU's, and works on addresses: never for an array of another library's.
    """
    if library_of(native) is not np or dtype.char not in TYPES or multiplications < WORTH_COMPILING:
        return False
    if settings().engine not in ("auto", "llvm"):
        return False
    machine = host()
    return machine is not None and machine.vector_bytes >= 32


@cache
def product_for(dtype: DType, rows: int) -> Code:
    """Return the code of products with so many rows, for a dtype that is worth compiling for."""
    machine = host()
    assert machine is not None
    height = min(12 if machine.vector_bytes == 64 else 6, rows)
    return handmade(source(dtype.char, machine.vector_bytes // dtype.itemsize, height, rows % height))


def multiply(
    code: Code, a: Array, b: Array, c: Array, columns: int, *, offsets: Array | None = None, bias: Array | None = None
) -> None:
    """Write matrices a (count, rows, depth) times rows of so many columns into c, whose first axes are (count, rows).

    offsets: of the rows within each of b, in elements; None where b is (count, depth, columns). bias: (count, rows),
    None for zeros. Rows of a, b and c are contiguous.
    """
    count, rows, depth = a.shape
    places: Array = np.arange(depth) * (b.strides[1] // b.itemsize) if offsets is None else offsets
    first: Array = np.zeros((count, rows), c.dtype) if bias is None else np.ascontiguousarray(bias, c.dtype)
    block = ceil(depth / ceil(depth / DEPTH))
    steps = [x.strides[axis] // x.itemsize for x, axis in ((a, 1), (c, 1), (a, 0), (b, 0), (c, 0))]
    addresses = [x.__array_interface__["data"][0] for x in (a, b, places, c, first)]
    code.call(struct.pack("=15q", *addresses, rows, depth, columns, *steps, count, block))


def suits(*stacks: Array) -> bool:
    """Return whether the rows of stacks of matrices are contiguous, and none is empty."""
    return all(x.size and x.strides[2] == x.itemsize and x.strides[1] > 0 for x in stacks)


# ---- the code


@cache
def source(char: str, lanes: int, height: int, rest: int) -> str:
    """Return the IR for blocks of `height` rows and a last one of `rest`."""
    kind = TYPES[char]
    vector = f"<{lanes} x {kind}>"
    suffix = f"v{lanes}f{32 if char == 'f' else 64}"
    parts = [_panel(kind, vector, lanes, rows, suffix) for rows in ([height, rest] if rest else [height])]
    declared = (
        f"declare {vector} @llvm.fma.{suffix}({vector}, {vector}, {vector})\n"
        f"declare {vector} @llvm.masked.load.{suffix}.p0(ptr, i32, <{lanes} x i1>, {vector})\n"
        f"declare void @llvm.masked.store.{suffix}.p0({vector}, ptr, i32, <{lanes} x i1>)\n"
    )
    return "\n".join([declared, *parts, _driver(kind, height, rest)])


def _registers(rows: int) -> int:
    """Return how many registers of columns are taken at a time, so that enough sums are under way."""
    return 8 if rows == 1 else 4 if rows <= 4 else 2


_SHARED = "ptr %offsets.at, ptr %c.at, i64 %depth, i64 %columns, i64 %lda, i64 %ldc, i1 %first"
_POINTERS = ("a.0", "b.0", "offsets", "c.0", "bias.0")
_NUMBERS = ("m", "k", "columns", "lda", "ldc", "a.step", "b.step", "c.step", "count", "block")


def loads(pointers: Sequence[str], numbers: Sequence[str]) -> Iterator[str]:
    """Yield the lines that load what stands in %table: pointers, then numbers."""
    for place, name in enumerate((*pointers, *numbers)):
        yield f"  %at.{name} = getelementptr i64, ptr %table, i64 {place}"
        yield f"  %{name} = load {'ptr' if name in pointers else 'i64'}, ptr %at.{name}"


def _driver(kind: str, height: int, rest: int) -> str:
    """Return the function that goes over the matrices, blocks of the sum, and blocks of rows."""
    arguments = f"ptr %b, {_SHARED}, ptr %bias.at"
    steps = (("a", "a.step"), ("b", "b.step"), ("c", "c.step"), ("bias", "m"))
    phis = [f"  %{name} = phi ptr [%{name}.0, %entry], [%{name}.n, %next]" for name, _ in steps]
    moves = [f"  %{name}.n = getelementptr {kind}, ptr %{name}, i64 %{step}" for name, step in steps]
    last = f"  call void @panel{rest}(ptr %a.at, {arguments})\n" if rest else ""
    return f"""define void @kernel(ptr %table) {{
entry:
{chr(10).join(loads(_POINTERS, _NUMBERS))}
  %whole = sub i64 %m, {rest}
  br label %matrix
matrix:
  %number = phi i64 [1, %entry], [%number.n, %next]
{chr(10).join(phis)}
  br label %block.begin
block.begin:
  %k0 = phi i64 [0, %matrix], [%k1, %block.end]
  %k1 = add i64 %k0, %block
  %left = sub i64 %k, %k0
  %short = icmp sle i64 %left, %block
  %depth = select i1 %short, i64 %left, i64 %block
  %first = icmp eq i64 %k0, 0
  %a.block = getelementptr {kind}, ptr %a, i64 %k0
  %offsets.at = getelementptr i64, ptr %offsets, i64 %k0
  br label %rows
rows:
  %i = phi i64 [0, %block.begin], [%i.next, %panel]
  %a.row = mul i64 %i, %lda
  %a.at = getelementptr {kind}, ptr %a.block, i64 %a.row
  %c.row = mul i64 %i, %ldc
  %c.at = getelementptr {kind}, ptr %c, i64 %c.row
  %bias.at = getelementptr {kind}, ptr %bias, i64 %i
  %i.next = add i64 %i, {height}
  %more = icmp slt i64 %i, %whole
  br i1 %more, label %panel, label %last
panel:
  call void @panel{height}(ptr %a.at, {arguments})
  br label %rows
last:
{last}  br label %block.end
block.end:
  br i1 %short, label %next, label %block.begin
next:
{chr(10).join(moves)}
  %number.n = add i64 %number, 1
  %again = icmp slt i64 %number, %count
  br i1 %again, label %matrix, label %done
done:
  ret void
}}"""


def _panel(kind: str, vector: str, lanes: int, rows: int, suffix: str) -> str:
    """Return the function that goes over the columns for one block of rows."""
    width = lanes * _registers(rows)
    lines = [f"define internal void @panel{rows}(ptr %a, ptr %b, {_SHARED}, ptr %bias) {{", "entry:"]
    lines += [f"  %step{r} = mul i64 %lda, {r}" for r in range(3, rows, 3)]
    lines += [
        f"  %start{r} = getelementptr {kind}, ptr %a, i64 " + (f"%step{r}" if r else "0") for r in range(0, rows, 3)
    ]
    lines += ["  %lda2 = mul i64 %lda, 2"]
    lines += [f"  %at{r} = mul i64 %ldc, {r}" for r in range(rows)]
    lines += [
        f"  %rounded = urem i64 %columns, {width}",
        "  %full = sub i64 %columns, %rounded",
        "  br label %columns.next",
        "columns.next:",
        "  %j = phi i64 [0, %entry], [%j1, %whole.end]",
        f"  %j1 = add i64 %j, {width}",
        "  %b.j = getelementptr " + f"{kind}, ptr %b, i64 %j",
        f"  %c.j = getelementptr {kind}, ptr %c.at, i64 %j",
        "  %more = icmp slt i64 %j, %full",
        "  br i1 %more, label %whole, label %tail",
        "tail:",
        "  %any = icmp ne i64 %rounded, 0",
        "  br i1 %any, label %part, label %done",
    ]
    lines += _columns("whole", kind, vector, lanes, rows, suffix, masked=False)
    lines += ["  br label %columns.next"]
    lines += _columns("part", kind, vector, lanes, rows, suffix, masked=True)
    lines += ["  br label %done", "done:", "  ret void", "}"]
    return "\n".join(lines)


def splat(name: str, kind: str, vector: str, lanes: int, of: str = "") -> list[str]:
    """Return the lines that make %name.all of the number %name, or another one."""
    return [
        f"  %{name}.one = insertelement {vector} poison, {kind} %{of or name}, i32 0",
        f"  %{name}.all = shufflevector {vector} %{name}.one, {vector} poison, <{lanes} x i32> zeroinitializer",
    ]


def _columns(label: str, kind: str, vector: str, lanes: int, rows: int, suffix: str, *, masked: bool) -> Iterator[str]:
    """Yield the code for some registers of columns, ending in the block `label`.end.

    The sum is one step per turn: of several, LLVM moves the loads to the front and the registers to the stack.
    """
    registers = range(_registers(rows))
    cells = [(r, v) for r in range(rows) for v in registers]
    masks = [f"<{lanes} x i1> %{label}.mask{v}" for v in registers]

    def load(name: str, pointer: str, v: int) -> str:
        if not masked:
            return f"  %{name} = load {vector}, ptr {pointer}, align 4"
        given = f"ptr {pointer}, i32 4, {masks[v]}, {vector} zeroinitializer"
        return f"  %{name} = call {vector} @llvm.masked.load.{suffix}.p0({given})"

    def phi(name: str, of: str, start: str) -> str:
        return f"  %{label}.{name} = phi {of} [{start}, %{label}.go], [%{label}.{name}.n, %{label}.sum]"

    yield f"{label}:"
    if masked:
        yield from _masks(label, lanes, len(registers))
    for r, v in cells:
        yield f"  %{label}.row{r}.{v} = getelementptr {kind}, ptr %c.j, i64 %at{r}"
        yield f"  %{label}.p{r}.{v} = getelementptr {kind}, ptr %{label}.row{r}.{v}, i64 {v * lanes}"
    yield f"  br i1 %first, label %{label}.new, label %{label}.old\n{label}.new:"
    for r in range(rows):
        yield f"  %{label}.bias{r}.p = getelementptr {kind}, ptr %bias, i64 {r}"
        yield f"  %{label}.bias{r} = load {kind}, ptr %{label}.bias{r}.p"
        yield from splat(f"{label}.bias{r}", kind, vector, lanes)
    yield f"  br label %{label}.go\n{label}.old:"
    yield from [load(f"{label}.old{r}.{v}", f"%{label}.p{r}.{v}", v) for r, v in cells]
    yield f"  br label %{label}.go\n{label}.go:"
    for r, v in cells:
        given = f"[%{label}.bias{r}.all, %{label}.new], [%{label}.old{r}.{v}, %{label}.old]"
        yield f"  %{label}.init{r}.{v} = phi {vector} {given}"
    yield from [f"  br label %{label}.sum", f"{label}.sum:", phi("k", "i64", "0")]
    yield from [phi(f"a{r}", "ptr", f"%start{r}") for r in range(0, rows, 3)]
    yield from [phi(f"acc{r}.{v}", vector, f"%{label}.init{r}.{v}") for r, v in cells]
    yield f"  %{label}.o.p = getelementptr i64, ptr %offsets.at, i64 %{label}.k"
    yield f"  %{label}.o = load i64, ptr %{label}.o.p"
    yield f"  %{label}.b = getelementptr {kind}, ptr %b.j, i64 %{label}.o"
    for v in registers:
        yield f"  %{label}.bp{v} = getelementptr {kind}, ptr %{label}.b, i64 {v * lanes}"
        yield load(f"{label}.b{v}", f"%{label}.bp{v}", v)
    for r in range(rows):
        name = f"{label}.x{r}"
        yield f"  %{name}.p = getelementptr {kind}, ptr %{label}.a{r - r % 3}, i64 {('0', '%lda', '%lda2')[r % 3]}"
        yield f"  %{name} = load {kind}, ptr %{name}.p"
        yield from splat(name, kind, vector, lanes)
        for v in registers:
            given = f"{vector} %{name}.all, {vector} %{label}.b{v}, {vector} %{label}.acc{r}.{v}"
            yield f"  %{label}.acc{r}.{v}.n = call {vector} @llvm.fma.{suffix}({given})"
    yield from [f"  %{label}.a{r}.n = getelementptr {kind}, ptr %{label}.a{r}, i64 1" for r in range(0, rows, 3)]
    yield f"  %{label}.k.n = add i64 %{label}.k, 1"
    yield f"  %{label}.on = icmp slt i64 %{label}.k.n, %depth"
    yield from [f"  br i1 %{label}.on, label %{label}.sum, label %{label}.end", f"{label}.end:"]
    for r, v in cells:
        value, target = f"{vector} %{label}.acc{r}.{v}.n", f"ptr %{label}.p{r}.{v}"
        if masked:
            yield f"  call void @llvm.masked.store.{suffix}.p0({value}, {target}, i32 4, {masks[v]})"
        else:
            yield f"  store {value}, {target}, align 4"


def _masks(label: str, lanes: int, registers: int) -> Iterator[str]:
    """Yield the masks of the columns that are left."""
    yield f"  %{label}.left.one = insertelement <{lanes} x i64> poison, i64 %rounded, i32 0"
    turned = f"<{lanes} x i64> %{label}.left.one, <{lanes} x i64> poison, <{lanes} x i32> zeroinitializer"
    yield f"  %{label}.left = shufflevector {turned}"
    for v in range(registers):
        places = ", ".join(f"i64 {v * lanes + lane}" for lane in range(lanes))
        yield f"  %{label}.mask{v} = icmp slt <{lanes} x i64> <{places}>, %{label}.left"

"""A matrix product of ours as LLVM code: C = A B for a tile of columns B that lies in the cache.

NumPy's OpenBLAS has no wide kernels for every processor that has wide registers; this one uses them wherever LLVM knows
them. Blocks of 12 rows of A (6 where there are only 16 registers) times two registers of B are added up in registers;
blocks of `DEPTH` along the sum keep the part of A in the nearest cache. Nothing is packed: A's rows and B's columns lie
where they are. Every element is the sum in order, so it has the same bits whatever the size of the tile.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import cache
from typing import Any

from ..dtypes import DType
from ..lazy.compile import Code, handmade, host
from ..options import settings

Array = Any

# Sums are cut into blocks of so many terms.
DEPTH = 512

# From so many multiplications on the code is worth compiling.
WORTH_COMPILING = 1 << 23

_TYPES = {"f": "float", "d": "double"}


def worth_compiling(dtype: DType, multiplications: int) -> bool:
    """Return whether so much work is to be done by code of ours, under the settings in force here."""
    if dtype.char not in _TYPES or multiplications < WORTH_COMPILING or settings().engine not in ("auto", "llvm"):
        return False
    machine = host()
    return machine is not None and machine.vector_bytes >= 32


@cache
def product_for(dtype: DType, rows: int) -> Code:
    """Return the code of products with so many rows, for a dtype that is worth compiling for."""
    machine = host()
    assert machine is not None
    height = 12 if machine.vector_bytes == 64 else 6
    return handmade(source(dtype.char, machine.vector_bytes // dtype.itemsize, height, rows % height))


def multiply(code: Code, a: Array, b: Array, c: Array) -> None:
    """Write a @ b into c; rows of all are contiguous."""
    steps = [x.strides[0] // x.itemsize for x in (a, b, c)]
    addresses = [x.__array_interface__["data"][0] for x in (a, b, c)]
    code.call(struct.pack("=9q", *addresses, *a.shape, b.shape[1], *steps))


def suits(*stacks: Array) -> bool:
    """Return whether the rows of stacks of matrices are contiguous, and none is empty."""
    return all(x.size and x.strides[2] == x.itemsize and x.strides[1] > 0 for x in stacks)


# ---- the code


@cache
def source(char: str, lanes: int, height: int, rest: int) -> str:
    """Return the IR for blocks of `height` rows and a last one of `rest`."""
    kind = _TYPES[char]
    vector = f"<{lanes} x {kind}>"
    suffix = f"v{lanes}f{32 if char == 'f' else 64}"
    heights = [height, rest] if rest else [height]
    parts = [_panel(kind, vector, lanes, rows, suffix) for rows in heights]
    declared = (
        f"declare {vector} @llvm.fma.{suffix}({vector}, {vector}, {vector})\n"
        f"declare {vector} @llvm.masked.load.{suffix}.p0(ptr, i32, <{lanes} x i1>, {vector})\n"
        f"declare void @llvm.masked.store.{suffix}.p0({vector}, ptr, i32, <{lanes} x i1>)\n"
    )
    return "\n".join([declared, *parts, _driver(kind, height, rest)])


_SIGNATURE = "ptr %a, ptr %b, ptr %c, i64 %depth, i64 %columns, i64 %lda, i64 %ldb, i64 %ldc, i1 %first"
_NAMES = ("a", "b", "c", "m", "k", "columns", "lda", "ldb", "ldc")


def _driver(kind: str, height: int, rest: int) -> str:
    """Return the function that goes over blocks of the sum and of rows."""
    loads = [
        f"  %at.{name} = getelementptr i64, ptr %table, i64 {place}\n"
        f"  %{name} = load {'ptr' if place < 3 else 'i64'}, ptr %at.{name}"
        for place, name in enumerate(_NAMES)
    ]
    arguments = "ptr %b.at, ptr %c.at, i64 %depth, i64 %columns, i64 %lda, i64 %ldb, i64 %ldc, i1 %first"
    last = f"  call void @panel{rest}(ptr %a.at, {arguments})\n" if rest else ""
    return f"""define void @kernel(ptr %table) {{
entry:
{chr(10).join(loads)}
  %whole = sub i64 %m, {rest}
  br label %block
block:
  %k0 = phi i64 [0, %entry], [%k1, %block.end]
  %k1 = add i64 %k0, {DEPTH}
  %left = sub i64 %k, %k0
  %short = icmp slt i64 %left, {DEPTH}
  %depth = select i1 %short, i64 %left, i64 {DEPTH}
  %first = icmp eq i64 %k0, 0
  %a.block = getelementptr {kind}, ptr %a, i64 %k0
  %b.rows = mul i64 %k0, %ldb
  %b.at = getelementptr {kind}, ptr %b, i64 %b.rows
  br label %rows
rows:
  %i = phi i64 [0, %block], [%i.next, %panel]
  %a.row = mul i64 %i, %lda
  %a.at = getelementptr {kind}, ptr %a.block, i64 %a.row
  %c.row = mul i64 %i, %ldc
  %c.at = getelementptr {kind}, ptr %c, i64 %c.row
  %i.next = add i64 %i, {height}
  %more = icmp slt i64 %i, %whole
  br i1 %more, label %panel, label %last
panel:
  call void @panel{height}(ptr %a.at, {arguments})
  br label %rows
last:
{last}  br label %block.end
block.end:
  %again = icmp slt i64 %k1, %k
  br i1 %again, label %block, label %done
done:
  ret void
}}"""


def _panel(kind: str, vector: str, lanes: int, rows: int, suffix: str) -> str:
    """Return the function that goes over the columns for one block of rows."""
    lines = [f"define internal void @panel{rows}({_SIGNATURE}) {{", "entry:"]
    lines += [f"  %step{r} = mul i64 %lda, {r}" for r in range(3, rows, 3)]
    lines += [
        f"  %start{r} = getelementptr {kind}, ptr %a, i64 " + (f"%step{r}" if r else "0") for r in range(0, rows, 3)
    ]
    lines += ["  %lda2 = mul i64 %lda, 2"]
    lines += [f"  %at{r} = mul i64 %ldc, {r}" for r in range(rows)]
    lines += [
        f"  %rounded = urem i64 %columns, {2 * lanes}",
        "  %full = sub i64 %columns, %rounded",
        "  br label %columns.next",
        "columns.next:",
        "  %j = phi i64 [0, %entry], [%j1, %whole.end]",
        f"  %j1 = add i64 %j, {2 * lanes}",
        "  %b.at = getelementptr " + f"{kind}, ptr %b, i64 %j",
        f"  %c.at = getelementptr {kind}, ptr %c, i64 %j",
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


def _splat(name: str, kind: str, vector: str, lanes: int) -> list[str]:
    """Return the lines that make %name.all of the number %name."""
    return [
        f"  %{name}.one = insertelement {vector} poison, {kind} %{name}, i32 0",
        f"  %{name}.all = shufflevector {vector} %{name}.one, {vector} poison, <{lanes} x i32> zeroinitializer",
    ]


def _columns(label: str, kind: str, vector: str, lanes: int, rows: int, suffix: str, *, masked: bool) -> Iterator[str]:
    """Yield the code for two registers of columns, ending in the block `label`.end.

    The sum is one step per turn: of several, LLVM moves the loads to the front and the registers to the stack.
    """
    cells = [(r, v) for r in range(rows) for v in (0, 1)]
    masks = [f"<{lanes} x i1> %{label}.mask{v}" for v in (0, 1)]

    def load(name: str, pointer: str, v: int) -> str:
        if not masked:
            return f"  %{name} = load {vector}, ptr {pointer}, align 4"
        given = f"ptr {pointer}, i32 4, {masks[v]}, {vector} zeroinitializer"
        return f"  %{name} = call {vector} @llvm.masked.load.{suffix}.p0({given})"

    def phi(name: str, of: str, start: str) -> str:
        return f"  %{label}.{name} = phi {of} [{start}, %{label}], [%{label}.{name}.n, %{label}.sum]"

    yield f"{label}:"
    if masked:
        yield from _masks(label, lanes)
    for r, v in cells:
        yield f"  %{label}.row{r}.{v} = getelementptr {kind}, ptr %c.at, i64 %at{r}"
        yield f"  %{label}.p{r}.{v} = getelementptr {kind}, ptr %{label}.row{r}.{v}, i64 {v * lanes}"
        yield load(f"{label}.old{r}.{v}", f"%{label}.p{r}.{v}", v)
        yield f"  %{label}.init{r}.{v} = select i1 %first, {vector} zeroinitializer, {vector} %{label}.old{r}.{v}"
    yield from [f"  br label %{label}.sum", f"{label}.sum:", phi("k", "i64", "0"), phi("b", "ptr", "%b.at")]
    yield from [phi(f"a{r}", "ptr", f"%start{r}") for r in range(0, rows, 3)]
    yield from [phi(f"acc{r}.{v}", vector, f"%{label}.init{r}.{v}") for r, v in cells]
    for v in (0, 1):
        yield f"  %{label}.bp{v} = getelementptr {kind}, ptr %{label}.b, i64 {v * lanes}"
        yield load(f"{label}.b{v}", f"%{label}.bp{v}", v)
    for r in range(rows):
        name = f"{label}.x{r}"
        yield f"  %{name}.p = getelementptr {kind}, ptr %{label}.a{r - r % 3}, i64 {('0', '%lda', '%lda2')[r % 3]}"
        yield f"  %{name} = load {kind}, ptr %{name}.p"
        yield from _splat(name, kind, vector, lanes)
        for v in (0, 1):
            given = f"{vector} %{name}.all, {vector} %{label}.b{v}, {vector} %{label}.acc{r}.{v}"
            yield f"  %{label}.acc{r}.{v}.n = call {vector} @llvm.fma.{suffix}({given})"
    yield f"  %{label}.b.n = getelementptr {kind}, ptr %{label}.b, i64 %ldb"
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


def _masks(label: str, lanes: int) -> Iterator[str]:
    """Yield the masks of the columns that are left."""
    yield f"  %{label}.left.one = insertelement <{lanes} x i64> poison, i64 %rounded, i32 0"
    turned = f"<{lanes} x i64> %{label}.left.one, <{lanes} x i64> poison, <{lanes} x i32> zeroinitializer"
    yield f"  %{label}.left = shufflevector {turned}"
    for v in (0, 1):
        places = ", ".join(f"i64 {v * lanes + lane}" for lane in range(lanes))
        yield f"  %{label}.mask{v} = icmp slt <{lanes} x i64> <{places}>, %{label}.left"

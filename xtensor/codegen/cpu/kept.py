"""Memory that NumPy's results were in, kept for the next ones: machine code that NumPy calls to allocate arrays.

What NumPy frees in the middle of a loop the C library may give back to the system, which clears the pages it gives out
again: to fill them takes several times as long as to compute what is put there. So results of functions that are
called in a quiet context (devices/cpu.py) take a block that was freed before, of just their size; the latest comes
first, as it is in the cache. The blocks are the C library's, which NumPy's own handler gets and takes back.

NumPy holds the interpreter's lock while it allocates and frees, so nothing here is locked; where there is no such lock
nothing is kept. Source: NEP 49 (Data allocation strategies).
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from ...base.interpreter import has_known_objects
from ...devices.cpu import allocate_by
from ...plan.costs import CHEAP_BELOW, cheap_below
from ...storage.pool import POOL, POOLED
from .compile import handmade, kept_for_ever
from .mailbox import load

# Bytes of blocks that are kept, from and up to: results of operands that are small may have twice their bytes. The most
# blocks, and bytes of them all.
LEAST, MOST = POOLED, 2 * CHEAP_BELOW
BLOCKS, ALL = 32, 8 << 20

# The fields of PyDataMemAllocator, behind a name of 127 bytes and the version.
ALLOCATOR = ("context", "malloc", "calloc", "realloc", "free")
_BEFORE, _VERSION = 128, 1

# The functions here that the handler calls, and the one that sets the most bytes and returns how many were freed.
_FUNCTIONS = ("malloc", "calloc", "realloc", "free", "limit")

# PyDataMem_SetHandler and PyDataMem_DefaultHandler among what NumPy hands to extensions, from version 2.0 on.
_SET, _DEFAULT = 304, 306


def keep() -> None:
    """Let NumPy keep the memory of its results from now on, where that can be: from then on larger calls are thin."""
    if _kept or not has_known_objects():
        return
    own = _own_allocator()
    if own is None:
        return
    code = handmade(_source())
    run = (ctypes.c_uint64 * (1 + len(_FUNCTIONS)))(own)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(code.address)(ctypes.addressof(run))
    words = (ctypes.c_uint64 * len(ALLOCATOR))(0, *run[1:-1])
    handler = ctypes.create_string_buffer(b"xtensor".ljust(_BEFORE - 1, b"\0") + bytes([_VERSION]) + bytes(words))
    name = ctypes.create_string_buffer(b"mem_handler")
    make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    capsule = make(("PyCapsule_New", ctypes.pythonapi))(ctypes.addressof(handler), ctypes.addressof(name), None)
    _kept.extend((kept_for_ever(code), handler, name, capsule))
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_kept))  # arrays may be freed until the process has ended
    set_handler = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(_of_numpy(_SET))
    if allocate_by(lambda: set_handler(capsule)):
        POOL.beside(ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(run[-1]), ALL)
        cheap_below[0] = CHEAP_BELOW


# What machine code points to, and the code.
_kept: list[Any] = []


def _of_numpy(place: int) -> int:
    """Return the word at a place of what NumPy hands to extensions."""
    get = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
    table = get(("PyCapsule_GetPointer", ctypes.pythonapi))(np._core._multiarray_umath._ARRAY_API, None)  # type: ignore[attr-defined]
    return int(ctypes.c_uint64.from_address(table + 8 * place).value)


def _own_allocator() -> int | None:
    """Return the address of the allocator in NumPy's own handler; None where that is not as it was in NumPy 2."""
    try:
        handler = ctypes.cast(ctypes.c_uint64.from_address(_of_numpy(_DEFAULT)).value, ctypes.py_object).value
        get = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
        address = get(("PyCapsule_GetPointer", ctypes.pythonapi))(handler, b"mem_handler")
    except (AttributeError, ValueError):
        return None
    is_known = ctypes.string_at(address) == b"default_allocator"
    return address + _BEFORE if is_known and ctypes.string_at(address + _BEFORE - 1, 1)[0] == _VERSION else None


# ---- machine code


def _own(name: str, result: str, *arguments: str) -> str:
    """Return the lines that call a function of NumPy's own allocator."""
    given = "".join([f", {one}" for one in arguments])
    where = load("own", "@own", 0, "ptr") + load("context", "%own", 0, "ptr")
    function = load("function", "%own", ALLOCATOR.index(name), "ptr")
    taken = "" if result == "void" else "%r = "
    end = "ret void" if result == "void" else f"ret {result} %r"
    return f"{where}{function}  {taken}call {result} %function(ptr %context{given})\n  {end}\n"


def _source() -> str:
    told = "".join(
        [
            f"  %to{n} = getelementptr i64, ptr %run, i64 {n}\n  store ptr @{name}, ptr %to{n}\n"
            for n, name in enumerate(_FUNCTIONS, 1)
        ]
    )
    return f"""
@own = private global ptr null
@blocks = private global [{BLOCKS} x ptr] zeroinitializer
@sizes = private global [{BLOCKS} x i64] zeroinitializer
@count = private global i64 0
@total = private global i64 0
@most = private global i64 {ALL}
{_taking()}{_allocating()}{_freeing()}
define void @kernel(ptr %run) {{
{load("given", "%run", 0, "ptr")}  store ptr %given, ptr @own
{told}  ret void
}}
"""


def _taking() -> str:
    """Return @is_kept: whether blocks of a size are; @take: the block at a place, those behind it moving up; @release:
    free a block; @drop: free the oldest.
    """
    return f"""
define private i1 @is_kept(i64 %size) {{
  %large = icmp uge i64 %size, {LEAST}
  %small = icmp ule i64 %size, {MOST}
  %kept = and i1 %large, %small
  ret i1 %kept
}}
define private ptr @take(i64 %place) {{
entry:
{load("block", "@blocks", "%place", "ptr")}{load("size", "@sizes", "%place")}\
{load("count", "@count", 0)}{load("total", "@total", 0)}\
  %less = sub i64 %total, %size
  store i64 %less, ptr @total
  %last = sub i64 %count, 1
  store i64 %last, ptr @count
  br label %test
test:
  %n = phi i64 [%place, %entry], [%n.next, %move]
  %more = icmp ult i64 %n, %last
  br i1 %more, label %move, label %done
move:
  %n.next = add i64 %n, 1
{load("later", "@blocks", "%n.next", "ptr")}{load("length", "@sizes", "%n.next")}\
  %later.to = getelementptr i64, ptr @blocks, i64 %n
  store ptr %later, ptr %later.to
  %length.to = getelementptr i64, ptr @sizes, i64 %n
  store i64 %length, ptr %length.to
  br label %test
done:
  ret ptr %block
}}
define private void @release(ptr %block, i64 %size) {{
{_own("free", "void", "ptr %block", "i64 %size")}}}
define private void @drop() {{
{load("size", "@sizes", 0)}  %block = call ptr @take(i64 0)
  call void @release(ptr %block, i64 %size)
  ret void
}}
"""


def _allocating() -> str:
    """Return @malloc, by the latest block of the size, @calloc and @realloc."""
    return f"""
define private ptr @malloc(ptr %unused, i64 %size) {{
entry:
  %kept = call i1 @is_kept(i64 %size)
  br i1 %kept, label %search, label %fresh
search:
{load("count", "@count", 0)}  br label %test
test:
  %n = phi i64 [%count, %search], [%place, %look]
  %none = icmp eq i64 %n, 0
  br i1 %none, label %fresh, label %look
look:
  %place = sub i64 %n, 1
{load("length", "@sizes", "%place")}  %same = icmp eq i64 %length, %size
  br i1 %same, label %found, label %test
found:
  %block = call ptr @take(i64 %place)
  ret ptr %block
fresh:
{_own("malloc", "ptr", "i64 %size")}}}
define private ptr @calloc(ptr %unused, i64 %elements, i64 %itemsize) {{
{_own("calloc", "ptr", "i64 %elements", "i64 %itemsize")}}}
define private ptr @realloc(ptr %unused, ptr %block, i64 %size) {{
{_own("realloc", "ptr", "ptr %block", "i64 %size")}}}
"""


def _freeing() -> str:
    """Return @free, which keeps a block, and @limit. NumPy's sorts free the null that stands for a buffer they did not
    need, with the size that it would have had.
    """
    return f"""
define private void @free(ptr %unused, ptr %block, i64 %size) {{
entry:
  %right = call i1 @is_kept(i64 %size)
{load("most", "@most", 0)}  %fits = icmp ule i64 %size, %most
  %there = icmp ne ptr %block, null
  %may = and i1 %right, %fits
  %kept = and i1 %may, %there
  br i1 %kept, label %test, label %release
test:
{load("count", "@count", 0)}{load("total", "@total", 0)}\
  %sum = add i64 %total, %size
  %full = icmp eq i64 %count, {BLOCKS}
  %much = icmp ugt i64 %sum, %most
  %over = or i1 %full, %much
  br i1 %over, label %older, label %enter
older:
  call void @drop()
  br label %test
enter:
  %block.to = getelementptr i64, ptr @blocks, i64 %count
  store ptr %block, ptr %block.to
  %size.to = getelementptr i64, ptr @sizes, i64 %count
  store i64 %size, ptr %size.to
  %next = add i64 %count, 1
  store i64 %next, ptr @count
  store i64 %sum, ptr @total
  ret void
release:
  call void @release(ptr %block, i64 %size)
  ret void
}}
define private i64 @limit(i64 %most) {{
entry:
  store i64 %most, ptr @most
{load("before", "@total", 0)}  br label %test
test:
{load("total", "@total", 0)}  %much = icmp ugt i64 %total, %most
  br i1 %much, label %older, label %done
older:
  call void @drop()
  br label %test
done:
  %freed = sub i64 %before, %total
  ret i64 %freed
}}
"""

"""Machine code that counts, and fails or interrupts at the n-th time: where Python code must not take part.

`trace` has what Python traces counted, and tells the interpreter of Ctrl-C at the n-th. `allocations` stands between
NumPy and its allocator of array data, and has no memory at the n-th time.
Source: NumPy's data memory handlers, NEP 49.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from numpy._core import _multiarray_umath


class Count:
    """A counter that machine code moves while it is not paused, and the number at which it strikes, 0 for never."""

    def __init__(self) -> None:
        self._words = (ctypes.c_int64 * 2)()
        self._at = self._count = 0
        self.address = ctypes.addressof(self._words)

    def arm(self, at: int) -> None:
        self._at, self._count = at, 0

    def resume(self) -> None:
        self._words[:] = self._count, self._at

    def pause(self) -> None:
        self._words[1], self._count = 0, self._words[0]

    def disarm(self) -> int:
        """Let it strike no more; return how often it was moved."""
        self._at = 0
        return self._count


EVENTS, ALLOCATIONS = Count(), Count()

_SOURCE = """
define private i1 @strikes(i64 %address) {{
  %words = inttoptr i64 %address to ptr
  %before = load i64, ptr %words
  %count = add i64 %before, 1
  store i64 %count, ptr %words
  %at.place = getelementptr i64, ptr %words, i64 1
  %at = load i64, ptr %at.place
  %now = icmp eq i64 %count, %at
  ret i1 %now
}}
define i32 @event(ptr %given, ptr %frame, i32 %what, ptr %argument) {{
  %now = call i1 @strikes(i64 {events})
  br i1 %now, label %strike, label %done
strike:
  %interrupt = inttoptr i64 {interrupt} to ptr
  call void %interrupt()
  br label %done
done:
  ret i32 0
}}
define ptr @malloc_data(ptr %context, i64 %size) {{
  %now = call i1 @strikes(i64 {allocations})
  br i1 %now, label %strike, label %take
strike:
  ret ptr null
take:
  %plain = inttoptr i64 {malloc} to ptr
  %found = call ptr %plain(ptr %context, i64 %size)
  ret ptr %found
}}
define ptr @calloc_data(ptr %context, i64 %count, i64 %size) {{
  %now = call i1 @strikes(i64 {allocations})
  br i1 %now, label %strike, label %take
strike:
  ret ptr null
take:
  %plain = inttoptr i64 {calloc} to ptr
  %found = call ptr %plain(ptr %context, i64 %count, i64 %size)
  ret ptr %found
}}
"""


@cache
def _engine() -> Any:
    """Return the code, linked."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    handler = _handler()
    plain = {"malloc": handler.malloc, "calloc": handler.calloc}
    interrupt = ctypes.cast(ctypes.pythonapi.PyErr_SetInterrupt, ctypes.c_void_p).value
    text = _SOURCE.format(events=EVENTS.address, allocations=ALLOCATIONS.address, interrupt=interrupt, **plain)
    machine = llvm.Target.from_default_triple().create_target_machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(text), machine)
    engine.finalize_object()
    return engine


def trace(on: bool) -> None:
    """Have all events of this thread counted: calls, lines, returns and exceptions of Python's; or none."""
    hook = ctypes.c_void_p(_engine().get_function_address("event")) if on else None
    ctypes.pythonapi.PyEval_SetTrace(hook, None)


class _Handler(ctypes.Structure):
    """NumPy's PyDataMem_Handler."""

    _fields_ = [
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("context", ctypes.c_void_p),
        ("malloc", ctypes.c_void_p),
        ("calloc", ctypes.c_void_p),
        ("realloc", ctypes.c_void_p),
        ("free", ctypes.c_void_p),
    ]


_PLACE = 305  # of PyDataMem_GetHandler in NumPy's table of functions


@cache
def _handler() -> Any:
    """Return NumPy's own handler, which contexts have that set no other."""
    take = ctypes.pythonapi.PyCapsule_GetPointer
    take.restype, take.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    table = ctypes.cast(take(_multiarray_umath._ARRAY_API, None), ctypes.POINTER(ctypes.c_void_p))
    capsule = ctypes.PYFUNCTYPE(ctypes.py_object)(table[_PLACE])()
    assert _multiarray_umath.get_handler_name() == "default_allocator"
    return _Handler.from_address(take(capsule, b"mem_handler"))


@contextmanager
def allocations() -> Iterator[None]:
    """Have the data of arrays allocated through machine code that counts."""
    handler, engine = _handler(), _engine()
    before = handler.malloc, handler.calloc
    handler.malloc, handler.calloc = (engine.get_function_address(f"{name}_data") for name in ("malloc", "calloc"))
    try:
        yield
    finally:
        handler.malloc, handler.calloc = before

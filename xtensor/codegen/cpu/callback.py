"""A call of Python as machine code: NumPy arrays are made over given memory, and a function is called with them.

The words of a call (NAMES): the function; the address where a failure is noted; the number of arrays; the addresses of
functions and objects of Python's and NumPy's. Then follow the words of each array (ARRAY). The caller holds Python's
lock. An exception that the function raises is left to the caller of the machine code.

Source: NumPy's C API (PyArray_NewFromDescr), Python's (Call Protocol).
"""

from __future__ import annotations

from functools import cache

from .compile import Code, handmade
from .faces import SPARE
from .kinds import WRITEABLE, over
from .mailbox import load

FUNCTIONS = ("PyArray_NewFromDescr", "PyObject_Vectorcall", "Py_IncRef", "Py_DecRef")
NAMES = ("function", "failed", "count", *FUNCTIONS, "ndarray", "true")

# The words of an array: its dtype, its number of axes, the address of their lengths and then strides, and its memory.
ARRAY = ("dtype", "axes", "lengths", "memory")


@cache
def call_of() -> Code:
    """Return the machine code."""
    known = {"count": "i64"}
    loads = "".join([load(name, "%words", at, known.get(name, "ptr")) for at, name in enumerate(NAMES)])
    fields = "".join([load(name, "%array", at, "i64" if name == "axes" else "ptr") for at, name in enumerate(ARRAY)])
    made = f"""  %a.words = mul i64 %a, {len(ARRAY)}
  %a.first = add i64 %a.words, {len(NAMES)}
  %array = getelementptr i64, ptr %words, i64 %a.first
{fields}  %strides = getelementptr i64, ptr %lengths, i64 %axes
  %few = trunc i64 %axes to i32
  call void %Py_IncRef(ptr %dtype)
  %one = call ptr %PyArray_NewFromDescr(ptr %ndarray, ptr %dtype, i32 %few, ptr %lengths, ptr %strides, ptr %memory,
    i32 {WRITEABLE}, ptr null)
  %unmade = icmp eq ptr %one, null
  br i1 %unmade, label %drop, label %a.made
a.made:
  %a.to = getelementptr ptr, ptr %arrays, i64 %a
  store ptr %one, ptr %a.to
"""
    dropped = f"""{load("own", "%arrays", "%d", "ptr")}  call void %Py_DecRef(ptr %own)
"""
    return handmade(f"""define void @kernel(ptr %words) {{
entry:
{loads}  %slots = add i64 %count, 1
  %spare = alloca ptr, i64 %slots
  %arrays = getelementptr ptr, ptr %spare, i64 1
{over("a", "%count", made)}\
  %many = or i64 %count, {SPARE}
  %found = call ptr %PyObject_Vectorcall(ptr %function, ptr %arrays, i64 %many, ptr null)
  %raised = icmp eq ptr %found, null
  br i1 %raised, label %drop, label %told
told:
  %is.done = icmp eq ptr %found, %true
  call void %Py_DecRef(ptr %found)
  br label %drop
drop:
  %there = phi i64 [%a, %a.body], [%count, %a.done], [%count, %told]
  %done = phi i1 [false, %a.body], [false, %a.done], [%is.done, %told]
{over("d", "%there", dropped)}\
  br i1 %done, label %end, label %fail
fail:
  store i64 1, ptr %failed
  br label %end
end:
  ret void
}}
""")

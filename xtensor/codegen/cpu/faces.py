"""What machine code checks of tensors that are computed and small, and makes of NumPy's results: parts of methods.py.

Everything is found in one table of words: addresses of functions (FUNCTIONS), of objects (OBJECTS), and for each method
a row: the function that computes it, its door, which is the method as it stands in Python, the function that computes
the same of NumPy's scalars, or null, and the bytes up to which arrays are small. Functions return null, with or without
a Python exception raised, where methods are to go on to the door.

Sources: Python's C API (Call Protocol, Type Objects, Context Variables) and NumPy's (PyArray_Scalar,
PyArray_FromScalar); the layout of an array is part of NumPy's binary interface.
"""

from __future__ import annotations

from typing import NamedTuple

from .mailbox import load

FUNCTIONS = (
    *("PyType_GenericAlloc", "PyObject_Vectorcall", "PyObject_GetItem", "PyObject_SetItem", "PyObject_GetAttr"),
    *("PyObject_IsTrue", "PyBool_FromLong", "PyDict_GetItemWithError", "PySet_Contains", "PyFloat_AsDouble"),
    *("PyList_GetItem", "PyList_Size", "PyTuple_GetItem", "PyTuple_Size", "PyTuple_New", "PyTuple_SetItem"),
    *("PyNumber_Add", "PyNumber_Index", "PyLong_AsLong", "PyLong_FromSsize_t", "PyContext_Enter", "PyContext_Exit"),
    *("PyErr_ExceptionMatches", "PyErr_Clear", "Py_IncRef", "Py_DecRef", "PyArray_FromScalar", "PyArray_Scalar"),
    *("PyObject_VectorcallMethod", "PyUnicode_Compare", "PyErr_Occurred", "PyArray_NewFromDescr"),
    *("PyContextVar_Get", "PyObject_Size", "PyObject_RichCompareBool", "PyCell_Get", "PyDict_Size"),
    *("PyFunction_GetCode", "PyFunction_GetDefaults", "PyFunction_GetKwDefaults", "PyBytes_AsString"),
    *("PyDict_Next", "PyObject_GenericGetDict", "PyGC_Disable", "PyGC_Enable", "PyList_New", "PyList_Append"),
    *("PyList_SetItem", "PyLong_AsLongLong", "PyMem_RawMalloc", "PyMem_RawFree", "PyErr_NoMemory"),
)

# closed: a list whose first element is `zero` while the thin way is open; converting: one whose first element is `zero`
# while nobody has asked for arrays from NumPy's functions. __call__: a name. watchers: a list. context: one in which
# NumPy gives no warnings. refused: what NumPy raises for operands that it does not take. doubles, singles: dictionaries
# of Python's floats as arrays; plus_zero, minus_zero: the keys of zeros there. casting: the keyword names of a call
# that writes into an array, same_kind: its value. owner: the name of a property, axis, out: of parameters. array:
# NumPy's function, may_share: the one that tells whether two arrays may share memory. scalar_types: a set of the types
# of NumPy's own numbers. observers: a list. in_force: the context variable of options. square: NumPy's function.
# written_names: a set of the names of parameters by which NumPy's functions write an argument.
OBJECTS = (
    *("Tensor", "ndarray", "float", "int", "bool", "slice", "tuple", "NoneType", "ellipsis"),
    *("None", "True", "Ellipsis", "closed", "zero", "one", "watchers", "context", "refused", "owner"),
    *("axis", "False", "may_share", "scalar_types", "converting", "__call__"),
    *("double", "single", "doubles", "singles", "plus_zero", "minus_zero", "casting", "same_kind"),
    *("observers", "in_force", "two", "square", "list", "str", "complex", "type", "written_names", "out", "array"),
)

ROW = ("function", "door", "items", "below")
PLACES = {name: place for place, name in enumerate((*FUNCTIONS, *OBJECTS))}

# A flag: the function called may use the word before the first argument (PY_VECTORCALL_ARGUMENTS_OFFSET).
SPARE = 1 << 63


class Offsets(NamedTuple):
    """The offsets of fields in objects, in words of 8 bytes: the type in every object; slots in a Tensor, a Storage, a
    TBlob and a fused function; the address, the number of axes, their lengths and strides, the dtype and the flags in a
    NumPy array; the dict in a function.

    itemsize, kind: in a dtype, the bytes of an element, and its kind, a character, whose offset is in bytes.
    """

    type: int
    content: int
    owner: int
    blob: int
    step: int
    is_value: int
    guard: int
    version: int
    blob_owner: int
    saver: int
    dispatched: int
    function_dict: int
    memory: int
    axes: int
    lengths: int
    strides: int
    dtype: int
    flags: int
    itemsize: int
    kind: int


# ---- lines


def given(*names: str) -> str:
    """Return the lines that load words of the table, by name."""
    return "".join([load(name, "@table", PLACES[name], "ptr") for name in names])


def of_row(*names: str) -> str:
    """Return the lines that load words of a row, by name."""
    return "".join([load(name, "%row", ROW.index(name), "ptr") for name in names])


def found(name: str, value: str, then: str, otherwise: str) -> str:
    """Return the lines that call for a pointer and go on at label `then` with it, at another one if it is null."""
    null = f"  %{name}.null = icmp eq ptr %{name}, null\n  br i1 %{name}.null, label %{otherwise}, label %{then}\n"
    return f"  %{name} = call ptr {value}\n{null}{then}:\n"


def sure(name: str, question: str, then: str, otherwise: str) -> str:
    """Return the lines that ask a question and go on at label `then` if the answer is yes, else at another one."""
    return f"  %{name} = call i1 {question}\n  br i1 %{name}, label %{then}, label %{otherwise}\n{then}:\n"


def types(value: str, *names: str) -> str:
    """Return the lines that ask whether a value is of these types: `%is.` for each, and `%is.one` for any of them."""
    lines, before = [], "false"
    for name in names:
        asked = f"  %is.{name} = call i1 @is(ptr %{value}, ptr %{name})\n"
        lines.append(f"{asked}  %or.{name} = or i1 {before}, %is.{name}\n")
        before = f"%or.{name}"
    return f"{''.join(lines)}  %is.one = or i1 {before}, false\n"


def each(whole: str, question: str) -> str:
    """Return the blocks that return true if a question is answered so for every element of a tuple, else false."""
    return f"""\
{given("PyTuple_Size", "PyTuple_GetItem")}\
  %size = call i64 %PyTuple_Size(ptr %{whole})
  br label %begin
begin:
  br label %test
test:
  %n = phi i64 [0, %begin], [%n.next, %look]
  %more = icmp slt i64 %n, %size
  br i1 %more, label %look, label %yes
look:
  %part = call ptr %PyTuple_GetItem(ptr %{whole}, i64 %n)
  %n.next = add i64 %n, 1
  %good = call i1 {question}(ptr %part)
  br i1 %good, label %test, label %no
yes:
  ret i1 true
no:
  ret i1 false
"""


def arguments(*values: str) -> str:
    """Return the lines that lay out the arguments of a call in memory, from `%to1` on."""
    lines = [f"  %all = alloca [{len(values) + 1} x ptr]\n"]
    for n, value in enumerate(values, 1):
        lines.append(f"  %to{n} = getelementptr ptr, ptr %all, i64 {n}\n  store ptr %{value}, ptr %to{n}\n")
    return "".join(lines)


def store(value: str, base: str, word: int) -> str:
    """Return the lines that store a pointer in a word of an object."""
    at = f"%{value}.{word}.to"
    return f"  {at} = getelementptr i64, ptr {base}, i64 {word}\n  store ptr %{value}, ptr {at}, align 8\n"


# How methods go on with NumPy's result %r, which becomes a tensor.
MADE = """  %failed = icmp eq ptr %r, null
  br i1 %failed, label %failure, label %made
made:
  %tensor = call ptr @result(ptr %r)
  ret ptr %tensor
"""

# How methods end: where NumPy raised an exception for its operands, they go on to the door.
ENDING = """failure:
  %expected = call i1 @refused()
  br i1 %expected, label %long, label %fail
long:
  %l = call ptr @past(ptr %row, ptr %x, ptr %y)
  ret ptr %l
fail:
  ret ptr null
}
"""


# ---- questions


def questions(at: Offsets) -> str:
    """Return the functions that check an object's type, the array that a tensor shows, and how it may be used."""
    return _of_objects(at) + _of_size(at) + _of_both(at) + _of_use(at) + _of_owners(at)


def _of_objects(at: Offsets) -> str:
    """Return @is: whether an object is of exactly this type; @array_of: the array of a thin face, null for all else;
    @axes_of: the number of an array's axes; @refused: whether the exception raised is one that the door deals with,
    which is then cleared.
    """
    return f"""
define private i1 @is(ptr %x, ptr %type) {{
{load("own", "%x", at.type, "ptr")}\
  %same = icmp eq ptr %own, %type
  ret i1 %same
}}
define private ptr @array_of(ptr %x) {{
{given("Tensor", "ndarray")}{sure("face", "@is(ptr %x, ptr %Tensor)", "look", "other")}\
{load("data", "%x", at.content, "ptr")}\
  %unset = icmp eq ptr %data, null
  br i1 %unset, label %other, label %set
set:
{sure("thin", "@is(ptr %data, ptr %ndarray)", "known", "other")}\
  ret ptr %data
other:
  ret ptr null
}}
define private i32 @axes_of(ptr %a) {{
{load("axes", "%a", at.axes, "i32")}\
  ret i32 %axes
}}
define private i1 @refused() {{
{given("refused", "PyErr_ExceptionMatches", "PyErr_Clear")}\
  %matches = call i32 %PyErr_ExceptionMatches(ptr %refused)
  %expected = icmp ne i32 %matches, 0
  br i1 %expected, label %clear, label %keep
clear:
  call void %PyErr_Clear()
  ret i1 true
keep:
  ret i1 false
}}
"""


def _of_size(at: Offsets) -> str:
    """Return @is_small: whether an array has at most as many bytes as a row says."""
    return f"""
define private i1 @is_small(ptr %a, ptr %row) {{
entry:
{load("below", "%row", ROW.index("below"))}\
{load("axes", "%a", at.axes, "i32")}{load("lengths", "%a", at.lengths, "ptr")}{load("dtype", "%a", at.dtype, "ptr")}\
{load("itemsize", "%dtype", at.itemsize)}\
  %count = zext i32 %axes to i64
  br label %test
test:
  %axis = phi i64 [0, %entry], [%axis.next, %multiply]
  %nbytes = phi i64 [%itemsize, %entry], [%nbytes.next, %multiply]
  %more = icmp ult i64 %axis, %count
  br i1 %more, label %multiply, label %counted
multiply:
{load("length", "%lengths", "%axis")}\
  %nbytes.next = mul i64 %nbytes, %length
  %axis.next = add i64 %axis, 1
  br label %test
counted:
  %small = icmp ule i64 %nbytes, %below
  ret i1 %small
}}
"""


def _of_both(at: Offsets) -> str:
    """Return @stays_small: whether the result of two arrays, broadcast, has at most as many bytes as a row says."""
    return f"""
define private i1 @stays_small(ptr %a, ptr %b, ptr %row) {{
entry:
  %a.axes = call i32 @axes_of(ptr %a)
  %b.axes = call i32 @axes_of(ptr %b)
  %fewest = call i32 @llvm.umin.i32(i32 %a.axes, i32 %b.axes)
  %some = icmp ne i32 %fewest, 0
  br i1 %some, label %begin, label %yes
begin:
{load("below", "%row", ROW.index("below"))}\
{load("a.lengths", "%a", at.lengths, "ptr")}{load("b.lengths", "%b", at.lengths, "ptr")}\
{load("dtype", "%a", at.dtype, "ptr")}{load("itemsize", "%dtype", at.itemsize)}\
  %most = call i32 @llvm.umax.i32(i32 %a.axes, i32 %b.axes)
  br label %test
test:
  %axis = phi i32 [1, %begin], [%axis.next, %multiply]
  %nbytes = phi i64 [%itemsize, %begin], [%nbytes.next, %multiply]
  %more = icmp ule i32 %axis, %most
  br i1 %more, label %multiply, label %counted
multiply:
  %a.length = call i64 @length_behind(ptr %a.lengths, i32 %a.axes, i32 %axis)
  %b.length = call i64 @length_behind(ptr %b.lengths, i32 %b.axes, i32 %axis)
  %length = call i64 @llvm.umax.i64(i64 %a.length, i64 %b.length)
  %nbytes.next = mul i64 %nbytes, %length
  %axis.next = add i32 %axis, 1
  br label %test
counted:
  %small = icmp ule i64 %nbytes, %below
  ret i1 %small
yes:
  ret i1 true
}}
define private i64 @length_behind(ptr %lengths, i32 %axes, i32 %behind) {{
  %there = icmp ule i32 %behind, %axes
  br i1 %there, label %look, label %none
look:
  %place = sub i32 %axes, %behind
  %axis = zext i32 %place to i64
{load("length", "%lengths", "%axis")}\
  ret i64 %length
none:
  ret i64 1
}}
declare i32 @llvm.umin.i32(i32, i32)
declare i32 @llvm.umax.i32(i32, i32)
declare i64 @llvm.umax.i64(i64, i64)
"""


def _of_use(at: Offsets) -> str:
    """Return @is_zero: whether a list's first element is `zero`; @is_open: whether the thin way is open; @ready: a
    tensor's array if it is small and the way open; @unwatched: its array if nobody watches who asks for values;
    @options_now: the options in force here, which only serve to be compared, null if Python cannot tell.
    """
    return f"""
define private ptr @options_now() {{
{given("in_force", "PyContextVar_Get", "Py_DecRef", "None")}\
  %into = alloca ptr
  store ptr null, ptr %into
  %failure = call i32 %PyContextVar_Get(ptr %in_force, ptr %None, ptr %into)
  %now = load ptr, ptr %into
  %unset = icmp eq ptr %now, null
  br i1 %unset, label %no, label %found
found:
  call void %Py_DecRef(ptr %now)
  ret ptr %now
no:
  ret ptr null
}}
define private i1 @is_zero(ptr %list) {{
{given("zero", "PyList_GetItem")}\
  %first = call ptr %PyList_GetItem(ptr %list, i64 0)
  %same = icmp eq ptr %first, %zero
  ret i1 %same
}}
define private i1 @is_open() {{
{given("closed")}\
  %open = call i1 @is_zero(ptr %closed)
  ret i1 %open
}}
define private ptr @ready(ptr %x, ptr %row) {{
{found("a", "@array_of(ptr %x)", "sized", "no")}{sure("small", "@is_small(ptr %a, ptr %row)", "asked", "no")}\
{sure("open", "@is_open()", "yes", "no")}\
  ret ptr %a
no:
  ret ptr null
}}
define private ptr @unwatched(ptr %x) {{
{found("a", "@array_of(ptr %x)", "asked", "no")}{given("PyList_Size", "watchers")}\
  %watching = call i64 %PyList_Size(ptr %watchers)
  %alone = icmp eq i64 %watching, 0
  br i1 %alone, label %yes, label %no
yes:
  ret ptr %a
no:
  ret ptr null
}}
"""


def _of_owners(at: Offsets) -> str:
    """Return @known_owner: the owner of a thin face's memory, None if it has none yet, null if that is unknown;
    @is_free: whether nobody waits for its bytes.
    """
    return f"""
define private ptr @known_owner(ptr %x) {{
{given("None")}{load("own", "%x", at.owner, "ptr")}{load("blob", "%x", at.blob, "ptr")}\
  %unowned = icmp eq ptr %own, %None
  br i1 %unowned, label %ask, label %known
known:
  ret ptr %own
ask:
  %undescribed = icmp eq ptr %blob, %None
  br i1 %undescribed, label %nobody, label %described
nobody:
  ret ptr %None
described:
{load("owner", "%blob", at.blob_owner, "ptr")}{load("saver", "%blob", at.saver, "ptr")}\
  %unsaved = icmp eq ptr %saver, %None
  br i1 %unsaved, label %free, label %saved
free:
  ret ptr %owner
saved:
  ret ptr null
}}
define private i1 @is_free(ptr %x) {{
{given("None")}{found("owner", "@known_owner(ptr %x)", "known", "unknown")}\
  %unowned = icmp eq ptr %owner, %None
  br i1 %unowned, label %nobody, label %owned
nobody:
  ret i1 true
owned:
{load("guard", "%owner", at.guard, "ptr")}\
  %unguarded = icmp eq ptr %guard, %None
  ret i1 %unguarded
unknown:
  ret i1 false
}}
"""


# ---- results


def results(at: Offsets) -> str:
    """Return the functions that make tensors and count writes."""
    return _making(at) + _counting(at)


def _making(at: Offsets) -> str:
    """Return @face: a tensor over an array; @value: a tensor over a NumPy scalar; @result: one over either. They take
    over the reference to that.
    """
    return f"""
define private ptr @face(ptr %array, ptr %owner) {{
{given("PyType_GenericAlloc", "Py_IncRef", "Py_DecRef", "Tensor", "None")}\
{found("t", "%PyType_GenericAlloc(ptr %Tensor, i64 0)", "fill", "drop")}\
  call void %Py_IncRef(ptr %owner)
  call void %Py_IncRef(ptr %None)
  call void %Py_IncRef(ptr %None)
{store("array", "%t", at.content)}{store("owner", "%t", at.owner)}{store("None", "%t", at.blob)}\
{store("None", "%t", at.step)}\
  ret ptr %t
drop:
  call void %Py_DecRef(ptr %array)
  ret ptr null
}}
define private ptr @value(ptr %scalar) {{
{given("PyArray_FromScalar", "Py_IncRef", "Py_DecRef", "None", "True")}\
  %array = call ptr %PyArray_FromScalar(ptr %scalar, ptr null)
  call void %Py_DecRef(ptr %scalar)
  %failed = icmp eq ptr %array, null
  br i1 %failed, label %fail, label %made
made:
{found("t", "@face(ptr %array, ptr %None)", "mark", "fail")}\
  call void %Py_IncRef(ptr %True)
{store("True", "%t", at.is_value)}\
  ret ptr %t
fail:
  ret ptr null
}}
define private ptr @result(ptr %native) {{
{given("ndarray", "None")}{sure("array", "@is(ptr %native, ptr %ndarray)", "whole", "single")}\
  %t = call ptr @face(ptr %native, ptr %None)
  ret ptr %t
single:
  %v = call ptr @value(ptr %native)
  ret ptr %v
}}
"""


def _counting(at: Offsets) -> str:
    """Return @written: count a write into a thin face's memory; false if an exception was raised."""
    return f"""
define private i1 @written(ptr %x) {{
entry:
{given("PyNumber_Add", "Py_DecRef", "None", "one")}\
{load("own", "%x", at.owner, "ptr")}{load("blob", "%x", at.blob, "ptr")}\
  %unowned = icmp eq ptr %own, %None
  br i1 %unowned, label %ask, label %count
ask:
  %undescribed = icmp eq ptr %blob, %None
  br i1 %undescribed, label %done, label %described
described:
{load("of.blob", "%blob", at.blob_owner, "ptr")}\
  %nobody = icmp eq ptr %of.blob, %None
  br i1 %nobody, label %done, label %count
count:
  %owner = phi ptr [%own, %entry], [%of.blob, %described]
{load("version", "%owner", at.version, "ptr")}\
{found("next", "%PyNumber_Add(ptr %version, ptr %one)", "counted", "fail")}\
{store("next", "%owner", at.version)}\
  call void %Py_DecRef(ptr %version)
  br label %done
done:
  ret i1 true
fail:
  ret i1 false
}}
"""


# ---- calls


def calls() -> str:
    """Return @call: call a function with two arguments, the second of which may be null; @quietly: the same without
    NumPy's warnings, between @hush and @unhush; @past: call a row's door.
    """
    return f"""
define private ptr @call(ptr %function, ptr %x, ptr %y) {{
{given("PyObject_Vectorcall")}{arguments("x", "y")}\
  %alone = icmp eq ptr %y, null
  %count = select i1 %alone, i64 {1 | SPARE}, i64 {2 | SPARE}
  %r = call ptr %PyObject_Vectorcall(ptr %function, ptr %to1, i64 %count, ptr null)
  ret ptr %r
}}
define private ptr @past(ptr %row, ptr %x, ptr %y) {{
{of_row("door")}\
  %r = call ptr @call(ptr %door, ptr %x, ptr %y)
  ret ptr %r
}}
define private i1 @hush() {{
{given("PyContext_Enter", "context")}\
  %failure = call i32 %PyContext_Enter(ptr %context)
  %entered = icmp eq i32 %failure, 0
  ret i1 %entered
}}
define private void @unhush() {{
{given("PyContext_Exit", "context")}\
  %failure = call i32 %PyContext_Exit(ptr %context)
  ret void
}}
define private ptr @quietly(ptr %function, ptr %x, ptr %y) {{
{sure("entered", "@hush()", "go", "busy")}\
  %r = call ptr @call(ptr %function, ptr %x, ptr %y)
  call void @unhush()
  ret ptr %r
busy:
  ret ptr null
}}
"""

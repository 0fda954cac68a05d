"""Methods in machine code: operators of tensors that are computed and small, and the source of all such methods.

To check in Python whether operands are thin faces, and to put NumPy's result into a new one, takes twice the time of
NumPy's own call. Here the same is done through the C interfaces of Python and NumPy, whose functions are called by
address. Operands that are not thin, and calls that NumPy refuses, go to the method's door, the method in Python, which
decides everything else and words all errors.
"""

from __future__ import annotations

from collections.abc import Sequence

from .array_methods import GIVEN_MORE, array_methods
from .calling import calling
from .dispatch import dispatch
from .faces import (
    ENDING,
    MADE,
    PLACES,
    ROW,
    SPARE,
    Offsets,
    arguments,
    calls,
    found,
    given,
    of_row,
    questions,
    results,
    sure,
    types,
)
from .indexing import getitem, setitem
from .mailbox import load


def table_words(methods: int) -> int:
    """Return the number of words of a table for so many methods."""
    return len(PLACES) + methods * len(ROW)


def source(kinds: Sequence[str], at: Offsets) -> str:
    """Return the code of methods of these kinds, each the name of a function here: "binary", "reflected" (the same with
    the operands in the other order), both followed by " formula" if the function is not one of NumPy's ufuncs and takes
    Python's numbers as they are, "power" (such a formula, where an exponent 2 makes a square), "update", "unary",
    "number", "truth", "length", "getitem", "setitem", "called", "dispatch", or one of those in array_methods.py.

    Its function `kernel` is given the words of a table, and behind them space for the addresses of the methods.
    """
    words = table_words(len(kinds))
    return "".join(
        [
            f"@table = private global [{words} x i64] zeroinitializer\n",
            *(questions(at), results(at), calls()),
            *(_operands(at), _scalars(at), _binary(at), _writing(at), _update(at), _unary()),
            *(
                _number(at),
                _truth(),
                _length(at),
                getitem(at),
                setitem(at),
                array_methods(at),
                calling(at),
                dispatch(at),
            ),
            *[_method(number, kind) + "\n" for number, kind in enumerate(kinds)],
            _entry(words, len(kinds)),
        ]
    )


def _method(number: int, kind: str) -> str:
    """Return the function that Python calls: it calls the code of a method's kind with the method's row."""
    row = f"ptr getelementptr (i64, ptr @table, i64 {len(PLACES) + number * len(ROW)})"
    taken = "ptr %x, ptr %y, i64 %count" if kind == "setitem" else "ptr %x, ptr %y"
    if kind in GIVEN_MORE:
        taken = "ptr %x, ptr %y, i64 %count, ptr %names"
    if kind.split()[0] in ("binary", "reflected", "power"):
        ways = kind.startswith("reflected"), not kind.endswith(("binary", "reflected")), kind == "power"
        row = ", ".join([row, *[f"i1 {int(way)}" for way in ways]])
        kind = "binary"
    return (
        f"define private ptr @method{number}({taken}) {{\n  %r = call ptr @{kind}({taken}, {row})\n  ret ptr %r\n}}\n"
    )


def _entry(words: int, methods: int) -> str:
    """Return the function that copies a table and writes the addresses of the methods behind it."""
    told = [
        f"  %to{n} = getelementptr i64, ptr %run, i64 {words + n}\n  store ptr @method{n}, ptr %to{n}\n"
        for n in range(methods)
    ]
    return f"""define void @kernel(ptr %run) {{
entry:
  br label %copy
copy:
  %w = phi i64 [0, %entry], [%w.next, %copy]
{load("word", "%run", "%w")}\
  %to = getelementptr i64, ptr @table, i64 %w
  store i64 %word, ptr %to
  %w.next = add i64 %w, 1
  %more = icmp ult i64 %w.next, {words}
  br i1 %more, label %copy, label %copied
copied:
{"".join(told)}  ret void
}}
"""


# ---- operators


def _operands(at: Offsets) -> str:
    """Return @operand: a new reference to the object to give NumPy for a tensor or a number beside an array.

    Beside an array without axes that is the number itself if NumPy's scalars compute the result.
    """
    return f"""
define private ptr @number_beside(ptr %a, ptr %y, i1 %itself) {{
{given("float", "int", "bool", "double", "single", "doubles", "singles", "plus_zero", "minus_zero")}\
{given("PyFloat_AsDouble", "PyDict_GetItemWithError", "PySet_Contains", "PyErr_Clear", "scalar_types")}\
{load("dtype", "%a", at.dtype, "ptr")}\
{types("y", "float", "int", "bool")}\
  %is.double = icmp eq ptr %dtype, %double
  %is.single = icmp eq ptr %dtype, %single
  %kept = or i1 %is.double, %is.single
  %array = xor i1 %itself, true
  %wanted = and i1 %is.float, %array
  %looked.up = and i1 %wanted, %kept
  br i1 %looked.up, label %look, label %other
look:
  %numbers = select i1 %is.double, ptr %doubles, ptr %singles
  %number = call double %PyFloat_AsDouble(ptr %y)
  %bits = bitcast double %number to i64
  %is.plus = icmp eq i64 %bits, 0
  %is.minus = icmp eq i64 %bits, {1 << 63}
  %key.plus = select i1 %is.plus, ptr %plus_zero, ptr %y
  %key = select i1 %is.minus, ptr %minus_zero, ptr %key.plus
  %b = call ptr %PyDict_GetItemWithError(ptr %numbers, ptr %key)
  ret ptr %b
other:
  br i1 %is.one, label %keep, label %ask
ask:
{load("own", "%y", at.type, "ptr")}\
  %member = call i32 %PySet_Contains(ptr %scalar_types, ptr %own)
  %numpys = icmp eq i32 %member, 1
  br i1 %numpys, label %keep, label %unknown
keep:
  ret ptr %y
unknown:
  call void %PyErr_Clear()
  ret ptr null
}}
define private ptr @operand(ptr %a, ptr %y, ptr %row, i1 %itself) {{
{given("Tensor", "Py_IncRef")}{of_row("items")}{sure("tensor", "@is(ptr %y, ptr %Tensor)", "face", "number")}\
{found("b", "@array_of(ptr %y)", "sized", "unknown")}\
{sure("small", "@is_small(ptr %b, ptr %row)", "alone", "unknown")}\
{sure("near", "@stays_small(ptr %a, ptr %b, ptr %row)", "hold", "unknown")}\
  call void %Py_IncRef(ptr %b)
  ret ptr %b
number:
  %axes = call i32 @axes_of(ptr %a)
  %single = icmp eq i32 %axes, 0
  %computed = icmp ne ptr %items, null
  %as.scalars = and i1 %single, %computed
  %as.it.is = or i1 %itself, %as.scalars
{found("n", "@number_beside(ptr %a, ptr %y, i1 %as.it.is)", "keep", "unknown")}\
  call void %Py_IncRef(ptr %n)
  ret ptr %n
unknown:
  ret ptr null
}}
"""


def _scalars(at: Offsets) -> str:
    """Return @has_axes: whether an operand has axes; @element_of: the element of an array without axes; @of_scalars:
    the result for two operands without axes by NumPy's scalars: the same bits in a quarter of the time; @ordered: the
    result of a function of two operands, whose references it takes over.
    """
    return f"""
define private i1 @has_axes(ptr %x) {{
{found("a", "@array_of(ptr %x)", "array", "number")}\
  %axes = call i32 @axes_of(ptr %a)
  %some = icmp ne i32 %axes, 0
  ret i1 %some
number:
  ret i1 false
}}
define private ptr @element_of(ptr %a) {{
{given("PyArray_Scalar")}{load("memory", "%a", at.memory, "ptr")}{load("dtype", "%a", at.dtype, "ptr")}\
  %s = call ptr %PyArray_Scalar(ptr %memory, ptr %dtype, ptr %a)
  ret ptr %s
}}
define private ptr @scalar_of(ptr %x, ptr %a) {{
{given("Tensor", "Py_IncRef")}{sure("tensor", "@is(ptr %x, ptr %Tensor)", "element", "number")}\
  %s = call ptr @element_of(ptr %a)
  ret ptr %s
number:
  call void %Py_IncRef(ptr %x)
  ret ptr %x
}}
define private ptr @ordered(ptr %function, ptr %a, ptr %b, i1 %reflected) {{
{given("Py_DecRef")}\
  %first = select i1 %reflected, ptr %b, ptr %a
  %second = select i1 %reflected, ptr %a, ptr %b
  %r = call ptr @quietly(ptr %function, ptr %first, ptr %second)
  call void %Py_DecRef(ptr %a)
  call void %Py_DecRef(ptr %b)
  ret ptr %r
}}
define private ptr @of_scalars(ptr %items, ptr %x, ptr %a, ptr %y, ptr %b, i1 %reflected) {{
{given("Py_DecRef")}\
  %s = call ptr @scalar_of(ptr %x, ptr %a)
  %t = call ptr @scalar_of(ptr %y, ptr %b)
  call void %Py_DecRef(ptr %b)
  %v = call ptr @ordered(ptr %items, ptr %s, ptr %t, i1 %reflected)
  ret ptr %v
}}
"""


def _binary(at: Offsets) -> str:
    """Return the method of an operator with two operands, either of which may be the left one."""
    return f"""
define private ptr @binary(ptr %x, ptr %y, ptr %row, i1 %reflected, i1 %itself, i1 %powers) {{
{given("Py_IncRef", "Py_DecRef", "two", "square")}{of_row("function", "items")}\
{found("a", "@ready(ptr %x, ptr %row)", "first", "long")}\
  %is.two = icmp eq ptr %y, %two
  %may.be = and i1 %powers, %is.two
  br i1 %may.be, label %power, label %other
power:
{sure("squares", "@is_squared(ptr %a)", "product", "other")}\
  call void %Py_IncRef(ptr %a)
  %product.r = call ptr @quietly(ptr %square, ptr %a, ptr null)
  call void %Py_DecRef(ptr %a)
  br label %computed
other:
{found("b", "@operand(ptr %a, ptr %y, ptr %row, i1 %itself)", "both", "long")}\
  %arrays.only = icmp eq ptr %items, null
  %x.axes = call i1 @has_axes(ptr %x)
  %y.axes = call i1 @has_axes(ptr %y)
  %axes = or i1 %x.axes, %y.axes
  %array = or i1 %arrays.only, %axes
  br i1 %array, label %arrays, label %scalars
arrays:
  call void %Py_IncRef(ptr %a)
  %native = call ptr @ordered(ptr %function, ptr %a, ptr %b, i1 %reflected)
  br label %computed
scalars:
  %v = call ptr @of_scalars(ptr %items, ptr %x, ptr %a, ptr %y, ptr %b, i1 %reflected)
  br label %computed
computed:
  %r = phi ptr [%native, %arrays], [%v, %scalars], [%product.r, %product]
{MADE}{ENDING}
define private i1 @is_squared(ptr %a) {{
{load("dtype", "%a", at.dtype, "ptr")}{load("itemsize", "%dtype", at.itemsize)}\
  %kind.at = getelementptr i8, ptr %dtype, i64 {at.kind}
  %kind = load i8, ptr %kind.at
  %boolean = icmp eq i8 %kind, {ord("b")}
  %half = icmp ult i64 %itemsize, 4
  %other = or i1 %boolean, %half
  %squared = xor i1 %other, true
  ret i1 %squared
}}
"""


def _writing(at: Offsets) -> str:
    """Return @into: writes the result of a NumPy function of an array and another operand to the array; @stays_value:
    whether a tensor is a value without axes, which nobody sees change, and NumPy's scalars compute the result.
    """
    return f"""
define private ptr @into(ptr %function, ptr %a, ptr %b) {{
{given("PyObject_Vectorcall", "casting", "same_kind")}{arguments("a", "b", "a", "same_kind")}\
{sure("entered", "@hush()", "go", "busy")}\
  %r = call ptr %PyObject_Vectorcall(ptr %function, ptr %to1, i64 {3 | SPARE}, ptr %casting)
  call void @unhush()
  ret ptr %r
busy:
  ret ptr null
}}
define private i1 @stays_value(ptr %x, ptr %y, ptr %items) {{
{given("True")}{load("mark", "%x", at.is_value, "ptr")}\
  %axes = call i1 @has_axes(ptr %y)
  %marked = icmp eq ptr %mark, %True
  %computed = icmp ne ptr %items, null
  %value = and i1 %marked, %computed
  %single = xor i1 %axes, true
  %stays = and i1 %value, %single
  ret i1 %stays
}}
"""


def _update(at: Offsets) -> str:
    """Return the method of an operator that writes into its first operand; for a value, the result is another one."""
    return f"""
define private ptr @update(ptr %x, ptr %y, ptr %row) {{
{given("Py_IncRef", "Py_DecRef")}{of_row("function", "items")}\
{found("a", "@ready(ptr %x, ptr %row)", "asked", "long")}\
{found("b", "@operand(ptr %a, ptr %y, ptr %row, i1 false)", "both", "long")}\
  %several = call i1 @has_axes(ptr %x)
  br i1 %several, label %array, label %single
array:
{sure("free", "@is_free(ptr %x)", "write", "unheld")}\
  call void %Py_IncRef(ptr %a)
  %r = call ptr @into(ptr %function, ptr %a, ptr %b)
  call void %Py_DecRef(ptr %a)
  call void %Py_DecRef(ptr %b)
  %failed = icmp eq ptr %r, null
  br i1 %failed, label %failure, label %done
done:
  call void %Py_DecRef(ptr %r)
{sure("noted", "@written(ptr %x)", "give", "fail")}\
  call void %Py_IncRef(ptr %x)
  ret ptr %x
single:
{sure("value", "@stays_value(ptr %x, ptr %y, ptr %items)", "compute", "unheld")}\
  %v = call ptr @of_scalars(ptr %items, ptr %x, ptr %a, ptr %y, ptr %b, i1 false)
  %refused = icmp eq ptr %v, null
  br i1 %refused, label %failure, label %computed
computed:
{load("array.type", "%a", at.dtype, "ptr")}\
  %made = call ptr @value(ptr %v)
  %unmade = icmp eq ptr %made, null
  br i1 %unmade, label %fail, label %compare
compare:
{load("made.array", "%made", at.content, "ptr")}{load("made.type", "%made.array", at.dtype, "ptr")}\
  %same = icmp eq ptr %array.type, %made.type
  br i1 %same, label %changed, label %other
changed:
  ret ptr %made
other:
  call void %Py_DecRef(ptr %made)
  br label %long
unheld:
  call void %Py_DecRef(ptr %b)
  br label %long
{ENDING}"""


def _unary() -> str:
    """Return the method of an operator with one operand."""
    return f"""
define private ptr @unary(ptr %x, ptr %y, ptr %row) {{
{given("Py_IncRef", "Py_DecRef")}{of_row("function", "items")}\
{found("a", "@ready(ptr %x, ptr %row)", "ask", "long")}\
  %axes = call i32 @axes_of(ptr %a)
  %some = icmp ne i32 %axes, 0
  %unknown = icmp eq ptr %items, null
  %array = or i1 %some, %unknown
  br i1 %array, label %arrays, label %scalars
arrays:
  call void %Py_IncRef(ptr %a)
  br label %go
scalars:
  %s = call ptr @scalar_of(ptr %x, ptr %a)
  br label %go
go:
  %one = phi ptr [%a, %arrays], [%s, %scalars]
  %computing = phi ptr [%function, %arrays], [%items, %scalars]
  %r = call ptr @quietly(ptr %computing, ptr %one, ptr null)
  call void %Py_DecRef(ptr %one)
{MADE}{ENDING}"""


# ---- Python's numbers


def _number(at: Offsets) -> str:
    """Return the method that makes a Python number from a real value without axes, by its row's C function."""
    return f"""
define private ptr @number(ptr %x, ptr %y, ptr %row) {{
{of_row("function")}{found("a", "@unwatched(ptr %x)", "asked", "long")}\
{load("axes", "%a", at.axes, "i32")}{load("dtype", "%a", at.dtype, "ptr")}\
  %kind.at = getelementptr i8, ptr %dtype, i64 {at.kind}
  %kind = load i8, ptr %kind.at
  %single = icmp eq i32 %axes, 0
  %real = icmp ne i8 %kind, {ord("c")}
  %good = and i1 %single, %real
  br i1 %good, label %go, label %long
go:
{found("r", "%function(ptr %a)", "made", "failure")}\
  ret ptr %r
{ENDING}"""


def _truth() -> str:
    """Return the method that returns whether a value without axes is true."""
    return f"""
define private ptr @truth(ptr %x, ptr %y, ptr %row) {{
{given("PyObject_IsTrue", "PyBool_FromLong")}{found("a", "@unwatched(ptr %x)", "asked", "long")}\
  %axes = call i32 @axes_of(ptr %a)
  %single = icmp eq i32 %axes, 0
  br i1 %single, label %go, label %long
go:
  %true = call i32 %PyObject_IsTrue(ptr %a)
  %failed = icmp slt i32 %true, 0
  br i1 %failed, label %failure, label %made
made:
  %wide = zext i32 %true to i64
  %r = call ptr %PyBool_FromLong(i64 %wide)
  ret ptr %r
{ENDING}"""


def _length(at: Offsets) -> str:
    """Return the method that returns the length of the first axis."""
    return f"""
define private ptr @length(ptr %x, ptr %y, ptr %row) {{
{given("PyLong_FromSsize_t")}{found("a", "@array_of(ptr %x)", "asked", "long")}\
  %axes = call i32 @axes_of(ptr %a)
  %some = icmp ne i32 %axes, 0
  br i1 %some, label %go, label %long
go:
{load("lengths", "%a", at.lengths, "ptr")}{load("first", "%lengths", 0)}\
  %r = call ptr %PyLong_FromSsize_t(i64 %first)
  ret ptr %r
{ENDING}"""

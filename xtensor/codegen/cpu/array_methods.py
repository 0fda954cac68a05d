"""Methods of arrays in machine code: those of NumPy's arrays, for the most common ways to call them.

They take any number of arguments, also by name; calls that they do not handle go to their doors with all arguments.
"""

from __future__ import annotations

from .faces import ENDING, MADE, SPARE, Offsets, arguments, each, found, given, of_row, sure
from .mailbox import load

# Arguments, and a word, that are laid out on the stack: more are on the heap.
_STACKED = 1024

GIVEN_MORE = ("fresh", "reduced", "seen", "reshape", "cast", "universal", "called", "dispatch")


def array_methods(at: Offsets) -> str:
    """Return the code of these kinds: "fresh" (a new array, without arguments), "reduced" (perhaps along an axis),
    "seen" (a view, without arguments), "reshape", "cast" (to a dtype that a row's items, a dictionary, have for the
    argument), "universal" (NumPy's protocol: a row's items have names of operators for functions).
    """
    fresh, seen = _of_array("fresh", "@quietly", MADE), _of_array("seen", "@call", _AS_VIEW)
    parts = (_names(), _given_more(), _alone(at), fresh, _reduced(), _views(at), seen)
    shapes = (_lengths(), _shapes(), _joining(), _reshape())
    return "".join((*parts, *shapes, _cast(at), _scalar_in(at), _universal()))


# The lines that return NumPy's result %r as a view of %x, and go to the door if it is a copy.
_AS_VIEW = f"""\
  %failed = icmp eq ptr %r, null
  br i1 %failed, label %failure, label %made
made:
{sure("same", "@begins(ptr %r, ptr %a)", "view", "copied")}\
  %t = call ptr @window(ptr %x, ptr %r)
  ret ptr %t
copied:
  call void %Py_DecRef(ptr %r)
  br label %long
"""


def _names() -> str:
    """Return @names_in: how many names of arguments there are."""
    return f"""
define private i64 @names_in(ptr %names) {{
{given("PyTuple_Size")}\
  %none = icmp eq ptr %names, null
  br i1 %none, label %nothing, label %some
some:
  %count = call i64 %PyTuple_Size(ptr %names)
  ret i64 %count
nothing:
  ret i64 0
}}
"""


def _given_more() -> str:
    """Return @past_given: calls a method's door with all arguments."""
    return f"""
define private ptr @past_given(ptr %row, ptr %x, ptr %y, i64 %count, ptr %names) {{
entry:
{given("PyObject_Vectorcall", "PyMem_RawMalloc", "PyMem_RawFree", "PyErr_NoMemory")}{of_row("door")}\
  %named = call i64 @names_in(ptr %names)
  %more = add i64 %count, %named
  %size = add i64 %more, 2
  %bytes = mul i64 %size, 8
  %large = icmp ugt i64 %size, {_STACKED}
  br i1 %large, label %heap, label %stack
heap:
  %far = call ptr %PyMem_RawMalloc(i64 %bytes)
  %exhausted = icmp eq ptr %far, null
  br i1 %exhausted, label %nothing, label %begin
stack:
  %near = alloca ptr, i64 %size
  br label %begin
begin:
  %all = phi ptr [%far, %heap], [%near, %stack]
  %to1 = getelementptr ptr, ptr %all, i64 1
  store ptr %x, ptr %to1
  br label %test
test:
  %n = phi i64 [0, %begin], [%n.next, %copy]
  %left = icmp ult i64 %n, %more
  br i1 %left, label %copy, label %call
copy:
{load("one", "%y", "%n", "ptr")}\
  %n.next = add i64 %n, 1
  %to = getelementptr ptr, ptr %to1, i64 %n.next
  store ptr %one, ptr %to
  br label %test
call:
  %positions = add i64 %count, 1
  %flagged = or i64 %positions, {SPARE}
  %r = call ptr %PyObject_Vectorcall(ptr %door, ptr %to1, i64 %flagged, ptr %names)
  br i1 %large, label %free, label %done
free:
  call void %PyMem_RawFree(ptr %all)
  br label %done
done:
  ret ptr %r
nothing:
  %e = call ptr %PyErr_NoMemory()
  ret ptr null
}}
"""


def _alone(at: Offsets) -> str:
    """Return @alone: the array of a tensor that is ready, if there are no arguments, and it is no value (of these
    the door makes values).
    """
    return f"""
define private ptr @alone(ptr %x, i64 %count, ptr %names, ptr %row) {{
{given("True")}\
  %named = ptrtoint ptr %names to i64
  %both = or i64 %named, %count
  %bare = icmp eq i64 %both, 0
  br i1 %bare, label %typed, label %no
typed:
{found("a", "@ready(ptr %x, ptr %row)", "ask", "no")}{load("mark", "%x", at.is_value, "ptr")}\
  %marked = icmp eq ptr %mark, %True
  br i1 %marked, label %no, label %yes
yes:
  ret ptr %a
no:
  ret ptr null
}}
"""


def _past_given(code: str) -> str:
    """Return the code of a method whose door takes all its arguments."""
    return code.replace(
        "@past(ptr %row, ptr %x, ptr %y)", "@past_given(ptr %row, ptr %x, ptr %y, i64 %count, ptr %names)"
    )


def _of_array(name: str, way: str, made: str) -> str:
    """Return the method that calls a function of an array. way: makes the call; made: the lines for its result."""
    return _past_given(f"""
define private ptr @{name}(ptr %x, ptr %y, i64 %count, ptr %names, ptr %row) {{
{given("Py_IncRef", "Py_DecRef")}{of_row("function")}\
{found("a", "@alone(ptr %x, i64 %count, ptr %names, ptr %row)", "go", "long")}\
  call void %Py_IncRef(ptr %a)
  %r = call ptr {way}(ptr %function, ptr %a, ptr null)
  call void %Py_DecRef(ptr %a)
{made}{ENDING}""")


def _reduced() -> str:
    """Return the method that reduces an array over all axes, or over one, an integer given alone, or None."""
    return _past_given(f"""
define private ptr @axis_in(ptr %a, ptr %y, i64 %count, ptr %names) {{
{given("int", "axis", "None", "PyTuple_GetItem")}\
  %named = call i64 @names_in(ptr %names)
  %all = add i64 %named, %count
  switch i64 %all, label %no [ i64 0, label %whole
                               i64 1, label %one ]
one:
{load("axis.given", "%y", 0, "ptr")}\
  %all.axes = icmp eq ptr %axis.given, %None
  %integer = call i1 @is(ptr %axis.given, ptr %int)
  %axes = call i32 @axes_of(ptr %a)
  %some = icmp ne i32 %axes, 0
  %one.axis = and i1 %integer, %some
  %known = or i1 %all.axes, %one.axis
  br i1 %known, label %typed, label %no
typed:
  %unnamed = icmp eq i64 %named, 0
  br i1 %unnamed, label %yes, label %look
look:
  %name = call ptr %PyTuple_GetItem(ptr %names, i64 0)
  %right = icmp eq ptr %name, %axis
  br i1 %right, label %yes, label %no
yes:
  ret ptr %axis.given
whole:
  ret ptr %None
no:
  ret ptr null
}}
define private ptr @reduced(ptr %x, ptr %y, i64 %count, ptr %names, ptr %row) {{
{given("Py_IncRef", "Py_DecRef")}{of_row("function")}{found("a", "@ready(ptr %x, ptr %row)", "asked", "long")}\
{found("axis", "@axis_in(ptr %a, ptr %y, i64 %count, ptr %names)", "go", "long")}\
  call void %Py_IncRef(ptr %a)
  %r = call ptr @quietly(ptr %function, ptr %a, ptr %axis)
  call void %Py_DecRef(ptr %a)
{MADE}{ENDING}""")


def _views(at: Offsets) -> str:
    """Return @begins: whether two arrays begin at the same address; @window: a view as a tensor, which takes over the
    reference to it.
    """
    return f"""
define private i1 @begins(ptr %r, ptr %a) {{
{load("memory", "%a", at.memory, "ptr")}{load("begin", "%r", at.memory, "ptr")}\
  %same = icmp eq ptr %memory, %begin
  ret i1 %same
}}
define private ptr @window(ptr %x, ptr %r) {{
{given("Py_DecRef")}{found("owner", "@owner_of(ptr %x)", "owned", "drop")}\
  %t = call ptr @face(ptr %r, ptr %owner)
  call void %Py_DecRef(ptr %owner)
  ret ptr %t
drop:
  call void %Py_DecRef(ptr %r)
  ret ptr null
}}
"""


def _lengths() -> str:
    """Return @is_length: whether an object is an integer of at least -1; @is_shape: whether all of a tuple are."""
    return f"""
define private i1 @is_length(ptr %n) {{
{given("int", "PyLong_AsLong", "PyErr_Clear")}{sure("integer", "@is(ptr %n, ptr %int)", "asked", "no")}\
  %number = call i64 %PyLong_AsLong(ptr %n)
  %good = icmp sge i64 %number, 0
  br i1 %good, label %yes, label %other
yes:
  ret i1 true
other:
  call void %PyErr_Clear()
  %rest = icmp eq i64 %number, -1
  ret i1 %rest
no:
  ret i1 false
}}
define private i1 @is_shape(ptr %shape) {{
{each("shape", "@is_length")}}}
"""


def _shapes() -> str:
    """Return @shape_of: a new reference to the tuple of lengths that a method was given, one by one or as a tuple; null
    for other arguments.
    """
    return f"""
define private ptr @shape_of(ptr %y, i64 %count) {{
{given("tuple", "Py_IncRef", "Py_DecRef")}\
  %some = icmp sgt i64 %count, 0
  br i1 %some, label %look, label %no
look:
  %lone = icmp eq i64 %count, 1
{load("first", "%y", 0, "ptr")}\
  %whole = call i1 @is(ptr %first, ptr %tuple)
  %both = and i1 %lone, %whole
  br i1 %both, label %itself, label %apart
itself:
  call void %Py_IncRef(ptr %first)
  br label %check
apart:
{found("made", "@joined(ptr %y, i64 %count)", "check", "no")}\
  %shape = phi ptr [%first, %itself], [%made, %apart]
{sure("good", "@is_shape(ptr %shape)", "yes", "drop")}\
  ret ptr %shape
drop:
  call void %Py_DecRef(ptr %shape)
  ret ptr null
no:
  ret ptr null
}}
"""


def _joining() -> str:
    """Return @joined: a tuple of so many objects, given as consecutive pointers."""
    return f"""
define private ptr @joined(ptr %y, i64 %count) {{
{given("PyTuple_New", "PyTuple_SetItem", "Py_IncRef")}\
{found("shape", "%PyTuple_New(i64 %count)", "made", "no")}\
  br label %test
test:
  %n = phi i64 [0, %made], [%n.next, %put]
  %more = icmp slt i64 %n, %count
  br i1 %more, label %put, label %yes
put:
{load("length", "%y", "%n", "ptr")}\
  call void %Py_IncRef(ptr %length)
  %failure = call i32 %PyTuple_SetItem(ptr %shape, i64 %n, ptr %length)
  %n.next = add i64 %n, 1
  br label %test
yes:
  ret ptr %shape
no:
  ret ptr null
}}
"""


def _reshape() -> str:
    """Return the method that reshapes an array: to integers, or a tuple of them, each of at least -1."""
    return _past_given(f"""
define private ptr @reshape(ptr %x, ptr %y, i64 %count, ptr %names, ptr %row) {{
{given("Py_IncRef", "Py_DecRef")}{of_row("function")}\
{found("a", "@alone(ptr %x, i64 0, ptr %names, ptr %row)", "asked", "long")}\
{found("shape", "@shape_of(ptr %y, i64 %count)", "shaped", "long")}\
  call void %Py_IncRef(ptr %a)
  %r = call ptr @call(ptr %function, ptr %a, ptr %shape)
  call void %Py_DecRef(ptr %a)
  call void %Py_DecRef(ptr %shape)
{_AS_VIEW}{ENDING}""")


def _cast(at: Offsets) -> str:
    """Return the method that converts real numbers to another dtype."""
    return _past_given(f"""
define private ptr @cast(ptr %x, ptr %y, i64 %count, ptr %names, ptr %row) {{
{given("PyDict_GetItemWithError", "PyErr_Clear", "Py_IncRef", "Py_DecRef")}{of_row("function", "items")}\
{found("a", "@alone(ptr %x, i64 0, ptr %names, ptr %row)", "asked", "long")}{load("dtype", "%a", at.dtype, "ptr")}\
  %kind.at = getelementptr i8, ptr %dtype, i64 {at.kind}
  %kind = load i8, ptr %kind.at
  %real = icmp ne i8 %kind, {ord("c")}
  %single = icmp eq i64 %count, 1
  %good = and i1 %real, %single
  br i1 %good, label %look, label %long
look:
{load("given", "%y", 0, "ptr")}{found("target", "%PyDict_GetItemWithError(ptr %items, ptr %given)", "go", "unknown")}\
  call void %Py_IncRef(ptr %a)
  %r = call ptr @quietly(ptr %function, ptr %a, ptr %target)
  call void %Py_DecRef(ptr %a)
{MADE}unknown:
  call void %PyErr_Clear()
  br label %long
{ENDING}""")


def _scalar_in(at: Offsets) -> str:
    """Return @scalar_in: a new reference to the NumPy scalar that an operand is, or contains as an array without axes;
    null for other operands.
    """
    return f"""
define private ptr @item_of(ptr %x) {{
{given("ndarray", "Py_IncRef")}{sure("array", "@is(ptr %x, ptr %ndarray)", "axes", "itself")}\
  %count = call i32 @axes_of(ptr %x)
  %single = icmp eq i32 %count, 0
  br i1 %single, label %element, label %itself
element:
  %s = call ptr @element_of(ptr %x)
  ret ptr %s
itself:
  call void %Py_IncRef(ptr %x)
  ret ptr %x
}}
define private ptr @scalar_in(ptr %x) {{
{given("scalar_types", "PySet_Contains", "PyErr_Clear", "Py_DecRef")}\
{found("s", "@item_of(ptr %x)", "item", "unknown")}\
{load("own", "%s", at.type, "ptr")}\
  %member = call i32 %PySet_Contains(ptr %scalar_types, ptr %own)
  %numpys = icmp eq i32 %member, 1
  br i1 %numpys, label %yes, label %drop
yes:
  ret ptr %s
drop:
  call void %Py_DecRef(ptr %s)
  br label %unknown
unknown:
  call void %PyErr_Clear()
  ret ptr null
}}
"""


def _universal() -> str:
    """Return the method by which NumPy applies one of its functions to a NumPy scalar and a tensor, in this order."""
    return _past_given(f"""
define private ptr @universal(ptr %x, ptr %y, i64 %count, ptr %names, ptr %row) {{
{given("Tensor", "converting", "__call__", "PyDict_GetItemWithError", "PyErr_Clear", "Py_DecRef")}\
{given("PyObject_VectorcallMethod", "PyUnicode_Compare")}{of_row("items")}\
  %unnamed = icmp eq ptr %names, null
  %two = icmp eq i64 %count, 4
  %bare = and i1 %unnamed, %two
  br i1 %bare, label %look, label %long
look:
{load("function", "%y", 0, "ptr")}{load("method", "%y", 1, "ptr")}\
{load("a", "%y", 2, "ptr")}{load("b", "%y", 3, "ptr")}\
{sure("tensor", "@is(ptr %b, ptr %Tensor)", "named", "long")}\
  %order = call i32 %PyUnicode_Compare(ptr %method, ptr %__call__)
  %called = icmp eq i32 %order, 0
  br i1 %called, label %ask, label %unknown
ask:
{sure("stays", "@is_zero(ptr %converting)", "known", "long")}\
{found("operator", "%PyDict_GetItemWithError(ptr %items, ptr %function)", "number", "unknown")}\
{found("s", "@scalar_in(ptr %a)", "go", "long")}\
{arguments("b", "s")}\
  %r = call ptr %PyObject_VectorcallMethod(ptr %operator, ptr %to1, i64 {2 | SPARE}, ptr null)
  call void %Py_DecRef(ptr %s)
  ret ptr %r
unknown:
  call void %PyErr_Clear()
  br label %long
long:
  %l = call ptr @past(ptr %row, ptr %x, ptr %y)
  ret ptr %l
}}
""")

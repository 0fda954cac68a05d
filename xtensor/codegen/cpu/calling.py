"""Calls of NumPy's names in machine code: the library's own function, for arrays that are computed and small.

What the door does in Python takes several times as long as NumPy's function for a few elements. A call that is
of another kind goes to the door; a result that is no new array, and no scalar, is finished in Python.
"""

from __future__ import annotations

from .faces import ENDING, SPARE, Offsets, found, given, of_row, sure, types
from .mailbox import load

# Kinds of elements with the most bytes of each: a longdouble, which tensors do not hold, has more.
_HELD = {"b": 8, "i": 8, "u": 8, "f": 8, "c": 16}
# Lists in lists to this depth, of so many parts each, and with so many lists and arrays in all of them: a list that
# contains itself goes to the door, and so does a long one, as it is copied here. A call has as many arguments at most.
_DEPTH, _PARTS, _HELD_PARTS = 8, 64, 128
_OWNED = 4  # a flag of an array: its memory is its own


def calling(at: Offsets) -> str:
    """Return the method that calls a function of a row's items, a dictionary: for the object that is called, a tuple of
    NumPy's function, the most arguments by position, whether it is a universal function, which takes no name but
    "out", and the most elements of what it makes of lengths (negative where these must be integers), or 0.
    """
    arguments = _plain(), _listed(), _taken(), _options(), _written(at), _elementwise(), _bounded()
    return "".join((*arguments, _argument(), _result(at), _arranged(), _known(), _method()))


def _plain() -> str:
    """Return @plain_of: what NumPy's function gets for an argument, which a list `held` keeps if it is no other's; null
    for arguments of other kinds.
    """
    names = ("float", "int", "bool", "complex", "str", "type", "slice", "NoneType", "ellipsis")
    return f"""
define private ptr @plain_of(ptr %x, ptr %held, ptr %row, i64 %depth) {{
{given("PyList_Append", "Tensor", "list", "tuple", *names)}\
{sure("tensor", "@is(ptr %x, ptr %Tensor)", "face", "other")}\
{found("a", "@array_of(ptr %x)", "sized", "no")}{sure("small", "@is_small(ptr %a, ptr %row)", "keep", "no")}\
  %failure = call i32 %PyList_Append(ptr %held, ptr %a)
  %kept = icmp eq i32 %failure, 0
  br i1 %kept, label %have, label %no
have:
  ret ptr %a
other:
{types("x", *names)}\
  br i1 %is.one, label %itself, label %several
itself:
  ret ptr %x
several:
{sure("list.it.is", "@is(ptr %x, ptr %list)", "listed", "else")}\
  %l = call ptr @list_of(ptr %x, ptr %held, ptr %row, i64 %depth)
  ret ptr %l
else:
{sure("tuple.it.is", "@is(ptr %x, ptr %tuple)", "paired", "no")}\
  %t = call ptr @tuple_of(ptr %x, ptr %held, ptr %row, i64 %depth)
  ret ptr %t
no:
  ret ptr null
}}
"""


def _listed() -> str:
    """Return @list_of and @tuple_of: a list, or a tuple, with all its parts as NumPy gets them."""
    return "".join([_sequence("list", "PyList"), _sequence("tuple", "PyTuple")])


def _sequence(name: str, api: str) -> str:
    return f"""
define private ptr @{name}_of(ptr %x, ptr %held, ptr %row, i64 %depth) {{
{given(*{"PyList_Size", f"{api}_Size"}, f"{api}_New", f"{api}_GetItem", f"{api}_SetItem", "PyList_Append")}\
{given("Py_IncRef", "Py_DecRef")}\
  %to = alloca ptr
  %so.many = call i64 %PyList_Size(ptr %held)
  %many = icmp ugt i64 %so.many, {_HELD_PARTS}
  %deep = icmp eq i64 %depth, 0
  %far = or i1 %many, %deep
  br i1 %far, label %no, label %begin
begin:
  %left = sub i64 %depth, 1
  %size = call i64 %{api}_Size(ptr %x)
  %short = icmp ule i64 %size, {_PARTS}
  br i1 %short, label %make, label %no
make:
{found("made", f"%{api}_New(i64 %size)", "keep", "no")}\
  %failure = call i32 %PyList_Append(ptr %held, ptr %made)
  call void %Py_DecRef(ptr %made)
  %kept = icmp eq i32 %failure, 0
  br i1 %kept, label %test, label %no
test:
  %n = phi i64 [0, %keep], [%n.next, %filled]
  %more = icmp slt i64 %n, %size
  br i1 %more, label %look, label %yes
look:
{found("part", f"%{api}_GetItem(ptr %x, i64 %n)", "there", "no")}\
  call void %Py_IncRef(ptr %part)
  %one = call ptr @plain_of(ptr %part, ptr %held, ptr %row, i64 %left)
  %other = icmp eq ptr %one, null
  br i1 %other, label %drop, label %reduce
drop:
  call void %Py_DecRef(ptr %part)
  br label %no
reduce:
  store ptr %one, ptr %to
{sure("element", "@as_element(ptr %one, ptr %to, ptr %held)", "fill", "drop")}\
  %set.one = load ptr, ptr %to
  call void %Py_IncRef(ptr %set.one)
  call void %Py_DecRef(ptr %part)
  %unset = call i32 %{api}_SetItem(ptr %made, i64 %n, ptr %set.one)
  %n.next = add i64 %n, 1
  %set = icmp eq i32 %unset, 0
  br i1 %set, label %filled, label %no
filled:
  br label %test
yes:
  ret ptr %made
no:
  ret ptr null
}}
"""


def _options() -> str:
    """Return @no_options: whether no options are in force here; @names_allowed: whether all names of arguments are of
    parameters that are not written.
    """
    return f"""
define private i1 @no_options() {{
{given("None")}\
  %now = call ptr @options_now()
  %none = icmp eq ptr %now, %None
  ret i1 %none
}}
define private i1 @names_allowed(ptr %names, i64 %count) {{
entry:
{given("PyTuple_GetItem", "PySet_Contains", "written_names")}\
  br label %test
test:
  %n = phi i64 [0, %entry], [%n.next, %look]
  %more = icmp slt i64 %n, %count
  br i1 %more, label %look, label %yes
look:
  %name = call ptr %PyTuple_GetItem(ptr %names, i64 %n)
  %n.next = add i64 %n, 1
  %member = call i32 %PySet_Contains(ptr %written_names, ptr %name)
  %allowed = icmp eq i32 %member, 0
  br i1 %allowed, label %test, label %no
yes:
  ret i1 true
no:
  ret i1 false
}}
"""


def _written(at: Offsets) -> str:
    """Return @is_out: whether the only name is "out"; @takes_result: whether a tensor is an array that nobody waits to
    read, so that a result may be written there; @wrote: count that, and return the tensor.
    """
    return f"""
define private i1 @is_out(ptr %names, i64 %count) {{
{given("PyTuple_GetItem", "out")}\
  %single = icmp eq i64 %count, 1
  br i1 %single, label %look, label %no
look:
  %name = call ptr %PyTuple_GetItem(ptr %names, i64 0)
  %same = icmp eq ptr %name, %out
  ret i1 %same
no:
  ret i1 false
}}
define private i1 @takes_result(ptr %x) {{
{given("True")}{found("a", "@array_of(ptr %x)", "array", "no")}{load("mark", "%x", at.is_value, "ptr")}\
  %marked = icmp eq ptr %mark, %True
  br i1 %marked, label %no, label %ask
ask:
  %free = call i1 @is_free(ptr %x)
  ret i1 %free
no:
  ret i1 false
}}
define private ptr @wrote(ptr %x, ptr %r) {{
{given("Py_IncRef", "Py_DecRef")}\
  call void %Py_DecRef(ptr %r)
{sure("noted", "@written(ptr %x)", "give", "fail")}\
  call void %Py_IncRef(ptr %x)
  ret ptr %x
fail:
  ret ptr null
}}
"""


def _elementwise() -> str:
    """Return @spreads: whether two operands are arrays that broadcast to one that is not small; @as_element: replaces
    an argument by its element if it has no axes: for that, functions of one operand take half the time, and lists too.
    """
    return f"""
define private i1 @spreads(ptr %a, ptr %b, ptr %row) {{
{given("ndarray")}{sure("first", "@is(ptr %a, ptr %ndarray)", "also", "no")}\
{sure("second", "@is(ptr %b, ptr %ndarray)", "both", "no")}\
  %small = call i1 @stays_small(ptr %a, ptr %b, ptr %row)
  %large = xor i1 %small, true
  ret i1 %large
no:
  ret i1 false
}}
define private i1 @as_element(ptr %a, ptr %to, ptr %held) {{
{given("ndarray", "PyList_Append", "Py_DecRef")}{sure("array", "@is(ptr %a, ptr %ndarray)", "axes", "done")}\
  %count = call i32 @axes_of(ptr %a)
  %single = icmp eq i32 %count, 0
  br i1 %single, label %element, label %done
element:
{found("s", "@element_of(ptr %a)", "keep", "no")}\
  %failure = call i32 %PyList_Append(ptr %held, ptr %s)
  call void %Py_DecRef(ptr %s)
  %kept = icmp eq i32 %failure, 0
  br i1 %kept, label %set, label %no
set:
  store ptr %s, ptr %to
  br label %done
done:
  ret i1 true
no:
  ret i1 false
}}
"""


def _bounded() -> str:
    """Return @bounded: whether all integers among arguments, and in tuples and lists, multiplied are at most so many:
    lengths of a new array. A negative number also says that none is a float, as a step between elements may be.
    """
    return f"""{_times()}
define private i1 @bounded(ptr %to1, i64 %total, i64 %told) {{
entry:
  %whole = icmp slt i64 %told, 0
  %most = call i64 @llvm.abs.i64(i64 %told, i1 false)
  br label %test
test:
  %n = phi i64 [0, %entry], [%n.next, %next]
  %all = phi i64 [1, %entry], [%product, %next]
  %left = icmp slt i64 %n, %total
  br i1 %left, label %look, label %yes
look:
{load("one", "%to1", "%n", "ptr")}\
  %product = call i64 @times(ptr %one, i64 %all, i64 %most, i1 %whole)
  %n.next = add i64 %n, 1
  %good = icmp ule i64 %product, %most
  br i1 %good, label %next, label %no
next:
  br label %test
yes:
  ret i1 true
no:
  ret i1 false
}}
"""


def _times() -> str:
    """Return @times: a product so far, times all integers in an argument; more than `most` as soon as one is."""
    return f"""
define private i64 @times(ptr %x, i64 %before, i64 %most, i1 %whole) {{
entry:
{given("int", "float", "tuple", "list", "PyLong_AsLongLong", "PyErr_Occurred")}\
{given("PyTuple_Size", "PyTuple_GetItem", "PyList_Size", "PyList_GetItem")}\
{sure("number", "@is(ptr %x, ptr %int)", "length", "several")}\
  %n = call i64 %PyLong_AsLongLong(ptr %x)
  %odd = icmp eq i64 %n, -1
  br i1 %odd, label %ask, label %known
ask:
  %error = call ptr %PyErr_Occurred()
  %fits = icmp eq ptr %error, null
  br i1 %fits, label %known, label %no
known:
  %size = call i64 @llvm.abs.i64(i64 %n, i1 false)
  %large = icmp ugt i64 %size, %most
  br i1 %large, label %no, label %multiply
multiply:
  %some = call i64 @llvm.umax.i64(i64 %size, i64 1)
  %product = mul i64 %before, %some
  ret i64 %product
several:
{sure("real", "@is(ptr %x, ptr %float)", "step", "parts")}\
  br i1 %whole, label %no, label %other
parts:
  %paired = call i1 @is(ptr %x, ptr %tuple)
  %listed = call i1 @is(ptr %x, ptr %list)
  %parted = or i1 %paired, %listed
  br i1 %parted, label %begin, label %other
begin:
  %Size = select i1 %paired, ptr %PyTuple_Size, ptr %PyList_Size
  %GetItem = select i1 %paired, ptr %PyTuple_GetItem, ptr %PyList_GetItem
  %count = call i64 %Size(ptr %x)
  br label %test
test:
  %k = phi i64 [0, %begin], [%k.next, %next]
  %all = phi i64 [%before, %begin], [%more, %next]
  %left = icmp slt i64 %k, %count
  br i1 %left, label %look, label %done
look:
  %part = call ptr %GetItem(ptr %x, i64 %k)
  %more = call i64 @times(ptr %part, i64 %all, i64 %most, i1 %whole)
  %good = icmp ule i64 %more, %most
  br i1 %good, label %next, label %no
next:
  %k.next = add i64 %k, 1
  br label %test
done:
  ret i64 %all
other:
  ret i64 %before
no:
  ret i64 {(1 << 62)}
}}
declare i64 @llvm.abs.i64(i64, i1)
"""


def _argument() -> str:
    """Return @is_no_argument: whether a result is none of the arguments."""
    return f"""
define private i1 @is_no_argument(ptr %r, ptr %held) {{
entry:
{given("PyList_Size", "PyList_GetItem")}\
  %size = call i64 %PyList_Size(ptr %held)
  br label %test
test:
  %n = phi i64 [0, %entry], [%n.next, %look]
  %more = icmp slt i64 %n, %size
  br i1 %more, label %look, label %yes
look:
  %one = call ptr %PyList_GetItem(ptr %held, i64 %n)
  %n.next = add i64 %n, 1
  %same = icmp eq ptr %one, %r
  br i1 %same, label %no, label %test
yes:
  ret i1 true
no:
  ret i1 false
}}
"""


def _result(at: Offsets) -> str:
    """Return @is_new: whether a result is an array in memory of its own, which tensors can show, and no value;
    @finished: the tensor for a result, or what Python makes of it and of the arguments. creating: no result is a value.
    """
    kinds = "\n".join([f"    i8 {ord(kind)}, label %kind.{kind}" for kind in _HELD])
    sizes = "".join(
        [
            f"kind.{kind}:\n  %fits.{kind} = icmp ule i64 %itemsize, {most}\n  ret i1 %fits.{kind}\n"
            for kind, most in _HELD.items()
        ]
    )
    return f"""
define private i1 @is_new(ptr %r, i1 %creating) {{
{given("ndarray")}{sure("array", "@is(ptr %r, ptr %ndarray)", "look", "no")}\
{load("flags", "%r", at.flags, "i32")}{load("dtype", "%r", at.dtype, "ptr")}\
{load("itemsize", "%dtype", at.itemsize)}\
  %owned = and i32 %flags, {_OWNED}
  %shown = icmp eq i32 %owned, 0
  %kind.at = getelementptr i8, ptr %dtype, i64 {at.kind}
  %kind = load i8, ptr %kind.at
  %order.at = getelementptr i8, ptr %dtype, i64 {at.kind + 2}
  %order = load i8, ptr %order.at
  %is.native = icmp eq i8 %order, {ord("=")}
  %any.order = icmp eq i8 %order, {ord("|")}
  %ordered = or i1 %is.native, %any.order
  %swapped = xor i1 %ordered, true
  %count = call i32 @axes_of(ptr %r)
  %single = icmp eq i32 %count, 0
  %made = xor i1 %creating, true
  %value = and i1 %single, %made
  %other = or i1 %shown, %swapped
  %unfit = or i1 %other, %value
  br i1 %unfit, label %no, label %fit
fit:
  switch i8 %kind, label %no [
{kinds}
  ]
{sizes}no:
  ret i1 false
}}
define private ptr @finished(ptr %r, ptr %held, ptr %row, i1 %creating) {{
{given("None", "scalar_types", "PySet_Contains", "Py_DecRef")}{of_row("function")}\
{sure("new", "@is_new(ptr %r, i1 %creating)", "seek", "other")}\
{sure("apart", "@is_no_argument(ptr %r, ptr %held)", "wrap", "other")}\
  %t = call ptr @face(ptr %r, ptr %None)
  ret ptr %t
other:
{load("own", "%r", at.type, "ptr")}\
  %member = call i32 %PySet_Contains(ptr %scalar_types, ptr %own)
  %numpys = icmp eq i32 %member, 1
  br i1 %numpys, label %single, label %finish
single:
  %v = call ptr @value(ptr %r)
  ret ptr %v
finish:
  %f = call ptr @call(ptr %function, ptr %r, ptr %held)
  call void %Py_DecRef(ptr %r)
  ret ptr %f
}}
"""


def _taken() -> str:
    """Return @all_taken: lays out the arguments for NumPy, false if one is of another kind."""
    return f"""
define private i1 @all_taken(ptr %y, i64 %total, ptr %to1, ptr %held, ptr %row) {{
entry:
  br label %test
test:
  %n = phi i64 [0, %entry], [%n.next, %have]
  %more = icmp ult i64 %n, %total
  br i1 %more, label %take, label %yes
take:
{load("argument", "%y", "%n", "ptr")}\
{found("one", f"@plain_of(ptr %argument, ptr %held, ptr %row, i64 {_DEPTH})", "have", "no")}\
  %to = getelementptr ptr, ptr %to1, i64 %n
  store ptr %one, ptr %to
  %n.next = add i64 %n, 1
  br label %test
yes:
  ret i1 true
no:
  ret i1 false
}}
"""


def _arranged() -> str:
    """Return @arranged: prepares the operands of a universal function, false if it does not take them here."""
    return f"""
define private i1 @is_operand(ptr %x) {{
{given("ndarray", "float", "int", "bool", "complex")}{types("x", "ndarray", "float", "int", "bool", "complex")}\
  ret i1 %is.one
}}
define private i1 @arranged(ptr %to1, i64 %total, ptr %held, ptr %row) {{
entry:
  br label %test
test:
  %n = phi i64 [0, %entry], [%n.next, %look]
  %more = icmp ult i64 %n, %total
  br i1 %more, label %look, label %arrange
look:
{load("one", "%to1", "%n", "ptr")}\
  %n.next = add i64 %n, 1
  %good = call i1 @is_operand(ptr %one)
  br i1 %good, label %test, label %no
arrange:
{load("first", "%to1", 0, "ptr")}\
  switch i64 %total, label %yes [ i64 1, label %alone
                                  i64 2, label %two ]
alone:
  %element = call i1 @as_element(ptr %first, ptr %to1, ptr %held)
  ret i1 %element
two:
{load("second", "%to1", 1, "ptr")}\
  %large = call i1 @spreads(ptr %first, ptr %second, ptr %row)
  %small = xor i1 %large, true
  ret i1 %small
yes:
  ret i1 true
no:
  ret i1 false
}}
"""


def _known() -> str:
    """Return @known_call: the entry of what is called, if its function takes arguments that are given so;
    @quietly_with: calls a function with what is laid out, behind a free word.
    """
    return f"""
define private ptr @quietly_with(ptr %function, ptr %to1, i64 %count, ptr %names) {{
{given("PyObject_Vectorcall")}{sure("entered", "@hush()", "go", "busy")}\
  %flagged = or i64 %count, {SPARE}
  %r = call ptr %PyObject_Vectorcall(ptr %function, ptr %to1, i64 %flagged, ptr %names)
  call void @unhush()
  ret ptr %r
busy:
  ret ptr null
}}
define private ptr @known_call(ptr %x, i64 %count, i64 %named, ptr %names, ptr %row) {{
{given("PyDict_GetItemWithError", "PyTuple_GetItem", "PyLong_AsLongLong", "True")}{of_row("items")}\
{sure("open", "@is_open()", "ask", "no")}{sure("free", "@no_options()", "find", "no")}\
{found("entry", "%PyDict_GetItemWithError(ptr %items, ptr %x)", "known", "no")}\
  %most.given = call ptr %PyTuple_GetItem(ptr %entry, i64 1)
  %most = call i64 %PyLong_AsLongLong(ptr %most.given)
  %total = add i64 %count, %named
  %few = icmp ule i64 %total, {_PARTS}
  %enough = icmp sle i64 %count, %most
  %fits = and i1 %few, %enough
  br i1 %fits, label %name, label %no
name:
  %is.universal = call ptr %PyTuple_GetItem(ptr %entry, i64 2)
  %universal = icmp eq ptr %is.universal, %True
  %some = icmp ne i64 %named, 0
  %bad = and i1 %universal, %some
  br i1 %bad, label %into, label %allow
into:
  %only.out = call i1 @is_out(ptr %names, i64 %named)
  %exact = icmp eq i64 %count, %most
  %one.out = and i1 %only.out, %exact
  br i1 %one.out, label %yes, label %no
allow:
{sure("allowed", "@names_allowed(ptr %names, i64 %named)", "yes", "no")}\
  ret ptr %entry
no:
  ret ptr null
}}
"""


def _method() -> str:
    """Return the method itself."""
    past = ENDING.replace(
        "@past(ptr %row, ptr %x, ptr %y)", "@past_given(ptr %row, ptr %x, ptr %y, i64 %count, ptr %names)"
    )
    return f"""
define private ptr @called(ptr %x, ptr %y, i64 %count, ptr %names, ptr %row) {{
{given("PyTuple_GetItem", "PyList_New", "PyErr_Clear", "Py_DecRef", "PyLong_AsLongLong", "True", "None")}\
  %named = call i64 @names_in(ptr %names)
{found("entry", "@known_call(ptr %x, i64 %count, i64 %named, ptr %names, ptr %row)", "known", "unknown")}\
  %native = call ptr %PyTuple_GetItem(ptr %entry, i64 0)
  %is.universal = call ptr %PyTuple_GetItem(ptr %entry, i64 2)
  %universal = icmp eq ptr %is.universal, %True
  %creating = icmp eq ptr %is.universal, %None
  %total = add i64 %count, %named
  %all = alloca [{_PARTS + 1} x ptr]
  %to1 = getelementptr ptr, ptr %all, i64 1
{found("held", "%PyList_New(i64 0)", "begin", "unknown")}\
{sure("taken", "@all_taken(ptr %y, i64 %total, ptr %to1, ptr %held, ptr %row)", "given", "release")}\
  %some.named = icmp ne i64 %named, 0
  %writes = and i1 %universal, %some.named
  br i1 %writes, label %target, label %limit
target:
{load("out", "%y", "%count", "ptr")}{sure("writable", "@takes_result(ptr %out)", "limit", "release")}\
  %into = phi ptr [null, %given], [%out, %target]
  %bound = call ptr %PyTuple_GetItem(ptr %entry, i64 3)
  %most = call i64 %PyLong_AsLongLong(ptr %bound)
  %free = icmp eq i64 %most, 0
  br i1 %free, label %ask, label %bound.it
bound.it:
{sure("fits", "@bounded(ptr %to1, i64 %total, i64 %most)", "ask", "release")}\
  br i1 %universal, label %arrange, label %enter
arrange:
{sure("arranged", "@arranged(ptr %to1, i64 %total, ptr %held, ptr %row)", "enter", "release")}\
  %r = call ptr @quietly_with(ptr %native, ptr %to1, i64 %count, ptr %names)
  %failed = icmp eq ptr %r, null
  br i1 %failed, label %refuse, label %store
store:
  br i1 %writes, label %count.it, label %finish
count.it:
  %w = call ptr @wrote(ptr %into, ptr %r)
  call void %Py_DecRef(ptr %held)
  ret ptr %w
finish:
  %t = call ptr @finished(ptr %r, ptr %held, ptr %row, i1 %creating)
  %unfinished = icmp eq ptr %t, null
  br i1 %unfinished, label %refuse, label %done
done:
  call void %Py_DecRef(ptr %held)
  ret ptr %t
refuse:
  call void %Py_DecRef(ptr %held)
  br label %failure
release:
  call void %Py_DecRef(ptr %held)
  br label %unknown
unknown:
  call void %PyErr_Clear()
  br label %long
{past}"""

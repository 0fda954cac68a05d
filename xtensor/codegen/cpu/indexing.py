"""Indexing in machine code, by integers, slices, None, an ellipsis and arrays: a part of methods.py."""

from __future__ import annotations

from .faces import ENDING, SPARE, Offsets, arguments, each, found, given, of_row, sure, types
from .mailbox import load


def getitem(at: Offsets) -> str:
    """Return the method that indexes: it gives a view, a value, or a copy of elements that arrays select. A view of an
    array without axes goes the long way: of a value it is an array of its own.
    """
    return f"""{_keys(at)}{_owner_of(at)}
define private ptr @getitem(ptr %x, ptr %y, ptr %row) {{
{given("ndarray", "Py_DecRef")}{found("a", "@array_of(ptr %x)", "asked", "long")}\
{sure("open", "@is_open()", "keyed", "long")}{sure("plain", "@is_plain(ptr %y)", "go", "other")}\
  %p = call ptr @selected(ptr %a, ptr %y)
  br label %looked
looked:
  %r = phi ptr [%p, %go], [%q, %integers]
  %failed = icmp eq ptr %r, null
  br i1 %failed, label %failure, label %there
there:
{sure("array", "@is(ptr %r, ptr %ndarray)", "seen", "single")}\
  %axes = call i32 @axes_of(ptr %a)
  %lone = icmp eq i32 %axes, 0
  br i1 %lone, label %apart, label %view
apart:
  call void %Py_DecRef(ptr %r)
  br label %long
view:
{found("owner", "@owner_of(ptr %x)", "owned", "drop")}\
  %t = call ptr @face(ptr %r, ptr %owner)
  call void %Py_DecRef(ptr %owner)
  ret ptr %t
drop:
  call void %Py_DecRef(ptr %r)
  br label %fail
single:
  %v = call ptr @value(ptr %r)
  ret ptr %v
other:
{found("key", "@native_key(ptr %y)", "native", "long")}{sure("basic", "@is_plain(ptr %key)", "integers", "arrays")}\
  %q = call ptr @selected(ptr %a, ptr %key)
  call void %Py_DecRef(ptr %key)
  br label %looked
arrays:
{sure("small", "@is_small(ptr %a, ptr %row)", "gather", "large")}\
  %g = call ptr @selected(ptr %a, ptr %key)
  call void %Py_DecRef(ptr %key)
  %refused = icmp eq ptr %g, null
  br i1 %refused, label %failure, label %gathered
gathered:
  %copy = call ptr @result(ptr %g)
  ret ptr %copy
large:
  call void %Py_DecRef(ptr %key)
  br label %long
{ENDING}"""


def _owner_of(at: Offsets) -> str:
    """Return @owner_of: the owner of a tensor's memory; @selected: what a key selects of an array."""
    return f"""
define private ptr @owner_of(ptr %x) {{
{given("None", "PyObject_GetAttr", "owner", "Py_IncRef")}{load("known", "%x", at.owner, "ptr")}\
  %none = icmp eq ptr %known, %None
  %unset = icmp eq ptr %known, null
  %unknown = or i1 %none, %unset
  br i1 %unknown, label %ask, label %there
ask:
  %made = call ptr %PyObject_GetAttr(ptr %x, ptr %owner)
  ret ptr %made
there:
  call void %Py_IncRef(ptr %known)
  ret ptr %known
}}
define private ptr @selected(ptr %a, ptr %key) {{
{given("PyObject_GetItem", "Py_IncRef", "Py_DecRef")}\
  call void %Py_IncRef(ptr %a)
  %r = call ptr %PyObject_GetItem(ptr %a, ptr %key)
  call void %Py_DecRef(ptr %a)
  ret ptr %r
}}
"""


def _keys(at: Offsets) -> str:
    """Return @native_key: a new reference to a key for NumPy, with arrays in place of tensors, and integers in place of
    values; null for other keys.
    """
    return f"""{_plain_keys()}{_index_of(at)}{_native_part(at)}
define private ptr @native_key(ptr %key) {{
{given("tuple", "PyTuple_Size", "PyTuple_GetItem", "PyTuple_New", "PyTuple_SetItem", "Py_DecRef")}\
{sure("several", "@is(ptr %key, ptr %tuple)", "all", "one")}\
  %size = call i64 %PyTuple_Size(ptr %key)
{found("parts", "%PyTuple_New(i64 %size)", "made", "no")}\
  br label %test
test:
  %n = phi i64 [0, %made], [%n.next, %put]
  %more = icmp slt i64 %n, %size
  br i1 %more, label %look, label %yes
look:
  %part = call ptr %PyTuple_GetItem(ptr %key, i64 %n)
{found("native", "@native_part(ptr %part)", "put", "drop")}\
  %failure = call i32 %PyTuple_SetItem(ptr %parts, i64 %n, ptr %native)
  %n.next = add i64 %n, 1
  br label %test
yes:
  ret ptr %parts
drop:
  call void %Py_DecRef(ptr %parts)
  ret ptr null
one:
  %alone = call ptr @native_part(ptr %key)
  ret ptr %alone
no:
  ret ptr null
}}
"""


def _index_of(at: Offsets) -> str:
    """Return @index_of: the array of a key that is a thin face of integers, or of booleans with axes; null for other
    keys.
    """
    return f"""
define private ptr @index_of(ptr %key) {{
{found("index", "@array_of(ptr %key)", "asked", "no")}{load("dtype", "%index", at.dtype, "ptr")}\
  %kind.at = getelementptr i8, ptr %dtype, i64 {at.kind}
  %kind = load i8, ptr %kind.at
  %axes = call i32 @axes_of(ptr %index)
  %single = icmp eq i32 %axes, 0
  br i1 %single, label %alone, label %several
alone:
  switch i8 %kind, label %no [ {_labels("iu")} ]
several:
  switch i8 %kind, label %no [ {_labels("biu")} ]
yes:
  ret ptr %index
no:
  ret ptr null
}}
"""


def _native_part(at: Offsets) -> str:
    """Return @native_part: the same as @native_key for one item of a key."""
    return f"""
define private ptr @native_part(ptr %part) {{
{given("True", "Py_IncRef", "PyNumber_Index")}{sure("plain", "@is_plain_one(ptr %part)", "itself", "other")}\
  call void %Py_IncRef(ptr %part)
  ret ptr %part
other:
{found("index", "@index_of(ptr %part)", "indexed", "no")}{load("mark", "%part", at.is_value, "ptr")}\
  %axes = call i32 @axes_of(ptr %index)
  %single = icmp eq i32 %axes, 0
  %marked = icmp eq ptr %mark, %True
  %value = and i1 %single, %marked
  br i1 %value, label %integer, label %array
integer:
  %n = call ptr %PyNumber_Index(ptr %index)
  ret ptr %n
array:
  call void %Py_IncRef(ptr %index)
  ret ptr %index
no:
  ret ptr null
}}
"""


def _plain_keys() -> str:
    """Return @is_plain: whether a key only has items by which NumPy selects a view or an element."""
    kinds = ("int", "slice", "NoneType", "ellipsis")
    return f"""
define private i1 @is_plain_one(ptr %key) {{
{given(*kinds)}{types("key", *kinds)}\
  ret i1 %is.one
}}
define private i1 @is_plain(ptr %key) {{
{given("tuple")}{sure("several", "@is(ptr %key, ptr %tuple)", "all", "one")}{each("key", "@is_plain_one")}\
one:
  %alone = call i1 @is_plain_one(ptr %key)
  ret i1 %alone
}}
"""


def _labels(kinds: str) -> str:
    """Return the cases of a switch that branch to `yes`, for these kinds of dtypes."""
    return " ".join([f"i8 {ord(kind)}, label %yes" for kind in kinds])


def setitem(at: Offsets) -> str:
    """Return the method that assigns a Python number, a short list of numbers, or a small array of the target's dtype.
    If the key has arrays in it, the assigned array must share no memory with the target, unless it is a single element.
    """
    return f"""{_assigning()}{_overlaps(at)}{_taken(at)}{_listed(at)}{_any_value()}
define private ptr @set(ptr %x, ptr %key, ptr %value, ptr %row) {{
{given("Py_IncRef", "Py_DecRef", "None", "ndarray")}\
{found("a", "@array_of(ptr %x)", "asked", "long")}{sure("open", "@is_open()", "opened", "long")}\
{sure("free", "@is_free(ptr %x)", "keyed", "long")}\
{found("taken", "@taken(ptr %a, ptr %value, ptr %row)", "valued", "long")}\
{sure("plain", "@is_plain(ptr %key)", "basic", "other")}\
  call void %Py_IncRef(ptr %key)
  br label %go
other:
{found("index", "@native_key(ptr %key)", "native", "long")}\
  %integers = call i1 @is_plain(ptr %index)
  %numbers = call i1 @is(ptr %taken, ptr %ndarray)
  %number = xor i1 %numbers, true
  %either = or i1 %integers, %number
  br i1 %either, label %go, label %arrays
arrays:
{sure("single", "@is(ptr %index, ptr %ndarray)", "array", "several")}\
  %index.axes = call i32 @axes_of(ptr %index)
  %given.axes = call i32 @axes_of(ptr %taken)
  %all.axes = or i32 %index.axes, %given.axes
  %element = icmp eq i32 %all.axes, 0
  br i1 %element, label %go, label %several
several:
{sure("apart", "@is_apart(ptr %a, ptr %taken)", "aside", "drop")}\
  br label %go
drop:
  call void %Py_DecRef(ptr %index)
  br label %long
go:
  %place = phi ptr [%key, %basic], [%index, %native], [%index, %array], [%index, %aside]
  %whole.key = phi i1 [false, %basic], [false, %native], [false, %array], [true, %aside]
  call void %Py_IncRef(ptr %a)
  call void %Py_IncRef(ptr %taken)
  %state = call i32 @assigned(ptr %a, ptr %place, ptr %taken, i1 %whole.key)
  call void %Py_DecRef(ptr %a)
  call void %Py_DecRef(ptr %taken)
  call void %Py_DecRef(ptr %place)
  switch i32 %state, label %failure [ i32 {_DONE}, label %done
                                      i32 {_UNSURE}, label %long ]
done:
{sure("noted", "@written(ptr %x)", "give", "fail")}\
  call void %Py_IncRef(ptr %None)
  ret ptr %None
{ENDING.replace("@past(ptr %row, ptr %x, ptr %y)", "@past_of_three(ptr %row, ptr %x, ptr %key, ptr %value)")}\
define private ptr @past_of_three(ptr %row, ptr %x, ptr %key, ptr %value) {{
{given("PyObject_Vectorcall")}{of_row("door")}{arguments("x", "key", "value")}\
  %r = call ptr %PyObject_Vectorcall(ptr %door, ptr %to1, i64 {3 | SPARE}, ptr null)
  ret ptr %r
}}
"""


# The outcomes of an assignment: an exception was raised, it is done, or nothing was tried.
_FAILED, _DONE, _UNSURE = range(3)


def _taken(at: Offsets) -> str:
    """Return @taken: the object to give NumPy for a value that is assigned to an array's elements, or null."""
    return f"""
define private ptr @taken(ptr %a, ptr %value, ptr %row) {{
{given("float", "int", "bool", "ndarray")}{types("value", "float", "int", "bool")}\
  br i1 %is.one, label %itself, label %other
itself:
  ret ptr %value
other:
  %is.native = call i1 @is(ptr %value, ptr %ndarray)
  br i1 %is.native, label %asked, label %face
face:
{found("shown", "@array_of(ptr %value)", "asked", "no")}\
  %b = phi ptr [%value, %other], [%shown, %face]
{load("dtype", "%a", at.dtype, "ptr")}{load("given", "%b", at.dtype, "ptr")}\
  %same = icmp eq ptr %dtype, %given
  br i1 %same, label %sized, label %no
sized:
{sure("small", "@is_small(ptr %b, ptr %row)", "yes", "no")}\
  ret ptr %b
no:
  ret ptr null
}}
"""


def _any_value() -> str:
    """Return the method itself: it assigns a value, or the array for a list, by @set."""
    return f"""
define private ptr @setitem(ptr %x, ptr %arguments, i64 %count, ptr %row) {{
{given("Py_DecRef")}\
  %whole = icmp eq i64 %count, 2
  br i1 %whole, label %both, label %misused
misused:
  %m = call ptr @past(ptr %row, ptr %x, ptr null)
  ret ptr %m
both:
{load("key", "%arguments", 0, "ptr")}{load("value", "%arguments", 1, "ptr")}\
{found("list", "@array_for(ptr %x, ptr %value, ptr %row)", "listed", "one")}\
  %l.r = call ptr @set(ptr %x, ptr %key, ptr %list, ptr %row)
  call void %Py_DecRef(ptr %list)
  ret ptr %l.r
one:
  %o.r = call ptr @set(ptr %x, ptr %key, ptr %value, ptr %row)
  ret ptr %o.r
}}
"""


def _listed(at: Offsets) -> str:
    """Return @array_for: a new array of the target's dtype, which is floating-point, for a short list or tuple of
    numbers that is assigned; null for other values. @kind_of: the kind of an array's dtype.
    """
    return f"""
define private i8 @kind_of(ptr %a) {{
{load("dtype", "%a", at.dtype, "ptr")}\
  %kind.at = getelementptr i8, ptr %dtype, i64 {at.kind}
  %kind = load i8, ptr %kind.at
  ret i8 %kind
}}
define private ptr @array_for(ptr %x, ptr %value, ptr %row) {{
{given("list", "tuple", "array", "PyList_New", "Py_DecRef", "PyErr_Clear")}{types("value", "list", "tuple")}\
  br i1 %is.one, label %parts, label %none
parts:
{found("a", "@array_of(ptr %x)", "shown", "none")}\
  %kind = call i8 @kind_of(ptr %a)
  %real = icmp eq i8 %kind, {ord("f")}
  br i1 %real, label %keep, label %none
keep:
{found("held", "%PyList_New(i64 0)", "begin", "no")}\
{found("plain", "@plain_of(ptr %value, ptr %held, ptr %row, i64 2)", "make", "drop")}\
{found("made", "@quietly(ptr %array, ptr %plain, ptr null)", "look", "drop")}\
{load("dtype", "%a", at.dtype, "ptr")}{load("own", "%made", at.dtype, "ptr")}\
  %same = icmp eq ptr %dtype, %own
  br i1 %same, label %done, label %ask
ask:
  %made.kind = call i8 @kind_of(ptr %made)
  switch i8 %made.kind, label %other [ i8 {ord("b")}, label %cast
                                       i8 {ord("i")}, label %cast
                                       i8 {ord("u")}, label %cast
                                       i8 {ord("f")}, label %cast ]
cast:
  %found = call ptr @quietly(ptr %array, ptr %made, ptr %dtype)
  call void %Py_DecRef(ptr %made)
  call void %Py_DecRef(ptr %held)
  %failed = icmp eq ptr %found, null
  br i1 %failed, label %no, label %cast.done
cast.done:
  ret ptr %found
done:
  call void %Py_DecRef(ptr %held)
  ret ptr %made
other:
  call void %Py_DecRef(ptr %made)
  br label %drop
drop:
  call void %Py_DecRef(ptr %held)
  br label %no
no:
  call void %PyErr_Clear()
  br label %none
none:
  ret ptr null
}}
"""


def _assigning() -> str:
    """Return @assigned: assigns a number, or an array by way of a view of the target, and returns the outcome; whole:
    that no view is to be made. @is_apart: whether two arrays share no memory, according to NumPy.
    """
    return f"""
define private i1 @is_apart(ptr %a, ptr %b) {{
{given("may_share", "False", "Py_DecRef", "PyErr_Clear")}\
{found("told", "@call(ptr %may_share, ptr %a, ptr %b)", "known", "unknown")}\
  %apart = icmp eq ptr %told, %False
  call void %Py_DecRef(ptr %told)
  ret i1 %apart
unknown:
  call void %PyErr_Clear()
  ret i1 false
}}
define private i32 @assign(ptr %a, ptr %key, ptr %value) {{
{given("PyObject_SetItem")}{sure("entered", "@hush()", "go", "fail")}\
  %failure = call i32 %PyObject_SetItem(ptr %a, ptr %key, ptr %value)
  call void @unhush()
  %good = icmp eq i32 %failure, 0
  %state = select i1 %good, i32 {_DONE}, i32 {_FAILED}
  ret i32 %state
fail:
  ret i32 {_FAILED}
}}
define private i32 @assigned(ptr %a, ptr %key, ptr %value, i1 %whole) {{
{given("ndarray", "Ellipsis", "PyObject_GetItem", "Py_DecRef")}\
{sure("array", "@is(ptr %value, ptr %ndarray)", "counted", "direct")}\
  %axes = call i32 @axes_of(ptr %value)
  %single = icmp eq i32 %axes, 0
  %at.once = or i1 %single, %whole
  br i1 %at.once, label %direct, label %several
direct:
  %state = call i32 @assign(ptr %a, ptr %key, ptr %value)
  ret i32 %state
several:
{found("view", "%PyObject_GetItem(ptr %a, ptr %key)", "viewed", "failed")}\
{sure("sure", "@is_sure(ptr %view, ptr %value)", "into", "unsure")}\
  %assigned = call i32 @assign(ptr %view, ptr %Ellipsis, ptr %value)
  call void %Py_DecRef(ptr %view)
  ret i32 %assigned
unsure:
  call void %Py_DecRef(ptr %view)
  ret i32 {_UNSURE}
failed:
  ret i32 {_FAILED}
}}
"""


def _overlaps(at: Offsets) -> str:
    """Return @is_sure: whether NumPy assigns correctly even if the assigned array overlaps its target: for arrays of
    one axis it assumes an order of writes that reads each element in time, which only holds for equal strides (seen in
    NumPy 2.4). @first, @last: the lowest and the highest address of an element of an array of one axis.
    """

    def end(name: str, less: str) -> str:
        return f"""
define private i64 @{name}(ptr %a) {{
{load("memory", "%a", at.memory)}{load("strides", "%a", at.strides, "ptr")}{load("lengths", "%a", at.lengths, "ptr")}\
{load("stride", "%strides", 0)}{load("length", "%lengths", 0)}\
  %more = sub i64 %length, 1
  %away = mul i64 %more, %stride
  %far = add i64 %memory, %away
  %turned = icmp {less} i64 %away, 0
  %end = select i1 %turned, i64 %far, i64 %memory
  ret i64 %end
}}"""

    return f"""{end("first", "slt")}{end("last", "sgt")}
define private i1 @is_sure(ptr %view, ptr %b) {{
{given("ndarray")}{sure("array", "@is(ptr %view, ptr %ndarray)", "asked", "no")}\
  %axes = call i32 @axes_of(ptr %view)
  %given.axes = call i32 @axes_of(ptr %b)
  %several = icmp ne i32 %axes, 1
  br i1 %several, label %yes, label %counted
counted:
  %both = icmp eq i32 %given.axes, 1
  br i1 %both, label %compare, label %no
compare:
{load("strides", "%view", at.strides, "ptr")}{load("given.strides", "%b", at.strides, "ptr")}\
{load("stride", "%strides", 0)}{load("given.stride", "%given.strides", 0)}{load("dtype", "%b", at.dtype, "ptr")}\
{load("itemsize", "%dtype", at.itemsize)}\
  %same = icmp eq i64 %stride, %given.stride
  %view.first = call i64 @first(ptr %view)
  %view.last = call i64 @last(ptr %view)
  %b.first = call i64 @first(ptr %b)
  %b.last = call i64 @last(ptr %b)
  %view.end = add i64 %view.last, %itemsize
  %b.end = add i64 %b.last, %itemsize
  %before = icmp ule i64 %view.end, %b.first
  %after = icmp ule i64 %b.end, %view.first
  %apart = or i1 %before, %after
  %good = or i1 %same, %apart
  ret i1 %good
yes:
  ret i1 true
no:
  ret i1 false
}}
"""

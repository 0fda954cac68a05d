"""The dispatch of captured functions in machine code: whether a call is of a kind that is known, and what it does then.

A kind is told in words of 8 bytes (HEAD), of which some say where others begin: a table of what is compared, in rows.
Nothing of Python's runs between the first comparison and the end of the kernels, so that one set of words serves all
threads: after what is computed of numbers, all is compared again. What is not of a known kind goes to the door, the
call in Python.

Sources: jax's dispatch of jitted functions in C++ (jaxlib, pjit.cc) and torch's guards (TorchDynamo) do the same.
"""

from __future__ import annotations

from .faces import Offsets, found, given, store, sure
from .mailbox import load

# The words of a kind. itself: the object that keeps all that they point to; next: another kind's words, or 0; uses: how
# often it was launched; numbers: of a kind that is told numbers, what computes of a tuple of them a tuple, of words for
# the run, as bytes, and of objects for the result, or None; numbered: how many it is told; options: the object that the
# options in force are; names: a tuple of the arguments' names, or 0; positional: how many have none; overlaps: the
# first word of a table of how memory overlaps, for each tensor with each one before it. run: a run of the driver's;
# driver: the machine code; noted: where a failure is noted, or 0; build: SINGLE, TUPLE, or a function that makes the
# result of a tuple. Of each table, its first word and its rows.
TABLES = ("spreads", "given", "places", "tensors", "written", "moves", "cells", "results", "leaves")
HEAD = (
    *("itself", "next", "uses", "numbers", "numbered", "options", "names", "positional", "overlaps"),
    *("run", "driver", "noted", "build"),
    *[word for name in TABLES for word in (name, f"{name}.rows")],
)
SINGLE, TUPLE = 0, 1

# The rows of tables. spreads: something and its length. given: a constant, or null for a tensor, how others are
# compared with it, and the tensor's number. places: where something is found, under which name, and in which way; what
# that is, or null for a tensor; of a function, what it has; the tensor's number, or how many attributes a function has.
# tensors: what an array has; the words of its lengths and strides; the bytes from its first element to its lowest and
# behind its highest; what is left of its address, or -1; without axes, whether it is a value; what was found in this
# call. written: a tensor's number. moves: a tensor's number and the word of the run that tells where it begins. cells:
# words of the run that numbers tell. results: what an array is to have, whether it is a value, and the word that tells
# where it begins. leaves: what kind, and the number of a result, a tensor or something computed, or an object.
ROWS = {
    "spreads": ("whole", "length"),
    "given": ("constant", "compared", "number"),
    "places": ("where", "name", "way", "constant", "code", "defaults", "kwdefaults", "number"),
    "tensors": (
        *("dtype", "writeable", "axes", "lie", "low", "high", "left", "is.value"),
        *("object", "begin", "lowest", "highest"),
    ),
    "written": ("number",),
    "moves": ("number", "word"),
    "cells": ("word",),
    "results": ("dtype", "axes", "lie", "is.value", "word"),
    "leaves": ("kind", "value"),
}
RESULT, TENSOR, OBJECT, CELL = 0, 1, 2, 3

# How arguments are compared with a constant: only itself will do; what equals it, and has its type; a number whose type
# it is, and which is told.
ITSELF, EQUAL, TOLD = 0, 1, 2

# The ways: the value of a key in a dict, the content of a cell, the element of a list with a number.
OF_DICT, OF_CELL, OF_LIST = 0, 1, 2

# Of two tensors' memory: that it is apart; else twice the bytes between their beginnings, and 1 if they are one tensor.
APART = 1 << 62

WRITEABLE, ALIGNMENT = 0x400, 64


def dispatch(at: Offsets) -> str:
    """Return the method: launch a kind that a call is of, else go to the door."""
    asked = (_plain(), _state(), _tensor(at), _constants(), _finding(at), _places(), _memory(), _writing())
    done = (_made(at), _told(), _faced(at), _leaves(), _returned(), _numbers(), _launch(), _method(at))
    return "".join((*asked, *done))


# ---- lines


def word(*names: str, kind: str = "i64") -> str:
    """Return the lines that load words of a kind."""
    return "".join([load(name, "%kind", HEAD.index(name), kind) for name in names])


def table(name: str) -> str:
    """Return the lines that find a table, `%name.at`, and the number of its rows, `%name.rows`."""
    return f"{word(name, f'{name}.rows')}  %{name}.table = getelementptr i64, ptr %kind, i64 %{name}\n"


def row(name: str, number: str, *fields: str, suffix: str = "") -> str:
    """Return the lines that load fields of a table's row; those that end in "*" are pointers."""
    size, own = len(ROWS[name]), f"{name}.row{suffix}"
    at = f"  %{own} = getelementptr i64, ptr %{name}.table, i64 %{own}.words\n"
    lines = [f"  %{own}.words = mul i64 {number}, {size}\n{at}"]
    for field in fields:
        bare, kind = field.rstrip("*"), "ptr" if field.endswith("*") else "i64"
        lines.append(load(bare + suffix, f"%{own}", ROWS[name].index(bare), kind))
    return "".join(lines)


def over(name: str, count: str, body: str) -> str:
    """Return the lines that do something for each number `%name` below a count."""
    return f"""  br label %{name}.begin
{name}.begin:
  br label %{name}.test
{name}.test:
  %{name} = phi i64 [0, %{name}.begin], [%{name}.next, %{name}.step]
  %{name}.more = icmp ult i64 %{name}, {count}
  br i1 %{name}.more, label %{name}.body, label %{name}.done
{name}.body:
{body}  br label %{name}.step
{name}.step:
  %{name}.next = add i64 %{name}, 1
  br label %{name}.test
{name}.done:
"""


def same(name: str, x: str, y: str, then: str, of: str = "i64") -> str:
    """Return the lines that go on at a label where two, of a type, are the same, else at %no."""
    return f"  %{name} = icmp eq {of} {x}, {y}\n  br i1 %{name}, label %{then}, label %no\n{then}:\n"


# How a question ends.
ANSWERS = """  ret i1 true
no:
  ret i1 false
}
"""


# ---- questions


def _plain() -> str:
    """Return @equals: whether two objects are equal, with no exception; @is_empty: whether a list is."""
    return f"""
define private i1 @equals(ptr %x, ptr %y) {{
{given("PyObject_RichCompareBool", "PyErr_Clear")}\
  %equal = call i32 %PyObject_RichCompareBool(ptr %x, ptr %y, i32 2)
  %failed = icmp slt i32 %equal, 0
  br i1 %failed, label %clear, label %told
told:
  %alike = icmp eq i32 %equal, 1
  ret i1 %alike
clear:
  call void %PyErr_Clear()
  ret i1 false
}}
define private i1 @is_empty(ptr %list) {{
{given("PyList_Size")}\
  %size = call i64 %PyList_Size(ptr %list)
  %none = icmp eq i64 %size, 0
  ret i1 %none
}}
"""


def _state() -> str:
    """Return @state_fits: whether the options are those of a kind, and names were added nowhere; @names_fit: whether
    arguments have the names of a kind's.
    """
    spread = f"""{row("spreads", "%s", "whole*", "length")}\
  %size = call i64 %PyObject_Size(ptr %whole)
{same("as.long", "%size", "%length", "s.good")}"""
    return f"""
define private i1 @state_fits(ptr %kind) {{
{given("in_force", "PyContextVar_Get", "PyObject_Size", "Py_DecRef", "None")}\
{word("options", kind="ptr")}{table("spreads")}\
  %into = alloca ptr
  store ptr null, ptr %into
  %failure = call i32 %PyContextVar_Get(ptr %in_force, ptr %None, ptr %into)
  %now = load ptr, ptr %into
  %unset = icmp eq ptr %now, null
  br i1 %unset, label %no, label %found
found:
  call void %Py_DecRef(ptr %now)
{same("as.before", "%now", "%options", "in.force", "ptr")}\
{over("s", "%spreads.rows", spread)}\
{ANSWERS}\
define private i1 @names_fit(ptr %kind, i64 %count, ptr %names) {{
{word("positional")}{load("own", "%kind", HEAD.index("names"), "ptr")}\
{same("many", "%count", "%positional", "counted")}\
  %unnamed = icmp eq ptr %own, null
  br i1 %unnamed, label %none, label %some
none:
{same("bare", "%names", "null", "yes", "ptr")}\
  ret i1 true
some:
  %bare.too = icmp eq ptr %names, null
  br i1 %bare.too, label %no, label %compare
compare:
  %alike = call i1 @equals(ptr %names, ptr %own)
  ret i1 %alike
no:
  ret i1 false
}}
"""


def _tensor(at: Offsets) -> str:
    """Return @tensor_fits: whether something is a thin face of an array as a kind has it by that number, of which is
    then noted where it lies.
    """
    axis = f"""{load("length", "%lengths", "%axis")}{load("own.length", "%own.lengths", "%axis")}\
{same("as.long", "%length", "%own.length", "axis.long")}\
{load("stride", "%strides", "%axis")}{load("own.stride", "%own.strides", "%axis")}\
{same("as.far", "%stride", "%own.stride", "axis.good")}"""
    fields = ("dtype*", "writeable", "axes", "lie", "low", "high", "left", "is.value")
    noted = "".join(
        [
            f"  %to.{name} = getelementptr i64, ptr %tensors.row, i64 {ROWS['tensors'].index(name)}\n"
            f"  store {kind} %{value}, ptr %to.{name}\n"
            for name, kind, value in (
                *(("object", "ptr", "x"), ("begin", "i64", "memory")),
                *(("lowest", "i64", "lowest"), ("highest", "i64", "highest")),
            )
        ]
    )
    return f"""
define private i1 @tensor_fits(ptr %kind, i64 %number, ptr %x) {{
{given("True")}{table("tensors")}{found("a", "@array_of(ptr %x)", "array", "no")}{row("tensors", "%number", *fields)}\
{load("its.dtype", "%a", at.dtype, "ptr")}{same("typed", "%its.dtype", "%dtype", "type.good", "ptr")}\
{load("its.axes", "%a", at.axes, "i32")}\
  %its.axes.wide = zext i32 %its.axes to i64
{same("deep", "%its.axes.wide", "%axes", "axes.good")}\
{load("flags", "%a", at.flags, "i32")}\
  %flag = and i32 %flags, {WRITEABLE}
  %flag.wide = zext i32 %flag to i64
{same("may", "%flag.wide", "%writeable", "flag.good")}\
{load("lengths", "%a", at.lengths, "ptr")}{load("strides", "%a", at.strides, "ptr")}\
  %own.lengths = getelementptr i64, ptr %kind, i64 %lie
  %own.strides = getelementptr i64, ptr %own.lengths, i64 %axes
{over("axis", "%axes", axis)}\
{load("memory", "%a", at.memory)}\
  %rest = and i64 %memory, {ALIGNMENT - 1}
  %any = icmp eq i64 %left, -1
  %right = icmp eq i64 %rest, %left
  %placed = or i1 %any, %right
  br i1 %placed, label %marked, label %no
marked:
{load("mark", "%x", at.is_value, "ptr")}\
  %is.marked = icmp eq ptr %mark, %True
  %is.marked.wide = zext i1 %is.marked to i64
  %as.marked = icmp eq i64 %is.marked.wide, %is.value
  %several = icmp ne i64 %axes, 0
  %may.be = or i1 %several, %as.marked
  br i1 %may.be, label %note, label %no
note:
  %lowest = add i64 %memory, %low
  %highest = add i64 %memory, %high
{noted}{ANSWERS}"""


def _constants() -> str:
    """Return @constant_fits: whether something is a constant, or one of its type that equals it where that will do;
    @given_fit: whether arguments are what a kind was given.
    """
    argument = f"""{row("given", "%n", "constant*", "compared", "number")}{load("x", "%y", "%n", "ptr")}\
  %is.tensor = icmp eq ptr %constant, null
  br i1 %is.tensor, label %n.tensor, label %n.constant
n.tensor:
{sure("lies", "@tensor_fits(ptr %kind, i64 %number, ptr %x)", "n.lies", "no")}\
  br label %n.good
n.constant:
{sure("told", "@constant_fits(ptr %x, ptr %constant, i64 %compared)", "n.told", "no")}\
  br label %n.good
n.good:
"""
    return f"""
define private i1 @constant_fits(ptr %x, ptr %constant, i64 %compared) {{
  %itself = icmp eq ptr %x, %constant
  br i1 %itself, label %yes, label %other
other:
{load("its.type", "%x", 1, "ptr")}{load("own.type", "%constant", 1, "ptr")}\
  switch i64 %compared, label %no [ i64 {EQUAL}, label %type
                                    i64 {TOLD}, label %number ]
number:
  %is.one = icmp eq ptr %its.type, %constant
  br i1 %is.one, label %yes, label %no
type:
{same("typed", "%its.type", "%own.type", "compare", "ptr")}\
  %alike = call i1 @equals(ptr %x, ptr %constant)
  br i1 %alike, label %yes, label %no
yes:
{ANSWERS}\
define private i1 @given_fit(ptr %kind, ptr %y) {{
{table("given")}{over("n", "%given.rows", argument)}\
{ANSWERS}"""


def _finding(at: Offsets) -> str:
    """Return @found_at: what is found in some way; @form_fits: whether a function still has what a row says."""
    return f"""
define private ptr @found_at(ptr %where, ptr %name, i64 %way) {{
{given("None", "PyCell_Get", "PyDict_GetItemWithError", "PyList_GetItem", "Py_DecRef", "PyErr_Clear")}\
  switch i64 %way, label %find [ i64 {OF_CELL}, label %look
                                 i64 {OF_LIST}, label %count ]
count:
  %number = ptrtoint ptr %name to i64
  %element = call ptr %PyList_GetItem(ptr %where, i64 %number)
  %beyond = icmp eq ptr %element, null
  br i1 %beyond, label %clear, label %counted
counted:
  ret ptr %element
look:
  %held = call ptr %PyCell_Get(ptr %where)
  %empty = icmp eq ptr %held, null
  br i1 %empty, label %nothing, label %let
let:
  call void %Py_DecRef(ptr %held)
  ret ptr %held
find:
  %value = call ptr %PyDict_GetItemWithError(ptr %where, ptr %name)
  %missing = icmp eq ptr %value, null
  br i1 %missing, label %clear, label %there
there:
  ret ptr %value
clear:
  call void %PyErr_Clear()
  br label %nothing
nothing:
  ret ptr %None
}}
define private i1 @form_fits(ptr %function, ptr %code, ptr %defaults, ptr %kwdefaults, i64 %many) {{
{given("PyFunction_GetCode", "PyFunction_GetDefaults", "PyFunction_GetKwDefaults", "PyDict_Size")}\
  %its.code = call ptr %PyFunction_GetCode(ptr %function)
{same("coded", "%its.code", "%code", "code.good", "ptr")}\
  %its.defaults = call ptr %PyFunction_GetDefaults(ptr %function)
{same("defaulted", "%its.defaults", "%defaults", "defaults.good", "ptr")}\
  %its.kwdefaults = call ptr %PyFunction_GetKwDefaults(ptr %function)
{same("kwdefaulted", "%its.kwdefaults", "%kwdefaults", "kwdefaults.good", "ptr")}\
{load("own", "%function", at.function_dict, "ptr")}\
  %bare = icmp eq ptr %own, null
  br i1 %bare, label %none, label %count
none:
  br label %compare
count:
  %size = call i64 %PyDict_Size(ptr %own)
  br label %compare
compare:
  %attributes = phi i64 [0, %none], [%size, %count]
{same("as.many", "%attributes", "%many", "yes")}\
{ANSWERS}\
"""


def _places() -> str:
    """Return @places_fit: whether a kind's names stand for what they stood for."""
    fields = [name if name in ("way", "number") else f"{name}*" for name in ROWS["places"]]
    place = f"""{row("places", "%p", *fields)}\
  %value = call ptr @found_at(ptr %where, ptr %name, i64 %way)
  %is.tensor = icmp eq ptr %constant, null
  br i1 %is.tensor, label %p.tensor, label %p.constant
p.tensor:
{sure("lies", "@tensor_fits(ptr %kind, i64 %number, ptr %value)", "p.lies", "no")}\
  br label %p.good
p.constant:
{same("itself", "%value", "%constant", "p.itself", "ptr")}\
  %plain = icmp eq ptr %code, null
  br i1 %plain, label %p.good, label %p.function
p.function:
{sure("formed", "@form_fits(ptr %value, ptr %code, ptr %defaults, ptr %kwdefaults, i64 %number)", "p.formed", "no")}\
  br label %p.good
p.good:
"""
    return f"""
define private i1 @places_fit(ptr %kind) {{
{table("places")}{over("p", "%places.rows", place)}\
{ANSWERS}"""


def _memory() -> str:
    """Return @overlaps_fit: whether the memory of tensors overlaps as a kind's does."""
    pair = f"""{row("tensors", "%j", "object*", "begin", "lowest", "highest", suffix=".j")}\
  %before = icmp ult i64 %lowest.i, %highest.j
  %behind = icmp ult i64 %lowest.j, %highest.i
  %cross = and i1 %before, %behind
  %one = icmp eq ptr %object.i, %object.j
  %meet = or i1 %cross, %one
  %apart = sub i64 %begin.i, %begin.j
  %doubled = shl i64 %apart, 1
  %one.wide = zext i1 %one to i64
  %how = or i64 %doubled, %one.wide
  %now = select i1 %meet, i64 %how, i64 {APART}
  %i.first = mul i64 %i, %tensors.rows
  %cell = add i64 %i.first, %j
{load("own", "%overlaps.table", "%cell")}{same("alike", "%now", "%own", "j.good")}"""
    outer = row("tensors", "%i", "object*", "begin", "lowest", "highest", suffix=".i") + over("j", "%i", pair)
    return f"""
define private i1 @overlaps_fit(ptr %kind) {{
{table("tensors")}{word("overlaps")}\
  %overlaps.table = getelementptr i64, ptr %kind, i64 %overlaps
{over("i", "%tensors.rows", outer)}\
{ANSWERS}\
"""


def _writing() -> str:
    """Return @can_be_written: whether nobody waits for what a kind writes."""
    write = f"""{row("written", "%w", "number")}{row("tensors", "%number", "object*")}\
{sure("free", "@is_free(ptr %object)", "w.good", "no")}"""
    return f"""
define private i1 @can_be_written(ptr %kind) {{
{table("tensors")}{table("written")}{over("w", "%written.rows", write)}\
{ANSWERS}"""


# ---- the launch


def _made(at: Offsets) -> str:
    """Return @dropped: let go of objects from one number up to another, as far as they are there; @allocated: make a
    kind's results, and enter where they begin.
    """
    result = f"""{row("results", "%r", "dtype*", "axes", "lie", "word")}\
  call void %Py_IncRef(ptr %dtype)
  %lengths = getelementptr i64, ptr %kind, i64 %lie
  %axes.few = trunc i64 %axes to i32
  %array = call ptr %PyArray_NewFromDescr(ptr %ndarray, ptr %dtype, i32 %axes.few, ptr %lengths, ptr null, ptr null,
    i32 0, ptr null)
  %failed = icmp eq ptr %array, null
  br i1 %failed, label %drop, label %r.good
r.good:
  %to = getelementptr ptr, ptr %made, i64 %r
  store ptr %array, ptr %to
{load("memory", "%array", at.memory)}\
  %told = getelementptr i64, ptr %run, i64 %word
  store i64 %memory, ptr %told
"""
    drop = f"""  %n = add i64 %from, %d
{load("one", "%objects", "%n", "ptr")}\
  %empty = icmp eq ptr %one, null
  br i1 %empty, label %d.good, label %d.drop
d.drop:
  call void %Py_DecRef(ptr %one)
  br label %d.good
d.good:
"""
    return f"""
define private void @dropped(ptr %objects, i64 %from, i64 %to) {{
{given("Py_DecRef")}\
  %count = sub i64 %to, %from
{over("d", "%count", drop)}\
  ret void
}}
define private i1 @allocated(ptr %kind, ptr %made) {{
{given("PyArray_NewFromDescr", "Py_IncRef", "ndarray")}{word("run", kind="ptr")}{table("results")}\
{over("r", "%results.rows", result)}\
  ret i1 true
drop:
  call void @dropped(ptr %made, i64 0, i64 %r)
  ret i1 false
}}
"""


def _told() -> str:
    """Return @enter: enter where tensors begin; @count_writes: note that tensors are written."""
    move = f"""{row("moves", "%m", "number", "word")}{row("tensors", "%number", "begin")}\
  %told = getelementptr i64, ptr %run, i64 %word
  store i64 %begin, ptr %told
"""
    write = f"""{row("written", "%w", "number")}{row("tensors", "%number", "object*")}\
{sure("noted", "@written(ptr %object)", "w.good", "no")}"""
    return f"""
define private void @enter(ptr %kind) {{
{word("run", kind="ptr")}{table("tensors")}{table("moves")}{over("m", "%moves.rows", move)}\
  ret void
}}
define private i1 @count_writes(ptr %kind) {{
{table("tensors")}{table("written")}{over("w", "%written.rows", write)}\
{ANSWERS}"""


def _faced(at: Offsets) -> str:
    """Return @faced: make tensors of results, which it takes over, in their place."""
    face = f"""{load("array", "%made", "%f", "ptr")}{row("results", "%f", "is.value")}\
  %tensor = call ptr @face(ptr %array, ptr %None)
  %failed = icmp eq ptr %tensor, null
  br i1 %failed, label %drop, label %f.made
f.made:
  %f.to = getelementptr ptr, ptr %made, i64 %f
  store ptr %tensor, ptr %f.to
  %marks = icmp ne i64 %is.value, 0
  br i1 %marks, label %f.mark, label %f.good
f.mark:
  call void %Py_IncRef(ptr %True)
{store("True", "%tensor", at.is_value)}\
  br label %f.good
f.good:
"""
    return f"""
define private i1 @faced(ptr %kind, ptr %made) {{
{given("None", "True", "Py_IncRef")}{table("results")}{over("f", "%results.rows", face)}\
  ret i1 true
drop:
  call void @dropped(ptr %made, i64 0, i64 %f)
  %rest = add i64 %f, 1
  call void @dropped(ptr %made, i64 %rest, i64 %results.rows)
  ret i1 false
}}
"""


def _leaves() -> str:
    """Return @hold: put the leaves that are no results, held, where all are to be; @fill: put the results there."""
    leaf = f"""{row("leaves", "%n", "kind", "value", suffix=".leaf")}\
  switch i64 %kind.leaf, label %n.object [ i64 {RESULT}, label %n.result
                                           i64 {TENSOR}, label %n.tensor
                                           i64 {CELL}, label %n.cell ]
n.cell:
  %computed = call ptr %PyTuple_GetItem(ptr %told, i64 %value.leaf)
  br label %n.hold
n.result:
  br label %n.take
n.tensor:
{row("tensors", "%value.leaf", "object*")}\
  br label %n.hold
n.object:
  %itself = inttoptr i64 %value.leaf to ptr
  br label %n.hold
n.hold:
  %one = phi ptr [%object, %n.tensor], [%itself, %n.object], [%computed, %n.cell]
  call void %Py_IncRef(ptr %one)
  br label %n.take
n.take:
  %leaf = phi ptr [null, %n.result], [%one, %n.hold]
  %n.to = getelementptr ptr, ptr %all, i64 %n
  store ptr %leaf, ptr %n.to
"""
    filled = f"""{row("leaves", "%l", "kind", "value", suffix=".own")}\
  %is.result = icmp eq i64 %kind.own, {RESULT}
  br i1 %is.result, label %l.fill, label %l.good
l.fill:
{load("tensor", "%made", "%value.own", "ptr")}\
  call void %Py_IncRef(ptr %tensor)
  %l.to = getelementptr ptr, ptr %all, i64 %l
  store ptr %tensor, ptr %l.to
  br label %l.good
l.good:
"""
    return f"""
define private void @hold(ptr %kind, ptr %all, ptr %told) {{
{given("Py_IncRef", "PyTuple_GetItem")}{table("tensors")}{table("leaves")}{over("n", "%leaves.rows", leaf)}\
  ret void
}}
define private void @fill(ptr %kind, ptr %all, ptr %made) {{
{given("Py_IncRef")}{table("leaves")}{over("l", "%leaves.rows", filled)}\
  ret void
}}
"""


def _returned() -> str:
    """Return @returned: what a call returns, of results, which it takes over. What it found is held before tensors are
    made: then Python may collect garbage, call this kind again, and forget it, but for who has called it.
    """
    return f"""
define private ptr @returned(ptr %kind, ptr %made, ptr %told) {{
{given("Py_DecRef")}{word("leaves.rows", "results.rows", "build")}\
  %all = alloca ptr, i64 %leaves.rows
  call void @hold(ptr %kind, ptr %all, ptr %told)
{sure("shown", "@faced(ptr %kind, ptr %made)", "fill", "fail")}\
  call void @fill(ptr %kind, ptr %all, ptr %made)
  call void @dropped(ptr %made, i64 0, i64 %results.rows)
  %alone = icmp eq i64 %build, {SINGLE}
  br i1 %alone, label %single, label %several
single:
{load("only", "%all", 0, "ptr")}\
  ret ptr %only
several:
  %t = call ptr @joined(ptr %all, i64 %leaves.rows)
  call void @dropped(ptr %all, i64 0, i64 %leaves.rows)
  %is.tuple = icmp eq i64 %build, {TUPLE}
  %failed = icmp eq ptr %t, null
  %whole = or i1 %is.tuple, %failed
  br i1 %whole, label %tuple, label %other
tuple:
  ret ptr %t
other:
  %function = inttoptr i64 %build to ptr
  %r = call ptr @call(ptr %function, ptr %t, ptr null)
  call void %Py_DecRef(ptr %t)
  ret ptr %r
fail:
  call void @dropped(ptr %all, i64 0, i64 %leaves.rows)
  ret ptr null
}}
"""


def _numbers() -> str:
    """Return @told_of: what is computed of the numbers that a kind is told, a new reference, null where that is to be
    found otherwise; @tell: enter the words for the run.
    """
    number = f"""{row("given", "%n", "compared")}{load("x", "%y", "%n", "ptr")}\
  %is.told = icmp eq i64 %compared, {TOLD}
  br i1 %is.told, label %n.take, label %n.good
n.take:
{load("at", "%place", 0)}\
  %after = add i64 %at, 1
  store i64 %after, ptr %place
  call void %Py_IncRef(ptr %x)
  %failure = call i32 %PyTuple_SetItem(ptr %t, i64 %at, ptr %x)
  br label %n.good
n.good:
"""
    cell = f"""{row("cells", "%c", "word")}{load("bits", "%bytes", "%c")}\
  %to = getelementptr i64, ptr %run, i64 %word
  store i64 %bits, ptr %to
"""
    return f"""
define private ptr @told_of(ptr %kind, ptr %y) {{
{given("PyTuple_New", "PyTuple_SetItem", "Py_IncRef", "Py_DecRef", "PyErr_Clear", "None")}{table("given")}\
{word("numbers", kind="ptr")}{word("numbered")}\
  %place = alloca i64
  store i64 0, ptr %place
{found("t", "%PyTuple_New(i64 %numbered)", "fill", "failed")}\
{over("n", "%given.rows", number)}\
  %told = call ptr @call(ptr %numbers, ptr %t, ptr null)
  call void %Py_DecRef(ptr %t)
  %raised = icmp eq ptr %told, null
  br i1 %raised, label %failed, label %computed
computed:
  %unknown = icmp eq ptr %told, %None
  br i1 %unknown, label %none, label %give
give:
  ret ptr %told
none:
  call void %Py_DecRef(ptr %told)
  ret ptr null
failed:
  call void %PyErr_Clear()
  ret ptr null
}}
define private void @tell(ptr %kind, ptr %told) {{
{given("PyTuple_GetItem", "PyBytes_AsString")}{word("run", kind="ptr")}{table("cells")}\
  %none = icmp eq ptr %told, null
  br i1 %none, label %done, label %some
some:
  %words = call ptr %PyTuple_GetItem(ptr %told, i64 0)
  %bytes = call ptr %PyBytes_AsString(ptr %words)
{over("c", "%cells.rows", cell)}\
  br label %done
done:
  ret void
}}
"""


def _launch() -> str:
    """Return @fits: whether a call is of a kind; @launched: what that returns, null without an exception where its
    function is to be called, as a factorisation failed.
    """
    return f"""
define private i1 @fits(ptr %kind, ptr %y, i64 %count, ptr %names) {{
{sure("named", "@names_fit(ptr %kind, i64 %count, ptr %names)", "state", "no")}\
{sure("same.state", "@state_fits(ptr %kind)", "arguments", "no")}\
{sure("given", "@given_fit(ptr %kind, ptr %y)", "finds", "no")}\
{sure("found", "@places_fit(ptr %kind)", "lies", "no")}\
{sure("apart", "@overlaps_fit(ptr %kind)", "writes", "no")}\
{sure("free", "@can_be_written(ptr %kind)", "yes", "no")}\
{ANSWERS}\
define private ptr @launched(ptr %kind, ptr %told) {{
{word("uses", "results.rows")}{word("run", "driver", "noted", kind="ptr")}\
  %more = add i64 %uses, 1
  %to = getelementptr i64, ptr %kind, i64 {HEAD.index("uses")}
  store i64 %more, ptr %to
  %made = alloca ptr, i64 %results.rows
{sure("room", "@allocated(ptr %kind, ptr %made)", "enter", "fail")}\
{sure("counted", "@count_writes(ptr %kind)", "go", "drop")}\
  call void @enter(ptr %kind)
  call void @tell(ptr %kind, ptr %told)
  call void %driver(ptr %run)
  %sure = icmp eq ptr %noted, null
  br i1 %sure, label %give, label %look
look:
{load("failure", "%noted", 0)}\
  %good = icmp eq i64 %failure, 0
  br i1 %good, label %give, label %drop
give:
  %r = call ptr @returned(ptr %kind, ptr %made, ptr %told)
  ret ptr %r
drop:
  call void @dropped(ptr %made, i64 0, i64 %results.rows)
  br label %fail
fail:
  ret ptr null
}}
"""


def _method(at: Offsets) -> str:
    """Return the method that Python calls, with any arguments."""
    return f"""
define private ptr @dispatch(ptr %x, ptr %y, i64 %count, ptr %names, ptr %row) {{
{given("ndarray", "observers", "PyErr_Occurred", "Py_IncRef", "Py_DecRef")}\
{load("kinds", "%x", at.dispatched, "ptr")}\
  %unset = icmp eq ptr %kinds, null
  br i1 %unset, label %long, label %set
set:
{sure("some", "@is(ptr %kinds, ptr %ndarray)", "known", "long")}\
{sure("open", "@is_open()", "opened", "long")}{sure("unseen", "@is_empty(ptr %observers)", "begin", "long")}\
{load("first", "%kinds", at.memory, "ptr")}\
  br label %try
try:
  %kind = phi ptr [%first, %begin], [%following, %other]
  %suits = call i1 @fits(ptr %kind, ptr %y, i64 %count, ptr %names)
  br i1 %suits, label %launch, label %other
other:
{load("following", "%kind", HEAD.index("next"), "ptr")}\
  %last = icmp eq ptr %following, null
  br i1 %last, label %long, label %try
launch:
{load("itself", "%kind", HEAD.index("itself"), "ptr")}\
  call void %Py_IncRef(ptr %itself)
{word("numbers", kind="ptr")}\
  %tells = icmp ne ptr %numbers, null
  br i1 %tells, label %numbered, label %go
numbered:
{found("told", "@told_of(ptr %kind, ptr %y)", "again", "let")}\
  %still = call i1 @fits(ptr %kind, ptr %y, i64 %count, ptr %names)
  br i1 %still, label %go, label %drop
drop:
  call void %Py_DecRef(ptr %told)
  br label %let
let:
  call void %Py_DecRef(ptr %itself)
  br label %long
go:
  %cells = phi ptr [null, %launch], [%told, %again]
  %r = call ptr @launched(ptr %kind, ptr %cells)
  %untold = icmp eq ptr %cells, null
  br i1 %untold, label %done, label %forget
forget:
  call void %Py_DecRef(ptr %cells)
  br label %done
done:
  call void %Py_DecRef(ptr %itself)
  %empty = icmp eq ptr %r, null
  br i1 %empty, label %ask, label %give
give:
  ret ptr %r
ask:
  %raised = call ptr %PyErr_Occurred()
  %unraised = icmp eq ptr %raised, null
  br i1 %unraised, label %long, label %fail
long:
  %l = call ptr @past_given(ptr %row, ptr %x, ptr %y, i64 %count, ptr %names)
  ret ptr %l
fail:
  ret ptr null
}}
"""

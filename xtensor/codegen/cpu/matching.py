"""How calls of a captured function are matched with a kind: what machine code asks to tell whether a call is of it.

Each function here answers one question; @fits asks all of them. What tensors are found is noted in the kind's words.
"""

from __future__ import annotations

from ...storage.pool import ALIGNMENT
from .faces import Offsets, found, given, sure
from .kinds import ANSWERS, APART, EQUAL, HEAD, OF_CELL, OF_LIST, ROWS, TOLD, WRITEABLE, over, row, same, table, word
from .mailbox import load


def matching(at: Offsets) -> str:
    """Return the functions that ask."""
    parts = (_plain(), _state(), _tensor(at), _constants(), _finding(at), _places(), _memory(), _writing(), _fits())
    return "".join(parts)


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


def _fits() -> str:
    """Return @fits: whether a call is of a kind."""
    return f"""
define private i1 @fits(ptr %kind, ptr %y, i64 %count, ptr %names) {{
{sure("named", "@names_fit(ptr %kind, i64 %count, ptr %names)", "state", "no")}\
{sure("same.state", "@state_fits(ptr %kind)", "arguments", "no")}\
{sure("given", "@given_fit(ptr %kind, ptr %y)", "finds", "no")}\
{sure("found", "@places_fit(ptr %kind)", "lies", "no")}\
{sure("apart", "@overlaps_fit(ptr %kind)", "writes", "no")}\
{sure("free", "@can_be_written(ptr %kind)", "yes", "no")}\
{ANSWERS}"""

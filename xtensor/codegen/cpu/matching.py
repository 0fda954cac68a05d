"""How calls of a captured function are matched with a kind: the questions by which machine code tells if a call fits.

Each function here answers one question; @fits asks all of them. Tensors that are found are noted in the kind's words.
"""

from __future__ import annotations

from ...storage.pool import ALIGNMENT
from .faces import Offsets, found, given, sure
from .kinds import (
    ABSENT,
    AGAIN,
    ANSWERS,
    ANY,
    APART,
    EQUAL,
    FUNCTION,
    HEAD,
    IN_CELL,
    ITS_OWN,
    ITS_PLACE,
    OF_DICT,
    OF_LIST,
    OF_TUPLE,
    PARTS,
    ROWS,
    TOLD,
    WITH_PARTS,
    WITH_SLOTS,
    WRITEABLE,
    over,
    row,
    same,
    table,
    word,
)
from .mailbox import load


def matching(at: Offsets) -> str:
    """Return the functions that answer the questions."""
    values = (_plain(), _tensor(at), _constants(), _parts(), _given(), _finding(), _forms(at), _found(), _places())
    return "".join((*values, _state(), _memory(), _writing(), _fits()))


def _plain() -> str:
    """Return @equals: whether two objects are equal, false after an exception; @is_empty: whether a list is empty."""
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
    """Return @state_fits: whether the options are those of a kind, and no names were added to its containers;
    @names_fit: whether arguments have the same names as a kind's.
    """
    spread = f"""{row("spreads", "%s", "whole*", "length")}\
  %size = call i64 %PyObject_Size(ptr %whole)
{same("as.long", "%size", "%length", "s.good")}"""
    return f"""
define private i1 @state_fits(ptr %kind) {{
{given("PyObject_Size")}{word("options", kind="ptr")}{table("spreads")}\
{found("now", "@options_now()", "found", "no")}\
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
    """Return @tensor_fits: whether an object is a thin face of an array like the kind's tensor of that number; then its
    addresses are noted.
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
    """Return @constant_fits: whether an object is a constant, or, if that is enough, of its type and equal to it;
    @number_fits: whether an object is a number of a type; then it is noted.
    """
    return f"""
define private i1 @constant_fits(ptr %x, ptr %constant, i64 %compared) {{
  %itself = icmp eq ptr %x, %constant
  br i1 %itself, label %yes, label %other
other:
{load("its.type", "%x", 1, "ptr")}{load("own.type", "%constant", 1, "ptr")}\
  %may.equal = icmp eq i64 %compared, {EQUAL}
  br i1 %may.equal, label %type, label %no
type:
{same("typed", "%its.type", "%own.type", "compare", "ptr")}\
  %alike = call i1 @equals(ptr %x, ptr %constant)
  br i1 %alike, label %yes, label %no
yes:
{ANSWERS}\
define private i1 @number_fits(ptr %kind, ptr %x, ptr %type, i64 %noted) {{
{table("numbers")}{load("its.type", "%x", 1, "ptr")}{same("typed", "%its.type", "%type", "note", "ptr")}\
  %to = getelementptr ptr, ptr %numbers.table, i64 %noted
  store ptr %x, ptr %to
{ANSWERS}"""


def _parts() -> str:
    """Return @part_fits: whether an object is like the part at a cursor, which is moved behind all of that part."""
    cases = ((OF_TUPLE, "tuple"), (OF_LIST, "list"), (OF_DICT, "dict"), (WITH_PARTS, "object"), (WITH_SLOTS, "slots"))
    asked = "".join(
        [
            f"""{name}:
  %{name}.fits = call i1 @{name}_fits(ptr %kind, ptr %cursor, ptr %x, i64 %number)
  ret i1 %{name}.fits
"""
            for _, name in cases
        ]
    )
    return f"""
define private i1 @part_fits(ptr %kind, ptr %cursor, ptr %x) {{
{table("parts")}{table("wholes")}{table("agains")}\
  %n = load i64, ptr %cursor
  %n.next = add i64 %n, 1
  store i64 %n.next, ptr %cursor
{row("parts", "%n", "constant*", "compared", "number", "noted", "itself*")}\
  %is.tensor = icmp eq ptr %constant, null
  br i1 %is.tensor, label %tensor, label %other
tensor:
  %lies = call i1 @tensor_fits(ptr %kind, i64 %number, ptr %x)
  ret i1 %lies
other:
  %is.whole = icmp ugt i64 %compared, {TOLD}
  br i1 %is.whole, label %whole, label %single
single:
  %is.told = icmp eq i64 %compared, {TOLD}
  br i1 %is.told, label %told, label %compare
told:
  %is.number = call i1 @number_fits(ptr %kind, ptr %x, ptr %constant, i64 %noted)
  ret i1 %is.number
compare:
  %as.told = call i1 @constant_fits(ptr %x, ptr %constant, i64 %compared)
  %is.any = icmp eq i64 %compared, {ANY}
  %is.right = or i1 %is.any, %as.told
  ret i1 %is.right
whole:
  %is.again = icmp eq i64 %compared, {AGAIN}
  br i1 %is.again, label %again, label %new
again:
  %again.words = mul i64 %noted, {len(ROWS["agains"])}
  %again.to = getelementptr ptr, ptr %agains.table, i64 %again.words
  store ptr %x, ptr %again.to
  ret i1 true
new:
{load("its.type", "%x", 1, "ptr")}{same("typed", "%its.type", "%constant", "open", "ptr")}\
  %is.free = icmp eq ptr %itself, null
  %is.itself = icmp eq ptr %itself, %x
  %may.be = or i1 %is.free, %is.itself
  br i1 %may.be, label %note, label %no
note:
  %to = getelementptr ptr, ptr %wholes.table, i64 %noted
  store ptr %x, ptr %to
  switch i64 %compared, label %yes [ {" ".join([f"i64 {case}, label %{name}" for case, name in cases])} ]
{asked}yes:
{ANSWERS}\
{_sequences()}{_named()}"""


def _sequences() -> str:
    """Return @tuple_fits and @list_fits: whether elements are like the parts that follow."""
    part = """  %one = call ptr %GetItem(ptr %x, i64 %e)
  %is.like = call i1 @part_fits(ptr %kind, ptr %cursor, ptr %one)
  br i1 %is.like, label %e.good, label %no
e.good:
"""
    both = ""
    for name, kind in (("tuple", "PyTuple"), ("list", "PyList")):
        both += f"""
define private i1 @{name}_fits(ptr %kind, ptr %cursor, ptr %x, i64 %number) {{
{given(f"{kind}_Size", f"{kind}_GetItem")}\
  %size = call i64 %{kind}_Size(ptr %x)
{same("as.long", "%size", "%number", "parts")}{over("e", "%number", part.replace("GetItem", f"{kind}_GetItem"))}\
{ANSWERS}"""
    return both


def _named() -> str:
    """Return @dict_fits: whether keys and values are like the parts that follow; @object_fits: whether the attributes
    in an object's dict are, @slots_fits: those in its slots.
    """
    item = """  %more = call i32 %PyDict_Next(ptr %x, ptr %at, ptr %key.at, ptr %value.at)
  %is.more = icmp ne i32 %more, 0
  br i1 %is.more, label %d.key, label %no
d.key:
  %key = load ptr, ptr %key.at
  %key.fits = call i1 @part_fits(ptr %kind, ptr %cursor, ptr %key)
  br i1 %key.fits, label %d.value, label %no
d.value:
  %value = load ptr, ptr %value.at
  %value.fits = call i1 @part_fits(ptr %kind, ptr %cursor, ptr %value)
  br i1 %value.fits, label %d.good, label %no
d.good:
"""
    slot = f"""  %name = load i64, ptr %cursor
  %value = add i64 %name, 1
  store i64 %value, ptr %cursor
{row("parts", "%name", "constant*")}\
{found("filled", "%PyObject_GetAttr(ptr %x, ptr %constant)", "s.there", "none")}\
  %is.like = call i1 @part_fits(ptr %kind, ptr %cursor, ptr %filled)
  call void %Py_DecRef(ptr %filled)
  br i1 %is.like, label %s.good, label %no
s.good:
"""
    fails = "none:\n  call void %PyErr_Clear()\n  br label %no\n"
    return f"""
define private i1 @dict_fits(ptr %kind, ptr %cursor, ptr %x, i64 %number) {{
{given("PyDict_Size", "PyDict_Next")}\
  %at = alloca i64
  %key.at = alloca ptr
  %value.at = alloca ptr
  store i64 0, ptr %at
  %size = call i64 %PyDict_Size(ptr %x)
{same("as.long", "%size", "%number", "parts")}{over("d", "%number", item)}\
{ANSWERS}\
define private i1 @object_fits(ptr %kind, ptr %cursor, ptr %x, i64 %number) {{
{given("PyObject_GenericGetDict", "Py_DecRef", "PyErr_Clear")}\
{found("own", "%PyObject_GenericGetDict(ptr %x, ptr null)", "some", "none")}\
  call void %Py_DecRef(ptr %own)
  %are.like = call i1 @dict_fits(ptr %kind, ptr %cursor, ptr %own, i64 %number)
  ret i1 %are.like
{fails}no:
  ret i1 false
}}
define private i1 @slots_fits(ptr %kind, ptr %cursor, ptr %x, i64 %number) {{
{given("PyObject_GetAttr", "Py_DecRef", "PyErr_Clear")}{table("parts")}\
{over("s", "%number", slot)}\
  ret i1 true
{fails}no:
  ret i1 false
}}
"""


def _given() -> str:
    """Return @given_fit: whether arguments are like those of a kind; @wholes_apart: whether the wholes that were found
    are the same object exactly where those of the kind were.
    """
    argument = """  %y.at = getelementptr ptr, ptr %y, i64 %n
  %x = load ptr, ptr %y.at
  %is.like = call i1 @part_fits(ptr %kind, ptr %cursor, ptr %x)
  br i1 %is.like, label %n.good, label %no
n.good:
"""
    other = f"""{row("wholes", "%j", "found*", suffix=".j")}\
  %one = icmp eq ptr %found.i, %found.j
  br i1 %one, label %no, label %j.good
j.good:
"""
    whole = row("wholes", "%i", "found*", suffix=".i") + over("j", "%i", other)
    again = f"""{row("agains", "%a", "found*", "noted")}{load("first", "%wholes.table", "%noted", "ptr")}\
{same("one.again", "%found", "%first", "a.good", "ptr")}"""
    return f"""
define private i1 @given_fit(ptr %kind, ptr %y) {{
{word("given", "first")}\
  %cursor = alloca i64
  store i64 %first, ptr %cursor
{over("n", "%given", argument)}\
{ANSWERS}\
define private i1 @wholes_apart(ptr %kind) {{
{table("wholes")}{table("agains")}{over("i", "%wholes.rows", whole)}{over("a", "%agains.rows", again)}\
{ANSWERS}"""


def _finding() -> str:
    """Return @found_at: the object that is found at a place in some way, null if there is none."""
    return f"""
define private ptr @found_at(ptr %where, ptr %name, i64 %way) {{
{given("PyCell_Get", "PyDict_GetItemWithError", "PyObject_GetAttr", "Py_DecRef", "PyErr_Clear")}\
  switch i64 %way, label %find [ i64 {IN_CELL}, label %look
                                 i64 {ITS_PLACE}, label %itself
                                 i64 {ITS_OWN}, label %own ]
itself:
  ret ptr %where
own:
  %attribute = call ptr %PyObject_GetAttr(ptr %where, ptr %name)
  %unknown = icmp eq ptr %attribute, null
  br i1 %unknown, label %clear, label %kept
kept:
  call void %Py_DecRef(ptr %attribute)
  ret ptr %attribute
look:
  %held = call ptr %PyCell_Get(ptr %where)
  %empty = icmp eq ptr %held, null
  br i1 %empty, label %clear, label %let
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
  ret ptr null
}}
"""


def _forms(at: Offsets) -> str:
    """Return @form_fits: whether a function still has the code, defaults and number of attributes of a row."""
    return f"""
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
{ANSWERS}"""


def _found() -> str:
    """Return @found_fits: whether an object that is found at a place is what a row's fields say."""
    return f"""
define private i1 @found_fits(ptr %kind, ptr %x, ptr %constant, i64 %compared, i64 %number, ptr %one, ptr %other,
    ptr %third) {{
  %cursor = alloca i64
  %is.nothing = icmp eq ptr %x, null
  br i1 %is.nothing, label %nothing, label %something
nothing:
  %was.nothing = icmp eq i64 %compared, {ABSENT}
  ret i1 %was.nothing
something:
  %is.tensor = icmp eq ptr %constant, null
  br i1 %is.tensor, label %tensor, label %more
tensor:
  %lies = call i1 @tensor_fits(ptr %kind, i64 %number, ptr %x)
  ret i1 %lies
more:
  switch i64 %compared, label %compare [ i64 {TOLD}, label %told
                                         i64 {PARTS}, label %parts
                                         i64 {FUNCTION}, label %function ]
compare:
  %as.told = call i1 @constant_fits(ptr %x, ptr %constant, i64 %compared)
  ret i1 %as.told
told:
  %is.number = call i1 @number_fits(ptr %kind, ptr %x, ptr %constant, i64 %number)
  ret i1 %is.number
parts:
  store i64 %number, ptr %cursor
  %like = call i1 @part_fits(ptr %kind, ptr %cursor, ptr %x)
  ret i1 %like
function:
{same("own.function", "%x", "%constant", "form", "ptr")}\
  %formed = call i1 @form_fits(ptr %x, ptr %one, ptr %other, ptr %third, i64 %number)
  ret i1 %formed
no:
  ret i1 false
}}
"""


def _places() -> str:
    """Return @places_fit: whether a kind's names still stand for the same objects."""
    fields = [name if name in ("way", "compared", "number") else f"{name}*" for name in ROWS["places"]]
    values = "ptr %constant, i64 %compared, i64 %number, ptr %one, ptr %other, ptr %third"
    place = f"""{row("places", "%p", *fields)}\
  %value = call ptr @found_at(ptr %where, ptr %name, i64 %way)
  %is.same = call i1 @found_fits(ptr %kind, ptr %value, {values})
  br i1 %is.same, label %p.good, label %no
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
    """Return @can_be_written: whether there are no pending readers of the memory that a kind writes."""
    write = f"""{row("written", "%w", "number")}{row("tensors", "%number", "object*")}\
{sure("free", "@is_free(ptr %object)", "w.good", "no")}"""
    return f"""
define private i1 @can_be_written(ptr %kind) {{
{table("tensors")}{table("written")}{over("w", "%written.rows", write)}\
{ANSWERS}"""


def _fits() -> str:
    """Return @fits: whether a call is of a kind, and that is not busy (the kind's words hold what one call has found).
    An object's dict may be made when it is first asked for; Python might collect garbage then, and run finalizers, so
    that is disabled while such kinds are compared.
    """
    return f"""
define private i1 @fits(ptr %kind, ptr %y, i64 %count, ptr %names) {{
{given("PyGC_Disable", "PyGC_Enable")}{word("collects", "busy")}\
  %is.busy = icmp ne i64 %busy, 0
  br i1 %is.busy, label %no, label %free
free:
  %may.collect = icmp ne i64 %collects, 0
  br i1 %may.collect, label %wait, label %ask
ask:
  %now = call i1 @all_fit(ptr %kind, ptr %y, i64 %count, ptr %names)
  ret i1 %now
wait:
  %before = call i32 %PyGC_Disable()
  %meanwhile = call i1 @all_fit(ptr %kind, ptr %y, i64 %count, ptr %names)
  %was = icmp ne i32 %before, 0
  br i1 %was, label %enable, label %done
enable:
  %disabled = call i32 %PyGC_Enable()
  br label %done
done:
  ret i1 %meanwhile
no:
  ret i1 false
}}
define private i1 @all_fit(ptr %kind, ptr %y, i64 %count, ptr %names) {{
{sure("named", "@names_fit(ptr %kind, i64 %count, ptr %names)", "state", "no")}\
{sure("same.state", "@state_fits(ptr %kind)", "arguments", "no")}\
{sure("given", "@given_fit(ptr %kind, ptr %y)", "finds", "no")}\
{sure("found", "@places_fit(ptr %kind)", "wholes", "no")}\
{sure("single", "@wholes_apart(ptr %kind)", "lies", "no")}\
{sure("apart", "@overlaps_fit(ptr %kind)", "writes", "no")}\
{sure("free", "@can_be_written(ptr %kind)", "yes", "no")}\
{ANSWERS}"""

"""The dispatch of captured functions in machine code: whether a call is of a known kind, and what is done then.

A kind is described by words (kinds.py). No Python code runs between the first comparison (matching.py) and the end of
the kernels, so that one set of words serves all threads: after Python has computed something of numbers, everything is
compared again. Where Python runs among the kernels (callback.py), the kind is busy meanwhile, and references to the
objects found are held. A call of no known kind goes to the door, which is the call in Python.

Sources: jax's dispatch of jitted functions in C++ (jaxlib, pjit.cc) and torch's guards (TorchDynamo) do the same.
"""

from __future__ import annotations

from .faces import Offsets, found, given, store, sure
from .kinds import ANSWERS, CELL, HEAD, RESULT, SINGLE, TENSOR, TUPLE, over, row, table, word
from .mailbox import load
from .matching import matching


def dispatch(at: Offsets) -> str:
    """Return the method: launch the kind that a call is of, else go to the door."""
    done = (_made(at), _entered(), _faced(at), _leaves(), _returned(), _numbers(), _launch(), _held(at), _answered())
    return "".join((matching(at), *done, _method(at)))


def _made(at: Offsets) -> str:
    """Return @dropped: release the objects from one number up to another, as far as they exist; @allocated: allocate
    the arrays of a kind's results, and enter their addresses.
    """
    result = f"""{row("results", "%r", "dtype*", "axes", "lie", "order", "word")}\
  %flag = trunc i64 %order to i32
  call void %Py_IncRef(ptr %dtype)
  %lengths = getelementptr i64, ptr %kind, i64 %lie
  %axes.few = trunc i64 %axes to i32
  %array = call ptr %PyArray_NewFromDescr(ptr %ndarray, ptr %dtype, i32 %axes.few, ptr %lengths, ptr null, ptr null,
    i32 %flag, ptr null)
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


def _entered() -> str:
    """Return @enter: enter the addresses of tensors; @count_writes: count the writes into tensors."""
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
    """Return @faced: replace arrays of results, whose references it takes over, by tensors."""
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
    """Return @hold: put the leaves that are no results, with new references, into their places; @fill: the results."""
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
    """Return @returned: build what a call returns from results, whose references it takes over. Everything else in it
    is held before tensors are made: meanwhile Python may collect garbage, call this kind again, and forget it, though
    the caller still holds it.
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
    """Return @told_of: what Python computes from the numbers of a call, a new reference; null if the call must go
    another way, or with an exception set that nobody here deals with, such as an interrupt; @tell: enter its words in
    the run.
    """
    hold = f"""{row("numbers", "%h", "found*")}\
  call void %Py_IncRef(ptr %found)
  %h.to = getelementptr ptr, ptr %held, i64 %h
  store ptr %found, ptr %h.to
"""
    number = f"""{load("x", "%held", "%n", "ptr")}\
  %failure = call i32 %PyTuple_SetItem(ptr %t, i64 %n, ptr %x)
"""
    cell = f"""{row("cells", "%c", "word")}{load("bits", "%bytes", "%c")}\
  %to = getelementptr i64, ptr %run, i64 %word
  store i64 %bits, ptr %to
"""
    return f"""
define private ptr @told_of(ptr %kind) {{
{given("PyTuple_New", "PyTuple_SetItem", "Py_IncRef", "Py_DecRef", "None")}{table("numbers")}\
{word("compute", kind="ptr")}\
  %held = alloca ptr, i64 %numbers.rows
{over("h", "%numbers.rows", hold)}\
{found("t", "%PyTuple_New(i64 %numbers.rows)", "fill", "full")}\
{over("n", "%numbers.rows", number)}\
  %told = call ptr @call(ptr %compute, ptr %t, ptr null)
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
full:
  call void @dropped(ptr %held, i64 0, i64 %numbers.rows)
  br label %failed
failed:
  %expected = call i1 @refused()
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
    """Return @launched: what a call of a kind returns, null without an exception if its function is to be called
    instead, as a factorisation failed.
    """
    return f"""
define private ptr @launched(ptr %kind, ptr %told) {{
{word("uses", "results.rows")}{word("run", "driver", "noted", kind="ptr")}\
  %more = add i64 %uses, 1
  %to = getelementptr i64, ptr %kind, i64 {HEAD.index("uses")}
  store i64 %more, ptr %to
  %made = alloca ptr, i64 %results.rows
{sure("room", "@allocated(ptr %kind, ptr %made)", "go", "fail")}\
  call void @enter(ptr %kind)
  call void @tell(ptr %kind, ptr %told)
  call void %driver(ptr %run)
{sure("counted", "@count_writes(ptr %kind)", "sound", "drop")}\
  %sure = icmp eq ptr %noted, null
  br i1 %sure, label %give, label %look
look:
{load("failure", "%noted", 0)}\
  %good = icmp eq i64 %failure, 0
  br i1 %good, label %give, label %failed
failed:
  store i64 0, ptr %noted
  br label %drop
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


def _held(at: Offsets) -> str:
    """Return @launched_alone: the same for any kind: one inside which Python runs is busy meanwhile, and holds
    references to the tensors that it found, their arrays, and whatever else it looked into, as others may release
    these.
    """
    tensor = f"""{row("tensors", "%n", "object*")}{load("array", "%object", at.content, "ptr")}\
  call void %Py_IncRef(ptr %object)
  call void %Py_IncRef(ptr %array)
  %two = mul i64 %n, 2
  %n.to = getelementptr ptr, ptr %held, i64 %two
  store ptr %object, ptr %n.to
  %n.next.to = getelementptr ptr, ptr %n.to, i64 1
  store ptr %array, ptr %n.next.to
"""
    whole = f"""{row("wholes", "%w", "found*")}\
  call void %Py_IncRef(ptr %found)
  %behind = add i64 %both, %w
  %w.to = getelementptr ptr, ptr %held, i64 %behind
  store ptr %found, ptr %w.to
"""
    busy = f"getelementptr i64, ptr %kind, i64 {HEAD.index('busy')}"
    return f"""
define private ptr @launched_alone(ptr %kind, ptr %told) {{
{given("Py_IncRef")}{word("calls")}{table("tensors")}{table("wholes")}\
  %runs.inside = icmp ne i64 %calls, 0
  br i1 %runs.inside, label %hold, label %go
go:
  %r = call ptr @launched(ptr %kind, ptr %told)
  ret ptr %r
hold:
  %both = mul i64 %tensors.rows, 2
  %all = add i64 %both, %wholes.rows
  %held = alloca ptr, i64 %all
{over("n", "%tensors.rows", tensor)}{over("w", "%wholes.rows", whole)}\
  %is.busy = {busy}
  store i64 1, ptr %is.busy
  %s = call ptr @launched(ptr %kind, ptr %told)
  store i64 0, ptr %is.busy
  call void @dropped(ptr %held, i64 0, i64 %all)
  ret ptr %s
}}
"""


def _answered() -> str:
    """Return @answered: what a call of a kind returns, given what is computed from its numbers, if it has any; or null,
    as @launched.
    """
    return f"""
define private ptr @answered(ptr %kind, ptr %y, i64 %count, ptr %names) {{
entry:
{given("Py_DecRef")}{word("compute", kind="ptr")}\
  %tells = icmp ne ptr %compute, null
  br i1 %tells, label %numbered, label %go
numbered:
{found("told", "@told_of(ptr %kind)", "again", "no")}\
  %still = call i1 @fits(ptr %kind, ptr %y, i64 %count, ptr %names)
  br i1 %still, label %go, label %drop
drop:
  call void %Py_DecRef(ptr %told)
  br label %no
go:
  %cells = phi ptr [null, %entry], [%told, %again]
  %r = call ptr @launched_alone(ptr %kind, ptr %cells)
  %untold = icmp eq ptr %cells, null
  br i1 %untold, label %done, label %forget
forget:
  call void %Py_DecRef(ptr %cells)
  br label %done
done:
  ret ptr %r
no:
  ret ptr null
}}
"""


def _method(at: Offsets) -> str:
    """Return the method that Python calls, with any arguments.

    What is computed from its numbers, or a boolean that its run computes, may show that a kind which fits does not
    apply: then the next one that fits is tried. The search starts anew each time, as Python code that runs meanwhile
    may change the kinds.
    """
    return f"""
define private ptr @dispatch(ptr %x, ptr %y, i64 %count, ptr %names, ptr %row) {{
entry:
{given("ndarray", "observers", "PyErr_Occurred", "Py_IncRef", "Py_DecRef")}\
  br label %look
look:
  %passed = phi i64 [0, %entry], [%passed.n, %anew]
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
  %to.pass = phi i64 [%passed, %begin], [%left, %other]
  %suits = call i1 @fits(ptr %kind, ptr %y, i64 %count, ptr %names)
  br i1 %suits, label %fitting, label %other
fitting:
  %fewer = sub i64 %to.pass, 1
  %is.next = icmp eq i64 %to.pass, 0
  br i1 %is.next, label %launch, label %other
other:
  %left = phi i64 [%to.pass, %try], [%fewer, %fitting]
{load("following", "%kind", HEAD.index("next"), "ptr")}\
  %last = icmp eq ptr %following, null
  br i1 %last, label %long, label %try
launch:
{word("branches")}{load("itself", "%kind", HEAD.index("itself"), "ptr")}\
  call void %Py_IncRef(ptr %itself)
  %r = call ptr @answered(ptr %kind, ptr %y, i64 %count, ptr %names)
  call void %Py_DecRef(ptr %itself)
  %empty = icmp eq ptr %r, null
  br i1 %empty, label %ask, label %give
give:
  ret ptr %r
ask:
  %raised = call ptr %PyErr_Occurred()
  %unraised = icmp eq ptr %raised, null
  br i1 %unraised, label %declined, label %fail
declined:
  %may.fit = icmp ne i64 %branches, 0
  br i1 %may.fit, label %anew, label %long
anew:
  %passed.n = add i64 %passed, 1
  br label %look
long:
  %l = call ptr @past_given(ptr %row, ptr %x, ptr %y, i64 %count, ptr %names)
  ret ptr %l
fail:
  ret ptr null
}}
"""

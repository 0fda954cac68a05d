"""The driver: machine code that runs a list of kernels, and shares the calls of each among threads.

Python enters it once for a whole list. It is given a run: words of 8 bytes, of which the first locate its other parts
(see HEAD). It copies a template of the arguments of all kernels behind those words, adds words that differ from run to
run - addresses and scalars - to places in the copy, and launches the kernels one by one, until one notes that it cannot
go on.

A kernel's part of the template is a table: the address of the word with its function's address, which may be replaced
by that of better code; a function that lets other threads run (or null); the number of shares; and for each of them its
mailbox, the offset of its first argument from the table in bytes, the number of arguments, and their size. The first
share is the caller's own and has no mailbox.
"""

from __future__ import annotations

from functools import cache

from .compile import Code, handmade
from .holding import holding_source
from .mailbox import CALLS, finish_source, load, pause_source, post_source

# The first words of a run: the template and its number of words; places to fill in and their number, each with the word
# to change, the word of the run to add, and a number to add; offsets of tables in the template's copy, in bytes, and
# their number; the offset of the copy from the run's first word, in bytes; the words of the BLAS's limit to one thread,
# which holds for the run, or 0; the address of the word that says that nothing more is to be launched.
HEAD = ("template", "words", "places", "fillings", "tables", "launches", "behind", "limit", "stop")

# The words of a table before those of its shares, and of a share.
TABLE_WORDS, SHARE_WORDS = 3, 4


@cache
def driver() -> Code:
    """Return the driver, compiled now if it was not before; raises RuntimeError where it cannot be."""
    return handmade(_source())


def _source() -> str:
    return f"""{pause_source()}{CALLS}
{post_source()}
{finish_source()}
{holding_source()}
{_launch_source()}
{_run_source()}
"""


def _launch_source() -> str:
    """Return the function that launches the kernel of a table."""
    return f"""define private void @launch(ptr %table) {{
entry:
{load("code", "%table", 0, "ptr")}{load("function", "%code", 0, "ptr")}\
{load("yield", "%table", 1, "ptr")}{load("shares", "%table", 2)}\
{load("offset", "%table", 4)}{load("count", "%table", 5)}{load("size", "%table", 6)}\
  %first = getelementptr i8, ptr %table, i64 %offset
  %alone = icmp eq i64 %shares, 1
  br i1 %alone, label %only, label %post
only:
  call void @calls(ptr %function, ptr %first, i64 %count, i64 %size)
  ret void
post:
  %s = phi i64 [1, %entry], [%s.next, %post]
  call void @post(ptr %table, ptr %function, i64 %s)
  %s.next = add i64 %s, 1
  %more = icmp ult i64 %s.next, %shares
  br i1 %more, label %post, label %own
own:
  call void @calls(ptr %function, ptr %first, i64 %count, i64 %size)
  br label %finish
finish:
  %f = phi i64 [1, %own], [%f.next, %finish]
  call void @finish(ptr %table, ptr %function, ptr %yield, i64 %f)
  %f.next = add i64 %f, 1
  %unfinished = icmp ult i64 %f.next, %shares
  br i1 %unfinished, label %finish, label %done
done:
  ret void
}}
"""


def _run_source() -> str:
    """Return the function that Python calls: it copies the template, fills it in, and launches the kernels."""
    kinds: dict[str, str] = dict.fromkeys(("template", "places", "tables", "limit", "stop"), "ptr")
    loads = "".join([load(name, "%run", place, kinds.get(name, "i64")) for place, name in enumerate(HEAD)])
    return f"""define void @kernel(ptr %run) {{
entry:
{loads}\
  %work = getelementptr i8, ptr %run, i64 %behind
  br label %copy
copy:
  %c = phi i64 [0, %entry], [%c.next, %copy]
{load("word", "%template", "%c")}\
  %word.to = getelementptr i64, ptr %work, i64 %c
  store i64 %word, ptr %word.to, align 8
  %c.next = add i64 %c, 1
  %uncopied = icmp ult i64 %c.next, %words
  br i1 %uncopied, label %copy, label %copied
copied:
  %is.free = icmp eq ptr %limit, null
  br i1 %is.free, label %filling, label %limited
limited:
  call void @hold(ptr %limit)
  br label %filling
filling:
  %any = icmp ne i64 %fillings, 0
  br i1 %any, label %fill, label %launch
fill:
  %p = phi i64 [0, %filling], [%p.next, %fill]
  %p.at = mul i64 %p, 3
  %place = getelementptr i64, ptr %places, i64 %p.at
{load("to", "%place", 0)}{load("from", "%place", 1)}{load("more", "%place", 2)}\
{load("given", "%run", "%from")}\
  %sum = add i64 %given, %more
  %filled = getelementptr i64, ptr %work, i64 %to
  store i64 %sum, ptr %filled, align 8
  %p.next = add i64 %p, 1
  %unfilled = icmp ult i64 %p.next, %fillings
  br i1 %unfilled, label %fill, label %launch
launch:
  %l = phi i64 [0, %filling], [0, %fill], [%l.next, %next]
{load("begin", "%tables", "%l")}\
  %table = getelementptr i8, ptr %work, i64 %begin
  call void @launch(ptr %table)
{load("failure", "%stop", 0)}\
  %stopped = icmp ne i64 %failure, 0
  br i1 %stopped, label %done, label %next
next:
  %l.next = add i64 %l, 1
  %unlaunched = icmp ult i64 %l.next, %launches
  br i1 %unlaunched, label %launch, label %done
done:
  br i1 %is.free, label %end, label %unlimited
unlimited:
  call void @release(ptr %limit)
  br label %end
end:
  ret void
}}
"""

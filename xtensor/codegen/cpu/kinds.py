"""The words by which machine code is told of a kind of calls of a captured function, and the lines that read them.

A kind is told in words of 8 bytes (HEAD), of which some say where others begin: tables of what is compared and done, in
rows.
"""

from __future__ import annotations

from .mailbox import load

# The words of a kind. itself: the object that keeps what they point to; next: another kind's words, or 0; uses: how
# often it was launched; compute: of a kind that is told numbers, what computes of a tuple of them a tuple, of words
# for the run, as bytes, and of objects for the result, or None; options: the object that the options in force are;
# names: a tuple of the arguments' names, or 0; positional: how many arguments have none; given: how many there are;
# first: the part that is the first one; calls: whether Python runs inside its run; busy: whether it does just now, when
# no other call is of this kind; overlaps: the first word of a table of how memory overlaps, for each tensor with each
# one before it. run: a run of the driver's; driver: the machine code; noted: where a failure is noted, or 0; build:
# SINGLE, TUPLE, or a function that makes the result of a tuple. Of each table, its first word and its rows.
TABLES = (
    *("spreads", "parts", "places", "numbers", "wholes", "agains"),
    *("tensors", "written", "moves", "cells", "results", "leaves"),
)
HEAD = (
    *("itself", "next", "uses", "compute", "options", "names", "positional", "given", "first", "collects"),
    *("calls", "busy", "overlaps"),
    *("run", "driver", "noted", "build"),
    *[word for name in TABLES for word in (name, f"{name}.rows")],
)
SINGLE, TUPLE = 0, 1

# The rows of tables. spreads: something and its length. parts: of arguments, and of what is found, in the order in
# which one comes to them: a constant, or a type, or null for a tensor; how others are compared with it; the tensor's
# number, or how many elements there are, whose rows follow; where it is noted; which one it must be, or null. places:
# where something is found, under which name, and in which way; what that is, or null for a tensor, how it is
# compared, and with what else. numbers: those that are told, as they were found in this call. wholes: lists, dicts,
# tuples and objects as they were found, of which no two are one. agains: what is to be one of these, and which.
# tensors: what an array has; the words of its lengths and strides; the bytes from its first element to its lowest and
# behind its highest; what is left of its address, or -1; without axes, whether it is a value; what was found in this
# call. written: a tensor's number. moves: a tensor's number and the word of the run that tells where it begins.
# cells: words of the run that numbers tell. results: what an array is to have, NumPy's flag of its order, whether it
# is a value, and the word that tells where it begins. leaves: what kind, and the number of a result, a tensor or
# something computed, or an object.
ROWS = {
    "spreads": ("whole", "length"),
    "parts": ("constant", "compared", "number", "noted", "itself"),
    "places": ("where", "name", "way", "constant", "compared", "number", "one", "other", "third"),
    "numbers": ("found",),
    "wholes": ("found",),
    "agains": ("found", "noted"),
    "tensors": (
        *("dtype", "writeable", "axes", "lie", "low", "high", "left", "is.value"),
        *("object", "begin", "lowest", "highest"),
    ),
    "written": ("number",),
    "moves": ("number", "word"),
    "cells": ("word",),
    "results": ("dtype", "axes", "lie", "order", "is.value", "word"),
    "leaves": ("kind", "value"),
}
RESULT, TENSOR, OBJECT, CELL = 0, 1, 2, 3

# How something is compared with a constant: only itself will do; what equals it, and has its type; not at all; a
# number of that type, which is told; a whole that was come to before; a tuple, list or dict of that type, with so
# many elements, each like its part, an object of it, with so many attributes, in a dict or in slots, or whatever is
# of it. In places alone: parts, from one with a number on; itself, a function with its code, defaults and named
# defaults, and so many attributes; nothing.
ITSELF, EQUAL, ANY, TOLD, AGAIN, OF_TUPLE, OF_LIST, OF_DICT, WITH_PARTS, WITH_SLOTS, OF_TYPE = range(11)
PARTS, FUNCTION, ABSENT = range(11, 14)

# The ways: the value of a key in a dict, the content of a cell, where it is sought itself, and an attribute of a class
# that Python gives it and keeps.
IN_DICT, IN_CELL, ITS_PLACE, ITS_OWN = range(4)

# Of two tensors' memory: that it is apart; else twice the bytes between their beginnings, and 1 if they are one tensor.
APART = 1 << 62

# What NumPy's flags say of an array that can be written, and of one whose first axis is the innermost.
WRITEABLE, FORTRAN = 0x400, 0x2


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

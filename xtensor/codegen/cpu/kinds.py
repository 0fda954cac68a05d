"""The words that describe a kind of calls of a captured function to machine code, and the lines that read them.

A kind is described by words of 8 bytes (HEAD). Some of them say where tables begin, whose rows say what is compared and
done.
"""

from __future__ import annotations

from .mailbox import load

# The words of a kind. itself: the object that keeps alive what they point to; next: another kind's words, or 0; uses:
# how often it was launched; compute: for a kind that depends on numbers, a function that takes a tuple of these and
# returns a tuple of words for the run, as bytes, and of objects for the result, or None; branches: whether a call
# that it fits may be one of another kind, as comparisons of numbers, or booleans that the run computes, show;
# options: the object that the options in force must be; names: a tuple of the arguments' names, or 0; positional: the
# number of arguments without names; given: that of all; first: the first part; calls: whether Python runs inside its
# run; busy: whether it does now, when no other call can use this kind; overlaps: the first word of a table of how
# memory overlaps, for each tensor with each one before it. run: a run of the driver; driver: the machine code; noted:
# the address where a failure is noted, or 0; build: SINGLE, TUPLE, or a function that makes the result from a tuple.
# Of each table, its first word and its number of rows.
TABLES = (
    *("spreads", "parts", "places", "numbers", "wholes", "agains"),
    *("tensors", "written", "moves", "cells", "results", "leaves"),
)
HEAD = (
    *("itself", "next", "uses", "compute", "branches", "options", "names", "positional", "given", "first", "collects"),
    *("calls", "busy", "overlaps"),
    *("run", "driver", "noted", "build"),
    *[word for name in TABLES for word in (name, f"{name}.rows")],
)
SINGLE, TUPLE = 0, 1

# The rows of tables. spreads: a container and its length. parts: of arguments, and of objects found by name, in the
# order in which they are visited: a constant, or a type, or null for a tensor; how an object is compared with it; the
# tensor's number, or the number of elements, whose rows follow; where it is noted; the object that it must be, or null.
# places: where an object is found, under which name, and in which way; its constant, or null for a tensor, how it is
# compared, and with what else. numbers: those of this call. wholes: the lists, dicts, tuples and objects of this call,
# of which no two may be the same. agains: an object that must be one of these, and which. tensors: properties of an
# array; the words of its lengths and strides; the bytes from its first element to its lowest and behind its highest;
# its address modulo an alignment, or -1; without axes, whether it is a value; what was found in this call. written: a
# tensor's number. moves: a tensor's number and the word of the run for its address. cells: words of the run that depend
# on numbers. results: the properties of an array, NumPy's flag for its order, whether it is a value, and the word for
# its address. leaves: the kind, and the number of a result, a tensor or a computed object, or an object.
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

# How an object is compared with a constant: it must be the same object; equal, and of its type; it is not compared; it
# must be a number of that type, which is noted; a whole that was visited before; a tuple, list or dict of that type,
# with so many elements, each like its part; an object of the type, with so many attributes, in a dict or in slots; any
# object of the type. In places only: parts, from one with a number on; a function that is the same object, with its
# code, defaults and named defaults, and so many attributes; nothing may be there.
ITSELF, EQUAL, ANY, TOLD, AGAIN, OF_TUPLE, OF_LIST, OF_DICT, WITH_PARTS, WITH_SLOTS, OF_TYPE = range(11)
PARTS, FUNCTION, ABSENT = range(11, 14)

# The ways: the value of a key in a dict, the content of a cell, the place itself, and an attribute of a class that
# Python gives it and keeps.
IN_DICT, IN_CELL, ITS_PLACE, ITS_OWN = range(4)

# How two tensors' memory overlaps: not at all; else twice the bytes between their beginnings, plus 1 for one tensor.
APART = 1 << 62

# NumPy's flags for an array that can be written, and for one whose first axis is the innermost.
WRITEABLE, FORTRAN = 0x400, 0x2


# ---- lines


def word(*names: str, kind: str = "i64") -> str:
    """Return the lines that load words of a kind, by their names in HEAD."""
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
    """Return the lines that run `body` for each number `%name` below a count."""
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
    """Return the lines that branch to a label if two values of a type are the same, else to %no."""
    return f"  %{name} = icmp eq {of} {x}, {y}\n  br i1 %{name}, label %{then}, label %no\n{then}:\n"


# The end of a function that answers yes or no.
ANSWERS = """  ret i1 true
no:
  ret i1 false
}
"""

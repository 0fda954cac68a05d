"""Gathers and scatters as machine code, for elements of any kind.

The words of a call: the addresses of the array `a`, of the values `c` and of the arrays of indices; the lengths of two
axes of indices, and of two further axes of the elements that belong to each index; and the strides in bytes along each
of these. All indices are checked before anything is moved: if one is out of bounds, nothing is moved, which is noted.
Indices that nothing is moved at are checked in the same way.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from .compile import Code, handmade
from .mailbox import load

# The loops: two over indices, two over the elements of each.
OUTER, INNER = ("o0", "o1"), ("i0", "i1")
_POINTERS = ("a", "c", "failed")


def words_of(count: int) -> list[str]:
    """Return the names of the words of a call with so many arrays of indices, in order.

    For an array of indices: its address, its strides in bytes, the length of the axis that it selects from, and the
    stride of that axis in bytes.
    """
    names = [*_POINTERS, *[f"n.{loop}" for loop in (*OUTER, *INNER)]]
    names += [f"{array}.{loop}" for array in "ac" for loop in (*OUTER, *INNER)]
    for k in range(count):
        names += [f"x{k}", *[f"x{k}.{loop}" for loop in OUTER], f"x{k}.length", f"x{k}.step"]
    return names


def loop(name: str, body: str) -> str:
    """Return a loop: `body` are the lines for %name."""
    own = name.partition(".")[2]
    return f"""  br label %{name}.begin
{name}.begin:
  br label %{name}.body
{name}.body:
  %{name} = phi i64 [0, %{name}.begin], [%{name}.after, %{name}.next]
{body}  br label %{name}.next
{name}.next:
  %{name}.after = add i64 %{name}, 1
  %{name}.more = icmp slt i64 %{name}.after, %n.{own}
  br i1 %{name}.more, label %{name}.body, label %{name}.done
{name}.done:
"""


# Kinds of indices: letters of their dtypes, where NumPy's are others on Windows, and how less than 64 bits become 64.
LETTERS = {np.dtype(f"i{size}"): letter for size, letter in zip((1, 2, 4, 8), "bhil", strict=True)}
LETTERS |= {np.dtype(f"u{size}"): letter for size, letter in zip((1, 2, 4), "BHI", strict=True)}
INDICES = {"b": "sext i8", "h": "sext i16", "i": "sext i32", "B": "zext i8", "H": "zext i16", "I": "zext i32"}


def _index(k: int, char: str, way: str) -> str:
    """Return the lines that read an index of a kind, in the loops of one way."""
    own = f"{way}.x{k}"
    read = f"  %{own} = load i64, ptr %{own}.at, align 1\n"
    if char in INDICES:
        widen, kind = INDICES[char].split()
        read = f"  %{own}.read = load {kind}, ptr %{own}.at, align 1\n  %{own} = {widen} {kind} %{own}.read to i64\n"
    return f"""  %{own}.0 = mul i64 %{way}.o0, %x{k}.o0
  %{own}.1 = mul i64 %{way}.o1, %x{k}.o1
  %{own}.after = add i64 %{own}.0, %{own}.1
  %{own}.at = getelementptr i8, ptr %x{k}, i64 %{own}.after
{read}"""


def _checked(k: int, char: str) -> str:
    """Return the lines that leave the function if an index is out of bounds."""
    own = f"check.x{k}"
    return f"""{_index(k, char, "check")}  %{own}.least = sub i64 0, %x{k}.length
  %{own}.low = icmp slt i64 %{own}, %{own}.least
  %{own}.high = icmp sge i64 %{own}, %x{k}.length
  %{own}.is.outside = or i1 %{own}.low, %{own}.high
  br i1 %{own}.is.outside, label %outside, label %{own}.inside
{own}.inside:
"""


def _placed(k: int, char: str) -> str:
    """Return the lines that add the offset of the element that an index selects; one below zero counts from the end."""
    own, before = f"move.x{k}", f"move.a{k}"
    return f"""{_index(k, char, "move")}  %{own}.below = icmp slt i64 %{own}, 0
  %{own}.back = select i1 %{own}.below, i64 %x{k}.length, i64 0
  %{own}.place = add i64 %{own}, %{own}.back
  %{own}.bytes = mul i64 %{own}.place, %x{k}.step
  %move.a{k + 1} = add i64 %{before}, %{own}.bytes
"""


def _moved(indices: str, kind: str, *, gathers: bool, single: bool) -> str:
    """Return the lines that move the elements of the indices that were read: loops, or the only element of each."""
    at = f"""  %at.a0 = mul i64 %move.i0, %a.i0
  %at.a1 = mul i64 %move.i1, %a.i1
  %at.a01 = add i64 %at.a0, %at.a1
  %at.a = add i64 %at.a01, %move.a{len(indices)}
  %at.c0 = mul i64 %move.i0, %c.i0
  %at.c1 = mul i64 %move.i1, %c.i1
  %at.c01 = add i64 %at.c0, %at.c1
  %at.c = add i64 %at.c01, %move.c
"""
    if single:
        at = f"  %at.a = add i64 0, %move.a{len(indices)}\n  %at.c = add i64 0, %move.c\n"
    element = f"""{at}  %a.element = getelementptr i8, ptr %a, i64 %at.a
  %c.element = getelementptr i8, ptr %c, i64 %at.c
  %value = load {kind}, ptr %{"a" if gathers else "c"}.element, align 1
  store {kind} %value, ptr %{"c" if gathers else "a"}.element, align 1
"""
    places = "".join([_placed(*one) for one in enumerate(indices)])
    return f"""  %move.c0 = mul i64 %move.o0, %c.o0
  %move.c1 = mul i64 %move.o1, %c.o1
  %move.c = add i64 %move.c0, %move.c1
  %move.a.o0 = mul i64 %move.o0, %a.o0
  %move.a.o1 = mul i64 %move.o1, %a.o1
  %move.a0 = add i64 %move.a.o0, %move.a.o1
{places}{element if single else loop("move.i0", loop("move.i1", element))}"""


@cache
def call_of(indices: str, itemsize: int, *, gathers: bool, single: bool) -> Code:
    """Return the machine code that moves so many bytes at a time. indices: the letters of the arrays of
    indices; gathers: whether bytes go from `a` to `c`; single: whether that is all for each index.
    """
    names, kind = words_of(len(indices)), f"i{8 * itemsize}" if itemsize <= 16 else f"<{itemsize // 8} x i64>"
    loads = "".join([load(name, "%words", place, _type(name)) for place, name in enumerate(names)])
    checks = loop("check.o0", loop("check.o1", "".join([_checked(*one) for one in enumerate(indices)])))
    moves = loop("move.o0", loop("move.o1", _moved(indices, kind, gathers=gathers, single=single)))
    return handmade(f"""define void @kernel(ptr %words) {{
entry:
{loads}{checks}{moves}  ret void
outside:
  store i64 1, ptr %failed
  ret void
}}
""")


# The words of a check: the address of integers, the lengths of two axes and their strides in bytes, the number of
# classes, one that is ignored, and the address of the word for failures.
CHECKED = ("x0", "n.o0", "n.o1", "x0.o0", "x0.o1", "count", "ignored", "failed")


@cache
def check_of(index: str) -> Code:
    """Return the machine code that notes whether one of some integers is neither a class, which are counted from 0, nor
    the one that is ignored. index: the letter of their dtype.
    """
    loads = "".join([load(name, "%words", place, _type(name)) for place, name in enumerate(CHECKED)])
    body = f"""{_index(0, index, "check")}  %is.class = icmp ult i64 %check.x0, %count
  %is.ignored = icmp eq i64 %check.x0, %ignored
  %is.inside = or i1 %is.class, %is.ignored
  br i1 %is.inside, label %inside, label %outside
inside:
"""
    return handmade(f"""define void @kernel(ptr %words) {{
entry:
{loads}{loop("check.o0", loop("check.o1", body))}  ret void
outside:
  store i64 1, ptr %failed
  ret void
}}
""")


def _type(name: str) -> str:
    return "ptr" if name in _POINTERS or (name[0] == "x" and "." not in name) else "i64"

"""Running sums, products and extremes as machine code: the elements of a row are taken in order, as NumPy does.

The words of a call: the addresses of the array `x` and of the result `y`, the lengths of two axes of rows, the length
of a row, and the strides of both arrays along these in bytes.
"""

from __future__ import annotations

from functools import cache

from .at_indices import OUTER, loop
from .compile import Code, handmade
from .mailbox import load

NAMES = ["x", "y", *[f"n.{one}" for one in (*OUTER, "row")]]
NAMES += [f"{own}.{one}" for own in "xy" for one in (*OUTER, "row")]

# LLVM's types by the names of dtypes, and its instructions by function, for floats and for integers: one that adds
# or multiplies, or one that compares the total with an element, which replaces the total if that is false.
TYPES = {"float32": "float", "float64": "double", "int64": "i64"}
_INSTRUCTIONS = {
    "cumulative_sum": ("fadd", "add"),
    "cumulative_prod": ("fmul", "mul"),
    "maximum.accumulate": ("fcmp ogt", "icmp sgt"),
    "minimum.accumulate": ("fcmp olt", "icmp slt"),
}


def _at(own: str, begin: str, *steps: str) -> str:
    """Return the lines that compute an address, from a pointer and pairs of factors whose products are offsets."""
    lines, place = "", begin
    for number, step in enumerate(steps):
        lines += f"  %{own}.by{number} = mul i64 {step}\n"
        lines += f"  %{own}.at{number} = getelementptr i8, ptr %{place}, i64 %{own}.by{number}\n"
        place = f"{own}.at{number}"
    return lines


def _next(instruction: str, kind: str) -> str:
    """Return the lines that compute %sum from %total and %element."""
    if "cmp" not in instruction:
        return f"  %sum = {instruction} {kind} %total, %element\n"
    lines = f"  %beyond = {instruction} {kind} %total, %element\n"
    stays = "%beyond"
    if kind != "i64":  # a total that is NaN stays, as in NumPy
        lines += f"  %odd = fcmp uno {kind} %total, %total\n  %stays = or i1 %beyond, %odd\n"
        stays = "%stays"
    return f"{lines}  %sum = select i1 {stays}, {kind} %total, {kind} %element\n"


@cache
def call_of(name: str, dtype: str) -> Code:
    """Return the machine code of a function, for numbers of a dtype, by its name."""
    kind, instruction = TYPES[dtype], _INSTRUCTIONS[name][dtype == "int64"]
    rows = "".join([_at(f"{own}.first", own, *[f"%r.{one}, %{own}.{one}" for one in OUTER]) for own in "xy"])
    elements = "".join([_at(f"{own}.next", f"{own}.first.at1", f"%i, %{own}.row") for own in "xy"])
    row = f"""{rows}  %first = load {kind}, ptr %x.first.at1, align 1
  store {kind} %first, ptr %y.first.at1, align 1
  br label %row.begin
row.begin:
  %some = icmp sgt i64 %n.row, 1
  br i1 %some, label %row, label %row.done
row:
  %i = phi i64 [1, %row.begin], [%i.after, %row]
  %total = phi {kind} [%first, %row.begin], [%sum, %row]
{elements}  %element = load {kind}, ptr %x.next.at0, align 1
{_next(instruction, kind)}  store {kind} %sum, ptr %y.next.at0, align 1
  %i.after = add i64 %i, 1
  %more = icmp slt i64 %i.after, %n.row
  br i1 %more, label %row, label %row.done
row.done:
"""
    loads = "".join([load(one, "%words", at, "ptr" if one in "xy" else "i64") for at, one in enumerate(NAMES)])
    loops = loop("r.o0", loop("r.o1", row))
    return handmade(f"define void @kernel(ptr %words) {{\nentry:\n{loads}{loops}  ret void\n}}\n")

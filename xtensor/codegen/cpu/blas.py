"""Calls of the BLAS as machine code, so that the driver runs products between kernels without Python.

The words of a call: the function's address, its integers, and the addresses of its operands and its result. The kinds
of calls and their integers are those of CBLAS: `dot` of two vectors, `gemv` of a matrix and a vector, `gemm` of
matrices, `syrk` of a matrix and itself transposed, which computes one triangle; the other triangle is a copy of it, as
in NumPy. `sum` is one sum of products of real numbers by the same loop as NumPy's own, without the BLAS.
"""

from __future__ import annotations

from functools import cache

from .compile import Code, handmade
from .mailbox import load

# The numbers for which there are calls, and their types in LLVM; a complex number is two real ones.
TYPES = {"f": "float", "d": "double"}
NUMBERS = TYPES | {"F": "[2 x float]", "D": "[2 x double]"}

# CBLAS's words for how matrices lie, whether they are transposed, and for the triangle above the diagonal.
ROWS, COLUMNS, PLAIN, TURNED, UPPER = 101, 102, 111, 112, 121

# The arguments of each call: names of integers and of pointers; {1} and {0} are the numbers one and zero, the factors
# of the product and of the result's old values.
_TAKES = {
    "sum": ("n", "a", "a.step", "b", "b.step"),
    "dot": ("n", "a", "a.step", "b", "b.step"),
    "gemv": ("order", "turned", "m", "n", "{1}", "a", "a.step", "b", "b.step", "{0}", "c", "c.step"),
    "gemm": (
        *("order", "a.turned", "b.turned", "m", "n", "k"),
        *("{1}", "a", "a.step", "b", "b.step", "{0}", "c", "c.step"),
    ),
    "syrk": ("order", "triangle", "turned", "n", "k", "{1}", "a", "a.step", "{0}", "c", "c.step"),
}
# The operands and the result.
POINTERS = ("a", "b", "c")


def words_of(kind: str) -> list[str]:
    """Return the names of the words of a call of a kind, in order, after the function's address."""
    names = [name for name in _TAKES[kind] if not name.startswith("{")]
    return names if "c" in names else [*names, "c"]


# The terms are added in order, as NumPy adds them; products are rounded.
_SUM = """  %none = icmp eq i64 %n, 0
  br i1 %none, label %done, label %next
next:
  %i = phi i64 [0, %entry], [%i.n, %next]
  %before = phi {number} [0.0, %entry], [%after, %next]
  %a.i = mul i64 %i, %a.step
  %b.i = mul i64 %i, %b.step
  %a.element = getelementptr {number}, ptr %a, i64 %a.i
  %b.element = getelementptr {number}, ptr %b, i64 %b.i
  %x = load {number}, ptr %a.element
  %y = load {number}, ptr %b.element
  %xy = fmul {number} %x, %y
  %after = fadd {number} %before, %xy
  %i.n = add i64 %i, 1
  %more = icmp slt i64 %i.n, %n
  br i1 %more, label %next, label %done
done:
  %sum = phi {number} [0.0, %entry], [%after, %next]
  store {number} %sum, ptr %c
"""


# Row after row, the elements left of the diagonal are copied from above it.
_MIRRORED = """  br label %row
row:
  %i = phi i64 [1, %entry], [%i.n, %row.done]
  %i.row = mul i64 %i, %c.step
  br label %column
column:
  %j = phi i64 [0, %row], [%j.n, %column]
  %j.row = mul i64 %j, %c.step
  %from.at = add i64 %j.row, %i
  %to.at = add i64 %i.row, %j
  %from = getelementptr {number}, ptr %c, i64 %from.at
  %to = getelementptr {number}, ptr %c, i64 %to.at
  %value = load {number}, ptr %from
  store {number} %value, ptr %to
  %j.n = add i64 %j, 1
  %more.columns = icmp slt i64 %j.n, %i
  br i1 %more.columns, label %column, label %row.done
row.done:
  %i.n = add i64 %i, 1
  %more = icmp slt i64 %i.n, %n
  br i1 %more, label %row, label %done
done:
"""


@cache
def call_of(kind: str, char: str) -> Code:
    """Return the machine code of a call, for numbers of a type."""
    number, names = NUMBERS[char], words_of(kind)
    lines = [load(name, "%words", place, _type(name)) for place, name in enumerate(("function", *names))]
    complex_one, head = char not in TYPES, ""
    factors = [f"{number} {value}" for value in ("0.0", "1.0")]
    if complex_one:  # complex factors are passed by their addresses
        real = TYPES[char.lower()]
        constants = [f"@f{one} = private constant {number} [{real} {one}.0, {real} 0.0]\n" for one in (0, 1)]
        factors, head = ["ptr @f0", "ptr @f1"], "".join(constants)
    given = ", ".join([name.format(*factors) if name[0] == "{" else f"{_type(name)} %{name}" for name in _TAKES[kind]])
    if kind == "sum":
        call = _SUM.format(number=number)
    elif kind == "dot" and complex_one:
        call = f"  call void %function({given}, ptr %c)\n"
    elif kind == "dot":
        call = f"  %sum = call {number} %function({given})\n  store {number} %sum, ptr %c\n"
    else:
        call = f"  call void %function({given})\n" + (_MIRRORED.format(number=number) if kind == "syrk" else "")
    return handmade(f"{head}define void @kernel(ptr %words) {{\nentry:\n{''.join(lines)}{call}  ret void\n}}\n")


def _type(name: str) -> str:
    return "ptr" if name in POINTERS or name == "function" else "i64"

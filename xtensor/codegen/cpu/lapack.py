"""Calls of LAPACK as machine code, so that the driver runs factorisations between kernels without Python.

The words of a call: the function's address, lengths, the addresses and strides of operands and results, and scratch
memory. Matrices are copied to columns of doubles, which LAPACK overwrites, as in NumPy's `linalg`.
"""

from __future__ import annotations

from functools import cache

from .blas import TYPES
from .compile import Code, handmade
from .mailbox import load

# The words of each kind of call, in order. function: LAPACK's. room: memory for a matrix, right: for right-hand sides,
# rest: for numbers that LAPACK takes by address, and pivots. n: the rows of a matrix; k: right-hand sides; `a.row`,
# `a.column`: strides in elements. c, d: the results; log, exp: functions of the C library. failed: where it is noted
# that a matrix has no result; kept: a mask of the bits that stay in that word.
_SQUARE = ("function", "room", "rest", "n", "a", "a.row", "a.column")
_RESULT = ("c", "c.row", "c.column", "failed", "kept")
WORDS = {
    "solve": (*_SQUARE, "right", "k", "b", "b.row", "b.column", *_RESULT),
    "inv": (*_SQUARE, "right", *_RESULT),
    "cholesky": (*_SQUARE, *_RESULT),
    "det": (*_SQUARE, "log", "exp", "c"),
    "slogdet": (*_SQUARE, "log", "c", "d"),
}

# The names of words that are addresses, and of functions of the C library.
_POINTERS = ("function", "a", "b", "c", "d", "room", "right", "rest", "failed", "log", "exp")
LIBM = ("log", "exp")

# LAPACK's names, and numbers in `rest` besides the pivots.
FUNCTIONS = {"solve": "dgesv", "inv": "dgesv", "cholesky": "dpotrf", "det": "dgetrf", "slogdet": "dgetrf"}
COUNTS = 4


def _each(name: str, given: str, element: str) -> str:
    """Return a function over the rows and columns of a matrix; `element` has the lines for row %i and column %j."""
    return f"""define private void @{name}({given}, i64 %rows, i64 %columns) {{
entry:
  %some.rows = icmp sgt i64 %rows, 0
  %some.columns = icmp sgt i64 %columns, 0
  %some = and i1 %some.rows, %some.columns
  br i1 %some, label %row, label %done
row:
  %i = phi i64 [0, %entry], [%i.n, %row.done]
  br label %column
column:
  %j = phi i64 [0, %row], [%j.n, %column]
{element}  %j.n = add i64 %j, 1
  %more.columns = icmp slt i64 %j.n, %columns
  br i1 %more.columns, label %column, label %row.done
row.done:
  %i.n = add i64 %i, 1
  %more.rows = icmp slt i64 %i.n, %rows
  br i1 %more.rows, label %row, label %done
done:
  ret void
}}
"""


def _at(name: str, number: str) -> str:
    """Return the lines that compute the address of the element of row %i and column %j of a matrix."""
    return f"""  %{name}.i = mul i64 %i, %{name}.row
  %{name}.j = mul i64 %j, %{name}.column
  %{name}.ij = add i64 %{name}.i, %{name}.j
  %{name}.at = getelementptr {number}, ptr %{name}, i64 %{name}.ij
"""


def _functions(number: str) -> dict[str, str]:
    """Return functions that fill matrices: of doubles from those of type `number`, and back."""
    matrix = "ptr %{0}, i64 %{0}.row, i64 %{0}.column"
    to, both = matrix.format("to"), matrix.format("to") + ", " + matrix.format("from")
    given = f"{_at('from', number)}  %given = load {number}, ptr %from.at\n"
    found = f"{_at('from', 'double')}  %found = load double, ptr %from.at\n"
    if number == "double":
        widened, narrowed = given.replace("%given", "%value"), "  %value = bitcast double %kept to double\n"
    else:
        widened = f"{given}  %value = fpext {number} %given to double\n"
        narrowed = f"  %value = fptrunc double %kept to {number}\n"
    store = "  store {0} %value, ptr %to.at\n"
    into, back = _at("to", "double") + store.format("double"), _at("to", number) + store.format(number)
    one = "  %same = icmp eq i64 %i, %j\n  %value = select i1 %same, double 1.0, double 0.0\n"
    lower = "  %is.lower = icmp sle i64 %j, %i\n  %kept = select i1 %is.lower, double %found, double 0.0\n"
    return {
        "take": _each("take", both, widened + into),
        "unit": _each("unit", to, one + into),
        "give": _each("give", both, found + narrowed.replace("%kept", "%found") + back),
        "lower": _each("lower", both, found + lower + narrowed + back),
    }


# Numbers that LAPACK takes by address: n, k, its report on the matrix, and the letter L (76), for the lower factor. It
# may read, and write, only the low 32 bits of each.
_NUMBERS = """  %k.place = getelementptr i64, ptr %rest, i64 1
  %info.place = getelementptr i64, ptr %rest, i64 2
  %letter.place = getelementptr i64, ptr %rest, i64 3
  %pivots = getelementptr i64, ptr %rest, i64 4
  store i64 %n, ptr %rest
  store i64 {sides}, ptr %k.place
  store i64 0, ptr %info.place
  store i64 76, ptr %letter.place
  call void @take(ptr %room, i64 1, i64 %n, ptr %a, i64 %a.row, i64 %a.column, i64 %n, i64 %n)
"""
_NOTED = """  %info = load i64, ptr %info.place
  %before = load i64, ptr %failed
  %left = and i64 %before, %kept
  %now = or i64 %left, %info
  store i64 %now, ptr %failed
"""
_GESV = (
    "  call void %function(ptr %rest, ptr %k.place, ptr %room, ptr %rest, ptr %pivots, ptr %right, ptr %rest, "
    "ptr %info.place)\n"
)
_GIVE = "  call void @{0}(ptr %c, i64 %c.row, i64 %c.column, ptr %{1}, i64 1, i64 %n, i64 %n, i64 {2})\n"

# The sign of a determinant and the logarithm of its magnitude, summed as in NumPy; pivots have 64 bits.
_DIAGONAL = """  call void %function(ptr %rest, ptr %rest, ptr %room, ptr %rest, ptr %pivots, ptr %info.place)
  %info = load i64, ptr %info.place
  %regular = icmp eq i64 %info, 0
  %next.one = add i64 %n, 1
  br i1 %regular, label %each, label %found
each:
  %i = phi i64 [0, %entry], [%i.n, %each]
  %sign.i = phi double [1.0, %entry], [%sign.n, %each]
  %sum.i = phi double [0.0, %entry], [%sum.n, %each]
  %i.n = add i64 %i, 1
  %pivot.at = getelementptr i64, ptr %pivots, i64 %i
  %pivot = load i64, ptr %pivot.at
  %is.moved = icmp ne i64 %pivot, %i.n
  %place = mul i64 %i, %next.one
  %element.at = getelementptr double, ptr %room, i64 %place
  %element = load double, ptr %element.at
  %is.less = fcmp olt double %element, 0.0
  %turns = xor i1 %is.moved, %is.less
  %sign.less = fneg double %sign.i
  %sign.n = select i1 %turns, double %sign.less, double %sign.i
  %element.less = fneg double %element
  %magnitude = select i1 %is.less, double %element.less, double %element
  %log.i = call double %log(double %magnitude)
  %sum.n = fadd double %sum.i, %log.i
  %more = icmp slt i64 %i.n, %n
  br i1 %more, label %each, label %found
found:
  %sign = phi double [0.0, %entry], [%sign.n, %each]
  %sum = phi double [0xFFF0000000000000, %entry], [%sum.n, %each]
"""
_STEPS = {
    "solve": "  call void @take(ptr %right, i64 1, i64 %n, ptr %b, i64 %b.row, i64 %b.column, i64 %n, i64 %k)\n"
    + _GESV
    + _GIVE.format("give", "right", "%k")
    + _NOTED,
    "inv": "  call void @unit(ptr %right, i64 1, i64 %n, i64 %n, i64 %n)\n"
    + _GESV
    + _GIVE.format("give", "right", "%n")
    + _NOTED,
    "cholesky": "  call void %function(ptr %letter.place, ptr %rest, ptr %room, ptr %rest, ptr %info.place)\n"
    + _GIVE.format("lower", "room", "%n")
    + _NOTED,
    "det": _DIAGONAL + "  %size = call double %exp(double %sum)\n  %det = fmul double %sign, %size\n",
    "slogdet": _DIAGONAL,
}

# The functions that each kind calls, and single numbers that it stores.
_PARTS = {"solve": ("take", "give"), "inv": ("take", "unit", "give"), "cholesky": ("take", "lower")}
_SINGLE = {"det": {"c": "%det"}, "slogdet": {"c": "%sign", "d": "%sum"}}


@cache
def call_of(kind: str, char: str) -> Code:
    """Return the machine code of a call, for numbers of a type, which LAPACK gets as doubles."""
    number = TYPES[char]
    words = [
        load(name, "%words", place, "ptr" if name in _POINTERS else "i64") for place, name in enumerate(WORDS[kind])
    ]
    steps = _NUMBERS.format(sides="%k" if kind == "solve" else "%n") + _STEPS[kind]
    for name, value in _SINGLE.get(kind, {}).items():
        way = "bitcast" if number == "double" else "fptrunc"
        steps += f"  %{name}.own = {way} double {value} to {number}\n  store {number} %{name}.own, ptr %{name}\n"
    functions = _functions(number)
    parts = "".join([functions[name] for name in _PARTS.get(kind, ("take",))])
    return handmade(f"{parts}define void @kernel(ptr %words) {{\nentry:\n{''.join(words)}{steps}  ret void\n}}\n")

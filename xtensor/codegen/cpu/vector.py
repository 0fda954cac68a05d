"""Vectors of LLVM IR text: operators on them write instructions, nothing is computed here.

A Writer collects the lines of one function body; a Vector is the name of a value in it. What is written is
already vector code and meets no optimiser, so each operator is one instruction and constants are folded here.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, SupportsFloat, SupportsIndex, TypeAlias, cast

import numpy as np

Number: TypeAlias = SupportsFloat | SupportsIndex

BOOL = np.dtype(np.bool_)
F32 = np.dtype(np.float32)
F64 = np.dtype(np.float64)
INTEGERS = {1: np.dtype(np.int8), 2: np.dtype(np.int16), 4: np.dtype(np.int32), 8: np.dtype(np.int64)}

_SCALARS = {"b1": "i1", "f4": "float", "f8": "double"} | {f"{k}{n}": f"i{8 * n}" for k in "iu" for n in (1, 2, 4, 8)}
SCALARS = {np.dtype(code): name for code, name in _SCALARS.items()}  # the IR type of one element
MANGLED = {"float": "f32", "double": "f64", "ptr": "p0"}  # how it is written in the name of an intrinsic

# Adding 1.5 * 2**(digits of the fraction) rounds to an integer and leaves it in the low bits.
DIGITS = {F32: 23, F64: 52}
BIAS = {F32: 127, F64: 1023}
ROOT_HALF = {F32: 0x3F3504F3, F64: 0x3FE6A09E667F3BCD}  # the bits of sqrt(1/2)
TINY = {F32: 2.0**-126, F64: 2.0**-1022}


class LacksError(NotImplementedError):
    """Raised if generated code lacks a step, which the interpreter has."""


class Writer:
    """The instructions of one function body, with the declarations and constants that they need.

    lanes: elements per vector. block: the label of the block of the first instruction. divisors: by the name of a
    vector, the values for a division by it that were computed once, ahead of the loops.
    """

    __slots__ = ("block", "count", "declarations", "divisors", "flags", "globals", "lanes", "lines", "tables")

    def __init__(self, lanes: int, block: str = "body") -> None:
        self.lanes = lanes
        self.block = block  # the current one, which a phi after the last line has to name
        self.lines: list[str] = []
        self.declarations: set[str] = set()
        self.divisors: dict[str, Any] = {}
        self.globals: dict[str, str] = {}
        self.tables: dict[str, np.dtype[Any]] = {}
        self.flags = ""  # or "contract ": fadd, fsub and fmul may be contracted
        self.count = 0

    def fresh(self) -> str:
        """Return a name not used yet."""
        self.count += 1
        return f"%v{self.count}"

    def emit(self, text: str, dtype: Any) -> Vector:
        """Write an instruction and return its value."""
        self.count += 1
        name = f"%v{self.count}"
        self.lines.append(f"{name} = {text}")
        return Vector(self, name, np.dtype(dtype))

    def splat(self, value: Number, dtype: Any) -> Vector:
        """Return a number as a constant vector: it costs no instruction."""
        dtype = np.dtype(dtype)
        return Vector(self, f"splat ({constant(value, dtype)})", dtype)

    def call(self, name: str, dtype: Any, *operands: Vector) -> Vector:
        """Write the call of an intrinsic that is overloaded on its result's type and return its value."""
        dtype = np.dtype(dtype)
        result = self.type(dtype)
        types = [operand.type for operand in operands]
        symbol = f"@llvm.{name}.v{self.lanes}{mangled(SCALARS[dtype])}"
        self.declarations.add(f"declare {result} {symbol}({', '.join(types)})")
        arguments = ", ".join(f"{operand.type} {operand.name}" for operand in operands)
        return self.emit(f"call {result} {symbol}({arguments})", dtype)

    def type(self, dtype: np.dtype[Any]) -> str:
        """Return the IR type of a vector."""
        return f"<{self.lanes} x {SCALARS[dtype]}>"

    def table(self, name: str, values: Sequence[Number], dtype: Any) -> str:
        """Make sure that there is a constant table of this name, and return the name for gather()."""
        dtype = np.dtype(dtype)
        if name not in self.tables:
            entries = ", ".join(constant(value, dtype) for value in values)
            kind = f"[{len(values)} x {SCALARS[dtype]}]"
            self.globals[name] = f"@{name} = private unnamed_addr constant {kind} [{entries}], align 64"
            self.tables[name] = dtype
        return name

    def branch_any(
        self,
        condition: Vector,
        then: Callable[[], tuple[Vector, ...]],
        otherwise: Callable[[], tuple[Vector, ...]],
    ) -> tuple[Vector, ...]:
        """Return then() if the condition holds in any lane, else otherwise(): the one way to write a branch."""
        number = self.fresh()[2:]
        labels = [f"any{number}.{end}" for end in ("then", "else", "end")]
        self._branch(number, condition, labels[0], labels[1])
        found = []
        for label, side in zip(labels, (then, otherwise), strict=False):
            self.start(label)
            found.append((side(), self.block))
            self.lines.append(f"br label %{labels[2]}")
        self.start(labels[2])
        (left, left_block), (right, right_block) = found
        return tuple(
            self.emit(f"phi {a.type} [ {a.name}, %{left_block} ], [ {b.name}, %{right_block} ]", a.dtype)
            for a, b in zip(left, right, strict=True)
        )

    def repeat_any(
        self, state: Vector, condition: Callable[[Vector], Vector], body: Callable[[Vector], Vector]
    ) -> Vector:
        """Return a state after it was replaced by body(state) as long as the condition holds in any lane."""
        number = self.fresh()[2:]
        labels = [f"again{number}.{part}" for part in ("test", "body", "end")]
        before = self.block
        self.lines.append(f"br label %{labels[0]}")
        self.start(labels[0])
        value = self.emit("", state.dtype)
        place = len(self.lines) - 1
        self._branch(number, condition(value), *labels[1:])
        self.start(labels[1])
        after = body(value)
        self.lines.append(f"br label %{labels[0]}")
        ways = f"[ {state.name}, %{before} ], [ {after.name}, %{self.block} ]"
        self.lines[place] = f"{value.name} = phi {state.type} {ways}"
        self.start(labels[2])
        return value

    def _branch(self, number: str, condition: Vector, then: str, otherwise: str) -> None:
        """Branch to one label if a condition holds in any lane, else to the other."""
        symbol = f"@llvm.vector.reduce.or.v{self.lanes}i1"
        self.declarations.add(f"declare i1 {symbol}({condition.type})")
        self.lines.append(f"%any{number} = call i1 {symbol}({condition.type} {condition.name})")
        self.lines.append(f"br i1 %any{number}, label %{then}, label %{otherwise}")

    def start(self, label: str) -> None:
        """Begin a basic block."""
        self.lines.append(f"{label}:")
        self.block = label


class Vector:
    """A value of a function body: one element per lane.

    A Python number beside a vector becomes a constant of the vector's dtype. Integers wrap; a shift has to be
    less than the width. Comparisons of floating values are false for NaN, except !=.
    """

    __slots__ = ("dtype", "name", "writer")

    def __init__(self, writer: Writer, name: str, dtype: np.dtype[Any]) -> None:
        self.writer = writer
        self.name = name
        self.dtype = dtype

    @property
    def type(self) -> str:
        """The IR type, such as <16 x float>."""
        return f"<{self.writer.lanes} x {SCALARS[self.dtype]}>"

    def like(self, other: Vector | Number) -> Vector:
        """Return the other operand as a vector of this dtype."""
        return other if isinstance(other, Vector) else self.writer.splat(other, self.dtype)

    def floating(self, name: str, other: Vector | Number, *, swap: bool = False) -> Vector:
        """Write an arithmetic instruction, by its integer name; floating values have it with an f in front."""
        a, b = (self.like(other), self) if swap else (self, self.like(other))
        opcode = f"f{name} {self.writer.flags}" if self.dtype.kind == "f" else f"{name} "
        return self.writer.emit(f"{opcode}{self.type} {a.name}, {b.name}", self.dtype)

    def integer(self, name: str, other: Vector | Number, *, swap: bool = False) -> Vector:
        """Write an instruction that only integers and truth values have."""
        a, b = (self.like(other), self) if swap else (self, self.like(other))
        return self.writer.emit(f"{name} {self.type} {a.name}, {b.name}", self.dtype)

    def compare(self, floating: str, integer: str, other: Vector | Number) -> Vector:
        """Write a comparison; integer predicates that depend on the sign carry an s, which becomes u."""
        if self.dtype.kind == "f":
            text = f"fcmp {floating}"
        else:
            text = f"icmp {integer.replace('s', 'u') if self.dtype.kind in 'ub' else integer}"
        return self.writer.emit(f"{text} {self.type} {self.name}, {self.like(other).name}", BOOL)

    def __add__(self, other: Vector | Number) -> Vector:
        return self.floating("add", other)

    def __radd__(self, other: Number) -> Vector:
        return self.floating("add", other, swap=True)

    def __sub__(self, other: Vector | Number) -> Vector:
        return self.floating("sub", other)

    def __rsub__(self, other: Number) -> Vector:
        return self.floating("sub", other, swap=True)

    def __mul__(self, other: Vector | Number) -> Vector:
        return self.floating("mul", other)

    def __rmul__(self, other: Number) -> Vector:
        return self.floating("mul", other, swap=True)

    def __truediv__(self, other: Vector | Number) -> Vector:
        return self.writer.emit(f"fdiv {self.type} {self.name}, {self.like(other).name}", self.dtype)

    def __rtruediv__(self, other: Number) -> Vector:
        return self.like(other) / self

    def __neg__(self) -> Vector:
        if self.dtype.kind == "f":
            return self.writer.emit(f"fneg {self.type} {self.name}", self.dtype)
        return 0 - self

    def __and__(self, other: Vector | Number) -> Vector:
        return self.integer("and", other)

    def __rand__(self, other: Number) -> Vector:
        return self.integer("and", other, swap=True)

    def __or__(self, other: Vector | Number) -> Vector:
        return self.integer("or", other)

    def __ror__(self, other: Number) -> Vector:
        return self.integer("or", other, swap=True)

    def __xor__(self, other: Vector | Number) -> Vector:
        return self.integer("xor", other)

    def __rxor__(self, other: Number) -> Vector:
        return self.integer("xor", other, swap=True)

    def __invert__(self) -> Vector:
        return self.integer("xor", 1 if self.dtype == BOOL else -1)

    def __lshift__(self, other: Vector | Number) -> Vector:
        return self.integer("shl", other)

    def __rlshift__(self, other: Number) -> Vector:
        return self.integer("shl", other, swap=True)

    def __rshift__(self, other: Vector | Number) -> Vector:
        return self.integer("ashr" if self.dtype.kind == "i" else "lshr", other)

    def __rrshift__(self, other: Number) -> Vector:
        return self.like(other) >> self

    def __eq__(self, other: Vector | Number) -> Vector:  # type: ignore[override]
        return self.compare("oeq", "eq", other)

    def __ne__(self, other: Vector | Number) -> Vector:  # type: ignore[override]
        return self.compare("une", "ne", other)

    __hash__ = None  # type: ignore[assignment]

    def __lt__(self, other: Vector | Number) -> Vector:
        return self.compare("olt", "slt", other)

    def __le__(self, other: Vector | Number) -> Vector:
        return self.compare("ole", "sle", other)

    def __gt__(self, other: Vector | Number) -> Vector:
        return self.compare("ogt", "sgt", other)

    def __ge__(self, other: Vector | Number) -> Vector:
        return self.compare("oge", "sge", other)


Pair: TypeAlias = tuple[Vector, Vector]  # (h, t): the sum of the two, with t below the digits of h


def mangled(scalar: str) -> str:
    """Return the name of a scalar type as it stands in the name of an intrinsic."""
    return MANGLED.get(scalar, scalar)


def constant(value: Number, dtype: np.dtype[Any]) -> str:
    """Return a constant with its type; floating ones in hexadecimal, which no rounding or locale can change."""
    if dtype.kind == "f":
        with np.errstate(over="ignore"):  # a Python number too large for float32 is an infinity
            rounded = float(dtype.type(cast(Any, value)))
        return f"{SCALARS[dtype]} 0x{struct.pack('>d', rounded).hex().upper()}"
    if dtype == BOOL:
        return "i1 true" if value else "i1 false"
    width = 8 * dtype.itemsize
    wrapped = int(cast(Any, value)) & (1 << width) - 1
    return f"i{width} {wrapped - (1 << width) if wrapped >> width - 1 else wrapped}"


def fma(a: Vector, b: Vector | Number, c: Vector | Number) -> Vector:
    """a * b + c, rounded once."""
    return a.writer.call("fma", a.dtype, a, a.like(b), a.like(c))


def select(condition: Vector, a: Vector | Number, b: Vector | Number) -> Vector:
    """a where the condition holds, else b; one of the two may be a number."""
    if isinstance(a, Vector):
        b = a.like(b)
    elif isinstance(b, Vector):
        a = b.like(a)
    else:
        raise TypeError("select: a or b must be a Vector, got two numbers")
    text = f"select {condition.type} {condition.name}, {a.type} {a.name}, {b.type} {b.name}"
    return condition.writer.emit(text, a.dtype)


def bits(x: Vector) -> Vector:
    """The bits of x as a signed integer of the same width."""
    return from_bits(x, INTEGERS[x.dtype.itemsize])


def from_bits(x: Vector, dtype: Any) -> Vector:
    """The value of another dtype of the same width that has the bits of x."""
    dtype = np.dtype(dtype)
    if SCALARS[dtype] == SCALARS[x.dtype]:
        return Vector(x.writer, x.name, dtype)
    return x.writer.emit(f"bitcast {x.type} {x.name} to {x.writer.type(dtype)}", dtype)


def convert(x: Vector, dtype: Any) -> Vector:
    """The value of x in another dtype; a floating value has to fit the integer it becomes."""
    dtype = np.dtype(dtype)
    if dtype == x.dtype:
        return x
    if dtype == BOOL:
        return x != 0
    opcode = conversion(x.dtype, dtype)
    if not opcode:
        return Vector(x.writer, x.name, dtype)  # int32 and uint32 are one type of LLVM
    return x.writer.emit(f"{opcode} {x.type} {x.name} to {x.writer.type(dtype)}", dtype)


def conversion(source: np.dtype[Any], target: np.dtype[Any]) -> str:
    """Return the instruction that converts between two dtypes, "" if there is nothing to do."""
    if target.kind == "f":
        if source.kind == "f":
            return "fpext" if target.itemsize > source.itemsize else "fptrunc"
        return "sitofp" if source.kind == "i" else "uitofp"
    if source.kind == "f":
        return "fptosi" if target.kind == "i" else "fptoui"
    if source == BOOL:
        return "zext"
    if source.itemsize == target.itemsize:
        return ""
    if source.itemsize > target.itemsize:
        return "trunc"
    return "sext" if source.kind == "i" else "zext"


def splat(like: Vector, value: Any, dtype: Any = None) -> Vector:
    """Return a constant in every lane."""
    return like.writer.splat(value, dtype or like.dtype)


def magnitude(a: Vector) -> Vector:
    """Return the absolute value of real numbers; of the least integer itself, as it has none."""
    if a.dtype.kind == "f":
        return absolute(a)
    return select(a < 0, -a, a) if a.dtype.kind == "i" else a


def sqrt(x: Vector) -> Vector:
    """The square root."""
    return x.writer.call("sqrt", x.dtype, x)


def absolute(x: Vector) -> Vector:
    """The floating value without its sign."""
    return x.writer.call("fabs", x.dtype, x)


def floor(x: Vector) -> Vector:
    """The next integer below."""
    return x.writer.call("floor", x.dtype, x)


def ceil(x: Vector) -> Vector:
    """The next integer above."""
    return x.writer.call("ceil", x.dtype, x)


def trunc(x: Vector) -> Vector:
    """The next integer towards zero."""
    return x.writer.call("trunc", x.dtype, x)


def rint(x: Vector) -> Vector:
    """The nearest integer, the even one of two."""
    return x.writer.call("roundeven", x.dtype, x)


def copysign(x: Vector, sign: Vector | Number) -> Vector:
    """The magnitude of x with the sign of the other."""
    return x.writer.call("copysign", x.dtype, x, x.like(sign))


def gather(table_name: str, index: Vector) -> Vector:
    """The entries of a table of the writer at the index of each lane, which has to be within it."""
    writer = index.writer
    dtype = writer.tables[table_name]
    scalar = SCALARS[dtype]
    pointers, truths, values = (f"<{writer.lanes} x {kind}>" for kind in ("ptr", "i1", scalar))
    symbol = f"@llvm.masked.gather.v{writer.lanes}{mangled(scalar)}.v{writer.lanes}p0"
    writer.declarations.add(f"declare {values} {symbol}({pointers}, {truths}, {values})")
    address = writer.fresh()
    writer.lines.append(f"{address} = getelementptr {scalar}, ptr @{table_name}, {index.type} {index.name}")
    operands = f"{pointers} align {dtype.itemsize} {address}, {truths} splat (i1 true), {values} poison"
    return writer.emit(f"call {values} {symbol}({operands})", dtype)


def magic(x: Vector) -> float:
    """The number whose addition rounds to an integer."""
    return 1.5 * 2.0 ** DIGITS[x.dtype]


def polynomial(x: Vector, coefficients: Sequence[float]) -> Vector:
    """c0 + c1 x + c2 x^2 + ... by Horner's rule."""
    value: Vector = x.like(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        value = fma(value, x, coefficient)
    return value


def clamp(x: Vector, low: float, high: float) -> Vector:
    """x within bounds; NaN stays."""
    x = select(x < low, low, x)
    return select(x > high, high, x)


def nearest(x: Vector, factor: float, offset: int = 0) -> tuple[Vector, Vector]:
    """Return n = x * factor rounded to an integer, and bits whose low half is n + offset."""
    shift = magic(x) + offset
    t = fma(x, factor, shift)
    return t - shift, bits(t)


def two_sum(a: Vector, b: Vector) -> Pair:
    """a + b as (h, t), exactly."""
    h = a + b
    c = h - a
    return h, (a - (h - c)) + (b - c)


def fast_two_sum(a: Vector, b: Vector | float) -> Pair:
    """a + b as (h, t), exactly if |a| >= |b| or a = 0."""
    h = a + b
    return h, b - (h - a)


def two_product(a: Vector, b: Vector) -> Pair:
    """a * b as (h, t), exactly."""
    h = a * b
    return h, fma(a, b, -h)


def quotient(a: Pair, b: Pair) -> Pair:
    """a / b to nearly twice the digits; the second part may exceed half a place of the first."""
    inverse = 1.0 / b[0]
    h = a[0] * inverse
    return h, (fma(-h, b[0], a[0]) + fma(-h, b[1], a[1])) * inverse


def square_root(a: Pair) -> Pair:
    """The square root to nearly twice the digits."""
    h = sqrt(a[0])
    return h, select(h > 0, (fma(-h, h, a[0]) + a[1]) / (h + h), 0.0)


def choose(condition: Vector, a: Pair, b: Pair) -> Pair:
    """Pair a where the condition holds, else b."""
    return select(condition, a[0], b[0]), select(condition, a[1], b[1])


def unless_nan(value: Vector, *arguments: Vector) -> Vector:
    """The value, or NaN if an argument is."""
    for argument in arguments:
        value = select(argument == argument, value, argument)
    return value


def condensed(parts: list[Vector], passes: int) -> tuple[Vector, Vector]:
    """The sum of numbers as (h, t), nearly exactly."""
    for _ in range(passes):
        for k in range(len(parts) - 1, 0, -1):
            parts[k - 1], parts[k] = two_sum(parts[k - 1], parts[k])
    low = parts[-1]
    for part in reversed(parts[1:-1]):
        low = low + part
    return fast_two_sum(parts[0], low)


def power_of_two(x: Vector, integer: Vector) -> Vector:
    """x * 2^n, rounded once; integer holds n + 2 * BIAS in its low half."""
    half = integer >> 1
    digits = DIGITS[x.dtype]
    return x * from_bits(half << digits, x.dtype) * from_bits((integer - half) << digits, x.dtype)


def split(x: Vector, *, subnormal: bool = True) -> Pair:
    """Return (m, n) with x = m 2^n and sqrt(1/2) <= m < sqrt(2), for positive x."""
    digits, half, shift = DIGITS[x.dtype], ROOT_HALF[x.dtype], magic(x)
    bias = x.like(shift)
    if subnormal:
        tiny = x < TINY[x.dtype]
        x = select(tiny, x * 2.0**digits, x)
        bias = select(tiny, shift + digits, bias)
    integer = bits(x) - half
    m = from_bits((integer & ((1 << digits) - 1)) + half, x.dtype)
    # n without a conversion: put into the low bits of the number that rounds.
    pattern = (BIAS[x.dtype] + digits) << digits | 1 << (digits - 1)
    return m, from_bits((integer >> digits) + pattern, x.dtype) - bias

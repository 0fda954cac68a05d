"""The scalar primitives as CUDA C++, with NumPy's meaning for every dtype.

Each is an expression over values that have names, so an operand may stand in it more than once. What an expression
cannot say is a helper function, written out where a kernel uses it; `complex` helpers stand in cuda_complex.py.

NVIDIA documents the largest errors of its functions in the CUDA programming guide. Those of float32 that it gives more
than 2 units in the last place (tan, sinh, asinh, acosh, atanh, atan2, pow, hypot) are computed in float64 and rounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from ..dtypes import DType
from .cuda_complex import COMPLEX
from .primitives import BOOL, LacksError

# The C++ type of an element in memory, and in a register where that differs: float16 is computed as float32 and
# rounded after every step, as NumPy does.
_MEMORY = {
    "bool": "u8",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
    "float16": "u16",
    "float32": "float",
    "float64": "double",
    "complex64": "xt_complex<float>",
    "complex128": "xt_complex<double>",
}
# What the integers are called in the text.
TYPES = """typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;"""

_REGISTER = {**_MEMORY, "bool": "bool", "float16": "float"}


def memory_type(dtype: DType) -> str:
    """Return the C++ type of an element in memory; raises LacksError for a dtype that generated code lacks."""
    if dtype.kind == "V":
        return f"xt_best<{memory_type(dtype['value'])}>"
    if dtype.name not in _MEMORY:
        raise LacksError(f"{dtype} in generated code")
    return _MEMORY[dtype.name]


def register_type(dtype: DType) -> str:
    """Return the C++ type of a value that is computed with."""
    own = memory_type(dtype)
    return _REGISTER.get(dtype.name, own)


def loaded(expression: str, dtype: DType) -> str:
    """Return what lies in memory as a value."""
    if dtype == BOOL:
        return f"({expression}) != 0"
    return f"xt_from_half({expression})" if dtype == np.float16 else expression


def stored(name: str, dtype: DType) -> str:
    """Return a value as it lies in memory."""
    if dtype == BOOL:
        return f"(u8)({name})"
    return f"xt_to_half({name})" if dtype == np.float16 else name


def literal(value: Any, dtype: DType) -> str:
    """Return a Python number as a constant of a dtype; floating ones by their bits."""
    with np.errstate(over="ignore"):
        one = np.asarray(value).astype(dtype)
    if dtype == BOOL:
        return "true" if one else "false"
    if dtype.kind in "iu":
        return f"({_MEMORY[dtype.name]}){int(one) & (1 << 64) - 1:#x}ULL"
    if dtype.kind == "c":
        part = np.dtype(f"f{dtype.itemsize // 2}")
        return f"{_MEMORY[dtype.name]}{{{literal(one.real, part)}, {literal(one.imag, part)}}}"
    if dtype.itemsize == 8:
        return f"__longlong_as_double({one.view(np.int64):#x}LL)".replace("(-", "((long long)-")
    return f"__int_as_float({int(one.astype(np.float32).view(np.uint32)):#x}u)"


class Value(NamedTuple):
    """A named value of a kernel's body."""

    writer: Writer
    name: str
    dtype: DType


class Writer:
    """The statements of a body while they are written."""

    def __init__(self, prefix: str = "t") -> None:
        self.lines: list[str] = []
        self.prefix = prefix
        self.count = 0

    def let(self, expression: str, dtype: DType) -> Value:
        """Give an expression a name; what is float16 is rounded to it."""
        name = f"{self.prefix}{self.count}"
        self.count += 1
        rounded = f"xt_round_half({expression})" if dtype == np.float16 else expression
        self.lines.append(f"const {register_type(dtype)} {name} = {rounded};")
        return Value(self, name, dtype)


# ---- conversion


def cast(a: Value, dtype: DType) -> Value:
    """Convert as NumPy does on x86-64: floats beyond an integer dtype's range become what C makes of them there."""
    if a.dtype == dtype:
        return a
    target, kind = register_type(dtype), a.dtype.kind
    if dtype == BOOL:
        return a.writer.let(truth(a), dtype)
    if dtype.kind == "c":
        part = target[11:-1]
        parts = (f"{a.name}.re", f"{a.name}.im") if kind == "c" else (a.name, "0")
        return a.writer.let(f"{target}{{({part}){parts[0]}, ({part}){parts[1]}}}", dtype)
    if kind == "c":
        raise LacksError(f"conversion of {a.dtype} to {dtype} in generated code")
    if kind == "f" and dtype.kind in "iu":
        return a.writer.let(f"({target}){_to_integer(a.name, dtype)}", dtype)
    if dtype == np.float16 and a.dtype == np.float64:
        return a.writer.let(f"xt_narrow_half({a.name})", dtype)
    return a.writer.let(f"({target}){a.name}", dtype)


def _to_integer(name: str, dtype: DType) -> str:
    if dtype.itemsize == 8 and dtype.kind == "u":
        return f"xt_to_uint64({name})"
    wide = dtype.itemsize == 8 or dtype == np.uint32
    return f"{'xt_to_int64' if wide else 'xt_to_int32'}({name})"


def truth(a: Value) -> str:
    """Return whether a value counts as true: it is not zero; NaN is true."""
    if a.dtype == BOOL:
        return a.name
    return f"({a.name}.re != 0 || {a.name}.im != 0)" if a.dtype.kind == "c" else f"({a.name} != 0)"


# ---- the table


# Of every primitive, its expression by the kinds of its first operand's dtype (b, i, u, f, c). {a}, {b}, {c}: the
# operands, {A}, {B}: whether they are true, {T}: their type, {U}: the unsigned one that wraps, {W}: that of the same
# width, {f}: the f of float32's functions, {bits}: how many, {inf}: infinity.
_EVERY = "biufc"
_PARTS = "{T}{{ {0}(x.re), {0}(x.im) }}"


def _ordered(sign: str) -> dict[str, str]:
    return {"biu": f"{{a}} {sign} {{b}}", "f": f"{{a}} {sign} {{b}}"}


def _rounding(function: str) -> dict[str, str]:
    return {"biu": "{a}", "f": f"{function}{{f}}({{a}})"}


def _function(name: str, *, double: bool = False, places: int = 1) -> dict[str, str]:
    """A function of the CUDA library, in float64 where its float32 form is less accurate than 2 ulp."""
    cast, letter = ("(double)", "") if double else ("", "{f}")
    operands = ", ".join([f"{cast}{{{one}}}" for one in "ab"[:places]])
    rounded = "({T})" if double else ""
    complexes = f"xt_c{name}({', '.join(['{a}', '{b}'][:places])})"
    return {"f": f"{rounded}{name}{letter}({operands})", **({"c": complexes} if f"xt_c{name}" in COMPLEX else {})}


_TABLE: dict[str, dict[str, str]] = {
    "abs": {
        "bu": "{a}",
        "i": "{a} < 0 ? ({T})(({U})0 - ({U}){a}) : {a}",
        "f": "fabs{f}({a})",
        "c": "({R})hypot((double){a}.re, (double){a}.im)",
    },
    "add": {"b": "{a} || {b}", "iu": "({T})(({U}){a} + ({U}){b})", "fc": "{a} + {b}"},
    "subtract": {"iu": "({T})(({U}){a} - ({U}){b})", "fc": "{a} - {b}"},
    "multiply": {"b": "{a} && {b}", "iu": "({T})(({U}){a} * ({U}){b})", "fc": "{a} * {b}"},
    "divide": {"fc": "{a} / {b}"},
    "negative": {"iu": "({T})(({U})0 - ({U}){a})", "f": "-{a}", "c": "{T}{{ -{a}.re, -{a}.im }}"},
    "positive": {_EVERY: "{a}"},
    "conj": {"biuf": "{a}", "c": "{T}{{ {a}.re, -{a}.im }}"},
    "real": {"biuf": "{a}", "c": "{a}.re"},
    "imag": {"biuf": "({T})0", "c": "{a}.im"},
    "reciprocal": {"f": "({T})1 / {a}", "c": "{T}{{ 1, 0 }} / {a}"},
    "square": {"b": "{a}", "iu": "({T})(({U}){a} * ({U}){a})", "fc": "{a} * {a}"},
    "sign": {
        "u": "({T})({a} > 0)",
        "i": "({T})(({a} > 0) - ({a} < 0))",
        "f": "{a} != {a} ? {a} : ({T})(({a} > 0) - ({a} < 0))",
        "c": "xt_csign({a})",
    },
    "floor_divide": {"iu": "xt_floor_divide<{T}, {U}>({a}, {b})", "f": "xt_floor_divide_real({a}, {b})"},
    "remainder": {"iu": "xt_remainder<{T}>({a}, {b})", "f": "xt_remainder_real({a}, {b})"},
    # the second of equal ones; a NaN wins
    "maximum": {"b": "{a} || {b}", "iu": "{a} > {b} ? {a} : {b}", "f": "{a} > {b} || {a} != {a} ? {a} : {b}"},
    "minimum": {"b": "{a} && {b}", "iu": "{a} < {b} ? {a} : {b}", "f": "{a} < {b} || {a} != {a} ? {a} : {b}"},
    "equal": {"biuf": "{a} == {b}", "c": "{a}.re == {b}.re && {a}.im == {b}.im"},
    "not_equal": {"biuf": "{a} != {b}", "c": "{a}.re != {b}.re || {a}.im != {b}.im"},
    "less": _ordered("<"),
    "less_equal": _ordered("<="),
    "greater": _ordered(">"),
    "greater_equal": _ordered(">="),
    "logical_and": {_EVERY: "{A} && {B}"},
    "logical_or": {_EVERY: "{A} || {B}"},
    "logical_xor": {_EVERY: "{A} != {B}"},
    "logical_not": {_EVERY: "!{A}"},
    "where": {_EVERY: "{A} ? {b} : {c}"},
    "isnan": {"biu": "false", "f": "{a} != {a}", "c": "{a}.re != {a}.re || {a}.im != {a}.im"},
    "isinf": {
        "biu": "false",
        "f": "fabs{f}({a}) == {inf}",
        "c": "fabs{f}({a}.re) == {inf} || fabs{f}({a}.im) == {inf}",
    },
    "isfinite": {
        "biu": "true",
        "f": "fabs{f}({a}) < {inf}",
        "c": "fabs{f}({a}.re) < {inf} && fabs{f}({a}.im) < {inf}",
    },
    "signbit": {"f": "copysign{f}(({T})1, {a}) < 0"},
    "copysign": {"f": "copysign{f}({a}, {b})"},
    "nextafter": {"f": "nextafter{f}({a}, {b})"},
    "bitwise_and": {"biu": "({T})({a} & {b})"},
    "bitwise_or": {"biu": "({T})({a} | {b})"},
    "bitwise_xor": {"biu": "({T})({a} ^ {b})"},
    "bitwise_invert": {"b": "!{a}", "iu": "({T})~{a}"},
    "bitwise_left_shift": {"iu": "({W}){b} < {bits} ? ({T})(({U}){a} << {b}) : ({T})0"},
    "bitwise_right_shift": {
        "i": "({W}){b} < {bits} ? ({T})({a} >> {b}) : ({T})({a} < 0 ? -1 : 0)",
        "u": "{b} < {bits} ? ({T})({a} >> {b}) : ({T})0",
    },
    "ceil": _rounding("ceil"),
    "floor": _rounding("floor"),
    "trunc": _rounding("trunc"),
    "round": {**_rounding("rint"), "c": "{T}{{ rint{f}({a}.re), rint{f}({a}.im) }}"},
    "sqrt": _function("sqrt"),
    "exp": _function("exp"),
    "exp2": _function("exp2"),
    "expm1": _function("expm1"),
    "log": _function("log"),
    "log1p": _function("log1p"),
    "log2": _function("log2"),
    "log10": _function("log10"),
    "sin": _function("sin"),
    "cos": _function("cos"),
    "tan": _function("tan", double=True),
    "asin": _function("asin"),
    "acos": _function("acos"),
    "atan": _function("atan"),
    "sinh": _function("sinh", double=True),
    "cosh": _function("cosh"),
    "tanh": _function("tanh"),
    "asinh": _function("asinh", double=True),
    "acosh": _function("acosh", double=True),
    "atanh": _function("atanh", double=True),
    "erf": _function("erf"),
    "pow": _function("pow", double=True, places=2),
    "hypot": _function("hypot", double=True, places=2),
    "atan2": _function("atan2", double=True, places=2),
}
_RULES = {name: {kind: text for kinds, text in row.items() for kind in kinds} for name, row in _TABLE.items()}

_PREDICATES = frozenset(
    ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "isnan", "isinf", "isfinite", "signbit")
    + ("logical_and", "logical_or", "logical_xor", "logical_not")
)

# Comparisons of an int64 with an uint64, in which both keep their values.
_MIXED = {"equal": "==", "not_equal": "!=", "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">="}


def has(name: str) -> bool:
    """Return whether there is a primitive of this name."""
    return name in _RULES


def primitive(name: str, *operands: Value) -> Value:
    """Write one primitive; raises LacksError where generated code has none for the operands' dtypes."""
    a = operands[0]
    kind = a.dtype.kind
    if name in _MIXED and {kind, operands[1].dtype.kind} == {"i", "u"}:
        return a.writer.let(_mixed(_MIXED[name], a, operands[1]), BOOL)
    text = _RULES.get(name, {}).get(kind)
    if text is None or (name == "nextafter" and a.dtype == np.float16):
        raise LacksError(f"{name} of {a.dtype} in generated code")
    return a.writer.let(text.format(**_fields(operands)), _result_dtype(name, operands))


def _mixed(sign: str, a: Value, b: Value) -> str:
    return f"(xt_order_mixed({a.name}, {b.name}) {sign} 0)"


def _result_dtype(name: str, operands: tuple[Value, ...]) -> DType:
    dtype = operands[0].dtype
    if name in _PREDICATES:
        return BOOL
    if name == "where":
        return operands[1].dtype
    if name in ("abs", "real", "imag") and dtype.kind == "c":
        return np.dtype(f"f{dtype.itemsize // 2}")
    return dtype


def _fields(operands: tuple[Value, ...]) -> dict[str, Any]:
    """Return what the expressions of the table speak of."""
    dtype = operands[0].dtype
    part = dtype.itemsize // (2 if dtype.kind == "c" else 1)
    fields = dict(zip("abc", [one.name for one in operands], strict=False))
    fields |= dict(zip("AB", [truth(one) for one in operands[:2]], strict=False))
    return fields | {
        "T": register_type(dtype),
        "R": {4: "float", 8: "double"}.get(part, "float"),
        "U": "u64" if dtype.itemsize == 8 else "u32",
        "W": _MEMORY.get(f"uint{8 * dtype.itemsize}", ""),
        "f": "" if part == 8 else "f",
        "bits": 8 * dtype.itemsize,
        "inf": literal(np.inf, np.dtype(f"f{max(part, 4)}")) if dtype.kind in "fc" else "",
    }


# ---- helpers


_REAL: dict[str, str] = {
    "xt_to_int32": """template <typename R> __device__ int xt_to_int32(R x) {
  return x >= (R)-2147483648.0 && x < (R)2147483648.0 ? (int)x : (int)0x80000000u;
}""",
    "xt_to_int64": """template <typename R> __device__ long long xt_to_int64(R x) {
  return x >= (R)-9223372036854775808.0 && x < (R)9223372036854775808.0 ? (long long)x : (long long)(1ULL << 63);
}""",
    "xt_to_uint64": """template <typename R> __device__ unsigned long long xt_to_uint64(R x) {
  const R half = (R)9223372036854775808.0;
  return x >= half ? (unsigned long long)xt_to_int64(x - half) ^ (1ULL << 63) : (unsigned long long)xt_to_int64(x);
}""",
    "xt_from_half": """__device__ float xt_from_half(unsigned short x) {
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x));
  return wide;
}""",
    "xt_to_half": """__device__ unsigned short xt_to_half(float x) {
  unsigned short narrow;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(narrow) : "f"(x));
  return narrow;
}""",
    "xt_round_half": "__device__ float xt_round_half(float x) { return xt_from_half(xt_to_half(x)); }",
    "xt_narrow_half": """__device__ float xt_narrow_half(double x) {
  unsigned short narrow;
  asm("cvt.rn.f16.f64 %0, %1;" : "=h"(narrow) : "d"(x));
  return xt_from_half(narrow);
}""",
    "xt_order_mixed": """__device__ int xt_order_mixed(long long a, unsigned long long b) {
  return a < 0 || (unsigned long long)a < b ? -1 : (unsigned long long)a > b;
}
__device__ int xt_order_mixed(unsigned long long a, long long b) { return -xt_order_mixed(b, a); }""",
    "xt_floor_divide": """template <typename T, typename U> __device__ T xt_floor_divide(T a, T b) {
  if (b == 0) return 0;
  if ((T)-1 < 0 && b == (T)-1) return (T)((U)0 - (U)a);
  const T whole = a / b;
  return (a < 0) != (b < 0) && a % b != 0 ? whole - 1 : whole;
}""",
    "xt_remainder": """template <typename T> __device__ T xt_remainder(T a, T b) {
  if (b == 0 || ((T)-1 < 0 && b == (T)-1)) return 0;
  const T rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}""",
    "xt_division": """__device__ float xt_fmod(float a, float b) { return fmodf(a, b); }
__device__ double xt_fmod(double a, double b) { return fmod(a, b); }
template <typename R> __device__ R xt_division(R a, R b, R& rest) {
  rest = xt_fmod(a, b);
  if (b == 0) return a / b;
  R whole = (a - rest) / b;
  if (rest != 0) {
    if ((b < 0) != (rest < 0)) { rest += b; whole -= 1; }
  } else {
    rest = copysign((R)0, b);
  }
  if (whole == 0) return copysign((R)0, a / b);
  const R low = floor(whole);
  return whole - low > (R)0.5 ? low + 1 : low;
}""",
    "xt_floor_divide_real": """template <typename R> __device__ R xt_floor_divide_real(R a, R b) {
  if (isinf(a) || isinf(b)) return floor(a / b);
  R rest;
  return xt_division(a, b, rest);
}""",
    "xt_remainder_real": """template <typename R> __device__ R xt_remainder_real(R a, R b) {
  R rest;
  xt_division(a, b, rest);
  return rest;
}""",
}

HELPERS = {**COMPLEX, **_REAL}
_WORD = re.compile(r"\bxt_\w+")


def helpers(lines: Iterable[str]) -> list[str]:
    """Return the helpers that a text speaks of, and those that these speak of, each after what it uses."""
    wanted: dict[str, None] = {}

    def want(text: str) -> None:
        for name in dict.fromkeys(_WORD.findall(text)):
            if name in HELPERS and name not in wanted:
                wanted[name] = None
                want(HELPERS[name])

    for line in lines:
        want(line)
    return [text for name, text in HELPERS.items() if name in wanted]

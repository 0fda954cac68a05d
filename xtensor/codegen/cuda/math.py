"""The scalar primitives as CUDA C++, with NumPy's meaning for every dtype.

Each is an expression over named values, so an operand may occur in it more than once. Primitives that are no simple
expression are functions in cuda.cuh.

NVIDIA documents the largest errors of its functions in the CUDA programming guide. Those of float32 that some edition
gives more than 2 units in the last place (tan, asin, acos, sinh, asinh, acosh, atanh, atan2, pow, hypot) are computed
in float64 and rounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...base.dtypes import DType
from ..cpu.vector import BOOL, LacksError

# The C++ types of elements in memory, and in registers where these differ: float16 is computed as float32 and rounded
# after every step, as in NumPy.
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
    """Return the expression of a value that is given in its type in memory."""
    if dtype == BOOL:
        return f"({expression}) != 0"
    return f"xt_from_half({expression})" if dtype == np.float16 else expression


def stored(name: str, dtype: DType) -> str:
    """Return the expression of a value in its type in memory."""
    if dtype == BOOL:
        return f"(u8)({name})"
    return f"xt_to_half({name})" if dtype == np.float16 else name


def literal(value: Any, dtype: DType) -> str:
    """Return a Python number as a constant of a dtype; floating ones by their bits."""
    with np.errstate(over="ignore"):
        one: Any = np.asarray(value).astype(dtype)
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
        """Write an expression to a new name, rounded if it is float16; return the value."""
        name = f"{self.prefix}{self.count}"
        self.count += 1
        rounded = f"xt_round_half({expression})" if dtype == np.float16 else expression
        self.lines.append(f"const {register_type(dtype)} {name} = {rounded};")
        return Value(self, name, dtype)


# ---- conversion


def cast(a: Value, dtype: DType) -> Value:
    """Convert as NumPy does on x86-64: floats beyond an integer dtype's range give the same as in C there."""
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


# For every primitive, its expression by the kinds of its first operand's dtype (b, i, u, f, c). {a}, {b}, {c}: the
# operands, {A}, {B}: whether they are true, {T}: their type, {U}: the unsigned type that wraps, {W}: that of the same
# width, {f}: the f of float32's functions, {bits}: their number of bits, {inf}: infinity.
_EVERY = "biufc"
_ORDER = {"less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">="}


def _function(name: str, *, double: bool = False, places: int = 1) -> dict[str, str]:
    """A function of the CUDA library, in float64 where its float32 form is less accurate than 2 ulp."""
    operands = ", ".join(["{a}", "{b}"][:places])
    real = f"({{T}})xt_{name}({operands})" if double else f"{name}{{f}}({operands})"
    return {"f": real, **({"c": f"xt_c{name}({operands})"} if name in _COMPLEX else {})}


_PLAIN = ("sqrt", "exp", "exp2", "expm1", "log", "log1p", "log2", "log10", "sin", "cos", "atan", "cosh")
_DOUBLE = ("tan", "asin", "acos", "sinh", "asinh", "acosh", "atanh")
_COMPLEX = frozenset((*_PLAIN, *_DOUBLE, "tanh", "pow")) - {"exp2"}

_TABLE: dict[str, dict[str, str]] = {
    "abs": {
        "bu": "{a}",
        "i": "{a} < 0 ? ({T})(({U})0 - ({U}){a}) : {a}",
        "f": "fabs{f}({a})",
        "c": "({R})xt_hypot({a}.re, {a}.im)",
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
    "reciprocal": {"f": "({T})1 / {a}", "c": "xt_creciprocal({a})"},
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
    "round": {"biu": "{a}", "f": "rint{f}({a})", "c": "{T}{{ rint{f}({a}.re), rint{f}({a}.im) }}"},
    **{name: {"biu": "{a}", "f": f"{name}{{f}}({{a}})"} for name in ("ceil", "floor", "trunc")},
    **{name: {"biuf": f"{{a}} {sign} {{b}}"} for name, sign in _ORDER.items()},
    **{name: _function(name) for name in (*_PLAIN, "tanh", "erf")},
    **{name: _function(name, double=True) for name in _DOUBLE},
    **{name: _function(name, double=True, places=2) for name in ("pow", "hypot", "atan2")},
}
_RULES = {name: {kind: text for kinds, text in row.items() for kind in kinds} for name, row in _TABLE.items()}

_PREDICATES = {*_ORDER, "equal", "not_equal", "isnan", "isinf", "isfinite", "signbit"} | {
    f"logical_{word}" for word in ("and", "or", "xor", "not")
}


def has(name: str) -> bool:
    """Return whether there is a primitive of this name."""
    return name in _RULES


def primitive(name: str, *operands: Value) -> Value:
    """Write one primitive; raises LacksError where generated code has none for the operands' dtypes."""
    a = operands[0]
    kind = a.dtype.kind
    if name in _PREDICATES and {kind, operands[-1].dtype.kind} == {"i", "u"}:  # an int64 with an uint64
        order = Value(a.writer, f"xt_order_mixed({a.name}, {operands[1].name})", np.dtype(np.int32))
        return primitive(name, order, Value(a.writer, "0", order.dtype))
    text = _RULES.get(name, {}).get(kind)
    if text is None or (name == "nextafter" and a.dtype == np.float16):
        raise LacksError(f"{name} of {a.dtype} in generated code")
    return a.writer.let(text.format(**_fields(operands)), _result_dtype(name, operands))


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
    """Return the replacements for the names in the table's expressions."""
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


# ---- the helpers of kernels


@cache
def _blocks() -> tuple[list[str], dict[str, int]]:
    """Return the blocks of cuda.cuh, and for each name that they define the index of its block."""
    blocks = Path(__file__).with_name("cuda.cuh").read_text(encoding="utf-8").split("\n\n")
    return blocks, {name: place for place, block in enumerate(blocks) for name in _DEFINED.findall(block)}


_DEFINED = re.compile(r"^(?:#define |.*?struct |(?:template <.*?> )?__device__ .*?)(xt_\w+)(?=[ (])", re.MULTILINE)
_WORD = re.compile(r"\bxt_\w+")


def helpers(lines: Iterable[str]) -> list[str]:
    """Return the blocks that a text needs: those without a name, those that it names, and those that these name."""
    blocks, places = _blocks()
    wanted = set(range(1, len(blocks))) - set(places.values())
    todo = list(lines)
    while todo:
        found = {places[name] for name in _WORD.findall(todo.pop()) if name in places} - wanted
        wanted |= found
        todo += [blocks[place] for place in found]
    return [blocks[place].rstrip() for place in sorted(wanted)]

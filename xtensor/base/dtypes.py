"""Data types: every dtype is a real `numpy.dtype`; kinds, promotion, and limits.

Standard section "Data Types" and "Type Promotion Rules" (2025.12). Where the standard leaves promotion
undefined (int64 with float64, ...), NumPy's answer is given (NEP 50 for Python scalars).
"""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from .errors import UnheldError, check_choice, expected

__all__ = [
    "bool",
    "can_cast",
    "complex64",
    "complex128",
    "finfo",
    "float16",
    "float32",
    "float64",
    "iinfo",
    "int8",
    "int16",
    "int32",
    "int64",
    "isdtype",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
]

DType = np.dtype[Any]

bool = np.dtype("bool")
int8 = np.dtype("int8")
int16 = np.dtype("int16")
int32 = np.dtype("int32")
int64 = np.dtype("int64")
uint8 = np.dtype("uint8")
uint16 = np.dtype("uint16")
uint32 = np.dtype("uint32")
uint64 = np.dtype("uint64")
float16 = np.dtype("float16")  # beyond the standard: supported, but in none of the lists below
float32 = np.dtype("float32")
float64 = np.dtype("float64")
complex64 = np.dtype("complex64")
complex128 = np.dtype("complex128")

# The kinds of isdtype(), in the standard's words; each maps names to dtypes in the standard's order.
_BOOL: dict[str, DType] = {"bool": bool}
_SIGNED: dict[str, DType] = {"int8": int8, "int16": int16, "int32": int32, "int64": int64}
_UNSIGNED: dict[str, DType] = {"uint8": uint8, "uint16": uint16, "uint32": uint32, "uint64": uint64}
_REAL: dict[str, DType] = {"float32": float32, "float64": float64}
_COMPLEX: dict[str, DType] = {"complex64": complex64, "complex128": complex128}
KINDS: dict[str, dict[str, DType]] = {
    "bool": _BOOL,
    "signed integer": _SIGNED,
    "unsigned integer": _UNSIGNED,
    "integral": _SIGNED | _UNSIGNED,
    "real floating": _REAL,
    "complex floating": _COMPLEX,
    "numeric": _SIGNED | _UNSIGNED | _REAL | _COMPLEX,
}
ALL: dict[str, DType] = _BOOL | KINDS["numeric"]

DEFAULTS: dict[str, DType] = {
    "real floating": float64,
    "complex floating": complex128,
    "integral": int64,
    "indexing": int64,
}


class Category:
    """The dtypes that a function accepts: NumPy's kind letters, and the word used in messages, tests and docs.

    The standard's functions take such a category; integers given where floats are asked for are converted,
    as NumPy converts them (`widens`).
    """

    __slots__ = ("letters", "widens", "word")

    def __init__(self, word: str, letters: str, widens: str = "") -> None:
        self.word = word
        self.letters = letters
        self.widens = widens

    def __contains__(self, dtype: DType) -> Any:
        return dtype.kind in self.letters

    def __repr__(self) -> str:
        return self.word

    def check(self, dtype: DType, function: str, argument: str) -> None:
        """Raise TypeError for a dtype that is not in this category."""
        if dtype.kind not in self.letters:
            raise TypeError(expected(function, argument, f"be {self.word}", dtype))


INTEGER_OR_BOOLEAN = Category("integer or boolean", "iub")
INTEGER = Category("integer", "iu", widens="b")
REAL_FLOATING = Category("real floating", "f", widens="iub")
FLOATING = Category("floating", "fc", widens="iub")
REAL = Category("real", "iuf", widens="b")
NUMERIC = Category("numeric", "iufc", widens="b")
ANY = Category("any", "biufc")


def canonical(dtype: Any, function: str = "asarray", argument: str = "dtype") -> DType:
    """Return `dtype` as a native-endian numpy.dtype xtensor can hold.

    Takes a dtype, its name, a NumPy scalar type or a Python type. Raises TypeError for anything else, UnheldError (a
    TypeError) for kinds with no place in the standard (object, string, datetime, long double).
    """
    held = _HELD.get(dtype) if isinstance(dtype, np.dtype) else None
    if held is not None:
        return held
    must = "be a boolean, integer, floating or complex dtype"
    try:
        found = np.dtype(dtype)
    except TypeError:
        raise TypeError(expected(function, argument, must, repr(dtype))) from None
    if dtype is None or found not in _HELD:
        got = repr(dtype) if dtype is None or isinstance(dtype, str) else found
        raise UnheldError(expected(function, argument, must, got))
    return _HELD[found]


def can_hold(dtype: DType) -> builtins.bool:
    """Return whether a tensor can have elements of this dtype, perhaps in another byte order."""
    return dtype in _HELD


def is_held(dtype: DType) -> builtins.bool:
    """Return whether a tensor can have elements of this dtype, in its byte order."""
    held = _HELD.get(dtype)
    return held is dtype or held == dtype


# Each held dtype in both byte orders, to its native form.
_HELD: dict[DType, DType] = {
    variant: dtype for dtype in [*ALL.values(), float16] for variant in (dtype, dtype.newbyteorder())
}


_GENERATED = frozenset(ALL.values())


def is_generated(dtype: DType) -> builtins.bool:
    """Return whether generated code has a dtype: all but float16."""
    return dtype in _GENERATED


def isdtype(dtype: DType, kind: DType | str | tuple[DType | str, ...]) -> Any:
    """Return whether `dtype` is of `kind`: a dtype, one of the standard's kind names, or a tuple of these.

    Raises TypeError if `dtype` is no dtype or a kind is neither, ValueError for an unknown kind name.
    Standard: Data Type Functions, isdtype.
    """
    dtype = canonical(dtype, "isdtype")
    if isinstance(kind, tuple):
        return any(isdtype(dtype, one) for one in kind)
    if isinstance(kind, str):
        check_choice("isdtype", "kind", kind, KINDS)
        return dtype.kind in {one.kind for one in KINDS[kind].values()}  # by letter, so that float16 counts
    return dtype == canonical(kind, "isdtype", "kind")


def check_real(source: Any, target: DType, function: str, argument: str) -> None:
    """Raise TypeError where complex values would go into a dtype without imaginary parts."""
    kind = source.kind if isinstance(source, np.dtype) else "c" if isinstance(source, complex) else ""
    if kind == "c" and target.kind not in "cb":
        raise TypeError(expected(function, argument, f"be real to fit into {target}", "complex"))


def promote(*dtypes: DType | type) -> DType:
    """Return the common dtype; Python scalar types (bool, int, float, complex) count as weak (NEP 50)."""
    return np.result_type(*[_WEAK.get(d, d) if type(d) is type else d for d in dtypes])


# Weak scalars for Python's scalar types: a boolean is no weaker than an array of booleans.
_WEAK: dict[Any, Any] = {int: 0, float: 0.0, complex: 0j}


def real_of(dtype: DType) -> DType:
    """Return the dtype of the real part: complex64 -> float32, complex128 -> float64, others themselves."""
    parts: dict[DType, DType] = {complex64: float32, complex128: float64}
    return parts.get(dtype, dtype)


class iinfo_object:  # noqa: N801 - the standard's name
    """Limits of an integer dtype: bits, max, min, dtype."""

    __slots__ = ("bits", "dtype", "max", "min")

    def __init__(self, dtype: DType) -> None:
        info = np.iinfo(dtype)
        self.bits, self.max, self.min, self.dtype = info.bits, int(info.max), int(info.min), dtype

    def __repr__(self) -> str:
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype})"


class finfo_object:  # noqa: N801 - the standard's name
    """Limits of a floating dtype: bits, eps, max, min, smallest_normal (Python floats), dtype (the real one)."""

    __slots__ = ("bits", "dtype", "eps", "max", "min", "smallest_normal")

    def __init__(self, dtype: DType) -> None:
        info = np.finfo(dtype)
        self.bits, self.dtype = info.bits, real_of(dtype)
        self.eps, self.max, self.min = float(info.eps), float(info.max), float(info.min)
        self.smallest_normal = float(info.smallest_normal)

    def __repr__(self) -> str:
        return f"finfo(bits={self.bits}, eps={self.eps}, min={self.min}, max={self.max}, dtype={self.dtype})"


def dtype_of(value: Any, function: str) -> DType:
    """Return the dtype of a dtype-like value or of anything with a `dtype` attribute."""
    return canonical(getattr(value, "dtype", value), function, "type")


def iinfo(type: Any, /) -> iinfo_object:
    """Return the limits of an integer dtype, or of the dtype of an array.

    Raises TypeError for any other dtype. Standard: Data Type Functions, iinfo.
    """
    dtype = dtype_of(type, "iinfo")
    INTEGER.check(dtype, "iinfo", "type")
    return iinfo_object(dtype)


def finfo(type: Any, /) -> finfo_object:
    """Return the limits of a floating dtype, or of the dtype of an array; complex dtypes give their parts'.

    Raises TypeError for any other dtype. Standard: Data Type Functions, finfo.
    """
    dtype = dtype_of(type, "finfo")
    FLOATING.check(dtype, "finfo", "type")
    return finfo_object(dtype)


def can_cast(from_: Any, to: DType, /) -> Any:
    """Return whether `from_` (a dtype or an array) promotes to `to` without loss.

    Standard: Data Type Functions, can_cast; NumPy's "safe" casting.
    """
    source = canonical(getattr(from_, "dtype", from_), "can_cast", "from_")
    return np.can_cast(source, canonical(to, "can_cast", "to"), casting="safe")

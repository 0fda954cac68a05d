"""NumPy's own BLAS and LAPACK: the addresses of their functions, for machine code, and the number of their threads.

They are limited to one thread while our threads share products or tiles (codegen/cpu/holding.py). Two tiles on two
threads, each with a product on one thread, take about three quarters of the time of one product after the other on two
threads.
"""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

# The spellings of functions in the wheels of NumPy and elsewhere; `{}` begins with openblas or cblas.
_SPELLINGS = ("scipy_{}64_", "scipy_{}", "{}64_", "{}")

# The same for LAPACK's functions.
_FORTRAN = ("scipy_{}_64_", "scipy_{}_", "{}_64_", "{}_")


class _Controls(NamedTuple):
    """The library's functions that get and set the number of threads of a product."""

    get: Any
    set: Any


@cache
def _library() -> Any:
    """Return NumPy's extension module, which is linked to its BLAS; None where it cannot be loaded.

    On Windows a library shows its own functions only: there it is the BLAS that NumPy's wheels bring.
    """
    try:
        file = np._core._multiarray_umath.__file__  # type: ignore[attr-defined]
        beside = Path(file).parents[2].glob("numpy.libs/*openblas*.dll") if os.name == "nt" else ()
        return ctypes.CDLL(str(next(iter(beside), file)))
    except (AttributeError, OSError):
        return None


def _found(*names: str) -> list[Any] | None:
    """Return functions of the BLAS by name, None where it lacks one."""
    for spelling in _SPELLINGS:
        found = [getattr(_library(), spelling.format(name), None) for name in names]
        if all(found):
            return found
    return None


def has_function(*names: str) -> bool:
    """Return whether NumPy's BLAS, or a library it is linked to, has one of these functions, by their full names."""
    return any(hasattr(_library(), name) for name in names)


def thread_count() -> int | None:
    """Return the number of threads of OpenBLAS, None where NumPy has another BLAS."""
    found = controls()
    return None if found is None else int(found.get())


def core_name() -> str | None:
    """Return the kind of processor whose kernels OpenBLAS runs, None where NumPy has another BLAS."""
    found = _found("openblas_get_corename")
    if found is None:
        return None
    found[0].restype = ctypes.c_char_p
    return bytes(found[0]()).decode("ascii", "replace")


@cache
def address(name: str) -> int:
    """Return the address of a function of the BLAS, by its C name without `cblas_`; 0 where it is not known.

    Its integers can be given in 64 bits, whatever their size, as each is passed in a register or a word of its own.
    """
    found = None if sys.platform == "darwin" else _found(f"cblas_{name}", "openblas_get_num_threads")
    return ctypes.cast(found[0], ctypes.c_void_p).value or 0 if found else 0


@cache
def lapack_address(name: str, *, wide: bool) -> int:
    """Return the address of a function of the BLAS's LAPACK, by its name without underscores; 0 where it is not known.

    It takes pointers to integers of 32 or 64 bits. wide: whether those that it writes must have 64.
    """
    if sys.platform == "darwin" or sys.byteorder != "little" or thread_count() is None:
        return 0
    spellings = [one for one in _FORTRAN if not wide or "64" in one]
    found = next((one for one in [getattr(_library(), each.format(name), None) for each in spellings] if one), None)
    return 0 if found is None else ctypes.cast(found, ctypes.c_void_p).value or 0


@cache
def libm_address(name: str) -> int:
    """Return the address of a function of the C library that NumPy is linked to; 0 where it is not known."""
    found = getattr(ctypes.CDLL("ucrtbase") if os.name == "nt" else _library(), name, None)
    return 0 if found is None else ctypes.cast(found, ctypes.c_void_p).value or 0


@cache
def controls() -> _Controls | None:
    """Return the thread controls of OpenBLAS, None where they are not known."""
    found = _found("openblas_get_num_threads", "openblas_set_num_threads")
    return _Controls(*found) if found else None


def can_be_held() -> bool:
    """Return whether NumPy's products can be limited to one thread."""
    return controls() is not None

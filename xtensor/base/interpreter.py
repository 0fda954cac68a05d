"""Checks of the Python interpreter: in which ones xtensor works, and in which machine code can read its objects."""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from typing import Any

# The indices of functions in NumPy's table for extensions: part of its binary interface.
_OF_NUMPY = {"PyArray_Scalar": 60, "PyArray_FromScalar": 61, "PyArray_NewFromDescr": 94}


def check_interpreter() -> None:
    """Check the interpreter in which xtensor is being imported.

    Raises ImportError in a subinterpreter, as threads, machine code and NumPy belong to the whole process. Warns where
    Python runs without its global lock, on which much here relies.
    """
    if not _is_main():
        raise ImportError("xtensor: the interpreter must be the main one of its process, got a subinterpreter")
    gil = getattr(sys, "_is_gil_enabled", None)
    if gil is not None and not gil():
        text = "Python runs without its global lock, where xtensor is not known to be safe (PYTHON_GIL=1 sets it)"
        warnings.warn(f"xtensor: {text}", RuntimeWarning, stacklevel=3)


def has_known_objects() -> bool:
    """Return whether Python objects lie in memory as machine code expects: those of CPython with its global lock."""
    if sys.implementation.name != "cpython":
        return False
    import sysconfig  # not at import, where it is not needed

    return not sysconfig.get_config_var("Py_GIL_DISABLED")


def c_function(name: str) -> int:
    """Return the address of a function of Python's or NumPy's C API; raises AttributeError if there is none."""
    import ctypes  # not at import, as above

    if name not in _OF_NUMPY:
        return int(ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0)
    import numpy as np

    capsule: Any = np._core._multiarray_umath._ARRAY_API  # type: ignore[attr-defined]
    get = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
    return int(ctypes.c_uint64.from_address(get(capsule, None) + 8 * _OF_NUMPY[name]).value)


def _is_main() -> bool:
    """Return whether this is the main interpreter; True if Python cannot tell."""
    for name in ("_interpreters", "_xxsubinterpreters"):  # since Python 3.13, and before
        try:
            module = import_module(name)
        except ImportError:
            continue
        return bool(module.get_current() == module.get_main())
    return True

"""Elements as numbers: code that uses NumPy's names may ask isinstance() whether an element is a float.

An element, or a result without axes, is a tensor, as in every library of the standard. NumPy's scalars are instances of
Python's classes of numbers, and programs written for NumPy choose their way by that. So the answer depends on who asks:
modules that have `xtensor.numpy`, or something of it, among their names get NumPy's answer, and other libraries do not,
as many convert what is a number.
"""

from __future__ import annotations

import sys
from numbers import Complex, Integral, Real
from types import FunctionType
from typing import Any

_PACKAGE = __name__.partition(".")[0]
_ROOM = f"{_PACKAGE}.numpy"


class _Number:
    """Stands for the class of elements that are no instances of a class of Python's own numbers."""


def _classes() -> dict[str, type]:
    """Return the classes by dtypes, as NumPy's scalars have them; booleans have none."""
    found: dict[str, type] = {}
    kinds: Any = (Integral, "i", 8), (Integral, "u", 8), (Real, "f", 8), (Complex, "c", 16)
    for abstract, letter, sizes in kinds:
        marker: type = abstract.register(type(abstract.__name__, (_Number,), {}))
        found |= {f"{letter}{size}": marker for size in (1, 2, 4, 8, 16) if size <= sizes}
    return found | {"f8": float, "c16": complex}


_CLASSES = _classes()

# By the name of a module: the id of its names, how many they were, and whether NumPy's are among them.
_told: dict[str, tuple[int, int, bool]] = {}


def class_of(x: Any) -> type:
    """Return what isinstance() takes a tensor for: of an element, the class of a number if the module that asks uses
    NumPy's names.
    """
    kind = type(x)
    if not getattr(x, "_is_value", False) or _ROOM not in sys.modules:
        return kind
    frame: Any = sys._getframe(1)
    while frame.f_globals.get("__name__") == "abc":  # which asks for others
        frame = frame.f_back
    return _CLASSES.get(x.dtype.str[1:], kind) if _uses_names(frame.f_globals) else kind


def _uses_names(names: dict[str, Any]) -> bool:
    """Return whether the names of a module are those of a program that uses NumPy's; remembered until it gets more."""
    module = str(names.get("__name__"))
    known = _told.get(module)
    if known is not None and known[:2] == (id(names), len(names)):
        return known[2]
    found = module.partition(".")[0] != _PACKAGE and any(map(_is_numpys, list(names.values())))
    _told[module] = id(names), len(names), found
    return found


def _is_numpys(x: Any) -> bool:
    """Return whether an object is the room of NumPy's names, a module there, or a function or class of it."""
    if x is sys.modules[_ROOM]:
        return True
    kind = type(x)
    if kind is type(sys):
        return x.__name__.startswith(f"{_ROOM}.")
    is_named = kind is FunctionType or kind is type or str(kind.__module__).startswith(_ROOM)
    return is_named and str(getattr(x, "__module__", "")).startswith(_ROOM)

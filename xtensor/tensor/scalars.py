"""Values: tensors without axes that stand for numbers, as NumPy's scalars do, and what isinstance() takes them for.

An element, or a result without axes, is a tensor, as in every library of the standard, with a mark: operators make
another value of it, and do not change it. NumPy's scalars are instances of
Python's classes of numbers, and programs written for NumPy choose their way by that. So the answer depends on who asks:
modules that have `xtensor.numpy`, or something of it, among their names get NumPy's answer, and other libraries do not,
as many convert what is a number.
"""

from __future__ import annotations

import sys
from types import FunctionType
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")

_PACKAGE = __name__.partition(".")[0]
_ROOM = f"{_PACKAGE}.numpy"

# Modules of Python that ask for their callers.
_FOR_OTHERS = frozenset(("abc", "functools", "unittest.case"))

# By the name of a module: a name there, and what of NumPy's names it stands for; or the ids of all objects that it
# names, of which none is of these.
_found: dict[str, tuple[str, Any]] = {}
_without: dict[str, tuple[int, ...]] = {}


def is_value(x: Any) -> bool:
    """Return whether an object is a tensor without axes that stands for a scalar, which operators do not change."""
    data = getattr(x, "_content", None)  # of arrays it is told at once, as an attribute that is not there takes long
    return (type(data) is not np.ndarray or not data.ndim) and getattr(x, "_is_value", False)


def valued(x: T) -> T:
    """Mark a tensor that was computed or selected as a value if it has no axes, and return it."""
    one: Any = x
    if not one.shape:
        one._is_value = True
    return x


def marked(found: T, is_computed: bool) -> T:
    """Mark a tensor, or each of a tuple of them, as a value or as an array if it has no axes, and return it."""
    x: Any = found
    for one in x if issubclass(type(x), tuple) else (x,):  # isinstance() would ask a tensor for its class
        if hasattr(type(one), "_is_value") and not one.shape:
            one._is_value = is_computed
    return found


def class_of(x: Any) -> type:
    """Return what isinstance() takes a tensor for: an element for NumPy's scalar of its dtype, if the module that asks
    uses NumPy's names.
    """
    kind: type = type(x)
    data = x._content
    if type(data) is np.ndarray and data.ndim:  # told faster than that the mark of values is not there
        return kind
    if getattr(x, "_is_value", False) and _ROOM in sys.modules and _uses_names(_asking()):
        kind = x.dtype.type
    return kind


def _asking() -> dict[str, Any]:
    """Return the names of the module whose code asks for the class."""
    try:
        frame: Any = sys._getframe(2)
    except ValueError:  # a thread that runs no Python
        frame = None
    while frame is not None and frame.f_globals.get("__name__") in _FOR_OTHERS:
        frame = frame.f_back
    return {} if frame is None else frame.f_globals


def _uses_names(names: dict[str, Any]) -> bool:
    """Return whether the names of a module are those of a program that uses NumPy's; remembered until they change."""
    module = str(names.get("__name__"))
    if module.startswith(f"{_PACKAGE}."):
        return False
    name, one = _found.get(module, ("", None))
    if one is not None and names.get(name) is one:
        return True
    ids = tuple(map(id, names.values()))
    if _without.get(module) == ids:
        return False
    for name, one in list(names.items()):
        if _is_numpys(one):
            _found[module] = name, one
            return True
    _without[module] = ids
    return False


def _is_numpys(x: Any) -> bool:
    """Return whether an object is the room of NumPy's names, a module there, or a function or class of it."""
    kind = type(x)
    if kind is type(sys):
        return f"{getattr(x, '__name__', '')}.".startswith(f"{_ROOM}.")
    is_named = kind is FunctionType or kind is type or str(kind.__module__).startswith(_ROOM)
    return is_named and str(getattr(x, "__module__", "")).startswith(_ROOM)

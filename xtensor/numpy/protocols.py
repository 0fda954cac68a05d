"""NumPy's protocols, which handle calls of NumPy's own functions with tensors.

The calls stay in this library: they run the function of that name here, or the library's through the door. With
`xt.options(numpy="convert")` tensors become NumPy arrays first, as they do for code that only knows `__array__`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy

from ..autograd.rules import xt
from ..base.dtypes import can_hold
from ..base.errors import UnheldError, expected
from ..base.options import settings
from ..calls.thin import reflected
from ..devices.cpu import NUMBERS
from ..tensor.face import Tensor
from ..tensor.operands import SCALARS
from ..tensor.operators import MIRRORED, SPELLED
from .common import answers_itself, as_natives, own_answer
from .door import found_in, through
from .thin import AtOnce, of_floats
from .views import sliding_window_view

# The types of operands beside tensors that do not answer calls themselves.
_PLAIN = (Tensor, numpy.ndarray, numpy.generic)

# Our functions for NumPy's universal functions, once they were called, functions with which scipy.optimize takes what a
# user's function returned, and types of operands that need no checks.
_ours: dict[Any, Any] = {}
_LIFTS = frozenset((numpy.atleast_1d, numpy.atleast_2d, numpy.atleast_3d))
_QUIET = frozenset((Tensor, numpy.ndarray, *SCALARS, *NUMBERS))


def universal(ufunc: Any, method: str, inputs: tuple[Any, ...], given: dict[str, Any]) -> Any:
    """Answer a call of one of NumPy's universal functions with a tensor among its operands or results."""
    ours = _ours.get(ufunc)
    if ours is None or given or method != "__call__" or not _QUIET.issuperset(map(type, inputs)) or _converts(()):
        return _universal(ufunc, method, inputs, given)
    return ours(*_items(inputs))


def _universal(ufunc: Any, method: str, inputs: tuple[Any, ...], given: dict[str, Any]) -> Any:
    """Answer a call of a function that was not called before, or of other operands than arrays and numbers."""
    outs = given.get("out", ())
    others = [x for x in (*inputs, *outs) if answers_itself(x)]
    if others:
        return _their_answer(others, ufunc, method, inputs, given)
    name = ufunc.__name__
    if _converts(outs):
        return getattr(ufunc, method)(*map(as_natives, inputs), **{key: as_natives(x) for key, x in given.items()})
    if getattr(numpy, name, None) is not ufunc:  # another library's
        if method == "__call__" and not given and _is_special(ufunc):
            _ours[ufunc] = AtOnce(getattr(xt.special, name), of_floats(ufunc))
            return _ours[ufunc](*inputs)
        return through(name, getattr(ufunc, method), inputs, given)
    if ufunc is numpy.isnat:
        raise TypeError(expected(name, "x", "hold dates or differences of dates", inputs[0].dtype))
    ours = getattr(xt.numpy, name)
    if method != "__call__":
        return getattr(ours, method)(*inputs, **given)
    _ours[ufunc] = ours
    spelled = SPELLED.get(ours.function.__name__)
    if spelled is not None and ours.function is getattr(xt, ours.function.__name__) and ours.nin == 2:
        reflected[ufunc] = f"__{MIRRORED.get(spelled, f'r{spelled}')}__"
    return ours(*_items(inputs), **given)


def _their_answer(others: list[Any], ufunc: Any, method: str, inputs: tuple[Any, ...], given: dict[str, Any]) -> Any:
    """Return the answer of one of the operands that answer themselves: to the call as it is, as of an xarray.DataArray
    that holds tensors, or with arrays in place of tensors, as of a pandas.Series and of an astropy.Quantity.
    """
    for x in others:
        if not hasattr(x, "__array_ufunc__"):  # such as SciPy's sparse arrays, which have methods alone
            continue
        found = type(x).__array_ufunc__(x, ufunc, method, *inputs, **given)
        if found is not NotImplemented:
            return found
    return own_answer(getattr(ufunc, method), *inputs, **given)


def _items(inputs: tuple[Any, ...]) -> list[Any]:
    """Return operands with scalars in place of arrays without axes, as NumPy passes its scalars as such arrays."""
    return [x[()] if type(x) is numpy.ndarray and not x.ndim else x for x in inputs]


def _is_special(ufunc: Any) -> bool:
    """Return whether a universal function is one of SciPy's special functions, which have gradients here."""
    theirs = getattr(sys.modules.get("scipy.special"), ufunc.__name__, None)
    return getattr(theirs, "__wrapped__", theirs) is ufunc


def function(function: Callable[..., Any], types: Any, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
    """Answer a call of one of NumPy's functions with a tensor among its arguments."""
    if not all(issubclass(one, _PLAIN) for one in types):
        return NotImplemented
    if _converts((given.get("out"),)) or (function in _LIFTS and _is_called_by_optimizer()):
        return function(*map(as_natives, args), **{key: as_natives(x) for key, x in given.items()})
    path = ".".join([*function.__module__.split(".")[1:], function.__name__])
    ours = found_in(xt.numpy, path) if found_in(numpy, path) is function else None
    if path == "lib.stride_tricks.sliding_window_view":
        return sliding_window_view(*args, **given)
    if ours is None or ours is function:  # this library has no such name, or it is one of NumPy's own `lib`
        return through(function.__name__, function, args, given)
    found = ours(*args, **given)
    if type(found) is numpy.ndarray and not can_hold(found.dtype):  # libraries know arrays without such dtypes, and try
        must = "be of a boolean, integer, floating or complex dtype"
        raise UnheldError(expected(function.__name__, "the result", must, found.dtype))
    return found


def _is_called_by_optimizer() -> bool:
    """Return whether scipy.optimize calls one of NumPy's functions: with a tensor that a user's function returned, such
    as a gradient, which its compiled code takes as an array.
    """
    frame = sys._getframe(3)  # of whoever called NumPy's function, behind this one, `function` and the tensor's method
    return str(frame.f_globals.get("__name__", "")).startswith("scipy.optimize.")


def _converts(outs: Any) -> bool:
    """Return whether tensors are to be converted to arrays: by the option, or because the result is written to one."""
    return settings().numpy == "convert" or any(isinstance(x, numpy.ndarray) for x in outs)

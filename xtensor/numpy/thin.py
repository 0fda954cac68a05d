"""The thin way of NumPy's functions: for small computed arrays, NumPy's own function is called at once.

A function that is composed here calls ten of the standard's functions, which costs too much for small arrays.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import numpy

from ..base.dtypes import is_held
from ..base.options import thin_closed
from ..calls.library import is_shown
from ..devices.cpu import quickly
from ..plan.costs import COMPOSED_BELOW, LIBRARY_BELOW
from ..run.executor import count_thin_write
from ..storage.storage import Native
from ..tensor.face import CPU_DEVICE, Tensor, is_value, wrap
from ..tensor.operands import chosen_device
from .common import answers_itself, own_answer

# The types of arguments besides tensors, and lists and tuples of all these.
_PLAIN = frozenset((bool, int, float, complex, str, slice, type(None), type(Ellipsis)))

# Parameters by which a function writes an argument.
_WRITING = frozenset(("out", "overwrite_input", "copy"))

_DOUBLE = numpy.dtype(numpy.float64)
_FLOATS = frozenset((numpy.dtype(numpy.float32), _DOUBLE))

# More positional arguments than any call has.
_MANY = 1 << 30


class _LongWayError(Exception):
    """Raised if a call is not of the kind that is made at once."""


# The errors that send a call the long way: NumPy's errors, too, as the long way says better what is wrong.
LONG_WAY = (_LongWayError, ArithmeticError, LookupError, RuntimeError, TypeError, ValueError)


def at_once(function: Callable[..., Any], native: Any, most: int = LIBRARY_BELOW) -> Callable[..., Any]:
    """Return a function that calls NumPy's for small arrays, and the given function for all others; the latter also
    raises the errors for calls that NumPy refuses.

    native: NumPy's function. Results that lie in the memory of an argument take the long way, too, as they must share
    its owner.
    """

    limits: list[int] = []  # filled at the first call, as finding the limit takes longer than a call

    @wraps(function)
    def call(*args: Any, **given: Any) -> Any:
        if (
            thin_closed[0]
            or len(args) > (limits or _limited(limits, native, function))[0]
            or not _WRITING.isdisjoint(given)
        ):
            return by_the_long_way(args, given)
        try:
            return made_at_once(native, args, given, most)
        except LONG_WAY:
            return by_the_long_way(args, given)

    def by_the_long_way(args: tuple[Any, ...], given: dict[str, Any]) -> Any:
        if args and type(args[0]) is not Tensor and answers_itself(args[0]):
            return own_answer(native, *args, **given)
        return function(*args, **given)

    return call


def stably(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return NumPy's sort or argsort as a function that keeps equal elements in order, for calls that name no kind."""

    def native(
        a: Any, axis: int | None = -1, kind: Any = None, order: Any = None, *, stable: bool | None = None
    ) -> Any:
        if kind is not None or order is not None or stable is not None:
            raise _LongWayError
        a = numpy.asanyarray(a)
        if not is_held(a.dtype):  # argsort's positions would not tell that these were objects, as None is
            raise _LongWayError
        return function(a, axis, "stable")

    return native


def of_floats(ufunc: Any) -> Callable[..., Any]:
    """Return one of SciPy's universal functions for arrays of float32, or of float64 and Python's numbers, whose
    results have the dtype that they have for large arrays.
    """

    @wraps(ufunc)
    def native(*operands: Any) -> Any:
        kinds = {x.dtype if isinstance(x, numpy.ndarray) else _DOUBLE for x in operands}
        if len(kinds) > 1 or not kinds <= _FLOATS:
            raise _LongWayError
        return ufunc(*operands)

    return native


def made_at_once(native: Any, args: Iterable[Any], given: dict[str, Any], most: int = COMPOSED_BELOW) -> Any:
    """Return the result of NumPy's function for evaluated arrays of at most `most` bytes, and for numbers if the
    default device is the CPU; raises one of LONG_WAY if the long way is to be taken.
    """
    natives: list[Native] = []
    taken = _taken(args, natives, most)
    plain = _PLAIN.issuperset(map(type, given.values()))
    options = given if plain else dict(zip(given, _taken(given.values(), natives, most), strict=True))
    if not natives and chosen_device(None, "device") is not CPU_DEVICE:
        raise _LongWayError
    return _tensors(quickly(native, *taken, **options), natives)


def written_at_once(native: Any, operands: Iterable[Any], out: Tensor, most: int) -> bool:
    """Let NumPy write its function's result into an array that has no pending readers; return whether it did.

    most: the bytes of each array, at most.
    """
    if not _is_free(out, most):
        return False
    _start(out)
    try:
        quickly(native, *_taken(operands, [], most), out=out._data, casting="same_kind")
    except LONG_WAY:  # before anything was written
        return False
    finally:
        count_thin_write(out)
    return True


def changed_at_once(native: Any, target: Any, rest: Iterable[Any]) -> bool:
    """Let NumPy's function change a small evaluated array in place, with more arguments; return whether it did."""
    if type(target) is not Tensor or not _is_free(target, COMPOSED_BELOW):
        return False
    try:
        taken = _taken(rest, [])
    except LONG_WAY:
        return False
    _start(target)
    try:
        quickly(native, target._data, *taken)
    finally:
        count_thin_write(target)
    return True


def _start(x: Tensor) -> None:
    """Note that a write starts: an interrupt may come before it is counted."""
    if x._owner is not None:
        x._owner.changes += 1


def _is_free(x: Tensor, most: int) -> bool:
    """Return whether an array of up to so many bytes may be written at once, as it has no pending readers."""
    a, owner = x._data, x._owner
    free = x._blob is None if owner is None else owner.guard is None
    if thin_closed[0] or not free or type(a) is not numpy.ndarray or a.nbytes > most:
        return False
    return a.flags.writeable and not is_value(x)


def _limited(limits: list[int], native: Any, ours: Callable[..., Any]) -> list[int]:
    """Note how many positional arguments a NumPy function takes before the first by which it writes an argument."""
    try:
        parameters = inspect.signature(native).parameters.values()
    except ValueError:  # a built-in function may have no signature; our function has the same parameters
        parameters = inspect.signature(ours).parameters.values()
    names = [one.name for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    several = any(one.kind is one.VAR_POSITIONAL for one in parameters)
    most = _MANY if several else len(names)
    limits.append(min([names.index(name) for name in _WRITING.intersection(names)], default=most))
    return limits


def _taken(given: Iterable[Any], natives: list[Native], most: int = COMPOSED_BELOW) -> list[Any]:
    """Return arguments with arrays in place of small tensors; these arrays are added to `natives`."""
    found = []
    for x in given:
        kind = type(x)
        if kind is Tensor:
            x = x._data
            if type(x) is not numpy.ndarray or x.nbytes > most:
                raise _LongWayError
            natives.append(x)
        elif kind is numpy.ndarray:
            if x.nbytes > most or not is_held(x.dtype) or chosen_device(None, "device") is not CPU_DEVICE:
                raise _LongWayError
            natives.append(x)
        elif kind is list or kind is tuple:
            x = kind(_taken(x, natives, most))
        elif kind not in _PLAIN and not isinstance(x, (numpy.dtype, type)):
            raise _LongWayError
        found.append(x)
    return found


def _tensors(result: Any, natives: list[Native]) -> Any:
    """Return a result with tensors in place of its arrays and NumPy scalars."""
    kind = type(result)
    if kind is numpy.ndarray:
        if not is_held(result.dtype) or is_shown(result, natives):
            raise _LongWayError
        return wrap(result, CPU_DEVICE)
    if isinstance(result, numpy.generic):
        if not is_held(result.dtype):
            raise _LongWayError
        return wrap(result, CPU_DEVICE)
    if kind is list or isinstance(result, tuple):
        parts = [_tensors(one, natives) for one in result]
        return kind(*parts) if hasattr(result, "_fields") else kind(parts)
    return result

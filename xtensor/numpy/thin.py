"""The thin way of NumPy's functions: for small computed arrays, NumPy's own function is called at once.

A function that is composed here calls ten of the standard's functions, which costs too much for small arrays.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import update_wrapper, wraps
from types import MethodType
from typing import Any

import numpy

from ..base.dtypes import is_held
from ..base.errors import UnheldError
from ..base.options import settings, thin_closed
from ..calls.library import LONG_WAY, LongWayError, tensors_of
from ..calls.thin import WRITTEN_NAMES, Called, called
from ..devices.cpu import quickly
from ..plan.costs import COMPOSED_BELOW, LIBRARY_BELOW
from ..run.executor import count_thin_write
from ..storage.storage import Native
from ..tensor.face import CPU_DEVICE, Tensor
from ..tensor.operands import chosen_device
from ..tensor.scalars import is_value, marked
from .common import answers_itself, own_answer

# The types of arguments besides tensors, and lists and tuples of all these.
_PLAIN = frozenset((bool, int, float, complex, str, slice, type(None), type(Ellipsis)))

_DOUBLE = numpy.dtype(numpy.float64)
_FLOATS = frozenset((numpy.dtype(numpy.float32), _DOUBLE))

# More positional arguments than any call has.
_MANY = 1 << 30


class AtOnce(Called):
    """A function that calls NumPy's for small arrays, and the given function for all others; the latter also raises the
    errors for calls that NumPy refuses.

    native: NumPy's function. Results that lie in the memory of an argument take the long way, too, as they must share
    its owner. is_computed: whether NumPy's results without axes are scalars, and not arrays.
    """

    __qualname__: str  # the given function's
    _elements = 0

    def __init__(
        self, function: Callable[..., Any], native: Any, most: int = LIBRARY_BELOW, *, is_computed: bool = True
    ) -> None:
        update_wrapper(self, function)
        self._function, self._native, self._most, self._is_computed = function, native, most, is_computed
        self._limit = -1  # told at the first call, as finding it takes longer than a call

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """Act as a method where a class has this as an attribute, as NumPy's functions in Python do."""
        binds = instance is not None and hasattr(type(self._native), "__get__")
        return MethodType(self, instance) if binds else self

    def __reduce__(self) -> str:
        return str(self.__qualname__)

    def __repr__(self) -> str:
        return f"<function {self.__qualname__}>"

    def _answer(self, *args: Any, **given: Any) -> Any:
        limit = self._limit if self._limit >= 0 else self._told()
        if len(args) > limit or not WRITTEN_NAMES.isdisjoint(given):
            return self._by_the_long_way(args, given)
        if not thin_closed[0]:
            try:
                return made_at_once(self._native, args, given, self._most)
            except LONG_WAY:
                pass
        found = self._by_the_long_way(args, given)
        return found if any(found is x for x in args) else marked(found, self._is_computed)

    def _told(self) -> int:
        """Note how many positional arguments are taken, and tell machine code of this function."""
        self._limit = _limit_of(self._native, self._function)
        tell(self, self._native, self._limit, None if type(self) is Creating else False, self._elements)
        return self._limit

    def _by_the_long_way(self, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
        if any(type(x) is not Tensor and answers_itself(x) for x in args):
            return own_answer(self._native, *args, **given)
        try:
            return self._function(*args, **given)
        except UnheldError:
            return own_answer(self._native, *args, **given)


class Creating(AtOnce):
    """A function that makes an array of numbers or lists: machine code lets NumPy make up to so many elements; in
    Python the given function does.
    """

    def __init__(self, function: Callable[..., Any], native: Any, most: int) -> None:
        super().__init__(function, native)
        self._elements = most

    def _answer(self, *args: Any, **given: Any) -> Any:
        if self._limit < 0:
            self._told()
        try:
            return self._function(*args, **given)
        except UnheldError:
            return own_answer(self._native, *args, **given)


def or_natively(function: Callable[..., Any], native: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls NumPy's for what no tensor holds."""

    @wraps(function)
    def call(*args: Any, **given: Any) -> Any:
        try:
            return function(*args, **given)
        except UnheldError:
            return own_answer(native, *args, **given)

    return call


def tell(one: Called, native: Any, most: int, is_universal: bool | None, elements: int = 0) -> None:
    """Let machine code call NumPy's function for one of ours: see `called`."""
    if settings().device == "cpu":  # under the options of a block it asks
        called[one] = native, most, is_universal, elements


def stably(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return NumPy's sort or argsort as a function that keeps equal elements in order, for calls that name no kind."""

    def native(
        a: Any, axis: int | None = -1, kind: Any = None, order: Any = None, *, stable: bool | None = None
    ) -> Any:
        if kind is not None or order is not None or stable is not None:
            raise LongWayError
        a = numpy.asanyarray(a)
        if not is_held(a.dtype):  # argsort's positions would not tell that these were objects, as None is
            raise LongWayError
        return function(a, axis, "stable")

    native.library = function  # type: ignore[attr-defined]
    return native


def of_floats(ufunc: Any) -> Callable[..., Any]:
    """Return one of SciPy's universal functions for arrays of float32, or of float64 and Python's numbers, whose
    results have the dtype that they have for large arrays.
    """

    @wraps(ufunc)
    def native(*operands: Any) -> Any:
        kinds = {x.dtype if isinstance(x, numpy.ndarray) else _DOUBLE for x in operands}
        if len(kinds) > 1 or not kinds <= _FLOATS:
            raise LongWayError
        return ufunc(*operands)

    native.library = ufunc  # type: ignore[attr-defined]
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
        raise LongWayError
    return tensors_of(quickly(native, *taken, **options), natives)


def written_at_once(native: Any, operands: Iterable[Any], out: Tensor, most: int) -> bool:
    """Let NumPy write its function's result into an array that has no pending readers; return whether it did.

    most: the bytes of each array, at most.
    """
    if not _is_free(out, most):
        return False
    _start(out)
    try:
        quickly(native, *_taken(operands, [], most), out=out._content, casting="same_kind")
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
        quickly(native, target._content, *taken)
    finally:
        count_thin_write(target)
    return True


def _start(x: Tensor) -> None:
    """Note that a write starts: an interrupt may come before it is counted."""
    if x._owner is not None:
        x._owner.changes += 1


def _is_free(x: Tensor, most: int) -> bool:
    """Return whether an array of up to so many bytes may be written at once, as it has no pending readers."""
    a, owner = x._content, x._owner
    free = x._blob is None if owner is None else owner.guard is None
    if thin_closed[0] or not free or type(a) is not numpy.ndarray or a.nbytes > most:
        return False
    return a.flags.writeable and not is_value(x)


def _limit_of(native: Any, ours: Callable[..., Any]) -> int:
    """Return how many positional arguments a NumPy function takes before the first by which it writes an argument."""
    try:
        parameters = inspect.signature(native).parameters.values()
    except ValueError:  # a built-in function may have no signature; our function has the same parameters
        parameters = inspect.signature(ours).parameters.values()
    names = [one.name for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    several = any(one.kind is one.VAR_POSITIONAL for one in parameters)
    most = _MANY if several else len(names)
    return min([names.index(name) for name in WRITTEN_NAMES.intersection(names)], default=most)


def _taken(given: Iterable[Any], natives: list[Native], most: int = COMPOSED_BELOW) -> list[Any]:
    """Return arguments with arrays in place of small tensors; these arrays are added to `natives`."""
    found = []
    for x in given:
        kind = type(x)
        if kind is Tensor:
            x = x._content
            if type(x) is not numpy.ndarray or x.nbytes > most:
                raise LongWayError
            natives.append(x)
        elif kind is numpy.ndarray:
            if x.nbytes > most or not is_held(x.dtype) or chosen_device(None, "device") is not CPU_DEVICE:
                raise LongWayError
            natives.append(x)
        elif kind is list or kind is tuple:
            x = kind(_taken(x, natives, most))
        elif kind not in _PLAIN and not isinstance(x, (numpy.dtype, type)):
            raise LongWayError
        found.append(x)
    return found

"""Signatures: what calls of a captured function have in common, and the tensors that it reads.

That are its arguments, and what it finds by its names: globals, closures, and attributes of objects among these. All of
it is looked up again at every call: tensors are arguments like others, constants part of the signature.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from enum import Enum
from functools import partial
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from ..autograd.tape import active, steps_of
from ..devices import Device
from ..plan.costs import STREAM_BYTES
from ..storage.blob import TBlob
from ..storage.pool import ALIGNMENT
from ..tensor.face import CPU_DEVICE, Tensor

# Why there is no signature.
NO_TENSOR = "[none] no argument is a tensor"
GRADIENT = "[gradient] an argument takes part in a gradient (fuse the function that computes the gradient)"
ELSEWHERE = "[device] its arguments are on different devices"

# Elements up to which a list or dict of constants is part of a signature, and how deep objects are looked into.
MOST_ELEMENTS, DEEPEST = 64, 4

# Modules whose functions and constants stay what they are.
_LIBRARIES = frozenset((*sys.stdlib_module_names, "xtensor", "numpy", "scipy", "cupy", "array_api_compat", "tqdm"))

# Kinds of constants that are equal only where nobody can tell them apart, or that are compared by identity.
_PLAIN = frozenset((int, bool, str, bytes, type(None), type(Ellipsis), FunctionType, BuiltinFunctionType, ModuleType))
_IMMUTABLE = (np.dtype, np.ufunc, type, Enum, Device)


def constant_of(x: Any) -> tuple[Any, ...] | None:
    """Return what tells a constant from all others, its type first; None for what is none, as it may change."""
    kind = type(x)
    if kind in _PLAIN:
        return kind, x
    if kind is float:
        return kind, x.hex()  # -0.0 is not 0.0, and NaN is NaN
    if kind is complex:
        return kind, x.real.hex(), x.imag.hex()
    if kind is tuple:
        parts = [constant_of(part) for part in x]
        return None if None in parts else (kind, *parts)
    if kind is slice:
        return constant_of((slice, x.start, x.stop, x.step))
    if isinstance(x, np.generic):
        return kind, x.tobytes()
    return (kind, x) if isinstance(x, _IMMUTABLE) else None


class Reach:
    """What a function can find by its names.

    names: all that its code mentions, and that of functions it finds. places: where values are found that are neither
    code nor libraries: a dict and a key, or a cell.
    """

    def __init__(self, function: Any) -> None:
        self.names: frozenset[str] = frozenset()
        self.places: list[tuple[dict[Any, Any], Any] | CellType] = []
        self._seen: set[int] = set()
        if isinstance(function, MethodType):
            self._at(({"self": function.__self__}, "self"), function.__self__)
        self._of(function)

    def _of(self, function: Any) -> None:
        """Take in a function, and those that it finds."""
        if isinstance(function, partial):
            bound = dict(enumerate(function.args)) | function.keywords
            for name, value in bound.items():
                self._at((bound, name), value)
            function = function.func
        function = getattr(function, "__wrapped__", function)
        function = function.__func__ if isinstance(function, MethodType) else function
        if not isinstance(function, type) and not hasattr(function, "__code__"):
            self._of_object(function)
            return
        code = getattr(function, "__code__", None)
        if not isinstance(code, CodeType) or id(code) in self._seen:
            return
        self._seen.add(id(code))
        names = set(_names(code))
        self.names |= names
        for name in sorted(names & function.__globals__.keys()):
            self._at((function.__globals__, name), function.__globals__[name])
        for cell in function.__closure__ or ():
            try:
                self._at(cell, cell.cell_contents)
            except ValueError:  # an empty cell
                self.places.append(cell)

    def _of_object(self, x: Any) -> None:
        """Take in an object that is called, and the functions among its attributes."""
        if isinstance(x, BuiltinFunctionType) or not hasattr(x, "__dict__") or id(x) in self._seen:
            return
        self._seen.add(id(x))
        self.places.append(({"self": x}, "self"))
        self._of(next((vars(kind)["__call__"] for kind in type(x).__mro__ if "__call__" in vars(kind)), None))
        for name in sorted(self.names & vars(x).keys()):
            if callable(vars(x)[name]):
                self._of(vars(x)[name])

    def _at(self, place: Any, value: Any) -> None:
        if _is_library(value):
            return
        self.places.append(place)
        if isinstance(value, (FunctionType, MethodType)) or hasattr(value, "__wrapped__"):
            self._of(value)

    def values(self) -> Iterator[Any]:
        """Yield what is found now."""
        for place in self.places:
            if type(place) is tuple:
                yield place[0].get(place[1])
            else:
                try:
                    yield place.cell_contents  # type: ignore[union-attr]
                except ValueError:
                    yield None


def _is_library(value: Any) -> bool:
    """Return whether a value is a module, function or class of a library, which stays what it is."""
    if isinstance(value, ModuleType):
        return value.__name__.partition(".")[0] in _LIBRARIES
    if isinstance(value, (FunctionType, BuiltinFunctionType, type)):
        return str(value.__module__).partition(".")[0] in _LIBRARIES
    return isinstance(value, np.ufunc)


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names that code mentions, with those of functions defined in it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


class _Key:
    """A signature while it is put together. device: where all memory is. reason: why there is none."""

    __slots__ = ("blobs", "device", "key", "names", "reason", "tensors")

    def __init__(self, names: frozenset[str]) -> None:
        self.key: list[Any] = []
        self.tensors: list[Tensor] = []
        self.blobs: list[TBlob] = []
        self.names = names
        self.device = CPU_DEVICE
        self.reason = ""

    def tensor(self, x: Tensor) -> None:
        """Enter a tensor; what is pending is evaluated."""
        data = x._data
        blob = data if type(data) is TBlob else x.blob
        if blob.device is not self.device:
            self._move(blob.device)
        self.key.append(blob._kind or blob.kind)
        self.tensors.append(x)
        self.blobs.append(blob)

    def _move(self, device: Device) -> None:
        """Expect memory on another device than the CPU."""
        if self.tensors:
            self.reason = ELSEWHERE
        self.device = device
        self.key.append(device)

    def value(self, x: Any, depth: int, *, given: bool) -> None:
        """Enter a value. given: whether it is an argument: what may change is then a reason."""
        constant = constant_of(x)
        if constant is not None:
            self.key += constant
        elif isinstance(x, (list, tuple, dict)):
            self.key += (type(x), len(x))
            if len(x) > MOST_ELEMENTS or depth >= DEEPEST:
                self.reason = self.reason or _changing(x, given)
                return
            if isinstance(x, dict):
                self.value(tuple(x), depth + 1, given=given)
            for part in x.values() if isinstance(x, dict) else x:
                self.enter(part, depth + 1, given=given)
        elif getattr(type(x), "draws", False):  # a generator of random numbers: this very one
            self.key.append(x)
        elif isinstance(x, ModuleType) or hasattr(x, "__dict__"):
            self._object(x, depth)
        elif given:
            self.reason = self.reason or _changing(x, given)

    def enter(self, x: Any, depth: int, *, given: bool) -> None:
        """Enter a tensor or another value."""
        if type(x) is Tensor:
            self.tensor(x)
        else:
            self.value(x, depth, given=given)

    def _object(self, x: Any, depth: int) -> None:
        """Enter the attributes of an object that the function's code mentions."""
        self.key.append(type(x))
        if depth >= DEEPEST:
            return
        own = vars(x)
        for name in sorted(self.names & own.keys()):
            if not _is_library(own[name]):
                self.key.append(name)
                self.enter(own[name], depth + 1, given=False)
        for kind in type(x).__mro__:
            if kind.__module__ != "builtins":
                for name in sorted((self.names & vars(kind).keys()) - own.keys()):
                    value = vars(kind)[name]
                    if not callable(value) and constant_of(value) is not None:
                        self.key += (name, constant_of(value))


def _changing(x: Any, given: bool) -> str:
    return f"[changing] {'an argument' if given else 'what it reads'} is of type {type(x).__name__}, which may change"


def signature_of(args: tuple[Any, ...], kwargs: dict[str, Any], reach: Reach) -> Any:
    """Return what calls of a kind have in common, the tensors that they read, and their bytes; or why there is none."""
    found = _Key(reach.names)
    if kwargs:
        found.key.append(tuple(kwargs))
    for x in (*args, *kwargs.values()) if kwargs else args:
        if type(x) is Tensor:
            found.tensor(x)
        else:
            found.value(x, 0, given=True)
    if reach.places:
        for value in reach.values():
            found.enter(value, 0, given=False)
    if found.reason or not found.tensors:
        return found.reason or NO_TENSOR
    if active[0] and _takes_part(found.tensors, found.blobs):
        return GRADIENT
    _enter_whereabouts(found)
    return tuple(found.key), found.tensors, found.blobs


def _takes_part(tensors: list[Tensor], blobs: list[TBlob]) -> bool:
    """Return whether a tensor has a gradient, or lies in memory with a history of writes that have one."""
    return steps_of(tuple(tensors)) is not None or any(blob.owner.history is not None for blob in blobs)


def _enter_whereabouts(found: _Key) -> None:
    """Enter how memory lies: of each pair that overlaps its places, how far apart they begin, and whether they are one
    object; of large memory, how many bytes after a place where vectors begin.
    """
    spans: list[tuple[int, int]] = []
    blobs = found.blobs
    for place, blob in enumerate(blobs):
        low, high = span = blob._span or blob.span
        if high - low >= STREAM_BYTES:
            found.key.append(blob.address % ALIGNMENT)
        for other, (begin, end) in enumerate(spans):
            if low < end and begin < high:
                same = found.tensors[place] is found.tensors[other]
                found.key += (place, other, blob.address - blobs[other].address, same)
        spans.append(span)

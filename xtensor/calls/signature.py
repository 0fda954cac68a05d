"""Signatures: keys that equal calls of a captured function share, and the tensors that these calls read.

They are made from the arguments, and the values that the function finds by names: globals, closures, and attributes of
objects among these. All are looked up again at every call: tensors count as arguments, constants are part of the
signature.
"""

from __future__ import annotations

import sys
from _thread import LockType, RLock
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum
from functools import lru_cache, partial
from itertools import repeat
from re import Pattern
from types import BuiltinFunctionType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any, cast
from weakref import ReferenceType

import numpy as np

from ..autograd.tape import Leaf, active, mode, steps_of
from ..base.options import settings
from ..devices import Device
from ..devices.cpu import bits_of
from ..graph.number import KINDS
from ..plan.costs import STREAM_BYTES
from ..storage.blob import TBlob
from ..storage.pool import ALIGNMENT
from ..tensor.face import CPU_DEVICE, Tensor
from ..tensor.scalars import is_value
from .arrays import MOST_COPIED, MOST_FOUND, Snapshot
from .given import MOST_ELEMENTS, bounds_of, is_remade
from .reach import (
    MOST_OBJECTS,
    NOTHING,
    LateReach,
    Reach,
    behind,
    constant_of,
    dict_of,
    form_of,
    is_code,
    is_open,
    is_plain,
    slots_of,
    stays,
    value_in,
    wrapped,
)
from .rebound import Log

# Why there is no signature.
NO_TENSOR = "[none] no argument is a tensor, and what is made does not lie on the CPU"
GRADIENT = (
    "[gradient] an argument, or a tensor that it finds, takes part in a gradient (fuse the function that computes the "
    "gradient, by backward(), xt.value_and_grad or xt.grad)"
)
ELSEWHERE = "[device] its arguments are on different devices"

# Names by which code reaches memory that an array does not show.
_BEHIND = frozenset(("base", "as_strided", "ctypes", "__array_interface__"))

# Types of constants that belong to a module.
_NAMED = frozenset((FunctionType, BuiltinFunctionType, ModuleType, type))

# Types of constants that are distinguished by comparing them, and types that have elements.
_COMPARED = frozenset((int, bool, str, bytes, type(None)))
_ELEMENTS = (list, tuple, dict, MappingProxyType, set, frozenset, deque)

# Names by which a function reads accumulated gradients.
_GRADIENTS = frozenset(("backward", "grad"))

# Attributes that Python gives to dataclasses, and nobody changes.
AS_MADE = frozenset(("__dataclass_fields__", "__dataclass_params__"))

# Types of objects that have no value to read, or always the same one.
_IDENTITIES = (LockType, RLock, Pattern, range, LateReach)


class _Key:
    """A signature while it is put together. device: where all memory is. reason: why there is no signature. name: the
    name by which the function finds the value that is entered.

    arrays: NumPy arrays whose contents are part of it. holders: the values that were looked into, in order: lists and
    their kin, dicts, objects, classes and modules. logs: the indices among these of lists that are only appended to, by
    id. numbers: for numbers that are arguments, or in lists, dicts and objects, the place in the key, the value, the
    index of the holder and the name there: -1 and None for arguments, -1 and the tuple's id for elements of argument
    tuples, however nested. direct: whether the value that is entered is an argument, or in such a tuple.
    """

    __slots__ = (
        *("arrays", "blobs", "device", "direct", "holders", "key", "logs", "name", "numbers", "reach", "reason"),
        *("seen", "tensors"),
    )

    def __init__(self, reach: Reach) -> None:
        self.key: list[Any] = [reach.version]
        self.tensors: list[Tensor] = []
        self.blobs: list[TBlob] = []
        self.reach = reach
        self.device = CPU_DEVICE
        self.reason = self.name = ""
        self.seen: dict[int, int] = {}
        self.arrays: list[Snapshot] = []
        self.holders: list[Any] = []
        self.logs: dict[int, int] = {}
        self.numbers: list[tuple[int, Any, int, Any]] = []
        self.direct = False

    def tensor(self, x: Tensor) -> None:
        """Enter a tensor; a pending one is evaluated."""
        data = x._content
        blob = data if type(data) is TBlob else x.blob
        if blob.device is not self.device:
            self._move(blob.device)
        self.key.append(blob._kind or blob.kind)
        if not blob.shape:
            self.key.append(is_value(x))
        self.tensors.append(x)
        self.blobs.append(blob)
        if x._step is not None:
            self._leaf(x)

    def _leaf(self, x: Tensor) -> None:
        """Enter that a tensor asks for its gradient, and the gradient accumulated so far like an attribute."""
        step = x._step
        if type(step) is not Leaf or not step.asked:
            return
        self.key += (Leaf, mode())
        if id(step) in self.seen:
            self.key.append(self.seen[id(step)])
        elif self.reach.every or not _GRADIENTS.isdisjoint(self.reach.names):
            self.seen[id(step)] = len(self.seen)
            self.holders.append(x)
            self.key.append(None if step.grad is None else Tensor)
            if step.grad is not None:
                self.tensor(step.grad)

    def _move(self, device: Device) -> None:
        """Expect memory on another device than the CPU."""
        if self.tensors:
            self.reason = ELSEWHERE
        self.device = device
        self.key.append(device)

    def places(self, places: Sequence[list[Any]]) -> None:
        """Enter the values that are in some places now."""
        for place in places:
            where, name, last, part, form = place
            value = value_in(where, name)
            if value is NOTHING:
                place[2:] = None, None, None
                self.key.append(NOTHING)
                continue
            if part is not None and value is last:
                if form is None:
                    self.key += part
                    continue
                same = value.__code__ is form[0] and value.__defaults__ is form[1] and value.__kwdefaults__ is form[2]
                if same and not value.__dict__:
                    self.key += part  # values that it finds have places of their own
                    self.seen.setdefault(id(value), len(self.seen))
                    continue
            self.name = name
            if self.reach.is_log(name, value):
                self._log(value)
                continue
            self.enter(value, given=False)
            if isinstance(value, FunctionType):
                place[2:] = value, constant_of(value), form_of(value)
            elif type(value) is not Tensor and is_plain(value):
                place[2:] = value, constant_of(value), None

    def enter(self, x: Any, *, given: bool) -> None:
        """Enter a tensor or another value. given: whether it is an argument."""
        kind = type(x)
        if kind is Tensor:
            self.tensor(x)
            return
        if is_compared(x):
            self.key += (kind, x)
            return
        if kind is slice and self.direct:
            self.key.append(kind)
            self._parts(bounds_of(x), given, names=repeat(id(x), 3))
            return
        changes = kind is dict or kind is list or kind is np.ndarray
        constant = None if changes else constant_of(x)
        if constant is not None:
            self.key += constant
            if kind in _NAMED:
                self.reach.note(x)
            if is_plain(x):
                return
        elif id(x) in self.seen:
            self.key.append(("again", self.seen[id(x)]))
            if not self.direct and is_remade(x):  # its numbers here are constants
                self.numbers = [one for one in self.numbers if one[2] >= 0 or one[3] is None]
        if id(x) not in self.seen:
            self.seen[id(x)] = len(self.seen)
            direct, self.direct = self.direct, self.direct and constant is None and is_remade(x)
            if len(self.seen) > MOST_OBJECTS:
                self._refuse(x, given)
            elif kind is np.ndarray:
                self._contents(x, given)
            elif changes:
                self._elements(x, given)
            elif constant is not None:
                self._namespace(x)
            else:
                self._whole(x, given)
            self.direct = direct

    def _namespace(self, x: Any) -> None:
        """Enter a constant that contains values to look up: of a module or class its mentioned attributes."""
        if isinstance(x, tuple):
            for part in x:
                self.enter(part, given=False)
            return
        if isinstance(x, FunctionType) and not self.reach.take(x):
            self._refuse(x, False)
        if isinstance(x, type):
            self.holders.append(x)
            self.reach.meet(x, makes=True)
            self._shared(x, ())
            if not stays(type(x)):  # its metaclass
                self.reach.meet(type(x))
                self._shared(type(x), ())
        elif isinstance(x, Enum):
            self._object(x, type(x))
            self.enter(x.value, given=False)
        elif isinstance(x, BuiltinFunctionType):
            self.enter(x.__self__, given=False)
        else:
            self.holders += (x,) * isinstance(x, ModuleType)
            self._attributes(vars(x))

    def _whole(self, x: Any, given: bool) -> None:
        """Enter a value that is no constant by its elements or attributes."""
        kind: Any = type(x)
        if has_attributes(kind) and (not stays(kind) or wrapped(x) is None):
            self._object(x, kind)
        elif isinstance(x, _ELEMENTS):
            self._elements(x, given)
        elif isinstance(x, np.ndarray):
            self._contents(x, given)
        elif isinstance(x, _IDENTITIES) or kind is object or getattr(kind, "draws", False) or _is_log(kind):
            if isinstance(x, LockType) and "locked" in self.reach.names:
                self._refuse(x, given)
            self.key.append(x)  # a random generator that draws in order counts as itself
            self.key += [cast(Any, x).getEffectiveLevel()] if _is_log(kind) else ()
        elif isinstance(x, (MethodType, partial)):
            self.key.append(kind)
            for part in (x.__func__, x.__self__) if isinstance(x, MethodType) else (x.func, x.args, x.keywords):
                self.enter(part, given=given)
        elif wrapped(x) is not None:
            self.reach.note(x)
            self.key.append(kind)
            self.enter(wrapped(x), given=given)
        elif kind is ReferenceType:
            self.key.append(kind)
            self.enter(x(), given=given)
        elif behind(x):
            self.key.append(kind)
            for part in behind(x):
                self.enter(part, given=given)
        else:
            self._refuse(x, given)

    def _refuse(self, x: Any, given: bool) -> None:
        whose = "an argument" if given else f"what it reads by the name {self.name}" if self.name else "what it reads"
        hint = " (a tensor of it, by xt.asarray, is read anew in each call)" if isinstance(x, np.ndarray) else ""
        self.reason = self.reason or f"[changing] {whose} is of type {type(x).__name__}, which may change{hint}"

    def _elements(self, x: Any, given: bool) -> None:
        """Enter the elements of a list and its kin, and the attributes of one of a user-defined class."""
        kind = type(x)
        self.key += (kind, len(x))
        if not stays(kind):
            own = dict_of(x)
            self.reach.meet(kind)
            self.holders += (own,) * bool(kind.__dictoffset__)
            self._attributes(own)
            self._shared(kind, own)
        holder = -1 if issubclass(kind, (tuple, MappingProxyType, set, frozenset)) else len(self.holders)
        self.holders += (x,) * (not isinstance(x, tuple))
        if kind is defaultdict:
            self.enter(x.default_factory, given=given)
        if len(x) > MOST_ELEMENTS:
            self._refuse(x, given)
        elif isinstance(x, (set, frozenset)):
            constants = [constant_of(one) for one in x]
            self.key.append(frozenset(constants))
            if None in constants:
                self._refuse(x, given)
        elif isinstance(x, (dict, MappingProxyType)):
            now = dict(x)  # another thread may add to it
            self._parts(now, given)
            self._parts(now.values(), given, holder, now)
        else:
            self._parts(x, given, holder, repeat(id(x), len(x)) if self.direct else range(len(x)))

    def _parts(self, parts: Collection[Any], given: bool, holder: int = -1, names: Iterable[Any] = ()) -> None:
        """Enter elements, all at once if they are only compared. names: the name of each in its holder."""
        kinds = [*map(type, parts)]
        is_told = holder >= 0 or self.direct
        if _COMPARED.issuperset(kinds):
            self.key += kinds
            if is_told and int in kinds:
                every = enumerate(zip(parts, names, strict=True), len(self.key))
                self.numbers += [(place, part, holder, name) for place, (part, name) in every if type(part) is int]
            self.key.extend(parts)  # `+=` could call a method of a user-defined list
            return
        for part, name in zip((*parts,), names if is_told else repeat(None), strict=False):
            if is_told and type(part) in KINDS:
                self.numbers.append((len(self.key) + 1, part, holder, name))
            self.enter(part, given=given)

    def _contents(self, x: Any, given: bool) -> None:
        """Enter a NumPy array that is found by name: a constant as long as its contents stay the same."""
        found = None
        hides = x.base is not None and not _BEHIND.isdisjoint(self.reach.names)  # it hides memory that code may reach
        if type(x) is np.ndarray and not (given or x.dtype.hasobject or hides):
            found = self.reach.copies.snapshot(len(self.arrays), x)
        if found is None or sum([one.array.nbytes for one in self.arrays]) > MOST_FOUND:
            self._refuse(x, given)
        else:
            self.key += found.key
            self.arrays.append(found)

    def _object(self, x: Any, kind: type) -> None:
        """Enter an object by its mentioned attributes; a library's object by all."""
        self.key.append(kind)
        self.holders.append(x)
        self.reach.meet(kind)
        own, slots = dict_of(x), slots_of(kind)
        if slots:
            own = own | {name: getattr(x, name) for name in slots if hasattr(x, name)}
        self._attributes(own, every=stays(kind), holder=len(self.holders) - 1)
        self._shared(kind, own)

    def _shared(self, kind: type, own: Collection[str]) -> None:
        """Enter the attributes that objects of a class share, which are no code and not overridden by their own."""
        for base in kind.__mro__[:-1]:
            if not stays(base):
                every = vars(base)
                for name in self.reach.mentioned(every):
                    if name in AS_MADE:
                        self.key.append((base, name, id(every[name])))
                    elif name not in own and self.reach.is_log(name, every[name]):
                        self._log(every[name])
                    elif name not in own and not is_code(every[name]):
                        self.key.append((base, name))
                        self.enter(every[name], given=False)

    def _attributes(self, own: Mapping[str, Any], *, every: bool = False, holder: int = -1) -> None:
        """Enter those of some attributes that are mentioned, or every one. holder: the number of the object."""
        for name, value in list(own.items()) if every else self.reach.own_of(own, in_order=holder >= 0):
            if type(value) is not Tensor and stays(value):
                self.key += (name, value)
                self.reach.note(value)
            else:
                self.key.append(name)
                if self.reach.is_log(name, value):
                    self._log(cast(Any, value))
                    continue
                if holder >= 0 and type(value) in KINDS:
                    self.numbers.append((len(self.key) + 1, value, holder, name))
                self.enter(value, given=False)

    def _log(self, x: list[Any]) -> None:
        """Enter a list that is only appended to by its name here: which of these lists it is, not its contents. One
        that was entered by another name, which is read, counts as that.
        """
        if id(x) in self.seen:
            self.key.append(("again", self.seen[id(x)]))
            return
        number = self.logs.setdefault(id(x), len(self.holders))
        self.key.append((Log, number))
        if number == len(self.holders):
            self.holders.append(Log(x))

    def forget_logs(self) -> None:
        """Make ordinary lists of logs that were entered by another name afterwards: NOTHING takes their place among the
        holders.
        """
        for x, number in self.logs.items():
            if x in self.seen:
                self.key.append((Log, number, self.seen[x]))
                self.holders[number] = NOTHING


def is_compared(x: Any) -> bool:
    """Return whether a constant is the same as any of its type that equals it: 0.0 is not -0.0, and NaN is NaN."""
    kind = type(x)
    return kind in _COMPARED or (kind is float and x != 0 and x == x)


@lru_cache(maxsize=1024)
def has_attributes(kind: Any) -> bool:
    """Return whether the state of a class's objects is their attributes."""
    others = (*_ELEMENTS, *_IDENTITIES, np.ndarray, MethodType, partial, property, staticmethod, classmethod)
    named = kind is object or getattr(kind, "draws", False) or _is_log(kind)
    return not (named or issubclass(kind, others)) and is_open(kind)


def _is_log(kind: Any) -> bool:
    """Return whether objects of a class are loggers, which are only written to; `logging` is imported if any exist."""
    logging = sys.modules.get("logging")
    return logging is not None and issubclass(kind, logging.Logger)


def signature_of(args: tuple[Any, ...], kwargs: dict[str, Any], reach: Reach) -> Any:
    """Return the signature of a call, the tensors that it reads, their blobs, snapshots of the NumPy arrays whose
    contents are part of the signature, the holders, and the numbers in it; or why there is no signature.
    """
    while True:
        grown = reach.grown
        found = _Key(reach)
        if kwargs:
            found.key.append(tuple(kwargs))
        for x in (*args, *kwargs.values()) if kwargs else args:
            if type(x) is Tensor:
                found.tensor(x)
            else:
                if type(x) in KINDS:
                    found.numbers.append((len(found.key) + 1, x, -1, None))
                found.direct = True
                found.enter(x, given=True)
        found.direct = False
        for spread, count, _ in reach.spreads:
            if len(spread) != count:
                reach.grew()
                break
        found.places(reach.places)
        found.forget_logs()
        if reach.grown == grown:  # else earlier entries may have more attributes that are mentioned now
            break
    varying = reach.what_varies()
    if varying:
        return f"[changing] it can use {varying}, which gives something else each time"
    if found.reason or (not found.tensors and settings().device != "cpu"):
        return found.reason or NO_TENSOR
    if active[0] and _takes_part(found.tensors, found.blobs):
        return GRADIENT
    _enter_whereabouts(found)
    return tuple(found.key), found.tensors, found.blobs, found.arrays, found.holders, found.numbers


class _State(_Key):
    """The values that a function finds, for no signature: tensors and NumPy arrays are only collected, and tensors stay
    pending.
    """

    def tensor(self, x: Tensor) -> None:
        self.tensors.append(x)

    def _contents(self, x: Any, given: bool) -> None:
        found = sum([one.array.nbytes for one in self.arrays])
        if type(x) is np.ndarray and not x.dtype.hasobject and found + x.nbytes < MOST_COPIED:
            self.arrays.append(Snapshot(x, bits_of(x).copy(), ()))
        else:
            self._refuse(x, given)


def state_of(given: Iterable[Any], reach: Reach) -> tuple[list[Any], list[Tensor], list[Snapshot]] | None:
    """Return the lists, dicts and objects that a function looks into, and the tensors and NumPy arrays that it finds,
    if all it is given or finds by names is known, and stays the same each time; else None.
    """
    while True:
        grown = reach.grown
        found = _State(reach)
        for x in given:
            found.enter(x, given=True)
        found.places(reach.places)
        found.forget_logs()
        if reach.grown == grown:
            return None if reach.what_varies() or found.reason else (found.holders, found.tensors, found.arrays)


def _takes_part(tensors: list[Tensor], blobs: list[TBlob]) -> bool:
    """Return whether a tensor is computed from tensors that ask for a gradient, or lies in memory with a history of
    such writes.
    """
    if settings().gradients != "always":
        tensors = [x for x in tensors if type(x._step) is not Leaf or not x._step.asked]
    return steps_of(tensors) is not None or any(blob.owner.history is not None for blob in blobs)


def _enter_whereabouts(found: _Key) -> None:
    """Enter how memory lies: for each pair of tensors that overlap, or are one object, their places, how far apart they
    begin, and whether they are one object; for large memory, its offset from an aligned address in bytes.
    """
    spans: list[tuple[int, int]] = []
    blobs, lowest, highest = found.blobs, sys.maxsize, 0  # of all spans so far
    for place, blob in enumerate(blobs):
        low, high = span = blob._span or blob.span
        if high - low >= STREAM_BYTES:
            found.key.append(blob.address % ALIGNMENT)
        if (low < highest and lowest < high) or low == high:
            for other, (begin, end) in enumerate(spans):
                same = found.tensors[place] is found.tensors[other]
                if same or (low < end and begin < high):
                    found.key += (place, other, blob.address - blobs[other].address, same)
        spans.append(span)
        lowest = low if low < lowest else lowest
        highest = high if high > highest else highest

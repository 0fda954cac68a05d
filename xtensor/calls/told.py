"""The description for machine code of the values that a kind of calls is given and finds: rows that say how each is
compared with the value of the described call (codegen/cpu/kinds.py).

Values are entered in the order of a signature (signature.py), and so are tensors and numbers. Lists, tuples, dicts and
objects are described by their parts, as others may take their place; one that a call puts something into, or returns,
must be the same object. No reference is held to a value that can change: it is only looked up.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from gc import get_referents
from types import CellType, FunctionType, MappingProxyType, MemberDescriptorType, MethodType, ModuleType
from typing import Any, cast

import numpy as np

from ..graph.number import KINDS
from ..tensor.face import Tensor
from .given import MOST_ELEMENTS, is_remade
from .numbers import Numbers
from .reach import (
    NOTHING,
    Reach,
    behind,
    constant_of,
    dict_of,
    form_of,
    is_code,
    is_plain,
    slots_of,
    stays,
    value_in,
    wrapped,
)
from .signature import AS_MADE, has_attributes, is_compared

# The most attributes of an object, and the most objects, lists, dicts and tuples, as all are compared in pairs.
MOST_ATTRIBUTES, MOST_WHOLES = 128, 64

# Types of bound functions, and slices: the names of their parts, which Python has in slots.
_BOUND: dict[type, tuple[str, ...]] = {
    MethodType: ("__func__", "__self__"),
    partial: ("func", "args", "keywords"),
    slice: ("start", "stop", "step"),
}


class UntoldError(Exception):
    """A value has to be compared in a way that machine code does not know."""


class Told:
    """The description of a kind while it is put together.

    rows: of each table; natives: tensors with their arrays; held: objects that must stay alive; inside: the ids of
    values that were looked into. reach: that of the function; numbers, mask: those of the signature, and the places in
    it of those that are inputs; itself: the ids of lists, dicts and objects that later calls must have themselves.
    """

    def __init__(self, reach: Reach, numbers: Numbers, mask: Collection[int], itself: Collection[int]) -> None:
        from ..codegen.cpu import kinds

        self.form, self.reach = kinds, reach
        self._numbers = iter([(value, place in mask) for place, value, _, _ in numbers])
        self._itself = itself
        self.inside, self._met, self._wholes = set[int](), set[int](), dict[int, int]()
        self.rows: dict[str, list[tuple[int, ...]]] = {name: [] for name in kinds.TABLES}
        self.head = dict.fromkeys(kinds.HEAD, 0)
        self.held: list[Any] = []
        self.natives: list[tuple[Tensor, np.ndarray]] = []
        self._lists: list[int] = []
        self._is_direct = False  # whether the value entered is an argument, or in a tuple that is one

    def object(self, x: Any) -> int:
        """Return the word of an object, to which a reference is held."""
        self.held.append(x)
        return id(x)

    def arguments(self, values: Sequence[Any]) -> None:
        """Enter the arguments of a call. Raises UntoldError, as all methods that enter something do."""
        self._is_direct = True
        self.head |= {"given": len(values), "first": self._own_parts(values, is_told=True)}
        self._is_direct = False

    def places(self) -> None:
        """Enter the values that are found by names, and the dicts to which names can be added."""
        for where, name, last, part, _ in self.reach.places:
            is_cell = type(where) is CellType
            own = where if is_cell else _dict_of(where)
            value = value_in(where, name)
            if part is not None and value is not last:
                raise UntoldError
            way = self.form.IN_CELL if is_cell else self.form.IN_DICT
            self._found((self.object(own), self.object(name), way), value, name)
        self.rows["spreads"] += [(self.object(spread), count) for spread, count, _ in self.reach.spreads]
        if next(self._numbers, None) is not None:
            raise UntoldError

    # ---- values that are described by their parts

    def _own_parts(self, values: Sequence[Any], *, is_told: bool) -> int:
        """Enter consecutive parts; return the index of the first one."""
        rows: list[tuple[int, ...]] = []
        for x in values:
            self._part(x, rows, is_told=is_told)
        self.rows["parts"] += rows
        return len(self.rows["parts"]) - len(rows)

    def _part(self, x: Any, rows: list[tuple[int, ...]], name: Any = None, *, is_told: bool) -> None:
        """Enter one part. rows: those of the parts around it. name: the name by which it is found. is_told: whether it
        may be a number that is an input.
        """
        kind, form = type(x), self.form
        if kind is Tensor:
            rows.append((0, 0, self._tensor(x), 0, 0))
        elif is_told and kind in KINDS and self._is_number(x):
            rows.append((self.object(kind), form.TOLD, 0, self._number(), 0))
        elif is_compared(x):
            rows.append((self.object(x), form.EQUAL, 0, 0, 0))
        elif _draws(x):
            rows.append((self.object(x), form.ITSELF, 0, 0, 0))
        elif _has_parts(x):
            self._whole(x, rows, name)
        else:
            rows.append((self.object(x), form.ITSELF, 0, 0, 0))
            if constant_of(x) is None or not is_plain(x):
                self._found((id(x), 0, form.ITS_PLACE), x)

    def _whole(self, x: Any, rows: list[tuple[int, ...]], name: Any) -> None:
        """Enter a value by its parts; one that was entered before, as a reference to that."""
        kind: Any = type(x)
        form = self.form
        if id(x) in self._wholes:
            self.rows["agains"].append((0, self._wholes[id(x)]))
            rows.append((self.object(kind), form.AGAIN, 0, len(self.rows["agains"]) - 1, 0))
            return
        is_tuple = isinstance(x, tuple)
        if not is_tuple and kind not in _BOUND:
            self.inside.add(id(x))
        if len(self.rows["wholes"]) >= MOST_WHOLES:
            raise UntoldError
        last = len(self.rows["wholes"]), id(x) if id(x) in self._itself else 0
        self.rows["wholes"].append((0,))
        if self.reach.is_log(name, x):
            rows.append((self.object(kind), form.OF_TYPE, 0, *last))
            return
        self._wholes[id(x)] = last[0]
        goes_on = kind is slice or (is_tuple and constant_of(x) is None)
        direct, self._is_direct = self._is_direct, self._is_direct and goes_on
        if is_tuple or kind in (list, dict):
            self._elements(x, rows, last)
        elif kind in _BOUND:
            rows.append((self.object(kind), form.WITH_SLOTS, len(_BOUND[kind]), *last))
            for own in _BOUND[kind]:
                rows.append((self.object(own), form.EQUAL, 0, 0, 0))
                self._part(getattr(x, own), rows, is_told=kind is slice and self._is_direct)
        else:
            self._attributes_of(x, rows, last)
        self._is_direct = direct

    def _elements(self, x: Any, rows: list[tuple[int, ...]], last: tuple[int, int]) -> None:
        """Enter the elements of a list, tuple or dict. last: the end of its row: its index, and its id or 0."""
        kind: Any = type(x)
        form = self.form
        parts = list(x.items() if kind is dict else x)  # another thread may add to it
        if len(parts) > MOST_ELEMENTS:
            raise UntoldError
        if kind is dict:
            rows.append((self.object(kind), form.OF_DICT, len(parts), *last))
            for key, value in parts:
                if type(key) not in (str, int):
                    raise UntoldError
                self._part(key, rows, is_told=False)
                self._part(value, rows, is_told=True)
            return
        rows.append((self.object(kind), form.OF_LIST if kind is list else form.OF_TUPLE, len(parts), *last))
        if not stays(kind):
            self._shared(kind, ())
        for part in parts:
            self._part(part, rows, is_told=kind is list or self._is_direct)

    def _attributes_of(self, x: Any, rows: list[tuple[int, ...]], last: tuple[int, int]) -> None:
        """Enter an object by its attributes; only by name those that the function cannot look up."""
        kind: Any = type(x)
        form, slots = self.form, slots_of(kind)
        own = {name: getattr(x, name) for name in slots} if slots else dict(dict_of(x))
        if len(own) > MOST_ATTRIBUTES:
            raise UntoldError
        rows.append((self.object(kind), form.WITH_SLOTS if slots else form.WITH_PARTS, len(own), *last))
        self.head["collects"] |= not slots
        asked = own if stays(kind) else dict(self.reach.own_of(own, in_order=True))
        for name, value in own.items():
            rows.append((self.object(name), form.EQUAL, 0, 0, 0))
            if name in asked:
                self._part(value, rows, name, is_told=True)
            else:
                rows.append((self.object(True), form.ANY, 0, 0, 0))
        for name in slots:  # which must stay the descriptors of slots
            home = next(base for base in kind.__mro__ if name in vars(base))
            way = self.object(_dict_of(vars(home))), self.object(name), form.IN_DICT
            self._place(way, self.object(vars(home)[name]), form.ITSELF)
        self._shared(kind, own)

    def _tensor(self, x: Tensor) -> int:
        """Return the index of a tensor, which must be a thin face."""
        native = x.thin()
        if native is None:
            raise UntoldError
        self.natives.append((x, native))
        return len(self.natives) - 1

    def _is_number(self, x: Any) -> bool:
        """Return whether this number, the next one in order, is an input."""
        value, is_told = next(self._numbers, (None, False))
        if value is not x:
            raise UntoldError
        return is_told

    def _number(self) -> int:
        """Return the index of a number that is an input."""
        self.rows["numbers"].append((0,))
        return len(self.rows["numbers"]) - 1

    # ---- values that are described by the place where they are found

    def _found(self, row: tuple[int, int, int], x: Any, name: Any = None) -> None:
        """Enter a value with its place. row: how to look it up. name: the name by which it is found."""
        direct, self._is_direct = self._is_direct, False
        kind: Any = type(x)
        form = self.form
        if x is NOTHING:
            self._place(row, self.object(x), form.ABSENT)
        elif kind is Tensor:
            self._place(row, 0, 0, self._tensor(x))
        elif is_compared(x):
            self._place(row, self.object(x), form.EQUAL)
        elif kind is FunctionType and not is_plain(x):
            own = [0 if one is None else self.object(one) for one in form_of(x)]
            self._place(row, self.object(x), form.FUNCTION, len(vars(x)), *own)
            self._attributes(vars(x))
        elif _draws(x):
            self._place(row, self.object(x), form.ITSELF)
        elif _has_parts(x):
            parts: list[tuple[int, ...]] = []
            self._part(x, parts, name, is_told=False)
            self._place(row, self.object(kind), form.PARTS, len(self.rows["parts"]))
            self.rows["parts"] += parts
        elif constant_of(x) is not None:
            self._constant(row, x)
        else:
            self._behind(row, x)
        self._is_direct = direct

    def _place(self, row: tuple[int, int, int], *what: int) -> None:
        self.rows["places"].append((*row, *what, *[0] * (6 - len(what))))

    def _constant(self, row: tuple[int, int, int], x: Any) -> None:
        """Enter a constant, with the attributes of a user's module or class."""
        self._place(row, self.object(x), self.form.ITSELF)
        if is_plain(x) or id(x) in self.inside:
            return
        self.inside.add(id(x))
        if self.reach.every:  # attributes have no fixed order then
            raise UntoldError
        if type(x) is ModuleType:
            self.rows["spreads"].append((self.object(vars(x)), len(vars(x))))
            self._attributes(vars(x))
        elif isinstance(x, type) and stays(type(x)):
            self._shared(x, ())
        else:
            raise UntoldError

    def _shared(self, kind: type, own: Collection[str]) -> None:
        """Enter the attributes that objects of a class share."""
        form = self.form
        if id(kind) not in self._met:
            self._met.add(id(kind))
            self._place(
                (self.object(kind), self.object("__mro__"), form.ITS_OWN), self.object(kind.__mro__), form.ITSELF
            )
        for base in kind.__mro__[:-1]:
            if not stays(base):
                every = vars(base)
                for name in self.reach.mentioned(every):
                    way = (self.object(_dict_of(every)), self.object(name), self.form.IN_DICT)
                    if name in AS_MADE:
                        self._place(way, self.object(every[name]), self.form.ITSELF)
                    elif name not in own and not is_code(every[name]):
                        self._found(way, every[name], name)

    def _attributes(self, own: dict[str, Any]) -> None:
        """Enter the attributes of a module or a function that can be looked up, once."""
        if id(own) in self._met:
            return
        self._met.add(id(own))
        for name, value in self.reach.own_of(own):
            self._found((self.object(own), self.object(name), self.form.IN_DICT), value, name)

    def _behind(self, row: tuple[int, int, int], x: Any) -> None:
        """Enter an object that wraps a function, by that function as well."""
        form = self.form
        self._place(row, self.object(x), form.ITSELF)
        if stays(type(x)) and wrapped(x) is not None:  # another fused function, a gradient
            self._found((self.object(vars(x)), self.object("__wrapped__"), form.IN_DICT), wrapped(x))
        elif type(x) in (property, staticmethod, classmethod):
            for part in behind(x):
                self._found((self.object(part), 0, form.ITS_PLACE), part)
        else:
            raise UntoldError

    def itself(self) -> tuple[int, ...]:
        """Return the ids of the objects that must be the same in later calls."""
        return tuple([row[-1] for row in self.rows["parts"] if row[-1]])

    # ---- words

    def lengths(self, *numbers: int) -> int:
        """Enter some numbers; return their offset in words behind the tables."""
        self._lists += numbers
        return len(self._lists) - len(numbers)

    def words(self) -> Any:
        """Return all words in one array: the head, the tables, and lists of numbers."""
        form = self.form
        at = len(form.HEAD)
        for name in form.TABLES:
            self.head[name], self.head[f"{name}.rows"] = at, len(self.rows[name])
            at += len(self.rows[name]) * len(form.ROWS[name])
        self.head["overlaps"] += at
        for name in ("tensors", "results"):
            lie = form.ROWS[name].index("lie")
            self.rows[name] = [(*row[:lie], row[lie] + at, *row[lie + 1 :]) for row in self.rows[name]]
        rows = [number for name in form.TABLES for row in self.rows[name] for number in row]
        return np.array([*self.head.values(), *rows, *self._lists], np.int64)


def _draws(x: Any) -> bool:
    """Return whether a value is a random number generator, which is compared by identity (signature.py)."""
    return getattr(type(x), "draws", False)


def _has_parts(x: Any) -> bool:
    """Return whether a value is described by its parts."""
    kind: Any = type(x)
    if kind in (list, dict, *_BOUND):
        return True
    constant = constant_of(x)
    return (is_remade(x) and (constant is None or not is_plain(x))) or (constant is None and _is_of_attributes(x))


def _is_of_attributes(x: Any) -> bool:
    """Return whether the state of a value is its attributes, which are in slots, all of them filled, or in its dict."""
    kind: Any = type(x)
    if not has_attributes(kind) or (stays(kind) and wrapped(x) is not None):
        return False
    slots, has_dict = slots_of(kind), bool(kind.__dictoffset__)
    if not slots:
        return has_dict
    if has_dict or hasattr(kind, "__getattr__") or kind.__getattribute__ is not object.__getattribute__:
        return False
    described = {type(getattr(kind, name, None)) for name in slots}
    return described == {MemberDescriptorType} and all(hasattr(x, name) for name in slots)


def _dict_of(names: Mapping[str, Any]) -> dict[str, Any]:
    """Return the dict of some names: for a class, the one behind the proxy that Python shows."""
    own = get_referents(names)[0] if type(names) is MappingProxyType else names
    if type(own) is not dict:
        raise UntoldError
    return cast("dict[str, Any]", own)

"""What machine code is told of what a kind of calls is given and finds: rows that say how each thing is compared with
what was there (codegen/cpu/kinds.py).

It is walked in the order of a signature (signature.py), so that tensors and numbers come in that order. Lists, tuples,
dicts and objects are told by their parts, as others may come in their place; where a call puts something into one, or
returns it, that very one is told. Of what can change nothing is held: it is asked for by where it is found, from what
is known to live.
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
from .reach import Reach, behind, constant_of, form_of, is_code, is_plain, slots_of, stays, wrapped
from .signature import AS_MADE, has_attributes, is_compared

# Attributes up to which an object is told.
MOST_ATTRIBUTES = 128


# What has parts that nothing else can take the place of, by their names.
_BOUND: dict[type, tuple[str, ...]] = {MethodType: ("__func__", "__self__"), partial: ("func", "args", "keywords")}


class UntoldError(Exception):
    """Something is compared in a way that machine code does not know."""


class Told:
    """What is told of a kind while it is put together.

    rows: of each table; natives: tensors that were come to, each with its array; held: what must live; inside: the ids
    of what was looked into; numbers: which are still to be come to, each with whether it is told; itself: the ids of
    lists, dicts and objects that are told as themselves.
    """

    def __init__(self, reach: Reach, numbers: Numbers, mask: Collection[int], itself: Collection[int]) -> None:
        from ..codegen.cpu import kinds

        self.form, self.reach = kinds, reach
        self._numbers = iter([(value, place in mask) for place, value, _, _ in numbers])
        self._itself = itself
        self.inside, self._met = set[int](), set[int]()
        self.rows: dict[str, list[tuple[int, ...]]] = {name: [] for name in kinds.TABLES}
        self.head = dict.fromkeys(kinds.HEAD, 0)
        self.held: list[Any] = []
        self.natives: list[tuple[Tensor, np.ndarray]] = []
        self._lists: list[int] = []
        self._is_direct = False  # whether what is entered is of an argument, or of a tuple that is one

    def object(self, x: Any) -> int:
        """Return the word of an object, which is held."""
        self.held.append(x)
        return id(x)

    def arguments(self, values: Sequence[Any]) -> None:
        """Enter what a call is given. Raises UntoldError, as all that enters something does."""
        self._is_direct = True
        self.head |= {"given": len(values), "first": self._own_parts(values, is_told=True)}
        self._is_direct = False

    def places(self) -> None:
        """Enter what is found by names, and where names can be added."""
        for where, name, last, part, _ in self.reach.places:
            is_cell = type(where) is CellType
            own = where if is_cell else _dict_of(where)
            try:
                value = where.cell_contents if is_cell else where.get(name)
            except ValueError:  # an empty cell
                value = None
            if part is not None and value is not last:
                raise UntoldError
            way = self.form.IN_CELL if is_cell else self.form.IN_DICT
            self._found((self.object(own), self.object(name), way), value)
        self.rows["spreads"] += [(self.object(spread), count) for spread, count, _ in self.reach.spreads]
        if next(self._numbers, None) is not None:
            raise UntoldError

    # ---- what is told by its parts

    def _own_parts(self, values: Sequence[Any], *, is_told: bool) -> int:
        """Enter parts one behind the other; return the number of the first one."""
        rows: list[tuple[int, ...]] = []
        for x in values:
            self._part(x, rows, is_told=is_told)
        self.rows["parts"] += rows
        return len(self.rows["parts"]) - len(rows)

    def _part(self, x: Any, rows: list[tuple[int, ...]], *, is_told: bool) -> None:
        """Enter one part. rows: of those that belong together. is_told: whether it may be a number that is told."""
        kind, form = type(x), self.form
        if kind is Tensor:
            rows.append((0, 0, self._tensor(x), 0))
        elif is_told and kind in KINDS and self._is_number(x):
            rows.append((self.object(kind), form.TOLD, 0, self._number()))
        elif is_compared(x):
            rows.append((self.object(x), form.EQUAL, 0, 0))
        elif self._has_parts(x):
            self._whole(x, rows)
        else:
            constant = None if kind in (list, dict) else constant_of(x)
            rows.append((id(x) if constant is None else self.object(x), form.ITSELF, 0, 0))
            if constant is None or not is_plain(x):
                self._found((id(x), 0, form.ITS_PLACE), x)

    def _has_parts(self, x: Any) -> bool:
        """Return whether something is told by its parts."""
        kind: Any = type(x)
        if id(x) in self._itself:
            return False
        if kind in (list, dict, *_BOUND) or (constant_of(x) is None and _is_of_attributes(x)):
            return True
        return is_remade(x) and (constant_of(x) is None or not is_plain(x))

    def _whole(self, x: Any, rows: list[tuple[int, ...]]) -> None:
        """Enter something by its parts, once: what comes twice is told apart by that."""
        kind: Any = type(x)
        if id(x) in self._met or id(x) in self.inside:
            raise UntoldError
        is_tuple = isinstance(x, tuple)
        direct, self._is_direct = self._is_direct, self._is_direct and is_tuple and constant_of(x) is None
        if is_tuple or kind in _BOUND:
            self._met.add(id(x))
        else:
            self.inside.add(id(x))
        if not is_tuple:
            self.rows["wholes"].append((0,))
        if is_tuple or kind in (list, dict):
            self._elements(x, rows)
        elif kind in _BOUND:
            rows.append((self.object(kind), self.form.WITH_SLOTS, len(_BOUND[kind]), self._noted()))
            for name in _BOUND[kind]:
                rows.append((self.object(name), self.form.EQUAL, 0, 0))
                self._part(getattr(x, name), rows, is_told=False)
        else:
            self._attributes_of(x, rows)
        self._is_direct = direct

    def _noted(self) -> int:
        """Return the number of the list, dict or object that was come to last."""
        return len(self.rows["wholes"]) - 1

    def _elements(self, x: Any, rows: list[tuple[int, ...]]) -> None:
        """Enter the elements of a list, tuple or dict."""
        kind: Any = type(x)
        form = self.form
        if len(x) > MOST_ELEMENTS:
            raise UntoldError
        if kind is dict:
            rows.append((self.object(kind), form.OF_DICT, len(x), self._noted()))
            for key, value in x.items():
                if type(key) not in (str, int):
                    raise UntoldError
                self._part(key, rows, is_told=False)
                self._part(value, rows, is_told=True)
            return
        rows.append((self.object(kind), form.OF_LIST if kind is list else form.OF_TUPLE, len(x), self._noted()))
        if not stays(kind):
            self._shared(kind, ())
        for part in x:
            self._part(part, rows, is_told=kind is list or self._is_direct)

    def _attributes_of(self, x: Any, rows: list[tuple[int, ...]]) -> None:
        """Enter an object by its attributes; of those that are not asked for the names alone."""
        kind: Any = type(x)
        form, slots = self.form, slots_of(kind)
        own = {name: getattr(x, name) for name in slots} if slots else vars(x)
        if len(own) > MOST_ATTRIBUTES:
            raise UntoldError
        rows.append((self.object(kind), form.WITH_SLOTS if slots else form.WITH_PARTS, len(own), self._noted()))
        self.head["twice"] = 1
        asked = own if stays(kind) else dict(self.reach.own_of(own))
        for name, value in list(own.items()):
            rows.append((self.object(name), form.EQUAL, 0, 0))
            if name in asked:
                self._part(value, rows, is_told=True)
            else:
                rows.append((self.object(True), form.ANY, 0, 0))
        self._shared(kind, own)

    def _tensor(self, x: Tensor) -> int:
        """Return the number of a tensor, which must be a thin face."""
        native = x.thin()
        if native is None:
            raise UntoldError
        self.natives.append((x, native))
        return len(self.natives) - 1

    def _is_number(self, x: Any) -> bool:
        """Return whether the number that was come to is told."""
        value, is_told = next(self._numbers, (None, False))
        if value is not x:
            raise UntoldError
        return is_told

    def _number(self) -> int:
        """Return the number of a number that is told."""
        self.rows["numbers"].append((0,))
        return len(self.rows["numbers"]) - 1

    # ---- what is told by where it is found

    def _found(self, row: tuple[int, int, int], x: Any, *, is_told: bool = False) -> None:
        """Enter what is found somewhere. row: how. is_told: whether it may be a number that is told."""
        direct, self._is_direct = self._is_direct, False
        kind: Any = type(x)
        form = self.form
        if kind is Tensor:
            self._place(row, 0, 0, self._tensor(x))
        elif is_told and kind in KINDS and self._is_number(x):
            self._place(row, self.object(kind), form.TOLD, self._number())
        elif is_compared(x):
            self._place(row, self.object(x), form.EQUAL)
        elif kind is FunctionType and not is_plain(x):
            parts = [0 if one is None else self.object(one) for one in form_of(x)]
            self._place(row, self.object(x), form.FUNCTION, len(vars(x)), *parts)
            self._attributes(vars(x))
        elif self._has_parts(x):
            self._place(row, self.object(kind), form.PARTS, self._own_parts([x], is_told=False))
        elif kind in (list, dict):
            self._itself_and_parts(row, x)
        elif constant_of(x) is not None:
            self._constant(row, x)
        elif _is_of_attributes(x):
            self._object(row, x)
        else:
            self._behind(row, x)
        self._is_direct = direct

    def _place(self, row: tuple[int, int, int], *what: int) -> None:
        self.rows["places"].append((*row, *what, *[0] * (6 - len(what))))

    def _constant(self, row: tuple[int, int, int], x: Any) -> None:
        """Enter a constant, with what a module or class of a user's holds."""
        self._place(row, self.object(x), self.form.ITSELF)
        if is_plain(x) or id(x) in self.inside:
            return
        self.inside.add(id(x))
        if type(x) is ModuleType:
            self.rows["spreads"].append((self.object(vars(x)), len(vars(x))))
            self._attributes(vars(x))
        elif isinstance(x, type) and stays(type(x)):
            self._shared(x, ())
        else:
            raise UntoldError

    def _itself_and_parts(self, row: tuple[int, int, int], x: Any) -> None:
        """Enter a list or dict that is to be itself."""
        form, kind = self.form, type(x)
        self._place(row, id(x), form.SIZED, len(x), self.object(kind))
        if id(x) in self.inside:
            return
        self.inside.add(id(x))
        self.rows["wholes"].append((id(x),))
        keys = range(len(x)) if kind is list else list(x)
        if len(x) > MOST_ELEMENTS or not (kind is list or all(type(key) in (str, int) for key in keys)):
            raise UntoldError
        for key in keys:
            way = (id(x), key, form.IN_LIST) if kind is list else (id(x), self.object(key), form.IN_DICT)
            self._found(way, x[key], is_told=True)

    def _object(self, row: tuple[int, int, int], x: Any) -> None:
        """Enter an object of a class whose objects are what their attributes are."""
        form = self.form
        kind: Any = type(x)
        if slots_of(kind) or len(vars(x)) > MOST_ATTRIBUTES:
            raise UntoldError
        own = vars(x)
        self._place(row, id(x), form.WITH_DICT, len(own), self.object(kind), id(own))
        if id(x) in self.inside:
            return
        self.inside.add(id(x))
        asked = list(own.items()) if stays(kind) else self.reach.own_of(own)
        for name, value in asked:
            self._found((id(own), self.object(name), form.IN_DICT), value, is_told=True)
        for name in own.keys() - {name for name, _ in asked}:  # no other one may have come in its place
            self._place((id(own), self.object(name), form.HAS_KEY), self.object(True), form.ITSELF)
        self._shared(kind, own)

    def _shared(self, kind: type, own: Collection[str]) -> None:
        """Enter what objects of a class have in common."""
        for base in kind.__mro__[:-1]:
            if not stays(base):
                every = vars(base)
                for name in self.reach.mentioned(every):
                    way = (self.object(_dict_of(every)), self.object(name), self.form.IN_DICT)
                    if name in AS_MADE:
                        self._place(way, self.object(every[name]), self.form.ITSELF)
                    elif name not in own and not is_code(every[name]):
                        self._found(way, every[name])

    def _attributes(self, own: dict[str, Any]) -> None:
        """Enter the attributes of a module or a function that can be looked up, once."""
        if id(own) in self._met:
            return
        self._met.add(id(own))
        for name, value in self.reach.own_of(own):
            if type(value) is Tensor or not stays(value):
                self._found((self.object(own), self.object(name), self.form.IN_DICT), value)

    def _behind(self, row: tuple[int, int, int], x: Any) -> None:
        """Enter what stands for a function that it cannot be parted from, or that is one of its attributes."""
        form = self.form
        self._place(row, self.object(x), form.ITSELF)
        if stays(type(x)) and wrapped(x) is not None:  # another fused function, a gradient
            self._found((self.object(vars(x)), self.object("__wrapped__"), form.IN_DICT), wrapped(x))
        elif type(x) in (property, staticmethod, classmethod):
            for part in behind(x):
                self._found((self.object(part), 0, form.ITS_PLACE), part)
        else:
            raise UntoldError

    def looked_into(self) -> tuple[int, ...]:
        """Return the ids of the objects and functions that are given, and asked for what they have."""
        return tuple([row[0] for row in self.rows["places"] if row[2] == self.form.ITS_PLACE])

    # ---- words

    def lengths(self, *numbers: int) -> int:
        """Enter numbers of any count; return where they are, in words behind the tables."""
        self._lists += numbers
        return len(self._lists) - len(numbers)

    def words(self) -> Any:
        """Return all words in one piece of memory: the head, the tables, and lists of numbers."""
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


def _is_of_attributes(x: Any) -> bool:
    """Return whether something is what its attributes are, which are in slots, all of them filled, or in its dict."""
    kind: Any = type(x)
    if not has_attributes(kind) or (stays(kind) and wrapped(x) is not None):
        return False
    slots, own = slots_of(kind), getattr(x, "__dict__", None)
    if not slots:
        return type(own) is dict
    described = {type(getattr(kind, name, None)) for name in slots}
    return own is None and described == {MemberDescriptorType} and all(hasattr(x, name) for name in slots)


def _dict_of(names: Mapping[str, Any]) -> dict[str, Any]:
    """Return the dict that has names: of a class, the one that Python shows in a proxy alone."""
    own = get_referents(names)[0] if type(names) is MappingProxyType else names
    if type(own) is not dict:
        raise UntoldError
    return cast("dict[str, Any]", own)

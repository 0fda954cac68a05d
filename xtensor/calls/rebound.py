"""Values that a captured function binds anew: elements of lists and dicts, attributes of objects, and names.

They are compared before and after a watched call. A value that differs, as after `state["m"] = ...` or `self.u = ...`,
is a result of the call like a returned one, and later calls put their results there.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Collection, Sequence
from types import MappingProxyType, ModuleType
from typing import Any, NamedTuple, cast

from ..graph.number import Number, type_of, value_of
from ..tensor.face import Tensor
from .reach import NOTHING, Reach, constant_of, dict_of, is_open, slots_of, stays, value_in

_ABSENT = object()

# An index behind the end of any list: values appended to logs have indices from here on.
_BEHIND = sys.maxsize // 2


class Log:
    """A holder for a list that the function only appends to."""

    __slots__ = ("items",)

    def __init__(self, items: list[Any]) -> None:
        self.items = items


def held(holder: Any) -> Any:
    """Return the list of a Log, any other holder itself."""
    return holder.items if type(holder) is Log else holder


class Left(NamedTuple):
    """Where a value was left. where: the index of its holder, or a place of a Reach; key: its index or name there.

    is_there: whether it was bound; else it was removed.
    """

    where: int | list[Any]
    key: Any
    is_there: bool

    @property
    def is_of_log(self) -> bool:
        """Whether the value was appended to a list that nobody reads."""
        return type(self.key) is int and self.key >= _BEHIND

    def value(self, holders: Sequence[Any]) -> Any:
        """Return the value there now, in a list or dict, or an attribute of an object; None if there is none."""
        holder: Any = holders[cast(int, self.where)]
        if not isinstance(holder, (list, deque, dict)):
            return getattr(holder, self.key, None)
        try:
            return holder[self.key]
        except LookupError:
            return None

    def put(self, holders: Sequence[Any], value: Any) -> None:
        """Put a value there, or remove the one that is there."""
        holder = held(holders[self.where]) if isinstance(self.where, int) else self.where[0]
        if isinstance(self.where, list) and not isinstance(holder, dict):
            holder.cell_contents = value
        elif isinstance(holder, (list, deque)) and self.is_there and self.key >= len(holder):
            holder.append(value)
        elif isinstance(holder, set):  # a Number in it equals the number that takes its place
            holder.discard(value)
            holder.add(value)
        elif type(self.key) is Number:
            del holder[self.key]
            holder[value_of(self.key)] = value
        elif isinstance(holder, (list, deque, dict)):
            if self.is_there:
                holder[self.key] = value
            else:
                del holder[-1 if self.is_of_log else self.key]
        elif self.is_there:
            object.__setattr__(holder, self.key, value)
        else:
            object.__delattr__(holder, self.key)


class Contents:
    """The values that a function can find before it is called, to be compared with those afterwards.

    holders: the lists, dicts and objects that its signature looks into; tensors: those that it is given, or finds.
    """

    def __init__(self, holders: Sequence[Any], reach: Reach, tensors: Sequence[Tensor]) -> None:
        self._holders, self._names = holders, None if reach.every else frozenset(reach.names)
        self._places = [(place, _value_at(place)) for place in reach.places]
        self._before = [_inside(holder, self._names) for holder in holders]
        self._steps = [(x, x._step) for x in tensors]

    @property
    def asks_as_before(self) -> bool:
        """Whether the same tensors ask for a gradient as before, and none has a history of writes."""
        return all(x._step is step and x.owner.history is None for x, step in self._steps)

    def changes(self) -> tuple[list[tuple[Left, Any]], bool]:
        """Return the changed places, each with its value, None for a removed one, and whether calls can repeat all."""
        found: list[tuple[Left, Any]] = []
        complete = True
        for place, value in self._places:
            now = _value_at(place)
            if now is not value:
                found.append((Left(place, place[1], True), now))
                complete &= type(place[0]) is not MappingProxyType  # of a class
        for number, holder in enumerate(self._holders):
            if type(holder) is Log:
                added = holder.items[self._before[number]["length"] :]
                found += [(Left(number, _BEHIND + place, True), value) for place, value in enumerate(added)]
                continue
            before, after = self._before[number], _inside(holder, self._names)
            new = [key for key in after if after[key] is not before.get(key, _ABSENT)]
            gone = [key for key in before if key not in after]
            if new or gone or list(before) != list(after):
                complete &= _can_be_put(holder, before, after)
            found += [(Left(number, key, True), after[key]) for key in new]
            found += [(Left(number, key, False), None) for key in reversed(gone)]
        return found, complete

    def put_back(self) -> bool:
        """Restore all values; return False, with nothing done, where that is not possible."""
        found, complete = self.changes()
        places = [(place, value) for place, value in self._places if _value_at(place) is not value]
        if not complete or any(value is None for _, value in places):  # None also stands for a name that was not there
            return False
        for place, value in places:
            Left(place, place[1], True).put(self._holders, value)
        for left, _ in reversed(found):
            if isinstance(left.where, int):
                before = self._before[left.where]
                left._replace(is_there=left.key in before).put(self._holders, before.get(left.key))
        return True


def counts(changes: Sequence[tuple[Left, Any]], told: Collection[tuple[Any, Any]]) -> bool:
    """Return whether numbers or strings were left that make the next call one of another kind. told: numbers that may
    be inputs, by the indices of their holders and their names there.
    """
    kinds = (int, float, complex, str)
    return any(
        type_of(value) in kinds and not (type(left.where) is int and ((left.where, left.key) in told or left.is_of_log))
        for left, value in changes
    )


def _inside(holder: Any, names: Collection[str] | None) -> dict[Any, Any]:
    """Return the elements of a list or dict, or those attributes of an object, a class or a module that are mentioned.

    names: those that are mentioned, None for all.
    """
    if type(holder) is Log:
        return {"length": len(holder.items)}
    if type(holder) is Tensor:
        return {"grad": holder.grad}
    if isinstance(holder, (dict, MappingProxyType)):
        return dict(holder)
    if isinstance(holder, (type, ModuleType)):
        return _mentioned(vars(holder), names)
    kind: Any = type(holder)
    if not is_open(kind):
        return dict(enumerate(holder))
    own: dict[Any, Any] = dict_of(holder)
    own = dict(own) if stays(kind) else _mentioned(own, names)
    own |= {name: getattr(holder, name) for name in slots_of(kind) if hasattr(holder, name)}
    for base in kind.__mro__[:-1]:
        if not stays(base):
            own |= {(base, name): value for name, value in _mentioned(vars(base), names).items()}
    return own


def _mentioned(own: Any, names: Collection[str] | None) -> dict[Any, Any]:
    return {name: own[name] for name in (own if names is None else sorted(names & own.keys()))}


def _can_be_put(holder: Any, before: dict[Any, Any], after: dict[Any, Any]) -> bool:
    """Return whether later calls can change a holder in the same way: keys keep their order, and nothing is shared."""
    if isinstance(holder, dict):
        stay = [key for key in before if key in after]
        return stay == list(after)[: len(stay)] and all(constant_of(key) is not None for key in after)
    if isinstance(holder, (list, deque, Tensor)):
        return True
    kind: Any = type(holder)
    if isinstance(holder, type) or not is_open(kind):
        return False
    return all(isinstance(key, str) or after.get(key) is value for key, value in before.items()) and all(
        isinstance(key, str) or key in before for key in after
    )


def _value_at(place: list[Any]) -> Any:
    """Return the value in a place of a Reach, None if there is none."""
    value = value_in(place[0], place[1])
    return None if value is NOTHING else value

"""NumPy arrays among the arguments of a captured function, which is handed tensors that share their memory: what NumPy
makes of an array is not seen, what is made of a tensor is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from numpy import ndarray

from ..base.dtypes import is_held
from ..base.options import settings
from ..tensor.face import from_native

# Elements up to which a list, tuple or dict is looked into, and how deep such are looked into.
MOST_ELEMENTS, MOST_DEEP = 64, 8


def holds_arrays(x: Any, deep: int = 0) -> bool:
    """Return whether a value is a NumPy array, or a list, tuple or dict with one in it. deep: in how many it is."""
    kind = type(x)
    if kind is ndarray:
        return is_held(x.dtype)
    if kind is list or kind is dict or kind is tuple or hasattr(kind, "_make"):
        parts: Any = list(x.values()) if kind is dict else x
        return len(x) <= MOST_ELEMENTS and deep < MOST_DEEP and any(holds_arrays(part, deep + 1) for part in parts)
    return False


class Shared:
    """Arguments, args and kwargs, with tensors that share their memory in the place of NumPy arrays, in copies of the
    lists, dicts and tuples that hold these.
    """

    def __init__(self, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        self._made: dict[int, Any] = {}  # of arrays, lists, dicts and tuples, by their ids
        self._given: dict[int, Any] = {}  # what each was made of, by its own id
        self._holders: list[tuple[Any, Any, Any]] = []  # lists and dicts, their copies, and what these held at first
        self.args = [self._of(x) for x in args]
        self.kwargs = {name: self._of(x) for name, x in kwargs.items()}

    @classmethod
    def of(cls, args: Sequence[Any], kwargs: dict[str, Any]) -> Shared | None:
        """Return arguments to be handed over; None where there are no arrays, or tensors lie on another device."""
        if not any(map(holds_arrays, (*args, *kwargs.values()))) or settings().device != "cpu":
            return None
        return cls(args, kwargs)

    def _of(self, x: Any) -> Any:
        if id(x) in self._made:
            return self._made[id(x)]
        if not holds_arrays(x):
            return x
        if type(x) is ndarray:
            made: Any = from_native(x, shared=True)
        elif isinstance(x, tuple):
            parts, kind = [self._of(part) for part in x], cast(Any, type(x))
            made = tuple(parts) if kind is tuple else kind._make(parts)
        else:
            made = self._made[id(x)] = type(x)(x)  # before what it holds, which may be itself
            for key, part in made.items() if isinstance(made, dict) else enumerate(made):
                made[key] = self._of(part)
            self._holders.append((x, made, type(x)(made)))
        self._made[id(x)], self._given[id(made)] = made, x
        return made

    def returned(self, x: Any) -> Any:
        """Return a result, or a tuple of them, with lists and dicts that were given in the place of their copies."""
        if type(x) is tuple and any(id(part) in self._given for part in x):
            return tuple([self.returned(part) for part in x])
        given = self._given.get(id(x), x)
        return given if isinstance(given, (list, dict)) else x

    def __enter__(self) -> Shared:
        return self

    def __exit__(self, *failure: object) -> None:
        """Do to lists and dicts what the function has done to their copies."""
        for holder, copy, first in self._holders:
            if isinstance(copy, dict):
                for key in first.keys() - copy.keys():
                    holder.pop(key, None)
                new = {key: value for key, value in copy.items() if key not in first or value is not first[key]}
                holder.update({key: self._given.get(id(value), value) for key, value in new.items()})
            elif len(copy) != len(first) or any(one is not other for one, other in zip(copy, first, strict=True)):
                holder[:] = [self._given.get(id(value), value) for value in copy]

"""NumPy arrays among the arguments of a captured function, which is handed tensors that share their memory: what NumPy
makes of an array is not seen, what is made of a tensor is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

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
    if kind is list or kind is dict or isinstance(x, tuple):
        parts: Any = x.values() if isinstance(x, dict) else x
        return len(x) <= MOST_ELEMENTS and deep < MOST_DEEP and any(holds_arrays(part, deep + 1) for part in parts)
    return False


class Shared:
    """Arguments, args and kwargs, with tensors that share their memory in the place of NumPy arrays.

    In a block of it lists and dicts hold such tensors; after it they hold the arrays again.
    """

    def __init__(self, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        self._made: dict[int, Any] = {}  # of arrays, tuples, lists and dicts, by their numbers
        self._given: dict[int, tuple[Any, Any]] = {}  # each with what it was made of, by its own number
        self._holders: list[Any] = []
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
        if isinstance(x, (list, dict)):
            self._made[id(x)] = x
            self._holders.append(x)
            for _, value in _items(x):
                self._of(value)
            return x
        if type(x) is ndarray:
            made: Any = from_native(x, shared=True)
        else:
            parts = [self._of(part) for part in x]
            made = tuple(parts) if type(x) is tuple else type(x)._make(parts)
        self._made[id(x)], self._given[id(made)] = made, (made, x)
        return made

    def __enter__(self) -> Shared:
        for holder in self._holders:
            for key, value in _items(holder):
                holder[key] = self._made.get(id(value), value)
        return self

    def __exit__(self, *failure: object) -> None:
        for holder in self._holders:
            for key, value in _items(holder):
                if id(value) in self._given:
                    holder[key] = self._given[id(value)][1]


def _items(holder: Any) -> Iterable[tuple[Any, Any]]:
    """Return the elements of a list or a dict, which can be replaced meanwhile, with their places."""
    return list(holder.items() if isinstance(holder, dict) else enumerate(holder))

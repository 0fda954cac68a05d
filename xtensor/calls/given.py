"""NumPy arrays among the arguments of a captured function, which gets tensors that share their memory: operations of
NumPy on arrays cannot be observed, those on tensors can.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, cast

from numpy import ndarray

from ..base.dtypes import is_held
from ..base.locks import fork_safe_lock
from ..base.options import settings
from ..tensor.face import from_native

# The most elements of a list, tuple or dict that is looked into, and the most levels of nesting.
MOST_ELEMENTS, MOST_DEEP = 64, 8


def holds_arrays(x: Any, deep: int = 0) -> bool:
    """Return whether a value is a NumPy array, or a list, tuple or dict with one in it. deep: its level of nesting."""
    if type(x) is ndarray:
        return is_held(x.dtype)
    return any(holds_arrays(part, deep + 1) for part in _parts(x)) if deep < MOST_DEEP else False


def _parts(x: Any) -> Sequence[Any]:
    """Return the elements of a list, tuple or dict; none of anything else, or of too many."""
    kind = type(x)
    known = kind is list or kind is dict or is_remade(x)
    if not known or len(x) > MOST_ELEMENTS:
        return ()
    return list(cast(Any, x).values()) if kind is dict else list(x)


def is_remade(x: Any) -> bool:
    """Return whether a value is a tuple of which another one can be made from other elements alone: a plain tuple, or a
    named tuple with no other state.
    """
    kind = type(x)
    return kind is tuple or (issubclass(kind, tuple) and _adds_nothing(kind) and not getattr(x, "__dict__", None))


@lru_cache(maxsize=1024)
def _adds_nothing(kind: type) -> bool:
    """Return whether a class of tuples constructs them as `namedtuple` does."""
    *added, named = [vars(base) for base in kind.__mro__[: kind.__mro__.index(tuple)]]
    return "_fields" in named and not any({"__new__", "_make"} & one.keys() for one in added)


def bounds_of(x: slice) -> tuple[Any, Any, Any]:
    """Return the bounds and the step of a slice."""
    return x.start, x.stop, x.step


def remade(x: Any, parts: Sequence[Any]) -> Any:
    """Return a tuple like x of other elements, x itself where they are its own."""
    if all(one is other for one, other in zip(parts, x, strict=True)):
        return x
    return tuple(parts) if type(x) is tuple else type(x)._make(parts)


class _Holder:
    """A list or dict that has tensors in place of its arrays, as long as calls that were given it go on.

    calls: how many of these go on. originals: the tensor in it and the array that it replaces, by the id of the former.
    """

    def __init__(self, holder: Any) -> None:
        self.holder, self.calls = holder, 0
        self.originals: dict[int, tuple[Any, Any]] = {}

    def items(self) -> list[tuple[Any, Any]]:
        return list(self.holder.items() if isinstance(self.holder, dict) else enumerate(self.holder))

    def put_back(self) -> None:
        for key, value in self.items():
            if id(value) in self.originals:
                self.holder[key] = self.originals[id(value)][1]


# These lists and dicts, by their ids: several threads may call with the same ones.
_holders: dict[int, _Holder] = {}
_lock = fork_safe_lock()


class Shared:
    """Arguments, args and kwargs, with tensors in place of the NumPy arrays whose memory they share. Within its `with`
    block lists and dicts among them hold such tensors, after it the arrays again.
    """

    def __init__(self, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        self._given, self._named = args, kwargs
        self._made: dict[int, Any] = {}  # of arrays, by their ids
        self._originals: dict[int, tuple[Any, Any]] = {}
        self._held: dict[int, _Holder] = {}
        self.args: list[Any] = []
        self.kwargs: dict[str, Any] = {}

    @classmethod
    def of(cls, args: Sequence[Any], kwargs: dict[str, Any]) -> Shared | None:
        """Return arguments to be shared; None where there are no arrays, or the default device is not the CPU."""
        every = (*args, *kwargs.values())
        if not any(map(holds_arrays, every)) and not (_holders and any(map(_parts, every))):
            return None
        return cls(args, kwargs) if settings().device == "cpu" else None

    def __enter__(self) -> Shared:
        try:
            with _lock:
                self.args = [self._of(x) for x in self._given]
                self.kwargs = {name: self._of(x) for name, x in self._named.items()}
        except BaseException:  # an interrupt
            self.__exit__()
            raise
        return self

    def __exit__(self, *failure: object) -> None:
        with _lock:
            while self._held:
                number, held = self._held.popitem()
                held.calls -= 1
                held.originals |= self._originals
                if not held.calls:
                    held.put_back()
                    _holders.pop(number, None)

    def _of(self, x: Any, deep: int = 0) -> Any:
        """Return the value that the function gets in place of x. deep: the level of nesting of x."""
        if type(x) is ndarray and is_held(x.dtype):
            if id(x) not in self._made:
                made = self._made[id(x)] = from_native(x, shared=True)
                self._originals[id(made)] = made, x
            return self._made[id(x)]
        parts = _parts(x) if deep < MOST_DEEP and id(x) not in self._held else ()
        if not parts:
            return x
        if not isinstance(x, tuple):
            self._hold(x, deep)
            return x
        other = remade(x, [self._of(part, deep + 1) for part in parts])
        if other is not x:
            self._originals[id(other)] = other, x
        return other

    def _hold(self, x: Any, deep: int) -> None:
        """Put tensors in place of the arrays in a list or dict."""
        held = _holders.setdefault(id(x), _Holder(x))
        self._held[id(x)] = held
        held.calls += 1
        for key, value in held.items():
            made = self._of(value, deep + 1)
            if made is not value:
                x[key] = made

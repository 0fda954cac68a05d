"""What machine code calls Python for at every call of a kind, made ready for that kind: what is computed of numbers
(graph/number.py), and where what a call leaves elsewhere is put (rebound.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from ..graph.number import Again, Number
from ..tensor.trees import Rebuild, flatten, rebuilt
from .rebound import Left

# What takes the leaves of a call and does something with them.
OfLeaves = Callable[[Sequence[Any]], Any]


def computing(
    again: Again,
    packed: Callable[..., bytes],
    words: Sequence[tuple[int, Callable[[Any], Any] | None]],
    cells: Sequence[int],
) -> Callable[[tuple[Any, ...]], tuple[Any, ...] | None]:
    """Return a function that takes the numbers of a call and returns the words for its run, packed, and what is in some
    cells; None where a comparison or a type comes out otherwise, or a step fails.

    words: of each the cell, and what makes it of that, None where it is the same.
    """
    of, nothing = again.of, b"" if words else packed()
    kept = itemgetter(*cells) if len(cells) > 1 else None

    def compute(numbers: tuple[Any, ...]) -> tuple[Any, ...] | None:
        found = of(numbers)
        if found is None:
            return None
        told = nothing
        if words:
            try:
                told = packed(*[found[cell] if way is None else way(found[cell]) for cell, way in words])
            except (ArithmeticError, TypeError, ValueError):
                return None
        if kept is not None:
            return (told, *kept(found))
        return (told, found[cells[0]]) if cells else (told,)

    return compute


class _Leaf(int):
    """The number of a leaf, in the place of one."""


def putting(build: Rebuild, left: Sequence[Left], count: int, owners: Sequence[Any]) -> OfLeaves:
    """Return a function that puts what is left elsewhere and returns the result. It takes the leaves of both, so many,
    and behind them the holders, which are like these.
    """
    result, values = rebuilt(build, [_Leaf(number) for number in range(count)])
    puts = [_put(one, _taken(value), count, owners) for one, value in zip(left, values, strict=True)]
    answer = None if result is None else _taken(result)

    def put(leaves: Sequence[Any]) -> Any:
        found = None if answer is None else answer(leaves)
        for one in puts:
            one(leaves)
        return found

    return put


def _taken(tree: Any) -> OfLeaves:
    """Return what makes a tree of leaves."""
    if type(tree) is _Leaf:
        return itemgetter(int(tree))
    if type(tree) is tuple and len(tree) > 1 and all(type(part) is _Leaf for part in tree):
        return itemgetter(*tree)
    return lambda leaves: _made(tree, leaves)


def _made(tree: Any, leaves: Sequence[Any]) -> Any:
    """Return a tree with leaves in the place of their numbers."""
    numbers, build = flatten(tree)
    return rebuilt(build, [leaves[one] if type(one) is _Leaf else one for one in numbers])


def _put(left: Left, value: OfLeaves, count: int, owners: Sequence[Any]) -> OfLeaves:
    """Return what puts a value, as Left.put does."""
    where, key = left.where, left.key
    if isinstance(where, int) and left.is_there and type(key) is not Number:
        at, holder, put = count + where, owners[where], object.__setattr__
        if isinstance(holder, dict):
            return lambda leaves: leaves[at].__setitem__(key, value(leaves))
        if not isinstance(holder, (list, deque, set)):
            return lambda leaves: put(leaves[at], key, value(leaves))
    return lambda leaves: left.put(leaves[count:], value(leaves))

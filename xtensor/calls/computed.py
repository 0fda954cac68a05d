"""Python functions that machine code calls at every call of a kind, specialised for that kind: they compute cells from
numbers (graph/number.py), and bind anew what a call leaves elsewhere (rebound.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from ..graph.number import Again, Number
from ..tensor.trees import Rebuild, flatten, rebuilt
from .rebound import Left

# A function of the leaves of a call.
OfLeaves = Callable[[Sequence[Any]], Any]


def computing(
    again: Again,
    packed: Callable[..., bytes],
    words: Sequence[tuple[int, Callable[[Any], Any] | None]],
    cells: Sequence[int],
) -> Callable[[tuple[Any, ...]], tuple[Any, ...] | None]:
    """Return a function that takes the numbers of a call and returns the packed words for its run, and the values of
    some cells; None where a comparison or a type comes out otherwise, or a step fails.

    words: for each word its cell, and the function that converts that, None if it is the word itself.
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
    """The number of a leaf, in place of the leaf."""


def putting(build: Rebuild, left: Sequence[Left], count: int, owners: Sequence[Any]) -> OfLeaves:
    """Return a function that binds anew what a call leaves elsewhere and returns the result. It takes `count` leaves of
    both, and behind them the holders, which are of the types of `owners`.
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
    """Return a function that builds a tree from leaves."""
    if type(tree) is _Leaf:
        return itemgetter(int(tree))
    if type(tree) is tuple and len(tree) > 1 and all(type(part) is _Leaf for part in tree):
        return itemgetter(*tree)
    return lambda leaves: _made(tree, leaves)


def _made(tree: Any, leaves: Sequence[Any]) -> Any:
    """Return a tree with leaves in place of their numbers."""
    numbers, build = flatten(tree)
    return rebuilt(build, [leaves[one] if type(one) is _Leaf else one for one in numbers])


def _put(left: Left, value: OfLeaves, count: int, owners: Sequence[Any]) -> OfLeaves:
    """Return a function that puts a value as Left.put does."""
    where, key = left.where, left.key
    if isinstance(where, int) and left.is_there and type(key) is not Number:
        at, holder, put = count + where, owners[where], object.__setattr__
        if isinstance(holder, dict):
            return lambda leaves: leaves[at].__setitem__(key, value(leaves))
        if not isinstance(holder, (list, deque, set)):
            return lambda leaves: put(leaves[at], key, value(leaves))
    return lambda leaves: left.put(leaves[count:], value(leaves))

"""What machine code calls Python for at every call of a kind, made ready for that kind: what is computed of numbers
(graph/number.py), and where what a call leaves elsewhere is put (rebound.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from ..graph.number import Again, Number, Step
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
    cells; None where a comparison or a type comes out otherwise, or a step fails: what Again.of gives, in half the
    time.

    words: of each the cell, and what makes it of that, None where it is the same.
    """
    base, traced, steps = again.cells, again.traced, [_of_two(step) for step in again.steps]
    alone = traced[0] if len(traced) == 1 else None
    nothing, kept = packed() if not words else b"", itemgetter(*cells) if len(cells) > 1 else None

    def compute(numbers: tuple[Any, ...]) -> tuple[Any, ...] | None:
        found = base.copy()
        if alone is not None:
            found[alone] = numbers[0]
        else:
            for place, number in zip(traced, numbers, strict=True):
                found[place] = number
        try:
            for function, first, second, cell, expected in steps:
                value = function(found[first], found[second])
                if cell is None:
                    if value is not expected:
                        return None
                elif type(value) is expected:
                    found[cell] = value
                else:
                    return None
            told = nothing
            if words:
                told = packed(*[found[cell] if of is None else of(found[cell]) for cell, of in words])
        except (ArithmeticError, TypeError, ValueError):
            return None
        if kept is not None:
            return (told, *kept(found))
        return (told, found[cells[0]]) if cells else (told,)

    return compute


def _of_two(step: Step) -> tuple[Callable[[Any, Any], Any], int, int, int | None, Any]:
    """Return a step, which has one operand or two, as one of two."""
    function, operands, cell, expected = step
    first, *others = operands
    if not others:
        return lambda x, _: function(x), first, first, cell, expected
    (second,) = others
    return function, first, second, cell, expected


class _Leaf(int):
    """The number of a leaf, in the place of one."""


def putting(build: Rebuild, left: Sequence[Left], count: int, owners: Sequence[Any]) -> OfLeaves:
    """Return a function that puts what is left elsewhere and returns the result. It takes the leaves of both, so many,
    and behind them the holders, which are like these.
    """
    result, values = rebuilt(build, [_Leaf(number) for number in range(count)])
    puts = [_put(one, _taken(value), count, owners) for one, value in zip(left, values, strict=True)]
    answer = None if result is None else _taken(result)
    if answer is None and len(puts) == 1:
        return puts[0]  # it returns None as well

    def put(leaves: Sequence[Any]) -> Any:
        found = None if answer is None else answer(leaves)
        for one in puts:
            one(leaves)
        return found

    return put


def _taken(tree: Any) -> OfLeaves:
    """Return what makes a tree of leaves."""
    if type(tree) is _Leaf:
        return itemgetter(tree)
    if type(tree) is tuple and len(tree) > 1 and all(type(part) is _Leaf for part in tree):
        return itemgetter(*tree)
    return lambda leaves: _made(tree, leaves)


def _made(tree: Any, leaves: Sequence[Any]) -> Any:
    """Return a tree with leaves in the place of their numbers."""
    numbers, build = flatten(tree)
    return rebuilt(build, [leaves[one] if type(one) is _Leaf else one for one in numbers])


def _put(left: Left, value: OfLeaves, count: int, owners: Sequence[Any]) -> OfLeaves:
    """Return what puts a value, as Left.put does, and returns nothing."""
    where, key = left.where, left.key
    if isinstance(where, int) and left.is_there and type(key) is not Number:
        at, holder, put = count + where, owners[where], object.__setattr__
        if isinstance(holder, dict):
            return lambda leaves: leaves[at].__setitem__(key, value(leaves))
        if not isinstance(holder, (list, deque, set)):
            return lambda leaves: put(leaves[at], key, value(leaves))
    return lambda leaves: left.put(leaves[count:], value(leaves))

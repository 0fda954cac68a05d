"""What machine code calls Python for at every call of a kind, as functions whose text is written for that kind: what is
computed of numbers (graph/number.py), and where what a call leaves elsewhere is put (rebound.py).
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ..graph.number import Again, Number
from ..tensor.trees import Rebuild, rebuilt
from .rebound import Left

# How Python writes what `operator` has as functions.
_BINARY = {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.truediv: "/", operator.floordiv: "//",
    operator.mod: "%", operator.pow: "**", operator.and_: "&", operator.or_: "|", operator.xor: "^",
    operator.lshift: "<<", operator.rshift: ">>", operator.lt: "<", operator.le: "<=", operator.gt: ">",
    operator.ge: ">=", operator.eq: "==", operator.ne: "!=",
}  # fmt: skip


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
    known: dict[str, Any] = {"packed": packed, "int": int, "float": float}
    made = {*again.traced, *[step.cell for step in again.steps]}

    def named(cell: int) -> str:
        if cell not in made:
            known[f"k{cell}"] = again.cells[cell]
            return f"k{cell}"
        return f"c{cell}"

    lines = []
    for number, (function, operands, cell, expected) in enumerate(again.steps):
        names = [named(one) for one in operands]
        if function in _BINARY and len(names) == 2:
            value = f"{names[0]} {_BINARY[function]} {names[1]}"
        else:
            known[f"f{number}"] = function
            value = f"f{number}({', '.join(names)})"
        if cell is None:
            known[f"e{number}"] = expected
            lines.append(f"if ({value}) is not e{number}: return None")
        else:
            lines += [f"c{cell} = {value}", f"if type(c{cell}) is not {expected.__name__}: return None"]
    told = []
    for number, (cell, of) in enumerate(words):
        known[f"w{number}"] = of
        told.append(named(cell) if of is None else f"w{number}({named(cell)})")
    found = ", ".join([f"packed({', '.join(told)})", *map(named, cells)])
    given = "".join([f"c{cell}, " for cell in again.traced])
    text = "\n".join(
        [
            "def compute(numbers):",
            f"    {given}= numbers" if given else "    pass",
            "    try:",
            *[f"        {line}" for line in lines],
            f"        return ({found},)",
            "    except (ArithmeticError, TypeError, ValueError):",
            "        return None",
        ]
    )
    exec(text, known)
    found_function: Callable[[tuple[Any, ...]], tuple[Any, ...] | None] = known["compute"]
    return found_function


class _UnwrittenError(Exception):
    """There is no text for something."""


class _Leaf(int):
    """The number of a leaf, in the place of one."""


def putting(build: Rebuild, left: Sequence[Left], count: int, owners: Sequence[Any]) -> Callable[[Sequence[Any]], Any]:
    """Return a function that puts what is left elsewhere and returns the result. It takes the leaves of both, so many,
    and behind them the holders, which are like these.
    """
    result, values = rebuilt(build, [_Leaf(number) for number in range(count)])
    known: dict[str, Any] = {"set_attribute": object.__setattr__}
    names = [*[f"l{number}" for number in range(count)], *[f"h{number}" for number in range(len(owners))]]
    try:
        lines = [_put(one, _written(value), known, owners) for one, value in zip(left, values, strict=True)]
        answer = _written(result)
    except _UnwrittenError:
        return partial(_put_each, build, left, count)
    text = "\n".join(
        [
            "def put(leaves):",
            f"    ({', '.join(names)},) = leaves" if names else "    pass",
            *[f"    {line}" for line in lines],
            f"    return {answer}",
        ]
    )
    exec(text, known)
    found: Callable[[Sequence[Any]], Any] = known["put"]
    return found


def _put_each(build: Rebuild, left: Sequence[Left], count: int, leaves: Sequence[Any]) -> Any:
    """Do what the function that `putting` returns does, whatever it is."""
    result, values = rebuilt(build, leaves[:count])
    for one, value in zip(left, values, strict=True):
        one.put(leaves[count:], value)
    return result


def _written(tree: Any) -> str:
    """Return the text of a tree of leaves; raises _UnwrittenError for others than lists and tuples."""
    if type(tree) is _Leaf:
        return f"l{tree}"
    if tree is None:
        return "None"
    if type(tree) not in (list, tuple):
        raise _UnwrittenError
    parts = ", ".join(map(_written, tree))
    return f"[{parts}]" if type(tree) is list else f"({parts}{',' * (len(tree) == 1)})"


def _put(left: Left, value: str, known: dict[str, Any], owners: Sequence[Any]) -> str:
    """Return the line that puts a value, as Left.put does."""
    name = f"k{len(known)}"
    if isinstance(left.where, list):
        known[name] = holder = left.where[0]
        if not isinstance(holder, dict):
            return f"{name}.cell_contents = {value}"
        if left.is_there and type(left.key) is str:
            return f"{name}[{left.key!r}] = {value}"
        raise _UnwrittenError
    holder = owners[left.where]
    if not left.is_there or type(left.key) is Number or isinstance(holder, (list, deque, set)):
        raise _UnwrittenError
    known[name] = left.key
    if isinstance(holder, dict):
        return f"h{left.where}[{name}] = {value}"
    return f"set_attribute(h{left.where}, {name}, {value})"

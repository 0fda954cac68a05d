"""The result of a captured call: leaves, each with the place where later calls find it, and what builds the result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from functools import partial
from operator import is_
from typing import Any, NamedTuple

from ..autograd.back import beginnings
from ..autograd.rules import Rule
from ..autograd.tape import Leaf, Step, carry
from ..tensor.face import Tensor
from ..tensor.trees import rebuilt
from .computed import putting
from .rebound import Left, held

Places = Mapping[int, int]


def given(place: int, made: list[Tensor], tensors: list[Tensor], holders: list[Any], cells: Sequence[Any]) -> Tensor:
    return tensors[place]


def result(place: int, made: list[Tensor], tensors: list[Tensor], holders: list[Any], cells: Sequence[Any]) -> Tensor:
    return made[place]


def holder(place: int, made: list[Tensor], tensors: list[Tensor], holders: list[Any], cells: Sequence[Any]) -> Any:
    return holders[place]


def computed(cell: int, made: list[Tensor], tensors: list[Tensor], holders: list[Any], cells: Sequence[Any]) -> Any:
    return cells[cell]


def as_number(place: int, made: list[Tensor], tensors: list[Tensor], holders: list[Any], cells: Sequence[Any]) -> float:
    return float(made[place])


def fixed(value: Any, made: list[Tensor], tensors: list[Tensor], holders: list[Any], cells: Sequence[Any]) -> Any:
    return value


def ways_of(
    leaves: Sequence[Any], tensors: Places, made: Places, holders: Places, cells: Places, numbers: Places
) -> list[Callable[..., Any]]:
    """Return for each leaf a function that returns it in later calls. tensors, made, holders, cells: places of the
    objects of the first call, by id; numbers: of leaves that are elements of made ones. What is none is a constant.
    """
    known = ((given, tensors), (result, made), (holder, holders), (computed, cells), (as_number, numbers))
    ways: list[Callable[..., Any]] = []
    for leaf in leaves:
        found = (partial(way, places[id(leaf)]) for way, places in known if id(leaf) in places)
        ways.append(next(found, partial(fixed, leaf)))
    return ways


class Spent(NamedTuple):
    """A result whose gradient the function itself has computed, so that its tape is used up. made: the number of the
    result; rule: that of its step; leaves: the numbers of the tensors whose gradients were computed.
    """

    made: int
    rule: Rule | None
    leaves: tuple[int, ...]

    def put(self, made: list[Tensor], tensors: list[Tensor]) -> None:
        """Give a result of a later call a step that depends on the same tensors, and whose tape is used up."""
        parents = [tensors[leaf]._step for leaf in self.leaves]
        step = Step(self.rule, tuple(parents), made[self.made])
        step.given = None
        carry(made[self.made], step)


def spent_of(made: Sequence[Tensor], tensors: Sequence[Tensor]) -> list[Spent]:
    """Return those of some results whose tapes are used up. tensors: those that were given or found."""
    owners = {x.owner for x in tensors}
    leaves: dict[Step, int] = {x._step: place for place, x in enumerate(tensors) if type(x._step) is Leaf}
    found = []
    for number, x in enumerate(made):
        step = x._step
        if step is not None and step.given is None and x.owner not in owners:  # views of leaves must not be written
            known = beginnings(step)
            if known <= leaves.keys():
                found.append(Spent(number, step.rule, tuple([leaves[leaf] for leaf in known])))
    return found


def _with_numbers(build: Callable[..., Any], converted: Set[int], leaves: Iterator[Any]) -> Any:
    """Return the tree of leaves, some of which are tensors that become numbers."""
    return build(iter([float(leaf) if place in converted else leaf for place, leaf in enumerate(leaves)]))


# Stands for a holder among leaves for machine code, which only knows objects.
HOLDER = -1


def told_tree(
    leaves: Sequence[Any], build: Any, left: Sequence[Left], holders: Sequence[Any]
) -> tuple[list[tuple[int, Any]], Any, list[Any]]:
    """Return leaves, and what builds a result from them, in the form for machine code (codegen/cpu/dispatch.py), and
    the holders that it passes as well. leaves: partials of the functions above; left: where values are put elsewhere.
    """
    from ..codegen.cpu.kinds import CELL, OBJECT, RESULT, SINGLE, TENSOR, TUPLE

    kinds = {result: RESULT, as_number: RESULT, given: TENSOR, fixed: OBJECT, computed: CELL}
    converted = frozenset([place for place, leaf in enumerate(leaves) if leaf.func is as_number])
    numbers = sorted({one.where for one in left if isinstance(one.where, int)})
    owners = [held(holders[number]) for number in numbers]
    told = [
        (HOLDER, holders[leaf.args[0]]) if leaf.func is holder else (kinds[leaf.func], leaf.args[0]) for leaf in leaves
    ]
    itself = [*owners, *[value for kind, value in told if kind == HOLDER]]
    whole = partial(_with_numbers, build, converted) if converted else build
    if left:
        places = {number: place for place, number in enumerate(numbers)}
        moved = [one._replace(where=places[one.where]) if isinstance(one.where, int) else one for one in left]
        return [*told, *[(HOLDER, one) for one in owners]], putting(whole, moved, len(told), owners), itself
    if not leaves and rebuilt(build, ()) is None:
        return [(OBJECT, None)], SINGLE, itself
    if whole is next:
        return told, SINGLE, itself
    tree = rebuilt(build, told)
    is_flat = type(tree) is tuple and len(tree) == len(told) and all(map(is_, tree, told))
    return told, TUPLE if is_flat and not converted else partial(rebuilt, whole), itself

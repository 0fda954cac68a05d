"""What a captured call returns: leaves, each from where later calls have it, and what makes the result of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import is_
from typing import Any

from ..tensor.face import Tensor
from ..tensor.trees import rebuilt

Places = Mapping[int, int]


def given(place: int, made: list[Tensor], tensors: list[Tensor], holders: list[Any], cells: Sequence[Any]) -> Tensor:
    return tensors[place]


def result(place: int, made: list[Tensor], tensors: list[Tensor], holders: list[Any], cells: Sequence[Any]) -> Tensor:
    return made[place]


def holder(place: int, made: list[Tensor], tensors: list[Tensor], holders: list[Any], cells: Sequence[Any]) -> Any:
    return holders[place]


def computed(cell: int, made: list[Tensor], tensors: list[Tensor], holders: list[Any], cells: Sequence[Any]) -> Any:
    return cells[cell]


def fixed(value: Any, made: list[Tensor], tensors: list[Tensor], holders: list[Any], cells: Sequence[Any]) -> Any:
    return value


def ways_of(
    leaves: Sequence[Any], tensors: Places, made: Places, holders: Places, cells: Places
) -> list[Callable[..., Any]]:
    """Return for each leaf what returns it in later calls. tensors, made, holders, cells: where they are, by the ids of
    those of the first call; what is among none of them is a constant.
    """
    known = ((given, tensors), (result, made), (holder, holders), (computed, cells))
    ways: list[Callable[..., Any]] = []
    for leaf in leaves:
        found = (partial(way, places[id(leaf)]) for way, places in known if id(leaf) in places)
        ways.append(next(found, partial(fixed, leaf)))
    return ways


def told_tree(leaves: Sequence[Any], build: Any) -> tuple[list[tuple[int, Any]], Any] | None:
    """Return leaves and what makes a result of them as machine code takes them (codegen/cpu/dispatch.py); None where it
    cannot. leaves: partials of the functions above.
    """
    from ..codegen.cpu.kinds import CELL, OBJECT, RESULT, SINGLE, TENSOR, TUPLE

    if not leaves:
        return ([(OBJECT, None)], SINGLE) if rebuilt(build, ()) is None else None
    kinds = {result: RESULT, given: TENSOR, fixed: OBJECT, computed: CELL}
    if not all(leaf.func in kinds for leaf in leaves):
        return None
    told = [(kinds[leaf.func], leaf.args[0]) for leaf in leaves]
    if build is next:
        return told, SINGLE
    tree = rebuilt(build, told)
    is_flat = type(tree) is tuple and len(tree) == len(told) and all(map(is_, tree, told))
    return told, TUPLE if is_flat else partial(rebuilt, build)

"""Sketches: the work of the engine as text items and the edges between them; drawing.py makes pictures of them.

They hold only text and numbers, so that a sketch keeps neither memory nor pending values alive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

# The looks of items: kernels; values given, between kernels in memory, handed on in registers, or returned; notes.
KERNEL, GIVEN, BETWEEN, HANDED, RESULT, NOTE = "kernel", "given", "between", "handed on", "result", "note"


class Item(NamedTuple):
    """Something with a title, lines of text and a look."""

    title: str
    lines: tuple[str, ...] = ()
    look: str = KERNEL


class Sketch(NamedTuple):
    """Items under a heading of some lines. edges: from one item to a later one, by their places."""

    heading: tuple[str, ...]
    items: tuple[Item, ...] = ()
    edges: tuple[tuple[int, int], ...] = ()


class Box(NamedTuple):
    """A computation: its item, and the numbers of the values that it takes and gives."""

    item: Item
    takes: Sequence[int]
    gives: Sequence[int]


def sketch_of(heading: Iterable[str], boxes: Iterable[Box], value: Callable[[int], Item]) -> Sketch:
    """Return a sketch of boxes, each after its operands, with values between them. value: the item of a number."""
    items: list[Item] = []
    edges: list[tuple[int, int]] = []
    places: dict[int, int] = {}

    def place(number: int) -> int:
        if number not in places:
            places[number] = len(items)
            items.append(value(number))
        return places[number]

    for box in boxes:
        before = [place(number) for number in dict.fromkeys(box.takes)]
        own = len(items)
        items.append(box.item)
        edges += [(one, own) for one in before]
        edges += [(own, place(number)) for number in box.gives]
    return Sketch(tuple(heading), tuple(items), tuple(edges))


def column_of(heading: Iterable[str], words: Iterable[str]) -> Sketch:
    """Return a sketch of items in sequence; equal ones that follow each other are one item with their count."""
    counted = [(name, len([*same])) for name, same in groupby(words)]
    items = [Item(name if count == 1 else f"{count} times {name}") for name, count in counted]
    return Sketch(tuple(heading), tuple(items), tuple(pairwise(range(len(items)))))

"""A pending graph with its values numbered, and a key of its structure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..devices.cpu import KNOWN_POWERS
from ..graph.node import Node, node_of
from ..graph.number import Number, type_of
from ..storage.blob import TBlob


class Trace:
    """A pending graph with its values numbered: `values[number]` is a Node, a TBlob or a Python scalar, which may be
    a Number.

    arguments: for each node's number, the numbers of its inputs. kept: the nodes whose values are needed afterwards.
    costly: contractions and steps that depend on them; those saved for a gradient are kept, as it would take
        long to compute again.
    known: the scalars whose values the code depends on, by number.
    key: the structure, equal for graphs that one plan serves.
    """

    __slots__ = ("_shapes", "_shared", "arguments", "costly", "kept", "key", "known", "numbers", "values")

    def __init__(self, order: Sequence[Node], wanted: Iterable[Node]) -> None:
        self.values: list[Any] = []
        self.numbers: dict[Any, int] = {}
        self.arguments: dict[int, tuple[int, ...]] = {}
        self.kept: set[int] = set()
        self.known: dict[int, Any] = {}
        self._shapes: dict[Any, int] = {}
        self._shared: list[int] = []
        self.costly: set[int] = set()
        key: list[Any] = []
        for node in order:
            self._enter(node, key)
        self.kept.update([n for n in self._shared if self.values[n].readers_outside(self.numbers)])
        self.kept.update([self.numbers[node] for node in wanted])
        key.append(tuple(sorted(self.kept)))
        self.key = tuple(key)

    def _enter(self, node: Node, key: list[Any]) -> None:
        """Number a node and those of its inputs that are new."""
        values, numbers, shapes = self.values, self.numbers, self._shapes
        arguments = []
        for value in node.inputs:
            kind = type(value)
            if kind is Node and value.blob is not None:
                value, kind = value.blob, TBlob
            if kind is TBlob or kind is Node:
                number = numbers.get(value)
                if number is None:
                    number = numbers[value] = len(values)
                    values.append(value)
                    shape = shapes.get(value.shape)
                    key += (value.dtype.num, self._new_shape(value.shape) if shape is None else shape)
            else:
                number = len(values)
                values.append(value)
                key.append(kind if kind is not Number else type_of(value))
                if node.op.name == "pow" and value in KNOWN_POWERS:  # other scalars are run-time arguments of the code
                    self.known[number] = value
                    key.append(value)
            arguments.append(number)
        number = numbers[node] = len(values)
        values.append(node)
        taken = self.arguments[number] = tuple(arguments)
        shape = shapes.get(node.shape)
        key += (node.op, taken, self._new_shape(node.shape) if shape is None else shape)
        if node.params:
            key.append(tuple(node.params.items()))
        face, readers = node.face, node.readers
        if (face is not None and face() is not None) or (node.parts is not None and node.has_parts()):
            self.kept.add(number)
        elif readers is not None and len(readers) > 1:
            self._shared.append(number)
        if node.op.kind == "contraction" or (self.costly and not self.costly.isdisjoint(arguments)):
            self.costly.add(number)
            if node.saver is not None and node.saver() is not None:
                self.kept.add(number)

    def _new_shape(self, shape: Any) -> Any:
        """Give a shape a number; return an entry for the key with all that a plan may depend on."""
        number = self._shapes[shape] = len(self._shapes)
        return number, tuple([length == 1 for length in shape])

    def without_values(self) -> Trace:
        """Return the structure only, which keeps nothing alive."""
        bare = Trace((), ())
        bare.arguments, bare.kept, bare.known, bare.key = self.arguments, self.kept, self.known, self.key
        bare.costly = self.costly
        return bare

    def structure(self) -> Trace:
        """Return the trace of the same steps and scalars, which keeps no memory alive."""
        return self.without_values().of([None if type(value) is TBlob else bare(value) for value in self.values])

    def of(self, values: list[Any]) -> Trace:
        """Return the trace of other values in this structure."""
        other = Trace.__new__(Trace)
        other.values, other.arguments, other.kept = values, self.arguments, self.kept
        other.known, other.key, other.costly = self.known, self.key, self.costly
        return other

    def simplified(self, kept: Iterable[int], same: Mapping[int, int]) -> Trace:
        """Return this trace with fewer kept values, and with inputs that equal other inputs replaced by these.

        same: the numbers of such inputs, and of those that they equal.
        """
        other = self.of(self.values)
        other.kept = set(kept)
        needed = set(kept)
        for number, taken in reversed(self.arguments.items()):
            if number in needed:
                needed.update([same.get(one, one) for one in taken])
        own = [(number, taken) for number, taken in self.arguments.items() if number in needed]
        other.arguments = {number: tuple([same.get(one, one) for one in taken]) for number, taken in own}
        other.key = (self.key, tuple(sorted(other.kept)), tuple(same.items()))
        return other

    def followed_by(self, other: Trace) -> Trace:
        """Return these steps followed by those of another trace, whose values get the next numbers."""
        base, both = len(self.values), self.of([*self.values, *other.values])
        both.arguments = self.arguments | {
            base + number: tuple([base + one for one in taken]) for number, taken in other.arguments.items()
        }
        both.kept = self.kept | {base + number for number in other.kept}
        both.known = self.known | {base + number: value for number, value in other.known.items()}
        both.costly = self.costly | {base + number for number in other.costly}
        both.key = (self.key, other.key)
        return both

    def nodes(self) -> Iterator[tuple[int, Node]]:
        """Yield the numbered nodes, each after its inputs."""
        for number in self.arguments:
            yield number, self.values[number]


def bare(value: Any) -> Any:
    """Return a trace's value without memory that may change: a node without its inputs, a blob only if it is fixed."""
    if isinstance(value, TBlob):
        return value if value.fixed else None
    if isinstance(value, Node):
        return node_of(value.op, (), value.params, value.shape, value.dtype, value.device)
    return value

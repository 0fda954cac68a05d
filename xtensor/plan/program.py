"""Where to cut: pending nodes become kernels, loops that read and write memory once.

`trace` numbers the values of a graph and gives its structure a key; `cut` turns the structure into kernels. Nothing
here depends on sizes, strides or the values of scalars, so a plan is made once per structure and remembered.

The plan is mshadow's: expressions say what is computed, plans say how, and are made of indices and dtypes only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from heapq import heapify, heappop, heappush
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ..base.caches import make_room
from ..base.dtypes import DType, promote, real_of
from ..devices.cpu import SMALL_POWERS
from ..graph.node import Node, Operation, View, node_of
from ..storage.blob import TBlob
from .costs import COLUMNS_AGAIN, FUNCTIONS, LOOP_RESULTS, LOOP_STEPS, REDUCING_COST, REGISTERS, code_size, picoseconds

# Reductions that combine element by element, in any grouping; all others are computed on finished arrays.
COMBINING = frozenset(("sum", "prod", "max", "min", "any", "all", "count_nonzero"))

# Plans and programs remembered at most.
REMEMBERED = 4096


class Named(NamedTuple):
    """An operation that only generated code has; it is a primitive's name, or a reduction's."""

    name: str
    kind: str = "elementwise"
    element: Any = None

    def kernel(self, backend: Any) -> Any:
        raise NotImplementedError(f"{self.name} is a step of generated code only")


class Step(NamedTuple):
    """One operation inside a loop.

    args: numbers of the values it takes; loop: the dtypes they are converted to first; dtype: what comes out.
    params: the op's parameters (the dtype of a cast), as pairs.
    """

    op: Operation
    params: tuple[tuple[str, Any], ...]
    args: tuple[int, ...]
    loop: tuple[DType, ...]
    dtype: DType


class Reduction(NamedTuple):
    """A reduction at the end of a loop, of the value numbered `arg`, accumulated and returned as `dtype`."""

    op: Operation
    params: tuple[tuple[str, Any], ...]
    arg: int
    dtype: DType


@dataclass(frozen=True, eq=False)
class Program:
    """What one loop does to one element, in numbers of its own: inputs first, then scalars, then a step each.

    There is one object per program (`program` makes it), so that programs compare and hash at once.

    inputs: dtypes read from memory; scalars: dtypes of the run-time numbers; outputs: which values are written.
    known: scalars whose value changes the code, as (number, value). reductions: all over the same axes.
    """

    inputs: tuple[DType, ...]
    scalars: tuple[DType, ...]
    known: tuple[tuple[int, Any], ...]
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]
    reductions: tuple[Reduction, ...]

    @cached_property
    def dtypes(self) -> list[DType]:
        """The dtype of every value."""
        return [*self.inputs, *self.scalars, *(step.dtype for step in self.steps)]

    @cached_property
    def seconds(self) -> float:
        """An estimate of what generated code computes on one element, memory aside, on one thread."""
        each = sum(picoseconds(step, dict(self.known)) for step in self.steps)
        return 1e-12 * (each + REDUCING_COST * sum(reduction.dtype.itemsize for reduction in self.reductions))

    @cached_property
    def moved(self) -> tuple[DType, ...]:
        """The dtypes of inputs and outputs, which move to and from memory."""
        return (*self.inputs, *(self.dtypes[number] for number in self.outputs))

    @cached_property
    def traffic(self) -> int:
        """Bytes that one element moves to and from memory, where every operand has the whole shape."""
        return sum(dtype.itemsize for dtype in self.moved)

    @cached_property
    def alive(self) -> int:
        """The most inputs and steps that are needed at once, when the steps are made in their order."""
        inputs, first = len(self.inputs), len(self.inputs) + len(self.scalars)
        return inputs + _most_alive([[a for a in one.args if a < inputs or a >= first] for one in self.steps])

    @cached_property
    def notes(self) -> dict[str, Any]:
        """What engines have found out about this program."""
        return {}

    @cached_property
    def widest(self) -> int:
        """Bytes of the largest value."""
        return max(dtype.itemsize for dtype in self._all)

    @cached_property
    def widest_part(self) -> int:
        """Bytes of the largest number that is real, or a part of a complex one."""
        return max(real_of(dtype).itemsize for dtype in self._all)

    @property
    def _all(self) -> list[DType]:
        return [*self.dtypes, *(one.dtype for one in self.reductions)]


def _most_alive(taken: Sequence[Iterable[int]]) -> int:
    """Return how many more values there are at most, as steps are made in an order, than before the first of them.

    taken: what each step takes, of what counts.
    """
    last = {number: place for place, numbers in enumerate(taken) for number in numbers}
    found = most = 0
    for place, numbers in enumerate(taken):
        found += 1 - len({number for number in numbers if last[number] == place})
        most = max(most, found)
    return most


_programs: dict[Any, Program] = {}


def program(*facts: Any) -> Program:
    """Return the one Program of these fields."""
    found = _programs.get(facts)
    if found is None:
        make_room(_programs, REMEMBERED)
        found = _programs[facts] = Program(*facts)
    return found


class Kernel(NamedTuple):
    """A program and the values of the graph it works on, by their numbers in the trace.

    domain: the value whose shape the loop runs over.
    results: what the program's outputs and then its reductions become.
    axes: of reductions, the reduced axes of the domain.
    direct: the number of a node that is computed by the backend's own function instead, else None.
    """

    program: Program
    domain: int
    inputs: tuple[int, ...]
    scalars: tuple[int, ...]
    results: tuple[int, ...]
    axes: tuple[int, ...] = ()
    direct: int | None = None


class Columns(NamedTuple):
    """Kernels that can all go over the same columns: reductions over some leading axes, and what follows.

    What lies between is computed where it is used, so that every result is one that somebody wants, or narrow.
    """

    lead: int
    kernels: tuple[Kernel, ...]


@dataclass(frozen=True, eq=False)
class Plan:
    """Kernels in the order they run.

    last: for each kernel, the temporary values that nobody needs after it.
    rows: where all kernels can run row by row over the leading axes, the number of those axes, else 0.
    strided: whether some of its values may be strided although all operands are packed.
    columns: the same where all reductions are over the leading axes, None where they are not.
    endings: the kernels of which each is all that follows a contraction, element by element, with that one's kernel.
    schedules: what is prepared, by where operands lie.
    """

    kernels: tuple[Kernel, ...]
    last: tuple[tuple[int, ...], ...]
    kept: frozenset[int]
    rows: int
    strided: bool
    columns: Columns | None = None
    endings: Mapping[int, int] = field(default_factory=dict)
    schedules: dict[Any, Any] = field(default_factory=dict)

    def largest(self, values: Sequence[Any] | Mapping[int, Any]) -> int:
        """Return the elements of the largest loop over these values."""
        return max(int(prod(values[kernel.domain].shape)) for kernel in self.kernels)


# ---- trace


class Trace:
    """A pending graph with its values numbered: `values[number]` is a Node, a TBlob or a Python scalar.

    arguments: of each node's number, the numbers of its inputs. kept: the nodes whose bytes somebody will want.
    costly: contractions and what they lead to; of these, what is kept for a gradient is wanted too, as it would take
        long to compute again.
    known: the scalars that code is made for, by number.
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
                key.append(kind)
                if node.op.name == "pow" and value in SMALL_POWERS:  # other scalars are run-time arguments of the code
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
        """Give a shape a number; the key learns what a plan may depend on."""
        number = self._shapes[shape] = len(self._shapes)
        return number, tuple([length == 1 for length in shape])

    def without_values(self) -> Trace:
        """Return the structure alone, which keeps nothing alive."""
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
        """Return this trace where only some of what is kept is wanted, and some inputs are others again.

        same: of such inputs the numbers, and those of what they are.
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
        """Return these steps and then those of another trace, whose values are numbered on."""
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
    """Return what is kept of a trace's value: of a node all but its inputs, of memory that may change nothing."""
    if isinstance(value, TBlob):
        return value if value.fixed else None
    if isinstance(value, Node):
        return node_of(value.op, (), value.params, value.shape, value.dtype, value.device)
    return value


# ---- what a step computes with


def loop_of(op: Operation, kinds: tuple[Any, ...], dtype: DType) -> tuple[DType, ...]:
    """Return the dtypes an elementwise op converts its operands to, given their dtypes or scalar types.

    These are the loops of NumPy's ufuncs; `dtype` is the result's.
    """
    if op.name == "where":
        return np.dtype(bool), dtype, dtype
    if op.name == "astype":
        return kinds
    if op.name in _UNCHANGED or (op.name == "round" and kinds[0].kind in "iu"):
        return kinds
    ufunc = getattr(np, "rint" if op.name == "round" else op.name, None)
    if not isinstance(ufunc, np.ufunc):
        common = promote(*kinds)
        return (common,) * len(kinds)
    found = [np.dtype(bool) if kind is bool else kind for kind in kinds]
    return tuple(ufunc.resolve_dtypes((*found, None))[: len(kinds)])


# What takes every dtype as it is.
_UNCHANGED = frozenset(("real", "imag", "conj", "positive"))


# ---- cut


_plans: dict[Any, Plan] = {}


def plan_of(trace: Trace) -> Plan:
    """Return the kernels of a graph; graphs of one structure share a plan."""
    found = _plans.get(trace.key)
    if found is None:
        make_room(_plans, REMEMBERED)
        found = _plans[trace.key] = _Cut(trace).plan()
    return found


class _Cut:
    """One cutting: every node gets a level and a group; a group becomes a kernel.

    A group begins with its level, its turn there, and which part it is of what was too large. Edges within a group stay
    in registers. They join nodes of one shape, or lead from an elementwise node into a reduction. All others raise the
    level, so that no path leaves a group and comes back.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.values = trace.values
        self.level: dict[int, int] = {}
        self.group: dict[int, tuple[Any, ...]] = {}
        self.users: dict[int, list[int]] = {}
        for number, node in trace.nodes():
            self._place(number, node)
            for argument in {*trace.arguments[number]}:
                self.users.setdefault(argument, []).append(number)
        self._separate_axes()
        self._separate_parts()

    def _place(self, number: int, node: Node) -> None:
        """Give a node its level and group."""
        arguments = self.trace.arguments[number]
        elementwise = node.op.kind == "elementwise"
        if node.op.kind == "view":  # at the end of its operand's level
            level = self.level.get(arguments[0], -1)
            self.group[number] = (level, 2, number)
        elif not elementwise and node.op.name not in COMBINING:
            level = 1 + max((self.level.get(a, -1) for a in arguments), default=-1)
            self.group[number] = (level, 0, number)
        else:
            domain = node.shape if elementwise else self.values[arguments[0]].shape
            level = max((self._level_from(a, domain) for a in arguments), default=0)
            self.group[number] = (level, 0, 0, "loop", domain)
        self.level[number] = level

    def _level_from(self, argument: int, domain: Any) -> int:
        if argument not in self.level:
            return 0
        node = self.values[argument]
        fuses = node.op.kind == "elementwise" and node.shape == domain
        return self.level[argument] + (0 if fuses else 1)

    def _separate_axes(self) -> None:
        """Give reductions over other axes than their group's first ones a loop of their own, after it."""
        first: dict[tuple[Any, ...], Any] = {}
        for number, group in list(self.group.items()):
            node = self.values[number]
            if node.op.kind == "reduction" and len(group) == 5:
                axes = node.params["axis"]
                if axes != first.setdefault(group, axes):
                    self.group[number] = (group[0], 1, *group[2:], axes)

    def _members(self) -> dict[tuple[Any, ...], list[int]]:
        """Return the nodes of each group."""
        members: dict[tuple[Any, ...], list[int]] = {}
        for number, group in self.group.items():
            members.setdefault(group, []).append(number)
        return members

    def _separate_parts(self) -> None:
        """Cut groups of more steps, or that write more results, than one loop does well."""
        for group, members in self._members().items():
            steps = [number for number in members if self._is_mapped(number)]
            stored = {number for number in steps if self._is_stored(number)}
            sizes = {number: self._size(number) for number in steps}
            if sum(sizes.values()) <= LOOP_STEPS and len(stored) <= LOOP_RESULTS:
                continue
            part, made, written = 0, 0.0, 0
            for number in self._scheduled(steps):
                if made >= LOOP_STEPS or written == LOOP_RESULTS:
                    part, made, written = part + 1, 0.0, 0
                made, written = made + sizes[number], written + (number in stored)
                self.group[number] = (*group[:2], part, *group[3:])
            for number in members:
                reduced = self.trace.arguments[number][0]
                if not self._is_mapped(number) and self.group.get(reduced, ())[3:5] == group[3:5]:
                    self.group[number] = self.group[reduced]  # where what it reduces is at hand

    def _size(self, number: int) -> float:
        """Return how many steps the code of a step is as long as."""
        product = any([argument in self.trace.known for argument in self.trace.arguments[number]])
        return 1 if product else code_size(self.values[number].op.name)

    def plan(self) -> Plan:
        members = self._members()
        order = sorted(members, key=lambda group: group[:3])
        kernels = tuple(self._kernel(members[group]) for group in order)
        strided = any([type(node.op) is View and node.op.strides for _, node in self.trace.nodes()])
        rows = _common_rows(kernels, self.values)
        lead = _common_columns(kernels, self.values)
        columns = self._columns(lead, [members[group] for group in order]) if lead else None
        endings = self._endings(order, kernels)
        last = last_uses(kernels, self.trace, self.trace.kept)
        return Plan(kernels, last, frozenset(self.trace.kept), rows, strided, columns, endings)

    def _endings(self, order: Sequence[tuple[Any, ...]], kernels: Sequence[Kernel]) -> dict[int, int]:
        """Return which kernels are all that follows a contraction, by their places; of several that one follows, the
        last.
        """
        places = {group: place for place, group in enumerate(order)}
        found = {}
        for place, kernel in enumerate(kernels):
            number = kernel.results[0]
            users = self.users.get(number, ())
            if self.values[number].op.kind != "contraction" or number in self.trace.kept or not users:
                continue
            after = places[self.group[users[0]]]
            alone = all([self.group[user] == order[after] for user in users]) and kernels[after].direct is None
            domain = self.values[kernels[after].domain].shape
            if alone and domain == self.values[number].shape and not kernels[after].program.reductions:
                found[after] = place
        return found

    def _columns(self, lead: int, groups: Sequence[list[int]]) -> Columns | None:
        """Return the kernels of a column program, None where costly functions or too many steps would be made again."""
        kernels: list[Kernel] = []
        costly: list[int] = []
        room = COLUMNS_AGAIN * len(self.group)
        for members in groups:
            ends = [n for n in members if not self._is_mapped(n) or self._is_stored(n, again=True)]
            if ends:
                computed = self._computed(ends)
                room -= len(computed)
                if room < 0:
                    return None
                kernels.append(self._kernel(ends, computed))
                costly += [n for n in computed if self.values[n].op.name in FUNCTIONS]
        domains = [self.values[kernel.domain].shape for kernel in kernels]
        whole = next(d for kernel, d in zip(kernels, domains, strict=True) if kernel.program.reductions)
        return Columns(lead, tuple(kernels)) if domains.count(whole) > 1 and len(costly) == len({*costly}) else None

    def _computed(self, ends: Sequence[int]) -> list[int]:
        """Return some values of a group and what they are made of that has their shape and is in nobody's memory."""
        found, todo = set(ends), list(ends)
        group = self.group[ends[0]]
        while todo:
            for argument in self.trace.arguments[todo.pop()]:
                other = self.group.get(argument, ())
                inside = other == group or (other[3:5] == group[3:5] and argument not in self.trace.kept)
                if inside and self._is_mapped(argument) and argument not in found:
                    found.add(argument)
                    todo.append(argument)
        return sorted(found)

    def _is_mapped(self, number: int) -> bool:
        return bool(self.values[number].op.kind == "elementwise")

    def _is_stored(self, number: int, *, again: bool = False) -> bool:
        """Return whether a value is written to memory: kept, or used by another kernel.

        again: whether kernels over one shape compute for themselves what others of them do.
        """
        if number in self.trace.kept:
            return True
        own = self.group[number]
        users = [self.group[user] for user in self.users.get(number, ())]
        return any([user[3:5] != own[3:5] if again else user != own for user in users])

    def _kernel(self, members: list[int], computed: Sequence[int] = ()) -> Kernel:
        """Return the kernel of a group. computed: where `members` are those it leaves, all that it computes."""
        first = self.values[members[0]]
        if first.op.kind != "elementwise" and first.op.name not in COMBINING:
            return self._direct(members[0])
        inside = computed or members
        inputs, scalars = self._sources(inside)
        local = {number: place for place, number in enumerate((*inputs, *scalars))}
        mapped = self._scheduled([number for number in inside if self._is_mapped(number)])
        reduced = [number for number in members if not self._is_mapped(number)]
        for number in mapped:
            local[number] = len(local)
        steps = tuple(self._step(number, local) for number in mapped)
        scalar_dtypes = _scalar_dtypes(steps, len(inputs), len(scalars))
        reductions = tuple(self._reduction(number, local) for number in reduced)
        stored = [n for n in members if self._is_mapped(n) and (computed or self._is_stored(n))]
        made = program(
            tuple(self.values[number].dtype for number in inputs),
            scalar_dtypes,
            tuple((local[n], self.trace.known[n]) for n in scalars if n in self.trace.known),
            steps,
            tuple(local[number] for number in stored),
            reductions,
        )
        domain = mapped[0] if mapped else self.trace.arguments[reduced[0]][0]
        axes = self.values[reduced[0]].params["axis"] if reduced else ()
        return Kernel(made, domain, inputs, scalars, (*stored, *reduced), axes)

    def _scheduled(self, steps: Sequence[int]) -> Sequence[int]:
        """Return the steps of a kernel, where they are many in an order in which few values are needed at once."""
        inside = set(steps)
        if len(inside) <= REGISTERS:
            return steps
        taken = {number: inside.intersection(self.trace.arguments[number]) for number in steps}
        orders = self._as_recorded(taken), self._depth_first(taken)
        return min(orders, key=lambda order: _most_alive([taken[number] for number in order]))

    def _as_recorded(self, taken: Mapping[int, set[int]]) -> list[int]:
        """Return steps in the order in which they were recorded, as far as each then follows those that it takes."""
        missing = {number: len(numbers) for number, numbers in taken.items()}
        ready = [(self.values[number].serial, number) for number in taken if not missing[number]]
        heapify(ready)
        order = []
        while ready:
            order.append(heappop(ready)[1])
            for user in self.users.get(order[-1], ()):
                if user in missing:
                    missing[user] -= 1
                    if not missing[user]:
                        heappush(ready, (self.values[user].serial, user))
        return order

    def _depth_first(self, taken: Mapping[int, set[int]]) -> list[int]:
        """Return steps each after all that it needs, of which the one numbered last comes first."""
        order: dict[int, None] = {}
        stack: list[int] = [
            number for number in reversed([*taken]) if taken.keys().isdisjoint(self.users.get(number, ()))
        ]
        while stack:
            missing = [number for number in taken[stack[-1]] if number not in order]
            if missing:
                stack += sorted(missing)
            else:
                order[stack.pop()] = None
        return list(order)

    def _direct(self, number: int) -> Kernel:
        inputs = tuple(a for a in self.trace.arguments[number] if isinstance(self.values[a], (Node, TBlob)))
        nothing = program((), (), (), (), (), ())
        return Kernel(nothing, number, inputs, (), (number,), (), number)

    def _sources(self, members: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the numbers of what a kernel reads from memory, and of its scalars."""
        inputs: dict[int, None] = {}
        scalars: list[int] = []
        inside = set(members)
        for number in members:
            for argument in self.trace.arguments[number]:
                if not isinstance(self.values[argument], (Node, TBlob)):
                    scalars.append(argument)
                elif argument not in inside or not self._is_mapped(argument):
                    inputs[argument] = None
        return tuple(inputs), tuple(scalars)

    def _step(self, number: int, local: dict[int, int]) -> Step:
        node, arguments = self.values[number], self.trace.arguments[number]
        kinds = tuple(getattr(self.values[a], "dtype", None) or type(self.values[a]) for a in arguments)
        loop = loop_of(node.op, kinds, node.dtype)
        return Step(node.op, tuple(node.params.items()), tuple(local[a] for a in arguments), loop, node.dtype)

    def _reduction(self, number: int, local: dict[int, int]) -> Reduction:
        node = self.values[number]
        return Reduction(node.op, tuple(node.params.items()), local[self.trace.arguments[number][0]], node.dtype)


def last_uses(kernels: Sequence[Kernel], trace: Trace, kept: Collection[int]) -> tuple[tuple[int, ...], ...]:
    """Return for each of a trace's kernels, in the order they run, which values, but those kept, it uses last."""
    last = {number: place for place, kernel in enumerate(kernels) for number in (*kernel.results, *kernel.inputs)}
    for number, node in reversed(list(trace.nodes())):
        if node.op.kind == "view":  # whose memory lies in its operand's
            (whole,) = trace.arguments[number]
            last[whole] = max(last[whole], last[number])
    found: list[list[int]] = [[] for _ in kernels]
    for number, place in last.items():
        if isinstance(trace.values[number], Node) and number not in kept:
            found[place].append(number)
    return tuple(map(tuple, found))


def _scalar_dtypes(steps: Sequence[Step], before: int, count: int) -> tuple[DType, ...]:
    """Return the dtype each scalar has in the one step that takes it."""
    used = {arg: dtype for step in steps for arg, dtype in zip(step.args, step.loop, strict=True)}
    return tuple(used[before + place] for place in range(count))


def _common_columns(kernels: Sequence[Kernel], values: Sequence[Any]) -> int:
    """Return how many leading axes all reductions are over, where all kernels share the columns; 0 where not."""
    reducing = [kernel for kernel in kernels if kernel.program.reductions]
    if len(kernels) < 2 or not reducing or any(kernel.direct is not None for kernel in kernels):
        return 0
    shape, lead = values[reducing[0].domain].shape, len(reducing[0].axes)
    narrow = [values[n].shape for kernel in reducing for n in kernel.results[len(kernel.program.outputs) :]]
    if lead == len(shape) or any(sorted(kernel.axes) != list(range(lead)) for kernel in reducing):
        return 0
    if any(values[kernel.domain].shape != shape for kernel in reducing):
        return 0
    return lead if all(values[kernel.domain].shape in (shape, *narrow) for kernel in kernels) else 0


def _common_rows(kernels: Sequence[Kernel], values: Sequence[Any]) -> int:
    """Return how many leading axes all kernels share when every reduction is over all the axes after them.

    Then a block of rows can go through all kernels while it is in the cache. 0 where that is not so.
    """
    reducing = [kernel for kernel in kernels if kernel.program.reductions]
    if len(kernels) < 2 or not reducing or any(kernel.direct is not None for kernel in kernels):
        return 0
    shape, axes = values[reducing[0].domain].shape, reducing[0].axes
    rows = len(shape) - len(axes)
    narrow = (*shape[:rows], *(1,) * len(axes))
    if rows == 0 or tuple(sorted(axes)) != tuple(range(rows, len(shape))):
        return 0
    for kernel in kernels:
        whole = values[kernel.domain].shape == shape
        kept = all(dict(reduction.params)["keepdims"] for reduction in kernel.program.reductions)
        if kernel.program.reductions and not (whole and kept and set(kernel.axes) == set(axes)):
            return 0
        if not whole and values[kernel.domain].shape != narrow:
            return 0
    return rows

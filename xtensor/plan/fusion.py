"""Where to cut: pending nodes become kernels, loops that read and write memory once.

Nothing here depends on sizes, strides or the values of scalars, so a plan is made once per structure and cached.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Any

from ..base.caches import make_room
from ..base.dtypes import DType
from ..base.options import settings
from ..graph.node import COMBINING, Node, View
from ..graph.number import type_of
from ..storage.blob import TBlob
from .costs import (
    CACHE_SPEED,
    COLUMNS_AGAIN,
    FUNCTIONS,
    LOOP_RESULTS,
    LOOP_STEPS,
    REGISTERS,
    SLOW_KINDS,
    STEPS_AGAIN,
    code_size,
    picoseconds_of,
)
from .program import REMEMBERED, Columns, Kernel, Plan, Reduction, Step, loop_of, most_alive, program
from .trace import Trace

_plans: dict[Any, Plan] = {}


def plan_of(trace: Trace) -> Plan:
    """Return the kernels of a graph; graphs of one structure share a plan. Where library calls are asked for, steps are
    calls, and no value is made again.
    """
    key = trace.key, settings().engine == "interpret"
    found = _plans.get(key)
    if found is None:
        make_room(_plans, REMEMBERED)
        found = _plans[key] = _Cut(trace).plan(stores_all=key[1])
    return found


class _Cut:
    """The partition of one graph: every node gets a level and a group; a group becomes a kernel.

    A group's tuple begins with its level, its order within that, and its number among the parts of a group that was too
    large. Values on edges within a group stay in registers. These edges join nodes of one shape, or lead from an
    elementwise node into a reduction. All others raise the level, so that no path leaves a group and comes back.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.values = trace.values
        self.level: dict[int, int] = {}
        self.group: dict[int, tuple[Any, ...]] = {}
        self.users: dict[int, list[int]] = {}
        self.again: set[int] = set()
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
        """Move reductions over other axes than those of their group's first one to a loop of their own, after it."""
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
        """Divide groups with more steps or stored results than one loop handles well."""
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
                    self.group[number] = self.group[reduced]  # where its operand is in a register

    def _size(self, number: int) -> float:
        """Return the code size of a step, in cheap steps."""
        product = any([argument in self.trace.known for argument in self.trace.arguments[number]])
        return 1 if product else code_size(self.values[number].op.name)

    def plan(self, *, stores_all: bool) -> Plan:
        """Return the plan. stores_all: whether all values that other kernels use are stored."""
        members = self._members()
        order = sorted(members, key=lambda group: group[:3])
        kernels = tuple(self._kernel(members[group]) for group in order)
        endings = self._endings(kernels)
        strided = any([type(node.op) is View and node.op.strides for _, node in self.trace.nodes()])
        reducing = [kernel for kernel in kernels if kernel.program.reductions]
        rows = lead = 0
        if len(kernels) > 1 and reducing and all(kernel.direct is None for kernel in kernels):
            rows = _common_rows(kernels, reducing, self.values)
            lead = _common_columns(kernels, reducing, self.values)
        columns = self._columns(lead, [members[group] for group in order]) if lead else None
        ended = {kernels[place].results[0] for place in endings.values()}
        if not rows and not stores_all and self._made_again(members, ended):
            kernels = self._with_values_again([members[group] for group in order])
            endings = self._endings(kernels)
        last = last_uses(kernels, self.trace, self.trace.kept)
        return Plan(kernels, last, frozenset(self.trace.kept), rows, strided, columns, endings)

    def _made_again(self, members: Mapping[tuple[Any, ...], list[int]], ended: Collection[int]) -> set[int]:
        """Decide which stored values the kernels that use them compute themselves: where that takes less time than
        writing a value once and reading it for each of these kernels, which then read its operands. ended: contractions
        whose values never reach memory.
        """
        reads = {group: self._whole(inside) for group, inside in members.items() if group[3:]}
        added = dict.fromkeys(reads, 0)
        for number in [n for n in sorted(self.group) if self._may_be_made_again(n)]:  # operands before what needs them
            made = self._computed([number], None)
            given = self._whole(made)
            users = {self.group[user] for user in self.users[number]} - {self.group[number]}
            more = sum([self.values[one].dtype.itemsize for user in users for one in given - reads[user]])
            # a line of memory that is written is read before
            saved = ((2 + len(users)) * self.values[number].dtype.itemsize - more) / CACHE_SPEED
            fits = all([added[user] + len(made) <= STEPS_AGAIN for user in users])
            if fits and len(users) * sum(map(self._seconds, made)) <= saved and given.isdisjoint(ended):
                self.again.add(number)
                for user in users:
                    reads[user] = reads[user] - {number} | given
                    added[user] += len(made)
        return self.again

    def _seconds(self, number: int) -> float:
        """Estimate the seconds that one element of a step takes."""
        name, dtype = self.values[number].op.name, self.values[number].dtype
        slower = SLOW_KINDS.get(dtype.kind, SLOW_KINDS.get(dtype.str[1:], 1))
        return 1e-12 * slower * picoseconds_of(name, dtype.itemsize)

    def _may_be_made_again(self, number: int) -> bool:
        """Return whether only kernels over its shape use a stored value, which is computed by a step; parts of a group
        that was too large do not become larger.
        """
        if not self._is_mapped(number) or number in self.trace.kept or not self._is_stored(number):
            return False
        own = self.group[number]
        users = [self.group[user] for user in self.users[number]]
        return all([user == own or (user[3:5] == own[3:5] and user[:2] != own[:2]) for user in users])

    def _whole(self, steps: Sequence[int]) -> set[int]:
        """Return the arrays of their shape that steps read from memory."""
        shape = self.values[steps[0]].shape
        return {one for one in self._sources(steps)[0] if self.values[one].shape == shape}

    def _with_values_again(self, groups: Sequence[list[int]]) -> tuple[Kernel, ...]:
        """Return kernels that compute values themselves; those that stored nothing else are left out."""
        kernels = list[Kernel]()
        for members in groups:
            ends = [n for n in members if not self._is_mapped(n) or self._is_stored(n)]
            if ends:
                group = self.group[ends[0]]
                kernels.append(self._kernel(ends, self._computed(ends, group) if group[3:] else ()))
        return tuple(kernels)

    def _endings(self, kernels: Sequence[Kernel]) -> dict[int, int]:
        """Return the kernels that alone read a contraction, by their places, with the place of the contraction; of
        several the last.
        """
        readers: dict[int, list[int]] = {}
        for place, kernel in enumerate(kernels):
            for number in kernel.inputs:
                readers.setdefault(number, []).append(place)
        found = {}
        for place, kernel in enumerate(kernels):
            number = kernel.results[0]
            after = readers.get(number, ())
            if self.values[number].op.kind != "contraction" or number in self.trace.kept or len(after) != 1:
                continue
            user = kernels[after[0]]
            domain = self.values[user.domain].shape
            if user.direct is None and domain == self.values[number].shape and not user.program.reductions:
                found[after[0]] = place
        return found

    def _columns(self, lead: int, groups: Sequence[list[int]]) -> Columns | None:
        """Return the kernels of a column program, None where costly functions or too many steps would be recomputed."""
        kernels: list[Kernel] = []
        costly: list[int] = []
        room = COLUMNS_AGAIN * len(self.group)
        for members in groups:
            ends = [n for n in members if not self._is_mapped(n) or self._is_stored(n, again=True)]
            if ends:
                computed = self._computed(ends, self.group[ends[0]], every=True)
                room -= len(computed)
                if room < 0:
                    return None
                kernels.append(self._kernel(ends, computed))
                costly += [n for n in computed if self.values[n].op.name in FUNCTIONS]
        domains = [self.values[kernel.domain].shape for kernel in kernels]
        whole = next(d for kernel, d in zip(kernels, domains, strict=True) if kernel.program.reductions)
        return Columns(lead, tuple(kernels)) if domains.count(whole) > 1 and len(costly) == len({*costly}) else None

    def _computed(self, ends: Sequence[int], group: tuple[Any, ...] | None, *, every: bool = False) -> list[int]:
        """Return some values of a group and the steps behind them that it computes: its own, and those that are not
        stored. every: whether it computes all that have its shape and are not kept.
        """
        found, todo = set(ends), list(ends)
        while todo:
            for argument in self.trace.arguments[todo.pop()]:
                if argument in self.group and argument not in found and self._is_mapped(argument):
                    own = self.group[argument] == group
                    if own or (self._has_shape(argument, group) if every else not self._is_stored(argument)):
                        found.add(argument)
                        todo.append(argument)
        return sorted(found)

    def _has_shape(self, number: int, group: Any) -> bool:
        """Return whether a value that is not kept has the shape of a group."""
        return self.group[number][3:5] == group[3:5] and number not in self.trace.kept

    def _is_mapped(self, number: int) -> bool:
        return bool(self.values[number].op.kind == "elementwise")

    def _is_stored(self, number: int, *, again: bool = False) -> bool:
        """Return whether a value is written to memory: kept, or used by another kernel.

        again: whether kernels over one shape recompute each other's values.
        """
        if number in self.trace.kept:
            return True
        if number in self.again and not again:
            return False
        own = self.group[number]
        users = [self.group[user] for user in self.users.get(number, ())]
        return any([user[3:5] != own[3:5] if again else user != own for user in users])

    def _kernel(self, members: list[int], computed: Sequence[int] = ()) -> Kernel:
        """Return the kernel of a group. computed: all nodes that it computes, if `members` are only those it stores."""
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
        """Return the steps of a kernel; many steps in an order that keeps few values alive at once."""
        inside = set(steps)
        if len(inside) <= REGISTERS:
            return steps
        taken = {number: inside.intersection(self.trace.arguments[number]) for number in steps}
        orders = self._as_recorded(taken), self._depth_first(taken)
        return min(orders, key=lambda order: most_alive([taken[number] for number in order]))

    def _as_recorded(self, taken: Mapping[int, set[int]]) -> list[int]:
        """Return steps in the order in which they were recorded, as far as each comes after its operands."""
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
        """Return steps in depth-first order: each after its operands, of which those with higher numbers come first."""
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
        """Return the numbers of the values that a kernel reads from memory, and of its scalars."""
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
        given = [self.values[one] for one in arguments]
        kinds = tuple([x.dtype if isinstance(x, (Node, TBlob)) else type_of(x) for x in given])
        loop = loop_of(node.op, kinds, node.dtype)
        return Step(node.op, tuple(node.params.items()), tuple(local[a] for a in arguments), loop, node.dtype)

    def _reduction(self, number: int, local: dict[int, int]) -> Reduction:
        node = self.values[number]
        return Reduction(node.op, tuple(node.params.items()), local[self.trace.arguments[number][0]], node.dtype)


def last_uses(kernels: Sequence[Kernel], trace: Trace, kept: Collection[int]) -> tuple[tuple[int, ...], ...]:
    """Return for each of a trace's kernels, in order, the values that it is the last to use, except kept ones."""
    last = {number: place for place, kernel in enumerate(kernels) for number in (*kernel.results, *kernel.inputs)}
    for number, node in reversed(list(trace.nodes())):
        if node.op.kind == "view":  # it shares its operand's memory
            (whole,) = trace.arguments[number]
            last[whole] = max(last[whole], last[number])
    found: list[list[int]] = [[] for _ in kernels]
    for number, place in last.items():
        if isinstance(trace.values[number], Node) and number not in kept:
            found[place].append(number)
    return tuple(map(tuple, found))


def _scalar_dtypes(steps: Sequence[Step], before: int, count: int) -> tuple[DType, ...]:
    """Return the dtype of each scalar in the one step that takes it."""
    used = {arg: dtype for step in steps for arg, dtype in zip(step.args, step.loop, strict=True)}
    return tuple(used[before + place] for place in range(count))


def _common_columns(kernels: Sequence[Kernel], reducing: Sequence[Kernel], values: Sequence[Any]) -> int:
    """Return over how many leading axes all reductions are, if all kernels share the columns; else 0."""
    shape, lead = values[reducing[0].domain].shape, len(reducing[0].axes)
    narrow = [values[n].shape for kernel in reducing for n in kernel.results[len(kernel.program.outputs) :]]
    if lead == len(shape) or any(sorted(kernel.axes) != list(range(lead)) for kernel in reducing):
        return 0
    if any(values[kernel.domain].shape != shape for kernel in reducing):
        return 0
    return lead if all(values[kernel.domain].shape in (shape, *narrow) for kernel in kernels) else 0


def _common_rows(kernels: Sequence[Kernel], reducing: Sequence[Kernel], values: Sequence[Any]) -> int:
    """Return how many leading axes all kernels share when every reduction is over all the axes after them.

    Then a block of rows can go through all kernels while it is in the cache. Return 0 if they do not.
    """
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

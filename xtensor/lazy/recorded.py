"""Expressions of arguments: a graph that was recorded once and runs again over other memory laid out alike.

Shapes, layouts and scalars are those of the first graph, so everything is known but where the arguments lie: once the
kernels are compiled, a run is nothing but their launches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from ..blob import Buffer, TBlob
from ..layout import Layout, Shape
from ..options import Settings
from . import engines, launch
from .graph import Node, pending_below
from .launch import scalar_bytes
from .plan import Kernel, Plan, Trace, plan_of
from .planned import Evaluation

# Seconds that a library call costs beside its arithmetic, and a launch of ready kernels.
CALL_SECONDS, LAUNCH_SECONDS = 0.8e-6, 6e-6


# Why an expression is not one of arguments alone, or why it is not run by kernels.
OUTSIDE = "it reads a tensor that is not an argument, or one that was computed at once"
KEEPS = "it keeps a value that it does not return"
EMPTY = "there are no elements"
SMALL = "library calls cost less for arrays as small as these"
NOT_YET = "its library calls have not taken as long yet as compiling would"


def record(nodes: Sequence[Node], roots: Mapping[TBlob, tuple[int, int]]) -> Recorded | str:
    """Return pending nodes as an expression of arguments, or why they are none.

    roots: of memory that belongs to arguments, the number of the argument and the bytes after its first element.
    """
    trace = Trace(pending_below(nodes), nodes)
    if trace.kept != {trace.numbers[node] for node in nodes}:
        return KEEPS
    leaves = {}
    for number, value in enumerate(trace.values):
        if isinstance(value, TBlob):
            if value not in roots:
                return OUTSIDE
            leaves[number] = Leaf(*roots[value], value.dtype, value.layout.shape, value.layout.strides)
    recorded = Recorded(trace, leaves, nodes)
    return recorded if recorded.elements else EMPTY


class Leaf(NamedTuple):
    """Memory that an expression reads: a view of an argument, so many bytes after the argument's first element."""

    argument: int
    after: int
    dtype: Any
    shape: Shape
    strides: Shape

    def of(self, blobs: Sequence[TBlob]) -> TBlob:
        """Return it as a view of these arguments."""
        blob = blobs[self.argument]
        return blob.view(Layout(self.shape, self.strides, blob.layout.offset + self.after), dtype=self.dtype)


class Recorded:
    """An expression of arguments.

    values: those of the trace: Python scalars, nodes without inputs, and None in the place of memory.
    leaves: what is memory, by number. results: the numbers of the results.
    small: whether library calls are expected to cost less than launching kernels.
    """

    def __init__(self, trace: Trace, leaves: Mapping[int, Leaf], results: Iterable[Node]) -> None:
        self.results = [trace.numbers[node] for node in results]
        self.leaves = leaves
        self.plan = plan_of(trace)
        self.trace = trace.without_values()
        self.values = [_bare(value) for value in trace.values]
        self.elements = self.plan.largest(trace.values)
        programs = [kernel.program for kernel in self.plan.kernels]
        library = CALL_SECONDS * len(trace.arguments) + self.elements * sum(map(engines.library_seconds, programs))
        self.small = library < LAUNCH_SECONDS * len(programs)
        self.nbytes = self.elements * max(program.widest for program in programs)

    def compute(self, blobs: Sequence[TBlob], limits: Settings) -> list[TBlob]:
        """Return the results for these arguments, by whatever engine is due."""
        found = self._evaluation(blobs, limits).compute()
        return [found[number] for number in self.results]

    def why_not(self, limits: Settings, direct_bytes: int) -> str:
        """Return why library calls are to be made instead, "" where kernels are due."""
        if limits.engine != "auto":
            return ""
        if self.small:
            return SMALL
        compiled = all([engines.is_compiled(kernel.program) for kernel in self.plan.kernels])
        return "" if compiled or self.nbytes > direct_bytes else NOT_YET

    def is_due(self, limits: Settings, direct_bytes: int) -> bool:
        """Return whether kernels are to run it, by the settings and by what its library calls would have cost so far."""
        why = self.why_not(limits, direct_bytes)
        if why != NOT_YET:
            return not why
        return all([engines.choose(kernel.program, self.elements, limits)[0] == "llvm" for kernel in self.plan.kernels])

    def ready(self, blobs: Sequence[TBlob], limits: Settings) -> Ready | None:
        """Return the expression as launches, None where not all of it is compiled."""
        kernels = self.plan.kernels
        if limits.engine == "interpret" or self.elements == 0:
            return None
        if any(kernel.direct is not None or not engines.is_compiled(kernel.program) for kernel in kernels):
            return None
        return Ready(self, self._evaluation(blobs, limits), limits)

    def _evaluation(self, blobs: Sequence[TBlob], limits: Settings) -> Evaluation:
        values = self.values.copy()
        for number, leaf in self.leaves.items():
            values[number] = leaf.of(blobs)
        return Evaluation(self.trace.of(values), self.plan, None, limits)


def _bare(value: Any) -> Any:
    """Return what is kept of a trace's value: of a node all but its inputs, of memory nothing."""
    if isinstance(value, TBlob):
        return None
    if isinstance(value, Node):
        return Node(value.op, (), value.params, value.shape, value.dtype, value.device)
    return value


class Launch(NamedTuple):
    """One kernel ready to run.

    makes: what it writes: number, bytes, dtype, layout and whether that is packed. takes: the numbers of its operands.
    run: takes the operands' addresses, and the blobs of what is made. drops: the numbers that nobody needs after it.
    """

    makes: list[tuple[int, int, Any, Layout, bool | None]]
    takes: tuple[int, ...]
    run: Callable[[list[int], list[TBlob]], None]
    drops: tuple[int, ...]


class Ready:
    """An expression as launches of compiled kernels, under the settings it was made for."""

    def __init__(self, recorded: Recorded, evaluation: Evaluation, limits: Settings) -> None:
        self.limits = limits
        self.device = evaluation.values[recorded.results[0]].device
        self.count = len(recorded.values)
        self.leaves = [(number, leaf.argument, leaf.after) for number, leaf in recorded.leaves.items()]
        self.results = recorded.results
        self.launches = [
            self._launch(kernel, evaluation, last)
            for kernel, last in zip(recorded.plan.kernels, recorded.plan.last, strict=True)
        ]

    def run(self, blobs: Sequence[TBlob]) -> list[TBlob]:
        """Return the results for these arguments."""
        addresses: dict[int, int] = {}
        for number, argument, after in self.leaves:
            blob = blobs[argument]
            addresses[number] = (blob._address or blob.address) + after
        found: dict[int, TBlob] = {}
        device = self.device
        for makes, takes, run, drops in self.launches:
            made = []
            for number, nbytes, dtype, layout, packed in makes:
                blob = found[number] = TBlob(Buffer(device, nbytes), dtype, layout, device)
                blob._packed = packed
                addresses[number] = blob.address
                made.append(blob)
            run([addresses[number] for number in takes], made)
            for number in drops:
                del found[number]
        return [found[number] for number in self.results]

    def _launch(self, kernel: Kernel, evaluation: Evaluation, last: tuple[int, ...]) -> Launch:
        """Return a kernel ready to run; the evaluation learns how its results lie."""
        program, values = kernel.program, evaluation.values
        shape, contract = values[kernel.domain].shape, self.limits.fast_math
        made = {number: evaluation.result(number) for number in kernel.results}
        evaluation.blobs.update(made)
        numbers = (*kernel.inputs, *kernel.results)
        plain = len(program.moved)
        blobs = [evaluation.blobs[number] for number in numbers]
        seen = [*blobs[:plain], *(engines._with_axes(blob, shape, kernel.axes) for blob in blobs[plain:])]
        strides = [_over(blob, shape) for blob in seen]
        scalars = [values[number] for number in kernel.scalars]
        packed = b"".join([scalar_bytes(value, d) for value, d in zip(scalars, program.scalars, strict=True)])
        threads = launch.threads_for(launch.seconds_of(program, prod(shape)))
        run = self._runner(kernel, shape, strides, contract, threads, packed)
        makes = [(n, blob.buffer.nbytes, blob.dtype, blob.layout, blob._packed) for n, blob in made.items()]
        return Launch(makes, numbers[:plain], run, last)

    def _runner(
        self, kernel: Kernel, shape: Shape, strides: Sequence[Shape], contract: bool, threads: int, scalars: bytes
    ) -> Callable[[list[int], list[TBlob]], None]:
        program = kernel.program
        if not program.reductions:
            ready = launch._ready_map(program, shape, strides, contract, threads, True)
            return lambda addresses, made: ready.run(addresses, scalars)
        reducing = launch._ready_reduction(program, shape, kernel.axes, strides, contract, threads)
        outputs = len(program.outputs)
        return lambda addresses, made: reducing.run(addresses, made[outputs:], scalars)


def _over(blob: TBlob, shape: Shape) -> Shape:
    """Return a blob's strides over a shape it broadcasts to."""
    layout = blob.layout.broadcast_to(shape)
    assert layout is not None
    return layout.strides

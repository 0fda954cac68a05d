"""Work: a plan, the layouts of all its values, and the settings that it will run under - the input of a schedule.

The layouts of results are those that NumPy would give them, step by step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import Any, NamedTuple, cast

from ..base.dtypes import DType
from ..base.layout import Layout, Shape, axes_of, contiguous, dense_like, keep_order, strides_over
from ..base.options import Settings
from ..devices import Device
from ..graph.node import Node, View
from ..storage.blob import TBlob
from ..storage.pool import ALIGNMENT
from . import costs
from .program import Kernel, Plan
from .trace import Trace

# Bytes between values of which only is known that they do not overlap.
APART = 1 << 48


class Meta(NamedTuple):
    """A value without its memory. layout: relative to the first byte of its memory."""

    shape: Shape
    dtype: DType
    layout: Layout
    packed: bool

    @property
    def nbytes(self) -> int:
        """The bytes of its elements."""
        return prod(self.shape) * self.dtype.itemsize


class Leaf(NamedTuple):
    """An input value: its number, the index of the given blob that it lies in, and its offset in that in bytes.

    given: if negative, -1 minus the number of a value that was computed before.
    """

    number: int
    given: int
    after: int = 0


class Task(NamedTuple):
    """A description of what an instruction computes, and the bytes that it reads and writes."""

    words: str
    moved: int


class Work(NamedTuple):
    """The input of a schedule.

    metas: of every value but scalars. leaves: the inputs. into: the numbers of the results whose memory is given, after
    all leaves. begins: the addresses of given values, by number: these show which lie close to each other, and whether
    large memory is aligned to vectors. shifts: for inputs that are read rolled, the number of places along each axis;
    only kernels of machine code without reductions read such inputs. is_certain: whether values that begin at one
    address do so whenever the schedule runs.
    """

    trace: Trace
    plan: Plan
    metas: dict[int, Meta]
    leaves: Sequence[Leaf]
    into: tuple[int, ...]
    begins: Mapping[int, int]
    limits: Settings
    shifts: Mapping[int, tuple[int, ...]] = MappingProxyType({})
    is_certain: bool = False

    @property
    def device(self) -> Device:
        """The device of all values."""
        device: Device = self.trace.values[self.plan.kernels[0].results[0]].device
        return device

    def is_aligned(self, results: Sequence[int], itemsize: int = ALIGNMENT) -> bool:
        """Return whether results begin at multiples of a size, as our own memory does."""
        return all([self.begins.get(number, 0) % itemsize == 0 for number in self.into if number in results])

    def moved_by(self, kernels: Sequence[Kernel], together: bool) -> int:
        """Return the bytes that kernels read and write; for those that run together only inputs from outside and kept
        results, as the rest stays in the cache row by row.
        """
        operands = [(*kernel.inputs, *kernel.results) for kernel in kernels]
        if together:
            every, made = {n for numbers in operands for n in numbers}, {n for one in kernels for n in one.results}
            operands = [tuple([n for n in every if n in self.plan.kept or n not in made])]
        return sum([self.metas[number].nbytes for numbers in operands for number in numbers])

    def seconds_together(self, kernels: Sequence[Kernel]) -> float:
        """Estimate how long one thread takes for kernels that run together."""
        computing: float = sum(prod(self.metas[one.domain].shape) * one.program.seconds for one in kernels)
        return costs.moving_seconds(self.moved_by(kernels, together=True)) + computing

    def task(self, kernels: Sequence[Kernel], together: bool = False) -> Task:
        """Return the description of kernels that run as one."""
        words = [self._words(kernel) for kernel in kernels]
        return Task("; ".join(words), self.moved_by(kernels, together))

    def _words(self, kernel: Kernel) -> str:
        shape = self.metas[kernel.domain].shape
        if kernel.direct is not None:
            return f"{self.trace.values[kernel.direct].op.name} {self.metas[kernel.direct].shape}"
        program = kernel.program
        names = [*[step.op.name for step in program.steps], *[one.op.name for one in program.reductions]]
        return f"{', '.join(names)} {shape}"

    @property
    def is_packed(self) -> bool:
        """Whether all values are packed."""
        return all([meta.packed for meta in self.metas.values()])


def work_of(trace: Trace, plan: Plan, into: tuple[int, TBlob] | None, limits: Settings) -> Work:
    """Return the work of computing the kept values of a plan; all blobs are inputs, in order.

    into: the number of a result, and its memory.
    """
    blobs = {number: value for number, value in enumerate(trace.values) if type(value) is TBlob}
    leaves = [Leaf(number, place) for place, number in enumerate(blobs)]
    return work_over(trace, plan, blobs, leaves, into, limits)


def work_over(
    trace: Trace,
    plan: Plan,
    blobs: Mapping[int, TBlob],
    leaves: Sequence[Leaf],
    into: tuple[int, TBlob] | None,
    limits: Settings,
) -> Work:
    """Return the work of computing the kept values of a plan from leaves, which are these blobs now."""
    given = {number: _seen(blob) for number, blob in blobs.items()}
    begins = {number: blob.address for number, blob in blobs.items() if blob.owner.is_allocated}
    for number, blob in () if into is None else (into,):
        given[number], begins[number] = _seen(blob), blob.address
    numbers = () if into is None else into[:1]
    return Work(trace, plan, metas_of(trace, given, plan.strided), leaves, numbers, begins, limits)


def behind(blob: TBlob) -> int:
    """Return the offset of large memory for a result from an aligned address, in bytes; 0 for small memory."""
    return blob.address % ALIGNMENT if blob.nbytes >= costs.STREAM_BYTES else 0


def _seen(blob: TBlob) -> Meta:
    """Return a blob as a Meta that begins with its first element."""
    return Meta(blob.shape, blob.dtype, Layout(blob.shape, blob.layout.strides), blob.is_packed)


def metas_of(trace: Trace, given: Mapping[int, Meta], strided: bool) -> dict[int, Meta]:
    """Return every value of a trace but scalars as a Meta.

    given: values that have memory, each from its first element on: inputs, and results with given memory. strided:
    whether some result may be strided although everything given is packed.
    """
    # Empty values count as packed whatever their strides are, but results take the order of these.
    packed = not strided and all([one.packed and 0 not in one.shape for one in given.values()])
    found = dict(given)
    for number, node in trace.nodes():
        if number in given:
            continue
        itemsize = node.dtype.itemsize
        layout = _layout_of(node, trace.arguments[number], found, packed)
        found[number] = Meta(node.shape, node.dtype, layout, packed or layout.is_contiguous(itemsize))
    return found


def _layout_of(node: Node, arguments: Sequence[int], found: Mapping[int, Meta], packed: bool) -> Layout:
    """Return the layout of one node's result; for a view, in the memory of its operand.

    packed: whether all values are packed.
    """
    itemsize, name = node.dtype.itemsize, node.op.name
    if packed or node.op.kind == "library" or name in ("argmax", "argmin"):
        return contiguous(node.shape, itemsize)
    if node.op.kind == "contraction":
        given, op = [found[a] for a in arguments], cast("Any", node.op)
        return Layout(node.shape, op.strides(given, node.shape, itemsize, **node.params))
    if type(node.op) is View:
        whole = found[arguments[0]].layout
        return node.op.layout(whole, itemsize, **node.params) or contiguous(node.shape, itemsize)
    operands = [found[a] for a in arguments if a in found]
    domain = operands[0].shape if node.op.kind == "reduction" else node.shape
    strides = [strides_over(one.layout, domain) for one in operands]
    nothing = (0,) * len(domain) if 0 in domain else ()  # the strides of empty elementwise results of NumPy
    if nothing and node.op.kind == "elementwise":
        return Layout(node.shape, nothing)
    if name == "astype":
        return Layout(node.shape, dense_like(Layout(domain, strides[0]), itemsize).strides)
    if node.op.kind == "elementwise":
        return Layout(node.shape, keep_order(domain, itemsize, strides))
    if name == "count_nonzero" and operands[0].dtype != bool:  # NumPy counts in a copy as booleans
        strides = [nothing or dense_like(Layout(domain, strides[0]), 1).strides]
    axes = axes_of(node.params["axis"], len(domain))
    kept = keep_order(domain, itemsize, strides, axes)
    return Layout(node.shape, tuple([s for a, s in enumerate(kept) if node.params["keepdims"] or a not in axes]))

"""Where the values of a plan lie: the layouts of results, which are those that NumPy would give them, step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import NamedTuple

from ..base.dtypes import DType
from ..base.layout import Layout, Shape, axes_of, contiguous, dense_like, keep_order, strides_over
from ..graph.node import Node, View
from .program import Trace


class Meta(NamedTuple):
    """A value without its memory. layout: from the first byte of the memory that it lies in."""

    shape: Shape
    dtype: DType
    layout: Layout
    packed: bool

    @property
    def nbytes(self) -> int:
        """The bytes of its elements."""
        return prod(self.shape) * self.dtype.itemsize


def metas_of(trace: Trace, given: Mapping[int, Meta], strided: bool) -> dict[int, Meta]:
    """Return every value of a trace but scalars as a Meta.

    given: values that have memory, each from its first element on: inputs, and results whose memory is there already.
    strided: whether some result may be strided although everything given is packed.
    """
    # What is empty is packed whatever its strides are, but results have their order.
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
    """Return the layout of one node's result; of a view, in the memory that its operand lies in.

    packed: whether every value is.
    """
    itemsize, name = node.dtype.itemsize, node.op.name
    if packed or node.op.kind in ("library", "contraction") or name in ("argmax", "argmin"):
        return contiguous(node.shape, itemsize)
    if type(node.op) is View:
        whole = found[arguments[0]].layout
        return node.op.layout(whole, itemsize, **node.params) or contiguous(node.shape, itemsize)
    operands = [found[a] for a in arguments if a in found]
    domain = operands[0].shape if node.op.kind == "reduction" else node.shape
    strides = [strides_over(one.layout, domain) for one in operands]
    nothing = (0,) * len(domain) if 0 in domain else ()  # the strides of what NumPy computes element by element
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

"""The text of `xt.explain`: the memory of evaluated values, and the graph, plan and engines of pending ones."""

from __future__ import annotations

from collections.abc import Sequence

from .base.machine import size_text
from .base.options import Settings, settings
from .graph.node import Node, Part, pending_below, spell_out
from .plan.costs import DIRECT_BYTES
from .plan.fusion import plan_of
from .plan.layouts import work_of
from .plan.program import Plan
from .plan.trace import Trace
from .run import executor as run
from .run.describe import Description, graph_lines, graph_sketch, kind_of, labels_of, names
from .run.replay import found_again
from .run.sketch import NOTE, Item, Sketch
from .tensor.face import Tensor


def explanation(tensors: Sequence[Tensor], ir: bool) -> tuple[str, tuple[Sketch, ...]]:
    """Return the explanation of some tensors as text, with the generated code if `ir` is true, and as sketches."""
    limits = settings()
    with run.turn():  # so that nobody evaluates the graph while it is looked at
        items = [_evaluated(x) for x in tensors if _pending(x) is None]
        nodes = list(dict.fromkeys(node for x in tensors if (node := _pending(x)) is not None))
        items += [_part(x) for x in tensors if _pending(x) is not None and isinstance(x.value, Part)]
        lines = [line for title, more, _ in items for line in (title, *[f"  {one}" for one in more])]
        sketches = [Sketch((), tuple(items))] if items else []
        if nodes:
            text, sketch = _waiting(nodes, "plan,llvm" if ir else "plan", limits)
            lines, sketches = [*lines, text], [*sketches, sketch]
    return "\n".join(lines), tuple(sketches)


def _pending(x: Tensor) -> Node | None:
    """Return the pending node of a tensor, None if it is not pending."""
    node = x.value.whole if isinstance(x.value, Part) else x.value
    return node if isinstance(node, Node) and node.blob is None else None


def _evaluated(x: Tensor) -> Item:
    """Return the description of an evaluated tensor."""
    blob = x.blob
    name = labels_of([blob], names())[0].removeprefix("%0")
    lie = "packed" if blob.is_contiguous else "channels last" if blob.is_channels_last else "strided"
    owner, waiting = blob.owner, len(blob.owner.readers())
    facts = [f"{size_text(owner.nbytes)} on {owner.device}", f"version {owner.version}"]
    if not blob.writeable:
        facts.append("read-only")
    if owner.is_exposed():
        facts.append("others can write to it, so it is read at once")
    if waiting:
        facts.append(f"{waiting} pending value{'s' * (waiting > 1)} will read it")
    layout = f"{lie}, strides {blob.layout.strides}, offset {blob.layout.offset}"
    title = f"evaluated: {name + ' ' * bool(name)}{kind_of(blob)}"
    return Item(title, (f"layout: {layout}", f"memory: {', '.join(facts)}"), NOTE)


def _part(x: Tensor) -> Item:
    title = f"a part {kind_of(x)} of a pending value: a look at it computes only that part of what follows"
    return Item(title, (), NOTE)


def _waiting(nodes: Sequence[Node], show: str, limits: Settings) -> tuple[str, Sketch]:
    """Return the graph below pending nodes and how it will run: if a graph like it has a plan, by that."""
    again = found_again(nodes, DIRECT_BYTES) if nodes else None
    if again is not None:
        spell_out(again.trace.values)
        return _described(again.trace, again.plan, show, limits)
    order = pending_below(nodes)
    trace = Trace(order, nodes)
    if run.goes_direct(list(order)):
        note = f"one library call per step: {_why_direct(order, limits)}"
        return "\n".join([*graph_lines(trace), f"plan: {note}"]), graph_sketch(trace, note)
    return _described(trace, plan_of(trace), show, limits)


def _described(trace: Trace, plan: Plan, show: str, limits: Settings) -> tuple[str, Sketch]:
    description = Description(work_of(trace, plan, None, limits))
    return description.text(show), description.sketch()


def _why_direct(order: Sequence[Node], limits: Settings) -> str:
    if limits.engine == "direct":
        return "asked for"
    return f"no array takes more than {DIRECT_BYTES >> 10} KiB"

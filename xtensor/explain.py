"""Seeing the engine: what is pending and how it will run, names for values, and what the cache of kernels has done."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from .errors import expected
from .lazy import compile, run
from .lazy.describe import described, give_name, graph_lines, kind_of, labels_of, names, size_text
from .lazy.graph import Node, Part, pending_below
from .lazy.plan import Trace, plan_of
from .options import Settings, settings
from .tensor import Tensor

__all__ = ["CacheInfo", "Explanation", "cache_info", "explain", "named"]


class Explanation(str):
    """What `explain` found out; it prints as it reads."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def explain(*tensors: Tensor, ir: bool = False) -> Explanation:
    """Return how the values of these tensors will be computed, without computing them.

    For pending ones: the graph, the kernels it is cut into, the engine that will run each and why. With `ir=True`
    also the LLVM IR of generated code, which is compiled for that and kept. For evaluated ones: layout and memory.
    Raises TypeError for anything that is not a tensor.

    >>> xt.explain(xt.exp(x) * 2.0)
    """
    for x in tensors:
        if not isinstance(x, Tensor):
            raise TypeError(expected("explain", "tensors", "be tensors", type(x).__name__))
    limits = settings()
    with run._evaluating:  # so that nobody evaluates the graph while it is looked at
        lines = [line for x in tensors if _pending(x) is None for line in _evaluated(x)]
        nodes = list(dict.fromkeys(node for x in tensors if (node := _pending(x)) is not None))
        lines += [_part(x) for x in tensors if _pending(x) is not None and isinstance(x.value, Part)]
        if nodes:
            lines += _waiting(nodes, "plan,llvm" if ir else "plan", limits)
    return Explanation("\n".join(lines))


def _pending(x: Tensor) -> Node | None:
    """Return the pending node a tensor waits for, None where it waits for nothing."""
    node = x.value.whole if isinstance(x.value, Part) else x.value
    return node if isinstance(node, Node) and node.blob is None else None


def _evaluated(x: Tensor) -> list[str]:
    """Return what is to be said of a tensor that has its bytes."""
    blob = x.blob
    name = labels_of([blob], names())[0].removeprefix("%0")
    lie = "packed" if blob.is_contiguous else "channels last" if blob.is_channels_last else "strided"
    buffer, waiting = blob.buffer, len(blob.buffer.readers.waiting())
    facts = [f"{size_text(buffer.nbytes)} on {buffer.device}", f"version {buffer.version}"]
    if not blob.writeable:
        facts.append("read-only")
    if buffer.shared:
        facts.append("others can write to it, so it is never read later")
    if waiting:
        facts.append(f"{waiting} pending value{'s' * (waiting > 1)} will read it")
    layout = f"{lie}, strides {blob.layout.strides}, offset {blob.layout.offset}"
    title = f"evaluated: {name + ' ' * bool(name)}{kind_of(blob)}"
    return [title, f"  layout: {layout}", f"  memory: {', '.join(facts)}"]


def _part(x: Tensor) -> str:
    return f"a part {kind_of(x)} of a pending value: a look at it computes only that part of what follows"


def _waiting(nodes: Sequence[Node], show: str, limits: Settings) -> list[str]:
    """Return the graph below pending nodes and how it will run."""
    order = pending_below(nodes)
    piece = order[: run.PIECE]
    wanted = [node for node in nodes if node in set(piece)]
    trace = Trace(piece, wanted, is_piece=len(piece) < len(order))
    if run._goes_direct(list(order)):
        text = "\n".join([*graph_lines(trace), f"plan: one library call per step: {_why_direct(order, limits)}"])
    else:
        plan = plan_of(trace)
        text = described(trace, plan, show, limits, run._Evaluation(trace, plan, None, limits)._result)
    more = len(order) - len(piece)
    return [text, *([f"then {more} steps more, in pieces of at most {run.PIECE}"] if more else [])]


def _why_direct(order: Sequence[Node], limits: Settings) -> str:
    if limits.engine == "direct":
        return "asked for"
    devices = sorted({str(node.device) for node in order} - {"cpu"})
    if devices:
        return f"the engines work on cpu, this is on {devices[0]}"
    return f"no array takes more than {run.DIRECT_BYTES >> 10} KiB"


_NAME = re.compile(r"[^\W\d][\w./-]*")


def named(x: Tensor, name: str, /) -> Tensor:
    """Give a tensor a name by which `explain` and XTENSOR_SHOW call its value; return that tensor.

    The name is %name there; of several values with one name the others are %name_2 and so on. It is the tensor's,
    not that of views or results made from it, and stays when its values are computed. Raises TypeError for anything
    but a tensor and a string, ValueError for a name that does not begin with a letter or underscore or holds other
    characters than letters, digits, `_`, `.`, `/` and `-`.
    """
    if not isinstance(x, Tensor):
        raise TypeError(expected("named", "x", "be a tensor", type(x).__name__))
    if not isinstance(name, str):
        raise TypeError(expected("named", "name", "be a string", type(name).__name__))
    if not _NAME.fullmatch(name):
        raise ValueError(expected("named", "name", "be a word of letters, digits, _ . / -", repr(name)))
    give_name(x, name)
    return x


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """What the cache of generated kernels holds and has done since the start of the process.

    kernels: held in memory now.
    compiled: made by LLVM. improved: of these, made a second time with more care, in the background.
    loaded: found on disk, made by an earlier process.
    hits: asked for and found in memory; launches that skip the question are not counted.
    seconds: spent in the foreground generating, compiling, loading and linking.
    """

    kernels: int
    compiled: int
    improved: int
    loaded: int
    hits: int
    seconds: float


def cache_info() -> CacheInfo:
    """Return what the cache of generated kernels holds and has done."""
    counts = compile.counts
    return CacheInfo(compile.cached(), counts.compiled, counts.improved, counts.loaded, counts.hits, counts.seconds)

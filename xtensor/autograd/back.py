"""The way back along the tape: cotangents carried from results to the wanted steps, without recursion."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from math import prod
from operator import attrgetter
from sys import getrefcount
from typing import Any, NamedTuple, cast

import numpy as np

from ..base.options import thin_closed
from ..graph.node import Node
from ..plan.costs import DIRECT_BELOW
from ..storage.blob import TBlob
from ..storage.pool import is_alone
from ..storage.storage import watchers, watching
from ..tensor.face import CPU_DEVICE, Tensor, small, wrap
from .pieces import Pieces, key_of
from .rules import RULES, fit, xt
from .tape import Deferred, Leaf, Output, Step, is_recording

_serial = attrgetter("serial")


class Way(NamedTuple):
    """The steps between the ends of a tape and the steps whose cotangents are wanted.

    order: the steps to go through, the latest first. useful: these and the wanted ones as a set. others: other steps
    that the tape leads to: those older than all wanted ones, and leaves that are not wanted.
    """

    order: list[Step]
    useful: set[Step]
    others: list[Step]


def way_back(ends: Iterable[Step], wanted: Collection[Step]) -> Way:
    """Return the way from ends to wanted steps.

    Nothing behind a wanted step is visited, not even another wanted step: a path ends at the first wanted one.
    """
    first = min(map(_serial, wanted), default=0)
    found: set[Step] = set()
    others: list[Step] = []
    stack = list(ends)
    while stack:
        step = stack.pop()
        if step in found:
            continue
        if step.serial < first:
            others.append(step)
            continue
        found.add(step)
        if step not in wanted:
            if step.parents:
                stack += step.parents
            else:
                others.append(step)
    if not others:  # everything leads to wanted steps
        return Way(sorted(found, key=_serial, reverse=True), found.union(wanted), others)
    useful = set(wanted)
    order = []
    for step in sorted(found, key=_serial):
        if step in useful:
            order.append(step)
        elif not useful.isdisjoint(step.parents):
            useful.add(step)
            order.append(step)
    order.reverse()
    return Way(order, useful, others)


def walk_back(ends: Iterable[Step], stop: Callable[[Step], bool] | None = None) -> Iterator[Step]:
    """Yield the steps that ends depend on, those included, once each; nothing behind a step for which `stop` holds."""
    seen: set[Step] = set()
    stack = list(ends)
    while stack:
        step = stack.pop()
        if step not in seen:
            seen.add(step)
            yield step
            if stop is None or not stop(step):
                stack += step.parents


def leads_elsewhere(outputs: Iterable[Step], leaves: Iterable[Step]) -> bool:
    """Return whether outputs depend on other leaves whose gradients may still be asked for."""
    known = set(leaves)
    others = (step for step in walk_back(outputs, known.__contains__) if not step.parents and step not in known)
    return any(not (type(step) is Leaf and step.over) for step in others)


def beginnings(step: Step) -> set[Step]:
    """Return the leaves that a step depends on and whose gradients were asked for."""
    return {one for one in walk_back([step]) if type(one) is Leaf and one.asked}


def go_back(
    seeds: Sequence[tuple[Step, Tensor]], wanted: Collection[Step], *, free: bool = False, way: Way | None = None
) -> dict[Step, Tensor]:
    """Carry cotangents from the ends of the tape back to the wanted steps; return those of the steps that have one.

    free: whether the tape is used up on the way. way: the way from these ends, if it is known. Raises RuntimeError on a
    tape that was used up, NotImplementedError for a function without a rule.
    """
    order, useful, _ = way or way_back([step for step, _ in seeds], wanted)
    capture = watching() if watchers else None
    if capture is not None:
        capture.taped += len(order)
    order = order[::-1]
    cotangents: dict[Step, Any] = {}
    sums: set[Step] = set()
    found: dict[Step, Tensor] = {}
    selecting = None if is_recording() else RULES.get("getitem")
    _add_seeds(seeds, cotangents, sums)
    while order:
        step = order.pop()
        g: Any = cotangents.pop(step, None)
        if g is None:
            continue
        g = g.total() if type(g) is Pieces else g
        if step in wanted:
            found[step] = g
        elif type(step) is Output:
            parts = cotangents.setdefault(step.parents[0], {})
            g = g if g.shape == step.shape else xt.broadcast_to(g, step.shape)
            parts[step.place] = parts[step.place] + g if step.place in parts else g  # used elsewhere, and by its rule
        elif type(step) is Deferred:
            seeds = step.ends(g, free=free)
            inner, more, _ = way_back([end for end, _ in seeds], useful.intersection(step.parents))
            order += [one for one in reversed(inner) if one not in useful]  # later than all steps that are left
            useful |= more
            _add_seeds(seeds, cotangents, sums)
            del seeds, inner
        elif selecting is not None and step.rule is selecting and (key := key_of(step)) is not None:
            _add_piece(step, key, g, cotangents, sums)
            if free:
                step.given = None
        elif step.parents:
            for parent, contribution in step.pulled(g, useful):
                before = cotangents.get(parent)
                cotangents[parent] = contribution if before is None else _total(before, contribution, parent, sums)
                del before, contribution  # only one of them is kept alive while the next is computed
            if free:
                step.given = None
    return found


def _add_seeds(seeds: Iterable[tuple[Step, Tensor]], cotangents: dict[Step, Any], sums: set[Step]) -> None:
    for step, g in seeds:
        before = cotangents.get(step)
        cotangents[step] = g if before is None else _total(before, g, step, sums)


def _add_piece(step: Step, key: Any, g: Tensor, cotangents: dict[Step, Any], sums: set[Step]) -> None:
    """Add the cotangent of a step that selects a part of its parent to that of the parent."""
    (parent,) = step.parents
    before = cotangents.get(parent)
    if type(before) is not Pieces:
        if before is not None and (parent not in sums or before.shape != parent.shape):
            before = xt.positive(before if before.shape == parent.shape else xt.broadcast_to(before, parent.shape))
        before = cotangents[parent] = Pieces(parent.like, before)
        sums.add(parent)
    before.add(key, g if g.dtype is parent.dtype else fit(g, parent.dtype, step.shape, None))


def _total(before: Tensor | Pieces, g: Tensor, step: Step, sums: set[Step]) -> Tensor:
    """Return the sum of two cotangents of one step.

    Pending cotangents stay pending, to be fused; computed ones are added up now, so that only the sum is kept alive.
    sums: the steps whose cotangent is such a sum, in memory of its own, to which more can be added in place.
    """
    if isinstance(before, Pieces):
        before = before.total()
    if small(g) is not None or small(before) is not None or before.is_pending or g.is_pending:
        sums.discard(step)
        return before + g
    if step in sums and not is_recording() and before.shape == step.shape:
        before += g
        return before
    sums.add(step)
    return (before + g).evaluate()


def _is_own(g: Tensor) -> bool:
    """Return whether nobody else sees the memory behind a cotangent, nor keeps it for other rules."""
    value: Any = g._content
    if type(value) is Node and value.blob is not None:
        value = g.blob
    if type(value) is Node:
        return value.saver is None and (value.op.kind != "view" or _is_reshaped(value))
    if type(value) is np.ndarray:
        return g._owner is None and g._blob is None and is_alone(value)
    if type(value) is not TBlob or value.saver is not None or not value.writeable:
        return False
    if value._native is not None and value._native.base is None:
        return True
    # each blob over an owner refers to it
    return value._owner is not None and getrefcount(value._owner) == 2


def _is_reshaped(view: Node) -> bool:
    """Return whether a view is all of a pending value that nobody else sees or reads."""
    value = view.inputs[0]
    if view.op.name != "reshape" or type(value) is not Node or value.blob is not None or value.op.kind == "view":
        return False
    is_held = value.has_parts() or (value.face is not None and value.face() is not None)
    return not is_held and value.saver is None and value.readers_outside((view,)) == []


def whole(g: Tensor, step: Step, seen: set[int]) -> Tensor:
    """Return a cotangent as a gradient that the user may keep and write to: of full shape, in memory of its own.

    seen: the identities of the cotangents that were already returned.
    """
    if g.shape != step.shape:
        native = None if thin_closed[0] else small(g)
        if native is None or prod(step.shape) * native.itemsize > DIRECT_BELOW:
            return cast(Tensor, xt.positive(xt.broadcast_to(g, step.shape)))
        filled = np.empty(step.shape, native.dtype)
        filled[...] = native
        return wrap(filled, CPU_DEVICE)
    if id(g) in seen or not _is_own(g):
        g = xt.positive(g)
    seen.add(id(g))
    return g

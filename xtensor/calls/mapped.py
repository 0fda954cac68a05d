"""A function of one sample, called for all samples: once for all rows where its steps allow that (batching.py), else
row after row, which a capture runs together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from sys import maxsize
from typing import Any, cast

from ..autograd.back import go_back
from ..autograd.rules import xt
from ..autograd.tape import FULL, OFF, Deferred, Output, Step, carry, is_recording, now, recording, step_of
from ..autograd.transforms import Entry, KeptTree, outside_of
from ..base.errors import expected
from ..graph.node import Node
from ..tensor.face import Tensor, face
from ..tensor.operands import as_tensor
from ..tensor.trees import Rebuild, flatten, rebuilt
from .batching import Batch
from .capture import Fused

Axes = int | None | Sequence[int | None]


def vmap(function: Callable[..., Any], in_axes: Axes = 0, out_axes: int = 0) -> Fused[..., Any]:
    """Return a function that calls `function` for each row along an axis of its arguments, and stacks the results.

    function: takes and returns tensors, or trees of them; without the axis that is mapped. It may do whatever a
    function may do here. The first call runs it for the first row and takes that down as `xt.fuse` does; where it does
    elementwise functions, reductions, views, products of matrices and writes, its steps are done for all rows at once,
    else it is run for each row. What cannot be captured runs row by row each time (`why` says so).
    in_axes: the axis of all leaves of each argument, None for one that every row takes whole. Keyword arguments have
    their rows along axis 0. out_axes: where the axis of the rows is put in each result.

    Raises TypeError for what cannot be called; calls raise ValueError where no argument has the axis, where lengths
    differ, and where there is no row at all.

    Source: jax.vmap, torch.vmap.
    """
    if not callable(function):
        raise TypeError(expected("vmap", "function", "be callable", type(function).__name__))

    def mapped(*args: Any, **given: Any) -> Any:
        axes = [in_axes] * len(args) if in_axes is None or isinstance(in_axes, int) else list(in_axes)
        if len(axes) != len(args):
            raise ValueError(expected("vmap", "in_axes", f"have one axis for each of {len(args)} arguments", in_axes))
        if any(axis is not None and not isinstance(axis, int) for axis in axes):
            raise TypeError(expected("vmap", "in_axes", "be an integer or None for each argument", in_axes))
        parts = [_opened(*pair) for pair in zip((*args, given), (*axes, 0), strict=True)]
        tensors = [x for leaves, _ in parts for x in leaves or ()]
        length = _length(tensors)
        columns, rebuild = _over_rows(partial(_call, function, parts), tensors, length)
        return rebuilt(rebuild, [_in_front(one, out_axes) for one in columns])

    mapped.__dict__["__wrapped__"] = function
    mapped.__name__ = mapped.__qualname__ = f"vmap({getattr(function, '__name__', repr(function))})"
    return Fused(mapped, steps=maxsize)


def _over_rows(
    function: Callable[[Sequence[Tensor]], Any], tensors: Sequence[Tensor], rows: int
) -> tuple[list[Tensor], Rebuild]:
    """Return what a function makes of a row of each tensor, for all rows, and what builds its result of such leaves."""
    first = now()
    batch = Batch.of(tensors, rows)
    leaves, rebuild = flatten(function([x[0] for x in tensors] if batch is None else batch.alone))
    columns = None if batch is None else batch.columns(leaves)
    if columns is None:
        others = [flatten(function([x[row] for x in tensors]))[0] for row in range(1, rows)]
        both = zip(leaves, *others, strict=True)
        columns = [xt.stack([as_tensor(x, "vmap", "a result") for x in one]) for one in both]
    elif is_recording():
        _remember(function, tensors, leaves, columns, first)
    return columns, rebuild


def _opened(tree: Any, axis: int | None) -> tuple[list[Tensor] | None, Callable[..., Any]]:
    """Return an argument's leaves with rows in front, None where all rows take it, and what builds one of leaves."""
    if axis is None:
        return None, lambda leaves: tree
    leaves, rebuild = flatten(tree)
    tensors = [as_tensor(leaf, "vmap", "an argument") for leaf in leaves]
    for x in tensors:
        if not -x.ndim <= axis < x.ndim:
            raise ValueError(expected("vmap", "an argument", f"have the axis {axis}", f"shape {x.shape}"))
    return [xt.moveaxis(x, axis, 0) for x in tensors], rebuild


def _in_front(x: Tensor, axis: int) -> Tensor:
    """Return results with the axis of the rows, which is in front, where it is wanted."""
    return x if axis == 0 else cast(Tensor, xt.moveaxis(x, 0, axis).copy())


def _length(tensors: Sequence[Tensor]) -> int:
    """Return how many rows all arguments have."""
    lengths = sorted({x.shape[0] for x in tensors})
    if len(lengths) != 1 or not lengths[0]:
        must = "have one length along the mapped axes, of at least 1"
        raise ValueError(expected("vmap", "the arguments", must, lengths or "none that is mapped"))
    return lengths[0]


def _call(
    function: Callable[..., Any], parts: Sequence[tuple[list[Tensor] | None, Any]], rows: Sequence[Tensor]
) -> Any:
    """Call a function with one row of each tensor of its arguments."""
    row = iter(rows)
    *args, given = [rebuilt(rebuild, [next(row) for _ in leaves or ()]) for leaves, rebuild in parts]
    return function(*args, **given)


# ---- gradients of rows that were done at once


def _remember(
    function: Callable[[Sequence[Tensor]], Any],
    tensors: Sequence[Tensor],
    leaves: Sequence[Any],
    columns: Sequence[Tensor],
    first: int,
) -> None:
    """Give results of all rows their steps, where the first row has some that lead to what was there before."""
    steps = [step_of(leaf) if isinstance(leaf, Tensor) else None for leaf in leaves]
    outside = outside_of([step for step in steps if step is not None], first)
    if not outside:
        return
    again = Deferred(_Back(function, tensors, outside, columns), tuple(outside), columns[0])
    for place, (column, step) in enumerate(zip(columns, steps, strict=True)):
        if step is not None:
            carry(column, Output(again, place, column))


class _Back:
    """The way back through a function of rows, which is computed again: itself a function of rows.

    outside: the steps that it depends on, of tensors of which it has rows, and of others.
    """

    def __init__(
        self,
        function: Callable[[Sequence[Tensor]], Any],
        tensors: Sequence[Tensor],
        outside: Sequence[Step],
        columns: Sequence[Tensor],
    ) -> None:
        self._function, self._tensors, self._outside = function, KeptTree(list(tensors)), outside
        self._rows, self._shapes = columns[0].shape[0], [one.shape for one in columns]
        self._steps = [step_of(x) for x in tensors]
        self._found: list[Step | int] = []

    def __call__(self, cotangents: dict[int, Tensor]) -> list[tuple[Step, Tensor]]:
        tensors = self._tensors.tree()
        places = sorted(cotangents)
        given = [xt.broadcast_to(cotangents[place], self._shapes[place]) for place in places]
        pull = partial(self._pulled, len(tensors), places, is_recording())
        columns, _ = _over_rows(pull, [*tensors, *given], self._rows)
        ends: list[tuple[Step, Tensor]] = []
        for source, column in zip(self._found, columns, strict=True):
            if isinstance(source, Step):
                ends.append((source, _sum_of_rows(column)))
            elif (step := self._steps[source]) is not None:
                ends.append((step, column))
        return ends

    def _pulled(self, count: int, places: Sequence[int], record: bool, rows: Sequence[Tensor]) -> list[Tensor]:
        """Return the cotangents of one row of each tensor, and what it contributes to those of others.

        rows: of the tensors, and of the cotangents of results at some places.
        """
        wanted = [n for n in range(count) if rows[n].dtype.kind in "fc"]
        entry = Entry("vmap", [rows[n] for n in wanted], ["an argument"] * len(wanted))
        own = dict(zip(wanted, entry.trees, strict=True))
        with recording(FULL):
            results = flatten(self._function([own.get(n, rows[n]) for n in range(count)]))[0]
        steps = [step_of(results[place]) for place in places]
        seeds = [(step, g) for step, g in zip(steps, rows[count:], strict=True) if step is not None]
        with recording(FULL if record else OFF):
            sources = dict(zip(entry.steps, wanted, strict=True))
            found = go_back(seeds, {*sources, *self._outside}, free=not record)
            if not self._found:
                self._found = [sources.get(step, step) for step in found]
            leads: dict[Step | int, Step] = {sources.get(step, step): step for step in (*sources, *self._outside)}
            return [_full(found.get(leads[source]), leads[source]) for source in self._found]


def _full(g: Tensor | None, step: Step) -> Tensor:
    """Return a cotangent in the shape of what it belongs to; None for nothing."""
    if g is None:
        return cast(Tensor, xt.zeros(step.shape, dtype=step.dtype, device=step.device))
    return g if g.shape == step.shape else cast(Tensor, xt.broadcast_to(g, step.shape))


def _sum_of_rows(x: Tensor) -> Tensor:
    """Return the sum over all rows: of outer products, a product of matrices."""
    node = x._data
    if type(node) is Node and node.blob is None and node.op.name == "multiply" and x.ndim == 3 and x._step is None:
        (a, b), (rows, n, m) = node.inputs, x.shape
        if getattr(a, "shape", None) == (rows, n, 1) and getattr(b, "shape", None) == (rows, 1, m):
            first, second = xt.reshape(face(a), (rows, n)), xt.reshape(face(b), (rows, m))
            return cast(Tensor, xt.matmul(xt.matrix_transpose(first), second))
    return cast(Tensor, xt.sum(x, axis=0))

"""A function of one sample, called for all samples: once for all rows where its steps allow that (batching.py), else
row after row, which a capture runs together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from sys import maxsize
from typing import Any, cast

from ..autograd.rules import xt
from ..autograd.tape import active, steps_of
from ..base.errors import expected
from ..tensor.face import Tensor
from ..tensor.operands import as_tensor
from ..tensor.trees import flatten, rebuilt
from .capture import Fused
from .reach import LateReach
from .signature import state_of

Axes = int | None | Sequence[int | None]


def vmap(function: Callable[..., Any], in_axes: Axes = 0, out_axes: int = 0) -> Fused[..., Any]:
    """Return a function that calls `function` for each row along an axis of its arguments, and stacks the results.

    function: takes and returns tensors, or trees of them; without the axis that is mapped. It may do whatever a
    function may do here. The first call runs it for the first row and takes that down as `xt.fuse` does; its steps, and
    those of a gradient that goes back through it, are done for all rows at once. Where it draws random numbers, changes
    what the next row finds, writes to its row or to what all rows share, or has rules of users on the way of a
    gradient, it is run for each row. What cannot be captured runs row by row each time (`why` says so).
    in_axes: the axis of all leaves of each argument, None for one that every row takes whole. Keyword arguments have
    their rows along axis 0. out_axes: where the axis of the rows is put in each result.

    Raises TypeError for what cannot be called; calls raise ValueError where no argument has the axis, where lengths
    differ, and where there is no row at all.

    Source: jax.vmap, torch.vmap.
    """
    if not callable(function):
        raise TypeError(expected("vmap", "function", "be callable", type(function).__name__))

    late = LateReach(function)

    def mapped(*args: Any, **given: Any) -> Any:
        axes = [in_axes] * len(args) if in_axes is None or isinstance(in_axes, int) else list(in_axes)
        if len(axes) != len(args):
            raise ValueError(expected("vmap", "in_axes", f"have one axis for each of {len(args)} arguments", in_axes))
        if any(axis is not None and not isinstance(axis, int) for axis in axes):
            raise TypeError(expected("vmap", "in_axes", "be an integer or None for each argument", in_axes))
        parts = [_opened(*pair) for pair in zip((*args, given), (*axes, 0), strict=True)]
        tensors = [x for leaves, _ in parts for x in leaves or ()]
        length = _length(tensors)
        from . import batching  # for functions that are mapped

        reach = late.reach()
        found = state_of([x for x, axis in zip(args, axes, strict=True) if axis is None], reach)
        call = partial(_call, function, parts)
        if found is None:
            columns, rebuild = batching.one_by_one(call, tensors, range(length))
        else:
            is_taped = active[0] and steps_of((*tensors, *found[1])) is not None
            state = batching.State(*found, reach)
            columns, rebuild = batching.over_rows(call, tensors, length, is_taped=is_taped, state=state)
        return rebuilt(rebuild, [_in_front(one, out_axes) for one in columns])

    mapped.__dict__["__wrapped__"] = function
    mapped.__name__ = mapped.__qualname__ = f"vmap({getattr(function, '__name__', repr(function))})"
    return Fused(mapped, steps=maxsize)


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

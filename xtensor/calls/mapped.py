"""A function of one sample, mapped over all samples: at once for all rows where its steps allow that (batching.py),
else row by row, as one captured schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from sys import maxsize
from typing import Any, cast

from ..autograd.rules import xt
from ..autograd.tape import OFF, active, recording, steps_of
from ..base.errors import expected
from ..base.layout import as_axis
from ..tensor.face import Tensor
from ..tensor.operands import as_tensor
from ..tensor.trees import Rebuild, flatten, rebuilt, spread
from .capture import Fused
from .reach import LateReach
from .signature import state_of


def vmap(function: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0) -> Fused[..., Any]:
    """Return a function that calls `function` for each row along an axis of its arguments, and stacks the results.

    function: takes and returns tensors, or trees of them, without the mapped axis. It may do anything that functions of
    tensors may do. The first call runs it for the first row and records its steps as `xt.fuse` does; these steps, and
    those of a gradient through it, are then done for all rows at once. It is run once per row instead if it draws
    random numbers, changes something that the next row reads, writes to its row or to what all rows share, or if a
    gradient passes through user-defined rules. A function that cannot be captured is run row by row at every call
    (`why` gives the reason).
    in_axes: an axis, or one for each argument, or a tree of axes that matches the argument's tree or the upper part of
    it; None for what every row gets whole. Keyword arguments have their rows along axis 0. out_axes: the position of
    the row axis in each result, or a tree of positions. If there are no rows, the function is called with a row of
    zeros, which gives the shapes of the results.

    Raises TypeError if `function` is not callable. Calls raise ValueError if no argument has the axis, or if lengths or
    trees differ.

    Source: jax.vmap, torch.vmap.
    """
    if not callable(function):
        raise TypeError(expected("vmap", "function", "be callable", type(function).__name__))

    late = LateReach(function)

    def mapped(*args: Any, **given: Any) -> Any:
        axes = list(in_axes) if isinstance(in_axes, (list, tuple)) else [in_axes] * len(args)
        if len(axes) != len(args):
            raise ValueError(expected("vmap", "in_axes", f"have one axis for each of {len(args)} arguments", in_axes))
        parts = [_opened(*pair) for pair in zip((*args, given), (*axes, 0), strict=True)]
        tensors = [x for leaves, _, _ in parts for x in leaves]
        length = _length(tensors)
        from . import batching  # loaded only where functions are mapped

        reach = late.reach()
        found = state_of([x for _, wholes, _ in parts for x in wholes], reach)
        call = partial(_call, function, parts)
        if not length:
            columns, rebuild = _no_rows(call, tensors)
        elif found is None:
            columns, rebuild = batching.one_by_one(call, tensors, range(length))
        else:
            is_taped = active[0] and steps_of((*tensors, *found[1])) is not None
            state = batching.State(*found, reach)
            columns, rebuild = batching.over_rows(call, tensors, length, is_taped=is_taped, state=state)
        result = rebuilt(rebuild, columns)
        places = _axes_of(result, out_axes, "out_axes", "the result")
        return rebuilt(rebuild, [_in_front(one, axis) for one, axis in zip(columns, places, strict=True)])

    mapped.__dict__["__wrapped__"] = function
    mapped.__name__ = mapped.__qualname__ = f"vmap({getattr(function, '__name__', repr(function))})"
    return Fused(mapped, steps=maxsize)


def _axes_of(tree: Any, axes: Any, argument: str, whose: str) -> list[int | None]:
    """Return the axis of each leaf of a tree; raises TypeError if that is no axis, ValueError if the trees differ."""
    try:
        found = spread(axes, tree)
    except ValueError:
        raise ValueError(expected("vmap", argument, f"be an axis or a tree like {whose}", axes)) from None
    if any(axis is not None and type(axis) is not int for axis in found):
        raise TypeError(expected("vmap", argument, "be integers or None", axes))
    return found


def _opened(tree: Any, axes: Any) -> tuple[list[Tensor], list[Any], Callable[[Iterator[Tensor]], Any]]:
    """Return the leaves of an argument that have rows, with the row axis in front; the leaves that every row gets
    whole; and a function that builds the argument for one row.
    """
    if axes is None:
        return [], [tree], lambda rows: tree
    leaves, rebuild = flatten(tree)
    along = _axes_of(tree, axes, "in_axes", "an argument")
    tensors = []
    for leaf, axis in zip(leaves, along, strict=True):
        if axis is not None:
            x = as_tensor(leaf, "vmap", "an argument")
            if not -x.ndim <= axis < x.ndim:
                raise ValueError(expected("vmap", "an argument", f"have the axis {axis}", f"shape {x.shape}"))
            tensors.append(xt.moveaxis(x, axis, 0))
    both = list(zip(leaves, along, strict=True))
    wholes = [leaf for leaf, axis in both if axis is None]
    return tensors, wholes, lambda rows: rebuild(iter([leaf if axis is None else next(rows) for leaf, axis in both]))


def _no_rows(call: Callable[[Sequence[Tensor]], Any], tensors: Sequence[Tensor]) -> tuple[list[Tensor], Rebuild]:
    """Return the results for no rows, shaped like those for a row of zeros, and a function that rebuilds their tree."""
    with recording(OFF):
        leaves, rebuild = flatten(call([xt.zeros(x.shape[1:], dtype=x.dtype, device=x.device) for x in tensors]))
        found = [as_tensor(leaf, "vmap", "the result") for leaf in leaves]
    return [xt.zeros((0, *x.shape), dtype=x.dtype, device=x.device) for x in found], rebuild


def _in_front(x: Tensor, axis: int | None) -> Tensor:
    """Return a result with its row axis, which is in front, moved to where it is wanted."""
    if axis is None:
        raise ValueError(expected("vmap", "out_axes", "be an axis for each result", axis))
    return x if axis == 0 else cast(Tensor, xt.moveaxis(x, 0, as_axis(axis, x.ndim, "vmap", "out_axes")).copy())


def _length(tensors: Sequence[Tensor]) -> int:
    """Return the number of rows that all arguments have."""
    lengths = sorted({x.shape[0] for x in tensors})
    if len(lengths) != 1:
        must = "have one length along the mapped axes"
        raise ValueError(expected("vmap", "the arguments", must, lengths or "none that is mapped"))
    return lengths[0]


def _call(
    function: Callable[..., Any],
    parts: Sequence[tuple[list[Tensor], list[Any], Callable[[Iterator[Tensor]], Any]]],
    rows: Sequence[Tensor],
) -> Any:
    """Call a function with one row of each tensor of its arguments."""
    row = iter(rows)
    *args, given = [rebuild(row) for _, _, rebuild in parts]
    return function(*args, **given)

"""Manipulation functions (standard section of that name).

Functions that only rearrange indices (reshape where strides allow it, permute_dims, flip, broadcast_to ...) return a
view of the same memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from ..autograd.rules import Like, sum_to, xt
from ..autograd.tape import differentiable
from ..base import layout as layouts
from ..base.dtypes import DType, promote
from ..base.errors import expected, prefixed
from ..base.layout import INT, Shape, as_axes, as_axis, as_shape, resolve_shape
from ..base.options import thin_closed
from ..calls.library import on, rearranged, shown, thin_call, thin_view
from ..calls.writes import assign_captured
from ..devices.cpu import CPU, Packing
from ..plan.costs import cheap_below
from ..run.executor import seen_later
from ..storage.storage import watchers, watching
from ..tensor.face import Tensor, face, thin_arrays
from ..tensor.operands import as_tensor, broadcast, common_device
from .indexing import added

__all__ = [
    "broadcast_arrays",
    "broadcast_shapes",
    "broadcast_to",
    "concat",
    "expand_dims",
    "flip",
    "moveaxis",
    "permute_dims",
    "repeat",
    "reshape",
    "roll",
    "squeeze",
    "stack",
    "tile",
    "unstack",
]


def broadcast_shapes(*shapes: Sequence[int]) -> Shape:
    """Return the shape that the given shapes broadcast to; raises ValueError if they do not broadcast.

    Standard: Manipulation Functions, broadcast_shapes.
    """
    try:
        return layouts.broadcast_shapes(*(as_shape(shape, "broadcast_shapes", "shapes") for shape in shapes))
    except ValueError as error:
        raise prefixed("broadcast_shapes", error) from None


def broadcast_arrays(*arrays: Tensor) -> tuple[Tensor, ...]:
    """Return views of all arrays in their common shape; those that had to be stretched are read-only.

    Raises ValueError if shapes do not broadcast.

    Standard: Manipulation Functions, broadcast_arrays.
    """
    tensors = [as_tensor(x, "broadcast_arrays", "arrays") for x in arrays]
    common_device("broadcast_arrays", tensors)
    shape = broadcast("broadcast_arrays", tensors)
    return tuple(x[...] if x.shape == shape else broadcast_to(x, shape) for x in tensors)


@differentiable(x=lambda g, like: sum_to(g, g.shape, like.shape), view=True, of_value="shared")
def broadcast_to(x: Tensor, /, shape: Sequence[int]) -> Tensor:
    """Return a read-only view of x stretched to `shape`; raises ValueError if x does not broadcast to it.

    Standard: Manipulation Functions, broadcast_to.
    """
    x = as_tensor(x, "broadcast_to")
    lengths = as_shape(shape, "broadcast_to")
    later = seen_later(x._content, "broadcast_to", lengths)
    if later is not None:
        return face(later)
    stretched = x.blob.layout.broadcast_to(lengths)
    if stretched is None:
        raise ValueError(expected("broadcast_to", "shape", f"be one that {x.shape} broadcasts to", lengths))
    return x.viewed(stretched, writeable=False)


def _pieces(g: Tensor, like: Any, axis: int | None) -> Any:
    """The cotangents of arrays that were joined along an axis; for the rows of one tensor, as one tensor."""
    likes = _rows(like)
    if axis is None:
        parts = split(g, [one.size for one in likes], 0)
        parts = tuple(xt.reshape(part, one.shape) for part, one in zip(parts, likes, strict=True))
    else:
        parts = split(g, [one.shape[axis] for one in likes], axis % g.ndim)
    return xt.stack(parts) if isinstance(like, Like) else parts


def _rows(like: Any) -> Sequence[Like]:
    """Return the likes of several arrays, which may be the rows of one tensor."""
    return [like._replace(shape=like.shape[1:])] * like.shape[0] if isinstance(like, Like) else like


def _rejoined(g: Sequence[Tensor | None], like: Like, lengths: Sequence[int], axis: int) -> Tensor:
    """The cotangent of an array that was split: zeros for pieces without one."""
    shapes = [(*like.shape[:axis], length, *like.shape[axis + 1 :]) for length in lengths]
    return xt.concat(_or_zeros(g, shapes, like), axis=axis)


def _or_zeros(parts: Sequence[Tensor | None], shapes: Sequence[Shape], like: Like) -> list[Tensor]:
    """Return cotangents of several results, zeros for those that have none."""
    return [
        xt.zeros(shape, dtype=like.dtype, device=like.device) if part is None else part
        for part, shape in zip(parts, shapes, strict=True)
    ]


@differentiable(x=lambda g, like, lengths, axis: _rejoined(g, like, lengths, axis), view=True)
def split(x: Tensor, lengths: Sequence[int], axis: int) -> tuple[Tensor, ...]:
    """Return consecutive views of the given lengths along an axis."""
    found, start = [], 0
    for length in lengths:
        found.append(x[(slice(None),) * axis + (slice(start, start + length),)])
        start += length
    return tuple(found)


@differentiable(arrays=lambda g, like, axis: _pieces(g, like, axis))
def concat(arrays: Sequence[Tensor], /, *, axis: int | None = 0) -> Tensor:
    """Return the arrays joined along an existing axis, or flattened and joined if axis is None.

    The result has the promoted dtype. Raises ValueError for no arrays or shapes that differ elsewhere, AxisError
    for the axis. Standard: Manipulation Functions, concat.
    """
    joined = _joined_at_once(np.concatenate, arrays, axis)
    if joined is not None:
        return joined
    tensors = _joined("concat", arrays)
    if axis is None:
        tensors, along = tuple(reshape(x, (x.size,)) for x in tensors), 0
    else:
        along = as_axis(axis, tensors[0].ndim, "concat")
    _check_same("concat", [x.shape[:along] + x.shape[along + 1 :] for x in tensors], tensors)
    dtype = promote(*(x.dtype for x in tensors))
    if _goes_in_parts(tensors):
        return _in_parts(tensors, along, sum([x.shape[along] for x in tensors]), dtype)
    return on(tensors, "concat", lambda xp, *natives: xp.concat(_cast(natives, dtype), axis=along))


def _layers(g: Tensor, like: Any, axis: int) -> Any:
    """The cotangents of arrays that were stacked along a new axis; for the rows of one tensor, as one tensor."""
    return xt.moveaxis(g, axis, 0) if isinstance(like, Like) else xt.unstack(g, axis=axis)


@differentiable(arrays=lambda g, like, axis: _layers(g, like, axis))
def stack(arrays: Sequence[Tensor], /, *, axis: int = 0) -> Tensor:
    """Return arrays of one shape joined along a new axis.

    The result has the promoted dtype. Raises ValueError for no arrays or shapes that differ, AxisError for the
    axis. Standard: Manipulation Functions, stack.
    """
    joined = _joined_at_once(np.stack, arrays, axis)
    if joined is not None:
        return joined
    tensors = _joined("stack", arrays)
    _check_same("stack", [x.shape for x in tensors], tensors)
    along = as_axis(axis, tensors[0].ndim + 1, "stack")
    dtype = promote(*(x.dtype for x in tensors))
    if _goes_in_parts(tensors):
        return _in_parts(tensors, along, len(tensors), dtype, are_layers=True)
    return on(tensors, "stack", lambda xp, *natives: xp.stack(_cast(natives, dtype), axis=along))


def _goes_in_parts(tensors: Sequence[Tensor]) -> bool:
    """Return whether a function is being captured, and all arrays are packed, as NumPy's result would be then."""
    return bool(watchers) and watching() is not None and all(x.blob.is_packed for x in tensors)


def _in_parts(parts: Sequence[Tensor], along: int, length: int, dtype: DType, *, are_layers: bool = False) -> Tensor:
    """Return parts joined along an axis, each written to its place in the result: as steps that can be captured.

    are_layers: whether each part is one index along a new axis.
    """
    first = parts[0]
    shape = (*first.shape[:along], length, *first.shape[along + (not are_layers) :])
    result: Tensor = xt.empty(shape, dtype=dtype, device=first.device)
    begin = 0
    for part in parts:
        end = begin + (1 if are_layers else part.shape[along])
        key = (*(slice(None),) * along, begin if are_layers else slice(begin, end), ...)
        begin = end
        if part.size:
            assign_captured(result[key], part, "concat")
    return result


def _joined_at_once(function: Callable[..., Any], arrays: Any, axis: Any) -> Tensor | None:
    """Return small arrays joined by the library's function; None for unusual arguments, or if it refuses."""
    usual = type(arrays) in (list, tuple) and type(axis) is int
    natives = thin_arrays(*arrays, most=cheap_below[0]) if usual else None
    return None if natives is None else cast(Tensor | None, thin_call(function, natives, natives, axis))


def _joined(function: str, arrays: Any) -> tuple[Tensor, ...]:
    if not isinstance(arrays, (tuple, list, Tensor)):
        raise TypeError(expected(function, "arrays", "be a tuple or list of arrays", type(arrays).__name__))
    like = next((x for x in arrays if isinstance(x, Tensor)), None)
    tensors = tuple(as_tensor(x, function, "arrays", like) for x in arrays)
    if not tensors:
        raise ValueError(expected(function, "arrays", "hold at least one array", "none"))
    return tensors


def _check_same(function: str, rests: list[Shape], tensors: tuple[Tensor, ...]) -> None:
    for rest, x in zip(rests, tensors, strict=True):
        if rest != rests[0] or x.ndim != tensors[0].ndim:
            shapes = f"{tensors[0].shape} and {x.shape}"
            raise ValueError(expected(function, "arrays", "have equal lengths along the other axes", shapes))


def _cast(natives: Sequence[Any], dtype: DType) -> list[Any]:
    return [native.astype(dtype, copy=False) for native in natives]


@differentiable(x=lambda g, axis: xt.squeeze(g, axis), view=True)
def expand_dims(x: Tensor, /, axis: int | tuple[int, ...]) -> Tensor:
    """Return a view with new axes of length 1 at the given positions of the result.

    Raises AxisError, or ValueError for a position named twice. Standard: Manipulation Functions, expand_dims.
    """
    x = as_tensor(x, "expand_dims")
    added = len(axis) if isinstance(axis, (tuple, list)) else 1
    return rearranged(x, "insert", as_axes(axis, x.ndim + added, "expand_dims", none_is_all=False))


@differentiable(x=lambda g, axis: xt.flip(g, axis=axis), view=True)
def flip(x: Tensor, /, *, axis: int | tuple[int, ...] | None = None) -> Tensor:
    """Return a view with the order of elements reversed along the given axes (None: all).

    Standard: Manipulation Functions, flip.
    """
    x = as_tensor(x, "flip")
    return rearranged(x, "flip", as_axes(axis, x.ndim, "flip"))


@differentiable(x=lambda g, source, destination: xt.moveaxis(g, destination, source), view=True)
def moveaxis(x: Tensor, source: int | tuple[int, ...], destination: int | tuple[int, ...], /) -> Tensor:
    """Return a view with axes moved from `source` to `destination`; the others keep their order.

    Raises AxisError, or ValueError for unequal numbers of axes. Standard: Manipulation Functions, moveaxis.
    """
    x = as_tensor(x, "moveaxis")
    sources = as_axes(source, x.ndim, "moveaxis", "source", none_is_all=False)
    targets = as_axes(destination, x.ndim, "moveaxis", "destination", none_is_all=False)
    if len(sources) != len(targets):
        raise ValueError(expected("moveaxis", "destination", f"name {len(sources)} axes", destination))
    order = [axis for axis in range(x.ndim) if axis not in sources]
    for target, axis in sorted(zip(targets, sources, strict=True)):
        order.insert(target, axis)
    return rearranged(x, "permute", order)


@differentiable(x=lambda g, axes: xt.permute_dims(g, _inverse(axes)), view=True)
def permute_dims(x: Tensor, /, axes: Sequence[int]) -> Tensor:
    """Return a view with the axes in the given order.

    Raises ValueError unless each axis is named once. Standard: Manipulation Functions, permute_dims.
    """
    seen = _seen(x, "transpose", axes)
    if seen is not None:
        return seen
    x = as_tensor(x, "permute_dims")
    if type(axes) is not tuple and not isinstance(axes, Sequence):
        raise TypeError(expected("permute_dims", "axes", "be a sequence of integers", repr(axes)))
    order = as_axes(tuple(axes), x.ndim, "permute_dims", "axes")
    if len(order) != x.ndim:
        raise ValueError(expected("permute_dims", "axes", f"name each of the {x.ndim} axes once", tuple(axes)))
    return rearranged(x, "permute", order)


def _inverse(axes: Sequence[int]) -> tuple[int, ...]:
    """Return the order of axes that undoes another."""
    order = [a % len(axes) for a in axes]
    return tuple(order.index(a) for a in range(len(order)))


def _of_repeated(g: Tensor, like: Like, repeats: Any, axis: int | None) -> Tensor:
    """The sum over the copies of each element."""
    length = like.size if axis is None else like.shape[axis]
    along = 0 if axis is None else axis % like.ndim
    times = None if type(repeats) is int else as_tensor(repeats, "repeat", "repeats", g)
    if times is None or times.size == 1:
        count = repeats if times is None else int(xt.reshape(times, ()))  # a look at a value: it cannot be captured
        summed = xt.sum(xt.reshape(g, (*g.shape[:along], length, count, *g.shape[along + 1 :])), axis=along + 1)
    else:
        summed = added(g, repeat(xt.arange(length, device=g.device), times), along, length)
    return xt.reshape(summed, like.shape)


@differentiable(x=lambda g, like, repeats, axis: _of_repeated(g, like, repeats, axis))
def repeat(x: Tensor, repeats: int | Tensor, /, *, axis: int | None = None) -> Tensor:
    """Return x with each element (or slice along `axis`) repeated; flattened first if axis is None.

    repeats: one number, or one per element along the axis. Raises ValueError for negative numbers or another length,
    TypeError for repeats that are not integers. Standard: Manipulation Functions, repeat.
    """
    x = as_tensor(x, "repeat")
    if type(repeats) is int and repeats >= 0 and x.device == "cpu":
        along = None if axis is None else as_axis(axis, x.ndim, "repeat")
        if watchers:  # as steps of a captured function
            x, along = (x, along) if along is not None else (xt.reshape(x, (-1,)), 0)
            before, after = x.shape[: along + 1], x.shape[along + 1 :]
            repeated = xt.broadcast_to(xt.expand_dims(x, axis=along + 1), (*before, repeats, *after))
            return xt.reshape(repeated, (*before[:-1], before[-1] * repeats, *after), copy=True)
        return on(x, "repeated", lambda xp, a: a.repeat(repeats, along))
    times = as_tensor(repeats, "repeat", "repeats", x)
    if times.dtype.kind not in "iub":
        raise TypeError(expected("repeat", "repeats", "be integer", times.dtype))
    along = None if axis is None else as_axis(axis, x.ndim, "repeat")
    length = x.size if along is None else x.shape[along]
    if times.ndim > 1 or times.size not in (1, length):
        raise ValueError(expected("repeat", "repeats", f"be one number or {length} of them", f"shape {times.shape}"))
    if np.any(times.host() < 0):
        raise ValueError(expected("repeat", "repeats", "not be negative", times.tolist()))
    return on((x, times), "repeat", lambda xp, a, n: xp.repeat(a, n, axis=along))


def _seen(x: Any, method: str, numbers: Any) -> Tensor | None:
    """Return the view of a computed tensor that a method of its array makes (see `thin_view`), if it is given a tuple
    of integers; else None.
    """
    if type(numbers) is tuple and INT.issuperset(map(type, numbers)):
        return thin_view(x, method, numbers)
    return None


@differentiable(x=lambda g, like: xt.reshape(g, like.shape), view=True)
def reshape(x: Tensor, /, shape: Sequence[int] | int, *, copy: bool | None = None) -> Tensor:
    """Return x's elements in C order in another shape; one length may be -1 and is then computed.

    The result is a view if strides allow it and copy is not True. Raises ValueError if the size differs, or if
    copy=False and a copy is needed. Standard: Manipulation Functions, reshape.
    """
    native = None if copy or thin_closed[0] or type(x) is not Tensor else shown(x)
    if native is not None and (native.flags.c_contiguous or (native.ndim == 1 and type(native) is np.ndarray)):
        given: Any = (shape,) if type(shape) is int else shape
        seen = _seen(x, "reshape", given)  # elements follow each other at one distance: any shape of them is a view
        if seen is not None and min(given, default=0) >= -1:
            return seen  # NumPy takes any negative length for the one that is left
    x = as_tensor(x, "reshape")
    lengths = resolve_shape(shape, x.size, "reshape")
    later = None if copy is not None else seen_later(x._content, "reshape", lengths)
    if later is not None:
        return face(later)
    itemsize = x.dtype.itemsize
    viewed = None if copy else x.blob.layout.reshape(lengths, itemsize)
    if viewed is not None:
        return x.viewed(viewed)
    if copy is False:
        raise ValueError(expected("reshape", "copy", f"be None or True for strides {x.strides}", copy))
    found: Tensor = on(x, "reshape", Packing(lengths, "C"))
    return found


def _opposite(shift: int | tuple[int, ...]) -> int | tuple[int, ...]:
    return tuple(-one for one in shift) if isinstance(shift, (tuple, list)) else -shift


@differentiable(x=lambda g, shift, axis: xt.roll(g, _opposite(shift), axis=axis))
def roll(x: Tensor, /, shift: int | tuple[int, ...], *, axis: int | tuple[int, ...] | None = None) -> Tensor:
    """Return x with elements moved `shift` places along the axes; those moved beyond the end reappear at the start.

    axis None rolls the flattened elements. Raises ValueError if shifts and axes differ in number. Standard:
    Manipulation Functions, roll.
    """
    x = as_tensor(x, "roll")
    along = None if axis is None else tuple(as_axis(a, x.ndim, "roll") for a in _tuple(axis))
    shifts = _tuple(shift)
    if along is not None and len(shifts) not in (1, len(along)):
        raise ValueError(expected("roll", "shift", f"be one number or {len(along)} of them", shift))
    if along is not None and x.size and x.device.backend is not CPU and _goes_in_parts((x,)):
        return _rolled(x, shifts * len(along) if len(shifts) == 1 else shifts, along)
    return on(x, "roll", _Roll(shifts, along, x.ndim))


class _Roll:
    """The device library's `roll`, for which machine code need not make a copy (run/rolls.py).

    shifts: by how many places each axis is rolled, None if elements move from one row to another.
    """

    __slots__ = ("_along", "_places", "shifts")

    def __init__(self, shifts: Sequence[int], along: Sequence[int] | None, ndim: int) -> None:
        self._places, self._along = tuple(shifts), along if along is None else tuple([axis - ndim for axis in along])
        if ndim == 1:
            self._along = (-1,) * len(self._places)
        self.shifts = None if self._along is None else self._by_axis(ndim)

    def _by_axis(self, ndim: int) -> tuple[int, ...]:
        along, by = self._along or (), [0] * ndim
        places = self._places * len(along) if len(self._places) == 1 else self._places
        for axis, shift in zip(along, places, strict=True):
            by[axis] += int(shift)
        return tuple(by)

    def of_stacks(self, ndim: int) -> _Roll:
        """Return the same of each array of a stack with so many axes."""
        return _Roll(self._places, [axis + ndim for axis in self._along or ()], ndim)

    def __call__(self, xp: Any, x: Any) -> Any:
        places = self._places[0] if len(self._places) == 1 else self._places
        return xp.roll(x, places, axis=self._along)


def _rolled(x: Tensor, shifts: Sequence[int], along: Sequence[int]) -> Tensor:
    """Return the result of `roll` as steps for kernels, on another device than the CPU."""
    rolled = x
    for axis, by in zip(along, shifts, strict=True):
        length, before = x.shape[axis], (slice(None),) * axis
        cut = -int(by) % length
        if cut:
            parts = [rolled[(*before, slice(cut, None), ...)], rolled[(*before, slice(None, cut), ...)]]
            rolled = _in_parts(parts, axis, length, x.dtype)
    return x.copy() if rolled is x else rolled


def _tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


@differentiable(x=lambda g, like: xt.reshape(g, like.shape), view=True)
def squeeze(x: Tensor, /, axis: int | tuple[int, ...]) -> Tensor:
    """Return a view without the given axes; raises ValueError for an axis whose length is not 1.

    Standard: Manipulation Functions, squeeze.
    """
    seen = _seen(x, "squeeze", (axis,) if type(axis) is int else axis)
    if seen is not None and x.shape:  # without axes NumPy takes 0 and -1
        return seen
    x = as_tensor(x, "squeeze")
    axes = as_axes(axis, x.ndim, "squeeze", none_is_all=False)
    for a in axes:
        if x.shape[a] != 1:
            raise ValueError(expected("squeeze", "axis", "name axes of length 1", f"axis {a} of shape {x.shape}"))
    return rearranged(x, "drop", axes)


def _of_tiled(g: Tensor, like: Like, repetitions: Sequence[int]) -> Tensor:
    """The sum over the copies: every axis of the result is split into copies and elements."""
    _, apart = _copies(like.shape, as_shape(repetitions, "tile", "repetitions"))
    return xt.reshape(xt.sum(xt.reshape(g, apart), axis=tuple(range(0, len(apart), 2))), like.shape)


def _copies(shape: Shape, times: Shape) -> tuple[Shape, list[int]]:
    """Return a shape with as many axes as there are repetitions, and alternating lengths of copies and elements."""
    count = max(len(times), len(shape))
    shape, times = (1,) * (count - len(shape)) + shape, (1,) * (count - len(times)) + times
    return shape, [length for pair in zip(times, shape, strict=True) for length in pair]


@differentiable(x=lambda g, like, repetitions: _of_tiled(g, like, repetitions))
def tile(x: Tensor, repetitions: Sequence[int], /) -> Tensor:
    """Return x repeated as a whole along each axis; the shorter of both shapes is padded with leading axes of length 1.

    Raises ValueError for negative repetitions. Standard: Manipulation Functions, tile.
    """
    x = as_tensor(x, "tile")
    times = as_shape(repetitions, "tile", "repetitions")
    if watchers:  # as steps of a captured function
        shape, apart = _copies(x.shape, times)
        repeated = xt.broadcast_to(xt.reshape(x, [one for length in shape for one in (1, length)]), apart)
        return xt.reshape(repeated, [many * n for many, n in zip(apart[::2], shape, strict=True)], copy=True)
    return on(x, "tile", lambda xp, a: xp.tile(a, times))


def _stacked(g: Sequence[Tensor | None], like: Like, axis: int) -> Tensor:
    along = axis % like.ndim
    shape = (*like.shape[:along], *like.shape[along + 1 :])
    return xt.stack(_or_zeros(g, [shape] * len(g), like), axis=along)


@differentiable(x=lambda g, like, axis: _stacked(g, like, axis), view=True)
def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """Return the views of x at each index of an axis, without that axis; raises AxisError.

    Standard: Manipulation Functions, unstack.
    """
    x = as_tensor(x, "unstack")
    along = as_axis(axis, x.ndim, "unstack")
    whole, lead = x.evaluate(), (slice(None),) * along
    return tuple([whole[(*lead, position, ...)] for position in range(x.shape[along])])

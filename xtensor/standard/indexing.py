"""Indexing: take, take_along_axis, and the implementation of `x[key]` and `x[key] = value`.

A key of integers, slices, Ellipsis and None selects a view. A key that contains an array or list (a boolean mask or
integers) selects a copy, by NumPy's rules for advanced indexing.
"""

from __future__ import annotations

from math import prod
from typing import Any, cast

import numpy as np

from ..autograd.history import refuse_leaf, written
from ..autograd.pieces import adds_axes
from ..autograd.rules import Like, sum_to, xt
from ..autograd.tape import OFF, active, differentiable, recording, stacked_operand, step_of, steps_of
from ..base.dtypes import INTEGER, check_real
from ..base.errors import expected, prefixed
from ..base.layout import Layout, Shape, as_axis, contiguous
from ..base.options import thin_closed
from ..base.profiling import noting, observers
from ..calls.elsewhere import assign_there, view_there
from ..calls.library import on, thin_call
from ..calls.masked import is_same_mask, is_selection, selection
from ..calls.op import cast_later
from ..calls.sequences import row_of
from ..calls.writes import assign_captured, cast_now, computed_aside, store, writable, writable_blob, write_captured
from ..devices import Backend
from ..devices.cpu import CPU, PLAIN, assign
from ..graph.node import Node, Part
from ..graph.number import is_traced
from ..run.executor import can_look, opened, seen_later
from ..run.places import Along, Gather, Scatter, Window
from ..storage.blob import TBlob
from ..storage.storage import Native, watchers, watching
from ..tensor.face import CPU_DEVICE, Tensor, face, from_native, thin_arrays, wrap
from ..tensor.operands import (
    SCALARS,
    Operand,
    as_operand,
    as_tensor,
    as_tensors,
    asarray_host,
    common_device,
    numpy_of,
    of_sequence,
)
from ..tensor.scalars import is_value, valued
from .keys import array_key, checked_key, is_basic, native_key_of, thin_key
from .told_keys import told_key

__all__ = ["take", "take_along_axis"]


def _of_taken(g: Tensor, indices: Any, axis: int, like: Like) -> Tensor:
    return added(g, indices, axis, like.shape[axis])


@differentiable(x=lambda g, indices, axis, like: _of_taken(g, indices, 0 if axis is None else axis % like.ndim, like))
def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    """Return the elements (slices along `axis`) at integer indices; axis may be None only if x has one axis.

    Negative indices count from the end. The result has x's shape with the axis replaced by the axes of indices. Raises
    IndexError for an index out of range, TypeError for indices that are not integers. Standard: Indexing Functions,
    take.
    """
    natives = thin_arrays(x, indices)
    if natives is not None and (type(axis) is int or natives[0].ndim == 1) and natives[1].dtype.kind in "iu":
        found = thin_call(natives[0].take, natives, natives[1], axis)
        if found is not None:
            return cast(Tensor, found)
    x, indices = as_tensors("take", x=x, indices=indices)
    if axis is None and x.ndim != 1:
        raise ValueError(expected("take", "axis", "be given unless x has 1 axis", f"shape {x.shape}"))
    along = as_axis(0 if axis is None else axis, x.ndim, "take")
    INTEGER.check(indices.dtype, "take", "indices")
    if watchers and x.device.backend is CPU:
        return cast(Tensor, on((x, indices), "take", Gather(CPU, [slice(None)] * along + [None], [along], x.ndim)))
    return on((x, indices), "take", lambda xp, a, i: xp.take(a, i, axis=along))


@differentiable(g=lambda g, indices, axis: xt.take(g, indices, axis=axis))
def added(g: Tensor, indices: Any, axis: int, length: int) -> Tensor:
    """Return zeros with g added at integer indices along an axis, which replaces the axes of the indices.

    The adjoint of take: the values of an index that occurs more than once are added up.
    """
    where, backend = as_tensor(indices, "take", "indices", g), g.device.backend
    found: Tensor = on((g, where), "take", lambda xp, a, i: _added(a, i, axis, length, backend))
    return found


def _added(g: Native, where: Native, axis: int, length: int, backend: Backend) -> Native:
    """Compute the same for native arrays."""
    if backend is not CPU:
        result = backend.zeros((*g.shape[:axis], length, *g.shape[axis + where.ndim :]), g.dtype)
        backend.add_at(result, (slice(None),) * axis + (where,), g)
        return result
    from ..run.added_rows import added_rows  # the engines come with it

    places = where.reshape(-1).astype(np.int64, copy=False)
    places = np.where(places < 0, places + length, places)
    rows = g.reshape(*g.shape[:axis], places.size, *g.shape[axis + where.ndim :])
    summed = added_rows(np.moveaxis(rows, axis, 0), places, length)
    return np.ascontiguousarray(np.moveaxis(summed, 0, axis))


@differentiable(x=lambda g, indices, axis, like: _added_along(g, indices, axis, like))
def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """Return, for each 1-d slice of x along `axis`, the elements at the indices of the matching slice.

    x and indices broadcast along the other axes. Raises IndexError for an index out of range, ValueError for
    another number of axes. Standard: Indexing Functions, take_along_axis.
    """
    x, indices = as_tensors("take_along_axis", x=x, indices=indices)
    along = as_axis(axis, x.ndim, "take_along_axis") - x.ndim  # from the end, as for stacks (calls/batching.py)
    INTEGER.check(indices.dtype, "take_along_axis", "indices")
    if x.ndim != indices.ndim:
        raise ValueError(expected("take_along_axis", "indices", f"have {x.ndim} axes", f"shape {indices.shape}"))
    return on((x, indices), "take_along_axis", Along(x.device.backend, along))


def _added_along(g: Tensor, indices: Any, axis: int, like: Like) -> Tensor:
    """Return cotangents put back where take_along_axis gathered from, summed along axes in which x was broadcast."""
    along = axis % like.ndim
    full = (*g.shape[:along], like.shape[along], *g.shape[along + 1 :])
    return sum_to(_put_along(g, indices, along, like.shape[along]), full, like.shape)


@differentiable(g=lambda g, indices, axis: xt.take_along_axis(g, indices, axis=axis))
def _put_along(g: Tensor, indices: Any, axis: int, length: int) -> Tensor:
    """Return zeros with g added at the indices of the matching 1-d slices along an axis."""
    where, backend = as_tensor(indices, "take_along_axis", "indices", g), g.device.backend

    from_end = axis - g.ndim

    def put(xp: Any, native: Native, places: Native) -> Native:
        at = native.ndim + from_end
        result = backend.zeros((*native.shape[:at], length, *native.shape[at + 1 :]), native.dtype)
        grid: list[Any] = list(np.ogrid[tuple(slice(n) for n in native.shape)])
        grid[at] = places
        backend.add_at(result, tuple(grid), native)
        return result

    found: Tensor = on((g, where), "take_along_axis", put)
    return found


def subscript(x: Tensor, key: Any) -> Tensor:
    """Return `x[key]`, where 0-d values act as integers, which select views as NumPy's scalars do.

    During a capture their values are not asked for if possible: a single element is a copy anyway.
    """
    if isinstance(key, tuple) and type(key) is not tuple:  # a named one
        key = tuple(key)
    if type(key) is tuple and type(x._content) is np.ndarray and not (watchers or thin_closed[0]):
        selected = _selected_at_once(x._content, key)
        if selected is not None:
            return selected
    if watchers:
        key = told_key(x, key)
    basic = type(key) in PLAIN or is_basic(key)
    there = view_there(x, key) if basic and not thin_closed[0] else None
    if there is not None:
        return there
    later = _selected_later(x, key) if active[0] and not basic and watchers and watching() is not None else None
    if later is not None:
        return later
    whole = key if type(key) is tuple else (key,)
    if basic or not _has_values_for_integers(x, whole):
        found: Tensor = getitem(x, key)
        return found
    if watchers and watching() is not None:
        seen = getitem(x, key) if _is_item(whole, x.ndim) else _shown(x, whole)
        if seen is not None:
            return seen
    plain = tuple([_asked_for(one) for one in whole])
    return getitem(x, plain) if thin_closed[0] else x[plain]


def _selected_at_once(data: Native, key: tuple[Any, ...]) -> Tensor | None:
    """Return the elements that a key with index arrays selects from the array of a thin face; None for other keys."""
    natives = thin_key(key)
    if natives is None or not any(type(one) is np.ndarray and one.ndim for one in natives):
        return None
    try:
        return wrap(CPU.index(data, natives), CPU_DEVICE)
    except IndexError:
        return None  # the long way reports what is wrong


def _asked_for(item: Any) -> Any:
    """Return an item of a key with integers in place of 0-d tensors, whose values are looked at."""
    if type(item) is Window:
        start = item.start.__index__()
        return slice(start, start + item.count)
    return item.__index__() if type(item) is Tensor else item


def _has_values_for_integers(x: Tensor, key: tuple[Any, ...]) -> bool:
    """Return whether a key only has basic items and 0-d integer values, no other arrays or lists."""
    for item in key:
        one = item.start if type(item) is Window else item
        if type(one) is not Tensor:
            if type(one) in (tuple, list) or not is_basic(one):
                return False
        elif not is_value(one) or one.shape or one.dtype.kind not in "iu" or one.device != x.device:
            return False
    return True


def _shown(x: Tensor, key: tuple[Any, ...]) -> Tensor | None:
    """Return the view at computed places in a function that is being captured, and record it; None if that is not
    possible.
    """
    capture, base = watching(), x.blob
    if base.device.backend is not CPU or base.layout.may_repeat() or (active[0] and steps_of((x,)) is not None):
        return None
    key = _blobs_in(key)
    if capture.reason:  # the capture may have failed while these were computed
        return None
    with capture.inside():
        known = tuple([_known(one) for one in key])
    try:
        layout = base.layout.index(known)
    except IndexError:
        capture.refuse_call("getitem")  # the function may catch the error, and then depends on values
        raise
    low, high = layout.extent(x.itemsize)
    if low == high:
        return None
    with capture.inside():
        part = base.owner.part(low, high)
    moved = Layout(layout.shape, layout.strides, layout.offset - low)
    view = TBlob(part, base.dtype, moved, base.device, writeable=base.writeable)
    capture.show(view, base, key)
    return face(view)


def _blobs_in(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a key with the blobs of its tensors in their place."""
    return tuple(
        [
            Window(one.start.blob, one.count) if type(one) is Window else one.blob if type(one) is Tensor else one
            for one in key
        ]
    )


def _known(item: Any) -> Any:
    """Return an item of a key with integers in place of blobs; the capture does not notice that look at values."""
    if type(item) is Window:
        start = int(item.start.shallow_copy().native())
        return slice(start, start + item.count)
    return int(item.shallow_copy().native()) if type(item) is TBlob else item


@differentiable(x=lambda g, key, like: _cotangent(g, key, like), view=True, of_value="array")
def getitem(x: Tensor, key: Any) -> Tensor:
    """Return `x[key]`: a view for a basic key, else a copy. An integer for each axis selects a value, not a view."""
    if not is_basic(key):
        if watchers and watching() is not None:
            key = _listless(x, key)
            later = _selected_later(x, key)
            return _get_at_indices(x, key) if later is None else later
        native_key = None if x.thin() is None else thin_key(key)
        native_key = native_key_of(x, key) if native_key is None else native_key
        try:
            native = x.device.backend.index(x.native(), native_key)
        except IndexError as error:
            raise prefixed("index", error) from None
        return wrap(native, x.device)
    key = key if type(key) is tuple else (key,)
    view = _view(x, key)
    return valued(_value(view)) if _is_item(key, x.ndim) else view


def _listless(x: Tensor, key: Any) -> tuple[Any, ...]:
    """Return a key with tensors in place of its lists and NumPy arrays, which are constants."""
    key = key if type(key) is tuple else (key,)
    return tuple([_listed(x, item) if isinstance(item, (list, tuple, range, np.ndarray)) else item for item in key])


def _listed(x: Tensor, item: Any) -> Tensor:
    """Return a nested sequence of a key, or an array, as a tensor; a sequence with tensors in it is stacked."""
    if isinstance(item, np.ndarray):
        taken: Tensor = checked_key(from_native(item, x.device, shared=True))
        return taken
    if any(type(one) is Tensor for one in item):
        stack: Tensor = checked_key(xt.asarray(item, device=x.device))
        return stack
    return asarray_host(array_key(item), "index", "key", device=x.device)


def _mask_of(x: Tensor, key: Any) -> Tensor | None:
    """Return the mask of a key that is a mask of the shape of a tensor; None for any other key."""
    mask = _mask_of_axes(x, key)
    return mask if mask is not None and mask.shape == x.shape else None


def _mask_of_axes(x: Tensor, key: Any) -> Tensor | None:
    """Return the mask of a key that is a mask over the first axes of a tensor; None for any other key."""
    mask = key[0] if type(key) is tuple and len(key) == 1 else key
    if type(mask) is not Tensor or mask.dtype != np.bool_ or is_selection(mask) or is_selection(x):
        return None
    return mask if mask.ndim and mask.shape == x.shape[: mask.ndim] and mask.device is x.device else None


def _selected_later(x: Tensor, key: Any) -> Tensor | None:
    """Return the elements that a mask of a tensor's shape selects, as steps to capture; None for any other key."""
    mask = _mask_of(x, key)
    if mask is None:
        return None
    return selection(_all_of(x, mask), cast_now(mask))


@differentiable(x=lambda g, mask: xt.where(mask, g, 0))
def _all_of(x: Tensor, mask: Tensor) -> Tensor:
    """Return a copy of a tensor of which only the elements where a mask is true are used: cotangents of others, such as
    the derivative of a square root at 0, do not enter the gradient.
    """
    return cast_now(x)


def _with_selected(x: Tensor, key: Any, operand: Tensor) -> Tensor | None:
    """Return a tensor with other elements where a mask is true: those that the same mask selects from another tensor,
    or the same element, or row, at each place; None for any other key or operand.
    """
    selected = is_selection(operand)
    mask = _mask_of(x, key) if selected else _mask_of_axes(x, key)
    if mask is None or x.blob.layout.may_repeat() or (selected and not is_same_mask(operand._content.mask, mask)):
        return None
    rows = x.shape[mask.ndim :]
    if not selected:
        operand = xt.squeeze(operand, axis=0) if operand.ndim > len(rows) and operand.shape[0] == 1 else operand
        sides = zip(operand.shape[::-1], rows[::-1], strict=False)
        if operand.ndim > len(rows) or not all(one in (1, n) for one, n in sides):
            return None
    value = operand._content.value if selected else operand
    mask = xt.reshape(mask, mask.shape + (1,) * len(rows)) if rows else mask
    if value.dtype != x.dtype:
        value = xt.astype(value, x.dtype) if active[0] and value._step is not None else cast_now(value, x.dtype)
    found: Tensor = xt.where(mask, value, x)
    return found


def _get_at_indices(x: Tensor, key: tuple[Any, ...]) -> Tensor:
    """Return the elements at indices, by a call of the library that can be captured."""
    places = [place for place, item in enumerate(key) if isinstance(item, Tensor)]
    fixed = [None if isinstance(item, Tensor) else native_key_of(x, item) for item in key]
    masks = any(getattr(item, "dtype", None) == np.bool_ for item in (*key, *fixed))
    if masks or any(isinstance(item, np.ndarray) for item in key):
        watching().refuse_call("getitem")

    gather = Gather(x.device.backend, fixed, places, x.ndim)
    found: Tensor = on((x, *[key[place] for place in places]), "index", gather)
    return found


def _view(x: Tensor, key: tuple[Any, ...]) -> Tensor:
    """Return the view that a basic key selects."""
    native = x.thin()
    if native is not None:
        view = _native_view(native, key)
        if view is not None:
            return x.window(view)
    later = _part(x, key) or seen_later(x._content, "index", key)
    return x.viewed(x.blob.layout.index(key)) if later is None else face(later)


def _is_item(key: tuple[Any, ...], ndim: int) -> bool:
    """Return whether a basic key selects one element, of which NumPy makes a scalar."""
    return len(key) == ndim and not any(
        isinstance(one, (slice, Window)) or one is None or one is Ellipsis for one in key
    )


def _as_view(key: Any) -> tuple[Any, ...]:
    """Return a basic key that selects the same elements, and never a value."""
    key = key if type(key) is tuple else (key,)
    return key if any(one is Ellipsis for one in key) else (*key, ...)


def _value(view: Tensor) -> Tensor:
    """Return a copy of a view's elements, as a pending node if copies are recorded.

    A part of a pending value is computed now, except during a capture, which records the copy.
    """
    if watchers and watching() is not None:
        return cast_now(view)
    copy = None if type(view._content) is Part else cast_later(view, view.dtype)
    return wrap(view.device.backend.call(view.native().copy), view.device) if copy is None else copy


def _native_view(native: Native, key: tuple[Any, ...]) -> Native | None:
    """Return the view that a basic index selects, made by NumPy; None where it refuses the key."""
    try:
        view = native[key]
        # a single element is copied, but not with an Ellipsis
        return view if type(view) is np.ndarray else native[(*key, ...)]
    except (IndexError, TypeError, ValueError):
        return None


def _cotangent(g: Tensor, key: Any, like: Like) -> Tensor:
    return cast(Tensor, xt.reshape(g, like.shape)) if adds_axes(key) else _placed(g, key, like)


@differentiable(g=lambda g, key: g[key])
def _placed(g: Tensor, key: Any, like: Like) -> Tensor:
    """Return zeros with a cotangent added at the elements of a key, which may name some of them more than once."""
    if is_basic(key):
        result: Tensor = xt.zeros(like.shape, dtype=like.dtype, device=like.device)
        result[key] = g
        return result
    backend, key = g.device.backend, _listless(g, key)
    places = [place for place, item in enumerate(key) if isinstance(item, Tensor)]
    fixed = [None if isinstance(item, Tensor) else native_key_of(g, item) for item in key]

    def place(xp: Any, native: Native, *indices: Native) -> Native:
        if len(places) == 1 and indices[0].dtype.kind in "iu" and fixed.count(slice(None)) == len(fixed) - 1:
            return _added(native, indices[0], places[0], like.shape[places[0]], backend)
        total, given = backend.zeros(like.shape, like.dtype), iter(indices)
        backend.add_at(total, tuple([next(given) if at in places else item for at, item in enumerate(fixed)]), native)
        return total

    found: Tensor = on((g, *[key[at] for at in places]), "getitem", place)
    return found


# A look at no more than this share of a pending value computes only that part, for so many looks: further looks are
# probably a loop, and each look takes ten times as long as it does after the value is computed.
_SMALL_PART, _LOOKS = 1 / 8, 4


def _part(x: Tensor, key: tuple[Any, ...]) -> Part | None:
    """Return a small view of a pending value as a part that can be looked at alone, else None."""
    value = x.value
    if type(value) is not Node or value.blob is not None or value.device.backend is not CPU:
        return None
    if value.parts is not None and len(value.parts) >= _LOOKS:
        return None
    shape = contiguous(x.shape, x.itemsize).index(key).shape
    if prod(shape) > x.size * _SMALL_PART or not can_look(value):
        return None
    return Part(value, key, shape)


def setitem(x: Tensor, key: Any, value: Any, function: str = "setitem") -> None:
    """Assign `x[key] = value`; the value broadcasts, and is cast to x's dtype by NumPy's rules for assignment.

    Raises ValueError for a read-only x or shapes that do not broadcast, TypeError for complex into real, and
    OverflowError for a Python integer that does not fit; x is then unchanged.
    """
    if isinstance(key, tuple) and type(key) is not tuple:  # a named one
        key = tuple(key)
    if watchers:
        key = told_key(x, key)
    if not thin_closed[0]:
        basic = type(key) in PLAIN or is_basic(key)
        if (basic and assign_there(x, key, value)) or _set_at_once(x, key, value, basic):
            return
    if isinstance(value, (list, tuple)):
        value = stacked_operand(value)
        if type(value) is not Tensor:
            value = of_sequence(value, function, "value", x.dtype if x.dtype.kind in "iu" else None, x.device)
    elif is_traced(value) and x.dtype.kind in "fc":
        value = xt.multiply(as_tensor(1.0, function, like=x), value)
    elif isinstance(value, np.integer):  # refused if it does not fit, as by NumPy
        value = int(value)
    operand = as_operand(numpy_of(value), function, "value", x.device)
    common_device(function, (x, operand))
    check_real(getattr(operand, "dtype", operand), x.dtype, function, "value")
    if active[0] and steps_of((x, operand)) is not None:
        _set_on_tape(x, key, operand, function)
    else:
        _set(x, key, operand, function)


def _set_on_tape(x: Tensor, key: Any, value: Operand, function: str) -> None:
    """Assign, and record on the tape how gradients go back from the new contents to the old ones and to the value."""
    refuse_leaf(x, function)
    if is_basic(key):
        target = getitem(x, _as_view(key))
        if isinstance(value, Tensor):
            value = xt.broadcast_to(_as_broadcast(xt.astype(value, x.dtype, copy=False), target.shape), target.shape)
        with recording(OFF):
            _set(x, key, value, function)
        written(target, step_of(value) if isinstance(value, Tensor) else None)
        return
    given: Tensor = value if isinstance(value, Tensor) else xt.asarray(value, dtype=x.dtype, device=x.device)
    contents = _with_selected(x, key, given) if is_selection(given) else None
    if contents is None:
        contents = _replaced(x, key, given)
    with recording(OFF):
        _set(x, key, value, function)
    written(x, step_of(contents))


def _as_broadcast(value: Tensor, shape: Shape) -> Tensor:
    """Return a value without leading axes of length 1 that its target lacks: assignment ignores them."""
    extra = value.ndim - len(shape)
    return value if extra <= 0 else xt.reshape(value, value.shape[extra:])


@differentiable(x=lambda g, key: _without(g, key), value=lambda g, key, like: _last_written(g, key, like))
def _replaced(x: Tensor, key: Any, value: Tensor) -> Tensor:
    """Return a copy of x with `copy[key] = value`."""
    copy = x.copy()
    _set(copy, key, xt.astype(value, x.dtype, copy=False), "setitem")
    return copy


def _without(g: Tensor, key: Any) -> Tensor:
    """Return a cotangent with zeros where the values were replaced."""
    return _replaced(g, key, xt.zeros((), dtype=g.dtype, device=g.device))


def _last_written(g: Tensor, key: Any, like: Like) -> Tensor:
    """Return the cotangent of a value assigned at a key: if entries name the same element, the last one counts."""
    order = xt.zeros(g.shape, dtype=xt.int64, device=g.device)
    shape = getitem(order, key).shape
    numbers = xt.reshape(xt.arange(prod(shape), device=g.device), shape)
    _set(order, key, numbers, "setitem")
    last = getitem(order, key) == numbers
    return sum_to(xt.where(last, getitem(g, key), 0), last.shape, like.shape)


def _set(x: Tensor, key: Any, operand: Operand, function: str) -> None:
    """Assign an operand whose dtype and device have been checked."""
    target = x
    if watchers and watching() is not None:
        _set_captured(x, key, operand, function)
        return
    if is_basic(key):
        if key is not Ellipsis:
            target, key = x.viewed(x.blob.layout.index(key if type(key) is tuple else (key,))), ...
        if isinstance(operand, Tensor) and _is_there(operand, target):
            writable_blob(target, function)
            return
        if isinstance(operand, Tensor) and operand.is_pending and store(target, operand, function):
            return
    native_key = native_key_of(x, key)
    native_value = _apart(target, operand.evaluate()) if isinstance(operand, Tensor) else operand
    native = writable(target, function)
    backend = x.device.backend
    assign = noting(backend.assign, backend, function) if observers else backend.assign
    try:
        assign(native, native_key, native_value)
    except IndexError as error:
        raise prefixed("index", error) from None
    except (ValueError, TypeError, OverflowError) as error:
        raise prefixed(function, error) from None


def _set_captured(x: Tensor, key: Any, operand: Operand, function: str) -> None:
    """Assign as steps of the function that is being captured."""
    capture = watching()
    if not isinstance(operand, Tensor):
        native = np.empty((), x.dtype)
        try:
            CPU.assign(native, ..., operand)
        except (ValueError, TypeError, OverflowError) as error:
            raise prefixed(function, error) from None
        operand = face(capture.constant(native, x.device))
    value: Any = operand
    if not is_basic(key):
        key = _listless(x, key)
        if len(key) > 1 and _mask_of_axes(x, key[0]) is not None and all(type(one) in (int, slice) for one in key[1:]):
            x, key = _view(x, (slice(None),) * key[0].ndim + key[1:]), key[:1]
        seen = type(value._content) is TBlob and _has_values_for_integers(x, key)
        if seen and capture.shows(value.blob, x.blob, _blobs_in(key)):  # the last step of `x[key] += y`
            writable_blob(x, function)
            return
        replaced = _with_selected(x, key, value)
        if replaced is None:
            _set_at_indices(capture, x, key, value, function)
        else:
            assign_captured(x, replaced, function)
        return
    target = x if key is Ellipsis else x.viewed(x.blob.layout.index(key if type(key) is tuple else (key,)))
    if _is_there(value, target):
        writable_blob(target, function)
        return
    if value.shape != target.shape:
        try:
            np.empty(target.shape, np.bool_)[...] = np.empty(value.shape, np.bool_)
        except ValueError as error:
            raise prefixed(function, error) from None
        value = xt.broadcast_to(_as_broadcast(value, target.shape), target.shape)
    assign_captured(target, value, function)


def _set_at_indices(capture: Any, x: Tensor, key: tuple[Any, ...], operand: Tensor, function: str) -> None:
    """Assign at indices, as a call of the library."""
    places = [place for place, item in enumerate(key) if isinstance(item, Tensor)]
    masks = any(getattr(item, "dtype", None) == np.bool_ for item in key)
    if any(isinstance(item, np.ndarray) for item in key) or (masks and operand.size != 1):
        capture.refuse_call(function)  # how many elements a mask takes depends on its values
    starts = [item.start if type(item) is Window else item for item in key]
    fixed = [
        None if isinstance(item, Tensor) else item if type(item) is Window else native_key_of(x, item) for item in key
    ]
    scatter = Scatter(x.device.backend, fixed, places, x.ndim)
    write_captured(capture, scatter, (x, operand, *[one for one in starts if isinstance(one, Tensor)]), function)


def _is_there(operand: Tensor, target: Tensor) -> bool:
    """Return whether an operand is the same memory that it is assigned to, as in the last step of `x[key] += y`."""
    blob, other = target.blob, operand.value
    if type(other) is not TBlob or other._owner is not blob.owner:
        return False
    return (other.layout, other.dtype) == (blob.layout, blob.dtype)


def _set_at_once(x: Tensor, key: Any, value: Any, basic: bool) -> bool:
    """Assign a number or a computed array to elements of a thin face; return whether that was done. Assignments that
    NumPy refuses go the long way, which says what is wrong. A pending value is computed into memory of its own if
    somebody reads the target's memory, as in `x[1:] = x[:-1] * 2`: then one pass is probably not possible.

    basic: whether the key selects a view.
    """
    native = x.thin()
    given = value._content if type(value) is Tensor else value
    if native is not None and type(given) in (tuple, list) and native.dtype.kind in "fc":
        given = row_of(given, x.dtype)
    if type(given) is Node and native is not None and key is not ... and x.owner.readers():
        given = computed_aside(value)
    if native is None or not (type(given) is np.ndarray or type(given) in SCALARS) or not native.flags.writeable:
        return False
    native_key = key if basic else thin_key(key)
    if native_key is None:
        return False
    target = opened(x.blob)  # held here: `assign` drops its reference before it writes to a part
    return assign(target, native_key, given, basic=basic)


def _apart(target: Tensor, value: Tensor) -> Native:
    """Return the value's native array, copied if it lies in the memory that is about to be written."""
    into, source = target.blob, value.blob
    alone = into.owner is not source.owner or not into.overlaps(source)
    return source.native() if alone else source.device.backend.call(source.native().copy)

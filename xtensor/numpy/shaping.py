"""Shapes, the order of axes and elements, and arrays joined and split, under NumPy's signatures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy

from ..autograd.rules import xt
from ..autograd.tape import active, steps_of
from ..base.dtypes import canonical
from ..base.errors import expected, one_of
from ..base.layout import as_axes, as_axis, as_index, as_shape
from ..calls.library import in_a_row
from ..standard.padded import padded
from ..tensor.face import Tensor
from ..tensor.scalars import is_value
from .common import (
    array_of_any,
    as_array,
    as_arrays,
    axes_of,
    beside,
    constant,
    flattened,
    give,
    has_gradient,
    lone_axis,
    memory_order,
    with_slope,
)
from .door import through
from .thin import changed_at_once


def ndim(a: Any) -> int:
    return int(array_of_any(a).ndim)


def isscalar(element: Any) -> bool:
    return is_value(element) or numpy.isscalar(element)


def shape(a: Any) -> tuple[int, ...]:
    return tuple(array_of_any(a).shape)


def size(a: Any, axis: Any = None) -> int:
    x = array_of_any(a)
    if axis is None:
        return int(x.size)
    axes = as_axes(axis, x.ndim, "size")
    return int(numpy.prod([x.shape[one] for one in axes], dtype=int))


def reshape(a: Any, /, shape: Any, order: str = "C", *, copy: bool | None = None) -> Tensor:
    x, order = as_array(a, "reshape"), memory_order(order, "reshape", "A")
    if order == "A":
        order = "F" if _is_turned(x) else "C"
    if order != "F":
        return xt.reshape(x, shape, copy=copy)
    lengths = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    return _turned(xt.reshape(_turned(x), lengths[::-1], copy=copy))


def _is_turned(x: Tensor) -> bool:
    """Return whether elements are contiguous in Fortran's order, and not in C's."""
    return x.ndim > 1 and not x.is_contiguous and _turned(x).is_contiguous


def _turned(x: Tensor) -> Tensor:
    return xt.permute_dims(x, tuple(range(x.ndim))[::-1])


def ravel(a: Any, order: str = "C") -> Tensor:
    if type(a) is Tensor and order == "C":
        return a.ravel()
    x, order = as_array(a, "ravel"), memory_order(order, "ravel", "AK")
    if order == "K":  # as the elements lie in memory
        strides = x.strides
        x = xt.permute_dims(x, tuple(sorted(range(x.ndim), key=lambda axis: -abs(strides[axis]))))
    elif order == "F" or (order == "A" and _is_turned(x)):
        x = _turned(x)
    return in_a_row(x)


def transpose(a: Any, axes: Any = None) -> Tensor:
    x = as_array(a, "transpose")
    return xt.permute_dims(x, tuple(range(x.ndim))[::-1] if axes is None else axes_of(axes))


def permute_dims(a: Any, axes: Any = None) -> Tensor:
    return transpose(a, axes)


def matrix_transpose(x: Any, /) -> Tensor:
    return xt.matrix_transpose(as_array(x, "matrix_transpose"))


def swapaxes(a: Any, axis1: int, axis2: int) -> Tensor:
    x = as_array(a, "swapaxes")
    order = list(range(x.ndim))
    first, second = as_axis(axis1, x.ndim, "swapaxes"), as_axis(axis2, x.ndim, "swapaxes")
    order[first], order[second] = second, first
    return xt.permute_dims(x, tuple(order))


def moveaxis(a: Any, source: Any, destination: Any) -> Tensor:
    return xt.moveaxis(as_array(a, "moveaxis"), axes_of(source), axes_of(destination))


def rollaxis(a: Any, axis: int, start: int = 0) -> Tensor:
    x = as_array(a, "rollaxis")
    axis, start = as_axis(axis, x.ndim, "rollaxis"), as_axis(start - (start < 0), x.ndim + 1, "rollaxis")
    return moveaxis(x, axis, start - 1 if axis < start else start)


def squeeze(a: Any, axis: Any = None) -> Tensor:
    x = as_array(a, "squeeze")
    return x[...] if axis is not None and lone_axis(x, axis) is None else x.squeeze(axes_of(axis))


def expand_dims(a: Any, axis: Any) -> Tensor:
    return xt.expand_dims(as_array(a, "expand_dims"), axis=axes_of(axis))


def atleast_1d(*arys: Any) -> Any:
    return _each([xt.reshape(x, (1,)) if not x.ndim else x for x in map(as_array, arys)])


def atleast_2d(*arys: Any) -> Any:
    return _each([xt.reshape(x, (1,) * (2 - x.ndim) + x.shape) if x.ndim < 2 else x for x in map(as_array, arys)])


def atleast_3d(*arys: Any) -> Any:
    found = []
    for x in map(as_array, arys):
        shape = {0: (1, 1, 1), 1: (1, *x.shape, 1), 2: (*x.shape, 1)}.get(x.ndim, x.shape)
        found.append(x if x.ndim > 2 else xt.reshape(x, shape))
    return _each(found)


def _each(found: list[Tensor]) -> Any:
    return found[0] if len(found) == 1 else tuple(found)


def broadcast_to(array: Any, shape: Any, subok: bool = False) -> Tensor:
    return xt.broadcast_to(as_array(array, "broadcast_to"), (shape,) if isinstance(shape, int) else tuple(shape))


def broadcast_arrays(*args: Any, subok: bool = False) -> tuple[Any, ...]:
    """Return the operands in one shape; those of objects or text, which tensors cannot hold, as NumPy arrays."""
    arrays = [_or_objects(x) for x in args]
    shape = numpy.broadcast_shapes(*[x.shape for x in arrays])
    return tuple([(xt if isinstance(x, Tensor) else numpy).broadcast_to(x, shape) for x in arrays])


def _or_objects(x: Any) -> Any:
    """Return an operand as a tensor, or as a NumPy array if it holds objects or text."""
    try:
        return as_array(x, "broadcast_arrays")
    except TypeError:
        found = numpy.asarray(x)
        if found.dtype.kind not in "OUS":
            raise
        return found


# ---- the order of elements


def flip(m: Any, axis: Any = None) -> Tensor:
    found = xt.flip(as_array(m, "flip"), axis=axis)
    return found if found.ndim else found[()]  # a value, as in NumPy


def fliplr(m: Any) -> Tensor:
    return flip(m, 1)


def flipud(m: Any) -> Tensor:
    return flip(m, 0)


def rot90(m: Any, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Tensor:
    x = as_array(m, "rot90")
    named = [as_axis(one, x.ndim, "rot90", "axes") for one in axes]
    if len(named) != 2 or named[0] == named[1]:
        raise ValueError(expected("rot90", "axes", "name two different axes", tuple(axes)))
    if k % 4 == 2:
        return flip(x, tuple(named))
    if k % 4 == 0:
        return x[...]
    return swapaxes(flip(x, named[1]), *named) if k % 4 == 1 else flip(swapaxes(x, *named), named[1])


def roll(a: Any, shift: Any, axis: Any = None) -> Tensor:
    x, shift, axis = as_array(a, "roll"), axes_of(shift), axes_of(axis)
    if axis is not None and tuple in (type(shift), type(axis)):  # which broadcast
        shift, axis = (tuple(one.tolist()) for one in numpy.broadcast_arrays(shift, axis))
    return xt.roll(x, shift if isinstance(shift, tuple) else int(shift), axis=axis)


def sort(a: Any, axis: int | None = -1, kind: Any = None, order: Any = None, *, stable: bool | None = None) -> Tensor:
    x, axis = flattened(a, axis, "sort", lone=False)
    _check_sort("sort", kind, order, stable)
    return xt.sort(x, axis=axis)


def sort_in_place(x: Tensor, axis: Any, kind: Any, order: Any, stable: Any) -> None:
    """Sort the elements of an array along an axis, in place."""
    plain = order is None and stable is None and type(axis) is int and -x.ndim <= axis < x.ndim
    if not plain or not changed_at_once(numpy.ndarray.sort, x, (axis, kind)):
        x[...] = sort(x, axis, kind, order, stable=stable)


def argsort(
    a: Any, axis: int | None = -1, kind: Any = None, order: Any = None, *, stable: bool | None = None
) -> Tensor:
    x, axis = flattened(a, axis, "argsort")
    _check_sort("argsort", kind, order, stable)
    return xt.argsort(x, axis=axis)


_KINDS = ("quicksort", "mergesort", "heapsort", "stable")


def _check_sort(function: str, kind: Any, order: Any, stable: Any) -> None:
    """Raise ValueError for an unknown kind of sorting (only its first letter counts), for one that is given twice, and
    for an order of fields.
    """
    if kind is not None and stable is not None:
        raise ValueError(f"`kind` and `stable` parameters can't be provided at the same time, in {function}.")
    if kind is not None and (not isinstance(kind, str) or kind[:1].lower() not in {one[0] for one in _KINDS}):
        raise ValueError(expected(function, "kind", one_of(_KINDS), kind))
    if order is not None:
        raise ValueError(f"Cannot specify order when the array has no fields, in {function}.")


def partition(a: Any, kth: Any, axis: int | None = -1, kind: str = "introselect", order: Any = None) -> Tensor:
    x, along = flattened(a, axis, "partition")
    if not has_gradient(x):
        return through("partition", None, (a, kth, axis, kind, order), {})
    places = through("argpartition", None, (x.detach(), kth, along, kind), {})
    found: Tensor = xt.take_along_axis(x, places, axis=along)
    return found


def unwrap(p: Any, discont: Any = None, axis: int = -1, *, period: Any = 2 * numpy.pi) -> Tensor:
    x = as_array(p, "unwrap")
    found: Tensor = through("unwrap", None, (x.detach(), discont, axis), {"period": period})
    return with_slope(found, x) if has_gradient(x) else found


def trim_zeros(filt: Any, trim: str = "fb", axis: Any = None) -> Any:
    if not isinstance(filt, Tensor):
        return through("trim_zeros", numpy.trim_zeros, (filt, trim), {} if axis is None else {"axis": axis})
    if trim.lower() not in ("fb", "bf", "f", "b"):
        raise ValueError(f"unexpected character(s) in `trim`: {trim.lower()!r}")
    axes = (
        range(filt.ndim) if axis is None else [as_axis(one, filt.ndim, "trim_zeros") for one in numpy.atleast_1d(axis)]
    )
    places = numpy.argwhere(numpy.asarray(filt.detach()))
    key: list[Any] = [slice(None)] * filt.ndim
    for one in axes:
        front = int(places[:, one].min()) if len(places) and "f" in trim.lower() else None
        back = int(places[:, one].max()) + 1 if len(places) and "b" in trim.lower() else None
        key[one] = slice(front, back) if len(places) else slice(0, 0)
    return filt[tuple(key)]


def repeat(a: Any, repeats: Any, axis: int | None = None) -> Tensor:
    repeats = repeats if isinstance(repeats, int) else as_array(repeats, "repeat")
    x = as_array(a, "repeat")
    return xt.repeat(x, repeats, axis=lone_axis(x, axis))


def tile(A: Any, reps: Any) -> Tensor:  # noqa: N803 - NumPy's name
    times = axes_of(reps)
    return xt.tile(as_array(A, "tile"), times if isinstance(times, tuple) else (as_index(reps, "tile", "reps"),))


def resize(a: Any, new_shape: Any) -> Tensor:
    x = as_array(a, "resize").ravel()
    shape = as_shape(new_shape, "resize", "new_shape")
    count = prod(shape)
    if not x.size or not count:
        return xt.zeros(shape, dtype=x.dtype)
    return xt.reshape(xt.tile(x, (-(-count // x.size),))[:count], shape)


# ---- joining


def concatenate(
    arrays: Any, /, axis: int | None = 0, out: Any = None, *, dtype: Any = None, casting: str = "same_kind"
) -> Tensor:
    if not isinstance(arrays, Tensor):
        arrays = list(beside("concatenate", *arrays) if axis is None else as_arrays("concatenate", *arrays))
    if not len(arrays):
        raise ValueError("need at least one array to concatenate")
    return _joined("concatenate", xt.concat, arrays, axis, out, dtype, casting)


def stack(arrays: Any, axis: int = 0, out: Any = None, *, dtype: Any = None, casting: str = "same_kind") -> Tensor:
    if not isinstance(arrays, Tensor):
        arrays = list(as_arrays("stack", *arrays))
    if not len(arrays):
        raise ValueError("need at least one array to stack")
    return _joined("stack", xt.stack, arrays, axis, out, dtype, casting)


def _joined(
    function: str, join: Callable[..., Tensor], arrays: Any, axis: Any, out: Any, dtype: Any, casting: str
) -> Tensor:
    """Return joined arrays, each of which is cast to the dtype, or that of `out`, first."""
    if dtype is not None and out is not None:
        raise TypeError(expected(function, "out and dtype", "not both be given", f"dtype {dtype}"))
    wanted = dtype if out is None else getattr(out, "dtype", None)
    if wanted is not None:
        wanted = canonical(wanted, function)
        for x in arrays:
            if not numpy.can_cast(x.dtype, wanted, casting=casting):  # type: ignore[arg-type]
                raise TypeError(expected(function, "arrays", f"cast to {wanted} (casting={casting!r})", x.dtype))
        arrays = [xt.astype(x, wanted, copy=False) for x in arrays]
    return give(function, join(arrays, axis=axis), out)


def hstack(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> Tensor:
    arrays = [atleast_1d(x) for x in tup]
    return concatenate(arrays, 0 if arrays and arrays[0].ndim == 1 else 1, dtype=dtype, casting=casting)


def vstack(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> Tensor:
    return concatenate([atleast_2d(x) for x in tup], 0, dtype=dtype, casting=casting)


def dstack(tup: Any) -> Tensor:
    return concatenate([atleast_3d(x) for x in tup], 2)


def column_stack(tup: Any) -> Tensor:
    arrays = [as_array(x, "column_stack") for x in tup]
    return concatenate([xt.reshape(x, (-1, 1)) if x.ndim < 2 else x for x in arrays], 1)


def block(arrays: Any) -> Tensor:
    depth = _depth(arrays)
    most = max([depth, *[as_array(x).ndim for x in _leaves(arrays)]])
    return _blocks(arrays if depth else as_array(arrays).copy(), most, depth)


def _depth(arrays: Any) -> int:
    if isinstance(arrays, tuple):
        raise TypeError("arrays is a tuple. Only lists can be used to arrange blocks.")
    if not isinstance(arrays, list):
        return 0
    depths = {_depth(one) for one in arrays}
    if len(depths) != 1:
        raise ValueError("List depths are mismatched, or a list is empty.")
    return 1 + depths.pop()


def _leaves(arrays: Any) -> list[Any]:
    return [leaf for one in arrays for leaf in _leaves(one)] if isinstance(arrays, list) else [arrays]


def _blocks(arrays: Any, most: int, depth: int) -> Tensor:
    if not isinstance(arrays, list):
        x = as_array(arrays)
        return xt.reshape(x, (1,) * (most - x.ndim) + x.shape)
    return concatenate([_blocks(one, most, depth - 1) for one in arrays], axis=most - depth)


def append(arr: Any, values: Any, axis: int | None = None) -> Tensor:
    first, second = as_arrays("append", arr, values)
    return concatenate((first.ravel(), second.ravel()), 0) if axis is None else concatenate((first, second), axis)


def insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> Tensor:
    x, axis = flattened(arr, axis, "insert", lone=False)
    axis = as_axis(axis, x.ndim, "insert")
    length, before = x.shape[axis], (slice(None),) * axis
    given = xt.astype(as_array(values, "insert"), x.dtype)
    if _is_plain(obj, x, given):
        return through("insert", None, (x, obj, given, axis), {})
    places = obj if isinstance(obj, (int, slice)) else as_array(obj).numpy()
    if isinstance(places, int) or (not isinstance(places, slice) and not places.ndim):
        given = xt.moveaxis(xt.reshape(given, (1,) * (x.ndim - given.ndim) + given.shape), 0, axis)
        count = given.shape[axis] or 1
        order = numpy.insert(numpy.arange(length), int(places), numpy.arange(length, length + count))
    else:
        count = (
            len(numpy.arange(length)[places])
            if isinstance(places, slice)
            else numpy.count_nonzero(places)
            if places.dtype == bool
            else places.size
        )
        order = numpy.insert(numpy.arange(length), places, numpy.arange(length, length + count))
    stretched = xt.broadcast_to(given, (*x.shape[:axis], count, *x.shape[axis + 1 :]))
    joined: Tensor = concatenate((x, stretched), axis)
    return joined[(*before, xt.asarray(order))] if axis else xt.take(joined, xt.asarray(order), axis=0)


def _is_plain(obj: Any, *operands: Tensor) -> bool:
    """Return whether the library can insert or delete at places: on the CPU, without gradients."""
    with_gradient = active[0] and steps_of(operands) is not None
    return not isinstance(obj, Tensor) and all(x.device == "cpu" for x in operands) and not with_gradient


def delete(arr: Any, obj: Any, axis: int | None = None) -> Tensor:
    x, along = flattened(arr, axis, "delete", lone=False)
    if _is_plain(obj, x):
        return through("delete", None, (x, obj, along), {})
    obj = obj if isinstance(obj, (int, slice)) else as_array(obj).numpy()
    return xt.take(x, xt.asarray(numpy.delete(numpy.arange(x.shape[along]), obj)), axis=along)


# ---- splitting


def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Tensor]:
    x = as_array(ary, "array_split")
    axis = as_axis(axis, x.ndim, "array_split")
    length = x.shape[axis]
    if _is_number(indices_or_sections):
        count = int(indices_or_sections)
        if count <= 0:
            raise ValueError("number sections must be larger than 0.")
        each, extra = divmod(length, count)
        ends = [each * n + min(n, extra) for n in range(count + 1)]
    else:
        ends = [0, *[int(one) for one in indices_or_sections], length]
    before = (slice(None),) * axis
    return [x[(*before, slice(start, stop))] for start, stop in zip(ends[:-1], ends[1:], strict=True)]


def _is_number(sections: Any) -> bool:
    """Return whether sections are given by their number, which need not be an integer, rather than by their ends."""
    return not isinstance(sections, (list, tuple)) and not numpy.ndim(sections)


def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Tensor]:
    if _is_number(indices_or_sections) and as_array(ary).shape[axis] % indices_or_sections:
        raise ValueError("array split does not result in an equal division")
    return array_split(ary, indices_or_sections, axis)


def hsplit(ary: Any, indices_or_sections: Any) -> list[Tensor]:
    return split(ary, indices_or_sections, 1 if _at_least("hsplit", ary, 1).ndim > 1 else 0)


def vsplit(ary: Any, indices_or_sections: Any) -> list[Tensor]:
    return split(_at_least("vsplit", ary, 2), indices_or_sections, 0)


def dsplit(ary: Any, indices_or_sections: Any) -> list[Tensor]:
    return split(_at_least("dsplit", ary, 3), indices_or_sections, 2)


def _at_least(function: str, ary: Any, count: int) -> Tensor:
    x = as_array(ary, function)
    if x.ndim < count:
        raise ValueError(expected(function, "ary", f"have at least {count} axes", f"shape {x.shape}"))
    return x


def unstack(x: Any, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    x = as_array(x, "unstack")
    if x.ndim != 1:
        return tuple(xt.unstack(x, axis=axis))
    as_axis(axis, 1, "unstack")
    return tuple(x)  # values, as in NumPy


# ---- padding


# The names in xtensor.nn of modes that repeat elements.
_REPEATING = {"edge": "replicate", "wrap": "circular", "reflect": "reflect", "symmetric": "symmetric"}


def pad(array: Any, pad_width: Any, mode: Any = "constant", **options: Any) -> Tensor:
    x = as_array(array, "pad")
    widths = _pairs(pad_width, x.ndim)
    if all(type(width) is int and width >= 0 for pair in widths for width in pair):
        if mode == "constant" and set(options) <= {"constant_values"}:
            return _padded_by(x, widths, _pairs(options.get("constant_values", 0), x.ndim))
        if mode in _REPEATING and not options and x.size:
            return padded(x, tuple(widths), _REPEATING[mode], 0)
    if has_gradient(x) and x.dtype.kind == "f" and mode in (*_STATISTICS, "linear_ramp", "reflect", "symmetric"):
        return with_slope(
            through("pad", None, (x.detach(), pad_width, mode), options), _extended(x, widths, mode, options)
        )
    return through("pad", None, (x, pad_width, mode), options)


_STATISTICS = {"maximum": "max", "minimum": "min", "mean": "mean", "median": "median"}


def _extended(x: Tensor, widths: Sequence[tuple[int, int]], mode: str, options: dict[str, Any]) -> Tensor:
    """Return an array padded as NumPy does, axis by axis, by numbers that are computed from the elements."""
    lengths, ends = (
        _pairs(options.get(name, none), x.ndim) for name, none in (("stat_length", None), ("end_values", 0))
    )
    for axis, pair in enumerate(widths):
        x = xt.moveaxis(x, axis, 0)
        if mode in ("reflect", "symmetric"):
            x = _reflected_oddly(x, pair, mode)
        else:
            values = lengths if mode in _STATISTICS else ends
            before = _beyond(x, pair[0], mode, values[axis][0])
            after = xt.flip(_beyond(xt.flip(x, axis=0), pair[1], mode, values[axis][1]), axis=0)
            x = xt.concat([before, x, after])
        x = xt.moveaxis(x, 0, axis)
    return x


def _beyond(x: Tensor, width: int, mode: str, value: Any) -> Tensor:
    """Return what stands before an array along its first axis. value: the end of a ramp, or how many elements count."""
    if mode == "linear_ramp":
        part = xt.reshape(xt.arange(width, dtype=x.dtype) / max(width, 1), (-1, *(1,) * (x.ndim - 1)))
        return value + part * (x[:1] - value)
    found = getattr(xt.numpy, _STATISTICS[mode])(x[:value], axis=0, keepdims=True)
    return xt.broadcast_to(found, (width, *x.shape[1:]))


def _reflected_oddly(x: Tensor, pair: tuple[int, int], mode: str) -> Tensor:
    """Return an array continued along its first axis by reflections at points, its first and last elements."""
    count = x.shape[0]
    turns, places = numpy.divmod(numpy.arange(-pair[0], count + pair[1]), max(count - (mode == "reflect"), 1))
    odd = turns % 2
    chosen = xt.take(x, constant(numpy.where(odd, count - 1 - places, places)), axis=0)
    turns, odd = (xt.reshape(constant(one.astype(x.dtype)), (-1, *(1,) * (x.ndim - 1))) for one in (turns, odd))
    return chosen * (1 - 2 * odd) + turns * (x[-1:] - x[:1]) + odd * (x[:1] + x[-1:])


def _pairs(given: Any, count: int) -> list[tuple[Any, Any]]:
    """Return pairs of values for the two ends of each axis, given for each or for all of them."""
    if isinstance(given, dict):
        return [_pairs(given.get(a, given.get(a - count, 0)), 1)[0] for a in range(count)]
    found: list[tuple[Any, Any]] = numpy.broadcast_to(numpy.asarray(given), (count, 2)).tolist()
    return [tuple(pair) for pair in found]


def _padded_by(x: Tensor, widths: Sequence[tuple[int, int]], values: Sequence[tuple[Any, Any]]) -> Tensor:
    """Return an array padded with constants before and after it along each axis."""
    every = {str(value) for pair in values for value in pair}
    if len(every) == 1:
        return padded(x, tuple(widths), "zeros", values[0][0])
    for axis, (pair, ends) in enumerate(zip(widths, values, strict=True)):
        for side, value in enumerate(ends):
            width = [(0, 0)] * x.ndim
            width[axis] = (pair[0], 0) if side == 0 else (0, pair[1])
            x = padded(x, tuple(width), "zeros", value)
    return x

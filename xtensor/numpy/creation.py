"""Arrays made of shapes, numbers and other arrays, under NumPy's signatures."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any, cast

import numpy

from ..autograd.rules import xt
from ..base.dtypes import can_hold, canonical
from ..base.errors import expected
from ..base.layout import as_axis, as_index, as_shape
from ..base.options import thin_closed
from ..calls.library import LONG_WAY
from ..plan.costs import LIBRARY_BELOW
from ..tensor.face import Tensor
from ..tensor.operands import is_derived, refuse_stranger
from ..tensor.scalars import is_value
from .common import (
    as_array,
    as_arrays,
    as_natives,
    as_tensors,
    beside,
    constant,
    has_gradient,
    memory_order,
    with_slope,
)
from .door import through
from .thin import made_at_once


def _made(name: str, function: Callable[..., Tensor], shape: Any, order: Any, dtype: Any, device: Any) -> Tensor:
    """Return a new array whose axes have a memory order: a letter, or the axes from the largest stride down."""
    if order == "C" and (type(shape) is int or type(shape) is tuple):
        return function(shape, dtype=dtype, device=device)
    lengths = as_shape(shape, name)
    if not isinstance(order, tuple):
        order = memory_order(order, name)
    if order == "F":
        order = tuple(range(len(lengths)))[::-1]
    if order == "C" or len(lengths) < 2:
        return function(lengths, dtype=dtype, device=device)
    made = function(tuple([lengths[axis] for axis in order]), dtype=dtype, device=device)
    return xt.permute_dims(made, tuple([order.index(axis) for axis in range(len(lengths))]))


def _as_order(function: str, x: Tensor, order: str | None) -> Tensor:
    """Return an array with a memory order; the array itself if it already has that."""
    order = memory_order("K" if order is None else order, function, "AK")
    if order == "F" and x.ndim > 1:
        turned = tuple(range(x.ndim))[::-1]
        packed = xt.permute_dims(x, turned)
        found: Tensor = x if packed.is_contiguous else xt.permute_dims(packed.copy(), turned)
        return found
    return x.copy() if order in "CF" and not x.is_contiguous else x


def empty(shape: Any, dtype: Any = float, order: str = "C", *, device: Any = None, like: Any = None) -> Tensor:
    return _made("empty", xt.empty, shape, order, _or_float(dtype), device)


def zeros(shape: Any, dtype: Any = float, order: str = "C", *, device: Any = None, like: Any = None) -> Tensor:
    return _made("zeros", xt.zeros, shape, order, _or_float(dtype), device)


def ones(shape: Any, dtype: Any = None, order: str = "C", *, device: Any = None, like: Any = None) -> Tensor:
    return _made("ones", xt.ones, shape, order, _or_float(dtype), device)


def _or_float(dtype: Any) -> Any:
    return xt.float64 if dtype is None or dtype is float else dtype


def full(
    shape: Any, fill_value: Any, dtype: Any = None, order: str = "C", *, device: Any = None, like: Any = None
) -> Tensor:
    if isinstance(fill_value, (bool, int, float, complex)):
        return _made("full", partial(xt.full, fill_value=fill_value), shape, order, dtype, device)
    value = as_array(fill_value, "full")
    result = empty(shape, value.dtype if dtype is None else dtype, order, device=device)
    result[...] = xt.astype(value, result.dtype)
    return result


def _like(function: str, a: Any, dtype: Any, shape: Any, order: str) -> tuple[Any, ...]:
    """Return the shape, dtype and memory order of a new array like another."""
    x = as_array(a, function)
    lie: Any = memory_order(order, function, "AK")
    shape = x.shape if shape is None else as_shape(shape, function)
    if lie in "AK" and (x.ndim < 2 or x.is_contiguous or len(shape) != x.ndim):
        lie = "C"
    elif lie == "A":
        lie = "F" if xt.permute_dims(x, tuple(range(x.ndim))[::-1]).is_contiguous else "C"
    elif lie == "K":
        lie = tuple(sorted(range(x.ndim), key=lambda axis: -abs(x.strides[axis])))
    return shape, x.dtype if dtype is None else dtype, lie


def empty_like(
    prototype: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, *, device: Any = None
) -> Tensor:
    return empty(*_like("empty_like", prototype, dtype, shape, order), device=device)


def zeros_like(
    a: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, *, device: Any = None
) -> Tensor:
    return zeros(*_like("zeros_like", a, dtype, shape, order), device=device)


def ones_like(
    a: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, *, device: Any = None
) -> Tensor:
    return ones(*_like("ones_like", a, dtype, shape, order), device=device)


def full_like(
    a: Any,
    fill_value: Any,
    dtype: Any = None,
    order: str = "K",
    subok: bool = True,
    shape: Any = None,
    *,
    device: Any = None,
) -> Tensor:
    shape, dtype, order = _like("full_like", a, dtype, shape, order)
    return full(shape, fill_value, dtype, order, device=device)


_MOST_AXES = 64  # of NumPy's arrays


def array(
    object: Any,
    dtype: Any = None,
    *,
    copy: bool | None = True,
    order: str = "K",
    subok: bool = False,
    ndmin: int = 0,
    ndmax: int | None = None,
    like: Any = None,
) -> Tensor:
    if dtype is None and copy is True and order == "K" and not ndmin and like is ndmax is None:
        if _is_short(object) and not thin_closed[0]:
            with suppress(*LONG_WAY):
                return cast(Tensor, made_at_once(numpy.array, (object,), {}))
        if type(object) is list or type(object) is Tensor:
            return _apart(xt.asarray(object, copy=True), object)
    if subok and is_derived(type(object)):
        return cast(Tensor, numpy.array(object, dtype, copy=copy, order=cast(Any, order), subok=True, ndmin=ndmin))
    _refuse_mask(object, "array")
    if isinstance(copy, str):
        raise ValueError(expected("array", "copy", "be True, False or None", repr(copy)))
    if ndmin > _MOST_AXES:
        raise ValueError(expected("array", "ndmin", f"be at most {_MOST_AXES}", ndmin))
    x = _as_order("array", _apart(xt.asarray(object, dtype=dtype, copy=copy), object), order)
    if ndmax is not None and x.ndim > ndmax:
        raise ValueError(expected("array", "object", f"have at most ndmax={ndmax} axes", x.ndim))
    return xt.expand_dims(x, axis=tuple(range(ndmin - x.ndim))) if ndmin > x.ndim else x


def _refuse_mask(x: Any, function: str) -> None:
    """Raise a TypeError for a masked array: what its mask says would be lost. A matrix, such as the sums of SciPy's
    sparse matrices, is what programs make arrays of.
    """
    if hasattr(x, "mask"):
        refuse_stranger(x, function)


def _apart(x: Tensor, element: Any) -> Tensor:
    """Return an array made from something: from an element, an array without axes in memory of its own."""
    if is_value(x):
        x = xt.asarray(x, copy=True) if x is element else x
        x._is_value = False
    return x


def _is_short(x: Any) -> bool:
    """Return whether this is a list of up to 16 elements with a tensor among them, or of such lists: a matrix of
    computed values, such as a rotation.
    """
    if type(x) is not list or len(x) > 16:
        return False
    kinds = {*map(type, x)}
    return Tensor in kinds or (kinds == {list} and any(len(row) <= 16 and Tensor in map(type, row) for row in x))


def asarray(
    a: Any,
    dtype: Any = None,
    order: str | None = None,
    *,
    device: Any = None,
    copy: bool | None = None,
    like: Any = None,
) -> Tensor:
    if order is device is None and not copy:
        if type(a) is Tensor and dtype is None and not is_value(a):
            return a
        if type(a) is list and copy is None:
            return cast(Tensor, xt.numpy.array(a, dtype))
    _refuse_mask(a, "asarray")
    return _as_order("asarray", _apart(xt.asarray(a, dtype=dtype, device=device, copy=copy), a), order)


def asanyarray(a: Any, dtype: Any = None, order: str | None = None, **options: Any) -> Tensor:
    if is_derived(type(a)):
        return cast(Tensor, numpy.asanyarray(a, dtype, cast(Any, order), **options))
    return asarray(a, dtype, order, **options)


def ascontiguousarray(a: Any, dtype: Any = None, *, like: Any = None) -> Tensor:
    x = asarray(a, dtype, "C")
    return xt.reshape(x, (1,)) if not x.ndim else x


def asfortranarray(a: Any, dtype: Any = None, *, like: Any = None) -> Tensor:
    x = asarray(a, dtype, "F")
    return xt.reshape(x, (1,)) if not x.ndim else x


def asarray_chkfinite(a: Any, dtype: Any = None, order: str | None = None) -> Tensor:
    x = asarray(a, dtype, order)
    if x.dtype.kind in "fc" and not bool(xt.all(xt.isfinite(x))):
        raise ValueError("array must not contain infs or NaNs")
    return x


def require(a: Any, dtype: Any = None, requirements: Any = None, *, like: Any = None) -> Tensor:
    wanted = {one[0].upper() for one in requirements or ()}
    x = asarray(a, dtype, "F" if "F" in wanted else "C" if "C" in wanted else None)
    return x if x.is_writeable or "W" not in wanted else x.copy()


def copy(a: Any, order: str = "K", subok: bool = False) -> Tensor:
    return _apart(as_array(a, "copy").copy(memory_order(order, "copy", "AK")), None)


def astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Tensor:
    return xt.astype(as_array(x, "astype"), float if dtype is None else dtype, copy=copy)


def arange(
    start: Any, stop: Any = None, step: Any = 1, dtype: Any = None, *, device: Any = None, like: Any = None
) -> Tensor:
    start, stop, step = [x.item() if isinstance(x, (Tensor, numpy.generic)) else x for x in (start, stop, step)]
    return xt.arange(start, stop, 1 if step is None else step, dtype=dtype, device=device)


def linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
    *,
    device: Any = None,
) -> Any:
    if isinstance(start, (int, float)) and isinstance(stop, (int, float)) and not retstep:
        as_axis(axis, 1, "linspace")
        return xt.linspace(start, stop, num, endpoint=endpoint, dtype=dtype, device=device)
    num = as_index(num, "linspace", "num")
    if num < 0:
        raise ValueError(expected("linspace", "num", "not be negative", num))
    start, stop = beside("linspace", start, stop)
    exact = xt.result_type(start, stop, 1.0)
    start, stop = (xt.astype(one, exact, copy=False) for one in (start, stop))
    parts = num - 1 if endpoint else num
    step = (stop - start) / max(parts, 1)
    places = xt.reshape(xt.arange(num, dtype=exact), (num, *(1,) * step.ndim))
    values = places * step + start
    if endpoint and num > 1:
        values = xt.concat([values[:-1, ...], xt.expand_dims(xt.broadcast_to(stop, step.shape), axis=0)])
    if dtype is not None:
        is_whole = canonical(dtype, "linspace").kind in "iu"
        values = xt.astype(xt.floor(values) if is_whole else values, dtype)
    values = xt.moveaxis(values, 0, axis)
    return (values, step if parts > 0 else numpy.nan) if retstep else values


def logspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, base: Any = 10.0, dtype: Any = None, axis: int = 0
) -> Tensor:
    if not isinstance(base, (int, float)) and as_array(base, "logspace").ndim:  # its axes lie beside those of the ends
        ends = as_arrays("logspace", start, stop, base)
        ndim = max([one.ndim for one in ends])
        start, stop, base = (array(one, copy=None, ndmin=ndim) for one in ends)
        base = xt.expand_dims(base, axis=axis)
    values = xt.pow(base, linspace(start, stop, num, endpoint, axis=axis))
    return values if dtype is None else xt.astype(values, dtype)


def geomspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, dtype: Any = None, axis: int = 0) -> Tensor:
    ends = as_arrays("geomspace", start, stop)
    if not has_gradient(*ends) or "c" in [one.dtype.kind for one in ends]:
        return through("geomspace", None, (start, stop, num, endpoint, dtype, axis), {})
    plain = [one.detach() if type(one) is Tensor else one for one in (start, stop)]
    found: Tensor = through("geomspace", None, (*plain, num, endpoint, dtype, axis), {})
    first, last = xt.broadcast_arrays(*ends)
    sign = xt.sign(first).detach()
    powers = linspace(xt.log(first * sign), xt.log(last * sign), num, endpoint, axis=axis)
    return with_slope(found, xt.exp(powers) * xt.expand_dims(sign, axis=axis))


def eye(
    N: int,  # noqa: N803 - NumPy's names
    M: int | None = None,  # noqa: N803
    k: int = 0,
    dtype: Any = float,
    order: str = "C",
    *,
    device: Any = None,
    like: Any = None,
) -> Tensor:
    if memory_order(order, "eye") == "F":
        return xt.permute_dims(xt.eye(N if M is None else M, N, k=-k, dtype=_or_float(dtype), device=device), (1, 0))
    return xt.eye(N, M, k=k, dtype=_or_float(dtype), device=device)


def identity(n: int, dtype: Any = None, *, like: Any = None) -> Tensor:
    return eye(n, dtype=dtype)


def tri(N: int, M: int | None = None, k: int = 0, dtype: Any = float, *, like: Any = None) -> Tensor:  # noqa: N803
    rows, columns = xt.arange(N), xt.arange(N if M is None else M)
    return xt.astype(xt.expand_dims(rows, axis=1) >= columns - k, _or_float(dtype))


def tril(m: Any, k: int = 0) -> Tensor:
    return xt.tril(_in_rows(as_array(m, "tril")), k=k)


def triu(m: Any, k: int = 0) -> Tensor:
    return xt.triu(_in_rows(as_array(m, "triu")), k=k)


def _in_rows(m: Tensor) -> Tensor:
    """Return an array of at least 2 axes: a vector as a square matrix of rows that are all equal, as NumPy takes it."""
    return xt.broadcast_to(m, m.shape * 2) if m.ndim == 1 else m


def diag(v: Any, k: int = 0) -> Tensor:
    return xt.diag(as_array(v, "diag"), k)


def diagflat(v: Any, k: int = 0) -> Tensor:
    return diag(as_array(v, "diagflat").ravel(), k)


def vander(x: Any, N: int | None = None, increasing: bool = False) -> Tensor:  # noqa: N803
    x = as_array(x, "vander")
    count = x.shape[0] if N is None else N
    column = xt.astype(xt.expand_dims(x, axis=1), xt.result_type(x.dtype, xt.int64))
    factors = xt.broadcast_to(column, (x.shape[0], max(count - 1, 0)))
    powers: Tensor = xt.cumulative_prod(factors, axis=1, include_initial=True)[:, :count]
    return powers if increasing else xt.flip(powers, axis=1).copy()


def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> tuple[Tensor, ...]:
    if indexing not in ("xy", "ij"):
        raise ValueError("Valid values for `indexing` are 'xy' and 'ij'.")
    arrays = [as_array(x, "meshgrid").ravel() for x in xi]
    places = list(range(len(arrays)))
    if indexing == "xy" and len(places) > 1:
        places[:2] = 1, 0
    found = [
        xt.reshape(x, tuple([-1 if a == place else 1 for a in range(len(arrays))]))
        for x, place in zip(arrays, places, strict=True)
    ]
    if sparse:
        return tuple([x.copy() if copy else x for x in found])
    return tuple([x.copy() if copy else x for x in xt.broadcast_arrays(*found)])


def indices(dimensions: Any, dtype: Any = int, sparse: bool = False) -> Any:
    dimensions = tuple(dimensions)
    theirs: Any = numpy.indices
    found = theirs(as_shape(dimensions, "indices", "dimensions"), canonical(dtype, "indices"), sparse)
    return tuple([constant(one) for one in found]) if sparse else constant(found)


def fromfunction(
    function: Callable[..., Any], shape: Any, *, dtype: Any = float, like: Any = None, **given: Any
) -> Any:
    return function(*indices(shape, dtype), **given)


def fromiter(iter: Any, dtype: Any, count: int = -1, *, like: Any = None) -> Tensor:
    items = [*(iter if count < 0 else islice(iter, count))]
    if Tensor in map(type, items) and len(items) >= count:
        if can_hold(numpy.dtype(dtype)):
            return xt.asarray(items, dtype=dtype)
        items = as_natives(items)
    return cast(Tensor, as_tensors(numpy.fromiter(items, dtype, count)))


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Tensor:
    return xt.from_dlpack(x, device=device, copy=copy)


# ---- grids by slices


class _Grid:
    """The type of np.mgrid and np.ogrid: coordinates by slices, in which an imaginary step is a number of points."""

    def __init__(self, sparse: bool) -> None:
        self._sparse = sparse

    def __getitem__(self, key: Any) -> Any:
        several = isinstance(key, tuple)
        if all(map(_is_told, key if several else (key,))):
            return self._of_numbers(key)
        bounds = [[*map(_single, _bounds(one))] for one in (key if several else (key,))]
        axes = [_points(*one) for one in bounds]
        if several or _is_imaginary(bounds[0][2]):
            numbers = [(start, stop, abs(step) if _is_imaginary(step) else step) for start, stop, step in bounds]
            axes = [xt.astype(x, xt.result_type(0, *sum(numbers, ())), copy=False) for x in axes]
        if not several:
            return axes[0]
        grids = meshgrid(*axes, sparse=self._sparse, indexing="ij")
        return grids if self._sparse else xt.stack(grids)

    def _of_numbers(self, key: Any) -> Any:
        """Return the grid of slices that numbers bound: NumPy's own, which large ones only have the axes of."""
        axes: Any = numpy.ogrid[key]
        if not isinstance(key, tuple):
            return constant(axes)
        if self._sparse:
            return tuple(map(constant, axes))
        found: Any = numpy.empty((len(axes), *[x.size for x in axes]), axes[0].dtype)
        if found.nbytes > LIBRARY_BELOW:
            return xt.stack(xt.broadcast_arrays(*map(constant, axes)))
        for one, x in zip(found, axes, strict=True):
            one[...] = x
        return constant(found)


def _bounds(one: slice) -> tuple[Any, Any, Any]:
    """Return the start, stop and step of a slice."""
    return 0 if one.start is None else one.start, one.stop, 1 if one.step is None else one.step


def _is_told(one: Any) -> bool:
    """Return whether a slice is bounded by Python's numbers."""
    return isinstance(one, slice) and _NUMBERS.issuperset(map(type, _bounds(one)))


def _single(x: Any) -> Any:
    """Return an array of one element without axes; anything else as it is."""
    return xt.reshape(as_array(x), ()) if isinstance(x, (Tensor, numpy.ndarray)) else x


def _is_imaginary(step: Any) -> bool:
    """Return whether a step is a number of points."""
    return isinstance(step, (complex, numpy.complexfloating))


def _points(start: Any, stop: Any, step: Any) -> Tensor:
    """Return the numbers of a slice."""
    return linspace(start, stop, int(abs(step))) if _is_imaginary(step) else arange(start, stop, step)


_NUMBERS = frozenset((int, float, complex))

mgrid, ogrid = _Grid(sparse=False), _Grid(sparse=True)


class _Joiner:
    """The type of np.r_ and np.c_: arrays, numbers and slices in brackets, joined along an axis.

    They may begin with a string of integers; "r" or "c", which asks for a matrix, is refused.
    """

    def __init__(self, native: Any, axis: int, ndmin: int, place: int) -> None:
        self._native, self._how = native, (axis, ndmin, place)

    def __getitem__(self, key: Any) -> Tensor:
        parts = list(key) if isinstance(key, tuple) else [key]
        if not thin_closed[0] and all(_is_told(one) for one in parts if isinstance(one, (slice, str))):
            with suppress(*LONG_WAY):
                return cast(Tensor, made_at_once(self._native.__getitem__, (key,), {}))
        how = list(self._how)
        if isinstance(parts[0], str):
            told = parts.pop(0)
            if told in ("r", "c"):
                raise TypeError(expected("r_", "the first item", "not ask for a matrix", repr(told)))
            for place, one in enumerate(told.split(",")):
                how[place] = int(one)
        axis, ndmin, place = how
        found = beside("r_", *[_points(*_bounds(one)) if isinstance(one, slice) else one for one in parts])
        return xt.concat([_led(one, ndmin, place) for one in found], axis=axis)


def _led(x: Tensor, ndmin: int, place: int) -> Tensor:
    """Return a part with at least `ndmin` axes, of which its own begin at a place."""
    missing = ndmin - x.ndim
    if missing <= 0:
        return x
    start = place + (missing + 1 if place < 0 else 0)
    return xt.expand_dims(x, axis=tuple([a for a in range(ndmin) if not start <= a < start + x.ndim]))


r_, c_ = _Joiner(numpy.r_, 0, 1, -1), _Joiner(numpy.c_, -1, 2, 0)
s_, index_exp = numpy.s_, numpy.index_exp


# ---- places in matrices


def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Tensor, ...]:
    return tuple([constant(one) for one in numpy.tril_indices(n, k, m)])


def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Tensor, ...]:
    return tuple([constant(one) for one in numpy.triu_indices(n, k, m)])


def tril_indices_from(arr: Any, k: int = 0) -> tuple[Tensor, ...]:
    return tril_indices(*_matrix_shape(arr, k))


def triu_indices_from(arr: Any, k: int = 0) -> tuple[Tensor, ...]:
    return triu_indices(*_matrix_shape(arr, k))


def _matrix_shape(arr: Any, k: int) -> tuple[int, int, int]:
    x = as_array(arr)
    if x.ndim != 2:
        raise ValueError("input array must be 2-d")
    return x.shape[0], k, x.shape[1]


def mask_indices(n: int, mask_func: Callable[..., Any], k: Any = 0) -> tuple[Tensor, ...]:
    return tuple(xt.nonzero(mask_func(ones((n, n), int), k) != 0))


def diag_indices(n: int, ndim: int = 2) -> tuple[Tensor, ...]:
    return (xt.arange(n),) * ndim


def diag_indices_from(arr: Any) -> tuple[Tensor, ...]:
    x = as_array(arr)
    if x.ndim < 2 or len(set(x.shape)) > 1:
        raise ValueError("All dimensions of input must be of equal length, and there must be at least 2")
    return diag_indices(x.shape[0], x.ndim)


def ix_(*args: Any) -> tuple[Tensor, ...]:
    found = []
    for place, one in enumerate(args):
        x = as_array(one, "ix_")
        if x.ndim != 1:
            raise ValueError("Cross index must be 1 dimensional")
        x = xt.nonzero(x)[0] if x.dtype.kind == "b" else x if x.size else xt.astype(x, xt.int64)
        found.append(xt.reshape(x, tuple([-1 if place == a else 1 for a in range(len(args))])))
    return tuple(found)

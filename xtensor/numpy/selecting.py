"""Elements chosen by indices and conditions, functions applied along axes, and sets, under NumPy's signatures."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy

from ..autograd.rules import xt
from ..autograd.tape import active, stacked_operand, steps_of
from ..base.errors import UnheldError, check_choice, expected
from ..base.layout import as_axis
from ..calls.library import on
from ..storage.storage import refuse_capture
from ..tensor.face import Tensor
from .common import array_of_any, as_array, as_condition, as_mask, as_tensors, beside, flattened, give, has_gradient
from .door import through
from .shaping import concatenate, expand_dims


def where(condition: Any, x: Any = None, y: Any = None, /) -> Any:
    if x is None and y is None:
        return nonzero(condition)
    if x is None or y is None:
        raise UnheldError("either both or neither of x and y should be given")  # unless None is an object to select
    given = [one if isinstance(one, _OPERANDS) else as_array(one, "where") for one in (x, y)]
    return xt.where(as_condition(condition), *map(_wrapped, given, given[::-1]))


# The types of operands that xt.where takes as they are.
_ARRAYS = Tensor, numpy.ndarray, numpy.generic
_OPERANDS = (*_ARRAYS, bool, int, float, complex)
_WRAPS = tuple(map(int, numpy.__version__.split(".")[:2])) < (2, 5)


def _wrapped(x: Any, other: Any) -> Any:
    """Return an operand of `where`; a Python integer is wrapped to the other operand's integer dtype, as in NumPy up to
    2.4; the later ones refuse an integer that does not fit.
    """
    if type(x) is not int or not isinstance(other, _ARRAYS) or other.dtype.kind not in "iu":
        return x
    kind: Any = other.dtype
    ends = numpy.iinfo(kind)
    if not _WRAPS and not ends.min <= x <= ends.max:
        raise OverflowError(f"where: Python integer {x} out of bounds for {other.dtype}")
    if not -(1 << 63) <= x < 1 << 64:
        raise OverflowError(expected("where", "an integer", "fit into 64 bits", x))
    bits = 8 * other.dtype.itemsize
    low = x & ((1 << bits) - 1)
    return low - (1 << bits) if other.dtype.kind == "i" and low >> (bits - 1) else low


def nonzero(a: Any) -> tuple[Tensor, ...]:
    return tuple(xt.nonzero(as_array(a, "nonzero")))


def flatnonzero(a: Any) -> Tensor:
    return nonzero(as_array(a, "flatnonzero").ravel())[0]


def argwhere(a: Any) -> Tensor:
    x = as_array(a, "argwhere")
    if not x.ndim:
        return xt.zeros((int(bool(x)), 0), dtype=xt.int64)
    return xt.stack(nonzero(x), axis=1)


def _in_range(function: str, places: Tensor, length: int, mode: Any) -> Tensor:
    """Return places with those out of range moved as a mode says; "raise", or None, leaves them as they are."""
    check_choice(function, "mode", mode, ("raise", "wrap", "clip", None))
    if mode == "wrap":
        return xt.remainder(places, length)
    return xt.clip(places, 0, length - 1) if mode == "clip" else places


def take(a: Any, indices: Any, axis: int | None = None, out: Any = None, mode: str = "raise") -> Tensor:
    x, along = flattened(a, axis, "take")
    places = _in_range("take", as_array(indices, "take", x.device), x.shape[along], mode)
    return give("take", xt.take(x, places, axis=along), out)


def take_along_axis(arr: Any, indices: Any, axis: int | None = -1) -> Tensor:
    x, axis = flattened(arr, axis, "take_along_axis")
    return xt.take_along_axis(x, as_array(indices, "take_along_axis", x.device), axis=axis)


def compress(condition: Any, a: Any, axis: int | None = None, out: Any = None) -> Tensor:
    x, axis = flattened(a, axis, "compress")
    condition = as_condition(condition)
    if condition.ndim != 1:
        raise ValueError(expected("compress", "condition", "have 1 axis", f"shape {condition.shape}"))
    return give("compress", xt.take(x, nonzero(condition)[0], axis=axis), out)


def extract(condition: Any, arr: Any) -> Tensor:
    return compress(as_array(condition).ravel(), as_array(arr, "extract").ravel())


def choose(a: Any, choices: Any, out: Any = None, mode: str = "raise") -> Tensor:
    which, options = as_array(a, "choose"), [as_array(one) for one in choices]
    if which.dtype.kind not in "biu":
        raise TypeError(expected("choose", "a", "hold integers", which.dtype))
    which = _in_range("choose", which, len(options), mode)
    if mode in ("raise", None) and bool(xt.any(xt.logical_or(which < 0, which >= len(options)))):
        raise ValueError("invalid entry in choice array")
    result = options[0]
    for place, one in enumerate(options[1:], 1):
        result = xt.where(which == place, one, result)
    numbers = [isinstance(one, (int, float, complex)) for one in choices]
    beside = (
        options
        if all(numbers)
        else [one if number else array for one, number, array in zip(choices, numbers, options, strict=True)]
    )
    dtype = xt.result_type(*beside)  # Python numbers take on the dtype of arrays
    return give("choose", xt.astype(xt.broadcast_arrays(result, which)[0], dtype), out, casting="unsafe")


def select(condlist: Any, choicelist: Any, default: Any = 0) -> Tensor:
    if len(condlist) != len(choicelist):
        raise ValueError("list of cases must be same length as list of conditions")
    if not len(condlist):
        raise ValueError("select with an empty condition list is not possible")
    conditions = [as_array(one) for one in condlist]
    if any(one.dtype.kind != "b" for one in conditions):
        raise TypeError("invalid entry in condlist: should be boolean ndarray")
    dtype = xt.result_type(
        *[one if isinstance(one, (int, float, complex)) else as_array(one) for one in (*choicelist, default)]
    )
    result = xt.astype(as_array(default), dtype)
    for condition, choice in reversed(list(zip(conditions, choicelist, strict=True))):
        result = xt.where(condition, xt.astype(as_array(choice), dtype), result)
    return result


def piecewise(x: Any, condlist: Any, funclist: Any, *args: Any, **kw: Any) -> Tensor:
    x = as_array(x, "piecewise")
    is_many = isinstance(condlist, (list, tuple)) or (x.ndim and numpy.ndim(condlist) > x.ndim)
    conditions = list(condlist) if is_many and len(condlist) else [condlist]
    if not x.ndim:
        many = conditions if len(conditions) > 1 else as_condition(condlist).ravel()  # an array is a list of them
        lone = [xt.reshape(as_condition(one), (1,)) for one in many]
        return xt.reshape(piecewise(xt.reshape(x, (1,)), lone, funclist, *args, **kw), ())
    if is_many and isinstance(conditions[0], (bool, numpy.bool_)):
        conditions = [conditions]
    masks = [as_condition(one) for one in conditions]
    for mask in masks:
        if mask.ndim and mask.shape != x.shape:
            raise IndexError(expected("piecewise", "condlist", f"hold masks of x's shape {x.shape}", mask.shape))
    masks = [xt.broadcast_to(one, x.shape) for one in masks]
    functions = list(funclist)
    if len(functions) == len(masks) + 1:
        others = masks[0]
        for one in masks[1:]:
            others = xt.logical_or(others, one)
        masks.append(xt.logical_not(others))
    if len(functions) != len(masks):
        raise ValueError(
            f"with {len(masks)} condition(s), either {len(masks)} or {len(masks) + 1} functions are expected"
        )
    result = xt.zeros_like(x)
    for mask, function in zip(masks, functions, strict=True):
        places = nonzero(mask)
        if callable(function) and not places[0].size:
            continue
        value = as_array(function(x[places], *args, **kw) if callable(function) else function)
        result = result.copy() if result.requires_grad else result
        result[places] = xt.astype(value, x.dtype)
    return result


# ---- writes


def copyto(dst: Any, src: Any, casting: Any = "same_kind", where: Any = True) -> None:
    if not isinstance(dst, Tensor):
        through("copyto", None, (dst, src, casting, where), {})  # into a NumPy array
        return
    weak = type(src) is int and dst.dtype.kind in "iu"  # refused if it does not fit
    source = xt.asarray(src, dtype=dst.dtype) if weak else as_array(src, "copyto")
    if not numpy.can_cast(source.dtype, dst.dtype, casting):
        raise TypeError(expected("copyto", "src", f"be cast to {dst.dtype} by casting={casting!r}", source.dtype))
    if where is not True:
        source = xt.where(as_mask(where, "copyto"), xt.astype(source, dst.dtype, copy=False), dst)
    dst[...] = source


def put(a: Any, ind: Any, v: Any, mode: str = "raise") -> None:
    v = stacked_operand(v)
    if not _is_on_tape(a, v):
        through("put", None, (a, ind, v, mode), {})
        return
    places = numpy.asarray(as_array(ind, "put").ravel().host(), numpy.intp)
    if mode == "wrap":
        places = places % a.size
    elif mode == "clip":
        places = places.clip(0, a.size - 1)
    elif places.size and not (-a.size <= places.min() and places.max() < a.size):
        raise IndexError(expected("put", "ind", f"lie within {a.size} elements", "others"))
    last = dict(zip((places % a.size).tolist(), range(places.size), strict=True))  # the last one of each place counts
    if last:
        a[numpy.unravel_index([*last], a.shape)] = _again(v, numpy.asarray([*last.values()]), a)


def putmask(a: Any, mask: Any, values: Any) -> None:
    values = stacked_operand(values)
    if not _is_on_tape(a, values):
        through("putmask", None, (a, mask, values), {})
        return
    every = xt.reshape(_again(values, numpy.arange(a.size), a), a.shape)
    a[...] = xt.where(xt.reshape(as_condition(mask), a.shape), xt.astype(every, a.dtype, copy=False), a)


def place(arr: Any, mask: Any, vals: Any) -> None:
    vals = stacked_operand(vals)
    if not _is_on_tape(arr, vals):
        through("place", None, (arr, mask, vals), {})
        return
    chosen = numpy.nonzero(xt.reshape(as_condition(mask), arr.shape).host())
    if chosen[0].size:
        arr[chosen] = _again(vals, numpy.arange(chosen[0].size), arr)


def put_along_axis(arr: Any, indices: Any, values: Any, axis: int | None) -> None:
    values = stacked_operand(values)
    if not _is_on_tape(arr, values):
        through("put_along_axis", None, (arr, indices, values, axis), {})
        return
    if axis is None:
        put(arr, indices, xt.broadcast_to(as_array(values), as_array(indices).shape))
        return
    grid = list(numpy.ogrid[tuple([slice(n) for n in arr.shape])])
    grid[as_axis(axis, arr.ndim, "put_along_axis")] = as_array(indices, "put_along_axis").host()
    arr[tuple(grid)] = values


def _is_on_tape(target: Any, values: Any) -> bool:
    """Return whether a write must be recorded for gradients."""
    return isinstance(target, Tensor) and has_gradient(target, *[x for x in (values,) if isinstance(x, Tensor)])


def _again(values: Any, places: numpy.ndarray[Any, Any], like: Tensor) -> Tensor:
    """Return the values at some places of the values repeated as often as needed."""
    flat = as_array(values, "values", like.device).ravel()
    if not flat.size:
        raise ValueError(expected("place", "vals", "not be empty", "no values"))
    found: Tensor = flat[places % flat.size]
    return found


def fill_diagonal(a: Tensor, val: Any, wrap: bool = False) -> None:
    simple = isinstance(val, (bool, int, float, complex)) or (isinstance(val, Tensor) and not val.ndim)
    if wrap or not simple or not isinstance(a, Tensor) or a.ndim != 2:
        through("fill_diagonal", None, (a, val), {"wrap": wrap})
    else:
        xt.linalg.diagonal(a)[...] = val


def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    return xt.linalg.diagonal(_last(a, axis1, axis2, "diagonal"), offset=offset)


def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: Any = None) -> Tensor:
    return give("trace", xt.linalg.trace(_last(a, axis1, axis2, "trace"), offset=offset, dtype=dtype), out)


def _last(a: Any, axis1: int, axis2: int, function: str) -> Tensor:
    """Return an array with two axes moved to the end."""
    x = as_array(a, function)
    if x.ndim < 2:
        raise ValueError(expected(function, "a", "have at least 2 axes", f"shape {x.shape}"))
    return xt.moveaxis(x, (axis1, axis2), (-2, -1))


def searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None) -> Tensor:
    sorted_, values = as_array(a, "searchsorted"), as_array(v, "searchsorted")
    sorter = None if sorter is None else as_array(sorter)
    dtype = xt.result_type(sorted_, values)
    sorted_, values = (xt.astype(x, dtype, copy=False) for x in (sorted_, values))
    return xt.searchsorted(sorted_, values, side=side, sorter=sorter)


def digitize(x: Any, bins: Any, right: bool = False) -> Tensor:
    arrays = as_array(x, "digitize"), as_array(bins, "digitize")
    found: Tensor = on(arrays, "digitize", lambda xp, a, edges: xp.digitize(a, edges, right))
    return found


# ---- functions applied


def apply_along_axis(func1d: Callable[..., Any], axis: int, arr: Any, *args: Any, **kwargs: Any) -> Tensor:
    x = as_array(arr, "apply_along_axis")
    axis = as_axis(axis, x.ndim, "apply_along_axis")
    moved = xt.moveaxis(x, axis, -1)
    lead = moved.shape[:-1]
    if not all(lead):
        raise ValueError("Cannot apply_along_axis when any iteration dimensions are 0")
    found = [as_array(func1d(moved[(*place, slice(None))], *args, **kwargs)) for place in product(*map(range, lead))]
    joined = xt.reshape(xt.stack(found), (*lead, *found[0].shape))
    own = tuple(range(len(lead), joined.ndim))
    return xt.moveaxis(joined, own, tuple(axis + n for n in range(len(own))))


def apply_over_axes(func: Callable[..., Any], a: Any, axes: Any) -> Tensor:
    x = as_array(a, "apply_over_axes")
    for axis in (axes,) if isinstance(axes, int) else axes:
        result = as_array(func(x, axis))
        x = result if result.ndim == x.ndim else expand_dims(result, axis)
    return x


class vectorize:  # noqa: N801 - NumPy's name
    """Call a function of numbers for each element of arrays that broadcast together."""

    def __init__(
        self,
        pyfunc: Any = None,
        otypes: Any = None,
        doc: str | None = None,
        excluded: Any = None,
        cache: bool = False,
        signature: str | None = None,
    ) -> None:
        self._options = {"otypes": otypes, "doc": doc, "excluded": excluded, "cache": cache, "signature": signature}
        if not (pyfunc is None or callable(pyfunc)):
            raise TypeError(expected("vectorize", "pyfunc", "be a function", repr(pyfunc)))
        self.pyfunc = pyfunc
        self.__name__ = self.__qualname__ = getattr(pyfunc, "__name__", "vectorize")
        self.__doc__ = doc or getattr(pyfunc, "__doc__", None)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.pyfunc is None:  # a decorator with options
            return vectorize(args[0], **self._options)
        refuse_capture("vectorize")
        theirs: Any = numpy.vectorize(self.pyfunc, **self._options)
        tensors = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)]
        if any(x.requires_grad for x in tensors):
            raise NotImplementedError("vectorize: a gradient does not go through a function of Python numbers")
        result = theirs(*map(_host, args), **{name: _host(x) for name, x in kwargs.items()})
        return as_tensors(result)


def _host(x: Any) -> Any:
    return x.host() if isinstance(x, Tensor) else x


# ---- sets


def isin(
    element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, *, kind: Any = None
) -> Tensor:
    return xt.isin(as_array(element, "isin"), as_array(test_elements, "isin"), invert=invert)


def unique(
    ar: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    sorted: bool = True,
) -> Any:
    x = as_array(ar, "unique")
    refuse_capture("unique")
    with_gradient = active[0] and steps_of((x,)) is not None
    wanted = {"return_inverse": return_inverse, "return_counts": return_counts}
    theirs: Any = numpy.unique
    told = theirs(x.detach().host(), return_index or with_gradient, axis=axis, equal_nan=equal_nan, **wanted)
    found = [xt.asarray(one, device=x.device) for one in (told if isinstance(told, tuple) else (told,))]
    if with_gradient:  # the values are those at the index
        found[0] = xt.take(x.ravel() if axis is None else x, found[1], axis=axis or 0)
        found = found if return_index else [found[0], *found[2:]]
    return found[0] if len(found) == 1 else tuple(found)


def unique_all(x: Any) -> Any:
    return xt.unique_all(as_array(x, "unique_all"))


def unique_counts(x: Any) -> Any:
    return xt.unique_counts(as_array(x, "unique_counts"))


def unique_inverse(x: Any) -> Any:
    return xt.unique_inverse(as_array(x, "unique_inverse"))


def unique_values(x: Any) -> Tensor:
    return xt.unique_values(as_array(x, "unique_values"))


def union1d(ar1: Any, ar2: Any) -> Tensor:
    return unique(concatenate([as_array(x).ravel() for x in (ar1, ar2)]))


def intersect1d(ar1: Any, ar2: Any, assume_unique: bool = False, return_indices: bool = False) -> Any:
    ar1, ar2 = (as_array(x).ravel() for x in (ar1, ar2))
    if not return_indices:
        first, second = unique(ar1), unique(ar2)
        return xt.astype(first[xt.isin(first, second)], xt.result_type(first, second), copy=False)
    first, place1 = unique(ar1, return_index=True)
    second, place2 = unique(ar2, return_index=True)
    chosen = xt.isin(first, second)
    common = xt.astype(first[chosen], xt.result_type(first, second), copy=False)
    return common, place1[chosen], place2[xt.isin(second, first)]


def setdiff1d(ar1: Any, ar2: Any, assume_unique: bool = False) -> Tensor:
    first = as_array(ar1).ravel() if assume_unique else unique(ar1)
    return first[isin(first, ar2, invert=True)]


def setxor1d(ar1: Any, ar2: Any, assume_unique: bool = False) -> Tensor:
    first, second = unique(ar1), unique(ar2)
    return xt.sort(concatenate([first[isin(first, second, invert=True)], second[isin(second, first, invert=True)]]))


# ---- questions about elements


def isclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> Tensor:
    a, b = beside("isclose", a, b)
    if b.dtype.kind not in "fc":
        b = xt.astype(b, xt.result_type(b.dtype, xt.float64))
    near = xt.abs(a - b) <= atol + rtol * xt.abs(b)
    result = xt.logical_or(xt.logical_and(near, xt.isfinite(b)), a == b)
    if not equal_nan:
        return result
    return xt.logical_or(result, xt.logical_and(a != a, b != b))


def allclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> bool:
    return bool(xt.all(isclose(a, b, rtol, atol, equal_nan)))


def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> bool:
    a1, a2 = as_array(a1), as_array(a2)
    return a1.shape == a2.shape and bool(xt.all(_same(a1, a2, equal_nan)))


def _same(a1: Tensor, a2: Tensor, equal_nan: bool) -> Tensor:
    same = a1 == a2
    return xt.logical_or(same, xt.logical_and(a1 != a1, a2 != a2)) if equal_nan else same


def array_equiv(a1: Any, a2: Any) -> bool:
    try:
        return bool(xt.all(as_array(a1) == as_array(a2)))
    except ValueError:  # the shapes do not broadcast
        return False


def isneginf(x: Any, out: Any = None) -> Tensor:
    return give("isneginf", _real(x, "isneginf") == -numpy.inf, out)


def isposinf(x: Any, out: Any = None) -> Tensor:
    return give("isposinf", _real(x, "isposinf") == numpy.inf, out)


def _real(x: Any, function: str) -> Tensor:
    x = as_array(x, function)
    if x.dtype.kind == "c":
        raise TypeError(expected(function, "x", "be real", x.dtype))
    return x


def iscomplex(x: Any) -> Tensor:
    x = as_array(x)
    return xt.imag(x) != 0 if x.dtype.kind == "c" else xt.zeros(x.shape, dtype=xt.bool)


def isreal(x: Any) -> Tensor:
    return xt.logical_not(iscomplex(x))


def iscomplexobj(x: Any) -> bool:
    return bool(array_of_any(x).dtype.kind == "c")


def isrealobj(x: Any) -> bool:
    return not iscomplexobj(x)


def isfortran(a: Any) -> bool:
    x = as_array(a)
    return x.ndim > 1 and not x.is_contiguous and x.transpose().is_contiguous


def isdtype(dtype: Any, kind: Any) -> bool:
    return bool(numpy.isdtype(dtype, kind))


def result_type(*arrays_and_dtypes: Any) -> Any:
    return numpy.result_type(*map(_dtype_or_number, arrays_and_dtypes))


def can_cast(from_: Any, to: Any, casting: Any = "safe") -> bool:
    return bool(numpy.can_cast(_dtype_or_number(from_), to, casting))


def common_type(*arrays: Any) -> Any:
    return numpy.common_type(*[numpy.empty(0, as_array(x).dtype) for x in arrays])


def min_scalar_type(a: Any, /) -> Any:
    return a.dtype if isinstance(a, Tensor) and a.ndim else numpy.min_scalar_type(_host(a))


def _dtype_or_number(x: Any) -> Any:
    return x.dtype if isinstance(x, Tensor) else x

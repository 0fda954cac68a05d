"""Where CuPy and NumPy differ, repaired once: a function each, of CuPy's namespace `cp` and what NumPy's takes.

Three tables go by the name under which the rest of xtensor asks: KERNELS (rows and reductions), FUNCTIONS (library
functions of the main namespace) and LINALG; `special` has what CuPy lacks of SciPy's special functions. What is not in
them CuPy does as NumPy and SciPy do.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf, prod
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from ..base.dtypes import DType, promote
from . import cuda_kernels as kernels
from .cpu import CPU, log1p

Array = Any  # a cupy.ndarray
Function = Callable[..., Any]
Axes = int | tuple[int, ...] | None


def asarray(cp: Any, value: Any, dtype: DType | None = None) -> Array:
    """Return a scalar or host array on the device.

    CuPy fills with zeros where a value equals 0, so that -0.0 would lose its sign (chainer #1435): one axis keeps it.
    From page-locked memory it copies without waiting, which a write to that memory would overtake.
    """
    if isinstance(value, cp.ndarray):
        return value if dtype is None or value.dtype == dtype else astype(cp, value, dtype)
    host = np.asarray(value, dtype)
    host = host if host.dtype.isnative else host.astype(host.dtype.newbyteorder("="))
    waits = host is value and cp.cuda.pinned_memory.is_memory_pinned(host.__array_interface__["data"][0])
    return cp.asarray(host, blocking=waits) if host.ndim else cp.asarray(host.reshape(1), blocking=waits).reshape(())


def astype(cp: Any, x: Array, dtype: DType, copy: bool = True) -> Array:
    """Convert as NumPy does on x86, by way of int32 or int64: out of their range is their lowest number, and its low
    bits are what is kept. CUDA would saturate (CUDA C++ Programming Guide, type conversions).
    """
    if x.dtype.kind != "f" or dtype.kind not in "iu":
        return x.astype(dtype, copy=copy)
    wide = x.astype(np.float64 if x.dtype.itemsize < 8 else x.dtype, copy=False)
    low = np.iinfo(np.int32 if dtype.itemsize < 4 or dtype == np.int32 else np.int64).min
    inside = (wide >= low) & (wide < -float(low))
    whole = cp.where(inside, wide.astype(np.int64), cp.full((), low, np.int64))
    if dtype == np.uint64:
        above = (wide >= 2.0**63) & (wide < 2.0**64)
        return cp.where(above, wide.astype(np.uint64), whole.astype(np.uint64))
    return whole.astype(dtype)


def _pair(cp: Any, x1: Any, x2: Any, *, countable: bool = False) -> tuple[Array, Array]:
    """Return two operands as arrays of their common dtype, booleans as int8 if asked; Python scalars are weak."""
    dtype = promote(_kind(x1), _kind(x2))
    dtype = np.dtype(np.int8) if countable and dtype.kind == "b" else dtype
    return asarray(cp, x1, dtype), asarray(cp, x2, dtype)


def _kind(x: Any) -> DType | type:
    """Return what an operand is promoted by."""
    return cast(DType | type, getattr(x, "dtype", type(x)))


# ---- elementwise


def _floor_divide(cp: Any, x1: Any, x2: Any) -> Array:
    """CuPy floors the rounded quotient (1.0 // 0.1 is 10), and leaves the lowest integer // -1 to C++."""
    x1, x2 = _pair(cp, x1, x2, countable=True)
    if x1.dtype.kind != "f":
        negated = x2 == -1 if x1.dtype.kind == "i" else cp.zeros((), np.bool_)
        return cp.where(negated, cp.negative(x1), cp.floor_divide(x1, cp.where(negated, cp.ones_like(x2), x2)))
    rest = cp.fmod(x1, x2)
    quotient = cp.divide(x1 - rest, x2)
    quotient = cp.where((rest != 0) & ((rest < 0) != (x2 < 0)), quotient - 1, quotient)
    whole = cp.floor(quotient)
    whole = cp.where(quotient - whole > 0.5, whole + 1, whole)
    plain = cp.divide(x1, x2)
    whole = cp.where(quotient == 0, cp.copysign(cp.zeros_like(plain), plain), whole)
    return cp.where((x2 == 0) | cp.isinf(x1) | cp.isinf(x2), cp.floor(plain), whole)


def _remainder(cp: Any, x1: Any, x2: Any) -> Array:
    """CuPy subtracts the rounded quotient times x2 (1.0 % 0.1 is 0, x % inf NaN)."""
    x1, x2 = _pair(cp, x1, x2, countable=True)
    if x1.dtype.kind != "f":
        return cp.remainder(x1, cp.where(x2 == -1, cp.ones_like(x2), x2) if x1.dtype.kind == "i" else x2)
    rest = cp.fmod(x1, x2)
    rest = cp.where((rest != 0) & ((rest < 0) != (x2 < 0)), rest + x2, rest)
    return cp.where(rest == 0, cp.copysign(cp.zeros_like(rest), x2), rest)


def _left_shift(cp: Any, x1: Any, x2: Any) -> Array:
    """Shifts by the width and more give 0; C++ leaves them open."""
    x1, x2, within, none = _shifted(cp, x1, x2)
    return cp.where(within, cp.left_shift(x1, x2), none)


def _right_shift(cp: Any, x1: Any, x2: Any) -> Array:
    """Shifts by the width and more leave the sign."""
    x1, x2, within, none = _shifted(cp, x1, x2)
    return cp.where(within, cp.right_shift(x1, x2), cp.where(x1 < 0, ~none, none))


def _shifted(cp: Any, x1: Any, x2: Any) -> tuple[Array, Array, Array, Array]:
    x1, x2 = _pair(cp, x1, x2, countable=True)
    within = (x2 >= 0) & (x2 < 8 * x1.dtype.itemsize)
    none = cp.zeros_like(x2)
    return x1, cp.where(within, x2, none), within, none


def _nextafter(cp: Any, x1: Any, x2: Any) -> Array:
    """One step among the bits, as numbers lie in their order.

    CuPy's forgets the sign of equal zeros (array-api-compat's list), and passes over what is below the normal numbers.
    """
    dtype = _result_dtype(np.nextafter, x1, x2)
    x1, x2 = (asarray(cp, x if hasattr(x, "dtype") else float(x), dtype) for x in (x1, x2))
    bits = np.dtype(f"i{dtype.itemsize}")
    lowest = asarray(cp, np.iinfo(bits).min, bits)
    x1, x2 = (x.copy() for x in cp.broadcast_arrays(x1, x2))  # CuPy's ascontiguousarray gives each an axis
    own, other = (cp.where(x < 0, lowest - x, x) for x in (x1.view(bits), x2.view(bits)))
    there = own + (other > own).astype(bits) - (other < own).astype(bits)
    there = cp.where((there < 0) | ((there == 0) & cp.signbit(x1)), lowest - there, there)
    return cp.where(cp.isnan(x1) | cp.isnan(x2), x1 + x2, cp.where(own == other, x2, there.view(dtype)))


def _result_dtype(function: np.ufunc, *operands: Any) -> DType:
    """Return the dtype of what NumPy's function makes of operands."""
    kinds = [np.dtype(bool) if kind is bool else kind for kind in map(_kind, operands)]
    return function.resolve_dtypes((*kinds, None))[-1]


def _divide(cp: Any, x1: Any, x2: Any) -> Array:
    """Complex numbers by Smith's method, as NumPy's; CuPy's is NaN where x2 is 0 or infinite."""
    dtype = _result_dtype(np.divide, x1, x2)
    if dtype.kind != "c":
        return _floating("divide")(cp, x1, x2)
    x1, x2 = (asarray(cp, x, dtype) for x in (x1, x2))
    a, b, c, d = x1.real, x1.imag, x2.real, x2.imag
    across, ratio, size = _smith(cp, c, d)
    real = cp.where(across, a * ratio + b, a + b * ratio)
    imag = cp.where(across, b * ratio - a, b - a * ratio)
    nothing = (c == 0) & (d == 0)
    return _complex(cp, cp.where(nothing, a / abs(c), real / size), cp.where(nothing, b / abs(c), imag / size), dtype)


def _reciprocal(cp: Any, x: Array) -> Array:
    """Of the integer 0 what NumPy's is on this host; of complex numbers by Smith's method."""
    if x.dtype.kind in "iu":
        return cp.where(x == 0, asarray(cp, CPU.call(np.reciprocal, np.zeros((), x.dtype))), cp.reciprocal(x))
    if x.dtype.kind != "c":
        return cp.reciprocal(x)
    across, ratio, size = _smith(cp, x.real, x.imag)
    one = cp.ones_like(ratio)
    return _complex(cp, cp.where(across, ratio, one) / size, -cp.where(across, one, ratio) / size, x.dtype)


def _smith(cp: Any, c: Array, d: Array) -> tuple[Array, Array, Array]:
    """Return of c + di whether d is the larger part, the smaller over the larger, and |c + di|^2 over the larger."""
    across = abs(d) > abs(c)
    larger, smaller = cp.where(across, d, c), cp.where(across, c, d)
    ratio = smaller / larger
    return across, ratio, larger + smaller * ratio


def _complex(cp: Any, real: Array, imag: Array, dtype: DType) -> Array:
    found = cp.empty(real.shape, dtype)
    found.real[...], found.imag[...] = real, imag
    return found


def _log1p(cp: Any, x: Array) -> Array:
    """CuPy's 1 + x also forgets the sign of an imaginary zero, and with it the side of the branch cut."""
    found = log1p(cp, x)
    if x.dtype.kind == "c":
        found.imag[...] = cp.arctan2(x.imag, x.real + 1)
    return found


def _expm1(cp: Any, x: Array) -> Array:
    """CuPy's is exp(x) - 1, of which small complex numbers keep no real part; this one is NumPy's."""
    found = cp.expm1(x)
    if x.dtype.kind == "c":
        half = cp.sin(x.imag / 2)
        found.real[...] = cp.expm1(x.real) * cp.cos(x.imag) - 2 * half * half
    return found


def _pow(cp: Any, x1: Any, x2: Any) -> Array:
    """Negative powers of integers raise as in NumPy; CuPy rounds them."""
    kinds = [getattr(x, "dtype", np.dtype(type(x))).kind for x in (x1, x2)]
    if kinds[0] in "iub" and kinds[1] == "i" and bool(x2 < 0 if type(x2) is int else (x2 < 0).any()):
        raise ValueError("Integers to negative integer powers are not allowed.")
    return _as_on_host(cp, "pow", cp.power, x1, x2)


def _as_on_host(cp: Any, name: str, function: Function, *operands: Any) -> Array:
    """Compute a complex function, and with NumPy what it is of zeros, ones and what is not finite.

    CUDA's complex functions keep other special values than the standard's (array-api-compat's list).
    """
    result = function(*operands)
    if result.dtype.kind != "c":
        return result
    flat = cp.ascontiguousarray(result).reshape(-1)
    arrays = [x.reshape(-1) for x in cp.broadcast_arrays(*(asarray(cp, x, result.dtype) for x in operands))]
    special = cp.zeros(flat.shape, np.bool_)
    for x in arrays:
        special |= ~cp.isfinite(x) | (x == 0) | (x == 1) | (x == -1)
    places = cp.nonzero(special)[0]
    if places.size:
        found = CPU.call(cast(Function, CPU.kernel(name)), *(x[places].get() for x in arrays))
        flat[places] = cp.asarray(found.astype(result.dtype, copy=False))
    return flat.reshape(result.shape)


def _special(name: str, own: str) -> Function:
    return lambda cp, *operands: _as_on_host(cp, name, getattr(cp, own), *operands)


def _small(name: str, accurate: Function) -> Function:
    return lambda cp, x: _as_on_host(cp, name, partial(accurate, cp), x)


def _logical(name: str) -> Function:
    """CuPy's logical functions take no complex numbers, and Python's as what they are in the dtype beside them."""

    def truth(x: Any) -> Any:
        if not hasattr(x, "dtype"):
            return bool(x)
        return x != 0 if getattr(x, "dtype", None) in (np.complex64, np.complex128) else x

    return lambda cp, *operands: getattr(cp, name)(*(truth(x) for x in operands))


def _floating(own: str) -> Function:
    """A Python integer beside integers counts as the float that both become; -1 beside uint64 would not."""
    return lambda cp, *operands: getattr(cp, own)(*(float(x) if type(x) is int else x for x in operands))


def _comparison(name: str) -> Function:
    """A Python integer beyond the dtype compares as it does with any number of it; CuPy refuses it."""

    def run(cp: Any, x1: Any, x2: Any) -> Array:
        for x, other in ((x1, x2), (x2, x1)):
            if type(x) is int and other.dtype.kind in "iu":
                bounds = np.iinfo(other.dtype)
                if not bounds.min <= x <= bounds.max:
                    return cp.full(other.shape, getattr(np, name)(*(0 if one is other else one for one in (x1, x2))))
        if "equal" not in (name, name.removeprefix("not_")) and promote(*map(_kind, (x1, x2))).kind == "c":
            return _ordered(cp, name, *_pair(cp, x1, x2))
        return getattr(cp, name)(x1, x2)

    return run


def _ordered(cp: Any, name: str, x1: Array, x2: Array) -> Array:
    """Complex numbers by their real parts, equal ones by the imaginary; NaN is before and behind nothing."""
    strictly, own = getattr(cp, name.removesuffix("_equal")), getattr(cp, name)
    known = ~(cp.isnan(x1.imag) | cp.isnan(x2.imag))
    return (strictly(x1.real, x2.real) & known) | ((x1.real == x2.real) & own(x1.imag, x2.imag))


def _where(cp: Any, condition: Any, x1: Any, x2: Any) -> Array:
    """CuPy's takes a condition of another dtype for a number, and strong scalars."""
    x1, x2 = _pair(cp, x1, x2)
    return cp.where(asarray(cp, condition).astype(np.bool_, copy=False), x1, x2)


def _sign(cp: Any, x: Array) -> Array:
    """Complex numbers over their magnitude; CuPy's sign of NaN was 0 before 14.2 (#8327)."""
    if x.dtype.kind == "c":
        return _as_on_host(cp, "sign", lambda z: _divided(cp, z, cp.abs(z)), x)
    return cp.where(cp.isnan(x), x, cp.sign(x)) if x.dtype.kind == "f" else cp.sign(x)


def _divided(cp: Any, x: Array, size: Array) -> Array:
    """Return complex numbers over real ones, part by part."""
    return _complex(cp, x.real / size, x.imag / size, x.dtype)


# ---- reductions


def _reduction(function: Function) -> Function:
    """Reduce over no axes too, which CuPy takes for all: over one more axis, of length 1."""

    def run(cp: Any, x: Array, axis: Axes = None, **params: Any) -> Array:
        if axis == ():
            return function(cp, x[..., None], (x.ndim,), **{**params, "keepdims": False})
        return function(cp, x, axis, **params)

    return run


def _plain(name: str) -> Function:
    return _reduction(lambda cp, x, axis, **params: getattr(cp, name)(x, axis, **params))


def _extreme(name: str) -> Function:
    """NaN where there is one, on every path CuPy may take (#7424, #8180)."""

    def run(cp: Any, x: Array, axis: Axes, keepdims: bool = False) -> Array:
        found = getattr(cp, name)(x, axis=axis, keepdims=keepdims)
        if x.dtype.kind not in "fc":
            return found
        return cp.where(cp.isnan(x).any(axis=axis, keepdims=keepdims), cp.asarray([np.nan], x.dtype).reshape(()), found)

    return _reduction(run)


def _arg(name: str) -> Function:
    """The first NaN where there is one (#7424, #8180)."""

    def run(cp: Any, x: Array, axis: int | None = None, keepdims: bool = False) -> Array:
        found = getattr(cp, name)(x, axis=axis, keepdims=keepdims)
        if x.dtype.kind == "f":
            unknown = cp.isnan(x)
            first = cp.argmax(unknown, axis=axis, keepdims=keepdims)
            found = cp.where(unknown.any(axis=axis, keepdims=keepdims), first, found)
        return found

    return run


def _count_nonzero(cp: Any, x: Array, axis: Axes, keepdims: bool = False) -> Array:
    """CuPy's has no keepdims."""
    return cp.sum(x != 0, axis=axis, dtype=np.int64, keepdims=keepdims)


def _mean(cp: Any, x: Array, axis: Axes, dtype: DType | None = None, keepdims: bool = False) -> Array:
    """NaN over nothing; half precision summed in single."""
    own = dtype or (x.dtype if x.dtype.kind in "fc" else np.dtype(np.float64))
    wide = np.dtype(np.float32) if own == np.float16 else own
    total = cp.sum(x, axis=axis, dtype=wide, keepdims=keepdims)
    return _divide(cp, total, float(_count(x, axis))).astype(own, copy=False)


def _var(cp: Any, x: Array, axis: Axes, correction: float = 0.0, keepdims: bool = False) -> Array:
    """The mean squared distance; NaN where the divisor is not positive. CuPy's divides by 0 or less."""
    distance = x - _mean(cp, x, axis, keepdims=True)
    squares = cp.square(distance.real) + cp.square(distance.imag) if x.dtype.kind == "c" else cp.square(distance)
    divisor = _count(x, axis) - correction
    total = cp.sum(squares, axis=axis, keepdims=keepdims)
    return cp.divide(total, divisor if divisor > 0 else np.nan)


def _std(cp: Any, x: Array, axis: Axes, correction: float = 0.0, keepdims: bool = False) -> Array:
    return cp.sqrt(_var(cp, x, axis, correction, keepdims))


def _count(x: Array, axis: Axes) -> int:
    if axis is None:
        return int(x.size)
    return prod(x.shape[one] for one in (axis if isinstance(axis, tuple) else (axis,)))


_COMPLEX = ("cos", "cosh", "exp", "log", "log10", "log2", "sin", "sinh", "sqrt", "tan", "tanh")
_ARCS = ("cos", "cosh", "sin", "sinh", "tan", "tanh")

KERNELS: dict[str, Function] = {
    **{name: _special(name, name) for name in _COMPLEX},
    **{f"a{name}": _special(f"a{name}", f"arc{name}") for name in _ARCS},
    **{name: _comparison(name) for name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")},
    **{name: _floating(name) for name in ("copysign", "hypot", "logaddexp")},
    **{name: _logical(name) for name in ("logical_and", "logical_not", "logical_or", "logical_xor")},
    **{name: _plain(name) for name in ("all", "any", "prod", "sum")},
    "argmax": _arg("argmax"),
    "argmin": _arg("argmin"),
    "astype": astype,
    "atan2": _floating("arctan2"),
    "bitwise_left_shift": _left_shift,
    "bitwise_right_shift": _right_shift,
    "count_nonzero": _reduction(_count_nonzero),
    "divide": _divide,
    "expm1": _small("expm1", _expm1),
    "floor_divide": _floor_divide,
    "imag": lambda cp, x: x.imag.copy(),
    "log1p": _small("log1p", _log1p),
    "max": _extreme("max"),
    "mean": _reduction(_mean),
    "min": _extreme("min"),
    "nextafter": _nextafter,
    "pow": _pow,
    "real": lambda cp, x: x.real.copy(),
    "reciprocal": _reciprocal,
    "remainder": _remainder,
    "round": lambda cp, x: cp.rint(x) if x.dtype.kind in "fc" else x.copy(),
    "sign": _sign,
    "std": _reduction(_std),
    "var": _reduction(_var),
    "where": _where,
}


# ---- library functions


def _take(cp: Any, x: Array, indices: Array, axis: int) -> Array:
    """CuPy wraps an index out of bounds around; looking waits for the device."""
    shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
    made = _gathered(cp, cp.moveaxis(x, axis, 0), indices, axis, shape, indices, each=False)
    return cp.take(x, within(cp, indices, x.shape[axis], axis), axis=axis) if made is None else made


def _take_along_axis(cp: Any, x: Array, indices: Array, axis: int) -> Array:
    """As `_take`."""
    axis %= x.ndim
    shape = list(np.broadcast_shapes(*([*a.shape[:axis], *a.shape[axis + 1 :]] for a in (x, indices))))
    own, places = (cp.moveaxis(a, axis, 0) for a in (x, indices))
    own = cp.broadcast_to(own, (own.shape[0], *shape))
    places = cp.moveaxis(cp.broadcast_to(places, (places.shape[0], *shape)), 0, axis)
    made = _gathered(cp, own, places, axis, places.shape, indices, each=True)
    return cp.take_along_axis(x, within(cp, indices, x.shape[axis], axis), axis=axis) if made is None else made


def _gathered(
    cp: Any, view: Array, places: Array, axis: int, shape: tuple[int, ...], given: Array, *, each: bool
) -> Array | None:
    """Return elements of a view's first axis at places, which are those given; raises IndexError as `within` does."""
    try:
        return kernels.gather(cp, view, (places.astype(np.int64, copy=False),), axis, shape, sure=False, each=each)
    except IndexError:
        within(cp, given, view.shape[0], axis)  # which says where
        raise


def within(cp: Any, indices: Array, length: int, axis: int) -> Array:
    """Return indices as int64, counted from the start; raises IndexError where one is out of bounds."""
    indices = indices.astype(np.int64, copy=False)
    wrong = (indices < -length) | (indices >= length)
    if indices.size and bool(wrong.any()):
        first = int(indices.reshape(-1)[wrong.reshape(-1)][0])
        raise IndexError(f"index {first} is out of bounds for axis {axis} with size {length}")
    return cp.where(indices < 0, indices + length, indices)


def _repeat(cp: Any, x: Array, repeats: Array, axis: int | None) -> Array:
    """CuPy takes numbers of repetitions from the host alone."""
    if repeats.size == 1:
        return cp.repeat(x, int(repeats.reshape(())), axis=axis)
    flat, along = (x.reshape(-1), 0) if axis is None else (x, axis)
    if not repeats.size:
        return x.copy() if axis is not None else flat.copy()
    ends = cp.cumsum(repeats.astype(np.int64))
    total = int(ends[-1])
    return cp.take(flat, cp.searchsorted(ends, cp.arange(total), side="right"), axis=along)


def _searchsorted(cp: Any, x1: Array, x2: Array, side: str, sorter: Array | None = None) -> Array:
    if sorter is not None:
        if sorter.size != x1.size:
            raise ValueError("sorter.size must equal len(a)")
        try:
            x1 = cp.take(x1, within(cp, sorter, x1.size, 0), axis=0)
        except IndexError:
            raise ValueError("Sorter index out of range.") from None
    x1, x2 = _pair(cp, x1, x2)
    return cp.searchsorted(x1, x2, side=side).astype(np.int64, copy=False)


def _sorted(name: str) -> Function:
    """Thrust takes no empty axes (#9873); NaNs come first where the order is descending, as from NumPy's."""

    def run(cp: Any, x: Array, axis: int, descending: bool = False, stable: bool = True) -> Array:
        if not x.size:
            return x.copy() if name == "sort" else cp.zeros(x.shape, np.int64)
        order, axis = name == "argsort", axis % x.ndim
        given = cp.flip(x, axis=axis) if descending and order else x
        found = kernels.sort(cp, given, axis, order=order)
        found = getattr(cp, name)(given, axis=axis) if found is None else found
        if order:
            found = found.astype(np.int64, copy=False)
            return x.shape[axis] - 1 - cp.flip(found, axis=axis) if descending else found
        return cp.flip(found, axis=axis) if descending else found

    return run


def _cumulative(name: str, start: int) -> Function:
    """With the first element the standard asks for, in the dtype NumPy gives; CuPy's scan takes no empty arrays."""

    def run(cp: Any, x: Array, axis: int, dtype: DType | None = None, include_initial: bool = False) -> Array:
        own: DType = dtype or getattr(np, name)(np.ones(1, x.dtype)).dtype
        combine, axis = "multiply" if start else "add", axis % x.ndim
        made = kernels.cumulative(cp, x, axis, own, combine, start, include_initial)
        if made is not None:
            return made
        found = getattr(cp, name)(x, axis=axis, dtype=own) if x.size else cp.zeros(x.shape, own)
        if not include_initial:
            return found
        first = cp.full((*x.shape[:axis], 1, *x.shape[axis + 1 :]), start, own)
        return cp.concatenate([first, found], axis=axis)

    return run


def _isin(cp: Any, x1: Array, x2: Array, invert: bool = False) -> Array:
    x1, x2 = _pair(cp, x1, x2)
    return cp.isin(x1, x2, invert=invert)


def matmul(cp: Any, x1: Array, x2: Array, out: Array | None = None) -> Array:
    """cuBLAS takes no empty matrices, and CuPy no booleans."""
    if x1.dtype.kind == "b" and x2.dtype.kind == "b":
        return matmul(cp, x1.astype(np.int32), x2.astype(np.int32)) != 0
    if x1.size and x2.size:
        return cp.matmul(x1, x2) if out is None else cp.matmul(x1, x2, out=out)
    probes = [np.lib.stride_tricks.as_strided(np.zeros(1, x.dtype), x.shape, (0,) * x.ndim) for x in (x1, x2)]
    empty = np.matmul(*probes)
    return cp.zeros(empty.shape, empty.dtype)


def tensordot(cp: Any, x1: Array, x2: Array, axes: tuple[tuple[int, ...], tuple[int, ...]]) -> Array:
    """One matrix product; CuPy's own takes no empty sets of axes."""
    first, second = axes
    left = [a for a in range(x1.ndim) if a not in first]
    right = [a for a in range(x2.ndim) if a not in second]
    inner = prod(x1.shape[a] for a in first)
    outer = [prod(x.shape[a] for a in kept) for x, kept in ((x1, left), (x2, right))]
    rows = x1.transpose(*left, *first).reshape(outer[0], inner)
    columns = x2.transpose(*second, *right).reshape(inner, outer[1])
    return matmul(cp, rows, columns).reshape([x1.shape[a] for a in left] + [x2.shape[a] for a in right])


def _dot(cp: Any, x1: Array, x2: Array) -> Array:
    if not x1.ndim or not x2.ndim:
        return cp.multiply(x1, x2)
    return tensordot(cp, x1, x2, ((x1.ndim - 1,), (max(x2.ndim - 2, 0),)))


def vecdot(cp: Any, x1: Array, x2: Array, axis: int = -1) -> Array:
    """CuPy has none."""
    x1, x2 = cp.moveaxis(x1, axis, -1), cp.moveaxis(x2, axis, -1)
    x1 = cp.conj(x1) if x1.dtype.kind == "c" else x1
    return matmul(cp, x1[..., None, :], x2[..., None])[..., 0, 0]


FUNCTIONS: dict[str, Function] = {
    "argsort": _sorted("argsort"),
    "astype": astype,
    "cumulative_prod": _cumulative("cumprod", 1),
    "cumulative_sum": _cumulative("cumsum", 0),
    "dot": _dot,
    "isin": _isin,
    "matmul": matmul,
    "repeat": _repeat,
    "searchsorted": _searchsorted,
    "sort": _sorted("sort"),
    "take": _take,
    "take_along_axis": _take_along_axis,
    "tensordot": tensordot,
    "vecdot": vecdot,
}


# ---- linear algebra


def _solve(cp: Any, x1: Array, x2: Array) -> Array:
    """Stacks broadcast, as the standard says; CuPy wants equal ones, and elements in them."""
    vector = x2.ndim == 1
    columns = x2[:, None] if vector else x2
    lead = np.broadcast_shapes(x1.shape[:-2], columns.shape[:-2])
    x1, columns = (cp.broadcast_to(x, (*lead, *x.shape[-2:])) for x in (x1, columns))
    if x1.size and columns.size:
        found = cp.linalg.solve(x1, columns)
    else:
        found = cp.empty(columns.shape, np.linalg.solve(*(np.ones((1, 1), x.dtype) for x in (x1, x2))).dtype)
    return found[..., 0] if vector else found


def vector_norm(cp: Any, x: Array, axis: Axes = None, keepdims: bool = False, ord: float = 2) -> Array:
    """CuPy has none."""
    sizes = cp.abs(x)
    sizes = sizes if sizes.dtype.kind == "f" else sizes.astype(np.float64)
    if ord == 0:
        return cp.sum(x != 0, axis=axis, keepdims=keepdims).astype(sizes.dtype)
    if abs(ord) == inf:
        return KERNELS["max" if ord > 0 else "min"](cp, sizes, axis, keepdims=keepdims)
    if ord == 1:
        return KERNELS["sum"](cp, sizes, axis, keepdims=keepdims)
    return KERNELS["sum"](cp, sizes**ord, axis, keepdims=keepdims) ** (1 / ord)


LINALG: dict[str, Function] = {
    "matmul": matmul,
    "solve": _solve,
    "tensordot": tensordot,
    "vecdot": vecdot,
    "vector_norm": vector_norm,
}


# ---- special functions, of those in CuPy's module of them, in float64 as SciPy's are


def _betaincc(cp: Any, module: Any, a: Any, b: Any, x: Any) -> Array:
    """The other tail, by symmetry. Source: Abramowitz and Stegun (1964), 26.5.2."""
    return module.betainc(b, a, 1 - x)


def _stdtr(cp: Any, module: Any, df: Any, t: Any) -> Array:
    """Student's t distribution function, by the incomplete beta function of what is small, where t is and where it is
    not. Source: Abramowitz and Stegun, Handbook of Mathematical Functions (1964), 26.7.1.
    """
    square = t * t
    near = 0.5 + cp.copysign(0.5, t) * module.betainc(0.5, 0.5 * df, square / (df + square))
    tail = 0.5 * module.betainc(0.5 * df, 0.5, df / (df + square))
    found = cp.where(square < df, near, cp.where(t < 0, tail, 1 - tail))
    return cp.where(cp.isinf(df), module.ndtr(t), found)


def _stdtrit(cp: Any, module: Any, df: Any, p: Any) -> Array:
    """The inverse of that: its square is df times the ratio of the two parts of 1 that the beta function tells of."""
    tail = cp.minimum(p, 1 - p)
    part = module.betaincinv(0.5 * df, 0.5, 2 * tail)
    small = module.betaincinv(0.5, 0.5 * df, 1 - 2 * tail)
    size = cp.sqrt(df * cp.where(tail > 0.25, small / (1 - small), (1 - part) / part))
    return cp.where(cp.isinf(df), module.ndtri(p), cp.copysign(size, p - 0.5))


_SPECIAL: dict[str, Function] = {"betaincc": _betaincc, "stdtr": _stdtr, "stdtrit": _stdtrit}


def special(cp: Any, module: Any, name: str) -> Any:
    """Return what has SciPy's special function of a name: CuPy's module, or what stands for it where that lacks it."""
    if hasattr(module, name) or name not in _SPECIAL:
        return module

    def function(*operands: Array) -> Array:
        wide = [cp.asarray(one, np.float64) for one in operands]
        return _SPECIAL[name](cp, module, *wide).astype(cp.result_type(*operands), copy=False)

    return SimpleNamespace(**{name: function})

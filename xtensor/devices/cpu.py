"""The CPU backend: NumPy, with its differences from the standard corrected in one place."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import Context
from functools import lru_cache, partial
from importlib import import_module
from math import copysign, isfinite, prod
from sys import getrefcount
from typing import Any, cast
from weakref import getweakrefcount

import numpy as np

from ..base.dtypes import DType
from ..base.errors import expected
from ..base.layout import Layout, Shape
from ..base.machine import free_memory
from ..base.options import in_force, under
from ..storage.pool import HUGE_PAGE, POOL, POOLED, aligned, cut
from . import device_of
from .cpu_keys import add_at


def _quiet_context() -> Context:
    """Return a context in which NumPy gives no floating-point warnings.

    Running a call in a prepared context costs nothing measurable; `np.errstate` around it costs more than
    adding a hundred numbers.
    """
    context = Context()
    context.run(np.seterr, all="ignore")
    return context


class _Quiet(threading.local):
    """A quiet context per thread: only one thread at a time can be inside a context."""

    def __init__(self) -> None:
        context = _quiet_context()
        self.run, self.get = context.run, context.get


_quiet = _Quiet()

# For the fastest path only: one context for all threads, which raises RuntimeError while another one is inside.
quiet = _quiet_context()
quickly = quiet.run


class _Floats(dict[Any, Any]):
    """A cache of Python floats as arrays without axes, which cost ufuncs half as much, with the same bits.

    Zeros, which are equal but differ in sign, have their texts as keys.
    """

    def __init__(self, dtype: DType) -> None:
        super().__init__()
        self._dtype = dtype

    def __missing__(self, value: Any) -> Any:
        if len(self) >= _FLOATS:
            self.clear()
        made = self[value] = CPU.call(np.array, float(value), self._dtype)
        made.flags.writeable = False
        return made


# The most numbers that are cached as arrays, for each dtype.
_FLOATS = 1024

_SINGLE, _DOUBLE = np.dtype(np.float32), np.dtype(np.float64)
SINGLES, DOUBLES = _Floats(_SINGLE), _Floats(_DOUBLE)


def floats_beside(dtype: DType, value: float) -> Any:
    """Return a Python float in the form that costs a ufunc least beside an array of a dtype."""
    found = SINGLES if dtype is _SINGLE else DOUBLES if dtype is _DOUBLE else None
    if found is None:
        return value
    return found[value or ("0.0" if copysign(1.0, value) > 0.0 else "-0.0")]


def spreads(a: Any, b: Any, most: int) -> bool:
    """Return whether two arrays of at most so many bytes broadcast to more."""
    if a.nbytes * b.size <= most or a.shape == b.shape:
        return False
    try:
        return bool(np.broadcast(a, b).size * a.itemsize > most)
    except ValueError:
        return False  # the call reports what is wrong


class _Memory:
    """Bytes at an address, kept alive by their owner, for NumPy to look at."""

    def __init__(self, address: int, nbytes: int, writeable: bool, owner: Any) -> None:
        self.owner = owner
        self.__array_interface__ = {
            "data": (address, not writeable),
            "shape": (nbytes,),
            "typestr": "|u1",
            "version": 3,
        }


# Results of this size and more are in the pool's huge pages, which costs 20 us; smaller ones where NumPy puts them, in
# memory that the C library has kept (storage/pool.py).
REUSED = HUGE_PAGE

# References to smaller arrays are not counted, as reads of these are hardly ever deferred.
COUNTED = 128 * 1024


def _references(view: Any) -> int:
    """Return the number of references to the base of a view."""
    return getrefcount(view.base)


# The references to an array that only its view holds, as CPython counts.
_ALONE = _references(np.empty(1).view(np.uint8))


def _held(view: Any) -> Any:
    """Return the base of a view if others hold it, too, or could get hold of it."""
    return view.base if getweakrefcount(view.base) or _references(view) > _ALONE else None


@lru_cache(maxsize=1024)
def result_dtype(kernel: Any, kinds: tuple[Any, ...]) -> DType | None:
    """Return the result dtype of a ufunc for arrays and Python numbers of these kinds; None where it refuses them."""
    if kernel.nin != len(kinds) or kernel.nout != 1 or kernel.signature is not None:  # or a gufunc
        return None
    try:
        return cast(DType, kernel.resolve_dtypes((*kinds, None))[-1])
    except TypeError:
        return None


# Copies of so many bytes and more are made by tiles or rows. From arrays that lie across their copies so many elements
# of a row are copied at once, so that the cache lines read stay in the caches.
BY_PARTS, _TILE = 128 * 1024, 512


class Packing:
    """A reshaped copy of an array in some order, which machine code can make (run/rolls.py)."""

    __slots__ = ("_order", "_shape", "packs")

    def __init__(self, shape: Shape, order: str) -> None:
        self._shape, self._order, self.packs = shape, order, order == "C"

    def __call__(self, xp: Any, native: Any) -> Any:
        return packed_copy(native, self._order).reshape(self._shape)


def packed_copy(native: Any, order: Any = "C") -> Any:
    """Return a packed copy, by default in C order; of a large transpose in a quarter of NumPy's time."""
    if not isinstance(native, np.ndarray) and order == "C":
        return device_of(native).backend.packed(native)  # of another device
    if type(native) is not np.ndarray or native.nbytes < BY_PARTS or order != "C" or not (native.ndim and native.size):
        return native.copy(order=order)
    copy: Any = np.ndarray(native.shape, native.dtype, CPU.allocate(native.nbytes))
    length = native.shape[-1]
    tile = length if abs(native.strides[-1]) <= min(map(abs, native.strides)) else _TILE
    for start in range(0, length, tile):
        copy[..., start : start + tile] = native[..., start : start + tile]
    return copy


# The functions of NumPy's main namespace that array-api-compat wraps, and that differ from the standard in the oldest
# supported NumPy, except for sorts, which are defined below. (A test compares them with the installed ones.)
WRAPPED = frozenset(
    (
        *("UniqueAllResult", "UniqueCountsResult", "UniqueInverseResult", "arange", "asarray", "astype"),
        *("ceil", "clip", "count_nonzero", "empty", "empty_like", "eye", "finfo", "floor", "full", "full_like"),
        *("iinfo", "linspace", "matrix_transpose", "ones", "ones_like", "permute_dims", "sign", "std"),
        *("take_along_axis", "trunc", "unique_all", "unique_counts", "unique_inverse", "unique_values", "var"),
        *("zeros", "zeros_like"),
    )
)

# The same for numpy.linalg.
WRAPPED_LINALG = frozenset(
    (
        *("Array", "EigResult", "EighResult", "QRResult", "SVDResult", "SlogdetResult", "cholesky", "diagonal", "eig"),
        *("eigvals", "matmul", "matrix_rank", "matrix_transpose", "pinv", "solve", "tensordot", "trace", "vecdot"),
    )
)


class Standard:
    """A NumPy module as in the standard: its own functions, or those of array-api-compat in their place.

    The latter is imported when one of these is asked for, as that takes twice the time of `import numpy`. others:
    attributes that are neither.
    """

    def __init__(self, library: Any, wrapped: frozenset[str], path: str, **others: Any) -> None:
        self._library, self._wrapped, self._path = library, wrapped, path
        vars(self).update(others)

    def __getattr__(self, name: str) -> Any:
        found = getattr(import_module(self._path) if name in self._wrapped else self._library, name)
        setattr(self, name, found)
        return found


def _sort(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    """Standard: Sorting Functions, sort."""
    found = np.sort(x, axis=axis, kind="stable" if stable else None)
    return np.flip(found, axis=axis) if descending else found


def _argsort(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    """Standard: Sorting Functions, argsort; of equal elements the first one first, descending too."""
    kind: Any = "stable" if stable else None
    if not descending:
        return np.argsort(x, axis=axis, kind=kind)
    backwards = np.argsort(np.flip(x, axis=axis), axis=axis, kind=kind)
    return x.shape[axis] - 1 - np.flip(backwards, axis=axis)


_LINALG = Standard(np.linalg, WRAPPED_LINALG, "array_api_compat.numpy.linalg")


class CPUBackend:
    """NumPy as xtensor's CPU."""

    library: Any = np
    dlpack_device = (1, 0)

    xp: Any = Standard(np, WRAPPED, "array_api_compat.numpy", sort=_sort, argsort=_argsort, linalg=_LINALG)

    def allocate(self, nbytes: int) -> Any:
        return cut(*self.lend(nbytes), nbytes)

    def lend(self, nbytes: int) -> tuple[Any, int]:
        try:
            return POOL.lend(nbytes)
        except MemoryError:
            raise MemoryError(expected("empty", "shape", "fit into memory", f"{nbytes} bytes")) from None

    def free_memory(self) -> int:
        return free_memory() + POOL.stats().idle

    cut = staticmethod(cut)

    def zeros(self, shape: Shape, dtype: DType) -> Any:
        nbytes = prod(shape) * dtype.itemsize
        try:
            if nbytes < POOLED:  # aligning costs more than making them
                return np.zeros(shape, dtype)
            return np.ndarray(shape, dtype, aligned(np.zeros, nbytes))
        except (MemoryError, OverflowError, ValueError):
            raise MemoryError(expected("zeros", "shape", "fit into memory", shape)) from None

    def view(self, storage: Any, dtype: DType, layout: Layout, writeable: bool) -> Any:
        offset = layout.offset if layout.size else 0
        native: Any = np.ndarray(layout.shape, dtype, storage, offset, layout.strides)
        if not writeable:
            native.flags.writeable = False
        return native

    def storage_of(self, native: Any) -> tuple[Any, Layout]:
        if native.flags.c_contiguous:
            return native.reshape(-1).view(np.uint8), Layout(native.shape, native.strides)
        low, high = np.lib.array_utils.byte_bounds(native)
        address = native.__array_interface__["data"][0]
        memory = _Memory(low, high - low, native.flags.writeable, native)
        return np.asarray(memory), Layout(native.shape, native.strides, address - low)

    def borrowed(self, native: Any) -> tuple[Any, Layout, Callable[[], Any]] | None:
        packed = native if native.flags.c_contiguous else native.T if native.flags.f_contiguous else None
        if packed is None or native.nbytes <= COUNTED:
            return None
        view = packed.reshape(-1).view(np.uint8)
        if type(view.base) is not np.ndarray or not view.base.flags.owndata:
            return None
        # An array made from a memoryview refers to that, not to the array behind it.
        return np.frombuffer(memoryview(view), np.uint8), Layout(native.shape, native.strides), partial(_held, view)

    def handed_out(self, storage: Any) -> Any:
        return np.frombuffer(memoryview(storage), np.uint8) if storage.nbytes > COUNTED else None

    def kernel(self, name: str) -> Callable[..., Any] | None:
        return _REPAIRED.get(name) or getattr(np, name, None)

    def special(self, function: str) -> Any:
        try:
            import scipy.special
        except ImportError as error:
            raise ImportError(f"{function}: SciPy must be installed (pip install 'xtensor[special]')") from error
        return scipy.special

    def call(self, function: Callable[..., Any], *args: Any, **params: Any) -> Any:
        given = in_force.get()
        try:
            if given is not _quiet.get(in_force):  # options that it lacks, or that an interrupt has left there
                return _quiet.run(under, given, function, *args, **params)
            return _quiet.run(function, *args, **params)
        except RuntimeError as error:
            if "already entered" not in str(error):
                raise
        # A finalizer or signal handler called us from inside a kernel on this thread.
        with np.errstate(all="ignore"):
            return function(*args, **params)

    def compute(self, kernel: Callable[..., Any], *natives: Any, **params: Any) -> Any:
        room = None if params or type(kernel) is not np.ufunc else self._room(kernel, natives)
        return self.call(kernel, *natives, **params) if room is None else self.call(kernel, *natives, out=room)

    def _room(self, kernel: Any, natives: tuple[Any, ...]) -> Any:
        """Return memory for the result of a ufunc for large packed arrays of one shape; None for anything else."""
        arrays = [one for one in natives if type(one) is np.ndarray and one.ndim]
        if not any(one.size * max(one.itemsize, 8) >= REUSED for one in arrays):  # nor is the result, but beside 1j
            return None
        shape, size = arrays[0].shape, arrays[0].size
        if not all(one.shape == shape and one.flags.c_contiguous for one in arrays):
            return None
        dtype = result_dtype(kernel, tuple([one.dtype if hasattr(one, "dtype") else type(one) for one in natives]))
        if dtype is None or size * dtype.itemsize < REUSED:
            return None
        return np.ndarray(shape, dtype, self.allocate(size * dtype.itemsize))

    def asarray(self, value: Any, dtype: DType | None = None) -> Any:
        return np.asarray(value, dtype)

    def owns(self, native: Any) -> bool:
        return type(native) is np.ndarray

    def host(self, native: Any) -> Any:
        return native

    def astype(self, native: Any, dtype: DType) -> Any:
        return self.call(native.astype, dtype)

    def packed(self, native: Any) -> Any:
        return packed_copy(native)

    def index(self, native: Any, key: Any) -> Any:
        whole = type(key) is tuple and all(type(one) is slice and one == slice(None) for one in key[1:])
        mask = key[0] if whole and 0 < len(key) <= native.ndim else key
        if type(mask) is not np.ndarray or mask.dtype != bool or mask.shape != native.shape[:1] or native.ndim < 2:
            return native[key]
        rows = np.flatnonzero(mask)
        shape = (rows.size, *native.shape[1:])
        if prod(shape) * native.itemsize < BY_PARTS or not native.flags.c_contiguous:
            return native[key]
        room: Any = np.ndarray(shape, native.dtype, self.allocate(prod(shape) * native.itemsize))
        return native.take(rows, 0, room, "clip")  # without a buffer of its own

    def assign(self, native: Any, key: Any, value: Any) -> None:
        self.call(native.__setitem__, key, value)

    def add_at(self, native: Any, key: Any, values: Any) -> None:
        add_at(native, key, values)


# ---- views and assignments, which NumPy makes faster than Layout

# The types of NumPy's scalars, which have a dtype as arrays do, for the dtypes of the standard.
NUMBERS = tuple(np.dtype(char).type for char in "?bBhHiIlLqQfdFD")

# The types of the items of basic keys; other subclasses of integers, such as booleans, go the long way.
PLAIN = frozenset((int, slice, type(None), type(Ellipsis), *[one for one in NUMBERS if issubclass(one, np.integer)]))


def is_plain(key: Any) -> bool:
    """Return whether a key has only items by which NumPy selects a view or an element."""
    if type(key) is not tuple:
        return type(key) in PLAIN
    for one in key:  # noqa: SIM110 - all() over a generator takes three times as long
        if type(one) not in PLAIN:
            return False
    return True


# The dtypes of arrays that take these Python numbers without a warning.
_TAKES = {float: "dD", int: "dDl", bool: "?bBhHiIlLqQfdFD", complex: "D"}

# Bytes of an array up to which it is assigned without the checks of the long way, and from which on it is checked
# whether it lies there already, as in the last step of `x[key] += y`.
_ASSIGNED_AT_ONCE, _THERE = 1 << 20, 1 << 15


def assign(target: Any, key: Any, value: Any, *, basic: bool = True) -> bool:
    """Assign a number or a small array to the elements that a key selects; return whether that was done.

    basic: whether the key selects a view; one that contains arrays does not.

    False, with nothing written, for any other value and where NumPy refuses: the long way reports what is wrong.
    """
    kind = type(value)
    try:
        if kind is float and target.dtype is _DOUBLE:  # the commonest case
            target[key] = value
            return True
        if kind is np.ndarray:
            if value.nbytes > _ASSIGNED_AT_ONCE:
                return False
            if not basic:
                value = value.copy() if np.may_share_memory(target, value) else value
            elif value.ndim:
                target = target[key]
                if type(target) is not np.ndarray:
                    return False
                value = value.copy() if _missed(target, value) else value
                if value.nbytes > _THERE and _is_there(target, value):
                    return target.flags.writeable
                key = ...
            if value.dtype is target.dtype:
                target[key] = value
                return True
            if value.dtype.kind == "c" != target.dtype.kind:
                return False
        elif target.dtype.char in _TAKES.get(kind, ""):
            target[key] = value
            return True
        elif kind in NUMBERS:
            if value.dtype.kind == "c" != target.dtype.kind:
                return False
        elif kind not in _TAKES:
            return False
        quickly(target.__setitem__, key, value)
    except (IndexError, TypeError, ValueError, OverflowError, RuntimeError):
        return False
    return True


def _is_there(target: Any, value: Any) -> bool:
    """Return whether two arrays are the same elements of some memory."""
    if value.strides != target.strides or value.shape != target.shape or value.dtype is not target.dtype:
        return False
    return bool(value.__array_interface__["data"][0] == target.__array_interface__["data"][0])


def _missed(target: Any, value: Any) -> bool:
    """Return whether NumPy may miss that a value overlaps its target: it assumes that along one axis some order reads
    each element before it is overwritten, which holds for equal strides only (seen in NumPy 2.4).
    """
    return target.ndim == 1 and value.strides[-1:] != target.strides and bool(np.may_share_memory(target, value))


# ---- where NumPy and the standard differ


def _floor_divide(x1: Any, x2: Any, **out: Any) -> Any:
    """Return x1 // x2 with the standard's values for infinities: those of floor(x1 / x2)."""
    quotient = np.floor_divide(x1, x2, **out)
    # In a tenth of the time; Python's numbers may become infinite in other dtypes.
    if not quotient.ndim and quotient.dtype.char == "d" and isfinite(x1) and isfinite(x2):
        return quotient
    if quotient.dtype.kind == "f":
        x1, x2 = np.asarray(x1, quotient.dtype), np.asarray(x2, quotient.dtype)
        infinite = np.isinf(x1) | np.isinf(x2)
        if infinite.any():
            target = np.asarray(quotient)
            np.copyto(target, np.floor(np.true_divide(x1, x2)), where=infinite, casting="same_kind")
            return _scalar(target)
    return quotient


def _scalar(result: Any) -> Any:
    """Return a result as the library returns it: a scalar if it has no axes."""
    return result if result.ndim else result[()]


def _expm1(x: Any) -> Any:
    """Return exp(x) - 1; for complex zeros and non-finite real parts the standard's values, which are those of exp."""
    result = np.expm1(x)
    if result.dtype.kind == "c":
        special: Any = ~np.isfinite(np.real(x)) | np.equal(x, 0)
        if special.any():
            limit: Any = np.array(np.exp(x))
            limit.real = limit.real - 1
            return _scalar(np.where(special, limit, result))
    return result


def log1p(xp: Any, x: Any) -> Any:
    """Return log(1 + x), for libraries that, as NumPy, first add the 1 to complex numbers, where small ones vanish."""
    found = xp.log1p(x)
    if found.dtype.kind == "c":
        found, a, b = xp.array(found), x.real, x.imag  # the array of a scalar
        near = (abs(a) < 0.5) & (abs(b) < 0.5)
        found.real[...] = xp.where(near, xp.log1p(a * (2 + a) + b * b) / 2, found.real)
    return found


def _log1p(x: Any) -> Any:
    return _scalar(log1p(np, x))


def _tanh(x: Any) -> Any:
    """Return tanh(x); for complex x with an infinite real part the standard's +-1 and a zero of x's sign."""
    result = np.tanh(x)
    if result.dtype.kind == "c":
        infinite = np.isinf(np.real(x))
        if infinite.any():
            limit: Any = np.array(result)
            limit.real = np.copysign(1, np.real(x))
            limit.imag = np.copysign(0, np.imag(x))
            return _scalar(np.where(infinite, limit, result))
    return result


def _round(x: Any) -> Any:
    """Round to the nearest integer, ties to even; integers stay as they are."""
    return np.rint(x) if x.dtype.kind in "fc" else np.round(x)


# Integer exponents of floats that are computed as products, everywhere; and all exponents with code of their own.
SMALL_POWERS = (2, 3, 4)
KNOWN_POWERS = (*SMALL_POWERS, -1, 0.5)

# The dtypes whose powers are computed by NumPy as products, by the exponent's type and whether it is 2.
_AS_PRODUCTS = {
    (float, False): "fd",
    (float, True): "fdFD",
    (int, False): "fdbhilqBHILQ",
    (int, True): "fdFDbhilqBHILQ",
}


def _root(x: Any) -> Any:
    """Return floats to the power 0.5, which is positive for -0.0 and -inf."""
    found = np.sqrt(x) + 0.0
    if not x.ndim and x.item() > -np.inf:  # a reduction takes longer than all else
        return found
    return found if np.minimum.reduce(x, None, initial=0.0) > -np.inf else np.where(x == -np.inf, np.inf, found)


def _pow(x1: Any, x2: Any) -> Any:
    """Return x1**x2; where the exponent of a row is 0.5 NumPy takes sqrt, whose -inf and -0.0 are not the standard's.

    Small integer powers are products, as in generated code: NumPy's power takes 300 times as long for negative bases,
    and 5 times for integers; so are squares of complex numbers, as with NumPy's operator. Powers -1 and 0.5 of floats
    are computed by 1 / x and roots, in half the time.
    """
    kind = type(x2)
    if (kind is int or kind is float) and x2 in (-1, 0.5) and type(x1) is np.ndarray and x1.dtype.char in "fd":
        return np.reciprocal(x1) if x2 == -1 else _root(x1)
    whole = (kind is int or kind is float) and x2 in SMALL_POWERS and type(x1) is np.ndarray
    if whole and x1.dtype.char in _AS_PRODUCTS[kind, x2 == 2]:
        result = np.square(x1)
        into = result if type(result) is np.ndarray else None
        return result if x2 == 2 else np.multiply(result, x1 if x2 == 3 else result, into)
    result = np.power(x1, x2)
    exponent = x2.item() if type(x2) is np.ndarray and not x2.ndim else x2
    if type(exponent) is int or (type(exponent) is float and exponent != 0.5):
        return result
    if type(x2) is float and type(x1) is np.ndarray and x1.size and np.minimum.reduce(x1, None) > 0:
        return result
    several = type(x2) is not np.ndarray or x2.shape != np.shape(result) or x2.size == 1 or 0 in x2.strides
    if several and np.asarray(result).dtype.kind == "f" and np.equal(x2, 0.5).any():
        special = np.equal(x2, 0.5) & (np.isinf(x1) | np.equal(x1, 0))
        return np.where(special, np.abs(x1), result) if np.any(special) else result
    return result


_BOOL = np.dtype(bool)
_FEW = 4096  # elements of 8 bytes or more up to which numpy.where takes longer


def _where(condition: Any, x1: Any, x2: Any) -> Any:
    """As numpy.where, but a Python integer that does not fit raises OverflowError, as in every other function."""
    if type(x1) is type(x2) is np.ndarray and x1.dtype == x2.dtype:
        if type(condition) is np.ndarray and condition.dtype is _BOOL and () != condition.shape == x1.shape == x2.shape:
            small = x1.itemsize <= 4 or x1.size <= _FEW
            if small and condition.flags.c_contiguous and x1.flags.c_contiguous and x2.flags.c_contiguous:
                result = x2.copy()
                np.putmask(result, condition, x1)  # up to a third less time
                return result
        return _scalar(np.where(condition, x1, x2))
    dtype = np.result_type(x1, x2)
    operands = [x if isinstance(x, np.ndarray) else np.asarray(x, dtype) for x in (x1, x2)]
    return _scalar(np.where(condition, *operands))


def _real(x: Any) -> Any:
    return _scalar(np.real(x).copy())


def _imag(x: Any) -> Any:
    return _scalar(np.imag(x).copy())


Axes = int | tuple[int, ...] | None


def _mean(x: Any, axis: Axes = None, *, dtype: DType | None = None, keepdims: bool = False) -> Any:
    """Return the mean; NaN over no elements, without NumPy's warning."""
    count = _count(x, axis)
    if not count:
        dtype = dtype or np.mean(np.ones(1, x.dtype)).dtype
        return _nan(_REPAIRED["sum"](x, axis, dtype, keepdims=keepdims))
    if dtype is None and count <= _EXACT.get(x.dtype.char, 0):
        return np.true_divide(_REPAIRED["sum"](x, axis, keepdims=keepdims), float(count))
    return np.mean(x, axis, dtype, keepdims=keepdims)


# The counts up to which a quotient in a dtype itself equals that of numpy.mean, which divides in float64 and rounds.
_EXACT = {"f": 1 << 24, "d": 1 << 53}


def _std(x: Any, axis: Axes = None, **params: Any) -> Any:
    return _spread(np.std, x, axis, params)


def _var(x: Any, axis: Axes = None, **params: Any) -> Any:
    return _spread(np.var, x, axis, params)


def _spread(function: Callable[..., Any], x: Any, axis: Axes, params: dict[str, Any]) -> Any:
    """Return a variance or standard deviation; NaN where the divisor N - correction is not positive (standard)."""
    count = _count(x, axis)
    if count - params.get("correction", 0) > 0:
        return function(x, axis, **params)
    if not count:  # ones in its place, as NumPy warns without elements
        reduced = range(x.ndim) if axis is None else [one % x.ndim for one in np.atleast_1d(axis)]
        x = np.ones(tuple(1 if one in reduced else n for one, n in enumerate(x.shape)), x.dtype)
    return _nan(function(x, axis, **{**params, "correction": 0}))


def _count(x: Any, axis: Axes) -> int:
    if axis is None:
        return int(x.size)
    return prod([x.shape[one] for one in axis]) if isinstance(axis, tuple) else int(x.shape[axis])


def _nan(result: Any) -> Any:
    """Return an array like the result, NaN throughout."""
    return np.full_like(result, complex(np.nan, np.nan) if result.dtype.kind == "c" else np.nan)


def _count_nonzero(x: Any, axis: Axes = None, *, keepdims: bool = False) -> Any:
    """As numpy.count_nonzero, which is fast only if no axes are given."""
    if not keepdims and (axis is None or (isinstance(axis, tuple) and sorted(axis) == list(range(x.ndim)))):
        return np.count_nonzero(x)
    return np.count_nonzero(x, axis, keepdims=keepdims)


# Functions that NumPy computes one element at a time in loops of these types: generated code is ten times as fast.
SLOW = {"sin": "d", "cos": "d", "hypot": "fd", "logaddexp": "fd"}

# Reductions that NumPy computes about as fast as memory allows.
FAST = frozenset(("max", "min", "argmax", "argmin"))

# Reductions call the ufunc directly: numpy.sum and its kin only parse arguments before they do the same.
_REPAIRED: dict[str, Callable[..., Any]] = {
    "sum": np.add.reduce,
    "prod": np.multiply.reduce,
    "max": np.maximum.reduce,
    "min": np.minimum.reduce,
    "any": np.logical_or.reduce,
    "all": np.logical_and.reduce,
    "count_nonzero": _count_nonzero,
    "argmax": np.ndarray.argmax,
    "argmin": np.ndarray.argmin,
    "mean": _mean,
    "std": _std,
    "var": _var,
    "floor_divide": _floor_divide,
    "expm1": _expm1,
    "log1p": _log1p,
    "tanh": _tanh,
    "round": _round,
    "pow": _pow,
    "where": _where,
    "real": _real,
    "imag": _imag,
}

CPU = CPUBackend()


def bits_of(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the bits of an array, in the order of its elements, as the widest integers that fit."""
    flat = x.reshape(-1)
    flat = flat if flat.flags.c_contiguous else flat.copy()
    octets = flat.view(np.uint8) if flat.nbytes else np.empty(0, np.uint8)
    return octets if flat.nbytes % 8 else octets.view(np.uint64)

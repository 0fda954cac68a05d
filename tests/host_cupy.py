"""A stand-in for CuPy where there is no GPU: genuine `cupy.ndarray` objects over host memory, with NumPy's arithmetic.

Buffers, views, strides and pointers are CuPy's own: an `UnownedMemory` with an explicit device id asks no driver. What
would launch a kernel is computed by NumPy instead, after the call was held against CuPy's own signature and dtype
loops, and with CuPy's departures from NumPy put in on purpose (signed zeros lost, indices that wrap, ...), so that a
repair left out is seen. Nothing here shows what a GPU does.

`installed()` puts it in place of CuPy; as a pytest plugin (`-p tests.host_cupy`) it stays for the whole run.
"""

from __future__ import annotations

import ctypes
import inspect
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from importlib import import_module
from importlib.util import find_spec
from itertools import count
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np

MISSING = None if find_spec("cupy") else "cupy is not installed (extra: test-cuda)"
if MISSING is None:
    import cupy as real
    from cupy.cuda import memory

    SPECIAL = dir(import_module("cupyx.scipy.special")) if find_spec("scipy") else []

    class Pointer(memory.MemoryPointer):  # type: ignore[misc]
        """A pointer to host memory, which the host copies."""

        def copy_from_device_async(self, source: Any, nbytes: int, stream: Any = None) -> None:
            ctypes.memmove(self.ptr, source.ptr, nbytes)

else:  # so that the file can be read without CuPy
    real = SimpleNamespace(ndarray=object)

_strict = [False]  # whether cupyx.errstate(linalg="raise") is in force


def _allocate(nbytes: int) -> Any:
    """Return a pointer to host memory that says it lies on device 0."""
    host = np.empty(max(nbytes, 1), np.uint8)
    return Pointer(memory.UnownedMemory(host.ctypes.data, host.size, host, 0), 0)


def seen(a: Any) -> np.ndarray[Any, Any]:
    """Return NumPy's view of an array's memory."""
    if not a.size:
        return np.empty(a.shape, a.dtype)
    reach = [(n - 1) * s for n, s in zip(a.shape, a.strides, strict=True)]
    low, high = sum(min(r, 0) for r in reach), sum(max(r, 0) for r in reach) + a.itemsize
    buffer: Any = (ctypes.c_char * (high - low)).from_address(a.data.ptr + low)
    buffer.owner = a  # the memory lives as long as the view
    return np.ndarray(a.shape, a.dtype, buffer, -low, a.strides)


def made(host: Any, dtype: Any = None) -> Any:
    """Return a fresh array with NumPy's elements."""
    host = np.asarray(host, dtype)
    found = ndarray(host.shape, host.dtype, _allocate(host.nbytes))
    seen(found)[...] = host
    return found


def _inner(value: Any) -> Any:
    """Return arguments as NumPy takes them; NumPy's own arrays are refused, as CuPy refuses them."""
    if isinstance(value, real.ndarray):
        return seen(value)
    if isinstance(value, np.ndarray):
        raise TypeError(f"Unsupported type {type(value)}")
    if isinstance(value, (list, tuple)):
        return type(value)(_inner(one) for one in value)
    return value


def _outer(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_outer(one) for one in value)
    if isinstance(value, list):
        return [_outer(one) for one in value]
    return made(value) if isinstance(value, (np.ndarray, np.generic)) else value


def _wrapped_key(x: np.ndarray[Any, Any], key: Any) -> Any:
    """Return an advanced key of leading arrays with what is out of bounds wrapped around, as CuPy does silently."""
    items = key if isinstance(key, tuple) else (key,)
    if not all(isinstance(item, real.ndarray) and item.dtype.kind in "iu" for item in items):
        return _inner(key)
    return tuple(seen(item) % max(length, 1) for item, length in zip(items, x.shape, strict=False))


class ndarray(real.ndarray):  # noqa: N801
    """A genuine CuPy array; what it computes NumPy computes."""

    __module__ = "cupy"

    def __getitem__(self, key: Any) -> Any:
        if _is_basic(key):
            return super().__getitem__(key)
        return made(seen(self)[_wrapped_key(seen(self), key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        target = seen(self)
        if isinstance(value, np.ndarray) and value.ndim:
            raise TypeError("Implicit conversion to a CuPy array is not allowed")
        inner = seen(value) if isinstance(value, real.ndarray) else value
        if _is_basic(key):
            part = super().__getitem__(key)
            if not isinstance(value, real.ndarray):
                part.fill(value)
            else:
                seen(part)[...] = _saturated(inner, self.dtype)
            return
        native = _wrapped_key(target, key)
        shape = target[native].shape
        inner = np.broadcast_to(_saturated(inner, self.dtype), shape)
        if not isinstance(key, tuple) or all(item.dtype.kind in "iu" for item in key):
            places = np.arange(target.size).reshape(target.shape)[native].reshape(-1)[::-1]
            target.flat[places] = inner.reshape(-1)[::-1]  # of several values for one element the first stays
        else:
            target[native] = inner

    def fill(self, value: Any) -> None:
        value = np.asarray(_inner(value) if not isinstance(value, np.ndarray) else value).astype(self.dtype)
        seen(self)[...] = 0 if value == 0 and self.flags.c_contiguous else value

    def astype(self, dtype: Any, order: str = "K", casting: Any = None, subok: Any = None, copy: bool = True) -> Any:
        if not copy and self.dtype == dtype:
            return self
        return made(_saturated(seen(self), np.dtype(dtype)))

    def reshape(self, *shape: Any, order: str = "C", copy: Any = None) -> Any:
        lengths = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        host = seen(self).reshape(lengths)
        if self.size and not np.shares_memory(host, seen(self)):
            return made(host)
        return super().reshape(host.shape)

    def copy(self, order: str = "C") -> Any:
        host = seen(self).copy(order=order)
        found = ndarray(host.shape, host.dtype, _allocate(host.nbytes), host.strides)
        seen(found)[...] = host
        return found

    def get(self, stream: Any = None, order: str = "C", out: Any = None, blocking: bool = True) -> Any:
        if out is None:
            return seen(self).copy(order="C")
        out[...] = seen(self)
        return out

    @property
    def real(self) -> Any:
        return super().real if self.dtype.kind == "c" else self

    @property
    def imag(self) -> Any:
        return super().imag if self.dtype.kind == "c" else made(seen(self).imag)

    @property
    def device(self) -> Any:
        return _Device(self.data.device_id)

    def item(self, *index: Any) -> Any:
        return seen(self).item(*index)

    def tolist(self) -> Any:
        return seen(self).tolist()

    def __bool__(self) -> bool:
        return bool(seen(self))

    def __int__(self) -> int:
        return int(seen(self))

    def __float__(self) -> float:
        return float(seen(self))

    def __complex__(self) -> complex:
        return complex(seen(self))

    def __repr__(self) -> str:
        return repr(seen(self))

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)

    def __dlpack__(self, **params: Any) -> Any:
        return seen(self).__dlpack__(max_version=params.get("max_version"))

    def nonzero(self) -> Any:
        return _outer(seen(self).nonzero())

    def round(self, decimals: int = 0, out: Any = None) -> Any:
        return made(seen(self).round(decimals))


def _is_basic(key: Any) -> bool:
    items = key if isinstance(key, tuple) else (key,)
    return all(item is None or item is Ellipsis or isinstance(item, (int, slice, np.integer)) for item in items)


def _saturated(host: Any, dtype: Any) -> Any:
    """Convert as CUDA does: out of range to the nearest integer, NaN to 0."""
    host = np.asarray(host)
    if host.dtype.kind != "f" or dtype.kind not in "iu":
        with np.errstate(all="ignore"):
            return host.astype(dtype)
    bounds = np.iinfo(dtype)
    wide = np.nan_to_num(host.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf)
    inside = (wide > bounds.min) & (wide < float(bounds.max))
    found = np.where(inside, wide, 0).astype(dtype)
    return np.where(inside, found, np.where(wide <= bounds.min, bounds.min, np.where(wide > 0, bounds.max, found)))


# ---- functions


def _odd_floor_divide(a: Any, b: Any) -> Any:
    return np.floor_divide(a, b) if a.dtype.kind in "iu" else np.floor(a / b)


def _odd_remainder(a: Any, b: Any) -> Any:
    return np.remainder(a, b) if a.dtype.kind in "iu" else a - np.floor(a / b) * b


def _odd_shift(function: Any) -> Any:
    return lambda a, b: function(a, b & (8 * a.dtype.itemsize - 1))


def _odd_divide(a: Any, b: Any) -> Any:
    """Complex division as in cupy/complex/arithmetic.h."""
    if a.dtype.kind != "c":
        return np.true_divide(a, b)
    scale = 1 / (abs(b.real) + abs(b.imag))
    (p, q), (r, s) = ((x.real * scale, x.imag * scale) for x in (a, b))
    size = r * r + s * s
    return np.stack([(p * r + q * s) / size, (q * r - p * s) / size], axis=-1).view(a.dtype)[..., 0]


def _odd_reciprocal(a: Any) -> Any:
    if a.dtype.kind in "iu":
        return np.where(a == 0, 0, np.reciprocal(np.where(a == 0, 1, a)))
    return _odd_divide(np.ones_like(a), a) if a.dtype.kind == "c" else np.reciprocal(a)


def _odd_nextafter(a: Any, b: Any) -> Any:
    """Of equal zeros the first; float32 as with -ftz=true, where the number next to 0 is the smallest normal one."""
    found = np.where(a == b, a, np.nextafter(a, b))
    return np.where((a == 0) & (a != b), np.copysign(np.finfo("f").tiny, b), found) if a.dtype == "f" else found


def _odd_order(name: str) -> Any:
    """Complex numbers by their real parts, equal ones by the imaginary, whether those are NaN or not."""
    strictly, own = getattr(np, name.removesuffix("_equal")), getattr(np, name)

    def run(a: Any, b: Any) -> Any:
        if a.dtype.kind != "c":
            return own(a, b)
        return strictly(a.real, b.real) | ((a.real == b.real) & own(a.imag, b.imag))

    return run


_ODD_UFUNCS: dict[str, Callable[..., Any]] = {
    "floor_divide": _odd_floor_divide,
    "remainder": _odd_remainder,
    "left_shift": _odd_shift(np.left_shift),
    "right_shift": _odd_shift(np.right_shift),
    "power": lambda a, b: np.power(a, np.full(np.broadcast(a, b).shape, b)),  # NumPy's square root for 0.5 is its own
    "nextafter": _odd_nextafter,
    "reciprocal": _odd_reciprocal,
    **dict.fromkeys(("divide", "true_divide"), _odd_divide),
    **{name: _odd_order(name) for name in ("less", "less_equal", "greater", "greater_equal")},
    "log1p": lambda a: np.log(a + 1) if a.dtype.kind == "c" else np.log1p(a),  # cupy/complex.cuh, as the next
    "expm1": lambda a: np.exp(a) - 1 if a.dtype.kind == "c" else np.expm1(a),
}
_OTHER_SPECIALS = ("log", "log1p", "sqrt", "tanh", "arccosh", "exp", "expm1")


def _ufunc(name: str) -> Callable[..., Any]:
    """Return a ufunc that computes in the loop which CuPy's own would choose."""
    loops = [loop for loop in getattr(real, name).types if "E" not in loop]  # bfloat16, where ml_dtypes is installed
    function = _ODD_UFUNCS.get(name) or getattr(np, name)

    def run(*operands: Any, **params: Any) -> Any:
        assert not params.keys() - {"out", "casting"}, f"cupy.{name} has no {list(params)}"
        given = [_inner(x) for x in operands]
        common = np.result_type(*(x.dtype if isinstance(x, np.ndarray) else x for x in given))
        dtypes = [x.dtype if isinstance(x, np.ndarray) else common for x in given]
        for loop in loops:
            taken, result = loop.split("->")
            if all(np.can_cast(have, to) for have, to in zip(dtypes, taken, strict=True)):
                break
        else:
            raise TypeError(f"Wrong type ({dtypes}) of arguments for cupy_{name}")
        with np.errstate(all="ignore"):
            arrays = [
                np.asarray(x, to) if type(x) is int else _saturated(x, np.dtype(to))  # which raises OverflowError
                for x, to in zip(given, taken, strict=True)
            ]
            found = np.asarray(function(*arrays)).astype(result)
            if name in _OTHER_SPECIALS and found.dtype.kind == "c":
                found = np.where(np.isfinite(arrays[0]) & (arrays[0] != 0), found, complex(np.nan, np.nan))
        out = params.get("out")
        if out is None:
            return made(found)
        assert np.can_cast(found.dtype, out.dtype, params.get("casting", "same_kind")) and out.shape == found.shape
        seen(out)[...] = found
        return out

    run.types = loops  # type: ignore[attr-defined]
    return wraps(getattr(np, name))(run)


def _check(function: Any, args: Any, params: Any) -> None:
    """Raise TypeError where CuPy's function takes no such arguments."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    signature.bind(*args, **params)


def _plain(own: Any, host: Any) -> Callable[..., Any]:
    """Return NumPy's function in the place of CuPy's, of the same arguments."""

    def run(*args: Any, **params: Any) -> Any:
        _check(own, args, params)
        with np.errstate(all="ignore"):
            return _outer(host(*[_inner(a) for a in args], **{k: _inner(v) for k, v in params.items()}))

    return wraps(host)(run)


def _reduction(name: str) -> Callable[..., Any]:
    """No axes are all axes; NaN is passed over."""
    own, host = getattr(real, name), getattr(np, {"max": "fmax", "min": "fmin"}.get(name, name))

    def run(a: Any, axis: Any = None, **params: Any) -> Any:
        _check(own, (a, axis), params)
        axis = None if axis == () else axis
        with np.errstate(all="ignore"):
            if name in ("max", "min"):
                return made(host.reduce(seen(a), axis=axis, **params))
            return made(host(seen(a), axis=axis, **params))

    return run


def _arg(name: str) -> Callable[..., Any]:
    own, fill = getattr(real, name), -np.inf if name == "argmax" else np.inf

    def run(a: Any, axis: Any = None, **params: Any) -> Any:
        _check(own, (a, axis), params)
        host = seen(a)
        return made(
            getattr(np, name)(np.where(np.isnan(host), fill, host) if host.dtype.kind == "f" else host, axis, **params)
        )

    return run


def _of_something(name: str) -> Callable[..., Any]:
    """Refuse what Thrust and cuBLAS do not take: nothing, and arrays without axes."""
    own, host = getattr(real, name), getattr(np, name)
    stable = {"kind": "stable"} if "sort" in name else {}

    def run(*args: Any, **params: Any) -> Any:
        _check(own, args, params)
        params |= stable
        arrays = [a for a in args if isinstance(a, real.ndarray)]
        if not all(a.size and a.ndim for a in arrays) or (name == "matmul" and arrays[0].dtype == bool):
            raise RuntimeError(f"cupy.{name}: an empty array, one without axes, or booleans")
        with np.errstate(all="ignore"):
            return _outer(host(*[_inner(a) for a in args], **{k: _inner(v) for k, v in params.items()}))

    return run


def _asarray(a: Any, dtype: Any = None, order: Any = None, *, blocking: bool = False) -> Any:
    if isinstance(a, real.ndarray):
        return a if dtype in (None, a.dtype) else a.astype(dtype)
    host = np.asarray(a, dtype)
    assert host.dtype.isnative and host.dtype.kind in "biufc", f"cupy.asarray: {host.dtype}"
    assert blocking or host.__array_interface__["data"][0] not in _pinned, "may be written before it is copied"
    found = made(host)
    if not host.ndim:
        found.fill(host)
    return found


def _take(a: Any, indices: Any, axis: Any = None, out: Any = None) -> Any:
    return made(np.take(seen(a), _inner(indices), axis=axis, mode="wrap"))


def _repeat(a: Any, repeats: Any, axis: Any = None) -> Any:
    assert isinstance(repeats, int), "cupy.repeat takes numbers of repetitions from the host"
    return made(np.repeat(seen(a), repeats, axis))


def _where(condition: Any, x: Any = None, y: Any = None) -> Any:
    assert condition.dtype == bool
    assert x.dtype == y.dtype, "cupy.where promotes by rules of its own"
    return made(np.where(*(_inner(one) for one in (condition, x, y))))


def _from_dlpack(x: Any, *, device: Any = None, copy: Any = None) -> Any:
    """Take over a capsule of what says it lies on device 0."""

    class Producer:
        def __dlpack__(self, **params: Any) -> Any:
            return x.__dlpack__(stream=1, max_version=params.get("max_version"))

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    host = np.from_dlpack(Producer())
    whole = memory.UnownedMemory(host.ctypes.data, max(host.nbytes, 1), host, 0)
    return ndarray(host.shape, host.dtype, memory.MemoryPointer(whole, 0), host.strides)


_VIEWS = ("moveaxis", "swapaxes", "broadcast_to", "broadcast_arrays", "expand_dims", "squeeze", "flip", "transpose")


@cache
def module() -> Any:
    """Return the stand-in for the module."""
    stand_in: Any = ModuleType("cupy")
    for name in dir(real):
        own, host = getattr(real, name), getattr(np, name, None)
        if name.startswith("_") or isinstance(own, ModuleType):
            continue
        if isinstance(own, type) or not callable(own) or host is None or name in _VIEWS:
            setattr(stand_in, name, own)
        else:
            setattr(stand_in, name, _ufunc(name) if hasattr(own, "types") else _plain(own, host))
    for name in ("sum", "prod", "any", "all", "max", "min"):
        setattr(stand_in, name, _reduction(name))
    for name in ("argmax", "argmin"):
        setattr(stand_in, name, _arg(name))
    for name in ("sort", "argsort", "cumsum", "cumprod", "matmul"):
        setattr(stand_in, name, _of_something(name))
    stand_in.real, stand_in.imag = (lambda a: a.real), (lambda a: a.imag)
    stand_in.ndarray, stand_in.asarray, stand_in.array = ndarray, _asarray, lambda a: made(seen(a))
    stand_in.take, stand_in.repeat, stand_in.where, stand_in.from_dlpack = _take, _repeat, _where, _from_dlpack
    stand_in.copyto = lambda dst, src, casting="same_kind", where=None: np.copyto(
        seen(dst), _inner(src), casting=casting, where=True if where is None else seen(where)
    )
    stand_in.ascontiguousarray = lambda a: a if a.ndim and a.flags.c_contiguous else made(np.atleast_1d(seen(a)))
    stand_in.cuda = _cuda()
    stand_in.get_default_memory_pool = lambda: SimpleNamespace(free_all_blocks=lambda: None, free_bytes=lambda: 0)
    stand_in.linalg = _submodule("linalg", _linear)
    stand_in.fft = _submodule("fft", _plain)
    tricks = SimpleNamespace(as_strided=lambda x, shape=None, strides=None: ndarray(shape, x.dtype, x.data, strides))
    stand_in.lib = SimpleNamespace(stride_tricks=tricks)
    stand_in.__all__ = [name for name in vars(stand_in) if not name.startswith("_")]
    stand_in.__path__, stand_in.__spec__ = [], real.__spec__
    return stand_in


def _submodule(name: str, wrapper: Callable[..., Any]) -> Any:
    stand_in: Any = ModuleType(f"cupy.{name}")
    for one in dir(getattr(real, name)):
        own, host = getattr(getattr(real, name), one), getattr(getattr(np, name), one, None)
        if not one.startswith("_") and callable(own) and host is not None:
            setattr(stand_in, one, own if isinstance(own, type) else wrapper(own, host))
    stand_in.__all__ = [one for one in vars(stand_in) if not one.startswith("_")]
    return stand_in


def _linear(own: Any, host: Any) -> Callable[..., Any]:
    """A function of linear algebra, which says nothing of singular matrices unless it is asked to."""

    def run(*args: Any, **params: Any) -> Any:
        _check(own, args, params)
        arrays = [_inner(a) for a in args]
        params = {name: _inner(value) for name, value in params.items()}
        if own.__name__ == "solve" and arrays[0].shape[:-1] != arrays[1].shape[:-1]:
            raise ValueError("a must have (..., M, M) shape and b must have (..., M, K)")
        if own.__name__ == "solve" and arrays[0].ndim > 2 and not arrays[0].size:
            raise ZeroDivisionError("division by zero")
        try:
            return _outer(tuple(found) if isinstance(found := host(*arrays, **params), tuple) else found)
        except np.linalg.LinAlgError:
            if _strict[0]:
                raise
            return made(np.full(arrays[-1].shape, np.nan))

    return wraps(host)(run)


class _Device:
    """A device, entered without a driver."""

    def __init__(self, device: Any = None) -> None:
        self.id = int(device or 0)

    compute_capability = "90"

    def __enter__(self) -> _Device:
        _entered.append(self.id)
        return self

    def __exit__(self, *failure: object) -> None:
        _entered.pop()


_entered = [0]  # the last is current


class Stream:
    """A stream that is only a number. waited: its own, those whose events it waits for, and the devices, negative, on
    which it was waited for. captured: what is launched on it while it is captured, else None.
    """

    def __init__(self, pointer: int | None = None, *, non_blocking: bool = False) -> None:
        self.ptr = next(_fresh) if pointer is None else pointer
        self.waited = [self.ptr]
        self.captured: list[Callable[[], None]] | None = None

    def begin_capture(self, mode: Any = None) -> None:
        assert self.ptr and self.captured is None, "cudaErrorStreamCaptureUnsupported"
        self.captured = capturing[self.ptr] = []

    def end_capture(self) -> Graph:
        assert self.captured is not None, "cudaErrorIllegalState"
        graph, self.captured = Graph(self.captured), None
        del capturing[self.ptr]
        return graph

    def is_capturing(self) -> bool:
        return self.captured is not None

    @classmethod
    def from_external(cls, other: Any) -> Stream:
        version, pointer = other.__cuda_stream__()
        assert version == 0
        return cls(pointer)

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.ptr

    def record(self) -> int:
        return self.ptr

    def wait_event(self, event: int) -> None:
        self.waited.append(event)

    def synchronize(self) -> None:
        self.waited.append(-_entered[-1])

    def __enter__(self) -> Stream:
        _streams.append(self)
        return self

    def __exit__(self, *failure: object) -> None:
        _streams.pop()


class Event:
    """An event, which has to be recorded before it is waited for."""

    def __init__(self, disable_timing: bool = False) -> None:
        self._recorded = False

    def record(self, stream: Any = None) -> None:
        self._recorded = True

    def synchronize(self) -> None:
        assert self._recorded


class Graph:
    """What was launched on a stream while it was captured. launched: the kernels of each graph that was launched."""

    launched: ClassVar[list[int]] = []

    def __init__(self, calls: list[Callable[[], None]]) -> None:
        self._calls = calls

    def launch(self, stream: Stream | None = None) -> None:
        pointer = (stream or _streams[-1]).ptr
        if pointer in capturing:
            capturing[pointer] += self._calls
            return
        Graph.launched.append(len(self._calls))
        for call in self._calls:
            call()


_fresh = count(1 << 20)
capturing: dict[int, list[Callable[[], None]]] = {}  # streams that are captured, and what was launched on each
_streams = [Stream(0)]  # the last is current
_pinned: set[int] = set()  # where page-locked memory begins


def _empty_pinned(shape: Any, dtype: Any) -> Any:
    found = np.empty(shape, dtype)
    address = found.__array_interface__["data"][0]
    _pinned.add(address)
    weakref.finalize(found, _pinned.discard, address)
    return found


def _cuda() -> Any:
    return SimpleNamespace(
        Device=_Device,
        memory=memory,
        UnownedMemory=real.cuda.UnownedMemory,
        MemoryPointer=real.cuda.MemoryPointer,
        Stream=Stream,
        Event=Event,
        get_current_stream=lambda device=-1: _streams[-1],
        pinned_memory=SimpleNamespace(is_memory_pinned=lambda address: address in _pinned),
        runtime=SimpleNamespace(
            getDeviceCount=lambda: 1,
            CUDARuntimeError=real.cuda.runtime.CUDARuntimeError,
            getDevice=lambda: _entered[-1],
        ),
    )


@contextmanager
def _errstate(*, linalg: str) -> Iterator[None]:
    before, _strict[0] = _strict[0], linalg == "raise"
    yield
    _strict[0] = before


def install() -> None:
    """Put the stand-in in the place of CuPy, for this process; no kernel of xtensor's runs on it."""
    from xtensor.codegen.cuda import library

    stand_in = module()
    library._without.update((0, name) for name in library.names())
    real.cuda.set_allocator(_allocate)
    sys.modules.update({"cupy": stand_in, "cupy.linalg": stand_in.linalg, "cupy.fft": stand_in.fft})
    sys.modules["cupyx"] = SimpleNamespace(errstate=_errstate, empty_pinned=_empty_pinned)  # type: ignore[assignment]
    if find_spec("scipy"):
        sys.modules["cupyx.scipy.special"] = _special()
    for name in [name for name in sys.modules if name.startswith("array_api_compat.cupy")]:
        del sys.modules[name]


def _special() -> Any:
    """Return a stand-in for CuPy's special functions: SciPy's, of those names that CuPy has."""
    import scipy.special

    names = [name for name in SPECIAL if name[0] != "_" and hasattr(scipy.special, name)]
    return SimpleNamespace(**{name: _hosted(getattr(scipy.special, name)) for name in names})


def _hosted(function: Any) -> Any:
    """Return a function of NumPy's arrays as one of the stand-in's."""

    def call(*args: Any) -> Any:
        with np.errstate(all="ignore"):
            return _outer(function(*map(_inner, args)))

    call.types = getattr(function, "types", ())  # type: ignore[attr-defined]
    return call


def pytest_load_initial_conftests() -> None:
    """As a plugin: in place for the whole run, before any other file of tests is read."""
    install()


@contextmanager
def installed(driver: bool = False) -> Iterator[Any]:
    """Put the stand-in in the place of CuPy inside a `with` block, and give it. driver: whether something in the place
    of CUDA's driver loads kernels; else none is built.
    """
    from xtensor import devices
    from xtensor.codegen.cuda import library, nvrtc

    def refused(*_: Any) -> Any:
        raise nvrtc.LoadError("a driver")

    building = nvrtc.function_of
    nvrtc.function_of = building if driver else refused
    before = {name: module for name, module in sys.modules.items() if _is_ours(name)}
    known = dict(devices.known_devices)
    install()
    try:
        yield module()
    finally:
        nvrtc.function_of = building
        for name in [name for name in sys.modules if _is_ours(name)]:
            del sys.modules[name]
        sys.modules.update(before)
        real.cuda.set_allocator(real.get_default_memory_pool().malloc)
        library.forget()
        devices.known_devices.clear()
        devices.known_devices.update(known)


def _is_ours(name: str) -> bool:
    return name.partition(".")[0] in ("cupy", "cupyx") or name.startswith("array_api_compat.cupy")


def _operator(name: str, function: str, *, swapped: bool = False) -> Any:
    def run(self: Any, other: Any = None) -> Any:
        compute = getattr(module(), function)
        if other is None:
            return compute(self)
        return compute(other, self) if swapped else compute(self, other)

    run.__name__ = name
    return run


_OPERATORS = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "true_divide", "floordiv": "floor_divide",
    "mod": "remainder", "pow": "power", "lshift": "left_shift", "rshift": "right_shift", "and": "bitwise_and",
    "or": "bitwise_or", "xor": "bitwise_xor",
}  # fmt: skip
_COMPARISONS = {
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
}


def _inplace(function: str) -> Any:
    def run(self: Any, other: Any) -> Any:
        seen(self)[...] = seen(getattr(module(), function)(self, other))
        return self

    return run


if MISSING is None:
    for _name, _function in _OPERATORS.items():
        setattr(ndarray, f"__{_name}__", _operator(_name, _function))
        setattr(ndarray, f"__r{_name}__", _operator(_name, _function, swapped=True))
        setattr(ndarray, f"__i{_name}__", _inplace(_function))
    for _name, _function in _COMPARISONS.items():
        setattr(ndarray, f"__{_name}__", _operator(_name, _function))
    for _name, _function in (("neg", "negative"), ("invert", "invert"), ("abs", "absolute"), ("pos", "positive")):
        setattr(ndarray, f"__{_name}__", _operator(_name, _function))
    for _name in ("sum", "prod", "any", "all", "max", "min"):
        setattr(
            ndarray,
            _name,
            lambda self, axis=None, _name=_name, **params: getattr(module(), _name)(self, axis, **params),
        )
    ndarray.__hash__ = None

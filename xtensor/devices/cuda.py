"""The CUDA backend: CuPy on one device. CuPy is imported when a CUDA device is first asked for.

Work runs on CuPy's current stream and in CuPy's memory pool. Where CuPy and the standard differ stands in
cuda_repairs.py and cuda_keys.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np

from ..base.dtypes import DType
from ..base.errors import expected, of_device, one_of
from ..base.layout import Layout, Shape
from ..base.profiling import LIBRARY, WAIT, noted, observers
from . import cuda_kernels as kernels
from . import cuda_keys as keys
from . import cuda_repairs as repairs
from .cpu import CPU
from .cuda_memory import again, bare, pinned

INSTALL = "pip install 'xtensor[cuda13]', or 'xtensor[cuda12]' where the driver is older than CUDA 13"


def load(function: str, name: str) -> CUDA:
    """Return the backend of "cuda:N"; raises ValueError where it cannot be used, saying what is missing."""
    number = int(name.partition(":")[2])
    try:
        import cupy as cp

        known = cp.cuda.runtime.getDeviceCount()
    except ImportError as error:  # CuPy, or a library it was built for
        must = f"be usable, which takes CuPy ({INSTALL}); importing it says: {error}"
        raise ValueError(expected(function, "device", must, repr(name))) from error
    except Exception as error:  # CUDARuntimeError: there is no driver, it is too old, or it sees no device
        must = f"be usable, which takes a CUDA device and its driver ({INSTALL}); CUDA says: {error}"
        raise ValueError(expected(function, "device", must, repr(name))) from error
    if number >= known:
        choices = one_of([f"cuda:{one}" for one in range(known)])
        raise ValueError(expected(function, "device", choices, repr(name)))
    return CUDA(number, cp)


def count() -> int:
    """Return how many CUDA devices can be used: none without CuPy, a driver or a device."""
    try:
        import cupy as cp

        return int(cp.cuda.runtime.getDeviceCount())
    except Exception:  # whatever a missing or broken installation raises: its devices cannot be used
        return 0


class CUDA:
    """CuPy as xtensor's device `cuda:number`."""

    def __init__(self, number: int, library: Any = None) -> None:
        self.number = number
        self.library = library or import_module("cupy")
        self.dlpack_device = (2, number)

    def __repr__(self) -> str:
        return f"CUDA({self.number})"

    @cached_property
    def _current(self) -> Callable[[], int]:
        """What returns the number of the device that is current in this thread."""
        current: Callable[[], int] = self.library.cuda.runtime.getDevice
        return current

    @cached_property
    def xp(self) -> Any:
        import array_api_compat.cupy

        compat: Any = array_api_compat.cupy
        linear: Any = Namespace(self.library, compat.linalg, repairs.LINALG, self._strictly)
        main: Any = Namespace(self.library, compat, repairs.FUNCTIONS)
        main.linalg = linear
        return main

    def _strictly(self, function: Callable[..., Any], *args: Any, **params: Any) -> Any:
        """Call a function of linear algebra so that what cannot be inverted or factorised raises; CuPy ignores it."""
        import cupyx

        with cupyx.errstate(linalg="raise"):
            return function(*args, **params)

    # ---- memory

    def allocate(self, nbytes: int) -> Any:
        return self.compute(self.library.empty, (nbytes,), np.uint8)

    def lend(self, nbytes: int) -> tuple[Any, int]:
        memory = self.allocate(nbytes)
        return memory, memory.data.ptr

    def free_memory(self) -> int:
        free: int = self.call(self.library.cuda.runtime.memGetInfo)[0]
        return free + int(self.call(self.library.get_default_memory_pool().free_bytes))

    def cut(self, memory: Any, address: int, nbytes: int) -> Any:
        return memory

    def zeros(self, shape: Shape, dtype: DType) -> Any:
        return self.compute(self.library.zeros, shape, dtype)

    def view(self, storage: Any, dtype: DType, layout: Layout, writeable: bool) -> Any:
        """Return an array over part of a storage; CuPy knows no read-only ones, the TBlob does."""
        offset = layout.offset if layout.size else 0
        return self.library.ndarray(layout.shape, dtype, storage.data + offset, layout.strides)

    def storage_of(self, native: Any) -> tuple[Any, Layout]:
        layout = Layout(native.shape, native.strides)
        low, high = layout.extent(native.dtype.itemsize) if native.size else (0, 0)
        storage = self.library.ndarray((high - low,), np.uint8, native.data + low)
        return storage, Layout(native.shape, native.strides, -low)

    def compute(self, kernel: Any, *natives: Any, **params: Any) -> Any:
        """Call what makes new arrays and writes to no others: once more where there was no room for them."""
        try:
            if self._current() == self.number:  # as in `call`, which would be one more
                return kernel(*natives, **params)
            return self.call(kernel, *natives, **params)
        except MemoryError as error:
            refused = bare(self._said(error))
        except RuntimeError as error:
            raise self._said(error)  # noqa: B904 - it has its cause
        return again(self, refused, partial(kernel, *natives, **params))

    def borrowed(self, native: Any) -> None:
        return None

    def handed_out(self, storage: Any) -> None:
        return None

    def owns(self, native: Any) -> bool:
        return isinstance(native, self.library.ndarray) and native.data.device_id == self.number

    def host(self, native: Any) -> Any:
        """Return a NumPy array with a native array's elements, in page-locked memory where there is some."""
        if not observers:
            return self.compute(self._host, native)
        with noted(WAIT, "cuda", ("copy to the host, after all that was launched",), native.nbytes):
            return self.compute(self._host, native)

    def _host(self, native: Any) -> Any:
        packed = self.library.ascontiguousarray(native).reshape(native.shape)
        return packed.get(out=pinned(self.library, native.shape, native.dtype))

    def asarray(self, value: Any, dtype: DType | None = None) -> Any:
        """Return a host value, or an array of this or another CUDA device, as a native array of this one."""
        cp = self.library
        if self.owns(value):
            return value if dtype is None or dtype == value.dtype else self.astype(value, dtype)
        if isinstance(value, cp.ndarray):
            value = self._from_beside(value)
        if not observers:
            return self.compute(repairs.asarray, cp, value, dtype)
        with noted(LIBRARY, "cuda", ("copy to the device",), getattr(value, "nbytes", 0)):
            return self.compute(repairs.asarray, cp, value, dtype)

    def _from_beside(self, value: Any) -> Any:
        """Copy an array of another device. CuPy does not wait for what makes it, nor its memory for the copy."""
        cuda = self.library.cuda
        with value.device:
            cuda.get_current_stream().synchronize()
        copy = self.compute(self.library.array, value)
        self.call(lambda: cuda.get_current_stream().synchronize())
        return copy

    def astype(self, native: Any, dtype: DType) -> Any:
        return self.compute(repairs.astype, self.library, native, dtype)

    def packed(self, native: Any) -> Any:
        found = self.compute(kernels.copied, self.library, native)
        return self.compute(native.copy) if found is native else found

    # ---- elements

    def element(self, native: Any) -> Any:
        """Return a copy of an array without axes: bytes are moved, which is less to ask for than a kernel."""
        return self.compute(self._element, native)

    def _element(self, native: Any) -> Any:
        found = self.library.ndarray((), native.dtype)
        found.data.copy_from_device_async(native.data, native.itemsize)
        return found

    def put_element(self, native: Any, key: Any, value: Any) -> None:
        """Assign an array without axes, of the same dtype and in other memory, to a basic key."""
        target = native[key]
        if target.ndim:
            target[...] = value
        else:  # bytes again
            target.data.copy_from_device_async(value.data, value.itemsize)

    def index(self, native: Any, key: Any) -> Any:
        return self.compute(keys.get, self.library, native, key)

    def assign(self, native: Any, key: Any, value: Any) -> None:
        """Assign to a basic or an advanced key; raises IndexError for one that is out of bounds."""
        cp = self.library
        if not isinstance(value, cp.ndarray):
            value = CPU.call(_number, value, native.dtype)
            if _is_basic(key) and (value[0] or not str(value[0]).count("-")):  # CuPy's fill forgets the sign of zero
                value = value[0]
            else:
                value = self.asarray(value)
        elif native.dtype.kind in "iu" and value.dtype.kind == "f":
            value = self.astype(value, native.dtype)
        if _is_basic(key):
            if not (isinstance(value, cp.ndarray) and value.ndim > 1 and self._turned(native[key], value)):
                self.call(native.__setitem__, key, value)
        else:
            self.call(keys.put, cp, native, key, value)

    def _turned(self, target: Any, value: Any) -> bool:
        """Assign an array that lies along other axes than its target; return whether it does."""
        alike = value.dtype == target.dtype and value.shape == target.shape
        return alike and bool(self.call(kernels.turned, value, target))

    def add_at(self, native: Any, key: Any, values: Any) -> None:
        self.call(keys.add, self.library, native, key, values)

    # ---- functions

    def kernel(self, name: str) -> Callable[..., Any] | None:
        repaired = repairs.KERNELS.get(name)
        return getattr(self.library, name, None) if repaired is None else partial(repaired, self.library)

    def special(self, function: str) -> Any:
        return repairs.special(self.library, import_module("cupyx.scipy.special"), function)

    def call(self, function: Callable[..., Any], *args: Any, **params: Any) -> Any:
        try:
            if self._current() == self.number:  # which costs a fifth of entering it
                return function(*args, **params)
            with self.library.cuda.Device(self.number):
                return function(*args, **params)
        except (MemoryError, RuntimeError) as error:
            raise self._said(error)  # noqa: B904 - it has its cause

    def _said(self, error: Any) -> Any:
        """Return an error of CuPy's or of the driver's with the name of this device; any other as it is."""
        named: Exception
        if isinstance(error, self.library.cuda.memory.OutOfMemoryError):
            named = MemoryError(f"cuda:{self.number}: {error}")
            named.__suppress_context__ = True
        elif isinstance(error, RuntimeError) and "CUDA headers" in str(error) and error.__cause__ is None:
            named = RuntimeError(f"cuda:{self.number}: CuPy finds no CUDA headers ({INSTALL})")
            named.__cause__ = error
        else:
            return of_device(self.number, error)
        return named

    def current_stream(self) -> Any:
        """Return CuPy's current stream of this device."""
        return self.library.cuda.get_current_stream(self.number)

    def graph(self, launch: Callable[[int], None]) -> Any:
        """Return a CUDA graph of what a function launches on a stream, whose number it is given; nothing of it runs."""
        return self.call(self._graph, launch)

    def _graph(self, launch: Callable[[int], None]) -> Any:
        stream = self.library.cuda.Stream(non_blocking=True)  # the null stream records nothing
        with stream:
            stream.begin_capture()
            try:
                launch(stream.ptr)
            finally:
                graph = stream.end_capture()
        return graph

    def architecture(self) -> str:
        """Return what NVRTC calls this device's kind: "sm_90"."""
        return f"sm_{self.library.cuda.Device(self.number).compute_capability}"

    # ---- DLPack

    def on_stream(self, stream: Any, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function on a stream, which first waits for the current one.

        stream: a number, or an object of any library with `__cuda_stream__`, cupy.cuda.Stream say.
        """
        return self.call(self._on_stream, stream, function, *args)

    def _on_stream(self, stream: Any, function: Callable[..., Any], *args: Any) -> Any:
        cuda = self.library.cuda
        named = SimpleNamespace(__cuda_stream__=lambda: (0, stream)) if isinstance(stream, int) else stream
        own = cuda.Stream.from_external(named)
        own.wait_event(cuda.get_current_stream().record())
        with own:
            return function(*args)

    def from_dlpack(self, x: Any) -> Any:
        """Return an array over another library's memory; its work is waited for by CuPy's current stream."""
        return self.call(self.library.from_dlpack, x)


class Namespace:
    """A namespace of array-api-compat with the functions of a table in place of its own."""

    def __init__(
        self, library: Any, base: Any, table: dict[str, Callable[..., Any]], around: Callable[..., Any] | None = None
    ) -> None:
        self._library = library
        self._base = base
        self._table = table
        self._around = around

    def __getattr__(self, name: str) -> Any:
        repaired = self._table.get(name)
        function = getattr(self._base, name) if repaired is None else partial(repaired, self._library)
        found = function if self._around is None else partial(self._around, function)
        setattr(self, name, found)
        return found


def _number(value: Any, dtype: DType) -> Any:
    """Return one number as an array of one element; raises what NumPy raises for one that cannot be assigned."""
    found = np.empty(1, dtype)
    found[0] = value
    return found


def _is_basic(key: Any) -> bool:
    items = key if isinstance(key, tuple) else (key,)
    return all(item is None or item is Ellipsis or type(item) in (int, slice) for item in items)

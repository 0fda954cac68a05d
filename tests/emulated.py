"""A CUDA device that is emulated: CuPy's arrays over host memory, NVRTC's PTX in place of machine code, and the
interpreter of tests/ptx in place of the driver, which is asked what CuPy's would be.

`device()` gives it inside a `with` block. What is tested so is the text that xtensor writes, what NVRTC makes of it,
and how it is launched and on which memory; nothing of a GPU.
"""

from __future__ import annotations

import ctypes
import struct
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from threading import get_ident
from types import SimpleNamespace
from typing import Any

import host_cublas
import host_cufft
import host_cupy
import numpy as np
import ptx
from ptx import build
from ptx.memory import Global

import xtensor as xt
from xtensor.autograd import rules
from xtensor.codegen.cuda import library as cuda_library
from xtensor.codegen.cuda import nvrtc as cuda_build
from xtensor.devices import cublas, cufft
from xtensor.plan import fusion, program
from xtensor.run import replay

MISSING = host_cupy.MISSING or build.missing()

# Shared memory of a block, with what its code declares: without asking, and at most (compute capability 9.0).
PLAIN_SHARED, MOST_SHARED = 48 << 10, 227 << 10

# Every allocation that is alive; xtensor may keep constants from one use of the device to the next.
_memory: dict[int, weakref.ref[Any]] = {}

# What was loaded: a function's pointer is its place from 1 on. Programs keep what they loaded from one use to the next.
_codes: list[bytes] = []


class Launches:
    """What was launched, and the parts of CuPy that load and launch, with an interpreter in the driver's place.

    grids: of what was launched kernel by kernel; graphs: the kernels of each graph. instructions: that threads
    executed, those that were idle meanwhile among them. threads: those that have the device's context. limits: how much
    shared memory functions were allowed.
    """

    cublas: host_cublas.Library
    cufft: host_cufft.Library

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.grids: list[tuple[tuple[int, ...], int, int]] = []
        self.instructions = 0
        self.threads: set[int] = set()
        self.limits: dict[int, int] = {}
        self.parts = {
            "driver": SimpleNamespace(launchKernel=self.launch, funcSetAttribute=self.allow),
            "runtime": SimpleNamespace(getDevice=lambda: 0, memGetInfo=lambda: self.threads.add(get_ident())),
            "function": SimpleNamespace(Module=Module),
        }

    def allocate(self, nbytes: int) -> Any:
        """Return a pointer to host memory between margins, which belong to nobody."""
        host = np.full(max(nbytes, 1) + 1024, 0xA5, np.uint8)
        start = -host.ctypes.data % 512
        own = host[start : start + max(nbytes, 1)]
        _memory[own.ctypes.data] = weakref.ref(own)
        memory = host_cupy.memory.UnownedMemory(own.ctypes.data, own.size, own, 0)
        return host_cupy.Pointer(memory, 0)

    def named(self, words: Sequence[int]) -> list[np.ndarray[Any, Any]]:
        """Return the allocations that some of the numbers point into."""
        found = []
        for address, reference in list(_memory.items()):
            own = reference()
            if own is None:
                del _memory[address]
            elif any(address <= word <= address + own.size for word in words):
                found.append(own)
        return found

    def allow(self, pointer: int, attribute: int, value: int) -> None:
        """Let a function have more shared memory, as the driver does."""
        assert attribute == host_cupy.real.cuda.driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        self.limits[pointer] = value

    def launch(self, pointer: int, *sizes_and_addresses: int) -> None:
        """Run a kernel of PTX as cuLaunchKernel would: on what lies at the addresses of its parameters."""
        *grid, block, height, depth, shared, stream, parameters, extra = sizes_and_addresses
        module = module_of(_codes[pointer - 1])
        kernel = module.functions["kernel"]
        assert get_ident() in self.threads, "no context in this thread"
        assert (height, depth, extra) == (1, 1, 0)
        assert shared + kernel.shared_bytes <= max(PLAIN_SHARED, self.limits.get(pointer, 0) + kernel.shared_bytes)
        assert shared + kernel.shared_bytes <= MOST_SHARED
        at = (ctypes.c_void_p * len(kernel.params)).from_address(parameters)
        arguments = [ctypes.string_at(one, param.size) for one, param in zip(at, kernel.params, strict=True)]
        run = partial(self.run, module, grid, block, shared, arguments)
        if stream in host_cupy.capturing:
            host_cupy.capturing[stream].append(run)
            return
        assert stream == host_cupy._streams[-1].ptr
        self.grids.append(((grid[0], grid[1]), block, shared))
        run()

    def run(self, module: ptx.Module, grid: list[int], block: int, shared: int, arguments: list[bytes]) -> None:
        """Run a kernel on the allocations that it is told of, also by a table of addresses."""
        packed = b"".join(arguments)
        words = struct.unpack(f"{len(packed) // 8}Q", packed[: len(packed) // 8 * 8])
        tables = [] if not words or not words[0] else self.named(words[:1])
        entries = [entry for table in tables for entry in table[: table.size // 8 * 8].view(np.uint64).tolist()]
        steps = module.run("kernel", grid, block, arguments, shared, self.named([*words, *entries]))
        self.instructions += steps * min(max(ptx.machine.LANES // block, 1), grid[0] * grid[1]) * block

    @property
    def graphs(self) -> list[int]:
        return host_cupy.Graph.launched


class Traffic:
    """Bytes that emulated threads read and write in memory outside their processors."""

    def __init__(self, monkeypatch: Any) -> None:
        self.read = self.written = 0
        load, store = Global.load, Global.store

        def loading(memory: Any, addresses: Any, bits: Any, count: int, *others: Any) -> Any:
            self.read += addresses.size * bits.itemsize * count
            return load(memory, addresses, bits, count, *others)

        def storing(memory: Any, addresses: Any, values: Any, *others: Any) -> None:
            self.written += values.nbytes
            store(memory, addresses, values, *others)

        monkeypatch.setattr(Global, "load", loading)
        monkeypatch.setattr(Global, "store", storing)


class Module:
    """cupy.cuda.function.Module of PTX."""

    def load(self, code: bytes) -> None:
        self.code = code

    def get_function(self, name: str) -> Any:
        assert name in module_of(self.code).functions
        _codes.append(self.code)
        return SimpleNamespace(ptr=len(_codes))


@lru_cache(maxsize=64)  # a module is many times as large as its text
def module_of(code: bytes) -> ptx.Module:
    """Return PTX ready to run."""
    return ptx.Module(code)


def empty(shape: Any, dtype: Any = float) -> Any:
    """Return an array of bytes that nobody wrote, which look like it."""
    shape = shape if isinstance(shape, tuple) else (shape,)
    return host_cupy.made(np.full((*shape, np.dtype(dtype).itemsize), 0xA5, np.uint8).view(dtype).reshape(shape))


@contextmanager
def device(architecture: str = "compute_90", lazy: str = "always") -> Iterator[Launches]:
    """Make "cuda:0" an emulated device, and give the list of what is launched on it."""
    from xtensor.devices import cuda

    launches = Launches()
    launches.cublas, multiplying = host_cublas.made()
    launches.cufft, transforming = host_cufft.made()
    before = cuda_build.launch, cuda_build._cuda, cuda.CUDA.architecture, host_cupy._allocate
    libraries = cublas.found, cufft.found
    launch, parts, *_ = before

    def seen(function: cuda_build.Function, *others: Any) -> None:
        launches.texts.append(function.text)
        launch(function, *others)

    cublas.found, cufft.found = lambda: multiplying, lambda: transforming  # type: ignore[assignment]
    cuda_build.launch = seen
    cuda_build._cuda = lambda part: launches.parts.get(part) or parts(part)  # type: ignore[assignment]
    cuda.CUDA.architecture = lambda self: architecture  # type: ignore[method-assign]
    host_cupy._allocate = launches.allocate
    try:
        with host_cupy.installed(driver=True) as library, xt.options(cache_dir="", lazy=lazy):
            library.empty = empty
            as_a_new_device()
            rules._ones.clear()  # a constant of another stand-in's memory is nobody's here
            yield launches
    finally:
        as_a_new_device()
        cuda_build.launch, cuda_build._cuda, cuda.CUDA.architecture, host_cupy._allocate = before
        cublas.found, cufft.found = libraries


def as_in_another_process() -> None:
    """Forget kernels, and what programs have prepared and noted, so that a test counts from nothing."""
    cuda_build.forget()
    for made in list(program._programs.values()):
        made.notes.clear()
    for one in [*fusion._plans.values(), *[known.plan for known in replay._known.values()]]:
        one.schedules.clear()
        for kernel in one.kernels:  # also of programs that others have taken the room of
            kernel.program.notes.clear()


def as_a_new_device() -> None:
    """Forget kernels, that there were none, and which threads have the device's context."""
    as_in_another_process()
    cuda_library.forget()
    cuda_build._bound = cuda_build._Bound()

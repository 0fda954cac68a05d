"""A CUDA device that is emulated: CuPy's arrays over host memory, NVRTC's PTX in place of machine code, and the
interpreter of tests/ptx in place of the driver's launch.

`device()` gives it inside a `with` block. What is tested so is the text that xtensor writes, what NVRTC makes of it,
and how it is launched and on which memory; nothing of a GPU.
"""

from __future__ import annotations

import struct
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import host_cupy
import numpy as np
import ptx
from ptx import build

import xtensor as xt
from xtensor import autograd
from xtensor.lazy import cuda_build

MISSING = host_cupy.MISSING or build.missing()


# Every allocation that is alive; xtensor may keep constants from one use of the device to the next.
_memory: dict[int, weakref.ref[Any]] = {}


class Launches:
    """What was launched."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.grids: list[tuple[tuple[int, ...], int, int]] = []
        self.steps = 0

    def allocate(self, nbytes: int) -> Any:
        """Return a pointer to host memory between margins, which belong to nobody."""
        host = np.full(max(nbytes, 1) + 1024, 0xA5, np.uint8)
        start = -host.ctypes.data % 512
        own = host[start : start + max(nbytes, 1)]
        _memory[own.ctypes.data] = weakref.ref(own)
        memory = host_cupy.memory.UnownedMemory(own.ctypes.data, own.size, own, 0)
        return host_cupy.memory.MemoryPointer(memory, 0)

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

    def launch(
        self,
        function: cuda_build.Function,
        grid: tuple[int, int],
        block: int,
        shared_bytes: int,
        arguments: Sequence[bytes],
        stream: int,
    ) -> None:
        """Run a kernel of PTX, in place of cuda_build.launch."""
        self.texts.append(function.text)
        self.grids.append((grid, block, shared_bytes))
        packed = b"".join(bytes(argument) for argument in arguments)
        words = struct.unpack(f"{len(packed) // 8}Q", packed[: len(packed) // 8 * 8])
        self.steps += module_of(function.module).run(
            "kernel", grid, block, list(arguments), shared_bytes, self.named(words)
        )


@lru_cache(maxsize=8)  # a module is some hundred times as large as its text
def module_of(code: bytes) -> ptx.Module:
    """Return PTX ready to run."""
    return ptx.Module(code)


def load(code: bytes, number: int, text: str) -> cuda_build.Function:
    """Take PTX for machine code, in place of cuda_build.load."""
    return cuda_build.Function(0, code, number, text)


def empty(shape: Any, dtype: Any = float) -> Any:
    """Return an array of bytes that nobody wrote, which look like it."""
    shape = shape if isinstance(shape, tuple) else (shape,)
    return host_cupy.made(np.full((*shape, np.dtype(dtype).itemsize), 0xA5, np.uint8).view(dtype).reshape(shape))


@contextmanager
def device(architecture: str = "compute_90") -> Iterator[Launches]:
    """Make "cuda:0" an emulated device, and give the list of what is launched on it."""
    from xtensor.devices import cuda

    launches = Launches()
    before = cuda_build.launch, cuda_build.load, cuda.CUDA.architecture, host_cupy._allocate
    cuda_build.launch, cuda_build.load = launches.launch, load
    cuda.CUDA.architecture = lambda self: architecture  # type: ignore[method-assign]
    host_cupy._allocate = launches.allocate
    try:
        with host_cupy.installed() as library, xt.options(cache_dir="", lazy="always"):
            library.empty = empty
            cuda_build.forget()
            autograd._ones.clear()  # a constant of another stand-in's memory is nobody's here
            yield launches
    finally:
        cuda_build.forget()
        cuda_build.launch, cuda_build.load, cuda.CUDA.architecture, host_cupy._allocate = before

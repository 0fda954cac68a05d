"""cuBLAS at its own address: matrix products on any stream, also on one that records a CUDA graph, on which CuPy's own
functions do not call it.

The library and the handle are CuPy's; so are the functions that are called, but for stacks of matrices.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from ctypes import c_int, c_longlong, c_void_p
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

# How cuBLAS takes a matrix: as it lies by columns, transposed, transposed and conjugated.
PLAIN, TURNED, CONJUGATED = 0, 1, 2

# The letters of its functions, by dtype.
LETTERS = {"f": "S", "d": "D", "F": "C", "D": "Z"}

# Scratch memory of a graph's products, as NVIDIA recommends it for the devices that need most. Without it cuBLAS would
# choose slower functions, or allocate while it is recorded.
WORKSPACE = 32 << 20

# What the library is called, in the releases that CuPy loads.
RELEASES = "libcublas.so.13", "libcublas.so.12"

# The status that says there was no memory.
_NO_MEMORY = 3


class Gemm(NamedTuple):
    """A product of stacks of matrices by columns, a @ b = c, without addresses.

    ways: how a and b are taken. sizes: rows, columns, terms. leads: of a, b and c, elements from column to column;
    steps: from matrix to matrix. many: the matrices of a stack.
    """

    char: str
    ways: tuple[int, int]
    sizes: tuple[int, int, int]
    leads: tuple[int, int, int]
    steps: tuple[int, int, int]
    many: int


class Cublas:
    """The functions of the library that CuPy has loaded. handle: gives the one of this thread and device; wait: raises
    what has befallen the device.
    """

    def __init__(self, library: Any, handle: Callable[[], int], wait: Callable[[], object]) -> None:
        self._handle, self._wait = handle, wait
        self._set_stream, self._set_workspace = library.cublasSetStream_v2, library.cublasSetWorkspace_v2
        self._set_stream.argtypes = [c_void_p, c_void_p]
        self._set_workspace.argtypes = [c_void_p, c_void_p, ctypes.c_size_t]
        self._single, self._stacked = dict[str, Any](), dict[str, Any]()
        self._numbers = {char: np.array([1, 0], char) for char in LETTERS}  # what products and results count
        begins = {char: numbers.ctypes.data for char, numbers in self._numbers.items()}
        self._places = {char: (begin, begin + self._numbers[char].itemsize) for char, begin in begins.items()}
        for char, letter in LETTERS.items():
            single, stacked = (getattr(library, f"cublas{letter}gemm{name}") for name in ("_v2", "StridedBatched"))
            begin = [c_void_p, c_int, c_int, c_int, c_int, c_int, c_void_p]
            single.argtypes = [*begin, *(c_void_p, c_int) * 2, c_void_p, c_void_p, c_int]
            stacked.argtypes = [
                *begin,
                *(c_void_p, c_int, c_longlong) * 2,
                c_void_p,
                c_void_p,
                c_int,
                c_longlong,
                c_int,
            ]
            self._single[char], self._stacked[char] = single, stacked

    def multiply(self, gemm: Gemm, places: Sequence[int], stream: int, workspace: int) -> None:
        """Multiply what lies at the places of a and b into c, on a stream of the current device.

        workspace: scratch memory of WORKSPACE bytes, 0 for the library's own. Raises MemoryError and RuntimeError.
        """
        handle, (a, b, c) = self._handle(), places
        self._check(self._set_stream(handle, stream))
        if workspace:
            self._check(self._set_workspace(handle, workspace, WORKSPACE))
        char, ways, sizes, (of_a, of_b, of_c), (next_a, next_b, next_c), many = gemm
        one, zero = self._places[char]
        if many == 1:
            status = self._single[char](handle, *ways, *sizes, one, a, of_a, b, of_b, zero, c, of_c)
        else:
            own = (a, of_a, next_a, b, of_b, next_b, zero, c, of_c, next_c, many)
            status = self._stacked[char](handle, *ways, *sizes, one, *own)
        self._check(status)

    def _check(self, status: int) -> None:
        if status == _NO_MEMORY:
            raise MemoryError("cuBLAS has no memory")
        if status:
            self._wait()
            raise RuntimeError(f"cuBLAS says status {status} of a matrix product")


@cache
def found() -> Cublas | None:
    """Return the library; None where it is not known how to call it, or CuPy is told to round as TF32."""
    if os.environ.get("CUPY_TF32", "0") != "0" or not hasattr(os, "RTLD_NOLOAD"):
        return None
    try:
        cuda = import_module("cupy.cuda")
        cuda.cublas.gemmEx  # noqa: B018 - which loads the library
        return Cublas(loaded(RELEASES), cuda.device.get_cublas_handle, cuda.runtime.deviceSynchronize)
    except (ImportError, OSError, AttributeError):
        return None


def loaded(names: Sequence[str]) -> ctypes.CDLL:
    """Return the first library of some that is loaded; raises OSError where none is."""
    for name in names:
        with suppress(OSError):
            return ctypes.CDLL(name, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    raise OSError(f"none of {names} is loaded")

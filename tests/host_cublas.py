"""cuBLAS where there is no GPU: its functions under their own names, with NumPy's products of host memory.

They take what the library's functions take (cuBLAS documentation, cublas<t>gemm and cublas<t>gemmStridedBatched), and
refuse what those refuse. Nothing here shows what a GPU does.
"""

from __future__ import annotations

import ctypes
from functools import partial
from typing import Any

import host_cupy
import numpy as np
from numpy.lib.stride_tricks import as_strided

from xtensor.devices import cublas

HANDLE = 77


class Function:
    """A function of the library, which takes as many arguments as its types say."""

    def __init__(self, call: Any) -> None:
        self.call, self.argtypes = call, list[Any]()

    def __call__(self, *arguments: Any) -> int:
        assert len(arguments) == len(self.argtypes)
        for value, kind in zip(arguments, self.argtypes, strict=True):
            assert kind(value).value == (value or None if kind is ctypes.c_void_p else value), "it does not fit"
        return int(self.call(*arguments))


class Library:
    """What CuPy has loaded. calls: how many products were computed or recorded; recorded: of these, on streams that
    record a graph, with the scratch memory that they had. status: that its functions return, if not 0; wait: what a
    caller learns of the device then.
    """

    def __init__(self) -> None:
        self.stream, self.workspace, self.status = 0, 0, 0
        self.wait: Any = lambda: None
        self.calls, self.recorded = 0, list[int]()
        self.cublasSetStream_v2 = Function(self._set_stream)
        self.cublasSetWorkspace_v2 = Function(self._set_workspace)
        for char, letter in cublas.LETTERS.items():
            setattr(self, f"cublas{letter}gemm_v2", Function(partial(self._single, char)))
            setattr(self, f"cublas{letter}gemmStridedBatched", Function(partial(self._stacked, char)))

    def _set_stream(self, handle: int, stream: int) -> int:
        assert handle == HANDLE
        self.stream, self.workspace = stream, 0
        return 0

    def _set_workspace(self, handle: int, address: int, nbytes: int) -> int:
        assert handle == HANDLE
        assert nbytes == cublas.WORKSPACE
        assert address % 256 == 0
        self.workspace = address
        return 0

    def _single(self, char: str, *given: int) -> int:
        *begin, a, of_a, b, of_b, zero, c, of_c = given
        return self._stacked(char, *begin, a, of_a, 0, b, of_b, 0, zero, c, of_c, 0, 1)

    def _stacked(
        self, char: str, handle: int, way_a: int, way_b: int, m: int, n: int, k: int, one: int, *given: int
    ) -> int:
        a, of_a, next_a, b, of_b, next_b, zero, c, of_c, next_c, count = given
        dtype = np.dtype(char)
        assert handle == HANDLE
        assert [_array(at, (1,), (0,), dtype)[0] for at in (one, zero)] == [1, 0]
        heights = [k if way_a else m, n if way_b else k, m]
        if min(m, n, k) < 0 or any(lead < max(1, n) for lead, n in zip((of_a, of_b, of_c), heights, strict=True)):
            return 7  # CUBLAS_STATUS_INVALID_VALUE
        run = partial(
            self._run, dtype, (way_a, way_b), (m, n, k), (a, of_a, next_a), (b, of_b, next_b), (c, of_c, next_c)
        )
        if self.status:
            return self.status
        self.calls += 1
        if self.stream in host_cupy.capturing:
            self.recorded.append(self.workspace)
            host_cupy.capturing[self.stream].append(partial(run, count))
            return 0
        assert self.stream == host_cupy._streams[-1].ptr
        run(count)
        return 0

    def _run(self, dtype: Any, ways: Any, sizes: Any, first: Any, second: Any, result: Any, count: int) -> None:
        m, n, k = sizes
        matrices = []
        for way, (rows, columns), (at, lead, step) in zip(ways, ((m, k), (k, n)), (first, second), strict=True):
            shape = (columns, rows) if way else (rows, columns)
            x = _array(at, (count, *shape), (step, 1, lead), dtype)
            x = x.transpose(0, 2, 1) if way else x
            matrices.append(x.conj() if way == cublas.CONJUGATED else x)
        at, lead, step = result
        _array(at, (count, m, n), (step, 1, lead), dtype)[...] = np.matmul(*matrices)


def _array(address: int, shape: Any, steps: Any, dtype: Any) -> Any:
    """Return memory of the host as an array; steps: in elements."""
    size = 1 + sum((n - 1) * step for n, step in zip(shape, steps, strict=True))
    flat = np.frombuffer((ctypes.c_char * (size * dtype.itemsize)).from_address(address), dtype)
    return as_strided(flat, shape, [step * dtype.itemsize for step in steps])


def made() -> tuple[Library, cublas.Cublas]:
    """Return the stand-in, and what calls it."""
    library = Library()
    return library, cublas.Cublas(library, lambda: HANDLE, lambda: library.wait())

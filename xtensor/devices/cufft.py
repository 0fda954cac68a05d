"""cuFFT at its own address: Fourier transforms of what lies packed, on any stream, also on one that records a CUDA
graph, with work areas that the caller has.

The library is CuPy's. Plans are made once and kept: one thread at a time tells them a stream and a work area.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from ctypes import c_int, c_size_t, c_void_p
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

from ..base.locks import fork_safe_lock
from .cublas import loaded

# What the library is called, in the releases that CuPy loads.
RELEASES = "libcufft.so.12", "libcufft.so.11"

# cuFFT's kinds of transforms, by what they take and what they give; and the directions of those of complex numbers.
KINDS = {
    ("f", "F"): (0x2A, "R2C"), ("F", "f"): (0x2C, "C2R"), ("F", "F"): (0x29, "C2C"),
    ("d", "D"): (0x6A, "D2Z"), ("D", "d"): (0x6C, "Z2D"), ("D", "D"): (0x69, "Z2Z"),
}  # fmt: skip
FORWARD, BACK = -1, 1

# The status that says there was no memory.
_NO_MEMORY = 2


class Plan(NamedTuple):
    """A plan. handle: the library's; nbytes: of its work area. run: the function that takes it. is_complex: whether
    that takes a direction.
    """

    handle: int
    nbytes: int
    run: Any
    is_complex: bool


class Cufft:
    """The functions of the library that CuPy has loaded."""

    def __init__(self, library: Any) -> None:
        self._library, self._telling = library, fork_safe_lock()
        self._plans: dict[tuple[Any, ...], Plan] = {}
        for name in ("Create", "SetAutoAllocation", "MakePlanMany", "SetStream", "SetWorkArea"):
            getattr(library, f"cufft{name}").argtypes = _TYPES[name]
        for _, name in KINDS.values():
            pointers = [c_int, c_void_p, c_void_p]
            getattr(library, f"cufftExec{name}").argtypes = [*pointers, c_int] if name in ("C2C", "Z2Z") else pointers

    def plan(self, device: int, lengths: Sequence[int], many: int, kind: tuple[str, str]) -> Plan:
        """Return the plan of so many transforms, which lie one behind the other, on a device, which is current.

        lengths: of the axes of what is real, or of both. Raises MemoryError and RuntimeError.
        """
        key = (device, tuple(lengths), many, kind)
        with self._telling:
            if key not in self._plans:
                self._plans[key] = self._made(lengths, many, kind)
            return self._plans[key]

    def _made(self, lengths: Sequence[int], many: int, kind: tuple[str, str]) -> Plan:
        code, name = KINDS[kind]
        handle, nbytes, every = c_int(), c_size_t(), (c_int * len(lengths))(*lengths)
        _check(self._library.cufftCreate(ctypes.addressof(handle)))
        _check(self._library.cufftSetAutoAllocation(handle.value, 0))
        packed = (None, 1, 0) * 2  # with no strides given it takes what lies packed
        size = ctypes.addressof(nbytes)
        begin = ctypes.addressof(every)
        _check(self._library.cufftMakePlanMany(handle.value, len(lengths), begin, *packed, code, many, size))
        return Plan(handle.value, nbytes.value, getattr(self._library, f"cufftExec{name}"), name in ("C2C", "Z2Z"))

    def transform(self, plan: Plan, source: int, target: int, work: int, stream: int, direction: int) -> None:
        """Transform what lies somewhere to somewhere else. What takes complex numbers and gives real ones may write to
        what it takes. Raises RuntimeError.
        """
        with self._telling:
            _check(self._library.cufftSetStream(plan.handle, stream))
            _check(self._library.cufftSetWorkArea(plan.handle, work))
            _check(plan.run(plan.handle, source, target, *([direction] if plan.is_complex else [])))


_TYPES: dict[str, list[Any]] = {
    "Create": [c_void_p],
    "SetAutoAllocation": [c_int, c_int],
    "MakePlanMany": [
        c_int,
        c_int,
        *[c_void_p, c_void_p, c_int, c_int],
        *[c_void_p, c_int, c_int],
        c_int,
        c_int,
        c_void_p,
    ],
    "SetStream": [c_int, c_void_p],
    "SetWorkArea": [c_int, c_void_p],
}


def _check(status: int) -> None:
    if status == _NO_MEMORY:
        raise MemoryError("cuFFT has no memory")
    if status:
        raise RuntimeError(f"cuFFT says status {status}")


@cache
def found() -> Cufft | None:
    """Return the library; None where it is not known how to call it."""
    if not hasattr(os, "RTLD_NOLOAD"):
        return None
    try:
        import_module("cupy.cuda.cufft")  # which loads the library
        return Cufft(loaded(RELEASES))
    except (ImportError, OSError, AttributeError):
        return None

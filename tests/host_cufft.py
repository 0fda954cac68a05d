"""cuFFT where there is no GPU: its functions under their own names, with NumPy's transforms of host memory.

They take what the library's functions take (cuFFT documentation), and refuse what those refuse. What takes complex
numbers and gives real ones leaves something else in what it took, as the library may. Nothing here shows what a GPU
does.
"""

from __future__ import annotations

import ctypes
from functools import partial
from typing import Any

import host_cupy
import numpy as np
from host_cublas import Function

from xtensor.devices import cufft

KINDS = {code: (np.dtype(a), np.dtype(b), name) for (a, b), (code, name) in cufft.KINDS.items()}


class Library:
    """What CuPy has loaded. plans: of each its lengths, how many, and its kind; told: its stream and work area. calls:
    how many transforms were made or recorded; refuses: whether it makes none.
    """

    def __init__(self) -> None:
        self.plans: list[Any] = []
        self.told: dict[int, dict[str, int]] = {}
        self.calls, self.refuses = 0, False
        self.cufftCreate = Function(self._create)
        self.cufftSetAutoAllocation = Function(self._allocate)
        self.cufftMakePlanMany = Function(self._make)
        self.cufftSetStream = Function(partial(self._tell, "stream"))
        self.cufftSetWorkArea = Function(partial(self._tell, "work"))
        for taken, given, name in KINDS.values():
            setattr(self, f"cufftExec{name}", Function(partial(self._run, taken, given)))

    def _create(self, handle: int) -> int:
        self.plans.append(None)
        ctypes.c_int.from_address(handle).value = len(self.plans)
        return 0

    def _allocate(self, handle: int, itself: int) -> int:
        assert itself == 0
        assert self.plans[handle - 1] is None
        return 0

    def _make(self, handle: int, rank: int, begin: int, *others: Any) -> int:
        *packed, code, many, size = others
        assert packed == [None, 1, 0] * 2
        lengths = list((ctypes.c_int * rank).from_address(begin))
        if not 1 <= rank <= 3 or min(many, *lengths) < 1:
            return 8  # CUFFT_INVALID_SIZE
        self.plans[handle - 1] = lengths, many, KINDS[code][2]
        ctypes.c_size_t.from_address(size).value = 64 + 16 * many
        return 0

    def _tell(self, what: str, handle: int, value: int) -> int:
        self.told.setdefault(handle, {})[what] = value
        return 0

    def _run(self, taken: Any, given: Any, handle: int, source: int, target: int, direction: int = 0) -> int:
        if self.refuses:
            return 6  # CUFFT_EXEC_FAILED
        lengths, many, _ = self.plans[handle - 1]
        told = self.told[handle]
        assert told["work"] % 256 == 0
        assert told["work"]
        assert source % taken.itemsize == target % given.itemsize == 0
        run = partial(_transform, taken, given, lengths, many, source, target, direction, told["work"])
        self.calls += 1
        if told["stream"] in host_cupy.capturing:
            host_cupy.capturing[told["stream"]].append(run)
            return 0
        assert told["stream"] == host_cupy._streams[-1].ptr
        run()
        return 0


def _transform(
    taken: Any, given: Any, lengths: Any, many: int, source: int, target: int, direction: int, work: int
) -> None:
    halved = [*lengths[:-1], lengths[-1] // 2 + 1]
    x = _memory(source, (many, *(lengths if taken == given or taken.kind == "f" else halved)), taken)
    y = _memory(target, (many, *(lengths if taken == given or given.kind == "f" else halved)), given)
    axes = tuple(range(1, 1 + len(lengths)))
    if taken.kind == given.kind:
        assert direction in (cufft.FORWARD, cufft.BACK)
        y[...] = np.fft.fftn(x, axes=axes) if direction == cufft.FORWARD else np.fft.ifftn(x, axes=axes, norm="forward")
    elif taken.kind == "f":
        y[...] = np.fft.rfftn(x, axes=axes)
    else:
        y[...] = np.fft.irfftn(x, s=lengths, axes=axes, norm="forward")
        x[...] = 77.0
    _memory(work, (64 + 16 * many,), np.dtype(np.uint8))[...] = 0xA5


def _memory(address: int, shape: Any, dtype: Any) -> Any:
    size = int(np.prod(shape)) * dtype.itemsize
    return np.frombuffer((ctypes.c_char * size).from_address(address), dtype).reshape(shape)


def made() -> tuple[Library, cufft.Cufft]:
    """Return the stand-in, and what calls it."""
    library = Library()
    return library, cufft.Cufft(library)

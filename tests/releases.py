"""Every release of NVRTC that is installed: CuPy's own, and others beside it, loaded by their paths.

CuPy has one in a process. Kernels must build with all that the extras allow, so that others are called through ctypes,
under the names of CuPy's module. They are found where wheels lay them, and where NVRTC_LIBRARIES says: paths of further
libraries, parted as in PATH.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ptx.build import missing

Version = tuple[int, int]


class NVRTCError(RuntimeError):
    """What NVRTC answers in the place of success."""


class Library:
    """One libnvrtc, with the functions of `cupy.cuda.nvrtc` that kernels are built by."""

    NVRTCError = NVRTCError

    def __init__(self, path: Path) -> None:
        for builtins in sorted(path.parent.glob("libnvrtc-builtins.so.*")):  # 13.0 does not look beside itself
            ctypes.CDLL(str(builtins))
        self._library = ctypes.CDLL(str(path))
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            raise NVRTCError(f"{name}: {self._library.nvrtcGetErrorString(status).decode()}")

    def _bytes(self, what: str, program: ctypes.c_void_p) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self._call(f"nvrtcGet{what}", program, buffer)
        return buffer.raw

    def getVersion(self) -> Version:  # noqa: N802 - CuPy's names, here and below
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        return major.value, minor.value

    def getSupportedArchs(self) -> list[int]:  # noqa: N802
        count = ctypes.c_int()
        self._call("nvrtcGetNumSupportedArchs", ctypes.byref(count))
        known = (ctypes.c_int * count.value)()
        self._call("nvrtcGetSupportedArchs", known)
        return list(known)

    def createProgram(self, text: str, name: str, headers: Any, names: Any) -> ctypes.c_void_p:  # noqa: N802
        program = ctypes.c_void_p()
        self._call("nvrtcCreateProgram", ctypes.byref(program), text.encode(), name.encode(), 0, None, None)
        return program

    def compileProgram(self, program: ctypes.c_void_p, options: Sequence[str]) -> None:  # noqa: N802
        given = (ctypes.c_char_p * len(options))(*(one.encode() for one in options))
        self._call("nvrtcCompileProgram", program, len(options), given)

    def getCUBIN(self, program: ctypes.c_void_p) -> bytes:  # noqa: N802
        return self._bytes("CUBIN", program)

    def getPTX(self, program: ctypes.c_void_p) -> bytes:  # noqa: N802
        return self._bytes("PTX", program)

    def getProgramLog(self, program: ctypes.c_void_p) -> str:  # noqa: N802
        return self._bytes("ProgramLog", program).decode()

    def destroyProgram(self, program: ctypes.c_void_p) -> None:  # noqa: N802
        self._call("nvrtcDestroyProgram", ctypes.byref(program))


def _paths() -> Iterator[Path]:
    named = os.environ.get("NVRTC_LIBRARIES", "")
    yield from (Path(one) for one in named.split(os.pathsep) if one)
    wheels = find_spec("nvidia")
    for folder in (wheels.submodule_search_locations or ()) if wheels else ():
        yield from sorted(Path(folder).glob("*/lib/libnvrtc.so.*"))


@cache
def releases() -> dict[Version, Any]:
    """Return NVRTC's releases by version, the oldest first; none where `missing()` says why."""
    if missing():
        return {}
    from cupy.cuda import nvrtc

    found = {one.getVersion(): one for one in map(Library, _paths())}
    return dict(sorted({**found, nvrtc.getVersion(): nvrtc}.items()))

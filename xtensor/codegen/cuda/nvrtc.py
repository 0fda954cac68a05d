"""CUDA C++ to running kernels: built by NVRTC for one architecture, kept in memory and on disk, and launched.

NVRTC is used directly, without CuPy's compiler, which flushes subnormal numbers to zero. Its output is machine code
(cubin), which every driver of that CUDA version loads. Nothing here waits for the device.
"""

from __future__ import annotations

import ctypes
import hashlib
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from importlib import import_module
from time import perf_counter
from typing import Any, NamedTuple

from ...base.errors import of_device
from ...base.locks import fork_safe_lock
from ...base.options import settings
from ...base.threads import run
from ..cpu.compile import counts
from ..cpu.vector import LacksError
from ..disk import Disk

# Kernels held in memory; the oldest go first.
KERNELS = 1024

# cuFuncSetAttribute's number for the most shared memory of launches, and the most bytes without setting it.
_MOST_SHARED, PLAIN_SHARED = 8, 48 * 1024

Key = tuple[Any, ...]


class BuildError(LacksError):
    """Raised if NVRTC refuses a text, or is missing; the library's functions do the work."""


class LoadError(BuildError):
    """Raised if code cannot be loaded."""


class Function(NamedTuple):
    """A loaded kernel: the driver's handle, the module that keeps it alive, its device's number, and its text."""

    pointer: int
    module: Any
    number: int
    text: str


_disk = Disk(".cubin")
_functions: dict[Key, Function] = {}
_building = fork_safe_lock()


def function_of(key: Key, text_of: Any, backend: Any, contract: bool) -> Function:
    """Return the kernel of a key on a backend's device; `text_of()` gives its text if it is to be built.

    Raises BuildError with NVRTC's log, or LacksError as text_of does.
    """
    whole = (key, backend.number, contract)
    found = _functions.get(whole)
    if found is not None:
        counts.hits += 1
        return found
    if _drafts.texts is not None:
        _drafts.texts.append(text_of())
        return Function(0, None, backend.number, "")
    with _building:
        text = text_of()
        started = perf_counter()
        architecture, number = target(backend.architecture()), backend.number
        made: Function
        try:
            made = backend.call(load, cubin(text, architecture, contract), number, text)
        except LoadError:  # the file on disk may be damaged in spite of its seal
            made = backend.call(load, cubin(text, architecture, contract, anew=True), number, text)
        if len(_functions) >= KERNELS:
            for old in list(_functions)[: KERNELS // 4]:
                del _functions[old]
        _functions[whole] = made
        counts.seconds += perf_counter() - started
    return made


class _Drafts(threading.local):
    """The texts of the kernels that a thread would have built."""

    texts: list[str] | None = None


_drafts = _Drafts()


@contextmanager
def drafting() -> Iterator[list[str]]:
    """Collect the texts of missing kernels that are asked for inside a `with` block, instead of building them."""
    found = _drafts.texts = list[str]()
    try:
        yield found
    finally:
        _drafts.texts = None


def build_ahead(texts: Sequence[str], backend: Any, contract: bool) -> None:
    """Build in parallel those texts that are not on disk; `cubin` finds the results. NVRTC works without Python's lock.
    A text that it refuses is refused again when its kernel is asked for.
    """
    options = options_of(target(backend.architecture()), contract)
    names = {name_of(text, options): text for text in texts}
    run([partial(_build, *one, options) for one in names.items() if _disk.load(one[0], settings().cache_dir) is None])


def _build(name: str, text: str, options: Sequence[str]) -> None:
    with suppress(BuildError):
        _ahead[name] = built(text, options)


# Code that was built ahead, until it is asked for.
_ahead: dict[str, bytes] = {}


def cached() -> int:
    """Return how many kernels are in memory."""
    return len(_functions)


def forget() -> None:
    """Drop all kernels from memory; the disk keeps its own."""
    _functions.clear()


# ---- from text to code


def cubin(text: str, architecture: str, contract: bool, *, anew: bool = False) -> bytes:
    """Return the code of a text, built by an earlier process unless `anew`, or now; raises BuildError."""
    options = options_of(architecture, contract)
    name, folder = name_of(text, options), settings().cache_dir
    found = None if anew else _disk.load(name, folder)
    if found is not None:
        counts.loaded += 1
        return found
    made = _ahead.pop(name, None) or built(text, options)
    counts.compiled += 1
    _disk.save(name, made, folder)
    return made


def name_of(text: str, options: Sequence[str]) -> str:
    """Return the name under which the code of a text is kept."""
    stamp = "\n".join([text, *options, *map(str, version())])
    return hashlib.sha256(stamp.encode()).hexdigest()[:40]


def options_of(architecture: str, contract: bool) -> tuple[str, ...]:
    """Return NVRTC's options: a * b + c is rounded twice unless `contract` allows once, and nothing is flushed to 0.

    `--minimal` leaves out declarations that no kernel here uses: it gives the same code, 5 ms sooner.
    """
    contracted = "true" if contract else "false"
    return f"--gpu-architecture={architecture}", f"--fmad={contracted}", "--std=c++17", "--minimal"


@cache
def _cuda(part: str) -> Any:
    """Return a module or class by its name in cupy.cuda."""
    return getattr(import_module("cupy.cuda"), part)


@cache
def version() -> tuple[int, int]:
    """Return the version of NVRTC; raises BuildError if it cannot be used."""
    try:
        major, minor = _cuda("nvrtc").getVersion()
    except Exception as error:  # ImportError, or CuPy's error if it does not find the library
        raise BuildError(f"NVRTC: {error}") from error
    return major, minor


@cache
def architectures() -> tuple[int, ...]:
    """Return the architectures that NVRTC builds for, 90 for compute capability 9.0; raises BuildError as `version`."""
    version()
    return tuple(_cuda("nvrtc").getSupportedArchs())


def target(architecture: str) -> str:
    """Return the architecture to build for a device: its own, or, if NVRTC is older, the newest whose code it runs.

    The latter is machine code of the same generation, sm_XX, or else PTX, compute_XX, which the driver translates.
    """
    own = int(architecture.partition("_")[2])
    known = [one for one in architectures() if one <= own]
    if not known or max(known) == own:
        return architecture
    return f"{'sm' if max(known) // 10 == own // 10 else 'compute'}_{max(known)}"


def built(text: str, options: Sequence[str]) -> bytes:
    """Return NVRTC's code for a text: a cubin for sm_XX, PTX for compute_XX; raises BuildError with its log."""
    nvrtc = _cuda("nvrtc")
    program = nvrtc.createProgram(text, "kernel.cu", (), ())
    try:
        nvrtc.compileProgram(program, tuple(options))
        made = nvrtc.getCUBIN(program) if "=sm_" in options[0] else nvrtc.getPTX(program)
    except nvrtc.NVRTCError as error:
        raise BuildError(f"code that NVRTC takes: {error}\n{nvrtc.getProgramLog(program)}") from error
    finally:
        nvrtc.destroyProgram(program)
    return made if isinstance(made, bytes) else made.encode()


# ---- the driver


def load(code: bytes, number: int, text: str) -> Function:
    """Load code on the current device."""
    module = _cuda("function").Module()
    try:
        module.load(code)
        pointer = module.get_function("kernel").ptr
    except Exception as error:  # CUDADriverError, for code that is not for this device
        raise LoadError(f"code that loads: {error}") from error
    return Function(pointer, module, number, text)


class _Bound(threading.local):
    """The devices whose contexts are bound to a thread: without one the driver launches nothing."""

    devices: frozenset[int] | set[int] = frozenset()


_bound = _Bound()


@cache
def _table(count: int) -> Any:
    """Return the type of a table of pointers to so many parameters, which keeps their bytes alive."""
    return ctypes.c_char_p * count


def launch(
    function: Function,
    grid: tuple[int, int],
    block: int,
    shared_bytes: int,
    arguments: Sequence[bytes],
    stream: int,
) -> None:
    """Start a kernel on a stream of its device; each argument is the bytes of one parameter. Does not wait for it."""
    driver, runtime, number = _cuda("driver"), _cuda("runtime"), function.number
    if runtime.getDevice() != number:
        with _cuda("Device")(number):
            return launch(function, grid, block, shared_bytes, arguments, stream)
    pointers = _table(len(arguments))(*arguments)  # the driver copies what they point to
    address = ctypes.addressof(pointers)
    try:
        if number not in _bound.devices:
            runtime.memGetInfo()  # any call that takes the device's context binds it to the thread
            _bound.devices = {*_bound.devices, number}
        if shared_bytes > PLAIN_SHARED // 2:  # shared memory that the code declares counts, too
            driver.funcSetAttribute(function.pointer, _MOST_SHARED, shared_bytes)
        driver.launchKernel(function.pointer, *grid, 1, block, 1, 1, shared_bytes, stream, address, 0)
    except RuntimeError as error:
        raise of_device(number, error)  # noqa: B904 - it has its cause
    return None


@cache
def most_shared(number: int) -> int:
    """Return how many bytes of shared memory a block may have on a device; the common minimum if it does not say."""
    try:
        return int(_cuda("Device")(number).attributes["MaxSharedMemoryPerBlockOptin"])
    except Exception:  # ImportError, KeyError, CUDARuntimeError
        return PLAIN_SHARED

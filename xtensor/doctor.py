"""The checks of `python -m xtensor doctor`: what is installed, and what makes xtensor slower than it could be.

Each check is a function that returns a finding, or None if there is nothing to report; `CHECKS` lists them in the order
in which they are shown.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NamedTuple

import numpy as np

import xtensor as xt

from .base import threads
from .base.machine import free_memory, memory_limit, size_text
from .base.options import settings
from .codegen.cpu.compile import Host, host
from .codegen.disk import Disk
from .devices import as_device, blas, devices

CUPY = ("cupy", "cupy-cuda12x", "cupy-cuda13x")  # one library under three names

# Variables that make a library use less than the processor has, and that library.
HOLDS_BACK = {
    "OPENBLAS_CORETYPE": "OpenBLAS, which computes matrix products,",
    "MKL_ENABLE_INSTRUCTIONS": "MKL, which computes matrix products,",
    "NPY_DISABLE_CPU_FEATURES": "NumPy",
}

# OpenBLAS's names of processors whose kernels do not use AVX2.
OLD_CORES = {"Katmai", "Coppermine", "Northwood", "Prescott", "Banias", "Atom", "Core2", "Penryn", "Dunnington"}
OLD_CORES |= {"Nehalem", "Sandybridge", "Athlon", "Opteron", "Opteron_SSE3", "Barcelona", "Bobcat", "Nano"}
OLD_CORES |= {"Bulldozer", "Piledriver", "Steamroller"}

# Variables that limit threads, with the library that each is for.
LIMITS = {"XTENSOR_NUM_THREADS": "xtensor", "OMP_NUM_THREADS": "xtensor and BLAS", "OPENBLAS_NUM_THREADS": "OpenBLAS"}
LIMITS |= {"MKL_NUM_THREADS": "MKL", "VECLIB_MAXIMUM_THREADS": "Accelerate"}


class Finding(NamedTuple):
    """Something that makes xtensor slow here: what it is, what it costs, and what to do about it."""

    what: str
    why: str
    do: str


def installed(*names: str) -> str:
    """Return the version of the first of these distributions that is installed, without importing it."""
    for name in names:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return "not installed"


def findings() -> list[Finding]:
    """Return the findings about this machine, in the order of CHECKS."""
    return [finding for check in CHECKS if (finding := check()) is not None]


# ---- what is installed


def facts() -> list[tuple[str, str]]:
    """Return what is installed and what the machine has, as pairs of a name and a description."""
    return [
        ("xtensor", xt.__version__),
        ("Python", f"{platform.python_implementation()} {platform.python_version()}, {platform.machine()}"),
        ("numpy", installed("numpy")),
        ("BLAS", _blas()),
        ("llvmlite", installed("llvmlite")),
        ("machine code", _machine_code(host())),
        ("cupy", installed(*CUPY)),
        ("devices", ", ".join(str(device) for device in devices())),
        ("processors", f"{os.cpu_count()}, of which xtensor uses {threads.count()}"),
        ("memory", f"{size_text(free_memory())} free of {size_text(memory_limit())}"),
        ("compiled kernels", str(_folder() or "not kept")),
    ]


def _blas_built_in() -> str:
    """Return the name of the BLAS that NumPy was built with, "" if NumPy does not say."""
    config: Any = np.show_config(mode="dicts")
    return str(config.get("Build Dependencies", {}).get("blas", {}).get("name", ""))


def _blas() -> str:
    """Return NumPy's BLAS, and if that is OpenBLAS, the kernels and threads that it uses."""
    core, count = blas.core_name(), blas.thread_count()
    name = _blas_built_in() or "unknown"
    return name if core is None else f"{name}, kernels for {core}, {count} threads"


def _machine_code(here: Host | None) -> str:
    return "none" if here is None else f"for {here.cpu}, vectors of {here.vector_bytes} bytes"


def _folder() -> Path | None:
    """Return the folder of compiled kernels; None if they cannot be kept."""
    folder = Disk(".o").folder(settings().cache_dir)
    try:
        if folder is not None:
            TemporaryFile(dir=folder).close()
    except OSError:
        return None
    return folder


# ---- what is slow


def no_compiler() -> Finding | None:
    """Report that machine code cannot be compiled."""
    if host() is not None:
        return None
    costs = "NumPy's functions run on blocks that fit the cache instead of one loop of machine code"
    if installed("llvmlite") == "not installed":
        return Finding("llvmlite is not installed", costs, 'pip install "xtensor[jit]"')
    what = "llvmlite is installed, and its code cannot be used"
    return Finding(
        what,
        costs,
        "`python -c 'import llvmlite.binding'` shows whether it can be loaded; if so, the processor has no fused "
        "multiply-add (AVX2 and FMA), or a virtual machine hides it: have it pass the host's processor through",
    )


def narrow_vectors() -> Finding | None:
    """Report vectors that are half as long as those of current server processors."""
    here = host()
    if here is None or not here.triple.startswith("x86") or here.vector_bytes >= 64:
        return None
    what = f"machine code works on vectors of {here.vector_bytes} bytes"
    why = "this processor shows no AVX-512, with which functions such as exp take less time"
    do = "where this is a virtual machine, have it pass the host's processor through; else there is nothing to do"
    return Finding(what, why, do)


def held_back() -> Finding | None:
    """Report a variable that makes a library use less than the processor has."""
    found = [name for name in HOLDS_BACK if os.environ.get(name)]
    if not found:
        return None
    what = " and ".join(f"{name}={os.environ[name]}" for name in found)
    whom = " and ".join(HOLDS_BACK[name] for name in found)
    why = f"{whom} uses other instructions than this processor's best, which can cost several times the time"
    return Finding(f"{what} is set", why, f"unset {' '.join(found)}")


def old_blas_kernels() -> Finding | None:
    """Report that OpenBLAS has taken the processor for an older one, without a variable that makes it."""
    core = blas.core_name()
    if core not in OLD_CORES or os.environ.get("OPENBLAS_CORETYPE") or host() is None:
        return None
    what = f"OpenBLAS runs kernels for {core}, which use no AVX2, though this processor has it"
    why = "it does not know this processor, and matrix products take several times as long"
    return Finding(what, why, "pip install --upgrade numpy, or try OPENBLAS_CORETYPE=Haswell, which has AVX2 used")


def plain_blas() -> Finding | None:
    """Report a NumPy that was built with the reference BLAS, or with none."""
    name = _blas_built_in().lower()
    if name not in ("blas", "cblas", "netlib", "refblas", "none", "") or blas.core_name() is not None:
        return None
    if blas.has_function("MKL_Get_Max_Threads", "bli_thread_get_num_threads"):  # put in its place by the distribution
        return None
    what = f"NumPy's BLAS is {name or 'not known'}: the reference implementation, or none"
    why = "matrix products run on one thread, without vectors"
    return Finding(what, why, "install NumPy from PyPI (pip install --force-reinstall numpy), which has OpenBLAS")


def few_threads() -> Finding | None:
    """Report fewer threads than processors, or a single processor."""
    there, used = os.cpu_count() or 1, threads.count()
    products = blas.thread_count()
    if there == 1:
        why = "large arrays are computed on one thread; nothing is shared out"
        return Finding("there is one processor", why, "nothing, on this machine")
    if used >= there and (products is None or products > 1):
        return None
    what = f"xtensor computes on {used} of {there} processors"
    what += "" if products is None else f", matrix products on {products}"
    named = [f"{name}={os.environ[name]} (for {whom})" for name, whom in LIMITS.items() if os.environ.get(name)]
    limit = ", ".join(named) or "the processors given to this process (affinity, the container's quota)"
    do = f"unset {' '.join(name for name in LIMITS if os.environ.get(name))}" if named else "give the process more"
    return Finding(what, f"large arrays take as many times longer; the limit is {limit}", f"{do}, unless it is meant")


def no_cache() -> Finding | None:
    """Report that compiled kernels are not kept."""
    given = settings().cache_dir
    if host() is None or _folder() is not None:
        return None
    why = "each process compiles its kernels again, which the first evaluations wait for"
    if given == "":
        return Finding("kernels are not kept on disk: cache_dir is empty", why, "unset XTENSOR_CACHE_DIR")
    what = f"compiled kernels cannot be kept in {given or 'the cache folder of the user'}"
    do = "set XTENSOR_CACHE_DIR to a folder that belongs to you, that you can write to and others cannot"
    return Finding(what, why, do)


def no_bytecode() -> Finding | None:
    """Report that Python compiles the package's source at every start."""
    if not sys.dont_write_bytecode or _has_bytecode():
        return None
    what = "Python writes no bytecode (PYTHONDONTWRITEBYTECODE, or -B), and there is none of xtensor"
    why = "each process compiles the package's source anew when it imports it"
    folder = Path(__file__).parent
    return Finding(what, why, f"unset PYTHONDONTWRITEBYTECODE, or run once: python -m compileall -q {folder}")


def _has_bytecode() -> bool:
    """Return whether there is bytecode of this file."""
    cached = __spec__.cached if __spec__ is not None else None
    return cached is not None and os.path.exists(cached)


def slow_settings() -> Finding | None:
    """Report settings that are meant for experiments."""
    now = settings()
    meant = {"lazy": "auto", "engine": "auto", "gradients": "asked", "show": ""}
    found = {name: getattr(now, name) for name, usual in meant.items() if getattr(now, name) not in (usual, "llvm")}
    if not found:
        return None
    what = ", ".join(f"{name}={value!r}" for name, value in found.items())
    why = "xtensor does not choose the fastest way for each call"
    return Finding(f"settings: {what}", why, f"unset {' '.join(f'XTENSOR_{name.upper()}' for name in found)}")


def debugging() -> Finding | None:
    """Report that Python itself runs in a mode that costs time."""
    modes = {"-X dev": sys.flags.dev_mode, "a debug build": hasattr(sys, "gettotalrefcount")}
    modes |= {
        "a tracer": sys.gettrace() is not None,
        "PYTHONMALLOC=debug": "debug" in os.environ.get("PYTHONMALLOC", ""),
    }
    found = [name for name, there in modes.items() if there]
    if not found:
        return None
    why = "every call of Python takes longer, which small arrays feel most"
    return Finding(f"Python runs with {' and '.join(found)}", why, "run without, when time matters")


def unused_gpu() -> Finding | None:
    """Report a GPU that cannot be used."""
    if len(devices()) > 1:
        return None
    why = "arrays stay on the CPU"
    if installed(*CUPY) == "not installed":
        if not _has_nvidia():
            return None
        return Finding("there is an NVIDIA GPU, and CuPy is not installed", why, 'pip install "xtensor[cuda13]"')
    try:
        as_device("cuda", "doctor")
    except (ValueError, RuntimeError) as error:
        return Finding("CuPy is installed, and there is no CUDA device", f"{why}: {error}", "see docs/gpu.md")
    return None


def _has_nvidia() -> bool:
    """Return whether the system has the device of NVIDIA's driver."""
    return os.path.exists("/dev/nvidia0")


def busy_machine() -> Finding | None:
    """Report other programs that occupy the processors."""
    try:
        load, there = os.getloadavg()[0], os.cpu_count() or 1
    except (AttributeError, OSError):  # Windows does not report a load
        return None
    if load <= there:
        return None
    what = f"the machine is busy: {load:.1f} programs want its {there} processors"
    return Finding(what, "threads wait for each other, and times vary", "measure when it is idle")


CHECKS: tuple[Callable[[], Finding | None], ...] = (
    no_compiler,
    narrow_vectors,
    held_back,
    old_blas_kernels,
    plain_blas,
    few_threads,
    no_cache,
    no_bytecode,
    slow_settings,
    debugging,
    unused_gpu,
    busy_machine,
)

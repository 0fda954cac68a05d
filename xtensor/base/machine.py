"""The machine this process runs on: its memory, the limits of control groups, and its vector library."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from os.path import join

import numpy as np

# Names of files and not Paths, which would take a tenth of the import.
_CGROUPS = "/sys/fs/cgroup"
_OWN_CGROUPS = "/proc/self/cgroup"
_MEMORY_FACTS = "/proc/meminfo"
_UNKNOWN_MEMORY = 1 << 32  # assumed where the machine does not tell


def memory_limit() -> int:
    """Return the bytes this process may use: the machine's, or its control group's where that is less."""
    limits = [_physical_memory()]
    for folder in cgroup_folders("memory"):
        for text in (cgroup_value(folder, "memory.max"), cgroup_value(folder, "memory.limit_in_bytes")):
            if text.isdigit():
                limits.append(int(text))
    return min(limits)


def free_memory() -> int:
    """Return the bytes that this process can still take: the machine's, or a control group's where that is less.

    Cached pages of files that nobody reads count as free: the system drops them when memory is needed.
    """
    free = [_available_memory()]
    for folder in cgroup_folders("memory"):
        for most, taken in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
            limit, usage = cgroup_value(folder, most), cgroup_value(folder, taken)
            if limit.isdigit() and usage.isdigit():
                facts = _facts(cgroup_value(folder, "memory.stat"))
                files = facts.get("total_inactive_file", facts.get("inactive_file", 0))
                free.append(max(int(limit) - int(usage) + files, 0))
    return min(free)


def _available_memory() -> int:
    """Return the machine's free memory, half of all where the system does not tell (macOS)."""
    told = 1024 * _facts(cgroup_value(_MEMORY_FACTS)).get("MemAvailable:", 0) or _windows_memory()[1]
    return told or _physical_memory() // 2


def _facts(text: str) -> dict[str, int]:
    """Return the numbers of a table of names and numbers."""
    words = [line.split() for line in text.splitlines()]
    return {line[0]: int(line[1]) for line in words if len(line) > 1 and line[1].isdigit()}


def _physical_memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        return _windows_memory()[0] or _UNKNOWN_MEMORY


def _windows_memory() -> tuple[int, int]:
    """Return all bytes of memory and the free ones, from Windows' GlobalMemoryStatusEx; zeros on other systems."""
    if os.name != "nt":
        return 0, 0
    status = (ctypes.c_uint64 * 8)(64)  # begins with its own length, in 32 bits, and what share of memory is in use
    known = ctypes.WinDLL("kernel32").GlobalMemoryStatusEx(ctypes.byref(status))  # type: ignore[attr-defined]
    return (status[1], status[2]) if known else (0, 0)


def cgroup_folders(controller: str) -> Iterator[str]:
    """Yield the folders of this process's control group (version 1 or 2) and of those around it, innermost first."""
    for line in cgroup_value(_OWN_CGROUPS).splitlines():
        _, controllers, name = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        parts = name.strip("/").split("/")
        for depth in range(len(parts) if parts[0] else 0, -1, -1):
            yield join(_CGROUPS, controller if controllers else "", *parts[:depth])


def cgroup_value(*path: str) -> str:
    """Return the contents of a system file, "" where it does not exist."""
    try:
        with open(join(*path), encoding="ascii") as file:
            return file.read().strip()
    except (OSError, ValueError):
        return ""


def size_text(nbytes: float) -> str:
    """Return a number of bytes in readable form."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if nbytes >= size:
            return f"{nbytes / size:.3g} {unit}"
    return f"{nbytes:.0f} bytes"


def has_vector_library() -> bool:
    """Return whether NumPy computes elementary functions by Intel's vector library: on Linux, with AVX-512."""
    features: dict[str, bool] = getattr(np._core._multiarray_umath, "__cpu_features__", {})  # type: ignore[attr-defined]
    return sys.platform == "linux" and features.get("AVX512_SKX", False)

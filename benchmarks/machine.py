"""What the numbers depend on: the machine, and the versions of everything."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("xtensor", "numpy", "llvmlite", "numexpr", "autograd", "torch", "jax", "jaxlib")
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
MEMORY = Path("/proc/meminfo")
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu() -> str:
    """Return the processor's name."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def last_level_cache() -> int:
    """Return the bytes of the largest cache, or 32 MiB where the system does not say."""
    sizes = [file.read_text(encoding="ascii").strip() for file in CACHES.glob("index*/size")]
    return max((int(size[:-1]) * UNITS[size[-1]] for size in sizes), default=32 << 20)


def available_memory() -> int:
    """Return the bytes that a process can have without swapping, or 4 GiB where the system does not say."""
    lines = MEMORY.read_text(encoding="ascii").splitlines() if MEMORY.exists() else []
    found = [int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    return found[0] * UNITS["K"] if found else 4 * UNITS["G"]


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that are installed."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def description() -> dict[str, object]:
    """Return all of this, and the load average of the last minute, for the JSON file."""
    return {
        "cpu": cpu(),
        "cores": cores(),
        "last_level_cache": last_level_cache(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0,
        "platform": platform.platform(),
        "versions": versions(),
    }

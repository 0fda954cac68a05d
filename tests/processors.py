"""Other machines than this one, as far as the package can tell: for tests, also as a pytest plugin.

`XTENSOR_TEST_PROCESSOR=avx2 pytest -p processors` hides what AVX2 does not have from llvmlite, before anything asks it.
`XTENSOR_TEST_SYSTEM=macOS` takes from Python's `os` what macOS lacks, and hides NumPy's BLAS as Accelerate is hidden.
"""

from __future__ import annotations

import os
from typing import Any

# What each lacks that the one before it has: beginnings of LLVM's names of features.
NAMES = {
    "avx512": (),
    "avx2": ("avx512", "avx10", "evex512"),
    "plain": ("avx", "fma", "f16c", "xop", "vaes", "vpclmul"),
}
MACOS_LACKS = ("sched_getaffinity", "sched_setaffinity")
MODELS = {"avx512": "x86-64-v4", "avx2": "x86-64-v3", "plain": "x86-64-v2"}


def hidden(name: str) -> tuple[str, ...]:
    """Return the beginnings of the features that a processor does not have."""
    names = list(NAMES)
    return tuple([one for each in names[: names.index(name) + 1] for one in NAMES[each]])


def become(name: str) -> None:
    """Make llvmlite describe another processor of this architecture; one that has more than this one is refused."""
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    for needed in {"avx512": ("avx512f", "avx512vl"), "avx2": ("avx2", "fma")}.get(name, ()):
        if not features.get(needed):
            raise OSError(f"this processor has no {needed}")
    for feature in [one for one in features if one.startswith(hidden(name))]:
        features[feature] = False
    patched: Any = llvm
    patched.get_host_cpu_features = lambda: features
    patched.get_host_cpu_name = lambda: MODELS[name]


def become_macos() -> None:
    """Lack what macOS lacks of what the package asks for."""
    for name in MACOS_LACKS:
        delattr(os, name)
    from xtensor.devices import blas

    patched: Any = blas
    patched._found = lambda *_: None


def pytest_configure() -> None:
    """Become the machine that the environment asks for."""
    if wanted := os.environ.get("XTENSOR_TEST_PROCESSOR"):
        become(wanted)
    if os.environ.get("XTENSOR_TEST_SYSTEM") == "macOS":
        become_macos()

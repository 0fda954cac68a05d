"""As a pytest plugin (`-p tests.unpooled`): every allocation of CuPy's is one of the driver's, whose bounds
compute-sanitizer knows; in CuPy's pool it would see none.
"""

from __future__ import annotations

from importlib import import_module


def pytest_configure() -> None:
    import_module("cupy").cuda.set_allocator(None)

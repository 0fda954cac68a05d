"""Python's garbage collector, switched off while many objects are made that stay."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Leave cyclic garbage uncollected within a block in which thousands of objects are made that stay.

    The collector would traverse them again and again, which takes up to half of the time. The process has only one:
    where several threads do this, the first one to end switches it on again for all.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()

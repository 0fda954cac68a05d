"""Python's garbage collector, kept from looking through what is being made to stay."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Leave cyclic garbage uncollected for a moment in which thousands of objects are made that stay.

    The collector would go through them again and again, which takes up to half of the time. It is the process's own:
    where threads do this at once, the first one to end switches it on again for all.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()

"""Bounded caches: dicts whose oldest entries are dropped first."""

from __future__ import annotations

from itertools import islice
from typing import Any


def make_room(cache: dict[Any, Any], most: int) -> None:
    """Drop the oldest quarter of the entries of a dict that has as many as it may, before another one is entered.

    Never all at once: nobody has to wait for everything to be made anew, and memory use neither swings nor is
    fragmented by a few entries that stay.
    """
    if len(cache) >= most:
        # a list, made at once: other threads add and drop entries, too
        for old in list(islice(cache, len(cache) - most + max(most // 4, 1))):
            cache.pop(old, None)

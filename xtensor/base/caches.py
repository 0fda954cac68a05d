"""Bounded caches: dicts in which what was entered first is forgotten first."""

from __future__ import annotations

from itertools import islice
from typing import Any


def make_room(cache: dict[Any, Any], most: int) -> None:
    """Forget what is oldest of a dict that holds as many entries as it may, before another one is entered: a quarter.

    Never all at once: nobody has to wait for everything to be made anew, and memory neither rises and falls nor is torn
    into what lies between few things that stay.
    """
    if len(cache) >= most:
        # a list, at once: other threads enter and forget as well
        for old in list(islice(cache, len(cache) - most + max(most // 4, 1))):
            cache.pop(old, None)

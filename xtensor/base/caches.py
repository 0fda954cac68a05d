"""Bounded caches: dicts in which what was entered first is forgotten first."""

from __future__ import annotations

from itertools import islice
from typing import Any


def make_room(cache: dict[Any, Any], most: int) -> None:
    """Forget the oldest quarter of a dict that holds as many entries as it may, before another one is entered.

    Never all at once: nobody has to wait for everything to be made anew, and memory neither rises and falls nor is torn
    into what lies between few things that stay.
    """
    if len(cache) >= most:
        for old in list(islice(cache, max(most // 4, 1))):  # a list, at once: other threads enter and forget as well
            cache.pop(old, None)

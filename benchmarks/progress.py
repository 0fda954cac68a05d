"""Saying on stderr how far a long run is."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import TypeVar

Item = TypeVar("Item")


def progress(items: Iterable[Item], total: int) -> Iterable[Item]:
    """Return the items and say how many have come: with a bar of tqdm's, or in a line each without it."""
    if not find_spec("tqdm"):
        return _lines(items, total)
    bar: Iterable[Item] = import_module("tqdm").tqdm(items, total=total, file=sys.stderr, leave=False)
    return bar


def _lines(items: Iterable[Item], total: int) -> Iterator[Item]:
    for done, item in enumerate(items, 1):
        print(f"{done}/{total}", file=sys.stderr, flush=True)
        yield item

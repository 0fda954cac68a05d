"""Regions of memory: the bytes that may be touched through a pointer, and what lies in them as far as that is known."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any

from .values import Pointer, Range, Value, bounds


class BoundsError(AssertionError):
    """Something is read or written that lies outside of what a pointer was given for."""


class Region:
    """Bytes around a place, which pointers count from.

    first: the bytes from the first that may be touched to that place, 0 or less. allowed: for each byte from there on
    whether it may be touched. writeable: whether it may be written. written: which bytes were written. words: what is
    known to lie at an offset. source: what lies everywhere else, None where that is not known.
    """

    def __init__(self, name: str, allowed: bytearray, first: int = 0, *, writeable: bool = True) -> None:
        self.name, self.allowed, self.first, self.writeable = name, allowed, first, writeable
        self.written = bytearray(len(allowed))
        self.words: dict[int, Value] = {}
        self.source: Any = None

    @classmethod
    def of_bytes(cls, name: str, nbytes: int) -> Region:
        """Return so many bytes."""
        return cls(name, bytearray(b"\1" * nbytes))

    @classmethod
    def of_elements(
        cls, name: str, shape: Iterable[int], strides: Iterable[int], itemsize: int, *, writeable: bool
    ) -> Region:
        """Return the elements of an array, counted from its first one, and nothing that lies between them."""
        steps = [[i * stride for i in range(n)] for n, stride in zip(shape, strides, strict=True)]
        places = [sum(one) for one in product(*steps)]
        first = min(places, default=0)
        allowed = bytearray(max(places, default=first) - first + itemsize if places else 0)
        for place in places:
            allowed[place - first : place - first + itemsize] = b"\1" * itemsize
        return cls(name, allowed, first, writeable=writeable)

    def touch(self, offset: int | Range, nbytes: int, *, writes: bool) -> None:
        """Raise BoundsError where some bytes may not be touched; mark them where they are written."""
        low, high = bounds(offset)
        begin, end = low - self.first, high - self.first + nbytes
        if begin < 0 or end > len(self.allowed) or self.allowed.find(0, begin, end) >= 0:
            raise BoundsError(f"{'writes' if writes else 'reads'} {nbytes} bytes at {offset} of {self.name}")
        if writes and not self.writeable:
            raise BoundsError(f"writes to {self.name}, which is read only")
        if writes and low == high:
            self.written[begin:end] = b"\1" * nbytes

    def integers(self, offset: int | Range, itemsize: int, count: int) -> list[Value] | None:
        """Return integers that lie next to each other, None where they are not known."""
        if type(offset) is not int:
            return None
        places = range(offset, offset + count * itemsize, itemsize)
        if all(place in self.words for place in places):
            return [self.words[place] for place in places]
        if self.source is None or any(place in self.words for place in places):
            return None
        found: list[Value] = self.source[offset : offset + count * itemsize].view(f"i{itemsize}").tolist()
        return found

    @property
    def unwritten(self) -> int:
        """How many bytes that may be written were not."""
        return sum(self.allowed) - sum(self.written)


def touch(pointer: Value, nbytes: int, *, writes: bool) -> Pointer:
    """Return a pointer that is looked at; raises BoundsError where it may not be."""
    if not isinstance(pointer, Pointer) or pointer.region is None:
        raise BoundsError(f"{'writes' if writes else 'reads'} {nbytes} bytes at {pointer}, which is no place in memory")
    pointer.region.touch(pointer.offset, nbytes, writes=writes)
    return pointer

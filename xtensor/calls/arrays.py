"""NumPy arrays that a captured function finds by name: constants as long as their contents stay the same.

NumPy's operations on an array cannot be observed, so its contents are part of a call's signature: the bytes of a small
array, and for a larger one the number of the stored copy that equals it.
"""

from __future__ import annotations

from itertools import count
from typing import Any, NamedTuple

from ..devices.cpu import bits_of

# Limits in bytes: of contents that are part of a signature; of one array, and of all arrays that a call finds, that are
# compared with copies, which costs less than plain calls; and of all copies of a function.
MOST_IN_SIGNATURE, MOST_COMPARED, MOST_FOUND, MOST_COPIED = 1024, 1 << 20, 1 << 22, 1 << 24

# Different contents that one array may have, and how many misses evict the oldest of them.
MOST_CONTENTS, UNCOPIED = 4, 4


class Snapshot(NamedTuple):
    """The contents of an array when it was looked at, as bytes or as integers; key: distinguishes them from others."""

    array: Any
    held: Any
    key: tuple[Any, ...]

    @property
    def is_so_still(self) -> bool:
        """Whether the array has the same contents now."""
        if type(self.held) is bytes:
            return bool(self.array.tobytes() == self.held)
        return bool((bits_of(self.array) == self.held).all())


class Copies:
    """Copies of the arrays that a function finds, made when it was captured."""

    def __init__(self) -> None:
        self._copies: dict[tuple[Any, ...], list[tuple[int, Any]]] = {}  # in order of last use
        self._numbers = count()  # next() is atomic: concurrent threads get different numbers
        self._missed = 0

    def snapshot(self, order: int, x: Any) -> Snapshot | None:
        """Return a snapshot of an array; None where its contents change too often, or are too large.

        order: the position of the array among those of a call.
        """
        kind = (x.dtype, x.shape, x.strides, x.flags.writeable)
        if x.nbytes <= MOST_IN_SIGNATURE:
            held = x.tobytes()
            return Snapshot(x, held, (*kind, held))
        if x.nbytes > MOST_COMPARED:
            return None
        place, bits = (order, *kind), bits_of(x)
        known = self._copies.pop(place, [])
        self._copies[place] = known
        for number, copy in tuple(known):
            if (bits == copy).all():
                return Snapshot(x, copy, (*kind, number))
        if len(known) == MOST_CONTENTS:
            self._missed += 1
            if self._missed % UNCOPIED:
                return None
            del known[0]
        number, copy = next(self._numbers), bits.copy()
        known.append((number, copy))
        self._make_room()
        return Snapshot(x, copy, (*kind, number))

    def _make_room(self) -> None:
        """Drop the least recently used copies if all take too many bytes."""
        kept = 0
        for place, copies in reversed(list(self._copies.items())):
            kept += sum([copy.nbytes for _, copy in copies])
            if kept > MOST_COPIED:
                self._copies.pop(place, None)

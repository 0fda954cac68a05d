"""NumPy arrays that a captured function finds by its names: constants as long as their contents are the same.

Nobody sees what NumPy makes of an array, so what it holds tells calls apart: the contents themselves of a small one, of
a larger one the number of the copy that they equal.
"""

from __future__ import annotations

from itertools import count
from typing import Any, NamedTuple

from ..devices.cpu import bits_of

# Bytes up to which the contents are part of a signature; up to which those of one array, and of all that a call finds,
# are compared, which costs less than plain calls; and of all copies that a function has.
MOST_IN_SIGNATURE, MOST_COMPARED, MOST_FOUND, MOST_COPIED = 1024, 1 << 20, 1 << 22, 1 << 24

# Kinds of contents that one array may have, and further ones before those that came first make room for others.
MOST_CONTENTS, UNCOPIED = 4, 4


class Snapshot(NamedTuple):
    """What an array held when it was looked at, as bytes or as integers; key: what tells that from others."""

    array: Any
    held: Any
    key: tuple[Any, ...]

    @property
    def is_so_still(self) -> bool:
        """Whether the array holds the same now."""
        if type(self.held) is bytes:
            return bool(self.array.tobytes() == self.held)
        return bool((bits_of(self.array) == self.held).all())


class Copies:
    """What the arrays that a function finds held when it was captured."""

    def __init__(self) -> None:
        self._copies: dict[tuple[Any, ...], list[tuple[int, Any]]] = {}  # those used last come last
        self._numbers = count()  # of which threads that come at once get different ones
        self._missed = 0

    def snapshot(self, order: int, x: Any) -> Snapshot | None:
        """Return what an array holds; None where that changes too often, or is too large.

        order: of the array among those of a call.
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
        """Let go of the copies that were used longest ago where there are too many."""
        kept = 0
        for place, copies in reversed(list(self._copies.items())):
            kept += sum([copy.nbytes for _, copy in copies])
            if kept > MOST_COPIED:
                self._copies.pop(place, None)

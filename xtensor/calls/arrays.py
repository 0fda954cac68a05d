"""NumPy arrays that a captured function finds by its names: constants as long as their contents are the same.

Nobody sees what NumPy makes of an array, so what it holds tells calls apart: the contents themselves of a small one, of
a larger one the copy that they equal.
"""

from __future__ import annotations

from typing import Any

from ..devices.cpu import bits_of

# Bytes up to which the contents are part of a signature; up to which those of one array are compared, which costs less
# than plain calls; and of all copies that a function has. Kinds of contents that one array may have, and further ones
# before those that came first make room for others.
MOST_IN_SIGNATURE, MOST_COMPARED, MOST_COPIED = 1024, 1 << 20, 1 << 24
MOST_CONTENTS, UNCOPIED = 4, 4


class Copies:
    """What the arrays that a function finds held when it was captured."""

    def __init__(self) -> None:
        self._copies: dict[tuple[Any, ...], list[tuple[int, Any]]] = {}
        self._nbytes = self._made = self._missed = 0

    def key_of(self, order: int, x: Any) -> tuple[Any, ...] | None:
        """Return what tells the contents of an array from others; None where they change too often, or are too large.

        order: of the array among those of a call.
        """
        kind = (x.dtype, x.shape, x.strides, x.flags.writeable)
        if x.nbytes <= MOST_IN_SIGNATURE:
            return (*kind, x.tobytes())
        if x.nbytes > MOST_COMPARED:
            return None
        known = self._copies.setdefault((order, *kind), [])
        bits = bits_of(x)
        for number, copy in known:
            if (bits == copy).all():
                return (*kind, number)
        self._missed += len(known) == MOST_CONTENTS
        if len(known) == MOST_CONTENTS and self._missed % UNCOPIED == 0:
            self._nbytes -= known.pop(0)[1].nbytes
        if len(known) == MOST_CONTENTS or self._nbytes + x.nbytes > MOST_COPIED:
            return None
        self._nbytes, self._made = self._nbytes + x.nbytes, self._made + 1
        known.append((self._made, bits.copy()))
        return (*kind, self._made)

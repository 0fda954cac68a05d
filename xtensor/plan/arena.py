"""The arena: one piece of memory for all temporaries of a schedule, which share places that nobody needs any more."""

from __future__ import annotations

from ..storage.pool import ALIGNMENT


class Arena:
    """Places in one piece of memory, given and taken back while a schedule is planned. nbytes: what all of it takes."""

    def __init__(self) -> None:
        self.nbytes = 0
        self._free: list[tuple[int, int]] = []
        self._held: dict[int, tuple[int, int]] = {}

    def place(self, number: int, nbytes: int) -> int:
        """Give a value a place; return the bytes from the beginning of the arena to it."""
        found = next((place for place in self._free if place[1] >= nbytes), None)
        if found is None:
            found = self.nbytes, -(-nbytes // ALIGNMENT) * ALIGNMENT
            self.nbytes += found[1]
        else:
            self._free.remove(found)
        self._held[number] = found
        return found[0]

    def apart(self, nbytes: int) -> int:
        """Return the bytes from the beginning of the arena to a place that nothing else ever has."""
        place = self.nbytes
        self.nbytes += -(-nbytes // ALIGNMENT) * ALIGNMENT
        return place

    def release(self, number: int) -> None:
        """Take the place of a value back, if it has one."""
        place = self._held.pop(number, None)
        if place is not None:
            self._free.append(place)

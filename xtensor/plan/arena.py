"""The arena: one block of memory for all temporaries of a schedule, which reuse places that are no longer needed."""

from __future__ import annotations

from ..storage.pool import ALIGNMENT


class Arena:
    """Places in one block of memory, allocated and released while a schedule is planned. nbytes: the block's size."""

    def __init__(self) -> None:
        self.nbytes = 0
        self._free: list[tuple[int, int]] = []
        self._held: dict[int, tuple[int, int]] = {}

    def place(self, number: int, nbytes: int) -> int:
        """Allocate a place for a value; return its offset in the arena in bytes."""
        found = next((place for place in self._free if place[1] >= nbytes), None)
        if found is None:
            found = self.nbytes, -(-nbytes // ALIGNMENT) * ALIGNMENT
            self.nbytes += found[1]
        else:
            self._free.remove(found)
        self._held[number] = found
        return found[0]

    def apart(self, nbytes: int) -> int:
        """Return the offset in bytes of a place that is never shared."""
        place = self.nbytes
        self.nbytes += -(-nbytes // ALIGNMENT) * ALIGNMENT
        return place

    def release(self, number: int) -> None:
        """Release the place of a value, if it has one."""
        place = self._held.pop(number, None)
        if place is not None:
            self._free.append(place)

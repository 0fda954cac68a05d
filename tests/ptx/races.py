"""Finds threads of one launch that meet in global memory: one writes a byte that another one reads or writes.

Accesses are noted while a kernel runs and compared when it has ended, for the buffers that it wrote. Threads of one
block may meet with a barrier in between; atomic operations are not noted.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .faults import RaceError
from .text import Instruction


class Use(NamedTuple):
    """One load or store: byte offsets in a buffer, size, and who does it (see Who in memory.py)."""

    offsets: np.ndarray
    size: int
    threads: np.ndarray
    blocks: np.ndarray
    barriers: np.ndarray
    instruction: Instruction | None

    def places(self, grain: int) -> np.ndarray:
        """Return the grains of so many bytes, a row for each lane."""
        return (self.offsets // grain)[:, None] + np.arange(self.size // grain)


class Uses:
    """What a launch did with one buffer."""

    def __init__(self, size: int, name: str) -> None:
        self.size, self.name = size, name
        self.reads: list[Use] = []
        self.writes: list[Use] = []

    def check(self) -> None:
        """Raise RaceError where threads met."""
        if not self.writes:
            return
        in_fours = all(use.size % 4 == 0 and not (use.offsets % 4).any() for use in self.writes + self.reads)
        self.grain = 4 if in_fours else 1
        # of each grain: who wrote it, in which block, after which barrier
        self.last = np.full((3, -(-self.size // self.grain)), -1)
        for use in self.writes:
            self._meet(use, "writes")
            self.last[:, use.places(self.grain)] = np.stack([use.threads, use.blocks, use.barriers])[:, :, None]
            self._meet(use, "writes")  # lanes of the same instruction
        for use in self.reads:
            self._meet(use, "reads")

    def _meet(self, use: Use, verb: str) -> None:
        places = use.places(self.grain)
        writer, block, barriers = self.last[:, places]
        apart = (block == use.blocks[:, None]) & (barriers != use.barriers[:, None])
        clash = (writer != -1) & (writer != use.threads[:, None]) & ~apart
        if clash.any():
            lane, place = (int(number) for number in np.argwhere(clash)[0])
            byte = int(places[lane, place]) * self.grain
            who = f"thread {int(use.threads[lane])} of the launch {verb} byte {byte} of {self.name}"
            where = use.instruction.where() if use.instruction else "a launch"
            raise RaceError(f"{who}, which thread {int(writer[lane, place])} writes ({where})")

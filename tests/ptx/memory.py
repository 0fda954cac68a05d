"""The memories of a kernel: buffers of the host that stand for global memory, and bytes for each block or thread.

Every access is checked: all of it must lie in one buffer, and its address must be a multiple of its size.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np

from .faults import MisalignedError, OutOfBoundsError, RaceError
from .races import Use, Uses

SHARED_WINDOW, LOCAL_WINDOW, PARAM_WINDOW = 0x7A << 56, 0x7B << 56, 0x7C << 56
WINDOWS = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "param": PARAM_WINDOW, "global": 0, "const": 0}
WINDOW_BYTES = 1 << 32
GARBAGE = 0xA5  # what memory holds that nobody wrote

Rows = np.ndarray  # one row of unsigned numbers for each lane, a column for each part of a vector
Moments = tuple[np.ndarray, np.ndarray]  # how many barriers of its block, and of its warp, a thread has passed


class Buffer(NamedTuple):
    """A piece of global memory."""

    start: int
    data: np.ndarray
    name: str


class Who(NamedTuple):
    """The threads of one access: numbers in the launch, blocks, barriers they have passed; and the instruction."""

    threads: np.ndarray
    blocks: np.ndarray
    barriers: np.ndarray
    instruction: Any


def gather(data: np.ndarray, offsets: np.ndarray, bits: np.dtype, count: int) -> Rows:
    """Return `count` numbers for each lane from byte offsets; `data` is one-dimensional uint8."""
    size = bits.itemsize
    if not (offsets % size).any():
        whole = data[: data.size // size * size].view(bits)
        return whole[(offsets // size)[:, None] + np.arange(count)]
    return np.ascontiguousarray(data[offsets[:, None] + np.arange(size * count)]).view(bits)


def scatter(data: np.ndarray, offsets: np.ndarray, values: Rows) -> None:
    """Write the rows of `values` at byte offsets; where lanes meet, the last one stays."""
    size, count = values.dtype.itemsize, values.shape[1]
    if not (offsets % size).any():
        whole = data[: data.size // size * size].view(values.dtype)
        whole[(offsets // size)[:, None] + np.arange(count)] = values
    else:
        data[offsets[:, None] + np.arange(size * count)] = np.ascontiguousarray(values).view(np.uint8)


def check_alignment(addresses: np.ndarray, size: int) -> None:
    """Raise MisalignedError where an address is no multiple of the size of the whole access."""
    wrong = addresses % size != 0
    if wrong.any():
        raise MisalignedError(f"address {int(addresses[wrong][0]):#x} is no multiple of {size}", int(np.argmax(wrong)))


def check_range(addresses: np.ndarray, size: int, length: int, name: str) -> None:
    """Raise OutOfBoundsError where an access leaves the `length` bytes of a memory that starts at 0."""
    wrong = addresses > length - size if length >= size else np.ones(addresses.shape, bool)
    if wrong.any():
        text = f"{size} bytes at {int(addresses[wrong][0]):#x} of {name} memory, which has {length}"
        raise OutOfBoundsError(text, int(np.argmax(wrong)))


def host_bytes(low: int, high: int) -> np.ndarray:
    """Return the bytes of this process between two addresses."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * (high - low)).from_address(low))


def bytes_of(array: np.ndarray) -> tuple[int, np.ndarray]:
    """Return the address and all bytes that an array spans, strided or not."""
    low, high = np.lib.array_utils.byte_bounds(array)
    data = host_bytes(low, high)
    data.flags.writeable = array.flags.writeable
    return low, data


class Global:
    """Global and constant memory: the registered buffers, in the order of their addresses."""

    def __init__(self) -> None:
        self.buffers: list[Buffer] = []
        self.kept: list[object] = []
        self.uses: dict[int, Uses] = {}  # by the start of a buffer

    def add(self, item: np.ndarray | tuple[int, np.ndarray], name: str = "a buffer") -> int:
        """Register an array at its own address, or a contiguous one at an address of the caller's; return it."""
        if isinstance(item, tuple):
            start, data = item[0], item[1].reshape(-1).view(np.uint8)
            if data.size and not np.shares_memory(data, item[1]):
                raise ValueError("an array that is given with an address must be contiguous")
        else:
            start, data = bytes_of(item) if item.size else (0, np.empty(0, np.uint8))
        self.kept.append(item)
        if data.size:
            self._insert(Buffer(start, data, name))
        return start

    def _insert(self, new: Buffer) -> None:
        """Add a buffer; arrays of the host that overlap become one buffer of all that they span."""
        end = new.start + new.data.size
        met = [old for old in self.buffers if old.start < end and new.start < old.start + old.data.size]
        rest = [old for old in self.buffers if all(old is not other for other in met)]
        if met:
            every = [new, *met]
            if any(each.data.ctypes.data != each.start for each in every):
                raise ValueError("buffers at addresses of the caller's overlap")
            low = min(each.start for each in every)
            data = host_bytes(low, max(each.start + each.data.size for each in every))
            data.flags.writeable = any(each.data.flags.writeable for each in every)
            new = Buffer(low, data, new.name)
        self.buffers = sorted([*rest, new], key=lambda old: old.start)
        self.starts = np.array([old.start for old in self.buffers], np.uint64)

    def parts(self, addresses: np.ndarray, size: int) -> list[tuple[Buffer, np.ndarray | slice, np.ndarray]]:
        """Split lanes by buffer: (buffer, lanes, byte offsets); raises OutOfBoundsError."""
        check_alignment(addresses, size)
        if not self.buffers:
            raise OutOfBoundsError(f"{size} bytes at {int(addresses[0]):#x}: no memory is registered", 0)
        numbers = np.searchsorted(self.starts, addresses, side="right").astype(np.int64) - 1
        first = int(numbers[0])
        lanes_of = (
            [(first, slice(None))]
            if (numbers == first).all()
            else [(n, np.flatnonzero(numbers == n)) for n in np.unique(numbers)]
        )
        return [self._part(number, lanes, addresses, size) for number, lanes in lanes_of]

    def _part(
        self, number: int, lanes: np.ndarray | slice, addresses: np.ndarray, size: int
    ) -> tuple[Buffer, np.ndarray | slice, np.ndarray]:
        buffer = self.buffers[max(int(number), 0)]
        offsets = addresses[lanes].astype(np.int64) - buffer.start
        wrong = (offsets < 0) | (offsets > buffer.data.size - size)
        if wrong.any():
            place = int(np.argmax(wrong))
            raise self._beyond(
                int(addresses[lanes][place]), size, place if isinstance(lanes, slice) else int(lanes[place])
            )
        return buffer, lanes, offsets

    def _beyond(self, address: int, size: int, lane: int) -> OutOfBoundsError:
        """Return the error for an access of no buffer, which names the nearest one."""

        def distance(buffer: Buffer) -> int:
            return max(buffer.start - address, address - buffer.start - buffer.data.size)

        near = min(self.buffers, key=distance)
        beyond = address - near.start
        where = f"{-beyond} bytes before" if beyond < 0 else f"{beyond} bytes into"
        return OutOfBoundsError(f"{size} bytes at {address:#x}, {where} {near.name} of {near.data.size} bytes", lane)

    def load(self, addresses: np.ndarray, bits: np.dtype, count: int, who: Who | None = None) -> Rows:
        """Return `count` numbers for each lane."""
        found = np.empty((addresses.size, count), bits)
        for buffer, lanes, offsets in self.parts(addresses, bits.itemsize * count):
            found[lanes] = gather(buffer.data, offsets, bits, count)
            if who is not None and buffer.data.flags.writeable:
                self._note(buffer, lanes, offsets, bits.itemsize * count, who, writes=False)
        return found

    def store(self, addresses: np.ndarray, values: Rows, who: Who | None = None) -> None:
        """Write one row for each lane."""
        for buffer, lanes, offsets in self.parts(addresses, values.dtype.itemsize * values.shape[1]):
            if not buffer.data.flags.writeable:
                text = f"a write to {int(addresses[lanes][0]):#x}, in {buffer.name}, which is read only"
                raise OutOfBoundsError(text, 0)
            scatter(buffer.data, offsets, values[lanes])
            if who is not None:
                self._note(buffer, lanes, offsets, values.dtype.itemsize * values.shape[1], who, writes=True)

    def _note(
        self, buffer: Buffer, lanes: np.ndarray | slice, offsets: np.ndarray, size: int, who: Who, *, writes: bool
    ) -> None:
        uses = self.uses.setdefault(buffer.start, Uses(buffer.data.size, buffer.name))
        use = Use(offsets, size, who.threads[lanes], who.blocks[lanes], who.barriers[lanes], who.instruction)
        (uses.writes if writes else uses.reads).append(use)

    def check_races(self) -> None:
        """Raise RaceError where threads met in a buffer; what was noted is forgotten."""
        for uses in self.uses.values():
            uses.check()
        self.uses.clear()


class PerOwner:
    """Memory of which each thread (or each block) has its own: local memory, parameters."""

    def __init__(self, name: str, owners: int, length: int) -> None:
        self.name, self.length, self.stride = name, length, -(-max(length, 1) // 16) * 16
        self.data = np.full(owners * self.stride, GARBAGE, np.uint8)

    def offsets(self, owners: np.ndarray, addresses: np.ndarray, size: int) -> np.ndarray:
        """Return where each lane's access lies in `data`."""
        check_alignment(addresses, size)
        check_range(addresses, size, self.length, self.name)
        return owners * self.stride + addresses.astype(np.int64)

    def load(self, owners: np.ndarray, addresses: np.ndarray, bits: np.dtype, count: int) -> Rows:
        """Return `count` numbers for each lane."""
        return gather(self.data, self.offsets(owners, addresses, bits.itemsize * count), bits, count)

    def store(self, owners: np.ndarray, addresses: np.ndarray, values: Rows) -> None:
        """Write one row for each lane."""
        scatter(self.data, self.offsets(owners, addresses, values.dtype.itemsize * values.shape[1]), values)


MANY = -(1 << 20)


def warp_of(readers: np.ndarray) -> np.ndarray:
    """Return the warp of each reader: a thread, or -2 - w for several threads of warp w, or MANY."""
    return np.where(readers >= 0, readers // 32, -2 - readers)


def together(these: np.ndarray, those: np.ndarray) -> np.ndarray:
    """Return what stands for two readers of one byte."""
    return np.where(warp_of(these) == warp_of(those), -2 - warp_of(those), MANY)


class Shared(PerOwner):
    """Shared memory, one for each block, which notices when barriers are missing.

    For each grain of four bytes - for each byte, once fewer are used at a time - it keeps who wrote it and who read it
    last, and when: a moment of a thread is (barriers of its block, barriers of its warp). The lanes of one instruction
    run at once here, but not on a GPU.
    """

    def __init__(self, blocks: int, length: int) -> None:
        super().__init__("shared", blocks, length)
        self.grain = 4
        self.writer = np.full(self.data.size // self.grain, -1)
        self.reader = np.full(self.data.size // self.grain, -1)
        self.written = np.zeros((2, self.data.size // self.grain), np.int64)
        self.read = np.zeros((2, self.data.size // self.grain), np.int64)

    def _by_bytes(self) -> None:
        """Keep the same of each byte."""
        self.writer, self.reader, self.written, self.read = (
            np.repeat(kept, self.grain, axis=-1) for kept in (self.writer, self.reader, self.written, self.read)
        )
        self.grain = 1

    def check(self, places: np.ndarray, threads: np.ndarray, moments: Moments, writes: bool) -> None:
        """Raise RaceError where a thread meets another's write (or a write another's read) of the same moment."""
        pairs = [(self.writer, self.written)] + ([(self.reader, self.read)] if writes else [])
        for other, when in pairs:
            them = other[places]
            same_block = when[0][places] == moments[0]
            same_warp = (when[1][places] == moments[1]) | (warp_of(them) != threads // 32)
            clash = (them != -1) & (them != threads) & same_block & same_warp
            if clash.any():
                lane = int(np.argmax(clash.any(axis=-1)))
                place = int(places[lane][0] * self.grain % self.stride)
                raise RaceError(f"byte {place} of shared memory is used by two threads with no barrier between", lane)

    def note(self, places: np.ndarray, threads: np.ndarray, moments: Moments, writes: bool) -> None:
        """Remember an access that has been checked."""
        who, when = (self.writer, self.written) if writes else (self.reader, self.read)
        noted = np.broadcast_to(threads, places.shape)
        if not writes:
            noted = self._with_earlier_readers(places, noted, moments)
        who[places] = noted
        when[0][places] = np.broadcast_to(moments[0], places.shape)
        when[1][places] = np.broadcast_to(moments[1], places.shape)
        if not writes:
            lost = who[places] != noted  # lanes of this instruction that read what another one reads too
            np.minimum.at(who, places[lost], together(who[places[lost]], noted[lost]))

    def _with_earlier_readers(self, places: np.ndarray, threads: np.ndarray, moments: Moments) -> np.ndarray:
        them = self.reader[places]
        same = (them != -1) & (them != threads) & (self.read[0][places] == moments[0])
        same &= (self.read[1][places] == moments[1]) | (warp_of(them) != threads // 32)
        return np.where(same, together(them, threads), threads)

    def access(
        self,
        owners: np.ndarray,
        addresses: np.ndarray,
        size: int,
        threads: np.ndarray,
        moments: Moments,
        writes: bool,
    ) -> np.ndarray:
        """Check one access of each lane and return its offsets."""
        offsets = self.offsets(owners, addresses, size)
        if size % self.grain:
            self._by_bytes()
        places = (offsets // self.grain)[:, None] + np.arange(size // self.grain)
        when = moments[0][:, None], moments[1][:, None]
        self.check(places, threads[:, None], when, writes)
        self.note(places, threads[:, None], when, writes)
        return offsets

    def store_at(self, offsets: np.ndarray, values: Rows) -> None:
        """Write rows where `access` said; RaceError where lanes of one store write different values to one place."""
        order = np.argsort(offsets, kind="stable")
        same = np.diff(offsets[order]) == 0
        differ = same & (values[order][1:] != values[order][:-1]).any(axis=1)
        if differ.any():
            raise RaceError(
                "two threads write different values to one place of shared memory", int(order[np.argmax(differ)])
            )
        scatter(self.data, offsets, values)

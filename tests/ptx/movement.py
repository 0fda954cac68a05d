"""Moves, loads, stores and addresses."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from .decode import Context, Run, address_reader, opcode, reader, simple, writer
from .faults import OutOfBoundsError
from .memory import WINDOW_BYTES, WINDOWS, check_alignment, check_range, gather
from .text import DTYPES, SPACES, Address, Symbol, Vector, bits_of

U64 = DTYPES["u64"]
HINTS = re.compile(
    r"nc|volatile|relaxed|acquire|release|weak|gpu|cta|sys|ca|cg|cs|cv|lu|wb|wt|unified|noftz|(L1|L2)::\w+|::cta|L1|L2"
)


@opcode("mov")
def move(context: Context) -> Run:
    """mov, also between one register and several narrower ones."""
    result, source = context.operands
    if isinstance(result, Vector):
        return unpack(context, result.items, source)
    if isinstance(source, Vector):
        return pack(context, result, source.items)
    return simple(context, lambda a: a, [context.dtype], context.dtype)


def unpack(context: Context, results: tuple[Any, ...], source: Any) -> Run:
    """Write the parts of one number to several registers, the lowest first."""
    dtype = bits_of(context.dtype)
    part = np.dtype(f"u{dtype.itemsize // len(results)}")
    read = reader(context, source, dtype)
    writes = [writer(context, result, part) for result in results]

    def run(frame: Any, selection: Any) -> None:
        parts = np.ascontiguousarray(read(frame, selection)).view(part).reshape(-1, len(writes))
        for number, write in enumerate(writes):
            write(frame, selection, np.ascontiguousarray(parts[:, number]))

    return run


def pack(context: Context, result: Any, sources: tuple[Any, ...]) -> Run:
    """Write several numbers into one register, the first to the lowest bits."""
    dtype = bits_of(context.dtype)
    part = np.dtype(f"u{dtype.itemsize // len(sources)}")
    reads = [reader(context, source, part) for source in sources]
    write = writer(context, result, dtype)

    def run(frame: Any, selection: Any) -> None:
        parts = np.broadcast_arrays(*(read(frame, selection) for read in reads))
        write(frame, selection, np.ascontiguousarray(np.stack(parts, axis=1)).view(dtype)[:, 0])

    return run


@opcode("cvta")
def convert_address(context: Context) -> Run:
    """Addresses of one space made generic, or back."""
    space = next(part for part in context.parts if part in SPACES)
    base = np.uint64(WINDOWS[space])
    if "to" in context.parts:
        return simple(context, lambda a: a - base, [context.dtype], context.dtype)
    return simple(context, lambda a: a + base, [context.dtype], context.dtype)


@opcode("isspacep")
def is_in_space(context: Context) -> Run:
    """Whether a generic address lies in a space."""
    space = context.parts[1]

    def compute(a: np.ndarray) -> np.ndarray:
        inside = {name: window_of(a, name) for name in ("shared", "local", "param")}
        return inside[space] if space in inside else ~np.logical_or.reduce(list(inside.values()))

    return simple(context, compute, [U64], DTYPES["pred"])


def window_of(addresses: np.ndarray, space: str) -> np.ndarray:
    """Return which generic addresses lie in a space."""
    base = np.uint64(WINDOWS[space])
    return (addresses >= base) & (addresses < base + np.uint64(WINDOW_BYTES))


# Loads and stores


class Access:
    """What a load or store says: space, type, how many numbers, and how the address is computed."""

    def __init__(self, context: Context, place: Any, register: Any) -> None:
        self.context = context
        found = [part for part in context.parts[1:-1] if part]
        self.space = next((part for part in found if part in SPACES), "generic")
        width = next((int(part[1:]) for part in found if re.fullmatch(r"v[248]", part)), 1)
        unknown = [
            part
            for part in found
            if part not in SPACES and not re.fullmatch(r"v[248]", part) and not HINTS.fullmatch(part)
        ]
        if unknown:
            raise context.unknown(f"modifier {unknown[0]}")
        self.dtype, self.count = context.dtype, width
        self.registers = register.items if isinstance(register, Vector) else (register,)
        self.variable = self._variable(place)
        self.addresses = None if self.variable else address_reader(context, place)

    def _variable(self, place: Any) -> tuple[str, int] | None:
        """Return name and offset if this is a parameter of a call or of a device function."""
        function = self.context.function
        if self.space != "param" or not isinstance(place, Address) or not isinstance(place.base, Symbol):
            return None
        name = place.base.name
        entry = function.entry and any(param.name == name for param in function.params)
        return None if entry else (name, place.base.offset + place.offset)

    def load(self, frame: Any, selection: Any) -> np.ndarray:
        """Return a row of bits for each lane."""
        bits = bits_of(self.dtype)
        if self.variable:
            name, offset = self.variable
            rows = frame.param(name)
            found = rows[:, offset : offset + bits.itemsize * self.count]
            return np.ascontiguousarray(found if selection is None else found[selection]).view(bits)
        return load(frame, selection, self.space, self.addresses(frame, selection), bits, self.count)

    def store(self, frame: Any, selection: Any, rows: np.ndarray) -> None:
        """Write a row of bits of each lane."""
        if self.variable:
            name, offset = self.variable
            chosen = slice(None) if selection is None else selection
            data = np.ascontiguousarray(rows).view(np.uint8)
            frame.param(name)[chosen, offset : offset + data.shape[1]] = data
        else:
            store(frame, selection, self.space, self.addresses(frame, selection), rows)


def load(frame: Any, selection: Any, space: str, addresses: np.ndarray, bits: np.dtype, count: int) -> np.ndarray:
    """Return a row of `count` numbers for each lane that runs."""
    if space == "generic":
        found = np.empty((addresses.size, count), bits)
        for inner, lanes, local in generic(frame, selection, addresses):
            found[lanes] = load(frame, frame.selected(selection)[lanes], inner, local, bits, count)
        return found
    batch, threads, size = frame.batch, frame.threads(selection), bits.itemsize * count
    if space in ("global", "const"):
        return batch.memory.load(addresses, bits, count, batch.who(threads))
    if space == "local":
        return batch.local.load(threads, addresses, bits, count)
    if space == "param":
        check_alignment(addresses, size)
        check_range(addresses, size, batch.params.size, "param")
        return gather(batch.params, addresses.astype(np.int64), bits, count)
    return gather(batch.shared.data, shared_offsets(batch, threads, addresses, size, False), bits, count)


def store(frame: Any, selection: Any, space: str, addresses: np.ndarray, rows: np.ndarray) -> None:
    """Write one row of each lane that runs."""
    if space == "generic":
        for inner, lanes, local in generic(frame, selection, addresses):
            store(frame, frame.selected(selection)[lanes], inner, local, rows[lanes])
        return
    batch, threads = frame.batch, frame.threads(selection)
    if space == "global":
        batch.memory.store(addresses, rows, batch.who(threads))
    elif space == "local":
        batch.local.store(threads, addresses, rows)
    elif space == "shared":
        offsets = shared_offsets(batch, threads, addresses, rows.dtype.itemsize * rows.shape[1], True)
        batch.shared.store_at(offsets, rows)
    else:
        raise OutOfBoundsError(f"a write to {space} memory", 0)


def shared_offsets(batch: Any, threads: np.ndarray, addresses: np.ndarray, size: int, writes: bool) -> np.ndarray:
    """Check accesses to shared memory and return where they lie."""
    moments = batch.barriers[threads], batch.warp_barriers[threads]
    return batch.shared.access(batch.owner[threads], addresses, size, batch.thread[threads], moments, writes)


def generic(frame: Any, selection: Any, addresses: np.ndarray) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """Split lanes by the space of their generic addresses: (space, lanes, addresses in the space)."""
    found, rest = [], np.ones(addresses.size, bool)
    for space in ("shared", "local", "param"):
        inside = window_of(addresses, space)
        rest &= ~inside
        if inside.any():
            found.append((space, np.flatnonzero(inside), addresses[inside] - np.uint64(WINDOWS[space])))
    if rest.any():
        found.append(("global", np.flatnonzero(rest), addresses[rest]))
    return found


@opcode("ld", "ldu")
def load_instruction(context: Context) -> Run:
    """ld of one number or a vector."""
    access = Access(context, context.operands[1], context.operands[0])
    writes = [writer(context, register, context.dtype) for register in access.registers]

    def run(frame: Any, selection: Any) -> None:
        rows = access.load(frame, selection)
        for number, write in enumerate(writes):
            write(frame, selection, np.ascontiguousarray(rows[:, number]).view(context.dtype))

    return run


@opcode("st")
def store_instruction(context: Context) -> Run:
    """st of one number or a vector."""
    access = Access(context, context.operands[0], context.operands[1])
    reads = [reader(context, register, bits_of(context.dtype)) for register in access.registers]

    def run(frame: Any, selection: Any) -> None:
        lanes = frame.threads(selection).shape
        rows = np.empty((*lanes, len(reads)), bits_of(context.dtype))
        for number, read in enumerate(reads):
            rows[:, number] = read(frame, selection)
        access.store(frame, selection, rows)

    return run


@opcode("prefetch", "prefetchu", "discard", "applypriority")
def hint(context: Context) -> Run:
    """Hints to the caches do nothing."""
    return lambda frame, selection: None

"""Generated code meets memory: loop nests from shapes and strides, their parts, and the calls.

Axes are ordered by the memory of the operand that matters most and joined where every operand's strides allow it
(mshadow's flattening, for any number of axes). Operands that disagree about the fastest axis are walked in strips.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import product
from math import prod
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from ..base.dtypes import DType
from ..base.layout import Shape
from ..base.threads import Shares, run, share, worth
from ..codegen.cpu import mailbox  # noqa: F401 - tells `share` how
from ..codegen.cpu.compile import Code, code_of, host
from ..codegen.cpu.driver import source
from ..codegen.cpu.loop import CROSSWISE, PACKED, SAME, STRIDED, Form, brief, lanes_of
from ..codegen.cpu.tiles import WIDTH, width
from ..devices.cpu import CPU
from ..plan.program import Kernel, Program
from ..storage.blob import TBlob
from ..storage.pool import ALIGNMENT, address_of, aligned

# What one thread moves per second: to and from memory, and within the caches while all of it fits there.
MEMORY_SPEED, CACHE_SPEED = 45e9, 100e9
CACHE_BYTES = 8 << 20

# Outputs of more bytes than the last-level cache holds are written past the caches.
STREAM_BYTES = 24 << 20

# Rows of fewer bytes are not: the lines where they meet are shared, and go through the caches.
STREAM_ROW = 1024

# Bytes between what a loop reads from memory and what it has fetched for later; where rows do not follow each other in
# memory, so many rows of parts of at most so many bytes, where there are many. (A stencil over 10 million numbers takes
# 4 % less time than with whole rows and bytes.)
AHEAD = 2048
AHEAD_ROWS, ROW_PART, MANY_ROWS = 4, 8192, 64

# Bytes of the pieces in which large results are written from the last to the first. (Centring
# 10 million float32 by kernels takes 3 to 15 % less time.)
BACKWARDS = 2 << 20

# Elements of a strip of operands gathered crosswise.
CROSS_STRIP = 512

# Loops inside one kernel; further outer axes are walked from here.
DEPTH = 4

# Prepared nests that a program remembers, and the calls from which one is too long to be remembered.
REMEMBERED, LONG = 256, 4096


class Operand(NamedTuple):
    """Where an operand lies: the address of its first element, and its strides in bytes over the whole domain."""

    address: int
    strides: Shape
    itemsize: int


class Nest(NamedTuple):
    """Loops from the outermost: their lengths, each operand's strides, and which of them are reduced."""

    lengths: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]
    reduced: tuple[bool, ...]


def seconds_of(program: Program, size: int, traffic: int | None = None) -> float:
    """Estimate how long one thread takes for a program over so many elements.

    traffic: bytes that one element moves, where that is not what its operands would move if they were packed.
    """
    return max(moving_seconds(size * (program.traffic if traffic is None else traffic)), size * program.seconds)


def moving_seconds(nbytes: int) -> float:
    """Estimate how long one thread takes to move so many bytes."""
    return nbytes / (CACHE_SPEED if nbytes <= CACHE_BYTES else MEMORY_SPEED)


def traffic_of(shape: Shape, operands: Sequence[Operand]) -> int:
    """Estimate the bytes that one element of a shape moves to and from memory.

    Views of one array a few rows apart move it once, and what repeats nothing. What lies crosswise takes as long as
    three times its bytes.
    """
    size, found, moved = prod(shape), list[Operand](), 0
    for one in operands:
        steps = [stride for stride, length in zip(one.strides, shape, strict=True) if length != 1]
        near = [other for other in found if abs(other.address - one.address) * 8 < size * one.itemsize]
        if 0 in steps or any(other.strides == one.strides for other in near):
            continue
        found.append(one)
        crosswise = len(steps) > 1 and steps[-1] != one.itemsize and one.itemsize in steps
        moved += one.itemsize * (3 if crosswise else 1)
    return moved


def operand(blob: TBlob, shape: Shape) -> Operand:
    """Return a blob as an operand of loops over `shape`, to which it broadcasts."""
    layout = blob.layout
    strides = layout.strides
    if layout.shape != shape:
        missing = len(shape) - len(strides)
        kept = zip(layout.shape, strides, shape[missing:], strict=True)
        strides = (0,) * missing + tuple([0 if length != wanted else stride for length, stride, wanted in kept])
    return Operand(blob.address, strides, blob.dtype.itemsize)


# ---- nests


def nest_of(shape: Shape, strides: Sequence[Shape], lead: Shape, axes: Sequence[int] = ()) -> Nest:
    """Return the loops over a shape with as few axes as possible, ordered as `lead`'s strides fall."""
    order = [axis for axis, length in enumerate(shape) if length != 1]
    if len(order) > 1:
        order.sort(key=lambda axis: (-abs(lead[axis]), axis))
    reduced = [axis in axes for axis in order]
    lengths, merged, kept = joined(
        [shape[axis] for axis in order], [[one[axis] for axis in order] for one in strides], reduced
    )
    if not lengths:
        lengths, merged, kept = [1], [[0] for _ in strides], [False]
    return Nest(tuple(lengths), tuple(map(tuple, merged)), tuple(kept))


def joined(
    lengths: Sequence[int], strides: Sequence[Sequence[int]], marks: Sequence[bool]
) -> tuple[list[int], list[list[int]], list[bool]]:
    """Return neighbouring loops as one where every operand's strides allow it, and both have the same mark."""
    kept: list[int] = []
    merged: list[list[int]] = [[] for _ in strides]
    marked: list[bool] = []
    for place, (length, mark) in enumerate(zip(lengths, marks, strict=True)):
        steps = [one[place] for one in strides]
        if kept and marked[-1] == mark and all(m[-1] == s * length for m, s in zip(merged, steps, strict=True)):
            kept[-1] *= length
            for m, s in zip(merged, steps, strict=True):
                m[-1] = s
        else:
            kept.append(length)
            marked.append(mark)
            for m, s in zip(merged, steps, strict=True):
                m.append(s)
    return kept, merged, marked


def lie_of(inner: int, itemsize: int) -> str:
    """Return how an operand lies along an innermost axis of this stride."""
    return PACKED if inner == itemsize else SAME if inner == 0 else STRIDED


# ---- ready to run


_DOUBLE, _FLOAT = struct.Struct("=d").pack, struct.Struct("=f4x").pack


def scalar_bytes(value: Any, dtype: DType) -> bytes:
    """Return a Python scalar as one slot of 8 bytes, converted as NumPy converts it."""
    if dtype.kind == "f" and (dtype.itemsize == 8 or (dtype.itemsize == 4 and -1e38 < value < 1e38)):
        return _DOUBLE(value) if dtype.itemsize == 8 else _FLOAT(value)
    native: np.ndarray[Any, Any] = CPU.call(np.array(value).astype, dtype)
    return native.tobytes().ljust(8, b"\0")


def scalar_slots(scalars: Iterable[Any], dtypes: Sequence[DType]) -> bytes:
    """Return the slots of Python scalars, one after the other."""
    return b"".join([scalar_bytes(value, dtype) for value, dtype in zip(scalars, dtypes, strict=True)])


def scalars_of(kernels: Iterable[Kernel], values: Sequence[Any]) -> bytes:
    """Return the slots of the scalars of kernels that run together."""
    return b"".join([scalar_slots([values[n] for n in one.scalars], one.program.scalars) for one in kernels])


def seconds_together(kernels: Sequence[Kernel], kept: frozenset[int], values: Sequence[Any]) -> float:
    """Estimate how long one thread takes for kernels that run together: what comes from outside and what is kept moves,
    and all is computed.
    """
    outside = {n for one in kernels for n in one.inputs} - {n for one in kernels for n in one.results} | kept
    moved = sum(prod(values[n].shape) * values[n].dtype.itemsize for n in outside)
    computing: float = sum(prod(values[one.domain].shape) * one.program.seconds for one in kernels)
    return moving_seconds(moved) + computing


class Box(NamedTuple):
    """A part of a nest: where it starts along each loop, and how long it is."""

    starts: tuple[int, ...]
    lengths: tuple[int, ...]


def whole(nest: Nest) -> Box:
    return Box((0,) * len(nest.lengths), nest.lengths)


def parts_of(box: Box, axis: int, size: int) -> list[Box]:
    """Return a box cut along an axis into pieces of a size, the last one perhaps smaller."""
    start, length = box.starts[axis], box.lengths[axis]
    pieces = []
    for at in range(0, length, size):
        starts = (*box.starts[:axis], start + at, *box.starts[axis + 1 :])
        lengths = (*box.lengths[:axis], min(size, length - at), *box.lengths[axis + 1 :])
        pieces.append(Box(starts, lengths))
    return pieces


def row_boxes(box: Box, threads: int) -> list[Box]:
    """Return a box cut between rows, one part for each thread."""
    lengths = box.lengths[:-1]
    if not lengths:
        return [box]
    axis = int(np.argmax(lengths))
    return parts_of(box, axis, -(-lengths[axis] // threads))


class Call(NamedTuple):
    """The slots of one call, with 0 for the addresses, and how far from its operand's address each of them is."""

    slots: list[int]
    offsets: list[int]


class Table(NamedTuple):
    """The slots of all calls, in a row, with 0 for addresses.

    moves: slot, operand, and how far from its address. own: slot, and how far into memory of the run's own, which has
    so many bytes.
    """

    shares: Shares
    scalars: bytes
    slots: list[int]
    moves: list[tuple[int, int, int]]
    own: list[tuple[int, int]]
    nbytes: int

    def run(self, code: Code, addresses: Sequence[int] | Mapping[int, int]) -> None:
        """Call code with these addresses of its operands."""
        slots = self.slots.copy()
        for slot, operand, offset in self.moves:
            slots[slot] = addresses[operand] + offset
        if self.own:
            memory = aligned(np.empty, self.nbytes)
            base = address_of(memory)
            for slot, after in self.own:
                slots[slot] = base + after
        share_calls(code, self.shares, struct.pack(f"={len(slots)}q", *slots))


class Prepared:
    """Code and its calls, ready to run: all is known but the addresses and the scalars."""

    __slots__ = ("_table", "code")

    def __init__(self, code: Code) -> None:
        self.code = code
        self._table: Table | None = None

    def run(self, addresses: Sequence[int] | Mapping[int, int], scalars: bytes) -> None:
        started = perf_counter()
        self.table(scalars).run(self.code, addresses)
        self.code.used(perf_counter() - started)

    def table(self, scalars: bytes) -> Table:
        """Return the calls of all threads, with these scalars; those of the last time are at hand."""
        table = self._table
        if table is None or table.scalars != scalars:
            table = self._table = self._laid_out(scalars)
        return table

    def _laid_out(self, scalars: bytes) -> Table:
        raise AssertionError("who prepares calls lays them out")


class Ready(Prepared):
    """A program over a nest, ready to run.

    positions: where in the slots the addresses go. groups: the calls that each thread makes. own: memory that each
    thread works in: where in the slots its address goes, how far it lies from the first of them, and its bytes.
    """

    __slots__ = ("groups", "own", "pack", "positions")

    def __init__(
        self,
        code: Code,
        nest: Nest,
        lie: Sequence[str | None],
        groups: Sequence[Sequence[Box]],
        ahead: Mapping[int, int],
        own: Sequence[int],
        *,
        goes_on: bool = False,
    ) -> None:
        depth = min(len(nest.lengths), DEPTH)
        kept = [
            strides[len(strides) - depth :] if how in (STRIDED, CROSSWISE) else strides[len(strides) - depth : -1]
            for strides, how in zip(nest.strides, lie, strict=True)
        ]
        for place, distance in ahead.items():
            kept[place] = (*kept[place], distance)
        super().__init__(code)
        self.positions = []
        after = depth + 2 * goes_on
        for strides in kept:
            self.positions.append(after)
            after += 1 + len(strides)
        sizes = [-(-size // ALIGNMENT) * ALIGNMENT for size in own]
        self.own = [(after + at, sum(sizes[:at]), size) for at, size in enumerate(sizes)]
        self.pack = struct.Struct(f"={after + len(own)}q").pack
        tail = [slot for strides in kept for slot in (0, *strides)] + [0] * len(own)
        outer = len(nest.lengths) - depth
        self.groups = [[call for box in boxes for call in _calls(nest, outer, box, goes_on, tail)] for boxes in groups]

    def _laid_out(self, scalars: bytes) -> Table:
        """Return the calls of all threads, one after the other, each followed by the scalars."""
        slots: list[int] = []
        moves: list[tuple[int, int, int]] = []
        own: list[tuple[int, int]] = []
        nbytes = 0
        given = [slot for (slot,) in struct.iter_unpack("=q", scalars)]
        for group in self.groups:
            for call in group:
                moves += [
                    (len(slots) + position, operand, call.offsets[operand])
                    for operand, position in enumerate(self.positions)
                ]
                own += [(len(slots) + slot, nbytes + after) for slot, after, _ in self.own]
                slots += (*call.slots, *given)
            nbytes += sum([size for _, _, size in self.own])
        counts = [len(group) for group in self.groups]
        return Table(Shares(counts, 8 * len(slots) // sum(counts)), scalars, slots, moves, own, nbytes)


def share_out(code: Code, shares: Sequence[Sequence[bytes]]) -> None:
    """Call code for every argument of every share, each share on a thread of its own."""
    counts = tuple([len(arguments) for arguments in shares])
    share_calls(code, Shares(counts, len(shares[0][0])), b"".join([b"".join(arguments) for arguments in shares]))


def share_calls(code: Code, shares: Shares, arguments: bytes) -> None:
    """Call code for every argument, shared out among threads."""
    if len(arguments) == shares.size:
        code.call(arguments)
    elif len(shares.counts) == 1:
        call, size = code.call, shares.size
        for at in range(0, len(arguments), size):
            call(arguments[at : at + size])
    elif not share(code.address, shares, arguments):
        run([partial(_each, code.call, own) for own in shares.apart(arguments)])


def _each(call: Callable[[bytes], None], arguments: Sequence[bytes]) -> None:
    for argument in arguments:
        call(argument)


def _calls(nest: Nest, outer: int, box: Box, goes_on: bool, tail: list[int]) -> list[Call]:
    """Return the calls that cover a box: one for each position of the loops outside the kernel.

    goes_on: whether code is told that rows go on before and after the box.
    """
    around = (-(box.starts[-1] > 0), -(box.starts[-1] + box.lengths[-1] < nest.lengths[-1])) if goes_on else ()
    slots = [*box.lengths[outer:], *around, *tail]
    ranges = [range(start, start + n) for start, n in zip(box.starts[:outer], box.lengths[:outer], strict=True)]
    calls = []
    for position in product(*ranges):
        at = (*position, *box.starts[outer:])
        offsets = [sum([i * stride for i, stride in zip(at, strides, strict=True)]) for strides in nest.strides]
        calls.append(Call(slots, offsets))
    return calls


def ready(
    program: Program,
    nest: Nest,
    itemsizes: Sequence[int],
    groups: Sequence[Sequence[Box]],
    contract: bool,
    *,
    streams: bool = False,
    ahead: Mapping[int, int] | None = None,
    crosswise: Sequence[int] = (),
    strip: bool = False,
    roomy: Sequence[int] = (),
) -> Ready:
    """Return a program ready to run over a nest; operands of reductions come last and have no innermost stride.

    streams: whether outputs bypass the caches. ahead: how many bytes further on inputs are fetched, by their places.
    crosswise: the inputs that are turned over in tiles. strip, roomy: as a Form says.
    """
    plain = len(nest.strides) - len(program.reductions)
    lie = [lie_of(s[-1], size) for s, size in zip(nest.strides[:plain], itemsizes, strict=False)]
    for place in range(len(program.inputs), plain):
        if lie[place] == SAME:  # what is written stays in place only where the loop has one round
            lie[place] = PACKED
    for place in crosswise:
        lie[place] = CROSSWISE
    machine = host()
    assert machine is not None
    depth = min(len(nest.lengths), DEPTH)
    lanes = lanes_of(program, machine.vector_bytes)
    tiles = [lanes * width(lanes) * itemsizes[place] for place in crosswise]
    fetched = {place: distance for place, distance in (ahead or {}).items() if lie[place] == PACKED}
    form = Form(lanes, depth, tuple(lie), streams and machine.streams, tuple(fetched), strip, tuple(roomy))
    code = code_of(
        (program, form, contract),
        lambda: source(program, form, contract=contract),
        lambda: source(program, brief(program, form, machine.vector_bytes), contract=contract),
    )
    lies = [*lie, *(None for _ in program.reductions)]
    return Ready(code, nest, lies, groups, fetched, tiles, goes_on=form.streams)


def shared_out(boxes: Sequence[Box], threads: int) -> list[Sequence[Box]]:
    """Return boxes as one group for each thread."""
    threads = min(threads, len(boxes))
    return [boxes[len(boxes) * part // threads : len(boxes) * (part + 1) // threads] for part in range(threads)]


def remembered(program: Program, key: Any, make: Callable[[], Any]) -> Any:
    """Return what was prepared for a program under a key, prepared now if need be."""
    found = program.codes.get(key)
    if found is None:
        found = make()
        if isinstance(found, Ready) and sum(map(len, found.groups)) > LONG:
            return found
        if len(program.codes) >= REMEMBERED:
            program.codes.clear()
        program.codes[key] = found
    return found


# ---- elementwise


def run_map(program: Program, shape: Shape, operands: Sequence[Operand], scalars: bytes, contract: bool) -> None:
    """Run a program without reductions over a shape; the operands are its inputs and outputs."""
    strides = tuple([o.strides for o in operands])
    traffic = remembered(program, (shape, strides), lambda: traffic_of(shape, operands))
    threads = worth(seconds_of(program, prod(shape), traffic))
    aligned = _begin_alike(program, [o.address for o in operands])
    key = (shape, strides, contract, threads, aligned)
    made: Ready = remembered(program, key, lambda: _ready_map(program, shape, strides, contract, threads, aligned))
    made.run([o.address for o in operands], scalars)


def run_packed(program: Program, size: int, addresses: Sequence[int], scalars: bytes, contract: bool) -> None:
    """The commonest case of `run_map`: operands that are runs of memory of one size, at these addresses."""
    threads = worth(seconds_of(program, size))
    aligned = 8 * size < STREAM_BYTES or _begin_alike(program, addresses)
    key = (size, contract, threads, aligned)
    made: Any = program.codes.get(key)
    if made is None:
        strides = tuple((dtype.itemsize,) for dtype in program.moved)
        made = remembered(program, key, lambda: _ready_map(program, (size,), strides, contract, threads, aligned))
    made.run(addresses, scalars)


def _ready_map(
    program: Program, shape: Shape, strides: Sequence[Shape], contract: bool, threads: int, aligned: bool
) -> Ready:
    nest, crosswise = _turned(program, nest_of(shape, strides, strides[len(program.inputs)]))
    sizes = [dtype.itemsize for dtype in program.moved]
    streams = aligned and can_stream(program, nest)
    if crosswise:
        lanes = _lanes(program)
        boxes = _tile_boxes(nest, threads, lanes)
        further = [lanes * one[-2] for one in nest.strides]  # the same columns of the next tile
    else:
        boxes = _map_boxes(nest, threads)
        further = [AHEAD] * len(nest.strides)
        if streams and (len(nest.lengths) == 1 or nest.lengths[-1] * max(sizes) <= ROW_PART):
            boxes = _backwards(boxes, program.widest)
        if streams and len(nest.lengths) > 1 and nest.lengths[-2] >= MANY_ROWS:
            boxes = _row_parts(boxes, nest.lengths[-1], max(sizes))
            further = [AHEAD_ROWS * one[-2] or AHEAD for one in nest.strides]
    ahead = {place: further[place] for place in range(len(program.inputs) if streams else 0)}
    return ready(
        program,
        nest,
        sizes,
        shared_out(boxes, threads),
        contract,
        streams=streams,
        ahead=ahead,
        crosswise=crosswise,
    )


def _backwards(boxes: Sequence[Box], itemsize: int) -> list[Box]:
    """Return boxes in pieces, the last of each first: where a reduction went before, that is in the cache yet."""
    found: list[Box] = []
    for box in boxes:
        row = prod(box.lengths[1:]) * itemsize
        size = max(BACKWARDS // row, 1) if len(box.lengths) > 1 else BACKWARDS // itemsize
        found += parts_of(box, 0, size)[::-1]
    return found


def _row_parts(boxes: Sequence[Box], length: int, itemsize: int) -> list[Box]:
    """Return boxes cut through the rows of a nest, into as few equal parts as are short enough."""
    parts = -(-length * itemsize // ROW_PART)
    size = -(-length // (parts * 64)) * 64
    return [part for box in boxes for part in parts_of(box, len(box.lengths) - 1, size)]


def _lanes(program: Program) -> int:
    return lanes_of(program, host().vector_bytes)  # type: ignore[union-attr]


def _turned(program: Program, nest: Nest) -> tuple[Nest, list[int]]:
    """Return the inputs that are packed along one other axis than the innermost, and the nest with that axis beside it.

    Where some are packed along other axes again, those of the first of them are taken.
    """
    lengths, lanes = nest.lengths, _lanes(program)
    axis, found = -1, []
    for place, (dtype, strides) in enumerate(zip(program.inputs, nest.strides, strict=False)):
        if strides[-1] in (0, dtype.itemsize) or dtype.itemsize not in strides[:-1]:
            continue
        own = strides.index(dtype.itemsize)
        if axis in (-1, own) and min(lengths[own], lengths[-1]) >= lanes:
            axis = own
            found.append(place)
    if not found or axis == len(lengths) - 2:
        return nest, found
    order = [*(a for a in range(len(lengths) - 1) if a != axis), axis, len(lengths) - 1]
    turned = [tuple([one[a] for a in order]) for one in (lengths, *nest.strides)]
    return Nest(turned[0], tuple(turned[1:]), nest.reduced), found


def _tile_boxes(nest: Nest, threads: int, lanes: int) -> list[Box]:
    """Return the parts of a nest with tiles: parts for threads between tiles, and strips of columns in each."""
    boxes = [whole(nest)]
    longest = int(np.argmax(nest.lengths[:-1]))
    if threads > 1:
        step = lanes if longest == len(nest.lengths) - 2 else 1
        boxes = parts_of(boxes[0], longest, -(-nest.lengths[longest] // (threads * step)) * step)
    columns = nest.lengths[-1]
    even = -(-columns // -(-columns // WIDTH))
    strip = -(-even // lanes) * lanes
    return [part for box in boxes for part in parts_of(box, len(nest.lengths) - 1, strip)]


def _begin_alike(program: Program, addresses: Sequence[int]) -> bool:
    """Return whether all outputs meet the bounds of vectors at the same elements."""
    places = [divmod(a, d.itemsize) for a, d in zip(addresses, program.moved, strict=True)][len(program.inputs) :]
    return all([rest == 0 and (place - places[0][0]) % 64 == 0 for place, rest in places])


def can_stream(program: Program, nest: Nest) -> bool:
    """Return whether outputs may bypass the caches: large, packed alike, and whole vectors of at least 16 bytes."""
    sizes = [program.dtypes[number].itemsize for number in program.outputs]
    inner = nest.lengths[-1] * min(sizes)
    if prod(nest.lengths) * max(sizes) < STREAM_BYTES or (len(nest.lengths) > 1 and inner < STREAM_ROW):
        return False
    lanes = _lanes(program)
    written = [
        [divmod(stride, size) for stride in strides]
        for size, strides in zip(sizes, nest.strides[len(program.inputs) :], strict=False)
    ]
    return written[0][-1] == (1, 0) and all(
        lanes * size >= 16 and steps == written[0] for size, steps in zip(sizes, written, strict=True)
    )


def _map_boxes(nest: Nest, threads: int) -> list[Box]:
    """Return the parts of an elementwise nest: strips where operands lie crosswise, else one per thread."""
    box = whole(nest)
    if _is_crosswise(nest):
        return parts_of(box, len(nest.lengths) - 1, CROSS_STRIP)
    if threads == 1:
        return [box]
    axis = 0 if nest.lengths[0] >= threads else int(np.argmax(nest.lengths))
    size = -(-nest.lengths[axis] // threads)
    if axis == len(nest.lengths) - 1:
        size = -(-size // 64) * 64  # parts begin where a cache line does
    return parts_of(box, axis, size)


def _is_crosswise(nest: Nest) -> bool:
    """Return whether some operand's fastest axis is not the innermost one, over more than a strip."""
    if len(nest.lengths) < 2 or nest.lengths[-1] <= CROSS_STRIP:
        return False
    return any(
        abs(strides[-1]) > 64 and any(0 < abs(stride) < abs(strides[-1]) for stride in strides[:-1])
        for strides in nest.strides
    )

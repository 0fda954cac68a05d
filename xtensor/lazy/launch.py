"""Generated code meets memory: loop nests from shapes and strides, their parts, and the calls.

Axes are ordered by the memory of the operand that matters most and joined where every operand's strides allow it
(mshadow's flattening, for any number of axes). Operands that disagree about the fastest axis are walked in strips.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from math import prod
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from ..blob import TBlob
from ..dtypes import DType
from ..layout import Shape
from ..threads import count, run
from .compile import Code, code_of, host, is_ready
from .llvm import PACKED, SAME, STRIDED, Form, folded, identity, lanes_of
from .plan import Program, Reduction

# Seconds of work from which a second thread gains more than waking it costs (some 45 us).
PARALLEL_SECONDS = 120e-6

# What one thread moves to and from memory.
BYTES_PER_SECOND = 30e9

# Outputs of more bytes than the last-level cache holds are written past the caches.
STREAM_BYTES = 24 << 20

# Reduced axes are cut into pieces of so many elements (innermost) or rows (outer), whatever the number of threads.
PIECE, PIECE_ROWS = 16384, 512

# Elements of a strip: of accumulators that stay in the first-level cache, and of operands that lie crosswise.
STRIP, CROSS_STRIP = 4096, 128

# Loops inside one kernel; further outer axes are walked from here.
DEPTH = 3


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


def seconds_of(program: Program, size: int) -> float:
    """Estimate how long one thread takes for a program over so many elements."""
    return size * max(program.traffic / BYTES_PER_SECOND, program.seconds)


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
    lengths: list[int] = []
    merged: list[list[int]] = [[] for _ in strides]
    reduced: list[bool] = []
    for axis in order:
        length, is_reduced = shape[axis], axis in axes
        joins = bool(lengths) and reduced[-1] == is_reduced
        if joins and all(m[-1] == s[axis] * length for m, s in zip(merged, strides, strict=True)):
            lengths[-1] *= length
            for m, s in zip(merged, strides, strict=True):
                m[-1] = s[axis]
        else:
            lengths.append(length)
            reduced.append(is_reduced)
            for m, s in zip(merged, strides, strict=True):
                m.append(s[axis])
    if not lengths:
        lengths, merged, reduced = [1], [[0] for _ in strides], [False]
    return Nest(tuple(lengths), tuple(map(tuple, merged)), tuple(reduced))


def lie_of(inner: int, itemsize: int) -> str:
    """Return how an operand lies along an innermost axis of this stride."""
    return PACKED if inner == itemsize else SAME if inner == 0 else STRIDED


# ---- calls


_DOUBLE, _FLOAT = struct.Struct("=d").pack, struct.Struct("=f4x").pack


def scalar_bytes(value: Any, dtype: DType) -> bytes:
    """Return a Python scalar as one slot of 8 bytes, converted as NumPy converts it."""
    if dtype.kind == "f" and (dtype.itemsize == 8 or (dtype.itemsize == 4 and -1e38 < value < 1e38)):
        return _DOUBLE(value) if dtype.itemsize == 8 else _FLOAT(value)
    return np.array(value).astype(dtype).tobytes().ljust(8, b"\0")


class Job(NamedTuple):
    """Calls of one kernel over boxes of a nest: code, the strides slots hold, and the scalars.

    `slots(lengths, addresses)` is what one call gets.
    """

    code: Code
    depth: int
    strides: tuple[tuple[int, ...], ...]
    scalars: bytes
    pack: Callable[..., bytes]

    def slots(self, lengths: Sequence[int], addresses: Sequence[int]) -> bytes:
        values = list(lengths)
        for address, strides in zip(addresses, self.strides, strict=True):
            values.append(address)
            values += strides
        return self.pack(*values) + self.scalars


def job_of(
    program: Program,
    nest: Nest,
    itemsizes: Sequence[int],
    scalars: bytes,
    contract: bool,
    *,
    streams: bool = False,
) -> Job:
    """Return the job of a program over a nest; operands of reductions come last and have no innermost stride."""
    depth = min(len(nest.lengths), DEPTH)
    plain = len(nest.strides) - len(program.reductions)
    lie = [lie_of(s[-1], size) for s, size in zip(nest.strides[:plain], itemsizes, strict=False)]
    for place in range(len(program.inputs), plain):
        if lie[place] == SAME:  # what is written stays in place only where the loop has one round
            lie[place] = PACKED
    machine = host()
    assert machine is not None
    form = Form(lanes_of(program, machine.vector_bytes), depth, tuple(lie), streams and machine.streams)
    kept = []
    for place, strides in enumerate(nest.strides):
        strided = place < plain and lie[place] == STRIDED
        kept.append(strides[len(strides) - depth :] if strided else strides[len(strides) - depth : -1])
    pack = struct.Struct(f"={depth + sum(1 + len(strides) for strides in kept)}q").pack
    return Job(code_of(program, form, contract), depth, tuple(kept), scalars, pack)


class Box(NamedTuple):
    """A part of a nest: where it starts along each loop, and how long it is."""

    starts: tuple[int, ...]
    lengths: tuple[int, ...]


def calls_of(job: Job, nest: Nest, addresses: Sequence[int], box: Box) -> Iterator[bytes]:
    """Yield the slots of the calls that cover a box: one, or one for each position of the loops beyond the depth."""
    outer = len(nest.lengths) - job.depth
    starts, lengths = box.starts, box.lengths
    for position in product(*(range(start, start + n) for start, n in zip(starts[:outer], lengths[:outer], strict=True))):
        at = (*position, *starts[outer:])
        moved = [
            address + sum([index * stride for index, stride in zip(at, strides, strict=True)]) if any(at) else address
            for address, strides in zip(addresses, nest.strides, strict=True)
        ]
        yield job.slots(lengths[outer:], moved)


def launch(job: Job, nest: Nest, addresses: Sequence[int], boxes: Sequence[Box], seconds: float) -> None:
    """Run a job over boxes, on several threads where the seconds it should take are worth it."""
    started = perf_counter()
    call = job.code.call
    parts = min(count(), len(boxes)) if seconds > PARALLEL_SECONDS else 1

    def task(part: int) -> Callable[[], None]:
        mine = boxes[len(boxes) * part // parts : len(boxes) * (part + 1) // parts]

        def work() -> None:
            for box in mine:
                for slots in calls_of(job, nest, addresses, box):
                    call(slots)

        return work

    if parts == 1:
        task(0)()
    else:
        run([task(part) for part in range(parts)])
    job.code.used(perf_counter() - started)


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


# ---- elementwise


def run_map(
    program: Program, shape: Shape, operands: Sequence[Operand], scalars: bytes, contract: bool, *, streams: bool = True
) -> None:
    """Run a program without reductions over a shape; the operands are its inputs and outputs."""
    lead = operands[len(program.inputs)].strides
    nest = nest_of(shape, [o.strides for o in operands], lead)
    sizes = [o.itemsize for o in operands]
    size = prod(nest.lengths)
    written = operands[len(program.inputs) :]
    streams = streams and _can_stream(program, nest, written, size)
    job = job_of(program, nest, sizes, scalars, contract, streams=streams)
    seconds = seconds_of(program, size)
    launch(job, nest, [o.address for o in operands], _map_boxes(nest, sizes, seconds), seconds)


def run_packed(program: Program, size: int, addresses: Sequence[int], scalars: bytes, contract: bool) -> None:
    """The commonest case of `run_map`: operands that are runs of memory of one size, at these addresses."""
    written = addresses[len(program.inputs) :]
    streams = size * program.widest >= STREAM_BYTES and not any([address % 64 for address in written])
    ready = program.codes.get((contract, streams))
    if ready is None:
        strides = tuple((d.itemsize,) for d in (*program.inputs, *(program.dtypes[n] for n in program.outputs)))
        nest = Nest((size,), strides, (False,))
        itemsizes = [stride for (stride,) in strides]
        job = job_of(program, nest, itemsizes, b"", contract, streams=streams and _lanes_fill_lines(program))
        ready = program.codes[contract, streams] = (job.code, struct.Struct(f"={1 + len(strides)}q").pack, itemsizes)
    code, pack, itemsizes = ready
    seconds = seconds_of(program, size)
    started = perf_counter()
    parts = count() if seconds > PARALLEL_SECONDS else 1
    if parts == 1:
        code.call(pack(size, *addresses) + scalars)
    else:
        length = -(-size // (64 * parts)) * 64  # parts begin where a cache line does

        def task(first: int) -> Callable[[], None]:
            moved = [address + first * itemsize for address, itemsize in zip(addresses, itemsizes, strict=True)]
            slots = pack(min(length, size - first), *moved) + scalars
            return lambda: code.call(slots)

        run([task(first) for first in range(0, size, length)])
    code.used(perf_counter() - started)


def _lanes_fill_lines(program: Program) -> bool:
    """Return whether every output's vector is large enough to be written past the caches."""
    lanes = lanes_of(program, host().vector_bytes)  # type: ignore[union-attr]
    return all(lanes * program.dtypes[number].itemsize >= 16 for number in program.outputs)


def _can_stream(program: Program, nest: Nest, written: Sequence[Operand], size: int) -> bool:
    """Return whether outputs may bypass the caches: large, packed, aligned, and not read by the same loop."""
    if len(nest.lengths) > 1 or size * max(o.itemsize for o in written) < STREAM_BYTES:
        return False
    return _lanes_fill_lines(program) and all(
        o.address % 64 == 0 and strides[-1] == o.itemsize
        for o, strides in zip(written, nest.strides[len(program.inputs) :], strict=True)
    )


def _map_boxes(nest: Nest, sizes: Sequence[int], seconds: float) -> list[Box]:
    """Return the parts of an elementwise nest: strips where operands lie crosswise, else one per thread."""
    box = whole(nest)
    if _is_crosswise(nest, sizes):
        return parts_of(box, len(nest.lengths) - 1, CROSS_STRIP)
    threads = count() if seconds > PARALLEL_SECONDS else 1
    if threads == 1:
        return [box]
    axis = 0 if nest.lengths[0] >= threads else int(np.argmax(nest.lengths))
    length = nest.lengths[axis]
    size = -(-length // threads)
    if axis == len(nest.lengths) - 1:
        size = -(-size // 64) * 64  # parts begin where a cache line does
    return parts_of(box, axis, size)


def _is_crosswise(nest: Nest, sizes: Sequence[int]) -> bool:
    """Return whether some operand's fastest axis is not the innermost one, over more than a strip."""
    if len(nest.lengths) < 2 or nest.lengths[-1] <= CROSS_STRIP:
        return False
    return any(
        abs(strides[-1]) > 64 and any(0 < abs(stride) < abs(strides[-1]) for stride in strides[:-1])
        for strides, _ in zip(nest.strides, sizes, strict=True)
    )


# ---- reductions


class Target(NamedTuple):
    """Where a reduction's result goes: the blob, with the strides it has over the domain (0 along reduced axes)."""

    reduction: Reduction
    blob: TBlob
    operand: Operand


def run_reduction(
    program: Program,
    shape: Shape,
    axes: Sequence[int],
    operands: Sequence[Operand],
    targets: Sequence[Target],
    scalars: bytes,
    contract: bool,
) -> None:
    """Run a program with reductions over some axes of a shape; the operands are its inputs and plain outputs."""
    lead = max(operands[: len(program.inputs)], key=lambda o: sum(stride != 0 for stride in o.strides)).strides
    every = [*(o.strides for o in operands), *(target.operand.strides for target in targets)]
    nest = nest_of(shape, every, lead, axes)
    if nest.reduced[-1]:
        _run_rows(program, nest, operands, targets, scalars, contract)
    elif True not in nest.reduced:  # reduced axes of length 1
        _run_folding(program, nest, operands, targets, scalars, contract, None)
    else:
        _run_folding(program, nest, operands, targets, scalars, contract, nest.reduced.index(True))


def _run_rows(
    program: Program, nest: Nest, operands: Sequence[Operand], targets: Sequence[Target], scalars: bytes, contract: bool
) -> None:
    """Reduce along the innermost axis, in pieces; combine the pieces, and other reduced axes, afterwards."""
    outer, inner = nest.lengths[:-1], nest.lengths[-1]
    pieces = -(-inner // PIECE)
    straight = pieces == 1 and not any(nest.reduced[:-1])
    partials = [] if straight else [np.empty((*outer, pieces), t.reduction.dtype) for t in targets]
    rest = inner % PIECE
    whole_pieces = inner // PIECE
    for first, number, length in ((0, whole_pieces, PIECE), (whole_pieces, 1, rest)):
        if number == 0 or length == 0:
            continue
        strides = [(*s[:-1], s[-1] * PIECE, s[-1]) for s in nest.strides[: len(operands)]]
        for target, (place, _) in zip(targets, enumerate(targets), strict=True):
            if straight:
                strides.append((*nest.strides[len(operands) + place][:-1], 0, 0))
            else:
                strides.append((*partials[place].strides, 0))
        addresses = [o.address + first * s[-2] for o, s in zip(operands, strides, strict=False)]
        for place, target in enumerate(targets):
            base = target.operand.address if straight else partials[place].__array_interface__["data"][0]
            addresses.append(base + first * strides[len(operands) + place][-2])
        part = _drop_single(Nest((*outer, number, length), tuple(strides), (False,) * (len(outer) + 2)))
        sizes = [*(o.itemsize for o in operands), *(t.operand.itemsize for t in targets)]
        job = job_of(program, part, sizes, scalars, contract)
        seconds = seconds_of(program, prod(part.lengths))
        launch(job, part, addresses, _row_boxes(part, seconds), seconds)
    if not straight:
        combined = [place for place, reduced in enumerate(nest.reduced[:-1]) if reduced] + [len(outer)]
        for place, target in enumerate(targets):
            _combine(target, partials[place], combined, nest, len(operands) + place)


def _drop_single(nest: Nest) -> Nest:
    """Return a nest without outer loops of one round."""
    keep = [place for place, length in enumerate(nest.lengths[:-1]) if length != 1] + [len(nest.lengths) - 1]
    return Nest(
        tuple(nest.lengths[place] for place in keep),
        tuple(tuple(strides[place] for place in keep) for strides in nest.strides),
        tuple(nest.reduced[place] for place in keep),
    )


def _row_boxes(nest: Nest, seconds: float) -> list[Box]:
    threads = count() if seconds > PARALLEL_SECONDS else 1
    box = whole(nest)
    if threads == 1 or len(nest.lengths) == 1:
        return [box]
    axis = int(np.argmax(nest.lengths[:-1]))
    return parts_of(box, axis, -(-nest.lengths[axis] // threads))


def _run_folding(
    program: Program,
    nest: Nest,
    operands: Sequence[Operand],
    targets: Sequence[Target],
    scalars: bytes,
    contract: bool,
    axis: int | None,
) -> None:
    """Reduce outer axes by combining rows with accumulators in memory; `axis` is cut into pieces of rows."""
    inputs = len(program.inputs)
    length = 1 if axis is None else nest.lengths[axis]
    pieces = -(-length // PIECE_ROWS)
    kept = [place for place, reduced in enumerate(nest.reduced) if not reduced]
    shape = (pieces, *(nest.lengths[place] for place in kept))
    partials = [np.full(shape, identity(t.reduction), t.reduction.dtype) for t in targets]
    accumulators = []
    for partial in partials:
        strides = [0] * len(nest.lengths)
        for place, stride in zip(kept, partial.strides[1:], strict=True):
            strides[place] = stride
        accumulators.append(Operand(partial.__array_interface__["data"][0], tuple(strides), partial.itemsize))
    plain = [Operand(o.address, s, o.itemsize) for o, s in zip(operands, nest.strides, strict=False)]
    every = [*plain[:inputs], *accumulators, *plain[inputs:], *accumulators]
    folding = folded(program)
    loops = Nest(nest.lengths, tuple(o.strides for o in every), (False,) * len(nest.lengths))
    sizes = [o.itemsize for o in every]
    job = job_of(folding, loops, sizes, scalars, contract)
    moves = [partial.strides[0] for partial in partials]
    steps = [*(0 for _ in plain[:inputs]), *moves, *(0 for _ in plain[inputs:]), *moves]
    _launch_pieces(job, loops, every, steps, axis, seconds_of(program, prod(loops.lengths)))
    for place, target in enumerate(targets):
        _combine(target, partials[place], [0], nest, len(operands) + place, folded_axes=True)


def _launch_pieces(
    job: Job, nest: Nest, operands: Sequence[Operand], steps: Sequence[int], axis: int | None, seconds: float
) -> None:
    """Run the pieces of a folding reduction: each has accumulators of its own, `steps` bytes after the last ones."""
    boxes = [whole(nest)] if axis is None else parts_of(whole(nest), axis, PIECE_ROWS)
    tasks: list[tuple[list[int], Box]] = []
    for piece, box in enumerate(boxes):
        addresses = [o.address + piece * step for o, step in zip(operands, steps, strict=True)]
        tasks += [(addresses, strip) for strip in parts_of(box, len(nest.lengths) - 1, STRIP)]
    started = perf_counter()
    threads = min(count(), len(tasks)) if seconds > PARALLEL_SECONDS else 1
    call = job.code.call

    def task(part: int) -> Callable[[], None]:
        def work() -> None:
            for addresses, box in tasks[len(tasks) * part // threads : len(tasks) * (part + 1) // threads]:
                for slots in calls_of(job, nest, addresses, box):
                    call(slots)

        return work

    run([task(part) for part in range(threads)])
    job.code.used(perf_counter() - started)


def _combine(
    target: Target, partial: Any, axes: Sequence[int], nest: Nest, place: int, *, folded_axes: bool = False
) -> None:
    """Combine partial results over some of their axes into a reduction's destination."""
    function = _COMBINE[target.reduction.op.name]
    result = function(partial, axis=tuple(axes), dtype=partial.dtype) if len(axes) else partial
    kept = [axis for axis, reduced in enumerate(nest.reduced) if not reduced]
    shape = tuple(nest.lengths[axis] for axis in kept)
    strides = tuple(nest.strides[place][axis] for axis in kept)
    into = np.lib.stride_tricks.as_strided(target.blob.native(), shape, strides)
    into[...] = np.reshape(result, shape)


_COMBINE: dict[str, Any] = {
    "sum": np.add.reduce,
    "count_nonzero": np.add.reduce,
    "prod": np.multiply.reduce,
    "any": np.logical_or.reduce,
    "all": np.logical_and.reduce,
    "max": np.maximum.reduce,
    "min": np.minimum.reduce,
}

__all__ = ["Operand", "Target", "is_ready", "operand", "run_map", "run_reduction", "scalar_bytes"]

"""Row programs: reduce, then map over the same rows, block by block, so that memory is read once.

Softmax is one: the largest of each row, the exponentials, their sum, the quotients. A block of rows goes through all
kernels while it lies in the cache; what only the program itself needs lives in scratch rows there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from ..blob import TBlob
from ..layout import Shape, c_strides
from ..pool import ALIGNMENT
from ..threads import worth
from .compile import Code, driver
from .launch import (
    DEPTH,
    STREAM_BYTES,
    Nest,
    Ready,
    can_stream,
    joined,
    moving_seconds,
    ready,
    remembered,
    scalar_slots,
    share_out,
    whole,
)
from .plan import Kernel, Plan
from .primitives import LacksError

# Bytes of a block of rows, of one operand, and the longest row that is worth a block. While a block goes through its
# last kernels the next one is fetched: two or three of them fit into the first-level cache, or nearly.
BLOCK_BYTES, ROW_BYTES = 24 * 1024, 256 * 1024

# The same where rows are written and all lies in the last-level cache: there the processor fetches by itself, and it
# reads the next block while it still writes this one. (Softmax of 4096 x 1024 float32 takes 1.15 ms, else 1.4.)
SMALL_BYTES = 4 * 1024

# Elements below which the whole array lies in the cache anyway.
LEAST = 32 * 1024


class Lane(NamedTuple):
    """One operand of a kernel as the rows go by: its value's number, and bytes from one row to the next."""

    number: int
    step: int


class Stage(NamedTuple):
    """A kernel ready to run over a block of rows: its first length is the rows."""

    ready: Ready
    lanes: tuple[Lane, ...]


class Prepared(NamedTuple):
    """All stages of a plan for one shape. scratch: bytes of one row of each value that lives only inside."""

    driver: Code
    stages: list[Stage]
    scratch: dict[int, int]
    rows: int
    size: int
    groups: list[range]


def pays(plan: Plan, shape: Shape) -> bool:
    """Return whether running by rows is possible and worth it for a domain of this shape."""
    cells = prod(shape[plan.rows :])
    widest = max(kernel.program.widest for kernel in plan.kernels)
    return cells > 1 and cells * widest <= ROW_BYTES and prod(shape) >= LEAST


def seconds_of(plan: Plan, values: Sequence[Any]) -> float:
    """Estimate how long one thread takes: what comes from outside and what is kept moves, and all is computed."""
    outside = {n for kernel in plan.kernels for n in kernel.inputs} | plan.kept
    outside -= {n for kernel in plan.kernels for n in kernel.results} - plan.kept
    moved = sum(prod(values[n].shape) * values[n].dtype.itemsize for n in outside)
    computing: float = sum(prod(values[kernel.domain].shape) * kernel.program.seconds for kernel in plan.kernels)
    return moving_seconds(moved) + computing


def run(plan: Plan, shape: Shape, values: Sequence[Any], blobs: Mapping[int, TBlob], contract: bool) -> None:
    """Run a plan's kernels over blocks of rows. All blobs are packed; a narrow one has one element for a row."""
    threads = worth(seconds_of(plan, values))
    shapes = tuple([values[n].shape for kernel in plan.kernels for n in kernel.inputs])
    aligned = not any([blobs[number].address % ALIGNMENT for number in plan.kept])
    key = (plan.kernels, plan.kept, shape, shapes, contract, threads, aligned)

    def make() -> Prepared:
        return _prepared(plan, shape, values, blobs, contract, threads, aligned)

    made: Prepared = remembered(plan.kernels[0].program, key, make)
    scalars = [scalar_slots([values[n] for n in kernel.scalars], kernel.program.scalars) for kernel in plan.kernels]
    fixed = {number: blob.address for number, blob in blobs.items()}
    started = perf_counter()
    memory = [_scratch(made) for _ in made.groups]  # all of it, before anything is written
    pairs = zip(made.groups, memory, strict=True)
    tables = [_table(made, group, fixed, scalars, own) for group, own in pairs]
    if len(tables) == 1:
        made.driver.call(tables[0][0])
    else:
        share_out(made.driver, [(table,) for table, _ in tables])
    for stage in made.stages:
        stage.ready.code.used((perf_counter() - started) / len(made.stages))


def _prepared(
    plan: Plan,
    shape: Shape,
    values: Sequence[Any],
    blobs: Mapping[int, TBlob],
    contract: bool,
    threads: int,
    aligned: bool,
) -> Prepared:
    rows = prod(shape[: plan.rows])
    size, further = _blocks(plan, shape, values, threads)
    starts = range(0, rows, size)
    parts = min(threads, len(starts))
    groups = [starts[len(starts) * part // parts : len(starts) * (part + 1) // parts] for part in range(parts)]
    stages = [_stage(plan, kernel, shape, values, contract, aligned, further) for kernel in plan.kernels]
    return Prepared(driver(), stages, _scratch_sizes(plan, values, blobs, rows), rows, size, groups)


def _blocks(plan: Plan, shape: Shape, values: Sequence[Any], threads: int) -> tuple[int, int]:
    """Return the rows of a block, and by how many rows what is fetched is ahead, 0 where nothing is."""
    size, row = prod(shape), prod(shape[plan.rows :]) * max(kernel.program.widest for kernel in plan.kernels)
    written = [values[n].dtype.itemsize * size for n in plan.kept if prod(values[n].shape) == size]
    block = SMALL_BYTES if written and max(written) < STREAM_BYTES else BLOCK_BYTES
    rows = max(min(block // row, -(-prod(shape[: plan.rows]) // threads)), 1)
    return rows, rows if max(block, row) > SMALL_BYTES else 0


def _scratch(made: Prepared) -> dict[int, Any]:
    """Return scratch rows for one thread."""
    return {number: np.empty(nbytes * made.size + 64, np.uint8) for number, nbytes in made.scratch.items()}


def _table(
    made: Prepared,
    starts: range,
    fixed: Mapping[int, int],
    scalars: Sequence[bytes],
    memory: Mapping[int, Any],
) -> tuple[bytes, list[Any]]:
    """Return what the driver is told to run all stages over the blocks that begin at `starts`, and what that speaks of.

    memory: scratch rows of this thread's own.
    """
    own = {number: -(-_address(block) // 64) * 64 for number, block in memory.items()}
    table = [len(starts), len(made.stages), made.size, min(made.size, made.rows - starts[-1])]
    alive = []
    for (stage, lanes), packed in zip(made.stages, scalars, strict=True):
        slots = stage.groups[0][0].slots.copy()
        moves = []
        for position, (number, step) in zip(stage.positions, lanes, strict=True):
            slots[position] = own[number] if number in own else fixed[number] + starts[0] * step
            if number not in own and step:
                moves += [position, step * made.size]
        filled = np.frombuffer(bytearray(stage.pack(*slots) + packed), np.int64)
        moving = np.array(moves or [0], np.int64)
        alive += [filled, moving]
        table += [stage.code.address, _address(filled), len(moves) // 2, _address(moving)]
    return np.array(table, np.int64).tobytes(), alive


def _address(array: Any) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _scratch_sizes(plan: Plan, values: Sequence[Any], blobs: Mapping[int, TBlob], rows: int) -> dict[int, int]:
    """Return the bytes of one row of every value that lives only inside the program."""
    made = [number for kernel in plan.kernels for number in kernel.results if number not in blobs]
    return {n: prod(values[n].shape) // rows * values[n].dtype.itemsize for n in made}


def _stage(
    plan: Plan,
    kernel: Kernel,
    shape: Shape,
    values: Sequence[Any],
    contract: bool,
    aligned: bool,
    further: int,
) -> Stage:
    """Return a kernel as a stage: loops over the rows, and over the cells of a row if it is not narrow.

    aligned: whether results begin at cache lines. further: by how many rows what is fetched is ahead; 0 for nothing.
    """
    program, nest = kernel.program, _stage_nest(kernel, shape, plan.rows, values)
    numbers = (*kernel.inputs, *kernel.results)
    written = kernel.results[: len(program.outputs)]
    read = {n for other in plan.kernels for n in other.inputs}
    stays = all([n in plan.kept and n not in read for n in written])
    # A sum depends on where its rounds begin: they begin with the row.
    streams = aligned and stays and bool(written) and not program.reductions and can_stream(program, nest)
    elsewhere = {n for other in plan.kernels for n in other.results}
    elsewhere.update(n for other in plan.kernels[plan.kernels.index(kernel) + 1 :] for n in other.inputs)
    last = [place for place, n in enumerate(kernel.inputs) if n not in elsewhere] if further else []
    ahead = {place: further * nest.strides[place][0] for place in last}
    sizes = [values[n].dtype.itemsize for n in numbers]
    made = ready(program, nest, sizes, [[whole(nest)]], contract, streams=streams, ahead=ahead)
    return Stage(made, tuple(Lane(n, strides[0]) for n, strides in zip(numbers, nest.strides, strict=True)))


def _stage_nest(kernel: Kernel, shape: Shape, lead: int, values: Sequence[Any]) -> Nest:
    """Return the loops of a stage."""
    program, rows = kernel.program, prod(shape[:lead])
    narrow = values[kernel.domain].shape != shape
    cells = () if narrow else shape[lead:]
    numbers = (*kernel.inputs, *kernel.results)
    plain = [_strides(values[n], rows, lead, cells) for n in numbers[: len(kernel.inputs) + len(program.outputs)]]
    reduced = [_strides(values[n], rows, lead, (1,) * len(cells)) for n in numbers[len(plain) :]]
    inner_lengths, inner = merged(cells, [strides[1:] for strides in (*plain, *reduced)])
    if len(inner_lengths) > (1 if reduced else DEPTH - 1):
        raise LacksError("row whose operands lie in too many ways")
    return Nest(
        (rows, *inner_lengths),
        tuple((strides[0], *rest) for strides, rest in zip((*plain, *reduced), inner, strict=True)),
        (False,) * (1 + len(inner_lengths)),
    )


def _strides(value: Any, rows: int, lead: int, cells: Shape) -> Shape:
    """Return a packed value's strides over (rows, *cells), 0 where it does not move."""
    itemsize = value.dtype.itemsize
    own = (1,) * (lead + len(cells) - len(value.shape)) + tuple(value.shape)
    leading, trailing = own[:lead], own[lead:]
    strides = c_strides(trailing, itemsize)
    if prod(leading) not in (1, rows):
        raise LacksError("row block of an operand that repeats along some leading axes")
    row = prod(trailing) * itemsize if prod(leading) == rows else 0
    trailing_strides = tuple([0 if n == 1 else s for n, s in zip(trailing, strides, strict=True)][: len(cells)])
    return (row, *trailing_strides)


def merged(cells: Shape, strides: Sequence[Shape]) -> tuple[list[int], list[list[int]]]:
    """Return the loops over the cells of a row, as few as every operand's strides allow, and their strides."""
    moving = [place for place, length in enumerate(cells) if length != 1]
    steps = [[one[place] for place in moving] for one in strides]
    lengths, found, _ = joined([cells[place] for place in moving], steps, [False] * len(moving))
    return lengths, found

"""Column programs: reduce over leading axes, then map over the same columns, strip by strip, in one launch.

Centring is one: the sum of each column, its mean, the differences. A strip of columns, a few cache lines wide, goes
through all passes while it lies in the cache. Passes are staggered: while one pass goes down a strip, the next goes
down the strip before it, some rows of each in turn, so that memory is read and written at the same time.

A column is summed up as `reduce` does it alone, to the same bits: rows in groups, groups in pieces.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from math import prod
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from ..dtypes import DType
from ..layout import Shape
from ..pool import ALIGNMENT, POOL, address_of
from ..threads import Shares, worth
from . import launch, reduce
from .column_driver import AFTER, BEFORE, BLOCK, DRIVER, HEAD, ITEM, PIECE, SCRATCH, TABLE, VALUES
from .compile import CHEAP, counts, handmade, host
from .launch import Box, Nest, Ready, remembered, scalar_bytes, scalars_of, seconds_together
from .loop import identity, lanes_of
from .plan import Columns, Kernel, Named, Plan, Program, Reduction, Step
from .plan import program as the_program

# Bytes of a strip's row where arrays come from memory, and by how many rows what is fetched is ahead there. (Centring
# 10000 x 1000 float64 takes a quarter less time than by kernels; with strips of 128 and 512 bytes less is gained.)
STRIP_BYTES, AHEAD_ROWS = 192, 32

# Bytes of a strip where arrays lie in the caches, and of an array up to which it does.
NEAR_BYTES, NEAR = 256 * 1024, 4 << 20

# Bytes of an array from which columns pay although kernels go through it only twice, and of a strip on its way.
FAR, STRIP_MOST = 48 << 20, 5 << 19

# Bytes behind a narrow value: more than a vector has.
ROOM = 512

# Elements and columns below which kernels run one after the other.
LEAST, LEAST_COLUMNS = 32 * 1024, 64


class Lie(NamedTuple):
    """Where an operand lies: a word that the driver is given, bytes after it, bytes to the next row and column, and of
    an element.
    """

    given: int
    offset: int
    row: int
    column: int
    itemsize: int


class Item(NamedTuple):
    """A kernel ready to run, its operands, its scalars as words that the driver is given, and when it runs.

    lag: by how many strips it is behind. rows: how many it goes over in a block, and in the last one.
    """

    ready: Ready
    lies: tuple[Lie, ...]
    scalars: range
    when: int
    lag: int
    rows: tuple[int, int]
    streams: bool = False


class Strips(NamedTuple):
    """How rows and columns are walked.

    width: columns of a strip; block: rows of a block; piece: rows that are combined before others are; far: whether
    arrays come from memory.
    """

    rows: int
    columns: int
    width: int
    block: int
    piece: int
    far: bool

    @property
    def number(self) -> int:
        return -(-self.columns // self.width)

    @property
    def blocks(self) -> int:
        return -(-self.rows // self.block)


def shape_of(columns: Columns, values: Sequence[Any]) -> Shape:
    """Return the shape that the passes go over."""
    shape: Shape = values[next(kernel for kernel in columns.kernels if kernel.program.reductions).domain].shape
    return shape


def pays(plan: Plan, values: Sequence[Any]) -> bool:
    """Return whether running by columns is possible and worth it, for operands that are packed."""
    columns = plan.columns
    if columns is None:
        return False
    shape = shape_of(columns, values)
    rows, cells = _lengths(shape, columns.lead)
    inputs = {n for kernel in columns.kernels for n in kernel.inputs}
    if rows < 2 or cells < LEAST_COLUMNS or rows * cells < LEAST or any([_repeats(columns, values, n) for n in inputs]):
        return False
    nbytes = rows * cells * _widest(columns)
    if nbytes <= NEAR:
        return True
    loops = sum(values[kernel.domain].shape == shape for kernel in plan.kernels)
    large = nbytes >= (FAR if loops < 3 else launch.STREAM_BYTES)
    return large and rows * STRIP_BYTES <= STRIP_MOST


def _lengths(shape: Shape, lead: int) -> tuple[int, int]:
    """Return how many rows and columns a shape has."""
    return prod(shape[:lead]), prod(shape[lead:])


def _widest(columns: Columns) -> int:
    return max(kernel.program.widest for kernel in columns.kernels)


def _own_lengths(columns: Columns, values: Sequence[Any], number: int) -> tuple[int, int]:
    """Return how many rows and columns a value has of its own."""
    shape, ndim = values[number].shape, len(shape_of(columns, values))
    return _lengths((1,) * (ndim - len(shape)) + tuple(shape), columns.lead)


def _repeats(columns: Columns, values: Sequence[Any], number: int) -> bool:
    """Return whether a value repeats along some axes of the rows or the columns only."""
    every = zip(_own_lengths(columns, values, number), _lengths(shape_of(columns, values), columns.lead), strict=True)
    return any([own not in (1, whole) for own, whole in every])


def run(
    columns: Columns, kept: frozenset[int], values: Sequence[Any], addresses: Mapping[int, int], contract: bool
) -> None:
    """Run all kernels. addresses: of inputs and of results that are kept, all packed, by number."""
    threads = worth(seconds_together(columns.kernels, kept, values))
    aligned_alike = not any([addresses[number] % ALIGNMENT for number in kept])
    shapes = tuple([values[n].shape for kernel in columns.kernels for n in kernel.inputs])
    key = (columns.kernels, kept, shape_of(columns, values), shapes, contract, threads, aligned_alike)

    def make() -> Prepared:
        return Prepared(columns, kept, values, contract, threads, aligned_alike)

    made: Prepared = remembered(columns.kernels[0].program, key, make)
    made.run(addresses, scalars_of(columns.kernels, values))


class Prepared:
    """A column program for one shape: a table for each thread, which says all but addresses and scalars."""

    def __init__(
        self,
        columns: Columns,
        kept: frozenset[int],
        values: Sequence[Any],
        contract: bool,
        threads: int,
        is_aligned: bool,
    ) -> None:
        strips = _strips_of(columns, values, threads)
        writer = _Items(columns, kept, values, strips, contract, is_aligned)
        self.items = writer.items
        self._numbers, self._nbytes = writer.numbers, writer.nbytes
        self._driver = handmade(DRIVER)
        self._codes = [item.ready.code for item in self.items]
        self._improved, self._cheap = counts.improved, True
        parts = min(threads, strips.number)
        bounds = [strips.number * part // parts for part in range(parts + 1)]
        self._first = HEAD + len(writer.starts)
        self._tables = []
        for part in range(parts):
            table, nbytes = _table(writer, range(bounds[part], bounds[part + 1]), self._nbytes)
            self._tables.append(table)
            self._nbytes += nbytes
        self._where = [struct.pack("=q", address_of(table)) for table in self._tables]
        self._pack = struct.Struct(f"={1 + len(self._numbers)}q").pack
        self._shares = Shares([1] * parts, 8 * (VALUES + len(self._numbers) + writer.scalars))

    def run(self, addresses: Any, scalars: bytes) -> None:
        """Run over values at these addresses, by number."""
        started = perf_counter()
        if counts.improved != self._improved:  # some code has been made better, perhaps of these
            self._improved = counts.improved
            found = [code.address for code in self._codes]
            for table in self._tables:
                table[self._first : self._first + ITEM * len(found) : ITEM] = found
        memory, scratch = POOL.lend(self._nbytes)
        given = self._pack(scratch, *[addresses[number] for number in self._numbers]) + scalars
        launch.share_calls(self._driver, self._shares, b"".join([where + given for where in self._where]))
        del memory
        if self._cheap:
            seconds = (perf_counter() - started) / len(self._codes)
            for code in self._codes:
                code.used(seconds)
            self._cheap = any([code.level == CHEAP for code in self._codes])


def _strips_of(columns: Columns, values: Sequence[Any], threads: int) -> Strips:
    """Return how the columns are cut: narrow where they come from memory, else as wide as the caches allow."""
    rows, cells = _lengths(shape_of(columns, values), columns.lead)
    widest, machine = _widest(columns), host()
    assert machine is not None
    piece = reduce.piece_of(rows, rows * cells * widest)
    lanes = max(lanes_of(kernel.program, machine.vector_bytes) for kernel in columns.kernels)
    if rows * cells * widest > NEAR:
        width = -(-STRIP_BYTES // (widest * lanes)) * lanes
        return Strips(rows, cells, width, reduce.GROUP, piece, True)
    width = min(-(-cells // threads), max(NEAR_BYTES // (rows * widest), 1))
    return Strips(rows, cells, -(-width // 64) * 64, piece, piece, False)


def _table(made: _Items, taken: range, begin: int) -> tuple[Any, int]:
    """Return the table for some of the strips, and the bytes of its slots, which lie from `begin` in scratch memory."""
    items, strips = made.items, made.strips
    moves: list[int] = []
    slots: list[int] = []
    listed: list[int] = []
    for item in items:
        first, count, own = len(moves), len(item.lies) + len(item.scalars), item.ready.groups[0][0].slots
        pairs = sorted(zip(item.ready.positions, item.lies, strict=True), key=lambda pair: pair[1].row == 0)
        moving = max(sum(lie.row != 0 for lie in item.lies), 1)
        for position, lie in pairs:
            across = strips.width * lie.column
            moves += [position, lie.given, lie.offset + taken.start * across, across, strips.block * lie.row]
        for place, word in enumerate(item.scalars):
            moves += [len(own) + place, word, 0, 0, 0]
        listed += [item.ready.code.address, begin + 8 * len(slots), item.lag, *item.rows]
        listed += [item.streams, first, count, moving]
        slots += [*own, *[0] * len(item.scalars)]
    table = np.array([*[0] * HEAD, *made.starts, *listed, *moves, *slots], np.int64)
    first = HEAD + len(made.starts)
    base, after = address_of(table), first + len(listed)
    table[first + 6 : after : ITEM] = base + 8 * (after + table[first + 6 : after : ITEM])
    ends = min(strips.width, strips.columns - strips.width * (taken.stop - 1))
    lags = max(item.lag for item in items)
    head = [len(taken), len(taken) + lags, strips.blocks, -(-strips.piece // strips.block), strips.width, ends]
    whens = [item.when for item in items]
    for when in (BEFORE, BLOCK, PIECE, AFTER):
        head += [base + 8 * (first + ITEM * bisect_left(whens, when)), whens.count(when)]
    table[:HEAD] = [*head, base + 8 * (after + len(moves)), len(slots), begin]
    return table, -(-8 * len(slots) // ALIGNMENT) * ALIGNMENT


class _Items:
    """What runs, in order, while it is found.

    numbers: the values that lie outside, as the driver is given their addresses. scalars: how many of them. nbytes: of
    scratch memory, in which narrow values and accumulators lie over their whole width. starts: what accumulators begin
    with, as words of the table.
    """

    def __init__(
        self,
        columns: Columns,
        kept: frozenset[int],
        values: Sequence[Any],
        strips: Strips,
        contract: bool,
        is_aligned: bool,
    ) -> None:
        self.columns, self.kept, self.values, self.strips = columns, kept, values, strips
        self.contract, self.is_aligned = contract, is_aligned
        kernels = columns.kernels
        made = [n for kernel in kernels for n in kernel.results]
        inside = {n for n in made if n not in kept}
        self.numbers = [n for n in dict.fromkeys([*(n for k in kernels for n in k.inputs), *made]) if n not in inside]
        self.nbytes, self.scalars = 0, 0
        self.starts: list[int] = []
        self._inside = {n: self._room(values[n].dtype) for n in sorted(inside)}
        self.items: list[Item] = []
        shape, lag = shape_of(columns, values), -1
        for place, kernel in enumerate(kernels):
            lag += values[kernel.domain].shape == shape
            self._add(kernel, kernels[place + 1 :], lag, values[kernel.domain].shape == shape)
        self.items.sort(key=lambda item: item.when)

    def _room(self, dtype: DType) -> Lie:
        """Return memory for a narrow value, with room for vectors beyond its end."""
        begin = self.nbytes
        self.nbytes += -(-self.strips.columns * dtype.itemsize // ALIGNMENT) * ALIGNMENT + ROOM
        return Lie(SCRATCH, begin, 0, dtype.itemsize, dtype.itemsize)

    def _lie(self, number: int) -> Lie:
        """Return where a value lies."""
        if number in self._inside:
            return self._inside[number]
        itemsize = self.values[number].dtype.itemsize
        rows, cells = _own_lengths(self.columns, self.values, number)
        column = itemsize if cells > 1 else 0
        return Lie(VALUES + self.numbers.index(number), 0, cells * itemsize if rows > 1 else 0, column, itemsize)

    def _add(self, kernel: Kernel, later: Sequence[Kernel], lag: int, is_pass: bool) -> None:
        """Enter what a kernel is made of."""
        begin = VALUES + len(self.numbers) + self.scalars
        words = range(begin, begin + len(kernel.scalars))
        self.scalars += len(kernel.scalars)
        program, lies = kernel.program, tuple([self._lie(n) for n in (*kernel.inputs, *kernel.results)])
        if program.reductions:
            self._fold(program, lies, words, lag)
        elif is_pass:
            last = (self.strips.rows - 1) % self.strips.block + 1
            stays = not any([n in other.inputs for other in later for n in kernel.results])
            streams = stays and self.is_aligned and self._can_stream(program, lies)
            self._enter(program, lies, words, BLOCK, lag, (self.strips.block, last), streams=streams)
        else:
            self._enter(program, lies, words, AFTER if lag >= 0 else BEFORE, max(lag, 0), (1, 1))

    def _can_stream(self, program: Program, lies: Sequence[Lie]) -> bool:
        lengths = (self.strips.rows, self.strips.columns)
        nest = Nest(lengths, tuple([(lie.row, lie.column) for lie in lies]), (False, False))
        machine = host()
        return machine is not None and machine.streams and launch.can_stream(program, nest)

    def _enter(
        self,
        program: Program,
        lies: Sequence[Lie],
        scalars: range,
        when: int,
        lag: int,
        rows: tuple[int, int],
        *,
        group: int = 1,
        streams: bool = False,
        roomy: Sequence[int] = (),
    ) -> None:
        """Enter a program over blocks of rows, or of groups of them."""
        nest = Nest(
            (rows[0], self.strips.width), tuple([(group * lie.row, lie.column) for lie in lies]), (False, False)
        )
        ahead = {}
        if self.strips.far and when == BLOCK:
            ahead = {place: AHEAD_ROWS * lies[place].row for place in range(len(program.inputs)) if lies[place].row}
        sizes = [lie.itemsize for lie in lies]
        box = Box((0, 0), nest.lengths)
        made = launch.ready(
            program, nest, sizes, [[box]], self.contract, streams=streams, ahead=ahead, strip=True, roomy=roomy
        )
        self.items.append(Item(made, tuple(lies), scalars, when, lag, rows, streams))

    def _fold(self, program: Program, lies: Sequence[Lie], words: range, lag: int) -> None:
        """Enter a pass that reduces: what its accumulators begin with, groups of rows, and what is left of them."""
        strips, group, count = self.strips, reduce.GROUP, len(program.reductions)
        plain = len(program.moved)
        inputs, outputs, results = lies[: len(program.inputs)], lies[len(program.inputs) : plain], lies[plain:]
        own = [self._room(one.dtype) for one in program.reductions]
        pairs = list(zip(program.reductions, own, results, strict=True))
        for reduction, lie, result in pairs:
            self._fill(reduction, lie, lag, BEFORE)
            self._fill(reduction, result, lag, BEFORE)
        rest, last = strips.rows % group, (strips.rows - 1) % strips.block + 1
        for size, when, first, rows in (
            (group, BLOCK, 0, (strips.block // group, last // group)),
            (1, AFTER, strips.rows - rest, (rest, rest)),
        ):
            if rows[0]:
                read = [_moved(lie, first + row) for row in range(size) for lie in inputs]
                written = [_moved(lie, first + row) for row in range(size) for lie in outputs]
                every = (*read, *own, *written, *own)
                roomy = [*range(len(read), len(read) + count), *range(len(every) - count, len(every))]
                self._enter(reduce.folded(program, size), every, words, when, lag, rows, group=size, roomy=roomy)
        for when in (PIECE, AFTER):
            for reduction, lie, result in pairs:
                self._enter(_combining(reduction), (result, lie, result), range(0), when, lag, (1, 1))
                if when == PIECE:
                    self._fill(reduction, lie, lag, when)

    def _fill(self, reduction: Reduction, lie: Lie, lag: int, when: int) -> None:
        """Enter what a reduction's accumulators begin with."""
        word = struct.unpack("=q", scalar_bytes(identity(reduction), reduction.dtype))[0]
        start = Lie(TABLE, 8 * (HEAD + len(self.starts)), 0, 0, lie.itemsize)
        self.starts.append(word)
        fill = the_program((reduction.dtype,), (), (), (), (0,), ())
        self._enter(fill, (start, lie), range(0), when, lag, (1, 1))


def _moved(lie: Lie, rows: int) -> Lie:
    """Return where an operand lies some rows further on."""
    return lie._replace(offset=lie.offset + rows * lie.row)


def _combining(reduction: Reduction) -> Program:
    """Return the program that combines two results of a reduction."""
    dtype = reduction.dtype
    step = Step(Named(reduce.COMBINING[reduction.op.name]), (), (0, 1), (dtype, dtype), dtype)
    return the_program((dtype, dtype), (), (), (step,), (2,), ())

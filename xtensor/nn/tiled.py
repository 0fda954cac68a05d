"""Attention on NumPy's arrays by the kernels of codegen/cpu/attention.py: what these are told, laid out once, as
launches, for all arrays that lie alike.

Arrays are stacks of matrices (..., rows, columns), whose leading axes broadcast. Besides the results there are
transposed copies of some operands, in panels, and sums in a few lanes, so that memory grows only as the operands do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import ceil, prod
from typing import NamedTuple

import numpy as np

from ..base.dtypes import DType
from ..base.layout import Shape, broadcast_shapes
from ..codegen.cpu.attention import (
    ADDED,
    COTANGENTS,
    FLAGS,
    NO_MASK,
    NUMBERS,
    POINTERS,
    ROW_ADDED,
    ROW_FLAGS,
    VALUES,
    Pass,
    attention_kernel,
    finite_kernel,
)
from ..codegen.cpu.forms import form_of
from ..codegen.cpu.lane_sums import lane_sums_kernel
from ..codegen.cpu.turning import turning_of
from ..plan.costs import PRODUCT_SECONDS
from ..run.contractions import rows_of, steps
from ..run.launches import PACKED, Begun, Launches, Sheet, behind, dealt, shared
from ..run.native import Launch, Place, Word
from .contraction import Array, empty
from .panels import offsets, zeroed
from .sweeps import known, lying

# Rows that are computed at a time, which share tiles of columns in the second cache; the least number of such parts.
ROWS, PARTS = 256, 16

# Sums by query that parts of keys add to, of few matrices: whatever the number of threads.
LANES = 8

# Registers of a row of what is multiplied at a time.
REGISTERS = 2

# The most matrices whose launches are laid out together, and remembered: some 4 KB for each, with the way back.
TOGETHER = 256

# Columns that are packed in one call: whole panels.
PACKED_COLUMNS = 2048

# The operands of launches: those of both passes, and of the way back. The number between them is that of weights which
# `Launches` lays out: there are none.
QUERY, KEY, VALUE, MASK, RESULT, LOGS = range(PACKED)
G, MEANS, BY_QUERY, BY_KEY, BY_VALUE = range(PACKED + 1, PACKED + 6)
OPERANDS = PACKED + 6

_PLACES = {name: place for place, name in enumerate((*POINTERS, *NUMBERS))}


class Scores(NamedTuple):
    """The parameters that turn products into scores. mask: booleans or numbers that broadcast to (..., queries,
    keys).
    """

    scale: float
    is_causal: bool
    mask: Array | None


# Arrays by their numbers as operands of launches.
Operands = dict[int, Array]


def attend(query: Array, key: Array, value: Array, scores: Scores) -> tuple[Array, Array]:
    """Return attention (..., L, V), and per query the logarithm of its sum of powers; inf if it attends to no key."""
    query, key, value = map(_readable, (query, key, value))
    lead = broadcast_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2])
    y = empty((*lead, query.shape[-2], value.shape[-1]), query.dtype, query)
    logs = empty(y.shape[:-1], query.dtype, query)
    _run(VALUES, scores, {QUERY: query, KEY: key, VALUE: value, RESULT: y, LOGS: logs})
    return y, logs


def attend_back(
    query: Array, key: Array, value: Array, g: Array, logs: Array, means: Array, scores: Scores
) -> tuple[Array, Array, Array]:
    """Return the cotangents of query, key and value for each matrix of the result, whose cotangent is g.

    logs: as returned by `attend`. means: for each query, the sum of the result times g.
    """
    query, key, value, g = map(_readable, (query, key, value, g))
    logs, means = map(np.ascontiguousarray, (logs, means))
    found = tuple([empty((*g.shape[:-2], *x.shape[-2:]), x.dtype, x) for x in (query, key, value)])
    given = {QUERY: query, KEY: key, VALUE: value, G: g, LOGS: logs, MEANS: means}
    _run(COTANGENTS, scores, given | dict(zip((BY_QUERY, BY_KEY, BY_VALUE), found, strict=True)))
    return found


def _run(of: str, scores: Scores, arrays: Operands) -> None:
    """Run a pass on arrays."""
    if scores.mask is not None:
        arrays[MASK] = _mask(scores.mask, arrays[QUERY].dtype, across=of == COTANGENTS)
    for some in _slices(of, arrays):
        _known(of, scores.scale, scores.is_causal, some).run(*[some.get(number) for number in range(OPERANDS)])


def _lead(of: str, arrays: Operands) -> Shape:
    """Return the leading axes of a pass."""
    found: Shape = arrays[G if of == COTANGENTS else RESULT].shape[:-2]
    return found


def _slices(of: str, arrays: Operands) -> Iterator[Operands]:
    """Yield the arrays, or slices of them that have fewer matrices, about equally many."""
    lead = _lead(of, arrays)
    if prod(lead) <= TOGETHER:
        yield arrays
        return
    step = ceil(lead[0] / ceil(prod(lead) / TOGETHER))
    for first in range(0, lead[0], step):
        yield from _slices(of, {number: _slice(x, number, lead, first, step) for number, x in arrays.items()})


def _slice(x: Array, number: int, lead: Shape, first: int, step: int) -> Array:
    """Return the part of an operand, along the first of the leading axes; without that axis if it has one element."""
    if x.ndim - (1 if number in (LOGS, MEANS) else 2) < len(lead):
        return x
    part = x if len(x) == 1 else x[first : first + step]
    return part if step > 1 else part[0]


def begun(of: str, scale: float, is_causal: bool, natives: Sequence[Array], results: Sequence[Array]) -> Begun | None:
    """Return what computes a pass of arrays that lie like these, None where they are not read as they lie.

    natives: as `attend` and `attend_back` take them, and the mask if there is one.
    """
    takes = (QUERY, KEY, VALUE) if of == VALUES else (QUERY, KEY, VALUE, G, LOGS, MEANS)
    gives = (RESULT, LOGS) if of == VALUES else (BY_QUERY, BY_KEY, BY_VALUE)
    order = (*gives, *takes, *((MASK,) if len(natives) > len(takes) else ()))
    arrays = dict(zip(order, (*results, *natives), strict=True))
    if prod(_lead(of, arrays)) > TOGETHER:
        return None
    if any(x.dtype.char not in PRODUCT_SECONDS for number, x in arrays.items() if number != MASK):
        return None
    if not all(_is_readable(arrays[number]) for number in {QUERY, KEY, VALUE, G} & {*arrays}):
        return None
    if not all(arrays[number].flags.c_contiguous for number in {LOGS, MEANS, *gives} & {*arrays}):
        return None
    if MASK in arrays:
        mask = _matrices(arrays[MASK], across=of == COTANGENTS)
        if mask.dtype not in (bool, arrays[QUERY].dtype) or not _is_readable(mask):
            return None
        arrays[MASK] = mask
    places = {number: place for place, number in enumerate(order)}
    return Begun(_known(of, scale, is_causal, arrays), tuple([places.get(number) for number in range(OPERANDS)]))


def _known(of: str, scale: float, is_causal: bool, arrays: Operands) -> Launches:
    """Return the launches of a pass for arrays that lie like these."""
    kind = of, scale, is_causal, tuple([(number, lying(x)) for number, x in sorted(arrays.items())])
    found = known(kind, lambda often: _launches(of, scale, is_causal, arrays))
    assert isinstance(found, Launches)
    return found


# ---- what is launched


# A function that returns a word for part k of the rows of matrix n.
Told = Callable[[int, int], Word]


class Stack(NamedTuple):
    """Where the matrices of an operand lie: its place, bytes to each of them, their lengths, and elements from row to
    row, 0 for a single row.
    """

    at: Place
    begins: list[int]
    rows: int
    columns: int
    step: int

    @classmethod
    def of(cls, number: int, arrays: Operands, lead: Shape) -> Stack:
        """Return an operand as a stack with these leading axes."""
        rows, columns = arrays[number].shape[-2:]
        view = np.broadcast_to(arrays[number], (*lead, rows, columns))
        step = 0 if rows == 1 else view.strides[-2] // view.itemsize
        return cls(Place(number), offsets(lead, view.strides[:-2]).tolist(), rows, columns, step)

    def word(self, n: int, k: int = 0) -> Place:
        """Return the place of one of them, the same for all parts of its rows."""
        return Place(self.at.number, self.at.after + self.begins[n])


class Shares(NamedTuple):
    """How the rows of each matrix are cut: the first row of each part, and the most rows of one; lanes: in how many of
    them sums by query are added up, part n in lane n % lanes.
    """

    firsts: range
    step: int
    lanes: int


def _launches(of: str, scale: float, is_causal: bool, arrays: Operands) -> Launches:
    """Return the launches of a pass for arrays that lie like these."""
    lead = _lead(of, arrays)
    stacks = {number: Stack.of(number, arrays, lead) for number in arrays if number not in (LOGS, MEANS)}
    kind = NO_MASK if MASK not in arrays else _kind_of(arrays[MASK])
    one = (_Values if of == VALUES else _Cotangents)(arrays[QUERY].dtype, stacks, prod(lead), scale, is_causal, kind)
    return Launches([one.launches], OPERANDS, one.seconds)


class _Attention:
    """A pass for so many matrices that lie in some way.

    comes: pairs of operands whose products come in: rows, and columns. goes: pairs of operands that are multiplied by
    tiles, and results.
    """

    of: str
    comes: Sequence[tuple[int, int]]
    goes: Sequence[tuple[int, int]]

    def __init__(
        self, dtype: DType, stacks: dict[int, Stack], count: int, scale: float, is_causal: bool, kind: str
    ) -> None:
        self.dtype, self.stacks, self.count, self.is_causal = dtype, stacks, count, is_causal
        self.rows, self.columns = (stacks[number].rows for number in self.comes[0])
        form = form_of(self.dtype.char, self.rows, self.columns, REGISTERS, direct=True)._replace(direct=False)
        self.form, self.kernel = form, Pass(self.of, form, kind)
        self.scale = int.from_bytes(np.asarray(scale, self.dtype).tobytes(), "little", signed=True)
        least = min(ceil(PARTS / max(self.count, 1)), ceil(self.rows / (4 * form.height)))
        step = ceil(self.rows / max(ceil(self.rows / ROWS), least) / form.height) * form.height
        firsts = range(0, self.rows, step)
        self.shares = Shares(firsts, step, min(len(firsts), ceil(LANES / max(self.count, 1))))

    @property
    def is_values(self) -> bool:
        return self.of == VALUES

    @property
    def multiplied(self) -> list[int]:
        """The operands that tiles multiply."""
        return [matrix for matrix, _ in self.goes]

    @property
    def seconds(self) -> float:
        """An estimate for one thread."""
        sums = sum([self.stacks[number].columns for number in (*[own for own, _ in self.comes], *self.multiplied)])
        return sum(self._work()) * sums * PRODUCT_SECONDS[self.dtype.char]

    def _work(self) -> list[int]:
        """Return the scores of each part of each matrix."""
        parts = []
        for first in self.shares.firsts:
            rows = min(self.rows - first, self.shares.step)
            seen = self.columns
            if self.is_causal:
                seen = min(first + rows, self.columns) if self.is_values else max(self.columns - first, rows)
            parts.append(rows * seen)
        return parts * self.count

    def launches(self, sheet: Sheet) -> list[Launch]:
        """Return the launches."""
        skips, checks = self._skips(sheet)
        found = [*checks]
        words: dict[str, Told] = {}
        for x, (own, other) in enumerate(self.comes):
            packing, panels = self._panels(other, sheet)
            found.append(packing)
            words[f"a{x}"], words[f"p{x}"] = self.stacks[own].word, panels
        for y, number in enumerate(self.multiplied):
            words[f"b{y}"] = self.stacks[number].word
        for y, (_, result) in enumerate(self.goes):
            words[f"c{y}"] = self.stacks[result].word
        for name, number in (("logs", LOGS), ("means", MEANS)):
            words[name] = partial(self._by_query_of, number)
        if MASK in self.stacks:
            words["mask"] = self.stacks[MASK].word
        tables = self._tables(sheet) | {"skips": skips}
        return [*found, *self._computed(words, tables, sheet)]

    def _by_query_of(self, number: int, n: int, k: int) -> Place:
        """Return the place of numbers by query of one matrix."""
        queries = self.rows if self.is_values else self.columns
        return Place(number, n * queries * self.dtype.itemsize)

    def _skips(self, sheet: Sheet) -> tuple[Word, list[Launch]]:
        """Return the place of the word that says whether columns at which no row looks are skipped, and the launches
        that find out: only where what they would be multiplied with is finite.
        """
        if not self.is_causal:  # it is read, and does not matter
            return sheet.keep(np.zeros(1, np.int64)), []
        flag = sheet.take(1, np.dtype(np.int64))
        code = finite_kernel(self.dtype.char, self.form.lanes)
        calls: list[tuple[Word, ...]] = []
        for number in self.multiplied:
            stack = self.stacks[number]
            for begin in sorted({*stack.begins}):
                place = Place(number, begin)
                calls.append((place, flag, stack.rows, stack.columns, stack.step, int(not calls)))
        return flag, [shared(code, calls, 1)]

    def _panels(self, number: int, sheet: Sheet) -> tuple[Launch, Told]:
        """Return the launch that packs the matrices of an operand across, as panels of columns, and where these are."""
        stack, width, item = self.stacks[number], self.form.width, self.dtype.itemsize
        columns, depth = stack.rows, stack.columns
        begins = sorted({*stack.begins})
        size = ceil(columns / width) * depth * width
        rooms = {begin: sheet.take(size, self.dtype) for begin in begins}
        tos, calls = sheet.keep(steps(depth, width)), list[tuple[Word, ...]]()
        for begin in begins:
            for first in range(0, columns, PACKED_COLUMNS):
                given, to = Place(number, begin + first * stack.step * item), first * depth * item
                count = min(columns - first, PACKED_COLUMNS)
                calls.append((given, tos, behind(rooms[begin], to), count, depth, stack.step, width, depth * width))
        return shared(turning_of(self.form), calls, sheet.threads), lambda n, k: rooms[stack.begins[n]]

    def _tables(self, sheet: Sheet) -> dict[str, Word]:
        """Return the words that all parts share."""
        told: dict[str, Word] = {"columns": self.columns, "causal": int(self.is_causal), "scale": self.scale}
        told["mask.step"] = self.stacks[MASK].step if MASK in self.stacks else 0
        tall = ceil(self.rows / self.form.height) * self.form.height
        for x, (own, _) in enumerate(self.comes):
            stack = self.stacks[own]
            lines = np.minimum(np.arange(tall), stack.rows - 1) * stack.step
            for name, table in zip(("rows", "ks", "runs"), rows_of(lines, steps(stack.columns, 1)), strict=True):
                told[f"a{x}.{name}"] = sheet.keep(table)
            told[f"depth{x}"] = stack.columns
        for y, number in enumerate(self.multiplied):
            stack = self.stacks[number]
            told[f"b{y}.ks"], told[f"width{y}"] = sheet.keep(steps(stack.rows, stack.step)), stack.columns
        return told

    def _computed(self, words: dict[str, Told], tables: dict[str, Word], sheet: Sheet) -> list[Launch]:
        """Return the launches that compute all parts. words: that differ from matrix to matrix."""
        units = self._units()
        work = self._work()
        by_unit = [sum([work[part] for part in unit]) for unit in units]
        threads, total, done = min(sheet.threads, len(units)), sum(by_unit), 0
        groups: list[list[int]] = [[] for _ in range(threads)]
        for unit, own in zip(units, by_unit, strict=True):
            groups[int((done + 0.5 * own) * threads / total)] += unit
            done += own
        groups = [group for group in groups if group]
        widths = [self.stacks[result].columns for _, result in self.goes]
        room = self.kernel.scratch(min(self.rows, self.shares.step), widths)
        told = []
        for group in groups:
            shared_words = {**tables, "scratch": sheet.take(room, self.dtype)}
            base = [shared_words.get(name, 0) for name in _PLACES]
            told.append([self._told(part, words, base) for part in group])
        return [dealt(attention_kernel(self.kernel), told)]

    def _units(self) -> list[list[int]]:
        """Return what one thread computes, part by part."""
        return [[part] for part in range(self.count * len(self.shares.firsts))]

    def _told(self, part: int, words: dict[str, Told], base: list[Word]) -> list[Word]:
        """Return the words of a part. base: those that it shares with others."""
        n, k = divmod(part, len(self.shares.firsts))
        first, told = self.shares.firsts[k], base.copy()
        told[_PLACES["first"]], told[_PLACES["rows"]] = first, min(self.rows - first, self.shares.step)
        for name, word in words.items():
            told[_PLACES[name]] = word(n, k)
        return told


class _Values(_Attention):
    """Attention, and by query the logarithm of the sum of powers."""

    of, comes, goes = VALUES, ((QUERY, KEY),), ((VALUE, RESULT),)


class _Cotangents(_Attention):
    """The cotangents of keys and values, whose rows are keys, and those of queries, in lanes that are added up."""

    of, comes, goes = COTANGENTS, ((KEY, QUERY), (VALUE, G)), ((G, BY_VALUE), (QUERY, BY_KEY))

    @property
    def multiplied(self) -> list[int]:
        return [*super().multiplied, KEY]

    def _computed(self, words: dict[str, Told], tables: dict[str, Word], sheet: Sheet) -> list[Launch]:
        """Return the launches that also add up the sums by query."""
        lanes, result, item = self.shares.lanes, self.stacks[BY_QUERY], self.dtype.itemsize
        tall, width = self.columns + self.form.height, ceil(result.columns / self.form.width) * self.form.width
        sums = sheet.take(self.count * lanes * tall * width, self.dtype)

        def lane(n: int, k: int) -> Word:
            return behind(sums, (n * lanes + k % lanes) * tall * width * item)

        zeros = zeroed(sums, self.count * lanes, tall * width, self.dtype, sheet)
        rows, calls = sheet.keep(np.arange(result.rows) * result.step), list[tuple[Word, ...]]()
        for n in range(self.count):
            own = behind(sums, n * lanes * tall * width * item)
            calls.append((own, rows, 0, result.word(n), result.rows, result.columns, width, lanes, tall * width))
        code = lane_sums_kernel(self.dtype.char, self.form.lanes, True)
        return [zeros, *super()._computed({**words, "c2": lane}, tables, sheet), shared(code, calls, sheet.threads)]

    def _units(self) -> list[list[int]]:
        """Parts of one lane follow each other."""
        parts, lanes = len(self.shares.firsts), self.shares.lanes
        return [[n * parts + k for k in range(lane, parts, lanes)] for n in range(self.count) for lane in range(lanes)]


# ---- arrays


def _readable(x: Array) -> Array:
    """Return an array whose rows are contiguous and lie whole elements apart."""
    return x if _is_readable(x) else np.ascontiguousarray(x)


def _is_readable(x: Array) -> bool:
    whole = x.flags.aligned and not any(step % x.itemsize for step in x.strides)
    return bool(whole and (x.strides[-1] == x.itemsize or x.shape[-1] == 1))


def _mask(mask: Array, dtype: DType, across: bool) -> Array:
    """Return a mask as matrices with contiguous rows, of flags or numbers of a dtype; across: transposed."""
    return _readable(_matrices(mask, across).astype(bool if mask.dtype.kind == "b" else dtype, copy=False))


def _matrices(mask: Array, across: bool) -> Array:
    given = mask.reshape((1,) * (2 - mask.ndim) + mask.shape)
    return given.swapaxes(-1, -2) if across else given


def _kind_of(mask: Array) -> str:
    """Return what there is of a mask: an element for each score, or for each row."""
    flags = mask.dtype.kind == "b"
    if mask.shape[-1] == 1:
        return ROW_FLAGS if flags else ROW_ADDED
    return FLAGS if flags else ADDED

"""What CuPy is slow at, by kernels of our own (codegen/cuda/library.cuh): elements at indices and of masks, running
results, sorts of rows, copies of transposed arrays.

Each function returns None, or False, with nothing done, where there is no kernel for it: CuPy's function does it then.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ..base.dtypes import DType
from ..base.layout import Shape
from .cuda_memory import pinned

Array = Any  # a cupy.ndarray

# The marks of assigned places are kept for so many places, or so many for each index.
PLACES, PLACES_EACH = 1 << 22, 8

# Bytes of a result from which on indices are looked at by a kernel of their own, so that nobody waits for the result.
AHEAD = 1 << 20

# Rows that a thread adds up one after the other.
CHUNK = 32

# Elements of a mask that a block looks at.
MASKED = 4096

# A scan takes a block for a row, or for 32 columns: fewer blocks leave most of a device idle, unless rows are short.
FEWEST_BLOCKS, SHORT = 32, 4096

# Tiles of transposed copies; axes shorter than half of one are no worse in CuPy's order.
TILE = 32

# Rows are sorted in shared memory: so many elements at most.
SORTED = 8192


def _library() -> Any:
    """Return the kernels, whose room stands below this one: loaded when the first of them is asked for."""
    from ..codegen.cuda import library

    return library


# ---- loops


class Loops(NamedTuple):
    """Loops in C order over bytes: their lengths, and the strides of each operand."""

    lengths: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]


def _loops(lengths: Sequence[int], *strides: Sequence[int]) -> Loops:
    """Return loops with those joined that go on where the next one ends, and none of length 1."""
    found: list[tuple[int, tuple[int, ...]]] = []
    for n, *own in zip(lengths, *strides, strict=True):
        if n == 1:
            continue
        if found and all(a == b * n for a, b in zip(found[-1][1], own, strict=True)):
            found[-1] = (found[-1][0] * n, tuple(own))
        else:
            found.append((n, tuple(own)))
    return Loops(
        tuple(n for n, _ in found), tuple(zip(*(own for _, own in found), strict=True)) or ((),) * len(strides)
    )


def _unit(itemsize: int, inner: Loops, others: Sequence[int]) -> int:
    """Return how many bytes to move at a time, for packed innermost loops; others: what must be multiples of it."""
    if not inner.lengths or any(own[-1] != itemsize for own in inner.strides):
        return itemsize
    strides = [step for own in inner.strides for step in own[:-1]]
    whole = [inner.lengths[-1] * itemsize, *strides, *others]
    return next(unit for unit in (16, 8, 4, 2, 1) if unit <= itemsize or not any(n % unit for n in whole))


def _by_units(itemsize: int, inner: Loops, unit: int) -> Loops:
    """Return loops whose innermost one goes by units."""
    if unit <= itemsize:
        return inner
    lengths = (*inner.lengths[:-1], inner.lengths[-1] * itemsize // unit)
    return Loops(lengths, tuple((*own[:-1], unit) for own in inner.strides))


# ---- indices


def gather(
    cp: Any, view: Array, indices: Sequence[Array], at: int, shape: Shape, *, sure: bool, each: bool = False
) -> Array | None:
    """Return view[indices] with the indices' axes moved to `at`, of a shape.

    view: the axes that are indexed come first. indices: int64 of one shape, counted from either end. sure: whether
    they are known to be inside. each: there is an index for each element of the result, along axis `at`. Raises
    IndexError, without saying which, where one is outside.
    """
    library = _library()
    own = view.dtype.itemsize
    if not prod(shape) or own not in library.MOVED:
        return None
    count, rest = len(indices), list(zip(view.shape, view.strides, strict=True))
    pre, post = rest[count : count + at], rest[count + at :]
    before = _loops([n for n, _ in pre], [s for _, s in pre])
    after = _loops([n for n, _ in post], [s for _, s in post])
    steps = view.strides[:count]
    unit = own if each else _unit(own, after, [view.data.ptr, *steps, *before.strides[0]])
    after = _by_units(own, after, unit)
    along = shape[at] if each else indices[0].size
    lengths = (*before.lengths, along, *after.lengths)
    strides = (*before.strides[0], 0, *after.strides[0])
    found, wrong = cp.empty(shape, view.dtype), cp.zeros(1, np.int32)
    total = prod(lengths)
    arrays = [cp.ascontiguousarray(one) for one in indices]
    numbers = [view, found, wrong, total, *arrays, *view.shape[:count], *steps, *map(library.Length, lengths), *strides]
    given = {"T": library.MOVED[unit], "ARRAYS": count, "LOOPS": len(lengths), "ALONG": len(before.lengths)}
    early = not (sure or each) and found.nbytes >= AHEAD and along < library.REACH and _marks(view, arrays, wrong)
    ahead = _Answer(cp, wrong) if early else None
    if not library.launch("gather", view, {**given, "EACH": int(each)}, numbers, library.blocks_of(total), reach=total):
        return None
    if not sure:
        _refuse(ahead.wait() if ahead else wrong.get())
    return found


class _Answer:
    """A mark on its way to the host: who waits for it does not wait for what is launched after it was asked for."""

    def __init__(self, cp: Any, wrong: Array) -> None:
        self.host = pinned(cp, wrong.shape, wrong.dtype)
        wrong.get(out=self.host, blocking=False)
        self.event = cp.cuda.Event(disable_timing=True)
        self.event.record()

    def wait(self) -> Any:
        self.event.synchronize()
        return self.host


def _refuse(wrong: Any) -> None:
    """Raise IndexError where a kernel left a mark."""
    if wrong[0]:
        raise IndexError("an index is out of bounds")


def scatter(
    cp: Any, view: Array, indices: Sequence[Array], at: int, value: Array, *, sure: bool, repeats: bool
) -> bool:
    """Assign a value to view[indices], with the indices' axes moved to `at`; the last of several for one place stays.

    value: of the shape of what is selected. repeats: whether a place may be named twice. Raises IndexError, with
    nothing written, where an index is outside.
    """
    library = _library()
    own, count, size = view.dtype.itemsize, len(indices), indices[0].size
    reach = prod(view.shape[:count]) if repeats else 0
    if not value.size or own not in library.MOVED or size >= library.REACH or value.dtype != view.dtype:
        return False
    if reach > max(PLACES, PLACES_EACH * size):
        return False
    arrays = [cp.ascontiguousarray(one) for one in indices]
    last = cp.full(reach, -1, np.int32) if repeats else None
    if (repeats or not sure) and not _checked(cp, view, arrays, last=last, sure=sure):
        return False
    between = slice(at, at + indices[0].ndim)
    if len(_loops(value.shape[between], value.strides[between]).lengths) > 1:
        value = cp.ascontiguousarray(value)  # whose axes of the indices are one
    return _scatter(view, arrays, at, value, between, last)


def _checked(
    cp: Any, view: Array, arrays: Sequence[Array], *, last: Array | None = None, flat: Array | None = None, sure: bool
) -> bool:
    """Find which index names each place last, and the number of the place that each names, where there is an array for
    it; return whether that was done. Waits, and raises IndexError where one is outside, unless they are `sure`.
    """
    wrong = cp.zeros(1, np.int32)
    if not _marks(view, arrays, wrong, last, flat):
        return False
    if not sure:
        _refuse(wrong.get())
    return True


def _marks(
    view: Array, arrays: Sequence[Array], wrong: Array, last: Array | None = None, flat: Array | None = None
) -> bool:
    """Launch what leaves a mark where an index is outside, and notes what `_checked` says; return whether it was."""
    library = _library()
    size, count = arrays[0].size, len(arrays)
    given = {"ARRAYS": count, "LAST": int(last is not None), "FLAT": int(flat is not None)}
    outputs = [wrong if one is None else one for one in (last, flat)]
    numbers = [wrong, *outputs, size, *arrays, *view.shape[:count]]
    return bool(library.launch("check", view, given, numbers, library.blocks_of(size), reach=size))


def _scatter(view: Array, arrays: Sequence[Array], at: int, value: Array, between: slice, last: Array | None) -> bool:
    """Launch what `scatter` does; between: the axes of the value that are those of the indices."""
    library = _library()
    own, count = view.dtype.itemsize, len(arrays)
    joined = _loops(value.shape[between], value.strides[between])
    step = joined.strides[0][0] if joined.lengths else 0
    lengths, to = view.shape[count:], view.strides[count:]
    before = _loops(lengths[:at], to[:at], value.strides[:at])
    after = _loops(lengths[at:], to[at:], value.strides[between.stop :])
    others = [view.data.ptr, value.data.ptr, step, *view.strides[:count], *before.strides[0], *before.strides[1]]
    unit = _unit(own, after, others)
    after = _by_units(own, after, unit)
    loops = (*before.lengths, arrays[0].size, *after.lengths)
    steps, given = ((*b, own, *a) for b, own, a in zip(before.strides, (0, step), after.strides, strict=True))
    total = prod(loops)
    numbers = [
        view,
        value,
        arrays[0] if last is None else last,
        total,
        *arrays,
        *view.shape[:count],
        *view.strides[:count],
    ]
    numbers += [*map(library.Length, loops), *steps, *given]
    words = {"T": library.MOVED[unit], "ARRAYS": count, "LOOPS": len(loops), "ALONG": len(before.lengths)}
    words["REPEATS"] = int(last is not None)
    return bool(library.launch("scatter", view, words, numbers, library.blocks_of(total), reach=total))


def add(cp: Any, view: Array, indices: Sequence[Array], rows: Array, *, sure: bool) -> bool:
    """Add rows, one for each index, to view[indices], those of one place in a fixed order; waits once.

    Raises IndexError, with nothing written, where an index is outside.
    """
    library = _library()
    count, size, places = len(indices), indices[0].size, prod(view.shape[: len(indices)])
    kind = view.dtype
    if not rows.size or kind.kind == "b" or kind == np.float16 or rows.dtype != kind or places >= library.REACH:
        return False
    flat = cp.empty(size, np.int64)
    if not _checked(cp, view, [cp.ascontiguousarray(one) for one in indices], flat=flat, sure=sure):
        return False
    rest = _loops(view.shape[count:], view.strides[count:])
    lengths, steps = (rest.lengths, rest.strides[0]) if rest.lengths else ((1,), (0,))
    width, chunks = prod(lengths), -(-size // CHUNK)
    heads, tails = (cp.empty((chunks, width), kind) for _ in range(2))
    numbers = [view, cp.ascontiguousarray(rows), flat, cp.argsort(flat), heads, tails, size, CHUNK, chunks * width]
    numbers += [*map(library.Length, view.shape[:count]), *view.strides[:count]]
    numbers += [*map(library.Length, (width, *lengths)), *steps]
    words = {"T": library.memory_type(kind), "ARRAYS": count, "LOOPS": len(lengths)}
    for joins in range(2 if chunks > 1 else 1):
        blocks = library.blocks_of(chunks * width)
        if not library.launch("add", view, {**words, "JOINS": joins}, numbers, blocks, reach=rows.size):
            return False
    return True


# ---- masks


def selected(cp: Any, mask: Array, x: Array | None = None) -> Array | None:
    """Return x's elements where a mask of its shape is true, or without x their places, in C order; waits once."""
    library = _library()
    mask = cp.ascontiguousarray(mask)
    values = None if x is None else cp.ascontiguousarray(x)
    blocks = -(-mask.size // MASKED)
    if not blocks:
        return None
    counts = cp.empty(blocks, np.int64)
    if not library.launch("mark", mask, {}, [mask, counts, mask.size], blocks, reach=mask.size):
        return None
    ends = cp.cumsum(counts)
    dtype = np.dtype(np.int64) if values is None else values.dtype
    found = cp.empty(int(ends[-1].get()), dtype)
    given = {"T": library.MOVED[dtype.itemsize], "VALUES": int(values is not None)}
    numbers = [mask, mask if values is None else values, found, ends, mask.size]
    return found if library.launch("select", mask, given, numbers, blocks, reach=mask.size) else None


# ---- running results


def cumulative(cp: Any, x: Array, axis: int, dtype: DType, combine: str, start: int, initial: bool) -> Array | None:
    """Return running results along an axis by rows or columns in fixed trees; initial: with `start` before them.

    combine: "add" or "multiply". Sums of many short rows or columns; a few long ones are CuPy's.
    """
    library = _library()
    length, width = x.shape[axis], prod(x.shape[axis + 1 :])
    tiles = -(-width // TILE)
    blocks = prod(x.shape[:axis]) * (1 if width == 1 else tiles)
    if not x.size or dtype.kind == "b" or (blocks < FEWEST_BLOCKS and length > SHORT):
        return None
    try:
        kind = library.register_type(dtype)
        before = [library.conversion("xt_converted", x.dtype, dtype), library.joining("xt_join", combine, dtype)]
    except library.LacksError:
        return None
    if dtype == np.float16 or x.dtype == np.float16:
        return None
    x, pitch = cp.ascontiguousarray(x), length + initial
    found = cp.empty((*x.shape[:axis], pitch, *x.shape[axis + 1 :]), dtype)
    given = {"T": library.memory_type(x.dtype), "S": kind, "A": kind}
    given["xt_start"] = f"{kind}{{ {start}, 0 }}" if dtype.kind == "c" else f"({kind}){start}"
    numbers = [x, found, length, pitch]
    name = "scan rows"
    if width > 1:
        name, numbers = "scan columns", [*numbers, library.Length(width), library.Length(tiles)]
    return found if library.launch(name, x, given, numbers, blocks, reach=width, before=before) else None


# ---- sort


def sort(cp: Any, x: Array, axis: int, *, order: bool) -> Array | None:
    """Return x sorted along an axis, or if `order` the indices that sort it; stable, NaN last."""
    library = _library()
    size, kind = x.dtype.itemsize, x.dtype.kind
    if not x.size or kind not in "biuf" or x.dtype == np.float16:
        return None
    given = {"T": library.memory_type(x.dtype), "K": "u64" if size == 8 else "u32"}
    given |= {"FLOATS": int(kind == "f"), "SIGNED": int(kind == "i")}
    rows = copied(cp, cp.moveaxis(x, axis, -1))
    found = (
        _sorted_by_blocks(cp, rows, given, order) if x.shape[axis] <= SORTED else _sorted_whole(cp, rows, given, order)
    )
    return None if found is None else cp.moveaxis(found, -1, axis)


def _sorted_by_blocks(cp: Any, rows: Array, given: dict[str, Any], order: bool) -> Array | None:
    """Return rows sorted in shared memory, or the indices that do so."""
    library = _library()
    length, size = rows.shape[-1], rows.dtype.itemsize
    width = max(1 << (length - 1).bit_length(), 2)
    shared, threads = width * (max(size, 4) + 4), min(max(width // 2, 32), 1024)
    if shared > library.most_shared(rows):
        return None
    found = cp.empty(rows.shape, np.int64 if order else rows.dtype)
    numbers, blocks = [rows, found, found, length, width], rows.size // length
    words = {**given, "ORDER": int(order)}
    return found if library.launch("sort", rows, words, numbers, blocks, threads=threads, shared=shared) else None


def _sorted_whole(cp: Any, rows: Array, given: dict[str, Any], order: bool) -> Array | None:
    """Return several rows sorted by one radix sort of CuPy's, of numbers that begin with the row's, or the indices."""
    library = _library()
    length = rows.shape[-1]
    if rows.size == length or rows.dtype.itemsize > 4 or rows.size >= library.REACH:
        return None
    keys = cp.empty(rows.size, np.uint64)
    numbers = [rows, keys, rows.size, library.Length(length)]
    if not library.launch("number", rows, given, numbers, library.blocks_of(rows.size)):
        return None
    places = cp.argsort(keys).astype(np.int64, copy=False)
    return (places % length if order else rows.reshape(-1)[places]).reshape(rows.shape)


# ---- copies


def copied(cp: Any, x: Array) -> Array:
    """Return an array packed in C order: itself where it is, else a copy."""
    if x.flags.c_contiguous:
        return x
    found = cp.empty(x.shape, x.dtype)
    return found if turned(x, found) else cp.ascontiguousarray(x)


def turned(x: Array, y: Array) -> bool:
    """Copy x to y, of one shape and dtype, by tiles where they lie along different axes; return whether."""
    library = _library()
    size = x.dtype.itemsize
    if x.ndim < 2 or not x.size or size not in library.MOVED:
        return False
    steps = [[abs(s) if n > 1 else np.inf for s, n in zip(a.strides, a.shape, strict=True)] for a in (x, y)]
    rows, columns = (one.index(min(one)) for one in steps)
    if rows == columns or min(x.shape[rows], x.shape[columns]) < TILE // 2:
        return False
    others = [axis for axis in range(x.ndim) if axis not in (rows, columns)]
    rest = _loops(*([of[axis] for axis in others] for of in (x.shape, x.strides, y.strides)))
    tiles = [-(-x.shape[axis] // TILE) for axis in (rows, columns)]
    numbers = [x, y, x.shape[rows], x.shape[columns], x.strides[rows], x.strides[columns]]
    numbers += [y.strides[rows], y.strides[columns], *map(library.Length, tiles)]
    lengths, strides = (rest.lengths, rest.strides) if rest.lengths else ((1,), ((0,), (0,)))
    numbers += [*map(library.Length, lengths), *strides[0], *strides[1]]
    given = {"T": library.MOVED[size], "LOOPS": len(lengths)}
    return bool(library.launch("turn", x, given, numbers, prod(tiles) * prod(lengths)))

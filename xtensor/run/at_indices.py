"""Gathers and scatters as launches: the elements that `x[i]` reads and `x[i] = y` writes, where `i` are integer arrays.

Indices are checked before anything is moved. One that is out of bounds stops the run; then the function is called,
whose error says what is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple, cast

from ..base.layout import Layout, Shape, broadcast_shapes, strides_over
from ..codegen.cpu import at_indices as code
from ..codegen.cpu.compile import host
from ..plan import costs
from ..plan.layouts import Meta, Task
from .factors import FAILED, RESULT
from .native import Launch, Making
from .places import NEW, Along, AtIndices, Gather, Selected, Window
from .taken_down import Called, Outcome, Spot

# The sizes of elements that can be moved, and the most arrays of indices that a key may have.
_SIZES, _MOST_INDICES = (1, 2, 4, 8, 16), 4

# Bytes that machine code moves at a time.
_REGISTERS = (64, 32, 16, 8)


class Axis(NamedTuple):
    """One loop: its length, and its stride in bytes in each of the arrays that it goes through."""

    length: int
    steps: Shape


class Selection(NamedTuple):
    """The elements that a key with arrays of indices selects. offset: of the first, in bytes; inner: lengths and
    strides of the axes that are selected for each index; place: the one of these before which the indices' own axes
    stand; indexed: the lengths and strides of the axes that indices select from; outer: the array's strides along the
    indices' own axes, which go through it as well if they select along an axis.
    """

    offset: int
    inner: list[tuple[int, int]]
    place: int
    indexed: list[tuple[int, int]]
    outer: Shape = ()

    @classmethod
    def of(cls, meta: Meta, indexing: AtIndices) -> Selection | None:
        """Return what an operation selects from an array, None for a key with masks."""
        if isinstance(indexing, Along):
            pairs = list(zip(meta.shape, meta.layout.strides, strict=True))
            outer = [0 if length == 1 else step for length, step in pairs]
            outer[indexing.axis] = 0
            return cls(0, [], 0, [pairs[indexing.axis]], tuple(outer))
        return cls._of_key(meta, indexing.fixed)

    @classmethod
    def _of_key(cls, meta: Meta, fixed: Sequence[Any]) -> Selection | None:
        """Return what a key selects. fixed: its items, None for arrays."""
        axes = iter(zip(meta.shape, meta.layout.strides, strict=True))
        offset, inner, indexed, places = 0, list[tuple[int, int]](), list[tuple[int, int]](), set[int]()
        for item in fixed:
            if item is NEW:
                inner.append((1, 0))
            elif isinstance(item, slice):
                length, step = next(axes)
                start, stop, by = item.indices(length)
                count = len(range(start, stop, by))
                offset += start * step if count else 0
                inner.append((count, by * step))
            elif type(item) is Window:
                length, step = next(axes)
                places.add(len(inner))
                indexed.append((length - item.count + 1, step))
                inner.append((item.count, step))
            elif item is None or type(item) is int:  # numbers are indices as well
                length, step = next(axes)
                places.add(len(inner))
                if item is None:
                    indexed.append((length, step))
                else:
                    offset += (item + length if item < 0 else item) * step
            else:
                return None
        inner += axes
        return cls(offset, inner, places.pop() if len(places) == 1 else 0, indexed)


class ByIndex:
    """A gather or a scatter. If an index is out of bounds, the driver stops."""

    seconds, aligned = 0.0, False

    def __init__(self, step: Called) -> None:
        self._gathers = isinstance(step.indexing, Gather)
        self._base, self._values, self._indices = _metas(step)
        self._found = cast(Selection, Selection.of(self._base, cast(AtIndices, step.indexing)))
        self.task = Task("gather" if self._gathers else "scatter", 2 * self._values.nbytes)

    def launches(self, making: Making) -> list[Launch]:
        """Return the launch."""
        outer, inner = _loops(self._found, self._values, self._indices)
        first = 1 if self._gathers else 2  # of the numbers of arrays of indices
        inner, itemsize = _in_registers(inner, self._base.dtype.itemsize)
        names = code.words_of(len(self._indices))
        places = {"a": (0, self._found.offset), "c": (RESULT if self._gathers else 1, 0), "failed": (FAILED, 0)}
        places |= {f"x{k}": (first + k, 0) for k in range(len(self._indices))}
        known: dict[str, int] = {}
        for name, axis in zip((*code.OUTER, *code.INNER), (*outer, *inner), strict=True):
            known[f"n.{name}"] = axis.length
            others = [f"x{k}" for k in range(len(self._indices))] if name in code.OUTER else []
            known |= {f"{own}.{name}": step for own, step in zip(["c", "a", *others], axis.steps, strict=True)}
        for k, (length, step) in enumerate(self._found.indexed):
            known |= {f"x{k}.length": length, f"x{k}.step": step}
        fillings = [(at, *places[name]) for at, name in enumerate(names) if name in places]
        words = [known.get(name, 0) for name in names]
        kinds = "".join([_kind(meta) for meta in self._indices])
        single = all(axis.length == 1 for axis in inner)
        made = code.call_of(kinds, itemsize, gathers=self._gathers, single=single)
        return [Launch(made, (1,), len(words), words, fillings)]


def can_be_indexed(step: Called) -> bool:
    """Return whether machine code can gather or scatter as a step does, according to the attributes of its function
    (standard/indexing.py), provided that the memory it writes is apart from the memory it reads.
    """
    if step.indexing is None or host() is None:
        return False
    base, values, indices = _metas(step)
    if isinstance(step.indexing, Gather):
        gaps = isinstance(step.indexing, Selected) and min(values.layout.strides, default=0) >= 0
        if values.layout.offset or not (gaps or values.layout.is_dense(values.dtype.itemsize)):
            return False
    elif values.dtype != base.dtype:
        return False
    if base.dtype.itemsize not in _SIZES or not 0 < len(indices) <= _MOST_INDICES:
        return False
    if not all(map(_kind, indices)) or values.nbytes > costs.NATIVE_INDEXED:
        return False
    found = Selection.of(base, step.indexing)
    if found is None or len(found.indexed) != len(indices) or 0 in (*base.shape, *values.shape):
        return False
    shape = _shape(found, indices)
    if 0 in shape or (isinstance(step.indexing, Gather) and shape != values.shape):
        return False
    count = prod(broadcast_shapes(*[meta.shape for meta in indices]))
    if count > costs.NATIVE_INDICES and prod(shape) < costs.INDEXED_ROWS * count:
        return False
    outer, inner = _loops(found, values, indices)
    return len(outer) == len(inner) == 2


class ByCheck:
    """A check of classes, or of the boolean that a call branches on. If one does not exist, or it is another one, the
    driver stops.
    """

    seconds, aligned = 0.0, False

    def __init__(self, step: Called) -> None:
        self._meta, self._bounds = step.takes[0].meta, step.bounds
        name = step.function.__name__ if isinstance(step.function, Outcome) else "check of classes"
        self.task = Task(name, self._meta.nbytes)

    def launches(self, making: Making) -> list[Launch]:
        """Return the launch."""
        assert self._bounds is not None
        count, ignored = self._bounds
        (first, second), places = _axes(self._meta), {"x0": 0, "failed": FAILED}
        known = {"n.o0": first.length, "n.o1": second.length, "x0.o0": first.steps[0], "x0.o1": second.steps[0]}
        known |= {"count": count, "ignored": 0 if ignored is None else ignored}
        words = [known.get(name, 0) for name in code.CHECKED]
        fillings = [(at, places[name], 0) for at, name in enumerate(code.CHECKED) if name in places]
        return [Launch(code.check_of(_kind(self._meta)), (1,), len(words), words, fillings)]


def can_be_checked(step: Called) -> bool:
    """Return whether machine code can check classes as a step does."""
    if step.bounds is None or host() is None:
        return False
    meta, (count, ignored) = step.takes[0].meta, step.bounds
    fits = 0 < prod(meta.shape) <= costs.CHECKED and count >= 0 and -(1 << 63) <= (ignored or 0) < 1 << 63
    return fits and bool(_kind(meta)) and len(_axes(meta)) == 2


def _axes(meta: Meta) -> list[Axis]:
    """Return loops over all elements, two if not more."""
    return joined([Axis(n, (step,)) for n, step in zip(meta.shape, meta.layout.strides, strict=True)], 1)


def indexed(step: Called) -> list[tuple[Spot, int]]:
    """Return the arrays of indices of a step, each with the length of its axis; none if it has no indices."""
    arrays = step.takes[1 if step.gives else 2 :]
    if step.indexing is None or not all([_kind(spot.meta) for spot in arrays]):  # masks take several axes, or none
        return []
    found = Selection.of(step.takes[0].meta, step.indexing)
    return [] if found is None else [(spot, one[0]) for spot, one in zip(arrays, found.indexed, strict=False)]


def _kind(meta: Meta) -> str:
    """Return the letter of the dtype of indices, "" if machine code cannot read them."""
    return code.LETTERS.get(meta.dtype, "")


def _metas(step: Called) -> tuple[Meta, Meta, list[Meta]]:
    """Return the metas of the array, of the values that are taken from it or written to it, and of the indices."""
    base, *others = [spot.meta for spot in step.takes]
    return (base, step.gives[0].meta, others) if step.gives else (base, others[0], others[1:])


def _shape(found: Selection, indices: Sequence[Meta]) -> Shape:
    """Return the shape of the selection."""
    own = broadcast_shapes(*[meta.shape for meta in indices])
    lengths = tuple([length for length, _ in found.inner])
    return (*lengths[: found.place], *own, *lengths[found.place :])


def _loops(found: Selection, values: Meta, indices: Sequence[Meta]) -> tuple[list[Axis], list[Axis]]:
    """Return the loops over indices and those over the elements of each index: two of each kind, if not more."""
    shape, own = _shape(found, indices), broadcast_shapes(*[meta.shape for meta in indices])
    to = strides_over(Layout(values.shape, values.layout.strides), shape)
    over = [strides_over(Layout(meta.shape, meta.layout.strides), own) for meta in indices]
    begin, end = found.place, found.place + len(own)
    through = found.outer or (0,) * len(own)
    outer = [Axis(length, tuple(steps)) for length, *steps in zip(own, to[begin:end], through, *over, strict=True)]
    rest = zip(found.inner, (*to[:begin], *to[end:]), strict=True)
    inner = [Axis(length, (step, by)) for (length, by), step in rest]
    return joined(outer, 2 + len(indices)), joined(inner, 2)


def _in_registers(inner: Sequence[Axis], itemsize: int) -> tuple[list[Axis], int]:
    """Return the loops over the elements of an index, and the bytes moved at a time: those that lie side by side, if
    they fill whole registers.
    """
    *others, last = inner
    nbytes = last.length * itemsize
    wide = next((one for one in _REGISTERS if nbytes % one == 0 and one > itemsize), itemsize)
    if last.steps != (itemsize, itemsize) or wide == itemsize:
        return [*inner], itemsize
    length = nbytes // wide
    return [*others, Axis(length, (wide, wide) if length > 1 else (0, 0))], wide


def joined(axes: Sequence[Axis], count: int) -> list[Axis]:
    """Return at least two loops over the same elements, after merging neighbouring loops whose strides allow it."""
    found: list[Axis] = []
    for axis in axes:
        if axis.length == 1:
            continue
        if found and all([a == b * axis.length for a, b in zip(found[-1].steps, axis.steps, strict=True)]):
            found[-1] = Axis(found[-1].length * axis.length, axis.steps)
        else:
            found.append(axis)
    return [Axis(1, (0,) * count)] * (2 - len(found)) + found

"""Layout: where the elements of a view lie in memory. Tuples only: no arrays, no devices.

A layout is (shape, strides, offset); strides and offset count bytes, as NumPy's do. Every view xtensor makes
(slice, transpose, broadcast, reshape without a copy, diagonal) is a layout computed here from another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import gcd, prod
from operator import index
from typing import Any, TypeGuard, cast

from numpy.exceptions import AxisError  # both a ValueError and an IndexError

from .errors import expected

Shape = tuple[int, ...]

# Numbers of elements before and after along each axis.
Pairs = tuple[tuple[int, int], ...]

MAX_NDIM = 64  # NumPy's and CuPy's


class Layout:
    """Shape, strides (bytes) and offset (bytes) of a view. Never changed once made."""

    __slots__ = ("offset", "shape", "strides")

    def __init__(self, shape: Shape, strides: Shape, offset: int = 0) -> None:
        self.shape, self.strides, self.offset = shape, strides, offset

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash(self._parts())

    def __repr__(self) -> str:
        return f"Layout(shape={self.shape}, strides={self.strides}, offset={self.offset})"

    def _parts(self) -> tuple[Shape, Shape, int]:
        return self.shape, self.strides, self.offset

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return prod(self.shape)

    # ---- its properties

    def extent(self, itemsize: int) -> tuple[int, int]:
        """Return the half-open range of bytes the view touches; (offset, offset) if it has no elements."""
        low = high = self.offset
        if self.size == 0:
            return low, high
        for length, stride in zip(self.shape, self.strides, strict=True):
            reach = (length - 1) * stride
            low, high = low + min(reach, 0), high + max(reach, 0)
        return low, high + itemsize

    def is_contiguous(self, itemsize: int) -> bool:
        """Return whether the elements follow each other in C order without gaps."""
        return self._is_packed(range(self.ndim - 1, -1, -1), itemsize)

    def order(self, itemsize: int) -> str:
        """Return "C" or "F" where the elements follow each other in that order without gaps, else ""."""
        if self.is_contiguous(itemsize):
            return "C"
        return "F" if self._is_packed(range(self.ndim), itemsize) else ""

    def is_channels_last(self, itemsize: int) -> bool:
        """Return whether a (N, C, spatial...) view is packed in memory as (N, spatial..., C).

        Needs 3 to 5 axes, as PyTorch's channels_last formats do; False for any other number.
        """
        if not 3 <= self.ndim <= 5:
            return False
        return self._is_packed((1, *range(self.ndim - 1, 1, -1), 0), itemsize)

    def _is_packed(self, fastest_first: Iterable[int], itemsize: int) -> bool:
        if self.size == 0:
            return True
        step = itemsize
        for axis in fastest_first:
            if self.shape[axis] != 1:
                if self.strides[axis] != step:
                    return False
                step *= self.shape[axis]
        return True

    def is_dense(self, itemsize: int) -> bool:
        """Return whether the elements fill one gap-free block, in whatever order of axes."""
        if self.size == 0:
            return True
        order = sorted(range(self.ndim), key=lambda axis: abs(self.strides[axis]))
        return all(self.strides[a] > 0 or self.shape[a] == 1 for a in order) and self._is_packed(order, itemsize)

    def may_repeat(self) -> bool:
        """Return whether two indices may name the same memory (a zero stride over more than one element)."""
        return self.size > 0 and any(n > 1 and s == 0 for n, s in zip(self.shape, self.strides, strict=True))

    def collapse(self) -> Layout:
        """Return the same elements in the same order over as few axes as possible."""
        shape: list[int] = []
        strides: list[int] = []
        for length, stride in zip(self.shape, self.strides, strict=True):
            if length == 1:
                continue
            if shape and strides[-1] == stride * length:
                shape[-1] *= length
                strides[-1] = stride
            else:
                shape.append(length)
                strides.append(stride)
        return Layout(tuple(shape), tuple(strides), self.offset)

    def flat_2d(self) -> Layout | None:
        """Return the view as (rows, columns), all axes but the last as rows (mshadow's FlatTo2D).

        None where the strides do not allow it.
        """
        columns = self.shape[-1] if self.shape else 1
        return self.reshape((prod(self.shape[:-1]), columns), 1)

    def overlaps(self, other: Layout, itemsize: int, other_itemsize: int) -> bool:
        """Return whether the two views may share a byte; never False when they do.

        Exact for extents and for interleaved views of equal step (the common divisor of all strides);
        otherwise it errs on the side of True.
        """
        low, high = self.extent(itemsize)
        other_low, other_high = other.extent(other_itemsize)
        if low == high or other_low == other_high or high <= other_low or other_high <= low:
            return False
        step = gcd(*_moving(self), *_moving(other))
        if step == 0:
            return True
        ahead, behind = (other_low - low) % step, (low - other_low) % step
        return ahead < itemsize or behind < other_itemsize

    # ---- views of it

    def broadcast_to(self, shape: Shape) -> Layout | None:
        """Return the view stretched to `shape` with zero strides, or None if it does not stretch."""
        missing = len(shape) - self.ndim
        if missing < 0:
            return None
        strides = [0] * missing
        for length, stride, wanted in zip(self.shape, self.strides, shape[missing:], strict=True):
            if length != wanted and length != 1:
                return None
            strides.append(stride if length == wanted else 0)
        return Layout(shape, tuple(strides), self.offset)

    def permute(self, axes: Sequence[int]) -> Layout:
        """Return the view with its axes in the given order."""
        return Layout(tuple(self.shape[a] for a in axes), tuple(self.strides[a] for a in axes), self.offset)

    def flip(self, axes: Iterable[int]) -> Layout:
        """Return the view with the given axes reversed."""
        strides, offset = list(self.strides), self.offset
        for axis in axes:
            offset += max(self.shape[axis] - 1, 0) * strides[axis]
            strides[axis] = -strides[axis]
        return Layout(self.shape, tuple(strides), offset)

    def insert(self, axes: Iterable[int]) -> Layout:
        """Return the view with axes of length 1 at the given positions of the result."""
        shape, strides = list(self.shape), list(self.strides)
        for axis in sorted(axes):
            shape.insert(axis, 1)
            strides.insert(axis, 0)
        return Layout(tuple(shape), tuple(strides), self.offset)

    def drop(self, axes: Iterable[int]) -> Layout:
        """Return the view without the given axes (of length 1)."""
        gone = set(axes)
        kept = [axis for axis in range(self.ndim) if axis not in gone]
        return self.permute(kept)

    def diagonal(self, offset: int) -> Layout:
        """Return the diagonals of the last two axes as one new last axis; offset > 0 lies above the main one."""
        (rows, columns), (down, right) = self.shape[-2:], self.strides[-2:]
        first_row, first_column = max(-offset, 0), max(offset, 0)
        length = max(min(rows - first_row, columns - first_column), 0)
        start = self.offset + (first_row * down + first_column * right if length else 0)
        return Layout((*self.shape[:-2], length), (*self.strides[:-2], down + right), start)

    def reshape(self, shape: Shape, itemsize: int) -> Layout | None:
        """Return the same elements in C order under another shape, or None where that needs a copy.

        `shape` has the same number of elements. NumPy's rule (no-copy reshape).
        """
        if self.size == 0:
            return Layout(shape, c_strides(shape, itemsize), self.offset)
        old = self.collapse()
        strides: list[int] = []
        pieces = list(zip(old.shape, old.strides, strict=True))
        room = 1  # how many elements of the current piece are still to be laid out
        stride = itemsize
        for length in reversed(shape):
            if length == 1:
                strides.append(stride)
                continue
            if room == 1:
                room, stride = pieces.pop()
            if room % length:
                return None
            strides.append(stride)
            room //= length
            stride *= length
        return Layout(shape, tuple(reversed(strides)), self.offset)

    def reinterpret(self, itemsize: int, new_itemsize: int) -> Layout | None:
        """Return the same bytes as elements of another size along the last axis, or None where they do not fit."""
        if itemsize == new_itemsize:
            return self
        contiguous = bool(self.shape) and (self.shape[-1] == 1 or self.strides[-1] == itemsize or 0 in self.shape)
        if not contiguous:
            return None
        last, rest = divmod(self.shape[-1] * itemsize, new_itemsize)
        return None if rest else Layout((*self.shape[:-1], last), (*self.strides[:-1], new_itemsize), self.offset)

    def index(self, key: tuple[Any, ...]) -> Layout:
        """Return the view a basic index selects: integers, slices, one Ellipsis and None in any order.

        Raises IndexError for too many indices, a second Ellipsis, or an integer out of range.
        """
        shape: list[int] = []
        strides: list[int] = []
        offset, axis = self.offset, 0
        plain = len(key) == len(self.shape) and all([type(item) in _PLAIN for item in key])
        for item in key if plain else _spelled_out(key, self.ndim):
            if item is None:
                shape.append(1)
                strides.append(0)
                continue
            length, stride = self.shape[axis], self.strides[axis]
            if isinstance(item, slice):
                start, stop, step = item.indices(length)
                count = len(range(start, stop, step))
                offset += start * stride if count else 0
                shape.append(count)
                strides.append(stride * step)
            else:
                offset += _position(item, length, axis) * stride
            axis += 1
        return Layout(tuple(shape), tuple(strides), offset)


_PLAIN = (slice, int)  # the items of a key that stand for exactly one axis


def _moving(layout: Layout) -> list[int]:
    return [abs(s) for n, s in zip(layout.shape, layout.strides, strict=True) if n > 1]


def _spelled_out(key: tuple[Any, ...], ndim: int) -> list[Any]:
    """Return the index with its Ellipsis replaced by whole slices, one item per axis or None."""
    used = sum(item is not None and item is not Ellipsis for item in key)
    if used > ndim:
        raise IndexError(expected("index", "key", f"have at most {ndim} indices", used))
    dots = [place for place, item in enumerate(key) if item is Ellipsis]
    if len(dots) > 1:
        raise IndexError(expected("index", "key", "have at most one Ellipsis", len(dots)))
    place = dots[0] if dots else len(key)
    return [*key[:place], *[slice(None)] * (ndim - used), *key[place + 1 :]]


def _position(item: Any, length: int, axis: int) -> int:
    position = index(item)
    if not -length <= position < length:
        must = f"be in [{-length}, {length}) for axis {axis}" if length else f"be absent: axis {axis} has size 0"
        raise IndexError(expected("index", "key", must, f"{position}, which is out of bounds"))
    return position + length if position < 0 else position


# ---- shapes


def c_strides(shape: Sequence[int], itemsize: int) -> Shape:
    """Return the strides of a packed C-order array."""
    return _packed_strides(shape, itemsize, range(len(shape) - 1, -1, -1))


def _packed_strides(shape: Sequence[int], itemsize: int, fastest_first: Iterable[int]) -> Shape:
    """Return the strides of a packed array with its axes in this order; axes left out get 0."""
    strides = [0] * len(shape)
    step = itemsize
    for axis in fastest_first:
        strides[axis] = step
        step *= max(shape[axis], 1)
    return tuple(strides)


@lru_cache(maxsize=1024)
def contiguous(shape: Shape, itemsize: int) -> Layout:
    """Return the layout of a packed C-order array; equal calls share one."""
    return Layout(shape, c_strides(shape, itemsize))


def dense_like(layout: Layout, itemsize: int) -> Layout:
    """Return a packed layout of the same shape whose axes keep the memory order of `layout` (NumPy's order="K")."""
    order = sorted(range(layout.ndim - 1, -1, -1), key=lambda axis: abs(layout.strides[axis]))
    return Layout(layout.shape, _packed_strides(layout.shape, itemsize, order))


def keep_order(shape: Shape, itemsize: int, operands: Sequence[Shape], axes: Sequence[int] = ()) -> Shape:
    """Return the strides of a new packed array for a result of operands with these strides over `shape`.

    The axes keep the operands' order in memory where they agree about it, else C order wins: NumPy's order="K", the
    rule of its iterator. axes: those that a reduction removes; they get stride 0.
    """
    order = _memory_order(len(shape), operands)
    return _packed_strides(shape, itemsize, [axis for axis in order if axis not in axes] if axes else order)


def _memory_order(ndim: int, operands: Sequence[Shape]) -> list[int]:
    """Return the axes, fastest first: an insertion sort that keeps C order where strides do not decide."""
    order: list[int] = []
    for axis in reversed(range(ndim)):
        place = len(order)
        for before in range(len(order) - 1, -1, -1):
            verdict = _is_faster(axis, order[before], operands)
            if verdict is None:
                continue
            if not verdict:
                break
            place = before
        order.insert(place, axis)
    return order


def _is_faster(axis: int, other: int, operands: Sequence[Shape]) -> bool | None:
    """Return whether an axis has smaller strides than another one; None if no operand has strides along both."""
    verdict: bool | None = None
    for strides in operands:
        if strides[axis] and strides[other]:
            if abs(strides[other]) <= abs(strides[axis]):
                return False
            verdict = True
    return verdict


def strides_over(layout: Layout, shape: Shape) -> Shape:
    """Return strides over a shape that a layout broadcasts to; 0 along axes of length 1 and where it repeats."""
    missing = len(shape) - len(layout.shape)
    kept = zip(layout.shape, layout.strides, shape[missing:], strict=True)
    return (0,) * missing + tuple([0 if n == 1 or n != wanted else stride for n, stride, wanted in kept])


def product_strides(shape: Shape, itemsize: int, first: Layout, second: Layout) -> Shape:
    """Return the strides of a matrix product: matrices in C order, other axes in the operands' order."""
    core = (len(first.shape) > 1) + (len(second.shape) > 1)
    lead = shape[: len(shape) - core]
    stacks = [Layout(one.shape[:-2], one.strides[:-2]) for one in (first, second)]
    return keep_order(shape, itemsize, [strides_over(one, lead) + (0,) * core for one in stacks])


def strides_reduced(layout: Layout, shape: Shape, axes: Sequence[int]) -> Shape:
    """Return the strides of a reduction's result over the operand's shape: 0 along the reduced axes."""
    return strides_over(layout if len(layout.shape) == len(shape) else layout.insert(axes), shape)


def broadcast_shapes(*shapes: Sequence[int]) -> Shape:
    """Return the shape the given shapes broadcast to.

    Raises ValueError when two lengths differ and neither is 1. Standard: Broadcasting; Manipulation Functions,
    broadcast_shapes.
    """
    if len(shapes) == 2 and shapes[0] == shapes[1]:
        return tuple(shapes[0])
    result: list[int] = []
    width = max((len(shape) for shape in shapes), default=0)
    for axis in range(-width, 0):
        length = 1
        for shape in shapes:
            if -axis <= len(shape) and shape[axis] != 1:
                if length not in (1, shape[axis]):
                    listed = " and ".join(str(tuple(shape)) for shape in shapes)
                    raise ValueError(f"shapes {listed} could not be broadcast together: {length} != {shape[axis]}")
                length = shape[axis]
        result.append(length)
    return tuple(result)


def as_shape(shape: Any, function: str, argument: str = "shape") -> Shape:
    """Return a shape given as an integer or a sequence of integers as a tuple of non-negative ints.

    Raises TypeError for anything but integers and ValueError for a negative or too large length.
    """
    if type(shape) is int and 0 <= shape < 1 << 60:
        return (shape,)
    if _is_plain(shape):
        return shape
    try:
        is_many = hasattr(shape, "__iter__") and getattr(shape, "ndim", 1) != 0
        given = tuple(cast(Any, shape)) if is_many else (shape,)
        lengths = tuple(index(length) for length in given)
    except TypeError:
        raise TypeError(expected(function, argument, "be an integer or a sequence of integers", repr(shape))) from None
    if any(length < 0 for length in lengths):
        raise ValueError(expected(function, argument, "not be negative", lengths))
    if prod(max(length, 1) for length in lengths) >= 1 << 60:
        raise ValueError(expected(function, argument, "have fewer than 2**60 elements", lengths))
    if len(lengths) > MAX_NDIM:
        raise ValueError(expected(function, argument, f"have at most {MAX_NDIM} axes", len(lengths)))
    return lengths


# The types of the items of a shape in the standard.
INT = frozenset((int,))


def _is_plain(shape: Any) -> TypeGuard[Shape]:
    """Return whether an argument is a shape as in the standard."""
    return type(shape) is tuple and INT.issuperset(map(type, shape)) and _is_shape(shape)


@lru_cache(maxsize=4096)  # a program has few shapes
def _is_shape(lengths: tuple[int, ...]) -> bool:
    """Return whether integers are lengths that `as_shape` takes."""
    return min(lengths, default=0) >= 0 and len(lengths) <= MAX_NDIM and prod([n or 1 for n in lengths]) < 1 << 60


def resolve_shape(shape: Any, size: int, function: str) -> Shape:
    """Return a target shape in which one length may be -1, standing for whatever makes `size` elements."""
    given = tuple(shape) if hasattr(shape, "__iter__") else (shape,)
    if -1 in given:
        place = given.index(-1)
        if given.count(-1) > 1:
            raise ValueError(expected(function, "shape", "not be negative, but for one -1", given))
        rest = as_shape(given[:place] + given[place + 1 :], function)
        known = prod(rest)
        if known == 0 or size % known:
            raise ValueError(expected(function, "shape", f"make {size} elements", given))
        return (*rest[:place], size // known, *rest[place:])
    lengths = as_shape(given, function)
    if prod(lengths) != size:
        raise ValueError(expected(function, "shape", f"make {size} elements", lengths))
    return lengths


def as_index(value: Any, function: str, argument: str) -> int:
    """Return an integer argument as an int; raises TypeError naming it."""
    try:
        return index(value)
    except TypeError:
        raise TypeError(expected(function, argument, "be an integer", repr(value))) from None


def as_axis(axis: Any, ndim: int, function: str, argument: str = "axis") -> int:
    """Return one axis as a non-negative int; raises TypeError or AxisError."""
    position = axis if type(axis) is int else as_index(axis, function, argument)
    if not -ndim <= position < ndim:
        must = f"be in [{-ndim}, {ndim})" if ndim else "be absent for 0 axes"
        raise AxisError(expected(function, argument, must, f"{position}, which is out of range"))
    return position + ndim if position < 0 else position


def as_axes(
    axis: Any, ndim: int, function: str, argument: str = "axis", *, none_is_all: bool = True
) -> tuple[int, ...]:
    """Return None (all axes), one axis or a sequence of axes as a tuple of distinct non-negative ints.

    Raises TypeError, AxisError, or ValueError when an axis is named twice.
    """
    if axis is None and none_is_all:
        return tuple(range(ndim))
    if not isinstance(axis, (tuple, list)):
        return (as_axis(axis, ndim, function, argument),)
    axes = tuple([as_axis(one, ndim, function, argument) for one in axis])
    if len(set(axes)) != len(axes):
        raise ValueError(expected(function, argument, "not name an axis twice", axis))
    return axes


def axes_of(axis: Any, ndim: int) -> tuple[int, ...]:
    """Return the axes that a reduction is over."""
    return tuple(range(ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis,)


def overlap(lengths: Shape, reach: Sequence[tuple[int, int]]) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Return the slices of a part, which may reach beyond an array, that lie inside, and the array's slices there."""
    target, source = [], []
    for length, (start, stop) in zip(lengths, reach, strict=True):
        first = max(start, 0)
        last = max(min(stop, length), first)
        target.append(slice(first - start, last - start))
        source.append(slice(first, last))
    return tuple(target), tuple(source)

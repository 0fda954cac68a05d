"""Advanced indexing on CuPy's arrays by NumPy's rules: what is out of bounds raises, and the last of several
values for one element stays.

A key is first brought into one form that leaves CuPy nothing to decide: a view whose first axes are indexed by arrays
of one shape.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np

from ..base.layout import Shape
from . import cuda_kernels as kernels
from .cuda_repairs import asarray, astype, within

Array = Any  # a cupy.ndarray


class Places(NamedTuple):
    """What a key selects: view[arrays], whose first axes, those of the arrays, then move to axis `at`.

    arrays: int64 of one shape, counted from either end. shape: that of the result. repeats: whether the arrays may
    name an element twice. sure: whether they are known to be inside. named: the key's own arrays, and their axes.
    """

    view: Array
    arrays: tuple[Array, ...]
    at: int
    shape: Shape
    repeats: bool
    sure: bool
    named: tuple[tuple[Array, int], ...]

    def checked(self, cp: Any) -> Places:
        """Return it with arrays counted from the start; raises IndexError where one is out of bounds, and waits."""
        own = [within(cp, one, n, axis) for n, (one, axis) in zip(self.view.shape, self.named, strict=False)]
        return self._replace(arrays=_broadcast(cp, own), sure=True)

    @property
    def axes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The arrays' axes in front, and where the result has them."""
        ndim = self.arrays[0].ndim
        return tuple(range(ndim)), tuple(range(self.at, self.at + ndim))


def places(cp: Any, x: Array, key: Any) -> Places:
    """Return what an advanced key selects; raises IndexError where it does not fit."""
    mask = _only_mask(x, key)
    if mask is not None and x.flags.c_contiguous:
        flat = kernels.selected(cp, asarray(cp, mask))
        if flat is not None:
            view = x.reshape(mask.size, *x.shape[mask.ndim :])
            return Places(view, (flat,), 0, (flat.size, *view.shape[1:]), False, True, ((flat, 0),))
    basic: list[Any] = []
    given: list[tuple[int, int, int, Any]] = []  # position in the key, axis of x, axis of the view, indices
    own = 0
    for position, item in enumerate(_spelled_out(cp, x, key if isinstance(key, tuple) else (key,))):
        if item is Ellipsis:  # it stands for no axes, but between others
            continue
        if isinstance(item, tuple):  # the indices of a boolean without axes: over a new one
            given.append((position, own, len(basic), item[0]))
        elif not isinstance(item, (slice, type(None))):
            given.append((position, own, len(basic), item))
            item = slice(None)
        basic.append(item if isinstance(item, slice) else None)
        own += isinstance(item, slice)
    view = x[tuple(basic)]
    axes = [axis for _, _, axis, _ in given]
    named = [(asarray(cp, one).astype(np.int64, copy=False), n) for _, n, _, one in given]
    arrays = _broadcast(cp, [one for one, _ in named])
    together = [position for position, *_ in given] == list(range(given[0][0], given[0][0] + len(given)))
    at = axes[0] if together else 0
    rest = [n for axis, n in enumerate(view.shape) if axis not in axes]
    shape = (*rest[:at], *arrays[0].shape, *rest[at:])
    items = key if isinstance(key, tuple) else (key,)
    repeats = any(hasattr(item, "dtype") and not _is_mask(item) for item in items)
    sure = all(item is None or item is Ellipsis or isinstance(item, slice) or _is_mask(item) for item in items)
    return Places(cp.moveaxis(view, axes, range(len(axes))), arrays, at, shape, repeats, sure, tuple(named))


def _spelled_out(cp: Any, x: Array, key: tuple[Any, ...]) -> list[Any]:
    """Return a key with a slice for every axis that an ellipsis stands for, and masks as arrays of indices."""
    named = sum(_axes_of(item) for item in key)
    if named > x.ndim:
        raise IndexError(f"too many indices for array: array is {x.ndim}-dimensional, but {named} were indexed")
    if not any(item is Ellipsis for item in key):
        key = (*key, Ellipsis)
    found: list[Any] = []
    axis = 0
    for item in key:
        if item is Ellipsis:
            found += [slice(None)] * (x.ndim - named) or [Ellipsis]
            axis += x.ndim - named
        elif _is_mask(item):
            found += _indices(cp, x, asarray(cp, item), axis)
            axis += _axes_of(item)
        else:
            found.append(item)
            axis += _axes_of(item)
    return found


def _axes_of(item: Any) -> int:
    """Return how many axes an item of a key takes."""
    if item is None or item is Ellipsis:
        return 0
    return int(np.ndim(item) if isinstance(item, (bool, np.bool_)) else item.ndim) if _is_mask(item) else 1


def _is_mask(item: Any) -> bool:
    return isinstance(item, (bool, np.bool_)) or getattr(item, "dtype", None) == np.bool_


def _indices(cp: Any, x: Array, mask: Array, axis: int) -> list[Any]:
    for place, (own, length) in enumerate(zip(mask.shape, x.shape[axis:], strict=False)):
        if own not in (length, 0):
            text = f"boolean index did not match indexed array along axis {axis + place}; size of axis is"
            raise IndexError(f"{text} {length} but size of corresponding boolean axis is {own}")
    return list(cp.nonzero(mask)) if mask.ndim else [(cp.zeros(int(mask), np.int64),)]


def _broadcast(cp: Any, arrays: list[Array]) -> tuple[Array, ...]:
    try:
        return tuple(cp.broadcast_arrays(*arrays))
    except ValueError:
        shapes = "".join(str(a.shape).replace(" ", "") + " " for a in arrays)
        text = "shape mismatch: indexing arrays could not be broadcast together with shapes"
        raise IndexError(f"{text} {shapes}") from None


def get(cp: Any, x: Array, key: Any) -> Array:
    """Return a copy of what an advanced key selects."""
    mask = _only_mask(x, key)
    made = kernels.selected(cp, asarray(cp, mask), x) if mask is not None and mask.ndim == x.ndim else None
    if made is not None:
        return made
    found = places(cp, x, key)
    try:
        made = kernels.gather(cp, found.view, found.arrays, found.at, found.shape, sure=found.sure)
    except IndexError:
        found.checked(cp)  # which says where
        raise
    if made is not None:
        return made
    found = found.checked(cp)
    return cp.moveaxis(found.view[found.arrays], *found.axes)


def _only_mask(x: Array, key: Any) -> Any:
    """Return the one mask over x's first axes that a key is, None where it is something else."""
    items = key if isinstance(key, tuple) else (key,)
    mask = items[0] if len(items) == 1 and _is_mask(items[0]) else None
    fits = mask is not None and np.ndim(mask) and tuple(mask.shape) == x.shape[: mask.ndim]
    return mask if fits else None


def put(cp: Any, x: Array, key: Any, value: Array) -> None:
    """Assign an array or an array of one number to what an advanced key selects."""
    mask = _only_mask(x, key)
    if mask is not None and value.size == 1 and value.ndim < 2:  # of a mask it need not be known how much it selects
        mask = asarray(cp, mask)
        cp.copyto(
            x, astype(cp, value.reshape(()), x.dtype), where=mask.reshape(mask.shape + (1,) * (x.ndim - mask.ndim))
        )
        return
    found = places(cp, x, key)
    if _scattered(cp, found, value):
        return
    found = found.checked(cp)
    arrays, value = found.arrays, _as_rows(cp, found, value)
    if found.repeats and arrays[0].size > 1:
        flat = _flat(cp, found)
        order = cp.argsort(flat)
        kept = cp.concatenate([flat[order][1:] != flat[order][:-1], cp.ones(1, np.bool_)])
        chosen = order[kept]
        arrays, value = tuple(a.reshape(-1)[chosen] for a in arrays), value[chosen]
    else:
        arrays = tuple(a.reshape(-1) for a in arrays)
    found.view[arrays] = value


def _scattered(cp: Any, found: Places, value: Array) -> bool:
    """Assign by a kernel; return whether there is one."""
    if not np.can_cast(value.dtype, found.view.dtype, "same_kind") and value.dtype.kind == "c":
        return False
    value = cp.broadcast_to(_trimmed(found, astype(cp, value, found.view.dtype, copy=False)), found.shape)
    given = {"sure": found.sure, "repeats": found.repeats and found.arrays[0].size > 1}
    try:
        return kernels.scatter(cp, found.view, found.arrays, found.at, value, **given)
    except IndexError:
        found.checked(cp)  # which says where
        raise


def add(cp: Any, x: Array, key: Any, value: Array) -> None:
    """Add values to what an advanced key selects, those of one element in a fixed order.

    CuPy's own adds with atomics, in no order, and its reduceat subtracts running sums, which loses digits.
    """
    found = places(cp, x, key)
    rows = _as_rows(cp, found, value)
    try:
        if kernels.add(cp, found.view, found.arrays, rows, sure=found.sure):
            return
    except IndexError:
        found.checked(cp)  # which says where
        raise
    found = found.checked(cp)
    if not rows.size:
        return
    flat = _flat(cp, found)
    order = cp.argsort(flat)
    flat, rows = flat[order], rows[order].copy()
    first = cp.concatenate([cp.ones(1, np.bool_), flat[1:] != flat[:-1]])
    heads = cp.nonzero(first)[0]
    number = cp.arange(flat.size) - heads[cp.cumsum(first) - 1]
    longest, step = int(number.max()), 1
    while step <= longest:
        both = (flat[step:] == flat[:-step]) & (number[:-step] % (2 * step) == 0)
        beside = both.reshape(-1, *[1] * (rows.ndim - 1))
        rows[:-step] = cp.where(beside, rows[:-step] + rows[step:], rows[:-step])
        step *= 2
    arrays = tuple(a.reshape(-1)[order][heads] for a in found.arrays)
    found.view[arrays] = found.view[arrays] + rows[heads]


def _flat(cp: Any, found: Places) -> Array:
    """Return one number for each element that the arrays name."""
    flat = cp.zeros((), np.int64)
    for a, length in zip(found.arrays, found.view.shape, strict=False):
        flat = flat * length + a
    return flat.reshape(-1)


def _as_rows(cp: Any, found: Places, value: Array) -> Array:
    """Return a value, stretched to what a key selects, as rows of what lies at each index."""
    front, own = found.axes
    moved = cp.moveaxis(cp.broadcast_to(_trimmed(found, value), found.shape), own, front)
    count = prod(found.arrays[0].shape)
    return moved.reshape(count, *moved.shape[len(front) :])


def _trimmed(found: Places, value: Array) -> Array:
    """Return a value without leading axes of length 1 beyond those of what a key selects."""
    extra = value.ndim - len(found.shape)
    return value.reshape(value.shape[extra:]) if extra > 0 else value

"""Layout's algebra against NumPy: every view has the shape, strides and offset NumPy's view of the same array has."""

from __future__ import annotations

import random
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from xtensor.base.layout import (
    Layout,
    as_axes,
    as_axis,
    as_shape,
    broadcast_shapes,
    c_strides,
    contiguous,
    dense_like,
    resolve_shape,
)

SHAPES = [(), (1,), (5,), (0,), (3, 4), (4, 1), (0, 3), (2, 0, 3), (2, 3, 4), (1, 3, 1), (2, 2, 3, 2)]


def layout_of(view: np.ndarray, base: np.ndarray) -> Layout:
    """Return where a NumPy view lies in its base."""
    return Layout(view.shape, view.strides, view.__array_interface__["data"][0] - base.__array_interface__["data"][0])


def array_of(layout: Layout, base: np.ndarray) -> np.ndarray:
    """Return the ground truth of a layout: the elements it names in a base."""
    return np.ndarray(layout.shape, base.dtype, base, layout.offset if layout.size else 0, layout.strides)


def assert_same_view(layout: Layout, view: np.ndarray, base: np.ndarray) -> None:
    assert layout.shape == view.shape
    if view.size:  # the strides of axes of length 1 and all of an empty view mean nothing
        theirs = layout_of(view, base)
        moving = [axis for axis, n in enumerate(view.shape) if n > 1]
        assert layout.offset == theirs.offset
        assert [layout.strides[a] for a in moving] == [theirs.strides[a] for a in moving]
        np.testing.assert_array_equal(array_of(layout, base), view)


def base_of(shape: tuple[int, ...], dtype: str = "int32") -> np.ndarray:
    return np.arange(np.prod(shape, dtype=int), dtype=dtype).reshape(shape)


def random_view(rng: random.Random, base: np.ndarray) -> np.ndarray:
    """Return a view reached by a few slices, transposes, flips and stretches."""
    view = base
    for _ in range(rng.randint(0, 3)):
        kind = rng.randrange(4)
        if kind == 0 and view.ndim:
            step = rng.choice([1, 2, 3, -1, -2])
            axis = rng.randrange(view.ndim)
            low, high = sorted(rng.choices(range(view.shape[axis] + 1), k=2))
            view = view[(slice(None),) * axis + (slice(low, high),)][(slice(None),) * axis + (slice(None, None, step),)]
        elif kind == 1:
            view = view.transpose(rng.sample(range(view.ndim), view.ndim))
        elif kind == 2 and view.ndim < 4:
            view = view[(slice(None),) * rng.randint(0, view.ndim) + (None,)]
        elif kind == 3 and view.ndim < 4:
            view = np.broadcast_to(view, (rng.randint(1, 3), *view.shape))
    return view


# ---- views


@pytest.mark.parametrize("shape", SHAPES)
def test_contiguous(shape: tuple[int, ...]) -> None:
    base = base_of(shape)
    layout = contiguous(shape, 4)
    assert_same_view(layout, base, base)
    assert layout.is_contiguous(4) and layout.is_dense(4)
    assert layout.size == base.size and layout.ndim == base.ndim
    assert layout.extent(4) == (0, base.nbytes)


KEYS: list[tuple[Any, ...]] = [
    (),
    (...,),
    (None,),
    (0,),
    (-1,),
    (slice(None),),
    (slice(1, None), ...),
    (..., slice(None, None, -1)),
    (slice(None, None, -2), None, ..., None),
    (..., -1),
    (None, slice(5, 0, -3)),
    (slice(-100, 100, 2),),
    (slice(100, -100, -1),),
    (slice(3, 1),),
    (0, ..., None),
    (slice(None), 1, ..., slice(None, None, 2)),
    (np.int64(1), ...),
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("key", KEYS, ids=str)
def test_index(shape: tuple[int, ...], key: tuple[Any, ...]) -> None:
    base = base_of(shape)
    try:
        view = base[key if any(k is Ellipsis for k in key) else (*key, ...)]
    except IndexError:
        with pytest.raises(IndexError, match="^index: key must "):
            contiguous(shape, 4).index(key)
    else:
        assert_same_view(contiguous(shape, 4).index(key), view, base)


def test_index_again() -> None:
    # a view of a view of a view: offsets add up, steps multiply
    base = base_of((6, 7, 5))
    layout, view = contiguous((6, 7, 5), 4), base
    for key in [
        (slice(5, None, -1), slice(1, 6)),
        (..., slice(None, None, -2)),
        (slice(1, 5, 2), slice(3, None, -1)),
        (1,),
    ]:
        layout, view = layout.index(key), view[key]
        assert_same_view(layout, view, base)


@pytest.mark.parametrize("shape", [s for s in SHAPES if len(s) <= 3])
def test_permute_flip_insert_drop(shape: tuple[int, ...]) -> None:
    base = base_of(shape)
    whole = contiguous(shape, 4)
    for axes in permutations(range(len(shape))):
        assert_same_view(whole.permute(axes), base.transpose(axes), base)
        some = axes[: len(axes) // 2 + 1]
        if some:
            assert_same_view(whole.flip(some), np.flip(base, some), base)
    for axes in [(0,), (len(shape),), (0, len(shape) + 1)]:
        assert_same_view(whole.insert(axes), np.expand_dims(base, axes), base)
    ones = tuple(a for a, n in enumerate(shape) if n == 1)
    assert_same_view(whole.drop(ones), np.squeeze(base, ones), base)


@pytest.mark.parametrize("shape", [(3, 4), (4, 3), (2, 3, 3), (1, 5), (0, 3), (2, 0, 3)])
@pytest.mark.parametrize("offset", range(-5, 6))
def test_diagonal(shape: tuple[int, ...], offset: int) -> None:
    base = base_of(shape)
    whole = contiguous(shape, 4)
    assert_same_view(whole.diagonal(offset), np.linalg.diagonal(base, offset=offset), base)
    assert_same_view(whole.flip((0,)).diagonal(offset), np.linalg.diagonal(np.flip(base, 0), offset=offset), base)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("target", [(), (5,), (3, 4), (2, 3, 4), (4, 4), (7, 0, 3), (2, 1, 3, 5), (4, 0), (2, 5)])
def test_broadcast_to(shape: tuple[int, ...], target: tuple[int, ...]) -> None:
    base = base_of(shape)
    layout = contiguous(shape, 4).broadcast_to(target)
    try:
        view = np.broadcast_to(base, target)
    except ValueError:
        assert layout is None
    else:
        assert layout is not None
        assert_same_view(layout, view, base)
        # no two indices of an empty view name the same memory: there are none
        repeats = view.size > len({int(element) for element in view.flat})
        assert layout.may_repeat() == repeats


def test_random_views_of_random_views() -> None:
    rng = random.Random(5)
    base = base_of((3, 4, 5))
    for _ in range(500):
        view = random_view(rng, base)
        layout = layout_of(view, base)
        order = rng.sample(range(view.ndim), view.ndim)
        assert_same_view(layout.permute(order), view.transpose(order), base)
        assert_same_view(layout.flip(order[:2]), np.flip(view, order[:2]), base)
        np.testing.assert_array_equal(array_of(layout.collapse(), base).ravel(), view.ravel())


# ---- reshape: a view exactly where NumPy makes one


def numpy_reshape(view: np.ndarray, shape: tuple[int, ...]) -> np.ndarray | None:
    try:
        return np.reshape(view, shape, copy=False)
    except ValueError:
        return None


def factorisations(size: int, axes: int) -> list[tuple[int, ...]]:
    return [s for s in product(range(size + 1), repeat=axes) if np.prod(s, dtype=int) == size]


def test_reshape_decides_as_numpy() -> None:
    rng = random.Random(1)
    base = base_of((4, 3, 4))
    views = copies = 0
    for _ in range(700):
        view = random_view(rng, base)
        targets = [s for axes in range(4) for s in factorisations(view.size, axes)] if view.size <= 12 else []
        divisors = [d for d in range(1, view.size + 1) if view.size % d == 0]
        targets += [(d, view.size // d) for d in divisors] + [(view.size,)]
        targets += [view.shape, (*view.shape, 1), (1, *view.shape), view.shape[::-1]]
        for target in rng.sample(targets, min(len(targets), 12)):
            theirs = numpy_reshape(view, target)
            ours = layout_of(view, base).reshape(target, 4)
            assert (ours is None) == (theirs is None), (view.shape, view.strides, target)
            if ours is None or theirs is None:
                copies += 1
            else:
                views += 1
                assert_same_view(ours, theirs, base)
    assert views > 300 and copies > 300  # both answers are really asked for


def test_reshape_after_merging_axes() -> None:
    # (2, 3, 4) with the last two axes of one step: merges there, not across the gap of the first
    base = base_of((4, 3, 4))
    layout = layout_of(base[::2], base)
    merged = layout.reshape((2, 12), 4)
    assert merged is not None and merged.strides == (96, 4)
    assert layout.reshape((6, 4), 4) is None
    assert layout.reshape((24,), 4) is None


def test_flat_2d() -> None:
    rng = random.Random(2)
    base = base_of((3, 4, 5))
    for _ in range(300):
        view = random_view(rng, base)
        columns = view.shape[-1] if view.ndim else 1
        rows = int(np.prod(view.shape[:-1]))
        theirs = numpy_reshape(view, (rows, columns))
        ours = layout_of(view, base).flat_2d()
        assert (ours is None) == (theirs is None), (view.shape, view.strides)
        if ours is not None and theirs is not None:
            assert_same_view(ours, theirs, base)


# ---- what a layout looks like


def test_is_contiguous_as_numpy() -> None:
    rng = random.Random(3)
    base = base_of((3, 4, 5))
    for _ in range(500):
        view = random_view(rng, base)
        assert layout_of(view, base).is_contiguous(4) == view.flags.c_contiguous, (view.shape, view.strides)
        assert layout_of(view, base).is_dense(4) == is_dense(view), (view.shape, view.strides)


def is_dense(view: np.ndarray) -> bool:
    """The definition: some order of the axes is packed."""
    return any(view.transpose(axes).flags.c_contiguous for axes in permutations(range(view.ndim)))


@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 3, 4, 5), (2, 3, 4, 5, 2), (1, 3, 4, 5), (2, 1, 3, 3), (2, 3, 1, 1)])
def test_is_channels_last(shape: tuple[int, ...]) -> None:
    # the definition: with the channels moved to the end the view is packed
    for order in permutations(range(len(shape))):
        made = base_of(tuple(shape[a] for a in order)).transpose(np.argsort(order))
        assert made.shape == shape
        layout = Layout(made.shape, made.strides)
        assert layout.is_channels_last(4) == np.moveaxis(made, 1, -1).flags.c_contiguous
    gap = np.moveaxis(base_of((*shape[:1], *shape[2:], 2 * shape[1]))[..., ::2], -1, 1)
    assert gap.shape == shape
    assert Layout(gap.shape, gap.strides).is_channels_last(4) == np.moveaxis(gap, 1, -1).flags.c_contiguous


@pytest.mark.parametrize("shape", [(), (3,), (3, 4), (1,) * 6])
def test_channels_last_needs_3_to_5_axes(shape: tuple[int, ...]) -> None:
    assert not contiguous(shape, 4).is_channels_last(4)


def test_extent_names_the_outermost_bytes() -> None:
    rng = random.Random(4)
    base = base_of((3, 4, 5))
    start = base.__array_interface__["data"][0]
    for _ in range(300):
        view = random_view(rng, base)
        if view.size:
            low, high = np.lib.array_utils.byte_bounds(view)
            assert layout_of(view, base).extent(4) == (low - start, high - start)
        else:
            low, high = layout_of(view, base).extent(4)
            assert low == high


def test_dense_like_keeps_the_order_of_axes() -> None:
    # what NumPy's order="K" does; positive strides even for reversed axes
    rng = random.Random(6)
    base = base_of((3, 4, 5))
    for _ in range(400):
        view = random_view(rng, base)
        ours, theirs = dense_like(layout_of(view, base), 4), np.copy(view, order="K")
        assert ours.shape == theirs.shape and ours.is_dense(4)
        if view.size:
            moving = [a for a, n in enumerate(view.shape) if n > 1]
            assert [ours.strides[a] for a in moving] == [theirs.strides[a] for a in moving], (view.shape, view.strides)


# ---- overlap


def test_overlaps_is_never_a_false_no() -> None:
    rng = random.Random(7)
    base = base_of((3, 4, 5))
    shared = apart = 0
    for _ in range(3000):
        a, b = random_view(rng, base), random_view(rng, base)
        if rng.random() < 0.3 and a.ndim and b.ndim:
            a, b = a[::2], b[1::2]  # interleaved views are the hard case
        first, second = layout_of(a, base), layout_of(b, base)
        truth = np.shares_memory(a, b)
        assert first.overlaps(second, 4, 4) >= truth, (first, second)
        assert first.overlaps(second, 4, 4) == second.overlaps(first, 4, 4), (first, second)
        shared, apart = shared + truth, apart + (not first.overlaps(second, 4, 4))
    assert shared > 300 and apart > 300


def test_overlaps_of_different_itemsizes() -> None:
    rng = random.Random(8)
    memory = np.zeros(64, np.uint8)
    for _ in range(3000):
        views = []
        for _ in range(2):
            dtype = np.dtype(rng.choice(["u1", "u2", "u4", "u8"]))
            step, length = rng.choice([-12, -8, -3, 1, 2, 4, 5, 8, 16]), rng.randint(1, 4)
            low = -min((length - 1) * step, 0)
            high = 64 - dtype.itemsize - max((length - 1) * step, 0)
            views.append((dtype, Layout((length,), (step,), rng.randint(low, high))))
        (dtype, a), (other, b) = views
        first, second = (np.ndarray(x.shape, d, memory, x.offset, x.strides) for d, x in views)
        assert a.overlaps(b, dtype.itemsize, other.itemsize) >= np.shares_memory(first, second), (dtype, a, other, b)


def test_overlaps_knows_what_lies_apart() -> None:
    base = base_of((8, 8))
    even, odd, whole = (layout_of(v, base) for v in (base[:, ::2], base[:, 1::2], base))
    assert not even.overlaps(odd, 4, 4)
    assert not layout_of(base[:4], base).overlaps(layout_of(base[4:], base), 4, 4)
    assert whole.overlaps(even, 4, 4)
    assert not layout_of(base[:0], base).overlaps(whole, 4, 4)


def test_collapse_leaves_few_axes() -> None:
    base = base_of((2, 3, 4, 5))
    assert contiguous(base.shape, 4).collapse() == Layout((120,), (4,))
    assert layout_of(base[:, :2], base).collapse() == Layout((2, 40), (240, 4))
    assert layout_of(base[:1, :1, :1, :1], base).collapse() == Layout((), ())
    assert layout_of(np.broadcast_to(base[0, 0, 0, 0, ...], (3, 4)), base).collapse() == Layout((12,), (0,))


# ---- shapes and axes


@pytest.mark.parametrize("shape", SHAPES)
def test_c_strides(shape: tuple[int, ...]) -> None:
    theirs = np.empty(shape, "f8")
    if theirs.size:
        assert np.array_equal(c_strides(shape, 8), theirs.strides)
    assert as_strided(np.zeros(1), shape, c_strides(shape, 8)).flags.c_contiguous


@pytest.mark.parametrize(
    "shapes",
    [((),), (), ((3,), (3,)), ((3, 1), (4,)), ((0,), (1,)), ((2, 1, 3), (5, 1), ()), ((0, 1), (1, 4)), ((1,), (0, 1))],
)
def test_broadcast_shapes(shapes: tuple[tuple[int, ...], ...]) -> None:
    assert broadcast_shapes(*shapes) == np.broadcast_shapes(*shapes)


@pytest.mark.parametrize("shapes", [((3,), (4,)), ((0,), (2,)), ((2, 3), (3, 2)), ((1, 2), (3,), (2, 2))])
def test_broadcast_shapes_refuses(shapes: tuple[tuple[int, ...], ...]) -> None:
    with pytest.raises(ValueError, match="could not be broadcast together"):
        broadcast_shapes(*shapes)


def test_as_shape() -> None:
    assert as_shape(3, "f") == (3,)
    assert as_shape([2, np.int64(3)], "f") == (2, 3)
    assert as_shape((), "f") == ()
    assert as_shape(range(3), "f") == (0, 1, 2)


@pytest.mark.parametrize(
    ("shape", "error"),
    [((2, -1), ValueError), (2.0, TypeError), ("3", TypeError), ((1.5,), TypeError), ((1 << 62,), ValueError)]
    + [((1 << 40, 1 << 40), ValueError), ((1,) * 65, ValueError), (None, TypeError), ((1 << 70, 0), ValueError)],
)
def test_as_shape_refuses(shape: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="^f: shape must "):
        as_shape(shape, "f")


def test_resolve_shape() -> None:
    assert resolve_shape((2, -1), 6, "f") == (2, 3)
    assert resolve_shape(-1, 6, "f") == (6,)
    assert resolve_shape((0, 5), 0, "f") == (0, 5)
    for shape, size in [((2, -1), 5), ((-1, -1), 4), ((-1, 0), 0), ((4,), 5), ((-2, -3), 6)]:
        with pytest.raises(ValueError, match="^f: shape must "):
            resolve_shape(shape, size, "f")


def test_axes() -> None:
    assert as_axis(-1, 3, "f") == 2
    assert as_axes(None, 3, "f") == (0, 1, 2)
    assert as_axes((-1, 0), 3, "f") == (2, 0)
    for axis, error in [(3, IndexError), (-4, ValueError), (1.0, TypeError), ("0", TypeError)]:
        with pytest.raises(error, match="^f: axis must "):
            as_axis(axis, 3, "f")
    with pytest.raises(ValueError, match="^f: axis must not name an axis twice"):
        as_axes((0, -3), 3, "f")

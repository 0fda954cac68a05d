"""Storage and TBlob: memory only when needed, TensorImpl's resize rules, versions, and the barrier before writes."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import xtensor as xt
from xtensor.base.layout import Layout, contiguous
from xtensor.devices import as_device
from xtensor.storage.blob import TBlob
from xtensor.storage.storage import Storage

CPU = as_device("cpu", "tests")
F4 = np.dtype("float32")


def empty(*shape: int) -> TBlob:
    return TBlob.empty(shape, F4, CPU)


def filled(*shape: int) -> TBlob:
    blob = empty(*shape)
    blob.native()[...] = np.arange(blob.nbytes // 4).reshape(shape)
    return blob


# ---- memory when it is needed


def test_allocated_when_first_needed() -> None:
    blob = empty(1000, 1000)
    assert not blob.owner.is_allocated
    # what it looks like and views of it need no memory
    assert blob.shape == (1000, 1000) and blob.nbytes == 4_000_000 and blob.is_contiguous
    view = blob.view(blob.layout.flip((0,)))
    assert blob.layout.flat_2d() is not None and blob.shallow_copy().detach().shape == blob.shape
    assert not blob.owner.is_allocated
    view.native()[...] = 1
    assert blob.owner.is_allocated and float(blob.native()[0, 0]) == 1


def test_a_tensor_is_allocated_when_first_needed() -> None:
    x = xt.empty((100, 100))
    y = xt.permute_dims(xt.reshape(x, (50, 200)), (1, 0))[::2]
    assert not x.blob.owner.is_allocated
    y[...] = 3
    assert x.blob.owner.is_allocated and x.blob.owner is y.blob.owner


def test_allocations_are_aligned() -> None:
    for shape in [(1,), (3, 5), (1000,)]:
        assert empty(*shape).native().ctypes.data % 64 == 0


@pytest.mark.parametrize(
    "make", [lambda s: xt.empty(s).evaluate().native(), xt.zeros, xt.ones, lambda s: xt.full(s, 2.5)]
)
@pytest.mark.parametrize("shape", [(1 << 50,), (1 << 20, 1 << 20, 1 << 18), 1 << 45])
def test_no_room(make: Callable[[Any], Any], shape: Any) -> None:
    with pytest.raises(MemoryError, match=r"^(empty|zeros|ones|full): shape must fit into memory, got "):
        make(shape)


@pytest.mark.parametrize("which", ["packed", "read-only", "strided", "empty", "complex"])
def test_addresses_are_those_of_the_memory(which: str) -> None:
    native = {
        "packed": np.arange(6.0),
        "read-only": np.arange(6.0),
        "strided": np.arange(24.0).reshape(4, 6)[::-2, 1:],
        "empty": np.ones((0, 3)),
        "complex": np.ones((2, 3), np.complex64),
    }[which]
    native.flags.writeable = which != "read-only"
    blob = TBlob.adopt(native, CPU)
    if which != "empty":
        assert blob.address == native.ctypes.data
    assert blob.owner.address == blob.owner.bytes.ctypes.data


def test_native_is_one_array() -> None:
    blob = filled(3, 4)
    assert blob.native() is blob.native()


def test_adopt_makes_no_buffer_before_it_is_asked_for() -> None:
    native = np.arange(12.0).reshape(3, 4)[:, ::-1]
    blob = TBlob.adopt(native, CPU)
    assert blob.native() is native and blob.shape == (3, 4) and blob.nbytes == 96
    assert blob.layout.strides == native.strides
    np.testing.assert_array_equal(blob.view(blob.layout).native(), native)
    assert np.shares_memory(blob.view(blob.layout).native(), native)
    assert not blob.owner.shared and TBlob.adopt(native, CPU, shared=True).owner.shared


def test_adopted_memory_outlives_its_array() -> None:
    blob = TBlob.adopt(np.arange(100_000.0)[::-2], CPU)
    copy = blob.view(blob.layout.flip((0,)))
    del blob
    gc.collect()
    np.testing.assert_array_equal(copy.native(), np.arange(100_000.0)[::-2][::-1])


def test_adopted_read_only_stays_so() -> None:
    native = np.arange(4.0)
    native.flags.writeable = False
    blob = TBlob.adopt(native, CPU)
    assert not blob.writeable
    assert not blob.view(blob.layout, writeable=True).writeable
    assert not blob.view(blob.layout).native().flags.writeable


def test_views_share_and_see_writes() -> None:
    blob = filled(4, 6)
    view = blob.view(blob.layout.index((slice(None, None, -2), slice(1, 4))))
    np.testing.assert_array_equal(view.native(), blob.native()[::-2, 1:4])
    view.native()[...] = -1
    assert (blob.native()[1::2, 1:4] == -1).all()


def test_flat_2d() -> None:
    blob = filled(2, 3, 4)
    flat = blob.layout.flat_2d()
    assert flat is not None and flat.shape == (6, 4)
    assert blob.layout.permute((1, 0, 2)).flat_2d() is None
    assert empty().layout.flat_2d().shape == (1, 1)  # type: ignore[union-attr]


# ---- resize


def test_resize_within_capacity_keeps_memory_and_contents() -> None:
    blob = filled(4, 6)
    buffer = blob.owner
    for shape in [(2, 3), (24,), (), (0, 5), (3, 8)]:
        blob.resize(shape)
        assert blob.owner is buffer and blob.shape == shape and blob.is_contiguous
        np.testing.assert_array_equal(blob.native().ravel(), np.arange(np.prod(shape, dtype=int)))


def test_resize_beyond_capacity_moves_to_new_memory() -> None:
    blob = filled(4)
    old = blob.owner
    blob.resize((5,))
    assert blob.owner is not old and not blob.owner.is_allocated and blob.owner.nbytes == 20
    blob.resize(2)  # and has the new capacity from now on
    grown = blob.owner
    blob.resize((5, 1))
    assert blob.owner is grown


def test_resize_gives_memory_back_unless_kept() -> None:
    blob = filled(4, 6)
    old = blob.owner
    blob.resize((6, 4), keep_on_shrink=False)  # equal size: nothing to give back
    assert blob.owner is old
    blob.resize((2, 3), keep_on_shrink=False)
    assert blob.owner is not old and blob.owner.nbytes == 24


def test_resize_leaves_other_views_their_memory() -> None:
    blob = filled(4)
    view, copy = blob.view(blob.layout.flip((0,))), blob.shallow_copy()
    blob.resize((100,))
    blob.native()[...] = -1
    np.testing.assert_array_equal(view.native(), [3, 2, 1, 0])
    np.testing.assert_array_equal(copy.native(), [0, 1, 2, 3])
    assert view.owner is copy.owner is not blob.owner


def test_resize_of_a_view_starts_at_its_first_byte() -> None:
    # As PyTorch's resize_: sizes change, storage and offset stay; the view's strides are gone
    blob = filled(6)
    view = blob.view(blob.layout.index((slice(4, 1, -1),)))
    view.resize((2, 2))
    np.testing.assert_array_equal(view.native(), [[2, 3], [4, 5]])
    assert blob.shape == (6,)


def test_resize_refuses() -> None:
    blob = filled(4)
    with pytest.raises(RuntimeError, match="^resize: blob must not be a detached copy"):
        blob.detach().resize((2,))
    with pytest.raises(ValueError, match="^resize: blob must be writable"):
        blob.view(blob.layout, writeable=False).resize((2,))
    for shape, error in [((-1,), ValueError), ((1.5,), TypeError), ("4", TypeError), ((1 << 61,), ValueError)]:
        with pytest.raises(error, match="^resize: shape must "):
            blob.resize(shape)
    assert blob.shape == (4,) and blob.native().tolist() == [0, 1, 2, 3]


# ---- copies of the metadata


def test_shallow_copy_and_detach() -> None:
    blob = filled(2, 3)
    copy, detached = blob.shallow_copy(), blob.detach()
    for one in (copy, detached):
        assert one is not blob and one.owner is blob.owner and one.layout == blob.layout
    blob.native()[0, 0] = 9
    assert copy.native()[0, 0] == detached.native()[0, 0] == 9
    copy.resize((6,))
    assert blob.shape == (2, 3) and copy.shape == (6,)
    assert detached.detached and not copy.detached and not blob.detached


def test_copies_of_a_detached_copy() -> None:
    # the ancestor's rule is about one object: a shallow copy of it may change again
    again = filled(4).detach().shallow_copy()
    again.resize((2,))
    assert again.shape == (2,)


def test_a_detached_tensor_shares_memory() -> None:
    x = xt.arange(4)
    y = x.detach()
    y[0] = 7
    assert x.tolist() == [7, 1, 2, 3]
    with pytest.raises(RuntimeError, match="^resize: "):
        y.blob.resize((2,))


# ---- versions


def set_view(x: xt.Tensor) -> None:
    x[1:, ::-1][0, ...] = 2


def add_to_view(x: xt.Tensor) -> None:
    part = xt.reshape(xt.permute_dims(x, (1, 0))[1], (2, 2))
    part += 1


def set_unstacked(x: xt.Tensor) -> None:
    xt.unstack(x)[2][...] = x[0]


def multiply_matrix(x: xt.Tensor) -> None:
    x @= xt.eye(4)


def write_outside(x: xt.Tensor) -> None:
    np.asarray(x)[0, 0] = 1


WRITES: dict[str, Callable[[xt.Tensor], Any]] = {
    "basic": lambda x: x.__setitem__((0, slice(1, 3)), 5),
    "element": lambda x: x.__setitem__((0, 0), 5),
    "ellipsis": lambda x: x.__setitem__(..., 0),
    "mask": lambda x: x.__setitem__(x > 3, 0),
    "integers": lambda x: x.__setitem__(([0, 1], [2, 2]), 0),
    "own view": lambda x: x.__setitem__(slice(None, None, -1), x),
    "view": set_view,
    "add to view": add_to_view,
    "unstacked": set_unstacked,
    "diagonal": lambda x: xt.linalg.diagonal(x).__setitem__(..., 0),
    "matmul": multiply_matrix,
    "detached": lambda x: x.detach().__setitem__(0, 3),
    **{sign: lambda x, name=f"__{sign}__": getattr(x, name)(2) for sign in ("iadd", "isub", "imul", "ipow")},
    **{sign: lambda x, name=f"__{sign}__": getattr(x, name)(2) for sign in ("itruediv", "ifloordiv", "imod")},
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
@pytest.mark.parametrize("lazy", ["auto", "always", "never"])
def test_every_write_counts(write: Callable[[xt.Tensor], Any], lazy: Any) -> None:
    with xt.options(lazy=lazy):
        x = xt.reshape(xt.arange(16.0), (4, 4))
        whole, column = x[...], x[:, 0]
        before = x.version
        write(x)
        # the memory's version: every view of it has the same
        assert x.version > before
        assert whole.version == column.version == x.version


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
def test_pending_readers_see_the_old_values(write: Callable[[xt.Tensor], Any]) -> None:
    with xt.options(lazy="always"):
        x = xt.reshape(xt.arange(16.0), (4, 4)).evaluate()
        old = np.array(x.tolist())  # no export: shared memory is not read lazily
        sums, roots, reversed_ = x + x, xt.sqrt(x) * 2, x[::-1] - 1
        assert sums.is_pending and roots.is_pending and reversed_.is_pending
        write(x)
        np.testing.assert_array_equal(sums.native(), old + old)
        np.testing.assert_array_equal(roots.native(), np.sqrt(old) * 2)
        np.testing.assert_array_equal(reversed_.native(), old[::-1] - 1)


def test_pending_readers_of_large_arrays() -> None:
    # what lazy="auto" does on its own
    x = xt.arange(80_000.0)
    y, z = x * 2, xt.sum(x, axis=0)
    assert y.is_pending and z.is_pending
    x[::2] = 0
    assert float(z) == 79999 * 40000 and float(y[39998]) == 79996


def test_readers_of_a_view_are_served_when_another_view_is_written() -> None:
    with xt.options(lazy="always"):
        x = xt.arange(10)
        x.evaluate()
        pending = x[:5] + 0
        x[5:] = -1
        assert not pending.is_pending  # one barrier per Storage
        assert pending.tolist() == [0, 1, 2, 3, 4]


def test_a_reader_of_a_reader_is_served() -> None:
    with xt.options(lazy="always"):
        x = xt.ones((3,)).evaluate()
        y = x + 1
        z = y * 2
        del y
        x += 100
        assert z.tolist() == [4, 4, 4]


def test_an_evaluated_input_written_after_recording() -> None:
    # y's bytes come to be between recording z and writing to y: z waits for them now
    with xt.options(lazy="always"):
        x = xt.ones((3,))
        y = x + 1
        z = y * 10
        y.evaluate()
        y[...] = 0
        assert z.tolist() == [20, 20, 20]


def test_dead_readers_are_not_computed() -> None:
    with xt.options(lazy="always"):
        x = xt.ones((3,)).evaluate()
        pending = x + 1
        del pending
        gc.collect()
        assert x.blob.owner.readers() == []


def test_readers_do_not_pile_up() -> None:
    with xt.options(lazy="always"):
        x = xt.ones((3,)).evaluate()
        for _ in range(1000):
            x + 1
        assert len(x.blob.owner.guard.readers) <= 64


def test_memory_others_can_write_is_not_read_later() -> None:
    with xt.options(lazy="always"):
        theirs = np.ones(3)
        x = xt.asarray(theirs)
        y = x + 1
        theirs[...] = 50
        assert y.tolist() == [2, 2, 2]
        z = xt.ones((3,)).evaluate()
        pending = z + 1
        np.asarray(z)[...] = 50  # exporting is a write that may come at any time
        later = z + 1
        np.asarray(z)[...] = 70
        assert pending.tolist() == [2, 2, 2] and later.tolist() == [51, 51, 51]


def test_a_failed_write_leaves_pending_readers_right() -> None:
    with xt.options(lazy="always"):
        x = xt.ones((3,)).evaluate()
        y = x + 1
        with pytest.raises(ValueError, match="^add: "):
            x += xt.ones((4,))
        x[0] = 9
        assert y.tolist() == [2, 2, 2] and x.tolist() == [9, 1, 1]


def test_buffer_of_its_own() -> None:
    buffer = Storage(CPU, 16)
    assert not buffer.is_allocated and buffer.version == 0 and not buffer.shared
    first = TBlob(buffer, F4, contiguous((4,), 4), CPU)
    second = TBlob(buffer, np.dtype("int32"), Layout((2,), (8,), 4), CPU)  # another dtype over the same bytes
    first.native()[...] = 1.0
    assert second.native().tolist() == [0x3F800000] * 2


# ---- views of small tensors, whose blobs are made when somebody asks

VIEWS: dict[str, Callable[[Any, Any], Any]] = {
    "slice": lambda xp, x: x[1:, ::-2],
    "row": lambda xp, x: x[-1],
    "element": lambda xp, x: x[1, 2, ...],
    "new axis": lambda xp, x: x[None, ..., 1:3],
    "nothing": lambda xp, x: x[3:],
    "view of a view": lambda xp, x: x[:, 1:].T[::-1],
    "permute_dims": lambda xp, x: xp.permute_dims(x, (1, 0)),
    "flip": lambda xp, x: xp.flip(x, axis=1),
    "expand_dims": lambda xp, x: xp.expand_dims(x, axis=(0, 2)),
    "squeeze": lambda xp, x: xp.squeeze(x[1:2], axis=0),
    "reshape": lambda xp, x: xp.reshape(x, (2, 6)),
}
every_view = pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())


def small_pair() -> tuple[np.ndarray[Any, Any], xt.Tensor]:
    n = np.arange(12.0).reshape(3, 4)
    return n, xt.asarray(n, copy=True) * 1.0


@every_view
def test_small_views_share_memory_and_layout(view: Callable[[Any, Any], Any]) -> None:
    n, x = small_pair()
    wanted, y = view(np, n), view(xt, x)
    for _ in range(2):  # before and after the blob is asked for
        assert y.shape == wanted.shape and y.is_writeable
        np.testing.assert_array_equal(y.native(), wanted)
        assert y.blob.owner is x.blob.owner
    rebuilt = y.blob.view(y.blob.layout)  # by the layout, not by NumPy's array
    np.testing.assert_array_equal(rebuilt.native(), wanted)
    assert np.shares_memory(rebuilt.native(), x.native()) == (wanted.size > 0)


@every_view
def test_small_views_and_writes(view: Callable[[Any, Any], Any]) -> None:
    n, x = small_pair()
    y, version = view(xt, x), x.version
    with xt.options(lazy="always"):
        of_view, of_whole = y + 1.0, x + 1.0
    x[...] = n * 10.0
    np.testing.assert_array_equal(y.native(), view(np, n * 10.0))
    y[...] = -1.0
    view(np, n)[...] = -0.1
    np.testing.assert_array_equal(x.native(), n * 10.0)
    np.testing.assert_array_equal(of_view.native(), view(np, small_pair()[0]) + 1.0)
    np.testing.assert_array_equal(of_whole.native(), small_pair()[0] + 1.0)
    assert x.version == y.version == version + 2


@every_view
def test_small_views_of_read_only_memory(view: Callable[[Any, Any], Any]) -> None:
    n = small_pair()[0]
    n.flags.writeable = False
    x = xt.asarray(n)
    _ = x + 1.0  # from here on it is known by its native array
    y = view(xt, x)
    assert not y.native().flags.writeable and not y.is_writeable
    with pytest.raises(ValueError, match="read-only"):
        y[...] = 1.0


def test_small_views_keep_the_memory_of_a_tensor_that_grows() -> None:
    n, x = small_pair()
    row, rows = x[1], x[1:]
    x.resize((100,))
    x[...] = 0.0
    np.testing.assert_array_equal(row.native(), n[1])
    assert row.blob.owner is rows.blob.owner and row.blob.owner is not x.blob.owner


def test_small_views_refuse_as_large_ones_do() -> None:
    _, x = small_pair()
    for key in (5, (0, 0, 0), (..., ...), slice(None, None, 0), slice(1.5)):
        refused = []
        for one in (x, xt.broadcast_to(xt.asarray(1.0), (3, 4))):  # the one by NumPy, the other by its layout
            with pytest.raises((IndexError, TypeError, ValueError)) as failure:
                one[key]
            refused.append((type(failure.value), str(failure.value).replace(" or None", "")))  # since Python 3.15
        assert refused[0] == refused[1]


WRITES: dict[str, Callable[[Any, Any], None]] = {
    "a number": lambda x, y: x.__setitem__((slice(1, None), 0), 7.0),
    "a tensor": lambda x, y: x.__setitem__(slice(None, None, -1), y),
    "itself, moved": lambda x, y: x.__setitem__(slice(1, None), x[:-1]),
    "in place": lambda x, y: x.__iadd__(y),
    "in place, itself reversed": lambda x, y: x.__isub__(x[::-1]),
    "in place, a view": lambda x, y: x[:, 1].__imul__(3.0),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
def test_small_writes_serve_readers_and_count_once(write: Callable[[Any, Any], None]) -> None:
    n, x = small_pair()
    y = x * 2.0
    with xt.options(lazy="always"):
        pending = x + 1.0
    version = x.version
    write(x, y)
    np.testing.assert_array_equal(pending.native(), n + 1.0)
    write(n, n * 2.0)
    np.testing.assert_array_equal(x.native(), n)
    assert x.version == version + 1


def test_small_writes_that_are_refused_change_nothing() -> None:
    n = np.arange(4)
    x = xt.asarray(n, copy=True) + 0
    z = xt.asarray(1j) * 1.0
    refusals: list[tuple[type[Exception], Callable[[], Any]]] = [
        (TypeError, lambda: x.__setitem__(0, 1j)),
        (TypeError, lambda: x.__setitem__(0, z)),
        (OverflowError, lambda: x.__setitem__(slice(2), 1 << 70)),
        (ValueError, lambda: x.__setitem__(slice(2), x[:3])),
        (TypeError, lambda: x.__iadd__(0.5)),
        (TypeError, lambda: x.__itruediv__(2)),
        (ValueError, lambda: x.__iadd__(x[:3])),
        (OverflowError, lambda: x.__iadd__(1 << 70)),
    ]
    for kind, call in refusals:
        with pytest.raises(kind, match=r"^(setitem|add|divide): "):
            call()
        np.testing.assert_array_equal(x.native(), n)


def test_an_empty_key_is_a_value_of_what_has_no_axes() -> None:
    """As NumPy's scalars are; an Ellipsis selects the view, of a value an array of its own."""
    x = xt.asarray(2.5)
    value, view = x[()], x[...]
    view[()] = 7.0
    assert float(x) == 7.0 and float(value) == 2.5 and value.shape == view.shape == ()
    with xt.options(lazy="always"):
        z = (xt.asarray(1.5) + 1.0)[()]
        assert bool(z == 2.5) and not bool(z != 2.5)
    total = x + 1.0
    view = total[...]
    view += 1.0
    assert float(total) == 8.0 and float(view) == 9.0

"""Methods of tensors that are no functions of the namespace: copies, moves to devices, and views of other dtypes."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from ..autograd.rules import Like, xt
from ..autograd.tape import differentiable, is_recording
from ..base.dtypes import DType, canonical, real_of
from ..base.errors import check_choice, expected
from ..base.layout import Layout, as_index, c_strides, dense_like
from ..base.options import thin_closed
from ..base.profiling import noting, observers
from ..calls.library import on
from ..calls.op import cast_later
from ..devices import Device
from ..devices.cpu import Packing, packed_copy
from ..plan.costs import cheap_below
from ..run.executor import before_write
from ..storage.blob import TBlob
from ..storage.storage import refuse_capture, watchers
from ..tensor.face import CPU_DEVICE, Tensor, dense_copy, from_native, small, wrap
from ..tensor.scalars import is_value, marked

Version = tuple[int, int] | None  # of DLPack


def resized(x: Tensor, shape: Any, keep_on_shrink: bool) -> Tensor:
    """Change a tensor's shape as described at `Tensor.resize`, and return the tensor."""
    before_write(x.blob.owner)
    old = x.blob
    blob = old if old.detached else old.shallow_copy()  # views of the old blob keep it
    blob.resize(shape, keep_on_shrink=keep_on_shrink)
    before, after = old.layout.size, blob.layout.size
    if after > before or not old.is_contiguous or blob.owner is not old.owner:
        blob = TBlob.empty(blob.shape, old.dtype, old.device)
        flat, elements = blob.native().reshape(-1), old.native().reshape(-1)
        flat[: min(before, after)], flat[before:] = elements[:after], 0
    x._content, x._blob, x._is_value = blob, None, False
    return x


@differentiable(x=1)
def copied(x: Tensor, order: str) -> Tensor:
    """Return a copy, packed in C order, or in NumPy's order F, A or K."""
    native = None if thin_closed[0] else small(x, cheap_below[0])
    if native is not None:
        return wrap(native.copy(order), CPU_DEVICE)
    if watchers:
        alike = dense_like(x.blob.layout, x.itemsize).strides == c_strides(x.shape, x.itemsize)
        packed = order == "K" or (order == "C" and alike)
        later = cast_later(x, x.dtype) if packed else None
        if later is not None:
            return later
        return on(x, "copy", Packing(x.shape, order))
    if order == "K":
        return from_native(dense_copy(x.blob), x.device)
    backend = x.device.backend
    compute = noting(backend.compute, backend, "copy") if observers else backend.compute
    return wrap(compute(packed_copy, x.native(), order), x.device)


@differentiable(x=lambda g, like: g.to_device(like.device))
def moved(x: Tensor, device: Device) -> Tensor:
    """Return a tensor on the given device; the tensor itself if it is there already."""
    if device == x.device:
        return x
    return from_native(x.host() if "cpu" in (x.device, device) else x.native(), device)


def capsule(x: Tensor, stream: Any, max_version: Version, dl_device: Any, copy: bool | None) -> Any:
    """Return a DLPack capsule of a tensor's memory, or of a copy, as described at Tensor.__dlpack__."""
    own, on_cpu = x.__dlpack_device__(), (1, 0)
    if dl_device is not None and tuple(dl_device) == on_cpu != own and copy is not False:
        return x.to_device("cpu").__dlpack__(max_version=max_version)
    if stream is not None and own == on_cpu:
        raise BufferError(expected("__dlpack__", "stream", "be None on the CPU", repr(stream)))
    if dl_device is not None and tuple(dl_device) != own:
        raise BufferError(expected("__dlpack__", "dl_device", f"be {own}", repr(dl_device)))
    if copy or not _leaves_as_it_is(x, max_version):
        if copy is False:
            must = "be packed, writable and without negative or zero strides when copy=False"
            raise BufferError(expected("__dlpack__", "x", must, f"strides {x.strides}"))
        native = dense_copy(x.blob)
    else:
        native = x.exported()
    if own == on_cpu:
        return native.__dlpack__(max_version=max_version)
    return x.device.backend.call(native.__dlpack__, stream=stream, max_version=max_version)


def _leaves_as_it_is(x: Tensor, max_version: Version) -> bool:
    blob = x.blob
    if max_version is None and not blob.layout.is_dense(x.itemsize):
        return False
    odd = any(stride < 0 for stride in blob.layout.strides) or blob.layout.may_repeat()
    return blob.writeable and not odd


@differentiable(x=lambda g, which: g * 1j if which else g, view=True)
def part(x: Tensor, which: int) -> Tensor:
    """Return the real (0) or imaginary (1) part of a complex tensor, as a view."""
    dtype, layout = real_of(x.dtype), x.blob.layout
    return x.viewed(Layout(layout.shape, layout.strides, layout.offset + which * dtype.itemsize), dtype=dtype)


def part_of(x: Tensor, which: int) -> Tensor:
    """Return the real or imaginary part of any tensor; the part of a 0-d value is a value."""
    native = x.thin() if x.dtype.kind == "c" and not thin_closed[0] and not is_value(x) else None
    if native is not None:
        return x.window(native.imag if which else native.real)
    found = part(x, which) if x.dtype.kind == "c" else xt.imag(x) if which else x[...]
    return marked(found, is_value(x))


def _read_back(g: Tensor, like: Like) -> Tensor:
    """The cotangent of a tensor that was viewed as another dtype: known only between complex and real parts."""
    if real_of(g.dtype) != real_of(like.dtype):
        raise NotImplementedError(f"view: no derivative is known from {g.dtype} to {like.dtype}")
    return copied(g, "C").view(like.dtype)


def view_as(x: Tensor, dtype: Any) -> Any:
    """Return the result of the method `view`."""
    if dtype is np.ndarray or dtype is xt.numpy.ndarray:
        return x[...]
    if isinstance(dtype, type) and issubclass(dtype, np.ndarray):
        return x.__array__().view(dtype)
    wanted = x.dtype if dtype is None else np.dtype(dtype)
    if wanted.kind == "V":
        return x.__array__().view(wanted)
    target = canonical(wanted, "view")
    if not wanted.isnative:
        return swapped(view_as(x, target), False)
    return x[...] if target == x.dtype else reread(x, target, _may_write(x, target))


def _may_write(x: Tensor, dtype: DType) -> bool:
    """Return whether a view of a tensor's bytes as another dtype is writable: not where writes of integers into memory
    with a gradient could not be recorded.
    """
    return dtype.kind in "fc" or not (x.requires_grad and is_recording())


def field(x: Tensor, dtype: Any, offset: Any) -> Tensor:
    """Return a view of some bytes of each element as another dtype, as described at `Tensor.getfield`."""
    wanted = np.dtype(dtype)
    target, start = canonical(wanted, "getfield"), as_index(offset, "getfield", "offset")
    most = x.itemsize - target.itemsize
    if not 0 <= start <= most:
        what = f"be in [0, {most}]" if most >= 0 else f"be left out, as {x.dtype} has no {target.itemsize} bytes"
        raise ValueError(expected("getfield", "offset", what, offset))
    if x.dtype.kind == "c" and target == real_of(x.dtype) and start in (0, most):
        found = part_of(x, 1 if start else 0)
    else:
        found = x[...] if target == x.dtype else _field(x, target, start, _may_write(x, target))
    return found if wanted.isnative else swapped(found, False)


@differentiable(x=lambda g: _no_slope(g), view=True)
def _field(x: Tensor, dtype: DType, start: int, writeable: bool) -> Tensor:
    layout = x.blob.layout
    layout = Layout(layout.shape, layout.strides, layout.offset + start)
    return x.viewed(layout, dtype=dtype, writeable=writeable)


@differentiable(x=lambda g, like: _read_back(g, like), view=True)
def reread(x: Tensor, dtype: DType, writeable: bool) -> Tensor:
    """Return a view of the same bytes as another dtype; the length of the last axis is adapted."""
    layout = x.blob.layout.reinterpret(x.itemsize, dtype.itemsize)
    if layout is None:
        raise ValueError(expected("view", "dtype", f"divide a contiguous last axis of {x.dtype}", dtype))
    return x.viewed(layout, dtype=dtype, writeable=writeable)


def cast_as(x: Tensor, dtype: Any, order: str, casting: str, copy: bool) -> Tensor:
    """Return a tensor in another dtype as NumPy's method does, with a memory order and a casting rule.

    Raises TypeError for a cast that the rule forbids, ValueError for an unknown rule or order.
    """
    target = canonical(dtype, "astype")
    check_choice("astype", "casting", casting, ("no", "equiv", "safe", "same_kind", "unsafe", "same_value"))
    check_choice("astype", "order", order, ("K", "A", "C", "F"))
    if casting != "same_value" and not np.can_cast(x.dtype, target, cast(Any, casting)):
        raise TypeError(expected("astype", "dtype", f"be one that {x.dtype} can be cast to by {casting!r}", target))
    found = xt.astype(x, target, copy=copy)
    if casting == "same_value" and not bool(xt.all(xt.logical_or(xt.astype(found, x.dtype) == x, x != x))):
        raise ValueError(expected("astype", "x", f"hold values that are the same in {target}", "others"))
    if order == "A":
        turned = xt.permute_dims(x, tuple(range(x.ndim))[::-1])
        order = "F" if turned.is_contiguous and not x.is_contiguous else "C"
    return found if order == "K" else cast(Tensor, xt.numpy.asarray(found, order=order))


def make_read_only(x: Tensor) -> None:
    """Make a tensor read-only; other tensors over its memory stay as they are."""
    refuse_capture("setflags")  # a capture cannot record steps that change tensors themselves
    seen = x.viewed(x.blob.layout, writeable=False)
    x._content, x._owner, x._blob = seen._content, seen._owner, seen._blob


def _no_slope(g: Tensor) -> Tensor:
    raise NotImplementedError("view: no derivative is known of the bytes of numbers")


@differentiable(x=lambda g: _no_slope(g))
def swapped(x: Tensor, writeable: bool) -> Tensor:
    """Return a copy with the bytes of each element, or of each part of a complex one, in reverse order."""
    found: Tensor = on(x, "byteswap", lambda xp, a: a.byteswap())
    return found if writeable else found.viewed(found.blob.layout, writeable=False)


@differentiable(x=lambda g, like: xt.reshape(g, like.shape), view=True)
def flat_2d(x: Tensor) -> Tensor:
    """Return a view of shape (rows, columns) in which all axes but the last form the rows."""
    layout = x.blob.layout.flat_2d()
    if layout is None:
        raise ValueError(expected("flat_2d", "x", "have strides that flatten", f"strides {x.strides}"))
    return x.viewed(layout)


@differentiable(x=0)
def rounded(x: Tensor, decimals: int) -> Tensor:
    """Return each element rounded to so many decimals."""
    found: Tensor = on(x, "round", lambda xp, a: a.round(decimals))
    return found

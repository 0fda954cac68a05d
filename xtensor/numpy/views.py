"""NumPy's names that are no functions of arrays: the type itself, the flat iterator, and indices with values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from types import GenericAlias
from typing import Any

import numpy

from ..autograd.rules import Like, xt
from ..autograd.tape import differentiable
from ..base.layout import Layout, Shape
from ..storage.storage import refuse_capture
from ..tensor.face import Tensor, valued
from .common import as_array
from .creation import empty


class _Arrays(type):
    """The type of `ndarray`: tensors are its instances, and calling it makes an empty one."""

    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, Tensor)

    def __subclasscheck__(cls, kind: type) -> bool:
        return issubclass(kind, Tensor) or kind is ndarray

    def __call__(cls, shape: Any, dtype: Any = float, buffer: Any = None, offset: int = 0, **options: Any) -> Any:
        if buffer is None:
            return empty(shape, dtype, options.get("order") or "C")
        return xt.numpy.frombuffer(buffer, dtype, offset=offset, count=int(xt.numpy.prod(shape))).reshape(shape)


class ndarray(metaclass=_Arrays):  # noqa: N801 - NumPy's name
    """The type of tensors, for isinstance and annotations; a call makes an array of unset elements."""

    __class_getitem__: Any = classmethod(GenericAlias)


class Flat:
    """The elements of a tensor in C order, as `x.flat` gives them: for reading, writing and iterating."""

    __slots__ = ("_of",)

    def __init__(self, x: Tensor) -> None:
        self._of = x

    def __len__(self) -> int:
        return self._of.size

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self._of.ravel()) if self._of.size else iter(())

    def __getitem__(self, key: Any) -> Tensor:
        return valued(self._of.ravel()[key].copy())

    def __setitem__(self, key: Any, value: Any) -> None:
        x = self._of
        flat = x.ravel()
        flat[key] = value
        if flat.owner is not x.owner:  # the elements do not follow each other in memory
            x[...] = flat.reshape(x.shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self._of.ravel().__array__(dtype, copy)


@differentiable(
    x=lambda g, window_shape, axis, like: _of_windows(g, _windows(like.shape, window_shape, axis)[1], like), view=True
)
def sliding_window_view(
    x: Any, window_shape: Any, axis: Any = None, *, subok: bool = False, writeable: bool = False
) -> Tensor:
    """Return a view of the windows of a shape at each place where they fit; it is read-only unless asked otherwise."""
    x = as_array(x, "sliding_window_view")
    if writeable:  # an element that lies in several windows may be written twice
        refuse_capture("sliding_window_view")
    shape, axes = _windows(x.shape, window_shape, axis)
    layout = x.blob.layout
    strides = (*layout.strides, *[layout.strides[axis] for axis in axes])
    return x.viewed(Layout(shape, strides, layout.offset), writeable=writeable)


def _windows(shape: Shape, window_shape: Any, axis: Any) -> tuple[Shape, tuple[int, ...]]:
    """Return the shape of a view of windows, and the axis along which each axis of a window lies, as NumPy finds it."""
    view = numpy.lib.stride_tricks.sliding_window_view(numpy.broadcast_to(0, shape), window_shape, axis)
    axes = (
        range(len(shape))
        if axis is None
        else numpy.lib.array_utils.normalize_axis_tuple(axis, len(shape), allow_duplicate=True)
    )
    return view.shape, tuple(axes)


def _of_windows(g: Tensor, axes: tuple[int, ...], like: Like) -> Tensor:
    """Return the sum of cotangents of windows at each element of the array that they show."""
    total: Tensor = xt.zeros(like.shape, dtype=like.dtype, device=like.device)
    lead = len(like.shape)
    for offset in product(*map(range, g.shape[lead:])):
        begin = [0] * lead
        for axis, one in zip(axes, offset, strict=True):
            begin[axis] += one
        total[tuple([slice(b, b + n) for b, n in zip(begin, g.shape[:lead], strict=True)])] += g[(..., *offset)]
    return total


def ndenumerate(arr: Any) -> Iterator[tuple[tuple[int, ...], Tensor]]:
    """Return pairs of an element's indices and its value."""
    x = as_array(arr)
    for index in product(*map(range, x.shape)):
        yield index, x[index]


class Archive(Mapping[str, Tensor]):
    """The result of `load` for an .npz file: its arrays as tensors, each read when it is asked for."""

    def __init__(self, archive: Any) -> None:
        self._archive = archive
        self.files: list[str] = archive.files

    def __getitem__(self, name: str) -> Tensor:
        return as_array(self._archive[name], "load")

    def __iter__(self) -> Iterator[str]:
        return iter(self.files)

    def __len__(self) -> int:
        return len(self.files)

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return repr(self._archive)

    def close(self) -> None:
        """Close the file; arrays that were read stay valid."""
        self._archive.close()

"""NumPy's names that are no functions of arrays: the type itself, the flat iterator, and indices with values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache, partialmethod, wraps
from itertools import product
from types import GenericAlias, new_class
from typing import Any, cast

import numpy

from ..autograd.rules import Like, xt
from ..autograd.tape import differentiable
from ..base.dtypes import can_hold, canonical
from ..base.errors import expected
from ..base.layout import Layout, Shape, as_shape
from ..storage.storage import refuse_capture
from ..tensor.face import Tensor
from ..tensor.scalars import is_value, valued
from .common import as_array, as_tensors, has_gradient
from .creation import empty
from .derived import Derived
from .door import through


class _Arrays(type):
    """The type of `ndarray`: tensors and NumPy's own arrays, such as SciPy's results, are its instances, and calling it
    makes an empty tensor. Classes that inherit from it are subclasses of NumPy's.
    """

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> Any:
        if not any(isinstance(one, mcs) for one in bases):
            return super().__new__(mcs, name, bases, namespace)
        return new_class(
            name,
            tuple([Derived if isinstance(one, mcs) else one for one in bases]),
            options,
            lambda own: own.update(namespace),
        )

    def __instancecheck__(cls, x: Any) -> bool:
        if type(x) is not Tensor:
            return isinstance(x, numpy.ndarray)
        data = x._content
        return (type(data) is numpy.ndarray and data.ndim > 0) or not is_value(x)

    def __subclasscheck__(cls, kind: type) -> bool:
        return issubclass(kind, (Tensor, numpy.ndarray)) or kind is ndarray

    def __eq__(cls, other: object) -> bool:  # so `type(x) == np.ndarray` holds, and tables by type find tensors
        return other is cls or other is Tensor

    def __hash__(cls) -> int:
        return hash(Tensor)

    def __call__(
        cls,
        shape: Any,
        dtype: Any = float,
        buffer: Any = None,
        offset: int = 0,
        strides: Any = None,
        order: str | None = None,
    ) -> Any:
        if buffer is None and strides is None and can_hold(numpy.dtype(dtype)):
            return empty(shape, dtype, order or "C")
        told = as_shape(shape, "ndarray"), dtype, buffer, offset, strides, order
        if isinstance(buffer, Tensor):
            if has_gradient(buffer):
                must = "have no gradient, which would be lost (use x.detach())"
                raise RuntimeError(expected("ndarray", "buffer", must, "one that has"))
            return through("ndarray", _laid, told, {})
        return as_tensors(_laid(*told))

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_") and not callable(getattr(numpy.ndarray, name, None)):
            raise AttributeError(f"type object 'ndarray' has no attribute {name!r}", name=name)
        return _method(name)


@cache
def _method(name: str) -> Any:
    """Return an unbound method for tensors and NumPy's arrays, or another attribute of tensors."""
    ours, theirs = getattr(Tensor, name, None), getattr(numpy.ndarray, name, None)
    if ours is None and theirs is not None:
        return getattr(Derived, name)
    if not callable(theirs):
        return getattr(Tensor, name)

    @wraps(cast(Any, ours))
    def method(self: Any, *args: Any, **given: Any) -> Any:
        own: Any = ours
        if isinstance(self, numpy.ndarray):
            own = getattr(Derived, name) if isinstance(self, Derived) else theirs
        return own(self, *args, **given)

    return method


def _laid(shape: Shape, dtype: Any, *rest: Any) -> Any:
    """Return NumPy's array over a buffer, in native byte order."""
    made = numpy.ndarray(shape, dtype, *rest)
    return made.astype(canonical(dtype, "ndarray"), copy=False) if can_hold(made.dtype) else made


class ndarray(metaclass=_Arrays):  # noqa: N801 - NumPy's name
    """The type of tensors, for isinstance, annotations and unbound methods; a call makes an array of unset elements, or
    one over the memory of a buffer.
    """

    __class_getitem__: Any = classmethod(GenericAlias)

    def __new__(cls, *args: Any, **given: Any) -> Any:
        return numpy.ndarray.__new__(cast(Any, cls), *args, **given)  # called by classes that inherit


class Flat:
    """The elements of a tensor in C order, as `x.flat` gives them: for reading, writing, comparing and iterating.

    base: the tensor. index: how many elements an iteration has given.
    """

    __slots__ = ("_rest", "base", "index")

    def __init__(self, x: Tensor) -> None:
        self.base, self.index = x, 0
        self._rest: Iterator[Tensor] | None = None

    def __len__(self) -> int:
        return self.base.size

    def __iter__(self) -> Iterator[Tensor]:
        return self

    def __next__(self) -> Tensor:
        if self._rest is None:
            self._rest = iter(self.base.ravel()) if self.base.size else iter(())
        found = next(self._rest)
        self.index += 1
        return found

    @property
    def coords(self) -> tuple[int, ...]:
        """The indices of the next element."""
        shape = self.base.shape  # after the last one, the first index is one too large
        return tuple([int(one) for one in numpy.unravel_index(self.index, (shape[0] + 1, *shape[1:]))]) if shape else ()

    def copy(self) -> Tensor:
        """Return the elements as a new tensor."""
        return self.base.ravel().copy()

    def __getitem__(self, key: Any) -> Tensor:
        return valued(self.base.ravel()[key].copy())

    def __setitem__(self, key: Any, value: Any) -> None:
        x = self.base
        flat = x.ravel()
        if not isinstance(value, (bool, int, float, complex)) and not isinstance(key, (int, numpy.integer)):
            value = as_array(value, "flat", x.device).ravel()
            count = flat[key].size if value.size != 1 else 1
            if not value.size or not count:
                return
            value = value if value.size == count else value[numpy.arange(count) % value.size]
        flat[key] = value
        if flat.owner is not x.owner:  # the elements do not follow each other in memory
            x[...] = flat.reshape(x.shape)

    def _compared(self, other: Any, name: str) -> Tensor:
        return getattr(xt, name)(self.base.ravel(), other.base.ravel() if isinstance(other, Flat) else other)

    __eq__ = cast(Any, partialmethod(_compared, name="equal"))
    __ne__ = cast(Any, partialmethod(_compared, name="not_equal"))
    __lt__ = partialmethod(_compared, name="less")
    __le__ = partialmethod(_compared, name="less_equal")
    __gt__ = partialmethod(_compared, name="greater")
    __ge__ = partialmethod(_compared, name="greater_equal")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self.base.ravel().__array__(dtype, copy)


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

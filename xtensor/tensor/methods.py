"""The methods of tensors besides those of protocols, each the namespace's function of that name."""

from __future__ import annotations

import sys
from operator import index
from types import FunctionType
from typing import TYPE_CHECKING, Any, cast

from numpy.exceptions import AxisError

from ..base.errors import StrangerError, UnheldError, expected
from ..storage.storage import handed_out, watchers
from .scalars import class_of, marked

if TYPE_CHECKING:
    import numpy as np

    from .face import Scalar, Tensor

# The namespace itself, still being filled while this file is read; functions are looked up when called.
xt: Any = sys.modules[__name__.partition(".")[0]]


def _deviation(name: str) -> Any:
    """Return the method of a standard deviation, or of its square."""

    def found(
        self: Tensor,
        axis: Any = None,
        dtype: Any = None,
        out: Tensor | None = None,
        ddof: float | None = None,
        keepdims: bool = False,
        *,
        correction: float = 0.0,
        **given: Any,
    ) -> Tensor:
        if given or ddof:
            given |= {"correction": correction} if correction else {}
            return cast("Tensor", getattr(xt.numpy, name)(self, axis, dtype, out, ddof or 0, keepdims, **given))
        x = self if dtype is None else self.astype(dtype)
        return _given(out, name, getattr(xt, name)(x, axis=axis, correction=correction, keepdims=keepdims))

    found.__name__ = found.__qualname__ = name
    return found


class Methods:
    """Methods that NumPy's arrays have as well."""

    __slots__ = ()

    if TYPE_CHECKING:  # attributes of Tensor

        @property
        def ndim(self) -> int: ...
        @property
        def size(self) -> int: ...
        def host(self) -> Any: ...

    __class__: Any = property(class_of)

    def item(self, *index: int) -> Scalar:
        """Return one element (the only one, or the one at `index`) as a Python scalar."""
        own: Any = self
        if watchers and not index and own.dtype.kind == "b" and own.size == 1:
            return bool(own)
        told = handed_out(own) if watchers and not index and own.dtype.kind == "f" and own.size == 1 else None
        return own.host().item(*index) if told is None else told

    def tolist(self) -> Any:
        """Return the elements as nested lists of Python scalars."""
        return self.host().tolist()

    def is_integer(self) -> bool:
        """Return whether the only element is a whole number, as NumPy's scalars do; TypeError for complex numbers."""
        return float(cast(Any, self.item())).is_integer()

    def as_integer_ratio(self) -> tuple[int, int]:
        """Return the only element as a quotient of integers, as NumPy's scalars do; TypeError for complex numbers."""
        x: Any = self.item()
        return (x if isinstance(x, int) else float(x)).as_integer_ratio()

    def bit_count(self) -> int:
        """Return how many bits are 1 in the absolute value of the only element, as NumPy's scalars do; TypeError for a
        number that is no integer.
        """
        return index(cast(Any, self.item())).bit_count()

    def __delitem__(self, key: Any) -> None:
        raise ValueError(expected("delitem", "x", "keep all its elements (xt.numpy.delete returns others)", repr(key)))

    def copy(self, order: str = "C") -> Tensor:
        """Return a copy, packed in C order, or in NumPy's order F, A or K; K keeps the order of the axes in memory."""
        copy: Any = xt.standard.methods.copied(self, order)
        copy._is_value = getattr(self, "_is_value", False)  # a pending copy was taken for a computed value
        return copy

    def astype(
        self, dtype: Any, order: str = "K", casting: str = "unsafe", subok: bool = True, copy: bool = True
    ) -> Tensor:
        dtype = float if dtype is None else dtype
        try:
            if casting == "unsafe" and order == "K":
                return xt.astype(self, dtype, copy=copy)
            return xt.standard.methods.cast_as(self, dtype, order, casting, copy)
        except UnheldError:  # an array of NumPy's, with texts or objects
            return xt.numpy.common.as_natives(self).astype(dtype, order, casting)

    def reshape(self, *shape: Any, order: str = "C", copy: bool | None = None) -> Tensor:
        lengths = shape[0] if len(shape) == 1 else shape
        if order == "C":
            return xt.reshape(self, lengths, copy=copy)
        return xt.numpy.reshape(self, lengths, order, copy=copy)

    def _reshape_in_place(self, shape: Any) -> None:
        """Change the shape over the same memory, as `x.shape = shape` does.

        Raises AttributeError if the strides would need a copy, RuntimeError for a tensor that has a gradient.
        """
        x: Any = self
        if x.requires_grad:
            raise RuntimeError(expected("shape", "x", "not have a gradient (use reshape)", "one"))
        try:
            seen = xt.reshape(x.evaluate(), shape, copy=False)
        except ValueError as error:
            raise error if "copy" not in str(error) else AttributeError(str(error)) from None
        x._content, x._owner, x._blob, x._is_value = seen._content, seen._owner, seen._blob, False

    def flatten(self, order: str = "C") -> Tensor:
        return xt.reshape(self, (self.size,), copy=True) if order == "C" else xt.numpy.ravel(self, order).copy()

    def ravel(self, order: str = "C") -> Tensor:
        return xt.calls.library.in_a_row(self) if order == "C" else xt.numpy.ravel(self, order)

    def squeeze(self, axis: int | tuple[int, ...] | None = None) -> Tensor:
        if axis is None:
            axis = tuple(a for a, length in enumerate(cast(Any, self).shape) if length == 1)
        return xt.squeeze(self, axis)

    def transpose(self, *axes: Any) -> Tensor:
        if not axes or axes[0] is None:
            return xt.permute_dims(self, tuple(range(self.ndim))[::-1])
        order = xt.numpy.common.axes_of(axes[0]) if len(axes) == 1 else axes
        return xt.permute_dims(self, order if isinstance(order, tuple) else (order,))

    def dot(self, b: Any, out: Any = None) -> Tensor:
        return _given(out, "dot", xt.standard.linear.dot(self, xt.tensor.operands.numpy_of(b)))

    def clip(self, min: Any = None, max: Any = None, out: Any = None, **given: Any) -> Tensor:
        if given or out is not None or cast(Any, self).dtype.kind == "c":
            return xt.numpy.clip(self, min, max, out, **given)
        try:
            return xt.clip(self, min, max)
        except StrangerError:  # a Series answers, as in NumPy
            return xt.numpy.clip(self, min, max)

    def round(self, decimals: int = 0, out: Any = None) -> Tensor:
        return _given(out, "round", xt.standard.methods.rounded(self, decimals) if decimals else xt.round(self))

    def __round__(self, decimals: int | None = None) -> Any:
        """Return the elements rounded to so many decimals; without `decimals`, a 0-d value gives a Python integer, as
        NumPy's scalars do (ValueError or OverflowError if there is none).
        """
        x = cast(Any, self)
        if decimals is None and getattr(x, "_is_value", False) and x.dtype.kind in "iuf":
            return round(cast(Any, self.item()))
        return self.round(decimals or 0)

    def __bytes__(self) -> bytes:
        """Return the bytes of the elements in C order; for a 0-d integer, that many zero bytes, as NumPy does."""
        x = cast(Any, self)
        return bytes(int(x)) if not self.ndim and x.dtype.kind in "iu" else self.tobytes()

    def __hash__(self) -> int:
        """Return the hash of a 0-d value; raises TypeError for an array, whose == is elementwise."""
        x = cast(Any, self)
        if not getattr(x, "_is_value", False):
            raise TypeError(f"unhashable type: 'Tensor' of shape {x.shape}")
        return hash(self.item())

    def __trunc__(self) -> int:
        return int(cast(Any, self))

    def __divmod__(self, other: Any) -> tuple[Tensor, Tensor]:
        return cast(Any, self) // other, cast(Any, self) % other

    def __rdivmod__(self, other: Any) -> tuple[Tensor, Tensor]:
        return other // cast(Any, self), other % cast(Any, self)

    def conj(self) -> Tensor:
        return xt.conj(self) if cast("Tensor", self).dtype.kind == "c" else cast("Tensor", self)

    def sum(
        self,
        axis: Any = None,
        dtype: Any = None,
        out: Any = None,
        keepdims: bool = False,
        initial: Any = None,
        where: Any = True,
    ) -> Tensor:
        return _reduced("sum", self, axis, out, keepdims, _beside(initial, where), dtype=dtype)

    def prod(
        self,
        axis: Any = None,
        dtype: Any = None,
        out: Any = None,
        keepdims: bool = False,
        initial: Any = None,
        where: Any = True,
    ) -> Tensor:
        return _reduced("prod", self, axis, out, keepdims, _beside(initial, where), dtype=dtype)

    def mean(
        self, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False, *, where: Any = True
    ) -> Tensor:
        return _reduced("mean", self, axis, out, keepdims, _beside(None, where), dtype=dtype)

    std, var = _deviation("std"), _deviation("var")

    def min(
        self, axis: Any = None, out: Any = None, keepdims: bool = False, initial: Any = None, where: Any = True
    ) -> Tensor:
        return _reduced("min", self, axis, out, keepdims, _beside(initial, where))

    def max(
        self, axis: Any = None, out: Any = None, keepdims: bool = False, initial: Any = None, where: Any = True
    ) -> Tensor:
        return _reduced("max", self, axis, out, keepdims, _beside(initial, where))

    def any(self, axis: Any = None, out: Any = None, keepdims: bool = False, *, where: Any = True) -> Tensor:
        return _reduced("any", self, axis, out, keepdims, _beside(None, where))

    def all(self, axis: Any = None, out: Any = None, keepdims: bool = False, *, where: Any = True) -> Tensor:
        return _reduced("all", self, axis, out, keepdims, _beside(None, where))

    def argmax(self, axis: int | None = None, out: Tensor | None = None, *, keepdims: bool = False) -> Tensor:
        return _reduced("argmax", self, axis, out, keepdims, {})

    def argmin(self, axis: int | None = None, out: Tensor | None = None, *, keepdims: bool = False) -> Tensor:
        return _reduced("argmin", self, axis, out, keepdims, {})

    def to_numpy(self) -> np.ndarray[Any, Any]:
        """Return what `numpy` returns, by the name that pandas gives it and Matplotlib asks for."""
        return cast("np.ndarray[Any, Any]", cast(Any, self).numpy())

    # ---- NumPy's protocols: its own functions on tensors

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **given: Any) -> Any:
        return xt.numpy.protocols.universal(ufunc, method, inputs, given)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return xt.numpy.protocols.function(function, types, args, kwargs)

    # ---- methods beyond the standard: functions of xtensor.numpy, with NumPy's signatures

    def argpartition(self, kth: Any, axis: int | None = -1, kind: str = "introselect", order: None = None) -> Tensor:
        return xt.numpy.argpartition(self, kth, axis, kind, order)

    def argsort(self, axis: int | None = -1, kind: Any = None, order: None = None, *, stable: Any = None) -> Tensor:
        return xt.numpy.argsort(self, axis, kind, order, stable=stable)

    def byteswap(self, inplace: bool = False) -> Tensor:
        """Return a copy with the bytes of each element, or of each part of a complex one, in reverse order; `inplace`
        writes that into this tensor, and returns it.
        """
        found = cast("Tensor", xt.standard.methods.swapped(self, True))
        if not inplace:
            return marked(found, getattr(self, "_is_value", False))
        cast(Any, self)[...] = found
        return cast("Tensor", self)

    def choose(self, choices: Any, out: Any = None, mode: str = "raise") -> Tensor:
        return xt.numpy.choose(self, choices, out, mode)

    def compress(self, condition: Any, axis: int | None = None, out: Any = None) -> Tensor:
        return xt.numpy.compress(condition, self, axis, out)

    def conjugate(self) -> Tensor:
        return self.conj()

    def cumprod(self, axis: int | None = None, dtype: Any = None, out: Any = None) -> Tensor:
        return xt.numpy.cumprod(self, axis, dtype, out)

    def cumsum(self, axis: int | None = None, dtype: Any = None, out: Any = None) -> Tensor:
        return xt.numpy.cumsum(self, axis, dtype, out)

    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
        return xt.numpy.diagonal(self, offset, axis1, axis2)

    def dump(self, file: Any) -> None:
        """Write a pickle of the elements, which loads as NumPy's array, to a file, or to the file of a name."""
        self.host().dump(file)

    def dumps(self) -> bytes:
        """Return a pickle of the elements, which loads as NumPy's array."""
        return cast(bytes, self.host().dumps())

    def fill(self, value: Any) -> None:
        """Assign one value to all elements."""
        cast(Any, self)[...] = value

    def getfield(self, dtype: Any, offset: int = 0) -> Tensor:
        """Return a view of the bytes of each element from `offset` on as another dtype. Gradients pass only from the
        parts of complex numbers. Raises ValueError if the elements do not have so many bytes.
        """
        return cast("Tensor", xt.standard.methods.field(self, dtype, offset))

    def nonzero(self) -> tuple[Tensor, ...]:
        return xt.numpy.nonzero(self)

    def partition(self, kth: Any, axis: int = -1, kind: str = "introselect", order: None = None) -> None:
        """Rearrange elements in place so that none before a kth one is larger, and none after it smaller."""
        cast(Any, self)[...] = xt.numpy.partition(self, kth, axis, kind, order)

    def put(self, indices: Any, values: Any, mode: str = "raise") -> None:
        xt.numpy.put(self, indices, values, mode)

    def repeat(self, repeats: Any, axis: int | None = None) -> Tensor:
        return xt.numpy.repeat(self, repeats, axis)

    def searchsorted(self, v: Any, side: str = "left", sorter: Any = None) -> Tensor:
        return xt.numpy.searchsorted(self, v, side, sorter)

    def setfield(self, val: Any, dtype: Any, offset: int = 0) -> None:
        """Assign values to the bytes of each element that `getfield` returns."""
        cast(Any, self.getfield(dtype, offset))[...] = val

    def setflags(self, write: bool | None = None, align: bool | None = None, uic: bool | None = None) -> None:
        """Make this tensor read-only if write=False; other views of its memory stay as they are.

        Raises ValueError for write=True on a read-only tensor. Source: numpy.ndarray.setflags.
        """
        x = cast(Any, self)
        if uic:
            raise ValueError(expected("setflags", "uic", "be None or False", uic))
        if write and not x.is_writeable:
            raise ValueError(expected("setflags", "write", "be None or False for a read-only tensor", write))
        if write is not None and not write and x.is_writeable:
            xt.standard.methods.make_read_only(x)

    def sort(self, axis: int = -1, kind: Any = None, order: None = None, *, stable: Any = None) -> None:
        """Sort the elements along an axis, in place."""
        xt.numpy.shaping.sort_in_place(self, axis, kind, order, stable)

    def swapaxes(self, axis1: int, axis2: int) -> Tensor:
        return xt.numpy.swapaxes(self, axis1, axis2)

    def take(self, indices: Any, axis: int | None = None, out: Any = None, mode: str = "raise") -> Tensor:
        return xt.numpy.take(self, indices, axis, out, mode)

    def tobytes(self, order: Any = "C") -> bytes:
        """Return the bytes of the elements in the given order."""
        return self.host().tobytes(order)

    def tofile(self, fid: Any, sep: str = "", format: str = "%s") -> None:
        """Write the elements in C order to a file, as bytes or as text with separators."""
        self.host().tofile(fid, sep, format)

    def trace(self, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: Any = None) -> Tensor:
        return xt.numpy.trace(self, offset, axis1, axis2, dtype, out)

    @property
    def real(self) -> Tensor:
        """The real part, as a view; it can be assigned."""
        return cast("Tensor", xt.standard.methods.part_of(self, 0))

    @real.setter
    def real(self, value: Any) -> None:
        cast(Any, self).real[...] = value

    @property
    def imag(self) -> Tensor:
        """The imaginary part, as a view that can be assigned; zeros for a real tensor."""
        return cast("Tensor", xt.standard.methods.part_of(self, 1))

    @imag.setter
    def imag(self, value: Any) -> None:
        x = cast(Any, self)
        if x.dtype.kind != "c":
            raise TypeError(expected("imag", "x", "be complex to be assigned", x.dtype))
        x.imag[...] = value

    @property
    def data(self) -> Any:
        """The memory as NumPy's array, which is a buffer; raises the same errors as `__array__`. It is no memoryview:
        netCDF4 takes whatever has one as `data` for an array of NumPy.
        """
        return cast(Any, self).__array__()

    def __buffer__(self, flags: int, /) -> memoryview:
        """Return the memory as a buffer, which Python asks for from 3.12 on; raises the same errors as `__array__`."""
        return memoryview(cast(Any, self).__array__())

    @property
    def ctypes(self) -> Any:
        """The address of the memory and what goes with it, as NumPy's `ctypes`; raises the errors of `__array__`."""
        return cast(Any, self).__array__().ctypes

    @property
    def flat(self) -> Any:
        """The elements in C order, as an iterator that can be read and assigned."""
        return xt.numpy.views.Flat(self)

    @flat.setter
    def flat(self, value: Any) -> None:
        self.flat[:] = value

    @property
    def flags(self) -> Flags:
        """The memory layout, as NumPy's flags; assigning `writeable` is `setflags`."""
        return Flags(cast("Tensor", self))


class Flags:
    """NumPy's flags of a tensor, read when asked for. Source: numpy.ndarray.flags."""

    __slots__ = ("_of",)

    def __init__(self, of: Tensor) -> None:
        object.__setattr__(self, "_of", of)

    def __getattr__(self, name: str) -> Any:
        if name == "_of":  # of a copy that is being made
            raise AttributeError(name)
        return getattr(self._of.host().flags, name)

    def __reduce__(self) -> Any:
        raise TypeError("cannot copy or pickle the flags of a tensor, which are those of its memory")

    def __setattr__(self, name: str, value: Any) -> None:
        short = {"writeable": "write", "aligned": "align", "writebackifcopy": "uic"}
        if name not in short:
            raise AttributeError(f"flags: {name} cannot be assigned, only {', '.join(short)}")
        self._of.setflags(**{short[name]: value})

    def __getitem__(self, name: str) -> Any:
        return self._of.host().flags[name]

    def __setitem__(self, name: str, value: Any) -> None:
        names = {"W": "writeable", "A": "aligned", "X": "writebackifcopy"}
        names |= {one.upper(): one for one in names.values()}
        if name not in names:
            raise KeyError("Unknown flag")  # as NumPy says
        setattr(self, names[name], value)

    def __eq__(self, other: object) -> bool:
        return bool(self._of.host().flags == (other._of.host().flags if isinstance(other, Flags) else other))

    def __repr__(self) -> str:
        return repr(self._of.host().flags)


def _beside(initial: Any, where: Any) -> dict[str, Any]:
    """Return the arguments of a reduction that only NumPy has, if they are given."""
    return ({} if initial is None else {"initial": initial}) | ({} if where is True else {"where": where})


def _reduced(name: str, x: Any, axis: Any, out: Any, keepdims: bool, given: dict[str, Any], **dtype: Any) -> Tensor:
    """Return a reduction. given: arguments that only NumPy has, for the function of xtensor.numpy."""
    if given:
        return cast("Tensor", getattr(xt.numpy, name)(x, axis=axis, out=out, keepdims=keepdims, **dtype, **given))
    try:
        result = getattr(xt, name)(x, axis=axis, keepdims=keepdims, **dtype)
    except AxisError:
        if name == "mean" or xt.numpy.common.lone_axis(x, axis) is not None:
            raise
        result = getattr(xt, name)(x, axis=None, keepdims=keepdims, **dtype)
    return _given(out, name, result)


def _given(out: Any, function: str, result: Tensor) -> Tensor:
    """Return a result, written into `out` where there is one."""
    return result if out is None else cast("Tensor", xt.numpy.common.give(function, result, out))


# Errors of Python, as for an unknown keyword, name the class that users know, and `help` refers to NumPy's methods.
for _name, _method in vars(Methods).items():
    if isinstance(_method, FunctionType):
        _method.__qualname__ = f"Tensor.{_name}"
        if not (_method.__doc__ or _name.startswith("_")):
            _method.__doc__ = f"As numpy.ndarray.{_name}, of this tensor."

"""Tensor: the array users hold, a face on a value that is pending (Node) or has its bytes (TBlob).

Operators and methods call the namespace's functions by name, looked up when called; this file knows no maths.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from math import inf, prod
from operator import attrgetter
from types import ModuleType
from typing import Any, Final, cast
from weakref import ref

import numpy as np

from ..base.dtypes import INTEGER, DType, canonical
from ..base.errors import expected
from ..base.layout import Layout, Shape, dense_like
from ..base.options import active, settings, thin_closed
from ..base.profiling import noting, observers
from ..devices import Device, as_device
from ..devices.cpu import COUNTED, CPU, PLAIN, assign, is_plain
from ..graph.node import Node, Part, View
from ..plan.costs import DIRECT_BELOW
from ..run import executor as run
from ..run.executor import before_write, count_thin_write, force, look
from ..storage.blob import TBlob
from ..storage.storage import Native, Storage, first_use, handed_out, tell_of_a_look, watchers, watching
from .methods import Methods
from .operators import Operators
from .scalars import is_value, marked, valued

# The most parts of a pending tensor that are computed one by one; of more the whole is computed.
MOST_PARTS = 16

CPU_DEVICE = as_device("cpu", "xtensor")
_ARRAY = np.ndarray  # a global of this file is found faster
_asarray = np.asarray

# The namespace itself, still being filled while this file is read.
xt: Any = sys.modules[__name__.partition(".")[0]]

VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12", "2025.12")

Scalar = bool | int | float | complex
DLPackDevice = tuple[int, int]


class Tensor(Operators, Methods):
    """An array of the array API standard: shape, dtype, device, strided memory, and values that may still be pending.

    Made by the creation functions (`asarray`, `zeros`, ...), never by calling this class: it has no __init__, which
    halves the cost of making one.
    """

    __slots__ = ("__weakref__", "_blob", "_content", "_is_value", "_owner", "_step")

    __array_priority__ = 1000  # NumPy hands mixed operators to us instead of swallowing us
    # A computed NumPy array: the thin face, whose calls need nothing but NumPy. Else a pending Node, a part of one, or
    # a TBlob: memory for which no array was needed yet, on another device, constant, or with a gradient.
    _content: Any
    # Of a thin face, the owner of the memory, once one is needed: without it nobody waits for the bytes.
    _owner: Storage | None
    # Of a thin face, its description for kernels, once one is needed; the owner is then that of the description.
    _blob: TBlob | None
    # Of a value that depends on a tensor that requires a gradient, the Step that computed it; such a face is not thin.
    _step: Any
    # Whether NumPy would return this as a scalar: an element, or a result without axes. `x += y` then makes another
    # tensor, and other holders of this one see no change. Set on such tensors only: see `is_value`.
    _is_value: bool

    # ---- the value behind the face

    @property
    def value(self) -> Node | TBlob | Part:
        """The value behind this tensor: a pending Node, a part of one, or a TBlob."""
        data: Any = self._content
        return (self._blob or self._described()) if type(data) is _ARRAY else data

    @property
    def blob(self) -> TBlob:
        """The bytes, computed now if they are pending."""
        data = self._content
        kind = type(data)
        if kind is _ARRAY:
            return self._blob or self._described()
        if kind is not TBlob:
            data = self._content = force(data)
        return data

    @property
    def owner(self) -> Storage:
        """The owner of the memory, made at its first use; pending values are computed."""
        if type(self._content) is not _ARRAY:
            return self.blob.owner
        owner = self._owner
        if owner is None:
            with first_use:
                data: Any = self._content
                if type(data) is TBlob:  # another thread has captured it
                    return data.owner
                if self._owner is None:
                    self._owner = self._blob.owner if self._blob else Storage.of(data, CPU_DEVICE)
                owner = self._owner
        return owner

    def _described(self) -> TBlob:
        """Return the description of a thin face for kernels, made at its first use."""
        with first_use:
            data: Any = self._content
            if type(data) is TBlob:  # another thread has captured it
                return data
            if self._blob is None:
                self._blob = TBlob.of(self._owner, data, CPU_DEVICE)
            return self._blob

    def thin(self) -> Native | None:
        """Return the NumPy array of this tensor as a thin face, which it becomes; None if it is pending, on another
        device, constant (by `detach`), or has a gradient.
        """
        data = self._content
        if type(data) is _ARRAY:
            return data
        if type(data) is Node and data.blob is not None:
            data = data.blob
        if type(data) is not TBlob or self._step is not None or data.constant or watchers:
            return None
        if data.device is not CPU_DEVICE or not data.owner.is_allocated:
            return None
        native = data.native()
        self._blob, self._owner = data, data.owner
        self._content = native  # last: other threads read this first
        return native

    def settle(self) -> TBlob:
        """Return the bytes, and stop being a thin face, as a tensor that will carry a step must not take shortcuts."""
        blob = self._content = self.blob
        return blob

    @property
    def is_pending(self) -> bool:
        """Whether the values are still to be computed."""
        data = self._content
        return type(data) in (Node, Part) and data.blob is None

    def evaluate(self) -> Tensor:
        """Compute the values now, if they are pending, and return this tensor."""
        if type(self._content) is not _ARRAY:
            _ = self.blob
        return self

    def native(self) -> Native:
        """Return the device library's own array over this memory, for reading only."""
        data = self._content
        if type(data) is _ARRAY:
            if watchers:
                tell_of_a_look()
            return data
        return look(data) if type(data) is Part else self.blob.native()

    def exported(self) -> Native:
        """Return the native array for code outside of xtensor, which may write to it from now on."""
        native = self.blob.exported()  # first, so that no other thread records a reader in between
        before_write(self.owner)
        return native

    def viewed(self, layout: Layout, *, writeable: bool = True, dtype: DType | None = None) -> Tensor:
        """Return another view of this tensor's memory."""
        return face(self.blob.view(layout, writeable=writeable, dtype=dtype))

    def window(self, native: Native) -> Tensor:
        """Return a view of a thin face, or of evaluated memory on another device, given as a view of its array."""
        tensor, data = Tensor(), self._content
        tensor._owner = tensor._blob = tensor._step = None
        if type(data) is TBlob:
            tensor._content = data.window(native)
        else:
            tensor._content, tensor._owner = native, self._owner or self.owner
        return tensor

    def view(self, dtype: Any = None, type: Any = None) -> Tensor:
        """Return a view of the same bytes as another dtype; the length of the last axis is adapted. A class of NumPy's
        arrays, as either, gives one of these over the memory; `np.ndarray` changes nothing.

        Gradients pass only between complex numbers and their parts; an integer view of a tensor that has a gradient is
        read-only, as is the copy that a foreign byte order takes. A view as raw bytes or records ("V8") is NumPy's, and
        raises as `__array__` does. Raises ValueError if the bytes do not divide evenly.
        """
        seen = self if type is None or dtype is None else xt.standard.methods.view_as(self, dtype)
        return xt.standard.methods.view_as(seen, dtype if type is None else type)

    def resize(self, *shape: Any, refcheck: bool = True, keep_on_shrink: bool = True) -> Tensor:
        """Change the shape in place, packed in C order, and return this tensor; new elements are 0.

        A packed tensor that does not grow keeps its memory (`TBlob.resize`). Otherwise it gets new memory, and views
        keep the old, whatever `refcheck` says. Pending readers finish first. Raises RuntimeError for a detached tensor
        and one that has a gradient, ValueError for a read-only one. Source: numpy.ndarray.resize.
        """
        if self.requires_grad:
            raise RuntimeError(expected("resize", "x", "not have a gradient (use detach() or no_grad())", "one"))
        return xt.standard.methods.resized(self, shape[0] if len(shape) == 1 else shape, keep_on_shrink)

    def detach(self) -> Tensor:
        """Return a constant that shares this memory and whose metadata cannot be changed.

        Values written through it have no gradient, and no gradient reaches this tensor through it.
        """
        return marked(face(self.blob.detach()), is_value(self))

    # ---- gradients (autograd.py)

    @property
    def requires_grad(self) -> bool:
        """Whether the values depend on a tensor whose gradient is wanted; set it to make this tensor one of these.

        Raises TypeError if the dtype is not floating-point, RuntimeError when set to False on a computed tensor.
        """
        return self._step is not None or xt.autograd.tape.step_of(self) is not None

    @requires_grad.setter
    def requires_grad(self, wanted: bool) -> None:
        xt.autograd.direct.require(self, wanted)

    @property
    def grad(self) -> Tensor | None:
        """The gradient accumulated by backward() for this leaf; None before, and for other tensors. Can be set."""
        return xt.autograd.direct.grad_of(self)

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        xt.autograd.direct.set_grad(self, value)

    def backward(self, gradient: Any = None, *, retain_graph: bool = False) -> None:
        """Add this tensor's gradient to `.grad` of all leaves that it depends on.

        gradient: the cotangent, of this tensor's shape; a real scalar needs none. retain_graph: keep the tape for
        another call. Raises RuntimeError for a constant and a tape that was used up, ValueError for a wrong shape, and
        NotImplementedError for a function without a rule. Source: torch.Tensor.backward.
        """
        xt.autograd.direct.backward(self, gradient, retain_graph=retain_graph)

    # ---- its properties; attrgetter makes some that are read at the speed of C

    shape: Final[Shape] = cast(
        Any,
        property(attrgetter("_content.shape"), Methods._reshape_in_place, doc="Length of each axis, a tuple of ints."),
    )
    dtype: Final[DType] = cast(Any, property(attrgetter("_content.dtype"), doc="The data type, a numpy.dtype."))

    @property
    def device(self) -> Device:
        """The device that the memory is on."""
        data = self._content
        return CPU_DEVICE if type(data) is _ARRAY else data.device

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements, without gaps between them."""
        return self.size * self.dtype.itemsize

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from one element to the next along each axis."""
        data = self._content
        return data.strides if type(data) is _ARRAY else self.blob.layout.strides

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements are in C order without gaps."""
        return self.blob.is_contiguous

    @property
    def is_channels_last(self) -> bool:
        """Whether a (N, C, spatial...) tensor of 3 to 5 axes is packed as (N, spatial..., C)."""
        return self.blob.is_channels_last

    @property
    def is_writeable(self) -> bool:
        """Whether elements can be assigned; they cannot in broadcast memory and in imported read-only memory."""
        data = self._content
        return data.flags.writeable if type(data) is _ARRAY else self.blob.writeable

    @property
    def version(self) -> int:
        """How often the memory behind this tensor was written since this number, or a view, was first asked for."""
        return self.owner.version

    def flat_2d(self) -> Tensor:
        """Return a view of shape (rows, columns) in which all axes but the last form the rows (mshadow's FlatTo2D).

        Raises ValueError if the strides do not allow it without a copy.
        """
        return xt.standard.methods.flat_2d(self)

    @property
    def T(self) -> Tensor:  # noqa: N802 - the standard's name
        """The transpose of a matrix, as a view. Other arrays have their axes reversed, as in NumPy."""
        data = self._content
        if type(data) is _ARRAY and data.ndim > 1 and not thin_closed[0]:
            return self.window(data.T)
        if self.ndim == 2:
            return xt.matrix_transpose(self)
        return self if is_value(self) else xt.permute_dims(self, tuple(range(self.ndim))[::-1])

    @property
    def mT(self) -> Tensor:  # noqa: N802 - the standard's name
        """The transpose of a stack of matrices, shape (..., n, m), as a view."""
        return xt.matrix_transpose(self)

    # ---- the standard's protocol methods

    def __array_namespace__(self, /, *, api_version: str | None = None) -> ModuleType:
        """Return the xtensor namespace; raises ValueError for a version of the standard that it does not follow."""
        if api_version is not None and api_version not in VERSIONS:
            raise ValueError(expected("__array_namespace__", "api_version", f"be one of {VERSIONS}", repr(api_version)))
        return xt

    def to_device(self, device: Device | str, /, *, stream: Any = None) -> Tensor:
        """Return this tensor on the given device; the tensor itself if it is there already.

        Raises ValueError for a device that does not exist, or a stream that the device does not have.
        """
        target = as_device(device, "to_device")
        if stream is None:
            return self if target == self.device else xt.standard.methods.moved(self, target)
        backend: Any = next((one.backend for one in (target, self.device) if one != "cpu"), None)
        if backend is None:
            raise ValueError(expected("to_device", "stream", f"be None on {target}", repr(stream)))
        return backend.on_stream(stream, self.to_device, target)

    def __dlpack_device__(self) -> DLPackDevice:
        """Return (device type, device id) as DLPack numbers them."""
        return self.device.backend.dlpack_device

    def __dlpack__(
        self,
        /,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: DLPackDevice | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Return a DLPack capsule of the memory, or of a copy on the CPU for dl_device=(1, 0).

        stream: the consumer's, on a CUDA device; it then waits for CuPy's current one. Negative, broadcast and
        read-only layouts are exported as compact copies, and so are gaps if the consumer asks for an unversioned
        capsule (JAX takes no others). Raises BufferError if copy=False forbids such a copy, for a stream on the CPU,
        for another device, and for a tensor that has a gradient.
        """
        self._refuse_to_leave("__dlpack__", BufferError)
        return xt.standard.methods.capsule(self, stream, max_version, dl_device, copy)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """Return a numpy.ndarray, over the same memory if dtype and `copy` allow it.

        Raises RuntimeError for a tensor that has a gradient, which would be lost, TypeError for one that is not on the
        CPU.
        """
        self._refuse_to_leave("__array__", RuntimeError)
        if self.device != "cpu":
            must = "be on the CPU (copy it there with x.to_device('cpu'))"
            raise TypeError(expected("__array__", "x", must, f"one on {self.device}"))
        wanted = self.dtype if dtype is None else np.dtype(dtype)
        if copy or wanted != self.dtype:
            if copy is False:
                raise ValueError(expected("__array__", "dtype", f"be {self.dtype} when copy=False", wanted))
            return np.array(self.native(), dtype=wanted)
        return self.exported().view()

    def _refuse_to_leave(self, function: str, error: type[Exception]) -> None:
        """Raise an error if leaving xtensor would lose a gradient that may still be asked for."""
        if active[0] and self.requires_grad and xt.autograd.tape.is_recording() and settings().gradients != "always":
            must = "not have a gradient, which would be lost (use x.detach(), or `with xt.no_grad():`)"
            raise error(expected(function, "x", must, "one"))

    def numpy(self) -> np.ndarray[Any, Any]:
        """Return a numpy.ndarray over the same memory; raises RuntimeError for a tensor that has a gradient."""
        return self.__array__()

    def host(self) -> np.ndarray[Any, Any]:
        """Return a NumPy array for reading: of this memory on the CPU, of a copy for other devices."""
        return self.device.backend.host(self.native())

    # ---- Python's protocols

    def _scalar(self, function: str, is_real: bool = False) -> Any:
        if is_real and self.dtype.kind == "c":
            raise TypeError(expected(function, "x", "be real", self.dtype))
        if self.ndim:
            raise TypeError(expected(function, "x", "have 0 axes", f"shape {self.shape}"))
        if watchers:
            told = bool(self) if self.dtype.kind == "b" else handed_out(self) if function == "float" else None
            if told is not None:
                return told
        native = self.native()
        return (native if type(native) is _ARRAY else self.host())[()]

    def __bool__(self) -> bool:
        data = self._content
        if type(data) is _ARRAY and data.size == 1 and not watchers:
            return data.__bool__()
        if self.size != 1:
            must = "have one element (use any() or all())"
            raise ValueError(expected("bool", "x", must, f"shape {self.shape}"))
        capture = watching() if watchers else None
        if capture is not None:
            return bool(capture.decides(xt.astype(self, np.dtype(np.bool)).evaluate().blob))
        native = self.native()
        return bool(native if type(native) is _ARRAY else self.host())

    def __int__(self) -> int:
        return int(self._scalar("int", is_real=True))

    def __float__(self) -> float:
        data = self._content
        if type(data) is _ARRAY and not data.ndim and data.dtype.kind != "c" and not watchers:
            return data.__float__()
        return float(self._scalar("float", is_real=True))

    def __complex__(self) -> complex:
        return complex(self._scalar("complex"))

    def __index__(self) -> int:
        data = self._content
        if type(data) is _ARRAY and not data.ndim and data.dtype.kind in "iu" and not watchers:
            return data.__index__()
        INTEGER.check(self.dtype, "index", "x")
        return int(self._scalar("index"))

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError(expected("len", "x", "have at least 1 axis", "shape ()"))
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        if not self.shape:
            raise TypeError(expected("iter", "x", "have at least 1 axis", "shape ()"))
        items = map(self.__getitem__, range(self.shape[0]))
        return self._pending_items(items) if self.is_pending else items

    def _pending_items(self, items: Iterator[Tensor]) -> Iterator[Tensor]:
        if self.shape[0] > MOST_PARTS and not watchers:
            self.evaluate()  # as soon as one is asked for: all will be, and each would be computed by itself
        yield from items

    def __contains__(self, value: Any) -> bool:
        return bool(xt.any(self == value))

    def __repr__(self) -> str:
        text = np.array2string(self.host(), separator=", ", prefix="Tensor(")
        shape = "" if self.size else f", shape={self.shape}"
        return f"Tensor({text}{shape}, dtype={self.dtype})"

    def _repr_html_(self) -> str:
        from .picture import html_of  # loaded only when it is shown

        return html_of(self)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        """Return what IPython shows of a pending tensor; otherwise it would call `repr`, which computes the values."""
        from .picture import bundle_of

        return bundle_of(self)

    def __str__(self) -> str:
        return str(self.host())

    def __format__(self, spec: str) -> str:
        try:
            return format(self.item() if self.ndim == 0 else str(self), spec)
        except ValueError as error:
            if not self.shape:
                raise
            must = f"have no axes, to be formatted as {spec!r}"
            raise TypeError(expected("format", "x", must, f"shape {self.shape}")) from error

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Pickle as a packed NumPy array, in C or Fortran order, which protocol 5 sends out of band.

        A leaf remains a leaf, without its .grad. Raises RuntimeError for a computed tensor that has a gradient.
        """
        leaf = xt.autograd.direct.is_leaf(self)
        if not leaf:
            self._refuse_to_leave("pickle", RuntimeError)
        native = self.device.backend.host(self.exported() if protocol >= 5 else self.native())
        packed = native if native.flags.forc else np.ascontiguousarray(native).reshape(self.shape)
        return _unpickle, (packed, self.device, leaf, is_value(self))

    def __copy__(self) -> Tensor:
        return self.copy("K")

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        """Return a copy: for a leaf another leaf with a copy of its .grad, for other tensors the result of copy()."""
        if not xt.autograd.direct.is_leaf(self):
            return self.copy("K")
        copy = self.detach().copy("K")
        copy.requires_grad = True
        copy.grad = None if self.grad is None else self.grad.copy("K")
        return copy

    def __getitem__(self, key: Any, /) -> Tensor:
        data = self._content
        if type(data) is _ARRAY and not thin_closed[0]:
            kind = type(key)
            if kind is tuple:
                for one in key:
                    if type(one) not in PLAIN:
                        return xt.standard.indexing.subscript(self, key)
            elif kind not in PLAIN:
                return self._selected(data, key)
            try:
                view = data[key]
            except IndexError:  # the long way reports what is wrong
                return xt.standard.indexing.subscript(self, key)
            tensor = Tensor()
            if type(view) is _ARRAY:
                if not data.ndim and is_value(self):  # of which a copy is seen
                    return xt.standard.indexing.subscript(self, key)
                tensor._content = view
                tensor._owner = self._owner or self.owner
            else:  # all integers: a value, as NumPy's scalar is
                tensor._content, tensor._owner = _asarray(view), None
                tensor._is_value = True
            tensor._blob = tensor._step = None
            return tensor
        return xt.standard.indexing.subscript(self, key)

    def _selected(self, data: Native, key: Any) -> Tensor:
        """Return the elements that a mask or integers select, for other keys than basic ones."""
        index = key._content if type(key) is Tensor else key
        is_array = type(index) is _ARRAY and index.dtype.kind in ("biu" if index.ndim else "b")
        if is_array or (type(index) is list and {*map(type, index)} == {int}):
            try:
                return wrap(data[index] if data.nbytes <= DIRECT_BELOW else CPU.index(data, index), CPU_DEVICE)
            except IndexError:
                pass
        return xt.standard.indexing.subscript(self, key)

    def __setitem__(self, key: Any, value: Any, /) -> None:
        data, owner = self._content, self._owner
        free = self._blob is None if owner is None else owner.guard is None
        given = value._content if type(value) is Tensor else value
        if owner is not None:
            owner.changes += 1  # at the start too: an interrupt may come before the write is counted
        try:
            free = free and type(data) is _ARRAY and not thin_closed[0] and is_plain(key)
            done = free and assign(data, key, given)
        except BaseException:  # an interrupt, perhaps after the write
            count_thin_write(self)
            raise
        if not done:
            xt.standard.indexing.setitem(self, key, value)
        elif self._owner is not None or self._blob is not None:  # else there is nothing to count, which saves a call
            count_thin_write(self)


def face(value: Node | TBlob | Part) -> Tensor:
    """Return a tensor over a value."""
    tensor = Tensor()
    if type(value) is Node:
        value.face = ref(tensor)
        if not value.shape and type(value.op) is not View:
            tensor._is_value = True
    tensor._content = value
    tensor._owner = tensor._blob = tensor._step = None
    return tensor


def small(x: Tensor, most: int = DIRECT_BELOW) -> Native | None:
    """Return the NumPy array of a thin face of at most `most` bytes, for which NumPy costs less than recording."""
    data = x._content
    return data if type(data) is _ARRAY and data.nbytes <= most else None


def thin_arrays(*operands: Any, most: float = inf) -> list[Native] | None:
    """Return the NumPy arrays of operands if all are thin faces of at most `most` bytes, else None."""
    natives = []
    for x in operands:
        native = x._content if type(x) is Tensor else None
        if thin_closed[0] or type(native) is not _ARRAY or native.nbytes > most:
            return None
        natives.append(native)
    return natives


def wrap(native: Native, device: Device) -> Tensor:
    """Return a tensor over a fresh native array that nothing else holds, or over a NumPy scalar."""
    if device is not CPU_DEVICE:
        return face(TBlob.adopt(device.backend.asarray(native), device))
    tensor = Tensor()
    if type(native) is not _ARRAY:
        native = _asarray(native)
        tensor._is_value = not native.ndim
    tensor._content = native
    tensor._owner = tensor._blob = tensor._step = None
    return tensor


def created(native: Native, device: Device) -> Tensor:
    """Return a tensor over a fresh native array whose elements depend on Python constants alone."""
    capture = watching() if watchers else None
    return wrap(native, device) if capture is None else face(capture.created(native, device))


def made_of(array: Native, native: Native, device: Device) -> Tensor:
    """Return a tensor over a fresh native array that was made from a NumPy array."""
    capture = watching() if watchers else None
    return created(native, device) if capture is not None and capture.takes(array) else wrap(native, device)


def settled(native: Native, device: Device) -> Tensor:
    """Return a tensor over a fresh native array that is not a thin face, because it will carry a step."""
    tensor = Tensor()
    tensor._content = TBlob.of(None, native, device)
    tensor._owner = tensor._blob = tensor._step = None
    return valued(tensor)


def from_native(native: Native, device: Device | None = None, *, shared: bool = False) -> Tensor:
    """Return a tensor over a native array, in xtensor's dtypes and byte order, moved to the device.

    shared: whether others may write to the array, which is then not read later until they have released it.
    Raises TypeError for a dtype that xtensor cannot hold.
    """
    dtype = canonical(native.dtype, "asarray")
    target = device or as_device(settings().device, "asarray")
    array = native if shared else None
    if (type(native) is not _ARRAY or target.backend is not CPU) and not target.backend.owns(native):
        native, shared = target.backend.asarray(native, dtype), shared and target.backend is CPU
    elif native.dtype != dtype:
        native, shared = target.backend.astype(native, dtype), False
    if shared and target.backend is CPU:
        native = native.view()  # nobody else can change the shape of the view
        if native.nbytes <= COUNTED and not watchers:
            tensor = wrap(native, target)
            tensor.owner.expose(None)
        else:
            tensor = face(TBlob.adopt(native, target, shared=True))
            tensor.thin()
            if watchers and (capture := watching()) is not None:
                capture.imported(tensor.owner, native)
        return tensor
    return wrap(native, target) if array is None or array is native else made_of(array, native, target)


def evaluate(*tensors: Tensor) -> None:
    """Compute the values of all given tensors that are pending; raises TypeError for other objects."""
    for x in tensors:
        if not isinstance(x, Tensor):
            raise TypeError(expected("evaluate", "tensors", "be tensors", type(x).__name__))
    nodes = [x._content for x in tensors if type(x._content) is Node]
    while nodes:  # nodes evaluated together are on one device
        device = nodes[0].device
        run.evaluate([node for node in nodes if node.device is device])
        nodes = [node for node in nodes if node.device is not device]
    for x in tensors:
        x.evaluate()


def _unpickle(native: Native, device: Device, leaf: bool = False, value: bool = False) -> Tensor:
    """Return a pickled tensor, marked as a value or not; memory that came out of band may have other owners."""
    x = from_native(native, device, shared=not native.flags.owndata)
    x.requires_grad = leaf
    return marked(x, value)


def dense_copy(blob: TBlob) -> Native:
    """Return a packed writable copy of a blob's elements, axes in their order in memory."""
    itemsize = blob.dtype.itemsize
    copy = TBlob.empty(blob.shape, blob.dtype, blob.device)
    copy = copy.view(dense_like(blob.layout, itemsize))
    backend = blob.device.backend
    assign = noting(backend.assign, backend, "copy") if observers else backend.assign
    assign(copy.native(), ..., blob.native())
    return copy.native()

"""Buffer, an allocation on one device, and TBlob, a typed strided view of it: everything known only at run time.

TBlob is mshadow's type erasure (TBlob) with PyTorch's TensorImpl rules: shared storage plus shape, strides and
offset; memory allocated when first needed; resize within capacity; shallow copies; a version counter.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from ctypes import addressof, c_char
from math import prod
from threading import local
from typing import TYPE_CHECKING, Any, Protocol

from ..base.dtypes import DType
from ..base.errors import expected
from ..base.layout import Layout, Shape, as_shape, c_strides, contiguous
from ..base.locks import fork_safe_lock

if TYPE_CHECKING:
    from ..devices import Device

# Held where something is made at its first use: two threads must not make two buffers over the same bytes.
first_use = fork_safe_lock()

# How many buffers were written while a gradient was recorded: while it is 0 nobody asks for their history.
histories = [0]

# Held while a list of readers changes.
reading = fork_safe_lock()

# From how many readers on dead ones are looked for.
MANY_READERS = 64

Native = Any  # a numpy.ndarray or a cupy.ndarray


class Readers(list["weakref.ref[Any]"]):
    """Weak references to the pending nodes that will read some bytes; threads may add to it at once."""

    __slots__ = ()

    def add(self, reference: weakref.ref[Any]) -> None:
        """Remember a node; dead and finished ones are dropped as often as their number doubles.

        Appending needs no lock, and forgetting only replaces what was there before: no thread loses what another adds.
        """
        self.append(reference)
        if len(self) >= MANY_READERS:
            self.forget()

    def forget(self) -> None:
        """Drop dead and finished nodes where their number has doubled."""
        if not len(self) & (len(self) - 1):
            self.waiting()

    def waiting(self) -> list[Any]:
        """Return the nodes that are alive and still wait to read; forget the others."""
        if not self:
            return []
        with reading:
            count = len(self)
            alive = [(node, reference) for reference in self[:count] if (node := _pending(reference)) is not None]
            if len(alive) < count:
                self[:count] = [reference for _, reference in alive]
            return [node for node, _ in alive]


def _pending(reference: weakref.ref[Any]) -> Any:
    """Return the node behind a reference if it is alive and not yet evaluated, else None."""
    node = reference()
    return node if node is not None and node.blob is None else None


def _nobody_knows() -> bool:
    """The lender of memory that may be held for ever."""
    return True


class _Trusted(local):
    """The buffers that this thread reads as if nobody outside could write to them: see `run.at_once`."""

    buffers: frozenset[Buffer] = frozenset()


trusted = _Trusted()


class Watcher(Protocol):
    """Who is told what happens to buffers: their bytes are asked for, written, or seen through another view."""

    def looked(self, buffer: Buffer) -> None: ...
    def written(self, buffer: Buffer) -> None: ...
    def viewed(self, blob: TBlob, view: TBlob) -> None: ...


# Those who watch at the moment, nearly always nobody.
watchers: list[Watcher] = []


class Buffer:
    """One allocation on one device.

    storage: the bytes, a 1-d uint8 array of the device's library; allocated when they or their address are first
        asked for.
    version: how often it has been written.
    readers: the pending nodes that read it.
    savers: who kept views of it for a gradient, None before the first.
    history: what was written into it while a gradient was recorded, None before the first such write.
    shared: whether someone outside xtensor was able to write to it when that was last asked (imported or exported
        without a copy); `is_exposed` asks.
    lender: of imported memory, what returns None once nobody else holds it. borrower: of exported memory, a reference
        to what lives as long as somebody does. Both are None where there is none.
    """

    __slots__ = (
        "_address",
        "_memory",
        "_storage",
        "_version",
        "borrower",
        "device",
        "history",
        "lender",
        "nbytes",
        "readers",
        "savers",
        "shared",
    )

    def __init__(self, device: Device, nbytes: int, storage: Native = None, *, shared: bool = False) -> None:
        self.device = device
        self.nbytes = nbytes
        self.shared = shared
        self.lender: Callable[[], Any] | None = _nobody_knows if shared else None
        self.borrower: weakref.ref[Any] | None = None
        self._version = 0
        self._storage = storage
        self._memory: Any = None  # what keeps the bytes alive of which nobody has asked for an array
        self._address: int | None = None
        self.readers = Readers()
        self.savers: Readers | None = None
        self.history: Any = None

    def __repr__(self) -> str:
        state = "allocated" if self.is_allocated else "not allocated"
        return f"Buffer({self.nbytes} bytes on {self.device}, {state}, version {self.version})"

    def is_exposed(self) -> bool:
        """Return whether someone outside can write to it: such memory is never read later than it is asked for."""
        if not self.shared or self in trusted.buffers:
            return False
        if self._is_held():
            return True
        with first_use:  # nobody comes to hold it meanwhile
            if not self._is_held():
                self.shared = False
            return self.shared

    def _is_held(self) -> bool:
        lender, borrower = self.lender, self.borrower
        return (lender is not None and lender() is not None) or (borrower is not None and borrower() is not None)

    def expose(self, lender: Callable[[], Any] | None) -> None:
        """Take note that someone outside can write to it: as long as `lender` does not return None, or for ever."""
        trusted.buffers = frozenset()  # others of them may be the same memory
        with first_use:
            self.shared, self.lender = True, lender or _nobody_knows

    def hand_out(self) -> Native | None:
        """Return the bytes for somebody outside, who can write to them as long as the array or a view of it lives; None
        where nobody can tell how long that is.
        """
        given = self.device.backend.handed_out(self.storage)
        if given is None:
            self.expose(None)
            return None
        trusted.buffers = frozenset()
        with first_use:
            before = None if self.borrower is None else self.borrower()
            self.shared = True
            if before is None:
                self.borrower = weakref.ref(given)
        return given if before is None else before

    def saved_by(self, reference: weakref.ref[Any]) -> None:
        """Remember somebody who kept a view for a gradient: he copies it before the next write."""
        if self.savers is None:
            self.savers = Readers()
        self.savers.add(reference)

    @property
    def version(self) -> int:
        return self._version

    @version.setter
    def version(self, version: int) -> None:
        self._version = version
        for watcher in tuple(watchers):
            watcher.written(self)

    @property
    def is_allocated(self) -> bool:
        return self._storage is not None or self._memory is not None

    @property
    def storage(self) -> Native:
        """The bytes, allocated at the first request; raises MemoryError when there is no room for them."""
        if watchers:
            self._tell()
        if self._storage is None:
            with first_use:
                if self._storage is None:
                    address = self.lend()
                    self._storage = self.device.backend.cut(self._memory, address, self.nbytes)
        return self._storage

    def lend(self) -> int:
        """Allocate the bytes if they are not; return their address. For who holds `first_use`, or is alone yet."""
        if self._address is None:
            self._memory, self._address = self.device.backend.lend(self.nbytes)
        return self._address

    @property
    def address(self) -> int:
        """Where the bytes are, for generated code; raises MemoryError as `storage` does."""
        if watchers:
            self._tell()
        address = self._address
        if address is None:
            if self._storage is not None:
                address = self._address = _address_of(self._storage)
            else:
                with first_use:
                    address = self.lend()
        return address

    def _tell(self) -> None:
        for watcher in tuple(watchers):
            watcher.looked(self)


def _address_of(native: Native) -> int:
    """Return where a native array begins: by its buffer, in a fifth of the time that NumPy takes to describe it."""
    try:
        return addressof(c_char.from_buffer(native))
    except (TypeError, ValueError, BufferError):  # read-only, empty, not in one piece, or on a CUDA device
        interface = getattr(native, "__array_interface__", None)
        return int(native.data.ptr if interface is None else interface["data"][0])


class TBlob:
    """A typed, strided view of a Buffer: dtype and layout are run-time values.

    It carries no algorithms; `native()` gives the NumPy or CuPy array that has them.

    detached: whether it was made by detach(), so that its metadata cannot be changed.
    constant: whether it, or what it is a view of, was: what is written into the memory gives it no gradient.
    fixed: whether its bytes never change: what the library keeps for itself.
    saver: a weak reference to who kept this view for a gradient, None if nobody did.
    """

    __slots__ = (
        "_address",
        "_buffer",
        "_layout",
        "_native",
        "_packed",
        "constant",
        "detached",
        "device",
        "dtype",
        "fixed",
        "saver",
        "writeable",
    )

    def __init__(
        self, buffer: Buffer | None, dtype: DType, layout: Layout | None, device: Device, *, writeable: bool = True
    ) -> None:
        self._buffer = buffer
        self._layout = layout
        self._native: Native = None
        self._packed: bool | None = None
        self._address: int | None = None
        self.dtype = dtype
        self.device = device
        self.writeable = writeable
        self.detached = False
        self.constant = False
        self.fixed = False
        self.saver: weakref.ref[Any] | None = None

    def __repr__(self) -> str:
        return f"TBlob(shape={self.shape}, dtype={self.dtype}, device={self.device})"

    @classmethod
    def empty(cls, shape: Shape, dtype: DType, device: Device) -> TBlob:
        """Return a packed blob whose memory is allocated when first needed."""
        return cls(Buffer(device, prod(shape) * dtype.itemsize), dtype, contiguous(shape, dtype.itemsize), device)

    @classmethod
    def adopt(cls, native: Native, device: Device, *, shared: bool = False) -> TBlob:
        """Return a blob over the memory of a native array; its Buffer is made when somebody asks for it."""
        blob = cls(None, native.dtype, None, device, writeable=getattr(native.flags, "writeable", True))
        blob._native = native
        if shared:
            borrowed = device.backend.borrowed(native)
            if borrowed is None:
                blob.buffer.expose(None)
            else:
                storage, blob._layout, lender = borrowed
                blob._buffer, blob._native = Buffer(device, storage.nbytes, storage), None
                blob._buffer.expose(lender)
        return blob

    @property
    def buffer(self) -> Buffer:
        """The allocation behind the view."""
        if self._buffer is None:
            with first_use:
                self._make_buffer()
        assert self._buffer is not None
        return self._buffer

    def _make_buffer(self) -> None:
        if self._buffer is None:
            storage, self._layout = self.device.backend.storage_of(self._native)
            self._buffer = Buffer(self.device, storage.nbytes, storage)
            if self.saver is not None:
                self._buffer.saved_by(self.saver)

    @property
    def layout(self) -> Layout:
        """Shape, strides and offset in the buffer."""
        if self._layout is None:
            _ = self.buffer
        assert self._layout is not None
        return self._layout

    @property
    def shape(self) -> Shape:
        return self._native.shape if self._layout is None else self._layout.shape

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize

    @property
    def is_contiguous(self) -> bool:
        return self.layout.is_contiguous(self.dtype.itemsize)

    @property
    def address(self) -> int:
        """Where the first element is, for generated code; raises MemoryError where there is no room for it."""
        if self._address is None:
            self._address = self.buffer.address + self.layout.offset
        return self._address

    @property
    def is_packed(self) -> bool:
        """The same, remembered: an evaluation asks for every operand."""
        if self._packed is None:
            self._packed = self.is_contiguous
        return self._packed

    @property
    def is_channels_last(self) -> bool:
        return self.layout.is_channels_last(self.dtype.itemsize)

    def native(self) -> Native:
        """Return the device library's array over this memory; allocates it if nothing was written yet."""
        if self._native is None:
            storage = self.buffer.storage
            self._native = self.device.backend.view(storage, self.dtype, self.layout, self.writeable)
        return self._native

    def exported(self) -> Native:
        """Return the native array for someone outside, who may write to it as long as it lives."""
        given = self.buffer.hand_out()
        if given is None:
            return self.native()
        return self.device.backend.view(given, self.dtype, self.layout, self.writeable)

    def view(self, layout: Layout, *, writeable: bool = True, dtype: DType | None = None) -> TBlob:
        """Return another view of the same buffer; read-only views stay read-only."""
        view = TBlob(self.buffer, dtype or self.dtype, layout, self.device, writeable=writeable and self.writeable)
        view.constant, view.fixed = self.constant, self.fixed
        for watcher in tuple(watchers) if watchers else ():
            watcher.viewed(self, view)
        return view

    def showing(self, native: Native) -> TBlob:
        """Return the view of the same buffer that a native array, itself a view of this one's, shows."""
        offset = self.layout.offset
        if native.size:
            offset += _address_of(native) - _address_of(self.native())
        writeable = self.writeable and native.flags.writeable
        layout = Layout(native.shape, native.strides, offset)
        blob = TBlob(self.buffer, native.dtype, layout, self.device, writeable=writeable)
        blob._native = native
        blob.constant = self.constant
        for watcher in tuple(watchers) if watchers else ():
            watcher.viewed(self, blob)
        return blob

    def flat_2d(self) -> TBlob | None:
        """Return the view as (rows, columns), or None where that would need a copy (mshadow's FlatTo2D)."""
        layout = self.layout.flat_2d()
        return None if layout is None else self.view(layout)

    # ---- TensorImpl's bookkeeping

    def shallow_copy(self) -> TBlob:
        """Return a second view of the same memory with metadata of its own."""
        return self.view(self.layout)

    def detach(self) -> TBlob:
        """Return a shallow copy whose metadata cannot be changed (TensorImpl's allow_tensor_metadata_change)."""
        copy = self.shallow_copy()
        copy.detached = copy.constant = True
        return copy

    def resize(self, shape: Any, *, keep_on_shrink: bool = True) -> None:
        """Change the shape in place to a packed one (TensorImpl::Resize).

        The memory is kept while the new size fits its capacity (with `keep_on_shrink=False` only while the
        size stays equal); otherwise this view moves to new memory, allocated when first written, and the
        contents are dropped. Other views of the old buffer keep it. A tensor is resized by Tensor.resize, which
        also lets pending readers finish first. Raises RuntimeError on a detached blob
        and ValueError on a read-only one.
        """
        self._refuse_detached("resize")
        if not self.writeable:
            raise ValueError(expected("resize", "blob", "be writable", "a read-only view"))
        lengths = as_shape(shape, "resize")
        itemsize = self.dtype.itemsize
        start, needed = self.layout.extent(itemsize)[0], prod(lengths) * itemsize
        capacity = self.buffer.nbytes - start
        if needed > capacity or (needed < capacity and not keep_on_shrink):
            self._buffer, start = Buffer(self.device, needed), 0
        self._layout = Layout(lengths, c_strides(lengths, itemsize), start)
        self._native = self._packed = self._address = None

    def reserve(self, shape: Any) -> None:
        """Make room for `shape` without changing this shape; the contents move along (ReserveSpace).

        Raises RuntimeError on a detached blob.
        """
        self._refuse_detached("reserve")
        capacity = prod(as_shape(shape, "reserve")) * self.dtype.itemsize
        if capacity <= self.buffer.nbytes:
            return
        packed = contiguous(self.shape, self.dtype.itemsize)
        grown = TBlob(Buffer(self.device, capacity), self.dtype, packed, self.device)
        if self.buffer.is_allocated:
            self.device.backend.assign(grown.native(), ..., self.native())
        self._buffer, self._layout = grown.buffer, grown.layout
        self._native = self._packed = self._address = None

    def _refuse_detached(self, function: str) -> None:
        if self.detached:
            raise RuntimeError(expected(function, "blob", "not be a detached copy", "one made by detach()"))


class Window:
    """What stands behind a view that is known by its native array alone, until somebody asks for its blob.

    over: the blob whose memory it shows.
    """

    __slots__ = ("over",)

    def __init__(self, over: TBlob) -> None:
        self.over = over

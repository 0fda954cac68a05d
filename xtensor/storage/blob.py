"""TBlob: a typed strided view of a Storage, with everything known only at run time.

It is mshadow's type erasure (TBlob) with PyTorch's TensorImpl rules: shared storage plus shape, strides and offset;
memory allocated when first needed; resize within capacity; shallow copies. It describes arrays to kernels, and other
libraries' memory.
"""

from __future__ import annotations

import weakref
from math import prod
from typing import TYPE_CHECKING, Any

from ..base.dtypes import DType
from ..base.errors import expected
from ..base.layout import Layout, Shape, as_shape, c_strides, contiguous
from .storage import Guard, Native, Storage, address_of, first_use

if TYPE_CHECKING:
    from ..devices import Device


class TBlob:
    """A typed, strided view of a Storage: dtype and layout are run-time values.

    It carries no algorithms; `native()` gives the NumPy or CuPy array that has them.

    detached: whether it was made by detach(), so that its metadata cannot be changed.
    constant: whether it, or its base, was: values written into the memory give it no gradient.
    fixed: whether its bytes never change, as those of the package's own constants.
    saver: a weak reference to the Saved that keeps this view for a gradient, None if there is none.
    _placement: cached by small calls on its device (see calls/elsewhere.py).
    """

    __slots__ = (
        "_address",
        "_kind",
        "_layout",
        "_native",
        "_owner",
        "_packed",
        "_placement",
        "_span",
        "constant",
        "detached",
        "device",
        "dtype",
        "fixed",
        "saver",
        "shape",
        "writeable",
    )

    def __init__(
        self,
        owner: Storage | None,
        dtype: DType,
        layout: Layout | None,
        device: Device,
        *,
        writeable: bool = True,
        native: Native = None,
    ) -> None:
        self._owner = owner
        self._layout = layout
        self._native: Native = native
        self._packed: bool | None = None
        self._address: int | None = None
        self._kind: tuple[Any, ...] | None = None
        self._placement: Any = None
        self._span: tuple[int, int] | None = None
        self.shape: Shape = native.shape if layout is None else layout.shape
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
        return cls(Storage(device, prod(shape) * dtype.itemsize), dtype, contiguous(shape, dtype.itemsize), device)

    @classmethod
    def adopt(cls, native: Native, device: Device, *, shared: bool = False) -> TBlob:
        """Return a blob over the memory of a native array; its Storage is made at its first use.

        shared: whether others can write to the array.
        """
        borrowed = device.backend.borrowed(native) if shared else None
        if borrowed is None:
            blob = cls.of(None, native, device)
            if shared:
                blob.owner.expose(None)
            return blob
        memory, layout, lender = borrowed
        blob = cls(Storage(device, memory.nbytes, memory), native.dtype, layout, device)
        blob.writeable = native.flags.writeable
        blob.owner.expose(lender)
        return blob

    @classmethod
    def of(cls, owner: Storage | None, native: Native, device: Device, writeable: bool | None = None) -> TBlob:
        """Return a native array as a view of its owner's memory; an owner that is None is made at its first use.

        writeable: None for the array's own flag.
        """
        may = bool(getattr(native.flags, "writeable", True)) if writeable is None else writeable
        return cls(owner, native.dtype, None, device, writeable=may, native=native)

    @property
    def owner(self) -> Storage:
        """The allocation behind the view."""
        if self._owner is None:
            with first_use:
                self._make_owner()
        assert self._owner is not None
        return self._owner

    def _make_owner(self) -> None:
        """Make the owner, with a guard for this view's saver: before others see it, and again if one came meanwhile."""
        if self._owner is None:
            owner = Storage.of(self._native, self.device)
            self._guard(owner)
            self._owner = owner
            self._guard(owner)

    def _guard(self, owner: Storage) -> None:
        if self.saver is not None and owner.guard is None:
            guard = Guard()
            guard.savers.add(self.saver)
            owner.guard = guard

    @property
    def layout(self) -> Layout:
        """Shape, strides and offset in the owner's bytes."""
        if self._layout is None:
            self._layout = self.owner.place(self._native)
        return self._layout

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize

    @property
    def is_contiguous(self) -> bool:
        return self.layout.is_contiguous(self.dtype.itemsize)

    @property
    def address(self) -> int:
        """The address of the first element, for generated code; raises MemoryError where there is no room."""
        if self._address is None:
            fresh = self._owner is None and self._native is not None  # a library's result without an owner yet
            self._address = address_of(self._native) if fresh else self.owner.address + self.layout.offset
        return self._address

    @property
    def kind(self) -> tuple[Any, ...]:
        """A key that blobs with equal layouts share, cached: a captured function asks for it at every call."""
        if self._kind is None:
            layout = self.layout
            self._kind = self.dtype.num, layout.shape, layout.strides, self.writeable
        return self._kind

    @property
    def span(self) -> tuple[int, int]:
        """The addresses of its lowest byte and behind its highest, cached; equal if it has no bytes."""
        if self._span is None:
            low, high = self.layout.extent(self.dtype.itemsize)
            begin = self.address - self.layout.offset
            self._span = begin + low, begin + high
        return self._span

    @property
    def is_packed(self) -> bool:
        """The same as is_contiguous, cached: an evaluation asks for every operand."""
        if self._packed is None:
            self._packed = self.is_contiguous
        return self._packed

    @property
    def is_channels_last(self) -> bool:
        return self.layout.is_channels_last(self.dtype.itemsize)

    def native(self) -> Native:
        """Return the device library's array over this memory; allocates it if nothing was written yet."""
        if self._native is None:
            memory = self.owner.bytes
            self._native = self.device.backend.view(memory, self.dtype, self.layout, self.writeable)
        return self._native

    def overlaps(self, other: TBlob) -> bool:
        """Return whether another blob may show some of the same bytes; never False when it does."""
        if self.owner is other.owner:
            return self.layout.overlaps(other.layout, self.dtype.itemsize, other.dtype.itemsize)
        return self.span[0] < other.span[1] and other.span[0] < self.span[1]

    def exported(self) -> Native:
        """Return the native array for code outside, which may write to it as long as the array lives."""
        given = self.owner.hand_out()
        if given is None:
            return self.native()
        return self.device.backend.view(given, self.dtype, self.layout, self.writeable)

    def window(self, native: Native) -> TBlob:
        """Return another view of the same memory, given as a view of its array."""
        view = TBlob(self._owner or self.owner, self.dtype, None, self.device, writeable=self.writeable, native=native)
        view.constant, view.fixed = self.constant, self.fixed
        return view

    def view(self, layout: Layout, *, writeable: bool = True, dtype: DType | None = None) -> TBlob:
        """Return another view of the same memory; read-only views stay read-only."""
        view = TBlob(self.owner, dtype or self.dtype, layout, self.device, writeable=writeable and self.writeable)
        view.constant, view.fixed = self.constant, self.fixed
        return view

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
        contents are dropped. Other views of the old memory keep it. A tensor is resized by Tensor.resize, which
        also lets pending readers finish first. Raises RuntimeError on a detached blob
        and ValueError on a read-only one.
        """
        if self.detached:
            raise RuntimeError(expected("resize", "blob", "not be a detached copy", "one made by detach()"))
        if not self.writeable:
            raise ValueError(expected("resize", "blob", "be writable", "a read-only view"))
        lengths = as_shape(shape, "resize")
        itemsize = self.dtype.itemsize
        start, needed = self.layout.extent(itemsize)[0], prod(lengths) * itemsize
        capacity = self.owner.nbytes - start
        if needed > capacity or (needed < capacity and not keep_on_shrink):
            self._owner, start = Storage(self.device, needed), 0
        self._layout, self.shape = Layout(lengths, c_strides(lengths, itemsize), start), lengths
        self._native = self._packed = self._address = self._kind = self._placement = self._span = None

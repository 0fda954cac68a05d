"""Devices: their names, and the backend of each.

`cpu` is NumPy. Every other kind is loaded from its own file when first asked for.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from ..base.errors import expected, one_of

if TYPE_CHECKING:
    from ..base.dtypes import DType
    from ..base.layout import Layout, Shape
    from ..storage.storage import Native


class Backend(Protocol):
    """What xtensor needs of a device's array library."""

    @property
    def library(self) -> Any:
        """The library itself, NumPy or CuPy."""
        ...

    @property
    def dlpack_device(self) -> tuple[int, int]:
        """Device type and id as DLPack counts them."""
        ...

    @property
    def xp(self) -> Any:
        """array-api-compat's namespace of the library, loaded when first needed."""
        ...

    def lend(self, nbytes: int) -> tuple[Any, int]:
        """Return an object that keeps this many bytes of memory alive, and their address; `cut` makes an array
        of both.
        """
        ...

    def free_memory(self) -> int:
        """Return how many bytes new arrays can take: the device's free memory, and what the library keeps for reuse."""
        ...

    def cut(self, memory: Any, address: int, nbytes: int) -> Native:
        """Return memory obtained from `lend` as a 1-d uint8 array."""
        ...

    def zeros(self, shape: Shape, dtype: DType) -> Native:
        """Return an array of zeros; raises MemoryError."""
        ...

    def view(self, storage: Native, dtype: DType, layout: Layout, writeable: bool) -> Native:
        """Return the library's array over part of a storage."""
        ...

    def storage_of(self, native: Native) -> tuple[Native, Layout]:
        """Return the bytes that a native array lies in, and its layout there."""
        ...

    def borrowed(self, native: Native) -> tuple[Native, Layout, Callable[[], Any]] | None:
        """Return the bytes of an array that others may hold, its layout there, and a function that returns None once
        they have released it; None if that cannot be known.
        """
        ...

    def handed_out(self, storage: Native) -> Native | None:
        """Return the bytes again, as an array that lives as long as views that are made of it for others; None where
        nobody can tell.
        """
        ...

    def kernel(self, name: str) -> Callable[..., Native] | None:
        """Return the library's function for a primitive or reduction, repaired to follow the standard, or None."""
        ...

    def special(self, function: str) -> Any:
        """Return the library's module of special functions, under SciPy's names, for a function.

        Raises ImportError, naming the function, if it is not installed.
        """
        ...

    def call(self, function: Callable[..., Any], *args: Any, **params: Any) -> Any:
        """Call a library function without floating-point warnings."""
        ...

    def compute(self, kernel: Callable[..., Any], *natives: Any, **params: Any) -> Any:
        """Call a kernel, whose result may be placed in memory that was used before."""
        ...

    def asarray(self, value: Any, dtype: DType | None = None) -> Native:
        """Return a host value or array as a native array, copied only if needed."""
        ...

    def owns(self, native: Native) -> bool:
        """Return whether an array belongs to this library, on this device."""
        ...

    def host(self, native: Native) -> Any:
        """Return a native array as a NumPy array: itself on the CPU, otherwise a copy."""
        ...

    def astype(self, native: Native, dtype: DType) -> Native:
        """Return a native array converted to another dtype."""
        ...

    def packed(self, native: Native) -> Native:
        """Return a copy of a native array, packed in C order."""
        ...

    def index(self, native: Native, key: Any) -> Native:
        """Return what an advanced key selects; raises IndexError."""
        ...

    def assign(self, native: Native, key: Any, value: Any) -> None:
        """Assign a native array or a number to a key; raises IndexError, ValueError, OverflowError."""
        ...

    def add_at(self, native: Native, key: Any, values: Native) -> None:
        """Add values to the elements that a key selects; those of an element selected several times are added
        in turn.
        """
        ...


class Device:
    """Where an array lives: `cpu` or `cuda:N`. Equal to, and hashed as, its name."""

    __slots__ = ("_name", "backend")

    def __init__(self, name: str, backend: Backend) -> None:
        self._name = name
        self.backend = backend

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Device):
            return self._name == other._name
        return isinstance(other, str) and other in (self._name, self._name.removesuffix(":0"))

    def __hash__(self) -> int:
        return hash(self._name)

    def __str__(self) -> str:
        return self._name

    def __repr__(self) -> str:
        return f"Device({self._name!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return as_device, (self._name, "unpickle")


# Those that were asked for, by their names.
known_devices: dict[str, Device] = {}


def devices() -> tuple[Device, ...]:
    """Return the devices that can be used on this machine."""
    from .cuda import count

    return tuple(as_device(name, "devices") for name in ("cpu", *(f"cuda:{number}" for number in range(count()))))


def library_of(native: Native) -> Any:
    """Return the library that made a native array: NumPy or CuPy."""
    return sys.modules[type(native).__module__.partition(".")[0]]


def device_of(native: Native) -> Device:
    """Return the device that a native array lies on."""
    own = getattr(native.data, "device_id", None)
    return as_device("cpu" if own is None else f"cuda:{own}", "device_of")


def as_device(device: Any, function: str) -> Device:
    """Return the Device for a Device or a name; None is not accepted here.

    "cuda" is "cuda:0". Raises TypeError for other objects, ValueError for a name that no device has and for a CUDA
    device that cannot be used, with what is missing.
    """
    found = known_devices.get(device) if type(device) is str else None
    if found is not None:  # the commonest case of all
        return found
    if isinstance(device, Device):
        return device
    if not isinstance(device, str):
        raise TypeError(expected(function, "device", "be a Device or its name", repr(device)))
    made = known_devices[device] = _loaded(device, function)
    return made


def _loaded(name: str, function: str) -> Device:
    """Return a device that is asked for for the first time, with its backend, whose file needs this one."""
    if name == "cpu":
        from .cpu import CPU

        return Device("cpu", CPU)
    if name == "cuda":
        return as_device("cuda:0", function)
    if not re.fullmatch(r"cuda:(0|[1-9]\d{0,3})", name):
        raise ValueError(expected(function, "device", one_of([str(known) for known in devices()]), repr(name)))
    from .cuda import load

    return Device(name, load(function, name))

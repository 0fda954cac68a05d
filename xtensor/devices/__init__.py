"""Devices: what a device is called, and the backend that works on it.

`cpu` is NumPy. Every other kind is loaded from its own file when first asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import expected, one_of

if TYPE_CHECKING:
    from ..blob import Native
    from ..dtypes import DType
    from ..layout import Layout, Shape


class Backend(Protocol):
    """What xtensor needs of a device's array library."""

    @property
    def xp(self) -> ModuleType:
        """array-api-compat's namespace of the library, loaded when first needed."""
        ...

    def allocate(self, nbytes: int) -> Native:
        """Return `nbytes` of uninitialised memory as a 1-d uint8 array; raises MemoryError."""
        ...

    def zeros(self, shape: Shape, dtype: DType) -> Native:
        """Return an array of zeros; raises MemoryError."""
        ...

    def view(self, storage: Native, dtype: DType, layout: Layout, writeable: bool) -> Native:
        """Return the library's array over part of a storage."""
        ...

    def storage_of(self, native: Native) -> tuple[Native, Layout]:
        """Return the bytes a native array lies in, and its layout there."""
        ...

    def kernel(self, name: str) -> Callable[..., Native] | None:
        """Return the library's own function for a primitive or reduction, repaired to the standard; else None."""
        ...

    def call(self, function: Callable[..., Any], *args: Any, **params: Any) -> Any:
        """Call a library function without floating-point warnings."""
        ...

    def asarray(self, value: Any, dtype: DType | None = None) -> Native:
        """Return a host value or array as a native array, copied only where needed."""
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


_known: dict[str, Device] = {}


def devices() -> tuple[Device, ...]:
    """Return the devices that can be used on this machine."""
    return (as_device("cpu", "devices"),)


def as_device(device: Any, function: str) -> Device:
    """Return the Device of a Device or a name; None is not a device here.

    Raises TypeError for other objects and ValueError for a name no device has.
    """
    if isinstance(device, Device):
        return device
    if not isinstance(device, str):
        raise TypeError(expected(function, "device", "be a Device or its name", repr(device)))
    if device not in _known:
        if device != "cpu":
            raise ValueError(expected(function, "device", one_of([str(known) for known in devices()]), repr(device)))
        from .cpu import CPU  # loaded here because it needs this file

        _known[device] = Device("cpu", CPU)
    return _known[device]

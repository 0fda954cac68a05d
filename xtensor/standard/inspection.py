"""The inspection API: what `__array_namespace_info__()` returns."""

from __future__ import annotations

from typing import Any

from ..base import dtypes
from ..base.dtypes import DType
from ..base.errors import check_choice
from ..base.layout import MAX_NDIM
from ..base.options import settings
from ..devices import Device, as_device, devices


class Info:
    """Answers about the namespace (standard section "Inspection")."""

    def capabilities(self) -> dict[str, Any]:
        """Return whether boolean indexing and data-dependent shapes work, and the largest number of axes."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": MAX_NDIM}

    def default_device(self) -> Device:
        """Return the device of arrays created without one."""
        return as_device(settings().device, "default_device")

    def default_dtypes(self, *, device: Device | str | None = None) -> dict[str, DType]:
        """Return the default dtypes by kind; raises ValueError for a device that does not exist."""
        self._check(device, "default_dtypes")
        return dict(dtypes.DEFAULTS)

    def dtypes(
        self, *, device: Device | str | None = None, kind: str | tuple[str, ...] | None = None
    ) -> dict[str, DType]:
        """Return the dtypes of a kind, or of several (None: all), by name; raises ValueError for an unknown one."""
        self._check(device, "dtypes")
        if kind is None:
            return dict(dtypes.ALL)
        found: dict[str, DType] = {}
        for one in kind if isinstance(kind, tuple) else (kind,):
            check_choice("dtypes", "kind", one, dtypes.KINDS)
            found |= dtypes.KINDS[one]
        return found

    def devices(self) -> tuple[Device, ...]:
        """Return the devices that can be used on this machine."""
        return devices()

    def _check(self, device: Device | str | None, function: str) -> None:
        if device is not None:
            as_device(device, function)


def __array_namespace_info__() -> Info:  # noqa: N807 - the standard's name
    """Return the object that answers questions about the namespace (standard section "Inspection")."""
    return Info()

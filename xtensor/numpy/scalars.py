"""NumPy's abstract classes of scalars, of which elements of tensors are instances too."""

from __future__ import annotations

from typing import Any

import numpy

from ..tensor.face import Tensor, is_value


class _Abstract(type):
    """The type of such a class: what NumPy's class has as instances and subclasses, it has, and elements besides."""

    def __instancecheck__(cls, x: Any) -> bool:
        base = cls.__bases__[0]
        return isinstance(x, base) or (type(x) is Tensor and is_value(x) and issubclass(x.dtype.type, base))

    def __subclasscheck__(cls, kind: type) -> bool:
        return issubclass(kind, cls.__bases__[0])

    def __eq__(cls, other: object) -> bool:  # tables by class find either
        return other is cls or other is cls.__bases__[0]

    def __hash__(cls) -> int:
        return hash(cls.__bases__[0])


_NAMES = (
    *("generic", "number", "integer", "signedinteger", "unsignedinteger"),
    *("inexact", "floating", "complexfloating"),
)
ABSTRACT = {
    name: _Abstract(
        name, (getattr(numpy, name),), {"__module__": str(__package__), "__doc__": getattr(numpy, name).__doc__}
    )
    for name in _NAMES
}

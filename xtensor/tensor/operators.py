"""The operators every tensor has, each the namespace's function of that meaning; a test compares each with its own.

An operand of a type xtensor knows nothing of is answered with NotImplemented, so that its own reflected operator is
tried.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ..base.errors import StrangerError

if TYPE_CHECKING:
    from .face import Tensor

# The namespace itself, still being filled while this file is read; functions are looked up when called.
xt: Any = sys.modules[__name__.partition(".")[0]]

# How functions are spelled as operators: calls/rows.py gives tensors those of the functions it makes.
COMPARED = {"less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge", "equal": "eq", "not_equal": "ne"}
SPELLED = COMPARED | {
    "add": "add",
    "subtract": "sub",
    "multiply": "mul",
    "divide": "truediv",
    "floor_divide": "floordiv",
    "remainder": "mod",
    "pow": "pow",
    "bitwise_and": "and",
    "bitwise_or": "or",
    "bitwise_xor": "xor",
    "bitwise_left_shift": "lshift",
    "bitwise_right_shift": "rshift",
    "negative": "neg",
    "positive": "pos",
    "abs": "abs",
    "bitwise_invert": "invert",
}


class Operators:
    """Arithmetic, comparison and bitwise operators, reflected and in place."""

    __slots__ = ()

    if TYPE_CHECKING:  # written out for readers and type checkers

        def __add__(self, other: Any, /) -> Tensor: ...
        def __radd__(self, other: Any, /) -> Tensor: ...
        def __sub__(self, other: Any, /) -> Tensor: ...
        def __rsub__(self, other: Any, /) -> Tensor: ...
        def __mul__(self, other: Any, /) -> Tensor: ...
        def __rmul__(self, other: Any, /) -> Tensor: ...
        def __truediv__(self, other: Any, /) -> Tensor: ...
        def __rtruediv__(self, other: Any, /) -> Tensor: ...
        def __floordiv__(self, other: Any, /) -> Tensor: ...
        def __rfloordiv__(self, other: Any, /) -> Tensor: ...
        def __mod__(self, other: Any, /) -> Tensor: ...
        def __rmod__(self, other: Any, /) -> Tensor: ...
        def __pow__(self, other: Any, /) -> Tensor: ...
        def __rpow__(self, other: Any, /) -> Tensor: ...
        def __and__(self, other: Any, /) -> Tensor: ...
        def __rand__(self, other: Any, /) -> Tensor: ...
        def __or__(self, other: Any, /) -> Tensor: ...
        def __ror__(self, other: Any, /) -> Tensor: ...
        def __xor__(self, other: Any, /) -> Tensor: ...
        def __rxor__(self, other: Any, /) -> Tensor: ...
        def __lshift__(self, other: Any, /) -> Tensor: ...
        def __rlshift__(self, other: Any, /) -> Tensor: ...
        def __rshift__(self, other: Any, /) -> Tensor: ...
        def __rrshift__(self, other: Any, /) -> Tensor: ...
        def __lt__(self, other: Any, /) -> Tensor: ...
        def __le__(self, other: Any, /) -> Tensor: ...
        def __gt__(self, other: Any, /) -> Tensor: ...
        def __ge__(self, other: Any, /) -> Tensor: ...
        def __eq__(self, other: Any, /) -> Tensor: ...  # type: ignore[override]
        def __ne__(self, other: Any, /) -> Tensor: ...  # type: ignore[override]
        def __iadd__(self, other: Any, /) -> Tensor: ...  # type: ignore[misc]
        def __isub__(self, other: Any, /) -> Tensor: ...  # type: ignore[misc]
        def __imul__(self, other: Any, /) -> Tensor: ...  # type: ignore[misc]
        def __itruediv__(self, other: Any, /) -> Tensor: ...  # type: ignore[misc]
        def __ifloordiv__(self, other: Any, /) -> Tensor: ...  # type: ignore[misc]
        def __imod__(self, other: Any, /) -> Tensor: ...  # type: ignore[misc]
        def __ipow__(self, other: Any, /) -> Tensor: ...  # type: ignore[misc]
        def __iand__(self, other: Any, /) -> Tensor: ...  # type: ignore[misc]
        def __ior__(self, other: Any, /) -> Tensor: ...  # type: ignore[misc]
        def __ixor__(self, other: Any, /) -> Tensor: ...  # type: ignore[misc]
        def __ilshift__(self, other: Any, /) -> Tensor: ...  # type: ignore[misc]
        def __irshift__(self, other: Any, /) -> Tensor: ...  # type: ignore[misc]
        def __neg__(self, /) -> Tensor: ...
        def __pos__(self, /) -> Tensor: ...
        def __abs__(self, /) -> Tensor: ...
        def __invert__(self, /) -> Tensor: ...

    def __matmul__(self, other: Any, /) -> Tensor:
        try:
            return xt.matmul(self, other)
        except StrangerError:
            return NotImplemented

    def __rmatmul__(self, other: Any, /) -> Tensor:
        try:
            return xt.matmul(other, self)
        except StrangerError:
            return NotImplemented

    def __imatmul__(self, other: Any, /) -> Tensor:
        return xt.standard.linear.update_matmul(self, other)

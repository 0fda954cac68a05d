"""The operators every tensor has, each the namespace's function of that meaning.

Written out, because readers and type checkers need them; a test compares each with its function. An operand of
a type xtensor knows nothing of is answered with NotImplemented, so that its own reflected operator is tried.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from .errors import StrangerError

if TYPE_CHECKING:
    from .tensor import Tensor

# The namespace itself, still being filled while this file is read; functions are looked up when called.
xt: Any = sys.modules[__name__.partition(".")[0]]


class Operators:
    """Arithmetic, comparison and bitwise operators, reflected and in place."""

    __slots__ = ()

    def __add__(self, other: Any, /) -> Tensor:
        try:
            return xt.add(self, other)
        except StrangerError:
            return NotImplemented

    def __radd__(self, other: Any, /) -> Tensor:
        try:
            return xt.add(other, self)
        except StrangerError:
            return NotImplemented

    def __iadd__(self, other: Any, /) -> Tensor:
        return xt.writing.update(self, "add", other)

    def __sub__(self, other: Any, /) -> Tensor:
        try:
            return xt.subtract(self, other)
        except StrangerError:
            return NotImplemented

    def __rsub__(self, other: Any, /) -> Tensor:
        try:
            return xt.subtract(other, self)
        except StrangerError:
            return NotImplemented

    def __isub__(self, other: Any, /) -> Tensor:
        return xt.writing.update(self, "subtract", other)

    def __mul__(self, other: Any, /) -> Tensor:
        try:
            return xt.multiply(self, other)
        except StrangerError:
            return NotImplemented

    def __rmul__(self, other: Any, /) -> Tensor:
        try:
            return xt.multiply(other, self)
        except StrangerError:
            return NotImplemented

    def __imul__(self, other: Any, /) -> Tensor:
        return xt.writing.update(self, "multiply", other)

    def __truediv__(self, other: Any, /) -> Tensor:
        try:
            return xt.divide(self, other)
        except StrangerError:
            return NotImplemented

    def __rtruediv__(self, other: Any, /) -> Tensor:
        try:
            return xt.divide(other, self)
        except StrangerError:
            return NotImplemented

    def __itruediv__(self, other: Any, /) -> Tensor:
        return xt.writing.update(self, "divide", other)

    def __floordiv__(self, other: Any, /) -> Tensor:
        try:
            return xt.floor_divide(self, other)
        except StrangerError:
            return NotImplemented

    def __rfloordiv__(self, other: Any, /) -> Tensor:
        try:
            return xt.floor_divide(other, self)
        except StrangerError:
            return NotImplemented

    def __ifloordiv__(self, other: Any, /) -> Tensor:
        return xt.writing.update(self, "floor_divide", other)

    def __mod__(self, other: Any, /) -> Tensor:
        try:
            return xt.remainder(self, other)
        except StrangerError:
            return NotImplemented

    def __rmod__(self, other: Any, /) -> Tensor:
        try:
            return xt.remainder(other, self)
        except StrangerError:
            return NotImplemented

    def __imod__(self, other: Any, /) -> Tensor:
        return xt.writing.update(self, "remainder", other)

    def __pow__(self, other: Any, /) -> Tensor:
        try:
            return xt.pow(self, other)
        except StrangerError:
            return NotImplemented

    def __rpow__(self, other: Any, /) -> Tensor:
        try:
            return xt.pow(other, self)
        except StrangerError:
            return NotImplemented

    def __ipow__(self, other: Any, /) -> Tensor:
        return xt.writing.update(self, "pow", other)

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
        return xt.ops.linear.update_matmul(self, other)

    def __and__(self, other: Any, /) -> Tensor:
        try:
            return xt.bitwise_and(self, other)
        except StrangerError:
            return NotImplemented

    def __rand__(self, other: Any, /) -> Tensor:
        try:
            return xt.bitwise_and(other, self)
        except StrangerError:
            return NotImplemented

    def __iand__(self, other: Any, /) -> Tensor:
        return xt.writing.update(self, "bitwise_and", other)

    def __or__(self, other: Any, /) -> Tensor:
        try:
            return xt.bitwise_or(self, other)
        except StrangerError:
            return NotImplemented

    def __ror__(self, other: Any, /) -> Tensor:
        try:
            return xt.bitwise_or(other, self)
        except StrangerError:
            return NotImplemented

    def __ior__(self, other: Any, /) -> Tensor:
        return xt.writing.update(self, "bitwise_or", other)

    def __xor__(self, other: Any, /) -> Tensor:
        try:
            return xt.bitwise_xor(self, other)
        except StrangerError:
            return NotImplemented

    def __rxor__(self, other: Any, /) -> Tensor:
        try:
            return xt.bitwise_xor(other, self)
        except StrangerError:
            return NotImplemented

    def __ixor__(self, other: Any, /) -> Tensor:
        return xt.writing.update(self, "bitwise_xor", other)

    def __lshift__(self, other: Any, /) -> Tensor:
        try:
            return xt.bitwise_left_shift(self, other)
        except StrangerError:
            return NotImplemented

    def __rlshift__(self, other: Any, /) -> Tensor:
        try:
            return xt.bitwise_left_shift(other, self)
        except StrangerError:
            return NotImplemented

    def __ilshift__(self, other: Any, /) -> Tensor:
        return xt.writing.update(self, "bitwise_left_shift", other)

    def __rshift__(self, other: Any, /) -> Tensor:
        try:
            return xt.bitwise_right_shift(self, other)
        except StrangerError:
            return NotImplemented

    def __rrshift__(self, other: Any, /) -> Tensor:
        try:
            return xt.bitwise_right_shift(other, self)
        except StrangerError:
            return NotImplemented

    def __irshift__(self, other: Any, /) -> Tensor:
        return xt.writing.update(self, "bitwise_right_shift", other)

    def __lt__(self, other: Any, /) -> Tensor:
        try:
            return xt.less(self, other)
        except StrangerError:
            return NotImplemented

    def __le__(self, other: Any, /) -> Tensor:
        try:
            return xt.less_equal(self, other)
        except StrangerError:
            return NotImplemented

    def __gt__(self, other: Any, /) -> Tensor:
        try:
            return xt.greater(self, other)
        except StrangerError:
            return NotImplemented

    def __ge__(self, other: Any, /) -> Tensor:
        try:
            return xt.greater_equal(self, other)
        except StrangerError:
            return NotImplemented

    def __eq__(self, other: Any, /) -> Tensor:  # type: ignore[override]
        try:
            return xt.equal(self, other)
        except StrangerError:
            return NotImplemented

    def __ne__(self, other: Any, /) -> Tensor:  # type: ignore[override]
        try:
            return xt.not_equal(self, other)
        except StrangerError:
            return NotImplemented

    def __neg__(self, /) -> Tensor:
        return xt.negative(self)

    def __pos__(self, /) -> Tensor:
        return xt.positive(self)

    def __abs__(self, /) -> Tensor:
        return xt.abs(self)

    def __invert__(self, /) -> Tensor:
        return xt.bitwise_invert(self)

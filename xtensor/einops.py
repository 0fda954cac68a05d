"""einops over tensors: after `import xtensor.einops` its functions take tensors; `einops.array_api` does without."""

from __future__ import annotations

from typing import Any

from einops._backends import AbstractBackend

from .autograd.rules import xt
from .tensor.face import Tensor


class Backend(AbstractBackend):  # type: ignore[misc]  # einops is optional, and has no types where it is missing
    """The backend that einops finds among the subclasses of its base class."""

    framework_name = "xtensor"

    def is_appropriate_type(self, tensor: Any) -> bool:
        return isinstance(tensor, Tensor)

    def from_numpy(self, x: Any) -> Tensor:
        return xt.asarray(x)

    def to_numpy(self, x: Tensor) -> Any:
        return x.detach().host()

    def arange(self, start: int, stop: int) -> Tensor:
        return xt.arange(start, stop)

    def transpose(self, x: Tensor, axes: Any) -> Tensor:
        return xt.permute_dims(x, tuple(axes))

    def reduce(self, x: Tensor, operation: str, axes: Any) -> Tensor:
        return getattr(xt, operation)(x, axis=tuple(axes))

    def stack_on_zeroth_dimension(self, tensors: list[Tensor]) -> Tensor:
        return xt.stack(tensors)

    def add_axis(self, x: Tensor, new_position: int) -> Tensor:
        return xt.expand_dims(x, axis=new_position)

    def tile(self, x: Tensor, repeats: Any) -> Tensor:
        return xt.tile(x, tuple(repeats))

    def concat(self, tensors: list[Tensor], axis: int) -> Tensor:
        return xt.concat(tensors, axis=axis)

    def is_float_type(self, x: Tensor) -> bool:
        return x.dtype.kind in "fc"

    def einsum(self, pattern: str, *x: Tensor) -> Tensor:
        return xt.einsum(pattern, *x)

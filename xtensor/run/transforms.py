"""Fourier transforms of native arrays as objects that a capture recognises (see cuda_transforms.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


class Transform:
    """A transform along some axes, from the end. lengths: along these, None for the operand's; compute: does it."""

    __slots__ = ("_compute", "axes", "lengths", "name", "norm")

    def __init__(
        self, name: str, lengths: Sequence[int] | None, axes: tuple[int, ...], norm: str, compute: Callable[..., Any]
    ) -> None:
        self.name, self.lengths, self.axes, self.norm, self._compute = name, lengths, axes, norm, compute

    def __call__(self, xp: Any, native: Any) -> Any:
        return self._compute(xp, self.name, native, self.lengths, self.axes, self.norm)

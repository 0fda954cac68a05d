"""numpy.fft over tensors: the standard's functions under NumPy's signatures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..autograd.rules import xt
from ..tensor.face import Tensor
from .common import as_array, give, numbers
from .names import attributes

__getattr__ = attributes("fft")


def _named(call: Callable[..., Tensor], name: str) -> Callable[..., Tensor]:
    call.__name__ = call.__qualname__ = name
    return call


def _one(name: str) -> Callable[..., Tensor]:
    """Return a transform along one axis."""

    def call(a: Any, n: int | None = None, axis: int = -1, norm: Any = None, out: Any = None) -> Tensor:
        function = getattr(xt.fft, name)
        return give(name, function(_operand(name, a), n=n, axis=axis, norm=norm or "backward"), out)

    return _named(call, name)


def _several(name: str, axes_of_2: tuple[int, ...] | None = None) -> Callable[..., Tensor]:
    """Return a transform along several axes; axes_of_2: the default axes of those with 2 in their name."""

    def call(a: Any, s: Any = None, axes: Any = axes_of_2, norm: Any = None, out: Any = None) -> Tensor:
        function = getattr(xt.fft, name)
        s, axes = (None if one is None else tuple(one) for one in (s, axes))
        return give(name, function(_operand(name, a), s=s, axes=axes, norm=norm or "backward"), out)

    return _named(call, name if axes_of_2 is None else name[:-1] + "2")


def _operand(name: str, a: Any) -> Tensor:
    """Return the operand of a transform, as complex numbers if the standard requires these."""
    x = numbers(a, name)
    real = name in ("rfft", "rfftn", "ihfft")
    if x.dtype.kind == "c" or real:
        return x
    return xt.astype(x, xt.complex64 if x.dtype.itemsize == 4 else xt.complex128)


fft, ifft, rfft, irfft, hfft, ihfft = map(_one, ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"))
fftn, ifftn, rfftn, irfftn = map(_several, ("fftn", "ifftn", "rfftn", "irfftn"))
fft2, ifft2, rfft2, irfft2 = (_several(name, (-2, -1)) for name in ("fftn", "ifftn", "rfftn", "irfftn"))


def fftfreq(n: int, d: float = 1.0, device: Any = None) -> Tensor:
    return xt.fft.fftfreq(n, d=d, device=device)


def rfftfreq(n: int, d: float = 1.0, device: Any = None) -> Tensor:
    return xt.fft.rfftfreq(n, d=d, device=device)


def fftshift(x: Any, axes: Any = None) -> Tensor:
    return xt.fft.fftshift(as_array(x), axes=axes)


def ifftshift(x: Any, axes: Any = None) -> Tensor:
    return xt.fft.ifftshift(as_array(x), axes=axes)

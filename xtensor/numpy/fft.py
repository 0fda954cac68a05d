"""numpy.fft over tensors: the standard's functions under NumPy's signatures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..autograd.rules import xt
from ..base.layout import as_index
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
        return give(name, _transformed(name, numbers(a, name), norm, n=n, axis=axis), out)

    return _named(call, name)


def _several(name: str, axes_of_2: tuple[int, ...] | None = None) -> Callable[..., Tensor]:
    """Return a transform along several axes; axes_of_2: the default axes of those with 2 in their name."""

    def call(a: Any, s: Any = None, axes: Any = axes_of_2, norm: Any = None, out: Any = None) -> Tensor:
        s, axes = (None if one is None else tuple(one) for one in (s, axes))
        if axes == () and not s and "r" not in name:
            return give(name, as_array(a, name), out)
        x = numbers(a, name)
        if s is not None and -1 in s:  # the whole of an axis
            places = range(-len(s), 0) if axes is None else axes
            s = tuple([x.shape[axis] if n == -1 else n for n, axis in zip(s, places, strict=True)])
        if axes is not None and len({axis % x.ndim for axis in axes}) < len(axes):
            return give(name, _one_by_one(name, x, norm, s, axes), out)
        return give(name, _transformed(name, x, norm, s=s, axes=axes), out)

    return _named(call, name if axes_of_2 is None else name[:-1] + "2")


def _one_by_one(name: str, x: Tensor, norm: Any, s: Any, axes: tuple[int, ...]) -> Tensor:
    """Transform along axes of which some occur again, in NumPy's order, and with the lengths that x had at first."""
    last = name.removesuffix("n")
    if s is None:
        s = [x.shape[axis] for axis in axes]
        s[-1] = None if last == "irfft" else s[-1]
    steps = [*zip([last.replace("r", "")] * (len(axes) - 1) + [last], s, axes, strict=True)]
    for step, n, axis in steps if last == "irfft" else reversed(steps):
        x = _transformed(step, x, norm, n=n, axis=axis)
    return x


def _transformed(name: str, x: Tensor, norm: Any, **options: Any) -> Tensor:
    """Return a transform by xtensor's function, of complex numbers if the standard requires these."""
    given = x
    if x.dtype.kind != "c" and name not in ("rfft", "rfftn", "ihfft"):
        x = xt.astype(x, xt.complex64 if x.dtype.itemsize <= 4 else xt.complex128)
    found: Tensor = getattr(xt.fft, name)(x, norm="backward" if norm is None else norm, **options)
    return xt.astype(found, given.dtype) if given.dtype == xt.float16 and found.dtype.kind == "f" else found


fft, ifft, rfft, irfft, hfft, ihfft = map(_one, ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"))
fftn, ifftn, rfftn, irfftn = map(_several, ("fftn", "ifftn", "rfftn", "irfftn"))
fft2, ifft2, rfft2, irfft2 = (_several(name, (-2, -1)) for name in ("fftn", "ifftn", "rfftn", "irfftn"))


def _count(n: Any, function: str) -> int:
    """Return an integer; raises ValueError, as NumPy does, for anything else."""
    try:
        return as_index(n, function, "n")
    except TypeError as error:
        raise ValueError(str(error)) from None


def fftfreq(n: int, d: float = 1.0, device: Any = None) -> Tensor:
    return xt.fft.fftfreq(_count(n, "fftfreq"), d=d, device=device)


def rfftfreq(n: int, d: float = 1.0, device: Any = None) -> Tensor:
    return xt.fft.rfftfreq(_count(n, "rfftfreq"), d=d, device=device)


def fftshift(x: Any, axes: Any = None) -> Tensor:
    return xt.fft.fftshift(as_array(x), axes=axes)


def ifftshift(x: Any, axes: Any = None) -> Tensor:
    return xt.fft.ifftshift(as_array(x), axes=axes)

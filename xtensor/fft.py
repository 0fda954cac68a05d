"""The standard's fft extension: discrete Fourier transforms.

`n` or `s` cut or zero-pad the transformed axes first; `norm` says where the factor 1/n stands: "backward" (on the
inverse), "forward", or "ortho" (its square root on both). float32 and complex64 are computed in single precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

from .devices import as_device
from .dtypes import DEFAULTS, DType, canonical
from .errors import expected, one_of
from .layout import as_axes, as_axis, as_index
from .op import as_tensor, on
from .ops.casting import DeviceLike
from .options import settings
from .tensor import Tensor, wrap

__all__ = [
    "fft",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "ifft",
    "ifftn",
    "ifftshift",
    "ihfft",
    "irfft",
    "irfftn",
    "rfft",
    "rfftfreq",
    "rfftn",
]

Norm = Literal["backward", "ortho", "forward"]
_NORMS: tuple[Norm, ...] = get_args(Norm)


def fft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """Return the discrete Fourier transform along an axis, as complex.

    Standard: Fast Fourier Transform Extension, fft.
    """
    return _transform("fft", x, n, axis, norm)


def ifft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """Return the inverse of fft().

    Standard: Fast Fourier Transform Extension, ifft.
    """
    return _transform("ifft", x, n, axis, norm)


def fftn(
    x: Tensor,
    /,
    *,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: Norm = "backward",
) -> Tensor:
    """Return the transform along several axes (None: the last len(s), or all), as complex.

    Standard: Fast Fourier Transform Extension, fftn.
    """
    return _transform_n("fftn", x, s, axes, norm)


def ifftn(
    x: Tensor,
    /,
    *,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: Norm = "backward",
) -> Tensor:
    """Return the inverse of fftn().

    Standard: Fast Fourier Transform Extension, ifftn.
    """
    return _transform_n("ifftn", x, s, axes, norm)


def rfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """Return the n // 2 + 1 non-negative frequencies of the transform of real x.

    Standard: Fast Fourier Transform Extension, rfft.
    """
    return _transform("rfft", x, n, axis, norm)


def irfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """Return the inverse of rfft(), real; n is the output's length.

    Standard: Fast Fourier Transform Extension, irfft.
    """
    return _transform("irfft", x, n, axis, norm)


def rfftn(
    x: Tensor,
    /,
    *,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: Norm = "backward",
) -> Tensor:
    """Return the transform of real x along several axes, the last of them one-sided.

    Standard: Fast Fourier Transform Extension, rfftn.
    """
    return _transform_n("rfftn", x, s, axes, norm)


def irfftn(
    x: Tensor,
    /,
    *,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: Norm = "backward",
) -> Tensor:
    """Return the inverse of rfftn(), real; s is the output's shape.

    Standard: Fast Fourier Transform Extension, irfftn.
    """
    return _transform_n("irfftn", x, s, axes, norm)


def hfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """Return the real transform of a Hermitian signal given by its non-negative half; n is the output's length.

    Standard: Fast Fourier Transform Extension, hfft.
    """
    return _transform("hfft", x, n, axis, norm)


def ihfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """Return the inverse of hfft().

    Standard: Fast Fourier Transform Extension, ihfft.
    """
    return _transform("ihfft", x, n, axis, norm)


def fftfreq(n: int, /, *, d: float = 1.0, dtype: DType | None = None, device: DeviceLike = None) -> Tensor:
    """Return the n sample frequencies of fft() in cycles per unit of the sample spacing d.

    Standard: Fast Fourier Transform Extension, fftfreq.
    """
    return _frequencies("fftfreq", n, d, dtype, device)


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: DType | None = None, device: DeviceLike = None) -> Tensor:
    """Return the n // 2 + 1 sample frequencies of rfft() in cycles per unit of the sample spacing d.

    Standard: Fast Fourier Transform Extension, rfftfreq.
    """
    return _frequencies("rfftfreq", n, d, dtype, device)


def fftshift(x: Tensor, /, *, axes: int | Sequence[int] | None = None) -> Tensor:
    """Return x with the zero frequency moved to the centre of the given axes (None: all).

    Standard: Fast Fourier Transform Extension, fftshift.
    """
    return _shift("fftshift", x, axes)


def ifftshift(x: Tensor, /, *, axes: int | Sequence[int] | None = None) -> Tensor:
    """Return x with fftshift() undone.

    Standard: Fast Fourier Transform Extension, ifftshift.
    """
    return _shift("ifftshift", x, axes)


def _transform(name: str, x: Any, n: int | None, axis: int, norm: Norm) -> Tensor:
    """Transform along one axis."""
    x = as_tensor(x, name)
    along = as_axis(axis, x.ndim, name)
    _check_norm(name, norm)
    if n is not None and as_index(n, name, "n") < 1:
        raise ValueError(expected(name, "n", "be positive", n))
    return on(x, name, lambda xp, a: getattr(xp.fft, name)(a, n=n, axis=along, norm=norm))


def _transform_n(name: str, x: Any, s: Sequence[int] | None, axes: Sequence[int] | None, norm: Norm) -> Tensor:
    """Transform along several axes; without `axes` the last len(s) ones, or all."""
    x = as_tensor(x, name)
    _check_norm(name, norm)
    if axes is None:
        transformed = x.ndim if s is None else len(s)
        if transformed > x.ndim:
            raise ValueError(expected(name, "s", f"have at most {x.ndim} lengths", tuple(s or ())))
        along = tuple(range(x.ndim - transformed, x.ndim))
    else:
        along = as_axes(tuple(axes), x.ndim, name, "axes")
    if s is not None and len(s) != len(along):
        raise ValueError(expected(name, "s", f"have {len(along)} lengths", tuple(s)))
    return on(x, name, lambda xp, a: getattr(xp.fft, name)(a, s=s, axes=along, norm=norm))


def _check_norm(name: str, norm: str) -> None:
    if norm not in _NORMS:
        raise ValueError(expected(name, "norm", one_of(_NORMS), repr(norm)))


def _frequencies(name: str, n: int, d: float, dtype: Any, device: DeviceLike) -> Tensor:
    target = as_device(settings().device if device is None else device, name)
    kind = DEFAULTS["real floating"] if dtype is None else canonical(dtype, name)
    if as_index(n, name, "n") < 1:
        raise ValueError(expected(name, "n", "be positive", n))
    if kind.kind not in "fc":
        raise TypeError(expected(name, "dtype", "be floating", kind))
    backend = target.backend
    return wrap(backend.call(getattr(backend.xp.fft, name), n, d=d).astype(kind), target)


def _shift(name: str, x: Any, axes: Any) -> Tensor:
    x = as_tensor(x, name)
    along = as_axes(tuple(axes) if isinstance(axes, Sequence) else axes, x.ndim, name, "axes")
    return on(x, name, lambda xp, a: getattr(xp.fft, name)(a, axes=along))

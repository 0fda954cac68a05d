"""The standard's fft extension: discrete Fourier transforms.

`n` or `s` first cut or zero-pad the transformed axes; `norm` says where the factor 1/n is applied: "backward" (on the
inverse), "forward", or "ortho" (its square root on both). float32 and complex64 are computed in single precision.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any, Literal, cast, get_args

import numpy as np

from ..autograd.rules import Like, xt
from ..autograd.tape import differentiable
from ..base import threads
from ..base.dtypes import DEFAULTS, FLOATING, DType, canonical
from ..base.errors import check_choice, expected
from ..base.layout import as_axes, as_axis, as_index
from ..calls.library import on
from ..devices.cpu import CPU
from ..plan.costs import SHARED_TRANSFORM
from ..run.transforms import Transform
from ..tensor.face import Tensor, created
from ..tensor.operands import DeviceLike, as_tensor, chosen_device

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
Lengths = Sequence[int] | None
_NORMS: tuple[Norm, ...] = get_args(Norm)

# Transforms that NumPy computes into given memory; it takes `out` of hfft and ihfft as well, and may not use it.
_INTO = frozenset(("fft", "ifft", "rfft", "irfft"))


# ---- derivatives: each transform is linear, so its adjoint is a transform of the cotangent the other way


def _of_fftn(g: Tensor, like: Like, s: Lengths, axes: Lengths, norm: Norm) -> Tensor:
    along = _axes_of(like, s, axes)
    return _resized(ifftn(g, axes=along, norm=_adjoint_norm(norm)), like, along)


def _of_ifftn(g: Tensor, like: Like, s: Lengths, axes: Lengths, norm: Norm) -> Tensor:
    along = _axes_of(like, s, axes)
    return _resized(fftn(g, axes=along, norm=_adjoint_norm(norm)), like, along)


def _of_rfftn(g: Tensor, like: Like, s: Lengths, axes: Lengths, norm: Norm) -> Tensor:
    along = _axes_of(like, s, axes)
    lengths = [g.shape[a] for a in along[:-1]] + [like.shape[along[-1]] if s is None else s[-1]]
    half = _times_inner(g, along[-1], lengths[-1], 0.5)
    return _resized(irfftn(half, s=lengths, axes=along, norm=_adjoint_norm(norm)), like, along)


def _of_irfftn(g: Tensor, like: Like, s: Lengths, axes: Lengths, norm: Norm) -> Tensor:
    along = _axes_of(like, s, axes)
    half = rfftn(g, axes=along, norm=_adjoint_norm(norm))
    return _resized(_times_inner(half, along[-1], g.shape[along[-1]], 2.0), like, along)


def _of_hfft(g: Tensor, like: Like, axis: int, norm: Norm) -> Tensor:
    half = ihfft(g, axis=axis, norm=_adjoint_norm(norm))
    return _resized(_times_inner(half, axis, g.shape[axis], 2.0), like, (axis,))


def _of_ihfft(g: Tensor, like: Like, n: int | None, axis: int, norm: Norm) -> Tensor:
    length = like.shape[axis] if n is None else n
    half = _times_inner(g, axis, length, 0.5)
    return _resized(hfft(half, n=length, axis=axis, norm=_adjoint_norm(norm)), like, (axis,))


def _adjoint_norm(norm: Norm) -> Norm:
    """Return the norm under which the inverse transform is the adjoint."""
    return "forward" if norm == "backward" else "backward" if norm == "forward" else norm


def _axes_of(like: Like, s: Lengths, axes: Lengths) -> tuple[int, ...]:
    """Return the axes of a transform along several axes."""
    count = like.ndim if s is None else len(s)
    return tuple(range(like.ndim - count, like.ndim)) if axes is None else tuple(axes)


def _times_inner(half: Tensor, axis: int, n: int, factor: float) -> Tensor:
    """Return the half spectrum of n real numbers, times a factor where a frequency also stands for its negative."""
    place = xt.arange(half.shape[axis], device=half.device)
    alone = xt.logical_or(place == 0, 2 * place == n)
    shape = [1] * half.ndim
    shape[axis] = -1
    return cast(Tensor, xt.where(xt.reshape(alone, shape), half, half * factor))


def _resized(x: Tensor, target: Like, axes: Sequence[int]) -> Tensor:
    """Return x cut, or padded with zeros, along axes to a target's lengths: the adjoint of cutting by `n` or `s`."""
    for axis in axes:
        missing = target.shape[axis] - x.shape[axis]
        if missing < 0:
            key = [slice(None)] * x.ndim
            key[axis] = slice(target.shape[axis])
            x = x[tuple(key)]
        elif missing > 0:
            shape = list(x.shape)
            shape[axis] = missing
            x = xt.concat((x, xt.zeros(shape, dtype=x.dtype, device=x.device)), axis=axis)
    return x


# ---- transforms


@differentiable(x=lambda g, like, axis, norm: _of_fftn(g, like, None, (axis,), norm))
def fft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """Return the discrete Fourier transform along an axis, as complex numbers.

    Standard: Fast Fourier Transform Extension, fft.
    """
    return _transform("fft", x, n, axis, norm)


@differentiable(x=lambda g, like, axis, norm: _of_ifftn(g, like, None, (axis,), norm))
def ifft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """Return the inverse of fft().

    Standard: Fast Fourier Transform Extension, ifft.
    """
    return _transform("ifft", x, n, axis, norm)


@differentiable(x=_of_fftn)
def fftn(x: Tensor, /, *, s: Lengths = None, axes: Lengths = None, norm: Norm = "backward") -> Tensor:
    """Return the transform along several axes (None: the last len(s), or all), as complex numbers.

    Standard: Fast Fourier Transform Extension, fftn.
    """
    return _transform_n("fftn", x, s, axes, norm)


@differentiable(x=_of_ifftn)
def ifftn(x: Tensor, /, *, s: Lengths = None, axes: Lengths = None, norm: Norm = "backward") -> Tensor:
    """Return the inverse of fftn().

    Standard: Fast Fourier Transform Extension, ifftn.
    """
    return _transform_n("ifftn", x, s, axes, norm)


@differentiable(x=lambda g, like, n, axis, norm: _of_rfftn(g, like, None if n is None else (n,), (axis,), norm))
def rfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """Return the n // 2 + 1 non-negative frequencies of the transform of a real x.

    Standard: Fast Fourier Transform Extension, rfft.
    """
    return _transform("rfft", x, n, axis, norm)


@differentiable(x=lambda g, like, axis, norm: _of_irfftn(g, like, None, (axis,), norm))
def irfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """Return the inverse of rfft(), as real numbers; n is the length of the output.

    Standard: Fast Fourier Transform Extension, irfft.
    """
    return _transform("irfft", x, n, axis, norm)


@differentiable(x=_of_rfftn)
def rfftn(x: Tensor, /, *, s: Lengths = None, axes: Lengths = None, norm: Norm = "backward") -> Tensor:
    """Return the transform of a real x along several axes, with only the non-negative frequencies along the last one.

    Standard: Fast Fourier Transform Extension, rfftn.
    """
    return _transform_n("rfftn", x, s, axes, norm)


@differentiable(x=_of_irfftn)
def irfftn(x: Tensor, /, *, s: Lengths = None, axes: Lengths = None, norm: Norm = "backward") -> Tensor:
    """Return the inverse of rfftn(), as real numbers; s is the shape of the output.

    Standard: Fast Fourier Transform Extension, irfftn.
    """
    return _transform_n("irfftn", x, s, axes, norm)


@differentiable(x=_of_hfft)
def hfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """Return the real transform of a Hermitian signal, given by its non-negative half; n is the length of the output.

    Standard: Fast Fourier Transform Extension, hfft.
    """
    return _transform("hfft", x, n, axis, norm)


@differentiable(x=_of_ihfft)
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


@differentiable(x=lambda g, axes: xt.fft.ifftshift(g, axes=axes))
def fftshift(x: Tensor, /, *, axes: int | Sequence[int] | None = None) -> Tensor:
    """Return x with the zero frequency moved to the centre of the given axes (None: all).

    Standard: Fast Fourier Transform Extension, fftshift.
    """
    return _shift("fftshift", x, axes)


@differentiable(x=lambda g, axes: xt.fft.fftshift(g, axes=axes))
def ifftshift(x: Tensor, /, *, axes: int | Sequence[int] | None = None) -> Tensor:
    """Return x with fftshift() reversed.

    Standard: Fast Fourier Transform Extension, ifftshift.
    """
    return _shift("ifftshift", x, axes)


def _transform(name: str, x: Any, n: int | None, axis: int, norm: Norm) -> Tensor:
    """Transform along one axis."""
    x = _real(as_tensor(x, name), name)
    along = as_axis(axis, x.ndim, name) - x.ndim  # from the end, as for stacks (calls/batching.py)
    check_choice(name, "norm", norm, _NORMS)
    if n is not None and as_index(n, name, "n") < 1:
        raise ValueError(expected(name, "n", "be positive", n))
    return on(x, name, Transform(name, None if n is None else (n,), (along,), norm, _along))


def _real(x: Tensor, name: str) -> Tensor:
    """Return the operand of a transform; raises TypeError if it is complex and the transform takes only real ones."""
    if x.dtype.kind == "c" and name in ("ihfft", "rfft", "rfftn"):
        raise TypeError(expected(name, "x", "be real", x.dtype))
    return x


def _along(xp: Any, name: str, a: Any, lengths: Lengths, axes: tuple[int, ...], norm: Norm) -> Any:
    """Transform a native array along one axis."""
    n, axis = None if lengths is None else lengths[0], axes[0] % a.ndim
    return _shared_out(_singly(getattr(xp.fft, name), name), name, a, n=n, axis=axis, norm=norm)


# The norm under which each transform has the factor 1.
_UNSCALED: dict[str, Norm] = {name: "forward" if name[0] == "i" else "backward" for name in __all__}


def _singly(library: Any, name: str) -> Callable[..., Any]:
    """Return a transform of the library that stays in single precision.

    If the factor is 1, NumPy's functions go through double precision (seen in 2.4), which takes 2 to 7 times as long;
    if it is 1/n they do not, so that is used, and the result is multiplied by n.
    """

    def transform(a: Any, norm: Norm, **given: Any) -> Any:
        if type(a) is not np.ndarray or a.dtype.char not in "fF" or norm != _UNSCALED[name]:
            return library(a, norm=norm, **given)
        result = library(a, norm=_adjoint_norm(norm), **given)
        source = result if name in ("irfft", "hfft") else a
        result *= float(given["n"] or source.shape[given["axis"]])
        return result

    return transform


def _shared_out(library: Any, name: str, a: Any, **given: Any) -> Any:
    """Transform along one axis; if there are many lines, threads share them, and write to memory from the pool."""
    others = [axis for axis in range(a.ndim) if axis != given["axis"]]
    if (
        name not in _INTO
        or not others
        or a.nbytes <= SHARED_TRANSFORM
        or type(a) is not np.ndarray
        or not a.flags.c_contiguous
    ):
        return library(a, **given)
    across = max(others, key=a.shape.__getitem__)
    none = library(a.swapaxes(0, across)[:0].swapaxes(0, across), **given)
    shape = (*none.shape[:across], a.shape[across], *none.shape[across + 1 :])
    result: Any = np.ndarray(shape, none.dtype, CPU.allocate(prod(shape) * none.itemsize))
    parts = (np.array_split(one, threads.count(), across) for one in (a, result))
    one = _singly(getattr(np.fft, name), name)
    threads.run([partial(CPU.call, one, a, out=out, **given) for a, out in zip(*parts, strict=True)])
    return result


def _transform_n(name: str, x: Any, s: Lengths, axes: Lengths, norm: Norm) -> Tensor:
    """Transform along several axes; without `axes` the last len(s) ones, or all."""
    x = _real(as_tensor(x, name), name)
    check_choice(name, "norm", norm, _NORMS)
    if axes is None:
        transformed = x.ndim if s is None else len(s)
        if transformed > x.ndim:
            raise ValueError(expected(name, "s", f"have at most {x.ndim} lengths", tuple(s or ())))
        along = tuple(range(-transformed, 0))
    else:
        along = tuple([axis - x.ndim for axis in as_axes(tuple(axes), x.ndim, name, "axes")])
    if s is not None and len(s) != len(along):
        raise ValueError(expected(name, "s", f"have {len(along)} lengths", tuple(s)))
    return on(x, name, Transform(name, s, along, norm, _one_by_one))


def _one_by_one(xp: Any, name: str, a: Any, s: Lengths, axes: tuple[int, ...], norm: Norm) -> Any:
    """Transform a native array along several axes, one after the other as NumPy does; on other devices by the library's
    own function.
    """
    if type(a) is not np.ndarray or not axes:
        return getattr(xp.fft, name)(a, s=s, axes=axes, norm=norm)
    one = name.removesuffix("n")
    names = [one.replace("r", "")] * (len(axes) - 1) + [one]
    lengths: Sequence[int | None] = s or [None] * len(axes)
    steps = list(zip(names, lengths, axes, strict=True))
    for step, n, axis in steps if name == "irfftn" else reversed(steps):
        a = _along(xp, step, a, None if n is None else (n,), (axis,), norm)
    return a


def _frequencies(name: str, n: int, d: float, dtype: Any, device: DeviceLike) -> Tensor:
    target = chosen_device(device, name)
    kind = DEFAULTS["real floating"] if dtype is None else canonical(dtype, name)
    if as_index(n, name, "n") < 1:
        raise ValueError(expected(name, "n", "be positive", n))
    FLOATING.check(kind, name, "dtype")
    backend = target.backend
    return created(backend.call(getattr(backend.xp.fft, name), n, d=d).astype(kind), target)


def _shift(name: str, x: Any, axes: Any) -> Tensor:
    x = as_tensor(x, name)
    found = as_axes(tuple(axes) if isinstance(axes, Sequence) else axes, x.ndim, name, "axes")
    along = tuple([axis - x.ndim for axis in found])
    return on(x, name, lambda xp, a: getattr(xp.fft, name)(a, axes=along))

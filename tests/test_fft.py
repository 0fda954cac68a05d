"""Fourier transforms beside NumPy's: the same bits in double precision, single precision within its rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import xtensor as xt

ONE = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
SEVERAL = ("fftn", "ifftn", "rfftn", "irfftn")
NORMS = ("backward", "forward", "ortho")
REAL_ONLY = ("rfft", "ihfft", "rfftn")


def signal(shape: tuple[int, ...], char: str) -> Any:
    rng = np.random.default_rng(0)
    parts = rng.standard_normal(shape), rng.standard_normal(shape)
    return (parts[0] + 1j * parts[1] if char in "FD" else parts[0]).astype(char)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(
    ("char", "name"),
    [(char, name) for char in "fF" for name in (*ONE, *SEVERAL) if char == "f" or name not in REAL_ONLY],
)
def test_single_precision(char: str, name: str, norm: Any) -> None:
    """Within a few roundings of the transform in double precision, whatever the length and the factor."""
    double = "d" if char == "f" else "D"
    for length in (2, 5, 100, 1000):
        x = signal((3, length), char)
        for n in (None, length, length + 3, max(1, length - 2)):
            given: dict[str, Any] = {"n": n} if name in ONE else {} if n is None else {"s": (n,), "axes": (1,)}
            found = np.asarray(getattr(xt.fft, name)(xt.asarray(x), norm=norm, **given))
            wanted = getattr(np.fft, name)(x.astype(double), norm=norm, **given)
            assert found.dtype == np.dtype("f4" if wanted.dtype.kind == "f" else "c8")
            np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6 * max(np.abs(wanted).max(), 1e-30))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", SEVERAL)
@pytest.mark.parametrize("shape", [(3, 4), (5, 6, 7), (2, 1, 8), (256, 300), (130, 70, 9)], ids=str)
def test_several_axes(shape: tuple[int, ...], name: str, norm: Any) -> None:
    """The same bits as NumPy's function for several axes, also where lines are shared out among threads."""
    x = signal(shape, "d" if name in REAL_ONLY else "D")
    for axes in (None, (0,), (1, 0), (-1,), (0, 1)):
        along = tuple(range(len(shape))) if axes is None else axes
        for s in (None, tuple(shape[axis] + 2 * (place % 2) + 1 for place, axis in enumerate(along))):
            if name == "irfftn" and s is None and shape[along[-1]] == 1:
                continue  # 0 real numbers: NumPy refuses, as the standard's default says nothing of it
            found = getattr(xt.fft, name)(xt.asarray(x), s=s, axes=axes, norm=norm)
            wanted = getattr(np.fft, name)(x, s=s, axes=along, norm=norm)
            assert np.array_equal(np.asarray(found), wanted) and found.dtype == wanted.dtype

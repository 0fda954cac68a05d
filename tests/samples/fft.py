"""Samples of the fft extension."""

from __future__ import annotations

from typing import Any

from tests.samples import Array, Sample, complexes, normal


def transform(name: str, x: Array, note: str = "", **options: Any) -> Sample:
    """Return a sample of a transform with its options."""
    described = " ".join([note, *[f"{option} {value}" for option, value in options.items()]]).strip()
    for sign in "(),[]":
        described = described.replace(sign, "")
    return Sample(f"fft.{name}", lambda xp, x: getattr(xp.fft, name)(x, **options), (x,), described)


NORMS = ("backward", "ortho", "forward")
HALF = ("irfft", "hfft")  # from the half of a spectrum

SAMPLES = [
    *[
        transform(name, x, note, n=n, norm=norm)
        for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
        for x, note in ((normal(2, 5), "odd"), (complexes(2, 4), "complex"), (normal(4), "real"))
        if x.dtype.kind != "c" or name not in ("rfft", "ihfft")
        for n, norm in ((None, "backward"), (None, "ortho"), (6, "forward"), (3, "backward"), (9, "ortho"))
    ],
    *[
        transform(name, complexes(4, 3) if name in ("fft", "ifft", *HALF) else normal(4, 3), "first", axis=0)
        for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
    ],
    *[transform(name, complexes(3, 1), "one", n=1) for name in ("fft", "ifft", "irfft", "hfft")],
    *[transform(name, normal(3, 1), "one", n=1) for name in ("rfft", "ihfft")],
    *[
        transform(name, x, note, s=s, axes=axes, norm=norm)
        for name in ("fftn", "ifftn", "rfftn", "irfftn")
        for x, note in ((normal(2, 3, 4), "real"), (complexes(2, 3, 4), "complex"))
        if x.dtype.kind != "c" or name != "rfftn"
        for s, axes, norm in (
            (None, None, "backward"),
            (None, (0, -1), "ortho"),
            ((3, 5), (2, 0), "forward"),
            ((2, 6), (1, 2), "backward"),
        )
    ],
    *[
        transform(name, x, note, axes=axes)
        for name in ("fftshift", "ifftshift")
        for x, note, axes in (
            (normal(5), "", None),
            (normal(2, 3, 5), "all", None),
            (complexes(3, 4), "complex", 1),
            (normal(2, 3, 5), "some", (0, 2)),
        )
    ],
    transform("fft", complexes(0, 4), "empty"),
    transform("irfft", complexes(0, 4), "empty"),
    transform("fftn", complexes(2, 3), "last lengths", s=(4,), axes=(-1,)),
]

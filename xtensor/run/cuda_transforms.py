"""Fourier transforms on a CUDA device as launches: cuFFT is called at its own address, in CUDA graphs too."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple, cast

import numpy as np

from ..base.dtypes import DType
from ..base.options import Settings
from ..codegen.cpu.vector import LacksError
from ..codegen.cuda.kernel import VECTOR
from ..devices import Device, cufft
from ..devices.cpu import CPU
from ..devices.cufft import BACK, FORWARD, KINDS, Plan
from ..graph.node import Operation
from ..plan.layouts import Meta
from ..plan.program import Named, Step, program
from .cuda import Launch, Launches, launches_over
from .cuda_products import COPIED, ToldOnce, same
from .native import scalar_words
from .taken_down import Called
from .transforms import Transform

# The bound of the library's integers; transforms of more axes are left to the library's function.
REACH, MOST_AXES = 1 << 31, 3

# The alignment of a work area in bytes, as of memory that CUDA allocates.
ALIGNED = 256

# The places of the operand, the result, memory for a copy of the operand, and the work area.
SOURCE, TARGET, COPY, WORK = range(4)


class Way(NamedTuple):
    """A transform ready to be launched. copies: the launch that copies the operand, if the library may write to it;
    scales: the launch that multiplies the result, with the words of the factor.
    """

    plan: Plan
    direction: int
    copies: Launch | None
    scales: tuple[Launch, bytes] | None
    backend: Any

    def __call__(
        self, addresses: Sequence[int], scalars: bytes, stream: int, table: int = 0, told: int = 0, workspace: int = 0
    ) -> None:
        """Launch it; raises LacksError where the library refuses: CuPy's function may do it then."""
        try:
            self.backend.call(self._launched, addresses, stream)
        except RuntimeError as error:
            raise LacksError(f"way to transform this: {error}") from error

    def _launched(self, addresses: Sequence[int], stream: int) -> None:
        source, target, copy, work = addresses
        if self.copies is not None:
            self.copies((source, copy), b"", stream)
            source = copy
        library = cufft.found()
        assert library is not None
        library.transform(self.plan, source, target, work + -work % ALIGNED, stream, self.direction)
        if self.scales is not None:
            launch, words = self.scales
            launch((target, target), words, stream)


class ByCufft(ToldOnce):
    """A transform as one call of cuFFT, and a launch that scales its result. taken, given: the bytes and the dtype of
    operand and result. copied: bytes of the operand's copy; work: of the work area.
    """

    result = TARGET

    def __init__(self, way: Way, taken: tuple[int, DType], given: tuple[int, DType], contract: bool) -> None:
        self.numbers, self.scalars, self.dtypes, self.contract = (), [], [], contract
        self.backend, self._made = way.backend, {}
        self._way, self._taken, self._given = way, taken, given
        writes = taken[1].kind == "c" and given[1].kind == "f"
        self.copied, self.work = taken[0] if writes else 0, way.plan.nbytes + ALIGNED

    @classmethod
    def of(cls, step: Called, device: Device, limits: Settings) -> ByCufft | None:
        """Return a captured call that is a transform which cuFFT can do for operands of its layout; None for others."""
        transform = getattr(step.function, "func", None)
        if type(transform) is not Transform or device.backend is CPU or limits.engine in ("direct", "interpret"):
            return None
        (source,), (target,), axes = step.takes, step.gives, transform.axes
        taken, given = source.meta, target.meta
        kind = (taken.dtype.char, given.dtype.char)
        is_real = transform.name in ("rfft", "irfft", "rfftn", "irfftn")
        known = transform.name in ("fft", "ifft", "fftn", "ifftn") or is_real
        if not known or kind not in KINDS or ("c" == taken.dtype.kind == given.dtype.kind) == is_real:
            return None
        if axes != tuple(range(-len(axes), 0)) or not 1 <= len(axes) <= MOST_AXES:
            return None
        packed = [one.layout.is_contiguous(one.dtype.itemsize) and not one.layout.offset for one in (taken, given)]
        whole = (given if transform.name.startswith("irfft") else taken).shape
        lengths = whole[-len(axes) :]
        halved = (*lengths[:-1], lengths[-1] // 2 + 1) if is_real else lengths
        ends = {one.shape[-len(axes) :] for one in (taken, given)}
        if not all(packed) or not {lengths, halved} >= ends or 0 in (*taken.shape, *given.shape):
            return None
        if transform.name.startswith("irfft") and taken.shape[-len(axes) :] != halved:
            return None
        library = cufft.found()
        if library is None or max(*lengths, prod(whole)) >= REACH:
            return None
        backend: Any = device.backend
        many = prod(whole[: -len(axes)])
        try:
            plan = backend.call(library.plan, backend.number, lengths, many, kind)
        except RuntimeError:  # CuPy's function may take what the library refuses
            return None
        is_back = transform.name[0] == "i"
        scale = {"backward": -is_back, "ortho": -0.5, "forward": is_back - 1}[transform.norm]
        scales = _scaling(given, float(prod(lengths)) ** scale, backend, limits) if scale else None
        way = Way(plan, BACK if is_back else FORWARD, None, scales, backend)
        return cls(way, (taken.nbytes, taken.dtype), (given.nbytes, given.dtype), limits.fast_math)

    def _launches(self, aligned: Sequence[int]) -> Launches:
        for begin, dtype in zip(aligned, (self._taken[1], self._given[1]), strict=False):
            if begin % min(dtype.itemsize, VECTOR):
                raise LacksError("way to read what lies between multiples of its size")
        return Launches((cast(Any, self._way_for(aligned[SOURCE])),))

    def _way_for(self, begin: int) -> Way:
        """Return the way for an operand that begins so far behind a multiple of a vector."""
        copies = self._copying(self._taken[0], (begin, 0)) if self.copied else None
        return self._way._replace(copies=copies)

    def _copying(self, nbytes: int, aligned: tuple[int, int]) -> Launch:
        strides = [(4,), (4,)]
        (launch,) = launches_over(same(4), (nbytes // 4,), strides, (), aligned, self.backend, False).launches
        return launch

    def packed_nbytes(self, place: int) -> int | None:
        nbytes = (self._taken[0], self._given[0], COPIED + 1, COPIED + 1)[place]
        return nbytes if nbytes <= COPIED else None

    def packed(self, places: Sequence[int], aligned: Sequence[int]) -> Way:
        return self._way_for(0 if SOURCE in places else aligned[SOURCE])

    def copies(self, place: int, address: int) -> tuple[Launch, ...]:
        own = address % VECTOR
        return (self._copying((self._taken, self._given)[place][0], (own, 0) if place == SOURCE else (0, own)),)


def _scaling(given: Meta, factor: float, backend: Any, limits: Settings) -> tuple[Launch, bytes]:
    """Return the launch that scales a result in place, as real numbers, and the words of the factor."""
    dtype = np.dtype(given.dtype.char.lower())
    step = Step(cast(Operation, Named("multiply")), (), (0, 1), (dtype, dtype), dtype)
    scaled, count = program((dtype,), (dtype,), (), (step,), (2,), ()), given.nbytes // dtype.itemsize
    strides = [(dtype.itemsize,)] * 2
    (launch,) = launches_over(scaled, (count,), strides, (), (0, 0), backend, limits.fast_math).launches
    return launch, scalar_words([factor], [dtype])

"""Convolutions as steps that can be recorded: element-wise steps that follow are computed in the same kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from math import prod
from typing import Any, NamedTuple

from ..base.dtypes import DType, promote
from ..base.layout import Shape
from ..base.options import settings
from ..calls.op import contraction_later
from ..devices import Backend, Device
from ..plan.costs import CONTRACTION_WAITS
from ..plan.layouts import Meta
from ..run.joined import Ending
from ..tensor.face import Tensor
from .contraction import Array, natively
from .windows import follows, result_strides

# The most kinds of arguments whose results are remembered.
KNOWN = 1024

# Bytes of scratch memory that the smallest tiles need besides the weights, and columns that these may be padded by.
SMALLEST_SCRATCH, PADDED_COLUMNS = 4 << 20, 80


class Pending:
    """One of the functions that convolutions are made of, on native arrays and a plan.

    compute: returns its result, from (plan, ending, *arrays), or, given an ending, writes that and the steps that
    follow. result: returns the shape of the result, and the number of multiplications, from (plan, the operands'
    shapes). channels_last: whether a plan has the channels of the result last. refuses: returns why code does not
    compute what follows, from (plan, the operands' layouts, the result's, is_light: whether that is few steps).
    computed: makes `compute` a function of arrays alone. words_there: returns what computes it on another device than
    the CPU and why, "" if there is nothing to say, from (plan, the operands' layouts, the result's, the device).
    """

    kind = "contraction"
    element = None

    def __init__(
        self,
        name: str,
        compute: Callable[..., Array],
        result: Callable[[Any, Sequence[Shape]], tuple[Shape, int]],
        channels_last: Callable[[Any], bool],
        refuses: Callable[..., str],
        computed: type[partial[Array]],
        words_there: Callable[..., str],
    ) -> None:
        self.name, self._computed, compute.__qualname__ = name, computed, name  # as schedules are described
        self._compute, self._channels_last, self._refuses = compute, channels_last, refuses
        self._words_there = words_there
        self._expected = lru_cache(KNOWN)(partial(_expected, result))

    def __call__(self, operands: tuple[Tensor, ...], plan: Any) -> Tensor:
        """Return the function's result for some tensors, pending if steps that follow may be computed with it."""
        shape, dtype, work, is_certain = self._expected(plan, tuple([(one.shape, one.dtype) for one in operands]))
        later = None
        if is_certain and (work >= CONTRACTION_WAITS or settings().lazy == "always"):
            later = contraction_later(self, operands, {"plan": plan}, shape, dtype, work)
        return natively(plan.function, operands, self.bound(plan)) if later is None else later

    def bound(self, plan: Any) -> partial[Array]:
        """Return the function as one of native arrays only."""
        return self._computed(self._compute, plan, None)

    def kernel(self, backend: Backend) -> Callable[..., Array]:
        def compute(*natives: Array, plan: Any) -> Array:
            return self._compute(plan, None, *natives)

        compute.__qualname__ = self.name  # as schedules are described
        return compute

    def channels(self, ndim: int, plan: Any) -> int:
        return ndim - 1 if self._channels_last(plan) else 1

    def strides(self, operands: Sequence[Meta], shape: Shape, itemsize: int, plan: Any) -> Shape:
        """Return the strides of the result, as in `batch_as`."""
        x = operands[0]
        return result_strides(shape, itemsize, follows(x.shape, x.layout.strides, plan.x_last, plan.y_last))

    def refusal(self, operands: Sequence[Meta], result: Meta, plan: Any, *, is_light: bool) -> str:
        return self._refuses(plan, operands, result, is_light=is_light)

    def words_there(self, operands: Sequence[Meta], result: Meta, device: Device, plan: Any) -> str:
        """Return what computes the function on another device than the CPU and why, "" if there is nothing to say."""
        return self._words_there(plan, operands, result, device)

    def write(self, operands: Sequence[Array], ending: Ending, plan: Any) -> None:
        self._compute(plan, ending, *operands)

    def known(self, operands: Sequence[Array], ending: Ending, plan: Any) -> Any:
        """Return what launches the computation again, as `Contraction.known` does."""
        return getattr(self.bound(plan), "known", lambda *_: None)(operands, ending)


class Expected(NamedTuple):
    """The result that a function will have. work: its multiplications; is_certain: whether the workspace is certainly
    large enough, so that the call need not raise an error.
    """

    shape: Shape
    dtype: DType
    work: int
    is_certain: bool


def _expected(
    result: Callable[[Any, Sequence[Shape]], tuple[Shape, int]], plan: Any, operands: Sequence[tuple[Shape, DType]]
) -> Expected:
    """Return what a function's result will be for operands of such shapes and dtypes; result: as for `Pending`."""
    shapes, dtypes = zip(*operands, strict=True)
    shape, work = result(plan, shapes)
    x, w = shapes[:2]
    size = max([one.itemsize if one.kind == "f" else 16 for one in dtypes])
    reach = x[-1 if plan.x_last else 1]
    for axis in plan.axes:
        reach *= axis.span
    padded = prod(w) + prod(w) // max(w[0] // plan.groups, 1) * PADDED_COLUMNS
    is_certain = size * (padded + reach) + SMALLEST_SCRATCH <= plan.budget
    return Expected(shape, promote(*dtypes), work, is_certain)

"""Pooling: the largest, the average or a norm of each window."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache, partial, reduce
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ..autograd.rules import Like, xt
from ..autograd.tape import differentiable
from ..base.dtypes import FLOATING, REAL, DType
from ..base.errors import expected
from ..base.layout import Pairs, Shape, as_shape
from ..calls.composed import composed_up_to
from ..calls.library import on
from ..devices import device_of, library_of
from ..plan.costs import SMALL_LAYER
from ..run.launches import Begun
from ..tensor.face import Tensor
from ..tensor.operands import as_tensor, asarray_host
from . import origins
from .checks import whole, wide
from .contraction import batch_as, natively, packed
from .kernels import LARGEST, PLACE, SUM, pool, spread
from .layers import check_classes
from .planes import planes_of
from .shifted import combine
from .sweeps import Runs, known, lying, remembered
from .taps import Along, Taps, by_planes, changing, pay, turned
from .windows import (
    Axes,
    Axis,
    axes_of,
    batched,
    channels_last,
    each,
    is_plain,
    kernels,
    lies_last,
    outs,
    sizes,
    spatial,
    taps,
    volume,
)

__all__ = [
    "adaptive_avg_pool",
    "adaptive_max_pool",
    "avg_pool",
    "global_avg_pool",
    "global_max_pool",
    "lp_pool",
    "max_pool",
    "max_pool_with_indices",
    "max_unpool",
]

SCRATCH = 64_000_000

# Elements of a window up to which windows are combined as views.
FEW_ELEMENTS = 9

# The length of windows from which maxima and sums of parts of rows are reductions along these, and up to which sums are
# those of taps.
LONG_MAXIMA, LONG_SUMS, LONG_TAPS = 11, 5, 32

# So many elements are placed at a time, to which indices of eight bytes are made; and on other devices than the CPU.
FLAT, FLAT_ELSEWHERE = 1 << 16, 1 << 24


class Plan(NamedTuple):
    """The windows over the spatial axes, and whether channels are the last axis."""

    function: str
    axes: Axes
    last: bool


@composed_up_to(SMALL_LAYER, waits=True)
def max_pool(
    x: Tensor,
    kernel: int | Sequence[int],
    /,
    *,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    layout: str | None = None,
) -> Tensor:
    """Return the largest element of each window over 1, 2 or 3 spatial axes; NaN if the window contains NaN.

    x: (batch, channels, *lengths), or as layout says. stride: None for adjacent windows. Padding is never the largest,
    and is shorter than a window; its words are those of `conv`. The lengths of the result are those of `conv`;
    ceil_mode: also count a last window that begins inside the input or the padding before it, even if it does not fit.
    The derivative goes to the first of several largest elements. Raises ValueError if parameters do not fit, TypeError
    for complex numbers and booleans.
    """
    plan, _, x = _windows("max_pool", x, kernel, stride, padding, dilation, ceil_mode, layout)
    REAL.check(x.dtype, "max_pool", "x")
    return _largest(x, plan)


def max_pool_with_indices(
    x: Tensor,
    kernel: int | Sequence[int],
    /,
    *,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    layout: str | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the result of max_pool, and where each of its elements occurs first: int64 of the same shape.

    Indices count in C order over the spatial axes of x, within each image and channel; -1 for a window that contains
    only padding. Parameters and errors are those of max_pool.
    """
    plan, _, x = _windows("max_pool_with_indices", x, kernel, stride, padding, dilation, ceil_mode, layout)
    REAL.check(x.dtype, "max_pool_with_indices", "x")
    found = _largest(x, plan)
    return found, xt.astype(_origins(x, found, plan), xt.int64)


def max_unpool(x: Tensor, indices: Tensor, lengths: Sequence[int], /, *, layout: str | None = None) -> Tensor:
    """Return zeros (batch, channels, *lengths) with the elements of x at the places that indices give.

    x, indices: of one shape, as returned by max_pool_with_indices. Elements at the same place are added. Raises
    ValueError if shapes do not fit, TypeError for indices that are not integers, IndexError for places outside.
    """
    x, _, last = all_spatial("max_unpool", x, layout)
    indices, inner = whole(indices, "max_unpool", "indices"), as_shape(lengths, "max_unpool", "lengths")
    if indices.shape != x.shape or len(inner) != x.ndim - 2:
        shapes = f"x {x.shape}, indices {indices.shape}, lengths {inner}"
        raise ValueError(expected("max_unpool", "indices", "have x's shape, and lengths one of each axis", shapes))
    check_classes(indices, prod(inner), "max_unpool", "indices")
    return _placed(x, indices, inner, last)


@composed_up_to(SMALL_LAYER, waits=True)
def avg_pool(
    x: Tensor,
    kernel: int | Sequence[int],
    /,
    *,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor: int | None = None,
    layout: str | None = None,
) -> Tensor:
    """Return the average of each window over 1, 2 or 3 spatial axes.

    count_include_pad: whether zeros in the padding count as elements. divisor: divide by this instead of the number of
    elements. The other parameters are as in max_pool. Raises ValueError if parameters do not fit, TypeError for
    anything but floating-point numbers.
    """
    plan, pairs, x = _windows("avg_pool", x, kernel, stride, padding, dilation, ceil_mode, layout)
    _check_floating("avg_pool", x)
    if divisor is not None:
        counts: Any = float(each(divisor, 1, "avg_pool", "divisor", least=1)[0])
    else:
        counts = _counts(plan, pairs if count_include_pad else ((0, 0),) * len(pairs))
    y = wide(x)
    if not isinstance(counts, float):
        counts = asarray_host(counts, "avg_pool", "counts", xt.abs(y[:0]).dtype, x.device)
    found: Tensor = xt.astype(_summed(y, plan) / counts, x.dtype, copy=False)
    return found


def lp_pool(
    x: Tensor,
    kernel: int | Sequence[int],
    /,
    *,
    p: float = 2.0,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    layout: str | None = None,
) -> Tensor:
    """Return the p-norm of each window, (sum of |x|^p)^(1/p), over 1, 2 or 3 spatial axes.

    p: positive. The other parameters are as in max_pool. The derivative is 0 where a norm is 0. Raises as avg_pool
    does.
    """
    plan, _, x = _windows("lp_pool", x, kernel, stride, padding, dilation, ceil_mode, layout)
    _check_floating("lp_pool", x)
    if not p > 0:
        raise ValueError(expected("lp_pool", "p", "be positive", p))
    size = xt.abs(x)
    total = _summed(size if p == 1 else size * size if p == 2 else size**p, plan)
    zero = total == 0
    return xt.where(zero, 0, xt.where(zero, 1, total) ** (1.0 / p))


def global_max_pool(x: Tensor, /, *, layout: str | None = None) -> Tensor:
    """Return the largest element over all spatial axes, which stay with length 1."""
    x, axes, _ = all_spatial("global_max_pool", x, layout)
    return xt.max(x, axis=axes, keepdims=True)


def global_avg_pool(x: Tensor, /, *, layout: str | None = None) -> Tensor:
    """Return the average over all spatial axes, which stay with length 1."""
    x, axes, _ = all_spatial("global_avg_pool", x, layout)
    return xt.mean(x, axis=axes, keepdims=True)


def adaptive_avg_pool(x: Tensor, lengths: int | Sequence[int], /, *, layout: str | None = None) -> Tensor:
    """Return averages over windows that divide each spatial axis into the given number of roughly equal parts.

    lengths: the spatial lengths of the result. Part i of n goes from floor(i * length / n) to ceil((i + 1) * length /
    n). Raises ValueError for lengths below 1, TypeError for anything but floating-point numbers.
    """
    x, spatial_axes, _ = all_spatial("adaptive_avg_pool", x, layout)
    _check_floating("adaptive_avg_pool", x)
    parts_along = each(lengths, len(spatial_axes), "adaptive_avg_pool", "lengths", least=1)
    shares = [divmod(x.shape[axis], wanted) for axis, wanted in zip(spatial_axes, parts_along, strict=True)]
    if not any(rest for _, rest in shares):
        return avg_pool(x, tuple([share for share, _ in shares]), layout=layout)
    for axis, wanted in zip(spatial_axes, parts_along, strict=True):
        x = _averages(x, axis, wanted)
    return x


@lru_cache(256)
def _shares(length: int, wanted: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return what each element of an axis is of each part's average; it is not written."""
    found = np.zeros((length, wanted))
    for part, (start, stop) in enumerate(_parts(length, wanted)):
        found[start:stop, part] = 1.0 / (stop - start)
    found.flags.writeable = False
    return found


def _averages_back(g: Tensor, like: Like, axis: int) -> Tensor:
    return _of_averages(g, axis, like.shape[axis])


@differentiable(x=_averages_back)
def _averages(x: Tensor, axis: int, wanted: int) -> Tensor:
    """Return the averages of parts of an axis."""
    return on(x, "adaptive_avg_pool", lambda xp, a: _averages_in(xp, a, axis, wanted))


def _averages_in(xp: Any, a: Any, axis: int, wanted: int) -> Any:
    """Return the same of a native array: products with a matrix, and what is not finite by itself, as it would make the
    zeros of that NaN.
    """
    shares = xp.asarray(_shares(a.shape[axis], wanted).astype(a.dtype))
    found = xp.moveaxis(xp.matmul(xp.moveaxis(a, axis, -1), shares), -1, axis)
    if not bool(xp.isfinite(found).all()):
        before = (slice(None),) * axis
        for part, (start, stop) in enumerate(_parts(a.shape[axis], wanted)):
            found[(*before, part)] = xp.mean(a[(*before, slice(start, stop))], axis=axis)
    return found


@differentiable(g=lambda g, like, axis: _averages(g, axis, like.shape[axis]))
def _of_averages(g: Tensor, axis: int, length: int) -> Tensor:
    """Return what the elements of an axis get of the averages of its parts."""
    shares = asarray_host(_shares(length, g.shape[axis]).T, "adaptive_avg_pool", "shares", g.dtype, g.device)
    found: Tensor = xt.moveaxis(xt.matmul(xt.moveaxis(g, axis, -1), shares), -1, axis)
    return found


def adaptive_max_pool(x: Tensor, lengths: int | Sequence[int], /, *, layout: str | None = None) -> Tensor:
    """Return the largest elements of the windows of adaptive_avg_pool.

    The derivative goes to the first of several largest elements where all windows are of one size; else these share it.
    """
    x, spatial_axes, _ = all_spatial("adaptive_max_pool", x, layout)
    parts_along = each(lengths, len(spatial_axes), "adaptive_max_pool", "lengths", least=1)
    shares = [divmod(x.shape[axis], wanted) for axis, wanted in zip(spatial_axes, parts_along, strict=True)]
    if x.dtype in REAL and not any(rest for _, rest in shares):
        return max_pool(x, tuple([share for share, _ in shares]), layout=layout)
    for axis, wanted in zip(spatial_axes, parts_along, strict=True):
        parts = _parts(x.shape[axis], wanted)
        longest = max(stop - start for start, stop in parts)
        places = np.array([[min(start + k, stop - 1) for k in range(longest)] for start, stop in parts])
        index = asarray_host(places, "adaptive_max_pool", "places", device=x.device)
        x = xt.max(x[(slice(None),) * axis + (index,)], axis=axis + 1)
    return x


def _parts(length: int, wanted: int) -> list[tuple[int, int]]:
    return [(part * length // wanted, -(-(part + 1) * length // wanted)) for part in range(wanted)]


# ---- arguments


def all_spatial(function: str, x: Any, layout: str | None) -> tuple[Tensor, tuple[int, ...], bool]:
    """Return a tensor, its spatial axes, which are not empty, and whether channels are its last axis."""
    x = as_tensor(x, function)
    if not 3 <= x.ndim <= 5:
        raise ValueError(expected(function, "x", "have 3, 4 or 5 axes", f"shape {x.shape}"))
    last, _ = channels_last(layout, x.ndim - 2, function)
    axes = tuple(range(1, x.ndim - 1) if last else range(2, x.ndim))
    if not all(x.shape[axis] for axis in axes):
        raise ValueError(expected(function, "x", "have elements along the spatial axes", f"shape {x.shape}"))
    return x, axes, last


def _check_floating(function: str, x: Tensor) -> None:
    if x.dtype not in FLOATING:
        raise TypeError(expected(function, "x", "be floating-point", x.dtype))


def _windows(
    function: str, x: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, layout: Any
) -> tuple[Plan, Pairs, Tensor]:
    """Return the windows, the padding, and x as a tensor."""
    x, _, last = all_spatial(function, x, layout)
    given = kernel, stride, padding, dilation
    plan_of = _known_plan if is_plain(given) and type(ceil_mode) is bool else _plan
    return *plan_of(function, x.shape, last, given, ceil_mode), x


def _plan(
    function: str, shape: Shape, last: bool, given: tuple[Any, Any, Any, Any], ceil_mode: bool
) -> tuple[Plan, Pairs]:
    """Return the windows over a shape, given kernel, stride, padding and dilation, and the padding."""
    kernel, stride, padding, dilation = given
    window = each(kernel, len(shape) - 2, function, "kernel", least=1)
    steps = window if stride is None else stride
    axes, pairs = axes_of(function, shape, spatial(shape, last), window, steps, padding, dilation)
    if any(not 0 <= one < axis.span for pair, axis in zip(pairs, axes, strict=True) for one in pair):
        must = f"be at least 0 and less than the window {tuple(axis.span for axis in axes)}"
        raise ValueError(expected(function, "padding", must, pairs))
    if ceil_mode:
        axes = tuple(_rounded_up(axis, high) for axis, (_, high) in zip(axes, pairs, strict=True))
    return Plan(function, axes, last), pairs


_known_plan = lru_cache(512)(_plan)


def _rounded_up(axis: Axis, high: int) -> Axis:
    """Return an axis with a last window that does not fit, unless it would begin in the padding at the end."""
    out = -(-(axis.size + axis.low + high - axis.span) // axis.stride) + 1
    return axis._replace(out=out - ((out - 1) * axis.stride >= axis.size + axis.low))


@lru_cache(256)
def _counts(plan: Plan, pairs: Pairs) -> Any:
    """Return how many elements each window has within the input and `pairs` of padding: a number if all agree, else an
    array that is not written.
    """
    counts: Any = np.ones(())
    for axis, (low, high) in zip(plan.axes, pairs, strict=True):
        places = np.arange(axis.out)[:, None] * axis.stride - axis.low + np.arange(axis.kernel) * axis.dilation
        own = np.sum((places >= -low) & (places < axis.size + high), axis=1)
        counts = np.multiply.outer(counts, own)
    if counts.size and (counts == counts.flat[0]).all():
        return float(counts.flat[0])
    counts = counts[..., None] if plan.last else counts
    counts.flags.writeable = False
    return counts


# ---- what is computed


def _view(a: Any, last: bool) -> Any:
    """Return an array as a view (batch, channels, 1, *lengths)."""
    return (library_of(a).moveaxis(a, -1, 1) if last else a)[:, :, None]


def _empty(a: Any, lengths: Any, last: bool) -> Any:
    channels = a.shape[-1] if last else a.shape[1]
    return batch_as(a, channels, lengths, a.dtype, last, last)


def _planes_of(x: Any, y: Any, axes: Axes, largest: bool, often: bool) -> Runs | None:
    return planes_of(x, None, y, None, axes, largest=largest, often=often)


def _shared(g: Tensor, plan: Plan) -> Tensor:
    return _shared_out(g, plan)


@differentiable(x=lambda g, plan: _shared(g, plan))
def _summed(x: Tensor, plan: Plan) -> Tensor:
    """Return the sum of each window."""
    return _combined(x, plan, largest=False)


def _combined(x: Tensor, plan: Plan, *, largest: bool) -> Tensor:
    """Return the largest or the sum of each window: along axes of x where windows are long parts of it; as views of x
    together, where channels lie side by side and windows are small and lie within x; the kernels of planes go along
    rows of places.
    """
    parts = x.device == "cpu" and _are_parts(plan.axes)
    if parts and not largest and plan.axes[-1].kernel <= LONG_TAPS and pay(x, *_lengths_of(plan)):
        return by_planes(x, changing(_taps_of(plan)), plan.function)
    is_whole, length = plan.axes[-1].out == 1, plan.axes[-1].kernel
    if parts and ((is_whole or length >= LONG_MAXIMA) if largest else length >= LONG_SUMS):
        shape, axes = _split(x.shape, plan)
        split = xt.reshape(x, shape)
        return xt.max(split, axis=axes) if largest else xt.sum(split, axis=axes, dtype=x.dtype)
    few = x.device == "cpu" and volume(plan.axes) <= FEW_ELEMENTS and all(map(_is_inside, plan.axes))
    if few and (plan.last or lies_last(x.shape, x.blob.layout.strides)):
        both = xt.maximum if largest else xt.add
        views = [x[_places(plan, element)] for element in product(*map(range, kernels(plan.axes)))]
        return reduce(both, views[1:], views[0])
    return natively(plan.function, (x,), _Combined(_combined_in, plan, largest))


def _taps_of(plan: Plan) -> Along:
    """Return the elements of windows that are parts, as taps along each axis."""
    every = zip(_spatial_axes(plan), plan.axes, strict=True)
    return tuple([(at, _parts_of(axis.out, axis.kernel)) for at, axis in every])


def _lengths_of(plan: Plan) -> tuple[tuple[tuple[int, int], ...], int]:
    """Return the spatial axes with their lengths after pooling, and the most elements along one of a window."""
    every = zip(_spatial_axes(plan), plan.axes, strict=True)
    return tuple([(at, axis.out) for at, axis in every]), max(kernels(plan.axes))


def _spatial_axes(plan: Plan) -> range:
    """Return the spatial axes of arrays."""
    first = 1 if plan.last else 2
    return range(first, first + len(plan.axes))


@lru_cache(256)
def _parts_of(count: int, length: int) -> Taps:
    """Return the taps of sums of so many parts of a length."""
    return Taps(count * length, np.arange(count * length).reshape(count, length).T)


def _are_parts(axes: Axes) -> bool:
    """Return whether windows are parts that axes are cut into, with strides that the kernels of planes lack."""
    long = max(axis.stride for axis in axes) > 2
    return long and all(axis == Axis(axis.out * axis.stride, axis.out, axis.stride, axis.stride, 1, 0) for axis in axes)


def _split(shape: Shape, plan: Plan) -> tuple[Shape, tuple[int, ...]]:
    """Return the shape of x with two axes for each spatial one, parts and places in them, and the latter's axes.

    shape: of x, or of windows.
    """
    first, rank = 1 if plan.last else 2, len(plan.axes)
    parts = [length for axis in plan.axes for length in (axis.out, axis.kernel)]
    return (*shape[:first], *parts, *shape[first + rank :]), tuple(range(first + 1, first + 2 * rank, 2))


def _is_inside(axis: Axis) -> bool:
    return axis.low == 0 and (axis.out - 1) * axis.stride + axis.span <= axis.size


def _places(plan: Plan, element: tuple[int, ...]) -> tuple[Any, ...]:
    """Return the key of an element of all windows."""
    begins = [place * axis.dilation for place, axis in zip(element, plan.axes, strict=True)]
    own = [
        slice(begin, begin + (axis.out - 1) * axis.stride + 1, axis.stride)
        for begin, axis in zip(begins, plan.axes, strict=True)
    ]
    return (slice(None), *own, slice(None)) if plan.last else (slice(None), slice(None), *own)


def _combined_in(plan: Plan, largest: bool, a: Any) -> Any:
    """Return the same of a native array."""
    y = _empty(a, outs(plan.axes), plan.last)
    given, target = _view(a, plan.last), _view(y, plan.last)
    found = None
    if type(a) is np.ndarray:
        found = remembered((plan, largest, lying(a)), partial(_planes_of, given, target, plan.axes, largest))
    if found is not None:
        found.run(given, None, target, None)
    elif not pool(given[:, :, 0], target[:, :, 0], plan.axes, LARGEST if largest else SUM):
        both, fill = (xt.maximum, _least(a.dtype)) if largest else (xt.add, 0)
        combine(given, target, plan.axes, lambda _: lambda one, _: one, both, fill, SCRATCH)
    return y


class _Combined(partial[Any]):
    """The function of native arrays alone, as `Computed` in algorithms."""

    def ready(self, natives: Sequence[Any], result: Any) -> Begun | None:
        """Return what makes such a result of such arrays where they begin; None where nothing does."""
        (plan, largest), (a,) = self.args, natives
        given, target = _view(a, plan.last), _view(result, plan.last)
        found = known((plan, largest, lying(a)), partial(_planes_of, given, target, plan.axes, largest))
        return None if found is None else Begun(found, (1, None, 0, None))


@differentiable(g=lambda g, plan: _summed(g, plan))
def _shared_out(g: Tensor, plan: Plan) -> Tensor:
    """Return what the elements of windows get, added up: the adjoint of _summed."""
    if g.device == "cpu" and _are_parts(plan.axes):
        if pay(g, tuple([(at, axis.size) for at, axis in zip(_spatial_axes(plan), plan.axes, strict=True)]), 1):
            along = tuple([(axis, turned(taps)) for axis, taps in _taps_of(plan)])
            return by_planes(g, changing(along), plan.function)
        shape, axes = _split(g.shape, plan)
        whole = batched(g.shape[0], g.shape[-1 if plan.last else 1], sizes(plan.axes), plan.last)
        return xt.reshape(xt.broadcast_to(xt.expand_dims(g, axis=axes), shape), whole)

    def run(a: Any) -> Any:
        x = _empty(a, sizes(plan.axes), plan.last)
        given, target = _view(a, plan.last), _view(x, plan.last)
        if spread(given[:, :, 0], None, target[:, :, 0], plan.axes):
            return x
        x[...] = 0
        for _, places, targets in taps(plan.axes):
            target[(..., *targets)] += given[(..., *places)]
        return x

    return natively(plan.function, (g,), run)


def _of_largest(g: Tensor, x: Tensor, y: Tensor, plan: Plan) -> Tensor:
    return _sent_back(packed(g), x, y, plan)


def _of_sent_back(g: Tensor, x: Tensor, largest: Tensor, plan: Plan) -> Tensor:
    return _picked(g, _origins(x, largest, plan), plan.last)


@differentiable(g=_of_sent_back)
def _sent_back(g: Tensor, x: Tensor, largest: Tensor, plan: Plan) -> Tensor:
    """Return zeros as x with the elements of g added where the largest elements of their windows are."""
    return natively(plan.function, (g, x, largest), _SentBack(_sent_back_in, plan))


def _sent_back_in(plan: Plan, a: Any, b: Any, c: Any) -> Any:
    """Return the same of native arrays."""
    found = _empty(a, sizes(plan.axes), plan.last)
    given, seen, target = (_view(one, plan.last)[:, :, 0] for one in (a, b, found))
    sending = origins.sending_of(given, seen, target, plan.axes)
    if sending is None:
        return _place_in(found, a, _origins_in(b, c, plan), plan.last, plan.axes)
    sending.run(given, seen, target)
    return found


class _SentBack(partial[Any]):
    """The function of native arrays alone, as `Computed` in algorithms."""

    def ready(self, natives: Sequence[Any], result: Any) -> Begun | None:
        """Return what makes such a result of such arrays where they begin; None where nothing does."""
        plan, *_ = self.args
        given, seen, target = (_view(one, plan.last)[:, :, 0] for one in (*natives[:2], result))
        found = origins.sending_of(given, seen, target, plan.axes, often=True)
        return None if found is None else Begun(found, (1, 2, 0))


@differentiable(x=_of_largest)
def _largest(x: Tensor, plan: Plan) -> Tensor:
    """Return the largest of each window."""
    return _combined(x, plan, largest=True)


def _least(dtype: DType) -> Any:
    return -np.inf if dtype.kind == "f" else np.iinfo(dtype).min


def _origins(x: Tensor, y: Tensor, plan: Plan) -> Tensor:
    """Return the place over the spatial axes that the largest of each window, y, comes from; -1 for none."""
    return natively(plan.function, (x, y), partial(_origins_in, plan=plan))


def _origins_in(a: Any, b: Any, plan: Plan) -> Any:
    """Return the same of native arrays."""
    lengths, library = sizes(plan.axes), library_of(b)
    steps = [prod(lengths[rank + 1 :]) for rank in range(len(lengths))]
    kind = xt.int32 if prod(lengths) < 1 << 31 else xt.int64

    def term(part: Tensor, element: tuple[int, ...]) -> Any:
        offset = sum(k * axis.dilation * step for k, axis, step in zip(element, plan.axes, steps, strict=True))
        return part, xt.asarray(offset, dtype=kind, device=part.device)

    offsets = library.empty(b.shape, kind)
    given, target, least = _view(a, plan.last), _view(offsets, plan.last), _least(a.dtype)
    if origins.find(given[:, :, 0], target[:, :, 0], plan.axes) or pool(
        given[:, :, 0], target[:, :, 0], plan.axes, PLACE
    ):
        return offsets
    if library is np and prod(outs(plan.axes)) < volume(plan.axes) and all(map(_is_inside, plan.axes)):
        return _origins_of_few(given[:, :, 0], target[:, :, 0], plan.axes, offsets)
    combine(given, target, plan.axes, lambda _: term, _first, least, SCRATCH, lambda found, _: found[1])
    begins = [library.asarray(one) for one in _begins(plan.axes, steps, kind)]
    starts, inside = (one[..., None] if plan.last else one for one in begins)
    offsets += starts
    lowest = b == least
    if lowest.any():  # as the padding is
        library.copyto(offsets, inside, where=lowest)
    return offsets


def _origins_of_few(a: Any, target: Any, axes: Axes, offsets: Any) -> Any:
    """Return the places, of which target is a view, where windows lie inside and have more elements than there are
    outputs: window by window.
    """
    for output in np.ndindex(*outs(axes)):
        begins = [n * axis.stride for n, axis in zip(output, axes, strict=True)]
        own = [slice(at, at + axis.span, axis.dilation) for at, axis in zip(begins, axes, strict=True)]
        left = a[(slice(None), slice(None), *own)].reshape(*a.shape[:2], -1).argmax(axis=2)
        found, step = 0, 1
        for at, axis in zip(begins[::-1], axes[::-1], strict=True):
            found = found + (at + left % axis.kernel * axis.dilation) * step
            left, step = left // axis.kernel, step * axis.size
        target[(slice(None), slice(None), *output)] = found
    return offsets


def _first(one: Any, other: Any) -> Any:
    """Return of two pairs (value, offset) the one with the larger value, which NaN is, and else the first."""
    better = xt.logical_not(one[0] >= other[0])
    if one[0].dtype.kind == "f":
        better = xt.logical_and(better, one[0] == one[0])
    return tuple(xt.where(better, b, a) for a, b in zip(one, other, strict=True))


def _begins(axes: Axes, steps: list[int], kind: DType) -> tuple[Any, Any]:
    """Return for all windows the places of their first elements, and of their first inside the input, -1 for none."""
    begins, inside, none = np.zeros((), kind), np.zeros((), kind), np.zeros((), bool)
    for axis, step in zip(axes, steps, strict=True):
        begin = np.arange(axis.out, dtype=kind) * axis.stride - axis.low
        first = begin + np.maximum(-(begin // axis.dilation), 0) * axis.dilation
        begins, inside = np.add.outer(begins, begin * step), np.add.outer(inside, first * step)
        none = np.logical_or.outer(none, first >= np.minimum(axis.size, begin + axis.span))
    return begins, np.where(none, -1, inside)


def _of_placed(g: Tensor, places: Tensor, last: bool) -> Tensor:
    return _picked(g, places, last)


@differentiable(g=_of_placed)
def _placed(g: Tensor, places: Tensor, lengths: Shape, last: bool) -> Tensor:
    """Return zeros over spatial lengths with elements added at their places."""
    return natively("max_pool", (g, places), lambda a, where: _place_in(_empty(a, lengths, last), a, where, last))


def _place_in(x: Any, a: Any, where: Any, last: bool, axes: Axes | None = None) -> Any:
    """Return x, in which elements are added to zeros at their places.

    axes: the windows of which each has its place among its own elements, if that is so.
    """
    given, named, target = (_view(one, last)[:, :, 0] for one in (a, where, x))
    if axes is not None and spread(given, named, target, axes):
        return x
    x[...] = 0
    if axes is not None and origins.add(given, named, target, axes):
        return x
    add_at, packed = device_of(x).backend.add_at, library_of(x).ascontiguousarray(x)
    for part, flat in _flat(where, x.shape, last):
        known = flat >= 0
        add_at(packed.reshape(-1), flat[known], a.reshape(-1)[part][known])
    if packed is not x:
        x[...] = packed
    return x


@differentiable(x=lambda g, places, like, last: _placed(g, places, spatial(like.shape, last), last))
def _picked(x: Tensor, places: Tensor, last: bool) -> Tensor:
    """Return the elements at places: the adjoint of _placed."""

    def run(a: Any, where: Any) -> Any:
        library = library_of(a)
        found = library.zeros(where.shape, a.dtype)
        for part, flat in _flat(where, a.shape, last):
            library.copyto(found.reshape(-1)[part], a.reshape(-1)[flat], where=flat >= 0)
        return found

    return natively("max_pool", (x, places), run)


def _flat(places: Any, shape: Shape, last: bool) -> Iterator[tuple[slice, Any]]:
    """Yield parts of the places, and where their elements lie in an array of a shape, below 0 for none."""
    volume, channels = prod(spatial(shape, last)), shape[-1] if last else 1
    rows = places.reshape(-1, channels)
    images = rows.shape[0] // max(shape[0] * (1 if last else shape[1]), 1)
    library = library_of(places)
    step = max((FLAT if library is np else FLAT_ELSEWHERE) // max(channels, 1), 1)
    for first in range(0, rows.shape[0], step):
        own = rows[first : first + step]
        image = (library.arange(first, first + own.shape[0]) // images)[:, None]
        flat = (image * volume + own) * channels + library.arange(channels)
        flat[own < 0] = -1
        yield slice(first * channels, (first + own.shape[0]) * channels), flat.reshape(-1)

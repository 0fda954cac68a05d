"""Normalisation: mean 0 and variance 1 along some axes, and then a scale and a shift.

x is real floating-point; weight and bias, if given, have the shapes that each function says.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, sqrt

from ..autograd.rules import sum_to, xt
from ..autograd.tape import OFF, differentiable, recording
from ..base.dtypes import REAL_FLOATING
from ..base.errors import expected
from ..base.layout import as_axes
from ..calls.composed import composed
from ..calls.compositions import macro
from ..calls.rows import elementwise
from ..codegen.element import sqrt as root
from ..standard.statistical import size_along
from ..tensor.face import Tensor
from ..tensor.operands import broadcast
from .checks import along, channel_axis, count_of, floating, per_channel, rounded, wide, within
from .padding import pad

__all__ = [
    "batch_norm",
    "cosine_similarity",
    "group_norm",
    "instance_norm",
    "layer_norm",
    "local_response_norm",
    "normalize",
    "rms_norm",
]


def _back(
    g: tuple[Tensor | None, ...], operands: tuple[Tensor, ...], y: tuple[Tensor, Tensor, Tensor], axes: tuple[int, ...]
) -> tuple[Tensor | None, ...]:
    """The cotangents of x, weight and bias, given those of the result, of its mean, and of its scale.

    What goes to the parameters is summed first, over the axes along which a parameter is the same: the means that go to
    x are sums of that.
    """
    (by_value, by_mean, by_scale), (x, *parameters), (_, mean, scale) = g, operands, y
    count = float(max(size_along(x, axes), 1))
    value = _distance_times(x, mean, scale) if parameters else y[0]
    total, by_parameters = None, list[Tensor | None]([None] * len(parameters))
    if by_value is not None:
        same = _shared_axes(axes, parameters, x.ndim)
        sums = [_sum_over(one, same) for one in (by_value, by_value * value)]
        weighted = [one * parameters[0] for one in sums] if parameters else sums
        rest = tuple([one for one in axes if one not in same])
        means = [_sum_over(one, rest) / count for one in weighted]
        own = by_value * parameters[0] if parameters else by_value
        total = scale * (own - means[0] - value * means[1])
        by_parameters = [sum_to(one, one.shape, to.shape) for one, to in zip(sums[::-1], parameters, strict=False)]
    for part in (
        None if by_mean is None else by_mean / count,
        None if by_scale is None else value * (by_scale * scale * scale / -count),
    ):
        total = part if total is None else total if part is None else total + part
    assert total is not None
    return total, *by_parameters


def _shared_axes(axes: tuple[int, ...], parameters: Sequence[Tensor], rank: int) -> tuple[int, ...]:
    """Return the axes along which parameters, all of one shape, are the same for arrays of that rank."""
    if not parameters:
        return axes
    missing = rank - parameters[0].ndim
    return tuple([one for one in axes if one < missing or parameters[0].shape[one - missing] == 1])


def _sum_over(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Return sums along axes, which keep length 1; x itself where there are none."""
    return xt.sum(x, axis=axes, keepdims=True) if axes else x


@differentiable(operands=_back)
def _normed(operands: tuple[Tensor, ...], axes: tuple[int, ...], eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return (x - mean) * scale along axes, times weight plus bias where these are operands too, the mean, and scale =
    1 / sqrt(variance + eps). Parameters are operands where they are the same along some of the axes: others are
    multiplied afterwards.
    """
    x, *parameters = operands
    mean = xt.mean(x, axis=axes, keepdims=True)
    count = float(size_along(x, axes))
    total = xt.sum(_squared_distance(x, mean), axis=axes, keepdims=True)
    scale = _over_root(total, sqrt(count), count * eps)
    value = _distance_times(x, mean, scale)
    if parameters:
        value = value * parameters[0] if len(parameters) == 1 else _multiply_add(value, *parameters)
    return value, mean, scale


def _standardised(x: Tensor, axes: tuple[int, ...], eps: float, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """Return (x - mean) / sqrt(variance + eps) along axes, times weight plus bias."""
    own = () if weight is None else (weight,) if bias is None else (weight, bias)
    if own and {x.dtype} == {one.dtype for one in (*own, wide(x))} and _shared_axes(axes, own, x.ndim):
        value = _normed((x, *own), axes, eps)[0]
        return value if bias is None or weight is not None else value + bias
    return _scaled(rounded(_normed((wide(x),), axes, eps)[0], x.dtype), weight, bias)


_standardised_at_once = composed(_standardised)

# Steps that belong together are one formula each: recording them takes most of the time that small arrays take.


@elementwise(
    REAL_FLOATING,
    element=lambda x, mean: (x - mean) * (x - mean),
    derivative=(lambda x, mean: 2 * (x - mean), lambda x, mean: 2 * (mean - x)),
)
def _squared_distance(x: Tensor, mean: Tensor, /) -> Tensor:
    """Return (x - mean)**2."""
    ...


@elementwise(
    REAL_FLOATING,
    element=lambda b, a, room: a / root(b + room),
    derivative=(
        lambda y, b, room: y / (-2 * (b + room)),
        lambda b, room: 1 / xt.sqrt(b + room),
        lambda y, b, room: y / (-2 * (b + room)),
    ),
)
def _over_root(b: Tensor, a: float, room: float, /) -> Tensor:
    """Return a / sqrt(b + room)."""
    ...


@elementwise(
    REAL_FLOATING,
    element=lambda x, mean, scale: (x - mean) * scale,
    derivative=(lambda scale: scale, lambda scale: -scale, lambda x, mean: x - mean),
)
def _distance_times(x: Tensor, mean: Tensor, scale: Tensor, /) -> Tensor:
    """Return (x - mean) * scale."""
    ...


@elementwise(
    REAL_FLOATING,
    element=lambda x, weight, bias: x * weight + bias,
    derivative=(lambda weight: weight, lambda x: x, 1),
)
def _multiply_add(x: Tensor, weight: Tensor, bias: Tensor, /) -> Tensor:
    """Return x * weight + bias."""
    ...


def _scaled(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    if weight is not None and bias is not None and x.dtype == weight.dtype == bias.dtype:
        return _multiply_add(x, weight, bias)
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


@composed
@macro
def layer_norm(
    x: Tensor,
    /,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    axis: int | tuple[int, ...] = -1,
    eps: float = 1e-5,
) -> Tensor:
    """Return (x - mean) / sqrt(variance + eps) * weight + bias, with mean and variance (of divisor N) along `axis`.

    weight, bias: of the shape that x has along those axes, in ascending order. Raises TypeError unless all are real
    floating, ValueError for other shapes, AxisError. Source: torch.nn.functional.layer_norm, whose normalized_shape is
    the shape along the last axes.
    """
    x, axes, eps, (weight, bias) = _along("layer_norm", x, axis, eps, weight=weight, bias=bias)
    return _standardised(x, axes, eps, weight, bias)


@composed
@macro
def rms_norm(
    x: Tensor, /, weight: Tensor | None = None, *, axis: int | tuple[int, ...] = -1, eps: float = 1e-6
) -> Tensor:
    """Return x / sqrt(mean of x**2 + eps) * weight, with the mean along `axis`.

    weight: of the shape that x has along those axes, in ascending order. Raises TypeError unless both are real
    floating, ValueError for other shapes, AxisError. Source: Zhang and Sennrich, 2019; torch.nn.functional.rms_norm,
    whose eps is that of the dtype unless it is given.
    """
    x, axes, eps, (weight,) = _along("rms_norm", x, axis, eps, weight=weight)
    y = wide(x)
    found = y / xt.sqrt(xt.mean(y * y, axis=axes, keepdims=True) + eps)
    return _scaled(rounded(found, x.dtype), weight, None)


def _along(
    function: str, x: Tensor, axis: int | tuple[int, ...], eps: float, **given: Tensor | None
) -> tuple[Tensor, tuple[int, ...], float, list[Tensor | None]]:
    """Return what is normalised, the axes in ascending order, eps, and parameters as they are multiplied with that."""
    x, eps = floating(x, function), within(eps, function, "eps", 0, inf)
    axes = tuple(sorted(as_axes(axis, x.ndim, function)))
    shape = tuple(x.shape[one] for one in axes)
    spread = tuple(n if one in axes else 1 for one, n in enumerate(x.shape))

    def parameter(value: Tensor | None, name: str) -> Tensor | None:
        if value is None:
            return None
        value = per_channel(value, shape, function, name)
        return value if spread[-len(shape) :] == shape else xt.reshape(value, spread)

    return x, axes, eps, [parameter(value, name) for name, value in given.items()]


@composed
def group_norm(
    x: Tensor,
    /,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    axis: int = 1,
    eps: float = 1e-5,
) -> Tensor:
    """Return x standardised over each group of channels and all positions of each sample, times weight plus bias.

    x: batch first, channels along `axis`. weight, bias: of shape (channels,). Raises TypeError unless all are real
    floating, ValueError if num_groups does not divide the channels or for other shapes. Source:
    torch.nn.functional.group_norm.
    """
    x = floating(x, "group_norm")
    axis, eps = channel_axis(x, axis, "group_norm"), within(eps, "group_norm", "eps", 0, inf)
    groups, channels = count_of(num_groups, "group_norm", "num_groups"), x.shape[axis]
    if channels % groups:
        must = f"divide the {channels} channels of x, shape {x.shape}"
        raise ValueError(expected("group_norm", "num_groups", must, groups))
    split = xt.reshape(x, (*x.shape[:axis], groups, channels // groups, *x.shape[axis + 1 :]))
    axes, spread = tuple(one for one in range(1, split.ndim) if one != axis), (groups, channels // groups)
    parameters = [
        None if one is None else xt.reshape(one, (*spread, *[1] * (x.ndim - 1 - axis)))
        for one in _channelwise(x, axis, "group_norm", weight=weight, bias=bias)
    ]
    found: Tensor = xt.reshape(_standardised(split, axes, eps, *parameters), x.shape)
    return found


@composed
def instance_norm(
    x: Tensor,
    /,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    axis: int = 1,
    eps: float = 1e-5,
) -> Tensor:
    """Return x standardised over all positions of each channel of each sample, times weight plus bias.

    x: batch first, channels along `axis`. weight, bias: of shape (channels,). Raises TypeError unless all are real
    floating, ValueError for other shapes, or if a channel has a single position. Source: Ulyanov et al., 2016;
    torch.nn.functional.instance_norm, without running statistics.
    """
    x = floating(x, "instance_norm")
    axis, eps = channel_axis(x, axis, "instance_norm"), within(eps, "instance_norm", "eps", 0, inf)
    axes = tuple(one for one in range(1, x.ndim) if one != axis)
    if size_along(x, axes) < 2:
        raise ValueError(expected("instance_norm", "x", "have more than 1 position per channel", f"shape {x.shape}"))
    weight, bias = _channelwise(x, axis, "instance_norm", weight=weight, bias=bias)
    weight, bias = (None if one is None else along(one, axis, x.ndim) for one in (weight, bias))
    return _standardised(x, axes, eps, weight, bias)


@composed
def local_response_norm(
    x: Tensor, /, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0, *, axis: int = 1
) -> Tensor:
    """Return x / (k + alpha * mean of x**2 over `size` channels around each)**beta; missing channels count as zeros.

    size: number of channels, of which size // 2 are before. axis: of the channels. Raises TypeError unless x is real
    floating. Source: Krizhevsky et al., 2012; torch.nn.functional.local_response_norm.
    """
    x, size = floating(x, "local_response_norm"), count_of(size, "local_response_norm", "size")
    axis = channel_axis(x, axis, "local_response_norm")
    y = wide(x)
    squares = pad(y * y, ((size // 2, (size - 1) // 2),), axes=(axis,))
    before = (slice(None),) * axis
    parts = [squares[(*before, slice(n, n + x.shape[axis]))] for n in range(size)]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return rounded(y / (k + alpha / size * total) ** beta, x.dtype)


@composed
def normalize(x: Tensor, /, p: float = 2.0, *, axis: int | tuple[int, ...] = 1, eps: float = 1e-12) -> Tensor:
    """Return x divided by its p-norm along `axis`, or by eps if that is larger.

    Raises TypeError unless x is real floating. Source: torch.nn.functional.normalize.
    """
    x, eps = floating(x, "normalize"), within(eps, "normalize", "eps", 0, inf)
    y, axes = wide(x), as_axes(axis, x.ndim, "normalize")
    length = xt.maximum(xt.linalg.vector_norm(y, axis=axes, keepdims=True, ord=p), eps)
    return rounded(y / length, x.dtype)


@composed
def cosine_similarity(x: Tensor, y: Tensor, /, *, axis: int = 1, eps: float = 1e-8) -> Tensor:
    """Return the cosine of the angle between vectors along `axis` of x and y, which broadcast.

    eps: the least length that a vector is assumed to have. Raises TypeError unless both are real floating. Source:
    torch.nn.functional.cosine_similarity.
    """
    x, y = floating(x, "cosine_similarity"), floating(y, "cosine_similarity", "y")
    broadcast("cosine_similarity", (x, y))
    dtype = xt.result_type(x, y)
    x, y = [normalize(one, axis=axis, eps=eps) for one in xt.broadcast_arrays(wide(x), wide(y))]
    return rounded(xt.sum(x * y, axis=axis), dtype)


def _channelwise(x: Tensor, axis: int, function: str, **given: Tensor | None) -> list[Tensor | None]:
    """Return parameters of shape (channels,)."""
    shape = (x.shape[axis],)
    return [None if value is None else per_channel(value, shape, function, name) for name, value in given.items()]


def batch_norm(
    x: Tensor,
    /,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    axis: int = 1,
) -> Tensor:
    """Return each channel standardised, times weight plus bias; channels lie along `axis`.

    training: if False, running_mean and running_var are used, and must be given. If True, mean and variance (of divisor
    N) over the batch and all positions are used; running statistics, if given, are then updated in place to (1 -
    momentum) * themselves + momentum * the batch's (with the variance of divisor N - 1), outside of any gradient. All
    parameters have shape (channels,). Raises TypeError unless all are real floating, ValueError for other shapes, for
    missing running statistics, or for training on a single value per channel. Source: torch.nn.functional.batch_norm.
    """
    x = floating(x, "batch_norm")
    axis, eps = channel_axis(x, axis, "batch_norm"), within(eps, "batch_norm", "eps", 0, inf)
    weight, bias = _channelwise(x, axis, "batch_norm", weight=weight, bias=bias)
    mean, var = _channelwise(x, axis, "batch_norm", running_mean=running_mean, running_var=running_var)
    if not training:
        if mean is None or var is None:
            missing = "running_mean" if mean is None else "running_var"
            raise ValueError(expected("batch_norm", missing, "be given unless training", None))
        return _inference(x, axis, mean, var, weight, bias, eps)
    axes = tuple(one for one in range(x.ndim) if one != axis)
    if size_along(x, axes) < 2:
        raise ValueError(expected("batch_norm", "x", "have more than 1 value per channel", f"shape {x.shape}"))
    momentum = within(momentum, "batch_norm", "momentum", 0, 1)
    with recording(OFF):
        if mean is not None:
            _move(mean, xt.mean(x, axis=axes), momentum)
        if var is not None:
            _move(var, xt.var(wide(x), axis=axes, correction=1), momentum)
    weight, bias = (None if one is None else along(one, axis, x.ndim) for one in (weight, bias))
    return _standardised_at_once(x, axes, eps, weight, bias)


def _move(running: Tensor, new: Tensor, momentum: float) -> None:
    """Write the share of what is new into running statistics."""
    running += momentum * (rounded(new, running.dtype) - running)


def _inference(
    x: Tensor, axis: int, mean: Tensor, var: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> Tensor:
    """One multiplication and one addition per element: what belongs to the channels is put together first."""
    deviation = xt.sqrt(var + eps)
    scale = 1 / deviation if weight is None else weight / deviation
    shift = -mean * scale if bias is None else bias - mean * scale
    return _scaled(x, along(scale, axis, x.ndim), along(shift, axis, x.ndim))

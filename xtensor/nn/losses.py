"""Losses: how far x is from a target, with the names, formulas and conventions of torch.nn.functional.

reduction: "none" for a loss per element, or per row if x has rows of classes; "sum"; or "mean".
"""

from __future__ import annotations

from contextlib import nullcontext
from math import inf
from typing import Any, cast

from ..autograd.rules import xt
from ..autograd.tape import OFF, differentiable, is_recording, recording
from ..base.errors import expected
from ..base.layout import Shape, as_axis, contiguous
from ..calls.composed import composed
from ..calls.compositions import macro
from ..tensor.face import CPU_DEVICE, Tensor
from .activations import log_sigmoid
from .checks import alike, along, check_reduction, floating, per_channel, reduced, rounded, whole, wide, within
from .layers import check_classes, classes_of, is_class, is_of
from .normalisers import largest, softmax

__all__ = [
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cross_entropy",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "mse_loss",
    "nll_loss",
    "smooth_l1_loss",
]

# ---- distances


@composed
@macro
def mse_loss(x: Tensor, target: Tensor, /, *, reduction: str = "mean") -> Tensor:
    """Return (x - target)**2 for arrays of one shape. Source: torch.nn.functional.mse_loss."""
    x, target = alike(x, target, "mse_loss")
    return reduced(xt.square(x - target), reduction, "mse_loss")


@composed
@macro
def l1_loss(x: Tensor, target: Tensor, /, *, reduction: str = "mean") -> Tensor:
    """Return |x - target| for arrays of one shape; the derivative at 0 is 0. Source: torch.nn.functional.l1_loss."""
    x, target = alike(x, target, "l1_loss")
    return reduced(xt.abs(x - target), reduction, "l1_loss")


@differentiable(x=lambda x, delta: xt.clip(x, -delta, delta))
def _huber(x: Tensor, delta: float) -> Tensor:
    """Half the square up to delta, and the tangent from there on."""
    size = xt.abs(x)
    short = xt.minimum(size, delta)
    return short * (size - 0.5 * short)


@composed
@macro
def huber_loss(x: Tensor, target: Tensor, /, *, delta: float = 1.0, reduction: str = "mean") -> Tensor:
    """Return d**2 / 2 where d = |x - target| <= delta, else delta * (d - delta / 2), for arrays of one shape.

    Raises ValueError unless delta is positive. Source: torch.nn.functional.huber_loss.
    """
    x, target = alike(x, target, "huber_loss")
    if not within(delta, "huber_loss", "delta", 0, inf):
        raise ValueError(expected("huber_loss", "delta", "be positive", delta))
    return reduced(_huber(x - target, delta), reduction, "huber_loss")


@composed
@macro
def smooth_l1_loss(x: Tensor, target: Tensor, /, *, beta: float = 1.0, reduction: str = "mean") -> Tensor:
    """Return d**2 / (2 beta) where d = |x - target| < beta, else d - beta / 2, for arrays of one shape.

    beta: not negative; 0 gives l1_loss. Source: torch.nn.functional.smooth_l1_loss.
    """
    x, target = alike(x, target, "smooth_l1_loss")
    if not within(beta, "smooth_l1_loss", "beta", 0, inf):
        return l1_loss(x, target, reduction=reduction)
    return reduced(_huber(x - target, beta) / beta, reduction, "smooth_l1_loss")


# ---- classes


@composed
def cross_entropy(
    x: Tensor,
    target: Tensor,
    /,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    axis: int | None = None,
) -> Tensor:
    """Return -log softmax(x) at the target's class.

    x: logits, with the classes along `axis` (None: 1, or 0 for a vector). target: classes, as integers of x's shape
    without that axis, or probabilities of x's shape. weight: of each class, (classes,). ignore_index: targets with this
    number are ignored. label_smoothing: the share of the target that is spread over all classes. The mean divides by
    the sum of the targets' weights, or for probabilities by the number of rows. Raises TypeError for dtypes, IndexError
    for a class that does not exist, ValueError for shapes. Source: torch.nn.functional.cross_entropy.
    """
    x = floating(x, "cross_entropy")
    axis = _class_axis(x, axis, "cross_entropy")
    smoothing = within(label_smoothing, "cross_entropy", "label_smoothing", 0, 1)
    check_reduction(reduction, "cross_entropy")
    if not isinstance(target, Tensor):
        target = xt.asarray(target, device=x.device)
    has_own = [one for one in (weight, target) if isinstance(one, Tensor) and one.dtype.kind == "f"]
    dtype, x = xt.result_type(x, *has_own), wide(x)
    has_rule = weight is None and target.dtype.kind != "f"
    with recording(OFF) if has_rule else nullcontext():
        most = largest(x, (axis,))
        powers = xt.exp(x - most)
        total = xt.sum(powers, axis=axis, keepdims=True)
    if target.dtype.kind == "f":
        loss = _of_probabilities(x - most, xt.log(total), target, weight, smoothing, reduction, axis)
    elif weight is None:
        loss = _of_logits(x, most, powers, total, target, axis, ignore_index, reduction, smoothing)
    else:
        sums = most, xt.log(total)
        loss = _of_classes(x, sums, target, "cross_entropy", axis, weight, ignore_index, reduction, smoothing)
    return rounded(loss, dtype)


def _by_logits(
    g: Tensor,
    x: Tensor,
    powers: Tensor,
    total: Tensor,
    target: Tensor,
    axis: int,
    ignored: int,
    reduction: str,
    smoothing: float,
) -> Tensor:
    """softmax(x) less the target's probabilities; where that is differentiated again, of x alone."""
    classes = classes_of(x, x.shape[axis], axis)
    if is_recording():
        return _less_target(g, softmax(x, axis=axis), None, target, classes, axis, ignored, reduction, smoothing)
    return _less_target(g, powers, total, target, classes, axis, ignored, reduction, smoothing)


@macro
def _less_target(
    g: Tensor,
    powers: Tensor,
    total: Tensor | None,
    target: Tensor,
    classes: Tensor,
    axis: int,
    ignored: int,
    reduction: str,
    smoothing: float,
) -> Tensor:
    """Return the cotangent of logits. powers: their probabilities, or with `total` what these are times that."""
    target = xt.expand_dims(target, axis=axis)
    counts = target != ignored
    if reduction == "mean":
        g = g / xt.sum(xt.astype(counts, powers.dtype))
    elif reduction == "none":
        g = xt.expand_dims(g, axis=axis)
    g = xt.where(counts, g, 0)
    share = smoothing / powers.shape[axis]
    at_target = xt.where(is_of(target, classes), g * (1 - smoothing + share), g * share if smoothing else 0)
    return (g * powers if total is None else powers * (g / total)) - at_target


@differentiable(x=_by_logits)
def _of_logits(
    x: Tensor,
    most: Tensor,
    powers: Tensor,
    total: Tensor,
    target: Tensor,
    axis: int,
    ignored: int,
    reduction: str,
    smoothing: float,
) -> Tensor:
    """The cross entropy for integer targets, all classes of one weight. most: the largest element of each row; powers:
    exp(x - most); total: their sums.
    """
    sums = most, xt.log(total)
    return _of_classes(x, sums, target, "cross_entropy", axis, None, ignored, reduction, smoothing)


@composed
def nll_loss(
    x: Tensor,
    target: Tensor,
    /,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    axis: int | None = None,
) -> Tensor:
    """Return -x at the target's class, where x holds logarithms of probabilities.

    The arguments are those of cross_entropy, with a target of integers. Source: torch.nn.functional.nll_loss.
    """
    x = floating(x, "nll_loss")
    axis = _class_axis(x, axis, "nll_loss")
    check_reduction(reduction, "nll_loss")
    loss = _of_classes(wide(x), None, target, "nll_loss", axis, weight, ignore_index, reduction)
    return rounded(loss, x.dtype if weight is None else xt.result_type(x, weight))


def _class_axis(x: Tensor, axis: int | None, function: str) -> int:
    if x.ndim == 0:
        raise ValueError(expected(function, "x", "have an axis of classes", f"shape {x.shape}"))
    return as_axis(min(1, x.ndim - 1) if axis is None else axis, x.ndim, function)


def _weight_of(weight: Any, x: Tensor, axis: int, function: str) -> Tensor:
    """Return the weights of the classes lying along their axis; ones where there are none."""
    return along(wide(per_channel(weight, (x.shape[axis],), function, "weight")), axis, x.ndim)


def _check_target(x: Tensor, target: Tensor, shape: Shape, function: str) -> None:
    if target.shape != shape:
        raise ValueError(expected(function, "target", f"have shape {shape} for x {x.shape}", target.shape))


def _of_classes(
    x: Tensor,
    sums: tuple[Tensor, Tensor] | None,
    target: Any,
    function: str,
    axis: int,
    weight: Tensor | None,
    ignored: int,
    reduction: str,
    smoothing: float = 0.0,
) -> Tensor:
    """The loss for integer targets.

    sums: what log_softmax(x) is x less first the one, then the other; None where x holds logarithms already. The
    target's elements are looked up in x itself, which the caller holds, and not in what is pending.
    """
    target = whole(target, function, "target")
    _check_target(x, target, (*x.shape[:axis], *x.shape[axis + 1 :]), function)
    check_classes(target, x.shape[axis], function, "target", ignored)
    target = xt.expand_dims(target, axis=axis)
    picked = _picked(x, target, axis)
    if weight is None and not smoothing:
        most, logs = sums or (None, None)
        return _of_picked(picked, most, logs, target, axis, ignored, reduction)
    loss = -picked if sums is None else sums[1] - (picked - sums[0])
    weights = None if weight is None else _weight_of(weight, x, axis, function)
    share = None if weights is None else _picked(xt.broadcast_to(weights, x.shape), target, axis)
    loss = loss if share is None else loss * share
    if smoothing and sums is not None:
        logs = sums[1] - (x - sums[0])
        spread = xt.sum(logs if weights is None else logs * weights, axis=axis, keepdims=True)
        loss = (1 - smoothing) * loss + (smoothing / x.shape[axis]) * spread
    counts = target != ignored
    loss = xt.where(counts, loss, 0)
    if reduction != "mean":
        return xt.squeeze(loss, axis=axis) if reduction == "none" else xt.sum(loss)
    divisor = xt.astype(counts, x.dtype) if share is None else xt.where(counts, share, 0)
    return xt.sum(loss) / xt.sum(divisor)


@macro
def _of_picked(
    picked: Tensor, most: Tensor | None, logs: Tensor | None, target: Tensor, axis: int, ignored: int, reduction: str
) -> Tensor:
    """Return the loss for elements at the target's classes, all of one weight. most, logs: as `sums` of others."""
    counts = target != ignored
    loss = xt.where(counts, -picked if logs is None else logs - (picked - most), 0)
    if reduction != "mean":
        return xt.squeeze(loss, axis=axis) if reduction == "none" else xt.sum(loss)
    return xt.sum(loss) / xt.sum(xt.astype(counts, picked.dtype))


@differentiable(x=lambda g, target, axis, like: xt.where(is_class(target, like.shape[axis], axis), g, 0))
def _picked(x: Tensor, target: Tensor, axis: int) -> Tensor:
    """Return the elements of x at the target's classes, which lie along an axis of length 1; any for a class that does
    not exist. On another device than the CPU they are sums over the classes, which the kernels that read x anyway
    compute: who takes elements at indices has to wait for whether these are inside.
    """
    if x.device is not CPU_DEVICE:
        picked = xt.where(is_class(target, x.shape[axis], axis), x, 0)
        return cast(Tensor, xt.sum(picked, axis=axis, keepdims=True))
    return cast(Tensor, xt.take_along_axis(x, _within(target, x.shape[axis]), axis=axis))


@macro
def _within(target: Tensor, count: int) -> Tensor:
    """Return classes, 0 for one that does not exist."""
    return cast(Tensor, xt.where(xt.logical_and(target >= 0, target < count), target, 0))


def _of_probabilities(
    x: Tensor, total: Tensor, target: Tensor, weight: Tensor | None, smoothing: float, reduction: str, axis: int
) -> Tensor:
    """The cross entropy for targets that are probabilities."""
    _check_target(x, target, x.shape, "cross_entropy")
    if smoothing:
        target = target * (1 - smoothing) + smoothing / x.shape[axis]
    logs = total - x
    logs = logs if weight is None else logs * _weight_of(weight, x, axis, "cross_entropy")
    return reduced(xt.sum(logs * target, axis=axis), reduction, "cross_entropy")


@composed
@macro
def binary_cross_entropy(
    x: Tensor, target: Tensor, /, *, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """Return -target * log(x) - (1 - target) * log(1 - x) for arrays of one shape, where x holds probabilities.

    Logarithms are at least -100, so that no loss is infinite. weight: of each element, broadcast to x. Source:
    torch.nn.functional.binary_cross_entropy, which refuses what is no probability; here it gives NaN.
    """
    x, target = alike(x, target, "binary_cross_entropy")
    loss = _of_chances(x, target)
    if weight is not None:
        loss = loss * _spread(weight, x, "binary_cross_entropy", "weight")
    return reduced(loss, reduction, "binary_cross_entropy")


@differentiable(
    x=lambda g, x, target: g * (x - target) / xt.maximum(x * (1 - x), 1e-12),
    target=lambda g, x: g * (_log_within(1 - x) - _log_within(x)),
)
def _of_chances(x: Tensor, target: Tensor) -> Tensor:
    """Return the losses of elements; PyTorch's bound keeps the gradient finite where x is 0 or 1."""
    return (target - 1) * _log_within(1 - x) - target * _log_within(x)


def _log_within(x: Tensor) -> Tensor:
    return xt.maximum(xt.log(x), -100)


@composed
@macro
def binary_cross_entropy_with_logits(
    x: Tensor,
    target: Tensor,
    /,
    *,
    weight: Tensor | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | float | None = None,
) -> Tensor:
    """Return -target * log(sigmoid(x)) - (1 - target) * log(1 - sigmoid(x)) for arrays of one shape.

    weight: of each element, broadcast to x. pos_weight: a factor of the first term, broadcast to x. Source:
    torch.nn.functional.binary_cross_entropy_with_logits.
    """
    name = "binary_cross_entropy_with_logits"
    x, target = alike(x, target, name)
    logs = log_sigmoid(x)
    if pos_weight is not None:
        logs = logs * (1 + (_spread(pos_weight, x, name, "pos_weight") - 1) * target)
    loss = (1 - target) * x - logs
    if weight is not None:
        loss = loss * _spread(weight, x, name, "weight")
    return reduced(loss, reduction, name)


def _spread(value: Any, x: Tensor, function: str, argument: str) -> Tensor:
    """Return weights as a floating tensor; raises ValueError unless they broadcast to x."""
    value = floating(value, function, argument)
    if contiguous(value.shape, 1).broadcast_to(x.shape) is None:
        raise ValueError(expected(function, argument, f"broadcast to x, {x.shape}", value.shape))
    return value


@composed
@macro
def kl_div(x: Tensor, target: Tensor, /, *, reduction: str = "mean", log_target: bool = False) -> Tensor:
    """Return target * (log(target) - x), where x holds logarithms of probabilities; 0 where target is 0.

    log_target: whether target holds logarithms too. reduction: also "batchmean", the sum divided by the length of the
    first axis, which is the divergence's definition; "mean" divides by the number of elements. Source:
    torch.nn.functional.kl_div.
    """
    x, target = alike(x, target, "kl_div")
    check_reduction(reduction, "kl_div", "batchmean")
    dtype, x, target = xt.result_type(x, target), wide(x), wide(target)
    if log_target:
        loss = xt.exp(target) * (target - x)
    else:
        none = target == 0
        loss = target * xt.log(xt.where(none, 1, target)) - target * x
    if reduction == "batchmean":
        loss = xt.sum(loss) / float(x.shape[0] if x.ndim else 1)
    else:
        loss = reduced(loss, reduction, "kl_div")
    return rounded(loss, dtype)

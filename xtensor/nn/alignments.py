"""Losses of sequences whose alignment with their targets is not known."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from math import inf
from typing import Any

from ..autograd.rules import xt
from ..autograd.tape import differentiable, is_recording, steps_of
from ..base.errors import expected
from ..base.layout import as_index
from ..devices import Device
from ..storage.storage import Native
from ..tensor.face import Tensor
from .checks import check_reduction, floating, whole
from .layers import check_classes, check_elements
from .normalisers import logsumexp

__all__ = ["ctc_loss"]

# What stands for the logarithm of 0: so low that nothing comes of it, and finite, so that derivatives are.
LOW = -1e30


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    /,
    *,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """Return -log of the probability that frames spell the targets, summed over all alignments.

    An alignment gives each frame one class; repeats are merged, and then blanks are removed.

    log_probs: (frames, batch, classes), logarithms of probabilities, as from `log_softmax`. targets: integers (batch,
    longest); those beyond a target's length are not read. input_lengths, target_lengths: integers (batch,). reduction:
    "mean" first divides by the target's length, or by 1 if that is 0. zero_infinity: whether the loss of targets that
    do not fit into their frames is 0 instead of inf. Derivatives are those of the formula; PyTorch's differ by the part
    that `log_softmax` removes from them.

    Raises TypeError unless log_probs are real floating and the others integers, IndexError for a target or blank that
    is not a class, ValueError if shapes or lengths do not fit. Source: Graves et al., 2006;
    torch.nn.functional.ctc_loss.
    """
    log_probs, targets = floating(log_probs, "ctc_loss", "log_probs"), whole(targets, "ctc_loss", "targets")
    check_reduction(reduction, "ctc_loss")
    if log_probs.ndim != 3 or not log_probs.shape[0]:
        must = "have shape (frames, batch, classes), with frames"
        raise ValueError(expected("ctc_loss", "log_probs", must, f"shape {log_probs.shape}"))
    frames, batch, classes = log_probs.shape
    if targets.ndim != 2 or targets.shape[0] != batch:
        raise ValueError(expected("ctc_loss", "targets", f"have shape ({batch}, longest)", f"shape {targets.shape}"))
    blank = as_index(blank, "ctc_loss", "blank")
    if not 0 <= blank < classes:
        raise IndexError(expected("ctc_loss", "blank", f"be from 0 to {classes - 1}", blank))
    given = _lengths(input_lengths, log_probs.device, batch, 1, frames, "input_lengths")
    wanted = _lengths(target_lengths, log_probs.device, batch, 0, targets.shape[1], "target_lengths")
    inside = xt.arange(targets.shape[1], device=targets.device) < xt.expand_dims(wanted, axis=1)
    spelled = _with_blanks(xt.where(inside, xt.astype(targets, xt.int64), blank), blank)
    check_classes(spelled, classes, "ctc_loss", "targets")
    own = xt.take_along_axis(log_probs, xt.broadcast_to(spelled, (frames, *spelled.shape)), axis=2)
    own = xt.astype(own, xt.float32) if own.dtype == xt.float16 else own  # whose range is too small for sums of frames
    given, ends = (xt.expand_dims(n, axis=1) for n in (given, 2 * wanted))
    found = _log_chance(own, _skips(spelled, blank), given, ends)[0]
    loss = xt.where(found > LOW / 2, -found, 0.0 if zero_infinity else inf)
    loss = xt.astype(loss, log_probs.dtype, copy=False)
    if reduction == "mean":
        return xt.mean(loss / xt.astype(xt.maximum(wanted, 1), loss.dtype))
    return xt.sum(loss) if reduction == "sum" else loss


def _lengths(value: Any, device: Device, batch: int, least: int, most: int, argument: str) -> Tensor:
    """Return lengths as a tensor; raises ValueError for others than so many between bounds."""
    lengths = whole(xt.asarray(value, device=device), "ctc_loss", argument)
    if lengths.shape != (batch,):
        raise ValueError(expected("ctc_loss", argument, f"have shape ({batch},)", f"shape {lengths.shape}"))
    check_elements(lengths, partial(_check_lengths, least=least, most=most, argument=argument))
    return xt.astype(lengths, xt.int64)


def _check_lengths(native: Native, least: int, most: int, argument: str) -> None:
    if native.size and not (least <= int(native.min()) and int(native.max()) <= most):
        raise ValueError(expected("ctc_loss", argument, f"be from {least} to {most}", native.tolist()))


_check_lengths.takes_stacks = True  # type: ignore[attr-defined]  # of all rows at once (calls/batching.py)


def _with_blanks(targets: Tensor, blank: int) -> Tensor:
    """Return targets with a blank before each element, and one behind the last."""
    batch, longest = targets.shape
    pairs = xt.stack([xt.full_like(targets, blank), targets], axis=2)
    end = xt.full((batch, 1), blank, dtype=targets.dtype, device=targets.device)
    found: Tensor = xt.concat([xt.reshape(pairs, (batch, 2 * longest)), end], axis=1)
    return found


def _skips(spelled: Tensor, blank: int) -> Tensor:
    """Return which elements may follow that before the last: those that are neither blank nor a repeat."""
    none = xt.zeros((spelled.shape[0], 2), dtype=xt.bool, device=spelled.device)
    may = (spelled[:, 2:] != spelled[:, :-2]) & (spelled[:, 2:] != blank)
    found: Tensor = xt.concat([none, may], axis=1)[:, : spelled.shape[1]]
    return found


def _chance_back(
    g: tuple[Tensor, None], own: Tensor, y: tuple[Tensor, Tensor], skips: Tensor, given: Tensor, ends: Tensor
) -> Tensor:
    """The cotangent of own: how likely each frame is to be each element. What may follow a frame is what may precede it
    where both are read from their ends.
    """
    own = xt.maximum(own, LOW)
    found, before = _computed(own, skips, given, ends) if is_recording() else y
    frames, batch, length = own.shape
    frame, number = (xt.arange(n, device=own.device) for n in (frames, length))
    frame = xt.expand_dims(frame, axis=1)
    rows = xt.maximum(xt.squeeze(given, axis=1) - 1 - frame, 0) * batch + xt.arange(batch, device=own.device)

    def turned(x: Tensor) -> Tensor:
        return xt.reshape(xt.take(xt.reshape(x, (-1, length)), xt.reshape(rows, (-1,)), axis=0), own.shape)

    after = turned(_chances(turned(own), skips, (number == ends) | (number == ends - 1), back=True))
    found, is_there = xt.expand_dims(found, axis=1), (xt.expand_dims(frame, axis=2) < given) & (number <= ends)
    for one in (before, after, found):
        is_there = is_there & (one > LOW / 2)
    return xt.expand_dims(g[0], axis=1) * xt.exp(xt.where(is_there, before + after - own - found, -inf))


@differentiable(own=_chance_back)
def _log_chance(own: Tensor, skips: Tensor, given: Tensor, ends: Tensor) -> tuple[Tensor, Tensor]:
    """Return the logarithms of the chances of each target (batch,), and of what may end with each element at each frame
    (frames, batch, length).

    own: those of the elements themselves. skips: whether an element may follow that before the last (batch, length).
    given, ends: the number of frames, and the number of the last element, a blank (batch, 1).
    """
    return _computed(xt.maximum(own, LOW), skips, given, ends)


def _computed(own: Tensor, skips: Tensor, given: Tensor, ends: Tensor) -> tuple[Tensor, Tensor]:
    """Return the results of `_log_chance`, with the gradient of its steps where that is asked for."""
    number = xt.arange(skips.shape[1], device=own.device)
    before = _chances(own, skips, (number <= 1) & (number <= ends))
    last = xt.take_along_axis(before, xt.broadcast_to(given - 1, (1, *skips.shape)), axis=0)[0, ...]
    return logsumexp(xt.where((number == ends) | (number == ends - 1), last, LOW), 1), before


def _chances(own: Tensor, skips: Tensor, first: Tensor, *, back: bool = False) -> Tensor:
    """Return the logarithms of the chances of what may end with each element at each frame, from what may be first.

    back: whether each element is followed by those before it.
    """
    found = [xt.where(first, own[0, ...], LOW)]
    low = xt.full((skips.shape[0], 2), LOW, dtype=own.dtype, device=own.device)
    if back:
        skips = xt.concat([skips, xt.zeros_like(low, dtype=xt.bool)], axis=1)[:, 2:]
    step = partial(_next_frame, back) if is_recording() and steps_of((own,)) else _fused(back)
    for frame in range(1, own.shape[0]):
        found.append(step(found[-1], own[frame, ...], skips, low))
    return xt.stack(found)


def _next_frame(back: bool, total: Tensor, own: Tensor, skips: Tensor, low: Tensor) -> Tensor:
    """Return the logarithms of the chances of what ends with each element one frame later."""
    wide = xt.concat([total, low] if back else [low, total], axis=1)
    one, two = (wide[:, 1:-1], wide[:, 2:] if back else wide[:, :-2])
    two = xt.where(skips, two, LOW)
    most = xt.stop_gradient(xt.maximum(xt.maximum(total, one), two))
    return most + xt.log(xt.exp(total - most) + xt.exp(one - most) + xt.exp(two - most)) + own


@cache
def _fused(back: bool) -> Callable[..., Tensor]:
    """Return that as one kernel: called one by one its steps would take 20 times as long."""
    fused: Callable[..., Tensor] = xt.fuse(partial(_next_frame, back))
    return fused

"""Losses of sequences whose alignment with their targets is not known."""

from __future__ import annotations

from math import inf
from typing import Any

from ..autograd.rules import xt
from ..base.errors import expected
from ..base.layout import as_index
from ..devices import Device
from ..tensor.face import Tensor
from .checks import check_reduction, floating, whole
from .layers import check_classes
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
    found = _log_chance(log_probs, spelled, given, wanted, blank)
    loss = xt.where(found > LOW / 2, -found, 0.0 if zero_infinity else inf)
    if reduction == "mean":
        return xt.mean(loss / xt.astype(xt.maximum(wanted, 1), loss.dtype))
    return xt.sum(loss) if reduction == "sum" else loss


def _lengths(value: Any, device: Device, batch: int, least: int, most: int, argument: str) -> Tensor:
    """Return lengths as a tensor; raises ValueError for others than so many between bounds."""
    lengths = whole(xt.asarray(value, device=device), "ctc_loss", argument)
    if lengths.shape != (batch,):
        raise ValueError(expected("ctc_loss", argument, f"have shape ({batch},)", f"shape {lengths.shape}"))
    if batch and not (least <= int(xt.min(lengths)) and int(xt.max(lengths)) <= most):
        raise ValueError(expected("ctc_loss", argument, f"be from {least} to {most}", lengths.tolist()))
    return xt.astype(lengths, xt.int64)


def _with_blanks(targets: Tensor, blank: int) -> Tensor:
    """Return targets with a blank before each element, and one behind the last."""
    batch, longest = targets.shape
    pairs = xt.stack([xt.full_like(targets, blank), targets], axis=2)
    end = xt.full((batch, 1), blank, dtype=targets.dtype, device=targets.device)
    found: Tensor = xt.concat([xt.reshape(pairs, (batch, 2 * longest)), end], axis=1)
    return found


def _log_chance(log_probs: Tensor, spelled: Tensor, given: Tensor, wanted: Tensor, blank: int) -> Tensor:
    """Return the logarithm of the chance of each target: of what may end with each of its elements, frame by frame."""
    frames, batch, _ = log_probs.shape
    length = spelled.shape[1]
    own = xt.take_along_axis(log_probs, xt.broadcast_to(spelled, (frames, batch, length)), axis=2)
    skips = xt.concat(
        [
            xt.zeros((batch, 2), dtype=xt.bool, device=spelled.device),
            (spelled[:, 2:] != spelled[:, :-2]) & (spelled[:, 2:] != blank),
        ],
        axis=1,
    )[:, :length]
    low = xt.full((batch, 2), LOW, dtype=log_probs.dtype, device=log_probs.device)
    number, ends = xt.arange(length, device=spelled.device), xt.expand_dims(2 * wanted, axis=1)
    total = xt.where((number <= 1) & (number <= ends), own[0, ...], LOW)
    for frame in range(1, frames):
        before = xt.concat([low, total], axis=1)
        either = xt.logaddexp(xt.logaddexp(total, before[:, 1:-1]), xt.where(skips, before[:, :-2], LOW))
        is_there = xt.expand_dims(given, axis=1) > frame
        total = xt.where(is_there, either + own[frame, ...], total)
    last = xt.where((number == ends) | (number == ends - 1), total, LOW)
    return logsumexp(last, 1)

"""Nested sequences with tensors in them, as stacks of their items: so that they keep gradients, and are captured."""

from __future__ import annotations

from typing import Any, cast

from ..autograd.rules import xt
from ..autograd.tape import active, is_recording
from ..graph.number import is_traced
from ..storage.storage import watchers, watching
from ..tensor.face import Tensor
from ..tensor.operands import DeviceLike


def stacked(obj: Any, told: bool = True, device: DeviceLike = None) -> Tensor | None:
    """Return nested sequences with tensors in them that have a gradient, or are to be captured, as a stack of their
    items; others as None. told: whether that goes for numbers that are told, too. device: of items that are no tensors.
    """
    if not (watchers or (active[0] and is_recording())):
        return None
    captured = bool(watchers) and watching() is not None
    if not _holds_tensor(obj, captured, captured and told):
        return None
    items = [item if isinstance(item, Tensor) else xt.asarray(item, device=device) for item in obj]
    return cast(Tensor, xt.stack(items))


def stacked_constants(obj: Any, device: DeviceLike = None) -> Tensor | None:
    """Return nested sequences with tensors in them that are to be captured as a stack of their items; others as None,
    and those of which a gradient would be lost: who writes it down stacks them before (autograd/tape.py).
    """
    return None if not watchers or _holds_tensor(obj, False, False) else stacked(obj, device=device)


def _holds_tensor(obj: Any, constants: bool, told: bool) -> bool:
    """Return whether there is a tensor in nested sequences. constants: also one that has no gradient; told: or a number
    that is told.
    """
    if isinstance(obj, (list, tuple)):
        return any(_holds_tensor(item, constants, told) for item in obj)
    if isinstance(obj, Tensor):
        return constants or obj.requires_grad
    return told and is_traced(obj)

"""Nested sequences with tensors in them, as stacks of their items, to keep gradients and to be captured."""

from __future__ import annotations

from typing import Any, cast

from ..autograd.rules import xt
from ..autograd.tape import active, is_recording
from ..graph.number import is_traced
from ..storage.storage import watchers, watching
from ..tensor.face import Tensor
from ..tensor.operands import DeviceLike


def stacked(obj: Any, told: bool = True, device: DeviceLike = None) -> Tensor | None:
    """Return a stack of the items of nested sequences if these contain tensors that have a gradient, or are to be
    captured; else None. told: whether traced numbers count, too. device: of items that are no tensors.
    """
    if not (watchers or (active[0] and is_recording())):
        return None
    captured = bool(watchers) and watching() is not None
    if not _holds_tensor(obj, captured, captured and told):
        return None
    items = [item if isinstance(item, Tensor) else xt.asarray(item, device=device) for item in obj]
    return cast(Tensor, xt.stack(items))


def stacked_constants(obj: Any, device: DeviceLike = None) -> Tensor | None:
    """Return a stack of the items of nested sequences if these contain tensors that are to be captured; else None, also
    if a gradient would be lost: the tape stacks such sequences before (autograd/tape.py).
    """
    return None if not watchers or _holds_tensor(obj, False, False) else stacked(obj, device=device)


def _holds_tensor(obj: Any, constants: bool, told: bool) -> bool:
    """Return whether nested sequences contain a tensor with a gradient. constants: or any tensor; told: or a traced
    number.
    """
    if isinstance(obj, (list, tuple)):
        return any(_holds_tensor(item, constants, told) for item in obj)
    if isinstance(obj, Tensor):
        return constants or obj.requires_grad
    return told and is_traced(obj)

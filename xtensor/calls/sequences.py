"""Sequences with tensors in them: nested ones as stacks of their items, to keep gradients and to be captured; a few
computed values as arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from ..autograd.rules import xt
from ..autograd.tape import active, is_recording
from ..base.dtypes import DType
from ..devices.cpu import CPU
from ..graph.number import is_traced
from ..storage.storage import Native, watchers, watching
from ..tensor.face import Tensor
from ..tensor.operands import SCALARS, DeviceLike

# The elements up to which a sequence is short, and the largest integer of a short one.
SHORT, LARGEST = 16, 2**63 - 1


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


def row_of(items: Sequence[Any], dtype: DType | None = None) -> Native | None:
    """Return a few computed values and numbers as an array of a dtype (None for NumPy's), as in `x[i] = (a, b, c)`;
    None for anything else, and for numbers that do not fit.
    """
    if not 0 < len(items) <= SHORT:
        return None
    found = []
    for item in items:
        native = item.thin() if type(item) is Tensor else None
        if native is not None and not native.ndim:
            found.append(native[()])
        elif type(item) in SCALARS and (type(item) is not int or -LARGEST <= item <= LARGEST):
            found.append(item)
        else:
            return None
    if dtype is not None and dtype.kind == "f" and any(isinstance(one, (complex, np.complexfloating)) for one in found):
        return None
    return cast(Native, CPU.call(np.array, found, dtype))


def _holds_tensor(obj: Any, constants: bool, told: bool) -> bool:
    """Return whether nested sequences contain a tensor with a gradient. constants: or any tensor; told: or a traced
    number.
    """
    if isinstance(obj, (list, tuple)):
        return any(_holds_tensor(item, constants, told) for item in obj)
    if isinstance(obj, Tensor):
        return constants or obj.requires_grad
    return told and is_traced(obj)

"""Layers without state: linear, embedding, one_hot, dropout."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ..autograd.rules import xt
from ..base.errors import expected
from ..base.layout import as_axes, as_axis
from ..calls.library import native_of
from ..storage.storage import Native, watchers, watching
from ..tensor.face import Tensor
from . import kernels
from .checks import along, count_of, floating, per_channel, whole, within

__all__ = ["dropout", "embedding", "linear", "one_hot"]


def linear(x: Tensor, weight: Tensor, /, bias: Tensor | None = None) -> Tensor:
    """Return x @ weight.T + bias: x (..., features), weight (outputs, features), bias (outputs,) give (..., outputs).

    Raises TypeError unless all are real floating, ValueError if shapes do not match. Source:
    torch.nn.functional.linear.
    """
    x, weight = floating(x, "linear"), floating(weight, "linear", "weight")
    if weight.ndim != 2 or x.ndim < 1 or x.shape[-1] != weight.shape[1]:
        must = f"have shape (outputs, {x.shape[-1] if x.ndim else 'features'}) for x {x.shape}"
        raise ValueError(expected("linear", "weight", must, weight.shape))
    product = xt.matmul(x, xt.matrix_transpose(weight))
    return product if bias is None else product + per_channel(bias, weight.shape[:1], "linear", "bias")


def embedding(indices: Tensor, weight: Tensor, /, *, padding_idx: int | None = None) -> Tensor:
    """Return the rows of weight (count, size) at integer indices of any shape: (..., size).

    padding_idx: the row that gets no gradient; negative numbers count from the end. Gradients of rows that are looked
    up several times are added. Raises TypeError for indices that are not integers, IndexError for one outside [0,
    count), ValueError for a weight without two axes. Source: torch.nn.functional.embedding.
    """
    indices, weight = whole(indices, "embedding", "indices"), floating(weight, "embedding", "weight")
    if weight.ndim != 2:
        raise ValueError(expected("embedding", "weight", "have shape (count, size)", weight.shape))
    check_classes(indices, weight.shape[0], "embedding", "indices")
    rows: Tensor = xt.take(weight, indices, axis=0)
    if padding_idx is None:
        return rows
    row = as_axis(padding_idx, weight.shape[0], "embedding", "padding_idx")
    return xt.where(xt.expand_dims(indices == row, axis=-1), xt.stop_gradient(rows), rows)


def check_classes(x: Tensor, count: int, function: str, argument: str, ignored: int | None = None) -> None:
    """Raise IndexError for an integer outside [0, count) that is not the ignored one."""
    check_elements(x, partial(_check_classes, count=count, function=function, argument=argument, ignored=ignored))


def check_elements(x: Tensor, check: Callable[[Native], None]) -> None:
    """Call `check` with the native array of x, in a captured function as a step of it."""
    capture = watching() if watchers else None
    if capture is None:
        x.device.backend.call(check, native_of(x))
        return
    blob = x.blob
    with capture.inside():
        x.device.backend.call(check, blob.shallow_copy().native())
    capture.called(check, (blob,), ())


def _check_classes(native: Native, count: int, function: str, argument: str, ignored: int | None) -> None:
    if native.dtype.kind == "u" and ignored is not None and ignored < 0:
        ignored = None  # which none of them is
    if native.size and kernels.outside(native, count, ignored) is False:
        return
    wide = native.astype("int64", copy=False)  # which takes any bound; what it cannot hold becomes negative
    if (wide.view("uint64") < count).all():
        return
    wrong = (wide < 0) | (wide >= count)
    if ignored is not None:
        wrong &= wide != ignored
    if wrong.any():
        raise IndexError(expected(function, argument, f"hold integers from 0 to {count - 1}", int(native[wrong][0])))


_check_classes.takes_stacks = True  # type: ignore[attr-defined]  # of all rows at once (calls/batching.py)
_check_classes.checks = True  # type: ignore[attr-defined]  # machine code does it as well (run/at_indices.py)


def is_class(x: Tensor, count: int, axis: int) -> Tensor:
    """Return booleans over `count` classes along an axis along which x has length 1: whether an element is that
    class.
    """
    return is_of(x, classes_of(x, count, axis))


def classes_of(x: Tensor, count: int, axis: int) -> Tensor:
    """Return the numbers of `count` classes along an axis of x."""
    return along(xt.arange(count, dtype=xt.int32, device=x.device), axis, x.ndim)


def is_of(x: Tensor, classes: Tensor) -> Tensor:
    """Return whether elements equal the classes, which lie along an axis along which x has length 1."""
    return xt.astype(x, xt.int32, copy=False) == classes  # 4 bytes as float32: loops over both keep their width


def one_hot(indices: Tensor, /, num_classes: int | None = None, *, dtype: Any = None, axis: int = -1) -> Tensor:
    """Return 1 where the position along a new axis is the index, else 0: shape (...) gives (..., num_classes).

    num_classes: None for one more than the largest index. dtype: None for int64. axis: the position of the new axis in
    the result. Raises TypeError for indices that are not integers, IndexError for one outside [0, num_classes). Source:
    torch.nn.functional.one_hot.
    """
    indices = whole(indices, "one_hot", "indices")
    if num_classes is None:
        if not indices.size:
            raise ValueError(expected("one_hot", "num_classes", "be given where there are no indices", None))
        count = max(int(xt.max(indices)) + 1, 1)
    else:
        count = count_of(num_classes, "one_hot", "num_classes")
    check_classes(indices, count, "one_hot", "indices")
    axis = as_axis(axis, indices.ndim + 1, "one_hot")
    found = is_class(xt.expand_dims(indices, axis=axis), count, axis)
    return xt.astype(found, xt.int64 if dtype is None else dtype)


def dropout(
    x: Tensor,
    /,
    p: float = 0.5,
    *,
    generator: Any,
    training: bool = True,
    together: int | tuple[int, ...] = (),
) -> Tensor:
    """Return x with each element set to 0 with probability p, the others divided by 1 - p; x itself unless training.

    generator: a Generator of xt.random (or NumPy's), from which one float32 is drawn per element. together: axes along
    which all elements are kept or dropped together: the spatial axes drop whole channels. Raises TypeError unless x is
    real floating, ValueError for p outside [0, 1]. Source: torch.nn.functional.dropout, dropout2d.
    """
    x, p = floating(x, "dropout"), within(p, "dropout", "p", 0, 1)
    if not hasattr(generator, "random"):
        raise TypeError(expected("dropout", "generator", "be a Generator, as of xt.random", type(generator).__name__))
    if not training or p == 0:
        return x
    if p == 1:
        return xt.where(False, x, 0)
    axes = as_axes(together, x.ndim, "dropout", "together")
    shape = tuple(1 if axis in axes else n for axis, n in enumerate(x.shape))
    drawn = xt.asarray(generator.random(shape, dtype=xt.float32), device=x.device)
    return xt.where(drawn >= p, x * (1 / (1 - p)), 0)

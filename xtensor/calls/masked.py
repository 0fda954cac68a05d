"""Selections by a mask while a function is captured: `x[mask] = f(x[mask])` becomes `x = where(mask, f(x), x)`, and
`sum(x[mask])` becomes `sum(where(mask, x, 0))`.

The number of elements that a mask selects depends on its values, and with it the shape of all that follows. As long as
nobody asks for that shape, elementwise functions are computed for all elements, and written where the mask is true.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..autograd.rules import RULES, xt
from ..autograd.tape import Step, active, is_keeping, is_recording, keep, step_of
from ..base.dtypes import float64, promote
from ..graph.node import Masked, Node
from ..graph.number import is_traced, type_of
from ..storage.blob import TBlob
from ..storage.storage import refuse_capture, watching
from ..tensor.face import Tensor
from ..tensor.operands import SCALARS

if TYPE_CHECKING:
    from .op import Op

# The most steps that are compared, one behind the other, to find out whether two masks are the same.
COMPARED = 8


def selection(value: Tensor, mask: Tensor) -> Tensor:
    """Return the elements of a tensor where a mask is true. Both must be recorded copies, or computed from such, that
    nobody else holds.
    """
    tensor = Tensor()
    tensor._content = masked = Masked(value, mask, _settle)
    tensor._owner = tensor._blob = tensor._step = None
    before = step_of(value) if active[0] and is_recording() else None
    if before is not None:
        tensor._step = masked.step = Step(RULES["getitem"], (before,), value, (("x", None),))
        if is_keeping():
            keep(masked.step, RULES["getitem"], {"x": value, "key": mask}, tensor)
    return tensor


def is_selection(x: Any) -> bool:
    """Return whether x is a tensor of elements that a mask selects, which nobody has asked for."""
    return type(x) is Tensor and type(x._content) is Masked and x._content.blob is None


def _settle(masked: Masked) -> TBlob:
    """Return the selected elements: a function that needs them, or their number, is not captured."""
    refuse_capture("getitem")
    backend = masked.device.backend
    native = backend.asarray(backend.index(masked.value.native(), masked.mask.native()))
    if masked.step is not None:
        masked.step.shape = native.shape
    return TBlob.adopt(native, masked.device)


def apply_selected(op: Op, operands: tuple[Any, ...], apply: Callable[[Op, tuple[Any, ...]], Tensor]) -> Tensor | None:
    """Return the result of an elementwise op on elements that one mask selects, and scalars; None for other operands.

    apply: records an op of whole tensors.
    """
    selected = [x._content for x in operands if is_selection(x)]
    if not selected or watching() is None:
        return None
    mask, whole = selected[0].mask, [x._content.value if is_selection(x) else x for x in operands]
    if not all(is_same_mask(one.mask, mask) for one in selected):
        return None
    if not all(is_selection(x) or _is_scalar(x) for x in operands):
        return None
    if op.fails_on_values(*[x.dtype if type(x) is Tensor else type_of(x) for x in operands]):
        return None  # as elements that are not selected may fail
    return selection(apply(op, tuple(whole)), mask)


def reduce_selected(op: Op, x: Any, params: dict[str, Any]) -> Tensor | None:
    """Return a reduction of elements that a mask selects, as one of all elements; None for other operands, and for a
    reduction that is an error without elements.
    """
    if not is_selection(x) or watching() is None or params["keepdims"] is not False:
        return None
    axis, reduced = params["axis"], _REDUCED.get(op.name)
    if reduced is None or type(axis) not in (int, tuple, type(None)) or axis not in (None, 0, -1, (0,), (-1,)):
        return None
    found: Tensor | None = reduced(x._content.value, x._content.mask, params.get("dtype"))
    return found


def _filled(value: Tensor, mask: Tensor, fill: bool) -> Tensor:
    """Return a tensor with 0 or 1 where the mask is false."""
    found: Tensor = xt.where(mask, value, fill if value.dtype.kind == "b" else int(fill))
    return found


def _true(value: Tensor) -> Tensor:
    return value if value.dtype.kind == "b" else value != 0


def _mean(value: Tensor, mask: Tensor, dtype: Any) -> Tensor | None:
    """Return the sum divided by the number of elements, in double precision as in NumPy."""
    if dtype is not None and dtype != value.dtype:
        return None
    kind = value.dtype if value.dtype.kind in "fc" else float64
    wide = promote(kind, float64)
    total = xt.astype(xt.sum(_filled(xt.astype(value, kind), mask, False)), wide)
    found: Tensor = xt.astype(total / xt.astype(xt.count_nonzero(mask), wide), kind)
    return found


# Reductions of (value, mask, dtype) that are defined without elements. Products of complex numbers are left out: with
# infinities another factor 1 would change them.
_REDUCED: dict[str, Callable[[Tensor, Tensor, Any], Tensor | None]] = {
    "sum": lambda x, mask, dtype: xt.sum(_filled(x, mask, False), dtype=dtype),
    "prod": lambda x, mask, dtype: None if x.dtype.kind == "c" else xt.prod(_filled(x, mask, True), dtype=dtype),
    "mean": _mean,
    "any": lambda x, mask, _: xt.any(xt.logical_and(mask, _true(x))),
    "all": lambda x, mask, _: xt.all(xt.logical_or(xt.logical_not(mask), _true(x))),
    "count_nonzero": lambda x, mask, _: xt.count_nonzero(xt.logical_and(mask, _true(x))),
}


def _is_scalar(x: Any) -> bool:
    if type(x) is not Tensor:
        return type(x) in SCALARS or is_traced(x)
    return type(x._content) is not Masked and not x.shape and step_of(x) is None


def is_same_mask(copy: Tensor, mask: Tensor) -> bool:
    """Return whether a mask has the same values as a recorded copy of a mask.

    As long as the copy is pending nobody has written to the memory it reads: it would have been computed before.
    """
    node, value = (
        copy._content,
        mask._content if type(mask._content) is Node and mask._content.blob is None else mask.blob,
    )
    if type(node) is not Node or node.blob is not None:
        return copy is mask
    return _is_same(node, value, COMPARED) or _is_same(node.inputs[0], value, COMPARED)


def _is_same(a: Any, b: Any, steps: int) -> bool:
    """Return whether two pending values, blobs or numbers are the same when read now."""
    if a is b:
        return True
    if type(a) is not type(b) or not steps:
        return False
    if type(a) is TBlob:
        return a.owner is b.owner and a.layout == b.layout and a.dtype == b.dtype
    if type(a) is not Node:
        return repr(a) == repr(b)  # 0.0 is not -0.0, and NaN is NaN
    if a.blob is not None or b.blob is not None or (a.op, a.params, a.shape) != (b.op, b.params, b.shape):
        return False
    return len(a.inputs) == len(b.inputs) and all(map(_is_same, a.inputs, b.inputs, [steps - 1] * len(a.inputs)))

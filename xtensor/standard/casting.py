"""Data type functions that take arrays: astype and result_type (the others are in base/dtypes.py)."""

from __future__ import annotations

from typing import Any, cast

from ..autograd.tape import differentiable
from ..base.dtypes import DType, canonical, check_real, promote
from ..base.errors import expected
from ..base.options import thin_closed
from ..calls.library import on, thin_call
from ..calls.op import cast_later
from ..devices import as_device
from ..plan.costs import cheap_below
from ..tensor.face import Tensor, small
from ..tensor.operands import SCALARS, DeviceLike, as_tensor
from ..tensor.scalars import is_value, marked

__all__ = ["astype", "result_type"]


@differentiable(x=lambda g: g)
def astype(x: Tensor, dtype: DType, /, *, copy: bool = True, device: DeviceLike = None) -> Tensor:
    """Return x in another dtype: floats are truncated towards zero, and nonzero numbers become True.

    copy=False returns x itself if dtype and device are already its own. Raises TypeError for complex to real.
    Standard: Data Type Functions, astype.
    """
    target = canonical(dtype, "astype")
    native = small(x, cheap_below[0]) if type(x) is Tensor and device is None and not thin_closed[0] else None
    if native is not None and (target is not native.dtype or copy):
        check_real(native.dtype, target, "astype", "x")
        is_small = native.size * target.itemsize <= cheap_below[0]
        found = thin_call(native.astype, [], target) if is_small else None
        if found is not None:
            return cast(Tensor, marked(found, is_value(x)))
    x = as_tensor(x, "astype")
    if device is not None:
        x = x.to_device(as_device(device, "astype"))
    if target == x.dtype:
        return x.copy("K") if copy else x
    check_real(x.dtype, target, "astype", "x")
    convert = x.device.backend.astype
    found = cast_later(x, target)
    if found is None:
        found = on(x, "astype", lambda xp, a: convert(a, target))
    return cast(Tensor, marked(found, is_value(x)))


def result_type(*arrays_and_dtypes: Any) -> DType:
    """Return the dtype that results from combining arrays, dtypes and Python scalars.

    Python scalars are weak: they take on the dtype of the others within their kind (NEP 50); on their own they count
    with their default dtype. Raises ValueError without arguments, TypeError for an argument without a dtype. Standard:
    Data Type Functions, result_type.
    """
    if not arrays_and_dtypes:
        raise ValueError(expected("result_type", "arrays_and_dtypes", "hold at least one", "none"))
    kinds = [one.dtype if type(one) is Tensor else _kind(one) for one in arrays_and_dtypes]
    return canonical(promote(*kinds), "result_type")


def _kind(one: Any) -> DType | type:
    if type(one) in SCALARS:
        return type(one)
    return canonical(getattr(one, "dtype", one), "result_type", "arrays_and_dtypes")

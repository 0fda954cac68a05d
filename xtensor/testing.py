"""`xt.testing`: numpy.testing's assertions over tensors, which also compare dtypes, shapes and devices."""

from __future__ import annotations

from typing import Any

import numpy

from .base.errors import expected
from .tensor.face import Tensor

__all__ = ["assert_allclose", "assert_array_equal", "assert_array_max_ulp"]


def assert_allclose(
    actual: Any,
    desired: Any,
    rtol: float = 1e-7,
    atol: float = 0.0,
    equal_nan: bool = True,
    err_msg: str = "",
    *,
    strict: bool = True,
) -> None:
    """Raise AssertionError unless a tensor's elements are within atol + rtol * abs(desired) of those of `desired`.

    actual: a tensor of any shape and dtype. desired: a tensor, array, number or nested sequence of the same shape.
    equal_nan: whether NaN counts as equal to NaN. err_msg: a text to add to the message. strict: whether `actual` must
    be a tensor, have the dtype of `desired` if that is a tensor or an array, and be on the device of `desired` if that
    is a tensor; without it, a number may also stand for all elements. Source: numpy.testing.assert_allclose.
    """
    found, wanted = _natives("assert_allclose", actual, desired, strict)
    numpy.testing.assert_allclose(found, wanted, rtol=rtol, atol=atol, equal_nan=equal_nan, err_msg=err_msg)


def assert_array_equal(actual: Any, desired: Any, err_msg: str = "", *, strict: bool = True) -> None:
    """Raise AssertionError unless a tensor's elements equal those of `desired`; NaN counts as equal to NaN.

    actual, desired, err_msg and strict are those of assert_allclose. Source: numpy.testing.assert_array_equal.
    """
    found, wanted = _natives("assert_array_equal", actual, desired, strict)
    numpy.testing.assert_array_equal(found, wanted, err_msg=err_msg)


def assert_array_max_ulp(actual: Any, desired: Any, maxulp: int = 1, *, strict: bool = True) -> None:
    """Raise AssertionError unless real floating elements are within maxulp units in the last place of those of
    `desired`.

    actual, desired and strict are those of assert_allclose. Source: numpy.testing.assert_array_max_ulp.
    """
    found, wanted = _natives("assert_array_max_ulp", actual, desired, strict)
    numpy.testing.assert_array_max_ulp(found, numpy.asarray(wanted, found.dtype), maxulp)


def _natives(function: str, actual: Any, desired: Any, strict: bool) -> tuple[Any, Any]:
    """Return both as NumPy arrays, on the host and without gradients, after checking what `strict` requires."""
    found, wanted = _native(actual), _native(desired)
    if not strict:
        return found, wanted if wanted.ndim else numpy.broadcast_to(wanted, found.shape)
    if not isinstance(actual, Tensor):
        _fail(function, "be a tensor of xtensor", type(actual).__name__)
    if isinstance(desired, Tensor) and actual.device != desired.device:
        _fail(function, f"be on {desired.device}, as desired is", f"one on {actual.device}")
    if hasattr(desired, "dtype") and actual.dtype != desired.dtype:
        _fail(function, f"have dtype {desired.dtype}, as desired has", actual.dtype)
    if found.shape != wanted.shape:
        _fail(function, f"have shape {wanted.shape}, as desired has", found.shape)
    return found, wanted


def _native(x: Any) -> Any:
    return x.detach().host() if isinstance(x, Tensor) else numpy.asarray(x)


def _fail(function: str, must: str, got: object) -> None:
    raise AssertionError(expected(function, "actual", must, got))


def __dir__() -> list[str]:
    return __all__

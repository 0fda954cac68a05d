"""The assertions of xt.testing, and that they fail where they should; float16 and bfloat16."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from host_cupy import MISSING, installed

import xtensor as xt
from xtensor import testing

ASSERTIONS: list[Callable[..., None]] = [
    testing.assert_allclose,
    testing.assert_array_equal,
    testing.assert_array_max_ulp,
]
every_assertion = pytest.mark.parametrize("check", ASSERTIONS, ids=lambda check: check.__name__)


@every_assertion
def test_what_is_equal_passes(check: Callable[..., None]) -> None:
    """Tensors, pending ones and such with a gradient, beside tensors, arrays, numbers and lists."""
    x = xt.asarray([[1.0, np.inf], [2.0, -0.0]])
    for desired in (x, x.numpy(), x.tolist()):
        check(x, desired)
    check(xt.asarray(2), 2)
    large = xt.linspace(0.0, 1.0, 100_000)
    check(large * 2.0, 2.0 * large.numpy())
    check(xt.asarray([1.0, 2.0], requires_grad=True) * 2.0, [2.0, 4.0])


@every_assertion
@pytest.mark.parametrize(
    ("actual", "desired", "message"),
    [
        (np.ones(2), np.ones(2), "actual must be a tensor of xtensor, got ndarray"),
        (xt.ones(2), xt.ones(2, dtype=xt.float32), "actual must have dtype float32, as desired has, got float64"),
        (xt.ones(2), np.ones(2, int), "actual must have dtype int64, as desired has, got float64"),
        (xt.ones(2), [[1.0, 1.0]], r"actual must have shape \(1, 2\), as desired has, got \(2,\)"),
        (xt.ones(2), 1.0, r"actual must have shape \(\), as desired has, got \(2,\)"),
    ],
)
def test_what_is_not_alike_is_named(check: Callable[..., None], actual: Any, desired: Any, message: str) -> None:
    """Each by itself; without `strict` values and shapes are compared alone, and a number stands for all elements."""
    with pytest.raises(AssertionError, match=f"^{check.__name__}: {message}$"):
        check(actual, desired)
    if np.ndim(desired) < 2:
        check(actual, desired, strict=False)


@every_assertion
def test_other_values_fail(check: Callable[..., None]) -> None:
    """With what numpy.testing says of them."""
    with pytest.raises(AssertionError, match="(?i)not equal|max ulp|ULP"):
        check(xt.asarray([1.0, 2.0]), xt.asarray([1.0, 2.1]))


def test_tolerances() -> None:
    """Near values pass the assertions that allow for it."""
    x = xt.asarray([1.0, np.nan])
    testing.assert_allclose(x, x * (1 + 1e-9))
    testing.assert_allclose(x, x + 0.5, rtol=0, atol=0.6)
    testing.assert_array_max_ulp(xt.asarray([1.0]), np.nextafter([1.0], 2))
    testing.assert_array_equal(x, x)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        testing.assert_allclose(x, x, equal_nan=False)
    with pytest.raises(AssertionError, match="why"):
        testing.assert_allclose(x, x + 1, err_msg="why")


@pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
def test_devices_are_named() -> None:
    """A tensor elsewhere is not what is desired, whatever its values."""
    with installed():
        x = xt.ones(2, device="cuda:0")
        testing.assert_array_equal(x, xt.ones(2, device="cuda:0"))
        testing.assert_array_equal(x, [1.0, 1.0])
        with pytest.raises(AssertionError, match="actual must be on cpu, as desired is, got one on cuda:0"):
            testing.assert_array_equal(x, xt.ones(2))


# ---- float16 and bfloat16


def test_float16_is_named_and_not_listed() -> None:
    """Generic code does not come upon it."""
    assert xt.float16 == np.dtype("float16")
    info = xt.__array_namespace_info__()
    assert "float16" not in info.dtypes() and "float16" not in info.dtypes(kind="real floating")
    assert xt.isdtype(xt.float16, "real floating") and xt.can_cast(xt.float16, xt.float32)
    assert xt.result_type(xt.float16, xt.float32) == xt.float32


@pytest.mark.parametrize("dtype", [xt.bool, xt.uint8, xt.int64, xt.float32, xt.float64, xt.complex128], ids=str)
def test_float16_is_converted(dtype: Any) -> None:
    """From every kind of dtype, and back."""
    n = np.array([0, 1, 2, 3]).astype(dtype)
    if dtype.kind == "c":
        testing.assert_array_equal(xt.astype(xt.asarray(n.real, dtype=xt.float16), dtype), n)
        return
    x = xt.asarray(n)
    testing.assert_array_equal(xt.astype(x, xt.float16), n.astype(np.float16))
    testing.assert_array_equal(xt.astype(xt.asarray(x, dtype=xt.float16), dtype), n.astype(np.float16).astype(dtype))


@pytest.mark.parametrize("lazy", ["never", "always"])
def test_float16_is_computed_with(lazy: str) -> None:
    """By NumPy's own loops, recorded or not; gradients are float16, too."""
    n = np.linspace(0.5, 2.0, 7, dtype=np.float16)
    with xt.options(lazy=lazy):
        x = xt.asarray(n, copy=True)
        testing.assert_array_equal(x * 2 + x / 3, n * 2 + n / 3)
        testing.assert_array_equal(xt.exp(x), np.exp(n))
        testing.assert_array_equal(xt.sort(-x), np.sort(-n))
        testing.assert_allclose(xt.sum(x), np.sum(n), rtol=1e-3)
        testing.assert_allclose(xt.grad(lambda v: xt.sum(v * v))(x), 2 * n, rtol=1e-3)


def test_bfloat16_is_converted_at_the_border() -> None:
    """Its arrays come in under another dtype and are made of what goes out; tensors hold none."""
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    n = np.array([1.0, 2.5, -3.0], bfloat16)
    x = xt.asarray(n, dtype=xt.float32)
    testing.assert_array_equal(x, np.array([1.0, 2.5, -3.0], np.float32))
    np.testing.assert_array_equal(x.numpy().astype(bfloat16), n)
    for call in (lambda: xt.asarray(n), lambda: xt.astype(x, bfloat16), lambda: xt.zeros(2, dtype=bfloat16)):
        with pytest.raises(
            TypeError, match="dtype must be a boolean, integer, floating or complex dtype, got bfloat16"
        ):
            call()

"""Memory handed to PyTorch and JAX, and taken from them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import xtensor as xt

torch = pytest.importorskip("torch")
jnp = pytest.importorskip("jax.numpy")

VALUES = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
DTYPES = ["bool", "int8", "uint8", "int16", "int32", "float32", "complex64"]  # what JAX holds as it is set up
LAYOUTS = {
    "packed": lambda x: x,
    "transposed": lambda x: x.T,
    "gaps": lambda x: x[:, ::2],
    "offset": lambda x: x[1:, 1:],
    "reversed": lambda x: x[::-1, ::-1],
    "broadcast": lambda x: xt.broadcast_to(x[:1], (4, 3)),
    "0-d": lambda x: x[0, 0],
    "empty": lambda x: x[:0],
}
every_layout = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)


@pytest.fixture
def x() -> Any:
    """A matrix in single precision, which all three libraries hold."""
    return xt.asarray(VALUES, dtype=xt.float32)


def assert_same(ours: Any, theirs: Any) -> None:
    """Check values, shape and dtype."""
    np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs), strict=True)


# ---- PyTorch


@every_layout
@pytest.mark.parametrize("take", [torch.from_dlpack, torch.asarray, torch.as_tensor, torch.tensor])
def test_torch_takes(take: Any, layout: Any, x: Any) -> None:
    """Every layout arrives; negative strides, on which PyTorch would end the process, leave as a copy."""
    view = layout(x)
    assert_same(take(view), view)


def test_torch_shares_memory(x: Any) -> None:
    """Memory is shared in both directions, gaps included, unless a copy is asked for."""
    theirs = torch.from_dlpack(x[:, ::2])
    theirs[0, 0] = 10
    assert x[0, 0] == 10
    copied = torch.from_dlpack(x, copy=True)
    copied[0, 0] = 20
    assert x[0, 0] == 10
    for take in (xt.from_dlpack, xt.asarray):
        ours = take(theirs)
        theirs[1, 1] += 1
        assert float(ours[1, 1]) == float(theirs[1, 1])
        ours[0, 1] = 30
        assert theirs[0, 1] == 30


@pytest.mark.parametrize("dtype", [*DTYPES, "int64", "float64", "complex128", "uint16", "uint32", "uint64"])
def test_torch_dtypes(dtype: str) -> None:
    """Every dtype goes and comes."""
    n = np.asarray([0, 1, 1]).astype(dtype)
    theirs = torch.from_dlpack(xt.asarray(n))
    assert str(theirs.dtype) == f"torch.{dtype}"
    assert_same(xt.from_dlpack(theirs), n)
    assert_same(xt.asarray(theirs), n)


def test_torch_keywords(x: Any) -> None:
    """Device and copy are passed on as PyTorch passes them."""
    for keywords in ({"device": "cpu"}, {"copy": True}, {"copy": False}, {"device": "cpu", "copy": False}):
        assert_same(torch.from_dlpack(x, **keywords), x)
        assert_same(xt.from_dlpack(torch.ones(3), **keywords), np.ones(3, np.float32))


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.ones(3, requires_grad=True),
        lambda: torch.ones(3, dtype=torch.bfloat16),
        lambda: torch.ones(3, device="meta"),
        lambda: torch.eye(3).to_sparse(),
        lambda: torch.ones(3, dtype=torch.complex64).conj(),
    ],
    ids=["requires_grad", "bfloat16", "meta", "sparse", "conj"],
)
def test_torch_tensors_that_cannot_come(make: Any) -> None:
    """What has no memory we could read is refused with an error that consumers catch."""
    with pytest.raises((BufferError, TypeError)):
        xt.from_dlpack(make())


# ---- JAX


@every_layout
@pytest.mark.parametrize("take", [jnp.from_dlpack, jnp.asarray, jnp.array])
def test_jax_takes(take: Any, layout: Any, x: Any) -> None:
    """Every layout arrives in JAX, which takes only memory without gaps."""
    view = layout(x)
    assert_same(take(view), view)


@pytest.mark.parametrize("dtype", DTYPES)
def test_jax_dtypes(dtype: str) -> None:
    """Every dtype JAX holds goes and comes."""
    n = np.asarray([0, 1, 1]).astype(dtype)
    theirs = jnp.from_dlpack(xt.asarray(n))
    assert str(theirs.dtype) == dtype
    assert_same(xt.from_dlpack(theirs), n)
    assert_same(xt.asarray(theirs), n)


def test_jax_arrays_stay_as_they_are() -> None:
    """JAX's arrays never change: neither do ours over their memory."""
    theirs = jnp.arange(3.0)
    for take in (xt.from_dlpack, xt.asarray):
        with pytest.raises(ValueError, match="read-only"):
            take(theirs)[0] = 1
        copied = take(theirs, copy=True)
        copied[0] = 1
    assert theirs[0] == 0


def test_jax_does_not_see_later_writes() -> None:
    """A value JAX has computed from our memory is not changed by our next write."""
    x = xt.ones(1000, dtype=xt.float32)
    theirs = jnp.from_dlpack(x) + 1
    theirs.block_until_ready()
    x[...] = 5
    assert float(theirs.sum()) == 2000


# ---- both at the other side of an operator


@pytest.mark.parametrize("make", [torch.ones, jnp.ones], ids=["torch", "jax"])
def test_no_mixed_operators(make: Any, x: Any) -> None:
    """Arrays of two namespaces do not mix by accident: one of the libraries answers, with values that are right."""
    for left, right in ((x, make((2, 3))), (make((2, 3)), x)):
        try:
            found = left + right
        except TypeError:
            continue
        assert_same(found, np.asarray(VALUES, dtype=np.float32) + 1)

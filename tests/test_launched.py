"""Library calls as launches of captured functions: they are laid out for arrays that only stand for operands."""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from guards import forbid
from numpy.lib.stride_tricks import as_strided

import xtensor as xt
from xtensor.codegen.cpu.compile import host
from xtensor.nn import attention as nn_attention
from xtensor.run import contractions, launched

pytestmark = [
    pytest.mark.skipif(host() is None, reason="there is no compiler here"),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="pages are forbidden by Linux's mprotect"),
]

attend = xt.nn.scaled_dot_product_attention


@pytest.fixture
def stood_for(monkeypatch: Any) -> Iterator[list[tuple[int, ...]]]:
    """Have arrays that stand for operands lie in memory that nobody may touch: reading one ends the process. The value
    is a list of the shapes of these arrays.
    """
    page, shapes = mmap.mmap(-1, mmap.PAGESIZE), list[tuple[int, ...]]()
    memory = np.frombuffer(page, np.uint8)
    forbid(memory.ctypes.data, mmap.PAGESIZE)

    def standing_for(meta: Any) -> Any:
        shapes.append(meta.shape)
        return as_strided(memory[: meta.dtype.itemsize].view(meta.dtype), meta.shape, meta.layout.strides)

    monkeypatch.setattr(launched, "_standing_for", standing_for)
    monkeypatch.setattr(contractions, "CONTRACTION_COMPILED", 0)
    monkeypatch.setattr(nn_attention, "ATTENTION_TILED", 0)
    monkeypatch.setattr(nn_attention, "FEWEST_QUERIES", 1)
    yield shapes
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mprotect(ctypes.c_void_p(memory.ctypes.data), ctypes.c_size_t(mmap.PAGESIZE), 3)  # readable, writable


def numbers(*shape: int, dtype: str = "float32") -> xt.Tensor:
    return xt.asarray(np.random.default_rng(0).standard_normal(shape).astype(dtype), copy=True)


def slopes(function: Callable[..., Any]) -> Callable[..., Any]:
    return xt.grad(lambda x, w: xt.sum(function(x, w) ** 2), (0, 1))


# Functions of two arrays, and these.
CALLS: dict[str, tuple[Callable[..., Any], tuple[xt.Tensor, xt.Tensor]]] = {
    "conv": (slopes(lambda x, w: xt.nn.conv(x, w, padding=1)), (numbers(2, 3, 8, 9), numbers(4, 3, 3, 3))),
    "conv, last": (
        slopes(lambda x, w: xt.nn.conv(x, w, layout="NHWC")),
        (numbers(2, 8, 9, 3), numbers(4, 3, 3, 3)),
    ),
    "conv_transpose": (slopes(xt.nn.conv_transpose), (numbers(2, 4, 6, 5), numbers(4, 3, 3, 3))),
    "pools": (
        slopes(lambda x, w: xt.nn.max_pool(x, 2) * w + xt.nn.avg_pool(x, 2)),
        (numbers(2, 3, 8, 8), numbers(2, 3, 4, 4)),
    ),
    "attention": (slopes(lambda q, k: attend(q, k, k, is_causal=True)), (numbers(2, 3, 9, 5), numbers(2, 3, 9, 5))),
    "attention, turned": (slopes(lambda q, k: attend(q.mT, k.mT, k.mT)), (numbers(2, 5, 9), numbers(2, 5, 9))),
    "a mask": (lambda q, m: attend(q, q, q, m) + 1.0, (numbers(2, 9, 5), numbers(9, 9))),
    "a mask of another dtype": (lambda q, m: attend(q, q, q, m), (numbers(2, 9, 5), numbers(9, 9, dtype="float64"))),
    "a mask across": (lambda q, m: attend(q, q, q, m.mT), (numbers(2, 9, 5), numbers(9, 9))),
}


@pytest.mark.parametrize("name", CALLS)
def test_arrays_that_stand_for_operands_are_not_touched(name: str, stood_for: list[tuple[int, ...]]) -> None:
    function, given = CALLS[name]
    fused, wanted = xt.fuse(function), function(*given)
    with xt.options(engine="llvm"):  # however little work it is
        for _ in range(4):
            found = fused(*given)
    for one, other in zip(*(x if isinstance(x, tuple) else (x,) for x in (found, wanted)), strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-4, atol=1e-4)
    assert stood_for

"""Convolutions with what follows them, run again and again: on memory that moves, is shared, or is not aligned."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import xtensor as xt
from xtensor.codegen.cpu import compile as compile_
from xtensor.nn import algorithms, conv
from xtensor.plan import costs
from xtensor.run import contractions, joined

pytestmark = pytest.mark.skipif(compile_.host() is None, reason="there is no compiler")


@pytest.fixture
def again(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each joint was run by what did it before."""
    monkeypatch.setattr(costs, "ENDED_APART", 0)
    for module in (contractions, algorithms):
        monkeypatch.setattr(module, "CONTRACTION_COMPILED", 0)
    found = list[bool]()
    plain = joined.Relaunch.__call__

    def call(self: Any, *given: Any) -> bool:
        found.append(plain(self, *given))
        return found[-1]

    monkeypatch.setattr(joined.Relaunch, "__call__", call)
    return found


def layer(seed: int, layout: str, groups: int, dtype: str = "float32") -> list[Any]:
    """Return input, weights, bias and residual."""
    rng = np.random.default_rng(seed)
    shapes = [(3, 24, 9, 11), (24, 24 // groups, 3, 3), (24, 1, 1), (3, 24, 9, 11)]
    arrays = [rng.normal(size=shape).astype(dtype) for shape in shapes]
    if layout == "NHWC":
        arrays = [np.moveaxis(a, 1, -1) if a.ndim == 4 and n != 1 else a for n, a in enumerate(arrays)]
        arrays[2] = arrays[2].reshape(-1)
    return [np.ascontiguousarray(a) for a in arrays]


def expected(x: Any, w: Any, b: Any, r: Any, scale: float, layout: str, groups: int) -> Any:
    with xt.options(engine="direct"):
        given = [xt.asarray(a.astype("float64")) for a in (x, w)]
        y = conv(*given, padding=1, groups=groups, layout=layout, algorithm="direct").numpy()
    return np.maximum(y + b, 0) * scale + r


@pytest.mark.parametrize(("layout", "groups"), [("NCHW", 1), ("NCHW", 3), ("NHWC", 1)])
def test_arrays_and_scalars_that_change(again: list[bool], layout: str, groups: int) -> None:
    """New arrays, other numbers, and a residual that is the input; thin groups have kernels of their own."""

    def step(x: Any, w: Any, b: Any, r: Any, scale: float) -> Any:
        y = conv(x, w, padding=1, groups=groups, layout=layout, algorithm="im2col")
        return xt.nn.relu(y + b) * scale + r

    kept = []
    for seed in range(8):
        arrays = layer(seed, layout, groups)
        if seed == 3:
            arrays[3] = arrays[0]
        given = [xt.asarray(a, copy=True) for a in arrays[:3]]
        given.append(given[0] if seed == 3 else xt.asarray(arrays[3], copy=True))
        with xt.options(lazy="always", engine="llvm", threads=1 + groups):
            found = step(*given, 1.5 + seed)
            kept.append((found.numpy(), expected(*arrays, 1.5 + seed, layout, groups)))
    for found, right in kept:
        np.testing.assert_allclose(found, right, rtol=0, atol=1e-5 * np.abs(right).max())
    assert sum(again) >= 3


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_results_over_operands(again: list[bool], layout: str) -> None:
    """A result that is written over what is added, or over the input, and arrays that are not aligned."""
    arrays = layer(0, layout, 1)
    for turn in range(6):
        x, w, b, r = [xt.asarray(a, copy=True) for a in arrays]
        if turn % 3 == 2:
            memory = np.zeros(arrays[0].nbytes + 1, np.uint8)[1:]
            odd = memory.view(np.float32).reshape(arrays[0].shape)
            odd[...] = arrays[0]
            x = xt.asarray(odd, copy=False)
        with xt.options(lazy="always", engine="llvm"):
            target = r if turn % 3 == 0 else x if turn % 3 == 1 else r
            other = r if turn % 3 == 0 else xt.asarray(arrays[3], copy=True)
            target[...] = xt.nn.relu(conv(x, w, padding=1, layout=layout, algorithm="im2col") + b) * 2.0 + other
            found = target.numpy().copy()
        right = expected(*arrays, 2.0, layout, 1)
        np.testing.assert_allclose(found, right, rtol=0, atol=1e-5 * np.abs(right).max())

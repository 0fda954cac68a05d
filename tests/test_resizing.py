"""Gradients of interpolations: the adjoint of what they compute, element by element."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import xtensor as xt
from xtensor import nn

Array = np.ndarray[Any, Any]

MODES: list[tuple[str, dict[str, Any]]] = [
    ("nearest", {}),
    ("nearest-exact", {}),
    ("bilinear", {}),
    ("bilinear", {"align_corners": True}),
    ("bicubic", {}),
]


@pytest.mark.parametrize("size", [(1, 1), (3, 4), (5, 6), (7, 13), (11, 2), (20, 24)])
@pytest.mark.parametrize(("mode", "kind"), MODES)
def test_gradients_are_the_adjoint(mode: str, kind: dict[str, Any], size: tuple[int, int]) -> None:
    """Each element of x gets of the cotangent what a step of it alone changes in the result."""
    x = np.random.default_rng(size).normal(size=(2, 1, 5, 6))

    def resized(x: Any) -> Any:
        return nn.interpolate(x, size, mode=mode, **kind)

    y, pullback = xt.vjp(resized, xt.asarray(x))
    g = np.random.default_rng(len(mode)).normal(size=y.shape)
    steps = np.eye(30).reshape(30, 1, 5, 6)
    columns = resized(xt.asarray(steps)).numpy().reshape(30, -1)
    expected = (g.reshape(2, -1) @ columns.T).reshape(x.shape)
    np.testing.assert_allclose(pullback(xt.asarray(g))[0].numpy(), expected, rtol=0, atol=1e-13)
    fused = xt.fuse(xt.grad(lambda x: xt.sum(resized(x) * xt.asarray(g))))
    for _ in range(2):
        np.testing.assert_allclose(fused(xt.asarray(x)).numpy(), expected, rtol=0, atol=1e-13)


def test_elements_without_a_part_get_nothing_of_infinity() -> None:
    x, g = xt.zeros((1, 1, 9)), xt.asarray([[[1.0, np.inf, 2.0, 3.0]]])
    (found,) = xt.vjp(lambda x: nn.interpolate(x, (4,)), x)[1](g)
    assert found.tolist() == [[[1.0, 0.0, np.inf, 0.0, 2.0, 0.0, 3.0, 0.0, 0.0]]]

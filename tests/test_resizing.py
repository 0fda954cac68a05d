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


LARGE = [
    ("linear", (3, 5, 400), (900,)),
    ("linear", (40, 1, 700), (300,)),
    ("bilinear", (2, 3, 40, 60), (80, 90)),
    ("bilinear", (2, 3, 80, 90), (41, 30)),
    ("bilinear", (1, 1, 300, 200), (150, 200)),
    ("bicubic", (1, 40, 20, 30), (35, 11)),
    ("nearest", (1, 17, 30, 20), (61, 59)),
    ("nearest", (2, 3, 90, 80), (13, 17)),
    ("trilinear", (1, 2, 12, 20, 30), (20, 20, 41)),
    ("trilinear", (1, 24, 12, 20, 30), (5, 31, 17)),
]


def padded(length: int, wanted: int, mode: str) -> Array:
    """Return the matrix of an axis, by interpolating the unit vectors one by one in NumPy."""
    at = (np.arange(wanted) + 0.5) * length / wanted - 0.5
    found = np.zeros((wanted, length))
    if mode == "nearest":
        found[np.arange(wanted), np.arange(wanted) * length // wanted] = 1
        return found
    if mode != "bicubic":
        at = np.clip(at, 0, length - 1)
    first = np.floor(at).astype(int)
    for step in (-1, 0, 1, 2) if mode == "bicubic" else (0, 1):
        far = np.abs(first + step - at)
        cubic = np.where(far <= 1, (1.25 * far - 2.25) * far**2 + 1, -0.75 * (((far - 5) * far + 8) * far - 4))
        np.add.at(
            found,
            (np.arange(wanted), np.clip(first + step, 0, length - 1)),
            cubic if mode == "bicubic" else np.maximum(1 - far, 0),
        )
    return found


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("mode", "shape", "size"), LARGE)
@pytest.mark.usefixtures("sums_by_code")
def test_planes_by_machine_code(
    mode: str, shape: tuple[int, ...], size: tuple[int, ...], dtype: str, last: bool
) -> None:
    """Arrays large enough for generated code: products with the matrices of the axes, and their transposes, agree; the
    same bits for any number of threads.
    """
    rng, rank = np.random.default_rng(len(shape)), len(size)
    x, g = rng.normal(size=shape).astype(dtype), rng.normal(size=(*shape[:2], *size)).astype(dtype)
    forward, backward = x.astype(float), g.astype(float)
    for axis, (length, wanted) in enumerate(zip(shape[2:], size, strict=True), 2):
        matrix = padded(length, wanted, mode)
        forward = np.moveaxis(np.moveaxis(forward, axis, -1) @ matrix.T, -1, axis)
        backward = np.moveaxis(np.moveaxis(backward, axis, -1) @ matrix, -1, axis)
    layout = {1: "NWC", 2: "NHWC", 3: "NDHWC"}[rank] if last else None
    own = [xt.asarray(np.ascontiguousarray(np.moveaxis(one, 1, -1)) if last else one) for one in (x, g)]
    seen: list[list[Array]] = []
    for threads in (1, 2, 3):
        with xt.options(threads=threads):
            y, pullback = xt.vjp(lambda x: nn.interpolate(x, size, mode=mode, layout=layout), own[0])
            results = [one.numpy() for one in (y, pullback(own[1])[0])]
            seen.append([np.moveaxis(one, -1, 1) if last else one for one in results])
    tolerance = {"float32": 1e-5, "float64": 1e-12}[dtype]  # places up to 900 are rounded to 1e-13
    for found, expected in zip(seen[0], (forward, backward), strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * np.abs(expected).max())
    for others in seen[1:]:
        assert all(np.array_equal(one, other) for one, other in zip(seen[0], others, strict=True))


@pytest.mark.usefixtures("sums_by_code")
def test_planes_that_lie_with_channels_last() -> None:
    """A view of an array with its channels last in memory gives a result that lies so too."""
    x = xt.asarray(np.random.default_rng(1).normal(size=(2, 30, 40, 20)).astype(np.float32))
    view = xt.moveaxis(x, -1, 1)
    found = nn.interpolate(view, (50, 60), mode="bilinear")
    same = nn.interpolate(x, (50, 60), mode="bilinear", layout="NHWC")
    assert np.array_equal(found.numpy(), np.moveaxis(same.numpy(), -1, 1))
    assert np.moveaxis(found.numpy(), 1, -1).flags.c_contiguous
    turned = nn.interpolate(xt.permute_dims(view, (1, 0, 3, 2)), (60, 50), mode="bilinear")
    np.testing.assert_allclose(turned.numpy(), found.numpy().transpose(1, 0, 3, 2), rtol=0, atol=1e-6)


@pytest.mark.parametrize("special", [np.nan, np.inf])
@pytest.mark.usefixtures("sums_by_code")
def test_planes_keep_what_is_not_finite_in_its_place(special: float) -> None:
    x = np.zeros((1, 2, 60, 80), np.float32)
    x[0, 1, 30, 40] = special
    y, pullback = xt.vjp(lambda x: nn.interpolate(x, (120, 160)), xt.asarray(x))
    rows, columns = np.nonzero(~np.isfinite(y.numpy()[0, 1]))
    assert sorted(set(rows)) == [60, 61] and sorted(set(columns)) == [80, 81] and np.isfinite(y.numpy()[0, 0]).all()
    g = np.zeros(y.shape, np.float32)
    g[0, 0, 7, 9] = special
    assert np.argwhere(~np.isfinite(pullback(xt.asarray(g))[0].numpy())).tolist() == [[0, 0, 3, 4]]

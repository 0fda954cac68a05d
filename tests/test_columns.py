"""Column programs: reductions over leading axes and what follows, strip by strip, on small arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import xtensor as xt
from xtensor.codegen.cpu.compile import host
from xtensor.plan import costs
from xtensor.plan import fusion as plan
from xtensor.run import columns, reduce, replay

pytestmark = pytest.mark.skipif(host() is None, reason="there is no compiler here")


def forget() -> None:
    """Drop the schedules that plans remember: they were prepared for other bounds."""
    for one in [*plan._plans.values(), *[known.plan for known in replay._known.values()]]:
        one.schedules.clear()
    plan._plans.clear()


@pytest.fixture(params=["near", "far"])
def by_columns(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let every array be large enough, and lie in the caches or be taken for one that does not."""
    monkeypatch.setattr(costs, "COLUMNS_CELLS", 0)
    monkeypatch.setattr(reduce, "PIECE_ROWS", 8)
    monkeypatch.setattr(reduce, "UNCUT_ROWS", 16)
    if request.param == "far":
        monkeypatch.setattr(costs, "COLUMNS_NEAR", 0)
        monkeypatch.setattr(costs, "COLUMNS_FAR", 0)
        monkeypatch.setattr(costs, "STREAM_BYTES", 0)
        monkeypatch.setattr(costs, "STREAM_ROW", 0)
    forget()
    with xt.options(engine="llvm", lazy="always"):
        yield
    forget()


def centred(x: Any) -> Any:
    return x - xt.mean(x, axis=0)


def scaled(x: Any) -> Any:
    return (x - xt.mean(x, axis=0)) / xt.std(x, axis=0)


def normed(x: Any) -> Any:
    c = x - xt.mean(x, axis=0, keepdims=True)
    return c / xt.sqrt(xt.mean(c * c, axis=0) + 1e-5)


def stretched(x: Any) -> Any:
    return (x - xt.min(x, axis=0)) / (xt.max(x, axis=0) - xt.min(x, axis=0))


def several(x: Any) -> Any:
    twice = x * 2.0
    total = xt.sum(twice, axis=0)
    return twice, total, twice - total, xt.where(xt.any(x > 1.9, axis=0), x, 0.0), x * xt.sum(x, axis=0) + x[:, :1]


def variance(x: Any) -> Any:
    return xt.var(x, axis=0)


FUNCTIONS = [centred, scaled, normed, stretched, several, variance]


def results(function: Callable[[Any], Any], x: Any) -> list[np.ndarray]:
    found = function(x)
    found = found if isinstance(found, tuple) else (found,)
    return [np.asarray(one) for one in found]


def by_kernels(function: Callable[[Any], Any], x: Any, monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """Return what one kernel after the other gives."""
    with monkeypatch.context() as patch:
        patch.setattr(columns, "_pays", lambda *given: False)
        forget()
        found = results(function, x)
    forget()
    return found


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_same_bits_as_one_kernel_after_the_other(
    function: Any, dtype: str, threads: int, by_columns: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xtensor.base.threads.SHARE_PAYS", 0.0)
    monkeypatch.setattr("xtensor.base.threads.WAKE_PAYS", 0.0)
    for shape in ((2, 64), (9, 64), (16, 65), (41, 130), (67, 211), (150, 1000)):
        a = np.random.default_rng(1).uniform(-2, 2, shape).astype(dtype)
        x = xt.asarray(a, copy=True)
        with xt.options(threads=threads):
            right = by_kernels(function, x, monkeypatch)
            fused = xt.fuse(function)
            for mine in (results(function, x), results(fused, x), results(fused, x), results(function, x)):
                for one, other in zip(mine, right, strict=True):
                    np.testing.assert_array_equal(one, other, strict=True)


@pytest.mark.parametrize("function", [centred, scaled, normed, stretched])
def test_values(function: Any, by_columns: None) -> None:
    a = np.random.default_rng(2).uniform(-2, 2, (99, 131))
    (mine,) = results(function, xt.asarray(a, copy=True))
    c, n = a - a.mean(axis=0), a.shape[0]
    right = {
        "centred": c,
        "scaled": c / np.sqrt((c * c).sum(axis=0) / n),
        "normed": c / np.sqrt((c * c).mean(axis=0) + 1e-5),
        "stretched": (a - a.min(axis=0)) / (a.max(axis=0) - a.min(axis=0)),
    }[function.__name__]
    np.testing.assert_allclose(mine, right, rtol=1e-12, atol=1e-13)


def test_several_leading_axes_and_integers(by_columns: None) -> None:
    a = np.random.default_rng(3).integers(-50, 50, (6, 5, 3, 40))
    x = xt.asarray(a, copy=True)
    text = xt.explain(x - xt.sum(x, axis=(0, 1)))
    assert "together, strip by strip over columns of 30 elements" in text
    np.testing.assert_array_equal(np.asarray(x - xt.sum(x, axis=(0, 1))), a - a.sum(axis=(0, 1)))
    few = xt.asarray(a[0, 0], copy=True)  # repeats along some of the rows
    np.testing.assert_array_equal(np.asarray(x * few - xt.max(x, axis=(0, 1))), a * a[0, 0] - a.max(axis=(0, 1)))
    some = xt.asarray(a[:, :1], copy=True)
    np.testing.assert_array_equal(np.asarray(x * some - xt.max(x, axis=(0, 1))), a * a[:, :1] - a.max(axis=(0, 1)))


def test_given_memory(by_columns: None) -> None:
    """What is read again is not written before."""
    a = np.random.default_rng(4).uniform(-2, 2, (40, 150))
    x = xt.asarray(a, copy=True)
    x -= xt.mean(x, axis=0)
    np.testing.assert_allclose(np.asarray(x), a - a.mean(axis=0), atol=1e-14)
    x = xt.asarray(a, copy=True)
    x[0] = xt.sum(x * 2.0, axis=0) - xt.sum(x, axis=0)
    np.testing.assert_allclose(np.asarray(x[0]), a.sum(axis=0), atol=1e-13)
    whole = xt.asarray(a, copy=True)
    x = whole[:, 3:100]  # has gaps between its rows
    np.testing.assert_allclose(np.asarray(centred(x)), a[:, 3:100] - a[:, 3:100].mean(axis=0), atol=1e-14)


def test_costly_functions_are_computed_once(by_columns: None) -> None:
    a = np.random.default_rng(5).uniform(-2, 2, (40, 150))
    x = xt.asarray(a, copy=True)
    e = xt.exp(x - xt.max(x, axis=0))
    softmax = e / xt.sum(e, axis=0)
    del e
    assert "strip by strip" not in xt.explain(softmax)
    right = np.exp(a - a.max(axis=0))
    np.testing.assert_allclose(np.asarray(softmax), right / right.sum(axis=0), rtol=1e-13)


def test_what_explain_says(by_columns: None) -> None:
    x = xt.asarray(np.ones((40, 150)), copy=True)
    z = normed(x)
    text = xt.explain(z, ir=True)
    assert "together, strip by strip over columns of 40 elements" in text
    assert "plan: 5 kernels, moving 96 kB to and from memory" in text
    assert "hands on" in text
    assert "llvm of all kernels:" in text
    assert text.count("define internal void @step") > 4
    assert z.is_pending


def test_what_does_not_pay() -> None:
    with xt.options(engine="llvm", lazy="always"):
        for shape in ((1000, 63), (100, 100)):
            x = xt.asarray(np.ones(shape), copy=True)
            assert "strip by strip" not in xt.explain(centred(x))
        assert "strip by strip" in xt.explain(centred(xt.asarray(np.ones((1000, 64)), copy=True)))


# ---- short rows


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "bool"])
@pytest.mark.parametrize(
    ("shape", "axes", "order"),
    [
        ((3000, 3), (1,), (0, 1)),
        ((40, 28, 2, 28, 2), (2, 4), (0, 1, 2, 3, 4)),
        ((40, 5, 30, 7), (3,), (0, 1, 2, 3)),
        ((40, 5, 30, 7), (1, 3), (2, 0, 1, 3)),
        ((6, 500, 8), (0, 2), (0, 1, 2)),
        ((100, 17, 1, 4), (2, 3), (0, 1, 2, 3)),
    ],
)
def test_reductions_of_short_rows(
    shape: tuple[int, ...], axes: tuple[int, ...], order: tuple[int, ...], dtype: str, threads: int
) -> None:
    """Points, squares of pixels, and other rows that are shorter than a register, after a step and alone."""
    rng = np.random.default_rng(len(shape))
    native = (rng.integers(-4, 5, shape) > 0) if dtype == "bool" else rng.integers(-4, 5, shape).astype(dtype)
    x, seen = xt.permute_dims(xt.asarray(native, copy=True), order), native.transpose(order)
    with xt.options(engine="llvm", lazy="always", threads=threads):
        for name in ("sum", "any", "count_nonzero") if dtype == "bool" else ("sum", "max", "min", "all"):
            for keepdims in (False, True):
                found = getattr(xt, name)(x, axis=axes, keepdims=keepdims)
                expected = getattr(np, name)(seen, axis=axes, keepdims=keepdims)
                np.testing.assert_array_equal(found.numpy(), expected)
        if dtype != "bool":
            found = xt.sum((x - 1) * x, axis=axes)
            np.testing.assert_array_equal(found.numpy(), np.sum((seen - 1) * seen, axis=axes))

"""Convolutions that read windows where they lie, between pages of memory that nobody may touch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from guards import guarded

import xtensor as xt
from xtensor.codegen.cpu import compile as compile_
from xtensor.nn import algorithms, conv, strip_products, strips
from xtensor.plan import costs
from xtensor.run import contractions

KERNELS = ((strips, "outputs_kernel"), (strips, "outputs_first_kernel"), (strip_products, "products_kernel"))
pytestmark = pytest.mark.skipif(compile_.host() is None, reason="there is no compiler")


def random_layer(seed: int) -> tuple[Any, Any, Any, dict[str, Any]]:
    """Return input, weights and a bias of a convolution without padding, and how it goes."""
    rng = np.random.default_rng(seed)
    rank, groups, last = 1 + seed % 3, 1 if seed % 4 else 2, seed % 2 == 1
    deep, outputs = (int(n) for n in rng.integers(1, 40, 2))
    window = [1] * rank if seed % 5 < 3 else [int(n) for n in rng.integers(1, 4, rank)]
    lengths = [int(n) for n in rng.integers(4, 90 if rank == 1 else 14, rank)]
    stride = [1 + seed // 6 % 2] * (rank - 1) + [1 + seed // 6 % 2 * int(last)]
    dtype = ("float32", "float64")[seed // 2 % 2]
    x = rng.normal(size=(3, deep * groups, *lengths)).astype(dtype)
    w, bias = rng.normal(size=(outputs * groups, deep, *window)), rng.normal(size=outputs * groups)
    layout = ("NWC", "NHWC", "NDHWC")[rank - 1] if last else ("NCW", "NCHW", "NCDHW")[rank - 1]
    x = np.moveaxis(x, 1, -1) if last else x
    bias = bias if last else bias.reshape(-1, *[1] * rank)
    return x, w.astype(dtype), bias.astype(dtype), {"groups": groups, "stride": stride, "layout": layout}


@pytest.mark.parametrize("seed", range(60))
def test_windows_in_place_give_what_plain_sums_give(monkeypatch: Any, seed: int) -> None:
    """Alone and with what follows, for any number of threads the same bits, with nothing read beside the arrays."""
    for module in (contractions, algorithms):
        monkeypatch.setattr(module, "CONTRACTION_COMPILED", 0)
    monkeypatch.setattr(costs, "ENDED_APART", 0)
    monkeypatch.setattr(strips, "FEW", seed % 2)
    monkeypatch.setattr(strips, "ROOM_BYTES", 1 << (8 + seed % 3 * 5))
    strips.room_last.cache_clear()
    strips.room_first.cache_clear()
    x, w, bias, how = random_layer(seed)

    def alone() -> Any:
        return conv(xt.asarray(x, copy=True), xt.asarray(w, copy=True), **how).numpy()

    ended = list[bool]()
    for module, name in KERNELS:
        kernel = getattr(module, name)

        def kept(*given: Any, kernel: Any = kernel) -> Any:
            ended.append(given[-1] is not None)
            return kernel(*given)

        monkeypatch.setattr(module, name, kept)

    def joined() -> Any:
        beside = [xt.asarray(a, copy=True) for a in (bias, np.cos(y).astype(x.dtype))]
        return (  # the convolution itself has no name: nobody else may ask for it
            xt.nn.relu(conv(xt.asarray(x, copy=True), xt.asarray(w, copy=True), **how) + beside[0]) * 2 + beside[1]
        ).numpy()

    with xt.options(engine="direct"):
        y = conv(*[xt.asarray(a.astype("float64")) for a in (x, w)], algorithm="direct", **how).numpy()
    found = []
    with guarded():
        for threads in (1, 3):
            with xt.options(threads=threads, lazy="always", engine="llvm"):
                found.append((alone(), joined()))
    assert True in ended or how["groups"] > 1 or w.shape[1] == 1  # thin groups have kernels of their own
    for one, two in zip(*found, strict=True):
        np.testing.assert_array_equal(one, two)
    scale = 64 * np.finfo(x.dtype).eps * max(np.abs(y).max(), 1)
    for one, expected in zip(found[0], (y, np.maximum(y + bias, 0) * 2 + np.cos(y)), strict=True):
        np.testing.assert_allclose(one, expected, rtol=0, atol=scale)
    strips.room_last.cache_clear()
    strips.room_first.cache_clear()


def test_layers_that_are_read_in_place(monkeypatch: Any) -> None:
    """Those of channels that come last are without padding, and of others where registers are of 64 bytes."""
    monkeypatch.setattr(contractions, "CONTRACTION_COMPILED", 0)
    formed = list[bool]()
    for name in ("outputs_kernel", "outputs_first_kernel"):
        kernel = getattr(strips, name)
        monkeypatch.setattr(
            strips, name, lambda own, finish, kernel=kernel: (formed.append(own.in_place), kernel(own, finish))[1]
        )
    w = xt.ones((24, 24, 1, 1))
    machine = compile_.host()
    first = [True] * (machine is not None and machine.vector_bytes == 64)
    for layout, padding, expected in [("NCHW", 0, first), ("NHWC", 0, [True]), ("NHWC", 1, [False])]:
        formed.clear()
        x = xt.asarray(np.random.default_rng(0).normal(size=(2, 24, 24, 24)), copy=True)
        y = conv(x, w, padding=padding, layout=layout).numpy()
        assert formed == expected, (layout, padding)
        axis = 3 if layout == "NHWC" else 1
        sums = np.repeat(x.numpy().sum(axis=axis, keepdims=True), 24, axis=axis)
        inside = y[:, 1:-1, 1:-1] if padding else y
        np.testing.assert_allclose(inside, sums, rtol=1e-12, atol=1e-12)

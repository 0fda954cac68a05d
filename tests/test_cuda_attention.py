"""Attention on a device: the kernels of attention.cuh, emulated, and what does their work where there is none, beside
the plain formula in float64.

Instructions are those of NVRTC's PTX that the emulated threads execute; what the driver makes of them is not counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import emulated
import numpy as np
import pytest
from test_attention import Array, by_hand, check, normal

import xtensor as xt
from xtensor.nn import tiled_elsewhere

if emulated.MISSING:
    pytest.skip(emulated.MISSING, allow_module_level=True)

KERNELS = [128] * 3  # threads of a block: forward, the cotangent of queries, those of keys and values

attend = xt.nn.scaled_dot_product_attention


@pytest.fixture(scope="module")
def cuda() -> Iterator[emulated.Launches]:
    with emulated.device() as launches:
        yield launches


@pytest.fixture(autouse=True)
def much_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """As much shared memory as an H100 has, which the stand-in for CuPy does not say."""
    monkeypatch.setattr(tiled_elsewhere, "most_shared", lambda like: emulated.MOST_SHARED)


def there(array: Any) -> xt.Tensor:
    return xt.asarray(array, device="cuda:0")


def host(x: Any) -> Array:
    return np.asarray(x.to_device("cpu"))


def ours(q: Any, k: Any, v: Any, g: Array, **given: Any) -> list[Array]:
    """Return attention and its cotangents."""
    y, back = xt.vjp(lambda q, k, v: attend(q, k, v, **given), q, k, v)
    return [host(y), *(host(one) for one in back(there(g)))]


def ran(cuda: emulated.Launches, before: int) -> list[int]:
    """Return the threads of the blocks of attention's kernels that were launched."""
    return [threads for _, threads, _ in cuda.grids[before:] if threads == 128]


SHAPES: dict[str, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], bool]] = {
    "one tile": ((17, 8), (33, 8), (33, 5), False),
    "tails": ((70, 4), (67, 4), (67, 16), False),
    "causal, more keys": ((66, 3), (130, 3), (130, 2), True),
    "causal, fewer keys": ((130, 8), (20, 8), (20, 17), True),
    "heads share keys": ((2, 2, 16, 4), (2, 1, 18, 4), (18, 4), False),
    "wide": ((16, 33), (18, 33), (18, 65), True),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes(name: str, cuda: emulated.Launches) -> None:
    *shapes, causal = SHAPES[name]
    rng, before = np.random.default_rng(0), len(cuda.grids)
    q, k, v = (normal(rng, *shape, dtype="float32") for shape in shapes)
    lead = np.broadcast_shapes(*(shape[:-2] for shape in shapes))
    g = normal(rng, *lead, q.shape[-2], v.shape[-1], dtype="float32")
    found = ours(*map(there, (q, k, v)), g, is_causal=causal)
    assert ran(cuda, before) == KERNELS
    check(found, by_hand(q, k, v, g, None, causal, 1 / np.sqrt(q.shape[-1])), "float32")


MASKS: dict[str, tuple[int, ...]] = {"each": (2, 20, 70), "heads": (2, 1, 1), "keys": (70,), "queries": (20, 1)}


@pytest.mark.parametrize(
    ("name", "flags"), [("each", True), ("each", False), ("heads", True), ("keys", False), ("queries", True)]
)
def test_masks(name: str, flags: bool, cuda: emulated.Launches) -> None:
    """Beside causality; a query that may look nowhere gives 0, and has no part in any cotangent."""
    rng, before = np.random.default_rng(1), len(cuda.grids)
    q, k, v, g = (normal(rng, 2, n, 4, dtype="float32") for n in (20, 70, 70, 20))
    seen = rng.random(MASKS[name]) > 0.4
    if name in ("each", "queries"):
        seen[..., 0, :] = False
    mask = seen if flags else np.where(seen, rng.standard_normal(seen.shape), -np.inf).astype("float32")
    found = ours(*map(there, (q, k, v)), g, mask=there(mask), is_causal=name != "keys", scale=-0.3)
    assert ran(cuda, before) == KERNELS
    check(found, by_hand(q, k, v, g, mask, name != "keys", -0.3), "float32")


def test_views(cuda: emulated.Launches) -> None:
    """Heads next to each other, and rows that begin between vectors or lie across; nothing is copied but the last."""
    rng = np.random.default_rng(2)
    whole, g = normal(rng, 20, 3, 2, 9, dtype="float32"), normal(rng, 2, 20, 8, dtype="float32")
    for cut in (slice(0, 8), slice(1, 9)):
        given = [np.moveaxis(whole[:, n, :, cut], 0, 1) for n in range(3)]
        theirs = there(whole)
        tensors = [xt.permute_dims(theirs[:, n, :, cut], (1, 0, 2)) for n in range(3)]
        found = ours(*tensors, g) if cut.start else [host(attend(*tensors))]
        check(found, by_hand(*given, g, None, False, 8**-0.5)[: len(found)], "float32")
    across = normal(rng, 8, 20, dtype="float32")
    found = [host(attend(*[xt.matrix_transpose(there(across))] * 3))]
    check(found, by_hand(*[across.T] * 3, g[0], None, False, 8**-0.5)[:1], "float32")


@pytest.mark.parametrize("which", range(3))
def test_what_is_not_finite(which: int, cuda: emulated.Launches) -> None:
    """Spreads as in the plain formula: a weight of 0 times it is NaN, also in tiles that nothing looks at."""
    rng = np.random.default_rng(3)
    operands = [normal(rng, 70, 4, dtype="float32") for _ in range(4)]
    operands[which][64, 1] = np.inf
    with np.errstate(all="ignore"):
        wanted = by_hand(*operands, None, True, 0.5)
    found = ours(*map(there, operands[:3]), operands[3], is_causal=True, scale=0.5)
    assert not np.isfinite(wanted[0]).all()
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=2e-5)


@pytest.mark.parametrize("cause", ["engine", "shared memory"])
def test_without_a_kernel(cause: str, cuda: emulated.Launches, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device's library computes all weights, with the same results."""
    rng, before = np.random.default_rng(4), len(cuda.grids)
    q, k, v, g = (normal(rng, 2, 20, 4, dtype="float32") for _ in range(4))
    masks = rng.random((20, 20)) > 0.2, normal(rng, 20, 20, dtype="float32")
    monkeypatch.setattr(tiled_elsewhere, "most_shared", lambda like: 0)
    for mask in masks:
        with xt.options(engine="direct" if cause == "engine" else "auto"):
            found = ours(*map(there, (q, k, v)), g, mask=there(mask), is_causal=True)
        check(found, by_hand(q, k, v, g, mask, True, 0.5), "float32")
    assert not ran(cuda, before)


def test_left_to_the_formula(cuda: emulated.Launches) -> None:
    """Other dtypes, floats of more than 128, few queries, and a mask that has a gradient."""
    rng, before = np.random.default_rng(5), len(cuda.grids)
    for length, width, dtype in ((16, 4, "float64"), (16, 129, "float32"), (2, 4, "float32")):
        q = there(normal(rng, length, width, dtype=dtype))
        attend(q, q, q).evaluate()
    q, mask = (there(normal(rng, 16, 16, dtype="float32")) for _ in range(2))
    xt.grad(lambda mask: xt.sum(attend(q, q, q, mask)))(mask).evaluate()
    assert not ran(cuda, before)


def test_gradients_of_gradients(cuda: emulated.Launches) -> None:
    """By the formula, whose weights are recomputed."""
    q, k, v = (normal(np.random.default_rng(n), 16, 3, dtype="float32") for n in range(3))

    def slopes(q: Any) -> Any:
        there = q.device
        given = [xt.asarray(one, device=there) for one in (k, v)]
        return xt.sum(xt.grad(lambda q: xt.sum(attend(q, *given) ** 2))(q) ** 2)

    found, wanted = (xt.grad(slopes)(xt.asarray(q, device=one)) for one in ("cuda:0", "cpu"))
    np.testing.assert_allclose(host(found), wanted.numpy(), rtol=1e-3, atol=1e-5)


def test_the_same_bits_every_time(cuda: emulated.Launches) -> None:
    rng = np.random.default_rng(6)
    q, k, v, g = (normal(rng, n, 4, dtype="float32") for n in (66, 20, 20, 66))
    first, second = (ours(*map(there, (q, k, v)), g) for _ in range(2))
    assert all(one.tobytes() == other.tobytes() for one, other in zip(first, second, strict=True))


# Instructions for each multiplication of the products that a kernel has to compute, at most, of 64 queries and 128 keys
# of 64 floats: two products forward, three for queries, four for keys and values.
COUNTS = [1.62, 1.46, 1.43]


def test_instructions(cuda: emulated.Launches, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a multiplication one is its own; memory taken is that of results, queries' numbers, and nothing else."""
    rng, found = np.random.default_rng(7), []
    run = emulated.Launches.run

    def counted(self: Any, module: Any, grid: list[int], block: int, *others: Any) -> None:
        before = self.instructions
        run(self, module, grid, block, *others)
        if block == 128:
            found.append(self.instructions - before)

    monkeypatch.setattr(cuda, "run", counted.__get__(cuda))
    q, k, v, g = (normal(rng, n, 64, dtype="float32") for n in (64, 128, 128, 64))
    ours(*map(there, (q, k, v)), g)
    products = [n * 64 * 128 * 64 for n in (2, 3, 4)]
    assert all(a / b <= most for a, b, most in zip(found, products, COUNTS, strict=True))

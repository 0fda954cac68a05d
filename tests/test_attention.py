"""Attention in tiles beside the plain formula in float64: shapes, masks, what is not finite, gradients, memory."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_contraction import fenced as fenced  # fixtures
from test_contraction import width as width

import xtensor as xt
from xtensor.autograd.checking import check_grads
from xtensor.codegen.cpu import compile as compile_
from xtensor.nn import attention, tiled
from xtensor.run import contractions

Array = np.ndarray[Any, Any]

pytestmark = pytest.mark.skipif(
    (machine := compile_.host()) is None or machine.vector_bytes < 32, reason="there is no compiler for tiles"
)

ROOT = Path(__file__).resolve().parent.parent

attend = xt.nn.scaled_dot_product_attention

TOLERANCES = {"float32": 1e-5, "float64": 1e-13}


@pytest.fixture(autouse=True)
def always_in_tiles(request: Any, monkeypatch: Any) -> list[str]:
    """Attention runs in tiles, however short it is; the fixture is a list of what runs."""
    monkeypatch.setattr(contractions, "CONTRACTION_COMPILED", 0)
    monkeypatch.setattr(attention, "ATTENTION_TILED", 0)
    monkeypatch.setattr(attention, "FEWEST_QUERIES", 1)
    ran: list[str] = []
    for name in ("attend", "attend_back"):
        run = getattr(tiled, name)
        monkeypatch.setattr(tiled, name, lambda *args, run=run, name=name: (ran.append(name), run(*args))[1])
    return ran


def normal(rng: Any, *shape: int, dtype: str = "float64") -> Array:
    """Return normal numbers."""
    found: Array = rng.standard_normal(shape).astype(dtype)
    return found


def seen_of(q: Array, k: Array, mask: Array | None, causal: bool) -> Array:
    """Return where a query may look."""
    low = np.arange(q.shape[-2])[:, None] >= np.arange(k.shape[-2])
    seen = low if causal else np.ones_like(low)
    return seen if mask is None or mask.dtype != bool else seen & mask


def scores_of(q: Array, k: Array, mask: Array | None, causal: bool, scale: float) -> Array:
    """Return the scores, -inf where a query may not look."""
    scores = scale * (q @ k.swapaxes(-1, -2))
    added = scores if mask is None or mask.dtype == bool else scores + mask
    return np.where(seen_of(q, k, mask, causal), added, -np.inf)


def weights_of(scores: Array) -> Array:
    """Return softmax, 0 in rows of nothing but -inf."""
    most = scores.max(-1, keepdims=True, initial=-np.inf)
    powers = np.exp(scores - np.where(most == -np.inf, 0, most))
    total = powers.sum(-1, keepdims=True)
    return powers / np.where(total == 0, 1, total)


def unbroadcast(x: Array, shape: tuple[int, ...]) -> Array:
    """Return a sum over what a shape was stretched along."""
    x = x.sum(tuple(range(x.ndim - len(shape))))
    return x.sum(tuple(axis for axis, n in enumerate(shape) if n == 1 != x.shape[axis]), keepdims=True)


def by_hand(q: Array, k: Array, v: Array, g: Array, mask: Array | None, causal: bool, scale: float) -> list[Array]:
    """Return attention and its cotangents in float64, with all weights in memory."""
    q, k, v, g = (x.astype(np.float64) for x in (q, k, v, g))
    weights = weights_of(scores_of(q, k, mask, causal, scale))
    by_weights = g @ v.swapaxes(-1, -2)
    by_scores = scale * weights * (by_weights - (by_weights * weights).sum(-1, keepdims=True))
    by_scores = np.where(seen_of(q, k, mask, causal), by_scores, 0)
    grads = by_scores @ k, by_scores.swapaxes(-1, -2) @ q, weights.swapaxes(-1, -2) @ g
    return [weights @ v, *(unbroadcast(one, x.shape) for one, x in zip(grads, (q, k, v), strict=True))]


def ours(q: Array, k: Array, v: Array, g: Array, mask: Array | None, causal: bool, scale: float | None) -> list[Array]:
    """Return the same by the function."""
    given = None if mask is None else xt.asarray(mask)
    tensors = [xt.asarray(x) for x in (q, k, v)]
    y, back = xt.vjp(lambda q, k, v: attend(q, k, v, given, is_causal=causal, scale=scale), *tensors)
    return [y.numpy(), *(one.numpy() for one in back(xt.asarray(g)))]


def check(found: list[Array], wanted: list[Array], dtype: str) -> None:
    """Compare each with its largest element; cotangents may cancel to nothing, and are compared with 1 then."""
    for one, other in zip(found, wanted, strict=True):
        assert one.shape == other.shape
        assert one.dtype == dtype
        np.testing.assert_allclose(one, other, rtol=0, atol=TOLERANCES[dtype] * max(np.max(abs(other), initial=0), 1))


def random_case(seed: int) -> dict[str, Any]:
    """Return operands of random shapes, strides and masks."""
    rng = np.random.default_rng(seed)
    dtype = str(rng.choice(["float32", "float64"]))
    lengths = [int(rng.choice([1, 2, 11, 12, 13, 30, 64, 100])) for _ in range(2)]
    rows, columns = lengths if rng.random() < 0.8 else [int(n) for n in rng.integers(200, 900, 2)]
    depth, outputs = (int(rng.choice([1, 3, 8, 16, 33, 64, 70])) for _ in range(2))
    lead = tuple(int(n) for n in rng.integers(1, 4, rng.integers(0, 3)))

    def own() -> tuple[int, ...]:
        shape = [int(rng.choice([1, n])) for n in lead]
        return tuple(shape[int(rng.integers(0, len(lead) + 1)) :])

    def lying(x: Array) -> Array:
        way = rng.integers(0, 5)
        if way == 0:
            return np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2)
        if way == 1:
            return np.repeat(x, 2, -1)[..., ::2]
        if way == 2 and x.ndim > 2:
            return np.ascontiguousarray(np.moveaxis(x, -2, 0)).transpose(*range(1, x.ndim - 1), 0, x.ndim - 1)
        return np.ascontiguousarray(x[..., ::-1, :])[..., ::-1, :] if way == 3 else x

    q, k, v = (
        lying(normal(rng, *own(), n, m, dtype=dtype)) for n, m in ((rows, depth), (columns, depth), (columns, outputs))
    )
    whole = np.broadcast_shapes(q.shape[:-2], k.shape[:-2], v.shape[:-2])
    mask: Array | None = None
    kind = rng.integers(0, 3)
    if kind:
        shape = (*whole[int(rng.integers(0, len(whole) + 1)) :], *(int(rng.choice([1, n])) for n in (rows, columns)))
        seen = rng.random(shape) < rng.choice([0.1, 0.7])
        mask = lying(seen if kind == 1 else np.where(seen, rng.standard_normal(shape), -np.inf).astype(dtype))
    return {
        "q": q,
        "k": k,
        "v": v,
        "g": normal(rng, *whole, rows, outputs, dtype=dtype),
        "mask": mask,
        "causal": bool(rng.random() < 0.5),
        "scale": float(rng.uniform(-1, 1)),
    }


@pytest.mark.parametrize("seed", range(60))
def test_random_configurations(seed: int, always_in_tiles: list[str]) -> None:
    """Values and cotangents: broadcast leading axes, strides, odd sizes, masks, rows that look nowhere."""
    case = random_case(seed)
    check(ours(**case), by_hand(**case), case["q"].dtype.name)
    assert always_in_tiles == ["attend", "attend_back"]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("causal", [False, True])
def test_every_width_of_registers(width: int, causal: bool, dtype: str) -> None:
    """Whatever registers a machine has; lengths around tiles of columns and parts of rows, and a sum of two blocks."""
    rng = np.random.default_rng(width)
    for rows, columns, depth in ((300, 390, 40), (12, 193, 400), (385, 16, 5)):
        q, k, v, g = (
            normal(rng, *shape, dtype=dtype) for shape in ((rows, depth), (columns, depth), (columns, 20), (rows, 20))
        )
        case = {"q": q, "k": k, "v": v, "g": g, "mask": rng.random((rows, columns)) < 0.9, "causal": causal}
        check(ours(**case, scale=0.1), by_hand(**case, scale=0.1), dtype)


def test_scale_is_that_of_the_depth() -> None:
    """1 / sqrt(E) where none is given."""
    q = normal(np.random.default_rng(0), 20, 9)
    check(ours(q, q, q, q, None, False, None), by_hand(q, q, q, q, None, False, 1 / 3), "float64")


def test_large_scores_do_not_overflow() -> None:
    """What is subtracted follows the largest score from tile to tile: of growing scores the last one has all weight."""
    n = 1000
    q = np.ones((8, 1))
    k = np.arange(n, dtype=float)[:, None] * 1000
    v = np.arange(n, dtype=float)[:, None]
    for turn in (slice(None), slice(None, None, -1)):
        y = attend(xt.asarray(q), xt.asarray(k[turn]), xt.asarray(v[turn]), scale=1.0)
        np.testing.assert_array_equal(y.numpy(), np.full((8, 1), n - 1.0))


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0)])
def test_no_queries_or_no_keys(shape: tuple[int, int]) -> None:
    """Of no keys attention is 0."""
    rows, columns = shape
    q, k, v = xt.ones((2, rows, 3)), xt.ones((2, columns, 3)), xt.ones((2, columns, 4))
    np.testing.assert_array_equal(attend(q, k, v).numpy(), np.zeros((2, rows, 4)))
    for g, x in zip(xt.grad(lambda *given: xt.sum(attend(*given)), (0, 1, 2))(q, k, v), (q, k, v), strict=True):
        np.testing.assert_array_equal(g.numpy(), np.zeros(x.shape))


SPECIAL = [np.nan, np.inf, -np.inf]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("of", ["q", "k", "v"])
@pytest.mark.parametrize("place", [0, 33, 639])
def test_what_is_not_finite(of: str, place: int, causal: bool) -> None:
    """Goes where the formula takes it: 0 times infinity counts where weights are 0, in tiles that are masked too."""
    rng = np.random.default_rng(place)
    for special in SPECIAL:
        given = {name: normal(rng, 640, 5) for name in "qkv"}
        given[of][place, 2] = special
        with np.errstate(invalid="ignore"):
            wanted = weights_of(scores_of(given["q"], given["k"], None, causal, 0.5)) @ given["v"]
        y = attend(*(xt.asarray(given[name]) for name in "qkv"), is_causal=causal, scale=0.5)
        np.testing.assert_allclose(y.numpy(), wanted, rtol=1e-12, atol=1e-14)


def test_masks_that_are_not_finite() -> None:
    """inf and NaN that are added to scores make a row NaN; a row of -inf is 0."""
    q = normal(np.random.default_rng(0), 12, 4)
    mask = np.zeros((12, 12))
    mask[1, 3], mask[2, 3], mask[3] = np.inf, np.nan, -np.inf
    y = attend(xt.asarray(q), xt.asarray(q), xt.asarray(q), xt.asarray(mask)).numpy()
    assert np.isnan(y[1:3]).all()
    np.testing.assert_array_equal(y[3], 0)
    assert np.isfinite(np.delete(y, [1, 2], axis=0)).all()


def test_gradients_where_a_cotangent_is_not_finite() -> None:
    """It reaches all that the formula multiplies it with."""
    rng = np.random.default_rng(0)
    q, k, v, g = (normal(rng, 300, 4) for _ in range(4))
    g[7, 1] = np.inf
    case = {"q": q, "k": k, "v": v, "g": g, "mask": None, "causal": True, "scale": 0.5}
    with np.errstate(invalid="ignore"):
        wanted = by_hand(**case)
    for one, other in zip(ours(**case), wanted, strict=True):
        np.testing.assert_array_equal(np.isfinite(one), np.isfinite(other))


@pytest.mark.parametrize("causal", [False, True])
def test_derivatives_of_second_order(causal: bool, always_in_tiles: list[str]) -> None:
    """Values and first cotangents in tiles, others by the formula; all are those of differences."""
    rng = np.random.default_rng(0)
    q, k, v = (xt.asarray(normal(rng, *shape)) for shape in ((2, 3, 2), (4, 2), (1, 4, 2)))
    mask = xt.asarray(rng.random((3, 4)) < 0.8)
    check_grads(lambda *given: attend(*given, mask, is_causal=causal), (q, k, v), order=2)
    assert "attend_back" in always_in_tiles


def test_masks_that_have_a_gradient(always_in_tiles: list[str]) -> None:
    """These are not in tiles: their cotangents are as large as all scores may be."""
    q = xt.asarray(normal(np.random.default_rng(0), 4, 3))
    check_grads(lambda mask: attend(q, q, q, mask), (xt.zeros((4, 4)),), order=1)
    assert "attend_back" not in always_in_tiles


def test_other_engines_agree(always_in_tiles: list[str]) -> None:
    """Where there is no code of ours, the composition computes the same."""
    case = random_case(3)
    inside = ours(**case)
    always_in_tiles.clear()
    with xt.options(engine="interpret"):
        outside = ours(**case)
    assert not always_in_tiles
    check(inside, outside, case["q"].dtype.name)


def test_short_ones_are_not_in_tiles(monkeypatch: Any, always_in_tiles: list[str]) -> None:
    """Tiles pay from so many multiplications on, of so many queries, and for two dtypes."""
    monkeypatch.undo()
    cases = [((8, 512, 16), "float64", True), ((2, 64, 16), "float64", False), ((8, 512, 16), "float16", False)]
    for shape, dtype, wanted in cases:
        x = xt.ones(shape, dtype=dtype)
        assert attention._is_tiled(x, x, x, None, (*shape[:2], shape[1])) is wanted
    one, many = xt.ones((64, 8, 16)), xt.ones((64, 4096, 16))
    assert not attention._is_tiled(one, many, many, None, (64, 8, 4096))


def test_threads_do_not_change_a_bit() -> None:
    """Results and cotangents are the same for any number of threads."""
    rng = np.random.default_rng(0)
    q, k, v, g = (
        normal(rng, *lead, n, 24, dtype="float32") for lead, n in (((3,), 500), ((), 700), ((3,), 700), ((3,), 500))
    )
    found = []
    for threads in (1, 2, 3, 7):
        with xt.options(threads=threads):
            found.append(ours(q, k, v, g, None, True, None))
    for other in found[1:]:
        for one, two in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(one, two)


def test_writes_after_the_call() -> None:
    """Values and gradients are those of what the operands held at the call."""
    q = normal(np.random.default_rng(0), 40, 8)
    x, other = xt.asarray(q, copy=True, requires_grad=True), xt.asarray(q, copy=True)
    y = attend(x, other, other)
    other[...] = 0
    y.backward(xt.asarray(q))
    y_wanted, by_query, *_ = by_hand(q, q, q, q, None, False, 1 / np.sqrt(8))
    np.testing.assert_allclose(y.detach().numpy(), y_wanted, rtol=1e-12)
    np.testing.assert_allclose(x.grad.numpy(), by_query, rtol=1e-11, atol=1e-13)


def test_captured() -> None:
    """A function under `fuse` is captured with its attention, whose operands and results are pending."""

    @xt.fuse
    def layer(x: Any, w: Any) -> Any:
        return xt.nn.relu(attend(x @ w, x * 2, x + 1, is_causal=True)) * 3

    rng = np.random.default_rng(0)
    for _ in range(4):
        x, w = normal(rng, 600, 64), normal(rng, 64, 64)
        weights = weights_of(scores_of(x @ w, x * 2, None, True, 1 / 8))
        found = layer(xt.asarray(x), xt.asarray(w))
        np.testing.assert_allclose(found.numpy(), np.maximum(weights @ (x + 1), 0) * 3, rtol=1e-10, atol=1e-12)
    assert not layer.why(xt.asarray(x), xt.asarray(w))


@pytest.mark.parametrize("at_end", [True, False])
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (13, 33, 5, 17), (25, 400, 16, 32)])
def test_nothing_beyond_the_operands_is_touched(fenced: Any, shape: tuple[int, ...], at_end: bool) -> None:
    """Operands and masks right before and behind memory that must not be read or written."""
    rows, columns, depth, outputs = shape
    rng = np.random.default_rng(0)
    for dtype in ("float32", "float64"):
        given = [(rows, depth), (columns, depth), (columns, outputs), (rows, outputs)]
        q, k, v, g = (fenced(normal(rng, *one, dtype=dtype), at_end) for one in given)
        seen = rng.random((rows, columns)) < 0.7
        for mask in (seen, seen.astype(dtype)):
            scores = tiled.Scores(0.5, True, fenced(mask, at_end))
            y, logs = tiled.attend(q, k, v, scores)
            means = fenced((y * g).sum(-1), at_end)
            found = [y, *tiled.attend_back(q, k, v, g, fenced(logs, at_end), means, scores)]
            check(found, by_hand(q, k, v, g, mask, True, 0.5), dtype)


GROWTH = """
from pathlib import Path
import numpy as np, xtensor as xt
q, k, v, g = (xt.asarray(np.random.default_rng(n).standard_normal((8192, 32), np.float32)) for n in range(4))

def status(name):
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name + ":"))
    return int(line.split()[1]) * 1024

def run():
    y, back = xt.vjp(lambda *x: xt.nn.scaled_dot_product_attention(*x, is_causal=True), q, k, v)
    return [y.evaluate(), *(one.evaluate() for one in back(g))]

def growth():
    xt.memory.trim()
    Path("/proc/self/clear_refs").write_text("5")
    before = status("VmRSS")
    run()
    return status("VmHWM") - before

run()
print(min(growth() for _ in range(3)))  # the system's counts lag: what is needed shows each time
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak is read from /proc")
def test_memory_grows_as_the_operands_do() -> None:
    """Values and gradients of 8192 queries and keys, whose scores take 256 MB, take less than 32 operands of 1 MB."""
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"}
    command = [sys.executable, "-c", GROWTH]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 32 * 8192 * 32 * 4


@pytest.mark.parametrize("masked", [False, True])
def test_scores_of_halves_are_float32(masked: bool) -> None:
    """Their results are those of float32 operands, rounded once; so are gradients, within a rounding or two."""
    rng = np.random.default_rng(5)
    halves = [rng.uniform(-9, 9, (4, 4, 6, 8)).astype("float16") for _ in range(3)]
    mask = rng.uniform(-2, 2, (6, 6)).astype("float16") if masked else None

    def attended(dtype: str) -> Any:
        own = None if mask is None else xt.asarray(mask.astype(dtype))
        operands = [xt.asarray(x.astype(dtype)) for x in halves]
        y, back = xt.vjp(lambda *qkv: attend(*qkv, own, is_causal=True), *operands)
        return y, *back(xt.ones_like(y))

    for found, right in zip(attended("float16"), attended("float32"), strict=True):
        assert found.dtype == xt.float16
        scale = np.abs(right.numpy()).max()
        np.testing.assert_allclose(found.numpy(), right.numpy(), rtol=1e-3, atol=2e-3 * scale)


def test_attention_is_kernels_of_a_captured_function(always_in_tiles: list[str]) -> None:
    """Forward and back, with a mask or none; what is not finite is looked for in each call."""
    rng = np.random.default_rng(5)

    def loss(q: xt.Tensor, k: xt.Tensor, v: xt.Tensor) -> xt.Tensor:
        return xt.sum(attend(q, k, v, is_causal=True) ** 2)

    def masked(q: xt.Tensor, k: xt.Tensor, v: xt.Tensor, mask: xt.Tensor) -> xt.Tensor:
        return attend(q * 2.0, k, v, mask) + 1.0

    fused, fused_masked = xt.fuse(xt.grad(loss, (0, 1, 2))), xt.fuse(masked)
    for call in range(6):
        q, k, v = (xt.asarray(normal(rng, 2, 3, 9, 5), copy=True) for _ in range(3))
        mask = xt.asarray(rng.random((9, 9)) < 0.7, copy=True)
        if call == 4:
            v[0, 1, 8, 2] = np.inf  # only the last query may look at it, and others multiply it by 0
            k[1, 2, 7, 0] = np.nan
        wanted = [one.numpy() for one in (*xt.grad(loss, (0, 1, 2))(q, k, v), masked(q, k, v, mask))]
        always_in_tiles.clear()
        with xt.options(engine="llvm"):  # however little work it is
            found = [one.numpy() for one in (*fused(q, k, v), fused_masked(q, k, v, mask))]
        assert call < 2 or not always_in_tiles  # no function of native arrays is called any more
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
        assert np.isfinite(found[0]).all() == (call != 4)
    assert "kernels in one call" in str(xt.explain(fused))


def test_launches_of_attention_keep_no_arrays() -> None:
    x = normal(np.random.default_rng(6), 2, 8, 4)
    gone = weakref.ref(x)
    tensor = xt.asarray(x, copy=False)
    attend(tensor, tensor, tensor).evaluate()
    xt.grad(lambda t: xt.sum(attend(t, t, t)))(tensor).evaluate()
    del x, tensor
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("kind", ["of float64", "across", "turned"])
def test_what_is_not_read_as_it_lies_in_captured_functions(kind: str) -> None:
    """A mask of another dtype, rows that are not contiguous: arrays that only stand for operands are not touched."""
    rng = np.random.default_rng(7)
    q, k = (xt.asarray(normal(rng, 4096, 16, dtype="float32"), copy=True) for _ in range(2))
    mask = xt.asarray(rng.standard_normal((4096, 4096)), copy=True)
    calls = {
        "of float64": lambda: (lambda q, m: attend(q, q, q, m), (q, mask)),
        "across": lambda: (lambda q, m: attend(q, q, q, m.mT), (q, xt.astype(mask, xt.float32))),
        "turned": lambda: (lambda q, k: attend(q.mT, k.mT, k.mT), (q, k)),
    }
    function, given = calls[kind]()
    fused = xt.fuse(function)
    wanted = function(*given).numpy()
    for _ in range(3):
        with xt.options(engine="llvm"):
            np.testing.assert_array_equal(fused(*given).numpy(), wanted)


@pytest.mark.parametrize("lead", [(10, 13), (1, 70), (3, 1, 50), (60, 1)])
def test_many_matrices_are_computed_in_slices(lead: tuple[int, ...], monkeypatch: Any) -> None:
    """Whichever axes operands have; the bits of a matrix do not depend on the others."""
    rng = np.random.default_rng(8)
    q, k, v = normal(rng, *lead, 6, 4), normal(rng, *lead[1:], 7, 4), normal(rng, *lead[:1], *[1] * len(lead[1:]), 7, 4)
    mask = rng.random((*lead[1:], 6, 7)) < 0.8

    def slopes() -> list[Any]:
        tensors = [xt.asarray(x, copy=True) for x in (q, k, v)]
        y, back = xt.vjp(lambda q, k, v: attend(q, k, v, xt.asarray(mask)), *tensors)
        return [y.numpy(), *[one.numpy() for one in back(xt.ones(y.shape, dtype=y.dtype))]]

    whole = slopes()
    monkeypatch.setattr(tiled, "TOGETHER", 16)
    for one, other in zip(slopes(), whole, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-13, atol=1e-13)

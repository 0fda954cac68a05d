"""Images of other sizes, samples at places, and alignments, compared with torch.nn.functional."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import xtensor as xt
from tests.oracle.test_nn import Case, check
from tests.samples import normal

torch = pytest.importorskip("torch")
F = torch.nn.functional
nn = xt.nn

LENGTHS = (7, 5, 4)
PLACES = np.random.default_rng(0)

# Modes, for how many spatial axes they are, and whether they know corners.
MODES = [
    *[("nearest", rank, False) for rank in (1, 2, 3)],
    *[("nearest-exact", rank, False) for rank in (1, 2, 3)],
    ("linear", 1, True),
    ("bilinear", 2, True),
    ("trilinear", 3, True),
    ("bicubic", 2, True),
    ("area", 2, False),
]
every_dtype = pytest.mark.parametrize(("dtype", "rtol"), [(np.float64, 1e-10), (np.float32, 1e-5)])


def twice(name: str, *args: Any, **keywords: Any) -> Case:
    """Return a case of a function that both sides call alike; what is no array comes after these."""
    arrays = tuple(a for a in args if isinstance(a, np.ndarray))
    rest = args[len(arrays) :]

    def of(module: Any) -> Callable[..., Any]:
        return lambda *given: getattr(module, name)(*given, *rest, **keywords)

    return Case(name, of(nn), of(F), arrays)


@every_dtype
@pytest.mark.parametrize(("mode", "rank", "corners"), MODES)
def test_interpolate(mode: str, rank: int, corners: bool, dtype: Any, rtol: float) -> None:
    """Values and gradients, by lengths and by factors, larger and smaller."""
    x = normal(2, 3, *LENGTHS[:rank])
    for align_corners in (False, True) if corners else (None,):
        kind = {"mode": mode} if align_corners is None else {"mode": mode, "align_corners": align_corners}
        for size in (1, 3, 8, 13, LENGTHS[:rank]):
            check(twice("interpolate", x, size, **kind), dtype, rtol)
        for factor in (0.5, 1.7, 2, 2.3):
            check(twice("interpolate", x, scale_factor=factor, **kind), dtype, rtol)


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_channels_last(mode: str) -> None:
    """A layout whose channels are last gives the same as one whose channels are first."""
    x = xt.asarray(normal(2, 5, 4, 3))
    got = nn.interpolate(x, (3, 9), mode=mode, layout="NHWC")
    wanted = nn.interpolate(xt.moveaxis(x, -1, 1), (3, 9), mode=mode)
    np.testing.assert_array_equal(got.numpy(), np.moveaxis(wanted.numpy(), 1, -1), strict=True)


def test_nearest_of_integers() -> None:
    """Elements are moved only, so any dtype will do; places are exact where float32 is not."""
    x = xt.asarray(np.arange(12, dtype=np.uint8).reshape(1, 1, 3, 4))
    np.testing.assert_array_equal(nn.interpolate(x, scale_factor=2).numpy(), x.numpy().repeat(2, 2).repeat(2, 3))
    line = xt.asarray(np.arange(2.0).reshape(1, 1, 2))
    np.testing.assert_array_equal(nn.interpolate(line, 98).numpy()[0, 0], np.arange(98) // 49)


def test_infinity_stays_where_it_is() -> None:
    """An infinity reaches what it is a part of, and nothing else becomes NaN."""
    x = normal(1, 1, 7, 7)
    x[0, 0, 3, 5] = np.inf
    for ours, theirs in (
        (nn.adaptive_avg_pool(xt.asarray(x), 3), F.adaptive_avg_pool2d(torch.tensor(x), 3)),
        (nn.interpolate(xt.asarray(x), 10), F.interpolate(torch.tensor(x), 10)),
    ):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-12)


@every_dtype
@pytest.mark.parametrize("shape", [(2, 3, 13, 14), (2, 3, 12, 10), (1, 2, 28, 7), (2, 8, 5, 5)])
def test_averages_of_parts(shape: tuple[int, ...], dtype: Any, rtol: float) -> None:
    """Parts that divide the axes, and that do not."""
    x = normal(*shape)
    for lengths in ((1, 1), (4, 7), (3, 2), (5, 5), (7, 1)):
        ours = lambda x, lengths=lengths: nn.adaptive_avg_pool(x, lengths)  # noqa: E731
        theirs = lambda x, lengths=lengths: F.adaptive_avg_pool2d(x, lengths)  # noqa: E731
        check(Case("adaptive_avg_pool", ours, theirs, (x,)), dtype, rtol)


@every_dtype
@pytest.mark.parametrize("window", [7, (7, 14), (14, 7), (2, 4), (7, 1)])
@pytest.mark.parametrize("kind", ["avg", "max"])
def test_windows_side_by_side(kind: str, window: Any, dtype: Any, rtol: float) -> None:
    """Windows that cut axes into parts, larger ones than the kernels of rows are for."""
    ours = lambda x: getattr(nn, f"{kind}_pool")(x, window)  # noqa: E731
    theirs = lambda x: getattr(F, f"{kind}_pool2d")(x, window)  # noqa: E731
    check(Case(kind, ours, theirs, (normal(2, 3, 14, 28),)), dtype, rtol)


@every_dtype
@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align_corners", [False, True])
def test_grid_sample(rank: int, mode: str, padding_mode: str, align_corners: bool, dtype: Any, rtol: float) -> None:
    """Places inside and outside; values, and gradients of x and of the grid."""
    x, grid = normal(2, 3, *LENGTHS[:rank]), np.random.default_rng(1).uniform(-2.5, 2.5, (2, *(6, 3, 2)[:rank], rank))
    check(twice("grid_sample", x, grid, mode, padding_mode, align_corners=align_corners), dtype, 10 * rtol)


def test_grid_of_odd_places() -> None:
    """Borders, infinite places, and NaN, which counts as -1; an infinity that nothing is taken of."""
    x = normal(1, 1, 4, 4)
    x[0, 0, 0, 0] = np.inf
    places = np.array([-1.0, 1.0, np.inf, -np.inf, np.nan, 0.999, 1e30])  # PyTorch gives NaN or not as code has it
    grid = np.stack([np.ones(7), places], axis=-1)[None, None]
    for mode in ("zeros", "border"):
        got = nn.grid_sample(xt.asarray(x), xt.asarray(grid), padding_mode=mode, align_corners=True).numpy()
        clipped = np.where(
            np.abs(grid) > 1e9, np.sign(grid) * 1e3, np.nan_to_num(grid, nan=-1.0, posinf=1e3, neginf=-1e3)
        )
        wanted = F.grid_sample(torch.tensor(x), torch.tensor(clipped), padding_mode=mode, align_corners=True).numpy()
        np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("align_corners", [False, True])
def test_affine_grid(align_corners: bool) -> None:
    """Two and three spatial axes."""
    for theta, size in ((normal(2, 2, 3), (2, 3, 4, 5)), (normal(2, 3, 4), (2, 3, 4, 5, 2))):
        check(twice("affine_grid", theta, size, align_corners=align_corners), np.float64, 1e-12)


def test_pixels() -> None:
    """Channels become places and come back."""
    for shape in ((2, 18, 4, 5), (9, 2, 2), (1, 2, 9, 1, 3)):
        x = normal(*shape)
        check(twice("pixel_shuffle", x, 3), np.float64, 0)
        there = nn.pixel_shuffle(xt.asarray(x), 3)
        np.testing.assert_array_equal(nn.pixel_unshuffle(there, 3).numpy(), x, strict=True)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("zero_infinity", [False, True])
def test_ctc_loss(seed: int, reduction: str, zero_infinity: bool) -> None:
    """Random lengths, targets that do not fit among them; gradients through log_softmax, where PyTorch's are meant."""
    rng = np.random.default_rng(seed)
    frames, batch, classes, longest = rng.integers(1, 12), rng.integers(1, 5), rng.integers(2, 6), rng.integers(1, 6)
    x, wanted = rng.standard_normal((frames, batch, classes)), rng.integers(0, longest + 1, batch)
    given, blank = rng.integers(1, frames + 1, batch), int(rng.integers(0, classes))
    targets = rng.integers(0, classes, (batch, longest))
    targets = np.where(targets == blank, (blank + 1) % classes, targets)
    kind: dict[str, Any] = {"blank": blank, "reduction": reduction, "zero_infinity": zero_infinity}
    theirs = torch.tensor(x, requires_grad=True)
    told = [torch.tensor(one) for one in (targets, given, wanted)]
    right = F.ctc_loss(F.log_softmax(theirs, -1), *told, **kind)
    right.sum().backward()

    def loss(x: Any) -> Any:
        return nn.ctc_loss(nn.log_softmax(x), xt.asarray(targets), given, xt.asarray(wanted), **kind)

    np.testing.assert_allclose(loss(xt.asarray(x)).numpy(), right.detach().numpy(), rtol=1e-10)
    if np.isfinite(right.detach().numpy()).all():
        found = xt.grad(lambda x: xt.sum(loss(x)))(xt.asarray(x))
        np.testing.assert_allclose(found.numpy(), theirs.grad.numpy(), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(("shape", "lengths"), [((1, 2, 30, 30), 1), ((1, 1, 300, 300), 1), ((1, 1, 300, 40), (7, 1))])
def test_averages_of_float16(shape: tuple[int, ...], lengths: Any) -> None:
    """Sums for which float16 has no room."""
    x = np.full(shape, 300.0, dtype=np.float16)
    found = nn.adaptive_avg_pool(xt.asarray(x), lengths)
    assert found.dtype == np.float16
    np.testing.assert_allclose(found.numpy(), np.full(found.shape, 300.0), rtol=1e-3)
    window = nn.avg_pool(xt.asarray(x), shape[2:])
    np.testing.assert_allclose(window.numpy(), np.full(window.shape, 300.0), rtol=1e-3)

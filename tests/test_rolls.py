"""Rolled arrays in captured functions: read where they were rolled from, with the results of NumPy."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from test_fuse import Counted

import xtensor as xt
from xtensor.base.options import settings
from xtensor.codegen.cpu.compile import host

ENGINES = ("auto", "llvm", "interpret", "direct")


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    with xt.options(engine=request.param):
        yield request.param


def array(shape: Any, dtype: Any = np.float64, seed: int = 0) -> Any:
    values = np.random.default_rng(seed).uniform(-9, 9, shape)
    return (values + 1j * values[::-1] if np.dtype(dtype).kind == "c" else values).astype(dtype)


def agree(function: Callable[..., Any], *arrays: Any, calls: int = 3, changed: bool = True) -> Any:
    """Call a function fused and with NumPy, with other elements each time; return the fused one."""
    counted = Counted(lambda *tensors: function(xt, *tensors))
    fused = xt.fuse(counted)
    for call in range(calls):
        natives = [one.copy(order="K") + call if changed else one.copy(order="K") for one in arrays]
        tensors = [xt.asarray(one.copy(order="K")) for one in natives]
        expected, found = function(np, *natives), fused(*tensors)
        for one, other in zip(_listed(found), _listed(expected), strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_allclose(one.numpy(), other, rtol=2e-6 if other.dtype.itemsize < 8 else 1e-13, atol=1e-12)
        for one, other in zip(tensors, natives, strict=True):
            np.testing.assert_allclose(one.numpy(), other, rtol=1e-6)
    if settings().engine == "llvm":
        assert counted.calls == 1  # the others were what was captured, and nothing of that failed
    return fused


def _listed(found: Any) -> list[Any]:
    return list(found) if isinstance(found, (tuple, list)) else [] if found is None else [found]


@pytest.mark.parametrize("shape", [(7,), (1,), (300,), (5, 8), (1, 9), (40, 1), (33, 47), (3, 4, 5), (2, 3, 4, 5, 6)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int16, np.uint8])
def test_shifts_along_axes(shape: tuple[int, ...], dtype: Any, engine: str) -> None:
    rng = random.Random(len(shape))
    for _ in range(3):
        axes = [rng.randrange(-len(shape), len(shape)) for _ in range(2)]
        one, two, three = [rng.randint(-12, 12) for _ in range(3)]

        def stencil(xp: Any, u: Any, axes: Any = axes, one: int = one, two: int = two, three: int = three) -> Any:
            around = xp.roll(u, one, axis=axes[0]) + xp.roll(u, two, axis=axes[1])
            return around - 2 * u + xp.roll(u, three) + xp.roll(u, (one, two), axis=tuple(axes))

        agree(stencil, array(shape, dtype))


@pytest.mark.parametrize("dtype", [np.complex128, np.bool_, np.complex64])
def test_other_dtypes(dtype: Any, engine: str) -> None:
    agree(lambda xp, u: xp.roll(u, 2, axis=0) * xp.roll(u, -1, axis=1), array((6, 7), dtype), changed=False)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.complex64, np.int8, np.bool_])
def test_copies_of_parts(dtype: Any, engine: str) -> None:
    """float16 is copied as integers of its size, as generated code has no such numbers."""
    agree(
        lambda xp, a: (xp.repeat(a[:, -2], 2, axis=0), xp.reshape(a[::2].T, (-1,))), array((6, 5), dtype), changed=False
    )
    agree(lambda xp, a: xp.roll(a[:, ::2], 3), array((6, 5), dtype), changed=False)


@pytest.mark.parametrize("order", [(1, 0, 2), (2, 1, 0), (0, 2, 1)])
def test_how_arrays_lie(order: tuple[int, ...], engine: str) -> None:
    """Permuted, reversed, strided and repeated."""
    whole = array((12, 10, 14))

    def stencil(xp: Any, u: Any, v: Any) -> Any:
        return xp.roll(u, 1, axis=1) - xp.roll(v, -2, axis=0) * 2 + u

    for own, other in (
        (whole.transpose(order), whole.transpose(order)[::-1]),
        (whole[::2, ::-1], whole[::2]),
        (np.broadcast_to(whole[:, :1], whole.shape), whole),
    ):
        fused = xt.fuse(lambda u, v: stencil(xt, u, v))
        for call in range(3):
            u, v = own + call, other - call
            x = xt.permute_dims(xt.asarray(np.ascontiguousarray(u.transpose(order))), np.argsort(order).tolist())
            y = xt.asarray(np.repeat(v, 2, axis=1))[:, ::2]
            np.testing.assert_allclose(fused(x, y).numpy(), stencil(np, u, v), rtol=1e-13)


LYING = {
    "turned": lambda xp, u: u.T,
    "Fortran's order": lambda xp, u: xp.asarray(u.T, copy=True).T,
    "a part of that": lambda xp, u: xp.asarray(u.T, copy=True).T[1:, ::2],
    "permuted": lambda xp, u: xp.permute_dims(xp.reshape(u, (2, 4, 7)), (2, 0, 1)),
    "backwards": lambda xp, u: u[::-1, ::-1],
    "repeated": lambda xp, u: xp.broadcast_to(u[:, :1], u.shape),
    "copied after": lambda xp, u: u,
}


@pytest.mark.parametrize("lies", LYING)
@pytest.mark.parametrize("dtype", [np.float64, np.int16, np.uint8])
def test_rolled_arrays_lie_as_the_library_makes_them(lies: str, dtype: Any, engine: str) -> None:
    """Those that are returned, reduced, added up, rolled again, copied, or written to arguments."""
    view = LYING[lies]

    def steps(xp: Any, u: Any, v: Any) -> Any:
        x = view(xp, u)
        rolled = xp.roll(x, 1, axis=0)
        again = xp.roll(xp.roll(x, 2, axis=-1), -1, axis=0)
        u[:, :3] = xp.roll(v.T, 1, axis=0).T[:, :3]
        return rolled, again.copy(), xp.sum(rolled, axis=0), xp.roll(xp.cumulative_sum(x, axis=0), 1, axis=0)

    agree(steps, array((8, 7), dtype), array((8, 7), dtype, 1))
    agree(steps, np.asfortranarray(array((8, 7), dtype)), np.asfortranarray(array((8, 7), dtype, 1)))


def test_memory_that_is_written_in_between(engine: str) -> None:
    """A rolled array is what it was when it was made."""

    def after(xp: Any, u: Any) -> Any:
        r = xp.roll(u, 1, axis=0)
        u[2:] += 5.0
        return r * 2 + u

    def in_place(xp: Any, u: Any) -> Any:
        u[...] = xp.roll(u, 1, axis=1) + u
        u += xp.roll(u, -1, axis=0)

    def part(xp: Any, u: Any) -> Any:
        r = xp.roll(u[1:], 3, axis=1)
        u[:-1] = r * 2

    def itself(xp: Any, u: Any) -> Any:
        r = xp.roll(u, 1, axis=0)
        r[0] = 7.0
        return r + u, r

    for function in (after, in_place, part, itself):
        agree(function, array((20, 30)))


def test_arguments_that_overlap(engine: str) -> None:
    """Another argument that shows the same memory is written."""

    def step(u: Any, v: Any, xp: Any) -> Any:
        r = xp.roll(u, 1, axis=0)
        v += 1.0
        return r * 2.0 + v

    fused = xt.fuse(lambda u, v: step(u, v, xt))
    for call in range(4):
        a = array((60, 20), seed=call)
        x = xt.asarray(a.copy())
        np.testing.assert_array_equal(fused(x[:40], x[10:50]).numpy(), step(a[:40], a[10:50], np))
        np.testing.assert_array_equal(x.numpy(), a)


def test_what_is_made_of_rolled_arrays(engine: str) -> None:
    """Views, reductions, products, further rolls, results, and several of these."""

    def uses(xp: Any, u: Any) -> Any:
        r = xp.roll(u, 3, axis=0)
        twice = xp.roll(r, 2, axis=1)
        mixed = xp.roll(r * 2, -1, axis=0)
        return (
            r,
            xp.sum(r * u),
            xp.max(xp.roll(u, 1, axis=1), axis=0),
            r[1:-1, ::2] + 1,
            twice - u,
            xp.roll(twice, -5, axis=0) + mixed,
            r @ u.T,
            xp.cumsum(twice, axis=0) if xp is np else xp.cumulative_sum(twice, axis=0),
            xp.exp(-abs(xp.roll(u, -3))),
        )

    agree(uses, array((24, 31)))


def test_rolled_arrays_are_broadcast(engine: str) -> None:
    def outer(xp: Any, u: Any, row: Any, column: Any) -> Any:
        return xp.roll(u, 2, axis=0) * xp.roll(row, 3) + xp.roll(column, (1, 5), axis=(0, 1)) - xp.roll(row, -1, axis=0)

    agree(outer, array((24, 31)), array(31), array((24, 1)))


def test_what_is_not_moved(engine: str) -> None:
    """Axes of one element, whole turns, and no places."""
    agree(lambda xp, u: xp.roll(u[:1, :1], (3, 2), axis=(0, 1)) * 2 + xp.roll(u[:1], 1, axis=0), array((5, 7)))
    agree(lambda xp, u: xp.roll(u, 5, axis=0) + xp.roll(u, -14, axis=1) + xp.roll(u, 0, axis=0), array((5, 7)))


def test_loops(engine: str) -> None:
    def waves(xp: Any, u: Any, v: Any) -> Any:
        for _ in range(20):
            v = v + 0.1 * (xp.roll(u, 1, axis=0) + xp.roll(u, -1, axis=0) - 2 * u)
            u = u + 0.1 * v
        return u, v

    def buffers(xp: Any, u: Any, v: Any) -> None:
        for _ in range(9):
            v[...] = (xp.roll(u, 1, axis=1) + xp.roll(u, (-1, 1), axis=(0, 1))) / 2
            u, v = v, u

    agree(waves, array((40, 50)), array((40, 50), seed=1))
    agree(buffers, array((40, 50)), array((40, 50), seed=1))


def test_gradients(engine: str) -> None:
    def energy(u: Any) -> Any:
        return xt.sum((xt.roll(u, 1, axis=0) - u) ** 2 * xt.roll(u, (2, -1), axis=(0, 1)))

    fused, plain = xt.fuse(xt.value_and_grad(energy)), xt.value_and_grad(energy)
    for call in range(4):
        u = xt.asarray(array((18, 21), seed=call))
        for one, other in zip(fused(u), plain(u), strict=True):
            np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-12, atol=1e-11)


def test_rows_of_a_map() -> None:
    def step(u: Any) -> Any:
        return xt.roll(u, 1, axis=0) * 2 + xt.roll(u, 3) - xt.roll(u[0], -1)

    u = xt.asarray(array((9, 6, 7)))
    rows = xt.stack([step(u[i, ...]) for i in range(9)])
    mapped = xt.fuse(xt.vmap(step))
    for _ in range(3):
        np.testing.assert_allclose(xt.vmap(step)(u).numpy(), rows.numpy(), rtol=1e-14)
        np.testing.assert_allclose(mapped(u).numpy(), rows.numpy(), rtol=1e-14)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads(threads: int) -> None:
    """Large arrays are shared between threads, and may begin anew within a thread's part."""
    with xt.options(threads=threads):
        for shift in (1, -1, 300, 777):
            agree(lambda xp, u, by=shift: xp.roll(u, by, axis=0) + xp.roll(u, by, axis=1), array((700, 900)))
        agree(lambda xp, u: xp.roll(u, 100_001) - u, array(1_000_000))


@pytest.mark.skipif(host() is None, reason="there is no compiler, and each rolled array is made")
def test_stencils_are_one_kernel() -> None:
    def laplacian(xp: Any, u: Any) -> Any:
        return xp.roll(u, 1, axis=0) + xp.roll(u, -1, axis=0) + xp.roll(u, 1, axis=1) + xp.roll(u, -1, axis=1) - 4 * u

    fused = agree(laplacian, array((300, 300)))
    assert "machine code: 1 kernels in one call" in xt.explain(fused)
    assert "0 bytes of arena" in xt.explain(fused)
    copied = agree(lambda xp, u: xp.sum(xp.roll(u, (1, 2), axis=(0, 1)) * u), array((300, 300)))
    assert "library" not in xt.explain(copied)


def test_wrong_arguments_are_refused() -> None:
    fused = xt.fuse(lambda u: xt.roll(u, (1, 2), axis=(0, 1, 1)))
    for _ in range(3):
        with pytest.raises(ValueError, match="roll: shift must be one number or 3 of them"):
            fused(xt.ones((200, 300)))
    assert xt.fuse(lambda u: xt.roll(u, 1, axis=0) + 1)(xt.ones((0, 3))).shape == (0, 3)

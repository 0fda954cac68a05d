"""Steps of simulations and solvers under xt.fuse, which write in place, beside NumPy and, where it is installed, JAX.

JAX's versions return new arrays, as its arrays cannot be written. What each step leaves is compared with NumPy's first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

import xtensor as xt

from .measure import print_table, repeated, take_turns, warmed
from .progress import progress
from .seawater import enthalpy_slope, waters
from .workloads import Array


class Step(NamedTuple):
    """A step: its name, what makes its arrays, the function of a namespace and these, which returns what it returns,
    and the function for JAX, which returns new arrays; None where that is the same.
    """

    name: str
    make: Callable[[np.random.Generator], list[Array]]
    function: Callable[..., Any]
    for_jax: Callable[..., Any] | None


def grids(n: int, count: int) -> Callable[[np.random.Generator], list[Array]]:
    """Return what makes square grids."""
    return lambda rng: [rng.random((n, n)) for _ in range(count)]


def around(x: Any) -> Any:
    """Return the sum of the four neighbours of each inner point."""
    return x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:]


def heat(xp: Any, x: Any) -> Any:
    """One step of the heat equation."""
    x[1:-1, 1:-1] += 0.1 * (around(x) - 4.0 * x[1:-1, 1:-1])
    return None


def heat_jax(xp: Any, x: Any) -> Any:
    return x.at[1:-1, 1:-1].add(0.1 * (around(x) - 4.0 * x[1:-1, 1:-1]))


def gray_scott(xp: Any, u: Any, v: Any) -> Any:
    """One step of Gray's and Scott's reaction and diffusion (1984)."""
    eaten = u[1:-1, 1:-1] * v[1:-1, 1:-1] ** 2
    u_new = 0.16 * (around(u) - 4.0 * u[1:-1, 1:-1]) - eaten + 0.06 * (1.0 - u[1:-1, 1:-1])
    v_new = 0.08 * (around(v) - 4.0 * v[1:-1, 1:-1]) + eaten - 0.122 * v[1:-1, 1:-1]
    u[1:-1, 1:-1] += u_new
    v[1:-1, 1:-1] += v_new
    return None


def gray_scott_jax(xp: Any, u: Any, v: Any) -> Any:
    eaten = u[1:-1, 1:-1] * v[1:-1, 1:-1] ** 2
    u_new = 0.16 * (around(u) - 4.0 * u[1:-1, 1:-1]) - eaten + 0.06 * (1.0 - u[1:-1, 1:-1])
    v_new = 0.08 * (around(v) - 4.0 * v[1:-1, 1:-1]) + eaten - 0.122 * v[1:-1, 1:-1]
    return u.at[1:-1, 1:-1].add(u_new), v.at[1:-1, 1:-1].add(v_new)


def periodic(xp: Any, u: Any) -> Any:
    """One step of Allen's and Cahn's equation with periodic boundaries, which returns a new array."""
    around = xp.roll(u, 1, axis=0) + xp.roll(u, -1, axis=0) + xp.roll(u, 1, axis=1) + xp.roll(u, -1, axis=1)
    return u + 0.1 * (around - 4.0 * u) + 0.05 * (u - u**3)


def maxwell(xp: Any, ex: Any, ey: Any, hz: Any) -> Any:
    """One step of Yee's scheme in two dimensions (1966)."""
    ey[1:, :] -= 0.5 * (hz[1:, :] - hz[:-1, :])
    ex[:, 1:] -= 0.5 * (hz[:, 1:] - hz[:, :-1])
    hz[:-1, :-1] -= 0.7 * (ex[:-1, 1:] - ex[:-1, :-1] + ey[1:, :-1] - ey[:-1, :-1])
    return None


def maxwell_jax(xp: Any, ex: Any, ey: Any, hz: Any) -> Any:
    ey = ey.at[1:, :].add(-0.5 * (hz[1:, :] - hz[:-1, :]))
    ex = ex.at[:, 1:].add(-0.5 * (hz[:, 1:] - hz[:, :-1]))
    return ex, ey, hz.at[:-1, :-1].add(-0.7 * (ex[:-1, 1:] - ex[:-1, :-1] + ey[1:, :-1] - ey[:-1, :-1]))


DIRECTIONS = [(0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1)]
WEIGHTS = [4 / 9, *[1 / 9] * 4, *[1 / 36] * 4]


def boltzmann(xp: Any, f: Any) -> Any:
    """Return one step of a lattice Boltzmann method with nine directions: collide and stream."""
    density = xp.sum(f, axis=0)
    ux = sum(x * f[i] for i, (x, _) in enumerate(DIRECTIONS) if x) / density
    uy = sum(y * f[i] for i, (_, y) in enumerate(DIRECTIONS) if y) / density
    square = 1.5 * (ux * ux + uy * uy)
    parts = []
    for i, ((x, y), weight) in enumerate(zip(DIRECTIONS, WEIGHTS, strict=True)):
        along = 3.0 * (x * ux + y * uy)
        equal = weight * density * (1.0 + along + 0.5 * along * along - square)
        parts.append(xp.roll(f[i] - 0.6 * (f[i] - equal), (x, y), axis=(0, 1)))
    return xp.stack(parts)


def conjugate_gradients(xp: Any, a: Any, x: Any, r: Any, p: Any) -> Any:
    """One iteration of conjugate gradients (Hestenes and Stiefel, 1952)."""
    product = xp.matmul(a, p)
    before = xp.sum(r * r)
    length = before / xp.sum(p * product)
    x += length * p
    r -= length * product
    p[...] = r + xp.sum(r * r) / before * p
    return None


def conjugate_gradients_jax(xp: Any, a: Any, x: Any, r: Any, p: Any) -> Any:
    product = xp.matmul(a, p)
    before = xp.sum(r * r)
    length = before / xp.sum(p * product)
    x, r = x + length * p, r - length * product
    return a, x, r, r + xp.sum(r * r) / before * p


def system(rng: np.random.Generator) -> list[Array]:
    """Make a positive definite matrix and the vectors of an iteration."""
    a = rng.random((40, 40))
    r = rng.random(40)
    return [a @ a.T + 40.0 * np.eye(40), np.zeros(40), r, r.copy()]


def ten_kernels(xp: Any, x: Any, y: Any, z: Any) -> Any:
    """Ten writes that cannot be one loop, as each reads its neighbours in what the last one wrote."""
    for _ in range(5):
        x[1:-1] = 0.5 * (y[:-2] + z[2:])
        y[1:-1] = 0.5 * (x[2:] + z[:-2])
    return None


def ten_kernels_jax(xp: Any, x: Any, y: Any, z: Any) -> Any:
    for _ in range(5):
        x = x.at[1:-1].set(0.5 * (y[:-2] + z[2:]))
        y = y.at[1:-1].set(0.5 * (x[2:] + z[:-2]))
    return x, y, z


def clipped(xp: Any, w: Any, v: Any, slope: Any) -> Any:
    """One step of gradient descent with momentum, by a slope whose norm is limited: a branch on a value."""
    norm = xp.sqrt(xp.sum(slope * slope))
    if norm > 1.0:
        slope = slope * (1.0 / norm)
    v *= 0.9
    v += slope
    w -= 0.1 * v
    return None


def clipped_jax(xp: Any, w: Any, v: Any, slope: Any) -> Any:
    norm = xp.sqrt(xp.sum(slope * slope))
    v = 0.9 * v + slope * xp.where(norm > 1.0, 1.0 / norm, 1.0)
    return w - 0.1 * v, v, slope


def sea_water(n: int) -> Step:
    """Return an expression of hundreds of steps over so many cells."""
    name = f"sea water, {n}"
    return Step(name, lambda rng: waters(rng, n, "float64"), lambda xp, *x: enthalpy_slope(xp, *x), None)


STEPS = [
    Step("heat, 128 x 128", grids(128, 1), heat, heat_jax),
    Step("Gray-Scott, 128 x 128", grids(128, 2), gray_scott, gray_scott_jax),
    *[Step(f"Allen-Cahn by roll, {n} x {n}", grids(n, 1), periodic, None) for n in (128, 1024)],
    Step("Maxwell, 128 x 128", grids(128, 3), maxwell, maxwell_jax),
    Step("lattice Boltzmann, 9 x 48 x 48", lambda rng: [rng.random((9, 48, 48)) + 1.0], boltzmann, None),
    Step("conjugate gradients, 40", system, conjugate_gradients, conjugate_gradients_jax),
    Step("ten kernels, 1000", lambda rng: [rng.random(1000) for _ in range(3)], ten_kernels, ten_kernels_jax),
    *[
        Step(f"clipped step, {n}", lambda rng, n=n: [rng.random(n) for _ in range(3)], clipped, clipped_jax)
        for n in (1000, 100_000)
    ],
    *[sea_water(n) for n in (4096, 65_536, 1_048_576)],
]


def main(quick: bool = False) -> None:
    """Print, for each step, its time with NumPy, and the others' over that."""
    with np.errstate(all="ignore"):  # what is repeated for ever may leave what it converges to
        rows = [row_of(step, 1 if quick else 7, 0.01 if quick else 0.5) for step in progress(STEPS, len(STEPS))]
    heading = ["", "numpy us", "xtensor us", "xtensor", "xtensor.fuse", "fuse us", "jax.jit"]
    print_table("Steps, float64: times over NumPy's, the least (and the medians)", heading, rows)


def row_of(step: Step, repeats: int, warm: float) -> list[str]:
    """Check a step's versions, time them in turns, and return a line of the table."""
    versions = dict(versions_of(step))
    times = take_turns({name: repeated(call, warmed(call, warm)) for name, call in versions.items()}, repeats)
    base = times["numpy"]
    ratio = {name: found.over(base) for name, found in times.items()}
    micro = {name: f"{found.least * 1e6:.1f}" for name, found in times.items()}
    own = [micro["numpy"], micro["xtensor"], ratio["xtensor"], ratio["xtensor.fuse"], micro["xtensor.fuse"]]
    return [step.name, *own, ratio.get("jax.jit", "")]


def versions_of(step: Step) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield each library's name and a call of the step on arrays of its own, after one that agreed with NumPy's."""
    arrays = [np.copy(one) for one in step.make(np.random.default_rng(0))]
    result = step.function(np, *arrays)
    right = arrays if result is None else [result]
    yield "numpy", call_of(step.function, np, step.make(np.random.default_rng(0)))
    fused = xt.fuse(step.function)
    for name, function in (("xtensor", step.function), ("xtensor.fuse", fused)):
        for _ in range(3):
            own = [xt.asarray(one, copy=True) for one in step.make(np.random.default_rng(0))]
            result = function(xt, *own)
            compare(step.name, own if result is None else [result], right)
        yield name, call_of(function, xt, [xt.asarray(one, copy=True) for one in step.make(np.random.default_rng(0))])
    if find_spec("jax") is not None:
        yield "jax.jit", for_jax(step, right)


def call_of(function: Callable[..., Any], xp: Any, arrays: list[Any]) -> Callable[[], Any]:
    """Return a call that ends when its result is there."""

    def call() -> None:
        result = function(xp, *arrays)
        if hasattr(result, "evaluate"):
            result.evaluate()

    return call


def for_jax(step: Step, right: list[Array]) -> Callable[[], Any]:
    """Return the call of JAX's version, after one that agreed with NumPy's."""
    import jax

    jax.config.update("jax_enable_x64", True)
    arrays = [jax.numpy.asarray(one) for one in step.make(np.random.default_rng(0))]
    compiled = jax.jit(lambda *x: (step.for_jax or step.function)(jax.numpy, *x))
    results = compiled(*arrays)
    found = list(results) if isinstance(results, tuple) else [results]
    compare(step.name, found, right)
    return lambda: jax.block_until_ready(compiled(*arrays))


def compare(name: str, found: list[Any], right: list[Array]) -> None:
    """Raise AssertionError where results differ from NumPy's."""
    for one, other in zip(found, right, strict=True):
        np.testing.assert_allclose(np.asarray(one), other, rtol=1e-7, atol=1e-9, err_msg=name)

"""What programs cost on a CUDA device, the host included: small calls, steps of simulations and solvers, and
scikit-learn and SciPy by array API dispatch, beside CuPy and PyTorch. Steps are compared with CuPy's before they are
timed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from statistics import geometric_mean, median
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from . import consumers, steps
from .gpu_layers import torch_there
from .measure import table
from .workloads import Array

# A time is the median of so many rounds of so many calls, which the device has finished at the end of each round.
ROUNDS, CALLS = 5, 20

AGREES = 1e-6


def assign(xp: Any, x: Any) -> None:
    x[2:500] = 1.0


# Small calls of a vector of 1000 numbers, which each library takes as they stand.
SMALL: dict[str, Callable[[Any, Any], Any]] = {
    "x + x": lambda xp, x: x + x,
    "x * 2.5 + x": lambda xp, x: x * 2.5 + x,
    "exp(x)": lambda xp, x: xp.exp(x),
    "sum(x)": lambda xp, x: xp.sum(x),
    "x[1:-1]": lambda xp, x: x[1:-1],
    "x[2:500] = 1.0": assign,
    "x[1:] - x[:-1]": lambda xp, x: x[1:] - x[:-1],
    "where(x > 0, x, -x)": lambda xp, x: xp.where(x > 0, x, -x),
    "x += 0.0": lambda xp, x: x.__iadd__(0.0),
    "reshape": lambda xp, x: xp.reshape(x, (10, 100)),
}


def bodies(xp: Any, x: Any, v: Any) -> None:
    """One step of bodies that attract each other (leapfrog)."""
    apart = x[None, :, :] - x[:, None, :]
    near = xp.sum(apart * apart, axis=-1) + 0.01
    v += 0.001 * xp.sum(apart / (near * xp.sqrt(near))[:, :, None], axis=1)
    x += 0.001 * v


def life(xp: Any, x: Any) -> Any:
    """One generation of Conway's game of life, of numbers 0.0 and 1.0."""
    around = sum(xp.roll(x, (i, j), axis=(0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j)
    return xp.where((around == 3) | ((around == 2) & (x == 1.0)), 1.0, 0.0)


def centres(xp: Any, x: Any, c: Any, numbers: Any) -> Any:
    """One step of Lloyd's method: the means of the points nearest to each centre."""
    squares = xp.sum(c * c, axis=1)[None, :] - 2.0 * (x @ c.T)
    mine = xp.astype(xp.argmin(squares, axis=1)[:, None] == numbers[None, :], x.dtype)
    return (mine.T @ x) / xp.sum(mine, axis=0)[:, None]


def spectral(xp: Any, u: Any, decay: Any) -> Any:
    """One step of the heat equation in Fourier space."""
    return xp.fft.irfftn(xp.fft.rfftn(u) * xp.exp(-0.1 * decay), s=u.shape, axes=(0, 1))


def filtered(xp: Any, x: Any) -> Any:
    """A blurred image, its contrast, and where it is bright."""
    blurred = (steps.around(x) + x[1:-1, 1:-1]) / 5.0
    sharp = xp.clip(x[1:-1, 1:-1] + 1.5 * (x[1:-1, 1:-1] - blurred), 0.0, 1.0)
    return xp.where(sharp > 0.5, sharp**2, xp.sqrt(sharp))


class Program(NamedTuple):
    """A step: what makes its arrays of a size, and the function of a namespace and these; its small and large size."""

    name: str
    make: Callable[[np.random.Generator, int], list[Array]]
    function: Callable[..., Any]
    sizes: tuple[int, int]


def squares(count: int) -> Callable[[np.random.Generator, int], list[Array]]:
    """Return what makes so many square grids."""
    return lambda rng, n: [rng.random((n, n)) for _ in range(count)]


def _system(rng: np.random.Generator, n: int) -> list[Array]:
    a, r = rng.random((n, n)), rng.random(n)
    return [a @ a.T + n * np.eye(n), np.zeros(n), r, r.copy()]


def _points(rng: np.random.Generator, n: int) -> list[Array]:
    return [rng.random((n, 16)), rng.random((8, 16)), np.arange(8)]


def _waves(rng: np.random.Generator, n: int) -> list[Array]:
    return [rng.random((n, n)), np.fft.fftfreq(n)[:, None] ** 2 + np.fft.rfftfreq(n)[None, :] ** 2]


PROGRAMS = (
    Program("heat", squares(1), steps.heat, (128, 4096)),
    Program("Gray-Scott", squares(2), steps.gray_scott, (128, 4096)),
    Program("Maxwell", squares(3), steps.maxwell, (128, 4096)),
    Program("lattice Boltzmann", lambda rng, n: [rng.random((9, n, n)) + 1.0], steps.boltzmann, (48, 1024)),
    Program("conjugate gradients", _system, steps.conjugate_gradients, (40, 4096)),
    Program("n-body", lambda rng, n: [rng.random((n, 3)), rng.random((n, 3))], bodies, (64, 2048)),
    Program("game of life", lambda rng, n: [(rng.random((n, n)) > 0.5) * 1.0], life, (128, 4096)),
    Program("k-means", _points, centres, (1000, 1_000_000)),
    Program("Fourier heat", _waves, spectral, (128, 2048)),
    Program("image", squares(1), filtered, (128, 4096)),
    Program("ten kernels", lambda rng, n: [rng.random(n) for _ in range(3)], steps.ten_kernels, (1000, 10_000_000)),
    Program("sea water", lambda rng, n: steps.waters(rng, n, "float64"), steps.enthalpy_slope, (4096, 1_048_576)),
)


def small_calls(device: str) -> str:
    """Return what small calls cost the host, in microseconds, the device keeping up."""
    cp, xt = import_module("cupy"), import_module("xtensor")
    x = cp.random.standard_normal(1000, dtype=cp.float32)
    given: dict[str, Any] = {"xtensor": (xt, xt.asarray(x, copy=True)), "cupy": (cp, x)}
    torch = torch_there()
    if torch:
        given["torch"] = (torch, torch.from_dlpack(x.copy()))
    lines = []
    for name, function in SMALL.items():
        times = [_seconds(partial(function, *operands), 200, waits=False) * 1e6 for operands in given.values()]
        lines.append([name, *[f"{time:.1f}" for time in times], f"{times[0] / times[1]:.2f}"])
    return table("small calls: microseconds of the host", ["", *given, "/ cupy"], lines)


def programs(device: str) -> str:
    """Return the table of PROGRAMS: CuPy's time, and xtensor's over that, plain and fused."""
    rows = [[program.name, *_program(program, device, n)] for n in (0, 1) for program in PROGRAMS]
    heading = ["", "size", "cupy us", "plain", "fused"]
    lines, means = [], []
    for n, which in enumerate(("small", "large")):
        part = rows[n * len(PROGRAMS) : (n + 1) * len(PROGRAMS)]
        lines += part
        for place, how in ((3, "plain"), (4, "fused")):
            numbers = [float(row[place]) for row in part if _is_number(row[place])]
            if numbers:
                means.append(f"{which} {how} {geometric_mean(numbers):.2f}")
    return table("steps, float64: times over CuPy's", heading, lines) + f"\ngeometric means: {', '.join(means)}"


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdigit()


def _program(program: Program, device: str, which: int) -> list[str]:
    """Return a size, CuPy's microseconds, and xtensor's times over them, or why there are none."""
    cp, xt = import_module("cupy"), import_module("xtensor")
    compat, n = import_module("array_api_compat.cupy"), program.sizes[which]
    hosts = program.make(np.random.default_rng(0), n)

    def moved(library: str) -> list[Any]:
        if library == "cupy":
            return [cp.asarray(one) for one in hosts]
        return [xt.asarray(one, device=device, copy=True) for one in hosts]

    try:
        right = _left(program.function, compat, moved("cupy"))
        base = _seconds(partial(program.function, compat, *moved("cupy")))
    except Exception as error:
        return [str(n), f"{type(error).__name__}: {error}"[:60], "", ""]
    cells = [str(n), f"{base * 1e6:.1f}"]
    for function in (program.function, xt.fuse(program.function)):
        try:
            for _ in range(3):
                _agree(_left(function, xt, moved("xtensor")), right)
            cells.append(f"{_seconds(steps.call_of(function, xt, moved('xtensor'))) / base:.2f}")
        except Exception as error:  # a program that fails is reported, and the others go on
            cells.append(f"{type(error).__name__}: {error}"[:60])
    cp.get_default_memory_pool().free_all_blocks()
    return cells


def _left(function: Callable[..., Any], xp: Any, arrays: list[Any]) -> list[Any]:
    """Return what a step returns, or leaves in its arrays."""
    result = function(xp, *arrays)
    return arrays if result is None else [result]


def _agree(found: list[Any], right: list[Any]) -> None:
    """Raise ArithmeticError where results differ by more than rounding."""
    cp = import_module("cupy")
    for one, other in zip(found, right, strict=True):
        off = cp.max(cp.abs(cp.from_dlpack(one.evaluate()) - other))
        if not float(off) <= AGREES * float(cp.max(cp.abs(other))):
            raise ArithmeticError(f"off by {float(off):.0e}")


def _seconds(call: Callable[[], Any], calls: int = CALLS, *, warm: int = 12, waits: bool = True) -> float:
    """Return the median seconds of a call. warm: calls before, past the recording of a graph; waits: until the device
    has done the work of a round, else of the host.
    """
    synchronize = import_module("cupy").cuda.runtime.deviceSynchronize
    for _ in range(warm):
        call()
    found = []
    for _ in range(ROUNDS):
        synchronize()
        start = perf_counter()
        for _ in range(calls):
            call()
        if waits:
            synchronize()
        found.append((perf_counter() - start) / calls)
    return median(found)


def dispatched(device: str) -> str:
    """Return the table of consumers.CALLS: milliseconds of xtensor, CuPy and PyTorch on the device."""
    if not (find_spec("sklearn") and find_spec("scipy")):
        return "\nwithout scikit-learn and SciPy: nothing of them is compared"
    libraries = dict(_operands(consumers.made(consumers.ROWS), device))
    lines = []
    dispatching, options = consumers.imported("sklearn.config_context"), import_module("xtensor").options
    # SciPy makes some arrays on the default device
    with warnings.catch_warnings(), dispatching(array_api_dispatch=True), options(device=device):
        warnings.simplefilter("ignore")  # of mixtures that did not converge, which is not what is timed
        for name, call in consumers.CALLS.items():
            lines.append([name, *[_dispatched(call, operands) for operands in libraries.values()]])
    size = f"{consumers.ROWS:,} x {consumers.COLUMNS} float32"
    return table(f"scikit-learn and SciPy, {size}: milliseconds", ["", *libraries], lines)


def _operands(arrays: dict[str, Array], device: str) -> Iterator[tuple[str, dict[str, Any]]]:
    xt, cp, torch = import_module("xtensor"), import_module("cupy"), torch_there()
    yield "xtensor", {name: xt.asarray(array, device=device) for name, array in arrays.items()}
    yield "cupy", {name: cp.asarray(array) for name, array in arrays.items()}
    if torch:
        yield "torch", {name: torch.asarray(array, device=device) for name, array in arrays.items()}


def _dispatched(call: Callable[[Any], Any], operands: dict[str, Any]) -> str:
    try:
        return f"{_seconds(partial(_finished, call, operands), 1, warm=3) * 1e3:.2f}"
    except Exception as error:
        return f"{type(error).__name__}"


def _finished(call: Callable[[Any], dict[str, Any]], operands: dict[str, Any]) -> None:
    for value in call(operands).values():
        if hasattr(value, "evaluate"):
            value.evaluate()

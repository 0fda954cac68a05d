"""Expressions on a CUDA device beside CuPy, PyTorch and JAX, the bandwidth of a copy, what launching costs, and the
tables of gpu_layers.py.

Times are the device's: two events with all its work between them. Every result is compared with CuPy's in float64
before it is timed; a wrong one is not timed. Where an expression jumps, a rounding may take a result to the other side:
right is also what the expression is of operands that are so little away.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, ClassVar

import numpy as np

from . import gpu_layers, gpu_networks, gpu_programs
from .machine import versions
from .measure import table
from .peers import torch_names
from .workloads import WORKLOADS, Workload, softmax

Call = Callable[[], Any]

ELEMENTWISE, ROWS = 10**8, 1 << 27

# A time is the median of so many rounds of so many calls: beside some, what the host does before the first is little.
ROUNDS, CALLS = 7, 10

# Seconds after which no further library is compared, so that xtensor's own times are all there.
PATIENCE = 100
# Lengths of rows.
LENGTHS = (128, 8192, 65_536)

CHOSEN = ("axpy", "polynomial", "gelu", "leaky-relu", "black-scholes", "ten-cheap", "ten-costly")
TOLERANCE = 1e-4

# By how much of themselves operands may be away: some roundings of float32.
ROUNDINGS = 8 * float(np.finfo(np.float32).eps)


def total(xp: Any, x: Any) -> Any:
    return xp.sum(x)


SUM = Workload("sum", total, "", lambda rng, n, dtype: [rng.uniform(0.0, 1.0, n).astype(dtype)], memory_bound=True)


class Contestant:
    """A library on the device; by itself, CuPy."""

    name: ClassVar[str] = "cupy"
    needs: ClassVar[str] = "cupy"

    def __init__(self, device: str) -> None:
        self.device = device
        self.xp: Any = import_module(self.needs)

    def operand(self, given: Any) -> Any:
        """Return a CuPy array as this library's own, on the same memory."""
        return given

    def function(self, workload: Workload) -> Callable[..., Any]:
        return partial(workload.formula, self.xp)

    def cupy(self, result: Any) -> Any:
        """Return a result as a CuPy array."""
        return import_module("cupy").from_dlpack(result)


class CupyFuse(Contestant):
    """cupy.fuse, which takes elementwise expressions."""

    name = "cupy.fuse"

    def function(self, workload: Workload) -> Callable[..., Any]:
        def formula(*operands: Any) -> Any:
            return workload.formula(self.xp, *operands)

        fused: Callable[..., Any] = self.xp.fuse(kernel_name=workload.name.replace("-", "_"))(formula)
        return fused


class Xtensor(Contestant):
    """A plain function over xtensor's arrays, evaluated at its end."""

    name = needs = "xtensor"

    def operand(self, given: Any) -> Any:
        return self.xp.asarray(given, copy=True)

    def function(self, workload: Workload) -> Callable[..., Any]:
        return lambda *operands: workload.formula(self.xp, *operands).evaluate()


class Torch(Contestant):
    """PyTorch, each call at once."""

    name = needs = "torch"

    def __init__(self, device: str) -> None:
        super().__init__(device)
        if not self.xp.cuda.is_available():
            raise ImportError("PyTorch sees no CUDA device")
        self.torch, self.xp = self.xp, torch_names(self.xp)
        self.torch.set_grad_enabled(False)

    def operand(self, given: Any) -> Any:
        return self.torch.from_dlpack(given)


class TorchCompile(Torch):
    """torch.compile as it comes."""

    name = "torch.compile"

    def function(self, workload: Workload) -> Callable[..., Any]:
        formula, xp = workload.formula, self.xp
        self.torch.compiler.reset()  # or the recompilations of other workloads would count against this one

        def function(*operands: Any) -> Any:
            return formula(xp, *operands)

        compiled: Callable[..., Any] = self.torch.compile(function)
        return compiled


class Jax(Contestant):
    """jax.jit."""

    name = needs = "jax"

    def __init__(self, device: str) -> None:
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        super().__init__(device)
        self.jax, self.xp = self.xp, import_module("jax.numpy")
        if self.jax.default_backend() != "gpu":
            raise ImportError("JAX sees no CUDA device")

    def operand(self, given: Any) -> Any:
        return self.xp.from_dlpack(given)

    def function(self, workload: Workload) -> Callable[..., Any]:
        jitted: Callable[..., Any] = self.jax.jit(partial(workload.formula, self.xp))
        return jitted


CONTESTANTS: tuple[type[Contestant], ...] = (Xtensor, Contestant, CupyFuse, Torch, TorchCompile, Jax)


# What is measured, in this order; and of these, what takes the libraries of CONTESTANTS.
TABLES = (
    "first",
    "launches",
    "graphs",
    "sizes",
    "rows",
    "layouts",
    "layers",
    "networks",
    "calls",
    "steps",
    "dispatched",
)
CONTESTED = ("launches", "sizes", "rows")


def main(device: str = "cuda:0", quick: bool = False, tables: Sequence[str] | None = None) -> None:
    """Print all tables, or those named; ends the program, with the reason, where the device cannot be used."""
    os.environ["SCIPY_ARRAY_API"] = "1"  # which SciPy reads when it is first imported, by JAX say
    xt: Any = import_module("xtensor")
    try:
        xt.zeros(1, device=device)
    except (ValueError, TypeError) as error:
        sys.exit(f"no benchmarks on {device}: {error}")
    import_module("cupy").cuda.Device(int(device.partition(":")[2] or 0)).use()
    print(described(device))
    chosen = tables or TABLES
    entered, reasons = contestants(device, quick) if set(CONTESTED) & set(chosen) else ([], [])
    print("\n".join(reasons))
    measured: dict[str, Callable[[], str]] = {
        "first": lambda: first_kernels(device),
        "launches": lambda: launch_costs(entered),
        "graphs": lambda: graph_costs(device),
        "sizes": lambda: compared_by_size(entered, quick),
        "rows": lambda: rows_by_length(entered, quick),
        "layouts": lambda: gpu_layers.layouts(seconds_of, *([512] if quick else [])),
        "layers": lambda: gpu_layers.layers(seconds_of),
        "networks": lambda: gpu_networks.networks(device, seconds_of),
        "calls": lambda: gpu_programs.small_calls(device),
        "steps": lambda: gpu_programs.programs(device),
        "dispatched": lambda: gpu_programs.dispatched(device),
    }
    for name in chosen:
        attempt(measured[name])


def attempt(measurement: Callable[[], str]) -> None:
    """Print what a measurement finds, or why it fails: the others go on."""
    try:
        print(measurement())
    except Exception as error:
        print(f"\n{type(error).__name__}: {error}"[:400])


def compared_by_size(entered: Sequence[Contestant], quick: bool) -> str:
    """Return the bandwidth of a copy, and the tables of elementwise expressions and of reductions and rows."""
    speed = copy_bandwidth(10**7 if quick else ELEMENTWISE)
    print(f"\nDevice-to-device copy: {speed:.1f} GB/s, bytes in + bytes out")
    named = {one.name: one for one in WORKLOADS}
    groups = (
        ([named[name] for name in CHOSEN], ELEMENTWISE),
        ([SUM, named["softmax"], named["layer-norm"]], ROWS),
    )
    begun = perf_counter()
    tables = [compared(works, size >> 7 if quick else size, entered, speed, begun) for works, size in groups]
    return "\n".join(tables)


def rows_by_length(entered: Sequence[Contestant], quick: bool) -> str:
    """Return the table of what is computed along rows of several lengths, beside torch.compile."""
    size = ROWS >> 7 if quick else ROWS
    works = [
        Workload(f"{name}, rows of {length}", formula, "", partial(_rows, length))
        for name, formula in (("softmax", softmax), ("standardised", standardised), ("variance", variance))
        for length in LENGTHS
    ]
    pair = [one for one in entered if one.name in ("xtensor", "torch.compile")]
    return compared(works, size, pair, copy_bandwidth(size >> 2), perf_counter())


def _rows(length: int, rng: np.random.Generator, n: int, dtype: str) -> list[Any]:
    return [rng.standard_normal((n // length, length), dtype=np.float32)]


def standardised(xp: Any, x: Any) -> Any:
    c = x - xp.mean(x, axis=1, keepdims=True)
    return c / xp.sqrt(xp.mean(c * c, axis=1, keepdims=True) + 1e-5)


def variance(xp: Any, x: Any) -> Any:
    c = x - xp.mean(x, axis=1, keepdims=True)
    return xp.mean(c * c, axis=1)


def described(device: str) -> str:
    """Return the device, its driver, and the versions of everything."""
    cp = import_module("cupy")
    number = int(device.partition(":")[2] or 0)
    name = cp.cuda.runtime.getDeviceProperties(number)["name"].decode()
    found = versions()
    for package in ("cupy-cuda12x", "cupy-cuda13x", "nvidia-cuda-nvrtc"):
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    lines = [f"{name}, driver for CUDA {cp.cuda.runtime.driverGetVersion()}"]
    return "\n".join([*lines, ", ".join(f"{package} {one}" for package, one in found.items())])


def contestants(device: str, quick: bool) -> tuple[list[Contestant], list[str]]:
    """Return who takes part, and why others do not."""
    found, reasons = [], []
    for kind in CONTESTANTS:
        if quick and kind is TorchCompile:
            continue
        try:
            if not find_spec(kind.needs):
                raise ImportError("it is not installed")
            found.append(kind(device))
        except Exception as error:  # whatever keeps a library from starting
            reasons.append(f"without {kind.name}: {error}")
    return found, reasons


# ---- times


def seconds_of(call: Call) -> float:
    """Return the median seconds of a call on the device, by events around the work of some calls in a row."""
    cp = import_module("cupy")
    runtime = cp.cuda.runtime
    for _ in range(3):
        call()
    found = []
    for _ in range(ROUNDS):
        runtime.deviceSynchronize()
        start, end = cp.cuda.Event(), cp.cuda.Event()
        start.record()
        for _ in range(CALLS):
            call()
        runtime.deviceSynchronize()  # libraries have streams of their own
        end.record()
        end.synchronize()
        found.append(cp.cuda.get_elapsed_time(start, end) / 1e3 / CALLS)
    return median(found)


def copy_bandwidth(elements: int) -> float:
    """Return the gigabytes per second of copying float32 on the device."""
    cp = import_module("cupy")
    source, target = cp.ones(elements, np.float32), cp.empty(elements, np.float32)
    return float(2 * source.nbytes / seconds_of(lambda: cp.copyto(target, source)) / 1e9)


def compared(works: Sequence[Workload], size: int, entered: Sequence[Contestant], speed: float, begun: float) -> str:
    """Return the table of some workloads: xtensor's time, and the others' as multiples of it.

    begun: when comparing began.
    """
    heading = ["workload", "xtensor ms", "GB/s", "of copy", *[one.name for one in entered if one.name != "xtensor"]]
    lines = []
    for work in works:
        try:
            times, moved = timed(work, size, entered, begun)
        except Exception as error:  # no memory, say, for what results are compared with
            times, moved = {"xtensor": f"{type(error).__name__}: {error}"[:60]}, 0
        ours = times.get("xtensor")
        cells = [_over(times.get(one.name), ours) for one in entered if one.name != "xtensor"]
        if isinstance(ours, float):
            rate = moved / ours / 1e9
            lines.append([work.name, f"{ours * 1e3:.3f}", f"{rate:.0f}", f"{rate / speed:.2f}", *cells])
        else:
            lines.append([work.name, str(ours), "", "", *cells])
    return table(f"{size:,} elements of float32: times as long as xtensor", heading, lines)


def _over(time: float | str | None, ours: float | str | None) -> str:
    if isinstance(time, float):
        return f"{time / ours:.2f}" if isinstance(ours, float) else _milliseconds(time)
    return time or ""


def _milliseconds(time: float | str) -> str:
    return f"{time * 1e3:.3f} ms" if isinstance(time, float) else time


def timed(work: Workload, size: int, entered: Sequence[Contestant], begun: float) -> tuple[dict[str, float | str], int]:
    """Return each contestant's seconds, or a word for why there are none, and the bytes in + bytes out."""
    cp = import_module("cupy")
    given = [cp.asarray(one) for one in work.inputs(np.random.default_rng(size), size, "float32")]
    wanted = work.formula(cp, *[one.astype(np.float64) for one in given])
    moved = sum(one.nbytes for one in given) + wanted.nbytes // 2
    found: dict[str, float | str] = {}
    for one in entered:
        if one.name != "xtensor" and perf_counter() - begun > PATIENCE:
            found[one.name] = "no time"
            continue
        try:
            call = partial(one.function(work), *[one.operand(array) for array in given])
            off = error_of(work, cp, given, wanted, one.cupy(call()))
            found[one.name] = seconds_of(call) if off < TOLERANCE else f"wrong {off:.0e}"
            print(f"{work.name}, {one.name}: {_milliseconds(found[one.name])}")
        except Exception as error:  # a library that fails here is reported, and the others go on
            print(f"{work.name}, {one.name}: {type(error).__name__}: {error}"[:200])
            found[one.name] = "failed"
        cp.get_default_memory_pool().free_all_blocks()
    return found, moved


def error_of(work: Workload, xp: Any, given: Sequence[Any], wanted: Any, result: Any) -> float:
    """Return how far a result is from a workload's at most, as a part of the largest: `wanted`, or what that is of
    operands some roundings away, one at a time.
    """
    size, off = float(abs(wanted).max()), abs(result - wanted)
    if float(off.max()) < TOLERANCE * size:
        return float(off.max()) / size
    wide = [one.astype(np.float64) for one in given]
    for place, own in enumerate(wide):
        for factor in (1 - ROUNDINGS, 1 + ROUNDINGS):
            near = work.formula(xp, *wide[:place], own * factor, *wide[place + 1 :])
            off = xp.minimum(off, abs(result - near))
    return float(off.max()) / size


# ---- what begins and launches cost

FRESH = """
import sys, time, cupy, xtensor as xt
x = xt.ones(1000, device=sys.argv[1])
xt.sum(x + 1).evaluate()
cupy.cuda.runtime.deviceSynchronize()
with xt.options(lazy="always"):
    start = time.perf_counter()
    xt.tanh(x * 3.25 - xt.exp(-x)).evaluate()
    cupy.cuda.runtime.deviceSynchronize()
print(time.perf_counter() - start)
"""


def first_kernels(device: str) -> str:
    """Return what a new kernel costs at its first run, and in another process that finds it on disk."""
    root = Path(__file__).resolve().parent.parent
    with TemporaryDirectory(prefix="xtensor-") as folder:
        fresh = {**os.environ, "XTENSOR_CACHE_DIR": folder, "CUPY_CACHE_DIR": folder, "PYTHONPATH": str(root)}
        found = []
        for _ in range(2):
            command = [sys.executable, "-c", FRESH, device]
            done = subprocess.run(command, env=fresh, capture_output=True, text=True, check=False, timeout=60)
            found.append(f"{float(done.stdout) * 1e3:.1f} ms" if not done.returncode else done.stderr[-200:])
    return f"\nFirst run of a new kernel: {found[0]}; from the disk cache: {found[1]}"


def launch_costs(entered: Sequence[Contestant]) -> str:
    """Return what a call on a small array costs the host, the device keeping up; of xtensor as a planned kernel too."""
    cp, xt = import_module("cupy"), import_module("xtensor")
    x = cp.ones(1000, np.float32)
    lines = []
    rows = [(one.name, one, "auto") for one in entered]
    rows += [("xtensor, recorded", one, "always") for one in entered if one.name == "xtensor"]
    for name, one, lazy in rows:
        call = partial(one.function(Workload("axpy", lambda xp, a: a * 2.5 + a, "", SUM.inputs)), one.operand(x))
        try:
            with xt.options(lazy=lazy):
                lines.append([name, f"{_host_seconds(call) * 1e6:.1f}"])
        except Exception as error:  # likewise
            lines.append([name, type(error).__name__])
    return table("a * 2.5 + a over 1000 elements: microseconds of the host per call", ["library", "us"], lines)


def graph_costs(device: str) -> str:
    """Return what a fused function of ten kernels costs the host, which are launched one by one and as a CUDA graph."""
    xt, segments = import_module("xtensor"), import_module("xtensor.run.cuda_segment")

    def waves(x: Any, y: Any) -> None:
        for _ in range(5):
            x[1:] += y[:-1]
            y[1:] -= x[:-1]

    lines, least = [], segments.LEAST
    for name, launches in (("one by one", 1 << 30), ("as a graph", least)):
        fused, (x, y) = xt.fuse(waves), [xt.zeros(1000, device=device) for _ in range(2)]
        try:
            segments.LEAST = launches  # from which on a graph is recorded
            for _ in range(2 * segments.REPEATS):
                fused(x, y)
            lines.append([name, f"{_host_seconds(partial(fused, x, y)) * 1e6:.1f}"])
        finally:
            segments.LEAST = least
    return table("ten kernels of a fused function: microseconds of the host per call", ["launched", "us"], lines)


def _host_seconds(call: Call) -> float:
    """Return the seconds after which a call comes back, the median of some runs of calls in a row."""
    runtime = import_module("cupy").cuda.runtime
    found = []
    for _ in range(ROUNDS):
        runtime.deviceSynchronize()
        start = perf_counter()
        for _ in range(200):
            call()
        found.append((perf_counter() - start) / 200)
    return median(found)

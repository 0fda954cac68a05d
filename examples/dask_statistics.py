"""Statistics of numbers that do not fit into memory: `python examples/dask_statistics.py` caps its own memory first.

The extra `dask` has what it needs. The cap is Linux's; elsewhere the same runs without one.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.diagnostics import ProgressBar

import xtensor.dask  # noqa: F401 - a task computes what it returns, and weighs what it holds

ROWS, COLUMNS, BLOCK = 3_200_000, 64, 25_000  # 1.6 GB in 128 blocks of 12.8 MB
CAP = 300 * 2**20


def cap_memory(nbytes: int) -> bool:
    """Let this process take at most nbytes more than it has now; return whether the system can do that."""
    if not sys.platform.startswith("linux"):
        return False
    import resource

    data = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[5]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_DATA, (data + nbytes, resource.RLIM_INFINITY))
    return True


def measurements(rows: int, block: int) -> Any:
    """Return random numbers (rows, COLUMNS) as a Dask array whose chunks are tensors, made when a task asks for one."""
    with dask.config.set({"array.backend": "xtensor"}):
        return da.random.default_rng(0).normal(loc=1.0, scale=2.0, size=(rows, COLUMNS), chunks=(block, COLUMNS))


def statistics(x: Any) -> dict[str, Any]:
    """Return the statistics of a matrix, of Dask's or NumPy's: each is one walk over its rows."""
    squashed = np.tanh(x) * np.exp(-0.5 * x**2)  # fused with the sum over it: one kernel a block
    return {
        "mean": x.mean(axis=0),
        "std": x.std(axis=0),
        "moments": x.T @ x / x.shape[0],
        "squashed": squashed.sum(axis=0) / x.shape[0],
    }


def main(rows: int = ROWS, block: int = BLOCK, cap: int = CAP) -> None:
    """Compute all statistics in one walk under the cap, and print them beside NumPy's on a part that fits."""
    x = measurements(rows, block)
    dask.compute(statistics(measurements(4 * block, block)), num_workers=2)  # threads and kernels come before the cap
    if cap_memory(cap):
        print(f"{x.nbytes / 1e9:.1f} GB of numbers, {cap / 1e9:.1f} GB of memory")
        try:
            np.ones(x.shape)
        except MemoryError as error:
            print("numpy:", error)
    with ProgressBar():
        (found,) = dask.compute(statistics(x), num_workers=2)
    for name, value in found.items():
        print(f"{name:9}", type(value).__name__, value.shape, value.ravel()[:3])

    part = x[:block]
    (found,) = dask.compute(statistics(part), num_workers=2)
    for name, expected in statistics(part.compute().numpy()).items():
        error = np.max(np.abs(found[name].numpy() - expected))
        print(f"{name:9} of the first block: off NumPy's by at most {error:.1e}")


if __name__ == "__main__":
    main()

"""Means over gigabytes with a bounded share of memory: `python examples/cubed_means.py` says what a task may take.

Cubed (the extra `cubed`) works out beforehand how much memory each task takes, and refuses a plan in which one takes
more than the `allowed_mem` of its Spec. What tasks hand to each other goes through files.
"""

from __future__ import annotations

import os

os.environ.setdefault("CUBED_BACKEND_ARRAY_API_MODULE", "xtensor")  # Cubed reads it when it is imported

from tempfile import TemporaryDirectory
from typing import Any

import cubed
import cubed.array_api as xp
import cubed.random
import numpy as np
from cubed.diagnostics.tqdm import TqdmProgressBar

SIDE, BLOCK = 10_000, 1_000  # each of two arrays takes 0.8 GB, in 100 blocks of 8 MB
ALLOWED, RESERVED = 300_000_000, 150_000_000  # bytes for a task; of them those that Python and its libraries take


def strength(u: Any, v: Any, xp: Any) -> Any:
    """Return the mean over the rows of a damped field, of two arrays of any namespace."""
    return xp.mean(xp.exp(-u) * xp.sqrt(u**2 + v**2), axis=0)


def field(work: str, side: int, block: int) -> list[Any]:
    """Return two Cubed arrays of random numbers (side, side), whose tasks keep to the memory that is allowed."""
    spec = cubed.Spec(work, allowed_mem=ALLOWED, reserved_mem=RESERVED)
    return [cubed.random.random((side, side), chunks=(block, block), spec=spec) for _ in range(2)]


def main(side: int = SIDE, block: int = BLOCK) -> None:
    """Compute the mean, say what a plan with too large blocks is told, and compare with NumPy on a part."""
    with TemporaryDirectory() as work:
        u, v = field(work, side, block)
        print(f"{(u.nbytes + v.nbytes) / 1e9:.1f} GB of numbers, {ALLOWED / 1e9:.1f} GB for a task")
        try:
            strength(*field(work, SIDE, SIDE), xp).compute()
        except ValueError as error:
            print("in one block:", str(error).splitlines()[0])
        (found,) = cubed.compute(strength(u, v, xp), callbacks=[TqdmProgressBar()])
        print(type(found).__name__, found.shape, found[:3])

        part = [one[:block, : block // 2] for one in (u, v)]
        numpys = [one.compute().numpy() for one in part]
        error = np.max(np.abs(strength(*part, xp).compute().numpy() - strength(*numpys, np)))
        print(f"on a part of one block off NumPy's by at most {error:.1e}")


if __name__ == "__main__":
    main()

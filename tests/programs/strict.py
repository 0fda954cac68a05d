"""A second oracle: array-api-strict, which knows only what the standard says.

Where it refuses a line, that line is left out; xtensor must give its values, dtypes and shapes on all that are left.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import numpy as np

from .kinds import Kind
from .maker import Maker
from .plain import MODES, run_ours
from .sides import Side, quiet, same_bits

# What reaches outside; and where array-api-strict returns its argument, or a copy, which the standard leaves open.
LEFT_OUT = re.compile(r"host|floor\(|flip\(v\d+, axis=None")

try:
    import array_api_strict as strict
except ImportError:  # it is optional
    strict = None  # type: ignore[assignment]


class Strict:
    """array-api-strict as `xp`, with the helpers of the oracle."""

    diagonal = staticmethod(strict.linalg.diagonal) if strict is not None else None

    def __getattr__(self, name: str) -> Any:
        return getattr(strict, name)

    @staticmethod
    def pick(x: Any, *key: int) -> Any:
        return strict.asarray(x[key], copy=True)

    @staticmethod
    def apart(x: Any) -> Any:
        return strict.asarray(x, copy=True)

    @staticmethod
    def force(x: Any) -> None:
        pass


def followed(lines: list[str]) -> tuple[list[str], dict[str, Any]]:
    """Return the lines that array-api-strict takes, and its variables after them.

    They run again without those it refuses, until it refuses none: an update may be refused half done.
    """
    while True:
        side = Side(Strict(), lambda x: x)
        with quiet():
            for line in lines:
                side.step(line)
        kept = [line for line, error in zip(lines, side.errors, strict=True) if error is None]
        if len(kept) == len(lines):
            return kept, {name: np.asarray(x) for name, x in side.variables().items()}
        lines = kept


def difference(lines: list[str], mode: str) -> str | None:
    """Return what differs from array-api-strict, None where nothing does."""
    kept, right = followed([line for line in lines if not LEFT_OUT.search(line)])
    side = run_ours(kept, mode)
    for line, error in zip(kept, side.errors, strict=True):
        if error is not None:
            return f"`{line}` raised {error!r}"
    for name, x in side.variables().items():
        found, theirs = x.numpy(), right[name]
        if (found.dtype, found.shape) != (theirs.dtype, theirs.shape):
            return f"{name}: {found.dtype} {found.shape}, array-api-strict {theirs.dtype} {theirs.shape}"
        rounds = theirs.dtype.kind == "c"  # in its own way
        if not (np.allclose(found, theirs, rtol=1e-5, atol=0, equal_nan=True) if rounds else same_bits(found, theirs)):
            return f"{name}: values {found.tolist()}, array-api-strict {theirs.tolist()}"
    return None


@lru_cache(8)
def made(seed: int) -> Maker:
    """Return the program of a seed."""
    return Maker(seed, exact=True)


STRICT = Kind("strict", tuple(MODES) if strict is not None else (), lambda seed, mode: made(seed), difference)

"""Plain programs: their lines run one after the other on NumPy and on xtensor, under every laziness and engine.

At the end all variables must agree in bits, dtype, shape, strides and in which share memory.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from types import ModuleType
from typing import Any

import pytest

import xtensor as xt
from xtensor.calls import op, rows, thin
from xtensor.plan import costs

from .kinds import Kind
from .maker import KernelMaker, Maker
from .sides import Ours, Side, differs, run_oracle, same_error, sharing

# A small fuse_limit evaluates in the middle of an expression, as long programs would.
MODES: dict[str, dict[str, Any]] = {
    "auto": {"lazy": "auto"},
    "always": {"lazy": "always"},
    "never": {"lazy": "never"},
    "always, fuse_limit=2": {"lazy": "always", "fuse_limit": 2},
    "direct": {"lazy": "always", "engine": "direct"},
    "interpret": {"lazy": "always", "engine": "interpret"},
    "llvm": {"lazy": "always", "engine": "llvm", "cache_dir": ""},
    "large": {"lazy": "auto", "engine": "interpret"},
    "large, llvm": {"lazy": "auto", "engine": "llvm", "cache_dir": ""},
    "elided": {"lazy": "auto"},
}
# Arrays count as large ones, and programs run so often: what is recorded for the second time is one node, what is
# evaluated for the third is launched.
TIMES = {"large": 3, "large, llvm": 3}
# Sizes from which on something is done, always from 0 on; and others, up to which it is.
FROM = ("COUNTED", "REUSED", "BY_PARTS")
LIMITS = ("DIRECT_BELOW", "DIRECT_BYTES", "LARGE_UPDATE", "LAUNCH_PAYS", "FAST_LAUNCH_PAYS", *FROM)
# Generated code has functions and float sums of its own: its programs are made without them, and agree in every bit.
EXACT = [name for name, settings in MODES.items() if settings.get("engine") == "llvm"]


def run_ours(lines: list[str], mode: str, xp: type[Ours] = Ours) -> Side:
    with all_large() if mode in TIMES else all_elided() if mode == "elided" else nullcontext():
        for _ in range(TIMES.get(mode, 1) - 1):
            run_with(lines, MODES[mode], xp)
        return run_with(lines, MODES[mode], xp)


@contextmanager
def all_large() -> Iterator[None]:
    """Let no array be small enough for library calls at once, for nobody to count who holds it, or for new memory.

    Methods are Python's, which ask for these limits.
    """
    with thin.in_python(), small_up_to(-1, -1), pytest.MonkeyPatch.context() as patch:
        for module, limit in limits(len(sys.modules)):
            patch.setattr(module, limit, 0 if limit in FROM else -1)
        yield


@contextmanager
def all_elided() -> Iterator[None]:
    """Let results of operators take the memory of temporaries, however small."""
    with thin.in_python(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "ELIDED", 0)
        patch.setattr(op, "ELIDED", 0)
        yield


@contextmanager
def small_up_to(cheap: int, costly: int) -> Iterator[None]:
    """Let methods in Python call the library at once for so many bytes, of cheap functions and of others."""
    before = costs.cheap_below[0], costs.narrow_below[0], costs.costly_below[0]
    costs.cheap_below[0], costs.narrow_below[0], costs.costly_below[0] = cheap, cheap, costly
    try:
        yield
    finally:
        costs.cheap_below[0], costs.narrow_below[0], costs.costly_below[0] = before


@lru_cache(1)
def limits(modules: int) -> list[tuple[ModuleType, str]]:
    """Return where the limits stand, looked for again where there are more modules than before."""
    ours = [module for name, module in sys.modules.items() if name.startswith("xtensor.")]
    return [(module, limit) for module in ours for limit in LIMITS if hasattr(module, limit)]


def run_with(lines: list[str], settings: dict[str, Any], xp: type[Ours] = Ours) -> Side:
    """Run a program on xtensor under some settings; what still waits at its end is computed under them too."""
    side = Side(xp(), lambda x: x)
    with xt.options(**settings):
        for line in lines:
            side.step(line)
        for value in side.variables().values():
            if isinstance(value, xt.Tensor):
                value.evaluate()
    return side


def difference(lines: list[str], mode: str) -> str | None:
    """Run a program on xtensor; return what differs from the oracle's run, or None."""
    return difference_of(lines, run_ours(lines, mode), _oracle(tuple(lines)))


def difference_of(lines: list[str], ours: Side, theirs: Side) -> str | None:
    """Return what differs between two runs, or None."""
    for line, a, b in zip(lines, ours.errors, theirs.errors, strict=True):
        if not same_error(a, b):
            return f"`{line}` raised {a!r}, NumPy {b!r}"
    mine, right = ours.variables(), theirs.variables()
    if mine.keys() != right.keys():
        return f"variables {sorted(mine)}, NumPy {sorted(right)}"
    for name, value in mine.items():
        found = differs(value, right[name])
        if found:
            return f"{name}: {found}"
    return sharing(mine, right, theirs.scalars())


@lru_cache(8)
def _oracle(lines: tuple[str, ...]) -> Side:
    """Run a program on NumPy, once for all modes."""
    return run_oracle(list(lines))


@lru_cache(8)
def made(seed: int, exact: bool) -> Maker:
    """Return the program of a seed, which several modes run."""
    return Maker(seed, exact)


@lru_cache(8)
def made_kernels(seed: int, exact: bool) -> Maker:
    """Return the program of a seed over arrays of up to 200 elements an axis, which several modes run."""
    return KernelMaker(seed, exact)


PLAIN = Kind("plain", tuple(MODES), lambda seed, mode: made(seed, mode in EXACT), difference)
KERNELS = Kind("kernels", tuple(MODES), lambda seed, mode: made_kernels(seed, mode in EXACT), difference)

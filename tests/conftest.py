"""What holds for all tests: the tests themselves are nothing for the garbage collector to look through, and what a test
made code for is forgotten, as it may have exchanged what that depends on.

The suite's 35,000 tests are 750,000 objects, and the libraries that some of them import are more: every `gc.collect()`
of a test walked them all, up to a second each.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator

import pytest

import xtensor as xt
from xtensor.calls import thin
from xtensor.calls.op import REGISTRY

gc.disable()  # while tests are collected: nothing is dropped then


def pytest_configure(config: pytest.Config) -> None:
    """Give each of several workers, one a processor, a BLAS of one thread: those of two would wait for each other,
    for milliseconds a product.
    """
    if getattr(config.option, "numprocesses", None):
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def pytest_collection_finish() -> None:
    """Put what is there aside, for good, and let the collector work on what tests make. Tensors get their methods in
    machine code, if there is a compiler, as they would after some calls.
    """
    thin.exchange()
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True, scope="module")
def _nothing_to_look_through() -> None:
    """Put aside what the files before this one have left: libraries that they imported, kernels, reports, and what
    calls on their stand-ins for devices came to.
    """
    for op in REGISTRY.values():
        op.known_there.clear()
        op.ready.clear()
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _no_launches() -> None:
    """Forget what convolutions and pools remember of arrays."""
    if "xtensor.nn.sweeps" in sys.modules:
        sys.modules["xtensor.nn.sweeps"]._runs.clear()  # type: ignore[attr-defined]


@pytest.fixture
def sums_by_code(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have machine code make the weighted sums of interpolations, averages and pads, however small arrays are."""
    for name, value in (("SLOWER", 1 << 23), ("PLANE", 1), ("TABLES", 0)):
        monkeypatch.setattr(f"xtensor.nn.taps.{name}", value)
    with xt.options(engine="llvm"):
        yield

"""A pytest plugin that makes xtensor the namespace of scikit-learn's own array API tests.

scikit-learn has no registry: its tests ask the functions replaced here, which must happen before they are collected.
Mixed inputs pair xtensor with NumPy, with array-api-strict, and with PyTorch where it is installed.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

from sklearn.utils import _array_api

NAME = "xtensor"
TO_AND_FRO = {"numpy": None, "torch": "cpu"}


def namespaces(include_numpy_namespaces: bool = True) -> Iterator[str]:
    """Yield the one namespace under test."""
    yield NAME


def combinations(include_numpy_namespaces: bool = True) -> Iterator[tuple[str, str | None, str]]:
    """Yield namespace, device and dtype; the default device once without and once with its name."""
    yield NAME, None, "float64"
    yield NAME, "cpu", "float32"


def mixed_inputs() -> Iterator[tuple[Any, Any, str]]:
    """Yield pairs of namespaces whose arrays meet in one call, which works in the second one."""
    pair = _array_api.NamespaceAndDevice
    ours = pair(NAME, "cpu")
    for partner, device in TO_AND_FRO.items():
        if find_spec(partner):
            yield ours, pair(partner, device), f"{NAME} to {partner}"
            yield pair(partner, device), ours, f"{partner} to {NAME}"
    # Not the other way: scikit-learn's metrics fail in array-api-strict, which adds no integers to floats.
    yield pair("array_api_strict", "device1"), ours, f"array_api_strict to {NAME}"


_array_api.yield_namespaces = namespaces
_array_api.yield_namespace_device_dtype_combinations = combinations
_array_api.yield_mixed_namespace_input_permutations = mixed_inputs

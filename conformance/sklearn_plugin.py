"""A pytest plugin that makes xtensor the namespace of scikit-learn's own array API tests.

scikit-learn has no registry: its tests ask the functions replaced here, which must happen before they are collected.
The `numpy` and `array_api_strict` (or `torch`, where it is installed) sides of mixed inputs stay what they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

from sklearn.utils import _array_api

NAME = "xtensor"
PARTNERS = {"numpy": None, "array_api_strict": "device1", "torch": "cpu"}


def namespaces(include_numpy_namespaces: bool = True) -> Iterator[str]:
    """Yield the one namespace under test."""
    yield NAME


def combinations(include_numpy_namespaces: bool = True) -> Iterator[tuple[str, str | None, str]]:
    """Yield namespace, device and dtype; the default device once without and once with its name."""
    yield NAME, None, "float64"
    yield NAME, "cpu", "float32"


def mixed_inputs() -> Iterator[tuple[Any, Any, str]]:
    """Yield pairs of namespaces for calls whose first argument decides, in both directions."""
    ours = _array_api.NamespaceAndDevice(NAME, "cpu")
    for partner, device in PARTNERS.items():
        if find_spec(partner):
            theirs = _array_api.NamespaceAndDevice(partner, device)
            yield ours, theirs, f"{NAME} to {partner}"
            yield theirs, ours, f"{partner} to {NAME}"


_array_api.yield_namespaces = namespaces
_array_api.yield_namespace_device_dtype_combinations = combinations
_array_api.yield_mixed_namespace_input_permutations = mixed_inputs

"""A pytest plugin that runs what xarray tests with array-api-strict and with JAX's arrays on tensors.

Its tests import both by name: they are given modules of these names whose arrays are xtensor's. What is expected to
fail with JAX must pass here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import xtensor


def stand_in(name: str, **attributes: object) -> None:
    """Put a module with some attributes in the place of another library's."""
    module = sys.modules[name] = ModuleType(name)
    vars(module).update(attributes)


stand_in("array_api_strict", asarray=xtensor.asarray, int64=xtensor.int64, __version__="2.6")
stand_in("array_api_strict._array_object", Array=xtensor.Tensor)
stand_in("jax", config=SimpleNamespace(update=lambda *setting: None), __version__="0.10")
stand_in("jax.numpy", asarray=xtensor.asarray, ndarray=xtensor.Tensor)


@pytest.hookimpl
def pytest_collection_finish(session: pytest.Session) -> None:
    """Take JAX away again, which other libraries would look for, and what is known of its arrays."""
    sys.modules.pop("jax", None)
    for module in {item.module for item in session.items if isinstance(item, pytest.Function)}:
        if hasattr(module, "NAMESPACE_ARRAYS"):
            module.NAMESPACE_ARRAYS["jax.numpy"]["xfails"].clear()
            module._BaseTest.setup_for_test = renamed(module._BaseTest.setup_for_test)


def renamed(set_up: Callable[..., None]) -> Callable[..., None]:
    """Return the setting up of a test that is not told it runs on JAX, for which it has arguments of its own."""

    def set_up_for_test(self: Any, request: Any, namespace: str) -> None:
        set_up(self, request, namespace)
        self.namespace = xtensor.__name__

    return set_up_for_test

"""A pytest plugin that makes xtensor the library of einops' own tests.

Their list of backends is fixed: xtensor's stands in CuPy's place, which nothing in them asks for by name. Like
PyTorch's it makes tensors that have gradients, which are compared.
"""

from __future__ import annotations

from typing import Any

import pytest
from einops import _backends

import xtensor
import xtensor.einops


class Backend(xtensor.einops.Backend):
    """xtensor's, for tests of gradients."""

    def from_numpy(self, x: Any) -> xtensor.Tensor:
        tensor = super().from_numpy(x)
        tensor.requires_grad = self.is_float_type(tensor)
        return tensor


_backends.CupyBackend = Backend


@pytest.hookimpl
def pytest_collection_finish(session: pytest.Session) -> None:
    """Add xtensor to the libraries whose einsum is tested."""
    for module in {item.module for item in session.items if isinstance(item, pytest.Function)}:
        if hasattr(module, "valid_backends_functional"):
            module.valid_backends_functional.append(Backend.framework_name)

"""A pytest plugin that adds xtensor to the libraries that array-api-extra's own tests run on.

They are members of an enumeration, which is given one more. Nothing is skipped or expected to fail for it.
"""

from __future__ import annotations

from typing import Any

import pytest
from array_api_extra._lib._backends import Backend

NAME = "xtensor"

kinds: Any = Backend
member = object.__new__(Backend)
member._name_, member._value_ = NAME.upper(), NAME
kinds._member_names_.append(member._name_)
kinds._member_map_[member._name_] = kinds._value2member_map_[NAME] = member


@pytest.hookimpl
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of xtensor."""
    items[:] = [item for item in items if member in getattr(getattr(item, "callspec", None), "params", {}).values()]

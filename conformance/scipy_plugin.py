"""A pytest plugin that makes xtensor a backend of SciPy's own array API tests.

SciPy's list of backends is fixed, but its conftest imports `array_api_strict`: it is given a module of that name
whose arrays are xtensor's. Once the tests are collected the module gets its true name, so that what SciPy skips or
allows for array-api-strict by name does not hold for xtensor.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

import xtensor

NAME = "xtensor"


class StandIn(ModuleType):
    """What SciPy's conftest uses of array-api-strict."""

    __version__ = "2.6"
    empty = staticmethod(xtensor.empty)  # SciPy takes the namespace under test from the array it returns

    @staticmethod
    def set_array_api_strict_flags(**flags: Any) -> None:
        """Do nothing: xtensor has no such flags."""


stand_in = sys.modules["array_api_strict"] = StandIn("array_api_strict")


@pytest.hookimpl
def pytest_collection_finish(session: pytest.Session) -> None:
    """Give the stand-in its true name."""
    stand_in.__name__ = NAME
    if conftest := sys.modules.get("scipy.conftest"):
        conftest.xp_known_backends.add(NAME)


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: Any, request: Any) -> None:
    """Replace SciPy 1.17's fixture `devices`, which cannot add its None to the tuple of the 2025.12 standard."""
    if fixturedef.argname == "devices":
        fixturedef.func = devices


def devices(xp: Any) -> list[Any]:
    """Return every device of the namespace, and None."""
    return [*xp.__array_namespace_info__().devices(), None]

"""Deprecated names warn once a place, with the version that removes them, and are gone by then."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest

import xtensor as xt
from xtensor.base import deprecation
from xtensor.base.deprecation import DEPRECATED, deprecate, tell


@pytest.fixture(autouse=True)
def nothing_told(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Enter and tell nothing for good."""
    monkeypatch.setattr(deprecation, "_told", set())
    before = dict(DEPRECATED)
    yield
    DEPRECATED.clear()
    DEPRECATED.update(before)


def test_once_for_each_place() -> None:
    """Two places warn, once each; the warning names the place, the version and what to use."""

    one = deprecate("exponential", "9.1", "xt.exp")

    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for _ in range(3):
            tell(one)
        tell(one)
    assert [type(one.message) for one in found] == [DeprecationWarning] * 2
    assert str(found[0].message) == "exponential is deprecated and will be removed in xtensor 9.1: use xt.exp"
    assert {one.filename for one in found} == {__file__}
    assert len({one.lineno for one in found}) == 2


def test_an_argument_and_warnings_as_errors() -> None:
    """A place that raised is told again."""
    one = deprecate("sum(where=...)", "9.1", "xt.where")
    for _ in range(2):
        with pytest.raises(
            DeprecationWarning, match=r"sum\(where=...\) is deprecated and will be removed in xtensor 9.1"
        ):
            tell(one)


def test_nothing_stays_beyond_its_time() -> None:
    """What should have gone with this version, or an older one, is not here any more."""

    def parts(version: str) -> tuple[int, ...]:
        return tuple(int(part) for part in version.split(".")[:2])

    assert [one.what for one in DEPRECATED.values() if parts(one.removed) <= parts(xt.__version__)] == []

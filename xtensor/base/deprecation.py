"""Deprecations: a warning once for each place that uses a feature, with the version without it and the replacement.

The policy is in docs/upgrading.md: a deprecated feature stays for two minor versions and goes with the one named.
"""

from __future__ import annotations

import sys
import warnings
from os.path import dirname
from typing import NamedTuple

_PACKAGE = dirname(dirname(__file__))
_told: set[tuple[str, str, int]] = set()


class Deprecation(NamedTuple):
    """A deprecated feature, the version without it, such as "0.4", and its replacement."""

    what: str
    removed: str
    instead: str


# Everything that is deprecated, by its name: docs and tests read it.
DEPRECATED: dict[str, Deprecation] = {}


def deprecate(what: str, removed: str, instead: str) -> Deprecation:
    """Register a function, an argument, or a value of one as deprecated, for `tell` where it is used."""
    return DEPRECATED.setdefault(what, Deprecation(what, removed, instead))


def tell(one: Deprecation) -> None:
    """Warn of a use, once for each place outside the package."""
    frame, depth = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, depth = frame.f_back, depth + 1
    place = (one.what, frame.f_code.co_filename, frame.f_lineno)
    if place not in _told:
        text = f"{one.what} is deprecated and will be removed in xtensor {one.removed}: use {one.instead}"
        warnings.warn(text, DeprecationWarning, stacklevel=depth)  # raises if warnings are errors: warns again
        _told.add(place)

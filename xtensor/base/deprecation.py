"""What is deprecated: a warning once for each place that uses it, with the version that takes it away and what to use.

The policy stands in docs/upgrading.md: what is deprecated stays for two minor versions and goes with the one named.
"""

from __future__ import annotations

import sys
import warnings
from os.path import dirname
from typing import NamedTuple

_PACKAGE = dirname(dirname(__file__))
_told: set[tuple[str, str, int]] = set()


class Deprecation(NamedTuple):
    """What goes, the version without it, such as "0.4", and what does the same."""

    what: str
    removed: str
    instead: str


# Everything that is deprecated, by its name: docs and tests read it.
DEPRECATED: dict[str, Deprecation] = {}


def deprecate(what: str, removed: str, instead: str) -> Deprecation:
    """Enter something as deprecated, for `tell` where it is used: a function, an argument, or a value of one."""
    return DEPRECATED.setdefault(what, Deprecation(what, removed, instead))


def tell(one: Deprecation) -> None:
    """Warn of a use, once for each place outside the package."""
    frame, depth = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, depth = frame.f_back, depth + 1
    place = (one.what, frame.f_code.co_filename, frame.f_lineno)
    if place not in _told:
        text = f"{one.what} is deprecated and will be removed in xtensor {one.removed}: use {one.instead}"
        warnings.warn(text, DeprecationWarning, stacklevel=depth)  # raises where warnings are errors: told next time
        _told.add(place)

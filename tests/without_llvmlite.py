"""A pytest plugin: an interpreter on which llvmlite cannot be imported."""

from __future__ import annotations

import sys

sys.modules["llvmlite"] = None  # type: ignore[assignment]  # what makes its import fail

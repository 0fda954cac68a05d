"""Whether a pickle speaks of what decorates a function by its name, or of what it was made of."""

from __future__ import annotations

import sys
from typing import Any


def pickled_name(decorated: Any) -> str | None:
    """Return the name by which whoever reads a pickle finds something, as it does functions; None for what is not found
    so. The method `__reduce__` of what is decorated asks this.

    A reader of cloudpickle's, in another process, does not have the writer's `__main__`, so that functions of a script,
    which joblib, Dask and Ray send there, go by value. The standard's pickles have no other way than names.
    """
    module, name = getattr(decorated, "__module__", None), getattr(decorated, "__qualname__", "")
    found: Any = sys.modules.get(module or "")
    for part in name.split("."):
        found = getattr(found, part, None)
    return name if found is decorated and not (module == "__main__" and _is_by_value()) else None


def _is_by_value() -> bool:
    """Return whether it is cloudpickle that asks, or the copy of it that another library has."""
    writer = sys._getframe(3).f_globals.get("__name__", "")  # who has called `__reduce__`, which has asked for the name
    return "cloudpickle" in writer.split(".")

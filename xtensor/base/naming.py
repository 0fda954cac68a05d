"""Whether a pickle refers to a decorated function by its name, or contains the parts it was made of."""

from __future__ import annotations

import sys
from typing import Any


def pickled_name(decorated: Any) -> str | None:
    """Return the name by which the reader of a pickle finds an object, as it finds functions; None if it cannot. Called
    by the method `__reduce__` of decorated functions.

    A reader of cloudpickle's pickles, in another process, does not have the writer's `__main__`, so functions of a
    script, which joblib, Dask and Ray send there, go by value. Standard pickles can only use names.
    """
    module, name = getattr(decorated, "__module__", None), getattr(decorated, "__qualname__", "")
    found: Any = sys.modules.get(module or "")
    for part in name.split("."):
        found = getattr(found, part, None)
    return name if found is decorated and not (module == "__main__" and _is_by_value()) else None


def _is_by_value() -> bool:
    """Return whether the pickle is written by cloudpickle, or by the copy of it in another library."""
    writer = sys._getframe(3).f_globals.get("__name__", "")  # the caller of `__reduce__`, which has called pickled_name
    return "cloudpickle" in writer.split(".")

"""NumPy's names over tensors: `import xtensor.numpy as np`."""

from sys import modules as _modules
from typing import Any as _Any

from numpy import __version__ as __version__

from . import names as _names
from . import protocols as protocols
from . import views as views

globals().update(_names.written())
_found = _names.attributes("")
_modules.update({f"{__name__}.{name}": _modules[f"numpy.{name}"] for name in _names.NUMPYS_OWN})


def __getattr__(name: str) -> _Any:
    """Return the object that stands for one of NumPy's names, and remember it."""
    found = globals()[name] = _found(name)
    return found


def __dir__() -> list[str]:
    found = [path for path in _names.groups() if "." not in path and path not in _names.LEFT_OUT]
    return sorted([*found, *_names.MODULES])

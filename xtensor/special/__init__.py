"""Special functions with the names of scipy.special: formulas that fuse, and SciPy's own functions, with gradients.

>>> xt.special.expit(xt.asarray([0.0]))
Tensor([0.5], dtype=float64)
"""

from typing import Any as _Any

from . import names as _names
from .bessel import *
from .formulas import *
from .gamma_functions import *
from .probability import *


def __getattr__(name: str) -> _Any:
    """Return SciPy's universal function of a name that is not defined here, and remember it."""
    found = globals()[name] = _names.found(name)
    return found


def __dir__() -> list[str]:
    return sorted(_names.groups())

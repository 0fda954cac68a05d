"""The standard's linalg extension: see `xtensor/standard/linalg.py`."""

from .standard.linalg import *
from .standard.linalg import __all__ as __all__

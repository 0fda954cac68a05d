"""The standard's fft extension: see `xtensor/standard/fft.py`."""

from .standard.fft import *
from .standard.fft import __all__ as __all__

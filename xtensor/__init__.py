"""xtensor: the whole Python array API standard (2025.12) as one namespace, recorded lazily, on NumPy.

>>> import xtensor as xt
"""

from importlib import import_module as _import_module
from math import e as e
from math import inf as inf
from math import nan as nan
from math import pi as pi
from typing import TYPE_CHECKING as _TYPE_CHECKING

from .base.interpreter import check_interpreter as _check_interpreter

_check_interpreter()

from . import autograd as autograd
from .base.dtypes import *
from .base.options import options as options
from .devices import Device as Device
from .standard.casting import *
from .standard.creation import *
from .standard.elementwise import *
from .standard.extras import *
from .standard.indexing import *
from .standard.inspection import __array_namespace_info__ as __array_namespace_info__
from .standard.linear import *
from .standard.manipulation import *
from .standard.searching import *
from .standard.sets import *
from .standard.sorting import *
from .standard.statistical import *
from .standard.utility import *
from .tensor.face import Tensor as Tensor
from .tensor.face import evaluate as evaluate

__version__ = "0.1.0"
__array_api_version__ = "2025.12"
newaxis = None

if _TYPE_CHECKING:
    from numpy import lib as lib

    from . import fft as fft
    from . import linalg as linalg
    from . import memory as memory
    from . import nn as nn
    from . import numpy as numpy
    from . import random as random
    from . import special as special
    from . import testing as testing
    from .autograd import *
    from .calls.capture import fuse as fuse
    from .calls.mapped import vmap as vmap
    from .explaining import cache_info as cache_info
    from .explaining import explain as explain
    from .explaining import named as named
    from .numpy.algebra import cross as cross
    from .numpy.creation import logspace as logspace
    from .numpy.folding import cumprod as cumprod
    from .numpy.folding import cumsum as cumsum
    from .numpy.shaping import pad as pad
    from .numpy.statistics import gradient as gradient
    from .numpy.statistics import median as median
    from .numpy.statistics import quantile as quantile
    from .profiler import profile as profile

_LATER = ("fft", "linalg", "memory", "nn", "numpy", "random", "special", "testing")

# NumPy's names that xarray and SciPy expect in namespaces; they are those of xtensor.numpy.
_NUMPYS = ("cross", "cumprod", "cumsum", "gradient", "lib", "logspace", "median", "pad", "quantile", "transpose")

# The modules of names that are loaded when they are asked for.
_HOMES = {
    "fuse": ".calls.capture",
    "vmap": ".calls.mapped",
    "profile": ".profiler",
    **dict.fromkeys(("cache_info", "explain", "named"), ".explaining"),
    **dict.fromkeys(autograd.__all__, ".autograd"),
    **dict.fromkeys(_NUMPYS, ".numpy"),
}


def __getattr__(name: str) -> object:
    """Load an extension when it is asked for: most programs need none, and the import stays short."""
    if name in _LATER:
        return _import_module(f".{name}", __name__)
    if name in _HOMES:
        found: object = getattr(_import_module(_HOMES[name], __name__), name)
        if name not in _NUMPYS:  # these must not become names of this namespace
            globals()[name] = found
        return found
    hint = "; NumPy's names are in xtensor.numpy" if name in _import_module("numpy").__all__ else ""
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}", name=name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER, *_HOMES})

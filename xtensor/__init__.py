"""xtensor: the whole Python array API standard (2025.12) as one namespace, recorded lazily, on NumPy.

>>> import xtensor as xt
"""

from importlib import import_module as _import_module
from math import e as e
from math import inf as inf
from math import nan as nan
from math import pi as pi
from typing import TYPE_CHECKING as _TYPE_CHECKING

from . import autograd as autograd
from . import fft as fft
from . import linalg as linalg
from . import memory as memory
from . import random as random
from .autograd import *
from .devices import Device as Device
from .dtypes import *
from .explain import cache_info as cache_info
from .explain import explain as explain
from .explain import named as named
from .fuse import fuse as fuse
from .info import __array_namespace_info__ as __array_namespace_info__
from .ops.casting import *
from .ops.creation import *
from .ops.elementwise import *
from .ops.extras import *
from .ops.indexing import *
from .ops.linear import *
from .ops.manipulation import *
from .ops.searching import *
from .ops.sets import *
from .ops.sorting import *
from .ops.statistical import *
from .ops.utility import *
from .options import options as options
from .tensor import Tensor as Tensor
from .tensor import evaluate as evaluate

__version__ = "0.1.0"
__array_api_version__ = "2025.12"
newaxis = None

if _TYPE_CHECKING:
    from . import nn as nn


def __getattr__(name: str) -> object:
    """Load the neural networks when they are asked for: most programs never are, and the import stays short."""
    if name == "nn":
        return _import_module(".nn", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

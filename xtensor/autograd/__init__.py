"""Derivative rules, the tape of steps, the way back along it, and the transforms that users call."""

from .checking import check_grads as check_grads
from .transforms import *
from .transforms import __all__ as __all__

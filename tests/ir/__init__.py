"""An interpreter of LLVM IR that knows where every pointer points, and which bytes it may touch.

It follows the integers that addresses are made of exactly, and what is computed of elements by its bounds only: so what
it finds in bounds is so for all elements. It says nothing about what LLVM makes of the text.

| file | what is in it |
|---|---|
| text.py | modules as functions, blocks and instructions |
| values.py | integers known exactly or by their bounds, pointers, and arithmetic of them |
| memory.py | regions of memory, and which of their bytes may be touched |
| machine.py | running a function |
| launches.py | the machine code that random programs are made into, and the regions that its launches are told of |
"""

from .launches import Checked, Found, check_launches, collected
from .machine import Machine, TooLongError, UnknownError
from .memory import BoundsError, Region
from .text import Module

__all__ = [
    "BoundsError",
    "Checked",
    "Found",
    "Machine",
    "Module",
    "Region",
    "TooLongError",
    "UnknownError",
    "check_launches",
    "collected",
]

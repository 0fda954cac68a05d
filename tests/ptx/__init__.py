"""An interpreter of PTX over NumPy: what NVRTC compiled runs on the host, with every access checked.

It stands for a GPU in tests, which must call themselves emulated. It says nothing about the assembler that makes
machine code of PTX, about limits of a launch, streams, or speed.
"""

from . import control, convert, floating, integer, movement
from .faults import (
    DeadlockError,
    KernelError,
    MisalignedError,
    OutOfBoundsError,
    RaceError,
    TooLongError,
    UndefinedError,
)
from .machine import Module

__all__ = [
    "DeadlockError",
    "KernelError",
    "MisalignedError",
    "Module",
    "OutOfBoundsError",
    "RaceError",
    "TooLongError",
    "UndefinedError",
]

del control, convert, floating, integer, movement  # imported for the opcodes that they enter

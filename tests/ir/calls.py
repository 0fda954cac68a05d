"""The calls of kernels that the package writes out - products, convolutions, windows, attention - as they are made.

What they are told are addresses of arrays, and of tables of offsets, which are read where they lie. A pointer may touch
the whole array that its address is in, byte for byte, and nothing beyond it.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FunctionType
from typing import Any

import numpy as np
import pytest

from xtensor.base.options import settings
from xtensor.codegen.cpu.compile import Code
from xtensor.codegen.cpu.driver import driver
from xtensor.run import contractions, joined, launches, matmul, native
from xtensor.run.launches import PACKED, Launches, begin_of

from .launches import MOST, Checked
from .machine import Machine, TooLongError
from .memory import Region
from .text import Module
from .values import Pointer

# What says where an array lies, which others import by name: all of them are to be here before it is exchanged.
address_of = contractions.address
assert all(one.address is address_of for one in (joined, launches, matmul))


class Arrays:
    """Arrays of which somebody asked where they lie; they stay, so that nothing else comes to lie there."""

    def __init__(self) -> None:
        self.regions: dict[int, tuple[int, Region]] = {}
        self.alive: list[Any] = []

    def note(self, array: Any) -> None:
        """Take in the whole array that one is a view of."""
        root = base = array
        while (base := getattr(base, "base", None)) is not None:  # also what as_strided puts in between
            root = base if isinstance(base, np.ndarray) else root
        begin: int = root.__array_interface__["data"][0]
        nbytes = root.nbytes
        if begin not in self.regions or self.regions[begin][0] < nbytes:
            region = Region.of_bytes(f"an array of {root.shape}, {root.dtype}", nbytes)
            region.source = np.ndarray(nbytes, np.uint8, root, order="A") if root.flags.forc else None
            self.regions[begin] = nbytes, region
            self.alive.append(root)

    def place(self, address: int) -> Pointer:
        """Return a place in an array; one that is in none may not be touched."""
        for begin, (nbytes, region) in self.regions.items():
            if begin <= address < begin + nbytes:
                return Pointer(region, address - begin)
        return Pointer(None, address)


@contextmanager
def checked_calls() -> Iterator[list[Checked]]:
    """Run every call of such a kernel here before it runs there; raises BoundsError at a call that is out of bounds."""
    arrays, found, modules = Arrays(), list[Checked](), dict[str, Module]()
    plain = Code.call  # a slot of every piece of code

    def call_of(code: Code) -> Callable[[bytes], None]:
        run = plain.__get__(code, Code)
        if code is driver():
            return run  # type: ignore[no-any-return]

        def call(told: bytes) -> None:
            found.append(_check(code.text, told, arrays, modules))
            run(told)

        return call

    def address(array: Any) -> int:
        arrays.note(array)
        return address_of(array)

    def one_by_one(code: Code, groups: Sequence[Sequence[bytes]]) -> None:
        for argument in [argument for group in groups for argument in group]:
            code.call(argument)

    def begin(array: Any) -> int:
        arrays.note(array)
        return begin_of(array)

    def run_at(self: Launches, words: Sequence[int], packed: Any = None) -> None:
        made, sheet = self.made(settings().threads or 1)
        room, laid_out = [np.empty(one.nbytes, np.uint8) for one in (sheet.scratch, sheet.packed)]
        for array in (*sheet.tables, room, laid_out):
            arrays.note(array)
        begins = dict(enumerate(words)) | {native.SCRATCH: address_of(room), PACKED: address_of(laid_out)}
        for launch in (*sheet.packing, *made):
            words = np.array(launch.words)
            for at, operand, more in launch.fillings:
                words[at] = begins[operand] + more
            for told in words.reshape(-1, launch.size):
                launch.code.call(told.tobytes())

    instead = {address_of: address, begin_of: begin, native.run_calls: one_by_one}
    with pytest.MonkeyPatch.context() as patch:
        for module in [module for name, module in sys.modules.items() if name.startswith("xtensor.")]:
            for name, one in list(vars(module).items()):
                if type(one) is FunctionType and one in instead:
                    patch.setattr(module, name, instead[one])
        patch.setattr(Launches, "run_at", run_at)
        patch.setattr(Code, "call", property(call_of, plain.__set__))
        yield found


def _check(text: str, told: bytes, arrays: Arrays, modules: dict[str, Module]) -> Checked:
    """Run a call, both ways that conditions on elements may go."""
    module = modules.get(text) or modules.setdefault(text, Module(text))
    slots = Region.of_bytes("the words it is told", len(told))
    slots.writeable = False
    slots.words = {8 * at: word for at, (word,) in enumerate(struct.iter_unpack("=q", told))}
    try:
        for way in (True, False):
            machine = Machine(module, way=way, most=MOST, place=arrays.place)
            machine.call("kernel", [Pointer(slots, 0)])
            if not machine.asked:
                break
    except TooLongError:
        return Checked(long=1)
    return Checked(run=1)

"""Instructions made into Python functions of a frame and the lanes that run.

Such a function returns None to go on, a counter to jump to, or -1 when it has set the counters of its lanes itself.
The files beside this one say what each opcode does; here is what they share: reading and writing operands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from .text import DTYPES, Address, Function, Instruction, Negated, Number, Register, Special, Symbol, bits_of

Run = Callable[[Any, Any], Any]
OPCODES: dict[str, Callable[[Context], Run]] = {}


class Context:
    """One instruction and where it stands."""

    def __init__(self, module: Any, function: Function, counter: int) -> None:
        self.module, self.function, self.counter = module, function, counter
        self.instruction: Instruction = function.code[counter]
        self.parts, self.operands = self.instruction.parts, self.instruction.operands

    @property
    def dtype(self) -> np.dtype:
        """The type that the opcode ends with."""
        return DTYPES[self.parts[-1]]

    def unknown(self, why: str = "") -> NotImplementedError:
        """Return the error for what is not interpreted."""
        reason = f" ({why})" if why else ""
        return NotImplementedError(
            f"opcode {'.'.join(self.parts)}{reason}: {self.function.name}, {self.instruction.where()}"
        )

    def allow(self, modifiers: Iterable[str], last: int = 1) -> set[str]:
        """Return the modifiers between the opcode and its last parts, all of which must be known ones."""
        found = set(self.parts[1 : len(self.parts) - last])
        if found - set(modifiers):
            raise self.unknown("modifier")
        return found


def opcode(*names: str) -> Callable[[Callable[[Context], Run]], Callable[[Context], Run]]:
    """Enter the maker of an opcode's functions."""

    def enter(make: Callable[[Context], Run]) -> Callable[[Context], Run]:
        for name in names:
            OPCODES[name] = make
        return make

    return enter


def decoded(module: Any, function: Function, counter: int) -> Run:
    """Return the function of one instruction."""
    context = Context(module, function, counter)
    make = OPCODES.get(context.parts[0])
    if make is None:
        raise context.unknown()
    try:
        run = make(context)
    except KeyError as error:
        raise context.unknown(str(error)) from error
    guard = context.instruction.guard
    return guarded(context, run, guard) if guard and context.parts[0] != "bra" else run


def guarded(context: Context, run: Run, guard: tuple[Register, bool]) -> Run:
    """Let only the lanes run whose predicate says so."""
    register, negated = guard
    following = context.counter + 1

    def run_guarded(frame: Any, selection: Any) -> Any:
        wanted = frame.register(register.slot) if selection is None else frame.register(register.slot)[selection]
        wanted = ~wanted if negated else wanted
        if wanted.all():
            return run(frame, selection)
        lanes = frame.selected(selection)
        found = run(frame, lanes[wanted]) if wanted.any() else None
        if found is not None:  # these have gone elsewhere
            if found >= 0:
                frame.set_counters(lanes[wanted], found)
            frame.set_counters(lanes[~wanted], following)
            return -1
        return None

    for name in ("together", "barrier"):
        if hasattr(run, name):
            setattr(run_guarded, name, getattr(run, name))
    return run_guarded


# Operands


def constant(number: Number, dtype: np.dtype) -> np.ndarray:
    """Return a literal as one number of a type."""
    if number.float_bytes and number.float_bytes != dtype.itemsize:
        if dtype.kind != "f":
            raise KeyError(f"literal of {number.float_bytes} bytes as {dtype}")
        bits = np.array([number.value], f"u{number.float_bytes}")
        return bits.view(f"f{number.float_bytes}").astype(dtype)
    if dtype.kind == "f" and not number.float_bytes:
        raise KeyError("integer literal as a float")
    if dtype.kind == "b":
        return np.array([number.value != 0])
    return np.array([number.value % 2 ** (8 * dtype.itemsize)], np.uint64).astype(bits_of(dtype)).view(dtype)


def reader(context: Context, operand: Any, dtype: np.dtype) -> Run:
    """Return the function that reads an operand as numbers of a type; registers may be wider."""
    if isinstance(operand, Register):
        return _register_reader(context, operand, dtype)
    if isinstance(operand, Negated):
        inner = reader(context, operand.register, dtype)
        return lambda frame, selection: ~inner(frame, selection)
    if isinstance(operand, Number):
        value = constant(operand, dtype)
        return lambda frame, selection: value
    if isinstance(operand, Special):
        name = operand.name
        return lambda frame, selection: frame.special(name)[slice(None) if selection is None else selection].astype(
            dtype
        )
    if isinstance(operand, Symbol):
        return symbol_reader(context, operand, dtype)
    raise context.unknown("operand")


def symbol_reader(context: Context, operand: Symbol, dtype: np.dtype) -> Run:
    """Return the function that reads a variable's address in its own space."""
    address = np.array([context.module.address(context.function, operand.name) + operand.offset], np.uint64)
    found = context.function.variables.get(operand.name)
    if found is not None and found.space == "local":
        return lambda frame, selection: (address + np.uint64(frame.local)).astype(dtype)
    return lambda frame, selection: address.astype(dtype)


def _register_reader(context: Context, operand: Register, dtype: np.dtype) -> Run:
    slot, bits = operand
    if dtype.itemsize > bits.itemsize or (dtype.kind == "b") != (bits.kind == "b"):
        raise context.unknown(f"{bits} register as {dtype}")
    narrow = bits_of(dtype)
    same = narrow == bits

    def read(frame: Any, selection: Any) -> np.ndarray:
        values = frame.registers[slot]
        if values is None:
            values = frame.register(slot)
        if selection is not None:
            values = values[selection]
        return values.view(dtype) if same else values.astype(narrow).view(dtype)

    return read


_EVERY = slice(None)


def writer(context: Context, operand: Any, dtype: np.dtype) -> Callable[[Any, Any, np.ndarray], None]:
    """Return the function that writes numbers of a type to a register; a wider one gets them extended by their sign."""
    if operand is None:
        return lambda frame, selection, values: None
    if not isinstance(operand, Register):
        raise context.unknown("result")
    slot, bits = operand
    if dtype.itemsize > bits.itemsize or (dtype.kind == "b") != (bits.kind == "b"):
        raise context.unknown(f"{dtype} to {bits} register")

    def write(frame: Any, selection: Any, values: np.ndarray) -> None:
        if values.dtype != dtype:
            raise TypeError(f"{context.instruction.where()}: made {values.dtype}")
        values = values.view(bits) if dtype.itemsize == bits.itemsize else _wider(values, bits)
        kept = frame.registers[slot]
        if kept is None:
            kept = frame.register(slot)
        kept[_EVERY if selection is None else selection] = values

    return write


def _wider(values: np.ndarray, bits: np.dtype) -> np.ndarray:
    """Extend integers by their sign, other things by zeros."""
    if values.dtype.kind == "i":
        return values.astype(f"i{bits.itemsize}").view(bits)
    return np.ascontiguousarray(values).view(bits_of(values.dtype)).astype(bits)


def simple(context: Context, compute: Callable[..., np.ndarray], inputs: list[np.dtype], output: np.dtype) -> Run:
    """Return the function of an instruction that computes one result of its operands, lane by lane."""
    reads = [reader(context, operand, dtype) for operand, dtype in zip(context.operands[1:], inputs, strict=True)]
    write = writer(context, context.operands[0], output)

    def run(frame: Any, selection: Any) -> None:
        write(frame, selection, compute(*[read(frame, selection) for read in reads]))

    def of_two(frame: Any, selection: Any) -> None:
        write(frame, selection, compute(first(frame, selection), second(frame, selection)))

    def of_three(frame: Any, selection: Any) -> None:
        write(frame, selection, compute(first(frame, selection), second(frame, selection), third(frame, selection)))

    first, second, third = [*reads, run, run, run][:3]  # the usual numbers, which take less time than any
    return {2: of_two, 3: of_three}.get(len(reads), run)


def address_reader(context: Context, operand: Any, base_dtype: np.dtype = DTYPES["u64"]) -> Run:
    """Return the function that computes the addresses of `[base+offset]`, as 64-bit numbers for each lane."""
    if not isinstance(operand, Address):
        raise context.unknown("address")
    base = operand.base
    if isinstance(base, Register):
        base_dtype = bits_of(base.bits)
    read = reader(context, base, base_dtype)
    offset = np.array([operand.offset % 2**64], np.uint64)
    wrap = np.uint64(2 ** (8 * base_dtype.itemsize) - 1)

    def addresses(frame: Any, selection: Any) -> np.ndarray:
        found = (read(frame, selection).astype(np.uint64) + offset) & wrap
        shape = frame.threads(selection).shape
        return found if found.shape == shape else np.broadcast_to(found, shape)

    return addresses

"""Runs the functions of a PTX module: one lane of every NumPy vector for each thread of a batch of blocks.

Each lane has a program counter; the lanes that stand at the lowest one run, until a branch divides them, or they
reach others, or they must wait. Lanes wait at barriers and at instructions of a whole warp until nobody else can run;
those whose partners have all come go on. If there are none, the kernel hangs: DeadlockError.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import decode
from .faults import DeadlockError, KernelError, TooLongError
from .memory import GARBAGE, Global, PerOwner, Shared, Who
from .text import Function, Instruction, Variable, aligned, parse

LANES = 1 << 13  # of a batch of blocks, if a block has no more
WAITING, DONE = 1 << 30, 1 << 31  # program counters of lanes that do not run
MOST_STEPS = 5_000_000
Selection = np.ndarray | None  # the lanes that run, None for all

AXES = ("x", "y", "z")


class Batch:
    """Some blocks of a launch: who their threads are, and the memories that they have in common."""

    def __init__(
        self, module: Module, grid: tuple[int, ...], block: tuple[int, ...], blocks: range, params: bytes, shared: int
    ) -> None:
        self.module, self.grid, self.block = module, grid, block
        per_block = int(np.prod(block))
        self.count = len(blocks) * per_block
        self.per_block = per_block
        self.owner = np.repeat(np.arange(len(blocks)), per_block)  # the block's place in the batch
        self.block_number = np.repeat(np.arange(blocks.start, blocks.stop), per_block)
        self.thread = np.tile(np.arange(per_block), len(blocks))
        self.warps = -(-per_block // 32)
        self.warp = self.owner * self.warps + self.thread // 32  # unique in the batch
        self.alive = np.ones(self.count, bool)
        self.barriers = np.zeros(self.count, np.int64)  # that the thread has passed
        self.warp_barriers = np.zeros(self.count, np.int64)
        self.memory = module.memory
        self.shared = Shared(len(blocks), shared)
        self.local = PerOwner("local", self.count, module.local_bytes)
        self.params = np.frombuffer(params, np.uint8)
        self.steps = 0
        self.where: Instruction | None = None  # the instruction that runs

    def who(self, threads: np.ndarray) -> Who:
        """Return some threads as those of an access to global memory."""
        numbers = self.block_number[threads] * self.per_block + self.thread[threads]
        return Who(numbers, self.block_number[threads], self.barriers[threads], self.where)

    def special(self, name: str, lanes: np.ndarray) -> np.ndarray:
        """Return a special register of some lanes."""
        stem, _, axis = name.lstrip("%").partition(".")
        if stem in ("tid", "ntid", "ctaid", "nctaid"):
            sizes, linear = (
                (self.block, self.thread) if "tid" in stem and "cta" not in stem else (self.grid, self.block_number)
            )
            number = AXES.index(axis)
            if stem.startswith("n"):
                return np.full(lanes.size, sizes[number], np.uint32)
            return (linear[lanes] // int(np.prod(sizes[:number])) % sizes[number]).astype(np.uint32)
        lane = self.thread[lanes] % 32
        return _of_lane(stem, lane, self.thread[lanes] // 32, self.steps)


def _of_lane(stem: str, lane: np.ndarray, warp: np.ndarray, steps: int) -> np.ndarray:
    """Return the special registers that say where in its warp a thread is, and the clock."""
    bit = np.uint64(1) << lane.astype(np.uint64)
    full = np.uint64(0xFFFFFFFF)
    known: dict[str, Callable[[], np.ndarray]] = {
        "laneid": lambda: lane,
        "warpid": lambda: warp,
        "lanemask_eq": lambda: bit,
        "lanemask_lt": lambda: bit - np.uint64(1),
        "lanemask_le": lambda: bit * np.uint64(2) - np.uint64(1),
        "lanemask_gt": lambda: full & ~(bit * np.uint64(2) - np.uint64(1)),
        "lanemask_ge": lambda: full & ~(bit - np.uint64(1)),
        "WARP_SZ": lambda: np.full(lane.size, 32),
        "clock": lambda: np.full(lane.size, steps),
        "clock64": lambda: np.full(lane.size, steps),
    }
    if stem not in known:
        raise NotImplementedError(f"special register %{stem}")
    return known[stem]().astype(np.uint64 if stem == "clock64" else np.uint32)


class Frame:
    """One call of a function by some threads of a batch: registers, parameters and program counters."""

    def __init__(
        self, batch: Batch, function: Function, code: list[Callable[..., Any]], lanes: np.ndarray, local: int
    ) -> None:
        self.batch, self.function, self.code, self.lanes, self.local = batch, function, code, lanes, local
        self.count = lanes.size
        self.registers: list[np.ndarray | None] = [None] * len(function.registers)
        self.params: dict[str, np.ndarray] = {}  # of each variable in .param space a row of bytes for each lane
        self.counters = np.zeros(self.count, np.int64)
        self.waits_at = np.zeros(self.count, np.int64)
        self.carry = np.zeros(self.count, bool)
        self.specials: dict[str, np.ndarray] = {}

    # What instructions use

    def register(self, slot: int) -> np.ndarray:
        """Return the lanes of a register, which hold garbage before they are written."""
        found = self.registers[slot]
        if found is None:
            bits = self.function.registers[slot]
            found = (
                np.frombuffer(bytes([GARBAGE]) * (bits.itemsize * self.count), np.uint8)
                .view(f"u{bits.itemsize}")
                .copy()
            )
            found = found.astype(bool) if bits.kind == "b" else found
            self.registers[slot] = found
        return found

    def special(self, name: str) -> np.ndarray:
        """Return the lanes of a special register."""
        if "clock" in name:
            return self.batch.special(name, self.lanes)
        if name not in self.specials:
            self.specials[name] = self.batch.special(name, self.lanes)
        return self.specials[name]

    def threads(self, selection: Selection) -> np.ndarray:
        """Return the numbers in the batch of the lanes that run."""
        return self.lanes if selection is None else self.lanes[selection]

    def selected(self, selection: Selection) -> np.ndarray:
        """Return the numbers in the frame of the lanes that run."""
        return np.arange(self.count) if selection is None else selection

    def param(self, name: str) -> np.ndarray:
        """Return the bytes of a variable in .param space, a row for each lane."""
        if name not in self.params:
            self.params[name] = np.full((self.count, self.function.variables[name].size), GARBAGE, np.uint8)
        return self.params[name]

    # The loop

    def run(self) -> None:
        """Run all lanes to their end."""
        while True:
            counter = int(self.counters.min())
            if counter >= WAITING:
                if (self.counters == DONE).all():
                    return
                self._go_on()
                continue
            here = self.counters == counter
            others = self.counters[~here]
            limit = int(others.min()) if others.size else DONE
            self._run_from(counter, min(limit, len(self.code)), None if not others.size else np.flatnonzero(here))

    def _run_from(self, counter: int, limit: int, selection: Selection) -> None:
        """Run lanes that stand together until they divide, wait, end, or reach others."""
        batch, code, instructions = self.batch, self.code, self.function.code
        while counter < limit:
            batch.steps += 1
            batch.where = instructions[counter]
            try:
                following = code[counter](self, selection)
            except KernelError as fault:
                raise self._located(fault, counter, selection) from None
            if following is None:
                counter += 1
            elif following < 0:  # the counters are set
                break
            else:
                counter = following
                if batch.steps > batch.module.most_steps:
                    raise TooLongError(f"{self.function.name}: more than {batch.module.most_steps} steps")
        else:
            if counter >= len(code):
                counter = DONE
            self.set_counters(selection, counter)

    def set_counters(self, selection: Selection, counter: int) -> None:
        """Send lanes to an instruction."""
        self.counters[slice(None) if selection is None else selection] = counter

    def wait(self, selection: Selection, counter: int) -> int:
        """Make lanes wait at an instruction."""
        chosen = slice(None) if selection is None else selection
        self.counters[chosen], self.waits_at[chosen] = WAITING, counter
        return -1

    def end(self, selection: Selection) -> int:
        """End lanes."""
        self.set_counters(selection, DONE)
        if self.function.entry:
            self.batch.alive[self.threads(selection)] = False
        return -1

    def _go_on(self) -> None:
        """Nobody can run: let go on those who waited for somebody that has come."""
        waiting = np.flatnonzero(self.counters == WAITING)
        counters = np.unique(self.waits_at[waiting])
        moved = self._pass_barriers(waiting)
        for counter in [] if moved else counters:
            lanes = waiting[self.waits_at[waiting] == counter]
            together = getattr(self.code[counter], "together", None)
            try:
                ready = together(self, lanes) if together else lanes[:0]
            except KernelError as fault:
                raise self._located(fault, int(counter), lanes) from None
            self.counters[ready] = counter + 1
            moved = moved or ready.size > 0
        if not moved:
            places = "; ".join(self.function.code[counter].where() for counter in counters)
            raise DeadlockError(f"{self.function.name}: {waiting.size} threads wait for others at {places}")

    def _pass_barriers(self, waiting: np.ndarray) -> bool:
        """Let blocks go on all of whose threads stand at a barrier of the same number."""
        batch, moved = self.batch, False
        numbers = np.array([getattr(self.code[counter], "barrier", -1) for counter in self.waits_at[waiting]])
        alive = np.bincount(batch.owner[batch.alive], minlength=batch.owner[-1] + 1)
        for number in np.unique(numbers[numbers >= 0]):
            lanes = waiting[numbers == number]
            owners = batch.owner[self.lanes[lanes]]
            come = np.bincount(owners, minlength=alive.size)
            ready = lanes[(come == alive)[owners]]
            self.counters[ready] = self.waits_at[ready] + 1
            batch.barriers[self.lanes[ready]] += 1
            moved = moved or ready.size > 0
        return moved

    def _located(self, fault: KernelError, counter: int, selection: Selection) -> KernelError:
        """Add to a fault where it happened, unless a called function has done so."""
        if fault.lane is None:
            return fault
        number = int(self.threads(selection)[fault.lane])
        where = self.function.code[counter].where()
        batch = self.batch
        names = [
            tuple(int(batch.special(f"%{stem}.{axis}", np.array([number]))[0]) for axis in AXES)
            for stem in ("ctaid", "tid")
        ]
        text = f"{self.function.name}: {fault} (block {names[0]}, thread {names[1]}, {where})"
        return type(fault)(text)


class Module:
    """A module of PTX text, whose kernels can be run.

    `most_steps` bounds the instructions of one batch of blocks.
    """

    def __init__(self, ptx: str | bytes, most_steps: int = MOST_STEPS) -> None:
        text = ptx.decode() if isinstance(ptx, bytes) else ptx
        program = parse(text.rstrip("\0") + "\n")
        self.functions, self.variables = program.functions, program.variables
        self.most_steps = most_steps
        self.local_bytes = sum(aligned(function.local_bytes, 16) for function in self.functions.values())
        self.tables = {
            name: np.frombuffer(found.data or bytes(found.size), np.uint8).copy()
            for name, found in self.variables.items()
            if found.space in ("global", "const")
        }
        self.codes: dict[str, list[Callable[..., Any]]] = {}
        self.memory = Global()

    def code(self, name: str) -> list[Callable[..., Any]]:
        """Return the instructions of a function as Python functions, each of which is made when it first runs."""
        if name not in self.codes:
            if name not in self.functions:
                raise NotImplementedError(f"call of {name}, which has no body in this module")
            function = self.functions[name]
            code: list[Callable[..., Any]] = []
            code.extend(self._later(code, function, counter) for counter in range(len(function.code)))
            self.codes[name] = code
        return self.codes[name]

    def _later(self, code: list[Callable[..., Any]], function: Function, counter: int) -> Callable[..., Any]:
        """Return what makes an instruction's function, takes its own place by it, and runs it."""

        def run(frame: Frame, selection: Selection) -> Any:
            code[counter] = decode.decoded(self, function, counter)
            return code[counter](frame, selection)

        return run

    def address(self, function: Function, name: str) -> int:
        """Return the address of a variable in its own space."""
        if name in function.variables:
            return function.variables[name].offset
        for param in function.params:
            if param.name == name:
                return param.offset
        if name not in self.variables:
            raise NotImplementedError(f"address of {name}")
        found = self.variables[name]
        if found.space == "shared":
            return found.offset if found.size else self._dynamic(function, found)
        return self.tables[name].ctypes.data

    def _dynamic(self, function: Function, found: Variable) -> int:
        """Return where the shared memory begins whose size the launch gives: behind a kernel's own."""
        if not function.entry:
            raise NotImplementedError(f"address of {found.name} in a device function")
        return aligned(function.shared_bytes, max(found.align, 16))

    def run(
        self,
        entry: str,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        arguments: Sequence[Any],
        shared_bytes: int = 0,
        memory: Sequence[np.ndarray | tuple[int, np.ndarray]] = (),
    ) -> int:
        """Launch a kernel and return the number of steps it took.

        Arguments come in the order of the parameters: Python numbers and NumPy scalars of any kind that the
        parameter's bytes can hold (addresses are integers), arrays (their address), or bytes (structs). `memory` are
        the arrays that it may touch, at their own addresses or at given ones.
        """
        function = self.functions[entry]
        grid, block = _three(grid), _three(block)
        _check_launch(function, grid, block)
        self.memory = Global()
        for name, table in self.tables.items():
            self.memory.add(table, name)
        for number, item in enumerate(memory):
            self.memory.add(item, f"buffer {number}")
        params = packed(function.params, arguments, entry)
        shared = aligned(function.shared_bytes, 16) + shared_bytes
        per_block, blocks, steps = int(np.prod(block)), int(np.prod(grid)), 0
        at_once = max(1, LANES // per_block)
        with np.errstate(all="ignore"):
            for first in range(0, blocks, at_once):
                batch = Batch(self, grid, block, range(first, min(first + at_once, blocks)), params, shared)
                Frame(batch, function, self.code(entry), np.arange(batch.count), 0).run()
                steps += batch.steps
            self.memory.check_races()
        return steps


def _three(sizes: int | Sequence[int]) -> tuple[int, int, int]:
    """Return the three sizes of a grid or block."""
    given = (sizes,) if isinstance(sizes, (int, np.integer)) else tuple(sizes)
    return (*(int(size) for size in given), 1, 1, 1)[:3]


def _check_launch(function: Function, grid: tuple[int, ...], block: tuple[int, ...]) -> None:
    """Raise ValueError for a grid or block that no GPU takes."""
    threads = int(np.prod(block))
    most = function.most_threads or 1024
    limits = zip((*grid, *block), (2**31 - 1, 65535, 65535, 1024, 1024, 64), strict=True)
    if threads > most or any(not 1 <= size <= limit for size, limit in limits):
        raise ValueError(
            f"{function.name}: grid {grid} of blocks {block}, of at most {most} threads, cannot be launched"
        )


def packed(params: list[Variable], arguments: Sequence[Any], entry: str) -> bytes:
    """Return the block of parameters that arguments make."""
    if len(params) != len(arguments):
        raise TypeError(f"{entry}: takes {len(params)} arguments, got {len(arguments)}")
    block = bytearray(params[-1].offset + params[-1].size if params else 0)
    for number, (param, argument) in enumerate(zip(params, arguments, strict=True)):
        if isinstance(argument, np.ndarray):
            argument = argument.ctypes.data
        if isinstance(argument, int):
            data = (argument % 2 ** (8 * param.size)).to_bytes(param.size, "little")
        else:
            data = bytes(argument) if isinstance(argument, (bytes, bytearray)) else np.asarray(argument).tobytes()
        if len(data) != param.size:
            raise TypeError(f"{entry}: argument {number} must have {param.size} bytes, got {len(data)}")
        block[param.offset : param.offset + param.size] = data
    return bytes(block)

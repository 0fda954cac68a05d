"""Branches, calls, barriers, what a warp does together, and atomic operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .decode import Context, Run, address_reader, opcode, reader, writer
from .faults import UndefinedError
from .integer import LOGICAL
from .movement import generic
from .text import DTYPES, SPACES, Negated, Number, Pair, aligned, bits_of

U32, PRED = DTYPES["u32"], DTYPES["pred"]


@opcode("bra")
def branch(context: Context) -> Run:
    """Go elsewhere, where the predicate says so."""
    (target,) = context.instruction.targets
    following = context.counter + 1
    if context.instruction.guard is None:
        return lambda frame, selection: target
    register, negated = context.instruction.guard
    read = reader(context, Negated(register) if negated else register, PRED)

    def run(frame: Any, selection: Any) -> int:
        taken = read(frame, selection)
        if taken.all():
            return target
        if not taken.any():
            return following
        lanes = frame.selected(selection)
        frame.set_counters(lanes[taken], target)
        frame.set_counters(lanes[~taken], following)
        return -1

    return run


@opcode("brx")
def branch_by_index(context: Context) -> Run:
    """Go to one of several places."""
    targets = np.array(context.instruction.targets)
    read = reader(context, context.operands[0], U32)

    def run(frame: Any, selection: Any) -> int:
        numbers = np.broadcast_to(read(frame, selection), frame.threads(selection).shape)
        if (numbers >= targets.size).any():
            raise UndefinedError(f"branch number {int(numbers.max())} of {targets.size}", int(numbers.argmax()))
        frame.counters[frame.selected(selection)] = targets[numbers]
        return -1

    return run


@opcode("ret", "exit")
def leave(context: Context) -> Run:
    """End the function."""
    if context.parts[0] == "exit" and not context.function.entry:
        raise context.unknown("in a device function")
    return lambda frame, selection: frame.end(selection)


@opcode("trap")
def trap(context: Context) -> Run:
    """Stop with an error."""

    def run(frame: Any, selection: Any) -> None:
        raise UndefinedError("trap", 0)

    return run


@opcode("call")
def call(context: Context) -> Run:
    """Run a function of the module with the lanes that are here."""
    from .machine import Frame

    returns, name, arguments = context.instruction.callee
    code = context.module.code(name)
    function = context.module.functions[name]
    local = aligned(context.function.local_bytes, 16)

    def run(frame: Any, selection: Any) -> None:
        inner = Frame(frame.batch, function, code, frame.threads(selection), frame.local + local)
        lanes = slice(None) if selection is None else selection
        for argument, param in zip(arguments, function.params, strict=True):
            inner.params[param.name] = frame.param(argument)[lanes].copy()
        for result in function.returns:
            inner.params[result.name] = np.full((inner.count, result.size), 0xA5, np.uint8)
        inner.run()
        for result, own in zip(returns, function.returns, strict=True):
            frame.param(result)[lanes] = inner.params[own.name]

    return run


# Waiting for others


def barrier_number(context: Context) -> int:
    """Return the number of a barrier of the whole block."""
    if len(context.operands) != 1 or not isinstance(context.operands[0], Number):
        raise context.unknown("only barriers of whole blocks")
    return context.operands[0].value


def waiting(context: Context, together: Callable[[Any, np.ndarray], np.ndarray] | None, barrier: int = -1) -> Run:
    """Return an instruction at which lanes wait; `together` runs those that can go on and returns them."""
    counter = context.counter

    def run(frame: Any, selection: Any) -> int:
        return frame.wait(selection, counter)

    run.together, run.barrier = together, barrier  # type: ignore[attr-defined]
    return run


@opcode("bar", "barrier")
def barrier(context: Context) -> Run:
    """bar.sync of a block, bar.warp.sync of a warp."""
    if "warp" in context.parts:
        return warp_barrier(context)
    context.allow(["sync", "cta", "aligned"], last=0)
    return waiting(context, None, barrier_number(context))


def warp_barrier(context: Context) -> Run:
    """Wait for the other threads of the warp; memory is in order afterwards."""
    members = reader(context, context.operands[0], U32)

    def together(frame: Any, lanes: np.ndarray) -> np.ndarray:
        ready = complete(frame, lanes, members(frame, lanes))
        frame.batch.warp_barriers[frame.lanes[ready]] += 1
        return ready

    return waiting(context, together)


@opcode("membar", "fence")
def fence(context: Context) -> Run:
    """Memory is in order here anyway."""
    return lambda frame, selection: None


def complete(frame: Any, lanes: np.ndarray, members: np.ndarray) -> np.ndarray:
    """Return the lanes all of whose partners are among `lanes`; partners that have ended are not waited for."""
    batch, threads = frame.batch, frame.lanes[lanes]
    members = np.broadcast_to(members, lanes.shape).astype(np.int64)
    own = batch.thread[threads] % 32
    outside = members >> own & 1 == 0
    if outside.any():
        raise UndefinedError("a thread is not among the members that it names", int(np.argmax(outside)))
    size = batch.owner[-1] * batch.warps + batch.warps
    come, alive = np.zeros(size, np.int64), np.zeros(size, np.int64)
    np.bitwise_or.at(come, batch.warp[threads], 1 << own)
    np.bitwise_or.at(alive, batch.warp[batch.alive], 1 << batch.thread[batch.alive] % 32)
    wanted = members & alive[batch.warp[threads]]
    return lanes[wanted & ~come[batch.warp[threads]] == 0]


def table_of(frame: Any, lanes: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return values by warp and place in it, and which of them there are."""
    batch, threads = frame.batch, frame.lanes[lanes]
    size = (batch.owner[-1] + 1) * batch.warps
    places = batch.warp[threads], batch.thread[threads] % 32
    table, present = np.zeros((size, 32), values.dtype), np.zeros((size, 32), bool)
    table[places], present[places] = values, True
    return table, present


def shuffle_source(mode: str, own: np.ndarray, by: np.ndarray, control: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return from which place of the warp each lane takes its value, and whether it lies in its segment."""
    by, own = by & 31, own.astype(np.int64)
    clamp, segment = control & 31, control >> 8 & 31
    least = own & segment
    most = least | clamp & ~segment & 31
    if mode == "up":
        source = own - by
        inside = source >= most
    elif mode == "down":
        source = own + by
        inside = source <= most
    else:
        source = own ^ by if mode == "bfly" else least | by & ~segment & 31
        inside = source <= most
    return np.where(inside, source, own), inside


@opcode("shfl")
def shuffle(context: Context) -> Run:
    """Take a value from another thread of the warp."""
    context.allow(["sync", "up", "down", "bfly", "idx"])
    mode, result = context.parts[2], context.operands[0]
    first, second = result if isinstance(result, Pair) else (result, None)
    value, by, control, members = (reader(context, operand, U32) for operand in context.operands[1:])
    write, write_inside = writer(context, first, U32), writer(context, second, PRED)

    def together(frame: Any, lanes: np.ndarray) -> np.ndarray:
        ready = complete(frame, lanes, members(frame, lanes))
        if not ready.size:
            return ready
        own = frame.batch.thread[frame.lanes[ready]] % 32
        by_, control_ = by(frame, ready).astype(np.int64), control(frame, ready).astype(np.int64)
        source, inside = shuffle_source(mode, own, by_, control_)
        table, present = table_of(frame, ready, np.broadcast_to(value(frame, ready), ready.shape))
        places = frame.batch.warp[frame.lanes[ready]], source
        if not present[places].all():
            lane = int(np.flatnonzero(lanes == ready[np.argmin(present[places])])[0])
            raise UndefinedError(
                f"value of thread {int(places[1][np.argmin(present[places])])} of the warp, which is not here", lane
            )
        write(frame, ready, table[places])
        write_inside(frame, ready, inside)
        return ready

    return waiting(context, together)


def ballots(frame: Any, lanes: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Return for each lane the truth of its warp's lanes as bits."""
    table, present = table_of(frame, lanes, np.broadcast_to(truth, lanes.shape))
    numbers = ((table & present).astype(np.int64) << np.arange(32)).sum(axis=1)
    return numbers[frame.batch.warp[frame.lanes[lanes]]]


@opcode("vote")
def vote(context: Context) -> Run:
    """Whether a predicate holds in all or any threads of a warp, or in which."""
    mode = context.parts[2]
    if context.parts[1] != "sync" or mode not in ("all", "any", "ballot", "uni"):
        raise context.unknown()
    truth, members = reader(context, context.operands[1], PRED), reader(context, context.operands[2], U32)
    write = writer(context, context.operands[0], U32 if mode == "ballot" else PRED)

    def together(frame: Any, lanes: np.ndarray) -> np.ndarray:
        ready = complete(frame, lanes, members(frame, lanes))
        yes = ballots(frame, ready, truth(frame, ready))
        there = ballots(frame, ready, np.array([True]))
        found = {"ballot": yes, "all": yes == there, "any": yes != 0, "uni": (yes == there) | (yes == 0)}[mode]
        write(frame, ready, found.astype(U32) if mode == "ballot" else found)
        return ready

    return waiting(context, together)


@opcode("activemask")
def active(context: Context) -> Run:
    """The threads of the warp that are here."""
    write = writer(context, context.operands[0], U32)

    def run(frame: Any, selection: Any) -> None:
        write(frame, selection, ballots(frame, frame.selected(selection), np.array([True])).astype(U32))

    return run


REDUCTIONS: dict[str, Callable[..., np.ndarray]] = {"add": np.add, "min": np.minimum, "max": np.maximum, **LOGICAL}


@opcode("redux")
def reduce_warp(context: Context) -> Run:
    """The sum, minimum, ... of an integer over the members."""
    operation, dtype = REDUCTIONS[context.parts[2]], context.dtype
    value, members = reader(context, context.operands[1], dtype), reader(context, context.operands[2], U32)
    write = writer(context, context.operands[0], dtype)

    def together(frame: Any, lanes: np.ndarray) -> np.ndarray:
        ready = complete(frame, lanes, members(frame, lanes))
        if ready.size:
            table, present = table_of(frame, ready, np.broadcast_to(value(frame, ready), ready.shape))
            totals = [
                operation.reduce(row[there], dtype=dtype) if there.any() else 0
                for row, there in zip(table, present, strict=True)
            ]
            write(frame, ready, np.array(totals, dtype)[frame.batch.warp[frame.lanes[ready]]])
        return ready

    return waiting(context, together)


# Atomic operations

ATOMIC: dict[str, Callable[..., Any]] = {
    **REDUCTIONS,
    "exch": lambda old, new: new,
    "inc": lambda old, new: np.where(old >= new, 0, old + 1),
    "dec": lambda old, new: np.where((old == 0) | (old > new), new, old - 1),
    "cas": lambda old, wanted, new: np.where(old == wanted, new, old),
}


@opcode("atom", "red")
def atomic(context: Context) -> Run:
    """Change memory in one step, lane after lane in their order."""
    operation = ATOMIC[next(part for part in context.parts[1:] if part in ATOMIC)]
    dtype = context.dtype
    space = next((part for part in context.parts if part in SPACES), "generic")
    result, *rest = context.operands if context.parts[0] == "atom" else [None, *context.operands]
    addresses = address_reader(context, rest[0])
    reads = [reader(context, operand, dtype) for operand in rest[1:]]
    write = writer(context, result, dtype)

    def run(frame: Any, selection: Any) -> None:
        lanes, places = frame.selected(selection), addresses(frame, selection)
        values = [np.broadcast_to(read(frame, selection), lanes.shape) for read in reads]
        olds = np.empty(lanes.shape, dtype)
        for number in range(lanes.size):
            one = lanes[number : number + 1]
            olds[number] = _atom(
                frame,
                one,
                space,
                places[number : number + 1],
                operation,
                [value[number : number + 1] for value in values],
            )
        write(frame, selection, olds)

    return run


def _atom(frame: Any, lane: np.ndarray, space: str, place: np.ndarray, operation: Any, values: list[np.ndarray]) -> Any:
    """Do one lane's operation and return what was there."""
    dtype = values[0].dtype
    if space == "generic":
        ((space, _, place),) = generic(frame, lane, place)
    if space == "shared":  # no race: that is what it is for
        shared, thread = frame.batch.shared, frame.threads(lane)
        offset = int(shared.offsets(frame.batch.owner[thread], place, dtype.itemsize)[0])
        cell = shared.data[offset : offset + dtype.itemsize].view(dtype)
        old = cell.copy()
        cell[:] = np.asarray(operation(old, *values)).astype(dtype)
        return old[0]
    memory = frame.batch.memory
    old = memory.load(place, bits_of(dtype), 1)[:, 0].view(dtype)
    new = np.asarray(operation(old, *values)).astype(dtype)
    memory.store(place, new.view(bits_of(dtype))[:, None])
    return old[0]

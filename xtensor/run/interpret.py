"""The blocked interpreter: a program run by NumPy's own functions, one block that fits the cache at a time.

Every step is the call that would be made without recording, with `out=` in a block of scratch memory, so elementwise
results have the same bits. It knows every dtype and needs no compiler: it is the fallback for generated code, and the
oracle of the tests.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ..base.dtypes import DType
from ..base.layout import Layout, Shape, dense_like, keep_order
from ..base.threads import count, run
from ..devices.cpu import CPU
from ..plan.program import Program
from ..plan.program import program as the_program
from ..storage.storage import Native

# Bytes of one operand in a block: a few of them fit the second-level cache together. Several threads wait for the
# interpreter's lock between steps, and take less time with longer blocks: gelu of a million numbers 1.5 ms instead
# of 2.
BLOCK_BYTES, LONG_BLOCK_BYTES = 128 * 1024, 512 * 1024

# Bytes of all operands from which a second thread gains more than waking it costs.
PARALLEL_BYTES = 4 << 20

Key = tuple[Any, ...]


class Move(NamedTuple):
    """One step of the interpreter: `registers[to] = function(*registers[args])`.

    fills: whether the function can write into given memory, as ufuncs can.
    """

    function: Any
    args: tuple[int, ...]
    to: int
    fills: bool
    params: dict[str, Any]


class Recipe(NamedTuple):
    """A program's moves. Registers: inputs, scalars, then outputs, then scratch blocks of these dtypes."""

    moves: tuple[Move, ...]
    scratch: tuple[DType, ...]


def evaluate(program: Program, arrays: Sequence[Native], scalars: Sequence[Any], outputs: Sequence[Native]) -> None:
    """Run a program's steps over arrays of one shape, into outputs of that shape."""
    recipe = recipe_of(program)
    inputs, outputs = _flat(arrays, outputs)
    shape = outputs[0].shape
    if 0 in shape:
        return
    widest = program.widest
    size = prod(shape)
    parts = count() if size * widest * len(arrays) > PARALLEL_BYTES else 1
    limit = max((LONG_BLOCK_BYTES if parts > 1 else BLOCK_BYTES) // widest, 1)
    if len(recipe.moves) == 1:  # no other step reads a block again
        limit = -(-size // parts)
    blocks = list(blocks_of(shape, limit))
    parts = min(parts, len(blocks))
    bounds = [len(blocks) * part // parts for part in range(parts + 1)]

    largest = max(prod(outputs[0][key].shape) for key in blocks)

    def task(part: int) -> Any:
        mine = blocks[bounds[part] : bounds[part + 1]]
        memory = [np.empty(largest, dtype) for dtype in recipe.scratch]
        return lambda: CPU.call(_run_blocks, recipe, inputs, scalars, outputs, mine, memory)

    run([task(part) for part in range(parts)])  # all scratch memory is allocated before anything is written


def evaluate_all(
    program: Program, shape: Shape, arrays: Sequence[Native], scalars: Sequence[Any], outputs: Sequence[Native]
) -> dict[int, Native]:
    """Run a program's steps and return, by number, the values its reductions need, each over the whole shape."""
    wanted = {reduction.arg for reduction in program.reductions}
    found = {number: array for number, array in enumerate(arrays) if number in wanted}
    found |= dict(zip(program.outputs, outputs, strict=True))
    more = sorted(wanted - set(found))
    if more:
        layouts = _strides_of(program, shape, arrays)
        extra = [_laid_out(shape, program.dtypes[number], layouts[number]) for number in more]
        found |= dict(zip(more, extra, strict=True))
        whole = plain(program, (*program.outputs, *more))
        evaluate(whole, arrays, scalars, [*outputs, *extra])
    elif program.outputs:
        evaluate(plain(program, program.outputs), arrays, scalars, outputs)
    return found


def _laid_out(shape: Shape, dtype: DType, strides: Shape) -> Native:
    """Return packed memory whose axes are in the order of the given strides."""
    order = sorted(range(len(shape)), key=lambda axis: (-strides[axis], axis))
    memory: Native = np.empty([shape[axis] for axis in order], dtype)
    return memory.transpose(np.argsort(order)) if order else memory


def _strides_of(program: Program, shape: Shape, arrays: Sequence[Native]) -> list[Shape]:
    """Return the strides that NumPy's results of a program's steps would have: a sum depends on the order of axes."""
    found = []
    for array in arrays:
        own = tuple([0 if n == 1 else s for n, s in zip(array.shape, array.strides, strict=True)])
        found.append((0,) * (len(shape) - len(own)) + own)
    found += [(0,) * len(shape)] * len(program.scalars)
    for step in program.steps:
        operands = [found[arg] for arg in step.args]
        if step.op.name == "astype":
            found.append(dense_like(Layout(shape, operands[0]), step.dtype.itemsize).strides)
        else:
            found.append(keep_order(shape, step.dtype.itemsize, operands))
    return found


def plain(program: Program, outputs: tuple[int, ...]) -> Program:
    """Return a program's steps with other outputs and no reductions."""
    return the_program(program.inputs, program.scalars, program.known, program.steps, outputs, ())


def _run_blocks(
    recipe: Recipe,
    inputs: Sequence[Native],
    scalars: Sequence[Any],
    outputs: Sequence[Native],
    blocks: Sequence[Key],
    memory: Sequence[Native],
) -> None:
    """Run the moves over some blocks, in scratch memory of their own."""
    for key in blocks:
        written = [output[key] for output in outputs]
        shape = written[0].shape
        size = prod(shape)
        registers = [array[key] for array in inputs]
        registers += [*scalars, *written, *(block[:size].reshape(shape) for block in memory)]
        for function, args, to, fills, params in recipe.moves:
            operands = [registers[arg] for arg in args]
            if fills:
                function(*operands, out=registers[to], **params)
            else:
                registers[to][...] = function(*operands, **params)


def blocks_of(shape: Sequence[int], limit: int) -> Iterator[Key]:
    """Yield keys that cut an array into blocks of at most `limit` elements, in C order."""
    inner = prod(shape[1:])
    if not shape:
        yield (...,)
    elif inner > limit:
        for index in range(shape[0]):
            yield from ((index, *rest) for rest in blocks_of(shape[1:], limit))
    else:
        step = max(limit // max(inner, 1), 1)
        for start in range(0, shape[0], step):
            yield (slice(start, start + step),)


def _flat(arrays: Sequence[Native], outputs: Sequence[Native]) -> tuple[list[Native], list[Native]]:
    """Return operands of one shape, flattened if all are packed, else with axes in the order of the first output's."""
    shape = outputs[0].shape
    every = [*arrays, *outputs]
    if all(array.shape == shape and array.flags.c_contiguous for array in every):
        every = [array.reshape(-1) for array in every]
    else:
        every = [array if array.shape == shape else np.broadcast_to(array, shape) for array in every]
        order = sorted(range(len(shape)), key=lambda axis: -abs(outputs[0].strides[axis]))
        every = [array.transpose(order) for array in every]
    return every[: len(arrays)], every[len(arrays) :]


# ---- recipes


@lru_cache(maxsize=1024)
def recipe_of(program: Program) -> Recipe:
    """Return a program's moves, with as few scratch blocks as its values' lives allow."""
    first_step = len(program.inputs) + len(program.scalars)
    register = dict(enumerate(range(first_step)))
    for place, number in enumerate(program.outputs):
        register[number] = first_step + place
    scratch = _Scratch(first_step + len(program.outputs))
    same = _same(program)
    taken = [[same.get(arg, arg) for arg in step.args] for step in program.steps]
    last_use = {arg: place for place, args in enumerate(taken) for arg in args if first_step + place not in same}
    moves = []
    for place, step in enumerate(program.steps):
        number = first_step + place
        if number in same:
            continue
        if number not in register:
            register[number] = scratch.take(step.dtype)
        function = _cast if step.op.name == "astype" else step.op.kernel(CPU)
        fills = function is _cast or isinstance(function, np.ufunc)
        args = tuple(register[arg] for arg in taken[place])
        moves.append(Move(function, args, register[number], fills, dict(step.params)))
        for arg in set(taken[place]):
            if arg >= first_step and last_use[arg] == place:
                scratch.give_back(register[arg])
    return Recipe(tuple(moves), tuple(scratch.dtypes))


def _same(program: Program) -> dict[int, int]:
    """Return the values that are mere copies of others, by casts to the same dtype, and which; outputs are left out."""
    found: dict[int, int] = {}
    first_step = len(program.inputs) + len(program.scalars)
    for number, step in enumerate(program.steps, first_step):
        if step.op.name == "astype" and number not in program.outputs and program.dtypes[step.args[0]] == step.dtype:
            found[number] = found.get(step.args[0], step.args[0])
    return found


def _cast(native: Native, *, out: Native, dtype: DType) -> None:
    """Write elements into memory of another dtype."""
    np.copyto(out, native, casting="unsafe")


class _Scratch:
    """Scratch blocks, given out by dtype and taken back when a value is dead."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.dtypes: list[DType] = []
        self.free: dict[DType, list[int]] = {}

    def take(self, dtype: DType) -> int:
        free = self.free.get(dtype)
        if free:
            return free.pop()
        self.dtypes.append(dtype)
        return self.first + len(self.dtypes) - 1

    def give_back(self, register: int) -> None:
        if register >= self.first:
            self.free.setdefault(self.dtypes[register - self.first], []).append(register)

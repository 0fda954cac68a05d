"""The choice of engine, kernel by kernel, and what each is handed.

On the CPU, generated code where it exists or pays for its making; the interpreter where there is no compiler, a step
that generated code lacks, or too little work yet. On other devices, generated code, and the library's functions one
after the other where that cannot be had.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from math import prod
from operator import setitem
from typing import Any

from ..base.layout import Shape
from ..base.options import Settings
from ..codegen.cpu.compile import CompileError, host
from ..codegen.cpu.loop import check
from ..codegen.cpu.primitives import LacksError
from ..codegen.cuda.nvrtc import BuildError
from ..devices.cpu import CPU
from ..plan.costs import COMPILE_SECONDS, COMPILED_AGAIN, library_seconds
from ..plan.program import Kernel, Plan, Program
from ..storage.blob import TBlob
from . import columns, cuda_rows, interpret, rows
from . import cuda as cuda_run
from .launch import operand, run_map, run_packed, scalar_slots
from .reduce import run_reduction

# What a program's `notes` say: that it has run as generated code, or what generated code lacks for it, on the CPU and
# on other devices.
COMPILED, LACKING, LACKING_THERE = "compiled", "lacking", "lacking there"

# Seconds of library calls estimated so far for programs not compiled yet.
_spent: dict[Program, float] = {}


def run(
    kernel: Kernel,
    shape: Shape,
    inputs: Sequence[TBlob],
    scalars: Sequence[Any],
    results: Sequence[TBlob],
    limits: Settings,
    largest: int,
) -> None:
    """Run one kernel: inputs and scalars in the program's order, results as its outputs and then its reductions.

    largest: the elements of the largest loop that runs with this one.
    """
    program = kernel.program
    if results[0].device.backend is not CPU:
        _run_there(kernel, shape, inputs, scalars, results, limits)
        return
    if 0 in shape:
        _interpreted(kernel, shape, inputs, scalars, results)
        return
    if choose(program, largest, limits)[0] == "llvm":
        try:
            _generated(kernel, shape, inputs, scalars, results, limits.fast_math)
            program.notes[COMPILED] = True
            return
        except LacksError as lack:  # found out before anything is written
            program.notes[LACKING] = str(lack)
            if isinstance(lack, CompileError):
                warnings.warn(f"xtensor: no {lack}; the interpreter runs it instead", RuntimeWarning, stacklevel=2)
    elif limits.engine == "auto":
        if len(_spent) > 4096:
            _spent.clear()
        _spent[program] = _spent.get(program, 0.0) + largest * library_seconds(program)
    _interpreted(kernel, shape, inputs, scalars, results)


def choose(program: Program, largest: int, limits: Settings) -> tuple[str, str]:
    """Return the engine for a program, and why.

    largest: the elements of the largest loop of the evaluation: small loops are worth what large ones beside them are.
    """
    engine = limits.engine
    if COMPILED in program.notes and engine != "interpret":
        return "llvm", "asked for" if engine == "llvm" else "it is compiled"
    if engine == "interpret":
        return "interpret", "asked for"
    if host() is None:
        return "interpret", "there is no llvmlite, or this processor has no fused multiply-add"
    if LACKING in program.notes:
        return "interpret", f"there is no {program.notes[LACKING]}"
    if engine == "llvm":
        return "llvm", "asked for"
    before = _spent.get(program, 0.0)
    if before and largest >= COMPILED_AGAIN:
        return "llvm", "it comes again, over many elements"
    spent = before + largest * library_seconds(program)
    if spent > COMPILE_SECONDS:
        return "llvm", f"library calls would have taken {spent * 1e3:.1f} ms by now"
    return "interpret", f"library calls take {spent * 1e3:.2f} ms so far, less than compiling"


def is_compiled(program: Program) -> bool:
    """Return whether a program has run as generated code."""
    return COMPILED in program.notes


def may_be_compiled(program: Program) -> bool:
    """Return whether a program that has not run as generated code may do so yet."""
    return COMPILED not in program.notes and LACKING not in program.notes and host() is not None


# ---- generated code


def _generated(
    kernel: Kernel,
    shape: Shape,
    inputs: Sequence[TBlob],
    scalars: Sequence[Any],
    results: Sequence[TBlob],
    contract: bool,
) -> None:
    program = kernel.program
    packed = scalar_slots(scalars, program.scalars)
    blobs = (*inputs, *results)
    if not program.reductions:
        if all([blob.shape == shape and blob.is_packed for blob in blobs]):
            run_packed(program, prod(shape), [blob.address for blob in blobs], packed, contract)
        else:
            run_map(program, shape, [operand(blob, shape) for blob in blobs], packed, contract)
        return
    if COMPILED not in program.notes:
        check(program)
    outputs, reduced = results[: len(program.outputs)], results[len(program.outputs) :]
    operands = [operand(blob, shape) for blob in (*inputs, *outputs)]
    targets = [operand(_with_axes(blob, shape, kernel.axes), shape) for blob in reduced]
    run_reduction(program, shape, kernel.axes, operands, targets, reduced, packed, contract)


def _with_axes(blob: TBlob, shape: Shape, axes: Sequence[int]) -> TBlob:
    """Return the view of a reduction's result that has the reduced axes, with length 1."""
    if len(blob.shape) == len(shape):
        return blob
    return blob.view(blob.layout.insert(axes))


# ---- other devices


def choose_there(program: Program, shape: Shape, limits: Settings) -> tuple[str, str]:
    """Return the engine for a program on another device than the CPU, and why."""
    if limits.engine in ("interpret", "direct"):
        return "direct", "asked for"
    if 0 in shape:
        return "direct", "there are no elements"
    if LACKING_THERE in program.notes:
        return "direct", f"there is no {program.notes[LACKING_THERE]}"
    return "cuda", "the device has no other engine"


def _run_there(
    kernel: Kernel,
    shape: Shape,
    inputs: Sequence[TBlob],
    scalars: Sequence[Any],
    results: Sequence[TBlob],
    limits: Settings,
) -> None:
    """Run a kernel on another device than the CPU, without waiting for it."""
    program = kernel.program
    if choose_there(program, shape, limits)[0] == "cuda":
        try:
            cuda_run.run(kernel, shape, inputs, scalars, results, limits.fast_math)
            return
        except LacksError as lack:  # found out before anything is launched
            program.notes[LACKING_THERE] = str(lack)
            if isinstance(lack, BuildError):
                text = f"xtensor: no {lack}; the library's functions do the work, one after the other"
                warnings.warn(text, RuntimeWarning, stacklevel=2)
    _step_by_step(program, inputs, scalars, results)


def _step_by_step(program: Program, inputs: Sequence[TBlob], scalars: Sequence[Any], results: Sequence[TBlob]) -> None:
    """Run a program's steps and reductions as calls of the device's library."""
    backend = results[0].device.backend
    values = [*(blob.native() for blob in inputs), *scalars]
    for step in program.steps:
        operands = [values[arg] for arg in step.args]
        value = backend.call(step.op.kernel(backend), *operands, **dict(step.params))
        values.append(backend.asarray(value, step.dtype))
    found = [values[number] for number in program.outputs]
    for reduction in program.reductions:
        function = reduction.op.kernel(backend)
        found.append(backend.call(function, values[reduction.arg], **dict(reduction.params)))
    for blob, value in zip(results, found, strict=True):
        backend.call(setitem, blob.native(), ..., value)


# ---- the interpreter


def _interpreted(
    kernel: Kernel, shape: Shape, inputs: Sequence[TBlob], scalars: Sequence[Any], results: Sequence[TBlob]
) -> None:
    """Run a kernel's steps by blocks, and its reductions over the finished arrays."""
    program = kernel.program
    arrays = [blob.native() for blob in inputs]
    outputs = [blob.native() for blob in results[: len(program.outputs)]]
    found = interpret.evaluate_all(program, shape, arrays, scalars, outputs)
    for reduction, blob in zip(program.reductions, results[len(program.outputs) :], strict=True):
        function = reduction.op.kernel(CPU)
        blob.native()[...] = CPU.call(function, found[reduction.arg], **dict(reduction.params))


# ---- rows


def run_rows(plan: Plan, values: Sequence[Any], blobs: Mapping[int, TBlob], limits: Settings) -> bool:
    """Run all kernels of a plan row by row; return False, with nothing done, where that does not pay.

    blobs: what lies in memory: inputs, and results that are kept.
    """
    shape = values[next(kernel for kernel in plan.kernels if kernel.program.reductions).domain].shape
    if blobs[next(iter(plan.kept))].device.backend is not CPU:
        generates = limits.engine in ("auto", "llvm") and 0 not in shape
        generates = generates and all([blob.is_packed for blob in blobs.values()])
        return generates and cuda_rows.run(plan, shape, values, blobs, limits.fast_math)
    if not rows.pays(plan, shape):
        return False
    if any(choose(kernel.program, prod(shape), limits)[0] != "llvm" for kernel in plan.kernels):
        return False
    try:
        rows.run(plan, shape, values, blobs, limits.fast_math)
    except LacksError:  # the kernels then run one after the other, and find out which of them lacks what
        return False
    for kernel in plan.kernels:
        kernel.program.notes[COMPILED] = True
    return True


# ---- columns


def run_columns(plan: Plan, values: Sequence[Any], blobs: Mapping[int, TBlob], limits: Settings) -> bool:
    """Run all kernels of a plan strip by strip over columns; return False, with nothing done, where that does not pay.

    blobs: what lies in memory, packed: inputs, and results that are kept.
    """
    found = plan.columns
    if found is None or blobs[next(iter(plan.kept))].device.backend is not CPU or not columns.pays(plan, values):
        return False
    largest = prod(columns.shape_of(found, values))
    if any([choose(kernel.program, largest, limits)[0] != "llvm" for kernel in plan.kernels]):
        return False
    try:
        columns.run(found, plan.kept, values, {n: blob.address for n, blob in blobs.items()}, limits.fast_math)
    except LacksError:  # the kernels then run one after the other, and find out which of them lacks what
        return False
    for kernel in plan.kernels:
        kernel.program.notes[COMPILED] = True
    return True

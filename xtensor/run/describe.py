"""What the engine will do, in words: the graph, its kernels, the engine of each and why, and the code it will make.

Nothing here computes a value or is counted as work; code that is shown has been compiled, and is kept for its use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Any
from weakref import WeakValueDictionary

from ..base.layout import Shape
from ..base.options import Settings
from ..base.threads import worth
from ..codegen.cpu.driver import source
from ..codegen.cpu.loop import PACKED, Form
from ..codegen.cpu.primitives import LacksError
from ..devices.cpu import CPU
from ..graph.node import Node
from ..plan.program import Columns, Kernel, Plan, Program, Trace
from ..storage.blob import TBlob
from . import columns, cuda_rows, engines, launch, reduce, rows
from . import cuda as cuda_run

# ---- names

# Faces that have a name, under (id of the face, name). A name is the face's: a face stays when its node becomes bytes.
_faces: WeakValueDictionary[tuple[int, str], Any] = WeakValueDictionary()


def give_name(face: Any, name: str) -> None:
    """Give whoever shows a value (`face.value`) a name; the value keeps it while it is pending, even without a face."""
    for key in [key for key in list(_faces) if key[0] == id(face)]:
        del _faces[key]
    _faces[id(face), name] = face
    if isinstance(face.value, Node):
        face.value.name = name


def names() -> dict[int, str]:
    """Return the names of the values that named faces show now, by the values' ids."""
    return {id(getattr(face.value, "blob", None) or face.value): name for (_, name), face in list(_faces.items())}


def labels_of(values: Iterable[Any], known: Mapping[int, str]) -> list[str]:
    """Return what values are called: %name, made unique, else %number; Python scalars as they are written."""
    labels: list[str] = []
    taken: set[str] = set()
    for number, value in enumerate(values):
        if not isinstance(value, (Node, TBlob)):
            labels.append(repr(value))
            continue
        name = (value.name if isinstance(value, Node) else None) or known.get(id(value)) or str(number)
        label, more = name, 1
        while label in taken:
            more += 1
            label = f"{name}_{more}"
        taken.add(label)
        labels.append(f"%{label}")
    return labels


# ---- text


def described(trace: Trace, plan: Plan, show: str, limits: Settings, result_of: Callable[[int], TBlob]) -> str:
    """Return the graph and the plan where `show` has the word "plan", and generated code where it has "llvm".

    result_of: gives the blob of a result by its number, its layout known and its memory not allocated.
    """
    description = _Description(trace, plan, limits, result_of)
    lines = []
    if "plan" in show.split(","):
        lines += [*graph_lines(trace), *description.plan_lines()]
    if "llvm" in show.split(","):
        lines += description.code_lines()
    return "\n".join(lines)


def graph_lines(trace: Trace) -> list[str]:
    """Return the values of a graph, numbered, each with what it is made of."""
    labels = labels_of(trace.values, names())
    table: list[tuple[str, str]] = []
    for number, value in enumerate(trace.values):
        if number in trace.arguments:
            call = f"{labels[number]} = {_call(value, [labels[a] for a in trace.arguments[number]])}"
            table.append((call, kind_of(value) + "  kept" * (number in trace.kept)))
        elif isinstance(value, TBlob):
            strides = "" if value.is_packed else f"  strides {value.layout.strides}"
            table.append((labels[number], kind_of(value) + strides))
    width = max([len(left) for left, _ in table], default=0)
    steps = len(trace.arguments)
    return [f"graph: {steps} step{'s' * (steps != 1)}", *(f"  {left:{width}}  {right}" for left, right in table)]


def kind_of(value: Any) -> str:
    """Return dtype and shape."""
    return f"{value.dtype} {value.shape}"


def size_text(nbytes: float) -> str:
    """Return a number of bytes as people write it."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if nbytes >= size:
            return f"{nbytes / size:.3g} {unit}"
    return f"{nbytes:.0f} bytes"


def _call(node: Node, arguments: Sequence[str]) -> str:
    params = [f"{name}={value}" for name, value in node.params.items() if value is not None and value is not False]
    return f"{node.op.name}({', '.join([*arguments, *params])})"


class _Description:
    """The text about one plan, while it is written."""

    def __init__(self, trace: Trace, plan: Plan, limits: Settings, result_of: Callable[[int], TBlob]) -> None:
        self.trace = trace
        self.plan = plan
        self.limits = limits
        self.device = trace.values[plan.kernels[0].results[0]].device
        self.labels = labels_of(trace.values, names())
        self.blobs = {n: value for n, value in enumerate(trace.values) if isinstance(value, TBlob)}
        for kernel in plan.kernels:
            self.blobs |= {number: result_of(number) for number in kernel.results}
        self.by_rows, self.choices = self._choose()
        self.kernels = plan.kernels
        self.columns = self._columns()
        if self.columns is not None:
            self.kernels, self.choices = self.columns.kernels, self.choices[:1] * len(self.columns.kernels)

    # ---- what will run

    def _shape(self, kernel: Kernel) -> Shape:
        shape: Shape = self.trace.values[kernel.domain].shape
        return shape

    def _choose(self) -> tuple[bool, list[tuple[str, str]]]:
        """Return whether the plan runs by rows, and for each kernel its engine and why."""
        self.largest = self.plan.largest(self.trace.values)
        choices = [self._choice(kernel) for kernel in self.plan.kernels]
        own = "llvm" if self.device.backend is CPU else "cuda"
        could = self.plan.rows and all([engine == own for engine, _ in choices])
        return bool(could) and self._fits_rows(), choices

    def _columns(self) -> Columns | None:
        """Return the kernels that run by columns, None where they do not."""
        here = self.device.backend is CPU and all([engine == "llvm" for engine, _ in self.choices])
        if not here or not all([blob.is_packed for blob in self.blobs.values()]):
            return None
        return self.plan.columns if columns.pays(self.plan, self.trace.values) else None

    def _column_texts(self, found: Columns) -> list[str]:
        """Return the code that strips of columns go through, each once, and the code that takes them through it."""
        seconds = launch.seconds_together(found.kernels, self.plan.kept, self.trace.values)
        threads, contract = worth(seconds), self.limits.fast_math
        made = columns.Prepared(found, self.plan.kept, self.trace.values, contract, threads, True)
        return [made.code.text.rstrip()]

    def _fits_rows(self) -> bool:
        """Return whether a plan's rows lie in few enough ways to go through all kernels."""
        shape, values = self._shape(self._reducing()), self.trace.values
        try:
            if self.device.backend is CPU:
                return rows.pays(self.plan, shape) and bool(rows.formed(self.plan, shape, values, self._outside()))
            return all([blob.is_packed for blob in self.blobs.values()]) and bool(self._row_text())
        except LacksError:
            return False

    def _outside(self) -> dict[int, TBlob]:
        """Return what lies in memory when the plan runs by rows."""
        inside = {number for kernel in self.plan.kernels for number in kernel.results} - self.plan.kept
        return {number: blob for number, blob in self.blobs.items() if number not in inside}

    def _row_text(self) -> str:
        """Return the code that takes rows through all kernels; that of the CPU is compiled now if it was not before."""
        shape, values = self._shape(self._reducing()), self.trace.values
        if self.device.backend is CPU:
            contract = self.limits.fast_math
            return rows.ready_rows(self.plan, shape, values, self._outside(), contract, 1, True).ready.code.text
        backend: Any = self.device.backend
        return cuda_rows.text_of(self.plan, shape, values, backend.number)

    def _reducing(self) -> Kernel:
        return next(kernel for kernel in self.plan.kernels if kernel.program.reductions)

    def _choice(self, kernel: Kernel) -> tuple[str, str]:
        """Return a kernel's engine and why it is that."""
        generated = self._generated(kernel)
        if generated.direct is not None:
            if self.trace.values[generated.direct].op.kind == "view":
                return "none", "a view computes nothing"
            return "direct", "no loop of the engine computes this step"
        if self.device.backend is not CPU:
            return self._choice_there(generated)
        if 0 in self._shape(kernel):
            return "interpret", "there are no elements"
        engine, why = engines.choose(kernel.program, self.largest, self.limits)
        lack = _lack_of(kernel.program) if engine == "llvm" else ""
        return ("interpret", f"there is no {lack}") if lack else (engine, why)

    def _generated(self, kernel: Kernel) -> Kernel:
        """Return a kernel as its device's engine runs it."""
        return cuda_run.generated(kernel, self.trace.values) or kernel

    def _choice_there(self, kernel: Kernel) -> tuple[str, str]:
        """Return the engine of a kernel on another device than the CPU, and why it is that."""
        shape = self._shape(kernel)
        choice = engines.choose_there(kernel.program, shape, self.limits)
        if choice[0] == "cuda":
            try:
                self._texts(kernel)
            except LacksError as lack:
                return "direct", f"there is no {lack}"
        return choice

    def _texts(self, kernel: Kernel) -> list[str]:
        blobs = [self.blobs[number] for number in (*kernel.inputs, *kernel.results)]
        return cuda_run.texts(kernel, self._shape(kernel), blobs, self.limits.fast_math)

    def _code(self, kernel: Kernel) -> str:
        """Return the code that a kernel runs, compiled now if it was not before; CUDA's is not compiled for that."""
        program, shape = kernel.program, self._shape(kernel)
        contract = self.limits.fast_math
        if self.device.backend is not CPU:
            return "\n".join(self._texts(self._generated(kernel)))
        blobs = [self.blobs[number] for number in (*kernel.inputs, *kernel.results)]
        threads = worth(launch.seconds_of(program, prod(shape)))
        if program.reductions:
            moved = len(program.moved)
            seen = [*blobs[:moved], *(engines._with_axes(blob, shape, kernel.axes) for blob in blobs[moved:])]
            strides = [_strides(blob, shape) for blob in seen]
            return reduce._ready_reduction(program, shape, kernel.axes, strides, contract, threads).ready.code.text
        strides = [_strides(blob, shape) for blob in blobs]
        aligned = all(_is_aligned(blob) for blob in blobs[len(program.inputs) :])
        return launch._ready_map(program, shape, strides, contract, threads, aligned).code.text

    # ---- what is said of it

    def plan_lines(self) -> list[str]:
        """Return the kernels of the plan and what they move."""
        count = len(self.kernels)
        moved, stepwise = self._moved(), self._moved_stepwise()
        lines = [f"plan: {count} kernel{'s' * (count != 1)}, moving {size_text(moved)} to and from memory"]
        if moved < stepwise:
            lines[0] += f" (step by step: {size_text(stepwise)})"
        if self.by_rows:
            cells = prod(self._shape(self._reducing())[self.plan.rows :])
            lines.append(f"  together, row by row of {cells} elements")
        if self.columns is not None:
            length = prod(self._shape(self._reducing())[: self.columns.lead])
            lines.append(f"  together, strip by strip over columns of {length} elements")
        for place, kernel in enumerate(self.kernels):
            lines += self._kernel_lines(place, kernel)
        return lines

    def code_lines(self) -> list[str]:
        """Return the generated code of every kernel that has some."""
        if self.by_rows:
            return [f"{'llvm' if self.device.backend is CPU else 'cuda'} of all kernels:", self._row_text().rstrip()]
        if self.columns is not None:
            return ["llvm of all kernels:", *self._column_texts(self.columns)]
        lines = []
        for place, (kernel, (engine, _)) in enumerate(zip(self.plan.kernels, self.choices, strict=True), 1):
            has_code = engine in ("llvm", "cuda")
            title = engine if has_code else "llvm" if self.device.backend is CPU else "cuda"
            lines.append(f"{title} of kernel {place}:" + f" none, its engine is {engine}" * (not has_code))
            lines += [self._code(kernel).rstrip()] if has_code else []
        return lines

    def _kernel_lines(self, place: int, kernel: Kernel) -> list[str]:
        engine, why = self.choices[place]
        lines = [f"  kernel {place + 1} over {self._shape(kernel)}, {engine}: {why}"]
        if kernel.direct is not None:
            node, arguments = self.trace.values[kernel.direct], self.trace.arguments[kernel.direct]
            call = _call(node, [self.labels[a] for a in arguments])
            return [*lines, f"    {self.labels[kernel.direct]} = {call} {kind_of(node)}"]
        lines += [f"    reads {self._operand(number)}" for number in kernel.inputs]
        lines += self._step_lines(kernel)
        for number in kernel.results:
            inside = (self.by_rows or self.columns) and number not in self.plan.kept
            lines.append(f"    {'hands on' if inside else 'writes'} {self._operand(number)}")
        return lines

    def _operand(self, number: int) -> str:
        return f"{self.labels[number]} {kind_of(self.trace.values[number])}"

    def _step_lines(self, kernel: Kernel) -> list[str]:
        """Return a program's steps and reductions, its values called as in the graph."""
        program = kernel.program
        numbers = self._numbers(kernel)
        dtypes = program.dtypes
        lines = []
        for step, number in zip(program.steps, numbers[len(program.dtypes) - len(program.steps) :], strict=True):
            operands = []
            for arg, wanted in zip(step.args, step.loop, strict=True):
                converted = dtypes[arg] != wanted and step.op.name != "astype"
                operands.append(self.labels[numbers[arg]] + f" as {wanted}" * converted)
            lines.append(f"    {self.labels[number]} = {step.op.name}({', '.join(operands)}) {step.dtype}")
        for reduction, number in zip(program.reductions, kernel.results[len(program.outputs) :], strict=True):
            name, value = reduction.op.name, self.labels[numbers[reduction.arg]]
            lines.append(f"    {self.labels[number]} = {name}({value}) over axes {kernel.axes} {reduction.dtype}")
        return lines

    def _numbers(self, kernel: Kernel) -> list[int]:
        """Return the number in the graph of each value of a kernel's program."""
        numbers = [*kernel.inputs, *kernel.scalars]
        found: set[int] = set()
        for step in kernel.program.steps:
            arguments = tuple(numbers[arg] for arg in step.args)
            same = (n for n, taken in self.trace.arguments.items() if taken == arguments and n not in found)
            number = next(n for n in same if self.trace.values[n].op is step.op)
            found.add(number)
            numbers.append(number)
        return numbers

    def _moved(self) -> int:
        """Return the bytes all kernels read and write; what lives in the cache while rows go by is not counted."""
        kept = {*self.plan.kept, *(n for n, v in enumerate(self.trace.values) if isinstance(v, TBlob))}
        operands = [(*kernel.inputs, *kernel.results) for kernel in self.plan.kernels]
        if self.by_rows or self.columns:
            operands = [tuple(kept & {number for numbers in operands for number in numbers})]
        return sum(_nbytes(self.trace.values[number]) for numbers in operands for number in numbers)

    def _moved_stepwise(self) -> int:
        """Return the bytes that one library call per step would move."""
        values = self.trace.values
        operands = [(number, *taken) for number, taken in self.trace.arguments.items()]
        return sum(_nbytes(values[n]) for numbers in operands for n in numbers if hasattr(values[n], "dtype"))


def _nbytes(value: Any) -> int:
    size: int = prod(value.shape) * value.dtype.itemsize
    return size


@lru_cache(maxsize=1024)
def _lack_of(program: Program) -> str:
    """Return what generated code lacks for a program, "" where nothing."""
    try:
        source(program, Form(1, 1, (PACKED,) * len(program.moved)))
    except LacksError as lack:
        return str(lack)
    return ""


def _strides(blob: TBlob, shape: Shape) -> Shape:
    layout = blob.layout.broadcast_to(shape)
    assert layout is not None
    return layout.strides


def _is_aligned(blob: TBlob) -> bool:
    """Return whether a blob begins where a cache line does; memory that is still to come does."""
    return not blob.owner.is_allocated or blob.address % 64 == 0
